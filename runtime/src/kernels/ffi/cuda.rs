//! Bindings to the CUDA driver and to libtorch's CUDA half (native/cuda.h). Work is queued on libtorch's current stream
//! of a device.
//!
//! The arguments of a launch were checked by `canonc_gpu` against the kernel's own declaration. An event is waited for
//! at most once.
#![expect(unsafe_code, reason = "part of the module that may; every block says why it is sound")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::time::Duration;

use gpu::{Capability, DeviceFacts, Driver, DriverError, Function, Launch, Module, Value};
use tch::Tensor;

use super::{checked, last_error, text};
use crate::kernels::KernelError;

#[repr(C)]
struct Facts {
    name: [c_char; 256],
    major: i32,
    minor: i32,
    multiprocessors: i32,
    shared_limit: i32,
    driver: i32,
}

unsafe extern "C" {
    fn canonc_cuda_deterministic() -> c_int;
    fn canonc_cuda_use(device: c_int) -> c_int;
    fn canonc_cuda_uuid(device: c_int, id: *mut u8) -> c_int;
    fn canonc_cuda_read_facts(device: c_int, facts: *mut Facts) -> c_int;
    fn canonc_cuda_load(device: c_int, image: *const c_void, module: *mut u64) -> c_int;
    fn canonc_cuda_function(
        device: c_int,
        module: u64,
        entry: *const c_char,
        function: *mut u64,
    ) -> c_int;
    fn canonc_cuda_allow_shared(device: c_int, function: u64, bytes: c_int) -> c_int;
    fn canonc_cuda_launch(
        device: c_int,
        function: u64,
        grid: *const u32,
        threads: u32,
        shared: u32,
        values: *mut *mut c_void,
    ) -> c_int;
    fn canonc_flash_forward(
        q: *mut c_void,
        k: *mut c_void,
        v: *mut c_void,
        scale: f64,
        left: i64,
        y: *mut *mut c_void,
        lse: *mut *mut c_void,
    ) -> c_int;
    fn canonc_flash_backward(
        dy: *mut c_void,
        q: *mut c_void,
        k: *mut c_void,
        v: *mut c_void,
        y: *mut c_void,
        lse: *mut c_void,
        scale: f64,
        left: i64,
        dq: *mut *mut c_void,
        dk: *mut *mut c_void,
        dv: *mut *mut c_void,
    ) -> c_int;
    fn canonc_event_record(device: c_int) -> *mut c_void;
    fn canonc_event_wait(event: *mut c_void) -> c_int;
    fn canonc_timed_event_record(device: c_int) -> *mut c_void;
    fn canonc_timed_event_since(
        earlier: *mut c_void,
        later: *mut c_void,
        milliseconds: *mut f64,
    ) -> c_int;
    fn canonc_timed_event_free(event: *mut c_void);
    fn canonc_cuda_forget(device: c_int) -> c_int;
    fn canonc_cuda_reserved(device: c_int, now: *mut i64, most: *mut i64) -> c_int;
}

/// Sets and checks the switches that make CUDA deterministic. Before the first CUDA call.
pub(crate) fn make_deterministic() -> Result<(), KernelError> {
    // SAFETY: no arguments.
    checked(unsafe { canonc_cuda_deterministic() })
}

/// Makes the device this thread's current one.
pub(crate) fn use_device(device: usize) -> Result<(), KernelError> {
    // SAFETY: a plain integer argument.
    checked(unsafe { canonc_cuda_use(c_int::try_from(device).unwrap_or(c_int::MAX)) })
}

/// The UUID of a device, unique across machines.
pub(crate) fn uuid(device: usize) -> Result<[u8; 16], KernelError> {
    let mut id = [0; 16];
    // SAFETY: 16 bytes that outlive the call, which writes as many.
    checked(unsafe {
        canonc_cuda_uuid(c_int::try_from(device).unwrap_or(c_int::MAX), id.as_mut_ptr())
    })?;
    Ok(id)
}

/// The driver of one device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CudaDriver {
    device: c_int,
}

impl CudaDriver {
    /// The driver of the device with this index in libtorch.
    pub(crate) fn new(device: usize) -> Self {
        Self { device: c_int::try_from(device).unwrap_or(c_int::MAX) }
    }
}

fn driver_result(status: c_int) -> Result<(), DriverError> {
    checked(status).map_err(|error| DriverError(error.to_string()))
}

