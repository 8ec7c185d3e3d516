//! The verdict: differences, each with both values and both places.
//!
//! In: cells and fields that differ. Out: data that reports, locks and programs read. Must stay true: a
//! place is a line of the lock's file if there is one; equal differences in several layers are merged.

use std::collections::BTreeMap;

use dsl::{FileId, Span};

use super::Trainer;
use super::index::{Cell, Index, Layer, slot_of};
use super::names::Namesake;
use super::nodes::NodeChange;
use super::treatment::CANON;
use crate::experiment::{Experiment, LockedArch, costs, layer_sets, line_of};
use crate::field::{self, FieldValue};
use compiler::analyse::Analysis;
use compiler::digest::Digest;

/// One arm.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// Name in reports: the arm's, or the lock's.
    pub label: &'a str,
    pub(crate) arch: &'a LockedArch,
    pub(crate) experiment: Option<&'a Experiment>,
    /// For arch locks, which have no experiment to hold costs.
    pub(crate) analysis: Option<&'a Analysis>,
    /// The lock's file name and text.
    pub(crate) file: Option<(&'a str, &'a str)>,
    /// The trainer that runs it.
    pub(crate) trainer: Trainer,
}

/// A line that a reader can open.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The lock's file, or the arm's name if there is none.
    pub file: String,
    /// Line number, from 1.
    pub line: usize,
}

/// The kind of thing that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A field of the arch. `general` is its path with `*` for the layer; `canon` is true for a slot that holds a Canon
    /// layer or nothing in either arm.
    Cell {
        /// Path with `*` for the layer.
        general: String,
        /// Whether it is a slot with a Canon layer or nothing in either arm.
        canon: bool,
    },
    /// A field of the table.
    Field,
    /// A definition with the same name in both arms.
    Definition,
    /// The arms as a whole.
    Whole,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// `arch.layers.0..24.mixer.rope.dims`, `optimizer.lr`, `definition decoder`.
    pub path: String,
    /// The kind of thing.
    pub subject: Subject,
    /// `None` if an arm does not have it.
    pub a: Option<String>,
    /// The second arm's value; None if it does not have it.
    pub b: Option<String>,
    /// Whether each value is a default.
    pub defaults: [bool; 2],
    /// Line of each arm's value.
    pub places: [Option<Place>; 2],
    /// A note: `+0.15%`, `affects training`.
    pub note: String,
}

/// An entry of the treatment and its changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// The entry as declared: `mixer`, `layers.*.slots.A`.
    pub entry: String,
    /// Number of independent factors among its changes.
    pub factors: usize,
    /// Differences that it covers.
    pub changes: Vec<Change>,
}

/// What the differences of two arms amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No treatment, and no difference that could change a result.
    Identical,
    /// Only the treatment differs.
    Controlled,
    /// Several independent factors and nothing else: an effect cannot be attributed to one of them.
    Bundle(usize),
    /// The number of differences outside the treatment.
    Confounded(usize),
}

/// The evidence: each arm with the other's values at the treatment, and the other arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// First arm a with b's values and arm b, then arm b with a's values and arm a.
    pub replaced: [Replaced; 2],
    /// The second proof, for treatments of slots.
    pub erased: Option<Erased>,
}

/// Digests of an arm with the other's values at the treatment, and of the other arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// `None` if the arm cannot be built with those values.
    pub graph: [Option<Digest>; 2],
    /// Digests of the manifests; None if the arm cannot be built with those values.
    pub manifest: [Option<Digest>; 2],
}

/// Both arms without the slots of the treatment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Erased {
    /// The slots that were emptied.
    pub slots: Vec<String>,
    /// Digests of the graphs.
    pub graph: [Digest; 2],
    /// Digests of the manifests.
    pub manifest: [Digest; 2],
}

impl Erased {
    /// Whether nothing else differs: both digests are equal.
    pub fn equal(&self) -> bool {
        self.graph[0] == self.graph[1] && self.manifest[0] == self.manifest[1]
    }

