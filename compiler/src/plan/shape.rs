//! The results of each kernel: the shapes and dtypes in the contract of [`Kernel`], as code.
//!
//! In: a kernel and its operands' values. Out: its results' values, with their names. Must stay
//! true: never panics (a wrong operand count gives a wrong shape, which [`Plan::check`] of the tests
//! reports); agrees with the doc comments of `kernel.rs`.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::{DType, Extent, Kernel, Mixed, Plan, ValId, Value};
use crate::op::Recurrence;

/// The results of `kernel` applied to `inputs`.
pub(crate) fn infer(kernel: &Kernel, inputs: &[&Value]) -> Vec<Value> {
    let dims = |i: usize| inputs.get(i).map_or(&[][..], |v| v.dims.as_slice());
    // A value with the i-th input's shape and dtype, and another name.
    let like = |name: &'static str, i: usize| {
        let dtype = inputs.get(i).map_or(DType::F32, |v| v.dtype);
        value(name, dims(i).to_vec(), dtype)
    };
    let f32 = |name: &'static str, dims: Vec<Extent>| value(name, dims, DType::F32);
    let dtype = |i: usize| inputs.get(i).map_or(DType::F32, |v| v.dtype);
    // The widest dtype among some operands.
    let widest =
        |mut operands: std::ops::Range<usize>| match operands.any(|i| dtype(i) != DType::Bf16) {
            true => DType::F32,
            false => DType::Bf16,
        };
    let number = |name: &'static str, dtype: DType| value(name, Vec::new(), dtype);
    match kernel {
        Kernel::Embed => vec![value("y", join(dims(0), skip(dims(1), 1)), dtype(1))],
        Kernel::EmbedGrad { vocab } => {
            vec![f32("dtable", join(&[Extent::Fixed(*vocab)], skip(dims(0), 2)))]
        }
        Kernel::Linear { bias: _ } => {
            vec![value("y", join(init(dims(0)), &take(dims(1), 1)), dtype(0))]
        }
        Kernel::LinearGradInput => {
            vec![value("dx", join(init(dims(0)), skip(dims(1), 1)), dtype(0))]
        }
        Kernel::LinearGradWeight => vec![f32("dweight", join(skip(dims(0), 2), skip(dims(1), 2)))],
        Kernel::TopK { count, bias: _ } => {
            let chosen = join(init(dims(0)), &[Extent::Fixed(*count)]);
            vec![value("y", chosen.clone(), dtype(0)), value("ids", chosen, DType::I64)]
        }
        Kernel::Scatter { width } => {
            vec![value("dscores", join(init(dims(0)), &[Extent::Fixed(*width)]), dtype(0))]
        }
        Kernel::OneHot { width } => {
            vec![f32("y", join(init(dims(0)), &[Extent::Fixed(*width)]))]
        }
        Kernel::ExpertLinear { bias: _ } => {
            let out = dims(2).get(1).copied();
            vec![value("y", dims(1).iter().copied().chain(out).collect(), dtype(0))]
        }
        Kernel::ExpertLinearGradInput => {
            vec![value("dx", join(dims(1), skip(dims(2), 2)), dtype(0))]
        }
        Kernel::ExpertLinearGradWeight { experts } => {
            let outer = [Some(Extent::Fixed(*experts)), dims(0).last().copied()];
            let last = dims(2).last().copied();
            vec![f32("dweight", outer.into_iter().chain([last]).flatten().collect())]
        }
        Kernel::ExpertSum { experts } => {
            let dims = [Some(Extent::Fixed(*experts)), dims(0).last().copied()];
            vec![f32("dbias", dims.into_iter().flatten().collect())]
        }
        Kernel::MeanTokens => vec![f32("mean", skip(dims(0), 2).to_vec())],
        Kernel::MeanTokensGrad => vec![like("dx", 1)],
        Kernel::SumTokens => vec![f32("sum", skip(dims(0), 2).to_vec())],
        Kernel::RmsNorm { eps: _ } => vec![like("y", 0), f32("rstd", init(dims(0)).to_vec())],
        Kernel::RmsNormGrad => vec![like("dx", 1), f32("dweight", dims(2).to_vec())],
        Kernel::L2Norm { eps: _ } => vec![like("y", 0), f32("rnorm", init(dims(0)).to_vec())],
        Kernel::L2NormGrad => vec![like("dx", 1)],
        Kernel::Pointwise(_) => vec![like("y", 0)],
        Kernel::PointwiseGrad(_) => vec![like("dx", 0)],
        // Sums of losses.
        Kernel::Add if dtype(0) == DType::F64 => vec![like("y", 0)],
        Kernel::Add | Kernel::Mul => {
            let wide = if dims(1).len() > dims(0).len() { 1 } else { 0 };
            vec![value("y", dims(wide).to_vec(), widest(0..2))]
        }
        Kernel::Scale { by: _ } | Kernel::Offset { by: _ } => vec![like("y", 0)],
        Kernel::Dropout { rate: _, place: _ } => vec![like("y", 0)],
        Kernel::Softmax => vec![like("y", 0)],
        Kernel::SoftmaxGrad => vec![like("dx", 1)],
        Kernel::SumChannels { keep } => {
            let one = keep.then_some(Extent::Fixed(1));
            vec![value("sum", init(dims(0)).iter().copied().chain(one).collect(), dtype(0))]
        }
        Kernel::Spread { width, kept } => {
            let outer = if *kept { init(dims(0)) } else { dims(0) };
            vec![value("y", join(outer, &[Extent::Fixed(*width)]), dtype(0))]
        }
        Kernel::Index { count } => vec![f32("index", vec![Extent::Fixed(*count)])],
        Kernel::MixHeads { part: Mixed::Heads, one } => {
            let made = skip(dims(1), dims(1).len().saturating_sub(usize::from(!one)));
            let y = [take(dims(0), 2), made.to_vec(), skip(dims(0), 3).to_vec()].concat();
            vec![value("y", y, dtype(0))]
        }
        Kernel::MixHeads { part: Mixed::Input, one } => {
            let from = dims(1).len().saturating_sub(if *one { 1 } else { 2 });
            let heads: Vec<Extent> = skip(dims(1), from).iter().take(1).copied().collect();
            let width = skip(dims(0), if *one { 2 } else { 3 }).to_vec();
            vec![value("dx", [take(dims(0), 2), heads, width].concat(), dtype(0))]
        }
        Kernel::MixHeads { part: Mixed::Weights, one } => {
            let made = if *one { &[][..] } else { skip(init(dims(0)), 2) };
            vec![value("dweights", join(init(dims(1)), made), widest(0..2))]
        }
        Kernel::Ngram { order, rows: _, state: _ } => vec![
            value("rows", take(dims(0), 2), DType::I64),
            f32("whole", take(dims(0), 2)),
            value("past", vec![Extent::Batch, Extent::Fixed(order - 1)], DType::I64),
        ],
        Kernel::Shift { state: _ } => vec![like("y", 0)],
        Kernel::ShiftGrad => vec![like("dx", 0)],
        Kernel::SwiGlu => vec![like("y", 0)],
        Kernel::SwiGluGrad => vec![like("dgate", 1), like("dup", 2)],
        Kernel::GatedRmsNorm { eps: _, gate: _ } => {
            vec![like("y", 0), f32("rstd", init(dims(0)).to_vec())]
        }
        Kernel::GatedRmsNormGrad { gate: _ } => {
            vec![like("dx", 1), like("dgate", 2), f32("dweight", dims(3).to_vec())]
        }
        Kernel::Reshape { dims: to } => {
            vec![value("view", join(&take(dims(0), 2), &fixed(to)), dtype(0))]
        }
        Kernel::Concat => {
            let width = (0..inputs.len()).map(|i| extent(dims(i).last())).sum();
            vec![value("y", join(init(dims(0)), &[Extent::Fixed(width)]), widest(0..inputs.len()))]
        }
        Kernel::Split { widths } => {
            let part = |w: &i64| value("part", join(init(dims(0)), &[Extent::Fixed(*w)]), dtype(0));
            widths.iter().map(part).collect()
        }
        Kernel::Cast { to } => vec![value("y", dims(0).to_vec(), *to)],
        Kernel::Zeros { dims } => vec![f32("zeros", dims.clone())],
        Kernel::RepeatHeads { times } => {
            vec![value("y", per_head(dims(0), |h| h * times), dtype(0))]
        }
        Kernel::RepeatHeadsGrad { times } => {
            vec![value("dx", per_head(dims(0), |h| h / (*times).max(1)), dtype(0))]
        }
        Kernel::Rope { theta: _, dims: _, layout: _, inverse, scaling: _ } => {
            vec![like(if *inverse { "dx" } else { "y" }, 0)]
        }
        Kernel::Attention(_) => {
            let y = join(&take(dims(0), 3), skip(dims(2), 3));
            let lse = [0, 2, 1].iter().filter_map(|i| dims(0).get(*i)).copied().collect();
            vec![value("y", y, dtype(0)), f32("lse", lse)]
        }
        Kernel::AttentionGrad(scores) => {
            let extra =
                |named: bool, name, at: usize| named.then(|| f32(name, dims(6 + at).to_vec()));
            [like("dq", 1), like("dk", 2), like("dv", 3)]
                .into_iter()
                .chain(extra(scores.sink, "dsink", 0))
                .chain(extra(scores.slopes, "dslopes", usize::from(scores.sink)))
                .collect()
        }
        Kernel::AppendTime => {
            let seen = match dims(0).get(1) {
                Some(Extent::CacheLen(window)) => Extent::KvLen(*window),
                other => other.copied().unwrap_or(Extent::Time),
            };
            vec![value("seen", join(&[Extent::Batch, seen], skip(dims(1), 2)), dtype(0))]
        }
        Kernel::LastTime { rows } => {
            let dims = join(&[Extent::Batch, Extent::NewCacheLen(*rows)], skip(dims(0), 2));
            vec![value("kept", dims, dtype(0))]
        }
        Kernel::CausalConv { parts, kernel: _, residual: _, activation: _, bias: _, state: _ } => {
            (0..*parts).map(|i| like("y", i)).collect()
        }
        Kernel::CausalConvGrad { parts, bias, kernel: _, residual: _, activation: _ } => (0
            ..*parts)
            .map(|i| like("dx", parts + i))
            .chain([f32("dweight", dims(2 * parts).to_vec())])
            .chain(bias.then(|| f32("dbias", dims(2 * parts + 1).to_vec())))
            .collect(),
        Kernel::CausalConvState { kernel, parts, state: _ } => {
            let width = (0..*parts).map(|i| extent(dims(i).last())).sum();
            let dims = vec![Extent::Batch, Extent::Fixed(kernel - 1), Extent::Fixed(width)];
            vec![value("state", dims, dtype(0))]
        }
        Kernel::ConvSwiGlu { kernel: _, residual: _, bias: _, state: _ } => vec![like("y", 0)],
        Kernel::ConvSwiGluGrad { kernel: _, residual: _, bias } => {
            [like("dgate", 1), like("dup", 2), f32("dweight", dims(3).to_vec())]
                .into_iter()
                .chain(bias.then(|| f32("dbias", dims(4).to_vec())))
                .collect()
        }
        Kernel::Scan { scan, state: _, scale: _, steps } => {
            let Recurrence { result, rows, columns, .. } = *scan.definition();
            let y = per_head(dims(result), |h| h / (*steps).max(1));
            vec![value("y", y, dtype(result)), f32("state", matrix(dims(rows), dims(columns)))]
        }
        Kernel::ScanGrad { scan, scale: _, steps: _ } => {
            let named = |(i, name): (usize, &&str)| Value {
                name: Cow::Owned(format!("d{name}")),
                ..like("", i + 1)
            };
            scan.definition().operands.iter().enumerate().map(named).collect()
        }
        Kernel::CrossEntropy { nll_square: _, z_loss: _ } => vec![
            f32("nll", take(dims(0), 2)),
            f32("lse", take(dims(0), 2)),
            number("loss", DType::F64),
            number("counted", DType::I64),
        ],
        Kernel::ShiftTargets { by: _ } => vec![like("targets", 0)],
        Kernel::CrossEntropyGrad { nll_square: _, z_loss: _, weight: _ } => {
            vec![like("dlogits", 0)]
        }
        Kernel::Argmax => vec![value("argmax", take(dims(0), 2), DType::I64)],
        Kernel::HeadLoss { bias: _, nll_square: _, z_loss: _, rows: _ } => vec![
            f32("nll", take(dims(0), 2)),
            number("loss", DType::F64),
            number("counted", DType::I64),
            value("argmax", take(dims(0), 2), DType::I64),
        ],
        Kernel::HeadLossGrad { bias, nll_square: _, z_loss: _, rows: _, weight: _ } => {
            [number("loss", DType::F64), number("counted", DType::I64)]
                .into_iter()
                .chain([like("dx", 0), f32("dweight", dims(1).to_vec())])
                .chain(bias.then(|| f32("dbias", dims(2).to_vec())))
                .collect()
        }
        Kernel::Accumulate => vec![like("sum", 0)],
        Kernel::GradNorm => vec![number("norm", DType::F64)],
        Kernel::Clip { max: _ } => vec![number("coefficient", DType::F64)],
        Kernel::AdamW { beta1: _, beta2: _, eps: _, decay: _, rate: _ } => {
            vec![like("p", 0), like("m", 2), like("v", 3)]
        }
        Kernel::Muon { muon: _, decay: _, rate: _ } => vec![like("p", 0), like("m", 2)],
    }
}

