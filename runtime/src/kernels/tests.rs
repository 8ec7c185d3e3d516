//! Tests of every fused kernel against its reference, at awkward shapes; of its bits at several thread counts and
//! register widths; of libtorch's flash attention against the plain formula.

use compiler::plan::{RopeLayout, RopeScaling};
use tch::{Device, Kind, Tensor};

use super::path::{Path, Reason};
use super::{
    CudaLibrary, Isa, arrange, attention, cuda_library, has_loaded_cuda, head_loss, linear, loss,
    norm, rope, swiglu, update,
};

const CPU: (Kind, Device) = (Kind::Float, Device::Cpu);
const ASKED: Path = Path::Reference(Reason::Asked);
/// [b, t, c]: all ones, odd sizes, several blocks.
const SHAPES: [[i64; 3]; 5] = [[1, 1, 1], [2, 5, 7], [1, 33, 16], [3, 70, 33], [2, 300, 130]];

/// All results of a kernel at a shape, by a path.
type Run = fn([i64; 3], Path) -> Vec<Tensor>;

/// A kernel, and how far its fused form may differ, relative to the largest element.
const KERNELS: [(&str, f64, Run); 7] = [
    ("sum_tokens", 1e-5, sum_tokens),
    ("rms_norm", 4e-6, rms_norm),
    ("swiglu", 2e-6, gated),
    ("rope", 2e-6, turned),
    ("cross_entropy", 4e-6, losses),
    ("grad_norm", 1e-12, norms),
    ("adamw", 2e-6, updated),
];

/// Numbers that depend only on the name and the shape.
fn numbers(name: &str, size: &[i64]) -> Tensor {
    let seed = name.bytes().fold(17u64, |seed, b| seed.wrapping_mul(131) + u64::from(b));
    let mut state = seed;
    let count: i64 = size.iter().product();
    let mut draw = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let values: Vec<f32> = (0..count).map(|_| 2.0 * (draw() + draw() + draw())).collect();
    Tensor::from_slice(&values).reshape(size)
}

fn sum_tokens([b, t, c]: [i64; 3], path: Path) -> Vec<Tensor> {
    vec![linear::sum_tokens(path, &numbers("dy", &[b, t, c, 2])).unwrap()]
}

fn rms_norm(shape: [i64; 3], path: Path) -> Vec<Tensor> {
    let [x, dy] = ["x", "dy"].map(|name| numbers(name, &shape));
    let weight = numbers("weight", &shape[2..]);
    let (y, rstd) = norm::rms_norm(path, &x, &weight, 1e-5).unwrap();
    let (dx, dweight) = norm::rms_norm_grad(path, &dy, &x, &weight, &rstd).unwrap();
    vec![y, rstd, dx, dweight]
}

fn gated(shape: [i64; 3], path: Path) -> Vec<Tensor> {
    let [gate, up, dy] = ["gate", "up", "dy"].map(|name| numbers(name, &shape));
    let (dgate, dup) = swiglu::backward(path, &dy, &gate, &up).unwrap();
    vec![swiglu::forward(path, &gate, &up).unwrap(), dgate, dup]
}

/// Both layouts, both directions, whole heads and parts, and heads cut out of a wider tensor.
fn turned([b, t, c]: [i64; 3], path: Path) -> Vec<Tensor> {
    let wide = numbers("x", &[b, t, 3, 2 * c + 4]);
    let dense = arrange::copy(&wide.narrow(3, 0, 2 * c)).unwrap();
    let mut tables = rope::Tables::default();
    let mut all = Vec::new();
    for layout in [RopeLayout::Interleaved, RopeLayout::Half] {
        for inverse in [false, true] {
            for (x, dims) in [(&dense, 2 * c), (&wide, 2 * c), (&wide, 2)] {
                let rotation = rope::Rotation {
                    theta: 100.0,
                    dims,
                    layout,
                    inverse,
                    scaling: RopeScaling::Unscaled,
                };
                all.push(rope::apply(path, x, &[(3, x.size()[1])], rotation, &mut tables).unwrap());
            }
        }
    }
    all
}

