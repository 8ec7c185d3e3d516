//! Writes Hugging Face's `config.json`: the keys with which the class builds exactly this model, in every version that has
//! the class by that name.

use std::collections::BTreeMap;

use compiler::plan::RopeScaling;
use dsl::{Decimal, Problem};

use super::super::class::{Class, Windows};
use super::super::config::decimal;
use super::super::described::Described;
use super::super::init::Init;
use super::super::model::{Attention, Family, Mixer, Model, QkNorm, RopeLayout};
use super::super::names::GatedNorm;
use super::super::node::{Node, NodeValue};

fn node(value: NodeValue) -> Node {
    Node { value, line: 0 }
}

fn int(n: i64) -> NodeValue {
    NodeValue::Number(n.to_string())
}

fn text(text: &str) -> NodeValue {
    NodeValue::Text(text.to_owned())
}

/// A number with a decimal point, as Python prints a float.
pub(crate) fn float(number: Decimal) -> NodeValue {
    let digits = number.to_string();
    let is_whole = !digits.contains(['.', 'e']);
    NodeValue::Number(if is_whole { format!("{digits}.0") } else { digits })
}

/// The letters of `canon_set`.
pub(crate) fn canon_set(model: &Model) -> String {
    let has = |c: char| model.canon.has(c);
    let mut set = String::new();
    for (letter, is_set) in [
        ('A', has('A')),
        ('B', has('B')),
        ('b', model.short_conv()),
        ('C', has('C')),
        ('D', has('D')),
    ] {
        set.extend(is_set.then_some(letter));
    }
    // The release writes `b` twice in these sets.
    if model.short_conv() { set.replace('b', "bb") } else { set }
}

/// Refuses a model if the published class would compute something else than its keys say.
pub fn check_class(name: &str, model: &Model) -> Result<(), Problem> {
    let Some(attention) = model.attention() else { return Ok(()) };
    let turns = turned_channels(attention);
    if model.is_plain() || turns == attention.rope_dims {
        return Ok(());
    }
    let Attention { rope_dims, head_dim, .. } = attention;
    let message = format!(
        "`rope.dims` is {rope_dims}, with which the published class rotates {turns} of a head's {head_dim} channels"
    );
    Err(Problem::in_file(name, message, "use another `rope.dims`: a power of two is exact"))
}

/// How many channels of a head the published classes rotate: a quotient in f64, multiplied and truncated, so one too
/// few for awkward widths (30 of 88), never for powers of two.
pub(crate) fn turned_channels(attention: &Attention) -> i64 {
    let head_dim = attention.head_dim as f64;
    (head_dim * (attention.rope_dims as f64 / head_dim)) as i64
}

/// The keys of a file, sorted.
type Keys = BTreeMap<&'static str, NodeValue>;

/// The `config.json` of a model. `seq_len` is the length of the training's sequences.
pub fn write(described: &Described, seq_len: i64, dtype: &str) -> NodeValue {
    let Described { class, model, .. } = described;
    let mut keys = Keys::new();
    keys.insert("architectures", NodeValue::List(vec![node(text(class.name))]));
    keys.insert("model_type", text(class.model_type));
    keys.insert("vocab_size", int(model.vocab));
    keys.insert("hidden_size", int(model.dim));
    keys.insert("num_hidden_layers", int(model.layers));
    keys.insert("intermediate_size", model.hidden.map_or(NodeValue::Null, int));
    keys.insert("max_position_embeddings", int(seq_len));
    keys.insert("tie_word_embeddings", NodeValue::Bool(model.tied));
    keys.insert("torch_dtype", text(dtype));
    keys.insert("use_cache", NodeValue::Bool(true));
    keys.insert("bos_token_id", NodeValue::Null);
    keys.insert("eos_token_id", NodeValue::Null);
    published_keys(&mut keys, class, model);
    let derived = match &model.mixer {
        Mixer::Attention(attention) => {
            attention_keys(&mut keys, described, attention, seq_len);
            model.init.range().is_some()
        }
        Mixer::Gla5 { .. } | Mixer::Gdn2 { .. } => {
            flash_linear_keys(&mut keys, model, described.norm);
            model.init == Init::flash_linear()
        }
        Mixer::Mamba2 { state, .. } => {
            mamba2_keys(&mut keys, model, *state);
            model.init == Init::mamba()
        }
    };
    let mut ours = match our_keys(&model.init, described.turned, derived) {
        Some(NodeValue::Map(entries)) => entries,
        Some(_) | None => Vec::new(),
    };
    if class.bounded && model.attention().is_some_and(|a| a.options.score.is_none()) {
        ours.push(("score_scale".to_owned(), node(text("default"))));
    }
    if !ours.is_empty() {
        keys.insert("canonc", NodeValue::Map(ours));
    }
    NodeValue::Map(keys.into_iter().map(|(key, value)| (key.to_owned(), node(value))).collect())
}

