//! The Canon layer in Rust, f32 on the CPU. A unit of work is a block of BLOCK time steps of one batch item, which
//! strips.rs processes; results are written in place.
//!
//! Block boundaries follow from the shape alone, and a filter's gradient is summed over the rows of a block, then over
//! blocks, always in the same order, so the bits do not depend on threads or register width.

use tch::Tensor;

use super::super::ffi::{self, Rows, RowsMut};
use super::super::{Isa, KernelError};
use super::strips::{BLOCK, ConvInput, Slopes, StripBackward, StripForward, run_on};
use super::{ConvOperands, FUSED_KERNELS, Gradients, Options, Shape};

pub(super) fn forward(
    isa: Isa,
    shape: &Shape,
    operands: ConvOperands<'_>,
    options: Options,
    outputs: &mut [Tensor],
) -> Result<(), KernelError> {
    let parts = Parts::new(shape, operands)?;
    for (i, output) in outputs.iter_mut().enumerate() {
        let source = parts.source(i)?;
        let mut out = RowsMut::from_tensor(output, &parts.reads(i))?;
        ffi::parallel_blocks(
            [&mut out],
            BLOCK,
            &mut [],
            0,
            || (),
            |(), block, [mut rows], _| {
                run_on(
                    isa,
                    parts.kernel,
                    StripForward { source: &source, options, block, rows: &mut rows },
                );
            },
        );
    }
    Ok(())
}

pub(super) fn backward(
    isa: Isa,
    shape: &Shape,
    grads: &[&Tensor],
    operands: ConvOperands<'_>,
    options: Options,
    into: &mut Gradients,
) -> Result<(), KernelError> {
    let parts = Parts::new(shape, operands)?;
    let kernel = parts.kernel;
    let sums = kernel + usize::from(operands.bias.is_some()); // the taps, then the bias
    let mut filter = vec![0.0; sums * parts.channels]; // [k or k+1, c]
    for (i, input) in into.inputs.iter_mut().enumerate() {
        let (source, dy) = (parts.source(i)?, Rows::from_tensor(grads[i])?);
        let mut reads = parts.reads(i);
        reads.push(grads[i]);
        let mut out = RowsMut::from_tensor(input, &reads)?;
        let width = source.channels;
        let mut partials = vec![0.0; ffi::block_count(dy.sizes(), BLOCK) * sums * width]; // [blocks, k or k+1, c_i]
        ffi::parallel_blocks(
            [&mut out],
            BLOCK,
            &mut partials,
            sums * width,
            Vec::new,
            |local, block, [mut rows], partial| {
                let rows = &mut rows;
                run_on(
                    isa,
                    kernel,
                    StripBackward { source: &source, dy, options, block, rows, partial, local },
                );
            },
        );
        for partial in partials.chunks_exact((sums * width).max(1)) {
            parts.add(&mut filter, i, partial, width);
        }
    }
    parts.write(&filter, &mut into.weight, into.bias.as_mut())?;
    if let Some(into) = &mut into.state {
        state_gradient(isa, shape, &parts, grads, options, into)?;
    }
    Ok(())
}

/// d state[s] = sum_j w[j] dp[s - j]: k-1 rows, so plain loops.
fn state_gradient(
    isa: Isa,
    shape: &Shape,
    parts: &Parts<'_>,
    grads: &[&Tensor],
    options: Options,
    into: &mut Tensor,
) -> Result<(), KernelError> {
    let past = parts.kernel - 1;
    let reads: Vec<&Tensor> =
        parts.operands.inputs.iter().chain(grads).copied().chain(parts.operands.state).collect();
    let into = ffi::slice_mut(into, &reads)?; // [b, k-1, c]
    for (i, &(first, width)) in shape.parts.iter().enumerate() {
        let (first, width) = (first as usize, width as usize);
        let (source, dy) = (parts.source(i)?, Rows::from_tensor(grads[i])?);
        for batch in 0..shape.batch as usize {
            let rows = past.min(shape.time as usize);
            let mut dp = vec![0.0; rows * width];
            run_on(
                isa,
                parts.kernel,
                Slopes { source: &source, dy, options, batch, first: 0, into: &mut dp },
            );
            for s in 0..past {
                let row = &mut into[(batch * past + s) * parts.channels + first..][..width];
                row.fill(0.0);
                for tap in 0..=s {
                    let Some(slopes) = dp.chunks_exact(width).nth(s - tap) else { continue };
                    for ((value, w), slope) in row.iter_mut().zip(source.taps[tap]).zip(slopes) {
                        *value += w * slope;
                    }
                }
            }
        }
    }
    Ok(())
}

