//! Our names for foreign keys, and the topic of each key: rows of lab's field table and of `FOREIGN`.
//!
//! recipes/AUDIT.md documents the rows, and a test compares them. A key without a row is reported, and assumed to affect
//! the result.

use std::collections::HashMap;
use std::sync::LazyLock;

use lab::field::{Absent, Class, FieldDef, Kind, TABLE, Topic};

use crate::foreign::FOREIGN;
use crate::launchers::{LAUNCH_CHOICES, LAUNCH_COMMANDS, LAUNCH_HARMLESS, LAUNCH_PARTS, LAUNCHERS};
use crate::value::KeyValue;
use crate::vocabularies::{self, GENERIC, LINGUA, Meaning, Vocabulary};

/// The slots that Canon layers fill, as letters; empty for none.
pub const CANON: &str = "arch.canon";

pub(crate) const TOKENS_PER_STEP: &str = "batch.tokens_per_step";
pub(crate) const TOKENS: &str = "budget.tokens";
pub(crate) const ROPE_SHARE: &str = "arch.mixer.rope.share";
pub(crate) const ROPE_DIMS: &str = "arch.mixer.rope.dims";
pub(crate) const DEVICES: &str = "platform.devices";
pub(crate) const NODES: &str = "lingua.nodes";
pub(crate) const NODE_DEVICES: &str = "lingua.node_devices";
pub(crate) const NODE_TASKS: &str = "lingua.node_tasks";
pub(crate) const TASKS: &str = "lingua.tasks";

/// Keys that count a part of a launch.
pub(crate) const COUNTS: [&str; 5] = [DEVICES, NODE_DEVICES, NODE_TASKS, NODES, TASKS];

/// Suffix of a column that repeats a value from a comment.
pub(crate) const COMMENT: &str = "_from_comment";

/// Digest of a lock's graph with every slot emptied. Twins share it.
pub(crate) const BARE_GRAPH: &str = "arch.graph_without_slots";

/// Digest of the manifest of that graph: every parameter's path, shape, init rule and key.
pub(crate) const BARE_MANIFEST: &str = "arch.manifest_without_slots";

/// Digest of a lock's graph with its slots but without their fills: shows where the slots are.
pub(crate) const SLOT_PLACES: &str = "arch.slots_without_fills";

/// Digests, narrowest first: each covers everything that the one before it covers.
pub(crate) const BARE: [&str; 3] = [BARE_GRAPH, BARE_MANIFEST, SLOT_PLACES];

/// Every row that an audit may need: the lock's fields sorted by path, then the rest.
pub fn rows() -> impl Iterator<Item = &'static FieldDef> {
    TABLE.iter().chain(FOREIGN)
}

/// The rows by their names. Of several rows with one name, the first counts.
struct Index {
    /// By our name.
    paths: HashMap<&'static str, &'static FieldDef>,
    /// By any name.
    names: HashMap<&'static str, &'static FieldDef>,
    /// Beginnings of keys that a row covers as a section, in the order of the rows.
    sections: Vec<(&'static str, &'static FieldDef)>,
}

static INDEX: LazyLock<Index> = LazyLock::new(|| {
    let mut index = Index { paths: HashMap::new(), names: HashMap::new(), sections: Vec::new() };
    for row in rows() {
        index.paths.entry(row.path).or_insert(row);
        for name in row.foreign.iter().chain([&row.path]) {
            index.names.entry(name).or_insert(row);
        }
        // Our own names for another trainer's sections are not a way to write a key.
        let ours = (!row.path.starts_with("lingua.")).then_some(&row.path);
        let patterns = row.foreign.iter().chain(ours);
        let beginnings = patterns.filter_map(|pattern| pattern.strip_suffix('*'));
        index.sections.extend(beginnings.map(|beginning| (beginning, row)));
    }
    index
});

/// Unit suffixes of columns such as `tokens_total_T`, with the value of each unit.
const UNITS: [(&str, i64); 4] =
    [("_T", 1_000_000_000_000), ("_B", 1_000_000_000), ("_M", 1_000_000), ("_K", 1000)];

