//! Ranks as threads of one process: any number of them on any machine, to test what many processes do.
//!
//! An exchange ends only when all ranks have begun it, or one of them is gone. Calls that differ in kind or size would
//! hang a network; here they are an error of the rank that differs.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};

use tch::{Kind, Tensor};

use super::{Collectives, Exchange, Received, UnderWay};
use crate::error::ExecuteError;

/// What one rank contributes to the exchange with this number.
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
    /// The first rank that is gone.
    gone: Option<u64>,
}

/// What goes wrong, for tests of failures.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trouble {
    /// Ranks wait for varying times before their exchanges, drawn from this.
    pub delays: Option<u64>,
    /// This rank is gone from the exchange with this number on.
    pub dies: Option<(u64, u64)>,
    /// This rank's message in the exchange with this number is cut in half.
    pub cuts: Option<(u64, u64)>,
    /// This rank has no memory for the exchange with this number.
    pub fills: Option<(u64, u64)>,
}

/// One rank.
#[derive(Debug)]
pub struct Simulated {
    rank: u64,
    size: u64,
    board: Arc<(Mutex<Board>, Condvar)>,
    exchanges: Cell<u64>,
    trouble: Trouble,
    received: Received,
    calls: RefCell<Vec<(Call, Kind)>>,
    /// Exchanges that have begun and were not waited for.
    began: Cell<u64>,
    /// The most of them at any time.
    most: Cell<u64>,
    /// How often this rank has settled its exchanges.
    settled: Cell<u64>,
}

/// An exchange that this rank has begun.
#[derive(Debug)]
pub(super) struct Begun {
    number: u64,
    what: String,
    output: Tensor,
    /// Elements from each rank.
    wanted: Vec<i64>,
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
    with_trouble(size, Trouble::default(), body)
}

/// Like [`with_ranks`], where something goes wrong.
pub fn with_trouble<T: Send>(
    size: u64,
    trouble: Trouble,
    body: impl Fn(Simulated) -> T + Sync,
) -> Vec<T> {
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
                        trouble,
                        received: Received::default(),
                        calls: RefCell::default(),
                        began: Cell::new(0),
                        most: Cell::new(0),
                        settled: Cell::new(0),
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

    /// The most exchanges that were under way at a time.
    pub fn most_under_way(&self) -> u64 {
        self.most.get()
    }

    /// How often this rank was about to read from the device.
    pub fn settled(&self) -> u64 {
        self.settled.get()
    }

    fn note(&self, call: Call, tensor: &Tensor) {
        self.calls.borrow_mut().push((call, tensor.kind()));
    }

    /// Contributes this rank's part of the next exchange. Returns the exchange's number.
    fn give(&self, what: &str, tensor: Tensor, counts: &[i64]) -> Result<u64, ExecuteError> {
        let number = self.exchanges.replace(self.exchanges.get() + 1);
        let Trouble { delays, dies, cuts, fills } = self.trouble;
        if let Some(seed) = delays {
            // splitmix64 of rank and number.
            let mut x = seed ^ self.rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number << 17;
            x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            std::thread::sleep(std::time::Duration::from_micros((x >> 40) % 700));
        }
        let tensor = match cuts {
            Some((rank, at)) if (rank, at) == (self.rank, number) => {
                tensor.f_narrow(0, 0, tensor.size().first().copied().unwrap_or(0) / 2)?
            }
            Some(_) | None => tensor,
        };
        if fills == Some((self.rank, number)) {
            // As libtorch says it.
            return Err(ExecuteError::new(
                "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes",
            ));
        }
        let (board, changed) = &*self.board;
        let mut board = board.lock().map_err(|_| ExecuteError::new("another rank panicked"))?;
        if dies.is_some_and(|(rank, at)| rank == self.rank && number >= at) {
            board.gone.get_or_insert(self.rank);
            changed.notify_all();
            return Err(ExecuteError::new("this rank is killed"));
        }
        let given = Given { what: what.to_owned(), tensor, counts: counts.to_vec() };
        board.given.insert((number, self.rank), given);
        changed.notify_all();
        Ok(number)
    }

    /// What every rank contributed to an exchange, once all have.
    fn read<T>(
        &self,
        number: u64,
        what: &str,
        read: impl FnOnce(&dyn Fn(u64) -> (Tensor, Vec<i64>)) -> Result<T, ExecuteError>,
    ) -> Result<T, ExecuteError> {
        let (board, changed) = &*self.board;
        let mut board = board.lock().map_err(|_| ExecuteError::new("another rank panicked"))?;
        let all = |board: &Board| board.given.range((number, 0)..=(number, u64::MAX)).count();
        while all(&board) < self.size as usize {
            if let Some(gone) = board.gone {
                return Err(ExecuteError::of_rank(format!("rank {gone} does not respond")));
            }
            board = changed.wait(board).map_err(|_| ExecuteError::new("another rank panicked"))?;
        }
        for rank in 0..self.size {
            let theirs =
                board.given.get(&(number, rank)).map_or("nothing", |given| given.what.as_str());
            if theirs != what {
                return Err(ExecuteError::of_rank(format!(
                    "exchange {number} is {what} for rank {}, but {theirs} for rank {rank}",
                    self.rank
                )));
            }
        }
        let result = read(&|rank| match board.given.get(&(number, rank)) {
            Some(given) => (given.tensor.shallow_clone(), given.counts.clone()),
            None => (Tensor::new(), Vec::new()),
        });
        let readers = board.read.entry(number).or_default();
        *readers += 1;
        if *readers == self.size {
            board.read.remove(&number);
            board.given.retain(|(known, _), _| *known != number);
        }
        result
    }

    fn begin(
        &self,
        what: String,
        output: Tensor,
        input: &Tensor,
        counts: &[i64],
        wanted: Vec<i64>,
    ) -> Result<UnderWay, ExecuteError> {
        let number = self.give(&what, input.copy(), counts)?;
        self.began.set(self.began.get() + 1);
        self.most.set(self.most.get().max(self.began.get()));
        Ok(UnderWay(Exchange::Simulated(Begun { number, what, output, wanted })))
    }

    /// What another rank sent, which must have this many elements.
    fn check_size(&self, rank: u64, tensor: &Tensor, wanted: i64) -> Result<(), ExecuteError> {
        let elements = tensor.numel() as i64;
        if elements == wanted {
            return Ok(());
        }
        Err(ExecuteError::of_rank(format!(
            "a message of rank {rank} has {elements} of {wanted} elements"
        )))
    }
}

