//! Weights of any kind, told by their content, as one store of tensors.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use disk::content::Content;
use dsl::Problem;

use super::node::{Node, NodeValue};
use super::store::{Store, bytes_of};
use super::{LeftOut, cannot_read, json, pth, shown};

impl Store {
    /// Opens weights of any kind, told by their content: safetensors, a file of `torch.save`, or an index with the shards
    /// that it lists. Also returns a list of what is not a tensor.
    pub fn open(path: &Path) -> Result<(Store, Vec<LeftOut>), Problem> {
        let mut left_out = Vec::new();
        let mut store = match path.to_string_lossy().ends_with(".index.json") {
            true => Store::sharded_with(path, &mut left_out)?,
            false => {
                let mut store = Store::default();
                store.file(path, &mut left_out)?;
                store
            }
        };
        left_out.extend(store.without_wrappers());
        Ok((store, left_out))
    }

    /// Adds a file of weights, by its content.
    fn file(&mut self, path: &Path, left_out: &mut Vec<LeftOut>) -> Result<(), Problem> {
        let content = Content::of_file(path).map_err(|error| cannot_read(path, &error))?;
        match content {
            Content::Zip => left_out.extend(pth::add(self, path)?),
            Content::Safetensors | Content::Other => self.safetensors(path)?,
            Content::Empty
            | Content::LfsPointer
            | Content::Html
            | Content::Gzip
            | Content::Zstandard
            | Content::Xz
            | Content::Bzip2
            | Content::Lz4
            | Content::SevenZip
            | Content::Tar
            | Content::Parquet
            | Content::Pickle
            | Content::Gguf
            | Content::Hdf5
            | Content::Utf16
            | Content::Utf32 => {
                let message =
                    format!("it contains no weights that can be read: it is {}", content.name());
                let help = content.help().unwrap_or("give safetensors or a file of torch.save");
                return Err(Problem::in_file(shown(path), message, help));
            }
        }
        Ok(())
    }

    /// Opens the shards that an index lists; each tensor must be in the shard that the index names.
    pub fn sharded(index: &Path) -> Result<Store, Problem> {
        Store::sharded_with(index, &mut Vec::new())
    }

    fn sharded_with(index: &Path, left_out: &mut Vec<LeftOut>) -> Result<Store, Problem> {
        let name = shown(index);
        let (bytes, read) = bytes_of(index)?;
        let root = json::read(&name, &bytes)?;
        let refuse = |line: usize, message: String| {
            let help = "use the original index and shards";
            Problem::in_file(format!("{name}:{line}"), message, help)
        };
        let Some(Node { value: NodeValue::Map(entries), .. }) = root.get("weight_map") else {
            return Err(refuse(root.line, "it has no `weight_map`".to_owned()));
        };
        let mut wanted: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
        let (mut shards, mut known): (Vec<&str>, BTreeSet<&str>) = Default::default();
        for (tensor, node) in entries {
            let NodeValue::Text(shard) = &node.value else {
                let has = node.value.shown();
                return Err(refuse(
                    node.line,
                    format!("`{tensor}` is in {has}, which is not a file"),
                ));
            };
            let plain = !shard.is_empty() && !shard.contains(['/', '\\']) && shard != "..";
            if !plain || shard == "." {
                return Err(refuse(
                    node.line,
                    format!("`{shard}` is not a file in the folder of the index"),
                ));
            }
            wanted.insert(tensor, (shard, node.line));
            if known.insert(shard) {
                shards.push(shard);
            }
        }
        let mut store = Store { index: Some(read), ..Store::default() };
        let folder = index.parent().unwrap_or(Path::new(""));
        for shard in &shards {
            store.file(&folder.join(shard), left_out)?;
        }
        for (tensor, stored) in &store.tensors {
            let is = shards.get(stored.file).copied().unwrap_or_default();
            match wanted.remove(tensor.as_str()) {
                Some((shard, _)) if shard == is => {}
                Some((shard, line)) => {
                    let message = format!("`{tensor}` is in {is}, but the index says {shard}");
                    return Err(refuse(line, message));
                }
                None => {
                    let message = format!("`{tensor}` is in {is}, but the index does not list it");
                    return Err(refuse(1, message));
                }
            }
        }
        match wanted.into_iter().next() {
            Some((tensor, (shard, line))) => Err(refuse(
                line,
                format!("the index says that `{tensor}` is in {shard}, but it is not"),
            )),
            None => Ok(store),
        }
    }
}
