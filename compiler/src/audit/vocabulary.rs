//! The one language that rules speak: what foreign keys are called here, and what each decides.
//!
//! In: a key as a Lingua file, a table's column or a lock writes it. Out: our key, its class, and what
//! an absent key means. Must stay true: the table is the documentation (recipes/AUDIT.md is held to
//! it by a test); a key that is not in it is taken to decide the result, never dropped.

/// What a key decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// The function, the loss, the update.
    Training,
    /// Which tokens are seen, in which order.
    Data,
    /// How many, in which portions.
    Budget,
    /// How wide numbers are.
    Numerics,
    /// Which code computes what is the same mathematics.
    Kernel,
    /// Which revision of the code was run.
    Revision,
    /// What is measured.
    Evaluation,
    /// How often something is written or measured.
    Cadence,
    /// Where things lie and what is printed.
    Setup,
    /// A number that follows from others, as the file's author gave it.
    Reported,
}

impl Class {
    pub fn word(self) -> &'static str {
        match self {
            Class::Training => "training",
            Class::Data => "data",
            Class::Budget => "budget",
            Class::Numerics => "numerics",
            Class::Kernel => "kernel",
            Class::Revision => "revision",
            Class::Evaluation => "evaluation",
            Class::Cadence => "cadence",
            Class::Setup => "setup",
            Class::Reported => "reported",
        }
    }

    /// Whether a difference can reach a loss or a weight.
    pub fn decides(self) -> bool {
        match self {
            Class::Training | Class::Data | Class::Budget | Class::Numerics | Class::Kernel => true,
            Class::Revision
            | Class::Evaluation
            | Class::Cadence
            | Class::Setup
            | Class::Reported => false,
        }
    }
}

/// What it means that a key is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// Nothing is known.
    Unknown,
    /// This value.
    Is(&'static str),
    /// What another key says.
    As(&'static str),
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    pub path: &'static str,
    pub class: Class,
    pub absent: Absent,
    /// Words with commas between, in any order.
    pub words: bool,
    /// What others call it.
    pub foreign: &'static [&'static str],
}

const fn key(
    path: &'static str,
    class: Class,
    absent: Absent,
    foreign: &'static [&'static str],
) -> Key {
    Key { path, class, absent, words: false, foreign }
}

