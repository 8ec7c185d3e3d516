//! The record of an import, `import.toml`. It speaks only for the weights in its own folder.

use std::path::{Path, PathBuf};

use dsl::Problem;
use records::model_folder::IMPORT;

use super::folder::{IMPORTED, imported_arch};
use super::text_files::TextSettings;
use super::{cannot_read, shown};

/// The record of an import, and its folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportRecord {
    /// The folder with the weights and the copied files.
    pub folder: PathBuf,
    /// What the configuration said about texts.
    pub texts: TextSettings,
    /// The arch that was imported, if it is still there.
    pub arch: Option<PathBuf>,
    /// The digest of its graph, with its constants.
    pub graph: Option<String>,
}

impl ImportRecord {
    /// The record beside a file of imported weights, or in a folder with them.
    pub fn beside(weights: &Path) -> Result<Option<ImportRecord>, Problem> {
        let folder = match weights.is_dir() {
            true => weights,
            false if weights.file_name().is_some_and(|name| name == IMPORTED) => {
                weights.parent().unwrap_or(Path::new(""))
            }
            false => return Ok(None),
        };
        let path = folder.join(IMPORT);
        if !path.is_file() {
            return Ok(None);
        }
        let text = disk::read_text(&path, disk::TEXT).map_err(|e| cannot_read(&path, &e))?;
        let wrong = |reason: String| {
            let help = "`canonc import` writes it again";
            Problem::in_file(
                shown(&path),
                format!("it is not the record of an import: {reason}"),
                help,
            )
        };
        let table: toml::Table =
            toml::from_str(&text).map_err(|e| wrong(e.message().to_owned()))?;
        let id = |value: &toml::Value| value.as_integer().and_then(|id| u32::try_from(id).ok());
        let ends = table.get("eos_token_id").and_then(toml::Value::as_array);
        let length = table.get("context").map(|value| {
            let length = value.as_integer().filter(|length| *length > 0);
            length.ok_or_else(|| wrong("`context` is not a number of tokens".to_owned()))
        });
        let from = table.get("context_from").and_then(toml::Value::as_str);
        let from = from.unwrap_or(IMPORT).to_owned();
        let texts = TextSettings {
            context: length.transpose()?.map(|length| (length as u64, from)),
            bos: table.get("bos_token_id").and_then(id),
            ends: ends.into_iter().flatten().filter_map(id).collect(),
        };
        let arch = table.get("arch").and_then(toml::Value::as_str);
        let arch = arch.map(|name| imported_arch(folder, name));
        let arch = arch.filter(|path| path.is_file());
        let graph = table.get("graph").and_then(toml::Value::as_str).map(str::to_owned);
        Ok(Some(ImportRecord { folder: folder.to_owned(), texts, arch, graph }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::Keys;
    use super::super::json;
    use super::*;

    #[test]
    fn a_record_gives_back_what_a_configuration_says() {
        for (config, length) in [
            (r#"{"max_position_embeddings": 512, "bos_token_id": 1, "eos_token_id": [2, 3]}"#, 512),
            (r#"{"data": {"seq_len": 64}, "model": {"max_seqlen": -1}, "eos_token_id": 2}"#, 64),
            (r#"{"max_position_embeddings": null, "bos_token_id": null}"#, 0),
            (r#"{"max_position_embeddings": 4096.0, "eos_token_id": 2.0}"#, 4096),
            (r#"{"max_position_embeddings": -1, "bos_token_id": -1, "eos_token_id": [-1, 3]}"#, 0),
        ] {
            let root = json::read("config.json", config.as_bytes()).unwrap();
            let texts =
                TextSettings::from_keys(&Keys::new("config.json", &root).unwrap(), "config.json")
                    .unwrap();
            assert_eq!(texts.context.as_ref().map_or(0, |(length, _)| *length), length);
            let dir = tempfile::tempdir().unwrap();
            let weights = dir.path().join("weights.safetensors");
            assert_eq!(ImportRecord::beside(&weights), Ok(None));
            std::fs::write(dir.path().join(IMPORT), texts.lines()).unwrap();
            for path in [weights.as_path(), dir.path()] {
                assert_eq!(ImportRecord::beside(path).unwrap().unwrap().texts, texts);
            }
            // Other weights in the same folder are not the imported ones.
            assert_eq!(ImportRecord::beside(&dir.path().join("model.safetensors")), Ok(None));
        }
    }
}
