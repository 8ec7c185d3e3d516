//! A language model of another program as plain values, and its arch as text.
//!
//! Every property that changes the compute graph is a field, and only those, so a model, printed and compiled, has one
//! graph.

use std::fmt::Write as _;

pub use compiler::plan::RopeLayout;
use compiler::plan::RopeScaling;
use dsl::Decimal;

use super::init::Init;

/// The kind of the token mixer, which decides the format of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Softmax attention with RoPE.
    Llama,
    /// Gated linear attention, as in the release.
    Gla5,
    /// Gated DeltaNet, as in the release.
    Gdn2,
    /// Mamba2.
    Mamba2,
}

/// A decoder-only language model.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Number of token ids.
    pub vocab: i64,
    /// Width of the residual stream.
    pub dim: i64,
    /// Number of blocks.
    pub layers: i64,
    /// Epsilon of every RMSNorm.
    pub norm_eps: Decimal,
    /// The token mixer of every block.
    pub mixer: Mixer,
    /// Width of the gated MLP; `None` without one.
    pub hidden: Option<i64>,
    /// Whether the output layer uses the token table.
    pub tied: bool,
    /// The Canon layers of every block.
    pub canon: Canon,
    /// The initial distributions.
    pub init: Init,
    /// What only some classes have.
    pub options: ModelOptions,
}

/// What only some classes have, apart from attention; by default nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelOptions {
    /// Where a block has its norms.
    pub norms: BlockNorms,
    /// The window of each layer; empty if all see the whole past.
    pub windows: Vec<Option<i64>>,
    /// Whether token vectors are multiplied by sqrt(dim).
    pub scaled_embedding: bool,
    /// Whether the MLP's gate is gelu instead of silu.
    pub gelu: bool,
    /// Bound of logits, from the token table.
    pub logit_cap: Option<Decimal>,
}

/// Where a block has its norms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockNorms {
    /// Before mixer and MLP.
    #[default]
    Before,
    /// After them.
    After,
    /// Before and after.
    Around,
}

/// The token mixer.
#[expect(clippy::large_enum_variant, reason = "a model has one")]
#[derive(Clone, Debug, PartialEq)]
pub enum Mixer {
    /// Softmax attention.
    Attention(Attention),
    /// Gated linear attention.
    Gla5 {
        /// Number of heads.
        heads: i64,
        /// Whether the mixer has its own short convolution.
        short_conv: bool,
    },
    /// Gated DeltaNet.
    Gdn2 {
        /// Number of heads.
        heads: i64,
        /// Whether the mixer has its own short convolution.
        short_conv: bool,
    },
    /// Mamba2.
    Mamba2 {
        /// Number of heads.
        heads: i64,
        /// Size of the state of each channel.
        state: i64,
        /// Whether the mixer has its own short convolution.
        short_conv: bool,
    },
}

/// Parameters of softmax attention.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Number of query heads.
    pub heads: i64,
    /// Number of key and value heads; equal to `heads`, or a divisor of it.
    pub kv_heads: i64,
    /// Channels of one head.
    pub head_dim: i64,
    /// The norms of queries and keys.
    pub qk_norm: QkNorm,
    /// Base of RoPE's frequencies.
    pub theta: Decimal,
    /// Which channels RoPE rotates together: `Interleaved` in Lingua, `Half` in Hugging Face.
    pub layout: RopeLayout,
    /// Channels of each head that RoPE rotates.
    pub rope_dims: i64,
    /// What only some classes have.
    pub options: AttentionOptions,
}

/// The norms of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNorm {
    /// None.
    None,
    /// Of all heads together.
    Joint,
    /// Of each head, with one weight for all.
    PerHead,
}

/// What attention has only in some classes; by default nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionOptions {
    /// A change of RoPE's frequencies for longer texts.
    pub scaling: RopeScaling,
    /// Whether its projections have biases.
    pub bias: bool,
    /// Scores are multiplied by 1 / sqrt of it instead of the heads' width.
    pub score: Option<i64>,
    /// Bound of scores.
    pub softcap: Option<Decimal>,
}

impl Default for AttentionOptions {
    fn default() -> Self {
        Self { scaling: RopeScaling::Unscaled, bias: false, score: None, softcap: None }
    }
}

/// The Canon layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Canon {
    /// The filled slots among A, B, C and D.
    pub slots: Vec<char>,
    /// Number of tokens that a layer sees.
    pub kernel: i64,
    /// Whether a layer adds its output to its input.
    pub residual: bool,
    /// Whether SiLU follows the convolution.
    pub silu: bool,
}

impl Canon {
    /// No Canon layers.
    pub const NONE: Canon = Canon { slots: Vec::new(), kernel: 4, residual: true, silu: false };

    /// Whether the slot `A`, `B`, `C` or `D` is filled.
    pub fn has(&self, slot: char) -> bool {
        self.slots.contains(&slot)
    }
}

impl Model {
    /// The kind of the mixer.
    pub fn family(&self) -> Family {
        match &self.mixer {
            Mixer::Attention(_) => Family::Llama,
            Mixer::Gla5 { .. } => Family::Gla5,
            Mixer::Gdn2 { .. } => Family::Gdn2,
            Mixer::Mamba2 { .. } => Family::Mamba2,
        }
    }

