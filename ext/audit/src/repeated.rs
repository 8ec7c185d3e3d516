//! Checks columns that repeat a key in another form against the keys.
//!
//! Every row with [`Topic::Reported`](lab::field::Topic) is checked. If the keys are unknown nothing is claimed, and a
//! difference between twins in a column counts as a difference in its key.

use compiler::number::Ratio;
use dsl::Decimal;

use crate::budget::NAMED;
use crate::experiment::Origin;
use crate::finding::{Findings, Occurrence, Scope};
use crate::keys::{CANON, DEVICES, ROPE_DIMS, ROPE_SHARE, TOKENS, TOKENS_PER_STEP, class, synonym};
use crate::subject::Subject;
use crate::value::{KeyValue, rounded, within_share};

/// Tolerance for reported numbers, which are rounded to a few digits.
const REPORTED: Ratio = Ratio { num: 5, den: 1000 };

/// How a column is checked.
enum Check {
    /// The product of the first keys, divided by the product of the second.
    Keys(&'static [&'static str], &'static [&'static str]),
    /// Sequences x accumulation x seq_len, on one device or on all.
    Step,
    /// Whether any slot is filled.
    Treated,
    /// A cost of the model or the run that the keys do not give, and that a treatment may change a little.
    Cost,
    /// A count of the data, which a digest of the data fixes.
    Data,
    /// A name for the mixer.
    Mixer,
    /// The size according to the name.
    Size,
    /// Whether the number in the name agrees with the keys.
    Claim(fn(&Subject) -> Option<bool>),
}

/// One column: its path, the key that it repeats, and the check.
struct Column {
    path: &'static str,
    key: &'static str,
    check: Check,
}

const fn column(path: &'static str, key: &'static str, check: Check) -> Column {
    Column { path, key, check }
}

const LR: &str = "optimizer.lr";
const WD: &str = "optimizer.weight_decay";
const STEPS: &str = "budget.steps";
const WARMUP: &str = "schedule.warmup";
/// Tokens of one pass over the data.
const PASS: &str = "data.tokens";
const LENGTH: &str = "data.seq_len";
const CHECKPOINTS: &str = "checkpoint.every";
const EVALUATIONS: &str = "evaluation.every";

const COLUMNS: &[Column] = &[
    column("reported.canon", CANON, Check::Treated),
    column(
        "reported.checkpoint_tokens",
        CHECKPOINTS,
        Check::Keys(&[CHECKPOINTS, TOKENS_PER_STEP], &[]),
    ),
    column(
        "reported.evaluation_tokens",
        EVALUATIONS,
        Check::Keys(&[EVALUATIONS, TOKENS_PER_STEP], &[]),
    ),
    column("reported.evaluations", EVALUATIONS, Check::Keys(&[STEPS], &[EVALUATIONS])),
    column("reported.family", "arch.mixer", Check::Mixer),
    column("reported.head_dim", "arch.mixer.head_dim", Check::Keys(&["arch.mixer.head_dim"], &[])),
    column("reported.lr_claim", LR, Check::Keys(&[LR], &[])),
    column("reported.lr_claim_holds", LR, Check::Claim(lr_holds)),
    column("reported.lr_wd", WD, Check::Keys(&[LR, WD], &[])),
    column("reported.lr_wd_steps", WD, Check::Keys(&[LR, WD, STEPS], &[])),
    column("reported.rope_share", ROPE_SHARE, Check::Keys(&[ROPE_SHARE], &[])),
    column(
        "reported.sequences",
        "batch.sequences",
        Check::Keys(&[TOKENS_PER_STEP], &["data.seq_len"]),
    ),
    column("reported.size", "arch.dim", Check::Size),
    column("reported.tokens", TOKENS, Check::Keys(&[TOKENS], &[])),
    column("reported.tokens_claim", TOKENS, Check::Keys(&[TOKENS], &[])),
    column("reported.tokens_claim_holds", TOKENS, Check::Claim(tokens_hold)),
    column("reported.tokens_per_step", TOKENS_PER_STEP, Check::Keys(&[TOKENS_PER_STEP], &[])),
    column("reported.warmup_share", WARMUP, Check::Keys(&[WARMUP], &[STEPS])),
    column("reported.warmup_tokens", WARMUP, Check::Keys(&[WARMUP, TOKENS_PER_STEP], &[])),
];

