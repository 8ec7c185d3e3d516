//! Attention by blocks of queries and keys, without the scores in memory (Dao et al. 2022, FlashAttention; forward as
//! in Milakov and Gimelshein 2018, backward from lse).
//!
//! q is [b, t, h, d], k is [b, s, kv, d] and v is [b, s, kv, e], all dense. One task computes one key head with all
//! queries that read it, and visits blocks in a fixed order, so the bits do not depend on threads or register width.
//! Blocks that no query sees are skipped; statistics are f32.

use tch::{Kind, Tensor};

use super::super::dense::{PAD, add_product, flipped, plain, product, transpose};
use super::super::ffi::{self, ByHead, HeadRows, Vectorised, parallel_heads};
use super::super::lanes::{dot, exp, max, tanh};
use super::super::{Isa, KernelError};
use super::{AttentionOperands, Shape};

/// Number of queries, and of keys, in a block.
const BLOCK: usize = 64;

/// Sizes of one task, and which keys a query sees.
#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    /// t
    queries: usize,
    /// s
    keys: usize,
    /// kv
    heads: usize,
    /// Query heads per key head.
    times: usize,
    d: usize,
    e: usize,
    /// d and e as padded.
    wide_d: usize,
    wide_e: usize,
    scale: f32,
    /// Visible keys, with the query's own position.
    window: usize,
    /// Bound of the scores.
    softcap: Option<f32>,
}

impl Sizes {
    fn from_shape(shape: &Shape, operands: AttentionOperands<'_>) -> Self {
        let length = |x: &Tensor, axis: usize| x.size().get(axis).map_or(0, |n| *n as usize);
        let (d, e) = (length(operands.k, 3), length(operands.v, 3));
        let window = operands.window.map_or(usize::MAX, |w| w as usize);
        Self {
            batch: length(operands.q, 0),
            queries: shape.queries as usize,
            keys: shape.keys as usize,
            heads: length(operands.k, 2),
            times: shape.times as usize,
            d,
            e,
            wide_d: d.next_multiple_of(PAD),
            wide_e: e.next_multiple_of(PAD),
            scale: shape.scale() as f32,
            window,
            softcap: operands.softcap.map(|cap| cap as f32),
        }
    }

    /// The keys that query i sees.
    fn seen(&self, i: usize) -> std::ops::Range<usize> {
        let end = self.keys - self.queries + i + 1;
        end.saturating_sub(self.window)..end
    }

    /// First queries of the blocks.
    fn blocks(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.queries).step_by(BLOCK)
    }

    /// Rows of a query block.
    fn rows(&self, first: usize) -> usize {
        BLOCK.min(self.queries - first)
    }

    /// The key blocks that at least one row of a query block sees.
    fn key_blocks(&self, first: usize) -> std::ops::Range<usize> {
        let from = self.seen(first).start / BLOCK;
        from..self.seen(first + self.rows(first) - 1).end.div_ceil(BLOCK)
    }
}

/// Rows of one head of a dense [b, time, heads, width] tensor.
struct Head<'a> {
    data: &'a [f32],
    first: usize,
    stride: usize,
    width: usize,
}

impl<'a> Head<'a> {
    /// Head `head` of `heads` of batch item `item`.
    fn new(
        data: &'a [f32],
        [item, time]: [usize; 2],
        [head, heads]: [usize; 2],
        width: usize,
    ) -> Self {
        let first = (item * time * heads + head) * width;
        Self { data, first, stride: heads * width, width }
    }

    fn row(&self, t: usize) -> &'a [f32] {
        &self.data[self.first + t * self.stride..][..self.width]
    }

    /// Rows from `first`, times `by`, into [rows, wide]; the rest of each row, and missing rows, are zeros.
    fn pack(&self, into: &mut [f32], wide: usize, times: std::ops::Range<usize>, by: f32) {
        into.fill(0.0);
        for (into, t) in into.chunks_exact_mut(wide).zip(times) {
            into.iter_mut().zip(self.row(t)).for_each(|(into, x)| *into = by * x);
        }
    }
}

