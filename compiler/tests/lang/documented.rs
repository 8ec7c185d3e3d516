//! Checks LANGUAGE.md beyond its grammar: every `canon` block elaborates, also definitions that none of its archs uses;
//! every `canon refused` block parses and is refused; the tables of primitives and init rules are those of the
//! compiler.

use std::fmt::Write as _;

use compiler::number::InitRule;
use compiler::op::{self, Arity, ConfigKind, Default, Time};
use compiler::program::Program;
use dsl::{DefKind, Item};

use support::programs::{TEXT, all_diagnostics, program_of, read};

/// The info string, line and contents of each fenced block.
fn blocks() -> Vec<(String, usize, String)> {
    let text = read("dsl/LANGUAGE.md");
    let mut blocks = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(info) = line.strip_prefix("```").filter(|info| !info.is_empty()) else { continue };
        let inside = lines.by_ref().take_while(|(_, line)| *line != "```");
        let text = inside.map(|(_, line)| format!("{line}\n")).collect();
        blocks.push((info.to_owned(), number + 1, text));
    }
    blocks
}

/// Adds an arch for each definition of a block that has all its defaults, so that every definition is elaborated.
fn used(text: &str) -> String {
    let (ast, _) = dsl::parse(dsl::FileId(0), text);
    let mut all = text.to_owned();
    for item in &ast.items {
        let Item::Def(def) = item else { continue };
        if def.config.iter().any(|c| c.default.is_none()) || def.tensors.len() != 1 {
            continue;
        }
        let name = &def.name.text;
        let layer = match def.kind {
            DefKind::Block => name.clone(),
            DefKind::Mixer => format!("decoder {{ mixer {name}  mlp swiglu {{ hidden 8 }} }}"),
            DefKind::Mlp => format!("decoder {{ mixer attention {{ heads 4 }}  mlp {name} }}"),
            DefKind::Head => continue,
        };
        let _ = write!(
            all,
            "arch uses_{name} {{\n  vocab 64\n  dim 32\n  norm_eps 1e-5\n  init huggingface\n  layers 1 of {layer}\n}}\n"
        );
    }
    all
}

#[test]
fn blocks_elaborate_or_are_refused() {
    let (mut good, mut bad) = (0, 0);
    for (info, line, text) in blocks() {
        let shown = |program: &Program| {
            let all = all_diagnostics(program, TEXT);
            (all.iter().any(dsl::Diagnostic::is_error), program.render(&all))
        };
        match info.as_str() {
            "canon" => {
                let program = program_of(&used(&text));
                let (failed, what) = shown(&program);
                assert!(!failed && what.is_empty(), "line {line}:\n{what}");
                good += 1;
            }
            "canon refused" => {
                let (_, errors) = dsl::parse(dsl::FileId(0), &text);
                assert!(errors.is_empty(), "line {line} does not even parse");
                let (failed, _) = shown(&program_of(&text));
                assert!(failed, "line {line} is accepted");
                bad += 1;
            }
            _ => {}
        }
    }
    assert!(good >= 10 && bad >= 5, "found {good} valid blocks and {bad} invalid ones");
}

fn configuration(primitive: &op::Primitive) -> String {
    let shown = primitive.config.iter().map(|config| {
        let kind = match config.kind {
            ConfigKind::Int
            | ConfigKind::OptionalInt
            | ConfigKind::Decimal
            | ConfigKind::OptionalDecimal
            | ConfigKind::Number
            | ConfigKind::OptionalNumber
            | ConfigKind::Bool => "",
            ConfigKind::Word(words) => return format!("`{}` ({})", config.name, words.join(", ")),
            ConfigKind::Ints => "…",
            ConfigKind::Tensor | ConfigKind::Weight | ConfigKind::Init => "",
        };
        match config.default {
            Default::Required | Default::Absent => format!("`{}{kind}`", config.name),
            Default::Int(n) => format!("`{} = {n}`", config.name),
            Default::Bool(b) => format!("`{} = {b}`", config.name),
            Default::Word(w) => format!("`{} = {w}`", config.name),
            Default::ArchField(field) => format!("`{} = {field}`", config.name),
            Default::Decimal(mantissa, exponent) => {
                format!("`{} = {mantissa}e{exponent}`", config.name)
            }
        }
    });
    shown.collect::<Vec<_>>().join(" ")
}

#[test]
fn the_table_of_primitives_is_that_of_the_compiler() {
    let mut table = String::from(
        "| primitive | tensors | configuration | time | computes | a primitive because |\n|---|---|---|---|---|---|\n",
    );
    for primitive in op::ALL {
        let tensors = match primitive.tensors {
            Arity::Exactly(n) => n.to_string(),
            Arity::UpTo(n) => format!("{} or {n}", n - 1),
            Arity::AtLeast(n) => format!("{n} or more"),
        };
        let time = match primitive.time {
            Time::Pointwise => "",
            Time::Positional => "position",
            Time::Stateful => "state",
        };
        let [doc, why] = [primitive.doc, primitive.why].map(|text| text.replace('|', "\\|"));
        let name = primitive.name;
        assert!(!why.is_empty(), "{name}");
        let _ = writeln!(
            table,
            "| `{name}` | {tensors} | {} | {time} | {doc} | {why} |",
            configuration(primitive)
        );
    }
    let text = read("dsl/LANGUAGE.md");
    let lacking: Vec<&str> =
        table.lines().filter(|row| !text.lines().any(|line| line == *row)).collect();
    assert!(
        text.contains(&table),
        "dsl/LANGUAGE.md should have all primitives in the order of their names; it lacks\n{}",
        lacking.join("\n")
    );
}

#[test]
fn init_rules_and_functions_are_listed() {
    let text = read("dsl/LANGUAGE.md");
    for name in InitRule::NAMES {
        let listed = text.lines().any(|l| {
            l.starts_with('|')
                && (l.contains(&format!("`{name}(")) || l.contains(&format!("`{name}`")))
        });
        assert!(listed, "{name}");
    }
    for role in compiler::tree::ROLES {
        assert!(text.contains(&format!("`{role}`")), "{role}");
    }
    for field in compiler::tree::ARCH_LEVEL {
        assert!(text.contains(&format!("`{field}`")), "{field}");
    }
}