/// Splits a column with a unit into its name and the unit.
pub(crate) fn unit_of(name: &str) -> Option<(&str, i64)> {
    UNITS.iter().find_map(|(suffix, scale)| Some((name.strip_suffix(suffix)?, *scale)))
}

/// Finds a key by our name.
pub fn find(path: &str) -> Option<&'static FieldDef> {
    INDEX.paths.get(path).copied()
}

/// Finds a key by any of its names.
pub fn known(name: &str) -> Option<&'static FieldDef> {
    let exact = |name: &str| INDEX.names.get(name).copied();
    let reported = |row: &&'static FieldDef| row.topic == Topic::Reported;
    exact(name)
        .or_else(|| exact(name.strip_suffix(COMMENT)?))
        .or_else(|| exact(unit_of(name)?.0).filter(reported))
        .or_else(|| launch(name))
        .or_else(|| section_of(name))
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
    let variable = name.split_once('.').map_or("", |(_, key)| key);
    if variable.starts_with("env.") {
        return rows().find(|row| row.foreign.contains(&variable));
    }
    // Parts of the section, then one key, or a list with anything below.
    let at = parts.iter().position(|part| !LAUNCH_PARTS.contains(part)).unwrap_or(parts.len() - 1);
    let rest = parts.get(at..).unwrap_or_default().join(".");
    let listed = |keys: &[&str]| {
        keys.iter().any(|key| match key.strip_suffix('*') {
            Some(start) => rest.starts_with(start),
            None => *key == rest,
        })
    };
    if let Some((path, _)) = LAUNCH_CHOICES.iter().find(|(_, keys)| listed(keys)) {
        return find(path);
    }
    let harmless = LAUNCH_HARMLESS.iter().any(|(_, keys)| listed(keys));
    find("lingua.launch.*").filter(|_| harmless)
}

/// Whether a key means the same in every trainer's files: a name of ours, a column that repeats a key, or a key of a
/// launch.
pub(crate) fn is_shared(key: &str) -> bool {
    let launched = key.split_once('.').is_some_and(|(section, _)| LAUNCHERS.contains(&section));
    let row = known(key);
    let named = row.is_some_and(|row| row.path == key || row.topic == Topic::Reported);
    let counts = row.is_some_and(|row| COUNTS.contains(&row.path));
    named || counts || (row.is_some() && (launched || key.starts_with("env.")))
}

/// What a key means in a vocabulary, and the default there.
pub(crate) fn foreign(
    vocabulary: &Vocabulary,
    key: &str,
) -> Option<(Meaning, Option<&'static str>)> {
    let common = |(name, reason): &(&'static str, &'static str)| {
        let covers = match name.strip_suffix('*') {
            Some(start) => key.starts_with(start),
            None => *name == key,
        };
        covers.then_some((Meaning::Harmless(reason), None))
    };
    let reached = || {
        vocabularies::REACHED
            .contains(&vocabularies::leaf(key))
            .then_some((Meaning::About(Topic::Budget), None))
    };
    let known = vocabulary.find(key).or_else(reached);
    known.or_else(|| vocabularies::HARMLESS.iter().find_map(common))
}

/// Whether a column has one of canonc's names, in a section that other trainers hardly have.
pub(crate) fn is_ours(key: &str) -> bool {
    const SECTIONS: [&str; 6] = ["arch.", "batch.", "budget.", "precision.", "schedule.", "seeds."];
    SECTIONS.iter().any(|section| key.starts_with(section)) && find(key).is_some()
}

/// A count with a letter for its size as a number: `124M`.
pub(crate) fn count_of(cell: &str) -> String {
    let cell = cell.trim();
    let zeros = match cell.chars().next_back() {
        Some('k' | 'K') => 3,
        Some('m' | 'M') => 6,
        Some('b' | 'B') => 9,
        Some(_) | None => return cell.to_owned(),
    };
    format!("{}e{zeros}", cell.get(..cell.len() - 1).unwrap_or_default())
}

