//! Writes the keys of a stock class.
//!
//! In: the model. Out: the keys of its `config.json`. Must stay true: with these keys the class builds exactly this
//! model, in every version that has the class by that name; reading them gives the same arch.

use std::collections::BTreeMap;

use compiler::plan::{RopeLayout, RopeScaling};
use dsl::Decimal;

use super::super::super::config::decimal;
use super::super::super::node::Value;
use super::super::write::{float, int, node, own, text};
use super::{Stock, Windows};

impl Stock {
    /// The `config.json`. `seq_len` is the length of the training's sequences.
    pub(crate) fn config(&self, seq_len: i64, dtype: &str) -> Value {
        let Stock { family, heads, kv_heads, head_dim, .. } = self;
        let mut keys: BTreeMap<&str, Value> = BTreeMap::new();
        keys.insert("architectures", Value::List(vec![node(text(family.class))]));
        keys.insert("model_type", text(family.model_type));
        keys.insert("vocab_size", int(self.vocab));
        keys.insert("hidden_size", int(self.dim));
        keys.insert("intermediate_size", int(self.hidden));
        keys.insert("num_hidden_layers", int(self.windows.len() as i64));
        keys.insert("num_attention_heads", int(*heads));
        keys.insert("num_key_value_heads", int(*kv_heads));
        keys.insert("head_dim", int(*head_dim));
        let activation = if self.mlp == "geglu" { "gelu_pytorch_tanh" } else { "silu" };
        keys.insert(family.activation.0, text(activation));
        keys.insert("rms_norm_eps", float(self.norm_eps));
        keys.insert("rope_theta", float(self.theta));
        let (scaling, length) = self.scaled(seq_len);
        keys.insert("rope_scaling", scaling);
        keys.insert("max_position_embeddings", int(length));
        if family.biases {
            keys.insert("attention_bias", Value::Bool(self.bias));
        }
        keys.insert("attention_dropout", float(Decimal::ZERO));
        let range = self.init.range();
        keys.insert("initializer_range", float(range.unwrap_or(decimal("0.02"))));
        keys.insert("tie_word_embeddings", Value::Bool(self.tied));
        keys.insert("torch_dtype", text(dtype));
        keys.insert("use_cache", Value::Bool(true));
        // The classes have ids of their own, and never train the row of a padding token.
        for mark in ["bos_token_id", "eos_token_id", "pad_token_id"] {
            keys.insert(mark, Value::Null);
        }
        let (window, first) = self.window().unwrap_or_default();
        if family.windows != Windows::Never {
            keys.insert("sliding_window", window.map_or(Value::Null, int));
        }
        if family.windows == Windows::Upper {
            keys.insert("use_sliding_window", Value::Bool(window.is_some()));
            keys.insert("max_window_layers", int(first));
        }
        if family.bounded {
            let bound = |cap: Option<Decimal>| cap.map_or(Value::Null, float);
            keys.insert("query_pre_attn_scalar", int(self.score.unwrap_or(*head_dim)));
            keys.insert("attn_logit_softcapping", bound(self.softcap));
            keys.insert("final_logit_softcapping", bound(self.cap));
        }
        if self.needs_eager() {
            keys.insert("_attn_implementation", text("eager"));
        }
        let turned = self.rows == RopeLayout::Interleaved;
        let mut ours = match own(&self.init, turned, range.is_some()) {
            Some(Value::Map(entries)) => entries,
            Some(_) | None => Vec::new(),
        };
        if family.bounded && self.score.is_none() {
            ours.push(("score_scale".to_owned(), node(text("default"))));
        }
        if !ours.is_empty() {
            keys.insert("canonc", Value::Map(ours));
        }
        Value::Map(keys.into_iter().map(|(key, value)| (key.to_owned(), node(value))).collect())
    }

    /// `rope_scaling`, and the positions that the model then has.
    fn scaled(&self, seq_len: i64) -> (Value, i64) {
        let original = |n: i64| ("original_max_position_embeddings", int(n));
        let (kind, settings, length) = match &self.scaling {
            RopeScaling::Unscaled | RopeScaling::Ntk { .. } => return (Value::Null, seq_len),
            RopeScaling::Interpolated { factor } => {
                ("linear", vec![("factor", float(*factor))], seq_len)
            }
            RopeScaling::Llama3 { factor, original: trained, low, high } => {
                let settings = vec![
                    ("factor", float(*factor)),
                    ("low_freq_factor", float(*low)),
                    ("high_freq_factor", float(*high)),
                    original(*trained),
                ];
                ("llama3", settings, longer(*trained, *factor))
            }
            RopeScaling::Yarn { factor, original: trained, truncate, .. } => {
                let mut settings = vec![("factor", float(*factor)), original(*trained)];
                if !truncate {
                    settings.push(("truncate", Value::Bool(false)));
                }
                // Some versions take the quotient of this length and `original` as the factor.
                ("yarn", settings, longer(*trained, *factor))
            }
        };
        let all = std::iter::once(("rope_type", text(kind))).chain(settings);
        let map = all.map(|(key, value)| (key.to_owned(), node(value))).collect();
        (Value::Map(map), length)
    }
}

/// The length of sequences that are longer by a factor.
fn longer(original: i64, factor: Decimal) -> i64 {
    (original as f64 * factor.to_f64()).round() as i64
}