fn losses([b, t, c]: [i64; 3], path: Path) -> Vec<Tensor> {
    let logits = numbers("logits", &[b, t, c]) * 3.0;
    let ids: Vec<i64> = (0..b * t).map(|i| if i % 7 == 4 { -100 } else { (i * 5) % c }).collect();
    let targets = Tensor::from_slice(&ids).reshape([b, t]);
    let terms = loss::Terms { nll_square: 0.01, z_loss: 0.002 };
    let loss::Losses { nll, lse, loss, counted, likeliest: _ } =
        loss::forward(path, &logits, &targets, terms).unwrap();
    let kept = loss::Kept { targets: &targets, nll: &nll, lse: &lse };
    let apart = loss::backward(path, &logits, kept, 0.125, terms, false).unwrap();
    let over = loss::backward(path, &logits, kept, 0.125, terms, true).unwrap();
    assert_eq!(over.data_ptr(), logits.data_ptr());
    assert!(over == apart);
    vec![nll, lse, loss, counted, apart]
}

/// Loss and gradients of the head, in chunks of `rows` tokens.
fn head([b, t, c]: [i64; 3], path: Path, rows: i64) -> Vec<Tensor> {
    let vocab = 2 * c + 1;
    let (x, weight) = (numbers("x", &[b, t, c]), numbers("weight", &[vocab, c]) * 0.1);
    let bias = numbers("bias", &[vocab]);
    let ids: Vec<i64> =
        (0..b * t).map(|i| if i % 7 == 4 { -100 } else { (i * 5) % vocab }).collect();
    let targets = Tensor::from_slice(&ids).reshape([b, t]);
    let terms = loss::Terms { nll_square: 0.01, z_loss: 0.002 };
    let head = head_loss::Head {
        x: &x,
        weight: &weight,
        bias: Some(&bias),
        targets: &targets,
        product: linear::Product::by(path),
        terms,
        rows,
    };
    let scores = head_loss::forward(path, head).unwrap();
    let gradients = head_loss::backward(path, head, 0.125).unwrap();
    assert!(gradients.loss == scores.loss && gradients.counted == scores.counted);
    let argmax = scores.argmax.to_kind(Kind::Float);
    vec![scores.nll, scores.loss, argmax, gradients.x, gradients.weight, gradients.bias.unwrap()]
}

fn norms(shape: [i64; 3], path: Path) -> Vec<Tensor> {
    let gradients = [numbers("g", &shape), numbers("h", &[1 << 15, 3])];
    vec![update::grad_norm(path, &gradients.iter().collect::<Vec<_>>()).unwrap()]
}

fn updated(shape: [i64; 3], path: Path) -> Vec<Tensor> {
    let [p, g, m] = ["p", "g", "m"].map(|name| numbers(name, &shape));
    let v = numbers("v", &shape).square();
    let coefficient = Tensor::from(0.7);
    let rounded = p.to_kind(Kind::BFloat16);
    for step in 1..4 {
        let options =
            update::AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8, decay: 0.1, lr: 1e-2, step };
        let copy = (step == 2).then_some(&rounded);
        let update = update::Update { p: &p, g: &g, m: &m, v: &v, coefficient: &coefficient, copy };
        let before = rounded.copy();
        let (after, _, _) = update::adamw(path, update, options).unwrap();
        assert_eq!(after.data_ptr(), p.data_ptr());
        assert_eq!(rounded, if step == 2 { p.to_kind(Kind::BFloat16) } else { before });
    }
    vec![p, m, v]
}

