//! A Canon layer over gate and up and the gated unit of an MLP after it, in one kernel: g, u = canon(gate, up),
//! y = silu(g) ⊙ u.
//!
//! The fused path keeps neither g nor u nor their gradients in memory. It computes them as the two fused kernels would,
//! one after the other, over the blocks of `fused.rs`, and so has their bits. The reference runs the two kernels.

use tch::Tensor;

use super::super::ffi::{self, Block, BlockMut, Rows, RowsMut};
use super::super::lanes::{load, mul_add, sigmoid, store};
use super::super::{KernelError, cuda, swiglu};
use super::fused::Parts;
use super::strips::{
    BLOCK, ConvInput, ForKernel, Layer, REACH, gradient_strip, next_strip, run_on,
};
use super::{Activation, ConvOperands, Gradients, Options, Path, Shape, dense_like};

/// The options of a layer without an activation of its own.
fn plain(residual: bool) -> Options {
    Options { residual, activation: Activation::Identity }
}

/// y for gate and up, the two inputs.
pub fn forward(
    path: Path,
    operands: ConvOperands<'_>,
    residual: bool,
) -> Result<Tensor, KernelError> {
    let [gate, up] = both(operands.inputs)?;
    let isa = match path {
        Path::Fused(isa) => isa,
        Path::Cuda(_) => {
            Shape::from_operands(&operands)?;
            let launcher = cuda::launcher(gate.device())?;
            return cuda::canon::gated_forward(launcher, operands, [*gate, *up], residual);
        }
        Path::Reference(_) => {
            let convolved = super::forward(path, operands, plain(residual))?;
            let [g, u] = both(&convolved)?;
            return swiglu::forward(path, g, u);
        }
    };
    let parts = Parts::new(&Shape::from_operands(&operands)?, operands)?;
    let sources = [parts.source(0)?, parts.source(1)?];
    let mut y = dense_like(gate)?;
    let reads: Vec<&Tensor> = parts.reads(0).into_iter().chain([*up]).collect();
    let mut out = RowsMut::from_tensor(&mut y, &reads)?;
    ffi::parallel_blocks(
        [&mut out],
        BLOCK,
        &mut [],
        0,
        || (),
        |(), block, [mut rows], _| {
            let rows = &mut rows;
            run_on(isa, parts.kernel, GatedForward { sources: &sources, residual, block, rows });
        },
    );
    Ok(y)
}

/// The gradients of sum(y * dy). There is no state.
pub fn backward(
    path: Path,
    dy: &Tensor,
    operands: ConvOperands<'_>,
    residual: bool,
) -> Result<Gradients, KernelError> {
    let [gate, up] = both(operands.inputs)?;
    if dy.size() != gate.size() {
        return Err(super::unlike("the gated unit's gradient", &dy.size(), &gate.size()));
    }
    let isa = match path {
        Path::Fused(isa) => isa,
        Path::Cuda(_) => {
            Shape::from_operands(&operands)?;
            let launcher = cuda::launcher(gate.device())?;
            return cuda::canon::gated_backward(launcher, dy, operands, [*gate, *up], residual);
        }
        Path::Reference(_) => {
            let convolved = super::forward(path, operands, plain(residual))?;
            let [g, u] = both(&convolved)?;
            let (dg, du) = swiglu::backward(path, dy, g, u)?;
            return super::backward(path, &[&dg, &du], operands, plain(residual));
        }
    };
    let parts = Parts::new(&Shape::from_operands(&operands)?, operands)?;
    let sources = [parts.source(0)?, parts.source(1)?];
    let [mut dgate, mut dup] = [dense_like(gate)?, dense_like(up)?];
    let mut weight = dense_like(operands.weight)?;
    let mut bias = operands.bias.map(dense_like).transpose()?;
    let grads = dy;
    let dy = Rows::from_tensor(grads)?;
    let width = sources[0].channels;
    let sums = (parts.kernel + usize::from(bias.is_some())) * width; // the taps, then the bias
    // [blocks, 2, k or k+1, c]
    let mut partials = vec![0.0; ffi::block_count(dy.sizes(), BLOCK) * 2 * sums];
    let reads: Vec<&Tensor> = parts.reads(0).into_iter().chain([*up, grads]).collect();
    let mut outs =
        [RowsMut::from_tensor(&mut dgate, &reads)?, RowsMut::from_tensor(&mut dup, &reads)?];
    ffi::parallel_blocks(
        outs.each_mut(),
        BLOCK,
        &mut partials,
        2 * sums,
        || (),
        |(), block, mut out, partial| {
            let (sources, rows) = (&sources, &mut out);
            run_on(
                isa,
                parts.kernel,
                GatedBackward { sources, dy, residual, block, rows, partial },
            );
        },
    );
    let filter = filter_gradient(&parts, &partials, sums, width);
    parts.write(&filter, &mut weight, bias.as_mut())?;
    Ok(Gradients { inputs: vec![dgate, dup], weight, bias, state: None })
}

