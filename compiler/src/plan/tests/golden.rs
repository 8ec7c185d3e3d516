//! Compares the plan to the release: logits, loss, every gradient and ten AdamW steps of one published configuration of
//! each family, from a double-precision evaluation of the reference code (tests/golden/models/README.md).

use std::collections::BTreeMap;

use super::{checked, graph, options, run};
use crate::graph::{Graph, ParamId};
use crate::kernel::tensor::Tensor;
use crate::plan::{IGNORED, Input, Loss, Options, Output, Recompute, Stream, TrainPlan};
use crate::plans::{forward, train};

/// Our name in a layer and theirs. Several of ours may be rows of one of theirs, in this order.
type Names = &'static [(&'static str, &'static str)];

struct GoldenPlan {
    file: &'static [u8],
    arch: &'static str,
    /// Names of the table, the final norm, the projection, and the prefix of layers.
    outside: [&'static str; 4],
    layer: Names,
}

const LLAMA: GoldenPlan = GoldenPlan {
    file: include_bytes!("../../../../tests/golden/models/llamacanon_ABCD.safetensors"),
    arch: "arch tiny { vocab 97  dim 32  norm_eps 1e-5  init lingua  layers 2 of decoder {
      mixer attention { heads 4 }  mlp swiglu { hidden 64 } }  canon A, B, C, D }",
    outside: ["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight", "model.layers"],
    layer: &[
        ("pre_mixer", "input_layernorm.weight"),
        ("A", "canonA.weight"),
        ("mixer.wq", "self_attn.q_proj.weight"),
        ("mixer.wk", "self_attn.k_proj.weight"),
        ("mixer.wv", "self_attn.v_proj.weight"),
        ("mixer.B", "self_attn.canonB.weight"),
        ("mixer.wo", "self_attn.o_proj.weight"),
        ("pre_mlp", "post_attention_layernorm.weight"),
        ("C", "canonC.weight"),
        ("mlp.gate", "mlp.gate_proj.weight"),
        ("mlp.up", "mlp.up_proj.weight"),
        ("mlp.D", "mlp.canonD.weight"),
        ("mlp.down", "mlp.down_proj.weight"),
    ],
};

const GLA: GoldenPlan = GoldenPlan {
    file: include_bytes!("../../../../tests/golden/models/gla5_AbbCD.safetensors"),
    arch: "arch tiny { vocab 97  dim 24  norm_eps 1e-5  init lingua  layers 2 of decoder {
      mixer gla { heads 2 }  mlp swiglu { hidden 48 } }  canon A, C, D }",
    outside: ["model.embeddings.weight", "model.norm.weight", "lm_head.weight", "model.layers"],
    layer: &[
        ("pre_mixer", "attn_norm.weight"),
        ("A", "canonA.weight"),
        ("mixer.wq", "attn.q_proj.weight"),
        ("mixer.wk", "attn.k_proj.weight"),
        ("mixer.wv", "attn.v_proj.weight"),
        ("mixer.conv_q", "attn.q_conv1d.weight"),
        ("mixer.conv_k", "attn.k_conv1d.weight"),
        ("mixer.conv_v", "attn.v_conv1d.weight"),
        ("mixer.decay_down", "attn.gk_proj.0.weight"),
        ("mixer.decay_up", "attn.gk_proj.1.weight"),
        ("mixer.decay_up.bias", "attn.gk_proj.1.bias"),
        ("mixer.o_norm", "attn.g_norm_swish_gate.weight"),
        ("mixer.gate_down", "attn.g_proj.0.weight"),
        ("mixer.gate_up", "attn.g_proj.1.weight"),
        ("mixer.gate_up.bias", "attn.g_proj.1.bias"),
        ("mixer.wo", "attn.o_proj.weight"),
        ("pre_mlp", "mlp_norm.weight"),
        ("C", "canonC.weight"),
        ("mlp.gate", "mlp.gate_proj.weight"),
        ("mlp.up", "mlp.gate_proj.weight"),
        ("mlp.D", "mlp.canonD.weight"),
        ("mlp.down", "mlp.down_proj.weight"),
    ],
};

