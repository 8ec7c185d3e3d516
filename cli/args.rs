//! Every command, option and example of the command line. Nothing here acts.
//!
//! In: argv, as clap reads it. Out: plain values, one struct for each command. Must stay true: each
//! command's help ends with examples that run unchanged in this repository.

mod audit;
mod build;
mod compute;
mod data;
mod eval;
mod foreign;
mod help;
mod lsp;
mod number;
mod plan;
mod prepare;
mod proof;
mod report;
mod run;
mod scaling;
mod selftest;
mod serve;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use number::within;

pub use audit::AuditArgs;
pub use build::{BuildArgs, MergeArgs};
pub use compute::{
    AnswerArgs, BenchArgs, BenchWhat, DemoArgs, ForwardArgs, GenerateArgs, Judge, MachineArgs,
    OnDevice, PlaygroundArgs, PromptArgs, WithKernels, WithType,
};
pub use data::{
    BabilongArgs, BabilongSet, DataArgs, DataCommand, DataFormat, DataMode, DataOrder,
    ExportWindowsArgs, GenerateDataArgs, InspectArgs, OverlapArgs, SampleArgs, SampleOptions,
    StatsArgs, WindowArgs, WindowFormat,
};
pub use eval::EvalArgs;
pub use foreign::{ExportArgs, ExportDtype, ExportTo, ImportArgs};
pub use help::{HelpArgs, ManArgs};
pub use lsp::LspArgs;
pub use number::jobs;
pub use plan::PlanArgs;
pub use prepare::{AboutArgs, Malformed, PrepareArgs, TokenizerArg};
pub use proof::ReproduceArgs;
pub use proof::{SignArgs, VerifyArgs};
pub use report::ReportArgs;
pub use run::RunArgs;
pub use scaling::{By, ScalingArgs, Which};
pub use selftest::{SelftestArgs, SelftestPart};
pub use serve::ServeArgs;

/// Compiles language-model architectures, locks experiments, and proves how two of them differ
#[derive(Debug, Parser)]
#[command(
    name = "canonc",
    version,
    disable_help_subcommand = true,
    help_template = "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}Options:\n{options}{after-help}",
    after_help = "\
Examples:
  canonc new demo                                  a runnable architecture and recipe in ./demo
  canonc check                                     every .canon file under arch/
  canonc show arch/llamacanon_1B.canon             parameters, FLOPs, memory, state
  canonc graph arch/llamacanon_1B.canon --format svg > llamacanon.svg
  canonc build arch/llamacanon_1B.canon            writes lockfiles/llamacanon_1B.lock

Exit codes: 0 success, 1 a finding (drift, confound, unformatted file), 2 bad input or usage,
3 this machine cannot run it, 75 interrupted with a valid checkpoint."
)]
pub struct Cli {
    /// When to colour terminal output; `auto` respects NO_COLOR
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t)]
    pub color: When,
    /// Print only errors and results
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Also print which files and settings are used
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
    Merge(MergeArgs),
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
    Selftest(SelftestArgs),
    Forward(ForwardArgs),
    Generate(GenerateArgs),
    Serve(ServeArgs),
    Answer(AnswerArgs),
    Eval(EvalArgs),
    Import(ImportArgs),
    Export(ExportArgs),
    Report(ReportArgs),
    Data(DataArgs),
    Doctor(DoctorArgs),
    Lsp(LspArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
    Help(HelpArgs),
    /// An unknown command; `main` suggests the nearest one.
    #[command(external_subcommand)]
    Unknown(Vec<OsString>),
}

/// Write a runnable architecture, recipe and comparison into an empty folder
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc new          into this folder, if it is empty
  canonc new demo     into ./demo, which is created if missing
  canonc new mine --task text    an experiment on your own text
  canonc new mine --matched      also Canon layers at equal size, with the arms that separate both effects")]
