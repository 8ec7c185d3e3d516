//! Rotary position embedding (Su et al. 2021) of x [b, t, h, d]: pair i of a head turns by (position + t) ·
//! theta^(−2i/dims), or by a frequency that is changed for longer sequences, and is then multiplied by a factor.
//! Channels from `dims` on are copied.
//!
//! Angles are computed in f64 by libm and rounded once, so they depend neither on the platform nor on how a sequence
//! was cut. The reverse rotation uses the negative angle.

pub(crate) mod operands;

use std::collections::BTreeMap;
use std::rc::Rc;

use compiler::plan::{RopeLayout, RopeScaling};
pub use operands::Rotation;
use tch::{Device, Kind, Tensor};

use super::ffi::{self, Block, BlockMut, Rows, RowsMut, Vectorised};
use super::lanes::{load, mul_add, store};
use super::path::Path;
use super::{Isa, KernelError, cuda};

/// y for x, whose tokens are at the given positions: a first one, and how many follow one another from there.
pub fn apply(
    path: Path,
    x: &Tensor,
    positions: &[(i64, i64)],
    rotation: Rotation,
    tables: &mut Tables,
) -> Result<Tensor, KernelError> {
    let size = x.size();
    let [_, time, _, width] = size[..] else {
        return Err(KernelError::new(format!("rope takes [b, t, h, d], got {size:?}")));
    };
    let Rotation { dims, .. } = rotation;
    if dims < 2 || dims % 2 != 0 || dims > width {
        return Err(KernelError::new(format!("rope over {dims} channels of heads of {width}")));
    }
    let count: i64 = positions.iter().map(|(_, count)| count).sum();
    if count != time {
        return Err(KernelError::new(format!("rope of {time} tokens at {count} positions")));
    }
    // The tables of our CUDA kernels are f32 for x in bf16, too.
    let kind = if x.kind() == Kind::BFloat16 { Kind::Float } else { x.kind() };
    let table = tables.get(rotation, positions, kind, x.device())?;
    match path {
        Path::Cuda(_) => {
            let launcher = cuda::launcher(x.device())?;
            cuda::rope::apply(launcher, x, rotation, [&table.cos, &table.sin])
        }
        Path::Fused(isa) => fused(isa, x, rotation, &table),
        Path::Reference(_) => reference(x, rotation, &table),
    }
}

/// Cosines and sines for a range of positions, spread over channels so that y_j = x_j cos_j + x_partner(j) sin_j: sin
/// is negative in the first of each pair.
#[derive(Debug)]
pub struct Table {
    cos: Tensor, // [t, dims]
    sin: Tensor, // [t, dims]
}

/// Positions and their table.
type Kept = (Vec<(i64, i64)>, Rc<Table>);

/// The tables of a plan's rotations, reused while the positions stay the same.
#[derive(Debug, Default)]
pub struct Tables {
    kept: BTreeMap<(u64, i64, bool, Option<String>), Kept>,
}

impl Tables {
    fn get(
        &mut self,
        rotation: Rotation,
        positions: &[(i64, i64)],
        kind: Kind,
        device: Device,
    ) -> Result<Rc<Table>, KernelError> {
        let Rotation { theta, dims, layout, scaling, inverse: _ } = rotation;
        let scaled = (scaling != RopeScaling::Unscaled).then(|| scaling.to_string());
        let key = (theta.to_bits(), dims, layout == RopeLayout::Interleaved, scaled);
        if let Some((kept, table)) = self.kept.get(&key)
            && kept == positions
        {
            return Ok(Rc::clone(table));
        }
        let table = Rc::new(Table::new(rotation, positions, kind, device)?);
        self.kept.insert(key, (positions.to_vec(), Rc::clone(&table)));
        Ok(table)
    }
}

impl Table {
    fn new(
        rotation: Rotation,
        positions: &[(i64, i64)],
        kind: Kind,
        device: Device,
    ) -> Result<Self, KernelError> {
        let Rotation { theta, dims, layout, scaling, inverse: _ } = rotation;
        let (pairs, size) = (dims / 2, scaling.magnitude());
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        let rates = scaling.rates(theta, dims);
        for t in positions.iter().flat_map(|(first, count)| *first..first.saturating_add(*count)) {
            let turned: Vec<(f64, f64)> =
                rates.iter().map(|rate| libm::sincos(t as f64 * rate)).collect();
            for j in 0..dims {
                let (pair, first) = match layout {
                    RopeLayout::Interleaved => (j / 2, j % 2 == 0),
                    RopeLayout::Half => (j % pairs, j < pairs),
                };
                let (s, c) = turned[pair as usize];
                cos.push(size * c);
                sin.push(size * if first { -s } else { s });
            }
        }
        let tensor = |values: &[f64]| -> Result<Tensor, KernelError> {
            let table = Tensor::f_from_slice(values)?.f_reshape([-1, dims])?;
            Ok(table.f_to_kind(kind)?.f_to_device(device)?)
        };
        Ok(Self { cos: tensor(&cos)?, sin: tensor(&sin)? })
    }
}

