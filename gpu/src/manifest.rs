//! The manifest of compiled kernels: reads `kernels.json`, with the constants, arguments and images of each kernel.
//!
//! Every kernel has an image for aligned operands on every target, and most kernels also have images for any other
//! operands. The names of a kernel's parameters are unique.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;

use crate::target::Target;

/// Everything that was compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The compiler and its version.
    pub triton: String,
    /// By name, then constants, then types.
    pub kernels: Vec<Kernel>,
}

/// One compiled specialisation of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The function in the sources.
    pub name: String,
    /// Values that it was compiled for, by name.
    pub constants: BTreeMap<String, Constant>,
    /// Arguments of a launch, in order.
    pub params: Vec<Param>,
    /// Its number of blocks, as a formula over parameters and constants.
    pub grid: String,
    /// Its images.
    pub images: Vec<Image>,
}

/// A value that a kernel was compiled for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Constant {
    /// A size, or a flag.
    Int(i64),
    /// The name of a dtype.
    Text(String),
}

/// An argument of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its name in the sources.
    pub name: String,
    /// Its type.
    pub ty: ParamType,
    /// The aligned image assumes that it is a multiple of this number; 1 if it assumes nothing.
    pub divisible: u64,
}

/// The type of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ParamType {
    /// The address of elements.
    Pointer(Element),
    /// A 32-bit integer.
    I32,
    /// A 64-bit integer.
    I64,
    /// A 32-bit float.
    F32,
    /// A 64-bit float.
    F64,
    /// Scratch memory for code that the compiler generates. Our kernels need none, so it is null.
    Scratch,
}

/// What a pointer points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Element {
    /// The upper half of an f32.
    Bf16,
    /// 32-bit float.
    F32,
    /// 64-bit float.
    F64,
    /// 32-bit integer.
    I32,
    /// 64-bit integer.
    I64,
}

/// Compiled code of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Which GPUs run it.
    pub target: Target,
    /// Whether it assumes that pointers and strides are multiples of 16.
    pub aligned: bool,
    /// The function's name in the code.
    pub entry: String,
    /// Threads of a block, divided by 32.
    pub warps: u32,
    /// Dynamic shared memory in bytes.
    pub shared: u32,
    /// Offset of the compressed stream with its code and other images of the kernel.
    pub offset: usize,
    /// Compressed size of the stream.
    pub length: usize,
    /// Offset of the code in the decompressed stream.
    pub start: usize,
    /// Size of the code.
    pub size: usize,
    /// SHA-256 of the code, in hexadecimal.
    pub sha256: String,
}

/// Why a manifest cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestError(String);

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ManifestError {}

/// The format of the file. Fields that only inform people (registers, memory, instructions) are not read here.
#[derive(Deserialize)]
struct FileForm {
    format: u32,
    triton: String,
    kernels: Vec<KernelForm>,
}

#[derive(Deserialize)]
struct KernelForm {
    name: String,
    constants: BTreeMap<String, Constant>,
    params: Vec<ParamForm>,
    grid: String,
    images: Vec<ImageForm>,
}

#[derive(Deserialize)]
struct ParamForm {
    name: String,
    #[serde(rename = "type")]
    ty: String,
    #[serde(default = "one")]
    divisible: u64,
}

fn one() -> u64 {
    1
}

#[derive(Deserialize)]
struct ImageForm {
    target: String,
    aligned: bool,
    entry: String,
    warps: u32,
    shared: u32,
    offset: usize,
    length: usize,
    start: usize,
    size: usize,
    sha256: String,
}

/// The version of the format that this code reads.
const FORMAT: u32 = 2;

impl Manifest {
    /// Reads `kernels.json`.
    pub fn parse(text: &str) -> Result<Manifest, ManifestError> {
        let form: FileForm = serde_json::from_str(text)
            .map_err(|error| ManifestError(format!("the manifest of kernels: {error}")))?;
        if form.format != FORMAT {
            return Err(ManifestError(format!(
                "the manifest of kernels has format {}, not {FORMAT}",
                form.format
            )));
        }
        let kernels = form.kernels.into_iter().map(kernel).collect::<Result<_, _>>()?;
        Ok(Manifest { triton: form.triton, kernels })
    }
}

