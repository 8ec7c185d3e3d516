//! Reads and writes the model of Lingua's `params.json` and recipe YAML.
//!
//! Every option that the release's own loader ignores is honoured or refused by name; an option without meaning for a
//! family must have its default; absent keys have Lingua's defaults.

use dsl::{Decimal, Problem};

use super::config::{Keys, decimal};
use super::described::Described;
use super::hf::{self, canon, canon_set, divided, float, rope_dims, turned_channels};
use super::init::Init;
use super::messages::lingua as messages;
use super::model::{
    Attention, AttentionOptions, Canon, Family, Mixer, Model, ModelOptions, QkNorm, RopeLayout,
};
use super::names::GatedNorm;
use super::node::{Node, NodeValue};

/// The published tokenizers: their names in Lingua and here, and their numbers of tokens.
pub const TOKENIZERS: [(&str, &str, i64); 3] =
    [("bytes", "bytes", 258), ("sp", "sentencepiece", 32_000), ("tiktoken", "tiktoken", 128_256)];

/// The smallest multiple that is at least `n`.
fn up_to(n: i64, multiple: i64) -> i64 {
    n.div_euclid(multiple) * multiple + if n.rem_euclid(multiple) > 0 { multiple } else { 0 }
}

/// Reads `model.*`.
pub fn read(keys: &Keys<'_>) -> Result<Described, Problem> {
    if !keys.has("model") {
        return Err(messages::no_model(keys));
    }
    keys.check(&messages::FAMILIES)?;
    let name = keys.text("model.model_name")?;
    // Chooses an implementation of attention; the result is the same.
    keys.idle(&["model.attn_impl"]);
    keys.check_all(&messages::GENERAL)?;
    let mut described = match name {
        None | Some("Llama") => llama(keys)?,
        Some("GLA5") => linear(keys, Family::Gla5)?,
        Some("GDN2") => linear(keys, Family::Gdn2)?,
        Some(_) => linear(keys, Family::Mamba2)?,
    };
    if let Some(init) = hf::init(keys)? {
        described.model.init = init;
    }
    if let Some("half") = keys.text("canonc.rope_layout")?
        && let Mixer::Attention(attention) = &mut described.model.mixer
    {
        attention.layout = RopeLayout::Half;
        described.turned = true;
    }
    Ok(described)
}

/// The number of tokens: given, or that of the published tokenizer.
fn vocab(keys: &Keys<'_>) -> Result<i64, Problem> {
    let is_given = keys.node("model.vocab_size").is_some_and(|node| node.value.plain() != "-1");
    if is_given {
        return keys.positive("model.vocab_size");
    }
    let name = keys.text("data.tokenizer.name")?.unwrap_or("bytes");
    match TOKENIZERS.iter().find(|(theirs, _, _)| *theirs == name) {
        Some((_, _, vocab)) => Ok(*vocab),
        None => {
            let known = TOKENIZERS.map(|(theirs, _, _)| theirs).join(", ");
            Err(messages::unknown_vocab(keys, &known))
        }
    }
}

fn llama(keys: &Keys<'_>) -> Result<Described, Problem> {
    keys.check_all(&messages::LLAMA)?;
    let dim = keys.int_or("model.dim", 512)?;
    let heads = keys.int("model.n_heads")?;
    let head_dim = keys.int("model.head_dim")?;
    let (heads, head_dim) = match (heads, head_dim) {
        (Some(heads), Some(head_dim)) => (heads, head_dim),
        (Some(heads), None) => (heads, divided(keys, "model.dim", dim, heads)?),
        (None, Some(head_dim)) => (divided(keys, "model.dim", dim, head_dim)?, head_dim),
        (None, None) => return Err(messages::no_heads(keys)),
    };
    let hidden = hidden(keys, dim)?;
    let (canon, _) = canon(keys, "model.", "ABCD")?;
    let kv_heads = keys.int_or("model.n_kv_heads", heads)?;
    let attention = Attention {
        heads,
        kv_heads,
        head_dim,
        qk_norm: match keys.bool_or("model.qk_norm", false)? {
            true => QkNorm::Joint,
            false => QkNorm::None,
        },
        theta: keys.decimal_or("model.rope_theta", "10000")?,
        layout: RopeLayout::Interleaved,
        rope_dims: rope_dims(keys, "model.rope_dim", head_dim)?,
        options: AttentionOptions::default(),
    };
    let model = Model {
        vocab: vocab(keys)?,
        dim,
        layers: keys.int_or("model.n_layers", 8)?,
        norm_eps: keys.decimal_or("model.norm_eps", "1e-5")?,
        mixer: Mixer::Attention(attention),
        hidden: Some(hidden),
        tied: keys.bool_or("model.weight_tying", false)?,
        canon,
        init: Init::lingua(),
        options: ModelOptions::default(),
    };
    Ok(Described::of_released(model, GatedNorm::Fused))
}

