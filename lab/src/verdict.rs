//! Proves *controlled*: two arms differ in their treatment and in nothing else.
//!
//! In: two locks and a treatment. Out: a [`Verdict`] with every difference in its group; or why the
//! treatment makes no sense for these arms. Must stay true (docs/threat-model.md): each arm is given the
//! other's values at the treatment, everything derived is recomputed, and both results must equal the
//! other arm byte for byte. One direction is not enough: if a treatment switches a structure off, that arm's text does
//! not show how the structure is defined. The lists of differences only explain the verdict; graph erasure is a second
//! proof for slots; if the proofs disagree, the arms are confounded.

mod definitions;
mod direction;
mod fills;
mod index;
mod judge;
mod left;
mod names;
mod nodes;
mod normal;
mod overlap;
mod proof;
mod refusal;
mod report;
mod roles;
mod substitute;
mod table;
mod trainer;
mod transplant;
mod treatment;

use std::collections::BTreeSet;

use dsl::FileId;

use crate::experiment::{Experiment, LockedArch, together};
use crate::field::{Class, Fields};
use compiler::canonical::Identity;
use compiler::program::{Compiled, Program};
use compiler::tree::ArchTree;

use definitions::Definitions;
use direction::{Direction, merged};
use index::{Index, Layer, Pair, slot_of};
use judge::{Sources, layered};
use names::Names;
use transplant::FieldAt;
use treatment::{Entry, bring, canon, resolve};

pub(crate) use judge::percent;

pub use fills::{Fills, fills};
pub use judge::{
    Change, Declared, Erased, Outcome, Place, Proof, Replaced, Side, Subject, Verdict,
};
pub use names::{Meaning, Namesake, Origin, Redefined, definitions, redefinitions};
pub use nodes::{NodeChange, What};
pub use refusal::Refusal;
pub use report::{Report, json, text};
pub use trainer::Trainer;

/// Compares two arms for a treatment. The verdict does not depend on their order.
pub fn controlled(a: &Side<'_>, b: &Side<'_>, treatment: &[String]) -> Result<Verdict, Refusal> {
    let experiments = match (a.experiment, b.experiment) {
        (Some(a), Some(b)) => Some([a, b]),
        (None, None) => None,
        (Some(_), None) | (None, Some(_)) => return Err(Refusal::kinds(a, b)),
    };
    let (program, files) = together(a.arch, b.arch);
    let compiled = |name: &str, of: &LockedArch| program.compile(name, &of.name).0;
    let (Some(arch_a), Some(arch_b)) = (compiled("a", a.arch), compiled("b", b.arch)) else {
        return Err(Refusal::inconsistent(
            "two archs that compile separately do not compile together",
        ));
    };
    let plain =
        |arch| normal::plain(&program.library, arch).map_err(|why| Refusal::not_plain(&why));
    let [plain_a, plain_b] = [plain(&arch_a)?, plain(&arch_b)?];
    let indices =
        [Index::new(&arch_a.fields, &plain_a.idle), Index::new(&arch_b.fields, &plain_b.idle)];
    let definitions =
        [Definitions::new(files[0], &a.arch.text), Definitions::new(files[1], &b.arch.text)];
    let fills = [fills(&arch_a.graph), fills(&arch_b.graph)];
    let names = Names::new([&definitions[0], &definitions[1]]);
    let judge = Judge {
        letters: ["a", "b"],
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
        names,
    };
    judge.verdict(treatment)
}

/// An experiment's fields with both forms of the budget, so that a treatment can name either.
fn effective(experiment: &Experiment) -> Fields {
    let mut fields = experiment.fields.clone();
    for path in ["budget.steps", "budget.tokens"] {
        if let Some(value) = experiment.value(path) {
            fields.insert(path.to_owned(), value.clone());
        }
    }
    fields
}

