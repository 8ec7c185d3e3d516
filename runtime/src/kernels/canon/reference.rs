//! The Canon layer in plain tch, for any device and dtype: it defines what the fused path must compute, and runs where
//! that one cannot. It puts readability before speed.
//!
//! bf16 inputs are summed in f32 and rounded once, also with an f32 state.

use tch::{Kind, Tensor};

use super::super::KernelError;
use super::{Activation, ConvOperands, Gradients, Options, Shape};

pub(super) fn forward(
    shape: &Shape,
    operands: ConvOperands<'_>,
    options: Options,
) -> Result<Vec<Tensor>, KernelError> {
    let x = padded(shape, &operands)?; // [b, k-1+t, c]
    let conv = convolve(shape, &x, &operands)?; // [b, t, c]
    let acted = match options.activation {
        Activation::Identity => conv,
        Activation::Silu => conv.f_silu()?,
    };
    let y = if options.residual {
        acted.f_add(&x.f_narrow(1, shape.kernel - 1, shape.time)?)?
    } else {
        acted
    };
    split(shape, &y)
}

/// With p = conv(x) + bias and dp = dy act'(p):
///     dx[t] = (dy[t] +) sum_j w[j] dp[t + (k-1) - j]      dw[j] = sum_{b,t} dp[t] x[t - (k-1) + j]
///     dbias = sum_{b,t} dp[t]
pub(super) fn backward(
    shape: &Shape,
    grads: &[&Tensor],
    operands: ConvOperands<'_>,
    options: Options,
) -> Result<Gradients, KernelError> {
    let past = shape.kernel - 1;
    let x = padded(shape, &operands)?; // [b, k-1+t, c]
    let dy = Tensor::f_cat(grads, 2)?.f_to_kind(x.kind())?; // [b, t, c]
    let dp = match options.activation {
        Activation::Identity => dy.shallow_clone(),
        Activation::Silu => convolve(shape, &x, &operands)?.f_silu_backward(&dy)?,
    };
    let dx = x.f_zeros_like()?; // [b, k-1+t, c], the state's gradient in its first k-1 rows
    if options.residual {
        dx.f_narrow(1, past, shape.time)?.f_copy_(&dy)?;
    }
    let mut taps = Vec::new();
    for tap in 0..shape.kernel {
        let window = x.f_narrow(1, tap, shape.time)?; // [b, t, c]
        let _ = dx.f_narrow(1, tap, shape.time)?.f_add_(&dp.f_mul(&filter(
            shape,
            operands.weight,
            tap,
        )?)?)?;
        taps.push(over_tokens(&dp.f_mul(&window)?)?); // [c]
    }
    Ok(Gradients {
        inputs: split(shape, &dx.f_narrow(1, past, shape.time)?)?,
        weight: Tensor::f_stack(&taps, 1)?.f_reshape(operands.weight.size())?,
        bias: operands.bias.map(|_| over_tokens(&dp)).transpose()?,
        state: operands.state.map(|_| dx.f_narrow(1, 0, past)).transpose()?,
    })
}

/// state ++ inputs, [b, k-1+t, c], at least as wide as f32.
fn padded(shape: &Shape, operands: &ConvOperands<'_>) -> Result<Tensor, KernelError> {
    let mut x = Tensor::f_cat(operands.inputs, 2)?;
    if matches!(x.kind(), Kind::BFloat16 | Kind::Half) {
        x = x.f_to_kind(Kind::Float)?;
    }
    let before = match operands.state {
        Some(state) => state.f_to_kind(x.kind())?,
        None => Tensor::f_zeros(
            [shape.batch, shape.kernel - 1, shape.channels],
            (x.kind(), x.device()),
        )?,
    };
    Ok(Tensor::f_cat(&[before, x], 1)?)
}

/// [b, t, c] -> [c].
fn over_tokens(x: &Tensor) -> Result<Tensor, KernelError> {
    Ok(x.f_sum_dim_intlist([0i64, 1].as_slice(), false, None::<Kind>)?)
}

/// [b, k-1+t, c] -> [b, t, c], one shifted product for each tap, and the bias.
fn convolve(shape: &Shape, x: &Tensor, operands: &ConvOperands<'_>) -> Result<Tensor, KernelError> {
    let weight = operands.weight;
    let mut sum = x.f_narrow(1, 0, shape.time)?.f_mul(&filter(shape, weight, 0)?)?;
    for tap in 1..shape.kernel {
        sum = sum.f_add(&x.f_narrow(1, tap, shape.time)?.f_mul(&filter(shape, weight, tap)?)?)?;
    }
    match operands.bias {
        Some(bias) => Ok(sum.f_add(&bias.f_to_kind(x.kind())?)?),
        None => Ok(sum),
    }
}

/// Tap `tap` of every channel, [c].
fn filter(shape: &Shape, weight: &Tensor, tap: i64) -> Result<Tensor, KernelError> {
    Ok(weight.f_reshape([shape.channels, shape.kernel])?.f_select(1, tap)?)
}

/// [b, t, c] -> one [b, t, c_i] for each input.
fn split(shape: &Shape, joined: &Tensor) -> Result<Vec<Tensor>, KernelError> {
    shape
        .parts
        .iter()
        .map(|&(first, width)| Ok(joined.f_narrow(2, first, width)?.f_contiguous()?))
        .collect()
}
