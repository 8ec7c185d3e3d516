//! Reads the declarations of a comparison file, key by key, and then what several of them have to agree in.

use std::collections::BTreeMap;

use dsl::{Decimal, Span};
use tasks::metric::{self, EVAL_LOSS};
use toml::de::DeValue;

use super::{ArmFile, ComparisonReader, ComparisonRow, MATCH, diag};
use crate::comparison::{
    Declared, DeclaredAnalysis, Grid, Match, MatchScope, Quantity, Selection, SelectionMode,
    grid_row, seed_list,
};
use crate::facts::Fact;
use crate::field::shown;
use crate::verdict::Trainer;

/// The declarations as written, as far as they have been read.
struct Written {
    arms: Vec<ArmFile>,
    base: Option<(String, Span)>,
    /// By arm; `None` is the list for all of them.
    treatment: BTreeMap<Option<String>, Vec<String>>,
    /// By `seeds.init` and so on.
    seeds: BTreeMap<String, Vec<u64>>,
    grid: Vec<Grid>,
    selection: Selection,
    /// The mode in `[selection]`.
    mode: Option<SelectionMode>,
    analysis: DeclaredAnalysis,
    on: Option<Quantity>,
    within: Option<Decimal>,
    scope: MatchScope,
    trainer: Trainer,
}

/// A key, where it is and where its value is.
#[derive(Clone, Copy)]
struct At<'p> {
    path: &'p str,
    key: Span,
    value: Span,
}

impl Written {
    fn new() -> Written {
        let metric = EVAL_LOSS.to_owned();
        Written {
            arms: Vec::new(),
            base: None,
            treatment: BTreeMap::new(),
            seeds: BTreeMap::new(),
            grid: Vec::new(),
            selection: Selection { metric, mode: SelectionMode::Min, per_arm: true },
            mode: None,
            analysis: DeclaredAnalysis::default(),
            on: None,
            within: None,
            scope: MatchScope::default(),
            trainer: Trainer::Any,
        }
    }
}

