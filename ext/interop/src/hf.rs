//! Reads Hugging Face's `config.json`; `hf/write.rs` writes it.
//!
//! Absent keys have the defaults of the published classes; a key that changes the computation is honoured or refused;
//! features of our models that a configuration cannot express are under `canonc`, which other programs ignore.

mod decoder;
mod linear;
mod rope;
mod write;

use std::collections::BTreeMap;

use dsl::Problem;

use super::class::{CLASSES, Class};
use super::config::Keys;
use super::described::Described;
use super::init::Init;
use super::messages;
use super::model::{Canon, Family, Mixer, RopeLayout};
use super::node::NodeValue;

pub(crate) use write::{canon_set, float, our_keys, turned_channels};
pub use write::{check_class, write};

/// The repository with the code of the released classes that `transformers` lacks.
pub const PUBLISHED_CODE: &str = "https://github.com/facebookresearch/PhysicsLM4";

/// Keys of every `transformers` configuration that do not describe the model: labels, dtypes, versions.
#[rustfmt::skip]
const GENERAL: &[&str] = &[
    "_attn_implementation", "_attn_implementation_autoset", "_name_or_path", "add_cross_attention",
    "architectures", "attn_implementation", "auto_map", "bos_token_id", "chunk_size_feed_forward",
    "cross_attention_hidden_size", "dtype", "eos_token_id", "finetuning_task", "id2label", "is_decoder",
    "label2id", "max_position_embeddings", "output_attentions", "output_hidden_states", "output_scores",
    "problem_type", "return_dict", "return_dict_in_generate", "tf_legacy_loss", "tie_encoder_decoder",
    "tokenizer_class", "torch_dtype", "torchscript", "transformers_version", "use_bfloat16", "use_cache",
];

/// Keys of every class that only decide how `transformers` generates.
#[rustfmt::skip]
const SAMPLING: &[&str] = &[
    "bad_words_ids", "begin_suppress_tokens", "decoder_start_token_id", "diversity_penalty", "do_sample",
    "early_stopping", "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "forced_bos_token_id",
    "forced_eos_token_id", "length_penalty", "max_length", "min_length", "no_repeat_ngram_size",
    "num_beam_groups", "num_beams", "num_return_sequences", "pad_token_id", "prefix", "remove_invalid_values",
    "repetition_penalty", "sep_token_id", "suppress_tokens", "task_specific_params", "temperature", "top_k",
    "top_p", "typical_p",
];

/// Keys that other programs leave in a `config.json`, and no class reads: of trainers, converters, libraries and their
/// versions.
#[rustfmt::skip]
const UNREAD: &[&str] = &[
    "_commit_hash", "_flash_attn_2_enabled", "add_bos_token", "add_eos_token", "assistant_confidence_threshold",
    "assistant_lookbehind", "base_model_name_or_path", "encoder_repetition_penalty", "epsilon_cutoff", "eta_cutoff",
    "experts_implementation", "gradient_checkpointing", "loss_type", "max_seq_len", "max_sequence_length",
    "mlx_lm_version", "model_max_length", "n_ctx", "n_positions", "name_or_path", "num_assistant_tokens",
    "num_assistant_tokens_schedule", "num_labels", "num_logits_to_keep", "seq_length", "target_lookbehind",
    "tokenizer_version", "transformers.js_config", "unsloth_fixed", "unsloth_version", "use_flash_attention",
    "use_flash_attention_2", "use_flash_attn",
];

/// Reads the keys of a `config.json`.
pub fn read(keys: &Keys<'_>) -> Result<Described, Problem> {
    match class_of(keys, |_| true)? {
        // A Llama with biases or scaled RoPE has the keys of other classes, which no released one has.
        class if class.model_type == "llama" => {
            let released = !keys.bool_or("attention_bias", false)? && !rope::is_scaled(keys)?;
            read_class(keys, class, released)
        }
        class => read_class(keys, class, class.released),
    }
}

/// Reads the keys of a `config.json` of a released family.
pub fn released(keys: &Keys<'_>) -> Result<Described, Problem> {
    read_class(keys, class_of(keys, |class| class.released)?, true)
}

