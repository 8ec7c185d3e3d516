//! Messages about keys of a configuration that cannot be taken as they are: whole sentences, with `{}` for its value.

use dsl::{Decimal, Problem};

use super::config::{KeyRule, Keys};
use super::torch;

/// Errors about a key: name, key and arguments; the sentence, with `{}` for the key's value; what to do.
macro_rules! refusals {
    ($($name:ident[$key:expr]($($arg:ident: $type:ty),*): $sentence:literal, $help:expr;)*) => {$(
        pub(crate) fn $name(keys: &Keys<'_>, $($arg: $type),*) -> dsl::Problem {
            keys.error($key, format!($sentence, keys.value($key)), $help)
        }
    )*};
}

pub(crate) mod lingua;

pub(crate) const fn rule(values: &'static [&'static str], sentence: &'static str) -> KeyRule {
    KeyRule { values, sentence }
}

/// Keys that any class may have.
pub(crate) const GENERAL: [KeyRule; 4] = [
    rule(&["false"], "`is_encoder_decoder` is {}, and only decoders are supported"),
    rule(&["{}"], "`pruned_heads` is {}, and heads cannot be pruned"),
    rule(&["1"], "`pretraining_tp` is {}, and it changes how numbers are rounded"),
    rule(&["0"], "`attention_dropout` is {}, and dropout inside attention cannot be expressed"),
];
pub(crate) const USE_L2WARP: KeyRule =
    rule(&["false"], "`use_l2warp` is {}, and that penalty is not supported");

pub(crate) const ATTENTION_BIAS: KeyRule =
    rule(&["false"], "`attention_bias` is {}, and attention has no biases here");
pub(crate) const MLP_BIAS: KeyRule =
    rule(&["false"], "`mlp_bias` is {}, and the MLP has no biases here");
pub(crate) const SILU: KeyRule = rule(&["silu"], "`hidden_act` is {}, and the MLP's gate is silu");
pub(crate) const BIDIRECTIONAL: KeyRule =
    rule(&["false"], "`use_bidirectional_attention` is {}, and tokens see only the past");
pub(crate) const WHOLE_HEAD: KeyRule =
    rule(&["1"], "`partial_rotary_factor` is {}, and RoPE rotates the whole head");
pub(crate) const WHOLE_HEAD_5: KeyRule =
    rule(&["1"], "`rope_parameters.partial_rotary_factor` is {}, and RoPE rotates the whole head");
pub(crate) const WHOLE_HEAD_SCALED: KeyRule =
    rule(&["1"], "`rope_scaling.partial_rotary_factor` is {}, and RoPE rotates the whole head");
pub(crate) const ROPE_SCALING: KeyRule = rule(&[], "`rope_scaling` is {}, and RoPE is not scaled");
pub(crate) const NO_SWITCH: KeyRule = rule(
    &["false"],
    "`use_sliding_window` is {}, and this class ignores it: only a configuration of Qwen switches windows on",
);
pub(crate) const NO_WINDOW: KeyRule =
    rule(&[], "`sliding_window` is {}, and this class ignores it");
pub(crate) const OTHER_WINDOW: &str =
    "`sliding_window_size` is {}, and `sliding_window` is another";
pub(crate) const SCORE_SCALE: KeyRule =
    rule(&["default"], "`canonc.score_scale` is {}, and it should be \"default\"");
pub(crate) const IGNORED: &str = "this class ignores it";

refusals! {
    other_class["architectures"](model_type: &str, class: &str):
        "`architectures` is {}, and a `model_type` of {model_type} is a {class}",
        "use a model that predicts the next token";
}

pub(crate) fn unknown_class(keys: &Keys<'_>, model_type: Option<&str>, types: &[&str]) -> Problem {
    let key = "model_type";
    let types = types.join(", ");
    let message = format!("`{key}` is {}, and it should be one of {types}", keys.value(key));
    let help = match model_type {
        Some(torch::MODEL_TYPE) => {
            "its arch is the arch.canon that `canonc export` wrote: with that beside it, every command takes this \
             folder as it is, and nothing is left to import"
        }
        _ => "other families cannot be imported; write such an arch in .canon",
    };
    keys.error(key, message, help)
}

