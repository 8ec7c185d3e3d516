//! Lingua's training keys as fields of a recipe, and back.
//!
//! The size of a step follows from keys and the number of devices, never from a comment; a key without a field is listed
//! as left out, or refused.

mod fixed;

use std::collections::BTreeMap;

use dsl::{Decimal, Problem};
use lab::experiment::Experiment;
use lab::field::{self, Absent, FieldValue, quote};

use super::LeftOut;
use super::config::{Keys, decimal};
use super::lingua::TOKENIZERS;
use super::messages::lingua as messages;
use super::names::GatedNorm;
use super::node::{Node, NodeValue};

/// Fields of a recipe as TOML, by path.
pub type Training = BTreeMap<String, String>;

/// How a value is written on either side.
#[derive(Clone, Copy)]
enum Form {
    Int,
    Real,
    Bool,
    Text,
    /// An integer; `null` there is this word here.
    IntOr(&'static str),
    /// Pairs of a word there and the word for it here.
    Words(&'static [(&'static str, &'static str)]),
}

/// A field with a key in the trainer's files. The field table has the key and the meaning of its absence.
struct Pair {
    ours: &'static str,
    form: Form,
    /// Overrides the table, or is given because the table has none.
    absent: Option<&'static str>,
    write: Write,
}

#[derive(Clone, Copy, PartialEq)]
enum Write {
    Always,
    /// Only if the value differs from the default: older trainers do not know the key.
    Unlike,
    /// Only for these schedules.
    Kind(&'static [&'static str]),
}

const fn pair(ours: &'static str, form: Form) -> Pair {
    Pair { ours, form, absent: None, write: Write::Always }
}

impl Pair {
    const fn absent(self, absent: &'static str) -> Pair {
        Pair { absent: Some(absent), ..self }
    }

    /// The key in the trainer's files: the table's first foreign name, or the field's own path.
    fn theirs(&self) -> &'static str {
        field::find(self.ours).and_then(|row| row.foreign.first().copied()).unwrap_or(self.ours)
    }

    /// The value, as the trainer writes it, that an absent key means.
    fn if_absent(&self) -> &'static str {
        let known = field::find(self.ours).map(|row| row.absent);
        self.absent.unwrap_or(match known {
            Some(Absent::Default(value) | Absent::Is(value)) => value,
            Some(Absent::Unknown | Absent::As(_)) | None => "",
        })
    }

    const fn unlike(self) -> Pair {
        Pair { write: Write::Unlike, ..self }
    }

    const fn only_for(self, kinds: &'static [&'static str]) -> Pair {
        Pair { write: Write::Kind(kinds), ..self }
    }
}

const TYPES: Form = Form::Words(&[("bf16", "\"bf16\""), ("fp32", "\"f32\"")]);
const WARMED: &[&str] = &["cosine", "inv_sqrt", "linear", "wsd"];

