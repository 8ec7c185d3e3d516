//! `canonc data stream`: one rank's part of each training step of a lock, into a pipe.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

use clap::Args;
use data::Windows;
use data::batch::{Batch, digest_of_windows};
use lab::experiment::{DataSource, Division, Experiment, Order as SampleOrder};
use records::job;

use super::at_least_one;
use super::windows::{LockedWindows, WindowArgs};
use crate::fail::{Exit, Failure, Outcome, reason};
use crate::options::within;
use crate::output;
use crate::signals::stop_on_most_signals;

/// Write one rank's part of each training step into a pipe, for another trainer
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc data stream lockfiles/demo_llama.lock | python3 train.py
  canonc data stream lockfiles/c4_llama.lock --rank 3 --of 8 --from-step 1001 --data data/c4.index

Any number of ranks continues from any step: a step's windows depend on the lock alone. Micro-batch i belongs to rank
i mod N; if N does not divide the micro-batches, each rank has an equal part of the rows of every micro-batch. The stream
ends after the lock's last step, or when the reader closes the pipe.

Everything is little-endian.
  header     64 bytes: `canonc s`, version (1), lock id (32 bytes), then as u32: seq_len, rows and micro-batches of this
             rank in a step, rank, N; version is u32
  step       its number from 1 (u64); targets that the loss counts in the whole step (u64); learning rate (f64); digest of
             the whole step's windows (32 bytes, zeros without --digest); then for each micro-batch of this rank the
             number of its first window (u64), tokens and targets (i32, [rows, seq_len]; -100 is not counted); CRC-32
             of the step's bytes (u32)")]
pub(super) struct StreamArgs {
    /// The lock of an experiment; on text it must be bound
    #[arg(value_name = "LOCK")]
    pub lock: PathBuf,
    /// The rank, from 0
    #[arg(long, value_name = "R", default_value_t = 0, allow_negative_numbers = true, value_parser = within::<u32>(0, 1 << 20))]
    pub rank: u32,
    /// Number of ranks
    #[arg(long = "of", value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = within::<u32>(1, 1 << 20))]
    pub ranks: u32,
    /// The first step, from 1
    #[arg(long, value_name = "K", default_value_t = 1, allow_negative_numbers = true, value_parser = at_least_one)]
    pub from_step: u64,
    /// Compute the digests of whole steps, which are those of canonc's log; one rank is enough
    #[arg(long)]
    pub digest: bool,
    /// Prepared documents, if the lock trains on text [default: data/NAME.index]
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
}

const MAGIC: &[u8; 8] = b"canonc s";
const VERSION: u32 = 1;

/// Windows that one thread makes at a time.
const GROUP: u64 = 16;

/// Steps that wait for the reader.
const AHEAD: usize = 2;

pub(super) fn stream(args: &StreamArgs) -> Outcome {
    if io::stdout().is_terminal() {
        return Err(Failure::bad_input("this format cannot be shown on a terminal")
            .help("pipe the output into the program that reads it"));
    }
    let which = WindowArgs { data: args.data.clone(), held_out: false };
    let LockedWindows { experiment, windows, .. } = LockedWindows::read(&args.lock, &which)?;
    let steps = experiment.budget.steps;
    if args.from_step > steps {
        return Err(Failure::bad_input(format!(
            "`{}` has {}, but --from-step is {}",
            experiment.name,
            output::counted(steps, "step"),
            args.from_step
        ))
        .help("name one of its steps, from 1"));
    }
    let share = Share::new(&experiment, args.rank, args.ranks)?;
    let rate = job::rates(&experiment)?;
    let stop = stop_on_most_signals()?;
    let mut maker = Maker::new(&experiment, windows, share, args.digest);
    let header = header(&experiment, share, args);
    std::thread::scope(|scope| {
        let (sender, receiver) = sync_channel::<Result<Vec<u8>, Failure>>(AHEAD);
        let (range, stop) = (args.from_step..steps + 1, &stop);
        scope.spawn(move || make(&mut maker, range, &rate, stop, &sender));
        let mut out = BufWriter::new(io::stdout().lock());
        out.write_all(&header).map_err(|error| failed(&error))?;
        for frame in receiver {
            out.write_all(&frame?).and_then(|()| out.flush()).map_err(|error| failed(&error))?;
        }
        match stop.load(Ordering::Relaxed) {
            true => Err(Failure::shown(Exit::Stopped)),
            false => Ok(Exit::Fine),
        }
    })
}

