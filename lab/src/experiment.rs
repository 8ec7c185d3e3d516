//! A resolved experiment: every effective value with its type, and its digests. No value that affects a result is
//! missing or left to a later default, derived values are exact and computed only here, and equal computations have
//! equal ids.

mod access;
mod arch;
mod batch;
mod checks;
pub(crate) mod covered;
pub(crate) mod derive;
mod groups;
pub(crate) mod layers;
mod name;
mod objective;
mod parts;
mod task;
pub mod updates;

use std::collections::BTreeMap;
use std::rc::Rc;

use dsl::Decimal;
use tasks::sample::Mode;

use crate::error::FieldProblem;
use crate::section::lines;
use access::{count, counts, int, list, real, seed, text, truth};
use covered::{digests, eval, train};
pub use parts::{
    Batch, Budget, Checkpoint, Data, DataSource, Decay, Device, Digests, Evaluation, Ids, Init,
    KernelPath, LossOn, Missing, Order, Platform, Schedule, Seeds, Shard, Shuffle, Tokenizer,
    TokenizerKind,
};

pub use arch::LockedArch;
pub(crate) use arch::{line_of, together};
pub(crate) use covered::{is_idle, of_class};
pub(crate) use derive::costs;
pub(crate) use layers::split as split_layer;
pub use layers::{FieldLine, lines as field_lines, sets as layer_sets};
pub(crate) use name::check_arm;
pub use name::{MAX_NAME, check_name};

use crate::field::{self, Class, FieldValue, Fields, Origin, SuiteTask, TABLE};
use compiler::analyse::Analysis;
use compiler::digest::Digest;
use compiler::plan::{
    Loss, MEANS, Optimizer, Options, ParamUpdate, Precision, Processor, Recompute, TERMS,
    TrainOptions,
};

/// How ranks divide each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// Each has some of the micro-batches.
    MicroBatches,
    /// Each has an equal part of the sequences of every micro-batch.
    Rows,
}

/// Why a number of ranks cannot divide a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Indivisible {
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: &'static str,
}

/// A resolved experiment, the content of an experiment lock.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Name of its lock, and of its run folders.
    pub name: String,
    /// The recipe it was made from; in no digest.
    pub source: String,
    /// The architecture, compiled.
    pub arch: Rc<LockedArch>,
    /// Costs at `data.seq_len`.
    pub analysis: Analysis,
    /// Training and evaluation data.
    pub data: Data,
    /// Tokens per step.
    pub batch: Batch,
    /// The loss per counted target.
    pub loss: Loss,
    /// Base learning rate, which the schedule scales.
    pub lr: Decimal,
    /// The optimizer's constants.
    pub optimizer: Optimizer,
    /// By parameter, how it is updated; empty if all have the plain update.
    pub updates: Vec<ParamUpdate>,
    /// Learning rate by step.
    pub schedule: Schedule,
    /// Length of the training.
    pub budget: Budget,
    /// Where the initial weights come from.
    pub init: Init,
    /// Seeds of initial values, data and evaluation.
    pub seeds: Seeds,
    /// Seed of dropout, if the arch has any.
    pub dropout: Option<u64>,
    /// Compute dtype.
    pub precision: Precision,
    /// What is measured, and when.
    pub evaluation: Evaluation,
    /// When the state is saved.
    pub checkpoint: Checkpoint,
    /// Steps between progress lines.
    pub log_every: u64,
    /// Steps between checks of ranks by their neighbours; 0 for never.
    pub check_every: u64,
    /// Requirements on the machine.
    pub platform: Platform,
    /// Digests by class of field.
    pub digests: Digests,
    pub(crate) fields: Fields,
    pub(crate) derived: BTreeMap<&'static str, FieldValue>,
}

