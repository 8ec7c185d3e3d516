//! Reads the keys of a decoder with softmax attention.
//!
//! An absent key has the class's value; `null` switches off what a number would switch on.

use compiler::plan::RopeScaling;
use compiler::tree::MAX_LAYERS;
use dsl::{Decimal, Problem};

use super::super::class::{Class, Windows};
use super::super::config::{Keys, decimal};
use super::super::described::Described;
use super::super::init::Init;
use super::super::messages::{self, IGNORED};
use super::super::model::{
    Attention, AttentionOptions, Canon, Mixer, Model, ModelOptions, QkNorm, RopeLayout,
};
use super::super::names::GatedNorm;
use super::super::node::NodeValue;
use super::{canon, divided, rope, rope_dims};

/// Keys with the values that the class takes if they are absent.
struct Defaults<'a, 'b>(&'a Keys<'b>, &'static Class);

impl Defaults<'_, '_> {
    fn absent(&self, key: &str) -> Option<&'static str> {
        let Defaults(keys, class) = self;
        let default = class.absent.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
        default.filter(|_| !keys.has(key))
    }

    fn int(&self, key: &str) -> Result<Option<i64>, Problem> {
        match self.absent(key) {
            Some(value) => Ok(decimal(value).to_int()),
            None => self.0.int(key),
        }
    }

    fn decimal(&self, key: &str) -> Result<Option<Decimal>, Problem> {
        match self.absent(key) {
            Some(value) => Ok(Some(decimal(value))),
            None => self.0.decimal(key),
        }
    }

    fn bool_or(&self, key: &str, default: bool) -> Result<bool, Problem> {
        match self.absent(key) {
            Some(value) => Ok(value == "true"),
            None => self.0.bool_or(key, default),
        }
    }
}

/// Reads all keys that are not general ones. A released model has neither biases nor scaled RoPE, and none of the
/// options of other classes; its class may have Canon layers.
pub(super) fn read(
    keys: &Keys<'_>,
    class: &'static Class,
    released: bool,
) -> Result<Described, Problem> {
    let known = Defaults(keys, class);
    let bias = bias(keys, class, released)?;
    check_options(keys, class, released)?;
    let (dim, heads) = (keys.positive("hidden_size")?, keys.positive("num_attention_heads")?);
    let head_dim = match known.int("head_dim")? {
        Some(n) => n,
        None => divided(keys, "hidden_size", dim, heads)?,
    };
    let theta = rope::theta(keys)?;
    let scaling = if released { RopeScaling::Unscaled } else { rope::scaling(keys, theta)? };
    let hidden = hidden(keys, class, dim, released)?;
    let canon = CanonKeys::read(keys, class, head_dim)?;
    if released && class.code.is_none() {
        keys.neutral(&messages::WHOLE_HEAD)?;
        keys.neutral(&messages::WHOLE_HEAD_5)?;
    }
    let kv_heads = known.int("num_key_value_heads")?.unwrap_or(heads);
    let range = keys.decimal_or("initializer_range", "0.02")?;
    let Bounds { score, softcap, logit_cap } = match released {
        true => Bounds::default(),
        false => Bounds::read(&known, head_dim)?,
    };
    let tied = known.bool_or("tie_word_embeddings", false)?;
    if let (Some(cap), false) = (logit_cap, tied) {
        return Err(messages::cap_needs_table(keys, cap));
    }
    let attention = Attention {
        heads,
        kv_heads,
        head_dim,
        qk_norm: if canon.qk_norm { QkNorm::Joint } else { class.qk_norm },
        theta,
        layout: canon.layout,
        rope_dims: canon.rope_dims,
        options: AttentionOptions { scaling, bias, score, softcap },
    };
    let model = Model {
        vocab: keys.positive("vocab_size")?,
        dim,
        layers: keys.positive("num_hidden_layers")?,
        norm_eps: known.decimal("rms_norm_eps")?.unwrap_or(decimal("1e-6")),
        mixer: Mixer::Attention(attention),
        hidden: Some(hidden),
        tied,
        canon: canon.canon,
        init: Init::hugging_face_with(range),
        options: ModelOptions {
            norms: class.norms,
            scaled_embedding: class.bounded,
            gelu: !released && is_gelu(keys, class)?,
            logit_cap,
            windows: if released { Vec::new() } else { windows(&known)? },
        },
    };
    Ok(Described { class, model, norm: GatedNorm::Fused, turned: false })
}