fn value(name: &'static str, dims: Vec<Extent>, dtype: DType) -> Value {
    Value { name: Cow::Borrowed(name), dims, dtype }
}

fn skip(dims: &[Extent], n: usize) -> &[Extent] {
    dims.get(n..).unwrap_or(&[])
}

fn take(dims: &[Extent], n: usize) -> Vec<Extent> {
    dims.iter().take(n).copied().collect()
}

/// All elements except the last.
fn init(dims: &[Extent]) -> &[Extent] {
    dims.split_last().map_or(&[], |(_, init)| init)
}

fn join(a: &[Extent], b: &[Extent]) -> Vec<Extent> {
    a.iter().chain(b).copied().collect()
}

fn fixed(dims: &[i64]) -> Vec<Extent> {
    dims.iter().map(|d| Extent::Fixed(*d)).collect()
}

fn extent(dim: Option<&Extent>) -> i64 {
    match dim {
        Some(Extent::Fixed(n)) => *n,
        Some(
            Extent::Batch
            | Extent::Time
            | Extent::CacheLen(_)
            | Extent::KvLen(_)
            | Extent::NewCacheLen(_),
        )
        | None => 0,
    }
}

/// [b, t, h, d] with another number of heads.
fn per_head(dims: &[Extent], heads: impl Fn(i64) -> i64) -> Vec<Extent> {
    let mut dims = dims.to_vec();
    if let Some(h) = dims.get_mut(2) {
        *h = Extent::Fixed(heads(extent(Some(h))));
    }
    dims
}

