//! The CUDA kernels of canonc as data: compiled images, their arguments, and launches that are checked before they
//! reach a driver.
//!
//! `gpu/build.py` compiles the images from Triton sources and writes a manifest of their arguments. No CUDA library is
//! linked or needed to build. A GPU gets the machine code of its own architecture, or else PTX. A launch passes what
//! the PTX declares, in number, size and alignment; one that the device cannot run is refused.
//!
//! A launch, with a driver that records instead of a GPU:
//!
//! ```
//! use gpu::{Constant, Element, Fake, Launcher, Library, Pointer};
//!
//! let library = Library::embedded().unwrap();
//! let fake = Fake::new(library, 9, 0);
//! let launcher = Launcher::new(library, Box::new(fake.clone())).unwrap();
//! assert_eq!(launcher.target().name(), "sm_90a");
//! let f32 = |address| Pointer { address, element: Element::F32 };
//! let constants = [("dtype", Constant::from("f32")), ("BLOCK", Constant::from(1024))];
//! launcher
//!     .call("swiglu_forward", &constants)
//!     .pointer("gate", f32(4096))
//!     .pointer("up", f32(8192))
//!     .pointer("y", f32(12288))
//!     .int("rows", 2)
//!     .int("width", 1040)
//!     .int("gate_row", 1040)
//!     .int("up_row", 1040)
//!     .run()
//!     .unwrap();
//! let launched = fake.take();
//! assert_eq!(launched[0].grid, [4, 1, 1]);
//! assert!(launched[0].aligned);
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod target;
mod formula;
mod ptx;
mod manifest;
mod library;
mod driver;
mod launch;
mod fake;
mod allocator;
#[cfg(test)]
mod tests;

pub use allocator::{Allocator, Held};
pub use driver::{DeviceFacts, Driver, DriverError, Function, Launch, Module, Value};
pub use fake::{Fake, Launched};
pub use launch::{Call, LaunchError, Launcher, Pointer, SHARED_WITHOUT_ASKING, plain_launches};
pub use library::{ImageError, KernelId, Library};
pub use manifest::{Constant, Element, Image, Kernel, Manifest, ManifestError, Param, ParamType};
pub use target::{Capability, Target, TooOld};
