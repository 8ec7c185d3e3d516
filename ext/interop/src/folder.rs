//! A folder with a model: names of files, ours, Hugging Face's and Lingua's, and writing it completely or not at all.

use std::fs;
use std::path::{Path, PathBuf};

use dsl::Problem;

use super::{cannot_write, shown};

pub(crate) const SINGLE: &str = "model.safetensors";
pub(crate) const INDEX: &str = "model.safetensors.index.json";
pub(crate) const TORCH: &str = "pytorch_model.bin";
pub(crate) const TORCH_INDEX: &str = "pytorch_model.bin.index.json";
pub(crate) const PTH: &str = "consolidated.pth";
/// The weights that an import writes.
pub(crate) const IMPORTED: &str = "weights.safetensors";
/// The variant that the release's own loader reads.
pub(crate) const DEFAULT: &str = "default";
/// Names of weight files in a folder, ours first.
pub const WEIGHTS: [&str; 7] =
    [IMPORTED, SINGLE, INDEX, TORCH, TORCH_INDEX, PTH, "default/consolidated.pth"];
/// Endings of files that may hold weights.
const LIKE_WEIGHTS: [&str; 9] =
    [".safetensors", ".bin", ".pth", ".pt", ".ckpt", ".gguf", ".msgpack", ".h5", ".index.json"];

/// The path, if it is a file.
pub(crate) fn file(path: PathBuf) -> Option<PathBuf> {
    Some(path).filter(|path| path.is_file())
}

/// Whether a folder has files that may hold weights.
pub fn has_weights(folder: &Path) -> bool {
    !like_weights(folder).is_empty()
}

/// Names of the files in a folder that may hold weights, eight at most.
pub(crate) fn like_weights(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names
        .filter(|name| LIKE_WEIGHTS.iter().any(|end| name.ends_with(end)))
        .filter(|name| name != "training_args.bin")
        .collect();
    names.sort();
    names.truncate(8);
    names
}

/// The arch of that name in the folder of an import.
pub(crate) fn imported_arch(folder: &Path, name: &str) -> PathBuf {
    folder.join("arch").join(format!("{name}.canon"))
}

/// Writes a file, creating its folder.
pub fn put(path: &Path, text: &str) -> Result<(), Problem> {
    put_bytes(path, text.as_bytes())
}

/// As [`put`], of any bytes.
pub(crate) fn put_bytes(path: &Path, bytes: &[u8]) -> Result<(), Problem> {
    let failed = |error: std::io::Error| cannot_write(path, &error);
    if let Some(folder) = path.parent() {
        disk::create_folders(folder).map_err(failed)?;
    }
    disk::replace(path, bytes, || Ok(())).map_err(failed)
}

/// Fills a temporary folder next to `out` and renames it to `out`: completely or not at all.
pub fn write_folder(
    out: &Path,
    fill: &dyn Fn(&Path) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let failed = |error: std::io::Error| cannot_write(out, &error);
    let is_taken = match fs::read_dir(out) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(_) => true,
    };
    if is_taken {
        let help = "name a new or empty folder";
        return Err(Problem::in_file(shown(out), "it already exists", help));
    }
    let parent = disk::parent(out);
    disk::create_folders(parent).map_err(failed)?;
    disk::sweep_abandoned(parent);
    let partial = disk::unfinished_folder(out);
    let _ = fs::remove_dir_all(&partial);
    // Held until it has its name.
    let _held = disk::create_folder_held(&partial).map_err(failed)?;
    let done = fill(&partial).and_then(|()| {
        // An empty folder at `out` is replaced.
        if out.is_dir() {
            fs::remove_dir(out).map_err(failed)?;
        }
        disk::rename_synced(&partial, out).map_err(failed)
    });
    if done.is_err() {
        let _ = fs::remove_dir_all(&partial);
    }
    done
}
