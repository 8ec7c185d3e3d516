//! Choices of the largest scores, and numbers at chosen places.

use super::prelude::*;

kernel! {
    /// In: scores [b, t, n]; if `bias` bias \[n\]. Out: y [b, t, count], ids [b, t, count] i64: the places of the
    /// largest scores + bias, largest first, equal ones by place, and the scores there.
    TopK {
        /// Scores that are chosen.
        count: i64,
        /// Whether a bias takes part in the choice.
        bias: bool,
    }
    facts: |_| Facts::new("top_k", Class::Library),
    results: |k, x| {
        let chosen = with_last(x.dims(0), k.count);
        vec![value("y", chosen.as_slice(), x.dtype(0)), value("ids", chosen, DType::I64)]
    },
    flops: |k, s| if k.bias { s.x() } else { 0 },
    value: |k, x, _| top_k(x[0], k.bias.then(|| x[1]), k.count as usize),
}

#[cfg(test)]
fn top_k(scores: &Tensor, bias: Option<&Tensor>, count: usize) -> Vec<Tensor> {
    let (mut values, mut ids) = (Vec::new(), Vec::new());
    for row in scores.rows() {
        let ranked_by = |i: usize| row[i] + bias.map_or(0.0, |bias| bias.data[i]);
        let mut left: Vec<usize> = (0..row.len()).collect();
        for _ in 0..count {
            let best =
                left.iter().copied().reduce(|a, b| if ranked_by(b) > ranked_by(a) { b } else { a });
            let best = best.unwrap();
            left.retain(|i| *i != best);
            values.push(row[best]);
            ids.push(best as f64);
        }
    }
    let dims = scores.with_last(count);
    vec![Tensor { dims: dims.clone(), data: values }, Tensor { dims, data: ids }]
}

kernel! {
    /// In: dy [b, t, k], ids [b, t, k] i64. Out: [b, t, width]: dy at the ids, zeros elsewhere.
    Scatter {
        /// Channels of the result.
        width: i64,
    }
    facts: |_| Facts::new("scatter", Class::Library).reads_bf16(),
    results: |k, x| vec![value("dscores", with_last(x.dims(0), k.width), x.dtype(0))],
    flops: |_, _| 0,
    value: |k, x, _| vec![scatter(x[0], x[1], k.width as usize)],
}

/// The values at the ids of each row, zeros elsewhere.
#[cfg(test)]
fn scatter(values: &Tensor, ids: &Tensor, width: usize) -> Tensor {
    let mut out = Tensor::zeros(values.with_last(width));
    for (at, (x, id)) in values.data.iter().zip(&ids.data).enumerate() {
        out.data[at / ids.width() * width + *id as usize] += x;
    }
    out
}

kernel! {
    /// In: ids [b, t, k] i64. Out: [b, t, width] f32: 1 at the ids, 0 elsewhere.
    OneHot {
        /// Channels of the result.
        width: i64,
    }
    facts: |_| Facts::new("one_hot", Class::Library).cheap().reads_bf16(),
    results: |k, x| vec![f32("y", with_last(x.dims(0), k.width))],
    flops: |_, _| 0,
    value: |k, x, _| vec![scatter(&x[0].map(|_| 1.0), x[0], k.width as usize)],
}