const fn words(path: &'static str, class: Class, foreign: &'static [&'static str]) -> Key {
    Key { path, class, absent: Absent::Unknown, words: true, foreign }
}

use Absent::{As, Is, Unknown};
use Class::{
    Budget, Cadence, Data, Evaluation, Kernel, Numerics, Reported, Revision, Setup, Training,
};

/// The slots that Canon layers fill, as letters; empty for none.
pub const CANON: &str = "arch.canon";

/// Sorted by path. `model.canon_set` is two keys here: its capital letters are `arch.canon`, its `b`
/// is `arch.mixer.short_conv`.
#[rustfmt::skip]
pub const TABLE: &[Key] = &[
    key(CANON, Training, Is(""), &[]),
    key("arch.dim", Training, Unknown, &["model.dim"]),
    key("arch.layers", Training, Unknown, &["model.n_layers"]),
    key("arch.mixer", Training, Is("attention"), &["model.model_name"]),
    key("arch.mixer.head_dim", Training, Unknown, &["model.head_dim"]),
    key("arch.mixer.heads", Training, Unknown, &["model.n_heads"]),
    key("arch.mixer.kv_heads", Training, As("arch.mixer.heads"), &["model.n_kv_heads"]),
    key("arch.mixer.qk_norm", Training, Is("false"), &["model.qk_norm"]),
    key("arch.mixer.rope.dims", Training, As("arch.mixer.head_dim"), &["model.rope_dim"]),
    key("arch.mixer.rope.theta", Training, Is("10000"), &["model.rope_theta"]),
    key("arch.mixer.short_conv", Training, Is("false"), &[]),
    key("arch.mixer.state", Training, Unknown, &["model.mamba_ssm"]),
    key("arch.mlp", Training, Is("swiglu"), &["model.mlp_type"]),
    key("arch.mlp.hidden", Training, Unknown, &["model.hidden_dim"]),
    key("arch.mlp.multiple_of", Training, Is("256"), &["model.multiple_of"]),
    key("arch.mlp.multiplier", Training, Is("1"), &["model.ffn_dim_multiplier"]),
    key("batch.accumulation", Budget, Is("1"), &["grad_acc_steps"]),
    key("batch.micro_batches", Budget, Unknown, &[]),
    key("batch.sequences", Budget, Unknown, &["data.batch_size"]),
    key("batch.tokens_per_step", Budget, Unknown, &[]),
    key("budget.steps", Budget, Unknown, &["steps"]),
    key("budget.tokens", Budget, Unknown, &[]),
    key("checkpoint.every", Cadence, Unknown, &["checkpoint.dump.every"]),
    key("checkpoint.keep", Cadence, Unknown, &["checkpoint.dump.keep"]),
    key("data.add_bos", Data, Is("true"), &[]),
    key("data.add_eos", Data, Is("true"), &[]),
    key("data.seq_len", Data, Unknown, &[]),
    key("data.source", Data, Unknown, &["data_source", "data.sources"]),
    key("data.tokenizer", Data, Unknown, &["data.tokenizer.name"]),
    key("evaluation.every", Cadence, Unknown, &["checkpoint.eval.every"]),
    words("evaluation.metrics", Evaluation, &[]),
    key("evaluation.validation", Evaluation, Unknown, &["eval.validation"]),
    key("lingua.async_eval_gpus", Setup, Unknown, &["async_eval_gpus"]),
    key("lingua.compile", Kernel, Is("false"), &["distributed.compile"]),
    key("lingua.eval_keep", Cadence, Unknown, &["checkpoint.eval.keep"]),
    key("lingua.fsdp_type", Setup, Unknown, &["distributed.fsdp_type"]),
    key("lingua.generator_dtype", Evaluation, Unknown, &["eval.generator.dtype"]),
    key("lingua.generator_max_tokens", Evaluation, Unknown, &["eval.generator.max_tokens"]),
    words("lingua.harness_tasks", Evaluation, &["eval.harness.tasks"]),
    key("lingua.load_async", Setup, Is("true"), &["data.load_async"]),
    key("lingua.log_samples", Setup, Is("false"), &["eval.harness.log_samples"]),
    key("lingua.matmul_allow_tf32", Numerics, Is("false"), &["distributed.matmul_allow_tf32"]),
    key("lingua.n_views", Data, Is("2"), &["data.n_views"]),
    key("lingua.prefetch_size", Data, Unknown, &["data.prefetch_size"]),
    key("lingua.probe_freq", Cadence, Unknown, &["probe_freq"]),
    key("lingua.profiling", Setup, Is("false"), &["profiling.run"]),
    key("lingua.read_s3", Setup, Is("false"), &["checkpoint.read_s3"]),
    key("lingua.root_dir", Setup, Unknown, &["data.root_dir"]),
    key("lingua.save_consolidated_to_local", Setup, Unknown, &["eval.save_consolidated_to_local"]),
    key("lingua.save_s3", Setup, Is("false"), &["eval.save_s3"]),
    key("lingua.seed", Data, Unknown, &["seed"]),
    key("lingua.show_progress", Setup, Unknown, &["eval.generator.show_progress"]),
    key("lingua.tokenizer_path", Data, Unknown, &["data.tokenizer.path"]),
    key("lingua.tp_size", Kernel, Is("1"), &["distributed.tp_size"]),
    key("log.every", Cadence, Unknown, &["logging.freq"]),
    key("loss.nll_square", Training, Is("false"), &["model.z_loss"]),
    key("optimizer.beta1", Training, Is("0.9"), &["optim.beta1"]),
    key("optimizer.beta2", Training, Is("0.95"), &["optim.beta2"]),
    key("optimizer.clip", Training, Unknown, &["optim.clip"]),
    key("optimizer.eps", Training, Is("1e-8"), &["optim.epsilon"]),
    key("optimizer.lr", Training, Unknown, &["optim.lr"]),
    key("optimizer.weight_decay", Training, Unknown, &["optim.weight_decay"]),
    key("platform.devices", Budget, Unknown, &["gpus", "gpus_from_comment"]),
    key("platform.kernels.gated_norm", Kernel, Is("fused"), &["model.zeyuan_layernorm"]),
    key("platform.recompute", Kernel, Is("nothing"), &["distributed.selective_activation_checkpointing"]),
    key("precision.policy", Numerics, Unknown, &["distributed.model_dtype"]),
    key("reported.lr_wd_steps", Reported, Unknown, &["lr_x_wd_x_steps"]),
    key("reported.rope_share", Reported, Unknown, &["rope_fraction"]),
    key("reported.tokens", Reported, Unknown, &["tokens_total"]),
    key("reported.tokens_per_step", Reported, Unknown, &["tokens_per_step"]),
    key("reported.warmup_share", Reported, Unknown, &["warmup_frac"]),
    key("revision.dump_keys", Revision, Unknown, &["lingua_json_nkeys"]),
    key("schedule.kind", Training, Is("cosine"), &["optim.scheduler"]),
    key("schedule.lr_min_ratio", Training, Unknown, &["optim.lr_min_ratio"]),
    key("schedule.warmup", Training, Unknown, &["optim.warmup"]),
    key("seeds.data", Data, Unknown, &["data.seed"]),
    key("seeds.eval", Evaluation, Unknown, &[]),
    key("seeds.init", Training, Unknown, &["model.seed"]),
];

/// Columns of published tables, and keys of Lingua, that repeat a name or a key.
pub const LABELS: &[&str] = &[
    "dump_dir",
    "name",
    "canon",
    "checkpoint_every_tokens_B",
    "claim_ok",
    "eval_every_tokens_B",
    "family",
    "head_dim_derived",
    "hf_json_nkeys",
    "lingua_json_has_zeyuan_layernorm_key",
    "lr_claim",
    "lr_matches_name",
    "lr_x_wd",
    "n_evals",
    "seqs_per_step",
    "size",
    "tokens_claim",
    "tokens_total_T",
    "warmup_tokens_B",
];

/// Values that others write in their own words: key, theirs, ours.
pub(super) const SYNONYMS: &[(&str, &str, &str)] = &[
    ("arch.mixer", "GDN2", "gated_deltanet"),
    ("arch.mixer", "GLA5", "gla"),
    ("arch.mixer", "Mamba2", "mamba2"),
    ("platform.kernels.gated_norm", "false", "fused"),
    ("platform.kernels.gated_norm", "true", "reference"),
    ("platform.recompute", "false", "nothing"),
    ("platform.recompute", "true", "layers"),
];

/// A key of the table, by our name.
pub fn find(path: &str) -> Option<&'static Key> {
    TABLE.iter().find(|key| key.path == path)
}

