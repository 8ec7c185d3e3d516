//! A scan of a few tokens, one after another, as in decoding: of a chunk they would leave most rows empty.
//!
//! With α the decay, z = α ⊙ Sᵀ k for the delta rule, w = Sᵀ a for the low-rank one, and u the value that is written
//! (v, β v, or β (v − z)):
//!     S ← α S + k uᵀ (+ b wᵀ)        y = Sᵀ q

use super::super::ffi::{HeadRows, Vectorised};
use super::super::lanes::{SUMS, load, mul_add, store, total};
use super::chunk::decay;
use super::operands::{CheckedOperands, ScanRule, Sizes, StateLayout};

/// Tokens up to which a pass over the state for each is faster than a chunk of them.
pub(super) const FEW: usize = 4;

/// All tokens of a head.
pub(super) struct TokenByToken<'a, 'y> {
    pub(super) scan: &'a CheckedOperands<'a>,
    pub(super) task: usize,
    /// The state before the first token; becomes the one after the last.
    pub(super) state: &'a mut [f32],
    /// [time, e]
    pub(super) y: HeadRows<'y>,
}

impl Vectorised for TokenByToken<'_, '_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(mut self) {
        let Sizes { time, d, e, .. } = self.scan.sizes;
        let mut values =
            Values { q: vec![0.0; d], decay: vec![0.0; d], u: vec![0.0; e], w: vec![0.0; e] };
        for t in 0..time {
            let token = Token::new(self.scan, self.task, t);
            values.load::<FMA>(self.scan, &token, self.state);
            match self.scan.layout {
                StateLayout::Keys => by_keys::<FMA>(&token, &values, self.state, self.y.row(t)),
                StateLayout::Values => by_values::<FMA>(&token, &values, self.state, self.y.row(t)),
            }
        }
    }
}

/// A token's operands for one head.
struct Token<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    /// Of each key channel, or one for all.
    gates: &'a [f32],
    beta: f32,
    /// a and b.
    low_rank: Option<[&'a [f32]; 2]>,
}

impl<'a> Token<'a> {
    fn new(scan: &CheckedOperands<'a>, task: usize, t: usize) -> Self {
        let Sizes { time, heads, groups, d, e, .. } = scan.sizes;
        let (batch, head) = (task / heads, task % heads);
        let row = (batch * time + t) * heads + head;
        let key = (batch * time + t) * groups + head / (heads / groups);
        let gates = if scan.rule.has_channel_gates() { d } else { 1 };
        let slice = |x: &'a [f32], row: usize, width: usize| &x[row * width..][..width];
        Token {
            q: slice(scan.q, key, d),
            k: slice(scan.k, key, d),
            v: slice(scan.v, row, e),
            gates: slice(scan.g, row, gates),
            beta: scan.beta.map_or(1.0, |beta| beta[row]),
            low_rank: scan.low_rank.map(|x| x.map(|x| slice(x, row, d))),
        }
    }
}

/// What follows from a token's operands and the state before it.
struct Values {
    /// Queries times their factor.
    q: Vec<f32>,
    /// Of each key channel.
    decay: Vec<f32>,
    u: Vec<f32>,
    w: Vec<f32>,
}

impl Values {
    #[inline(always)]
    fn load<const FMA: bool>(
        &mut self,
        scan: &CheckedOperands<'_>,
        token: &Token<'_>,
        state: &[f32],
    ) {
        self.q.iter_mut().zip(token.q).for_each(|(to, q)| *to = scan.scale * q);
        match token.gates {
            [one] => self.decay.fill(decay(*one)),
            gates => self.decay.iter_mut().zip(gates).for_each(|(to, g)| *to = decay(*g)),
        }
        match (scan.rule, token.low_rank) {
            (ScanRule::Delta, _) => {
                read::<FMA>(&mut self.w, token.k, state);
                let alpha = self.decay.first().copied().unwrap_or(1.0);
                let from = token.v.iter().zip(&self.w);
                let errors = self.u.iter_mut().zip(from);
                errors.for_each(|(u, (v, w))| *u = token.beta * (v - alpha * w));
            }
            (ScanRule::Scalar, _) => {
                self.u.iter_mut().zip(token.v).for_each(|(u, v)| *u = token.beta * v);
            }
            (ScanRule::Channel | ScanRule::LowRank, low_rank) => {
                self.u.copy_from_slice(token.v);
                if let Some([a, _]) = low_rank {
                    read::<FMA>(&mut self.w, a, state);
                }
            }
        }
    }
}