/// Keys and values of one head, packed by blocks.
struct Packed {
    /// [blocks, d, BLOCK]: transposed keys.
    keys_t: Vec<f32>,
    /// [blocks, BLOCK, e]
    values: Vec<f32>,
}

impl Packed {
    fn from_head(isa: Isa, sizes: &Sizes, k: &Head<'_>, v: &Head<'_>) -> Self {
        let blocks = sizes.keys.div_ceil(BLOCK);
        let (d, e) = (BLOCK * sizes.wide_d, BLOCK * sizes.wide_e);
        let mut packed = Self { keys_t: vec![0.0; blocks * d], values: vec![0.0; blocks * e] };
        let mut rows = vec![0.0; d];
        for block in 0..blocks {
            let times = block * BLOCK..sizes.keys.min((block + 1) * BLOCK);
            k.pack(&mut rows, sizes.wide_d, times.clone(), 1.0);
            transpose(isa, &mut packed.keys_t[block * d..][..d], &rows, sizes.wide_d);
            v.pack(&mut packed.values[block * e..][..e], sizes.wide_e, times, 1.0);
        }
        packed
    }
}

fn shape_of(x: &Tensor) -> (Vec<i64>, (Kind, tch::Device)) {
    (x.size(), (Kind::Float, x.device()))
}

pub(super) fn forward(
    isa: Isa,
    shape: &Shape,
    operands: AttentionOperands<'_>,
) -> Result<(Tensor, Tensor), KernelError> {
    let sizes = Sizes::from_shape(shape, operands);
    let [q, k, v] = [operands.q, operands.k, operands.v].map(Tensor::f_contiguous);
    let (q, k, v) = (q?, k?, v?);
    let (mut size, options) = shape_of(&q);
    size[3] = sizes.e as i64;
    let mut y = Tensor::f_empty(&size, options)?; // [b, t, h, e]
    let mut lse = Tensor::f_empty([size[0], size[2], size[1]], options)?; // [b, h, t]
    let (qs, ks, vs) = (ffi::slice(&q)?, ffi::slice(&k)?, ffi::slice(&v)?);
    let sink = operands.sink.map(Tensor::f_contiguous).transpose()?;
    let sinks = sink.as_ref().map(ffi::slice).transpose()?;
    let reads = [&q, &k, &v];
    let outs = [
        ByHead { data: ffi::slice_mut(&mut y, &reads)?, time: sizes.queries },
        ByHead { data: ffi::slice_mut(&mut lse, &reads)?, time: 1 },
    ];
    parallel_heads([sizes.batch, sizes.heads], outs, |task, [mut y, mut lse]| {
        let (item, head) = (task / sizes.heads, task % sizes.heads);
        if sizes.queries == 0 {
            return;
        }
        let head_of = |data, time, width| Head::new(data, [item, time], [head, sizes.heads], width);
        let packed = Packed::from_head(
            isa,
            &sizes,
            &head_of(ks, sizes.keys, sizes.d),
            &head_of(vs, sizes.keys, sizes.e),
        );
        let mut work = HeadForward::new(isa, &sizes);
        for group in 0..sizes.times {
            let heads = [head * sizes.times + group, sizes.heads * sizes.times];
            let q = Head::new(qs, [item, sizes.queries], heads, sizes.d);
            let lse = &mut lse.row(0)[group * sizes.queries..][..sizes.queries];
            for first in sizes.blocks() {
                work.block(&sizes, &q, &packed, first);
                let sink = sinks.map(|sinks| sinks[heads[0]]);
                work.finish(&sizes, first, &mut y, group, lse, sink);
            }
        }
    });
    Ok((y, lse))
}