impl Experiment {
    /// Resolves written fields: defaults, checks, derived values, digests.
    pub fn new(
        name: String,
        source: String,
        arch: Rc<LockedArch>,
        written: Fields,
    ) -> Result<Experiment, Vec<FieldProblem>> {
        let fields = complete(written)?;
        let mut problems = Vec::new();
        task::check(&fields, &mut problems);
        let budget = budget(&fields, &mut problems);
        let schedule = schedule(&fields, budget.map(|b| b.steps), &mut problems);
        let data = data(&fields, &mut problems);
        checks::fits(&arch, &fields, &mut problems);
        checks::divides(&fields, &mut problems);
        checks::has_effect(&arch, &fields, &mut problems);
        checks::suites(&arch, &fields, &mut problems);
        let (loss, lr, optimizer) = objective::read(&fields);
        let params = arch.compiled.graph.params();
        let updates = groups::updates(&arch.name, params, &fields, &mut problems);
        let (Some(budget), Some(data)) = (budget.filter(|_| problems.is_empty()), data) else {
            return Err(problems);
        };
        let seq_len = int(&fields, "data.seq_len");
        let analysis = compiler::analyse::analyse(&arch.compiled.graph, seq_len);
        let derived = derive::derived(&fields, &arch, &analysis, budget, &updates);
        let digests = digests(&fields, &derived);
        Ok(Experiment {
            name,
            source,
            analysis,
            data,
            batch: read_batch(&fields),
            loss,
            lr,
            optimizer,
            updates,
            schedule,
            budget,
            init: read_init(&fields),
            seeds: read_seeds(&fields),
            dropout: dropout_seed(&fields),
            precision: match text(&fields, "precision.policy") {
                "bf16" => Precision::Bf16,
                _ => Precision::F32,
            },
            evaluation: evaluation(&fields),
            checkpoint: Checkpoint {
                every: count(&fields, "checkpoint.every"),
                keep: count(&fields, "checkpoint.keep"),
            },
            log_every: count(&fields, "log.every"),
            check_every: count(&fields, "ranks.check_every"),
            platform: platform(&fields),
            digests,
            arch,
            fields,
            derived,
        })
    }

    /// The free fields, without those whose value is the default that follows from other fields: if those
    /// change, another value may follow.
    fn chosen(&self) -> Fields {
        let mut fields = self.fields.clone();
        for def in TABLE.iter() {
            if def.follows()
                && fields.get(def.path) == field::default_of(def, &self.fields).as_ref()
            {
                fields.remove(def.path);
            }
        }
        fields
    }

    /// The experiment with other values at some paths.
    pub fn with(&self, name: String, values: &Fields) -> Result<Experiment, Vec<FieldProblem>> {
        let mut fields = self.chosen();
        // Only one form of the budget is stored; a new value replaces either form.
        if values.contains_key("budget.steps") || values.contains_key("budget.tokens") {
            fields.retain(|path, _| !path.starts_with("budget."));
        }
        if values.contains_key(batch::WRITTEN) {
            fields.remove(batch::FOLLOWS);
        }
        fields.extend(values.iter().map(|(path, value)| (path.clone(), value.clone())));
        Experiment::new(name, self.source.clone(), self.arch.clone(), fields)
    }

    /// The id, which identifies what its runs compute.
    pub fn id(&self) -> Digest {
        self.digests.train
    }

    /// Named inputs without a digest. A lock with any is open and does not run.
    pub fn open_inputs(&self) -> Vec<String> {
        let weights = match &self.init {
            Init::Weights { name, digest: None, .. } => Some(format!("init.weights = \"{name}\"")),
            Init::Weights { digest: Some(_), .. } | Init::Drawn => None,
        };
        let DataSource::Text { name, digest, tokenizer, .. } = &self.data.source else {
            return weights.into_iter().collect();
        };
        let data = digest.is_none().then(|| format!("data.source = \"{name}\""));
        let tokenizer = match tokenizer {
            Tokenizer::File { kind, digest: None, .. } => {
                Some(format!("data.tokenizer = \"{}\"", kind.name()))
            }
            Tokenizer::File { digest: Some(_), .. } | Tokenizer::Bytes => None,
        };
        data.into_iter().chain(tokenizer).chain(weights).collect()
    }

    /// A free field's effective value, or a derived one, by path.
    pub fn value(&self, path: &str) -> Option<&FieldValue> {
        self.derived.get(path).or_else(|| self.fields.get(path))
    }

    /// Every free field with defaults filled in. Of the budget, only the form that was written.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// Whether any initial weight is drawn, so that `seeds.init` has an effect.
    pub fn draws_weights(&self) -> bool {
        !self.is_idle("seeds.init")
    }

    /// Whether a semantic field has no effect here: the name of an input whose digest is known, or `seeds.init` if no
    /// weight is drawn.
    pub fn is_idle(&self, path: &str) -> bool {
        is_idle(path, &self.fields)
    }

