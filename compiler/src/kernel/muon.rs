//! Muon: updates of matrices by nearly orthogonal ones.

use std::fmt;

use super::prelude::*;

/// The factor of a Muon update of a matrix \[rows, columns\].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MuonScale {
    /// sqrt(max(1, rows / columns)).
    Keller,
    /// 0.2 sqrt(max(rows, columns)): the size of AdamW's updates.
    Moonshot,
}

impl MuonScale {
    /// The scale with this name.
    pub fn named(name: &str) -> Option<MuonScale> {
        [MuonScale::Keller, MuonScale::Moonshot].into_iter().find(|scale| scale.name() == name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            MuonScale::Keller => "keller",
            MuonScale::Moonshot => "moonshot",
        }
    }

    /// The factor for a matrix of these sizes.
    pub fn factor(self, rows: i64, columns: i64) -> f64 {
        match self {
            MuonScale::Keller => libm::sqrt((rows as f64 / columns as f64).max(1.0)),
            MuonScale::Moonshot => 0.2 * libm::sqrt(rows.max(columns) as f64),
        }
    }
}

impl fmt::Display for MuonScale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

kernel! {
    /// In: parameter p, gradient g, momentum m, all \[…, rows, columns\] with one shape; coefficient \[\] f64, learning rate
    /// lr \[\] f64. Out: p, m, written over their inputs. lr ← rate · lr; g ← coefficient · g; m ← μ m + (1 − μ) g;
    /// u = (1 − μ) g + μ m with nesterov, else m; for each matrix X = u / (‖u‖ + 1e-7), transposed if it has more rows than
    /// columns, and five times A = X Xᵀ, X ← 3.4445 X + (−4.775 A + 2.0315 A²) X; p ← p (1 − lr · decay) − lr · c · X,
    /// with the factor c of the scale (Jordan 2024; Liu et al. 2025, 2502.16982).
    Muon {
        /// μ, the decay of the running mean of gradients.
        momentum: Decimal,
        /// Whether the update looks one step ahead.
        nesterov: bool,
        /// How the size of an update follows from the matrix's shape.
        scale: MuonScale,
        /// Weight decay; 0 for parameters without.
        decay: Decimal,
        /// Factor of the learning rate.
        rate: Decimal,
    }
    facts: |_| Facts::new("muon", Class::Ours).host(1).over(&[0, 2]),
    results: |_, x| vec![x.like("p", 0), x.like("m", 2)],
    // Five times three products, of which one is of two square matrices. For each element the mean, the norm, five sums,
    // the update.
    flops: |_, s| {
        let (matrices, short, long) = s.input(0).matrices();
        5 * matrices * (4 * short * short * long + 2 * short * short * short) + 24 * s.x()
    },
    // The gradient and the update in f32, and for one matrix at a time X, its next value and a product, and three square
    // matrices of its shorter side.
    scratch: |_, s, _| {
        let (_, short, long) = s.input(0).matrices();
        4 * (2 * s.x() + 3 * short * long + 3 * short * short)
    },
    value: |k, x, _| muon(k, x),
}

/// One matrix, [rows, columns].
#[cfg(test)]
fn muon(k: &Muon, x: &[&Tensor]) -> Vec<Tensor> {
    let [p, g, m, coefficient, lr] = x else { panic!("{} operands", x.len()) };
    let [rate, mu, decay] = [k.rate, k.momentum, k.decay].map(|number| number.to_f64());
    let lr = rate * lr.data[0];
    let [rows, columns] = p.dims[..] else { panic!("{:?}", p.dims) };
    let mut m = (*m).clone();
    let mut u = m.clone();
    for i in 0..m.data.len() {
        let g = coefficient.data[0] * g.data[i];
        m.data[i] = mu * m.data[i] + (1.0 - mu) * g;
        u.data[i] = if k.nesterov { (1.0 - mu) * g + mu * m.data[i] } else { m.data[i] };
    }
    let at = |x: &[f64], wide: bool, i: usize, j: usize| {
        if wide { x[i * columns + j] } else { x[j * columns + i] }
    };
    let wide = rows <= columns;
    let (short, long) = if wide { (rows, columns) } else { (columns, rows) };
    let norm = libm::sqrt(u.data.iter().map(|x| x * x).sum()) + 1e-7;
    let mut x: Vec<Vec<f64>> =
        (0..short).map(|i| (0..long).map(|j| at(&u.data, wide, i, j) / norm).collect()).collect();
    for _ in 0..5 {
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let a: Vec<Vec<f64>> =
            x.iter().map(|one| x.iter().map(|other| dot(one, other)).collect()).collect();
        let b: Vec<Vec<f64>> = (0..short)
            .map(|i| (0..short).map(|j| -4.775 * a[i][j] + 2.0315 * dot(&a[i], &a[j])).collect())
            .collect();
        x = (0..short)
            .map(|i| {
                (0..long)
                    .map(|j| 3.4445 * x[i][j] + (0..short).map(|k| b[i][k] * x[k][j]).sum::<f64>())
                    .collect()
            })
            .collect();
    }
    let c = k.scale.factor(rows as i64, columns as i64);
    let mut p = (*p).clone();
    for (at, p) in p.data.iter_mut().enumerate() {
        let (i, j) = (at / columns, at % columns);
        let step = if wide { x[i][j] } else { x[j][i] };
        *p = *p * (1.0 - lr * decay) - lr * c * step;
    }
    vec![p, m]
}
