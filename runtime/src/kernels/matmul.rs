//! Products of f32 matrices on the CPU, of any sizes and strides: A [m, k] and B [k, n] to C [m, n], by tiles of C in
//! registers.
//!
//! Each element of C is one chain of fused multiply-adds over each [`DEPTH`] of k, and these sums are added in order.
//! So the bits depend on neither threads nor registers, nor on the number of rows.

#[cfg(test)]
mod tests;

use std::ops::Range;

use tch::{Device, Kind, Tensor};

use super::dense::PAD;
use super::ffi::{
    self, Axis, Cut, Matrix, MatrixMut, TileSize, Vectorised, multiply_tile, parallel_cuts,
    parallel_parts,
};
use super::lanes::{load, store};
use super::{Isa, KernelError};

/// Sums over k start anew after this many products.
const DEPTH: usize = 256;
/// Rows of A that stay in the second-level cache for all panels of B: 256 KiB.
const BLOCK: usize = 256;
/// The widest rows of B that are read where they are. Those of wider ones lie too far apart for caches and pages.
const WIDE: usize = 1024;
/// Elements of a rearranged B, at most, or those of one [`DEPTH`]: 16 MiB.
const PACKED: usize = 1 << 22;
/// Multiply-adds of a thread, at least, so that waking it pays.
const GRAIN: usize = 1 << 19;

/// Whether there are tiles for this instruction set; libtorch's product otherwise.
pub(super) fn has_tiles(isa: Isa) -> bool {
    TileSize::for_isa(isa).is_some()
}

/// C = A B.
pub(super) fn product(isa: Isa, a: &Tensor, b: &Tensor) -> Result<Tensor, KernelError> {
    let mut c = empty(a, b)?;
    into(isa, a, b, &mut c, false)?;
    Ok(c)
}

/// C += A B.
pub(super) fn add_product(
    isa: Isa,
    c: &mut Tensor,
    a: &Tensor,
    b: &Tensor,
) -> Result<(), KernelError> {
    into(isa, a, b, c, true)
}

/// Rearranges a part of B at a time.
fn into(isa: Isa, a: &Tensor, b: &Tensor, c: &mut Tensor, add: bool) -> Result<(), KernelError> {
    let [k, n] = Matrix::from_tensor(b)?.sizes();
    let tile = tile_size(isa)?;
    let depth = PACKED / n.max(1) / DEPTH * DEPTH;
    if is_read_in_place(tile, Matrix::from_tensor(b)?) || k <= depth.max(DEPTH) {
        return Right::new(isa, b)?.product_into(a, c, add);
    }
    for first in (0..k).step_by(depth.max(DEPTH)) {
        let count = (k - first).min(depth.max(DEPTH)) as i64;
        let right = Right::new(isa, &b.f_narrow(0, first as i64, count)?)?;
        right.product_into(&a.f_narrow(1, first as i64, count)?, c, add || first > 0)?;
    }
    Ok(())
}

fn tile_size(isa: Isa) -> Result<TileSize, KernelError> {
    TileSize::for_isa(isa)
        .ok_or_else(|| KernelError::new(format!("no tiles of products for {isa}")))
}

/// Uninitialised memory for A B.
fn empty(a: &Tensor, b: &Tensor) -> Result<Tensor, KernelError> {
    let (a, b) = (a.size(), b.size());
    match (a.as_slice(), b.as_slice()) {
        ([m, k], [depth, n]) if k == depth => {
            Ok(Tensor::f_empty([*m, *n], (Kind::Float, Device::Cpu))?)
        }
        _ => Err(KernelError::new(format!("a product of shapes {a:?} and {b:?}"))),
    }
}

/// B, for any number of products.
#[derive(Debug)]
pub(super) struct Right {
    isa: Isa,
    tile: TileSize,
    b: Tensor,
    /// B by panels of columns, [k, columns] each, with zeros up to a whole register; if B is not read where it is.
    panels: Option<Tensor>,
}

/// Whether rows are dense, near each other, and whole registers. Narrow panels are faster if their rows are adjacent.
fn is_read_in_place(tile: TileSize, b: Matrix<'_>) -> bool {
    let ([_, n], [row, col]) = (b.sizes(), b.strides());
    col == 1 && row <= WIDE && n.is_multiple_of(tile.lanes) && tile.columns > 2 * tile.lanes
}

