//! The running means that an optimizer keeps for each parameter.

use compiler::plan::ParamUpdate;
use tch::Tensor;

use super::ExecuteError;
use crate::weights::Weights;

/// Running means, in parameter order; one that a parameter's update does not keep is empty.
#[derive(Debug)]
pub struct Moments {
    pub first: Vec<Tensor>,
    pub second: Vec<Tensor>,
}

impl Moments {
    /// The moments before the first step.
    pub fn zeros(weights: &Weights, updates: &[ParamUpdate]) -> Result<Self, ExecuteError> {
        let zeros = |which: usize| {
            let tensors = weights.tensors.iter().enumerate();
            let zeros = tensors.map(|(param, weight)| {
                match ParamUpdate::for_param(updates, param).moments() > which {
                    true => weight.f_zeros_like(),
                    false => weight.f_new_zeros([0].as_slice(), (weight.kind(), weight.device())),
                }
            });
            zeros.collect::<Result<Vec<_>, _>>()
        };
        Ok(Self { first: zeros(0)?, second: zeros(1)? })
    }
}
