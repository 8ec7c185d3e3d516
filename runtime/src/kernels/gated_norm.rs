//! An RMS norm with a SiLU gate, before the norm (Mamba2: Dao and Gu 2024) or after it (gated linear attention and
//! Gated DeltaNet: Yang et al. 2023, 2024). Statistics are in f32.
//!
//! ```text
//! x […, c], gate […, c], weight [c] -> y […, c], rstd […]
//! before: u = x ⊙ silu(gate), y = weight ⊙ u · rstd
//! after:  y = weight ⊙ x · rstd ⊙ silu(gate)
//! ```
//!
//! The reference applies the norm and the gate one after the other; the fused path stores nothing between them. Its
//! bits do not depend on threads or register width: the weight's gradient is summed by chunks of ROWS, in order.

use compiler::plan::Gate;
use tch::{Kind, Tensor};

use super::ffi::{self, Cut, Vectorised};
use super::lanes::{dot, mul_add, sigmoid, sum_squares};
use super::linear::{AddRows, grain};
use super::path::Path;
use super::{Isa, KernelError, cuda, norm, swiglu};

#[derive(Debug, Clone, Copy)]
pub struct GatedNormOperands<'a> {
    pub x: &'a Tensor,
    pub gate: &'a Tensor,
    pub weight: &'a Tensor,
}

/// Rows per chunk.
const ROWS: usize = 32;

/// y […, c] and rstd […].
pub fn forward(
    path: Path,
    operands: GatedNormOperands<'_>,
    eps: f64,
    order: Gate,
) -> Result<(Tensor, Tensor), KernelError> {
    let GatedNormOperands { x, gate, weight } = operands;
    let isa = match (path, order) {
        (Path::Fused(isa), _) => isa,
        (Path::Cuda(_), _) => {
            let launcher = cuda::launcher(x.device())?;
            return cuda::norm::forward(launcher, x, Some((gate, order)), weight, eps);
        }
        (Path::Reference(_), Gate::Before) => {
            return norm::rms_norm(path, &swiglu::forward(path, gate, x)?, weight, eps);
        }
        (Path::Reference(_), Gate::After) => {
            let (n, rstd) = norm::rms_norm(path, x, weight, eps)?;
            return Ok((swiglu::forward(path, gate, &n)?, rstd));
        }
    };
    let (x, gate) = (x.f_contiguous()?, gate.f_contiguous()?);
    let (size, options) = (x.size(), (Kind::Float, x.device()));
    let mut y = Tensor::f_empty(&size, options)?;
    let mut rstd = Tensor::f_empty(size.split_last().map_or(&[][..], |(_, rest)| rest), options)?;
    let (xs, gates, w) = (ffi::slice(&x)?, ffi::slice(&gate)?, ffi::slice(weight)?);
    let (rows, width) = rows_of(xs, gates, w)?;
    let reads = [&x, &gate, weight];
    let outs = [
        Cut { data: ffi::slice_mut(&mut y, &reads)?, chunk: ROWS * width },
        Cut { data: ffi::slice_mut(&mut rstd, &reads)?, chunk: ROWS },
    ];
    ffi::parallel_cuts(rows.div_ceil(ROWS), grain(ROWS * width), outs, |chunk, [y, rstd]| {
        let at = chunk * ROWS * width;
        let (x, gate) = (&xs[at..][..y.len()], &gates[at..][..y.len()]);
        ffi::run_on(isa, GatedNormForward { x, gate, w, eps: eps as f32, order, y, rstd });
    });
    Ok((y, rstd))
}