/// The sum over blocks of the filter's gradients, `sums` numbers for each of the two inputs.
fn filter_gradient(parts: &Parts<'_>, partials: &[f32], sums: usize, width: usize) -> Vec<f32> {
    let mut filter = vec![0.0; sums * 2];
    for partial in partials.chunks_exact((2 * sums).max(1)) {
        for (i, partial) in partial.chunks_exact(sums).enumerate() {
            parts.add(&mut filter, i, partial, width);
        }
    }
    filter
}

/// Checks that there are two tensors of one shape: gate and up, or values computed from them.
fn both<T: std::borrow::Borrow<Tensor>>(tensors: &[T]) -> Result<&[T; 2], KernelError> {
    match tensors {
        [a, b] if a.borrow().size() == b.borrow().size() => {
            tensors.try_into().map_err(|_| KernelError::new("gate and up".to_owned()))
        }
        _ => Err(KernelError::new("a gated unit takes gate and up of one shape".to_owned())),
    }
}

struct GatedForward<'a, 'r> {
    sources: &'a [ConvInput<'a>; 2],
    residual: bool,
    block: &'a Block,
    rows: &'a mut BlockMut<'r>,
}

impl ForKernel for GatedForward<'_, '_> {
    #[inline(always)]
    fn run<const K: usize, const FMA: bool, const LANES: usize>(self) {
        forward_block::<K, FMA, LANES>(self);
    }
}

#[inline(always)]
fn forward_block<const K: usize, const FMA: bool, const LANES: usize>(work: GatedForward<'_, '_>) {
    let GatedForward { sources, residual, block: Block { batch, times }, rows } = work;
    let (batch, start, count) = (*batch, times.start, times.len());
    let xs: [[&[f32]; REACH]; 2] = [0, 1].map(|part: usize| sources[part].inputs(batch, start));
    let ahead = rows.ahead();
    let mut out = rows.rows::<BLOCK>(start);
    let out = &mut out[..count];
    let width = sources[0].channels;
    let bulk = width - width % LANES;
    for c in (0..bulk).step_by(LANES) {
        let (next, at) = next_strip::<LANES>(start, c, width);
        let ask = |i: usize| {
            sources[0].rows.prefetch(batch, next + i, at);
            sources[1].rows.prefetch(batch, next + i, at);
            ahead.prefetch(batch, next + i, at);
        };
        forward_strip::<K, FMA, LANES>(sources, &xs, residual, out, c, ask);
    }
    for c in bulk..width {
        forward_strip::<K, FMA, 1>(sources, &xs, residual, out, c, |_| {});
    }
}

/// Computes a strip of the rows of `out`; `ask` is called for each row, to prefetch the next strip.
#[inline(always)]
fn forward_strip<const K: usize, const FMA: bool, const W: usize>(
    sources: &[ConvInput<'_>; 2],
    [gate, up]: &[[&[f32]; REACH]; 2],
    residual: bool,
    out: &mut [&mut [f32]],
    c: usize,
    ask: impl Fn(usize),
) {
    let mut of_gate = Layer::<K, W>::new(&sources[0], gate, c);
    let mut of_up = Layer::<K, W>::new(&sources[1], up, c);
    for (i, out) in out.iter_mut().enumerate() {
        ask(i);
        let g = next::<K, FMA, W>(&mut of_gate, load(gate[i + K - 1], c), residual);
        let u = next::<K, FMA, W>(&mut of_up, load(up[i + K - 1], c), residual);
        let mut y = [0.0; W];
        for l in 0..W {
            y[l] = g[l] * sigmoid::<FMA>(g[l]) * u[l];
        }
        store(out, c, &y);
    }
}

/// The layer's result for the next row of one of gate and up.
#[inline(always)]
fn next<const K: usize, const FMA: bool, const W: usize>(
    layer: &mut Layer<K, W>,
    x: [f32; W],
    residual: bool,
) -> [f32; W] {
    let mut y = layer.next::<FMA>(x);
    if residual {
        for (value, x) in y.iter_mut().zip(&x) {
            *value += x;
        }
    }
    y
}

/// Number of rows of x that a block and the K-1 rows after it read.
const READ: usize = REACH + 7;

struct GatedBackward<'a, 'r> {
    sources: &'a [ConvInput<'a>; 2],
    dy: Rows<'a>,
    residual: bool,
    block: &'a Block,
    rows: &'a mut [BlockMut<'r>; 2],
    partial: &'a mut [f32],
}

impl ForKernel for GatedBackward<'_, '_> {
    #[inline(always)]
    fn run<const K: usize, const FMA: bool, const LANES: usize>(self) {
        backward_block::<K, FMA, LANES>(self);
    }
}

