//! Which implementation of a kernel runs: chosen before it runs, and recorded.
//!
//! A path names one implementation, which determines every bit of the result.

use std::fmt;

use gpu::Target;
use tch::{Device, Kind};

use super::Isa;

/// The implementation of one of our kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// Rust on ATen's threads.
    Fused(Isa),
    /// Our compiled CUDA kernels, by what their images were compiled for.
    Cuda(Target),
    /// Plain tch, any device and dtype.
    Reference(Reason),
}

/// Why a kernel does not use the fused path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Device(Device),
    Kind(Kind),
    KernelSize(i64),
    /// No CUDA kernel was compiled for a last axis of this size.
    Width(i64),
    /// No CUDA kernel was compiled for this many taps.
    Taps(i64),
    /// Our CUDA kernels take operands of one dtype.
    Mixed,
    /// No CUDA kernel was compiled for the recurrence with these sizes of its state.
    State(i64, i64),
    /// No CUDA kernel was compiled for the recurrence.
    Scan,
    /// Requested, for comparison.
    Asked,
}

/// The path of a kernel with a fused form for any shape of f32 on the CPU.
pub fn choose(kind: Kind, device: Device) -> Path {
    if device != Device::Cpu {
        Path::Reference(Reason::Device(device))
    } else if kind != Kind::Float {
        Path::Reference(Reason::Kind(kind))
    } else {
        Path::Fused(Isa::of_process())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fused(isa) => write!(f, "fused/{isa}"),
            Self::Cuda(target) => write!(f, "fused/cuda/{target}"),
            Self::Reference(reason) => write!(f, "reference ({reason})"),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(device) => write!(f, "on {device:?}"),
            Self::Kind(kind) => write!(f, "{kind:?}"),
            Self::KernelSize(k) => write!(f, "kernel {k} is outside 2..=8"),
            Self::Width(width) => write!(f, "no CUDA kernel for a width of {width}"),
            Self::Taps(taps) => write!(f, "no CUDA kernel for {taps} taps"),
            Self::Mixed => f.write_str("operands of several dtypes"),
            Self::State(rows, columns) => {
                write!(f, "no CUDA kernel for a state of {rows} × {columns}")
            }
            Self::Scan => f.write_str("no CUDA kernel for this scan"),
            Self::Asked => f.write_str("asked for"),
        }
    }
}
