//! One step: calls the runtime's kernel for a kernel of the plan.
//!
//! In: the kernel with its attributes, its choice, its operands. Out: its results, in the plan's order. Must stay true:
//! the match is exhaustive; the choice is followed, never reconsidered.

use std::cell::RefCell;

use compiler::number::Root;
use compiler::plan::{Kernel, Scores, Sizes};
use dsl::Decimal;
use records::dropout::Mask;
use tch::Tensor;

use super::{Choice, Machine};
use crate::kernels::linear::Product;
use crate::kernels::path::Path;
use crate::kernels::{
    KernelError, arrange, attention, canon, channels, cuda, dropout, experts, gated_norm,
    head_loss, l2_norm, linear, loss, mix_heads, muon, ngram, norm, pointwise, rope, scan, swiglu,
    transfer, update,
};

/// Everything that a step may depend on, except its operands.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) machine: Machine,
    pub(super) sizes: Sizes,
    /// Whether the first operand's memory may hold a result.
    pub(super) consumes_first: bool,
    /// Where AdamW also writes the parameter in bf16.
    pub(super) copy: Option<&'a Tensor>,
    pub(super) tables: &'a RefCell<rope::Tables>,
    /// If the rows are those of several sequences, one after another.
    pub(super) each: Option<Each<'a>>,
}

/// What rows of several sequences have of their own.
#[derive(Clone, Copy, Default)]
pub(super) struct Each<'a> {
    /// The position of each sequence's first row, and how many it has.
    pub(super) positions: &'a [(i64, i64)],
    /// The keys that each sequence's query sees, and their values.
    pub(super) keys: &'a [&'a Tensor],
    pub(super) values: &'a [&'a Tensor],
}

