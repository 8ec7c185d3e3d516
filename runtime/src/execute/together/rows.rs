//! Values of several sequences, whose rows follow one another or are apart.
//!
//! In: a tensor of all rows, or one of each sequence. Out: the other form, as views where that is possible. Must stay
//! true: row r of sequence n is the same in every form.

use tch::Tensor;

use crate::kernels::KernelError;

/// A value of all sequences.
#[derive(Debug)]
pub(super) enum Shared {
    /// One tensor for all: a parameter, or what depends on parameters alone.
    One(Tensor),
    /// A row of each token, one sequence after another: [1, rows, …].
    Joined(Tensor),
    /// Those of the tokens whose logits are computed.
    Kept(Tensor),
    /// A tensor [1, …] of each sequence.
    Split(Vec<Tensor>),
}

/// Where the rows of each sequence are.
#[derive(Debug)]
pub(super) struct Layout {
    /// Of each sequence the first row, and how many there are.
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

    /// Rows of the sequence that has the most.
    pub(super) fn most(&self) -> usize {
        self.spans.iter().map(|(_, count)| *count as usize).max().unwrap_or(0)
    }

    /// Rows of sequence `n`.
    pub(super) fn count(&self, n: usize) -> i64 {
        self.spans.get(n).map_or(0, |(_, count)| *count)
    }

    /// Sequence `n` of all rows, [1, its rows, …].
    pub(super) fn one(&self, all: &Tensor, n: usize) -> Result<Tensor, KernelError> {
        let (first, count) = self.spans.get(n).copied().unwrap_or_default();
        Ok(all.f_narrow(1, first, count)?)
    }

    /// The last rows of each sequence, as many as `kept` has.
    pub(super) fn last(&self, all: &Tensor, kept: &Layout) -> Result<Tensor, KernelError> {
        let mut rows = Vec::new();
        for ((first, count), (_, kept)) in self.spans.iter().zip(&kept.spans) {
            rows.extend(first + count - kept..first + count);
        }
        let rows = Tensor::f_from_slice(&rows)?.f_to_device(all.device())?;
        Ok(all.f_index_select(1, &rows)?)
    }
}
