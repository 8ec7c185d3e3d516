//! The text of a standard definition, or the description of a primitive.

use std::path::Path;

use compiler::op::{self, Config, Primitive};
use compiler::program::STD;
use dsl::{FileId, Item};

use crate::fail::{Failure, shown};
use crate::output;

/// One definition of std.
struct Standard {
    file: &'static str,
    word: &'static str,
    name: String,
    docs: Vec<String>,
    source: String,
}

/// The standard definition of that name; `std` gives the list.
pub(super) fn text(name: &str) -> Option<String> {
    let all = standard();
    if name == "std" {
        return Some(list(&all));
    }
    let named = |standard: &&Standard| standard.name == name || standard.file == name;
    let mut parts: Vec<String> = all.iter().filter(named).map(Standard::text).collect();
    parts.extend(op::find(name).map(primitive));
    (!parts.is_empty()).then(|| parts.join("\n"))
}

/// Whether the name is a file of std.
pub(super) fn is_file(name: &str) -> bool {
    STD.iter().any(|(file, _)| *file == name)
}

/// Error for a name that is neither a file nor a standard definition.
pub(super) fn unknown(name: &str) -> Failure {
    let all = standard();
    let known = all.iter().map(|standard| standard.name.as_str());
    let known = known.chain(op::ALL.iter().map(|p| p.name)).chain(["std"]);
    let message = format!("`{name}` is neither a file nor a standard definition");
    let failure = Failure::bad_input(message);
    let arch = Path::new("arch").join(format!("{name}.canon"));
    let file = arch.is_file().then(|| shown(&arch));
    let near = file.or_else(|| dsl::suggest(name, known).map(str::to_owned));
    match near.or_else(|| disk::nearest(&arch).as_deref().map(shown)) {
        Some(near) => failure.help(format!("did you mean `canonc show {near}`?")),
        None => failure.help("`canonc show std` lists the standard definitions"),
    }
}

fn standard() -> Vec<Standard> {
    let mut all = Vec::new();
    for (file, text) in STD {
        let (ast, _) = dsl::parse(FileId(0), text);
        for item in &ast.items {
            let (word, name) = match item {
                Item::Def(def) => (def.kind.word(), &def.name),
                Item::Alias(alias) => (alias.kind.word(), &alias.name),
                Item::Init(table) => ("init", &table.name),
                Item::Arch(arch) => ("arch", &arch.name),
            };
            let span = item.span();
            let source = text.get(span.start as usize..span.end as usize).unwrap_or("");
            all.push(Standard {
                file,
                word,
                name: name.text.clone(),
                docs: item.docs().to_vec(),
                source: source.to_owned(),
            });
        }
    }
    all
}

impl Standard {
    fn text(&self) -> String {
        let Standard { file, word: _, name: _, docs, source } = self;
        let docs: String = docs.iter().map(|line| format!("/// {line}\n")).collect();
        format!("// {file}\n{docs}{source}\n")
    }
}

fn list(all: &[Standard]) -> String {
    let mut text = String::new();
    let mut file = "";
    for standard in all {
        if standard.file != file {
            file = standard.file;
            text += &format!("{file}\n");
        }
        let docs = standard.docs.join(" ");
        let first = first_sentence(&docs);
        text += &format!("  {} {}\n      {first}\n", standard.word, standard.name);
    }
    text += "primitives\n";
    let rows: Vec<Vec<String>> =
        op::ALL.iter().map(|p| vec![p.name.to_owned(), p.doc.to_owned()]).collect();
    text + &output::table(&rows, &[false, false], 2)
}

/// Ends at a full stop before a capital, so that `et al. 2024` does not end a sentence.
fn first_sentence(text: &str) -> &str {
    let capital = |rest: &str| rest.chars().next().is_some_and(char::is_uppercase);
    let stop = text.match_indices(". ").find(|(at, _)| text.get(at + 2..).is_some_and(capital));
    stop.and_then(|(at, _)| text.get(..=at)).unwrap_or(text)
}

fn primitive(primitive: &Primitive) -> String {
    let Primitive { name, revision, doc, why, config, .. } = primitive;
    let (takes, time) = (primitive.takes(), primitive.sees());
    let mut text = format!(
        "primitive {name}, revision {revision}\n  {doc}\n  a primitive because: {why}\n  takes {takes}; {time}\n"
    );
    let row =
        |config: &Config| vec![config.name.to_owned(), config.accepts(), config.default_words()];
    let rows: Vec<Vec<String>> = config.iter().map(row).collect();
    text += &output::table(&rows, &[false, false, false], 2);
    text
}
