//! *Controlled*: whether two arms differ in their treatment and nothing else.
//!
//! In: two locks and a treatment. Out: a [`Verdict`], with every difference in its group; or why the
//! treatment says nothing about these arms. Must stay true (design, section 6): the verdict is decided by
//! texts that are equal byte for byte after a's values at the treatment are b's and everything derived
//! was computed again, never by the lists below it, which only explain; an arm that cannot be built so
//! is not controlled; graph erasure is a second proof for slots, and a disagreement is said aloud.

mod definitions;
mod index;
mod nodes;
mod proof;
mod refusal;
mod report;
mod table;
mod transplant;
mod treatment;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dsl::Diagnostics;

use crate::canonical::Identity;
use crate::field::{self, Class, Fields, TABLE};
use crate::lock::{Experiment, LockedArch, together};
use crate::program::{Compiled, Program, compile_tree};
use crate::tree::ArchTree;

use definitions::differing_definitions;
use index::{Definitions, Index, Layer, Pair};
use transplant::{Place as Cell, transplant};
use treatment::{Entry, resolve};
use verdict::{Sources, layered};

pub use nodes::{NodeChange, What};
pub use refusal::Refusal;
pub use report::{Report, json, text};
pub use verdict::{Change, Declared, Erased, Outcome, Place, Proof, Side, Verdict};

/// Judges two arms for a treatment.
pub fn controlled(a: &Side<'_>, b: &Side<'_>, treatment: &[String]) -> Result<Verdict, Refusal> {
    let experiments = match (a.experiment, b.experiment) {
        (Some(a), Some(b)) => Some([a, b]),
        (None, None) => None,
        (Some(_), None) | (None, Some(_)) => return Err(Refusal::kinds(a, b)),
    };
    let (program, files) = together(a.arch, b.arch);
    let compiled = |name: &str, of: &LockedArch| program.compile(name, &of.name).0;
    let (Some(arch_a), Some(arch_b)) = (compiled("a", a.arch), compiled("b", b.arch)) else {
        return Err(Refusal::inconsistent("two archs that compile apart do not compile together"));
    };
    let indices = [Index::new(&arch_a.fields), Index::new(&arch_b.fields)];
    let definitions =
        [Definitions::new(files[0], &a.arch.text), Definitions::new(files[1], &b.arch.text)];
    let judge = Judge {
        sides: [a, b],
        experiments,
        effective: experiments.map(|[a, b]| [effective(a), effective(b)]),
        program: &program,
        archs: [&arch_a, &arch_b],
        indices: [&indices[0], &indices[1]],
        definitions: [&definitions[0], &definitions[1]],
        sources: Sources::new([a, b], files),
    };
    judge.verdict(treatment)
}

/// An experiment's fields with both forms of the budget, so that either can be spoken of.
fn effective(experiment: &Experiment) -> Fields {
    let mut fields = experiment.fields.clone();
    for path in ["budget.steps", "budget.tokens"] {
        if let Some(value) = experiment.value(path) {
            fields.insert(path.to_owned(), value.clone());
        }
    }
    fields
}