impl Drop for Simulated {
    /// A rank that ends is missed by those that still wait for it.
    fn drop(&mut self) {
        let (board, changed) = &*self.board;
        if let Ok(mut board) = board.lock() {
            board.gone.get_or_insert(self.rank);
        }
        changed.notify_all();
    }
}

impl Collectives for Simulated {
    fn rank(&self) -> u64 {
        self.rank
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn begin_all_to_all(
        &self,
        output: Tensor,
        input: Tensor,
        output_counts: &[i64],
        input_counts: &[i64],
    ) -> Result<UnderWay, ExecuteError> {
        self.received.add(&output, output_counts.iter().copied(), self.rank);
        self.note(Call::AllToAll(input_counts.to_vec(), output_counts.to_vec()), &input);
        let what = "all to all".to_owned();
        self.begin(what, output, &input, input_counts, output_counts.to_vec())
    }

    fn begin_all_gather(&self, output: Tensor, input: Tensor) -> Result<UnderWay, ExecuteError> {
        let what = format!("all gather of {} {:?}", input.numel(), input.kind());
        let count = input.numel() as i64;
        self.received.add(&output, (0..self.size).map(|_| count), self.rank);
        self.note(Call::AllGather(count), &input);
        self.begin(what, output, &input, &[], vec![count; self.size as usize])
    }

    fn wait(&self, UnderWay(exchange): UnderWay) -> Result<Tensor, ExecuteError> {
        let Exchange::Simulated(Begun { number, what, output, wanted }) = exchange else {
            return Err(ExecuteError::new("an exchange of other ranks"));
        };
        self.began.set(self.began.get() - 1);
        let me = self.rank as usize;
        self.read(number, &what, |of| {
            let mut at = 0;
            for (rank, wanted) in (0..).zip(&wanted) {
                let (theirs, counts) = of(rank);
                // Without counts, all of it is for every rank.
                let start: i64 = counts.iter().take(me).sum();
                let sent = counts.get(me).copied().unwrap_or(*wanted);
                let all = if counts.is_empty() { *wanted } else { counts.iter().sum() };
                self.check_size(rank, &theirs, all)?;
                if sent != *wanted {
                    return Err(ExecuteError::of_rank(format!(
                        "rank {rank} sends rank {me} {sent} elements, not {wanted}"
                    )));
                }
                output.narrow(0, at, *wanted).copy_(&theirs.narrow(0, start, *wanted));
                at += wanted;
            }
            Ok(())
        })?;
        Ok(output)
    }

    fn settle(&self) -> Result<(), ExecuteError> {
        self.settled.set(self.settled.get() + 1);
        Ok(())
    }

    fn broadcast(&self, tensor: &mut Tensor) -> Result<(), ExecuteError> {
        let what = format!("broadcast of {} {:?}", tensor.numel(), tensor.kind());
        self.received.add(tensor, std::iter::once(tensor.numel() as i64), self.rank);
        self.note(Call::Broadcast(tensor.numel() as i64), tensor);
        let number = self.give(&what, tensor.copy(), &[])?;
        self.read(number, &what, |of| {
            let (theirs, _) = of(0);
            self.check_size(0, &theirs, tensor.numel() as i64)?;
            tensor.copy_(&theirs);
            Ok(())
        })
    }

    fn received(&self) -> u64 {
        self.received.0.get()
    }
}
