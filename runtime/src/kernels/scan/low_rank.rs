//! One chunk of a scan whose transition is diagonal plus low rank, the diagonal decaying by a gate per key channel.
//!
//! Decays are products for each pair of tokens of the chunk, which is short for that reason; a gate's gradient is a sum
//! without cancellation over the pairs that it is between.
//!
//! With w_i = S_{i−1}ᵀ a_i, a token writes two pairs, (k_i, v_i) and (b_i, w_i), and reads with two, q_i after its own
//! step and a_i before it. With p_i and r_j the decays, by channel, from the chunk's start to row i and from row j to
//! its end, M_ij the one from j to i, and (x | z)_ij = Σ_d x_id z_jd M_ijd (Yang et al. 2024, "Parallelizing linear
//! transformers with the delta rule", section 3, with decays):
//!     (I − (a′ | b)) W = (p′ ⊙ A) S + (a′ | k) V       a′ with decays up to the row before, so j < i
//!     Y = (p ⊙ Q) S + (q | k) V + (q | b) W
//!     S ← diag(p_C) S + (r ⊙ K)ᵀ V + (r ⊙ B)ᵀ W

use super::super::dense::{add_product, flipped, plain, transpose};
use super::super::lanes::{dot, mul_add};
use super::super::{Isa, ffi};
use super::channel::{Decays, add_products, ends, fade, multiply, sum_between, through};
use super::chunk::{ChunkGradients, Tokens, kept};
use super::operands::{CheckedOperands, Sizes};
use super::scalar::{solve, solve_transposed};

pub(super) struct LowRank {
    pub(super) tokens: Tokens,
    isa: Isa,
    sizes: Sizes,
    /// [rows, d]
    a: Vec<f32>,
    b: Vec<f32>,
    /// p and r; p at the row before.
    since_start: Vec<f32>,
    before: Vec<f32>,
    to_end: Vec<f32>,
    faded_q: Vec<f32>,
    faded_a: Vec<f32>,
    faded_k: Vec<f32>,
    faded_b: Vec<f32>,
    scores: Scores,
    /// [rows, e]
    w: Vec<f32>,
    y: Vec<f32>,
    dq: Vec<f32>,
    dk: Vec<f32>,
    dv: Vec<f32>,
    da: Vec<f32>,
    db: Vec<f32>,
    dg: Vec<f32>,
    zeros: Vec<f32>,
}

/// Of each pair of rows, [rows, rows]; or their gradients.
struct Scores {
    /// (q | k) and (q | b), for j ≤ i.
    qk: Vec<f32>,
    qb: Vec<f32>,
    /// (a′ | k) and −(a′ | b), for j < i.
    ak: Vec<f32>,
    less_ab: Vec<f32>,
}

impl Scores {
    fn new(rows: usize) -> Self {
        let square = || vec![0.0; rows * rows];
        Self { qk: square(), qb: square(), ak: square(), less_ab: square() }
    }
}

impl LowRank {
    pub(super) fn new(scan: &CheckedOperands<'_>) -> Self {
        let sizes = scan.sizes;
        let Sizes { rows, dp, ep, .. } = sizes;
        let keys = || vec![0.0; rows * dp];
        let values = || vec![0.0; rows * ep];
        Self {
            tokens: Tokens::new(sizes, dp),
            isa: scan.isa,
            sizes,
            a: keys(),
            b: keys(),
            since_start: keys(),
            before: keys(),
            to_end: keys(),
            faded_q: keys(),
            faded_a: keys(),
            faded_k: keys(),
            faded_b: keys(),
            scores: Scores::new(rows),
            w: values(),
            y: values(),
            dq: keys(),
            dk: keys(),
            dv: values(),
            da: keys(),
            db: keys(),
            dg: keys(),
            zeros: vec![0.0; rows],
        }
    }

    pub(super) fn load(&mut self, scan: &CheckedOperands<'_>, task: usize, first: usize) {
        self.tokens.load(scan, task, first);
        scan.load_low_rank(task, first, &mut self.a, &mut self.b);
    }