/// A key by anyone's name.
pub fn known(name: &str) -> Option<&'static Key> {
    TABLE.iter().find(|key| key.path == name || key.foreign.contains(&name))
}

/// Keys of the table that hold a number.
const NUMBERS: &[&str] = &[
    "arch.dim",
    "arch.layers",
    "arch.mixer.head_dim",
    "arch.mixer.heads",
    "arch.mixer.kv_heads",
    "arch.mixer.rope.dims",
    "arch.mixer.rope.theta",
    "arch.mlp.hidden",
    "arch.mlp.multiple_of",
    "arch.mlp.multiplier",
    "batch.accumulation",
    "batch.micro_batches",
    "batch.sequences",
    "batch.tokens_per_step",
    "budget.steps",
    "budget.tokens",
    "checkpoint.every",
    "checkpoint.keep",
    "data.seq_len",
    "evaluation.every",
    "lingua.async_eval_gpus",
    "lingua.eval_keep",
    "lingua.generator_max_tokens",
    "lingua.n_views",
    "lingua.prefetch_size",
    "lingua.probe_freq",
    "lingua.seed",
    "lingua.tp_size",
    "log.every",
    "optimizer.beta1",
    "optimizer.beta2",
    "optimizer.clip",
    "optimizer.eps",
    "optimizer.lr",
    "optimizer.weight_decay",
    "platform.devices",
    "reported.lr_wd_steps",
    "reported.rope_share",
    "reported.tokens",
    "reported.tokens_per_step",
    "reported.warmup_share",
    "revision.dump_keys",
    "schedule.lr_min_ratio",
    "schedule.warmup",
    "seeds.data",
    "seeds.eval",
    "seeds.init",
];

/// Whether a key may be on or off.
pub(super) fn is_switch(path: &str) -> bool {
    find(path).is_some_and(|key| matches!(key.absent, Is("true" | "false")))
}

/// Whether a key holds a number, and the word that it may hold instead.
pub(super) fn numeric(path: &str) -> Option<Option<&'static str>> {
    use crate::field::Kind;
    let kernel = path.strip_prefix(CANON).is_some_and(|rest| rest.starts_with(".kernel"));
    let listed = kernel || NUMBERS.contains(&path);
    match crate::field::find(path).map(|field| field.kind) {
        Some(Kind::IntOr(_, _, word) | Kind::RealOr(_, word)) => Some(Some(word)),
        Some(Kind::Int(..) | Kind::Real(_)) => Some(None),
        Some(_) | None => listed.then_some(None),
    }
}

/// What a key decides; one that nobody knows is taken to decide.
pub fn class(path: &str) -> Class {
    if let Some(key) = find(path) {
        return key.class;
    }
    if let Some(field) = crate::field::find(path) {
        use crate::field::Class as Field;
        return match field.class {
            Field::Platform => Kernel,
            Field::Measured => Evaluation,
            Field::Cosmetic => Cadence,
            Field::Semantic if path.starts_with("data.") => Data,
            Field::Semantic => Training,
        };
    }
    if path.starts_with("data.") { Data } else { Training }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_says_each_name_once() {
        let mut names = std::collections::BTreeSet::new();
        for pair in TABLE.windows(2) {
            assert!(pair[0].path < pair[1].path, "{}", pair[1].path);
        }
        for key in TABLE {
            for name in key.foreign.iter().chain([&key.path]) {
                assert!(names.insert(*name), "{name} twice");
            }
            if let Absent::As(other) = key.absent {
                assert!(find(other).is_some(), "{other}");
            }
        }
        for path in NUMBERS {
            assert!(find(path).is_some(), "{path}");
        }
        for label in LABELS {
            assert!(names.insert(label), "{label} twice");
        }
    }
}
