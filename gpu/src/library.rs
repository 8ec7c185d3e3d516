//! The compiled kernels of this program. Finds a kernel by name, constants and operand types, and unpacks the code of
//! its images. Code is returned only if it has the digest in the manifest.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::io::Read;
use std::sync::{Mutex, OnceLock, PoisonError};

use lzma_rust2::LzmaReader;
use sha2::{Digest, Sha256};

use crate::manifest::{Constant, Element, Image, Kernel, Manifest, ManifestError, ParamType};
use crate::ptx;
use crate::target::Target;

/// Kernels and their images.
#[derive(Debug)]
pub struct Library {
    manifest: Manifest,
    images: &'static [u8],
    /// Kernels of each name.
    by_name: BTreeMap<String, Vec<KernelId>>,
    /// Decompressed streams, by their offset.
    streams: Mutex<BTreeMap<usize, Vec<u8>>>,
}

/// A kernel of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelId(usize);

/// Why an image cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageError(String);

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ImageError {}

/// Maximum decompressed size of a stream, and maximum memory of a decoder.
const LARGEST: u64 = 64 << 20;

impl Library {
    /// The kernels in `manifest`, as `kernels.json`, and `images`, as `images.bin`.
    pub fn new(manifest: &str, images: &'static [u8]) -> Result<Library, ManifestError> {
        let manifest = Manifest::parse(manifest)?;
        let mut by_name: BTreeMap<String, Vec<KernelId>> = BTreeMap::new();
        for (n, kernel) in manifest.kernels.iter().enumerate() {
            by_name.entry(kernel.name.clone()).or_default().push(KernelId(n));
        }
        Ok(Library { manifest, images, by_name, streams: Mutex::default() })
    }

    /// The kernels embedded in this program.
    pub fn embedded() -> Result<&'static Library, ManifestError> {
        static LIBRARY: OnceLock<Result<Library, ManifestError>> = OnceLock::new();
        let library = LIBRARY.get_or_init(|| {
            Library::new(include_str!("../kernels.json"), include_bytes!("../images.bin"))
        });
        library.as_ref().map_err(Clone::clone)
    }

    /// The manifest of the kernels.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The kernel with these constants and pointers to these elements. `None` if none or several were compiled; a
    /// constant that is not named may have any value.
    pub fn find(
        &self,
        name: &str,
        constants: &[(&str, Constant)],
        elements: &[Element],
    ) -> Option<(KernelId, &Kernel)> {
        let mut kernels = self.compiled(name, constants).filter(|(_, kernel)| {
            let pointers = kernel.params.iter().filter_map(|param| match param.ty {
                ParamType::Pointer(element) => Some(element),
                ParamType::I32
                | ParamType::I64
                | ParamType::F32
                | ParamType::F64
                | ParamType::Scratch => None,
            });
            pointers.eq(elements.iter().copied())
        });
        let kernel = kernels.next()?;
        kernels.next().is_none().then_some(kernel)
    }

    /// Every kernel of this name that was compiled for these constants.
    pub fn compiled(
        &self,
        name: &str,
        constants: &[(&str, Constant)],
    ) -> impl Iterator<Item = (KernelId, &Kernel)> {
        let named = self.by_name.get(name).map_or(&[][..], Vec::as_slice);
        let kernels = named.iter().filter_map(|id| Some((*id, self.manifest.kernels.get(id.0)?)));
        kernels.filter(move |(_, kernel)| {
            constants.iter().all(|(name, value)| kernel.constants.get(*name) == Some(value))
        })
    }

    /// The least value of a constant, at least `least`, among the kernels of this name and these constants.
    pub fn at_least(
        &self,
        name: &str,
        constants: &[(&str, Constant)],
        constant: &str,
        least: i64,
    ) -> Option<i64> {
        self.compiled(name, constants)
            .filter_map(|(_, kernel)| match kernel.constants.get(constant) {
                Some(Constant::Int(value)) => Some(*value),
                Some(Constant::Text(_)) | None => None,
            })
            .filter(|value| *value >= least)
            .min()
    }

    /// An image's code.
    pub fn bytes(&self, image: &Image) -> Result<Vec<u8>, ImageError> {
        let wrong = |problem: &str| ImageError(format!("the image of {}: {problem}", image.entry));
        let missing = || wrong("it is not among the images");
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = match streams.entry(image.offset) {
            Entry::Occupied(stream) => stream.into_mut(),
            Entry::Vacant(vacant) => {
                let stream = part(self.images, image.offset, image.length).ok_or_else(missing)?;
                vacant.insert(decompressed(stream).map_err(|error| wrong(&error.to_string()))?)
            }
        };
        let bytes = part(stream, image.start, image.size).ok_or_else(missing)?.to_vec();
        drop(streams);
        let digest = hex(&bytes);
        if digest != image.sha256 {
            return Err(wrong(&format!("its SHA-256 is {digest}, not {}", image.sha256)));
        }
        Ok(bytes)
    }

    /// Checks a kernel's arguments against the PTX of the same source: their number, their sizes, which are pointers;
    /// and the number of threads, if the code requires one.
    pub fn check_params(&self, kernel: &Kernel, aligned: bool) -> Result<(), ImageError> {
        let wrong =
            |problem: String| ImageError(format!("kernel {}: {problem}", kernel.describe()));
        let image = kernel
            .image(Target::Ptx80, aligned)
            .ok_or_else(|| wrong("it has no PTX".to_owned()))?;
        let text = String::from_utf8(self.bytes(image)?)
            .map_err(|_| wrong("its PTX is not text".to_owned()))?;
        let declared = ptx::params(&text, &image.entry).map_err(wrong)?;
        if let Some(threads) = ptx::threads(&text, &image.entry)
            && threads != 32 * image.warps
        {
            return Err(wrong(format!(
                "the manifest has {} warps, the PTX requires {threads} threads",
                image.warps
            )));
        }
        if declared.len() != kernel.params.len() {
            return Err(wrong(format!(
                "the manifest has {} arguments, the PTX {}",
                kernel.params.len(),
                declared.len()
            )));
        }
        for (param, declared) in kernel.params.iter().zip(declared) {
            let pointer = matches!(param.ty, ParamType::Pointer(_) | ParamType::Scratch);
            let assumed = if aligned { param.divisible } else { 1 };
            let fits = match declared.points_to {
                Some(align) => pointer && assumed.is_multiple_of(u64::from(align.max(1))),
                None => !matches!(param.ty, ParamType::Pointer(_)),
            };
            if param.ty.bytes() != declared.bytes || !fits {
                return Err(wrong(format!(
                    "argument {} is {} in the manifest and {declared:?} in the PTX",
                    param.name, param.ty
                )));
            }
        }
        Ok(())
    }
}

fn part(bytes: &[u8], start: usize, size: usize) -> Option<&[u8]> {
    bytes.get(start..start.checked_add(size)?)
}

/// Decompresses an LZMA stream.
fn decompressed(stream: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    LzmaReader::new_mem_limit(stream, (LARGEST >> 10) as u32, None)?
        .take(LARGEST)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The SHA-256 of an image, in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
