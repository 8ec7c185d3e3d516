//! Reads Hugging Face's `config.json`; `hf/write.rs` writes it.
//!
//! Absent keys have the defaults of the published classes; a key that changes the computation is honoured or refused;
//! features of our models that a configuration cannot express are under `canonc`, which other programs ignore.

mod stock;
mod write;

use std::collections::BTreeMap;

use super::ForeignError;
use super::config::{Keys, decimal};
use super::model::{Attention, Canon, Init, Mixer, Model, RopeLayout};
use super::names::GatedNorm;
use super::node::Value;
use super::torch;

pub use stock::{Changed, Family, Stock};
pub(crate) use write::{canon_set, float, own, turned_channels};
pub use write::{check_class, class, code_folder, published, write};

/// A model of a released family as a configuration describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released {
    /// The model.
    pub model: Model,
    /// The kernel of its gated norms, which names their parameters.
    pub norm: GatedNorm,
    /// Whether q and k in the files are for the other RoPE layout.
    pub turned: bool,
}

/// What a configuration describes.
#[derive(Clone, Debug, PartialEq)]
pub enum Described {
    /// A model of a released family.
    Released(Released),
    /// A model of another class of `transformers`.
    Stock(Stock),
}

impl Described {
    /// The arch in the `.canon` language, with a doc of one line.
    pub fn text(&self, name: &str, doc: &str) -> String {
        match self {
            Described::Released(released) => released.model.text(name, doc),
            Described::Stock(stock) => stock.text(name, doc),
        }
    }

    /// The model, if it is of a released family.
    pub fn model(&self) -> Option<&Model> {
        match self {
            Described::Released(released) => Some(&released.model),
            Described::Stock(_) => None,
        }
    }

    /// The model, if it is of another class.
    pub fn stock(&self) -> Option<&Stock> {
        match self {
            Described::Released(_) => None,
            Described::Stock(stock) => Some(stock),
        }
    }
}

/// The released model types, each with its published class.
const TYPES: [(&str, &str, &str); 5] = [
    ("llama", "LlamaForCausalLM", ""),
    ("LlamaCanon", "LlamaCanonForCausalLM", "llama_canon"),
    ("GLACanon", "GLACanonForCausalLM", "gla_canon"),
    ("GatedDeltaNetCanon", "GatedDeltaNetCanonForCausalLM", "gated_deltanet_canon"),
    ("Mamba2Canon", "Mamba2CanonForCausalLM", "mamba2_canon"),
];

/// The repository with the code of all families except plain Llama.
pub const PUBLISHED_CODE: &str = "https://github.com/facebookresearch/PhysicsLM4";

/// Keys of every `transformers` configuration that do not describe the model: labels, dtypes, versions.
#[rustfmt::skip]
const GENERAL: &[&str] = &[
    "_attn_implementation", "_attn_implementation_autoset", "_name_or_path", "add_cross_attention",
    "architectures", "attn_implementation", "auto_map", "bos_token_id", "chunk_size_feed_forward",
    "cross_attention_hidden_size", "dtype", "eos_token_id", "finetuning_task", "id2label", "is_decoder",
    "label2id", "max_position_embeddings", "output_attentions", "output_hidden_states", "output_scores",
    "problem_type", "return_dict", "return_dict_in_generate", "tf_legacy_loss", "tie_encoder_decoder",
    "tokenizer_class", "torch_dtype", "torchscript", "transformers_version", "use_bfloat16", "use_cache",
];

/// Keys of every class that only decide how `transformers` generates.
#[rustfmt::skip]
const SAMPLING: &[&str] = &[
    "bad_words_ids", "begin_suppress_tokens", "decoder_start_token_id", "diversity_penalty", "do_sample",
    "early_stopping", "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "forced_bos_token_id",
    "forced_eos_token_id", "length_penalty", "max_length", "min_length", "no_repeat_ngram_size",
    "num_beam_groups", "num_beams", "num_return_sequences", "pad_token_id", "prefix", "remove_invalid_values",
    "repetition_penalty", "sep_token_id", "suppress_tokens", "task_specific_params", "temperature", "top_k",
    "top_p", "typical_p",
];