/// Combines [b, t, h, rows] and [b, t, _, columns] to [b, h, rows, columns].
fn matrix(rows: &[Extent], columns: &[Extent]) -> Vec<Extent> {
    join(&[Extent::Batch], &join(skip(rows, 2), skip(columns, 3)))
}

impl Plan {
    /// Checks the plan: values are written once and before they are read, results have the shapes of
    /// their kernel, nothing is read after it was dropped, nothing is dropped twice.
    pub fn check(&self) -> Result<(), String> {
        let mut state = vec![Life::Unborn; self.values.len()];
        let kept: BTreeSet<ValId> = self.outputs.iter().map(|(_, id)| *id).collect();
        for (_, id) in &self.inputs {
            set(&mut state, *id, Life::Unborn, Life::Given).map_err(|e| format!("input {e}"))?;
        }
        for (n, step) in self.steps.iter().enumerate() {
            let here = |e: String| format!("step {n} ({}): {e}", step.kernel.name());
            let mut operands = Vec::with_capacity(step.inputs.len());
            for id in &step.inputs {
                match (state.get(id.0 as usize), self.value(*id)) {
                    (Some(Life::Given | Life::Made), Some(value)) => operands.push(value),
                    (life, _) => return Err(here(format!("reads %{}, {life:?}", id.0))),
                }
            }
            for number in step.kernel.host_numbers() {
                let given = step.inputs.get(*number);
                if !self.inputs.iter().any(|(_, id)| Some(id) == given) {
                    return Err(here(format!("operand {number} is read on the CPU, but computed")));
                }
            }
            let made = infer(&step.kernel, &operands);
            if made.len() != step.outputs.len() {
                return Err(here(format!("{} outputs, not {}", step.outputs.len(), made.len())));
            }
            for (id, made) in step.outputs.iter().zip(&made) {
                set(&mut state, *id, Life::Unborn, Life::Made).map_err(here)?;
                match self.value(*id) {
                    Some(v) if v.dims == made.dims && v.dtype == made.dtype => {}
                    other => return Err(here(format!("%{} is {other:?}, not {made:?}", id.0))),
                }
            }
            for id in &step.drop_after {
                if kept.contains(id) {
                    return Err(here(format!("drops the output %{}", id.0)));
                }
                set(&mut state, *id, Life::Made, Life::Dropped).map_err(here)?;
            }
        }
        for id in &kept {
            match state.get(id.0 as usize) {
                Some(Life::Given | Life::Made) => {}
                life => return Err(format!("output %{} is {life:?}", id.0)),
            }
        }
        let left = state.iter().enumerate().filter(|(_, life)| **life == Life::Made);
        match left.map(|(at, _)| ValId(at as u32)).find(|id| !kept.contains(id)) {
            Some(id) => Err(format!("%{} is never dropped", id.0)),
            None => Ok(()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Unborn,
    Given,
    Made,
    Dropped,
}

fn set(state: &mut [Life], id: ValId, from: Life, to: Life) -> Result<(), String> {
    match state.get_mut(id.0 as usize) {
        Some(life) if *life == from => {
            *life = to;
            Ok(())
        }
        life => Err(format!("%{} is {life:?}, not {from:?}", id.0)),
    }
}
