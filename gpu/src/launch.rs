//! Checks launches before they reach a driver. The arguments must be those of the manifest and of the PTX, in order; an
//! image that assumes multiples of 16 runs only on such operands; no launch exceeds the limits of its device.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;

use crate::driver::{DeviceFacts, Driver, Function, Launch, Value};
use crate::formula;
use crate::library::{KernelId, Library};
use crate::manifest::{Constant, Element, Kernel, Param, ParamType};
use crate::target::Target;

/// Dynamic shared memory, in bytes, that a kernel may use without [`Driver::allow_shared`].
pub const SHARED_WITHOUT_ASKING: u32 = 48 << 10;
/// Maximum threads of a block, on every GPU.
const THREADS: u32 = 1024;
/// Maximum blocks along x, y and z, on every GPU.
const GRID: [u64; 3] = [(1 << 31) - 1, (1 << 16) - 1, (1 << 16) - 1];

thread_local! {
    static PLAIN_LAUNCHES: Cell<u64> = const { Cell::new(0) };
}

/// How many launches of this thread took a plain image, which is slower, because an operand was not a multiple of 16.
pub fn plain_launches() -> u64 {
    PLAIN_LAUNCHES.get()
}

/// Launches kernels on one device.
#[derive(Debug)]
pub struct Launcher {
    library: &'static Library,
    driver: Box<dyn Driver>,
    facts: DeviceFacts,
    target: Target,
    functions: Mutex<BTreeMap<(KernelId, bool), Function>>,
}

/// The address of a tensor's first element, and their type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// On the device; 0 for an operand that this launch does not read.
    pub address: u64,
    /// The type of the elements.
    pub element: Element,
}

/// Why a launch was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchError(String);

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LaunchError {}

/// An argument before its kernel is known.
#[derive(Clone, Copy, Debug)]
enum Argument {
    Pointer(Pointer),
    Integer(i64),
    Float(f64),
}

/// A launch under construction.
#[derive(Debug)]
#[must_use = "nothing is launched before `run`"]
pub struct Call<'a> {
    launcher: &'a Launcher,
    name: &'a str,
    constants: &'a [(&'a str, Constant)],
    arguments: Vec<(&'a str, Argument)>,
}

impl Launcher {
    /// A launcher for a driver's device, which must be able to run the library's images.
    pub fn new(
        library: &'static Library,
        driver: Box<dyn Driver>,
    ) -> Result<Launcher, LaunchError> {
        let facts = driver.facts().map_err(|error| LaunchError(error.to_string()))?;
        let target = Target::for_capability(facts.capability).map_err(|problem| {
            LaunchError(format!("no kernel runs on {}: {problem}", facts.name))
        })?;
        Ok(Launcher { library, driver, facts, target, functions: Mutex::default() })
    }

    /// The target of the images that it runs.
    pub fn target(&self) -> Target {
        self.target
    }

