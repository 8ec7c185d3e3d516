//! The loops of the fused Canon layer over one block of rows, compiled once for each kernel size and instruction set.
//!
//! A block is processed in strips of one register, so a strip's filter, history and filter gradient stay in registers.
//! A strip jumps from row to row, which the hardware prefetcher does not predict, so each strip prefetches the next
//! one. A channel's sums run over time in order, for any strip; the block's share of dw is added to the existing
//! values.

use super::super::Isa;
use super::super::ffi::{self, Block, BlockMut, Rows, Vectorised};
use super::super::lanes::{load, mul_add, sigmoid, store};
use super::{Activation, Options};

/// Time steps of a block, the unit of work.
pub(super) const BLOCK: usize = 64;

/// Maximum number of rows of a block and the K-1 after it, or of its inputs and the K-1 before them.
pub(super) const REACH: usize = BLOCK + 7;

/// One input with its past and its channels of the filter.
pub(super) struct ConvInput<'a> {
    pub(super) rows: Rows<'a>,
    pub(super) state: Option<Rows<'a>>,
    /// Only the first `kernel` are used.
    pub(super) taps: [&'a [f32]; 8],
    pub(super) zeros: &'a [f32],
    /// Zeros if the layer has no bias.
    pub(super) bias: &'a [f32],
    pub(super) time: usize,
    pub(super) channels: usize,
    pub(super) kernel: usize,
}

impl<'a> ConvInput<'a> {
    /// N rows, from K-1 before row `first` on.
    #[inline(always)]
    pub(super) fn inputs<const N: usize>(&self, b: usize, first: usize) -> [&'a [f32]; N] {
        std::array::from_fn(|i| self.delayed(b, first + i))
    }

    /// Row t - (k-1): from the state before the first row; zeros after the last.
    #[inline(always)]
    pub(super) fn delayed(&self, b: usize, t: usize) -> &'a [f32] {
        let past = self.kernel - 1;
        match (&self.state, t < past) {
            (Some(state), true) => state.row(b, t),
            (None, true) => self.zeros,
            (_, false) if t - past < self.time => self.rows.row(b, t - past),
            (_, false) => self.zeros,
        }
    }
}

pub(super) struct StripForward<'a, 'r> {
    pub(super) source: &'a ConvInput<'a>,
    pub(super) options: Options,
    pub(super) block: &'a Block,
    pub(super) rows: &'a mut BlockMut<'r>,
}

/// Work to compile for each kernel size and instruction set, each in a function of its own, so that none grows large.
pub(super) trait ForKernel {
    fn run<const K: usize, const FMA: bool, const LANES: usize>(self);
}

struct Of<const K: usize, W>(W);

impl<const K: usize, W: ForKernel> Vectorised for Of<K, W> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        self.0.run::<K, FMA, LANES>();
    }
}

/// Runs `work` as compiled for a kernel size and `isa`.
pub(super) fn run_on(isa: Isa, kernel: usize, work: impl ForKernel) {
    match kernel {
        2 => ffi::run_on(isa, Of::<2, _>(work)),
        3 => ffi::run_on(isa, Of::<3, _>(work)),
        4 => ffi::run_on(isa, Of::<4, _>(work)),
        5 => ffi::run_on(isa, Of::<5, _>(work)),
        6 => ffi::run_on(isa, Of::<6, _>(work)),
        7 => ffi::run_on(isa, Of::<7, _>(work)),
        8 => ffi::run_on(isa, Of::<8, _>(work)),
        other => unreachable!("`Parts::new` refuses kernel {other}"),
    }
}

impl ForKernel for StripForward<'_, '_> {
    #[inline(always)]
    fn run<const K: usize, const FMA: bool, const LANES: usize>(self) {
        forward_block::<K, FMA, LANES>(self);
    }
}

#[inline(always)]
fn forward_block<const K: usize, const FMA: bool, const LANES: usize>(work: StripForward<'_, '_>) {
    let StripForward { source, options, block: Block { batch, times }, rows } = work;
    let xs: [&[f32]; REACH] = source.inputs(*batch, times.start);
    let ahead = rows.ahead();
    let mut out = rows.rows::<BLOCK>(times.start);
    let out = &mut out[..times.len()];
    let bulk = source.channels - source.channels % LANES;
    for c in (0..bulk).step_by(LANES) {
        let (next, at) = next_strip::<LANES>(times.start, c, source.channels);
        let ask = |i: usize| {
            source.rows.prefetch(*batch, next + i, at);
            ahead.prefetch(*batch, next + i, at);
        };
        forward_strip::<K, FMA, LANES>(source, &xs, options, out, c, ask);
    }
    for c in bulk..source.channels {
        forward_strip::<K, FMA, 1>(source, &xs, options, out, c, |_| {});
    }
}

/// The first row and channel of the strip after the one at channel c in the block from row `first`: the next one of
/// that block, or the first of the next block.
#[inline(always)]
pub(super) fn next_strip<const LANES: usize>(
    first: usize,
    c: usize,
    channels: usize,
) -> (usize, usize) {
    if c + LANES < channels { (first, c + LANES) } else { (first + BLOCK, 0) }
}

