//! A tokenizer as the files that `transformers` loads.
//!
//! Text gives the ids that training had, after bos where training had one; the marks have the ids that training gave them.

use dsl::Problem;
use serde_json::{Map, Value, json};

/// Texts of tokens that only fill rows.
const PADS: [&str; 5] = ["<pad>", "<PAD>", "[PAD]", "<|pad|>", "<|finetune_right_pad_id|>"];

/// A token with its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its id.
    pub id: u32,
    /// Its text.
    pub text: String,
}

/// A tokenizer in the form of Hugging Face's `tokenizers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokenizer {
    /// The contents of `tokenizer.json`.
    pub json: String,
    /// The token before a document.
    pub bos: Option<Mark>,
    /// The token after a document.
    pub eos: Option<Mark>,
}

impl Tokenizer {
    /// Every byte is its own token; the marks follow. Bytes have the characters that GPT-2 gave them.
    pub fn bytes(bos: u32, eos: u32) -> Tokenizer {
        let vocab: Map<String, Value> =
            (0..=255u8).map(|byte| (character(byte).to_string(), json!(byte))).collect();
        let mark = |id: u32, text: &str| Mark { id, text: text.to_owned() };
        let (bos, eos) = (mark(bos, "<|bos|>"), mark(eos, "<|eos|>"));
        let added = |mark: &Mark| {
            json!({
                "id": mark.id, "content": mark.text, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": true,
            })
        };
        let level = json!({
            "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false,
        });
        let text = json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
            "added_tokens": [added(&bos), added(&eos)],
            "pre_tokenizer": level, "post_processor": null, "decoder": level,
            "model": {
                "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                "vocab": vocab, "merges": [],
            },
        });
        Tokenizer { json: format!("{text:#}\n"), bos: Some(bos), eos: Some(eos) }.beginning(true)
    }

    /// The tokenizer whose texts begin with the mark that also ends them, as a task's samples do in a window.
    pub fn beginning_with_eos(mut self) -> Tokenizer {
        self.bos = self.eos.clone();
        self.beginning(true)
    }

    /// The tokenizer whose texts begin with bos, as documents in training do, or with no mark. Programs that give a model a
    /// text to continue would begin a new document after an eos, which training has at the end alone.
    pub fn beginning(mut self, with_bos: bool) -> Tokenizer {
        let Ok(mut root) = serde_json::from_str::<Value>(&self.json) else { return self };
        let text = |id: &str| json!({ "Sequence": { "id": id, "type_id": 0 } });
        let wanted = match self.bos.as_ref().filter(|_| with_bos) {
            None => Value::Null,
            Some(Mark { id, text: name }) => {
                let bos = json!({ "SpecialToken": { "id": name, "type_id": 0 } });
                let special = json!({ "id": name, "ids": [id], "tokens": [name] });
                json!({
                    "type": "TemplateProcessing", "single": [bos, text("A")],
                    "pair": [bos, text("A"), text("B")], "special_tokens": { name: special },
                })
            }
        };
        if root.get("post_processor").unwrap_or(&Value::Null) != &wanted
            && let Some(members) = root.as_object_mut()
        {
            members.insert("post_processor".to_owned(), wanted);
            self.json = format!("{root:#}\n");
        }
        self
    }

    /// Whether it puts bos in front of a text.
    pub fn begins_with_bos(&self) -> bool {
        let root: Value = serde_json::from_str(&self.json).unwrap_or_default();
        self.bos.is_some() && root.get("post_processor").is_some_and(|marks| !marks.is_null())
    }

    /// A `tokenizer.json`, in which the marks' texts are found by their ids. Messages call it `name`.
    pub fn read(
        name: &str,
        text: &str,
        bos: Option<u32>,
        eos: Option<u32>,
    ) -> Result<Tokenizer, Problem> {
        let root: Value = serde_json::from_str(text).map_err(|error| {
            let help = "name the tokenizer.json that the data was prepared with";
            Problem::in_file(name, format!("it is not JSON: {error}"), help)
        })?;
        let mark = |id: Option<u32>| match id {
            None => Ok(None),
            Some(id) => match token(&root, id) {
                Some(text) => Ok(Some(Mark { id, text })),
                None => Err(Problem::in_file(
                    name,
                    format!("it has no token {id}, a mark of the documents"),
                    "name the tokenizer.json that the data was prepared with",
                )),
            },
        };
        Ok(Tokenizer { bos: mark(bos)?, eos: mark(eos)?, json: text.to_owned() })
    }

    /// The token that fills rows of a batch: one that the vocabulary names so, or eos, which masks hide.
    pub fn pad(&self) -> Option<Mark> {
        let root: Value = serde_json::from_str(&self.json).unwrap_or_default();
        let added = root.get("added_tokens").and_then(Value::as_array).into_iter().flatten();
        let named = added.filter_map(|token| {
            let text = token.get("content")?.as_str()?;
            let id = u32::try_from(token.get("id")?.as_u64()?).ok()?;
            PADS.contains(&text).then(|| Mark { id, text: text.to_owned() })
        });
        named.min_by_key(|mark| mark.id).or_else(|| self.eos.clone())
    }

    /// The contents of `tokenizer_config.json`.
    pub fn config(&self, seq_len: i64) -> String {
        let text = |mark: &Option<Mark>| mark.as_ref().map(|mark| mark.text.clone());
        let config = json!({
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": text(&self.bos),
            "eos_token": text(&self.eos),
            "pad_token": text(&self.pad()),
            "clean_up_tokenization_spaces": false,
            // `generate` refuses the segment numbers that a tokenizer makes by default.
            "model_input_names": ["input_ids", "attention_mask"],
            "model_max_length": seq_len,
        });
        format!("{config:#}\n")
    }
}

