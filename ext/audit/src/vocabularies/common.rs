//! Words that mean the same in every trainer's files and tables: records of a run, measurements, names.

/// Columns of a table that record when, where and by whom a run was made, or what came of it.
#[rustfmt::skip]
const RECORDS: &[&str] = &[
    "_runtime", "_timestamp", "commit_message", "created", "created_at", "date", "display_name", "duration",
    "elapsed", "end_time", "ended_at", "exit_code", "experiment_id", "finished", "finished_at",
    "gpu_days", "gpu_hours", "heartbeat", "hours", "id", "max_memory_allocated", "job_id", "link", "relative_time__process_", "relative_time__wall_", "mfu", "peak_memory", "peak_memory_gb", "report_url",
    "run_id", "runtime", "samples_per_second", "slurm_job_id", "start_time", "started", "started_at", "steps_per_second",
    "peak_mem_gb", "peak_memory_mib", "throughput", "timestamp", "tok_per_s", "tokens_per_s", "tokens_per_sec", "tokens_per_second", "total_flos", "train_runtime",
    "train_samples_per_second", "train_steps_per_second", "train_tokens_per_second", "trial_id", "updated", "updated_at", "url", "uuid", "wall_clock",
    "wall_time", "walltime", "wandb_id", "wandb_url", "eval_runtime", "eval_samples_per_second", "eval_steps_per_second",
];

/// The same, if the column holds words: a number under such a name may be a setting.
#[rustfmt::skip]
const RECORDS_IN_WORDS: &[&str] = &[
    "author", "cluster", "comment", "comments", "created_by", "creator", "description", "entity", "experiment",
    "experiment_name", "github", "group", "host", "hostname", "job_name", "job_type", "log_dir", "machine", "node_name", "note", "notes", "out_dir",
    "output_dir", "owner", "project", "run", "run_name", "state", "status", "submitted_by", "sweep", "sweep_name", "tag", "tags", "user",
    "username", "wandb_project", "wandb_run_name",
];

/// Records in a section of a chart, such as `train/grad_norm`: alone, such a name is a setting.
const CHARTED: &[&str] = &["grad_norm", "learning_rate", "lr"];

/// How far a run went, in a table: a difference is one of budgets.
pub(crate) const REACHED: &[&str] = &["_step", "epoch", "global_step", "last_step", "step"];

/// States of a run that did not reach its end.
pub(crate) const UNFINISHED: &[&str] =
    &["aborted", "cancelled", "crashed", "failed", "killed", "preempted", "running", "timeout"];

/// Words anywhere in a key that holds the name of a version.
pub(crate) const VERSIONS: &[&str] = &["commit", "hash", "revision", "sha", "version", "versions"];

/// Last words of a key that holds the name of something.
#[rustfmt::skip]
pub(crate) const NAMES: &[&str] = &[
    "branch", "container", "corpus", "cuda", "cudnn", "dataset", "datasets", "driver", "image", "jax", "name", "nccl", "path",
    "python", "pytorch", "ref", "release", "tag", "tokenizer", "torch", "transformers", "triton",
];

/// Names and notes that no trainer reads, in a file of any trainer.
pub(crate) const HARMLESS: &[(&str, &str)] = &[
    ("description", "a note to people"),
    ("exp_name", "a name for people"),
    ("hydra.job.name", "a name for people"),
    ("hydra.run.dir", "a folder to write to"),
    ("hydra.sweep.dir", "a folder to write to"),
    ("hydra.sweep.subdir", "a folder to write to"),
    ("hydra.verbose", "says what is logged"),
    ("experiment_name", "a name for people"),
    ("log_dir", "a folder to write to"),
    ("name", "a name for people"),
    ("notes", "a note to people"),
    ("project_name", "a name for people"),
    ("run_name", "a name for people"),
    ("tags", "a note to people"),
    ("wandb.*", "says what is reported to W&B"),
    ("wandb_*", "says what is reported to W&B"),
];

/// Names for the number of parameters.
pub(crate) const MODEL_SIZE: &[&str] = &[
    "model_params",
    "n_parameters",
    "n_params",
    "num_parameters",
    "num_params",
    "parameters",
    "params",
    "total_params",
];

