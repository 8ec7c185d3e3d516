//! One step: calls the runtime's kernel for a kernel of the plan. The choice of an implementation is followed, never
//! reconsidered.

use std::cell::RefCell;

use compiler::kernel::{self, Kernel, PointwiseFunction, Recurrence, Scores};
use compiler::number::Root;
use compiler::op::{Function, ScanKind};
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

/// The results of a kernel of the plan, by the chosen implementation.
pub(super) fn run(
    kernel: &Kernel,
    choice: Choice,
    operands: &[&Tensor],
    context: &Context<'_>,
) -> Result<Vec<Tensor>, KernelError> {
    let call = Call { choice, operands, context };
    let x = |i| call.x(i);
    let given = |is, i| call.given(is, i);
    let (ours, product, form) = (|| call.ours(), || call.product(), || call.form());
    Ok(match kernel {
        Kernel::Embed(_) => vec![linear::embed(x(0)?, x(1)?)?],
        Kernel::EmbedGrad(k) => call.embed_grad(k)?,
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
        Kernel::PointwiseGrad(k) => call.pointwise_grad(k)?,
        // If ranks differ, the smaller one is broadcast over the other's leading axes.
        Kernel::Add(_) => vec![x(0)?.f_add(x(1)?)?],
        Kernel::Mul(_) => vec![x(0)?.f_mul(x(1)?)?],
        Kernel::Scale(k) => vec![x(0)?.f_mul_scalar(k.by.to_f64())?],
        Kernel::Offset(k) => vec![x(0)?.f_add_scalar(k.by.to_f64())?],
        Kernel::Dropout(k) => call.dropout(k)?,
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
        Kernel::GatedRmsNorm(k) => call.gated_rms_norm(k)?,
        Kernel::GatedRmsNormGrad(k) => call.gated_rms_norm_grad(k)?,

        Kernel::Reshape(k) => vec![arrange::reshape(x(0)?, &k.dims)?],
        Kernel::Concat(_) => vec![Tensor::f_cat(operands, -1)?],
        Kernel::Split(k) => x(0)?.f_split_with_sizes(&k.widths, -1)?,
        Kernel::Zeros(k) => call.zeros(k)?,
        Kernel::Index(k) => call.index(k)?,
        Kernel::Cast(k) => call.cast(k)?,
        Kernel::RepeatHeads(k) => vec![arrange::repeat_heads(x(0)?, k.times)?],
        Kernel::RepeatHeadsGrad(k) => vec![arrange::sum_repeats(x(0)?, k.times)?],
        Kernel::AppendTime(_) => vec![arrange::append_time(x(0)?, x(1)?)?],
        Kernel::LastTime(k) => vec![arrange::last_time(x(0)?, k.rows)?],

        Kernel::Rope(k) => call.rope(k)?,
        Kernel::Attention(k) => call.attention(k)?,
        Kernel::AttentionGrad(k) => call.attention_grad(k)?,
        Kernel::CausalConv(k) => call.causal_conv(k)?,
        Kernel::CausalConvGrad(k) => call.causal_conv_grad(k)?,
        Kernel::CausalConvState(k) => call.causal_conv_state(k)?,
        Kernel::ConvSwiGlu(k) => call.conv_swiglu(k)?,
        Kernel::ConvSwiGluGrad(k) => call.conv_swiglu_grad(k)?,
        Kernel::Shift(k) => vec![arrange::shift(x(0)?, given(k.state, 1)?)?],
        Kernel::ShiftGrad(_) => vec![arrange::shift_grad(x(0)?)?],
        Kernel::Scan(k) => call.scan(k)?,
        Kernel::ScanGrad(k) => call.scan_grad(k)?,

        Kernel::CrossEntropy(k) => call.cross_entropy(k)?,
        Kernel::ShiftTargets(k) => vec![arrange::shift_targets(x(0)?, k.by)?],
        Kernel::CrossEntropyGrad(k) => call.cross_entropy_grad(k)?,
        Kernel::Argmax(_) => vec![loss::argmax(x(0)?)?],
        Kernel::HeadLoss(k) => call.head_loss(k)?,
        Kernel::HeadLossGrad(k) => call.head_loss_grad(k)?,

        Kernel::Accumulate(_) => vec![update::accumulate(x(0)?, x(1)?)?],
        Kernel::GradNorm(_) => vec![update::grad_norm(ours()?, operands)?],
        Kernel::Clip(k) => vec![update::clip(x(0)?, k.max.map(|max| max.to_f64()))?],
        Kernel::Muon(k) => call.muon(k)?,
        Kernel::AdamW(k) => call.adamw(k)?,
    })
}