/// A `tokenizer_config.json` that `transformers` 4 and 5 both read: version 5 has a class and a list that 4 does not know.
pub fn portable(config: &str) -> String {
    let Ok(Value::Object(mut keys)) = serde_json::from_str(config) else {
        return config.to_owned();
    };
    let backend = keys.get("tokenizer_class").is_some_and(|class| class == "TokenizersBackend");
    let list = keys.get("extra_special_tokens").is_some_and(Value::is_array);
    if backend {
        keys.insert("tokenizer_class".to_owned(), json!("PreTrainedTokenizerFast"));
    }
    if list && let Some(tokens) = keys.remove("extra_special_tokens") {
        keys.entry("additional_special_tokens").or_insert(tokens);
    }
    match backend || list {
        true => format!("{:#}\n", Value::Object(keys)),
        false => config.to_owned(),
    }
}

/// The text of a token: an added one, or one of the model's.
fn token(root: &Value, id: u32) -> Option<String> {
    let same = |value: &Value| value.as_u64() == Some(u64::from(id));
    let added = root.get("added_tokens").and_then(Value::as_array).into_iter().flatten();
    for token in added {
        if token.get("id").is_some_and(same) {
            return token.get("content")?.as_str().map(str::to_owned);
        }
    }
    match root.get("model")?.get("vocab")? {
        Value::Object(vocab) => {
            vocab.iter().find(|(_, known)| same(known)).map(|(text, _)| text.clone())
        }
        // Unigram: pairs of text and score, in the order of their ids.
        Value::Array(vocab) => vocab.get(id as usize)?.get(0)?.as_str().map(str::to_owned),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// The character of a byte: itself if it can be seen, else one after the first 256 in order.
fn character(byte: u8) -> char {
    let seen = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    match seen(byte) {
        true => char::from(byte),
        false => {
            let before = (0..byte).filter(|byte| !seen(*byte)).count() as u32;
            char::from_u32(256 + before).unwrap_or(char::REPLACEMENT_CHARACTER)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_byte_has_its_character() {
        let all: BTreeSet<char> = (0..=255).map(character).collect();
        assert_eq!(all.len(), 256);
        // GPT-2's vocabulary has these.
        assert_eq!([b' ', b'\n', 0, b'a', 0xad].map(character), ['Ġ', 'Ċ', 'Ā', 'a', 'Ń']);
    }

    #[test]
    fn a_text_begins_with_bos_and_has_no_end() {
        let file = r#"{"model":{"vocab":{"a":1,"<s>":2}},"post_processor":{"type":"ByteLevel"}}"#;
        let read = Tokenizer::read("t.json", file, Some(2), Some(1)).unwrap();
        let after = |tokenizer: Tokenizer| -> Value {
            serde_json::from_str::<Value>(&tokenizer.json).unwrap()["post_processor"].clone()
        };
        let with = after(read.clone().beginning(true));
        assert_eq!(with["single"][0]["SpecialToken"]["id"], "<s>");
        assert_eq!(with["single"].as_array().unwrap().len(), 2);
        assert_eq!(with["special_tokens"]["<s>"]["ids"], json!([2]));
        assert_eq!(after(read.beginning(false)), Value::Null);
        // Nothing to change: the file stays as it is.
        let plain =
            Tokenizer::read("t.json", r#"{"model":{"vocab":{"a":1}}}"#, None, None).unwrap();
        assert_eq!(plain.clone().beginning(true), plain);
    }

    #[test]
    fn rows_are_filled_with_a_token_of_that_name_or_with_eos() {
        let bytes = Tokenizer::bytes(256, 257);
        assert_eq!(bytes.pad(), bytes.eos);
        let config: Value = serde_json::from_str(&bytes.config(8)).unwrap();
        assert_eq!(config["pad_token"], "<|eos|>");
        let text = r#"{"added_tokens":[{"id":7,"content":"<pad>"}],"model":{"vocab":{"a":1}}}"#;
        let named = Tokenizer::read("t.json", text, None, Some(1)).unwrap();
        assert_eq!(named.pad(), Some(Mark { id: 7, text: "<pad>".to_owned() }));
        let none = Tokenizer::read("t.json", r#"{"model":{"vocab":{"a":1}}}"#, None, None).unwrap();
        assert_eq!(none.pad(), None);
    }

    #[test]
    fn keys_of_version_5_become_keys_that_version_4_reads() {
        let plain = r#"{ "tokenizer_class": "LlamaTokenizerFast", "extra_special_tokens": {} }"#;
        assert_eq!(portable(plain), plain);
        assert_eq!(portable("not JSON"), "not JSON");
        let newer = r#"{"tokenizer_class": "TokenizersBackend", "extra_special_tokens": ["<x>"], "pad_token": "</s>"}"#;
        let read: Value = serde_json::from_str(&portable(newer)).unwrap();
        let wanted = json!({
            "tokenizer_class": "PreTrainedTokenizerFast", "additional_special_tokens": ["<x>"], "pad_token": "</s>",
        });
        assert_eq!(read, wanted);
    }

    #[test]
    fn marks_are_found_by_id_wherever_they_are() {
        let text = r#"{"added_tokens":[{"id":7,"content":"<s>"}],"model":{"vocab":{"a":1}}}"#;
        let read = |bos, eos| Tokenizer::read("t.json", text, bos, eos);
        let tokenizer = read(Some(7), Some(1)).unwrap();
        assert_eq!(tokenizer.bos.unwrap().text, "<s>");
        assert_eq!(tokenizer.eos.unwrap().text, "a");
        assert!(read(Some(3), None).unwrap_err().message.contains("no token 3"));
        assert!(Tokenizer::read("t.json", "{", None, None).is_err());
        let unigram = r#"{"model":{"vocab":[["<unk>",0.0],["b",-1.0]]}}"#;
        let tokenizer = Tokenizer::read("t.json", unigram, None, Some(1)).unwrap();
        assert_eq!(tokenizer.eos, Some(Mark { id: 1, text: "b".to_owned() }));
    }
}
