//! x weightᵀ for a few rows, as in decoding: x [.., i] and weight [o, i], f32 or bf16 on the CPU, to y [.., o] in f32.
//! Reading the weight takes most of the time, so it is read once for all rows.
//!
//! Sums are in f32 and in one order for any number of threads, lanes and rows: a row's bits do not depend on the other
//! rows.

use std::ops::Range;

use tch::{Kind, Tensor};

use super::grain;
use crate::kernels::arrange::cast;
use crate::kernels::ffi::{
    self, Cut, MatrixMut, Strip, Vectorised, parallel_columns, parallel_cuts,
};
use crate::kernels::lanes::{Element, SUMS, load, mul_add, store, total};
use crate::kernels::{Isa, KernelError};

/// Sums of one output that do not wait for each other. Input n is added to sum n / [`SUMS`] mod [`CHAINS`].
const CHAINS: usize = 4;
/// Inputs that the sums of an output take together.
const STEP: usize = CHAINS * SUMS;

/// Rows of x for which a weight is read once, without a tile; those of a tile for more.
pub(super) const ROWS: usize = 4;
/// Outputs per chunk of a thread for so few rows.
const OUTPUTS: usize = 16;
/// Rows of x that are multiplied by a part of the weight before the next part is read.
const GROUP: usize = 64;
/// Outputs per chunk of a thread for more rows, at least and at most; a multiple of a tile's.
const BLOCKS: [usize; 2] = [24, 96];
/// Elements of a chunk's weight, so that they stay in the second-level cache.
const CACHED: usize = 3 << 14;

/// How many bytes ahead memory is prefetched. A core waits for few cache lines at a time, and prefetches more of them
/// without waiting.
const AHEAD: usize = 8192;

/// Whether x has between one row and `most`.
pub(super) fn takes(x: &Tensor, most: usize) -> bool {
    let width = x.size().last().map_or(0, |width| *width as usize);
    width > 0 && (1..=most * width).contains(&x.numel())
}

pub(super) fn linear(isa: Isa, x: &Tensor, weight: &Tensor) -> Result<Tensor, KernelError> {
    let mut size = x.size();
    let (width, outputs) = match (size.pop(), weight.size().as_slice()) {
        (Some(width), [outputs, inputs]) if width == *inputs => (width as usize, *outputs as usize),
        (width, shape) => {
            let message = format!("a product of {width:?} inputs with a weight of shape {shape:?}");
            return Err(KernelError::new(message));
        }
    };
    size.push(outputs as i64);
    let wide = cast(x, Kind::Float)?.f_contiguous()?;
    let weight = weight.f_contiguous()?;
    let options = (Kind::Float, weight.device());
    let mut result = Tensor::f_empty(size, options)?;
    let rows = wide.numel() / width.max(1);
    // Rows of tiles, as `Arrange` writes them.
    let tiled = if rows <= ROWS { 0 } else { rows / ROWS * ROWS };
    let room = (tiled * width.div_ceil(STEP) * STEP) as i64;
    let mut room = (room > 0).then(|| Tensor::f_empty([room], options)).transpose()?;
    let arranged = match &mut room {
        Some(room) => ffi::slice_mut(room, &[&wide, &weight, &result])?,
        None => &mut [],
    };
    let x = ffi::slice(&wide)?;
    let y = ffi::slice_mut(&mut result, &[&wide, &weight])?;
    if weight.kind() == Kind::BFloat16 {
        products(isa, x, arranged, ffi::halves(&weight)?, width, outputs, y);
    } else {
        products(isa, x, arranged, ffi::slice(&weight)?, width, outputs, y);
    }
    Ok(result)
}

/// x [rows, width], weight [outputs, width], y [rows, outputs]. `arranged`: memory for the rows of tiles.
fn products<W: Element>(
    isa: Isa,
    x: &[f32],
    arranged: &mut [f32],
    weight: &[W],
    width: usize,
    outputs: usize,
    y: &mut [f32],
) {
    if x.is_empty() || weight.is_empty() {
        return y.fill(0.0);
    }
    let rows = x.len() / width;
    let arranged_width = width.div_ceil(STEP) * STEP;
    let chunk = ROWS * arranged_width;
    let tiles = arranged.len() / chunk;
    if tiles > 0 {
        let out = Cut { data: &mut *arranged, chunk };
        parallel_cuts(tiles, grain(ROWS * width), [out], |tile, [into]| {
            let x = &x[tile * ROWS * width..][..ROWS * width];
            ffi::run_on(isa, Arrange { x, width, into });
        });
    }
    let [least, most] = BLOCKS;
    let chunk = match rows <= ROWS {
        true => OUTPUTS,
        false => (CACHED / width / least * least).clamp(least, most),
    };
    let arranged = &*arranged;
    parallel_columns(y, outputs, chunk, grain(chunk * width), |part, mut y| {
        let weight = &weight[part.start * width..part.end * width];
        for (n, x) in x.chunks(GROUP * width).enumerate() {
            let (first, count) = (n * GROUP, x.len() / width);
            let y = y.part(first..first + count, 0..part.len());
            let arranged = arranged.get(first * arranged_width..).unwrap_or_default();
            Chunk { x, arranged, weight, width, y }.run(isa);
        }
    });
}

