//! Updates of parameters in groups, against independent trajectories (`tests/golden/optimizers`).

use std::path::PathBuf;

use compiler::plan::{Loss, ParamUpdate};
use compiler::plans;
use runtime::execute::{Moments, Trainer};
use runtime::weights::Weights;
use serde_json::Value;
use tch::Tensor;

use super::support::{DOUBLE, FAST, PLAIN, arch, decimal, quiet, relative, train_options};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/optimizers").join(name)
}

fn values() -> Value {
    serde_json::from_slice(&std::fs::read(golden("values.json")).unwrap()).unwrap()
}

struct Case(Vec<(String, Tensor)>);

impl Case {
    fn read(name: &str) -> Case {
        Case(Tensor::read_safetensors(golden(&format!("{name}.safetensors"))).unwrap())
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
    let (case, params) = (Case::read("adamw_groups"), &values()["adamw_groups"]["params"]);
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
            lr: number(&group["lr_multiplier"]),
            decay: number(&group["wd_multiplier"]),
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
