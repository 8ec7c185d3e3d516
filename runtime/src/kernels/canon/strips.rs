//! The loops of the fused Canon layer over one block of rows, compiled once for each kernel size and instruction set.
//! In: rows to read. Out: rows of y or dx, and the block's share of dw, added to the existing values. GROUP rows at a
//! time are processed in strips of one register, so a strip's filter, history and filter gradient stay in registers.
//! Must stay true: a channel's sums run over time in order, for any strip.
#![expect(
    clippy::needless_range_loop,
    reason = "lane and tap loops run over several arrays at once"
)]

use super::super::ffi::{Block, BlockMut, Rows, Vectorised};
use super::super::lanes::{load, mul_add, sigmoid, store};
use super::fused::{BLOCK, Source};
use super::{Activation, Options};

const GROUP: usize = 32;

pub(super) struct Forward<'a, 'r> {
    pub(super) source: &'a Source<'a>,
    pub(super) options: Options,
    pub(super) block: &'a Block,
    pub(super) rows: &'a mut BlockMut<'r>,
}

/// Selects the loop compiled for a kernel size: `by_kernel!(size, function::<FMA>(arguments))`.
macro_rules! by_kernel {
    ($size:expr, $run:ident::<$fma:ident, $lanes:ident>($($argument:expr),*)) => {
        match $size {
            2 => $run::<2, $fma, $lanes>($($argument),*),
            3 => $run::<3, $fma, $lanes>($($argument),*),
            4 => $run::<4, $fma, $lanes>($($argument),*),
            5 => $run::<5, $fma, $lanes>($($argument),*),
            6 => $run::<6, $fma, $lanes>($($argument),*),
            7 => $run::<7, $fma, $lanes>($($argument),*),
            8 => $run::<8, $fma, $lanes>($($argument),*),
            other => unreachable!("`Parts::new` refuses kernel {other}"),
        }
    };
}

impl Vectorised for Forward<'_, '_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        by_kernel!(self.source.kernel, forward_block::<FMA, LANES>(self));
    }
}

#[inline(always)]
fn forward_block<const K: usize, const FMA: bool, const LANES: usize>(work: Forward<'_, '_>) {
    let Forward { source, options, block, rows } = work;
    for first in block.times.clone().step_by(GROUP) {
        let count = GROUP.min(block.times.end - first);
        let mut out = rows.rows::<GROUP>(first);
        let old: [&[f32]; 7] =
            std::array::from_fn(|j| source.delayed(block.batch, first + j.min(K - 2)));
        let new: [&[f32]; GROUP] =
            std::array::from_fn(|i| source.delayed(block.batch, first + K - 1 + i));
        let group = Group { taps: &source.taps, bias: source.bias, old: &old, new: &new, count };
        let bulk = source.channels - source.channels % LANES;
        for c in (0..bulk).step_by(LANES) {
            forward_strip::<K, FMA, LANES>(&group, options, &mut out, c);
        }
        for c in bulk..source.channels {
            forward_strip::<K, FMA, 1>(&group, options, &mut out, c);
        }
    }
}

/// GROUP rows to compute, the K-1 before them, and the filter.
struct Group<'a> {
    taps: &'a [&'a [f32]; 8],
    bias: &'a [f32],
    old: &'a [&'a [f32]; 7],
    new: &'a [&'a [f32]; GROUP],
    count: usize,
}

#[inline(always)]
fn forward_strip<const K: usize, const FMA: bool, const W: usize>(
    group: &Group<'_>,
    options: Options,
    out: &mut [&mut [f32]; GROUP],
    c: usize,
) {
    let taps: [[f32; W]; K] = std::array::from_fn(|j| load(group.taps[j], c));
    let bias = load(group.bias, c);
    let mut window = [[0.0; W]; K];
    for j in 1..K {
        window[j] = load(group.old[j - 1], c);
    }
    for i in 0..group.count {
        push(&mut window, load(group.new[i], c));
        let mut y = convolve::<K, FMA, W>(&taps, &window, bias);
        if options.activation == Activation::Silu {
            for value in &mut y {
                *value *= sigmoid::<FMA>(*value);
            }
        }
        if options.residual {
            for (value, x) in y.iter_mut().zip(&window[K - 1]) {
                *value += x;
            }
        }
        store(out[i], c, &y);
    }
}