/// A reader that closes the pipe has read enough.
fn failed(error: &io::Error) -> Failure {
    match error.kind() == io::ErrorKind::BrokenPipe {
        true => Failure::shown(Exit::Fine),
        false => Failure::machine(format!("standard output cannot be written: {}", reason(error))),
    }
}

fn header(experiment: &Experiment, share: Share, args: &StreamArgs) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(experiment.id().bytes());
    let counts = [
        experiment.data.seq_len as u32,
        (share.rows.end - share.rows.start) as u32,
        share.micro_batches().count() as u32,
        args.rank,
        args.ranks,
    ];
    bytes.extend(counts.into_iter().flat_map(u32::to_le_bytes));
    bytes
}

/// Makes steps until the last one, an error, a signal, or until nobody receives them.
fn make(
    maker: &mut Maker,
    steps: Range<u64>,
    rate: &impl Fn(u64) -> f64,
    stop: &AtomicBool,
    sender: &SyncSender<Result<Vec<u8>, Failure>>,
) {
    for step in steps {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let frame = maker.frame(step, rate(step - 1));
        let failed = frame.is_err();
        if sender.send(frame).is_err() || failed {
            return;
        }
    }
}

/// The part of each step that a rank computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    /// Micro-batches of a step, and windows of one of them.
    count: u64,
    width: u64,
    /// Its micro-batches: the first, and the distance to the next.
    first: u64,
    every: u64,
    /// Its rows of each of them.
    rows: Rows,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rows {
    start: u64,
    end: u64,
}

impl Share {
    fn new(experiment: &Experiment, rank: u32, ranks: u32) -> Result<Share, Failure> {
        let (rank, ranks) = (u64::from(rank), u64::from(ranks));
        if rank >= ranks {
            return Err(Failure::bad_input(format!(
                "--rank {rank} is not one of {}",
                output::counted(ranks, "rank")
            ))
            .help(format!("give a rank from 0 to {}, or more ranks with --of", ranks - 1)));
        }
        let divided = experiment.divided(ranks);
        let divided = divided.map_err(|why| Failure::bad_input(why.message).help(why.help))?;
        let (count, width) = (experiment.batch.micro_batches, experiment.batch.sequences);
        let share = Share { count, width, first: 0, every: 1, rows: Rows { start: 0, end: width } };
        Ok(match divided {
            Division::MicroBatches => Share { first: rank, every: ranks, ..share },
            Division::Rows => {
                let rows = Rows { start: rank * width / ranks, end: (rank + 1) * width / ranks };
                Share { rows, ..share }
            }
        })
    }

    fn micro_batches(self) -> impl Iterator<Item = u64> {
        (self.first..self.count).step_by(self.every as usize)
    }
}

/// Makes the bytes of steps.
struct Maker {
    /// One reader of the windows for each thread.
    readers: Vec<Windows>,
    share: Share,
    seq_len: u64,
    /// Whether a step needs all of its windows: for the digest, or to count targets.
    digest: bool,
    labels: bool,
}