fn assert_close(a: &[Tensor], b: &[Tensor], within: f64, case: &str) {
    assert_eq!(a.len(), b.len());
    for (n, (a, b)) in a.iter().zip(b).enumerate() {
        assert_eq!(a.size(), b.size(), "{case}, result {n}");
        let b = b.to_kind(Kind::Double);
        // Operands are of order one; a result made small by cancellation is not expected to have more correct digits.
        let size = b.abs().max().double_value(&[]).max(0.1);
        let error = (a.to_kind(Kind::Double) - b).abs().max().double_value(&[]) / size;
        assert!(error <= within, "{case}, result {n}: {error:e} of {size:e}");
    }
}

fn assert_same_bits(a: &[Tensor], b: &[Tensor], case: &str) {
    for (n, (a, b)) in a.iter().zip(b).enumerate() {
        assert!(a == b, "{case}, result {n}");
    }
}

#[test]
fn fused_kernels_agree_with_their_references() {
    for (name, within, run) in KERNELS {
        for shape in SHAPES {
            let case = format!("{name} at {shape:?}");
            let want = run(shape, ASKED);
            assert_close(&run(shape, Path::Fused(Isa::of_process())), &want, within, &case);
            assert_close(&run(shape, Path::Fused(Isa::Portable)), &want, within, &case);
        }
    }
}

#[test]
fn fused_kernels_give_the_same_bits_on_any_number_of_threads_and_lanes() {
    let before = tch::get_num_threads();
    for (name, _, run) in KERNELS {
        for shape in [[3, 70, 33], [2, 300, 130]] {
            let fused = Path::Fused(Isa::of_process());
            let [one, three] = [1, 3].map(|threads| {
                tch::set_num_threads(threads);
                run(shape, fused)
            });
            tch::set_num_threads(1);
            assert_same_bits(&one, &three, &format!("{name} at {shape:?}, 3 threads"));
            if Isa::Avx512.is_available() {
                let [wide, narrow] =
                    [Isa::Avx512, Isa::Avx2].map(|isa| run(shape, Path::Fused(isa)));
                assert_same_bits(&wide, &narrow, &format!("{name} at {shape:?}, avx512 and avx2"));
            }
        }
    }
    tch::set_num_threads(before);
}

#[test]
fn the_head_by_chunks_is_the_head() {
    for shape in SHAPES {
        let full = head(shape, ASKED, i64::MAX);
        for (path, rows) in
            [(ASKED, 16), (Path::Fused(Isa::of_process()), 16), (Path::Fused(Isa::Portable), 7)]
        {
            let case = format!("head_loss at {shape:?} by {rows} on {path}");
            assert_close(&head(shape, path, rows), &full, 1e-5, &case);
            assert_same_bits(&head(shape, path, rows), &head(shape, path, rows), &case);
        }
    }
}

#[test]
fn the_head_has_the_same_bits_on_any_number_of_threads_and_lanes() {
    let before = tch::get_num_threads();
    for shape in SHAPES {
        let mut first: Option<Vec<Tensor>> = None;
        for isa in [Isa::Avx512, Isa::Avx2].into_iter().filter(|isa| isa.is_available()) {
            for threads in [1, 3] {
                tch::set_num_threads(threads);
                let results = head(shape, Path::Fused(isa), 16);
                let case = format!("head_loss at {shape:?}, {isa}, {threads} threads");
                assert_same_bits(
                    &results,
                    first
                        .get_or_insert_with(|| results.iter().map(Tensor::shallow_clone).collect()),
                    &case,
                );
            }
        }
    }
    tch::set_num_threads(before);
}

/// t, s, heads, key heads, width of keys and of values, window.
type AttentionShape = (i64, i64, i64, i64, i64, i64, Option<i64>);

/// y, lse, dq, dk, dv.
fn attended((t, s, h, kv, d, e, window): AttentionShape, path: attention::Path) -> Vec<Tensor> {
    let (q, k) = (numbers("q", &[2, t, h, d]), numbers("k", &[2, s, kv, d]));
    let (v, dy) = (numbers("v", &[2, s, kv, e]), numbers("dy", &[2, t, h, e]));
    let operands = attention::AttentionOperands::plain(&q, &k, &v, window);
    let (y, lse) = attention::forward(path, operands).unwrap();
    let gradients = attention::backward(path, &dy, operands, &y, &lse).unwrap();
    [y, lse].into_iter().chain(gradients).collect()
}

