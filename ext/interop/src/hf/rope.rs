//! Reads RoPE's keys: the base of its frequencies, and how they are scaled for longer texts.

use compiler::plan::RopeScaling;
use dsl::{Decimal, Problem};

use super::super::config::{Keys, decimal};
use super::super::messages;

/// The maps that have its settings. `transformers` 5 has them in the second.
const MAPS: [&str; 2] = ["rope_scaling", "rope_parameters"];

/// The base of its frequencies.
pub(super) fn theta(keys: &Keys<'_>) -> Result<Decimal, Problem> {
    match (keys.decimal("rope_theta")?, keys.decimal("rope_parameters.rope_theta")?) {
        (Some(theta), Some(in_map)) if theta != in_map => Err(messages::other_theta(keys, in_map)),
        (Some(theta), _) | (None, Some(theta)) => Ok(theta),
        (None, None) => Ok(decimal("10000")),
    }
}

/// Refuses settings that scale it.
pub(super) fn check_unscaled(keys: &Keys<'_>, has_canon: bool) -> Result<(), Problem> {
    for map in MAPS {
        for name in keys.below(map) {
            let key = format!("{map}.{name}");
            match name.as_str() {
                "rope_type" | "type" => {
                    keys.only(&key, &["default"], &messages::kind_is_default(&key))?;
                }
                "rope_theta" => {}
                "partial_rotary_factor" if map == "rope_parameters" && !has_canon => {}
                _ => return Err(messages::rope_is_not_scaled(keys, &key)),
            }
        }
    }
    keys.check(&messages::ROPE_SCALING)
}

/// Whether a configuration asks for a scaled RoPE.
pub(super) fn is_scaled(keys: &Keys<'_>) -> Result<bool, Problem> {
    Ok(kind(keys)?.is_some_and(|(_, kind)| kind != "default"))
}

/// The map with its scaling, and the kind that it names.
fn kind<'a>(keys: &Keys<'a>) -> Result<Option<(&'static str, &'a str)>, Problem> {
    let mut first: Option<(&'static str, &'a str)> = None;
    for map in MAPS {
        let mut kind = None;
        for name in ["rope_type", "type"] {
            let key = format!("{map}.{name}");
            match (kind, keys.text(&key)?) {
                (Some(known), Some(name)) if known != name => {
                    return Err(messages::other_kind_of_rope(keys, &key, map, known));
                }
                (None, Some(name)) => kind = Some(name),
                (_, _) => {}
            }
        }
        match (first, kind) {
            (Some((first_map, _)), Some(_)) => {
                let key = format!("{map}.rope_type");
                return Err(messages::second_map_of_rope(keys, &key, first_map));
            }
            (None, Some(kind)) => first = Some((map, kind)),
            (_, None) => {}
        }
    }
    Ok(first)
}

/// How its frequencies are scaled.
pub(super) fn scaling(keys: &Keys<'_>, theta: Decimal) -> Result<RopeScaling, Problem> {
    let Some((map, kind)) = kind(keys)? else { return Ok(RopeScaling::Unscaled) };
    let at = |name: &str| format!("{map}.{name}");
    keys.neutral(match map {
        "rope_parameters" => &messages::WHOLE_HEAD_5,
        _ => &messages::WHOLE_HEAD_SCALED,
    })?;
    let needed = |name: &str| -> Result<Decimal, Problem> {
        let key = at(name);
        let value = keys.decimal(&key)?.filter(|n| !n.is_negative() && !n.is_zero());
        value.ok_or_else(|| messages::no_rope_setting(keys, &key, kind))
    };
    match kind {
        "default" => Ok(RopeScaling::Unscaled),
        "linear" => Ok(RopeScaling::Interpolated { factor: needed("factor")? }),
        "llama3" => {
            let (low, high) = (needed("low_freq_factor")?, needed("high_freq_factor")?);
            if high.compare(low).is_le() {
                return Err(messages::low_high_frequency(keys, &at("high_freq_factor"), low));
            }
            let original = keys.positive(&at("original_max_position_embeddings"))?;
            Ok(RopeScaling::Llama3 { factor: needed("factor")?, original, low, high })
        }
        "yarn" => yarn(keys, map, theta),
        _ => {
            let key = ["rope_type", "type"].map(at).into_iter().find(|key| keys.has(key));
            Err(messages::unknown_kind_of_rope(keys, &key.unwrap_or_default()))
        }
    }
}

