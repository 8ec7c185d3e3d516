//! Key-value caches: rows behind earlier ones, and the last of them.

use super::prelude::*;

kernel! {
    /// In: past [b, p, …], x [b, t, …]. Out: [b, p + t, …].
    AppendTime
    facts: |_| Facts::new("append_time", Class::Library).reads_bf16(),
    results: |_, x| {
        let seen = match x.dims(0).get(1) {
            Some(Extent::CacheLen(window)) => Extent::KvLen(*window),
            other => other.copied().unwrap_or(Extent::Time),
        };
        let dims = [&[Extent::Batch, seen], skip(x.dims(1), 2)].concat();
        vec![value("seen", dims, x.dtype(0))]
    },
    flops: |_, _| 0,
    value: |_, x, _| vec![x[0].append(x[1])],
}

kernel! {
    /// In: x [b, s, …]. Out: the last min(rows, s) along time, in its own memory.
    LastTime {
        /// Largest number of rows to keep.
        rows: i64,
    }
    facts: |_| Facts::new("last_time", Class::Library).reads_bf16(),
    results: |k, x| {
        let dims = [&[Extent::Batch, Extent::NewCacheLen(k.rows)], skip(x.dims(0), 2)];
        vec![value("kept", dims.concat(), x.dtype(0))]
    },
    flops: |_, _| 0,
    value: |k, x, _| {
        let time = x[0].dims[1];
        vec![x[0].times(time.saturating_sub(k.rows as usize), time)]
    },
}
