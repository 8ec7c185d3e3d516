//! Rows that only audits read: an arch's own fields under foreign names, keys of other trainers that are not fields of a
//! lock, and columns that repeat a key.
//!
//! A documented default is the trainer's own: `TrainArgs` of facebookresearch/lingua with its nested arguments, and the
//! release's fork; `simple_evaluate` of lm-evaluation-harness.

use lab::field::Bounds::AtLeastZero;
use lab::field::Class::{Carried, Cosmetic, Semantic};
use lab::field::Kind::{Bool, Int, Name, Real};
use lab::field::Topic::{Budget, Cadence, Data, Evaluation, Kernel, Numerics, Reported, Revision};
use lab::field::{FieldDef, Kind, free};
use lab::launch;

/// Any integer: other trainers have their own bounds.
const WHOLE: Kind = Int(i64::MIN, i64::MAX);

/// A column that repeats a key.
const fn repeated(path: &'static str, kind: Kind, doc: &'static str) -> FieldDef {
    free(path, Cosmetic, kind, doc).about(Reported)
}

/// Every row, by path. `model.canon_set` has two rows: its capital letters are `arch.canon`, its `b` is
/// `arch.mixer.short_conv`.
#[rustfmt::skip]
pub(crate) const FOREIGN: &[FieldDef] = &[
    free("arch.*", Semantic, Name, "Any other field of an arch. Each arch has its own."),
    free("arch.canon", Semantic, Name, "The slots that Canon layers fill, as letters.").means(""),
    free("arch.canon.activation", Semantic, Bool, "An activation inside Canon layers.").called(&["model.canon_activation"]).default_there("false"),
    free("arch.canon.bias", Semantic, Bool, "A bias in Canon layers.").called(&["model.canon_bias"]).default_there("false"),
    free("arch.canon.kernel", Semantic, WHOLE, "Kernel size of Canon layers, in time steps.").called(&["model.canon_kernel"]).default_there("4"),
    free("arch.canon.residual", Semantic, Bool, "Whether Canon layers have a residual.").called(&["model.canon_residual"]).default_there("true"),
    free("arch.dim", Semantic, WHOLE, "Width of the residual stream.").called(&["model.dim"]).default_there("512"),
    free("arch.init.base_std", Semantic, Real(AtLeastZero), "Standard deviation of initial weights.").called(&["model.init_base_std"]).default_there("none"),
    free("arch.init.std_factor", Semantic, Name, "What that deviation is divided by, depending on depth.").called(&["model.init_std_factor"]).default_there("disabled"),
    free("arch.layers", Semantic, WHOLE, "Layers.").called(&["model.n_layers"]).default_there("8"),
    free("arch.mixer", Semantic, Name, "The token mixer.").called(&["model.model_name"]).means("attention").spoken(&[("GDN2", "gated_deltanet"), ("GLA5", "gla"), ("Llama", "attention"), ("Mamba2", "mamba2")]),
    free("arch.mixer.head_dim", Semantic, WHOLE, "Width of a head.").called(&["model.head_dim"]),
    free("arch.mixer.heads", Semantic, WHOLE, "Heads.").called(&["model.n_heads"]),
    free("arch.mixer.kv_heads", Semantic, WHOLE, "Heads of keys and values (grouped queries).").called(&["model.n_kv_heads"]).same_as("arch.mixer.heads"),
    free("arch.mixer.qk_norm", Semantic, Bool, "Whether queries and keys are normalised.").called(&["model.qk_norm"]).means("false"),
    free("arch.mixer.rope.dims", Semantic, WHOLE, "Dimensions of a head to which RoPE applies.").called(&["model.rope_dim"]).same_as("arch.mixer.head_dim"),
    free("arch.mixer.rope.theta", Semantic, Real(AtLeastZero), "The base frequency of RoPE.").called(&["model.rope_theta"]).means("10000"),
    free("arch.mixer.short_conv", Semantic, Bool, "The mixer's own short convolution.").means("false"),
    free("arch.mixer.state", Semantic, Name, "Width of a Mamba state.").called(&["model.mamba_ssm"]),
    free("arch.mixer.window", Semantic, Name, "Attention window, in time steps.").called(&["model.sliding_window"]).default_there("none"),
    free("arch.mlp", Semantic, Name, "The MLP that follows the mixer.").called(&["model.mlp_type"]).means("swiglu"),
    free("arch.mlp.hidden", Semantic, WHOLE, "Width of the MLP.").called(&["model.hidden_dim"]),
    free("arch.mlp.multiple_of", Semantic, WHOLE, "Multiple to which that width is rounded up.").called(&["model.multiple_of"]).means("256"),
    free("arch.mlp.multiplier", Semantic, Real(AtLeastZero), "Factor by which that width is multiplied.").called(&["model.ffn_dim_multiplier"]).means("1"),
    free("arch.norm_eps", Semantic, Real(AtLeastZero), "Added under the square root of norms.").called(&["model.norm_eps"]).default_there("1e-5"),
    free("arch.tied", Semantic, Bool, "Whether the output projection shares its weights with the token table.").called(&["model.weight_tying"]).default_there("false"),
    free("arch.vocab", Semantic, WHOLE, "Vocabulary size; -1 for the tokenizer's.").called(&["model.vocab_size"]).default_there("-1"),
    free("batch.accumulation", Semantic, WHOLE, "Gradient accumulation steps per device.").called(&["grad_acc_steps"]).means("1"),
    free("data.sources.*", Semantic, Real(AtLeastZero), "The share of a source."),
    free("evaluation.apply_chat_template", Cosmetic, Bool, "Whether prompts are written as a chat.").about(Evaluation).called(&["eval.harness.apply_chat_template"]).default_there("false"),
    free("evaluation.bootstrap_iters", Cosmetic, WHOLE, "Bootstrap iterations for the standard errors of scores.").about(Evaluation).called(&["eval.harness.bootstrap_iters"]).default_there("100000"),
    free("evaluation.cache_requests", Cosmetic, Bool, "Whether the harness caches prompts for the next evaluation.").about(Evaluation).called(&["eval.harness.cache_requests"]).default_there("false"),
    free("evaluation.check_integrity", Cosmetic, Bool, "Whether the harness checks the integrity of its tasks first.").about(Evaluation).called(&["eval.harness.check_integrity"]).default_there("false"),
    free("evaluation.compile_prefilling", Cosmetic, Bool, "Whether the generator compiles its prefill.").about(Evaluation).called(&["eval.generator.compile_prefilling"]).default_there("false"),
    free("evaluation.delete_requests_cache", Cosmetic, Bool, "Whether cached prompts are deleted.").about(Evaluation).called(&["eval.harness.delete_requests_cache"]).default_there("false"),
    free("evaluation.device", Cosmetic, Name, "Device of the generator.").about(Evaluation).called(&["eval.generator.device"]).default_there("cuda"),
    free("evaluation.fewshot_as_multiturn", Cosmetic, Bool, "Whether few-shot examples are turns of a chat.").about(Evaluation).called(&["eval.harness.fewshot_as_multiturn"]).default_there("false"),
    free("evaluation.fewshot_random_seed", Cosmetic, WHOLE, "Seed of the few-shot examples.").about(Evaluation).called(&["eval.harness.fewshot_random_seed"]).default_there("1234"),
    free("evaluation.max_gen_len", Cosmetic, WHOLE, "Most tokens to generate.").about(Evaluation).called(&["eval.generator.max_gen_len"]).default_there("512"),
    free("evaluation.numpy_random_seed", Cosmetic, WHOLE, "The seed of NumPy.").about(Evaluation).called(&["eval.harness.numpy_random_seed"]).default_there("1234"),
    free("evaluation.predict_only", Cosmetic, Bool, "Whether answers are only generated, not scored.").about(Evaluation).called(&["eval.harness.predict_only"]).default_there("false"),
    free("evaluation.random_seed", Cosmetic, WHOLE, "The seed of Python's random numbers.").about(Evaluation).called(&["eval.harness.random_seed"]).default_there("0"),
    free("evaluation.reduce_generation_overhead", Cosmetic, Bool, "Whether the generator replays CUDA graphs.").about(Evaluation).called(&["eval.generator.reduce_generation_overhead"]).default_there("false"),
    free("evaluation.rewrite_requests_cache", Cosmetic, Bool, "Whether cached prompts are rebuilt.").about(Evaluation).called(&["eval.harness.rewrite_requests_cache"]).default_there("false"),
    free("evaluation.temperature", Cosmetic, Real(AtLeastZero), "Sampling temperature of the generator; 0 is greedy.").about(Evaluation).called(&["eval.generator.temperature"]).default_there("0"),
    free("evaluation.torch_random_seed", Cosmetic, WHOLE, "The seed of PyTorch.").about(Evaluation).called(&["eval.harness.torch_random_seed"]).default_there("1234"),
    free("evaluation.use_val_from_train_src", Cosmetic, Bool, "Whether validation uses the training sources.").about(Evaluation).called(&["eval.validation.use_val_from_train_src"]).default_there("true"),
    free("evaluation.validation", Cosmetic, Name, "Validation sets.").about(Evaluation).called(&["eval.validation"]),
    free("evaluation.verbosity", Cosmetic, Name, "Log level of the harness.").about(Evaluation).called(&["eval.harness.verbosity"]).default_there("INFO"),
    free("evaluation.write_out", Cosmetic, Bool, "Whether some prompts are printed.").about(Evaluation).called(&["eval.harness.write_out"]).default_there("false"),
    free("lingua.acc_freq", Cosmetic, Name, "Accumulation steps between log lines.").about(Cadence).called(&["logging.acc_freq"]),
    free("lingua.annealing_step", Carried, WHOLE, "Steps of annealing.").called(&["optim.annealing_step"]).default_there("1000"),
    free("lingua.attn_impl", Carried, Name, "The attention kernel.").about(Kernel).called(&["model.attn_impl"]).default_there("sdpa"),
    free("lingua.backend", Carried, Name, "The library that adds gradients of several devices.").about(Kernel).called(&["distributed.backend"]).default_there("nccl"),
    free("lingua.bf16_reduction", Carried, Bool, "Whether bf16 matrix products may accumulate in bf16.").about(Numerics).called(&["distributed.allow_bf16_reduced_precision_reduction"]).default_there("true"),
    free("lingua.command.*", Carried, Name, "The command that a launcher starts. Its arguments can set any key.").called(&["args", "cmd", "command", "overrides"]),
    free("lingua.compile_cache", Carried, WHOLE, "Graphs to compile before falling back to eager mode.").about(Kernel).called(&["distributed.compile_cache_size_limit"]).default_there("8"),
    free("lingua.continue_from_init", Carried, Bool, "Whether step and data position continue from the initial checkpoint.").called(&["checkpoint.continue_training_from_init"]).default_there("false"),
    free("lingua.doc_mask", Carried, Bool, "Whether attention is masked at document boundaries.").called(&["intradoc_mask"]).default_there("false"),
    free("lingua.doc_separator", Carried, WHOLE, "The token that ends a document, for that mask.").called(&["doc_separator"]).default_there("2"),
    free("lingua.dp_replicate", Carried, WHOLE, "Degree of data-parallel replication.").about(Kernel).called(&["distributed.dp_replicate"]).default_there("1"),
    free("lingua.dp_shard", Carried, WHOLE, "Degree of data-parallel sharding.").about(Kernel).called(&["distributed.dp_shard"]).default_there("1"),
    free("lingua.dynamic_mask", Carried, Bool, "Whether the attention window grows with the steps.").called(&["dynamic_mask"]).default_there("false"),
    free("lingua.env.*", Cosmetic, Name, "Threads of the CPU, timeouts and messages: no tensor on a device depends on them.").called(&["env.MKL_SERVICE_FORCE_INTEL", "env.OMP_NUM_THREADS", "env.MKL_NUM_THREADS", "env.ENABLE_INTRA_NODE_COMM", "env.TORCH_NCCL_AVOID_RECORD_STREAMS", "env.NCCL_IB_TIMEOUT", "env.NCCL_DEBUG", "env.TORCH_NCCL_ASYNC_ERROR_HANDLING", "env.TOKENIZERS_PARALLELISM", "distributed.timeout", "distributed.master_addr", "distributed.master_port", "master_addr", "master_port"]),
    free("lingua.evaluation.*", Cosmetic, Name, "Any other setting of evaluations.").about(Evaluation).called(&["eval", "eval.*"]),
    free("lingua.float8_filter", Carried, Name, "Matrices to convert to float8, if a float8 recipe is set.").about(Numerics).called(&["distributed.float8_filter"]).default_there("layers\\.[0-9]+\\."),
    free("lingua.float8_recipe", Carried, Name, "The float8 recipe.").about(Numerics).called(&["distributed.float8_recipe"]).default_there("none"),
    free("lingua.init_from", Carried, Name, "The initial checkpoint.").called(&["checkpoint.init_ckpt_path"]).default_there("none"),
    free("lingua.launch.*", Cosmetic, Name, "Names, logs, limits and copies of a launch.").called(&["account", "copy_code", "dirs_exists_ok", "gc_collect_freq", "job_name", "launcher", "mem", "ncpu", "qos", "slurm", "stdout", "time"]),
    free("lingua.launch_code.*", Carried, Name, "The code that a launch runs, and the folder that relative paths start from.").called(&["env.PYTHONPATH", "git_commit", "git_sha", "commit"]),
    free("lingua.launch_data.*", Carried, Name, "Folders that a launch mounts: other data under one path.").about(Data),
    free("lingua.launch_hosts.*", Carried, Name, "The machines that a launch asks for, and so their devices.").about(Kernel).called(&["constraint", "exclude", "nodelist", "partition"]),
    free("lingua.launch_libraries.*", Carried, Name, "The libraries that a launch runs with.").called(&["anaconda", "conda_env", "env.CONDA_PREFIX", "env.LD_LIBRARY_PATH", "env.LD_PRELOAD", "env.PATH", "env.VIRTUAL_ENV", "venv"]),
    free("lingua.launch_mode.*", Carried, Name, "What a launch starts, or what it starts from.").called(&["override"]),
    free("lingua.logging.*", Cosmetic, Name, "What to log, and where.").called(&["eval.dump_dir", "eval.metric_log_dir", "eval.name", "eval.wandb", "eval.wandb.*", "logging", "logging.*", "wandb", "wandb.*", "wandb_project", "wandb_url", "log_level", "log_dir", "verbose", "tags", "notes", "description", "run_name", "tensorboard", "tensorboard.*", "mlflow", "mlflow.*", "comet", "comet.*"]),
    free("lingua.max_seqlen", Cosmetic, WHOLE, "Always equal to data.seq_len: the trainer sets it.").called(&["model.max_seqlen"]),
    free("lingua.n_views", Carried, WHOLE, "Shifted copies of a window, for inputs and targets.").about(Data).called(&["data.n_views"]).means("2"),
    free("lingua.node_devices", Carried, WHOLE, "Devices per node.").about(Budget).called(launch!("devices_per_node", "gpus_per_node", "n_gpus_per_node", "ngpu", "num_gpus_per_node"; "trainer.devices", "trainer.n_gpus_per_node")),
    free("lingua.node_tasks", Carried, WHOLE, "Processes per node, taken as devices per node if no key gives those.").about(Budget).called(launch!("nproc_per_node", "ntasks_per_node", "tasks_per_node")),
    free("lingua.nodes", Carried, WHOLE, "Number of nodes.").about(Budget).called(launch!("n_nodes", "nnodes", "nodes", "num_machines", "num_nodes"; "trainer.nnodes", "trainer.num_nodes")),
    free("lingua.profiling.*", Cosmetic, Name, "Settings of the trainer's profiler.").called(&["profiling", "profiling.*"]),
    free("lingua.run_folder.*", Carried, Name, "The run's folder: a trainer resumes from what lies there.").called(&["checkpoint.path", "dump_dir"]),
    free("lingua.setup.*", Cosmetic, Name, "The name of the run, and how processes start.").called(&["distributed.detect_anomaly", "distributed.spawn_method", "name"]),
    free("lingua.tasks", Carried, WHOLE, "Number of processes. Each may have several devices.").about(Budget).called(launch!("ntasks")),
    free("lingua.tp_size", Carried, WHOLE, "Degree of tensor parallelism.").about(Kernel).called(&["distributed.tp_size"]).means("1"),
    free("lingua.visible_devices.*", Carried, Name, "The devices that processes see, and so their number.").about(Budget).called(&["env.CUDA_VISIBLE_DEVICES", "env.ROCR_VISIBLE_DEVICES", "env.HIP_VISIBLE_DEVICES"]),
    free("optimizer.beta1", Semantic, Real(AtLeastZero), "Decay rate of the first moment.").called(&["optim.beta1"]).means("0.9"),
    free("optimizer.beta2", Semantic, Real(AtLeastZero), "Decay rate of the second moment.").called(&["optim.beta2"]).means("0.95"),
    repeated("reported.canon", Name, "Whether slots are filled.").called(&["canon"]),
    repeated("reported.checkpoint_tokens", Real(AtLeastZero), "Tokens between checkpoints.").called(&["checkpoint_every_tokens"]),
    repeated("reported.evaluation_tokens", Real(AtLeastZero), "Tokens between evaluations.").called(&["eval_every_tokens"]),
    repeated("reported.evaluations", Real(AtLeastZero), "Number of evaluations of the run.").called(&["n_evals"]),
    repeated("reported.family", Name, "The author's name for the mixer.").called(&["family"]),
    repeated("reported.head_dim", Real(AtLeastZero), "Width of a head.").called(&["head_dim_derived"]),
    repeated("reported.lr_claim", Real(AtLeastZero), "The learning rate given in the name.").called(&["lr_claim"]),
    repeated("reported.lr_claim_holds", Name, "Whether name and keys give the same learning rate.").called(&["lr_matches_name"]),
    repeated("reported.lr_wd", Real(AtLeastZero), "Learning rate x weight decay.").called(&["lr_x_wd"]),
    repeated("reported.lr_wd_steps", Real(AtLeastZero), "Learning rate x weight decay x steps.").called(&["lr_x_wd_x_steps"]),
    repeated("reported.rope_share", Real(AtLeastZero), "Share of a head to which RoPE applies.").called(&["rope_fraction"]),
    repeated("reported.sequences", Real(AtLeastZero), "Sequences per step.").called(&["seqs_per_step"]),
    repeated("reported.size", Name, "A name for the model's size.").called(&["size"]),
    repeated("reported.tokens", Real(AtLeastZero), "Tokens of the whole training.").called(&["tokens_total"]),
    repeated("reported.tokens_claim", Name, "The tokens given in the name.").called(&["tokens_claim"]),
    repeated("reported.tokens_claim_holds", Name, "Whether name and keys give the same number of tokens.").called(&["claim_ok"]),
    repeated("reported.tokens_per_step", Real(AtLeastZero), "Tokens of one step.").called(&["tokens_per_step"]),
    repeated("reported.warmup_share", Real(AtLeastZero), "Share of the steps used for warmup.").called(&["warmup_frac"]),
    repeated("reported.warmup_tokens", Real(AtLeastZero), "Tokens used for warmup.").called(&["warmup_tokens"]),
    free("revision.dump_keys", Cosmetic, WHOLE, "Number of keys in the trainer's dump.").about(Revision).called(&["lingua_json_nkeys"]),
    free("revision.hf_keys", Cosmetic, WHOLE, "Number of keys in the exported configuration.").about(Revision).called(&["hf_json_nkeys"]),
    free("revision.norm_key", Cosmetic, Name, "Whether the dump has a key for the norm's kernel.").about(Revision).called(&["lingua_json_has_zeyuan_layernorm_key"]),
    free("revision.script", Cosmetic, Name, "The training program.").about(Revision).called(&["script"]),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use lab::field::{Absent, TABLE};

    use super::*;

    #[test]
    fn every_key_has_one_row_and_its_class_agrees_with_its_topic() {
        for pair in FOREIGN.windows(2) {
            assert!(pair[0].path < pair[1].path, "{} before {}", pair[0].path, pair[1].path);
        }
        let rows = || TABLE.iter().chain(FOREIGN);
        let mut names = BTreeSet::new();
        for row in rows() {
            for name in row.foreign.iter().filter(|name| **name != row.path).chain([&row.path]) {
                assert!(names.insert(*name), "{name} twice");
            }
            if let Absent::As(other) = row.absent {
                assert!(rows().any(|known| known.path == other), "{other}");
            }
        }
        for row in FOREIGN {
            assert!(row.doc.ends_with('.'), "{}", row.path);
            assert_eq!(row.topic.decides(), row.reaches_result(), "{}", row.path);
        }
    }
}