refusals! {
    unknown_init["canonc.init"]():
        "`canonc.init` is {}, and it should be a table of std/init.canon",
        "remove it: it only describes initial parameters";
    rows_are_not_turned["canonc.rope_layout"]():
        "`canonc.rope_layout` is {}, and this model's rows are not reordered",
        "remove it";
    no_such_slot[key](key: &str, slot: char, letters: &str):
        "`{key}` is {}, and `{slot}` is not a slot of this family, which has {letters}",
        "leave that letter out";
    canon_has_no_bias[key](key: &str):
        "`{key}` is {}, and the reference stops at it: no Canon layer has a bias",
        "write false";
    wrong_canon_kernel[key](key: &str):
        "`{key}` is {}, and it should be from 1 to 64",
        "write 4";
    unequal_heads[key](key: &str, heads: i64):
        "`{key}` is {}, which is not a multiple of {heads} heads",
        "write `head_dim`";
    no_rotated_channels[key](key: &str):
        "`{key}` is {}, with which Lingua crashes and Hugging Face rotates the whole head",
        "write null for the whole head";
    odd_rotated_channels[key](key: &str, head_dim: i64):
        "`{key}` is {}, and it should be an even number up to the head's {head_dim}",
        "write null for the whole head";
    rotated_part["partial_rotary_factor"](rope_dims: i64, head_dim: i64):
        "`partial_rotary_factor` is {}, and `rope_dim` makes it {rope_dims} of {head_dim} channels",
        "make them agree, or write `rope_dim` alone";
    unknown_rope_version["rope_version"]():
        "`rope_version` is {}, and it should be \"huggingface\" or \"lingua\"",
        "weights from Lingua need \"lingua\"";
}

/// The sentence for the kind of RoPE of a class that never scales it.
pub(crate) fn kind_is_default(key: &str) -> String {
    format!("`{key}` is {{}}, and RoPE is not scaled")
}

refusals! {
    rope_is_not_scaled[key](key: &str):
        "`{key}` is {}, and RoPE is not scaled",
        "only null can be expressed";
    other_theta["rope_theta"](in_map: Decimal):
        "`rope_theta` is {}, and `rope_parameters.rope_theta` is {in_map}",
        "make them agree";
    other_kind_of_rope[key](key: &str, map: &str, kind: &str):
        "`{key}` is {}, and `{map}.rope_type` is {kind:?}",
        "make them agree";
    second_map_of_rope[key](key: &str, first: &str):
        "`{key}` is {}, and `{first}` is there, too",
        "keep one of them";
    unknown_kind_of_rope[key](key: &str):
        "`{key}` is {}, and RoPE can be default, linear, llama3 or yarn here",
        "change the arch after an import with one of them, in .canon";
    no_rope_setting[key](key: &str, kind: &str):
        "`{key}` is {}, and a `rope_type` of {kind} needs a number above 0",
        "write it";
    low_high_frequency[key](key: &str, low: Decimal):
        "`{key}` is {}, and it should be above `low_freq_factor`, {low}",
        "write it as the class does";
    yarn_needs_theta[key](key: &str, theta: Decimal):
        "`{key}` is {}, and YaRN needs a `rope_theta` above 1, not {theta}",
        "give the original configuration";
}

/// The sentence for the start of YaRN's ramp.
pub(crate) fn yarn_begins_at_32(key: &str) -> String {
    format!("`{key}` is {{}}, and YaRN's ramp begins at 32 turns here")
}

/// The sentence for the end of YaRN's ramp.
pub(crate) fn yarn_ends_at_1(key: &str) -> String {
    format!("`{key}` is {{}}, and YaRN's ramp ends at 1 turn here")
}

