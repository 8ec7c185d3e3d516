//! The published models' own numbers (`tests/golden/models`): logits, loss, every gradient, decoding, ten steps of
//! AdamW, within each case's tolerance for an f32 implementation; in f64, far closer.

mod bf16;

use std::collections::BTreeMap;
use std::path::PathBuf;

use compiler::plan::{IGNORED, Loss};
use compiler::program::Compiled;
use interop::described::Described;
use interop::lay::{self, Target};
use interop::model::RopeLayout;
use interop::names::GatedNorm;
use interop::source::ArchWeights;
use runtime::execute::{Machine, Moments};
use runtime::weights::{Weights, file};
use serde_json::Value;
use tch::{Kind, Tensor};

use super::support::{
    DOUBLE, FAST, PLAIN, arch, decimal, evaluator, furthest, quiet, relative, streamer, trainer,
};

/// One case: its description and its tensors.
struct GoldenCase {
    text: Value,
    tensors: BTreeMap<String, Tensor>,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/models")
}

/// Every case with a name that begins with `family`.
fn cases(family: &str) -> Vec<GoldenCase> {
    let text = std::fs::read_to_string(folder().join("cases.json")).unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    let wanted = all["cases"].as_array().unwrap().iter();
    wanted
        .filter(|case| case["name"].as_str().unwrap().starts_with(family))
        .map(|case| {
            let file = folder().join(case["file"].as_str().unwrap());
            GoldenCase { text: case.clone(), tensors: file::read(&file).unwrap() }
        })
        .collect()
}

impl GoldenCase {
    fn name(&self) -> &str {
        self.text["name"].as_str().unwrap()
    }

    fn tensor(&self, name: &str) -> &Tensor {
        self.tensors.get(name).unwrap_or_else(|| panic!("{} has no {name}", self.name()))
    }

    /// A number under a path of keys.
    fn number(&self, path: &[&str]) -> f64 {
        let value = path.iter().fold(&self.text, |value, key| &value[*key]);
        value.as_f64().unwrap_or_else(|| panic!("{}: {path:?} is {value}", self.name()))
    }

    fn tolerance(&self, name: &str) -> f64 {
        self.number(&["tolerance", name])
    }

    /// The tensors under a prefix, by the reference's names.
    fn under(&self, prefix: &str) -> BTreeMap<String, Tensor> {
        self.tensors
            .iter()
            .filter_map(|(name, t)| {
                Some((name.strip_prefix(prefix)?.to_owned(), t.shallow_clone()))
            })
            .collect()
    }

    /// In the release, `z_loss` squares the token's loss.
    fn loss(&self) -> Loss {
        match self.text["z_loss"].as_bool().unwrap() {
            true => Loss { nll_square: decimal("1e-4"), ..Loss::CROSS_ENTROPY },
            false => Loss::CROSS_ENTROPY,
        }
    }

    fn compiled(&self) -> Compiled {
        arch(&arch_text(&self.text["hparams"]), "golden")
    }

    fn weights(&self, compiled: &Compiled, machine: Machine) -> Weights {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("model.safetensors");
        let tensors = self.under("w/");
        let named: Vec<_> = tensors.iter().map(|(name, t)| (name.as_str(), t)).collect();
        file::write(&path, &named, None).unwrap();
        // The cases use the published classes with the arch's RoPE.
        let rows = match self.text["hparams"]["rope_version"].as_str() {
            Some("huggingface") => RopeLayout::Half,
            _ => RopeLayout::Interleaved,
        };
        let source = ArchWeights::open_as(compiled, &path, Some(rows))
            .unwrap_or_else(|error| panic!("{}: {error}", self.name()));
        assert!(!source.is_turned(), "{}", self.name());
        Weights::read(&compiled.graph, &source, machine.device, machine.kind).unwrap()
    }
}

