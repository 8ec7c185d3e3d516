//! The true distribution of the next token under a grammar.
//!
//! Each row is the grammar's conditional law when all rules of a symbol are equally likely. Probabilities are relative to
//! the prefix's own, so long sentences do not underflow.
//!
//! A left-to-right parser with probabilities in the manner of Stolcke, "An Efficient Probabilistic Context-Free
//! Parsing Algorithm that Computes Prefix Probabilities" (1995). Levels make it simpler: nothing is recursive.

use super::Grammar;

/// Added to every probability before logarithms are taken, as published.
pub const SMOOTHING: f64 = 1e-5;

/// The law of the next token after each prefix.
#[derive(Clone, Debug, PartialEq)]
pub struct Law {
    /// Row length: the end, then the tokens ascending.
    width: usize,
    rows: Vec<f64>,
    /// Natural logarithms of two probabilities: of the tokens as a prefix, and of the end after all of them.
    log_prefix: f64,
    log_end: f64,
    /// The first token that cannot follow its prefix. That prefix has no row.
    impossible: Option<usize>,
}

impl Law {
    /// The laws after 0, 1, 2, ... tokens. Each gives the end first, then the tokens ascending.
    pub fn rows(&self) -> std::slice::ChunksExact<'_, f64> {
        self.rows.chunks_exact(self.width)
    }

    /// The index of the first token that no sentence with this beginning can have there.
    pub fn impossible(&self) -> Option<usize> {
        self.impossible
    }

    /// The natural logarithm of the sentence's probability; minus infinity if the tokens are not a sentence.
    pub fn log_probability(&self) -> f64 {
        if self.impossible.is_some() { f64::NEG_INFINITY } else { self.log_prefix + self.log_end }
    }

    /// Mean entropy of the rows in nats.
    pub fn entropy(&self) -> f64 {
        let entropy_of = |row: &[f64]| -> f64 {
            row.iter().map(|&p| if p > 0.0 { -p * libm::log(p) } else { 0.0 }).sum()
        };
        mean(self.rows().map(entropy_of))
    }

    /// The mean over rows of KL(truth || model), with both smoothed inside the logarithm and the unsmoothed truth as
    /// weight. `model` has a law of the same form after each of the same prefixes; None if its size differs.
    pub fn divergence(&self, model: &[f64]) -> Option<f64> {
        (model.len() == self.rows.len()).then(|| {
            mean(self.rows().zip(model.chunks_exact(self.width)).map(|(t, m)| divergence(t, m)))
        })
    }
}

/// KL(truth || model) of one row, as the published demonstration computes it.
pub fn divergence(truth: &[f64], model: &[f64]) -> f64 {
    let sum = |row: &[f64]| row.iter().map(|p| p + SMOOTHING).sum::<f64>();
    let (truth_sum, model_sum) = (sum(truth), sum(model));
    let smooth = |p: f64, sum: f64| libm::log((p + SMOOTHING) / sum);
    truth.iter().zip(model).map(|(&t, &m)| t * (smooth(t, truth_sum) - smooth(m, model_sum))).sum()
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values {
        sum += value;
        count += 1.0;
    }
    if count > 0.0 { sum / count } else { 0.0 }
}

impl Grammar {
    /// The true law after each prefix of `tokens`, including `tokens`, up to the first token that cannot follow.
    pub fn law(&self, tokens: &[u32]) -> Law {
        let mut parser = Parser::new(self);
        let width = self.tokens() as usize + 1;
        let mut law = Law {
            width,
            rows: Vec::with_capacity((tokens.len() + 1) * width),
            log_prefix: 0.0,
            log_end: f64::NEG_INFINITY,
            impossible: None,
        };
        parser.predict();
        parser.push_row(&mut law.rows);
        for (position, &token) in tokens.iter().enumerate() {
            let row = &law.rows[position * width..];
            let p = if self.symbol_of(token).is_some() { row[token as usize] } else { 0.0 };
            if p <= 0.0 {
                law.impossible = Some(position);
                return law;
            }
            law.log_prefix += libm::log(p);
            parser.read(token, p);
            parser.predict();
            parser.push_row(&mut law.rows);
        }
        law.log_end = libm::log(law.rows[tokens.len() * width]);
        law
    }
}

/// For a part that ends here: where it began, and its relative probability from there, that is, the probability that it
/// derives the tokens in between, divided by the probability of those tokens given the ones before.
type Column = Vec<(u32, f64)>;

struct Parser<'a> {
    grammar: &'a Grammar,
    /// Number of tokens read.
    at: usize,
    /// For each position and symbol, the probability that the symbol begins there, given the tokens before.
    begins: Vec<f64>,
    /// For each position and symbol, the symbol's occurrences that end there.
    symbols: Vec<Column>,
    /// For each position, rule and number of its symbols (two or more, but not all): the parts that end there.
    rules: Vec<[Column; 2]>,
    sums: Vec<f64>,
}