/// The width of a Llama's MLP.
fn hidden(keys: &Keys<'_>, dim: i64) -> Result<i64, Problem> {
    let multiple = keys.int_or("model.multiple_of", 256)?;
    if multiple < 1 {
        return Err(messages::no_multiple(keys));
    }
    let multiplier = keys.decimal("model.ffn_dim_multiplier")?;
    if let Some(hidden) = keys.int("model.hidden_dim")? {
        return Ok(hidden);
    }
    let width = 8 * dim / 3;
    let width = match multiplier {
        None => width,
        Some(factor) => floor(factor.mul(Decimal::from(width)).ok())
            .ok_or_else(|| messages::no_multiplier(keys))?,
    };
    Ok(up_to(width, multiple))
}

fn floor(number: Option<Decimal>) -> Option<i64> {
    let (mantissa, exponent) = number?.parts();
    let scale = 10i128.checked_pow(exponent.unsigned_abs())?;
    let floor =
        if exponent < 0 { mantissa.div_euclid(scale) } else { mantissa.checked_mul(scale)? };
    i64::try_from(floor).ok()
}

fn linear(keys: &Keys<'_>, family: Family) -> Result<Described, Problem> {
    let dim = keys.int_or("model.dim", 512)?;
    let mlp = check_linear(keys, family, dim)?;
    let heads = keys.positive("model.n_heads")?;
    let mamba = family == Family::Mamba2;
    let letters = match family {
        // The reference asserts that GLA5 has no slot B, and has no C and D in a Mamba2 without an MLP.
        Family::Llama | Family::Gla5 => "AbCD",
        Family::Gdn2 => "ABbCD",
        Family::Mamba2 if mlp => "ABbCD",
        Family::Mamba2 => "ABb",
    };
    let (canon, short_conv) = canon(keys, "model.", letters)?;
    let norm = match keys.bool_or("model.zeyuan_layernorm", false)? {
        true => GatedNorm::Reference,
        false => GatedNorm::Fused,
    };
    let mixer = match family {
        Family::Llama | Family::Gla5 => Mixer::Gla5 { heads, short_conv },
        Family::Gdn2 => Mixer::Gdn2 { heads, short_conv },
        Family::Mamba2 => {
            Mixer::Mamba2 { heads, state: keys.int_or("model.mamba_ssm", 256)?, short_conv }
        }
    };
    let hidden = match (mlp, keys.int("model.hidden_dim")?) {
        (true, hidden) => Some(hidden.unwrap_or(2 * dim)),
        (false, None) => None,
        (false, Some(_)) => return Err(messages::width_without_mlp(keys)),
    };
    let model = Model {
        vocab: vocab(keys)?,
        dim,
        layers: keys.int_or("model.n_layers", 8)?,
        norm_eps: keys.decimal_or("model.norm_eps", "1e-5")?,
        mixer,
        hidden,
        tied: keys.bool_or("model.weight_tying", false)?,
        canon,
        init: if mamba { Init::mamba() } else { Init::flash_linear() },
        options: ModelOptions::default(),
    };
    Ok(Described::of_released(model, norm))
}

