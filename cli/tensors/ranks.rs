//! `canonc run` on several ranks: processes that train together.
//!
//! A rank is this same command, in an environment that says which one it is. Every process has ended when the first one
//! returns.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use lab::experiment::{Device, Experiment};
use records::job::Job;
use runtime::execute::{Machine, too_many};
use runtime::kernels::{cuda, cuda_devices};
use runtime::observe::observe;
use runtime::ranks::{Arrived, Collectives, Ending, Gloo, KILLED, Launch, Member};
use runtime::train::follow;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use tempfile::TempDir;

use cli::commands::run::RunArgs;
use cli::fail::{Exit, Failure, Outcome};
use cli::ranks::enough_micro_batches;
use cli::signals::{self, ignores_hangup};
use cli::{child, output};

/// How long the other processes may take to end after rank 0, unless three times the timeout is shorter.
const PATIENCE: Duration = Duration::from_secs(20);

/// Refuses a number or a kind of processes that the lock does not ask for, or that cannot train.
pub(crate) fn check(
    args: &RunArgs,
    experiment: &Experiment,
    launch: Option<&Launch>,
) -> Result<(), Failure> {
    let platform = &experiment.platform;
    if let (Some(asked), Some(launch)) = (args.ranks, launch)
        && asked != launch.size
    {
        let [rank, size] = launch.said_by;
        return Err(Failure::bad_input(format!(
            "`--ranks {asked}`, but {rank} and {size} in the environment say that this is rank {} of {}",
            launch.rank, launch.size
        ))
        .help(format!("leave `--ranks` out under a launcher, or unset {rank} and {size}")));
    }
    let ranks = launch.map_or(args.ranks, |launch| Some(launch.size));
    if let Some(ranks) = ranks {
        enough_micro_batches(experiment, ranks)?;
    }
    if let (Some(devices @ 2..), None, None, false) =
        (platform.devices, launch, args.ranks, args.dry_run)
    {
        return Err(Failure::machine(format!(
            "the lock has platform.devices = {devices}, but this is one process"
        ))
        .help(format!(
            "start the ranks with `--ranks {devices}` on this machine, or with torchrun or srun on several"
        ))
        .help("any other number of ranks, also `--ranks 1`, gives the same result"));
    }
    if let (Some(node), Some(launch)) = (platform.devices_per_node, launch)
        && !launch.local.is_multiple_of(node)
    {
        return Err(Failure::machine(format!(
            "the lock has platform.devices_per_node = {node}, but {} ranks were started on this machine",
            launch.local
        ))
        .help(format!("start a multiple of {node} ranks on each machine")));
    }
    if let Some(launch) = launch
        && (args.by_node || platform.devices_per_node.is_some())
        && !launch.size.is_multiple_of(launch.local)
    {
        return Err(Failure::machine(format!(
            "adding gradients by machine needs as many ranks on each, but {} ranks are not a multiple of the {} on this one",
            launch.size, launch.local
        ))
        .help("start as many ranks on every machine, or leave `--by-node` out"));
    }
    if let (Device::Cuda, Some(ranks), None, false) =
        (platform.device, args.ranks, launch, args.dry_run)
    {
        enough_gpus(ranks, cuda_devices())?;
    }
    match (platform.device, ranks) {
        (Device::Cuda, Some(ranks @ 2..)) if !args.dry_run && nccl().is_none() => Err(Failure::machine(format!(
            "{ranks} ranks on GPUs need libcanonc_nccl.so, which is not beside this program",
        ))
        .help("build it with runtime/native/nccl.sh (docs/scale.md), or use `--device cpu`, or one GPU")),
        (Device::Cpu | Device::Cuda, _) => Ok(()),
    }
}

/// Refuses more ranks on this machine than it has GPUs. Without any, the machine is refused for that.
pub fn enough_gpus(ranks: u32, devices: usize) -> Result<(), Failure> {
    match ranks as usize {
        ranks if devices > 0 && ranks > devices => Err(Failure::from(too_many(ranks, devices))),
        _ => Ok(()),
    }
}

/// The id of the process that started this one as a rank, in its environment.
const PARENT: &str = "CANONC_RANKS_PARENT";

/// Asks the system to stop this process when the one that started it as a rank ends: nobody else would.
pub(crate) fn end_with_parent() -> Result<(), Failure> {
    signalled_with_parent(PARENT, Signal::USR1)
}

/// Asks the system for a signal when the process that started this one ends. That process has set a variable to its id.
pub fn signalled_with_parent(variable: &str, signal: Signal) -> Result<(), Failure> {
    let Some(parent) = std::env::var(variable).ok().and_then(|id| id.parse::<i32>().ok()) else {
        return Ok(());
    };
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(signal)).map_err(|error| {
        Failure::machine(format!("a process cannot watch the one that started it: {error}"))
    })?;
    match rustix::process::getppid() {
        Some(now) if now.as_raw_nonzero().get() == parent => Ok(()),
        Some(_) | None => Err(Failure::machine("the process that started this one has ended")),
    }
}