/// One thread's buffers for a block of queries.
struct HeadForward {
    isa: Isa,
    /// [BLOCK, d], times the scale.
    q: Vec<f32>,
    /// [BLOCK, BLOCK]: scores, then exp(score − most).
    p: Vec<f32>,
    /// [BLOCK, e]
    sum: Vec<f32>,
    most: Vec<f32>,
    total: Vec<f32>,
}

impl HeadForward {
    fn new(isa: Isa, sizes: &Sizes) -> Self {
        let zeros = |count: usize| vec![0.0f32; count];
        Self {
            isa,
            q: zeros(BLOCK * sizes.wide_d),
            p: zeros(BLOCK * BLOCK),
            sum: zeros(BLOCK * sizes.wide_e),
            most: zeros(BLOCK),
            total: zeros(BLOCK),
        }
    }

    fn block(&mut self, sizes: &Sizes, q: &Head<'_>, packed: &Packed, first: usize) {
        let (d, e, rows) = (sizes.wide_d, sizes.wide_e, sizes.rows(first));
        let m = rows.next_multiple_of(PAD);
        q.pack(&mut self.q, d, first..first + rows, sizes.scale);
        self.sum.fill(0.0);
        self.most.fill(f32::NEG_INFINITY);
        self.total.fill(0.0);
        for block in sizes.key_blocks(first) {
            let keys = &packed.keys_t[block * BLOCK * d..][..BLOCK * d];
            let values = &packed.values[block * BLOCK * e..][..BLOCK * e];
            product(self.isa, &mut self.p, plain(&self.q, d), keys, [m, d, BLOCK]);
            let (p, hidden) = self.p.split_at_mut(rows * BLOCK);
            hidden.fill(0.0);
            if let Some(cap) = sizes.softcap {
                ffi::run_on(self.isa, Bound { p, cap, slope: None });
            }
            let (sum, most, total) = (&mut self.sum, &mut self.most, &mut self.total);
            ffi::run_on(self.isa, Online { sizes, first, block, p, sum, most, total });
            add_product(self.isa, &mut self.sum, plain(&self.p, BLOCK), values, [m, BLOCK, e]);
        }
    }

    fn finish(
        &self,
        sizes: &Sizes,
        first: usize,
        y: &mut HeadRows<'_>,
        group: usize,
        lse: &mut [f32],
        sink: Option<f32>,
    ) {
        for row in 0..sizes.rows(first) {
            let (most, total) = (self.most[row], self.total[row]);
            let sum = &self.sum[row * sizes.wide_e..][..sizes.e];
            let y = &mut y.row(first + row)[group * sizes.e..][..sizes.e];
            let Some(sink) = sink else {
                y.iter_mut().zip(sum).for_each(|(y, sum)| *y = sum / total);
                lse[first + row] = (f64::from(most) + libm::log(f64::from(total))) as f32;
                continue;
            };
            // The sink joins the sum, relative to the larger of it and the largest score.
            let (most, sink) = (f64::from(most), f64::from(sink));
            let largest = most.max(sink);
            let keep = libm::exp(most - largest);
            let total = f64::from(total) * keep + libm::exp(sink - largest);
            let part = (keep / total) as f32;
            y.iter_mut().zip(sum).for_each(|(y, sum)| *y = sum * part);
            lse[first + row] = (largest + libm::log(total)) as f32;
        }
    }
}

/// The part of `seen` inside a key block, counted from its start.
fn within(seen: std::ops::Range<usize>, block: usize) -> std::ops::Range<usize> {
    let inside = |at: usize| at.clamp(block * BLOCK, (block + 1) * BLOCK) - block * BLOCK;
    inside(seen.start)..inside(seen.end)
}

/// Turns a block's scores into exponentials relative to the largest score of the row so far; earlier sums are rescaled
/// to it.
struct Online<'a> {
    sizes: &'a Sizes,
    first: usize,
    block: usize,
    p: &'a mut [f32],
    sum: &'a mut [f32],
    most: &'a mut [f32],
    total: &'a mut [f32],
}