/// [dx, dgate, dweight].
pub fn backward(
    path: Path,
    dy: &Tensor,
    operands: GatedNormOperands<'_>,
    rstd: &Tensor,
    order: Gate,
) -> Result<[Tensor; 3], KernelError> {
    let GatedNormOperands { x, gate, weight } = operands;
    match (path, order) {
        (Path::Fused(isa), _) => fused_backward(isa, dy, operands, rstd, order),
        (Path::Cuda(_), _) => {
            let launcher = cuda::launcher(x.device())?;
            let gates = Some((gate, order));
            let (dx, dgate, dweight) = cuda::norm::backward(launcher, dy, x, gates, weight, rstd)?;
            let dgate = dgate.ok_or_else(|| KernelError::new("no gradient of the gate".into()))?;
            Ok([dx, dgate, dweight])
        }
        (Path::Reference(_), Gate::Before) => {
            let u = swiglu::forward(path, gate, x)?;
            let (du, dweight) = norm::rms_norm_grad(path, dy, &u, weight, rstd)?;
            let (dgate, dx) = swiglu::backward(path, &du, gate, x)?;
            Ok([dx, dgate, dweight])
        }
        (Path::Reference(_), Gate::After) => {
            let n = x.f_mul(&rstd.f_unsqueeze(-1)?)?.f_mul(weight)?;
            let (dgate, dn) = swiglu::backward(path, dy, gate, &n)?;
            let (dx, dweight) = norm::rms_norm_grad(path, &dn, x, weight, rstd)?;
            Ok([dx, dgate, dweight])
        }
    }
}

fn fused_backward(
    isa: Isa,
    dy: &Tensor,
    operands: GatedNormOperands<'_>,
    rstd: &Tensor,
    order: Gate,
) -> Result<[Tensor; 3], KernelError> {
    let weight = operands.weight;
    let [dy, x, gate, rstd] = [dy, operands.x, operands.gate, rstd].map(Tensor::f_contiguous);
    let (dy, x, gate, rstd) = (dy?, x?, gate?, rstd?);
    let options = (Kind::Float, x.device());
    let mut dx = Tensor::f_empty(x.size(), options)?;
    let mut dgate = Tensor::f_empty(x.size(), options)?;
    let mut dweight = Tensor::f_empty(weight.size(), options)?;
    let (dys, xs, gates) = (ffi::slice(&dy)?, ffi::slice(&x)?, ffi::slice(&gate)?);
    let (w, rstds) = (ffi::slice(weight)?, ffi::slice(&rstd)?);
    let (rows, width) = rows_of(xs, gates, w)?;
    if dys.len() != xs.len() || rstds.len() != rows {
        return Err(KernelError::new(format!(
            "a gated norm's gradient of {rows} rows got dy of {} elements and {} statistics",
            dys.len(),
            rstds.len()
        )));
    }
    let chunks = rows.div_ceil(ROWS);
    let mut partials = vec![0.0f32; chunks * width];
    let reads = [&dy, &x, &gate, weight, &rstd];
    let outs = [
        Cut { data: ffi::slice_mut(&mut dx, &reads)?, chunk: ROWS * width },
        Cut { data: ffi::slice_mut(&mut dgate, &reads)?, chunk: ROWS * width },
        Cut { data: &mut partials, chunk: width },
    ];
    ffi::parallel_cuts(chunks, grain(ROWS * width), outs, |chunk, [dx, dgate, dw]| {
        let (at, count) = (chunk * ROWS * width, dx.len());
        let (dy, x, gate) = (&dys[at..][..count], &xs[at..][..count], &gates[at..][..count]);
        let rstd = &rstds[chunk * ROWS..][..count / width];
        ffi::run_on(isa, GatedNormBackward { dy, x, gate, w, rstd, order, dx, dgate, dw });
    });
    let out = ffi::slice_mut(&mut dweight, &[])?;
    out.fill(0.0);
    ffi::run_on(isa, AddRows { x: &partials, into: out });
    Ok([dx, dgate, dweight])
}

/// Rows and their width.
fn rows_of(x: &[f32], gate: &[f32], weight: &[f32]) -> Result<(usize, usize), KernelError> {
    let width = weight.len();
    if width == 0 || !x.len().is_multiple_of(width) || x.len() != gate.len() {
        return Err(KernelError::new(format!(
            "a gated norm over {width} of {} elements and {} of gate",
            x.len(),
            gate.len()
        )));
    }
    Ok((x.len() / width, width))
}

struct GatedNormForward<'a> {
    x: &'a [f32],
    gate: &'a [f32],
    w: &'a [f32],
    eps: f32,
    order: Gate,
    y: &'a mut [f32],
    rstd: &'a mut [f32],
}

