//! Decoders of `transformers` that are not among the released families: Qwen3, Mistral, Gemma 2, OLMo 2, scaled Llamas.
//!
//! In: the keys of a configuration (`stock/read.rs`), or a graph (`stock/recognise.rs`). Out: an arch as text over the
//! standard definitions, the mapping of its weights, and the keys (`stock/write.rs`). Must stay true: a family is one row
//! of [`FAMILIES`], with no code of its own; the text says everything that the keys change.

mod read;
mod recognise;
mod write;

use std::fmt::Write as _;

use compiler::digest::Digest;
use compiler::graph::Param;
use compiler::plan::{RopeLayout, RopeScaling};
use compiler::program::Compiled;
use dsl::Decimal;

use super::super::lay::{self, Entry, StockRows};
use super::super::model::{Attention, Init};
use super::super::names::{HF_GEMMA2, HF_LLAMA, HF_OLMO2, Layout};
use super::super::{ForeignError, arch};

pub(super) use read::{read, takes, without_windows};

/// One class of `transformers`.
#[derive(Debug, PartialEq, Eq)]
pub struct Family {
    /// `model_type` of its configuration.
    pub model_type: &'static str,
    /// Name of the class.
    pub class: &'static str,
    /// Values that the class takes for absent keys, if not those of most classes.
    absent: &'static [(&'static str, &'static str)],
    /// Definition of a layer in std.
    layer: &'static str,
    /// Norms of queries and keys.
    norms: QkNorms,
    /// Whether `attention_bias` adds biases.
    biases: bool,
    windows: Windows,
    /// Whether token vectors are multiplied by sqrt(dim), and scores and logits have bounds and a scale of their own.
    bounded: bool,
    /// Whether norms multiply by 1 + weight, in f32.
    plus_one: bool,
    /// The key of the MLP's activation, and its value if absent.
    activation: (&'static str, &'static str),
    layout: &'static Layout,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QkNorms {
    None,
    /// Of each head, one weight for all.
    PerHead,
    /// Of all heads together.
    Joint,
}

/// Which layers have the window of `sliding_window`, unless `layer_types` says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Windows {
    Never,
    Always,
    /// Layers 0, 2, 4, …
    Even,
    /// If `use_sliding_window`, layers from `max_window_layers` on.
    Upper,
}

impl Windows {
    /// The window of each layer; `first` is the first layer that may have one.
    fn of_layers(self, layers: i64, window: Option<i64>, first: i64) -> Vec<Option<i64>> {
        let has = |layer: i64| match self {
            Windows::Never => false,
            Windows::Always => true,
            Windows::Even => layer % 2 == 0,
            Windows::Upper => layer >= first,
        };
        (0..layers).map(|layer| window.filter(|_| has(layer))).collect()
    }
}

const LLAMA: Family = Family {
    model_type: "llama",
    class: "LlamaForCausalLM",
    absent: &[],
    layer: "decoder",
    norms: QkNorms::None,
    biases: true,
    windows: Windows::Never,
    bounded: false,
    plus_one: false,
    activation: ("hidden_act", "silu"),
    layout: &HF_LLAMA,
};

/// The supported classes. `llama` is one of them with scaled RoPE or biases, which no released Llama has.
pub(super) static FAMILIES: [Family; 5] = [
    LLAMA,
    Family {
        model_type: "mistral",
        class: "MistralForCausalLM",
        absent: &[("num_key_value_heads", "8"), ("sliding_window", "4096")],
        biases: false,
        windows: Windows::Always,
        ..LLAMA
    },
    Family {
        model_type: "qwen3",
        class: "Qwen3ForCausalLM",
        absent: &[
            ("num_key_value_heads", "32"),
            ("head_dim", "128"),
            ("sliding_window", "4096"),
            ("max_window_layers", "28"),
        ],
        norms: QkNorms::PerHead,
        windows: Windows::Upper,
        ..LLAMA
    },
    Family {
        model_type: "gemma2",
        class: "Gemma2ForCausalLM",
        absent: &[
            ("num_key_value_heads", "4"),
            ("head_dim", "256"),
            ("sliding_window", "4096"),
            ("query_pre_attn_scalar", "256"),
            ("attn_logit_softcapping", "50"),
            ("final_logit_softcapping", "30"),
            ("tie_word_embeddings", "true"),
        ],
        layer: "sandwich",
        windows: Windows::Even,
        bounded: true,
        plus_one: true,
        activation: ("hidden_activation", "gelu_pytorch_tanh"),
        layout: &HF_GEMMA2,
        ..LLAMA
    },
    Family {
        model_type: "olmo2",
        class: "Olmo2ForCausalLM",
        absent: &[("rms_norm_eps", "1e-5")],
        layer: "post_norm",
        norms: QkNorms::Joint,
        biases: false,
        layout: &HF_OLMO2,
        ..LLAMA
    },
];

