//! The vocabulary of rules: our names for foreign keys, and the topic of each.
//!
//! In: a key as a Lingua file, a table's column or a lock writes it. Out: its row of the field table, which
//! `diff` uses as well. Must stay true: this is the only table; recipes/AUDIT.md documents it (a test
//! compares them); a key without a row is reported, and assumed to affect the result.

pub use crate::field::{Absent, Topic};
use crate::field::{Class, FOREIGN, FieldDef, Kind, TABLE};
use crate::field::{LAUNCH_COMMANDS, LAUNCH_KEYS, LAUNCH_LISTS, LAUNCH_PARTS, LAUNCHERS};

use super::value::Value;

/// The slots that Canon layers fill, as letters; empty for none.
pub const CANON: &str = "arch.canon";

/// Every row that an audit may need: the lock's fields sorted by path, then the rest.
pub fn rows() -> impl Iterator<Item = &'static FieldDef> {
    TABLE.iter().chain(FOREIGN)
}

/// Unit suffixes of columns such as `tokens_total_T`, with the value of each unit.
const UNITS: [(&str, i64); 4] =
    [("_T", 1_000_000_000_000), ("_B", 1_000_000_000), ("_M", 1_000_000), ("_K", 1000)];

/// Splits a column with a unit into its name and the unit.
pub(super) fn unit_of(name: &str) -> Option<(&str, i64)> {
    UNITS.iter().find_map(|(suffix, scale)| Some((name.strip_suffix(suffix)?, *scale)))
}

/// Finds a key by our name.
pub fn find(path: &str) -> Option<&'static FieldDef> {
    rows().find(|row| row.path == path)
}

/// Finds a key by any of its names.
pub fn known(name: &str) -> Option<&'static FieldDef> {
    let exact = |name: &str| rows().find(|row| row.path == name || row.foreign.contains(&name));
    let reported = |row: &&'static FieldDef| row.topic == Topic::Reported;
    exact(name)
        .or_else(|| exact(name.strip_suffix("_from_comment")?))
        .or_else(|| exact(unit_of(name)?.0).filter(reported))
        .or_else(|| launch(name))
        .or_else(|| below(name))
}

/// The row of a key in a launcher's section, if its name is known. Any other key there may affect the result, since a
/// launcher can set keys, start other code or set variables of the environment.
fn launch(name: &str) -> Option<&'static FieldDef> {
    let (section, key) = name.split_once('.')?;
    if !LAUNCHERS.contains(&section) {
        return None;
    }
    let key = key.to_lowercase().replace('-', "_");
    let parts: Vec<&str> =
        key.split('.').map(|part| part.strip_prefix("slurm_").unwrap_or(part)).collect();
    let command = |part: &&str| {
        LAUNCH_COMMANDS.contains(part) || part.ends_with("_args") || part.ends_with("_overrides")
    };
    if parts.iter().any(command) {
        return find("lingua.command.*");
    }
    let whole = name.split_once('.').map_or("", |(_, key)| key);
    if whole.starts_with("env.") {
        return rows().find(|row| row.foreign.contains(&whole));
    }
    // Parts of the section, one key, and below a list anything.
    let at = parts.iter().position(|part| !LAUNCH_PARTS.contains(part)).unwrap_or(parts.len() - 1);
    let rest = parts.get(at..).unwrap_or_default();
    let known = match rest {
        [key] => LAUNCH_KEYS.contains(key) || LAUNCH_LISTS.contains(key),
        [list, ..] => LAUNCH_LISTS.contains(list),
        [] => false,
    };
    find("lingua.launch.*").filter(|_| known)
}

/// The row that covers a whole section: the longest match.
fn below(name: &str) -> Option<&'static FieldDef> {
    let fits = |pattern: &str| {
        pattern
            .strip_suffix('*')
            .filter(|start| name.len() > start.len() && name.starts_with(start))
            .map(str::len)
    };
    let of_row = |row: &'static FieldDef| {
        // Our own names for another trainer's sections are not a way to write a key.
        let own = (!row.path.starts_with("lingua.")).then_some(&row.path);
        let patterns = row.foreign.iter().chain(own);
        patterns.filter_map(|pattern| fits(pattern)).max().map(|length| (length, row))
    };
    rows().filter_map(of_row).max_by_key(|(length, _)| *length).map(|(_, row)| row)
}

