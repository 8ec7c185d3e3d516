//! Tests of the fused path against the reference, of both against libtorch's autograd of a grouped conv1d, of the
//! reference against finite differences, and of the laws: streaming, thread counts, paths.

mod unit;

use proptest::prelude::*;
use tch::{Device, Kind, Tensor};

use super::super::Isa;
use super::*;

const CPU: (Kind, Device) = (Kind::Float, Device::Cpu);
const ASKED: Path = Path::Reference(Reason::Asked);
const ALL_OPTIONS: [Options; 4] = [
    Options { residual: true, activation: Activation::Identity },
    Options { residual: false, activation: Activation::Identity },
    Options { residual: true, activation: Activation::Silu },
    Options { residual: false, activation: Activation::Silu },
];

/// All results of a layer for some operands: outputs, gradients of inputs, weight and state, next state.
fn run(path: Path, grads: &[&Tensor], operands: ConvOperands<'_>, options: Options) -> Vec<Tensor> {
    let mut all = forward(path, operands, options).unwrap();
    let Gradients { inputs, weight, bias, state } =
        backward(path, grads, operands, options).unwrap();
    all.extend(inputs);
    all.push(weight);
    all.extend(bias);
    all.extend(state);
    all
}

/// The same with libtorch: autograd of a grouped conv1d over state ++ concatenated inputs.
fn autograd(grads: &[&Tensor], operands: ConvOperands<'_>, options: Options) -> Vec<Tensor> {
    let ConvOperands { inputs, weight, bias, state } = operands;
    let leaf = |t: &Tensor| t.copy().set_requires_grad(true);
    let xs: Vec<Tensor> = inputs.iter().map(|x| leaf(x)).collect();
    let (w, b, s) = (leaf(weight), bias.map(leaf), state.map(leaf));
    let x = Tensor::cat(&xs, 2);
    let kernel = *weight.size().last().unwrap();
    let channels = x.size()[2];
    let padded = match &s {
        Some(s) => Tensor::cat(&[s, &x], 1),
        None => x.constant_pad_nd([0, 0, kernel - 1, 0]),
    };
    let filter = w.reshape([channels, 1, kernel]);
    let conv =
        padded.transpose(1, 2).conv1d(&filter, b.as_ref(), 1, 0, 1, channels).transpose(1, 2);
    let acted = if options.activation == Activation::Silu { conv.silu() } else { conv };
    let y = if options.residual { &acted + &x } else { acted };
    let widths: Vec<i64> = inputs.iter().map(|x| x.size()[2]).collect();
    let mut all: Vec<Tensor> = y.detach().split_with_sizes(widths.as_slice(), 2);
    let leaves: Vec<&Tensor> = xs.iter().chain([&w]).chain(&b).chain(&s).collect();
    let loss = (y * Tensor::cat(grads, 2)).sum(y_kind(grads));
    all.extend(Tensor::run_backward(&[loss], &leaves, false, false));
    all
}

fn y_kind(grads: &[&Tensor]) -> Kind {
    grads[0].kind()
}

#[track_caller]
fn assert_close(got: &[Tensor], want: &[Tensor], tolerance: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert_eq!(got.size(), want.size(), "{what}, result {i}");
        if want.numel() == 0 {
            continue;
        }
        let scale = want.abs().max().double_value(&[]).max(1.0);
        let difference = (got - want).abs().max().double_value(&[]) / scale;
        assert!(difference <= tolerance, "{what}, result {i}: off by {difference:e} of {scale}");
    }
}

fn assert_same_bits(a: &[Tensor], b: &[Tensor], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        assert!(a.equal(b), "{what}, result {i} has other bits");
    }
}

fn fused(kernel: i64) -> Path {
    let path = choose(kernel, Kind::Float, Device::Cpu);
    assert!(matches!(path, Path::Fused(_)), "kernel {kernel} f32 on the CPU took {path}");
    path
}

