//! Operands and results of the CPU kernels, for the tests that run the GPU kernels in an interpreter.
//!
//! The committed gpu/tests/cases.safetensors holds what the fused CPU kernels compute; CANONC_UPDATE_GPU_CASES=1 writes
//! it. Operands are exact in bf16, so that one file serves both dtypes.

use compiler::op::ScanKind;
use compiler::plan::{Activation, Gate, RopeLayout, RopeScaling};
use runtime::kernels::path::{self, Path};
use runtime::kernels::{
    canon, gated_norm, l2_norm, linear, loss, norm, rope, scan, swiglu, update,
};
use tch::{Device, Kind, Tensor};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../gpu/tests/cases.safetensors");

/// How far another CPU's rounding may be from the committed numbers, relative to a tensor's largest element.
const WITHIN: f64 = 2e-6;
/// The same for scans, which add up their roundings over time.
const SCANS_WITHIN: f64 = 1e-5;

/// The tensors of one case are named `case/tensor`.
struct Cases {
    path: Path,
    all: Vec<(String, Tensor)>,
}

impl Cases {
    fn add<const N: usize>(&mut self, case: &str, tensors: [(&str, &Tensor); N]) {
        for (name, tensor) in tensors {
            self.all.push((format!("{case}/{name}"), tensor.contiguous()));
        }
    }

    fn each(&mut self, case: &str, name: &str, tensors: &[Tensor]) {
        for (n, tensor) in tensors.iter().enumerate() {
            self.add(case, [(&*format!("{name}{n}"), tensor)]);
        }
    }

    fn flag(&mut self, case: &str, name: &str, value: i64) {
        self.add(case, [(name, &Tensor::from_slice(&[value]))]);
    }
}

/// Numbers in −4..4 with 8 significant bits, so exact in bf16.
fn numbers(name: &str, size: &[i64]) -> Tensor {
    let mut state = name.bytes().fold(17u64, |s, b| s.wrapping_mul(131).wrapping_add(b.into()));
    let mut draw = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) & 127) as i32 - 64
    };
    let count: i64 = size.iter().product();
    let values: Vec<f32> = (0..count).map(|_| (draw() + draw() + draw()) as f32 / 64.0).collect();
    Tensor::from_slice(&values).reshape(size)
}

struct Conv {
    name: &'static str,
    size: [i64; 2],
    parts: &'static [i64],
    kernel: i64,
    residual: bool,
    silu: bool,
    bias: bool,
    state: bool,
}

fn convolutions(cases: &mut Cases) {
    let plain = Conv {
        name: "canon",
        size: [2, 37],
        parts: &[16, 80],
        kernel: 4,
        residual: true,
        silu: false,
        bias: false,
        state: false,
    };
    let short = Conv { residual: false, silu: true, bias: true, ..plain };
    let all = [
        Conv { name: "conv.canon", ..plain },
        Conv { name: "conv.short", size: [1, 300], parts: &[40], ..short },
        Conv { name: "conv.silu_residual", residual: true, size: [2, 3], kernel: 3, ..short },
        Conv { name: "conv.piece", state: true, size: [2, 5], ..plain },
        Conv { name: "conv.token", state: true, size: [3, 1], ..short },
    ];
    for conv in all {
        let Conv { name, size: [b, t], parts, kernel, residual, silu, bias, state } = conv;
        let total: i64 = parts.iter().sum();
        let tensors = |prefix: &str| -> Vec<Tensor> {
            parts
                .iter()
                .enumerate()
                .map(|(n, c)| numbers(&format!("{prefix}{n}"), &[b, t, *c]))
                .collect()
        };
        let (x, dy) = (tensors("x"), tensors("dy"));
        let weight = numbers("weight", &[total, kernel]);
        let bias = bias.then(|| numbers("bias", &[total]));
        let past = state.then(|| numbers("past", &[b, kernel - 1, total]));
        let inputs: Vec<&Tensor> = x.iter().collect();
        let operands = canon::ConvOperands {
            inputs: &inputs,
            weight: &weight,
            bias: bias.as_ref(),
            state: past.as_ref(),
        };
        let activation = if silu { Activation::Silu } else { Activation::Identity };
        let options = canon::Options { residual, activation };
        cases.flag(name, "residual", residual.into());
        cases.flag(name, "silu", silu.into());
        cases.each(name, "x", &x);
        cases.add(name, [("weight", &weight)]);
        for (of, tensor) in [("bias", &bias), ("past", &past)] {
            tensor.iter().for_each(|tensor| cases.add(name, [(of, tensor)]));
        }
        cases.each(name, "y", &canon::forward(cases.path, operands, options).unwrap());
        if !state {
            let grads: Vec<&Tensor> = dy.iter().collect();
            let gradients = canon::backward(cases.path, &grads, operands, options).unwrap();
            cases.each(name, "dy", &dy);
            cases.each(name, "dx", &gradients.inputs);
            cases.add(name, [("dweight", &gradients.weight)]);
            gradients.bias.iter().for_each(|dbias| cases.add(name, [("dbias", dbias)]));
        }
    }
}