/// Operands in the loops' layout: the filter by tap, the state by input.
pub(super) struct Parts<'a> {
    operands: ConvOperands<'a>,
    states: Vec<Option<Tensor>>,
    taps: Vec<f32>, // [k, c]
    zeros: Vec<f32>,
    bias: Option<&'a [f32]>,
    firsts: Vec<usize>,
    pub(super) channels: usize,
    pub(super) kernel: usize,
}

impl<'a> Parts<'a> {
    pub(super) fn new(shape: &Shape, operands: ConvOperands<'a>) -> Result<Self, KernelError> {
        if !FUSED_KERNELS.contains(&shape.kernel) {
            let message = format!("the fused Canon path takes kernels 2..=8, not {}", shape.kernel);
            return Err(KernelError::new(message));
        }
        let (channels, kernel) = (shape.channels as usize, shape.kernel as usize);
        let weight = ffi::slice(operands.weight)?; // [c, k]
        let taps =
            (0..kernel).flat_map(|tap| weight.iter().skip(tap).step_by(kernel).copied()).collect();
        let states = shape
            .parts
            .iter()
            .map(|&(first, width)| operands.state.map(|s| s.f_narrow(2, first, width)).transpose());
        Ok(Self {
            states: states.collect::<Result<_, _>>()?,
            taps,
            zeros: vec![0.0; channels],
            bias: operands.bias.map(ffi::slice).transpose()?,
            firsts: shape.parts.iter().map(|part| part.0 as usize).collect(),
            operands,
            channels,
            kernel,
        })
    }

    pub(super) fn source(&self, i: usize) -> Result<ConvInput<'_>, KernelError> {
        let rows = Rows::from_tensor(self.operands.inputs[i])?;
        let [_, time, channels] = rows.sizes();
        let taps = |tap: usize| {
            &self.taps[tap.min(self.kernel - 1) * self.channels + self.firsts[i]..][..channels]
        };
        Ok(ConvInput {
            rows,
            state: self.states[i].as_ref().map(Rows::from_tensor).transpose()?,
            taps: std::array::from_fn(taps),
            zeros: &self.zeros[..channels],
            bias: &self.bias.unwrap_or(&self.zeros)[self.firsts[i]..][..channels],
            time,
            channels,
            kernel: self.kernel,
        })
    }

    /// Adds a block's share of input i's filter gradient, [k or k+1, c_i], to the whole, [k or k+1, c].
    pub(super) fn add(&self, filter: &mut [f32], i: usize, partial: &[f32], width: usize) {
        for (tap, sums) in partial.chunks_exact(width.max(1)).enumerate() {
            let sums_of_tap = &mut filter[tap * self.channels + self.firsts[i]..][..width];
            sums_of_tap.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
        }
    }

    /// Writes the filter's gradient, [k or k+1, c], as the weight's [c, k] and the bias's \[c\].
    pub(super) fn write(
        &self,
        filter: &[f32],
        weight: &mut Tensor,
        bias: Option<&mut Tensor>,
    ) -> Result<(), KernelError> {
        let weight = ffi::slice_mut(weight, &[])?; // [c, k]
        for (channel, taps) in weight.chunks_exact_mut(self.kernel).enumerate() {
            for (tap, value) in taps.iter_mut().enumerate() {
                *value = filter[tap * self.channels + channel];
            }
        }
        if let Some(bias) = bias {
            ffi::slice_mut(bias, &[])?.copy_from_slice(&filter[self.kernel * self.channels..]);
        }
        Ok(())
    }

    /// The tensors that a result for input i must not overwrite.
    pub(super) fn reads(&self, i: usize) -> Vec<&Tensor> {
        let given = [self.operands.inputs[i], self.operands.weight];
        given.into_iter().chain(self.operands.bias).chain(&self.states[i]).collect()
    }
}
