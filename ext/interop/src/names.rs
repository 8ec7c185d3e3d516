//! Other programs' names of our parameters: one table per layout, which import, export and `--weights` share.
//!
//! A row has a tensor of a file, our parameters that make up its rows from top to bottom, and the models that have it.
//! `{i}` is a layer. No two rows of one model share a name.

use super::model::{Family, Model};

/// One tensor of a foreign file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NameRow {
    pub(crate) theirs: &'static str,
    pub(crate) ours: &'static [&'static str],
    pub(crate) when: When,
}

/// Which models have a tensor under that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// Every model that has these parameters.
    Always,
    /// Models with tied embeddings; the tensor is a copy and may be absent.
    Repeated,
    Gla5,
    /// GLA5 with the fused norm and gate, or with the reference implementation.
    Gla5Norm(GatedNorm),
    Gdn2,
    /// GDN2 with Canon D, which packs gate and up, or without Canon D, which does not.
    Gdn2With(bool),
    /// Mamba2 without its short convolution; the file has one of zeros.
    Zeros,
}

/// The kernel that computes norm and gate together: the release names a parameter after it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum GatedNorm {
    /// One fused kernel for norm and gate.
    #[default]
    Fused,
    /// The reference implementation, without that kernel.
    Reference,
}

impl When {
    pub(crate) fn holds(self, model: &Model, norm: GatedNorm) -> bool {
        match self {
            When::Always => true,
            When::Repeated => model.tied || model.options.logit_cap.is_some(),
            When::Gla5 => model.family() == Family::Gla5,
            When::Gla5Norm(kernel) => model.family() == Family::Gla5 && kernel == norm,
            When::Gdn2 => model.family() == Family::Gdn2,
            When::Gdn2With(d) => model.family() == Family::Gdn2 && model.canon.has('D') == d,
            When::Zeros => model.family() == Family::Mamba2 && !model.short_conv(),
        }
    }
}

/// One program's names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) name: &'static str,
    pub(crate) rows: &'static [NameRow],
    /// Whether norms in the file are less 1, since the class multiplies by 1 + weight.
    pub(crate) plus_one: bool,
}

impl Layout {
    /// Whether it has this name, with `{i}` for the layer.
    pub(crate) fn has(&self, row: &str) -> bool {
        self.rows.iter().any(|known| known.theirs == row)
    }
}

/// Prefix of every name in Lingua checkpoints of the linear models.
pub(crate) const LINGUA_PREFIX: &str = "trans.";

/// Llama, and classes with its names: Mistral, Qwen3.
pub(crate) static LLAMA: Layout = layout("Hugging Face Llama", LLAMA_ROWS);
pub(crate) static GEMMA2: Layout =
    Layout { plus_one: true, ..layout("Hugging Face Gemma 2", GEMMA2_ROWS) };
pub(crate) static OLMO2: Layout = layout("Hugging Face OLMo 2", OLMO2_ROWS);
pub(crate) static FLASH_LINEAR: Layout = layout("flash-linear-attention", FLASH_LINEAR_ROWS);
pub(crate) static MAMBA2: Layout = layout("Mamba2", MAMBA2_ROWS);
pub(crate) static LINGUA_LLAMA: Layout = layout("Lingua Llama", LINGUA_LLAMA_ROWS);

const fn layout(name: &'static str, rows: &'static [NameRow]) -> Layout {
    Layout { name, rows, plus_one: false }
}