const ATTENTION: [AttentionShape; 10] = [
    (1, 1, 1, 1, 8, 8, None),
    (40, 40, 4, 4, 16, 16, None),
    (130, 130, 6, 2, 32, 32, None),
    (64, 64, 2, 1, 128, 128, None),
    (129, 129, 4, 1, 24, 40, Some(7)),
    (200, 200, 2, 2, 8, 20, Some(70)),
    (40, 40, 2, 2, 64, 64, Some(100)),
    (5, 140, 4, 2, 16, 16, None),
    (70, 140, 4, 2, 16, 16, Some(66)),
    (1, 100, 4, 4, 9, 7, Some(9)),
];

#[test]
fn fused_attention_is_attention() {
    use attention::{Path, Reason};
    let before = tch::get_num_threads();
    for shape in ATTENTION {
        let case = format!("{shape:?}");
        let want = attended(shape, Path::Reference(Reason::Asked));
        let fused = Path::Fused(Isa::of_process());
        for path in [fused, Path::Fused(Isa::Portable)] {
            let got = attended(shape, path);
            assert_close(&got[..2], &want[..2], 3e-6, &case);
            assert_close(&got[2..], &want[2..], 2e-5, &case);
        }
        let [one, three] = [1, 3].map(|threads| {
            tch::set_num_threads(threads);
            attended(shape, fused)
        });
        tch::set_num_threads(before);
        assert_same_bits(&one, &three, &case);
        if Isa::Avx512.is_available() {
            let [wide, narrow] =
                [Isa::Avx512, Isa::Avx2].map(|isa| attended(shape, Path::Fused(isa)));
            assert_same_bits(&wide, &narrow, &case);
        }
    }
}

/// Bounded scores and sinks, at the same shapes; a sink of −20 hardly counts, one of 30 takes nearly everything.
#[test]
fn fused_attention_has_its_options() {
    use attention::{AttentionOperands, Path, Reason};
    for (t, s, h, kv, d, e, window) in ATTENTION {
        let (q, k) = (numbers("q", &[2, t, h, d]), numbers("k", &[2, s, kv, d]));
        let (v, dy) = (numbers("v", &[2, s, kv, e]), numbers("dy", &[2, t, h, e]));
        for level in [-20.0, 0.0, 30.0] {
            let sink = numbers("sink", &[h]) + level;
            for (softcap, sink) in
                [(Some(2.0), Some(&sink)), (Some(50.0), None), (None, Some(&sink))]
            {
                let plain = AttentionOperands::plain(&q, &k, &v, window);
                let scale = Some(0.8 / (d as f64).sqrt());
                let operands = AttentionOperands { scale, softcap, sink, ..plain };
                let all = |path| {
                    let (y, lse) = attention::forward(path, operands).unwrap();
                    let gradients = attention::backward(path, &dy, operands, &y, &lse).unwrap();
                    let mut all = vec![y, lse];
                    all.extend(gradients);
                    all
                };
                let case = format!("{t} {s} {h} {kv} {d} {e} {window:?} {softcap:?} {level}");
                let want = all(Path::Reference(Reason::Asked));
                for isa in [Isa::of_process(), Isa::Portable] {
                    let got = all(Path::Fused(isa));
                    assert_eq!(got.len(), want.len());
                    assert_close(&got[..2], &want[..2], 5e-6, &case);
                    assert_close(&got[2..], &want[2..], 4e-5, &case);
                }
            }
        }
    }
}

