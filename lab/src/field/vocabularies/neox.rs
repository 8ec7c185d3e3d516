//! The keys of GPT-NeoX's YAML files, which contain DeepSpeed's.

use super::super::Topic::{Budget, Cadence, Data, Evaluation, Kernel, Numerics, Training};
use super::{Vocabulary, about, harmless, is};

pub(super) static NEOX: Vocabulary = Vocabulary {
    name: "neox",
    title: "GPT-NeoX's YAML files",
    marks: &[
        "checkpoint_factor", "gpt_j_residual", "model_parallel_size", "no_weight_tying", "optimizer.params.lr",
        "output_layer_init_method", "partition_activations", "pipe_parallel_size", "pos_emb",
        "train_micro_batch_size_per_gpu", "zero_optimization.stage",
    ],
    rows: &[
        is("arch.dim", &["hidden_size"]),
        is("arch.layers", &["num_layers"]),
        is("arch.mixer.heads", &["num_attention_heads"]),
        is("arch.mixer.kv_heads", &["num_kv_heads"]),
        is("arch.mixer.rope.theta", &["rotary_emb_base = 10000"]),
        is("arch.mixer.window", &["sliding_window_width"]),
        is("arch.mlp.hidden", &["intermediate_size"]),
        is("arch.norm_eps", &["layernorm_epsilon", "rms_norm_epsilon"]),
        is("batch.accumulation", &["gradient_accumulation_steps = 1"]),
        is("batch.sequences", &["train_micro_batch_size_per_gpu"]),
        is("budget.steps", &["train_iters"]),
        is("data.seq_len", &["seq_length"]),
        is("optimizer.clip", &["gradient_clipping = 1"]),
        is("optimizer.eps", &["optimizer.params.eps = 1e-8"]),
        is("optimizer.lr", &["optimizer.params.lr"]),
        is("optimizer.weight_decay", &["weight_decay = 0.1"]),
        is("schedule.kind", &["lr_decay_style = linear"]),
        about(Training, &[
            "activation", "apply_query_key_layer_scaling", "attention_config", "attention_config.*", "attention_dropout = 0", "continued_pretraining_transfer", "finetune", "gmlp_attn_dim",
            "gpt_j_residual = false", "gpt_j_tied", "hidden_dropout = 0", "init_method", "init_method_std",
            "iteration", "load", "lr_decay_fraction", "lr_decay_iters", "make_vocab_size_divisible_by", "mamba_*", "max_position_embeddings",
            "min_lr = 0", "min_scale", "moe_*", "mup_*", "no_load_optim", "no_load_rng", "no_weight_tying = false", "norm", "num_experts",
            "opt_pos_emb_offset", "optimizer.*", "optimizer.params.betas", "optimizer.type", "output_layer_init_method",
            "override_lr_scheduler", "parallel_mlp", "pos_emb", "precompute_logprobs", "rope_fusion", "rotary_ndims", "rotary_pct = 1",
            "rpe_max_distance", "rpe_num_buckets", "scalenorm_epsilon", "scheduler.*", "seed = 1234", "soft_prompt_tuning.*",
            "sparsity_config.*", "train_impl", "use_bias_in_attn_linear", "use_bias_in_mlp", "use_bias_in_norms",
            "use_checkpoint_lr_scheduler", "use_mup", "use_qk_layernorm", "warmup = 0.01", "z_loss",
        ]),
        about(Data, &[
            "attention_mask_in_length", "curriculum_learning.*", "data_impl = infer", "data_path", "dataset_impl", "eod_mask_loss", "extra_save_iters_data",
            "label_data_paths", "label_data_paths.*", "merge_file", "pack_impl", "reset_attention_mask", "reset_position_ids",
            "split", "test_data_paths", "test_data_paths.*", "test_data_weights", "tokenizer_type", "train_data_paths", "train_data_paths.*",
            "train_data_weights", "train_dataset_name", "train_label_data_paths", "valid_data_paths", "valid_data_paths.*", "valid_data_weights",
            "vocab_file", "weight_by_num_documents", "weighted_sampler_alpha",
        ]),
        about(Budget, &["batch_size", "train_batch_size", "train_epochs"]),
        about(Numerics, &[
            "amp.*", "attention_softmax_in_fp32", "bf16.*", "bf16", "fp16", "fp16.*", "fp16_lm_cross_entropy", "fp32_allreduce", "fp32_residual_connection",
            "fp8", "fp8_*", "half_precision", "prescale_gradients", "precision",
        ]),
        about(Kernel, &[
            "activation_checkpointing.*", "async_tensor_model_parallel_allreduce", "bias_dropout_fusion", "bias_gelu_fusion", "checkpoint_activations", "checkpoint_in_cpu",
            "checkpoint_num_layers", "column_model_parallel_size", "context_parallel_size", "contiguous_checkpointing", "data_types.*", "deepspeed", "deterministic",
            "depth_model_parallel_size", "distributed_backend = nccl", "expert_interval", "flash_attention", "layernorm_fusion", "model_parallel_size = 1",
            "optimize_axonn_communication", "output_layer_parallelism = column", "partition_activations", "pipe_parallel_size = 0",
            "pipe_partition_method", "rmsnorm_fusion", "row_model_parallel_size", "scaled_masked_softmax_fusion", "scaled_upper_triang_masked_softmax_fusion",
            "sequence_parallel", "synchronize_each_layer", "te_*", "use_axonn_model_parallelism", "use_fused_layernorm", "use_torch_fsdp",
            "zero_allow_untested_optimizer", "zero_optimization.*", "zero_optimization.stage",
        ]),
        about(Evaluation, &["char_level_ppl", "eval_iters = 100", "eval_tasks", "eval_tasks.*", "do_test", "do_valid"]),
        about(Cadence, &[
            "checkpoint_factor", "checkpoint_scale", "eval_interval = 1000", "extra_save_iters", "log_interval = 100", "steps_per_print", "save_iters", "save_iters.*",
        ]),
        harmless("a folder to write to; load says what is read", &["save", "log_dir", "tensorboard_dir"]),
        harmless("says how checkpoints are written", &[
            "checkpoint.*", "checkpoint_validation_with_forward_pass", "keep_last_n_checkpoints", "no_save_optim", "no_save_rng", "s3_chunk_size", "s3_path",
        ]),
        harmless("says what is logged, and where", &[
            "comet_*", "dump_state", "flops_profiler.*", "log_grad_norm", "log_grad_pct_zeros", "log_gradient_noise_scale", "log_optimizer_states", "log_param_norm", "log_level",
            "memory_profiling", "memory_profiling_path", "profile", "profile_backward", "profile_step_start", "profile_step_stop", "tensorboard.*", "tensorboard_writer",
            "use_wandb", "wall_clock_breakdown", "wandb.*", "wandb_group", "wandb_host", "wandb_init_all_ranks", "wandb_project",
            "wandb_run_name", "wandb_team",
        ]),
        harmless("finds processes or waits for them", &[
            "comment", "detect_nvlink_pairs", "local_rank", "master_addr", "master_port", "rank",
        ]),
        harmless("loads the same batches in another way", &["mmap_warmup", "num_workers"]),
    ],
};