/// Keys of ours that follow from others but may be written anyway.
const DERIVED: &[Column] = &[
    column("arch.flops_per_token", "arch.dim", Check::Cost),
    column("arch.non_embedding", "arch.dim", Check::Cost),
    column("arch.optimizer_bytes", "arch.dim", Check::Cost),
    column("arch.parameters", "arch.dim", Check::Cost),
    column("arch.seq_len", LENGTH, Check::Keys(&[LENGTH], &[])),
    column("arch.train_flops_per_token", "arch.dim", Check::Cost),
    column("budget.flops", TOKENS, Check::Cost),
    column(PASS, "data.digest", Check::Data),
    column("data.epochs", "data.digest", Check::Keys(&[TOKENS], &[PASS])),
    column(ROPE_SHARE, ROPE_DIMS, Check::Keys(&[ROPE_DIMS], &["arch.mixer.head_dim"])),
    column(TOKENS_PER_STEP, "batch.sequences", Check::Step),
    column(TOKENS, STEPS, Check::Keys(&[STEPS, TOKENS_PER_STEP], &[])),
    column("optimizer.lr_wd_steps", WD, Check::Keys(&[LR, WD, STEPS], &[])),
    column("schedule.warmup_share", WARMUP, Check::Keys(&[WARMUP], &[STEPS])),
];

/// Whether a key repeats other keys: it is checked against them, and twins are compared by them.
/// Not tokens, since a budget may be given either way.
pub(crate) fn follows(path: &str) -> bool {
    ![TOKENS, TOKENS_PER_STEP].contains(&path) && DERIVED.iter().any(|column| column.path == path)
}

/// Splits a reported path into name and unit.
fn split(path: &str) -> (&str, i64) {
    match path.rsplit_once('.').map(|(plain, unit)| (plain, unit.parse::<i64>())) {
        Some((plain, Ok(unit))) => (plain, unit),
        Some((_, Err(_))) | None => (path, 1),
    }
}

fn find(path: &str) -> Option<&'static Column> {
    let (plain, _) = split(path);
    COLUMNS.iter().chain(DERIVED).find(|column| column.path == plain)
}

/// The key that a difference in a column counts for, unless that key itself shows the difference.
pub(crate) fn stands_for(path: &str, a: &Subject, b: &Subject) -> Option<&'static str> {
    let column = find(path)?;
    let known = |key: &str| [a, b].iter().all(|subject| subject.value(key).is_some());
    let shown = match &column.check {
        Check::Keys(over, under) => over.iter().chain(*under).all(|key| known(key)),
        Check::Step | Check::Treated | Check::Data => known(column.key),
        Check::Cost => explained(path, a, b),
        // The author's own words, which no key repeats in full.
        Check::Mixer | Check::Size => false,
        // About the name.
        Check::Claim(_) => true,
    };
    (!shown).then_some(column.key)
}

/// How much more one treatment may cost than another.
const COST: Ratio = Ratio { num: 5, den: 100 };

/// Whether a difference of two costs follows from keys: from another arch, from the tokens, or from the treatment, which
/// changes the cost of a token a little at most.
fn explained(path: &str, a: &Subject, b: &Subject) -> bool {
    let of_arch = |path: &&str| {
        path.starts_with("arch.")
            && !path.starts_with(CANON)
            && class(path).decides()
            && !follows(path)
    };
    let mut keys = a.compared().chain(b.compared()).filter(|path| of_arch(path) || *path == LENGTH);
    let of_run = path.starts_with("budget.");
    let tokens = [a, b].map(|subject| subject.number(TOKENS).filter(|_| of_run));
    let costs = match tokens {
        [Some(of_a), Some(of_b)] => {
            [a.number(path).and_then(|n| n.div(of_a)), b.number(path).and_then(|n| n.div(of_b))]
        }
        [_, _] => [a, b].map(|subject| subject.number(path)),
    };
    let known = tokens.iter().all(Option::is_some);
    keys.any(|key| a.value(key) != b.value(key))
        || match costs {
            [Some(of_a), Some(of_b)] => within_share(of_a, of_b, COST),
            [_, _] => known,
        }
}

/// Checks every reported column of every experiment against its keys.
pub(crate) fn columns(subjects: &[Subject], findings: &mut Findings) {
    for subject in subjects {
        // A lock's derived values were checked when it was read.
        let is_derived = |path: &str| {
            subject.origin != Origin::Lock && DERIVED.iter().any(|column| column.path == path)
        };
        let written = subject.facts.iter().filter(|(_, fact)| fact.written).map(|(path, _)| path);
        for path in written.filter(|path| path.starts_with("reported.") || is_derived(path)) {
            let Some(column) = find(path) else { continue };
            let Some(message) = contradiction(column, subject, path) else { continue };
            let key = if column.key == WARMUP && column.path.ends_with("share") {
                "schedule.warmup_share"
            } else {
                column.key
            };
            let experiment = Occurrence::in_experiment(&subject.name, "");
            findings.add("reported", Scope::Set, key, message, experiment);
        }
    }
}

