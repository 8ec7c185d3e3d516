//! Small matrix products for one chunk of one head, row-major f32.
//!
//! In: matrices with rows and columns padded to [`PAD`]. Out: C += A B. Must stay true: each element of C is summed
//! over k in order, for any registers; nothing is allocated here.

use super::super::lanes::{load, mul_add, store};
use super::super::{Isa, ffi};

/// Numbers of rows and columns are multiples of this, which every register width divides.
pub(super) const PAD: usize = 16;
/// Rows of A processed together.
const ROWS: usize = 4;
/// Columns of A packed at a time.
const DEPTH: usize = 128;

/// A matrix read with any strides: `row` elements from row to row, `col` from column to column.
#[derive(Clone, Copy)]
pub(super) struct Strided<'a> {
    pub(super) data: &'a [f32],
    pub(super) row: usize,
    pub(super) col: usize,
}

/// The matrix itself, with rows of `width`.
pub(super) fn plain(data: &[f32], width: usize) -> Strided<'_> {
    Strided { data, row: width, col: 1 }
}

/// Its transpose; its own rows have `width`.
pub(super) fn flipped(data: &[f32], width: usize) -> Strided<'_> {
    Strided { data, row: 1, col: width }
}

/// C [m, n] += A [m, k] B [k, n]; B and C have rows of n.
pub(super) fn add_product(
    isa: Isa,
    c: &mut [f32],
    a: Strided<'_>,
    b: &[f32],
    [m, k, n]: [usize; 3],
) {
    ffi::run_on(isa, Product { c, a, b, m, k, n });
}

/// The transpose of [rows, width], into [width, rows].
pub(super) fn transpose(into: &mut [f32], from: &[f32], width: usize) {
    let rows = from.len() / width.max(1);
    for (r, row) in from.chunks_exact(width).enumerate() {
        for (c, x) in row.iter().enumerate() {
            into[c * rows + r] = *x;
        }
    }
}

struct Product<'a> {
    c: &'a mut [f32],
    a: Strided<'a>,
    b: &'a [f32],
    m: usize,
    k: usize,
    n: usize,
}

impl ffi::Vectorised for Product<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        let Product { c, a, b, m, k, n } = self;
        let mut panel = [[0.0f32; ROWS]; DEPTH];
        for first in (0..k).step_by(DEPTH) {
            let depth = DEPTH.min(k - first);
            let rows = &b[first * n..(first + depth) * n];
            for i in (0..m).step_by(ROWS) {
                for (at, lane) in panel[..depth].iter_mut().enumerate() {
                    for (r, x) in lane.iter_mut().enumerate() {
                        *x = a.data[(i + r) * a.row + (first + at) * a.col];
                    }
                }
                let c = &mut c[i * n..(i + ROWS) * n];
                let mut j = 0;
                while j + 2 * LANES <= n {
                    tile::<FMA, LANES, 2>(c, &panel[..depth], rows, n, j);
                    j += 2 * LANES;
                }
                while j < n {
                    tile::<FMA, LANES, 1>(c, &panel[..depth], rows, n, j);
                    j += LANES;
                }
            }
        }
    }
}

/// ROWS rows and N registers of columns of C, held in registers over the whole depth.
#[inline(always)]
fn tile<const FMA: bool, const LANES: usize, const N: usize>(
    c: &mut [f32],
    panel: &[[f32; ROWS]],
    b: &[f32],
    n: usize,
    j: usize,
) {
    let mut sums = [[[0.0f32; LANES]; N]; ROWS];
    for (r, sums) in sums.iter_mut().enumerate() {
        for (x, sum) in sums.iter_mut().enumerate() {
            *sum = load(&c[r * n..], j + x * LANES);
        }
    }
    for (lane, row) in panel.iter().zip(b.chunks_exact(n)) {
        let row = &row[j..j + N * LANES];
        for (r, sums) in sums.iter_mut().enumerate() {
            for (x, sum) in sums.iter_mut().enumerate() {
                let from: [f32; LANES] = load(row, x * LANES);
                for l in 0..LANES {
                    sum[l] = mul_add::<FMA>(lane[r], from[l], sum[l]);
                }
            }
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        for (x, sum) in sums.iter().enumerate() {
            store(&mut c[r * n..], j + x * LANES, sum);
        }
    }
}
