//! Compares every arch as a PyTorch module with ours in f64: logits, loss, gradients by PyTorch's autograd, and logits
//! of a run in parts; in its training form the loss with every term and its gradients. No arch is left out: the primitives' examples, small archs of every form, the committed archs
//! with small widths, archs with names that Python reserves, and random archs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use compiler::number::{Ratio, Root};
use compiler::plan::{Loss, Options};
use compiler::program::{Compiled, Program, Std};
use dsl::Decimal;
use interop::dtype::Dtype;
use interop::export::{Request, To, write};
use interop::source::ArchWeights;
use interop::torch::tensor_names;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use runtime::execute::{KernelRequest, Machine};
use runtime::forward;
use runtime::weights::{Weights, file};
use runtime::{Device, Kind, Tensor};
use support::{archs, programs};

use super::{python, random, run};

/// More than one chunk of a scan, and a part of another.
const TIME: i64 = 21;

/// The largest difference of sums in f64, relative to the largest value.
const ALLOWED: f64 = 1e-9;
/// Rounding of gradients that nearly cancel, relative to the largest of the parameter's.
const ALLOWED_GRADIENT: f64 = 1e-7;

#[derive(serde::Deserialize)]
struct ModuleResult {
    name: String,
    logits: f64,
    loss: f64,
    grad: f64,
    worst: String,
    split: f64,
    init: f64,
    training_loss: f64,
    training_grad: f64,
}

/// Every term of a training loss; an arch has only some of them.
fn all_terms() -> Loss {
    let part = |num, den| Some(Root::rational(Ratio { num, den }));
    let decimal = |text: &str| Decimal::parse(text).unwrap();
    Loss {
        nll_square: decimal("0.01"),
        z_loss: decimal("0.02"),
        balance: part(1, 2),
        router_z: part(1, 4),
        ahead: part(3, 4),
    }
}

/// Exports each arch with weights and computes its logits and gradients, in a folder that the script reads.
fn lay_out(folder: &Path, cases: &BTreeMap<String, Compiled>) {
    for (name, compiled) in cases {
        let graph = &compiled.graph;
        let weights = Weights::init(graph, 7).unwrap();
        let file = folder.join(format!("{name}.safetensors"));
        weights.save(&file).unwrap();
        let request = |to, weights| Request {
            compiled,
            experiment: None,
            weights,
            to,
            dtype: Dtype::F32,
            ranks: None,
            comparison: None,
            gpus_per_node: 1,
            origin: None,
            tokenizer: Err(""),
            imported_text: None,
            initial: None,
        };
        let exported = |to, weights, end: &str| {
            write(&request(to, weights), &folder.join(format!("{name}{end}")))
        };
        let panicked = |error| panic!("{name}: {error:?}");
        exported(To::Torch, Some(file.as_path()), "").unwrap_or_else(panicked);
        exported(To::Trainer, None, ".trainer").map(|_| ()).unwrap_or_else(|error| {
            assert!(error.message.contains("which PyTorch cannot shard"), "{name}: {error:?}");
        });
        read_back(name, compiled, &weights, &folder.join(name).join("model.safetensors"));
        let (tokens, targets) = tokens(graph.vocab);
        // A primitive's own example predicts inside a layer, where no recipe can weigh it.
        let ahead = all_terms().ahead.filter(|_| graph.ahead_heads_below() == 0);
        let terms = Loss { ahead, ..all_terms() };
        for (end, loss) in [("ours", Loss::CROSS_ENTROPY), ("training", terms)] {
            let answer = forward::forward(&forward::Request {
                graph,
                weights: &weights,
                tokens: &tokens,
                targets: Some(&targets),
                gradients: true,
                loss,
                options: Options::default(),
                machine: Machine {
                    device: Device::Cpu,
                    kind: Kind::Double,
                    kernels: KernelRequest::REFERENCE,
                },
            });
            let bytes = answer.unwrap().bytes().unwrap();
            fs::write(folder.join(format!("{name}.{end}.safetensors")), bytes).unwrap();
        }
        let names: BTreeMap<&str, String> = graph
            .params()
            .iter()
            .map(|param| param.path.as_str())
            .zip(tensor_names(graph.params()))
            .collect();
        assert_eq!(names.len(), graph.params().len());
        let both = &[("tokens", &tokens), ("targets", &targets)];
        file::write(&folder.join(format!("{name}.tokens.safetensors")), both, None).unwrap();
        let text = serde_json::to_string(&names).unwrap();
        fs::write(folder.join(format!("{name}.names.json")), text).unwrap();
    }
}