    /// Whether its loss has an auxiliary loss of this name: its recipe weighs it and its arch has it.
    pub fn weighs(&self, term: &str) -> bool {
        let mut terms = TERMS.iter().zip(self.loss.terms());
        terms.any(|(name, weight)| *name == term && weight.is_some())
            && self.arch.compiled.graph.has_term(term)
    }

    /// How so many ranks divide each step, or why they cannot.
    pub fn divided(&self, ranks: u64) -> Result<Division, Indivisible> {
        let (count, width) = (self.batch.micro_batches, self.batch.sequences);
        if count.is_multiple_of(ranks) {
            return Ok(Division::MicroBatches);
        }
        let term = MEANS.iter().find(|term| self.weighs(term));
        match term {
            None if width.is_multiple_of(ranks) => Ok(Division::Rows),
            None => Err(Indivisible {
                message: format!(
                    "{} cannot divide {} of {} equally",
                    dsl::counted(ranks, "rank"),
                    dsl::counted(count, "micro-batch"),
                    dsl::counted(width, "sequence")
                ),
                help: "use a number of ranks that divides batch.micro_batches or batch.sequences",
            }),
            Some(term) => Err(Indivisible {
                message: format!(
                    "{} cannot divide {}: `{term}` is a mean over a micro-batch, which one rank must compute alone",
                    dsl::counted(ranks, "rank"),
                    dsl::counted(count, "micro-batch")
                ),
                help: "use a number of ranks that divides batch.micro_batches",
            }),
        }
    }

    /// The options of the training plan.
    pub fn train_options(&self) -> TrainOptions {
        TrainOptions {
            common: Options {
                precision: self.precision,
                fuse: self.platform.fuse,
                processor: match self.platform.device {
                    Device::Cpu => Processor::Cpu,
                    Device::Cuda => Processor::Gpu,
                },
            },
            loss: self.loss,
            optimizer: self.optimizer,
            updates: self.updates.clone(),
            recompute: self.platform.recompute,
            dropout: self.dropout.is_some(),
        }
    }

    /// The text that the `train` digest covers.
    pub fn train_text(&self) -> String {
        lines(&train(&self.fields, &self.derived))
    }

    /// The text that the `eval` digest covers.
    pub fn eval_text(&self) -> String {
        lines(&eval(&self.fields, self.digests.train))
    }

    /// The text that the `platform` digest covers.
    pub fn platform_text(&self) -> String {
        lines(&of_class(&self.fields, Class::Platform))
    }
}

/// Fills in defaults and checks that every field exists.
fn complete(written: Fields) -> Result<Fields, Vec<FieldProblem>> {
    let mut problems = Vec::new();
    let mut fields = written;
    batch::resolve(&mut fields, &mut problems);
    name_task(&mut fields, &mut problems);
    // Resolve fields that decide which other fields exist first.
    let deciding = ["data.task", "schedule.kind"];
    let unknown: Vec<&str> =
        deciding.into_iter().filter(|path| !fields.contains_key(*path)).collect();
    for def in TABLE.iter() {
        let undecided = |on: &str| unknown.iter().any(|path| on == *path || depends(on, path));
        if def.origin != Origin::Free || def.only.is_some_and(|(on, _)| undecided(on)) {
            continue;
        }
        let written = fields.contains_key(def.path);
        match (def.exists(&fields), written) {
            (true, true) | (false, false) => {}
            (true, false) => match field::default_of(def, &fields) {
                Some(value) => {
                    fields.insert(def.path.to_owned(), value);
                }
                // The default depends on a missing field, which is reported itself.
                None if def.follows() => {}
                None => problems.push(FieldProblem::missing(def)),
            },
            (false, true) => problems.push(FieldProblem::idle(def, &fields)),
        }
    }
    let weights = counts(&fields, "data.weights");
    if !weights.is_empty() && weights.iter().all(|weight| *weight == 0) {
        problems.push(FieldProblem::new(
            "data.weights",
            "bad-weights",
            "every weight is 0, so no source would be read".to_owned(),
            "give the sources to read a weight of 1 or more".to_owned(),
        ));
    }
    if problems.is_empty() { Ok(fields) } else { Err(problems) }
}

