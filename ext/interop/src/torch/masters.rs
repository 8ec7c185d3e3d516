//! Parameters that keep f32 where a recipe computes in bf16, and what else a module leaves out of a training.

use compiler::graph::Graph;
use compiler::number::Root;
use compiler::plan::{self, Decays, Input, Options, Precision, Recompute, TERMS, TrainOptions};
use compiler::plans;
use dsl::Decimal;
use lab::experiment::Experiment;

/// Which parameters a training plan in bf16 reads as f32 alone.
pub fn kept_in_f32(graph: &Graph) -> Vec<bool> {
    let term = Some(Root::ONE);
    let none = Decimal::ZERO;
    let options = TrainOptions {
        common: Options { precision: Precision::Bf16, fuse: false, ..Options::default() },
        loss: plan::Loss {
            balance: term,
            router_z: term,
            ahead: term,
            ..plan::Loss::CROSS_ENTROPY
        },
        optimizer: plan::Optimizer {
            beta1: none,
            beta2: none,
            eps: none,
            weight_decay: none,
            decays: Decays::All,
            clip: None,
        },
        updates: Vec::new(),
        recompute: Recompute::Nothing,
        dropout: false,
    };
    let plan = plans::train(graph, &options).micro;
    let mut kept = vec![false; graph.params().len()];
    for (input, _) in &plan.inputs {
        let (Input::Param(id) | Input::Rounded(id)) = input else { continue };
        if let Some(kept) = kept.get_mut(id.0 as usize) {
            *kept = matches!(input, Input::Param(_));
        }
    }
    kept
}

/// What a training of the lock has, or of any lock of the arch, and the module for decoding has not, in words.
pub(super) fn left_out(graph: &Graph, experiment: Option<&Experiment>) -> Vec<String> {
    let terms = TERMS.iter().filter(|term| match experiment {
        Some(experiment) => experiment.weighs(term),
        None => graph.has_term(term),
    });
    let mut words: Vec<String> = terms.map(|term| format!("the loss {term}")).collect();
    if graph.has_dropout() {
        words.push("canonc's draws of dropout".to_owned());
    }
    words
}
