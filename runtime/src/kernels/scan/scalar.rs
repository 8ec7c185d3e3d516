//! One chunk of a scan with one scalar decay per token: Mamba2's, and the gated delta rule's.
//!
//! M_ij, the decay from row j to row i, is a running product within the chunk, else an exponential; gates' gradients
//! are f64 sums over pairs, so cancelling terms cancel exactly.
//!
//! With p_i the decay from the chunk's start to row i, r_j that from row j to its end, A = (Q Kᵀ) ⊙ M:
//!     Y = A U + p ⊙ (Q S)        S ← p_C S + (r ⊙ K)ᵀ U
//! where U = β ⊙ V (β being Mamba2's dt), or for the delta rule (Yang et al. 2024, "Gated Delta Networks", section 3.3)
//! the solution of
//!     (I + L) U = β ⊙ (V − Z),  Z = p ⊙ (K S),  L = strictly lower part of β ⊙ (K Kᵀ) ⊙ M

use super::super::Isa;
use super::super::dense::{PAD, add_product, flipped, plain, transpose};
use super::chunk::{ChunkGradients, Tokens, decay, kept};
use super::operands::{CheckedOperands, Sizes};

pub(super) struct Scalar {
    pub(super) tokens: Tokens,
    isa: Isa,
    sizes: Sizes,
    delta: bool,
    /// p and r, [rows]
    since_start: Vec<f32>,
    to_end: Vec<f32>,
    /// [rows, rows]
    between: Vec<f32>,
    scores: Vec<f32>,
    overlap: Vec<f32>,
    lower: Vec<f32>,
    /// [rows, e]: U and Z.
    u: Vec<f32>,
    z: Vec<f32>,
    y: Vec<f32>,
    /// [d, rows], the keys' transpose.
    keys: Vec<f32>,
    dq: Vec<f32>,
    dk: Vec<f32>,
    dv: Vec<f32>,
    dg: Vec<f32>,
    dbeta: Vec<f32>,
}

/// The terms of a gate's gradient: pairs (i, j) that it is between.
struct GateTerms {
    /// As differences: +x at i, −x at j.
    pairs: Vec<f64>,
    /// From the chunk's start to i.
    from_start: Vec<f64>,
    /// From j to the chunk's end.
    until_end: Vec<f64>,
}

impl GateTerms {
    fn new(rows: usize) -> Self {
        Self { pairs: vec![0.0; rows + 1], from_start: vec![0.0; rows], until_end: vec![0.0; rows] }
    }
}

impl Scalar {
    pub(super) fn new(scan: &CheckedOperands<'_>, delta: bool) -> Self {
        let sizes = scan.sizes;
        let Sizes { rows, dp, ep, .. } = sizes;
        let square = || vec![0.0; rows * rows];
        Self {
            tokens: Tokens::new(sizes, 1),
            isa: scan.isa,
            sizes,
            delta,
            since_start: vec![0.0; rows],
            to_end: vec![0.0; rows],
            between: square(),
            scores: square(),
            overlap: square(),
            lower: square(),
            u: vec![0.0; rows * ep],
            z: vec![0.0; rows * ep],
            y: vec![0.0; rows * ep],
            keys: vec![0.0; rows * dp],
            dq: vec![0.0; rows * dp],
            dk: vec![0.0; rows * dp],
            dv: vec![0.0; rows * ep],
            dg: vec![0.0; rows],
            dbeta: vec![0.0; rows],
        }
    }

    /// M, p, r, and Kᵀ.
    #[inline(always)]
    fn decays(&mut self) {
        let Sizes { rows, dp, .. } = self.sizes;
        let mut sum = 0.0;
        for (to, g) in self.since_start.iter_mut().zip(&self.tokens.gates) {
            sum += f64::from(*g);
            *to = decay(sum as f32);
        }
        let mut sum = 0.0;
        for (to, g) in self.to_end.iter_mut().zip(&self.tokens.gates).rev() {
            *to = decay(sum as f32);
            sum += f64::from(*g);
        }
        self.between.fill(0.0);
        for i in 0..rows {
            let a = self.tokens.decay[i];
            let (above, row) = self.between.split_at_mut(i * rows);
            let row = &mut row[..rows];
            if i > 0 {
                let above = &above[(i - 1) * rows..];
                row[..i].iter_mut().zip(above).for_each(|(to, m)| *to = kept(m * a));
            }
            row[i] = 1.0;
        }
        transpose(self.isa, &mut self.keys, &self.tokens.k, dp);
    }

