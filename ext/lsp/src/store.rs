//! The files that the server sees: the open documents, and under them the disk.
//!
//! Names of files are relative to the first folder of the workspace. An open document hides its file; a pipe or a large
//! file is never read; one file has one name, however it is imported.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use compiler::load::{Content, Files, Trouble, Unread};
use dsl::limits::MAX_SOURCE_BYTES;
use lab::lock::MAX_LOCK_BYTES;
use lsp_types::Url;

/// Most files of a workspace that are searched.
const MAX_FOUND: usize = 10_000;
/// Maximum depth of nested folders.
const MAX_DEPTH: usize = 16;
/// Folders without sources of a person.
const SKIPPED: [&str; 4] = ["node_modules", "target", "third_party", "__pycache__"];

/// The texts at one moment, for any thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    /// The first folder of the workspace, which names are relative to.
    pub(crate) root: Option<PathBuf>,
    /// All folders of the workspace.
    folders: Vec<PathBuf>,
    /// The user's cache, for texts that are part of this program.
    pub(crate) cache: Option<PathBuf>,
    /// The texts of the open documents by name.
    pub(crate) open: BTreeMap<String, Arc<str>>,
}

impl Store {
    /// The files of a workspace with these folders.
    pub(crate) fn new(folders: Vec<PathBuf>, cache: Option<PathBuf>) -> Store {
        Store { root: folders.first().cloned(), folders, cache, open: BTreeMap::new() }
    }

    /// Adds and removes folders. Names stay as they are.
    pub(crate) fn change_folders(&mut self, added: Vec<PathBuf>, removed: &[PathBuf]) {
        self.folders.retain(|folder| !removed.contains(folder));
        for folder in added {
            if !self.folders.contains(&folder) {
                self.folders.push(folder);
            }
        }
    }

    /// The name of a path that is relative to the folder of a file: the folder of the workspace that has it.
    pub(crate) fn path_in_folder(&self, file: &str, path: &str) -> String {
        let file = self.path(file);
        match self.folders.iter().find(|folder| file.starts_with(folder)) {
            Some(folder) => self.name(&folder.join(path)),
            None => path.to_owned(),
        }
    }

    /// The name under which a document is open.
    fn key(&self, name: &str) -> String {
        if is_address(name) { name.to_owned() } else { self.name(&self.path(name)) }
    }

    /// The name of a file: its path with `/`, relative to the workspace if it is in it.
    pub(crate) fn name(&self, path: &Path) -> String {
        let path = normal(path);
        let root = self.root.as_deref().and_then(|root| path.strip_prefix(root).ok());
        let text = root.unwrap_or(&path).to_string_lossy();
        if cfg!(windows) { text.replace('\\', "/") } else { text.into_owned() }
    }

    /// The name of a document. One that is not a file has its address as name.
    pub(crate) fn name_of(&self, url: &Url) -> String {
        match url.to_file_path() {
            Ok(path) => self.name(&path),
            Err(()) => url.to_string(),
        }
    }

