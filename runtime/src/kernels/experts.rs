//! Selection of experts for each token, and projections by the selected ones.
//!
//! On the CPU the pairs of a token and an id are sorted by expert, and each expert makes one product. That needs the
//! ids as numbers, which on a GPU would mean waiting for it: there, as in the plain form, each expert projects every
//! token, and results for tokens that did not choose it are dropped.
//!
//! Equal scores are chosen by place. Every pair is computed: experts have no capacity, so a token's result does not
//! depend on other tokens. A gradient sums pairs in (batch, time) order.

use std::fmt;

use tch::{Kind, Tensor};

use super::KernelError;
use super::linear::{self, Product};
use super::path::{Path, Reason};

/// How tokens are multiplied by their experts' matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Sorted by expert, one product for each.
    Sorted(Product),
    /// Every expert for every token, then the chosen ones.
    Dense(Reason),
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sorted(product) => write!(f, "by expert, products {product}"),
            Self::Dense(reason) => Path::Reference(*reason).fmt(f),
        }
    }
}

/// The scores of each token with the largest score + bias, largest first, and their ids: [b, t, n] -> 2 × [b, t,
/// count].
pub fn top_k(
    scores: &Tensor,
    bias: Option<&Tensor>,
    count: i64,
) -> Result<(Tensor, Tensor), KernelError> {
    let ranked = match bias {
        Some(bias) => scores.f_add(bias)?,
        None => scores.shallow_clone(),
    };
    // A stable sort leaves equal scores in the order of their places.
    let (_, ids) = ranked.f_sort_stable(true, -1, true)?;
    let ids = ids.f_narrow(-1, 0, count)?.f_contiguous()?;
    Ok((scores.f_gather(-1, &ids, false)?, ids))
}

/// dy at the ids, zeros elsewhere: [b, t, k] -> [b, t, width].
pub fn scatter(dy: &Tensor, ids: &Tensor, width: i64) -> Result<Tensor, KernelError> {
    let zeros = Tensor::f_zeros(with_last(dy, width), (dy.kind(), dy.device()))?;
    Ok(zeros.f_scatter(-1, ids, dy)?)
}

/// 1 at the ids, 0 elsewhere, in this dtype: [b, t, k] -> [b, t, width].
pub fn one_hot(ids: &Tensor, width: i64, kind: Kind) -> Result<Tensor, KernelError> {
    let zeros = Tensor::f_zeros(with_last(ids, width), (kind, ids.device()))?;
    Ok(zeros.f_scatter_value(-1, ids, 1.0)?)
}

/// x weight\[id\]ᵀ (+ bias\[id\]): [b, t, i] or [b, t, k, i] by [e, o, i] -> [b, t, k, o].
pub fn forward(
    form: Form,
    x: &Tensor,
    ids: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
) -> Result<Tensor, KernelError> {
    let out = extent(weight, 1);
    let size = joined(ids, out);
    match form {
        Form::Sorted(product) => {
            let sorted = Sorted::new(ids, extent(weight, 0))?;
            let x = sorted.rows(x, ids)?; // [pairs, i]
            let each = sorted.experts(|expert, first, count| {
                let bias = bias.map(|bias| bias.f_select(0, expert)).transpose()?;
                let x = x.f_narrow(0, first, count)?;
                linear::linear(product, &x, &weight.f_select(0, expert)?, bias.as_ref())
            })?;
            Ok(sorted.restore(&each, (out, x.kind(), x.device()))?.f_reshape(size)?)
        }
        Form::Dense(_) => {
            let mut y = Tensor::f_zeros(size, (x.kind(), x.device()))?;
            for expert in 0..extent(weight, 0) {
                let chosen = Chosen::new(ids, expert)?;
                let bias = bias.map(|bias| bias.f_select(0, expert)).transpose()?;
                let all = chosen.x(x)?.f_linear(&weight.f_select(0, expert)?, bias.as_ref())?;
                y = chosen.put(&all, &y)?;
            }
            Ok(y)
        }
    }
}