const fn row(theirs: &'static str, ours: &'static [&'static str]) -> NameRow {
    row_when(theirs, ours, When::Always)
}

const fn row_when(theirs: &'static str, ours: &'static [&'static str], when: When) -> NameRow {
    NameRow { theirs, ours, when }
}

const LLAMA_ROWS: &[NameRow] = &[
    row("model.embed_tokens.weight", &["embed"]),
    row("model.layers.{i}.input_layernorm.weight", &["layers.{i}.pre_mixer"]),
    row("model.layers.{i}.canonA.weight", &["layers.{i}.A"]),
    row("model.layers.{i}.self_attn.q_proj.weight", &["layers.{i}.mixer.wq"]),
    row("model.layers.{i}.self_attn.k_proj.weight", &["layers.{i}.mixer.wk"]),
    row("model.layers.{i}.self_attn.v_proj.weight", &["layers.{i}.mixer.wv"]),
    row("model.layers.{i}.self_attn.q_proj.bias", &["layers.{i}.mixer.wq.bias"]),
    row("model.layers.{i}.self_attn.k_proj.bias", &["layers.{i}.mixer.wk.bias"]),
    row("model.layers.{i}.self_attn.v_proj.bias", &["layers.{i}.mixer.wv.bias"]),
    row("model.layers.{i}.self_attn.o_proj.bias", &["layers.{i}.mixer.wo.bias"]),
    row("model.layers.{i}.self_attn.q_norm.weight", &["layers.{i}.mixer.q_norm"]),
    row("model.layers.{i}.self_attn.k_norm.weight", &["layers.{i}.mixer.k_norm"]),
    row("model.layers.{i}.self_attn.canonB.weight", &["layers.{i}.mixer.B"]),
    row("model.layers.{i}.self_attn.o_proj.weight", &["layers.{i}.mixer.wo"]),
    row("model.layers.{i}.post_attention_layernorm.weight", &["layers.{i}.pre_mlp"]),
    row("model.layers.{i}.canonC.weight", &["layers.{i}.C"]),
    row("model.layers.{i}.mlp.gate_proj.weight", &["layers.{i}.mlp.gate"]),
    row("model.layers.{i}.mlp.up_proj.weight", &["layers.{i}.mlp.up"]),
    row("model.layers.{i}.mlp.canonD.weight", &["layers.{i}.mlp.D"]),
    row("model.layers.{i}.mlp.down_proj.weight", &["layers.{i}.mlp.down"]),
    row("model.norm.weight", &["head.norm"]),
    row("lm_head.weight", &["head.output"]),
    row_when("lm_head.weight", &["embed"], When::Repeated), // tied
];

/// Norms before and after, under names that have another meaning in a Llama.
const GEMMA2_ROWS: &[NameRow] = &[
    row("model.embed_tokens.weight", &["embed"]),
    row("model.layers.{i}.input_layernorm.weight", &["layers.{i}.pre_mixer"]),
    row("model.layers.{i}.self_attn.q_proj.weight", &["layers.{i}.mixer.wq"]),
    row("model.layers.{i}.self_attn.k_proj.weight", &["layers.{i}.mixer.wk"]),
    row("model.layers.{i}.self_attn.v_proj.weight", &["layers.{i}.mixer.wv"]),
    row("model.layers.{i}.self_attn.q_proj.bias", &["layers.{i}.mixer.wq.bias"]),
    row("model.layers.{i}.self_attn.k_proj.bias", &["layers.{i}.mixer.wk.bias"]),
    row("model.layers.{i}.self_attn.v_proj.bias", &["layers.{i}.mixer.wv.bias"]),
    row("model.layers.{i}.self_attn.o_proj.bias", &["layers.{i}.mixer.wo.bias"]),
    row("model.layers.{i}.self_attn.o_proj.weight", &["layers.{i}.mixer.wo"]),
    row("model.layers.{i}.post_attention_layernorm.weight", &["layers.{i}.post_mixer"]),
    row("model.layers.{i}.pre_feedforward_layernorm.weight", &["layers.{i}.pre_mlp"]),
    row("model.layers.{i}.mlp.gate_proj.weight", &["layers.{i}.mlp.gate"]),
    row("model.layers.{i}.mlp.up_proj.weight", &["layers.{i}.mlp.up"]),
    row("model.layers.{i}.mlp.down_proj.weight", &["layers.{i}.mlp.down"]),
    row("model.layers.{i}.post_feedforward_layernorm.weight", &["layers.{i}.post_mlp"]),
    row("model.norm.weight", &["head.norm"]),
    row("lm_head.weight", &["head.output"]),
    row_when("lm_head.weight", &["embed"], When::Repeated), // tied
];

/// Norms after the mixer and the MLP.
const OLMO2_ROWS: &[NameRow] = &[
    row("model.embed_tokens.weight", &["embed"]),
    row("model.layers.{i}.self_attn.q_proj.weight", &["layers.{i}.mixer.wq"]),
    row("model.layers.{i}.self_attn.k_proj.weight", &["layers.{i}.mixer.wk"]),
    row("model.layers.{i}.self_attn.v_proj.weight", &["layers.{i}.mixer.wv"]),
    row("model.layers.{i}.self_attn.q_norm.weight", &["layers.{i}.mixer.q_norm"]),
    row("model.layers.{i}.self_attn.k_norm.weight", &["layers.{i}.mixer.k_norm"]),
    row("model.layers.{i}.self_attn.o_proj.weight", &["layers.{i}.mixer.wo"]),
    row("model.layers.{i}.post_attention_layernorm.weight", &["layers.{i}.post_mixer"]),
    row("model.layers.{i}.mlp.gate_proj.weight", &["layers.{i}.mlp.gate"]),
    row("model.layers.{i}.mlp.up_proj.weight", &["layers.{i}.mlp.up"]),
    row("model.layers.{i}.mlp.down_proj.weight", &["layers.{i}.mlp.down"]),
    row("model.layers.{i}.post_feedforward_layernorm.weight", &["layers.{i}.post_mlp"]),
    row("model.norm.weight", &["head.norm"]),
    row("lm_head.weight", &["head.output"]),
    row_when("lm_head.weight", &["embed"], When::Repeated), // tied
];

const LINGUA_LLAMA_ROWS: &[NameRow] = &[
    row("tok_embeddings.weight", &["embed"]),
    row("layers.{i}.attention_norm.weight", &["layers.{i}.pre_mixer"]),
    row("layers.{i}.canonA.weight", &["layers.{i}.A"]),
    row("layers.{i}.attention.wq.weight", &["layers.{i}.mixer.wq"]),
    row("layers.{i}.attention.wk.weight", &["layers.{i}.mixer.wk"]),
    row("layers.{i}.attention.wv.weight", &["layers.{i}.mixer.wv"]),
    row("layers.{i}.attention.q_norm.weight", &["layers.{i}.mixer.q_norm"]),
    row("layers.{i}.attention.k_norm.weight", &["layers.{i}.mixer.k_norm"]),
    row("layers.{i}.attention.canonB.weight", &["layers.{i}.mixer.B"]),
    row("layers.{i}.attention.wo.weight", &["layers.{i}.mixer.wo"]),
    row("layers.{i}.ffn_norm.weight", &["layers.{i}.pre_mlp"]),
    row("layers.{i}.canonC.weight", &["layers.{i}.C"]),
    row("layers.{i}.feed_forward.w1.weight", &["layers.{i}.mlp.gate"]),
    row("layers.{i}.feed_forward.w3.weight", &["layers.{i}.mlp.up"]),
    row("layers.{i}.feed_forward.canonD.weight", &["layers.{i}.mlp.D"]),
    row("layers.{i}.feed_forward.w2.weight", &["layers.{i}.mlp.down"]),
    row("norm.weight", &["head.norm"]),
    row("output.weight", &["head.output"]),
    row_when("output.weight", &["embed"], When::Repeated), // tied
    row_when("output.tied_module.weight", &["embed"], When::Repeated), // tied, as Lingua writes it
];

/// GLA5 and GDN2 in one table: their mixers share no names of their own.
const FLASH_LINEAR_ROWS: &[NameRow] = &[
    row("model.embeddings.weight", &["embed"]),
    row("model.layers.{i}.attn_norm.weight", &["layers.{i}.pre_mixer"]),
    row("model.layers.{i}.canonA.weight", &["layers.{i}.A"]),
    row("model.layers.{i}.attn.q_proj.weight", &["layers.{i}.mixer.wq"]),
    row("model.layers.{i}.attn.k_proj.weight", &["layers.{i}.mixer.wk"]),
    row("model.layers.{i}.attn.v_proj.weight", &["layers.{i}.mixer.wv"]),
    row("model.layers.{i}.attn.q_conv1d.weight", &["layers.{i}.mixer.conv_q"]),
    row("model.layers.{i}.attn.k_conv1d.weight", &["layers.{i}.mixer.conv_k"]),
    row("model.layers.{i}.attn.v_conv1d.weight", &["layers.{i}.mixer.conv_v"]),
    row("model.layers.{i}.attn.canonB.weight", &["layers.{i}.mixer.B"]),
    row("model.layers.{i}.attn.gk_proj.0.weight", &["layers.{i}.mixer.decay_down"]),
    row("model.layers.{i}.attn.gk_proj.1.weight", &["layers.{i}.mixer.decay_up"]),
    row("model.layers.{i}.attn.gk_proj.1.bias", &["layers.{i}.mixer.decay_up.bias"]),
    row("model.layers.{i}.attn.A_log", &["layers.{i}.mixer.A_log"]),
    row("model.layers.{i}.attn.dt_bias", &["layers.{i}.mixer.dt_bias"]),
    row("model.layers.{i}.attn.b_proj.weight", &["layers.{i}.mixer.wbeta"]),
    row("model.layers.{i}.attn.a_proj.weight", &["layers.{i}.mixer.wa"]),
    row("model.layers.{i}.attn.g_proj.0.weight", &["layers.{i}.mixer.gate_down"]),
    row("model.layers.{i}.attn.g_proj.1.weight", &["layers.{i}.mixer.gate_up"]),
    row("model.layers.{i}.attn.g_proj.1.bias", &["layers.{i}.mixer.gate_up.bias"]),
    // One norm under three names: GLA5 with either norm kernel, GDN2.
    row_when(
        "model.layers.{i}.attn.g_norm_swish_gate.weight",
        &["layers.{i}.mixer.o_norm"],
        When::Gla5Norm(GatedNorm::Fused),
    ),
    row_when(
        "model.layers.{i}.attn.g_norm.weight",
        &["layers.{i}.mixer.o_norm"],
        When::Gla5Norm(GatedNorm::Reference),
    ),
    row_when("model.layers.{i}.attn.o_norm.weight", &["layers.{i}.mixer.o_norm"], When::Gdn2),
    row("model.layers.{i}.attn.o_proj.weight", &["layers.{i}.mixer.wo"]),
    row("model.layers.{i}.mlp_norm.weight", &["layers.{i}.pre_mlp"]),
    row("model.layers.{i}.canonC.weight", &["layers.{i}.C"]),
    // GDN2 with and without D; GLA5 keeps both matrices in one tensor under the first one's name.
    row_when(
        "model.layers.{i}.mlp.both_proj.weight",
        &["layers.{i}.mlp.gate", "layers.{i}.mlp.up"],
        When::Gdn2With(true),
    ),
    row_when("model.layers.{i}.mlp.up_proj.weight", &["layers.{i}.mlp.up"], When::Gdn2With(false)),
    row_when(
        "model.layers.{i}.mlp.gate_proj.weight",
        &["layers.{i}.mlp.gate"],
        When::Gdn2With(false),
    ),
    row_when(
        "model.layers.{i}.mlp.gate_proj.weight",
        &["layers.{i}.mlp.gate", "layers.{i}.mlp.up"],
        When::Gla5,
    ),
    row("model.layers.{i}.mlp.canonD.weight", &["layers.{i}.mlp.D"]),
    row("model.layers.{i}.mlp.down_proj.weight", &["layers.{i}.mlp.down"]),
    row("model.norm.weight", &["head.norm"]),
    row("lm_head.weight", &["head.output"]),
    row_when("lm_head.weight", &["embed"], When::Repeated), // tied
];

const MAMBA2_ROWS: &[NameRow] = &[
    row("backbone.embeddings.weight", &["embed"]),
    row("backbone.layers.{i}.norm.weight", &["layers.{i}.pre_mixer"]),
    row("backbone.layers.{i}.canonA.weight", &["layers.{i}.A"]),
    row(
        "backbone.layers.{i}.mixer.in_proj.weight",
        &[
            "layers.{i}.mixer.wz",
            "layers.{i}.mixer.wx",
            "layers.{i}.mixer.wb",
            "layers.{i}.mixer.wc",
            "layers.{i}.mixer.wdt",
        ],
    ),
    row("backbone.layers.{i}.mixer.canonB.weight", &["layers.{i}.mixer.B"]),
    row(
        "backbone.layers.{i}.mixer.conv1d.weight",
        &["layers.{i}.mixer.conv_x", "layers.{i}.mixer.conv_b", "layers.{i}.mixer.conv_c"],
    ),
    // Without a convolution the release keeps one that is frozen and zero.
    row_when("backbone.layers.{i}.mixer.conv1d.weight", &[], When::Zeros),
    row(
        "backbone.layers.{i}.mixer.conv1d.bias",
        &[
            "layers.{i}.mixer.conv_x.bias",
            "layers.{i}.mixer.conv_b.bias",
            "layers.{i}.mixer.conv_c.bias",
        ],
    ),
    row("backbone.layers.{i}.mixer.dt_bias", &["layers.{i}.mixer.dt_bias"]),
    row("backbone.layers.{i}.mixer.A_log", &["layers.{i}.mixer.A_log"]),
    row("backbone.layers.{i}.mixer.D", &["layers.{i}.mixer.D"]),
    row("backbone.layers.{i}.mixer.norm.weight", &["layers.{i}.mixer.norm"]),
    row("backbone.layers.{i}.mixer.out_proj.weight", &["layers.{i}.mixer.wo"]),
    row("backbone.layers.{i}.pre_mlp_layernorm.weight", &["layers.{i}.pre_mlp"]),
    row("backbone.layers.{i}.canonC.weight", &["layers.{i}.C"]),
    row("backbone.layers.{i}.mlp.both_proj.weight", &["layers.{i}.mlp.gate", "layers.{i}.mlp.up"]),
    row("backbone.layers.{i}.mlp.canonD.weight", &["layers.{i}.mlp.D"]),
    row("backbone.layers.{i}.mlp.down_proj.weight", &["layers.{i}.mlp.down"]),
    row("backbone.norm_f.weight", &["head.norm"]),
    row("lm_head.weight", &["head.output"]),
    row_when("lm_head.weight", &["embed"], When::Repeated), // tied
];
