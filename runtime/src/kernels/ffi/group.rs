//! Bindings to PyTorch's process groups (native/group.h): over Gloo, and over NCCL for tensors on GPUs.
//!
//! A group stays on one thread. Tensors must be contiguous, and their sizes are checked before a pointer is passed to
//! C++.
#![expect(unsafe_code, reason = "part of the module that may; every block says why it is sound")]

use std::cell::Cell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::NonNull;
use std::time::Duration;

use tch::Tensor;

use super::{checked, last_error};
use crate::kernels::KernelError;

#[repr(C)]
struct Opaque {
    private: [u8; 0],
}

#[repr(C)]
struct OpaqueWork {
    private: [u8; 0],
}

unsafe extern "C" {
    fn canonc_group_meet(
        host: *const c_char,
        port: c_int,
        serve: c_int,
        prefix: *const c_char,
        rank: c_int,
        size: c_int,
        timeout_ms: i64,
    ) -> *mut Opaque;
    fn canonc_group_connect(
        group: *mut Opaque,
        address: *const c_char,
        interfaces: *const c_char,
        timeout_ms: i64,
    ) -> c_int;
    fn canonc_group_add_nccl(group: *mut Opaque, library: *const c_char, timeout_ms: i64) -> c_int;
    fn canonc_group_begin_all_to_all(
        group: *mut Opaque,
        output: *mut c_void,
        input: *mut c_void,
        output_counts: *const i64,
        input_counts: *const i64,
    ) -> *mut OpaqueWork;
    fn canonc_group_begin_all_gather(
        group: *mut Opaque,
        output: *mut c_void,
        input: *mut c_void,
    ) -> *mut OpaqueWork;
    fn canonc_work_wait(work: *mut OpaqueWork, pending: *mut *mut OpaqueWork) -> c_int;
    fn canonc_work_done(work: *mut OpaqueWork) -> c_int;
    fn canonc_work_free(work: *mut OpaqueWork);
    fn canonc_group_broadcast(group: *mut Opaque, tensor: *mut c_void, root: c_int) -> c_int;
    fn canonc_group_set(
        group: *mut Opaque,
        key: *const c_char,
        bytes: *const u8,
        count: i64,
    ) -> c_int;
    fn canonc_group_get(
        group: *mut Opaque,
        key: *const c_char,
        timeout_ms: i64,
        bytes: *mut u8,
        count: i64,
    ) -> i64;
    fn canonc_group_leave(group: *mut Opaque, failed: c_int);
}

/// The store through which ranks connect, and this process's rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// The host of the store.
    pub host: String,
    pub port: u16,
    /// Whether this process hosts the store.
    pub serves: bool,
    /// Prefix of this run's keys, to separate them from earlier ones in the same store.
    pub prefix: String,
    pub rank: u32,
    pub size: u32,
    /// How long to wait for another rank, in a collective too.
    pub timeout: Duration,
}

/// How other ranks reach this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// By the address of the host name.
    OfHostName,
    /// By this address.
    Address(String),
    /// By these network interfaces, with commas between them.
    Interfaces(String),
}

/// A connection to all other ranks.
#[derive(Debug)]
pub struct Group {
    group: NonNull<Opaque>,
    size: usize,
    /// Whether an exchange failed, so that waiting for the others would never end.
    failed: Cell<bool>,
}

impl Group {
    /// Opens the store through which ranks connect: [`Group::set`] and [`Group::get`] work from now on.
    pub fn meet(meeting: &Meeting) -> Result<Group, KernelError> {
        let Meeting { host, port, serves, prefix, rank, size, timeout } = meeting;
        let (host, prefix) = (c_text(host)?, c_text(prefix)?);
        // SAFETY: null-terminated strings that outlive the call.
        let group = unsafe {
            canonc_group_meet(
                host.as_ptr(),
                c_int::from(*port),
                c_int::from(*serves),
                prefix.as_ptr(),
                c_int::try_from(*rank).unwrap_or(c_int::MAX),
                c_int::try_from(*size).unwrap_or(c_int::MAX),
                millis(*timeout),
            )
        };
        NonNull::new(group)
            .map(|group| Group { group, size: *size as usize, failed: Cell::new(false) })
            .ok_or_else(last_error)
    }

    /// Connects this rank with the others; returns when all have called it.
    pub fn connect(&self, network: &Network, timeout: Duration) -> Result<(), KernelError> {
        let (address, interfaces) = match network {
            Network::OfHostName => (None, None),
            Network::Address(address) => (Some(c_text(address)?), None),
            Network::Interfaces(names) => (None, Some(c_text(names)?)),
        };
        let pointer =
            |text: &Option<CString>| text.as_ref().map_or(std::ptr::null(), |c| c.as_ptr());
        // SAFETY: null-terminated strings that outlive the call, or null, which is allowed.
        checked(unsafe {
            canonc_group_connect(
                self.group.as_ptr(),
                pointer(&address),
                pointer(&interfaces),
                millis(timeout),
            )
        })
    }

    /// Connects the GPUs of all ranks, by this library.
    pub fn add_nccl(&self, library: &Path, timeout: Duration) -> Result<(), KernelError> {
        let library = c_text(&library.to_string_lossy())?;
        // SAFETY: a null-terminated string that outlives the call.
        checked(unsafe {
            canonc_group_add_nccl(self.group.as_ptr(), library.as_ptr(), millis(timeout))
        })
    }