impl Maker {
    fn new(experiment: &Experiment, windows: Windows, share: Share, digest: bool) -> Maker {
        let (labels, walked) = match &experiment.data.source {
            DataSource::Task { order, .. } => (true, *order == SampleOrder::Published),
            DataSource::Text { .. } => (false, false),
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // The published order can only be walked by one.
        let threads = if walked { 1 } else { cores.min(8) };
        let seq_len = experiment.data.seq_len;
        Maker { readers: vec![windows; threads], share, seq_len, digest, labels }
    }

    /// The bytes of a step, from 1.
    fn frame(&mut self, step: u64, rate: f64) -> Result<Vec<u8>, Failure> {
        let Share { count, width, .. } = self.share;
        let first = job::first_window(step - 1, (count, width))?;
        let own: Vec<Range<u64>> =
            self.share.micro_batches().map(|i| self.rows(first, i)).collect();
        let mut groups = Vec::new();
        for i in 0..count {
            let (own, all) = (self.rows(first, i), first + i * width..first + (i + 1) * width);
            let is_own = self.share.micro_batches().any(|index| index == i);
            for range in [all.start..own.start, own.clone(), own.end..all.end] {
                let own = is_own && range == own;
                if own || self.labels || self.digest {
                    groups.extend(cut(range).map(|range| Group { range, own }));
                }
            }
        }
        let filled = self.fill(&groups)?;
        let counted = match self.labels {
            true => filled.iter().map(|filled| filled.counted).sum(),
            false => count * width * self.seq_len,
        };
        let digest = match self.digest {
            true => *digest_of_windows(filled.iter().flat_map(|filled| &filled.digests)).as_bytes(),
            false => [0; 32],
        };
        let mut bytes = Vec::new();
        bytes.extend(step.to_le_bytes());
        bytes.extend(counted.to_le_bytes());
        bytes.extend(rate.to_le_bytes());
        bytes.extend(digest);
        for range in own {
            bytes.extend(range.start.to_le_bytes());
            let inside = |group: &Group| group.own && range.contains(&group.range.start);
            let parts = || groups.iter().zip(&filled).filter(|(group, _)| inside(group));
            parts().for_each(|(_, filled)| bytes.extend(&filled.tokens));
            parts().for_each(|(_, filled)| bytes.extend(&filled.targets));
        }
        let checksum = crc32fast::hash(&bytes);
        bytes.extend(checksum.to_le_bytes());
        Ok(bytes)
    }

    /// The windows of a micro-batch that are this rank's, if the micro-batch is.
    fn rows(&self, first: u64, micro_batch: u64) -> Range<u64> {
        let Share { width, rows, .. } = self.share;
        let start = first + micro_batch * width;
        start + rows.start..start + rows.end
    }

    /// The windows of each group, in order.
    fn fill(&mut self, groups: &[Group]) -> Result<Vec<Filled>, Failure> {
        let (threads, digest) = (self.readers.len().min(groups.len()).max(1), self.digest);
        let parts: Vec<Result<Vec<Filled>, Failure>> = std::thread::scope(|scope| {
            let readers = self.readers.iter_mut().take(threads).enumerate();
            let working: Vec<_> = readers
                .map(|(thread, windows)| {
                    let own = groups.iter().skip(thread).step_by(threads);
                    scope.spawn(move || own.map(|group| group.fill(windows, digest)).collect())
                })
                .collect();
            let joined = working.into_iter().map(|thread| thread.join());
            joined
                .map(|part| part.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        let parts: Vec<Vec<Filled>> = parts.into_iter().collect::<Result<_, _>>()?;
        let mut parts: Vec<_> = parts.into_iter().map(Vec::into_iter).collect();
        Ok((0..groups.len()).filter_map(|at| parts.get_mut(at % threads)?.next()).collect())
    }
}

/// A range in parts that one thread makes.
fn cut(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    range.step_by(GROUP as usize).map(move |start| start..end.min(start + GROUP))
}

/// Neighbouring windows of one micro-batch, which are this rank's or only counted.
struct Group {
    range: Range<u64>,
    own: bool,
}

impl Group {
    fn fill(&self, windows: &mut Windows, digest: bool) -> Result<Filled, Failure> {
        if let Windows::Task(tasks) = windows {
            tasks.replay_to(self.range.start);
        }
        let mut batch = Batch::default();
        windows.fill(self.range.clone(), &mut batch)?;
        Ok(Filled {
            counted: batch.counted_targets(),
            digests: if digest { batch.window_digests() } else { Vec::new() },
            tokens: if self.own { narrow(batch.inputs()) } else { Vec::new() },
            targets: if self.own { narrow(batch.targets()) } else { Vec::new() },
        })
    }
}

/// Ids as little-endian i32. A vocabulary has at most 2^24, so this cannot overflow.
fn narrow(ids: &[i64]) -> Vec<u8> {
    let mut bytes = vec![0; 4 * ids.len()];
    for (four, id) in bytes.chunks_exact_mut(4).zip(ids) {
        four.copy_from_slice(&(*id as i32).to_le_bytes());
    }
    bytes
}

/// What a step needs of a group.
struct Filled {
    counted: u64,
    digests: Vec<blake3::Hash>,
    tokens: Vec<u8>,
    targets: Vec<u8>,
}