refusals! {
    yarn_needs_factor[key](key: &str):
        "`{key}` is {}, and a `rope_type` of yarn needs a number of 1 or more",
        "write it";
    yarn_no_multiple[key](key: &str, length: i64, original: i64):
        "`{key}` is {}, and {length} positions are no multiple of the {original} trained ones",
        "write it";
    yarn_shortens[key](key: &str):
        "`{key}` is {}, and YaRN needs a factor of 1 or more",
        "give the original configuration";
    yarn_magnitude[key](key: &str, factor: Decimal, usual: f64):
        "`{key}` is {}, and the factor of cos and sin is YaRN's own, 0.1 ln({factor}) + 1 = {usual}",
        "remove it or write null";
    yarn_mscale[key](key: &str, all: Decimal, factor: Decimal):
        "`{key}` is {}, and `mscale_all_dim` is {all}, but the factor of cos and sin is YaRN's own, 0.1 ln({factor}) + 1",
        "remove both or write null";
    no_hidden["intermediate_size"]():
        "`intermediate_size` is {}, and it has no default",
        "write it";
    default_hidden["intermediate_size"]():
        "`intermediate_size` is {}, which the class takes as 11008",
        "write it, or null for 8/3 of the width";
    class_has_no_biases["attention_bias"](class: &str):
        "`attention_bias` is {}, and attention of {class} has no biases here",
        "only false can be expressed";
    unknown_gate[key](key: &str):
        "`{key}` is {}, and a gated MLP has silu or gelu_pytorch_tanh here",
        "change the arch after the import, in .canon";
}

/// The sentence for an older key of the activation.
pub(crate) fn other_gate(key: &str, name: &str) -> String {
    format!("`hidden_act` is {{}}, and `{key}` is {name:?}")
}

refusals! {
    wrong_score["query_pre_attn_scalar"]():
        "`query_pre_attn_scalar` is {}, and it should be a whole number above 0",
        "write it as the class does";
    other_score["canonc.score_scale"](head_dim: i64):
        "`canonc.score_scale` is {}, and `query_pre_attn_scalar` is not the heads' width, {head_dim}",
        "remove it";
    cap_needs_table["tie_word_embeddings"](cap: Decimal):
        "`tie_word_embeddings` is {}, and `final_logit_softcapping` is {cap}, which needs the token table",
        "only true can be expressed";
    too_many_layers["num_hidden_layers"](most: usize):
        "`num_hidden_layers` is {}, and an arch has at most {most} layers",
        "give the original configuration";
    empty_window["sliding_window"]():
        "`sliding_window` is {}, and a window of 0 tokens sees nothing",
        "write null for the whole past";
}

const LAYER_TYPES: &str =
    "list \"full_attention\" or \"sliding_attention\" for each layer, as the class does";

refusals! {
    layer_types_are_no_list["layer_types"]():
        "`layer_types` is {}, and it should be a list",
        LAYER_TYPES;
    layer_types_are_ignored["layer_types"]():
        "`layer_types` is {}, and this class ignores it: `sliding_window` decides",
        LAYER_TYPES;
    number_of_layer_types["layer_types"](types: usize, layers: i64):
        "`layer_types` is {}, with {types} layers, and `num_hidden_layers` is {layers}",
        LAYER_TYPES;
    layer_without_window["layer_types"](layer: usize):
        "`layer_types` is {}, and layer {layer} would have a window, but the other keys give none",
        LAYER_TYPES;
    unknown_layer_type["layer_types"](layer: usize, kind: &str):
        "`layer_types` is {}, and the kind of layer {layer}, {kind:?}, is unknown",
        LAYER_TYPES;
}

/// Keys of GLA and GatedDeltaNet that come before those below.
pub(crate) const ATTN_MODE: KeyRule = rule(
    &["chunk", "fused_chunk", "fused_recurrent"],
    "`attn_mode` is {}, and this is not an implementation of attention",
);
pub(crate) const EXPAND_K: &str = "`expand_k` is {}, and keys are as wide as the model";
pub(crate) const EXPAND_V: &str = "`expand_v` is {}, and values are twice as wide as the model";
pub(crate) const OUTPUT_GATE_RANK: &str =
    "`output_gate_rank` is {}, and the released gate has rank 16";
