//! The text of a standard definition, or what a primitive is.
//!
//! In: a name. Out: its source with its doc comment, as embedded in this binary; for `std` a list
//! of all of them. Must stay true: what is printed is what the compiler uses, not a description.

use compiler::op::{self, Arity, Config, ConfigKind, Default, Primitive, Time};
use compiler::program::STD;
use dsl::{FileId, Item};

use crate::fail::Failure;
use crate::output;

/// One definition of std.
struct Standard {
    file: &'static str,
    word: &'static str,
    name: String,
    docs: Vec<String>,
    source: String,
}

pub(super) fn text(name: &str) -> Result<String, Failure> {
    let all = standard();
    if name == "std" {
        return Ok(list(&all));
    }
    let mut parts: Vec<String> =
        all.iter().filter(|standard| standard.name == name).map(Standard::text).collect();
    parts.extend(op::find(name).map(primitive));
    if parts.is_empty() {
        let known = all.iter().map(|standard| standard.name.as_str());
        let known = known.chain(op::ALL.iter().map(|p| p.name)).chain(["std"]);
        let failure = Failure::bad_input(format!(
            "there is no file `{name}`, and nothing standard is called that"
        ));
        return Err(match dsl::suggest(name, known) {
            Some(near) => failure.help(format!("did you mean `canonc show {near}`?")),
            None => failure.help("`canonc show std` lists the standard definitions"),
        });
    }
    Ok(parts.join("\n"))
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
        let first = docs.split_inclusive(". ").next().unwrap_or("").trim_end();
        text += &format!("  {} {}\n      {first}\n", standard.word, standard.name);
    }
    text += "primitives\n";
    let rows: Vec<Vec<String>> =
        op::ALL.iter().map(|p| vec![p.name.to_owned(), p.doc.to_owned()]).collect();
    text + &output::table(&rows, &[false, false], 2)
}

fn primitive(primitive: &Primitive) -> String {
    let Primitive { name, revision, doc, tensors, config, time, .. } = primitive;
    let takes = match tensors {
        Arity::Exactly(n) => output::count(*n, "tensor"),
        Arity::AtLeast(n) => format!("{} or more", output::count(*n, "tensor")),
    };
    let time = match time {
        Time::Pointwise => "sees one time step",
        Time::Positional => "sees one time step and its position",
        Time::Stateful => "sees earlier time steps through a declared state",
    };
    let mut text = format!("primitive {name}, revision {revision}\n  {doc}\n  takes {takes}; {time}\n");
    let rows: Vec<Vec<String>> = config.iter().map(row).collect();
    text += &output::table(&rows, &[false, false, false], 2);
    text
}

fn row(config: &Config) -> Vec<String> {
    let Config { name, kind, default } = config;
    let kind = match kind {
        ConfigKind::Int => "an integer".to_owned(),
        ConfigKind::OptionalInt => "an integer, or `none`".to_owned(),
        ConfigKind::Decimal => "a number".to_owned(),
        ConfigKind::Bool => "`true` or `false`".to_owned(),
        ConfigKind::Word(words) => {
            words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or ")
        }
        ConfigKind::Ints => "further integers".to_owned(),
        ConfigKind::Weight => "another call's weight, to share it".to_owned(),
        ConfigKind::Init => "an init rule".to_owned(),
    };
    let default = match default {
        Default::Required => "required".to_owned(),
        Default::Int(n) => format!("{n} by default"),
        Default::Decimal(mantissa, exponent) => match exponent {
            0 => format!("{mantissa} by default"),
            _ => format!("{mantissa}e{exponent} by default"),
        },
        Default::Bool(b) => format!("{b} by default"),
        Default::Word(word) => format!("{word} by default"),
        Default::Absent => "absent by default".to_owned(),
        Default::ArchField(field) => format!("the arch's `{field}` by default"),
    };
    vec![(*name).to_owned(), kind, default]
}