    /// Computes U, and for the delta rule everything that it needs.
    #[inline(always)]
    fn values(&mut self, s: &[f32]) {
        let Sizes { rows, dp, ep, .. } = self.sizes;
        if !self.delta {
            self.u.copy_from_slice(&self.tokens.v);
            scale_rows(&mut self.u, &self.tokens.beta, ep);
            return;
        }
        // Z = p ⊙ (K S)
        self.z.fill(0.0);
        add_product(self.isa, &mut self.z, plain(&self.tokens.k, dp), s, [rows, dp, ep]);
        scale_rows(&mut self.z, &self.since_start, ep);
        // L
        self.overlap.fill(0.0);
        let k = plain(&self.tokens.k, dp);
        add_product(self.isa, &mut self.overlap, k, &self.keys, [rows, dp, rows]);
        for i in 0..rows {
            let row = i * rows..(i + 1) * rows;
            let beta = self.tokens.beta[i];
            let from = self.overlap[row.clone()].iter_mut().zip(&self.between[row.clone()]);
            for (j, (to, (kk, m))) in self.lower[row].iter_mut().zip(from).enumerate() {
                *kk = if j < i { *kk * m } else { 0.0 };
                *to = beta * *kk;
            }
        }
        // (I + L) U = β ⊙ (V − Z)
        for (i, u) in self.u.chunks_exact_mut(ep).enumerate() {
            let beta = self.tokens.beta[i];
            let from = self.tokens.v[i * ep..].iter().zip(&self.z[i * ep..]);
            u.iter_mut().zip(from).for_each(|(u, (v, z))| *u = beta * (v - z));
        }
        solve(self.isa, &self.lower, &mut self.u, rows, ep);
    }

    /// A = (Q Kᵀ) ⊙ M.
    #[inline(always)]
    fn attend(&mut self) {
        let Sizes { rows, dp, .. } = self.sizes;
        self.scores.fill(0.0);
        let q = plain(&self.tokens.q, dp);
        add_product(self.isa, &mut self.scores, q, &self.keys, [rows, dp, rows]);
        self.scores.iter_mut().zip(&self.between).for_each(|(a, m)| *a *= m);
    }

    #[inline(always)]
    pub(super) fn advance(&mut self, s: &mut [f32], output: bool) {
        let Sizes { rows, dp, ep, .. } = self.sizes;
        self.decays();
        self.values(s);
        if output {
            self.attend();
            self.y.fill(0.0);
            add_product(self.isa, &mut self.y, plain(&self.tokens.q, dp), s, [rows, dp, ep]);
            scale_rows(&mut self.y, &self.since_start, ep);
            add_product(
                self.isa,
                &mut self.y,
                plain(&self.scores, rows),
                &self.u,
                [rows, rows, ep],
            );
        }
        let end = self.since_start[rows - 1];
        s.iter_mut().for_each(|x| *x *= end);
        self.dk.copy_from_slice(&self.tokens.k); // r ⊙ K
        scale_rows(&mut self.dk, &self.to_end, dp);
        add_product(self.isa, s, flipped(&self.dk, dp), &self.u, [dp, rows, ep]);
    }

    pub(super) fn y(&self) -> &[f32] {
        &self.y
    }

