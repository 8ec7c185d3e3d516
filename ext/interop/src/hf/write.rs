//! Writes Hugging Face's `config.json`.
//!
//! In: a model. Out: the keys that the published class reads. Must stay true: with these keys, the class builds exactly
//! this model; anything that they cannot express is under `canonc`, which other programs ignore.

use std::collections::BTreeMap;

use dsl::Decimal;

use super::super::ForeignError;
use super::super::config::decimal;
use super::super::model::{Attention, Family, Init, Mixer, Model, RopeLayout};
use super::super::names::GatedNorm;
use super::super::node::{Node, Value};
use super::{Released, TYPES};

pub(super) fn node(value: Value) -> Node {
    Node { value, line: 0 }
}

pub(super) fn int(n: i64) -> Value {
    Value::Number(n.to_string())
}

pub(super) fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

/// A number with a decimal point, as Python prints a float.
pub(crate) fn float(number: Decimal) -> Value {
    let digits = number.to_string();
    let whole = !digits.contains(['.', 'e']);
    Value::Number(if whole { format!("{digits}.0") } else { digits })
}

/// The letters of `canon_set`.
pub(crate) fn canon_set(model: &Model) -> String {
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
    // The release writes `b` twice in these sets.
    if model.short_conv() { set.replace('b', "bb") } else { set }
}

/// The row of [`TYPES`] for a model.
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

/// The name of the published files, unless stock `transformers` has the class.
pub fn published(model: &Model) -> Option<&'static str> {
    Some(class_of(model).2).filter(|code| !code.is_empty())
}

/// The folder of the published repository with the class.
pub fn code_folder(model: &Model) -> &'static str {
    match model.family() {
        Family::Llama => "huggingface",
        Family::Gla5 | Family::Gdn2 | Family::Mamba2 => "lingua_modified/huggingface",
    }
}

/// Refuses a model if the class would compute something else than its keys say.
pub fn check_class(name: &str, model: &Model) -> Result<(), ForeignError> {
    let Mixer::Attention(attention) = &model.mixer else { return Ok(()) };
    let turns = turned_channels(attention);
    if model.is_plain_llama() || turns == attention.rope_dims {
        return Ok(());
    }
    let Attention { rope_dims, head_dim, .. } = attention;
    let message = format!(
        "`rope.dims` is {rope_dims}, with which the published class rotates {turns} of a head's {head_dim} channels"
    );
    Err(ForeignError::new(name, message, "use another `rope.dims`: a power of two is exact"))
}

/// How many channels of a head the published classes rotate: a quotient in f64, multiplied and truncated, so one too
/// few for awkward widths (30 of 88), never for powers of two.
pub(crate) fn turned_channels(attention: &Attention) -> i64 {
    let head_dim = attention.head_dim as f64;
    (head_dim * (attention.rope_dims as f64 / head_dim)) as i64
}

/// The class's name.
pub fn class(model: &Model) -> &'static str {
    class_of(model).1
}

/// The `config.json` of a model.
pub fn write(described: &Released, seq_len: i64, dtype: &str) -> Value {
    let Released { model, norm, turned } = described;
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
            Init::hugging_face()
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
            Init::flash_linear()
        }
        Mixer::Mamba2 { heads, state, short_conv } => {
            // The class reads only this key, never the `b` of `canon_set`, and then expects no bias.
            keys.insert("noconv1d", Value::Bool(!short_conv));
            keys.insert("use_conv_bias", Value::Bool(*short_conv));
            keys.insert("num_heads", int(*heads));
            keys.insert("head_dim", int(2 * model.dim / heads));
            keys.insert("state_size", int(*state));
            keys.insert("n_groups", int(1));
            keys.insert("expand", int(2));
            keys.insert("conv_kernel", int(4));
            keys.insert("use_bias", Value::Bool(false));
            keys.insert("hidden_act", text("silu"));
            keys.insert("rms_norm", Value::Bool(true));
            keys.insert("residual_in_fp32", Value::Bool(false));
            keys.insert("layer_norm_epsilon", float(model.norm_eps));
            keys.insert("initializer_range", float(decimal("0.1")));
            let limit = ["0.0", "Infinity"].map(|n| node(Value::Number(n.to_owned())));
            keys.insert("time_step_limit", Value::List(limit.to_vec()));
            keys.insert("mlp_type", model.hidden.map_or(Value::Null, |_| text("mlp10")));
            keys.insert("intermediate_size", model.hidden.map_or(Value::Null, int));
            Init::mamba()
        }
    };
    let own = own(
        &model.init,
        *turned,
        model.init == derived || model.family() == Family::Llama && model.init.range().is_some(),
    );
    if let Some(own) = own {
        keys.insert("canonc", own);
    }
    Value::Map(keys.into_iter().map(|(key, value)| (key.to_owned(), node(value))).collect())
}

/// The keys that other programs ignore: the initial distributions, if they differ from the configuration's, and whether
/// rows were reordered.
pub(crate) fn own(init: &Init, halved: bool, derived: bool) -> Option<Value> {
    let mut own = Vec::new();
    if !derived {
        let init = match init.name() {
            Some(name) => text(name),
            None => Value::Map(
                init.rows()
                    .iter()
                    .map(|(k, v)| (k.clone(), node(Value::Text(v.clone()))))
                    .collect(),
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