    /// Begins to send `input_counts[r]` elements to rank r, in order, and to receive `output_counts[r]` from it.
    pub fn begin_all_to_all(
        &self,
        output: Tensor,
        input: Tensor,
        output_counts: &[i64],
        input_counts: &[i64],
    ) -> Result<Work, KernelError> {
        flat(&output, output_counts.iter().sum())?;
        flat(&input, input_counts.iter().sum())?;
        if output_counts.len() != self.size || input_counts.len() != self.size {
            return Err(KernelError::new(format!(
                "an exchange of {} ranks needs a count each",
                self.size
            )));
        }
        // SAFETY: one count for each rank; at::Tensors, which the work holds until the exchange is done. Nothing else
        // refers to them: they were moved here, and the output is returned only after the exchange.
        let work = unsafe {
            canonc_group_begin_all_to_all(
                self.group.as_ptr(),
                pointer(&output),
                pointer(&input),
                output_counts.as_ptr(),
                input_counts.as_ptr(),
            )
        };
        Work::new(output, work)
    }

    /// Begins to exchange the inputs `[n]` of all ranks. The output is all of them, one after another.
    pub fn begin_all_gather(&self, output: Tensor, input: Tensor) -> Result<Work, KernelError> {
        flat(&output, (self.size * input.numel()) as i64)?;
        flat(&input, input.numel() as i64)?;
        // SAFETY: as above; sizes fit (checked).
        let work = unsafe {
            canonc_group_begin_all_gather(self.group.as_ptr(), pointer(&output), pointer(&input))
        };
        Work::new(output, work)
    }

    /// Overwrites the tensor with that of rank `root`.
    pub fn broadcast(&self, tensor: &mut Tensor, root: u32) -> Result<(), KernelError> {
        flat(tensor, tensor.numel() as i64)?;
        let root = c_int::try_from(root).unwrap_or(c_int::MAX);
        // SAFETY: an at::Tensor that outlives the call, which waits for the exchange.
        checked(unsafe { canonc_group_broadcast(self.group.as_ptr(), pointer(tensor), root) })
    }

    /// Records that an exchange failed, so that dropping the group does not wait for those that are still running.
    pub fn give_up(&self) {
        self.failed.set(true);
    }

    /// Stores a text for the other ranks.
    pub fn set(&self, key: &str, text: &str) -> Result<(), KernelError> {
        let key = c_text(key)?;
        // SAFETY: a null-terminated key and as many bytes as it says, which outlive the call.
        checked(unsafe {
            canonc_group_set(self.group.as_ptr(), key.as_ptr(), text.as_ptr(), text.len() as i64)
        })
    }

    /// A stored text, waiting for it; `None` if it does not come in time.
    pub fn get(&self, key: &str, wait: Duration) -> Result<Option<String>, KernelError> {
        let key = c_text(key)?;
        let mut bytes = vec![0u8; 1 << 16];
        let (at, room) = (bytes.as_mut_ptr(), bytes.len() as i64);
        // SAFETY: at most `room` bytes are written to `bytes`, which outlives the call.
        let count =
            unsafe { canonc_group_get(self.group.as_ptr(), key.as_ptr(), millis(wait), at, room) };
        match usize::try_from(count) {
            Ok(count) => {
                bytes.truncate(count);
                Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
            }
            Err(_) if count == -2 => Ok(None),
            Err(_) => Err(last_error()),
        }
    }
}

/// An exchange that has begun.
#[derive(Debug)]
pub struct Work {
    work: NonNull<OpaqueWork>,
    output: Tensor,
}

impl Work {
    fn new(output: Tensor, work: *mut OpaqueWork) -> Result<Work, KernelError> {
        NonNull::new(work).map(|work| Work { work, output }).ok_or_else(last_error)
    }

    /// The output. On a CPU this waits until the exchange is done. On a GPU, later work on the device waits for it, and
    /// this process does not: the [`Pending`] tells when it is done.
    pub fn wait(self) -> Result<(Tensor, Option<Pending>), KernelError> {
        let mut pending = std::ptr::null_mut();
        // SAFETY: made by a begin, and freed only in `drop`; a place for a pointer that outlives the call.
        checked(unsafe { canonc_work_wait(self.work.as_ptr(), &raw mut pending) })?;
        Ok((self.output.shallow_clone(), NonNull::new(pending).map(|work| Pending { work })))
    }
}

/// An exchange between GPUs that this process has not waited for. It holds no tensors.
#[derive(Debug)]
pub struct Pending {
    work: NonNull<OpaqueWork>,
}

impl Pending {
    /// Whether the exchange is done, or why it failed. Does not wait.
    pub fn is_done(&self) -> Result<bool, KernelError> {
        // SAFETY: made by a wait, and freed only in `drop`.
        match unsafe { canonc_work_done(self.work.as_ptr()) } {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(last_error()),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // SAFETY: made by a wait, and freed only here.
        unsafe { canonc_work_free(self.work.as_ptr()) }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // SAFETY: made by a begin, and freed only here. An exchange that is not done keeps its tensors.
        unsafe { canonc_work_free(self.work.as_ptr()) }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: made by canonc_group_meet, and left only here.
        unsafe { canonc_group_leave(self.group.as_ptr(), c_int::from(self.failed.get())) }
    }
}

fn flat(tensor: &Tensor, elements: i64) -> Result<(), KernelError> {
    if tensor.size() == [elements] && tensor.is_contiguous() {
        return Ok(());
    }
    Err(KernelError::new(format!(
        "a contiguous tensor of shape [{elements}] is expected, got {:?}",
        tensor.size()
    )))
}

fn pointer(tensor: &Tensor) -> *mut c_void {
    tensor.as_ptr().cast_mut().cast()
}

fn c_text(text: &str) -> Result<CString, KernelError> {
    CString::new(text).map_err(|_| KernelError::new(format!("{text:?} has a zero byte")))
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
