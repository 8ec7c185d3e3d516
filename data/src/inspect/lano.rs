//! In: a sentence, its grammar and perhaps its tree. Out: the tree as text: upper levels by indentation, each subtree
//! below them on one line in brackets. Must stay true: the number of lines is at most the number of symbols on the
//! upper levels, down to the second level above the tokens.

use tasks::lano::chart::{Chart, Parses};
use tasks::lano::grammar::Grammar;
use tasks::lano::tree::Tree;

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
    let own;
    let tree = match tree {
        Some(tree) => tree,
        None => {
            own = chart.tree();
            &own
        }
    };
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
