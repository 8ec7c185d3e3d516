//! A libFuzzer target for every reader of files that other programs may have written; `CANONC_READER` names the reader.
//! Every input must end in a result or an error; `tools/fuzz/run.sh` bounds memory and time.

#![no_main]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use data::text::lines::Field;
use data::text::prepare::{Input, Plain, Request, SourceInput, prepare};
use data::text::tokenizer::{Kind, MarkNames, Tokenizer, TokenizerKind};

/// A reader that takes the bytes of a file.
type Reader = fn(&[u8]);

const READERS: [(&str, Reader); 27] = [
    ("allowed", |bytes| drop(text(bytes).map(sign::AllowedSigners::parse))),
    ("attestation", |bytes| drop(text(bytes).map(records::attest::Attestation::parse))),
    ("canon", |bytes| drop(text(bytes).map(|text| dsl::parse(dsl::FileId(0), text)))),
    ("external", |bytes| {
        let path = file("external.jsonl", bytes);
        drop(records::metrics::read_external(&path));
        drop(records::metrics::read_measurements(&path));
        drop(text(bytes).map(records::attest::Attested::parse));
    }),
    ("curves", |bytes| drop(text(bytes).map(audit::curves::Curves::parse))),
    ("huggingface", |bytes| tokenizer(Kind::File(TokenizerKind::HuggingFace), bytes)),
    ("import", |bytes| {
        let path = file("config.json", bytes);
        let request = interop::import::Request {
            source: &path,
            name: Some("a"),
            devices: Some(8),
            weights: false,
        };
        drop(interop::import::read(&request));
    }),
    ("json", |bytes| drop(interop::json::read("file", bytes))),
    ("jsonl", |bytes| table("a.jsonl", bytes)),
    ("lock", |bytes| drop(lab::lock::read_bytes("file", bytes))),
    ("log", |bytes| drop(logs::parse("file", bytes, &logs::Names::default()))),
    ("lsp", |bytes| {
        let (incoming, _messages) = crossbeam_channel::unbounded();
        drop(lsp::transport::read(&mut &*bytes, &mut Vec::new(), &incoming));
    }),
    ("metrics", |bytes| drop(records::metrics::read(&file("metrics.jsonl", bytes)))),
    ("parquet", |bytes| table("a.parquet", bytes)),
    ("plain", |bytes| table("a.txt", bytes)),
    ("prepared", |bytes| drop(data::text::file::load(&file("a.index", bytes)))),
    ("pth", |bytes| drop(interop::pth::read(&file("consolidated.pth", bytes)))),
    ("recipe", |bytes| {
        let Some(text) = text(bytes) else { return };
        let mut sources = dsl::Sources::new();
        let file = sources.add("recipe.toml", text);
        drop(lab::recipe::read(&sources, file));
        drop(lab::recipe::comparison::read(&sources, file));
    }),
    ("request", request),
    ("safetensors", |bytes| {
        drop(interop::store::Store::single(&file("model.safetensors", bytes)));
    }),
    ("sentencepiece", |bytes| tokenizer(Kind::File(TokenizerKind::SentencePiece), bytes)),
    ("shards", |bytes| {
        let folder = file("model.safetensors.index.json", bytes);
        drop(interop::store::Store::open(&folder));
    }),
    ("signature", |bytes| drop(text(bytes).map(|text| sign::check(b"message", text)))),
    ("table", |bytes| drop(text(bytes).map(|text| audit::table("table.tsv", text)))),
    ("template", |bytes| {
        let Some(text) = text(bytes) else { return };
        let Ok(template) = serve::chat::Template::new(text, BTreeMap::new()) else { return };
        drop(template.render(&conversation(), &Characters));
    }),
    ("trainer", |bytes| drop(text(bytes).map(lab::trainer::TrainerRecord::parse))),
    ("yaml", |bytes| drop(interop::yaml::read("file", bytes))),
];

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// A tokenizer with one token.
struct Characters;

impl serve::model::Codec for Characters {
    fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        Ok(text.bytes().map(u32::from).collect())
    }

    fn decode(&self, _: &[u32]) -> Result<Vec<u8>, String> {
        Ok(Vec::new())
    }

    fn before(&self) -> Option<u32> {
        None
    }

    fn ends(&self) -> &[u32] {
        &[]
    }

    fn specials(&self) -> &serve::model::Specials {
        serve::model::Specials::none()
    }
}

/// A conversation of some turns, for templates.
fn conversation() -> serve::chat::Conversation {
    let turns = ["system", "user", "assistant", "user"];
    serve::chat::Conversation::new(
        turns.iter().map(|role| serve::chat::message(role, "Some words, 12 numbers.")).collect(),
    )
}

/// The body of a request, as each route reads it.
fn request(bytes: &[u8]) {
    use serve::request::{Chat, Completion, Detokenize, Tokenize, ordered_values, values};
    if let Ok(value) = values(bytes) {
        drop(Completion::read(value.clone()));
        drop(Detokenize::read(value));
    }
    if let Ok(read) = ordered_values(bytes) {
        drop(Tokenize::read(read.value.clone(), &read.ordered));
        if let Ok(chat) = Chat::read(read.value, &read.ordered) {
            drop(serve::chat::Template::plain().render(&chat.conversation, &Characters));
        }
    }
}

/// Writes the bytes to a file of that name; all inputs of a process share one folder.
fn file(name: &str, bytes: &[u8]) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| tempfile::tempdir().expect("a folder").keep());
    let path = folder.join(name);
    fs::write(&path, bytes).expect("room for the input");
    path
}

fn tokenizer(kind: Kind, bytes: &[u8]) {
    if let Ok(tokenizer) = Tokenizer::read(kind, bytes, "file", &MarkNames::default()) {
        drop(tokenizer.encode("A text of some words, 12 numbers and ünïcode.", &mut Vec::new()));
    }
}

fn table(name: &str, bytes: &[u8]) {
    let path = file(name, bytes);
    let input =
        Input { path: Some(path.clone()), name: name.to_owned(), bytes: bytes.len() as u64 };
    let sources = [SourceInput { name: "a".to_owned(), files: vec![input] }];
    let request = Request {
        sources: &sources,
        field: Field::Usual,
        plain: Plain::Line,
        on_bad_line: data::text::index::OnBadLine::Skip,
        tokenizer: &Tokenizer::bytes(),
        workers: 1,
        checkpoint: 1 << 30,
        fault: None,
    };
    let out = path.with_extension("index");
    let stop = std::sync::atomic::AtomicBool::new(false);
    drop(prepare(&request, &out, &stop, &mut |_| ()));
    let _ = fs::remove_file(&out);
    let _ = fs::remove_dir_all(path.with_extension("index.partial"));
}

fuzz_target!(|bytes: &[u8]| {
    static READER: OnceLock<Reader> = OnceLock::new();
    let reader = READER.get_or_init(|| {
        let named = std::env::var("CANONC_READER").unwrap_or_default();
        let found = READERS.iter().find(|(name, _)| *name == named);
        let names: Vec<&str> = READERS.iter().map(|(name, _)| *name).collect();
        found.unwrap_or_else(|| panic!("set CANONC_READER to one of {}", names.join(", "))).1
    });
    reader(bytes);
});
