//! The models that checks run: one of each family, small, of 100 million and of 1.3 billion parameters.
//!
//! Heads and states have widths that CUDA kernels are compiled for.

use compiler::graph::Graph;
use compiler::plan::{
    Decays, Loss, Optimizer, Options, Precision, Processor, Recompute, TrainOptions,
};
use compiler::program::{Program, Std};
use dsl::Decimal;

/// A family of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Llama,
    LlamaCanon,
    Gla,
    GatedDeltaNet,
    Mamba2,
    /// The recurrence between projections, without RWKV-6's mixing of neighbouring tokens.
    Rwkv6,
}

/// How large a model is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Two layers, for a CPU and for comparisons in f64.
    Small,
    /// About 100 million parameters.
    Hundred,
    /// About 1.3 billion parameters.
    Billion,
}

impl Family {
    pub const ALL: [Family; 6] = [
        Family::Llama,
        Family::LlamaCanon,
        Family::Gla,
        Family::GatedDeltaNet,
        Family::Mamba2,
        Family::Rwkv6,
    ];

    pub fn named(name: &str) -> Option<Family> {
        Family::ALL.into_iter().find(|family| family.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Family::Llama => "llama",
            Family::LlamaCanon => "llamacanon",
            Family::Gla => "gla",
            Family::GatedDeltaNet => "gated deltanet",
            Family::Mamba2 => "mamba2",
            Family::Rwkv6 => "rwkv6",
        }
    }

    /// Whether flash-linear-attention has a layer that computes the same.
    pub fn has_fla_layer(self) -> bool {
        match self {
            Family::Gla | Family::GatedDeltaNet | Family::Mamba2 => true,
            Family::Llama | Family::LlamaCanon | Family::Rwkv6 => false,
        }
    }

    /// The slots that hold Canon layers, as `ext/models/src/bench/peers/step.py` names them; `None` if it has no such model.
    pub fn peer_slots(self) -> Option<&'static str> {
        match self {
            Family::Llama => Some(""),
            Family::LlamaCanon => Some("ABCD"),
            Family::Gla | Family::GatedDeltaNet | Family::Mamba2 | Family::Rwkv6 => None,
        }
    }
}

/// Columns of Mamba2's state.
pub fn mamba2_state(size: Size) -> i64 {
    if size == Size::Small { 64 } else { 128 }
}

/// The sizes of a model, as its text names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub vocab: i64,
    pub dim: i64,
    pub layers: i64,
    /// Of attention.
    pub heads: i64,
    /// Of the linear mixers, whose states are wider.
    pub linear_heads: i64,
    pub hidden: i64,
}

impl Size {
    pub const ALL: [Size; 3] = [Size::Small, Size::Hundred, Size::Billion];

    pub fn name(self) -> &'static str {
        match self {
            Size::Small => "small",
            Size::Hundred => "100M",
            Size::Billion => "1.3B",
        }
    }

    pub fn shape(self) -> Shape {
        match self {
            Size::Small => {
                Shape { vocab: 258, dim: 128, layers: 2, heads: 2, linear_heads: 2, hidden: 256 }
            }
            Size::Hundred => Shape {
                vocab: 32000,
                dim: 768,
                layers: 8,
                heads: 12,
                linear_heads: 6,
                hidden: 2048,
            },
            Size::Billion => Shape {
                vocab: 32000,
                dim: 2048,
                layers: 24,
                heads: 16,
                linear_heads: 16,
                hidden: 5632,
            },
        }
    }
}

/// Channels of a head in every RWKV-6.
const RWKV6_WIDTH: i64 = 64;

/// RWKV-6's recurrence as a mixer.
const LATE: &str = "mixer late(x; heads, width) {
  param u [heads, width] init normal(1)
  g = -exp(heads(linear wg (x, dim), heads))
  r = heads(linear wr (x, dim), heads)
  k = heads(linear wk (x, dim), heads)
  v = heads(linear wv (x, dim), heads)
  gate = heads(linear gate (x, dim), heads)
  linear wo (merge(rms_norm o_norm (rwkv6_scan(r, k, v, g, f32(u))) * silu(gate)), dim)
}
";

