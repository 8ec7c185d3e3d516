//! Products with few rows compared with libtorch's.

use tch::{Device, Kind, Tensor};

use super::linear;
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
            let y = linear(Some(isa), &x, &weight, bias).unwrap();
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
    let y = linear(Some(Isa::of_process()), &x, &weight, None).unwrap();
    let exact = x.to_kind(Kind::Double).linear(&weight.to_kind(Kind::Double), None::<&Tensor>);
    assert!((y - exact).abs().max().double_value(&[]) < 1e-5);
}

#[test]
fn more_rows_and_empty_ones_are_libtorchs() {
    let weight = randn(&[6, 9]);
    for rows in [0, 5, 64] {
        let x = randn(&[1, rows, 9]);
        let ours = linear(Some(Isa::of_process()), &x, &weight, None).unwrap();
        assert!(ours.equal(&linear(None, &x, &weight, None).unwrap()));
    }
    let narrow = linear(Some(Isa::of_process()), &randn(&[1, 1, 8]), &weight, None);
    assert!(narrow.unwrap_err().to_string().contains("[6, 9]"));
}

/// Sums have 16 lanes on every register width; without a fused multiply-add they round otherwise.
#[test]
fn threads_and_instructions_change_no_bit() {
    tch::manual_seed(3);
    let (x, weight) = (randn(&[1, 2, 515]), randn(&[401, 515]));
    let threads = tch::get_num_threads();
    for alike in [&[Isa::Avx512, Isa::Avx2][..], &[Isa::Portable]] {
        let mut first: Option<Tensor> = None;
        for isa in alike.iter().filter(|isa| isa.is_available()) {
            for count in [1, 2, 3] {
                tch::set_num_threads(count);
                let y = linear(Some(*isa), &x, &weight, None).unwrap();
                assert!(first.get_or_insert_with(|| y.copy()).equal(&y), "{isa}, {count} threads");
            }
        }
    }
    tch::set_num_threads(threads);
}