/// Keys that other programs leave in a `config.json`, and no class reads: of trainers, converters, libraries and their
/// versions.
#[rustfmt::skip]
const UNREAD: &[&str] = &[
    "_commit_hash", "_flash_attn_2_enabled", "add_bos_token", "add_eos_token", "assistant_confidence_threshold",
    "assistant_lookbehind", "base_model_name_or_path", "encoder_repetition_penalty", "epsilon_cutoff", "eta_cutoff",
    "experts_implementation", "gradient_checkpointing", "loss_type", "max_seq_len", "max_sequence_length",
    "mlx_lm_version", "model_max_length", "n_ctx", "n_positions", "name_or_path", "num_assistant_tokens",
    "num_assistant_tokens_schedule", "num_labels", "num_logits_to_keep", "seq_length", "target_lookbehind",
    "tokenizer_version", "transformers.js_config", "unsloth_fixed", "unsloth_version", "use_flash_attention",
    "use_flash_attention_2", "use_flash_attn",
];

/// Reads the keys of a `config.json`.
pub fn read(keys: &Keys<'_>) -> Result<Described, ForeignError> {
    let Some(family) = stock::takes(keys)? else { return Ok(Described::Released(released(keys)?)) };
    general(keys, family.model_type, family.class)?;
    let stock = stock::read(keys, family)?;
    finish(keys)?;
    Ok(Described::Stock(stock))
}

/// Reads the keys of a `config.json` of a released family.
pub fn released(keys: &Keys<'_>) -> Result<Released, ForeignError> {
    let types = TYPES.iter().map(|(name, _, _)| *name);
    let more = stock::FAMILIES.iter().map(|family| family.model_type);
    let types: Vec<&str> = types.chain(more.filter(|name| *name != "llama")).collect();
    let known = |found: &str| TYPES.iter().find(|(name, _, _)| *name == found);
    let Some((model_type, class, _)) = keys.text("model_type")?.and_then(known) else {
        let why = format!("and it should be one of {}", types.join(", "));
        let help = match keys.text("model_type")? {
            Some(torch::MODEL_TYPE) => {
                "its arch is the arch.canon that `canonc export` wrote: with that beside it, every command takes this \
                 folder as it is, and nothing is left to import"
            }
            _ => "other families cannot be imported; write such an arch in .canon",
        };
        return Err(keys.refuse("model_type", why, help));
    };
    general(keys, model_type, class)?;
    let own = Own::read(keys)?;
    let mut described = match *model_type {
        "llama" | "LlamaCanon" => llama(keys, *model_type == "LlamaCanon")?,
        "Mamba2Canon" => mamba2(keys)?,
        _ => flash_linear(keys, *model_type == "GLACanon")?,
    };
    own.apply(&mut described, keys)?;
    finish(keys)?;
    Ok(described)
}

/// Refuses keys that were not read.
fn finish(keys: &Keys<'_>) -> Result<(), ForeignError> {
    keys.finish(&["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"])
}

/// Reads the keys that every class has.
fn general(keys: &Keys<'_>, model_type: &str, class: &str) -> Result<(), ForeignError> {
    if let Some(node) = keys.node("architectures") {
        let one = matches!(&node.value, Value::List(items) if items.len() == 1 && items.iter().all(|n| n.value.plain() == class));
        if !one {
            let why = format!("and a `model_type` of {model_type} is a {class}");
            return Err(keys.refuse(
                "architectures",
                why,
                "use a model that predicts the next token",
            ));
        }
    }
    keys.idle(GENERAL);
    for key in SAMPLING {
        keys.left(
            key,
            "it is for generation in `transformers`; `generate` and `serve` have options",
        );
    }
    for key in UNREAD {
        keys.left(key, "no class of `transformers` reads it");
    }
    keys.neutral("use_l2warp", &["false"], "and that penalty is not supported")?;
    keys.only("is_encoder_decoder", &["false"], "and only decoders are supported")?;
    keys.only("pruned_heads", &["{}"], "and heads cannot be pruned")?;
    keys.only("pretraining_tp", &["1"], "and it changes how numbers are rounded")?;
    keys.only("attention_dropout", &["0"], "and dropout inside attention cannot be expressed")
}

/// Our own keys, in addition to the published ones.
struct Own {
    init: Option<Init>,
    interleaved: bool,
}