/// A table of a task's parameters, `[data.depo]`, also names the task.
fn name_task(fields: &mut Fields, problems: &mut Vec<FieldProblem>) {
    if fields.contains_key("data.task") {
        return;
    }
    let has = |name: &&str| {
        let table = format!("data.{name}.");
        fields.keys().any(|path| path.starts_with(&table))
    };
    let named: Vec<&str> = tasks::task::names().into_iter().filter(has).collect();
    match named.as_slice() {
        [] => {}
        [one] => {
            fields.insert("data.task".to_owned(), FieldValue::text(*one));
        }
        [one, other, ..] => {
            problems.push(FieldProblem::new(
                "data.task",
                "two-tasks",
                format!("[data.{one}] and [data.{other}] are two different tasks"),
                "keep one of the two tables",
            ));
            fields.retain(|path, _| !path.starts_with(&format!("data.{other}.")));
            fields.insert("data.task".to_owned(), FieldValue::text(*one));
        }
    }
}

/// Whether a field exists only if another has a certain word.
fn depends(path: &str, on: &str) -> bool {
    field::find(path).is_some_and(|def| def.only.is_some_and(|(by, _)| by == on))
}

fn read_batch(fields: &Fields) -> Batch {
    Batch {
        sequences: count(fields, "batch.sequences"),
        micro_batches: count(fields, "batch.micro_batches"),
        in_sequence: count(fields, "batch.in_sequence"),
        tokens_per_step: derive::tokens_per_step(fields).unwrap_or(0),
    }
}

fn read_init(fields: &Fields) -> Init {
    match text(fields, "init.weights") {
        "" | field::NONE => Init::Drawn,
        name => Init::Weights {
            name: name.to_owned(),
            digest: Digest::parse(text(fields, "init.digest")),
            missing: match covered::draws_nothing(fields) {
                true => Missing::Refused,
                false => Missing::Drawn,
            },
        },
    }
}

fn read_seeds(fields: &Fields) -> Seeds {
    Seeds {
        init: seed(fields, "seeds.init"),
        data: seed(fields, "seeds.data"),
        eval: seed(fields, "seeds.eval"),
    }
}

fn dropout_seed(fields: &Fields) -> Option<u64> {
    match fields.get("seeds.dropout") {
        Some(FieldValue::Int(seed)) => u64::try_from(*seed).ok(),
        Some(_) | None => None,
    }
}

/// The budget; `None` if it is wrong, which is reported.
fn budget(fields: &Fields, problems: &mut Vec<FieldProblem>) -> Option<Budget> {
    resolve_budget(fields).map_err(|problem| problems.push(problem)).ok()
}

fn bad_budget(path: &str, message: String, help: impl Into<String>) -> FieldProblem {
    FieldProblem::new(path, "bad-budget", message, help)
}

fn resolve_budget(fields: &Fields) -> Result<Budget, FieldProblem> {
    let Some(per_step) = derive::tokens_per_step(fields) else {
        let message = "sequences x micro_batches x seq_len does not fit into 63 bits".to_owned();
        return Err(bad_budget("batch.sequences", message, "make the step smaller"));
    };
    match (fields.get("budget.steps"), fields.get("budget.tokens")) {
        (Some(FieldValue::Int(steps)), None) => budget_of_steps(*steps as u64, per_step),
        (None, Some(FieldValue::Int(tokens))) => budget_of_tokens(*tokens as u64, per_step),
        (Some(_), Some(_)) => Err(bad_budget(
            "budget.tokens",
            "the budget has both steps and tokens".to_owned(),
            "write one of the two: the other follows",
        )),
        (None | Some(_), None | Some(_)) => Err(bad_budget(
            "budget",
            "the budget has neither steps nor tokens".to_owned(),
            "add `steps = 600` under `[budget]`, or `tokens = …`",
        )),
    }
}

fn budget_of_steps(steps: u64, per_step: u64) -> Result<Budget, FieldProblem> {
    match steps.checked_mul(per_step).filter(|tokens| i64::try_from(*tokens).is_ok()) {
        Some(tokens) => Ok(Budget { steps, tokens }),
        None => Err(bad_budget(
            "budget.steps",
            format!("{} of {per_step} tokens do not fit into 63 bits", dsl::counted(steps, "step")),
            "lower steps",
        )),
    }
}