/// The exported weights are read back bit for bit, as every `--weights` reads them.
pub(super) fn read_back(name: &str, compiled: &Compiled, weights: &Weights, path: &Path) {
    let source = ArchWeights::open(compiled, path).unwrap();
    for (index, tensor) in weights.tensors.iter().enumerate() {
        let mut values: Vec<f32> = Vec::new();
        let mut put = |piece: &[f32]| {
            values.extend(piece);
            Ok(())
        };
        source.param(index, &mut put).unwrap();
        let ours: Vec<f32> = Vec::try_from(tensor.reshape([-1])).unwrap();
        let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&values), bits(&ours), "{name}: parameter {index}");
    }
}

/// Two rows of tokens, and the tokens after them.
fn tokens(vocab: i64) -> (Tensor, Tensor) {
    let ids: Vec<i64> = (0..2 * (TIME + 1)).map(|n| (n * n * 31 + n * 7 + 5) % vocab).collect();
    let all = Tensor::from_slice(&ids).reshape([2, TIME + 1]);
    (all.narrow(1, 0, TIME).contiguous(), all.narrow(1, 1, TIME).contiguous())
}

fn agree(cases: &BTreeMap<String, Compiled>) {
    let dir = tempfile::tempdir().unwrap();
    lay_out(dir.path(), cases);
    let script = programs::root().join("tests/torch_oracle.py");
    let words = [&script, dir.path()].map(|path| path.to_string_lossy().into_owned());
    let stdout = run(&python(), &words.each_ref().map(String::as_str));
    let stdout = stdout.unwrap_or_else(|error| panic!("{error}"));
    let results: Vec<ModuleResult> =
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(results.len(), cases.len());
    let bad: Vec<&ModuleResult> = results
        .iter()
        .filter(|result| {
            let values = [result.logits, result.loss, result.split, result.training_loss];
            let is_near = values.iter().all(|off| *off <= ALLOWED)
                && result.grad.max(result.training_grad) <= ALLOWED_GRADIENT;
            // Quantiles of 4,000 values or more differ by a few percent of their range from draw to draw.
            !(is_near && result.init <= 0.1)
        })
        .collect();
    let listed: Vec<String> = bad
        .iter()
        .map(|result| {
            let ModuleResult { name, logits, loss, grad, worst, split, init, .. } = result;
            let (training_loss, training_grad) = (result.training_loss, result.training_grad);
            format!(
                "{name}: logits {logits:.1e}, loss {loss:.1e}, gradient of {worst} {grad:.1e}, in parts {split:.1e}, \
                 initial {init:.2}, training loss {training_loss:.1e}, its gradients {training_grad:.1e}"
            )
        })
        .collect();
    assert!(bad.is_empty(), "{}", listed.join("\n"));
    let worst = |error: fn(&ModuleResult) -> f64| results.iter().map(error).fold(0.0, f64::max);
    eprintln!(
        "{} archs: logits off by at most {:.1e}, loss {:.1e}, gradients {:.1e}, runs in parts {:.1e}, quantiles of \
         initial values {:.1e}, training loss {:.1e}, its gradients {:.1e}",
        results.len(),
        worst(|f| f.logits),
        worst(|f| f.loss),
        worst(|f| f.grad),
        worst(|f| f.split),
        worst(|f| f.init),
        worst(|f| f.training_loss),
        worst(|f| f.training_grad),
    );
}

#[test]
fn modules_of_small_archs_and_of_every_primitive_equal_ours() {
    let mut cases = BTreeMap::new();
    for (index, (name, compiled)) in archs::all().into_iter().enumerate() {
        cases.insert(format!("{name}_{index}"), compiled);
    }
    agree(&cases);
}

