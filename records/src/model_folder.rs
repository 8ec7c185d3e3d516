//! Names of files by which a folder is known as a model's.

/// Hugging Face's configuration.
pub const CONFIG: &str = "config.json";
/// The configuration of a release of Lingua's.
pub const PARAMS: &str = "params.json";
/// The arch that `canonc export` writes into a folder.
pub const ARCH: &str = "arch.canon";
/// What `canonc import` recorded.
pub const IMPORT: &str = "import.toml";

/// All of them: a folder with one of these files contains a model.
pub const NAMES: [&str; 4] = [CONFIG, PARAMS, ARCH, IMPORT];
