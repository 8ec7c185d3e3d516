//! x weightᵀ for a few rows of x, as in decoding one token: reading the weight takes most of the time, so it is
//! read once.
//! In: x [.., i], weight [o, i]; f32 or bf16 on the CPU. Out: y [.., o] in f32. Must stay true: sums are f32, in one order
//! on any number of threads and lanes, and of rows: a row's result does not depend on the other rows.

use tch::{Kind, Tensor};

use super::grain;
use crate::kernels::arrange::cast;
use crate::kernels::ffi::{self, Cut, Vectorised};
use crate::kernels::lanes::{Element, SUMS, load, mul_add, total};
use crate::kernels::{Isa, KernelError};

/// Rows of x at a time. With more of them libtorch's product is faster.
pub const ROWS: usize = 4;

/// Outputs per chunk of a thread.
const OUTPUTS: usize = 16;
/// Sums of one output that do not wait for each other.
const CHAINS: usize = 4;

/// Bytes before its use at which memory is asked for. A core waits for few lines at a time, and asks for more of them
/// without waiting.
const AHEAD: usize = 8192;
/// Bytes of a line of the caches.
const LINE: usize = 64;

/// Whether x has as few rows as this kernel takes.
pub(super) fn takes(x: &Tensor) -> bool {
    let width = x.size().last().map_or(0, |width| *width as usize);
    width > 0 && (1..=ROWS * width).contains(&x.numel())
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
    let rows = x.len() / width.max(1);
    let options = (Kind::Float, weight.device());
    // Of one row, that is y.
    let shape = if rows == 1 { size.clone() } else { vec![outputs as i64, rows as i64] };
    let mut by_output = Tensor::f_empty(shape, options)?;
    let y = ffi::slice_mut(&mut by_output, &[&wide, &weight])?;
    if weight.kind() == Kind::BFloat16 {
        products(isa, x, ffi::halves(&weight)?, rows, width, y);
    } else {
        products(isa, x, ffi::slice(&weight)?, rows, width, y);
    }
    if rows == 1 {
        return Ok(by_output);
    }
    // Other kernels take dense rows.
    Ok(by_output.f_transpose(0, 1)?.f_contiguous()?.f_reshape(size)?)
}

fn products<W: Element>(
    isa: Isa,
    x: &[f32],
    weight: &[W],
    rows: usize,
    width: usize,
    y: &mut [f32],
) {
    let count = (y.len() / rows.max(1)).div_ceil(OUTPUTS);
    let cut = Cut { data: y, chunk: OUTPUTS * rows };
    ffi::parallel_cuts(count, grain(OUTPUTS * width), [cut], |chunk, [y]| {
        let weight = &weight[chunk * OUTPUTS * width..][..y.len() / rows * width];
        // Of many rows, the weight's part is in the caches after the first few.
        for (group, x) in x.chunks(ROWS * width).enumerate() {
            let (first, y) = (group * ROWS, &mut *y);
            match x.len() / width {
                1 => ffi::run_on(isa, Chunk::<W, 1>::new(x, weight, y, width, rows, first)),
                2 => ffi::run_on(isa, Chunk::<W, 2>::new(x, weight, y, width, rows, first)),
                3 => ffi::run_on(isa, Chunk::<W, 3>::new(x, weight, y, width, rows, first)),
                _ => ffi::run_on(isa, Chunk::<W, ROWS>::new(x, weight, y, width, rows, first)),
            }
        }
    });
}

/// Outputs of a chunk for R of the rows: weight [outputs, width], y [outputs, rows].
struct Chunk<'a, W, const R: usize> {
    x: [&'a [f32]; R],
    weight: &'a [W],
    y: &'a mut [f32],
    width: usize,
    rows: usize,
    /// The first of these rows.
    first: usize,
}

impl<'a, W, const R: usize> Chunk<'a, W, R> {
    fn new(
        x: &'a [f32],
        weight: &'a [W],
        y: &'a mut [f32],
        width: usize,
        rows: usize,
        first: usize,
    ) -> Self {
        let x = std::array::from_fn(|r| &x[r * width..][..width]);
        Chunk { x, weight, y, width, rows, first }
    }
}

impl<W: Element, const R: usize> Vectorised for Chunk<'_, W, R> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        let Chunk { x, weight, y, width, rows, first } = self;
        for (y, weight) in y.chunks_exact_mut(rows).zip(weight.chunks_exact(width)) {
            output::<W, FMA, R>(x, weight, &mut y[first..first + R]);
        }
    }
}

/// One output, y [R]. A weight's rows are read one after another, as memory is fastest.
#[inline(always)]
fn output<W: Element, const FMA: bool, const R: usize>(
    x: [&[f32]; R],
    weight: &[W],
    y: &mut [f32],
) {
    let mut sums = [[[0.0f32; SUMS]; R]; CHAINS];
    let bulk = weight.len() - weight.len() % (CHAINS * SUMS);
    for first in (0..bulk).step_by(CHAINS * SUMS) {
        for line in (0..CHAINS * SUMS).step_by(LINE / size_of::<W>()) {
            ffi::ask_for(weight, first + line + AHEAD / size_of::<W>());
        }
        for (chain, sums) in sums.iter_mut().enumerate() {
            let at = first + chain * SUMS;
            let x: [[f32; SUMS]; R] = std::array::from_fn(|r| load(x[r], at));
            add::<FMA, R>(sums, x, W::load(weight, at));
        }
    }
    for (at, sums) in (bulk..weight.len()).step_by(SUMS).zip(&mut sums) {
        // Zeros add nothing.
        let x: [[f32; SUMS]; R] = std::array::from_fn(|r| f32::load_some(&x[r][at..]));
        add::<FMA, R>(sums, x, W::load_some(&weight[at..]));
    }
    let [mut all, others @ ..] = sums;
    for other in others {
        for (sum, other) in all.as_flattened_mut().iter_mut().zip(other.as_flattened()) {
            *sum += other;
        }
    }
    for (y, sum) in y.iter_mut().zip(all) {
        *y = total(sum);
    }
}

/// Adds x ⊙ weight.
#[inline(always)]
fn add<const FMA: bool, const R: usize>(
    sums: &mut [[f32; SUMS]; R],
    x: [[f32; SUMS]; R],
    weight: [f32; SUMS],
) {
    for (x, sum) in x.iter().zip(sums) {
        for l in 0..SUMS {
            sum[l] = mul_add::<FMA>(x[l], weight[l], sum[l]);
        }
    }
}
