//! The nearest sentence of a grammar: the fewest tokens to replace, and where its tree differs. Among several nearest
//! sentences it is the one with the first rules and the shortest first parts.

use super::Grammar;
use super::tree::Tree;

/// Larger than any cost, since there are fewer tokens than this.
const NEVER: u16 = u16::MAX;

/// A nearest sentence of the same length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// Number of replaced tokens, the least possible.
    pub substitutions: u32,
    /// Derivation of the repaired sentence.
    pub tree: Tree,
    /// Number of tree symbols with a replaced token below them, from the tokens' level to the root's.
    pub wrong_per_level: Vec<u32>,
}

impl Grammar {
    /// None if the grammar has no sentence of this length.
    pub fn least_substitutions(&self, tokens: &[u32]) -> Option<Repair> {
        let (least, most) = self.lengths();
        if !(least as usize..=most as usize).contains(&tokens.len()) {
            return None;
        }
        let mut costs = Costs::of_tokens(self, tokens);
        let mut buffers = [Vec::new(), Vec::new(), Vec::new()];
        for level in (0..self.depth()).rev() {
            for symbol in self.level(level) {
                costs.add(symbol, &mut buffers);
            }
        }
        let substitutions = costs.get(0, 0, tokens.len());
        (substitutions != NEVER).then(|| costs.repair(substitutions))
    }
}

/// For each symbol, start and length, the fewest substitutions that make the symbol derive the span.
struct Costs<'a> {
    grammar: &'a Grammar,
    len: usize,
    /// For each symbol, where its rows start and how many lengths a row has, from its shortest on.
    rows: Vec<(usize, usize)>,
    costs: Vec<u16>,
}

#[derive(Clone, Copy)]
struct Span {
    symbol: u32,
    start: usize,
    len: usize,
    cost: u16,
}

impl<'a> Costs<'a> {
    fn of_tokens(grammar: &'a Grammar, tokens: &[u32]) -> Costs<'a> {
        let len = tokens.len();
        let mut rows = Vec::with_capacity(grammar.symbol_count());
        let mut size = 0;
        for number in 0..grammar.symbol_count() as u32 {
            let symbol = grammar.symbol(number);
            let width = (symbol.most as usize).min(len) + 1;
            let width = width.saturating_sub(symbol.least as usize).max(1);
            rows.push((size, width));
            size += width * if number == 0 { 1 } else { len };
        }
        let mut costs = Costs { grammar, len, rows, costs: vec![NEVER; size] };
        for symbol in grammar.level(grammar.depth()) {
            let (row, _) = costs.rows[symbol as usize];
            for (start, &token) in tokens.iter().enumerate() {
                costs.costs[row + start] = u16::from(grammar.symbol(symbol).id != token);
            }
        }
        costs
    }

    fn add(&mut self, symbol: u32, buffers: &mut [Vec<u16>; 3]) {
        let (row, width) = self.rows[symbol as usize];
        let least = self.grammar.symbol(symbol).least as usize;
        let starts = if symbol == 0 { 1 } else { self.len };
        let [part, longer, costs] = buffers;
        for start in 0..starts {
            costs.clear();
            costs.resize(width, NEVER);
            for rule in self.grammar.rules(symbol) {
                let Some((&first, rest)) = rule.symbols().split_first() else { continue };
                part.clear();
                part.extend_from_slice(self.row(first, start));
                let mut base = self.grammar.symbol(first).least as usize;
                for &child in rest {
                    longer.clear();
                    longer.resize(part.len() + self.rows[child as usize].1 - 1, NEVER);
                    for (bit, &cost) in part.iter().enumerate() {
                        if cost != NEVER && start + base + bit < self.len {
                            lower(&mut longer[bit..], self.row(child, start + base + bit), cost);
                        }
                    }
                    base += self.grammar.symbol(child).least as usize;
                    std::mem::swap(part, longer);
                }
                if let Some(costs) = costs.get_mut(base - least..) {
                    lower(costs, part, 0);
                }
            }
            self.costs[row + start * width..][..width].copy_from_slice(costs);
        }
    }

    fn row(&self, symbol: u32, start: usize) -> &[u16] {
        let (row, width) = self.rows[symbol as usize];
        &self.costs[row + start * width..][..width]
    }

    fn get(&self, symbol: u32, start: usize, len: usize) -> u16 {
        let least = self.grammar.symbol(symbol).least as usize;
        let bit = len.checked_sub(least).filter(|_| start + len <= self.len);
        bit.and_then(|bit| self.row(symbol, start).get(bit)).copied().unwrap_or(NEVER)
    }

    /// Walks down the spans with the least cost.
    fn repair(&self, cost: u16) -> Repair {
        let depth = self.grammar.depth();
        let starts: Vec<u32> = (0..=depth).map(|level| self.grammar.level(level).start).collect();
        let mut wrong_per_level = vec![0; depth + 1];
        let mut symbols = Vec::new();
        let mut open = vec![Span { symbol: 0, start: 0, len: self.len, cost }];
        while let Some(span) = open.pop() {
            symbols.push(span.symbol);
            let level = starts.partition_point(|&start| start <= span.symbol) - 1;
            wrong_per_level[depth - level] += u32::from(span.cost > 0);
            let mut parts = Vec::new();
            for rule in self.grammar.rules(span.symbol) {
                if self.split(rule.symbols(), span, &mut parts) {
                    break;
                }
            }
            open.extend(parts.iter().rev());
        }
        Repair { substitutions: u32::from(cost), tree: Tree::new(symbols), wrong_per_level }
    }

    /// Puts in `parts` the first way in which `symbols` derive `rest` at exactly its cost. False if none exists.
    fn split(&self, symbols: &[u32], rest: Span, parts: &mut Vec<Span>) -> bool {
        let Some((&symbol, symbols)) = symbols.split_first() else { return rest.len == 0 };
        let (least, lengths) =
            (self.grammar.symbol(symbol).least as usize, self.rows[symbol as usize].1);
        let only = symbols.is_empty().then_some(rest.len);
        for len in only.map_or(least..least + lengths, |len| len..len + 1) {
            if len > rest.len || rest.start >= self.len {
                break;
            }
            let cost = self.get(symbol, rest.start, len);
            if cost > rest.cost {
                continue;
            }
            parts.push(Span { symbol, start: rest.start, len, cost });
            let after = Span {
                symbol: rest.symbol,
                start: rest.start + len,
                len: rest.len - len,
                cost: rest.cost - cost,
            };
            if self.split(symbols, after, parts) && (!symbols.is_empty() || after.cost == 0) {
                return true;
            }
            parts.pop();
        }
        false
    }
}

/// to[i] = min(to[i], from[i] + add)
fn lower(to: &mut [u16], from: &[u16], add: u16) {
    for (to, &from) in to.iter_mut().zip(from) {
        *to = (*to).min(from.saturating_add(add));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use support::golden;

    #[test]
    fn least_substitutions_equal_the_published_ones() {
        let cases = golden::cases("lano_edit");
        assert_eq!(cases.len(), 3);
        for case in &cases {
            let grammar = Grammar::named(case["config"].as_str().unwrap()).unwrap();
            let repair = grammar.least_substitutions(&golden::tokens(&case["tokens"])).unwrap();
            assert_eq!(repair.substitutions, case["min_substitutions"]);
            assert_eq!(
                repair.wrong_per_level,
                golden::tokens(&case["wrong_per_level_leaf_to_root"])
            );
        }
    }
}