pub struct NewArgs {
    /// The folder to create; it must be empty or missing
    #[arg(default_value = ".", value_name = "DIR")]
    pub dir: PathBuf,
    /// What the experiment learns
    #[arg(long, value_enum, value_name = "TASK", default_value_t)]
    pub task: NewTask,
    /// Also write a comparison at equal size: plain, added, narrow, and matched
    #[arg(long)]
    pub matched: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum NewTask {
    /// Depo, a synthetic task: follow a chain of names; samples are generated during training
    #[default]
    Depo,
    /// Text: a file of fables, to replace by your own
    Text,
}

/// Check .canon files and report every error: syntax, names, shapes, slots
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc check                                   every .canon file under arch/
  canonc check arch/llama_1B.canon my/archs      these files and folders
  canonc check --json | jq '.diagnostics[].message'

Exit codes: 0 no errors (warnings are possible), 2 errors.

Schema of --json, one object on standard output:
  schema       \"canonc.check.v1\"
  files        number of files that were named
  archs        number of architectures that compiled
  errors, warnings
  diagnostics  in the order in which they were found, each:
    severity   \"error\" or \"warning\"
    code       a stable word such as \"unknown-slot\"; null when a file could not be read
    message    the error or warning
    labels     places in the source, the place of the error first, each:
      file     the path as it was given, with `/`
      start, end   {byte, line, column}; line and column count from 1, columns in characters
      text     a note about the place; may be empty
    help       suggestions, a list of texts")]
pub struct CheckArgs {
    /// .canon files, folders that contain some, locks, runs, or folders of models [default: arch]
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print diagnostics as JSON (`--help` shows the schema)
    #[arg(long)]
    pub json: bool,
}

/// Format .canon files in place
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc fmt arch std               every .canon file in both folders
  canonc fmt --check arch           lists unformatted files and exits 1 if there are any
  canonc fmt - < a.canon > b.canon  from standard input to standard output")]
pub struct FmtArgs {
    /// .canon files, or folders that contain some; `-` is standard input
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Write nothing; list unformatted files, and exit 1 if there are any
    #[arg(long)]
    pub check: bool,
}

/// Show an architecture's parameters, FLOPs, memory and state, or a standard definition
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc show arch/llamacanon_1B.canon
  canonc show arch/llama_1B.canon --seq-len 8192
  canonc show arch/llama_1B.canon --json | jq '.archs[0].parameters.total'
  canonc show --fields arch/llama_1B.canon   every field, written or default
  canonc show std                  what the standard library defines
  canonc show attention            one definition, with its source
  canonc show std/init.canon       one whole file of the standard library
  canonc show --recipe-fields      every field of recipes, as in recipes/README.md
  canonc show lockfiles/demo_llama.lock --ranks 1 --device cpu          what a training step costs
  canonc show lockfiles --ranks locked --shard full --recompute selective   a table of all locks with devices

Schema of --json, one object on standard output (archs only):
  schema   \"canonc.show.v1\"
  seq_len  tokens of one sequence, for which costs are computed
  archs    each:
    name, docs, vocab, dim, layers, graph, manifest   the last two are digests
    parameters   {total, active, non_embedding, canon, short_conv}
    flops_per_token      {forward, dense, training}; a multiply-add is two FLOPs; dense if every expert were chosen
    bytes_per_sequence   {activations}; f32, without recomputation
    optimizer_bytes      parameters, gradients and both AdamW moments, f32
    state                {per_sequence, per_token}; elements after seq_len tokens, and added by each token
    tables               one for each kind of layer, and one for the rest of the model:
      layers       layer numbers; null outside the layers
      definition   the layer's definition; null outside the layers
      parts        its mixer and its MLP
      parameters   each {path, shape, init, count}; paths below `layers.N.`, counts of one layer
      state        each {path, kind, shape, elements, per_token}; of one layer and sequence

Schema of --fields --json: {schema: \"canonc.show.fields.v1\", archs: [{name, fields: [{path, value,
written}]}]}, with every layer's own fields; written is false for a default. As text, equal layers
share a line: layers.0..24 are 0 to 23, layers.3..24/4 every fourth from 3.