/// Keys with an equivalent field.
#[rustfmt::skip]
const PAIRS: &[Pair] = &[
    pair("budget.steps", Form::Int),
    pair("lingua.seed", Form::Int),
    pair("seeds.init", Form::Int),
    pair("seeds.data", Form::Int),
    pair("loss.nll_square", Form::Words(&[("true", "1e-4"), ("false", "0")])).absent("false"),
    pair("optimizer.lr", Form::Real),
    pair("optimizer.weight_decay", Form::Real),
    pair("optimizer.eps", Form::Real),
    pair("optimizer.clip", Form::Real),
    pair("schedule.kind", Form::Text).absent("cosine"),
    pair("schedule.warmup", Form::Int).only_for(WARMED),
    pair("schedule.lr_min_ratio", Form::Real).only_for(WARMED),
    pair("schedule.cycle", Form::Real).only_for(&["cosine", "wsd"]),
    pair("schedule.theta", Form::Real).only_for(&["cosine"]),
    pair("schedule.decay_fraction", Form::Real).only_for(&["wsd"]),
    pair("schedule.exp_factor", Form::Real).only_for(&["inv_sqrt"]),
    pair("batch.sequences", Form::Int),
    pair("data.seq_len", Form::Int),
    pair("data.add_bos", Form::Bool),
    pair("data.add_eos", Form::Bool),
    pair("lingua.root_dir", Form::Text).absent("data"),
    pair("lingua.prefetch_size", Form::Int),
    pair("lingua.load_async", Form::Bool),
    pair("lingua.tokenizer_path", Form::Text).absent("tokenizer.model"),
    pair("lingua.probe_freq", Form::IntOr("never")),
    pair("log.every", Form::Int),
    pair("lingua.fsdp_type", Form::Text),
    pair("lingua.compile", Form::Bool),
    pair("precision.policy", TYPES).absent("bf16"),
    pair("lingua.matmul_allow_tf32", Form::Bool),
    pair("platform.recompute", Form::Words(&[("false", "\"nothing\""), ("true", "\"layers\"")])).absent("false"),
    pair("lingua.profiling", Form::Bool),
    pair("checkpoint.every", Form::Int),
    // The trainer's 0 keeps none, but a run here continues from one of at least two.
    pair("checkpoint.keep", Form::Int).absent("3"),
    pair("evaluation.every", Form::Int),
    pair("lingua.eval_keep", Form::Int),
    pair("lingua.read_s3", Form::Bool).unlike(),
    pair("lingua.async_eval_gpus", Form::IntOr("0")),
    pair("lingua.log_samples", Form::Bool),
    pair("lingua.generator_max_tokens", Form::Int),
    pair("lingua.generator_dtype", Form::Text),
    pair("lingua.show_progress", Form::Bool),
    pair("lingua.save_s3", Form::Bool).unlike(),
    pair("lingua.save_consolidated_to_local", Form::Bool).absent("true").unlike(),
];

/// Tasks with more than a name in the release's entry: the additional keys and their values.
const TASKS: [(&str, &[(&str, &str)]); 3] = [
    ("boolq", &[("dataset_kwargs.trust_remote_code", "true")]),
    ("social_iqa", &[("dataset_kwargs.trust_remote_code", "true")]),
    (
        "lambada_openai",
        &[
            ("dataset_kwargs.trust_remote_code", "true"),
            ("metric_list", "{aggregation: \"mean\", higher_is_better: true, metric: \"acc\"}"),
        ],
    ),
];

/// Keys without a field that affect neither weights nor measurements.
const IDLE: [&str; 24] = [
    "name",
    "dump_dir",
    "logging.wandb",
    "logging.acc_freq",
    "gc_collect_freq",
    "env",
    "slurm",
    "checkpoint.path",
    "profiling.trace_folder",
    "profiling.mem_warmup",
    "profiling.mem_steps",
    "profiling.profile_warmup",
    "profiling.profile_steps",
    "distributed.detect_anomaly",
    "distributed.compile_cache_size_limit",
    "distributed.spawn_method",
    "distributed.float8_filter",
    "eval.name",
    "eval.dump_dir",
    "eval.metric_log_dir",
    "eval.ckpt_dir",
    "eval.global_step",
    "eval.wandb",
    "model.max_seqlen",
];

/// Whether a configuration has training keys.
pub fn has_training(keys: &Keys<'_>) -> bool {
    keys.has("optim") || keys.has("steps")
}

