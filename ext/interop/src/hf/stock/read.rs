//! Reads the keys of a stock class.
//!
//! In: the keys of a `config.json`, and the row of its class. Out: the model. Must stay true: an absent key has the
//! class's value; `null` switches off what a number would switch on; a key that changes the computation is expressed or
//! refused with its line, and unknown keys are refused.

use compiler::plan::{RopeLayout, RopeScaling};
use compiler::tree::MAX_LAYERS;
use dsl::Decimal;

use super::super::super::ForeignError;
use super::super::super::config::{Keys, decimal};
use super::super::super::model::Init;
use super::super::super::node::Value;
use super::super::{Own, divided};
use super::{FAMILIES, Family, Stock, Windows};

/// The class of a configuration, if it is read here. A Llama without scaled RoPE and biases is of a released family.
pub(in super::super) fn takes(keys: &Keys<'_>) -> Result<Option<&'static Family>, ForeignError> {
    let model_type = keys.text("model_type")?;
    let family = FAMILIES.iter().find(|family| Some(family.model_type) == model_type);
    let scaled = || -> Result<bool, ForeignError> {
        let kind = rope_type(keys)?.map_or("default", |(_, kind)| kind);
        Ok(kind != "default")
    };
    match family {
        Some(family) if family.model_type == "llama" => {
            Ok((keys.bool_or("attention_bias", false)? || scaled()?).then_some(family))
        }
        family => Ok(family),
    }
}

/// Keys with the values that the class takes if they are absent.
struct Defaults<'a, 'b>(&'a Keys<'b>, &'static Family);

impl Defaults<'_, '_> {
    fn absent(&self, key: &str) -> Option<&'static str> {
        let Defaults(keys, family) = self;
        let default = family.absent.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
        default.filter(|_| !keys.has(key))
    }

    fn int(&self, key: &str) -> Result<Option<i64>, ForeignError> {
        match self.absent(key) {
            Some(value) => Ok(decimal(value).to_int()),
            None => self.0.int(key),
        }
    }

    fn decimal(&self, key: &str) -> Result<Option<Decimal>, ForeignError> {
        match self.absent(key) {
            Some(value) => Ok(Some(decimal(value))),
            None => self.0.decimal(key),
        }
    }
}

/// Reads all keys that are not general ones.
pub(in super::super) fn read(
    keys: &Keys<'_>,
    family: &'static Family,
) -> Result<Stock, ForeignError> {
    let known = Defaults(keys, family);
    // These only choose how a cache is kept.
    keys.idle(&["attention_dropout", "cache_implementation"]);
    keys.only("mlp_bias", &["false"], "and the MLP has no biases here")?;
    keys.only("use_bidirectional_attention", &["false"], "and tokens see only the past")?;
    keys.neutral("partial_rotary_factor", &["1"], "and RoPE rotates the whole head")?;
    let bias = keys.bool_or("attention_bias", false)?;
    if bias && !family.biases {
        let why = format!("and attention of {} has no biases here", family.class);
        return Err(keys.refuse("attention_bias", why, "only false can be expressed"));
    }
    let (dim, heads) = (keys.positive("hidden_size")?, keys.positive("num_attention_heads")?);
    let head_dim = match known.int("head_dim")? {
        Some(n) => n,
        None => divided(keys, "hidden_size", dim, heads)?,
    };
    let (theta, scaling) = rope(keys)?;
    let own = Own::read(keys)?;
    let range = keys.decimal_or("initializer_range", "0.02")?;
    let [score, softcap, cap] = if family.bounded {
        ["query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping"]
            .map(|key| known.decimal(key))
    } else {
        [Ok(None), Ok(None), Ok(None)]
    };
    let score = match score? {
        None => None,
        Some(score) => match score.to_int() {
            Some(n) if n > 0 => Some(n),
            Some(_) | None => {
                let why = "and it should be a whole number above 0";
                return Err(keys.refuse(
                    "query_pre_attn_scalar",
                    why,
                    "write it as the class does",
                ));
            }
        },
    };
    // Our exports say so where an arch has no scale of its own, which is the same number and another graph.
    keys.only("canonc.score_scale", &["default"], "and it should be \"default\"")?;
    let score = match keys.text("canonc.score_scale")? {
        Some(_) if score != Some(head_dim) => {
            let why = format!("and `query_pre_attn_scalar` is not the heads' width, {head_dim}");
            return Err(keys.refuse("canonc.score_scale", why, "remove it"));
        }
        Some(_) => None,
        None => score,
    };
    let cap = cap?;
    let tied = match known.absent("tie_word_embeddings") {
        Some(value) => value == "true",
        None => keys.bool_or("tie_word_embeddings", false)?,
    };
    if let (Some(cap), false) = (cap, tied) {
        let why = format!("and `final_logit_softcapping` is {cap}, which needs the token table");
        return Err(keys.refuse("tie_word_embeddings", why, "only true can be expressed"));
    }
    Ok(Stock {
        family,
        vocab: keys.positive("vocab_size")?,
        dim,
        heads,
        kv_heads: known.int("num_key_value_heads")?.unwrap_or(heads),
        head_dim,
        hidden: keys.positive("intermediate_size")?,
        mlp: mlp(keys, family)?,
        norm_eps: known.decimal("rms_norm_eps")?.unwrap_or(decimal("1e-6")),
        theta,
        scaling,
        rows: if own.interleaved { RopeLayout::Interleaved } else { RopeLayout::Half },
        windows: windows(&known)?,
        bias,
        score,
        softcap: softcap?,
        cap,
        tied,
        init: own.init.unwrap_or_else(|| Init::hugging_face_with(range)),
    })
}

/// The MLP by the name of its activation.
fn mlp(keys: &Keys<'_>, family: &Family) -> Result<&'static str, ForeignError> {
    let (key, default) = family.activation;
    let name = keys.text(key)?.unwrap_or(default);
    let mlp = match name {
        "silu" | "swish" => "swiglu",
        "gelu_pytorch_tanh" => "geglu",
        _ => {
            let why = "and a gated MLP has silu or gelu_pytorch_tanh here";
            return Err(keys.refuse(key, why, "change the arch after the import, in .canon"));
        }
    };
    // The class of Gemma 2 ignores the older key, which its configurations have as well.
    if key != "hidden_act" {
        keys.only("hidden_act", &[name], &format!("and `{key}` is {name:?}"))?;
    }
    Ok(mlp)
}

/// Keys of Qwen's classes, which the others ignore: neutral where they ask for no windows.
fn without_switch(keys: &Keys<'_>) -> Result<(), ForeignError> {
    let why = "and this class ignores it: only a configuration of Qwen switches windows on";
    keys.only("use_sliding_window", &["false"], why)?;
    for key in ["use_sliding_window", "max_window_layers"] {
        keys.left(key, "this class ignores it");
    }
    Ok(())
}

/// Keys of windows in the configuration of a class that has none.
pub(in super::super) fn without_windows(keys: &Keys<'_>) -> Result<(), ForeignError> {
    without_switch(keys)?;
    // A configuration that switches windows off may keep their size.
    let off = keys.node("use_sliding_window").is_some_and(|node| node.value == Value::Bool(false));
    if !off {
        keys.only("sliding_window", &[], "and this class ignores it")?;
    }
    keys.left("sliding_window", "this class ignores it");
    Ok(())
}

/// The window of each layer.
fn windows(known: &Defaults<'_, '_>) -> Result<Vec<Option<i64>>, ForeignError> {
    let Defaults(keys, family) = known;
    let layers = keys.positive("num_hidden_layers")?;
    if layers > MAX_LAYERS as i64 {
        let why = format!("and an arch has at most {MAX_LAYERS} layers");
        return Err(keys.refuse("num_hidden_layers", why, "give the original configuration"));
    }
    let used = family.windows != Windows::Upper || keys.bool_or("use_sliding_window", false)?;
    if matches!(family.windows, Windows::Always | Windows::Even) {
        without_switch(keys)?;
    }
    let window = match family.windows {
        Windows::Never => {
            without_windows(keys)?;
            None
        }
        Windows::Always | Windows::Even | Windows::Upper => {
            let window = known.int("sliding_window")?;
            if window == Some(0) {
                let why = "and a window of 0 tokens sees nothing";
                return Err(keys.refuse("sliding_window", why, "write null for the whole past"));
            }
            // Some configurations of Gemma 2 repeat the number under a name that no class reads.
            let shown = window.map(|n| n.to_string()).unwrap_or_default();
            keys.neutral("sliding_window_size", &[&shown], "and `sliding_window` is another")?;
            window.filter(|_| used)
        }
    };
    let first = match family.windows {
        Windows::Upper => known.int("max_window_layers")?.unwrap_or(0),
        Windows::Never | Windows::Always | Windows::Even => 0,
    };
    let of_class = family.windows.of_layers(layers, window, first);
    let Some(types) = keys.node("layer_types") else { return Ok(of_class) };
    let refuse = |why: &str| {
        let help =
            "list \"full_attention\" or \"sliding_attention\" for each layer, as the class does";
        keys.refuse("layer_types", why, help)
    };
    let Value::List(types) = &types.value else { return Err(refuse("and it should be a list")) };
    if types.len() as i64 != layers {
        let why = format!("with {} layers, and `num_hidden_layers` is {layers}", types.len());
        return Err(refuse(&why));
    }
    let mut listed = Vec::new();
    for (layer, node) in types.iter().enumerate() {
        listed.push(match (node.value.plain().as_str(), window) {
            ("full_attention", _) => None,
            ("sliding_attention", Some(window)) => Some(window),
            ("sliding_attention", None) => {
                let why =
                    format!("and layer {layer} would have a window, but the other keys give none");
                return Err(refuse(&why));
            }
            (other, _) => {
                return Err(refuse(&format!(
                    "and the kind of layer {layer}, {other:?}, is unknown"
                )));
            }
        });
    }
    // The other classes ignore the key.
    let reads = matches!(family.windows, Windows::Even | Windows::Upper);
    if !reads && listed != of_class {
        return Err(refuse("and this class ignores it: `sliding_window` decides"));
    }
    Ok(listed)
}

/// The map with RoPE's scaling and the kind that it names. `transformers` 5 has it under another name.
fn rope_type<'a>(keys: &Keys<'a>) -> Result<Option<(&'static str, &'a str)>, ForeignError> {
    let mut found = None;
    for place in ["rope_scaling", "rope_parameters"] {
        let mut kind = None;
        for key in ["rope_type", "type"] {
            let key = format!("{place}.{key}");
            match (kind, keys.text(&key)?) {
                (Some(known), Some(other)) if known != other => {
                    let why = format!("and `{place}.rope_type` is {known:?}");
                    return Err(keys.refuse(&key, why, "make them agree"));
                }
                (None, Some(name)) => kind = Some(name),
                (_, _) => {}
            }
        }
        match (found, kind) {
            (Some((other, _)), Some(_)) => {
                let why = format!("and `{other}` is there, too");
                return Err(keys.refuse(&format!("{place}.rope_type"), why, "keep one of them"));
            }
            (None, Some(kind)) => found = Some((place, kind)),
            (_, None) => {}
        }
    }
    Ok(found)
}

/// The base of RoPE's frequencies, and how they are scaled.
fn rope(keys: &Keys<'_>) -> Result<(Decimal, RopeScaling), ForeignError> {
    let theta = match (keys.decimal("rope_theta")?, keys.decimal("rope_parameters.rope_theta")?) {
        (Some(theta), Some(other)) if theta != other => {
            let why = format!("and `rope_parameters.rope_theta` is {other}");
            return Err(keys.refuse("rope_theta", why, "make them agree"));
        }
        (Some(theta), _) | (None, Some(theta)) => theta,
        (None, None) => decimal("10000"),
    };
    let Some((place, kind)) = rope_type(keys)? else { return Ok((theta, RopeScaling::Unscaled)) };
    let at = |key: &str| format!("{place}.{key}");
    keys.neutral(&at("partial_rotary_factor"), &["1"], "and RoPE rotates the whole head")?;
    let needed = |key: &str| -> Result<Decimal, ForeignError> {
        let key = at(key);
        let value = keys.decimal(&key)?.filter(|n| !n.is_negative() && !n.is_zero());
        value.ok_or_else(|| {
            keys.refuse(
                &key,
                format!("and a `rope_type` of {kind} needs a number above 0"),
                "write it",
            )
        })
    };
    let scaling = match kind {
        "default" => RopeScaling::Unscaled,
        "linear" => RopeScaling::Interpolated { factor: needed("factor")? },
        "llama3" => {
            let (low, high) = (needed("low_freq_factor")?, needed("high_freq_factor")?);
            if high.compare(low).is_le() {
                let why = format!("and it should be above `low_freq_factor`, {low}");
                return Err(keys.refuse(
                    &at("high_freq_factor"),
                    why,
                    "write it as the class does",
                ));
            }
            let original = keys.positive(&at("original_max_position_embeddings"))?;
            RopeScaling::Llama3 { factor: needed("factor")?, original, low, high }
        }
        "yarn" => yarn(keys, place, theta)?,
        _ => {
            let key = ["rope_type", "type"].map(at).into_iter().find(|key| keys.has(key));
            let why = "and RoPE can be default, linear, llama3 or yarn here";
            let help = "change the arch after an import with one of them, in .canon";
            return Err(keys.refuse(&key.unwrap_or_default(), why, help));
        }
    };
    Ok((theta, scaling))
}

/// YaRN's settings. The class computes other numbers for a factor below 1, and fails for a base of 1.
fn yarn(keys: &Keys<'_>, place: &str, theta: Decimal) -> Result<RopeScaling, ForeignError> {
    let at = |key: &str| format!("{place}.{key}");
    if theta.compare(Decimal::from(1)).is_le() {
        let why = format!("and YaRN needs a `rope_theta` above 1, not {theta}");
        return Err(keys.refuse(&at("rope_type"), why, "give the original configuration"));
    }
    keys.neutral(&at("beta_fast"), &["32"], "and YaRN's ramp begins at 32 turns here")?;
    keys.neutral(&at("beta_slow"), &["1"], "and YaRN's ramp ends at 1 turn here")?;
    let original = at("original_max_position_embeddings");
    let original = match keys.int(&original)? {
        Some(_) => keys.positive(&original)?,
        None => keys.positive("max_position_embeddings")?,
    };
    let factor = match keys.decimal(&at("factor"))? {
        Some(factor) => factor,
        None if !keys.has(&at("factor")) => {
            let why = "and a `rope_type` of yarn needs a number of 1 or more";
            return Err(keys.refuse(&at("factor"), why, "write it"));
        }
        // The class divides the lengths for `null`.
        None => {
            let length = keys.positive("max_position_embeddings")?;
            if length % original != 0 {
                let why = format!(
                    "and {length} positions are no multiple of the {original} trained ones"
                );
                return Err(keys.refuse(&at("factor"), why, "write it"));
            }
            Decimal::from(length / original)
        }
    };
    if factor.compare(Decimal::from(1)).is_lt() {
        let why = "and YaRN needs a factor of 1 or more";
        return Err(keys.refuse(&at("factor"), why, "give the original configuration"));
    }
    // `null` is false for the class, and absent is true.
    let truncate = at("truncate");
    let truncate = match keys.node(&truncate) {
        None => !keys.has(&truncate),
        Some(_) => keys.bool_or(&truncate, true)?,
    };
    let scaling = RopeScaling::Yarn {
        factor,
        original,
        truncate,
        mscale: Decimal::from(1),
        mscale_all: Decimal::ZERO,
    };
    let usual = scaling.magnitude();
    let weight = |key: &str| -> Result<Option<Decimal>, ForeignError> {
        Ok(keys.decimal(&at(key))?.filter(|weight| !weight.is_zero()))
    };
    match keys.decimal(&at("attention_factor"))? {
        Some(given) if given.to_f64() != usual => {
            let why = format!(
                "and the factor of cos and sin is YaRN's own, 0.1 ln({factor}) + 1 = {usual}"
            );
            return Err(keys.refuse(&at("attention_factor"), why, "remove it or write null"));
        }
        Some(_) => keys.left(&at("attention_factor"), "it is YaRN's own"),
        // The class reads the two only together.
        None => {
            if let (Some(_), Some(all)) = (weight("mscale")?, weight("mscale_all_dim")?) {
                let why = format!(
                    "and `mscale_all_dim` is {all}, but the factor of cos and sin is YaRN's own, 0.1 ln({factor}) + 1"
                );
                return Err(keys.refuse(&at("mscale"), why, "remove both or write null"));
            }
        }
    }
    for key in ["mscale", "mscale_all_dim"] {
        keys.left(&at(key), "the class does not use it here");
    }
    Ok(scaling)
}
