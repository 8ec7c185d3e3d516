//! The interface to a GPU driver: what launches need of one. Nothing here depends on a CUDA library: the runtime has
//! the real driver, and tests have one that records.

use std::fmt;

use crate::target::Capability;

/// A loaded image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Module(pub u64);

/// A kernel of a loaded image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Function(pub u64);

/// Properties of a device, as its driver reports them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// The model, such as `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// The architecture.
    pub capability: Capability,
    /// Flash attention's deterministic backward divides its work by this number.
    pub multiprocessors: u32,
    /// Maximum dynamic shared memory of a block, in bytes.
    pub shared_limit: u32,
    /// The newest version of CUDA that the driver supports: 13000 for 13.0.
    pub driver: u32,
}

/// An argument's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// An address on the device, or 0.
    Address(u64),
    /// A 32-bit integer.
    I32(i32),
    /// A 64-bit integer.
    I64(i64),
    /// A 32-bit float.
    F32(f32),
    /// A 64-bit float.
    F64(f64),
}

/// One launch. Its blocks have one axis of threads.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch<'a> {
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// Dynamic shared memory in bytes.
    pub shared: u32,
    /// Every argument, in order.
    pub values: &'a [Value],
}

/// The driver's own message for a call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverError(pub String);

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DriverError {}

/// The driver of one device.
pub trait Driver: fmt::Debug + Send + Sync {
    /// Properties of the device.
    fn facts(&self) -> Result<DeviceFacts, DriverError>;
    /// Loads machine code, or compiles PTX.
    fn load(&self, image: &[u8]) -> Result<Module, DriverError>;
    /// A kernel of a loaded image.
    fn function(&self, module: Module, entry: &str) -> Result<Function, DriverError>;
    /// Permits more dynamic shared memory than 48 KB.
    fn allow_shared(&self, function: Function, bytes: u32) -> Result<(), DriverError>;
    /// Queues a launch on the stream that libtorch uses now.
    fn launch(&self, function: Function, launch: &Launch<'_>) -> Result<(), DriverError>;
}
