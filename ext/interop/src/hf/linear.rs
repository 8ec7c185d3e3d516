//! Reads the keys of the released classes without attention: GLA, GatedDeltaNet and Mamba2 with Canon layers.

use super::super::class::Class;
use super::super::config::Keys;
use super::super::described::Described;
use super::super::init::Init;
use super::super::messages;
use super::super::model::{Family, Mixer, Model, ModelOptions};
use super::super::names::GatedNorm;
use super::super::node::NodeValue;
use super::{canon, divided};
use dsl::Problem;

/// Keys of GLA and GatedDeltaNet.
pub(super) fn flash_linear(keys: &Keys<'_>, class: &'static Class) -> Result<Described, Problem> {
    let gla = class.family == Family::Gla5;
    check_flash_linear(keys, gla)?;
    keys.idle(&["fuse_norm", "fuse_swiglu", "fuse_cross_entropy", "hidden_ratio"]);
    let (dim, heads) = (keys.positive("hidden_size")?, keys.positive("num_heads")?);
    let head_dim = divided(keys, "hidden_size", dim, heads)?.to_string();
    let default = if gla { &head_dim } else { "256" };
    keys.needed("head_dim", &[&head_dim], default, messages::FLASH_LINEAR_HEAD_DIM)?;
    keys.only("num_kv_heads", &[&heads.to_string()], messages::FLASH_LINEAR_KV_HEADS)?;
    let (canon, has_b) = canon(keys, "", if gla { "AbCD" } else { "ABbCD" })?;
    let short_conv = keys.bool_or("use_short_conv", !gla)?;
    if short_conv != has_b && keys.has("canon_set") {
        return Err(match keys.has("use_short_conv") {
            true => messages::other_short_conv(keys, short_conv),
            false => messages::other_absent_short_conv(keys, short_conv),
        });
    }
    let Some(hidden) = keys.int("intermediate_size")? else {
        return Err(messages::hidden_is_required(keys));
    };
    let norm = match keys.bool_or("zeyuan_layernorm", false)? {
        true => GatedNorm::Reference,
        false => GatedNorm::Fused,
    };
    let model = Model {
        vocab: keys.positive("vocab_size")?,
        dim,
        layers: keys.positive("num_hidden_layers")?,
        norm_eps: keys.decimal_or("norm_eps", "1e-6")?,
        mixer: match gla {
            true => Mixer::Gla5 { heads, short_conv },
            false => Mixer::Gdn2 { heads, short_conv },
        },
        hidden: Some(hidden),
        tied: keys.bool_or("tie_word_embeddings", false)?,
        canon,
        init: Init::flash_linear(),
        options: ModelOptions::default(),
    };
    Ok(Described { class, model, norm, turned: false })
}

/// Keys with one value in every released model.
fn check_flash_linear(keys: &Keys<'_>, gla: bool) -> Result<(), Problem> {
    keys.check(&messages::ATTN_MODE)?;
    let (expand_k, expand_v) = if gla { ("0.5", "1") } else { ("1", "2") };
    keys.needed("expand_k", &["1"], expand_k, messages::EXPAND_K)?;
    keys.needed("expand_v", &["2"], expand_v, messages::EXPAND_V)?;
    keys.check_all(&messages::FLASH_LINEAR_GATES)?;
    keys.needed("output_gate_rank", &["16"], "null", messages::OUTPUT_GATE_RANK)?;
    keys.check_all(&messages::FLASH_LINEAR)
}

/// Keys of Mamba2.
pub(super) fn mamba2(keys: &Keys<'_>, class: &'static Class) -> Result<Described, Problem> {
    keys.check(&messages::MAMBA2_EXPAND)?;
    keys.needed("n_groups", &["1"], "8", messages::MAMBA2_GROUPS)?;
    keys.check_all(&messages::MAMBA2)?;
    check_limit(keys)?;
    // The first two only choose an implementation; the third is unused and −10344 in the published files.
    keys.idle(&["chunk_size", "use_mamba_kernels", "time_step_rank"]);
    keys.idle(&["fuse_norm", "fuse_swiglu", "fuse_cross_entropy"]);
    let (dim, heads) = (keys.positive("hidden_size")?, keys.positive("num_heads")?);
    let head_dim = divided(keys, "hidden_size", 2 * dim, heads)?.to_string();
    keys.needed("head_dim", &[&head_dim], "64", messages::MAMBA2_HEAD_DIM)?;
    keys.check(&messages::MLP_TYPE)?;
    let mlp = keys.text("mlp_type")?.is_some();
    let (canon, has_b) = canon(keys, "", if mlp { "ABbCD" } else { "ABb" })?;
    let short_conv = mamba2_short_conv(keys, has_b)?;
    let hidden = keys.int("intermediate_size")?;
    let state = keys.int_or("state_size", 128)?;
    let model = Model {
        vocab: keys.positive("vocab_size")?,
        dim,
        layers: keys.positive("num_hidden_layers")?,
        norm_eps: keys.decimal_or("layer_norm_epsilon", "1e-5")?,
        mixer: Mixer::Mamba2 { heads, state, short_conv },
        hidden: mlp.then(|| hidden.unwrap_or(2 * dim)),
        tied: keys.bool_or("tie_word_embeddings", false)?,
        canon,
        init: Init::mamba(),
        options: ModelOptions::default(),
    };
    Ok(Described { class, model, norm: GatedNorm::Fused, turned: false })
}

/// Refuses steps with a limit.
fn check_limit(keys: &Keys<'_>) -> Result<(), Problem> {
    let Some(node) = keys.node("time_step_limit") else { return Ok(()) };
    let limit: Vec<Option<f64>> = match &node.value {
        NodeValue::List(items) => items.iter().map(|n| n.value.plain().parse().ok()).collect(),
        NodeValue::Null
        | NodeValue::Bool(_)
        | NodeValue::Number(_)
        | NodeValue::Text(_)
        | NodeValue::Map(_) => Vec::new(),
    };
    match limit.as_slice() {
        [Some(0.0), Some(f64::INFINITY)] => Ok(()),
        _ => Err(messages::limited_steps(keys)),
    }
}

/// Whether a Mamba2 has its own convolution. It depends on `noconv1d`; the class ignores a `b` of `canon_set`.
fn mamba2_short_conv(keys: &Keys<'_>, has_b: bool) -> Result<bool, Problem> {
    let none = keys.bool_or("noconv1d", false)?;
    if none && has_b {
        return Err(messages::letter_without_convolution(keys));
    }
    if !none && !has_b && !keys.has("noconv1d") && keys.has("canon_set") {
        return Err(messages::convolution_without_letter(keys));
    }
    if none {
        keys.neutral(&messages::NO_CONV_BIAS)?;
    } else {
        keys.neutral(&messages::CONV)?;
        keys.check(&messages::CONV_BIAS)?;
    }
    Ok(!none)
}