impl Driver for CudaDriver {
    fn facts(&self) -> Result<DeviceFacts, DriverError> {
        let mut facts = Facts {
            name: [0; 256],
            major: 0,
            minor: 0,
            multiprocessors: 0,
            shared_limit: 0,
            driver: 0,
        };
        // SAFETY: a struct of the shim's layout, which outlives the call.
        driver_result(unsafe { canonc_cuda_read_facts(self.device, &raw mut facts) })?;
        let Facts { name, major, minor, multiprocessors, shared_limit, driver } = facts;
        let [major, minor, multiprocessors, shared_limit, driver] =
            [major, minor, multiprocessors, shared_limit, driver]
                .map(|number| u32::try_from(number).unwrap_or(0));
        Ok(DeviceFacts {
            // The driver ends the name with a zero.
            name: text(name.as_ptr()),
            capability: Capability { major, minor },
            multiprocessors,
            shared_limit,
            driver,
        })
    }

    fn load(&self, image: &[u8]) -> Result<Module, DriverError> {
        let mut module = 0;
        // SAFETY: an ELF file, which has its own length, or PTX that ends with a zero (`Launcher::function` adds it).
        driver_result(unsafe {
            canonc_cuda_load(self.device, image.as_ptr().cast::<c_void>(), &raw mut module)
        })?;
        Ok(Module(module))
    }

    fn function(&self, module: Module, entry: &str) -> Result<Function, DriverError> {
        let entry = CString::new(entry)
            .map_err(|_| DriverError(format!("the entry `{entry}` has a zero byte")))?;
        let mut function = 0;
        // SAFETY: a module of `load`, which is never unloaded; a null-terminated name.
        driver_result(unsafe {
            canonc_cuda_function(self.device, module.0, entry.as_ptr(), &raw mut function)
        })?;
        Ok(Function(function))
    }

    fn allow_shared(&self, function: Function, bytes: u32) -> Result<(), DriverError> {
        let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        // SAFETY: a function of a module that is never unloaded.
        driver_result(unsafe { canonc_cuda_allow_shared(self.device, function.0, bytes) })
    }

    fn launch(&self, function: Function, launch: &Launch<'_>) -> Result<(), DriverError> {
        let Launch { grid, threads, shared, values } = launch;
        // Each argument in memory of its own, in the host's byte order.
        let mut words: Vec<u64> = values
            .iter()
            .map(|value| {
                let mut bytes = [0; 8];
                match value {
                    Value::Address(address) => bytes = address.to_ne_bytes(),
                    Value::I64(value) => bytes = value.to_ne_bytes(),
                    Value::F64(value) => bytes = value.to_ne_bytes(),
                    Value::I32(value) => bytes[..4].copy_from_slice(&value.to_ne_bytes()),
                    Value::F32(value) => bytes[..4].copy_from_slice(&value.to_ne_bytes()),
                }
                u64::from_ne_bytes(bytes)
            })
            .collect();
        let mut pointers: Vec<*mut c_void> =
            words.iter_mut().map(|word| (word as *mut u64).cast::<c_void>()).collect();
        // SAFETY: as many pointers as the function has parameters, each to at least as many bytes as it reads (both
        // checked by the launcher against PTX); the driver copies them before it returns. Addresses are of tensors.
        driver_result(unsafe {
            canonc_cuda_launch(
                self.device,
                function.0,
                grid.as_ptr(),
                *threads,
                *shared,
                pointers.as_mut_ptr(),
            )
        })
    }
}

/// A tensor that the shim made with `new`.
fn owned_tensor(pointer: *mut c_void) -> Result<Tensor, KernelError> {
    if pointer.is_null() {
        return Err(KernelError::new("libtorch returned no tensor".to_owned()));
    }
    // SAFETY: a new at::Tensor, whose owner is now the result.
    Ok(unsafe { Tensor::from_ptr(pointer.cast()) })
}

fn raw(tensor: &Tensor) -> *mut c_void {
    tensor.as_ptr().cast_mut().cast::<c_void>()
}

/// y [b, t, h, d] and lse [b, h, t] of q [b, t, h, d], k and v [b, s, kv, d]. `window` counts the query's own position.
pub(crate) fn flash_forward(
    [q, k, v]: [&Tensor; 3],
    scale: f64,
    window: Option<i64>,
) -> Result<(Tensor, Tensor), KernelError> {
    let (mut y, mut lse) = (null_mut(), null_mut());
    // SAFETY: tensors that outlive the call, which only reads them; libtorch checks their shapes and dtypes.
    checked(unsafe {
        canonc_flash_forward(raw(q), raw(k), raw(v), scale, left(window), &raw mut y, &raw mut lse)
    })?;
    Ok((owned_tensor(y)?, owned_tensor(lse)?))
}

