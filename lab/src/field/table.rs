//! The rows of the field table, sorted by path, and the word lists that they use. A row newer than the first locks gives
//! its neutral value, which leaves the meaning of older locks unchanged.

use std::sync::LazyLock;

use tasks::DEFINITIONS;
use tasks::metric::{self, EVAL_LOSS, EXACT_MATCH, TOKEN_ACCURACY};
use tasks::parameter::{Default, Parameter, Values};
use tasks::task::{self, names_where};

use super::{Bounds, FieldDef, derived, free};

const COUNT: i64 = 1_000_000_000_000;
pub(super) const TASK: &str = "data.task";
const KIND: &str = "schedule.kind";
const OPTIMIZER: &str = "optimizer.kind";
const MUON: &[&str] = &["muon"];
const TOKENIZER: &str = "data.tokenizer";
const WEIGHTS: &str = "init.weights";
/// Tokenizers that are stored in a file.
const TRAINED: &[&str] = &["huggingface", "sentencepiece", "tiktoken"];
/// The tasks of the release's evaluations.
const HARNESS: &str = "[\"hellaswag\", \"boolq\", \"piqa\", \"social_iqa\", \"winogrande\", \"openbookqa\", \"arc_easy\", \"arc_challenge\", \"race\", \"commonsense_qa\", \"copa\", \"lambada_openai\", \"triviaqa\"]";
/// The metrics of text that is trained on.
pub(crate) const TEXT_METRICS: &[&str] = &[EVAL_LOSS, EXACT_MATCH, TOKEN_ACCURACY];
/// Text has no answers.
pub(super) const USUAL_TEXT_METRICS: &[&str] = &[EVAL_LOSS, TOKEN_ACCURACY];
pub(super) const TEXT: &[&str] = &["text"];
const WARMED: &[&str] = &["cosine", "inv_sqrt", "linear", "wsd"];

use super::Class::{Carried, Cosmetic, Measured, Platform, Semantic};
use super::Kind::{
    Bool, Digest, Int, IntOr, Ints, Letters, Multipliers, Name, Names, Pair, Patterns, Real,
    RealOr, Seed, Tasks, Word, Words,
};
use super::Topic::{Budget, Cadence, Data, Evaluation, Kernel, Numerics, Setup};

/// Words of a row, which live as long as the table.
type WordList = &'static [&'static str];

/// Tasks with a generator.
static SYNTHETIC: LazyLock<Vec<&str>> = LazyLock::new(task::names);
/// What a recipe can train on.
static DATA_TASKS: LazyLock<Vec<&str>> = LazyLock::new(|| [SYNTHETIC.as_slice(), TEXT].concat());
/// Tasks with a largest sample size.
static SIZED: LazyLock<Vec<&str>> = LazyLock::new(|| names_where(|task| task.sized));
/// Tasks with metrics that score generated text.
static WRITTEN: LazyLock<Vec<&str>> =
    LazyLock::new(|| names_where(|task| !task.written.is_empty()));
/// Data with tokens that are text.
static TEXTUAL: LazyLock<Vec<&str>> =
    LazyLock::new(|| [names_where(|task| task.is_text).as_slice(), TEXT].concat());

/// Every field, by path: the rows below, and the parameters of each task.
pub static TABLE: LazyLock<Vec<FieldDef>> = LazyLock::new(|| {
    let parameters = DEFINITIONS.into_iter().flat_map(|task| {
        let only: WordList = std::slice::from_ref(&task.name);
        task.in_recipes().into_iter().filter_map(move |parameter| of_task(parameter, only))
    });
    let mut rows: Vec<FieldDef> = ROWS.iter().copied().chain(parameters).collect();
    rows.sort_by_key(|def| def.path);
    rows
});

