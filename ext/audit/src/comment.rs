//! Reads the number of devices from one comment: a few plain forms are read, and any other comment about a number of
//! devices is left for a person to read.

use std::sync::LazyLock;

use regex::{Captures, Regex};

/// The number of devices according to a comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CommentCount {
    /// It does not mention a number of devices.
    Nothing,
    /// It mentions one, which is not read for this reason.
    Unclear(&'static str),
    Devices(Counts),
}

/// The counts that a comment gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub total: Option<u64>,
    pub nodes: Option<u64>,
    pub per_node: Option<u64>,
}

/// The forms that are read. Words in capitals and counts in brackets stand for patterns.
const FORMS: [&str; 9] = [
    r"(\w+ note: )?((run|launched|trained) )?((on|with) )?<total> (nvidia )?(MODEL )?GPUS( to replicate our result)?",
    r"<total> ?([x×*] ?)?MODEL",
    r"((n|num|number of|total)[ _-]?)?(gpus|devices) ?[:=] ?<total>",
    r"world[ _-]size ?[:=]? ?<total>",
    r"<nodes> NODES ?([x×*]|of) ?<per_node> GPUS",
    r"<nodes> NODES(, <per_node> GPUS per node)?",
    r"<per_node> GPUS per node(, <nodes> NODES)?",
    r"((sbatch|srun|torchrun) )?--n?nodes[ =]<nodes> --(gpus|nproc|ntasks)[_-]per[_-]node[ =]<per_node>",
    r"<total> GPUS: a step is (?<factors>\d+( x \d+)*) = (?<tokens>\d+) tokens(, \d+ in all)?",
];

/// The name of a device, with its socket and memory: `A100-80GB`. A letter with two digits may name anything.
const MODEL: &str = r"(?:gb|gh|mi|[abhv])\d{3}x?s?(?:-(?:sxm\d?|pcie|\d+gb?))*";

const GPUS: &str = "(?:gpu|tpu|device|accelerator|chip)s?";

/// Times and sizes, and counts of other things for each device.
const NO_COUNT: &str = concat!(
    r"\b\d+\s?g(?:i?b)?\b|\bper (?:gpu|device|node)\b",
    r"|(?:\b\d[\d,.]*\s*)?\b(?:(?:n_)?(?:MODEL|gpus?|node)[\s_-]*)+(?:[:=]\s*\d+\s*)?",
    r"(?:h|hrs?|hours?|days?|weeks?|years?|minutes?|seconds?)\b(?:\s*[:=]\s*\d+)?",
);

/// Words for devices and nodes, and for ways to split the work over them.
const DEVICE: &str = concat!(
    r"gpu|tpu|accelerator|\b(?:device|chip|card)s?\b|world[ _-]size|nproc|ntasks|(?:\b|x)MODEL",
    r"|dgx|hgx|gaudi|trainium|geforce|rtx|xlarge|\bv\d[ep]\b|\b[1-5]0[6-9]0 ?(?:x|s\b|ti\b)|x ?[1-5]0[6-9]0",
    r"|\b(?:cp|ddp|dp|ep|fsdp|pp|tp)(?:\b|[_\d])|\d\s*(?:box|host|machine|node|server)|\bnodes?[ :=]+\d",
);

/// A number, or a key that should have one: `gpus: see the script`.
const NUMBER: &str = concat!(
    r"\d|\bgpus\s*[:=]|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|twelve|\w+teen|couple|pair)\b",
    r"|\b(?:twen|thir|for|fif|six|seven|eigh|nine)ty|\b(?:dozen|hundred|thousand)",
);

struct Patterns {
    forms: Vec<Regex>,
    no_count: Regex,
    device: Regex,
    model: Regex,
    number: Regex,
}

static PATTERNS: LazyLock<Option<Patterns>> = LazyLock::new(|| {
    let regex =
        |pattern: &str| Regex::new(&format!("(?i){}", pattern.replace("MODEL", MODEL))).ok();
    let count = |name: &str| format!(r"(?<{name}>\d{{1,3}}(?:[,_]\d{{3}})+|\d+)");
    let form = |form: &&str| {
        let form = form.replace("GPUS", GPUS).replace("NODES", "nodes?");
        let form = ["total", "nodes", "per_node"]
            .iter()
            .fold(form, |form, name| form.replace(&format!("<{name}>"), &count(name)));
        regex(&format!("^(?:{form})$"))
    };
    Some(Patterns {
        forms: FORMS.iter().map(form).collect::<Option<_>>()?,
        no_count: regex(NO_COUNT)?,
        device: regex(DEVICE)?,
        model: regex(r"\bMODEL\b")?,
        number: regex(NUMBER)?,
    })
});

/// Numbers that are more likely years than numbers of devices.
const YEARS: std::ops::RangeInclusive<u64> = 2015..=2035;

/// Reads one comment.
pub(crate) fn line(text: &str) -> CommentCount {
    let Some(patterns) = PATTERNS.as_ref() else { return CommentCount::Nothing };
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = text.trim_end_matches('.');
    if let Some(captures) = patterns.forms.iter().find_map(|form| form.captures(text)) {
        return counts(&captures);
    }
    let rest = patterns.no_count.replace_all(text, " ");
    let without_names = patterns.model.replace_all(&rest, " ");
    match patterns.device.is_match(&rest) && patterns.number.is_match(&without_names) {
        true => CommentCount::Unclear("canonc reads only plain forms: read it yourself"),
        false => CommentCount::Nothing,
    }
}

fn counts(captures: &Captures<'_>) -> CommentCount {
    let digits =
        |name: &str| captures.name(name).map(|group| group.as_str().replace([',', '_'], ""));
    let given = ["total", "nodes", "per_node"].map(digits);
    let read = |digits: &Option<String>| digits.as_ref().and_then(|digits| digits.parse().ok());
    let [total, nodes, per_node] = given.each_ref().map(read);
    if given.iter().flatten().count() > [total, nodes, per_node].iter().flatten().count() {
        return CommentCount::Unclear("its number is too large");
    }
    if [total, nodes, per_node].contains(&Some(0)) {
        return CommentCount::Unclear("0 is not a number of devices");
    }
    if total.is_some_and(|total| YEARS.contains(&total)) {
        return CommentCount::Unclear("its number may be a year");
    }
    match captures.name("factors").zip(captures.name("tokens")) {
        Some((factors, tokens)) if !multiplies(total, factors.as_str(), tokens.as_str()) => {
            CommentCount::Unclear("its numbers do not multiply to the tokens of a step")
        }
        Some(_) | None => CommentCount::Devices(Counts { total, nodes, per_node }),
    }
}

/// Whether the factors in the comment that canonc writes into an exported recipe, the devices first, make the tokens of
/// a step.
fn multiplies(devices: Option<u64>, factors: &str, tokens: &str) -> bool {
    let factors: Option<Vec<u64>> = factors.split(" x ").map(|n| n.parse().ok()).collect();
    let Some(factors) = factors else { return false };
    let product = factors.iter().try_fold(1u64, |product, n| product.checked_mul(*n));
    factors.first().copied() == devices && product.is_some() && product == tokens.parse().ok()
}
