//! libtorch's operations for their shapes alone (native/shapes.h), for tests of steps that no memory could hold.
#![expect(unsafe_code, reason = "part of the module that may; every block says why it is sound")]

use std::ffi::{c_char, c_int};
use std::marker::PhantomData;

use super::{checked, text};
use crate::kernels::KernelError;

unsafe extern "C" {
    fn canonc_shapes_begin(threshold: i64) -> c_int;
    fn canonc_shapes_end() -> c_int;
    fn canonc_shapes_take() -> *const c_char;
}

/// While it lives, operations of this thread on large tensors allocate their results and compute nothing. What is read of
/// such a result is memory that nothing has written, as after `Tensor::empty`.
#[derive(Debug)]
pub(crate) struct ShapesOnly(PhantomData<*const ()>);

/// One operation of libtorch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Performed {
    /// As `mm` or `add_`.
    pub(crate) name: String,
    /// Of operands and results; only of operands where they were computed.
    pub(crate) bytes: u64,
    /// Whether its operands were small enough to compute it.
    pub(crate) computed: bool,
}

impl ShapesOnly {
    /// Tensors are large if the operands of an operation have at least `threshold` elements together.
    pub(crate) fn begin(threshold: i64) -> Result<ShapesOnly, KernelError> {
        // SAFETY: no pointers; what it changes is this thread's, and the type is not `Send`.
        checked(unsafe { canonc_shapes_begin(threshold) })?;
        Ok(ShapesOnly(PhantomData))
    }

    /// The operations since the last call.
    pub(crate) fn take(&self) -> Vec<Performed> {
        // SAFETY: a null-terminated string of this thread, which lives until the next call.
        let lines = text(unsafe { canonc_shapes_take() });
        let operation = |line: &str| {
            let mut parts = line.split('\t');
            let name = parts.next()?.to_owned();
            let bytes = parts.next()?.parse().ok()?;
            Some(Performed { name, bytes, computed: parts.next()? == "1" })
        };
        lines.lines().filter_map(operation).collect()
    }
}

impl Drop for ShapesOnly {
    fn drop(&mut self) {
        // SAFETY: no arguments. A failure leaves the mode on, which later operations of the test would show.
        let _ = unsafe { canonc_shapes_end() };
    }
}