/// YaRN's settings. The class computes other numbers for a factor below 1, and fails for a base of 1.
fn yarn(keys: &Keys<'_>, map: &str, theta: Decimal) -> Result<RopeScaling, Problem> {
    let at = |name: &str| format!("{map}.{name}");
    if theta.compare(Decimal::from(1)).is_le() {
        return Err(messages::yarn_needs_theta(keys, &at("rope_type"), theta));
    }
    let (fast, slow) = (at("beta_fast"), at("beta_slow"));
    keys.only_neutral(&fast, &["32"], &messages::yarn_begins_at_32(&fast))?;
    keys.only_neutral(&slow, &["1"], &messages::yarn_ends_at_1(&slow))?;
    let original = at("original_max_position_embeddings");
    let original = match keys.int(&original)? {
        Some(_) => keys.positive(&original)?,
        None => keys.positive("max_position_embeddings")?,
    };
    let factor = yarn_factor(keys, &at("factor"), original)?;
    // `null` is false for the class, and absent is true.
    let truncate = at("truncate");
    let truncate = match keys.node(&truncate) {
        None => !keys.has(&truncate),
        Some(_) => keys.bool_or(&truncate, true)?,
    };
    let (mscale, mscale_all) = (Decimal::from(1), Decimal::ZERO);
    let scaling = RopeScaling::Yarn { factor, original, truncate, mscale, mscale_all };
    yarn_magnitude(keys, map, factor, scaling.magnitude())?;
    Ok(scaling)
}

/// By how much texts become longer.
fn yarn_factor(keys: &Keys<'_>, key: &str, original: i64) -> Result<Decimal, Problem> {
    let factor = match keys.decimal(key)? {
        Some(factor) => factor,
        None if !keys.has(key) => return Err(messages::yarn_needs_factor(keys, key)),
        // The class divides the lengths for `null`.
        None => {
            let length = keys.positive("max_position_embeddings")?;
            if length % original != 0 {
                return Err(messages::yarn_no_multiple(keys, key, length, original));
            }
            Decimal::from(length / original)
        }
    };
    match factor.compare(Decimal::from(1)).is_lt() {
        true => Err(messages::yarn_shortens(keys, key)),
        false => Ok(factor),
    }
}

/// Refuses another factor of cos and sin than YaRN's own.
fn yarn_magnitude(keys: &Keys<'_>, map: &str, factor: Decimal, usual: f64) -> Result<(), Problem> {
    let at = |name: &str| format!("{map}.{name}");
    let weight = |name: &str| -> Result<Option<Decimal>, Problem> {
        Ok(keys.decimal(&at(name))?.filter(|weight| !weight.is_zero()))
    };
    let given = at("attention_factor");
    match keys.decimal(&given)? {
        Some(number) if number.to_f64() != usual => {
            return Err(messages::yarn_magnitude(keys, &given, factor, usual));
        }
        Some(_) => keys.leave_out(&given, "it is YaRN's own"),
        // The class reads the two only together.
        None => {
            if let (Some(_), Some(all)) = (weight("mscale")?, weight("mscale_all_dim")?) {
                return Err(messages::yarn_mscale(keys, &at("mscale"), all, factor));
            }
        }
    }
    for name in ["mscale", "mscale_all_dim"] {
        keys.leave_out(&at(name), "the class does not use it here");
    }
    Ok(())
}
