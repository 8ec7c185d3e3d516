//! The released families' models as plain values.
//!
//! In: a foreign configuration, or an arch of ours. Out: the other. Must stay true: every property that changes the
//! compute graph is a field here, and only those; so a model, printed and compiled, has one graph.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use dsl::Decimal;

/// One released family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// A decoder with softmax attention and RoPE.
    Llama,
    /// Gated linear attention, as in the release.
    Gla5,
    /// Gated DeltaNet, as in the release.
    Gdn2,
    /// Mamba2.
    Mamba2,
}

/// Which channels RoPE rotates together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeLayout {
    /// Neighbouring channels, as in Lingua.
    Interleaved,
    /// One channel of each half, as in Hugging Face.
    Half,
}

/// A model of one of the families.
#[derive(Clone, Debug, PartialEq, Eq)]
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
}

/// The token mixer.
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attention {
    /// Number of query heads.
    pub heads: i64,
    /// Number of key and value heads; equal to `heads`, or a divisor of it.
    pub kv_heads: i64,
    /// Channels of one head.
    pub head_dim: i64,
    /// Whether q and k are normalised per head.
    pub qk_norm: bool,
    /// Base of RoPE's frequencies.
    pub theta: Decimal,
    /// Which channels RoPE rotates together.
    pub layout: RopeLayout,
    /// Channels of each head that RoPE rotates.
    pub rope_dims: i64,
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

/// Initial distributions: a standard table, or rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Init {
    /// Lingua's truncated normals.
    Lingua,
    /// Hugging Face's normals of 0.02.
    HuggingFace,
    /// Those of the flash-linear-attention library.
    FlashLinear,
    /// Those of the mamba library.
    Mamba,
    /// One rule for each role.
    Rows(BTreeMap<String, String>),
}

/// The standard tables by name, as in `std/init.canon`.
const TABLES: [(&str, Init); 4] = [
    ("lingua", Init::Lingua),
    ("huggingface", Init::HuggingFace),
    ("flash_linear", Init::FlashLinear),
    ("mamba", Init::Mamba),
];

/// Roles, and each role's rule in every table, in the order of [`TABLES`].
const ROLES: [(&str, [&str; 4]); 7] = [
    ("embed", ["trunc_normal(rsqrt(fan_in), 3)", "normal(0.02)", "normal(0.02)", "normal(0.1)"]),
    (
        "linear",
        [
            "trunc_normal(rsqrt(fan_in), 3)",
            "normal(0.02)",
            "normal(0.02)",
            "uniform(rsqrt(fan_in))",
        ],
    ),
    ("bias", ["zeros", "zeros", "zeros", "uniform(rsqrt(fan_in))"]),
    ("norm", ["ones"; 4]),
    ("canon", ["uniform(rsqrt(fan_in))"; 4]),
    (
        "short_conv",
        [
            "uniform(rsqrt(fan_in))",
            "uniform(rsqrt(fan_in))",
            "normal(0.02)",
            "uniform(rsqrt(fan_in))",
        ],
    ),
    (
        "short_conv_bias",
        ["uniform(rsqrt(fan_in))", "uniform(rsqrt(fan_in))", "zeros", "uniform(rsqrt(fan_in))"],
    ),
];

