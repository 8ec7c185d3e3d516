//! Decides whether a comment is about a number of devices at all, and recognises forms that are not sentences.
//!
//! In: a comment and its words. Out: whether it mentions a number of devices. Must stay true: a number of devices in
//! any form is mentioned, so that a comment that is not understood is reported.

use super::comment::{CommentCount, Counts};
use super::lexicon::{Word, is_card, is_make, is_numeral, is_parallel};

/// Reads the comment that canonc writes into an exported recipe:
/// `128 GPUs: a step is 128 x 1 x 1 x 16384 = 2097152 tokens, 1006632960000 in all.`
pub(super) fn exported(text: &str) -> Option<CommentCount> {
    let (devices, rest) = text.trim().split_once(" GPU")?;
    let (_, sum) = rest.split_once(": a step is ")?;
    let whole = |text: &str| text.parse::<u64>().ok();
    let (sum, total) = sum.split_once(" tokens")?;
    let (factors, tokens) = sum.split_once(" = ")?;
    if !total.is_empty() {
        whole(total.strip_prefix(", ")?.strip_suffix(" in all.")?)?;
    }
    let factors: Vec<u64> = factors.split(" x ").map(whole).collect::<Option<_>>()?;
    let (devices, tokens) = (whole(devices)?, whole(tokens)?);
    let product = factors.iter().try_fold(1u64, |product, n| product.checked_mul(*n));
    let holds = devices > 0 && factors.first() == Some(&devices) && product == Some(tokens);
    Some(match holds {
        true => CommentCount::Devices(Counts { totals: vec![devices], ..Counts::default() }),
        false => {
            CommentCount::Unclear("its numbers do not multiply to the tokens of a step".to_owned())
        }
    })
}

/// Whether a word that is not understood is about devices.
pub(super) fn made(word: &Word) -> bool {
    matches!(word, Word::Unknown(text) if is_make(text))
}

/// Numbers from which a number of devices follows only with facts that the comment does not give.
pub(super) fn elsewhere(text: &str, words: &[Word]) -> Option<String> {
    if text.to_lowercase().contains("xlarge") {
        return Some("the number of devices in such an instance is not given".to_owned());
    }
    // `8x4090`, `8 4090s`, `4090 GPUs`
    let device = |word: &Word| matches!(word, Word::Device(_) | Word::Times) || made(word);
    let cards = words.iter().enumerate().find(|(at, word)| {
        let before = at.checked_sub(1).and_then(|at| words.get(at));
        let near = [before, words.get(at + 1)].into_iter().flatten().any(device);
        is_card(word) && (near || matches!(word, Word::Quantity(_)))
    });
    if let Some((_, Word::Number(_) | Word::Quantity(_))) = cards {
        return Some("one of its numbers may be the name of a device".to_owned());
    }
    // `dp_shard 128`, `dp: 8`, `dp128`, `128-way dp`
    words.iter().enumerate().find_map(|(at, word)| {
        let Word::Unknown(name) = word else { return None };
        let glued = is_parallel(name)?;
        let part =
            |text: &str| matches!(text, "shard" | "replicate" | "degree" | "parallel" | "world");
        let of_name = |word: &&Word| {
            matches!(word, Word::Known | Word::Other | Word::Count | Word::Equals)
                || matches!(word, Word::Unknown(text) if part(text))
        };
        let after = words.iter().skip(at + 1).find(|word| !of_name(word));
        let way = |word: &&Word| matches!(word, Word::Unknown(text) if text == "way");
        let before = words.iter().take(at).rev().find(|word| !way(word));
        let number = [after, before].into_iter().flatten().any(|w| matches!(w, Word::Number(_)));
        (glued || number)
            .then(|| format!("`{name}` is only one way to split the work, and there may be others"))
    })
}

/// Whether the words contain a number or a key: `gpus: see the script`.
pub(super) fn speaks(words: &[Word]) -> bool {
    let device =
        words.iter().any(|word| matches!(word, Word::Device(_) | Word::Model) || made(word));
    let number = |word: &Word| {
        matches!(word, Word::Number(_)) || matches!(word, Word::Unknown(text) if is_numeral(text))
    };
    let adjacent = |two: &[Word]| {
        let [a, b] = two else { return false };
        let key = matches!((a, b), (Word::Device(_), Word::Equals));
        let node = matches!(a, Word::Node(_)) || matches!(b, Word::Node(_));
        let unit = matches!((a, b), (Word::Quantity(_), Word::Device(_) | Word::Model));
        key || unit || (node && (number(a) || number(b) || number_after(words, a)))
    };
    (device && words.iter().any(number)) || words.windows(2).any(adjacent)
}

/// `nodes: 16`
fn number_after(words: &[Word], node: &Word) -> bool {
    matches!(node, Word::Node(_))
        && words
            .windows(3)
            .any(|three| matches!(three, [Word::Node(_), Word::Equals, Word::Number(_)]))
}