fn conv_units(cases: &mut Cases) {
    for (name, [b, t, c], residual, bias, state) in [
        ("unit.canon", [2, 37, 48], true, false, false),
        ("unit.bias", [1, 270, 24], false, true, false),
        ("unit.piece", [2, 6, 80], true, true, true),
    ] {
        let [gate, up, dy] = ["gate", "up", "dy"].map(|of| numbers(of, &[b, t, c]));
        let weight = numbers("weight", &[2 * c, 4]) * 0.5;
        let bias = bias.then(|| numbers("bias", &[2 * c]));
        let past = state.then(|| numbers("past", &[b, 3, 2 * c]));
        let operands = canon::ConvOperands {
            inputs: &[&gate, &up],
            weight: &weight,
            bias: bias.as_ref(),
            state: past.as_ref(),
        };
        let y = canon::gated::forward(cases.path, operands, residual).unwrap();
        cases.flag(name, "residual", residual.into());
        cases.add(name, [("gate", &gate), ("up", &up), ("weight", &weight), ("y", &y)]);
        for (of, tensor) in [("bias", &bias), ("past", &past)] {
            tensor.iter().for_each(|tensor| cases.add(name, [(of, tensor)]));
        }
        if !state {
            let gradients = canon::gated::backward(cases.path, &dy, operands, residual).unwrap();
            cases.add(name, [("dy", &dy), ("dweight", &gradients.weight)]);
            cases.add(name, [("dgate", &gradients.inputs[0]), ("dup", &gradients.inputs[1])]);
            gradients.bias.iter().for_each(|dbias| cases.add(name, [("dbias", dbias)]));
        }
    }
}

fn norms(cases: &mut Cases) {
    let eps = 1e-5;
    for (width, size) in [(20, vec![2, 9, 3]), (64, vec![1, 5, 2]), (300, vec![1, 13, 1])] {
        let shape = [&size[..], &[width]].concat();
        let [x, gate, dy] = ["x", "gate", "dy"].map(|of| numbers(of, &shape));
        let weight = numbers("weight", &[width]);
        let name = format!("norm.{width}");
        let (y, rstd) = norm::rms_norm(cases.path, &x, &weight, eps).unwrap();
        let (dx, dweight) = norm::rms_norm_grad(cases.path, &dy, &x, &weight, &rstd).unwrap();
        cases.add(&name, [("x", &x), ("gate", &gate), ("dy", &dy), ("weight", &weight)]);
        cases.add(&name, [("y0", &y), ("rstd0", &rstd), ("dx0", &dx), ("dweight0", &dweight)]);
        for (n, order) in [(1, Gate::Before), (2, Gate::After)] {
            let operands = gated_norm::GatedNormOperands { x: &x, gate: &gate, weight: &weight };
            let (y, rstd) = gated_norm::forward(cases.path, operands, eps, order).unwrap();
            let [dx, dgate, dweight] =
                gated_norm::backward(cases.path, &dy, operands, &rstd, order).unwrap();
            cases.each(&name, &format!("gated{n}."), &[y, rstd, dx, dgate, dweight]);
        }
        let (y, rnorm) = l2_norm::forward(cases.path, &x, 1e-6).unwrap();
        let dx = l2_norm::backward(cases.path, &dy, &x, &rnorm).unwrap();
        cases.add(&name, [("l2_y", &y), ("l2_rnorm", &rnorm), ("l2_dx", &dx)]);
    }
}