/// Whether a row's name counts the parameters of a model.
pub(crate) fn is_model_size(key: &str) -> bool {
    let lower = vocabularies::lower(vocabularies::leaf(key));
    vocabularies::MODEL_SIZE.contains(&lower.trim_matches('_'))
}

/// Whether a key holds the name of something, such as a version or a commit, which may look like a number.
pub(crate) fn is_name(key: &str) -> bool {
    let lower = vocabularies::lower(key);
    let mut words = lower.split('_').filter(|word| !word.is_empty());
    words.clone().any(|word| vocabularies::VERSIONS.contains(&word))
        || words.next_back().is_some_and(|word| vocabularies::NAMES.contains(&word))
}

/// Whether a key without a row is a result: a measurement, or in a table a record of the run.
pub(crate) fn is_result(key: &str, cell: &str, in_table: bool) -> bool {
    let value = KeyValue::parse(cell);
    let not_a_number = ["nan", "inf", "-inf", "infinity", "-infinity"];
    let numeric = match &value {
        None | Some(KeyValue::Number(_)) => true,
        Some(_) => not_a_number.contains(&cell.trim().to_lowercase().as_str()),
    };
    let empty = value.is_none();
    (numeric && vocabularies::is_metric(key, in_table))
        || (in_table && vocabularies::is_record(key, numeric && !empty))
}

/// The row that covers a whole section: the longest match.
fn section_of(name: &str) -> Option<&'static FieldDef> {
    let covers =
        |(start, _): &&(&str, &FieldDef)| name.len() > start.len() && name.starts_with(start);
    let longest = INDEX.sections.iter().filter(covers).max_by_key(|(start, _)| start.len());
    longest.map(|(_, row)| *row)
}