/// The text of a model in the language.
pub fn text(family: Family, size: Size) -> String {
    let Shape { vocab, dim, layers, heads, linear_heads, hidden } = size.shape();
    let mlp = format!("mlp swiglu {{ hidden {hidden} }}");
    let layer = match family {
        Family::Llama | Family::LlamaCanon => {
            format!("decoder {{ mixer attention {{ heads {heads} }} {mlp} }}")
        }
        Family::Gla => format!("decoder {{ mixer gla {{ heads {linear_heads} }} {mlp} }}"),
        Family::GatedDeltaNet => {
            format!("decoder {{ mixer gated_deltanet {{ heads {linear_heads} }} {mlp} }}")
        }
        Family::Mamba2 => {
            let state = mamba2_state(size);
            format!("decoder {{ mixer mamba2 {{ heads {linear_heads}, state {state} }} {mlp} }}")
        }
        Family::Rwkv6 => {
            let heads = dim / RWKV6_WIDTH;
            format!("decoder {{ mixer late {{ heads {heads}, width {RWKV6_WIDTH} }} {mlp} }}")
        }
    };
    let edits = match family {
        Family::LlamaCanon => "canon A, B, C, D",
        Family::Llama | Family::Gla | Family::GatedDeltaNet | Family::Mamba2 | Family::Rwkv6 => "",
    };
    let init = match family {
        Family::Llama | Family::LlamaCanon => "lingua",
        Family::Gla | Family::GatedDeltaNet | Family::Rwkv6 => "flash_linear",
        Family::Mamba2 => "mamba",
    };
    let base = if edits.is_empty() { "model" } else { "base" };
    let mixer = if family == Family::Rwkv6 { LATE } else { "" };
    let mut text = format!(
        "{mixer}arch {base} {{ vocab {vocab}  dim {dim}  norm_eps 1e-5\n  init {init}\n  layers {layers} of {layer}\n}}\n"
    );
    if !edits.is_empty() {
        text.push_str(&format!("arch model = base with {{ {edits} }}\n"));
    }
    text
}

/// How the models are trained: AdamW as in the release, gradients clipped.
pub fn options(precision: Precision, processor: Processor) -> TrainOptions {
    let hundredths = |n: i128| Decimal::new(n, -2).unwrap_or(Decimal::ZERO);
    TrainOptions {
        common: Options { precision, processor, ..Options::default() },
        loss: Loss::CROSS_ENTROPY,
        optimizer: Optimizer {
            beta1: hundredths(90),
            beta2: hundredths(95),
            eps: Decimal::new(1, -8).unwrap_or(Decimal::ONE),
            weight_decay: hundredths(10),
            decays: Decays::All,
            clip: Some(Decimal::ONE),
        },
        updates: Vec::new(),
        recompute: Recompute::Nothing,
        dropout: false,
    }
}

/// The graph of a model; the error is a message.
pub fn graph(family: Family, size: Size) -> Result<Graph, String> {
    let program = Program::new([("model.canon".to_owned(), text(family, size))], Std::Embedded);
    let (compiled, diagnostics) = program.compile("model.canon", "model");
    compiled.map(|compiled| compiled.graph).ok_or_else(|| program.render(&diagnostics))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_compiles_at_the_size_of_its_name() {
        for family in Family::ALL {
            for (size, range) in [
                (Size::Small, 100_000..2_000_000i64),
                (Size::Hundred, 70_000_000..140_000_000),
                (Size::Billion, 750_000_000..1_700_000_000),
            ] {
                let graph = graph(family, size).unwrap_or_else(|why| panic!("{why}"));
                let count: i64 =
                    graph.params().iter().map(|p| p.shape.iter().product::<i64>()).sum();
                assert!(range.contains(&count), "{} {}: {count}", family.name(), size.name());
            }
        }
    }
}
