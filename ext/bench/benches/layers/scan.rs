//! The scans of GLA, Gated DeltaNet and Mamba2: token by token, in chunks composed of libtorch's operations with its
//! autograd, and by our kernels. 8 heads, as in a model of 512 channels.
//!
//! Gates are weak enough for the composed form of gated linear attention, which divides by decays as such forms do.

use bench::turns::clock;
use report::statistics::median;
use runtime::kernels::KernelError;
use runtime::kernels::path::{self, Path, Reason};
use runtime::kernels::scan::{delta, gla, ssd};
use runtime::{Device, Kind, Tensor};

use super::{Form, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Gla,
    Delta,
    Ssd,
}

pub(super) const FAMILIES: [Family; 3] = [Family::Gla, Family::Delta, Family::Ssd];

/// Sequences and heads of a scan.
const BATCH: i64 = 2;
const HEADS: i64 = 8;
/// Tokens per chunk of the composed forms.
const CHUNK: i64 = 64;
/// Shorter chunks where keys are divided by decays, to keep them in range.
const CHANNEL_CHUNK: i64 = 16;
/// Sequence lengths at which our kernel is timed alone, and rounds of each.
const TIMES: [i64; 4] = [512, 2048, 8192, 16_384];
const ROUNDS: usize = 7;

impl Family {
    pub(super) fn name(self) -> &'static str {
        match self {
            Family::Gla => "GLA",
            Family::Delta => "Gated DeltaNet",
            Family::Ssd => "Mamba2",
        }
    }

    /// Key and value widths of a head.
    fn widths(self) -> (i64, i64) {
        match self {
            Family::Gla | Family::Delta => (64, 128),
            Family::Ssd => (128, 128),
        }
    }
}

/// Nanoseconds a token of our kernel at growing lengths, and the memory of the longest.
pub(super) fn growth(family: Family) -> Result<String> {
    let mut text = String::new();
    for time in TIMES {
        let case = ScanCase::new(family, time)?;
        let mut times = Vec::new();
        for _ in 0..=ROUNDS {
            times.push(clock(|| case.run(case.path()))?);
        }
        let per_token = 1e6 * median(times.get(1..).unwrap_or_default()) / (BATCH * time) as f64;
        text += &format!("{time}: {per_token:.0}, ");
    }
    let memory = memory(&ScanCase::new(family, TIMES[TIMES.len() - 1])?)?;
    let memory = memory.map_or("unknown".to_owned(), dsl::size);
    Ok(text + &memory)
}

/// Peak bytes that our kernel's forward and backward need, results included; `None` if the system does not report it
/// (Linux does).
fn memory(case: &ScanCase) -> Result<Option<u64>> {
    // Writing 5 sets the high-water mark to the current resident size.
    if std::fs::write("/proc/self/clear_refs", "5").is_err() {
        return Ok(None);
    }
    let before = records::platform::peak_memory();
    drop(case.run(case.path())?);
    let after = records::platform::peak_memory();
    Ok(after.zip(before).map(|(after, before)| after.saturating_sub(before)))
}

/// q, k, v, gates, and beta or dt, in the kernels' layout.
pub(super) struct ScanCase {
    family: Family,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    a: Tensor,
    d: Tensor,
    dy: Tensor,
}

impl ScanCase {
    pub(super) fn new(family: Family, t: i64) -> Result<Self> {
        let (b, h, (key, value)) = (BATCH, HEADS, family.widths());
        let cpu = (Kind::Float, Device::Cpu);
        // Mamba2 has one group of keys and queries.
        let groups = if family == Family::Ssd { 1 } else { h };
        let gates: &[i64] = if family == Family::Gla { &[b, t, h, key] } else { &[b, t, h] };
        let k = Tensor::f_randn([b, t, groups, key], cpu)?;
        let length = k.f_square()?.f_sum_dim_intlist([-1i64].as_slice(), true, None::<Kind>)?;
        Ok(Self {
            family,
            q: Tensor::f_randn([b, t, groups, key], cpu)?,
            k: k.f_div(&length.f_sqrt()?)?,
            v: Tensor::f_randn([b, t, h, value], cpu)?,
            g: Tensor::f_randn(gates, cpu)?.f_log_sigmoid()?.f_mul_scalar(1.0 / 16.0)?,
            beta: Tensor::f_rand([b, t, h], cpu)?,
            a: Tensor::f_rand([h], cpu)?.f_neg()?,
            d: Tensor::f_randn([h], cpu)?,
            dy: Tensor::f_randn([b, t, h, value], cpu)?,
        })
    }