/// Words for a measurement.
#[rustfmt::skip]
const METRICS: &[&str] = &[
    "acc", "accuracy", "auc", "bleu", "bpb", "bpc", "bpt", "cer", "em", "error", "f1", "loss", "losses", "mae", "mse", "nll", "pass", "perplexity", "ppl",
    "rmse", "rouge", "rouge1", "rouge2", "rougel", "score", "scores", "wer",
];

/// Words for a benchmark.
#[rustfmt::skip]
const BENCHMARKS: &[&str] = &[
    "agieval", "arc", "arcc", "arce", "bbh", "blimp", "boolq", "ceval", "cmmlu", "commonsenseqa", "copa", "csqa", "gpqa", "gsm8k",
    "hellaswag", "humaneval", "ifeval", "lambada", "mbpp", "mmlu", "obqa", "openbookqa", "piqa", "sciq", "siqa", "squad",
    "triviaqa", "truthfulqa", "wikitext", "winogrande",
];

/// Words that say which measurement.
#[rustfmt::skip]
const QUALIFIERS: &[&str] = &[
    "0shot", "5shot", "at", "avg", "average", "best", "ce", "challenge", "char", "chars", "cross", "dev", "easy", "ema", "end", "entropy", "eval", "evaluation", "exact", "final",
    "hard", "heldout", "humanities", "in", "l", "last", "lm", "main", "match", "max", "mean", "median", "min", "none", "norm", "openai", "other", "out", "plus", "pro", "result", "sciences", "shot", "smoothed", "social", "std", "stderr", "stem", "test", "token", "top1",
    "top5", "train", "training", "val", "valid", "validation", "word",
];

/// Words that begin the name of a measurement, whatever follows.
const MEASURED: &[&str] =
    &["best", "dev", "eval", "evaluation", "final", "test", "train", "val", "valid", "validation"];

/// Words of a setting: `loss_weight`, `score_func`, `eval_every`.
#[rustfmt::skip]
const SETTINGS: &[&str] = &[
    "accum", "accumulation", "alpha", "aux", "auxiliary", "balance", "balancing", "batch", "beta", "chunk", "chunks", "coef", "coeff", "coefficient",
    "decay", "delay", "dim", "dropout", "every", "factor", "fn", "freq", "frequency", "func", "function", "gamma", "grad", "gradient",
    "heads", "interval", "iters", "kind", "lambda", "layers", "len", "length", "limit", "lr", "margin", "micro", "mode", "num", "parallel", "patience",
    "penalty", "per", "rate", "ratio", "reduction", "router", "samples", "scale", "scaling", "seed", "size", "smoothing", "split", "steps", "target", "tasks", "tau",
    "temperature", "threshold", "tokens", "tolerance", "type", "warmup", "wd", "weight", "weights", "workers", "z",
];

/// A column's name in small letters with `_` between words.
pub(crate) fn lower(key: &str) -> String {
    let key = key.trim().to_lowercase().replace("bits_per_byte", "bpb");
    key.replace(|c: char| !c.is_alphanumeric(), "_")
}

/// The last part of a key: `total_flos` of `train/total_flos`.
pub(crate) fn leaf(key: &str) -> &str {
    key.rsplit(['/', '.']).next().unwrap_or(key)
}

/// Whether a column records something about a run, rather than a setting of it.
pub(crate) fn is_record(key: &str, numeric: bool) -> bool {
    let (whole, part) = (lower(key), lower(leaf(key)));
    let known = |list: &[&str]| list.contains(&whole.as_str());
    known(RECORDS)
        || (key.contains('/')
            && [RECORDS, CHARTED].iter().any(|list| list.contains(&part.as_str())))
        || (!numeric && known(RECORDS_IN_WORDS))
        || key.starts_with("_wandb")
        || key.starts_with("system/")
}