impl Right {
    pub(super) fn new(isa: Isa, b: &Tensor) -> Result<Self, KernelError> {
        let tile = tile_size(isa)?;
        let from = Matrix::from_tensor(b)?;
        if is_read_in_place(tile, from) {
            return Ok(Self { isa, tile, b: b.shallow_clone(), panels: None });
        }
        let dense = from.strides().contains(&1);
        let b = if dense { b.shallow_clone() } else { b.f_contiguous()? };
        let from = Matrix::from_tensor(&b)?;
        let [k, n] = from.sizes();
        let size = (k * n.next_multiple_of(tile.lanes)) as i64;
        let mut panels = Tensor::f_empty([size], (Kind::Float, Device::Cpu))?;
        let cut =
            Cut { data: ffi::slice_mut(&mut panels, &[&b])?, chunk: (k * tile.columns).max(1) };
        let count = cut.data.len().div_ceil(cut.chunk);
        parallel_cuts(count, (1 << 15) / cut.chunk, [cut], |panel, [into]| {
            let first = panel * tile.columns;
            let last = n.min(first + tile.columns);
            pack(isa, from.part(0..k, first..last), into);
        });
        Ok(Self { isa, tile, b, panels: Some(panels) })
    }

    /// C = A B.
    pub(super) fn product(&self, a: &Tensor) -> Result<Tensor, KernelError> {
        let mut c = empty(a, &self.b)?;
        self.product_into(a, &mut c, false)?;
        Ok(c)
    }

    fn product_into(&self, a: &Tensor, c: &mut Tensor, add: bool) -> Result<(), KernelError> {
        let Self { isa, tile, b, panels } = self;
        let b = Matrix::from_tensor(b)?;
        let [k, n] = b.sizes();
        let reads = [Some(a), Some(&self.b), panels.as_ref()];
        let reads: Vec<&Tensor> = reads.into_iter().flatten().collect();
        let panels = panels.as_ref().map(ffi::slice).transpose()?;
        let a = Matrix::from_tensor(a)?;
        let [m, depth] = a.sizes();
        if depth != k || c.size() != [m as i64, n as i64] {
            let message = format!("[{m}, {depth}] times [{k}, {n}] into {:?}", c.size());
            return Err(KernelError::new(message));
        }
        let c = ffi::slice_mut(c, &reads)?;
        if k == 0 && !add {
            c.fill(0.0);
        }
        if k == 0 || c.is_empty() {
            return Ok(());
        }
        let product = Product { isa: *isa, tile: *tile, a, b, panels, add };
        let (axis, unit, across) = match m.div_ceil(tile.rows) >= n.div_ceil(tile.columns) {
            true => (Axis::Rows, tile.rows, n),
            false => (Axis::Columns, tile.columns, m),
        };
        parallel_parts(c, n, axis, unit, GRAIN / (unit * across * k), |part, mut c| match axis {
            Axis::Rows => product.part(part, 0, &mut c),
            Axis::Columns => product.part(0..m, part.start, &mut c),
        });
        Ok(())
    }
}

/// Rows of a panel: those of B's columns, then zeros.
fn pack(isa: Isa, b: Matrix<'_>, into: &mut [f32]) {
    let [k, columns] = b.sizes();
    if k == 0 || columns == 0 {
        return;
    }
    let width = into.len() / k;
    if b.strides()[1] == 1 {
        for (i, row) in into.chunks_exact_mut(width).enumerate() {
            let (values, zeros) = row.split_at_mut(columns);
            values.copy_from_slice(b.row(i));
            zeros.fill(0.0);
        }
        return;
    }
    ffi::run_on(isa, Turn { b: b.transposed(), into, width });
}

/// Turns the rows of `b`, [columns, k], into columns of `into`, [k, width], in squares: a square's lines of the caches
/// are read and written once.
struct Turn<'a> {
    b: Matrix<'a>,
    into: &'a mut [f32],
    width: usize,
}

impl Vectorised for Turn<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        let Turn { b, into, width } = self;
        let [columns, k] = b.sizes();
        let squares = [columns / PAD * PAD, k / PAD * PAD];
        for j in (0..squares[0]).step_by(PAD) {
            let from: [&[f32]; PAD] = std::array::from_fn(|i| b.row(j + i));
            for at in (0..squares[1]).step_by(PAD) {
                let square: [[f32; PAD]; PAD] = from.map(|row| load(row, at));
                for i in 0..PAD {
                    let column: [f32; PAD] = square.map(|row| row[i]);
                    store(&mut into[(at + i) * width..], j, &column);
                }
            }
        }
        for (at, row) in into.chunks_exact_mut(width).enumerate() {
            let done = if at < squares[1] { squares[0] } else { 0 };
            for (j, x) in row.iter_mut().enumerate().skip(done) {
                *x = if j < columns { b.at(j, at) } else { 0.0 };
            }
        }
    }
}

/// Rows of A whose columns are dense, as strips of a tile's rows, [k, height] each: in A itself, the rows of a strip
/// would be read from a line of its own for each of k.
struct Strips {
    data: Vec<f32>,
    height: usize,
    depth: usize,
}

impl Strips {
    /// Columns that are read together.
    const TOGETHER: usize = 8;

    /// Empty, if A's columns are dense and its rows are not.
    fn new(a: Matrix<'_>, height: usize) -> Option<Self> {
        let [row, col] = a.strides();
        (row == 1 && col != 1).then(|| Self { data: Vec::new(), height, depth: 0 })
    }

