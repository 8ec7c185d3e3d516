//! The rows of the field table.
//!
//! In: nothing. Out: [`TABLE`], by path, and the word lists its rows use. Must stay true: sorted by
//! path; a doc is a sentence; a row newer than the first locks gives its neutral value, which leaves
//! the meaning of older locks unchanged.

use super::{Bounds, FieldDef, derived, free};

const COUNT: i64 = 1_000_000_000_000;
pub(super) const TASK: &str = "data.task";
const KIND: &str = "schedule.kind";
const TOKENIZER: &str = "data.tokenizer";
/// Tokenizers that are stored in a file.
const TRAINED: &[&str] = &["huggingface", "sentencepiece", "tiktoken"];
/// The tasks of the release's evaluations.
const HARNESS: &str = "[\"hellaswag\", \"boolq\", \"piqa\", \"social_iqa\", \"winogrande\", \"openbookqa\", \"arc_easy\", \"arc_challenge\", \"race\", \"commonsense_qa\", \"copa\", \"lambada_openai\", \"triviaqa\"]";
/// Tasks with a generator.
const SYNTHETIC: &[&str] = &["brevo", "capo", "depo", "lano", "mano", "multihop"];
/// Tasks with a largest sample size.
const SIZED: &[&str] = &["brevo", "depo", "mano"];
/// Tasks with a special token at the start of each sample.
const MARKED: &[&str] = &["brevo", "depo", "mano"];
/// Tasks that score generated text.
const WRITTEN: &[&str] = &["brevo", "lano"];
const BREVO: &[&str] = &["brevo"];
const CAPO: &[&str] = &["capo"];
const DEPO: &[&str] = &["depo"];
const LANO: &[&str] = &["lano"];
const MULTIHOP: &[&str] = &["multihop"];
/// The published grammars, with the number of tokens of each.
pub(crate) const GRAMMARS: [(&str, i64); 9] = [
    ("cfg3b", 3),
    ("cfg3e1", 9),
    ("cfg3e2", 4),
    ("cfg3f", 3),
    ("cfg3g", 3),
    ("cfg3h", 3),
    ("cfg3i", 3),
    ("cfg3j", 3),
    ("cfg3k", 3),
];
pub(super) const CONFIGS: &[&str] =
    &["cfg3b", "cfg3e1", "cfg3e2", "cfg3f", "cfg3g", "cfg3h", "cfg3i", "cfg3j", "cfg3k"];
/// The metrics, each with the tasks that have it, if not all.
pub(crate) const METRICS: [(&str, Option<&[&str]>); 6] = [
    ("answer_accuracy", Some(&["brevo", "capo", "depo", "mano", "multihop", "text"])),
    ("bits", Some(CAPO)),
    ("kl", Some(LANO)),
    ("loss", None),
    ("token_accuracy", Some(&["brevo", "capo", "depo", "mano", "multihop", "text"])),
    ("validity", Some(LANO)),
];
/// The names of the metrics.
pub(crate) const MEASURES: &[&str] =
    &["answer_accuracy", "bits", "kl", "loss", "token_accuracy", "validity"];
/// Metrics for which lower is better.
pub const LESS_IS_BETTER: &[&str] = &["kl", "loss"];
const MANO: &[&str] = &["mano"];
pub(super) const TEXT: &[&str] = &["text"];
const WARMED: &[&str] = &["cosine", "inv_sqrt", "linear", "wsd"];

use super::Class::{Carried, Cosmetic, Measured, Platform, Semantic};
use super::Kind::{
    Bool, Digest, Int, IntOr, Ints, Letters, Name, Names, Pair, Real, RealOr, Seed, Word, Words,
};
use super::Topic::{Budget, Cadence, Data, Evaluation, Kernel, Numerics};