impl Vectorised for GatedNormForward<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        let GatedNormForward { x, gate, w, eps, order, y, rstd } = self;
        let width = w.len();
        let rows = x.chunks_exact(width).zip(gate.chunks_exact(width));
        for (((x, gate), y), rstd) in rows.zip(y.chunks_exact_mut(width)).zip(rstd) {
            // y temporarily holds silu(gate), or u.
            y.iter_mut().zip(gate).for_each(|(y, gate)| *y = gate * sigmoid::<FMA>(*gate));
            match order {
                Gate::Before => {
                    y.iter_mut().zip(x).for_each(|(y, x)| *y *= x);
                    *rstd = 1.0 / (sum_squares::<FMA>(y) / width as f32 + eps).sqrt();
                    y.iter_mut().zip(w).for_each(|(y, w)| *y = *y * *rstd * w);
                }
                Gate::After => {
                    *rstd = 1.0 / (sum_squares::<FMA>(x) / width as f32 + eps).sqrt();
                    for ((y, x), w) in y.iter_mut().zip(x).zip(w) {
                        *y *= x * *rstd * w;
                    }
                }
            }
        }
    }
}

struct GatedNormBackward<'a> {
    dy: &'a [f32],
    x: &'a [f32],
    gate: &'a [f32],
    w: &'a [f32],
    rstd: &'a [f32],
    order: Gate,
    dx: &'a mut [f32],
    dgate: &'a mut [f32],
    /// This chunk's share is added to it.
    dw: &'a mut [f32],
}

