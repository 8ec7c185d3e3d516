//! Reads and writes safetensors files as tensors by name, on the CPU and in the file's own dtype.
//!
//! A file is read whole and checked before any tensor is made; a written file is complete or absent.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use dsl::Problem;
use safetensors::tensor::{Dtype, SafeTensors, View};
use tch::{Device, Kind, Tensor};

use crate::error::ExecuteError;
use disk::replace;
use records::run::cannot_read;

/// Maximum bytes of one file of weights.
const MOST_BYTES: u64 = 1 << 40;

pub fn read(path: &Path) -> Result<BTreeMap<String, Tensor>, Problem> {
    let bytes = disk::open_large(path)
        .and_then(|_| disk::read(path, MOST_BYTES))
        .map_err(|error| cannot_read(path, &error))?;
    parse(&bytes).map_err(|why| {
        Problem::input(
            format!("{} is not a usable safetensors file: {why}", path.display()),
            "use a complete .safetensors file of floats or integers",
        )
    })
}

/// Like [`read`], for bytes; the error says why.
pub fn parse(bytes: &[u8]) -> Result<BTreeMap<String, Tensor>, String> {
    let file = SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?;
    let mut tensors = BTreeMap::new();
    for (name, view) in file.iter() {
        let kind = kind_of(view.dtype())
            .ok_or_else(|| format!("{name} is of dtype {:?}", view.dtype()))?;
        let size: Vec<i64> = view.shape().iter().map(|n| *n as i64).collect();
        let tensor = Tensor::f_from_data_size(view.data(), &size, kind)
            .map_err(|error| format!("{name} of shape {size:?}: {error}"))?;
        tensors.insert(name.to_owned(), tensor);
    }
    Ok(tensors)
}

/// The texts that a file carries beside its tensors.
pub fn metadata(path: &Path) -> Result<BTreeMap<String, String>, Problem> {
    let bytes = disk::open_large(path)
        .and_then(|_| disk::read(path, MOST_BYTES))
        .map_err(|error| cannot_read(path, &error))?;
    let (_, metadata) = SafeTensors::read_metadata(&bytes).map_err(|why| {
        Problem::input(
            format!("{} is not a usable safetensors file: {why}", path.display()),
            "use a complete .safetensors file",
        )
    })?;
    Ok(metadata.metadata().clone().into_iter().flatten().collect())
}

/// One tensor of ids from a file, as i64.
pub fn ids(path: &Path, name: &str) -> Result<Tensor, Problem> {
    let mut tensors = read(path)?;
    let Some(tensor) = tensors.remove(name) else {
        let names: Vec<&str> = tensors.keys().map(String::as_str).collect();
        return Err(Problem::input(
            format!("{} has no tensor `{name}`", path.display()),
            match names.as_slice() {
                [] => "it is empty".to_owned(),
                names => format!("it has {}", names.join(", ")),
            },
        ));
    };
    #[expect(clippy::wildcard_enum_match_arm, reason = "the caller checked the dtype")]
    match tensor.kind() {
        Kind::Int64 | Kind::Int | Kind::Int16 | Kind::Uint8 => {
            Ok(tensor.f_to_kind(Kind::Int64).map_err(ExecuteError::from)?)
        }
        kind => Err(Problem::input(
            format!("`{name}` of {} is {kind:?}, but ids must be integers", path.display()),
            "store it as i64 of [batch, time]",
        )),
    }
}

/// The bytes of a file. `mark` is stored in the file to say what it is.
pub fn bytes(tensors: &[(&str, &Tensor)], mark: Option<&str>) -> Result<Vec<u8>, Problem> {
    let mut stored = Vec::with_capacity(tensors.len());
    for (name, tensor) in tensors {
        stored.push((*name, Stored::from_tensor(tensor)?));
    }
    let metadata = mark.map(|mark| HashMap::from([("canonc".to_owned(), mark.to_owned())]));
    Ok(safetensors::serialize(stored, metadata).map_err(|error| {
        ExecuteError::new(format!("the tensors could not be serialized: {error}"))
    })?)
}

/// Writes the file, over any file already there.
pub fn write(path: &Path, tensors: &[(&str, &Tensor)], mark: Option<&str>) -> Result<(), Problem> {
    let bytes = bytes(tensors, mark)?;
    replace(path, &bytes, || Ok(())).map_err(|error| {
        disk::not_durable(&error, path.display()).unwrap_or_else(|| {
            Problem::machine(
                format!("{} was not written: {error}", path.display()),
                "check that its folder exists, is writable and has free space",
            )
        })
    })
}

fn kind_of(dtype: Dtype) -> Option<Kind> {
    KINDS.iter().find(|(d, _)| *d == dtype).map(|(_, kind)| *kind)
}

const KINDS: [(Dtype, Kind); 10] = [
    (Dtype::F64, Kind::Double),
    (Dtype::F32, Kind::Float),
    (Dtype::BF16, Kind::BFloat16),
    (Dtype::F16, Kind::Half),
    (Dtype::I64, Kind::Int64),
    (Dtype::I32, Kind::Int),
    (Dtype::I16, Kind::Int16),
    (Dtype::I8, Kind::Int8),
    (Dtype::U8, Kind::Uint8),
    (Dtype::BOOL, Kind::Bool),
];

/// A tensor's bytes in the file's format.
struct Stored {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Stored {
    fn from_tensor(tensor: &Tensor) -> Result<Self, ExecuteError> {
        let kind = tensor.kind();
        let Some((dtype, _)) = KINDS.iter().find(|(_, k)| *k == kind) else {
            return Err(ExecuteError::new(format!("safetensors has no dtype for {kind:?}")));
        };
        let dense = tensor.f_to_device(Device::Cpu)?.f_contiguous()?;
        let mut bytes = vec![0; dense.numel() * kind.elt_size_in_bytes()];
        dense.f_copy_data_u8(&mut bytes, dense.numel())?;
        let shape = dense.size().iter().map(|n| *n as usize).collect();
        Ok(Self { dtype: *dtype, shape, bytes })
    }
}

impl View for Stored {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}
