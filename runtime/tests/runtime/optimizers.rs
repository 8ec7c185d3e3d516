//! Updates of parameters in groups, against independent trajectories (`tests/golden/optimizers`).

use std::path::PathBuf;

use compiler::plan::{Loss, MuonScale, ParamUpdate};
use compiler::plans;
use runtime::execute::{Moments, Trainer};
use runtime::kernels::muon::{Muon, Update, muon};
use runtime::kernels::path::{self, Path, Reason};
use runtime::weights::Weights;
use serde_json::Value;
use tch::{Device, Kind, Tensor};

use super::support::{DOUBLE, FAST, PLAIN, arch, decimal, quiet, relative, train_options};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/optimizers").join(name)
}

fn values() -> Value {
    serde_json::from_slice(&std::fs::read(golden("values.json")).unwrap()).unwrap()
}

struct OptimizerCase(Vec<(String, Tensor)>);

impl OptimizerCase {
    fn read(name: &str) -> OptimizerCase {
        OptimizerCase(Tensor::read_safetensors(golden(&format!("{name}.safetensors"))).unwrap())
    }

    fn get(&self, name: &str) -> &Tensor {
        &self.0.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no {name}")).1
    }
}

/// Three parameters of the golden shapes: [4, 6], [6, 6] and [6].
const ARCH: &str = "block plain(x) { x + linear w (x, dim) }
arch tiny { vocab 4  dim 6  norm_eps 1e-5  init lingua  layers 1 of plain  head tied }";

#[test]
fn adamw_with_a_factor_for_each_parameter() {
    quiet();
    let (case, params) = (OptimizerCase::read("adamw_groups"), &values()["adamw_groups"]["params"]);
    let graph = arch(ARCH, "tiny").graph;
    let shapes: Vec<&[i64]> = graph.params().iter().map(|param| param.shape.as_slice()).collect();
    assert_eq!(shapes, [&[4, 6][..], &[6, 6], &[6]]);
    let number = |value: &Value| decimal(&value.to_string());
    let mut options = train_options(Loss::CROSS_ENTROPY);
    options.optimizer.beta1 = number(&params["beta1"]);
    options.optimizer.beta2 = number(&params["beta2"]);
    options.optimizer.eps = number(&params["eps"]);
    options.optimizer.weight_decay = number(&params["weight_decay"]);
    options.optimizer.clip = None;
    let groups = params["groups"].as_array().unwrap();
    options.updates = groups
        .iter()
        .map(|group| ParamUpdate {
            lr_factor: number(&group["lr_multiplier"]),
            decay_factor: number(&group["wd_multiplier"]),
            ..ParamUpdate::PLAIN
        })
        .collect();
    let lr = params["lr"].as_f64().unwrap();
    for (machine, within) in [(FAST, 1e-6), (PLAIN, 1e-6), (DOUBLE, 1e-7)] {
        let trainer = Trainer::new(plans::train(&graph, &options), machine).unwrap();
        let start =
            (0..3).map(|n| case.get(&format!("in/w{n}")).to_kind(machine.kind).copy()).collect();
        let paths = graph.params().iter().map(|param| param.path.clone()).collect();
        let mut weights = Weights::new(paths, start);
        let mut moments = Moments::zeros(&weights, &options.updates).unwrap();
        for step in 0..5 {
            let gradients: Vec<Tensor> = (0..3)
                .map(|n| case.get(&format!("in/grads{n}")).get(step).to_kind(machine.kind))
                .collect();
            trainer.update(&mut weights, &mut moments, &gradients, lr, step + 1).unwrap();
            for (n, weight) in weights.tensors.iter().enumerate() {
                let off = relative(weight, &case.get(&format!("out/w{n}")).get(step));
                assert!(off <= within, "{machine:?} step {step} w{n}: {off}");
            }
        }
    }
}

fn close(got: &Tensor, want: &Tensor, within: f64, what: &str) {
    let off = relative(got, want);
    assert!(off <= within, "{what}: {off}");
}