/// Some outputs of some rows: x [rows, width], weight [outputs, width], y [rows, outputs].
struct Chunk<'a, W> {
    x: &'a [f32],
    /// x as [`Arrange`] writes it, from the same row on.
    arranged: &'a [f32],
    weight: &'a [W],
    width: usize,
    y: MatrixMut<'a>,
}

impl<W: Element> Chunk<'_, W> {
    fn run(mut self, isa: Isa) {
        let [rows, outputs] = self.y.sizes();
        if rows <= ROWS {
            return self.singly(isa, 0..rows, 0..outputs);
        }
        let across = match isa {
            Isa::Avx512 => 6,
            Isa::Avx2 | Isa::Portable => 3,
        };
        let tiled = [rows / ROWS * ROWS, outputs / across * across];
        let Chunk { arranged, weight, width, .. } = self;
        let y = self.y.part(0..tiled[0], 0..tiled[1]);
        match isa {
            Isa::Avx512 => ffi::run_on(isa, Tiles::<W, 6> { x: arranged, weight, width, y }),
            Isa::Avx2 | Isa::Portable => {
                ffi::run_on(isa, Tiles::<W, 3> { x: arranged, weight, width, y });
            }
        }
        self.singly(isa, 0..tiled[0], tiled[1]..outputs);
        self.singly(isa, tiled[0]..rows, 0..outputs);
    }

    /// Some rows at a time, output by output.
    fn singly(&mut self, isa: Isa, rows: Range<usize>, outputs: Range<usize>) {
        let Chunk { x, weight, width, .. } = *self;
        let weight = &weight[outputs.start * width..outputs.end * width];
        for first in rows.clone().step_by(ROWS) {
            let last = rows.end.min(first + ROWS);
            let x = &x[first * width..last * width];
            let y = self.y.part(first..last, outputs.clone());
            match last - first {
                1 => ffi::run_on(isa, Outputs::<W, 1> { x, weight, width, y }),
                2 => ffi::run_on(isa, Outputs::<W, 2> { x, weight, width, y }),
                3 => ffi::run_on(isa, Outputs::<W, 3> { x, weight, width, y }),
                _ => ffi::run_on(isa, Outputs::<W, ROWS> { x, weight, width, y }),
            }
        }
    }
}

/// R rows, output by output: a weight's rows are read one after another, as memory is fastest.
struct Outputs<'a, W, const R: usize> {
    x: &'a [f32],
    weight: &'a [W],
    width: usize,
    y: MatrixMut<'a>,
}

impl<W: Element, const R: usize> Vectorised for Outputs<'_, W, R> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        let Outputs { x, weight, width, mut y } = self;
        let x: [&[f32]; R] = std::array::from_fn(|r| &x[r * width..][..width]);
        for (o, weight) in weight.chunks_exact(width).enumerate() {
            let sums = output::<W, FMA, R>(x, weight);
            for (r, sum) in sums.into_iter().enumerate() {
                y.row(r)[o] = sum;
            }
        }
    }
}

/// Writes [`ROWS`] rows of x [ROWS, width] in the order in which a tile reads them, from one end to the other:
/// [STEP / LANES, ROWS, pieces, LANES], where piece n of the lanes from `at` on is x[STEP n + at..]. Zeros fill the
/// last.
struct Arrange<'a> {
    x: &'a [f32],
    width: usize,
    into: &'a mut [f32],
}

impl Vectorised for Arrange<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        let Arrange { x, width, into } = self;
        let length = width.div_ceil(STEP) * LANES;
        for (n, into) in into.chunks_exact_mut(length).enumerate() {
            let (at, x) = (n / ROWS * LANES, &x[n % ROWS * width..][..width]);
            for (n, into) in into.chunks_exact_mut(LANES).enumerate() {
                let first = n * STEP + at;
                let piece: [f32; LANES] = match first + LANES <= width {
                    true => load(x, first),
                    false => f32::load_some(x.get(first..).unwrap_or_default()),
                };
                store(into, 0, &piece);
            }
        }
    }
}

/// Sums of a group's rows and O outputs, each at one line of the caches.
#[repr(align(64))]
struct Sums<const O: usize>([[[f32; SUMS]; O]; GROUP]);

/// Whole tiles of [`ROWS`] rows and O outputs, as many sums as there are registers for them. x is arranged.
struct Tiles<'a, W, const O: usize> {
    x: &'a [f32],
    weight: &'a [W],
    width: usize,
    y: MatrixMut<'a>,
}

