//! Reads comparison files: recipes used as arms, and the intended differences between them.
//!
//! The TOML has `base`, `treatment`, `[arms]`, `[seeds]`, and optionally `trainer`, `[replicate]` (the A/A arm),
//! `[grid]`, `[selection]`, `[analysis]`, `[match]`, and `[sweep]` for several comparisons that differ only in their
//! arms. A treatment is declared here once, before any run; a nuisance or a seed cannot be a treatment.

mod declarations;
mod rows;

use std::collections::BTreeMap;
use std::ops::Range;

use dsl::{Diagnostics, FileId, Sources, Span};
use tasks::metric;
use toml::de::DeValue;

use super::{ArchRef, diag};
use crate::comparison::{
    Arm, Comparison, Declared, DeclaredAnalysis, MatchScope, NoComparison, zip_seeds,
};
use crate::experiment::{Experiment, Seeds};
use crate::facts::{self, Fact};
use crate::field::{self, FieldDef, shown};
use crate::grid::is_word;
use crate::verdict::{Change, Verdict};
use compiler::resolve::import_target;

pub use rows::ComparisonRow;

/// An arm in a comparison file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArmFile {
    /// Name of the arm.
    pub name: String,
    /// The path of its recipe, relative to the same directory as the comparison file's.
    pub recipe: String,
    /// The arch to use instead of the recipe's.
    pub arch: Option<ArchRef>,
    /// The name of one of the recipe's locks, if its sweep makes several.
    pub point: Option<String>,
}

/// A parsed comparison file.
#[derive(Clone, Debug)]
pub struct ComparisonFile {
    /// The file it was read from.
    pub file: FileId,
    /// One row for each comparison in the file.
    pub rows: Vec<ComparisonRow>,
    declared: Declared,
    spans: BTreeMap<String, Span>,
}

const KEYS: [&str; 12] = [
    "analysis",
    "arms",
    "base",
    "grid",
    "match",
    "recipe",
    "replicate",
    "seeds",
    "selection",
    "sweep",
    "trainer",
    "treatment",
];
/// Codes of errors about something missing.
const MISSING: [&str; 4] = ["missing-key", "no-such-arm", "seed-counts", "too-few-arms"];
/// The keys that are tables.
pub const SECTIONS: [&str; 9] =
    ["analysis", "arms", "grid", "match", "replicate", "seeds", "selection", "sweep", "treatment"];
const MATCH: [&str; 4] = ["match.arms", "match.compensate", "match.on", "match.within"];
const SELECTION: [&str; 3] = ["selection.metric", "selection.mode", "selection.per_arm"];

/// The keys of a section of a comparison file; of the file itself for an empty name. Names of arms are not listed.
pub fn keys_of(section: &str) -> Vec<&'static str> {
    let below = |paths: &[&'static str]| -> Vec<&'static str> {
        paths.iter().filter_map(|path| path.split_once('.').map(|(_, key)| key)).collect()
    };
    match section {
        "" => KEYS.into_iter().filter(|key| !SECTIONS.contains(key)).chain(["treatment"]).collect(),
        "seeds" | "replicate" => vec!["init", "data", "eval"],
        "match" => below(&MATCH),
        "selection" => below(&SELECTION),
        "analysis" => below(&DeclaredAnalysis::KEYS),
        _ => Vec::new(),
    }
}