pub(super) struct Backward<'a, 'r> {
    pub(super) source: &'a Source<'a>,
    pub(super) dy: Rows<'a>,
    pub(super) options: Options,
    pub(super) block: &'a Block,
    pub(super) rows: &'a mut BlockMut<'r>,
    pub(super) partial: &'a mut [f32],
    pub(super) local: &'a mut Vec<f32>,
}

impl Vectorised for Backward<'_, '_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        by_kernel!(self.source.kernel, backward_block::<FMA, LANES>(self));
    }
}

#[inline(always)]
fn backward_block<const K: usize, const FMA: bool, const LANES: usize>(work: Backward<'_, '_>) {
    let Backward { source, dy, options, block, rows, partial, local } = work;
    let width = source.channels;
    let start = block.times.start;
    // dp of the block and of the K-1 rows after it, which also read its inputs.
    let end = source.time.min(block.times.end + K - 1);
    let slopes: Option<&[f32]> = match options.activation {
        Activation::Identity => None,
        Activation::Silu => {
            local.resize((BLOCK + K - 1) * width, 0.0);
            let into = &mut local[..(end - start) * width];
            slopes_of::<K, FMA, LANES>(&mut Slopes {
                source,
                dy,
                options,
                batch: block.batch,
                first: start,
                into,
            });
            Some(&local[..(end - start) * width])
        }
    };
    let slope = |t: usize| match slopes {
        _ if t >= end => source.zeros,
        None => dy.row(block.batch, t),
        Some(slopes) => &slopes[(t - start) * width..][..width],
    };
    for first in block.times.clone().step_by(GROUP) {
        let count = GROUP.min(block.times.end - first);
        let mut out = rows.rows::<GROUP>(first);
        let old: [&[f32]; 7] =
            std::array::from_fn(|j| source.delayed(block.batch, first + j.min(K - 2)));
        let new: [&[f32]; GROUP] =
            std::array::from_fn(|i| source.delayed(block.batch, first + K - 1 + i));
        let group = Group { taps: &source.taps, bias: source.bias, old: &old, new: &new, count };
        let down = Down {
            near: &std::array::from_fn(|j| slope(first + j.min(K - 2))),
            far: &std::array::from_fn(|i| slope(first + K - 1 + i)),
            dy: &std::array::from_fn(|i| {
                if i < count { dy.row(block.batch, first + i) } else { source.zeros }
            }),
        };
        let bulk = width - width % LANES;
        for c in (0..bulk).step_by(LANES) {
            backward_strip::<K, FMA, LANES>(&group, &down, options, &mut out, partial, c);
        }
        for c in bulk..width {
            backward_strip::<K, FMA, 1>(&group, &down, options, &mut out, partial, c);
        }
    }
}

/// Gradients for GROUP rows: dp from the rows' own time on to K-1 steps later, and dy.
struct Down<'a> {
    near: &'a [&'a [f32]; 7],
    far: &'a [&'a [f32]; GROUP],
    dy: &'a [&'a [f32]; GROUP],
}

