//! The archs of what a person names: a `.canon` file, a lock, a run, or a folder of another program.
//!
//! Each comes with the training setup and the data of its lock, where there is one.

use std::path::Path;

use compiler::plan::{Loss, TrainOptions};
use compiler::program::Compiled;
use lab::experiment::{DataSource, Experiment};
use lab::lock::Lock;

use crate::fail::{Failure, shown};
use crate::foreign::{self, Foreign};
use crate::load::{self, compile, name, split};
use crate::{locks, named};

/// Architectures of one file.
pub struct Archs {
    /// The file's name, as programs and locks use it.
    pub name: String,
    pub found: Vec<Found>,
}

/// One architecture, with its training setup if known.
pub struct Found {
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
    if let Some(Foreign { compiled, record: _ }) = foreign::open(&file, arch)? {
        let found = vec![Found { compiled, train: None, data: None }];
        return Ok(Archs { name: name(&file), found });
    }
    let path = &named::lock(&file)?;
    if locks::is_lock(path) {
        return locked(path, arch);
    }
    let (loaded, compiled) = compile(path, arch)?;
    let found = compiled.into_iter().map(|compiled| Found { compiled, train: None, data: None });
    Ok(Archs { name: loaded.name, found: found.collect() })
}

/// The only arch, or the named one, as [`all`].
pub fn only(path: &Path, arch: Option<&str>) -> Result<Found, Failure> {
    let Archs { name, found } = all(path, arch)?;
    load::only(&name, found, |found| &found.compiled.name)
}

/// The archs of a lock: one, or one for each arm.
fn locked(path: &Path, arch: Option<&str>) -> Result<Archs, Failure> {
    let of = |experiment: &Experiment| Found {
        compiled: experiment.arch.compiled.clone(),
        train: Some(Trained {
            loss: experiment.loss,
            options: experiment.train_options(),
            seq_len: experiment.data.seq_len,
        }),
        data: Some(experiment.data.source.clone()),
    };
    let (lock, _) = locks::read(path)?;
    let all: Vec<Found> = match lock {
        Lock::Arch(lock) => {
            vec![Found { compiled: lock.arch.compiled.clone(), train: None, data: None }]
        }
        Lock::Experiment(experiment) => vec![of(&experiment)],
        Lock::Comparison(comparison) => {
            comparison.arms.iter().map(|arm| of(&arm.experiment)).collect()
        }
    };
    let names: Vec<String> = all.iter().map(|found| found.compiled.name.clone()).collect();
    let wanted = |found: &Found| arch.is_none_or(|arch| found.compiled.name == arch);
    let found: Vec<Found> = all.into_iter().filter(wanted).collect();
    match arch {
        Some(arch) if found.is_empty() => {
            Err(Failure::bad_input(format!("this lock has no arch `{arch}`"))
                .at(name(path))
                .help(format!("it has {}", names.join(", "))))
        }
        Some(_) | None => Ok(Archs { name: name(path), found }),
    }
}
