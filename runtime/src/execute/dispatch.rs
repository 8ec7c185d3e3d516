//! One step: calls the runtime's kernel for a kernel of the plan. The choice of an implementation is followed, never
//! reconsidered.

use std::cell::RefCell;

use compiler::kernel::{Kernel, Recurrence, Scalar, Scores};
use compiler::number::Root;
use compiler::op::{Function, Scan};
use compiler::plan::Sizes;
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
    // The operand, if it is there.
    let given = |is: bool, i: usize| if is { x(i).map(Some) } else { Ok(None) };
    let ours = || {
        let Choice::Ours(path) = choice else { return Err(not_for(choice)) };
        Ok(path)
    };
    let product = || {
        let Choice::Product(product) = choice else { return Err(not_for(choice)) };
        Ok(product)
    };
    let form = || {
        let Choice::Experts(form) = choice else { return Err(not_for(choice)) };
        Ok(form)
    };
    Ok(match kernel {
        Kernel::Embed(_) => vec![linear::embed(x(0)?, x(1)?)?],
        Kernel::EmbedGrad(k) => vec![if let Choice::Ours(Path::Cuda(_)) = choice {
            let launcher = cuda::launcher(x(0)?.device())?;
            cuda::sums::embed_backward(launcher, x(0)?, x(1)?, k.vocab)?
        } else {
            linear::embed_grad(x(0)?, x(1)?, k.vocab)?
        }],
        Kernel::Linear(k) => vec![linear::linear(product()?, x(0)?, x(1)?, given(k.bias, 2)?)?],
        Kernel::LinearGradInput(_) => vec![linear::linear_grad_input(product()?, x(0)?, x(1)?)?],
        Kernel::LinearGradWeight(_) => vec![linear::linear_grad_weight(product()?, x(0)?, x(1)?)?],
        Kernel::SumTokens(_) => vec![linear::sum_tokens(ours()?, x(0)?)?],
        Kernel::MeanTokens(_) => vec![channels::mean_tokens(ours()?, x(0)?)?],
        Kernel::MeanTokensGrad(_) => vec![channels::mean_tokens_grad(x(0)?, x(1)?)?],

        Kernel::TopK(k) => pair(experts::top_k(x(0)?, given(k.bias, 1)?, k.count)?),
        Kernel::Scatter(k) => vec![experts::scatter(x(0)?, x(1)?, k.width)?],
        Kernel::OneHot(k) => vec![experts::one_hot(x(0)?, k.width, context.machine.kind)?],
        Kernel::ExpertLinear(k) => {
            vec![experts::forward(form()?, x(0)?, x(1)?, x(2)?, given(k.bias, 3)?)?]
        }
        Kernel::ExpertLinearGradInput(_) => {
            vec![experts::grad_input(form()?, x(0)?, x(1)?, x(2)?)?]
        }
        Kernel::ExpertLinearGradWeight(k) => {
            vec![experts::grad_weight(form()?, x(0)?, x(1)?, x(2)?, k.experts)?]
        }
        Kernel::ExpertSum(k) => vec![experts::sum(ours()?, x(0)?, x(1)?, k.experts)?],

        Kernel::RmsNorm(k) => pair(norm::rms_norm(ours()?, x(0)?, x(1)?, k.eps.to_f64())?),
        Kernel::RmsNormGrad(_) => pair(norm::rms_norm_grad(ours()?, x(0)?, x(1)?, x(2)?, x(3)?)?),
        Kernel::L2Norm(k) => pair(l2_norm::forward(ours()?, x(0)?, k.eps.to_f64())?),
        Kernel::L2NormGrad(_) => vec![l2_norm::backward(ours()?, x(0)?, x(1)?, x(2)?)?],

        Kernel::Pointwise(k) => vec![pointwise::apply(function(k.function)?, x(0)?)?],
        Kernel::PointwiseGrad(k) => {
            let function = function(k.function)?;
            vec![match (choice, pointwise::single_gradient(function)) {
                (Choice::SingleOperation, Some(gradient)) => gradient(x(0)?, x(1)?)?,
                (Choice::SingleOperation, None) => return Err(not_for(choice)),
                (_, _) => pointwise::gradient(function, x(0)?, x(1)?)?,
            }]
        }
        // If ranks differ, the smaller one is broadcast over the other's leading axes.
        Kernel::Add(_) => vec![x(0)?.f_add(x(1)?)?],
        Kernel::Mul(_) => vec![x(0)?.f_mul(x(1)?)?],
        Kernel::Scale(k) => vec![x(0)?.f_mul_scalar(k.by.to_f64())?],
        Kernel::Offset(k) => vec![x(0)?.f_add_scalar(k.by.to_f64())?],
        Kernel::Dropout(k) => {
            let mask = Mask::new(integer(1)? as u64, &k.place, k.rate.to_f64());
            vec![dropout::run(ours()?, x(0)?, mask, integer(2)?)?]
        }
        Kernel::Softmax(_) => vec![channels::softmax(x(0)?)?],
        Kernel::SoftmaxGrad(_) => vec![channels::softmax_grad(x(0)?, x(1)?)?],
        Kernel::SumChannels(k) => vec![channels::sum(x(0)?, k.keep)?],
        Kernel::Spread(k) => vec![channels::spread(x(0)?, k.width, k.kept)?],
        Kernel::MixHeads(k) => vec![mix_heads::run(k.part, k.one, x(0)?, x(1)?)?],
        Kernel::Ngram(k) => {
            ngram::run(x(0)?, given(k.state, 1)?, k.order, k.rows, context.machine.kind)?.into()
        }
        Kernel::SwiGlu(_) => vec![swiglu::forward(ours()?, x(0)?, x(1)?)?],
        Kernel::SwiGluGrad(_) => pair(swiglu::backward(ours()?, x(0)?, x(1)?, x(2)?)?),
        Kernel::GatedRmsNorm(k) => {
            let operands = gated_norm::Operands { x: x(0)?, gate: x(1)?, weight: x(2)? };
            pair(gated_norm::forward(ours()?, operands, k.eps.to_f64(), k.gate)?)
        }
        Kernel::GatedRmsNormGrad(k) => {
            let operands = gated_norm::Operands { x: x(1)?, gate: x(2)?, weight: x(3)? };
            gated_norm::backward(ours()?, x(0)?, operands, x(4)?, k.gate)?.into()
        }

        Kernel::Reshape(k) => vec![arrange::reshape(x(0)?, &k.dims)?],
        Kernel::Concat(_) => vec![Tensor::f_cat(operands, -1)?],
        Kernel::Split(k) => x(0)?.f_split_with_sizes(&k.widths, -1)?,
        Kernel::Zeros(k) => {
            let dims: Vec<i64> = k.dims.iter().map(|d| d.at(context.sizes)).collect();
            let Machine { kind, device, kernels: _ } = context.machine;
            vec![Tensor::f_zeros(dims, (kind, device))?]
        }
        Kernel::Index(k) => {
            let Machine { kind, device, kernels: _ } = context.machine;
            vec![Tensor::f_arange(k.count, (kind, device))?]
        }
        Kernel::Cast(k) => {
            let kind = context.machine.kind_of(k.to);
            // Not a view, even where the dtype stays.
            vec![if x(0)?.kind() == kind {
                arrange::copy(x(0)?)?
            } else {
                x(0)?.f_to_kind(kind)?
            }]
        }
        Kernel::RepeatHeads(k) => vec![arrange::repeat_heads(x(0)?, k.times)?],
        Kernel::RepeatHeadsGrad(k) => vec![arrange::sum_repeats(x(0)?, k.times)?],
        Kernel::AppendTime(_) => vec![arrange::append_time(x(0)?, x(1)?)?],
        Kernel::LastTime(k) => vec![arrange::last_time(x(0)?, k.rows)?],

        Kernel::Rope(k) => {
            let rotation = rope::Rotation {
                theta: k.theta.to_f64(),
                dims: k.dims,
                layout: k.layout,
                inverse: k.inverse,
                scaling: k.scaling,
            };
            let mut tables = context.tables.borrow_mut();
            let time = x(0)?.size().get(1).copied().unwrap_or(0);
            let alone = [(integer(1)?, time)];
            let positions = context.each.map_or(&alone[..], |each| each.positions);
            vec![rope::apply(ours()?, x(0)?, positions, rotation, &mut tables)?]
        }
        Kernel::Attention(k) => {
            let operands = attended(&k.scores, operands, 0, 3)?;
            pair(match context.each {
                Some(each) => {
                    let caches = [each.keys, each.values];
                    attention::forward_each(attention_path(choice)?, operands, caches)?
                }
                None => attention::forward(attention_path(choice)?, operands)?,
            })
        }
        Kernel::AttentionGrad(k) => {
            let of = attended(&k.scores, operands, 1, 6)?;
            attention::backward(attention_path(choice)?, x(0)?, of, x(4)?, x(5)?)?
        }
        Kernel::CausalConv(k) => {
            let operands = canon::Operands {
                inputs: some(operands, 0, k.parts)?,
                weight: x(k.parts)?,
                bias: given(k.bias, k.parts + 1)?,
                state: given(k.state, k.parts + 1 + usize::from(k.bias))?,
            };
            let options = canon::Options { residual: k.residual, activation: k.activation };
            canon::forward(ours()?, operands, options)?
        }
        Kernel::CausalConvGrad(k) => {
            let grads = some(operands, 0, k.parts)?;
            let operands = canon::Operands {
                inputs: some(operands, k.parts, k.parts)?,
                weight: x(2 * k.parts)?,
                bias: given(k.bias, 2 * k.parts + 1)?,
                state: None,
            };
            let options = canon::Options { residual: k.residual, activation: k.activation };
            convolved(canon::backward(ours()?, grads, operands, options)?)
        }
        Kernel::CausalConvState(k) => {
            let state = given(k.state, k.parts)?;
            vec![canon::next_state_of(some(operands, 0, k.parts)?, k.kernel, state)?]
        }
        Kernel::ConvSwiGlu(k) => {
            let operands = canon::Operands {
                inputs: some(operands, 0, 2)?,
                weight: x(2)?,
                bias: given(k.bias, 3)?,
                state: given(k.state, 3 + usize::from(k.bias))?,
            };
            vec![canon::gated::forward(ours()?, operands, k.residual)?]
        }
        Kernel::ConvSwiGluGrad(k) => {
            let operands = canon::Operands {
                inputs: some(operands, 1, 2)?,
                weight: x(3)?,
                bias: given(k.bias, 4)?,
                state: None,
            };
            convolved(canon::gated::backward(ours()?, x(0)?, operands, k.residual)?)
        }
        Kernel::Shift(k) => vec![arrange::shift(x(0)?, given(k.state, 1)?)?],
        Kernel::ShiftGrad(_) => vec![arrange::shift_grad(x(0)?)?],
        Kernel::Scan(k) => {
            let count = k.scan.operands.len();
            let settings = scan::Settings { scale: k.scale.map(Root::to_f64), steps: k.steps };
            let (operands, state) = (some(operands, 0, count)?, given(k.state, count)?);
            let scanned = scan::forward(recurrence(k.scan)?, ours()?, operands, state, settings)?;
            vec![scanned.y, scanned.state]
        }
        Kernel::ScanGrad(k) => {
            let operands = some(operands, 1, k.scan.operands.len())?;
            let settings = scan::Settings { scale: k.scale.map(Root::to_f64), steps: k.steps };
            scan::backward(recurrence(k.scan)?, ours()?, x(0)?, operands, settings)?
        }

        Kernel::CrossEntropy(k) => {
            let loss::Losses { nll, lse, loss, counted, likeliest: _ } =
                loss::forward(ours()?, x(0)?, x(1)?, terms(k.nll_square, k.z_loss))?;
            vec![nll, lse, loss, counted]
        }
        Kernel::ShiftTargets(k) => vec![arrange::shift_targets(x(0)?, k.by)?],
        Kernel::CrossEntropyGrad(k) => {
            let kept = loss::Kept { targets: x(1)?, nll: x(2)?, lse: x(3)? };
            let (terms, over) = (terms(k.nll_square, k.z_loss), context.consumes_first);
            let scale = k.weight.to_f64() * number(4)?;
            vec![loss::backward(ours()?, x(0)?, kept, scale, terms, over)?]
        }
        Kernel::Argmax(_) => vec![loss::argmax(x(0)?)?],
        Kernel::HeadLoss(k) => {
            let (path, product) = head_path(choice)?;
            let head = head(operands, k.bias, product, terms(k.nll_square, k.z_loss), k.rows)?;
            let scores = head_loss::forward(path, head)?;
            vec![scores.nll, scores.loss, scores.counted, scores.argmax]
        }
        Kernel::HeadLossGrad(k) => {
            let (path, product) = head_path(choice)?;
            let head = head(operands, k.bias, product, terms(k.nll_square, k.z_loss), k.rows)?;
            let scale = k.weight.to_f64() * number(3 + usize::from(k.bias))?;
            let made = head_loss::backward(path, head, scale)?;
            [made.loss, made.counted, made.x, made.weight].into_iter().chain(made.bias).collect()
        }

        Kernel::Accumulate(_) => vec![update::accumulate(x(0)?, x(1)?)?],
        Kernel::GradNorm(_) => vec![update::grad_norm(ours()?, operands)?],
        Kernel::Clip(k) => vec![update::clip(x(0)?, k.max.map(|max| max.to_f64()))?],
        Kernel::Muon(k) => {
            let update = muon::Update { p: x(0)?, g: x(1)?, m: x(2)?, coefficient: x(3)? };
            let options = muon::Muon {
                momentum: k.momentum.to_f64(),
                nesterov: k.nesterov,
                scale: k.scale,
                decay: k.decay.to_f64(),
                lr: k.rate.to_f64() * number(4)?,
            };
            pair(muon::muon(ours()?, update, options)?)
        }
        Kernel::AdamW(k) => {
            let update = update::Update {
                p: x(0)?,
                g: x(1)?,
                m: x(2)?,
                v: x(3)?,
                coefficient: x(4)?,
                copy: context.copy,
            };
            let options = update::AdamW {
                beta1: k.beta1.to_f64(),
                beta2: k.beta2.to_f64(),
                eps: k.eps.to_f64(),
                decay: k.decay.to_f64(),
                lr: k.rate.to_f64() * number(5)?,
                step: integer(6)?,
            };
            let (p, m, v) = update::adamw(ours()?, update, options)?;
            vec![p, m, v]
        }
    })
}

/// The gradients of inputs, weight and bias of a convolution, in this order.
fn convolved(gradients: canon::Gradients) -> Vec<Tensor> {
    let parameters = [gradients.weight].into_iter().chain(gradients.bias);
    gradients.inputs.into_iter().chain(parameters).collect()
}

fn pair((first, second): (Tensor, Tensor)) -> Vec<Tensor> {
    vec![first, second]
}

fn function(definition: &Scalar) -> Result<Function, KernelError> {
    Function::from_definition(definition)
        .ok_or_else(|| wrong(format!("`{}` is not listed", definition.name)))
}

fn recurrence(definition: &Recurrence) -> Result<Scan, KernelError> {
    Scan::from_definition(definition)
        .ok_or_else(|| wrong(format!("`{}` is not listed", definition.name)))
}

fn attention_path(choice: Choice) -> Result<attention::Path, KernelError> {
    let Choice::Attention(path) = choice else { return Err(not_for(choice)) };
    Ok(path)
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

fn terms(nll_square: Decimal, z_loss: Decimal) -> loss::Terms {
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
