//! The Canon layer: a depthwise causal convolution over time with a residual ("Physics of Language Models",
//! Part 4.1), forward and backward.
//!
//! `conv(x)[t] = sum_j w[j] x[t - (k-1) + j]`, `y = (x +) act(conv(x) + bias)`
//!
//! The n inputs [b, t, c_i] are read as one of c = sum c_i channels without joining them, with one filter [c, k], and
//! optionally a bias and the k-1 inputs before the first. Without residual it is the short convolution of the linear
//! mixers (Gu and Dao 2023).
//!
//! The caller runs the path that `choose` returned and records it. A given path has the same bits at any thread count,
//! and run(a ++ b, s) = run(a, s) ++ run(b, next_state(a, s)).

mod fused;
pub mod gated;
pub(crate) mod operands;
mod reference;
mod strips;
#[cfg(test)]
mod tests;

pub use compiler::plan::Activation;
pub use operands::{ConvOperands, Gradients, Options};
use tch::{Device, Kind, Tensor};

use super::path::choose as choose_by_kind;
pub use super::path::{Path, Reason};
use super::{KernelError, cuda};

/// Kernel sizes that the fused path is compiled for.
pub const FUSED_KERNELS: std::ops::RangeInclusive<i64> = 2..=8;

/// The path for such a layer in this process. `forward` and `backward` take it as an argument and follow it.
pub fn choose(kernel: i64, kind: Kind, device: Device) -> Path {
    match choose_by_kind(kind, device) {
        Path::Fused(_) if !FUSED_KERNELS.contains(&kernel) => {
            Path::Reference(Reason::KernelSize(kernel))
        }
        path @ (Path::Fused(_) | Path::Cuda(_) | Path::Reference(_)) => path,
    }
}

/// y, one [b, t, c_i] tensor for each input.
pub fn forward(
    path: Path,
    operands: ConvOperands<'_>,
    options: Options,
) -> Result<Vec<Tensor>, KernelError> {
    if let (Path::Cuda(_), Some(x)) = (path, operands.inputs.first()) {
        Shape::from_operands(&operands)?;
        return cuda::canon::forward(cuda::launcher(x.device())?, operands, options);
    }
    let mut outputs =
        operands.inputs.iter().map(|x| dense_like(x)).collect::<Result<Vec<_>, _>>()?;
    forward_into(path, operands, options, &mut outputs)?;
    Ok(outputs)
}

/// Like [`forward`], overwriting tensors of the inputs' shapes that share no memory with the operands.
pub fn forward_into(
    path: Path,
    operands: ConvOperands<'_>,
    options: Options,
    outputs: &mut [Tensor],
) -> Result<(), KernelError> {
    let shape = Shape::from_operands(&operands)?;
    shape.expect_one_each("outputs", &operands, outputs.iter())?;
    match path {
        Path::Fused(isa) => fused::forward(isa, &shape, operands, options, outputs),
        Path::Cuda(_) => copy_all(outputs, &forward(path, operands, options)?),
        Path::Reference(_) => {
            let results = reference::forward(&shape, operands, options)?;
            copy_all(outputs, &results)
        }
    }
}

/// The gradients of sum(y * grads); recomputes the parts of the forward pass that it needs.
pub fn backward(
    path: Path,
    grads: &[&Tensor],
    operands: ConvOperands<'_>,
    options: Options,
) -> Result<Gradients, KernelError> {
    if let (Path::Cuda(_), Some(x)) = (path, operands.inputs.first()) {
        let shape = Shape::from_operands(&operands)?;
        shape.expect_one_each("output gradients", &operands, grads.iter().copied())?;
        if operands.state.is_some() {
            return Err(KernelError::new("the gradient of a Canon state on CUDA".to_owned()));
        }
        return cuda::canon::backward(cuda::launcher(x.device())?, grads, operands, options);
    }
    let inputs = operands.inputs.iter().map(|x| dense_like(x)).collect::<Result<Vec<_>, _>>()?;
    let [bias, state] = [operands.bias, operands.state].map(|x| x.map(dense_like));
    let weight = dense_like(operands.weight)?;
    let mut into = Gradients { inputs, weight, bias: bias.transpose()?, state: state.transpose()? };
    backward_into(path, grads, operands, options, &mut into)?;
    Ok(into)
}

/// Like [`backward`], overwriting (never adding to) tensors that share no memory with the operands.
pub fn backward_into(
    path: Path,
    grads: &[&Tensor],
    operands: ConvOperands<'_>,
    options: Options,
    into: &mut Gradients,
) -> Result<(), KernelError> {
    let shape = Shape::from_operands(&operands)?;
    shape.expect_one_each("output gradients", &operands, grads.iter().copied())?;
    shape.expect_one_each("input gradients", &operands, into.inputs.iter())?;
    if into.weight.size() != operands.weight.size() {
        return Err(unlike("the weight's gradient", &into.weight.size(), &operands.weight.size()));
    }
    for (what, into, operand) in
        [("state", &into.state, operands.state), ("bias", &into.bias, operands.bias)]
    {
        if into.as_ref().map(Tensor::size) != operand.map(Tensor::size) {
            return Err(KernelError::new(format!(
                "the {what}'s gradient is not of the {what}'s shape"
            )));
        }
    }
    match path {
        Path::Fused(isa) => fused::backward(isa, &shape, grads, operands, options, into),
        Path::Cuda(_) | Path::Reference(_) => {
            let results = match path {
                Path::Cuda(_) => backward(path, grads, operands, options)?,
                Path::Fused(_) | Path::Reference(_) => {
                    reference::backward(&shape, grads, operands, options)?
                }
            };
            copy_all(&mut into.inputs, &results.inputs)?;
            into.weight.f_copy_(&results.weight)?;
            for (into, result) in
                [(&mut into.state, &results.state), (&mut into.bias, &results.bias)]
            {
                if let (Some(into), Some(result)) = (into, result) {
                    into.f_copy_(result)?;
                }
            }
            Ok(())
        }
    }
}

