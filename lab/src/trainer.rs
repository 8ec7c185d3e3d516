//! The record of the engine that trained a run elsewhere, and what a difference between two such records means.
//!
//! A run without a record was trained by canonc. What a field means is a row of `ROWS`; a field that has none is a
//! confound.

mod of_lock;

use std::collections::BTreeMap;
use std::fmt;

use compiler::digest::Digest;
use compiler::plan::{MEANS, Precision};
use dsl::quote::turns;

pub use of_lock::{is_declared, kernel_keys, refusals};

use crate::experiment::Experiment;
use crate::field::quote;
use crate::verdict::{Change, Outcome, Subject, Verdict};

const TAG: &str = "canonc.trainer.v1";
/// The version of a record that this canonc reads.
const VERSION: i64 = 1;
/// The most keys of a record, and bytes of a key or its text.
const MAX_KEYS: usize = 1000;
const MAX_TEXT: usize = 1000;

/// A value of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrainerValue {
    /// A text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// True or false.
    Truth(bool),
}

impl fmt::Display for TrainerValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrainerValue::Text(text) => f.write_str(text),
            TrainerValue::Integer(number) => write!(f, "{number}"),
            TrainerValue::Truth(truth) => write!(f, "{truth}"),
        }
    }
}

impl TrainerValue {
    /// The value as TOML.
    pub fn toml(&self) -> String {
        match self {
            TrainerValue::Text(text) => quote(text),
            TrainerValue::Integer(_) | TrainerValue::Truth(_) => self.to_string(),
        }
    }
}

/// What an engine says of itself and of how it trained a run: `trainer.toml`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrainerRecord {
    /// By dotted key, without `version`.
    fields: BTreeMap<String, TrainerValue>,
    digest: Digest,
}

/// Keys without which a record says too little to judge a run.
const REQUIRED: [&str; 7] = [
    "data.windows",
    "engine",
    "engine_version",
    "loss.terms",
    "precision.compute",
    "precision.loss",
    "precision.master",
];

/// The keys, or what they begin with, that may differ between the processes of one run: where it trains, and not what it
/// computes.
pub const MAY_CHANGE: [&str; 8] = [
    "world",
    "mesh",
    "division",
    "machine.",
    "environment.",
    "versions.",
    "checkpointing",
    "reshard",
];

/// Whether a key of a record may differ between the processes of one run.
pub fn may_change(key: &str) -> bool {
    MAY_CHANGE.iter().any(|known| match known.ends_with('.') {
        true => key.starts_with(known),
        false => key == *known,
    })
}

impl TrainerRecord {
    /// Reads the text of a `trainer.toml`; an error says what is wrong with it.
    pub fn parse(text: &str) -> Result<TrainerRecord, String> {
        let mut table: toml::Table =
            toml::from_str(text).map_err(|error| error.message().to_owned())?;
        match table.remove("version") {
            Some(toml::Value::Integer(VERSION)) => {}
            Some(other) => {
                return Err(format!(
                    "it has version {other}, but this canonc reads version {VERSION}"
                ));
            }
            None => return Err("it has no `version`".to_owned()),
        }
        let record = TrainerRecord::from_table(table, Digest::of(TAG, text))?;
        if let Some(missing) =
            REQUIRED.iter().find(|key| record.text(key).is_none_or(str::is_empty))
        {
            return Err(format!("it has no text as `{missing}`"));
        }
        if record.engine().eq_ignore_ascii_case(CANONC) {
            return Err(format!(
                "its engine is \"{}\", but canonc writes no such record",
                record.engine()
            ));
        }
        Ok(record)
    }

