//! The Slurm script that launches one run, written beside its lock.
//!
//! Every name from a lock or a command line is quoted, so it never ends the word, the comment or the line that it is put
//! into; a job that reaches the end of its time stops with a checkpoint and goes back into the queue.

use std::path::Path;

use cli::launch::{NOTICE, render};
use dsl::Problem;
use interop::folder::{put, write_folder};
use lab::experiment::{Device, Experiment};
use minijinja::context;

/// The script's template.
pub const RUN: &str = include_str!("run.sh.j2");

/// A run that a script launches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    /// What it trains.
    pub(super) experiment: &'a Experiment,
    /// Its lock's text, which is written beside the script.
    pub(super) lock: &'a str,
    /// Its folder, as seen from the folder that the script is submitted from.
    pub(super) dir: &'a str,
    /// Prepared documents; empty for the usual ones.
    pub(super) data: &'a str,
    /// The weights that it begins from, if there are any; empty for those that the lock names.
    pub(super) weights: Option<&'a str>,
    /// Number of ranks.
    pub(super) ranks: u32,
    /// Ranks on each machine.
    pub(super) per_node: u32,
}

impl Run<'_> {
    /// Writes `launch.sh` and the lock; returns their names.
    pub(super) fn write(&self, out: &Path) -> Result<Vec<String>, Problem> {
        let Run { experiment, lock, dir, data, weights, ranks, per_node } = *self;
        let per_node = per_node.min(ranks).max(1);
        if !ranks.is_multiple_of(per_node) {
            let message =
                format!("{ranks} ranks do not fill machines of {per_node}: each must have as many");
            let help = "give the number of ranks on a machine: `--gpus-per-node N`";
            return Err(Problem::in_file(experiment.name.clone(), message, help));
        }
        let file = format!("{}.lock", experiment.name);
        let script = render(
            RUN,
            context! {
                name => experiment.name,
                id => experiment.id().to_string(),
                nodes => ranks / per_node,
                per_node,
                gpu => experiment.platform.device == Device::Cuda,
                threads => experiment.platform.threads,
                notice => NOTICE,
                file,
                dir,
                data,
                weights,
            },
        )?;
        write_folder(out, &|folder| {
            put(&folder.join(&file), lock)?;
            put(&folder.join("launch.sh"), &script)
        })?;
        Ok(vec![file, "launch.sh".to_owned()])
    }
}
