//! Attention of a few queries, as in decoding, f32 or bf16 on the CPU. Reading keys and values takes most of the time,
//! so they are read in place, without a copy in f32.
//!
//! q is [b, t, h, d] with at most [`QUERIES`] queries, k is [b, s, kv, d] and v is [b, s, kv, e]; y [b, t, h, e] and
//! lse are f32. One task computes all queries that read one key head of a batch item, and its sums are f32, over keys
//! in order, so the bits do not depend on threads, register width or other batch items.

use tch::{Kind, Tensor};

use super::super::arrange::cast;
use super::super::ffi::{self, ByHead, Vectorised, parallel_heads};
use super::super::lanes::{Element, dot, exp, max, mul_add, sum_exp, tanh};
use super::super::{Isa, KernelError};
use super::{AttentionOperands, Shape};

/// Maximum number of queries. More are faster by blocks.
pub(super) const QUERIES: i64 = compiler::plan::FEW_QUERIES;

/// How many rows ahead keys and values are prefetched: a head's part of a row is far from its part of the next row.
const AHEAD: usize = 16;

/// y and lse.
pub(super) fn forward(
    isa: Isa,
    shape: &Shape,
    operands: AttentionOperands<'_>,
) -> Result<(Tensor, Tensor), KernelError> {
    let AttentionOperands { q, k, v, .. } = operands;
    let one = |x: &Tensor, item: usize| x.f_narrow(0, item as i64, 1);
    let batch = k.size().first().map_or(0, |n| *n as usize);
    let caches = |x: &Tensor| (0..batch).map(|item| one(x, item)).collect::<Result<Vec<_>, _>>();
    let (keys, values) = (caches(k)?, caches(v)?);
    let (keys, values): (Vec<_>, Vec<_>) = (keys.iter().collect(), values.iter().collect());
    each(isa, shape, operands, q, [&keys, &values])
}

/// Like [`forward`], for items with their own keys [1, s, kv, d] and values [1, s, kv, e]: q is [b, t, h, d].
pub(super) fn each(
    isa: Isa,
    shape: &Shape,
    operands: AttentionOperands<'_>,
    q: &Tensor,
    [keys, values]: [&[&Tensor]; 2],
) -> Result<(Tensor, Tensor), KernelError> {
    let q = cast(q, Kind::Float)?.f_contiguous()?;
    let bf16 = keys.iter().chain(values).all(|x| x.kind() == Kind::BFloat16);
    let dense = |x: &&Tensor| match bf16 {
        true => Ok(x.f_contiguous()?),
        false => Ok::<_, KernelError>(cast(x, Kind::Float)?.f_contiguous()?),
    };
    let keys = keys.iter().map(dense).collect::<Result<Vec<_>, _>>()?;
    let values = values.iter().map(dense).collect::<Result<Vec<_>, _>>()?;
    let reads = [keys.as_slice(), values.as_slice()];
    match bf16 {
        true => heads(isa, shape, operands, &q, reads, &slices(reads, ffi::halves)?),
        false => heads(isa, shape, operands, &q, reads, &slices(reads, ffi::slice)?),
    }
}