/// Reads all keys except those of `model`.
pub fn read(
    keys: &Keys<'_>,
    vocab: i64,
    norm: GatedNorm,
    devices: Option<i64>,
) -> Result<(Training, Vec<LeftOut>), Problem> {
    let mut training = Training::new();
    let kind = keys.text("optim.scheduler")?.unwrap_or("cosine");
    for pair in PAIRS {
        let value = ours(keys, pair)?;
        match pair.write {
            Write::Kind(kinds) if !kinds.contains(&kind) => {
                let key = pair.theirs();
                keys.only(key, &[pair.if_absent()], &messages::other_schedule(key, kind))?;
            }
            Write::Always | Write::Unlike | Write::Kind(_) => {
                training.insert(pair.ours.to_owned(), value);
            }
        }
    }
    if decimal(training.get("optimizer.clip").map_or("", String::as_str)).is_zero() {
        training.insert("optimizer.clip".to_owned(), "\"none\"".to_owned());
    }
    let betas = [keys.decimal_or("optim.beta1", "0.9")?, keys.decimal_or("optim.beta2", "0.95")?];
    let mut set = |path: &str, value: String| training.insert(path.to_owned(), value);
    set("optimizer.betas", format!("[{}, {}]", real(betas[0]), real(betas[1])));
    set("data.task", "\"text\"".to_owned());
    fixed::shuffle(keys, &mut set)?;
    if norm == GatedNorm::Reference {
        set("platform.kernels.gated_norm", "\"reference\"".to_owned());
    }
    // The trainer holds out no documents, so there is nothing to measure here; and it needs GPUs.
    set("data.held_out", "0".to_owned());
    set("evaluation.metrics", "[]".to_owned());
    set("platform.device", "\"cuda\"".to_owned());
    sources(keys, &mut set)?;
    tokenizer(keys, vocab, &mut set)?;
    step(keys, devices, &mut set)?;
    tasks(keys, &mut set)?;
    keys.check_all(&messages::TRAINING)?;
    let mut left_out = Vec::new();
    // The trainer replaces it by data.seq_len.
    let seq_len = keys.node("data.seq_len").map(|node| &node.value);
    let forced = keys.node("model.max_seqlen").is_some_and(|node| Some(&node.value) == seq_len);
    let rounding = "distributed.allow_bf16_reduced_precision_reduction";
    for key in IDLE.into_iter().chain([rounding]) {
        if keys.has(key) && !(forced && key == "model.max_seqlen") {
            let reason = "it does not affect weights, and no field has it".to_owned();
            left_out.push(LeftOut { name: key.to_owned(), reason });
        }
    }
    keys.idle(&IDLE);
    Ok((training, left_out))
}

/// The value of one key as TOML.
fn ours(keys: &Keys<'_>, pair: &Pair) -> Result<String, Problem> {
    let key = pair.theirs();
    match pair.form {
        Form::Int => match keys.node(key) {
            None => Ok(pair.if_absent().to_owned()),
            Some(node) => match number(node).and_then(Decimal::to_int) {
                Some(n) => Ok(n.to_string()),
                None => Err(keys.wrong(key, "a whole number")),
            },
        },
        Form::IntOr(word) => match keys.node(key) {
            None if word == "0" => Ok("0".to_owned()),
            None => Ok(format!("{word:?}")),
            Some(node) => match number(node).and_then(Decimal::to_int) {
                Some(n) => Ok(n.to_string()),
                None => Err(keys.wrong(key, "a whole number or null")),
            },
        },
        Form::Real => Ok(real(keys.decimal_or(key, pair.if_absent())?)),
        Form::Bool => Ok(keys.bool_or(key, pair.if_absent() == "true")?.to_string()),
        Form::Text => Ok(quote(keys.text(key)?.unwrap_or(pair.if_absent()))),
        Form::Words(words) => {
            let word =
                keys.node(key).map_or(pair.if_absent().to_owned(), |node| node.value.plain());
            let ours = words.iter().find(|(theirs, _)| *theirs == word);
            let known: Vec<&str> = words.iter().map(|(theirs, _)| *theirs).collect();
            let wrong = || keys.wrong(key, &known.join(" or "));
            ours.map(|(_, ours)| (*ours).to_owned()).ok_or_else(wrong)
        }
    }
}

fn number(node: &Node) -> Option<Decimal> {
    match &node.value {
        NodeValue::Number(digits) => Decimal::parse(digits).ok(),
        NodeValue::Null
        | NodeValue::Bool(_)
        | NodeValue::Text(_)
        | NodeValue::List(_)
        | NodeValue::Map(_) => None,
    }
}

/// A decimal as TOML: with digits on both sides of the point, or without a point.
fn real(number: Decimal) -> String {
    number.to_string()
}

/// One source is a name; several are their names joined, and weights.
fn sources(
    keys: &Keys<'_>,
    set: &mut impl FnMut(&str, String) -> Option<String>,
) -> Result<(), Problem> {
    let names = keys.below("data.sources");
    let mut weights = Vec::new();
    for name in &names {
        let key = format!("data.sources.{name}");
        if name.contains('+') {
            return Err(messages::joined_source(keys, &key));
        }
        weights.push(keys.decimal_or(&key, "1")?);
    }
    keys.idle(&["data.sources"]);
    let name = if names.is_empty() { UNNAMED.to_owned() } else { names.join("+") };
    set("data.source", quote(&name));
    if names.len() > 1 {
        // The smallest power of ten that makes all of them integers.
        let places = weights.iter().map(|w| -w.parts().1).max().unwrap_or(0).clamp(0, 9);
        let scale = Decimal::new(1, places).unwrap_or(Decimal::ONE);
        let scaled = |w: &Decimal| w.mul(scale).ok().and_then(Decimal::to_int);
        let integers: Option<Vec<String>> =
            weights.iter().map(|w| scaled(w).map(|n| n.to_string())).collect();
        let Some(integers) = integers else {
            return Err(messages::fine_weights(keys));
        };
        set("data.weights", format!("[{}]", integers.join(", ")));
    }
    Ok(())
}

