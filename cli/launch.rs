//! The Slurm script that does the runs which a comparison misses.
//!
//! Every name from a lock or a command line is quoted, so it never ends the word, the comment or the line that it is put
//! into; a job that reaches the end of its time stops with a checkpoint and goes back into the queue.

use dsl::{Problem, quote};
use minijinja::{Environment, UndefinedBehavior, context};

const COMPARE: &str = include_str!("launch/compare.sh.j2");

/// Seconds before the end of a job at which Slurm asks for a checkpoint.
pub const NOTICE: u32 = 180;

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

/// Renders a script. Its filters: `sh`, a word of a POSIX shell; `word`, a word that needs no quotes; `line`, one line.
pub fn render(template: &str, values: minijinja::Value) -> Result<String, Problem> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_keep_trailing_newline(true);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.add_filter("sh", |text: String| quote::sh(&text));
    environment.add_filter("word", |text: String| quote::word(&text));
    environment.add_filter("line", |text: String| quote::line(&text));
    environment.render_str(template, values).map_err(|error| {
        Problem::in_file(
            "launch.sh",
            format!("its template is broken: {error}"),
            "this is a bug in canonc; please report it",
        )
    })
}