/// Every field, by path.
#[rustfmt::skip]
pub const TABLE: &[FieldDef] = &[
    derived("arch.canon_parameters", Cosmetic, "", "Parameters in the fills of slots."),
    derived("arch.flops_per_token", Cosmetic, "FLOP", "Forward, at arch.seq_len; a multiply-add counts two."),
    derived("arch.graph", Semantic, "", "Structural hash of the compute graph."),
    derived("arch.manifest", Semantic, "", "Digest of every parameter's path, which is its init key, shape and init rule."),
    derived("arch.non_embedding", Cosmetic, "", "Parameters without the token table and the output projection."),
    derived("arch.optimizer_bytes", Cosmetic, "bytes", "Parameters, gradients and both AdamW moments in f32."),
    derived("arch.parameters", Cosmetic, "", "All parameters."),
    derived("arch.saved_per_token", Cosmetic, "elements", "Kept for the backward pass, without recomputation."),
    derived("arch.seq_len", Cosmetic, "tokens", "The sequence length that costs are counted at."),
    derived("arch.short_conv", Cosmetic, "", "Parameters in the mixers' own short convolutions."),
    derived("arch.state", Cosmetic, "elements", "Recurrent state of one sequence after arch.seq_len tokens."),
    derived("arch.state_per_token", Cosmetic, "elements", "Of these, what the last token added."),
    derived("arch.train_flops_per_token", Cosmetic, "FLOP", "Forward and backward."),
    free("batch.micro_batches", Semantic, Int(1, 1 << 20), "Micro-batches of one step, summed by a fixed tree.").is("1").also(&["grad_acc_steps", "accumulate"]),
    free("batch.sequences", Semantic, Int(1, 1 << 20), "Sequences of one micro-batch.").also(&["batch_size", "size"]).called(&["data.batch_size"]).default_there("2"),
    derived("batch.tokens_per_step", Cosmetic, "tokens", "sequences x micro_batches x seq_len.").instead(Int(1, i64::MAX), "batch.micro_batches").about(Budget),
    derived("budget.flops", Cosmetic, "FLOP", "Of the whole training, forward and backward."),
    free("budget.steps", Semantic, Int(1, COUNT), "Optimiser steps.").decides().also(&["max_steps", "iterations"]).called(&["steps"]).default_there("1000"),
    free("budget.tokens", Semantic, Int(1, i64::MAX), "Tokens of the whole training; the step must divide it.").decides().unit("tokens"),
    free("checkpoint.every", Cosmetic, Int(0, COUNT), "Steps between checkpoints; 0 for the last step only.").is("100").unit("steps").about(Cadence).called(&["checkpoint.dump.every"]).default_there("1000"),
    free("checkpoint.keep", Cosmetic, Int(2, 10_000), "Verified checkpoints that are kept.").is("2").about(Cadence).called(&["checkpoint.dump.keep"]).default_there("0"),
    free("data.K", Semantic, Int(1, 499), "Depo: the most hops a question asks for.").only(TASK, DEPO).also(&["hops"]),
    free("data.L", Semantic, Int(1, 499), "Mano: the most operations of an expression.").only(TASK, MANO),
    free("data.M", Semantic, Int(1, 65_536), "Depo: questions of a sample; a cycle of fewer names asks one for each.").is("10").only(TASK, DEPO),
    free("data.N", Semantic, Int(1, 10_000_000), "Brevo: the most vertices. Capo: people. Depo: the longest cycle. Multihop: people of a group.").only(TASK, &["brevo", "capo", "depo", "multihop"]).also(&["n_max", "n"]),
    free("data.add_bos", Semantic, Bool, "A token before each document.").is("true").only(TASK, TEXT).means("true"),
    free("data.add_eos", Semantic, Bool, "A token after each document.").is("true").only(TASK, TEXT).means("true"),
    free("data.ans", Semantic, Int(1, 1 << 24), "Brevo: the published token before the answer.").is("9998").only(TASK, BREVO),
    free("data.ask", Semantic, Word(&["last", "last_quarter"], &[]), "Brevo: whose ancestors are asked for; the last vertex's as published, or one's of the last quarter as in the paper.").is("\"last\"").only(TASK, BREVO),
    free("data.bos", Semantic, Int(0, 1 << 24), "The published token before each sample.").is("9999").only(TASK, MARKED),
    free("data.config", Semantic, Word(CONFIGS, &[]), "Lano: the published grammar.").only(TASK, LANO),
    free("data.digest", Semantic, Digest, "Of the prepared documents; `canonc bind` writes it.").is("\"unbound\"").only(TASK, TEXT),
    free("data.eos", Semantic, Int(1, 1 << 24), "Brevo: the token after the answer; as published that before it again.").is("9998").only(TASK, BREVO),
    derived("data.epochs", Cosmetic, "", "Passes over the documents; known once they are bound."),
    free("data.held_out", Semantic, Real(Bounds::BelowOne), "Share of the documents kept for evaluation.").is("0.01").only(TASK, TEXT),
    free("data.held_out_seed", Semantic, Seed, "Which documents those are.").is("0").only(TASK, TEXT),
    free("data.ids", Semantic, Word(&["dense", "published"], &[]), "Token numbers: as published, or without the unused ones.").is("\"published\"").only(TASK, SYNTHETIC),
    free("data.k", Semantic, Int(1, 1000), "Multihop: groups of people, each as many hops from a year.").only(TASK, MULTIHOP),
    free("data.knowledge_augment", Semantic, Bool, "Mano: two tokens for each marker and operation.").is("true").only(TASK, MANO),
    free("data.leaves", Semantic, Word(&["ceil", "floor"], &[]), "Brevo: how the bound on parentless vertices is rounded; down as published, up in the paper.").is("\"floor\"").only(TASK, BREVO),
    free("data.lens", Semantic, Ints(1, 499), "Mano: operation counts in training.").from(super::up_to_l, "1 to `data.L`").only(TASK, MANO),
    free("data.loss_on", Semantic, Word(&["all", "answer"], &[]), "Which tokens are targets.").from(super::loss_on, "`\"answer\"` for brevo and depo, else `\"all\"`"),
    free("data.max_tlen", Semantic, Int(1, 64), "Depo: tokens of the longest name.").only(TASK, DEPO),
    free("data.min_tlen", Semantic, Int(1, 64), "Depo: tokens of the shortest name.").only(TASK, DEPO),
    free("data.mini_vocab", Semantic, Int(1, 4500), "Depo: letters of the name alphabet.").only(TASK, DEPO).also(&["V"]),
    free("data.multi", Semantic, Bool, "Brevo: names of 2 to 4 tokens (Brevo2), or one token a vertex (Brevo1).").is("false").only(TASK, BREVO),
    free("data.order", Semantic, Word(&["indexed", "published"], &[]), "Windows by number, or the published stream, which cannot be resharded.").is("\"indexed\"").only(TASK, SYNTHETIC),
    free("data.people_seed", Semantic, Int(0, i64::MAX), "Capo: of the people, who are the same whatever seeds.data is.").is("42").only(TASK, CAPO),
    free("data.permute", Semantic, Bool, "Capo: sentences in a drawn order, as the paper's bioS has them.").is("false").only(TASK, CAPO),
    free("data.pronoun", Semantic, Word(&["drawn", "parity"], &[]), "Capo: whether a person is he or she; by number as published, or drawn as in the paper.").is("\"parity\"").only(TASK, CAPO),
    free("data.qids", Semantic, Ints(1, 499), "Mano: the number that stands for each of lens.").from(super::as_lens, "`data.lens`").only(TASK, MANO),
    free("data.query", Semantic, Int(1, 1 << 24), "Brevo: the published token before the query.").is("9997").only(TASK, BREVO),
    free("data.reverse_md", Semantic, Bool, "Capo: the day before the month.").is("false").only(TASK, CAPO),
    free("data.separator", Semantic, Bool, "Depo: a token before each edge.").is("false").only(TASK, DEPO),
    free("data.seq_len", Semantic, Int(1, 1 << 24), "Inputs of one window.").unit("tokens").also(&["context", "length"]).default_there("2048"),
    free("data.shuffle", Semantic, Word(&["buffer", "documents", "windows"], &[]), "What is shuffled: all windows of a pass; its documents alone, so that consecutive windows are neighbours of one document; or, as Lingua does, a buffer of consecutive windows at a time, of documents in the order of their files.").is("\"windows\"").only(TASK, TEXT).younger("\"documents\"").means("buffer"),
    free("data.shuffle_buffer", Semantic, Int(1, COUNT), "Consecutive windows that are shuffled together. Lingua shuffles `prefetch_size` batches of a rank.").from(super::shuffle_buffer, "`lingua.prefetch_size` times `batch.sequences`").only("data.shuffle", &["buffer"]).unit("windows"),
    free("data.source", Semantic, Name, "What people call the documents; once they are bound their digest counts instead.").only(TASK, TEXT).called(&["data_source", "data.sources"]),
    free("data.task", Semantic, Word(&["brevo", "capo", "depo", "lano", "mano", "multihop", "text"], &["babilong"]), "What is learnt."),
    derived("data.task_digest", Semantic, "", "Digest of a synthetic task: name, parameters, revision of its generator."),
    free(TOKENIZER, Semantic, Word(&["bytes", "huggingface", "sentencepiece", "tiktoken"], &[]), "How text becomes tokens: bytes, or the kind of the tokenizer's file.").is("\"bytes\"").only(TASK, TEXT).called(&["data.tokenizer.name"]).default_there("bytes").spoken(&[("sp", "sentencepiece")]).records_text(),
    free("data.tokenizer_digest", Semantic, Digest, "Of the tokenizer's file and what else decides its tokens; `canonc bind` writes it.").is("\"unbound\"").only(TOKENIZER, TRAINED).records_text(),
    free("data.tokenizer_vocab", Semantic, Int(1, 1 << 24), "Tokens of the tokenizer, special ones included.").only(TOKENIZER, TRAINED).also(&["vocab_size"]).records_text(),
    free("data.tokens", Cosmetic, IntOr(1, i64::MAX, "unknown"), "Training tokens of one pass; `canonc bind` writes it.").is("\"unknown\"").only(TASK, TEXT),
    free("data.ttype", Semantic, Letters("asmd"), "Mano: addition, subtraction, multiplication, division; the last, which is not published, takes a prime modulus.").is("\"asm\"").only(TASK, MANO),
    free("data.value_mod", Semantic, Int(2, 4900), "Mano: the modulus.").is("23").only(TASK, MANO),
    derived("data.vocab", Cosmetic, "tokens", "The least vocabulary an arch needs for this data."),
    free("data.weights", Semantic, Ints(0, COUNT), "Share of each source among the documents that are read, whatever their lengths; empty, or of one source, takes every document once a pass. A source of weight 0 is never trained on; its held-out documents are still measured.").is("[]").only(TASK, TEXT),
    free("evaluation.every", Cosmetic, Int(0, COUNT), "Steps between evaluations; 0 for the last step only.").is("0").unit("steps").about(Cadence).called(&["checkpoint.eval.every"]).default_there("1000"),
    free("evaluation.metrics", Measured, Words(MEASURES), "What is reported.").from(super::metrics, "what the task is measured by"),
    free("evaluation.mode", Measured, Word(&["test", "train"], &[]), "Sizes of evaluated samples: all at the largest, or drawn as in training.").is("\"test\"").only(TASK, SIZED),
    free("evaluation.samples", Measured, Int(1, 1 << 20), "Brevo: questions whose answers are generated at one evaluation. Lano: sentences that are, and as many whose law is compared.").is("64").only(TASK, WRITTEN),
    free("evaluation.windows", Measured, Int(1, 1 << 32), "Windows of one evaluation.").is("64").unit("windows"),
    free("lingua.async_eval_gpus", Cosmetic, Int(0, 65_536), "GPUs of evaluations beside the training; 0 for none.").is("8").only(TASK, TEXT).younger("8").called(&["async_eval_gpus"]).default_there("0"),
    free("lingua.compile", Carried, Bool, "Whether the trainer compiles the model.").is("true").only(TASK, TEXT).younger("true").called(&["distributed.compile"]).means("false").about(Kernel),
    free("lingua.eval_keep", Cosmetic, Int(-1, 1_000_000), "Evaluation checkpoints kept; -1 for all.").is("-1").only(TASK, TEXT).younger("-1").about(Cadence).called(&["checkpoint.eval.keep"]).default_there("0"),
    free("lingua.fsdp_type", Carried, Word(&["full_shard", "no_shard"], &[]), "How parameters are spread.").is("\"full_shard\"").only(TASK, TEXT).younger("\"full_shard\"").about(Kernel).called(&["distributed.fsdp_type"]).default_there("no_shard"),
    free("lingua.generator_dtype", Cosmetic, Word(&["bf16", "fp16", "fp32"], &[]), "How wide numbers are in evaluations.").is("\"bf16\"").only(TASK, TEXT).younger("\"bf16\"").about(Evaluation).called(&["eval.generator.dtype"]).default_there("bf16"),
    free("lingua.generator_max_tokens", Cosmetic, Int(1, 1 << 24), "Tokens that evaluations pack together.").is("8192").only(TASK, TEXT).younger("8192").unit("tokens").about(Evaluation).called(&["eval.generator.max_tokens"]).default_there("1024"),
    free("lingua.harness_tasks", Cosmetic, Names, "Tasks of lm-evaluation-harness.").is(HARNESS).only(TASK, TEXT).younger(HARNESS).about(Evaluation).called(&["eval.harness.tasks"]),
    free("lingua.load_async", Cosmetic, Bool, "Whether data is read ahead.").is("true").only(TASK, TEXT).younger("true").called(&["data.load_async"]).means("true"),
    free("lingua.log_samples", Cosmetic, Bool, "Whether evaluations keep every sample.").is("false").only(TASK, TEXT).younger("false").called(&["eval.harness.log_samples"]).default_there("true"),
    free("lingua.matmul_allow_tf32", Carried, Bool, "Whether matrix products may round to TF32.").is("false").only(TASK, TEXT).younger("false").about(Numerics).called(&["distributed.matmul_allow_tf32"]).means("false"),
    free("lingua.prefetch_size", Carried, Int(1, 1 << 30), "Batches that its shuffle holds at a time; for ours see data.shuffle_buffer.").is("1024").only(TASK, TEXT).younger("1024").about(Data).called(&["data.prefetch_size"]).default_there("64"),
    free("lingua.probe_freq", Cosmetic, IntOr(1, COUNT, "never"), "Steps between probes of activations.").is("\"never\"").only(TASK, TEXT).younger("\"never\"").unit("steps").about(Cadence).called(&["probe_freq"]).default_there("never"),
    free("lingua.profiling", Cosmetic, Bool, "Whether the trainer profiles itself.").is("false").only(TASK, TEXT).younger("false").called(&["profiling.run"]).means("false"),
    free("lingua.read_s3", Cosmetic, Bool, "Whether checkpoints are read from S3.").is("false").only(TASK, TEXT).younger("false").called(&["checkpoint.read_s3"]).means("false"),
    free("lingua.root_dir", Carried, Name, "The folder of the data.").is("\"data\"").only(TASK, TEXT).younger("\"data\"").about(Data).called(&["data.root_dir"]).records_text(),
    free("lingua.save_consolidated_to_local", Cosmetic, Bool, "Whether evaluations leave the checkpoint in one file.").is("true").only(TASK, TEXT).younger("true").called(&["eval.save_consolidated_to_local"]),
    free("lingua.save_s3", Cosmetic, Bool, "Whether evaluations write to S3.").is("false").only(TASK, TEXT).younger("false").called(&["eval.save_s3"]).means("false"),
    free("lingua.seed", Carried, Seed, "The trainer's own seed; neither weights nor data follow it here.").is("777").only(TASK, TEXT).younger("777").about(Data).called(&["seed"]).default_there("42"),
    free("lingua.show_progress", Cosmetic, Bool, "Whether evaluations draw a bar.").is("true").only(TASK, TEXT).younger("true").called(&["eval.generator.show_progress"]).default_there("false"),
    free("lingua.tokenizer_path", Carried, Name, "The tokenizer's file.").is("\"tokenizer.model\"").only(TASK, TEXT).younger("\"tokenizer.model\"").about(Data).called(&["data.tokenizer.path"]).records_text(),
    free("log.every", Cosmetic, Int(1, COUNT), "Steps between lines of progress.").is("10").unit("steps").about(Cadence).called(&["logging.freq"]).default_there("10"),
    free("loss.kind", Semantic, Word(&["cross_entropy"], &[]), "What is minimised.").is("\"cross_entropy\""),
    free("loss.nll_square", Semantic, Real(Bounds::AtLeastZero), "Coefficient of the squared token loss, which the release calls z_loss.").is("0").called(&["model.z_loss"]).means("false"),
    free("loss.z_loss", Semantic, Real(Bounds::AtLeastZero), "Coefficient of the squared log partition function.").is("0"),
    free("optimizer.betas", Semantic, Pair(Bounds::BelowOne), "Decay of both moments.").is("[0.9, 0.95]"),
    free("optimizer.clip", Semantic, RealOr(Bounds::Positive, "none"), "The largest global gradient norm.").is("1").called(&["optim.clip"]).default_there("1"),
    free("optimizer.decay", Semantic, Word(&["all", "matrices"], &[]), "What weight decay acts on: everything, or matrices and tables only.").is("\"all\""),
    derived("optimizer.decayed", Semantic, "", "Digest of the parameters that decay acts on, where it is not all."),
    free("optimizer.eps", Semantic, Real(Bounds::Positive), "Added to the root of the second moment.").is("1e-8").called(&["optim.epsilon"]).means("1e-8"),
    free("optimizer.kind", Semantic, Word(&["adamw"], &[]), "The update rule.").is("\"adamw\""),
    free("optimizer.lr", Semantic, Real(Bounds::Positive), "Base learning rate.").also(&["learning_rate"]).called(&["optim.lr"]).default_there("0.0003"),
    derived("optimizer.lr_wd_steps", Cosmetic, "", "lr x weight_decay x steps: how often decay replaces a weight."),
    free("optimizer.weight_decay", Semantic, Real(Bounds::AtLeastZero), "Decoupled weight decay.").also(&["wd", "decay"]).called(&["optim.weight_decay"]).default_there("0.1"),
    free("platform.blas", Platform, Word(&["any", "auto", "avx2-strict", "compatible"], &[]), "How the matrix library picks its code.").is("\"any\""),
    free("platform.cpu_capability", Platform, Word(&["any", "avx2", "avx512", "default"], &[]), "Instructions the CPU kernels may use.").is("\"any\""),
    free("platform.device", Platform, Word(&["cpu", "cuda"], &[]), "Where it runs.").is("\"cpu\""),
    free("platform.devices", Platform, IntOr(1, 1 << 20, "any"), "A hint: devices that the micro-batches are spread over.").is("\"any\"").younger("\"any\"").also(&["gpus"]).about(Budget).called(launch!("devices", "gpus", "n_devices", "n_gpus", "ngpus", "num_devices", "num_gpus", "num_processes", "world_size"; "gpus_from_comment")),
    free("platform.fuse", Platform, Bool, "Kernels that do several steps at once.").is("true"),
    free("platform.kernels.canon", Platform, Word(&["fused", "reference"], &[]), "Which Canon convolution.").is("\"fused\""),
    free("platform.kernels.gated_norm", Platform, Word(&["fused", "reference"], &[]), "Which norm with gate; `reference` is what the release calls zeyuan_layernorm.").is("\"fused\"").younger("\"fused\"").called(&["model.zeyuan_layernorm"]).means("fused").spoken(&[("false", "fused"), ("true", "reference")]),
    free("platform.recompute", Platform, Word(&["layers", "nothing"], &[]), "What the backward pass makes again instead of keeping.").is("\"nothing\"").called(&["distributed.selective_activation_checkpointing"]).means("nothing").spoken(&[("false", "nothing"), ("true", "layers")]),
    free("platform.threads", Platform, IntOr(1, 4096, "any"), "CPU threads.").is("\"any\""),
    free("precision.policy", Semantic, Word(&["bf16", "f32"], &["fp16", "f16"]), "How wide numbers are between islands; locks may say bf16, which no run does yet.").is("\"f32\"").about(Numerics).called(&["distributed.model_dtype"]).default_there("bf16"),
    free("schedule.cycle", Semantic, Real(Bounds::PositiveShare), "A cycle's part of the run.").is("1").only(KIND, &["cosine", "wsd"]).called(&["optim.cycle_length"]).default_there("1"),
    free("schedule.decay_fraction", Semantic, Real(Bounds::Share), "Part of a cycle that decays.").is("0.1").only(KIND, &["wsd"]).called(&["optim.decay_fraction"]).default_there("0.1"),
    free("schedule.exp_factor", Semantic, Real(Bounds::Positive), "Exponent of warmup / step.").is("0.5").only(KIND, &["inv_sqrt"]).called(&["optim.exp_factor"]).default_there("0.5"),
    free(KIND, Semantic, Word(&["constant", "cosine", "inv_sqrt", "linear", "wsd"], &[]), "How the learning rate goes over the run.").called(&["optim.scheduler"]).means("cosine"),
    free("schedule.lr_min_ratio", Semantic, Real(Bounds::Share), "The last learning rate as a share of the first.").is("0.1").only(KIND, WARMED).also(&["min_lr_ratio"]).called(&["optim.lr_min_ratio"]).default_there("0.1"),
    free("schedule.theta", Semantic, Real(Bounds::Positive), "Bends the cosine's progress.").is("1").only(KIND, &["cosine"]).called(&["optim.cosine_theta"]).default_there("1"),
    free("schedule.warmup", Semantic, Int(0, COUNT), "Steps from 0 to the base learning rate.").unit("steps").only(KIND, WARMED).also(&["warmup_steps"]).called(&["optim.warmup"]).default_there("2000"),
    derived("schedule.warmup_share", Cosmetic, "", "warmup / steps."),
    free("seeds.data", Semantic, Seed, "Of the order and content of training windows.").called(&["data.seed"]).default_there("42"),
    free("seeds.eval", Measured, Seed, "Of the windows that are evaluated.").is("0"),
    free("seeds.init", Semantic, Seed, "Of the initial weights.").called(&["model.seed"]).default_there("42"),
];