fn reference(x: &Tensor, rotation: Rotation, table: &Table) -> Result<Tensor, KernelError> {
    let Rotation { dims, layout, inverse, .. } = rotation;
    let width = x.size().last().copied().unwrap_or(dims);
    let head = x.f_narrow(-1, 0, dims)?; // [b, t, h, dims]
    let pairs = match layout {
        RopeLayout::Interleaved => [dims / 2, 2],
        RopeLayout::Half => [2, dims / 2],
    };
    let along = if layout == RopeLayout::Interleaved { -1 } else { -2 };
    let partner =
        head.f_unflatten(-1, pairs.as_slice())?.f_flip([along].as_slice())?.f_flatten(-2, -1)?; // [b, t, h, dims]
    let sin = if inverse { table.sin.f_neg()? } else { table.sin.shallow_clone() };
    // [t, dims] -> [t, 1, dims]: broadcast over batch and heads.
    let turned =
        head.f_mul(&table.cos.f_unsqueeze(1)?)?.f_add(&partner.f_mul(&sin.f_unsqueeze(1)?)?)?;
    if dims == width {
        return Ok(turned);
    }
    Ok(Tensor::f_cat(&[turned, x.f_narrow(-1, dims, width - dims)?], -1)?)
}

/// Time steps per unit of work.
const BLOCK: usize = 32;

fn fused(isa: Isa, x: &Tensor, rotation: Rotation, table: &Table) -> Result<Tensor, KernelError> {
    let size = x.size();
    let x = x.f_flatten(2, 3)?; // [b, t, h·d]
    let mut y = Tensor::f_empty(x.size(), (Kind::Float, x.device()))?;
    let (cos, sin) = (ffi::slice(&table.cos)?, ffi::slice(&table.sin)?);
    let rows_in = Rows::from_tensor(&x)?;
    let mut rows_out = RowsMut::from_tensor(&mut y, &[&x])?;
    let dims = rotation.dims as usize;
    let width = size.last().map_or(dims, |d| *d as usize);
    ffi::parallel_blocks(
        [&mut rows_out],
        BLOCK,
        &mut [],
        0,
        || (),
        |(), block, [mut out], _| {
            let out = &mut out;
            ffi::run_on(isa, Turns { x: rows_in, cos, sin, dims, width, rotation, block, out });
        },
    );
    Ok(y.f_reshape(size)?)
}

/// The tokens of a block, with all their heads.
struct Turns<'a, 'r> {
    x: Rows<'a>,
    /// [t, dims]
    cos: &'a [f32],
    sin: &'a [f32],
    dims: usize,
    width: usize,
    rotation: Rotation,
    block: &'a Block,
    out: &'a mut BlockMut<'r>,
}

impl Vectorised for Turns<'_, '_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        let Turns { x, cos, sin, dims, width, rotation, block, out } = self;
        for t in block.times.clone() {
            let [y] = out.rows::<1>(t);
            let (cos, sin) = (&cos[t * dims..][..dims], &sin[t * dims..][..dims]);
            let turn = Turn { x: x.row(block.batch, t), cos, sin, width, rotation, y };
            turn.run::<FMA, LANES>();
        }
    }
}

/// One token with all its heads.
struct Turn<'a> {
    x: &'a [f32],
    cos: &'a [f32],
    sin: &'a [f32],
    width: usize,
    rotation: Rotation,
    y: &'a mut [f32],
}

impl Turn<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        let Turn { x, cos, sin, width, rotation, y } = self;
        let sign = if rotation.inverse { -1.0 } else { 1.0 };
        let dims = cos.len();
        for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
            y[dims..].copy_from_slice(&x[dims..]);
            match rotation.layout {
                RopeLayout::Interleaved => {
                    let bulk = dims - dims % LANES;
                    for at in (0..bulk).step_by(LANES) {
                        neighbours::<FMA, LANES>(x, cos, sin, sign, y, at);
                    }
                    for at in (bulk..dims).step_by(2) {
                        neighbours::<FMA, 2>(x, cos, sin, sign, y, at);
                    }
                }
                RopeLayout::Half => {
                    let half = dims / 2;
                    let bulk = half - half % LANES;
                    for at in (0..bulk).step_by(LANES) {
                        halves::<FMA, LANES>(x, cos, sin, sign, y, at);
                    }
                    for at in bulk..half {
                        halves::<FMA, 1>(x, cos, sin, sign, y, at);
                    }
                }
            }
        }
    }
}

/// Channels at..at + W. Each channel's partner is its neighbour.
#[inline(always)]
fn neighbours<const FMA: bool, const W: usize>(
    x: &[f32],
    cos: &[f32],
    sin: &[f32],
    sign: f32,
    y: &mut [f32],
    at: usize,
) {
    let (x, cos, sin) = (load::<W>(x, at), load::<W>(cos, at), load::<W>(sin, at));
    let turned: [f32; W] =
        std::array::from_fn(|l| mul_add::<FMA>(x[l], cos[l], x[l ^ 1] * (sign * sin[l])));
    store(y, at, &turned);
}

/// Channels at..at + W. Each channel's partner is half the width further on.
#[inline(always)]
fn halves<const FMA: bool, const W: usize>(
    x: &[f32],
    cos: &[f32],
    sin: &[f32],
    sign: f32,
    y: &mut [f32],
    at: usize,
) {
    let half = cos.len() / 2;
    let (low, high) = (load::<W>(x, at), load::<W>(x, at + half));
    let turn = |x: &[f32; W], partner: &[f32; W], at: usize| -> [f32; W] {
        let (cos, sin) = (load::<W>(cos, at), load::<W>(sin, at));
        std::array::from_fn(|l| mul_add::<FMA>(x[l], cos[l], partner[l] * (sign * sin[l])))
    };
    let turned = [turn(&low, &high, at), turn(&high, &low, at + half)];
    store(y, at, &turned[0]);
    store(y, at + half, &turned[1]);
}