/// How a column contradicts the keys.
fn contradiction(column: &Column, subject: &Subject, path: &str) -> Option<String> {
    let reported = subject.value(path)?;
    let name = subject.written_as.get(path).map_or(path, String::as_str);
    match &column.check {
        Check::Keys(over, under) => {
            let (reported, computed) = numbers(subject, path, reported, over, under)?;
            Some(format!("`{name}` is given as {reported}, but the keys give {computed}"))
        }
        Check::Step => {
            let many = subject.number("batch.micro_batches").or(subject.number(DEVICES));
            let rows = ["batch.sequences", "batch.accumulation", "data.seq_len"];
            let one = quotient(subject, &rows, &[]);
            let all = one.zip(many).and_then(|(one, many)| one.mul(many));
            let holds = [one, all].contains(&reported.number());
            // Without the number of devices, any multiple is possible.
            let computed = all.filter(|_| !holds && reported.number().is_some())?;
            Some(format!(
                "`{name}` is given as {reported}, but the keys give {}",
                rounded(computed)
            ))
        }
        Check::Cost | Check::Data => None,
        Check::Treated => {
            let canon = subject.value(CANON)?;
            let slots = subject.shown(CANON);
            (canon.is_off() != reported.is_off())
                .then(|| format!("`{name}` is {reported}, but the filled slots are {slots}"))
        }
        Check::Mixer => {
            let computed = synonym("arch.mixer", reported.clone());
            let mixer = subject.value("arch.mixer")?;
            (computed != *reported && *mixer != computed).then(|| {
                format!("`{name}` is {reported}, which means {computed}, but arch.mixer is {mixer}")
            })
        }
        Check::Size => {
            let size = subject.claims.size.as_ref()?;
            (*size != reported.to_string())
                .then(|| format!("`{name}` is {reported}, but the name says {size}"))
        }
        Check::Claim(holds) => {
            let holds = holds(subject)?;
            let word = if holds { "agree" } else { "do not agree" };
            (holds == reported.is_off())
                .then(|| format!("`{name}` is {reported}, but name and keys {word}"))
        }
    }
}

/// Both values as text, if they differ.
fn numbers(
    subject: &Subject,
    path: &str,
    reported: &KeyValue,
    over: &[&str],
    under: &[&str],
) -> Option<(String, String)> {
    let (plain, unit) = split(path);
    let word = reported.to_string();
    let claimed = quantity(&word).and_then(|(number, letter)| {
        let scale = match letter {
            'T' => 1_000_000_000_000,
            'B' => 1_000_000_000,
            _ => 1_000_000,
        };
        number.mul(Ratio { num: scale, den: 1 })
    });
    let number = reported.number().or(claimed)?.mul(Ratio { num: i128::from(unit), den: 1 })?;
    let computed = quotient(subject, over, under)?;
    let tolerance = if plain == "reported.tokens_claim" { NAMED } else { REPORTED };
    let reported = if reported.number().is_some() { rounded(number) } else { word };
    (!within_share(number, computed, tolerance)).then(|| (reported, rounded(computed)))
}

/// Parses exactly a number and a unit: `1.3B`.
fn quantity(word: &str) -> Option<(Ratio, char)> {
    let unit = word.chars().next_back().filter(|c| matches!(c, 'T' | 'B' | 'M'))?;
    let digits = word.strip_suffix(unit)?;
    let plain = digits.chars().all(|c| c.is_ascii_digit() || c == '.');
    let number = Decimal::parse(digits).ok().filter(|_| plain).and_then(Ratio::from_decimal)?;
    Some((number, unit))
}

/// The product of some keys, divided by the product of others.
fn quotient(subject: &Subject, over: &[&str], under: &[&str]) -> Option<Ratio> {
    let mut value = Ratio { num: 1, den: 1 };
    for key in over {
        value = value.mul(subject.number(key)?)?;
    }
    for key in under {
        value = value.div(subject.number(key)?)?;
    }
    Some(value)
}

fn lr_holds(subject: &Subject) -> Option<bool> {
    let claim = subject.claims.numbers.iter().find(|claim| claim.path == LR)?;
    Some(claim.values.contains(&subject.number(LR)?))
}

fn tokens_hold(subject: &Subject) -> Option<bool> {
    let (_, claimed) = subject.claims.tokens.as_ref()?;
    Some(within_share(subject.number(TOKENS)?, *claimed, NAMED))
}

#[cfg(test)]
mod tests {
    use lab::field::Topic;

    use super::*;
    use crate::keys;

    #[test]
    fn every_reported_row_is_held_to_its_keys() {
        let rows = keys::rows().filter(|row| row.topic == Topic::Reported);
        let paths: Vec<&str> = rows.map(|row| row.path).collect();
        assert_eq!(paths, COLUMNS.iter().map(|column| column.path).collect::<Vec<_>>());
        for column in COLUMNS {
            assert!(keys::class(column.key).decides() || column.key.ends_with(".every"));
        }
    }
}