    /// The device.
    pub fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    /// The compiled kernels.
    pub fn library(&self) -> &'static Library {
        self.library
    }

    /// Begins a launch of the kernel that was compiled for these constants.
    pub fn call<'a>(&'a self, name: &'a str, constants: &'a [(&'a str, Constant)]) -> Call<'a> {
        Call { launcher: self, name, constants, arguments: Vec::new() }
    }

    /// A kernel's function for operands of this alignment, loaded on first use.
    fn function(
        &self,
        id: KernelId,
        kernel: &Kernel,
        aligned: bool,
    ) -> Result<Function, LaunchError> {
        let wrong =
            |problem: String| LaunchError(format!("kernel {}: {problem}", kernel.describe()));
        let mut functions =
            self.functions.lock().map_err(|_| wrong("another thread failed".to_owned()))?;
        if let Some(function) = functions.get(&(id, aligned)) {
            return Ok(*function);
        }
        let image = kernel
            .image(self.target, aligned)
            .ok_or_else(|| wrong(format!("no image for {}", self.target)))?;
        if image.shared > self.facts.shared_limit {
            return Err(wrong(format!(
                "it needs {} bytes of shared memory, and {} has {}",
                image.shared, self.facts.name, self.facts.shared_limit
            )));
        }
        let threads = image.warps * 32;
        if threads == 0 || threads > THREADS {
            return Err(wrong(format!("{threads} threads in a block, at most {THREADS}")));
        }
        self.library.check_params(kernel, aligned).map_err(|problem| wrong(problem.to_string()))?;
        let mut code = self.library.bytes(image).map_err(|problem| wrong(problem.to_string()))?;
        if self.target == Target::Ptx80 {
            code.push(0); // the driver takes PTX as a C string
        }
        let load = || -> Result<Function, crate::driver::DriverError> {
            let function = self.driver.function(self.driver.load(&code)?, &image.entry)?;
            if image.shared > SHARED_WITHOUT_ASKING {
                self.driver.allow_shared(function, image.shared)?;
            }
            Ok(function)
        };
        let function = load().map_err(|problem| wrong(problem.to_string()))?;
        functions.insert((id, aligned), function);
        Ok(function)
    }
}

impl<'a> Call<'a> {
    /// The next argument is an address.
    pub fn pointer(mut self, name: &'a str, pointer: Pointer) -> Self {
        self.arguments.push((name, Argument::Pointer(pointer)));
        self
    }

    /// The next argument is an integer of 32 or 64 bits.
    pub fn int(mut self, name: &'a str, value: i64) -> Self {
        self.arguments.push((name, Argument::Integer(value)));
        self
    }

    /// The next argument is a float of 32 or 64 bits.
    pub fn float(mut self, name: &'a str, value: f64) -> Self {
        self.arguments.push((name, Argument::Float(value)));
        self
    }

    /// Launches it on the grid of the manifest's formula. A grid without blocks launches nothing.
    pub fn run(self) -> Result<(), LaunchError> {
        let Call { launcher, name, constants, arguments } = self;
        let elements: Vec<Element> = arguments
            .iter()
            .filter_map(|(_, argument)| match argument {
                Argument::Pointer(pointer) => Some(pointer.element),
                Argument::Integer(_) | Argument::Float(_) => None,
            })
            .collect();
        let (id, kernel) = launcher.library.find(name, constants, &elements).ok_or_else(|| {
            let constants: Vec<String> =
                constants.iter().map(|(name, value)| format!("{name} {value}")).collect();
            LaunchError(format!(
                "kernel {name} was not compiled for [{}] and pointers to {elements:?}",
                constants.join(", ")
            ))
        })?;
        let wrong =
            |problem: String| LaunchError(format!("kernel {}: {problem}", kernel.describe()));
        let values = values(kernel, &arguments).map_err(wrong)?;
        let value = |wanted: &str| {
            let given = arguments.iter().find(|(name, _)| *name == wanted);
            match (given, kernel.constants.get(wanted)) {
                (Some((_, Argument::Integer(value))), _) => Some(*value),
                (None, Some(Constant::Int(value))) => Some(*value),
                (Some(_) | None, _) => None,
            }
        };
        let grid = formula::blocks(&kernel.grid, &value).map_err(wrong)?;
        let Some(grid) = possible(grid).map_err(wrong)? else { return Ok(()) };
        let aligned = is_aligned(&kernel.params, &values);
        if !aligned && kernel.image(launcher.target, aligned).is_none() {
            return Err(wrong("it was compiled for multiples of 16 only".to_owned()));
        }
        let image = kernel
            .image(launcher.target, aligned)
            .ok_or_else(|| wrong(format!("no image for {}", launcher.target)))?;
        let function = launcher.function(id, kernel, aligned)?;
        let launch =
            Launch { grid, threads: image.warps * 32, shared: image.shared, values: &values };
        launcher.driver.launch(function, &launch).map_err(|problem| wrong(problem.to_string()))?;
        if !aligned {
            PLAIN_LAUNCHES.set(PLAIN_LAUNCHES.get() + 1);
        }
        Ok(())
    }
}

/// The values of all arguments, if they match the parameters of the kernel.
fn values(kernel: &Kernel, arguments: &[(&str, Argument)]) -> Result<Vec<Value>, String> {
    let mut given = arguments.iter();
    let mut values = Vec::with_capacity(kernel.params.len());
    for Param { name, ty, divisible: _ } in &kernel.params {
        if *ty == ParamType::Scratch {
            values.push(Value::Address(0));
            continue;
        }
        let Some((got, argument)) = given.next() else {
            return Err(format!("argument {name} is missing"));
        };
        if got != name {
            return Err(format!("argument {name} is expected, got {got}"));
        }
        values.push(match (ty, argument) {
            (ParamType::Pointer(element), Argument::Pointer(pointer))
                if pointer.element == *element =>
            {
                Value::Address(pointer.address)
            }
            (ParamType::I32, Argument::Integer(value)) => Value::I32(
                i32::try_from(*value).map_err(|_| format!("{name} is {value}, beyond 32 bits"))?,
            ),
            (ParamType::I64, Argument::Integer(value)) => Value::I64(*value),
            (ParamType::F32, Argument::Float(value)) => Value::F32(*value as f32),
            (ParamType::F64, Argument::Float(value)) => Value::F64(*value),
            (_, argument) => return Err(format!("argument {name} is {ty}, got {argument:?}")),
        });
    }
    match given.next() {
        None => Ok(values),
        Some((name, _)) => Err(format!("it takes no argument {name}")),
    }
}

/// Whether every address and number is a multiple of what the aligned image assumes.
fn is_aligned(params: &[Param], values: &[Value]) -> bool {
    params.iter().zip(values).all(|(param, value)| match *value {
        Value::Address(address) => address.is_multiple_of(param.divisible),
        Value::I32(value) => u64::from(value.unsigned_abs()).is_multiple_of(param.divisible),
        Value::I64(value) => value.unsigned_abs().is_multiple_of(param.divisible),
        Value::F32(_) | Value::F64(_) => true,
    })
}

/// The grid, if a GPU can run it; `None` if it has no blocks.
fn possible(grid: [i64; 3]) -> Result<Option<[u32; 3]>, String> {
    let mut blocks = [0; 3];
    for ((block, wanted), most) in blocks.iter_mut().zip(grid).zip(GRID) {
        match u64::try_from(wanted) {
            Ok(wanted) if wanted <= most => *block = wanted as u32,
            Ok(_) | Err(_) => return Err(format!("a grid of {grid:?} blocks, at most {GRID:?}")),
        }
    }
    Ok((!blocks.contains(&0)).then_some(blocks))
}
