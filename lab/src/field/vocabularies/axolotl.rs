//! The keys of axolotl's YAML files.

use super::super::Topic::{Budget, Cadence, Data, Evaluation, Kernel, Numerics, Training};
use super::{Vocabulary, about, harmless, is};

pub(super) static AXOLOTL: Vocabulary = Vocabulary {
    name: "axolotl",
    title: "axolotl's YAML files",
    marks: &[
        "base_model", "dataset_prepared_path", "eval_sample_packing", "evals_per_epoch", "load_in_4bit", "load_in_8bit",
        "lora_target_linear", "lr_scheduler", "pad_to_sequence_len", "pretraining_dataset", "sample_packing",
        "saves_per_epoch", "sequence_len", "train_on_inputs", "val_set_size",
    ],
    rows: &[
        is("batch.accumulation", &["gradient_accumulation_steps = 1"]),
        is("batch.sequences", &["micro_batch_size"]),
        is("data.seq_len", &["sequence_len"]),
        is("optimizer.beta1", &["adam_beta1"]),
        is("optimizer.beta2", &["adam_beta2"]),
        is("optimizer.clip", &["max_grad_norm"]),
        is("optimizer.eps", &["adam_epsilon"]),
        is("optimizer.lr", &["learning_rate"]),
        is("optimizer.weight_decay", &["weight_decay = 0"]),
        is("schedule.kind", &["lr_scheduler = cosine"]),
        is("schedule.warmup", &["warmup_steps"]),
        about(Training, &[
            "adapter", "base_model", "base_model_config", "chat_template", "cls_model_config", "cosine_constant_lr_ratio", "cosine_min_lr_ratio",
            "dpo_beta", "dpo_*", "early_stopping_patience", "embedding_lr", "embedding_lr_scale", "freeze_*", "is_falcon_derived_model", "is_llama_derived_model",
            "is_mistral_derived_model", "jagged_restart_*", "kto_*", "label_smoothing_factor", "lisa_*", "llama4_*", "lora_*", "lora_alpha",
            "lora_dropout", "lora_fan_in_fan_out", "lora_model_dir", "lora_modules_to_save", "lora_modules_to_save.*", "lora_r", "lora_target_linear", "lora_target_modules",
            "lora_target_modules.*", "loraplus_*", "loss_watchdog_patience", "loss_watchdog_threshold", "lr_groups", "lr_groups.*", "lr_quadratic_warmup",
            "lr_scheduler_kwargs", "lr_scheduler_kwargs.*", "merge_lora", "model_config", "model_type", "neftune_noise_alpha", "noisy_embedding_alpha", "optim_args", "optim_args.*",
            "optim_target_modules", "optimizer", "orpo_alpha", "overrides_of_model_config.*", "overrides_of_model_kwargs.*", "peft.*", "peft_*", "plugins", "plugins.*", "qat.*",
            "relora", "relora_*", "reinit_weights", "reward_model", "resume_from_checkpoint", "auto_resume_from_checkpoints", "revision_of_model", "rl", "rl_beta", "rope_scaling", "rope_scaling.*",
            "save_only_model", "seed", "simpo_gamma", "strict", "trl.*", "trust_remote_code", "unfrozen_parameters", "unfrozen_parameters.*",
            "use_scattermoe", "warmup_ratio", "rpo_alpha", "custom_module", "llmcompressor.*",
        ]),
        about(Data, &[
            "added_tokens_overrides.*", "chat_template_jinja", "curriculum_sampling", "data_seed", "dataset_exact_deduplication", "dataset_prepared_path_is_source", "dataset_shard_idx", "dataset_shard_num", "datasets", "datasets.*",
            "default_system_message", "eval_sample_packing", "excess_length_strategy", "group_by_length = false", "min_sample_len", "multipack_real_batches", "pad_to_sequence_len",
            "pretrain_multipack_attn", "pretrain_multipack_buffer_size", "pretraining_dataset", "pretraining_dataset.*", "pretraining_sample_concatenation",
            "remove_unused_columns", "sample_packing", "sample_packing_*", "shuffle_before_merging_datasets", "shuffle_merged_datasets", "skip_prepare_dataset", "special_tokens", "special_tokens.*",
            "split_thinking", "streaming", "test_datasets", "test_datasets.*", "tokenizer_config", "tokenizer_legacy", "tokenizer_type", "tokenizer_use_fast", "tokenizer_use_mistral_common", "tokens", "tokens.*",
            "train_on_inputs = false", "unfrozen_tokens", "val_set_size = 0",
        ]),
        about(Budget, &["auto_find_batch_size", "batch_size", "max_steps", "num_epochs"]),
        about(Numerics, &[
            "bf16", "bfloat16", "float16", "float32", "fp16", "fp8", "fp8_*", "gptq", "load_in_4bit = false", "load_in_8bit = false", "low_cpu_mem_usage", "mxfp4", "tf32", "torch_dtype",
            "bnb_config_kwargs.*",
        ]),
        about(Kernel, &[
            "attn_implementation", "cut_cross_entropy", "context_parallel_size", "ddp", "ddp_*", "deepspeed", "deepspeed.*", "device_map", "device", "dp_shard_size", "dp_replicate_size", "eager_attention", "experimental_skip_move_to_device", "flash_attention", "flash_attn_cross_entropy",
            "flash_attn_fuse_mlp", "flash_attn_fuse_qkv", "flash_attn_rms_norm", "flash_optimum", "flex_attention", "flex_attn_compile_kwargs.*", "fsdp", "fsdp.*", "fsdp_config", "fsdp_config.*", "fsdp_version", "fused_attn_kernel",
            "gpu_memory_limit", "gradient_checkpointing", "gradient_checkpointing_kwargs", "gradient_checkpointing_kwargs.*", "activation_offloading", "layer_offloading", "heads_k_stride", "liger_*", "max_memory", "ring_attn_func",
            "s2_attention", "sdp_attention", "sequence_parallel_degree", "tensor_parallel_size", "tiled_mlp", "tiled_mlp_*", "torch_compile", "torch_compile_*", "unsloth_*", "use_kernels", "use_ray", "ray_num_workers", "resources_per_worker.*", "xformers_attention",
        ]),
        about(Evaluation, &[
            "bench_dataset", "do_bench_eval", "do_causal_lm_eval", "eval_batch_size", "eval_causal_lm_metrics", "eval_causal_lm_metrics.*", "eval_max_new_tokens", "eval_table_size", "metric_for_best_model", "greater_is_better", "lm_eval_*",
        ]),
        about(Cadence, &[
            "eval_on_start", "eval_steps", "eval_strategy", "evals_per_epoch", "evaluation_strategy", "logging_steps", "save_steps", "save_strategy", "saves_per_epoch",
        ]),
        harmless("a folder to write to; resume_from_checkpoint says what is read", &["output_dir"]),
        harmless("a cache of the prepared data sets", &["dataset_prepared_path", "dataset_keep_in_memory", "dataset_processes", "push_dataset_to_hub"]),
        harmless("says which files are kept or uploaded", &[
            "hub_model_id", "hub_strategy", "hub_revision", "save_first_step", "save_safetensors", "save_total_limit", "hf_use_auth_token",
        ]),
        harmless("says what is logged, and where", &[
            "comet_*", "include_tokens_per_second", "include_tkps", "log_*", "mlflow_*", "otel_*", "profiler_steps", "profiler_steps_start", "ray_run_name", "report_to", "swanlab_*", "tensorboard_*", "trackio_*", "use_comet", "use_mlflow", "use_otel_metrics", "use_swanlab", "use_tensorboard", "use_trackio", "use_wandb", "wandb_*", "wandb_entity",
            "wandb_log_model", "wandb_mode", "wandb_name", "wandb_project", "wandb_run_id", "wandb_watch",
        ]),
        harmless("finds processes, waits for them, or searches for errors", &["ddp_timeout", "debug", "gc_steps", "local_rank", "main_process_port", "world_size_for_logging"]),
        harmless("loads the same batches in another way", &["dataloader_num_workers", "dataloader_pin_memory", "dataloader_prefetch_factor"]),
    ],
};
