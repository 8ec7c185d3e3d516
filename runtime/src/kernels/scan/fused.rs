//! The scans in Rust, f32 on the CPU, in chunks of tokens.
//!
//! In: operands [b, t, h, …], a rule, the length of a chunk. Out: y and the last state, or every gradient. Must stay
//! true: a task is one head of a batch item and depends only on the shape, so threads change no bit; decays are
//! products of factors in [0, 1] or exponentials of sums of gates of one sign, never a quotient and never of a
//! difference, so no strength of gate and no length of time overflows or cancels; the backward pass keeps one state for
//! each [`SEGMENT`] chunks and recomputes the others.
//!
//! Within a chunk of rows i, j with M_ij the decay from j to i, and S the state before it (Yang et al. 2023,
//! section 4; Dao and Gu 2024, section 6):
//!     y_i = p_i Sᵀ q_i + Σ_{j≤i} M_ij (q_i · k_j) u_j        S ← P S + Σ_j M_Cj k_j u_jᵀ

use std::borrow::Cow;

use tch::{Device, Kind, Tensor};

use super::super::dense::{PAD, transpose};
use super::super::ffi::{ByHead, HeadRows};
use super::super::{Isa, KernelError, ffi};
use super::channel::Channel;
use super::low_rank::LowRank;
use super::scalar::Scalar;
use super::token::{FEW, StateLayout, TokenByToken};
use super::{Result, Scanned};

/// Chunks between two states that a backward pass keeps.
const SEGMENT: usize = 8;

/// How the state decays, and which value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// Each key channel by its own gate.
    Channel,
    /// Each key channel by its own gate; a product of the state is written, too.
    LowRank,
    /// The whole state by one gate.
    Scalar,
    /// The whole state by one gate; writes the error of the state's prediction for the key, not the value.
    Delta,
}

impl Rule {
    /// Whether gates are by channel; else there is one per head and token, and a factor of its value.
    pub(super) fn has_channel_gates(self) -> bool {
        match self {
            Rule::Channel | Rule::LowRank => true,
            Rule::Scalar | Rule::Delta => false,
        }
    }
}

/// q and k [b, t, groups, d], v [b, t, h, e], g [b, t, h, d] (channel, low rank) or [b, t, h]; S [b, h, d, e].
#[derive(Clone, Copy)]
pub(super) struct Operands<'a> {
    pub(super) q: &'a Tensor,
    pub(super) k: &'a Tensor,
    pub(super) v: &'a Tensor,
    pub(super) g: &'a Tensor,
    /// [b, t, h], the factor of values; none for channel gates.
    pub(super) beta: Option<&'a Tensor>,
    /// a and b [b, t, h, d] of the low-rank rule.
    pub(super) low_rank: Option<[&'a Tensor; 2]>,
    /// Factor of q.
    pub(super) scale: f32,
}

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
    rule: Rule,
    layout: StateLayout,
    chunk: usize,
    operands: Operands<'_>,
    state: Option<&Tensor>,
) -> Result<Scanned> {
    let dense = Dense::from_operands(operands, state)?;
    let scan = dense.scan(isa, rule, chunk, layout)?;
    let Sizes { batch, time, heads, d, e, ep, .. } = scan.sizes;
    let mut y = empty([batch, time, heads, e])?;
    let mut after = empty(layout.of([batch, heads, d, e]))?;
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
        let mut chunks = scan.chunks();
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
    rule: Rule,
    chunk: usize,
    dy: &Tensor,
    operands: Operands<'_>,
) -> Result<Gradients> {
    let dense = Dense::from_operands(operands, None)?;
    let scan = dense.scan(isa, rule, chunk, StateLayout::Keys)?;
    let dy = dy.f_contiguous()?;
    let dy = ffi::slice(&dy)?;
    let Sizes { batch, time, heads, d, e, .. } = scan.sizes;
    let gates = if rule.has_channel_gates() { d } else { 1 };
    let low = if rule == Rule::LowRank { d } else { 0 };
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
    let low_rank = (rule == Rule::LowRank).then_some([da, db]);
    Ok(Gradients { q: dq, k: dk, v: dv, g, beta, low_rank })
}