/// The row of a task's parameter; `None` if recipes cannot write such values.
fn of_task(parameter: &Parameter, task: WordList) -> Option<FieldDef> {
    let kind = match parameter.values {
        Values::Int(least, most) => Int(least, most),
        Values::Seed => Int(0, i64::MAX),
        Values::Bool => Bool,
        Values::Word(words) => Word(sorted(words), &[]),
        Values::Name(names) => Word(names, &[]),
        Values::Letters(letters) => Letters(letters),
        Values::Ints(least, most) => Ints(least, most),
        Values::Texts | Values::Object(_) => return None,
    };
    let row = free(parameter.path, Semantic, kind, parameter.doc);
    let default = match parameter.default {
        Default::Required | Default::RequiredInRecipes | Default::Nothing => {
            super::Default::Required
        }
        Default::Is(value) => super::Default::Is(value),
        Default::UpTo(path) => super::Default::UpTo(path),
        Default::SameAs(path) => super::Default::SameAs(path),
    };
    Some(FieldDef { default, ..row.only(TASK, task).also(parameter.also) })
}

/// The words in the order of help texts. The table keeps them for as long as the program runs.
fn sorted(words: WordList) -> WordList {
    let mut words = words.to_vec();
    words.sort_unstable();
    words.leak()
}

/// The default of `data.loss_on` in words.
static LOSS_ON: LazyLock<String> = LazyLock::new(|| {
    let labelled = names_where(|task| task.labels).join(" and ");
    format!("`\"answer\"` for {labelled}, else `\"all\"`")
});

