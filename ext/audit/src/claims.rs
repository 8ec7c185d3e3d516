//! Reads the claims of a name, word by word.
//!
//! A claim is a whole word (`LlamaCanon`, `lr0.002`, `1T`), never part of another (`canonical`, `warmup_lr0.1`). A negated
//! word (`NoCanon`, `canon_off`) claims the opposite, and an ambiguous name claims nothing.

use compiler::number::Ratio;
use dsl::Decimal;

use crate::words::{Token, segments};

/// The claim of a name about Canon layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CanonClaim {
    #[default]
    Unsaid,
    /// The word occurs, but the experiment may be with or without them: `canon_sweep`.
    Mentioned,
    Filled,
    /// `NoCanon`, `canon_off`, `without_canon`
    Empty,
}

/// A number in a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberClaim {
    pub path: &'static str,
    /// Possible values: `lr3e4` is often written for 3e-4, `4k` is 4000 or 4096.
    pub values: Vec<Ratio>,
    /// The part of the name that the number comes from.
    pub word: String,
}

/// The claims of a name about its experiment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// The name without the words that distinguish arms.
    pub stem: String,
    pub canon: CanonClaim,
    /// `ACD` of `CanonACD`
    pub slots: Option<String>,
    /// `1B`
    pub size: Option<String>,
    /// `1T`, and its number.
    pub tokens: Option<(String, Ratio)>,
    pub numbers: Vec<NumberClaim>,
}

/// Words that distinguish arms, also at the end of a longer word.
pub(crate) const ARM_WORDS: &[&str] =
    &["canon", "baseline", "base", "control", "conv", "plain", "twin"];

/// Longer words that only happen to end like one of those.
const LONGER_WORDS: &[&str] = &["codebase", "database", "firebase", "explain", "uncontrol"];

/// Words before a number, with the key that the number is a claim about.
pub(crate) const NAME_WORDS: &[(&str, &str)] = &[
    ("ctx", "data.seq_len"),
    ("lr", "optimizer.lr"),
    ("steps", "budget.steps"),
    ("warmup", "schedule.warmup"),
    ("wd", "optimizer.weight_decay"),
    ("weight_decay", "optimizer.weight_decay"),
];

/// Words that negate a `canon` after them.
#[rustfmt::skip]
const DENY_BEFORE: &[&str] = &[
    "anti", "disable", "disabled", "drop", "dropped", "drops", "ex", "exclude", "excludes", "excluding", "lack",
    "lacking", "lacks", "less", "minus", "missing", "never", "no", "non", "not", "off", "omit", "omits", "omitting",
    "remove", "removed", "removes", "removing", "sans", "skip", "skips", "un", "without", "wo", "zero",
];

/// The negating words that may belong to the word before them: `bias-off-canon`.
const ENDS_BEFORE: &[&str] = &["disabled", "dropped", "less", "off", "removed", "zero"];

/// Words that negate a `canon` before them.
#[rustfmt::skip]
const DENY_AFTER: &[&str] = &[
    "absent", "deleted", "disabled", "dropped", "excluded", "false", "free", "less", "missing", "no", "none", "off",
    "omitted", "out", "removed", "skipped",
];

/// Words next to `canon` that cancel the claim: the name compares with it, starts from it, or is like it.
#[rustfmt::skip]
const MENTION_BEFORE: &[&str] = &[
    "ablate", "ablated", "ablating", "almost", "base", "baseline", "before", "control", "fake",
    "for", "from", "half", "instead", "like", "n", "of", "post", "pre", "pseudo", "quasi", "replace",
    "replaced", "semi", "to", "twin", "twins",
];
#[rustfmt::skip]
const MENTION_AFTER: &[&str] = &[
    "ablate", "ablated", "base", "baseline", "control", "conv", "ish", "like", "replaced", "style",
    "swapped", "twin", "twins",
];

/// Words that belong to `canon` and add nothing.
#[rustfmt::skip]
const WITH_CANON: &[&str] = &[
    "all", "any", "layer", "layers", "on", "only", "set", "sets", "slot", "slots", "the", "true",
    "with",
];

