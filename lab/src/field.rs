//! The field table: every field of an experiment, its allowed values and its effect on a result.
//!
//! Recipes, locks, comparisons and reports all read [`TABLE`]. A field's class is defined only here, and a test changes
//! each field and checks that the digests change as its class promises. A field added after version 1 enters a digest only
//! when it differs from its neutral value. Fields of the arch are not listed, since each arch brings its own
//! (`arch.layers.3.mixer.heads`): they are semantic through `arch.graph` and `arch.manifest`, so that renaming or
//! refactoring an arch changes no id.

/// Keys of a launch: at the top level, and in each section that launchers use.
#[macro_export]
macro_rules! launch {
    ($($key:literal),* $(; $($other:literal),*)?) => {
        &[
            $(
                $key,
                concat!("launch.", $key),
                concat!("launcher.", $key),
                concat!("sbatch.", $key),
                concat!("slurm.", $key),
                concat!("stool.", $key),
            )*
            $($($other,)*)?
        ]
    };
}

mod value;
mod written;
mod pattern;
mod suite_task;
mod kind;
mod topic;
mod table;

use std::collections::BTreeMap;

use tasks::task::Definition;

pub use kind::{Kind, UNBOUND};
pub(crate) use kind::{one_of, renamed};
pub(crate) use pattern::Pattern;
pub use suite_task::SuiteTask;
pub use table::TABLE;
use table::{TASK, TEXT, TEXT_METRICS, USUAL_TEXT_METRICS};
pub use topic::{Absent, Topic};
pub use value::{Bounds, FieldValue, quote};
pub(crate) use written::{row, shown, string};

/// Values of free fields by path.
pub type Fields = BTreeMap<String, FieldValue>;

/// How a field affects a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Changes the computation in exact arithmetic: part of the `train` digest, which is the id.
    Semantic,
    /// Changes how the weights are measured, not the weights: part of the `eval` digest.
    Measured,
    /// Changes rounding only: part of the `platform` digest.
    Platform,
    /// Only another trainer reads it, and there it can change a result. It changes nothing in canonc, so no id
    /// covers it; if arms differ in it, that is a confound unless canonc runs both.
    Carried,
    /// Changes no bit of any loss or weight: in no digest except the file's own.
    Cosmetic,
}

impl Class {
    /// The word in tables and reports.
    pub fn word(self) -> &'static str {
        match self {
            Class::Semantic => "semantic",
            Class::Measured => "measured",
            Class::Platform => "platform",
            Class::Carried => "carried",
            Class::Cosmetic => "cosmetic",
        }
    }
}

/// The origin of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Chosen by someone.
    Free,
    /// Computed from free fields.
    Derived,
    /// Of `budget.steps` and `budget.tokens`, the one that was not chosen follows from the other. Both
    /// affect training, so a difference in either is a confound unless it is in the treatment.
    Decides,
}

