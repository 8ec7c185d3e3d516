//! The published permuter, which reorders the sentences of a biography by plain text replacements, odd results included.
//! Tests compare the fast way of `biography` with it.

use super::fields::Fields;
use crate::cpython::Random;

const ATTEMPTS: usize = 1000;

/// Sentences in their new order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permuted {
    /// The sentences, without the stops between them.
    pub sentences: Vec<String>,
    /// For each sentence, its index in the original text.
    pub order: Vec<usize>,
}

impl Permuted {
    /// The text in the published form, with a space before the first sentence.
    pub fn text(&self) -> String {
        format!(" {}.", self.sentences.join(". "))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pronoun {
    She,
    He,
    They,
}

impl Pronoun {
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Pronoun::She => ("She", "she"),
            Pronoun::He => ("He", "he"),
            Pronoun::They => ("They", "they"),
        }
    }
}

/// The published augmentation. None if none of 1000 orders begins with a sentence that can take the name; the published
/// script fails there.
pub fn permute(random: &mut Random, names: [&str; 3], text: &str) -> Option<Permuted> {
    let [first, middle, last] = names;
    let full = format!("{first} {middle} {last}");
    let mut text =
        text.replace("(50 words)", "").replace('\n', " ").replace("  ", " ").replace("  ", " ");
    text = text.trim().to_owned();
    let person = text.contains("The person") || text.contains("the person");
    let pronoun = [Pronoun::She, Pronoun::He, Pronoun::They]
        .into_iter()
        .find(|pronoun| {
            let (upper, lower) = pronoun.words();
            text.contains(&format!(" {upper} ")) || text.contains(&format!(" {lower} "))
        })
        .filter(|_| !person);
    let count = |name: &str| text.matches(name).count();
    let name = [(first, 3), (last, 3), (middle, 3), (first, 2)]
        .into_iter()
        .find(|&(name, least)| count(name) >= least)
        .map(|(name, _)| name);

    let abbreviations = &Fields::get().abbreviations;
    for abbreviation in abbreviations {
        text = text.replace(abbreviation, &abbreviation.replace('.', "#"));
    }
    if !text.ends_with('.') {
        text.push('.');
    }
    if let Some(name) = name {
        text = text.replace(&full, name);
    }
    text.pop();
    let list: Vec<&str> = text.split(". ").collect();
    let mut order = Vec::new();
    for _ in 0..ATTEMPTS {
        order.clear();
        order.extend(0..list.len());
        random.shuffle(&mut order);
        let Some(begin) =
            with_full_name(list[order[0]], [first, middle, last], &full, name, person, pronoun)
        else {
            continue;
        };
        let mut sentences = vec![begin];
        sentences.extend(
            order.iter().skip(1).map(|&sentence| with_pronoun(list[sentence], &full, pronoun)),
        );
        for sentence in &mut sentences {
            for abbreviation in abbreviations {
                *sentence = sentence.replace(&abbreviation.replace('.', "#"), abbreviation);
            }
        }
        return Some(Permuted { sentences, order });
    }
    None
}

/// The first sentence with the full name, or None if it cannot take the name.
fn with_full_name(
    sentence: &str,
    [first, middle, last]: [&str; 3],
    full: &str,
    name: Option<&str>,
    person: bool,
    pronoun: Option<Pronoun>,
) -> Option<String> {
    let mut text = format!(" {sentence}");
    let named = format!(" {full} ");
    if let Some(name) = name {
        text = text.replace(&format!(" {name}"), &format!(" {full}"));
    }
    let words =
        if person { Some(("The person", "the person")) } else { pronoun.map(Pronoun::words) };
    if let Some((upper, lower)) = words {
        let (upper, lower) = (format!(" {upper} "), format!(" {lower} "));
        let word = if text.contains(&upper) { upper } else { lower };
        text = text.replacen(&word, &named, 1);
    }
    let parts = [
        format!(" {first} {last} "),
        format!(" {middle} {last} "),
        format!(" {first} {middle} "),
        format!(" {first} "),
        format!(" {last} "),
        format!(" {middle} "),
    ];
    for part in parts {
        if text.contains(full) {
            break;
        }
        text = text.replacen(&part, &named, 1);
    }
    text.contains(full).then(|| text.split_off(1))
}

fn with_pronoun(sentence: &str, full: &str, pronoun: Option<Pronoun>) -> String {
    let Some(pronoun) = pronoun.filter(|_| sentence.contains(full)) else {
        return sentence.to_owned();
    };
    let (upper, lower) = pronoun.words();
    let begun = match sentence.strip_prefix(full) {
        Some(rest) => format!("{upper}{rest}"),
        None => sentence.to_owned(),
    };
    begun.replace(&format!(" {full} "), &format!(" {lower} "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use support::golden;

    #[test]
    fn awkward_texts_equal_the_vectors() {
        let case = golden::case("capo", "permuter-awkward");
        let mut random = Random::new(case["text_seed"].as_u64().unwrap());
        for sample in case["samples"].as_array().unwrap() {
            let text = |name: &str| sample[name].as_str().unwrap();
            let names = [text("first_name"), text("middle_name"), text("last_name")];
            let permuted = permute(&mut random, names, text("in")).unwrap();
            assert_eq!(permuted.text(), text("out"));
        }
        assert_eq!(random.next_u32(), case["next_u32_after"]);
    }

    #[test]
    fn texts_without_a_name_have_no_order() {
        let names = ["Ada", "Byron", "Lovelace"];
        assert_eq!(permute(&mut Random::new(1), names, "It rains. It snows."), None);
        assert_eq!(permute(&mut Random::new(1), names, ""), None);
    }
}
