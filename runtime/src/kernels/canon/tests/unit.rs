//! Tests of a Canon layer and the gated unit after it as one kernel.

use super::super::super::swiglu;
use super::*;

/// All results of a layer with its gated unit; forward also continues from a state.
fn run_gated(path: Path, dy: &Tensor, operands: ConvOperands<'_>, residual: bool) -> Vec<Tensor> {
    let y = gated::forward(path, operands, residual).unwrap();
    let fresh = ConvOperands { state: None, ..operands };
    let Gradients { inputs, weight, bias, .. } =
        gated::backward(path, dy, fresh, residual).unwrap();
    [y].into_iter().chain(inputs).chain([weight]).chain(bias).collect()
}

/// The same with the fused kernels one after the other.
fn run_apart(path: Path, dy: &Tensor, operands: ConvOperands<'_>, residual: bool) -> Vec<Tensor> {
    let options = Options { residual, activation: Activation::Identity };
    let convolved = forward(path, operands, options).unwrap();
    let y = swiglu::forward(path, &convolved[0], &convolved[1]).unwrap();
    let fresh = ConvOperands { state: None, ..operands };
    let convolved = forward(path, fresh, options).unwrap();
    let (dg, du) = swiglu::backward(path, dy, &convolved[0], &convolved[1]).unwrap();
    let Gradients { inputs, weight, bias, .. } =
        backward(path, &[&dg, &du], fresh, options).unwrap();
    [y].into_iter().chain(inputs).chain([weight]).chain(bias).collect()
}

/// A fused layer with its gated unit is near the reference, and has the bits of the two fused kernels, on any
/// instruction set.
#[test]
fn a_gated_unit_after_the_layer_equals_both_apart() {
    for (case, &(batch, time, width)) in
        [(1, 1, 1), (2, 2, 16), (3, 5, 33), (2, 64, 40), (1, 66, 7), (2, 131, 150)]
            .iter()
            .enumerate()
    {
        for kernel in FUSED_KERNELS {
            for (residual, with_state) in [(true, false), (false, true), (true, true)] {
                let what = format!("case {case}, kernel {kernel}, {residual}, state {with_state}");
                let inputs = parts(batch, time, &[width, width], CPU);
                let dy = Tensor::randn([batch, time, width], CPU);
                let weight = Tensor::randn([2 * width, kernel], CPU);
                let noise = Tensor::randn([2 * width], CPU);
                let past = Tensor::randn([batch, kernel - 1, 2 * width], CPU);
                let operands = ConvOperands {
                    inputs: &refs(&inputs),
                    weight: &weight,
                    bias: (case % 2 == 0).then_some(&noise),
                    state: with_state.then_some(&past),
                };
                let want = run_gated(ASKED, &dy, operands, residual);
                for isa in [Isa::Avx512, Isa::Avx2, Isa::Portable] {
                    if isa.is_available() {
                        let path = Path::Fused(isa);
                        let got = run_gated(path, &dy, operands, residual);
                        assert_close(&got, &want, 5e-6, &format!("{what}, {isa}"));
                        let apart = run_apart(path, &dy, operands, residual);
                        assert_same_bits(&got, &apart, &format!("{what}, {isa}"));
                    }
                }
            }
        }
    }
}

#[test]
fn a_gated_unit_has_the_same_bits_on_one_thread_and_more() {
    let before = tch::get_num_threads();
    let inputs = parts(3, 300, &[130, 130], CPU);
    let inputs = refs(&inputs);
    let (dy, weight) = (Tensor::randn([3, 300, 130], CPU), Tensor::randn([260, 4], CPU));
    let operands = ConvOperands { inputs: &inputs, weight: &weight, bias: None, state: None };
    let [one, two, five] = [1, 2, 5].map(|threads| {
        tch::set_num_threads(threads);
        run_gated(fused(4), &dy, operands, true)
    });
    tch::set_num_threads(before);
    assert_same_bits(&one, &two, "1 and 2 threads");
    assert_same_bits(&one, &five, "1 and 5 threads");
    let other = Tensor::zeros([3, 300, 131], CPU);
    let weight = Tensor::zeros([261, 4], CPU);
    let operands =
        ConvOperands { inputs: &[inputs[0], &other], weight: &weight, bias: None, state: None };
    let error = gated::forward(fused(4), operands, true).unwrap_err();
    assert_eq!(error.to_string(), "a gated unit takes gate and up of one shape");
}
