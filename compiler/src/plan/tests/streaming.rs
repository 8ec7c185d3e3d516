//! Tests the streaming law: `run(a ++ b, s) = run(a, s) ++ run(b, state after a)`.

use std::collections::BTreeMap;

use super::{checked, graph, parameters, run, tokens};
use crate::graph::{Graph, StateId};
use crate::kernel::tensor::{Random, Tensor};
use crate::lower::state_parts;
use crate::plan::{Extent, Input, Options, Output, Plan, Stream};
use crate::plans::forward;

const ARCHS: &[&str] = &[
    "arch tiny { vocab 5  dim 8  norm_eps 1e-5  init lingua  layers 2 of decoder {
      mixer attention { heads 2  kv_heads 1 }  mlp swiglu { hidden 4 } }  canon A, B, C, D }",
    "arch tiny { vocab 5  dim 8  norm_eps 1e-5  init lingua  layers 2 of decoder {
      mixer attention { heads 2  window 3 }  mlp swiglu { hidden 4 } }  canon A, B { kernel 1 }  canon C { kernel 7 } }",
    "block twice(x) { canon b (silu(canon a (x, kernel = 2))) }
     arch tiny { vocab 5  dim 4  norm_eps 1e-5  init lingua
     layers 2 of share decoder { mixer attention { heads 1  rope nope }  mlp swiglu { hidden 4 } }  fill B with twice }",
    "arch tiny { vocab 5  dim 4  norm_eps 1e-5  init lingua  layers 2 of decoder {
      mixer gla { heads 2  gate_rank 2  output_gate_rank 2 }  mlp swiglu { hidden 4 } }  canon A, C, D }",
    "arch tiny { vocab 5  dim 4  norm_eps 1e-5  init lingua  layers 2 of decoder {
      mixer gated_deltanet { heads 2  output_gate_rank 2 }  mlp swiglu { hidden 4 } }  canon A, B, C, D }",
    "arch tiny { vocab 5  dim 4  norm_eps 1e-5  init lingua  layers 2 of decoder {
      mixer mamba2 { heads 4  state 2  groups 2 }  mlp swiglu { hidden 4 } }  canon A, B, C, D }",
    "arch tiny { vocab 5  dim 4  norm_eps 1e-5  init lingua  layers 3 of hyper { streams 2
      mixer value_residual { heads 2 }  mlp swiglu { hidden 4 } }  canon A, B, C, D }",
    "arch tiny { vocab 5  dim 4  norm_eps 1e-5  init lingua  layers [ngram_embedding { rows 7 }, 2 of decoder {
      mixer hgrn2 { heads 2  coupled true }  mlp swiglu { hidden 4 } }] }",
];

/// The state before the first token.
fn empty(graph: &Graph, batch: usize) -> BTreeMap<Input, Tensor> {
    let mut inputs = BTreeMap::new();
    for (n, (_, state)) in graph.top.states.iter().enumerate() {
        for (part, dims) in state_parts(state) {
            let size = |d: &Extent| match d {
                Extent::Batch => batch,
                Extent::Fixed(n) => *n as usize,
                Extent::Time | Extent::CacheLen(_) | Extent::KvLen(_) | Extent::NewCacheLen(_) => 0,
            };
            let zeros = Tensor::zeros(dims.iter().map(size).collect());
            inputs.insert(Input::State(StateId(n as u32), part), zeros);
        }
    }
    inputs
}

fn states_of(outputs: &BTreeMap<Output, Tensor>) -> impl Iterator<Item = (Input, Tensor)> {
    outputs.iter().filter_map(|(output, tensor)| {
        let Output::State(id, part) = output else { return None };
        Some((Input::State(*id, *part), tensor.clone()))
    })
}

fn plan(graph: &Graph, state_in: bool, state_out: bool) -> Plan {
    let plan = forward(graph, Stream { state_in, state_out }, Options::default());
    checked(&plan);
    plan
}

#[test]
fn any_split_gives_the_same_logits_and_state() {
    let probes = super::gradients::probes().map(|(op, body)| (op, super::gradients::probe(body)));
    for (text, graph) in ARCHS.iter().map(|text| (*text, graph(text))).chain(probes) {
        let mut random = Random(5);
        let params = parameters(&graph, &mut random);
        let all = tokens(&graph, 2, 9, &mut random);
        let (full, chunk) = (plan(&graph, false, true), plan(&graph, true, true));
        let given = |tokens: Tensor, position: usize| {
            let mut inputs = params.clone();
            inputs.insert(Input::Tokens, tokens);
            inputs.insert(Input::Position, Tensor::number(position as f64));
            inputs
        };
        let at_once = run(&full, &given(all.clone(), 0));
        let states: BTreeMap<Input, Tensor> = states_of(&at_once).collect();
        let parts: usize = graph.top.states.iter().map(|(_, s)| state_parts(s).len()).sum();
        assert_eq!(states.len(), parts);
        for round in 0..12 {
            let mut state = empty(&graph, 2);
            let mut logits = Tensor::zeros(vec![2, 0, graph.vocab as usize]);
            let mut from = 0;
            while from < 9 {
                // The first round decodes token by token; the others cut at random.
                let longest = if round == 0 { 1 } else { 1 + random.below(5) as usize };
                let to = (from + longest).min(9);
                let mut inputs = given(all.times(from, to), from);
                inputs.append(&mut state);
                let outputs = run(&chunk, &inputs);
                logits = logits.append(&outputs[&Output::Logits]);
                state = states_of(&outputs).collect();
                from = to;
            }
            assert!(logits.distance(&at_once[&Output::Logits]) < 1e-10, "{text}");
            for (input, end) in &state {
                assert!(end.distance(&states[input]) < 1e-10, "{input} of {text}");
            }
        }
    }
}

#[test]
fn without_state_out_nothing_is_carried() {
    for text in ARCHS {
        let graph = graph(text);
        let bare = plan(&graph, false, false);
        assert_eq!(bare.outputs.len(), 1);
        assert!(!bare.steps.iter().any(|s| s.kernel.name() == "causal_conv_state"));
    }
}

#[test]
fn zero_filters_compute_what_the_empty_slots_do() {
    let with = ARCHS[0];
    let without = with.replace("canon A, B, C, D", "");
    let (with, without) = (graph(with), graph(&without));
    let mut random = Random(9);
    let base = parameters(&without, &mut random);
    let mut twin = BTreeMap::new();
    for (n, param) in with.top.params.iter().enumerate() {
        let id = crate::graph::ParamId(n as u32);
        let same = without.top.params.iter().position(|p| p.path == param.path);
        let tensor = match same {
            Some(at) => base[&Input::Param(crate::graph::ParamId(at as u32))].clone(),
            None => Tensor::zeros(param.shape.iter().map(|d| *d as usize).collect()),
        };
        twin.insert(Input::Param(id), tensor);
    }
    let all = tokens(&with, 2, 6, &mut random);
    let logits = |graph: &Graph, mut inputs: BTreeMap<Input, Tensor>| {
        inputs.insert(Input::Tokens, all.clone());
        inputs.insert(Input::Position, Tensor::number(0.0));
        run(&plan(graph, false, false), &inputs)[&Output::Logits].clone()
    };
    assert_eq!(logits(&with, twin), logits(&without, base));
}