fn kernel(form: KernelForm) -> Result<Kernel, ManifestError> {
    let KernelForm { name, constants, params, grid, images } = form;
    let wrong = |problem: String| ManifestError(format!("kernel {name} {constants:?}: {problem}"));
    let params: Vec<Param> = params
        .into_iter()
        .map(|ParamForm { name, ty, divisible }| {
            let ty = ty.parse().map_err(&wrong)?;
            match divisible {
                0 => Err(wrong(format!("{name} cannot be a multiple of 0"))),
                _ => Ok(Param { name, ty, divisible }),
            }
        })
        .collect::<Result<_, ManifestError>>()?;
    let names: BTreeSet<&str> = params.iter().map(|param| param.name.as_str()).collect();
    if names.len() != params.len() {
        return Err(wrong("two parameters have one name".to_owned()));
    }
    let images: Vec<Image> = images
        .into_iter()
        .map(|form| {
            let ImageForm { target, aligned, entry, warps, shared, .. } = form;
            let ImageForm { offset, length, start, size, sha256, .. } = form;
            let target = target.parse().map_err(&wrong)?;
            Ok(Image { target, aligned, entry, warps, shared, offset, length, start, size, sha256 })
        })
        .collect::<Result<_, ManifestError>>()?;
    let count = |target: Target, aligned: bool| {
        images.iter().filter(|image| (image.target, image.aligned) == (target, aligned)).count()
    };
    // A kernel may have aligned images only, on every target.
    let plain = images.iter().any(|image| !image.aligned);
    for target in Target::ALL {
        for (aligned, wanted, what) in [(true, 1, "aligned"), (false, usize::from(plain), "plain")]
        {
            match count(target, aligned) {
                number if number == wanted => {}
                number => return Err(wrong(format!("{number} {what} images for {target}"))),
            }
        }
    }
    Ok(Kernel { name, constants, params, grid, images })
}

impl Kernel {
    /// The image for a target.
    pub fn image(&self, target: Target, aligned: bool) -> Option<&Image> {
        self.images.iter().find(|image| (image.target, image.aligned) == (target, aligned))
    }

    /// A name for messages: with constants and types of pointers.
    pub fn describe(&self) -> String {
        let constants: Vec<String> =
            self.constants.iter().map(|(name, value)| format!("{name} {value}")).collect();
        format!("{} [{}]", self.name, constants.join(", "))
    }
}

impl std::str::FromStr for ParamType {
    type Err = String;

    fn from_str(text: &str) -> Result<ParamType, String> {
        Ok(match text {
            "*bf16" => ParamType::Pointer(Element::Bf16),
            "*fp32" | "*f32" => ParamType::Pointer(Element::F32),
            "*fp64" | "*f64" => ParamType::Pointer(Element::F64),
            "*i32" => ParamType::Pointer(Element::I32),
            "*i64" => ParamType::Pointer(Element::I64),
            "i32" => ParamType::I32,
            "i64" => ParamType::I64,
            "fp32" | "f32" => ParamType::F32,
            "fp64" | "f64" => ParamType::F64,
            "scratch" => ParamType::Scratch,
            _ => return Err(format!("`{text}` is not the type of an argument")),
        })
    }
}

impl ParamType {
    /// Bytes of the argument itself.
    pub fn bytes(self) -> u32 {
        match self {
            ParamType::Pointer(_) | ParamType::I64 | ParamType::F64 | ParamType::Scratch => 8,
            ParamType::I32 | ParamType::F32 => 4,
        }
    }
}

impl fmt::Display for ParamType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ParamType::Pointer(Element::Bf16) => "*bf16",
            ParamType::Pointer(Element::F32) => "*f32",
            ParamType::Pointer(Element::F64) => "*f64",
            ParamType::Pointer(Element::I32) => "*i32",
            ParamType::Pointer(Element::I64) => "*i64",
            ParamType::I32 => "i32",
            ParamType::I64 => "i64",
            ParamType::F32 => "f32",
            ParamType::F64 => "f64",
            ParamType::Scratch => "scratch",
        })
    }
}

impl fmt::Display for Constant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Constant::Int(value) => value.fmt(f),
            Constant::Text(value) => value.fmt(f),
        }
    }
}

impl From<i64> for Constant {
    fn from(value: i64) -> Constant {
        Constant::Int(value)
    }
}

impl From<&str> for Constant {
    fn from(value: &str) -> Constant {
        Constant::Text(value.to_owned())
    }
}
