//! The head's projection and cross-entropy, by chunks of tokens: x [b, t, i], weight [v, i] and targets [b, t] to
//! losses and likeliest tokens, or to the loss and the gradients of x, weight and bias.
//!
//! At most `rows` × v logits exist at once. Chunks are in (batch, time) order, and their sums are added in that order.
//! One chunk has the same bits as the separate kernels, which are the reference.

use tch::{Kind, Tensor};

use super::linear::{Product, linear_grad_input, linear_grad_weight, sum_tokens};
use super::loss::{self, Losses, Terms};
use super::path::Path;
use super::{KernelError, matmul};

/// Operands, and the size of a chunk.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// [b, t, i]
    pub x: &'a Tensor,
    /// [v, i]
    pub weight: &'a Tensor,
    /// \[v\]
    pub bias: Option<&'a Tensor>,
    /// [b, t] i64
    pub targets: &'a Tensor,
    pub product: Product,
    pub terms: Terms,
    /// Tokens of a chunk.
    pub rows: i64,
}

/// Results of an evaluation.
#[derive(Debug)]
pub struct Scores {
    /// [b, t]: −ln p(target), 0 where ignored.
    pub nll: Tensor,
    /// [] f64
    pub loss: Tensor,
    /// [] i64
    pub counted: Tensor,
    /// [b, t] i64
    pub argmax: Tensor,
}

/// The loss and its gradients, shaped like their operands.
#[derive(Debug)]
pub struct Gradients {
    /// [] f64
    pub loss: Tensor,
    /// [] i64
    pub counted: Tensor,
    pub x: Tensor,
    pub weight: Tensor,
    pub bias: Option<Tensor>,
}

/// A chunk's operands: x [r, i] and targets \[r\].
struct Chunk {
    x: Tensor,
    targets: Tensor,
}

impl Head<'_> {
    fn chunks(&self) -> Result<Vec<Chunk>, KernelError> {
        let x = self.x.f_flatten(0, -2)?.f_split(self.rows, 0)?;
        let targets = self.targets.f_flatten(0, -1)?.f_split(self.rows, 0)?;
        Ok(x.into_iter().zip(targets).map(|(x, targets)| Chunk { x, targets }).collect())
    }

    fn wide(&self, tensor: Tensor) -> Result<Tensor, KernelError> {
        Ok(if tensor.kind() == Kind::BFloat16 { tensor.f_to_kind(Kind::Float)? } else { tensor })
    }

    /// The weight's gradient [v, i] in f32, from a chunk's d [r, v] and x [r, i].
    fn grad_weight(&self, path: Path, d: &Tensor, x: &Tensor) -> Result<Tensor, KernelError> {
        match path {
            // cuBLAS adds in f32 and need not round the sum. libtorch has this product only for GPUs.
            Path::Cuda(_) if d.kind() == Kind::BFloat16 => {
                Ok(d.f_transpose(0, 1)?.f_mm_dtype(x, Kind::Float)?)
            }
            Path::Cuda(_) | Path::Fused(_) | Path::Reference(_) => {
                self.wide(linear_grad_weight(self.product, d, x)?)
            }
        }
    }

    fn projection(&self) -> Result<Projection<'_>, KernelError> {
        let ours = match self.product {
            Product::Library | Product::FewRows(..) | Product::ByRow(_) => None,
            Product::Tiles(isa) => Some(matmul::Right::new(isa, &self.weight.f_transpose(0, 1)?)?),
        };
        Ok(Projection { head: self, ours })
    }
}

/// The head's weight, rearranged once for all chunks if the product is ours.
struct Projection<'a> {
    head: &'a Head<'a>,
    ours: Option<matmul::Right>,
}

impl Projection<'_> {
    /// A chunk's logits [r, v].
    fn logits(&self, path: Path, chunk: &Chunk) -> Result<Tensor, KernelError> {
        let Head { weight, bias, targets: _, x: _, product: _, terms: _, rows: _ } = *self.head;
        Ok(match &self.ours {
            // bf16 logits are exact in f32.
            None => {
                let logits = chunk.x.f_linear(weight, bias)?;
                // Our CUDA kernels read bf16.
                if matches!(path, Path::Cuda(_)) { logits } else { self.head.wide(logits)? }
            }
            Some(ours) => {
                let mut logits = ours.product(&chunk.x)?;
                if let Some(bias) = bias {
                    let _ = logits.f_add_(bias)?;
                }
                logits
            }
        })
    }
}

