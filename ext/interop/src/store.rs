//! Tensors in files: read piece by piece, written one after the other.
//!
//! Nothing is read before sizes, offsets and lengths have been checked against the file's; the bytes used are those of
//! the file's digest; memory is bounded by a piece, not by the model; a file is written completely or not at all.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Read as _, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dsl::Problem;

use super::dtype::Dtype;
use super::node::{MAX_BYTES, Node, NodeValue};
use super::{LeftOut, cannot_read, cannot_write, json, shown};
use disk::checked::{CheckedFile, ReadFault};

/// The maximum number of values in memory while tensors are read or written.
pub const PIECE: u64 = 1 << 20;
/// The maximum number of names in one checkpoint.
pub const MAX_TENSORS: usize = 300_000;

/// Prefixes of names in a file, and the wrapper of a model that adds them.
const WRAPPERS: [(&str, &str); 2] =
    [("module.", "DistributedDataParallel"), ("_orig_mod.", "torch.compile")];

/// One tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// `Err` names a type that weights cannot have.
    pub dtype: Result<Dtype, String>,
    /// Its extents, outermost first.
    pub shape: Vec<i64>,
    /// Index of its file.
    pub file: usize,
    /// Offset of its first byte.
    pub at: u64,
    /// Steps between values along each axis; `None` if the values are contiguous.
    pub strides: Option<Vec<i64>>,
}

impl Stored {
    /// Number of values; 0 if the shape overflows.
    pub fn count(&self) -> u64 {
        count(&self.shape).unwrap_or(0)
    }
}

/// The number of values of a shape; `None` if it overflows.
pub fn count(shape: &[i64]) -> Option<u64> {
    shape.iter().try_fold(1u64, |n, extent| n.checked_mul(u64::try_from(*extent).ok()?))
}

/// A file that was read, with its contents' length and digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadFile {
    /// The file's path.
    pub path: PathBuf,
    /// Number of its bytes.
    pub bytes: u64,
    /// BLAKE3 of the bytes that are used.
    pub digest: blake3::Hash,
}

/// All tensors of a checkpoint.
#[derive(Debug, Default)]
pub struct Store {
    /// The files that hold tensors.
    pub files: Vec<ReadFile>,
    /// The list of shards, if there is one.
    pub index: Option<ReadFile>,
    /// Tensors by name.
    pub tensors: BTreeMap<String, Stored>,
    pub(super) open: Vec<Arc<CheckedFile>>,
}

impl Store {
    /// Adds a file and returns the index by which tensors refer to it. The whole file is read once for its digest, and
    /// every later read is checked against that.
    pub fn add(&mut self, path: &Path) -> Result<usize, Problem> {
        let opened = disk::open_large(path).and_then(CheckedFile::first_read);
        let (file, digest) = opened.map_err(|error| cannot_read(path, &error))?;
        self.files.push(ReadFile { path: path.to_owned(), bytes: file.covered(), digest });
        self.open.push(Arc::new(file));
        Ok(self.files.len() - 1)
    }

    /// The open file with this index.
    pub(super) fn opened(&self, file: usize) -> Option<Arc<CheckedFile>> {
        self.open.get(file).cloned()
    }

    pub(super) fn path(&self, file: usize) -> &Path {
        self.files.get(file).map_or(Path::new(""), |file| &file.path)
    }

    /// Removes prefixes that every name has because the model was saved inside of a wrapper.
    pub(super) fn without_wrappers(&mut self) -> Vec<LeftOut> {
        let mut left_out = Vec::new();
        loop {
            let shared = WRAPPERS.iter().find(|(prefix, _)| {
                !self.tensors.is_empty() && self.tensors.keys().all(|name| name.starts_with(prefix))
            });
            let Some((prefix, wrapper)) = shared else { return left_out };
            let tensors = std::mem::take(&mut self.tensors);
            let short = |name: String| name.get(prefix.len()..).unwrap_or_default().to_owned();
            self.tensors =
                tensors.into_iter().map(|(name, stored)| (short(name), stored)).collect();
            let reason = format!("the prefix of every name, from {wrapper}");
            left_out.push(LeftOut { name: (*prefix).to_owned(), reason });
        }
    }

    /// Opens a safetensors file.
    pub fn single(path: &Path) -> Result<Store, Problem> {
        let mut store = Store::default();
        store.safetensors(path)?;
        Ok(store)
    }

