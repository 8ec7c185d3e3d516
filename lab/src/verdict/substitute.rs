//! Gives arm a b's values at the treatment and recomputes everything derived.
//!
//! Fields that differ and are not declared keep a's value; derived values follow from a's fields; values on which the arms
//! agree do not change.

use std::collections::BTreeSet;
use std::rc::Rc;

use dsl::Diagnostics;

use super::index::{FieldAt, Index, Layer};
use super::judge::Judge;
use super::transplant::{Known, transplant};
use crate::experiment::{Experiment, LockedArch};
use crate::field::{self, Fields, TABLE};
use compiler::canonical::identify;
use compiler::elaborate::elaborate;
use compiler::program::Compiled;
use compiler::tree::ArchTree;

/// Arm a with b's values at the treatment.
pub(super) struct Substituted {
    pub(super) arch: Compiled,
    pub(super) index: Index,
    pub(super) experiment: Option<Experiment>,
    /// The cells of the treatment, and those that would have changed with it although the arms agree.
    pub(super) cells: BTreeSet<FieldAt>,
}

/// How often changed values are put back. Each round fixes at least one more.
const MAX_ROUNDS: usize = 16;

impl Judge<'_> {
    pub(super) fn substitute(
        &self,
        cells: &BTreeSet<FieldAt>,
        fields: &BTreeSet<&'static str>,
    ) -> Result<Substituted, String> {
        let (arch, cells) = self.replaced(cells)?;
        let index = Index::new(&arch.fields, &BTreeSet::new());
        let experiment = match (self.experiments, &self.effective) {
            (Some([a, _]), Some([_, b])) => Some(substitute_fields(a, b, fields, &arch)?),
            (Some(_), None) | (None, _) => None,
        };
        Ok(Substituted { arch, index, experiment, cells })
    }

    /// The arch, and every cell that was set for it.
    fn replaced(
        &self,
        declared: &BTreeSet<FieldAt>,
    ) -> Result<(Compiled, BTreeSet<FieldAt>), String> {
        let mut cells = declared.clone();
        let mut arch = self.with_cells(self.trees[0], &cells);
        for _ in 0..MAX_ROUNDS {
            let more = match &arch {
                Ok(arch) if self.archs_equal(arch) => break,
                Ok(arch) => self.agreed(Some(&Index::new(&arch.fields, &BTreeSet::new())), &cells),
                Err(_) => self.agreed(None, &cells),
            };
            if more.is_empty() {
                break;
            }
            let mut further = cells.clone();
            further.extend(more);
            match self.with_cells(self.trees[0], &further) {
                Ok(next) => (arch, cells) = (Ok(next), further),
                Err(_) => break,
            }
        }
        Ok((arch?, cells))
    }

    /// Cells on which the arms agree, but which changed in the new arch or may have kept it from
    /// compiling.
    fn agreed(&self, new: Option<&Index>, cells: &BTreeSet<FieldAt>) -> BTreeSet<FieldAt> {
        let pair = self.pair();
        let mut agreed = BTreeSet::new();
        for path in pair.paths() {
            let layers: BTreeSet<Layer> = pair.layers(path);
            for layer in layers {
                let [Some(a), Some(b)] = self.indices.map(|index| index.get(path, layer)) else {
                    continue;
                };
                let moved = match new {
                    Some(new) => new.get(path, layer).is_some_and(|cell| cell.value != b.value),
                    None => !a.written,
                };
                let cell = (path.clone(), layer);
                if moved && !pair.differ(path, layer) && !cells.contains(&cell) {
                    agreed.insert(cell);
                }
            }
        }
        agreed
    }

    /// Arm a's arch with b's values at some cells.
    pub(super) fn with_cells(
        &self,
        ours: &ArchTree,
        cells: &BTreeSet<FieldAt>,
    ) -> Result<Compiled, String> {
        self.compile(&self.transplanted(ours, cells)?)
    }

    pub(super) fn transplanted(
        &self,
        ours: &ArchTree,
        cells: &BTreeSet<FieldAt>,
    ) -> Result<ArchTree, String> {
        let known = Known {
            library: &self.program.library,
            arm: self.letters[0],
            fields: self.indices,
            definitions: [0, 1].map(|i| (self.files[i], self.definitions[i])),
        };
        transplant(known, ours, self.trees[1], cells)
    }

    /// Compiles a tree. It may be one that no text can express: values that depended on the layer number are
    /// numbers here, and repeated lists are expanded.
    pub(super) fn compile(&self, tree: &ArchTree) -> Result<Compiled, String> {
        let mut diagnostics = Diagnostics::new();
        let elaborated =
            elaborate(&self.program.library, tree, &mut diagnostics).ok_or_else(|| {
                let first = diagnostics.iter().find(|d| d.is_error());
                first.map_or_else(|| "it does not compile".to_owned(), |d| d.message.clone())
            })?;
        let fields = elaborated.fields.clone();
        let graph = elaborated.graph();
        Ok(Compiled {
            name: tree.name.clone(),
            docs: Vec::new(),
            tree: tree.clone(),
            identity: identify(&graph),
            graph,
            fields,
            text: String::new(),
        })
    }
}

/// `a` with `b`'s values at the declared fields. A field that decides which others exist brings
/// those that `a` has no value for.
fn substitute_fields(
    a: &Experiment,
    b: &Fields,
    declared: &BTreeSet<&'static str>,
    arch: &Compiled,
) -> Result<Experiment, String> {
    let mut fields = a.fields.clone();
    // A field with the value that follows anyway is left to follow; values on which the arms agree stay.
    for def in TABLE.iter().filter(|def| !declared.contains(def.path)) {
        if def.follows()
            && fields.get(def.path) == field::default_of(def, &a.fields).as_ref()
            && fields.get(def.path) != b.get(def.path)
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
    // Keep one form of the budget.
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
