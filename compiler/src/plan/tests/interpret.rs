//! Executes a plan step by step; kernels are grouped in files by kind.

use std::collections::BTreeMap;

use super::tensor::Tensor;
use super::{dropout, experts, moves, norms, optimizer, scans, time};
use crate::number::Root;
use crate::plan::{Input, Kernel, Output, Plan, Sizes, ValId};

/// Every output of a plan. Panics if the plan is wrong: an operand is missing or dropped, or a shape
/// is not the declared one.
pub(super) fn run(plan: &Plan, inputs: &BTreeMap<Input, Tensor>) -> BTreeMap<Output, Tensor> {
    let mut sizes = Sizes { batch: 0, time: 0, past: 0 };
    if let Some(tokens) = inputs.get(&Input::Tokens) {
        sizes = Sizes { batch: tokens.dims[0] as i64, time: tokens.dims[1] as i64, past: 0 };
    }
    if let Some(position) = inputs.get(&Input::Position) {
        sizes.past = position.data[0] as i64;
    }
    let mut values: Vec<Option<Tensor>> = vec![None; plan.values.len()];
    for (input, id) in &plan.inputs {
        let value = inputs.get(input).unwrap_or_else(|| panic!("no {input}"));
        fits(plan, *id, value, sizes);
        values[id.0 as usize] = Some(value.clone());
    }
    for (n, step) in plan.steps.iter().enumerate() {
        let operands: Vec<&Tensor> = step
            .inputs
            .iter()
            .map(|id| values[id.0 as usize].as_ref().unwrap_or_else(|| panic!("%{} at {n}", id.0)))
            .collect();
        let results = apply(&step.kernel, &operands, sizes);
        assert_eq!(results.len(), step.outputs.len(), "{}", step.kernel.name());
        for (id, result) in step.outputs.iter().zip(results) {
            fits(plan, *id, &result, sizes);
            values[id.0 as usize] = Some(result);
        }
        for id in &step.drop_after {
            values[id.0 as usize] = None;
        }
    }
    let given: Vec<ValId> = plan.inputs.iter().map(|(_, id)| *id).collect();
    let kept: Vec<ValId> = plan.outputs.iter().map(|(_, id)| *id).collect();
    for (n, value) in values.iter().enumerate() {
        let id = ValId(n as u32);
        let leaks = value.is_some() && !given.contains(&id) && !kept.contains(&id);
        assert!(!leaks, "%{n} is left");
    }
    let result = |id: &ValId| values[id.0 as usize].clone().unwrap_or_else(|| panic!("%{}", id.0));
    plan.outputs.iter().map(|(output, id)| (*output, result(id))).collect()
}

fn fits(plan: &Plan, id: ValId, tensor: &Tensor, sizes: Sizes) {
    let value = &plan.values[id.0 as usize];
    let dims: Vec<usize> = value.dims.iter().map(|d| d.at(sizes) as usize).collect();
    assert_eq!(tensor.dims, dims, "%{} {}", id.0, value.name);
}