/// Refuses settings that a linear family ignores or that no released model has. Whether there is an MLP.
fn check_linear(keys: &Keys<'_>, family: Family, dim: i64) -> Result<bool, Problem> {
    let name = match family {
        Family::Llama => "Llama",
        Family::Gla5 => "GLA5",
        Family::Gdn2 => "GDN2",
        Family::Mamba2 => "Mamba2",
    };
    let ignored =
        |key: &str, values: &[&str]| keys.only(key, values, &messages::no_effect(key, name));
    ignored("model.qk_norm", &["false"])?;
    ignored("model.head_dim", &[])?;
    ignored("model.n_kv_heads", &[])?;
    ignored("model.ffn_dim_multiplier", &[])?;
    ignored("model.multiple_of", &["256"])?;
    ignored("model.rope_theta", &["10000"])?;
    ignored("model.rope_dim", &[])?;
    let heads = keys.positive("model.n_heads")?;
    if family == Family::Mamba2 {
        divided(keys, "model.dim", 2 * dim, heads)?;
        keys.check_all(&messages::MAMBA2)?;
        return Ok(keys.text("model.mlp_type")?.is_some());
    }
    divided(keys, "model.dim", dim, heads)?;
    ignored("model.mlp_type", &[])?;
    ignored("model.mamba_ssm", &[])?;
    Ok(true)
}

fn node(value: NodeValue) -> Node {
    Node { value, line: 0 }
}

fn int(n: i64) -> NodeValue {
    NodeValue::Number(n.to_string())
}

fn some(n: Option<i64>) -> NodeValue {
    n.map_or(NodeValue::Null, int)
}

/// `model` with every key, as in `params.json`.
pub fn write(described: &Described, z_loss: bool, seed: &str, seq_len: i64) -> NodeValue {
    let Described { model, norm, .. } = described;
    let text = |text: &str| NodeValue::Text(text.to_owned());
    let attention = model.attention();
    let theta = attention.map_or(decimal("10000"), |a| a.theta);
    let state = match &model.mixer {
        Mixer::Mamba2 { state, .. } => Some(*state),
        Mixer::Attention(_) | Mixer::Gla5 { .. } | Mixer::Gdn2 { .. } => None,
    };
    let rope_dims = attention.filter(|a| a.rope_dims != a.head_dim).map(|a| a.rope_dims);
    let mut keys = vec![
        ("canon_set", NodeValue::Text(canon_set(model))),
        ("canon_bias", NodeValue::Bool(false)),
        ("canon_activation", NodeValue::Bool(model.canon.silu)),
        ("canon_kernel", int(model.canon.kernel)),
        ("canon_residual", NodeValue::Bool(model.canon.residual)),
        ("qk_norm", NodeValue::Bool(attention.is_some_and(|a| a.qk_norm != QkNorm::None))),
        ("dim", int(model.dim)),
        ("n_layers", int(model.layers)),
        ("head_dim", some(attention.map(|a| a.head_dim))),
        ("n_heads", int(model.heads())),
        ("n_kv_heads", some(attention.map(|a| a.kv_heads))),
        ("hidden_dim", some(model.hidden)),
        ("ffn_dim_multiplier", NodeValue::Null),
        ("multiple_of", int(256)),
        ("norm_eps", float(model.norm_eps)),
        ("rope_theta", float(theta)),
        ("rope_dim", some(rope_dims)),
        ("init_base_std", NodeValue::Null),
        ("init_std_factor", text("disabled")),
        ("max_seqlen", int(seq_len)),
        ("seed", NodeValue::Number(seed.to_owned())),
        ("vocab_size", int(model.vocab)),
        ("weight_tying", NodeValue::Bool(model.tied)),
        ("attn_impl", text("sdpa")),
        ("z_loss", NodeValue::Bool(z_loss)),
        ("sliding_window", NodeValue::Null),
    ];
    if let Some(name) = model_name(model) {
        keys.push(("model_name", text(name)));
        let mlp = model.family() == Family::Mamba2 && model.hidden.is_some();
        keys.push(("mlp_type", if mlp { text("mlp10") } else { NodeValue::Null }));
        keys.push(("mamba_ssm", some(state)));
        // The trainer's earlier revision does not know the key.
        if *norm == GatedNorm::Reference {
            keys.push(("zeyuan_layernorm", NodeValue::Bool(true)));
        }
    }
    NodeValue::Map(keys.into_iter().map(|(key, value)| (key.to_owned(), node(value))).collect())
}