/// Words in a name that covers several arms: such a name claims nothing about any of them.
#[rustfmt::skip]
const TOPIC: &[&str] = &[
    "ablation", "ablations", "against", "compare", "compared", "comparison", "effect", "gain",
    "gains", "or", "study", "sweep", "versus", "vs",
];

/// Words that turn the following number's word into another quantity: `warmup_steps`, `min_lr`.
#[rustfmt::skip]
const QUALIFIERS: &[&str] = &[
    "ckpt", "cooldown", "decay", "dump", "ema", "embed", "embedding", "end", "eval", "final",
    "finetune", "from", "ft", "head", "init", "log", "lr", "min", "muon", "not", "per", "router",
    "save", "sft", "start", "test", "val", "warmup",
];

/// Words next to `4M` or `1T` that show that it is neither a size nor a budget.
const OTHER_QUANTITY: &[&str] =
    &["batch", "bs", "context", "ctx", "gbs", "len", "seq", "seqlen", "step", "vocab"];

/// Words that show that such a number is a part or the end of another: `0.5T-of-1T`.
const NOT_WHOLE: &[&str] =
    &["after", "distill", "from", "of", "pre", "teacher", "to", "until", "upto"];

impl Claims {
    /// Reads a name. `arm` means that it is `comparison/arm`; the comparison's part then makes no claim about the arm's
    /// slots.
    pub fn read(name: &str, arm: bool) -> Claims {
        let mut claims = Claims::default();
        let segments = segments(name);
        let last = segments.len().saturating_sub(1);
        let mut stem = Vec::new();
        for (at, tokens) in segments.iter().enumerate() {
            let topic = tokens.iter().any(|token| TOPIC.contains(&token.lower.as_str()));
            let (said, slots) = canon(tokens, topic);
            if said != CanonClaim::Unsaid && (!arm || at == last) {
                (claims.canon, claims.slots) = (said, slots);
            }
            if !topic {
                quantities(tokens, &mut claims);
                numbers(tokens, &mut claims);
            }
            stem.extend(stem_of(tokens));
        }
        claims.stem = stem.join("-");
        claims
    }
}

fn is(token: Option<&Token>, words: &[&str]) -> bool {
    token.is_some_and(|token| words.contains(&token.lower.as_str()))
}

/// The claim of the tokens about Canon layers, with the slots they name.
fn canon(tokens: &[Token], topic: bool) -> (CanonClaim, Option<String>) {
    let mut claim = CanonClaim::Unsaid;
    let mut slots = None;
    for (at, token) in tokens.iter().enumerate() {
        let Some(letters) = &token.canon else { continue };
        let counts = |t: &&Token| !WITH_CANON.contains(&t.lower.as_str());
        let mut backward = tokens.iter().take(at).rev().filter(counts);
        let (before, ahead) = (backward.next(), backward.next());
        let mut forward = tokens.iter().skip(at + 1).filter(counts);
        let (after, behind, number) = (forward.next(), forward.next(), forward.next());
        // `w_o_canon`
        let without = is(before, &["o"]) && is(ahead, &["w"]);
        // `no` of `canon-no-wd` and `off` of `bias-off-canon` belong to another word; in `canon-off-lr0.1`
        // the `off` belongs to `canon`, and the number to `lr`.
        let word = |token: Option<&Token>| token.is_some_and(|token| !token.number);
        let valued = number.is_some_and(|token| token.number) && !is(after, &["no"]);
        let elsewhere = (is(after, DENY_AFTER) && word(behind) && !valued)
            || (is(before, ENDS_BEFORE) && word(ahead));
        let next = tokens.get(at + 1);
        // `canon=0` is off; `canon-0` may be the first of several.
        let zero = is(next, &["0"]);
        let assigned = next.is_some_and(|next| matches!(next.sep, Some('=' | ':')));
        // `no` of `canon_nocanon` does not apply to the first `canon`.
        let again = tokens.get(at + 2).is_some_and(|token| token.canon.is_some());
        let denied = is(before, DENY_BEFORE)
            || without
            || (is(after, DENY_AFTER) && !again)
            || token.sep == Some('!')
            || (zero && assigned);
        let unclear = elsewhere
            || is(before, MENTION_BEFORE)
            || is(after, MENTION_AFTER)
            || (zero && !assigned)
            || (denied && (!letters.is_empty() || next.is_some_and(is_slot)));
        let this = match (topic || unclear, denied) {
            (true, _) => CanonClaim::Mentioned,
            (false, true) => CanonClaim::Empty,
            (false, false) => CanonClaim::Filled,
        };
        claim =
            if claim == CanonClaim::Unsaid || claim == this { this } else { CanonClaim::Mentioned };
        // Lower-case letters are ambiguous: `b` is a convolution of the mixer, `B` a slot.
        let capitals: String = letters.chars().filter(|c| c.is_ascii_uppercase()).collect();
        if !capitals.is_empty() {
            slots = Some(capitals);
        }
    }
    (claim, slots.filter(|_| claim == CanonClaim::Filled))
}