/// Starts this command `ranks` times on this machine and waits for all. Each waits `timeout` seconds for another one.
pub(crate) fn start(ranks: u32, threads: Option<u32>, timeout: u64) -> Outcome {
    let cannot = |error: std::io::Error| {
        Failure::machine(format!("{ranks} ranks cannot be started: {error}"))
    };
    let program = std::env::current_exe().map_err(cannot)?;
    let port =
        TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).map_err(cannot)?.port();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let each = (cores / ranks as usize).max(1).to_string();
    let hangup = (!ignores_hangup()).then_some(SIGHUP);
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGUSR1, SIGUSR2].into_iter().chain(hangup))
        .map_err(cannot)?;
    // Without this folder, the ranks only wait longer for one that was killed.
    let killed = tempfile::tempdir().ok();
    let mut children = Children(Vec::new());
    // A rank that a signal ends before it listens would leave the others to wait for it.
    signals::hold();
    for rank in 0..ranks {
        let mut command = Command::new(&program);
        command.args(std::env::args_os().skip(1)).envs([
            ("RANK", rank.to_string()),
            ("WORLD_SIZE", ranks.to_string()),
            ("LOCAL_RANK", rank.to_string()),
            ("LOCAL_WORLD_SIZE", ranks.to_string()),
            ("MASTER_ADDR", "127.0.0.1".to_owned()),
            ("MASTER_PORT", port.to_string()),
        ]);
        if threads.is_none() && std::env::var_os("OMP_NUM_THREADS").is_none() {
            command.env("OMP_NUM_THREADS", &each);
        }
        command.env(PARENT, std::process::id().to_string());
        if let Some(killed) = &killed {
            command.env(KILLED, killed.path());
        }
        if rank > 0 {
            command.stdout(Stdio::null());
        }
        children.0.push(command.spawn().map_err(cannot)?);
    }
    let leader =
        children.0.first().and_then(|child| Pid::from_raw(i32::try_from(child.id()).ok()?));
    let handle = signals.handle();
    let forward = std::thread::spawn(move || {
        signals::release();
        for _ in signals.forever() {
            // Rank 0 tells the others. It may have ended meanwhile.
            let _ = leader.map(|leader| kill_process(leader, Signal::USR1));
        }
    });
    let patience = PATIENCE.min(3 * Duration::from_secs(timeout));
    let end = children.wait(patience, killed.as_ref().map(TempDir::path), cannot);
    handle.close();
    let _ = forward.join();
    end
}

/// Processes that are killed if this one gives up on them.
struct Children(Vec<Child>);