    /// The record with what changed while the run was trained: each key has all of its values, in order.
    pub fn with_changes<'c>(
        mut self,
        changes: impl Iterator<Item = (&'c str, &'c str)>,
    ) -> TrainerRecord {
        for (key, value) in changes {
            let before =
                self.fields.get(key).map_or_else(|| "nothing".to_owned(), TrainerValue::to_string);
            self.fields
                .insert(key.to_owned(), TrainerValue::Text(format!("{before}, then {value}")));
        }
        self
    }

    /// The record in the attestation of a run, with the digest of the text that it was read from.
    pub fn from_table(table: toml::Table, digest: Digest) -> Result<TrainerRecord, String> {
        let mut fields = BTreeMap::new();
        flatten("", table, &mut fields)?;
        Ok(TrainerRecord { fields, digest })
    }

    /// The digest of its text.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Its fields by dotted key, sorted.
    pub fn fields(&self) -> &BTreeMap<String, TrainerValue> {
        &self.fields
    }

    /// A field that is a text.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.fields.get(key)? {
            TrainerValue::Text(text) => Some(text),
            TrainerValue::Integer(_) | TrainerValue::Truth(_) => None,
        }
    }

    /// Whether a field is `true`.
    pub fn is(&self, key: &str) -> bool {
        self.fields.get(key) == Some(&TrainerValue::Truth(true))
    }

    /// The engine's name.
    pub fn engine(&self) -> &str {
        self.text("engine").unwrap_or_default()
    }

    /// The engine with its version, without the patch: `pytorch 2.11`.
    pub fn engine_words(&self) -> String {
        format!("{} {}", self.engine(), minor(self.text("engine_version").unwrap_or_default()))
    }

    /// The engine in words: `pytorch 2.11.0 fsdp2`.
    pub fn words(&self) -> String {
        let parts = ["engine", "engine_version", "parallel"].map(|key| self.text(key));
        let known = parts.into_iter().flatten().filter(|part| *part != "none");
        known.collect::<Vec<_>>().join(" ")
    }

    /// Engine and machines in words: `pytorch 2.11, 64 × NVIDIA H100 80GB HBM3`.
    pub fn described(&self) -> String {
        let engine = self.engine_words();
        let gpu = self.text("machine.gpu").filter(|gpu| !gpu.is_empty());
        let count = self.fields.get("machine.gpus").or_else(|| self.fields.get("world"));
        match (gpu, count) {
            (Some(gpu), Some(count)) => format!("{engine}, {count} × {gpu}"),
            (Some(gpu), None) => format!("{engine}, {gpu}"),
            (None, _) => engine,
        }
    }

    /// Whether the windows came from canonc's data stream.
    pub fn reads_canonc_windows(&self) -> bool {
        self.text("data.windows") == Some("canonc")
    }

    /// Everything that times depend on, as one text.
    pub fn timed_with(&self) -> String {
        let decides = |key: &str| match class_of(key) {
            // Arms differ in the kernels of what only one of them has.
            Some(class) => ![FieldClass::Cosmetic, FieldClass::Note].contains(&class),
            None => true,
        };
        let lines = self.fields.iter().filter(|(key, _)| decides(key));
        lines.map(|(key, value)| format!("\n{key} {value}")).collect()
    }
}

/// Adds a table's values under their dotted keys.
fn flatten(
    prefix: &str,
    table: toml::Table,
    fields: &mut BTreeMap<String, TrainerValue>,
) -> Result<(), String> {
    for (name, value) in table {
        let key = format!("{prefix}{name}");
        let value = match value {
            toml::Value::Table(inner) => {
                flatten(&format!("{key}."), inner, fields)?;
                continue;
            }
            toml::Value::String(text) => TrainerValue::Text(text),
            toml::Value::Integer(number) => TrainerValue::Integer(number),
            toml::Value::Boolean(truth) => TrainerValue::Truth(truth),
            toml::Value::Float(_) | toml::Value::Datetime(_) | toml::Value::Array(_) => {
                return Err(format!(
                    "`{key}` is {value}, but a value is a string, a whole number, true or false"
                ));
            }
        };
        let well_named = !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
        if !well_named {
            return Err(format!("`{key}` is not a key: letters, digits, `_`, `-` and `.`"));
        }
        let is_control = |c: char| c.is_control() || turns(c);
        if matches!(&value, TrainerValue::Text(text) if text.chars().any(is_control)) {
            return Err(format!("`{key}` has a control character in its text"));
        }
        if matches!(&value, TrainerValue::Text(text) if text.len() > MAX_TEXT)
            || key.len() > MAX_TEXT
        {
            let start: String = key.chars().take(40).collect();
            return Err(format!("`{start}` or its text has more than {MAX_TEXT} bytes"));
        }
        if fields.len() == MAX_KEYS {
            return Err(format!("it has more than {MAX_KEYS} keys"));
        }
        if fields.insert(key.clone(), value).is_some() {
            return Err(format!("`{key}` occurs twice"));
        }
    }
    Ok(())
}

