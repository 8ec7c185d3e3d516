//! Embeddings and linear projections with their gradients, by our matrix products or libtorch's, and sums over tokens.
//!
//! Gradients are summed in (batch, time) order. Our products and the sum over tokens have the same bits at any number
//! of threads.

mod few;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::OnceLock;

use tch::{Device, Kind, Tensor};

use super::arrange::copy;
use super::ffi::{self, Cut, Vectorised};
use super::path::{self, Path};
use super::{Isa, KernelError, cuda, is_intel, matmul};

/// table\[tokens\]: [b, t] of [v, c] -> [b, t, c].
pub fn embed(tokens: &Tensor, table: &Tensor) -> Result<Tensor, KernelError> {
    Ok(Tensor::f_embedding(table, tokens, -1, false, false)?)
}

/// [v, c]: row i sums dy [b, t, c] where tokens = i.
pub fn embed_grad(dy: &Tensor, tokens: &Tensor, vocab: i64) -> Result<Tensor, KernelError> {
    Ok(Tensor::f_embedding_dense_backward(dy, tokens, vocab, -1, false)?)
}

/// Rows in f32 up to which our product of each row by itself is used. Those of more rows are as fast alone as together.
const FEW_ROWS: usize = 64;

/// The implementation of a matrix product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Product {
    /// libtorch's, on any device and dtype; the reference of the others.
    Library,
    /// For up to this many rows a kernel whose result is f32, and in which each row has the bits that it has alone;
    /// else libtorch's.
    FewRows(Isa, usize),
    /// That kernel for any number of rows.
    ByRow(Isa),
    /// Ours for f32 of any size.
    Tiles(Isa),
}

impl Product {
    /// The fastest on this device, for operands of this dtype.
    pub fn choose(kind: Kind, device: Device) -> Self {
        Self::by(path::choose(kind, device))
    }

    /// The product of a kernel with this path, for f32. libtorch's is faster without fused multiply-adds, and on
    /// Intel's CPUs, for which its BLAS is made (docs/performance.md). Where the BLAS is limited to AVX2, so that CPUs
    /// of all vendors agree, ours is used on all of them.
    pub fn by(path: Path) -> Self {
        match path {
            Path::Fused(isa) if matmul::has_tiles(isa) && !blas_is_faster() => Self::Tiles(isa),
            Path::Fused(_) | Path::Cuda(_) | Path::Reference(_) => Self::Library,
        }
    }

    /// The fastest where most calls have the rows of one token. For operands in `bf16`, libtorch's products are faster
    /// on some CPUs, so ours takes only the rows that one read of the weight serves.
    pub fn choose_few(kind: Kind, device: Device, bf16: bool) -> Self {
        match path::choose(kind, device) {
            Path::Fused(isa) => Self::FewRows(isa, if bf16 { few::ROWS } else { FEW_ROWS }),
            Path::Cuda(_) | Path::Reference(_) => Self::Library,
        }
    }
}

/// Whether this process's matrix products in f32 are the BLAS's. `platform.blas` sets `MKL_CBWR`.
pub(crate) fn blas_is_faster() -> bool {
    static CHOSEN: OnceLock<bool> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let limited = std::env::var("MKL_CBWR").is_ok_and(|mode| mode.starts_with("AVX2"));
        is_intel() && !limited
    })
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library => f.write_str("libtorch"),
            Self::FewRows(isa, rows) => write!(f, "libtorch, fused/{isa} up to {rows} rows"),
            Self::ByRow(isa) | Self::Tiles(isa) => Path::Fused(*isa).fmt(f),
        }
    }
}

/// x weightᵀ (+ bias): [b, t, i] by [o, i] -> [b, t, o].
pub fn linear(
    product: Product,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
) -> Result<Tensor, KernelError> {
    let mut y = match product {
        Product::FewRows(isa, most) if few::takes(x, most) => few::linear(isa, x, weight)?,
        Product::ByRow(isa) => few::linear(isa, x, weight)?,
        Product::Library | Product::FewRows(..) => {
            return by_library(x, weight, bias);
        }
        Product::Tiles(isa) => {
            let y = matmul::product(isa, &rows(x)?, &weight.f_transpose(0, 1)?)?;
            y.f_reshape(with_last(x, weight.size().first()))?
        }
    };
    if let Some(bias) = bias {
        let _ = y.f_add_(bias)?;
    }
    Ok(y)
}