const GATED_DELTANET: GoldenPlan = GoldenPlan {
    file: include_bytes!("../../../../tests/golden/models/gdn2_AbbCD.safetensors"),
    arch: "arch tiny { vocab 97  dim 24  norm_eps 1e-5  init lingua  layers 2 of decoder {
      mixer gated_deltanet { heads 2 }  mlp swiglu { hidden 48 } }  canon A, C, D }",
    outside: ["model.embeddings.weight", "model.norm.weight", "lm_head.weight", "model.layers"],
    layer: &[
        ("pre_mixer", "attn_norm.weight"),
        ("A", "canonA.weight"),
        ("mixer.wq", "attn.q_proj.weight"),
        ("mixer.wk", "attn.k_proj.weight"),
        ("mixer.wv", "attn.v_proj.weight"),
        ("mixer.conv_q", "attn.q_conv1d.weight"),
        ("mixer.conv_k", "attn.k_conv1d.weight"),
        ("mixer.conv_v", "attn.v_conv1d.weight"),
        ("mixer.wbeta", "attn.b_proj.weight"),
        ("mixer.wa", "attn.a_proj.weight"),
        ("mixer.A_log", "attn.A_log"),
        ("mixer.dt_bias", "attn.dt_bias"),
        ("mixer.o_norm", "attn.o_norm.weight"),
        ("mixer.gate_down", "attn.g_proj.0.weight"),
        ("mixer.gate_up", "attn.g_proj.1.weight"),
        ("mixer.gate_up.bias", "attn.g_proj.1.bias"),
        ("mixer.wo", "attn.o_proj.weight"),
        ("pre_mlp", "mlp_norm.weight"),
        ("C", "canonC.weight"),
        ("mlp.gate", "mlp.both_proj.weight"),
        ("mlp.up", "mlp.both_proj.weight"),
        ("mlp.D", "mlp.canonD.weight"),
        ("mlp.down", "mlp.down_proj.weight"),
    ],
};

const MAMBA2: GoldenPlan = GoldenPlan {
    file: include_bytes!("../../../../tests/golden/models/mamba2_AbbCD.safetensors"),
    arch: "arch tiny { vocab 97  dim 24  norm_eps 1e-5  init lingua  layers 2 of decoder {
      mixer mamba2 { heads 3  state 16 }  mlp swiglu { hidden 48 } }  canon A, C, D }",
    outside: [
        "backbone.embeddings.weight",
        "backbone.norm_f.weight",
        "lm_head.weight",
        "backbone.layers",
    ],
    layer: &[
        ("pre_mixer", "norm.weight"),
        ("A", "canonA.weight"),
        ("mixer.wz", "mixer.in_proj.weight"),
        ("mixer.wx", "mixer.in_proj.weight"),
        ("mixer.wb", "mixer.in_proj.weight"),
        ("mixer.wc", "mixer.in_proj.weight"),
        ("mixer.wdt", "mixer.in_proj.weight"),
        ("mixer.conv_x", "mixer.conv1d.weight"),
        ("mixer.conv_b", "mixer.conv1d.weight"),
        ("mixer.conv_c", "mixer.conv1d.weight"),
        ("mixer.conv_x.bias", "mixer.conv1d.bias"),
        ("mixer.conv_b.bias", "mixer.conv1d.bias"),
        ("mixer.conv_c.bias", "mixer.conv1d.bias"),
        ("mixer.A_log", "mixer.A_log"),
        ("mixer.dt_bias", "mixer.dt_bias"),
        ("mixer.D", "mixer.D"),
        ("mixer.norm", "mixer.norm.weight"),
        ("mixer.wo", "mixer.out_proj.weight"),
        ("pre_mlp", "pre_mlp_layernorm.weight"),
        ("C", "canonC.weight"),
        ("mlp.gate", "mlp.both_proj.weight"),
        ("mlp.up", "mlp.both_proj.weight"),
        ("mlp.D", "mlp.canonD.weight"),
        ("mlp.down", "mlp.down_proj.weight"),
    ],
};

/// The tensors of a safetensors file.
fn read(file: &[u8]) -> BTreeMap<String, Tensor> {
    let (length, rest) = file.split_at(8);
    let length = u64::from_le_bytes(length.try_into().expect("eight bytes")) as usize;
    let (header, data) = rest.split_at(length);
    let header: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(header).expect("a header");
    let mut tensors = BTreeMap::new();
    for (name, entry) in header.iter().filter(|(name, _)| *name != "__metadata__") {
        let numbers = |key: &str| -> Vec<usize> {
            let list = entry[key].as_array().expect("a list").iter();
            list.map(|n| n.as_u64().expect("a size") as usize).collect()
        };
        let range = numbers("data_offsets");
        let bytes = &data[range[0]..range[1]];
        let eight = |b: &[u8]| -> [u8; 8] { b.try_into().expect("eight bytes") };
        let values = match entry["dtype"].as_str() {
            Some("F32") => bytes
                .chunks(4)
                .map(|b| f64::from(f32::from_le_bytes(b.try_into().expect("four bytes"))))
                .collect(),
            Some("F64") => bytes.chunks(8).map(|b| f64::from_le_bytes(eight(b))).collect(),
            Some("I64") => bytes.chunks(8).map(|b| i64::from_le_bytes(eight(b)) as f64).collect(),
            other => panic!("{name} is {other:?}"),
        };
        tensors.insert(name.clone(), Tensor { dims: numbers("shape"), data: values });
    }
    tensors
}

