//! The chunked scans (gpu/kernels/scan_*.py).
//! In: a scan's operands. Out: as in `kernels::scan`; results of an operand's dtype. Must stay true: gates, states and
//! sums are f32; every sum over chunks, batch items or heads has a fixed order.

mod delta;
mod gla;
mod ssd;

use compiler::plan::Scan;
use gpu::{Constant, Launcher, Library, Pointer};
use tch::{Kind, Tensor};

use super::{dtype, empty, nothing, pointer};
use crate::kernels::KernelError;
use crate::kernels::linear::at_multiple;
use crate::kernels::path::Reason;
use crate::kernels::scan::Scanned;

type Result<T> = std::result::Result<T, KernelError>;

/// Whether a scan's kernels were compiled for a state of rows × columns.
pub(crate) fn check(
    library: &Library,
    scan: Scan,
    kind: Kind,
    rows: i64,
    columns: i64,
) -> std::result::Result<(), Reason> {
    let compiled = match scan {
        Scan::Ssd => ssd::is_compiled(library, kind, rows, columns),
        Scan::Delta => delta::is_compiled(library, kind, rows, columns),
        Scan::Gla => gla::is_compiled(library, kind, rows, columns),
        Scan::Dplr | Scan::Rwkv6 => false,
    };
    if compiled { Ok(()) } else { Err(Reason::State(rows, columns)) }
}

/// y and the state after.
pub(crate) fn forward(
    launcher: &Launcher,
    scan: Scan,
    x: &[&Tensor],
    state: Option<&Tensor>,
    scale: Option<f64>,
) -> Result<Scanned> {
    match scan {
        Scan::Delta => delta::forward(launcher, x, state, scale),
        Scan::Gla => gla::forward(launcher, x, state, scale),
        Scan::Ssd => ssd::forward(launcher, x, state),
        Scan::Dplr | Scan::Rwkv6 => Err(missing(scan)),
    }
}

/// From zero state: the gradient of each operand.
pub(crate) fn backward(
    launcher: &Launcher,
    scan: Scan,
    dy: &Tensor,
    x: &[&Tensor],
    scale: Option<f64>,
) -> Result<Vec<Tensor>> {
    match scan {
        Scan::Delta => delta::backward(launcher, dy, x, scale),
        Scan::Gla => gla::backward(launcher, dy, x, scale),
        Scan::Ssd => ssd::backward(launcher, dy, x),
        Scan::Dplr | Scan::Rwkv6 => Err(missing(scan)),
    }
}

fn missing(scan: Scan) -> KernelError {
    KernelError::new(format!("no CUDA kernel was compiled for {scan:?}"))
}

/// A dense copy in this dtype that begins at a multiple of 16 bytes, which scans were compiled for; or the tensor itself.
fn dense(x: &Tensor, kind: Kind) -> Result<Tensor> {
    at_multiple(&x.f_to_kind(kind)?.f_contiguous()?, 16)
}

/// One launch: addresses, then integers, then floats, as all kernels of scans take them.
fn launch<'a>(
    launcher: &'a Launcher,
    name: &'a str,
    constants: &'a [(&'a str, Constant)],
    pointers: &[(&'a str, Pointer)],
    ints: &[(&'a str, i64)],
    floats: &[(&'a str, f64)],
) -> Result<()> {
    let mut call = launcher.call(name, constants);
    for (name, pointer) in pointers {
        call = call.pointer(name, *pointer);
    }
    for (name, value) in ints {
        call = call.int(name, *value);
    }
    for (name, value) in floats {
        call = call.float(name, *value);
    }
    Ok(call.run()?)
}

/// A constant of a kernel, which all of its variants share.
fn constant(
    library: &Library,
    name: &str,
    constants: &[(&str, Constant)],
    constant: &str,
) -> Result<i64> {
    library
        .at_least(name, constants, constant, 1)
        .ok_or_else(|| KernelError::new(format!("no CUDA kernel {name} for {constants:?}")))
}