Schema of --recipe-fields --json: {schema: \"canonc.show.recipe_fields.v1\", fields: [{path, class,
origin, accepts, default, unit, only, doc}]}; default is null if the field is required, only
is null if every recipe has the field, else {path, values}.")]
pub struct ShowArgs {
    /// A .canon file, a lock, a run's folder, `std`, or the name of a standard definition, file or primitive
    #[arg(value_name = "FILE|NAME", required_unless_present = "recipe_fields")]
    pub what: Option<PathBuf>,
    /// After `std`: the name of a definition, file or primitive, which can also be given alone
    #[arg(value_name = "NAME", hide = true)]
    pub name: Option<PathBuf>,
    /// Show the path and value of every field instead, and whether it is a default
    #[arg(long)]
    pub fields: bool,
    /// Predict memory, bytes and time of a training step on this many devices, or `locked`: as many as the lock says. Needs
    /// the lock of an experiment, or a folder of locks for a table
    #[arg(long, value_name = "N", conflicts_with_all = ["fields", "recipe_fields", "arch", "seq_len"], value_parser = ranks)]
    pub ranks: Option<Ranks>,
    /// The devices of the prediction: h100, h200, a100 or cpu
    #[arg(long, value_name = "NAME", requires = "ranks", default_value = "h100")]
    pub device: String,
    /// What the ranks divide: none, optimizer or full [default: the lock's platform.shard]
    #[arg(long, value_name = "WHAT", requires = "ranks")]
    pub shard: Option<String>,
    /// What the backward pass recomputes: nothing, layers or selective [default: the lock's platform.recompute]
    #[arg(long, value_name = "WHAT", requires = "ranks")]
    pub recompute: Option<String>,
    /// Devices of a machine [default: the device's usual number]
    #[arg(long, value_name = "N", requires = "ranks", allow_negative_numbers = true, value_parser = within::<u64>(1, 1024))]
    pub gpus_per_node: Option<u64>,
    /// Add gradients on each machine before they leave it
    #[arg(long, requires = "ranks")]
    pub by_node: bool,
    /// Show every recipe field instead, with its class, default and unit, as Markdown
    #[arg(long, conflicts_with_all = ["what", "fields", "arch"])]
    pub recipe_fields: bool,
    /// The architecture to show, if the file defines several [default: all]
    #[arg(long, value_name = "NAME")]
    pub arch: Option<String>,
    /// Tokens per sequence
    #[arg(long, value_name = "N", default_value_t = 4096, allow_negative_numbers = true, value_parser = within::<i64>(1, 1 << 32))]
    pub seq_len: i64,
    /// Print JSON (`--help` shows the schema)
    #[arg(long)]
    pub json: bool,
}

/// How many ranks a prediction is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranks {
    /// The lock's `platform.devices`.
    Locked,
    /// This many.
    Count(u64),
}

fn ranks(text: &str) -> Result<Ranks, String> {
    match text.parse() {
        Ok(count @ 1..=0x10_0000) => Ok(Ranks::Count(count)),
        Err(_) if text == "locked" => Ok(Ranks::Locked),
        Ok(_) | Err(_) => Err("give a whole number from 1 to 1048576, or `locked`".to_owned()),
    }
}

/// Show an architecture's compute graph, as text or as a picture
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc graph arch/llamacanon_1B.canon                    the text that the structural hash covers
  canonc graph arch/llamacanon_1B.canon --format svg > llamacanon.svg
  canonc graph arch/hybrid_1B.canon --format dot | dot -Tpdf > hybrid.pdf
  canonc graph arch/llamacanon_1B.canon --erase B,D        with slots B and D empty
  canonc graph arch/llamacanon_1B.canon --layer 0          the body of one layer
  canonc graph lockfiles/demo.lock --arch llama_demo --plan  every operation of a training step
  canonc graph --artifacts                                 archs, recipes, locks and runs, with stale ones marked")]
pub struct GraphArgs {
    /// A .canon file, a lock, or a run's folder
    #[arg(value_name = "FILE", required_unless_present = "artifacts")]
    pub file: Option<PathBuf>,
    /// The architecture to show, if the file defines several
    #[arg(long, value_name = "NAME")]
    pub arch: Option<String>,
    /// The output format: the canonical text that is hashed, Graphviz, or a picture
    #[arg(long, value_enum, default_value_t)]
    pub format: GraphFormat,
    /// Show only the body of this layer
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = within::<u32>(0, u32::MAX))]
    pub layer: Option<u32>,
    /// Empty these slots first: names separated by commas, or `all`
    #[arg(long, value_name = "SLOTS", value_delimiter = ',')]
    pub erase: Vec<String>,
    /// Show the operations of a training step: forward, backward, sum, update. Settings come from the lock;
    /// a .canon file uses AdamW and cross-entropy in f32
    #[arg(long, conflicts_with_all = ["format", "layer"])]
    pub plan: bool,
    /// Show which file is made from which in this folder instead, and which are stale or missing (text or dot)
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

