//! Linear recurrences over time with a matrix per head, which primitives define, and their gradients.

use super::prelude::*;

/// A linear recurrence with one matrix per head. Its gradient starts from zero state and recomputes the states.
#[derive(Debug)]
pub struct Recurrence {
    /// Its name in the text of a plan.
    pub name: &'static str,
    /// The name of the gradient in the text of a plan.
    pub gradient: &'static str,
    /// Names of the operands, in order.
    pub operands: &'static [&'static str],
    /// The operand that the result has the shape of.
    pub result: usize,
    /// The operands that have the state's rows and columns as their last extent.
    pub rows: usize,
    /// The operand with the state's columns as its last extent.
    pub columns: usize,
    /// Operations of a forward pass for each token and element of the state.
    pub flops: i64,
    #[cfg(test)]
    pub(crate) step: reference::Step,
    #[cfg(test)]
    pub(crate) back: reference::BackStep,
}

impl PartialEq for Recurrence {
    fn eq(&self, other: &Recurrence) -> bool {
        self.name == other.name
    }
}

/// It is the kernel's name.
impl Setting for &'static Recurrence {
    fn text(&self, _: &str) -> Vec<String> {
        Vec::new()
    }
}

kernel! {
    /// A linear recurrence, with the equations of its definition. In: its operands; if `state` S
    /// [b, h, rows, columns], else zeros. Out: y [b, t, h, …], S after the last token.
    Scan {
        /// The recurrence.
        scan: &'static Recurrence,
        /// Whether an initial state is given.
        state: bool,
        /// The factor of q; none for the inverse root of its width, or if the recurrence has no such factor.
        scale: Option<Root> = None,
        /// Updates of the state for each token: operands that are written have as many times the heads of y, those
        /// of the first update before those of the second.
        steps: i64 = 1,
    }
    facts: |k| Facts::new(k.scan.name, Class::Ours),
    results: |k, x| {
        let Recurrence { result, rows, columns, .. } = *k.scan;
        let y = per_head(x.dims(result), |h| h / k.steps.max(1));
        let [rows, columns] = [skip(x.dims(rows), 2), skip(x.dims(columns), 3)];
        let state = [&[Extent::Batch], rows, columns].concat();
        vec![value("y", y, x.dtype(result)), f32("state", state)]
    },
    flops: |k, s| {
        let state = s.output(1).elements();
        i128::from(k.scan.flops) * i128::from(k.steps) * s.input(0).at(1) * state
    },
    value: |k, x, _| {
        assert_eq!(x.len(), k.scan.operands.len() + usize::from(k.state));
        reference::forward(k.scan, x, k.scale.map(Root::to_f64), k.steps as usize)
    },
}

kernel! {
    /// In: dy [b, t, h, …], the operands of `Scan`; zero state. Out: a gradient for each operand, shaped
    /// like it.
    ScanGrad {
        /// The recurrence.
        scan: &'static Recurrence,
        /// As in `Scan`.
        scale: Option<Root> = None,
        /// As in `Scan`.
        steps: i64 = 1,
    }
    facts: |k| Facts::new(k.scan.gradient, Class::Ours),
    results: |k, x| {
        let gradient = |(i, name): (usize, &&str)| Value {
            name: format!("d{name}").into(),
            ..x.like("", i + 1)
        };
        k.scan.operands.iter().enumerate().map(gradient).collect()
    },
    // The states again; then twice the forward, for the operands and for the state.
    flops: |k, s| {
        let (rows, columns) = (s.input(k.scan.rows + 1), s.input(k.scan.columns + 1));
        let updates = i128::from(k.steps) * s.input(0).tokens() * s.input(0).at(2);
        3 * i128::from(k.scan.flops) * updates * rows.last() * columns.last()
    },
    value: |k, x, _| {
        reference::backward(k.scan, x, k.scale.map(Root::to_f64), k.steps as usize)
    },
}

