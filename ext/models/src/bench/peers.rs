//! `canonc bench peers`: a training step of canonc next to the same step in PyTorch.
//!
//! Both sides train the same architecture, with the same number of parameters, threads and tokens. Each is a process of its
//! own, and they take turns, a few steps at a time; a ratio compares the steps of one round. The step in PyTorch of the two
//! in arch/peer.canon is written by hand; of any other architecture it is the module that `canonc export --to torch` writes.

pub mod table;

use std::path::{Path, PathBuf};
use std::process::Command;

use bench::turns::take_turns;
use interop::dtype::Dtype;
use interop::export::{Request, To, write};
use runtime::observe::observe;
use tempfile::TempDir;

use self::table::{Entry, Measured, Side};
use super::process::{Contender, Ready, WARM_UP, folder_of, program};
use super::python::{self, Python};
use super::step;
use cli::fail::{Failure, Outcome};
use cli::options::{OnDevice, WithKernels, WithType};
use cli::{archs, output};
use commands::bench::BenchArgs;

/// The names in `PEER`.
const ARCHS: [&str; 2] = ["llama", "llamacanon"];
const PEER: &str = include_str!("../../../../arch/peer.canon");
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
    raced: &'a Raced,
}

/// The architectures to train, in files that last as long as this.
struct Raced {
    /// Their names; our step by kernel is of the last.
    names: Vec<String>,
    /// A text with all of them.
    archs: PathBuf,
    /// PyTorch's side.
    script: PathBuf,
    /// The exported module; `None` if the script has models of its own.
    module: Option<PathBuf>,
    _folder: TempDir,
}

/// The two of arch/peer.canon, or the one of a file.
fn raced(args: &BenchArgs) -> Result<Raced, Failure> {
    let Some(file) = args.files.first() else {
        let (folder, [archs, script]) = folder_of([("peer.canon", PEER), ("step.py", SCRIPT)])?;
        let names = ARCHS.map(str::to_owned).to_vec();
        return Ok(Raced { names, archs, script, module: None, _folder: folder });
    };
    // Both sides train the arch alone: a lock's recipe may have a loss that the module lacks.
    let compiled = archs::only(file, args.arch.as_deref())?.compiled;
    let (folder, [archs, script]) =
        folder_of([("arch.canon", compiled.text.as_str()), ("step.py", SCRIPT)])?;
    let request = Request {
        compiled: &compiled,
        experiment: None,
        weights: None,
        to: To::Torch,
        dtype: Dtype::F32,
        ranks: None,
        comparison: None,
        gpus_per_node: 1,
        origin: None,
        tokenizer: Err(""),
        imported_text: None,
        initial: None,
    };
    let exported = folder.path().join("export");
    write(&request, &exported)?;
    let module = Some(exported.join("model.py"));
    Ok(Raced { names: vec![compiled.name], archs, script, module, _folder: folder })
}

pub(super) fn peers(args: &BenchArgs) -> Outcome {
    let seq_len = checked(args)?;
    let torch = observe().torch;
    let raced = raced(args)?;
    let python = python::find(args, &torch.version)?;
    let program = program()?;
    let setup = Setup { args, seq_len, threads: torch.threads, program, python, raced: &raced };
    let mut measured = Vec::new();
    for (session, entries) in sessions(&raced).iter().enumerate() {
        measured.extend(run(&setup, session, entries)?);
    }
    output::data(&table::table(&measured))?;
    output::data(&format!("\n{}", table::conclusions(&measured)))?;
    output::note(&format!(
        "{}; PyTorch {} and libtorch {}; {} sequences of {seq_len} tokens, {} threads; {} rounds of {STEPS} steps; \
         rounds: lowest and highest median; ratios: PyTorch's time over canonc's in the same round, median (lowest–\
         highest); retaining: with {}={}",
        if args.machine.dtype() == WithType::Bf16 { "bf16" } else { "f32" },
        setup.python.torch,
        torch.version,
        args.sequences(),
        torch.threads,
        args.rounds_or(ROUNDS),
        RETAINING.0,
        RETAINING.1,
    ));
    let last = raced.names.last().map_or("", String::as_str);
    output::data(&format!("\ncanonc's step of {last} by kernel\n"))?;
    step::in_detail(args, Some(last), &raced.archs, seq_len)
}