/// Computes a strip of the rows of `out`; `ask` is called for each row, to prefetch the next strip.
#[inline(always)]
fn forward_strip<const K: usize, const FMA: bool, const W: usize>(
    source: &ConvInput<'_>,
    xs: &[&[f32]; REACH],
    options: Options,
    out: &mut [&mut [f32]],
    c: usize,
    ask: impl Fn(usize),
) {
    let mut layer = Layer::<K, W>::new(source, xs, c);
    for (i, out) in out.iter_mut().enumerate() {
        ask(i);
        let x = load(xs[i + K - 1], c);
        let mut y = layer.next::<FMA>(x);
        if options.activation == Activation::Silu {
            for value in &mut y {
                *value *= sigmoid::<FMA>(*value);
            }
        }
        if options.residual {
            for (value, x) in y.iter_mut().zip(&x) {
                *value += x;
            }
        }
        store(out, c, &y);
    }
}

/// The convolution of one input in a strip: its filter, and the last K rows of the input.
pub(super) struct Layer<const K: usize, const W: usize> {
    taps: [[f32; W]; K],
    bias: [f32; W],
    window: [[f32; W]; K],
}

impl<const K: usize, const W: usize> Layer<K, W> {
    /// Ready for row K-1 of `xs`.
    #[inline(always)]
    pub(super) fn new(source: &ConvInput<'_>, xs: &[&[f32]], c: usize) -> Self {
        let taps = std::array::from_fn(|j| load(source.taps[j], c));
        let mut window = [[0.0; W]; K];
        for j in 1..K {
            window[j] = load(xs[j - 1], c);
        }
        Self { taps, bias: load(source.bias, c), window }
    }

    /// conv(x) + bias for the next row.
    #[inline(always)]
    pub(super) fn next<const FMA: bool>(&mut self, x: [f32; W]) -> [f32; W] {
        push(&mut self.window, x);
        convolve::<K, FMA, W>(&self.taps, &self.window, self.bias)
    }
}

pub(super) struct StripBackward<'a, 'r> {
    pub(super) source: &'a ConvInput<'a>,
    pub(super) dy: Rows<'a>,
    pub(super) options: Options,
    pub(super) block: &'a Block,
    pub(super) rows: &'a mut BlockMut<'r>,
    pub(super) partial: &'a mut [f32],
    pub(super) local: &'a mut Vec<f32>,
}

impl ForKernel for StripBackward<'_, '_> {
    #[inline(always)]
    fn run<const K: usize, const FMA: bool, const LANES: usize>(self) {
        backward_block::<K, FMA, LANES>(self);
    }
}

#[inline(always)]
fn backward_block<const K: usize, const FMA: bool, const LANES: usize>(
    work: StripBackward<'_, '_>,
) {
    let StripBackward { source, dy, options, block, rows, partial, local } = work;
    let width = source.channels;
    let start = block.times.start;
    // dp of the block and of the K-1 rows after it, which also read its inputs.
    let end = source.time.min(block.times.end + K - 1);
    let slopes: Option<&[f32]> = match options.activation {
        Activation::Identity => None,
        Activation::Silu => {
            local.resize((BLOCK + K - 1) * width, 0.0);
            let into = &mut local[..(end - start) * width];
            slopes_of::<K, FMA, LANES>(&mut Slopes {
                source,
                dy,
                options,
                batch: block.batch,
                first: start,
                into,
            });
            Some(&local[..(end - start) * width])
        }
    };
    let slope = |t: usize| match slopes {
        _ if t >= end => source.zeros,
        None => dy.row(block.batch, t),
        Some(slopes) => &slopes[(t - start) * width..][..width],
    };
    let (batch, count) = (block.batch, block.times.len());
    let xs: [&[f32]; REACH] = source.inputs(batch, start);
    let dps: [&[f32]; REACH] = std::array::from_fn(|i| slope(start + i));
    let dys: [&[f32]; BLOCK] =
        std::array::from_fn(|i| if i < count { dy.row(batch, start + i) } else { source.zeros });
    let ahead = rows.ahead();
    let mut out = rows.rows::<BLOCK>(start);
    let out = &mut out[..count];
    let bulk = width - width % LANES;
    for c in (0..bulk).step_by(LANES) {
        let (next, at) = next_strip::<LANES>(start, c, width);
        let ask = |i: usize| {
            source.rows.prefetch(batch, next + i, at);
            dy.prefetch(batch, next + i, at);
            ahead.prefetch(batch, next + i, at);
        };
        let slopes = (|i: usize| load(dps[i], c), |i: usize| load(dys[i], c));
        let residual = options.residual;
        gradient_strip::<K, FMA, LANES>(source, &xs, slopes, residual, out, partial, c, ask);
    }
    for c in bulk..width {
        let slopes = (|i: usize| load(dps[i], c), |i: usize| load(dys[i], c));
        let residual = options.residual;
        gradient_strip::<K, FMA, 1>(source, &xs, slopes, residual, out, partial, c, |_| {});
    }
}

