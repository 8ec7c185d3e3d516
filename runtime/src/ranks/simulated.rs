//! Ranks as threads of one process: any number of them on any machine, to test what many processes do.
//!
//! In: a number of ranks and what each does. Out: their results. Must stay true: an exchange ends only when all ranks
//! have called it, and calls that differ in kind or size are an error, as they would hang a network.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};

use tch::{Kind, Tensor};

use super::{Collectives, Received};
use crate::error::ExecuteError;

/// What one rank gives to the exchange with this number.
#[derive(Debug)]
struct Given {
    what: String,
    tensor: Tensor,
    counts: Vec<i64>,
}

#[derive(Debug, Default)]
struct Board {
    given: BTreeMap<(u64, u64), Given>,
    read: BTreeMap<u64, u64>,
}

/// One rank.
#[derive(Debug)]
pub struct Simulated {
    rank: u64,
    size: u64,
    board: Arc<(Mutex<Board>, Condvar)>,
    exchanges: Cell<u64>,
    received: Received,
    calls: RefCell<Vec<(Call, Kind)>>,
}

/// A call of a collective, with elements for and from each rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    AllToAll(Vec<i64>, Vec<i64>),
    AllGather(i64),
    Broadcast(i64),
}

/// Runs `body` on every rank and returns the results in order.
pub fn with_ranks<T: Send>(size: u64, body: impl Fn(Simulated) -> T + Sync) -> Vec<T> {
    let board = Arc::new((Mutex::new(Board::default()), Condvar::new()));
    std::thread::scope(|scope| {
        let body = &body;
        let threads: Vec<_> = (0..size)
            .map(|rank| {
                let board = board.clone();
                scope.spawn(move || {
                    tch::set_num_threads(1);
                    body(Simulated {
                        rank,
                        size,
                        board,
                        exchanges: Cell::new(0),
                        received: Received::default(),
                        calls: RefCell::default(),
                    })
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

impl Simulated {
    /// Everything that this rank has called, in order.
    pub fn calls(&self) -> Vec<(Call, Kind)> {
        self.calls.borrow().clone()
    }

    fn note(&self, call: Call, tensor: &Tensor) {
        self.calls.borrow_mut().push((call, tensor.kind()));
    }

    /// What every rank gave, once all did.
    fn exchange<T>(
        &self,
        what: String,
        tensor: Tensor,
        counts: &[i64],
        read: impl FnOnce(&dyn Fn(u64) -> (Tensor, Vec<i64>)) -> T,
    ) -> T {
        let number = self.exchanges.replace(self.exchanges.get() + 1);
        let (board, changed) = &*self.board;
        let mut board = board.lock().unwrap();
        let given = Given { what: what.clone(), tensor, counts: counts.to_vec() };
        board.given.insert((number, self.rank), given);
        changed.notify_all();
        let all = |board: &Board| board.given.range((number, 0)..=(number, u64::MAX)).count();
        while all(&board) < self.size as usize {
            board = changed.wait(board).unwrap();
        }
        for rank in 0..self.size {
            assert_eq!(board.given[&(number, rank)].what, what, "exchange {number} of rank {rank}");
        }
        let result = read(&|rank| {
            let given = &board.given[&(number, rank)];
            (given.tensor.shallow_clone(), given.counts.clone())
        });
        let readers = board.read.entry(number).or_default();
        *readers += 1;
        if *readers == self.size {
            board.read.remove(&number);
            board.given.retain(|(known, _), _| *known != number);
        }
        result
    }
}

impl Collectives for Simulated {
    fn rank(&self) -> u64 {
        self.rank
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn all_to_all(
        &self,
        output: &mut Tensor,
        input: &Tensor,
        output_counts: &[i64],
        input_counts: &[i64],
    ) -> Result<(), ExecuteError> {
        let me = self.rank as usize;
        self.received.add(output, output_counts.iter().copied(), self.rank);
        self.note(Call::AllToAll(input_counts.to_vec(), output_counts.to_vec()), input);
        let copy = input.copy();
        self.exchange("all to all".to_owned(), copy, input_counts, |of| {
            let mut at = 0;
            for rank in 0..self.size {
                let (theirs, counts) = of(rank);
                let wanted = output_counts[rank as usize];
                assert_eq!(counts[me], wanted, "rank {rank} sends rank {me} another count");
                let start: i64 = counts[..me].iter().sum();
                output.narrow(0, at, wanted).copy_(&theirs.narrow(0, start, wanted));
                at += wanted;
            }
        });
        Ok(())
    }

    fn all_gather(&self, output: &mut Tensor, input: &Tensor) -> Result<(), ExecuteError> {
        let what = format!("all gather of {} {:?}", input.numel(), input.kind());
        let count = input.numel() as i64;
        self.received.add(output, (0..self.size).map(|_| count), self.rank);
        self.note(Call::AllGather(count), input);
        self.exchange(what, input.copy(), &[], |of| {
            for rank in 0..self.size {
                output.narrow(0, rank as i64 * count, count).copy_(&of(rank).0);
            }
        });
        Ok(())
    }

    fn broadcast(&self, tensor: &mut Tensor) -> Result<(), ExecuteError> {
        let what = format!("broadcast of {} {:?}", tensor.numel(), tensor.kind());
        self.received.add(tensor, std::iter::once(tensor.numel() as i64), self.rank);
        self.note(Call::Broadcast(tensor.numel() as i64), tensor);
        let copy = tensor.copy();
        self.exchange(what, copy, &[], |of| tensor.copy_(&of(0).0));
        Ok(())
    }

    fn received(&self) -> u64 {
        self.received.0.get()
    }
}
