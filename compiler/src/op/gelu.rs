//! `gelu(x)`: x Φ(x), with Φ the normal distribution's, or its tanh approximation (Hendrycks and Gimpel 2016).
//! No text can express Φ; the approximation is beside it because published models use either.

use super::{
    Arity, Attr, Attrs, AttrsExt, Config, ConfigKind, Default, Drawn, Mismatch, PointwiseFunction,
    Primitive, Shaped, Time, Type, pointwise_backward, pointwise_cost, pointwise_forward,
    pointwise_shape,
};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "gelu",
    revision: 1,
    doc: "x Φ(x), or x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))) (Hendrycks and Gimpel 2016, section 2)",
    why: "no text gives Φ; published models use either form",
    torch: None,
    tensors: Arity::Exactly(1),
    config: &[Config {
        name: "approximate",
        kind: ConfigKind::Bool,
        default: Default::Bool(false),
    }],
    time: Time::Pointwise,
    shape,
    cost: pointwise_cost,
    forward: |plan, call| pointwise_forward(plan, call, function(&call.attrs)),
    backward: |plan, call, lowered, dy| {
        pointwise_backward(plan, call, lowered, dy, function(&call.attrs))
    },
    drawn: Drawn::PLAIN,
    examples: &["gelu(linear a (x, 6)) + gelu(linear b (x, 6), approximate = true)"],
};

fn shape(attrs: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let mut shaped = pointwise_shape(attrs, inputs)?;
    shaped.attrs.insert("approximate", Attr::Bool(attrs.flag("approximate")));
    Ok(shaped)
}

fn function(attrs: &Attrs) -> &'static PointwiseFunction {
    if attrs.flag("approximate") { &TANH } else { &ERF }
}

pub(super) static ERF: PointwiseFunction = PointwiseFunction {
    name: "gelu_erf",
    keeps_result: false,
    single_gradient: true,
    #[cfg(test)]
    value: |x| x * normal(x),
    #[cfg(test)]
    slope: |x| {
        let density = libm::exp(-x * x / 2.0) / libm::sqrt(2.0 * std::f64::consts::PI);
        normal(x) + x * density
    },
};

pub(super) static TANH: PointwiseFunction = PointwiseFunction {
    name: "gelu_tanh",
    keeps_result: false,
    single_gradient: true,
    #[cfg(test)]
    value: |x| 0.5 * x * (1.0 + libm::tanh(inner(x))),
    #[cfg(test)]
    slope: |x| {
        let y = libm::tanh(inner(x));
        let slope = ROOT * (1.0 + 3.0 * 0.044715 * x * x);
        0.5 * (1.0 + y) + 0.5 * x * (1.0 - y * y) * slope
    },
};

/// Φ(x).
#[cfg(test)]
fn normal(x: f64) -> f64 {
    0.5 * libm::erfc(-x / std::f64::consts::SQRT_2)
}

/// √(2/π)
#[cfg(test)]
const ROOT: f64 = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;

#[cfg(test)]
fn inner(x: f64) -> f64 {
    ROOT * (x + 0.044715 * x * x * x)
}