/// dy weight\[id\]: [b, t, k, o] by [e, o, i] -> [b, t, k, i].
pub fn grad_input(
    form: Form,
    dy: &Tensor,
    ids: &Tensor,
    weight: &Tensor,
) -> Result<Tensor, KernelError> {
    let width = extent(weight, 2);
    let size = joined(ids, width);
    match form {
        Form::Sorted(product) => {
            let sorted = Sorted::new(ids, extent(weight, 0))?;
            let dy = sorted.rows(dy, ids)?; // [pairs, o]
            let each = sorted.experts(|expert, first, count| {
                let dy = dy.f_narrow(0, first, count)?;
                linear::linear_grad_input(product, &dy, &weight.f_select(0, expert)?)
            })?;
            Ok(sorted.restore(&each, (width, dy.kind(), dy.device()))?.f_reshape(size)?)
        }
        Form::Dense(_) => {
            let mut dx = Tensor::f_zeros(size, (dy.kind(), dy.device()))?;
            for expert in 0..extent(weight, 0) {
                let chosen = Chosen::new(ids, expert)?;
                let all = chosen.x(dy)?.f_matmul(&weight.f_select(0, expert)?)?;
                dx = chosen.put(&all, &dx)?;
            }
            Ok(dx)
        }
    }
}

/// Σ dyᵀ x over the pairs of each expert: [b, t, k, o] and [b, t, i] or [b, t, k, i] -> [e, o, i].
pub fn grad_weight(
    form: Form,
    dy: &Tensor,
    ids: &Tensor,
    x: &Tensor,
    experts: i64,
) -> Result<Tensor, KernelError> {
    let last = |x: &Tensor| x.size().last().copied().unwrap_or(0);
    let size = [experts, last(dy), last(x)];
    let mut dweight = Tensor::f_zeros(size, (dy.kind(), dy.device()))?;
    match form {
        Form::Sorted(product) => {
            let sorted = Sorted::new(ids, experts)?;
            let (dy, x) = (sorted.rows(dy, ids)?, sorted.rows(x, ids)?);
            sorted.experts(|expert, first, count| {
                let (dy, x) = (dy.f_narrow(0, first, count)?, x.f_narrow(0, first, count)?);
                let sum = linear::linear_grad_weight(product, &dy, &x)?;
                dweight.f_select(0, expert)?.f_copy_(&sum)?;
                Ok(sum)
            })?;
        }
        Form::Dense(_) => {
            let mut each = Vec::new();
            for expert in 0..experts {
                let chosen = Chosen::new(ids, expert)?;
                let (dy, x) = (chosen.x(dy)?.f_flatten(0, -2)?, chosen.x(x)?.f_flatten(0, -2)?);
                each.push(dy.f_transpose(0, 1)?.f_matmul(&x)?);
            }
            dweight = Tensor::f_stack(&each, 0)?;
        }
    }
    Ok(dweight)
}

/// Σ dy over the pairs of each expert: [b, t, k, o] -> [e, o].
pub fn sum(path: Path, dy: &Tensor, ids: &Tensor, experts: i64) -> Result<Tensor, KernelError> {
    if let Path::Fused(_) = path {
        let out = dy.size().last().copied().unwrap_or(0);
        let dbias = Tensor::f_zeros([experts, out], (dy.kind(), dy.device()))?;
        let sorted = Sorted::new(ids, experts)?;
        let dy = sorted.rows(dy, ids)?.f_unsqueeze(0)?; // [1, pairs, o]
        sorted.experts(|expert, first, count| {
            let sum = linear::sum_tokens(path, &dy.f_narrow(1, first, count)?)?;
            dbias.f_select(0, expert)?.f_copy_(&sum)?;
            Ok(sum)
        })?;
        return Ok(dbias);
    }
    let each = (0..experts).map(|expert| {
        let dy = Chosen::new(ids, expert)?.x(dy)?;
        Ok(dy.f_sum_dim_intlist([0i64, 1].as_slice(), false, None::<Kind>)?)
    });
    Ok(Tensor::f_stack(&each.collect::<Result<Vec<_>, KernelError>>()?, 0)?)
}

