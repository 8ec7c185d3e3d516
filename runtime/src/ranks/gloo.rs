//! Ranks as processes that are connected by Gloo.
//!
//! A network error is reported as the error of a rank: the one that stored why it failed, or the one that no longer
//! responds.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use dsl::Problem;
use tch::Tensor;

use super::pending::Outstanding;
use super::{Collectives, Exchange, Launch, Received, UnderWay};
use crate::error::ExecuteError;
use crate::kernels::{Group, KernelError, Meeting, Network, Pending};

/// How long ranks wait for each other to say that they still run, unless the timeout is shorter. One on a busy machine
/// needs seconds.
const ROLL_CALL: Duration = Duration::from_secs(8);

/// How often a rank looks whether the others have come.
const POLL: Duration = Duration::from_millis(50);

/// The connection of this process to the other ranks.
pub struct Gloo {
    group: Group,
    launch: Launch,
    /// How long ranks wait for each other to say that they still run.
    roll_call: Duration,
    received: Received,
    /// Exchanges between GPUs that this process has not waited for.
    outstanding: Outstanding<Pending>,
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
    pub fn at(launch: Launch, timeout: Duration) -> Result<Arrived, Problem> {
        let Launch { rank, size, host, port, serves, prefix, .. } = &launch;
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
            if error.to_string().contains("EADDRINUSE") {
                return Problem::machine(
                    format!("rank 0 cannot listen on port {port}: another program does"),
                    "export another MASTER_PORT on all ranks",
                );
            }
            Problem::machine(
                format!(
                    "rank {rank} of {size} found nobody at {host}:{port} within {} s: {}",
                    timeout.as_secs(),
                    first_line(&error)
                ),
                "check that rank 0 was started, and that this machine can reach that host and port",
            )
        })?;
        let gloo = Gloo {
            group,
            launch,
            roll_call: ROLL_CALL.min(timeout),
            received: Received::default(),
            outstanding: Outstanding::new(timeout),
            lost: Cell::new(false),
        };
        Ok(Arrived { gloo, timeout })
    }

    /// Tells the others why this rank cannot take part, and leaves them time to read it.
    pub fn give_up(&self, reason: &str) {
        self.gloo.fail(reason);
        self.linger();
    }

    /// The process that hosts the store leaves last, since nobody can store or read a reason after that.
    fn linger(&self) {
        let Launch { rank, size, serves, .. } = self.gloo.launch;
        let until = Instant::now() + self.gloo.roll_call;
        for other in (0..size).filter(|other| serves && *other != rank) {
            // A rank that does not answer is no reason to wait longer.
            let _ = self.gloo.heard("failed", other, until);
        }
    }

    /// Returns when all ranks have joined, and agree on `same`: what must be equal on all of them. `gpu` identifies
    /// this rank's GPU among all others, and `nccl` is the library for exchanges between GPUs.
    pub fn join(self, same: &str, gpu: Option<&str>, nccl: Option<&Path>) -> Result<Gloo, Problem> {
        let Arrived { gloo, timeout } = &self;
        let connected = gloo.agree(same, gpu, *timeout).and_then(|()| {
            gloo.connect(*timeout)?;
            let add = |library| gloo.group.add_nccl(library, *timeout);
            nccl.map_or(Ok(()), add).map_err(|error| {
                Problem::machine(
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
    /// Opens a connection to each other rank.
    fn connect(&self, timeout: Duration) -> Result<(), Problem> {
        let device = match &self.launch.interfaces {
            Some(names) => Network::Interfaces(names.clone()),
            None => self.launch.address().map_or(Network::OfHostName, Network::Address),
        };
        let connected = self.group.connect(&device, timeout);
        connected.map_err(|error| {
            let error = Problem::from(self.lost(&error));
            // The others may not have noticed.
            self.lost.set(false);
            Problem::machine(
                error.message,
                "if that rank still runs, its machine cannot be reached there: GLOO_SOCKET_IFNAME names the network \
                 interface to use on each machine",
            )
        })
    }

    /// Refuses ranks that were started with something else, that share a GPU, or that do not come in time. Rank 0
    /// compares all with itself, and the others wait for its verdict, so that the store serves few requests for each
    /// rank.
    fn agree(&self, same: &str, gpu: Option<&str>, timeout: Duration) -> Result<(), Problem> {
        let Launch { rank, size, .. } = self.launch;
        let lost = |error: KernelError| Problem::from(self.lost(&error));
        if let Some(gpu) = gpu {
            self.group.set(&format!("gpu/{rank}"), gpu).map_err(lost)?;
        }
        self.group.set(&format!("same/{rank}"), same).map_err(lost)?;
        let until = Instant::now() + timeout;
        if rank > 0 {
            let first = self.wait("same/0", &[0], until)?;
            self.compare(same, 0, &first)?;
            self.wait("agreed", &[0], until)?;
            return Ok(());
        }
        let others: Vec<u32> = (1..size).collect();
        let mut used: BTreeMap<String, u32> =
            gpu.map(|gpu| (gpu.to_owned(), 0)).into_iter().collect();
        for other in &others {
            let theirs = self.wait(&format!("same/{other}"), &others, until)?;
            self.compare(same, *other, &theirs)?;
            if gpu.is_some() {
                let theirs = self.wait(&format!("gpu/{other}"), &others, until)?;
                if let Some(first) = used.insert(theirs.clone(), *other) {
                    return Err(Problem::machine(
                        format!("ranks {first} and {other} use the same GPU, {theirs}"),
                        "start at most as many ranks on a machine as it has GPUs, or show each its own in \
                         CUDA_VISIBLE_DEVICES",
                    ));
                }
            }
        }
        self.group.set("agreed", "").map_err(lost)
    }

    /// Waits for a key, unless one of these ranks fails before.
    fn wait(&self, key: &str, ranks: &[u32], until: Instant) -> Result<String, Problem> {
        let Launch { rank, size, said_by, .. } = &self.launch;
        let lost = |error: KernelError| Problem::from(self.lost(&error));
        let stored = |key: &str| self.group.get(key, Duration::ZERO).map_err(lost);
        loop {
            if let Some(text) = stored(key)? {
                return Ok(text);
            }
            for other in ranks {
                if let Some(reason) = stored(&format!("failed/{other}"))? {
                    return Err(Problem::machine(
                        format!("rank {other} failed: {reason}"),
                        "correct that, and start all ranks again",
                    ));
                }
                if self.launch.was_killed(*other) {
                    return Err(Problem::machine(
                        format!("rank {other} failed: it was killed before it met the others"),
                        "start all ranks again",
                    ));
                }
            }
            if Instant::now() >= until {
                let mut late = Vec::new();
                for other in ranks {
                    if stored(&format!("same/{other}"))?.is_none() {
                        late.push(other.to_string());
                    }
                }
                return Err(Problem::machine(
                    format!(
                        "{} did not come in time: {}",
                        dsl::counted(late.len(), "rank"),
                        late.join(", ")
                    ),
                    format!(
                        "check that all ranks were started: {} and {} in the environment say that this is rank {} of \
                         {}; --rank-timeout sets how long to wait",
                        said_by[0], said_by[1], rank, size
                    ),
                ));
            }
            std::thread::sleep(POLL);
        }
    }

    fn compare(&self, same: &str, other: u32, theirs: &str) -> Result<(), Problem> {
        if theirs == same {
            return Ok(());
        }
        let rank = self.launch.rank;
        let mut lines = theirs.lines().zip(same.lines());
        let difference = lines.find(|(theirs, ours)| theirs != ours).map_or_else(
            String::new,
            |(theirs, ours)| {
                let [theirs, ours] = [theirs, ours].map(short);
                format!(": rank {other} has {theirs}, rank {rank} has {ours}")
            },
        );
        Err(Problem::machine(
            format!("ranks {other} and {rank} differ{difference}"),
            "start every rank with the same canonc, lock and options, on the same kind of machine",
        ))
    }

    /// Tells the other ranks why this one ends, unless another rank is the cause: each finds that one by itself.
    pub fn fail(&self, reason: &str) {
        if self.lost.get() {
            return;
        }
        // The others notice the end of this process in any case.
        let _ = self.group.set(&format!("failed/{}", self.launch.rank), reason);
    }

    /// Whether a rank has stored something under its number, waiting for it until then, or until the rank was killed.
    fn heard(&self, what: &str, other: u32, until: Instant) -> Result<bool, KernelError> {
        let key = format!("{what}/{other}");
        loop {
            let was_killed = self.launch.was_killed(other);
            let left = until.saturating_duration_since(Instant::now());
            if self.group.get(&key, left.min(POLL))?.is_some() {
                return Ok(true);
            }
            if was_killed || left.is_zero() {
                return Ok(false);
            }
        }
    }

    /// The error for an exchange that did not happen: names the rank at fault.
    fn lost(&self, error: &KernelError) -> ExecuteError {
        self.lost.set(true);
        self.group.give_up();
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
        let until = Instant::now() + self.roll_call;
        let mut silent = Vec::new();
        for other in (0..size).filter(|other| *other != rank) {
            match self.group.get(&format!("failed/{other}"), Duration::ZERO) {
                Ok(Some(reason)) => {
                    return ExecuteError::of_rank(format!("rank {other} failed: {reason}"));
                }
                Ok(None) => {}
                Err(_) => return gone(),
            }
            match self.heard("alive", other, until) {
                Ok(true) => {}
                Ok(false) => silent.push(other),
                Err(_) => return gone(),
            }
        }
        // A rank that fails stores why, then leaves; it may have done so meanwhile.
        for other in &silent {
            if let Ok(Some(reason)) = self.group.get(&format!("failed/{other}"), Duration::ZERO) {
                return ExecuteError::of_rank(format!("rank {other} failed: {reason}"));
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

/// A line with its digests as short as elsewhere.
fn short(line: &str) -> String {
    let word = |word: &str| match word.len() == 64 && word.bytes().all(|b| b.is_ascii_hexdigit()) {
        true => word[..12].to_owned(),
        false => word.to_owned(),
    };
    line.split(' ').map(word).collect::<Vec<_>>().join(" ")
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
            Exchange::Work(work) => work
                .wait()
                .and_then(|(output, pending)| {
                    pending.map_or(Ok(()), |pending| self.outstanding.add(pending))?;
                    Ok(output)
                })
                .map_err(|error| self.lost(&error)),
            Exchange::Simulated(_) => Err(ExecuteError::new("an exchange of other ranks")),
        }
    }

    fn settle(&self) -> Result<(), ExecuteError> {
        self.outstanding.settle().map_err(|error| self.lost(&error))
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Ranks of this process meet, each with one of these GPUs. Returns how each ended.
    fn meeting(gpus: &[&str]) -> Vec<Result<(), String>> {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let size = gpus.len() as u32;
        let join = |rank: u32, gpu: &str| {
            let launch = Launch {
                rank,
                size,
                local: size,
                local_rank: rank,
                said_by: ["RANK", "WORLD_SIZE"],
                host: "127.0.0.1".to_owned(),
                port,
                interfaces: None,
                serves: rank == 0,
                prefix: "test".to_owned(),
                killed: None,
            };
            let arrived = Arrived::at(launch, Duration::from_secs(60))?;
            arrived.join("equal", Some(gpu), None).map(drop)
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..size)
                .zip(gpus)
                .map(|(rank, gpu)| scope.spawn(move || join(rank, gpu).map_err(|e| e.message)))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn ranks_that_share_a_gpu_are_refused_when_they_meet() {
        let ends = meeting(&["GPU-0a", "GPU-1b", "GPU-0a"]);
        let reason = "ranks 0 and 2 use the same GPU, GPU-0a";
        assert_eq!(ends[0], Err(reason.to_owned()));
        for end in &ends[1..] {
            assert_eq!(*end, Err(format!("rank 0 failed: {reason}")));
        }
    }

    #[test]
    fn ranks_with_a_gpu_each_meet() {
        assert_eq!(meeting(&["GPU-0a", "GPU-1b"]), [Ok(()), Ok(())]);
    }
}