fn apply(kernel: &Kernel, x: &[&Tensor], sizes: Sizes) -> Vec<Tensor> {
    match kernel {
        Kernel::Embed => vec![moves::embed(x[0], x[1])],
        Kernel::EmbedGrad { vocab } => vec![moves::embed_grad(x[0], x[1], *vocab as usize)],
        Kernel::Linear { bias } => vec![norms::linear(x[0], x[1], bias.then(|| x[2]))],
        Kernel::LinearGradInput => vec![norms::linear_grad_input(x[0], x[1])],
        Kernel::LinearGradWeight => vec![norms::linear_grad_weight(x[0], x[1])],
        Kernel::TopK { count, bias } => experts::top_k(x[0], bias.then(|| x[1]), *count as usize),
        Kernel::Scatter { width } => vec![experts::scatter(x[0], x[1], *width as usize)],
        Kernel::OneHot { width } => {
            vec![experts::scatter(&x[0].map(|_| 1.0), x[0], *width as usize)]
        }
        Kernel::ExpertLinear { bias } => vec![experts::linear(x, bias.then(|| x[3]))],
        Kernel::ExpertLinearGradInput => vec![experts::grad_input(x[0], x[1], x[2])],
        Kernel::ExpertLinearGradWeight { experts } => {
            vec![experts::grad_weight(x[0], x[1], x[2], *experts as usize)]
        }
        Kernel::ExpertSum { experts } => vec![experts::sum(x[0], x[1], *experts as usize)],
        Kernel::MeanTokens => {
            let tokens = (x[0].dims[0] * x[0].dims[1]) as f64;
            vec![moves::sum_tokens(x[0]).map(|sum| sum / tokens)]
        }
        Kernel::MeanTokensGrad => {
            let (tokens, width) = ((x[1].dims[0] * x[1].dims[1]) as f64, x[0].data.len());
            vec![Tensor::from_fn(x[1].dims.clone(), |i| x[0].data[i % width] / tokens)]
        }
        Kernel::SumTokens => vec![moves::sum_tokens(x[0])],
        Kernel::RmsNorm { eps } => norms::norm(x[0], Some(x[1]), eps.to_f64()),
        Kernel::RmsNormGrad => norms::rms_norm_grad(x[0], x[1], x[2], x[3]),
        Kernel::L2Norm { eps } => norms::norm(x[0], None, eps.to_f64()),
        Kernel::L2NormGrad => vec![norms::l2_norm_grad(x[0], x[1], x[2])],
        Kernel::Pointwise(f) => vec![x[0].map(|x| (f.definition().value)(x))],
        Kernel::PointwiseGrad(f) => {
            vec![norms::zip(x[0], x[1], |dy, s| dy * (f.definition().slope)(s))]
        }
        Kernel::Add => vec![norms::zip(x[0], x[1], |a, b| a + b)],
        Kernel::Mul => vec![norms::zip(x[0], x[1], |a, b| a * b)],
        Kernel::Scale { by } => vec![x[0].map(|x| by.to_f64() * x)],
        Kernel::Offset { by } => vec![x[0].map(|x| by.to_f64() + x)],
        Kernel::Dropout { rate, place } => vec![dropout::dropout(x, rate.to_f64(), place)],
        Kernel::Softmax => vec![norms::softmax(x[0])],
        Kernel::SoftmaxGrad => vec![norms::softmax_grad(x[0], x[1])],
        Kernel::SumChannels { keep } => vec![norms::sum_channels(x[0], *keep)],
        Kernel::Spread { width, kept } => vec![moves::spread(x[0], *width as usize, *kept)],
        Kernel::Index { count } => vec![Tensor::from_fn(vec![*count as usize], |i| i as f64)],
        Kernel::MixHeads { part, one } => vec![moves::mix_heads(x[0], x[1], *part, *one)],
        Kernel::Ngram { order, rows, state } => {
            moves::ngram(x[0], state.then(|| x[1]), *order as usize, *rows as u64)
        }
        Kernel::Shift { state } => vec![time::shift(x[0], state.then(|| x[1]))],
        Kernel::ShiftGrad => vec![time::shift_grad(x[0])],
        Kernel::SwiGlu => vec![norms::swiglu(x[0], x[1])],
        Kernel::SwiGluGrad => norms::swiglu_grad(x[0], x[1], x[2]),
        Kernel::GatedRmsNorm { eps, gate } => {
            norms::gated_norm(x[0], x[1], x[2], eps.to_f64(), *gate)
        }
        Kernel::GatedRmsNormGrad { gate } => norms::gated_norm_grad(x, *gate),
        Kernel::Reshape { dims } => vec![moves::reshape(x[0], dims)],
        Kernel::Concat => vec![moves::concat(x)],
        Kernel::Split { widths } => moves::split(x[0], widths),
        Kernel::Zeros { dims } => {
            vec![Tensor::zeros(dims.iter().map(|d| d.at(sizes) as usize).collect())]
        }
        // Exact: the interpreter checks the mathematics; rounding is tested by the runtime.
        Kernel::Cast { to: _ } => vec![x[0].clone()],
        Kernel::RepeatHeads { times } => vec![moves::repeat_heads(x[0], *times as usize)],
        Kernel::RepeatHeadsGrad { times } => vec![moves::repeat_heads_grad(x[0], *times as usize)],
        Kernel::Rope { theta, dims, layout, inverse, scaling } => {
            let sign = if *inverse { -1.0 } else { 1.0 };
            vec![time::rope(
                x[0],
                x[1].data[0],
                (theta.to_f64(), *scaling),
                *dims as usize,
                *layout,
                sign,
            )]
        }
        Kernel::Attention(scores) => time::attention(x, scores),
        Kernel::AttentionGrad(scores) => time::attention_grad(x, scores),
        Kernel::AppendTime => vec![x[0].append(x[1])],
        Kernel::LastTime { rows } => {
            let time = x[0].dims[1];
            vec![x[0].times(time.saturating_sub(*rows as usize), time)]
        }
        Kernel::CausalConv { kernel, residual, activation, parts, bias, state } => {
            let kernel = *kernel as usize;
            let conv = time::Conv { kernel, residual: *residual, activation: *activation };
            let past = state.then(|| x[parts + 1 + usize::from(*bias)]);
            conv.forward(&x[..*parts], x[*parts], bias.then(|| x[parts + 1]), past)
        }
        Kernel::CausalConvGrad { kernel, residual, activation, parts, bias } => {
            let kernel = *kernel as usize;
            let conv = time::Conv { kernel, residual: *residual, activation: *activation };
            let bias = bias.then(|| x[2 * parts + 1]);
            conv.backward(&x[..*parts], &x[*parts..2 * parts], x[2 * parts], bias)
        }
        Kernel::CausalConvState { kernel, parts, state } => {
            let past = state.then(|| x[*parts]);
            vec![time::conv_state(&x[..*parts], past, *kernel as usize)]
        }
        Kernel::ConvSwiGlu { kernel, residual, bias, state } => {
            let conv = time::Conv::plain(*kernel, *residual);
            let past = state.then(|| x[3 + usize::from(*bias)]);
            let made = conv.forward(&x[..2], x[2], bias.then(|| x[3]), past);
            vec![norms::swiglu(&made[0], &made[1])]
        }
        Kernel::ConvSwiGluGrad { kernel, residual, bias } => {
            let conv = time::Conv::plain(*kernel, *residual);
            let bias = bias.then(|| x[4]);
            let made = conv.forward(&x[1..3], x[3], bias, None);
            let slopes = norms::swiglu_grad(x[0], &made[0], &made[1]);
            conv.backward(&[&slopes[0], &slopes[1]], &x[1..3], x[3], bias)
        }
        Kernel::Scan { scan, state, scale, steps } => {
            let settings = scans::Settings { scale: scale.map(Root::to_f64), steps: *steps };
            scans::forward(scan.definition(), x, *state, settings)
        }
        Kernel::ScanGrad { scan, scale, steps } => {
            let settings = scans::Settings { scale: scale.map(Root::to_f64), steps: *steps };
            scans::backward(scan.definition(), x, settings)
        }
        Kernel::CrossEntropy { nll_square, z_loss } => {
            optimizer::cross_entropy(x[0], x[1], nll_square.to_f64(), z_loss.to_f64())
        }
        Kernel::ShiftTargets { by } => vec![time::shift_targets(x[0], *by as usize)],
        Kernel::CrossEntropyGrad { nll_square, z_loss, weight } => {
            let d = optimizer::cross_entropy_grad(x, nll_square.to_f64(), z_loss.to_f64());
            vec![d.map(|d| weight.to_f64() * d)]
        }
        Kernel::Argmax => vec![optimizer::argmax(x[0])],
        Kernel::HeadLoss { bias, nll_square, z_loss, rows: _ } => {
            let logits = norms::linear(x[0], x[1], bias.then(|| x[2]));
            let targets = x[2 + usize::from(*bias)];
            let [nll, _, loss, counted]: [Tensor; 4] =
                optimizer::cross_entropy(&logits, targets, nll_square.to_f64(), z_loss.to_f64())
                    .try_into()
                    .unwrap();
            vec![nll, loss, counted, optimizer::argmax(&logits)]
        }
        Kernel::HeadLossGrad { bias, nll_square, z_loss, rows: _, weight } => {
            let logits = norms::linear(x[0], x[1], bias.then(|| x[2]));
            let [targets, scale] = [0, 1].map(|i| x[2 + usize::from(*bias) + i]);
            let terms = [nll_square, z_loss].map(|term| term.to_f64());
            let [nll, lse, loss, counted]: [Tensor; 4] =
                optimizer::cross_entropy(&logits, targets, terms[0], terms[1]).try_into().unwrap();
            let operands = [&logits, targets, &nll, &lse, scale];
            let d = optimizer::cross_entropy_grad(&operands, terms[0], terms[1]);
            let d = d.map(|d| weight.to_f64() * d);
            let dx = norms::linear_grad_input(&d, x[1]);
            let dweight = norms::linear_grad_weight(&d, x[0]);
            let dbias = bias.then(|| moves::sum_tokens(&d));
            [loss, counted, dx, dweight].into_iter().chain(dbias).collect()
        }
        Kernel::Accumulate => vec![norms::zip(x[0], x[1], |a, b| a + b)],
        Kernel::GradNorm => vec![optimizer::norm(x)],
        Kernel::Clip { max } => {
            let clipped = |max: f64| (max / (x[0].data[0] + 1e-6)).min(1.0);
            vec![Tensor::number(max.map_or(1.0, |max| clipped(max.to_f64())))]
        }
        Kernel::Muon { muon, decay, rate } => {
            optimizer::muon(x, *muon, decay.to_f64(), rate.to_f64())
        }
        Kernel::AdamW { beta1, beta2, eps, decay, rate } => {
            optimizer::adamw(x, [beta1, beta2, eps, decay, rate].map(|d| d.to_f64()))
        }
    }
}