impl Vectorised for Online<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        let Online { sizes, first, block, p, sum, most, total } = self;
        let rows = p.chunks_exact_mut(BLOCK).zip(sum.chunks_exact_mut(sizes.wide_e));
        for (row, ((p, sum), (most, total))) in rows.zip(most.iter_mut().zip(total)).enumerate() {
            let seen = within(sizes.seen(first + row), block);
            if seen.is_empty() {
                p.fill(0.0);
                continue;
            }
            let (begin, end) = (seen.start, seen.end);
            p[..begin].fill(f32::NEG_INFINITY);
            p[end..].fill(f32::NEG_INFINITY);
            let (mut new, before) = (max(p), *most);
            if before > new {
                new = before;
            }
            for p in p.chunks_exact_mut(PAD) {
                for p in p {
                    *p = exp::<FMA>(*p - new);
                }
            }
            // exp never gives 0, so hidden keys are set to it.
            p[..begin].fill(0.0);
            p[end..].fill(0.0);
            let mut sums = [0.0f32; PAD];
            for chunk in p.chunks_exact(PAD) {
                for l in 0..PAD {
                    sums[l] += chunk[l];
                }
            }
            let now: f32 = sums.iter().sum();
            let keep = if before == f32::NEG_INFINITY { 0.0 } else { exp::<FMA>(before - new) };
            if keep != 1.0 {
                sum.iter_mut().for_each(|sum| *sum *= keep);
            }
            *total = *total * keep + now;
            *most = new;
        }
    }
}

pub(super) fn backward(
    isa: Isa,
    shape: &Shape,
    dy: &Tensor,
    operands: AttentionOperands<'_>,
    y: &Tensor,
    lse: &Tensor,
) -> Result<(Tensor, Tensor, Tensor), KernelError> {
    let sizes = Sizes::from_shape(shape, operands);
    let [q, k, v, dy, y, lse] =
        [operands.q, operands.k, operands.v, dy, y, lse].map(Tensor::f_contiguous);
    let (q, k, v, dy, y, lse) = (q?, k?, v?, dy?, y?, lse?);
    let empty = |x: &Tensor| {
        let (size, options) = shape_of(x);
        Tensor::f_empty(&size, options)
    };
    let (mut dq, mut dk, mut dv) = (empty(&q)?, empty(&k)?, empty(&v)?);
    let reads = [&q, &k, &v, &dy, &y, &lse];
    let [qs, ks, vs, dys, ys, lses] = reads.map(ffi::slice);
    let (qs, ks, vs, dys, ys, lses) = (qs?, ks?, vs?, dys?, ys?, lses?);
    let outs = [
        ByHead { data: ffi::slice_mut(&mut dq, &reads)?, time: sizes.queries },
        ByHead { data: ffi::slice_mut(&mut dk, &reads)?, time: sizes.keys },
        ByHead { data: ffi::slice_mut(&mut dv, &reads)?, time: sizes.keys },
    ];
    parallel_heads([sizes.batch, sizes.heads], outs, |task, [mut dq, mut dk, mut dv]| {
        let (item, head) = (task / sizes.heads, task % sizes.heads);
        let head_of = |data, time, width| Head::new(data, [item, time], [head, sizes.heads], width);
        let (k, v) = (head_of(ks, sizes.keys, sizes.d), head_of(vs, sizes.keys, sizes.e));
        let mut work = HeadBackward::new(isa, &sizes, &k, &v);
        for group in 0..sizes.times {
            let heads = [head * sizes.times + group, sizes.heads * sizes.times];
            let query_head = |data, width| Head::new(data, [item, sizes.queries], heads, width);
            let (q, dy, y) =
                (query_head(qs, sizes.d), query_head(dys, sizes.e), query_head(ys, sizes.e));
            let lse = &lses[(item * heads[1] + heads[0]) * sizes.queries..][..sizes.queries];
            for first in sizes.blocks() {
                work.block(&sizes, [&q, &dy, &y], &lse[first..], first);
                for row in 0..sizes.rows(first) {
                    let dq = &mut dq.row(first + row)[group * sizes.d..][..sizes.d];
                    dq.copy_from_slice(&work.dq[row * sizes.wide_d..][..sizes.d]);
                }
            }
        }
        for time in 0..sizes.keys {
            dk.row(time).copy_from_slice(&work.dk[time * sizes.wide_d..][..sizes.d]);
            dv.row(time).copy_from_slice(&work.dv[time * sizes.wide_e..][..sizes.e]);
        }
    });
    Ok((dq, dk, dv))
}

