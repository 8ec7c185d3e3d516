//! Rotary positions (gpu/kernels/rope.py) of x [b, t, h, d] by tables [t, dims], as in `kernels::rope`.

use compiler::plan::RopeLayout;
use gpu::{Constant, Launcher, Library};
use tch::{Kind, Tensor};

use super::{Rows, dtype, empty, pointer};
use crate::kernels::KernelError;
use crate::kernels::rope::operands::Rotation;

/// The constants for heads of this width; `None` if they were not compiled.
pub(crate) fn tile(
    library: &Library,
    kind: Kind,
    layout: RopeLayout,
    width: i64,
) -> Option<[(&'static str, Constant); 3]> {
    let half = i64::from(layout == RopeLayout::Half);
    let [dtype, half] = [("dtype", dtype(kind).ok()?), ("HALF", Constant::Int(half))];
    let width = library.at_least("rope", &[dtype.clone(), half.clone()], "BD", width)?;
    Some([dtype, half, ("BD", width.into())])
}

/// y.
pub(crate) fn apply(
    launcher: &Launcher,
    x: &Tensor,
    rotation: Rotation,
    [cos, sin]: [&Tensor; 2],
) -> Result<Tensor, KernelError> {
    let rows = Rows::from_tensor(x)?;
    let constants = tile(launcher.library(), x.kind(), rotation.layout, rows.width)
        .ok_or_else(|| KernelError::new(format!("no CUDA rope for heads of {}", rows.width)))?;
    let time = cos.size().first().copied().unwrap_or(1);
    let y = empty(&x.size(), x.kind(), x)?;
    launcher
        .call("rope", &constants)
        .pointer("x", pointer(&rows.x)?)
        .pointer("cosine", pointer(cos)?)
        .pointer("sine", pointer(sin)?)
        .pointer("y", pointer(&y)?)
        .int("rows", rows.rows)
        .int("heads", rows.heads)
        .int("width", rows.width)
        .int("dims", rotation.dims)
        .int("time", time)
        .int("x_row", rows.row)
        .float("sign", if rotation.inverse { -1.0 } else { 1.0 })
        .run()?;
    Ok(y)
}