impl Own {
    fn read(keys: &Keys<'_>) -> Result<Own, ForeignError> {
        let init = match keys.below("canonc.init").as_slice() {
            [] => match keys.text("canonc.init")? {
                None => None,
                Some(name) => Some(Init::named(name).ok_or_else(|| {
                    let why = "and it should be a table of std/init.canon";
                    keys.refuse(
                        "canonc.init",
                        why,
                        "remove it: it only describes initial parameters",
                    )
                })?),
            },
            roles => {
                let mut rows = BTreeMap::new();
                for role in roles {
                    let rule = keys.text(&format!("canonc.init.{role}"))?.unwrap_or_default();
                    rows.insert(role.clone(), rule.to_owned());
                }
                Some(Init::from_rows(rows))
            }
        };
        let interleaved = keys.text("canonc.rope_layout")? == Some("interleaved");
        Ok(Own { init, interleaved })
    }

    fn apply(self, described: &mut Released, keys: &Keys<'_>) -> Result<(), ForeignError> {
        if let Some(init) = self.init {
            described.model.init = init;
        }
        if self.interleaved {
            match &mut described.model.mixer {
                Mixer::Attention(a) if a.layout == RopeLayout::Half => {
                    a.layout = RopeLayout::Interleaved;
                    described.turned = true;
                }
                Mixer::Attention(_)
                | Mixer::Gla5 { .. }
                | Mixer::Gdn2 { .. }
                | Mixer::Mamba2 { .. } => {
                    let why = "and this model's rows are not reordered";
                    return Err(keys.refuse("canonc.rope_layout", why, "remove it"));
                }
            }
        }
        Ok(())
    }
}

/// Reads `canon_*` of every class; `letters` are those with a meaning.
pub(super) fn canon(
    keys: &Keys<'_>,
    prefix: &str,
    letters: &str,
) -> Result<(Canon, bool), ForeignError> {
    let at = |name: &str| format!("{prefix}{name}");
    let set = keys.text(&at("canon_set"))?.unwrap_or_default();
    if let Some(other) = set.chars().find(|c| !letters.contains(*c)) {
        let why = format!("and `{other}` is not a slot of this family, which has {letters}");
        return Err(keys.refuse(&at("canon_set"), why, "leave that letter out"));
    }
    if keys.bool_or(&at("canon_bias"), false)? {
        let why = "and the reference stops at it: no Canon layer has a bias";
        return Err(keys.refuse(&at("canon_bias"), why, "write false"));
    }
    let kernel = keys.int_or(&at("canon_kernel"), 4)?;
    if !(1..=64).contains(&kernel) {
        return Err(keys.refuse(&at("canon_kernel"), "and it should be from 1 to 64", "write 4"));
    }
    let slots = "ABCD".chars().filter(|c| set.contains(*c)).collect::<Vec<char>>();
    let mut canon = Canon {
        slots,
        kernel,
        residual: keys.bool_or(&at("canon_residual"), true)?,
        silu: keys.bool_or(&at("canon_activation"), false)?,
    };
    if canon.slots.is_empty() {
        canon = Canon::NONE;
    }
    Ok((canon, set.contains('b')))
}

