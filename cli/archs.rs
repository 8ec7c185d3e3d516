//! The archs that a word names: those of a `.canon` file, a lock, a run, or a folder of another program.

use std::path::Path;

use compiler::plan::{Decays, Loss, Optimizer, Options, Recompute, TrainOptions};
use compiler::program::Compiled;
use dsl::{Decimal, NumberError};
use lab::experiment::{DataSource, Experiment};
use lab::lock::Lock;

use crate::extensions::models;
use crate::fail::{Failure, shown};
use crate::load::{self, compile, name, split};
use crate::workspace::{self, Target};

/// Architectures of one file.
pub struct Archs {
    /// The file's name, as programs and locks use it.
    pub name: String,
    pub archs: Vec<NamedArch>,
}

/// One architecture, with its training setup if known.
pub struct NamedArch {
    pub compiled: Compiled,
    pub train: Option<Trained>,
    /// The data section of its lock.
    pub data: Option<DataSource>,
}

/// The training section of a lock.
#[derive(Clone)]
pub struct Trained {
    pub loss: Loss,
    pub options: TrainOptions,
    /// Tokens of a training sequence.
    pub seq_len: u64,
}

/// The archs of a `.canon` file, a lock or a folder of another program, or the one named by `arch` or in
/// `FILE.canon#NAME`. Diagnostics have been shown.
pub fn all(path: &Path, arch: Option<&str>) -> Result<Archs, Failure> {
    let (file, written) = split(path);
    if let (Some(arch), Some(written)) = (arch, &written)
        && arch != written
    {
        let message = format!("`{}` names `{written}`, but --arch names `{arch}`", shown(path));
        return Err(Failure::bad_input(message).help("name the arch once"));
    }
    let arch = arch.or(written.as_deref());
    let alone = |compiled| NamedArch { compiled, train: None, data: None };
    let target = workspace::resolve(&file)?;
    if let Target::Model(folder) = &target
        && let Some(compiled) = models().open(folder, arch)?
    {
        return Ok(Archs { name: name(folder), archs: vec![alone(compiled)] });
    }
    let path = target.into_lock();
    if workspace::is_lock(&path) {
        return locked(&path, arch);
    }
    let (loaded, compiled) = compile(&path, arch)?;
    Ok(Archs { name: loaded.name, archs: compiled.into_iter().map(alone).collect() })
}

/// The only arch, or the named one, as [`all`].
pub fn only(path: &Path, arch: Option<&str>) -> Result<NamedArch, Failure> {
    let Archs { name, archs } = all(path, arch)?;
    load::only(&name, archs, |arch| &arch.compiled.name)
}

/// The archs of a lock: one, or one for each arm.
fn locked(path: &Path, arch: Option<&str>) -> Result<Archs, Failure> {
    let of = |experiment: &Experiment| NamedArch {
        compiled: experiment.arch.compiled.clone(),
        train: Some(Trained {
            loss: experiment.loss,
            options: experiment.train_options(),
            seq_len: experiment.data.seq_len,
        }),
        data: Some(experiment.data.source.clone()),
    };
    let (lock, _) = workspace::read_lock(path)?;
    let all: Vec<NamedArch> = match lock {
        Lock::Arch(lock) => {
            vec![NamedArch { compiled: lock.arch.compiled.clone(), train: None, data: None }]
        }
        Lock::Experiment(experiment) => vec![of(&experiment)],
        Lock::Comparison(comparison) => {
            comparison.arms.iter().map(|arm| of(&arm.experiment)).collect()
        }
    };
    let names: Vec<String> = all.iter().map(|one| one.compiled.name.clone()).collect();
    let is_wanted = |one: &NamedArch| arch.is_none_or(|arch| one.compiled.name == arch);
    let archs: Vec<NamedArch> = all.into_iter().filter(is_wanted).collect();
    match arch {
        Some(arch) if archs.is_empty() => {
            Err(Failure::bad_input(format!("this lock has no arch `{arch}`"))
                .at(name(path))
                .help(format!("it has {}", names.join(", "))))
        }
        Some(_) | None => Ok(Archs { name: name(path), archs }),
    }
}

/// The training options of `--plan` for an arch without a lock: AdamW and cross-entropy as in the release.
pub fn usual_training() -> Result<TrainOptions, NumberError> {
    Ok(TrainOptions {
        common: Options::default(),
        loss: Loss::CROSS_ENTROPY,
        optimizer: Optimizer {
            beta1: Decimal::new(9, -1)?,
            beta2: Decimal::new(95, -2)?,
            eps: Decimal::new(1, -8)?,
            weight_decay: Decimal::new(1, -1)?,
            decays: Decays::All,
            clip: Some(Decimal::ONE),
        },
        updates: Vec::new(),
        recompute: Recompute::default(),
        dropout: true,
    })
}