fn turns(cases: &mut Cases) {
    let mut tables = rope::Tables::default();
    for (n, (width, dims, position)) in
        [(64, 64, 0), (24, 16, 5), (128, 96, 1000)].into_iter().enumerate()
    {
        let x = numbers("x", &[2, 7, 3, width]);
        let name = format!("rope.{n}");
        cases.flag(&name, "dims", dims);
        cases.flag(&name, "position", position);
        cases.add(&name, [("x", &x)]);
        for (half, layout) in [RopeLayout::Interleaved, RopeLayout::Half].into_iter().enumerate() {
            for (back, inverse) in [false, true].into_iter().enumerate() {
                let rotation = rope::Rotation {
                    theta: 10_000.0,
                    dims,
                    layout,
                    inverse,
                    scaling: RopeScaling::Unscaled,
                };
                let y =
                    rope::apply(cases.path, &x, &[(position, x.size()[1])], rotation, &mut tables)
                        .unwrap();
                cases.add(&name, [(&*format!("y.{half}.{back}"), &y)]);
            }
        }
    }
}

fn units(cases: &mut Cases) {
    let [gate, up, dy] = ["gate", "up", "dy"].map(|of| numbers(of, &[3, 5, 210]));
    let y = swiglu::forward(cases.path, &gate, &up).unwrap();
    let (dgate, dup) = swiglu::backward(cases.path, &dy, &gate, &up).unwrap();
    cases.add("swiglu", [("gate", &gate), ("up", &up), ("dy", &dy), ("y", &y)]);
    cases.add("swiglu", [("dgate", &dgate), ("dup", &dup)]);
    let dy = numbers("sums", &[2, 50, 21]);
    cases.add("sums", [("dy", &dy), ("out", &linear::sum_tokens(cases.path, &dy).unwrap())]);
    let ids: Vec<i64> = (0..100).map(|i| (i * i) % 11).collect();
    let tokens = Tensor::from_slice(&ids).reshape([2, 50]);
    let dtable = linear::embed_grad(&dy, &tokens, 13).unwrap();
    cases.add("embed", [("dy", &dy), ("tokens", &tokens), ("dtable", &dtable)]);
}

fn losses(cases: &mut Cases) {
    for (name, [b, t, v]) in [("loss.small", [2, 7, 21]), ("loss.wide", [1, 5, 4999])] {
        let logits = numbers("logits", &[b, t, v]) * 4.0;
        let ids: Vec<i64> =
            (0..b * t).map(|i| if i % 7 == 4 { -100 } else { (i * 1511) % v }).collect();
        let targets = Tensor::from_slice(&ids).reshape([b, t]);
        let terms = loss::Terms { nll_square: 0.01, z_loss: 0.002 };
        let scores = loss::forward(cases.path, &logits, &targets, terms).unwrap();
        let kept = loss::Kept { targets: &targets, nll: &scores.nll, lse: &scores.lse };
        let dlogits = loss::backward(cases.path, &logits, kept, 0.125, terms, false).unwrap();
        let argmax = loss::argmax(&logits).unwrap();
        cases.add(name, [("logits", &logits), ("targets", &targets), ("argmax", &argmax)]);
        cases.add(name, [("nll", &scores.nll), ("lse", &scores.lse), ("dlogits", &dlogits)]);
        cases.add(name, [("loss", &scores.loss), ("counted", &scores.counted)]);
    }
}

fn updates(cases: &mut Cases) {
    let gradients = [numbers("g", &[3000]), numbers("h", &[2, 9001])];
    let norm = update::grad_norm(cases.path, &gradients.iter().collect::<Vec<_>>()).unwrap();
    let coefficient = update::clip(&norm, Some(1.5)).unwrap();
    cases.each("clip", "g", &gradients);
    cases.add("clip", [("norm", &norm), ("coefficient", &coefficient)]);
    let [p, g, m] = ["p", "g", "m"].map(|name| numbers(name, &[1500]));
    let v = numbers("v", &[1500]).square();
    let update =
        update::Update { p: &p, g: &g, m: &m, v: &v, coefficient: &coefficient, copy: None };
    let before = [p.copy(), g.copy(), m.copy(), v.copy()];
    cases.each("adamw", "before", &before);
    cases.add("adamw", [("coefficient", &coefficient)]);
    for step in 1..4 {
        let options =
            update::AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8, decay: 0.1, lr: 1e-2, step };
        let (p, m, v) = update::adamw(cases.path, update, options).unwrap();
        cases.each("adamw", &format!("after{step}."), &[p.copy(), m.copy(), v.copy()]);
    }
}

