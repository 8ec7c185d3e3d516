//! Facts shared by two arms: an arch with all-zero Canon filters (with the residual) computes the same as its erased
//! twin, and equal paths begin with equal bits.

use compiler::erase::erase_all;
use compiler::graph::Graph;
use compiler::plan::Loss;
use runtime::weights::Weights;
use tch::Tensor;

use super::support::{FAST, PLAIN, quiet, relative, streamer, trainer};
use ::support::archs::{ARCHS, models};

fn ids(vocab: i64) -> (Tensor, Tensor) {
    let row = |step: i64| {
        let ids: Vec<i64> = (0..22).map(|i| (i * step + 1) % vocab).collect();
        Tensor::from_slice(&ids).reshape([2, 11])
    };
    (row(5), row(7))
}

/// Whether every Canon layer of this arch adds its input. Others do not become identities at zero.
fn all_residual(name: &str) -> bool {
    ARCHS.iter().any(|(known, text)| *known == name && !text.contains("residual false"))
}

fn without_filters(graph: &Graph) -> Weights {
    let mut weights = Weights::init(graph, 11).unwrap();
    for (param, tensor) in graph.params().iter().zip(&mut weights.tensors) {
        if param.slot.is_some() {
            let _ = tensor.zero_();
        }
    }
    weights
}

#[test]
fn zero_canon_filters_compute_the_erased_arch_to_the_bit() {
    quiet();
    let mut checked = Vec::new();
    for (name, compiled) in models() {
        let graph = &compiled.graph;
        let canon = graph.params().iter().filter(|p| p.role == "canon").count();
        if canon == 0 || !all_residual(name) {
            continue;
        }
        let base = erase_all(graph);
        let (filled, empty) = (without_filters(graph), Weights::init(&base, 11).unwrap());
        let (tokens, targets) = ids(graph.vocab);
        for machine in [FAST, PLAIN] {
            let logits = [(graph, &filled), (&base, &empty)].map(|(graph, weights)| {
                let streamer = streamer(graph, machine);
                let start = streamer.start(2).unwrap();
                streamer.forward(weights, &tokens, &start).unwrap().0
            });
            assert!(logits[0] == logits[1], "{name} on {machine:?}: logits");
            let sums = [(graph, &filled), (&base, &empty)].map(|(graph, weights)| {
                let trainer = trainer(graph, Loss::CROSS_ENTROPY, machine);
                trainer.micro_batch(weights, &tokens, &targets, 1.0 / 22.0).unwrap()
            });
            let losses = [0, 1].map(|n| sums[n].loss_sum().unwrap().to_bits());
            assert_eq!(losses[0], losses[1], "{name} on {machine:?}: loss");
            for (n, param) in base.params().iter().enumerate() {
                let at = graph.params().iter().position(|p| p.path == param.path).unwrap();
                let (filled, empty) = (&sums[0].gradients[at], &sums[1].gradients[n]);
                // Mamba2's slot B puts its five projections together in the graph's order, so its input's five
                // gradients are added in another order than without it.
                let within = if name == "mamba_arch" { 1e-6 } else { 0.0 };
                let error = relative(filled, empty);
                assert!(error <= within, "{name} on {machine:?}, {}: {error:e}", param.path);
            }
        }
        checked.push(name);
    }
    assert_eq!(checked, ["grouped", "gla_arch", "delta_arch", "mamba_arch", "hybrid"]);
}

#[test]
fn parameters_of_both_arms_begin_with_equal_bits() {
    for (name, compiled) in models() {
        let base = erase_all(&compiled.graph);
        let (filled, empty) =
            (Weights::init(&compiled.graph, 4).unwrap(), Weights::init(&base, 4).unwrap());
        for (path, tensor) in empty.paths.iter().zip(&empty.tensors) {
            assert!(filled.get(path) == Some(tensor), "{name}: {path}");
        }
        let other = Weights::init(&base, 5).unwrap();
        assert!(other.get("embed") != empty.get("embed"), "{name}: the seed says nothing");
    }
}
