//! Runs a recurrence token by token, by the reference in its primitive's file, with its states kept for the backward pass.

use super::tensor::Tensor;
use crate::op::Recurrence;

/// Changes one head's state by one token, and returns the result.
pub(crate) type Step = fn(&[&Tensor], &mut Matrix, At) -> Vec<f64>;

/// Adds one token's gradients, and turns dS of the state after it into that of the one before.
pub(crate) type BackStep = fn(&[&Tensor], &mut Back, At);

/// One head of one token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    b: usize,
    t: usize,
    h: usize,
    heads: usize,
}

/// One head's state, rows × columns.
#[derive(Clone, Debug)]
pub(crate) struct Matrix {
    rows: usize,
    columns: usize,
    data: Vec<f64>,
}

/// A backward pass at one token.
pub(crate) struct Back<'a> {
    /// Of the result.
    pub(crate) dy: &'a [f64],
    pub(crate) before: &'a Matrix,
    pub(crate) after: &'a Matrix,
    /// Of the state after the token; of the one before when the step is done.
    pub(crate) ds: &'a mut Matrix,
    gradients: &'a mut [Tensor],
}

impl Back<'_> {
    /// Adds to the gradient of operand i.
    pub(crate) fn add(&mut self, i: usize, at: At, values: &[f64]) {
        let place = place(&self.gradients[i], at);
        for (x, value) in self.gradients[i].data[place].iter_mut().zip(values) {
            *x += value;
        }
    }
}

impl Matrix {
    fn zeros(rows: usize, columns: usize) -> Matrix {
        Matrix { rows, columns, data: vec![0.0; rows * columns] }
    }

    pub(crate) fn each(&mut self, mut f: impl FnMut(usize, usize, &mut f64)) {
        for (n, x) in self.data.iter_mut().enumerate() {
            f(n / self.columns, n % self.columns, x);
        }
    }

    /// S + a bᵀ.
    pub(crate) fn add_outer(&mut self, a: &[f64], b: &[f64]) {
        self.each(|i, j, x| *x += a[i] * b[j]);
    }

    /// S b.
    pub(crate) fn times(&self, b: &[f64]) -> Vec<f64> {
        self.data.chunks(self.columns).map(|row| dot(row, b)).collect()
    }

    /// Sᵀ a.
    pub(crate) fn transposed_times(&self, a: &[f64]) -> Vec<f64> {
        (0..self.columns)
            .map(|j| (0..self.rows).map(|i| self.data[i * self.columns + j] * a[i]).sum())
            .collect()
    }

    /// Each row's product with the other's.
    pub(crate) fn row_products(&self, other: &Matrix) -> Vec<f64> {
        let rows = self.data.chunks(self.columns).zip(other.data.chunks(self.columns));
        rows.map(|(a, b)| dot(a, b)).collect()
    }

    /// The sum of all products of two elements at one place.
    pub(crate) fn dot(&self, other: &Matrix) -> f64 {
        dot(&self.data, &other.data)
    }
}

pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub(crate) fn scaled(a: &[f64], by: f64) -> Vec<f64> {
    a.iter().map(|x| by * x).collect()
}

pub(crate) fn exp(x: &[f64]) -> Vec<f64> {
    x.iter().map(|x| libm::exp(*x)).collect()
}

/// The factor of queries of this width.
pub(crate) fn read_out(q: &[f64]) -> f64 {
    1.0 / libm::sqrt(q.len() as f64)
}

/// The vectors of all operands at one head of one token; numbers have length 1.
pub(crate) fn operands<'a, const N: usize>(x: &[&'a Tensor], at: At) -> [&'a [f64]; N] {
    assert_eq!(x.len(), N);
    std::array::from_fn(|i| &x[i].data[place(x[i], at)])
}

/// The elements of x at one head of one token. x is [b, t, h], [b, t, h, …], or a parameter [h] or
/// [h, …]; with fewer heads than there are, head j reads head ⌊j·own/heads⌋.
fn place(x: &Tensor, At { b, t, h, heads }: At) -> std::ops::Range<usize> {
    let (before, own) = match x.dims[..] {
        [own] | [own, _] => (0, own),
        [_, time, own] | [_, time, own, _] => (b * time + t, own),
        _ => panic!("an operand of a scan is {:?}", x.dims),
    };
    let width = if x.dims.len().is_multiple_of(2) { x.width() } else { 1 };
    let at = (before * own + h * own / heads) * width;
    at..at + width
}

/// The results and every state: those of one head follow one another, from the one before the first token on.
fn run(
    scan: &Recurrence,
    x: &[&Tensor],
    initial: Option<&Tensor>,
) -> (Tensor, Tensor, Vec<Matrix>) {
    let like = x[scan.result];
    let (rows, columns) = (x[scan.rows].width(), x[scan.columns].width());
    let (batch, time, heads) = (like.dims[0], like.dims[1], like.dims[2]);
    let mut y = Tensor::zeros(like.dims.clone());
    let mut last = Tensor::zeros(vec![batch, heads, rows, columns]);
    let mut states = Vec::new();
    let size = rows * columns;
    for n in 0..batch * heads {
        let (b, h) = (n / heads, n % heads);
        let mut s = Matrix::zeros(rows, columns);
        if let Some(initial) = initial {
            s.data.copy_from_slice(&initial.data[n * size..][..size]);
        }
        for t in 0..time {
            let at = At { b, t, h, heads };
            states.push(s.clone());
            let out = (scan.step)(x, &mut s, at);
            let place = place(&y, at);
            y.data[place].copy_from_slice(&out);
        }
        states.push(s.clone());
        last.data[n * size..][..size].copy_from_slice(&s.data);
    }
    (y, last, states)
}

pub(super) fn forward(scan: &Recurrence, x: &[&Tensor], state: bool) -> Vec<Tensor> {
    let (operands, past) = x.split_at(scan.operands.len());
    assert_eq!(past.len(), usize::from(state));
    let (y, last, _) = run(scan, operands, past.first().copied());
    vec![y, last]
}

pub(super) fn backward(scan: &Recurrence, x: &[&Tensor]) -> Vec<Tensor> {
    let (dy, x) = (x[0], &x[1..]);
    let (_, _, states) = run(scan, x, None);
    let mut gradients: Vec<Tensor> = x.iter().map(|x| Tensor::zeros(x.dims.clone())).collect();
    let (batch, time, heads) = (dy.dims[0], dy.dims[1], dy.dims[2]);
    for n in 0..batch * heads {
        let of = &states[n * (time + 1)..][..time + 1];
        let mut ds = Matrix::zeros(of[0].rows, of[0].columns);
        for t in (0..time).rev() {
            let at = At { b: n / heads, t, h: n % heads, heads };
            let mut back = Back {
                dy: &dy.data[place(dy, at)],
                before: &of[t],
                after: &of[t + 1],
                ds: &mut ds,
                gradients: &mut gradients,
            };
            (scan.back)(x, &mut back, at);
        }
    }
    gradients
}
