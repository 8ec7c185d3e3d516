//! SIMD arithmetic for the loops of the fused kernels, on arrays that hold a register's worth of f32.
//!
//! Every function is `#[inline(always)]`, so it is compiled for its caller's instruction set. A lane's result does not
//! depend on the number of lanes.

use super::ffi;

#[inline(always)]
pub(crate) fn load<const W: usize>(row: &[f32], c: usize) -> [f32; W] {
    chunk(row, c)
}

/// W elements from `at` on. A copy of a slice is not always compiled into its caller; this is.
#[inline(always)]
fn chunk<T: Copy, const W: usize>(from: &[T], at: usize) -> [T; W] {
    match from[at..at + W].first_chunk() {
        Some(chunk) => *chunk,
        None => unreachable!("a slice of W elements has W of them"),
    }
}

#[inline(always)]
pub(crate) fn store<const W: usize>(row: &mut [f32], c: usize, lanes: &[f32; W]) {
    row[c..c + W].copy_from_slice(lanes);
}

#[inline(always)]
pub(crate) fn mul_add<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// exp(x), within a few units in the last place; x is clamped to where the result is a normal number.
#[inline(always)]
pub(crate) fn exp<const FMA: bool>(x: f32) -> f32 {
    // exp(y) = 2^n exp(r), |r| <= ln 2 / 2; the polynomial and the split of ln 2 are from Cephes' expf.
    const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
    let y = x.clamp(-87.0, 88.0);
    let shifted = mul_add::<FMA>(y, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = mul_add::<FMA>(n, 2.121_944_4e-4, mul_add::<FMA>(n, -355.0 / 512.0, y));
    let mut p = 1.987_569_1e-4;
    for coefficient in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = mul_add::<FMA>(p, r, coefficient);
    }
    let exp_r = mul_add::<FMA>(p, r * r, r + 1.0);
    exp_r * f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23))
}

/// 1 / (1 + exp(-x)), within a few units in the last place.
#[inline(always)]
pub(crate) fn sigmoid<const FMA: bool>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<FMA>(-x))
}

/// tanh(x), within a few units in the last place.
#[inline(always)]
pub(crate) fn tanh<const FMA: bool>(x: f32) -> f32 {
    // Near 0 the polynomial of Cephes' tanhf, since the formula cancels there.
    let square = x * x;
    let mut p = -5.704_988_7e-3;
    for coefficient in [2.063_908_8e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_328e-1] {
        p = mul_add::<FMA>(p, square, coefficient);
    }
    let near_zero = mul_add::<FMA>(p * square, x, x);
    let size = x.abs();
    let far = (1.0 - 2.0 / (exp::<FMA>(2.0 * size) + 1.0)).copysign(x);
    if size < 0.625 { near_zero } else { far }
}

/// Number of lanes in every sum, for any register width, so that the order is always the same.
pub(crate) const SUMS: usize = 16;

/// Σ a b.
#[inline(always)]
pub(crate) fn dot<const FMA: bool>(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; SUMS];
    let (bulk_a, bulk_b) = (a.chunks_exact(SUMS), b.chunks_exact(SUMS));
    let (rest_a, rest_b) = (bulk_a.remainder(), bulk_b.remainder());
    for (a, b) in bulk_a.zip(bulk_b) {
        for l in 0..SUMS {
            sums[l] = mul_add::<FMA>(a[l], b[l], sums[l]);
        }
    }
    for ((sum, a), b) in sums.iter_mut().zip(rest_a).zip(rest_b) {
        *sum = mul_add::<FMA>(*a, *b, *sum);
    }
    total(sums)
}

/// Σ a².
#[inline(always)]
pub(crate) fn sum_squares<const FMA: bool>(a: &[f32]) -> f32 {
    dot::<FMA>(a, a)
}

/// The largest element that is a number.
#[inline(always)]
pub(crate) fn max(a: &[f32]) -> f32 {
    let mut most = [f32::NEG_INFINITY; SUMS];
    let bulk = a.chunks_exact(SUMS);
    let rest = bulk.remainder();
    for a in bulk {
        for l in 0..SUMS {
            most[l] = if a[l] > most[l] { a[l] } else { most[l] };
        }
    }
    for (most, a) in most.iter_mut().zip(rest) {
        *most = if *a > *most { *a } else { *most };
    }
    most.iter().fold(f32::NEG_INFINITY, |most, &a| if a > most { a } else { most })
}

/// Σ exp(a − less).
#[inline(always)]
pub(crate) fn sum_exp<const FMA: bool>(a: &[f32], less: f32) -> f32 {
    let mut sums = [0.0f32; SUMS];
    let bulk = a.chunks_exact(SUMS);
    let rest = bulk.remainder();
    for a in bulk {
        for l in 0..SUMS {
            sums[l] += exp::<FMA>(a[l] - less);
        }
    }
    for (sum, a) in sums.iter_mut().zip(rest) {
        *sum += exp::<FMA>(a - less);
    }
    total(sums)
}

/// Adds lanes pairwise, neighbours at distance 8, 4, 2, 1.
#[inline(always)]
pub(crate) fn total(sums: [f32; SUMS]) -> f32 {
    ffi::total(&sums)
}

/// An element in memory that is computed with in f32.
pub(crate) trait Element: Copy + Default + Sync {
    fn wide(self) -> f32;

    /// A row of them.
    #[inline(always)]
    fn widen(from: &[Self], into: &mut [f32]) {
        for (into, x) in into.iter_mut().zip(from) {
            *into = x.wide();
        }
    }

    /// As many as there are lanes.
    #[inline(always)]
    fn load<const W: usize>(from: &[Self], at: usize) -> [f32; W] {
        let mut lanes = [0.0; W];
        let from: [Self; W] = chunk(from, at);
        for l in 0..W {
            lanes[l] = from[l].wide();
        }
        lanes
    }

    /// At most as many, then zeros.
    #[inline(always)]
    fn load_some<const W: usize>(from: &[Self]) -> [f32; W] {
        let mut lanes = [0.0; W];
        for (lane, x) in lanes.iter_mut().zip(from) {
            *lane = x.wide();
        }
        lanes
    }
}

impl Element for f32 {
    #[inline(always)]
    fn wide(self) -> f32 {
        self
    }
}

/// The upper half of an f32's bits: bf16.
impl Element for u16 {
    #[inline(always)]
    fn wide(self) -> f32 {
        f32::from_bits(u32::from(self) << 16)
    }
}