/// The keys of a class with published code: where that is, and Canon layers.
fn published_keys(keys: &mut Keys, class: &Class, model: &Model) {
    let Some(code) = &class.code else { return };
    let stem = class.name.trim_end_matches("ForCausalLM");
    let config = format!("configuration_{}.{stem}Config", code.file);
    let class = format!("modeling_{}.{}", code.file, class.name);
    keys.insert(
        "auto_map",
        NodeValue::Map(vec![
            ("AutoConfig".to_owned(), node(NodeValue::Text(config))),
            ("AutoModelForCausalLM".to_owned(), node(NodeValue::Text(class))),
        ]),
    );
    keys.insert("canon_set", NodeValue::Text(canon_set(model)));
    keys.insert("canon_kernel", int(model.canon.kernel));
    keys.insert("canon_bias", NodeValue::Bool(false));
    keys.insert("canon_activation", NodeValue::Bool(model.canon.silu));
    keys.insert("canon_residual", NodeValue::Bool(model.canon.residual));
}

/// The keys that other programs ignore: the initial distributions, if they differ from the configuration's, and whether
/// rows were reordered.
pub(crate) fn our_keys(init: &Init, halved: bool, derived: bool) -> Option<NodeValue> {
    let mut ours = Vec::new();
    if !derived {
        let init = match init.name() {
            Some(name) => text(name),
            None => NodeValue::Map(
                init.rows()
                    .iter()
                    .map(|(k, v)| (k.clone(), node(NodeValue::Text(v.clone()))))
                    .collect(),
            ),
        };
        ours.push(("init".to_owned(), node(init)));
    }
    if halved {
        ours.push(("rope_layout".to_owned(), node(text("interleaved"))));
    }
    if ours.is_empty() { None } else { Some(NodeValue::Map(ours)) }
}

/// The keys of a decoder with softmax attention.
fn attention_keys(keys: &mut Keys, described: &Described, attention: &Attention, seq_len: i64) {
    let Described { class, model, .. } = described;
    keys.insert("num_attention_heads", int(attention.heads));
    keys.insert("num_key_value_heads", int(attention.kv_heads));
    keys.insert("head_dim", int(attention.head_dim));
    let activation = if model.options.gelu { "gelu_pytorch_tanh" } else { "silu" };
    keys.insert(class.activation.0, text(activation));
    keys.insert("rms_norm_eps", float(model.norm_eps));
    keys.insert("rope_theta", float(attention.theta));
    let (scaling, length) = scaled(&attention.options.scaling, seq_len);
    keys.insert("rope_scaling", scaling);
    keys.insert("max_position_embeddings", int(length));
    if class.biases {
        keys.insert("attention_bias", NodeValue::Bool(attention.options.bias));
    }
    keys.insert("attention_dropout", float(Decimal::ZERO));
    keys.insert("initializer_range", float(model.init.range().unwrap_or(decimal("0.02"))));
    if described.is_released() {
        keys.insert("mlp_bias", NodeValue::Bool(false));
    } else {
        // The classes have an id of their own, and never train the row of a padding token.
        keys.insert("pad_token_id", NodeValue::Null);
    }
    if class.code.is_some() {
        let Attention { head_dim, qk_norm, layout, rope_dims, .. } = attention;
        keys.insert("qk_norm", NodeValue::Bool(*qk_norm != QkNorm::None));
        keys.insert(
            "rope_dim",
            if rope_dims == head_dim { NodeValue::Null } else { int(*rope_dims) },
        );
        let version = if *layout == RopeLayout::Half { "huggingface" } else { "lingua" };
        keys.insert("rope_version", text(version));
    }
    window_keys(keys, class, model);
    if class.bounded {
        let bound = |cap: Option<Decimal>| cap.map_or(NodeValue::Null, float);
        let score = attention.options.score.unwrap_or(attention.head_dim);
        keys.insert("query_pre_attn_scalar", int(score));
        keys.insert("attn_logit_softcapping", bound(attention.options.softcap));
        keys.insert("final_logit_softcapping", bound(model.options.logit_cap));
    }
    if described.needs_eager() {
        keys.insert("_attn_implementation", text("eager"));
    }
}