    #[inline(always)]
    pub(super) fn back(&mut self, s: &[f32], ds: &mut [f32]) {
        let Sizes { rows, dp, ep, .. } = self.sizes;
        let isa = self.isa;
        self.decays();
        self.values(s);
        self.attend();
        let end = self.since_start[rows - 1];
        let mut terms = GateTerms::new(rows);
        let through = f64::from(end) * dot(ds, s);

        // dU = Aᵀ dY + r ⊙ (K dS)
        let mut du = vec![0.0; rows * ep];
        add_product(isa, &mut du, plain(&self.tokens.k, dp), ds, [rows, dp, ep]);
        scale_rows(&mut du, &self.to_end, ep);
        add_product(isa, &mut du, flipped(&self.scores, rows), &self.tokens.dy, [rows, rows, ep]);

        // dA = dY Uᵀ, below and on the diagonal.
        let mut u_t = vec![0.0; rows * ep];
        transpose(isa, &mut u_t, &self.u, ep);
        let mut da = vec![0.0; rows * rows];
        add_product(isa, &mut da, plain(&self.tokens.dy, ep), &u_t, [rows, ep, rows]);
        count_pairs(&da, &self.scores, &mut terms.pairs, rows);
        da.iter_mut().zip(&self.between).for_each(|(da, m)| *da *= m);

        // dQ = (dA ⊙ M) K + p ⊙ (dY Sᵀ)
        let mut s_t = vec![0.0; dp * ep];
        transpose(isa, &mut s_t, s, ep);
        self.dq.fill(0.0);
        add_product(isa, &mut self.dq, plain(&self.tokens.dy, ep), &s_t, [rows, ep, dp]);
        scale_rows(&mut self.dq, &self.since_start, dp);
        add_rows(&mut terms.from_start, &self.dq, &self.tokens.q, dp);
        add_product(isa, &mut self.dq, plain(&da, rows), &self.tokens.k, [rows, rows, dp]);

        // dK = (dA ⊙ M)ᵀ Q + r ⊙ (U dSᵀ)
        let mut ds_t = vec![0.0; dp * ep];
        transpose(isa, &mut ds_t, ds, ep);
        self.dk.fill(0.0);
        add_product(isa, &mut self.dk, plain(&self.u, ep), &ds_t, [rows, ep, dp]);
        scale_rows(&mut self.dk, &self.to_end, dp);
        add_rows(&mut terms.until_end, &self.dk, &self.tokens.k, dp);
        add_product(isa, &mut self.dk, flipped(&da, rows), &self.tokens.q, [rows, rows, dp]);

        // dS = p_C dS + (p ⊙ Q)ᵀ dY
        ds.iter_mut().for_each(|x| *x *= end);
        let mut faded = self.tokens.q.clone();
        scale_rows(&mut faded, &self.since_start, dp);
        add_product(isa, ds, flipped(&faded, dp), &self.tokens.dy, [dp, rows, ep]);

        if self.delta {
            self.delta_gradients(&mut du, ds, &u_t, &s_t, &mut terms);
        } else {
            for (i, (du, v)) in du.chunks_exact(ep).zip(self.tokens.v.chunks_exact(ep)).enumerate()
            {
                self.dbeta[i] = dot(du, v) as f32;
            }
            scale_rows(&mut du, &self.tokens.beta, ep);
            self.dv.copy_from_slice(&du);
        }
        self.gate_gradients(&terms, through);
    }

    /// The part of the delta rule: gradients of the solution U, from `du`, of V and β, and what they add to the others.
    /// `u_t` and `s_t` are transposes.
    #[inline(always)]
    fn delta_gradients(
        &mut self,
        du: &mut [f32],
        ds: &mut [f32],
        u_t: &[f32],
        s_t: &[f32],
        terms: &mut GateTerms,
    ) {
        let Sizes { rows, dp, ep, .. } = self.sizes;
        let isa = self.isa;
        // dW = (I + L)⁻ᵀ dU, dL = −dW Uᵀ
        solve_transposed(isa, &self.lower, du, rows, ep);
        let mut dl = vec![0.0; rows * rows];
        add_product(isa, &mut dl, plain(du, ep), u_t, [rows, ep, rows]);
        dl.iter_mut().for_each(|x| *x = -*x);
        count_pairs(&dl, &self.lower, &mut terms.pairs, rows);
        for i in 0..rows {
            let (dw, v) = (&du[i * ep..][..ep], &self.tokens.v[i * ep..][..ep]);
            let error = v.iter().zip(&self.z[i * ep..]).map(|(v, z)| v - z);
            let written: f32 = dw.iter().zip(error).map(|(dw, r)| dw * r).sum();
            let row = i * rows..(i + 1) * rows;
            let kept = dl[row.clone()].iter().zip(&self.overlap[row.clone()]);
            self.dbeta[i] = written + kept.map(|(dl, kk)| dl * kk).sum::<f32>();
            // dL ⊙ β ⊙ M
            let beta = self.tokens.beta[i];
            let decays = &self.between[row.clone()];
            for (j, (dl, m)) in dl[row].iter_mut().zip(decays).enumerate() {
                *dl = if j < i { *dl * beta * m } else { 0.0 };
            }
        }
        // dV = β ⊙ dW, dZ = −dV
        scale_rows(du, &self.tokens.beta, ep);
        self.dv.copy_from_slice(du);
        for x in &mut *du {
            *x = -*x;
        }
        add_rows(&mut terms.from_start, du, &self.z, ep);
        scale_rows(du, &self.since_start, ep); // p ⊙ dZ
        add_product(isa, &mut self.dk, plain(du, ep), s_t, [rows, ep, dp]);
        add_product(isa, ds, flipped(&self.tokens.k, dp), du, [dp, rows, ep]);
        add_product(isa, &mut self.dk, plain(&dl, rows), &self.tokens.k, [rows, rows, dp]);
        add_product(isa, &mut self.dk, flipped(&dl, rows), &self.tokens.k, [rows, rows, dp]);
    }