    pub(super) fn path(&self) -> Path {
        path::choose(Kind::Float, Device::Cpu)
    }

    pub(super) fn forms(&self) -> Vec<Form<'_>> {
        vec![
            Form::new("token by token", || self.run(Path::Reference(Reason::Asked))),
            Form::new("composed", || self.composed()),
            Form::new("canonc", || self.run(self.path())),
        ]
    }

    /// y, then the gradients of q, k, v and the gates (of c, b, x and dt).
    fn run(&self, path: Path) -> Result<Vec<Tensor>> {
        let ScanCase { q, k, v, g, beta, a, d, dy, .. } = self;
        match self.family {
            Family::Gla => {
                let operands = gla::GlaOperands { q, k, v, g, scale: None };
                let y = gla::forward(path, operands, None)?.y;
                let [dq, dk, dv, dg] = gla::backward(path, dy, operands)?;
                Ok(vec![y, dq, dk, dv, dg])
            }
            Family::Delta => {
                let operands = delta::DeltaOperands { q, k, v, beta, g, scale: None };
                let y = delta::forward(path, operands, None)?.y;
                let [dq, dk, dv, _, dg] = delta::backward(path, dy, operands)?;
                Ok(vec![y, dq, dk, dv, dg])
            }
            Family::Ssd => {
                let operands = ssd::SsdOperands { x: v, dt: beta, a, b: k, c: q, d };
                let y = ssd::forward(path, operands, None)?.y;
                let [dx, ddt, _, db, dc, _] = ssd::backward(path, dy, operands)?;
                Ok(vec![y, dc, db, dx, ddt])
            }
        }
    }

    /// The same with libtorch's operations and autograd.
    fn composed(&self) -> Result<Vec<Tensor>> {
        let leaf = |x: &Tensor| Ok::<_, KernelError>(x.f_detach()?.f_set_requires_grad(true)?);
        let (q, k, v) = (leaf(&self.q)?, leaf(&self.k)?, leaf(&self.v)?);
        let size = self.v.size();
        let heads = size.get(2).copied().unwrap_or(1);
        let scale = match self.family {
            Family::Gla | Family::Delta => {
                (q.size().last().copied().unwrap_or(1) as f64).powf(-0.5)
            }
            Family::Ssd => 1.0,
        };
        let scaled = q.f_mul_scalar(scale)?;
        let (y, gate) = match self.family {
            Family::Gla => {
                let g = leaf(&self.g)?;
                (by_channel(&scaled, &k, &v, &g)?, g)
            }
            Family::Delta => {
                let g = leaf(&self.g)?;
                (by_number(&scaled, &k, &v, &g, Some(&self.beta))?, g)
            }
            Family::Ssd => {
                let dt = leaf(&self.beta)?;
                let spread = |x: &Tensor| x.f_expand([-1, -1, heads, -1], false);
                let (gates, x) = (dt.f_mul(&self.a)?, v.f_mul(&dt.f_unsqueeze(-1)?)?);
                let y = by_number(&spread(&scaled)?, &spread(&k)?, &x, &gates, None)?;
                (y.f_add(&v.f_mul(&self.d.f_unsqueeze(-1)?)?)?, dt)
            }
        };
        let loss = y.f_mul(&self.dy)?.f_sum(None::<Kind>)?;
        let mut all = vec![y.f_detach()?];
        all.extend(Tensor::f_run_backward(&[loss], &[&q, &k, &v, &gate], false, false)?);
        Ok(all)
    }
}

/// [b, t, h, d] -> [b, h, t / chunk, chunk, d]; time is a multiple of the chunk.
fn cut(x: &Tensor, chunk: i64) -> Result<Tensor> {
    let x = if x.dim() == 3 { x.f_unsqueeze(-1)? } else { x.shallow_clone() };
    Ok(x.f_transpose(1, 2)?.f_unflatten(2, [-1, chunk])?)
}