/// `A` of `no_canon_A`
fn is_slot(token: &Token) -> bool {
    token.raw.len() == 1 && token.raw.chars().all(|c| matches!(c, 'A'..='D'))
}

/// Sizes and budgets: `1.3B`, `1T`, `100B-tokens`.
fn quantities(tokens: &[Token], claims: &mut Claims) {
    let mut budgets: Vec<(String, Ratio, bool)> = Vec::new();
    for (at, number) in tokens.iter().enumerate().filter(|(_, token)| token.number) {
        let Some(unit) = tokens.get(at + 1).filter(|unit| unit.sep.is_none()) else { continue };
        let after = tokens.get(at + 2);
        let before = at.checked_sub(1).and_then(|at| tokens.get(at));
        let joined = after.is_some_and(|after| after.sep.is_none());
        let glued = number.sep.is_none() && before.is_some();
        let scale = match unit.raw.as_str() {
            "T" => 1_000_000_000_000,
            "B" => 1_000_000_000,
            "M" => 1_000_000,
            _ => continue,
        };
        let per = is(tokens.get(at + 3), &["per"]);
        // `batch` of `1B-batch-4M` belongs to the number behind it.
        let taken = tokens.get(at + 3).is_some_and(|next| next.number);
        let of_other_quantity = is(before, OTHER_QUANTITY) || (is(after, OTHER_QUANTITY) && !taken);
        if joined
            || glued
            || per
            || of_other_quantity
            || is(before, NOT_WHOLE)
            || is(after, NOT_WHOLE)
        {
            continue;
        }
        let Some(value) = ratio(&number.lower) else { continue };
        let Some(value) = value.mul(Ratio { num: scale, den: 1 }) else { continue };
        let text = format!("{}{}", number.raw, unit.raw);
        let of_tokens = is(after, &["tok", "token", "tokens", "toks"]);
        let of_size = is(after, &["param", "params", "parameters"]);
        if of_tokens || (unit.raw == "T" && !of_size) {
            budgets.push((text, value, true));
        } else if claims.size.is_none() {
            claims.size = Some(text);
        } else if unit.raw == "B" && !of_size {
            budgets.push((text, value, false));
        }
    }
    // A second `100B` is a budget only if no other word states the budget more clearly.
    let sure = budgets.iter().any(|(_, _, sure)| *sure);
    budgets.retain(|(_, _, is)| *is == sure);
    let is_one_budget = budgets.windows(2).all(|two| matches!(two, [a, b] if a.1 == b.1));
    if let Some((text, value, _)) = budgets.into_iter().next().filter(|_| is_one_budget)
        && claims.tokens.is_none()
    {
        claims.tokens = Some((text, value));
    }
}

