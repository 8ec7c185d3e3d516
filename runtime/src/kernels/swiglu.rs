//! The gated unit of an MLP, silu(gate) ⊙ up (Shazeer 2020), and its gradients.
//!
//! It is elementwise, so the bits do not depend on threads or register width.

use tch::{Kind, Tensor};

use super::ffi::{self, Cut, Vectorised};
use super::lanes::{load, mul_add, sigmoid, store};
use super::linear::grain;
use super::path::Path;
use super::{KernelError, cuda};

const CHUNK: usize = 4096;

pub fn forward(path: Path, gate: &Tensor, up: &Tensor) -> Result<Tensor, KernelError> {
    let isa = match path {
        Path::Fused(isa) => isa,
        Path::Cuda(_) => {
            return cuda::swiglu::forward(cuda::launcher(gate.device())?, gate, up);
        }
        Path::Reference(_) => return Ok(gate.f_silu()?.f_mul(up)?),
    };
    let (gate, up) = (gate.f_contiguous()?, up.f_contiguous()?);
    let mut y = Tensor::f_empty(gate.size(), (Kind::Float, gate.device()))?;
    let (gates, ups) = (ffi::slice(&gate)?, ffi::slice(&up)?);
    same(gates.len(), ups.len())?;
    let out = ffi::slice_mut(&mut y, &[&gate, &up])?;
    ffi::parallel_cuts(
        gates.len().div_ceil(CHUNK),
        grain(CHUNK),
        [Cut { data: out, chunk: CHUNK }],
        |chunk, [y]| {
            let at = chunk * CHUNK;
            let (gate, up) = (&gates[at..][..y.len()], &ups[at..][..y.len()]);
            ffi::run_on(isa, SwiGluForward { gate, up, y });
        },
    );
    Ok(y)
}

/// (dgate, dup): dgate = dy ⊙ up ⊙ σ (1 + gate (1 − σ)), dup = dy ⊙ gate ⊙ σ, σ = sigmoid(gate).
pub fn backward(
    path: Path,
    dy: &Tensor,
    gate: &Tensor,
    up: &Tensor,
) -> Result<(Tensor, Tensor), KernelError> {
    let isa = match path {
        Path::Fused(isa) => isa,
        Path::Cuda(_) => {
            return cuda::swiglu::backward(cuda::launcher(gate.device())?, dy, gate, up);
        }
        Path::Reference(_) => {
            let dgate = gate.f_silu_backward(&dy.f_mul(up)?)?;
            return Ok((dgate, gate.f_silu()?.f_mul(dy)?));
        }
    };
    let (dy, gate, up) = (dy.f_contiguous()?, gate.f_contiguous()?, up.f_contiguous()?);
    let options = (Kind::Float, gate.device());
    let mut dgate = Tensor::f_empty(gate.size(), options)?;
    let mut dup = Tensor::f_empty(gate.size(), options)?;
    let (dys, gates, ups) = (ffi::slice(&dy)?, ffi::slice(&gate)?, ffi::slice(&up)?);
    same(gates.len(), ups.len())?;
    same(gates.len(), dys.len())?;
    let reads = [&dy, &gate, &up];
    let outs = [ffi::slice_mut(&mut dgate, &reads)?, ffi::slice_mut(&mut dup, &reads)?];
    ffi::parallel_cuts(
        gates.len().div_ceil(CHUNK),
        grain(CHUNK),
        outs.map(|data| Cut { data, chunk: CHUNK }),
        |chunk, [dgate, dup]| {
            let (at, count) = (chunk * CHUNK, dgate.len());
            let (dy, gate, up) = (&dys[at..][..count], &gates[at..][..count], &ups[at..][..count]);
            ffi::run_on(isa, SwiGluBackward { dy, gate, up, dgate, dup });
        },
    );
    Ok((dgate, dup))
}

fn same(a: usize, b: usize) -> Result<(), KernelError> {
    if a == b {
        return Ok(());
    }
    Err(KernelError::new(format!("swiglu of {a} and {b} elements")))
}

struct SwiGluForward<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    y: &'a mut [f32],
}

impl Vectorised for SwiGluForward<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        #[inline(always)]
        fn strip<const FMA: bool, const W: usize>(work: &mut SwiGluForward<'_>, at: usize) {
            let (gate, up) = (load::<W>(work.gate, at), load::<W>(work.up, at));
            let y: [f32; W] = std::array::from_fn(|l| gate[l] * sigmoid::<FMA>(gate[l]) * up[l]);
            store(work.y, at, &y);
        }
        let mut work = self;
        let count = work.y.len();
        let bulk = count - count % LANES;
        (0..bulk).step_by(LANES).for_each(|at| strip::<FMA, LANES>(&mut work, at));
        (bulk..count).for_each(|at| strip::<FMA, 1>(&mut work, at));
    }
}

struct SwiGluBackward<'a> {
    dy: &'a [f32],
    gate: &'a [f32],
    up: &'a [f32],
    dgate: &'a mut [f32],
    dup: &'a mut [f32],
}

impl Vectorised for SwiGluBackward<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        #[inline(always)]
        fn strip<const FMA: bool, const W: usize>(work: &mut SwiGluBackward<'_>, at: usize) {
            let (gate, up) = (load::<W>(work.gate, at), load::<W>(work.up, at));
            let dy = load::<W>(work.dy, at);
            let (mut dgate, mut dup) = ([0.0; W], [0.0; W]);
            for l in 0..W {
                let s = sigmoid::<FMA>(gate[l]);
                dgate[l] = dy[l] * up[l] * (s * mul_add::<FMA>(gate[l], 1.0 - s, 1.0));
                dup[l] = dy[l] * (gate[l] * s);
            }
            store(work.dgate, at, &dgate);
            store(work.dup, at, &dup);
        }
        let mut work = self;
        let count = work.dgate.len();
        let bulk = count - count % LANES;
        (0..bulk).step_by(LANES).for_each(|at| strip::<FMA, LANES>(&mut work, at));
        (bulk..count).for_each(|at| strip::<FMA, 1>(&mut work, at));
    }
}