/// The default of a field.
#[derive(Clone, Copy)]
pub enum Default {
    /// No default: the field is required.
    Required,
    /// A value, as TOML.
    Is(&'static str),
    /// Computed from other fields; the text says how.
    From(fn(&Fields) -> Option<FieldValue>, &'static str),
    /// The integers from 1 to the value of the field at this path.
    UpTo(&'static str),
    /// The value of the field at this path.
    SameAs(&'static str),
}

impl Default {
    /// How a computed default follows from other fields; `None` for other defaults.
    pub fn rule(&self) -> Option<String> {
        match self {
            Default::Required | Default::Is(_) => None,
            Default::From(_, words) => Some((*words).to_owned()),
            Default::UpTo(path) => Some(format!("1 to `{path}`")),
            Default::SameAs(path) => Some(format!("`{path}`")),
        }
    }
}

/// One row of the table.
#[derive(Clone, Copy)]
pub struct FieldDef {
    /// Its path in recipes and locks: `optimizer.lr`.
    pub path: &'static str,
    /// The results that it can change.
    pub class: Class,
    /// Whether it is chosen or computed.
    pub origin: Origin,
    /// The values that it accepts.
    pub kind: Kind,
    /// Its value where a recipe does not give it.
    pub default: Default,
    /// The field exists only if another field holds one of these words; without words, if that field is given.
    pub only: Option<(&'static str, &'static [&'static str])>,
    /// For a derived field that may be written: the free field that then follows from it.
    pub instead: Option<&'static str>,
    /// The revision of this table that added it.
    pub since: u32,
    /// For fields added after revision 1: the value that means the same as a lock without the field.
    pub neutral: &'static str,
    /// Unit of the value; empty for none.
    pub unit: &'static str,
    /// Its meaning in one or two sentences.
    pub doc: &'static str,
    /// Other common names, which are suggested but never accepted.
    pub also: &'static [&'static str],
    /// The topic of a difference in it.
    pub topic: Topic,
    /// The keys and columns of foreign files that mean this field. `.*` at the end covers everything below.
    pub foreign: &'static [&'static str],
    /// The meaning of a foreign file without the key.
    pub absent: Absent,
    /// Foreign words for values: theirs, ours.
    pub synonyms: &'static [(&'static str, &'static str)],
    /// Whether it records the source or the tokenization of text.
    pub records_text: bool,
    /// For platform fields: no value of it changes a bit of what canonc computes.
    pub exact: bool,
}

/// A field that someone chooses, with the usual topic of its class.
pub const fn free(path: &'static str, class: Class, kind: Kind, doc: &'static str) -> FieldDef {
    let (origin, default) = (Origin::Free, Default::Required);
    let (only, instead, since, neutral, unit, also) = (None, None, 1, "", "", &[] as &[_]);
    let topic = Topic::usual(path, class);
    let (foreign, absent, synonyms) = (&[] as &[_], Absent::Unknown, &[] as &[_]);
    FieldDef {
        path,
        class,
        origin,
        kind,
        default,
        only,
        instead,
        since,
        neutral,
        unit,
        doc,
        also,
        topic,
        foreign,
        absent,
        synonyms,
        records_text: false,
        exact: false,
    }
}

const fn derived(
    path: &'static str,
    class: Class,
    unit: &'static str,
    doc: &'static str,
) -> FieldDef {
    let kind = Kind::Name;
    FieldDef { origin: Origin::Derived, unit, ..free(path, class, kind, doc) }
}

impl FieldDef {
    const fn is(self, value: &'static str) -> FieldDef {
        FieldDef { default: Default::Is(value), ..self }
    }

    const fn from(self, rule: fn(&Fields) -> Option<FieldValue>, words: &'static str) -> FieldDef {
        FieldDef { default: Default::From(rule, words), ..self }
    }

    const fn only(self, path: &'static str, words: &'static [&'static str]) -> FieldDef {
        FieldDef { only: Some((path, words)), ..self }
    }

    /// A field that exists only if another one is given.
    const fn with(self, path: &'static str) -> FieldDef {
        self.only(path, &[])
    }

    /// A field added after the first locks, with the value that those had implicitly.
    const fn younger(self, neutral: &'static str) -> FieldDef {
        FieldDef { since: 2, neutral, ..self }
    }

    /// A derived field that a recipe may write instead of a free one, which then follows.
    const fn instead(self, kind: Kind, free: &'static str) -> FieldDef {
        FieldDef { kind, instead: Some(free), ..self }
    }

    /// Whether its default follows from other fields.
    pub fn follows(&self) -> bool {
        match self.default {
            Default::Required | Default::Is(_) => false,
            Default::From(..) | Default::UpTo(_) | Default::SameAs(_) => true,
        }
    }

    /// Whether a recipe may write it.
    pub fn is_writable(&self) -> bool {
        self.origin != Origin::Derived || self.instead.is_some()
    }

    const fn unit(self, unit: &'static str) -> FieldDef {
        FieldDef { unit, ..self }
    }

    const fn also(self, also: &'static [&'static str]) -> FieldDef {
        FieldDef { also, ..self }
    }

    const fn decides(self) -> FieldDef {
        FieldDef { origin: Origin::Decides, ..self }
    }

    /// The topic of a difference in it.
    pub const fn about(self, topic: Topic) -> FieldDef {
        FieldDef { topic, ..self }
    }

    /// The keys and columns of foreign files that mean it.
    pub const fn called(self, foreign: &'static [&'static str]) -> FieldDef {
        FieldDef { foreign, ..self }
    }

    /// A missing key means this value.
    pub const fn means(self, value: &'static str) -> FieldDef {
        FieldDef { absent: Absent::Is(value), ..self }
    }

    /// The other trainer's documented default.
    pub const fn default_there(self, value: &'static str) -> FieldDef {
        FieldDef { absent: Absent::Default(value), ..self }
    }

    /// A missing key means another field's value.
    pub const fn same_as(self, path: &'static str) -> FieldDef {
        FieldDef { absent: Absent::As(path), ..self }
    }

    /// Foreign words for values: theirs, ours.
    pub const fn spoken(self, synonyms: &'static [(&'static str, &'static str)]) -> FieldDef {
        FieldDef { synonyms, ..self }
    }

    const fn exact(self) -> FieldDef {
        FieldDef { exact: true, ..self }
    }

    const fn records_text(self) -> FieldDef {
        FieldDef { records_text: true, ..self }
    }

    /// Whether it affects another trainer's scores only: no weight and no measurement of canonc.
    pub fn reaches_scores(&self) -> bool {
        self.class == Class::Cosmetic && self.topic == Topic::Evaluation
    }

    /// Whether a difference can change a loss or a weight, here or in the trainer that reads it.
    pub fn reaches_result(&self) -> bool {
        match self.class {
            Class::Semantic | Class::Platform | Class::Carried => true,
            // A field that may be written instead of one that affects the result also affects it.
            Class::Measured | Class::Cosmetic => {
                self.origin == Origin::Decides || self.instead.is_some()
            }
        }
    }

    /// The class under which locks list and digest it. A carried field stays where the first locks have it:
    /// among the cosmetic fields, or the platform's if it is about another trainer's rounding.
    pub fn listed(&self) -> Class {
        match (self.class, self.topic) {
            (Class::Carried, Topic::Numerics) => Class::Platform,
            (Class::Carried, _) => Class::Cosmetic,
            (class, _) => class,
        }
    }

    /// Whether the field exists, given the other fields.
    pub fn exists(&self, fields: &Fields) -> bool {
        holds(self.only, fields)
    }

    /// Whether a value is part of its class's digest.
    pub fn enters(&self, value: &FieldValue) -> bool {
        self.since == 1 || value.to_string() != self.neutral
    }

    /// The table of a recipe that the field is written in, and its key there: `data.depo` and `N`.
    pub fn table_and_name(&self) -> (&'static str, &'static str) {
        let task = self.path.strip_prefix("data.").is_some_and(|rest| rest.contains('.'));
        let parts = if task { self.path.rsplit_once('.') } else { self.path.split_once('.') };
        parts.unwrap_or(("", self.path))
    }

    /// Whether it says how results are measured, or when. Such a field is no treatment, wherever one can be given:
    /// arms that are measured differently cannot be compared.
    pub fn is_measurement(&self) -> bool {
        self.class == Class::Measured || self.section() == MEASUREMENTS
    }

    /// `optimizer` of `optimizer.lr`.
    pub fn section(&self) -> &'static str {
        self.path.split_once('.').map_or(self.path, |(section, _)| section)
    }
}

/// The section about what is measured.
pub(crate) const MEASUREMENTS: &str = "evaluation";

/// A rule that affects results but is neither a field, nor a primitive or generator, which have their
/// own revisions.
#[derive(Clone, Copy, Debug)]
pub struct RevisedRule {
    /// Name in `revision.NAME`.
    pub name: &'static str,
    /// Raised when the same lock begins to give a different number.
    pub revision: i64,
    /// The computations that it covers.
    pub doc: &'static str,
    only: Option<(&'static str, &'static [&'static str])>,
}

/// The list of rules. Raise a revision by one in the change that makes the same lock give a different number
/// in exact arithmetic: a different draw, formula, order or count. Do not raise it for a rewrite that only
/// rounds differently, a new field (it has its own neutral value) or a new choice of an old field (a new
/// word). From 2 on, a revision is in the id as `revision.NAME`; revision 1, the neutral value, is not
/// written, so that ids older than this list keep their meaning. A lock with another revision than the
/// one here is refused, and the error names the rule.
pub const RULES: &[RevisedRule] = &[
    rule("init", "How a parameter's init rule, key and seed become its first value."),
    rule(
        "loss",
        "The targets that count, the quantity summed over them, and the divisor of the sum.",
    ),
    rule("schedule", "The learning rate at each step, for every kind."),
    RevisedRule {
        only: Some((TASK, TEXT)),
        ..rule(
            "text",
            "The byte tokenizer, which documents are held out, their order, and how windows are numbered.",
        )
    },
    rule(
        "update",
        "The tree that sums gradients, the norm and the clip, AdamW, Muon, and their decay.",
    ),
];

const fn rule(name: &'static str, doc: &'static str) -> RevisedRule {
    RevisedRule { name, revision: 1, doc, only: None }
}

impl RevisedRule {
    /// Whether the rule affects an experiment with these fields.
    pub fn applies(&self, fields: &Fields) -> bool {
        holds(self.only, fields)
    }

    /// The name of its revision in the id.
    pub fn path(&self) -> String {
        format!("revision.{}", self.name)
    }
}

/// The word for a field that is not given, where other fields exist only with it.
pub(crate) const NONE: &str = "none";

/// Whether a field holds one of the words in a condition, or is given if it has none.
fn holds(only: Option<(&str, &[&str])>, fields: &Fields) -> bool {
    only.is_none_or(|(path, words)| {
        let word = fields.get(path).and_then(FieldValue::as_text);
        word.is_some_and(|word| words.contains(&word) || words.is_empty() && word != NONE)
    })
}

/// Finds the row of a path.
pub fn find(path: &str) -> Option<&'static FieldDef> {
    TABLE.binary_search_by(|def| def.path.cmp(path)).ok().and_then(|i| TABLE.get(i))
}

/// The paths that recipes may write, in order.
pub fn writable() -> impl Iterator<Item = &'static FieldDef> {
    TABLE.iter().filter(|def| def.is_writable())
}

/// The field that was probably meant by a wrong path; never the path itself.
pub fn suggest(path: &str) -> Option<&'static str> {
    nearest(path).filter(|nearest| *nearest != path)
}

fn nearest(path: &str) -> Option<&'static str> {
    let (section, last) = path.rsplit_once('.').unwrap_or(("", path));
    let is_beside =
        |def: &&FieldDef| def.path.rsplit_once('.').is_some_and(|(table, _)| table == section);
    let renamed = writable().filter(is_beside).find(|def| def.also.contains(&last));
    let renamed = renamed
        .or_else(|| writable().find(|def| def.also.contains(&last) && def.section() == section));
    if let Some(def) = renamed.or_else(|| writable().find(|def| def.also.contains(&last))) {
        return Some(def.path);
    }
    // First the same word in another section, then a similar word in this one, then a similar path.
    let named = |def: &&FieldDef| def.path.rsplit('.').next() == Some(last);
    if let Some(def) = writable().find(named) {
        return Some(def.path);
    }
    let in_section = writable().filter(|def| def.section() == section);
    let similar = dsl::suggest(last, in_section.filter_map(|def| def.path.rsplit('.').next()));
    if let Some(def) = similar.and_then(|similar| find(&format!("{section}.{similar}"))) {
        return Some(def.path);
    }
    // Whole paths can be similar because of their sections, so compare them only if the section is wrong too.
    let known = writable().any(|def| def.section() == section);
    dsl::suggest(path, writable().map(|def| def.path)).filter(|_| !known)
}

