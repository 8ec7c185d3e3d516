//! Canon layers and short convolutions, also with the gated unit (gpu/kernels/canon.py).
//! In: parts [b, t, c_i] and a filter. Out: as in `kernels::canon`. Must stay true: the filter's gradient adds chunks of
//! tokens in order.

use gpu::{Constant, Launcher, Library};
use tch::{Kind, Tensor};

use super::{Items, dtype, empty, nothing, pointer, sums};
use crate::kernels::KernelError;
use crate::kernels::canon::{Activation, Gradients, Operands, Options};

const FORWARD: &str = "causal_conv_forward";
const BACKWARD: &str = "causal_conv_backward";
const GATED_FORWARD: &str = "conv_swiglu_forward";
const GATED_BACKWARD: &str = "conv_swiglu_backward";

/// Whether filters of this size were compiled.
pub(crate) fn is_compiled(library: &Library, kind: Kind, taps: i64) -> bool {
    let Ok(dtype) = dtype(kind) else { return false };
    let constants = [("dtype", dtype), ("K", Constant::Int(taps))];
    [FORWARD, BACKWARD, GATED_FORWARD, GATED_BACKWARD]
        .iter()
        .all(|name| library.compiled(name, &constants).next().is_some())
}

/// What all launches of a layer share.
struct Layer {
    weight: Tensor,
    bias: Option<Tensor>,
    past: Option<Tensor>,
    batch: i64,
    time: i64,
    total: i64,
    taps: i64,
    kind: Kind,
}

impl Layer {
    fn of(operands: Operands<'_>) -> Result<Self, KernelError> {
        let Operands { inputs, weight, bias, state } = operands;
        let size = inputs.first().map(|x| x.size()).unwrap_or_default();
        let ([batch, time, _], Some(total), Some(taps)) =
            (size.as_slice(), weight.size().first().copied(), weight.size().last().copied())
        else {
            return Err(KernelError::new(format!("a Canon layer over {size:?}")));
        };
        Ok(Self {
            weight: weight.f_contiguous()?,
            bias: bias.map(Tensor::f_contiguous).transpose()?,
            past: state.map(Tensor::f_contiguous).transpose()?,
            batch: *batch,
            time: *time,
            total,
            taps,
            kind: weight.kind(),
        })
    }