    /// p, r and the operands times them.
    #[inline(always)]
    fn decays(&mut self) {
        let Sizes { rows, dp, .. } = self.sizes;
        ffi::run_on(
            self.isa,
            Decays {
                gates: &self.tokens.gates,
                since_start: &mut self.since_start,
                to_end: &mut self.to_end,
                width: dp,
            },
        );
        self.before[..dp].fill(1.0);
        self.before[dp..].copy_from_slice(&self.since_start[..(rows - 1) * dp]);
        multiply(&mut self.faded_q, &self.tokens.q, &self.since_start);
        multiply(&mut self.faded_a, &self.a, &self.before);
        multiply(&mut self.faded_k, &self.tokens.k, &self.to_end);
        multiply(&mut self.faded_b, &self.b, &self.to_end);
    }

    /// The scores, and W from the state before the chunk.
    #[inline(always)]
    fn solve(&mut self, s: &[f32]) {
        let Sizes { rows, dp, ep, .. } = self.sizes;
        ffi::run_on(
            self.isa,
            Attend {
                q: &self.tokens.q,
                k: &self.tokens.k,
                a: &self.a,
                b: &self.b,
                decay: &self.tokens.decay,
                scores: &mut self.scores,
                width: dp,
                rows,
            },
        );
        self.w.fill(0.0);
        add_product(self.isa, &mut self.w, plain(&self.faded_a, dp), s, [rows, dp, ep]);
        let scores = plain(&self.scores.ak, rows);
        add_product(self.isa, &mut self.w, scores, &self.tokens.v, [rows, rows, ep]);
        solve(self.isa, &self.scores.less_ab, &mut self.w, rows, ep);
    }

    #[inline(always)]
    pub(super) fn advance(&mut self, s: &mut [f32], output: bool) {
        let Sizes { rows, dp, ep, .. } = self.sizes;
        self.decays();
        self.solve(s);
        if output {
            self.y.fill(0.0);
            add_product(self.isa, &mut self.y, plain(&self.faded_q, dp), s, [rows, dp, ep]);
            let scores = plain(&self.scores.qk, rows);
            add_product(self.isa, &mut self.y, scores, &self.tokens.v, [rows, rows, ep]);
            let scores = plain(&self.scores.qb, rows);
            add_product(self.isa, &mut self.y, scores, &self.w, [rows, rows, ep]);
        }
        fade(s, &self.since_start[(rows - 1) * dp..], ep);
        add_product(self.isa, s, flipped(&self.faded_k, dp), &self.tokens.v, [dp, rows, ep]);
        add_product(self.isa, s, flipped(&self.faded_b, dp), &self.w, [dp, rows, ep]);
    }

    pub(super) fn y(&self) -> &[f32] {
        &self.y
    }