impl Vectorised for GatedNormBackward<'_> {
    /// With s = silu(gate), n the normed input without its weight, and for the norm's own gradient g = d(weight ⊙ n) ⊙
    /// weight: d(normed) = rstd (g − n mean(g ⊙ n)).
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        let GatedNormBackward { dy, x, gate, w, rstd, order, dx, dgate, dw } = self;
        let width = w.len();
        let rows = dy.chunks_exact(width).zip(x.chunks_exact(width)).zip(gate.chunks_exact(width));
        let outs = dx.chunks_exact_mut(width).zip(dgate.chunks_exact_mut(width));
        for ((((dy, x), gate), (dx, dgate)), rstd) in rows.zip(outs).zip(rstd) {
            match order {
                Gate::Before => {
                    // dgate holds u, dx holds g.
                    for ((u, x), gate) in dgate.iter_mut().zip(x).zip(gate) {
                        *u = gate * sigmoid::<FMA>(*gate) * x;
                    }
                    dx.iter_mut().zip(dy).zip(w).for_each(|((g, dy), w)| *g = dy * w);
                    let along = dot::<FMA>(dx, dgate) * rstd * rstd / width as f32;
                    for ((dw, dy), u) in dw.iter_mut().zip(dy).zip(&*dgate) {
                        *dw = mul_add::<FMA>(dy * rstd, *u, *dw);
                    }
                    for (((dx, dgate), x), gate) in dx.iter_mut().zip(dgate).zip(x).zip(gate) {
                        let du = rstd * mul_add::<FMA>(-along, *dgate, *dx);
                        let s = sigmoid::<FMA>(*gate);
                        *dgate = du * x * (s * mul_add::<FMA>(*gate, 1.0 - s, 1.0));
                        *dx = du * (gate * s);
                    }
                }
                Gate::After => {
                    // dgate holds dn, the gradient of weight ⊙ n; dx holds g.
                    for ((dn, dy), gate) in dgate.iter_mut().zip(dy).zip(gate) {
                        *dn = dy * (gate * sigmoid::<FMA>(*gate));
                    }
                    dx.iter_mut().zip(&*dgate).zip(w).for_each(|((g, dn), w)| *g = dn * w);
                    let along = dot::<FMA>(dx, x) * rstd * rstd / width as f32;
                    for (((dx, x), dn), dw) in dx.iter_mut().zip(x).zip(&*dgate).zip(dw.iter_mut())
                    {
                        *dx = rstd * mul_add::<FMA>(-along, *x, *dx);
                        *dw = mul_add::<FMA>(dn * rstd, *x, *dw);
                    }
                    let row = dgate.iter_mut().zip(dy).zip(gate).zip(x).zip(w);
                    for ((((dgate, dy), gate), x), w) in row {
                        let s = sigmoid::<FMA>(*gate);
                        let n = x * rstd * w;
                        *dgate = dy * n * (s * mul_add::<FMA>(*gate, 1.0 - s, 1.0));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::super::path::{self, Reason};
    use super::*;

    const ASKED: Path = Path::Reference(Reason::Asked);
    const ORDERS: [Gate; 2] = [Gate::Before, Gate::After];
    const CPU: (Kind, Device) = (Kind::Float, Device::Cpu);

    fn run(path: Path, [x, gate, weight, dy]: [&Tensor; 4], order: Gate) -> Vec<Tensor> {
        let operands = GatedNormOperands { x, gate, weight };
        let (y, rstd) = forward(path, operands, 1e-5, order).unwrap();
        let gradients = backward(path, dy, operands, &rstd, order).unwrap();
        [y, rstd].into_iter().chain(gradients).collect()
    }

    /// Wide, narrow, strongly gated and empty.
    #[test]
    fn fused_is_the_reference() {
        let fused = path::choose(Kind::Float, Device::Cpu);
        for size in [[1i64, 1, 1, 1], [2, 70, 3, 17], [1, 3, 2, 256], [2, 0, 3, 8]] {
            for order in ORDERS {
                let width = size[3];
                let x = Tensor::randn(size, CPU);
                let (gate, dy) = (Tensor::randn(size, CPU) * 8.0, Tensor::randn(size, CPU));
                let weight = Tensor::randn([width], CPU);
                let double = [&x, &gate, &weight, &dy].map(|x| x.to_kind(Kind::Double));
                let want = run(ASKED, double.each_ref(), order);
                for (i, (got, want)) in
                    run(fused, [&x, &gate, &weight, &dy], order).iter().zip(&want).enumerate()
                {
                    assert_eq!(got.size(), want.size());
                    let got = got.to_kind(Kind::Double);
                    // A cancelled row of width 1 has a large rstd.
                    let scale =
                        if want.numel() == 0 { 1.0 } else { want.abs().max().double_value(&[]) };
                    let close = got.allclose(want, 2e-4, 2e-5 * scale.max(1.0), false);
                    assert!(close, "{size:?}, {order}, result {i}");
                }
            }
        }
    }

    /// In f64, by libtorch's own differentiation.
    #[test]
    fn the_reference_is_autograds() {
        let kind = (Kind::Double, Device::Cpu);
        for order in ORDERS {
            let leaf = |size: &[i64]| Tensor::randn(size, kind).set_requires_grad(true);
            let (x, gate, weight) = (leaf(&[2, 5, 3, 6]), leaf(&[2, 5, 3, 6]), leaf(&[6]));
            let dy = Tensor::randn([2, 5, 3, 6], kind);
            let normed = |u: &Tensor| {
                let mean = u.square().mean_dim([-1i64].as_slice(), true, None::<Kind>);
                u * (mean + 1e-5).rsqrt() * &weight
            };
            let y = match order {
                Gate::Before => normed(&(&x * gate.silu())),
                Gate::After => normed(&x) * gate.silu(),
            };
            let loss = (&y * &dy).sum(Kind::Double);
            let want = Tensor::run_backward(&[loss], &[&x, &gate, &weight], false, false);
            let plain = [&x, &gate, &weight].map(Tensor::detach);
            let [x, gate, weight] = plain.each_ref();
            let got = run(ASKED, [x, gate, weight, &dy], order);
            assert!(got[0].allclose(&y.detach(), 1e-12, 1e-12, false));
            for (got, want) in got[2..].iter().zip(&want) {
                assert!(got.allclose(want, 1e-10, 1e-11, false), "{order}");
            }
        }
    }

    #[test]
    fn threads_and_instructions_change_no_bit() {
        let path = path::choose(Kind::Float, Device::Cpu);
        let size = [2i64, 250, 4, 20];
        let [x, gate, dy] = std::array::from_fn(|_| Tensor::randn(size, CPU));
        let weight = Tensor::randn([20], CPU);
        let before = tch::get_num_threads();
        for order in ORDERS {
            let compute = |path| run(path, [&x, &gate, &weight, &dy], order);
            let [one, three] = [1, 3].map(|threads| {
                tch::set_num_threads(threads);
                compute(path)
            });
            tch::set_num_threads(before);
            assert!(one.iter().zip(&three).all(|(a, b)| a.equal(b)), "{order}");
            if Isa::Avx512.is_available() {
                let (wide, narrow) =
                    (compute(Path::Fused(Isa::Avx512)), compute(Path::Fused(Isa::Avx2)));
                assert!(wide.iter().zip(&narrow).all(|(a, b)| a.equal(b)), "{order}");
            }
        }
    }
}
