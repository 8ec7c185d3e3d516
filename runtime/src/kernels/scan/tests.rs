//! Tests of the chunked scans against the step-by-step ones in f64, and of the laws: streaming, threads, strong gates.

use proptest::prelude::*;
use tch::{Device, Kind, Tensor};

use super::super::{Isa, path};
use super::fused;
use super::operands::{FusedOperands, ScanRule, StateLayout};
use super::*;

const F32: (Kind, Device) = (Kind::Float, Device::Cpu);

/// Numbers in [-1, 1] that depend only on the seed.
pub(super) fn numbers(seed: i64, size: &[i64]) -> Tensor {
    let count: i64 = size.iter().product();
    let x = (Tensor::arange(count, (Kind::Double, Device::Cpu)) + seed * 7919) * 12.9898;
    let x = x.sin() * 43758.5453;
    ((&x - x.floor()) * 2.0 - 1.0).reshape(size).to_kind(Kind::Float)
}

/// Gates of all strengths, or of one.
pub(super) fn gates(seed: i64, size: &[i64], strength: Option<f64>) -> Tensor {
    match strength {
        Some(g) => Tensor::full(size, -g, F32),
        None => {
            let kinds = Tensor::from_slice(&[0.0f32, -1e-4, -0.05, -1.0, -5.0, -20.0, -1000.0]);
            let pick = ((numbers(seed, size) + 1.0) * 3.49).to_kind(Kind::Int64).clamp(0, 6);
            kinds.index_select(0, &pick.reshape([-1])).reshape(size)
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    b: i64,
    t: i64,
    h: i64,
    groups: i64,
    d: i64,
    e: i64,
}

/// Tensors of a case: q, k, v, g, beta, dy, state.
struct ScanCase {
    rule: ScanRule,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    dy: Tensor,
    state: Tensor,
}

impl ScanCase {
    fn new(rule: ScanRule, shape: Shape, strength: Option<f64>) -> Self {
        let Shape { b, t, h, groups, d, e } = shape;
        let gated: &[i64] = if rule == ScanRule::Channel { &[b, t, h, d] } else { &[b, t, h] };
        let k = numbers(2, &[b, t, groups, d]);
        // Keys of length one, as in the delta rule; longer ones make it grow without bound.
        let norm = k.square().sum_dim_intlist([-1i64].as_slice(), true, None::<Kind>).sqrt() + 1e-6;
        ScanCase {
            rule,
            q: numbers(1, &[b, t, groups, d]),
            k: if rule == ScanRule::Delta { k / norm } else { k },
            v: numbers(3, &[b, t, h, e]),
            g: gates(4, gated, strength),
            beta: (numbers(5, &[b, t, h]) + 1.0) * 0.5,
            dy: numbers(6, &[b, t, h, e]),
            state: numbers(7, &[b, h, d, e]),
        }
    }

    fn chunked(&self, chunk: usize, state: Option<&Tensor>) -> Vec<Tensor> {
        let isa = Isa::of_process();
        let beta = (self.rule != ScanRule::Channel).then_some(&self.beta);
        let (q, k, v, g) = (&self.q, &self.k, &self.v, &self.g);
        let operands = FusedOperands { q, k, v, g, beta, low_rank: None, scale: 0.5 };
        let Scanned { y, state } =
            fused::forward(isa, self.rule, StateLayout::Keys, chunk, operands, state).unwrap();
        let mut all = vec![y, state];
        let grads = fused::backward(isa, self.rule, chunk, &self.dy, operands).unwrap();
        all.extend([grads.q, grads.k, grads.v, grads.g]);
        all.extend(grads.beta);
        all
    }

    /// The results of the step-by-step references, in f64, with the same scale.
    fn steps(&self, state: Option<&Tensor>) -> Vec<Tensor> {
        let double = |x: &Tensor| x.to_kind(Kind::Double);
        let (k, v, g) = (double(&self.k), double(&self.v), double(&self.g));
        let (beta, dy) = (double(&self.beta), double(&self.dy));
        let d = self.q.size()[3];
        // The references divide by the root of the width.
        let by = 0.5 * (d as f64).sqrt();
        let state = state.map(double);
        match self.rule {
            ScanRule::Channel => {
                let q = double(&self.q) * by;
                let o = gla::GlaOperands { q: &q, k: &k, v: &v, g: &g, scale: None };
                let Scanned { y, state } = gla::steps(o, state.as_ref()).unwrap();
                let [dq, dk, dv, dg] = gla::steps_backward(&dy, o).unwrap();
                vec![y, state, dq * by, dk, dv, dg]
            }
            ScanRule::Delta => {
                let q = double(&self.q) * by;
                let o =
                    delta::DeltaOperands { q: &q, k: &k, v: &v, beta: &beta, g: &g, scale: None };
                let Scanned { y, state } = delta::steps(o, state.as_ref()).unwrap();
                let [dq, dk, dv, dbeta, dg] = delta::steps_backward(&dy, o).unwrap();
                vec![y, state, dq * by, dk, dv, dg, dbeta]
            }
            ScanRule::LowRank => unreachable!("its tests are in dplr.rs"),
            ScanRule::Scalar => {
                let q = double(&self.q) * 0.5;
                let mut all = scalar_steps(&q, &k, &v, &g, &beta, &dy, state.as_ref());
                all[2] = &all[2] * 0.5;
                all
            }
        }
    }
}

/// S ← exp(g) S + β k vᵀ, y = Sᵀ q with keys and queries by group, and its gradients by autograd; those of q and k are
/// by head.
fn scalar_steps(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    g: &Tensor,
    beta: &Tensor,
    dy: &Tensor,
    state: Option<&Tensor>,
) -> Vec<Tensor> {
    let times = v.size()[2] / k.size()[2];
    let leaf = |x: &Tensor| x.copy().set_requires_grad(true);
    let (q, k) = (
        q.repeat_interleave_self_int(times, 2, None),
        k.repeat_interleave_self_int(times, 2, None),
    );
    let run = |q: &Tensor, k: &Tensor, v: &Tensor, g: &Tensor, s: Option<&Tensor>| {
        let size = [v.size()[0], v.size()[2], k.size()[3], v.size()[3]];
        let mut s = start(s, size, v).unwrap();
        let mut y = Vec::new();
        for t in 0..v.size()[1] {
            let decay = over_matrix(&at(g, t).unwrap().exp()).unwrap();
            s = s * decay + outer(&at(k, t).unwrap(), &at(v, t).unwrap()).unwrap();
            y.push(apply_t(&s, &at(q, t).unwrap()).unwrap());
        }
        (Tensor::stack(&y, 1), s)
    };
    let u = v * beta.unsqueeze(-1);
    let (y, after) = run(&q, &k, &u, g, state);
    let (q, k, v, g, beta) = (leaf(&q), leaf(&k), leaf(v), leaf(g), leaf(beta));
    let u = &v * beta.unsqueeze(-1);
    let loss = (run(&q, &k, &u, &g, None).0 * dy).sum(Kind::Double);
    let mut all = vec![y, after];
    all.extend(Tensor::run_backward(&[loss], &[&q, &k, &v, &g, &beta], false, false));
    all
}

#[track_caller]
pub(super) fn assert_close(got: &[Tensor], want: &[Tensor], tolerance: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert_eq!(got.size(), want.size(), "{what}, result {i}");
        let scale = want.abs().max().double_value(&[]).max(1.0);
        let off = (got.to_kind(Kind::Double) - want).abs().max().double_value(&[]) / scale;
        assert!(off <= tolerance, "{what}, result {i}: off by {off:e} of {scale}");
    }
}

fn rules() -> impl Strategy<Value = ScanRule> {
    prop_oneof![Just(ScanRule::Channel), Just(ScanRule::Scalar), Just(ScanRule::Delta)]
}

fn widths() -> impl Strategy<Value = i64> {
    prop_oneof![Just(1i64), Just(3), Just(8), Just(16), Just(33), Just(64)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn chunked_is_step_by_step(
        rule in rules(), b in 1i64..=2, t in 1i64..=90, times in 1i64..=2, d in widths(), e in widths(),
        chunk in 1usize..=70,
        strength in prop_oneof![Just(None), Just(Some(0.0)), Just(Some(0.01)), Just(Some(1.0)), Just(Some(50.0))],
        stateful in any::<bool>(),
    ) {
        let groups = if rule == ScanRule::Scalar { 1 } else { times };
        let case = ScanCase::new(rule, Shape { b, t, h: times, groups, d, e }, strength);
        let state = stateful.then_some(&case.state);
        let what = format!("{rule:?}");
        assert_close(&case.chunked(chunk, state), &case.steps(state), 2e-5, &what);
    }

    #[test]
    fn a_sequence_in_two_pieces_gives_the_same_results(rule in rules(), t in 2i64..=150, cut in 1i64..150) {
        let cut = 1 + (cut - 1) % (t - 1);
        let case = ScanCase::new(rule, Shape { b: 1, t, h: 2, groups: 2, d: 8, e: 16 }, None);
        let part = |from: i64, count: i64| ScanCase {
            rule,
            q: case.q.narrow(1, from, count),
            k: case.k.narrow(1, from, count),
            v: case.v.narrow(1, from, count),
            g: case.g.narrow(1, from, count),
            beta: case.beta.narrow(1, from, count),
            dy: case.dy.narrow(1, from, count),
            state: case.state.copy(),
        };
        let uncut = case.chunked(16, Some(&case.state));
        let first = part(0, cut).chunked(16, Some(&case.state));
        let second = part(cut, t - cut).chunked(16, Some(&first[1]));
        let y = Tensor::cat(&[&first[0], &second[0]], 1);
        let double = |x: &Tensor| x.to_kind(Kind::Double);
        assert_close(&[y, second[1].copy()], &[double(&uncut[0]), double(&uncut[1])], 1e-5, "pieces");
    }
}

#[test]
fn threads_change_no_bit() {
    let rules = [ScanRule::Channel, ScanRule::Scalar, ScanRule::Delta];
    for (rule, t) in rules.into_iter().flat_map(|rule| [3, 100].map(|t| (rule, t))) {
        let case = ScanCase::new(rule, Shape { b: 2, t, h: 3, groups: 3, d: 16, e: 24 }, None);
        let before = tch::get_num_threads();
        let runs = [1, 2, 3].map(|threads| {
            tch::set_num_threads(threads);
            case.chunked(16, Some(&case.state))
        });
        tch::set_num_threads(before);
        for run in &runs[1..] {
            for (i, (a, b)) in run.iter().zip(&runs[0]).enumerate() {
                assert!(a.equal(b), "{rule:?}, {t} tokens, result {i}");
            }
        }
    }
}

/// The head widths of the released models: 128 and 256 for keys and values, 64 and 128 for Mamba2.
#[test]
fn released_head_widths() {
    for (d, e) in [(64, 128), (128, 256), (256, 256), (128, 64)] {
        for rule in [ScanRule::Channel, ScanRule::Scalar, ScanRule::Delta] {
            let case = ScanCase::new(rule, Shape { b: 1, t: 70, h: 1, groups: 1, d, e }, None);
            let chunk = if rule == ScanRule::Channel { CHANNEL_CHUNK } else { SCALAR_CHUNK };
            let state = Some(&case.state);
            assert_close(&case.chunked(chunk, state), &case.steps(state), 2e-5, "wide heads");
        }
    }
}

/// On either path, bf16 inputs are summed in f32 and rounded once, and the state is f32.
#[test]
fn bf16_operands_meet_f32_states() {
    let bf16 = |x: &Tensor| x.to_kind(Kind::BFloat16);
    let widened = |x: &Tensor| bf16(x).to_kind(Kind::Float);
    let steps = Path::Reference(path::Reason::Asked);
    let fused = path::choose(Kind::Float, Device::Cpu);
    assert!(matches!(fused, Path::Fused(_)));
    for (path, t) in [fused, steps].into_iter().flat_map(|p| [2, 37].map(|t| (p, t))) {
        let shape = Shape { b: 2, t, h: 2, groups: 2, d: 8, e: 12 };
        for rule in [ScanRule::Channel, ScanRule::Scalar, ScanRule::Delta] {
            let ScanCase { q, k, v, g, beta, dy, state, .. } =
                ScanCase::new(rule, shape, Some(0.3));
            let all = |to: &dyn Fn(&Tensor) -> Tensor| {
                let [q, k, v, g, beta, dy] = [&q, &k, &v, &g, &beta, &dy].map(to);
                let (a, d) = (to(&numbers(8, &[2])), to(&numbers(9, &[2])));
                let state = Some(&state);
                let (Scanned { y, state }, grads): (Scanned, Vec<Tensor>) = match rule {
                    ScanRule::Channel => {
                        let o = gla::GlaOperands { q: &q, k: &k, v: &v, g: &g, scale: None };
                        let grads = gla::backward(path, &dy, o).unwrap();
                        (gla::forward(path, o, state).unwrap(), grads.into())
                    }
                    ScanRule::Delta => {
                        let o = delta::DeltaOperands {
                            q: &q,
                            k: &k,
                            v: &v,
                            beta: &beta,
                            g: &g,
                            scale: None,
                        };
                        let grads = delta::backward(path, &dy, o).unwrap();
                        (delta::forward(path, o, state).unwrap(), grads.into())
                    }
                    ScanRule::LowRank => unreachable!("its tests are in dplr.rs"),
                    ScanRule::Scalar => {
                        let o = ssd::SsdOperands { x: &v, dt: &beta, a: &a, b: &k, c: &q, d: &d };
                        let state = state.map(|s| s.transpose(2, 3).contiguous());
                        let grads = ssd::backward(path, &dy, o).unwrap();
                        (ssd::forward(path, o, state.as_ref()).unwrap(), grads.into())
                    }
                };
                (state, [y].into_iter().chain(grads).collect::<Vec<_>>())
            };
            let (state, narrow) = all(&bf16);
            let (want_state, want) = all(&widened);
            assert_eq!(state.kind(), Kind::Float, "{rule:?}");
            assert!(state.equal(&want_state), "{rule:?}");
            for (i, (got, want)) in narrow.iter().zip(&want).enumerate() {
                assert_eq!(got.kind(), Kind::BFloat16, "{rule:?}, result {i}");
                assert!(got.equal(&bf16(want)), "{rule:?}, result {i}");
            }
        }
    }
}

#[test]
fn long_times_and_strong_gates_lose_nothing() {
    for rule in [ScanRule::Channel, ScanRule::Scalar, ScanRule::Delta] {
        for strength in [None, Some(1e-6), Some(1e4), Some(f64::INFINITY)] {
            let shape = Shape { b: 1, t: 1500, h: 1, groups: 1, d: 4, e: 4 };
            let case = ScanCase::new(rule, shape, strength);
            let chunk = if rule == ScanRule::Channel { CHANNEL_CHUNK } else { SCALAR_CHUNK };
            let got = case.chunked(chunk, None);
            let mut want = case.steps(None);
            if strength == Some(f64::INFINITY) {
                // 0 times infinity in the oracle's own gate gradient.
                want[5] = want[5].nan_to_num(0.0, None, None);
            }
            assert_close(&got, &want, 5e-5, &format!("{rule:?} {strength:?}"));
        }
    }
}

/// y alone at T = 16,384, against the explicit recurrence in f64.
#[test]
fn sixteen_thousand_tokens() {
    let shape = Shape { b: 1, t: 16_384, h: 1, groups: 1, d: 4, e: 3 };
    for strength in [Some(1e-7), Some(1000.0), None] {
        for rule in [ScanRule::Channel, ScanRule::Scalar, ScanRule::Delta] {
            let case = ScanCase::new(rule, shape, strength);
            let row = |x: &Tensor| Vec::<f32>::try_from(x.reshape([-1])).unwrap();
            let (q, k, v) = (row(&case.q), row(&case.k), row(&case.v));
            let (g, beta) = (row(&case.g), row(&case.beta));
            let mut s = [[0.0f64; 3]; 4];
            let mut y = Vec::new();
            for t in 0..16_384 {
                for (c, row) in s.iter_mut().enumerate() {
                    let gate = if rule == ScanRule::Channel { g[t * 4 + c] } else { g[t] };
                    row.iter_mut().for_each(|x| *x *= f64::from(gate).exp());
                }
                for j in 0..3 {
                    let mut u = f64::from(v[t * 3 + j]);
                    if rule == ScanRule::Scalar {
                        u *= f64::from(beta[t]);
                    }
                    if rule == ScanRule::Delta {
                        let says: f64 = (0..4).map(|c| s[c][j] * f64::from(k[t * 4 + c])).sum();
                        u = f64::from(beta[t]) * (u - says);
                    }
                    for (c, row) in s.iter_mut().enumerate() {
                        row[j] += f64::from(k[t * 4 + c]) * u;
                    }
                    y.push(0.5 * (0..4).map(|c| s[c][j] * f64::from(q[t * 4 + c])).sum::<f64>());
                }
            }
            let chunk = if rule == ScanRule::Channel { CHANNEL_CHUNK } else { SCALAR_CHUNK };
            let got = case.chunked(chunk, None);
            let want = Tensor::from_slice(&y).reshape([1, 16_384, 1, 3]);
            assert_close(&got[..1], &[want], 2e-5, &format!("{rule:?} {strength:?}"));
        }
    }
}

/// The operands of a scan, and a state before them.
struct Given {
    scan: ScanKind,
    operands: Vec<Tensor>,
    state: Tensor,
}

impl Given {
    fn all([t, d, e]: [i64; 3], strength: Option<f64>) -> [Given; 6] {
        let (b, h, groups) = (2, 4, 2);
        let q = || numbers(1, &[b, t, h, d]);
        let k = || numbers(2, &[b, t, h, d]) / d as f64;
        let v = || numbers(3, &[b, t, h, e]);
        let beta = || numbers(4, &[b, t, h]) * 0.5 + 0.5;
        let by_head = || gates(5, &[b, t, h], strength);
        let by_channel = || gates(6, &[b, t, h, d], strength);
        let group = |seed: i64| numbers(seed, &[b, t, groups, d]);
        let of_head = |x: Tensor| x.reshape([h]);
        let decays = of_head(
            strength.map_or_else(|| -numbers(7, &[h]).abs(), |g| numbers(7, &[h]) * 0.0 - g),
        );
        let given = |scan: ScanKind, operands: Vec<Tensor>| {
            let size = if scan == ScanKind::Ssd { [b, h, e, d] } else { [b, h, d, e] };
            Given { scan, operands, state: numbers(8, &size) }
        };
        [
            given(ScanKind::Delta, vec![q(), k(), v(), beta(), by_head()]),
            given(ScanKind::Dplr, vec![q(), k(), v(), k(), q(), by_channel()]),
            given(ScanKind::Gla, vec![q(), k(), v(), by_channel()]),
            given(ScanKind::Gla, vec![q(), k(), v(), by_head()]),
            given(ScanKind::Rwkv6, vec![q(), k(), v(), by_channel(), numbers(9, &[h, d])]),
            given(
                ScanKind::Ssd,
                vec![v(), beta(), decays, group(10), group(11), numbers(12, &[h])],
            ),
        ]
    }

    fn run(&self, path: Path, kind: Kind, state: Option<&Tensor>) -> Scanned {
        let operands: Vec<Tensor> = self.operands.iter().map(|x| x.to_kind(kind)).collect();
        let operands: Vec<&Tensor> = operands.iter().collect();
        let state = state.map(|state| state.to_kind(kind));
        forward(self.scan, path, &operands, state.as_ref(), Settings::USUAL).unwrap()
    }

    /// Token t alone.
    fn token(&self, t: i64) -> Given {
        let at_token = |x: &Tensor| if x.dim() < 3 { x.shallow_clone() } else { x.narrow(1, t, 1) };
        let operands = self.operands.iter().map(at_token).collect();
        Given { scan: self.scan, operands, state: self.state.shallow_clone() }
    }
}

/// As many tokens as are done one after another, and one more: every scan, with and without a state.
#[test]
fn a_few_tokens_are_step_by_step() {
    let (ours, steps) =
        (path::choose(Kind::Float, Device::Cpu), Path::Reference(path::Reason::Asked));
    let shapes = [[1, 3], [16, 64], [33, 80], [128, 65]];
    let times = 1..=token::FEW as i64 + 1;
    for ([d, e], t) in shapes.into_iter().flat_map(|shape| times.clone().map(move |t| (shape, t))) {
        for strength in [None, Some(0.0), Some(f64::INFINITY)] {
            for given in Given::all([t, d, e], strength) {
                let what = format!("{:?}, {t} tokens, d {d}, e {e}, {strength:?}", given.scan);
                for state in [None, Some(&given.state)] {
                    let got = given.run(ours, Kind::Float, state);
                    let want = given.run(steps, Kind::Double, state);
                    assert_close(&[got.y, got.state], &[want.y, want.state], 2e-5, &what);
                }
            }
        }
    }
}

/// Which a chunk of tokens does not give.
#[test]
fn a_few_tokens_have_the_bits_of_each_alone() {
    let ours = path::choose(Kind::Float, Device::Cpu);
    let time = token::FEW as i64;
    for given in Given::all([time, 33, 80], None) {
        // Its first token reads the given state by libtorch, the others by our kernel.
        if given.scan == ScanKind::Rwkv6 {
            continue;
        }
        let together = given.run(ours, Kind::Float, Some(&given.state));
        let mut state = given.state.shallow_clone();
        for t in 0..time {
            let alone = given.token(t).run(ours, Kind::Float, Some(&state));
            assert!(alone.y.equal(&together.y.narrow(1, t, 1)), "{:?}, token {t}", given.scan);
            state = alone.state;
        }
        assert!(state.equal(&together.state), "{:?}", given.scan);
    }
}