/// The pairs of a token and an id, by expert; those of one expert in the order of (batch, time, id).
struct Sorted {
    /// The first pair of each expert in that order, and then the number of pairs.
    starts: Vec<i64>,
    /// Pairs in that order.
    order: Tensor,
    /// The place of each pair in that order.
    places: Tensor,
}

impl Sorted {
    fn new(ids: &Tensor, experts: i64) -> Result<Self, KernelError> {
        let ids = Vec::<i64>::try_from(ids.f_flatten(0, -1)?)?;
        let mut starts = vec![0i64; experts as usize + 1];
        for id in &ids {
            match starts.get_mut(*id as usize + 1) {
                Some(count) => *count += 1,
                None => return Err(KernelError::new(format!("expert {id} of {experts}"))),
            }
        }
        for expert in 1..starts.len() {
            starts[expert] += starts[expert - 1];
        }
        let mut next = starts.clone();
        let (mut order, mut places) = (vec![0i64; ids.len()], vec![0i64; ids.len()]);
        for (pair, id) in ids.iter().enumerate() {
            let position = &mut next[*id as usize];
            order[*position as usize] = pair as i64;
            places[pair] = *position;
            *position += 1;
        }
        Ok(Self { starts, order: Tensor::from_slice(&order), places: Tensor::from_slice(&places) })
    }

    /// The rows of the pairs, in order: a token's for all of its ids, or one for each.
    fn rows(&self, x: &Tensor, ids: &Tensor) -> Result<Tensor, KernelError> {
        let flat = x.f_flatten(0, -2)?;
        if x.dim() > ids.dim() {
            return Ok(flat.f_index_select(0, &self.order)?);
        }
        let each = ids.size().last().copied().unwrap_or(1);
        let tokens = self.order.f_div_scalar_mode(each, "floor")?;
        Ok(flat.f_index_select(0, &tokens)?)
    }

    /// Calls `each` for every expert that has pairs, with its id, its first pair and its number of pairs.
    fn experts(
        &self,
        mut each: impl FnMut(i64, i64, i64) -> Result<Tensor, KernelError>,
    ) -> Result<Vec<Tensor>, KernelError> {
        let bounds = self.starts.windows(2).enumerate();
        bounds
            .filter(|(_, bound)| bound[1] > bound[0])
            .map(|(expert, bound)| each(expert as i64, bound[0], bound[1] - bound[0]))
            .collect()
    }

    /// The experts' results as rows of the pairs, in the pairs' own order.
    fn restore(
        &self,
        each: &[Tensor],
        (width, kind, device): (i64, Kind, tch::Device),
    ) -> Result<Tensor, KernelError> {
        if each.is_empty() {
            return Ok(Tensor::f_empty([0, width], (kind, device))?);
        }
        Ok(Tensor::f_cat(each, 0)?.f_index_select(0, &self.places)?)
    }
}

/// The pairs of one expert among all: a token has an id at most once.
struct Chosen {
    /// [b, t, k, 1]
    mask: Tensor,
}

impl Chosen {
    fn new(ids: &Tensor, expert: i64) -> Result<Self, KernelError> {
        Ok(Self { mask: ids.f_eq(expert)?.f_unsqueeze(-1)? })
    }

    /// The vector of each token for the expert: [b, t, c]. Zeros where a token has its own vectors but none for this
    /// expert.
    fn x(&self, x: &Tensor) -> Result<Tensor, KernelError> {
        if x.dim() < self.mask.dim() {
            return Ok(x.shallow_clone());
        }
        let chosen = x.f_where_self(&self.mask, &x.f_zeros_like()?)?;
        // All but one are zeros.
        Ok(chosen.f_sum_dim_intlist([-2i64].as_slice(), false, None::<Kind>)?)
    }