/// Everything known of both arms.
struct Judge<'a> {
    sides: [&'a Side<'a>; 2],
    experiments: Option<[&'a Experiment; 2]>,
    effective: Option<[Fields; 2]>,
    program: &'a Program,
    archs: [&'a Compiled; 2],
    indices: [&'a Index; 2],
    definitions: [&'a Definitions; 2],
    sources: Sources<'a>,
}

/// Arm a with b's values at the treatment.
struct Substituted {
    arch: Compiled,
    index: Index,
    experiment: Option<Experiment>,
}

impl Judge<'_> {
    fn pair(&self) -> Pair<'_> {
        let [a, b] = self.indices;
        Pair { a, b, definitions: self.definitions }
    }

    fn verdict(&self, treatment: &[String]) -> Result<Verdict, Refusal> {
        let pair = self.pair();
        let tables = self.effective.as_ref().map(|[a, b]| [a, b]);
        let mut entries = Vec::new();
        for text in treatment {
            entries.push(resolve(text, &pair, tables)?);
        }
        self.check_overlap(&entries)?;
        let cells: BTreeSet<Cell> = entries.iter().flat_map(Entry::places).collect();
        let fields: BTreeSet<&'static str> =
            entries.iter().flat_map(|entry| entry.fields.iter().copied()).collect();

        let substituted = self.substitute(&cells, &fields);
        let mut confounds = Vec::new();
        let mut cosmetic = Vec::new();
        let mut consequences = Vec::new();
        let equal = match &substituted {
            Ok(made) => self.texts_equal(made),
            Err(why) => {
                confounds.push(Change::of_arch(format!(
                    "arm a with b's values at the treatment is no experiment: {why}"
                )));
                false
            }
        };
        // What is left, for people; `equal` has decided already.
        let left = match &substituted {
            Ok(made) => Pair { a: &made.index, ..self.pair() },
            Err(_) => self.pair(),
        };
        let arch_equal = substituted.as_ref().is_ok_and(|made| self.archs_equal(&made.arch));
        let remaining = self.remaining_cells(&left, &cells, substituted.is_err());
        for (path, layers) in &remaining {
            let (free, follows): (Vec<Layer>, Vec<Layer>) = layers
                .iter()
                .partition(|layer| left.written(path, **layer) || pair.written(path, **layer));
            let group = if arch_equal { &mut cosmetic } else { &mut confounds };
            group.extend(self.cell_changes(path, &free));
            if !arch_equal {
                consequences.extend(self.cell_changes(path, &follows));
            }
        }
        if !arch_equal && let Ok(made) = &substituted {
            confounds.extend(self.unexplained(&made.arch, &remaining, &cells));
        }
        self.vanished(&left, &cells, &remaining, &mut consequences);
        let made = substituted.as_ref().ok().and_then(|made| made.experiment.as_ref());
        self.table(made, &fields, &mut confounds, &mut consequences, &mut cosmetic);
        if !equal && confounds.is_empty() {
            confounds.push(self.first_difference(made));
        }

        let mut proof = self.proof(&entries, substituted.as_ref().ok());
        proof.consistent = self.consistent(&proof, arch_equal, &entries, &remaining);
        if !proof.consistent {
            confounds.push(Change::of_arch(
                "substitution and erasure disagree about the slots: a fault of canonc, please report it"
                    .to_owned(),
            ));
        }
        let factors = entries.iter().map(|entry| entry.factors).sum();
        let outcome = match (confounds.len(), factors) {
            (0, 0) => Outcome::Identical,
            (0, 1) => Outcome::Controlled,
            (0, n) => Outcome::Bundle(n),
            (n, _) => Outcome::Confounded(n),
        };
        consequences.extend(self.derived_changes());
        consequences.sort_by(|a, b| a.path.cmp(&b.path));
        consequences.dedup();
        Ok(Verdict {
            labels: self.sides.map(|side| side.label.to_owned()),
            outcome,
            assumed: self.assumed(),
            treatment: entries.iter().map(|entry| self.declared(entry)).collect(),
            confounds,
            consequences,
            platform: self.class_changes(Class::Platform, &fields),
            cosmetic: {
                cosmetic.extend(self.class_changes(Class::Cosmetic, &fields));
                cosmetic
            },
            nodes: nodes::changes(self.archs, &self.sources),
            proof,
        })
    }

    /// No field is declared twice, and none that only another entry brings.
    fn check_overlap(&self, entries: &[Entry]) -> Result<(), Refusal> {
        let mut seen: BTreeMap<Cell, &str> = BTreeMap::new();
        let mut fields: BTreeMap<&str, &str> = BTreeMap::new();
        for entry in entries {
            for cell in entry.places() {
                if let Some(before) = seen.insert(cell, &entry.text) {
                    return Err(Refusal::twice(&entry.text, before));
                }
            }
            for field in &entry.fields {
                if let Some(before) = fields.insert(field, &entry.text) {
                    return Err(Refusal::twice(&entry.text, before));
                }
            }
        }
        let deeper = |layer: Layer| match layer {
            // A layer that one arm does not have at all is a matter of `arch.layers`.
            Some(_) => self.indices.iter().all(|i| i.get("arch.layers.*", layer).is_some()),
            None => false,
        };
        for ((path, layer), text) in &seen {
            let everywhere = self.indices.iter().all(|index| index.get(path, *layer).is_some());
            if everywhere || !deeper(*layer) || path.ends_with(".share") {
                continue;
            }
            let mut above = path.as_str();
            while let Some((parent, _)) = above.rsplit_once('.') {
                if let Some(before) = seen.get(&(parent.to_owned(), *layer)) {
                    return Err(Refusal::twice(text, before));
                }
                above = parent;
            }
            return Err(Refusal::one_sided(text, path));
        }
        Ok(())
    }

    fn substitute(
        &self,
        cells: &BTreeSet<Cell>,
        fields: &BTreeSet<&'static str>,
    ) -> Result<Substituted, String> {
        let arch = self.with_cells(cells)?;
        let index = Index::new(&arch.fields);
        let experiment = match (self.experiments, &self.effective) {
            (Some([a, _]), Some([_, b])) => Some(substitute_fields(a, b, fields, &arch)?),
            (Some(_), None) | (None, _) => None,
        };
        Ok(Substituted { arch, index, experiment })
    }

    fn with_cells(&self, cells: &BTreeSet<Cell>) -> Result<Compiled, String> {
        let [a, b] = self.archs;
        if cells.is_empty() {
            return Ok(a.clone());
        }
        let tree = transplant(&self.program.library, &a.tree, &b.tree, self.indices[1], cells)?;
        self.compile(&tree)
    }

    fn compile(&self, tree: &ArchTree) -> Result<Compiled, String> {
        let mut found = Diagnostics::new();
        compile_tree(&self.program.library, tree, &mut found).ok_or_else(|| {
            let first = found.iter().find(|d| d.is_error());
            first.map_or_else(|| "it does not compile".to_owned(), |d| d.message.clone())
        })
    }

    fn archs_equal(&self, made: &Compiled) -> bool {
        let theirs = &self.archs[1].identity;
        let Identity { graph_text: _, graph, manifest_text: _, manifest } = &made.identity;
        (*graph, *manifest) == (theirs.graph, theirs.manifest)
    }

    /// The definition of controlled: what identifies each arm, byte for byte.
    fn texts_equal(&self, made: &Substituted) -> bool {
        match (&made.experiment, self.experiments) {
            (Some(made), Some([_, b])) => {
                made.train_text() == b.train_text() && measured(made) == measured(b)
            }
            (None, None) => self.archs_equal(&made.arch),
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    /// Cells whose values still differ, by general path. What one arm alone has comes with what stands
    /// above it, and of layers that one arm lacks only their number is told.
    fn remaining_cells(
        &self,
        left: &Pair<'_>,
        cells: &BTreeSet<Cell>,
        failed: bool,
    ) -> BTreeMap<String, Vec<Layer>> {
        let mut differing: BTreeSet<Cell> = BTreeSet::new();
        for path in left.paths() {
            for layer in left.differing(path) {
                let cell = (path.clone(), layer);
                let value = |index: &Index| index.get(path, layer).map(|cell| cell.value.clone());
                // Definitions of one name are compared by what the graphs make of them.
                let differs = value(left.a) != value(left.b);
                let here = |index: &Index| index.get("arch.layers.*", layer).is_some();
                let told = layer.is_none() || here(left.a) && here(left.b);
                let excused = failed && (cells.contains(&cell) || self.part_of(path, layer, cells));
                if differs && told && !excused {
                    differing.insert(cell);
                }
            }
        }
        let mut remaining: BTreeMap<String, Vec<Layer>> = BTreeMap::new();
        for (path, layer) in &differing {
            if !self.part_of(path, *layer, &differing) {
                remaining.entry(path.clone()).or_default().push(*layer);
            }
        }
        remaining
    }

    /// Whether a cell stands in one arm only because of one above it.
    fn part_of(&self, path: &str, layer: Layer, cells: &BTreeSet<Cell>) -> bool {
        if self.indices.iter().all(|index| index.get(path, layer).is_some()) {
            return false;
        }
        let mut above = path;
        while let Some((parent, _)) = above.rsplit_once('.') {
            if cells.contains(&(parent.to_owned(), layer)) {
                return true;
            }
            above = parent;
        }
        false
    }

    /// Arch fields that differed and no longer do, though nobody declared them: they follow.
    fn vanished(
        &self,
        left: &Pair<'_>,
        cells: &BTreeSet<Cell>,
        remaining: &BTreeMap<String, Vec<Layer>>,
        consequences: &mut Vec<Change>,
    ) {
        let pair = self.pair();
        for path in pair.paths() {
            let told = remaining.get(path);
            let layers: Vec<Layer> = pair
                .differing(path)
                .into_iter()
                .filter(|layer| !told.is_some_and(|told| told.contains(layer)))
                .filter(|layer| {
                    let value = |i: usize| self.indices[i].get(path, *layer).map(|c| &c.value);
                    value(0) != value(1)
                })
                .filter(|layer| !cells.contains(&(path.clone(), *layer)))
                .filter(|layer| !self.part_of(path, *layer, cells))
                .filter(|layer| {
                    let here = |i: &Index| i.get("arch.layers.*", *layer).is_some();
                    layer.is_none() || (self.indices.iter().all(|i| here(i)) && here(left.a))
                })
                .collect();
            consequences.extend(self.cell_changes(path, &layers));
        }
    }

    /// What fields do not explain: after every remaining free field is taken over too, the definitions
    /// themselves.
    fn unexplained(
        &self,
        made: &Compiled,
        remaining: &BTreeMap<String, Vec<Layer>>,
        declared: &BTreeSet<Cell>,
    ) -> Vec<Change> {
        let pair = self.pair();
        let cells: BTreeSet<Cell> = remaining
            .iter()
            .flat_map(|(path, layers)| layers.iter().map(move |layer| (path.clone(), *layer)))
            .filter(|(path, layer)| pair.written(path, *layer))
            .collect();
        let all = transplant(
            &self.program.library,
            &made.tree,
            &self.archs[1].tree,
            self.indices[1],
            &cells,
        )
        .and_then(|tree| self.compile(&tree));
        if all.is_ok_and(|all| self.archs_equal(&all)) {
            return Vec::new();
        }
        let treated: BTreeSet<&str> = declared
            .iter()
            .flat_map(|(path, layer)| self.indices.map(|index| index.get(path, *layer)))
            .flatten()
            .map(|cell| cell.value.as_str())
            .collect();
        let mut found = differing_definitions(self.definitions, &self.sources);
        let beside = |change: &Change| {
            let name = change.path.strip_prefix("definition ").unwrap_or("");
            !treated.contains(name)
        };
        // A treated definition explains itself, unless nothing else is left to explain with.
        if found.iter().any(beside) {
            found.retain(beside);
        }
        found
    }

    fn cell_changes(&self, path: &str, layers: &[Layer]) -> Vec<Change> {
        layered(path, layers, self.indices, &self.sources)
    }

    fn declared(&self, entry: &Entry) -> Declared {
        let mut changes: Vec<Change> =
            entry.cells.iter().flat_map(|(path, layers)| self.cell_changes(path, layers)).collect();
        for path in &entry.fields {
            let [a, b] = match &self.effective {
                Some([a, b]) => [a.get(*path), b.get(*path)],
                None => [None, None],
            };
            changes.push(self.field_change(path, a, b));
        }
        Declared { entry: entry.text.clone(), factors: entry.factors, changes }
    }

    /// Data that both arms name and neither has a digest for.
    fn assumed(&self) -> Vec<String> {
        match self.experiments {
            Some([a, b]) => {
                let (a, b) = (a.open_inputs(), b.open_inputs());
                a.into_iter().filter(|input| b.contains(input)).collect()
            }
            None => Vec::new(),
        }
    }

    /// The texts differ, and no list says where: the first line that does.
    fn first_difference(&self, made: Option<&Experiment>) -> Change {
        let (Some(made), Some([_, b])) = (made, self.experiments) else {
            return Change::of_arch("the graphs differ".to_owned());
        };
        let (ours, theirs) = (made.train_text(), b.train_text());
        let line = ours.lines().zip(theirs.lines()).find(|(a, b)| a != b);
        Change::of_arch(match line {
            Some((a, b)) => format!("`{a}` in one arm, `{b}` in the other"),
            None => "what is measured differs".to_owned(),
        })
    }
}

impl Entry {
    fn places(&self) -> impl Iterator<Item = Cell> {
        let cells = self.cells.iter();
        cells.flat_map(|(path, layers)| layers.iter().map(move |layer| (path.clone(), *layer)))
    }
}

/// What is measured, without which training it is measured of.
fn measured(experiment: &Experiment) -> String {
    let text = experiment.eval_text();
    text.lines().filter(|line| !line.starts_with("train = ")).collect::<Vec<_>>().join("\n")
}

/// `a` with `b`'s values at the declared fields. A field that decides which others exist takes along
/// those that `a` has no value for.
fn substitute_fields(
    a: &Experiment,
    b: &Fields,
    declared: &BTreeSet<&'static str>,
    arch: &Compiled,
) -> Result<Experiment, String> {
    let mut fields = a.fields.clone();
    // What has the value that follows anyway, follows.
    for def in TABLE.iter().filter(|def| !declared.contains(def.path)) {
        if let field::Default::From(rule) = def.default
            && fields.get(def.path) == rule(&a.fields).as_ref()
        {
            fields.remove(def.path);
        }
    }
    let budget = declared.iter().any(|path| path.starts_with("budget."));
    if budget {
        fields.retain(|path, _| !path.starts_with("budget."));
    }
    for path in declared {
        match b.get(*path) {
            Some(value) => {
                fields.insert((*path).to_owned(), value.clone());
            }
            None => {
                fields.remove(*path);
            }
        }
    }
    // Both forms of one budget say it once.
    if fields.contains_key("budget.steps") {
        fields.remove("budget.tokens");
    }
    for def in TABLE.iter().filter(|def| def.only.is_some_and(|(on, _)| declared.contains(on))) {
        if !def.exists(&fields) {
            fields.remove(def.path);
        } else if let Some(value) = b.get(def.path).filter(|_| !fields.contains_key(def.path)) {
            fields.insert(def.path.to_owned(), value.clone());
        }
    }
    let arch =
        LockedArch { name: a.arch.name.clone(), text: arch.text.clone(), compiled: arch.clone() };
    Experiment::new(a.name.clone(), a.source.clone(), Rc::new(arch), fields)
        .map_err(|problems| problems.first().map_or_else(String::new, |p| p.message.clone()))
}
