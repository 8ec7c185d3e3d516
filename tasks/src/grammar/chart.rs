//! A chart parser: membership, number of parses, and one parse.
//!
//! The chart holds exactly the spans that each symbol derives (bottom up, one bit per length), so counting or walking from
//! the root down needs no further search.

use std::collections::BTreeMap;

use super::tree::Tree;
use super::{Grammar, GrammarRule};

/// The published solver's results: this for a sentence, the other for anything else.
pub const PUBLISHED_VALID: u32 = 0;
/// The published solver's result for anything but a sentence.
pub const PUBLISHED_INVALID: u32 = 10_000;

impl Grammar {
    /// Whether these tokens are a sentence.
    pub fn accepts(&self, tokens: &[u32]) -> bool {
        Chart::new(self, tokens).is_some()
    }

    /// The result of the published fast solver.
    pub fn published_verdict(&self, tokens: &[u32]) -> u32 {
        if self.accepts(tokens) { PUBLISHED_VALID } else { PUBLISHED_INVALID }
    }
}

/// Number of parses of a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parses {
    /// This number.
    Exactly(u128),
    /// More than 128 bits can count.
    TooManyToCount,
}

/// How to combine the parse counts of two halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counting {
    True,
    /// As published: after a rule of two symbols has one way, later ways add the sum of the halves' counts, not the
    /// product.
    Published,
}

/// Which spans of a sentence each symbol derives.
#[derive(Clone, Debug)]
pub struct Chart<'a> {
    grammar: &'a Grammar,
    len: usize,
    /// Where each symbol's rows start, and words per row. Bit b of row i: the symbol derives the tokens from i on, with
    /// b tokens more than its shortest length.
    rows: Vec<(usize, usize)>,
    bits: Vec<u64>,
}