/// A model of one of the classes.
#[derive(Clone, Debug, PartialEq)]
pub struct Stock {
    /// Its class.
    pub family: &'static Family,
    vocab: i64,
    dim: i64,
    heads: i64,
    kv_heads: i64,
    head_dim: i64,
    hidden: i64,
    /// The gated MLP of std.
    mlp: &'static str,
    norm_eps: Decimal,
    theta: Decimal,
    scaling: RopeScaling,
    /// Which channels RoPE pairs. The classes pair those of the halves, so rows in the file are reordered for the other
    /// layout.
    rows: RopeLayout,
    /// The window of each layer.
    windows: Vec<Option<i64>>,
    bias: bool,
    /// Scores are multiplied by 1 / sqrt of it instead of the heads' width.
    score: Option<i64>,
    /// Bound of scores.
    softcap: Option<Decimal>,
    /// Bound of logits.
    cap: Option<Decimal>,
    tied: bool,
    init: Init,
}

/// Changed values of an import, for its list of origins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Name of the tensor in the file.
    pub name: String,
    /// How its values become ours.
    pub how: &'static str,
}

impl Stock {
    /// The arch in the `.canon` language, with a doc of one line.
    pub fn text(&self, name: &str, doc: &str) -> String {
        let Stock { family, vocab, dim, norm_eps, .. } = self;
        let (mut out, init) = self.init.written(name);
        let doc: String = doc.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let kinds = self.kinds();
        let (layers, inline) = match (kinds.as_slice(), family.bounded) {
            ([(_, window)], false) => {
                let body = self.layer(*window);
                (format!("{} of {} {body}", self.windows.len(), family.layer), true)
            }
            _ => (self.list(name), false),
        };
        if !inline {
            for (kind, window) in &kinds {
                let (layer, body) = (family.layer, self.layer(*window));
                let _ = writeln!(out, "block {name}_{kind} = {layer} {body}\n");
            }
        }
        if !doc.is_empty() {
            let _ = writeln!(out, "/// {doc}");
        }
        let _ = writeln!(out, "arch {name} {{\n  vocab {vocab}   dim {dim}   norm_eps {norm_eps}");
        let _ = writeln!(out, "  init {init}");
        match (self.cap, self.tied) {
            (Some(cap), _) => {
                let _ = writeln!(out, "  head capped {{ cap {cap} }}");
            }
            (None, true) => out.push_str("  head tied\n"),
            (None, false) => {}
        }
        let _ = writeln!(out, "  layers {layers}\n}}");
        let file = dsl::Sources::new().add("imported", &out);
        // If it did not parse, compiling it would report the mistake.
        dsl::format_source(file, &out).unwrap_or(out)
    }