/// The implicit value of a newer field in a lock that does not list it.
pub(crate) fn neutral_of(def: &FieldDef) -> Option<FieldValue> {
    let parsed = toml::de::DeValue::parse(def.neutral).ok()?;
    def.kind.read(parsed.get_ref()).ok().filter(|_| def.since > 1)
}

/// The value that follows from other fields, or the default; `None` if the field is required.
pub(crate) fn default_of(def: &FieldDef, fields: &Fields) -> Option<FieldValue> {
    match def.default {
        Default::Required => None,
        Default::Is(text) => {
            let parsed = toml::de::DeValue::parse(text).ok()?;
            def.kind.read(parsed.get_ref()).ok()
        }
        Default::From(rule, _) => rule(fields),
        Default::UpTo(path) => {
            let Kind::Ints(_, bound) = def.kind else { return None };
            let most = fields.get(path)?.as_int()?.min(bound);
            Some(FieldValue::List((1..=most).map(FieldValue::Int).collect()))
        }
        Default::SameAs(path) => fields.get(path).cloned(),
    }
}

/// Normalises a value: weights are shares, so [60, 30, 10] becomes [6, 3, 1], and [1] becomes an empty list.
pub(crate) fn canonical(def: &FieldDef, value: FieldValue) -> FieldValue {
    let FieldValue::List(items) = &value else { return value };
    if def.path != "data.weights" {
        return value;
    }
    let number = |item: &FieldValue| item.as_int().unwrap_or(1);
    // A single source is the whole text, whatever its weight.
    if let [one] = items.as_slice()
        && number(one) > 0
    {
        return FieldValue::List(Vec::new());
    }
    let divisor = items.iter().map(number).fold(0, greatest_common_divisor);
    if divisor < 2 {
        return value;
    }
    FieldValue::List(items.iter().map(|item| FieldValue::Int(number(item) / divisor)).collect())
}

