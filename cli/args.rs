//! Every command, option and example of the command line. Nothing here acts.
//!
//! In: argv, as clap reads it. Out: plain values, one struct for each command. Must stay true: each
//! command's help ends with examples that run unchanged in this repository.

mod audit;
mod compute;
mod data;
mod foreign;
mod help;
mod plan;
mod prepare;
mod proof;
mod report;
mod scaling;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use audit::AuditArgs;
pub use compute::{
    AnswerArgs, BenchArgs, BenchWhat, DemoArgs, ForwardArgs, GenerateArgs, Judge, MachineArgs,
    OnDevice, PlaygroundArgs, PromptArgs, WithKernels, WithType,
};

pub use data::{
    BabilongArgs, BabilongSet, DataArgs, DataCommand, DataFormat, DataMode, DataOrder,
    ExportWindowsArgs, GenerateDataArgs, InspectArgs, OverlapArgs, SampleArgs, SampleOptions,
    StatsArgs, WindowArgs, WindowFormat,
};
pub use prepare::{AboutArgs, BenchTextArgs, Malformed, PrepareArgs, TokenizerArg};

pub use plan::PlanArgs;

pub use help::{HelpArgs, ManArgs};

pub use foreign::{ExportArgs, ExportDtype, ExportTo, ImportArgs};

pub use proof::ReproduceArgs;
pub use proof::{SignArgs, VerifyArgs};
pub use report::ReportArgs;
pub use scaling::{By, ScalingArgs, Which};

/// Compiles language-model architectures, locks experiments, and proves what two of them differ in
#[derive(Debug, Parser)]
#[command(
    name = "canonc",
    version,
    disable_help_subcommand = true,
    after_help = "\
Examples:
  canonc new demo                                  a runnable architecture and recipe in ./demo
  canonc check                                     every .canon file under arch/
  canonc show arch/llamacanon_1B.canon             parameters, FLOPs, memory, state
  canonc graph arch/llamacanon_1B.canon --format svg > llamacanon.svg
  canonc build arch/llamacanon_1B.canon            writes lockfiles/llamacanon_1B.lock

Exit codes: 0 fine, 1 a finding (drift, confound, unformatted file), 2 bad input or usage,
3 this machine cannot, 75 interrupted with a good checkpoint."
)]
pub struct Cli {
    /// When to colour what goes to a terminal; `auto` respects NO_COLOR
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t)]
    pub color: When,
    /// Errors and results only
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Also which files and settings are used
    #[arg(short, long, global = true)]
    pub verbose: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    New(NewArgs),
    Check(CheckArgs),
    Fmt(FmtArgs),
    Show(ShowArgs),
    Graph(GraphArgs),
    Build(BuildArgs),
    Bind(BindArgs),
    Diff(DiffArgs),
    Audit(AuditArgs),
    Run(RunArgs),
    Verify(VerifyArgs),
    Sign(SignArgs),
    Reproduce(ReproduceArgs),
    Compare(CompareArgs),
    Plan(PlanArgs),
    Scaling(ScalingArgs),
    Demo(DemoArgs),
    Playground(PlaygroundArgs),
    Bench(BenchArgs),
    Forward(ForwardArgs),
    Generate(GenerateArgs),
    Answer(AnswerArgs),
    Import(ImportArgs),
    Export(ExportArgs),
    Report(ReportArgs),
    Data(DataArgs),
    Doctor(DoctorArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
    Help(HelpArgs),
    /// A word that is none of the above; `main` says what was meant.
    #[command(external_subcommand)]
    Unknown(Vec<OsString>),
}

/// Write a runnable architecture, recipe and comparison into an empty folder
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc new          into this folder, if it is empty
  canonc new demo     into ./demo, made if it is not there
  canonc new mine --task text    an experiment on text of your own")]