    /// The parameters of softmax attention, if the mixer is that.
    pub fn attention(&self) -> Option<&Attention> {
        match &self.mixer {
            Mixer::Attention(attention) => Some(attention),
            Mixer::Gla5 { .. } | Mixer::Gdn2 { .. } | Mixer::Mamba2 { .. } => None,
        }
    }

    /// Number of the mixer's heads.
    pub fn heads(&self) -> i64 {
        match &self.mixer {
            Mixer::Attention(attention) => attention.heads,
            Mixer::Gla5 { heads, .. } | Mixer::Gdn2 { heads, .. } | Mixer::Mamba2 { heads, .. } => {
                *heads
            }
        }
    }

    /// Whether the mixer has its own short convolution.
    pub fn short_conv(&self) -> bool {
        match &self.mixer {
            Mixer::Attention(_) => false,
            Mixer::Gla5 { short_conv, .. }
            | Mixer::Gdn2 { short_conv, .. }
            | Mixer::Mamba2 { short_conv, .. } => *short_conv,
        }
    }

    /// Whether nothing needs the keys of Canon's class: no Canon layers, no norms of queries and keys, and RoPE on the
    /// whole head.
    pub(crate) fn is_plain(&self) -> bool {
        self.attention().is_some_and(|attention| {
            self.canon.slots.is_empty()
                && attention.qk_norm == QkNorm::None
                && attention.rope_dims == attention.head_dim
        })
    }

    /// Whether attention has biases, or RoPE is scaled for longer texts: no model of the release has either.
    pub(crate) fn has_biases_or_scaling(&self) -> bool {
        self.attention().is_some_and(|attention| {
            attention.options.bias || attention.options.scaling != RopeScaling::Unscaled
        })
    }

    /// The one window of the layers that have any, and the first of those layers; `None` if windows differ.
    pub(crate) fn window(&self) -> Option<(Option<i64>, i64)> {
        let windows = &self.options.windows;
        let first = windows.iter().position(Option::is_some);
        let Some(first) = first else { return Some((None, self.layers)) };
        let window = windows.get(first).copied().flatten();
        let same = windows.iter().flatten().all(|known| Some(*known) == window);
        same.then_some((window, first as i64))
    }

    /// The arch in the `.canon` language, with a doc of one line.
    pub fn text(&self, name: &str, doc: &str) -> String {
        let Model { vocab, dim, layers, norm_eps, tied, .. } = self;
        let (mut out, init) = self.init.written(name);
        let kinds = self.kinds();
        let layers = match kinds.as_slice() {
            [(_, window)] if !self.options.scaled_embedding => {
                format!("{layers} of {}", self.block(*window))
            }
            kinds => {
                for (kind, window) in kinds {
                    let _ = writeln!(out, "block {name}_{kind} = {}\n", self.block(*window));
                }
                self.list(name)
            }
        };
        let doc: String = doc.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if !doc.is_empty() {
            let _ = writeln!(out, "/// {doc}");
        }
        let _ = writeln!(out, "arch {name} {{\n  vocab {vocab}   dim {dim}   norm_eps {norm_eps}");
        let _ = writeln!(out, "  init {init}");
        match (self.options.logit_cap, tied) {
            (Some(cap), _) => {
                let _ = writeln!(out, "  head capped {{ cap {cap} }}");
            }
            (None, true) => out.push_str("  head tied\n"),
            (None, false) => {}
        }
        let _ = writeln!(out, "  layers {layers}\n}}");
        out
    }