fn budget_of_tokens(tokens: u64, per_step: u64) -> Result<Budget, FieldProblem> {
    let steps = tokens / per_step;
    if !tokens.is_multiple_of(per_step) || steps == 0 {
        let (down, up) = (steps.max(1) * per_step, (steps + 1) * per_step);
        let nearest =
            if down == up || steps == 0 { format!("{down}") } else { format!("{down} or {up}") };
        return Err(bad_budget(
            "budget.tokens",
            format!(
                "{} is not a multiple of a step's {}",
                dsl::counted(tokens, "token"),
                dsl::counted(per_step, "token")
            ),
            format!("write tokens = {nearest}"),
        ));
    }
    if steps > 1_000_000_000_000 {
        let message = format!(
            "{} are {} of {}",
            dsl::counted(tokens, "token"),
            dsl::counted(steps, "step"),
            dsl::counted(per_step, "token")
        );
        return Err(bad_budget("budget.tokens", message, "lower tokens"));
    }
    Ok(Budget { steps, tokens })
}

/// `steps` is `None` if the budget is wrong, which was already reported.
fn schedule(fields: &Fields, steps: Option<u64>, problems: &mut Vec<FieldProblem>) -> Schedule {
    let warmup = count(fields, "schedule.warmup");
    let lr_min_ratio = real(fields, "schedule.lr_min_ratio");
    let cycle = real(fields, "schedule.cycle");
    if let Some(steps) = steps.filter(|steps| warmup > *steps) {
        problems.push(FieldProblem::new(
            "schedule.warmup",
            "bad-schedule",
            format!("warmup takes {}, but the run has {steps}", dsl::counted(warmup, "step")),
            "lower warmup, or raise the budget",
        ));
    }
    match text(fields, "schedule.kind") {
        "cosine" => {
            Schedule::Cosine { warmup, lr_min_ratio, cycle, theta: real(fields, "schedule.theta") }
        }
        "linear" => Schedule::Linear { warmup, lr_min_ratio },
        "inv_sqrt" => Schedule::InvSqrt {
            warmup,
            lr_min_ratio,
            exp_factor: real(fields, "schedule.exp_factor"),
        },
        "wsd" => {
            let decay = Decay::named(text(fields, "schedule.decay")).unwrap_or(Decay::Hyperbola);
            if lr_min_ratio.is_zero() && decay == Decay::Hyperbola {
                problems.push(FieldProblem::new(
                    "schedule.lr_min_ratio",
                    "bad-schedule",
                    "lr_min_ratio is 0, which the hyperbola of wsd never reaches".to_owned(),
                    "set lr_min_ratio above 0, or write decay = \"linear\", \"cosine\" or \"sqrt\" under [schedule]",
                ));
            }
            let less_than_one = |steps: &u64| {
                let length = Decimal::from(i64::try_from(*steps).unwrap_or(i64::MAX)).mul(cycle);
                length.is_ok_and(|w| w.compare(Decimal::ONE) == std::cmp::Ordering::Less)
            };
            if let Some(steps) = steps.filter(less_than_one) {
                problems.push(FieldProblem::new(
                    "schedule.cycle",
                    "bad-schedule",
                    format!("a cycle of {cycle} x {steps} steps is less than one step"),
                    "raise cycle, or the budget",
                ));
            }
            let decay_fraction = real(fields, "schedule.decay_fraction");
            Schedule::Wsd { warmup, lr_min_ratio, cycle, decay_fraction, decay }
        }
        _ => Schedule::Constant,
    }
}

