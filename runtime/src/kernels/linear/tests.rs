//! Our products compared with libtorch's.

use tch::{Device, Kind, Tensor};

use super::{Product, linear, linear_grad_input, linear_grad_weight};
use crate::kernels::Isa;

fn randn(size: &[i64]) -> Tensor {
    Tensor::randn(size, (Kind::Float, Device::Cpu))
}

#[test]
fn few_rows_are_libtorchs_product() {
    tch::manual_seed(1);
    let isa = Isa::of_process();
    for [batch, time, inputs, outputs] in
        [[1, 1, 64, 48], [1, 1, 7, 1], [1, 3, 19, 37], [2, 1, 100, 18], [4, 1, 33, 5], [1, 1, 1, 3]]
    {
        let (x, weight) = (randn(&[batch, time, inputs]), randn(&[outputs, inputs]));
        let bias = randn(&[outputs]);
        for bias in [None, Some(&bias)] {
            let exact = x.to_kind(Kind::Double).linear(
                &weight.to_kind(Kind::Double),
                bias.map(|bias| bias.to_kind(Kind::Double)).as_ref(),
            );
            let y = linear(Product::FewRows(isa, 4), &x, &weight, bias).unwrap();
            assert_eq!(y.size(), [batch, time, outputs]);
            assert_eq!(y.kind(), Kind::Float);
            assert!(y.is_contiguous(), "{batch} {time}");
            let off = (y - exact).abs().max().double_value(&[]);
            assert!(off < 1e-5, "{batch} {time} {inputs} {outputs}: {off}");
        }
    }
}

#[test]
fn bf16_is_read_as_it_is_and_summed_in_f32() {
    tch::manual_seed(2);
    let (x, weight) = (randn(&[1, 2, 83]), randn(&[21, 83]));
    let (x, weight) = (x.to_kind(Kind::BFloat16), weight.to_kind(Kind::BFloat16));
    let y = linear(Product::FewRows(Isa::of_process(), 4), &x, &weight, None).unwrap();
    let exact = x.to_kind(Kind::Double).linear(&weight.to_kind(Kind::Double), None::<&Tensor>);
    assert!((y - exact).abs().max().double_value(&[]) < 1e-5);
}

#[test]
fn more_rows_and_empty_ones_are_libtorchs() {
    let weight = randn(&[6, 9]);
    for rows in [0, 5, 64] {
        let x = randn(&[1, rows, 9]);
        let ours = linear(Product::FewRows(Isa::of_process(), 4), &x, &weight, None).unwrap();
        assert!(ours.equal(&linear(Product::Library, &x, &weight, None).unwrap()));
    }
    let narrow = linear(Product::FewRows(Isa::of_process(), 4), &randn(&[1, 1, 8]), &weight, None);
    assert!(narrow.unwrap_err().to_string().contains("[6, 9]"));
}

#[test]
fn each_row_has_the_bits_that_it_has_alone() {
    tch::manual_seed(5);
    let available = [Isa::Avx512, Isa::Avx2, Isa::Portable].into_iter();
    for isa in available.filter(|isa| isa.is_available()) {
        for (rows, inputs, outputs) in [
            (1, 19, 7),
            (4, 64, 48),
            (5, 83, 21),
            (9, 130, 33),
            (33, 515, 40),
            (35, 12, 24),
            (42, 24, 12),
            (70, 200, 31),
        ] {
            for kind in [Kind::Float, Kind::BFloat16] {
                let x = randn(&[rows, 1, inputs]).to_kind(kind);
                let (weight, bias) = (randn(&[outputs, inputs]).to_kind(kind), randn(&[outputs]));
                let all = linear(Product::ByRow(isa), &x, &weight, Some(&bias)).unwrap();
                assert_eq!(all.size(), [rows, 1, outputs]);
                let wide = |x: &Tensor| x.to_kind(Kind::Double);
                let exact = wide(&x).linear(&wide(&weight), Some(&wide(&bias)));
                let off = (wide(&all) - exact).abs().max().double_value(&[]);
                assert!(off < 1e-4, "{isa}, {rows} rows, {kind:?}: {off}");
                for row in 0..rows {
                    let one = x.narrow(0, row, 1);
                    let alone =
                        linear(Product::FewRows(isa, 4), &one, &weight, Some(&bias)).unwrap();
                    let same = all.narrow(0, row, 1).equal(&alone);
                    assert!(same, "{isa}, row {row} of {rows}, {kind:?}");
                }
            }
        }
    }
}