    /// The different layers, each with a name and its window.
    fn kinds(&self) -> Vec<(&'static str, Option<i64>)> {
        let mut kinds: Vec<(&'static str, Option<i64>)> = Vec::new();
        for window in &self.windows {
            if !kinds.iter().any(|(_, known)| known == window) {
                kinds.push((if window.is_some() { "local" } else { "global" }, *window));
            }
        }
        kinds
    }

    /// `[scaled_embedding, 13 of [NAME_local, NAME_global]]`.
    fn list(&self, name: &str) -> String {
        let named = |window: &Option<i64>| {
            format!("{name}_{}", if window.is_some() { "local" } else { "global" })
        };
        let count = self.windows.len();
        let repeats = |n: &usize| {
            let again = self.windows.iter().zip(self.windows.iter().cycle().skip(*n));
            count.is_multiple_of(*n) && again.clone().all(|(a, b)| a == b)
        };
        let mut parts: Vec<String> = Vec::new();
        if self.family.bounded {
            parts.push("scaled_embedding".to_owned());
        }
        match (2..count).find(repeats) {
            Some(period) if self.kinds().len() > 1 => {
                let names: Vec<String> = self.windows.iter().take(period).map(named).collect();
                parts.push(format!("{} of [{}]", count / period, names.join(", ")));
            }
            Some(_) | None => {
                for run in self.windows.chunk_by(|a, b| a == b) {
                    let named = run.first().map(named).unwrap_or_default();
                    parts.push(if run.len() == 1 {
                        named
                    } else {
                        format!("{} of {named}", run.len())
                    });
                }
            }
        }
        format!("[{}]", parts.join(", "))
    }

    /// The configuration of a layer.
    fn layer(&self, window: Option<i64>) -> String {
        let Stock { family, dim, heads, kv_heads, head_dim, hidden, mlp, .. } = self;
        let mut set = vec![format!("heads {heads}")];
        if kv_heads != heads {
            set.push(format!("kv_heads {kv_heads}"));
        }
        if dim.checked_rem(*heads) != Some(0) || dim / heads != *head_dim {
            set.push(format!("head_dim {head_dim}"));
        }
        let mut grouped = false;
        let mut option = |set: &mut Vec<String>, text: Option<String>| {
            grouped |= text.is_some();
            set.extend(text);
        };
        if family.norms == QkNorms::Joint {
            set.push("qk_norm true".to_owned());
        }
        let head_norm = family.norms == QkNorms::PerHead;
        option(&mut set, head_norm.then(|| "head_norm true".to_owned()));
        option(&mut set, self.bias.then(|| "bias true".to_owned()));
        option(&mut set, self.score.map(|n| format!("scale rsqrt({n})")));
        option(&mut set, self.softcap.map(|cap| format!("softcap {cap}")));
        set.extend(window.map(|n| format!("window {n}")));
        set.push(format!("rope {}", self.rope()));
        let mixer = if grouped { "grouped_attention" } else { "attention" };
        format!(
            "{{\n  mixer {mixer} {{ {} }}\n  mlp {mlp} {{ hidden {hidden} }}\n}}",
            set.join(", ")
        )
    }

    fn rope(&self) -> String {
        let theta = self.theta;
        // `half` is the layout of the scaled forms unless they name another.
        let layout = match self.rows {
            RopeLayout::Half => "",
            RopeLayout::Interleaved => ", layout interleaved",
        };
        match &self.scaling {
            // The other kinds are never read.
            RopeScaling::Unscaled | RopeScaling::Ntk { .. } => {
                format!("{{ theta {theta}, layout {} }}", self.rows)
            }
            RopeScaling::Interpolated { factor } => {
                format!("interpolated_rotary {{ theta {theta}, factor {factor}{layout} }}")
            }
            RopeScaling::Llama3 { factor, original, low, high } => {
                let mut text = format!("theta {theta}, factor {factor}, original {original}");
                for (name, value, usual) in [("low", low, 1), ("high", high, 4)] {
                    if *value != Decimal::from(usual) {
                        let _ = write!(text, ", {name} {value}");
                    }
                }
                format!("llama3_rotary {{ {text}{layout} }}")
            }
            RopeScaling::Yarn { factor, original, truncate, .. } => {
                let exact = if *truncate { "" } else { ", truncate false" };
                format!(
                    "yarn_rotary {{ theta {theta}, factor {factor}, original {original}{exact}{layout} }}"
                )
            }
        }
    }

    /// Checks that an arch is this model, apart from its initial distributions; if not, the first difference: a path,
    /// our value, and the value of these keys.
    pub(crate) fn difference(
        &self,
        ours: &Compiled,
    ) -> Result<Option<(String, String, String)>, ForeignError> {
        let same = Stock { init: Init::of(ours), ..self.clone() };
        let theirs = arch::compile(&ours.name, &same.text(&ours.name, ""))?;
        let ids = |compiled: &Compiled| -> [Digest; 2] {
            [compiled.identity.graph, compiled.identity.manifest]
        };
        if ids(&theirs) == ids(ours) {
            return Ok(None);
        }
        let found = arch::differing(&ours.fields, &theirs.fields);
        let unknown =
            || ("its definitions".to_owned(), "others".to_owned(), "those of std".to_owned());
        Ok(Some(found.unwrap_or_else(unknown)))
    }

    /// Every tensor of this model in its file.
    pub(crate) fn entries(&self, params: &[Param]) -> Vec<Entry> {
        let rows = StockRows {
            layout: self.family.layout,
            layers: self.windows.len() as i64,
            // The layer that scales token vectors comes first, and has no tensors.
            first: i64::from(self.family.bounded),
            tied: self.tied || self.cap.is_some(),
            plus_one: self.family.plus_one,
        };
        let mut entries = lay::stock_entries(&rows, params);
        if self.rows == RopeLayout::Interleaved {
            lay::turn_attention(&mut entries, &self.attention(), params);
        }
        entries
    }

    fn attention(&self) -> Attention {
        Attention {
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            qk_norm: self.family.norms != QkNorms::None,
            theta: self.theta,
            layout: self.rows,
            rope_dims: self.head_dim,
        }
    }

    /// Whether only the plain implementation of attention computes this model in `transformers`: the usual one leaves
    /// out the bound of scores.
    pub(crate) fn needs_eager(&self) -> bool {
        self.softcap.is_some()
    }

    /// Whether the file has norms less 1.
    pub(crate) fn less_one(&self) -> bool {
        self.family.plus_one
    }

    /// The frequencies of RoPE, which some files have.
    pub(crate) fn rates(&self) -> Vec<f64> {
        self.scaling.rates(self.theta.to_f64(), self.head_dim)
    }

    /// The name of the program that its tensors' names come from.
    pub(crate) fn names(&self) -> &'static str {
        self.family.layout.name
    }

    /// The tensors with other values than the file's.
    pub(crate) fn changed(&self, params: &[Param]) -> Vec<Changed> {
        let how = "1 + weight, computed in f32, since the norms of this class multiply by that";
        let entries = self.entries(params).into_iter().filter(|entry| entry.plus_one);
        entries.map(|entry| Changed { name: entry.theirs, how }).collect()
    }
}
