//! Strided matrices in memory, and products of their tiles in registers.
//!
//! Each element of a tile is one chain of fused multiply-adds in the order of k, for any width of registers. Sizes are
//! checked before memory is touched.

use std::marker::PhantomData;
use std::ops::Range;

use tch::Tensor;

use super::{Shared, base, check_f32_cpu, parallel_for, parallel_indices};
use crate::kernels::{Isa, KernelError};

/// A matrix that is read.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    pointer: *const f32,
    sizes: [usize; 2],
    strides: [usize; 2],
    borrow: PhantomData<&'a [f32]>,
}

// SAFETY: reading floats from several threads.
unsafe impl Send for Matrix<'_> {}
// SAFETY: as above.
unsafe impl Sync for Matrix<'_> {}

impl<'a> Matrix<'a> {
    /// A matrix on the CPU, f32, with any strides.
    pub(crate) fn from_tensor(tensor: &'a Tensor) -> Result<Self, KernelError> {
        check_f32_cpu(tensor)?;
        let (sizes, strides) = (tensor.size(), tensor.stride());
        let ([rows, cols], [row, col]) = (sizes.as_slice(), strides.as_slice()) else {
            return Err(KernelError::new(format!("a matrix is expected, got shape {sizes:?}")));
        };
        let sizes = [*rows as usize, *cols as usize];
        let pointer = base(tensor, sizes.iter().product());
        // libtorch has no negative strides.
        let strides = [*row as usize, *col as usize];
        Ok(Self { pointer, sizes, strides, borrow: PhantomData })
    }

    /// Rows of `width`, one after another.
    pub(crate) fn from_slice(data: &'a [f32], width: usize) -> Self {
        let sizes = [data.len() / width.max(1), width];
        Self { pointer: data.as_ptr(), sizes, strides: [width, 1], borrow: PhantomData }
    }

    /// [rows, columns]
    pub(crate) fn sizes(&self) -> [usize; 2] {
        self.sizes
    }

    /// Distances from row to row and from column to column.
    pub(crate) fn strides(&self) -> [usize; 2] {
        self.strides
    }

    pub(crate) fn transposed(self) -> Self {
        let ([rows, cols], [row, col]) = (self.sizes, self.strides);
        Self { sizes: [cols, rows], strides: [col, row], ..self }
    }

    pub(crate) fn part(self, rows: Range<usize>, cols: Range<usize>) -> Self {
        let first = offset(self.sizes, self.strides, &rows, &cols);
        // SAFETY: the first element of a part that has any is inside the matrix; else the pointer stays.
        let pointer = unsafe { self.pointer.add(first) };
        Self { pointer, sizes: [rows.len(), cols.len()], ..self }
    }

    /// A row of a matrix with dense rows.
    pub(crate) fn row(&self, i: usize) -> &'a [f32] {
        let [rows, cols] = self.sizes;
        assert!(i < rows && (self.strides[1] == 1 || cols <= 1), "row {i} of {rows}");
        // SAFETY: the row is inside the matrix, which is borrowed for as long as the slice, and dense.
        unsafe { std::slice::from_raw_parts(self.pointer.add(i * self.strides[0]), cols) }
    }

    pub(crate) fn at(&self, i: usize, j: usize) -> f32 {
        let [rows, cols] = self.sizes;
        assert!(i < rows && j < cols, "element ({i}, {j}) of [{rows}, {cols}]");
        // SAFETY: inside the matrix.
        unsafe { *self.pointer.add(i * self.strides[0] + j * self.strides[1]) }
    }
}

/// Where a part begins; 0 if it is empty. Panics if it is not inside.
fn offset(
    sizes: [usize; 2],
    strides: [usize; 2],
    rows: &Range<usize>,
    cols: &Range<usize>,
) -> usize {
    for (part, size) in [(rows, sizes[0]), (cols, sizes[1])] {
        assert!(part.start <= part.end && part.end <= size, "{part:?} of {size}");
    }
    match rows.is_empty() || cols.is_empty() {
        true => 0,
        false => rows.start * strides[0] + cols.start * strides[1],
    }
}

/// A part of a matrix with dense rows that one thread writes.
pub(crate) struct MatrixMut<'a> {
    pointer: *mut f32,
    sizes: [usize; 2],
    stride: usize,
    borrow: PhantomData<&'a mut [f32]>,
}

impl<'a> MatrixMut<'a> {
    /// Rows of `width`, one after another.
    pub(crate) fn from_slice(data: &'a mut [f32], width: usize) -> Self {
        let sizes = [data.len() / width.max(1), width];
        Self { pointer: data.as_mut_ptr(), sizes, stride: width, borrow: PhantomData }
    }

    /// [rows, columns]
    pub(crate) fn sizes(&self) -> [usize; 2] {
        self.sizes
    }