impl Children {
    /// The exit code of rank 0. When it or a failed rank has ended, the others have a while to end, too. The folder gets
    /// a file for each rank that was killed.
    fn wait(
        &mut self,
        patience: Duration,
        killed: Option<&Path>,
        cannot: impl Fn(std::io::Error) -> Failure,
    ) -> Outcome {
        let mut until: Option<Instant> = None;
        let (mut leader, mut running, mut recorded) = (None, Vec::new(), BTreeSet::new());
        while until.is_none_or(|until| Instant::now() < until) {
            running.clear();
            for (rank, child) in self.0.iter_mut().enumerate() {
                let status = child.try_wait().map_err(&cannot)?;
                match status {
                    None => running.push(rank.to_string()),
                    Some(status) if rank == 0 => leader = Some(status),
                    Some(_) => {}
                }
                let was_killed = status.is_some_and(|status| status.signal().is_some());
                if let Some(folder) = killed.filter(|_| was_killed && recorded.insert(rank)) {
                    let _ = std::fs::write(folder.join(rank.to_string()), "");
                }
                if status.is_some_and(|status| rank == 0 || !status.success()) {
                    until.get_or_insert_with(|| Instant::now() + patience);
                }
            }
            if running.is_empty() {
                break;
            }
            std::thread::sleep(POLL);
        }
        if !running.is_empty() {
            output::note(&format!("ranks that did not end are killed: {}", running.join(", ")));
        }
        let Some(status) = leader else {
            return Err(Failure::machine("rank 0 hangs, and the others gave up on it")
                .help("the same command continues from its last checkpoint"));
        };
        child::outcome(status).unwrap_or_else(|| {
            Err(Failure::machine(format!("rank 0 ended early ({status})"))
                .help("the same command continues from its last checkpoint"))
        })
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// How often to look whether a process has ended.
const POLL: Duration = Duration::from_millis(20);

/// This process as one rank.
#[derive(Debug)]
pub(crate) struct Joined {
    gloo: Rc<Gloo>,
    pub(crate) member: Member,
}

/// Opens the place where ranks meet.
pub(crate) fn arrive(launch: Launch, args: &RunArgs) -> Result<Arrived, Failure> {
    Arrived::at(launch, Duration::from_secs(args.rank_timeout)).map_err(Failure::from)
}

/// Tells the other ranks why this one cannot even meet them. They may not be there.
pub(crate) fn give_up(launch: Launch, why: &str) {
    if let Ok(arrived) = Arrived::at(launch, PATIENCE) {
        arrived.give_up(why);
    }
}

/// Meets the other ranks.
pub(crate) fn join(
    arrived: Arrived,
    launch: &Launch,
    args: &RunArgs,
    experiment: &Experiment,
) -> Result<Joined, Failure> {
    let platform = &experiment.platform;
    let nccl = match platform.device {
        Device::Cpu => None,
        Device::Cuda => nccl(),
    };
    let gpu = match platform.device {
        Device::Cpu => None,
        Device::Cuda => Some(cuda::identity().map_err(|error| {
            let why = format!("rank {} cannot name its GPU: {error}", launch.rank);
            arrived.give_up(&why);
            Failure::machine(why)
        })?),
    };
    let node = match (platform.devices_per_node, args.by_node) {
        (Some(node), _) => Some(u64::from(node)),
        (None, by_node) => by_node.then_some(u64::from(launch.local)),
    };
    let same = same(args, launch, experiment);
    let joined = arrived.join(&same, gpu.as_deref(), nccl.as_deref());
    let gloo = Rc::new(joined?);
    let shard = platform.shard;
    let member = Member { ranks: gloo.clone(), shard, node, wrong_in: None };
    Ok(Joined { gloo, member })
}

/// The library for exchanges between GPUs: the one that CANONC_NCCL names, or the one beside this program.
pub(crate) fn nccl() -> Option<PathBuf> {
    let named = std::env::var_os("CANONC_NCCL").map(PathBuf::from);
    let beside = || Some(std::env::current_exe().ok()?.parent()?.join("libcanonc_nccl.so"));
    named.or_else(beside).filter(|path| path.is_file())
}

/// Everything that must be equal on all ranks, one fact to a line.
fn same(args: &RunArgs, launch: &Launch, experiment: &Experiment) -> String {
    let observed = observe();
    let binary = std::env::current_exe()
        .and_then(std::fs::read)
        .map_or_else(|error| error.to_string(), |bytes| blake3::hash(&bytes).to_hex().to_string());
    let gpu = match experiment.platform.device {
        Device::Cpu => String::new(),
        Device::Cuda => gpu(Path::new("/proc/driver/nvidia")),
    };
    let stop = args.stop_after_step.map_or_else(|| "nothing".to_owned(), |step| step.to_string());
    let by_node = match args.by_node {
        true => format!("ranks on its machine {}\n", launch.local),
        false => String::new(),
    };
    format!(
        "lock {}\neval {}\nplatform {}\ncanonc {binary}\nlibtorch {}\ncpu_capability {}\nkernels {}\nblas {}\nshard {}\n{gpu}\
         --stop-after-step {stop}\n--by-node {}\n{by_node}",
        experiment.id(),
        experiment.digests.eval,
        experiment.digests.platform,
        observed.torch.version,
        observed.torch.cpu_capability,
        observed.torch.isa,
        observed.torch.blas,
        experiment.platform.shard.name(),
        args.by_node,
    )
}

/// The driver and the models of this machine's GPUs, as the driver's files say.
fn gpu(driver: &Path) -> String {
    let read = |path: &Path| disk::read_text(path, disk::SMALL).unwrap_or_default();
    let version = read(&driver.join("version"));
    let entries = std::fs::read_dir(driver.join("gpus")).into_iter().flatten().flatten();
    let model = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix("Model:"));
        line.unwrap_or("unknown").trim().to_owned()
    };
    let models: BTreeSet<String> =
        entries.map(|entry| model(read(&entry.path().join("information")))).collect();
    let models: Vec<&str> = models.iter().map(String::as_str).collect();
    format!(
        "driver {}\ngpu {}\n",
        version.lines().next().unwrap_or("unknown"),
        if models.is_empty() { "unknown".to_owned() } else { models.join(", ") }
    )
}

impl Joined {
    pub(crate) fn leads(&self) -> bool {
        self.gloo.rank() == 0
    }

    /// Does what rank 0 commands, to the end.
    pub(crate) fn follow(
        &self,
        job: &mut Job,
        machine: Machine,
        stop: &AtomicBool,
        folder: &Path,
    ) -> Outcome {
        match follow(job, machine, &self.member, stop, folder) {
            Ok(Ending::Done) => Ok(Exit::Fine),
            Ok(Ending::Interrupted) => Ok(Exit::Interrupted),
            // Rank 0 has said why.
            Ok(Ending::Failed) => Err(Failure::shown(Exit::Machine)),
            Err(error) => {
                self.gloo.fail(&error.message);
                output::note(&format!("rank {} ends: {}", self.gloo.rank(), error.message));
                Err(Failure::shown(Failure::from(error).exit))
            }
        }
    }
}