/// Reads a comparison file. None if there are errors; all of them are reported, each at its line.
pub fn read(sources: &Sources, file: FileId) -> (Option<ComparisonFile>, Diagnostics) {
    let span = |at: &Range<usize>| Span::new(file, at.start, at.end);
    let (table, mut diagnostics) = match super::table(sources, file) {
        Ok(table) => (table, Diagnostics::new()),
        Err(diagnostics) => return (None, diagnostics),
    };
    let (mut leaves, tables) = facts::leaves(&table);
    let mut lacks_sections = false;
    for (section, at) in tables.iter().filter(|(path, _)| !path.contains('.')) {
        if !KEYS.contains(&section.as_str()) {
            diagnostics.push(diag::unknown_comparison_section(span(at), section, &SECTIONS));
            // Its keys are not reported one by one.
            leaves.retain(|fact| !super::within(&fact.path, section));
            lacks_sections = true;
        }
    }
    let spans = tables.iter().map(|(path, at)| (path.clone(), span(at))).collect();
    let mut reader = ComparisonReader { file, name: sources.name(file), diagnostics, spans };
    let (rows, declared) = reader.declarations(&leaves);
    let ComparisonReader { mut diagnostics, spans, .. } = reader;
    if lacks_sections {
        // What is missing may be in the section of the wrong name.
        diagnostics.retain(|d| !MISSING.contains(&d.code));
    }
    if diagnostics.is_empty() {
        (Some(ComparisonFile { file, rows, declared, spans }), diagnostics)
    } else {
        (None, diagnostics)
    }
}

/// Reads one file, and collects what is wrong with it.
struct ComparisonReader<'s> {
    file: FileId,
    name: &'s str,
    diagnostics: Diagnostics,
    spans: BTreeMap<String, Span>,
}

