//! Recognises a stock class in a graph.
//!
//! In: a compiled arch, however its text is written. Out: the class with its settings. Must stay true: the graph alone
//! proposes a class; the proposal counts only if it, printed and compiled, has the same graph and manifest, and if the
//! class has keys for everything that it has.

use compiler::number::{Ratio, Root};
use compiler::plan::RopeScaling;
use compiler::program::Compiled;

use super::super::super::decoder::Decoder;
use super::super::super::model::Init;
use super::{FAMILIES, Family, Stock, Windows};

impl Stock {
    /// The model that an arch is, if it is one of these classes. Plain Llamas are of a released family instead.
    pub(crate) fn of(compiled: &Compiled) -> Option<Stock> {
        let stock = proposed(compiled)?;
        // A proposal that does not compile is not this arch, either.
        (stock.has_keys() && matches!(stock.difference(compiled), Ok(None))).then_some(stock)
    }

    /// Whether its class has keys for everything that it has.
    fn has_keys(&self) -> bool {
        let Stock { family, windows, .. } = self;
        let bounds = self.score.is_some() || self.softcap.is_some() || self.cap.is_some();
        let by_rule = |(window, first)| {
            family.windows.of_layers(windows.len() as i64, window, first) == *windows
        };
        (family.biases || !self.bias)
            && (family.bounded || !bounds)
            // The mask of a window is always built by Gemma 2's class.
            && (family.windows != Windows::Even || windows.iter().any(Option::is_some))
            && self.window().is_some_and(by_rule)
    }

    /// The one window of the layers that have any, and the first of those layers; `None` if windows differ.
    pub(super) fn window(&self) -> Option<(Option<i64>, i64)> {
        let first = self.windows.iter().position(Option::is_some);
        let Some(first) = first else { return Some((None, self.windows.len() as i64)) };
        let window = self.windows.get(first).copied().flatten();
        let same = self.windows.iter().flatten().all(|other| Some(*other) == window);
        same.then_some((window, first as i64))
    }
}

/// The class that an arch resembles.
fn proposed(compiled: &Compiled) -> Option<Stock> {
    let graph = &compiled.graph;
    let decoder = Decoder::of(graph)?;
    let windowed = decoder.windows.iter().any(Option::is_some);
    let model_type = match decoder.norms {
        (true, true) => "gemma2",
        (false, true) => "olmo2",
        (true, false) if decoder.qk_norm => "qwen3",
        (true, false) if windowed => "mistral",
        (true, false) if decoder.bias || decoder.scaling != RopeScaling::Unscaled => "llama",
        // Its MLP is no plain Llama's.
        (true, false) => "mistral",
        (false, false) => return None,
    };
    let family: &'static Family = FAMILIES.iter().find(|f| f.model_type == model_type)?;
    Some(Stock {
        family,
        vocab: graph.vocab,
        dim: graph.dim,
        heads: decoder.heads,
        kv_heads: decoder.kv_heads,
        head_dim: decoder.head_dim,
        hidden: decoder.hidden,
        mlp: if decoder.gelu { "geglu" } else { "swiglu" },
        norm_eps: decoder.norm_eps,
        theta: decoder.theta,
        scaling: decoder.scaling,
        rows: decoder.layout,
        windows: decoder.windows,
        bias: decoder.bias,
        score: match decoder.scale {
            None => None,
            Some(scale) => Some(inverse_square(scale)?),
        },
        softcap: decoder.softcap,
        cap: decoder.cap,
        tied: decoder.tied,
        init: Init::of(compiled),
    })
}

/// The whole number n for which this is 1 / sqrt(n).
fn inverse_square(scale: Root) -> Option<i64> {
    let square = scale.mul(scale)?;
    let Ratio { num, den } = Ratio::new(1, 1)?.div(square.radicand)?;
    let whole = square.degree == 1 && den == 1 && num > 0 && scale.radicand.num > 0;
    i64::try_from(num).ok().filter(|_| whole)
}