impl<'a> Parser<'a> {
    fn new(grammar: &'a Grammar) -> Parser<'a> {
        let mut parser = Parser {
            grammar,
            at: 0,
            begins: Vec::new(),
            symbols: Vec::new(),
            rules: Vec::new(),
            sums: Vec::new(),
        };
        parser.add_position();
        parser
    }

    fn add_position(&mut self) {
        let (symbols, rules) = (self.grammar.symbol_count(), self.grammar.rule_count());
        self.begins.resize(self.begins.len() + symbols, 0.0);
        self.symbols.resize(self.symbols.len() + symbols, Column::new());
        self.rules.resize(self.rules.len() + rules, [Column::new(), Column::new()]);
        self.sums.push(0.0);
    }

    fn begins(&self, position: u32, symbol: u32) -> f64 {
        self.begins[position as usize * self.grammar.symbol_count() + symbol as usize]
    }

    fn ended(&self, position: u32, symbol: u32) -> &Column {
        &self.symbols[position as usize * self.grammar.symbol_count() + symbol as usize]
    }

    /// The occurrences of the first `symbols` symbols of a rule (two or three) that end at `position`.
    fn ended_part(&self, position: u32, rule: usize, symbols: usize) -> &Column {
        &self.rules[position as usize * self.grammar.rule_count() + rule][symbols - 2]
    }

    /// Reads a token that has probability `p` here: adds everything that ends with it, from the tokens' level up.
    fn read(&mut self, token: u32, p: f64) {
        let grammar = self.grammar;
        self.at += 1;
        self.add_position();
        let position = self.at as u32;
        if let Some(symbol) = grammar.symbol_of(token) {
            self.symbols[self.at * grammar.symbol_count() + symbol as usize] =
                vec![(position - 1, 1.0 / p)];
        }
        for level in (0..grammar.depth()).rev() {
            for symbol in grammar.level(level) {
                let each = 1.0 / grammar.rules(symbol).len() as f64;
                for (number, rule) in grammar.rule_numbers(symbol).zip(grammar.rules(symbol)) {
                    let symbols = rule.symbols();
                    for parts in 2..symbols.len() {
                        self.join(position, symbol, number, &symbols[..parts], 1.0);
                        let column = self.take_sums();
                        self.rules[self.at * grammar.rule_count() + number][parts - 2] = column;
                    }
                }
                for (number, rule) in grammar.rule_numbers(symbol).zip(grammar.rules(symbol)) {
                    self.join(position, symbol, number, rule.symbols(), each);
                }
                let column = self.take_sums();
                self.symbols[self.at * grammar.symbol_count() + symbol as usize] = column;
            }
        }
    }

    /// Adds to the sums, times `each`, the ways in which `symbols` end here; they are the first ones of a rule of
    /// `symbol`. Skips starts where `symbol` cannot begin, since nothing would use them.
    fn join(&mut self, position: u32, symbol: u32, rule: usize, symbols: &[u32], each: f64) {
        let mut sums = std::mem::take(&mut self.sums);
        let mut add = |begin: u32, p: f64| {
            if self.begins(begin, symbol) > 0.0 {
                sums[begin as usize] += p * each;
            }
        };
        match symbols {
            [] => {}
            [only] => self.ended(position, *only).iter().for_each(|&(begin, p)| add(begin, p)),
            [before @ .., last] => {
                for &(middle, p) in self.ended(position, *last) {
                    let before = match before {
                        [first] => self.ended(middle, *first),
                        _ => self.ended_part(middle, rule, before.len()),
                    };
                    before.iter().for_each(|&(begin, q)| add(begin, p * q));
                }
            }
        }
        self.sums = sums;
    }

    fn take_sums(&mut self) -> Column {
        let mut column = Column::new();
        for (begin, sum) in self.sums.iter_mut().enumerate() {
            if *sum > 0.0 {
                column.push((begin as u32, *sum));
                *sum = 0.0;
            }
        }
        column
    }

    /// Adds every symbol that can begin here, from the root down.
    fn predict(&mut self) {
        let grammar = self.grammar;
        let position = self.at as u32;
        let row = self.at * grammar.symbol_count();
        if self.at == 0 {
            self.begins[0] = 1.0;
        }
        for level in 0..grammar.depth() {
            for symbol in grammar.level(level) {
                let each = 1.0 / grammar.rules(symbol).len() as f64;
                let probability = self.begins(position, symbol);
                for (number, rule) in grammar.rule_numbers(symbol).zip(grammar.rules(symbol)) {
                    for (before, &next) in rule.symbols().iter().enumerate() {
                        let ended = match (before, rule.symbols()) {
                            (0, _) | (_, []) => {
                                self.begins[row + next as usize] += probability * each;
                                continue;
                            }
                            (1, [first, ..]) => self.ended(position, *first),
                            (parts, _) => self.ended_part(position, number, parts),
                        };
                        let sum: f64 =
                            ended.iter().map(|&(begin, p)| self.begins(begin, symbol) * p).sum();
                        self.begins[row + next as usize] += sum * each;
                    }
                }
            }
        }
    }

    fn push_row(&self, rows: &mut Vec<f64>) {
        let grammar = self.grammar;
        let position = self.at as u32;
        let start = rows.len();
        let end =
            self.ended(position, 0).iter().find(|&&(begin, _)| begin == 0).map_or(0.0, |&(_, p)| p);
        rows.push(if self.at == 0 { 0.0 } else { end });
        rows.extend(grammar.level(grammar.depth()).map(|symbol| self.begins(position, symbol)));
        let sum: f64 = rows[start..].iter().sum();
        rows[start..].iter_mut().for_each(|p| *p /= sum);
    }
}

#[cfg(test)]
mod tests {
    use super::super::GrammarRule;
    use super::*;
    use support::golden;