fn backward_task(scan: &Scan<'_>, task: usize, dy: &[f32], outs: [HeadRows<'_>; 7]) {
    let Sizes { dp, ep, .. } = scan.sizes;
    let [mut dq, mut dk, mut dv, mut dg, mut dbeta, mut da, mut db] = outs;
    let firsts: Vec<usize> = scan.firsts().collect();
    let size = dp * ep;
    let mut chunks = scan.chunks();
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

#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) batch: usize,
    pub(super) time: usize,
    pub(super) heads: usize,
    pub(super) groups: usize,
    pub(super) d: usize,
    pub(super) e: usize,
    /// Padded width.
    pub(super) dp: usize,
    pub(super) ep: usize,
    /// Tokens per chunk, and its rows, padded.
    pub(super) chunk: usize,
    pub(super) rows: usize,
}

/// Operands in newly allocated dense memory.
struct Dense {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Option<Tensor>,
    low_rank: Option<[Tensor; 2]>,
    state: Option<Tensor>,
    scale: f32,
}

impl Dense {
    fn from_operands(operands: Operands<'_>, state: Option<&Tensor>) -> Result<Self> {
        let Operands { q, k, v, g, beta, low_rank, scale } = operands;
        let low_rank = match low_rank {
            Some([a, b]) => Some([a.f_contiguous()?, b.f_contiguous()?]),
            None => None,
        };
        Ok(Self {
            q: q.f_contiguous()?,
            k: k.f_contiguous()?,
            v: v.f_contiguous()?,
            g: g.f_contiguous()?,
            beta: beta.map(Tensor::f_contiguous).transpose()?,
            low_rank,
            state: state.map(Tensor::f_contiguous).transpose()?,
            scale,
        })
    }

    fn scan(&self, isa: Isa, rule: Rule, chunk: usize, layout: StateLayout) -> Result<Scan<'_>> {
        let [b, t, groups, d] = super::four("q", &self.q)?;
        let [_, _, h, e] = super::four("v", &self.v)?;
        let expect = |what: &str, x: &Tensor, want: &[i64]| match x.size() == want {
            true => Ok(()),
            false => Err(KernelError::new(format!(
                "a scan's {what} of shape {:?}, expected {want:?}",
                x.size()
            ))),
        };
        expect("k", &self.k, &[b, t, groups, d])?;
        expect("v", &self.v, &[b, t, h, e])?;
        let (channels, per_head) = ([b, t, h, d], [b, t, h]);
        let gates = if rule.has_channel_gates() { &channels[..] } else { &per_head };
        expect("g", &self.g, gates)?;
        match (rule.has_channel_gates(), &self.beta) {
            (true, None) => {}
            (false, Some(beta)) => expect("beta", beta, &per_head)?,
            (true, Some(_)) | (false, None) => {
                return Err(KernelError::new(format!("a {rule:?} scan and its beta")));
            }
        }
        match (rule == Rule::LowRank, &self.low_rank) {
            (true, Some([x, y])) => {
                expect("a", x, &channels)?;
                expect("b", y, &channels)?;
            }
            (false, None) => {}
            (true, None) | (false, Some(_)) => {
                return Err(KernelError::new(format!("a {rule:?} scan and its a and b")));
            }
        }
        if let Some(state) = &self.state {
            expect("state", state, &layout.of([b, h, d, e]))?;
        }
        if layout == StateLayout::Values && rule != Rule::Scalar {
            return Err(KernelError::new(format!("a {rule:?} scan of states by value")));
        }
        if groups == 0 || h % groups != 0 || chunk == 0 {
            return Err(KernelError::new(format!("{h} heads over {groups} groups")));
        }
        let size = |n: i64| n as usize;
        let sizes = Sizes {
            batch: size(b),
            time: size(t),
            heads: size(h),
            groups: size(groups),
            d: size(d),
            e: size(e),
            dp: size(d).next_multiple_of(PAD),
            ep: size(e).next_multiple_of(PAD),
            chunk,
            rows: chunk.next_multiple_of(PAD),
        };
        Ok(Scan {
            isa,
            rule,
            layout,
            sizes,
            scale: self.scale,
            q: ffi::slice(&self.q)?,
            k: ffi::slice(&self.k)?,
            v: ffi::slice(&self.v)?,
            g: ffi::slice(&self.g)?,
            beta: self.beta.as_ref().map(ffi::slice).transpose()?,
            low_rank: match &self.low_rank {
                Some([a, b]) => Some([ffi::slice(a)?, ffi::slice(b)?]),
                None => None,
            },
            state: self.state.as_ref().map(ffi::slice).transpose()?,
        })
    }
}