    pub(crate) fn part(&mut self, rows: Range<usize>, cols: Range<usize>) -> MatrixMut<'_> {
        let first = offset(self.sizes, [self.stride, 1], &rows, &cols);
        // SAFETY: the first element of a part that has any is inside the matrix, else the pointer stays; `&mut self`
        // excludes other parts meanwhile.
        let pointer = unsafe { self.pointer.add(first) };
        let sizes = [rows.len(), cols.len()];
        MatrixMut { pointer, sizes, stride: self.stride, borrow: PhantomData }
    }

    pub(crate) fn row(&mut self, i: usize) -> &mut [f32] {
        let [rows, cols] = self.sizes;
        assert!(i < rows, "row {i} of {rows}");
        // SAFETY: the row is inside the matrix and dense, and `&mut self` gives out one at a time.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.add(i * self.stride), cols) }
    }
}

/// The axis along which a matrix is divided between threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Axis {
    Rows,
    Columns,
}

/// Divides C, whose rows have `width`, into one part for each of ATen's threads, along an axis and at multiples of
/// `unit`, at least `grain` units each. The parts depend on the number of threads, so results must not depend on them.
/// `body` gets where its part begins and ends on that axis.
pub(crate) fn parallel_parts(
    c: &mut [f32],
    width: usize,
    axis: Axis,
    unit: usize,
    grain: usize,
    body: impl Fn(Range<usize>, MatrixMut<'_>) + Sync,
) {
    let rows = c.len() / width.max(1);
    let length = match axis {
        Axis::Rows => rows,
        Axis::Columns => width,
    };
    let c = Shared(c.as_mut_ptr());
    parallel_for(length.div_ceil(unit), grain, |piece| {
        let part = piece.start * unit..length.min(piece.end * unit);
        let (first, sizes) = match axis {
            Axis::Rows => (part.start * width, [part.len(), width]),
            Axis::Columns => (part.start, [rows, part.len()]),
        };
        // SAFETY: the part begins inside C; parts of other threads have other rows or columns.
        let pointer = unsafe { c.get().add(first) };
        body(part, MatrixMut { pointer, sizes, stride: width, borrow: PhantomData });
    });
}

/// Divides C, whose rows have `width`, into parts of `unit` columns, which do not depend on the threads: at least
/// `grain` of them for each of ATen's threads. `body` gets the columns of its part.
pub(crate) fn parallel_columns(
    c: &mut [f32],
    width: usize,
    unit: usize,
    grain: usize,
    body: impl Fn(Range<usize>, MatrixMut<'_>) + Sync,
) {
    let rows = c.len() / width.max(1);
    assert!(rows * width == c.len(), "{} floats in rows of {width}", c.len());
    let c = Shared(c.as_mut_ptr());
    parallel_indices(width.div_ceil(unit.max(1)), grain, |index| {
        let part = index * unit..width.min((index + 1) * unit);
        // SAFETY: the part begins inside C, or C has no rows; parts of other indices have other columns, and an index
        // is given out once.
        let pointer = unsafe { c.get().add(part.start * usize::from(rows > 0)) };
        let sizes = [rows, part.len()];
        body(part, MatrixMut { pointer, sizes, stride: width, borrow: PhantomData });
    });
}

/// N rows of one length, one after another, whose columns are read together: with one check, and from one address.
#[derive(Clone, Copy)]
pub(crate) struct Strip<'a, T, const N: usize> {
    first: *const T,
    width: usize,
    borrow: PhantomData<&'a [T]>,
}

impl<'a, T: Copy + Default, const N: usize> Strip<'a, T, N> {
    /// The rows that `data` begins with.
    #[inline(always)]
    pub(crate) fn new(data: &'a [T], width: usize) -> Self {
        assert!(data.len() >= N * width, "{N} rows of {width} in {}", data.len());
        Self { first: data.as_ptr(), width, borrow: PhantomData }
    }

    /// Columns at..at + W of each row.
    #[inline(always)]
    pub(crate) fn columns<const W: usize>(&self, at: usize) -> [[T; W]; N] {
        assert!(at <= self.width && W <= self.width - at, "columns outside of a row");
        let mut columns = [[T::default(); W]; N];
        for (n, columns) in columns.iter_mut().enumerate() {
            // SAFETY: row n < N is in the slice (asserted by `new`), and these columns in the row (asserted above).
            *columns =
                unsafe { self.first.add(n * self.width + at).cast::<[T; W]>().read_unaligned() };
        }
        columns
    }
}

/// Rows of a tile of C, and the most columns; a tile has one, two or three registers of columns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TileSize {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// Floats in a register.
    pub(crate) lanes: usize,
}

impl TileSize {
    /// As many sums as there are registers for them, or nothing without fused multiply-adds.
    pub(crate) fn for_isa(isa: Isa) -> Option<Self> {
        match isa {
            Isa::Avx512 => Some(Self { rows: 8, columns: 48, lanes: 16 }),
            Isa::Avx2 => Some(Self { rows: 6, columns: 16, lanes: 8 }),
            Isa::Portable => None,
        }
    }
}