/// The class of a configuration, one of these.
fn class_of(keys: &Keys<'_>, is_read: impl Fn(&Class) -> bool) -> Result<&'static Class, Problem> {
    let model_type = keys.text("model_type")?;
    let class = CLASSES.iter().find(|class| Some(class.model_type) == model_type && is_read(class));
    class.ok_or_else(|| {
        let types: Vec<&str> = CLASSES.iter().map(|class| class.model_type).collect();
        messages::unknown_class(keys, model_type, &types)
    })
}

/// Reads all keys; those of a released model have fewer values.
fn read_class(
    keys: &Keys<'_>,
    class: &'static Class,
    released: bool,
) -> Result<Described, Problem> {
    general(keys, class)?;
    let ours = Ours::read(keys)?;
    let mut described = match class.family {
        Family::Llama => decoder::read(keys, class, released)?,
        Family::Gla5 | Family::Gdn2 => linear::flash_linear(keys, class)?,
        Family::Mamba2 => linear::mamba2(keys, class)?,
    };
    ours.apply(&mut described, keys)?;
    keys.finish(&["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"])?;
    Ok(described)
}

/// Reads the keys that every class has.
fn general(keys: &Keys<'_>, class: &Class) -> Result<(), Problem> {
    if let Some(node) = keys.node("architectures") {
        let is_class = match &node.value {
            NodeValue::List(items) => {
                matches!(items.as_slice(), [only] if only.value.plain() == class.name)
            }
            NodeValue::Null
            | NodeValue::Bool(_)
            | NodeValue::Number(_)
            | NodeValue::Text(_)
            | NodeValue::Map(_) => false,
        };
        if !is_class {
            return Err(messages::other_class(keys, class.model_type, class.name));
        }
    }
    keys.idle(GENERAL);
    for key in SAMPLING {
        keys.leave_out(
            key,
            "it is for generation in `transformers`; `generate` and `serve` have options",
        );
    }
    for key in UNREAD {
        keys.leave_out(key, "no class of `transformers` reads it");
    }
    keys.neutral(&messages::USE_L2WARP)?;
    keys.check_all(&messages::GENERAL)
}

/// Our own keys, in addition to the published ones.
struct Ours {
    init: Option<Init>,
    interleaved: bool,
}

impl Ours {
    fn read(keys: &Keys<'_>) -> Result<Ours, Problem> {
        let init = init(keys)?;
        if init.is_none() && keys.text("canonc.init")?.is_some() {
            return Err(messages::unknown_init(keys));
        }
        let interleaved = keys.text("canonc.rope_layout")? == Some("interleaved");
        Ok(Ours { init, interleaved })
    }

    fn apply(self, described: &mut Described, keys: &Keys<'_>) -> Result<(), Problem> {
        if let Some(init) = self.init {
            described.model.init = init;
        }
        if !self.interleaved {
            return Ok(());
        }
        match &mut described.model.mixer {
            Mixer::Attention(attention) if attention.layout == RopeLayout::Half => {
                attention.layout = RopeLayout::Interleaved;
                described.turned = true;
                Ok(())
            }
            Mixer::Attention(_)
            | Mixer::Gla5 { .. }
            | Mixer::Gdn2 { .. }
            | Mixer::Mamba2 { .. } => Err(messages::rows_are_not_turned(keys)),
        }
    }
}

/// The initial distributions under `canonc.init`, if it has rules or the name of a table.
pub(super) fn init(keys: &Keys<'_>) -> Result<Option<Init>, Problem> {
    let roles = keys.below("canonc.init");
    if roles.is_empty() {
        return Ok(keys.text("canonc.init")?.and_then(Init::named));
    }
    let mut rows = BTreeMap::new();
    for role in roles {
        let rule = keys.text(&format!("canonc.init.{role}"))?.unwrap_or_default();
        rows.insert(role, rule.to_owned());
    }
    Ok(Some(Init::from_rows(rows)))
}

/// Reads `canon_*` of every class; `letters` are those with a meaning. Also whether there is a `b`.
pub(super) fn canon(
    keys: &Keys<'_>,
    prefix: &str,
    letters: &str,
) -> Result<(Canon, bool), Problem> {
    let at = |name: &str| format!("{prefix}{name}");
    let set = keys.text(&at("canon_set"))?.unwrap_or_default();
    if let Some(letter) = set.chars().find(|c| !letters.contains(*c)) {
        return Err(messages::no_such_slot(keys, &at("canon_set"), letter, letters));
    }
    if keys.bool_or(&at("canon_bias"), false)? {
        return Err(messages::canon_has_no_bias(keys, &at("canon_bias")));
    }
    let kernel = keys.int_or(&at("canon_kernel"), 4)?;
    if !(1..=64).contains(&kernel) {
        return Err(messages::wrong_canon_kernel(keys, &at("canon_kernel")));
    }
    let slots = "ABCD".chars().filter(|c| set.contains(*c)).collect::<Vec<char>>();
    let residual = keys.bool_or(&at("canon_residual"), true)?;
    let silu = keys.bool_or(&at("canon_activation"), false)?;
    let canon = match slots.is_empty() {
        true => Canon::NONE,
        false => Canon { slots, kernel, residual, silu },
    };
    Ok((canon, set.contains('b')))
}

/// Channels that RoPE rotates; if absent, all of them. The readers of the release disagree about 0, so it is refused.
pub(super) fn rope_dims(keys: &Keys<'_>, key: &str, head_dim: i64) -> Result<i64, Problem> {
    match keys.int(key)? {
        None => Ok(head_dim),
        Some(n) if n > 0 && n <= head_dim && n % 2 == 0 => Ok(n),
        Some(0) => Err(messages::no_rotated_channels(keys, key)),
        Some(_) => Err(messages::odd_rotated_channels(keys, key, head_dim)),
    }
}

/// A width divided by a number of heads.
pub(super) fn divided(keys: &Keys<'_>, key: &str, width: i64, heads: i64) -> Result<i64, Problem> {
    match width.checked_rem(heads) {
        Some(0) => Ok(width / heads),
        _ => Err(messages::unequal_heads(keys, key, heads)),
    }
}
