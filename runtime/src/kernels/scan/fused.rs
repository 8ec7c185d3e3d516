//! The scans in Rust, f32 on the CPU, in chunks of tokens.
//!
//! A task is one head of a batch item and depends only on the shape, so threads change no bit. Decays are products of
//! factors in [0, 1] or exponentials of sums of gates of one sign, never a quotient and never of a difference, so no
//! strength of gate and no length of time overflows or cancels.
//!
//! Within a chunk of rows i, j with M_ij the decay from j to i, and S the state before it (Yang et al. 2023,
//! section 4; Dao and Gu 2024, section 6):
//!     y_i = p_i Sᵀ q_i + Σ_{j≤i} M_ij (q_i · k_j) u_j        S ← P S + Σ_j M_Cj k_j u_jᵀ

use tch::{Device, Kind, Tensor};

use super::super::ffi::{ByHead, HeadRows};
use super::super::{Isa, ffi};
use super::channel::Channel;
use super::chunk::ChunkGradients;
use super::low_rank::LowRank;
use super::operands::{CheckedOperands, Dense, FusedOperands, ScanRule, Sizes, StateLayout};
use super::scalar::Scalar;
use super::token::{FEW, TokenByToken};
use super::{Result, Scanned};

/// Chunks between two states that a backward pass keeps.
const SEGMENT: usize = 8;

/// Gradients of all operands; q and k by head, not by group.
pub(super) struct Gradients {
    pub(super) q: Tensor,
    pub(super) k: Tensor,
    pub(super) v: Tensor,
    pub(super) g: Tensor,
    pub(super) beta: Option<Tensor>,
    pub(super) low_rank: Option<[Tensor; 2]>,
}

/// A few tokens one after another, more in chunks; states lie as `layout` says.
pub(super) fn forward(
    isa: Isa,
    rule: ScanRule,
    layout: StateLayout,
    chunk: usize,
    operands: FusedOperands<'_>,
    state: Option<&Tensor>,
) -> Result<Scanned> {
    let dense = Dense::from_operands(operands, state)?;
    let scan = dense.scan(isa, rule, chunk, layout)?;
    let Sizes { batch, time, heads, d, e, ep, .. } = scan.sizes;
    let mut y = empty([batch, time, heads, e])?;
    let mut after = empty(layout.sizes([batch, heads, d, e]))?;
    let outs = [
        ByHead { data: ffi::slice_mut(&mut y, &[])?, time },
        ByHead { data: ffi::slice_mut(&mut after, &[])?, time: 1 },
    ];
    ffi::parallel_heads([batch, heads], outs, |task, [mut y, mut after]| {
        let after = after.row(0);
        if (1..=FEW).contains(&time) {
            match scan.before(task) {
                Some(before) => after.copy_from_slice(before),
                None => after.fill(0.0),
            }
            return ffi::run_on(isa, TokenByToken { scan: &scan, task, state: after, y });
        }
        let mut s = scan.start(task);
        let mut chunks = Chunks::new(&scan);
        for first in scan.firsts() {
            chunks.load(&scan, task, first);
            chunks.advance(isa, &mut s, true);
            copy_rows(&mut y, first, scan.rows(first), chunks.y(), ep);
        }
        scan.unpad(&s, after);
    });
    Ok(Scanned { y, state: after })
}

