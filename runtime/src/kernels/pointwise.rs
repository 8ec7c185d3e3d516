//! Functions of one number, sums and products, by libtorch.
//! In: tensors of the plan's shapes. Out: new tensors. Must stay true: a gradient reads the operand or the result, as
//! `keeps_result` of the function's definition says.

use compiler::plan::Function;
use tch::Tensor;

use super::KernelError;

pub fn apply(function: Function, x: &Tensor) -> Result<Tensor, KernelError> {
    Ok(match function {
        Function::Silu => x.f_silu()?,
        Function::Sigmoid => x.f_sigmoid()?,
        Function::Softplus => x.f_softplus()?, // linear above 20
        Function::LogSigmoid => x.f_log_sigmoid()?,
        Function::Relu => x.f_relu()?,
        Function::Exp => x.f_exp()?,
        Function::GeluErf => x.f_gelu("none")?,
        Function::GeluTanh => x.f_gelu("tanh")?,
        Function::Log => x.f_log()?,
        Function::Reciprocal => x.f_reciprocal()?,
        Function::Tanh => x.f_tanh()?,
    })
}

/// dy f′, from the operand or the result of f.
pub fn gradient(function: Function, dy: &Tensor, kept: &Tensor) -> Result<Tensor, KernelError> {
    Ok(match function {
        Function::Silu => kept.f_silu_backward(dy)?,
        Function::Sigmoid => Tensor::f_sigmoid_backward(dy, kept)?,
        Function::Softplus => {
            let slope = kept.f_sigmoid()?;
            let linear = kept.f_gt(20.0)?;
            dy.f_mul(&slope.f_masked_fill(&linear, 1.0)?)?
        }
        Function::LogSigmoid => dy.f_mul(&kept.f_neg()?.f_sigmoid()?)?,
        Function::Relu => kept.f_threshold_backward(dy, 0.0)?,
        Function::Exp => dy.f_mul(kept)?,
        Function::GeluErf => kept.f_gelu_backward(dy, "none")?,
        Function::GeluTanh => kept.f_gelu_backward(dy, "tanh")?,
        Function::Log => dy.f_div(kept)?,
        Function::Reciprocal => dy.f_mul(&kept.f_square()?)?.f_neg()?,
        Function::Tanh => Tensor::f_tanh_backward(dy, kept)?,
    })
}
