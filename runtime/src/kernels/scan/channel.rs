//! One chunk of a scan in which each key channel decays by its own gate: gated linear attention.
//!
//! Decays are products for each pair of tokens of the chunk, which is short for that reason; a gate's gradient is a sum
//! without cancellation over the pairs that it is between.
//!
//! With p_i and r_j the decays, by channel, from the chunk's start to row i and from row j to its end, and
//! A_ij = Σ_d q_id k_jd M_ijd (Yang et al. 2023, section 4.3):
//!     Y = A V + (p ⊙ Q) S        S ← diag(p_C) S + (r ⊙ K)ᵀ V

use super::super::dense::{add_product, flipped, plain, transpose};
use super::super::lanes::{dot, exp, mul_add};
use super::super::{Isa, ffi};
use super::chunk::{ChunkGradients, Tokens, kept};
use super::operands::{CheckedOperands, Sizes};

pub(super) struct Channel {
    pub(super) tokens: Tokens,
    isa: Isa,
    sizes: Sizes,
    /// p and r, [rows, d], and p ⊙ Q, r ⊙ K.
    since_start: Vec<f32>,
    to_end: Vec<f32>,
    faded_q: Vec<f32>,
    faded_k: Vec<f32>,
    /// [rows, rows]
    scores: Vec<f32>,
    y: Vec<f32>,
    dq: Vec<f32>,
    dk: Vec<f32>,
    dv: Vec<f32>,
    dg: Vec<f32>,
    zeros: Vec<f32>,
}

impl Channel {
    pub(super) fn new(scan: &CheckedOperands<'_>) -> Self {
        let sizes = scan.sizes;
        let Sizes { rows, dp, ep, .. } = sizes;
        let wide = || vec![0.0; rows * dp];
        Self {
            tokens: Tokens::new(sizes, dp),
            isa: scan.isa,
            sizes,
            since_start: wide(),
            to_end: wide(),
            faded_q: wide(),
            faded_k: wide(),
            scores: vec![0.0; rows * rows],
            y: vec![0.0; rows * ep],
            dq: wide(),
            dk: wide(),
            dv: vec![0.0; rows * ep],
            dg: wide(),
            zeros: vec![0.0; rows],
        }
    }

    #[inline(always)]
    fn decays(&mut self) {
        ffi::run_on(
            self.isa,
            Decays {
                gates: &self.tokens.gates,
                since_start: &mut self.since_start,
                to_end: &mut self.to_end,
                width: self.sizes.dp,
            },
        );
        multiply(&mut self.faded_q, &self.tokens.q, &self.since_start);
        multiply(&mut self.faded_k, &self.tokens.k, &self.to_end);
    }

    #[inline(always)]
    fn attend(&mut self) {
        ffi::run_on(
            self.isa,
            Scores {
                q: &self.tokens.q,
                k: &self.tokens.k,
                decay: &self.tokens.decay,
                scores: &mut self.scores,
                width: self.sizes.dp,
                rows: self.sizes.rows,
            },
        );
    }

    #[inline(always)]
    pub(super) fn advance(&mut self, s: &mut [f32], output: bool) {
        let Sizes { rows, dp, ep, .. } = self.sizes;
        self.decays();
        if output {
            self.attend();
            self.y.fill(0.0);
            add_product(self.isa, &mut self.y, plain(&self.faded_q, dp), s, [rows, dp, ep]);
            let scores = plain(&self.scores, rows);
            add_product(self.isa, &mut self.y, scores, &self.tokens.v, [rows, rows, ep]);
        }
        fade(s, &self.since_start[(rows - 1) * dp..], ep);
        add_product(self.isa, s, flipped(&self.faded_k, dp), &self.tokens.v, [dp, rows, ep]);
    }

    pub(super) fn y(&self) -> &[f32] {
        &self.y
    }

