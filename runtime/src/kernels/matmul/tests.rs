//! Products compared with their definition, bit for bit, at any sizes and strides.

use proptest::prelude::*;
use tch::{Device, Kind, Tensor};

use super::{DEPTH, PACKED, Right, WIDE, add_product, product};
use crate::kernels::Isa;

fn randn(size: &[i64]) -> Tensor {
    Tensor::randn(size, (Kind::Float, Device::Cpu))
}

fn values(tensor: &Tensor) -> Vec<f32> {
    Vec::try_from(tensor.contiguous().flatten(0, -1)).unwrap()
}

/// The sets of instructions that have tiles, on this CPU.
fn isas() -> impl Iterator<Item = Isa> {
    [Isa::Avx512, Isa::Avx2].into_iter().filter(|isa| isa.is_available())
}

/// The definition: for each element one chain of fused multiply-adds in each block of k, then the blocks in order.
fn defined(a: &Tensor, b: &Tensor, c: Option<&Tensor>) -> Vec<f32> {
    let (rows, columns) = (a.size()[0] as usize, b.size()[1] as usize);
    let depth = a.size()[1] as usize;
    let (a, b) = (values(a), values(&b.tr()));
    let mut sums = c.map_or_else(|| vec![0.0; rows * columns], values);
    for (at, sum) in sums.iter_mut().enumerate() {
        let row = &a[at / columns * depth..][..depth];
        let column = &b[at % columns * depth..][..depth];
        for (block, (row, column)) in row.chunks(DEPTH).zip(column.chunks(DEPTH)).enumerate() {
            let chain = row.iter().zip(column).fold(0.0f32, |sum, (a, b)| a.mul_add(*b, sum));
            *sum = if block == 0 && c.is_none() { chain } else { *sum + chain };
        }
    }
    sums
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// Compares C = A B and C += A B with the definition, with every instruction set.
fn check(a: &Tensor, b: &Tensor, case: &str) {
    let before = randn(&[a.size()[0], b.size()[1]]);
    let (fresh, more) = (defined(a, b, None), defined(a, b, Some(&before)));
    for isa in isas() {
        let c = product(isa, a, b).unwrap();
        assert_eq!(bits(&values(&c)), bits(&fresh), "{isa}, {case}");
        let mut c = before.copy();
        add_product(isa, &mut c, a, b).unwrap();
        assert_eq!(bits(&values(&c)), bits(&more), "{isa}, {case}, added");
    }
}

#[derive(Debug, Clone, Copy)]
enum View {
    Whole,
    Transposed,
    /// Some columns of a wider matrix.
    Columns,
    /// Every second column.
    Steps,
    /// One row, repeated.
    Repeated,
}

const VIEWS: [View; 5] =
    [View::Whole, View::Transposed, View::Columns, View::Steps, View::Repeated];

fn viewed(view: View, [rows, columns]: [i64; 2]) -> Tensor {
    match view {
        View::Whole => randn(&[rows, columns]),
        View::Transposed => randn(&[columns, rows]).tr(),
        View::Columns => randn(&[rows, columns + 5]).narrow(1, 3, columns),
        View::Steps => randn(&[rows, 2 * columns]).slice(1, 0, None, 2),
        View::Repeated => randn(&[1, columns]).expand([rows, columns], false),
    }
}

#[test]
fn every_view_gives_the_defined_bits() {
    tch::manual_seed(1);
    for (m, k, n) in [(1, 1, 1), (9, 300, 64), (17, 5, 49), (8, 513, 48), (5, 16, 130)] {
        for left in VIEWS {
            for right in VIEWS {
                let (a, b) = (viewed(left, [m, k]), viewed(right, [k, n]));
                check(&a, &b, &format!("[{m}, {k}, {n}], {left:?} {right:?}"));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn any_sizes_give_the_defined_bits(
        sizes in [0i64..70, 0i64..600, 0i64..150],
        views in [0usize..5, 0usize..5],
        seed in 0i64..1000,
    ) {
        tch::manual_seed(seed);
        let [m, k, n] = sizes;
        let [left, right] = views.map(|view| VIEWS[view]);
        let (a, b) = (viewed(left, [m, k]), viewed(right, [k, n]));
        check(&a, &b, &format!("[{m}, {k}, {n}], {left:?} {right:?}"));
    }
}

/// B by parts of k, where all of it would take too much memory; and rows too wide to be read where they are.
#[test]
fn a_large_matrix_is_rearranged_in_parts() {
    tch::manual_seed(2);
    let n = WIDE as i64 + 16;
    let k = (PACKED as i64 / n) + 300;
    let (a, b) = (randn(&[2, k]), randn(&[k, n]));
    check(&a, &b, "by parts");
    check(&a, &b.tr().contiguous().tr(), "by parts, transposed");
}

/// The threads divide the longer side of C; a row alone has the bits that it has among others.
#[test]
fn threads_and_other_rows_change_no_bit() {
    tch::manual_seed(3);
    let threads = tch::get_num_threads();
    for (m, k, n) in [(700, 300, 100), (40, 700, 1500)] {
        let (a, b) = (randn(&[m, k]), randn(&[n, k]).tr());
        for isa in isas() {
            tch::set_num_threads(1);
            let one = product(isa, &a, &b).unwrap();
            for count in [2, 3] {
                tch::set_num_threads(count);
                assert!(product(isa, &a, &b).unwrap().equal(&one), "{isa}, {count} threads");
            }
            let right = Right::new(isa, &b).unwrap();
            let row = right.product(&a.narrow(0, 13, 1)).unwrap();
            assert!(row.equal(&one.narrow(0, 13, 1)), "{isa}, one row");
        }
    }
    tch::set_num_threads(threads);
}

#[test]
fn infinities_stay_in_their_row_and_column() {
    let (a, b) = (randn(&[9, 20]), randn(&[20, 50]));
    let _ = a.get(8).fill_(f64::INFINITY);
    let _ = b.slice(1, 49, None, 1).fill_(f64::NAN);
    for isa in isas() {
        let c = product(isa, &a, &b).unwrap();
        assert!(bool::try_from(c.slice(0, 0, 8, 1).slice(1, 0, 49, 1).isfinite().all()).unwrap());
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    let (a, b) = (randn(&[2, 3]), randn(&[4, 5]));
    let isa = Isa::Avx2;
    assert!(product(isa, &a, &b).unwrap_err().to_string().contains("[2, 3] and [4, 5]"));
    let mut c = randn(&[2, 4]);
    assert!(add_product(isa, &mut c, &a, &randn(&[3, 5])).is_err());
    assert!(add_product(isa, &mut c, &a.to_kind(Kind::Double), &randn(&[3, 4])).is_err());
    let mut square = randn(&[3, 3]);
    let itself = square.shallow_clone();
    assert!(add_product(isa, &mut square, &itself, &itself).is_err());
    assert!(product(Isa::Portable, &a, &randn(&[3, 5])).is_err());
}
