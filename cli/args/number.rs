//! Whole numbers on the command line.
//!
//! In: a word. Out: a number of a range. Must stay true: a refusal says the range.

use std::fmt;
use std::str::FromStr;

/// A number of runs at a time.
pub fn jobs(text: &str) -> Result<usize, String> {
    within(1, 256)(text)
}

/// Reads a whole number of a range.
pub(super) fn within<N>(
    least: N,
    most: N,
) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static
where
    N: FromStr + PartialOrd + fmt::Display + Copy + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| format!("give a whole number from {least} to {most}"))
    }
}
