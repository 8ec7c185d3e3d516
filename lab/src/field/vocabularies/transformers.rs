//! The keys of Hugging Face transformers: `TrainingArguments`, and `config.json` of a model.

use super::super::Topic::{Budget, Cadence, Data, Evaluation, Kernel, Numerics, Training};
use super::{Vocabulary, about, harmless, is};

pub(super) static TRANSFORMERS: Vocabulary = Vocabulary {
    name: "transformers",
    title: "`TrainingArguments` and `config.json` of Hugging Face transformers",
    marks: &[
        "adam_beta1", "adam_beta2", "adam_epsilon", "architectures", "dataloader_num_workers",
        "eval_strategy", "evaluation_strategy", "hidden_act", "hidden_size", "initializer_range",
        "intermediate_size", "layer_norm_epsilon", "logging_steps", "lr_scheduler_type", "max_grad_norm",
        "model_type", "n_embd", "n_positions", "num_attention_heads", "num_hidden_layers", "num_key_value_heads",
        "num_train_epochs", "per_device_eval_batch_size", "per_device_train_batch_size", "rms_norm_eps",
        "save_strategy", "tie_word_embeddings", "torch_dtype", "transformers_version", "warmup_ratio",
    ],
    rows: &[
        is("arch.dim", &["hidden_size", "n_embd", "d_model"]),
        is("arch.init.base_std", &["initializer_range"]),
        is("arch.layers", &["num_hidden_layers", "n_layer"]),
        is("arch.mixer.head_dim", &["head_dim"]),
        is("arch.mixer.heads", &["num_attention_heads", "n_head"]),
        is("arch.mixer.kv_heads", &["num_key_value_heads"]),
        is("arch.mixer.rope.theta", &["rope_theta"]),
        is("arch.mixer.window", &["sliding_window"]),
        is("arch.mlp.hidden", &["intermediate_size", "n_inner"]),
        is("arch.norm_eps", &["rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon"]),
        is("arch.tied", &["tie_word_embeddings"]),
        is("arch.vocab", &["vocab_size"]),
        is("batch.accumulation", &["gradient_accumulation_steps = 1"]),
        is("batch.sequences", &["per_device_train_batch_size = 8"]),
        is("optimizer.beta1", &["adam_beta1 = 0.9"]),
        is("optimizer.beta2", &["adam_beta2 = 0.999"]),
        is("optimizer.clip", &["max_grad_norm = 1"]),
        is("optimizer.eps", &["adam_epsilon = 1e-8"]),
        is("optimizer.lr", &["learning_rate = 5e-5"]),
        is("optimizer.weight_decay", &["weight_decay = 0"]),
        is("schedule.kind", &["lr_scheduler_type = linear"]),
        is("schedule.warmup", &["warmup_steps = 0"]),
        about(Training, &[
            "activation_function", "adafactor = false", "architectures.*", "architectures", "attention_bias",
            "attention_dropout", "attention_multiplier", "attention_probs_dropout_prob", "attn_implementation",
            "attn_pdrop", "auto_map.*", "embd_pdrop", "embedding_multiplier", "first_k_dense_replace", "full_determinism",
            "hidden_act", "hidden_activation", "hidden_dropout", "hidden_dropout_prob", "kv_lora_rank",
            "label_smoothing_factor = 0", "layer_types", "layer_types.*", "length_penalty",
            "load_best_model_at_end = false", "logits_scaling", "lr_scheduler_kwargs", "lr_scheduler_kwargs.*",
            "max_position_embeddings", "max_window_layers", "metric_for_best_model", "mlp_bias", "model_name_or_path",
            "model_type", "moe_intermediate_size", "moe_layer_freq", "n_ctx", "n_group", "n_positions",
            "n_routed_experts", "n_shared_experts", "neftune_noise_alpha", "norm_topk_prob", "num_experts",
            "num_experts_per_tok", "num_local_experts", "optim", "optim_args", "optim_target_modules",
            "original_max_position_embeddings", "pad_token_id", "partial_rotary_factor", "q_lora_rank",
            "qk_nope_head_dim", "qk_rope_head_dim", "quantization_config.*", "residual_multiplier", "resid_pdrop",
            "resume_from_checkpoint", "rope_parameters", "rope_parameters.*", "rope_scaling", "rope_scaling.*",
            "rotary_pct", "router_aux_loss_coef", "router_jitter_noise", "routed_scaling_factor", "scale_attn_by_inverse_layer_idx",
            "scale_attn_weights", "scoring_func", "seed = 42", "topk_group", "topk_method", "use_parallel_residual",
            "use_sliding_window", "v_head_dim", "warmup_ratio = 0",
        ]),
        about(Data, &[
            "bos_token_id", "data_seed", "dataloader_drop_last = false", "dataset_config_name", "dataset_name",
            "eos_token_id", "group_by_length = false", "ignore_data_skip = false", "length_column_name", "max_seq_length",
            "block_size", "packing", "remove_unused_columns = true", "tokenizer_name", "train_file",
            "train_sampling_strategy",
        ]),
        about(Budget, &[
            "auto_find_batch_size = false", "average_tokens_across_devices", "max_steps = -1", "num_train_epochs = 3",
            "per_gpu_train_batch_size", "split_batches",
        ]),
        about(Numerics, &[
            "bf16 = false", "bf16_full_eval = false", "dtype", "fp16 = false", "fp16_backend", "fp16_full_eval = false",
            "fp16_opt_level", "half_precision_backend", "tf32", "torch_dtype", "use_cpu = false", "no_cuda",
        ]),
        about(Kernel, &[
            "_attn_implementation", "accelerator_config", "accelerator_config.*", "ddp_bucket_cap_mb", "ddp_backend",
            "deepspeed", "deepspeed.*", "fsdp", "fsdp.*", "fsdp_config", "fsdp_config.*", "gradient_checkpointing = false",
            "gradient_checkpointing_kwargs", "gradient_checkpointing_kwargs.*", "parallelism_config.*", "pretraining_tp",
            "torch_compile = false", "torch_compile_backend", "torch_compile_mode", "use_ipex", "use_liger_kernel = false",
            "liger_kernel_config.*",
        ]),
        about(Evaluation, &[
            "batch_eval_metrics", "do_eval", "do_predict", "eval_accumulation_steps", "eval_do_concat_batches",
            "include_for_metrics", "label_names", "per_device_eval_batch_size = 8", "prediction_loss_only",
        ]),
        about(Cadence, &[
            "eval_delay", "eval_on_start", "eval_steps", "eval_strategy", "evaluation_strategy", "logging_first_step",
            "logging_steps = 500", "logging_strategy = steps", "save_steps = 500", "save_strategy = steps",
        ]),
        harmless("a folder to write to; resume_from_checkpoint says what is read", &[
            "logging_dir", "output_dir", "overwrite_output_dir",
        ]),
        harmless("says what is logged, and where", &[
            "disable_tqdm", "include_num_input_tokens_seen", "include_tokens_per_second", "log_level", "log_level_replica",
            "log_on_each_node", "logging_nan_inf_filter", "project", "report_to", "report_to.*", "run_name",
            "skip_memory_metrics", "trackio_space_id",
        ]),
        harmless("says which files are kept or uploaded", &[
            "greater_is_better", "hub_always_push", "hub_model_id", "hub_private_repo", "hub_revision", "hub_strategy",
            "hub_token", "push_to_hub", "push_to_hub_model_id", "push_to_hub_organization", "push_to_hub_token",
            "save_on_each_node", "save_only_model", "save_safetensors", "save_total_limit",
            "restore_callback_states_from_checkpoint", "enable_jit_checkpoint",
        ]),
        harmless("loads the same batches in another way", &[
            "dataloader_num_workers", "dataloader_persistent_workers", "dataloader_pin_memory",
            "dataloader_prefetch_factor", "preprocessing_num_workers",
        ]),
        harmless("finds processes, waits for them, or searches for errors", &[
            "ddp_timeout", "debug", "debug.*", "ddp_find_unused_parameters", "local_rank", "torch_empty_cache_steps",
        ]),
        harmless("says which parts of a script run", &["do_train"]),
        harmless("a record that nothing reads while training", &[
            "_commit_hash", "_name_or_path", "transformers_version", "total_flos",
        ]),
        harmless("read only when text is generated", &["use_cache", "generation_config", "generation_max_length", "generation_num_beams"]),
        harmless("read only by heads for classification or summaries", &[
            "id2label.*", "label2id.*", "problem_type", "summary_activation", "summary_first_dropout",
            "summary_proj_to_labels", "summary_type", "summary_use_proj", "task_specific_params.*",
        ]),
    ],
};