/// The gradients, from zero state.
pub(super) fn backward(
    isa: Isa,
    rule: ScanRule,
    chunk: usize,
    dy: &Tensor,
    operands: FusedOperands<'_>,
) -> Result<Gradients> {
    let dense = Dense::from_operands(operands, None)?;
    let scan = dense.scan(isa, rule, chunk, StateLayout::Keys)?;
    let dy = dy.f_contiguous()?;
    let dy = ffi::slice(&dy)?;
    let Sizes { batch, time, heads, d, e, .. } = scan.sizes;
    let gates = if rule.has_channel_gates() { d } else { 1 };
    let low = if rule == ScanRule::LowRank { d } else { 0 };
    let mut dq = empty([batch, time, heads, d])?;
    let mut dk = empty([batch, time, heads, d])?;
    let mut dv = empty([batch, time, heads, e])?;
    let mut dg = empty([batch, time, heads, gates])?;
    let mut dbeta = empty([batch, time, heads, 1])?;
    let mut da = empty([batch, time, heads, low])?;
    let mut db = empty([batch, time, heads, low])?;
    let outs = [
        ByHead { data: ffi::slice_mut(&mut dq, &[])?, time },
        ByHead { data: ffi::slice_mut(&mut dk, &[])?, time },
        ByHead { data: ffi::slice_mut(&mut dv, &[])?, time },
        ByHead { data: ffi::slice_mut(&mut dg, &[])?, time },
        ByHead { data: ffi::slice_mut(&mut dbeta, &[])?, time },
        ByHead { data: ffi::slice_mut(&mut da, &[])?, time },
        ByHead { data: ffi::slice_mut(&mut db, &[])?, time },
    ];
    ffi::parallel_heads([batch, heads], outs, |task, outs| backward_task(&scan, task, dy, outs));
    let (g, beta) = match rule.has_channel_gates() {
        true => (dg, None),
        false => (dg.f_squeeze_dim(-1)?, Some(dbeta.f_squeeze_dim(-1)?)),
    };
    let low_rank = (rule == ScanRule::LowRank).then_some([da, db]);
    Ok(Gradients { q: dq, k: dk, v: dv, g, beta, low_rank })
}

fn backward_task(scan: &CheckedOperands<'_>, task: usize, dy: &[f32], outs: [HeadRows<'_>; 7]) {
    let Sizes { dp, ep, .. } = scan.sizes;
    let [mut dq, mut dk, mut dv, mut dg, mut dbeta, mut da, mut db] = outs;
    let firsts: Vec<usize> = scan.firsts().collect();
    let size = dp * ep;
    let mut chunks = Chunks::new(scan);
    // Keep a state for each segment; then, from the last segment to the first, one for each of its chunks.
    let mut kept: Vec<Vec<f32>> = Vec::new();
    let mut s = vec![0.0; size];
    for (i, &first) in firsts.iter().enumerate() {
        if i % SEGMENT == 0 {
            kept.push(s.clone());
        }
        // The last segment's states are computed below.
        if i / SEGMENT + 1 < firsts.len().div_ceil(SEGMENT) {
            chunks.load(scan, task, first);
            chunks.advance(scan.isa, &mut s, false);
        }
    }
    let mut ds = vec![0.0; size];
    let mut before = vec![0.0; SEGMENT * size];
    for (segment, firsts) in firsts.chunks(SEGMENT).enumerate().rev() {
        s.copy_from_slice(&kept[segment]);
        for (i, &first) in firsts.iter().enumerate() {
            before[i * size..][..size].copy_from_slice(&s);
            if i + 1 < firsts.len() {
                chunks.load(scan, task, first);
                chunks.advance(scan.isa, &mut s, false);
            }
        }
        for (i, &first) in firsts.iter().enumerate().rev() {
            chunks.load(scan, task, first);
            chunks.load_dy(scan, task, first, dy);
            chunks.back(scan.isa, &before[i * size..][..size], &mut ds);
            let count = scan.rows(first);
            let grads = chunks.gradients();
            copy_rows(&mut dq, first, count, grads.q, dp);
            for t in first..first + count {
                dq.row(t).iter_mut().for_each(|x| *x *= scan.scale);
            }
            copy_rows(&mut dk, first, count, grads.k, dp);
            copy_rows(&mut dv, first, count, grads.v, ep);
            copy_rows(&mut dg, first, count, grads.g, grads.gates_width);
            copy_rows(&mut dbeta, first, count, grads.beta, 1);
            let [a, b] = grads.low_rank;
            copy_rows(&mut da, first, count, a, dp);
            copy_rows(&mut db, first, count, b, dp);
        }
    }
}

