//! Hugging Face's `config.json`, read and written.
//!
//! In: the keys of a configuration, or a model. Out: the other. Must stay true: defaults of absent keys are those of
//! the published classes; a key that changes what is computed is honoured or refused; what a configuration cannot say
//! of a model of ours stands under `canonc`, which other programs pass over.

use std::collections::BTreeMap;

use dsl::Decimal;

use super::ForeignError;
use super::config::{Keys, decimal};
use super::model::{Attention, Canon, Family, Init, Mixer, Model, RopeLayout};
use super::names::GatedNorm;
use super::node::{Node, Value};

/// A model as a configuration has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    pub model: Model,
    pub norm: GatedNorm,
    /// The files have q and k for the other RoPE.
    pub turned: bool,
}

/// Model types that are read, with the published code behind each.
const TYPES: [(&str, &str, &str); 5] = [
    ("llama", "LlamaForCausalLM", ""),
    ("LlamaCanon", "LlamaCanonForCausalLM", "llama_canon"),
    ("GLACanon", "GLACanonForCausalLM", "gla_canon"),
    ("GatedDeltaNetCanon", "GatedDeltaNetCanonForCausalLM", "gated_deltanet_canon"),
    ("Mamba2Canon", "Mamba2CanonForCausalLM", "mamba2_canon"),
];

/// Where the code of all but plain Llama was published.
pub const PUBLISHED_CODE: &str =
    "https://github.com/facebookresearch/PhysicsLM4/tree/main/huggingface";

/// What every configuration of `transformers` may hold beside the model: generation, labels, versions.
#[rustfmt::skip]
const GENERAL: &[&str] = &[
    "_attn_implementation_autoset", "_name_or_path", "add_cross_attention", "architectures", "auto_map",
    "bad_words_ids", "begin_suppress_tokens", "bos_token_id", "chunk_size_feed_forward",
    "cross_attention_hidden_size", "decoder_start_token_id", "diversity_penalty", "do_sample", "dtype",
    "early_stopping", "encoder_no_repeat_ngram_size", "eos_token_id", "exponential_decay_length_penalty",
    "finetuning_task", "forced_bos_token_id", "forced_eos_token_id", "id2label", "is_decoder",
    "label2id", "length_penalty", "max_length", "max_position_embeddings", "min_length",
    "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences", "output_attentions",
    "output_hidden_states", "output_scores", "pad_token_id", "prefix", "problem_type", "remove_invalid_values",
    "repetition_penalty", "return_dict", "return_dict_in_generate", "sep_token_id", "suppress_tokens",
    "task_specific_params", "temperature", "tf_legacy_loss", "tie_encoder_decoder", "tokenizer_class",
    "top_k", "top_p", "torch_dtype", "torchscript", "transformers_version", "typical_p", "use_bfloat16",
    "use_cache",
];

/// Reads the keys of a `config.json`.
pub fn read(keys: &Keys<'_>) -> Result<Described, ForeignError> {
    let types: Vec<&str> = TYPES.iter().map(|(name, _, _)| *name).collect();
    let known = |found: &str| TYPES.iter().find(|(name, _, _)| *name == found);
    let Some((model_type, class, _)) = keys.text("model_type")?.and_then(known) else {
        let why = format!("and it should be one of {}", types.join(", "));
        let help = "other families cannot be imported; write such an arch in .canon";
        return Err(keys.refuse("model_type", why, help));
    };
    if let Some(node) = keys.node("architectures") {
        let one = matches!(&node.value, Value::List(items) if items.len() == 1 && items.iter().all(|n| n.value.plain() == **class));
        if !one {
            let why = format!("and a `model_type` of {model_type} is a {class}");
            return Err(keys.refuse(
                "architectures",
                why,
                "give a model that predicts the next token",
            ));
        }
    }
    keys.idle(GENERAL);
    keys.only("is_encoder_decoder", &["false"], "and only decoders are known")?;
    keys.only("pruned_heads", &["{}"], "and heads cannot be pruned")?;
    keys.only("pretraining_tp", &["1"], "and it changes how numbers are rounded")?;
    keys.only("attention_dropout", &["0"], "and dropout cannot be expressed")?;
    let own = Own::of(keys)?;
    let mut described = match *model_type {
        "llama" | "LlamaCanon" => llama(keys, *model_type == "LlamaCanon")?,
        "Mamba2Canon" => mamba2(keys)?,
        _ => flash_linear(keys, *model_type == "GLACanon")?,
    };
    own.apply(&mut described, keys)?;
    keys.finish(&["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"])?;
    Ok(described)
}