/// The file's values under `prefix` for each of our parameters.
fn ours(
    case: &GoldenPlan,
    graph: &Graph,
    file: &BTreeMap<String, Tensor>,
    prefix: &str,
) -> Vec<(ParamId, Tensor)> {
    let [embed, norm, output, layers] = case.outside;
    let mut names: Vec<(String, String)> =
        [("embed", embed), ("head.norm", norm), ("head.output", output)]
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .into();
    for n in 0..2 {
        let pair = |(a, b): &(&str, &str)| (format!("layers.{n}.{a}"), format!("{layers}.{n}.{b}"));
        names.extend(case.layer.iter().map(pair));
    }
    assert_eq!(names.len(), graph.top.params.len());
    let mut read: BTreeMap<&str, usize> = BTreeMap::new();
    let mut tensors = Vec::new();
    for (name, theirs) in &names {
        let at = graph.top.params.iter().position(|p| p.path == *name);
        let at = at.unwrap_or_else(|| panic!("no {name}"));
        let dims: Vec<usize> = graph.top.params[at].shape.iter().map(|d| *d as usize).collect();
        let count: usize = dims.iter().product();
        let from = read.entry(theirs).or_insert(0);
        let data = file[&format!("{prefix}/{theirs}")].data[*from..*from + count].to_vec();
        *from += count;
        tensors.push((ParamId(at as u32), Tensor { dims, data }));
    }
    for (theirs, count) in read {
        assert_eq!(count, file[&format!("{prefix}/{theirs}")].data.len(), "{theirs}");
    }
    tensors
}

fn verify(case: &GoldenPlan) {
    let graph = graph(case.arch);
    let file = read(case.file);
    let plans = train(&graph, &options(true, Recompute::Nothing, Loss::CROSS_ENTROPY));
    let mut inputs: BTreeMap<Input, Tensor> =
        ours(case, &graph, &file, "w").into_iter().map(|(id, w)| (Input::Param(id), w)).collect();
    inputs.insert(Input::Tokens, file["in/tokens"].clone());
    inputs.insert(Input::Targets, file["in/targets"].clone());
    inputs.insert(Input::Position, Tensor::number(0.0));
    let counted = file["in/targets"].data.iter().filter(|t| **t as i64 != IGNORED).count() as f64;
    inputs.insert(Input::GradScale, Tensor::number(1.0 / counted));

    let logits = forward(&graph, Stream::default(), Options::default());
    let logits = &run(checked(&logits), &inputs)[&Output::Logits];
    assert!(logits.distance(&file["out/logits"]) < 1e-6);
    let outputs = run(checked(&plans.micro), &inputs);
    let loss = outputs[&Output::Loss].data[0] / counted;
    assert!((loss - file["out/loss_f64"].data[0]).abs() < 1e-13);
    for (id, want) in ours(case, &graph, &file, "grad") {
        let largest = want.data.iter().fold(0.0f64, |a, x| a.max(x.abs()));
        let error = outputs[&Output::Gradient(id)].distance(&want) / largest;
        assert!(error < 1e-7, "{}: {error}", graph.top.params[id.0 as usize].path);
    }
    trajectory(&graph, &plans, inputs, &file, counted);
}

/// Ten steps on one batch: lr 0.005 after three steps of warm-up, decay 0.1 on everything, clip 1.
fn trajectory(
    graph: &Graph,
    plans: &TrainPlan,
    mut inputs: BTreeMap<Input, Tensor>,
    file: &BTreeMap<String, Tensor>,
    counted: f64,
) {
    let ids = || (0..graph.top.params.len() as u32).map(ParamId);
    for id in ids() {
        let zeros = inputs[&Input::Param(id)].map(|_| 0.0);
        inputs.insert(Input::FirstMoment(id), zeros.clone());
        inputs.insert(Input::SecondMoment(id), zeros);
    }
    for step in 0..10 {
        let micro = run(&plans.micro, &inputs);
        let loss = micro[&Output::Loss].data[0] / counted;
        assert!((loss - file["traj/loss"].data[step]).abs() < 1e-11, "step {step}: {loss}");
        for id in ids() {
            inputs.insert(Input::Gradient(id), micro[&Output::Gradient(id)].clone());
        }
        inputs.insert(Input::LearningRate, Tensor::number(file["traj/lr"].data[step]));
        inputs.insert(Input::StepNumber, Tensor::number((step + 1) as f64));
        let mut update = run(checked(&plans.update), &inputs);
        let norm = update[&Output::GradNorm].data[0] / file["traj/grad_norm"].data[step];
        assert!((norm - 1.0).abs() < 1e-10, "step {step}: {norm}");
        for id in ids() {
            for (input, output) in [
                (Input::Param(id), Output::Param(id)),
                (Input::FirstMoment(id), Output::FirstMoment(id)),
                (Input::SecondMoment(id), Output::SecondMoment(id)),
            ] {
                inputs.extend(update.remove(&output).map(|tensor| (input, tensor)));
            }
        }
    }
}

#[test]
fn llama_with_canon_equals_the_release() {
    verify(&LLAMA);
}

#[test]
fn gla_equals_the_release() {
    verify(&GLA);
}

#[test]
fn gated_deltanet_equals_the_release() {
    verify(&GATED_DELTANET);
}

#[test]
fn mamba2_equals_the_release() {
    verify(&MAMBA2);
}