/// The arch that a case's `hparams` describe, in the language.
fn arch_text(h: &Value) -> String {
    let (mixer, mlp) = match h["family"].as_str().unwrap() {
        "llama" => (llama_mixer(h), swiglu(h)),
        "gla5" => (gla_mixer(h), swiglu(h)),
        "gdn2" => (delta_mixer(h), swiglu(h)),
        "mamba2" => (mamba2_mixer(h), swiglu(h)),
        family => panic!("no family {family}"),
    };
    let layer = match mlp {
        Some(mlp) => format!("decoder {{ mixer {mixer}  mlp {mlp} }}"),
        None => format!("mixer_only {{ mixer {mixer} }}"),
    };
    let slots: Vec<String> = "ABCD"
        .chars()
        .filter(|slot| text(h, "canon_set").contains(*slot))
        .map(String::from)
        .collect();
    let activation = if h["canon_activation"] == true { "silu" } else { "none" };
    let canon = match slots.is_empty() {
        true => String::new(),
        false => format!(
            "canon {} {{ kernel {}  residual {}  activation {activation} }}",
            slots.join(", "),
            h["canon_kernel"],
            h["canon_residual"],
        ),
    };
    format!(
        "arch base {{ vocab {}  dim {}  norm_eps {}  init lingua\n layers {} of {layer} }}\n\
         arch golden = base with {{\n {canon}\n}}\n",
        h["vocab_size"],
        h["dim"],
        exact(h, "norm_eps"),
        h["n_layers"],
    )
}

/// The MLP, if any.
fn swiglu(h: &Value) -> Option<String> {
    h["ffn_hidden"].as_i64().map(|hidden| format!("swiglu {{ hidden {hidden} }}"))
}

fn llama_mixer(h: &Value) -> String {
    let layout = match text(h, "rope_version").as_str() {
        "lingua" => "interleaved",
        "huggingface" => "half",
        other => panic!("no RoPE of {other}"),
    };
    format!(
        "attention {{ heads {}  kv_heads {}  head_dim {}  qk_norm {}  rope {{ theta {}  layout {layout}  dims {} }} }}",
        h["n_heads"],
        h["n_kv_heads"],
        h["head_dim"],
        h["qk_norm"],
        exact(h, "rope_theta"),
        h["rope_dim"],
    )
}

fn gla_mixer(h: &Value) -> String {
    format!(
        "gla {{ heads {}  key_dim {}  value_dim {}  gate_rank {}  output_gate_rank {}  gate_divisor {}  {} }}",
        h["n_heads"],
        h["key_dim"],
        h["value_dim"],
        h["gk_rank"],
        h["output_gate_rank"],
        h["gate_logit_normalizer"],
        short_conv(h, "short_conv"),
    )
}

fn delta_mixer(h: &Value) -> String {
    assert_eq!(h["l2norm_eps"].as_f64(), Some(1e-6), "the primitive's own");
    format!(
        "gated_deltanet {{ heads {}  key_dim {}  value_dim {}  output_gate_rank {}  {} }}",
        h["n_heads"],
        h["key_dim"],
        h["value_dim"],
        h["output_gate_rank"],
        short_conv(h, "short_conv"),
    )
}

fn mamba2_mixer(h: &Value) -> String {
    format!(
        "mamba2 {{ heads {}  inner {}  state {}  groups {}  {} }}",
        h["n_heads"],
        h["d_inner"],
        h["d_state"],
        h["n_groups"],
        short_conv(h, "conv"),
    )
}

fn short_conv(h: &Value, flag: &str) -> String {
    format!("short_conv {}  conv_kernel {}", h[flag], h["conv_kernel"])
}

fn text(h: &Value, key: &str) -> String {
    h[key].as_str().unwrap().to_owned()
}

/// A decimal in the language's form.
fn exact(h: &Value, key: &str) -> String {
    format!("{:e}", h[key].as_f64().unwrap())
}