    #[inline(always)]
    pub(super) fn back<const FMA: bool>(&mut self, s: &[f32], ds: &mut [f32]) {
        let Sizes { rows, dp, ep, .. } = self.sizes;
        let isa = self.isa;
        self.decays();
        self.solve(s);
        let dy = &self.tokens.dy;
        let end = &self.since_start[(rows - 1) * dp..];
        // The decay from the state before the chunk to the one after contains every gate of the chunk.
        let ends = ends::<FMA>(end, s, ds);

        // dW = (q | b)ᵀ dY + (r ⊙ B) dS, and dX = (I − (a′ | b))⁻ᵀ dW of the system's right side X
        let mut dx = vec![0.0; rows * ep];
        add_product(isa, &mut dx, plain(&self.faded_b, dp), ds, [rows, dp, ep]);
        add_product(isa, &mut dx, flipped(&self.scores.qb, rows), dy, [rows, rows, ep]);
        solve_transposed(isa, &self.scores.less_ab, &mut dx, rows, ep);

        // dV = (q | k)ᵀ dY + (a′ | k)ᵀ dX + (r ⊙ K) dS
        self.dv.fill(0.0);
        add_product(isa, &mut self.dv, plain(&self.faded_k, dp), ds, [rows, dp, ep]);
        add_product(isa, &mut self.dv, flipped(&self.scores.qk, rows), dy, [rows, rows, ep]);
        add_product(isa, &mut self.dv, flipped(&self.scores.ak, rows), &dx, [rows, rows, ep]);

        let dscores = self.score_gradients(&dx);

        // Through S: dQ = p ⊙ (dY Sᵀ), dA = p′ ⊙ (dX Sᵀ), dK = r ⊙ (V dSᵀ), dB = r ⊙ (W dSᵀ)
        let mut turned = vec![0.0; dp * ep];
        let keys = [rows, ep, dp];
        transpose(isa, &mut turned, s, ep);
        through(isa, &mut self.dq, dy, &turned, &self.since_start, keys);
        through(isa, &mut self.da, &dx, &turned, &self.before, keys);
        transpose(isa, &mut turned, ds, ep);
        through(isa, &mut self.dk, &self.tokens.v, &turned, &self.to_end, keys);
        through(isa, &mut self.db, &self.w, &turned, &self.to_end, keys);

        self.gate_gradients(ends);
        let (dy, end) = (&self.tokens.dy, &self.since_start[(rows - 1) * dp..]);

        // dS = diag(p_C) dS + (p ⊙ Q)ᵀ dY + (p′ ⊙ A)ᵀ dX
        fade(ds, end, ep);
        add_product(isa, ds, flipped(&self.faded_q, dp), dy, [dp, rows, ep]);
        add_product(isa, ds, flipped(&self.faded_a, dp), &dx, [dp, rows, ep]);

        ffi::run_on(
            isa,
            Pairs {
                q: &self.tokens.q,
                k: &self.tokens.k,
                a: &self.a,
                b: &self.b,
                decay: &self.tokens.decay,
                dscores: &dscores,
                dq: &mut self.dq,
                dk: &mut self.dk,
                da: &mut self.da,
                db: &mut self.db,
                dg: &mut self.dg,
                width: dp,
                rows,
            },
        );
    }

    /// dY Vᵀ, dY Wᵀ, dX Vᵀ, dX Wᵀ.
    #[inline(always)]
    fn score_gradients(&self, dx: &[f32]) -> Scores {
        let Sizes { rows, ep, .. } = self.sizes;
        let (isa, dy) = (self.isa, &self.tokens.dy);
        let mut turned = vec![0.0; rows * ep];
        let mut dscores = Scores::new(rows);
        let square = [rows, ep, rows];
        transpose(isa, &mut turned, &self.tokens.v, ep);
        add_product(isa, &mut dscores.qk, plain(dy, ep), &turned, square);
        add_product(isa, &mut dscores.ak, plain(dx, ep), &turned, square);
        transpose(isa, &mut turned, &self.w, ep);
        add_product(isa, &mut dscores.qb, plain(dy, ep), &turned, square);
        add_product(isa, &mut dscores.less_ab, plain(dx, ep), &turned, square);
        dscores
    }

    /// dg_t: from the start to q of i ≥ t and to a of i > t, from j < t to the end. `ends` is the part that contains
    /// every gate of the chunk.
    #[inline(always)]
    fn gate_gradients(&mut self, mut ends: Vec<f32>) {
        let Sizes { rows, dp, .. } = self.sizes;
        let mut after = vec![0.0f32; dp];
        for t in (0..rows).rev() {
            let row = t * dp..(t + 1) * dp;
            add_products(&mut after, &self.dq[row.clone()], &self.tokens.q[row.clone()]);
            self.dg[row.clone()].copy_from_slice(&after);
            add_products(&mut after, &self.da[row.clone()], &self.a[row]);
        }
        for t in 0..rows {
            let row = t * dp..(t + 1) * dp;
            self.dg[row.clone()].iter_mut().zip(&ends).for_each(|(dg, x)| *dg += x);
            add_products(&mut ends, &self.dk[row.clone()], &self.tokens.k[row.clone()]);
            add_products(&mut ends, &self.db[row.clone()], &self.b[row]);
        }
    }

    pub(super) fn gradients(&self) -> ChunkGradients<'_> {
        ChunkGradients {
            q: &self.dq,
            k: &self.dk,
            v: &self.dv,
            g: &self.dg,
            gates_width: self.sizes.dp,
            beta: &self.zeros,
            low_rank: [&self.da, &self.db],
        }
    }
}

