//! A driver without a GPU, for tests. It records launches, and refuses what a real driver would refuse or what would
//! read memory outside an operand: an unknown image or entry, more shared memory than was allowed, arguments that
//! differ from the PTX in number or size, a misaligned address.

use std::sync::{Arc, Mutex};

use crate::driver::{DeviceFacts, Driver, DriverError, Function, Launch, Module, Value};
use crate::launch::SHARED_WITHOUT_ASKING;
use crate::library::{Library, hex};
use crate::manifest::{Image, Kernel};
use crate::ptx::{self, PtxParam};
use crate::target::{Capability, Target};

/// A launch that reached the driver.
#[derive(Clone, Debug, PartialEq)]
pub struct Launched {
    /// The kernel's name.
    pub kernel: String,
    /// What was launched: constants and parameters.
    pub compiled: &'static Kernel,
    /// The function in the image.
    pub entry: String,
    /// The image's target.
    pub target: Target,
    /// Whether the image assumes multiples of 16.
    pub aligned: bool,
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// Dynamic shared memory.
    pub shared: u32,
    /// Arguments in order.
    pub values: Vec<Value>,
}

#[derive(Debug)]
struct Loaded {
    kernel: &'static Kernel,
    image: &'static Image,
    params: Vec<PtxParam>,
    allowed: u32,
}

#[derive(Debug, Default)]
struct Seen {
    loaded: Vec<Loaded>,
    launched: Vec<Launched>,
}

/// A driver that records. Clones share the record.
#[derive(Clone, Debug)]
pub struct Fake {
    facts: DeviceFacts,
    library: &'static Library,
    seen: Arc<Mutex<Seen>>,
}

fn refuse<T>(message: impl Into<String>) -> Result<T, DriverError> {
    Err(DriverError(message.into()))
}

impl Fake {
    /// A device of this compute capability, with the shared memory of such GPUs.
    pub fn new(library: &'static Library, major: u32, minor: u32) -> Fake {
        let kilobytes = match (major, minor) {
            (8, 0) => 163,
            (8, _) | (12, _) => 99,
            _ => 227,
        };
        let facts = DeviceFacts {
            name: format!("a recorder of {major}.{minor}"),
            capability: Capability { major, minor },
            multiprocessors: 132,
            shared_limit: kilobytes << 10,
            driver: 13000,
        };
        Fake { facts, library, seen: Arc::default() }
    }

    /// Returns the launches so far, and clears the record.
    pub fn take(&self) -> Vec<Launched> {
        self.seen.lock().map(|mut seen| std::mem::take(&mut seen.launched)).unwrap_or_default()
    }
}

impl Driver for Fake {
    fn facts(&self) -> Result<DeviceFacts, DriverError> {
        Ok(self.facts.clone())
    }

    fn load(&self, bytes: &[u8]) -> Result<Module, DriverError> {
        let is_text = bytes.last() == Some(&0) && !bytes.starts_with(b"\x7fELF");
        let code = if is_text { bytes.split_last().map_or(bytes, |(_, code)| code) } else { bytes };
        let digest = hex(code);
        let known = self.library.manifest().kernels.iter().find_map(|kernel| {
            let mut images = kernel.images.iter();
            let image = images.find(|image| image.sha256 == digest)?;
            Some((kernel, image))
        });
        let Some((kernel, image)) = known else { return refuse("an image of no kernel") };
        if is_text != (image.target == Target::Ptx80) {
            return refuse("PTX must end with a zero, machine code is ELF");
        }
        let params = kernel
            .image(Target::Ptx80, image.aligned)
            .and_then(|ptx| Some((String::from_utf8(self.library.bytes(ptx).ok()?).ok()?, ptx)))
            .ok_or_else(|| DriverError("no PTX".to_owned()))
            .and_then(|(text, ptx)| ptx::params(&text, &ptx.entry).map_err(DriverError))?;
        let Ok(mut seen) = self.seen.lock() else { return refuse("another thread failed") };
        seen.loaded.push(Loaded { kernel, image, params, allowed: SHARED_WITHOUT_ASKING });
        Ok(Module(seen.loaded.len() as u64 - 1))
    }

    fn function(&self, module: Module, entry: &str) -> Result<Function, DriverError> {
        let Ok(seen) = self.seen.lock() else { return refuse("another thread failed") };
        match seen.loaded.get(module.0 as usize) {
            Some(loaded) if loaded.image.entry == entry => Ok(Function(module.0)),
            Some(_) | None => refuse(format!("no entry `{entry}`")),
        }
    }

    fn allow_shared(&self, function: Function, bytes: u32) -> Result<(), DriverError> {
        let Ok(mut seen) = self.seen.lock() else { return refuse("another thread failed") };
        match seen.loaded.get_mut(function.0 as usize) {
            Some(loaded) if bytes <= self.facts.shared_limit => {
                loaded.allowed = bytes;
                Ok(())
            }
            Some(_) | None => refuse(format!("{bytes} bytes of shared memory")),
        }
    }

    fn launch(&self, function: Function, launch: &Launch<'_>) -> Result<(), DriverError> {
        let Ok(mut seen) = self.seen.lock() else { return refuse("another thread failed") };
        let Some(loaded) = seen.loaded.get(function.0 as usize) else {
            return refuse("an unknown function");
        };
        let Launch { grid, threads, shared, values } = *launch;
        if shared > loaded.allowed {
            return refuse(format!("{shared} bytes of shared memory, {} allowed", loaded.allowed));
        }
        if values.len() != loaded.params.len() {
            return refuse(format!("{} arguments for {}", values.len(), loaded.params.len()));
        }
        for (n, (value, param)) in values.iter().zip(&loaded.params).enumerate() {
            let bytes = match value {
                Value::Address(_) | Value::I64(_) | Value::F64(_) => 8,
                Value::I32(_) | Value::F32(_) => 4,
            };
            let apart = match (value, param.points_to) {
                (Value::Address(address), Some(align)) => !address.is_multiple_of(u64::from(align)),
                (_, None) => false,
                (_, Some(_)) => true,
            };
            if bytes != param.bytes || apart {
                return refuse(format!("argument {n} is {value:?}, and {param:?} is declared"));
            }
            let assumed = loaded.kernel.params.get(n).map_or(1, |param| param.divisible);
            let number = match *value {
                Value::Address(address) => address,
                Value::I32(value) => u64::from(value.unsigned_abs()),
                Value::I64(value) => value.unsigned_abs(),
                Value::F32(_) | Value::F64(_) => 0,
            };
            if loaded.image.aligned && !number.is_multiple_of(assumed) {
                return refuse(format!("argument {n} is {value:?}, no multiple of {assumed}"));
            }
        }
        let launched = Launched {
            kernel: loaded.kernel.name.clone(),
            compiled: loaded.kernel,
            entry: loaded.image.entry.clone(),
            target: loaded.image.target,
            aligned: loaded.image.aligned,
            grid,
            threads,
            shared,
            values: values.to_vec(),
        };
        seen.launched.push(launched);
        Ok(())
    }
}