/// All facts about both arms: first the arm that receives values, then the arm that gives them.
struct Judge<'a> {
    /// The arms' names in a verdict.
    letters: [&'static str; 2],
    sides: [&'a Side<'a>; 2],
    experiments: Option<[&'a Experiment; 2]>,
    effective: Option<[Fields; 2]>,
    program: &'a Program,
    files: [FileId; 2],
    archs: [&'a Compiled; 2],
    /// Trees in plain form.
    trees: [&'a ArchTree; 2],
    indices: [&'a Index; 2],
    definitions: [&'a Definitions; 2],
    fills: [&'a Fills; 2],
    sources: Sources<'a>,
    names: Names<'a>,
}

fn swapped<T: Copy>([a, b]: [T; 2]) -> [T; 2] {
    [b, a]
}

impl<'a> Judge<'a> {
    /// The same arms in the other order.
    fn reversed(&self) -> Judge<'a> {
        let sides = swapped(self.sides);
        let files = swapped(self.files);
        Judge {
            letters: swapped(self.letters),
            sides,
            experiments: self.experiments.map(swapped),
            effective: self.effective.clone().map(|[a, b]| [b, a]),
            program: self.program,
            files,
            archs: swapped(self.archs),
            trees: swapped(self.trees),
            indices: swapped(self.indices),
            definitions: swapped(self.definitions),
            fills: swapped(self.fills),
            sources: Sources::new(sides, files),
            names: self.names.reversed(),
        }
    }
}

impl Judge<'_> {
    fn pair(&self) -> Pair<'_> {
        let [a, b] = self.indices;
        Pair { a, b, definitions: self.definitions }
    }

    fn verdict(&self, treatment: &[String]) -> Result<Verdict, Refusal> {
        let entries = self.entries(treatment)?;
        let reversed = self.reversed();
        let directions = [self.direction(&entries), reversed.direction(&entries)];
        self.check_idle(&entries, &directions, &reversed)?;
        let [forward, backward] = directions;
        let (erased, unlike) = self.erasures(&entries, [&forward, &backward], &reversed);
        let proof =
            Proof { replaced: [forward.replaced(self), backward.replaced(&reversed)], erased };
        let Direction { mut confounds, mut consequences, mut cosmetic, .. } =
            merged(forward, backward);
        confounds.extend(unlike);
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
        let fields: BTreeSet<&'static str> =
            entries.iter().flat_map(|entry| entry.fields.iter().copied()).collect();
        cosmetic.extend(self.class_changes(Class::Cosmetic, &fields));
        let used = self.indices.map(Index::values);
        Ok(Verdict {
            labels: self.sides.map(|side| side.label.to_owned()),
            outcome,
            assumed: self.assumed(),
            trainer: self.trainer(),
            treatment: entries.iter().map(|entry| self.declared(entry)).collect(),
            confounds,
            consequences,
            platform: self.class_changes(Class::Platform, &fields),
            cosmetic,
            nodes: nodes::changes(self.archs, &self.sources),
            names: self.names.all([&used[0], &used[1]], &self.sources),
            proof,
        })
    }

    /// The treatment's entries, each with the fields it covers.
    fn entries(&self, treatment: &[String]) -> Result<Vec<Entry>, Refusal> {
        let pair = self.pair();
        let tables = self.effective.as_ref().map(|[a, b]| [a, b]);
        let mut entries = Vec::new();
        for text in treatment {
            entries.push(resolve(text, &pair, tables, self.fills, &self.names)?);
        }
        self.check_overlap(&entries)?;
        if let Some(tables) = tables {
            bring(&mut entries, tables);
        }
        Ok(entries)
    }

    fn archs_equal(&self, made: &Compiled) -> bool {
        let theirs = &self.archs[1].identity;
        let Identity { graph_text: _, graph, manifest_text: _, manifest } = &made.identity;
        (*graph, *manifest) == (theirs.graph, theirs.manifest)
    }

    fn cell_changes(&self, path: &str, layers: &[Layer]) -> Vec<Change> {
        let canon = |path: &str, layer: Layer| canon(self.fills, path, layer);
        let called = |arm: usize, value: &str| self.names.called(arm, value);
        layered(path, layers, self.indices, &self.sources, &canon, &called)
    }

    fn declared(&self, entry: &Entry) -> Declared {
        let mut changes: Vec<Change> =
            entry.cells.iter().flat_map(|(path, layers)| self.cell_changes(path, layers)).collect();
        for (path, layers) in &entry.cells {
            changes.extend(self.settings_brought_with(path, layers));
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

    /// Settings below a treated definition that only one arm has. They come with the definition and are not
    /// counted as factors: the other arm has nothing to compare them with.
    fn settings_brought_with(&self, path: &str, layers: &[Layer]) -> Vec<Change> {
        // A fill lists its own settings.
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

    /// Data that both arms name and neither has a digest for. If the arms record different facts about it, equal
    /// names prove nothing.
    fn assumed(&self) -> Vec<String> {
        match self.experiments {
            // A confound, unless canonc runs both arms: it reads the data itself.
            Some(_) if self.trainer() == Trainer::Any && !self.records_agree() => Vec::new(),
            Some([a, b]) => {
                let (a, b) = (a.open_inputs(), b.open_inputs());
                a.into_iter().filter(|input| b.contains(input)).collect()
            }
            None => Vec::new(),
        }
    }
}

impl Entry {
    fn places(&self) -> impl Iterator<Item = FieldAt> {
        let cells = self.cells.iter();
        cells.flat_map(|(path, layers)| layers.iter().map(move |layer| (path.clone(), *layer)))
    }
}