fn llama(keys: &Keys<'_>, with_canon: bool) -> Result<Released, ForeignError> {
    keys.only("attention_bias", &["false"], "and attention has no biases here")?;
    keys.only("mlp_bias", &["false"], "and the MLP has no biases here")?;
    keys.only("hidden_act", &["silu"], "and the MLP's gate is silu")?;
    stock::without_windows(keys)?;
    keys.idle(&["attention_dropout"]);
    for scaling in ["rope_scaling", "rope_parameters"] {
        for key in keys.below(scaling) {
            match key.as_str() {
                "rope_type" | "type" => {
                    keys.only(&format!("{scaling}.{key}"), &["default"], "and RoPE is not scaled")?;
                }
                "rope_theta" => {}
                "partial_rotary_factor" if scaling == "rope_parameters" && !with_canon => {}
                _ => {
                    let key = format!("{scaling}.{key}");
                    return Err(keys.refuse(
                        &key,
                        "and RoPE is not scaled",
                        "only null can be expressed",
                    ));
                }
            }
        }
    }
    keys.only("rope_scaling", &[], "and RoPE is not scaled")?;
    let (dim, heads) = (keys.positive("hidden_size")?, keys.positive("num_attention_heads")?);
    let head_dim = match keys.int("head_dim")? {
        Some(n) => n,
        None => divided(keys, "hidden_size", dim, heads)?,
    };
    let theta = match (keys.decimal("rope_theta")?, keys.decimal("rope_parameters.rope_theta")?) {
        (Some(theta), Some(other)) if theta != other => {
            let why = format!("and `rope_parameters.rope_theta` is {other}");
            return Err(keys.refuse("rope_theta", why, "make them agree"));
        }
        (Some(theta), _) | (None, Some(theta)) => theta,
        (None, None) => decimal("10000"),
    };
    let hidden = match keys.int("intermediate_size")? {
        Some(n) => n,
        None if with_canon => 8 * dim / 3,
        None => return Err(keys.refuse("intermediate_size", "and it has no default", "write it")),
    };
    if with_canon && !keys.has("intermediate_size") {
        let why = "which the class takes as 11008";
        return Err(keys.refuse(
            "intermediate_size",
            why,
            "write it, or null for 8/3 of the width",
        ));
    }
    let (canon, layout, qk_norm, rope_dims) = if with_canon {
        let (canon, _) = canon(keys, "", "ABCD")?;
        let layout = match keys.text("rope_version")? {
            None | Some("huggingface") => RopeLayout::Half,
            Some("lingua") => RopeLayout::Interleaved,
            Some(_) => {
                let why = "and it should be \"huggingface\" or \"lingua\"";
                return Err(keys.refuse(
                    "rope_version",
                    why,
                    "weights from Lingua need \"lingua\"",
                ));
            }
        };
        let rope_dims = rope_dims(keys, "rope_dim", head_dim)?;
        // The class rotates this part of a head unless `rope_dim` is set.
        if let Some(part) = keys.decimal("partial_rotary_factor")?
            && (part.to_f64() * head_dim as f64 - rope_dims as f64).abs() > 1e-6
        {
            let why = format!("and `rope_dim` makes it {rope_dims} of {head_dim} channels");
            let help = "make them agree, or write `rope_dim` alone";
            return Err(keys.refuse("partial_rotary_factor", why, help));
        }
        (canon, layout, keys.bool_or("qk_norm", false)?, rope_dims)
    } else {
        for key in ["partial_rotary_factor", "rope_parameters.partial_rotary_factor"] {
            keys.neutral(key, &["1"], "and RoPE rotates the whole head")?;
        }
        (Canon::NONE, RopeLayout::Half, false, head_dim)
    };
    let kv_heads = keys.int_or("num_key_value_heads", heads)?;
    let range = keys.decimal_or("initializer_range", "0.02")?;
    let attention = Attention { heads, kv_heads, head_dim, qk_norm, theta, layout, rope_dims };
    let model = Model {
        vocab: keys.positive("vocab_size")?,
        dim,
        layers: keys.positive("num_hidden_layers")?,
        norm_eps: keys.decimal_or("rms_norm_eps", "1e-6")?,
        mixer: Mixer::Attention(attention),
        hidden: Some(hidden),
        tied: keys.bool_or("tie_word_embeddings", false)?,
        canon,
        init: Init::hugging_face_with(range),
    };
    Ok(Released { model, norm: GatedNorm::Fused, turned: false })
}

/// Channels that RoPE rotates; if absent, all of them. The readers of the release disagree about 0, so it is refused.
pub(super) fn rope_dims(keys: &Keys<'_>, key: &str, head_dim: i64) -> Result<i64, ForeignError> {
    match keys.int(key)? {
        None => Ok(head_dim),
        Some(n) if n > 0 && n <= head_dim && n % 2 == 0 => Ok(n),
        Some(0) => {
            let why = "with which Lingua crashes and Hugging Face rotates the whole head";
            Err(keys.refuse(key, why, "write null for the whole head"))
        }
        Some(_) => {
            let why = format!("and it should be an even number up to the head's {head_dim}");
            Err(keys.refuse(key, why, "write null for the whole head"))
        }
    }
}