/// A row whose scores are far apart keeps its lse, and NaN stays NaN.
#[test]
fn attention_of_extreme_scores() {
    use attention::{AttentionOperands, Path, Reason};
    let q = Tensor::full([1, 80, 1, 4], 300.0, CPU);
    let k = numbers("k", &[1, 80, 1, 4]);
    let v = numbers("v", &[1, 80, 1, 4]);
    let all = |path| attention::forward(path, AttentionOperands::plain(&q, &k, &v, None)).unwrap();
    let ((y, lse), (want, want_lse)) =
        (all(Path::Fused(Isa::of_process())), all(Path::Reference(Reason::Asked)));
    assert_close(&[y, lse], &[want, want_lse], 1e-4, "far apart");
    let _ = k.get(0).get(70).fill_(f64::NAN);
    let (y, _) = all(Path::Fused(Isa::of_process()));
    assert!(y.narrow(1, 0, 70).isnan().any().int64_value(&[]) == 0);
    assert!(y.narrow(1, 70, 10).isnan().all().int64_value(&[]) != 0);
}

/// A few queries read bf16 as it is.
#[test]
fn attention_of_bf16_is_that_of_its_values() {
    use attention::{AttentionOperands, Path};
    let fused = Path::Fused(Isa::of_process());
    for (t, s, h, kv, d, e, window) in ATTENTION {
        let [q, k, v] = [("q", [2, t, h, d]), ("k", [2, s, kv, d]), ("v", [2, s, kv, e])]
            .map(|(name, shape)| numbers(name, &shape).to_kind(Kind::BFloat16));
        let [wide_q, wide_k, wide_v] = [&q, &k, &v].map(|x| x.to_kind(Kind::Float));
        let attend =
            |q, k, v| attention::forward(fused, AttentionOperands::plain(q, k, v, window)).unwrap();
        let ((y, lse), (want, want_lse)) = (attend(&q, &k, &v), attend(&wide_q, &wide_k, &wide_v));
        assert_same_bits(&[y, lse], &[want, want_lse], &format!("{t} of {s}"));
    }
}

/// So are a sink and a bound, and every gradient's sum is f32 before it is rounded.
#[test]
fn options_of_bf16_are_those_of_their_values() {
    use attention::{AttentionOperands, Path};
    let fused = Path::Fused(Isa::of_process());
    for (t, s, h, kv, d, e, window) in ATTENTION {
        let [q, k, v, dy, sink] = [
            ("q", vec![2, t, h, d]),
            ("k", vec![2, s, kv, d]),
            ("v", vec![2, s, kv, e]),
            ("dy", vec![2, t, h, e]),
            ("sink", vec![h]),
        ]
        .map(|(name, shape)| numbers(name, &shape).to_kind(Kind::BFloat16));
        let wide = [&q, &k, &v, &dy, &sink].map(|x| x.to_kind(Kind::Float));
        let attend = |[q, k, v, dy, sink]: [&Tensor; 5]| {
            let plain = AttentionOperands::plain(q, k, v, window);
            let operands = AttentionOperands { softcap: Some(2.0), sink: Some(sink), ..plain };
            let (y, lse) = attention::forward(fused, operands).unwrap();
            let mut all = attention::backward(fused, dy, operands, &y, &lse).unwrap();
            all.extend([y, lse]);
            all
        };
        let case = format!("{t} of {s}");
        assert_same_bits(&attend([&q, &k, &v, &dy, &sink]), &attend(wide.each_ref()), &case);
    }
}

