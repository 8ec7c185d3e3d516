//! A sentence and its tree as text: upper levels by indentation, each subtree below them on one line in brackets. The
//! number of lines is at most the number of symbols down to the second level above the tokens.

use std::borrow::Cow;

use crate::grammar::Grammar;
use crate::grammar::chart::{Chart, Parses};
use crate::grammar::tree::Tree;

/// Number of levels written in brackets on one line, including the tokens' level.
const BRACKETED: usize = 4;

pub(super) fn sentence(grammar: &Grammar, tokens: &[u32], tree: Option<&Tree>) -> String {
    let Some(chart) = Chart::new(grammar, tokens) else {
        let nearest = match grammar.least_substitutions(tokens) {
            Some(repair) => {
                format!("replacing {} of its tokens makes it one", repair.substitutions)
            }
            None => "no sentence has this length".to_owned(),
        };
        return format!("not a sentence of the grammar: {nearest}\n");
    };
    let parses = match chart.parses() {
        Parses::Exactly(1) => "one parse".to_owned(),
        Parses::Exactly(count) => format!("{count} parses"),
        Parses::TooManyToCount => "more parses than can be counted".to_owned(),
    };
    let law = grammar.law(tokens);
    let mut text = format!(
        "a sentence with {parses}, probability e^{:.2}, {:.3} nats per token expected\n",
        law.log_probability(),
        law.entropy(),
    );
    let tree = tree.map_or_else(|| Cow::Owned(chart.tree()), Cow::Borrowed);
    text += &drawn(grammar, &tree);
    text
}

/// A tree with a symbol of the upper levels on each line.
fn drawn(grammar: &Grammar, tree: &Tree) -> String {
    let mut text = String::new();
    let starts: Vec<u32> = (0..=grammar.depth()).map(|level| grammar.level(level).start).collect();
    let bracketed = grammar.depth().saturating_sub(BRACKETED - 1);
    // The levels of the symbols with an open bracket.
    let mut open: Vec<usize> = Vec::new();
    for &symbol in tree.symbols() {
        let level = starts.partition_point(|&start| start <= symbol) - 1;
        while open.last().is_some_and(|&last| last >= level) {
            open.pop();
            text.push(')');
        }
        if level <= bracketed {
            text += &format!(
                "{}{}{}",
                if level == 0 { "" } else { "\n" },
                "  ".repeat(level),
                grammar.symbol(symbol).id
            );
        } else {
            text += if text.ends_with('(') { "" } else { " " };
            text += &grammar.symbol(symbol).id.to_string();
        }
        if level >= bracketed && level < grammar.depth() {
            text += if level == bracketed { " (" } else { "(" };
            open.push(level);
        }
    }
    text + &")".repeat(open.len()) + "\n"
}