/// A kernel's operands and the implementation that was chosen for it.
#[derive(Clone, Copy)]
struct Call<'a> {
    choice: Choice,
    operands: &'a [&'a Tensor],
    context: &'a Context<'a>,
}

impl<'a> Call<'a> {
    /// Operand i of the kernel's contract.
    fn x(&self, i: usize) -> Result<&'a Tensor, KernelError> {
        self.operands.get(i).copied().ok_or_else(|| wrong(format!("operand {i} is missing")))
    }

    fn number(&self, i: usize) -> Result<f64, KernelError> {
        transfer::given(self.x(i)?)
    }

    fn integer(&self, i: usize) -> Result<i64, KernelError> {
        transfer::given_integer(self.x(i)?)
    }

    /// The operand, if it is there.
    fn given(&self, is: bool, i: usize) -> Result<Option<&'a Tensor>, KernelError> {
        if is { self.x(i).map(Some) } else { Ok(None) }
    }

    /// `count` operands from `first`.
    fn some(&self, first: usize, count: usize) -> Result<&'a [&'a Tensor], KernelError> {
        self.operands.get(first..first + count).ok_or_else(|| {
            wrong(format!("{} operands instead of {}", self.operands.len(), first + count))
        })
    }

    fn ours(&self) -> Result<Path, KernelError> {
        let Choice::Ours(path) = self.choice else { return Err(not_for(self.choice)) };
        Ok(path)
    }

    fn product(&self) -> Result<Product, KernelError> {
        let Choice::Product(product) = self.choice else { return Err(not_for(self.choice)) };
        Ok(product)
    }

    fn form(&self) -> Result<experts::Form, KernelError> {
        let Choice::Experts(form) = self.choice else { return Err(not_for(self.choice)) };
        Ok(form)
    }

    fn attention_path(&self) -> Result<attention::Path, KernelError> {
        let Choice::Attention(path) = self.choice else { return Err(not_for(self.choice)) };
        Ok(path)
    }

    fn head_path(&self) -> Result<(Path, Product), KernelError> {
        let Choice::Head(path, product) = self.choice else { return Err(not_for(self.choice)) };
        Ok((path, product))
    }

    fn embed_grad(&self, k: &kernel::EmbedGrad) -> Result<Vec<Tensor>, KernelError> {
        Ok(vec![if let Choice::Ours(Path::Cuda(_)) = self.choice {
            let launcher = cuda::launcher(self.x(0)?.device())?;
            cuda::sums::embed_backward(launcher, self.x(0)?, self.x(1)?, k.vocab)?
        } else {
            linear::embed_grad(self.x(0)?, self.x(1)?, k.vocab)?
        }])
    }

    fn pointwise_grad(&self, k: &kernel::PointwiseGrad) -> Result<Vec<Tensor>, KernelError> {
        let function = function(k.function)?;
        Ok(vec![match (self.choice, pointwise::single_gradient(function)) {
            (Choice::SingleOperation, Some(gradient)) => gradient(self.x(0)?, self.x(1)?)?,
            (Choice::SingleOperation, None) => return Err(not_for(self.choice)),
            (_, _) => pointwise::gradient(function, self.x(0)?, self.x(1)?)?,
        }])
    }

    fn dropout(&self, k: &kernel::Dropout) -> Result<Vec<Tensor>, KernelError> {
        let mask = Mask::new(self.integer(1)? as u64, &k.place, k.rate.to_f64());
        Ok(vec![dropout::run(self.ours()?, self.x(0)?, mask, self.integer(2)?)?])
    }

    fn gated_rms_norm(&self, k: &kernel::GatedRmsNorm) -> Result<Vec<Tensor>, KernelError> {
        let operands =
            gated_norm::GatedNormOperands { x: self.x(0)?, gate: self.x(1)?, weight: self.x(2)? };
        Ok(pair(gated_norm::forward(self.ours()?, operands, k.eps.to_f64(), k.gate)?))
    }

    fn gated_rms_norm_grad(
        &self,
        k: &kernel::GatedRmsNormGrad,
    ) -> Result<Vec<Tensor>, KernelError> {
        let operands =
            gated_norm::GatedNormOperands { x: self.x(1)?, gate: self.x(2)?, weight: self.x(3)? };
        Ok(gated_norm::backward(self.ours()?, self.x(0)?, operands, self.x(4)?, k.gate)?.into())
    }

    fn zeros(&self, k: &kernel::Zeros) -> Result<Vec<Tensor>, KernelError> {
        let dims: Vec<i64> = k.dims.iter().map(|d| d.at(self.context.sizes)).collect();
        let Machine { kind, device, kernels: _ } = self.context.machine;
        Ok(vec![Tensor::f_zeros(dims, (kind, device))?])
    }

    fn index(&self, k: &kernel::Index) -> Result<Vec<Tensor>, KernelError> {
        let Machine { kind, device, kernels: _ } = self.context.machine;
        Ok(vec![Tensor::f_arange(k.count, (kind, device))?])
    }

    fn cast(&self, k: &kernel::Cast) -> Result<Vec<Tensor>, KernelError> {
        let kind = self.context.machine.kind_of(k.to);
        // Not a view, even where the dtype stays.
        Ok(vec![if self.x(0)?.kind() == kind {
            arrange::copy(self.x(0)?)?
        } else {
            self.x(0)?.f_to_kind(kind)?
        }])
    }

    fn rope(&self, k: &kernel::Rope) -> Result<Vec<Tensor>, KernelError> {
        let rotation = rope::Rotation {
            theta: k.theta.to_f64(),
            dims: k.dims,
            layout: k.layout,
            inverse: k.inverse,
            scaling: k.scaling,
        };
        let mut tables = self.context.tables.borrow_mut();
        let time = self.x(0)?.size().get(1).copied().unwrap_or(0);
        let alone = [(self.integer(1)?, time)];
        let positions = self.context.each.map_or(&alone[..], |each| each.positions);
        Ok(vec![rope::apply(self.ours()?, self.x(0)?, positions, rotation, &mut tables)?])
    }

    fn attention(&self, k: &kernel::Attention) -> Result<Vec<Tensor>, KernelError> {
        let operands = self.attended(&k.scores, 0, 3)?;
        Ok(pair(match self.context.each {
            Some(each) => {
                let caches = [each.keys, each.values];
                attention::forward_each(self.attention_path()?, operands, caches)?
            }
            None => attention::forward(self.attention_path()?, operands)?,
        }))
    }

    fn attention_grad(&self, k: &kernel::AttentionGrad) -> Result<Vec<Tensor>, KernelError> {
        let operands = self.attended(&k.scores, 1, 6)?;
        attention::backward(self.attention_path()?, self.x(0)?, operands, self.x(4)?, self.x(5)?)
    }

    fn causal_conv(&self, k: &kernel::CausalConv) -> Result<Vec<Tensor>, KernelError> {
        let operands = canon::ConvOperands {
            inputs: self.some(0, k.parts)?,
            weight: self.x(k.parts)?,
            bias: self.given(k.bias, k.parts + 1)?,
            state: self.given(k.state, k.parts + 1 + usize::from(k.bias))?,
        };
        let options = canon::Options { residual: k.residual, activation: k.activation };
        canon::forward(self.ours()?, operands, options)
    }

    fn causal_conv_grad(&self, k: &kernel::CausalConvGrad) -> Result<Vec<Tensor>, KernelError> {
        let grads = self.some(0, k.parts)?;
        let operands = canon::ConvOperands {
            inputs: self.some(k.parts, k.parts)?,
            weight: self.x(2 * k.parts)?,
            bias: self.given(k.bias, 2 * k.parts + 1)?,
            state: None,
        };
        let options = canon::Options { residual: k.residual, activation: k.activation };
        Ok(convolved(canon::backward(self.ours()?, grads, operands, options)?))
    }

    fn causal_conv_state(&self, k: &kernel::CausalConvState) -> Result<Vec<Tensor>, KernelError> {
        let state = self.given(k.state, k.parts)?;
        Ok(vec![canon::next_state_of(self.some(0, k.parts)?, k.kernel, state)?])
    }

    fn conv_swiglu(&self, k: &kernel::ConvSwiGlu) -> Result<Vec<Tensor>, KernelError> {
        let operands = canon::ConvOperands {
            inputs: self.some(0, 2)?,
            weight: self.x(2)?,
            bias: self.given(k.bias, 3)?,
            state: self.given(k.state, 3 + usize::from(k.bias))?,
        };
        Ok(vec![canon::gated::forward(self.ours()?, operands, k.residual)?])
    }

    fn conv_swiglu_grad(&self, k: &kernel::ConvSwiGluGrad) -> Result<Vec<Tensor>, KernelError> {
        let operands = canon::ConvOperands {
            inputs: self.some(1, 2)?,
            weight: self.x(3)?,
            bias: self.given(k.bias, 4)?,
            state: None,
        };
        Ok(convolved(canon::gated::backward(self.ours()?, self.x(0)?, operands, k.residual)?))
    }

    fn scan(&self, k: &kernel::Scan) -> Result<Vec<Tensor>, KernelError> {
        let count = k.scan.operands.len();
        let settings = scan::Settings { scale: k.scale.map(Root::to_f64), steps: k.steps };
        let (operands, state) = (self.some(0, count)?, self.given(k.state, count)?);
        let scanned = scan::forward(scan_kind(k.scan)?, self.ours()?, operands, state, settings)?;
        Ok(vec![scanned.y, scanned.state])
    }

    fn scan_grad(&self, k: &kernel::ScanGrad) -> Result<Vec<Tensor>, KernelError> {
        let operands = self.some(1, k.scan.operands.len())?;
        let settings = scan::Settings { scale: k.scale.map(Root::to_f64), steps: k.steps };
        scan::backward(scan_kind(k.scan)?, self.ours()?, self.x(0)?, operands, settings)
    }

    fn cross_entropy(&self, k: &kernel::CrossEntropy) -> Result<Vec<Tensor>, KernelError> {
        let loss::Losses { nll, lse, loss, counted, likeliest: _ } =
            loss::forward(self.ours()?, self.x(0)?, self.x(1)?, terms(k.nll_square, k.z_loss))?;
        Ok(vec![nll, lse, loss, counted])
    }

    fn cross_entropy_grad(&self, k: &kernel::CrossEntropyGrad) -> Result<Vec<Tensor>, KernelError> {
        let kept = loss::Kept { targets: self.x(1)?, nll: self.x(2)?, lse: self.x(3)? };
        let (terms, over) = (terms(k.nll_square, k.z_loss), self.context.consumes_first);
        let scale = k.weight.to_f64() * self.number(4)?;
        Ok(vec![loss::backward(self.ours()?, self.x(0)?, kept, scale, terms, over)?])
    }

    fn head_loss(&self, k: &kernel::HeadLoss) -> Result<Vec<Tensor>, KernelError> {
        let (path, product) = self.head_path()?;
        let head = self.head(k.bias, product, terms(k.nll_square, k.z_loss), k.rows)?;
        let scores = head_loss::forward(path, head)?;
        Ok(vec![scores.nll, scores.loss, scores.counted, scores.argmax])
    }

    fn head_loss_grad(&self, k: &kernel::HeadLossGrad) -> Result<Vec<Tensor>, KernelError> {
        let (path, product) = self.head_path()?;
        let head = self.head(k.bias, product, terms(k.nll_square, k.z_loss), k.rows)?;
        let scale = k.weight.to_f64() * self.number(3 + usize::from(k.bias))?;
        let gradients = head_loss::backward(path, head, scale)?;
        Ok([gradients.loss, gradients.counted, gradients.x, gradients.weight]
            .into_iter()
            .chain(gradients.bias)
            .collect())
    }

    fn muon(&self, k: &kernel::Muon) -> Result<Vec<Tensor>, KernelError> {
        let update =
            muon::Update { p: self.x(0)?, g: self.x(1)?, m: self.x(2)?, coefficient: self.x(3)? };
        let options = muon::Muon {
            momentum: k.momentum.to_f64(),
            nesterov: k.nesterov,
            scale: k.scale,
            decay: k.decay.to_f64(),
            lr: k.rate.to_f64() * self.number(4)?,
        };
        Ok(pair(muon::muon(self.ours()?, update, options)?))
    }

    fn adamw(&self, k: &kernel::AdamW) -> Result<Vec<Tensor>, KernelError> {
        let update = update::Update {
            p: self.x(0)?,
            g: self.x(1)?,
            m: self.x(2)?,
            v: self.x(3)?,
            coefficient: self.x(4)?,
            copy: self.context.copy,
        };
        let options = update::AdamW {
            beta1: k.beta1.to_f64(),
            beta2: k.beta2.to_f64(),
            eps: k.eps.to_f64(),
            decay: k.decay.to_f64(),
            lr: k.rate.to_f64() * self.number(5)?,
            step: self.integer(6)?,
        };
        let (p, m, v) = update::adamw(self.ours()?, update, options)?;
        Ok(vec![p, m, v])
    }

    /// The operands of attention: q, k and v from `first`, sink and slopes from `extra`.
    fn attended(
        &self,
        scores: &Scores,
        first: usize,
        extra: usize,
    ) -> Result<attention::AttentionOperands<'a>, KernelError> {
        let [q, k, v] = self.some(first, 3)? else { return Err(wrong("no q, k and v".into())) };
        let mut extra = self.some(extra, scores.extra())?.iter().copied();
        Ok(attention::AttentionOperands {
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

    /// The operands that `HeadLoss` and `HeadLossGrad` begin with: x, weight, bias if any, targets.
    fn head(
        &self,
        bias: bool,
        product: Product,
        terms: loss::Terms,
        rows: i64,
    ) -> Result<head_loss::Head<'a>, KernelError> {
        let operands = self.some(0, 3 + usize::from(bias))?;
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
}

/// The gradients of inputs, weight and bias of a convolution, in this order.
fn convolved(gradients: canon::Gradients) -> Vec<Tensor> {
    let parameters = [gradients.weight].into_iter().chain(gradients.bias);
    gradients.inputs.into_iter().chain(parameters).collect()
}

fn pair((first, second): (Tensor, Tensor)) -> Vec<Tensor> {
    vec![first, second]
}

fn function(definition: &PointwiseFunction) -> Result<Function, KernelError> {
    Function::from_definition(definition)
        .ok_or_else(|| wrong(format!("`{}` is not listed", definition.name)))
}

fn scan_kind(definition: &Recurrence) -> Result<ScanKind, KernelError> {
    ScanKind::from_definition(definition)
        .ok_or_else(|| wrong(format!("`{}` is not listed", definition.name)))
}

fn not_for(choice: Choice) -> KernelError {
    wrong(format!("`{choice}` was chosen for it"))
}

fn terms(nll_square: Decimal, z_loss: Decimal) -> loss::Terms {
    loss::Terms { nll_square: nll_square.to_f64(), z_loss: z_loss.to_f64() }
}

fn wrong(reason: String) -> KernelError {
    KernelError::new(format!("{reason}\nhelp: this is a bug in canonc; please report it"))
}
