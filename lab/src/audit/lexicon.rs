//! Splits comments about devices into words.
//!
//! In: a line of text. Out: its [`Word`]s. Must stay true: a number and its unit are one word (`80GB`), a
//! device name (`H100`) is not a number, and a word that is not listed is unknown.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Number(u64),
    /// A number with its own unit, or a fraction: `240k`, `0.002`.
    Quantity(String),
    /// `gpus`, `devices`. True for a plural, or with a word such as `count`.
    Device(bool),
    Node(bool),
    /// `H100`
    Model,
    Per,
    Each,
    Of,
    Times,
    Equals,
    /// `,`, `(`, `.`
    Break,
    /// Something else that numbers count: `steps`, `tokens`.
    Other,
    /// `hours`, `GPU-hours`: the number before it is a time.
    Time,
    /// `runs`: ignored as a verb; a countable noun after a number.
    Many,
    /// `count`, `num`: the neighbouring word is counted.
    Count,
    /// `and`: joins two things, which may be two numbers of devices.
    And,
    /// `a`, `an`: before a node it may mean `per`.
    Article,
    /// A word without effect.
    Known,
    Unknown(String),
}

const DEVICE: &[&str] = &["accelerator", "card", "chip", "device", "gpu", "tpu"];
const DEVICES: &[&str] =
    &["accelerators", "cards", "chips", "devices", "gpus", "processes", "ranks", "tpus"];
/// Words for a number of devices.
const NUMBERS_OF: &[&str] = &["ngpu", "ngpus", "nproc", "ntasks", "worldsize"];
const NODE: &[&str] = &["box", "dgx", "hgx", "host", "machine", "node", "server"];
const NODES: &[&str] = &["boxes", "dgxs", "hosts", "machines", "nnodes", "nodes", "servers"];

/// Letters that start device names; digits follow.
const MODELS: &[&str] =
    &["a", "b", "gb", "gh", "gtx", "h", "k", "l", "mi", "p", "rtx", "t", "tpuv", "v"];

const COUNT: &[&str] = &["count", "n", "num", "number", "total"];

/// Things that numbers count, or are given to.
#[rustfmt::skip]
const OTHER: &[&str] = &[
    "accumulation", "batch", "batches", "ctx", "epoch", "epochs", "gb", "gib", "heads", "layers",
    "lr", "memory", "micro", "param", "parameters", "params", "rank", "samples", "seed", "seq",
    "seqlen", "sequence", "sequences", "size", "step", "steps", "tb", "token", "tokens", "warmup",
    "wd",
];

#[rustfmt::skip]
const TIME: &[&str] = &[
    "day", "days", "h", "hour", "hours", "hr", "hrs", "mins", "minute", "minutes", "month",
    "months", "sec", "second", "seconds", "secs", "week", "weeks", "year", "years",
];

/// Plurals that a number may count: `128 GPU runs`.
const MANY: &[&str] = &["jobs", "launches", "models", "notes", "recipes", "results", "runs"];

/// Words without effect. Words that suggest that the number belongs to something else are not listed: `was`, `paper`.
#[rustfmt::skip]
const KNOWN: &[&str] = &[
    "across", "actual", "all", "altogether", "amd", "are", "at", "by", "compute", "config", "cuda", "distributed",
    "ethernet", "exactly", "for", "full", "google", "hardware", "has", "have", "hbm", "i", "ib", "in", "infiniband",
    "info", "is", "it", "job", "launch", "launched", "launcher", "launching", "model", "mpirun", "need", "needed",
    "needs", "note", "nvidia", "nvl", "nvlink", "on", "our", "over", "overall", "pcie", "ran", "recipe", "replicate",
    "reproduce", "require", "required", "requires", "result", "run", "running", "sbatch", "setup", "slurm", "spread",
    "srun", "sxm", "the", "these", "this", "to", "torchrun", "train", "trained", "training", "trains", "use", "used",
    "uses", "using", "we", "with",
];

/// Words of hardware that a version may follow: `sxm5`.
const VERSIONED: &[&str] = &["cuda", "hbm", "ib", "nvl", "nvlink", "pcie", "sxm"];

/// After these, `was` is part of the verb: `128 GPUs were used`.
const PARTICIPLES: &[&str] = &["launched", "run", "running", "trained", "used", "using"];