impl ComparisonReader<'_> {
    fn span(&self, at: &Range<usize>) -> Span {
        Span::new(self.file, at.start, at.end)
    }

    fn span_of(&self, path: &str) -> Span {
        self.spans.get(path).copied().unwrap_or(Span::new(self.file, 0, 0))
    }

    /// The recipe of every arm that names only an arch.
    fn shared(&mut self, leaves: &[Fact<'_, '_>]) -> Option<String> {
        let fact = leaves.iter().find(|fact| fact.path == "recipe")?;
        let DeValue::String(text) = fact.value else { return None };
        let at = self.span(&fact.at);
        self.recipe("recipe", text, at)
    }

    fn recipe(&mut self, path: &str, text: &str, at: Span) -> Option<String> {
        let clean = !text.chars().any(char::is_control) && text.ends_with(".toml");
        let target = import_target(self.name, text).filter(|_| clean);
        if target.is_none() {
            let want = "the path of a recipe relative to this file, with `/`";
            let got = shown(&DeValue::String(text.into()));
            self.diagnostics.push(diag::wrong_shape(at, path, &got, want));
        }
        target
    }

    fn arm(
        &mut self,
        arm: &str,
        text: &str,
        shared: Option<&str>,
        (key, at): (Span, Span),
        arms: &mut Vec<ArmFile>,
    ) {
        let letters = arm.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let twin = arms.iter().any(|known| known.name.eq_ignore_ascii_case(arm));
        if !letters || arm.is_empty() || arm.len() > 40 || twin {
            self.diagnostics.push(diag::bad_arm_name(key, arm));
        }
        let name = arm.to_owned();
        let path = format!("arms.{arm}");
        match (super::arch_ref(self.name, &DeValue::String(text.into())), shared) {
            (Some(arch), Some(recipe)) => {
                let recipe = recipe.to_owned();
                arms.push(ArmFile { name, recipe, arch: Some(arch), point: None });
            }
            (Some(arch), None) => {
                self.diagnostics.push(diag::arm_without_recipe(at, arm, text));
                let recipe = String::new();
                arms.push(ArmFile { name, recipe, arch: Some(arch), point: None });
            }
            (None, _) => {
                let (file, point) = match text.split_once('#') {
                    Some((file, point)) => (file, Some(point)),
                    None => (text, None),
                };
                let nameless = point.is_some_and(|point| !is_word(point));
                let recipe = self.recipe(&path, if nameless { text } else { file }, at);
                if let Some(recipe) = recipe.filter(|_| !nameless) {
                    let point = point.map(str::to_owned);
                    arms.push(ArmFile { name, recipe, arch: None, point });
                }
            }
        }
    }

    fn strings(&mut self, path: &str, value: &DeValue<'_>, at: Span) -> Vec<String> {
        let want = "a list of field paths in quotes, such as [\"canon\"]";
        let DeValue::Array(items) = value else {
            self.diagnostics.push(diag::wrong_shape(at, path, &shown(value), want));
            return Vec::new();
        };
        let mut out = Vec::new();
        for item in items {
            match field::string(item.get_ref()) {
                Some(text) => out.push(text.to_owned()),
                None => {
                    let (at, got) = (self.span(&item.span()), shown(item.get_ref()));
                    self.diagnostics.push(diag::wrong_shape(at, path, &got, want));
                }
            }
        }
        if items.is_empty() {
            self.diagnostics.push(diag::empty_list(at, path));
        }
        out
    }

    fn unknown(&mut self, path: &str, value: &DeValue<'_>, key: Span, at: Span) {
        if let Some(renamed) = diag::renamed_comparison_key(key, path) {
            self.diagnostics.push(renamed);
            return;
        }
        let got = shown(value);
        let diagnostic = match path {
            "base" => diag::wrong_shape(at, path, &got, "the name of an arm"),
            "recipe" => {
                diag::wrong_shape(at, path, &got, "the path of a recipe, such as \"depo.toml\"")
            }
            "selection.metric" => match field::renamed(value) {
                Some(renamed) => diag::bad_value(at, path, &renamed),
                None => diag::wrong_shape(at, path, &got, &field::one_of(metric::NAMES)),
            },
            "selection.mode" => diag::wrong_shape(at, path, &got, "\"min\" or \"max\""),
            "selection.per_arm" => diag::wrong_shape(at, path, &got, "true or false"),
            _ if path.starts_with("arms.") => {
                diag::wrong_shape(at, path, &got, "the path of a recipe, such as \"llama.toml\"")
            }
            _ if path.starts_with("seeds.") || path.starts_with("replicate.") => {
                let section = path.split('.').next().unwrap_or(path);
                let known = ["init", "data", "eval"].map(|kind| format!("{section}.{kind}"));
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                diag::unknown_comparison_key(key, path, &known)
            }
            "match" => {
                diag::bad_match(at, path, &format!("{got} does not name a quantity to match"))
            }
            _ => {
                let known: &[&str] = match path.split_once('.') {
                    Some(("selection", _)) => &SELECTION,
                    Some(("match", _)) => &MATCH,
                    Some(("analysis", _)) => &DeclaredAnalysis::KEYS,
                    Some(_) | None => &KEYS,
                };
                diag::unknown_comparison_key(key, path, known)
            }
        };
        self.diagnostics.push(diagnostic);
    }

    fn base(&mut self, base: Option<(String, Span)>, arms: &[ArmFile]) -> String {
        let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
        if arms.len() < 2 {
            let at = self.span_of("arms");
            self.diagnostics.push(diag::too_few_arms(at, arms.len()));
        }
        match base {
            Some((base, _)) if names.contains(&base.as_str()) => base,
            Some((base, at)) => {
                self.diagnostics.push(diag::no_such_arm(at, &base, &names));
                base
            }
            None => {
                if !self.spans.contains_key("base") {
                    let at = Span::new(self.file, 0, 0);
                    self.diagnostics.push(diag::missing_key(at, "base", "base = \"llama\""));
                }
                String::new()
            }
        }
    }

    /// For each arm except the base: its own list, or the shared one.
    fn treatment(
        &mut self,
        written: BTreeMap<Option<String>, Vec<String>>,
        arms: &[ArmFile],
        base: &str,
    ) -> BTreeMap<String, Vec<String>> {
        if written.is_empty() {
            let at = Span::new(self.file, 0, 0);
            let example = "treatment = [\"canon\"]";
            self.diagnostics.push(diag::missing_key(at, "treatment", example));
        }
        let names: Vec<&str> =
            arms.iter().map(|arm| arm.name.as_str()).filter(|name| *name != base).collect();
        // With a misspelt base, the real base would be reported as untreated.
        let has_base = names.len() < arms.len();
        for arm in written.keys().flatten() {
            self.check_treated(self.span_of(&format!("treatment.{arm}")), arm, arms, base);
        }
        let mut treatment = BTreeMap::new();
        for name in names {
            let entries = written.get(&Some(name.to_owned())).or_else(|| written.get(&None));
            match entries {
                Some(entries) => {
                    treatment.insert(name.to_owned(), entries.clone());
                }
                None if !written.is_empty() && has_base => {
                    let at = self.span_of("treatment");
                    let example = format!("{name} = [\"canon\"]");
                    self.diagnostics.push(diag::missing_key(
                        at,
                        &format!("treatment.{name}"),
                        &example,
                    ));
                }
                None => {}
            }
        }
        treatment
    }

    /// Reports a name that is the base or no arm. A base that is no arm has been reported.
    fn check_treated(&mut self, at: Span, name: &str, arms: &[ArmFile], base: &str) {
        let is_arm = |name: &str| arms.iter().any(|arm| arm.name == name);
        let wrong = if name == base { is_arm(base) } else { !is_arm(name) };
        if wrong {
            let others = arms.iter().map(|arm| arm.name.as_str()).filter(|name| *name != base);
            let others: Vec<&str> = others.collect();
            self.diagnostics.push(diag::not_treated(at, name, base, &others));
        }
    }

    /// Reports matched arms that are the base or none, and what is declared twice.
    fn check_scope(
        &mut self,
        scope: &MatchScope,
        arms: &[ArmFile],
        base: &str,
        treatment: &BTreeMap<String, Vec<String>>,
    ) {
        let at = self.span_of("match.arms");
        scope.arms.iter().for_each(|arm| self.check_treated(at, arm, arms, base));
        let at = self.span_of("match.compensate");
        for (arm, entries) in treatment.iter().filter(|(arm, _)| scope.covers(arm)) {
            for entry in entries.iter().filter(|entry| scope.compensate.contains(entry)) {
                self.diagnostics.push(diag::compensates_itself(at, arm, entry));
            }
        }
    }

    fn seeds(&mut self, lists: &BTreeMap<String, Vec<u64>>) -> (Vec<Seeds>, Vec<Seeds>) {
        let mut failed = false;
        let mut read = |prefix: &str| match zip_seeds(lists, prefix) {
            Ok(seeds) => seeds,
            Err((path, _)) => {
                let length = |path: &str| lists.get(path).map_or(0, Vec::len);
                let kinds = ["init", "data", "eval"];
                let most = kinds.iter().map(|kind| length(&format!("{prefix}.{kind}"))).max();
                let at = self.spans.get(&path).copied().unwrap_or(Span::new(self.file, 0, 0));
                self.diagnostics.push(diag::seed_counts(
                    at,
                    &path,
                    length(&path),
                    most.unwrap_or(0),
                ));
                failed = true;
                Vec::new()
            }
        };
        let (mut seeds, mut replicate) = (read("seeds"), read("replicate"));
        // Evaluation questions are a sample too: each seed has its own, unless the file says otherwise.
        if !lists.contains_key("seeds.eval") {
            for (number, seeds) in (0..).zip(&mut seeds) {
                seeds.eval = number;
            }
        }
        for needed in ["seeds.init", "seeds.data"] {
            if !lists.contains_key(needed) && !self.spans.contains_key(needed) {
                let at = self.span_of("seeds");
                let example = format!("{} = [1, 2, 3]", needed.trim_start_matches("seeds."));
                self.diagnostics.push(diag::missing_key(at, needed, &example));
            }
        }
        if failed {
            return (seeds, replicate);
        }
        if replicate.len() > seeds.len() {
            let at = self.span_of("replicate");
            self.diagnostics.push(diag::seed_counts(at, "replicate", replicate.len(), seeds.len()));
        }
        for (replicate, seeds) in replicate.iter_mut().zip(&seeds) {
            // Seeds that the A/A arm does not vary are the base's.
            let varied = |kind: &str| lists.contains_key(&format!("replicate.{kind}"));
            *replicate = Seeds {
                init: if varied("init") { replicate.init } else { seeds.init },
                data: if varied("data") { replicate.data } else { seeds.data },
                eval: if varied("eval") { replicate.eval } else { seeds.eval },
            };
        }
        for pair in &replicate {
            if seeds.iter().any(|s| (s.init, s.data) == (pair.init, pair.data)) {
                let at = self.span_of("replicate");
                let shown = format!("init {}, data {}", pair.init, pair.data);
                self.diagnostics.push(diag::seeds_replicated(at, &shown));
                break;
            }
        }
        (seeds, replicate)
    }
}

