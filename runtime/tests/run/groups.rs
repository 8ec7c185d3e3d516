//! Groups of parameters in a run: what is frozen stays, what has no moments is stored without them, and all bits are equal
//! however the run is interrupted.

use compiler::plan::Kernel;
use records::job::Job;
use records::verify::{Inputs, Remake, verify};
use safetensors::SafeTensors;

use super::support::*;

const LAST: u64 = 8;

pub(crate) const GROUPS: (&str, &str) = (
    "lr = 0.01",
    "lr = 0.01\nfrozen = [\"embed\", \"**.wq\"]\nlr_multipliers = [[\":norm\", 0.5]]\nweight_decay_multipliers = [[\"head.output\", 2]]",
);

/// A tensor of a checkpoint: its shape and its bytes.
fn tensor(folder: &Folder, step: u64, file: &str, path: &str) -> (Vec<usize>, Vec<u8>) {
    let bytes = bytes(&folder.checkpoint(step).join(file));
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let view = file.tensor(path).unwrap();
    (view.shape().to_vec(), view.data().to_vec())
}

#[test]
fn a_frozen_parameter_keeps_its_values_and_has_no_moments() {
    let experiment = depo(&[GROUPS]);
    let folder = Folder::finished(&experiment);
    let weights = |path: &str, step| tensor(&folder, step, "weights.safetensors", path).1;
    // The last two checkpoints are kept.
    for path in ["embed", "layers.0.mixer.wq", "layers.1.mixer.wq"] {
        assert_eq!(weights(path, 6), weights(path, LAST), "{path}");
        for file in ["first_moment.safetensors", "second_moment.safetensors"] {
            assert_eq!(tensor(&folder, LAST, file, path), (vec![0], Vec::new()), "{path} {file}");
        }
    }
    assert_ne!(weights("layers.0.mixer.wk", 6), weights("layers.0.mixer.wk", LAST));
    // The run's own check of every file, of the moments before the first step, and of the weights' start.
    let report = verify(&folder.path(), Inputs::default(), Remake::Every).unwrap();
    assert_eq!(report.broken, Vec::<String>::new());
    // The plan computes no gradient of what is frozen.
    let plain = job(&depo(&[]), None).unwrap();
    let frozen = job(&experiment, None).unwrap();
    let gradients = |job: &Job| {
        let steps = job.plans.micro.steps.iter();
        steps.filter(|s| matches!(s.kernel, Kernel::LinearGradWeight(_))).count()
    };
    assert_eq!(gradients(&plain) - gradients(&frozen), 2);
}

pub(crate) const MUON: (&str, &str) = ("lr = 0.01", "kind = \"muon\"\nlr = 0.01");

/// Matrices of layers have one moment, the rest two; the estimate counts them.
#[test]
fn muon_trains_with_one_moment_and_keeps_the_bits_of_an_interrupted_run() {
    let experiment = depo(&[MUON]);
    let straight = Folder::finished(&experiment);
    let shape = |file: &str, path: &str| tensor(&straight, LAST, file, path).0;
    assert_eq!(shape("first_moment.safetensors", "layers.0.mixer.wq"), [16, 16]);
    assert_eq!(shape("second_moment.safetensors", "layers.0.mixer.wq"), [0]);
    assert_eq!(shape("second_moment.safetensors", "embed"), [16, 16]);
    let report = verify(&straight.path(), Inputs::default(), Remake::Every).unwrap();
    assert_eq!(report.broken, Vec::<String>::new());
    let cut = Folder::new();
    for step in [1, 4, 6] {
        cut.stop_at(&experiment, step);
    }
    cut.finish(&experiment);
    assert_eq!(differing(&straight.bits(LAST), &cut.bits(LAST)), Vec::<String>::new());
    let [plain, muon] = [depo(&[]), experiment].map(|experiment| job(&experiment, None).unwrap());
    let by_muon = muon.slots().into_iter().filter(|slot| slot.moments == 1);
    let elements: usize = by_muon.map(|slot| slot.elements()).sum();
    assert!(elements > 0);
    let state = |job: &Job| records::job::estimate(job).state_bytes;
    assert_eq!(state(&plain) - state(&muon), 4 * elements as u64);
}

#[test]
fn groups_keep_the_bits_of_an_interrupted_run() {
    let experiment = depo(&[GROUPS]);
    let straight = Folder::finished(&experiment);
    let cut = Folder::new();
    for step in [1, 4, 6] {
        cut.stop_at(&experiment, step);
    }
    cut.finish(&experiment);
    assert_eq!(differing(&straight.bits(LAST), &cut.bits(LAST)), Vec::<String>::new());
    let plain = Folder::finished(&depo(&[]));
    assert!(!differing(&straight.bits(LAST), &plain.bits(LAST)).is_empty());
}
