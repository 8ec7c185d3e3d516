//! Reads PyTorch's zip checkpoints without running anything, and writes them.
//!
//! Nothing is executed or imported, and only texts, numbers, lists, maps and places of tensors are built; opcodes and
//! names outside a short list are refused; a hostile archive is refused before memory is allocated for it.

mod pickle;
mod write;
mod zip;

use std::collections::BTreeMap;
use std::path::Path;

use dsl::Problem;

use super::dtype::Dtype;
use super::store::{Store, Stored, count};
use super::{LeftOut, shown};

use pickle::Item;
pub use write::write;

/// Keys under which training scripts save the map of tensors.
const MODEL: [&str; 4] = ["model", "state_dict", "model_state_dict", "module"];

/// The tensors of a file, and a list of its other contents.
pub fn read(path: &Path) -> Result<(Store, Vec<LeftOut>), Problem> {
    let mut store = Store::default();
    let left_out = add(&mut store, path)?;
    Ok((store, left_out))
}

/// Adds the tensors of a file to a store; returns a list of the file's other contents.
pub(super) fn add(store: &mut Store, path: &Path) -> Result<Vec<LeftOut>, Problem> {
    let refuse = |reason: String| {
        Problem::in_file(
            shown(path),
            format!("it cannot be read safely: {reason}"),
            "write the tensors alone, in Python: `torch.save(dict(model.state_dict()), FILE)`",
        )
    };
    let index = store.add(path)?;
    add_opened(store, index).map_err(refuse)
}

fn add_opened(store: &mut Store, index: usize) -> Result<Vec<LeftOut>, String> {
    // The same open file, so that the checked bytes are those that are read.
    let file = store.opened(index).ok_or_else(|| "it cannot be read".to_owned())?;
    let mut archive = zip::Archive::open(file)?;
    let bytes = archive.small("data.pkl")?;
    check_format(&mut archive)?;
    let root = pickle::read(&bytes)?;
    let Item::Map(entries) = &root else {
        return Err(format!("it has {} instead of a map", root.kind()));
    };
    let (tensors, left_out) = match tensors_of(entries)? {
        None => (entries, Vec::new()),
        Some((model, tensors)) => {
            let others = entries.iter().filter(|(key, _)| *key != model);
            let left_out = others.map(|(key, item)| beside_weights(&archive, index, key, item));
            (tensors, left_out.collect::<Result<_, _>>()?)
        }
    };
    for (name, item) in tensors {
        let Item::Tensor(tensor) = item else {
            return Err(format!("`{name}` is {} instead of a tensor", item.kind()));
        };
        let stored = placed(&archive, index, name, tensor)?;
        if store.tensors.insert(name.clone(), stored).is_some() {
            return Err(format!("`{name}` is in another file, too"));
        }
    }
    archive.unused()?;
    Ok(left_out)
}

/// Checks the order of bytes and the version of the format, where an archive has them.
fn check_format(archive: &mut zip::Archive) -> Result<(), String> {
    if let Some(order) = archive.optional("byteorder")?
        && order != b"little"
    {
        let order = String::from_utf8_lossy(&order).into_owned();
        return Err(format!(
            "its numbers are {order:?}-endian, but only little-endian is supported"
        ));
    }
    let version = archive.optional("version")?;
    let text = version.as_deref().map(|v| String::from_utf8_lossy(v).trim().to_owned());
    if !matches!(text.as_deref(), None | Some("2" | "3")) {
        return Err(format!("its version is {text:?}, but only 3 is supported"));
    }
    Ok(())
}

/// An entry beside the map of tensors; its own tensors have to be valid.
fn beside_weights(
    archive: &zip::Archive,
    file: usize,
    key: &str,
    item: &Item,
) -> Result<LeftOut, String> {
    let mut count = 0;
    each_tensor(item, &mut |tensor| {
        count += 1;
        placed(archive, file, key, tensor).map(|_| ())
    })?;
    let reason = match (key, count) {
        ("optim", _) => format!("the optimizer's state: {count} valid tensors"),
        (_, 0) => format!("{}, beside the weights", item.kind()),
        (_, _) => format!("{}, beside the weights: {count} valid tensors", item.kind()),
    };
    Ok(LeftOut { name: key.to_owned(), reason })
}

/// The map of tensors among a file's entries, with its key; `None` if the entries themselves are the tensors.
fn tensors_of(entries: &Entries) -> Result<Option<(&str, &Entries)>, String> {
    let mut maps = MODEL.iter().filter_map(|key| match entries.get(*key) {
        Some(Item::Map(tensors)) => Some((*key, tensors)),
        Some(
            Item::None
            | Item::Bool(_)
            | Item::Int(_)
            | Item::Float(_)
            | Item::Text(_)
            | Item::List(_)
            | Item::Tensor(_),
        )
        | None => None,
    });
    match (maps.next(), maps.next()) {
        (Some((first, _)), Some((second, _))) => {
            Err(format!("it has both `{first}` and `{second}`, and either could be the weights"))
        }
        (Some(map), None) => Ok(Some(map)),
        (None, _) if entries.values().any(|item| matches!(item, Item::Tensor(_))) => Ok(None),
        (None, _) => {
            let keys: Vec<String> = entries.keys().take(8).map(|key| format!("`{key}`")).collect();
            Err(format!(
                "it has no tensors and no map called {}; it has {}",
                MODEL.map(|key| format!("`{key}`")).join(" or "),
                if keys.is_empty() { "nothing".to_owned() } else { keys.join(", ") }
            ))
        }
    }
}