/// Keys that have one value in every released GLA and GatedDeltaNet.
pub(crate) const FLASH_LINEAR_GATES: [KeyRule; 4] = [
    rule(&["true"], "`use_gate` is {}, and the mixer has an output gate"),
    rule(&["true"], "`use_output_gate` is {}, and the mixer has an output gate"),
    rule(&["true"], "`use_gk` is {}, and the mixer has a decay"),
    rule(&["false"], "`use_gv` is {}, and values do not decay"),
];
/// Further keys that have one value in every released GLA and GatedDeltaNet.
pub(crate) const FLASH_LINEAR: [KeyRule; 9] = [
    rule(&["4"], "`conv_size` is {}, and the mixer's own convolution spans 4"),
    rule(&["swish", "silu"], "`hidden_act` is {}, and the MLP's gate is silu"),
    rule(&[], "`feature_map` is {}, and the reference does not use it"),
    rule(&[], "`clamp_min` is {}, and the reference does not use it"),
    rule(&[], "`attn` is {}, and all layers are of one kind"),
    rule(
        &["true"],
        "`zeyuan_split_init` is {}, and the gate's two matrices start as in the release",
    ),
    rule(&["0.02"], "`initializer_range` is {}, and the release starts at 0.02"),
    rule(&["true"], "`elementwise_affine` is {}, and norms have weights"),
    rule(&["true", "false"], "`use_short_conv` is {}, and it should be true or false"),
];
pub(crate) const FLASH_LINEAR_HEAD_DIM: &str =
    "`head_dim` is {}, and the release's heads divide the model";
pub(crate) const FLASH_LINEAR_KV_HEADS: &str =
    "`num_kv_heads` is {}, and no released model shares heads";

refusals! {
    other_short_conv["canon_set"](short_conv: bool):
        "`canon_set` is {}, and `use_short_conv` is {short_conv}, where a `b` means the same",
        "make them agree";
    other_absent_short_conv["canon_set"](short_conv: bool):
        "`canon_set` is {}, and `use_short_conv` is {short_conv} if it is absent, where a `b` means the same",
        "make them agree";
    hidden_is_required["intermediate_size"]():
        "`intermediate_size` is {}, and it is required",
        "write it";
}

pub(crate) const MAMBA2_EXPAND: KeyRule =
    rule(&["2"], "`expand` is {}, and the mixer is twice as wide as the model");
pub(crate) const MAMBA2_GROUPS: &str = "`n_groups` is {}, and released models have one group";
/// Keys that have one value in every released Mamba2.
pub(crate) const MAMBA2: [KeyRule; 11] = [
    rule(&["4"], "`conv_kernel` is {}, and the mixer's own convolution spans 4"),
    rule(&["false"], "`use_bias` is {}, and projections have no biases"),
    rule(&["silu", "swish"], "`hidden_act` is {}, and the mixer's activation is silu"),
    rule(&["true"], "`rms_norm` is {}, and the mixer ends in a norm"),
    rule(&["false"], "`residual_in_fp32` is {}, and the residual stream has the model's type"),
    rule(&["0.1"], "`initializer_range` is {}, and the release's table starts at 0.1"),
    rule(&["false"], "`rescale_prenorm_residual` is {}, and no residual is rescaled"),
    rule(&["0.001"], "`time_step_min` is {}, and steps start from 0.001"),
    rule(&["0.1"], "`time_step_max` is {}, and steps start up to 0.1"),
    rule(&["0.0001"], "`time_step_floor` is {}, and steps start at 0.0001 or more"),
    rule(&["1e-5"], "`norm_eps` is {}, which Mamba2 stores and never reads: it computes with 1e-5"),
];
pub(crate) const MAMBA2_HEAD_DIM: &str =
    "`head_dim` is {}, and heads divide twice the model's width";
pub(crate) const MLP_TYPE: KeyRule =
    rule(&["mlp10"], "`mlp_type` is {}, and the released MLP is mlp10");
pub(crate) const NO_CONV_BIAS: KeyRule = rule(
    &["false"],
    "`use_conv_bias` is {}, and a mixer without convolution has no convolution bias",
);
pub(crate) const CONV_BIAS: KeyRule =
    rule(&["true"], "`use_conv_bias` is {}, and the mixer's own convolution has a bias");
/// The message for `noconv1d`, which was read as false.
pub(crate) const CONV: KeyRule = rule(&["false"], "`noconv1d` is {}");

refusals! {
    limited_steps["time_step_limit"]():
        "`time_step_limit` is {}, and steps are unlimited: [0.0, Infinity]",
        "only that is supported";
    convolution_without_letter["canon_set"]():
        "`canon_set` is {}, without a `b`, and `noconv1d` is absent: the class builds the convolution",
        "write `noconv1d`, and a `b` where it is false";
    letter_without_convolution["canon_set"]():
        "`canon_set` is {}, and `noconv1d` is true, where a `b` is that convolution",
        "write `noconv1d`, and a `b` where it is false";
}