pub(super) fn run(
    kernel: &Kernel,
    choice: Choice,
    operands: &[&Tensor],
    context: &Context<'_>,
) -> Result<Vec<Tensor>, KernelError> {
    // Operand i of the kernel's contract.
    let x = |i: usize| -> Result<&Tensor, KernelError> {
        operands.get(i).copied().ok_or_else(|| wrong(format!("operand {i} is missing")))
    };
    let number = |i: usize| -> Result<f64, KernelError> { transfer::given(x(i)?) };
    let integer = |i: usize| -> Result<i64, KernelError> { transfer::given_integer(x(i)?) };
    let ours = || {
        let Choice::Ours(path) = choice else { return Err(not_for(choice)) };
        Ok(path)
    };
    let product = || {
        let Choice::Product(product) = choice else { return Err(not_for(choice)) };
        Ok(product)
    };
    Ok(match kernel {
        Kernel::Embed => vec![linear::embed(x(0)?, x(1)?)?],
        Kernel::EmbedGrad { vocab } => vec![if let Choice::Ours(Path::Cuda(_)) = choice {
            let launcher = cuda::launcher(x(0)?.device())?;
            cuda::sums::embed_backward(launcher, x(0)?, x(1)?, *vocab)?
        } else {
            linear::embed_grad(x(0)?, x(1)?, *vocab)?
        }],
        Kernel::Linear { bias } => {
            let bias = if *bias { Some(x(2)?) } else { None };
            vec![linear::linear(product()?, x(0)?, x(1)?, bias)?]
        }
        Kernel::LinearGradInput => vec![linear::linear_grad_input(product()?, x(0)?, x(1)?)?],
        Kernel::LinearGradWeight => vec![linear::linear_grad_weight(product()?, x(0)?, x(1)?)?],
        Kernel::SumTokens => vec![linear::sum_tokens(ours()?, x(0)?)?],
        Kernel::MeanTokens => vec![channels::mean_tokens(ours()?, x(0)?)?],
        Kernel::MeanTokensGrad => vec![channels::mean_tokens_grad(x(0)?, x(1)?)?],

        Kernel::TopK { count, bias } => {
            let bias = if *bias { Some(x(1)?) } else { None };
            let (y, ids) = experts::top_k(x(0)?, bias, *count)?;
            vec![y, ids]
        }
        Kernel::Scatter { width } => vec![experts::scatter(x(0)?, x(1)?, *width)?],
        Kernel::OneHot { width } => vec![experts::one_hot(x(0)?, *width, context.machine.kind)?],
        Kernel::ExpertLinear { bias } => {
            let bias = if *bias { Some(x(3)?) } else { None };
            vec![experts::forward(experts_form(choice)?, x(0)?, x(1)?, x(2)?, bias)?]
        }
        Kernel::ExpertLinearGradInput => {
            vec![experts::grad_input(experts_form(choice)?, x(0)?, x(1)?, x(2)?)?]
        }
        Kernel::ExpertLinearGradWeight { experts } => {
            vec![experts::grad_weight(experts_form(choice)?, x(0)?, x(1)?, x(2)?, *experts)?]
        }
        Kernel::ExpertSum { experts } => vec![experts::sum(ours()?, x(0)?, x(1)?, *experts)?],

        Kernel::RmsNorm { eps } => {
            let (y, rstd) = norm::rms_norm(ours()?, x(0)?, x(1)?, eps.to_f64())?;
            vec![y, rstd]
        }
        Kernel::RmsNormGrad => {
            let (dx, dweight) = norm::rms_norm_grad(ours()?, x(0)?, x(1)?, x(2)?, x(3)?)?;
            vec![dx, dweight]
        }
        Kernel::L2Norm { eps } => {
            let (y, rnorm) = l2_norm::forward(ours()?, x(0)?, eps.to_f64())?;
            vec![y, rnorm]
        }
        Kernel::L2NormGrad => vec![l2_norm::backward(ours()?, x(0)?, x(1)?, x(2)?)?],

        Kernel::Pointwise(function) => vec![pointwise::apply(*function, x(0)?)?],
        Kernel::PointwiseGrad(function) => {
            vec![match (choice, pointwise::single_gradient(*function)) {
                (Choice::SingleOperation, Some(gradient)) => gradient(x(0)?, x(1)?)?,
                (Choice::SingleOperation, None) => return Err(not_for(choice)),
                (_, _) => pointwise::gradient(*function, x(0)?, x(1)?)?,
            }]
        }
        // If ranks differ, the smaller one is broadcast over the other's leading axes.
        Kernel::Add => vec![x(0)?.f_add(x(1)?)?],
        Kernel::Mul => vec![x(0)?.f_mul(x(1)?)?],
        Kernel::Scale { by } => vec![x(0)?.f_mul_scalar(by.to_f64())?],
        Kernel::Offset { by } => vec![x(0)?.f_add_scalar(by.to_f64())?],
        Kernel::Dropout { rate, place } => {
            let mask = Mask::new(integer(1)? as u64, place, rate.to_f64());
            vec![dropout::run(ours()?, x(0)?, mask, integer(2)?)?]
        }
        Kernel::Softmax => vec![channels::softmax(x(0)?)?],
        Kernel::SoftmaxGrad => vec![channels::softmax_grad(x(0)?, x(1)?)?],
        Kernel::SumChannels { keep } => vec![channels::sum(x(0)?, *keep)?],
        Kernel::Spread { width, kept } => vec![channels::spread(x(0)?, *width, *kept)?],
        Kernel::MixHeads { part, one } => vec![mix_heads::run(*part, *one, x(0)?, x(1)?)?],
        Kernel::Ngram { order, rows, state } => {
            let past = if *state { Some(x(1)?) } else { None };
            ngram::run(x(0)?, past, *order, *rows, context.machine.kind)?.into()
        }
        Kernel::SwiGlu => vec![swiglu::forward(ours()?, x(0)?, x(1)?)?],
        Kernel::SwiGluGrad => {
            let (dgate, dup) = swiglu::backward(ours()?, x(0)?, x(1)?, x(2)?)?;
            vec![dgate, dup]
        }
        Kernel::GatedRmsNorm { eps, gate } => {
            let operands = gated_norm::Operands { x: x(0)?, gate: x(1)?, weight: x(2)? };
            let (y, rstd) = gated_norm::forward(ours()?, operands, eps.to_f64(), *gate)?;
            vec![y, rstd]
        }
        Kernel::GatedRmsNormGrad { gate } => {
            let operands = gated_norm::Operands { x: x(1)?, gate: x(2)?, weight: x(3)? };
            gated_norm::backward(ours()?, x(0)?, operands, x(4)?, *gate)?.into()
        }

        Kernel::Reshape { dims } => vec![arrange::reshape(x(0)?, dims)?],
        Kernel::Concat => vec![Tensor::f_cat(operands, -1)?],
        Kernel::Split { widths } => x(0)?.f_split_with_sizes(widths, -1)?,
        Kernel::Zeros { dims } => {
            let dims: Vec<i64> = dims.iter().map(|d| d.at(context.sizes)).collect();
            let Machine { kind, device, kernels: _ } = context.machine;
            vec![Tensor::f_zeros(dims, (kind, device))?]
        }
        Kernel::Index { count } => {
            let Machine { kind, device, kernels: _ } = context.machine;
            vec![Tensor::f_arange(*count, (kind, device))?]
        }
        Kernel::Cast { to } => {
            let kind = context.machine.kind_of(*to);
            // Not a view, even where the dtype stays.
            vec![if x(0)?.kind() == kind {
                arrange::copy(x(0)?)?
            } else {
                x(0)?.f_to_kind(kind)?
            }]
        }
        Kernel::RepeatHeads { times } => vec![arrange::repeat_heads(x(0)?, *times)?],
        Kernel::RepeatHeadsGrad { times } => vec![arrange::sum_repeats(x(0)?, *times)?],
        Kernel::AppendTime => vec![arrange::append_time(x(0)?, x(1)?)?],
        Kernel::LastTime { rows } => vec![arrange::last_time(x(0)?, *rows)?],

        Kernel::Rope { theta, dims, layout, inverse, scaling } => {
            let rotation = rope::Rotation {
                theta: theta.to_f64(),
                dims: *dims,
                layout: *layout,
                inverse: *inverse,
                scaling: *scaling,
            };
            let mut tables = context.tables.borrow_mut();
            let time = x(0)?.size().get(1).copied().unwrap_or(0);
            let alone = [(integer(1)?, time)];
            let positions = context.each.map_or(&alone[..], |each| each.positions);
            vec![rope::apply(ours()?, x(0)?, positions, rotation, &mut tables)?]
        }
        Kernel::Attention(scores) => {
            let operands = attended(scores, operands, 0, 3)?;
            let (y, lse) = match context.each {
                Some(each) => {
                    let caches = [each.keys, each.values];
                    attention::forward_each(attention_path(choice)?, operands, caches)?
                }
                None => attention::forward(attention_path(choice)?, operands)?,
            };
            vec![y, lse]
        }
        Kernel::AttentionGrad(scores) => {
            let of = attended(scores, operands, 1, 6)?;
            attention::backward(attention_path(choice)?, x(0)?, of, x(4)?, x(5)?)?
        }
        Kernel::CausalConv { residual, activation, parts, bias, state, kernel: _ } => {
            let state = if *state { Some(x(parts + 1 + usize::from(*bias))?) } else { None };
            let operands = canon::Operands {
                inputs: some(operands, 0, *parts)?,
                weight: x(*parts)?,
                bias: if *bias { Some(x(parts + 1)?) } else { None },
                state,
            };
            let options = canon::Options { residual: *residual, activation: *activation };
            canon::forward(ours()?, operands, options)?
        }
        Kernel::CausalConvGrad { residual, activation, parts, bias, kernel: _ } => {
            let grads = some(operands, 0, *parts)?;
            let operands = canon::Operands {
                inputs: some(operands, *parts, *parts)?,
                weight: x(2 * parts)?,
                bias: if *bias { Some(x(2 * parts + 1)?) } else { None },
                state: None,
            };
            let options = canon::Options { residual: *residual, activation: *activation };
            let gradients = canon::backward(ours()?, grads, operands, options)?;
            let mut results = gradients.inputs;
            results.push(gradients.weight);
            results.extend(gradients.bias);
            results
        }
        Kernel::CausalConvState { kernel, parts, state } => {
            let state = if *state { Some(x(*parts)?) } else { None };
            vec![canon::next_state_of(some(operands, 0, *parts)?, *kernel, state)?]
        }
        Kernel::ConvSwiGlu { residual, bias, state, kernel: _ } => {
            let operands = canon::Operands {
                inputs: some(operands, 0, 2)?,
                weight: x(2)?,
                bias: if *bias { Some(x(3)?) } else { None },
                state: if *state { Some(x(3 + usize::from(*bias))?) } else { None },
            };
            vec![canon::gated::forward(ours()?, operands, *residual)?]
        }
        Kernel::ConvSwiGluGrad { residual, bias, kernel: _ } => {
            let operands = canon::Operands {
                inputs: some(operands, 1, 2)?,
                weight: x(3)?,
                bias: if *bias { Some(x(4)?) } else { None },
                state: None,
            };
            let gradients = canon::gated::backward(ours()?, x(0)?, operands, *residual)?;
            let mut results = gradients.inputs;
            results.push(gradients.weight);
            results.extend(gradients.bias);
            results
        }
        Kernel::Shift { state } => {
            let past = if *state { Some(x(1)?) } else { None };
            vec![arrange::shift(x(0)?, past)?]
        }
        Kernel::ShiftGrad => vec![arrange::shift_grad(x(0)?)?],
        Kernel::Scan { scan, state, scale, steps } => {
            let count = scan.definition().operands.len();
            let state = if *state { Some(x(count)?) } else { None };
            let settings = scan::Settings { scale: scale.map(Root::to_f64), steps: *steps };
            let operands = some(operands, 0, count)?;
            let scanned = scan::forward(*scan, ours()?, operands, state, settings)?;
            vec![scanned.y, scanned.state]
        }
        Kernel::ScanGrad { scan, scale, steps } => {
            let count = scan.definition().operands.len();
            let settings = scan::Settings { scale: scale.map(Root::to_f64), steps: *steps };
            scan::backward(*scan, ours()?, x(0)?, some(operands, 1, count)?, settings)?
        }

        Kernel::CrossEntropy { nll_square, z_loss } => {
            let loss::Losses { nll, lse, loss, counted, likeliest: _ } =
                loss::forward(ours()?, x(0)?, x(1)?, terms(nll_square, z_loss))?;
            vec![nll, lse, loss, counted]
        }
        Kernel::ShiftTargets { by } => vec![arrange::shift_targets(x(0)?, *by)?],
        Kernel::CrossEntropyGrad { nll_square, z_loss, weight } => {
            let kept = loss::Kept { targets: x(1)?, nll: x(2)?, lse: x(3)? };
            let (terms, over) = (terms(nll_square, z_loss), context.consumes_first);
            let scale = weight.to_f64() * number(4)?;
            vec![loss::backward(ours()?, x(0)?, kept, scale, terms, over)?]
        }
        Kernel::Argmax => vec![loss::argmax(x(0)?)?],
        Kernel::HeadLoss { bias, nll_square, z_loss, rows } => {
            let (path, product) = head_path(choice)?;
            let head = head(operands, *bias, product, terms(nll_square, z_loss), *rows)?;
            let scores = head_loss::forward(path, head)?;
            vec![scores.nll, scores.loss, scores.counted, scores.argmax]
        }
        Kernel::HeadLossGrad { bias, nll_square, z_loss, rows, weight } => {
            let (path, product) = head_path(choice)?;
            let head = head(operands, *bias, product, terms(nll_square, z_loss), *rows)?;
            let scale = weight.to_f64() * number(3 + usize::from(*bias))?;
            let made = head_loss::backward(path, head, scale)?;
            [made.loss, made.counted, made.x, made.weight].into_iter().chain(made.bias).collect()
        }

        Kernel::Accumulate => vec![update::accumulate(x(0)?, x(1)?)?],
        Kernel::GradNorm => vec![update::grad_norm(ours()?, operands)?],
        Kernel::Clip { max } => vec![update::clip(x(0)?, max.map(|max| max.to_f64()))?],
        Kernel::Muon { muon: constants, decay, rate } => {
            let update = muon::Update { p: x(0)?, g: x(1)?, m: x(2)?, coefficient: x(3)? };
            let options = muon::Muon {
                momentum: constants.momentum.to_f64(),
                nesterov: constants.nesterov,
                scale: constants.scale,
                decay: decay.to_f64(),
                lr: rate.to_f64() * number(4)?,
            };
            let (p, m) = muon::muon(ours()?, update, options)?;
            vec![p, m]
        }
        Kernel::AdamW { beta1, beta2, eps, decay, rate } => {
            let update = update::Update {
                p: x(0)?,
                g: x(1)?,
                m: x(2)?,
                v: x(3)?,
                coefficient: x(4)?,
                copy: context.copy,
            };
            let options = update::AdamW {
                beta1: beta1.to_f64(),
                beta2: beta2.to_f64(),
                eps: eps.to_f64(),
                decay: decay.to_f64(),
                lr: rate.to_f64() * number(5)?,
                step: integer(6)?,
            };
            let (p, m, v) = update::adamw(ours()?, update, options)?;
            vec![p, m, v]
        }
    })
}

