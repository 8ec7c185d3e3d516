//! Parallel writes to results [b, t, h, d], one task for each head of each batch item.
//!
//! Two tasks never share a row.

use std::marker::PhantomData;

use super::{Shared, parallel_for};

/// Memory of `time` rows for each of b × h heads, [b, time, h, width].
pub(crate) struct ByHead<'a> {
    pub(crate) data: &'a mut [f32],
    pub(crate) time: usize,
}

/// The rows of one head of one batch item.
pub(crate) struct HeadRows<'a> {
    first: *mut f32,
    stride: usize,
    width: usize,
    time: usize,
    borrow: PhantomData<&'a mut [f32]>,
}

impl HeadRows<'_> {
    pub(crate) fn row(&mut self, t: usize) -> &mut [f32] {
        assert!(t < self.time, "row {t} of {}", self.time);
        // SAFETY: t < time, so the row is in the memory that `parallel_heads` checked; the rows belong to this head
        // alone, and `&mut self` allows one at a time.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(t * self.stride), self.width) }
    }
}

/// Runs `body` for each of b × h tasks, numbered batch · h + head, on ATen's threads. Each has its own rows of every
/// one of `outs`.
pub(crate) fn parallel_heads<const N: usize>(
    [batch, heads]: [usize; 2],
    outs: [ByHead<'_>; N],
    body: impl Fn(usize, [HeadRows<'_>; N]) + Sync,
) {
    let outs = outs.map(|ByHead { data, time }| {
        let rows = batch * time * heads;
        let width = data.len().checked_div(rows).unwrap_or(0);
        assert!(width * rows == data.len(), "{} floats in {rows} rows", data.len());
        (Shared(data.as_mut_ptr()), time, width)
    });
    let outs = &outs;
    parallel_for(batch * heads, 1, |piece| {
        for task in piece {
            let (item, head) = (task / heads, task % heads);
            let rows = std::array::from_fn(|i| {
                let (pointer, time, width) = &outs[i];
                // SAFETY: item < batch and head < heads, so this is in the memory (its length was checked), or, if time
                // is 0, at its end, and no row is returned.
                let first = unsafe {
                    pointer.get().add((item * time * heads + head * usize::from(*time > 0)) * width)
                };
                HeadRows {
                    first,
                    stride: heads * width,
                    width: *width,
                    time: *time,
                    borrow: PhantomData,
                }
            });
            body(task, rows);
        }
    });
}
