//! Both arms with everything that is known about them.

use dsl::FileId;

use super::cells::layered;
use super::definitions::Definitions;
use super::fills::Fills;
use super::index::{Index, Layer, Pair};
use super::model::{Change, Side};
use super::names::Names;
use super::sources::Sources;
use super::treatment::canon;
use crate::experiment::Experiment;
use crate::field::Fields;
use compiler::canonical::Identity;
use compiler::program::{Compiled, Program};
use compiler::tree::ArchTree;

/// An experiment's fields with both forms of the budget, so that a treatment can name either.
pub(super) fn effective(experiment: &Experiment) -> Fields {
    let mut fields = experiment.fields.clone();
    for path in ["budget.steps", "budget.tokens"] {
        if let Some(value) = experiment.value(path) {
            fields.insert(path.to_owned(), value.clone());
        }
    }
    fields
}

/// All facts about both arms: first the arm that receives values, then the arm that gives them.
pub(super) struct Judge<'a> {
    /// The arms' names in a verdict.
    pub(super) letters: [&'static str; 2],
    pub(super) sides: [&'a Side<'a>; 2],
    pub(super) experiments: Option<[&'a Experiment; 2]>,
    pub(super) effective: Option<[Fields; 2]>,
    pub(super) program: &'a Program,
    pub(super) files: [FileId; 2],
    pub(super) archs: [&'a Compiled; 2],
    /// Trees in plain form.
    pub(super) trees: [&'a ArchTree; 2],
    pub(super) indices: [&'a Index; 2],
    pub(super) definitions: [&'a Definitions; 2],
    pub(super) fills: [&'a Fills; 2],
    pub(super) sources: Sources<'a>,
    pub(super) names: Names<'a>,
}

fn swapped<T: Copy>([a, b]: [T; 2]) -> [T; 2] {
    [b, a]
}

impl<'a> Judge<'a> {
    /// The same arms in the other order.
    pub(super) fn reversed(&self) -> Judge<'a> {
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
    pub(super) fn pair(&self) -> Pair<'_> {
        let [a, b] = self.indices;
        Pair { a, b, definitions: self.definitions }
    }

    /// Whether an arch is the one that gives values.
    pub(super) fn archs_equal(&self, arch: &Compiled) -> bool {
        let theirs = &self.archs[1].identity;
        let Identity { graph_text: _, graph, manifest_text: _, manifest } = &arch.identity;
        (*graph, *manifest) == (theirs.graph, theirs.manifest)
    }

    pub(super) fn cell_changes(&self, path: &str, layers: &[Layer]) -> Vec<Change> {
        let canon = |path: &str, layer: Layer| canon(self.fills, path, layer);
        let called = |arm: usize, value: &str| self.names.called(arm, value);
        layered(path, layers, self.indices, &self.sources, &canon, &called)
    }
}