fn bits(tensor: &Tensor) -> Vec<u32> {
    let values = Vec::<f32>::try_from(tensor.reshape([-1])).unwrap();
    values.into_iter().map(f32::to_bits).collect()
}

/// In f32 the iterations amplify rounding: the trajectories stay within 2e-5 of those in f64, and in f64 within the
/// rounding of the file. On every path.
#[test]
fn muon_follows_the_published_trajectories() {
    quiet();
    let values = values();
    let cases = values["muon"].as_array().unwrap();
    assert_eq!(cases.len(), 3);
    for golden in cases {
        let (name, params) = (golden["name"].as_str().unwrap(), &golden["params"]);
        assert_eq!(params["ns_steps"], 5);
        let case = OptimizerCase::read(name);
        let number = |name: &str| params[name].as_f64().unwrap();
        let options = Muon {
            momentum: number("momentum"),
            nesterov: params["nesterov"].as_bool().unwrap(),
            scale: MuonScale::named(params["adjust"].as_str().unwrap()).unwrap(),
            decay: number("weight_decay"),
            lr: number("lr"),
        };
        let fused = path::choose(Kind::Float, Device::Cpu);
        let plain = Path::Reference(Reason::Asked);
        let one = Tensor::from(1.0f64);
        for (kind, path, within) in
            [(Kind::Float, fused, 2e-5), (Kind::Float, plain, 2e-5), (Kind::Double, plain, 1e-7)]
        {
            let (w, m) =
                (case.get("in/w").to_kind(kind), case.get("in/w").zeros_like().to_kind(kind));
            let w = w.copy();
            for step in 0..5 {
                let g = case.get("in/grads").get(step).to_kind(kind);
                let before = w.copy();
                let update = Update { p: &w, g: &g, m: &m, coefficient: &one };
                let _in_place = muon(path, update, options).unwrap();
                let what = format!("{name} {kind:?} {path} step {step}");
                close(&w, &case.get("out/w").get(step), within, &what);
                close(&m, &case.get("out/momentum").get(step), within.min(1e-6), &what);
                let factor = options.lr * options.scale.factor(w.size()[0], w.size()[1]);
                let x = (before * (1.0 - options.lr * options.decay) - &w) / factor;
                // The difference of two weights loses digits.
                close(&x, &case.get("out/orthogonal").get(step), 30.0 * within, &what);
            }
        }
    }
}

/// Several matrices in one parameter are updated one by one, on any number of threads with equal bits.
#[test]
fn muon_updates_several_matrices_with_equal_bits_on_any_number_of_threads() {
    let options =
        Muon { momentum: 0.95, nesterov: true, scale: MuonScale::Moonshot, decay: 0.1, lr: 0.02 };
    let path = path::choose(Kind::Float, Device::Cpu);
    let coefficient = Tensor::from(0.5f64);
    for shape in [[3, 40, 24], [2, 130, 300], [1, 257, 257]] {
        tch::manual_seed(3);
        let [start, g] = [0, 1].map(|_| Tensor::randn(shape, (Kind::Float, Device::Cpu)));
        let updated = |start: &Tensor, g: &Tensor| {
            let (p, m) = (start.copy(), start.zeros_like());
            for _ in 0..2 {
                let update = Update { p: &p, g, m: &m, coefficient: &coefficient };
                let _in_place = muon(path, update, options).unwrap();
            }
            p
        };
        quiet();
        let one = updated(&start, &g);
        for n in 0..shape[0] {
            assert_eq!(
                bits(&updated(&start.get(n), &g.get(n))),
                bits(&one.get(n)),
                "{shape:?} {n}"
            );
        }
        for threads in [2, 3] {
            tch::set_num_threads(threads);
            assert_eq!(bits(&updated(&start, &g)), bits(&one), "{shape:?} {threads} threads");
        }
        quiet();
    }
}
