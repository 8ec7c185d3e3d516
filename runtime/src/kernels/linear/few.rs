//! x weightᵀ with the same bits for any number of rows: of a few rows, as in decoding, reading the weight takes most of
//! the time, so it is read once for all of them.
//! In: x [.., i], weight [o, i]; f32 or bf16 on the CPU. Out: y [.., o] in f32. Must stay true: sums are f32, in one order
//! on any number of threads and lanes, and of rows: a row's result does not depend on the other rows.

use std::ops::Range;

use tch::{Kind, Tensor};

use super::grain;
use crate::kernels::arrange::cast;
use crate::kernels::ffi::{self, MatrixMut, Vectorised, parallel_columns};
use crate::kernels::lanes::{Element, SUMS, load, mul_add, total};
use crate::kernels::{Isa, KernelError};

/// Sums of one output that do not wait for each other. Input n is added to sum n / [`SUMS`] mod [`CHAINS`].
const CHAINS: usize = 4;
/// Inputs that the sums of an output take together.
const STEP: usize = CHAINS * SUMS;

/// Rows of x for which a weight is read once, without a tile.
pub(super) const ROWS: usize = 4;
/// Outputs per chunk of a thread for so few rows.
const OUTPUTS: usize = 16;
/// Rows of x that meet a part of the weight before the next part does.
const GROUP: usize = 32;
/// Outputs per chunk of a thread for more rows, at least and at most; a multiple of a tile's.
const BLOCKS: [usize; 2] = [24, 96];
/// Elements of a chunk's weight, so that they stay in the second-level cache.
const CACHED: usize = 3 << 14;

/// Bytes before its use at which memory is asked for. A core waits for few lines at a time, and asks for more of them
/// without waiting.
const AHEAD: usize = 8192;
/// Bytes of a line of the caches.
const LINE: usize = 64;

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
    let x = ffi::slice(&wide)?;
    let weight = weight.f_contiguous()?;
    let mut result = Tensor::f_empty(size, (Kind::Float, weight.device()))?;
    let y = ffi::slice_mut(&mut result, &[&wide, &weight])?;
    if weight.kind() == Kind::BFloat16 {
        products(isa, x, ffi::halves(&weight)?, width, outputs, y);
    } else {
        products(isa, x, ffi::slice(&weight)?, width, outputs, y);
    }
    Ok(result)
}

/// x [rows, width], weight [outputs, width], y [rows, outputs].
fn products<W: Element>(
    isa: Isa,
    x: &[f32],
    weight: &[W],
    width: usize,
    outputs: usize,
    y: &mut [f32],
) {
    if x.is_empty() || weight.is_empty() {
        return y.fill(0.0);
    }
    let rows = x.len() / width;
    let [least, most] = BLOCKS;
    let chunk = match rows <= ROWS {
        true => OUTPUTS,
        false => (CACHED / width / least * least).clamp(least, most),
    };
    parallel_columns(y, outputs, chunk, grain(chunk * width), |part, mut y| {
        let weight = &weight[part.start * width..part.end * width];
        for (n, x) in x.chunks(GROUP * width).enumerate() {
            let (first, count) = (n * GROUP, x.len() / width);
            let y = y.part(first..first + count, 0..part.len());
            ffi::run_on(isa, Chunk { x, weight, width, y });
        }
    });
}

/// Some outputs of some rows: x [rows, width], weight [outputs, width], y [rows, outputs].
struct Chunk<'a, W> {
    x: &'a [f32],
    weight: &'a [W],
    width: usize,
    y: MatrixMut<'a>,
}

impl<W: Element> Vectorised for Chunk<'_, W> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(mut self) {
        let tiled = match LANES {
            16 => self.tiles::<FMA, LANES, 4, 4>(),
            _ => self.tiles::<FMA, LANES, 4, 3>(),
        };
        let [rows, outputs] = self.y.sizes();
        self.singly::<FMA>(0..tiled[0], tiled[1]..outputs);
        self.singly::<FMA>(tiled[0]..rows, 0..outputs);
    }
}

impl<'a, W: Element> Chunk<'a, W> {
    /// R rows of x.
    #[inline(always)]
    fn rows<const R: usize>(&self, first: usize) -> [&'a [f32]; R] {
        let (x, width) = (self.x, self.width);
        std::array::from_fn(|r| &x[(first + r) * width..][..width])
    }