impl ComparisonFile {
    /// Every arm of every row.
    pub fn arms(&self) -> impl Iterator<Item = &ArmFile> {
        self.rows.iter().flat_map(|row| &row.arms)
    }

    /// The span of a declaration, or the nearest one.
    pub fn span_of(&self, path: &str) -> Span {
        let section = path.split('.').next().unwrap_or(path);
        let known = self.spans.get(path).or_else(|| self.spans.get(section));
        known.copied().unwrap_or(Span::new(self.file, 0, 0))
    }

    /// Builds the comparison of these arms, in the order of `arms`.
    pub fn comparison(
        &self,
        name: &str,
        source: &str,
        arms: Vec<(String, Experiment)>,
    ) -> Result<Comparison, NoComparison> {
        let arms = arms.into_iter().map(|(name, experiment)| Arm { name, experiment }).collect();
        Comparison::new(name.to_owned(), source.to_owned(), arms, self.declared.clone())
    }

    /// Explains why arms do not form a comparison, at the spans in the file. For a confound, this only
    /// points at the declaration; the report of the verdict explains it.
    pub fn explain(&self, reason: &NoComparison) -> Diagnostics {
        match reason {
            NoComparison::Problems(problems) => problems
                .iter()
                .map(|p| diag::problem(self.span_of(&p.path), p.code, &p.message, &p.help))
                .collect(),
            NoComparison::Treatment(arm, refusal) => {
                let at = self.treatment_place(arm);
                vec![diag::problem(at, refusal.code, &refusal.message, &refusal.help)]
            }
            NoComparison::Confounded(arm, verdict) => {
                let message =
                    format!("arm `{arm}` differs from the base in more than its treatment");
                let help = confounded_help(verdict);
                vec![diag::problem(self.treatment_place(arm), "confounded", &message, &help)]
            }
        }
    }