/// Sᵀ x, S [d, e].
#[inline(always)]
fn read<const FMA: bool>(into: &mut [f32], x: &[f32], state: &[f32]) {
    let width = into.len();
    in_tiles(width, Read::<FMA> { into, x, state });
}

/// Work on some columns of a state.
trait Columns {
    fn tile<const N: usize>(&mut self, first: usize);
}

/// All columns, by tiles. A column's result does not depend on the width of its tile.
#[inline(always)]
fn in_tiles(width: usize, mut columns: impl Columns) {
    let mut first = 0;
    while first + 64 <= width {
        columns.tile::<64>(first);
        first += 64;
    }
    while first + 16 <= width {
        columns.tile::<16>(first);
        first += 16;
    }
    while first < width {
        columns.tile::<1>(first);
        first += 1;
    }
}

struct Read<'a, const FMA: bool> {
    into: &'a mut [f32],
    x: &'a [f32],
    state: &'a [f32],
}

impl<const FMA: bool> Columns for Read<'_, FMA> {
    #[inline(always)]
    fn tile<const N: usize>(&mut self, first: usize) {
        let mut sums = [0.0; N];
        for (x, row) in self.x.iter().zip(self.state.chunks_exact(self.into.len())) {
            let row: [f32; N] = load(row, first);
            for l in 0..N {
                sums[l] = mul_add::<FMA>(*x, row[l], sums[l]);
            }
        }
        store(self.into, first, &sums);
    }
}

#[inline(always)]
fn by_keys<const FMA: bool>(token: &Token<'_>, values: &Values, state: &mut [f32], y: &mut [f32]) {
    let width = y.len();
    let b = token.low_rank.map(|[_, b]| b);
    match b {
        Some(b) => in_tiles(width, Write::<FMA, true> { token, values, b, state, y }),
        None => in_tiles(width, Write::<FMA, false> { token, values, b: token.k, state, y }),
    }
}

struct Write<'a, const FMA: bool, const LOW_RANK: bool> {
    token: &'a Token<'a>,
    values: &'a Values,
    b: &'a [f32],
    state: &'a mut [f32],
    y: &'a mut [f32],
}

impl<const FMA: bool, const LOW_RANK: bool> Columns for Write<'_, FMA, LOW_RANK> {
    #[inline(always)]
    fn tile<const N: usize>(&mut self, first: usize) {
        let Values { q, decay, u, w } = self.values;
        let (u, w): ([f32; N], [f32; N]) = (load(u, first), load(w, first));
        let mut y = [0.0; N];
        let factors = q.iter().zip(decay).zip(self.token.k).zip(self.b);
        for (row, (((q, decay), k), b)) in self.state.chunks_exact_mut(self.y.len()).zip(factors) {
            let mut s: [f32; N] = load(row, first);
            for l in 0..N {
                s[l] = mul_add::<FMA>(*k, u[l], decay * s[l]);
                if LOW_RANK {
                    s[l] = mul_add::<FMA>(*b, w[l], s[l]);
                }
                y[l] = mul_add::<FMA>(*q, s[l], y[l]);
            }
            store(row, first, &s);
        }
        store(self.y, first, &y);
    }
}

/// S [e, d] of the scalar rule.
#[inline(always)]
fn by_values<const FMA: bool>(
    token: &Token<'_>,
    values: &Values,
    state: &mut [f32],
    y: &mut [f32],
) {
    let Values { q, decay, u, .. } = values;
    let alpha = decay.first().copied().unwrap_or(1.0);
    for ((row, u), y) in state.chunks_exact_mut(q.len()).zip(u).zip(y) {
        let mut sums = [0.0; SUMS];
        let bulk = row.len() / SUMS * SUMS;
        for first in (0..bulk).step_by(SUMS) {
            let (q, k): ([f32; SUMS], [f32; SUMS]) = (load(q, first), load(token.k, first));
            let mut s: [f32; SUMS] = load(row, first);
            for l in 0..SUMS {
                s[l] = mul_add::<FMA>(k[l], *u, alpha * s[l]);
                sums[l] = mul_add::<FMA>(q[l], s[l], sums[l]);
            }
            store(row, first, &s);
        }
        let rest = row[bulk..].iter_mut().zip(&q[bulk..]).zip(&token.k[bulk..]);
        for (sum, ((s, q), k)) in sums.iter_mut().zip(rest) {
            *s = mul_add::<FMA>(*k, *u, alpha * *s);
            *sum = mul_add::<FMA>(*q, *s, *sum);
        }
        *y = total(sums);
    }
}