/// Runs a recurrence token by token, by the reference in its primitive's file, with its states kept for the backward pass.
/// Several updates a token are as many tokens, of which the last is read and the first decays.
#[cfg(test)]
pub(crate) mod reference {
    use super::Recurrence;
    use crate::kernel::tensor::Tensor;

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
        scale: Option<f64>,
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
            let range = elements(&self.gradients[i], at);
            for (x, value) in self.gradients[i].data[range].iter_mut().zip(values) {
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

    /// The factor of queries: the given one, or that of their width.
    pub(crate) fn read_out(q: &[f64], at: At) -> f64 {
        at.scale.unwrap_or(1.0 / libm::sqrt(q.len() as f64))
    }

    /// The vectors of all operands at one head of one token; numbers have length 1.
    pub(crate) fn operands<'a, const N: usize>(x: &[&'a Tensor], at: At) -> [&'a [f64]; N] {
        assert_eq!(x.len(), N);
        std::array::from_fn(|i| &x[i].data[elements(x[i], at)])
    }

    /// The elements of x at one head of one token. x is [b, t, h], [b, t, h, …], or a parameter [h] or
    /// [h, …]; with fewer heads than there are, head j reads head ⌊j·held/heads⌋.
    fn elements(x: &Tensor, At { b, t, h, heads, scale: _ }: At) -> std::ops::Range<usize> {
        let (before, held) = match x.dims[..] {
            [held] | [held, _] => (0, held),
            [_, time, held] | [_, time, held, _] => (b * time + t, held),
            _ => panic!("an operand of a scan is {:?}", x.dims),
        };
        let width = if x.dims.len().is_multiple_of(2) { x.width() } else { 1 };
        let at = (before * held + h * held / heads) * width;
        at..at + width
    }

    /// The results and every state: those of one head follow one another, from the one before the first token on.
    fn run(
        scan: &Recurrence,
        x: &[&Tensor],
        initial: Option<&Tensor>,
        scale: Option<f64>,
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
                let at = At { b, t, h, heads, scale };
                states.push(s.clone());
                let out = (scan.step)(x, &mut s, at);
                let range = elements(&y, at);
                y.data[range].copy_from_slice(&out);
            }
            states.push(s.clone());
            last.data[n * size..][..size].copy_from_slice(&s.data);
        }
        (y, last, states)
    }

    pub(super) fn forward(
        scan: &Recurrence,
        x: &[&Tensor],
        scale: Option<f64>,
        steps: usize,
    ) -> Vec<Tensor> {
        let (operands, past) = x.split_at(scan.operands.len());
        let spread = spread(scan, operands, steps);
        let spread: Vec<&Tensor> = spread.iter().collect();
        let (y, last, _) = run(scan, &spread, past.first().copied(), scale);
        vec![one_step(&y, steps, steps - 1), last]
    }

    pub(super) fn backward(
        scan: &Recurrence,
        x: &[&Tensor],
        scale: Option<f64>,
        steps: usize,
    ) -> Vec<Tensor> {
        let (dy, x) = (x[0], &x[1..]);
        let (given, dy) = (x, at_step(dy, steps, steps - 1));
        let spread = spread(scan, given, steps);
        let spread: Vec<&Tensor> = spread.iter().collect();
        let gradients = every_step(scan, &spread, &dy, scale);
        let operands = given.iter().zip(scan.operands).zip(gradients);
        operands
            .map(|((given, name), gradient)| match *name {
                "q" => one_step(&gradient, steps, steps - 1),
                "g" => one_step(&gradient, steps, 0),
                _ => Tensor { dims: given.dims.clone(), data: gradient.data },
            })
            .collect()
    }

    /// With `steps` tokens for each: the query at the last of them, the gate at the first, the rest cut by heads.
    fn spread(scan: &Recurrence, x: &[&Tensor], steps: usize) -> Vec<Tensor> {
        let names = scan.operands.iter().zip(x);
        names
            .map(|(name, x)| match *name {
                "q" => at_step(x, steps, steps - 1),
                "g" => at_step(x, steps, 0),
                _ if steps == 1 => (*x).clone(),
                _ => {
                    let mut dims = x.dims.clone();
                    dims[1] *= steps;
                    dims[2] /= steps;
                    Tensor { dims, data: x.data.clone() }
                }
            })
            .collect()
    }

    /// Each token's row at one of `steps` tokens, zeros at the others. Parameters stay as they are.
    fn at_step(x: &Tensor, steps: usize, step: usize) -> Tensor {
        if steps == 1 {
            return x.clone();
        }
        let width: usize = x.dims[2..].iter().product();
        let mut dims = x.dims.clone();
        dims[1] *= steps;
        let mut spread = Tensor::zeros(dims);
        for (n, row) in x.data.chunks(width).enumerate() {
            spread.data[(n * steps + step) * width..][..width].copy_from_slice(row);
        }
        spread
    }

    /// The inverse: the rows at one of `steps` tokens.
    fn one_step(x: &Tensor, steps: usize, step: usize) -> Tensor {
        if steps == 1 {
            return x.clone();
        }
        let width: usize = x.dims[2..].iter().product();
        let mut dims = x.dims.clone();
        dims[1] /= steps;
        let data = x.data.chunks(width).skip(step).step_by(steps).flatten().copied().collect();
        Tensor { dims, data }
    }

    fn every_step(
        scan: &Recurrence,
        x: &[&Tensor],
        dy: &Tensor,
        scale: Option<f64>,
    ) -> Vec<Tensor> {
        let (_, _, states) = run(scan, x, None, scale);
        let mut gradients: Vec<Tensor> = x.iter().map(|x| Tensor::zeros(x.dims.clone())).collect();
        let (batch, time, heads) = (dy.dims[0], dy.dims[1], dy.dims[2]);
        for n in 0..batch * heads {
            let states = &states[n * (time + 1)..][..time + 1];
            let mut ds = Matrix::zeros(states[0].rows, states[0].columns);
            for t in (0..time).rev() {
                let at = At { b: n / heads, t, h: n % heads, heads, scale };
                let mut back = Back {
                    dy: &dy.data[elements(dy, at)],
                    before: &states[t],
                    after: &states[t + 1],
                    ds: &mut ds,
                    gradients: &mut gradients,
                };
                (scan.back)(x, &mut back, at);
            }
        }
        gradients
    }
}
