//! Steps for a GPU on a driver that records: nothing is computed by our kernels, whose launches are checked.

use std::collections::{BTreeMap, BTreeSet};

use compiler::graph::Graph;
use compiler::kernel::{self, Kernel};
use compiler::op::Function;
use compiler::plan::{DType, Extent, Input, Precision, Processor, Value};
use compiler::plans;
use compiler::program::{Program, Std};
use gpu::{Constant, Launched, Value as Argument};
use tch::{Device, Kind, Tensor};

use super::{Choice, Executor, KernelRequest, Machine, Moments, Sums, Trainer, choose, widen};
use crate::kernels::cuda::{self, recorder::Recorder};
use crate::kernels::loss::Terms;
use crate::kernels::pointwise;
use crate::selftest::models::{self, Family, Size};
use crate::weights::Weights;

const CPU: Machine =
    Machine { device: Device::Cpu, kind: Kind::Float, kernels: KernelRequest::FASTEST };

/// Work as on a GPU.
fn recorded<T>(work: impl FnOnce(&Recorder) -> T) -> T {
    work(&Recorder::new(9, 0))
}

/// A model and its optimizer in the middle of a step.
struct Model {
    trainer: Trainer,
    weights: Weights,
    moments: Moments,
    vocab: i64,
}

impl Model {
    fn new(graph: &Graph, precision: Precision) -> Self {
        let options = models::options(precision, Processor::Gpu);
        let trainer = Trainer::new(plans::train(graph, &options), CPU).unwrap();
        let weights = Weights::init(graph, 1).unwrap();
        let moments = Moments::zeros(&weights, &[]).unwrap();
        Self { trainer, weights, moments, vocab: graph.vocab }
    }

    fn for_family(family: Family, precision: Precision) -> Self {
        Self::new(&models::graph(family, Size::Small).unwrap(), precision)
    }

    fn micro_batch(&self) -> Sums {
        let ids = || Tensor::randint(self.vocab, [2, 70], (Kind::Int64, Device::Cpu));
        self.trainer.micro_batch(&self.weights, &ids(), &ids(), 1.0 / 140.0).unwrap()
    }

    fn update(&mut self, gradients: &[Tensor]) -> Result<f64, super::ExecuteError> {
        self.trainer.update(&mut self.weights, &mut self.moments, gradients, 1e-3, 1)
    }

    /// The parameters that a micro-batch reads in bf16.
    fn rounded(&self) -> BTreeSet<usize> {
        let inputs = self.trainer.micro_plan().inputs.iter();
        let rounded = inputs.filter_map(|(input, _)| {
            if let Input::Rounded(param) = input { Some(param.0 as usize) } else { None }
        });
        rounded.collect()
    }
}

fn address(tensor: &Tensor) -> Argument {
    Argument::Address(tensor.data_ptr() as u64)
}

/// The launches of AdamW: COPY, and the copy's address by the parameter's.
fn adamw(launched: &[Launched]) -> BTreeMap<u64, (Constant, Argument)> {
    let launches = launched.iter().filter(|one| one.kernel == "adamw");
    let entry = |one: &Launched| {
        let [Argument::Address(p), _, _, _, copy, ..] = one.values[..] else { panic!("{one:?}") };
        (p, (one.compiled.constants["COPY"].clone(), copy))
    };
    launches.map(entry).collect()
}

#[test]
fn an_update_writes_the_bf16_copies_that_the_next_micro_batch_reads() {
    // Mamba2 has parameters that only f32 parts read.
    for family in [Family::Llama, Family::Mamba2] {
        recorded(|recorder| {
            let mut model = Model::for_family(family, Precision::Bf16);
            let sums = model.micro_batch();
            recorder.take();
            model.update(&sums.gradients).unwrap();
            let launched = adamw(&recorder.take());
            let rounded = model.rounded();
            assert_eq!(launched.len(), model.weights.tensors.len());
            for (n, p) in model.weights.tensors.iter().enumerate() {
                let wanted = match rounded.contains(&n) {
                    // No cast: the tensor that is read next is the one that was written.
                    true => (Constant::Int(1), address(&model.weights.rounded(n).unwrap())),
                    false => (Constant::Int(0), Argument::Address(0)),
                };
                assert_eq!(launched[&(p.data_ptr() as u64)], wanted, "{}", model.weights.paths[n]);
            }
            let written: Vec<Argument> =
                rounded.iter().map(|n| address(&model.weights.rounded(*n).unwrap())).collect();
            let sums = model.micro_batch();
            model.update(&sums.gradients).unwrap();
            let again: Vec<Argument> =
                rounded.iter().map(|n| address(&model.weights.rounded(*n).unwrap())).collect();
            assert_eq!(again, written, "memory is used again");
        });
    }
    let some = |family| !Model::for_family(family, Precision::Bf16).rounded().is_empty();
    assert!(some(Family::Llama) && some(Family::Mamba2));
}

