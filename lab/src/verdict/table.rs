//! Sorts differences in the field table into groups.
//!
//! A field's class alone decides its group. Steps and total tokens affect training, so a difference in them is a confound even
//! if it follows from another field, unless it is declared.

use std::collections::BTreeSet;

use super::fills::only_canon;
use super::judge::{Judge, effective};
use super::model::Change;
use super::treatment::usual;
use crate::experiment::{Experiment, is_idle};
use crate::field::{self, Class, FieldDef, FieldValue, Fields, Origin, TABLE};

/// Costs that depend on `arch.seq_len`.
const AT_SEQ_LEN: [&str; 5] = [
    "arch.flops_per_token",
    "arch.saved_per_token",
    "arch.state",
    "arch.state_per_token",
    "arch.train_flops_per_token",
];

/// A verdict's note on another trainer's evaluations.
const SCORES: &str = "scores of another trainer's evaluations depend on it";

/// Why a field that both arms have differs without an effect.
fn why_idle(path: &str) -> &'static str {
    match path {
        "data.source" => "the digest identifies the data",
        "init.weights" => "the digest identifies the weights",
        _ => "no weight is drawn",
    }
}

impl Judge<'_> {
    /// Adds each difference in the table's fields to its group. `substituted` is arm a with b's values at the treatment.
    pub(super) fn table(
        &self,
        substituted: Option<&Experiment>,
        declared: &BTreeSet<&'static str>,
        brought: &BTreeSet<&'static str>,
        confounds: &mut Vec<Change>,
        consequences: &mut Vec<Change>,
        cosmetic: &mut Vec<Change>,
    ) {
        let Some([ours, theirs]) = &self.effective else { return };
        let substituted = substituted.map_or_else(|| ours.clone(), effective);
        for def in TABLE.iter() {
            let path = def.path;
            let (before, after) = (ours.get(path), theirs.get(path));
            if declared.contains(path) || brought.contains(path) {
                continue;
            }
            // If the arms agree on one form of the budget, the other form shows the difference.
            let agree = before == after;
            let follows = substituted.get(path) == after;
            if agree && (def.origin == Origin::Decides || follows) {
                continue;
            }
            let change = || self.field_change(path, before, after);
            match (def.origin, def.class) {
                (_, Class::Carried) => {
                    self.carried([before, after], change(), confounds, cosmetic);
                }
                (Origin::Derived, _) | (_, Class::Platform | Class::Cosmetic) => {}
                (Origin::Decides, _) if self.budget_follows(path, declared) => {
                    consequences.push(change());
                }
                (Origin::Decides, _) => confounds.push(change().note("affects training")),
                (Origin::Free, _) if follows => consequences.push(change()),
                (Origin::Free, Class::Measured) => {
                    confounds.push(change().note("measured differently"));
                }
                (Origin::Free, Class::Semantic) => {
                    if is_idle(path, ours) && is_idle(path, theirs) {
                        cosmetic.push(change().note(why_idle(path)));
                    } else if agree {
                        confounds
                            .push(change().note("equal now, but not with the treatment alone"));
                    } else {
                        confounds.push(change());
                    }
                }
            }
        }
    }

    /// Whether the other form of the budget shows a difference in this one. With steps of equal size, both forms give the same
    /// number.
    fn budget_follows(&self, path: &str, declared: &BTreeSet<&'static str>) -> bool {
        let Some([a, b]) = self.experiments else { return false };
        let per_step = "batch.tokens_per_step";
        let other = if path == "budget.steps" { "budget.tokens" } else { "budget.steps" };
        let chosen = |path: &str| a.fields.contains_key(path) && b.fields.contains_key(path);
        let shown = if chosen("budget.tokens") { "budget.tokens" } else { "budget.steps" };
        a.value(per_step) == b.value(per_step) && (declared.contains(other) || path != shown)
    }

    /// The fields that an entry brought, marking those with the usual value.
    pub(super) fn brought_changes(&self, brought: &[&'static str]) -> Vec<Change> {
        let Some(tables) = &self.effective else { return Vec::new() };
        let one = |path: &&'static str| {
            let def = field::find(path)?;
            let [a, b] = [0, 1].map(|i| tables[i].get(*path));
            let is_usual = |table: &Fields, value: Option<&FieldValue>| {
                value.is_some() && usual(def, table).as_ref() == value
            };
            let defaults = [is_usual(&tables[0], a), is_usual(&tables[1], b)];
            Some(Change { defaults, ..self.field_change(path, a, b) })
        };
        brought.iter().filter_map(one).collect()
    }

    /// Derived fields that differ between the arms, except those that identify something or affect the result.
    pub(super) fn derived_changes(&self) -> Vec<Change> {
        let hidden = [
            "arch.graph",
            "arch.manifest",
            "data.task_digest",
            "optimizer.decayed",
            "optimizer.groups",
        ];
        let canon = self.archs.iter().all(|arch| only_canon(&arch.graph));
        let lengths = match self.sides.map(|side| side.derived("arch.seq_len")) {
            [Some(a), Some(b)] if a != b => {
                Some(format!("counted at seq_len {} and {}", a.plain(), b.plain()))
            }
            [Some(_) | None, Some(_) | None] => None,
        };
        TABLE
            .iter()
            .filter(|def| def.origin == Origin::Derived && !hidden.contains(&def.path))
            .filter_map(|def| {
                let [a, b] = self.sides.map(|side| side.derived(def.path));
                // Derived values are written nowhere.
                let change = Change {
                    places: [None, None],
                    ..self.field_change(def.path, a.as_ref(), b.as_ref())
                };
                let change = match &lengths {
                    Some(at) if AT_SEQ_LEN.contains(&def.path) => {
                        let note = format!("{}  {at}", change.note);
                        change.note(note.trim_start())
                    }
                    Some(_) | None => change,
                };
                let misnamed = def.path == "arch.canon_parameters" && !canon;
                let path =
                    if misnamed { "slot parameters".to_owned() } else { change.path.clone() };
                (a != b).then_some(Change { path, ..change })
            })
            .collect()
    }

    pub(super) fn class_changes(
        &self,
        class: Class,
        declared: &BTreeSet<&'static str>,
    ) -> Vec<Change> {
        let Some([a, b]) = &self.effective else { return Vec::new() };
        TABLE
            .iter()
            .filter(|def| def.class == class && def.origin == Origin::Free)
            .filter(|def| !declared.contains(def.path) && a.get(def.path) != b.get(def.path))
            .map(|def| self.field_change(def.path, a.get(def.path), b.get(def.path)))
            .collect()
    }

    pub(super) fn field_change(
        &self,
        path: &str,
        a: Option<&FieldValue>,
        b: Option<&FieldValue>,
    ) -> Change {
        let unit = field::find(path).map_or("", |def| def.unit);
        let places = [0, 1].map(|i| self.sources.fact(i, path));
        let change = Change::of_field(path, a, b, unit, places);
        // For a value that someone chose, the relative change is not useful.
        let free = field::find(path).is_some_and(|def| def.origin == Origin::Free);
        if field::find(path).is_some_and(FieldDef::reaches_scores) {
            return change.note(SCORES);
        }
        if free { change.note("") } else { change }
    }
}