/// Keys and values of each item, as slices.
fn slices<'a, E>(
    [keys, values]: [&'a [Tensor]; 2],
    of: impl Fn(&'a Tensor) -> Result<&'a [E], KernelError>,
) -> Result<Vec<[&'a [E]; 2]>, KernelError> {
    keys.iter().zip(values).map(|(k, v)| Ok([of(k)?, of(v)?])).collect()
}

fn heads<E: Element>(
    isa: Isa,
    shape: &Shape,
    operands: AttentionOperands<'_>,
    q: &Tensor,
    reads: [&[Tensor]; 2],
    items: &[[&[E]; 2]],
) -> Result<(Tensor, Tensor), KernelError> {
    let length = |x: &Tensor, axis: usize| x.size().get(axis).map_or(0, |n| *n as usize);
    let (batch, heads) = (items.len(), length(operands.k, 2));
    let (d, e) = (length(operands.k, 3), length(operands.v, 3));
    let (t, times) = (shape.queries as usize, shape.times as usize);
    let mut size = q.size();
    size[3] = e as i64;
    let options = (Kind::Float, q.device());
    let mut y = Tensor::f_empty(&size, options)?; // [b, t, h, e]
    let mut lse = Tensor::f_empty([size[0], size[2], size[1]], options)?; // [b, h, t]
    let reads: Vec<&Tensor> = [q].into_iter().chain(reads.into_iter().flatten()).collect();
    let outs = [
        ByHead { data: ffi::slice_mut(&mut y, &reads)?, time: t },
        ByHead { data: ffi::slice_mut(&mut lse, &reads)?, time: 1 },
    ];
    let q = ffi::slice(q)?;
    let (scale, softcap) = (shape.scale() as f32, operands.softcap.map(|cap| cap as f32));
    let sink = operands.sink.map(|sink| cast(sink, Kind::Float)).transpose()?;
    let sink = sink.map(|sink| sink.f_contiguous()).transpose()?;
    let sinks = sink.as_ref().map(ffi::slice).transpose()?;
    let window = operands.window.map_or(usize::MAX, |w| w as usize);
    parallel_heads([batch, heads], outs, |task, [mut y, mut lse]| {
        let (item, head) = (task / heads, task % heads);
        if t == 0 {
            return;
        }
        let [keys, values] = items[item];
        let s = keys.len() / (heads * d).max(1);
        let lse = lse.row(0); // [times, t]
        for i in 0..t {
            // Query i is at position s − t + i.
            let end = s - t + i + 1;
            let seen = end.saturating_sub(window)..end;
            let y = y.row(i); // [times, e]
            let first = ((item * t + i) * heads + head) * times * d;
            let queries = &q[first..][..times * d];
            let (keys, values) = (&keys[head * d..], &values[head * e..]);
            let mut totals = Vec::with_capacity(times);
            let into = &mut totals;
            let sinks = sinks.map(|sinks| &sinks[head * times..][..times]);
            let query =
                Query { queries, keys, values, seen, heads, d, e, scale, softcap, sinks, y, into };
            ffi::run_on(isa, query);
            for (group, (most, total)) in totals.into_iter().enumerate() {
                lse[group * t + i] = (f64::from(most) + libm::log(f64::from(total))) as f32;
            }
        }
    });
    Ok((y, lse))
}

/// The heads of a query that read one key head.
struct Query<'a, E> {
    /// [times, d]
    queries: &'a [f32],
    /// Row j of the head begins at j · heads · d.
    keys: &'a [E],
    /// Row j of the head begins at j · heads · e.
    values: &'a [E],
    seen: std::ops::Range<usize>,
    heads: usize,
    d: usize,
    e: usize,
    scale: f32,
    /// Bound of the scores.
    softcap: Option<f32>,
    /// A score without a value for each head.
    sinks: Option<&'a [f32]>,
    /// [times, e]
    y: &'a mut [f32],
    /// For each head, the largest score, sink included, and Σ exp(score − largest).
    into: &'a mut Vec<(f32, f32)>,
}

impl<E: Element> Vectorised for Query<'_, E> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        let Query { queries, keys, values, seen, heads, d, e, scale, softcap, sinks, y, into } =
            self;
        let (times, count) = (queries.len() / d.max(1), seen.len());
        let mut row = vec![0.0f32; d.max(e)];
        let mut scores = vec![0.0f32; times * count]; // [times, count]
        for (at, j) in seen.clone().enumerate() {
            ffi::ask_for_lines(keys, (j + AHEAD) * heads * d, d);
            let key = &mut row[..d];
            E::widen(&keys[j * heads * d..][..d], key);
            for (group, q) in queries.chunks_exact(d.max(1)).enumerate() {
                scores[group * count + at] = scale * dot::<FMA>(q, key);
            }
        }
        if let Some(cap) = softcap {
            for score in scores.iter_mut() {
                *score = cap * tanh::<FMA>(*score / cap);
            }
        }
        for (group, p) in scores.chunks_exact_mut(count).enumerate() {
            let sink = sinks.map(|sinks| sinks[group]);
            let most = sink.map_or(max(p), |sink| sink.max(max(p)));
            let of_sink = sink.map_or(0.0, |sink| exp::<FMA>(sink - most));
            let total = sum_exp::<FMA>(p, most) + of_sink;
            for p in p.iter_mut() {
                *p = exp::<FMA>(*p - most);
            }
            into.push((most, total));
        }
        y.fill(0.0);
        for (at, j) in seen.enumerate() {
            ffi::ask_for_lines(values, (j + AHEAD) * heads * e, e);
            let value = &mut row[..e];
            E::widen(&values[j * heads * e..][..e], value);
            for (group, y) in y.chunks_exact_mut(e.max(1)).enumerate() {
                let p = scores[group * count + at];
                for (y, v) in y.iter_mut().zip(&*value) {
                    *y = mul_add::<FMA>(p, *v, *y);
                }
            }
        }
        for (y, (_, total)) in y.chunks_exact_mut(e.max(1)).zip(&*into) {
            for y in y {
                *y /= total;
            }
        }
    }
}
