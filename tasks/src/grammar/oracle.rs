//! Compares charts, repairs and laws of small random grammars with an enumeration of all derivations, which uses none of
//! the code under test.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::chart::{Chart, Parses};
use super::{Grammar, GrammarFile, SymbolFile};

/// Derivations of one symbol, each as its tokens and its probability.
type Derivations = Vec<(Vec<u32>, f64)>;

const MOST: usize = 4000;

/// All derivations of `symbol`; None if there are too many.
fn derivations(grammar: &Grammar, symbol: u32) -> Option<Derivations> {
    let rules = grammar.rules(symbol);
    if rules.is_empty() {
        return Some(vec![(vec![grammar.symbol(symbol).id], 1.0)]);
    }
    let mut all = Vec::new();
    for rule in rules {
        let mut sofar = vec![(Vec::new(), 1.0 / rules.len() as f64)];
        for &child in rule.symbols() {
            let next = derivations(grammar, child)?;
            if sofar.len() * next.len() > MOST {
                return None;
            }
            sofar = sofar
                .iter()
                .flat_map(|(tokens, p)| {
                    next.iter().map(move |(more, q)| ([&tokens[..], more].concat(), p * q))
                })
                .collect();
        }
        all.extend(sofar);
    }
    (all.len() <= MOST).then_some(all)
}

/// A grammar with up to three levels of one or two symbols below its root.
fn grammar() -> impl Strategy<Value = Grammar> {
    let rule = prop::collection::vec(0usize..2, 1..=3);
    let rules = prop::collection::vec(rule, 1..=3);
    let levels = prop::collection::vec((1usize..=2, [rules.clone(), rules]), 1..=3);
    (levels, 1usize..=2).prop_map(|(mut levels, tokens)| {
        levels[0].0 = 1;
        let depth = levels.len();
        levels.push((tokens, [vec![], vec![]]));
        let sizes: Vec<usize> = levels.iter().map(|&(size, _)| size).collect();
        let mut all = Vec::new();
        for (level, (size, rules)) in levels.iter().enumerate() {
            let symbols =
                rules.iter().take(*size).enumerate().map(|(position, rules)| SymbolFile {
                    depth: None,
                    id: if level == depth {
                        1 + position as i64
                    } else {
                        (10 * (depth - level) + position) as i64
                    },
                    children: Some(
                        rules
                            .iter()
                            .map(|rule| {
                                rule.iter()
                                    .map(|position| (position % sizes[level + 1]) as i64)
                                    .collect()
                            })
                            .collect(),
                    ),
                });
            all.push(symbols.collect::<Vec<_>>());
        }
        let file = GrammarFile {
            depth: depth as i64,
            num_sym: tokens as i64,
            sizes: sizes.iter().map(|&size| size as i64).collect(),
            idx: all.iter().map(|level| level.iter().map(|symbol| symbol.id).collect()).collect(),
            all,
            count: None,
            eos_token: None,
        };
        Grammar::new(&file).unwrap()
    })
}

fn distance(a: &[u32], b: &[u32]) -> u32 {
    a.iter().zip(b).filter(|(a, b)| a != b).count() as u32
}