#[test]
fn an_update_in_f32_copies_nothing() {
    recorded(|recorder| {
        let mut model = Model::for_family(Family::Llama, Precision::F32);
        let sums = model.micro_batch();
        model.update(&sums.gradients).unwrap();
        let launched = adamw(&recorder.take());
        assert!(!launched.is_empty());
        for (copy, _) in launched.values() {
            assert_eq!(*copy, Constant::Int(0));
        }
    });
}

#[test]
fn a_copy_is_known_only_after_an_update_that_wrote_it() {
    recorded(|_| {
        let mut model = Model::for_family(Family::Llama, Precision::Bf16);
        let first = *model.rounded().first().unwrap();
        let sums = model.micro_batch();
        model.update(&sums.gradients).unwrap();
        assert!(model.weights.known_rounded(first).is_some());
        // Something else wrote the weights.
        model.weights.changed();
        assert!(model.weights.known_rounded(first).is_none());
        model.update(&sums.gradients).unwrap();
        assert!(model.weights.known_rounded(first).is_some());
        // An update that fails may have written some of them.
        model.update(&sums.gradients[1..]).unwrap_err();
        assert!(model.weights.known_rounded(first).is_none());
    });
}

#[test]
fn the_cpus_update_leaves_copies_to_be_made() {
    let mut model = Model::for_family(Family::Llama, Precision::Bf16);
    let first = *model.rounded().first().unwrap();
    let sums = model.micro_batch();
    assert!(model.weights.known_rounded(first).is_some());
    model.update(&sums.gradients).unwrap();
    assert!(model.weights.known_rounded(first).is_none());
    let cast = model.weights.tensors[first].to_kind(Kind::BFloat16);
    assert_eq!(model.weights.rounded(first).unwrap(), cast);
}

#[test]
fn functions_of_one_number_are_single_operations_on_a_gpu() {
    let value = |dtype| Value {
        name: "x".into(),
        dims: vec![Extent::Batch, Extent::Time, Extent::Fixed(8)],
        dtype,
    };
    let (f32, bf16) = (value(DType::F32), value(DType::Bf16));
    let gpu = Machine { device: Device::Cuda(0), ..CPU };
    let double = Machine { kind: Kind::Double, ..gpu };
    // libtorch rounds between the operations of these.
    let several = [Function::Sigmoid, Function::Tanh, Function::Reciprocal];
    for function in Function::ALL.iter().copied() {
        let definition = function.definition();
        let grad = kernel::PointwiseGrad { function: definition }.into();
        let forward = kernel::Pointwise { function: definition }.into();
        for x in [&f32, &bf16] {
            let forward = |machine| choose(&forward, &[x], machine, false);
            let backward = |machine| choose(&grad, &[x, x], machine, false);
            let single = match several.contains(&function) {
                true => Choice::Library,
                false => Choice::SingleOperation,
            };
            let named = format!("{function:?} of {:?}", x.dtype);
            assert_eq!(
                (forward(CPU), backward(CPU)),
                (Choice::Library, Choice::Library),
                "{named}"
            );
            assert_eq!((forward(gpu), backward(gpu)), (Choice::SingleOperation, single), "{named}");
            assert_eq!((forward(double), backward(double)), (Choice::Library, Choice::Library));
        }
        // An f32 operand widens the other.
        assert_eq!(choose(&grad, &[&f32, &bf16], gpu, false), Choice::Library);
        assert_eq!(choose(&grad, &[&bf16, &f32], gpu, false), Choice::Library);
    }
}

/// The kernels of a bf16 micro-batch whose operands are all bf16 and get copies in f32.
fn widened(family: Family) -> BTreeSet<String> {
    let graph = models::graph(family, Size::Small).unwrap();
    let plan = plans::train(&graph, &models::options(Precision::Bf16, Processor::Gpu)).micro;
    let executor = Executor::new(plan, CPU).unwrap();
    let steps = executor.plan.steps.iter().zip(&executor.choices);
    let widened = steps.filter(|(step, choice)| {
        let any = |dtype| {
            step.inputs.iter().any(|id| executor.plan.value(*id).is_some_and(|v| v.dtype == dtype))
        };
        any(DType::Bf16)
            && !any(DType::F32)
            && widen::widens_bf16(&step.kernel, **choice, any(DType::F32))
    });
    let named = widened.map(|(step, _)| {
        let name =
            |function| Function::from_definition(function).map(|function| format!("{function:?}"));
        let named = if let Kernel::Pointwise(k) = &step.kernel {
            name(k.function)
        } else if let Kernel::PointwiseGrad(k) = &step.kernel {
            name(k.function).map(|name| name + "'")
        } else {
            None
        };
        named.unwrap_or_else(|| step.kernel.name().to_owned())
    });
    named.collect()
}