pub fn forward(path: Path, head: Head<'_>) -> Result<Scores, KernelError> {
    let size = head.targets.size();
    let (mut nll, mut argmax) = (Vec::new(), Vec::new());
    let mut total = Total::default();
    let projection = head.projection()?;
    for chunk in head.chunks()? {
        let logits = projection.logits(path, &chunk)?;
        let losses = loss::forward(path, &logits, &chunk.targets, head.terms)?;
        argmax.push(match &losses.likeliest {
            Some(likeliest) => likeliest.shallow_clone(),
            None => loss::argmax(&logits)?,
        });
        total.add(&losses)?;
        nll.push(losses.nll);
    }
    let (loss, counted) = total.finish()?;
    Ok(Scores {
        nll: Tensor::f_cat(&nll, 0)?.f_reshape(&size)?,
        loss,
        counted,
        argmax: Tensor::f_cat(&argmax, 0)?.f_reshape(&size)?,
    })
}

/// `scale` multiplies every gradient.
pub fn backward(path: Path, head: Head<'_>, scale: f64) -> Result<Gradients, KernelError> {
    let mut total = Total::default();
    let mut dx = Vec::new();
    let (mut dweight, mut dbias): (Option<Tensor>, Option<Tensor>) = (None, None);
    let product = head.product;
    let projection = head.projection()?;
    for chunk in head.chunks()? {
        let logits = projection.logits(path, &chunk)?;
        // [r, v]
        let (losses, d) = loss::both(path, &logits, &chunk.targets, scale, head.terms)?;
        total.add(&losses)?;
        let bias = match head.bias {
            None => None,
            Some(_) => Some(sum_tokens(path, &d.f_unsqueeze(0)?)?),
        };
        let d = d.f_to_kind(head.x.kind())?;
        dx.push(linear_grad_input(product, &d, head.weight)?);
        match &mut dweight {
            None => dweight = Some(head.grad_weight(path, &d, &chunk.x)?),
            Some(sum) if d.kind() == Kind::BFloat16 => {
                let _ = sum.f_add_(&head.grad_weight(path, &d, &chunk.x)?)?;
            }
            Some(sum) => {
                let d = d.f_transpose(0, 1)?;
                if let Product::Tiles(isa) = product {
                    matmul::add_product(isa, sum, &d, &chunk.x)?;
                } else {
                    let _ = sum.f_addmm_(&d, &chunk.x)?;
                }
            }
        }
        if let Some(sum) = bias {
            dbias = Some(match dbias {
                None => sum,
                Some(before) => before.f_add(&sum)?,
            });
        }
    }
    let (loss, counted) = total.finish()?;
    let weight = match dweight {
        Some(sum) => sum,
        None => head.weight.f_zeros_like()?,
    };
    let x = match dx.as_slice() {
        [only] => only.f_reshape(head.x.size())?,
        several => Tensor::f_cat(several, 0)?.f_reshape(head.x.size())?,
    };
    Ok(Gradients { loss, counted, x, weight, bias: dbias })
}

/// Sums over chunks.
#[derive(Default)]
struct Total {
    loss: Option<Tensor>,
    counted: Option<Tensor>,
}

impl Total {
    fn add(&mut self, chunk: &Losses) -> Result<(), KernelError> {
        for (sum, more) in [(&mut self.loss, &chunk.loss), (&mut self.counted, &chunk.counted)] {
            *sum = Some(match sum.take() {
                None => more.shallow_clone(),
                Some(before) => before.f_add(more)?,
            });
        }
        Ok(())
    }

    fn finish(self) -> Result<(Tensor, Tensor), KernelError> {
        let zero = |kind: Kind| Tensor::f_zeros([], (kind, tch::Device::Cpu));
        Ok((
            self.loss.map_or_else(|| zero(Kind::Double), Ok)?,
            self.counted.map_or_else(|| zero(Kind::Int64), Ok)?,
        ))
    }
}
