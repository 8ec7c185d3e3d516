//! The Canon layer: libtorch's grouped conv1d and shifted products, both with libtorch's autograd as in PyTorch code, and
//! our kernel. Residual, no activation, four taps.

use runtime::kernels::canon::{self, Activation, ConvOperands, Options};
use runtime::kernels::path::Path;
use runtime::{Device, Kind, Tensor};

use super::{Form, Result};

/// Sequences, tokens, channels: the two shapes of the claim about speed.
pub(super) const SHAPES: [[i64; 3]; 2] = [[4, 1024, 768], [8, 512, 256]];
const TAPS: i64 = 4;
const OPTIONS: Options = Options { residual: true, activation: Activation::Identity };

pub(super) struct CanonCase {
    x: Tensor,
    dy: Tensor,
    weight: Tensor,
}

impl CanonCase {
    pub(super) fn new([batch, time, channels]: [i64; 3]) -> Result<CanonCase> {
        let cpu = (Kind::Float, Device::Cpu);
        Ok(CanonCase {
            x: Tensor::f_randn([batch, time, channels], cpu)?,
            dy: Tensor::f_randn([batch, time, channels], cpu)?,
            weight: Tensor::f_randn([channels, TAPS], cpu)?,
        })
    }

    pub(super) fn path(&self) -> Path {
        canon::choose(TAPS, Kind::Float, Device::Cpu)
    }

    pub(super) fn forms(&self) -> Vec<Form<'_>> {
        let autograd = |name, layer: fn(&Tensor, &Tensor) -> Result<Tensor>| Form {
            has_loss: true,
            ..Form::new(name, move || self.autograd(layer))
        };
        vec![
            autograd("libtorch conv1d", by_conv1d),
            autograd("shifted sums", by_shifts),
            Form::new("canonc", || self.ours()),
        ]
    }

    /// The same loss without the layer.
    pub(super) fn loss(&self) -> Form<'_> {
        Form::new("loss", || self.autograd(|x, _| Ok(x.f_mul_scalar(1.0)?)))
    }

    fn ours(&self) -> Result<Vec<Tensor>> {
        let CanonCase { x, dy, weight } = self;
        let operands = ConvOperands { inputs: &[x], weight, bias: None, state: None };
        let mut results = canon::forward(self.path(), operands, OPTIONS)?;
        let gradients = canon::backward(self.path(), &[dy], operands, OPTIONS)?;
        results.extend(gradients.inputs);
        results.push(gradients.weight);
        Ok(results)
    }

    /// y and the gradients of x and weight, through libtorch's autograd.
    fn autograd(&self, layer: impl Fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Vec<Tensor>> {
        let x = self.x.f_detach()?.f_set_requires_grad(true)?;
        let weight = self.weight.f_detach()?.f_set_requires_grad(true)?;
        let y = layer(&x, &weight)?;
        // The unused term keeps `weight` in the graph of a layer that does not use it.
        let unused = weight.f_sum(None::<Kind>)?.f_mul_scalar(0.0)?;
        let loss = y.f_mul(&self.dy)?.f_sum(None::<Kind>)?.f_add(&unused)?;
        let mut results = vec![y.f_detach()?];
        results.extend(Tensor::f_run_backward(&[loss], &[x, weight], false, false)?);
        Ok(results)
    }
}

fn by_conv1d(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let (time, channels) = (x.size()[1], x.size()[2]);
    let y = x
        .f_transpose(1, 2)?
        .f_conv1d(&weight.f_unsqueeze(1)?, None::<Tensor>, 1, TAPS - 1, 1, channels)?
        .f_narrow(2, 0, time)?
        .f_transpose(1, 2)?;
    Ok(y.f_add(x)?)
}

fn by_shifts(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let padded = x.f_constant_pad_nd([0, 0, TAPS - 1, 0])?;
    let mut y = x.shallow_clone();
    for tap in 0..TAPS {
        let shifted = padded.f_narrow(1, tap, x.size()[1])?;
        y = y.f_add(&shifted.f_mul(&weight.f_select(1, tap)?)?)?;
    }
    Ok(y)
}
