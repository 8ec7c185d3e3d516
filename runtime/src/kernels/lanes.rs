//! Arithmetic on a register's worth of f32: in arrays, out arrays, for the loops of the fused kernels.
//! Must stay true: every function is `#[inline(always)]`, so that it is compiled for its caller's
//! instruction set; a lane's result does not depend on how many lanes there are.

#[inline(always)]
pub(crate) fn load<const W: usize>(row: &[f32], c: usize) -> [f32; W] {
    let mut lanes = [0.0; W];
    lanes.copy_from_slice(&row[c..c + W]);
    lanes
}

#[inline(always)]
pub(crate) fn store<const W: usize>(row: &mut [f32], c: usize, lanes: &[f32; W]) {
    row[c..c + W].copy_from_slice(lanes);
}

#[inline(always)]
pub(crate) fn mul_add<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// 1 / (1 + exp(-x)), within a few units in the last place.
#[inline(always)]
pub(crate) fn sigmoid<const FMA: bool>(x: f32) -> f32 {
    // exp(y) = 2^n exp(r), |r| <= ln 2 / 2; the polynomial and the split of ln 2 are those of Cephes' expf.
    const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
    let y = (-x).clamp(-87.0, 88.0);
    let shifted = mul_add::<FMA>(y, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = mul_add::<FMA>(n, 2.121_944_4e-4, mul_add::<FMA>(n, -355.0 / 512.0, y));
    let mut p = 1.987_569_1e-4;
    for coefficient in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = mul_add::<FMA>(p, r, coefficient);
    }
    let exp_r = mul_add::<FMA>(p, r * r, r + 1.0);
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    1.0 / (1.0 + exp_r * power)
}
