//! A model in a folder of another program, or in one that `canonc export` or `canonc import` wrote.
//!
//! A folder is read as by `canonc import`, without writing anything.

use std::path::{Path, PathBuf};

use compiler::program::Compiled;
use interop::config::Keys;
use interop::folder::WEIGHTS;
use interop::import::Request;
use interop::record::ImportRecord;
use interop::source::file_of;
use interop::text_files::TextSettings;

use cli::extensions::ForeignModels;
use cli::fail::{Failure, shown};
use cli::workspace::is_model;
use cli::{files, load};
use records::model_folder::{ARCH, CONFIG, IMPORT, PARAMS};

/// Models in folders of other programs, for the commands of the core.
pub struct Folders;

impl ForeignModels for Folders {
    fn open(&self, folder: &Path, arch: Option<&str>) -> Result<Option<Compiled>, Failure> {
        Ok(open(folder, arch)?.map(|model| model.compiled))
    }

    fn own_arch(&self, folder: &Path) -> Result<Option<PathBuf>, Failure> {
        own_arch(folder)
    }

    fn names_a_model(&self, folder: &Path) -> bool {
        let text = disk::read_text(&folder.join(CONFIG), disk::TEXT).unwrap_or_default();
        folder.join(PARAMS).is_file() || text.contains("\"model_type\"")
    }

    fn has_weights(&self, folder: &Path) -> bool {
        file_of(folder).is_ok()
    }
}

/// A model that a folder contains.
#[derive(Debug)]
pub struct Foreign {
    /// The model.
    pub compiled: Compiled,
    /// The folder, and what its files say about texts.
    pub record: ImportRecord,
}

/// The arch that an export or an import wrote into a folder.
pub fn own_arch(folder: &Path) -> Result<Option<PathBuf>, Failure> {
    let exported = folder.join(ARCH);
    if exported.is_file() {
        return Ok(Some(exported));
    }
    Ok(ImportRecord::beside(folder)?.and_then(|record| record.arch))
}

/// The model of a folder; `None` if it is no folder of another program. Diagnostics have been shown.
pub fn open(folder: &Path, arch: Option<&str>) -> Result<Option<Foreign>, Failure> {
    if !is_model(folder) {
        return Ok(None);
    }
    if let Some(own) = own_arch(folder)? {
        let (loaded, compiled) = load::compile(&own, arch)?;
        let compiled = load::only(&loaded.name, compiled, |compiled| &compiled.name)?;
        let record = beside(folder)?.unwrap_or_else(|| plain(folder, TextSettings::default()));
        return Ok(Some(Foreign { compiled, record }));
    }
    if ![CONFIG, PARAMS].iter().any(|name| folder.join(name).is_file()) {
        let message = format!("the arch that `{}` names is not there", shown(&folder.join(IMPORT)));
        return Err(Failure::bad_input(message)
            .help("restore it, import again, or name an arch and the folder with --weights"));
    }
    if let Some(arch) = arch {
        let message = format!("`--arch {arch}` is given, but `{}` has one arch", shown(folder));
        return Err(Failure::bad_input(message).help("remove --arch"));
    }
    let request = Request { source: folder, name: None, devices: None, weights: false };
    let imported = interop::import::read(&request)?;
    let record = plain(folder, imported.texts);
    Ok(Some(Foreign { compiled: imported.compiled, record }))
}

/// The record of a folder that canonc did not import.
fn plain(folder: &Path, texts: TextSettings) -> ImportRecord {
    ImportRecord { folder: folder.to_owned(), texts, arch: None, graph: None }
}

/// What came with weights: the record of their import, or the files of the folder that they are the weights of.
pub fn beside(weights: &Path) -> Result<Option<ImportRecord>, Failure> {
    let is_named =
        weights.file_name().is_some_and(|name| WEIGHTS.iter().any(|known| name == *known));
    let folder = match weights.is_dir() {
        true => weights,
        false if is_named => disk::parent(weights),
        false => return Ok(None),
    };
    let record = ImportRecord::beside(folder)?;
    if record.is_some() || !is_model(folder) {
        return Ok(record);
    }
    let config =
        [CONFIG, PARAMS].map(|name| folder.join(name)).into_iter().find(|path| path.is_file());
    let texts = config.as_deref().map(config_texts).transpose()?.unwrap_or_default();
    Ok(Some(plain(folder, texts)))
}

/// A warning for weights that were imported for another graph: shapes may fit where constants do not.
pub fn edited(record: &ImportRecord, compiled: &Compiled) -> Option<String> {
    let graph = compiled.identity.graph.to_string();
    let other = record.graph.as_ref().is_some_and(|known| *known != graph);
    other.then(|| {
        format!(
            "warning: the weights in `{}` were imported for another graph than that of the arch `{}`",
            shown(&record.folder),
            compiled.name
        )
    })
}

/// What a configuration says about texts, if it is there.
pub fn config_texts(path: &Path) -> Result<TextSettings, Failure> {
    if !path.is_file() {
        return Ok(TextSettings::default());
    }
    let bytes = disk::read(path, disk::TEXT).map_err(|error| files::missing(path, &error))?;
    let (place, name) = (shown(path), path.file_name().unwrap_or_default().to_string_lossy());
    let read = interop::json::read(&place, &bytes)
        .and_then(|root| TextSettings::from_keys(&Keys::new(&place, &root)?, &name));
    read.map_err(Failure::from)
}
