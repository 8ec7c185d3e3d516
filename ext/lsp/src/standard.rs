//! The standard definitions as files, so that any editor can show them.
//!
//! A file of the workspace with the same text is used itself; otherwise the text is written into the user's cache, into a
//! folder of its own for each version of std.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use compiler::digest::Digest;
use compiler::program::STD;
use lsp_types::Url;

use crate::store::Store;

/// The text of a file of std.
pub(crate) fn text(name: &str) -> Option<&'static str> {
    STD.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The address of a file of std, which is written if it is missing. `None` if the name is not one of std, or if it
/// cannot be written.
pub(crate) fn url(name: &str, store: &Store) -> Option<Url> {
    let text = text(name)?;
    if store.root.is_some() && store.text(name).as_deref() == Some(text) {
        return store.url(name);
    }
    written(store, Path::new(name).file_name()?.to_str()?, text)
}

/// The address of the description of the language, and its text.
pub(crate) fn language(store: &Store) -> Option<(Url, &'static str)> {
    Some((written(store, "LANGUAGE.md", dsl::LANGUAGE)?, dsl::LANGUAGE))
}

/// The address of a file with this text in the folder of this version.
fn written(store: &Store, name: &str, text: &str) -> Option<Url> {
    let path = folder(store)?.join(name);
    let is_there = disk::read(&path, text.len() as u64).is_ok_and(|bytes| bytes == text.as_bytes());
    if !is_there {
        std::fs::create_dir_all(path.parent()?).ok()?;
        disk::replace(&path, text.as_bytes(), || Ok(())).ok()?;
    }
    Url::from_file_path(path).ok()
}

/// Whether a document is one of the files written here.
pub(crate) fn is_written(store: &Store, path: &Path) -> bool {
    folder(store).is_some_and(|folder| path.starts_with(folder))
}

/// The folder of this version of std.
fn folder(store: &Store) -> Option<PathBuf> {
    static VERSION: OnceLock<String> = OnceLock::new();
    Some(store.cache.as_ref()?.join("canonc").join(VERSION.get_or_init(version)))
}

fn version() -> String {
    let all: String = STD.iter().map(|(name, text)| format!("{name}\n{text}\n")).collect();
    let all = all + dsl::LANGUAGE;
    format!("std-{}", Digest::of("canonc.std", &all).short())
}

/// The user's cache.
pub(crate) fn cache() -> Option<PathBuf> {
    let set =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || set("HOME").map(|home| home.join(".cache"));
    set("XDG_CACHE_HOME").or_else(|| set("LOCALAPPDATA")).or_else(home)
}
