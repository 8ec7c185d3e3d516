//! One chunk of a head's tokens in padded memory, and its gradients.

use super::super::lanes;
use super::operands::{CheckedOperands, Sizes};

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

    pub(super) fn load(&mut self, scan: &CheckedOperands<'_>, task: usize, first: usize) {
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

    pub(super) fn load_dy(
        &mut self,
        scan: &CheckedOperands<'_>,
        task: usize,
        first: usize,
        dy: &[f32],
    ) {
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
    kept(lanes::exp::<false>(g))
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
