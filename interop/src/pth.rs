//! Reads PyTorch's zip checkpoints without running anything, and writes them.
//!
//! In: a `.pth` file. Out: its tensors by name, with their places in the file. Must stay true: nothing is executed or
//! imported, and only texts, numbers, lists, maps and places of tensors are built; opcodes and names outside a short
//! list are refused; a hostile archive is refused before memory is allocated for it.

mod pickle;
mod write;
mod zip;

use std::collections::BTreeMap;
use std::path::Path;

use super::ForeignError;
use super::dtype::Dtype;
use super::lay::LeftOut;
use super::shown;
use super::store::{Store, Stored, count};

use pickle::Item;
pub use write::write;

/// The tensors under `model`, and a list of the file's other contents.
pub fn read(path: &Path) -> Result<(Store, Vec<LeftOut>), ForeignError> {
    let place = shown(path);
    let refuse = |why: String| {
        ForeignError::new(
            place.clone(),
            format!("it cannot be read safely: {why}"),
            "use a `consolidated.pth` as torch.save writes it: a map of tensors and nothing else",
        )
    };
    let mut store = Store::default();
    let index = store.add(path)?;
    // The same open file, so that the checked bytes are those that are read.
    let file = store.opened(index).ok_or_else(|| refuse("it cannot be read".to_owned()))?;
    let mut archive = zip::Archive::open(file).map_err(&refuse)?;
    let bytes = archive.small("data.pkl").map_err(&refuse)?;
    if let Some(order) = archive.optional("byteorder").map_err(&refuse)?
        && order != b"little"
    {
        let order = String::from_utf8_lossy(&order).into_owned();
        return Err(refuse(format!(
            "its numbers are {order:?}-endian, but only little-endian is supported"
        )));
    }
    let version = archive.optional("version").map_err(&refuse)?;
    let text = version.as_deref().map(|v| String::from_utf8_lossy(v).trim().to_owned());
    if !matches!(text.as_deref(), None | Some("2" | "3")) {
        return Err(refuse(format!("its version is {text:?}, but only 3 is supported")));
    }
    let root = pickle::read(&bytes).map_err(&refuse)?;
    let Item::Map(entries) = &root else {
        return Err(refuse(format!("it has {} instead of a map", root.kind())));
    };
    let mut left_out = Vec::new();
    let mut model = None;
    for (key, item) in entries {
        match key.as_str() {
            "model" => model = Some(item),
            "optim" => {
                let mut tensors = 0;
                each(item, &mut |tensor| {
                    tensors += 1;
                    placed(&archive, index, "optim", tensor).map(|_| ())
                })
                .map_err(&refuse)?;
                let why = format!("the optimizer's state: {tensors} valid tensors");
                left_out.push(LeftOut { name: key.clone(), why });
            }
            other => {
                return Err(refuse(format!(
                    "it has `{other}`, but only `model` and `optim` are supported"
                )));
            }
        }
    }
    let Some(Item::Map(entries)) = model else {
        return Err(refuse("it has no map called `model`".to_owned()));
    };
    for (name, item) in entries {
        let Item::Tensor(tensor) = item else {
            return Err(refuse(format!("`{name}` is {} instead of a tensor", item.kind())));
        };
        let stored = placed(&archive, index, name, tensor).map_err(&refuse)?;
        store.tensors.insert(name.clone(), stored);
    }
    archive.unused().map_err(&refuse)?;
    Ok((store, left_out))
}

fn each(
    item: &Item,
    take: &mut dyn FnMut(&pickle::Tensor) -> Result<(), String>,
) -> Result<(), String> {
    match item {
        Item::Tensor(tensor) => take(tensor),
        Item::Map(entries) => entries.values().try_for_each(|item| each(item, take)),
        Item::List(items) => items.iter().try_for_each(|item| each(item, take)),
        Item::None | Item::Bool(_) | Item::Int(_) | Item::Float(_) | Item::Text(_) => Ok(()),
    }
}

/// The place of a tensor in the file; its storage's entry, sizes and bounds have to agree.
fn placed(
    archive: &zip::Archive,
    file: usize,
    name: &str,
    tensor: &pickle::Tensor,
) -> Result<Stored, String> {
    let storage = &tensor.storage;
    let (at, bytes) = archive.place(&format!("data/{}", storage.key))?;
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
    let mut side_by_side = Vec::new();
    let mut step = 1i64;
    for extent in tensor.shape.iter().rev() {
        side_by_side.push(step);
        step = step.saturating_mul((*extent).max(1));
    }
    side_by_side.reverse();
    let alike = |((extent, stride), dense): ((&i64, &i64), &i64)| *extent <= 1 || stride == dense;
    let dense = tensor.shape.iter().zip(&tensor.strides).zip(&side_by_side).all(alike);
    Ok(Stored {
        dtype: storage.kind.dtype(),
        shape: tensor.shape.clone(),
        file,
        at: at + tensor.offset * size,
        strides: (!dense).then(|| tensor.strides.clone()),
    })
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