pub(super) fn divided(
    keys: &Keys<'_>,
    key: &str,
    dim: i64,
    heads: i64,
) -> Result<i64, ForeignError> {
    match dim.checked_rem(heads) {
        Some(0) => Ok(dim / heads),
        _ => Err(keys.refuse(
            key,
            format!("which is not a multiple of {heads} heads"),
            "write `head_dim`",
        )),
    }
}

fn flash_linear(keys: &Keys<'_>, gla: bool) -> Result<Released, ForeignError> {
    keys.only(
        "attn_mode",
        &["chunk", "fused_chunk", "fused_recurrent"],
        "and this is not an implementation of attention",
    )?;
    let (expand_k, expand_v) = if gla { ("0.5", "1") } else { ("1", "2") };
    keys.needed("expand_k", &["1"], expand_k, "and keys are as wide as the model")?;
    keys.needed("expand_v", &["2"], expand_v, "and values are twice as wide as the model")?;
    keys.only("use_gate", &["true"], "and the mixer has an output gate")?;
    keys.only("use_output_gate", &["true"], "and the mixer has an output gate")?;
    keys.only("use_gk", &["true"], "and the mixer has a decay")?;
    keys.only("use_gv", &["false"], "and values do not decay")?;
    keys.needed("output_gate_rank", &["16"], "null", "and the released gate has rank 16")?;
    keys.only("conv_size", &["4"], "and the mixer's own convolution spans 4")?;
    keys.only("hidden_act", &["swish", "silu"], "and the MLP's gate is silu")?;
    keys.only("feature_map", &[], "and the reference does not use it")?;
    keys.only("clamp_min", &[], "and the reference does not use it")?;
    keys.only("attn", &[], "and all layers are of one kind")?;
    keys.only(
        "zeyuan_split_init",
        &["true"],
        "and the gate's two matrices start as in the release",
    )?;
    keys.only("initializer_range", &["0.02"], "and the release starts at 0.02")?;
    keys.only("elementwise_affine", &["true"], "and norms have weights")?;
    keys.only("use_short_conv", &["true", "false"], "and it should be true or false")?;
    keys.idle(&["fuse_norm", "fuse_swiglu", "fuse_cross_entropy", "hidden_ratio"]);
    let (dim, heads) = (keys.positive("hidden_size")?, keys.positive("num_heads")?);
    let head_dim = divided(keys, "hidden_size", dim, heads)?;
    let why = "and the release's heads divide the model";
    let default = if gla { head_dim.to_string() } else { "256".to_owned() };
    keys.needed("head_dim", &[&head_dim.to_string()], &default, why)?;
    keys.only("num_kv_heads", &[&heads.to_string()], "and no released model shares heads")?;
    let (canon, b) = canon(keys, "", if gla { "AbCD" } else { "ABbCD" })?;
    let short_conv = keys.bool_or("use_short_conv", !gla)?;
    if short_conv != b && keys.has("canon_set") {
        let absent = if keys.has("use_short_conv") { "" } else { " if it is absent" };
        let why =
            format!("and `use_short_conv` is {short_conv}{absent}, where a `b` means the same");
        return Err(keys.refuse("canon_set", why, "make them agree"));
    }
    let hidden = match keys.int("intermediate_size")? {
        Some(n) => n,
        None => {
            return Err(keys.refuse("intermediate_size", "and it is required", "write it"));
        }
    };
    let norm = match keys.bool_or("zeyuan_layernorm", false)? {
        true => GatedNorm::Reference,
        false => GatedNorm::Fused,
    };
    let mixer = match gla {
        true => Mixer::Gla5 { heads, short_conv },
        false => Mixer::Gdn2 { heads, short_conv },
    };
    let model = Model {
        vocab: keys.positive("vocab_size")?,
        dim,
        layers: keys.positive("num_hidden_layers")?,
        norm_eps: keys.decimal_or("norm_eps", "1e-6")?,
        mixer,
        hidden: Some(hidden),
        tied: keys.bool_or("tie_word_embeddings", false)?,
        canon,
        init: Init::flash_linear(),
    };
    Ok(Released { model, norm, turned: false })
}

