//! The loss of each target, its gradient, and the likeliest token.

use super::prelude::*;

/// The target value that is excluded from the loss.
pub const IGNORED: i64 = -100;

kernel! {
    /// In: logits [b, t, v], targets [b, t] i64. Out: nll [b, t] = lse − logits\[target\], 0 where
    /// ignored; lse [b, t] = ln Σ exp(logits); loss [] f64 = Σ over counted targets of
    /// nll + nll_square · nll² + z_loss · lse²; counted [] i64.
    CrossEntropy {
        /// Factor of the squared loss of each target.
        nll_square: Decimal,
        /// Factor of the squared lse of each target.
        z_loss: Decimal,
    }
    facts: |_| Facts::new("cross_entropy", Class::Ours),
    results: |_, x| {
        let tokens = take(x.dims(0), 2);
        vec![
            f32("nll", tokens),
            f32("lse", tokens),
            scalar("loss", DType::F64),
            scalar("counted", DType::I64),
        ]
    },
    // Subtract the maximum, exp, add.
    flops: |_, s| (FUNCTION + 2) * s.x(),
    value: |k, x, _| losses(x[0], x[1], [k.nll_square, k.z_loss]).to_vec(),
}

/// nll, lse, loss, counted.
#[cfg(test)]
pub(super) fn losses(logits: &Tensor, targets: &Tensor, terms: [Decimal; 2]) -> [Tensor; 4] {
    let lse = |row: &[f64]| {
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        max + libm::log(row.iter().map(|x| libm::exp(x - max)).sum())
    };
    let [nll_square, z_loss] = terms.map(|term| term.to_f64());
    let lse: Vec<f64> = logits.rows().map(lse).collect();
    let mut nll = vec![0.0; lse.len()];
    let (mut loss, mut counted) = (0.0, 0.0);
    for (n, (row, target)) in logits.rows().zip(&targets.data).enumerate() {
        if *target as i64 != IGNORED {
            nll[n] = lse[n] - row[*target as usize];
            loss += nll[n] + nll_square * nll[n] * nll[n] + z_loss * lse[n] * lse[n];
            counted += 1.0;
        }
    }
    [targets.like(nll), targets.like(lse), Tensor::number(loss), Tensor::number(counted)]
}

kernel! {
    /// In: logits [b, t, v], targets [b, t] i64, nll [b, t], lse [b, t], scale [] f64. Out: dlogits
    /// [b, t, v] = weight · scale · ((1 + 2 nll_square nll)(p − onehot(target)) + 2 z_loss lse p) with
    /// p = exp(logits − lse); 0 where ignored. May overwrite logits if they are dropped.
    CrossEntropyGrad {
        /// As in `CrossEntropy`.
        nll_square: Decimal,
        /// As in `CrossEntropy`.
        z_loss: Decimal,
        /// Factor of this loss among others.
        weight: Root = Root::ONE,
    }
    facts: |_| Facts::new("cross_entropy_grad", Class::Ours).host(1),
    results: |_, x| vec![x.like("dlogits", 0)],
    // Subtract lse, exp, scale.
    flops: |_, s| (FUNCTION + 2) * s.x(),
    value: |k, x, _| vec![grad(x, [k.nll_square, k.z_loss], k.weight)],
}

#[cfg(test)]
pub(super) fn grad(x: &[&Tensor], terms: [Decimal; 2], weight: Root) -> Tensor {
    let [logits, targets, nll, lse, scale] = x else { panic!("{} operands", x.len()) };
    let [nll_square, z_loss] = terms.map(|term| term.to_f64());
    let mut dlogits = Vec::new();
    for (n, row) in logits.rows().enumerate() {
        let target = targets.data[n] as i64;
        for (i, x) in row.iter().enumerate() {
            let p = libm::exp(x - lse.data[n]);
            let hit = if i as i64 == target { 1.0 } else { 0.0 };
            let slope =
                (1.0 + 2.0 * nll_square * nll.data[n]) * (p - hit) + 2.0 * z_loss * lse.data[n] * p;
            let d = if target == IGNORED { 0.0 } else { scale.data[0] * slope };
            dlogits.push(weight.to_f64() * d);
        }
    }
    logits.like(dlogits)
}

kernel! {
    /// In: logits [b, t, v]. Out: [b, t] i64, the lowest index of the maximum.
    Argmax
    facts: |_| Facts::new("argmax", Class::Library).reads_bf16(),
    results: |_, x| vec![value("argmax", take(x.dims(0), 2), DType::I64)],
    flops: |_, _| 0,
    value: |_, x, _| vec![argmax(x[0])],
}

#[cfg(test)]
pub(super) fn argmax(logits: &Tensor) -> Tensor {
    let larger =
        |best: (usize, f64), (i, x): (usize, &f64)| if *x > best.1 { (i, *x) } else { best };
    let best = |row: &[f64]| row.iter().enumerate().fold((0, f64::NEG_INFINITY), larger).0 as f64;
    Tensor { dims: logits.dims[..2].to_vec(), data: logits.rows().map(best).collect() }
}