fn attention_path(choice: Choice) -> Result<attention::Path, KernelError> {
    let Choice::Attention(path) = choice else { return Err(not_for(choice)) };
    Ok(path)
}

fn experts_form(choice: Choice) -> Result<experts::Form, KernelError> {
    let Choice::Experts(form) = choice else { return Err(not_for(choice)) };
    Ok(form)
}

fn head_path(choice: Choice) -> Result<(Path, Product), KernelError> {
    let Choice::Head(path, product) = choice else { return Err(not_for(choice)) };
    Ok((path, product))
}

fn not_for(choice: Choice) -> KernelError {
    wrong(format!("`{choice}` was chosen for it"))
}

/// The operands of attention: q, k and v from `first`, sink and slopes from `extra`.
fn attended<'a>(
    scores: &Scores,
    operands: &[&'a Tensor],
    first: usize,
    extra: usize,
) -> Result<attention::Operands<'a>, KernelError> {
    let [q, k, v] = some(operands, first, 3)? else { return Err(wrong("no q, k and v".into())) };
    let mut extra = some(operands, extra, scores.extra())?.iter().copied();
    Ok(attention::Operands {
        q,
        k,
        v,
        window: scores.window,
        scale: scores.scale.map(|scale| scale.to_f64()),
        softcap: scores.softcap.map(|softcap| softcap.to_f64()),
        sink: if scores.sink { extra.next() } else { None },
        slopes: if scores.slopes { extra.next() } else { None },
    })
}

