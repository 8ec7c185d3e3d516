//! Values of several sequences, as one tensor with all rows or as one tensor for each sequence.

use tch::Tensor;

use crate::kernels::KernelError;

/// A value for all sequences.
#[derive(Debug)]
pub(super) enum Shared {
    /// One tensor for all: a parameter, or a value that depends only on parameters.
    One(Tensor),
    /// One row for each token, one sequence after another: [1, rows, …].
    Joined(Tensor),
    /// Only the rows of tokens whose logits are computed: [1, rows, …].
    Kept(Tensor),
    /// One tensor [1, …] for each sequence.
    Split(Vec<Tensor>),
}

/// Where the rows of each sequence are.
#[derive(Debug)]
pub(super) struct Layout {
    /// The first row and the number of rows of each sequence.
    spans: Vec<(i64, i64)>,
}

impl Layout {
    pub(super) fn new(counts: impl Iterator<Item = usize>) -> Layout {
        let mut first = 0;
        let mut spans = Vec::new();
        for count in counts {
            spans.push((first, count as i64));
            first += count as i64;
        }
        Layout { spans }
    }

    pub(super) fn total(&self) -> i64 {
        self.spans.last().map_or(0, |(first, count)| first + count)
    }

    /// The largest number of rows of a sequence.
    pub(super) fn most(&self) -> usize {
        self.spans.iter().map(|(_, count)| *count as usize).max().unwrap_or(0)
    }

    /// The number of rows of sequence `n`.
    pub(super) fn count(&self, n: usize) -> i64 {
        self.spans.get(n).map_or(0, |(_, count)| *count)
    }

    /// The rows of sequence `n` among `all`: [1, its rows, …].
    pub(super) fn one(&self, all: &Tensor, n: usize) -> Result<Tensor, KernelError> {
        let (first, count) = self.spans.get(n).copied().unwrap_or_default();
        Ok(all.f_narrow(1, first, count)?)
    }

    /// The last rows of each sequence, as many as it has in `kept`.
    pub(super) fn last(&self, all: &Tensor, kept: &Layout) -> Result<Tensor, KernelError> {
        let mut rows = Vec::new();
        for ((first, count), (_, kept)) in self.spans.iter().zip(&kept.spans) {
            rows.extend(first + count - kept..first + count);
        }
        let rows = Tensor::f_from_slice(&rows)?.f_to_device(all.device())?;
        Ok(all.f_index_select(1, &rows)?)
    }
}