/// One thread's buffers for a key head.
struct HeadBackward {
    isa: Isa,
    packed: Packed,
    /// [blocks, BLOCK, d], times the scale.
    keys: Vec<f32>,
    /// [blocks, e, BLOCK]: transposed values.
    values_t: Vec<f32>,
    /// [keys, d] and [keys, e], padded to blocks.
    dk: Vec<f32>,
    dv: Vec<f32>,
    /// [BLOCK, d], times the scale.
    q: Vec<f32>,
    /// [BLOCK, e]
    dy: Vec<f32>,
    /// [BLOCK, d]
    dq: Vec<f32>,
    /// [BLOCK, BLOCK]
    p: Vec<f32>,
    ds: Vec<f32>,
    /// Slopes of the scores' bound, if there is one.
    bent: Vec<f32>,
    /// Σ dy ⊙ y of each row.
    along: Vec<f32>,
}

impl HeadBackward {
    fn new(isa: Isa, sizes: &Sizes, k: &Head<'_>, v: &Head<'_>) -> Self {
        let packed = Packed::from_head(isa, sizes, k, v);
        let (d, e) = (BLOCK * sizes.wide_d, BLOCK * sizes.wide_e);
        let blocks = sizes.keys.div_ceil(BLOCK);
        let zeros = |count: usize| vec![0.0f32; count];
        let (mut keys, mut values_t) = (zeros(blocks * d), zeros(blocks * e));
        for block in 0..blocks {
            let times = block * BLOCK..sizes.keys.min((block + 1) * BLOCK);
            k.pack(&mut keys[block * d..][..d], sizes.wide_d, times, sizes.scale);
            let values = &packed.values[block * e..][..e];
            transpose(isa, &mut values_t[block * e..][..e], values, sizes.wide_e);
        }
        Self {
            isa,
            keys,
            values_t,
            dk: zeros(blocks * d),
            dv: zeros(blocks * e),
            q: zeros(d),
            dy: zeros(e),
            dq: zeros(d),
            p: zeros(BLOCK * BLOCK),
            ds: zeros(BLOCK * BLOCK),
            bent: zeros(if sizes.softcap.is_some() { BLOCK * BLOCK } else { 0 }),
            along: zeros(BLOCK),
            packed,
        }
    }

