//! Small matrix products inside one kernel, row-major f32: blocks of a scan's chunk, blocks of attention.
//!
//! Rows and columns are padded to multiples of [`PAD`]. Each element of C is summed over k in order, for any register
//! width. Nothing is allocated here.

use super::lanes::{load, mul_add, store};
use super::{Isa, ffi};

/// Numbers of rows and columns are multiples of this, which every register width divides.
pub(super) const PAD: usize = 16;

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
    ffi::run_on(isa, Product::<true> { c, a, b, m, k, n });
}

/// C [m, n] = A [m, k] B [k, n]; B and C have rows of n.
pub(super) fn product(isa: Isa, c: &mut [f32], a: Strided<'_>, b: &[f32], [m, k, n]: [usize; 3]) {
    ffi::run_on(isa, Product::<false> { c, a, b, m, k, n });
}

/// The transpose of [rows, width], into [width, rows]; both are multiples of [`PAD`].
pub(super) fn transpose(isa: Isa, into: &mut [f32], from: &[f32], width: usize) {
    ffi::run_on(isa, Transpose { into, from, width });
}

struct Transpose<'a> {
    into: &'a mut [f32],
    from: &'a [f32],
    width: usize,
}

impl ffi::Vectorised for Transpose<'_> {
    /// By squares, so that each cache line is written once: a column at a time, the lines of a wide matrix would evict
    /// one another from the cache.
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        let Transpose { into, from, width } = self;
        let rows = from.len() / width.max(1);
        for r in (0..rows).step_by(PAD) {
            for c in (0..width).step_by(PAD) {
                let square: [[f32; PAD]; PAD] =
                    std::array::from_fn(|i| load(&from[(r + i) * width..], c));
                for j in 0..PAD {
                    let column: [f32; PAD] = std::array::from_fn(|i| square[i][j]);
                    store(&mut into[(c + j) * rows..], r, &column);
                }
            }
        }
    }
}

/// `ADD`: whether to add to C.
struct Product<'a, const ADD: bool> {
    c: &'a mut [f32],
    a: Strided<'a>,
    b: &'a [f32],
    m: usize,
    k: usize,
    n: usize,
}

impl<const ADD: bool> ffi::Vectorised for Product<'_, ADD> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        match self.a.col == 1 {
            true => self.tiles::<FMA, LANES, false>(),
            false => self.tiles::<FMA, LANES, true>(),
        }
    }
}

impl<const ADD: bool> Product<'_, ADD> {
    #[inline(always)]
    fn tiles<const FMA: bool, const LANES: usize, const FLIPPED: bool>(self) {
        let Product { c, a, b, m, k, n } = self;
        for i in (0..m).step_by(8) {
            let mut j = 0;
            while j + 2 * LANES <= n {
                let at = [i, j, k, n];
                // As many rows as there are registers for their sums.
                if LANES >= 16 {
                    tile::<FMA, LANES, 8, 2, FLIPPED, ADD>(c, a, b, at);
                } else {
                    tile::<FMA, LANES, 4, 2, FLIPPED, ADD>(c, a, b, at);
                    tile::<FMA, LANES, 4, 2, FLIPPED, ADD>(c, a, b, [i + 4, j, k, n]);
                }
                j += 2 * LANES;
            }
            while j < n {
                tile::<FMA, LANES, 4, 1, FLIPPED, ADD>(c, a, b, [i, j, k, n]);
                tile::<FMA, LANES, 4, 1, FLIPPED, ADD>(c, a, b, [i + 4, j, k, n]);
                j += LANES;
            }
        }
    }
}

/// ROWS rows from row i and N registers of columns from column j of C, held in registers over the whole depth k.
#[inline(always)]
fn tile<
    const FMA: bool,
    const LANES: usize,
    const ROWS: usize,
    const N: usize,
    const FLIPPED: bool,
    const ADD: bool,
>(
    c: &mut [f32],
    a: Strided<'_>,
    b: &[f32],
    [i, j, k, n]: [usize; 4],
) {
    let c = &mut c[i * n..(i + ROWS) * n];
    let mut sums = [[[0.0f32; LANES]; N]; ROWS];
    if ADD {
        for (r, sums) in sums.iter_mut().enumerate() {
            for (x, sum) in sums.iter_mut().enumerate() {
                *sum = load(&c[r * n..], j + x * LANES);
            }
        }
    }
    // Unused if A is flipped.
    let rows: [&[f32]; ROWS] = std::array::from_fn(|r| match FLIPPED {
        true => &[][..],
        false => &a.data[(i + r) * a.row..][..k],
    });
    for at in 0..k {
        let row = &b[at * n + j..][..N * LANES];
        let factors: [f32; ROWS] = match FLIPPED {
            true => load(a.data, at * a.col + i),
            false => std::array::from_fn(|r| rows[r][at]),
        };
        for (factor, sums) in factors.iter().zip(&mut sums) {
            for (x, sum) in sums.iter_mut().enumerate() {
                let from: [f32; LANES] = load(row, x * LANES);
                for l in 0..LANES {
                    sum[l] = mul_add::<FMA>(*factor, from[l], sum[l]);
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