    #[inline(always)]
    pub(super) fn back<const FMA: bool>(&mut self, s: &[f32], ds: &mut [f32]) {
        let Sizes { rows, dp, ep, .. } = self.sizes;
        let isa = self.isa;
        self.decays();
        self.attend();
        let end = &self.since_start[(rows - 1) * dp..];
        // The decay from the state before the chunk to the one after contains every gate of the chunk.
        let mut ends = ends::<FMA>(end, s, ds);

        // dV = Aᵀ dY + (r ⊙ K) dS
        self.dv.fill(0.0);
        add_product(isa, &mut self.dv, plain(&self.faded_k, dp), ds, [rows, dp, ep]);
        let scores = flipped(&self.scores, rows);
        add_product(isa, &mut self.dv, scores, &self.tokens.dy, [rows, rows, ep]);

        // dA = dY Vᵀ
        let mut v_t = vec![0.0; rows * ep];
        transpose(isa, &mut v_t, &self.tokens.v, ep);
        let mut da = vec![0.0; rows * rows];
        add_product(isa, &mut da, plain(&self.tokens.dy, ep), &v_t, [rows, ep, rows]);

        // Through S: dQ = p ⊙ (dY Sᵀ), dK = r ⊙ (V dSᵀ)
        let mut turned = vec![0.0; dp * ep];
        transpose(isa, &mut turned, s, ep);
        let keys = [rows, ep, dp];
        through(isa, &mut self.dq, &self.tokens.dy, &turned, &self.since_start, keys);
        transpose(isa, &mut turned, ds, ep);
        through(isa, &mut self.dk, &self.tokens.v, &turned, &self.to_end, keys);

        // dg_t: from the start to i ≥ t, from j < t to the end.
        let mut after = vec![0.0f32; dp];
        for t in (0..rows).rev() {
            let row = t * dp..(t + 1) * dp;
            add_products(&mut after, &self.dq[row.clone()], &self.tokens.q[row.clone()]);
            self.dg[row].copy_from_slice(&after);
        }
        for t in 0..rows {
            let row = t * dp..(t + 1) * dp;
            self.dg[row.clone()].iter_mut().zip(&ends).for_each(|(dg, x)| *dg += x);
            add_products(&mut ends, &self.dk[row.clone()], &self.tokens.k[row]);
        }

        // dS = diag(p_C) dS + (p ⊙ Q)ᵀ dY
        fade(ds, end, ep);
        add_product(isa, ds, flipped(&self.faded_q, dp), &self.tokens.dy, [dp, rows, ep]);

        ffi::run_on(
            isa,
            Pairs {
                q: &self.tokens.q,
                k: &self.tokens.k,
                decay: &self.tokens.decay,
                da: &da,
                dq: &mut self.dq,
                dk: &mut self.dk,
                dg: &mut self.dg,
                width: dp,
                rows,
            },
        );
    }

    pub(super) fn gradients(&self) -> ChunkGradients<'_> {
        ChunkGradients {
            q: &self.dq,
            k: &self.dk,
            v: &self.dv,
            g: &self.dg,
            gates_width: self.sizes.dp,
            beta: &self.zeros,
            low_rank: [&[], &[]],
        }
    }
}

#[inline(always)]
pub(super) fn multiply(into: &mut [f32], a: &[f32], b: &[f32]) {
    into.iter_mut().zip(a.iter().zip(b)).for_each(|(to, (a, b))| *to = a * b);
}

/// C = (A B) ⊙ decay
#[inline(always)]
pub(super) fn through(
    isa: Isa,
    c: &mut [f32],
    a: &[f32],
    b: &[f32],
    decay: &[f32],
    sizes: [usize; 3],
) {
    c.fill(0.0);
    add_product(isa, c, plain(a, sizes[1]), b, sizes);
    c.iter_mut().zip(decay).for_each(|(x, p)| *x *= p);
}

#[inline(always)]
pub(super) fn add_products(into: &mut [f32], a: &[f32], b: &[f32]) {
    into.iter_mut().zip(a.iter().zip(b)).for_each(|(to, (a, b))| *to += a * b);
}

/// diag(p_C) S, [d, e]
#[inline(always)]
pub(super) fn fade(s: &mut [f32], end: &[f32], ep: usize) {
    for (row, p) in s.chunks_exact_mut(ep).zip(end) {
        row.iter_mut().for_each(|x| *x *= p);
    }
}

/// p_C ⊙ Σ_e S ⊙ dS, by channel.
#[inline(always)]
pub(super) fn ends<const FMA: bool>(end: &[f32], s: &[f32], ds: &[f32]) -> Vec<f32> {
    let ep = s.len() / end.len();
    let mut ends = vec![0.0f32; end.len()];
    // A loop: the adapters of iterators would be compiled for narrow registers.
    for d in 0..end.len() {
        ends[d] = end[d] * dot::<FMA>(&s[d * ep..][..ep], &ds[d * ep..][..ep]);
    }
    ends
}

