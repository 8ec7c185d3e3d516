//! Experiments with another value of one field, for every field of the table.

use std::rc::Rc;

use dsl::{Decimal, Sources};
use lab::comparison::{Comparison, NoComparison};
use lab::experiment::{Experiment, LockedArch};
use lab::field::{FieldDef, FieldValue, Fields, Kind, Origin, TABLE};
use lab::recipe;

use crate::locks::{BREVO, DEPO, MANO, OTHERS, SMALL, TEXT, compiled_text, experiment_of, locked};

/// A comparison of two arms, each with two runs.
pub const PAIR: &str = "base = \"llama\"\ntreatment = [\"canon\"]\n[arms]\nllama = \"a.toml\"\ncanon = \"b.toml\"\n\
    [seeds]\ninit = [1, 2]\ndata = [5, 6]\n";

/// Fields that decide which other fields exist.
pub const DECIDING: [&str; 4] = ["data.task", "data.tokenizer", "optimizer.kind", "schedule.kind"];

/// Both arms unchanged, and the second with another value of the field.
pub struct Planted {
    pub base: Experiment,
    pub arm: Experiment,
    pub both: [Experiment; 2],
}

/// Every free field that no other field depends on, planted.
pub fn planted() -> Vec<(&'static FieldDef, Planted)> {
    let [bases, arms] =
        ["small", "smallcanon"].map(|arch| bases_of(&locked(&compiled_text(SMALL, arch))));
    let mut all = Vec::new();
    for def in TABLE.iter().filter(|def| def.origin != Origin::Derived) {
        let number = bases.iter().position(|base| has(base, def));
        let number = number.unwrap_or_else(|| panic!("no base has {}", def.path));
        let (base, arm) = (&bases[number], &arms[number]);
        let Some(value) =
            another_value(def, base.value(def.path)).filter(|_| !DECIDING.contains(&def.path))
        else {
            continue;
        };
        let mut values = Fields::from([(def.path.to_owned(), value)]);
        settle(def, base, &mut values);
        let changed = |experiment: &Experiment, name: &str| {
            experiment.with(name.to_owned(), &values).unwrap()
        };
        let named = |experiment: &Experiment, name: &str| {
            experiment.with(name.to_owned(), &Fields::new()).unwrap()
        };
        let both = [changed(base, "run"), changed(arm, "runcanon")];
        all.push((def, Planted { base: named(base, "run"), arm: named(arm, "runcanon"), both }));
    }
    all
}

/// The comparison of a file with two arms.
pub fn built(file: &str, arms: [&Experiment; 2]) -> Result<Comparison, NoComparison> {
    let mut sources = Sources::new();
    let id = sources.add("recipes/c.toml", file);
    let (read, diagnostics) = recipe::comparison::read(&sources, id);
    let read = read.unwrap_or_else(|| panic!("{}", dsl::render(&sources, &diagnostics)));
    let names = ["llama", "canon"].into_iter().zip(arms);
    read.comparison("c", "recipes/c.toml", names.map(|(n, e)| (n.to_owned(), e.clone())).collect())
}

/// Another valid value of the field; `None` if there is only one.
pub fn another_value(def: &FieldDef, value: Option<&FieldValue>) -> Option<FieldValue> {
    let text = |text: &str| FieldValue::text(text);
    let real = |text: &str| FieldValue::Real(Decimal::parse(text).unwrap());
    Some(match (def.kind, value) {
        (Kind::Int(_, high), Some(FieldValue::Int(n))) => {
            FieldValue::Int(if *n < high { n + 1 } else { n - 1 })
        }
        (Kind::IntOr(low, ..), _) => FieldValue::Int(low + 1),
        (Kind::Real(_), Some(FieldValue::Real(x))) => {
            real(if *x == Decimal::parse("0.25").unwrap() { "0.5" } else { "0.25" })
        }
        (Kind::RealOr(_, word), _) => text(word),
        (Kind::Pair(_), _) => FieldValue::List(vec![real("0.9"), real("0.98")]),
        (Kind::Bool, Some(FieldValue::Bool(b))) => FieldValue::Bool(!b),
        (Kind::Word(words, _), Some(FieldValue::Text(now))) => {
            text(words.iter().find(|word| *word != now)?)
        }
        // Every task has this metric.
        (Kind::Words(_), _) => text_list(&["eval_loss"]),
        (Kind::Name, _) => text("another"),
        (Kind::Names, _) => text_list(&["another"]),
        (Kind::Tasks, _) => {
            let digest = "ab".repeat(32);
            text_list(&[&format!("piqa acc 9 settings {digest} questions {digest}")])
        }
        (Kind::Letters(_), _) => text("as"),
        (Kind::Seed, _) => FieldValue::Big(u128::from(u64::MAX)),
        (Kind::Ints(..), Some(FieldValue::List(items))) if items.is_empty() => {
            FieldValue::List(vec![FieldValue::Int(3)])
        }
        (Kind::Ints(..), _) => FieldValue::List(vec![FieldValue::Int(1), FieldValue::Int(3)]),
        (Kind::Digest, _) => text(&"ab".repeat(32)),
        // Every arch has a table of tokens.
        (Kind::Patterns, _) => text_list(&[":embed"]),
        (Kind::Multipliers(_), _) => {
            FieldValue::List(vec![FieldValue::List(vec![text(":embed"), real("0.25")])])
        }
        (kind, value) => panic!("{}: {kind:?} {value:?}", def.path),
    })
}