impl Init {
    /// The name of a standard table.
    pub fn name(&self) -> Option<&'static str> {
        TABLES.iter().find(|(_, init)| init == self).map(|(name, _)| *name)
    }

    /// The standard table with this name.
    pub fn named(name: &str) -> Option<Init> {
        TABLES.iter().find(|(known, _)| *known == name).map(|(_, init)| init.clone())
    }

    /// Rule by role.
    pub fn rows(&self) -> BTreeMap<String, String> {
        let column = TABLES.iter().position(|(_, init)| init == self);
        match (self, column) {
            (Init::Rows(rows), _) => rows.clone(),
            (_, Some(column)) => ROLES
                .iter()
                .filter_map(|(role, rules)| {
                    Some(((*role).to_owned(), (*rules.get(column)?).to_owned()))
                })
                .collect(),
            (Init::Lingua | Init::HuggingFace | Init::FlashLinear | Init::Mamba, None) => {
                BTreeMap::new()
            }
        }
    }

    /// The standard table equal to these rows, or the rows themselves.
    pub fn from_rows(rows: BTreeMap<String, String>) -> Init {
        let known = TABLES.iter().find(|(_, init)| init.rows() == rows);
        known.map_or(Init::Rows(rows), |(_, init)| init.clone())
    }

    /// Hugging Face's table with another standard deviation.
    pub fn huggingface(range: Decimal) -> Init {
        let mut rows = Init::HuggingFace.rows();
        for role in ["embed", "linear"] {
            rows.insert(role.to_owned(), format!("normal({range})"));
        }
        Init::from_rows(rows)
    }

    /// The standard deviation, if the table is Hugging Face's apart from it.
    pub fn range(&self) -> Option<Decimal> {
        let rows = self.rows();
        let range = rows.get("linear")?.strip_prefix("normal(")?.strip_suffix(')')?;
        let range = Decimal::parse(range).ok()?;
        (Init::huggingface(range) == *self).then_some(range)
    }
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
    /// The family that the mixer decides.
    pub fn family(&self) -> Family {
        match &self.mixer {
            Mixer::Attention(_) => Family::Llama,
            Mixer::Gla5 { .. } => Family::Gla5,
            Mixer::Gdn2 { .. } => Family::Gdn2,
            Mixer::Mamba2 { .. } => Family::Mamba2,
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

    /// Whether the model is a Llama as `transformers` itself defines it.
    pub fn is_plain_llama(&self) -> bool {
        match &self.mixer {
            Mixer::Attention(a) => {
                self.canon.slots.is_empty() && !a.qk_norm && a.rope_dims == a.head_dim
            }
            Mixer::Gla5 { .. } | Mixer::Gdn2 { .. } | Mixer::Mamba2 { .. } => false,
        }
    }

    /// The arch in the `.canon` language, with a doc of one line.
    pub fn text(&self, name: &str, doc: &str) -> String {
        let mut out = String::new();
        let init = match self.init.name() {
            Some(table) => table.to_owned(),
            None => {
                let _ = writeln!(out, "init {name}_init {{");
                for (role, rule) in self.init.rows() {
                    let _ = writeln!(out, "  {role} {rule}");
                }
                out.push_str("}\n\n");
                format!("{name}_init")
            }
        };
        let doc: String = doc.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if !doc.is_empty() {
            let _ = writeln!(out, "/// {doc}");
        }
        let _ = writeln!(out, "arch {name} {{");
        let Model { vocab, dim, layers, norm_eps, .. } = self;
        let _ = writeln!(out, "  vocab {vocab}   dim {dim}   norm_eps {norm_eps}\n  init {init}");
        if self.tied {
            out.push_str("  head tied\n");
        }
        let block = if self.hidden.is_some() { "decoder" } else { "mixer_only" };
        let _ = writeln!(out, "  layers {layers} of {block} {{\n    mixer {}", self.mixer_text());
        if let Some(hidden) = self.hidden {
            let _ = writeln!(out, "    mlp   swiglu {{ hidden {hidden} }}");
        }
        if !self.canon.slots.is_empty() {
            let Canon { slots, kernel, residual, silu } = &self.canon;
            let slots: Vec<String> = slots.iter().map(char::to_string).collect();
            let _ = write!(out, "    canon {} {{ kernel {kernel}", slots.join(", "));
            out.push_str(if *residual { "" } else { ", residual false" });
            out.push_str(if *silu { ", activation silu" } else { "" });
            out.push_str(" }\n");
        }
        out.push_str("  }\n}\n");
        out
    }

    fn mixer_text(&self) -> String {
        let short = |short_conv: &bool| if *short_conv { "" } else { ", short_conv false" };
        match &self.mixer {
            Mixer::Attention(a) => {
                let Attention { heads, kv_heads, head_dim, qk_norm, theta, layout, rope_dims } = a;
                let layout = match layout {
                    RopeLayout::Interleaved => "interleaved",
                    RopeLayout::Half => "half",
                };
                let mut text = format!("attention {{ heads {heads}");
                if kv_heads != heads {
                    let _ = write!(text, ", kv_heads {kv_heads}");
                }
                if self.dim.checked_rem(*heads) != Some(0) || self.dim / heads != *head_dim {
                    let _ = write!(text, ", head_dim {head_dim}");
                }
                if *qk_norm {
                    text.push_str(", qk_norm true");
                }
                let _ = write!(text, ", rope {{ theta {theta}, layout {layout}");
                if rope_dims != head_dim {
                    let _ = write!(text, ", dims {rope_dims}");
                }
                text + " } }"
            }
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