#[test]
fn a_step_on_a_gpu_widens_no_function_of_one_number() {
    for family in Family::ALL {
        let on_cpu = widened(family);
        let on_gpu = recorded(|_| widened(family));
        assert!(!on_cpu.is_empty());
        let functions = |names: &BTreeSet<String>| -> Vec<String> {
            let is =
                |name: &&String| Function::ALL.iter().any(|f| name.starts_with(&format!("{f:?}")));
            names.iter().filter(is).cloned().collect()
        };
        assert_eq!(functions(&on_gpu), Vec::<String>::new(), "{}", family.name());
        if family == Family::Gla {
            assert_eq!(functions(&on_cpu), ["LogSigmoid", "LogSigmoid'"]);
        }
    }
}

#[test]
fn single_gradients_are_the_composed_ones() {
    let x = Tensor::linspace(-90.0, 90.0, 4001, (Kind::Float, Device::Cpu));
    let dy = Tensor::linspace(-3.0, 2.0, 4001, (Kind::Float, Device::Cpu));
    let mut single = 0;
    for function in Function::ALL.iter().copied() {
        let gradient = pointwise::single_gradient(function);
        assert_eq!(gradient.is_some(), function.definition().single_gradient, "{function:?}");
        let Some(gradient) = gradient else { continue };
        single += 1;
        let y = pointwise::apply(function, &x).unwrap();
        let kept = if function == Function::Exp { &y } else { &x };
        let wide = |x: &Tensor| x.to_kind(Kind::Double);
        let exact = pointwise::gradient(function, &wide(&dy), &wide(kept)).unwrap();
        let computed = gradient(&dy, kept).unwrap();
        // Gelu's slope crosses 0, so digits of its gradient cancel.
        let gelu = matches!(function, Function::GeluErf | Function::GeluTanh);
        let size = if gelu { exact.abs() + 1.0 } else { exact.abs() + 1e-30 };
        let error = (wide(&computed) - &exact).abs() / size;
        // Farther from 0, exp overflows f32.
        let most = error.masked_select(&x.abs().le(80.0)).max().double_value(&[]);
        assert!(most <= 4e-6, "{function:?}: {most:e}");
        // Of bf16 operands: computed in f32, rounded once.
        let [dy, kept] = [&dy, kept].map(|x| x.to_kind(Kind::BFloat16));
        let once = gradient(&dy.to_kind(Kind::Float), &kept.to_kind(Kind::Float)).unwrap();
        let narrow = gradient(&dy, &kept).unwrap();
        assert_eq!(narrow.kind(), Kind::BFloat16, "{function:?}");
        let equal = narrow.eq_tensor(&once.to_kind(Kind::BFloat16)).logical_or(&narrow.isnan());
        // libtorch's gelu for bf16 on a CPU has an erf and a tanh of its own.
        assert!(gelu || bool::try_from(equal.all()).unwrap(), "{function:?}");
    }
    assert_eq!(single, 8);
}

#[test]
fn targets_may_begin_anywhere() {
    let logits = Tensor::zeros([70, 64], (Kind::BFloat16, Device::Cpu));
    let targets = Tensor::zeros([71], (Kind::Int64, Device::Cpu));
    recorded(|recorder| {
        for first in [0, 1] {
            let launcher = cuda::launcher(Device::Cpu).unwrap();
            let targets = targets.narrow(0, first, 70);
            let terms = Terms { nll_square: 0.0, z_loss: 0.0 };
            cuda::loss::forward(launcher, &logits, &targets, terms).unwrap();
            let launched = recorder.take();
            let entropy = launched.iter().find(|one| one.kernel == "cross_entropy").unwrap();
            assert!(entropy.aligned, "targets from {first}");
        }
    });
}

#[test]
fn plain_images_are_named_beside_their_kernels() {
    // Rows of 24 are no multiple of 16.
    let text = |dim| {
        format!(
            "arch a {{ vocab 64 dim {dim} norm_eps 1e-5 init lingua
             layers 1 of decoder {{ mixer attention {{ heads 1 }} mlp swiglu {{ hidden 64 }} }} }}"
        )
    };
    let plain = |dim| {
        let program = Program::new([("a.canon".to_owned(), text(dim))], Std::Embedded);
        let graph = program.compile("a.canon", "a").0.unwrap().graph;
        recorded(|recorder| {
            let model = Model::new(&graph, Precision::F32);
            model.micro_batch();
            model.micro_batch();
            let any = recorder.take().iter().any(|one| !one.aligned);
            let paths = model.trainer.paths();
            let norms = paths.iter().filter(|(kernel, _, _)| *kernel == "rms_norm");
            let norms: Vec<(String, u64)> =
                norms.map(|(_, path, times)| (path.to_owned(), times)).collect();
            (any, norms)
        })
    };
    let named = |path: &str| vec![(path.to_owned(), 6)];
    assert_eq!(plain(32), (false, named("fused/cuda/sm_90a")));
    assert_eq!(plain(24), (true, named("fused/cuda/sm_90a, plain image")));
}