/// Every field that is not a parameter of a task, by path.
#[rustfmt::skip]
static ROWS: LazyLock<Vec<FieldDef>> = LazyLock::new(|| vec![
    derived("arch.canon_parameters", Cosmetic, "", "Parameters in the fills of slots."),
    derived("arch.flops_per_token", Cosmetic, "FLOP", "Forward, at arch.seq_len; a multiply-add counts two."),
    derived("arch.graph", Semantic, "", "Structural hash of the compute graph."),
    derived("arch.manifest", Semantic, "", "Digest of every parameter's path (which is also its init key), shape and init rule."),
    derived("arch.non_embedding", Cosmetic, "", "Parameters except the token table and the output projection."),
    derived("arch.optimizer_bytes", Cosmetic, "bytes", "Parameters, gradients and the moments of the optimizer in f32."),
    derived("arch.parameters", Cosmetic, "", "All parameters."),
    derived("arch.saved_per_token", Cosmetic, "elements", "Activations kept for the backward pass, without recomputation."),
    derived("arch.seq_len", Cosmetic, "tokens", "The sequence length at which costs are counted."),
    derived("arch.short_conv", Cosmetic, "", "Parameters in the mixers' own short convolutions."),
    derived("arch.state", Cosmetic, "elements", "Recurrent state of one sequence after arch.seq_len tokens."),
    derived("arch.state_per_token", Cosmetic, "elements", "Bytes of that state added by the last token."),
    derived("arch.train_flops_per_token", Cosmetic, "FLOP", "Forward and backward."),
    free("batch.in_sequence", Semantic, Int(1, 1 << 20), "Neighbouring micro-batches that are added in sequence before the tree; more of them need less memory for sums that wait.").is("1").younger("1"),
    free("batch.micro_batches", Semantic, Int(1, 1 << 20), "Micro-batches of one step, summed by a fixed tree.").is("1").also(&["grad_acc_steps", "accumulate"]),
    free("batch.sequences", Semantic, Int(1, 1 << 20), "Sequences of one micro-batch.").also(&["batch_size", "size"]).called(&["data.batch_size"]).default_there("2"),
    derived("batch.tokens_per_step", Cosmetic, "tokens", "sequences x micro_batches x seq_len.").instead(Int(1, i64::MAX), "batch.micro_batches").about(Budget),
    derived("budget.flops", Cosmetic, "FLOP", "FLOPs of the whole training, forward and backward."),
    free("budget.steps", Semantic, Int(1, COUNT), "Optimiser steps.").decides().also(&["max_steps", "iterations"]).called(&["steps"]).default_there("1000"),
    free("budget.tokens", Semantic, Int(1, i64::MAX), "Tokens of the whole training, a multiple of the tokens of a step.").decides().unit("tokens"),
    free("checkpoint.every", Cosmetic, Int(0, COUNT), "Steps between checkpoints; 0 for the last step only.").is("100").unit("steps").about(Cadence).called(&["checkpoint.dump.every"]).default_there("1000"),
    free("checkpoint.keep", Cosmetic, Int(2, 10_000), "Verified checkpoints that are kept.").is("2").about(Cadence).called(&["checkpoint.dump.keep"]).default_there("0"),
    free("data.add_bos", Semantic, Bool, "A token before each document.").is("true").only(TASK, TEXT).means("true"),
    free("data.add_eos", Semantic, Bool, "A token after each document.").is("true").only(TASK, TEXT).means("true"),
    free("data.digest", Semantic, Digest, "Digest of the prepared documents, written by `canonc bind`.").is("\"unbound\"").only(TASK, TEXT),
    derived("data.epochs", Cosmetic, "", "Passes over the documents; known once the data is bound."),
    free("data.held_out", Semantic, Real(Bounds::BelowOne), "Share of the documents kept for evaluation.").is("0.01").only(TASK, TEXT),
    free("data.held_out_seed", Semantic, Seed, "Seed of the choice of held-out documents.").is("0").only(TASK, TEXT),
    free("data.ids", Semantic, Word(&["dense", "published"], &[]), "Token ids: as published, or renumbered without unused ones.").is("\"published\"").only(TASK, &SYNTHETIC),
    free("data.loss_on", Semantic, Word(&["all", "answer"], &[]), "Which tokens are targets.").from(super::loss_on, &LOSS_ON),
    free("data.order", Semantic, Word(&["indexed", "published"], &[]), "Order of the data: numbered windows, or the published stream, which cannot be resharded.").is("\"indexed\"").only(TASK, &SYNTHETIC),
    free("data.seq_len", Semantic, Int(1, 1 << 24), "Input tokens of one window.").unit("tokens").also(&["context", "length"]).default_there("2048"),
    free("data.shuffle", Semantic, Word(&["buffer", "documents", "windows"], &[]), "The unit of shuffling: all windows of a pass; whole documents, so that consecutive windows come from one document; or, as in Lingua, a buffer of consecutive windows from documents in file order.").is("\"windows\"").only(TASK, TEXT).younger("\"documents\"").means("buffer"),
    free("data.shuffle_buffer", Semantic, Int(1, COUNT), "Consecutive windows that are shuffled together. Lingua shuffles the `prefetch_size` batches of one rank.").only("data.shuffle", &["buffer"]).unit("windows"),
    free("data.source", Semantic, Name, "A name for the documents. Once the data is bound, its digest identifies it instead.").only(TASK, TEXT).called(&["data_source", "data.sources"]),
    free("data.task", Semantic, Word(&DATA_TASKS, &["babilong"]), "The task to train on."),
    derived("data.task_digest", Semantic, "", "Digest of a synthetic task: name, parameters, revision of its generator."),
    free(TOKENIZER, Semantic, Word(&["bytes", "huggingface", "sentencepiece", "tiktoken"], &[]), "The tokenizer: bytes, or the format of its file.").is("\"bytes\"").only(TASK, TEXT).called(&["data.tokenizer.name"]).default_there("bytes").spoken(&[("sp", "sentencepiece")]).records_text(),
    free("data.tokenizer_digest", Semantic, Digest, "Digest of the tokenizer's file and of everything else that affects its tokens, written by `canonc bind`.").is("\"unbound\"").only(TOKENIZER, TRAINED).records_text(),
    free("data.tokenizer_vocab", Semantic, Int(1, 1 << 24), "Vocabulary size of the tokenizer, including special tokens.").only(TOKENIZER, TRAINED).also(&["vocab_size"]).records_text(),
    free("data.tokens", Cosmetic, IntOr(1, i64::MAX, "unknown"), "Training tokens of one pass, written by `canonc bind`.").is("\"unknown\"").only(TASK, TEXT),
    derived("data.vocab", Cosmetic, "tokens", "The smallest vocabulary that an arch needs for this data."),
    free("data.weights", Semantic, Ints(0, COUNT), "Share of each source among the documents that are read, regardless of their lengths. With no weights, or one, every document is read once per pass. A source with weight 0 is not trained on, but its held-out documents are still evaluated.").is("[]").only(TASK, TEXT),
    free("evaluation.every", Cosmetic, Int(0, COUNT), "Steps between evaluations; 0 for the last step only.").is("0").unit("steps").about(Cadence).called(&["checkpoint.eval.every"]).default_there("1000"),
    free("evaluation.metrics", Measured, Words(metric::NAMES), "Metrics to report.").from(super::metrics, "the metrics of the task"),
    free("evaluation.mode", Measured, Word(&["test", "train"], &[]), "Sizes of evaluated samples: always the largest, or drawn as in training.").is("\"test\"").only(TASK, &SIZED),
    free("evaluation.samples", Measured, Int(1, 1 << 20), "Samples to generate per evaluation. Brevo: answers to questions. Lano: sentences, and as many on which next-token distributions are compared.").is("64").only(TASK, &WRITTEN),
    free("evaluation.suite_data", Cosmetic, Name, "The folder with the suites' files of questions, from the recipe's folder; \"beside\" for each suite's own folder.").is("\"beside\"").only(TASK, &TEXTUAL).younger("\"beside\"").about(Setup),
    free("evaluation.suite_tasks", Measured, Tasks, "The tasks of the suites, with digests of their settings, questions and examples; written by `canonc build`.").is("[]").only(TASK, &TEXTUAL).younger("[]"),
    free("evaluation.suites", Cosmetic, Names, "Suites of evaluation tasks to run at each evaluation: TOML files, from the recipe's folder, or \"release\".").is("[]").only(TASK, &TEXTUAL).younger("[]").about(Setup),
    free("evaluation.tokenizer_file", Cosmetic, Name, "The tokenizer's file, from the recipe's folder, if suites are run.").is("\"none\"").only(TOKENIZER, TRAINED).younger("\"none\"").about(Setup),
    free("evaluation.windows", Measured, Int(1, 1 << 32), "Windows per evaluation.").is("64").unit("windows"),
    free("init.digest", Semantic, Digest, "Digest of the tensors of those weights, the same in every file format, written by `canonc bind`.").is("\"unbound\"").with(WEIGHTS),
    free("init.missing", Semantic, Word(&["drawn", "refused"], &[]), "Parameters of the arch that those weights lack: drawn from seeds.init, or refused.").is("\"refused\"").with(WEIGHTS),
    free(WEIGHTS, Semantic, Name, "The weights to begin from: a run, an export, an import, or a file, by its path from the folder that canonc runs in. Once they are bound, their digest identifies them instead.").is("\"none\"").younger("\"none\""),
    free("lingua.async_eval_gpus", Cosmetic, Int(0, 65_536), "GPUs for evaluations that run in parallel with the training; 0 for none.").is("8").only(TASK, TEXT).younger("8").called(&["async_eval_gpus"]).default_there("0"),
    free("lingua.compile", Carried, Bool, "Whether the trainer compiles the model.").is("true").only(TASK, TEXT).younger("true").called(&["distributed.compile"]).means("false").about(Kernel),
    free("lingua.eval_keep", Cosmetic, Int(-1, 1_000_000), "Evaluation checkpoints kept; -1 for all.").is("-1").only(TASK, TEXT).younger("-1").about(Cadence).called(&["checkpoint.eval.keep"]).default_there("0"),
    free("lingua.fsdp_type", Carried, Word(&["full_shard", "no_shard"], &[]), "How parameters are sharded.").is("\"full_shard\"").only(TASK, TEXT).younger("\"full_shard\"").about(Kernel).called(&["distributed.fsdp_type"]).default_there("no_shard"),
    free("lingua.generator_dtype", Cosmetic, Word(&["bf16", "fp16", "fp32"], &[]), "Number format of evaluations.").is("\"bf16\"").only(TASK, TEXT).younger("\"bf16\"").about(Evaluation).called(&["eval.generator.dtype"]).default_there("bf16"),
    free("lingua.generator_max_tokens", Cosmetic, Int(1, 1 << 24), "Most tokens that evaluations pack into one batch.").is("8192").only(TASK, TEXT).younger("8192").unit("tokens").about(Evaluation).called(&["eval.generator.max_tokens"]).default_there("1024"),
    free("lingua.harness_tasks", Cosmetic, Names, "Tasks of lm-evaluation-harness.").is(HARNESS).only(TASK, TEXT).younger(HARNESS).about(Evaluation).called(&["eval.harness.tasks"]),
    free("lingua.load_async", Cosmetic, Bool, "Whether data is prefetched.").is("true").only(TASK, TEXT).younger("true").called(&["data.load_async"]).means("true"),
    free("lingua.log_samples", Cosmetic, Bool, "Whether evaluations log every sample.").is("false").only(TASK, TEXT).younger("false").called(&["eval.harness.log_samples"]).default_there("true"),
    free("lingua.matmul_allow_tf32", Carried, Bool, "Whether matrix products may round to TF32.").is("false").only(TASK, TEXT).younger("false").about(Numerics).called(&["distributed.matmul_allow_tf32"]).means("false"),
    free("lingua.prefetch_size", Carried, Int(1, 1 << 30), "Batches in the trainer's shuffle buffer; canonc's is data.shuffle_buffer.").is("1024").only(TASK, TEXT).younger("1024").about(Data).called(&["data.prefetch_size"]).default_there("64"),
    free("lingua.probe_freq", Cosmetic, IntOr(1, COUNT, "never"), "Steps between probes of activations.").is("\"never\"").only(TASK, TEXT).younger("\"never\"").unit("steps").about(Cadence).called(&["probe_freq"]).default_there("never"),
    free("lingua.profiling", Cosmetic, Bool, "Whether the trainer profiles itself.").is("false").only(TASK, TEXT).younger("false").called(&["profiling.run"]).means("false"),
    free("lingua.read_s3", Cosmetic, Bool, "Whether checkpoints are read from S3.").is("false").only(TASK, TEXT).younger("false").called(&["checkpoint.read_s3"]).means("false"),
    free("lingua.root_dir", Carried, Name, "The folder of the data.").is("\"data\"").only(TASK, TEXT).younger("\"data\"").about(Data).called(&["data.root_dir"]).records_text(),
    free("lingua.save_consolidated_to_local", Cosmetic, Bool, "Whether evaluations consolidate the checkpoint into one file.").is("true").only(TASK, TEXT).younger("true").called(&["eval.save_consolidated_to_local"]),
    free("lingua.save_s3", Cosmetic, Bool, "Whether evaluations write to S3.").is("false").only(TASK, TEXT).younger("false").called(&["eval.save_s3"]).means("false"),
    free("lingua.seed", Carried, Seed, "The trainer's own seed; in canonc it affects neither weights nor data.").is("777").only(TASK, TEXT).younger("777").about(Data).called(&["seed"]).default_there("42"),
    free("lingua.show_progress", Cosmetic, Bool, "Whether evaluations show a progress bar.").is("true").only(TASK, TEXT).younger("true").called(&["eval.generator.show_progress"]).default_there("false"),
    free("lingua.tokenizer_path", Carried, Name, "The tokenizer's file.").is("\"tokenizer.model\"").only(TASK, TEXT).younger("\"tokenizer.model\"").about(Data).called(&["data.tokenizer.path"]).records_text(),
    free("log.every", Cosmetic, Int(1, COUNT), "Steps between progress lines.").is("10").unit("steps").about(Cadence).called(&["logging.freq"]).default_there("10"),
    free("loss.ahead", Semantic, Real(Bounds::AtLeastZero), "Weight of the mean loss of the arch's heads that predict later tokens (multi-token prediction); an arch without any refuses it.").is("0").younger("0"),
    free("loss.balance", Semantic, Real(Bounds::AtLeastZero), "Weight of the arch's auxiliary losses of the term `balance`, the load balance of experts; an arch without any refuses it.").is("0").younger("0"),
    free("loss.kind", Semantic, Word(&["cross_entropy"], &[]), "The loss to minimise.").is("\"cross_entropy\""),
    free("loss.nll_square", Semantic, Real(Bounds::AtLeastZero), "Coefficient of the squared token loss, which the release calls z_loss.").is("0").called(&["model.z_loss"]).means("false"),
    free("loss.router_z", Semantic, Real(Bounds::AtLeastZero), "Weight of the arch's auxiliary losses of the term `router_z`, the scale of routers' scores; an arch without any refuses it.").is("0").younger("0"),
    free("loss.z_loss", Semantic, Real(Bounds::AtLeastZero), "Coefficient of the squared log partition function.").is("0"),
    free("optimizer.betas", Semantic, Pair(Bounds::BelowOne), "Decay rates of both moments.").is("[0.9, 0.95]"),
    free("optimizer.clip", Semantic, RealOr(Bounds::Positive, "none"), "The global gradient norm at which gradients are clipped.").is("1").called(&["optim.clip"]).default_there("1"),
    free("optimizer.decay", Semantic, Word(&["all", "matrices"], &[]), "Parameters with weight decay: all, or matrices and tables only.").is("\"all\""),
    derived("optimizer.decayed", Semantic, "", "Digest of the parameters with weight decay, unless all have it."),
    free("optimizer.eps", Semantic, Real(Bounds::Positive), "Added to the square root of the second moment.").is("1e-8").called(&["optim.epsilon"]).means("1e-8"),
    free("optimizer.frozen", Semantic, Patterns, "Parameters that keep their initial values, by path or role (`**.A`, `:embed`): no moments, and no part in the gradient norm.").is("[]").younger("[]"),
    derived("optimizer.groups", Semantic, "", "Digest of the parameters whose update is not the plain one, with their updates."),
    free("optimizer.kind", Semantic, Word(&["adamw", "muon"], &[]), "The update rule; with muon, AdamW updates what optimizer.muon does not name.").is("\"adamw\""),
    free("optimizer.lr", Semantic, Real(Bounds::Positive), "Base learning rate.").also(&["learning_rate"]).called(&["optim.lr"]).default_there("0.0003"),
    free("optimizer.lr_multipliers", Semantic, Multipliers(Bounds::AtLeastZero), "Factors of the learning rate, as pairs of parameters, by path or role, and a number: [[\":embed\", 0.1]].").is("[]").younger("[]"),
    derived("optimizer.lr_wd_steps", Cosmetic, "", "lr x weight_decay x steps: how many times over weight decay renews the weights."),
    free("optimizer.momentum", Semantic, Real(Bounds::BelowOne), "Decay rate of Muon's mean of gradients.").is("0.95").only(OPTIMIZER, MUON),
    free("optimizer.muon", Semantic, Patterns, "The matrices that Muon updates, by path or role.").is("[\"layers.**:linear\"]").only(OPTIMIZER, MUON),
    free("optimizer.muon_scale", Semantic, Word(&["keller", "moonshot"], &[]), "Factor of a Muon update [rows, columns]: sqrt(max(1, rows / columns)), or 0.2 sqrt(max(rows, columns)), which is the size of AdamW's updates.").is("\"keller\"").only(OPTIMIZER, MUON),
    free("optimizer.nesterov", Semantic, Bool, "Whether Muon's update looks one step ahead.").is("true").only(OPTIMIZER, MUON),
    free("optimizer.weight_decay", Semantic, Real(Bounds::AtLeastZero), "Decoupled weight decay.").also(&["wd", "decay"]).called(&["optim.weight_decay"]).default_there("0.1"),
    free("optimizer.weight_decay_multipliers", Semantic, Multipliers(Bounds::AtLeastZero), "Factors of the weight decay, written as optimizer.lr_multipliers.").is("[]").younger("[]"),
    free("platform.blas", Platform, Word(&["any", "auto", "avx2-strict", "compatible"], &[]), "How the matrix library chooses its kernels.").is("\"any\""),
    free("platform.cpu_capability", Platform, Word(&["any", "avx2", "avx512", "default"], &[]), "Instruction sets that the CPU kernels may use.").is("\"any\""),
    free("platform.device", Platform, Word(&["cpu", "cuda"], &[]), "The device to run on.").is("\"cpu\""),
    free("platform.devices", Platform, IntOr(1, 1 << 20, "any"), "The number of devices, with a rank for each; `canonc run --ranks` may use another number for the same bits.").is("\"any\"").younger("\"any\"").also(&["gpus"]).about(Budget).called(launch!("devices", "gpus", "n_devices", "n_gpus", "ngpus", "num_devices", "num_gpus", "num_processes", "world_size"; "gpus_from_comment")).exact(),
    free("platform.devices_per_node", Platform, IntOr(1, 1024, "any"), "Devices of each machine, on which gradients are added before they leave it; the bits are the same.").is("\"any\"").younger("\"any\"").exact(),
    free("platform.fuse", Platform, Bool, "Fused kernels.").is("true"),
    free("platform.kernels.canon", Platform, Word(&["fused", "reference"], &[]), "The kernel of Canon layers.").is("\"fused\""),
    free("platform.kernels.gated_norm", Platform, Word(&["fused", "reference"], &[]), "The kernel of gated norms; `reference` is zeyuan_layernorm in the release.").is("\"fused\"").younger("\"fused\"").called(&["model.zeyuan_layernorm"]).means("fused").spoken(&[("false", "fused"), ("true", "reference")]),
    free("platform.recompute", Platform, Word(&["layers", "nothing", "selective"], &[]), "Activations that the backward pass recomputes instead of keeping: whole layers; or the results of cheap steps, such as the inputs of attention and of the MLP's products; the bits are the same.").is("\"nothing\"").called(&["distributed.selective_activation_checkpointing"]).means("nothing").spoken(&[("false", "nothing"), ("true", "layers")]).exact(),
    free("platform.shard", Platform, Word(&["full", "none", "optimizer"], &[]), "What ranks divide among themselves: nothing, the moments, or weights and moments.").is("\"none\"").younger("\"none\"").exact(),
    free("platform.threads", Platform, IntOr(1, 4096, "any"), "CPU threads.").is("\"any\"").exact(),
    free("precision.policy", Semantic, Word(&["bf16", "f32"], &["fp16", "f16"]), "Dtype of activations and of the parameters they meet; docs/numerics.md lists what stays f32.").is("\"f32\"").about(Numerics).called(&["distributed.model_dtype"]).default_there("bf16"),
    free("ranks.check_every", Cosmetic, Int(0, COUNT), "Steps between checks in which each rank repeats a micro-batch of its neighbour; 0 for never.").is("100").younger("100").unit("steps").about(Cadence),
    free("schedule.cycle", Semantic, Real(Bounds::PositiveShare), "Length of a cycle as a share of the run.").is("1").only(KIND, &["cosine", "wsd"]).called(&["optim.cycle_length"]).default_there("1"),
    free("schedule.decay", Semantic, Word(&["cosine", "hyperbola", "linear", "sqrt"], &[]), "The curve of the decay of wsd, over x from 0 to 1: (1 + cos pi x) / 2, Lingua's hyperbola, 1 - x, or 1 - sqrt(x), from the base learning rate to lr_min_ratio of it.").is("\"hyperbola\"").only(KIND, &["wsd"]).younger("\"hyperbola\""),
    free("schedule.decay_fraction", Semantic, Real(Bounds::Share), "Share of a cycle that decays.").is("0.1").only(KIND, &["wsd"]).called(&["optim.decay_fraction"]).default_there("0.1"),
    free("schedule.exp_factor", Semantic, Real(Bounds::Positive), "Exponent of warmup / step.").is("0.5").only(KIND, &["inv_sqrt"]).called(&["optim.exp_factor"]).default_there("0.5"),
    free(KIND, Semantic, Word(&["constant", "cosine", "inv_sqrt", "linear", "wsd"], &[]), "The learning rate schedule.").called(&["optim.scheduler"]).means("cosine"),
    free("schedule.lr_min_ratio", Semantic, Real(Bounds::Share), "The last learning rate as a share of the first.").is("0.1").only(KIND, WARMED).also(&["min_lr_ratio"]).called(&["optim.lr_min_ratio"]).default_there("0.1"),
    free("schedule.theta", Semantic, Real(Bounds::Positive), "Exponent that bends the cosine's progress.").is("1").only(KIND, &["cosine"]).called(&["optim.cosine_theta"]).default_there("1"),
    free("schedule.warmup", Semantic, Int(0, COUNT), "Steps from 0 to the base learning rate.").unit("steps").only(KIND, WARMED).also(&["warmup_steps"]).called(&["optim.warmup"]).default_there("2000"),
    derived("schedule.warmup_share", Cosmetic, "", "warmup / steps."),
    free("seeds.data", Semantic, Seed, "Seed of the order and content of training windows.").called(&["data.seed"]).default_there("42"),
    free("seeds.dropout", Semantic, IntOr(0, i64::MAX, "none"), "Seed of dropout, together with seeds.data; given if, and only if, the arch has `dropout`.").is("\"none\"").younger("\"none\""),
    free("seeds.eval", Measured, Seed, "Seed of the evaluation windows.").is("0"),
    free("seeds.init", Semantic, Seed, "Seed of the initial weights.").called(&["model.seed"]).default_there("42"),
]);