/// Number words, which are not read.
#[rustfmt::skip]
const NUMERALS: &[&str] = &[
    "couple", "dozen", "dozens", "eighteen", "eighty", "eleven", "fifteen", "fifty", "forty", "fourteen", "hundred",
    "hundreds", "nineteen", "ninety", "pair", "seventeen", "seventy", "sixty", "thirteen", "thirty", "thousand",
    "thousands", "twenty",
];

/// Makes and series of devices. The number after one may be its model or a count.
#[rustfmt::skip]
const MAKES: &[&str] = &[
    "ascend", "gaudi", "geforce", "inferentia", "instinct", "mtia", "quadro", "radeon", "rtx", "tesla", "titan",
    "trainium",
];

/// Models of devices that are numbers only.
const CARDS: &[u64] =
    &[1080, 2070, 2080, 3060, 3070, 3080, 3090, 4060, 4070, 4080, 4090, 5070, 5080, 5090];

/// Ways to split the work over devices.
const PARALLEL: &[&str] = &["cp", "ddp", "dp", "ep", "fsdp", "pp", "tp"];

/// Words before a place name: `on Perlmutter`.
const BEFORE_NAME: &[&str] = &["at", "by", "in", "on", "the"];

/// Words that are not place names.
const NO_NAME: &[&str] = &["debug", "eval", "evaluation", "inference", "test", "validation"];

#[rustfmt::skip]
const WORDS: [(&str, u64); 16] = [
    ("one", 1), ("single", 1), ("two", 2), ("three", 3), ("four", 4), ("five", 5), ("six", 6),
    ("seven", 7), ("eight", 8), ("nine", 9), ("ten", 10), ("twelve", 12), ("sixteen", 16),
    ("thirty-two", 32), ("sixty-four", 64), ("zero", 0),
];

/// Whether a word that is not understood gives a number.
pub(super) fn is_numeral(word: &str) -> bool {
    word.contains(|c: char| c.is_ascii_digit()) || NUMERALS.contains(&word)
}

/// Whether a word is about devices although it is not understood: `gaudi2`, `gpu128`.
pub(super) fn is_make(word: &str) -> bool {
    let bare = word.trim_end_matches(|c: char| c.is_ascii_digit());
    let device = DEVICE.contains(&bare) || DEVICES.contains(&bare) || NUMBERS_OF.contains(&bare);
    let tpu = matches!(word.strip_prefix("tpu").unwrap_or(word), "v5e" | "v5p" | "v6e");
    tpu || MAKES.contains(&bare) || (device && bare != word)
}

/// Whether a number is the name of a model: `4090`, `3090s`.
pub(super) fn is_card(word: &Word) -> bool {
    if let Word::Quantity(text) = word {
        let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let end = text.strip_prefix(number).unwrap_or("").to_lowercase();
        return matches!(end.as_str(), "s" | "ti")
            && number.parse().is_ok_and(|n| CARDS.contains(&n));
    }
    matches!(word, Word::Number(n) if CARDS.contains(n))
}

/// Whether a word names a way to split the work, and the number that may be glued to it: `dp`, `dp128`.
pub(super) fn is_parallel(word: &str) -> Option<bool> {
    let bare = word.trim_end_matches(|c: char| c.is_ascii_digit());
    PARALLEL.contains(&bare).then_some(bare != word)
}