/// Passes every tensor in an item to `take`.
fn each_tensor(
    item: &Item,
    take: &mut dyn FnMut(&pickle::Tensor) -> Result<(), String>,
) -> Result<(), String> {
    match item {
        Item::Tensor(tensor) => take(tensor),
        Item::Map(entries) => entries.values().try_for_each(|item| each_tensor(item, take)),
        Item::List(items) => items.iter().try_for_each(|item| each_tensor(item, take)),
        Item::None | Item::Bool(_) | Item::Int(_) | Item::Float(_) | Item::Text(_) => Ok(()),
    }
}

/// Where a tensor is in the file; its storage's entry, sizes and bounds have to agree.
fn placed(
    archive: &zip::Archive,
    file: usize,
    name: &str,
    tensor: &pickle::Tensor,
) -> Result<Stored, String> {
    let storage = &tensor.storage;
    let (at, bytes) = archive.checked_span(&format!("data/{}", storage.key))?;
    let size = storage.kind.bytes();
    if storage.count.checked_mul(size) != Some(bytes) {
        let (count, kind) = (storage.count, storage.kind.name());
        return Err(format!(
            "`{name}`: storage {} is {count} values of {kind}, but data/{} has {bytes} bytes",
            storage.key, storage.key
        ));
    }
    let values =
        count(&tensor.shape).ok_or_else(|| format!("`{name}` has the shape {:?}", tensor.shape))?;
    if tensor.strides.len() != tensor.shape.len() {
        return Err(format!("`{name}`: shape {:?} and strides {:?}", tensor.shape, tensor.strides));
    }
    // The last value of the view and the number of values: both must be inside the storage.
    let mut last = tensor.offset;
    for (extent, stride) in tensor.shape.iter().zip(&tensor.strides) {
        let stride =
            u64::try_from(*stride).map_err(|_| format!("`{name}` has the stride {stride}"))?;
        let steps = (*extent).max(1) as u64 - 1;
        last = steps
            .checked_mul(stride)
            .and_then(|n| n.checked_add(last))
            .ok_or_else(|| format!("`{name}` reaches beyond its storage"))?;
    }
    if (values > 0 && last >= storage.count)
        || values > storage.count
        || tensor.offset > storage.count
    {
        let (shape, strides) = (&tensor.shape, &tensor.strides);
        return Err(format!(
            "`{name}` of shape {shape:?}, strides {strides:?}, from {} reaches beyond the {} values of its storage",
            tensor.offset, storage.count
        ));
    }
    Ok(Stored {
        dtype: storage.kind.dtype(),
        shape: tensor.shape.clone(),
        file,
        at: at + tensor.offset * size,
        strides: (!is_contiguous(tensor)).then(|| tensor.strides.clone()),
    })
}

/// Whether the values are side by side, the last axis first.
fn is_contiguous(tensor: &pickle::Tensor) -> bool {
    let mut dense = Vec::new();
    let mut step = 1i64;
    for extent in tensor.shape.iter().rev() {
        dense.push(step);
        step = step.saturating_mul((*extent).max(1));
    }
    dense.reverse();
    let alike = |((extent, stride), dense): ((&i64, &i64), &i64)| *extent <= 1 || stride == dense;
    tensor.shape.iter().zip(&tensor.strides).zip(&dense).all(alike)
}

/// Types of storages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageKind(usize);

/// Name in `torch`, bytes per value, and the weight type, if it is one.
const KINDS: [(&str, u64, Option<Dtype>); 10] = [
    ("FloatStorage", 4, Some(Dtype::F32)),
    ("BFloat16Storage", 2, Some(Dtype::Bf16)),
    ("HalfStorage", 2, Some(Dtype::F16)),
    ("DoubleStorage", 8, None),
    ("LongStorage", 8, None),
    ("IntStorage", 4, None),
    ("ShortStorage", 2, None),
    ("CharStorage", 1, None),
    ("ByteStorage", 1, None),
    ("BoolStorage", 1, None),
];

impl StorageKind {
    pub(super) fn named(name: &str) -> Option<StorageKind> {
        KINDS.iter().position(|(known, _, _)| *known == name).map(StorageKind)
    }

    fn row(self) -> (&'static str, u64, Option<Dtype>) {
        KINDS.get(self.0).copied().unwrap_or(("", 1, None))
    }

    pub(super) fn name(self) -> &'static str {
        self.row().0
    }

    fn bytes(self) -> u64 {
        self.row().1
    }

    fn dtype(self) -> Result<Dtype, String> {
        self.row().2.ok_or_else(|| self.row().0.trim_end_matches("Storage").to_owned())
    }
}

/// The entries of a map by key.
pub(super) type Entries = BTreeMap<String, Item>;