/// The number of tokens, if the options make sense.
fn checked(args: &BenchArgs) -> Result<i64, Failure> {
    let refused = |message: &str, help: &str| Err(Failure::bad_input(message).help(help));
    match (args.files.as_slice(), &args.arch) {
        ([], Some(_)) => {
            return refused(
                "`bench peers` without a file trains its own two architectures, those of arch/peer.canon",
                "name the file of the architecture, or leave out --arch",
            );
        }
        ([] | [_], _) => {}
        _ => {
            return refused(
                "`bench peers` races one architecture",
                "name one file; `canonc bench step FILE…` compares architectures",
            );
        }
    }
    match args.machine.dtype() {
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
fn sessions(raced: &Raced) -> Vec<Vec<Entry<'_>>> {
    let sides = [Side::Ours, Side::Eager, Side::Compile];
    let by_hand = [Side::Ours, Side::Eager, Side::EagerConv1d, Side::Compile];
    let mut as_installed = Vec::new();
    let mut again = Vec::new();
    for arch in &raced.names {
        let entries = |sides: &[Side], retaining: bool| -> Vec<Entry<'_>> {
            sides.iter().map(|side| Entry { arch, side: *side, retaining }).collect()
        };
        // The script's Canon layer has two forms.
        let two = raced.module.is_none() && arch == ARCHS[1];
        as_installed.extend(entries(if two { &by_hand } else { &sides }, false));
        // Its variables are glibc's.
        if cfg!(target_os = "linux") {
            again.push(entries(&sides, true));
        }
    }
    std::iter::once(as_installed).chain(again).collect()
}

fn run<'a>(
    setup: &Setup<'_>,
    session: usize,
    entries: &[Entry<'a>],
) -> Result<Vec<Measured<'a>>, Failure> {
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
    alike(&setup.raced.names, &contenders)?;
    let rounds = setup.args.rounds_or(ROUNDS);
    let begin = |round| {
        output::note(&format!("round {} of {rounds}", round + 1));
        Ok(())
    };
    take_turns(&mut contenders, rounds, begin, |(_, contender, groups)| {
        groups.push(contender.steps(STEPS)?);
        Ok::<(), Failure>(())
    })?;
    let measured = |(entry, contender, groups): (Entry<'a>, Contender, _)| {
        let peak = contender.peak_memory();
        Measured { session, entry, groups, peak }
    };
    Ok(contenders.into_iter().map(measured).collect())
}

/// Checks that all processes of an architecture have as many parameters and threads as the first, ours.
fn alike<T>(names: &[String], contenders: &[(Entry<'_>, Contender, T)]) -> Result<(), Failure> {
    for arch in names {
        let mut contenders = contenders.iter().filter(|(entry, _, _)| entry.arch == arch);
        let Some((_, ours, _)) = contenders.next() else { continue };
        let Ready { parameters, threads, .. } = ours.ready;
        for (_, Contender { name, ready, .. }, _) in contenders {
            if (ready.parameters, ready.threads) != (parameters, threads) {
                return Err(Failure::machine(format!(
                    "{name} has {} parameters and {} threads, and canonc has {parameters} and {threads}: they cannot \
                     be compared",
                    ready.parameters, ready.threads,
                )));
            }
        }
    }
    Ok(())
}

fn command(setup: &Setup<'_>, entry: &Entry<'_>) -> Command {
    let Setup { args, seq_len, threads, program, python, raced } = setup;
    let Raced { archs, script, module, .. } = raced;
    let dtype = match args.machine.dtype() {
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
    if let Some(module) = module {
        command.arg("--module").arg(module);
    }
    command.args(["--threads", &threads.to_string(), "--warm-up", &WARM_UP.to_string()]);
    for name in ALLOCATORS {
        command.env_remove(name);
    }
    if entry.retaining {
        command.env(RETAINING.0, RETAINING.1);
    }
    command
}