/// `lr0.002`, `lr-2e-3`, `weight_decay=0.1`, `steps240k`.
fn numbers(tokens: &[Token], claims: &mut Claims) {
    for (at, number) in tokens.iter().enumerate().filter(|(_, token)| token.number) {
        let Some(word_at) = at.checked_sub(1) else { continue };
        let Some(word) = tokens.get(word_at) else { continue };
        let weight = word_at.checked_sub(1).and_then(|at| tokens.get(at));
        let (name, before) = match word.lower.as_str() {
            "decay" if is(weight, &["weight"]) => {
                ("weight_decay", word_at.checked_sub(2).and_then(|at| tokens.get(at)))
            }
            "weightdecay" => ("weight_decay", weight),
            other => (other, weight),
        };
        let Some((_, path)) = NAME_WORDS.iter().find(|(known, _)| *known == name) else { continue };
        let next = tokens.get(at + 1);
        let small = *path == "optimizer.lr" || *path == "optimizer.weight_decay";
        if is(before, QUALIFIERS) || !reads(number, next, small) {
            continue;
        }
        let unit = next.filter(|next| next.sep.is_none());
        let Some(values) = values(&number.lower, unit, small) else { continue };
        let unit = unit.map_or("", |unit| unit.raw.as_str());
        let word = format!("{}{}{}{unit}", word.raw, sep(number), number.raw);
        let word = if name == "weight_decay" && word.starts_with('d') {
            format!("weight_{word}")
        } else {
            word
        };
        match claims.numbers.iter_mut().find(|claim| claim.path == *path) {
            Some(claim) => claim.values.extend(values),
            None => claims.numbers.push(NumberClaim { path, values, word }),
        }
    }
}

fn sep(token: &Token) -> String {
    token.sep.map_or_else(String::new, String::from)
}

/// Whether the number after a word is its value, rather than an index or the start of a range.
fn reads(number: &Token, next: Option<&Token>, small: bool) -> bool {
    let exact = number.lower.contains(['.', 'e']);
    let placed = match number.sep {
        None | Some('=' | ':') => true,
        Some('-' | '_' | ' ') => exact || (!small && number.lower.len() > 2),
        Some(_) => false,
    };
    // `lr0_002`, `lr0002`
    let padded = number.lower.len() > 1 && number.lower.starts_with('0') && !exact;
    let range = next.is_some_and(|next| {
        let again = next.number && (next.lower.contains('.') || next.lower.starts_with('0'));
        again || matches!(next.lower.as_str(), "to" | "x")
    });
    placed && !padded && !range
}

/// The possible values of a number; `None` if the letters after it are not a unit.
fn values(text: &str, unit: Option<&Token>, small: bool) -> Option<Vec<Ratio>> {
    let number = ratio(text)?;
    let times = |n: i128| number.mul(Ratio { num: n, den: 1 });
    match unit.map(|unit| unit.raw.as_str()) {
        Some("k" | "K") if !small => Some(vec![times(1000)?, times(1024)?]),
        Some("M") if !small => Some(vec![times(1_000_000)?, times(1 << 20)?]),
        Some(_) => None,
        None => {
            // The minus sign of an exponent is often left out: nobody trains with lr 30000.
            let lost =
                text.split_once('e').filter(|(_, exponent)| small && !exponent.starts_with('-'));
            let turned = lost.and_then(|(mantissa, exponent)| {
                ratio(&format!("{mantissa}e-{}", exponent.trim_start_matches('+')))
            });
            Some([Some(number), turned].into_iter().flatten().collect())
        }
    }
}

fn ratio(text: &str) -> Option<Ratio> {
    let text = if text.starts_with('.') { format!("0{text}") } else { text.to_owned() };
    Decimal::parse(&text).ok().and_then(Ratio::from_decimal)
}