    /// Takes the whole strips of `a`.
    fn fill(&mut self, a: Matrix<'_>) {
        let Self { data, height, depth } = self;
        let [rows, k] = a.sizes();
        *depth = k;
        data.resize((rows / *height * *height * k).max(data.len()), 0.0);
        let a = a.transposed();
        for first in (0..k).step_by(Self::TOGETHER) {
            let columns = first..k.min(first + Self::TOGETHER);
            for (strip, into) in data.chunks_exact_mut(*height * k).take(rows / *height).enumerate()
            {
                for at in columns.clone() {
                    let from = &a.row(at)[strip * *height..][..*height];
                    into[at * *height..][..*height].copy_from_slice(from);
                }
            }
        }
    }

    /// The strip that begins with row `first`.
    fn strip(&self, first: usize) -> Matrix<'_> {
        let Self { data, height, depth } = self;
        let strip = &data[first * depth..][..height * depth];
        Matrix::from_slice(strip, *height).transposed()
    }
}

struct Product<'a> {
    isa: Isa,
    tile: TileSize,
    a: Matrix<'a>,
    b: Matrix<'a>,
    panels: Option<&'a [f32]>,
    add: bool,
}

impl Product<'_> {
    /// Columns from `first` on of B, which begin a panel; rows `depth`, and zeros up to a whole register.
    fn panel(&self, first: usize, depth: Range<usize>) -> Matrix<'_> {
        let [k, n] = self.b.sizes();
        let columns = (n - first).min(self.tile.columns);
        match self.panels {
            None => self.b.part(depth, first..first + columns),
            Some(panels) => {
                let width = columns.next_multiple_of(self.tile.lanes);
                let panel = &panels[first * k..][..width * k];
                Matrix::from_slice(panel, width).part(depth, 0..width)
            }
        }
    }

    /// These rows of C, and its columns from `first` on.
    fn part(&self, rows: Range<usize>, first: usize, c: &mut MatrixMut<'_>) {
        let TileSize { rows: height, columns: width, lanes: _ } = self.tile;
        let k = self.b.sizes()[0];
        let [_, columns] = c.sizes();
        let mut edge = Edge::new();
        let mut strips = Strips::new(self.a, height);
        for top in rows.clone().step_by(BLOCK / height * height) {
            let block = top..rows.end.min(top + BLOCK / height * height);
            for from in (0..k).step_by(DEPTH) {
                let depth = from..k.min(from + DEPTH);
                let add = self.add || from > 0;
                if let Some(strips) = &mut strips {
                    strips.fill(self.a.part(block.clone(), depth.clone()));
                }
                for left in (0..columns).step_by(width) {
                    let b = self.panel(first + left, depth.clone());
                    let across = left..columns.min(left + width);
                    for i in block.clone().step_by(height) {
                        let strip = i..block.end.min(i + height);
                        let a = self.a.part(strip.clone(), depth.clone());
                        let down = strip.start - rows.start..strip.end - rows.start;
                        let mut c = c.part(down, across.clone());
                        if c.sizes() != [height, b.sizes()[1]] {
                            edge.multiply(self.isa, self.tile, a, b, &mut c, add);
                            continue;
                        }
                        let a = strips.as_ref().map_or(a, |strips| strips.strip(i - block.start));
                        multiply_tile(self.isa, a, b, &mut c, add);
                    }
                }
            }
        }
    }
}

/// Memory for a tile that C has only a part of.
struct Edge {
    a: [f32; 8 * DEPTH],
    c: [f32; 8 * 48],
}

impl Edge {
    fn new() -> Self {
        Self { a: [0.0; 8 * DEPTH], c: [0.0; 8 * 48] }
    }

    fn multiply(
        &mut self,
        isa: Isa,
        tile: TileSize,
        a: Matrix<'_>,
        b: Matrix<'_>,
        c: &mut MatrixMut<'_>,
        add: bool,
    ) {
        let ([rows, depth], [_, width]) = (a.sizes(), b.sizes());
        let padded = &mut self.a[..tile.rows * depth];
        for (j, column) in padded.chunks_exact_mut(tile.rows).enumerate() {
            for (i, x) in column.iter_mut().enumerate() {
                *x = if i < rows { a.at(i, j) } else { 0.0 };
            }
        }
        let padded = Matrix::from_slice(padded, tile.rows).transposed();
        let sums = &mut self.c[..tile.rows * width];
        multiply_tile(isa, padded, b, &mut MatrixMut::from_slice(sums, width), false);
        for (i, sums) in sums.chunks_exact(width).take(rows).enumerate() {
            for (x, sum) in c.row(i).iter_mut().zip(sums) {
                *x = if add { *x + sum } else { *sum };
            }
        }
    }
}
