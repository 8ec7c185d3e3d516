//! Import and export of other programs' models and recipes: Hugging Face folders, Lingua releases, Lingua's YAML.
//!
//! One table of classes and one of names serve both directions; nothing is executed; every key and every tensor is used,
//! checked, or refused by name with its file and both values.
//!
//! A configuration of Hugging Face becomes an arch in our language, and the arch a graph:
//!
//! ```
//! use interop::{arch, config::Keys, hf, json};
//!
//! # fn main() -> Result<(), dsl::Problem> {
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

pub mod node;
pub mod json;
pub mod yaml;
pub mod config;
pub mod torch;
mod messages;
pub mod init;
pub mod model;
pub mod names;
pub mod class;
mod decoder;
pub mod arch;
pub mod dtype;

pub mod store;
pub mod pth;
mod open;
pub mod lay;
pub mod described;
pub mod hf;
pub mod lingua;
pub mod folder;
pub mod source;
pub mod training;
pub mod recipe;
mod trainer;
pub mod text_files;
pub mod record;
pub mod import;
pub mod tokenizer;
pub mod export;

use std::path::Path;

use dsl::Problem;

/// An error while reading a file.
pub(crate) fn cannot_read(path: &Path, error: &std::io::Error) -> Problem {
    let message = format!("it cannot be read: {error}");
    disk::cannot_read(error, message, "name a file that exists and is readable").at(shown(path))
}

/// An error while writing a file.
pub(crate) fn cannot_write(path: &Path, error: &std::io::Error) -> Problem {
    let message = format!("it was not written: {error}");
    let help = "check that the folder exists, is writable and has free space";
    if let Some(problem) = disk::not_durable(error, "it") {
        return problem.at(shown(path));
    }
    let problem = match disk::is_wrong_path(error) {
        true => Problem::input(message, help),
        false => Problem::machine(message, help),
    };
    problem.at(shown(path))
}

/// A checkpoint's entry that is not a parameter, and why it can be left out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeftOut {
    /// Name of the entry.
    pub name: String,
    /// Why it can be left out, in words.
    pub reason: String,
}

/// A path in the form that canonc prints.
pub(crate) fn shown(path: &Path) -> String {
    let text = path.to_string_lossy().replace('\\', "/");
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
