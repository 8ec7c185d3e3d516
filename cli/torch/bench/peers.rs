//! `canonc bench peers`: a training step of canonc next to the same step in PyTorch.
//!
//! In: a batch shape, a number of rounds, a Python. Out: times, ratios and memory of both, and our step by kernel. Must
//! stay true: both sides train the same architecture, with the same number of parameters, threads and tokens; each is a
//! process of its own, and they take turns, a few steps at a time, in an order that each round reverses; a ratio
//! compares the steps of one round.

mod table;

use std::path::{Path, PathBuf};
use std::process::Command;

use canonc::args::{BenchArgs, OnDevice, WithKernels, WithType};
use canonc::fail::{Failure, Outcome};
use canonc::output;
use runtime::observe::observe;

use self::table::{Entry, Measured, Side};
use super::process::{Contender, WARM_UP, equal, folder_of, program, take_turns};
use super::python::{self, Python};
use super::step;

/// The names in `PEER`.
const ARCHS: [&str; 2] = ["llama", "llamacanon"];
const PEER: &str = include_str!("../../../arch/peer.canon");
const SCRIPT: &str = include_str!("peers/step.py");

/// Steps of a process in each round.
const STEPS: usize = 5;
/// Rounds if the command line does not say.
const ROUNDS: u16 = 5;

/// Settings of glibc's allocator under which it returns no memory to the system and asks for huge pages, as the
/// allocators do that one would preload.
const RETAINING: (&str, &str) = (
    "GLIBC_TUNABLES",
    "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=9223372036854775807:glibc.malloc.hugetlb=1",
);

/// Variables that would give PyTorch another allocator than the one as installed.
const ALLOCATORS: [&str; 6] = [
    "LD_PRELOAD",
    "GLIBC_TUNABLES",
    "MALLOC_ARENA_MAX",
    "MALLOC_MMAP_MAX_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
];

/// Everything that the processes are started with.
struct Setup<'a> {
    args: &'a BenchArgs,
    seq_len: i64,
    threads: usize,
    program: PathBuf,
    python: Python,
    archs: PathBuf,
    script: PathBuf,
}

pub(super) fn peers(args: &BenchArgs) -> Outcome {
    let seq_len = checked(args)?;
    let torch = observe().torch;
    let python = python::find(args, &python::PEERS, &torch.version)?;
    let program = program()?;
    let (_folder, [archs, script]) = folder_of([("peer.canon", PEER), ("step.py", SCRIPT)])?;
    let setup = Setup { args, seq_len, threads: torch.threads, program, python, archs, script };
    let mut measured = Vec::new();
    for (session, entries) in sessions().iter().enumerate() {
        measured.extend(run(&setup, session, entries)?);
    }
    output::data(&table::table(&measured))?;
    output::data(&format!("\n{}", table::conclusions(&measured)))?;
    output::note(&format!(
        "{}; PyTorch {} and libtorch {}; {} sequences of {seq_len} tokens, {} threads; {} rounds of {STEPS} steps; \
         rounds: lowest and highest median; ratios: PyTorch's time over canonc's in the same round, median (lowest–\
         highest); retaining: with {}={}",
        if args.machine.dtype == WithType::Bf16 { "bf16" } else { "f32" },
        setup.python.torch,
        torch.version,
        args.sequences(),
        torch.threads,
        args.rounds_or(ROUNDS),
        RETAINING.0,
        RETAINING.1,
    ));
    output::data("\ncanonc's step of llamacanon by kernel\n")?;
    step::in_detail(args, Some(ARCHS[1]), &setup.archs, seq_len)
}

/// The number of tokens, if the options make sense.
fn checked(args: &BenchArgs) -> Result<i64, Failure> {
    let refused = |message: &str, help: &str| Err(Failure::bad_input(message).help(help));
    if !args.files.is_empty() || args.arch.is_some() {
        return refused(
            "`bench peers` trains its own two architectures, those of arch/peer.canon",
            "leave out the file; `canonc bench step FILE` times any architecture",
        );
    }
    match args.machine.dtype {
        WithType::F32 | WithType::Bf16 => {}
        WithType::F64 => return refused("`bench peers` has no f64", "use --dtype f32 or bf16"),
    }
    match args.machine.device {
        OnDevice::Cpu => {}
        OnDevice::Cuda => {
            return refused("`bench peers` compares on the CPU", "leave out --device cuda");
        }
    }
    match *args.lengths() {
        [seq_len] => Ok(seq_len),
        _ => refused("`bench peers` takes one sequence length", "`--seq-len 512`"),
    }
}