/// Of a few queries, other batch items change no bit; a NaN reaches those that see it.
#[test]
fn each_of_a_few_queries_has_the_bits_that_it_has_alone() {
    use attention::{AttentionOperands, Path};
    let fused = Path::Fused(Isa::of_process());
    let [q, k, v] = [("q", [3, 2, 4, 24]), ("k", [3, 90, 2, 24]), ("v", [3, 90, 2, 40])]
        .map(|(name, shape)| numbers(name, &shape));
    let attend = |q: &Tensor, k: &Tensor, v: &Tensor| {
        let (y, lse) =
            attention::forward(fused, AttentionOperands::plain(q, k, v, Some(80))).unwrap();
        vec![y, lse]
    };
    let all = attend(&q, &k, &v);
    for item in 0..3 {
        let item_of = |x: &Tensor| x.narrow(0, item, 1).copy();
        let alone = attend(&item_of(&q), &item_of(&k), &item_of(&v));
        let want: Vec<Tensor> = all.iter().map(|x| x.narrow(0, item, 1).copy()).collect();
        assert_same_bits(&alone, &want, &format!("item {item}"));
    }
    // Position 9 is 80 before the last of 90, and 79 before the first of the two queries.
    let _ = k.get(1).get(9).fill_(f64::NAN);
    let y = attend(&q, &k, &v).swap_remove(0);
    assert!(y.get(1).get(0).isnan().all().int64_value(&[]) != 0);
    assert!(y.get(1).get(1).isnan().any().int64_value(&[]) == 0);
    assert!(y.get(0).isnan().any().int64_value(&[]) == 0);
}

#[test]
fn a_loss_of_nan_is_nan_and_large_logits_do_not_overflow() {
    let targets = Tensor::from_slice(&[1i64, 0, 2]).reshape([1, 3]);
    let logits = Tensor::from_slice(&[1e30f32, -1e30, 0.0, 88.0, 200.0, 300.0, f32::NAN, 0.0, 1.0]);
    let logits = logits.reshape([1, 3, 3]);
    let terms = loss::Terms { nll_square: 0.0, z_loss: 0.0 };
    for path in [ASKED, Path::Fused(Isa::of_process())] {
        let losses = loss::forward(path, &logits, &targets, terms).unwrap();
        let nll: Vec<f32> = Vec::try_from(losses.nll.reshape([-1])).unwrap();
        assert_eq!(nll[0], 2e30);
        assert_eq!(nll[1], 212.0);
        assert!(nll[2].is_nan());
        assert!(losses.loss.double_value(&[]).is_nan());
    }
}

#[test]
fn targets_outside_the_vocabulary_are_refused() {
    let logits = Tensor::zeros([1, 2, 5], CPU);
    for bad in [5i64, -1, i64::MIN, i64::MAX] {
        let targets = Tensor::from_slice(&[0, bad]).reshape([1, 2]);
        let terms = loss::Terms { nll_square: 0.0, z_loss: 0.0 };
        let path = Path::Fused(Isa::of_process());
        let error = loss::forward(path, &logits, &targets, terms).unwrap_err();
        assert_eq!(error.to_string(), format!("target {bad} is outside the vocabulary of 5"));
    }
}

#[test]
fn clipping_keeps_small_gradients_and_nan() {
    let clip = |norm: f64, max| update::clip(&Tensor::from(norm), max).unwrap().double_value(&[]);
    assert_eq!(clip(0.5, Some(1.0)), 1.0);
    assert_eq!(clip(4.0, None), 1.0);
    assert!((clip(4.0, Some(1.0)) - 0.25).abs() < 1e-6);
    assert!(clip(f64::NAN, Some(1.0)).is_nan());
}

#[test]
fn rope_refuses_what_is_no_rotation() {
    let x = Tensor::zeros([1, 2, 1, 6], CPU);
    for dims in [0, 3, 8, -2] {
        let layout = RopeLayout::Half;
        let rotation = rope::Rotation {
            theta: 10.0,
            dims,
            layout,
            inverse: false,
            scaling: RopeScaling::Unscaled,
        };
        let error =
            rope::apply(ASKED, &x, &[(0, x.size()[1])], rotation, &mut rope::Tables::default())
                .unwrap_err();
        assert_eq!(error.to_string(), format!("rope over {dims} channels of heads of 6"));
    }
}

#[test]
fn cuda_is_loaded_once_it_was_found() {
    let is_loaded = *cuda_library() == CudaLibrary::Loaded;
    assert_eq!(has_loaded_cuda(), is_loaded);
}
