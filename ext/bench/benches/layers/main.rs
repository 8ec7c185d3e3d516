//! Canonc's Canon layer and scans beside the code they replace: forward and backward in f32 on the CPU.
//!
//! All forms of a layer compute the same function, which is checked before they are timed.

#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

mod canon;
mod scan;

use bench::turns::{clock, take_turns};
use report::statistics::median;
use runtime::Tensor;
use runtime::kernels::KernelError;
use runtime::kernels::path::Path;

type Result<T> = std::result::Result<T, KernelError>;

/// Rounds that are not counted, and rounds that are.
const WARM_UP: usize = 3;
const ROUNDS: usize = 20;

/// One way to compute a layer: its result, then gradients.
struct Form<'a> {
    name: &'static str,
    run: Box<dyn Fn() -> Result<Vec<Tensor>> + 'a>,
    /// Whether its gradients come from a scalar loss, which costs time that is not the layer's.
    has_loss: bool,
}

impl<'a> Form<'a> {
    fn new(name: &'static str, run: impl Fn() -> Result<Vec<Tensor>> + 'a) -> Form<'a> {
        Form { name, run: Box::new(run), has_loss: false }
    }
}

fn main() -> Result<()> {
    for shape in canon::SHAPES {
        let case = canon::CanonCase::new(shape)?;
        race(&format!("Canon layer {:?}", shape), case.path(), &case.forms(), Some(&case.loss()))?;
    }
    for family in scan::FAMILIES {
        let case = scan::ScanCase::new(family, 2048)?;
        race(&format!("{} [2, 2048, 8 heads]", family.name()), case.path(), &case.forms(), None)?;
    }
    println!("ns a token of canonc's scans by length; memory at the longest");
    for family in scan::FAMILIES {
        println!("  {:<15} {}", family.name(), scan::growth(family)?);
    }
    Ok(())
}

/// Prints the median time of each form, its ratio to that of canonc's, the last, and how much results differ. `loss` is
/// a loss without the layer.
fn race(name: &str, path: Path, forms: &[Form<'_>], loss: Option<&Form<'_>>) -> Result<()> {
    let Some((ours, others)) = forms.split_last() else { return Ok(()) };
    let results = (ours.run)()?;
    let mut largest = 0.0f64;
    for other in others {
        for (ours, theirs) in results.iter().zip((other.run)()?) {
            largest = largest.max(relative_difference(&theirs, ours)?);
        }
    }
    assert!(largest < 1e-4, "the forms of {name} differ by {largest:e}");
    let mut timed: Vec<(&Form<'_>, Vec<f64>)> =
        loss.into_iter().chain(forms).map(|form| (form, Vec::new())).collect();
    take_turns(
        &mut timed,
        WARM_UP + ROUNDS,
        |_| Ok(()),
        |(form, times)| {
            times.push(clock(&form.run)?);
            Ok::<(), KernelError>(())
        },
    )?;
    let mut medians = timed.iter().map(|(_, times)| median(times.get(WARM_UP..).unwrap_or(times)));
    let overhead = loss.and_then(|_| medians.next()).unwrap_or(0.0);
    let milliseconds: Vec<f64> = medians
        .zip(forms)
        .map(|(time, form)| if form.has_loss { time - overhead } else { time })
        .collect();
    let best = milliseconds.last().copied().unwrap_or(f64::NAN);
    println!("{name}, {path}: medians of {ROUNDS} rounds, largest difference {largest:.0e}");
    for (form, time) in forms.iter().zip(milliseconds) {
        println!("  {:<15} {time:>9.2} ms {:>7.1}×", form.name, time / best);
    }
    Ok(())
}

/// The largest difference of two tensors, relative to the largest magnitude in the first.
fn relative_difference(a: &Tensor, b: &Tensor) -> Result<f64> {
    let largest = a.f_abs()?.f_max()?.f_double_value(&[])?;
    Ok(a.f_sub(b)?.f_abs()?.f_max()?.f_double_value(&[])? / largest.max(f64::MIN_POSITIVE))
}
