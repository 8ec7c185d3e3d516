//! Other programs' models and recipes, in and out: Hugging Face folders, Lingua releases, Lingua's YAML.
//!
//! In: folders and files that others wrote, or a lock and weights. Out: an arch in our language, a recipe, weights
//! under our paths; or their files. Must stay true: torch-free; one table of names serves both directions; nothing
//! is executed; every key and every tensor is used, checked, or refused by name with its file and both values; what
//! the reference's loader drops is honoured or refused, never dropped.

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

/// Why something foreign cannot be taken, or something of ours not be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignError {
    /// The file, and the line where one is known.
    pub place: String,
    pub message: String,
    pub help: String,
    /// This machine's fault rather than the file's.
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

    /// What could not be read.
    pub fn read(path: &Path, error: &std::io::Error) -> ForeignError {
        let message = format!("it cannot be read: {error}");
        ForeignError::new(shown(path), message, "name a file that is there and can be read")
    }

    /// What could not be written.
    pub fn write(path: &Path, error: &std::io::Error) -> ForeignError {
        let message = format!("it was not written: {error}");
        let help = "see that the folder is there, can be written to and has room";
        ForeignError { machine: true, ..ForeignError::new(shown(path), message, help) }
    }
}

impl fmt::Display for ForeignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, message, help, machine: _ } = self;
        write!(f, "{place}: {message}\nhelp: {help}")
    }
}

impl std::error::Error for ForeignError {}

/// A path as canonc writes paths.
pub(crate) fn shown(path: &Path) -> String {
    let text = path.to_string_lossy().replace('\\', "/");
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
