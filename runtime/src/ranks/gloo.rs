//! Ranks as processes, over Gloo.
//!
//! In: the environment of a launcher, or of `canonc run --ranks`. Out: [`Collectives`]. Must stay true: an error of the
//! network is reported as an error of a rank: the one that stored why it failed, or the one that no longer responds.

use std::cell::Cell;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use tch::Tensor;

use super::{Collectives, Exchange, Received, UnderWay};
use crate::error::ExecuteError;
use crate::kernels::{Group, KernelError, Meeting};
use records::run::RunError;

/// How long ranks wait for each other to say that they still run. One on a busy machine needs seconds.
const ROLL_CALL: Duration = Duration::from_secs(8);

/// How often a rank looks whether the others have come.
const POLL: Duration = Duration::from_millis(50);

/// This process among those that a launcher started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    pub rank: u32,
    pub size: u32,
    /// Ranks on this machine.
    pub local: u32,
    /// Which of them this is.
    pub place: u32,
    pub host: String,
    pub port: u16,
    /// Whether rank 0 hosts the store; `torchrun` hosts it itself.
    pub serves: bool,
    /// Separates a restart from the processes before it.
    pub prefix: String,
}

impl Launch {
    /// Reads the environment that `torchrun`, `srun` or `canonc run --ranks` makes; `None` if this is a process of its
    /// own.
    pub fn from_environment(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Launch>, RunError> {
        let torch = ["RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_RANK"];
        // The script of a job has SLURM_NTASKS, too, but only what `srun` starts is in a step.
        let slurm =
            ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS_PER_NODE", "SLURM_LOCALID"];
        let [rank, size, local, place] = if variable(torch[0]).is_some() { torch } else { slurm };
        let (Some(rank_text), Some(size_text)) = (variable(rank), variable(size)) else {
            return Ok(None);
        };
        let rank = number(rank, &rank_text)?;
        let size = number(size, &size_text)?;
        if size <= 1 {
            return Ok(None);
        }
        if rank >= size {
            return Err(RunError::input(
                format!("the environment says rank {rank} of {size}, but ranks count from 0"),
                "start the processes with `torchrun`, `srun` or `canonc run --ranks N`",
            ));
        }
        let local = variable(local).map_or(Ok(size), |text| number(local, &text))?.max(1);
        let place = variable(place).map_or(Ok(rank % local), |text| number(place, &text))?;
        let missing = |name: &str| {
            RunError::input(
                format!(
                    "the environment says rank {rank} of {size}, but not {name}, where the ranks meet"
                ),
                format!("export {name}; `torchrun` and `canonc run --ranks N` do"),
            )
        };
        let host = variable("MASTER_ADDR").ok_or_else(|| missing("MASTER_ADDR"))?;
        let port = variable("MASTER_PORT").ok_or_else(|| missing("MASTER_PORT"))?;
        let port = port.parse().map_err(|_| {
            RunError::input(
                format!("MASTER_PORT is `{port}`, but a port is a number up to 65535"),
                "export another MASTER_PORT",
            )
        })?;
        let agent = variable("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|value| value == "True");
        let restart = variable("TORCHELASTIC_RESTART_COUNT").unwrap_or_else(|| "0".to_owned());
        Ok(Some(Launch {
            rank,
            size,
            local,
            place,
            host,
            port,
            serves: rank == 0 && !agent,
            prefix: format!("canonc/{restart}"),
        }))
    }
}

fn number(name: &str, text: &str) -> Result<u32, RunError> {
    text.parse().map_err(|_| {
        RunError::input(
            format!("{name} is `{text}` in the environment, but it must be a number"),
            "start the processes with `torchrun`, `srun` or `canonc run --ranks N`",
        )
    })
}

/// The connection of this process to the other ranks.
pub struct Gloo {
    group: Group,
    launch: Launch,
    received: Received,
    /// Whether another rank ended an exchange.
    lost: Cell<bool>,
}

impl fmt::Debug for Gloo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gloo").field("launch", &self.launch).finish_non_exhaustive()
    }
}

/// A rank among those that meet, before they are connected.
#[derive(Debug)]
pub struct Arrived {
    gloo: Gloo,
    timeout: Duration,
}