/// What a version begins with: `2.11` of `2.11.0`.
fn minor(version: &str) -> String {
    version.splitn(3, '.').take(2).collect::<Vec<_>>().join(".")
}

/// What a difference between two runs in a field of their records means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FieldClass {
    /// It can explain a difference between the runs.
    Confound,
    /// One arm cannot have what the other has: named, and no confound.
    Note,
    /// It changes rounding only.
    Platform,
    /// It changes nothing that is compared.
    Cosmetic,
}

impl FieldClass {
    /// The word in reports.
    pub fn word(self) -> &'static str {
        match self {
            FieldClass::Confound => "confound",
            FieldClass::Note => "note",
            FieldClass::Platform => "platform",
            FieldClass::Cosmetic => "cosmetic",
        }
    }
}

/// What two runs are, as far as the class of a difference depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// A lock computes in bf16.
    pub bf16: bool,
    /// An arch has auxiliary losses that are means over a micro-batch, and its recipe weighs them.
    pub means: bool,
    /// Runs of one arm against itself measure the noise.
    pub noise: bool,
}

impl Setting {
    /// The setting of runs of these locks.
    pub fn of(experiments: &[&Experiment], noise: bool) -> Setting {
        Setting {
            bf16: experiments.iter().any(|one| one.precision == Precision::Bf16),
            means: experiments.iter().any(|one| MEANS.iter().any(|term| one.weighs(term))),
            noise,
        }
    }
}

/// The two values of a field that differ; `None` where a record lacks it.
type Values<'v> = [Option<&'v TrainerValue>; 2];

