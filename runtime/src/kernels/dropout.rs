//! Dropout of x [b, t, …]: keyed draws decide which elements are 0; the others are multiplied by 1 / (1 − rate).
//!
//! The fused and the plain form give equal bits in f32. An element's draw depends on its row's window, not on the
//! batch, so neither do its bits. A dropped element is 0 even if x is not finite.

use records::dropout::Mask;
use tch::{Kind, Tensor};

use super::KernelError;
use super::ffi::{self, Cut};
use super::linear::grain;
use super::path::Path;

const CHUNK: usize = 4096;

pub fn run(path: Path, x: &Tensor, mask: Mask, window: i64) -> Result<Tensor, KernelError> {
    match path {
        Path::Fused(_) => fused(x, mask, window),
        Path::Reference(_) | Path::Cuda(_) => {
            let dropped = dropped(x, mask, window)?;
            Ok(x.f_mul_scalar(mask.factor)?.f_masked_fill(&dropped, 0.0)?)
        }
    }
}

fn fused(x: &Tensor, mask: Mask, window: i64) -> Result<Tensor, KernelError> {
    let x = x.f_contiguous()?;
    let mut y = Tensor::f_empty(x.size(), (Kind::Float, x.device()))?;
    let xs = ffi::slice(&x)?;
    let row = xs.len() / rows(&x).max(1);
    let out = ffi::slice_mut(&mut y, &[&x])?;
    ffi::parallel_cuts(
        xs.len().div_ceil(CHUNK),
        grain(CHUNK),
        [Cut { data: out, chunk: CHUNK }],
        |chunk, [y]| {
            let (mut at, mut y) = (chunk * CHUNK, y);
            while !y.is_empty() {
                // Within one row, since each has its own window.
                let count = (row - at % row).min(y.len());
                let (now, rest) = std::mem::take(&mut y).split_at_mut(count);
                let window = (window as u64).wrapping_add((at / row) as u64);
                mask.apply(window, (at % row) as u64, &xs[at..][..count], now);
                (at, y) = (at + count, rest);
            }
        },
    );
    Ok(y)
}

fn rows(x: &Tensor) -> usize {
    x.size().first().map_or(1, |rows| *rows as usize)
}

/// Which elements are dropped: Philox in libtorch's integers, on x's device. Words are i64 below 2³².
fn dropped(x: &Tensor, mask: Mask, window: i64) -> Result<Tensor, KernelError> {
    let rows = rows(x) as i64;
    let row = x.numel() as i64 / rows.max(1);
    let options = (Kind::Int64, x.device());
    let blocks = Tensor::f_arange((row + 3) / 4, options)?; // [n]
    // Wraps as the windows of the other form do.
    let windows = Tensor::f_arange(rows, options)?.f_add_scalar(window)?.f_unsqueeze(1)?; // [b, 1]
    let halves = |x: &Tensor| -> Result<[Tensor; 2], KernelError> {
        Ok([low(x)?, low(&x.f_bitwise_right_shift_tensor_scalar(32)?)?])
    };
    let ([a, b], [c, d]) = (halves(&blocks)?, halves(&windows)?);
    let mut x4 = [a, b, c, d];
    let [mut first, mut second] = mask.philox;
    for _ in 0..10 {
        let [x0, x1, x2, x3] = &x4;
        let ([high0, low0], [high2, low2]) = (product(x0, 0xd251_1f53)?, product(x2, 0xcd9e_8d57)?);
        let mix = |high: &Tensor, x: &Tensor, key: u32| -> Result<Tensor, KernelError> {
            Ok(high.f_bitwise_xor_tensor(x)?.f_bitwise_xor(i64::from(key))?)
        };
        x4 = [mix(&high2, x1, first)?, low2, mix(&high0, x3, second)?, low0];
        (first, second) = (first.wrapping_add(0x9e37_79b9), second.wrapping_add(0xbb67_ae85));
    }
    let all = x4.iter().map(|word| word.f_expand([rows, (row + 3) / 4], false));
    let words = Tensor::f_stack(&all.collect::<Result<Vec<_>, _>>()?, -1)?; // [b, n, 4]
    let words = words.f_reshape([rows, -1])?.f_narrow(1, 0, row)?;
    let threshold = i64::try_from(mask.threshold).unwrap_or(i64::MAX);
    Ok(words.f_lt(threshold)?.f_reshape(x.size())?)
}

