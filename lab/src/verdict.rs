//! Proves *controlled*: two arms differ in their treatment and in nothing else.
//!
//! Each arm is given the other's values at the treatment, everything derived is recomputed, and both results must equal the
//! other arm byte for byte (docs/threat-model.md). One direction is not enough: if a treatment switches a structure off, that
//! arm's text does not show how the structure is defined. The lists of differences only explain the verdict. Graph erasure is
//! a second proof for slots; if the proofs disagree, the arms are confounded.

mod model;
mod headline;
mod shown;
mod refusal;
mod sources;
mod normal;
mod definitions;
mod fills;
mod index;
mod names;
mod nodes;
mod cells;
mod treatment;
mod transplant;
mod judge;
mod carried;
mod roles;
mod table;
mod substitute;
mod left;
mod direction;
mod overlap;
mod proof;
mod report;

use std::collections::BTreeSet;

use crate::experiment::{LockedArch, together};
use crate::field::Class;

use definitions::Definitions;
use direction::{Direction, merged};
use index::{Index, Layer, slot_of};
use judge::{Judge, effective};
use names::Names;
use sources::Sources;
use treatment::{Arms, TreatmentEntry, bring, resolve};

pub(crate) use shown::percent;

pub use fills::{Fills, fills};
pub use model::{
    Change, Declared, Erased, Meaning, Namesake, NodeChange, Origin, Outcome, Proof, Redefined,
    Replaced, Side, SourceLine, Subject, Trainer, Verdict, What,
};
pub use names::{definitions, redefinitions};
pub use refusal::Refusal;
pub use report::{DiffReport, json, text};

/// Compares two arms for a treatment. The verdict does not depend on their order.
pub fn controlled(a: &Side<'_>, b: &Side<'_>, treatment: &[String]) -> Result<Verdict, Refusal> {
    let experiments = match (a.experiment, b.experiment) {
        (Some(a), Some(b)) => Some([a, b]),
        (None, None) => None,
        (Some(_), None) | (None, Some(_)) => return Err(Refusal::kinds(a, b)),
    };
    let (program, files) = together(a.arch, b.arch);
    let compiled = |name: &str, arch: &LockedArch| program.compile(name, &arch.name).0;
    let (Some(arch_a), Some(arch_b)) = (compiled("a", a.arch), compiled("b", b.arch)) else {
        return Err(Refusal::inconsistent(
            "two archs that compile separately do not compile together",
        ));
    };
    let plain =
        |arch| normal::plain(&program.library, arch).map_err(|reason| Refusal::not_plain(&reason));
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

impl Judge<'_> {
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
            trainers: None,
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
    fn entries(&self, treatment: &[String]) -> Result<Vec<TreatmentEntry>, Refusal> {
        let tables = self.effective.as_ref().map(|[a, b]| [a, b]);
        let arms = Arms { pair: &self.pair(), tables, fills: self.fills, names: &self.names };
        let entries = treatment.iter().map(|text| resolve(text, arms));
        let mut entries = entries.collect::<Result<Vec<TreatmentEntry>, Refusal>>()?;
        self.check_overlap(&entries)?;
        if let Some(tables) = tables {
            bring(&mut entries, tables);
        }
        Ok(entries)
    }

    fn declared(&self, entry: &TreatmentEntry) -> Declared {
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
        let mut changes = Vec::new();
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
            changes.extend(self.cell_changes(inner, &layers));
        }
        changes
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