/// Checked operands, for all tasks to read.
pub(super) struct Scan<'a> {
    pub(super) isa: Isa,
    pub(super) rule: Rule,
    pub(super) layout: StateLayout,
    pub(super) sizes: Sizes,
    pub(super) scale: f32,
    pub(super) q: &'a [f32],
    pub(super) k: &'a [f32],
    pub(super) v: &'a [f32],
    pub(super) g: &'a [f32],
    pub(super) beta: Option<&'a [f32]>,
    pub(super) low_rank: Option<[&'a [f32]; 2]>,
    state: Option<&'a [f32]>,
}

impl Scan<'_> {
    fn firsts(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.sizes.time).step_by(self.sizes.chunk)
    }

    /// Number of tokens in the chunk that starts there.
    fn rows(&self, first: usize) -> usize {
        self.sizes.chunk.min(self.sizes.time - first)
    }

    /// The given state of a head.
    fn before(&self, task: usize) -> Option<&[f32]> {
        let Sizes { d, e, .. } = self.sizes;
        self.state.map(|state| &state[task * d * e..][..d * e])
    }

    /// The width of a state's rows in memory, and padded.
    fn widths(&self) -> [usize; 2] {
        let Sizes { d, e, dp, ep, .. } = self.sizes;
        match self.layout {
            StateLayout::Keys => [e, ep],
            StateLayout::Values => [d, dp],
        }
    }

    /// The state before the first token, [d, e] padded.
    fn start(&self, task: usize) -> Vec<f32> {
        let ([width, padded], Sizes { dp, ep, .. }) = (self.widths(), self.sizes);
        let mut s = vec![0.0; dp * ep];
        let Some(before) = self.before(task) else { return s };
        for (to, from) in s.chunks_exact_mut(padded).zip(before.chunks_exact(width)) {
            to[..width].copy_from_slice(from);
        }
        match self.layout {
            StateLayout::Keys => s,
            StateLayout::Values => self.turned(&s, dp),
        }
    }

    /// The state [d, e] padded, as it lies in memory.
    fn unpad(&self, s: &[f32], into: &mut [f32]) {
        let [width, padded] = self.widths();
        let s = match self.layout {
            StateLayout::Keys => Cow::Borrowed(s),
            StateLayout::Values => Cow::Owned(self.turned(s, self.sizes.ep)),
        };
        for (to, from) in into.chunks_exact_mut(width).zip(s.chunks_exact(padded)) {
            to.copy_from_slice(&from[..width]);
        }
    }

    /// The transpose of a padded state with rows of `width`.
    fn turned(&self, s: &[f32], width: usize) -> Vec<f32> {
        let mut turned = vec![0.0; s.len()];
        transpose(self.isa, &mut turned, s, width);
        turned
    }

    /// A chunk's rows of a and b, padded with zeros.
    pub(super) fn load_low_rank(&self, task: usize, first: usize, a: &mut [f32], b: &mut [f32]) {
        let Sizes { time, heads, d, dp, .. } = self.sizes;
        let (batch, head) = (task / heads, task % heads);
        let count = self.rows(first);
        for (from, to) in self.low_rank.iter().flatten().zip([a, b]) {
            to[count * dp..].fill(0.0);
            for t in 0..count {
                let at = ((batch * time + first + t) * heads + head) * d;
                to[t * dp..][..d].copy_from_slice(&from[at..][..d]);
            }
        }
    }

    fn chunks(&self) -> Chunks {
        match self.rule {
            Rule::LowRank => Chunks::LowRank(LowRank::new(self)),
            Rule::Channel => Chunks::Channel(Channel::new(self)),
            Rule::Scalar => Chunks::Scalar(Scalar::new(self, false)),
            Rule::Delta => Chunks::Scalar(Scalar::new(self, true)),
        }
    }
}

/// One chunk's operands, padded with rows and columns of zeros (and gates of 1).
pub(super) struct Tokens {
    pub(super) q: Vec<f32>,
    pub(super) k: Vec<f32>,
    pub(super) v: Vec<f32>,
    /// Per channel, or one per row.
    pub(super) gates: Vec<f32>,
    /// exp g
    pub(super) decay: Vec<f32>,
    pub(super) beta: Vec<f32>,
    pub(super) dy: Vec<f32>,
}

