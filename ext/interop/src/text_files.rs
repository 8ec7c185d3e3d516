//! The files beside weights that decide how a model reads and writes text: tokenizer, chat template, settings of
//! generation.

use std::path::Path;

use dsl::{Decimal, Problem};

use super::config::{Keys, number};
use super::node::{Node, NodeValue};
use super::store::ReadFile;
use super::{LeftOut, cannot_read};

/// The tokenizer.
pub const TOKENIZER: &str = "tokenizer.json";
/// The names of its marks, and often the chat template.
pub const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
/// The chat template, in newer folders.
pub const TEMPLATE: &str = "chat_template.jinja";
/// The tokens that end a text, and settings of sampling.
pub const GENERATION: &str = "generation_config.json";
/// What an import copies.
const COPIED: [&str; 4] = [TOKENIZER, TOKENIZER_CONFIG, TEMPLATE, GENERATION];
/// Other forms of the same things, which are not read.
const OTHER: [&str; 7] = [
    "added_tokens.json",
    "chat_template.json",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
];
/// Published tokenizers have up to 30 MB.
const MOST_BYTES: u64 = 256 << 20;

/// A file that an import copies, byte for byte.
#[derive(Clone, Debug)]
pub struct CopiedFile {
    /// Its name in both folders.
    pub name: &'static str,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Where it was read.
    pub read: ReadFile,
}

/// The files of a folder that an import copies, and those that it leaves out.
pub fn in_folder(folder: &Path) -> Result<(Vec<CopiedFile>, Vec<LeftOut>), Problem> {
    let mut copied = Vec::new();
    for name in COPIED {
        let path = folder.join(name);
        if !path.is_file() {
            continue;
        }
        let bytes = disk::read(&path, MOST_BYTES).map_err(|e| cannot_read(&path, &e))?;
        let (length, digest) = (bytes.len() as u64, blake3::hash(&bytes));
        copied.push(CopiedFile { name, bytes, read: ReadFile { path, bytes: length, digest } });
    }
    let reason = match copied.iter().any(|file| file.name == TOKENIZER) {
        true => format!("{TOKENIZER} and {TOKENIZER_CONFIG} are used instead"),
        false => format!("only a {TOKENIZER} is used"),
    };
    let not_copied = OTHER.into_iter().filter(|name| folder.join(name).is_file());
    let left_out = not_copied.map(|name| LeftOut { name: name.to_owned(), reason: reason.clone() });
    Ok((copied, left_out.collect()))
}

/// What a configuration says about texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextSettings {
    /// Most tokens of a text, and the key that says so.
    pub context: Option<(u64, String)>,
    /// The token that begins a text.
    pub bos: Option<u32>,
    /// The tokens that end a text.
    pub ends: Vec<u32>,
}

impl TextSettings {
    /// What the keys of a `config.json` or `params.json` say. A length of 0 or less is none, and so is an id below 0.
    pub fn from_keys(keys: &Keys<'_>, name: &str) -> Result<TextSettings, Problem> {
        let mut context = None;
        for key in ["max_position_embeddings", "data.seq_len", "model.max_seqlen"] {
            let wrong = || keys.wrong(key, "a number of tokens");
            let Some(node) = keys.node(key) else {
                if !keys.below(key).is_empty() {
                    return Err(wrong());
                }
                continue;
            };
            let length = number(node).and_then(Decimal::to_int).filter(|n| *n < 1 << 48);
            let length = length.ok_or_else(wrong)?;
            let length = u64::try_from(length).ok().filter(|length| *length > 0);
            context = context.or_else(|| Some((length?, format!("{key} of {name}"))));
        }
        let ids = |key: &str| {
            let wrong = || keys.wrong(key, "the id of a token, or a list of ids");
            let nodes = match keys.node(key) {
                Some(Node { value: NodeValue::List(list), .. }) => list.iter().collect(),
                None if !keys.below(key).is_empty() => return Err(wrong()),
                node => Vec::from_iter(node),
            };
            let id = |node: &Node| {
                let id = number(node).and_then(Decimal::to_int);
                id.filter(|id| *id <= i64::from(u32::MAX)).ok_or_else(wrong)
            };
            let ids = nodes.into_iter().map(id).collect::<Result<Vec<i64>, _>>()?;
            Ok(ids.into_iter().filter_map(|id| u32::try_from(id).ok()).collect())
        };
        let bos: Vec<u32> = ids("bos_token_id")?;
        Ok(TextSettings { context, bos: bos.first().copied(), ends: ids("eos_token_id")? })
    }

    /// The lines of the record of an import.
    pub(super) fn lines(&self) -> String {
        let mut table = toml::Table::new();
        if let Some((length, from)) = &self.context {
            table.insert("context".to_owned(), toml::Value::Integer(*length as i64));
            table.insert("context_from".to_owned(), toml::Value::String(from.clone()));
        }
        if let Some(bos) = self.bos {
            table.insert("bos_token_id".to_owned(), toml::Value::Integer(bos.into()));
        }
        if !self.ends.is_empty() {
            let ends = self.ends.iter().map(|id| toml::Value::Integer((*id).into())).collect();
            table.insert("eos_token_id".to_owned(), toml::Value::Array(ends));
        }
        table.iter().map(|(key, value)| format!("{key} = {value}\n")).collect()
    }
}

/// What an import brought along with weights, for an export of them.
#[derive(Clone, Debug, Default)]
pub struct ImportedText {
    /// What their configuration said about texts.
    pub settings: TextSettings,
    /// Files that are written as they are, with their names.
    pub files: Vec<(&'static str, String)>,
}

impl ImportedText {
    /// The text of a file.
    pub(super) fn file(&self, name: &str) -> Option<&str> {
        let file = self.files.iter().find(|(known, _)| *known == name);
        file.map(|(_, text)| text.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::super::json;
    use super::*;

    #[test]
    fn what_is_no_length_or_id_is_an_error() {
        for (config, key) in [
            (r#"{"max_position_embeddings": "512"}"#, "max_position_embeddings"),
            (r#"{"max_position_embeddings": 512.5}"#, "max_position_embeddings"),
            (r#"{"data": {"seq_len": [64]}}"#, "data.seq_len"),
            (r#"{"eos_token_id": "</s>"}"#, "eos_token_id"),
            (r#"{"eos_token_id": 5000000000}"#, "eos_token_id"),
            (r#"{"eos_token_id": [2, null]}"#, "eos_token_id"),
            (r#"{"bos_token_id": true}"#, "bos_token_id"),
            (r#"{"bos_token_id": {"a": 1}}"#, "bos_token_id"),
            (r#"{"max_position_embeddings": {"a": 1}}"#, "max_position_embeddings"),
            (r#"{"max_position_embeddings": 281474976710656}"#, "max_position_embeddings"),
        ] {
            let root = json::read("config.json", config.as_bytes()).unwrap();
            let error =
                TextSettings::from_keys(&Keys::new("config.json", &root).unwrap(), "config.json");
            assert!(error.unwrap_err().message.starts_with(&format!("`{key}` is ")), "{config}");
        }
    }
}