/// What we say beside the published keys.
struct Own {
    init: Option<Init>,
    interleaved: bool,
}

impl Own {
    fn of(keys: &Keys<'_>) -> Result<Own, ForeignError> {
        let init = match keys.below("canonc.init").as_slice() {
            [] => match keys.text("canonc.init")? {
                None => None,
                Some(name) => Some(Init::named(name).ok_or_else(|| {
                    let why = "and it should be a table of std/init.canon";
                    keys.refuse("canonc.init", why, "leave it out: it says how parameters began")
                })?),
            },
            roles => {
                let mut rows = BTreeMap::new();
                for role in roles {
                    let rule = keys.text(&format!("canonc.init.{role}"))?.unwrap_or_default();
                    rows.insert(role.clone(), rule.to_owned());
                }
                Some(Init::of(rows))
            }
        };
        let interleaved = keys.text("canonc.rope_layout")? == Some("interleaved");
        Ok(Own { init, interleaved })
    }

    fn apply(self, described: &mut Described, keys: &Keys<'_>) -> Result<(), ForeignError> {
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
                    let why = "and this model's rows stand as they are";
                    return Err(keys.refuse("canonc.rope_layout", why, "leave it out"));
                }
            }
        }
        Ok(())
    }
}

/// `canon_*` of every class; `letters` are those that mean something.
pub(super) fn canon(
    keys: &Keys<'_>,
    prefix: &str,
    letters: &str,
) -> Result<(Canon, bool), ForeignError> {
    let at = |name: &str| format!("{prefix}{name}");
    let set = keys.text(&at("canon_set"))?.unwrap_or_default();
    if let Some(other) = set.chars().find(|c| !letters.contains(*c)) {
        let why =
            format!("and `{other}` means nothing in this family, whose letters are {letters}");
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

fn llama(keys: &Keys<'_>, with_canon: bool) -> Result<Described, ForeignError> {
    keys.only("attention_bias", &["false"], "and attention has no biases here")?;
    keys.only("mlp_bias", &["false"], "and the MLP has no biases here")?;
    keys.only("hidden_act", &["silu"], "and the MLP's gate is silu")?;
    keys.only("sliding_window", &[], "and the published classes pass over it")?;
    keys.idle(&["attention_dropout"]);
    for scaling in ["rope_scaling", "rope_parameters"] {
        for key in keys.below(scaling) {
            match key.as_str() {
                "rope_type" | "type" => {
                    keys.only(&format!("{scaling}.{key}"), &["default"], "and RoPE is not scaled")?;
                }
                "rope_theta" => {}
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
    let theta = match keys.decimal("rope_theta")? {
        Some(theta) => theta,
        None => keys.decimal_or("rope_parameters.rope_theta", "10000")?,
    };
    let hidden = match keys.int("intermediate_size")? {
        Some(n) => n,
        None if with_canon => 8 * dim / 3,
        None => return Err(keys.refuse("intermediate_size", "and it has no default", "write it")),
    };
    let (canon, layout, qk_norm, rope_dims) = if with_canon {
        keys.idle(&["partial_rotary_factor"]);
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
        (canon, layout, keys.bool_or("qk_norm", false)?, rope_dims)
    } else {
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
        init: Init::huggingface(range),
    };
    Ok(Described { model, norm: GatedNorm::Fused, turned: false })
}

/// Channels that RoPE turns: absent is all of them (Q10, Q11).
pub(super) fn rope_dims(keys: &Keys<'_>, key: &str, head_dim: i64) -> Result<i64, ForeignError> {
    match keys.int(key)? {
        None => Ok(head_dim),
        Some(n) if n > 0 && n <= head_dim && n % 2 == 0 => Ok(n),
        Some(0) => {
            let why = "where Lingua crashes and Hugging Face turns the whole head";
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
        _ => {
            Err(keys.refuse(key, format!("which {heads} heads do not divide"), "write `head_dim`"))
        }
    }
}

fn flash_linear(keys: &Keys<'_>, gla: bool) -> Result<Described, ForeignError> {
    keys.only(
        "attn_mode",
        &["chunk", "fused_chunk", "fused_recurrent"],
        "and it is no way to compute it",
    )?;
    keys.only("expand_k", &["1"], "and keys are as wide as the model")?;
    keys.only("expand_v", &["2"], "and values are twice as wide as the model")?;
    keys.only("use_gate", &["true"], "and the mixer has an output gate")?;
    keys.only("use_output_gate", &["true"], "and the mixer has an output gate")?;
    keys.only("use_gk", &["true"], "and the mixer has a decay")?;
    keys.only("use_gv", &["false"], "and values do not decay")?;
    keys.only("output_gate_rank", &["16"], "and the released gate has rank 16")?;
    keys.only("conv_size", &["4"], "and the mixer's own convolution spans 4")?;
    keys.only("hidden_act", &["swish", "silu"], "and the MLP's gate is silu")?;
    keys.only("feature_map", &[], "and the reference does not use it")?;
    keys.only("clamp_min", &[], "and the reference does not use it")?;
    keys.only("attn", &[], "and layers are all of one kind")?;
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
    keys.only("head_dim", &[&head_dim.to_string()], "and the release's heads divide the model")?;
    keys.only("num_kv_heads", &[&heads.to_string()], "and no released model shares heads")?;
    let (canon, b) = canon(keys, "", if gla { "AbCD" } else { "ABbCD" })?;
    let short_conv = keys.bool_or("use_short_conv", b)?;
    if short_conv != b && keys.has("canon_set") {
        let why = format!("and `use_short_conv` is {short_conv}, where a `b` is the same thing");
        return Err(keys.refuse("canon_set", why, "make them agree"));
    }
    let hidden = match keys.int("intermediate_size")? {
        Some(n) => n,
        None => {
            return Err(keys.refuse("intermediate_size", "and it has to be written", "write it"));
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
        init: Init::FlashLinear,
    };
    Ok(Described { model, norm, turned: false })
}

fn mamba2(keys: &Keys<'_>) -> Result<Described, ForeignError> {
    keys.only("expand", &["2"], "and the mixer is twice as wide as the model")?;
    keys.only("n_groups", &["1"], "and released models have one group")?;
    keys.only("conv_kernel", &["4"], "and the mixer's own convolution spans 4")?;
    keys.only("use_bias", &["false"], "and projections have no biases")?;
    keys.only("use_conv_bias", &["true"], "and the mixer's own convolution has a bias")?;
    keys.only("hidden_act", &["silu", "swish"], "and the mixer's activation is silu")?;
    keys.only("rms_norm", &["true"], "and the mixer ends in a norm")?;
    keys.only("residual_in_fp32", &["false"], "and the residual stream has the model's type")?;
    keys.only("initializer_range", &["0.1"], "and the release's table starts at 0.1")?;
    keys.only("rescale_prenorm_residual", &["false"], "and no residual is rescaled")?;
    keys.only("time_step_min", &["0.001"], "and steps start from 0.001")?;
    keys.only("time_step_max", &["0.1"], "and steps start up to 0.1")?;
    keys.only("time_step_floor", &["0.0001"], "and steps start at 0.0001 or more")?;
    keys.only("layer_norm_epsilon", &["1e-5"], "and Mamba2 computes with 1e-5")?;
    keys.only("norm_eps", &["1e-5"], "which Mamba2 stores and never reads: it computes with 1e-5")?;
    if let Some(node) = keys.node("time_step_limit") {
        let limit: Vec<Option<f64>> = match &node.value {
            Value::List(items) => items.iter().map(|n| n.value.plain().parse().ok()).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::Map(_) => {
                Vec::new()
            }
        };
        if limit != [Some(0.0), Some(f64::INFINITY)] {
            let why = "and steps are not limited: [0.0, Infinity]";
            return Err(keys.refuse("time_step_limit", why, "only that can be expressed"));
        }
    }
    // The first two are how it is computed; the third is dead and −10344 in the published files.
    keys.idle(&["chunk_size", "use_mamba_kernels", "time_step_rank"]);
    keys.idle(&["fuse_norm", "fuse_swiglu", "fuse_cross_entropy"]);
    let (dim, heads) = (keys.positive("hidden_size")?, keys.positive("num_heads")?);
    let head_dim = divided(keys, "hidden_size", 2 * dim, heads)?;
    keys.only("head_dim", &[&head_dim.to_string()], "and heads divide twice the model's width")?;
    keys.only("mlp_type", &["mlp10"], "and the released MLP is mlp10")?;
    let mlp = keys.text("mlp_type")?.is_some();
    let (canon, short_conv) = canon(keys, "", if mlp { "ABbCD" } else { "ABb" })?;
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
        norm_eps: decimal("1e-5"),
        mixer: Mixer::Mamba2 { heads, state, short_conv },
        hidden,
        tied: keys.bool_or("tie_word_embeddings", false)?,
        canon,
        init: Init::Mamba,
    };
    Ok(Described { model, norm: GatedNorm::Fused, turned: false })
}

fn node(value: Value) -> Node {
    Node { value, line: 0 }
}

fn int(n: i64) -> Value {
    Value::Number(n.to_string())
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

/// A number with a point, as Python prints a float.
pub(super) fn float(number: Decimal) -> Value {
    let digits = number.to_string();
    let whole = !digits.contains(['.', 'e']);
    Value::Number(if whole { format!("{digits}.0") } else { digits })
}

/// The letters of `canon_set`.
pub(super) fn canon_set(model: &Model) -> String {
    let has = |c: char| model.canon.has(c);
    let mut set = String::new();
    for (letter, there) in [
        ('A', has('A')),
        ('B', has('B')),
        ('b', model.short_conv()),
        ('C', has('C')),
        ('D', has('D')),
    ] {
        set.extend(there.then_some(letter));
    }
    // The release writes its sets with two of them.
    if model.short_conv() { set.replace('b', "bb") } else { set }
}

/// The row of [`TYPES`] that a model is written as.
fn class_of(model: &Model) -> (&'static str, &'static str, &'static str) {
    let [plain, canon, gla, gdn, mamba] = TYPES;
    match model.family() {
        Family::Llama if model.is_plain_llama() => plain,
        Family::Llama => canon,
        Family::Gla5 => gla,
        Family::Gdn2 => gdn,
        Family::Mamba2 => mamba,
    }
}

/// Whether stock `transformers` has the class; else the name of the published files.
pub fn published(model: &Model) -> Option<&'static str> {
    Some(class_of(model).2).filter(|code| !code.is_empty())
}

/// The class's name.
pub fn class(model: &Model) -> &'static str {
    class_of(model).1
}

/// The `config.json` of a model.
pub fn write(described: &Described, seq_len: i64, dtype: &str) -> Value {
    let Described { model, norm, turned } = described;
    let (model_type, class, code) = class_of(model);
    let mut keys: BTreeMap<&str, Value> = BTreeMap::new();
    keys.insert("architectures", Value::List(vec![node(text(class))]));
    keys.insert("model_type", text(model_type));
    keys.insert("vocab_size", int(model.vocab));
    keys.insert("hidden_size", int(model.dim));
    keys.insert("num_hidden_layers", int(model.layers));
    keys.insert("max_position_embeddings", int(seq_len));
    keys.insert("tie_word_embeddings", Value::Bool(model.tied));
    keys.insert("torch_dtype", text(dtype));
    keys.insert("use_cache", Value::Bool(true));
    keys.insert("bos_token_id", Value::Null);
    keys.insert("eos_token_id", Value::Null);
    if !code.is_empty() {
        let stem = class.trim_end_matches("ForCausalLM");
        keys.insert(
            "auto_map",
            Value::Map(vec![
                (
                    "AutoConfig".to_owned(),
                    node(Value::Text(format!("configuration_{code}.{stem}Config"))),
                ),
                (
                    "AutoModelForCausalLM".to_owned(),
                    node(Value::Text(format!("modeling_{code}.{class}"))),
                ),
            ]),
        );
        keys.insert("canon_set", Value::Text(canon_set(model)));
        keys.insert("canon_kernel", int(model.canon.kernel));
        keys.insert("canon_bias", Value::Bool(false));
        keys.insert("canon_activation", Value::Bool(model.canon.silu));
        keys.insert("canon_residual", Value::Bool(model.canon.residual));
    }
    let derived = match &model.mixer {
        Mixer::Attention(attention) => {
            llama_keys(&mut keys, model, attention, !code.is_empty());
            Init::HuggingFace
        }
        Mixer::Gla5 { heads, short_conv } | Mixer::Gdn2 { heads, short_conv } => {
            keys.insert("num_heads", int(*heads));
            keys.insert("use_short_conv", Value::Bool(*short_conv));
            keys.insert("expand_v", int(2));
            keys.insert("output_gate_rank", int(16));
            keys.insert("conv_size", int(4));
            keys.insert("hidden_act", text("swish"));
            keys.insert("norm_eps", float(model.norm_eps));
            keys.insert("initializer_range", float(decimal("0.02")));
            keys.insert("zeyuan_split_init", Value::Bool(true));
            keys.insert("zeyuan_layernorm", Value::Bool(*norm == GatedNorm::Reference));
            keys.insert("fuse_cross_entropy", Value::Bool(false));
            keys.insert("intermediate_size", model.hidden.map_or(Value::Null, int));
            if model.family() == Family::Gla5 {
                keys.insert("expand_k", int(1));
            } else {
                keys.insert("head_dim", int(model.dim / heads));
            }
            Init::FlashLinear
        }
        Mixer::Mamba2 { heads, state, short_conv: _ } => {
            keys.insert("num_heads", int(*heads));
            keys.insert("head_dim", int(2 * model.dim / heads));
            keys.insert("state_size", int(*state));
            keys.insert("n_groups", int(1));
            keys.insert("expand", int(2));
            keys.insert("conv_kernel", int(4));
            keys.insert("use_bias", Value::Bool(false));
            keys.insert("use_conv_bias", Value::Bool(true));
            keys.insert("hidden_act", text("silu"));
            keys.insert("rms_norm", Value::Bool(true));
            keys.insert("residual_in_fp32", Value::Bool(false));
            keys.insert("layer_norm_epsilon", float(model.norm_eps));
            keys.insert("initializer_range", float(decimal("0.1")));
            let limit = ["0.0", "Infinity"].map(|n| node(Value::Number(n.to_owned())));
            keys.insert("time_step_limit", Value::List(limit.to_vec()));
            keys.insert("mlp_type", model.hidden.map_or(Value::Null, |_| text("mlp10")));
            keys.insert("intermediate_size", model.hidden.map_or(Value::Null, int));
            Init::Mamba
        }
    };
    let own = own(
        model,
        *turned,
        model.init == derived || model.family() == Family::Llama && model.init.range().is_some(),
    );
    if let Some(own) = own {
        keys.insert("canonc", own);
    }
    Value::Map(keys.into_iter().map(|(key, value)| (key.to_owned(), node(value))).collect())
}

/// What other programs pass over: how parameters began, where that is not what the configuration says, and whether
/// rows were reordered.
pub(super) fn own(model: &Model, halved: bool, derived: bool) -> Option<Value> {
    let mut own = Vec::new();
    if !derived {
        let init = match model.init.name() {
            Some(name) => text(name),
            None => Value::Map(
                model.init.rows().into_iter().map(|(k, v)| (k, node(Value::Text(v)))).collect(),
            ),
        };
        own.push(("init".to_owned(), node(init)));
    }
    if halved {
        own.push(("rope_layout".to_owned(), node(text("interleaved"))));
    }
    if own.is_empty() { None } else { Some(Value::Map(own)) }
}

fn llama_keys(keys: &mut BTreeMap<&str, Value>, model: &Model, attention: &Attention, canon: bool) {
    let Attention { heads, kv_heads, head_dim, qk_norm, theta, layout, rope_dims } = attention;
    keys.insert("num_attention_heads", int(*heads));
    keys.insert("num_key_value_heads", int(*kv_heads));
    keys.insert("head_dim", int(*head_dim));
    keys.insert("intermediate_size", model.hidden.map_or(Value::Null, int));
    keys.insert("hidden_act", text("silu"));
    keys.insert("rms_norm_eps", float(model.norm_eps));
    keys.insert("rope_theta", float(*theta));
    keys.insert("rope_scaling", Value::Null);
    keys.insert("attention_bias", Value::Bool(false));
    keys.insert("attention_dropout", float(Decimal::ZERO));
    keys.insert("mlp_bias", Value::Bool(false));
    keys.insert("initializer_range", float(model.init.range().unwrap_or(decimal("0.02"))));
    if canon {
        keys.insert("qk_norm", Value::Bool(*qk_norm));
        keys.insert("rope_dim", if rope_dims == head_dim { Value::Null } else { int(*rope_dims) });
        let version = if *layout == RopeLayout::Half { "huggingface" } else { "lingua" };
        keys.insert("rope_version", text(version));
    }
}
