//! Import and export of other programs' models and recipes: Hugging Face folders, Lingua releases, Lingua's YAML.
//!
//! In: folders and files from other programs, or a lock and weights. Out: an arch in our language, a recipe, weights
//! under our paths; or their files. Must stay true: torch-free; one table of names serves both directions; nothing is
//! executed; every key and every tensor is used, checked, or refused by name with its file and both values; options
//! that the reference's loader ignores are honoured or refused, never ignored.

pub mod arch;
pub mod config;
pub mod dtype;
pub mod export;
pub mod hf;
pub mod import;
pub mod json;
pub mod lay;
pub mod lingua;
pub mod model;
pub mod names;
pub mod node;
pub mod pth;
mod quote;
pub mod recipe;
pub mod source;
pub mod store;
pub mod training;
pub mod yaml;

use std::fmt;
use std::path::Path;

/// Why an import or an export failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignError {
    /// The file, and the line if known.
    pub place: String,
    pub message: String,
    pub help: String,
    /// Whether this machine caused the error, rather than the file.
    pub machine: bool,
}

impl ForeignError {
    pub fn new(
        place: impl Into<String>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> ForeignError {
        let (place, message, help) = (place.into(), message.into(), help.into());
        ForeignError { place, message, help, machine: false }
    }

    /// An error while reading a file.
    pub fn read(path: &Path, error: &std::io::Error) -> ForeignError {
        let message = format!("it cannot be read: {error}");
        ForeignError::new(shown(path), message, "name a file that is there and can be read")
    }

    /// An error while writing a file.
    pub fn write(path: &Path, error: &std::io::Error) -> ForeignError {
        let message = format!("it was not written: {error}");
        let help = "see that the folder is there, can be written to and has room";
        let machine = !disk::is_wrong_path(error);
        ForeignError { machine, ..ForeignError::new(shown(path), message, help) }
    }
}

impl fmt::Display for ForeignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, message, help, machine: _ } = self;
        write!(f, "{place}: {message}\nhelp: {help}")
    }
}

impl std::error::Error for ForeignError {}

/// A path in the form that canonc prints.
pub(crate) fn shown(path: &Path) -> String {
    let text = path.to_string_lossy().replace('\\', "/");
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
