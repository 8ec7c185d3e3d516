//! Resolves a treatment's entries (`canon`, `rope.dims`, `optimizer.lr`, `arch.layers.*.slots.A`) to fields of two arms.
//!
//! An entry names free fields: one that matches no field, only derived fields, or only fields that agree is an error. An entry
//! that names several independent fields counts as several, and so do values that a kind of schedule or task brings and does
//! not fix. `canon` counts as one, however its layers are set, and lists the settings.

use std::collections::BTreeSet;

use super::fills::Fills;
use super::index::{FieldAt, Layer, Pair, slot_of};
use super::model::CANON;
use super::names::Names;
use super::refusal::Refusal;
use crate::field::{self, Class, FieldDef, FieldValue, Fields, Origin, TABLE};

/// A valid entry, with the fields in which the arms differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TreatmentEntry {
    pub(super) text: String,
    /// Fields of the arch: general path, and the layers in which the arms differ.
    pub(super) cells: Vec<(String, Vec<Layer>)>,
    /// Fields of the table.
    pub(super) fields: Vec<&'static str>,
    /// Fields that only one arm has because of one of `fields`.
    pub(super) brought: Vec<&'static str>,
    /// The number of independent fields in it.
    pub(super) factors: usize,
}

impl TreatmentEntry {
    /// Each of its cells.
    pub(super) fn cells_at(&self) -> impl Iterator<Item = FieldAt> {
        let cells = self.cells.iter();
        cells.flat_map(|(path, layers)| layers.iter().map(move |layer| (path.clone(), *layer)))
    }
}

/// The pattern that `canon` stands for.
const SLOTS: &str = "arch.layers.*.slots.*";

/// The layers that a pattern selects.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Selection {
    All,
    Some { from: usize, to: usize, step: usize },
}

impl Selection {
    fn has(&self, layer: Layer) -> bool {
        match (self, layer) {
            (Selection::All, _) | (_, None) => true,
            (Selection::Some { from, to, step }, Some(layer)) => {
                (*from..*to).contains(&layer) && (layer - from).is_multiple_of(*step)
            }
        }
    }

    /// Refuses layers that neither arm has: half a range would be a different treatment from the one
    /// that is written.
    fn within(&self, text: &str, general: &str, pair: &Pair<'_>) -> Result<(), Refusal> {
        let Selection::Some { from, to, step: _ } = self else { return Ok(()) };
        let layers = pair.layers("arch.layers.*").len();
        if to.saturating_sub(*from) == 1 && *from >= layers {
            return Err(Refusal::no_layer(text, *from, layers));
        }
        if *to > layers || from >= to {
            return Err(Refusal::no_such_range(text, (*from, *to), layers, general));
        }
        Ok(())
    }
}

/// Splits a pattern into general path and layers: `arch.layers.0..6.mixer` and `arch.layers[0..6].mixer` are
/// `arch.layers.*.mixer`, 0 to 5. `None` if the layers are not written in one of these ways.
fn pattern(text: &str) -> Option<(String, Selection)> {
    let (selector, tail) = match text.strip_prefix("arch.layers") {
        Some(rest) if rest.starts_with('[') => rest.get(1..)?.split_once(']')?,
        Some(rest) if rest.starts_with('.') => {
            let rest = rest.get(1..)?;
            // `0..24/4` contains dots.
            let end = rest.find(|c: char| !c.is_ascii_digit() && !"*./".contains(c));
            match end {
                Some(end) => (rest.get(..end)?.strip_suffix('.')?, rest.get(end - 1..)?),
                None => (rest, ""),
            }
        }
        Some(_) | None => return Some((text.to_owned(), Selection::All)),
    };
    let tail = match tail {
        "" => tail,
        tail => tail.strip_prefix('.').filter(|tail| !tail.is_empty())?,
    };
    let selection = if selector == "*" {
        Selection::All
    } else if !selector.chars().all(|c| c.is_ascii_digit() || c == '.' || c == '/') {
        return None;
    } else {
        let (range, step) = selector.split_once('/').unwrap_or((selector, "1"));
        let (from, to) = match range.split_once("..") {
            Some((from, to)) => (from.parse().ok()?, to.parse().ok()?),
            None => {
                let only: usize = range.parse().ok()?;
                (only, only.checked_add(1)?)
            }
        };
        let step: usize = step.parse().ok().filter(|step| *step > 0)?;
        Selection::Some { from, to, step }
    };
    let dot = if tail.is_empty() { "" } else { "." };
    Some((format!("arch.layers.*{dot}{tail}"), selection))
}