impl<W: Element, const O: usize> Vectorised for Tiles<'_, W, O> {
    /// A chain at a time, since a tile of all chains would need four times as many registers.
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        let Tiles { x, weight, width, mut y } = self;
        let [rows, outputs] = y.sizes();
        let length = width.div_ceil(STEP) * LANES;
        let mut sums = Sums([[[0.0f32; SUMS]; O]; GROUP]);
        // The next outputs' weights come while these are used, some at each step.
        let steps = (rows / ROWS * width.div_ceil(LANES)).max(1);
        let ask = (O * width * size_of::<W>()).div_ceil(steps * ffi::LINE);
        for first in (0..outputs).step_by(O) {
            let weight = &weight[first * width..];
            let mut ahead = O * width;
            for part in 0..STEP / LANES {
                for top in (0..rows).step_by(ROWS) {
                    let x = &x[(top * (STEP / LANES) + part * ROWS) * length..];
                    let sums = &mut sums.0[top..top + ROWS];
                    let ask = if ahead < 2 * O * width { ask } else { 0 };
                    tile::<W, FMA, LANES, O>(x, weight, width, part * LANES, sums, [ahead, ask]);
                    ahead += width / STEP * ask * (ffi::LINE / size_of::<W>());
                }
            }
            for (r, sums) in sums.0.iter().enumerate().take(rows) {
                let y = &mut y.row(r)[first..first + O];
                for o in 0..O {
                    y[o] = total(sums[o]);
                }
            }
        }
    }
}

/// Adds the products of [`ROWS`] rows and O outputs in the lanes from `at` on of each [`STEP`] inputs to the sums, or
/// begins them. x: the arranged rows of these lanes. Plain loops, since iterators and closures are not always compiled
/// into their caller, and so for its instructions. Cache lines of the weight are prefetched from `ahead` on, `ask` at
/// each step.
#[inline(always)]
fn tile<W: Element, const FMA: bool, const LANES: usize, const O: usize>(
    x: &[f32],
    weight: &[W],
    width: usize,
    at: usize,
    sums: &mut [[[f32; SUMS]; O]],
    [ahead, ask]: [usize; 2],
) {
    let mut lanes = [[[0.0f32; LANES]; O]; ROWS];
    let full_steps = width / STEP;
    let rows = Strip::<f32, ROWS>::new(x, width.div_ceil(STEP) * LANES);
    let weights = Strip::<W, O>::new(weight, width);
    let mut ahead = ahead;
    for n in 0..full_steps {
        for _ in 0..ask {
            ffi::ask_for(weight, ahead);
            ahead += ffi::LINE / size_of::<W>();
        }
        let (x, narrow) =
            (rows.columns::<LANES>(n * LANES), weights.columns::<LANES>(n * STEP + at));
        for o in 0..O {
            let mut w = [0.0f32; LANES];
            for l in 0..LANES {
                w[l] = narrow[o][l].wide();
            }
            for r in 0..ROWS {
                add::<FMA, LANES>(&mut lanes[r][o], &x[r], &w);
            }
        }
    }
    if full_steps * STEP + at / SUMS * SUMS < width {
        // Zeros add nothing.
        let x = rows.columns::<LANES>(full_steps * LANES);
        let first = width.min(full_steps * STEP + at);
        for o in 0..O {
            let w = W::load_some(&weight[o * width + first..(o + 1) * width]);
            for r in 0..ROWS {
                add::<FMA, LANES>(&mut lanes[r][o], &x[r], &w);
            }
        }
    }
    for r in 0..ROWS {
        for o in 0..O {
            let sums = &mut sums[r][o][at % SUMS..][..LANES];
            for l in 0..LANES {
                let lane = lanes[r][o][l];
                sums[l] = if at < SUMS { lane } else { sums[l] + lane };
            }
        }
    }
}

/// One output of R rows.
#[inline(always)]
fn output<W: Element, const FMA: bool, const R: usize>(x: [&[f32]; R], weight: &[W]) -> [f32; R] {
    let mut sums = [[[0.0f32; SUMS]; R]; CHAINS];
    let width = weight.len();
    let bulk = width - width % STEP;
    for first in (0..bulk).step_by(STEP) {
        ffi::ask_for_lines(weight, first + AHEAD / size_of::<W>(), STEP);
        for (chain, sums) in sums.iter_mut().enumerate() {
            let at = first + chain * SUMS;
            let mut lanes = [[0.0f32; SUMS]; R];
            for r in 0..R {
                lanes[r] = load(x[r], at);
            }
            let w = W::load(weight, at);
            for r in 0..R {
                add::<FMA, SUMS>(&mut sums[r], &w, &lanes[r]);
            }
        }
    }
    for (at, sums) in (bulk..width).step_by(SUMS).zip(&mut sums) {
        // Zeros add nothing.
        let w = W::load_some(&weight[at..]);
        for r in 0..R {
            add::<FMA, SUMS>(&mut sums[r], &w, &f32::load_some(&x[r][at..]));
        }
    }
    let [mut all, others @ ..] = sums;
    for other in others {
        for (sum, other) in all.as_flattened_mut().iter_mut().zip(other.as_flattened()) {
            *sum += other;
        }
    }
    let mut y = [0.0; R];
    for (y, sums) in y.iter_mut().zip(all) {
        *y = total(sums);
    }
    y
}

/// Adds x ⊙ w.
#[inline(always)]
fn add<const FMA: bool, const LANES: usize>(
    sums: &mut [f32; LANES],
    x: &[f32; LANES],
    w: &[f32; LANES],
) {
    for l in 0..LANES {
        sums[l] = mul_add::<FMA>(x[l], w[l], sums[l]);
    }
}