/// An experiment's path for a key: ours, or the key itself if a row covers a whole section.
pub(crate) fn path_of(key: &str) -> Option<String> {
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

/// The key that was probably meant by a wrong one, in the words of a vocabulary.
pub(crate) fn suggest(vocabulary: &'static Vocabulary, key: &str) -> Option<&'static str> {
    // A field without its section, or by a short name: `lr`, `wd`.
    let last = |path: &str| path.rsplit('.').next() == Some(key);
    if *vocabulary != LINGUA && *vocabulary != GENERIC {
        return vocabulary
            .names()
            .find(|name| last(name))
            .or_else(|| dsl::suggest(key, vocabulary.names()));
    }
    let short = |row: &&FieldDef| row.also.contains(&key) || last(row.path);
    if let Some(row) = rows().find(short) {
        return Some(row.path);
    }
    // Files of no known trainer are not asked to use Lingua's names.
    let theirs = *vocabulary == LINGUA;
    let names = || {
        let foreign =
            move |row: &'static FieldDef| row.foreign.iter().copied().filter(move |_| theirs);
        rows().flat_map(move |row| foreign(row).chain([row.path]))
    };
    if let Some(name) = names().find(|name| last(name)) {
        return Some(name);
    }
    dsl::suggest(key, names().filter(|name| !name.ends_with(".*")))
}

/// Whether a key has a word for none.
pub(crate) fn has_none(row: &FieldDef) -> bool {
    let or = matches!(row.kind, Kind::IntOr(_, _, "none") | Kind::RealOr(_, "none"));
    or || row.kind.has_word("none") || row.absent == Absent::Default("none")
}

/// Whether a key may be on or off.
pub(crate) fn is_switch(path: &str) -> bool {
    find(path).is_some_and(|row| matches!(row.absent, Absent::Is("true" | "false")))
}

/// Normalises a value as the key's row requires. Off is written in many ways: `0`, `0.0`, `none` and
/// `false`. For a key with a word for none, `false` becomes that word.
pub(crate) fn normal(path: &str, value: KeyValue) -> KeyValue {
    let Some(row) = row(path).filter(|row| row.path == path) else { return value };
    let switch = matches!(row.kind, Kind::Bool);
    if (switch || is_switch(path)) && value.is_off() {
        // A factor is switched by its size.
        KeyValue::Bool(false)
    } else if switch && (value == KeyValue::int(1) || value.is_on()) {
        KeyValue::Bool(true)
    } else if value == KeyValue::Bool(false) && is_nothing(row) {
        KeyValue::text("none")
    } else {
        value
    }
}

/// Whether a key's word for none is `none`.
fn is_nothing(row: &FieldDef) -> bool {
    has_none(row) && !row.synonyms.iter().any(|(theirs, _)| *theirs == "false")
}

/// Whether a key holds words in any order.
pub(crate) fn is_list(row: &FieldDef) -> bool {
    matches!(row.kind, Kind::Words(_) | Kind::Names)
}

/// Whether a key holds a number, with the word that it may hold instead.
pub(crate) fn numeric(path: &str) -> Option<Option<&'static str>> {
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
pub(crate) fn is_measured(path: &str) -> bool {
    row(path).is_some_and(|row| row.class == Class::Measured)
}

/// Translates a foreign word into ours.
pub(crate) fn synonym(path: &str, value: KeyValue) -> KeyValue {
    let text = value.to_string();
    let words = find(path).map_or(&[][..], |row| row.synonyms);
    let ours = words.iter().find(|(theirs, _)| theirs.eq_ignore_ascii_case(&text));
    ours.map_or(value, |(_, ours)| KeyValue::text(*ours))
}

/// Whether a path is a key of the treatment or below one.
pub(crate) fn of_treatment(treatment: &[String], path: &str) -> bool {
    treatment.iter().any(|entry| {
        path.strip_prefix(entry.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// A field of ours that says how results are measured, and that this entry of a treatment covers.
pub(crate) fn measured_under(entry: &str) -> Option<&'static str> {
    let entry = [entry.to_owned()];
    let measured = TABLE.iter().filter(|def| def.is_measurement());
    measured.map(|def| def.path).find(|path| of_treatment(&entry, path))
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
    }

    #[test]
    fn wrong_and_short_keys_are_understood() {
        assert_eq!(suggest(&LINGUA, "optim.lrr"), Some("optim.lr"));
        for (short, path) in [
            ("lr", "optimizer.lr"),
            ("wd", "optimizer.weight_decay"),
            ("weight_decay", "optimizer.weight_decay"),
            ("n_layers", "model.n_layers"),
            ("warmup", "schedule.warmup"),
        ] {
            assert_eq!(suggest(&LINGUA, short), Some(path), "{short}");
        }
    }

    #[test]
    fn keys_of_launchers_have_topics() {
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
        for key in ["launcher.slurm-account", "launch.resources.cpus", "sbatch.mail_type.0"] {
            assert_eq!(class(key), Topic::Setup, "{key}");
        }
        for (key, topic) in [
            ("stool.override", Topic::Training),
            ("launcher.slurm-partition", Topic::Kernel),
            ("sbatch.exclude.0", Topic::Kernel),
            ("slurm.container_image", Topic::Training),
            ("launch.container_mounts.0", Topic::Data),
            ("env.CUDA_VISIBLE_DEVICES", Topic::Budget),
            ("launch.env.PYTHONPATH", Topic::Training),
        ] {
            assert_eq!(class(key), topic, "{key}");
        }
        assert_eq!(class("slurm.comment"), Topic::Setup);
    }

    #[test]
    fn keys_of_sections_have_the_topic_of_the_section() {
        assert_eq!(class("logging.wandb.project"), Topic::Setup);
        assert_eq!(class("eval.harness.num_fewshot"), Topic::Evaluation);
        assert_eq!(class("data.sources.books"), Topic::Data);
        assert_eq!(class("reported.tokens.1000000000000"), Topic::Reported);
        assert_eq!(class("data.of_nobody"), Topic::Data);
    }
}