fn greatest_common_divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// The row of the task; `None` for text.
fn task(fields: &Fields) -> Option<Option<&'static Definition>> {
    fields.get(TASK)?.as_text().map(Definition::find)
}

/// Answers if the task labels them, else everything, as in the publication.
fn loss_on(fields: &Fields) -> Option<FieldValue> {
    let task = task(fields)?;
    let on = if task.is_some_and(|task| task.labels) { "answer" } else { "all" };
    Some(FieldValue::text(on))
}

/// The metrics that a task can report.
pub(crate) fn metrics_of(task: &str) -> &'static [&'static str] {
    Definition::find(task).map_or(TEXT_METRICS, |task| task.metrics)
}

/// The default metrics of a task.
fn metrics(fields: &Fields) -> Option<FieldValue> {
    let task = task(fields)?;
    let metrics = task.map_or(USUAL_TEXT_METRICS, |task| task.usual_metrics);
    Some(FieldValue::List(metrics.iter().map(|m| FieldValue::text(*m)).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tasks::metric;

    #[test]
    fn the_table_is_sorted_and_sound() {
        for pair in TABLE.windows(2) {
            assert!(pair[0].path < pair[1].path, "{} before {}", pair[0].path, pair[1].path);
            // A path that is a prefix of another could not be a TOML key as well.
            assert!(!pair[1].path.starts_with(&format!("{}.", pair[0].path)));
        }
        for def in TABLE.iter() {
            assert!(find(def.path).is_some_and(|known| known.path == def.path));
            assert!(!def.doc.is_empty() && def.doc.ends_with('.'), "{}", def.path);
            assert!(def.since >= 1 && (def.since == 1) == def.neutral.is_empty(), "{}", def.path);
            if let Some((path, words)) = def.only
                && !words.is_empty()
            {
                let Kind::Word(known, _) = find(path).unwrap().kind else { panic!("{path}") };
                assert!(words.iter().all(|w| known.contains(w)), "{}", def.path);
            }
            if let Default::Is(_) = def.default {
                assert!(default_of(def, &Fields::new()).is_some(), "default of {}", def.path);
            }
        }
    }

    #[test]
    fn every_field_has_one_row_and_its_class_agrees_with_its_topic() {
        let mut names = std::collections::BTreeSet::new();
        for def in TABLE.iter() {
            for name in def.foreign.iter().filter(|name| **name != def.path).chain([&def.path]) {
                assert!(names.insert(*name), "{name} twice");
            }
            // Skip derived fields: differences are in the fields they follow from.
            if def.origin != Origin::Derived || def.instead.is_some() {
                assert_eq!(def.topic.decides(), def.reaches_result(), "{}", def.path);
            }
        }
    }

    #[test]
    fn metrics_are_those_of_the_table() {
        let Kind::Word(tasks, _) = find(TASK).unwrap().kind else { panic!("{TASK}") };
        for task in tasks {
            let known = metrics_of(task);
            assert!(known.iter().all(|metric| metric::NAMES.contains(metric)), "{task}");
            let fields = Fields::from([(TASK.to_owned(), FieldValue::text(*task))]);
            let Some(FieldValue::List(metrics)) = metrics(&fields) else { panic!("{task}") };
            for metric in metrics {
                assert!(known.contains(&metric.plain().as_str()), "{task} {metric}");
            }
        }
    }

    #[test]
    fn the_rules_are_sorted_and_are_not_fields() {
        for pair in RULES.windows(2) {
            assert!(pair[0].name < pair[1].name);
        }
        for rule in RULES {
            assert!(rule.revision >= 1 && rule.doc.ends_with('.'), "{}", rule.name);
            assert!(find(&rule.path()).is_none(), "{}", rule.name);
        }
    }

    #[test]
    fn the_path_meant_is_suggested_for_a_wrong_one() {
        for (wrong, meant) in [
            ("optimizer.learning_rate", "optimizer.lr"),
            ("optimizer.wieght_decay", "optimizer.weight_decay"),
            ("batch.batch_size", "batch.sequences"),
            ("data.depo.n_max", "data.depo.N"),
            ("warmup", "schedule.warmup"),
            ("optimizer.warmup", "schedule.warmup"),
            ("schedule.min_lr_ratio", "schedule.lr_min_ratio"),
        ] {
            assert_eq!(suggest(wrong), Some(meant), "{wrong}");
        }
        assert_eq!(suggest("xyzzy"), None);
        for def in TABLE.iter() {
            assert_ne!(suggest(def.path), Some(def.path));
        }
    }

    #[test]
    fn a_younger_field_enters_only_when_it_says_something() {
        let def = FieldDef { since: 2, neutral: "0", ..*find("loss.z_loss").unwrap() };
        assert!(!def.enters(&FieldValue::Real(dsl::Decimal::ZERO)));
        assert!(def.enters(&FieldValue::Real(dsl::Decimal::ONE)));
    }
}
