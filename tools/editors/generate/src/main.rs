//! Generates the parser of the tree-sitter grammar, `src/parser.c` and its headers, from
//! `tree-sitter-canon/src/grammar.json`. `--check` compares instead of writing, and exits with 1 if the files differ.

use std::path::Path;
use std::process::ExitCode;

use tree_sitter_generate::{
    ALLOC_HEADER, ARRAY_HEADER, OptLevel, PARSER_HEADER, generate_parser_for_grammar,
};

fn main() -> ExitCode {
    match run() {
        Ok(differs) => ExitCode::from(u8::from(differs)),
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<bool, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tree-sitter-canon/src");
    let check = std::env::args().any(|argument| argument == "--check");
    let read = |path: &Path| {
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let grammar = read(&source.join("grammar.json"))?;
    let mut notes = Vec::new();
    let (_, parser) = generate_parser_for_grammar(&grammar, None, OptLevel::default(), &mut notes)
        .map_err(|error| error.to_string())?;
    let mut differs = false;
    for (name, text) in [
        ("parser.c", parser.as_str()),
        ("tree_sitter/alloc.h", ALLOC_HEADER),
        ("tree_sitter/array.h", ARRAY_HEADER),
        ("tree_sitter/parser.h", PARSER_HEADER),
    ] {
        let path = source.join(name);
        if check {
            if read(&path)? != text {
                eprintln!("{name} does not follow from grammar.json: run `make grammars`");
                differs = true;
            }
            continue;
        }
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        }
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(differs)
}