/// Each scan from a state, and its gradients from zero state: a few tokens, one, and three chunks of the GPU's.
fn scans(cases: &mut Cases) {
    let exact = |x: Tensor| x.to_kind(Kind::BFloat16).to_kind(Kind::Float);
    let unit = |x: Tensor| {
        exact(&x / (x.square().sum_dim_intlist([-1i64].as_slice(), true, None) + 1e-6).sqrt())
    };
    // From 0 to −8, so that some decays keep all and some keep nearly nothing.
    let gates = |size: &[i64]| exact(-numbers("g", size).square() * 0.5);
    for (n, [b, t, h, d, e]) in
        [[2, 19, 2, 16, 32], [1, 1, 1, 16, 16], [1, 130, 1, 16, 16]].into_iter().enumerate()
    {
        let [q, k, r] = ["q", "k", "r"].map(|name| unit(numbers(name, &[b, t, h, d])));
        let v = numbers("v", &[b, t, h, e]);
        let [beta, dt] = ["beta", "dt"].map(|name| numbers(name, &[b, t, h]).sigmoid());
        let [columns, rows] = ["b", "c"].map(|name| numbers(name, &[b, t, 1, d]));
        let [a, skip] = [-numbers("a", &[h]).exp(), numbers("d", &[h])];
        let [by_head, by_channel] = [gates(&[b, t, h]), gates(&[b, t, h, d])];
        let bonus = numbers("u", &[h, d]);
        let all: [(&str, ScanKind, &[&Tensor]); 4] = [
            ("delta", ScanKind::Delta, &[&q, &k, &v, &beta, &by_head]),
            ("gla", ScanKind::Gla, &[&q, &k, &v, &by_channel]),
            ("rwkv6", ScanKind::Rwkv6, &[&r, &k, &v, &by_channel, &bonus]),
            ("ssd", ScanKind::Ssd, &[&v, &dt, &a, &columns, &rows, &skip]),
        ];
        for (name, scan, operands) in all {
            let name = format!("scan.{name}.{n}");
            let shape = if scan == ScanKind::Ssd { [b, h, e, d] } else { [b, h, d, e] };
            let [start, dy] = [numbers("state", &shape), numbers("dy", &[b, t, h, e])];
            let scan::Scanned { y, state } =
                scan::forward(scan, cases.path, operands, Some(&start), scan::Settings::USUAL)
                    .unwrap();
            cases.add(&name, [("start", &start), ("y", &y), ("state", &state), ("dy", &dy)]);
            let gradients =
                scan::backward(scan, cases.path, &dy, operands, scan::Settings::USUAL).unwrap();
            let names = scan.definition().operands;
            for ((of, x), gradient) in names.iter().zip(operands).zip(&gradients) {
                cases.add(&name, [(*of, *x), (&*format!("d{of}"), gradient)]);
            }
        }
    }
}

#[test]
fn the_cases_of_the_gpu_kernels_are_the_cpu_kernels_results() {
    let mut cases = Cases { path: path::choose(Kind::Float, Device::Cpu), all: Vec::new() };
    for fill in [convolutions, conv_units, norms, turns, units, losses, updates, scans] {
        fill(&mut cases);
    }
    if std::env::var_os("CANONC_UPDATE_GPU_CASES").is_some() {
        Tensor::write_safetensors(&cases.all, FILE).unwrap();
    }
    let committed = Tensor::read_safetensors(FILE).unwrap();
    assert_eq!(committed.len(), cases.all.len(), "run with CANONC_UPDATE_GPU_CASES=1");
    for (name, result) in &cases.all {
        let kept = committed.iter().find(|(other, _)| other == name);
        let (_, kept) = kept.unwrap_or_else(|| panic!("{FILE} lacks {name}"));
        assert_eq!((kept.size(), kept.kind()), (result.size(), result.kind()), "{name}");
        let [kept, result] = [kept, result].map(|tensor| tensor.to_kind(Kind::Double));
        let size = kept.abs().max().double_value(&[]);
        let error = (kept - result).abs().max().double_value(&[]);
        let within = if name.starts_with("scan.") { SCANS_WITHIN } else { WITHIN };
        assert!(error <= within * size, "{name}: {error:e} of {size:e}");
    }
}
