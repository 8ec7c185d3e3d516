//! The keys of torchtitan's job configurations (`job_config.py` and the TOML files of its models).

use super::super::Topic::{Budget, Cadence, Data, Evaluation, Kernel, Numerics, Training};
use super::{Vocabulary, about, harmless, is};

pub(super) static TORCHTITAN: Vocabulary = Vocabulary {
    name: "torchtitan",
    title: "torchtitan's TOML files",
    marks: &[
        "activation_checkpoint.mode", "checkpoint.enable_checkpoint", "checkpoint.interval", "experimental.*", "job.*",
        "lr_scheduler.warmup_steps", "metrics.log_freq", "model.flavor", "parallelism.*", "training.data_parallel_shard_degree",
        "training.local_batch_size", "training.seq_len", "training.warmup_steps",
    ],
    rows: &[
        is("batch.sequences", &["training.local_batch_size = 8", "training.batch_size"]),
        is("budget.steps", &["training.steps = 10000"]),
        is("data.seq_len", &["training.seq_len = 2048"]),
        is("optimizer.beta1", &["optimizer.beta1 = 0.9"]),
        is("optimizer.beta2", &["optimizer.beta2 = 0.95"]),
        is("optimizer.clip", &["training.max_norm = 1"]),
        is("optimizer.eps", &["optimizer.eps = 1e-8"]),
        is("optimizer.lr", &["optimizer.lr = 8e-4"]),
        is("optimizer.weight_decay", &["optimizer.weight_decay = 0.1"]),
        is("schedule.warmup", &["lr_scheduler.warmup_steps = 200", "training.warmup_steps"]),
        about(Training, &[
            "job.config_file", "job.custom_config_module", "job.custom_import", "experimental.custom_args_module",
            "experimental.custom_import", "experimental.custom_model_path", "checkpoint.exclude_from_loading",
            "checkpoint.exclude_from_loading.*", "checkpoint.folder", "checkpoint.initial_load_in_hf",
            "checkpoint.initial_load_model_only", "checkpoint.initial_load_path", "checkpoint.load_step",
            "checkpoint.create_seed_checkpoint", "lr_scheduler.*", "model.flavor", "model.name", "model.norm_type",
            "model.converters", "model.converters.*", "model.print_after_conversion", "model.*", "optimizer.*",
            "optimizer.name = AdamW", "training.deterministic", "training.seed", "debug.seed", "debug.deterministic",
            "debug.deterministic_warn_only", "debug.moe_force_load_balance", "training.loss_parallel",
        ]),
        about(Data, &[
            "dataloader.*", "model.hf_assets_path", "model.tokenizer_path", "training.data_path", "training.dataset",
            "training.dataset_path", "training.dataset.*", "training.dataloader.*",
        ]),
        about(Budget, &["training.global_batch_size", "training.gradient_accumulation_steps"]),
        about(Numerics, &[
            "float8.*", "mx.*", "quantize.*", "training.dtype", "training.mixed_precision_param = bfloat16",
            "training.mixed_precision_reduce = float32", "training.fp8_linear",
        ]),
        about(Kernel, &[
            "activation_checkpoint.*", "activation_checkpoint.mode", "compile.*", "experimental.*", "optimizer.early_step_in_backward",
            "optimizer.fused", "optimizer.foreach", "optimizer.implementation", "parallelism.*", "training.compile",
            "training.data_parallel_degree", "training.data_parallel_replicate_degree",
            "training.data_parallel_shard_degree", "training.enable_cpu_offload", "training.tensor_parallel_degree",
            "training.pipeline_parallel_degree", "fault_tolerance.*",
        ]),
        about(Evaluation, &["validation.*"]),
        about(Cadence, &[
            "checkpoint.interval", "metrics.log_freq = 10", "training.gc_freq", "validation.freq",
        ]),
        harmless("names and describes the job", &["job.description", "job.print_args", "job.print_config", "job.use_for_integration_test", "job.save_config_file", "debug.print_config", "debug.save_config_file"]),
        harmless("says what is logged, and where", &[
            "metrics.disable_color_printing", "metrics.enable_color_printing", "metrics.enable_tensorboard",
            "metrics.enable_wandb", "metrics.rank_0_only", "metrics.save_for_all_ranks", "metrics.save_tb_folder",
            "metrics.log_norm", "metrics.*",
        ]),
        harmless("records profiles", &["profiling.*"]),
        harmless("says how checkpoints are written", &[
            "checkpoint.async_mode", "checkpoint.enable", "checkpoint.enable_checkpoint",
            "checkpoint.enable_first_step_checkpoint", "checkpoint.export_dtype", "checkpoint.keep_latest_k",
            "checkpoint.last_save_in_hf", "checkpoint.last_save_model_only", "checkpoint.last_save_model_weights_only",
            "checkpoint.model_weights_only",
        ]),
        // A job resumes from the checkpoints below it.
        about(Training, &["job.dump_folder"]),
        harmless("waits for processes, or prints what they do", &["comm.*"]),
        harmless("estimates memory without training", &["memory_estimation.*"]),
        about(Training, &["job.*"]),
    ],
};
