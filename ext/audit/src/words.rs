//! Splits a name into words, for each part between slashes.
//!
//! A word ends at a separator, at a digit and at a capital letter (`LlamaCanon`). `canon` is recognised at the end of a
//! longer word (`llamacanon`), but not if letters follow (`canonical`).

/// A word or a number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Token {
    /// As written.
    pub raw: String,
    pub lower: String,
    pub number: bool,
    /// The separator before it; `None` at the beginning, or if no separator precedes it.
    pub sep: Option<char>,
    /// If the word is `canon`: the slot letters after it.
    pub canon: Option<String>,
}

/// Words that may directly follow `canon`.
const ENDINGS: &[&str] =
    &["disabled", "free", "layer", "layers", "less", "none", "off", "on", "only", "out"];

/// Words that may directly precede `canon` and change its meaning.
const BEGINNINGS: &[&str] = &["anti", "no", "non", "not", "un", "with", "without", "wo", "zero"];

/// Model names that names start with.
const MODELS: &[&str] = &["gated", "gdn", "gla", "hybrid", "llama", "mamba", "transformer"];

/// The words of each part between slashes.
pub(crate) fn segments(name: &str) -> Vec<Vec<Token>> {
    let chars: Vec<char> = without_slash(name).chars().collect();
    let parts = chars.split(|c| *c == '/').map(words);
    parts.filter(|tokens| !tokens.is_empty()).collect()
}

/// Replaces `w/o`, which is one word.
fn without_slash(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find("w/o").or_else(|| rest.find("W/O")) {
        let (before, after) = rest.split_at(at);
        let after = after.get(3..).unwrap_or("");
        let edge = |c: Option<char>| c.is_none_or(|c| !c.is_ascii_alphanumeric());
        out.push_str(before);
        // The next word may follow without a separator: `w/oCanon`.
        let next = after.chars().next();
        let is_word = edge(out.chars().next_back())
            && (edge(next) || next.is_some_and(|c| c.is_ascii_uppercase()));
        out.push_str(if is_word { "without-" } else { "w/o" });
        rest = after;
    }
    out + rest
}

fn words(chars: &[char]) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut at = 0;
    let mut sep = None;
    let get = |at: usize| chars.get(at).copied().unwrap_or('\0');
    while at < chars.len() {
        let point = get(at) == '.' && get(at + 1).is_ascii_digit();
        if get(at).is_ascii_digit() || point {
            let end = number_end(chars, at);
            let raw: String = chars.get(at..end).unwrap_or_default().iter().collect();
            let lower = raw.to_ascii_lowercase();
            tokens.push(Token { raw, lower, number: true, sep: sep.take(), canon: None });
            at = end;
        } else if get(at).is_alphabetic() {
            let run = chars.get(at..).unwrap_or_default();
            let length = run.iter().take_while(|c| c.is_alphabetic()).count();
            let run: Vec<char> = run.iter().copied().take(length).collect();
            let from = tokens.len();
            letters(&run, &mut tokens);
            if let Some(first) = tokens.get_mut(from) {
                first.sep = sep.take();
            }
            at += length;
        } else {
            // `llama_-canon`: a minus sign.
            let minus =
                get(at) == '-' && (at == 0 || !get(at - 1).is_alphanumeric() && get(at - 1) != '-');
            sep = Some(if minus { '!' } else { get(at) });
            at += 1;
        }
    }
    tokens
}

/// The end of a number that starts at a position: `0.002`, `2e-3`.
fn number_end(chars: &[char], from: usize) -> usize {
    let get = |at: usize| chars.get(at).copied().unwrap_or('\0');
    let digits = |mut at: usize| {
        while get(at).is_ascii_digit() {
            at += 1;
        }
        at
    };
    let mut end = digits(from);
    if get(end) == '.' && get(end + 1).is_ascii_digit() {
        end = digits(end + 1);
    }
    if matches!(get(end), 'e' | 'E') {
        let sign = usize::from(matches!(get(end + 1), '-' | '+'));
        let exponent = digits(end + 1 + sign);
        if exponent > end + 1 + sign && !get(exponent).is_alphanumeric() {
            end = exponent;
        }
    }
    end
}