    pub(super) fn flipped(self) -> Erased {
        let Erased { slots, graph: [a, b], manifest: [c, d] } = self;
        Erased { slots, graph: [b, a], manifest: [d, c] }
    }
}

/// The answer, with all differences by group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Names of the two arms.
    pub labels: [String; 2],
    /// The verdict itself.
    pub outcome: Outcome,
    /// Inputs without a digest that both arms give the same name.
    pub assumed: Vec<String>,
    /// The declared trainer of both arms.
    pub trainer: Trainer,
    /// The treatment's entries, each with its changes.
    pub treatment: Vec<Declared>,
    /// Differences outside the treatment that could change a result.
    pub confounds: Vec<Change>,
    /// Differences that follow from the treatment.
    pub consequences: Vec<Change>,
    /// Differences that change rounding only.
    pub platform: Vec<Change>,
    /// Differences that change no result.
    pub cosmetic: Vec<Change>,
    /// Differences between the graphs.
    pub nodes: Vec<NodeChange>,
    /// Names that mean different things in the two arms, or something other than in the standard library.
    pub names: Vec<Namesake>,
    /// Digests that show that nothing but the treatment differs.
    pub proof: Proof,
}

impl<'a> Side<'a> {
    /// One arm of a comparison.
    pub fn arm(name: &'a str, experiment: &'a Experiment) -> Side<'a> {
        let arch = &experiment.arch;
        let (analysis, file, trainer) = (None, None, Trainer::Any);
        Side { label: name, arch, experiment: Some(experiment), analysis, file, trainer }
    }

    /// The same arm, run by a known trainer.
    pub fn run_by(self, trainer: Trainer) -> Side<'a> {
        Side { trainer, ..self }
    }

    /// A derived value.
    pub(super) fn derived(&self, path: &str) -> Option<FieldValue> {
        match (self.experiment, self.analysis) {
            (Some(experiment), _) => experiment.value(path).cloned(),
            (None, Some(analysis)) => costs(analysis).remove(path),
            (None, None) => None,
        }
    }
}

impl Verdict {
    /// Whether the arms are controlled, a bundle, or identical.
    pub fn is_controlled(&self) -> bool {
        match self.outcome {
            Outcome::Identical | Outcome::Controlled | Outcome::Bundle(_) => true,
            Outcome::Confounded(_) => false,
        }
    }

    /// The verdict in one line, for locks and reports.
    pub fn headline(&self) -> String {
        let entries: Vec<&str> = self.treatment.iter().map(|d| d.entry.as_str()).collect();
        let entries = entries.join(", ");
        let data = if self.assumed.is_empty() { "" } else { "; data assumed equal by name" };
        // If only one arm has a field, the field that brings it is mentioned instead.
        let both = |change: &Change| change.a.is_some() && change.b.is_some();
        let excused = self.trainer == Trainer::Canonc
            && self.cosmetic.iter().any(|change| change.is_carried() && both(change));
        let run = if excused { "; canonc runs both arms" } else { "" };
        let assumed = format!("{data}{run}");
        match self.outcome {
            Outcome::Identical => format!("identical{assumed}"),
            Outcome::Controlled => format!("controlled for {entries}{assumed}"),
            Outcome::Bundle(n) => format!(
                "bundle of {n} factors ({entries}): controlled, but not attributable to one of them{assumed}"
            ),
            Outcome::Confounded(n) => {
                let s = if n == 1 { "" } else { "s" };
                let context = if entries.is_empty() {
                    "no treatment is declared".to_owned()
                } else {
                    format!("in addition to {entries}")
                };
                format!("confounded: {n} difference{s}, {context}")
            }
        }
    }