    pub(super) fn safetensors(&mut self, path: &Path) -> Result<(), Problem> {
        let refuse = |reason: String| {
            let message = format!("it is not a usable safetensors file: {reason}");
            Problem::in_file(shown(path), message, "use the complete original file")
        };
        let file = self.add(path)?;
        let header = self.header(file, path)?;
        let length = self.length(file);
        let (_, text) = header.split_at_checked(8).unwrap_or_default();
        let root = json::read("its header", text.trim_ascii_end())
            .map_err(|error| refuse(error.located()))?;
        let NodeValue::Map(entries) = &root.value else {
            return Err(refuse("its header is not a map".to_owned()));
        };
        let mut spans = Vec::new();
        for (name, node) in entries.iter().filter(|(name, _)| name != "__metadata__") {
            let (dtype, shape, from, to) = tensor_header(node)
                .ok_or_else(|| refuse(format!("`{name}` is not described as a tensor")))?;
            let bytes =
                dtype.as_ref().map_or(Some(to - from), |d| count(&shape)?.checked_mul(d.bytes()));
            if bytes != Some(to - from) {
                let dtype = dtype.map_or_else(|unknown| unknown, |d| d.name().to_owned());
                return Err(refuse(format!(
                    "`{name}` is {dtype} {shape:?}, and has {} bytes",
                    to - from
                )));
            }
            spans.push((from, to, name));
            let at = (header.len() as u64).saturating_add(from);
            let stored = Stored { dtype, shape, file, at, strides: None };
            if let Some(earlier) = self.tensors.insert(name.clone(), stored) {
                let file = shown(self.path(earlier.file));
                return Err(refuse(format!("`{name}` is both in it and in {file}")));
            }
        }
        check_spans(spans, header.len() as u64, length).map_err(&refuse)?;
        if self.tensors.len() > MAX_TENSORS {
            return Err(refuse(format!("it has more than {MAX_TENSORS} tensors")));
        }
        Ok(())
    }

    /// The header, after the eight bytes of its length.
    fn header(&self, file: usize, path: &Path) -> Result<Vec<u8>, Problem> {
        let short = |n: u64| {
            let message = format!(
                "it is not a usable safetensors file: its header would have {n} bytes, but the file has {}: it is cut \
                 off, or something else",
                self.length(file)
            );
            Problem::in_file(shown(path), message, "download or copy it again")
        };
        let length = self.length(file);
        let first = self.read(file, 0, 8.min(length))?;
        let size = first.try_into().map(u64::from_le_bytes).map_err(|_| short(length))?;
        match size.checked_add(8).filter(|n| *n <= length && size <= MAX_BYTES as u64) {
            Some(end) => self.read(file, 0, end),
            None => Err(short(size)),
        }
    }

    fn length(&self, file: usize) -> u64 {
        self.open.get(file).map_or(0, |file| file.covered())
    }

    fn read(&self, file: usize, at: u64, bytes: u64) -> Result<Vec<u8>, Problem> {
        let failed = |error: std::io::Error| cannot_read(self.path(file), &error);
        let Some(open) = self.open.get(file) else {
            return Err(failed(std::io::ErrorKind::NotFound.into()));
        };
        let read = open.bytes(at..at.saturating_add(bytes));
        read.map_err(|fault| match &fault {
            ReadFault::Io { error, .. } => cannot_read(self.path(file), error),
            ReadFault::Changed { .. } | ReadFault::Cut { .. } | ReadFault::Outside { .. } => {
                failed(std::io::Error::other(fault.to_string()))
            }
        })
    }

    /// Values `start..start + count` of a tensor, in its own order. Infinity and NaN are refused.
    pub fn values(&self, name: &str, start: u64, count: u64) -> Result<Vec<f32>, Problem> {
        let Some(stored) = self.tensors.get(name) else { return Ok(Vec::new()) };
        let file = shown(self.path(stored.file));
        let dtype = stored.dtype.clone().map_err(|has| {
            let message = format!("`{name}` is {has}, but weights must be F32, BF16 or F16");
            Problem::in_file(file.clone(), message, "convert it to one of them")
        })?;
        let size = dtype.bytes();
        let mut values = Vec::new();
        match &stored.strides {
            None => {
                let bytes = self.read(stored.file, stored.at + start * size, count * size)?;
                dtype.decode(&bytes, &mut values);
            }
            Some(strides) => {
                for index in start..start + count {
                    let first = offset(index, &stored.shape, strides);
                    let bytes = self.read(stored.file, stored.at + first * size, size)?;
                    dtype.decode(&bytes, &mut values);
                }
            }
        }
        match values.iter().position(|v| !v.is_finite()) {
            None => Ok(values),
            Some(at) => {
                let (index, has) = (start + at as u64, values.get(at).copied().unwrap_or(0.0));
                let message = format!(
                    "`{name}` {:?} has {has} at {index}, but weights must be finite",
                    stored.shape
                );
                Err(Problem::in_file(
                    file,
                    message,
                    "this checkpoint comes from a run that diverged",
                ))
            }
        }
    }
}

