//! Recurrences that are cases of faster ones: found where the graph proves it, and nowhere else; the same results.

use super::gradients::probe;
use super::{checked, options, parameters, run, tokens};
use crate::graph::ParamId;
use crate::kernel::tensor::{Random, Tensor};
use crate::plan::{Input, Loss, Options, Output, Plan, Recompute, Stream};
use crate::plans::{forward, train};

const OPERANDS: &str = "q = heads(linear q (x, 6), 2)  k = l2_norm(heads(linear k (x, 6), 2))
  v = heads(linear v (x, 8), 2)  beta = sigmoid(linear beta (x, 2))  gate = logsigmoid(linear g (x, 2))
  by_channel = logsigmoid(heads(linear c (x, 6), 2))  g = spread(gate, k)  w = spread(beta, k) * k
  rest = merge(by_channel + g + w + q) ";

fn micro(scan: &str, fuse: bool) -> (Plan, Vec<Tensor>) {
    let graph = probe(&format!("{OPERANDS} linear o (concat(rest, merge({scan})), 6)"));
    let plan = train(&graph, &options(fuse, Recompute::Nothing, Loss::CROSS_ENTROPY)).micro;
    checked(&plan);
    let mut random = Random(3);
    let mut inputs = parameters(&graph, &mut random);
    inputs.insert(Input::Tokens, tokens(&graph, 2, 5, &mut random));
    inputs.insert(Input::Targets, tokens(&graph, 2, 5, &mut random));
    inputs.insert(Input::Position, Tensor::number(0.0));
    inputs.insert(Input::GradScale, Tensor::number(1.0));
    let outputs = run(&plan, &inputs);
    let gradients = (0..graph.top.params.len()).map(|n| Output::Gradient(ParamId(n as u32)));
    let wanted = [Output::Loss].into_iter().chain(gradients);
    (plan, wanted.map(|output| outputs[&output].clone()).collect())
}

/// The scan in the plan; the plan without fusion has dplr_scan and the same numbers.
#[track_caller]
fn chosen(scan: &str) -> &'static str {
    let ((plan, fast), (plain, exact)) = (micro(scan, true), micro(scan, false));
    for (fast, exact) in fast.iter().zip(&exact) {
        let size = exact.data.iter().fold(1.0f64, |a, x| a.max(x.abs()));
        let off = fast.data.iter().zip(&exact.data).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(off < 1e-12 * size, "{scan}: {off:e}");
    }
    let scans = |plan: &Plan| {
        let names = ["dplr_scan", "delta_scan", "gla_scan"];
        let mut present = names.into_iter().filter(|name| plan.census().contains_key(name));
        let one = present.next().unwrap();
        assert!(present.next().is_none() && plan.text().contains(&format!("{one}_grad")), "{scan}");
        one
    };
    assert_eq!(scans(&plain), "dplr_scan", "{scan}");
    scans(&plan)
}

#[test]
fn a_transition_without_low_rank_is_gated_linear_attention() {
    for scan in [
        "dplr_scan(q, k, v, 0 * k, w, by_channel)",
        "dplr_scan(q, k, v, k, w * (0 * k), by_channel, scale = 0.5)",
        "dplr_scan(q, k, v, -(k * 0), w, g)",
    ] {
        assert_eq!(chosen(scan), "gla_scan", "{scan}");
    }
}

#[test]
fn one_gate_and_one_rate_for_a_head_are_the_delta_rule() {
    for scan in [
        "dplr_scan(q, w, v, -(exp(g) * k), w, g)",
        "dplr_scan(q, w, v, k * -exp(g), k * spread(beta, k), g, scale = 1)",
        "dplr_scan(q, spread(beta, k) * k, v, -spread(exp(gate), k) * k, w, spread(gate, q))",
    ] {
        assert_eq!(chosen(scan), "delta_scan", "{scan}");
    }
}

/// Each differs from the delta rule in one place.
#[test]
fn near_misses_of_the_delta_rule_stay() {
    for scan in [
        "dplr_scan(q, w, v, exp(g) * k, w, g)",
        "dplr_scan(q, w, v, -(exp(g) * k) / 2, w, g)",
        "dplr_scan(q, w, v, -(exp(g) * q), w, g)",
        "dplr_scan(q, k, v, -(exp(g) * k), w, g)",
        "dplr_scan(q, w, v, -k, w, g)",
        "dplr_scan(q, w, v, -(exp(by_channel) * k), w, g)",
        "dplr_scan(q, w, v, -(exp(by_channel) * k), w, by_channel)",
        "dplr_scan(q, w, v, -(exp(g) * k), w, g + by_channel)",
    ] {
        assert_eq!(chosen(scan), "dplr_scan", "{scan}");
    }
}

/// A state that only the dropped operand has stays, and the recurrence with it.
#[test]
fn a_state_is_not_dropped() {
    let body = format!(
        "{OPERANDS} a = heads(short_conv s (merge(k)), 2) \
         linear o (concat(rest, merge(dplr_scan(q, k, v, 0 * a, w, by_channel))), 6)"
    );
    let stream = Stream { state_in: true, state_out: true };
    let plan = forward(&probe(&body), stream, Options::default());
    assert!(checked(&plan).census().contains_key("dplr_scan"));
    let states = plan.outputs.iter().filter(|(output, _)| matches!(output, Output::State(..)));
    assert_eq!(states.count(), 2);
}