/// Rows of a block, and the block's sizes.
struct Span<'a> {
    sources: &'a [ConvInput<'a>; 2],
    residual: bool,
    /// Inputs of gate and up, from K-1 rows before the block on.
    xs: [[&'a [f32]; READ]; 2],
    dy: [&'a [f32]; REACH],
    /// Rows of the block.
    count: usize,
    /// Rows with a dy: those of the block, and up to K-1 later ones.
    reach: usize,
}

#[inline(always)]
fn backward_block<const K: usize, const FMA: bool, const LANES: usize>(
    work: GatedBackward<'_, '_>,
) {
    let GatedBackward { sources, dy, residual, block, rows: [dgate, dup], partial } = work;
    let Block { batch, times } = block;
    let (batch, start, count) = (*batch, times.start, times.len());
    let reach = sources[0].time.min(times.end + K - 1) - start;
    let row = |i: usize| if i < reach { dy.row(batch, start + i) } else { sources[0].zeros };
    let xs = [0, 1].map(|part: usize| sources[part].inputs(batch, start));
    let span = Span { sources, residual, xs, dy: std::array::from_fn(row), count, reach };
    let ahead = [dgate.ahead(), dup.ahead()];
    let mut outs = [dgate.rows::<BLOCK>(start), dup.rows::<BLOCK>(start)];
    let width = sources[0].channels;
    let bulk = width - width % LANES;
    let mut wide = [[[0.0; LANES]; REACH]; 2];
    for c in (0..bulk).step_by(LANES) {
        let (next, at) = next_strip::<LANES>(start, c, width);
        let read = |i: usize| {
            sources[0].rows.prefetch(batch, next + i, at);
            sources[1].rows.prefetch(batch, next + i, at);
            dy.prefetch(batch, next + i, at);
        };
        let write = |part: usize, i: usize| ahead[part].prefetch(batch, next + i, at);
        let slopes = &mut wide;
        slopes_of::<K, FMA, LANES>(&span, slopes, c, read);
        gradients_of::<K, FMA, LANES>(&span, slopes, &mut outs, partial, c, write);
    }
    let mut narrow = [[[0.0; 1]; REACH]; 2];
    for c in bulk..width {
        slopes_of::<K, FMA, 1>(&span, &mut narrow, c, |_| {});
        gradients_of::<K, FMA, 1>(&span, &narrow, &mut outs, partial, c, |_, _| {});
    }
}

/// The gradients of g and u, for every row that the block reads.
#[inline(always)]
fn slopes_of<const K: usize, const FMA: bool, const W: usize>(
    span: &Span<'_>,
    slopes: &mut [[[f32; W]; REACH]; 2],
    c: usize,
    ask: impl Fn(usize),
) {
    let [gate, up] = &span.xs;
    let [dgate, dup] = slopes;
    let mut of_gate = Layer::<K, W>::new(&span.sources[0], gate, c);
    let mut of_up = Layer::<K, W>::new(&span.sources[1], up, c);
    for i in 0..span.reach {
        ask(i);
        let g = next::<K, FMA, W>(&mut of_gate, load(gate[i + K - 1], c), span.residual);
        let u = next::<K, FMA, W>(&mut of_up, load(up[i + K - 1], c), span.residual);
        let dy: [f32; W] = load(span.dy[i], c);
        for l in 0..W {
            let s = sigmoid::<FMA>(g[l]);
            dgate[i][l] = dy[l] * u[l] * (s * mul_add::<FMA>(g[l], 1.0 - s, 1.0));
            dup[i][l] = dy[l] * (g[l] * s);
        }
    }
    for i in span.reach..span.count + K - 1 {
        dgate[i] = [0.0; W];
        dup[i] = [0.0; W];
    }
}

/// dx of the block's rows of gate and up, and their share of the filter's gradient.
#[inline(always)]
fn gradients_of<const K: usize, const FMA: bool, const W: usize>(
    span: &Span<'_>,
    slopes: &[[[f32; W]; REACH]; 2],
    outs: &mut [[&mut [f32]; BLOCK]; 2],
    partial: &mut [f32],
    c: usize,
    ask: impl Fn(usize, usize),
) {
    let (of_gate, of_up) = partial.split_at_mut(partial.len() / 2);
    let [out_gate, out_up] = outs;
    for (part, (out, partial)) in [(out_gate, of_gate), (out_up, of_up)].into_iter().enumerate() {
        let slope = |i: usize| slopes[part][i];
        gradient_strip::<K, FMA, W>(
            &span.sources[part],
            &span.xs[part],
            (slope, slope),
            span.residual,
            &mut out[..span.count],
            partial,
            c,
            |i| ask(part, i),
        );
    }
}