impl Arrived {
    /// Opens the store where ranks meet.
    pub fn at(launch: Launch, timeout: Duration) -> Result<Arrived, RunError> {
        let Launch { rank, size, local: _, place: _, host, port, serves, prefix } = &launch;
        let meeting = Meeting {
            host: host.clone(),
            port: *port,
            serves: *serves,
            prefix: prefix.clone(),
            rank: *rank,
            size: *size,
            timeout,
        };
        let group = Group::meet(&meeting).map_err(|error| {
            RunError::machine(
                format!(
                    "rank {rank} of {size} found nobody at {host}:{port} within {} s: {}",
                    timeout.as_secs(),
                    first_line(&error)
                ),
                "check that rank 0 was started, and that this machine can reach that host and port",
            )
        })?;
        let gloo = Gloo { group, launch, received: Received::default(), lost: Cell::new(false) };
        Ok(Arrived { gloo, timeout })
    }

    /// Tells the others why this rank cannot take part, and gives them time to hear it.
    pub fn give_up(&self, why: &str) {
        self.gloo.fail(why);
        self.linger();
    }

    /// The host of the store leaves last, as nobody could say why after that.
    fn linger(&self) {
        let Launch { rank, size, serves, .. } = self.gloo.launch;
        let until = Instant::now() + ROLL_CALL;
        for other in (0..size).filter(|other| serves && *other != rank) {
            let wait = until.saturating_duration_since(Instant::now());
            // A rank that does not answer is no reason to wait longer.
            let _ = self.gloo.group.get(&format!("failed/{other}"), wait);
        }
    }

    /// Returns when all ranks have joined, and agree on `same`: what must be equal on all of them. `nccl` is the library
    /// for exchanges between GPUs.
    pub fn join(self, same: &str, nccl: Option<&Path>) -> Result<Gloo, RunError> {
        let Arrived { gloo, timeout } = &self;
        let connected = gloo.agree(same, *timeout).and_then(|()| {
            // All on one machine: its host name may have no address.
            let alone = gloo.launch.local == gloo.launch.size;
            let connect = gloo.group.connect(alone.then_some("127.0.0.1"), *timeout);
            connect.map_err(|error| RunError::from(gloo.lost(&error)))?;
            let add = |library| gloo.group.add_nccl(library, *timeout);
            nccl.map_or(Ok(()), add).map_err(|error| {
                RunError::machine(
                    format!("rank {} cannot use NCCL: {}", gloo.launch.rank, first_line(&error)),
                    "check that NCCL's libraries are installed on every machine",
                )
            })
        });
        match connected {
            Ok(()) => Ok(self.gloo),
            Err(error) => {
                self.give_up(&error.message);
                Err(error)
            }
        }
    }
}

impl Gloo {
    /// Refuses ranks that were started with something else, or that do not come in time. Rank 0 compares all with itself,
    /// and the others wait for its word, so that the store answers a few questions for each rank.
    fn agree(&self, same: &str, timeout: Duration) -> Result<(), RunError> {
        let Launch { rank, size, .. } = self.launch;
        let lost = |error: KernelError| RunError::from(self.lost(&error));
        self.group.set(&format!("same/{rank}"), same).map_err(lost)?;
        let until = Instant::now() + timeout;
        if rank > 0 {
            let first = self.wait("same/0", &[0], until)?;
            self.compare(same, 0, &first)?;
            self.wait("agreed", &[0], until)?;
            return Ok(());
        }
        let others: Vec<u32> = (1..size).collect();
        for other in &others {
            let theirs = self.wait(&format!("same/{other}"), &others, until)?;
            self.compare(same, *other, &theirs)?;
        }
        self.group.set("agreed", "").map_err(lost)
    }

    /// Waits for a key, unless one of these ranks fails before.
    fn wait(&self, key: &str, of: &[u32], until: Instant) -> Result<String, RunError> {
        let lost = |error: KernelError| RunError::from(self.lost(&error));
        let stored = |key: &str| self.group.get(key, Duration::ZERO).map_err(lost);
        loop {
            if let Some(found) = stored(key)? {
                return Ok(found);
            }
            for other in of {
                if let Some(why) = stored(&format!("failed/{other}"))? {
                    return Err(RunError::machine(
                        format!("rank {other} failed: {why}"),
                        "correct that, and start all ranks again",
                    ));
                }
            }
            if Instant::now() >= until {
                let mut late = Vec::new();
                for other in of {
                    if stored(&format!("same/{other}"))?.is_none() {
                        late.push(other.to_string());
                    }
                }
                return Err(RunError::machine(
                    format!(
                        "{} did not come in time: {}",
                        dsl::counted(late.len(), "rank"),
                        late.join(", ")
                    ),
                    "check that all ranks were started; --rank-timeout sets how long to wait",
                ));
            }
            std::thread::sleep(POLL);
        }
    }

