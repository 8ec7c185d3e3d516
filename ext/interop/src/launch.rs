//! Slurm scripts that launch canonc: for a lock, or for the runs that a comparison misses.
//!
//! Every name from a lock or a command line is quoted, so it never ends the word, the comment or the line that it is put
//! into; a job that reaches the end of its time stops with a checkpoint and goes back into the queue.

use std::path::Path;

use dsl::Problem;
use lab::experiment::{Device, Experiment};
use minijinja::{Environment, UndefinedBehavior, context};

use super::folder::{put, write_folder};
use super::quote;

const RUN: &str = include_str!("../templates/run.sh.j2");
const COMPARE: &str = include_str!("../templates/compare.sh.j2");

/// Seconds before the end of a job at which Slurm asks for a checkpoint.
pub const NOTICE: u32 = 180;

/// A run that a script launches.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// What it trains.
    pub experiment: &'a Experiment,
    /// Its lock's text, which is written beside the script.
    pub lock: &'a str,
    /// Its folder, as seen from the folder that the script is submitted from.
    pub dir: &'a str,
    /// Prepared documents; empty for the usual ones.
    pub data: &'a str,
    /// Number of ranks.
    pub ranks: u32,
    /// Ranks on each machine.
    pub per_node: u32,
}

impl Run<'_> {
    /// Writes `launch.sh` and the lock; returns their names.
    pub fn write(&self, out: &Path) -> Result<Vec<String>, Problem> {
        let Run { experiment, lock, dir, data, ranks, per_node } = *self;
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
            },
        )?;
        write_folder(out, &|folder| {
            put(&folder.join(&file), lock)?;
            put(&folder.join("launch.sh"), &script)
        })?;
        Ok(vec![file, "launch.sh".to_owned()])
    }
}

/// An array of machines that do the missing runs of comparisons.
#[derive(Clone, Debug)]
pub struct Array<'a> {
    /// A name for the job.
    pub name: &'a str,
    /// Number of runs to do.
    pub missing: usize,
    /// Number of machines, at least one.
    pub workers: usize,
    /// Words after `canonc compare --work`.
    pub words: &'a [String],
    /// Whether the runs need a GPU.
    pub gpu: bool,
    /// Threads of each run, if locked.
    pub threads: Option<u32>,
}

impl Array<'_> {
    /// The script.
    pub fn script(&self) -> Result<String, Problem> {
        let Array { name, missing, workers, words, gpu, threads } = self;
        let notice = NOTICE;
        render(COMPARE, context! { name, missing, workers, words, gpu, threads, notice })
    }
}

fn render(template: &str, values: minijinja::Value) -> Result<String, Problem> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_keep_trailing_newline(true);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    quote::add_filters(&mut environment);
    environment.render_str(template, values).map_err(|error| {
        Problem::in_file(
            "launch.sh",
            format!("its template is broken: {error}"),
            "this is a bug in canonc; please report it",
        )
    })
}

#[cfg(all(test, unix))]
mod tests {
    use std::process::Command;

    use super::*;

    /// Runs a script outside of a job: it stops at its first check, and nothing before that may run.
    fn runs_nothing(script: &str, folder: &Path) {
        let path = folder.join("launch.sh");
        std::fs::write(&path, script).unwrap();
        let bash = |arguments: &[&str]| {
            let mut command = Command::new("bash");
            command.args(arguments).arg(&path).current_dir(folder).output().unwrap()
        };
        let parsed = bash(&["-n"]);
        assert!(parsed.status.success(), "{}\n{script}", String::from_utf8_lossy(&parsed.stderr));
        assert!(!bash(&[]).status.success());
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1, "{script}");
    }

    #[test]
    fn hostile_names_are_words() {
        let folder = tempfile::tempdir().unwrap();
        for hostile in quote::HOSTILE {
            let words = [hostile.to_owned(), "--dir".to_owned(), hostile.to_owned()];
            let array = Array {
                name: hostile,
                missing: 3,
                workers: 2,
                words: &words,
                gpu: true,
                threads: Some(2),
            };
            let script = array.script().unwrap();
            runs_nothing(&script, folder.path());
            let echo = script
                .replace("srun --ntasks=1 \"${CANONC:-canonc}\" compare --work", "printf '%s\\0'");
            let ran = Command::new("bash")
                .args(["-c", &echo])
                .env("SLURM_ARRAY_JOB_ID", "1")
                .current_dir(folder.path())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&ran.stdout).into_owned();
            assert_eq!(said.split_terminator('\0').collect::<Vec<_>>(), words, "{echo}");
            let values = context! {
                name => hostile, id => "0", nodes => 1, per_node => 2, gpu => false, threads => 4, notice => NOTICE,
                file => "small.lock", dir => hostile, data => hostile,
            };
            runs_nothing(&render(RUN, values).unwrap(), folder.path());
        }
    }
}