    fn constants(&self) -> Result<[(&'static str, Constant); 2], KernelError> {
        Ok([("dtype", dtype(self.kind)?), ("K", self.taps.into())])
    }

    fn pointer(&self, tensor: Option<&Tensor>) -> Result<gpu::Pointer, KernelError> {
        tensor.map_or_else(|| nothing(self.kind), pointer)
    }

    fn has_bias(&self) -> i64 {
        i64::from(self.bias.is_some())
    }

    /// Partial sums of the filter's gradient, [chunks, total, taps], and of the bias's, [chunks, total].
    fn partials(&self, launcher: &Launcher, name: &str) -> Result<[Tensor; 2], KernelError> {
        let constants = self.constants()?;
        let chunk = launcher.library().at_least(name, &constants, "CHUNK", 1);
        let chunk = chunk.ok_or_else(|| {
            KernelError::new(format!("no CUDA convolution of {} taps", self.taps))
        })?;
        let chunks = self.batch * ((self.time + chunk - 1) / chunk);
        let weight = empty(&[chunks, self.total * self.taps], Kind::Float, &self.weight)?;
        let bias = empty(&[chunks, self.total], Kind::Float, &self.weight)?;
        Ok([weight, bias])
    }

    /// The gradients of filter and bias.
    fn sums(
        &self,
        launcher: &Launcher,
        [weight, bias]: [Tensor; 2],
        like: &Tensor,
    ) -> Result<(Tensor, Option<Tensor>), KernelError> {
        let weight = sums::rows(launcher, &weight)?.f_reshape(like.size())?;
        let bias = self.bias.as_ref().map(|_| sums::rows(launcher, &bias)).transpose()?;
        Ok((weight, bias))
    }
}

fn with<const N: usize>(
    first: [(&'static str, Constant); 2],
    more: [(&'static str, i64); N],
) -> Vec<(&'static str, Constant)> {
    first.into_iter().chain(more.map(|(name, value)| (name, value.into()))).collect()
}

fn silu(activation: Activation) -> (&'static str, i64) {
    let on = match activation {
        Activation::Identity => 0,
        Activation::Silu => 1,
    };
    ("SILU", on)
}

fn channels(x: &Tensor) -> i64 {
    x.size().last().copied().unwrap_or(0)
}

/// One y for each part.
pub(crate) fn forward(
    launcher: &Launcher,
    operands: Operands<'_>,
    options: Options,
) -> Result<Vec<Tensor>, KernelError> {
    let layer = Layer::of(operands)?;
    let state = ("STATE", i64::from(layer.past.is_some()));
    let constants = with(layer.constants()?, [silu(options.activation), state]);
    let (mut made, mut first) = (Vec::with_capacity(operands.inputs.len()), 0);
    for x in operands.inputs {
        let (width, items) = (channels(x), Items::of(x)?);
        let y = empty(&x.size(), x.kind(), x)?;
        launcher
            .call(FORWARD, &constants)
            .pointer("x", pointer(&items.x)?)
            .pointer("weight", pointer(&layer.weight)?)
            .pointer("bias", layer.pointer(layer.bias.as_ref())?)
            .pointer("past", layer.pointer(layer.past.as_ref())?)
            .pointer("y", pointer(&y)?)
            .int("batch", layer.batch)
            .int("time", layer.time)
            .int("channels", width)
            .int("first", first)
            .int("total", layer.total)
            .int("x_batch", items.batch)
            .int("x_row", items.row)
            .int("residual", options.residual.into())
            .int("has_bias", layer.has_bias())
            .run()?;
        made.push(y);
        first += width;
    }
    Ok(made)
}

/// The gradients, from zeros before the first token.
pub(crate) fn backward(
    launcher: &Launcher,
    grads: &[&Tensor],
    operands: Operands<'_>,
    options: Options,
) -> Result<Gradients, KernelError> {
    let layer = Layer::of(operands)?;
    let constants = with(layer.constants()?, [silu(options.activation)]);
    let partials = layer.partials(launcher, BACKWARD)?;
    let (mut inputs, mut first) = (Vec::with_capacity(operands.inputs.len()), 0);
    for (x, dy) in operands.inputs.iter().zip(grads) {
        let (width, items, dys) = (channels(x), Items::of(x)?, Items::of(dy)?);
        let dx = empty(&x.size(), x.kind(), x)?;
        launcher
            .call(BACKWARD, &constants)
            .pointer("dy", pointer(&dys.x)?)
            .pointer("x", pointer(&items.x)?)
            .pointer("weight", pointer(&layer.weight)?)
            .pointer("bias", layer.pointer(layer.bias.as_ref())?)
            .pointer("dx", pointer(&dx)?)
            .pointer("partial_weight", pointer(&partials[0])?)
            .pointer("partial_bias", pointer(&partials[1])?)
            .int("batch", layer.batch)
            .int("time", layer.time)
            .int("channels", width)
            .int("first", first)
            .int("total", layer.total)
            .int("dy_batch", dys.batch)
            .int("dy_row", dys.row)
            .int("x_batch", items.batch)
            .int("x_row", items.row)
            .int("residual", options.residual.into())
            .int("has_bias", layer.has_bias())
            .run()?;
        inputs.push(dx);
        first += width;
    }
    let (weight, bias) = layer.sums(launcher, partials, operands.weight)?;
    Ok(Gradients { inputs, weight, bias, state: None })
}

/// y = silu(g) ⊙ u, of gate and up.
pub(crate) fn gated_forward(
    launcher: &Launcher,
    operands: Operands<'_>,
    [gate, up]: [&Tensor; 2],
    residual: bool,
) -> Result<Tensor, KernelError> {
    let layer = Layer::of(operands)?;
    let constants = with(layer.constants()?, [("STATE", i64::from(layer.past.is_some()))]);
    let y = empty(&gate.size(), gate.kind(), gate)?;
    let (width, gates, ups) = (channels(gate), Items::of(gate)?, Items::of(up)?);
    launcher
        .call(GATED_FORWARD, &constants)
        .pointer("gate", pointer(&gates.x)?)
        .pointer("up", pointer(&ups.x)?)
        .pointer("weight", pointer(&layer.weight)?)
        .pointer("bias", layer.pointer(layer.bias.as_ref())?)
        .pointer("past", layer.pointer(layer.past.as_ref())?)
        .pointer("y", pointer(&y)?)
        .int("batch", layer.batch)
        .int("time", layer.time)
        .int("channels", width)
        .int("gate_batch", gates.batch)
        .int("gate_row", gates.row)
        .int("up_batch", ups.batch)
        .int("up_row", ups.row)
        .int("residual", residual.into())
        .int("has_bias", layer.has_bias())
        .run()?;
    Ok(y)
}

/// The gradients of gate, up, filter and bias.
pub(crate) fn gated_backward(
    launcher: &Launcher,
    dy: &Tensor,
    operands: Operands<'_>,
    [gate, up]: [&Tensor; 2],
    residual: bool,
) -> Result<Gradients, KernelError> {
    let layer = Layer::of(operands)?;
    let constants = layer.constants()?;
    let partials = layer.partials(launcher, GATED_BACKWARD)?;
    let dgate = empty(&gate.size(), gate.kind(), gate)?;
    let dup = empty(&up.size(), up.kind(), up)?;
    let (width, dys) = (channels(gate), Items::of(dy)?);
    let (gates, ups) = (Items::of(gate)?, Items::of(up)?);
    launcher
        .call(GATED_BACKWARD, &constants)
        .pointer("dy", pointer(&dys.x)?)
        .pointer("gate", pointer(&gates.x)?)
        .pointer("up", pointer(&ups.x)?)
        .pointer("weight", pointer(&layer.weight)?)
        .pointer("bias", layer.pointer(layer.bias.as_ref())?)
        .pointer("dgate", pointer(&dgate)?)
        .pointer("dup", pointer(&dup)?)
        .pointer("partial_weight", pointer(&partials[0])?)
        .pointer("partial_bias", pointer(&partials[1])?)
        .int("batch", layer.batch)
        .int("time", layer.time)
        .int("channels", width)
        .int("dy_batch", dys.batch)
        .int("dy_row", dys.row)
        .int("gate_batch", gates.batch)
        .int("gate_row", gates.row)
        .int("up_batch", ups.batch)
        .int("up_row", ups.row)
        .int("residual", residual.into())
        .int("has_bias", layer.has_bias())
        .run()?;
    let (weight, bias) = layer.sums(launcher, partials, operands.weight)?;
    Ok(Gradients { inputs: vec![dgate, dup], weight, bias, state: None })
}