/// dx of a strip of the rows of `out`, and their share of the filter's gradient. `dp` gives the gradient of the
/// convolution for those rows and the K-1 after them; `dy`, for the residual, that of the result.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "the operands and results of one strip")]
pub(super) fn gradient_strip<const K: usize, const FMA: bool, const W: usize>(
    source: &ConvInput<'_>,
    xs: &[&[f32]],
    (dp, dy): (impl Fn(usize) -> [f32; W], impl Fn(usize) -> [f32; W]),
    residual: bool,
    out: &mut [&mut [f32]],
    partial: &mut [f32],
    c: usize,
    ask: impl Fn(usize),
) {
    let width = source.channels;
    // Reversed: dp[t + i] meets tap K-1-i.
    let taps: [[f32; W]; K] = std::array::from_fn(|j| load(source.taps[K - 1 - j], c));
    let mut sums: [[f32; W]; K] = std::array::from_fn(|j| load(&partial[j * width..][..width], c));
    // The bias's share comes after the taps', if there is a bias.
    let biased = partial.len() > K * width;
    let mut bias = if biased { load(&partial[K * width..], c) } else { [0.0; W] };
    let (mut window, mut slopes) = ([[0.0; W]; K], [[0.0; W]; K]);
    for j in 1..K {
        window[j] = load(xs[j - 1], c);
        slopes[j] = dp(j - 1);
    }
    for (i, out) in out.iter_mut().enumerate() {
        ask(i);
        push(&mut window, load(xs[i + K - 1], c));
        push(&mut slopes, dp(i + K - 1));
        let mut dx = convolve::<K, FMA, W>(&taps, &slopes, [0.0; W]);
        if residual {
            for (value, dy) in dx.iter_mut().zip(&dy(i)) {
                *value += dy;
            }
        }
        store(out, c, &dx);
        for j in 0..K {
            for l in 0..W {
                sums[j][l] = mul_add::<FMA>(slopes[0][l], window[j][l], sums[j][l]);
            }
        }
        for l in 0..W {
            bias[l] += slopes[0][l];
        }
    }
    if biased {
        store(&mut partial[K * width..], c, &bias);
    }
    for j in 0..K {
        store(&mut partial[j * width..][..width], c, &sums[j]);
    }
}

/// dp = dy act'(conv(x) + bias) for the rows from `first` on that fit in `into`.
pub(super) struct Slopes<'a> {
    pub(super) source: &'a ConvInput<'a>,
    pub(super) dy: Rows<'a>,
    pub(super) options: Options,
    pub(super) batch: usize,
    pub(super) first: usize,
    pub(super) into: &'a mut [f32], // [rows, c]
}

impl ForKernel for Slopes<'_> {
    #[inline(always)]
    fn run<const K: usize, const FMA: bool, const LANES: usize>(mut self) {
        slopes_of::<K, FMA, LANES>(&mut self);
    }
}

#[inline(always)]
fn slopes_of<const K: usize, const FMA: bool, const LANES: usize>(work: &mut Slopes<'_>) {
    let Slopes { source, dy, options, batch, first, into } = work;
    let width = source.channels;
    for (i, row) in into.chunks_exact_mut(width.max(1)).enumerate() {
        let t = *first + i;
        let dy = dy.row(*batch, t);
        if options.activation == Activation::Identity {
            row.copy_from_slice(dy);
            continue;
        }
        let xs: [&[f32]; K] = std::array::from_fn(|j| source.delayed(*batch, t + j));
        let bulk = width - width % LANES;
        for c in (0..bulk).step_by(LANES) {
            slope_strip::<K, FMA, LANES>(source, &xs, dy, row, c);
        }
        for c in bulk..width {
            slope_strip::<K, FMA, 1>(source, &xs, dy, row, c);
        }
    }
}

#[inline(always)]
fn slope_strip<const K: usize, const FMA: bool, const W: usize>(
    source: &ConvInput<'_>,
    xs: &[&[f32]; K],
    dy: &[f32],
    into: &mut [f32],
    c: usize,
) {
    let p = convolve::<K, FMA, W>(
        &std::array::from_fn(|j| load(source.taps[j], c)),
        &std::array::from_fn(|j| load(xs[j], c)),
        load(source.bias, c),
    );
    let mut slopes: [f32; W] = load(dy, c);
    for (slope, p) in slopes.iter_mut().zip(p) {
        let s = sigmoid::<FMA>(p);
        *slope *= s * mul_add::<FMA>(p, 1.0 - s, 1.0);
    }
    store(into, c, &slopes);
}

#[inline(always)]
fn convolve<const K: usize, const FMA: bool, const W: usize>(
    taps: &[[f32; W]; K],
    xs: &[[f32; W]; K],
    bias: [f32; W],
) -> [f32; W] {
    let mut sum = bias;
    for j in 0..K {
        for l in 0..W {
            sum[l] = mul_add::<FMA>(taps[j][l], xs[j][l], sum[l]);
        }
    }
    sum
}

/// Drops the oldest of the window and appends the newest.
#[inline(always)]
fn push<const K: usize, const W: usize>(window: &mut [[f32; W]; K], newest: [f32; W]) {
    for j in 1..K {
        window[j - 1] = window[j];
    }
    window[K - 1] = newest;
}