/// Refuses a model that the published loader would read as another one, or not at all: it ignores some of the keys that
/// its trainer honours, such as `canon_kernel` and `head_dim`.
pub fn check_loader(name: &str, model: &Model) -> Result<(), Problem> {
    let mut lost: Vec<String> = Vec::new();
    let mut only = |is_loaded: bool, field: &str, has: String, loads: &str| {
        if !is_loaded {
            lost.push(format!("`{field}` is {has}, but it loads {loads}"));
        }
    };
    match &model.mixer {
        Mixer::Attention(a) => {
            only(!model.tied, "head", "tied".to_owned(), "an output of its own");
            let wide = model.dim / a.heads.max(1);
            let loads = format!("dim / heads = {}/{} = {wide}", model.dim, a.heads);
            let divides = a.head_dim == wide && wide * a.heads == model.dim;
            only(divides, "head_dim", a.head_dim.to_string(), &loads);
            let turns = turned_channels(a);
            only(turns == a.rope_dims, "rope.dims", a.rope_dims.to_string(), &turns.to_string());
            if !model.canon.slots.is_empty() {
                let Canon { slots: _, kernel, residual, silu } = &model.canon;
                only(*kernel == 4, "canon.kernel", kernel.to_string(), "4");
                only(*residual, "canon.residual", "false".to_owned(), "true");
                only(!silu, "canon.activation", "silu".to_owned(), "none");
            }
        }
        Mixer::Gla5 { .. } | Mixer::Gdn2 { .. } => {}
        Mixer::Mamba2 { state, .. } => {
            let eps = model.norm_eps;
            only(eps == decimal("1e-5"), "norm_eps", eps.to_string(), "1e-5");
            let known = [64, 128, 256].contains(state);
            only(known, "state", state.to_string(), "64, 128 or 256");
        }
    }
    if lost.is_empty() {
        return Ok(());
    }
    let message =
        format!("the published loader would build a different model\n  {}", lost.join("\n  "));
    let help = "`--to hf` carries it; or change the arch";
    Err(Problem::in_file(name, message, help))
}

/// The name of a linear family; Llama's trainer has no such key.
pub fn model_name(model: &Model) -> Option<&'static str> {
    match model.family() {
        Family::Llama => None,
        Family::Gla5 => Some("GLA5"),
        Family::Gdn2 => Some("GDN2"),
        Family::Mamba2 => Some("Mamba2"),
    }
}

/// The initial distributions that Lingua's trainer starts with.
pub(crate) fn init_of(family: Family) -> Init {
    match family {
        Family::Llama => Init::lingua(),
        Family::Gla5 | Family::Gdn2 => Init::flash_linear(),
        Family::Mamba2 => Init::mamba(),
    }
}

/// Keys that only canonc reads: initial distributions, and RoPE by halves.
pub fn ours(model: &Model) -> Option<NodeValue> {
    let init = hf::our_keys(&model.init, false, model.init == init_of(model.family()));
    let half = model.attention().is_some_and(|attention| attention.layout == RopeLayout::Half);
    let mut entries = match init {
        Some(NodeValue::Map(entries)) => entries,
        Some(_) | None => Vec::new(),
    };
    if half {
        entries.push(("rope_layout".to_owned(), node(NodeValue::Text("half".to_owned()))));
    }
    if entries.is_empty() { None } else { Some(NodeValue::Map(entries)) }
}