    /// The headline of a bundle in which some entries compensate for the others, to keep a quantity equal.
    pub fn compensated(&self, compensate: &[String], quantity: &str) -> String {
        let compensates = |entry: &str| compensate.iter().any(|known| known == entry);
        let (sizes, treated): (Vec<&Declared>, Vec<&Declared>) =
            self.treatment.iter().partition(|declared| compensates(&declared.entry));
        let treated: Vec<&str> = treated.iter().map(|declared| declared.entry.as_str()).collect();
        let size = |declared: &&Declared| {
            let mut changes: Vec<String> = Vec::new();
            for change in &declared.changes {
                let (Some(a), Some(b)) = (&change.a, &change.b) else { continue };
                let change = format!("{a} to {b}");
                if !changes.contains(&change) {
                    changes.push(change);
                }
            }
            format!("{} {}", declared.entry, changes.join(", ")).trim_end().to_owned()
        };
        let sizes: Vec<String> = sizes.iter().map(size).collect();
        let data = if self.assumed.is_empty() { "" } else { "; data assumed equal by name" };
        format!(
            "compensated: {} at equal {quantity} ({}){data}",
            treated.join(", "),
            sizes.join(", ")
        )
    }

    /// The treatment that would make everything that differs a bundle, in the notation of recipes.
    pub fn declaration(&self) -> Vec<String> {
        let mut entries: Vec<String> = self.treatment.iter().map(|d| d.entry.clone()).collect();
        let canon_declared = entries.iter().any(|entry| entry == CANON);
        for change in &self.confounds {
            let entry = match &change.subject {
                Subject::Cell { canon: true, .. } if !canon_declared => Some(CANON.to_owned()),
                Subject::Cell { general, .. } => Some(short_entry(general)),
                Subject::Field => field::find(&change.path)
                    .filter(|def| !def.is_measurement())
                    .map(|def| def.path.to_owned()),
                Subject::Definition | Subject::Whole => None,
            };
            if let Some(entry) = entry.filter(|entry| !entries.contains(entry)) {
                entries.push(entry);
            }
        }
        entries
    }
}

/// A field of the arch as people write it in a treatment: `rope.dims` for `arch.layers.*.mixer.rope.dims`.
fn short_entry(general: &str) -> String {
    let Some(rest) = general.strip_prefix("arch.layers.*") else { return general.to_owned() };
    let rest = rest.trim_start_matches('.');
    let parts: Vec<&str> = rest.split('.').collect();
    match parts.as_slice() {
        [""] => "arch.layers.*".to_owned(),
        [.., holder, name] => format!("{holder}.{name}"),
        [_] | [] => rest.to_owned(),
    }
}

/// A decimal for a fraction that is hard to read, such as a number of epochs.
fn decimal(text: &str) -> Option<String> {
    let (over, under) = text.split_once('/')?;
    let (over, under): (i128, i128) = (over.parse().ok()?, under.parse().ok()?);
    if under < 1000 {
        return None;
    }
    // Exact integers, rounded to the nearest ten thousandth.
    let scaled = over.checked_mul(20_000)?.checked_div(under)?.checked_add(over.signum())? / 2;
    let sign = if scaled < 0 { "-" } else { "" };
    let (whole, rest) = (scaled.unsigned_abs() / 10_000, scaled.unsigned_abs() % 10_000);
    Some(format!("{sign}{whole}.{rest:04}"))
}

#[cfg(test)]
#[test]
fn long_fractions_have_decimals() {
    for (text, want) in [
        ("1/30", None),
        ("12345/6789", Some("1.8184")),
        ("1/20000", Some("0.0001")),
        ("1/30000", Some("0.0000")),
        ("-3/2000", Some("-0.0015")),
        ("2", None),
    ] {
        assert_eq!(decimal(text).as_deref(), want, "{text}");
    }
}

impl Change {
    /// A difference between the arms as a whole.
    pub(super) fn whole(what: String) -> Change {
        Change {
            path: what,
            subject: Subject::Whole,
            a: None,
            b: None,
            defaults: [false, false],
            places: [None, None],
            note: String::new(),
        }
    }

