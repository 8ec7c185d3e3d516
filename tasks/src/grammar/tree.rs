//! The derivation tree of a sentence, and its published form: one row per token, from the token up to the root. In a row
//! each level has two numbers: its symbol's id, and minus a counter that is 2 for the first symbol of the level.

use super::Grammar;

/// A derivation of a sentence: its symbols, depth first, left to right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    symbols: Vec<u32>,
}

impl Tree {
    pub(crate) fn new(symbols: Vec<u32>) -> Tree {
        Tree { symbols }
    }

    /// The symbols, depth first, left to right.
    pub fn symbols(&self) -> &[u32] {
        &self.symbols
    }

    /// The tokens of the sentence.
    pub fn tokens(&self, grammar: &Grammar) -> Vec<u32> {
        let first_token = grammar.level(grammar.depth()).start;
        self.symbols
            .iter()
            .filter(|&&symbol| symbol >= first_token)
            .map(|&symbol| grammar.symbol(symbol).id)
            .collect()
    }

    /// The tree form, row after row. A row has two numbers per level.
    pub fn rows(&self, grammar: &Grammar) -> Vec<i32> {
        let starts: Vec<u32> =
            (0..=grammar.depth()).map(|level| grammar.level(level).start).collect();
        // For each level, the id of the current ancestor and its counter.
        let mut path = vec![(0, -1); starts.len()];
        let mut rows = Vec::new();
        for &symbol in &self.symbols {
            let level = starts.partition_point(|&start| start <= symbol) - 1;
            path[level].0 = grammar.symbol(symbol).id as i32;
            path[level].1 -= 1;
            if level == grammar.depth() {
                rows.extend(path.iter().rev().flat_map(|&(id, counter)| [id, counter]));
            }
        }
        rows
    }
}