impl ComparisonReader<'_> {
    pub(super) fn declarations(
        &mut self,
        leaves: &[Fact<'_, '_>],
    ) -> (Vec<ComparisonRow>, Declared) {
        let shared = self.shared(leaves);
        let mut written = Written::new();
        for fact in leaves {
            let at = At {
                path: fact.path.as_str(),
                key: self.span(&fact.key),
                value: self.span(&fact.at),
            };
            self.spans.insert(fact.path.clone(), at.value);
            self.declaration(at, fact.value, shared.as_deref(), &mut written);
        }
        let matching = written.on.map(|on| match written.within {
            Some(within) => Match { on, within },
            None => Match::usual(on),
        });
        self.check_match(leaves);
        self.settle_mode(written.mode, &mut written.selection);
        let Written {
            arms, base, treatment, seeds, grid, selection, analysis, scope, trainer, ..
        } = written;
        let rows = self.rows(arms, leaves, shared.as_deref());
        let arms: &[ArmFile] = rows.first().map_or(&[], |row| &row.arms);
        if shared.is_some() && !arms.is_empty() && arms.iter().all(|arm| arm.arch.is_none()) {
            let at = self.span_of("recipe");
            self.diagnostics.push(diag::idle_recipe(at));
        }
        let base = self.base(base, arms);
        let treatment = self.treatment(treatment, arms, &base);
        self.check_scope(&scope, arms, &base, &treatment);
        let (seeds, replicate) = self.seeds(&seeds);
        for path in grid.iter().flat_map(|row: &Grid| &row.paths) {
            if treatment.values().flatten().any(|entry| entry == path) {
                let at = self.span_of("treatment");
                self.diagnostics.push(diag::nuisance_in_treatment(at, path));
            }
        }
        let declared = Declared {
            base,
            treatment,
            seeds,
            replicate,
            grid,
            selection,
            analysis,
            matching,
            scope,
            trainer,
        };
        (rows, declared)
    }

    fn declaration(
        &mut self,
        at: At<'_>,
        value: &DeValue<'_>,
        shared: Option<&str>,
        written: &mut Written,
    ) {
        let path = at.path;
        match (path.split_once('.'), value) {
            (None, DeValue::String(text)) if path == "base" => {
                written.base = Some((text.to_string(), at.value));
            }
            (None, value) if path == "treatment" => {
                let entries = self.strings(path, value, at.value);
                written.treatment.insert(None, entries);
            }
            (None, value) if path == "trainer" => match Trainer::read(value) {
                Ok(trainer) => written.trainer = trainer,
                Err(_) => {
                    let want = "\"canonc\" or \"pytorch\"; leave it out if another trainer may run the arms";
                    let got = shown(value);
                    self.diagnostics.push(diag::wrong_shape(at.value, path, &got, want));
                }
            },
            (Some(("treatment", arm)), value) => {
                let entries = self.strings(path, value, at.value);
                written.treatment.insert(Some(arm.to_owned()), entries);
            }
            // Read later, with the arms that are the same in every row.
            (Some(("sweep", _)), _) => {}
            // Read before all arms.
            (None, DeValue::String(_)) if path == "recipe" => {}
            (Some(("arms", arm)), DeValue::String(text)) => {
                self.arm(arm, text, shared, (at.key, at.value), &mut written.arms);
            }
            (Some(("seeds" | "replicate", which)), value)
                if ["init", "data", "eval"].contains(&which) =>
            {
                if let Some(list) = self.seed_list(value, at) {
                    written.seeds.insert(path.to_owned(), list);
                }
            }
            (Some(("grid", paths)), value) => match grid_row(paths, value) {
                Ok(row) => written.grid.push(row),
                Err(reason) => self.diagnostics.push(diag::bad_grid(at.value, paths, &reason)),
            },
            (Some(("selection", name)), value) => self.selection(name, value, at, written),
            (Some(("analysis", name)), value) if DeclaredAnalysis::KEYS.contains(&path) => {
                if let Err(reason) = written.analysis.take(name, value) {
                    self.diagnostics.push(diag::bad_analysis(at.value, path, &reason));
                }
            }
            (None, value @ DeValue::String(_)) if path == "match" => {
                written.on = self.match_value(at, Quantity::read(value));
            }
            (Some(("match", name)), value) => self.matching(name, value, at, written),
            (_, value) => self.unknown(path, value, at.key, at.value),
        }
    }

    fn seed_list(&mut self, value: &DeValue<'_>, at: At<'_>) -> Option<Vec<u64>> {
        match seed_list(value) {
            Ok(list) if list.is_empty() => {
                self.diagnostics.push(diag::empty_list(at.value, at.path));
                None
            }
            Ok(list) => Some(list),
            Err(reason) => {
                self.diagnostics.push(diag::bad_value(at.value, at.path, &reason));
                None
            }
        }
    }

    /// Reads a key of `[selection]`.
    fn selection(&mut self, name: &str, value: &DeValue<'_>, at: At<'_>, written: &mut Written) {
        match (name, value) {
            ("metric", DeValue::String(text)) if metric::is_known(text.as_ref()) => {
                written.selection.metric = text.to_string();
            }
            ("mode", DeValue::String(text)) if text == "min" => {
                written.mode = Some(SelectionMode::Min);
            }
            ("mode", DeValue::String(text)) if text == "max" => {
                written.mode = Some(SelectionMode::Max);
            }
            ("per_arm", DeValue::Boolean(per_arm)) => written.selection.per_arm = *per_arm,
            (_, value) => self.unknown(at.path, value, at.key, at.value),
        }
    }

    /// Reads a key of `[match]`.
    fn matching(&mut self, name: &str, value: &DeValue<'_>, at: At<'_>, written: &mut Written) {
        match (name, value) {
            ("on", value) => written.on = self.match_value(at, Quantity::read(value)),
            ("within", value) => written.within = self.match_value(at, Match::share(value)),
            ("arms", value) => written.scope.arms = self.strings(at.path, value, at.value),
            ("compensate", DeValue::String(entry)) => {
                written.scope.compensate = vec![entry.to_string()];
            }
            ("compensate", value) => {
                written.scope.compensate = self.strings(at.path, value, at.value);
            }
            (_, value) => self.unknown(at.path, value, at.key, at.value),
        }
    }

    /// Returns a value of `[match]`, or reports why it is invalid.
    fn match_value<T>(&mut self, at: At<'_>, read: Result<T, String>) -> Option<T> {
        let report = |reason: String| {
            self.diagnostics.push(diag::bad_match(at.value, at.path, &reason));
        };
        read.map_err(report).ok()
    }

    /// Reports a match without a quantity. A quantity that is written and wrong has been reported.
    fn check_match(&mut self, leaves: &[Fact<'_, '_>]) {
        // The spans also have tables.
        let is_given = |key: &str| leaves.iter().any(|fact| fact.path == key);
        if !is_given("match.on") && !is_given("match") && MATCH.iter().any(|key| is_given(key)) {
            let at = self.span_of("match");
            self.diagnostics.push(diag::missing_key(at, "match.on", "on = \"parameters\""));
        }
    }

    /// The mode follows from the metric; another one is reported.
    fn settle_mode(&mut self, written: Option<SelectionMode>, selection: &mut Selection) {
        let least = metric::is_less_better(&selection.metric);
        let best = if least { SelectionMode::Min } else { SelectionMode::Max };
        if written.is_some_and(|mode| mode != best) {
            let at = self.span_of("selection.mode");
            self.diagnostics.push(diag::worst_mode(at, &selection.metric, best));
        }
        selection.mode = best;
    }
}