/// The words in a run of letters without separators.
fn letters(run: &[char], tokens: &mut Vec<Token>) {
    let Some((before, word, slots, after)) = canon(run) else {
        camel(run, tokens);
        return;
    };
    let lower: String = before.iter().collect::<String>().to_ascii_lowercase();
    let joined = word.first().is_some_and(char::is_ascii_lowercase)
        || before.last().is_some_and(char::is_ascii_uppercase);
    // `llamanocanon`: a model, and a word that changes the meaning of the next.
    let cut = MODELS.iter().filter_map(|model| lower.strip_prefix(model)).find_map(|rest| {
        BEGINNINGS.contains(&rest).then_some(before.len().saturating_sub(rest.len()))
    });
    match cut.filter(|_| joined) {
        Some(cut) => {
            camel(before.get(..cut).unwrap_or_default(), tokens);
            push(before.get(cut..).unwrap_or_default(), None, tokens);
        }
        None => camel(before, tokens),
    }
    push(word, Some(slots.iter().collect()), tokens);
    camel(after, tokens);
}

/// The letters before `canon`, the word itself, the slot letters, and the rest.
type Around<'a> = (&'a [char], &'a [char], &'a [char], &'a [char]);

fn canon(run: &[char]) -> Option<Around<'_>> {
    let lower: Vec<char> = run.iter().map(char::to_ascii_lowercase).collect();
    let mut from = lower.len();
    // Take the last match that is a word.
    while from > 0 {
        from -= 1;
        if !lower.get(from..)?.starts_with(&['c', 'a', 'n', 'o', 'n']) {
            continue;
        }
        let (before, rest) = run.split_at(from);
        let (word, after) = rest.split_at(5);
        if is_slots(after) {
            return Some((before, word, after, &[]));
        }
        let ending: String = after.iter().collect::<String>().to_ascii_lowercase();
        let capital = word.last().is_some_and(char::is_ascii_lowercase)
            && after.first().is_some_and(char::is_ascii_uppercase);
        let known = ENDINGS.contains(&ending.as_str())
            || MODELS.iter().any(|model| ending.starts_with(model));
        if capital || known {
            return Some((before, word, &[], after));
        }
    }
    None
}

/// Slot letters in order: `ACD`, `AbCD`, `ABbCD`, `abcd`, or none.
fn is_slots(letters: &[char]) -> bool {
    let rank = |c: char| match c {
        'A' | 'a' => Some(0),
        'B' => Some(1),
        'b' => Some(2),
        'C' | 'c' => Some(3),
        'D' | 'd' => Some(4),
        _ => None,
    };
    let ranks: Option<Vec<u8>> = letters.iter().map(|c| rank(*c)).collect();
    // `canonc` is another word.
    if let [only] = letters
        && only.is_ascii_lowercase()
    {
        return false;
    }
    // `AbbCD`: two convolutions give the same letter twice.
    ranks.is_some_and(|ranks| ranks.windows(2).all(|two| two[0] < two[1] || two == [2, 2]))
}

/// Splits at capital letters.
fn camel(run: &[char], tokens: &mut Vec<Token>) {
    let mut from = 0;
    for at in 1..run.len() {
        let (before, this) = (run.get(at - 1), run.get(at));
        let upper = |c: Option<&char>| c.is_some_and(|c| c.is_uppercase());
        let lower = |c: Option<&char>| c.is_some_and(|c| c.is_lowercase());
        let boundary = upper(this) && (lower(before) || (upper(before) && lower(run.get(at + 1))));
        if boundary {
            push(run.get(from..at).unwrap_or_default(), None, tokens);
            from = at;
        }
    }
    push(run.get(from..).unwrap_or_default(), None, tokens);
}

fn push(letters: &[char], canon: Option<String>, tokens: &mut Vec<Token>) {
    if letters.is_empty() {
        return;
    }
    let raw: String = letters.iter().collect();
    let lower = raw.to_lowercase();
    tokens.push(Token { raw, lower, number: false, sep: None, canon });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_words() {
        for (name, want) in [
            ("GLA5conv-1B-lr0.002", "GLA 5 conv -1 B -lr 0.002"),
            ("LlamaNoCanonAbCD", "Llama No Canon"),
            ("GLACanon", "GLA Canon"),
            ("a-lr2e-3-x", "a -lr 2e-3 -x"),
            ("v2e-llama", "v 2 e -llama"),
            ("canonical", "canonical"),
            ("llama w/o canon", "llama  without  canon"),
            ("a.b1.5", "a .b 1.5"),
            ("", ""),
            ("ä-é", "ä -é"),
        ] {
            let texts: Vec<String> = segments(name)
                .iter()
                .flatten()
                .map(|t| format!("{}{}", t.sep.map_or(String::new(), String::from), t.raw))
                .collect();
            assert_eq!(texts.join(" ").trim(), want, "{name}");
        }
    }
}
