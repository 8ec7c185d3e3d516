//! Messages about the keys of Lingua's `params.json` and of recipes for its trainer.

use super::super::config::{KeyRule, Keys};
use super::rule;

/// Keys that change the computation for every family.
pub(crate) const GENERAL: [KeyRule; 6] = [
    rule(&[], "`model.sliding_window` is {}, which the reference ignores unless attention is fmha"),
    rule(&["false"], "`model.zeyuan_linearT` is {}, and its kernel is unknown"),
    rule(
        &["false"],
        "`model.zeyuan_alternate` is {}, and layers do not alternate in released models",
    ),
    rule(&[], "`model.zeyuan_double` is {}, and released models do not merge layers"),
    rule(&[], "`model.init_base_std` is {}, and that initialization cannot be expressed"),
    rule(
        &["disabled"],
        "`model.init_std_factor` is {}, and that initialization cannot be expressed",
    ),
];
pub(crate) const FAMILIES: KeyRule = rule(
    &["Llama", "GLA5", "GDN2", "Mamba2"],
    "`model.model_name` is {}, and only the families of the release are supported",
);
/// Keys that a Llama does not have.
pub(crate) const LLAMA: [KeyRule; 3] = [
    rule(&[], "`model.mlp_type` is {}, and Llama has none"),
    rule(&[], "`model.mamba_ssm` is {}, and Llama has none"),
    rule(&["false"], "`model.zeyuan_layernorm` is {}, and Llama has no gated norm"),
];
pub(crate) const MAMBA2: [KeyRule; 3] = [
    rule(&["mlp10"], "`model.mlp_type` is {}, and the released MLP is mlp10"),
    rule(&["false"], "`model.zeyuan_layernorm` is {}, and Mamba2 has no choice of gated norms"),
    rule(
        &["1e-5"],
        "`model.norm_eps` is {}, which Mamba2 stores and never reads: it computes with 1e-5",
    ),
];

/// The sentence for a key that a linear family ignores.
pub(crate) fn no_effect(key: &str, family: &str) -> String {
    format!("`{key}` is {{}}, which has no effect for {family}: the reference ignores it")
}

refusals! {
    no_model["model"]():
        "`model` is {}, and it says what is trained",
        "give Lingua's params.json, or a recipe of its trainer";
    unknown_vocab["data.tokenizer.name"](known: &str):
        "`data.tokenizer.name` is {}, and it should be one of {known}",
        "with another tokenizer, write `model.vocab_size`";
    no_heads["model.n_heads"]():
        "`model.n_heads` is {}, and so is `model.head_dim`",
        "write one of the two";
    no_multiple["model.multiple_of"]():
        "`model.multiple_of` is {}, and it should be above 0",
        "write 256";
    no_multiplier["model.ffn_dim_multiplier"]():
        "`model.ffn_dim_multiplier` is {}, and the MLP's width cannot be computed from it",
        "write `model.hidden_dim`";
    width_without_mlp["model.hidden_dim"]():
        "`model.hidden_dim` is {}, and a Mamba2 without `mlp_type` has no MLP",
        "write `mlp_type: mlp10`, or remove it";
}

/// Keys of training that have one value.
pub(crate) const TRAINING: [KeyRule; 8] = [
    rule(&["1000"], "`optim.annealing_step` is {}, which no scheduler of the release reads"),
    rule(&["2"], "`data.n_views` is {}, and inputs and targets are two views"),
    rule(&["1"], "`distributed.tp_size` is {}, and tensor parallelism is not supported"),
    rule(&[], "`distributed.float8_recipe` is {}, and float8 is not supported"),
    rule(
        &["true", "false"],
        "`distributed.allow_bf16_reduced_precision_reduction` is {}, and it should be true or false",
    ),
    rule(&[], "`eval.validation` is {}, and validation sets cannot be expressed"),
    rule(&[], "`checkpoint.init_ckpt_path` is {}, and a run starts from its own initial values"),
    rule(&["false"], "`checkpoint.continue_training_from_init` is {}, and a run starts at step 0"),
];

/// The sentence for a setting that only other schedules have.
pub(crate) fn other_schedule(key: &str, kind: &str) -> String {
    format!("`{key}` is {{}}, which has no effect with `optim.scheduler` {kind}")
}

refusals! {
    joined_source[key](key: &str):
        "`{key}` is {}, and `+` joins sources here",
        "rename the source";
    fine_weights["data.sources"]():
        "`data.sources` is {}, and its weights have more than nine decimals",
        "write fewer decimals";
    unknown_tokenizer["data.tokenizer.name"]():
        "`data.tokenizer.name` is {}, and it should be bytes, sp or tiktoken",
        "prepare the data with one of them";
    other_devices[key](key: &str, known: i64, given: i64):
        "`{key}` is {}, so that there are {known} devices, and --devices is {given}",
        "remove --devices, or name the file of that run";
    no_devices["distributed.dp_shard"]():
        "`distributed.dp_shard` is {}, so no key determines the tokens of a step",
        "give the number of GPUs of the run: `--devices 128`; published recipes have it only in their \
         first comment";
    number_of_micro_batches["grad_acc_steps"](devices: i64):
        "`grad_acc_steps` is {}, and with {devices} devices a step has no micro-batch or too many",
        "check its value";
    tasks_are_no_list["eval.harness.tasks"]():
        "`eval.harness.tasks` is {}, and it should be a list",
        "list the tasks";
    other_task["eval.harness.tasks"](entry: &str):
        "`eval.harness.tasks` is {}, and the entry {entry} has more than a name",
        "only the release's own entries of boolq, social_iqa and lambada_openai are supported";
    size_of_buffer["data.prefetch_size"]():
        "`data.prefetch_size` is {}, and no buffer has that many batches",
        "check its value";
}