/// The words of a comment. Unknown words are kept as such.
pub(super) fn words(text: &str) -> Vec<Word> {
    let chars: Vec<char> = text.chars().collect();
    let get = |at: usize| chars.get(at).copied().unwrap_or(' ');
    let mut words: Vec<Word> = Vec::new();
    let mut last = String::new();
    let mut at = 0;
    while at < chars.len() {
        let c = get(at);
        if c.is_ascii_digit() {
            at = number(&chars, at, &mut words);
            last.clear();
        } else if c.is_alphabetic() {
            let joins = |at: usize| {
                get(at).is_alphanumeric()
                    || (matches!(get(at), '_' | '-' | '\'') && get(at + 1).is_alphanumeric())
            };
            let from = at;
            while joins(at) {
                at += 1;
            }
            let raw: String = chars.get(from..at).unwrap_or_default().iter().collect();
            let lower = raw.to_lowercase();
            let named = BEFORE_NAME.contains(&last.as_str())
                && raw.starts_with(char::is_uppercase)
                && !NO_NAME.contains(&lower.as_str());
            let before = words.len();
            word(&lower, &mut words);
            // `were used`
            if PARTICIPLES.contains(&lower.as_str())
                && let Some(Word::Unknown(verb)) =
                    before.checked_sub(1).and_then(|at| words.get(at))
                && matches!(verb.as_str(), "was" | "were")
            {
                words.remove(before - 1);
            }
            let before = before.min(words.len());
            let unknown =
                words.len() == before + 1 && matches!(words.last(), Some(Word::Unknown(_)));
            if unknown && named {
                words.truncate(before);
            }
            last = lower;
        } else {
            at += 1;
            let break_ = match c {
                '×' | '*' => Some(Word::Times),
                '=' | ':' => Some(Word::Equals),
                '/' => Some(Word::Per),
                ',' | ';' | '(' | ')' | '.' | '|' | '[' | ']' => Some(Word::Break),
                '-' if get(at) == ' ' && (at < 2 || get(at - 2) == ' ') => Some(Word::Break),
                '-' if get(at).is_alphabetic() => None,
                '#' | '\'' | '"' | '`' | '&' => None,
                c if c.is_whitespace() => None,
                c => Some(Word::Unknown(c.to_string())),
            };
            if !c.is_whitespace() {
                last.clear();
            }
            words.extend(break_);
        }
    }
    whose_note(&mut words);
    words
}

/// Removes `Zeyuan note:`, which only names the author.
fn whose_note(words: &mut Vec<Word>) {
    if matches!(words.as_slice(), [Word::Unknown(_), Word::Known, Word::Equals, ..]) {
        words.remove(0);
    }
}

/// Reads a number and its suffix. Returns the position after it.
fn number(chars: &[char], from: usize, words: &mut Vec<Word>) -> usize {
    let get = |at: usize| chars.get(at).copied().unwrap_or(' ');
    let digits = |mut at: usize| {
        while get(at).is_ascii_digit() {
            at += 1;
        }
        at
    };
    let mut end = digits(from);
    // `1,024`, `1_024`
    let mark = get(end);
    if end - from <= 3 && matches!(mark, ',' | '_') {
        while get(end) == mark && digits(end + 1) == end + 4 {
            end += 4;
        }
    }
    let text: String =
        chars.get(from..end).unwrap_or_default().iter().filter(|c| c.is_ascii_digit()).collect();
    let quantity = |to: usize| {
        Word::Quantity(chars.get(from..to).unwrap_or_default().iter().collect::<String>())
    };
    let fraction = get(end) == '.' && get(end + 1).is_ascii_digit();
    let torn = matches!(get(end), ',' | '_') && get(end + 1).is_ascii_digit();
    if fraction || torn {
        let mut to = end;
        while get(to).is_alphanumeric()
            || (matches!(get(to), '.' | ',' | '_' | '-') && get(to + 1).is_alphanumeric())
        {
            to += 1;
        }
        words.push(match torn {
            true => Word::Unknown(chars.get(from..to).unwrap_or_default().iter().collect()),
            false => quantity(to),
        });
        return to;
    }
    let mut to = end;
    while get(to).is_alphanumeric() {
        to += 1;
    }
    let glued: String =
        chars.get(end..to).unwrap_or_default().iter().collect::<String>().to_lowercase();
    let value = text.parse::<u64>().ok();
    let Some(value) = value else {
        words.push(Word::Unknown(text));
        return to;
    };
    let times = glued.strip_prefix('x').filter(|rest| {
        rest.is_empty()
            || is_model(rest)
            || rest.split('x').next().is_some_and(is_model)
            || rest.starts_with(|c: char| c.is_ascii_digit())
    });
    let unit = DEVICE.contains(&glued.as_str()) || DEVICES.contains(&glued.as_str());
    if times.is_some() {
        words.extend([Word::Number(value), Word::Times]);
        return end + 1;
    }
    if glued.is_empty() || unit || is_model(&glued) {
        words.push(Word::Number(value));
        // `64-128` is a range, `8-GPU` is not.
        if get(end) == '-' && get(end + 1).is_ascii_digit() {
            words.push(Word::Unknown("-".to_owned()));
        }
        return match get(end) == '-' && get(end + 1).is_alphanumeric() {
            true => end + 1,
            false => end,
        };
    }
    // The memory of a device is not a number of devices.
    if !matches!(glued.as_str(), "g" | "gb" | "gib" | "tb") {
        words.push(quantity(to));
    }
    to
}