    pub(super) fn of_field(
        path: &str,
        a: Option<&FieldValue>,
        b: Option<&FieldValue>,
        unit: &str,
        places: [Option<Place>; 2],
    ) -> Change {
        let shown = |value: &FieldValue| {
            // A word, such as `never`, has no unit.
            let unit = if matches!(value, FieldValue::Text(_)) { "" } else { unit };
            let space = if unit.is_empty() { "" } else { " " };
            let one = unit.strip_suffix('s').filter(|_| matches!(value, FieldValue::Int(1)));
            let unit = one.unwrap_or(unit);
            let plain = value.plain();
            let text = decimal(&plain).map_or(plain.clone(), |about| format!("{about} ({plain})"));
            format!("{text}{space}{unit}")
        };
        let note = match (a, b) {
            (Some(a), Some(b)) => percent(a, b),
            (Some(_), None) | (None, Some(_)) | (None, None) => String::new(),
        };
        Change {
            path: path.to_owned(),
            subject: Subject::Field,
            a: a.map(shown),
            b: b.map(shown),
            defaults: [false, false],
            places,
            note,
        }
    }

    pub(super) fn note(self, note: &str) -> Change {
        Change { note: note.to_owned(), ..self }
    }

    /// The same difference with the arms in the other order.
    pub(super) fn flipped(self) -> Change {
        let Change { path, subject, a, b, defaults: [one, two], places: [here, there], note } =
            self;
        Change { path, subject, a: b, b: a, defaults: [two, one], places: [there, here], note }
    }

    /// Whether two changes describe one difference.
    pub(super) fn same(&self, other: &Change) -> bool {
        (&self.path, &self.a, &self.b) == (&other.path, &other.a, &other.b)
    }
}

/// The relative change of an integer in percent, with two decimals; exact arithmetic, rounded down.
pub(crate) fn percent(a: &FieldValue, b: &FieldValue) -> String {
    let whole = |value: &FieldValue| match value {
        FieldValue::Int(n) => Some(i128::from(*n)),
        FieldValue::Big(n) => i128::try_from(*n).ok(),
        FieldValue::Real(_) | FieldValue::Bool(_) | FieldValue::Text(_) | FieldValue::List(_) => {
            None
        }
    };
    let (Some(a), Some(b)) = (whole(a), whole(b)) else { return String::new() };
    let Some(difference) = b.checked_sub(a).and_then(|d| d.checked_mul(1_000_000)) else {
        return String::new();
    };
    if a <= 0 {
        return String::new();
    }
    let millionths = (difference / a).unsigned_abs();
    let sign = if difference < 0 { '-' } else { '+' };
    let (whole, rest) = (millionths / 10_000, millionths % 10_000);
    if whole == 0 && rest < 1000 {
        format!("{sign}0.{rest:04}%")
    } else {
        format!("{sign}{whole}.{:02}%", rest / 100)
    }
}

/// Cells of one general path, grouped by their change.
///
/// `canon` says for a slot's path and layer whether it holds a Canon layer or nothing in either arm; `called`
/// writes the name of a definition so that two definitions with one name can be distinguished.
pub(super) fn layered(
    path: &str,
    layers: &[Layer],
    indices: [&Index; 2],
    sources: &Sources<'_>,
    canon: &dyn Fn(&str, Layer) -> bool,
    called: &dyn Fn(usize, &str) -> String,
) -> Vec<Change> {
    type Key = (Option<String>, Option<String>, [bool; 2]);
    let mut groups: BTreeMap<Key, Vec<Layer>> = BTreeMap::new();
    for layer in layers {
        let cells = indices.map(|index| index.get(path, *layer));
        let [a, b] = [0, 1].map(|i| {
            let called = |value: &str| called(i, value);
            let alone = cells[1 - i].is_none();
            cells[i].map(|cell| shown(path, *layer, cell, indices[i], alone, &called))
        });
        let defaults = cells.map(|cell| cell.is_some_and(|cell| !cell.written));
        groups.entry((a, b, defaults)).or_default().push(*layer);
    }
    let mut changes = Vec::new();
    for ((a, b, defaults), layers) in groups {
        let first = layers.first().copied().flatten();
        let places =
            indices.map(|index| index.get(path, first).map(|cell| sources.arch(cell.span)));
        let canon = slot_of(path).is_some() && layers.iter().all(|layer| canon(path, *layer));
        let change = |written: String| Change {
            path: written,
            subject: Subject::Cell { general: path.to_owned(), canon },
            a: a.clone(),
            b: b.clone(),
            defaults,
            places: places.clone(),
            note: String::new(),
        };
        let numbers: Vec<usize> = layers.iter().copied().flatten().collect();
        if numbers.is_empty() {
            changes.push(change(path.to_owned()));
        }
        for set in layer_sets(&numbers) {
            changes.push(change(path.replacen('*', &set, 1)));
        }
    }
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    changes
}