#[test]
fn modules_of_every_committed_arch_equal_ours() {
    let files = programs::files("arch", ".canon");
    let texts = files.iter().map(|file| (file.clone(), archs::small(&programs::read(file))));
    let program = Program::new(texts, Std::Embedded);
    let mut cases = BTreeMap::new();
    for file in &files {
        for name in program.archs(file) {
            let (compiled, diagnostics) = program.compile(file, &name);
            let compiled = compiled.unwrap_or_else(|| panic!("{}", program.render(&diagnostics)));
            assert!(cases.insert(name, compiled).is_none());
        }
    }
    assert!(cases.len() > 60, "{}", cases.len());
    agree(&cases);
}

/// Shared parameters in layers that compute something else at each depth.
#[test]
fn shared_layers_may_differ() {
    let layer =
        "share decoder { mixer attention { heads 2  window layer + 2 } mlp swiglu { hidden 9 } }";
    let text = format!(
        "arch shared {{ vocab 11  dim 8  norm_eps 1e-5  init huggingface  layers [3 of {layer}, 2 of {layer}] }}"
    );
    agree(&BTreeMap::from([("shared".to_owned(), programs::compiled(&text))]));
}

#[test]
fn modules_of_a_hundred_random_archs_equal_ours() {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[17; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let mut cases = BTreeMap::new();
    for index in 0..40 {
        let random = support::generate::random().new_tree(&mut runner).unwrap().current();
        cases.insert(format!("program_{index}"), random.filled(|_| true));
    }
    for index in 0..60 {
        let text = random::text().new_tree(&mut runner).unwrap().current();
        cases.insert(format!("shape_{index}"), programs::compiled(&text));
    }
    agree(&cases);
}

/// Names that Python, PyTorch or the generated text uses for something else.
const ODD: &[&str] = &[
    "type",
    "train",
    "forward",
    "weight",
    "bias",
    "to",
    "state_dict",
    "torch",
    "F",
    "math",
    "past",
    "kept",
    "position",
    "self",
    "enumerate",
    "str",
    "wide",
    "rms_norm",
    "class",
    "lambda",
    "_x",
    "under0_x",
    "class_",
    "T_destination",
    "places",
    "outside",
    "INIT",
    "Model",
    "print",
    "half",
    "double",
    "requires_grad",
    "Layer0",
];

#[test]
fn names_that_python_reserves_work() {
    let mut body = String::from("  y = x\n");
    for name in ODD {
        body += &format!("  y = y + linear {name} (y, dim, bias = true)\n");
    }
    let text = format!(
        "/// A doc \"\"\" with \\ and a quote\"\nblock odd(x) {{\n{body}  rms_norm norm (y)\n}}
head out(x) {{ linear enumerate (x, vocab) }}
/// \"\"\" + exit() + \"\"\"
arch odd_names {{ vocab 5  dim 2  norm_eps 1e-5  init lingua  layers [odd, odd]  head out }}"
    );
    let cases = BTreeMap::from([("odd".to_owned(), programs::compiled(&text))]);
    agree(&cases);
}

#[test]
fn initial_values_have_our_distributions() {
    let rules = [
        "ones",
        "zeros",
        "normal(0.7)",
        "trunc_normal(0.5, 1)",
        "trunc_normal(0.5, 3)",
        "uniform(0.3)",
        "log_uniform(0, 16)",
        "log_uniform(1, 16)",
        "time_step(0.001, 0.1, 0.0001)",
        "time_step(0.001, 0.1, 0.05)",
    ];
    let mut body = String::new();
    for (index, rule) in rules.iter().enumerate() {
        body += &format!("  param p{index} [4096] init {rule}\n  x = x + x * p{index}\n");
    }
    // The same name one level further in has another distribution: no pattern may mix them up.
    let text = format!(
        "block inner(x) {{\n  param p2 [4096] init uniform(5)\n  x * p2\n}}
block all(x) {{\n{body}  rms_norm norm (inner deep (x))\n}}
block other(x) {{\n  param p2 [4096] init normal(3)\n  rms_norm norm (x * p2)\n}}
arch values {{ vocab 2  dim 4096  norm_eps 1e-5  init lingua  layers [all, other, all] }}"
    );
    agree(&BTreeMap::from([("values".to_owned(), programs::compiled(&text))]));
}