    /// The path of a name.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        let path = Path::new(name);
        match &self.root {
            Some(root) => normal(&root.join(path)),
            None => path.to_owned(),
        }
    }

    /// The address of a file.
    pub(crate) fn url(&self, name: &str) -> Option<Url> {
        if is_address(name) && self.open.contains_key(name) && !self.path(name).is_file() {
            return Url::parse(name).ok();
        }
        Url::from_file_path(self.path(name)).ok().or_else(|| Url::parse(name).ok())
    }

    /// The text of a document or file; `None` if there is none, or it is not text.
    pub(crate) fn text(&self, name: &str) -> Option<Arc<str>> {
        if let Some(text) = self.open.get(&self.key(name)) {
            return Some(text.clone());
        }
        let most = if name.ends_with(".lock") { MAX_LOCK_BYTES } else { MAX_SOURCE_BYTES };
        let bytes = disk::read(&self.path(name), most as u64).ok()?;
        String::from_utf8(bytes).ok().map(Arc::from)
    }

    /// Whether there is such a file or document.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.open.contains_key(&self.key(name)) || self.path(name).is_file()
    }

    /// The files of the workspace with one of these endings, and the open documents, in order.
    pub(crate) fn find(&self, endings: &[&str]) -> Vec<String> {
        let mut names = Vec::new();
        for folder in &self.folders {
            self.search(folder, endings, 0, &mut names);
        }
        names.extend(self.open.keys().filter(|name| ends(Path::new(name), endings)).cloned());
        names.sort();
        names.dedup();
        names
    }

    fn search(&self, folder: &Path, endings: &[&str], depth: usize, names: &mut Vec<String>) {
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            let name = entry.file_name().to_string_lossy().into_owned();
            if names.len() >= MAX_FOUND || name.starts_with('.') {
                continue;
            }
            let path = entry.path();
            if kind.is_dir() && depth < MAX_DEPTH && !SKIPPED.contains(&name.as_str()) {
                self.search(&path, endings, depth + 1, names);
            } else if kind.is_file() && ends(&path, endings) {
                names.push(self.name(&path));
            }
        }
    }

    /// The files and folders in the folder of a file that begin like this path, for completion.
    pub(crate) fn in_folder_of(&self, name: &str, written: &str) -> Vec<(String, bool)> {
        let folder = written.rsplit_once('/').map_or("", |(folder, _)| folder);
        let path = self.path(name);
        let path = normal(&path.parent().unwrap_or(&path).join(folder));
        let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
        let mut siblings: Vec<(String, bool)> = entries
            .flatten()
            .take(MAX_FOUND)
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let is_dir = entry.file_type().ok()?.is_dir();
                (!name.starts_with('.')).then_some((name, is_dir))
            })
            .collect();
        siblings.sort();
        siblings
    }
}

/// Whether a name is the address of a document without a file, such as `untitled:Untitled-1`.
fn is_address(name: &str) -> bool {
    let is_part = |c: u8| c.is_ascii_alphanumeric() || b"+-.".contains(&c);
    // A letter alone is a drive of Windows.
    name.split_once(':').is_some_and(|(scheme, _)| scheme.len() > 1 && scheme.bytes().all(is_part))
}

fn ends(path: &Path, endings: &[&str]) -> bool {
    path.extension().and_then(|e| e.to_str()).is_some_and(|e| endings.contains(&e))
}

/// A path without `.` and `..`, by its text alone: the file need not exist.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                let is_name = matches!(out.components().next_back(), Some(Component::Normal(_)));
                if is_name {
                    out.pop();
                } else if !out.has_root() {
                    out.push("..");
                }
            }
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => out.push(part),
        }
    }
    out
}

/// The files as one job reads them; it remembers which.
pub(crate) struct FileReader<'a> {
    store: &'a Store,
    /// The names of the files that were asked for, missing ones included.
    pub(crate) names: BTreeSet<String>,
}

impl FileReader<'_> {
    /// A reader that has read nothing yet.
    pub(crate) fn new(store: &Store) -> FileReader<'_> {
        FileReader { store, names: BTreeSet::new() }
    }

    /// The text of a document or file; `None` if there is none, or it is not text.
    pub(crate) fn text(&mut self, name: &str) -> Option<Arc<str>> {
        self.note(name);
        self.store.text(name)
    }

    /// Whether there is such a file or document.
    pub(crate) fn has(&mut self, name: &str) -> bool {
        self.note(name);
        self.store.has(name)
    }

    fn note(&mut self, name: &str) {
        self.names.insert(self.store.key(name));
    }
}

impl Files for FileReader<'_> {
    fn read(&mut self, name: &str) -> Result<Content, Unread> {
        self.note(name);
        let path = self.store.path(name);
        if let Some(text) = self.store.open.get(&self.store.key(name)) {
            return Ok(Content::Text(text.to_string()));
        }
        match disk::read(&path, MAX_SOURCE_BYTES as u64) {
            Ok(bytes) => Ok(Content::from_bytes(bytes)),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound => Err(Unread::Missing),
                io::ErrorKind::FileTooLarge => {
                    let size = std::fs::metadata(&path).ok().map(|metadata| metadata.len());
                    Ok(Content::Not(Trouble::TooLarge(size)))
                }
                _ => Err(Unread::Refused(error.to_string())),
            },
        }
    }

    fn nearest(&self, name: &str) -> Option<String> {
        let nearest = disk::nearest(&self.store.path(name))?;
        nearest.file_name()?.to_str().map(str::to_owned)
    }
}

