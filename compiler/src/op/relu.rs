//! `relu(x)`: max(x, 0), with slope 0 at 0 (Nair and Hinton 2010, section 2)

use super::{
    Arity, Drawn, PointwiseFunction, Primitive, Time, pointwise_backward, pointwise_cost,
    pointwise_forward, pointwise_shape,
};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "relu",
    revision: 1,
    doc: "max(x, 0), with slope 0 at 0 (Nair and Hinton 2010, section 2)",
    why: "no arithmetic gives it",
    torch: Some("F.relu({0})"),
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape: pointwise_shape,
    cost: pointwise_cost,
    forward: |plan, call| pointwise_forward(plan, call, &FUNCTION),
    backward: |plan, call, lowered, dy| pointwise_backward(plan, call, lowered, dy, &FUNCTION),
    drawn: Drawn::PLAIN,
    // The second is ReLU² (So et al. 2021), the usual reason for it.
    examples: &["relu(x)", "y = relu(linear w (x, 6)) linear o (y * y, 6)"],
};

pub(super) static FUNCTION: PointwiseFunction = PointwiseFunction {
    name: "relu",
    keeps_result: false,
    single_gradient: true,
    #[cfg(test)]
    value: |x| x.max(0.0),
    #[cfg(test)]
    slope: |x| if x > 0.0 { 1.0 } else { 0.0 },
};