/// Packed [b, t, sum c_i] noise and its parts, which have a row stride larger than c_i.
fn parts(batch: i64, time: i64, widths: &[i64], kind: (Kind, Device)) -> Vec<Tensor> {
    let packed = Tensor::randn([batch, time, widths.iter().sum()], kind);
    packed.split_with_sizes(widths, 2)
}

fn refs(tensors: &[Tensor]) -> Vec<&Tensor> {
    tensors.iter().collect()
}

/// (batch, time, channels of each input): time below, at and beyond kernels and blocks; odd and tiny widths.
const SHAPES: &[(i64, i64, &[i64])] = &[
    (1, 1, &[1]),
    (2, 1, &[16]),
    (1, 2, &[5]),
    (3, 3, &[17, 1]),
    (2, 7, &[33]),
    (1, 9, &[16, 8, 8]),
    (2, 63, &[7]),
    (2, 64, &[40]),
    (1, 65, &[31, 3]),
    (2, 130, &[48]),
    (1, 200, &[1, 2, 3]),
    (5, 71, &[64]),
];

#[test]
fn fused_equals_reference_equals_libtorch() {
    for (case, &(batch, time, widths)) in SHAPES.iter().enumerate() {
        for kernel in FUSED_KERNELS {
            for options in ALL_OPTIONS {
                for with_state in [false, true] {
                    let channels: i64 = widths.iter().sum();
                    let (inputs, grads) =
                        (parts(batch, time, widths, CPU), parts(batch, time, widths, CPU));
                    let (inputs, grads) = (refs(&inputs), refs(&grads));
                    let weight = Tensor::randn([channels, kernel], CPU);
                    let state =
                        with_state.then(|| Tensor::randn([batch, kernel - 1, channels], CPU));
                    let noise = Tensor::randn([channels], CPU);
                    let bias = (case % 2 == 0).then_some(&noise);
                    let state = state.as_ref();
                    let operands = ConvOperands { inputs: &inputs, weight: &weight, bias, state };
                    let what =
                        format!("shape {case}, kernel {kernel}, {options:?}, state {with_state}");
                    let oracle = autograd(&grads, operands, options);
                    let fused = run(fused(kernel), &grads, operands, options);
                    assert_close(&fused, &oracle, 4e-6, &format!("fused, {what}"));
                    let reference = run(ASKED, &grads, operands, options);
                    assert_close(&reference, &oracle, 4e-6, &format!("reference, {what}"));
                }
            }
        }
    }
}

#[test]
fn instruction_sets_agree_to_the_bit_where_they_fuse() {
    let inputs = parts(2, 75, &[37, 16], CPU);
    let inputs = refs(&inputs);
    let grads = parts(2, 75, &[37, 16], CPU);
    let grads = refs(&grads);
    let weight = Tensor::randn([53, 4], CPU);
    let state = Tensor::randn([2, 3, 53], CPU);
    let bias = Tensor::randn([53], CPU);
    let operands =
        ConvOperands { inputs: &inputs, weight: &weight, bias: Some(&bias), state: Some(&state) };
    for options in ALL_OPTIONS {
        let compute = |isa| run(Path::Fused(isa), &grads, operands, options);
        assert_close(
            &compute(Isa::Portable),
            &autograd(&grads, operands, options),
            4e-6,
            "portable",
        );
        if Isa::Avx512.is_available() {
            assert_same_bits(&compute(Isa::Avx512), &compute(Isa::Avx2), "avx512 and avx2");
        }
    }
}