/// Checks that the tensors fill the file after its header: they do not overlap, and no bytes are hidden.
fn check_spans(
    mut spans: Vec<(u64, u64, &String)>,
    header: u64,
    length: u64,
) -> Result<(), String> {
    spans.sort_unstable();
    let data = length - header;
    let mut free = 0;
    for (from, to, name) in spans {
        if from != free {
            return Err(format!(
                "`{name}` is at {from}..{to} of {data}, but should start at {free}"
            ));
        }
        if to > data {
            let end = header + to;
            return Err(format!(
                "it is cut off: `{name}` ends at byte {end}, but the file has {length}"
            ));
        }
        free = to;
    }
    match free == data {
        true => Ok(()),
        false => Err(format!("its header describes {free} bytes, but it has {data}")),
    }
}

/// Type, shape, offset of the first byte, and offset after the last one.
type TensorHeader = (Result<Dtype, String>, Vec<i64>, u64, u64);

/// A tensor's description in a header.
fn tensor_header(node: &Node) -> Option<TensorHeader> {
    let NodeValue::Text(dtype) = &node.get("dtype")?.value else { return None };
    let integers = |key: &str| -> Option<Vec<i64>> {
        let NodeValue::List(items) = &node.get(key)?.value else { return None };
        let integer = |n: &Node| n.value.plain().parse().ok().filter(|n| (0..1 << 56).contains(n));
        items.iter().map(integer).collect()
    };
    let (shape, offsets) = (integers("shape")?, integers("data_offsets")?);
    let [from, to] = offsets.as_slice() else { return None };
    if to < from {
        return None;
    }
    let dtype = Dtype::named(dtype).ok_or_else(|| dtype.clone());
    Some((dtype, shape, *from as u64, *to as u64))
}

/// The offset from the first value to the value with this index.
fn offset(index: u64, shape: &[i64], strides: &[i64]) -> u64 {
    let (mut left, mut offset) = (index, 0);
    for (extent, stride) in shape.iter().zip(strides).rev() {
        let extent = (*extent).max(1) as u64;
        offset += (left % extent) * (*stride).max(0) as u64;
        left /= extent;
    }
    offset
}

/// A small file's contents, and its digest.
pub(crate) fn bytes_of(path: &Path) -> Result<(Vec<u8>, ReadFile), Problem> {
    let failed = |error: std::io::Error| cannot_read(path, &error);
    let mut bytes = Vec::new();
    let file = disk::open(path).map_err(failed)?;
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    let (length, digest) = (bytes.len() as u64, blake3::hash(&bytes));
    Ok((bytes, ReadFile { path: path.to_owned(), bytes: length, digest }))
}

/// A tensor to write.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Name of the tensor.
    pub name: String,
    /// Its extents, outermost first.
    pub shape: Vec<i64>,
}

/// Writes contiguous tensors; `fill` gives the values of each in pieces.
pub fn write_safetensors(
    path: &Path,
    tensors: &[Planned],
    dtype: Dtype,
    metadata: &[(&str, &str)],
    mut fill: impl FnMut(usize, &mut dyn FnMut(&[f32]) -> Result<(), Problem>) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let failed = |error: std::io::Error| cannot_write(path, &error);
    let (mut header, mut at) = (String::from("{"), 0);
    if !metadata.is_empty() {
        let entries: Vec<String> = metadata
            .iter()
            .map(|(k, v)| format!("{}:{}", json::quoted(k), json::quoted(v)))
            .collect();
        header += &format!("\"__metadata__\":{{{}}}", entries.join(","));
    }
    for Planned { name, shape } in tensors {
        let end = at + count(shape).unwrap_or(0) * dtype.bytes();
        let comma = if header.len() > 1 { "," } else { "" };
        let (name, shape) = (json::quoted(name), format!("{shape:?}").replace(' ', ""));
        let dtype = dtype.name();
        header += &format!(
            "{comma}{name}:{{\"dtype\":\"{dtype}\",\"shape\":{shape},\"data_offsets\":[{at},{end}]}}"
        );
        at = end;
    }
    header.push('}');
    // The format requires the data to begin at a multiple of eight.
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
    let mut file = BufWriter::new(File::create_new(path).map_err(failed)?);
    file.write_all(&(header.len() as u64).to_le_bytes()).map_err(failed)?;
    file.write_all(header.as_bytes()).map_err(failed)?;
    let mut buffer = Vec::new();
    for index in 0..tensors.len() {
        fill(index, &mut |values| {
            buffer.clear();
            dtype.encode(values, &mut buffer);
            file.write_all(&buffer).map_err(failed)
        })?;
    }
    let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
    file.sync_all().map_err(failed)
}
