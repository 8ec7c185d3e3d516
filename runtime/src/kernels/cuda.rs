//! Launches our CUDA kernels (gpu/README.md) on tensors, on libtorch's current stream.
//!
//! `choose` and the launch call the same function to find out whether a kernel was compiled for a shape.
//! Results are dense, in new memory, and chunks of sums depend on the shape alone.

pub(crate) mod canon;
pub(crate) mod loss;
mod named;
pub(crate) mod norm;
#[cfg(test)]
pub(crate) mod recorder;
pub(crate) mod rope;
pub(crate) mod scan;
pub(crate) mod sums;
pub(crate) mod swiglu;
#[cfg(test)]
mod tests;
pub(crate) mod update;

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock};

use gpu::{Constant, DeviceFacts, Element, LaunchError, Launcher, Library, Pointer};
use tch::{Device, Kind, Tensor};

use super::ffi::{self, CudaDriver};
use super::{KernelError, cuda_devices};

impl From<LaunchError> for KernelError {
    fn from(error: LaunchError) -> Self {
        Self::new(error.to_string())
    }
}

/// The launcher of a device, or why there is none.
pub(crate) fn launcher(device: Device) -> Result<&'static Launcher, KernelError> {
    #[cfg(test)]
    if let Some(recorder) = recorder::launcher() {
        return Ok(recorder);
    }
    static LAUNCHERS: Mutex<BTreeMap<usize, Result<&'static Launcher, KernelError>>> =
        Mutex::new(BTreeMap::new());
    let Device::Cuda(index) = device else {
        return Err(KernelError::new(format!("no CUDA kernels run on {device:?}")));
    };
    let make = || -> Result<&'static Launcher, KernelError> {
        if index >= cuda_devices() {
            return Err(KernelError::new(format!("there is no CUDA device {index}")));
        }
        let library = Library::embedded().map_err(|error| KernelError::new(error.to_string()))?;
        let launcher = Launcher::new(library, Box::new(CudaDriver::new(index)))?;
        Ok(Box::leak(Box::new(launcher)))
    };
    let mut launchers = LAUNCHERS.lock().map_err(|_| {
        KernelError::new("another thread failed while it loaded kernels".to_owned())
    })?;
    launchers.entry(index).or_insert_with(make).clone()
}

/// Prepares a device for training: makes it deterministic and loads our kernels for it. This process uses only that
/// device from now on, and creates no context on another.
pub fn prepare(index: usize) -> Result<(), KernelError> {
    ffi::make_deterministic()?;
    ffi::use_device(index)?;
    launcher(Device::Cuda(index))?;
    USED.set(Some(index)).or_else(|_| match USED.get() {
        Some(Some(known)) if *known == index => Ok(()),
        known => {
            Err(KernelError::new(format!("device {known:?} is in use, {index} was asked for")))
        }
    })
}

static USED: OnceLock<Option<usize>> = OnceLock::new();

/// Facts about the GPU that this process uses, on which its bits depend.
pub fn facts() -> Vec<(&'static str, String)> {
    let Some(Some(index)) = USED.get() else { return Vec::new() };
    let Ok(launcher) = launcher(Device::Cuda(*index)) else { return Vec::new() };
    let DeviceFacts { name, capability, multiprocessors, shared_limit: _, driver } =
        launcher.facts();
    vec![
        ("gpu", name.clone()),
        ("gpu.capability", capability.to_string()),
        ("gpu.cuda", format!("{}.{}", driver / 1000, driver % 1000 / 10)),
        ("gpu.deterministic", super::is_deterministic().to_string()),
        (
            "gpu.kernels",
            format!("{}, Triton {}", launcher.target(), launcher.library().manifest().triton),
        ),
        ("gpu.multiprocessors", multiprocessors.to_string()),
    ]
}

/// The unique identifier of the GPU that this process uses, as `nvidia-smi -L` shows it.
pub fn identity() -> Result<String, KernelError> {
    let Some(Some(index)) = USED.get() else {
        return Err(KernelError::new("this process uses no GPU".to_owned()));
    };
    Ok(name_of(ffi::uuid(*index)?))
}

fn name_of(id: [u8; 16]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let parts = [&id[..4], &id[4..6], &id[6..8], &id[8..10], &id[10..]];
    format!("GPU-{}", parts.map(hex).join("-"))
}

/// Prepares a measurement of memory: frees cached memory that is not in use, and resets the peak.
pub fn forget_peak() -> Result<(), KernelError> {
    match USED.get() {
        Some(Some(index)) => ffi::forget(*index),
        Some(None) | None => Ok(()),
    }
}

/// Bytes that libtorch has reserved on the GPU that this process uses: now, and the peak.
pub fn reserved() -> Option<(u64, u64)> {
    let Some(Some(index)) = USED.get() else { return None };
    ffi::reserved(*index).ok()
}