/// Keys that have one value, or no effect.
fn check_options(keys: &Keys<'_>, class: &Class, released: bool) -> Result<(), Problem> {
    keys.idle(&["attention_dropout"]);
    keys.check(&messages::MLP_BIAS)?;
    if released {
        keys.check(&messages::SILU)?;
        without_windows(keys)?;
        return rope::check_unscaled(keys, class.code.is_some());
    }
    // It only chooses how a cache is kept.
    keys.idle(&["cache_implementation"]);
    keys.check(&messages::BIDIRECTIONAL)?;
    keys.neutral(&messages::WHOLE_HEAD)
}

/// Whether projections of attention have biases.
fn bias(keys: &Keys<'_>, class: &Class, released: bool) -> Result<bool, Problem> {
    if released {
        keys.check(&messages::ATTENTION_BIAS)?;
        return Ok(false);
    }
    let bias = keys.bool_or("attention_bias", false)?;
    if bias && !class.biases {
        return Err(messages::class_has_no_biases(keys, class.name));
    }
    Ok(bias)
}

/// The width of the MLP.
fn hidden(keys: &Keys<'_>, class: &Class, dim: i64, released: bool) -> Result<i64, Problem> {
    let key = "intermediate_size";
    match keys.int(key)? {
        _ if !released => keys.positive(key),
        Some(hidden) => Ok(hidden),
        None if class.code.is_none() => Err(messages::no_hidden(keys)),
        None if !keys.has(key) => Err(messages::default_hidden(keys)),
        None => Ok(8 * dim / 3),
    }
}

/// Whether the MLP's gate is gelu, by the name of its activation.
fn is_gelu(keys: &Keys<'_>, class: &Class) -> Result<bool, Problem> {
    let (key, default) = class.activation;
    let name = keys.text(key)?.unwrap_or(default);
    let is_gelu = match name {
        "silu" | "swish" => false,
        "gelu_pytorch_tanh" => true,
        _ => return Err(messages::unknown_gate(keys, key)),
    };
    // The class of Gemma 2 ignores the older key, which its configurations have as well.
    if key != "hidden_act" {
        keys.only("hidden_act", &[name], &messages::other_gate(key, name))?;
    }
    Ok(is_gelu)
}

/// What only Canon's class has.
struct CanonKeys {
    canon: Canon,
    layout: RopeLayout,
    rope_dims: i64,
    qk_norm: bool,
}

impl CanonKeys {
    fn read(keys: &Keys<'_>, class: &Class, head_dim: i64) -> Result<CanonKeys, Problem> {
        if class.code.is_none() {
            let (canon, layout) = (Canon::NONE, RopeLayout::Half);
            return Ok(CanonKeys { canon, layout, rope_dims: head_dim, qk_norm: false });
        }
        let (canon, _) = canon(keys, "", "ABCD")?;
        let layout = match keys.text("rope_version")? {
            None | Some("huggingface") => RopeLayout::Half,
            Some("lingua") => RopeLayout::Interleaved,
            Some(_) => return Err(messages::unknown_rope_version(keys)),
        };
        let rope_dims = rope_dims(keys, "rope_dim", head_dim)?;
        // The class rotates this part of a head unless `rope_dim` is set.
        if let Some(part) = keys.decimal("partial_rotary_factor")?
            && (part.to_f64() * head_dim as f64 - rope_dims as f64).abs() > 1e-6
        {
            return Err(messages::rotated_part(keys, rope_dims, head_dim));
        }
        let qk_norm = keys.bool_or("qk_norm", false)?;
        Ok(CanonKeys { canon, layout, rope_dims, qk_norm })
    }
}

/// The scale and bounds of scores and logits.
#[derive(Default)]
struct Bounds {
    score: Option<i64>,
    softcap: Option<Decimal>,
    logit_cap: Option<Decimal>,
}