fn terms(nll_square: &Decimal, z_loss: &Decimal) -> loss::Terms {
    loss::Terms { nll_square: nll_square.to_f64(), z_loss: z_loss.to_f64() }
}

/// The operands that `HeadLoss` and `HeadLossGrad` begin with: x, weight, bias if any, targets.
fn head<'a>(
    operands: &[&'a Tensor],
    bias: bool,
    product: Product,
    terms: loss::Terms,
    rows: i64,
) -> Result<head_loss::Head<'a>, KernelError> {
    let operands = some(operands, 0, 3 + usize::from(bias))?;
    match (operands, bias) {
        ([x, weight, bias, targets], true) => {
            Ok(head_loss::Head { x, weight, bias: Some(bias), targets, product, terms, rows })
        }
        ([x, weight, targets, ..], _) => {
            Ok(head_loss::Head { x, weight, bias: None, targets, product, terms, rows })
        }
        _ => Err(wrong(format!("{} operands", operands.len()))),
    }
}

/// `count` operands from `first`.
fn some<'a, 't>(
    operands: &'a [&'t Tensor],
    first: usize,
    count: usize,
) -> Result<&'a [&'t Tensor], KernelError> {
    operands
        .get(first..first + count)
        .ok_or_else(|| wrong(format!("{} operands instead of {}", operands.len(), first + count)))
}

fn wrong(why: String) -> KernelError {
    KernelError::new(format!("{why}\nhelp: this is a bug in canonc; please report it"))
}