/// Close an open lock: write the digest of its data into it
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc bind lockfiles/llama_1B_nemotron.lock --data nemotron_cc.index
  canonc bind lockfiles/*_nemotron.lock --data nemotron_cc.index    all of them, or none if one is refused")]
pub struct BindArgs {
    /// The locks to close
    #[arg(value_name = "LOCK", required = true)]
    pub locks: Vec<PathBuf>,
    /// The prepared data that the lock names
    #[arg(long, value_name = "PATH")]
    pub data: PathBuf,
}

/// Show how two locks differ: treatment, confounds, consequences
#[derive(Args, Debug)]
#[command(
    after_help = "\
Examples:
  canonc diff lockfiles/llama_1B.lock lockfiles/llamacanon_1B.lock --treatment canon
  canonc diff lockfiles/a.lock lockfiles/b.lock --treatment canon --treatment optimizer.lr
  canonc diff lockfiles/a.lock lockfiles/b.lock --json
  canonc diff lockfiles/a.lock lockfiles/b.lock --treatment canon --explain

Exit codes: 0 controlled, 1 confounded, 2 a lock or the treatment cannot be used.",
    after_long_help = "\
Examples:
  canonc diff lockfiles/llama_1B.lock lockfiles/llamacanon_1B.lock --treatment canon
  canonc diff lockfiles/a.lock lockfiles/b.lock --treatment canon --treatment optimizer.lr
  canonc diff lockfiles/a.lock lockfiles/b.lock --json | jq '.confounds[].path'
  canonc diff lockfiles/a.lock lockfiles/b.lock --treatment canon --explain
  canonc diff --script > check_verdict.py          a script that checks a verdict on slots without canonc
  canonc diff lockfiles/a.lock lockfiles/b.lock --treatment canon --trainer canonc

A treatment names fields: `canon` means all slots; `optimizer.lr` is a field of the lock; `rope.dims` is a
field of every layer that has it; `arch.layers.0..6.slots.A` means only these layers.

A lock carries keys that only another trainer reads: its seed, folder, prefetching, compilation. They have
no effect in canonc but can change results there, so a difference in one is a confound. With
`--trainer canonc` you declare that canonc runs both locks; the verdict says so.

Exit codes: 0 controlled, 1 confounded, 2 a lock or the treatment cannot be used.

Schema of --json, one object on standard output:
  schema       \"canonc.diff.v1\"
  a, b         names of the locks
  verdict      \"identical\", \"controlled\", \"bundle\" or \"confounded\"
  controlled   whether only the treatment differs
  factors      number of independent fields in the treatment
  headline     the verdict in one line
  exploratory  whether the treatment comes from the command line, not from a comparison file
  assumed      inputs without a digest that are assumed equal because their names are
  trainer      \"canonc\" if declared with --trainer, else null
  treatment    each {entry, factors, changes}
  confounds, consequences, platform, cosmetic, and changes: lists, each
    path, a, b   the field and both values; null if a lock has no such field
    at_a, at_b   file:line, or null
    note         `+0.15%`, `decides training`, `measured differently`; may be empty
  graph        each {change (added, removed, changed), layers, node, times (in each layer), a, b,
               at_a, at_b}
  names        each {name, a, b}: the meaning in each arm of a name with several meanings, as
               {kind, digest, standard, at}; null if the arm does not use the name
  proof        {graph, manifest, reverse_graph, reverse_manifest, erased_slots, erased_graph,
               erased_manifest}: digests of both locks, first a with b's values at the treatment,
               then b with a's; null if it could not be built"
)]
pub struct DiffArgs {
    /// Baseline lock
    #[arg(value_name = "A", required_unless_present = "script")]
    pub a: Option<PathBuf>,
    /// Lock to compare with it
    #[arg(value_name = "B", required_unless_present = "script")]
    pub b: Option<PathBuf>,
    /// A field that is meant to differ; `canon` means the Canon slots
    #[arg(long = "treatment", value_name = "T")]
    pub treatment: Vec<String>,
    /// The trainer that runs both locks; with `canonc`, keys that only other trainers read have no effect
    #[arg(long, value_name = "T", value_parser = clap::builder::PossibleValuesParser::new(lab::verdict::Trainer::WORDS))]
    pub trainer: Option<String>,
    /// Print the verdict as JSON
    #[arg(long)]
    pub json: bool,
    /// Explain how to check the verdict with a Python script that does not use canonc
    #[arg(long, conflicts_with = "json")]
    pub explain: bool,
    /// Print that script, docs/check_verdict.py (Python 3.11 and the `blake3` package)
    #[arg(long, conflicts_with_all = ["a", "b", "treatment", "json", "explain"])]
    pub script: bool,
}

/// Train the missing runs of a comparison, then compare its arms, paired by seed
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc build recipes/demo.toml && canonc compare lockfiles/demo.lock
  canonc compare lockfiles/demo.lock --out demo/report.html
  canonc compare lockfiles/c4_twins.lock --data data/c4.index
  canonc compare lockfiles/demo.lock --jobs 2       two runs at a time; set threads = 1 in each lock
  canonc compare lockfiles/demo.lock --json > demo.json
  canonc compare lockfiles/demo.lock --time 100     only time steps, alternating between arms
  canonc compare lockfiles/demo.lock --to slurm > demo.sh && sbatch demo.sh

Runs are in runs/<comparison>/<run>; an interrupted command continues when repeated. The order of runs is
random, keyed by the lock's id. A run that diverges is a result: it is attested, the other runs continue, and
the exit code stays 0. If the lock has a stopping rule, looks are recorded in looks.jsonl, intervals are
anytime-valid, and an arm's first decisive look counts: later seeds are not in its rows. Before the first missing run
it says what `canonc build` says of the lock: questions that training will contain, time on this machine, and what the
seeds can find, if runs of the base are finished.

Schema of --json: {schema: \"canonc.compare.v2\", controlled, attributable, comparisons: [...], together:
[{comparison, arm, metric, judged}]}, where controlled is true only if every judged pair is, attributable only
if each differs in one factor, and together judges the primary rows of all comparisons as one family.
Each comparison has
  name, lock   name and id of the comparison's lock
  design, controlled, attributable, verdict
               how the arms differ where they are judged, not how large the effect is; design is
               controlled, compensated (a size was adjusted to keep a quantity equal), bundle (several
               factors), tuned (each arm at its own best of the same points) or not_controlled
  arms         each {name, role (base, treated, replicate), verdict, design (at equal points), controlled, attributable, factors,
               matched: {on, path, within, base, arm, apart}, costs: {parameters, flops, activations,
               tokens}, measured: {step_seconds, peak_memory_bytes}, tuning: {points, runs, tokens},
               runs (at each point), best_point, at_the_edge: [{path, end (lowest, highest)}]}; a member
               that an arm lacks is null
  points       names of the grid's points; one empty name without a grid
  selection    {metric, called, mode (min, max), per_arm, declared, points,
               selected_on_reported}: the locked rule, the number of points it selects from, and
               whether it selects on the windows that are reported
  analysis     {primary, family, margin, confidence, max_seeds (of a stopping rule), declared}
  interval     {level, method, fewest, secondary}
  pairs        by the locked rule, every metric: each {arm, base, title, design, controlled,
               attributable, verdict, arm_point, base_point (places in points), seeds: {pairs, base, treated, both: of the pairs,
               how many diverged}, rows: [{metric, label (the metric, and
               why it is not held-out), unit (nats, share, count, seconds: differences are ratios), base,
               treated, replicate (means), paired (by seed),
               n, difference, lowest, highest, better (less, more), interval: {low, high, n,
               standard_error, sd, p, anytime, chosen_among: {treated, base, best_of_each} (points, if
               these runs chose them: interval and p allow for it), covers_percent} or null, no_interval (why), sign_flip,
               bootstrap, bootstrap_covers_percent, judged: {effect (better, worse, equivalent,
               undecided), p_adjusted, p_equivalence, within_margin, open} of rows of the family,
               noise, no_noise (why), asked (questions, tokens or targets), over: {fewest, most,
               unit, windows} (what a value is measured on), seen (as below, of the row), parts: {asked (same,
               fresh), seeds, questions, standard_error, df, low, high, p, seed_part, question_part,
               both_part (of the squared standard error)} or null, no_parts (why)}]}
  paired_at_each_point, best_per_arm, best_of_base_for_all
               the same of the judged metric, at equal points and by both rules; empty without a grid
  looks        with a stopping rule: the look that each arm's rows show, {arm, metric, n, mean, e, p,
               interval, undefined, decision (continue, differs, equivalent, exhausted)}
  siblings     {used, locks: [{name, path, id, seeds}], left_out: [{init, data, arms, paired}],
               earlier_looks: [{lock, looks, decision}], earlier_reports: [{lock, seeds, added}],
               taken}: other locks of the same arms, finished seeds that this lock leaves out, looks and
               results under an earlier lock with the seeds added since, runs in folders of other
               comparisons (of a lock with a stopping rule); warnings and notes say them in words
  seen         how many evaluation questions training contained: {questions: {questions, shown, windows,
               of_windows}} or \"by_design\"; null if not counted
  time_bound   largest ratio of the base to itself at which ratios of times get an interval
  warnings, notes, caption, methods
               sentences; methods is a paragraph to paste into a paper")]
pub struct CompareArgs {
    /// Comparison locks; several get one table and picture of all at the end
    #[arg(value_name = "LOCK", required = true)]
    pub locks: Vec<PathBuf>,
    /// Folder for runs, with a subfolder for each comparison
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub dir: PathBuf,
    /// Prepared documents, if the arms train on text [default: data/SOURCE.index]
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// Also write the page with the curves; for several comparisons, their picture as SVG
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write events of each run while it trains: DIR/RUN, for `tensorboard --logdir DIR`
    #[arg(long, value_name = "DIR", conflicts_with_all = ["time", "to"])]
    pub tensorboard: Option<PathBuf>,
    /// Runs at a time; step times are accurate only if the machine has a core for every thread
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = jobs)]
    pub jobs: usize,
    /// Only time training steps, alternating between arms in this process [default: 40 of each]
    #[arg(long, value_name = "STEPS", num_args = 0..=1, default_missing_value = "40", allow_negative_numbers = true, value_parser = within::<u16>(12, u16::MAX), conflicts_with_all = ["out", "jobs"])]
    pub time: Option<u16>,
    /// Print a Slurm script instead: an array of machines that do the missing runs
    #[arg(long, value_enum, value_name = "TO", conflicts_with_all = ["out", "jobs", "time", "json"])]
    pub to: Option<CompareTo>,
    /// Machines of the array [default: one for each missing run]
    #[arg(long, value_name = "N", requires = "to", allow_negative_numbers = true, value_parser = jobs)]
    pub workers: Option<usize>,
    /// Do missing runs that no other worker does, then end without a report; any number can work at once
    #[arg(long, conflicts_with_all = ["out", "jobs", "time", "json", "to"])]
    pub work: bool,
    /// Take over the run of a worker that has been silent for this long, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300, allow_negative_numbers = true, value_parser = within::<u64>(1, 86_400))]
    pub lease: u64,
    /// Report no interval if the base differs from itself by more than this ratio, instead of the lock's time_bound
    #[arg(long, value_name = "RATIO", value_parser = plan::ratio, requires = "time")]
    pub bound: Option<f64>,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

/// Where else a comparison can be trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompareTo {
    /// A Slurm array
    Slurm,
}

/// Show what this machine has and lacks, and how to install what is missing
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc doctor
  canonc doctor --json

Schema of --json: {schema: \"canonc.doctor.v1\", facts: [{name, value, state, help}]}, where state is
\"has\", \"lacks\" or \"unknown\", and help (or null) says what to type.")]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Print shell completions
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc completions bash > ~/.local/share/bash-completion/completions/canonc
  canonc completions zsh  > \"${fpath[1]}/_canonc\"
  canonc completions fish > ~/.config/fish/completions/canonc.fish")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}