    fn close(got: f64, want: f64, within: f64) {
        assert!((got - want).abs() <= within, "{got} is not {want}");
    }

    #[test]
    fn laws_equal_the_published_ones() {
        let cases = golden::cases("lano_truth");
        assert_eq!(cases.len(), 3);
        for case in &cases {
            let grammar = Grammar::named(case["config"].as_str().unwrap()).unwrap();
            let law = grammar.law(&golden::tokens(&case["tokens"]));
            assert_eq!(law.impossible(), None);
            assert_eq!(law.rows().len(), case["rows"].as_u64().unwrap() as usize);
            let mut worst: f64 = 0.0;
            for (row, want) in law.rows().zip(case["probs"].as_array().unwrap()) {
                for (got, want) in row.iter().zip(want.as_array().unwrap()) {
                    worst = worst.max((got - want.as_f64().unwrap()).abs());
                }
            }
            // The vectors have 12 digits.
            assert!(worst <= 5.1e-13, "{worst:e}");
            let number = |name: &str| case[name].as_f64().unwrap();
            close(law.log_probability(), number("logprob_total"), 1e-9);
            close(law.entropy(), number("entropy_mean_nats"), 1e-11);
            let model = |change: &dyn Fn(usize, f64, bool) -> f64| -> Vec<f64> {
                let last = law.rows().len() - 1;
                law.rows()
                    .enumerate()
                    .flat_map(|(i, row)| {
                        row.iter().enumerate().map(move |(j, &p)| (j, p, i == last))
                    })
                    .map(|(j, p, last)| change(j, p, last))
                    .collect()
            };
            let width = f64::from(grammar.tokens() + 1);
            let models = [
                ("kl_uniform", model(&|_, _, _| 1.0 / width)),
                ("kl_mix_0.9truth_0.1uniform", model(&|_, p, _| 0.9 * p + 0.1 / width)),
                // The end is certain where the sentence ends, and impossible before.
                (
                    "kl_eos_last",
                    model(&|j, p, last| match (j, last) {
                        (0, true) => 1.0,
                        (0, false) | (1.., true) => 0.0,
                        (1.., false) => p,
                    }),
                ),
            ];
            for (name, model) in models {
                close(law.divergence(&model).unwrap(), number(name), 1e-11);
            }
            close(law.divergence(&law.rows.clone()).unwrap(), 0.0, 1e-15);
            assert_eq!(law.divergence(&law.rows[1..]), None);
        }
    }

    /// The longest sentence below `symbol`.
    fn longest(grammar: &Grammar, symbol: u32) -> Vec<u32> {
        let most = |rule: &&GrammarRule| -> u32 {
            rule.symbols().iter().map(|&child| grammar.symbol(child).most).sum()
        };
        match grammar.rules(symbol).iter().max_by_key(most) {
            Some(rule) => {
                rule.symbols().iter().flat_map(|&child| longest(grammar, child)).collect()
            }
            None => vec![grammar.symbol(symbol).id],
        }
    }

    #[test]
    fn the_longest_sentences_do_not_underflow() {
        let grammar = Grammar::named("cfg3j").unwrap();
        let sentence = longest(&grammar, 0);
        assert_eq!(sentence.len(), 2052);
        let law = grammar.law(&sentence);
        assert_eq!((law.impossible(), law.rows().len()), (None, 2053));
        // Too small for an f64, but at least as likely as its one longest derivation.
        let log_p = law.log_probability();
        assert!(log_p < -745.0 && log_p > -2052.0 * libm::log(3.0), "{log_p}");
        for row in law.rows() {
            close(row.iter().sum(), 1.0, 1e-12);
        }
    }

    #[test]
    fn errors_that_stop_parsing_have_a_place() {
        let grammar = Grammar::named("cfg3f").unwrap();
        for (tokens, impossible) in [(&[4][..], 0), (&[0], 0), (&[1, 9], 1), (&[1; 64], 3)] {
            let law = grammar.law(tokens);
            assert_eq!(law.impossible(), Some(impossible), "{tokens:?}");
            assert_eq!(law.rows().len(), impossible + 1);
            assert_eq!(law.log_probability(), f64::NEG_INFINITY);
        }
        let law = grammar.law(&[]);
        assert_eq!((law.impossible(), law.rows().len()), (None, 1));
        assert_eq!(law.log_probability(), f64::NEG_INFINITY);
    }
}