/// Groups of processes that live at the same time and take turns. All architectures as installed; then, because each
/// keeps its peak memory, one architecture at a time with the retaining allocator.
fn sessions() -> Vec<Vec<Entry>> {
    let entries = |arch: &'static str, sides: &[Side], retaining: bool| -> Vec<Entry> {
        let entry = |side: &Side| Entry { arch, side: *side, retaining };
        sides.iter().map(entry).collect()
    };
    let [llama, canon] = ARCHS;
    let mut as_installed = entries(llama, &[Side::Ours, Side::Eager, Side::Compile], false);
    let sides = [Side::Ours, Side::Eager, Side::EagerConv1d, Side::Compile];
    as_installed.extend(entries(canon, &sides, false));
    let mut sessions = vec![as_installed];
    // Its variables are glibc's.
    if cfg!(target_os = "linux") {
        for arch in ARCHS {
            sessions.push(entries(arch, &[Side::Ours, Side::Eager, Side::Compile], true));
        }
    }
    sessions
}

fn run(setup: &Setup<'_>, session: usize, entries: &[Entry]) -> Result<Vec<Measured>, Failure> {
    let mut contenders = Vec::new();
    for entry in entries {
        let name = format!("{} of {}", entry.name(), entry.arch);
        output::note(&format!("starting {name}"));
        match Contender::start(&name, &mut command(setup, entry)) {
            Ok(contender) => contenders.push((*entry, contender, Vec::new())),
            // It needs a C++ compiler, which eager mode does not.
            Err(failure) if entry.side == Side::Compile => output::note(&format!(
                "left out: {}",
                failure.message.as_deref().unwrap_or("torch.compile does not work here")
            )),
            Err(failure) => return Err(failure),
        }
    }
    alike(&contenders)?;
    let rounds = setup.args.rounds_or(ROUNDS);
    take_turns(
        &mut contenders,
        rounds,
        || Ok(()),
        |(_, contender, groups)| {
            groups.push(contender.steps(STEPS)?);
            Ok(())
        },
    )?;
    let measured = |(entry, contender, groups): (Entry, Contender, _)| {
        let peak = contender.peak_memory();
        Measured { session, entry, groups, peak }
    };
    Ok(contenders.into_iter().map(measured).collect())
}

/// Checks that all processes of an architecture have as many parameters and threads as the first.
fn alike<T>(contenders: &[(Entry, Contender, T)]) -> Result<(), Failure> {
    for arch in ARCHS {
        let of_arch = contenders.iter().filter(|(entry, _, _)| entry.arch == arch);
        equal(of_arch.map(|(_, contender, _)| contender))?;
    }
    Ok(())
}

fn command(setup: &Setup<'_>, entry: &Entry) -> Command {
    let Setup { args, seq_len, threads, program, python, archs, script } = setup;
    let dtype = match args.machine.dtype {
        WithType::F32 | WithType::F64 => "f32",
        WithType::Bf16 => "bf16",
    };
    let words = |script: &Path| {
        let mut words = vec![script.as_os_str().to_owned()];
        let numbers = [args.sequences().to_string(), seq_len.to_string()];
        let sizes = ["--batch", &numbers[0], "--seq-len", &numbers[1], "--dtype", dtype];
        words.extend(["--arch", entry.arch].iter().chain(&sizes).map(Into::into));
        words
    };
    let mode = match entry.side {
        Side::Ours => {
            let kernels = match args.machine.kernels {
                WithKernels::Fastest => "fastest",
                WithKernels::Reference => "reference",
            };
            let mut command = Command::new(program);
            command.args(["bench", "step", "--serve", "--kernels", kernels]).args(words(archs));
            return command;
        }
        Side::Eager => ["eager", "shift"],
        Side::EagerConv1d => ["eager", "conv1d"],
        Side::Compile => ["compile", "shift"],
    };
    let mut command = Command::new(&python.program);
    command.args(words(script)).args(["--mode", mode[0], "--conv", mode[1]]);
    command.args(["--threads", &threads.to_string(), "--warm-up", &WARM_UP.to_string()]);
    for name in ALLOCATORS {
        command.env_remove(name);
    }
    if entry.retaining {
        command.env(RETAINING.0, RETAINING.1);
    }
    command
}
