//! Every scan with published numbers (`tests/golden/mixers`): result, states, gradients, in one piece and in several, on
//! every path; strong decays; equal bits on any number of threads.

use std::path::PathBuf;

use compiler::op::ScanKind;
use runtime::kernels::path::{self, Path, Reason};
use runtime::kernels::scan::{self, Scanned, Settings};
use tch::{Device, Kind, Tensor};

use super::support::{furthest, quiet};

struct ScanCase {
    scan: ScanKind,
    tensors: Vec<(String, Tensor)>,
    split: i64,
    tolerance: f64,
}

fn cases() -> Vec<ScanCase> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/mixers");
    let cases = ScanKind::ALL.iter().filter_map(|scan| {
        let path = folder.join(format!("{}.safetensors", scan.definition().name));
        let bytes = std::fs::read(&path).ok()?;
        let (_, metadata) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
        let metadata = metadata.metadata().as_ref().unwrap();
        assert!(metadata.contains_key("licence") && metadata.contains_key("source"), "{path:?}");
        Some(ScanCase {
            scan: *scan,
            tensors: Tensor::read_safetensors(&path).unwrap(),
            split: metadata["split"].parse().unwrap(),
            tolerance: metadata["tolerance"].parse().unwrap(),
        })
    });
    let cases: Vec<ScanCase> = cases.collect();
    let files = std::fs::read_dir(&folder).unwrap().filter(|file| {
        let name = file.as_ref().unwrap().file_name();
        name.to_string_lossy().ends_with(".safetensors")
    });
    assert_eq!(files.count(), cases.len(), "a file without the name of a scan");
    cases
}

impl ScanCase {
    fn name(&self) -> &'static str {
        self.scan.definition().name
    }

    fn get(&self, name: &str) -> &Tensor {
        let entry = self.tensors.iter().find(|(known, _)| known == name);
        &entry.unwrap_or_else(|| panic!("{} has no {name}", self.name())).1
    }

    fn operands(&self, kind: Kind) -> Vec<Tensor> {
        let names = self.scan.definition().operands.iter();
        names.map(|name| self.get(&format!("in/{name}")).to_kind(kind)).collect()
    }

    fn forward(&self, path: Path, x: &[Tensor], state: Option<&Tensor>) -> Scanned {
        let x: Vec<&Tensor> = x.iter().collect();
        scan::forward(self.scan, path, &x, state, Settings::USUAL).unwrap()
    }

    fn backward(&self, path: Path, dy: &Tensor, x: &[Tensor]) -> Vec<Tensor> {
        let x: Vec<&Tensor> = x.iter().collect();
        scan::backward(self.scan, path, dy, &x, Settings::USUAL).unwrap()
    }

    /// Compares with the published numbers, by the largest of them.
    #[track_caller]
    fn close(&self, got: &Tensor, name: &str, kind: Kind) {
        let gold = self.get(name);
        assert_eq!(got.size(), gold.size(), "{}: {name}", self.name());
        let error = furthest(got, gold) / gold.abs().max().double_value(&[]);
        // In f64 only the rounding of the file is left, of its numbers and of its inputs.
        let within = if kind == Kind::Double { 1e-6 } else { self.tolerance };
        assert!(error <= within, "{}, {name} in {kind:?}: {error:e}", self.name());
    }
}

const PLAIN: Path = Path::Reference(Reason::Asked);

fn fast() -> Path {
    path::choose(Kind::Float, Device::Cpu)
}

/// The operands that run over time, cut; parameters are whole.
fn part(x: &[Tensor], from: i64, count: i64) -> Vec<Tensor> {
    x.iter().map(|x| if x.dim() > 2 { x.narrow(1, from, count) } else { x.copy() }).collect()
}

#[test]
fn published_numbers_come_out_on_every_path() {
    quiet();
    assert!(matches!(fast(), Path::Fused(_)));
    for case in cases() {
        for (path, kind) in [(fast(), Kind::Float), (PLAIN, Kind::Float), (PLAIN, Kind::Double)] {
            let x = case.operands(kind);
            let Scanned { y, state } = case.forward(path, &x, None);
            case.close(&y, "out/y", kind);
            case.close(&state, "state/S", kind);
            let gradients = case.backward(path, &case.get("cot/y").to_kind(kind), &x);
            for (name, gradient) in case.scan.definition().operands.iter().zip(&gradients) {
                case.close(gradient, &format!("grad/{name}"), kind);
            }
        }
    }
}

#[test]
fn pieces_and_single_tokens_give_the_published_numbers() {
    quiet();
    for case in cases() {
        for (path, kind) in [(fast(), Kind::Float), (PLAIN, Kind::Double)] {
            let x = case.operands(kind);
            let time = x[0].size()[1];
            let first = case.forward(path, &part(&x, 0, case.split), None);
            case.close(&first.state, "split/S", kind);
            let rest = part(&x, case.split, time - case.split);
            let second = case.forward(path, &rest, Some(&first.state));
            case.close(&Tensor::cat(&[&first.y, &second.y], 1), "out/y", kind);
            case.close(&second.state, "state/S", kind);
            // Decoding: one token at a time.
            let (mut state, mut y) = (None, Vec::new());
            for t in 0..time {
                let one = case.forward(path, &part(&x, t, 1), state.as_ref());
                y.push(one.y);
                state = Some(one.state);
            }
            case.close(&Tensor::cat(&y, 1), "out/y", kind);
            case.close(&state.unwrap(), "state/S", kind);
        }
    }
}

/// With gates a thousand times as strong, up to a decay of exp(−1000) and beyond, the kernel agrees with f64.
#[test]
fn strong_decays_lose_nothing() {
    quiet();
    for case in cases() {
        let operands = case.scan.definition().operands;
        let gate = ["g", "a"].iter().find_map(|gate| operands.iter().position(|name| name == gate));
        for strength in [0.0, 1e-3, 30.0, 1e3] {
            let results = |path, kind| {
                let mut x = case.operands(kind);
                let gate = gate.expect("a gate called g, or a decay rate called a");
                x[gate] = &x[gate] * strength;
                let Scanned { y, state } = case.forward(path, &x, None);
                let mut all = vec![y, state];
                all.extend(case.backward(path, &case.get("cot/y").to_kind(kind), &x));
                all
            };
            let (ours, exact) = (results(fast(), Kind::Float), results(PLAIN, Kind::Double));
            for (i, (ours, exact)) in ours.iter().zip(&exact).enumerate() {
                let size = exact.abs().max().double_value(&[]).max(1.0);
                let error = furthest(ours, exact) / size;
                assert!(error < 1e-5, "{}, {i} at {strength}: {error:e}", case.name());
            }
        }
    }
}

#[test]
fn threads_change_no_bit() {
    for case in cases() {
        let x = case.operands(Kind::Float);
        let runs = [1, 2, 3].map(|threads| {
            tch::set_num_threads(threads);
            let Scanned { y, state } = case.forward(fast(), &x, None);
            let mut all = vec![y, state];
            all.extend(case.backward(fast(), case.get("cot/y"), &x));
            all
        });
        quiet();
        for (i, results) in runs[0].iter().enumerate() {
            assert!(runs.iter().all(|run| run[i].equal(results)), "{}, {i}", case.name());
        }
    }
}