    /// Adds one query block's part to dk and dv, and stores its dq.
    fn block(&mut self, sizes: &Sizes, [q, dy, y]: [&Head<'_>; 3], lse: &[f32], first: usize) {
        let (d, e, rows) = (sizes.wide_d, sizes.wide_e, sizes.rows(first));
        let m = rows.next_multiple_of(PAD);
        q.pack(&mut self.q, d, first..first + rows, sizes.scale);
        dy.pack(&mut self.dy, e, first..first + rows, 1.0);
        self.dq.fill(0.0);
        for (row, along) in self.along[..rows].iter_mut().enumerate() {
            ffi::run_on(self.isa, Along { a: dy.row(first + row), b: y.row(first + row), along });
        }
        for block in sizes.key_blocks(first) {
            let (at_d, at_e) = (block * BLOCK * d, block * BLOCK * e);
            let keys_t = &self.packed.keys_t[at_d..][..BLOCK * d];
            let values_t = &self.values_t[at_e..][..BLOCK * e];
            product(self.isa, &mut self.p, plain(&self.q, d), keys_t, [m, d, BLOCK]);
            product(self.isa, &mut self.ds, plain(&self.dy, e), values_t, [m, e, BLOCK]);
            let (p, hidden_p) = self.p.split_at_mut(rows * BLOCK);
            let (ds, hidden_ds) = self.ds.split_at_mut(rows * BLOCK);
            hidden_p.fill(0.0);
            hidden_ds.fill(0.0);
            let along = &self.along[..rows];
            if let Some(cap) = sizes.softcap {
                let slope = Some(&mut self.bent[..rows * BLOCK]);
                ffi::run_on(self.isa, Bound { p, cap, slope });
            }
            ffi::run_on(self.isa, Slope { sizes, first, block, p, ds, lse, along });
            for (ds, bent) in ds.iter_mut().zip(&self.bent) {
                *ds *= bent;
            }
            let (dk, dv) = (&mut self.dk[at_d..][..BLOCK * d], &mut self.dv[at_e..][..BLOCK * e]);
            add_product(self.isa, dv, flipped(&self.p, BLOCK), &self.dy[..m * e], [BLOCK, m, e]);
            add_product(self.isa, dk, flipped(&self.ds, BLOCK), &self.q[..m * d], [BLOCK, m, d]);
            let keys = &self.keys[at_d..][..BLOCK * d];
            add_product(self.isa, &mut self.dq, plain(&self.ds, BLOCK), keys, [m, BLOCK, d]);
        }
    }
}

/// Replaces the scores in p by cap · tanh(score / cap), and writes the slopes to `slope`.
struct Bound<'a> {
    p: &'a mut [f32],
    cap: f32,
    slope: Option<&'a mut [f32]>,
}

impl Vectorised for Bound<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        let Bound { p, cap, slope } = self;
        for p in p.chunks_exact_mut(PAD) {
            for p in p {
                *p = tanh::<FMA>(*p / cap);
            }
        }
        for (slope, p) in slope.into_iter().flatten().zip(p.iter()) {
            *slope = 1.0 - p * p;
        }
        p.iter_mut().for_each(|p| *p *= cap);
    }
}

/// Σ a ⊙ b.
struct Along<'a> {
    a: &'a [f32],
    b: &'a [f32],
    along: &'a mut f32,
}

impl Vectorised for Along<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        *self.along = dot::<FMA>(self.a, self.b);
    }
}

/// Replaces the scores in p by exp(score − lse), and the dp in ds by p (dp − along); both are 0 where hidden.
struct Slope<'a> {
    sizes: &'a Sizes,
    first: usize,
    block: usize,
    p: &'a mut [f32],
    ds: &'a mut [f32],
    lse: &'a [f32],
    along: &'a [f32],
}

impl Vectorised for Slope<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        let Slope { sizes, first, block, p, ds, lse, along } = self;
        let rows = p.chunks_exact_mut(BLOCK).zip(ds.chunks_exact_mut(BLOCK));
        for (row, ((p, ds), (lse, along))) in rows.zip(lse.iter().zip(along)).enumerate() {
            // Copies: through references, the loop could not be vectorised.
            let (lse, along) = (*lse, *along);
            for (p, ds) in p.chunks_exact_mut(PAD).zip(ds.chunks_exact_mut(PAD)) {
                for l in 0..PAD {
                    p[l] = exp::<FMA>(p[l] - lse);
                    ds[l] = p[l] * (ds[l] - along);
                }
            }
            let seen = within(sizes.seen(first + row), block);
            for hidden in [0..seen.start, seen.end.max(seen.start)..BLOCK] {
                p[hidden.clone()].fill(0.0);
                ds[hidden].fill(0.0);
            }
        }
    }
}
