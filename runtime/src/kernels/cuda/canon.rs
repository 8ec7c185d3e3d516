//! Canon layers and short convolutions, also with the gated unit (gpu/kernels/canon.py), as in `kernels::canon`.
//!
//! The filter's gradient adds chunks of tokens in order.

use compiler::plan::Activation;
use gpu::{Constant, Launcher, Library};
use tch::{Kind, Tensor};

use super::named::{Named, agreeing};
use super::{dtype, sums};
use crate::kernels::KernelError;
use crate::kernels::canon::operands::{ConvOperands, Gradients, Options};

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
        .all(|name| agreeing(library, name, &constants).next().is_some())
}

/// The launches of a layer, with the arguments that they share.
fn layer<'a>(
    launcher: &'a Launcher,
    operands: ConvOperands<'_>,
    Options { residual, activation }: Options,
) -> Result<Named<'a>, KernelError> {
    let ConvOperands { inputs, weight, bias, state } = operands;
    let size = inputs.first().map(|x| x.size()).unwrap_or_default();
    let filter = weight.size();
    let ([batch, time, _], [total, .., taps]) = (size.as_slice(), filter.as_slice()) else {
        return Err(KernelError::new(format!(
            "a Canon layer over {size:?} with a filter of {filter:?}"
        )));
    };
    let silu = match activation {
        Activation::Identity => 0,
        Activation::Silu => 1,
    };
    let flags = [("K", *taps), ("SILU", silu), ("STATE", state.is_some().into())];
    let flags = flags.map(|(name, value)| (name, Constant::Int(value)));
    let constants = [("dtype", dtype(weight.kind())?)].into_iter().chain(flags).collect();
    let mut named = Named::new(launcher, constants);
    for (name, value) in [
        ("batch", *batch),
        ("time", *time),
        ("total", *total),
        ("residual", residual.into()),
        ("has_bias", bias.is_some().into()),
    ] {
        named.int(name, value);
    }
    for (name, tensor) in [("weight", Some(weight)), ("bias", bias), ("past", state)] {
        named.tensor(name, tensor.map(Tensor::f_contiguous).transpose()?);
    }
    Ok(named)
}

/// Sets the arguments of a part, the filter's channels from `first` on. Returns the first channel of the next part.
fn part(named: &mut Named<'_>, names: &[(&str, &Tensor)], first: i64) -> Result<i64, KernelError> {
    let mut channels = 0;
    for (name, x) in names {
        named.items(name, x)?;
        channels = x.size().last().copied().unwrap_or(0);
    }
    named.int("channels", channels);
    named.int("first", first);
    Ok(first + channels)
}

/// Memory for partial sums of a gradient: of the filter, [chunks, total · taps], and of the bias, [chunks, total].
fn partials(named: &mut Named<'_>, kernel: &str, weight: &Tensor) -> Result<(), KernelError> {
    let [batch, time, total] = ["batch", "time", "total"].map(|name| named.size(name).unwrap_or(0));
    let chunk = named.constant(kernel, "CHUNK")?;
    let chunks = batch * ((time + chunk - 1) / chunk);
    let elements: i64 = weight.size().iter().product();
    named.room("partial_weight", &[chunks, elements], Kind::Float, weight)?;
    named.room("partial_bias", &[chunks, total], Kind::Float, weight)
}

/// The gradients of filter and bias.
fn summed(
    launcher: &Launcher,
    mut named: Named<'_>,
    operands: ConvOperands<'_>,
    inputs: Vec<Tensor>,
) -> Result<Gradients, KernelError> {
    let weight = sums::rows(launcher, &named.take("partial_weight")?)?;
    let bias = match operands.bias {
        Some(_) => Some(sums::rows(launcher, &named.take("partial_bias")?)?),
        None => None,
    };
    let weight = weight.f_reshape(operands.weight.size())?;
    Ok(Gradients { inputs, weight, bias, state: None })
}

/// One y for each part.
pub(crate) fn forward(
    launcher: &Launcher,
    operands: ConvOperands<'_>,
    options: Options,
) -> Result<Vec<Tensor>, KernelError> {
    let mut named = layer(launcher, operands, options)?;
    let (mut results, mut first) = (Vec::with_capacity(operands.inputs.len()), 0);
    for x in operands.inputs {
        first = part(&mut named, &[("x", x)], first)?;
        named.room("y", &x.size(), x.kind(), x)?;
        named.run(FORWARD)?;
        results.push(named.take("y")?);
    }
    Ok(results)
}

/// The gradients, from zeros before the first token.
pub(crate) fn backward(
    launcher: &Launcher,
    grads: &[&Tensor],
    operands: ConvOperands<'_>,
    options: Options,
) -> Result<Gradients, KernelError> {
    let mut named = layer(launcher, operands, options)?;
    partials(&mut named, BACKWARD, operands.weight)?;
    let (mut inputs, mut first) = (Vec::with_capacity(operands.inputs.len()), 0);
    for (x, dy) in operands.inputs.iter().zip(grads) {
        first = part(&mut named, &[("x", x), ("dy", dy)], first)?;
        named.room("dx", &x.size(), x.kind(), x)?;
        named.run(BACKWARD)?;
        inputs.push(named.take("dx")?);
    }
    summed(launcher, named, operands, inputs)
}

/// y = silu(g) ⊙ u, of gate and up.
pub(crate) fn gated_forward(
    launcher: &Launcher,
    operands: ConvOperands<'_>,
    [gate, up]: [&Tensor; 2],
    residual: bool,
) -> Result<Tensor, KernelError> {
    let mut named = layer(launcher, operands, gated(residual))?;
    part(&mut named, &[("gate", gate), ("up", up)], 0)?;
    named.room("y", &gate.size(), gate.kind(), gate)?;
    named.run(GATED_FORWARD)?;
    named.take("y")
}

/// The gradients of gate, up, filter and bias.
pub(crate) fn gated_backward(
    launcher: &Launcher,
    dy: &Tensor,
    operands: ConvOperands<'_>,
    [gate, up]: [&Tensor; 2],
    residual: bool,
) -> Result<Gradients, KernelError> {
    let mut named = layer(launcher, operands, gated(residual))?;
    partials(&mut named, GATED_BACKWARD, operands.weight)?;
    part(&mut named, &[("gate", gate), ("up", up), ("dy", dy)], 0)?;
    named.room("dgate", &gate.size(), gate.kind(), gate)?;
    named.room("dup", &up.size(), up.kind(), up)?;
    named.run(GATED_BACKWARD)?;
    let inputs = vec![named.take("dgate")?, named.take("dup")?];
    summed(launcher, named, operands, inputs)
}

/// The unit's activation is applied to its gate, after the convolution.
fn gated(residual: bool) -> Options {
    Options { residual, activation: Activation::Identity }
}