    fn treatment_place(&self, arm: &str) -> Span {
        let declared = self.spans.get(&format!("treatment.{arm}"));
        declared.copied().unwrap_or_else(|| self.span_of("treatment"))
    }
}

/// What to do about a confound: agree, or declare what can be declared.
fn confounded_help(verdict: &Verdict) -> String {
    let declared = verdict.declaration();
    let measured: Vec<String> = verdict
        .confounds
        .iter()
        .filter(|change| field::find(&change.path).is_some_and(FieldDef::is_measurement))
        .map(|change| change.path.clone())
        .collect();
    let agree = match measured.as_slice() {
        [] => "make the arms agree".to_owned(),
        paths => format!(
            "make the arms agree in {}, which no treatment covers: it decides what is measured",
            paths.join(" and ")
        ),
    };
    let ours = match verdict.confounds.iter().any(Change::is_carried) {
        true => "; or, if canonc runs every arm: trainer = \"canonc\"",
        false => "",
    };
    let is_known = |entry: &String| verdict.treatment.iter().any(|known| known.entry == *entry);
    if declared.iter().all(is_known) {
        return format!("{agree}{ours}");
    }
    let entries: Vec<String> = declared.iter().map(|entry| format!("\"{entry}\"")).collect();
    let declare = format!("treatment = [{}]{ours}", entries.join(", "));
    match measured.is_empty() {
        true => format!("{agree}, or declare it: {declare}"),
        false => format!("{agree}; the rest can be declared: {declare}"),
    }
}