    /// dg_t: pairs with i ≥ t > j, starts with i ≥ t, ends with j < t, and the whole chunk.
    #[inline(always)]
    fn gate_gradients(&mut self, terms: &GateTerms, through: f64) {
        let rows = self.sizes.rows;
        let mut after = 0.0;
        for t in (0..rows).rev() {
            after += terms.pairs[t] + terms.from_start[t];
            self.dg[t] = after as f32;
        }
        let mut before = through;
        for (dg, until_end) in self.dg.iter_mut().zip(&terms.until_end) {
            *dg = (f64::from(*dg) + before) as f32;
            before += until_end;
        }
    }

    pub(super) fn gradients(&self) -> ChunkGradients<'_> {
        ChunkGradients {
            q: &self.dq,
            k: &self.dk,
            v: &self.dv,
            g: &self.dg,
            gates_width: 1,
            beta: &self.dbeta,
            low_rank: [&[], &[]],
        }
    }
}

/// Row i times by[i].
#[inline(always)]
fn scale_rows(x: &mut [f32], by: &[f32], width: usize) {
    for (row, by) in x.chunks_exact_mut(width).zip(by) {
        row.iter_mut().for_each(|x| *x *= by);
    }
}

/// into[i] += a_i · b_i
#[inline(always)]
fn add_rows(into: &mut [f64], a: &[f32], b: &[f32], width: usize) {
    for (to, (a, b)) in into.iter_mut().zip(a.chunks_exact(width).zip(b.chunks_exact(width))) {
        *to += dot(a, b);
    }
}

#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f64 {
    const LANES: usize = 8;
    let mut sums = [0.0f64; LANES];
    for (a, b) in a.chunks_exact(LANES).zip(b.chunks_exact(LANES)) {
        for l in 0..LANES {
            sums[l] += f64::from(a[l]) * f64::from(b[l]);
        }
    }
    sums.iter().sum()
}

/// Each da_ij a_ij, j < i, as a difference.
#[inline(always)]
fn count_pairs(da: &[f32], a: &[f32], pairs: &mut [f64], rows: usize) {
    for (i, (da, a)) in da.chunks_exact(rows).zip(a.chunks_exact(rows)).enumerate() {
        let mut sum = 0.0;
        for j in 0..i {
            let x = f64::from(da[j]) * f64::from(a[j]);
            pairs[j] -= x;
            sum += x;
        }
        pairs[i] += sum;
    }
}

/// Solves (I + L) X = B in place, by blocks of rows, forwards.
#[inline(always)]
pub(super) fn solve(isa: Isa, lower: &[f32], x: &mut [f32], rows: usize, width: usize) {
    let mut less = vec![0.0; PAD * width];
    for first in (0..rows).step_by(PAD) {
        let (known, block_x) = x.split_at_mut(first * width);
        let block = &lower[first * rows..];
        less.fill(0.0);
        add_product(isa, &mut less, plain(block, rows), known, [PAD, first, width]);
        let block_x = &mut block_x[..PAD * width];
        block_x.iter_mut().zip(&less).for_each(|(x, less)| *x -= less);
        for i in 1..PAD {
            let (done, row) = block_x.split_at_mut(i * width);
            let factors = &block[i * rows + first..][..i];
            for (factor, done) in factors.iter().zip(done.chunks_exact(width)) {
                row[..width].iter_mut().zip(done).for_each(|(x, d)| *x -= factor * d);
            }
        }
    }
}

/// Solves (I + L)ᵀ X = B in place, by blocks of rows, backwards.
#[inline(always)]
pub(super) fn solve_transposed(isa: Isa, lower: &[f32], x: &mut [f32], rows: usize, width: usize) {
    let mut less = vec![0.0; PAD * width];
    for first in (0..rows).step_by(PAD).rev() {
        let end = first + PAD;
        let (block_x, known) = x.split_at_mut(end * width);
        // The columns of this block, from the rows below it.
        less.fill(0.0);
        if end < rows {
            let below = flipped(&lower[end * rows + first..], rows);
            add_product(isa, &mut less, below, known, [PAD, rows - end, width]);
        }
        let block_x = &mut block_x[first * width..];
        block_x.iter_mut().zip(&less).for_each(|(x, less)| *x -= less);
        for i in (1..PAD).rev() {
            let (before, row) = block_x.split_at_mut(i * width);
            let factors = &lower[(first + i) * rows + first..][..i];
            for (factor, before) in factors.iter().zip(before.chunks_exact_mut(width)) {
                before.iter_mut().zip(&row[..width]).for_each(|(x, r)| *x -= factor * r);
            }
        }
    }
}
