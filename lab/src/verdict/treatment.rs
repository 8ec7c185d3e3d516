//! Resolves a treatment's entries to fields of two arms.
//!
//! In: `canon`, `rope.dims`, `optimizer.lr`, `arch.layers.*.slots.A`, and the arms. Out: the general
//! paths and layers of each entry, or why it has none. Must stay true: an entry names free fields; an
//! entry that matches no field, only derived fields, or only fields that agree is an error; an entry
//! that names several independent fields counts as several, and so do values that a kind of schedule or
//! task brings and does not fix; `canon` counts as one, however its layers are set, and lists the settings.

use std::collections::BTreeSet;

use super::Refusal;
use super::fills::Fills;
use super::index::{Layer, Pair, slot_of};
use super::names::Names;
use crate::field::{self, Class, FieldDef, FieldValue, Fields, Origin, TABLE};

/// A valid entry, with the fields in which the arms differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
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

/// Every slot of every layer that holds a Canon layer in one arm, and the same or nothing in the other.
pub(super) const CANON: &str = "canon";
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

/// Resolves one entry. `tables` are both arms' fields; `None` for archs.
pub(super) fn resolve(
    text: &str,
    pair: &Pair<'_>,
    tables: Option<[&Fields; 2]>,
    fills: [&Fills; 2],
    names: &Names<'_>,
) -> Result<Entry, Refusal> {
    let text = text.trim();
    let known: BTreeSet<&String> = pair.paths();
    let full = if text == CANON { SLOTS } else { text };
    let mut cells: Vec<(String, Vec<Layer>)> = Vec::new();
    let mut fields: Vec<&'static str> = Vec::new();
    let mut found = Vec::new();
    let exact = pattern(full).filter(|(general, _)| known.iter().any(|path| means(general, path)));
    let row = field::find(full);
    let mut selection = Selection::All;
    match (exact, row) {
        (Some((general, selected)), _) => {
            selection = selected;
            selection.within(text, &general, pair)?;
            found.extend(known.iter().filter(|path| means(&general, path)).map(|p| (*p).clone()));
        }
        (None, Some(def)) if def.origin == Origin::Derived => {
            return Err(Refusal::derived(text, def.doc));
        }
        (None, Some(def)) if def.is_measurement() => return Err(Refusal::measured(text, def.path)),
        (None, Some(def)) if tables.is_some() => fields.push(def.path),
        (None, Some(_)) => return Err(Refusal::not_of_archs(text)),
        (None, None) => {
            let ends = |path: &str| {
                path.strip_suffix(full).is_some_and(|rest| rest.ends_with('.')) && !full.is_empty()
            };
            found.extend(known.iter().filter(|path| ends(path)).map(|path| (*path).clone()));
            if let Some(tables) = tables {
                let free = || field::TABLE.iter().filter(|def| def.origin != Origin::Derived);
                fields.extend(free().map(|def| def.path).filter(|path| ends(path)));
                let section = free().filter(|def| def.section() == full).map(|def| def.path);
                let section: Vec<&str> = section.collect();
                measurement(text, &fields)?;
                if found.is_empty() && full == field::MEASUREMENTS {
                    return Err(Refusal::measured(text, full));
                }
                if found.is_empty() && !section.is_empty() {
                    let differing = section.iter().copied();
                    let differing = differing.filter(|path| differs(tables[0], tables[1], path));
                    let differing = differing.filter(|path| measurement(text, &[path]).is_ok());
                    return Err(Refusal::section(text, &fields, &differing.collect::<Vec<_>>()));
                }
            }
            if found.is_empty() && fields.is_empty() {
                if let Some(path) = elsewhere(text, pair) {
                    return Err(Refusal::slot_elsewhere(text, &path));
                }
                return Err(unknown(text, &known, tables.is_some()));
            }
        }
    }
    let mut derived = None;
    let mut other = None;
    for path in &found {
        let differing: Vec<Layer> =
            pair.differing(path).into_iter().filter(|layer| selection.has(*layer)).collect();
        let free: Vec<Layer> =
            differing.iter().copied().filter(|layer| pair.free(path, *layer)).collect();
        if free.is_empty() && !differing.is_empty() {
            derived = Some(path.clone());
            continue;
        }
        let (meant, not): (Vec<Layer>, Vec<Layer>) =
            free.into_iter().partition(|layer| full != SLOTS || canon(fills, path, *layer));
        if let Some(layer) = not.first() {
            other.get_or_insert((path.clone(), *layer));
        }
        if !meant.is_empty() {
            cells.push((path.clone(), meant));
        }
    }
    let agreed = fields.iter().find_map(|path| value(tables, path));
    if let Some([a, b]) = tables {
        fields.retain(|path| differs(a, b, path));
    }
    if cells.is_empty() && fields.is_empty() {
        if let Some((path, layer)) = other {
            let slot = slot_of(&path).unwrap_or(&path);
            let other = |arm: usize| {
                layer.is_some_and(|n| fills[arm].get(&(n, slot.to_owned())) == Some(&false))
            };
            let held = pair.values(&path, layer).into_iter().enumerate();
            let mut held =
                held.filter_map(|(arm, fill)| Some((arm, fill?))).filter(|(arm, _)| other(*arm));
            let fill =
                held.next().map_or("empty".to_owned(), |(arm, fill)| names.called(arm, fill));
            return Err(Refusal::not_canon(text, slot, &fill));
        }
        if let Some(path) = elsewhere(text, pair) {
            return Err(Refusal::slot_elsewhere(text, &path));
        }
        return Err(match (derived, found.first()) {
            (Some(path), _) => Refusal::follows(text, &path),
            (None, Some(path)) => {
                let meant = |path: &String| {
                    let layers = pair.layers(path).into_iter().filter(|l| selection.has(*l));
                    layers.map(|layer| (path.clone(), layer)).collect::<Vec<_>>()
                };
                let meant: Vec<(String, Layer)> = found.iter().flat_map(meant).collect();
                if meant.is_empty() {
                    return Err(Refusal::not_in_layers(text, path));
                }
                let values = meant.iter().filter_map(|(path, layer)| pair.values(path, *layer)[0]);
                let values: BTreeSet<&str> = values.collect();
                let values = values.into_iter().collect::<Vec<_>>().join(" or ");
                let below: Vec<String> = beneath(pair, path);
                Refusal::agree(text, &values, &below)
            }
            (None, None) => Refusal::agree(text, &agreed.unwrap_or_default(), &[]),
        });
    }
    // Canon layers count as one factor; every other cell counts as one each.
    let of_arch = if full == SLOTS { 1 } else { cells.len() };
    let factors = of_arch + fields.len();
    Ok(Entry { text: text.to_owned(), cells, fields, brought: Vec::new(), factors })
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
pub(super) fn bring(entries: &mut [Entry], tables: [&Fields; 2]) {
    let declared: BTreeSet<&str> = entries.iter().flat_map(|e| e.fields.iter().copied()).collect();
    for entry in entries {
        for def in TABLE.iter() {
            let Some((on, _)) = def.only else { continue };
            let held = tables.map(|table| table.get(def.path).map(|value| (table, value)));
            let ([Some((table, value)), None] | [None, Some((table, value))]) = held else {
                continue;
            };
            let told = matches!(def.class, Class::Semantic | Class::Measured);
            if told && entry.fields.contains(&on) && !declared.contains(def.path) {
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
        "data.digest" => None,
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
fn elsewhere(text: &str, pair: &Pair<'_>) -> Option<String> {
    let outside = |path: &&&String| slot_of(path).is_some() && !path.starts_with("arch.layers.");
    let paths = pair.paths();
    let mut found = paths.iter().filter(|_| text == CANON).filter(outside);
    found.find(|path| !pair.differing(path).is_empty()).map(|path| (*path).clone())
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
    let near = dsl::suggest(text, words.iter().copied())
        .or(alias)
        .or_else(|| words.iter().copied().find(|word| word.rsplit('.').next() == Some(last)))
        .filter(|near| *near != text);
    Refusal::unknown(text, near)
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
            let found: Vec<usize> = (0..4).filter(|n| selection.has(Some(*n))).collect();
            assert_eq!((path.as_str(), found), (general, layers), "{text}");
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