fn mamba2(keys: &Keys<'_>) -> Result<Released, ForeignError> {
    keys.only("expand", &["2"], "and the mixer is twice as wide as the model")?;
    keys.needed("n_groups", &["1"], "8", "and released models have one group")?;
    keys.only("conv_kernel", &["4"], "and the mixer's own convolution spans 4")?;
    keys.only("use_bias", &["false"], "and projections have no biases")?;
    keys.only("hidden_act", &["silu", "swish"], "and the mixer's activation is silu")?;
    keys.only("rms_norm", &["true"], "and the mixer ends in a norm")?;
    keys.only("residual_in_fp32", &["false"], "and the residual stream has the model's type")?;
    keys.only("initializer_range", &["0.1"], "and the release's table starts at 0.1")?;
    keys.only("rescale_prenorm_residual", &["false"], "and no residual is rescaled")?;
    keys.only("time_step_min", &["0.001"], "and steps start from 0.001")?;
    keys.only("time_step_max", &["0.1"], "and steps start up to 0.1")?;
    keys.only("time_step_floor", &["0.0001"], "and steps start at 0.0001 or more")?;
    keys.only("norm_eps", &["1e-5"], "which Mamba2 stores and never reads: it computes with 1e-5")?;
    if let Some(node) = keys.node("time_step_limit") {
        let limit: Vec<Option<f64>> = match &node.value {
            Value::List(items) => items.iter().map(|n| n.value.plain().parse().ok()).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::Map(_) => {
                Vec::new()
            }
        };
        if limit != [Some(0.0), Some(f64::INFINITY)] {
            let why = "and steps are unlimited: [0.0, Infinity]";
            return Err(keys.refuse("time_step_limit", why, "only that is supported"));
        }
    }
    // The first two only choose an implementation; the third is unused and −10344 in the published files.
    keys.idle(&["chunk_size", "use_mamba_kernels", "time_step_rank"]);
    keys.idle(&["fuse_norm", "fuse_swiglu", "fuse_cross_entropy"]);
    let (dim, heads) = (keys.positive("hidden_size")?, keys.positive("num_heads")?);
    let head_dim = divided(keys, "hidden_size", 2 * dim, heads)?;
    let why = "and heads divide twice the model's width";
    keys.needed("head_dim", &[&head_dim.to_string()], "64", why)?;
    keys.only("mlp_type", &["mlp10"], "and the released MLP is mlp10")?;
    let mlp = keys.text("mlp_type")?.is_some();
    let (canon, b) = canon(keys, "", if mlp { "ABbCD" } else { "ABb" })?;
    let short_conv = mamba2_short_conv(keys, b)?;
    let hidden = match (mlp, keys.int("intermediate_size")?) {
        (true, None) => Some(2 * dim),
        (true, hidden) => hidden,
        (false, _) => None,
    };
    let state = keys.int_or("state_size", 128)?;
    let model = Model {
        vocab: keys.positive("vocab_size")?,
        dim,
        layers: keys.positive("num_hidden_layers")?,
        norm_eps: keys.decimal_or("layer_norm_epsilon", "1e-5")?,
        mixer: Mixer::Mamba2 { heads, state, short_conv },
        hidden,
        tied: keys.bool_or("tie_word_embeddings", false)?,
        canon,
        init: Init::mamba(),
    };
    Ok(Released { model, norm: GatedNorm::Fused, turned: false })
}

/// Whether a Mamba2 has its own convolution. It depends on `noconv1d`; the class ignores a `b` of `canon_set`.
fn mamba2_short_conv(keys: &Keys<'_>, b: bool) -> Result<bool, ForeignError> {
    let none = keys.bool_or("noconv1d", false)?;
    let said = keys.has("noconv1d");
    if none == b && (none || !said && keys.has("canon_set")) {
        let why = match none {
            true => "and `noconv1d` is true, where a `b` is that convolution",
            false => "without a `b`, and `noconv1d` is absent: the class builds the convolution",
        };
        return Err(keys.refuse("canon_set", why, "write `noconv1d`, and a `b` where it is false"));
    }
    if none {
        let why = "and a mixer without convolution has no convolution bias";
        keys.neutral("use_conv_bias", &["false"], why)?;
    } else {
        keys.neutral("noconv1d", &["false"], "")?;
        keys.only("use_conv_bias", &["true"], "and the mixer's own convolution has a bias")?;
    }
    Ok(!none)
}