/// Whether a pattern matches a general path; `*` in it matches one slot's name.
fn means(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix(".slots.*") {
        Some(holder) => path
            .strip_prefix(holder)
            .and_then(|rest| rest.strip_prefix(".slots."))
            .is_some_and(|slot| !slot.contains('.')),
        None => pattern == path,
    }
}

/// Both arms, as a treatment sees them.
#[derive(Clone, Copy)]
pub(super) struct Arms<'a> {
    pub(super) pair: &'a Pair<'a>,
    /// The fields of the table; `None` for archs.
    pub(super) tables: Option<[&'a Fields; 2]>,
    pub(super) fills: [&'a Fills; 2],
    pub(super) names: &'a Names<'a>,
}

/// The fields that an entry names, whether the arms differ in them or not.
struct Named {
    /// General paths of the arch, and the layers that the entry selects.
    paths: Vec<String>,
    selection: Selection,
    /// Fields of the table.
    fields: Vec<&'static str>,
}

/// Resolves one entry.
pub(super) fn resolve(text: &str, arms: Arms<'_>) -> Result<TreatmentEntry, Refusal> {
    let text = text.trim();
    let full = if text == CANON { SLOTS } else { text };
    let named = named(text, full, arms)?;
    let Differing { cells, derived, other_fill } = differing(full, &named, arms);
    let mut fields = named.fields.clone();
    if let Some([a, b]) = arms.tables {
        fields.retain(|path| differs(a, b, path));
    }
    if cells.is_empty() && fields.is_empty() {
        return Err(match other_fill {
            Some((path, layer)) => not_canon(text, &path, layer, arms),
            None => nothing_differs(text, &named, derived.as_deref(), arms),
        });
    }
    // Canon layers count as one factor; every other cell counts as one each.
    let of_arch = if full == SLOTS { 1 } else { cells.len() };
    let factors = of_arch + fields.len();
    // Other weights have another digest once they are bound.
    if let (Some([a, b]), true) = (arms.tables, fields.contains(&"init.weights"))
        && [a, b].iter().all(|table| table.contains_key("init.digest"))
        && differs(a, b, "init.digest")
    {
        fields.push("init.digest");
    }
    Ok(TreatmentEntry { text: text.to_owned(), cells, fields, brought: Vec::new(), factors })
}

/// The fields that an entry names: those of its pattern, the row of its path, or those whose paths end in it. `full` is the
/// entry with `canon` written out.
fn named(text: &str, full: &str, arms: Arms<'_>) -> Result<Named, Refusal> {
    let known = arms.pair.paths();
    let named = |paths, selection, fields| Ok(Named { paths, selection, fields });
    if let Some((general, selection)) = pattern(full)
        && known.iter().any(|path| means(&general, path))
    {
        selection.within(text, &general, arms.pair)?;
        let paths = known.into_iter().filter(|path| means(&general, path));
        return named(paths.cloned().collect(), selection, Vec::new());
    }
    match field::find(full) {
        Some(def) if def.origin == Origin::Derived => Err(Refusal::derived(text, def.doc)),
        Some(def) if def.is_measurement() => Err(Refusal::measured(text, def.path)),
        Some(def) if arms.tables.is_some() => named(Vec::new(), Selection::All, vec![def.path]),
        Some(_) => Err(Refusal::not_of_archs(text)),
        None => {
            let (paths, fields) = ending_in(text, full, &known, arms)?;
            named(paths, Selection::All, fields)
        }
    }
}

/// The fields of the arch and of the table whose paths end in an entry: `rope.dims`, `lr`.
fn ending_in(
    text: &str,
    full: &str,
    known: &BTreeSet<&String>,
    arms: Arms<'_>,
) -> Result<(Vec<String>, Vec<&'static str>), Refusal> {
    let ends = |path: &str| {
        path.strip_suffix(full).is_some_and(|rest| rest.ends_with('.')) && !full.is_empty()
    };
    let paths: Vec<String> =
        known.iter().filter(|path| ends(path)).map(|path| (*path).clone()).collect();
    let mut fields: Vec<&'static str> = Vec::new();
    if let Some([a, b]) = arms.tables {
        let free = || TABLE.iter().filter(|def| def.origin != Origin::Derived);
        fields.extend(free().map(|def| def.path).filter(|path| ends(path)));
        measurement(text, &fields)?;
        if paths.is_empty() && full == field::MEASUREMENTS {
            return Err(Refusal::measured(text, full));
        }
        let section: Vec<&FieldDef> = free().filter(|def| def.section() == full).collect();
        if paths.is_empty() && !section.is_empty() {
            let treatable = section.iter().filter(|def| !def.is_measurement());
            let differing = treatable.map(|def| def.path).filter(|path| differs(a, b, path));
            return Err(Refusal::section(text, &fields, &differing.collect::<Vec<_>>()));
        }
    }
    if paths.is_empty() && fields.is_empty() {
        return Err(match slot_outside_layers(text, arms.pair) {
            Some(path) => Refusal::slot_elsewhere(text, &path),
            None => unknown(text, known, arms.tables.is_some()),
        });
    }
    Ok((paths, fields))
}

/// The cells of an entry in which the arms differ, and why others are left out.
struct Differing {
    /// Free cells, by general path.
    cells: Vec<(String, Vec<Layer>)>,
    /// A path at which the arms differ only because other fields do.
    derived: Option<String>,
    /// For `canon`: a slot with another fill.
    other_fill: Option<(String, Layer)>,
}

fn differing(full: &str, named: &Named, Arms { pair, fills, .. }: Arms<'_>) -> Differing {
    let mut out = Differing { cells: Vec::new(), derived: None, other_fill: None };
    for path in &named.paths {
        let layers = pair.differing(path).into_iter().filter(|layer| named.selection.has(*layer));
        let layers: Vec<Layer> = layers.collect();
        let free: Vec<Layer> =
            layers.iter().copied().filter(|layer| pair.free(path, *layer)).collect();
        if free.is_empty() && !layers.is_empty() {
            out.derived = Some(path.clone());
            continue;
        }
        let (treated, others): (Vec<Layer>, Vec<Layer>) =
            free.into_iter().partition(|layer| full != SLOTS || canon(fills, path, *layer));
        if let Some(layer) = others.first() {
            out.other_fill.get_or_insert((path.clone(), *layer));
        }
        if !treated.is_empty() {
            out.cells.push((path.clone(), treated));
        }
    }
    out
}

/// Explains that the slots in which the arms differ hold something other than Canon layers.
fn not_canon(text: &str, path: &str, layer: Layer, arms: Arms<'_>) -> Refusal {
    let slot = slot_of(path).unwrap_or(path);
    let is_other = |arm: usize| {
        layer.is_some_and(|n| arms.fills[arm].get(&(n, slot.to_owned())) == Some(&false))
    };
    let mut fills = arms.pair.values(path, layer).into_iter().enumerate();
    let fill = fills.find_map(|(arm, fill)| Some((arm, fill?)).filter(|(arm, _)| is_other(*arm)));
    let fill = fill.map_or("empty".to_owned(), |(arm, fill)| arms.names.called(arm, fill));
    Refusal::not_canon(text, slot, &fill)
}

/// Explains why an entry names no difference.
fn nothing_differs(
    text: &str,
    named: &Named,
    derived: Option<&str>,
    Arms { pair, tables, .. }: Arms<'_>,
) -> Refusal {
    if let Some(path) = slot_outside_layers(text, pair) {
        return Refusal::slot_elsewhere(text, &path);
    }
    if let Some(path) = derived {
        return Refusal::follows(text, path);
    }
    let Some(path) = named.paths.first() else {
        let value = named.fields.iter().find_map(|path| value(tables, path));
        return Refusal::agree(text, &value.unwrap_or_default(), &[]);
    };
    let selected = named.paths.iter().flat_map(|path| {
        let layers = pair.layers(path).into_iter().filter(|layer| named.selection.has(*layer));
        layers.map(move |layer| (path, layer))
    });
    let mut selected = selected.peekable();
    if selected.peek().is_none() {
        return Refusal::not_in_layers(text, path);
    }
    let values: BTreeSet<&str> =
        selected.filter_map(|(path, layer)| pair.values(path, layer)[0]).collect();
    let values = values.into_iter().collect::<Vec<_>>().join(" or ");
    Refusal::agree(text, &values, &beneath(pair, path))
}

/// Refuses an entry that covers a field of what is measured.
fn measurement(text: &str, fields: &[&str]) -> Result<(), Refusal> {
    let mut defs = fields.iter().filter_map(|path| field::find(path));
    match defs.find(|def| def.is_measurement()) {
        Some(def) => Err(Refusal::measured(text, def.path)),
        None => Ok(()),
    }
}

/// Whether a slot holds a Canon layer in one arm, and the same or nothing in the other.
pub(super) fn canon(fills: [&Fills; 2], path: &str, layer: Layer) -> bool {
    let (Some(layer), Some(slot)) = (layer, slot_of(path)) else { return false };
    let both = fills.map(|fills| fills.get(&(layer, slot.to_owned())));
    both.iter().any(Option::is_some) && both.into_iter().flatten().all(|canon| *canon)
}

/// Gives each entry the fields that come and go with its own and that no other entry declares. Each
/// brought field without its usual value adds a factor.
pub(super) fn bring(entries: &mut [TreatmentEntry], tables: [&Fields; 2]) {
    let declared: BTreeSet<&str> = entries.iter().flat_map(|e| e.fields.iter().copied()).collect();
    for entry in entries {
        for def in TABLE.iter() {
            let Some((on, _)) = def.only else { continue };
            let values = tables.map(|table| table.get(def.path).map(|value| (table, value)));
            let ([Some((table, value)), None] | [None, Some((table, value))]) = values else {
                continue;
            };
            let counts = matches!(def.class, Class::Semantic | Class::Measured);
            if counts && entry.fields.contains(&on) && !declared.contains(def.path) {
                entry.brought.push(def.path);
                entry.factors +=
                    usize::from(usual(def, table).is_some_and(|usual| usual != *value));
            }
        }
    }
}

/// The value that a kind has unless someone chooses another; `None` if that kind requires a choice. A
/// kind without warmup is like one with zero warmup steps.
pub(super) fn usual(def: &FieldDef, fields: &Fields) -> Option<FieldValue> {
    match def.path {
        "schedule.warmup" => Some(FieldValue::Int(0)),
        // The task includes which documents a text consists of.
        "data.digest" | "init.digest" => None,
        _ => field::default_of(def, fields),
    }
}

fn value(tables: Option<[&Fields; 2]>, path: &str) -> Option<String> {
    Some(tables?.first()?.get(path)?.plain())
}

/// Whether a table's field differs. Either form of the budget may have been written.
fn differs(a: &Fields, b: &Fields, path: &str) -> bool {
    a.get(path) != b.get(path)
}

/// A slot outside the layers, such as the head's, in which the arms differ: `canon` does not include it.
fn slot_outside_layers(text: &str, pair: &Pair<'_>) -> Option<String> {
    let outside = |path: &&&String| slot_of(path).is_some() && !path.starts_with("arch.layers.");
    let paths = pair.paths();
    let mut slots = paths.iter().filter(|_| text == CANON).filter(outside);
    slots.find(|path| !pair.differing(path).is_empty()).map(|path| (*path).clone())
}

/// Fields below a path in which the arms differ.
fn beneath(pair: &Pair<'_>, path: &str) -> Vec<String> {
    let prefix = format!("{path}.");
    let below = pair.paths().into_iter().filter(|p| p.starts_with(&prefix));
    below.filter(|p| !pair.differing(p).is_empty()).cloned().collect()
}

fn unknown(text: &str, known: &BTreeSet<&String>, table: bool) -> Refusal {
    let mut words: BTreeSet<&str> = BTreeSet::new();
    for path in known {
        let short = path.trim_start_matches("arch.layers.*.");
        words.extend([path.as_str(), short]);
        // `rope.dims` of `mixer.rope.dims`.
        let dots: Vec<usize> = short.match_indices('.').map(|(at, _)| at + 1).collect();
        words.extend(dots.iter().filter_map(|at| short.get(*at..)).filter(|s| s.contains('.')));
    }
    words.insert(CANON);
    if table {
        let treatable = field::writable().filter(|def| !def.is_measurement());
        words.extend(treatable.map(|def| def.path));
    }
    let alias = field::suggest(text).filter(|_| table);
    let last = text.rsplit('.').next().unwrap_or(text);
    let suggestion = dsl::suggest(text, words.iter().copied())
        .or(alias)
        .or_else(|| words.iter().copied().find(|word| word.rsplit('.').next() == Some(last)))
        .filter(|word| *word != text);
    Refusal::unknown(text, suggestion)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_layers() {
        for (text, general, layers) in [
            ("arch.layers.*.slots.A", "arch.layers.*.slots.A", vec![0, 1, 2, 3]),
            ("arch.layers.0..2.mixer.heads", "arch.layers.*.mixer.heads", vec![0, 1]),
            ("arch.layers[1..3].mixer", "arch.layers.*.mixer", vec![1, 2]),
            ("arch.layers.3.mlp", "arch.layers.*.mlp", vec![3]),
            ("arch.layers.1..4/2.mlp", "arch.layers.*.mlp", vec![1, 3]),
            ("arch.layers.*", "arch.layers.*", vec![0, 1, 2, 3]),
            ("arch.layers", "arch.layers", vec![0, 1, 2, 3]),
            ("arch.vocab", "arch.vocab", vec![0, 1, 2, 3]),
        ] {
            let (path, selection) = pattern(text).unwrap();
            let selected: Vec<usize> = (0..4).filter(|n| selection.has(Some(*n))).collect();
            assert_eq!((path.as_str(), selected), (general, layers), "{text}");
        }
        assert_eq!(pattern("arch.layers.x.y"), None);
        assert_eq!(pattern("arch.layers.0..2/0.y"), None);
        for text in [
            "arch.layers[0..2.slots.A",
            "arch.layers.0..2].slots.A",
            "arch.layers[0]slots.A",
            "arch.layers.0..2slots.A",
            "arch.layers.[0].slots.A",
            "arch.layers.]0.slots.A",
            "arch.layers[0].",
            "arch.layers[",
            "arch.layers[].slots.A",
            "arch.layers.",
            "arch.layers..slots.A",
            "arch.layers.0.",
            "arch.layers.0..",
            "arch.layers.0..2..slots.A",
            "arch.layers.0/2/2.slots.A",
            "arch.layers.+1.slots.A",
            "arch.layers[+1].slots.A",
            "arch.layers[ 1 ].slots.A",
        ] {
            assert_eq!(pattern(text), None, "{text}");
        }
    }

    #[test]
    fn stars_match_one_slot() {
        assert!(means(SLOTS, "arch.layers.*.slots.A"));
        assert!(!means(SLOTS, "arch.layers.*.slots.A.kernel"));
        assert!(!means(SLOTS, "arch.layers.*.mixer"));
    }
}
