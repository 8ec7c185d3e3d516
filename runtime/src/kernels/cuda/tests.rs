//! Every launch of a training step, on a driver that records: kernels of all families, bf16 and f32, on tensors of the
//! CPU, used as if they were on a device. Nothing is computed; the arguments of each launch are checked.

use std::collections::{BTreeMap, BTreeSet};

use compiler::op::ScanKind;
use compiler::plan::{Precision, Processor, Sizes};
use compiler::plans;
use gpu::{Launched, Library, Target, Value};
use tch::{Device, Kind, Tensor};

use super::recorder::Recorder;
use super::*;
use crate::execute::{KernelRequest, Machine, Moments, Trainer};
use crate::selftest::models::{self, Family, Size};
use crate::weights::Weights;

mod steps;

const CPU: Machine =
    Machine { device: Device::Cpu, kind: Kind::Float, kernels: KernelRequest::FASTEST };

/// Work on a GPU that records, and its launches.
fn recorded<T>(major: u32, minor: u32, work: impl FnOnce() -> T) -> (T, Vec<Launched>) {
    let recorder = Recorder::new(major, minor);
    let result = work();
    (result, recorder.take())
}

/// A step of a model: the paths of its plans, and the launches.
fn step(family: Family, precision: Precision) -> (BTreeMap<(String, String), u64>, Vec<Launched>) {
    let graph = models::graph(family, Size::Small).unwrap();
    let options = models::options(precision, Processor::Gpu);
    recorded(9, 0, || {
        let trainer = Trainer::new(plans::train(&graph, &options), CPU).unwrap();
        let mut weights = Weights::init(&graph, 1).unwrap();
        let mut moments = Moments::zeros(&weights, &[]).unwrap();
        let Sizes { batch, time, past: _ } = Sizes { batch: 2, time: 70, past: 0 };
        let ids = || Tensor::randint(graph.vocab, [batch, time], (Kind::Int64, Device::Cpu));
        let sums = trainer.micro_batch(&weights, &ids(), &ids(), 1.0 / 140.0).unwrap();
        trainer.update_and_log(&mut weights, &mut moments, &sums, 1e-3, 1).unwrap();
        let paths = trainer.paths();
        paths.iter().map(|(k, p, n)| ((k.to_owned(), p.to_owned()), n)).collect()
    })
}

#[test]
fn every_kernel_of_a_step_is_launched() {
    let mut kernels = BTreeSet::new();
    for family in Family::ALL {
        for precision in [Precision::F32, Precision::Bf16] {
            let (paths, launched) = step(family, precision);
            for (kernel, path) in paths.keys() {
                // Attention is libtorch's on a GPU; on these tensors of the CPU it is our own.
                let theirs =
                    kernel.starts_with("attention") || path == "libtorch" || path == "view";
                let product = kernel.starts_with("linear");
                // A vocabulary of 258, and parameters of 2 elements, are no multiples of 16.
                let image = path.strip_suffix(", plain image").unwrap_or(path);
                let ours = image == "fused/cuda/sm_90a";
                assert!(
                    ours || theirs || product,
                    "{} {precision:?}: {kernel} {path}",
                    family.name()
                );
            }
            assert!(launched.iter().all(|one| one.target == Target::Sm90a));
            kernels.extend(launched.into_iter().map(|one| one.kernel));
        }
    }
    let all = Library::embedded().unwrap().manifest().kernels.iter().map(|k| k.name.as_str());
    let unused: BTreeSet<&str> = all.filter(|name| !kernels.contains(*name)).collect();
    assert_eq!(unused, BTreeSet::from(UNUSED), "compiled for nobody, or used now");
}

/// Kernels that no training step of these models launches.
const UNUSED: [&str; 0] = [];

#[test]
fn operands_are_passed_where_they_are() {
    let kind = (Kind::BFloat16, Device::Cpu);
    let packed = Tensor::zeros([2, 70, 3 * 128], kind);
    let x = packed.narrow(2, 128, 128); // a part of a packed projection
    let weight = Tensor::zeros([128], kind);
    let ((y, rstd), launched) = recorded(8, 0, || {
        norm::forward(launcher(Device::Cpu).unwrap(), &x, None, &weight, 1e-5).unwrap()
    });
    let at = |tensor: &Tensor| Value::Address(tensor.data_ptr() as u64);
    assert_eq!((y.size(), rstd.size(), y.kind()), (vec![2, 70, 128], vec![2, 70], Kind::BFloat16));
    let [launch] = launched.as_slice() else { panic!("{launched:?}") };
    let wanted = [
        at(&x),
        Value::Address(0),
        at(&weight),
        at(&y),
        at(&rstd),
        Value::I32(140),
        Value::I32(1),
        Value::I32(128),
        Value::I64(384),
        Value::I64(0),
        Value::F32(1e-5),
    ];
    assert_eq!(launch.values[..wanted.len()], wanted);
    assert!(launch.aligned && launch.target == Target::Sm80);
}