/// A value. A fill, or a definition without a counterpart in the other arm, is shown with its settings.
fn shown(
    path: &str,
    layer: Layer,
    cell: &Cell,
    index: &Index,
    alone: bool,
    called: &dyn Fn(&str) -> String,
) -> String {
    let value = called(&cell.value);
    let slot = path.contains(".slots.");
    if !(alone || slot) {
        return value;
    }
    let prefix = format!("{path}.");
    let settings: Vec<String> = index
        .paths()
        .filter_map(|other| {
            let name = other.strip_prefix(&prefix)?;
            Some(format!("{name} {}", index.get(other, layer)?.value))
        })
        .collect();
    if settings.is_empty() { value } else { format!("{value} ({})", settings.join(", ")) }
}

/// The source lines of both arms' locks.
pub(super) struct Sources<'a> {
    sides: [&'a Side<'a>; 2],
    files: [FileId; 2],
    /// The line of the lock before the arch text's first; 0 without a file.
    offsets: [usize; 2],
    facts: [BTreeMap<&'a str, usize>; 2],
}

impl<'a> Sources<'a> {
    pub(super) fn new(sides: [&'a Side<'a>; 2], files: [FileId; 2]) -> Sources<'a> {
        let text = |side: &'a Side<'a>| side.file.map_or("", |(_, text)| text);
        Sources {
            sides,
            files,
            offsets: sides.map(|side| arch_offset(text(side))),
            facts: sides.map(|side| fact_lines(text(side))),
        }
    }

    fn name(&self, side: usize) -> String {
        let side = self.sides[side.min(1)];
        side.file.map_or_else(|| format!("{} (arch)", side.label), |(file, _)| file.to_owned())
    }

    /// The place of a span in an arch's text.
    pub(super) fn arch(&self, span: Span) -> Place {
        let side = usize::from(span.file != self.files[0]);
        let text = &self.sides[side].arch.text;
        let line = self.offsets[side] + line_of(text, span.start as usize);
        Place { file: self.name(side), line }
    }

    /// The line of a field of the table.
    pub(super) fn fact(&self, side: usize, path: &str) -> Option<Place> {
        let line = *self.facts.get(side)?.get(path)?;
        Some(Place { file: self.name(side), line })
    }
}

/// The line that opens the block with the arch's text.
pub(super) fn arch_offset(text: &str) -> usize {
    let mut inside = false;
    for (i, line) in text.lines().enumerate() {
        if line.starts_with('[') {
            inside = line == "[arch]";
        } else if inside && line == "text = '''" {
            return i + 1;
        }
    }
    0
}

/// The lines of facts by path, in the sections that hold fields.
fn fact_lines(text: &str) -> BTreeMap<&str, usize> {
    let mut lines = BTreeMap::new();
    let mut holds = false;
    for (i, line) in text.lines().enumerate() {
        if line.starts_with('[') {
            let sections = ["[train]", "[eval]", "[platform]", "[cosmetic]", "[derived]"];
            holds = sections.contains(&line);
        } else if holds && let Some((path, _)) = line.split_once(" = ") {
            lines.entry(path).or_insert(i + 1);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percents_are_of_exact_integers() {
        let of = |a: i64, b: i64| percent(&FieldValue::Int(a), &FieldValue::Int(b));
        assert_eq!(of(1_364_396_032, 1_366_460_416), "+0.15%");
        assert_eq!(of(1000, 990), "-1.00%");
        assert_eq!(of(1_000_000, 1_000_050), "+0.0050%");
        assert_eq!(of(1, 3), "+200.00%");
        assert_eq!(of(0, 3), "");
    }
}
