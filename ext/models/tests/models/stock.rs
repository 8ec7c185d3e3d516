//! Imported classes of `transformers` give the logits of those classes: in f32 within rounding, in f64 up to RoPE's angles,
//! which are f32 in both programs. The folder itself is as good a `--weights` as the imported file.

use std::path::{Path, PathBuf};

use compiler::plan::{Loss, Options};
use interop::import::{Request, read};
use interop::source::ArchWeights;
use runtime::execute::Machine;
use runtime::forward;
use runtime::weights::Weights;
use tch::{Kind, Tensor};

use super::support::{DOUBLE, FAST, PLAIN};
use ::support::golden::folders;

/// The largest difference of logits, relative to the largest logit.
const F32: f64 = 1e-5;
const F64: f64 = 1e-6;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/stock").join(name)
}

#[test]
fn imported_models_give_the_logits_of_their_classes() {
    for name in &folders("stock") {
        let folder = golden(name);
        let request =
            Request { source: &folder, name: Some("model"), devices: None, weights: true };
        let imported = read(&request).unwrap_or_else(|error| panic!("{name}: {error}"));
        let scratch = tempfile::tempdir().unwrap();
        let ours = scratch.path().join("ours");
        imported.write(&ours).unwrap();
        let expected = Tensor::read_safetensors(folder.join("expected.safetensors")).unwrap();
        let expected = |wanted: &str| {
            let (_, tensor) = expected.iter().find(|(name, _)| name == wanted).unwrap();
            tensor.shallow_clone()
        };
        let compiled = &imported.compiled;
        let logits = |path: &Path, machine: Machine| {
            let source =
                ArchWeights::open(compiled, path).unwrap_or_else(|e| panic!("{name}: {e}"));
            let graph = &compiled.graph;
            let weights = Weights::read(graph, &source, machine.device, machine.kind).unwrap();
            let request = forward::Request {
                graph,
                weights: &weights,
                tokens: &expected("tokens"),
                targets: None,
                gradients: false,
                loss: Loss::CROSS_ENTROPY,
                options: Options::default(),
                machine,
            };
            forward::forward(&request).unwrap().logits
        };
        for (machine, wanted, allowed) in
            [(PLAIN, "logits", F32), (FAST, "logits", F32), (DOUBLE, "logits64", F64)]
        {
            let wanted = expected(wanted);
            let got = logits(&ours, machine);
            assert_eq!(got.size(), wanted.size(), "{name}");
            let off = (got.to_kind(Kind::Double) - wanted.to_kind(Kind::Double)).abs().max();
            let off = off.double_value(&[]) / wanted.abs().max().double_value(&[]);
            assert!(off <= allowed, "{name} {machine:?}: off by {off:e}");
            assert!(got == logits(&folder, machine), "{name}");
        }
    }
}