/// Largest errors as fractions of their tolerance, by the compared quantity.
#[derive(Default)]
struct Worst(BTreeMap<&'static str, (f64, String)>);

impl Worst {
    fn see(&mut self, what: &'static str, error: f64, tolerance: f64, name: &str) {
        let part = error / tolerance;
        let worst = self.0.entry(what).or_insert((0.0, String::new()));
        if part >= worst.0 || part.is_nan() {
            *worst = (part, format!("{name}: {error:.2e} of {tolerance:.2e}"));
        }
    }

    fn check(&self, case: &str, machine: Machine) {
        for (what, (part, name)) in &self.0 {
            assert!(*part <= 1.0, "{case} on {machine:?}: {what}, {name}");
        }
    }
}

/// Checks everything that the case has: logits, loss and gradients; decoding; the trajectory.
fn check(case: &GoldenCase, machine: Machine) {
    let compiled = case.compiled();
    let mut worst = Worst::default();
    // The remaining error in f64 is the rounding of the stored numbers to f32.
    let within = |name: &str| {
        if machine.kind == Kind::Double { 1e-6 } else { case.tolerance(name) }
    };
    if case.tensors.contains_key("out/logits") {
        forward_and_backward(case, &compiled, machine, &within, &mut worst);
    }
    if case.tensors.contains_key("decode/step_logits") {
        decode(case, &compiled, machine, &within, &mut worst);
    }
    if case.tensors.contains_key("traj/loss") {
        trajectory(case, &compiled, machine, &within, &mut worst);
    }
    assert!(!worst.0.is_empty(), "{} has nothing to compare", case.name());
    worst.check(case.name(), machine);
}

fn see_logits(
    case: &GoldenCase,
    got: &Tensor,
    want: &Tensor,
    what: &'static str,
    within: &dyn Fn(&str) -> f64,
    worst: &mut Worst,
) {
    // The cases also allow 1e-4 of each logit; it is not needed.
    worst.see(what, furthest(got, want), within("logits_atol"), case.name());
}

fn forward_and_backward(
    case: &GoldenCase,
    compiled: &Compiled,
    machine: Machine,
    within: &dyn Fn(&str) -> f64,
    worst: &mut Worst,
) {
    let (tokens, targets) = (case.tensor("in/tokens"), case.tensor("in/targets"));
    let weights = case.weights(compiled, machine);
    let graph = &compiled.graph;

    let streamer = streamer(graph, machine);
    let start = streamer.start(tokens.size()[0]).unwrap();
    let (logits, _) = streamer.forward(&weights, tokens, &start).unwrap();
    see_logits(case, &logits, case.tensor("out/logits"), "logits", within, worst);

    let counted = targets.ne(IGNORED).sum(Kind::Int64).int64_value(&[]);
    let trainer = trainer(graph, case.loss(), machine);
    let sums = trainer.micro_batch(&weights, tokens, targets, 1.0 / counted as f64).unwrap();
    assert_eq!(sums.counted().unwrap(), counted, "{}", case.name());
    let loss = sums.loss_sum().unwrap() / counted as f64;
    let gold = case.tensor("out/loss_f64").double_value(&[0]);
    worst.see("loss", (loss - gold).abs(), within("loss_atol"), case.name());

    let evaluation = evaluator(graph, case.loss(), machine);
    let measured = evaluation.evaluate(&weights, tokens, targets).unwrap();
    assert_eq!(measured.counted, counted);
    assert_eq!(measured.loss_sum.to_bits(), sums.loss_sum().unwrap().to_bits());

    let gold = case.under("grad/");
    let frozen = case.text["params_without_grad"].as_array().unwrap();
    for (name, gradient) in by_their_names(case, compiled, &sums.gradients) {
        if frozen.iter().any(|other| *other == name) {
            continue;
        }
        let want = gold.get(&name).unwrap_or_else(|| panic!("no gradient of {name}"));
        let error = relative(&gradient.reshape(want.size()), want);
        worst.see("gradients", error, within("grad_rel_max"), &name);
    }
}

/// Our tensors, stacked like the reference's.
fn by_their_names(
    case: &GoldenCase,
    compiled: &Compiled,
    tensors: &[Tensor],
) -> BTreeMap<String, Tensor> {
    let theirs = case.under("w/");
    let reference = theirs.keys().any(|name| name.ends_with(".attn.g_norm.weight"));
    let norm = if reference { GatedNorm::Reference } else { GatedNorm::Fused };
    let described = Described::of_released(interop::arch::model(compiled).unwrap(), norm);
    let entries = described.entries(Target::HuggingFace, compiled.graph.params());
    let written = entries.into_iter().filter(|entry| entry.kind == lay::EntryKind::Needed);
    written
        .map(|entry| {
            assert!(theirs.contains_key(&entry.theirs), "{}", entry.theirs);
            let parts: Vec<&Tensor> = entry.ours.iter().map(|n| &tensors[*n]).collect();
            (entry.theirs, Tensor::cat(&parts, 0))
        })
        .collect()
}

/// Prefill, then token by token; and other cuts of the same sequence.
fn decode(
    case: &GoldenCase,
    compiled: &Compiled,
    machine: Machine,
    within: &dyn Fn(&str) -> f64,
    worst: &mut Worst,
) {
    let tokens = case.tensor("in/tokens");
    let (batch, time) = (tokens.size()[0], tokens.size()[1]);
    let prefill = case.number(&["decode", "prefill"]) as i64;
    let weights = case.weights(compiled, machine);
    let want =
        Tensor::cat(&[case.tensor("decode/prefill_logits"), case.tensor("decode/step_logits")], 1);
    let streamer = streamer(&compiled.graph, machine);
    let as_released: Vec<i64> = [prefill].into_iter().chain((prefill..time).map(|_| 1)).collect();
    for pieces in [as_released, vec![1; time as usize], vec![2, 1, 3, 10, time - 16], vec![time]] {
        let (mut carried, mut first) = (streamer.start(batch).unwrap(), 0);
        for count in &pieces {
            let piece = tokens.narrow(1, first, *count);
            let (logits, next) = streamer.forward(&weights, &piece, &carried).unwrap();
            let want = want.narrow(1, first, *count);
            see_logits(case, &logits, &want, "decoding", within, worst);
            (carried, first) = (next, first + count);
        }
        assert_eq!((carried.position, first), (time, time));
    }
}

/// Ten steps on one batch: loss and norm before each, weights after the last.
fn trajectory(
    case: &GoldenCase,
    compiled: &Compiled,
    machine: Machine,
    within: &dyn Fn(&str) -> f64,
    worst: &mut Worst,
) {
    let (tokens, targets) = (case.tensor("in/tokens"), case.tensor("in/targets"));
    let counted = targets.ne(IGNORED).sum(Kind::Int64).int64_value(&[]) as f64;
    let numbers = |name: &str| Vec::<f64>::try_from(case.tensor(name)).unwrap();
    let (losses, norms, rates) =
        (numbers("traj/loss"), numbers("traj/grad_norm"), numbers("traj/lr"));
    let mut weights = case.weights(compiled, machine);
    let mut moments = Moments::zeros(&weights, &[]).unwrap();
    let trainer = trainer(&compiled.graph, case.loss(), machine);
    for (step, ((loss, norm), lr)) in losses.iter().zip(&norms).zip(&rates).enumerate() {
        let sums = trainer.micro_batch(&weights, tokens, targets, 1.0 / counted).unwrap();
        let got = sums.loss_sum().unwrap() / counted;
        let label = format!("step {step}");
        worst.see("trajectory's loss", (got - loss).abs(), within("traj_loss_atol"), &label);
        let got = trainer
            .update(&mut weights, &mut moments, &sums.gradients, *lr, step as i64 + 1)
            .unwrap();
        let allowed = within("traj_grad_norm_rel");
        worst.see("trajectory's norm", (got / norm - 1.0).abs(), allowed, &label);
    }
    let gold = case.text["traj"]["final_param_l2"].as_object().unwrap();
    let ended = by_their_names(case, compiled, &weights.tensors);
    assert_eq!(ended.len(), gold.len());
    for (name, tensor) in ended {
        let want = gold[&name].as_f64().unwrap();
        let got = tensor.to_kind(Kind::Double).square().sum(None).sqrt().double_value(&[]);
        worst.see("weights", (got / want - 1.0).abs(), within("traj_final_l2_rel"), &name);
    }
}

fn check_family(family: &str, count: usize) {
    quiet();
    let cases = cases(family);
    assert_eq!(cases.len(), count);
    for case in &cases {
        for machine in [FAST, PLAIN, DOUBLE] {
            check(case, machine);
        }
    }
}

#[test]
fn llama() {
    check_family("llama", 12);
}

#[test]
fn gla5() {
    check_family("gla5", 6);
}

#[test]
fn gdn2() {
    check_family("gdn2", 5);
}

#[test]
fn mamba2() {
    check_family("mamba2", 6);
}