fn window_keys(keys: &mut Keys, class: &Class, model: &Model) {
    let (window, first) = model.window().unwrap_or_default();
    if class.windows != Windows::Never {
        keys.insert("sliding_window", window.map_or(NodeValue::Null, int));
    }
    if class.windows == Windows::Upper {
        keys.insert("use_sliding_window", NodeValue::Bool(window.is_some()));
        keys.insert("max_window_layers", int(first));
    }
}

/// `rope_scaling`, and the positions that the model then has.
fn scaled(scaling: &RopeScaling, seq_len: i64) -> (NodeValue, i64) {
    let original = |n: i64| ("original_max_position_embeddings", int(n));
    let (kind, settings, length) = match scaling {
        RopeScaling::Unscaled | RopeScaling::Ntk { .. } => return (NodeValue::Null, seq_len),
        RopeScaling::Interpolated { factor } => {
            ("linear", vec![("factor", float(*factor))], seq_len)
        }
        RopeScaling::Llama3 { factor, original: trained, low, high } => {
            let settings = vec![
                ("factor", float(*factor)),
                ("low_freq_factor", float(*low)),
                ("high_freq_factor", float(*high)),
                original(*trained),
            ];
            ("llama3", settings, longer(*trained, *factor))
        }
        RopeScaling::Yarn { factor, original: trained, truncate, .. } => {
            let mut settings = vec![("factor", float(*factor)), original(*trained)];
            if !truncate {
                settings.push(("truncate", NodeValue::Bool(false)));
            }
            // Some versions take the quotient of this length and `original` as the factor.
            ("yarn", settings, longer(*trained, *factor))
        }
    };
    let all = std::iter::once(("rope_type", text(kind))).chain(settings);
    let map = all.map(|(key, value)| (key.to_owned(), node(value))).collect();
    (NodeValue::Map(map), length)
}

/// The length of sequences that are longer by a factor.
fn longer(original: i64, factor: Decimal) -> i64 {
    (original as f64 * factor.to_f64()).round() as i64
}

/// The keys of GLA and GatedDeltaNet.
fn flash_linear_keys(keys: &mut Keys, model: &Model, norm: GatedNorm) {
    keys.insert("num_heads", int(model.heads()));
    keys.insert("use_short_conv", NodeValue::Bool(model.short_conv()));
    keys.insert("expand_v", int(2));
    keys.insert("output_gate_rank", int(16));
    keys.insert("conv_size", int(4));
    keys.insert("hidden_act", text("swish"));
    keys.insert("norm_eps", float(model.norm_eps));
    keys.insert("initializer_range", float(decimal("0.02")));
    keys.insert("zeyuan_split_init", NodeValue::Bool(true));
    keys.insert("zeyuan_layernorm", NodeValue::Bool(norm == GatedNorm::Reference));
    keys.insert("fuse_cross_entropy", NodeValue::Bool(false));
    if model.family() == Family::Gla5 {
        keys.insert("expand_k", int(1));
    } else {
        keys.insert("head_dim", int(model.dim / model.heads()));
    }
}

/// The keys of Mamba2.
fn mamba2_keys(keys: &mut Keys, model: &Model, state: i64) {
    let short_conv = model.short_conv();
    // The class reads only this key, never the `b` of `canon_set`, and then expects no bias.
    keys.insert("noconv1d", NodeValue::Bool(!short_conv));
    keys.insert("use_conv_bias", NodeValue::Bool(short_conv));
    keys.insert("num_heads", int(model.heads()));
    keys.insert("head_dim", int(2 * model.dim / model.heads()));
    keys.insert("state_size", int(state));
    keys.insert("n_groups", int(1));
    keys.insert("expand", int(2));
    keys.insert("conv_kernel", int(4));
    keys.insert("use_bias", NodeValue::Bool(false));
    keys.insert("hidden_act", text("silu"));
    keys.insert("rms_norm", NodeValue::Bool(true));
    keys.insert("residual_in_fp32", NodeValue::Bool(false));
    keys.insert("layer_norm_epsilon", float(model.norm_eps));
    keys.insert("initializer_range", float(decimal("0.1")));
    let limit = ["0.0", "Infinity"].map(|n| node(NodeValue::Number(n.to_owned())));
    keys.insert("time_step_limit", NodeValue::List(limit.to_vec()));
    keys.insert("mlp_type", model.hidden.map_or(NodeValue::Null, |_| text("mlp10")));
}
