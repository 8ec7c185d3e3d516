//! Builds locks from texts, as `canonc build` does from files.

use std::rc::Rc;

use compiler::program::Compiled;
use dsl::{Diagnostics, Sources};
use lab::experiment::{Experiment, LockedArch};
use lab::lock::{ArchLock, Lock, write};
use lab::recipe;
use lab::verdict::{Refusal, Trainer, Verdict, controlled};

use crate::programs::{TEXT as TEXT_FILE, compiled_in, program, program_of};

/// The only arch of a committed file.
pub fn compiled(path: &str) -> Compiled {
    compiled_of(path, None)
}

/// The arch with this name in a committed file, or its only one.
pub fn compiled_of(path: &str, name: Option<&str>) -> Compiled {
    let program = program(path);
    let name = name.map_or_else(|| program.archs(path).remove(0), str::to_owned);
    compiled_in(&program, path, &name)
}

/// The arch called `name` in a text.
pub fn compiled_text(text: &str, name: &str) -> Compiled {
    compiled_in(&program_of(text), TEXT_FILE, name)
}

/// The arch lock that `canonc build` makes of a committed file.
pub fn arch_lock(path: &str) -> Lock {
    let stem = path.rsplit('/').next().unwrap().trim_end_matches(".canon");
    Lock::Arch(ArchLock::new(stem, path, &compiled(path)).unwrap())
}

/// Arch locks of two texts that each define `arch NAME`.
pub fn arch_text_lock(text: &str, name: &str) -> Lock {
    Lock::Arch(ArchLock::new(name, TEXT_FILE, &compiled_text(text, name)).unwrap())
}

/// A recipe's experiments, or its diagnostics as text. `arch` replaces the arch that the recipe names.
pub fn experiments_of(
    name: &str,
    text: &str,
    arch: &Rc<LockedArch>,
) -> Result<Vec<Experiment>, String> {
    let mut sources = Sources::new();
    let file = sources.add(name, text);
    let shown = |diagnostics: &Diagnostics| dsl::render(&sources, diagnostics);
    let (read, diagnostics) = recipe::read(&sources, file);
    let Some(read) = read else { return Err(shown(&diagnostics)) };
    assert!(diagnostics.is_empty());
    let stem = name.rsplit('/').next().unwrap().trim_end_matches(".toml");
    let (experiments, diagnostics) = read.experiments(stem, name, &|_| Some(arch.clone()));
    if diagnostics.is_empty() { Ok(experiments) } else { Err(shown(&diagnostics)) }
}

/// The only experiment of a recipe.
pub fn experiment_of(text: &str, arch: &Rc<LockedArch>) -> Experiment {
    let experiments = experiments_of("recipes/test.toml", text, arch);
    let experiments = experiments.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(experiments.len(), 1);
    experiments.into_iter().next().unwrap()
}

pub fn locked(compiled: &Compiled) -> Rc<LockedArch> {
    Rc::new(LockedArch::new(compiled).unwrap())
}

/// An arch that fits all data of these tests and compiles quickly.
pub const SMALL: &str = "
arch small {
  vocab 10400  dim 8  norm_eps 1e-5
  init lingua
  layers 2 of decoder {
    mixer attention { heads 2 }
    mlp swiglu { hidden 16 }
  }
}
arch smallcanon = small with { canon A, B, C, D }
";

/// The small arch, compiled once for each test.
pub fn small() -> Rc<LockedArch> {
    thread_local! {
        static COMPILED: Rc<LockedArch> = locked(&compiled_text(SMALL, "small"));
    }
    COMPILED.with(Rc::clone)
}

/// A recipe for the small arch; every section can be replaced.
pub const DEPO: &str = "arch = \"small.canon\"
data = { task = \"depo\", seq_len = 128, depo.N = 12, depo.K = 2, depo.mini_vocab = 50, depo.min_tlen = 1, depo.max_tlen = 2 }
batch = { sequences = 32 }
optimizer = { lr = 0.003, weight_decay = 0.0133 }
schedule = { kind = \"cosine\", warmup = 60 }
budget = { steps = 600 }
seeds = { init = 1, data = 1 }
";

pub const MANO: &str = "arch = \"small.canon\"
data = { task = \"mano\", seq_len = 128, mano.L = 4, mano.lens = [1, 2], mano.qids = [1, 2] }
batch = { sequences = 8, micro_batches = 3 }
optimizer = { lr = 0.001, weight_decay = 0.1 }
schedule = { kind = \"wsd\", warmup = 10 }
budget = { tokens = 307200 }
seeds = { init = 1, data = 1 }
";

pub const BREVO: &str = "arch = \"small.canon\"
data = { task = \"brevo\", seq_len = 128, brevo.N = 12, brevo.multi = true }
batch = { sequences = 4 }
optimizer = { lr = 0.001, weight_decay = 0.03 }
schedule = { kind = \"cosine\", warmup = 10 }
budget = { steps = 100 }
seeds = { init = 1, data = 1 }
";

/// The data of the tasks about people and of the grammars.
pub const OTHERS: [&str; 3] = [
    "task = \"capo\", seq_len = 512, capo.N = 100",
    "task = \"lano\", seq_len = 64, lano.config = \"cfg3f\"",
    "task = \"multihop\", seq_len = 1024, multihop.N = 5, multihop.hops = 2",
];

pub const TEXT: &str = "arch = \"small.canon\"
data = { task = \"text\", seq_len = 64, source = \"nemotron_cc\" }
batch = { sequences = 4 }
optimizer = { lr = 0.002, weight_decay = 0.02 }
schedule = { kind = \"inv_sqrt\", warmup = 10 }
budget = { steps = 100 }
seeds = { init = 1, data = 1 }
";

/// The verdict of `canonc diff` on two locks.
pub fn judge(a: &Lock, b: &Lock, treatment: &[&str]) -> Result<Verdict, Refusal> {
    judge_by(a, b, treatment, Trainer::Any)
}

/// The same for arms with a declared trainer.
pub fn judge_by(
    a: &Lock,
    b: &Lock,
    treatment: &[&str],
    trainer: Trainer,
) -> Result<Verdict, Refusal> {
    let names = [a, b].map(|lock| format!("lockfiles/{}.lock", lock.name()));
    let texts = [write(a), write(b)];
    let treatment: Vec<String> = treatment.iter().map(|t| (*t).to_owned()).collect();
    controlled(
        &a.side(&names[0], &texts[0])?.run_by(trainer),
        &b.side(&names[1], &texts[1])?.run_by(trainer),
        &treatment,
    )
}
