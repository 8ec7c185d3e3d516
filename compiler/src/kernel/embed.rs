//! Rows of a table, and the gradient of the table.

use super::prelude::*;

kernel! {
    /// In: tokens [b, t] i64, table [v, c]. Out: y [b, t, c] = table\[tokens\].
    Embed
    facts: |_| Facts::new("embed", Class::Library).reads_bf16().apart(Apart::Tokens),
    results: |_, x| {
        vec![value("y", [x.dims(0), skip(x.dims(1), 1)].concat(), x.dtype(1))]
    },
    flops: |_, _| 0,
    value: |_, x, _| {
        let (tokens, table) = (x[0], x[1]);
        let c = table.width();
        let row = |token: &f64| table.data[*token as usize * c..][..c].to_vec();
        let dims = [tokens.dims.as_slice(), &[c]].concat();
        vec![Tensor { dims, data: tokens.data.iter().flat_map(row).collect() }]
    },
}

kernel! {
    /// In: dy [b, t, c], tokens [b, t] i64. Out: dtable [v, c]: row i sums dy where tokens = i, in
    /// (b, t) order; zeros elsewhere.
    EmbedGrad {
        /// Rows of the table.
        vocab: i64,
    }
    // On a GPU libtorch's is not deterministic without sorting, as ours does.
    facts: |_| Facts::new("embed_grad", Class::LibraryOnCpu),
    results: |k, x| {
        vec![f32("dtable", [&[Extent::Fixed(k.vocab)], skip(x.dims(0), 2)].concat())]
    },
    flops: |_, s| s.x(),
    value: |k, x, _| {
        let mut table = Tensor::zeros(vec![k.vocab as usize, x[0].width()]);
        for (row, token) in x[0].rows().zip(&x[1].data) {
            for (i, dy) in row.iter().enumerate() {
                table.add_at(&[*token as usize, i], *dy);
            }
        }
        vec![table]
    },
}