/// The name of documents without a name.
const UNNAMED: &str = "unnamed";

fn tokenizer(
    keys: &Keys<'_>,
    vocab: i64,
    set: &mut impl FnMut(&str, String) -> Option<String>,
) -> Result<(), Problem> {
    let name = keys.text("data.tokenizer.name")?.unwrap_or("bytes");
    let Some((_, ours, _)) = TOKENIZERS.iter().find(|(theirs, _, _)| *theirs == name) else {
        return Err(messages::unknown_tokenizer(keys));
    };
    set("data.tokenizer", quote(ours));
    if *ours != "bytes" {
        set("data.tokenizer_vocab", vocab.to_string());
    }
    Ok(())
}

/// The batch of a step: one micro-batch for each device and accumulation.
fn step(
    keys: &Keys<'_>,
    devices: Option<i64>,
    set: &mut impl FnMut(&str, String) -> Option<String>,
) -> Result<(), Problem> {
    let shard = keys.int("distributed.dp_shard")?;
    let replicate = keys.int("distributed.dp_replicate")?;
    let known = match (shard, replicate) {
        (None, None) => None,
        (shard, replicate) => Some(shard.unwrap_or(1) * replicate.unwrap_or(1)),
    };
    let devices = match (known, devices) {
        (Some(known), Some(given)) if known != given => {
            let key =
                if shard.is_some() { "distributed.dp_shard" } else { "distributed.dp_replicate" };
            return Err(messages::other_devices(keys, key, known, given));
        }
        (Some(n), _) | (None, Some(n)) => n,
        (None, None) => return Err(messages::no_devices(keys)),
    };
    let accumulate = keys.int_or("grad_acc_steps", 1)?;
    let micro_batches = devices.checked_mul(accumulate).filter(|n| (1..=1 << 20).contains(n));
    let Some(micro_batches) = micro_batches else {
        return Err(messages::number_of_micro_batches(keys, devices));
    };
    set("batch.micro_batches", micro_batches.to_string());
    set("platform.devices", devices.to_string());
    Ok(())
}

/// Names of evaluations. An entry with more than a name must equal the release's entry.
fn tasks(
    keys: &Keys<'_>,
    set: &mut impl FnMut(&str, String) -> Option<String>,
) -> Result<(), Problem> {
    let key = "eval.harness.tasks";
    let items: &[Node] = match keys.node(key).map(|node| &node.value) {
        None => &[],
        Some(NodeValue::List(items)) => items,
        Some(
            NodeValue::Null
            | NodeValue::Bool(_)
            | NodeValue::Number(_)
            | NodeValue::Text(_)
            | NodeValue::Map(_),
        ) => {
            return Err(messages::tasks_are_no_list(keys));
        }
    };
    let mut names = Vec::new();
    for item in items {
        let leaves: BTreeMap<String, String> =
            item.leaves().into_iter().map(|(k, n)| (k, in_order(n))).collect();
        let (name, more) = match &item.value {
            NodeValue::Text(name) => (name.clone(), BTreeMap::new()),
            NodeValue::Null
            | NodeValue::Bool(_)
            | NodeValue::Number(_)
            | NodeValue::List(_)
            | NodeValue::Map(_) => {
                let name = item.get("task").map(|n| n.value.plain()).unwrap_or_default();
                (name, leaves.into_iter().filter(|(k, _)| k != "task").collect())
            }
        };
        let published = TASKS.iter().find(|(task, _)| *task == name);
        let same = |(_, more_of): &(&str, &[(&str, &str)])| {
            more.len() == more_of.len()
                && more_of.iter().all(|(k, v)| more.get(*k).is_some_and(|has| *v == has))
        };
        if name.is_empty() || !(more.is_empty() || published.is_some_and(same)) {
            return Err(messages::other_task(keys, &item.value.shown()));
        }
        names.push(quote(&name));
    }
    set("lingua.harness_tasks", format!("[{}]", names.join(", ")));
    Ok(())
}