    /// Whole tiles of R rows and O outputs, as many sums as there are registers for them. Returns how many rows and
    /// outputs are done. A chain at a time, since a tile of all chains would need four times as many registers.
    #[inline(always)]
    fn tiles<const FMA: bool, const LANES: usize, const R: usize, const O: usize>(
        &mut self,
    ) -> [usize; 2] {
        let [rows, outputs] = self.y.sizes();
        let done = [rows / R * R, outputs / O * O];
        if rows <= ROWS {
            return [0, 0];
        }
        for first in (0..done[1]).step_by(O) {
            let weight = &self.weight[first * self.width..];
            let mut sums = [[[0.0f32; SUMS]; O]; GROUP];
            for at in (0..STEP).step_by(LANES) {
                for top in (0..done[0]).step_by(R) {
                    let x = self.rows(top);
                    // The next outputs' weights come while these are used.
                    let tile = tile::<W, FMA, LANES, R, O>(x, weight, at, top == 0);
                    for (sums, tile) in sums[top..].iter_mut().zip(&tile) {
                        for (sums, tile) in sums.iter_mut().zip(tile) {
                            for (sum, lane) in sums[at % SUMS..].iter_mut().zip(tile) {
                                *sum = if at < SUMS { *lane } else { *sum + lane };
                            }
                        }
                    }
                }
            }
            for (r, sums) in sums[..done[0]].iter().enumerate() {
                let y = &mut self.y.row(r)[first..first + O];
                for (y, sums) in y.iter_mut().zip(sums) {
                    *y = total(*sums);
                }
            }
        }
        done
    }

    /// Some rows at a time, output by output: a weight's rows are read one after another, as memory is fastest.
    #[inline(always)]
    fn singly<const FMA: bool>(&mut self, rows: Range<usize>, outputs: Range<usize>) {
        for o in outputs {
            for first in rows.clone().step_by(ROWS) {
                match rows.end - first {
                    1 => self.output::<FMA, 1>(first, o),
                    2 => self.output::<FMA, 2>(first, o),
                    3 => self.output::<FMA, 3>(first, o),
                    _ => self.output::<FMA, ROWS>(first, o),
                }
            }
        }
    }

    /// An output of R rows.
    #[inline(always)]
    fn output<const FMA: bool, const R: usize>(&mut self, first: usize, o: usize) {
        let y = output::<W, FMA, R>(self.rows(first), &self.weight[o * self.width..], self.width);
        for (r, y) in y.into_iter().enumerate() {
            self.y.row(first + r)[o] = y;
        }
    }
}

/// The sums of R rows and O outputs in the lanes from `at` on of each [`STEP`] inputs.
#[inline(always)]
fn tile<W: Element, const FMA: bool, const LANES: usize, const R: usize, const O: usize>(
    x: [&[f32]; R],
    weight: &[W],
    at: usize,
    asks: bool,
) -> [[[f32; LANES]; O]; R] {
    let mut sums = [[[0.0f32; LANES]; O]; R];
    let width = x[0].len();
    let bulk = width - width % STEP;
    let rows: [&[W]; O] = std::array::from_fn(|o| &weight[o * width..][..width]);
    for i in (at..bulk).step_by(STEP) {
        let w: [[f32; LANES]; O] = rows.map(|row| W::load(row, i));
        if asks {
            for row in rows {
                ffi::ask_for(row, i + O * width);
            }
        }
        for (sums, x) in sums.iter_mut().zip(x) {
            add::<FMA, LANES, O>(sums, load(x, i), w);
        }
    }
    if bulk + at / SUMS * SUMS < width {
        // Zeros add nothing.
        let i = width.min(bulk + at);
        let w: [[f32; LANES]; O] = rows.map(|row| W::load_some(&row[i..]));
        for (sums, x) in sums.iter_mut().zip(x) {
            add::<FMA, LANES, O>(sums, f32::load_some(&x[i..]), w);
        }
    }
    sums
}

/// One output of R rows; `weight` begins with its row, of `width`.
#[inline(always)]
fn output<W: Element, const FMA: bool, const R: usize>(
    x: [&[f32]; R],
    weight: &[W],
    width: usize,
) -> [f32; R] {
    let mut sums = [[[0.0f32; SUMS]; R]; CHAINS];
    let weight = &weight[..width];
    let bulk = width - width % STEP;
    for first in (0..bulk).step_by(STEP) {
        for line in (0..STEP).step_by(LINE / size_of::<W>()) {
            ffi::ask_for(weight, first + line + AHEAD / size_of::<W>());
        }
        for (chain, sums) in sums.iter_mut().enumerate() {
            let at = first + chain * SUMS;
            let x: [[f32; SUMS]; R] = std::array::from_fn(|r| load(x[r], at));
            add::<FMA, SUMS, R>(sums, W::load(weight, at), x);
        }
    }
    for (at, sums) in (bulk..width).step_by(SUMS).zip(&mut sums) {
        // Zeros add nothing.
        let x: [[f32; SUMS]; R] = std::array::from_fn(|r| f32::load_some(&x[r][at..]));
        add::<FMA, SUMS, R>(sums, W::load_some(&weight[at..]), x);
    }
    let [mut all, others @ ..] = sums;
    for other in others {
        for (sum, other) in all.as_flattened_mut().iter_mut().zip(other.as_flattened()) {
            *sum += other;
        }
    }
    all.map(total)
}

/// Adds one ⊙ each.
#[inline(always)]
fn add<const FMA: bool, const LANES: usize, const N: usize>(
    sums: &mut [[f32; LANES]; N],
    one: [f32; LANES],
    each: [[f32; LANES]; N],
) {
    for (each, sum) in each.iter().zip(sums) {
        for l in 0..LANES {
            sum[l] = mul_add::<FMA>(one[l], each[l], sum[l]);
        }
    }
}