/// Adds to the gates after row j what the pairs with j contributed to each: a gate has those of all later rows.
#[inline(always)]
pub(super) fn sum_between(between: &[f32], sum: &mut [f32], dg: &mut [f32], j: usize) {
    let width = sum.len();
    sum.fill(0.0);
    for i in (j + 1..dg.len() / width).rev() {
        let at = i * width..(i + 1) * width;
        let both = between[at.clone()].iter().zip(&mut dg[at]);
        for (sum, (x, dg)) in sum.iter_mut().zip(both) {
            *sum += x;
            *dg += *sum;
        }
    }
}

/// p and r, from sums of gates: a product of rounded decays would drift over many chunks.
pub(super) struct Decays<'a> {
    pub(super) gates: &'a [f32],
    pub(super) since_start: &'a mut [f32],
    pub(super) to_end: &'a mut [f32],
    pub(super) width: usize,
}

impl ffi::Vectorised for Decays<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        let Decays { gates, since_start, to_end, width } = self;
        let mut sum = vec![0.0f32; width];
        for (to, g) in since_start.chunks_exact_mut(width).zip(gates.chunks_exact(width)) {
            for (to, (sum, g)) in to.iter_mut().zip(sum.iter_mut().zip(g)) {
                *sum += g;
                *to = kept(exp::<FMA>(*sum));
            }
        }
        sum.fill(0.0);
        for (to, g) in to_end.chunks_exact_mut(width).zip(gates.chunks_exact(width)).rev() {
            for (to, (sum, g)) in to.iter_mut().zip(sum.iter_mut().zip(g)) {
                *to = kept(exp::<FMA>(*sum));
                *sum += g;
            }
        }
    }
}

/// A_ij for j ≤ i, 0 above.
struct Scores<'a> {
    q: &'a [f32],
    k: &'a [f32],
    decay: &'a [f32],
    scores: &'a mut [f32],
    width: usize,
    rows: usize,
}

impl ffi::Vectorised for Scores<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        let Scores { q, k, decay, scores, width, rows } = self;
        scores.fill(0.0);
        let mut faded = vec![0.0f32; width];
        for j in 0..rows {
            faded.copy_from_slice(&k[j * width..][..width]);
            for i in j..rows {
                let q = &q[i * width..][..width];
                if i > j {
                    let decay = &decay[i * width..][..width];
                    faded.iter_mut().zip(decay).for_each(|(k, a)| *k *= a);
                }
                scores[i * rows + j] = dot::<FMA>(q, &faded);
            }
        }
    }
}

/// Contributions of dA_ij to q_i, k_j and the gates between.
struct Pairs<'a> {
    q: &'a [f32],
    k: &'a [f32],
    decay: &'a [f32],
    da: &'a [f32],
    dq: &'a mut [f32],
    dk: &'a mut [f32],
    dg: &'a mut [f32],
    width: usize,
    rows: usize,
}

impl ffi::Vectorised for Pairs<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        let Pairs { q, k, decay, da, dq, dk, dg, width, rows } = self;
        let mut m = vec![0.0f32; width];
        let mut between = vec![0.0f32; rows * width]; // contributions of the pair (i, j) to each gate
        let mut sum = vec![0.0f32; width];
        for j in 0..rows {
            m.fill(1.0);
            let k = &k[j * width..][..width];
            let dk = &mut dk[j * width..][..width];
            for i in j..rows {
                let at = i * width..(i + 1) * width;
                if i > j {
                    m.iter_mut().zip(&decay[at.clone()]).for_each(|(m, a)| *m = kept(*m * a));
                }
                let da = da[i * rows + j];
                let (q, dq) = (&q[at.clone()][..width], &mut dq[at.clone()][..width]);
                let between = &mut between[at][..width];
                for c in 0..width {
                    let weight = da * m[c];
                    dq[c] = mul_add::<FMA>(weight, k[c], dq[c]);
                    let dk_c = weight * q[c];
                    dk[c] += dk_c;
                    between[c] = dk_c * k[c];
                }
            }
            sum_between(&between, &mut sum, dg, j);
        }
    }
}