/// A value as text, with the keys of its maps in a fixed order.
fn in_order(node: &Node) -> String {
    match &node.value {
        NodeValue::List(items) => items.iter().map(in_order).collect::<Vec<_>>().join(","),
        NodeValue::Map(entries) => {
            let mut entries: Vec<String> =
                entries.iter().map(|(k, n)| format!("{k}: {}", n.value.shown())).collect();
            entries.sort();
            format!("{{{}}}", entries.join(", "))
        }
        NodeValue::Null | NodeValue::Bool(_) | NodeValue::Number(_) | NodeValue::Text(_) => {
            node.value.plain()
        }
    }
}

fn node(value: NodeValue) -> Node {
    Node { value, line: 0 }
}

/// Puts a value under a dotted key.
pub fn put(root: &mut Vec<(String, Node)>, key: &str, value: NodeValue) {
    let Some((first, rest)) = key.split_once('.') else {
        root.push((key.to_owned(), node(value)));
        return;
    };
    if let Some((_, Node { value: NodeValue::Map(inner), .. })) =
        root.iter_mut().find(|(k, _)| k == first)
    {
        put(inner, rest, value);
        return;
    }
    let mut inner = Vec::new();
    put(&mut inner, rest, value);
    root.push((first.to_owned(), node(NodeValue::Map(inner))));
}

/// The error for an experiment that Lingua could not train.
fn inexpressible(experiment: &Experiment, path: &str, reason: &str) -> Problem {
    let has = experiment.value(path).map_or("absent".to_owned(), FieldValue::to_string);
    Problem::in_file(
        experiment.name.clone(),
        format!("`{path}` is {has}, and {reason}"),
        "change the recipe, or train it with canonc",
    )
}

/// Every training key of an experiment, under its dotted name, and the number of devices.
pub fn write(experiment: &Experiment) -> Result<(Vec<(String, Node)>, i64), Problem> {
    fixed::check(experiment)?;
    let devices = match experiment.value("platform.devices") {
        Some(FieldValue::Int(n)) => *n,
        Some(_) | None => {
            return Err(inexpressible(
                experiment,
                "platform.devices",
                "a launch needs the number of devices",
            ));
        }
    };
    let micro_batches = experiment.batch.micro_batches as i64;
    if micro_batches % devices != 0 {
        let reason = format!("{micro_batches} micro-batches are not a multiple of the devices");
        return Err(inexpressible(experiment, "platform.devices", &reason));
    }
    let mut root = Vec::new();
    let kind = experiment.value("schedule.kind").map(FieldValue::plain).unwrap_or_default();
    for pair in PAIRS {
        if let Write::Kind(kinds) = pair.write
            && !kinds.contains(&kind.as_str())
        {
            continue;
        }
        let Some(value) = experiment.value(pair.ours) else { continue };
        let value = theirs(experiment, pair, value)?;
        let absent = value.plain() == pair.if_absent();
        // The caller writes `model` as a whole; here each value is only checked to have a word.
        let elsewhere = pair.theirs().starts_with("model.");
        if !(elsewhere || pair.write == Write::Unlike && absent) {
            put(&mut root, pair.theirs(), value);
        }
    }
    put(&mut root, "grad_acc_steps", NodeValue::Number((micro_batches / devices).to_string()));
    let [beta1, beta2] = [experiment.optimizer.beta1, experiment.optimizer.beta2];
    put(&mut root, "optim.beta1", NodeValue::Number(beta1.to_string()));
    put(&mut root, "optim.beta2", NodeValue::Number(beta2.to_string()));
    put(&mut root, "data.n_views", NodeValue::Number("2".to_owned()));
    put(&mut root, "distributed.tp_size", NodeValue::Number("1".to_owned()));
    put(&mut root, "distributed.dp_shard", NodeValue::Number(devices.to_string()));
    put(&mut root, "distributed.dp_replicate", NodeValue::Number("1".to_owned()));
    let tokenizer = experiment.value("data.tokenizer").map(FieldValue::plain).unwrap_or_default();
    match TOKENIZERS.iter().find(|(_, ours, _)| *ours == tokenizer) {
        Some((name, _, _)) => {
            put(&mut root, "data.tokenizer.name", NodeValue::Text((*name).to_owned()))
        }
        None => {
            return Err(inexpressible(
                experiment,
                "data.tokenizer",
                "Lingua has bytes, sp and tiktoken",
            ));
        }
    }
    put(&mut root, "data.sources", weighted(experiment)?);
    put(&mut root, "eval.harness.tasks", task_list(experiment));
    Ok((root, devices))
}

