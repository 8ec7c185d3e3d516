//! Weighted sums of heads, and their gradients, by libtorch.
//!
//! Each product is rounded, then added in the order of the heads, so the bits depend neither on threads nor on how a
//! sequence is cut.

use compiler::plan::Mixed;
use tch::Tensor;

use super::{KernelError, channels};

/// A kernel `MixHeads` of the plan.
pub fn run(part: Mixed, one: bool, a: &Tensor, b: &Tensor) -> Result<Tensor, KernelError> {
    match part {
        Mixed::Heads => {
            let weights = Weights::from_tensor(b, one)?;
            let (heads, sums) = weights.size();
            let y = |j| sum(heads, |i| Ok(a.f_select(2, i)?.f_mul(&weights.at(i, j)?)?));
            if one { y(0) } else { stacked(sums, y) }
        }
        Mixed::Input => {
            let weights = Weights::from_tensor(b, one)?;
            let (heads, sums) = weights.size();
            let dy = |j| if one { Ok(a.shallow_clone()) } else { a.f_select(2, j) };
            stacked(heads, |i| sum(sums, |j| Ok(dy(j)?.f_mul(&weights.at(i, j)?)?)))
        }
        Mixed::Weights => {
            let dy = if one { a.f_unsqueeze(2)? } else { a.shallow_clone() }; // [b, t, m, d]
            let rows = b.f_unsqueeze(3)?.f_mul(&dy.f_unsqueeze(2)?)?; // [b, t, n, m, d]
            let sums = channels::sum(&rows, false)?;
            Ok(if one { sums.f_squeeze_dim(3)? } else { sums })
        }
    }
}

/// [n, m], or [b, t, n, m].
struct Weights(Tensor);

impl Weights {
    fn from_tensor(weights: &Tensor, one: bool) -> Result<Weights, KernelError> {
        Ok(Weights(if one { weights.f_unsqueeze(-1)? } else { weights.shallow_clone() }))
    }

    fn size(&self) -> (i64, i64) {
        match self.0.size()[..] {
            [.., n, m] => (n, m),
            _ => (0, 0),
        }
    }

    /// One weight: a number, or [b, t, 1].
    fn at(&self, i: i64, j: i64) -> Result<Tensor, KernelError> {
        let weight = self.0.f_select(-2, i)?.f_select(-1, j)?;
        Ok(if weight.dim() == 0 { weight } else { weight.f_unsqueeze(-1)? })
    }
}

/// term(0) + term(1) + …
fn sum(
    count: i64,
    term: impl Fn(i64) -> Result<Tensor, KernelError>,
) -> Result<Tensor, KernelError> {
    let mut sum = term(0)?;
    for i in 1..count {
        sum = sum.f_add_(&term(i)?)?;
    }
    Ok(sum)
}

/// The heads [b, t, d] as [b, t, count, d].
fn stacked(
    count: i64,
    head: impl Fn(i64) -> Result<Tensor, KernelError>,
) -> Result<Tensor, KernelError> {
    let heads = (0..count).map(head).collect::<Result<Vec<_>, _>>()?;
    Ok(Tensor::f_stack(&heads, 2)?)
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;

    const DOUBLE: (Kind, Device) = (Kind::Double, Device::Cpu);

    fn close(got: &Tensor, want: &Tensor) {
        assert_eq!(got.size(), want.size());
        assert!((got - want).abs().max().double_value(&[]) < 1e-12);
    }

    #[test]
    fn all_parts_are_products_of_matrices() {
        let [x, dy] = [4, 3].map(|heads| Tensor::randn([2, 5, heads, 6], DOUBLE));
        for weights in [Tensor::randn([4, 3], DOUBLE), Tensor::randn([2, 5, 4, 3], DOUBLE)] {
            let y = run(Mixed::Heads, false, &x, &weights).unwrap();
            close(&y, &weights.transpose(-1, -2).matmul(&x));
            close(&run(Mixed::Input, false, &dy, &weights).unwrap(), &weights.matmul(&dy));
        }
        let dw = run(Mixed::Weights, false, &dy, &x).unwrap();
        close(&dw, &x.matmul(&dy.transpose(-1, -2)));
    }

    #[test]
    fn one_sum_has_no_axis() {
        let (x, dy) = (Tensor::randn([2, 5, 4, 6], DOUBLE), Tensor::randn([2, 5, 6], DOUBLE));
        for weights in [Tensor::randn([4], DOUBLE), Tensor::randn([2, 5, 4], DOUBLE)] {
            let wide = weights.unsqueeze(-1);
            let y = run(Mixed::Heads, true, &x, &weights).unwrap();
            close(&y, &(&x * &wide).sum_dim_intlist([2i64].as_slice(), false, None::<Kind>));
            close(&run(Mixed::Input, true, &dy, &weights).unwrap(), &(dy.unsqueeze(2) * wide));
        }
        let dw = run(Mixed::Weights, true, &dy, &x).unwrap();
        close(&dw, &x.matmul(&dy.unsqueeze(-1)).squeeze_dim(-1));
    }
}