impl Bounds {
    fn read(known: &Defaults<'_, '_>, head_dim: i64) -> Result<Bounds, Problem> {
        let Defaults(keys, class) = known;
        let read = |key: &str| if class.bounded { known.decimal(key) } else { Ok(None) };
        let score = match read("query_pre_attn_scalar")?.map(Decimal::to_int) {
            None => None,
            Some(Some(n)) if n > 0 => Some(n),
            Some(_) => return Err(messages::wrong_score(keys)),
        };
        // Our exports say so where an arch has no scale of its own, which is the same number and another graph.
        keys.check(&messages::SCORE_SCALE)?;
        let is_default = keys.text("canonc.score_scale")?.is_some();
        if is_default && score != Some(head_dim) {
            return Err(messages::other_score(keys, head_dim));
        }
        Ok(Bounds {
            score: score.filter(|_| !is_default),
            softcap: read("attn_logit_softcapping")?,
            logit_cap: read("final_logit_softcapping")?,
        })
    }
}

/// Keys of Qwen's classes, which the others ignore: neutral where they ask for no windows.
fn without_switch(keys: &Keys<'_>) -> Result<(), Problem> {
    keys.check(&messages::NO_SWITCH)?;
    for key in ["use_sliding_window", "max_window_layers"] {
        keys.leave_out(key, IGNORED);
    }
    Ok(())
}

/// Keys of windows in the configuration of a class that has none.
fn without_windows(keys: &Keys<'_>) -> Result<(), Problem> {
    without_switch(keys)?;
    // A configuration that switches windows off may keep their size.
    let off =
        keys.node("use_sliding_window").is_some_and(|node| node.value == NodeValue::Bool(false));
    if !off {
        keys.check(&messages::NO_WINDOW)?;
    }
    keys.leave_out("sliding_window", IGNORED);
    Ok(())
}

/// The window of each layer; empty if none has one.
fn windows(known: &Defaults<'_, '_>) -> Result<Vec<Option<i64>>, Problem> {
    let Defaults(keys, class) = known;
    let layers = keys.positive("num_hidden_layers")?;
    if layers > MAX_LAYERS as i64 {
        return Err(messages::too_many_layers(keys, MAX_LAYERS));
    }
    let used = class.windows != Windows::Upper || keys.bool_or("use_sliding_window", false)?;
    let window = match class.windows {
        Windows::Never => {
            without_windows(keys)?;
            None
        }
        Windows::Always | Windows::Even => {
            without_switch(keys)?;
            size_of_windows(known)?
        }
        Windows::Upper => size_of_windows(known)?.filter(|_| used),
    };
    let first = match class.windows {
        Windows::Upper => known.int("max_window_layers")?.unwrap_or(0),
        Windows::Never | Windows::Always | Windows::Even => 0,
    };
    let of_class = class.windows.of_layers(layers, window, first);
    let Some(listed) = layer_types(keys, layers, window)? else { return Ok(of_class) };
    // The other classes ignore the key.
    let reads = matches!(class.windows, Windows::Even | Windows::Upper);
    if !reads && listed != of_class {
        return Err(messages::layer_types_are_ignored(keys));
    }
    Ok(listed)
}

/// The window of the layers that have one.
fn size_of_windows(known: &Defaults<'_, '_>) -> Result<Option<i64>, Problem> {
    let Defaults(keys, _) = known;
    let window = known.int("sliding_window")?;
    if window == Some(0) {
        return Err(messages::empty_window(keys));
    }
    // Some configurations of Gemma 2 repeat the number under a name that no class reads.
    let shown = window.map(|n| n.to_string()).unwrap_or_default();
    keys.only_neutral("sliding_window_size", &[&shown], messages::OTHER_WINDOW)?;
    Ok(window)
}

/// The window of each layer as `layer_types` lists them.
fn layer_types(
    keys: &Keys<'_>,
    layers: i64,
    window: Option<i64>,
) -> Result<Option<Vec<Option<i64>>>, Problem> {
    let Some(types) = keys.node("layer_types") else { return Ok(None) };
    let NodeValue::List(types) = &types.value else {
        return Err(messages::layer_types_are_no_list(keys));
    };
    if types.len() as i64 != layers {
        return Err(messages::number_of_layer_types(keys, types.len(), layers));
    }
    let mut windows = Vec::new();
    for (layer, node) in types.iter().enumerate() {
        windows.push(match (node.value.plain().as_str(), window) {
            ("full_attention", _) => None,
            ("sliding_attention", Some(window)) => Some(window),
            ("sliding_attention", None) => return Err(messages::layer_without_window(keys, layer)),
            (kind, _) => return Err(messages::unknown_layer_type(keys, layer, kind)),
        });
    }
    if windows.iter().all(Option::is_none) {
        windows.clear();
    }
    Ok(Some(windows))
}