impl<'a> Chart<'a> {
    /// The chart of a sentence; None if the tokens are not a sentence.
    pub fn new(grammar: &'a Grammar, tokens: &[u32]) -> Option<Chart<'a>> {
        let (least, most) = grammar.lengths();
        if !(least as usize..=most as usize).contains(&tokens.len()) {
            return None;
        }
        let mut chart = Chart::empty(grammar, tokens)?;
        let mut buffers = [Vec::new(), Vec::new(), Vec::new()];
        for level in (0..grammar.depth()).rev() {
            for symbol in grammar.level(level) {
                chart.add(symbol, &mut buffers);
            }
        }
        chart.derives(0, 0, tokens.len()).then_some(chart)
    }

    /// A chart with the tokens only; None if the grammar lacks one of them.
    fn empty(grammar: &'a Grammar, tokens: &[u32]) -> Option<Chart<'a>> {
        let len = tokens.len();
        let mut rows = Vec::with_capacity(grammar.symbol_count());
        let mut words = 0;
        for symbol in 0..grammar.symbol_count() as u32 {
            let (least, most) = lengths(grammar, symbol);
            // No symbol derives more than the sentence.
            let width = (most.min(len) + 1).saturating_sub(least).div_ceil(64).max(1);
            rows.push((words, width));
            words += width * if symbol == 0 { 1 } else { len };
        }
        let mut chart = Chart { grammar, len, rows, bits: vec![0; words] };
        for (start, &token) in tokens.iter().enumerate() {
            let (row, width) = chart.rows[grammar.symbol_of(token)? as usize];
            chart.bits[row + start * width] = 1;
        }
        Some(chart)
    }

    /// Adds the spans of `symbol`. The spans of the level below must be known.
    fn add(&mut self, symbol: u32, buffers: &mut [Vec<u64>; 3]) {
        let (row, width) = self.rows[symbol as usize];
        let (least, _) = lengths(self.grammar, symbol);
        let starts = if symbol == 0 { 1 } else { self.len };
        let [ends, more_ends, derived] = buffers;
        for start in 0..starts {
            derived.clear();
            derived.resize(width, 0);
            for rule in self.grammar.rules(symbol) {
                let Some((&first, rest)) = rule.symbols().split_first() else { continue };
                let row = self.row(first, start);
                if row.iter().all(|&word| word == 0) {
                    continue;
                }
                ends.clear();
                ends.extend_from_slice(row);
                let (mut base, _) = lengths(self.grammar, first);
                for &child in rest {
                    let (child_least, child_most) = lengths(self.grammar, child);
                    more_ends.clear();
                    more_ends.resize(ends.len() + (child_most - child_least).div_ceil(64) + 1, 0);
                    for length in ones(ends) {
                        if start + base + length < self.len {
                            or_shifted(more_ends, self.row(child, start + base + length), length);
                        }
                    }
                    base += child_least;
                    std::mem::swap(ends, more_ends);
                }
                or_shifted(derived, ends, base - least);
            }
            self.bits[row + start * width..][..width].copy_from_slice(derived);
        }
    }

    fn row(&self, symbol: u32, start: usize) -> &[u64] {
        let (row, width) = self.rows[symbol as usize];
        &self.bits[row + start * width..][..width]
    }

    /// Whether `symbol` derives the `len` tokens from `start` on.
    pub fn derives(&self, symbol: u32, start: usize, len: usize) -> bool {
        let (least, most) = lengths(self.grammar, symbol);
        if !(least..=most).contains(&len) || start + len > self.len || symbol == 0 && start > 0 {
            return false;
        }
        let bit = len - least;
        self.row(symbol, start).get(bit / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }

    /// The lengths that `symbol` derives from `start` on, ascending.
    fn lengths_of(&self, symbol: u32, start: usize) -> impl Iterator<Item = usize> {
        let (least, _) = lengths(self.grammar, symbol);
        ones(self.row(symbol, start)).map(move |bit| least + bit)
    }

    /// The number of parses.
    pub fn parses(&self) -> Parses {
        self.count_all(Counting::True)
    }

    /// The number of parses as the published solver counts them, which is wrong for ambiguous rules of two symbols.
    pub fn published_parses(&self) -> Parses {
        self.count_all(Counting::Published)
    }

    fn count_all(&self, counting: Counting) -> Parses {
        let mut counts =
            Counts { chart: self, counting, spans: BTreeMap::new(), rests: BTreeMap::new() };
        match counts.count(Span { symbol: 0, start: 0, len: self.len }) {
            Some(count) => Parses::Exactly(count),
            None => Parses::TooManyToCount,
        }
    }

    /// Calls `each` with each way to split `span` among the symbols of `rule`, shortest first parts first, until it
    /// returns false.
    fn splits(&self, rule: &GrammarRule, span: Span, each: &mut impl FnMut(&[Span]) -> bool) {
        self.split_rest(rule.symbols(), span, &mut Vec::new(), each);
    }

    fn split_rest(
        &self,
        symbols: &[u32],
        rest: Span,
        parts: &mut Vec<Span>,
        each: &mut impl FnMut(&[Span]) -> bool,
    ) -> bool {
        let Some((&symbol, symbols)) = symbols.split_first() else { return true };
        let part = |len| Span { symbol, start: rest.start, len };
        if symbols.is_empty() {
            if !self.derives(symbol, rest.start, rest.len) {
                return true;
            }
            parts.push(part(rest.len));
            let more = each(parts);
            parts.pop();
            return more;
        }
        for len in self.lengths_of(symbol, rest.start).take_while(|&len| len < rest.len) {
            parts.push(part(len));
            let rest = Span { symbol: rest.symbol, start: rest.start + len, len: rest.len - len };
            let more = self.split_rest(symbols, rest, parts, each);
            parts.pop();
            if !more {
                return false;
            }
        }
        true
    }

    /// One parse: at each symbol the first rule that fits, with its first parts as short as possible.
    pub fn tree(&self) -> Tree {
        let mut symbols = Vec::new();
        let mut open = vec![Span { symbol: 0, start: 0, len: self.len }];
        while let Some(span) = open.pop() {
            symbols.push(span.symbol);
            let mut parts = Vec::new();
            for rule in self.grammar.rules(span.symbol) {
                self.splits(rule, span, &mut |split| {
                    parts.extend_from_slice(split);
                    false
                });
                if !parts.is_empty() {
                    break;
                }
            }
            open.extend(parts.iter().rev());
        }
        Tree::new(symbols)
    }
}

/// Known counts; None where a count is too large.
struct Counts<'a> {
    chart: &'a Chart<'a>,
    counting: Counting,
    spans: BTreeMap<Span, Option<u128>>,
    /// Counts of the symbols of a rule from a given one on, keyed by rule and index instead of a symbol.
    rests: BTreeMap<(usize, usize, usize, usize), Option<u128>>,
}

impl Counts<'_> {
    /// The number of ways to derive a derivable span.
    fn count(&mut self, span: Span) -> Option<u128> {
        let grammar = self.chart.grammar;
        if grammar.rules(span.symbol).is_empty() {
            return Some(1);
        }
        if let Some(&count) = self.spans.get(&span) {
            return count;
        }
        let mut count = Some(0);
        for (number, rule) in grammar.rule_numbers(span.symbol).zip(grammar.rules(span.symbol)) {
            count = match self.counting {
                Counting::Published if rule.symbols().len() == 2 => {
                    self.published_pair(rule, span, count)
                }
                Counting::Published | Counting::True => {
                    plus(count, self.rest(number, rule, 0, span.start, span.len))
                }
            };
        }
        self.spans.insert(span, count);
        count
    }

    /// The number of ways to derive `len` tokens from `start` on with the symbols of `rule` from number `from` on.
    fn rest(
        &mut self,
        number: usize,
        rule: &GrammarRule,
        from: usize,
        start: usize,
        len: usize,
    ) -> Option<u128> {
        let Some((&symbol, after)) = rule.symbols().get(from..).and_then(<[u32]>::split_first)
        else {
            return Some(0);
        };
        let chart = self.chart;
        if after.is_empty() {
            let derived = chart.derives(symbol, start, len);
            return if derived { self.count(Span { symbol, start, len }) } else { Some(0) };
        }
        if let Some(&count) = self.rests.get(&(number, from, start, len)) {
            return count;
        }
        let mut count = Some(0);
        for first in chart.lengths_of(symbol, start).take_while(|&first| first < len) {
            let after = self.rest(number, rule, from + 1, start + first, len - first);
            if after != Some(0) {
                let first = self.count(Span { symbol, start, len: first });
                count = plus(
                    count,
                    first.zip(after).and_then(|(first, after)| first.checked_mul(after)),
                );
            }
        }
        self.rests.insert((number, from, start, len), count);
        count
    }

    /// Adds to `count` the ways of a rule of two symbols as the published solver does: the first split multiplies the
    /// parts' counts, and once `count` is not 0 each split adds their sum.
    fn published_pair(
        &mut self,
        rule: &GrammarRule,
        span: Span,
        mut count: Option<u128>,
    ) -> Option<u128> {
        let [first, second, ..] = rule.symbols;
        let chart = self.chart;
        for len in chart.lengths_of(first, span.start).take_while(|&len| len < span.len) {
            let rest = Span { symbol: second, start: span.start + len, len: span.len - len };
            if !chart.derives(second, rest.start, rest.len) {
                continue;
            }
            let ways =
                self.count(Span { symbol: first, start: span.start, len }).zip(self.count(rest));
            count = match (count, ways) {
                (Some(0), Some((first, second))) => first.checked_mul(second),
                (count, ways) => {
                    plus(count, ways.and_then(|(first, second)| first.checked_add(second)))
                }
            };
        }
        count
    }
}

fn plus(a: Option<u128>, b: Option<u128>) -> Option<u128> {
    a?.checked_add(b?)
}

/// The span of `len` tokens from `start` on, derived from `symbol`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    symbol: u32,
    start: usize,
    len: usize,
}