#[test]
fn a_scan_with_an_operand_in_f32_rounds_none() {
    let zeros = |kind| Tensor::zeros([1, 70, 2, 64], (kind, Device::Cpu));
    let (q, k, v) = (zeros(Kind::BFloat16), zeros(Kind::BFloat16), zeros(Kind::BFloat16));
    for kind in [Kind::BFloat16, Kind::Float] {
        let (scanned, launched) = recorded(9, 0, || {
            let x = [&q, &k, &v, &zeros(kind)];
            scan::forward(launcher(Device::Cpu).unwrap(), ScanKind::Gla, &x, None, None).unwrap()
        });
        assert_eq!((scanned.y.kind(), scanned.state.kind()), (kind, Kind::Float));
        let kernels: Vec<&str> = launched.iter().map(|one| one.kernel.as_str()).collect();
        assert_eq!(kernels, ["gla_scores", "gla_states", "gla_output"]);
    }
}

#[test]
fn a_scan_of_other_shapes_is_refused() {
    let zeros = |size: &[i64]| Tensor::zeros(size, (Kind::Float, Device::Cpu));
    let (q, v) = (zeros(&[1, 70, 2, 64]), zeros(&[1, 70, 2, 128]));
    let refused = |x: &[&Tensor]| {
        let (result, launched) = recorded(9, 0, || {
            scan::forward(launcher(Device::Cpu).unwrap(), ScanKind::Rwkv6, x, None, None)
        });
        assert!(launched.is_empty());
        result.unwrap_err().to_string()
    };
    assert_eq!(
        refused(&[&q, &q, &v, &q, &zeros(&[64])]),
        "a scan's u of shape [64], expected [H K]"
    );
    assert!(refused(&[&q, &q, &v, &q, &zeros(&[2, 32])]).contains("u of shape [2, 32]"));
    assert!(refused(&[&q, &q, &v, &q]).contains("takes 5 operands"));
    // Keys of 128 were not compiled for it.
    assert!(refused(&[&v, &v, &v, &v, &zeros(&[2, 128])]).contains("no CUDA kernel gla_scores"));
}

#[test]
fn a_view_that_begins_between_16_bytes_takes_the_plain_image() {
    let kind = (Kind::BFloat16, Device::Cpu);
    let packed = Tensor::zeros([2, 70, 256], kind);
    let weight = Tensor::zeros([128], kind);
    for (first, aligned) in [(8, true), (4, false)] {
        let x = packed.narrow(2, first, 128);
        let (_, launched) = recorded(9, 0, || {
            norm::forward(launcher(Device::Cpu).unwrap(), &x, None, &weight, 1e-5).unwrap()
        });
        assert_eq!(launched[0].aligned, aligned, "from channel {first}");
    }
}

#[test]
fn rows_are_found_in_any_layout() {
    let layout = |x: &Tensor| {
        let rows = Rows::from_tensor(x).unwrap();
        (rows.rows, rows.heads, rows.width, rows.row, rows.x.data_ptr() == x.data_ptr())
    };
    let x = Tensor::zeros([2, 5, 6, 8], (Kind::Float, Device::Cpu));
    assert_eq!(layout(&x), (60, 6, 8, 48, true));
    assert_eq!(layout(&x.flatten(2, 3)), (10, 1, 48, 48, true));
    assert_eq!(layout(&x.flatten(2, 3).narrow(2, 8, 16)), (10, 1, 16, 48, true));
    // Heads that are not adjacent, and tokens that are not equally far apart, are copied.
    assert_eq!(layout(&x.narrow(3, 0, 4)), (60, 6, 4, 24, false));
    assert_eq!(layout(&x.flatten(2, 3).narrow(1, 0, 3)), (6, 1, 48, 48, false));
    assert_eq!(layout(&x.transpose(1, 2)), (60, 5, 8, 40, false));
}