/// An experiment's path for a key: ours, or the key itself if a row covers a whole section.
pub(super) fn path_of(key: &str) -> Option<String> {
    let row = known(key)?;
    let exact = row.path == key || row.foreign.contains(&key);
    Some(match row.path.ends_with(".*") {
        true => key.to_owned(),
        // Two columns may give the same number in two units.
        false if !exact && row.topic == Topic::Reported => match unit_of(key) {
            Some((_, scale)) => format!("{}.{scale}", row.path),
            None => row.path.to_owned(),
        },
        false => row.path.to_owned(),
    })
}

/// The row of a path that `path_of` made.
pub fn row(path: &str) -> Option<&'static FieldDef> {
    let plain = || path.rsplit_once('.').filter(|_| path.starts_with("reported."));
    find(path).or_else(|| find(plain()?.0)).or_else(|| known(path))
}

/// The key that was probably meant by a wrong one.
pub(super) fn suggest(key: &str) -> Option<&'static str> {
    // A field without its section, or by a short name: `lr`, `wd`.
    let last = |path: &str| path.rsplit('.').next() == Some(key);
    let short = |row: &&FieldDef| row.also.contains(&key) || last(row.path);
    if let Some(row) = rows().find(short) {
        return Some(row.path);
    }
    let names = || rows().flat_map(|row| row.foreign.iter().copied().chain([row.path]));
    if let Some(name) = names().find(|name| last(name)) {
        return Some(name);
    }
    dsl::suggest(key, names().filter(|name| !name.ends_with(".*")))
}

/// Whether a key is named like a result, which no table of settings contains.
pub(super) fn is_result(key: &str) -> bool {
    const RESULTS: [&str; 12] = [
        "acc",
        "accuracy",
        "bleu",
        "bpb",
        "em",
        "f1",
        "loss",
        "perplexity",
        "ppl",
        "result",
        "score",
        "scores",
    ];
    let words = key.split(|c: char| !c.is_ascii_alphanumeric());
    words.into_iter().any(|word| RESULTS.iter().any(|known| word.eq_ignore_ascii_case(known)))
}

/// Whether a key has a word for none.
pub(super) fn has_none(row: &FieldDef) -> bool {
    let or = matches!(row.kind, Kind::IntOr(_, _, "none") | Kind::RealOr(_, "none"));
    or || row.kind.has_word("none") || row.absent == Absent::Default("none")
}

/// Whether a key may be on or off.
pub(super) fn is_switch(path: &str) -> bool {
    find(path).is_some_and(|row| matches!(row.absent, Absent::Is("true" | "false")))
}

/// Normalises a value as the key's row requires. Off is written in many ways: `0`, `0.0`, `none` and
/// `false`. For a key with a word for none, `false` becomes that word.
pub(super) fn normal(path: &str, value: Value) -> Value {
    let Some(row) = row(path).filter(|row| row.path == path) else { return value };
    let switch = matches!(row.kind, Kind::Bool);
    if (switch || is_switch(path)) && value.is_off() {
        // A factor is switched by its size.
        Value::Bool(false)
    } else if switch && (value == Value::int(1) || value.is_on()) {
        Value::Bool(true)
    } else if value == Value::Bool(false) && is_nothing(row) {
        Value::text("none")
    } else {
        value
    }
}

/// Whether a key's word for none is `none`.
fn is_nothing(row: &FieldDef) -> bool {
    has_none(row) && !row.synonyms.iter().any(|(theirs, _)| *theirs == "false")
}

/// Whether a key holds words in any order.
pub(super) fn is_list(row: &FieldDef) -> bool {
    matches!(row.kind, Kind::Words(_) | Kind::Names)
}