fn text_list(words: &[&str]) -> FieldValue {
    FieldValue::List(words.iter().map(|w| FieldValue::text(*w)).collect())
}

/// Makes the changed value of a few fields valid.
pub fn settle(def: &FieldDef, base: &Experiment, values: &mut Fields) {
    if def.path == "budget.tokens" {
        let twice = match base.value(def.path) {
            Some(FieldValue::Int(n)) => FieldValue::Int(2 * n),
            value => panic!("{value:?}"),
        };
        values.insert(def.path.to_owned(), twice);
    }
    if def.path.ends_with(".N") {
        values.insert(def.path.to_owned(), FieldValue::Int(11));
    }
    if ["data.brevo.ans", "data.brevo.query"].contains(&def.path) {
        // One more is the next marker.
        values.insert(def.path.to_owned(), FieldValue::Int(9000));
    }
    if ["evaluation.suite_data", "evaluation.tokenizer_file"].contains(&def.path) {
        // Only suites use them.
        values.insert("evaluation.suites".to_owned(), text_list(&["another"]));
    }
    if def.path == "data.shuffle" {
        // The other word brings a required field.
        values.insert(def.path.to_owned(), FieldValue::text("documents"));
    }
    if def.path == "data.mano.lens" {
        // Without explicit numbers each length is its own number.
        let lens = FieldValue::List(vec![FieldValue::Int(2), FieldValue::Int(1)]);
        values.insert(def.path.to_owned(), lens);
    }
}

/// Experiments of an arch such that each field exists in one of them.
pub fn bases_of(arch: &Rc<LockedArch>) -> Vec<Experiment> {
    let linear = DEPO.replace("cosine", "linear");
    let wsd = DEPO.replace("cosine", "wsd");
    let muon = DEPO.replace("lr = 0.003", "kind = \"muon\", lr = 0.003");
    let trained =
        TEXT.replace("seq_len", "tokenizer = \"tiktoken\", tokenizer_vocab = 300, seq_len");
    let buffered = TEXT.replace("seq_len", "shuffle = \"buffer\", shuffle_buffer = 4096, seq_len");
    let tuned = format!("{DEPO}init = {{ weights = \"runs/first\" }}\n");
    let texts = [DEPO, MANO, TEXT, &linear, &wsd, &muon, BREVO, &trained, &buffered, &tuned];
    let known = texts.iter().map(|text| experiment_of(text, arch));
    let line = DEPO.lines().find(|line| line.starts_with("data")).unwrap();
    let recipe = |data: &&str| DEPO.replace(line, &format!("data = {{ {data} }}"));
    let others = OTHERS.iter().map(|data| experiment_of(&recipe(data), arch));
    known.chain(others).chain([experts_of(&arch.name)]).collect()
}

/// The same arch with experts, which have auxiliary losses, dropout, and a head for later tokens.
fn experts_of(arch: &str) -> Experiment {
    let experts = SMALL
        .replace("of decoder", "of dropout_decoder")
        .replace(
            "init lingua",
            "init lingua  head two_tokens { extra mixer_only { mixer retention { heads 2 } } }",
        )
        .replace("swiglu { hidden 16 }", "moe { count 4, hidden 16, shared 16 }");
    let text = DEPO.replace("data = 1 }", "data = 1, dropout = 5 }");
    experiment_of(&text, &locked(&compiled_text(&experts, arch)))
}

/// Whether an experiment has the field, and another value of it is possible.
pub fn has(base: &Experiment, def: &FieldDef) -> bool {
    // Two micro-batches in sequence need two.
    let graph = &base.arch.compiled.graph;
    let fits = match def.path {
        "batch.in_sequence" => base.batch.micro_batches > 1,
        "loss.ahead" => graph.ahead_heads() > 0,
        "loss.balance" | "loss.router_z" => graph.has_term("balance"),
        "seeds.dropout" => graph.has_dropout(),
        _ => true,
    };
    fits && base.value(def.path).is_some()
}
