//! The keys of nanoGPT's `train.py` and its configuration files, with the defaults of that file.

use super::{Vocabulary, about, harmless, is};
use lab::field::Topic::{Budget, Cadence, Data, Kernel, Numerics, Training};

pub(super) static NANOGPT: Vocabulary = Vocabulary {
    name: "nanogpt",
    title: "nanoGPT's `train.py`",
    marks: &[
        "always_save_checkpoint",
        "block_size",
        "decay_lr",
        "eval_iters",
        "lr_decay_iters",
        "max_iters",
        "wandb_log",
        "warmup_iters",
    ],
    rows: &[
        is("arch.dim", &["n_embd = 768"]),
        is("arch.layers", &["n_layer = 12"]),
        is("arch.mixer.heads", &["n_head = 12"]),
        is("arch.vocab", &["vocab_size"]),
        is("batch.sequences", &["batch_size = 12"]),
        is("budget.steps", &["max_iters = 600000"]),
        is("data.seq_len", &["block_size = 1024"]),
        is("optimizer.beta1", &["beta1 = 0.9"]),
        is("optimizer.beta2", &["beta2 = 0.95"]),
        is("optimizer.clip", &["grad_clip = 1"]),
        is("optimizer.lr", &["learning_rate = 6e-4"]),
        is("optimizer.weight_decay", &["weight_decay = 0.1"]),
        is("schedule.warmup", &["warmup_iters = 2000"]),
        about(
            Training,
            &[
                "bias = false",
                "decay_lr = true",
                "dropout = 0",
                "init_from = scratch",
                "lr_decay_iters = 600000",
                "min_lr = 6e-5",
                "seed",
                "seed_offset",
            ],
        ),
        about(Data, &["data_dir", "dataset = openwebtext"]),
        // Divided by the number of processes, so it is no accumulation for each device.
        about(Budget, &["eval_only = false", "gradient_accumulation_steps = 40"]),
        about(Numerics, &["dtype"]),
        about(Kernel, &["backend = nccl", "compile = true", "device = cuda"]),
        about(Cadence, &["eval_interval = 2000", "log_interval = 1"]),
        // The loss of a checkpoint is estimated from so many batches.
        about(lab::field::Topic::Evaluation, &["eval_iters = 200"]),
        harmless("a folder to write to, read only with init_from resume", &["out_dir = out"]),
        harmless("says when files are written", &["always_save_checkpoint = true"]),
        harmless(
            "reports to W&B",
            &["wandb_log = false", "wandb_project = owt", "wandb_run_name = gpt2"],
        ),
    ],
};