/// libtorch's product. Where a few outputs are no whole block of its BLAS, those beyond the last block are summed in
/// another order on some CPUs, so that equal rows of a router's weight would give unequal scores, and `top_k` would
/// break ties by rounding instead of by index. Zeros fill the block.
fn by_library(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor, KernelError> {
    const BLOCK: i64 = 4;
    const FEW: i64 = 16;
    let outputs = weight.size().first().copied().unwrap_or(0);
    let missing = (BLOCK - outputs % BLOCK) % BLOCK;
    if missing == 0 || outputs > FEW || weight.device() != Device::Cpu {
        return Ok(aligned(x)?.f_linear(&aligned(weight)?, bias)?);
    }
    let filled = weight.f_constant_pad_nd([0, 0, 0, missing])?; // [o + missing, i]
    let y = aligned(x)?.f_linear(&filled, None::<&Tensor>)?.f_narrow(-1, 0, outputs)?;
    match bias {
        Some(bias) => Ok(y.f_add(bias)?),
        None => Ok(y.f_contiguous()?),
    }
}

/// dy weight: [b, t, o] by [o, i] -> [b, t, i].
pub fn linear_grad_input(
    product: Product,
    dy: &Tensor,
    weight: &Tensor,
) -> Result<Tensor, KernelError> {
    let dx = match product {
        Product::Library | Product::FewRows(..) | Product::ByRow(_) => {
            aligned(&rows(dy)?)?.f_mm(&aligned(weight)?)?
        }
        Product::Tiles(isa) => matmul::product(isa, &rows(dy)?, weight)?,
    };
    Ok(dx.f_reshape(with_last(dy, weight.size().last()))?)
}

/// Σ_{b,t} dyᵀ x: [b, t, o] and [b, t, i] -> [o, i].
pub fn linear_grad_weight(
    product: Product,
    dy: &Tensor,
    x: &Tensor,
) -> Result<Tensor, KernelError> {
    let (dy, x) = (rows(dy)?.f_transpose(0, 1)?, rows(x)?);
    match product {
        Product::Library | Product::FewRows(..) | Product::ByRow(_) => {
            Ok(aligned(&dy)?.f_mm(&aligned(&x)?)?)
        }
        Product::Tiles(isa) => matmul::product(isa, &dy, &x),
    }
}

/// What cublasLt may choose its algorithm by.
const ALIGNMENT: usize = 256;

/// x, in memory of its own if it is on a GPU and does not begin at a multiple of [`ALIGNMENT`]: equal shapes then have
/// equal algorithms, whatever they are a part of.
fn aligned(x: &Tensor) -> Result<Tensor, KernelError> {
    match x.device() {
        Device::Cuda(_) => at_multiple(x, ALIGNMENT),
        Device::Cpu | Device::Mps | Device::Vulkan => Ok(x.shallow_clone()),
    }
}

/// x, or a copy if it does not begin at a multiple of this many bytes.
pub(super) fn at_multiple(x: &Tensor, alignment: usize) -> Result<Tensor, KernelError> {
    match (x.data_ptr() as usize).is_multiple_of(alignment) {
        true => Ok(x.shallow_clone()),
        false => copy(x),
    }
}

/// The shape of x with another last axis.
fn with_last(x: &Tensor, last: Option<&i64>) -> Vec<i64> {
    let mut size = x.size();
    size.pop();
    size.extend(last);
    size
}

/// [b, t, c] -> [b·t, c].
fn rows(x: &Tensor) -> Result<Tensor, KernelError> {
    Ok(x.f_flatten(0, -2)?)
}

/// Σ_{b,t} dy: [b, t, dims…] -> [dims…].
pub fn sum_tokens(path: Path, dy: &Tensor) -> Result<Tensor, KernelError> {
    let isa = match path {
        Path::Fused(isa) => isa,
        Path::Cuda(_) => return cuda::sums::tokens(cuda::launcher(dy.device())?, dy),
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