/// The parts of a name without the words that distinguish arms.
fn stem_of(tokens: &[Token]) -> Vec<String> {
    let beside_canon = |at: usize| {
        let beside = |at: Option<usize>| {
            at.and_then(|at| tokens.get(at)).is_some_and(|token| token.canon.is_some())
        };
        (beside(at.checked_add(1)), beside(at.checked_sub(1)))
    };
    let mut parts: Vec<String> = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if token.sep.is_some() || parts.is_empty() {
            parts.push(String::new());
        }
        let word = token.lower.as_str();
        let (before, after) = beside_canon(at);
        let of_canon = (before && (DENY_BEFORE.contains(&word) || WITH_CANON.contains(&word)))
            || (after && (DENY_AFTER.contains(&word) || WITH_CANON.contains(&word)));
        if token.canon.is_some() || of_canon {
            continue;
        }
        let ends = ARM_WORDS.iter().find_map(|arm| word.strip_suffix(arm));
        let bare = ends.filter(|_| !LONGER_WORDS.contains(&word)).unwrap_or(word);
        if let Some(part) = parts.last_mut() {
            part.push_str(bare);
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canon_of(name: &str) -> CanonClaim {
        Claims::read(name, false).canon
    }

    #[test]
    fn canon_is_claimed_by_a_word_of_its_own() {
        for name in [
            "LlamaCanon-1B",
            "llama_canon",
            "GLA5Canon",
            "llama+canon",
            "GLA5canon",
            "llamacanon",
            "canon",
            "CANON",
            "LLAMACANON",
            "CanonLlama",
            "canonllama-1B",
            "GDN2CanonAbCD",
            "gdn2canonabcd",
            "llama-with-canon",
            "llama canon",
            "llama.canon",
            "llama_canon_on",
            "canon-layers",
            "llama-canon4",
            "llama-canon-2",
            "nanocanon",
            "NanoCanon-1B",
            "llama-canon=1",
            "smallcanon_release",
            "runs/llama_canon",
            "canon/llama",
        ] {
            assert_eq!(canon_of(name), CanonClaim::Filled, "{name}");
        }
    }

    #[test]
    fn canon_is_denied() {
        for name in [
            "NoCanon",
            "LlamaNoCanon-1B",
            "llama_without_canon",
            "non-canon",
            "noncanon",
            "nocanon",
            "Canonless",
            "canonless-1B",
            "canon_off",
            "CanonOff",
            "canon-free",
            "CanonFree",
            "llama-no-canon-1B",
            "llama_w/o_canon",
            "llama w/o Canon",
            "NOCANON",
            "uncanon",
            "llamanocanon",
            "llama_no_canon_layers",
            "canon_false",
            "canon=0",
            "minus-canon",
            "llama-canon-disabled",
            "LlamaNonCanon",
            "canon_layers_off",
            "!canon",
            "w_o_canon",
            "wo_canon",
            "sans-canon",
            "skip_canon",
            "llama_canon_set_none",
            "canon-off-lr0.1",
            "canon_off_1B",
        ] {
            assert_eq!(canon_of(name), CanonClaim::Empty, "{name}");
        }
    }

    #[test]
    fn other_words_claim_nothing() {
        for name in [
            "canonical",
            "uncanny",
            "canonc",
            "canonc-test",
            "Canonical-1B",
            "CANONICAL",
            "cannon",
            "canonize",
            "canons",
            "noncanonical",
            "canonball",
            "deacanonical",
            "CanonicalLlama",
        ] {
            assert_eq!(canon_of(name), CanonClaim::Unsaid, "{name}");
        }
        for name in [
            "llama_vs_canon",
            "canon_vs_llama",
            "canon-sweep",
            "canon_ablation",
            "canon-baseline",
            "from-canon",
            "canon-like",
            "canon-0",
            "no_canon_A",
            "canon_or_not",
            "LlamaCanon-no-wd",
            "canon-no-wd0.1",
            "bias-off-canon",
            "canon-off-policy",
            "llama-canon-twin",
            "twin-of-canon",
            "llama_canon_ablated",
            "ablated-canon",
            "llama_canon_nocanon",
        ] {
            assert_eq!(canon_of(name), CanonClaim::Mentioned, "{name}");
        }
    }

    #[test]
    fn a_comparison_is_not_its_arm() {
        for (name, arm, says) in [
            ("llama_vs_canon/base", true, CanonClaim::Unsaid),
            ("canon/base", true, CanonClaim::Unsaid),
            ("llama_canon_1B/canon", true, CanonClaim::Filled),
            ("canon/nocanon", true, CanonClaim::Empty),
            ("llama_vs_canon/base", false, CanonClaim::Mentioned),
        ] {
            assert_eq!(Claims::read(name, arm).canon, says, "{name}");
        }
    }

    #[test]
    fn stems_are_what_arms_share() {
        for (a, b) in [
            ("GLA5conv-1B-Nemo-1T-lr0.002", "GLA5Canon-1B-Nemo-1T-lr0.002"),
            ("Llama-8B-Nemo-1T-lr0.003", "LlamaCanon-8B-Nemo-1T-lr0.003"),
            ("1.3B-GDN2-Nemo-1.0T-lr0.002", "1.3B-GDN2CanonAbCD-Nemo-1.0T-lr0.002"),
            ("demo/first", "demo/firstcanon"),
            ("llama_without_canon", "llama_with_canon"),
            ("llama_without_canon", "llama"),
            ("LlamaNoCanon-1B", "LlamaCanon-1B"),
            ("llama-canon-off", "llama-canon"),
            ("llama_vs_canon/base", "llama_vs_canon/canon"),
            ("s-base-lr0.1", "s-canon-lr0.1"),
        ] {
            assert_eq!(Claims::read(a, false).stem, Claims::read(b, false).stem, "{a} {b}");
        }
        for (a, b) in [("database-1B", "data-1B"), ("canonical-1B", "ical-1B")] {
            assert_ne!(Claims::read(a, false).stem, Claims::read(b, false).stem, "{a} {b}");
        }
        let stem = Claims::read("GDN2Canon-1B-Nemo-1T-lr0.002", false).stem;
        assert_eq!(stem, "gdn2-1b-nemo-1t-lr0.002");
    }

    #[test]
    fn numbers_are_claimed_by_their_words() {
        for (name, path, value) in [
            ("a-lr0.002", "optimizer.lr", "0.002"),
            ("a-lr2e-3", "optimizer.lr", "0.002"),
            ("a_lr_0.002", "optimizer.lr", "0.002"),
            ("a-lr=0.002", "optimizer.lr", "0.002"),
            ("a-LR.002", "optimizer.lr", "0.002"),
            ("a-lr2e3", "optimizer.lr", "0.002"),
            ("s-first-lr0.1-weight_decay0.15", "optimizer.weight_decay", "0.15"),
            ("a-weightdecay0.15", "optimizer.weight_decay", "0.15"),
            ("a-wd0", "optimizer.weight_decay", "0"),
            ("a-steps240k", "budget.steps", "240000"),
            ("a_steps600", "budget.steps", "600"),
            ("a-max_steps600", "budget.steps", "600"),
            ("a-ctx4k", "data.seq_len", "4096"),
            ("a-warmup10-2", "schedule.warmup", "10"),
        ] {
            let claims = Claims::read(name, false);
            let claim = claims.numbers.iter().find(|claim| claim.path == path);
            let claim = claim.unwrap_or_else(|| panic!("{name}: {claims:?}"));
            assert!(claim.values.contains(&ratio(value).unwrap()), "{name}: {claim:?}");
        }
        for name in [
            "a-min_lr0.1",
            "a-warmup_steps100",
            "a-eval_steps100",
            "a-lr_decay0.1",
            "a-decay0.1",
            "a-lr-2",
            "a-lr0002",
            "a-lr0_002",
            "a-lr2x",
            "a-lr0.001-0.003",
            "a-lr0.001to0.003",
            "lr0.001_vs_lr0.002",
            "tailr0.1",
            "altwd0.1",
            "a-steps",
            "a-final_lr0.1",
            "a-steps-2",
        ] {
            assert_eq!(Claims::read(name, false).numbers, [], "{name}");
        }
    }

    #[test]
    fn sizes_and_budgets_are_distinguished() {
        for (name, size, tokens) in [
            ("GDN2Canon-1B-Nemo-1T-lr0.002", Some("1B"), Some("1T")),
            ("1.3B-GDN2-Nemo-1.0T", Some("1.3B"), Some("1.0T")),
            ("a-1B-100B", Some("1B"), Some("100B")),
            ("a-100B-tokens", None, Some("100B")),
            ("a-1B-7B-1T", Some("1B"), Some("1T")),
            ("a-1B-4M-batch", Some("1B"), None),
            ("a-1B-batch-4M", Some("1B"), None),
            ("a-1B-4M-tokens-per-step", Some("1B"), None),
            ("a-1T-to-2T", None, None),
            ("a-1T-params", Some("1T"), None),
            ("a-T4-1Test", None, None),
            ("llama_1B_vs_8B", None, None),
        ] {
            let claims = Claims::read(name, false);
            let budget = claims.tokens.as_ref().map(|(word, _)| word.as_str());
            assert_eq!((claims.size.as_deref(), budget), (size, tokens), "{name}");
        }
    }
}