pub struct NewArgs {
    /// The folder; it must be empty or not exist yet
    #[arg(default_value = ".", value_name = "DIR")]
    pub dir: PathBuf,
    /// What the experiment learns
    #[arg(long, value_enum, value_name = "TASK", default_value_t)]
    pub task: NewTask,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum NewTask {
    /// Following a chain of names, made as it trains
    #[default]
    Depo,
    /// Text: fables, to put your own in their place
    Text,
}

/// Report every error of every file: syntax, names, shapes, slots
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc check                                   every .canon file under arch/
  canonc check arch/llama_1B.canon my/archs      these files and folders
  canonc check --json | jq '.diagnostics[].message'

Exit codes: 0 no errors (there may be warnings), 2 errors.

Schema of --json, one object on standard output:
  schema       \"canonc.check.v1\"
  files        how many files were asked for
  archs        how many architectures compiled
  errors, warnings
  diagnostics  in the order found, each:
    severity   \"error\" or \"warning\"
    code       a stable word such as \"unknown-slot\"; null when a file could not be read
    message    what is wrong
    labels     places, the first being where it went wrong, each:
      file     as it was named, with `/`
      start, end   {byte, line, column}; line and column count from 1, columns in characters
      text     what is to be said about the place; may be empty
    help       what to type, a list")]
pub struct CheckArgs {
    /// Files, and folders whose .canon files are meant [default: arch]
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Diagnostics as JSON on standard output (`--help` states the schema)
    #[arg(long)]
    pub json: bool,
}

/// Format .canon files in place
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc fmt arch std               every .canon file in both folders
  canonc fmt --check arch           lists what is not formatted and exits 1
  canonc fmt - < a.canon > b.canon  from standard input to standard output")]
pub struct FmtArgs {
    /// Files, and folders whose .canon files are meant; `-` is standard input
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Write nothing; list the files that are not formatted, and exit 1 if there are any
    #[arg(long)]
    pub check: bool,
}

/// Parameters, FLOPs, memory and state of an architecture; or a standard definition
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc show arch/llamacanon_1B.canon
  canonc show arch/llama_1B.canon --seq-len 8192
  canonc show arch/llama_1B.canon --json | jq '.archs[0].parameters.total'
  canonc show --fields arch/llama_1B.canon   every field of it, written or by default
  canonc show std                  what the standard library defines
  canonc show attention            one of its definitions, with its text
  canonc show std/init.canon       all of one of its files
  canonc show --recipe-fields      what recipes may say, as it stands in recipes/README.md

Schema of --json, one object on standard output (archs only):
  schema   \"canonc.show.v1\"
  seq_len  tokens of one sequence, what the costs are for
  archs    each:
    name, docs, vocab, dim, layers, graph, manifest   the last two are digests
    parameters   {total, non_embedding, canon, short_conv}
    flops_per_token      {forward, training}; a multiply-add counts two
    bytes_per_sequence   {activations}; f32, without recomputation
    optimizer_bytes      parameters, gradients and both AdamW moments, f32
    state                {per_sequence, per_token}; elements after seq_len tokens, and what each adds
    tables               one for each kind of layer, and one for what stands outside them:
      layers       their numbers; null outside the layers
      definition   what the layer is; null outside the layers
      parts        its mixer and its MLP
      parameters   each {path, shape, init, count}; paths below `layers.N.`, counts of one layer
      state        each {path, kind, shape, elements, per_token}; of one layer and sequence

Schema of --fields --json: {schema: \"canonc.show.fields.v1\", archs: [{name, fields: [{path, value,
written}]}]}, with every layer's own fields; written is false for a default. As text, equal layers
share a line: layers.0..24 are 0 to 23, layers.3..24/4 every fourth from 3.

Schema of --recipe-fields --json: {schema: \"canonc.show.recipe_fields.v1\", fields: [{path, class,
origin, accepts, default, unit, only, doc}]}; default is null where the field must be written, only
null where it is in every recipe, else {path, values}.")]
pub struct ShowArgs {
    /// A .canon file, a lock or a run's folder; `std`; or the name of a standard definition, file or primitive
    #[arg(value_name = "FILE|NAME", required_unless_present = "recipe_fields")]
    pub what: Option<PathBuf>,
    /// Instead: the path and value of every field, and whether it was written or is a default
    #[arg(long)]
    pub fields: bool,
    /// Instead: every field of a recipe, with its class, default and unit, as Markdown
    #[arg(long, conflicts_with_all = ["what", "fields", "arch"])]
    pub recipe_fields: bool,
    /// The architecture to show, if the file defines several [default: all]
    #[arg(long, value_name = "NAME")]
    pub arch: Option<String>,
    /// Tokens of one sequence
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(i64).range(1..=1 << 32))]
    pub seq_len: i64,
    /// As JSON on standard output (`--help` states the schema)
    #[arg(long)]
    pub json: bool,
}