    fn compare(&self, same: &str, other: u32, theirs: &str) -> Result<(), RunError> {
        if theirs == same {
            return Ok(());
        }
        let rank = self.launch.rank;
        let mut lines = theirs.lines().zip(same.lines());
        let difference = lines
            .find(|(theirs, ours)| theirs != ours)
            .map_or_else(String::new, |(theirs, ours)| {
                format!(": rank {other} has {theirs}, rank {rank} has {ours}")
            });
        Err(RunError::machine(
            format!("ranks {other} and {rank} differ{difference}"),
            "start every rank with the same canonc, lock and options, on the same kind of machine",
        ))
    }

    /// Tells the other ranks why this one ends, unless another rank is why: each finds that one by itself.
    pub fn fail(&self, why: &str) {
        if self.lost.get() {
            return;
        }
        // The others notice the end of this process in any case.
        let _ = self.group.set(&format!("failed/{}", self.launch.rank), why);
    }

    /// The error for an exchange that did not happen: names the rank at fault.
    fn lost(&self, error: &KernelError) -> ExecuteError {
        self.lost.set(true);
        let Launch { rank, size, .. } = self.launch;
        let gone = || {
            ExecuteError::of_rank(format!(
                "rank 0, which the others meet at, no longer responds: {}",
                first_line(error)
            ))
        };
        if self.group.set(&format!("alive/{rank}"), "").is_err() {
            return gone();
        }
        let until = Instant::now() + ROLL_CALL;
        let mut silent = Vec::new();
        for other in (0..size).filter(|other| *other != rank) {
            match self.group.get(&format!("failed/{other}"), Duration::ZERO) {
                Ok(Some(why)) => {
                    return ExecuteError::of_rank(format!("rank {other} failed: {why}"));
                }
                Ok(None) => {}
                Err(_) => return gone(),
            }
            let wait = until.saturating_duration_since(Instant::now());
            match self.group.get(&format!("alive/{other}"), wait) {
                Ok(Some(_)) => {}
                Ok(None) => silent.push(other),
                Err(_) => return gone(),
            }
        }
        // A rank that fails stores why, then leaves; it may have done so meanwhile.
        for other in &silent {
            if let Ok(Some(why)) = self.group.get(&format!("failed/{other}"), Duration::ZERO) {
                return ExecuteError::of_rank(format!("rank {other} failed: {why}"));
            }
        }
        let error = first_line(error);
        ExecuteError::of_rank(match silent.as_slice() {
            [] => format!("the ranks lost their connection: {error}"),
            [one] => format!("rank {one} does not respond: it was killed, or it hangs ({error})"),
            several => {
                let names: Vec<String> = several.iter().map(u32::to_string).collect();
                format!("ranks {} do not respond ({error})", names.join(", "))
            }
        })
    }
}

fn first_line(error: &KernelError) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

impl Collectives for Gloo {
    fn rank(&self) -> u64 {
        u64::from(self.launch.rank)
    }

    fn size(&self) -> u64 {
        u64::from(self.launch.size)
    }

    fn begin_all_to_all(
        &self,
        output: Tensor,
        input: Tensor,
        output_counts: &[i64],
        input_counts: &[i64],
    ) -> Result<UnderWay, ExecuteError> {
        self.received.add(&output, output_counts.iter().copied(), self.rank());
        let work = self.group.begin_all_to_all(output, input, output_counts, input_counts);
        work.map(|work| UnderWay(Exchange::Work(work))).map_err(|error| self.lost(&error))
    }

    fn begin_all_gather(&self, output: Tensor, input: Tensor) -> Result<UnderWay, ExecuteError> {
        let each = input.numel() as i64;
        self.received.add(&output, (0..self.size()).map(|_| each), self.rank());
        let work = self.group.begin_all_gather(output, input);
        work.map(|work| UnderWay(Exchange::Work(work))).map_err(|error| self.lost(&error))
    }

    fn wait(&self, UnderWay(exchange): UnderWay) -> Result<Tensor, ExecuteError> {
        match exchange {
            Exchange::Work(work) => work.wait().map_err(|error| self.lost(&error)),
            Exchange::Simulated(_) => Err(ExecuteError::new("an exchange of other ranks")),
        }
    }

    fn broadcast(&self, tensor: &mut Tensor) -> Result<(), ExecuteError> {
        self.group.broadcast(tensor, 0).map_err(|error| self.lost(&error))?;
        self.received.add(tensor, std::iter::once(tensor.numel() as i64), self.rank());
        Ok(())
    }

    fn received(&self) -> u64 {
        self.received.0.get()
    }
}