/// The law after `prefix`, from the probabilities of the sentences.
fn law_after(sentences: &BTreeMap<Vec<u32>, f64>, tokens: u32, prefix: &[u32]) -> Vec<f64> {
    let mut row = vec![0.0; tokens as usize + 1];
    for (sentence, p) in sentences.iter().filter(|(sentence, _)| sentence.starts_with(prefix)) {
        row[sentence.get(prefix.len()).map_or(0, |&token| token as usize)] += p;
    }
    let sum: f64 = row.iter().sum();
    row.iter().map(|p| p / sum).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(support::cases(200)))]

    #[test]
    fn everything_agrees_with_all_derivations(
        grammar in grammar(),
        strings in prop::collection::vec(prop::collection::vec(1u32..=3, 0..10), 8),
    ) {
        let Some(derivations) = derivations(&grammar, 0) else { return Ok(()) };
        let (mut parses, mut sentences) = (BTreeMap::new(), BTreeMap::new());
        for (tokens, p) in &derivations {
            *parses.entry(tokens.clone()).or_insert(0u128) += 1;
            *sentences.entry(tokens.clone()).or_insert(0.0) += p;
        }
        let lengths: BTreeSet<usize> = sentences.keys().map(Vec::len).collect();
        let ends = (grammar.lengths().0 as usize, grammar.lengths().1 as usize);
        prop_assert_eq!((lengths.first(), lengths.last()), (Some(&ends.0), Some(&ends.1)));
        for (sentence, p) in sentences.iter().step_by(1 + sentences.len() / 20) {
            let chart = Chart::new(&grammar, sentence).unwrap();
            prop_assert_eq!(chart.parses(), Parses::Exactly(parses[sentence]));
            prop_assert_eq!(&chart.tree().tokens(&grammar), sentence);
            let law = grammar.law(sentence);
            prop_assert_eq!(law.impossible(), None);
            prop_assert!((law.log_probability() - libm::log(*p)).abs() < 1e-12);
            for (read, row) in law.rows().enumerate() {
                let want = law_after(&sentences, grammar.tokens(), &sentence[..read]);
                let is_close = row.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-12);
                prop_assert!(is_close, "{:?} is not {:?}", row, want);
            }
        }
        let near_ones = sentences.keys().take(4).map(|sentence| {
            sentence.iter().enumerate().map(|(i, &token)| if i % 3 == 0 { 3 - token } else { token }).collect()
        });
        for string in strings.iter().cloned().chain(near_ones) {
            prop_assert_eq!(grammar.accepts(&string), sentences.contains_key(&string));
            let same = sentences.keys().filter(|sentence| sentence.len() == string.len());
            let least = same.map(|sentence| distance(sentence, &string)).min();
            let repair = grammar.least_substitutions(&string);
            prop_assert_eq!(repair.as_ref().map(|repair| repair.substitutions), least);
            if let Some(repair) = repair {
                let nearest = repair.tree.tokens(&grammar);
                prop_assert!(sentences.contains_key(&nearest));
                prop_assert_eq!(Some(distance(&nearest, &string)), least);
                prop_assert_eq!(repair.wrong_per_level[0], least.unwrap());
                prop_assert!(repair.wrong_per_level.is_sorted_by(|a, b| a >= b));
            }
            let law = grammar.law(&string);
            let can_go_on = |read: usize| sentences.keys().any(|sentence| sentence.starts_with(&string[..read]));
            let first_bad = (0..string.len()).find(|&read| !can_go_on(read + 1));
            prop_assert_eq!(law.impossible(), first_bad);
            prop_assert_eq!(law.rows().len(), first_bad.unwrap_or(string.len()) + 1);
        }
    }
}

#[test]
fn counts_too_large_say_so() {
    // One token. Each symbol derives the one below twice, or once in three ways.
    let level = |depth: i64, level: i64| SymbolFile {
        depth: None,
        id: if level == depth { 1 } else { 100 - level },
        children: (level < depth).then(|| vec![vec![0], vec![0], vec![0], vec![0, 0]]),
    };
    let grammar = |depth: i64| {
        let all: Vec<Vec<SymbolFile>> = (0..=depth).map(|i| vec![level(depth, i)]).collect();
        Grammar::new(&GrammarFile {
            depth,
            num_sym: 1,
            sizes: vec![1; all.len()],
            idx: all.iter().map(|level| vec![level[0].id]).collect(),
            all,
            count: None,
            eos_token: None,
        })
        .unwrap()
    };
    let nine = grammar(9);
    assert_eq!(Chart::new(&nine, &[1]).unwrap().parses(), Parses::Exactly(3u128.pow(9)));
    assert_eq!(Chart::new(&nine, &[1; 512]).unwrap().parses(), Parses::Exactly(1));
    assert_eq!(Chart::new(&nine, &[1; 100]).unwrap().parses(), Parses::TooManyToCount);
}