/// The compute graph of an architecture, as text or as a picture
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc graph arch/llamacanon_1B.canon                    what the structural hash covers
  canonc graph arch/llamacanon_1B.canon --format svg > llamacanon.svg
  canonc graph arch/hybrid_1B.canon --format dot | dot -Tpdf > hybrid.pdf
  canonc graph arch/llamacanon_1B.canon --erase B,D        as if slots B and D were empty
  canonc graph arch/llamacanon_1B.canon --layer 0          the body of one layer
  canonc graph lockfiles/demo.lock --arch llama_demo --plan  every step of its training
  canonc graph --artifacts                                 archs, recipes, locks, runs: what is stale")]
pub struct GraphArgs {
    /// A .canon file, a lock, or a run's folder
    #[arg(value_name = "FILE", required_unless_present = "artifacts")]
    pub file: Option<PathBuf>,
    /// The architecture to show, if the file defines several
    #[arg(long, value_name = "NAME")]
    pub arch: Option<String>,
    /// The canonical text that is hashed, Graphviz' language, or a picture
    #[arg(long, value_enum, default_value_t)]
    pub format: GraphFormat,
    /// Only the body of this layer
    #[arg(long, value_name = "N")]
    pub layer: Option<u32>,
    /// Empty these slots first: names with commas between, or `all`
    #[arg(long, value_name = "SLOTS", value_delimiter = ',')]
    pub erase: Vec<String>,
    /// What a training step executes: forward, backward, sum, update. As its lock says; for a .canon
    /// file with AdamW and cross-entropy in f32
    #[arg(long, conflicts_with_all = ["format", "layer"])]
    pub plan: bool,
    /// Instead: what is made from what in this folder, and what is stale or missing (text or dot)
    #[arg(long, conflicts_with_all = ["file", "arch", "layer", "erase", "plan"])]
    pub artifacts: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum GraphFormat {
    #[default]
    Text,
    Dot,
    Svg,
}

/// Compile architectures, recipes and comparisons into locks
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc build arch/llamacanon_1B.canon     writes lockfiles/llamacanon_1B.lock
  canonc build recipes/*.toml               one lock for each point of each sweep
  canonc build --check arch/*.canon         writes nothing; exits 1 if it would")]
pub struct BuildArgs {
    /// .canon files, recipes and comparisons
    #[arg(value_name = "FILE", required_unless_present = "check")]
    pub files: Vec<PathBuf>,
    /// Write nothing; name the locks that are missing or stale, and exit 1 if there are any; without a
    /// FILE, of everything that locks there were made from
    #[arg(long)]
    pub check: bool,
    /// Where locks go
    #[arg(long, value_name = "DIR", default_value = "lockfiles")]
    pub out: PathBuf,
}

/// Close an open lock: put the digest of its data in
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc bind lockfiles/llama_1B_nemotron.lock --data nemotron_cc.index
  canonc bind lockfiles/*_nemotron.lock --data nemotron_cc.index    all of them or, if one is refused, none")]
pub struct BindArgs {
    /// The locks to close
    #[arg(value_name = "LOCK", required = true)]
    pub locks: Vec<PathBuf>,
    /// The prepared data it names
    #[arg(long, value_name = "PATH")]
    pub data: PathBuf,
}

/// Say what two locks differ in: treatment, confounds, consequences
#[derive(Args, Debug)]
#[command(
    after_help = "\
Examples:
  canonc diff lockfiles/llama_1B.lock lockfiles/llamacanon_1B.lock --treatment canon
  canonc diff lockfiles/a.lock lockfiles/b.lock --treatment canon --treatment optimizer.lr
  canonc diff lockfiles/a.lock lockfiles/b.lock --json
  canonc diff lockfiles/a.lock lockfiles/b.lock --treatment canon --explain

Exit codes: 0 controlled, 1 confounded, 2 the locks or the treatment cannot be judged.",
    after_long_help = "\
Examples:
  canonc diff lockfiles/llama_1B.lock lockfiles/llamacanon_1B.lock --treatment canon
  canonc diff lockfiles/a.lock lockfiles/b.lock --treatment canon --treatment optimizer.lr
  canonc diff lockfiles/a.lock lockfiles/b.lock --json | jq '.confounds[].path'
  canonc diff lockfiles/a.lock lockfiles/b.lock --treatment canon --explain
  canonc diff --script > check_verdict.py          checks a verdict on slots without canonc
  canonc diff lockfiles/a.lock lockfiles/b.lock --treatment canon --trainer canonc

A treatment names fields: `canon` is every slot's fill; `optimizer.lr` a field of the lock;
`rope.dims` a field of every layer that has it; `arch.layers.0..6.slots.A` some layers alone.

A lock carries keys that only another trainer reads: its seed, folder, prefetching, compilation. They
change nothing in canonc, but can decide a result there, so a difference in one is a confound. With
`--trainer canonc` you declare that canonc runs both locks; the verdict says so.

Exit codes: 0 controlled, 1 confounded, 2 the locks or the treatment cannot be judged.

Schema of --json, one object on standard output:
  schema       \"canonc.diff.v1\"
  a, b         names of the locks
  verdict      \"identical\", \"controlled\", \"bundle\" or \"confounded\"
  controlled   whether nothing but the treatment differs
  factors      independent fields in the treatment
  headline     the verdict in one line
  exploratory  whether the treatment was typed rather than declared in a comparison file
  assumed      inputs without a digest that were taken to be equal by name
  trainer      \"canonc\" where it was declared to run both, else null
  treatment    each {entry, factors, changes}
  confounds, consequences, platform, cosmetic, and changes: lists, each
    path, a, b   the field and both values; null where a lock has no such field
    at_a, at_b   file:line, or null
    note         `+0.15%`, `decides training`, `measured differently`; may be empty
  graph        each {change (added, removed, changed), layers, node, times (in each layer), a, b,
               at_a, at_b}
  names        each {name, a, b}: what an arm means by a name that has several meanings, as
               {kind, digest, standard, at}; null where it does not use the name
  proof        {graph, manifest, reverse_graph, reverse_manifest, erased_slots, erased_graph,
               erased_manifest}: digests of both locks, first a's with b's values at the treatment,
               then b's with a's; null where that could not be built"
)]
pub struct DiffArgs {
    /// Baseline lock
    #[arg(value_name = "A", required_unless_present = "script")]
    pub a: Option<PathBuf>,
    /// Lock to compare with it
    #[arg(value_name = "B", required_unless_present = "script")]
    pub b: Option<PathBuf>,
    /// A field that is meant to differ; `canon` is short for the Canon slots
    #[arg(long = "treatment", value_name = "T")]
    pub treatment: Vec<String>,
    /// The trainer that runs both locks, if it is canonc: keys that only another one reads decide nothing then
    #[arg(long, value_name = "T", value_parser = clap::builder::PossibleValuesParser::new(compiler::compare::Trainer::WORDS))]
    pub trainer: Option<String>,
    /// The verdict as JSON on standard output
    #[arg(long)]
    pub json: bool,
    /// Print how to check the verdict with a Python script that uses nothing of canonc
    #[arg(long, conflicts_with = "json")]
    pub explain: bool,
    /// Print that script (Python 3.11 and the `blake3` package); it is docs/check_verdict.py
    #[arg(long, conflicts_with_all = ["a", "b", "treatment", "json", "explain"])]
    pub script: bool,
}

/// Run what a comparison still lacks, then say what its arms differ by, seed by seed
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc build recipes/demo.toml && canonc compare lockfiles/demo.lock
  canonc compare lockfiles/demo.lock --out demo/report.html
  canonc compare lockfiles/c4_twins.lock --data data/c4.index
  canonc compare lockfiles/demo.lock --jobs 2       two runs at a time; give each lock threads = 1
  canonc compare lockfiles/demo.lock --json > demo.json
  canonc compare lockfiles/demo.lock --time 100     step times alone, arm by arm in turn

Runs lie in runs/<comparison>/<run>; interrupting and repeating goes on where it stopped. They are carried
out in a random order whose key is the lock's id. A run that diverges is a result: it is attested, the others
go on, and the exit code stays 0. Where the lock has a stopping rule, looks are kept in looks.jsonl, intervals
are anytime-valid, and an arm's first decisive look counts: later seeds are not in its rows.

Schema of --json: {schema: \"canonc.compare.v2\", controlled, attributable, comparisons: [...], together:
[{comparison, arm, metric, judged}]}, where controlled is true only if every arm is, attributable only
if each treatment is one factor, and together judges the primary rows of all comparisons as one family.
Each comparison has
  name, lock   of the comparison's lock: its name, its id
  controlled, attributable, verdict
               of the design: what the arms differ in, not how large the effect is
  arms         each {name, role (base, treated, again), verdict, controlled, attributable, factors,
               matched: {on, path, within, base, arm, apart}, costs: {parameters, flops, activations,
               tokens}, measured: {step_seconds, peak_memory_bytes}, tuning: {points, runs, tokens},
               runs (at each point), best_point, at_the_edge: [{path, end (lowest, highest)}]}; null what
               an arm has none of
  points       names of the points of the grid; one empty name where there is none
  selection    {metric, called, choose (least, most), per_arm, declared, points,
               selected_on_reported}: the locked rule, how many points a best one is the best of, and
               whether it was selected on the windows that are reported
  analysis     {primary, family, margin, confidence, max_seeds (of a stopping rule), declared}
  interval     {level, method, fewest, secondary}
  pairs        by the locked rule, every metric: each {arm, base, title, controlled, attributable,
               verdict, arm_point, base_point (places in points), seeds: {pairs, base, treated, both: of
               the pairs, how many diverged}, rows: [{metric, label (the metric, and
               why it is not held-out), unit (nats, share, count, seconds: differences are ratios), base,
               treated, again (means), paired (by seed),
               n, difference, lowest, highest, better (less, more), interval: {low, high, n,
               standard_error, sd, p, anytime, covers_percent} or null, no_interval (why), sign_flip,
               bootstrap, bootstrap_covers_percent, judged: {effect (better, worse, equivalent,
               undecided), p_adjusted, p_equivalence, within_margin, open} of rows of the family,
               noise, no_noise (why), asked (questions, tokens or targets), over: {fewest, most,
               unit, windows} (what a value is measured on), seen (as below, of the row), parts: {asked (same,
               fresh), seeds, questions, standard_error, df, low, high, p, seed_part, question_part,
               both_part (of the squared standard error)} or null, no_parts (why)}]}
  paired_at_each_point, best_per_arm, best_of_base_for_all
               the same of the judged metric, at equal points and by both rules; empty without a grid
  looks        of a stopping rule: the look that each arm's rows are of, {arm, metric, n, mean, e, p,
               interval, undefined, decision (continue, differs, equivalent, exhausted)}
  siblings     {used, locks: [{name, path, id, seeds}], left_out: [{init, data, arms, paired}],
               earlier_looks: [{lock, looks, decision}], earlier_reports: [{lock, seeds, added}],
               taken}: other locks of the same arms, finished seeds that this lock leaves out, looks and
               results under an earlier lock with the seeds added since, runs in folders of other
               comparisons (of a lock with a stopping rule); warnings and notes say them in words
  seen         what training showed of the questions: {questions: {questions, shown, windows,
               of_windows}} or \"by_design\"; null where it was not counted
  time_bound   how far the base may be from itself where ratios of times have an interval
  warnings, notes, caption, methods
               sentences; methods is a paragraph to paste into a paper")]
pub struct CompareArgs {
    /// Locks of kind comparison; of several, one table and picture of all at the end
    #[arg(value_name = "LOCK", required = true)]
    pub locks: Vec<PathBuf>,
    /// Where runs go, each comparison in a folder of its name
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub dir: PathBuf,
    /// The prepared documents of arms on text, for every run [default: data/SOURCE.index]
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// Also the page with the curves; of several comparisons their picture as SVG
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Runs at a time; step times are honest only with 1, or with as many cores as all of them use
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = jobs)]
    pub jobs: usize,
    /// Only time steps of the arms, in turn and in this process [default: 40 of each]
    #[arg(long, value_name = "STEPS", num_args = 0..=1, default_missing_value = "40", value_parser = clap::value_parser!(u16).range(12..), conflicts_with_all = ["out", "jobs"])]
    pub time: Option<u16>,
    /// No interval where the base differs from itself by more than this ratio, instead of time_bound in the lock
    #[arg(long, value_name = "RATIO", value_parser = plan::ratio, requires = "time")]
    pub bound: Option<f64>,
    /// All of it as JSON on standard output, instead of tables
    #[arg(long)]
    pub json: bool,
}

pub fn jobs(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(jobs @ 1..=256) => Ok(jobs),
        Ok(_) | Err(_) => Err("give a whole number from 1 to 256".to_owned()),
    }
}

/// Say what this machine has, what it lacks, and what to type about it
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc doctor
  canonc doctor --json

Schema of --json: {schema: \"canonc.doctor.v1\", facts: [{name, value, state, help}]}, where state is
\"has\", \"lacks\" or \"unknown\", and help (null if there is none) says what to type.")]
pub struct DoctorArgs {
    /// As JSON on standard output
    #[arg(long)]
    pub json: bool,
}

/// Print the completions of a shell
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc completions bash > ~/.local/share/bash-completion/completions/canonc
  canonc completions zsh  > \"${fpath[1]}/_canonc\"
  canonc completions fish > ~/.config/fish/completions/canonc.fish")]
pub struct CompletionsArgs {
    /// Whose
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Train what a lock says until it is done, going on where it stopped
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc run                                          the only experiment lock under lockfiles/
  canonc run --lock lockfiles/depo_llama.lock         in runs/depo_llama
  canonc run lockfiles/depo_llama.lock                the same
  canonc run lockfiles/depo_*.lock                    several, one after another
  canonc run --lock depo.lock --dir /scratch/depo     in another folder
  canonc run --lock depo.lock --dry-run               memory, disk and time, without training
  canonc run --lock depo.lock --stop-after-step 100   leaves a checkpoint and exits 75

Interrupting (Ctrl-C, SIGTERM, SIGHUP) finishes the step, leaves a checkpoint and exits 75; the same command
goes on from there. A second Ctrl-C, a kill or a crash loses what came after the last checkpoint; it is
done again, and the steps of it that were logged have to come out the same.

A finished run of the same lock under another name, such as that of a comparison, is not trained again: the
output names its folder. `--dir DIR` trains it anyway.")]
pub struct RunArgs {
    /// Locks of kind experiment, run one after another [default: the only one under lockfiles/]
    #[arg(value_name = "LOCK", conflicts_with = "lock")]
    pub named: Vec<PathBuf>,
    /// The same by name
    #[arg(long, value_name = "LOCK", num_args = 0..=1)]
    pub lock: Option<Option<PathBuf>>,
    /// The run's folder [default: runs/NAME, NAME being the lock's]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// The prepared documents of a lock on text [default: data/SOURCE.index]
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// Say what the run would take, and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Another device than the lock's: the same id, another platform section
    #[arg(long, value_enum, value_name = "DEVICE")]
    pub device: Option<RunDevice>,
    /// Leave a checkpoint after this step and exit 75
    #[arg(long, value_name = "N")]
    pub stop_after_step: Option<u64>,
    /// Break at a named point, `NAME` or `NAME:COUNT`: for tests of what survives
    #[arg(long, value_name = "POINT", hide = true)]
    pub fault: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RunDevice {
    Cpu,
    Cuda,
}