/// The state after these inputs: the last k-1 of state ++ inputs, [b, k-1, c].
pub fn next_state(operands: ConvOperands<'_>) -> Result<Tensor, KernelError> {
    let Shape { kernel, .. } = Shape::from_operands(&operands)?;
    next_state_of(operands.inputs, kernel, operands.state)
}

/// Like [`next_state`], for a filter of `kernel` taps.
pub fn next_state_of(
    inputs: &[&Tensor],
    kernel: i64,
    state: Option<&Tensor>,
) -> Result<Tensor, KernelError> {
    let past = kernel - 1;
    let mut ends = Vec::with_capacity(inputs.len());
    for x in inputs {
        let time = x.size().get(1).copied().unwrap_or(0);
        ends.push(x.f_narrow(1, time - past.min(time), past.min(time))?);
    }
    let mut end = Tensor::f_cat(&ends, 2)?; // [b, min(k-1, t), c]
    if matches!(end.kind(), Kind::BFloat16 | Kind::Half) {
        end = end.f_to_kind(Kind::Float)?; // a state is f32
    }
    let size = end.size();
    let [batch, fresh, channels] = size[..] else {
        return Err(KernelError::new(format!("a Canon layer's input is [b, t, c], got {size:?}")));
    };
    if fresh == past {
        return Ok(end);
    }
    let kept = match state {
        Some(state) => state.f_narrow(1, fresh, past - fresh)?.f_to_kind(end.kind())?,
        None => Tensor::f_zeros([batch, past - fresh, channels], (end.kind(), end.device()))?,
    };
    Ok(Tensor::f_cat(&[kept, end], 1)?)
}

/// The sizes that operands agree on.
struct Shape {
    batch: i64,
    time: i64,
    channels: i64,
    kernel: i64,
    /// (first channel, channels) of each input.
    parts: Vec<(i64, i64)>,
}

impl Shape {
    fn from_operands(operands: &ConvOperands<'_>) -> Result<Self, KernelError> {
        let ConvOperands { inputs, weight, bias, state } = operands;
        let size = weight.size();
        let ([channels, kernel] | [channels, 1, kernel]) = size[..] else {
            return Err(KernelError::new(format!(
                "a Canon filter is [c, k] or [c, 1, k], got {size:?}"
            )));
        };
        let mut parts = Vec::with_capacity(inputs.len());
        let (mut first, mut rows) = (0, None);
        for input in *inputs {
            let size = input.size();
            let [batch, time, width] = size[..] else {
                return Err(KernelError::new(format!(
                    "a Canon layer's input is [b, t, c], got {size:?}"
                )));
            };
            if *rows.get_or_insert((batch, time)) != (batch, time) {
                return Err(KernelError::new(format!(
                    "Canon inputs of other batch or time: {rows:?} and {size:?}"
                )));
            }
            parts.push((first, width));
            first += width;
        }
        let Some((batch, time)) = rows else {
            return Err(KernelError::new("a Canon layer without inputs".to_owned()));
        };
        if first != channels || kernel < 1 {
            return Err(KernelError::new(format!("a Canon filter {size:?} over {first} channels")));
        }
        if let Some(bias) = bias.filter(|bias| bias.size() != [channels]) {
            return Err(unlike("a convolution's bias", &bias.size(), &[channels]));
        }
        if let Some(state) = state {
            let wanted = [batch, kernel - 1, channels];
            if state.size() != wanted {
                return Err(unlike("a Canon state", &state.size(), &wanted));
            }
        }
        Ok(Self { batch, time, channels, kernel, parts })
    }

    fn expect_one_each<'t>(
        &self,
        what: &str,
        operands: &ConvOperands<'_>,
        tensors: impl ExactSizeIterator<Item = &'t Tensor>,
    ) -> Result<(), KernelError> {
        if tensors.len() != self.parts.len() {
            return Err(KernelError::new(format!(
                "{} {what} for {} inputs",
                tensors.len(),
                self.parts.len()
            )));
        }
        for (tensor, input) in tensors.zip(operands.inputs) {
            if tensor.size() != input.size() {
                return Err(unlike(what, &tensor.size(), &input.size()));
            }
        }
        Ok(())
    }
}

fn unlike(what: &str, got: &[i64], wanted: &[i64]) -> KernelError {
    KernelError::new(format!("{what} of shape {got:?}, expected {wanted:?}"))
}

/// A tensor of the same shape with dense rows, its contents undefined.
fn dense_like(tensor: &Tensor) -> Result<Tensor, KernelError> {
    Ok(Tensor::f_empty(tensor.size(), (tensor.kind(), tensor.device()))?)
}

fn copy_all(into: &mut [Tensor], from: &[Tensor]) -> Result<(), KernelError> {
    for (into, from) in into.iter_mut().zip(from) {
        into.f_copy_(from)?;
    }
    Ok(())
}