/// Whether a key holds a number, with the word that it may hold instead.
pub(super) fn numeric(path: &str) -> Option<Option<&'static str>> {
    if path.strip_prefix(CANON).is_some_and(|rest| rest.starts_with(".kernel")) {
        return Some(None);
    }
    let of_section = |row: &&FieldDef| !row.path.ends_with(".*") || row.path == "data.sources.*";
    match row(path).filter(of_section)?.kind {
        Kind::IntOr(_, _, word) | Kind::RealOr(_, word) => Some(Some(word)),
        Kind::Int(..) | Kind::Real(_) | Kind::Seed => Some(None),
        Kind::Pair(_)
        | Kind::Bool
        | Kind::Word(..)
        | Kind::Words(_)
        | Kind::Name
        | Kind::Names
        | Kind::Letters(_)
        | Kind::Ints(..)
        | Kind::Digest
        | Kind::Patterns
        | Kind::Multipliers(_)
        | Kind::Tasks => None,
    }
}

/// The topic of a difference in a key. A key without a row is assumed to affect the result.
pub fn class(path: &str) -> Topic {
    match row(path) {
        Some(row) => row.topic,
        None if path.starts_with("data.") => Topic::Data,
        None => Topic::Training,
    }
}

/// Whether a key affects how the weights are measured: two arms that differ in it cannot be compared.
pub(super) fn is_measured(path: &str) -> bool {
    row(path).is_some_and(|row| row.class == Class::Measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_by_anyones_name() {
        for (key, path) in [
            ("optim.lr", "optimizer.lr"),
            ("optimizer.lr", "optimizer.lr"),
            ("gpus_from_comment", "platform.devices"),
            ("steps_from_comment", "budget.steps"),
            ("tokens_total_T", "reported.tokens.1000000000000"),
            ("tokens_total", "reported.tokens"),
            ("logging.wandb.project", "logging.wandb.project"),
            ("data.sources.books", "data.sources.books"),
            ("arch.mixer.of_my_own", "arch.mixer.of_my_own"),
            ("eval.harness.num_fewshot", "eval.harness.num_fewshot"),
        ] {
            assert_eq!(path_of(key).as_deref(), Some(path), "{key}");
            assert!(row(path).is_some(), "{path}");
        }
        for key in [
            "my.flag",
            "optim.lrr",
            "data.shuffle_seed",
            "env.NVIDIA_TF32_OVERRIDE",
            "launch.optim.lr",
            "launch.env.NVIDIA_TF32_OVERRIDE",
            "launch.job.seed",
            "slurm.partition.seed",
            "lingua.launch.optim.lr",
        ] {
            assert_eq!(path_of(key), None, "{key}");
        }
        assert_eq!(suggest("optim.lrr"), Some("optim.lr"));
        for (short, path) in [
            ("lr", "optimizer.lr"),
            ("wd", "optimizer.weight_decay"),
            ("weight_decay", "optimizer.weight_decay"),
            ("n_layers", "model.n_layers"),
            ("warmup", "schedule.warmup"),
        ] {
            assert_eq!(suggest(short), Some(path), "{short}");
        }
        assert!(is_result("score") && is_result("val_loss") && !is_result("class"));
        for key in [
            "cmd",
            "launch.overrides",
            "launch.overrides.optim.lr",
            "slurm.command",
            "stool.script",
            "sbatch.extra_args",
            "launch.config",
            "stool.config_file",
            "launcher.hydra-overrides",
            "slurm.slurm_setup",
            "slurm.export",
        ] {
            assert_eq!(class(key), Topic::Training, "{key}");
            assert_eq!(path_of(key).as_deref(), Some(key));
        }
        for key in [
            "stool.override",
            "launcher.slurm-partition",
            "launch.resources.cpus",
            "sbatch.exclude.0",
        ] {
            assert_eq!(class(key), Topic::Setup, "{key}");
        }
        assert_eq!(class("slurm.comment"), Topic::Setup);
        assert_eq!(class("logging.wandb.project"), Topic::Setup);
        assert_eq!(class("eval.harness.num_fewshot"), Topic::Evaluation);
        assert_eq!(class("data.sources.books"), Topic::Data);
        assert_eq!(class("reported.tokens.1000000000000"), Topic::Reported);
        assert_eq!(class("data.of_nobody"), Topic::Data);
    }
}