/// dq, dk and dv.
pub(crate) fn flash_backward(
    dy: &Tensor,
    [q, k, v]: [&Tensor; 3],
    [y, lse]: [&Tensor; 2],
    scale: f64,
    window: Option<i64>,
) -> Result<(Tensor, Tensor, Tensor), KernelError> {
    let (mut dq, mut dk, mut dv) = (null_mut(), null_mut(), null_mut());
    // SAFETY: as in `flash_forward`.
    checked(unsafe {
        canonc_flash_backward(
            raw(dy),
            raw(q),
            raw(k),
            raw(v),
            raw(y),
            raw(lse),
            scale,
            left(window),
            &raw mut dq,
            &raw mut dk,
            &raw mut dv,
        )
    })?;
    Ok((owned_tensor(dq)?, owned_tensor(dk)?, owned_tensor(dv)?))
}

/// Positions before the query's own that it sees; −1 for all.
fn left(window: Option<i64>) -> i64 {
    window.map_or(-1, |window| window.max(1) - 1)
}

/// The end of what was queued on a device's current stream.
#[derive(Debug)]
pub(crate) struct DeviceEvent(NonNull<c_void>);

impl DeviceEvent {
    pub(crate) fn record(device: usize) -> Result<Self, KernelError> {
        // SAFETY: a plain integer argument.
        let event = unsafe { canonc_event_record(c_int::try_from(device).unwrap_or(c_int::MAX)) };
        NonNull::new(event).map(Self).ok_or_else(last_error)
    }

    /// Waits until that work is done.
    pub(crate) fn wait(self) -> Result<(), KernelError> {
        let event = self.0;
        std::mem::forget(self);
        // SAFETY: an event of `record`, which the call frees.
        checked(unsafe { canonc_event_wait(event.as_ptr()) })
    }
}

impl Drop for DeviceEvent {
    fn drop(&mut self) {
        // SAFETY: as in `wait`. A drop cannot return an error; the next call on the stream reports it again.
        let _ = unsafe { canonc_event_wait(self.0.as_ptr()) };
    }
}

/// The time at which a device finished what was queued on its current stream.
#[derive(Debug)]
pub(crate) struct TimedEvent(NonNull<c_void>);

impl TimedEvent {
    pub(crate) fn record(device: usize) -> Result<Self, KernelError> {
        // SAFETY: a plain integer argument.
        let event =
            unsafe { canonc_timed_event_record(c_int::try_from(device).unwrap_or(c_int::MAX)) };
        NonNull::new(event).map(Self).ok_or_else(last_error)
    }

    /// The time since an earlier event of the device. Waits until the device has reached both.
    pub(crate) fn since(&self, earlier: &Self) -> Result<Duration, KernelError> {
        let mut milliseconds = 0.0f64;
        // SAFETY: events of `record` that are not freed; a number that outlives the call.
        checked(unsafe {
            canonc_timed_event_since(earlier.0.as_ptr(), self.0.as_ptr(), &raw mut milliseconds)
        })?;
        Duration::try_from_secs_f64(milliseconds / 1e3).map_err(|_| {
            KernelError::new(format!("{milliseconds} ms from an event to a later one"))
        })
    }
}

impl Drop for TimedEvent {
    fn drop(&mut self) {
        // SAFETY: an event of `record`, which nothing uses anymore.
        unsafe { canonc_timed_event_free(self.0.as_ptr()) };
    }
}

/// Frees the cached memory of libtorch's allocator for a device, and resets its peak.
pub(crate) fn forget(device: usize) -> Result<(), KernelError> {
    // SAFETY: a plain integer argument.
    checked(unsafe { canonc_cuda_forget(c_int::try_from(device).unwrap_or(c_int::MAX)) })
}

/// Bytes that libtorch's allocator holds on a device: now, and the peak.
pub(crate) fn reserved(device: usize) -> Result<(u64, u64), KernelError> {
    let (mut now, mut most) = (0, 0);
    // SAFETY: two integers that outlive the call.
    checked(unsafe {
        canonc_cuda_reserved(
            c_int::try_from(device).unwrap_or(c_int::MAX),
            &raw mut now,
            &raw mut most,
        )
    })?;
    Ok((u64::try_from(now).unwrap_or(0), u64::try_from(most).unwrap_or(0)))
}