/// The lower 32 bits.
fn low(x: &Tensor) -> Result<Tensor, KernelError> {
    Ok(x.f_bitwise_and(0xffff_ffffi64)?)
}

/// The two halves of x · by, higher first, from products below 2⁴⁸, since 64 bits with a sign do not hold it.
fn product(x: &Tensor, by: u32) -> Result<[Tensor; 2], KernelError> {
    let times = |part: u32| x.f_mul_scalar(i64::from(part));
    let (small, large) = (times(by & 0xffff)?, times(by >> 16)?);
    let carried = large.f_add(&small.f_bitwise_right_shift_tensor_scalar(16)?)?;
    let shifted = large.f_bitwise_and(0xffffi64)?.f_bitwise_left_shift_tensor_scalar(16)?;
    Ok([carried.f_bitwise_right_shift_tensor_scalar(16)?, low(&small.f_add(&shifted)?)?])
}

#[cfg(test)]
mod tests {
    use super::super::Isa;
    use super::super::path::Reason;
    use super::*;

    const PLAIN: Path = Path::Reference(Reason::Asked);

    fn numbers(size: &[i64]) -> Tensor {
        let count: i64 = size.iter().product();
        let values: Vec<f32> = (0..count).map(|i| (i * 37 % 101) as f32 / 7.0 - 6.0).collect();
        Tensor::from_slice(&values).reshape(size)
    }

    fn equal_bits(a: &Tensor, b: &Tensor) -> bool {
        a.size() == b.size() && a.view_dtype(Kind::Int) == b.view_dtype(Kind::Int)
    }

    #[test]
    fn both_forms_give_equal_bits_for_any_threads_and_rows() {
        let fused = Path::Fused(Isa::of_process());
        for (size, rate, window) in [
            (&[1i64, 1, 1][..], 0.5, 0),
            (&[2, 5, 7], 0.1, 3),
            (&[3, 33, 2, 9], 0.9, (1 << 32) - 2),
            (&[2, 300, 130], 0.25, 1 << 40),
        ] {
            let x = numbers(size);
            let mask = Mask::new(11, "layers.0.dropout.0", rate);
            let plain = run(PLAIN, &x, mask, window).unwrap();
            let threads = tch::get_num_threads();
            for count in [1, 2, 3] {
                tch::set_num_threads(count);
                let ours = run(fused, &x, mask, window).unwrap();
                assert!(equal_bits(&ours, &plain), "{size:?} on {count} threads");
            }
            tch::set_num_threads(threads);
            // Row by row.
            for row in 0..size[0] {
                let one = run(fused, &x.narrow(0, row, 1), mask, window + row).unwrap();
                assert!(equal_bits(&one, &plain.narrow(0, row, 1).contiguous()), "{size:?}");
            }
        }
    }

    #[test]
    fn dropped_elements_are_zero_even_of_infinity() {
        let mask = Mask::new(1, "dropout.0", 0.5);
        let x = Tensor::full([2, 40, 3], f64::INFINITY, (Kind::Float, tch::Device::Cpu));
        for path in [PLAIN, Path::Fused(Isa::of_process())] {
            let y = run(path, &x, mask, 0).unwrap();
            assert!(!bool::try_from(y.isnan().any()).unwrap());
            let zeros = y.eq(0.0).sum(Kind::Int64).int64_value(&[]);
            assert!((80..160).contains(&zeros), "{zeros}");
        }
    }

    /// The kernel is its own gradient: libtorch's of the plain form is the kernel of dy.
    #[test]
    fn autograd_agrees() {
        let (x, dy) = (numbers(&[2, 9, 5]).set_requires_grad(true), numbers(&[2, 9, 5]) * 0.5);
        let mask = Mask::new(5, "dropout.3", 0.3);
        let y = run(PLAIN, &x, mask, 17).unwrap();
        let dx = Tensor::run_backward(&[(y * &dy).sum(None::<Kind>)], &[&x], false, false);
        for path in [PLAIN, Path::Fused(Isa::of_process())] {
            assert!(equal_bits(&run(path, &dy, mask, 17).unwrap(), &dx[0].contiguous()));
        }
    }
}