/// C = A B, or C += A B, of the rows and a number of whole registers of columns that [`TileSize`] says. The sums start
/// from 0, then C is added.
pub(crate) fn multiply_tile(
    isa: Isa,
    a: Matrix<'_>,
    b: Matrix<'_>,
    c: &mut MatrixMut<'_>,
    add: bool,
) {
    assert!(isa.is_available(), "{isa} kernels on a CPU without them");
    let ([rows, k], [depth, cols]) = (a.sizes, b.sizes);
    assert!(k == depth && c.sizes == [rows, cols] && b.strides[1] == 1, "tiles do not fit");
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the CPU has the instructions (asserted). The sizes of a, b and c fit one another (asserted) and the tile
    // (the patterns below), b and c have dense rows, and c is borrowed mutably, so nobody else touches it.
    unsafe {
        match (isa, rows, cols) {
            (Isa::Avx512, 8, 48) => x86::tile_avx512::<8, 3>(a, b, c, add),
            (Isa::Avx512, 8, 32) => x86::tile_avx512::<8, 2>(a, b, c, add),
            (Isa::Avx512, 8, 16) => x86::tile_avx512::<8, 1>(a, b, c, add),
            (Isa::Avx2, 6, 16) => x86::tile_avx2::<6, 2>(a, b, c, add),
            (Isa::Avx2, 6, 8) => x86::tile_avx2::<6, 1>(a, b, c, add),
            (Isa::Avx512 | Isa::Avx2 | Isa::Portable, _, _) => {
                panic!("{isa} has no tile of [{rows}, {cols}]")
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    panic!("{isa} has no tile of [{rows}, {cols}], add {add}");
}

/// Intrinsics and not [`super::Vectorised`]: the compiler spills sums that fill all registers, or vectorises over rows.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        _MM_HINT_T0, _mm_prefetch, _mm256_add_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_set1_ps,
        _mm256_setzero_ps, _mm256_storeu_ps, _mm512_add_ps, _mm512_fmadd_ps, _mm512_loadu_ps,
        _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps,
    };

    use super::{Matrix, MatrixMut};

    /// How many rows of B ahead a row is prefetched, since no CPU predicts the distance between rows.
    const AHEAD: usize = 8;

    macro_rules! tile {
        ($name:ident, $features:literal, $lanes:literal,
         $zero:ident, $load:ident, $spread:ident, $fma:ident, $add:ident, $store:ident) => {
            /// ROWS rows and N registers of columns of C.
            ///
            /// # Safety
            /// A is [ROWS, k], B [k, N · lanes], C [ROWS, N · lanes]; B and C have dense rows.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn $name<const ROWS: usize, const N: usize>(
                a: Matrix<'_>,
                b: Matrix<'_>,
                c: &mut MatrixMut<'_>,
                add: bool,
            ) {
                let mut sums = [[$zero(); N]; ROWS];
                for at in 0..b.sizes[0] {
                    // SAFETY: at < k, so these are rows of B and columns of A.
                    unsafe {
                        let column = a.pointer.add(at * a.strides[1]);
                        let row = b.pointer.add(at * b.strides[0]);
                        for x in 0..N {
                            let later = row.wrapping_add(AHEAD * b.strides[0] + x * $lanes);
                            _mm_prefetch::<_MM_HINT_T0>(later.cast());
                        }
                        let row: [_; N] = std::array::from_fn(|x| $load(row.add(x * $lanes)));
                        for (r, sums) in sums.iter_mut().enumerate() {
                            let factor = $spread(*column.add(r * a.strides[0]));
                            for (sum, from) in sums.iter_mut().zip(row) {
                                *sum = $fma(factor, from, *sum);
                            }
                        }
                    }
                }
                for (r, sums) in sums.iter().enumerate() {
                    for (x, sum) in sums.iter().enumerate() {
                        // SAFETY: r < ROWS and x < N, so this is in C.
                        unsafe {
                            let into = c.pointer.add(r * c.stride + x * $lanes);
                            let sum = if add { $add($load(into), *sum) } else { *sum };
                            $store(into, sum);
                        }
                    }
                }
            }
        };
    }

    tile!(
        tile_avx512,
        "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma",
        16,
        _mm512_setzero_ps,
        _mm512_loadu_ps,
        _mm512_set1_ps,
        _mm512_fmadd_ps,
        _mm512_add_ps,
        _mm512_storeu_ps
    );
    tile!(
        tile_avx2,
        "avx2,fma",
        8,
        _mm256_setzero_ps,
        _mm256_loadu_ps,
        _mm256_set1_ps,
        _mm256_fmadd_ps,
        _mm256_add_ps,
        _mm256_storeu_ps
    );
}
