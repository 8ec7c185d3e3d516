//! Event files of TensorBoard: the scalars of each tag.

use report::tensorboard;

use crate::series::{Cell, Series};

/// Bytes in which the first record of a file ends: it has a version and a name.
const FIRST: usize = 1 << 16;

/// Whether a file begins with a whole record whose checksums are right.
pub(crate) fn is_events(bytes: &[u8]) -> bool {
    let start = bytes.get(..FIRST).unwrap_or(bytes);
    tensorboard::each(start, drop).1 > 0
}

/// Reads the whole records of a file. Returns how many bytes at its end are torn or damaged. Errors are sentences.
pub(crate) fn read(bytes: &[u8]) -> Result<(Series, usize), String> {
    let mut series = Series::default();
    let mut failed = None;
    let (_, complete) = tensorboard::each(bytes, |event| {
        for (tag, value) in event.values {
            if failed.is_none() {
                failed = series.put(&tag, event.step, number(value), 0).err();
            }
        }
    });
    match failed {
        Some(message) => Err(message),
        None => Ok((series, bytes.len() - complete)),
    }
}

/// The number that a program wrote: the shortest decimal that rounds to these bits, not their long expansion.
fn number(value: f32) -> Cell {
    Cell::of_text(&value.to_string())
}