fn theirs(experiment: &Experiment, pair: &Pair, value: &FieldValue) -> Result<NodeValue, Problem> {
    let text = value.to_string();
    Ok(match pair.form {
        Form::Words(words) => match words.iter().find(|(_, ours)| same(ours, &text)) {
            Some(("true", _)) => NodeValue::Bool(true),
            Some(("false", _)) => NodeValue::Bool(false),
            Some((theirs, _)) => NodeValue::Text((*theirs).to_owned()),
            None => return Err(inexpressible(experiment, pair.ours, "Lingua cannot express it")),
        },
        Form::IntOr(word) if value.plain() == word => NodeValue::Null,
        Form::Real if value.plain() == "none" => NodeValue::Number("0".to_owned()),
        Form::Int | Form::Real | Form::IntOr(_) => NodeValue::Number(text),
        Form::Bool => NodeValue::Bool(text == "true"),
        Form::Text => NodeValue::Text(value.plain()),
    })
}

/// Whether two texts, or two numbers, are equal.
fn same(a: &str, b: &str) -> bool {
    a == b || matches!((Decimal::parse(a), Decimal::parse(b)), (Ok(a), Ok(b)) if a == b)
}

/// Names of sources with their weights.
fn weighted(experiment: &Experiment) -> Result<NodeValue, Problem> {
    let name = experiment.value("data.source").map(FieldValue::plain).unwrap_or_default();
    if name == UNNAMED {
        return Ok(NodeValue::Map(Vec::new()));
    }
    let weights = match experiment.value("data.weights") {
        Some(FieldValue::List(weights)) => weights.iter().map(FieldValue::to_string).collect(),
        Some(_) | None => Vec::new(),
    };
    let names: Vec<&str> = if weights.is_empty() { vec![&name] } else { name.split('+').collect() };
    if !weights.is_empty() && weights.len() != names.len() {
        let reason = format!("`{name}` names {} of its sources", names.len());
        return Err(inexpressible(experiment, "data.weights", &reason));
    }
    let weights = weights.into_iter().chain(std::iter::repeat("1.0".to_owned()));
    let entries = names.iter().zip(weights);
    Ok(NodeValue::Map(
        entries.map(|(name, w)| ((*name).to_owned(), node(NodeValue::Number(w)))).collect(),
    ))
}

/// The evaluations; three of them have more than a name in the release.
fn task_list(experiment: &Experiment) -> NodeValue {
    let names = match experiment.value("lingua.harness_tasks") {
        Some(FieldValue::List(names)) => names.iter().map(FieldValue::plain).collect(),
        Some(_) | None => Vec::new(),
    };
    let entry = |name: String| {
        let Some((_, more)) = TASKS.iter().find(|(task, _)| *task == name) else {
            return node(NodeValue::Text(name));
        };
        let mut entry = vec![("task".to_owned(), node(NodeValue::Text(name)))];
        for (key, value) in *more {
            let value = if *value == "true" { NodeValue::Bool(true) } else { accuracy() };
            put(&mut entry, key, value);
        }
        node(NodeValue::Map(entry))
    };
    NodeValue::List(names.into_iter().map(entry).collect())
}

/// `metric_list` of lambada_openai.
fn accuracy() -> NodeValue {
    let text = |text: &str| node(NodeValue::Text(text.to_owned()));
    let metric = vec![
        ("metric".to_owned(), text("acc")),
        ("aggregation".to_owned(), text("mean")),
        ("higher_is_better".to_owned(), node(NodeValue::Bool(true))),
    ];
    NodeValue::List(vec![node(NodeValue::Map(metric))])
}