/// Sums have 16 lanes on every register width; without a fused multiply-add they round otherwise.
#[test]
fn threads_and_instructions_change_no_bit() {
    tch::manual_seed(3);
    let weight = randn(&[401, 515]);
    let threads = tch::get_num_threads();
    for rows in [2, 33] {
        let x = randn(&[1, rows, 515]);
        for alike in [&[Isa::Avx512, Isa::Avx2][..], &[Isa::Portable]] {
            let mut first: Option<Tensor> = None;
            for isa in alike.iter().filter(|isa| isa.is_available()) {
                for count in [1, 2, 3] {
                    tch::set_num_threads(count);
                    let y = linear(Product::ByRow(*isa), &x, &weight, None).unwrap();
                    let case = format!("{isa}, {rows} rows, {count} threads");
                    assert!(first.get_or_insert_with(|| y.copy()).equal(&y), "{case}");
                }
            }
        }
    }
    tch::set_num_threads(threads);
}

/// Forward and backward, of tokens that are whole, or a part of wider rows as after a split.
#[test]
fn tiles_give_libtorchs_projection_and_gradients() {
    tch::manual_seed(4);
    for isa in [Isa::Avx512, Isa::Avx2].into_iter().filter(|isa| isa.is_available()) {
        for [batch, time, inputs, outputs] in
            [[1, 1, 7, 5], [2, 35, 64, 48], [3, 17, 300, 101], [1, 0, 4, 4], [2, 3, 0, 4]]
        {
            let x = randn(&[batch, time, inputs + 3]).narrow(2, 1, inputs);
            let dy = randn(&[batch, time, outputs + 2]).narrow(2, 2, outputs);
            let (weight, bias) = (randn(&[outputs, inputs]), randn(&[outputs]));
            let all = |product| {
                [
                    linear(product, &x, &weight, None).unwrap(),
                    linear(product, &x, &weight, Some(&bias)).unwrap(),
                    linear_grad_input(product, &dy, &weight).unwrap(),
                    linear_grad_weight(product, &dy, &x).unwrap(),
                ]
            };
            for (ours, theirs) in all(Product::Tiles(isa)).iter().zip(&all(Product::Library)) {
                assert_eq!(ours.size(), theirs.size());
                assert!(ours.is_contiguous());
                let most = theirs.abs().sum(Kind::Float).double_value(&[]).max(1.0);
                let off = (ours - theirs).abs().sum(Kind::Float).double_value(&[]) / most;
                assert!(off < 1e-5, "{isa} {batch} {time} {inputs} {outputs}: {off}");
            }
        }
    }
    let wrong = linear(Product::Tiles(Isa::Avx2), &randn(&[1, 1, 8]), &randn(&[6, 9]), None);
    assert!(wrong.unwrap_err().to_string().contains("[1, 8]"));
}

#[test]
fn an_operand_that_begins_elsewhere_is_copied() {
    let matrix = Tensor::randn([64, 64], (Kind::Float, Device::Cpu));
    let address = |x: &Tensor| x.data_ptr() as usize;
    assert!(address(&matrix).is_multiple_of(64), "libtorch's own alignment on a CPU");
    let (near, far) = (matrix.narrow(1, 1, 8), matrix.narrow(0, 1, 8));
    let [moved, kept] = [&near, &far].map(|x| super::at_multiple(x, 64).unwrap());
    assert!(moved.equal(&near) && address(&moved) != address(&near));
    assert!(address(&moved).is_multiple_of(64));
    assert_eq!(address(&kept), address(&far));
}
