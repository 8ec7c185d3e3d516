//! The released families' models as plain values.
//!
//! In: a foreign configuration, or an arch of ours. Out: the other. Must stay true: every property that changes the
//! compute graph is a field here, and only those; so a model, printed and compiled, has one graph.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

pub use compiler::plan::RopeLayout;
use compiler::program::{Compiled, STD};
use dsl::{Decimal, Entry, Item, Segment, Sources};

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
    /// Which channels RoPE rotates together: `Interleaved` in Lingua, `Half` in Hugging Face.
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

/// Initial distributions: each role's rule, in the words of our language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Init(BTreeMap<String, String>);

/// The standard tables by name. Other programs' initial distributions are among them.
static TABLES: LazyLock<BTreeMap<String, Init>> = LazyLock::new(|| {
    let mut sources = Sources::new();
    let items = STD.iter().flat_map(|(name, text)| {
        let file = sources.add(*name, *text);
        dsl::parse(file, text).0.items
    });
    let tables = items.filter_map(|item| match item {
        Item::Init(table) => Some((table.name.text, Init::from_rows(rows(&table.entries)))),
        Item::Def(_) | Item::Alias(_) | Item::Arch(_) => None,
    });
    tables.collect()
});

/// Rule by role, as a compiled arch lists them.
fn rows(entries: &[Entry]) -> BTreeMap<String, String> {
    let row = |entry: &Entry| {
        let Entry::Set { path, value, .. } = entry else { return None };
        let [Segment::Name(role)] = path.segments.as_slice() else { return None };
        Some((role.text.clone(), dsl::print_expr(value)))
    };
    entries.iter().filter_map(row).collect()
}

impl Init {
    /// Lingua's truncated normals.
    pub fn lingua() -> Init {
        Init::standard("lingua")
    }

    /// Those of the flash-linear-attention library.
    pub fn flash_linear() -> Init {
        Init::standard("flash_linear")
    }

    /// Those of the mamba library.
    pub fn mamba() -> Init {
        Init::standard("mamba")
    }

    /// Hugging Face's normals of 0.02.
    pub fn hugging_face() -> Init {
        Init::standard("huggingface")
    }

    /// Hugging Face's table with another standard deviation.
    pub fn hugging_face_with(range: Decimal) -> Init {
        let mut init = Init::hugging_face();
        for role in ["embed", "linear"] {
            init.0.insert(role.to_owned(), format!("normal({range})"));
        }
        init
    }

    fn standard(name: &str) -> Init {
        Init::named(name).unwrap_or_else(|| Init::from_rows(BTreeMap::new()))
    }

    /// The standard table with this name.
    pub fn named(name: &str) -> Option<Init> {
        TABLES.get(name).cloned()
    }

    /// The name of the standard table that is equal to it.
    pub fn name(&self) -> Option<&'static str> {
        TABLES.iter().find(|(_, init)| *init == self).map(|(name, _)| name.as_str())
    }

    /// The distributions with these rules by role.
    pub fn from_rows(rows: BTreeMap<String, String>) -> Init {
        Init(rows)
    }

    /// The distributions of a compiled arch.
    pub(crate) fn of(compiled: &Compiled) -> Init {
        let fields = compiled.fields.iter();
        let rows = fields.filter_map(|f| Some((f.path.strip_prefix("init.")?, &f.value)));
        Init::from_rows(rows.map(|(role, rule)| (role.to_owned(), rule.clone())).collect())
    }

    /// The table's definition in the text of an arch with this name, unless it is a standard one; and its name.
    pub(crate) fn written(&self, name: &str) -> (String, String) {
        if let Some(table) = self.name() {
            return (String::new(), table.to_owned());
        }
        let rows: String =
            self.rows().iter().map(|(role, rule)| format!("  {role} {rule}\n")).collect();
        (format!("init {name}_init {{\n{rows}}}\n\n"), format!("{name}_init"))
    }

    /// Rule by role.
    pub fn rows(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    /// The standard deviation, if the table is Hugging Face's apart from it.
    pub fn range(&self) -> Option<Decimal> {
        let range = self.0.get("linear")?.strip_prefix("normal(")?.strip_suffix(')')?;
        let range = Decimal::parse(range).ok()?;
        (Init::hugging_face_with(range) == *self).then_some(range)
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
        let (mut out, init) = self.init.written(name);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_other_programs_are_standard_ones() {
        let roles = ["bias", "canon", "embed", "linear", "norm", "short_conv", "short_conv_bias"];
        for (init, name, linear) in [
            (Init::lingua(), "lingua", "trunc_normal(rsqrt(fan_in), 3)"),
            (Init::hugging_face(), "huggingface", "normal(0.02)"),
            (Init::flash_linear(), "flash_linear", "normal(0.02)"),
            (Init::mamba(), "mamba", "uniform(rsqrt(fan_in))"),
        ] {
            assert_eq!(init.name(), Some(name));
            assert_eq!(init.rows().get("linear").map(String::as_str), Some(linear), "{name}");
            assert!(init.rows().keys().eq(roles), "{name}");
        }
        assert_eq!(Init::hugging_face().range(), Decimal::parse("0.02").ok());
        assert_eq!(Init::mamba().range(), None);
    }
}