/// The name of a dtype in the manifest.
pub(crate) fn dtype(kind: Kind) -> Result<Constant, KernelError> {
    let names = [(Kind::BFloat16, "bf16"), (Kind::Float, "f32")];
    let entry = names.iter().find(|(known, _)| *known == kind);
    entry.map(|(_, name)| (*name).into()).ok_or_else(|| {
        KernelError::new(format!("our CUDA kernels take bf16 and f32, not {kind:?}"))
    })
}

/// The address of a tensor's first element.
fn pointer(tensor: &Tensor) -> Result<Pointer, KernelError> {
    #[cfg(test)]
    recorder::note(tensor);
    Ok(Pointer { address: tensor.data_ptr() as u64, element: element(tensor.kind())? })
}

/// A null pointer, for an operand that this launch does not read.
fn nothing(kind: Kind) -> Result<Pointer, KernelError> {
    Ok(Pointer { address: 0, element: element(kind)? })
}

/// The dtypes of operands.
const ELEMENTS: [(Kind, Element); 5] = [
    (Kind::BFloat16, Element::Bf16),
    (Kind::Float, Element::F32),
    (Kind::Double, Element::F64),
    (Kind::Int, Element::I32),
    (Kind::Int64, Element::I64),
];

fn element(kind: Kind) -> Result<Element, KernelError> {
    let entry = ELEMENTS.iter().find(|(known, _)| *known == kind);
    let element = entry.map(|(_, element)| *element);
    element.ok_or_else(|| KernelError::new(format!("no CUDA kernel takes {kind:?}")))
}

/// New memory of this shape.
fn empty(size: &[i64], kind: Kind, like: &Tensor) -> Result<Tensor, KernelError> {
    Ok(Tensor::f_empty(size, (kind, like.device()))?)
}

/// The rows of x […, c] or [b, t, h, c]: row i is head i % heads of token i / heads.
#[derive(Debug)]
struct Rows {
    x: Tensor,
    /// Tokens times heads.
    rows: i64,
    heads: i64,
    width: i64,
    /// Number of elements from one token to the next.
    row: i64,
}

impl Rows {
    /// x itself, if its tokens have one stride and each is dense; else a copy.
    fn from_tensor(x: &Tensor) -> Result<Self, KernelError> {
        let (size, strides) = (x.size(), x.stride());
        // [tokens…], then the axes of a token.
        let token_axes = if size.len() == 4 { 2 } else { 1 };
        let Some(lead) = size.len().checked_sub(token_axes) else {
            return Err(KernelError::new(format!("rows of shape {size:?}")));
        };
        let (Some(tokens), Some(token)) = (size.get(..lead), size.get(lead..)) else {
            return Err(KernelError::new(format!("rows of shape {size:?}")));
        };
        let elements: i64 = token.iter().product();
        let row = spacing(tokens, strides.get(..lead).unwrap_or(&[]), elements);
        let dense = spacing(token, strides.get(lead..).unwrap_or(&[]), 1) == Some(1);
        let (x, row) = match row {
            Some(row) if dense && row >= elements => (x.shallow_clone(), row),
            Some(_) | None => (x.f_contiguous()?, elements),
        };
        let heads = if token_axes == 2 { token.first().copied().unwrap_or(1) } else { 1 };
        let width = token.last().copied().unwrap_or(0);
        let tokens: i64 = tokens.iter().product();
        Ok(Self { x, rows: tokens * heads, heads, width, row })
    }
}

/// The stride of these axes as a single axis, if they have one; `least` if there is only one element.
fn spacing(size: &[i64], strides: &[i64], least: i64) -> Option<i64> {
    let mut axes = size.iter().zip(strides).rev().filter(|(count, _)| **count != 1);
    let Some((count, first)) = axes.next() else { return Some(least) };
    let mut next = count * first;
    for (count, stride) in axes {
        if *stride != next {
            return None;
        }
        next = count * stride;
    }
    Some(*first)
}

/// A [b, t, c] operand with dense channels, and the strides of its items and tokens.
#[derive(Debug)]
struct Items {
    x: Tensor,
    batch: i64,
    row: i64,
}

impl Items {
    fn from_tensor(x: &Tensor) -> Result<Self, KernelError> {
        let (size, strides) = (x.size(), x.stride());
        let ([b, t, c], [over_b, over_t, over_c]) = (size.as_slice(), strides.as_slice()) else {
            return Err(KernelError::new(format!("[b, t, c] is expected, got {size:?}")));
        };
        // A single item or token may carry any stride, and the aligned images need a multiple of 16.
        let row = if *t > 1 { *over_t } else { *c };
        let batch = if *b > 1 { *over_b } else { row * t };
        if (*over_c == 1 || *c == 1) && row >= *c && batch >= row * t {
            Ok(Self { x: x.shallow_clone(), batch, row })
        } else {
            Ok(Self { x: x.f_contiguous()?, batch: t * c, row: *c })
        }
    }
}