#[inline(always)]
fn backward_strip<const K: usize, const FMA: bool, const W: usize>(
    group: &Group<'_>,
    down: &Down<'_>,
    options: Options,
    out: &mut [&mut [f32]; GROUP],
    partial: &mut [f32],
    c: usize,
) {
    let width = group.taps[0].len();
    // Reversed: dp[t + i] meets tap K-1-i.
    let taps: [[f32; W]; K] = std::array::from_fn(|j| load(group.taps[K - 1 - j], c));
    let mut sums: [[f32; W]; K] = std::array::from_fn(|j| load(&partial[j * width..][..width], c));
    // The bias's share comes after the taps', if there is a bias.
    let biased = partial.len() > K * width;
    let mut bias = if biased { load(&partial[K * width..], c) } else { [0.0; W] };
    let (mut window, mut slopes) = ([[0.0; W]; K], [[0.0; W]; K]);
    for j in 1..K {
        window[j] = load(group.old[j - 1], c);
        slopes[j] = load(down.near[j - 1], c);
    }
    for i in 0..group.count {
        push(&mut window, load(group.new[i], c));
        push(&mut slopes, load(down.far[i], c));
        let mut dx = convolve::<K, FMA, W>(&taps, &slopes, [0.0; W]);
        if options.residual {
            let dy: [f32; W] = load(down.dy[i], c);
            for (value, dy) in dx.iter_mut().zip(&dy) {
                *value += dy;
            }
        }
        store(out[i], c, &dx);
        for j in 0..K {
            for l in 0..W {
                sums[j][l] = mul_add::<FMA>(slopes[0][l], window[j][l], sums[j][l]);
            }
        }
        for l in 0..W {
            bias[l] += slopes[0][l];
        }
    }
    if biased {
        store(&mut partial[K * width..], c, &bias);
    }
    for j in 0..K {
        store(&mut partial[j * width..][..width], c, &sums[j]);
    }
}

/// dp = dy act'(conv(x) + bias) for the rows from `first` on that fit in `into`.
pub(super) struct Slopes<'a> {
    pub(super) source: &'a Source<'a>,
    pub(super) dy: Rows<'a>,
    pub(super) options: Options,
    pub(super) batch: usize,
    pub(super) first: usize,
    pub(super) into: &'a mut [f32], // [rows, c]
}

impl Vectorised for Slopes<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(mut self) {
        by_kernel!(self.source.kernel, slopes_of::<FMA, LANES>(&mut self));
    }
}

#[inline(always)]
fn slopes_of<const K: usize, const FMA: bool, const LANES: usize>(work: &mut Slopes<'_>) {
    let Slopes { source, dy, options, batch, first, into } = work;
    let width = source.channels;
    for (i, row) in into.chunks_exact_mut(width.max(1)).enumerate() {
        let t = *first + i;
        let dy = dy.row(*batch, t);
        if options.activation == Activation::Identity {
            row.copy_from_slice(dy);
            continue;
        }
        let xs: [&[f32]; K] = std::array::from_fn(|j| source.delayed(*batch, t + j));
        let bulk = width - width % LANES;
        for c in (0..bulk).step_by(LANES) {
            slope_strip::<K, FMA, LANES>(source, &xs, dy, row, c);
        }
        for c in bulk..width {
            slope_strip::<K, FMA, 1>(source, &xs, dy, row, c);
        }
    }
}

#[inline(always)]
fn slope_strip<const K: usize, const FMA: bool, const W: usize>(
    source: &Source<'_>,
    xs: &[&[f32]; K],
    dy: &[f32],
    into: &mut [f32],
    c: usize,
) {
    let p = convolve::<K, FMA, W>(
        &std::array::from_fn(|j| load(source.taps[j], c)),
        &std::array::from_fn(|j| load(xs[j], c)),
        load(source.bias, c),
    );
    let mut slopes: [f32; W] = load(dy, c);
    for (slope, p) in slopes.iter_mut().zip(p) {
        let s = sigmoid::<FMA>(p);
        *slope *= s * mul_add::<FMA>(p, 1.0 - s, 1.0);
    }
    store(into, c, &slopes);
}

#[inline(always)]
fn convolve<const K: usize, const FMA: bool, const W: usize>(
    taps: &[[f32; W]; K],
    xs: &[[f32; W]; K],
    bias: [f32; W],
) -> [f32; W] {
    let mut sum = bias;
    for j in 0..K {
        for l in 0..W {
            sum[l] = mul_add::<FMA>(taps[j][l], xs[j][l], sum[l]);
        }
    }
    sum
}

/// Drops the oldest of the window and appends the newest.
#[inline(always)]
fn push<const K: usize, const W: usize>(window: &mut [[f32; W]; K], newest: [f32; W]) {
    for j in 1..K {
        window[j - 1] = window[j];
    }
    window[K - 1] = newest;
}