    /// The different layers, each with a name and its window.
    fn kinds(&self) -> Vec<(&'static str, Option<i64>)> {
        let mut kinds: Vec<(&'static str, Option<i64>)> = Vec::new();
        for window in &self.options.windows {
            if !kinds.iter().any(|(_, known)| known == window) {
                kinds.push((kind(window), *window));
            }
        }
        if kinds.is_empty() { vec![(kind(&None), None)] } else { kinds }
    }

    /// `[scaled_embedding, 13 of [NAME_local, NAME_global]]`.
    fn list(&self, name: &str) -> String {
        let mut windows = self.options.windows.clone();
        windows.resize(usize::try_from(self.layers).unwrap_or(0), None);
        let named = |window: &Option<i64>| format!("{name}_{}", kind(window));
        let count = windows.len();
        let repeats = |n: &usize| {
            let mut pairs = windows.iter().zip(windows.iter().cycle().skip(*n));
            count.is_multiple_of(*n) && pairs.all(|(a, b)| a == b)
        };
        let mut parts: Vec<String> = Vec::new();
        if self.options.scaled_embedding {
            parts.push("scaled_embedding".to_owned());
        }
        match (2..count).find(repeats) {
            Some(period) if self.kinds().len() > 1 => {
                let names: Vec<String> = windows.iter().take(period).map(named).collect();
                parts.push(format!("{} of [{}]", count / period, names.join(", ")));
            }
            Some(_) | None => {
                for run in windows.chunk_by(|a, b| a == b) {
                    let name = run.first().map(named).unwrap_or_default();
                    parts.push(match run.len() {
                        1 => name,
                        length => format!("{length} of {name}"),
                    });
                }
            }
        }
        format!("[{}]", parts.join(", "))
    }

    /// A block with its configuration.
    fn block(&self, window: Option<i64>) -> String {
        let block = match (self.options.norms, self.hidden) {
            (BlockNorms::Before, Some(_)) => "decoder",
            (BlockNorms::Before, None) => "mixer_only",
            (BlockNorms::After, _) => "post_norm",
            (BlockNorms::Around, _) => "sandwich",
        };
        let mut out = format!("{block} {{\n    mixer {}\n", self.mixer_text(window));
        if let Some(hidden) = self.hidden {
            let mlp = if self.options.gelu { "geglu" } else { "swiglu" };
            let _ = writeln!(out, "    mlp   {mlp} {{ hidden {hidden} }}");
        }
        if !self.canon.slots.is_empty() {
            let Canon { slots, kernel, residual, silu } = &self.canon;
            let slots: Vec<String> = slots.iter().map(char::to_string).collect();
            let _ = write!(out, "    canon {} {{ kernel {kernel}", slots.join(", "));
            out.push_str(if *residual { "" } else { ", residual false" });
            out.push_str(if *silu { ", activation silu" } else { "" });
            out.push_str(" }\n");
        }
        out + "  }"
    }

    fn mixer_text(&self, window: Option<i64>) -> String {
        let short = |short_conv: &bool| if *short_conv { "" } else { ", short_conv false" };
        match &self.mixer {
            Mixer::Attention(attention) => attention.text(self.dim, window),
            Mixer::Gla5 { heads, short_conv } => {
                format!("gla {{ heads {heads}{} }}", short(short_conv))
            }
            Mixer::Gdn2 { heads, short_conv } => {
                format!("gated_deltanet {{ heads {heads}{} }}", short(short_conv))
            }
            Mixer::Mamba2 { heads, state, short_conv } => {
                format!("mamba2 {{ heads {heads}, state {state}{} }}", short(short_conv))
            }
        }
    }
}

/// The name of a layer's kind.
fn kind(window: &Option<i64>) -> &'static str {
    if window.is_some() { "local" } else { "global" }
}

impl Attention {
    fn text(&self, dim: i64, window: Option<i64>) -> String {
        let Attention { heads, kv_heads, head_dim, qk_norm, .. } = self;
        let AttentionOptions { scaling: _, bias, score, softcap } = &self.options;
        let mut set = vec![format!("heads {heads}")];
        if kv_heads != heads {
            set.push(format!("kv_heads {kv_heads}"));
        }
        if dim.checked_rem(*heads) != Some(0) || dim / heads != *head_dim {
            set.push(format!("head_dim {head_dim}"));
        }
        if *qk_norm == QkNorm::Joint {
            set.push("qk_norm true".to_owned());
        }
        let common = set.len();
        if *qk_norm == QkNorm::PerHead {
            set.push("head_norm true".to_owned());
        }
        if *bias {
            set.push("bias true".to_owned());
        }
        set.extend(score.map(|n| format!("scale rsqrt({n})")));
        set.extend(softcap.map(|cap| format!("softcap {cap}")));
        // Only this definition has the options since `common`.
        let mixer = if set.len() > common { "grouped_attention" } else { "attention" };
        set.extend(window.map(|n| format!("window {n}")));
        format!("{mixer} {{ {}, rope {} }}", set.join(", "), self.rope())
    }

    fn rope(&self) -> String {
        let Attention { theta, layout, rope_dims, .. } = self;
        // `half` is the layout of the scaled forms unless they name another.
        let other_layout = match layout {
            RopeLayout::Half => "",
            RopeLayout::Interleaved => ", layout interleaved",
        };
        match &self.options.scaling {
            // Dynamic scaling is never read.
            RopeScaling::Unscaled | RopeScaling::Ntk { .. } if *rope_dims == self.head_dim => {
                format!("{{ theta {theta}, layout {layout} }}")
            }
            RopeScaling::Unscaled | RopeScaling::Ntk { .. } => {
                format!("{{ theta {theta}, layout {layout}, dims {rope_dims} }}")
            }
            RopeScaling::Interpolated { factor } => {
                format!("interpolated_rotary {{ theta {theta}, factor {factor}{other_layout} }}")
            }
            RopeScaling::Llama3 { factor, original, low, high } => {
                let mut text = format!("theta {theta}, factor {factor}, original {original}");
                for (name, value, usual) in [("low", low, 1), ("high", high, 4)] {
                    if *value != Decimal::from(usual) {
                        let _ = write!(text, ", {name} {value}");
                    }
                }
                format!("llama3_rotary {{ {text}{other_layout} }}")
            }
            RopeScaling::Yarn { factor, original, truncate, .. } => {
                let exact = if *truncate { "" } else { ", truncate false" };
                format!(
                    "yarn_rotary {{ theta {theta}, factor {factor}, original {original}{exact}{other_layout} }}"
                )
            }
        }
    }
}
