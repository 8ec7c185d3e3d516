//! *Controlled*: whether two arms differ in their treatment and nothing else.
//!
//! In: two locks and a treatment. Out: a [`Verdict`], with every difference in its group; or why the
//! treatment says nothing about these arms. Must stay true (design, section 6): the verdict is decided by
//! texts that are equal byte for byte after a's values at the treatment are b's and everything derived
//! was computed again, never by the lists below it, which only explain; an arm that cannot be built so
//! is not controlled; graph erasure is a second proof for slots, and a disagreement is said aloud.

mod definitions;
mod fills;
mod index;
mod left;
mod nodes;
mod normal;
mod overlap;
mod proof;
mod refusal;
mod report;
mod substitute;
mod table;
mod trainer;
mod transplant;
mod treatment;
mod verdict;

use std::collections::BTreeSet;

use dsl::FileId;

use crate::canonical::Identity;
use crate::field::{Class, Fields};
use crate::lock::{Experiment, LockedArch, together};
use crate::program::{Compiled, Program};
use crate::tree::ArchTree;

use fills::{Fills, fills};
use index::{Definitions, Index, Layer, Pair, slot_of};
use substitute::Substituted;
use transplant::Place as Cell;
use treatment::{Entry, bring, resolve};
use verdict::{Sources, layered};

pub(crate) use verdict::percent;

pub use nodes::{NodeChange, What};
pub use refusal::Refusal;
pub use report::{Report, json, text};
pub use trainer::Trainer;
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
    let plain =
        |arch| normal::plain(&program.library, arch).map_err(|why| Refusal::not_plain(&why));
    let [plain_a, plain_b] = [plain(&arch_a)?, plain(&arch_b)?];
    let indices =
        [Index::new(&arch_a.fields, &plain_a.idle), Index::new(&arch_b.fields, &plain_b.idle)];
    let definitions =
        [Definitions::new(files[0], &a.arch.text), Definitions::new(files[1], &b.arch.text)];
    let fills = [fills(&arch_a.graph), fills(&arch_b.graph)];
    let judge = Judge {
        sides: [a, b],
        experiments,
        effective: experiments.map(|[a, b]| [effective(a), effective(b)]),
        program: &program,
        files,
        archs: [&arch_a, &arch_b],
        trees: [&plain_a.tree, &plain_b.tree],
        indices: [&indices[0], &indices[1]],
        definitions: [&definitions[0], &definitions[1]],
        fills: [&fills[0], &fills[1]],
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
    files: [FileId; 2],
    archs: [&'a Compiled; 2],
    /// In plain form.
    trees: [&'a ArchTree; 2],
    indices: [&'a Index; 2],
    definitions: [&'a Definitions; 2],
    fills: [&'a Fills; 2],
    sources: Sources<'a>,
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
            entries.push(resolve(text, &pair, tables, self.fills)?);
        }
        self.check_overlap(&entries)?;
        if let Some(tables) = tables {
            bring(&mut entries, tables);
        }
        let cells: BTreeSet<Cell> = entries.iter().flat_map(Entry::places).collect();
        let fields: BTreeSet<&'static str> =
            entries.iter().flat_map(|entry| entry.fields.iter().copied()).collect();

        let brought: BTreeSet<&'static str> =
            entries.iter().flat_map(|entry| entry.brought.iter().copied()).collect();

        let substituted = self.substitute(&cells, &fields);
        if let Ok(made) = &substituted {
            self.check_idle(&entries, made)?;
        }
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
                .partition(|layer| left.written(path, **layer) || pair.free(path, **layer));
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
        self.table(made, &fields, &brought, &mut confounds, &mut consequences, &mut cosmetic);
        if !equal && confounds.is_empty() {
            confounds.push(self.first_difference(made));
        }

        let (mut proof, missing) = self.proof(&entries, substituted.as_ref().ok());
        if let Some(why) = missing.filter(|_| arch_equal) {
            confounds.push(Change::of_arch(why));
        }
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
            trainer: self.trainer(),
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

    fn cell_changes(&self, path: &str, layers: &[Layer]) -> Vec<Change> {
        layered(path, layers, self.indices, &self.sources)
    }

    fn declared(&self, entry: &Entry) -> Declared {
        let mut changes: Vec<Change> =
            entry.cells.iter().flat_map(|(path, layers)| self.cell_changes(path, layers)).collect();
        for (path, layers) in &entry.cells {
            changes.extend(self.told_with(path, layers));
        }
        for path in &entry.fields {
            let [a, b] = match &self.effective {
                Some([a, b]) => [a.get(*path), b.get(*path)],
                None => [None, None],
            };
            changes.push(self.field_change(path, a, b));
        }
        changes.extend(self.brought_changes(&entry.brought));
        Declared { entry: entry.text.clone(), factors: entry.factors, changes }
    }

    /// What a definition that is the treatment was told and the other arm's has no place for. It comes with it,
    /// and is no factor: there is nothing in the other arm that it could be compared with.
    fn told_with(&self, path: &str, layers: &[Layer]) -> Vec<Change> {
        // A fill says its settings itself.
        if slot_of(path).is_some() {
            return Vec::new();
        }
        let (pair, below) = (self.pair(), format!("{path}."));
        let mut told = Vec::new();
        for inner in pair.paths().into_iter().filter(|inner| inner.starts_with(&below)) {
            let layers: Vec<Layer> = layers
                .iter()
                .copied()
                .filter(|layer| {
                    let cells = self.indices.map(|index| index.get(inner, *layer));
                    let ([Some(cell), None] | [None, Some(cell)]) = cells else { return false };
                    cell.written
                })
                .collect();
            told.extend(self.cell_changes(inner, &layers));
        }
        told
    }

    /// Data that both arms name and neither has a digest for; where what they record of it differs, their
    /// names say nothing.
    fn assumed(&self) -> Vec<String> {
        match self.experiments {
            Some(_) if !self.records_agree() => Vec::new(),
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
