//! Tables and projections, by libtorch's matrix products, or ours for a few rows; sums over tokens, by ours.
//! In: tensors of the plan's shapes. Out: new tensors. Must stay true: a gradient sums in (batch, time) order, and
//! the sum over tokens has the same bits at any thread count.

mod few;
#[cfg(test)]
mod tests;

use tch::{Kind, Tensor};

use super::ffi::{self, Cut, Vectorised};
use super::path::Path;
use super::{Isa, KernelError};

pub use few::ROWS as FEW_ROWS;

/// table\[tokens\]: [b, t] of [v, c] -> [b, t, c].
pub fn embed(tokens: &Tensor, table: &Tensor) -> Result<Tensor, KernelError> {
    Ok(Tensor::f_embedding(table, tokens, -1, false, false)?)
}

/// [v, c]: row i sums dy [b, t, c] where tokens = i.
pub fn embed_grad(dy: &Tensor, tokens: &Tensor, vocab: i64) -> Result<Tensor, KernelError> {
    Ok(Tensor::f_embedding_dense_backward(dy, tokens, vocab, -1, false)?)
}

/// x weightᵀ (+ bias): [b, t, i] by [o, i] -> [b, t, o]. With an instruction set, a few rows go to our own kernel, whose
/// result is f32.
pub fn linear(
    few: Option<Isa>,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
) -> Result<Tensor, KernelError> {
    match few {
        Some(isa) if few::takes(x) => {
            let y = few::linear(isa, x, weight)?;
            Ok(match bias {
                Some(bias) => y.f_add(bias)?,
                None => y,
            })
        }
        Some(_) | None => Ok(x.f_linear(weight, bias)?),
    }
}

/// dy weight: [b, t, o] by [o, i] -> [b, t, i].
pub fn linear_grad_input(dy: &Tensor, weight: &Tensor) -> Result<Tensor, KernelError> {
    let mut size = dy.size();
    size.pop();
    size.extend(weight.size().last());
    Ok(rows(dy)?.f_mm(weight)?.f_reshape(size)?)
}

/// Σ_{b,t} dyᵀ x: [b, t, o] and [b, t, i] -> [o, i].
pub fn linear_grad_weight(dy: &Tensor, x: &Tensor) -> Result<Tensor, KernelError> {
    Ok(rows(dy)?.f_transpose(0, 1)?.f_mm(&rows(x)?)?)
}

/// [b, t, c] -> [b·t, c].
fn rows(x: &Tensor) -> Result<Tensor, KernelError> {
    Ok(x.f_flatten(0, -2)?)
}

/// Σ_{b,t} dy: [b, t, dims…] -> [dims…].
pub fn sum_tokens(path: Path, dy: &Tensor) -> Result<Tensor, KernelError> {
    let isa = match path {
        Path::Fused(isa) => isa,
        Path::Reference(_) => {
            return Ok(dy.f_sum_dim_intlist([0i64, 1].as_slice(), false, None::<Kind>)?);
        }
    };
    let dims: Vec<i64> = dy.size().iter().skip(2).copied().collect();
    let dy = dy.f_contiguous()?;
    let mut sum = Tensor::f_empty(&dims, (Kind::Float, dy.device()))?;
    let out = ffi::slice_mut(&mut sum, &[&dy])?;
    sum_rows(isa, ffi::slice(&dy)?, out);
    Ok(sum)
}

/// Rows per chunk. The chunks' sums are added in order.
const ROWS: usize = 64;

/// The sum of rows as wide as `out`, in the same order for any number of threads.
fn sum_rows(isa: Isa, x: &[f32], out: &mut [f32]) {
    let width = out.len();
    if width == 0 {
        return;
    }
    let count = x.len() / width;
    let chunks = count.div_ceil(ROWS);
    let mut partials = vec![0.0f32; chunks * width];
    ffi::parallel_cuts(
        chunks,
        grain(ROWS * width),
        [Cut { data: &mut partials, chunk: width }],
        |chunk, [partial]| {
            let last = count.min((chunk + 1) * ROWS);
            ffi::run_on(isa, AddRows { x: &x[chunk * ROWS * width..last * width], into: partial });
        },
    );
    out.fill(0.0);
    ffi::run_on(isa, AddRows { x: &partials, into: out });
}

/// Chunks per thread, so that waking it pays: some 2^15 elements.
pub(super) fn grain(elements_per_chunk: usize) -> usize {
    (1 << 15) / elements_per_chunk.max(1)
}

/// Adds each row of x to `into`.
pub(super) struct AddRows<'a> {
    pub(super) x: &'a [f32],
    pub(super) into: &'a mut [f32],
}

impl Vectorised for AddRows<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        for row in self.x.chunks_exact(self.into.len()) {
            for (sum, x) in self.into.iter_mut().zip(row) {
                *sum += x;
            }
        }
    }
}
