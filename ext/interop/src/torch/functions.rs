//! The PyTorch functions of primitives that are no single expression, one file each under `ext/interop/torch/`.

/// Name and text of each function, after those that it calls.
const FUNCTIONS: &[(&str, &str)] = &[
    ("wide", include_str!("../../torch/wide.py")),
    ("without_autocast", include_str!("../../torch/without_autocast.py")),
    ("causal_conv", include_str!("../../torch/causal_conv.py")),
    ("chunks", include_str!("../../torch/chunks.py")),
    ("decays", include_str!("../../torch/decays.py")),
    ("states", include_str!("../../torch/states.py")),
    ("blocks", include_str!("../../torch/blocks.py")),
    ("attention", include_str!("../../torch/attention.py")),
    ("canon", include_str!("../../torch/canon.py")),
    ("concat", include_str!("../../torch/concat.py")),
    ("delta_scan", include_str!("../../torch/delta_scan.py")),
    ("dplr_scan", include_str!("../../torch/dplr_scan.py")),
    ("embed", include_str!("../../torch/embed.py")),
    ("expert_linear", include_str!("../../torch/expert_linear.py")),
    ("gelu", include_str!("../../torch/gelu.py")),
    ("gla_scan", include_str!("../../torch/gla_scan.py")),
    ("index", include_str!("../../torch/index.py")),
    ("keyed_dropout", include_str!("../../torch/keyed_dropout.py")),
    ("l2_norm", include_str!("../../torch/l2_norm.py")),
    ("latent_attention", include_str!("../../torch/latent_attention.py")),
    ("linear", include_str!("../../torch/linear.py")),
    ("mean_product", include_str!("../../torch/mean_product.py")),
    ("mix_heads", include_str!("../../torch/mix_heads.py")),
    ("ngram", include_str!("../../torch/ngram.py")),
    ("one_hot", include_str!("../../torch/one_hot.py")),
    ("rms_norm", include_str!("../../torch/rms_norm.py")),
    ("scaled_rates", include_str!("../../torch/scaled_rates.py")),
    ("rope_table", include_str!("../../torch/rope_table.py")),
    ("rope", include_str!("../../torch/rope.py")),
    ("rwkv6_scan", include_str!("../../torch/rwkv6_scan.py")),
    ("shift", include_str!("../../torch/shift.py")),
    ("short_conv", include_str!("../../torch/short_conv.py")),
    ("spread", include_str!("../../torch/spread.py")),
    ("ssd_scan", include_str!("../../torch/ssd_scan.py")),
    ("summed_loss", include_str!("../../torch/summed_loss.py")),
    ("top_k", include_str!("../../torch/top_k.py")),
];

/// Whether there is a function with this name.
pub(super) fn has(name: &str) -> bool {
    FUNCTIONS.iter().any(|(known, _)| *known == name)
}

/// The names that no variable may have.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.iter().map(|(name, _)| *name)
}

/// Whether a text calls a function, or is decorated by it.
pub(super) fn calls(text: &str, name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    text.match_indices(name).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + name.len()..]);
        (after.starts_with('(') && !before.ends_with(word)) || before.ends_with('@')
    })
}

/// The texts of the functions that are used, and of those that they call.
pub(super) fn needed(used: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let mut texts: Vec<&'static str> = Vec::new();
    for (name, text) in FUNCTIONS.iter().rev() {
        if used(name) || texts.iter().any(|text| calls(text, name)) {
            texts.push(text.trim_end());
        }
    }
    texts.reverse();
    texts
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_primitive_has_one_function_or_expression_and_its_file() {
        for primitive in compiler::op::ALL {
            let both = (primitive.torch.is_some(), has(primitive.name));
            assert!(both.0 != both.1, "{}: {both:?}", primitive.name);
        }
        let listed: BTreeSet<String> = names().map(|name| format!("{name}.py")).collect();
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/torch");
        let files = std::fs::read_dir(folder).unwrap();
        let files: BTreeSet<String> =
            files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(listed, files);
    }

    #[test]
    fn functions_follow_those_that_they_call() {
        for (at, (name, text)) in FUNCTIONS.iter().enumerate() {
            let text = text.strip_prefix("@without_autocast\n").unwrap_or(text);
            assert!(text.starts_with(&format!("def {name}(")), "{name}");
            for (later, _) in &FUNCTIONS[at + 1..] {
                assert!(!calls(text, later), "{name} calls {later}");
            }
        }
        assert!(calls("y = wide(x)", "wide") && !calls("y = x.wide(2) + unwide(x)", "wide"));
    }
}