/// Copies the first `count` of a chunk's padded rows to row `first` and on.
fn copy_rows(into: &mut HeadRows<'_>, first: usize, count: usize, from: &[f32], padded: usize) {
    for (t, from) in from.chunks(padded.max(1)).take(count).enumerate() {
        let to = into.row(first + t);
        let width = to.len();
        to.copy_from_slice(&from[..width]);
    }
}

/// Uninitialized memory for a result. The caller must write every element.
fn empty<const N: usize>(sizes: [usize; N]) -> Result<Tensor> {
    Ok(Tensor::f_empty(sizes.map(|n| n as i64), (Kind::Float, Device::Cpu))?)
}

enum Chunks {
    Channel(Channel),
    LowRank(LowRank),
    Scalar(Scalar),
}

impl Chunks {
    fn new(scan: &CheckedOperands<'_>) -> Self {
        match scan.rule {
            ScanRule::LowRank => Chunks::LowRank(LowRank::new(scan)),
            ScanRule::Channel => Chunks::Channel(Channel::new(scan)),
            ScanRule::Scalar => Chunks::Scalar(Scalar::new(scan, false)),
            ScanRule::Delta => Chunks::Scalar(Scalar::new(scan, true)),
        }
    }

    fn load(&mut self, scan: &CheckedOperands<'_>, task: usize, first: usize) {
        match self {
            Chunks::Channel(c) => c.tokens.load(scan, task, first),
            Chunks::LowRank(c) => c.load(scan, task, first),
            Chunks::Scalar(c) => c.tokens.load(scan, task, first),
        }
    }

    fn load_dy(&mut self, scan: &CheckedOperands<'_>, task: usize, first: usize, dy: &[f32]) {
        match self {
            Chunks::Channel(c) => c.tokens.load_dy(scan, task, first, dy),
            Chunks::LowRank(c) => c.tokens.load_dy(scan, task, first, dy),
            Chunks::Scalar(c) => c.tokens.load_dy(scan, task, first, dy),
        }
    }

    /// Replaces the state with the one after the chunk; computes y, if requested.
    fn advance(&mut self, isa: Isa, s: &mut [f32], output: bool) {
        ffi::run_on(isa, Advance { chunk: self, s, output });
    }

    fn y(&self) -> &[f32] {
        match self {
            Chunks::Channel(c) => c.y(),
            Chunks::LowRank(c) => c.y(),
            Chunks::Scalar(c) => c.y(),
        }
    }

    /// Every gradient, from the state before the chunk. Turns dS of the state after it into that of the one before.
    fn back(&mut self, isa: Isa, before: &[f32], ds: &mut [f32]) {
        ffi::run_on(isa, Back { chunk: self, before, ds });
    }

    fn gradients(&self) -> ChunkGradients<'_> {
        match self {
            Chunks::Channel(c) => c.gradients(),
            Chunks::LowRank(c) => c.gradients(),
            Chunks::Scalar(c) => c.gradients(),
        }
    }
}

/// Products are kernels of their own; the loops between them also need wide registers.
struct Advance<'a> {
    chunk: &'a mut Chunks,
    s: &'a mut [f32],
    output: bool,
}

impl ffi::Vectorised for Advance<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        match self.chunk {
            Chunks::Channel(c) => c.advance(self.s, self.output),
            Chunks::LowRank(c) => c.advance(self.s, self.output),
            Chunks::Scalar(c) => c.advance(self.s, self.output),
        }
    }
}

struct Back<'a> {
    chunk: &'a mut Chunks,
    before: &'a [f32],
    ds: &'a mut [f32],
}

impl ffi::Vectorised for Back<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        match self.chunk {
            Chunks::Channel(c) => c.back::<FMA>(self.before, self.ds),
            Chunks::LowRank(c) => c.back::<FMA>(self.before, self.ds),
            Chunks::Scalar(c) => c.back(self.before, self.ds),
        }
    }
}