/// Chunk n of [b, h, chunks, …].
fn nth(x: &Tensor, n: i64) -> Result<Tensor> {
    Ok(x.f_select(2, n)?)
}

/// Joins chunks into [b, t, h, e].
fn joined(y: &[Tensor]) -> Result<Tensor> {
    Ok(Tensor::f_cat(y, 2)?.f_transpose(1, 2)?)
}

/// One gate per token; with beta, the delta rule (Yang et al. 2024, section 3.3).
fn by_number(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    g: &Tensor,
    beta: Option<&Tensor>,
) -> Result<Tensor> {
    let (q, k, mut v) = (cut(q, CHUNK)?, cut(k, CHUNK)?, cut(v, CHUNK)?);
    let sum = cut(g, CHUNK)?.f_cumsum(-2, None::<Kind>)?; // [b, h, n, c, 1]
    let between = sum.f_sub(&sum.f_transpose(-1, -2)?)?.f_tril(0)?.f_exp()?.f_tril(0)?;
    let start = sum.f_exp()?;
    let last = sum.f_narrow(-2, CHUNK - 1, 1)?;
    let k_t = k.f_transpose(-1, -2)?;
    let scores = q.f_matmul(&k_t)?.f_mul(&between)?;
    let mut faded = None;
    if let Some(beta) = beta {
        let beta = cut(beta, CHUNK)?;
        let lower = k.f_matmul(&k_t)?.f_mul(&between)?.f_mul(&beta)?.f_tril(-1)?;
        let solve = |x: &Tensor| lower.f_linalg_solve_triangular(x, false, true, true);
        v = solve(&v.f_mul(&beta)?)?;
        faded = Some(solve(&k.f_mul(&start)?.f_mul(&beta)?)?);
    }
    let (q, k) = (q.f_mul(&start)?, k.f_mul(&last.f_sub(&sum)?.f_exp()?)?);
    let end = last.f_exp()?;
    let size = [v.size()[0], v.size()[1], k.size()[4], v.size()[4]];
    let mut s = Tensor::f_zeros(size, (v.kind(), v.device()))?;
    let mut y = Vec::new();
    for n in 0..v.size()[2] {
        let mut u = nth(&v, n)?;
        if let Some(faded) = &faded {
            u = u.f_sub(&nth(faded, n)?.f_matmul(&s)?)?;
        }
        y.push(nth(&scores, n)?.f_matmul(&u)?.f_add(&nth(&q, n)?.f_matmul(&s)?)?);
        s = s.f_mul(&nth(&end, n)?)?.f_add(&nth(&k, n)?.f_transpose(-1, -2)?.f_matmul(&u)?)?;
    }
    joined(&y)
}

/// One gate per key channel; keys are divided by their decays.
fn by_channel(q: &Tensor, k: &Tensor, v: &Tensor, g: &Tensor) -> Result<Tensor> {
    let chunk = CHANNEL_CHUNK;
    let (q, k, v) = (cut(q, chunk)?, cut(k, chunk)?, cut(v, chunk)?);
    let sum = cut(g, chunk)?.f_cumsum(-2, None::<Kind>)?; // [b, h, n, c, d]
    let last = sum.f_narrow(-2, chunk - 1, 1)?;
    let faded_q = q.f_mul(&sum.f_exp()?)?;
    let grown_k = k.f_mul(&sum.f_neg()?.f_exp()?)?;
    let faded_k = k.f_mul(&last.f_sub(&sum)?.f_exp()?)?;
    let scores = faded_q.f_matmul(&grown_k.f_transpose(-1, -2)?)?.f_tril(0)?;
    let within = scores.f_matmul(&v)?;
    let end = last.f_exp()?.f_transpose(-1, -2)?; // [b, h, n, d, 1]
    let size = [v.size()[0], v.size()[1], k.size()[4], v.size()[4]];
    let mut s = Tensor::f_zeros(size, (v.kind(), v.device()))?;
    let mut y = Vec::new();
    for n in 0..v.size()[2] {
        y.push(nth(&within, n)?.f_add(&nth(&faded_q, n)?.f_matmul(&s)?)?);
        let new = nth(&faded_k, n)?.f_transpose(-1, -2)?.f_matmul(&nth(&v, n)?)?;
        s = s.f_mul(&nth(&end, n)?)?.f_add(&new)?;
    }
    joined(&y)
}
