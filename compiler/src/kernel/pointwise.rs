//! Functions of one number, which primitives define, and their gradients.

use super::prelude::*;

/// A function of one number.
#[derive(Debug)]
pub struct PointwiseFunction {
    /// Its name in the text of a plan.
    pub name: &'static str,
    /// Whether the gradient rule reads the result rather than the operand.
    pub keeps_result: bool,
    /// Whether its gradient is one operation of libtorch on a GPU, which rounds once.
    pub single_gradient: bool,
    #[cfg(test)]
    pub(crate) value: fn(f64) -> f64,
    /// f′, from the operand or from the result.
    #[cfg(test)]
    pub(crate) slope: fn(f64) -> f64,
}

impl PartialEq for PointwiseFunction {
    fn eq(&self, other: &PointwiseFunction) -> bool {
        self.name == other.name
    }
}

impl Setting for &'static PointwiseFunction {
    fn text(&self, _: &str) -> Vec<String> {
        vec![self.name.to_owned()]
    }
}

kernel! {
    /// In: x […]. Out: y […] = f(x).
    Pointwise {
        /// f.
        function: &'static PointwiseFunction,
    }
    facts: |_| Facts::new("pointwise", Class::Function).cheap(),
    results: |_, x| vec![x.like("y", 0)],
    flops: |_, s| FUNCTION * s.x(),
    value: |k, x, _| vec![x[0].map(k.function.value)],
}

kernel! {
    /// In: dy […], and s […]: the operand x, or the result y if the function `keeps_result`. Out: dx […] = dy f′.
    PointwiseGrad {
        /// f.
        function: &'static PointwiseFunction,
    }
    facts: |k| {
        Facts::new("pointwise_grad", Class::Function).rounds_between(!k.function.single_gradient)
    },
    results: |_, x| vec![x.like("dx", 0)],
    flops: |_, s| (FUNCTION + 1) * s.x(),
    value: |k, x, _| vec![zip(x[0], x[1], |dy, s| dy * (k.function.slope)(s))],
}