struct Attend<'a> {
    q: &'a [f32],
    k: &'a [f32],
    a: &'a [f32],
    b: &'a [f32],
    decay: &'a [f32],
    scores: &'a mut Scores,
    width: usize,
    rows: usize,
}

impl ffi::Vectorised for Attend<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        let Attend { q, k, a, b, decay, scores, width, rows } = self;
        let Scores { qk, qb, ak, less_ab } = scores;
        let (mut k_faded, mut b_faded) = (vec![0.0f32; width], vec![0.0f32; width]);
        for j in 0..rows {
            k_faded.copy_from_slice(&k[j * width..][..width]);
            b_faded.copy_from_slice(&b[j * width..][..width]);
            for i in j..rows {
                let (at, score) = (i * width, i * rows + j);
                if i > j {
                    // Before the row's own decay.
                    let a = &a[at..][..width];
                    ak[score] = dot::<FMA>(a, &k_faded);
                    less_ab[score] = -dot::<FMA>(a, &b_faded);
                    let decay = &decay[at..][..width];
                    k_faded.iter_mut().zip(decay).for_each(|(x, m)| *x *= m);
                    b_faded.iter_mut().zip(decay).for_each(|(x, m)| *x *= m);
                }
                let q = &q[at..][..width];
                qk[score] = dot::<FMA>(q, &k_faded);
                qb[score] = dot::<FMA>(q, &b_faded);
            }
        }
    }
}

/// What the scores' gradients add to those of q_i, a_i, k_j, b_j and the gates between.
struct Pairs<'a> {
    q: &'a [f32],
    k: &'a [f32],
    a: &'a [f32],
    b: &'a [f32],
    decay: &'a [f32],
    dscores: &'a Scores,
    dq: &'a mut [f32],
    dk: &'a mut [f32],
    da: &'a mut [f32],
    db: &'a mut [f32],
    dg: &'a mut [f32],
    width: usize,
    rows: usize,
}

impl ffi::Vectorised for Pairs<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        let Pairs { q, k, a, b, decay, dscores, dq, dk, da, db, dg, width, rows } = self;
        let mut m = vec![0.0f32; width];
        // Contributions of a pair's reads to each gate: those after the row's own decay, and those before it.
        let mut between = vec![0.0f32; rows * width];
        let mut sum = vec![0.0f32; width];
        for j in 0..rows {
            m.fill(1.0);
            between.fill(0.0);
            let row_j = j * width..(j + 1) * width;
            let (k, b) = (&k[row_j.clone()], &b[row_j.clone()]);
            let (dk, db) = (&mut dk[row_j.clone()], &mut db[row_j]);
            for i in j..rows {
                let (at, score) = (i * width..(i + 1) * width, i * rows + j);
                if i > j {
                    let (by_k, by_b) = (dscores.ak[score], dscores.less_ab[score]);
                    let (a, da) = (&a[at.clone()], &mut da[at.clone()]);
                    let between = &mut between[(i - 1) * width..i * width];
                    for c in 0..width {
                        let both = mul_add::<FMA>(by_k, k[c], by_b * b[c]) * m[c];
                        da[c] += both;
                        let read = a[c] * m[c];
                        dk[c] = mul_add::<FMA>(by_k, read, dk[c]);
                        db[c] = mul_add::<FMA>(by_b, read, db[c]);
                        between[c] = mul_add::<FMA>(both, a[c], between[c]);
                    }
                    m.iter_mut().zip(&decay[at.clone()]).for_each(|(m, a)| *m = kept(*m * a));
                }
                let (by_k, by_b) = (dscores.qk[score], dscores.qb[score]);
                let (q, dq) = (&q[at.clone()], &mut dq[at.clone()]);
                let between = &mut between[at];
                for c in 0..width {
                    let both = mul_add::<FMA>(by_k, k[c], by_b * b[c]) * m[c];
                    dq[c] += both;
                    let read = q[c] * m[c];
                    dk[c] = mul_add::<FMA>(by_k, read, dk[c]);
                    db[c] = mul_add::<FMA>(by_b, read, db[c]);
                    between[c] = both * q[c];
                }
            }
            sum_between(&between, &mut sum, dg, j);
        }
    }
}
