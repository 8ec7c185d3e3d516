//! Parameters that the optimizer treats in two ways because the arms' definitions give them two roles: the one thing in
//! an id that follows from an arch and that its graph does not show.

use std::collections::BTreeMap;

use super::judge::Judge;
use super::model::Change;
use crate::experiment::{Experiment, layer_sets};

/// A parameter's role, and how the optimizer treats it.
type Treated = [String; 2];

/// By path.
fn treated(experiment: &Experiment) -> BTreeMap<&str, Treated> {
    let params = experiment.arch.compiled.graph.params().iter().enumerate();
    params
        .map(|(n, param)| {
            (param.path.as_str(), [param.role.clone(), experiment.update_of(n, param)])
        })
        .collect()
}

/// `layers.*.mlp.c` and the layer, of `layers.3.mlp.c`.
fn general(path: &str) -> (String, Option<usize>) {
    let in_layer = path.strip_prefix("layers.").and_then(|rest| rest.split_once('.'));
    match in_layer.and_then(|(layer, rest)| Some((layer.parse().ok()?, rest))) {
        Some((layer, rest)) => (format!("layers.*.{rest}"), Some(layer)),
        None => (path.to_owned(), None),
    }
}

impl Judge<'_> {
    /// The parameters of arm a with b's values at the treatment whose role and update differ from b's.
    pub(super) fn other_roles(&self, substituted: &Experiment) -> Vec<Change> {
        let Some([_, theirs]) = self.experiments else { return Vec::new() };
        let (ours, theirs) = (treated(substituted), treated(theirs));
        let mut groups: BTreeMap<(String, &Treated, &Treated), Vec<usize>> = BTreeMap::new();
        for (path, a) in &ours {
            let Some(b) = theirs.get(path) else { continue };
            if a[0] != b[0] && a[1] != b[1] {
                let (path, layer) = general(path);
                groups.entry((path, a, b)).or_default().extend(layer);
            }
        }
        let mut changes = Vec::new();
        for ((path, a, b), layers) in groups {
            let shown = |[role, update]: &Treated| Some(format!("{role} ({update})"));
            let paths = match layers.is_empty() {
                true => vec![path],
                false => layer_sets(&layers).iter().map(|set| path.replacen('*', set, 1)).collect(),
            };
            changes.extend(paths.into_iter().map(|path| {
                Change {
                    a: shown(a),
                    b: shown(b),
                    ..Change::of_arms(format!("role of {path}"))
                        .note("its update follows from its role")
                }
            }));
        }
        changes
    }
}
