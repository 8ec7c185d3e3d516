//! The keys or values of one sequence, in a buffer with room for the next ones.
//!
//! Rows are never changed, and the room after them is used once: after a branch, the first sequence to grow takes it,
//! and others copy their rows to a new buffer.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tch::Tensor;

use crate::kernels::KernelError;

/// Minimum number of free rows in a new buffer.
const LEAST: i64 = 64;

/// A buffer shared by a sequence and those that branched off it.
#[derive(Debug)]
pub(crate) struct Room {
    /// [1, capacity, …]
    buffer: Tensor,
    /// Number of rows in use.
    used: Arc<AtomicI64>,
}

impl Room {
    pub(crate) fn share(&self) -> Room {
        Room { buffer: self.buffer.shallow_clone(), used: Arc::clone(&self.used) }
    }

    /// Rows [1, s, …] followed by x [1, t, …]: in place if the room after these rows is free, otherwise in a new
    /// buffer.
    pub(crate) fn append(
        room: Option<&Room>,
        rows: &Tensor,
        x: &Tensor,
    ) -> Result<(Tensor, Room), KernelError> {
        let length = |x: &Tensor| x.size().get(1).copied().unwrap_or(0);
        let (past, new) = (length(rows), length(x));
        let all = past + new;
        if let Some(room) = room
            && all <= length(&room.buffer)
            && room.used.compare_exchange(past, all, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            room.buffer.f_narrow(1, past, new)?.f_copy_(x)?;
            return Ok((room.buffer.f_narrow(1, 0, all)?, room.share()));
        }
        let mut size = x.size();
        if let Some(capacity) = size.get_mut(1) {
            *capacity = all + LEAST.max(all / 2);
        }
        let buffer = Tensor::f_empty(size, (x.kind(), x.device()))?;
        buffer.f_narrow(1, 0, past)?.f_copy_(rows)?;
        buffer.f_narrow(1, past, new)?.f_copy_(x)?;
        let rows = buffer.f_narrow(1, 0, all)?;
        Ok((rows, Room { buffer, used: Arc::new(AtomicI64::new(all)) }))
    }
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;

    fn rows(numbers: std::ops::Range<i64>) -> Tensor {
        Tensor::arange_start(numbers.start, numbers.end, (Kind::Float, Device::Cpu))
            .reshape([1, -1, 1])
    }

    #[test]
    fn rows_follow_one_another_in_one_memory() {
        let (mut all, mut room) = Room::append(None, &rows(0..0), &rows(0..5)).unwrap();
        let memory = all.data_ptr();
        for n in 5..300 {
            (all, room) = Room::append(Some(&room), &all, &rows(n..n + 1)).unwrap();
            assert!(all.equal(&rows(0..n + 1)) && all.is_contiguous(), "{n}");
            assert_eq!(all.data_ptr() == memory, n < 69, "{n}");
        }
    }

    #[test]
    fn a_branch_has_its_own_rows() {
        let (first, room) = Room::append(None, &rows(0..2), &rows(2..3)).unwrap();
        let (longer, _) = Room::append(Some(&room), &first, &rows(3..5)).unwrap();
        let (other, _) = Room::append(Some(&room), &first, &rows(7..8)).unwrap();
        assert!(first.equal(&rows(0..3)) && longer.equal(&rows(0..5)));
        assert!(other.equal(&Tensor::cat(&[rows(0..3), rows(7..8)], 1)));
        assert_eq!(longer.data_ptr(), first.data_ptr());
        assert_ne!(other.data_ptr(), first.data_ptr());
    }
}