/// What a field of a record means.
struct Row {
    /// The key; one that ends with `.` is of all keys below it.
    key: &'static str,
    /// The class of a difference.
    class: fn(Values<'_>, Setting) -> FieldClass,
    /// Why.
    why: &'static str,
}

const fn row(
    key: &'static str,
    class: fn(Values<'_>, Setting) -> FieldClass,
    why: &'static str,
) -> Row {
    Row { key, class, why }
}

use FieldClass::{Confound, Cosmetic, Note, Platform};

/// Only a platform difference, unless bf16 amplifies it and nothing measures the noise.
fn rounding(_: Values<'_>, setting: Setting) -> FieldClass {
    if setting.bf16 && !setting.noise { Confound } else { Platform }
}

/// A confound, unless only one arm has what the field is about: a run without what its own lock needs is refused.
fn absent([a, b]: Values<'_>, _: Setting) -> FieldClass {
    if a.is_some() && b.is_some() { Confound } else { Note }
}

/// The class of each field; of keys below a prefix, the first row that fits. From the prototype's measurements: see
/// `docs/dev/decisions.md`.
const ROWS: &[Row] = &[
    row("engine", |_, _| Confound, "the runs were trained by two engines"),
    row(
        "engine_version",
        |[a, b], _| {
            let of = |value: Option<&TrainerValue>| value.map(|value| minor(&value.to_string()));
            if of(a) == of(b) { Platform } else { Confound }
        },
        "another version of the engine may compute otherwise; another patch rounds at most",
    ),
    row(
        "optimizer.adamw",
        |values, _| match values {
            [None, _] | [_, None] => Note,
            values if values.iter().all(|value| is_adamw(*value)) => Platform,
            [_, _] => Confound,
        },
        "two classes of one formula round differently, another formula is another optimizer, and an arm without AdamW has \
         no class of it",
    ),
    row(
        "optimizer.muon",
        absent,
        "the lock of one arm has no Muon, so that arm has no class of it",
    ),
    row("optimizer.fused", rounding, "a fused optimizer rounds differently"),
    row("optimizer.", |_, _| Confound, "another optimizer class may have another formula"),
    row(
        "kernels.",
        absent,
        "the kernels of a primitive round differently; a primitive of one arm has no kernel in the other, so no arm is \
         without it",
    ),
    row(
        "precision.compute",
        |_, _| Note,
        "each lock decides its own, and the verdict on the locks judges that",
    ),
    row("precision.", |_, _| Confound, "the precision policy decides what is rounded"),
    row("data.", |_, _| Confound, "no digests show that both read the same windows"),
    row("loss.dropout", absent, "the arch of one arm drops nothing, so that arm has no masks"),
    row("loss.", |_, _| Confound, "the loss decides every update"),
    row("compile", rounding, "compiled code rounds differently"),
    row("deterministic", rounding, "other kernels may run, which round differently"),
    row(
        "division",
        |_, setting| if setting.means { Confound } else { Platform },
        "auxiliary losses are means over the part of a micro-batch that a rank has; without them, only sums are in \
         another order",
    ),
    row("world", |_, _| Platform, "sums are in another order"),
    row("mesh", |_, _| Platform, "sums are in another order"),
    row("parallel", |_, _| Platform, "sums are in another order"),
    row(
        "environment.NVIDIA_TF32_OVERRIDE",
        |_, _| Confound,
        "it decides whether f32 products are rounded",
    ),
    row(
        "environment.TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
        |_, _| Confound,
        "it decides whether f32 products are rounded",
    ),
    row("environment.", |_, _| Platform, "it may change the order of sums"),
    row(
        "checkpointing",
        |_, _| Cosmetic,
        "values are computed again with the same bits, as measured",
    ),
    row("reshard", |_, _| Cosmetic, "parameters are gathered at another time"),
    row("offload", |_, _| Cosmetic, "parameters wait elsewhere"),
    row("prefetch", |_, _| Cosmetic, "parameters are gathered at another time"),
    row("module", |_, _| Cosmetic, "each arch has a module of its own"),
    row("script", |_, _| Confound, "another script may train otherwise"),
    row("versions.python", |_, _| Cosmetic, "Python computes no tensor"),
    row("versions.", |_, _| Platform, "another library may round differently"),
    row(
        "machine.",
        |_, _| Platform,
        "another machine may round differently, and its times are not comparable",
    ),
];

/// Classes with canonc's formula of AdamW.
const ADAMW: [&str; 2] = ["torch.optim.AdamW", "canonc.torch.AdamW"];

fn is_adamw(value: Option<&TrainerValue>) -> bool {
    matches!(value, Some(TrainerValue::Text(text)) if ADAMW.contains(&text.as_str()))
}

fn row_of(key: &str) -> Option<&'static Row> {
    let fits = |row: &&Row| match row.key.ends_with('.') {
        true => key.starts_with(row.key),
        false => key == row.key,
    };
    ROWS.iter().find(fits)
}

/// The class of a field where no value and no setting decides it otherwise.
fn class_of(key: &str) -> Option<FieldClass> {
    row_of(key).map(|row| (row.class)([None, None], Setting::default()))
}

/// A field in which the trainers of two runs differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrainerDifference {
    /// The field, as `trainer.kernels.attention`; `trainer` for canonc and another engine.
    pub path: String,
    /// The value of the first run; `None` if its record lacks the field.
    pub a: Option<String>,
    /// The value of the second run; `None` if its record lacks the field.
    pub b: Option<String>,
    /// What that means.
    pub class: FieldClass,
    /// Why.
    pub why: &'static str,
}

/// The word for canonc's own trainer.
pub const CANONC: &str = "canonc";

