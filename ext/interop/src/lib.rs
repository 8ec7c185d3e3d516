//! Import and export of other programs' models and recipes: Hugging Face folders, Lingua releases, Lingua's YAML.
//!
//! In: folders and files from other programs, or a lock and weights. Out: an arch in our language, a recipe, weights
//! under our paths; or their files. Must stay true: torch-free; one table of names serves both directions; nothing is
//! executed; every key and every tensor is used, checked, or refused by name with its file and both values; options
//! that the reference's loader ignores are honoured or refused, never ignored.
//!
//! A configuration of Hugging Face becomes an arch in our language, and the arch a graph:
//!
//! ```
//! use interop::{arch, config::Keys, hf, json};
//!
//! # fn main() -> Result<(), interop::ForeignError> {
//! let config = br#"{
//!     "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 97, "hidden_size": 32,
//!     "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
//!     "head_dim": 8, "hidden_act": "silu", "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
//!     "initializer_range": 0.02, "max_position_embeddings": 2048,
//!     "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}
//! }"#;
//! let config = json::read("config.json", config)?;
//! let model = hf::released(&Keys::new("config.json", &config)?)?.model;
//! let text = model.text("small", "A small Llama.");
//! let compiled = arch::compile("small", &text)?;
//! assert_eq!(arch::model(&compiled)?, model);
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]

pub mod dtype;
pub mod model;
mod decoder;
pub mod arch;
pub mod names;
pub mod node;
pub mod json;
pub mod quote;
pub mod torch;
pub mod tokenizer;
pub mod store;
pub mod lay;
pub mod config;
pub mod hf;
pub mod lingua;
pub mod pth;
pub mod source;
pub mod training;
pub mod beside;
pub mod import;
pub mod export;
pub mod launch;
pub mod recipe;
pub mod yaml;

use std::fmt;
use std::path::Path;

/// Why an import or an export failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignError {
    /// The file, and the line if known.
    pub place: String,
    /// What is wrong, in one sentence.
    pub message: String,
    /// What to do next.
    pub help: String,
    /// Whether this machine caused the error, rather than the file.
    pub machine: bool,
}

impl ForeignError {
    /// An error in a file.
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
        ForeignError::new(shown(path), message, "name a file that exists and is readable")
    }

    /// An error while writing a file.
    pub fn write(path: &Path, error: &std::io::Error) -> ForeignError {
        let message = format!("it was not written: {error}");
        let help = "check that the folder exists, is writable and has free space";
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