    /// y, with the expert's results [b, t, c] at its pairs.
    fn put(&self, all: &Tensor, y: &Tensor) -> Result<Tensor, KernelError> {
        Ok(all.f_unsqueeze(-2)?.f_where_self(&self.mask, y)?)
    }
}

fn extent(x: &Tensor, axis: usize) -> i64 {
    x.size().get(axis).copied().unwrap_or(0)
}

/// The shape of x with another last axis.
fn with_last(x: &Tensor, last: i64) -> Vec<i64> {
    let mut size = x.size();
    size.pop();
    size.push(last);
    size
}

/// [b, t, k, last]
fn joined(ids: &Tensor, last: i64) -> Vec<i64> {
    let mut size = ids.size();
    size.push(last);
    size
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;
    use crate::kernels::path;

    /// Numbers that depend only on the name and the shape.
    fn numbers(name: &str, size: &[i64]) -> Tensor {
        let seed = name.bytes().fold(1.0, |sum, byte| sum + f64::from(byte));
        let count: i64 = size.iter().product();
        let at = Tensor::arange(count, (Kind::Double, Device::Cpu)) * 0.7548776662466927 + seed;
        // Digits that follow no wave: sums of waves cancel.
        ((at * 12.9898).sin() * 43_758.545_3).frac().reshape(size) * 1.5
    }

    fn ids(size: [i64; 3], experts: i64) -> Tensor {
        let [b, t, k] = size;
        top_k(&numbers("scores", &[b, t, experts]), None, k).unwrap().1
    }

    /// [b, t, k], experts, in, out; the third leaves most experts without tokens.
    const SIZES: [([i64; 3], i64, i64, i64); 4] = [
        ([1, 1, 1], 1, 1, 1),
        ([2, 5, 2], 3, 7, 5),
        ([1, 3, 1], 16, 4, 8),
        ([2, 70, 3], 8, 33, 17),
    ];

    /// Everything that experts compute, for an x of each token and of each pair.
    fn all(form: Form, path: Path, at: usize, kind: Kind) -> Vec<Tensor> {
        let (size, experts, width, out) = SIZES[at];
        let [b, t, k] = size;
        let ids = ids(size, experts);
        let weight = numbers("weight", &[experts, out, width]).to_kind(kind);
        let bias = numbers("bias", &[experts, out]).to_kind(kind);
        let dy = numbers("dy", &[b, t, k, out]).to_kind(kind);
        let mut results = vec![
            grad_input(form, &dy, &ids, &weight).unwrap(),
            sum(path, &dy, &ids, experts).unwrap(),
        ];
        for x in [numbers("x", &[b, t, width]), numbers("x", &[b, t, k, width])] {
            let x = x.to_kind(kind);
            results.push(forward(form, &x, &ids, &weight, None).unwrap());
            results.push(forward(form, &x, &ids, &weight, Some(&bias)).unwrap());
            results.push(grad_weight(form, &dy, &ids, &x, experts).unwrap());
        }
        results
    }

    #[test]
    fn sorted_pairs_are_those_of_every_expert_for_every_token() {
        let plain = Path::Reference(Reason::Asked);
        for at in 0..SIZES.len() {
            let exact = all(Form::Dense(Reason::Asked), plain, at, Kind::Double);
            for (kind, within) in
                [(Kind::Double, 1e-13), (Kind::Float, 1e-5), (Kind::BFloat16, 3e-2)]
            {
                let fused = path::choose(kind, Device::Cpu);
                let product = Product::choose(kind, Device::Cpu);
                for (form, path) in
                    [(Form::Sorted(product), fused), (Form::Dense(Reason::Asked), plain)]
                {
                    let results = all(form, path, at, kind);
                    for (what, (result, exact)) in results.iter().zip(&exact).enumerate() {
                        assert_eq!((result.size(), result.kind()), (exact.size(), kind));
                        let off = (result.to_kind(Kind::Double) - exact).abs().max();
                        let off = off.double_value(&[]) / exact.abs().max().double_value(&[]);
                        assert!(off <= within, "{form:?}, {at}, {kind:?}, result {what}: {off:e}");
                    }
                }
            }
        }
    }

    #[test]
    fn experts_have_the_same_bits_on_one_thread_and_two() {
        let product = Product::choose(Kind::Float, Device::Cpu);
        let path = path::choose(Kind::Float, Device::Cpu);
        let at = SIZES.len() - 1;
        let before = tch::get_num_threads();
        let mut all = [1, 2].map(|threads| {
            tch::set_num_threads(threads);
            all(Form::Sorted(product), path, at, Kind::Float)
        });
        tch::set_num_threads(before);
        let [one, two] = &mut all;
        assert!(one.iter().zip(two).all(|(one, two)| one == two));
    }

    #[test]
    fn experts_without_tokens_have_no_gradient() {
        let ids = Tensor::from_slice(&[2i64, 0, 2, 0]).reshape([1, 2, 2]);
        let (dy, x) = (numbers("dy", &[1, 2, 2, 3]), numbers("x", &[1, 2, 4]));
        let form = Form::Sorted(Product::Library);
        let dweight = grad_weight(form, &dy, &ids, &x, 4).unwrap();
        let largest = dweight.abs().amax([1i64, 2].as_slice(), false);
        let zero: Vec<bool> =
            Vec::<f64>::try_from(largest).unwrap().iter().map(|x| *x == 0.0).collect();
        assert_eq!(zero, [false, true, false, true]);
        let error = grad_weight(form, &dy, &(&ids + 9), &x, 4).unwrap_err();
        assert_eq!(error.to_string(), "expert 11 of 4");
    }

    #[test]
    fn equal_scores_are_chosen_by_place_and_a_bias_only_chooses() {
        let scores = Tensor::from_slice(&[1.0f32, 3.0, 3.0, 0.0, 3.0, -0.0]).reshape([1, 1, 6]);
        let chosen = |bias: Option<&Tensor>, count| {
            let (y, ids) = top_k(&scores, bias, count).unwrap();
            let y = Vec::<f32>::try_from(y.flatten(0, -1)).unwrap();
            (y, Vec::<i64>::try_from(ids.flatten(0, -1)).unwrap())
        };
        assert_eq!(chosen(None, 2), (vec![3.0, 3.0], vec![1, 2]));
        assert_eq!(chosen(None, 6).1, [1, 2, 4, 0, 3, 5]);
        let bias = Tensor::from_slice(&[2.0f32, 0.0, 0.0, 9.0, 0.5, 0.0]);
        assert_eq!(chosen(Some(&bias), 3), (vec![0.0, 3.0, 1.0], vec![3, 4, 0]));
        let same = Tensor::zeros([1, 3, 5], (Kind::Float, Device::Cpu));
        let (_, ids) = top_k(&same, None, 3).unwrap();
        assert!(ids == Tensor::from_slice(&[0i64, 1, 2]).expand([1, 3, 3], false));
    }

    #[test]
    fn ids_are_scattered_and_counted() {
        let ids = Tensor::from_slice(&[3i64, 0]).reshape([1, 1, 2]);
        let dy = Tensor::from_slice(&[5.0f32, 7.0]).reshape([1, 1, 2]);
        let row = |x: Tensor| Vec::<f32>::try_from(x.flatten(0, -1)).unwrap();
        assert_eq!(row(scatter(&dy, &ids, 4).unwrap()), [7.0, 0.0, 0.0, 5.0]);
        assert_eq!(row(one_hot(&ids, 4, Kind::Float).unwrap()), [1.0, 0.0, 0.0, 1.0]);
    }
}