/// Whether a key is named like a measurement. Its values have to be numbers, too. The sections of a configuration hold
/// settings, such as `train.loss.kd`.
pub(crate) fn is_metric(key: &str, in_table: bool) -> bool {
    if !in_table && key.contains('.') {
        return false;
    }
    let lower = lower(key);
    let words: Vec<&str> = lower.split('_').filter(|word| !word.is_empty()).collect();
    let is_in = |list: &[&str], word: &str| list.contains(&word);
    let Some(first) = words.first() else { return false };
    // `eval_loss__MIN` of a chart, `mmlu_5_shot`.
    let number = |word: &str| word.chars().all(|c| c.is_ascii_digit());
    let setting = words.iter().any(|word| is_in(SETTINGS, word));
    let metric = words.iter().any(|word| is_in(METRICS, word));
    let qualified = words.iter().all(|word| {
        is_in(METRICS, word) || is_in(QUALIFIERS, word) || is_in(BENCHMARKS, word) || number(word)
    });
    // A mean over benchmarks.
    if let ([only], true) = (words.as_slice(), in_table)
        && ["average", "avg", "mean"].contains(only)
    {
        return true;
    }
    if setting || (words.len() == 1 && is_in(QUALIFIERS, first)) {
        return false;
    }
    let benchmark = words.iter().any(|word| is_in(BENCHMARKS, word));
    let of_run = in_table && (is_in(MEASURED, first) || is_in(BENCHMARKS, first));
    (metric && (qualified || of_run)) || (benchmark && qualified)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEASUREMENTS: &[&str] = &[
        "loss",
        "eval_loss",
        "final_loss",
        "val_loss",
        "train/loss",
        "ppl",
        "mmlu",
        "accuracy",
        "hellaswag/acc",
        "arc_easy",
        "val/c4_loss",
        "best val loss",
        "eval/perplexity",
        "test_acc",
        "lambada_openai/acc",
        "score",
        "arc_challenge/acc_norm",
        "bpb",
        "eval.loss",
        "gsm8k_exact_match",
        "mmlu_stem",
        "hellaswag/acc_of_ours",
        "bits_per_byte",
        "Avg.",
        "loss (mean)",
        "accuracy (%)",
        "Rouge-L",
        "pass@1",
        "lm_eval/hellaswag/acc_norm,none",
    ];

    const SETTINGS_LIKE_MEASUREMENTS: &[&str] = &[
        "z_loss",
        "aux_loss",
        "loss_weight",
        "label_smoothing",
        "grad_acc_steps",
        "score_func",
        "loss_scale",
        "kl_loss",
        "target_loss",
        "loss_type",
        "eval_every",
        "train_iters",
        "val",
        "test",
        "max",
        "eval_batch_size",
        "router_aux_loss_coef",
        "train/lr",
        "train_tokens",
        "moe_z_loss",
        "loss_chunks",
        "em_steps",
        "lr",
        "val_set_size",
        "eval_tasks",
        "wikitext_share",
        "gsm8k_fraction",
        "squad_upsampling",
    ];

    #[test]
    fn measurements_are_told_from_settings() {
        for key in MEASUREMENTS {
            assert!(is_metric(key, true), "{key}");
        }
        for key in SETTINGS_LIKE_MEASUREMENTS {
            assert!(!is_metric(key, true), "{key}");
        }
        for (key, result) in [("loss", true), ("final_loss", true), ("train.loss.kd", false)] {
            assert_eq!(is_metric(key, false), result, "{key} in a configuration");
        }
    }

    #[test]
    fn records_are_told_from_settings() {
        for key in [
            "State",
            "Runtime",
            "Created",
            "User",
            "Notes",
            "Tags",
            "url",
            "GPU hours",
            "host",
            "out_dir",
            "group",
        ] {
            assert!(is_record(key, false), "{key}");
        }
        for key in ["gpu_hours", "id", "date", "Runtime", "tokens_per_second", "perf/mfu"] {
            assert!(is_record(key, true), "{key}");
        }
        for key in ["train/total_flos", "train/grad_norm", "train/learning_rate"] {
            assert!(is_record(key, true), "{key}");
            assert_eq!(is_record(leaf(key), true), key.ends_with("flos"), "{key}");
        }
        for key in [
            "group", "tag", "dump_dir", "snapshot", "data_url", "steps", "epochs", "epoch", "_step",
        ] {
            assert!(!is_record(key, true), "{key}");
        }
    }
}