fn lengths(grammar: &Grammar, symbol: u32) -> (usize, usize) {
    let symbol = grammar.symbol(symbol);
    (symbol.least as usize, symbol.most as usize)
}

/// Indices of the set bits.
fn ones(bits: &[u64]) -> impl Iterator<Item = usize> {
    bits.iter().enumerate().flat_map(|(position, &word)| {
        let mut left = word;
        std::iter::from_fn(move || {
            let bit = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (bit < 64).then_some(64 * position + bit)
        })
    })
}

/// Sets in `to` the bits of `from`, moved up by `by`. Bits past the end of `to` mean lengths longer than the sentence.
fn or_shifted(to: &mut [u64], from: &[u64], by: usize) {
    let (words, bits) = (by / 64, by % 64);
    for (position, &word) in from.iter().enumerate() {
        if word == 0 {
            continue;
        }
        if let Some(low) = to.get_mut(position + words) {
            *low |= word << bits;
        }
        if bits > 0
            && let Some(high) = to.get_mut(position + words + 1)
        {
            *high |= word >> (64 - bits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use support::golden;

    #[test]
    fn verdicts_and_counts_equal_the_published_ones() {
        let cases = golden::cases("lano_dp");
        assert_eq!(cases.len(), 46);
        for case in &cases {
            let grammar = Grammar::named(case["config"].as_str().unwrap()).unwrap();
            let tokens = golden::tokens(&case["tokens"]);
            let id = &case["id"];
            assert_eq!(grammar.accepts(&tokens), case["valid"].as_bool().unwrap(), "{id}");
            assert_eq!(grammar.published_verdict(&tokens), case["upstream_fast_result"], "{id}");
            let Some(chart) = Chart::new(&grammar, &tokens) else {
                assert_eq!(case["true_num_parses"], "0", "{id}");
                continue;
            };
            let count = |name: &str| Parses::Exactly(case[name].as_str().unwrap().parse().unwrap());
            assert_eq!(chart.parses(), count("true_num_parses"), "{id}");
            assert_eq!(chart.published_parses(), count("upstream_num_parses_buggy"), "{id}");
            let tree = chart.tree();
            assert_eq!(tree.tokens(&grammar), tokens, "{id}");
            let first_rows: Vec<i32> = case["upstream_parse_first8"]
                .as_array()
                .unwrap()
                .iter()
                .flat_map(|row| {
                    row.as_array().unwrap().iter().map(|entry| entry.as_i64().unwrap() as i32)
                })
                .collect();
            assert_eq!(tree.rows(&grammar)[..first_rows.len()], first_rows, "{id}");
        }
    }
}
