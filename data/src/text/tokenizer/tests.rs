//! Ids compared with the published libraries' (`tests/golden/tokenizers`; its `make.py` says how they were made), and
//! files that do not hold tokenizers.

use serde_json::Value;

use super::*;
use support::golden;

fn file(name: &str) -> Vec<u8> {
    let path = format!("{}/../tests/golden/tokenizers/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(path).unwrap()
}

fn usual(kind: Kind, name: &str) -> Tokenizer {
    Tokenizer::read(kind, &file(name), name, &MarkNames::default()).unwrap()
}

fn encoded(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    tokenizer.encode(text, &mut ids).unwrap();
    ids
}

#[test]
fn ids_are_the_published_libraries() {
    let cases = golden::read("tokenizers/cases");
    let texts = cases["texts"].as_array().unwrap();
    let mut compared = 0;
    for (name, case) in cases["tokenizers"].as_object().unwrap() {
        let info = &case["info"];
        let kind = Kind::parse(info[0].as_str().unwrap()).unwrap();
        let tokenizer = usual(kind, name);
        let Info { kind: _, digest: _, vocab, bos, eos } = tokenizer.info();
        let id = |value: &Value| value.as_u64().map(|id| id as u32);
        assert_eq!(
            (Some(*vocab), *bos, *eos),
            (id(&info[1]), id(&info[2]), id(&info[3])),
            "{name}"
        );
        for (text, ids) in texts.iter().zip(case["ids"].as_array().unwrap()) {
            let text = text.as_str().unwrap();
            assert_eq!(encoded(&tokenizer, text), golden::tokens(ids), "{name}: {text:?}");
            compared += 1;
        }
    }
    assert!(compared > 500);
}

/// Patterns as Oniguruma reads them, where other engines differ, and symbols that begin with each other.
#[test]
fn lines_long_runs_and_longest_symbols_are_the_published_libraries() {
    let json = Kind::File(TokenizerKind::HuggingFace);
    let model = Kind::File(TokenizerKind::SentencePiece);
    for (kind, name, text, ids) in [
        (json, "caret.json", "a\n# b", &[64, 198, 256, 65][..]),
        (json, "caret_normalizer.json", "a\n b", &[64, 198, 65]),
        (model, "prefixes.model", "toto", &[1375, 3]),
    ] {
        assert_eq!(encoded(&usual(kind, name), text), ids, "{name}");
    }
    // More than fancy-regex can go back over. Two blanks are token 256 in this file, as trained.
    let tokenizer = usual(json, "llama3.json");
    let [few, many] = [7, 1_000_007]
        .map(|blanks| encoded(&tokenizer, &format!("a{}year 2024.", " ".repeat(blanks))));
    assert!(many.len() > 10_000);
    assert_eq!(few[few.len() - 5..], many[many.len() - 5..]);
}

#[test]
fn truncation_and_padding_in_a_file_change_no_text() {
    let json = Kind::File(TokenizerKind::HuggingFace);
    let mut changed: Value = serde_json::from_slice(&file("llama3.json")).unwrap();
    changed["truncation"] = serde_json::json!(
        {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0});
    changed["padding"] = serde_json::json!(
        {"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "a"});
    let bytes = serde_json::to_vec(&changed).unwrap();
    let tokenizer = Tokenizer::read(json, &bytes, "t.json", &MarkNames::default()).unwrap();
    let plain = usual(json, "llama3.json");
    let text = "a text of more than four tokens";
    assert_eq!(encoded(&tokenizer, text), encoded(&plain, text));
    let note = "`t.json`: its `truncation` and `padding` are not used: texts keep all their tokens";
    assert_eq!((tokenizer.note(), plain.note()), (Some(note), None));
}

/// The library takes either of two added tokens that are equal after normalization, differently each time.
#[test]
fn added_tokens_that_the_normalizer_makes_equal_are_refused() {
    let json = Kind::File(TokenizerKind::HuggingFace);
    let mut changed: Value = serde_json::from_slice(&file("llama3.json")).unwrap();
    changed["normalizer"] = serde_json::json!({"type": "Lowercase"});
    let added = changed["added_tokens"].as_array_mut().unwrap();
    for (id, content) in [(562, "Ab"), (563, "aB")] {
        added.push(serde_json::json!({"id": id, "content": content, "single_word": false,
            "lstrip": false, "rstrip": false, "normalized": true, "special": false}));
    }
    let bytes = serde_json::to_vec(&changed).unwrap();
    let error = Tokenizer::read(json, &bytes, "t.json", &MarkNames::default()).unwrap_err();
    assert!(error.message.contains("it would take either"), "{error}");
}

#[test]
fn a_part_of_a_character_keeps_its_bytes() {
    for (kind, name) in [
        (Kind::File(TokenizerKind::SentencePiece), "llama2.model"),
        (Kind::File(TokenizerKind::HuggingFace), "llama2.json"),
        (Kind::File(TokenizerKind::HuggingFace), "llama3.json"),
        (Kind::File(TokenizerKind::Tiktoken), "llama3.model"),
    ] {
        let tokenizer = usual(kind, name);
        let text = "🤗 \u{378}é";
        let ids = encoded(&tokenizer, text);
        let apart: Vec<u8> = ids.iter().flat_map(|id| tokenizer.decode(&[*id]).unwrap()).collect();
        assert_eq!(String::from_utf8(apart).unwrap().trim_start(), text, "{name}");
        assert!(ids.iter().any(|id| String::from_utf8(tokenizer.decode(&[*id]).unwrap()).is_err()));
    }
}

#[test]
fn text_that_spells_a_special_token_is_text() {
    for (kind, name, marks) in [
        (Kind::File(TokenizerKind::SentencePiece), "llama2.model", "<s></s>"),
        (Kind::File(TokenizerKind::HuggingFace), "llama2.json", "<s></s>"),
        (Kind::File(TokenizerKind::Tiktoken), "llama3.model", "<|begin_of_text|><|end_of_text|>"),
        (Kind::File(TokenizerKind::HuggingFace), "llama3.json", "<|begin_of_text|><|end_of_text|>"),
    ] {
        let tokenizer = usual(kind, name);
        let ids = encoded(&tokenizer, marks);
        let Info { bos, eos, .. } = *tokenizer.info();
        assert!(ids.len() > 4 && !ids.contains(&bos.unwrap()), "{name}");
        assert!(eos.is_none_or(|eos| !ids.contains(&eos)), "{name}");
    }
}

/// A template's text is encoded as a whole.
#[test]
fn a_text_with_special_tokens_gets_them_where_a_template_wrote_it() {
    let tokenizer = usual(Kind::File(TokenizerKind::HuggingFace), "llama3.json");
    let special = tokenizer.with_special_tokens().unwrap();
    let text = "<|begin_of_text|>one two<|end_of_text|>";
    let ids = special.encode(text).unwrap();
    assert_eq!(ids[..1], [560]);
    assert_eq!(ids[ids.len() - 1], 561);
    assert_eq!(ids[1..ids.len() - 1], encoded(&tokenizer, "one two"));
    assert!(Tokenizer::bytes().with_special_tokens().is_none());
}

/// With `normalized: true`, a token is looked for in the normalized text.
#[test]
fn a_special_token_that_the_normalizer_makes_of_a_text_is_seen() {
    let json = Kind::File(TokenizerKind::HuggingFace);
    let mut changed: Value = serde_json::from_slice(&file("llama3.json")).unwrap();
    changed["normalizer"] = serde_json::json!({"type": "Lowercase"});
    for (normalized, id) in [(true, Some(560)), (false, None)] {
        changed["added_tokens"][0]["normalized"] = normalized.into();
        let bytes = serde_json::to_vec(&changed).unwrap();
        let tokenizer = Tokenizer::read(json, &bytes, "t.json", &MarkNames::default()).unwrap();
        let special = tokenizer.with_special_tokens().unwrap();
        assert_eq!(special.normalized("a <|BEGIN_of_text|>"), id);
        assert_eq!(special.normalized("begin of text"), None);
        assert!(!encoded(&tokenizer, "<|BEGIN_of_text|>").contains(&560));
    }
}

#[test]
fn long_runs_take_no_more_than_their_length() {
    let tokenizer = usual(Kind::File(TokenizerKind::Tiktoken), "llama3.model");
    // Runs a little longer than one piece. A piece is one match of the pattern, which must not recurse too deeply.
    for run in [" ", "\u{3000}", "\n", "\t ", "a", "é", "7", "!", "😀"] {
        let ids = encoded(&tokenizer, &run.repeat(401_000 / run.chars().count()));
        assert!(!ids.is_empty());
    }
    for (kind, name) in [
        (Kind::File(TokenizerKind::SentencePiece), "llama2.model"),
        (Kind::File(TokenizerKind::HuggingFace), "llama3.json"),
    ] {
        let tokenizer = usual(kind, name);
        for run in [" ", "a", "😀"] {
            assert!(!encoded(&tokenizer, &run.repeat(30_000)).is_empty(), "{name}");
        }
    }
}

#[test]
fn a_digest_is_of_all_that_decides_ids() {
    let digest = |kind, name: &str, eos: Option<&str>| {
        let marks = MarkNames { bos: None, eos: eos.map(str::to_owned) };
        Tokenizer::read(kind, &file(name), "a file", &marks).unwrap().info().digest
    };
    let one = digest(Kind::File(TokenizerKind::HuggingFace), "llama3.json", None);
    assert_eq!(digest(Kind::File(TokenizerKind::HuggingFace), "llama3.json", None), one);
    assert_ne!(
        digest(Kind::File(TokenizerKind::HuggingFace), "llama3.json", Some("<|end_of_text|>")),
        one
    );
    assert_ne!(digest(Kind::File(TokenizerKind::HuggingFace), "llama2.json", None), one);
    assert_ne!(digest(Kind::File(TokenizerKind::Tiktoken), "llama3.model", None), one);
    // Locks name these digests, so they never change.
    assert_eq!(
        (one.to_hex().as_str(), Info::bytes().digest.to_hex().as_str()),
        (
            "5eaf0fe6129b7e28e7ec0d4eb42077ab2d40b81c5015672452b8dcd78c4d8b58",
            "a85e8c0487bf1610059ad414f23248b0014c8de9c3efde128c259e2fc3766cb2"
        )
    );
}

/// The reason for which a file is refused.
fn refusal(kind: Kind, bytes: &[u8]) -> String {
    let error = Tokenizer::read(kind, bytes, "it.model", &MarkNames::default()).unwrap_err();
    let prefix = format!("`it.model` cannot be used as a {kind} tokenizer: ");
    assert!(error.message.starts_with(&prefix) && error.help.starts_with("name a"), "{error}");
    error.message.strip_prefix(&prefix).unwrap().to_owned()
}

#[test]
fn files_that_are_no_tokenizers_are_refused_in_words() {
    let names = ["llama2.model", "table.model", "llama3.model", "llama3.json", "llama2.json"];
    let kinds = [
        Kind::File(TokenizerKind::HuggingFace),
        Kind::File(TokenizerKind::SentencePiece),
        Kind::File(TokenizerKind::Tiktoken),
    ];
    for kind in kinds {
        for other in names.iter().filter(|name| {
            matches!(
                (kind, **name),
                (
                    Kind::File(TokenizerKind::HuggingFace),
                    "llama2.model" | "table.model" | "llama3.model"
                ) | (
                    Kind::File(TokenizerKind::SentencePiece),
                    "llama3.model" | "llama3.json" | "llama2.json"
                ) | (
                    Kind::File(TokenizerKind::Tiktoken),
                    "llama2.model" | "table.model" | "llama3.json"
                )
            )
        }) {
            refusal(kind, &file(other));
        }
        for bytes in [&b""[..], b"\n", b"{}", b"null", b"\xff\xfe", &[0; 1000]] {
            refusal(kind, bytes);
        }
    }
    let error = Tokenizer::read(Kind::Bytes, b"", "it.model", &MarkNames::default()).unwrap_err();
    assert!(error.message.contains("has no file"), "{error}");

    let ranks = String::from_utf8(file("llama3.model")).unwrap();
    let refused_ranks =
        |text: String| refusal(Kind::File(TokenizerKind::Tiktoken), text.as_bytes());
    assert_eq!(refused_ranks(ranks.replacen("IQ== 0\n", "", 1)), "it has 559 tokens, but rank 559");
    assert_eq!(refused_ranks(ranks.clone() + "IQ== 560\n"), "a token or a rank occurs twice");
    assert_eq!(
        refused_ranks(ranks.replace("IQ== 0\n", "ISEhIQ== 0\n")),
        "byte 0x21 is not one of its 560 tokens"
    );
    assert_eq!(
        refused_ranks(ranks.clone() + "IQ== 4294967296\n"),
        "line 561 does not end with a rank"
    );
    assert_eq!(
        refused_ranks(ranks + "IQ==\n"),
        "line 561 is not a base64 token, a space and a rank"
    );
    let marks = MarkNames { bos: Some("<start>".to_owned()), eos: None };
    let error =
        Tokenizer::read(Kind::File(TokenizerKind::HuggingFace), &file("llama3.json"), "x", &marks)
            .unwrap_err();
    assert!(error.message.ends_with("it has no special token `<start>`"), "{error}");
}

/// Damage anywhere: the file is read or refused.
#[test]
fn a_damaged_tokenizer_file_makes_no_token_past_the_vocabulary() {
    for (kind, name) in [
        (Kind::File(TokenizerKind::SentencePiece), "llama2.model"),
        (Kind::File(TokenizerKind::SentencePiece), "table.model"),
        (Kind::File(TokenizerKind::Tiktoken), "llama3.model"),
        (Kind::File(TokenizerKind::HuggingFace), "llama2.json"),
    ] {
        let good = file(name);
        for at in (0..good.len()).step_by(good.len() / 40) {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            for bytes in [&bad[..], &good[..at]] {
                if let Ok(tokenizer) = Tokenizer::read(kind, bytes, "x", &MarkNames::default()) {
                    let mut ids = Vec::new();
                    if tokenizer.encode("Größe [SEP] don't 12 日本 ﬁ…", &mut ids).is_ok() {
                        assert!(ids.iter().all(|id| *id < tokenizer.info().vocab));
                    }
                }
            }
        }
    }
}

#[test]
fn a_tokenizer_that_draws_is_refused_and_so_is_a_mark_past_the_vocabulary() {
    let model = file("llama3.json");
    let mut json: Value = serde_json::from_slice(&model).unwrap();
    let read = |json: &Value| {
        let bytes = serde_json::to_vec(json).unwrap();
        Tokenizer::read(
            Kind::File(TokenizerKind::HuggingFace),
            &bytes,
            "t.json",
            &MarkNames::default(),
        )
    };
    for (dropout, refused) in [("0.1", true), ("1.0", true), ("0.0", false), ("null", false)] {
        json["model"]["dropout"] = serde_json::from_str(dropout).unwrap();
        let read = read(&json);
        assert_eq!(read.is_err(), refused, "{dropout}");
        if let Err(error) = read {
            assert!(error.message.contains("`model.dropout` is"), "{error}");
        }
    }
    json["model"]["dropout"] = Value::Null;
    let vocab = read(&json).unwrap().info().vocab;
    for (id, refused) in [(vocab - 1, false), (vocab, true), (70_000, true)] {
        json["post_processor"] = serde_json::json!({
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "M", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"M": {"id": "M", "ids": [id], "tokens": ["M"]}},
        });
        match read(&json) {
            Ok(_) => assert!(!refused, "{id}"),
            Err(error) => {
                assert!(refused, "{error}");
                let want =
                    format!("puts token {id} before a document, but its ids end at {}", vocab - 1);
                assert!(error.message.contains(&want), "{error}");
            }
        }
    }
}

#[test]
fn tokens_become_the_text_again() {
    for (kind, name) in [
        (Kind::File(TokenizerKind::SentencePiece), "llama2.model"),
        (Kind::File(TokenizerKind::HuggingFace), "llama2.json"),
        (Kind::File(TokenizerKind::Tiktoken), "llama3.model"),
        (Kind::File(TokenizerKind::HuggingFace), "llama3.json"),
    ] {
        let tokenizer = usual(kind, name);
        for text in ["a", "two words", "größer, 7 – 😀!", "line\nline"] {
            let ids = encoded(&tokenizer, text);
            let back = String::from_utf8(tokenizer.decode(&ids).unwrap()).unwrap();
            assert_eq!(back.trim_start(), text, "{name}");
            // Appending text only adds the tokens of that text.
            let all = encoded(&tokenizer, &format!("{text} and on"));
            if let Some(rest) = all.strip_prefix(&ids[..]) {
                let full = tokenizer.decode(&[&ids[..], rest].concat()).unwrap();
                assert!(String::from_utf8(full).unwrap().ends_with(" and on"), "{name}");
            }
        }
    }
    assert_eq!(Tokenizer::bytes().decode(&[256, 104, 105, 257]).unwrap(), b"hi");
}