#[test]
fn reference_against_finite_differences() {
    const STEP: f64 = 1e-5;
    let kind = (Kind::Double, Device::Cpu);
    for kernel in [1, 2, 4, 9] {
        for options in ALL_OPTIONS {
            let inputs = parts(2, 6, &[3, 2], kind);
            let grads = parts(2, 6, &[3, 2], kind);
            let grads = refs(&grads);
            let weight = Tensor::randn([5, 1, kernel], kind);
            let state = Tensor::randn([2, kernel - 1, 5], kind);
            let bias = Tensor::randn([5], kind);
            // The loss sum(y * grads) as a function of its four operands.
            let loss = |[x, w, b, s]: &[Tensor; 4]| {
                let inputs = [x, &inputs[1]];
                let operands =
                    ConvOperands { inputs: &inputs, weight: w, bias: Some(b), state: Some(s) };
                let outputs = forward(ASKED, operands, options).unwrap();
                outputs
                    .iter()
                    .zip(&grads)
                    .map(|(y, g)| (y * *g).sum(Kind::Double).double_value(&[]))
                    .sum::<f64>()
            };
            let all = refs(&inputs);
            let operands = ConvOperands {
                inputs: &all,
                weight: &weight,
                bias: Some(&bias),
                state: Some(&state),
            };
            let gradients = backward(ASKED, &grads, operands, options).unwrap();
            let [dbias, dstate] =
                [&gradients.bias, &gradients.state].map(|gradient| gradient.as_ref().unwrap());
            let claims = [&gradients.inputs[0], &gradients.weight, dbias, dstate];
            for (which, gradient) in claims.iter().enumerate() {
                for element in 0..gradient.numel() as i64 {
                    let moved = |by: f64| {
                        let operands = [&inputs[0], &weight, &bias, &state].map(Tensor::copy);
                        let _ = operands[which].view([-1]).narrow(0, element, 1).g_add_scalar_(by);
                        loss(&operands)
                    };
                    let difference = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
                    let claimed = gradient.reshape([-1]).double_value(&[element]);
                    assert!(
                        (difference - claimed).abs() < 1e-7 * claimed.abs().max(1.0),
                        "kernel {kernel}, {options:?}, operand {which}, element {element}: {claimed} for {difference}"
                    );
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// run(a ++ b, s) = run(a, s) ++ run(b, state after a) for any cuts: to the bit when fused; libtorch's silu rounds
    /// by an element's place in its tensor.
    #[test]
    fn streaming(
        kernel in 1i64..=9,
        pieces in prop::collection::vec(1i64..=70, 1..5),
        batch in 1i64..=3,
        which in 0usize..4,
        with_bias: bool,
        with_state: bool,
        asked: bool,
    ) {
        let (options, time) = (ALL_OPTIONS[which], pieces.iter().sum::<i64>());
        let path = if asked { ASKED } else { choose(kernel, Kind::Float, Device::Cpu) };
        let inputs = parts(batch, time, &[9, 4], CPU);
        let weight = Tensor::randn([13, kernel], CPU);
        let noise = Tensor::randn([13], CPU);
        let bias = with_bias.then_some(&noise);
        let mut state = with_state.then(|| Tensor::randn([batch, kernel - 1, 13], CPU));
        let uncut =
            ConvOperands { inputs: &refs(&inputs), weight: &weight, bias, state: state.as_ref() };
        let at_once = forward(path, uncut, options).unwrap();
        let end = next_state(uncut).unwrap();
        let (mut first, mut streamed) = (0, [Vec::new(), Vec::new()]);
        for piece in pieces {
            let cut: Vec<Tensor> = inputs.iter().map(|x| x.narrow(1, first, piece)).collect();
            let operands =
                ConvOperands { inputs: &refs(&cut), weight: &weight, bias, state: state.as_ref() };
            let outputs = forward(path, operands, options).unwrap();
            streamed.iter_mut().zip(outputs).for_each(|(all, y)| all.push(y));
            state = Some(next_state(operands).unwrap());
            first += piece;
        }
        let streamed: Vec<Tensor> = streamed.iter().map(|pieces| Tensor::cat(pieces, 1)).collect();
        match path {
            Path::Fused(_) => assert_same_bits(&streamed, &at_once, "outputs"),
            Path::Cuda(_) | Path::Reference(_) => {
                assert_close(&streamed, &at_once, 1e-6, "outputs");
            }
        }
        assert_same_bits(&[state.unwrap()], &[end], "the last state");
    }
}

#[test]
fn one_thread_and_two_give_the_same_bits() {
    let before = tch::get_num_threads();
    let widths = [96, 33];
    let inputs = parts(3, 300, &widths, CPU);
    let grads = parts(3, 300, &widths, CPU);
    let (inputs, grads) = (refs(&inputs), refs(&grads));
    for options in ALL_OPTIONS {
        let (weight, bias) = (Tensor::randn([129, 4], CPU), Tensor::randn([129], CPU));
        let operands =
            ConvOperands { inputs: &inputs, weight: &weight, bias: Some(&bias), state: None };
        let [one, two, five] = [1, 2, 5].map(|threads| {
            tch::set_num_threads(threads);
            run(fused(4), &grads, operands, options)
        });
        assert_same_bits(&one, &two, "1 and 2 threads");
        assert_same_bits(&one, &five, "1 and 5 threads");
    }
    tch::set_num_threads(before);
}

#[test]
fn a_zero_filter_with_residual_is_the_identity() {
    let inputs = parts(2, 70, &[20], CPU);
    for options in ALL_OPTIONS.iter().filter(|options| options.residual) {
        let weight = Tensor::zeros([20, 4], CPU);
        let operands =
            ConvOperands { inputs: &refs(&inputs), weight: &weight, bias: None, state: None };
        let outputs = forward(fused(4), operands, *options).unwrap();
        assert_same_bits(&outputs, &inputs, "a zero Canon layer");
    }
}

/// bf16 inputs are summed in f32 and rounded once, and the state is f32.
#[test]
fn bf16_inputs_meet_f32_states() {
    let bf16 = |x: &Tensor| x.to_kind(Kind::BFloat16);
    let [x, dy] = std::array::from_fn(|_| bf16(&Tensor::randn([2, 9, 6], CPU)));
    let (weight, bias) = (bf16(&Tensor::randn([6, 4], CPU)), bf16(&Tensor::randn([6], CPU)));
    let state = Tensor::randn([2, 3, 6], CPU);
    let path = choose(4, Kind::BFloat16, Device::Cpu);
    for options in ALL_OPTIONS {
        let compute = |[x, dy, weight, bias]: [&Tensor; 4]| {
            let operands =
                ConvOperands { inputs: &[x], weight, bias: Some(bias), state: Some(&state) };
            (run(path, &[dy], operands, options), next_state(operands).unwrap())
        };
        let (narrow, after) = compute([&x, &dy, &weight, &bias]);
        let wide = [&x, &dy, &weight, &bias].map(|x| x.to_kind(Kind::Float));
        let (want, want_after) = compute(wide.each_ref());
        assert_eq!(after.kind(), Kind::Float);
        assert!(after.equal(&want_after));
        // y, dx, dweight, dbias; then dstate, with the state's dtype.
        let kinds = narrow.iter().map(Tensor::kind);
        assert!(kinds.eq([[Kind::BFloat16; 4].as_slice(), &[Kind::Float]].concat()));
        let want: Vec<Tensor> =
            want.iter().zip(&narrow).map(|(want, got)| want.to_kind(got.kind())).collect();
        assert_same_bits(&narrow, &want, "bf16");
    }
}

#[test]
fn silu_saturates_without_overflow() {
    let x = Tensor::from_slice(&[-1e30f32, -200.0, -90.0, -0.0, 90.0, 200.0, 1e30, f32::NAN])
        .view([1, 1, 8]);
    let weight = Tensor::from_slice2(&[[0.0f32, 1.0]; 8]);
    let options = Options { residual: false, activation: Activation::Silu };
    let operands = ConvOperands { inputs: &[&x], weight: &weight, bias: None, state: None };
    let y = forward(fused(2), operands, options).unwrap();
    let want = x.silu();
    assert!(
        (&y[0] - &want).abs().narrow(2, 0, 7).max().double_value(&[]) < 1e-5,
        "{:?}",
        Vec::<f32>::try_from(&y[0].reshape([-1]))
    );
    assert!(y[0].double_value(&[0, 0, 7]).is_nan());
}

#[test]
fn the_path_is_named_before_it_runs() {
    let chosen = |kernel, kind, device| choose(kernel, kind, device).to_string();
    assert_eq!(choose(4, Kind::Float, Device::Cpu), Path::Fused(Isa::of_process()));
    assert_eq!(chosen(1, Kind::Float, Device::Cpu), "reference (kernel 1 is outside 2..=8)");
    assert_eq!(chosen(9, Kind::Float, Device::Cpu), "reference (kernel 9 is outside 2..=8)");
    assert_eq!(chosen(4, Kind::BFloat16, Device::Cpu), "reference (BFloat16)");
    assert_eq!(chosen(4, Kind::Float, Device::Cuda(0)), "reference (on Cuda(0))");
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let options = ALL_OPTIONS[0];
    let (x, w) = (Tensor::zeros([2, 5, 6], CPU), Tensor::zeros([6, 4], CPU));
    let refusal = |inputs: &[&Tensor], weight: &Tensor, state: Option<&Tensor>| {
        let operands = ConvOperands { inputs, weight, bias: None, state };
        forward(Path::Fused(Isa::Portable), operands, options).unwrap_err().to_string()
    };
    let state = Tensor::zeros([2, 4, 6], CPU);
    let double = x.to_kind(Kind::Double);
    let across = Tensor::zeros([2, 6, 5], CPU).transpose(1, 2);
    let expanded = Tensor::zeros([1, 1, 6], CPU).expand([2, 5, 6], false);
    for (got, want) in [
        (refusal(&[], &w, None), "a Canon layer without inputs"),
        (refusal(&[&x, &x], &w, None), "a Canon filter [6, 4] over 12 channels"),
        (
            refusal(&[&x], &w.view([2, 3, 4]), None),
            "a Canon filter is [c, k] or [c, 1, k], got [2, 3, 4]",
        ),
        (refusal(&[&x], &w, Some(&state)), "a Canon state of shape [2, 4, 6], expected [2, 3, 6]"),
        (refusal(&[&double], &w, None), "an f32 tensor on the CPU is expected, got Double on Cpu"),
        (
            refusal(&[&across], &w, None),
            "rows of dense channels are expected, got shape [2, 5, 6] with strides [30, 1, 5]",
        ),
        (
            refusal(&[&x], &w.transpose(0, 1).contiguous().transpose(0, 1), None),
            "a contiguous tensor is expected, got shape [6, 4] with strides [1, 6]",
        ),
        (
            refusal(&[&x], &Tensor::zeros([6, 9], CPU), None),
            "the fused Canon path takes kernels 2..=8, not 9",
        ),
    ] {
        assert_eq!(got, want);
    }
    let operands = ConvOperands { inputs: &[&x], weight: &w, bias: Some(&state), state: None };
    let error = forward(ASKED, operands, options).unwrap_err();
    assert_eq!(error.to_string(), "a convolution's bias of shape [2, 4, 6], expected [6]");
    // Overlapping rows, and a result that overlaps an operand.
    let operands = ConvOperands { inputs: &[&expanded], weight: &w, bias: None, state: None };
    let error =
        forward_into(fused(4), operands, options, &mut [expanded.shallow_clone()]).unwrap_err();
    assert!(error.to_string().starts_with("rows of dense channels"), "{error}");
    let operands = ConvOperands { inputs: &[&x], weight: &w, bias: None, state: None };
    let error = forward_into(fused(4), operands, options, &mut [x.shallow_clone()]).unwrap_err();
    assert_eq!(error.to_string(), "a kernel's result would overwrite one of its operands");
}