/// The kinds of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DocumentKind {
    /// Definitions and archs.
    Canon,
    /// A recipe or a comparison.
    Recipe,
    /// A lock of canonc.
    Lock,
}

impl DocumentKind {
    /// The kind of a document; `None` for TOML and locks of other programs.
    pub(crate) fn find(name: &str, text: &str) -> Option<DocumentKind> {
        let path = Path::new(name);
        let file = path.file_name()?.to_str()?;
        match path.extension().and_then(|e| e.to_str()) {
            Some("canon") => Some(DocumentKind::Canon),
            Some("lock") => is_lock(text).then_some(DocumentKind::Lock),
            None if file == "lock" => is_lock(text).then_some(DocumentKind::Lock),
            Some("toml") => is_recipe(path, text).then_some(DocumentKind::Recipe),
            Some(_) | None => None,
        }
    }
}

fn is_lock(text: &str) -> bool {
    text.trim_start_matches('\u{feff}').starts_with("# @generated by `canonc ")
}

/// A recipe is in a folder of recipes, or names an arch or arms.
fn is_recipe(path: &Path, text: &str) -> bool {
    let folders = path.parent().into_iter().flat_map(Path::components);
    if folders.rev().take(2).any(|part| part.as_os_str() == "recipes") {
        return true;
    }
    text.lines().any(|line| {
        let line = line.trim();
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        match key.trim() {
            "arch" => value.contains(".canon"),
            "[arms]" | "treatment" | "[treatment]" => true,
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_name() {
        let root = PathBuf::from("/a/space");
        let store = Store::new(vec![root], None);
        assert_eq!(store.name(Path::new("/a/space/arch/a.canon")), "arch/a.canon");
        assert_eq!(store.name(Path::new("/a/space/recipes/../arch/./a.canon")), "arch/a.canon");
        assert_eq!(store.name(&store.path("../lib/b.canon")), "/a/lib/b.canon");
        assert_eq!(store.path("arch/a.canon"), Path::new("/a/space/arch/a.canon"));
        assert_eq!(normal(Path::new("../../a/../b")), Path::new("../../b"));
        assert_eq!(normal(Path::new("/../a")), Path::new("/a"));
    }

    #[test]
    fn an_open_document_hides_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.canon");
        disk::replace(&path, b"// on the disk\n", || Ok(())).unwrap();
        let mut store = Store::new(vec![folder.path().to_owned()], None);
        assert_eq!(store.text("a.canon").as_deref(), Some("// on the disk\n"));
        assert_eq!(store.find(&["canon"]), ["a.canon"]);
        store.open.insert("a.canon".to_owned(), "// open".into());
        assert_eq!(store.text("sub/../a.canon").as_deref(), Some("// open"));
        assert!(store.has("a.canon") && !store.has("b.canon"));
        let mut reader = FileReader::new(&store);
        assert!(matches!(reader.read("sub/../b.canon"), Err(Unread::Missing)));
        assert_eq!(reader.nearest("aa.canon").as_deref(), Some("a.canon"));
        assert_eq!(reader.text("./a.canon").as_deref(), Some("// open"));
        let names: Vec<&str> = reader.names.iter().map(String::as_str).collect();
        assert_eq!(names, ["a.canon", "b.canon"]);
    }

    #[test]
    fn files_of_other_programs_have_no_kind() {
        let kind = |name, text| DocumentKind::find(name, text);
        assert_eq!(kind("a/b.canon", ""), Some(DocumentKind::Canon));
        assert_eq!(kind("Cargo.toml", "[package]\narch = \"x86\"\n"), None);
        assert_eq!(kind("recipes/new.toml", ""), Some(DocumentKind::Recipe));
        assert_eq!(kind("x.toml", "arch = \"a.canon#b\""), Some(DocumentKind::Recipe));
        assert_eq!(kind("x.toml", "[arms]\na = \"b.toml\""), Some(DocumentKind::Recipe));
        assert_eq!(kind("Cargo.lock", "# This file is @generated by Cargo."), None);
        let lock = "# @generated by `canonc build recipes/demo.toml`. A lock";
        assert_eq!(kind("demo.lock", lock), Some(DocumentKind::Lock));
        assert_eq!(kind("runs/demo/lock", lock), Some(DocumentKind::Lock));
    }
}
