//! How the optimizer treats each parameter, where the graph does not show it: by groups, which name paths and roles, and
//! by decay of matrices, which are those with a matrix's role.

use compiler::graph::{Body, Graph, NodeKind, Param, ParamId};
use compiler::plan::{Decays, ParamUpdate, UpdateRule};
use compiler::plans::decayed;

use super::{Experiment, groups};

/// The operand of each projection and table that is its weight; `docs/check_verdict.py` has the same list.
pub const WEIGHTS: [(&str, usize); 5] =
    [("embed", 1), ("expert_linear", 2), ("latent_attention", 3), ("linear", 1), ("ngram", 1)];

/// The parameters that decay of matrices applies to, one path a line.
pub(super) fn matrices(params: &[Param]) -> String {
    let paths = params.iter().filter(|param| decayed(param, Decays::Matrices));
    paths.map(|param| format!("{}\n", param.path)).collect()
}

/// The weights of projections and tables, one path a line: what a graph shows of [`matrices`].
fn weights(graph: &Graph) -> String {
    let mut is_weight = vec![false; graph.top.params.len()];
    let all: Vec<ParamId> = (0..graph.top.params.len()).map(|n| ParamId(n as u32)).collect();
    mark(&graph.top, &all, &mut is_weight);
    let paths = graph.top.params.iter().zip(is_weight).filter(|(_, is_weight)| *is_weight);
    paths.map(|(param, _)| format!("{}\n", param.path)).collect()
}

/// Marks the weights in a body, given the whole graph's parameter for each of its own.
fn mark(body: &Body, params: &[ParamId], is_weight: &mut [bool]) {
    for node in &body.nodes {
        match &node.kind {
            NodeKind::Op { primitive, .. } => {
                let weight = WEIGHTS.iter().find(|(name, _)| *name == primitive.name);
                let weight = weight.and_then(|(_, operand)| node.inputs.get(*operand));
                let node = weight.and_then(|weight| body.nodes.get(weight.node as usize));
                if let Some(NodeKind::Param(id)) = node.map(|node| &node.kind)
                    && let Some(id) = params.get(id.0 as usize)
                    && let Some(is_weight) = is_weight.get_mut(id.0 as usize)
                {
                    *is_weight = true;
                }
            }
            NodeKind::Slot { fill: inner, params: inner_params, .. }
            | NodeKind::Layer { body: inner, params: inner_params, .. } => {
                let inner_params =
                    inner_params.iter().filter_map(|id| params.get(id.0 as usize)).copied();
                mark(inner, &inner_params.collect::<Vec<_>>(), is_weight);
            }
            NodeKind::Input(_) | NodeKind::Param(_) => {}
        }
    }
}

impl Experiment {
    /// The lines that digests of its id cover and that its graph does not show, by name.
    pub(crate) fn listed_updates(&self) -> Vec<(&'static str, String)> {
        let graph = &self.arch.compiled.graph;
        let mut listed = Vec::new();
        if self.optimizer.decays == Decays::Matrices {
            let decayed = matrices(graph.params());
            listed.extend((decayed != weights(graph)).then_some(("decayed", decayed)));
        }
        if !self.updates.is_empty() {
            listed.push(("groups", groups::text_of(graph.params(), &self.updates)));
        }
        listed
    }

    /// How the optimizer treats a parameter, given by its number and itself.
    pub(crate) fn update_of(&self, number: usize, param: &Param) -> String {
        let update = ParamUpdate::for_param(&self.updates, number);
        let decays = match self.optimizer.decays {
            Decays::All => "",
            Decays::Matrices if decayed(param, Decays::Matrices) => ", decayed",
            Decays::Matrices => ", not decayed",
        };
        let ParamUpdate { rule, lr_factor, decay_factor } = update;
        let rule = match rule {
            UpdateRule::Frozen => return "frozen".to_owned(),
            UpdateRule::Muon(_) => "muon",
            UpdateRule::AdamW => "adamw",
        };
        format!("{rule}, lr x {lr_factor}, weight decay x {decay_factor}{decays}")
    }
}