/// Reads a word, and its parts if it has hyphens.
fn word(lower: &str, words: &mut Vec<Word>) {
    if let Some((_, n)) = WORDS.iter().find(|(known, _)| *known == lower) {
        words.push(Word::Number(*n));
        return;
    }
    let parts: Vec<&str> = lower.split(['_', '-', '\'']).collect();
    // `GPU-hours` and `H100h` are hours.
    let glued = TIME.iter().any(|unit| lower.strip_suffix(unit).is_some_and(is_model));
    let compound = parts.len() > 1 && parts.last().is_some_and(|last| TIME.contains(last));
    if glued || compound {
        words.push(Word::Time);
        return;
    }
    // Without a number before it, `min` means minimum.
    if lower == "min" && matches!(words.last(), Some(Word::Number(_))) {
        words.push(Word::Time);
        return;
    }
    if parts.len() > 1 && parts.last() == Some(&"memory") {
        words.push(Word::Other);
        return;
    }
    // `A100-SXM4-80GB`
    if parts.first().is_some_and(|part| is_model(part)) {
        words.push(Word::Model);
        let detail = |part: &&str| {
            let letters = part.trim_matches(|c: char| c.is_ascii_digit());
            matches!(letters, "g" | "gb" | "gib" | "sxm" | "pcie" | "nvl" | "hbm" | "s" | "")
        };
        words.extend(parts.iter().skip(1).filter(|p| !detail(p)).map(|p| unknown(p)));
        return;
    }
    // `H100x8`
    if let Some((model, count)) = lower.split_once('x')
        && is_model(model)
        && let Ok(count) = count.parse()
    {
        words.extend([Word::Model, Word::Times, Word::Number(count)]);
        return;
    }
    if parts == ["world", "size"] || NUMBERS_OF.contains(&lower) {
        words.extend([Word::Count, Word::Device(true)]);
        return;
    }
    for part in parts {
        let next = simple(part);
        let size = part == "size" && matches!(words.last(), Some(Word::Unknown(w)) if w == "world");
        if size {
            words.pop();
            words.extend([Word::Count, Word::Device(true)]);
            continue;
        }
        words.push(next);
    }
}

fn unknown(word: &str) -> Word {
    Word::Unknown(word.to_owned())
}

fn simple(word: &str) -> Word {
    let bare = word.trim_end_matches(|c: char| c.is_ascii_digit());
    match word {
        "a" | "an" => Word::Article,
        "and" => Word::And,
        "x" | "times" => Word::Times,
        "per" => Word::Per,
        "each" | "every" | "apiece" => Word::Each,
        "of" => Word::Of,
        "equals" | "makes" => Word::Equals,
        _ if DEVICE.contains(&word) => Word::Device(false),
        _ if DEVICES.contains(&word) => Word::Device(true),
        _ if NODE.contains(&word) => Word::Node(false),
        _ if NODES.contains(&word) => Word::Node(true),
        _ if is_model(word) => Word::Model,
        _ if COUNT.contains(&word) => Word::Count,
        _ if OTHER.contains(&word) => Word::Other,
        _ if TIME.contains(&word) => Word::Time,
        _ if MANY.contains(&word) => Word::Many,
        _ if KNOWN.contains(&word) || VERSIONED.contains(&bare) => Word::Known,
        _ => unknown(word),
    }
}

/// `h100`, `h100s`, `mi300x`
fn is_model(word: &str) -> bool {
    let digits = word.find(|c: char| c.is_ascii_digit());
    let Some((letters, rest)) = digits.map(|at| word.split_at(at)) else { return false };
    let number = rest.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let end = rest.strip_prefix(number).unwrap_or("");
    MODELS.contains(&letters)
        && number.chars().all(|c| c.is_ascii_digit())
        && (number.len() >= 2 || letters == "tpuv" || matches!(word, "l4" | "t4" | "l4s" | "t4s"))
        && matches!(end, "" | "s" | "x" | "xs" | "g" | "ti")
}