impl Tokens {
    pub(super) fn new(sizes: Sizes, gates: usize) -> Self {
        let Sizes { rows, dp, ep, .. } = sizes;
        Self {
            q: vec![0.0; rows * dp],
            k: vec![0.0; rows * dp],
            v: vec![0.0; rows * ep],
            gates: vec![0.0; rows * gates],
            decay: vec![1.0; rows * gates],
            beta: vec![0.0; rows],
            dy: vec![0.0; rows * ep],
        }
    }

    pub(super) fn load(&mut self, scan: &Scan<'_>, task: usize, first: usize) {
        let Sizes { time, heads, groups, d, e, dp, ep, .. } = scan.sizes;
        let (batch, head) = (task / heads, task % heads);
        let group = head / (heads / groups);
        let count = scan.rows(first);
        let token = |t: usize| batch * time + first + t;
        let gates = self.decay.len() / self.beta.len();
        self.q[count * dp..].fill(0.0);
        self.k[count * dp..].fill(0.0);
        self.v[count * ep..].fill(0.0);
        self.gates[count * gates..].fill(0.0);
        self.beta[count..].fill(0.0);
        for t in 0..count {
            let key = (token(t) * groups + group) * d;
            let value = token(t) * heads + head;
            let scaled = self.q[t * dp..][..d].iter_mut().zip(&scan.q[key..][..d]);
            scaled.for_each(|(to, from)| *to = scan.scale * from);
            self.k[t * dp..][..d].copy_from_slice(&scan.k[key..][..d]);
            self.v[t * ep..][..e].copy_from_slice(&scan.v[value * e..][..e]);
            if let Some(beta) = scan.beta {
                self.beta[t] = beta[value];
            }
            let width = if gates == 1 { 1 } else { d };
            self.gates[t * gates..][..width].copy_from_slice(&scan.g[value * width..][..width]);
        }
        self.decay.iter_mut().zip(&self.gates).for_each(|(to, g)| *to = decay(*g));
    }

    pub(super) fn load_dy(&mut self, scan: &Scan<'_>, task: usize, first: usize, dy: &[f32]) {
        let Sizes { time, heads, e, ep, .. } = scan.sizes;
        let (batch, head) = (task / heads, task % heads);
        let count = scan.rows(first);
        self.dy[count * ep..].fill(0.0);
        for t in 0..count {
            let at = ((batch * time + first + t) * heads + head) * e;
            self.dy[t * ep..][..e].copy_from_slice(&dy[at..][..e]);
        }
    }
}

/// Decays below this are set to 0, so that products stay out of the slow subnormal range.
const FORGOTTEN: f32 = 1e-30;

/// The decay for a sum of gates.
#[inline(always)]
pub(super) fn decay(g: f32) -> f32 {
    kept(super::super::lanes::exp::<false>(g))
}

/// The decay, or 0 where it no longer matters. NaN stays NaN.
#[inline(always)]
pub(super) fn kept(x: f32) -> f32 {
    if x < FORGOTTEN { 0.0 } else { x }
}

/// Gradients of one chunk, padded.
pub(super) struct ChunkGradients<'a> {
    pub(super) q: &'a [f32],
    pub(super) k: &'a [f32],
    pub(super) v: &'a [f32],
    pub(super) g: &'a [f32],
    pub(super) gates_width: usize,
    pub(super) beta: &'a [f32],
    /// Of a and b; empty for other rules.
    pub(super) low_rank: [&'a [f32]; 2],
}

enum Chunks {
    Channel(Channel),
    LowRank(LowRank),
    Scalar(Scalar),
}

impl Chunks {
    fn load(&mut self, scan: &Scan<'_>, task: usize, first: usize) {
        match self {
            Chunks::Channel(c) => c.tokens.load(scan, task, first),
            Chunks::LowRank(c) => c.load(scan, task, first),
            Chunks::Scalar(c) => c.tokens.load(scan, task, first),
        }
    }

    fn load_dy(&mut self, scan: &Scan<'_>, task: usize, first: usize, dy: &[f32]) {
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