/// In what the trainers of two runs differ, confounds first; a run without a record was trained by canonc.
pub fn differences(
    a: Option<&TrainerRecord>,
    b: Option<&TrainerRecord>,
    setting: Setting,
) -> Vec<TrainerDifference> {
    let (a, b) = match (a, b) {
        (None, None) => return Vec::new(),
        (Some(a), Some(b)) => (a, b),
        (one, other) => {
            let words = |record: Option<&TrainerRecord>| {
                Some(record.map_or_else(|| CANONC.to_owned(), TrainerRecord::engine_words))
            };
            let why = "the runs were trained by two engines";
            let (a, b) = (words(one), words(other));
            return vec![TrainerDifference {
                path: "trainer".to_owned(),
                a,
                b,
                class: Confound,
                why,
            }];
        }
    };
    let mut keys: Vec<&String> = a.fields.keys().chain(b.fields.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let differs = keys.into_iter().filter(|key| a.fields.get(*key) != b.fields.get(*key));
    let mut differences: Vec<TrainerDifference> = differs
        .map(|key| {
            let values = [a.fields.get(key), b.fields.get(key)];
            let (class, why) = match row_of(key) {
                Some(row) => ((row.class)(values, setting), row.why),
                None => (Confound, "canonc does not know this field"),
            };
            let [a, b] = values.map(|value| value.map(TrainerValue::to_string));
            TrainerDifference { path: format!("trainer.{key}"), a, b, class, why }
        })
        .collect();
    differences.sort_by_key(|difference| difference.class);
    differences
}

/// The confounds between the trainers of two runs, each in one line.
pub fn confounds(
    a: Option<&TrainerRecord>,
    b: Option<&TrainerRecord>,
    setting: Setting,
) -> Vec<String> {
    let confounds = differences(a, b, setting).into_iter();
    confounds.filter(|difference| difference.class == Confound).map(|one| one.line()).collect()
}

impl TrainerDifference {
    /// The field and both values: `trainer: canonc / pytorch 2.11`.
    pub fn line(&self) -> String {
        let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
        format!("{}: {} / {}", self.path, side(&self.a), side(&self.b))
    }
}

/// The verdict on two locks, with the differences between the trainers of their runs. No treatment clears a confound
/// among them.
pub fn with_trainers(
    verdict: Verdict,
    [a, b]: [Option<&TrainerRecord>; 2],
    setting: Setting,
) -> Verdict {
    if a.is_none() && b.is_none() {
        return verdict;
    }
    let words = |record: Option<&TrainerRecord>| {
        record.map_or_else(|| CANONC.to_owned(), TrainerRecord::words)
    };
    let mut verdict = Verdict { trainers: Some([words(a), words(b)]), ..verdict };
    for TrainerDifference { path, a, b, class, why } in differences(a, b, setting) {
        let list = match class {
            Confound => &mut verdict.confounds,
            Note => &mut verdict.consequences,
            Platform => &mut verdict.platform,
            Cosmetic => &mut verdict.cosmetic,
        };
        let (subject, defaults, places) = (Subject::Whole, [false; 2], [None, None]);
        list.push(Change { path, subject, a, b, defaults, places, note: why.to_owned() });
    }
    if !verdict.confounds.is_empty() {
        verdict.outcome = Outcome::Confounded(verdict.confounds.len());
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"version = 1
data.windows = "canonc"
division = "micro_batches"
engine = "pytorch"
engine_version = "2.11.0"
kernels.attention = "sdpa"
loss.terms = "canonc"
machine.gpu = "NVIDIA H100"
machine.gpus = 64
optimizer.adamw = "torch.optim.AdamW"
parallel = "fsdp2"
precision.compute = "f32"
precision.loss = "f32"
precision.master = "f32"
precision.tf32 = false
world = 2
"#;

    fn record(changes: &[(&str, &str)]) -> TrainerRecord {
        let mut text = TEXT.to_owned();
        for (from, to) in changes {
            assert!(text.contains(from), "{from}");
            text = text.replace(from, to);
        }
        TrainerRecord::parse(&text).unwrap()
    }

    #[test]
    fn a_record_is_read_and_described() {
        let read = record(&[]);
        assert_eq!(read.words(), "pytorch 2.11.0 fsdp2");
        assert_eq!(read.described(), "pytorch 2.11, 64 × NVIDIA H100");
        assert_eq!(read.fields()["world"], TrainerValue::Integer(2));
        assert!(read.reads_canonc_windows() && !read.is("precision.tf32"));
        assert_eq!(read.digest(), Digest::of("canonc.trainer.v1", TEXT));
    }

    #[test]
    fn a_record_that_cannot_be_read_says_why() {
        for (from, to, reason) in [
            ("version = 1", "version = 2", "it has version 2, but this canonc reads version 1"),
            ("version = 1\n", "", "it has no `version`"),
            ("world = 2", "world = 2.5", "`world` is 2.5, but a value is a string"),
            ("world = 2", "world = [2]", "`world` is [2], but a value is a string"),
            ("world = 2", "\"a b\" = 2", "`a b` is not a key"),
            ("\"sdpa\"", "\"\\u001b\"", "`kernels.attention` has a control character"),
            ("engine = \"pytorch\"\n", "", "it has no text as `engine`"),
            ("engine = \"pytorch\"", "engine = 7", "it has no text as `engine`"),
            ("engine = \"pytorch\"", "engine = \"Canonc\"", "its engine is \"Canonc\", but canonc"),
            ("\"sdpa\"", "\"\\u202esdpa\"", "`kernels.attention` has a control character"),
        ] {
            let why = TrainerRecord::parse(&TEXT.replace(from, to)).unwrap_err();
            assert!(why.contains(reason), "{why}");
        }
    }

    #[test]
    fn each_field_has_the_class_of_its_row() {
        let plain = Setting::default();
        let bf16 = Setting { bf16: true, ..plain };
        let experts = Setting { means: true, ..plain };
        let quiet = Setting { bf16: true, noise: true, ..plain };
        for (from, to, setting, class) in [
            ("\"2.11.0\"", "\"2.12.0\"", plain, Confound),
            ("\"2.11.0\"", "\"2.11.1\"", plain, Platform),
            ("engine = \"pytorch\"", "engine = \"other\"", plain, Confound),
            ("\"sdpa\"", "\"flex\"", plain, Confound),
            ("kernels.attention = \"sdpa\"\n", "", plain, Note),
            ("optimizer.adamw = \"torch.optim.AdamW\"\n", "", plain, Note),
            ("world = 2", "world = 2\noptimizer.muon = \"canonc.torch.Muon\"", plain, Note),
            ("world = 2", "world = 2\nloss.dropout = \"canonc\"", plain, Note),
            ("compute = \"f32\"", "compute = \"bf16\"", plain, Note),
            ("tf32 = false", "tf32 = true", plain, Confound),
            ("torch.optim.AdamW", "canonc.torch.AdamW", plain, Platform),
            ("torch.optim.AdamW", "apex.FusedLAMB", plain, Confound),
            ("\"micro_batches\"", "\"rows\"", plain, Platform),
            ("\"micro_batches\"", "\"rows\"", experts, Confound),
            ("world = 2", "world = 4", plain, Platform),
            ("world = 2", "world = 2\ncompile = \"layer\"", plain, Platform),
            ("world = 2", "world = 2\ncompile = \"layer\"", bf16, Confound),
            ("world = 2", "world = 2\ncompile = \"layer\"", quiet, Platform),
            ("world = 2", "world = 2\ncheckpointing = \"layers\"", plain, Cosmetic),
            ("world = 2", "world = 2\nlucky = true", plain, Confound),
            ("NVIDIA H100", "NVIDIA A100", plain, Platform),
        ] {
            let (one, other) = (record(&[]), record(&[(from, to)]));
            let found = differences(Some(&one), Some(&other), setting);
            assert_eq!(found.len(), 1, "{from} {to}");
            assert_eq!(found[0].class, class, "{from} {to}");
            let back = differences(Some(&other), Some(&one), setting);
            assert_eq!(back[0].class, class, "{to} {from}");
        }
    }

    #[test]
    fn another_engine_is_one_confound() {
        let record = record(&[]);
        let lines = confounds(None, Some(&record), Setting::default());
        assert_eq!(lines, ["trainer: canonc / pytorch 2.11"]);
        assert!(confounds(None, None, Setting::default()).is_empty());
        assert!(confounds(Some(&record), Some(&record), Setting::default()).is_empty());
    }
}