/// The data; `None` if its task has a problem, which `task::check` reports.
fn data(fields: &Fields, problems: &mut Vec<FieldProblem>) -> Option<Data> {
    let seq_len = count(fields, "data.seq_len");
    let loss_on =
        if text(fields, "data.loss_on") == "answer" { LossOn::Answer } else { LossOn::All };
    let source = match text(fields, "data.task") {
        "text" => {
            let million = Decimal::from(1_000_000);
            let per_million =
                real(fields, "data.held_out").mul(million).ok().and_then(Decimal::to_int);
            if per_million.is_none() {
                problems.push(FieldProblem::new(
                    "data.held_out",
                    "bad-held-out",
                    "held_out has more than six decimals".to_owned(),
                    "write at most six decimals",
                ));
            }
            let measures = !list(fields, "evaluation.metrics").is_empty();
            if per_million == Some(0) && measures {
                problems.push(FieldProblem::new(
                    "data.held_out",
                    "nothing-held-out",
                    "held_out is 0, so there are no documents to evaluate on".to_owned(),
                    "hold some documents out, or turn evaluation off: metrics = [] under [evaluation]",
                ));
            }
            DataSource::Text {
                name: text(fields, "data.source").to_owned(),
                digest: Digest::parse(text(fields, "data.digest")),
                tokenizer: tokenizer(fields),
                add_bos: truth(fields, "data.add_bos"),
                add_eos: truth(fields, "data.add_eos"),
                held_out_per_million: per_million.and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
                held_out_seed: seed(fields, "data.held_out_seed"),
                weights: counts(fields, "data.weights"),
                shuffle: match text(fields, "data.shuffle") {
                    "buffer" => Shuffle::Buffer { windows: count(fields, "data.shuffle_buffer") },
                    "documents" => Shuffle::Documents,
                    _ => Shuffle::Windows,
                },
            }
        }
        _ => DataSource::Task {
            task: task::task(fields)?.ok()?,
            order: match text(fields, "data.order") {
                "published" => Order::Published,
                _ => Order::Indexed,
            },
            ids: if text(fields, "data.ids") == "dense" { Ids::Dense } else { Ids::Published },
        },
    };
    Some(Data { seq_len, loss_on, source })
}

fn tokenizer(fields: &Fields) -> Tokenizer {
    let Some(kind) = TokenizerKind::named(text(fields, "data.tokenizer")) else {
        return Tokenizer::Bytes;
    };
    let digest = Digest::parse(text(fields, "data.tokenizer_digest"));
    Tokenizer::File { kind, digest, vocab: count(fields, "data.tokenizer_vocab") }
}

fn evaluation(fields: &Fields) -> Evaluation {
    let metrics = list(fields, "evaluation.metrics").iter().map(FieldValue::plain).collect();
    let tasks = list(fields, "evaluation.suite_tasks");
    let named = |path: &str, neutral: &str| {
        Some(text(fields, path))
            .filter(|word| !word.is_empty() && *word != neutral)
            .map(str::to_owned)
    };
    Evaluation {
        every: count(fields, "evaluation.every"),
        windows: count(fields, "evaluation.windows"),
        samples: count(fields, "evaluation.samples"),
        metrics,
        mode: match text(fields, "evaluation.mode") {
            "train" => Some(Mode::Train),
            "test" => Some(Mode::Test),
            _ => None,
        },
        suites: list(fields, "evaluation.suites").iter().map(FieldValue::plain).collect(),
        suite_data: named("evaluation.suite_data", "beside"),
        tokenizer_file: named("evaluation.tokenizer_file", "none"),
        tasks: tasks.iter().filter_map(|task| SuiteTask::parse(&task.plain())).collect(),
    }
}

fn kernel(fields: &Fields, path: &str) -> KernelPath {
    match text(fields, path) {
        "reference" => KernelPath::Reference,
        _ => KernelPath::Fused,
    }
}

fn platform(fields: &Fields) -> Platform {
    let word = |path: &str| Some(text(fields, path).to_owned()).filter(|word| word != "any");
    Platform {
        threads: match fields.get("platform.threads") {
            Some(FieldValue::Int(n)) => u32::try_from(*n).ok(),
            Some(_) | None => None,
        },
        cpu_capability: word("platform.cpu_capability"),
        blas: word("platform.blas"),
        device: if text(fields, "platform.device") == "cuda" { Device::Cuda } else { Device::Cpu },
        fuse: truth(fields, "platform.fuse"),
        recompute: match text(fields, "platform.recompute") {
            "layers" => Recompute::Layers,
            "selective" => Recompute::Selective,
            _ => Recompute::Nothing,
        },
        devices: match fields.get("platform.devices") {
            Some(FieldValue::Int(n)) => u32::try_from(*n).ok(),
            Some(_) | None => None,
        },
        devices_per_node: match fields.get("platform.devices_per_node") {
            Some(FieldValue::Int(n)) => u32::try_from(*n).ok(),
            Some(_) | None => None,
        },
        shard: Shard::named(text(fields, "platform.shard")).unwrap_or(Shard::None),
        canon: kernel(fields, "platform.kernels.canon"),
        gated_norm: kernel(fields, "platform.kernels.gated_norm"),
    }
}
