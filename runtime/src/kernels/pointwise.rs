//! Functions of one number and their gradients, by libtorch. A gradient reads the operand or the result, as
//! `keeps_result` of the function's definition says.

use compiler::op::Function;
use tch::{TchError, Tensor};

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

type Gradient = fn(&Tensor, &Tensor) -> Result<Tensor, TchError>;

/// dy f′ by one operation, which on a GPU reads bf16, computes in f32 and rounds once; `None` for functions without one.
/// libtorch's CUDA kernels round every intermediate result of the gradients of sigmoid and tanh.
pub fn single_gradient(function: Function) -> Option<Gradient> {
    match function {
        Function::Silu => Some(|dy, x| x.f_silu_backward(dy)),
        Function::Softplus => Some(|dy, x| softplus_backward(dy, x, 1)),
        // That of softplus(−x): dy σ(−x).
        Function::LogSigmoid => Some(|dy, x| softplus_backward(dy, x, -1)),
        Function::Relu => Some(|dy, x| x.f_threshold_backward(dy, 0.0)),
        Function::Exp => Some(|dy, y| dy.f_mul(y)),
        Function::GeluErf => Some(|dy, x| x.f_gelu_backward(dy, "none")),
        Function::GeluTanh => Some(|dy, x| x.f_gelu_backward(dy, "tanh")),
        Function::Log => Some(|dy, x| dy.f_div(x)),
        Function::Sigmoid | Function::Tanh | Function::Reciprocal => None,
    }
}

/// dy σ(beta x), and dy where beta x is above 20.
fn softplus_backward(dy: &Tensor, x: &Tensor, beta: i64) -> Result<Tensor, TchError> {
    x.f_softplus_backward(dy, beta, 20)
}
