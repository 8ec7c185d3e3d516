//! Grammars with numbered levels, checked: the root is on level 0 and the tokens are on the last.
//!
//! No accepted grammar makes sampling or parsing run away: every rule leads exactly one level down, and lengths are
//! bounded before any allocation. `tree` is a sentence's derivation, `chart` decides membership and counts parses, `edit`
//! finds the fewest substitutions, `law` is the true next-token law and the KL divergence from it.

pub mod chart;
pub mod edit;
pub mod law;
#[cfg(test)]
mod oracle;
pub mod tree;

use serde::Deserialize;

use crate::TaskError;
use crate::parameter::{Form, Key};

/// The published grammars, by name.
pub const CONFIGS: [(&str, &str); 9] = [
    ("cfg3b", include_str!("../fields/lano/cfg3b.json")),
    ("cfg3e1", include_str!("../fields/lano/cfg3e1.json")),
    ("cfg3e2", include_str!("../fields/lano/cfg3e2.json")),
    ("cfg3f", include_str!("../fields/lano/cfg3f.json")),
    ("cfg3g", include_str!("../fields/lano/cfg3g.json")),
    ("cfg3h", include_str!("../fields/lano/cfg3h.json")),
    ("cfg3i", include_str!("../fields/lano/cfg3i.json")),
    ("cfg3j", include_str!("../fields/lano/cfg3j.json")),
    ("cfg3k", include_str!("../fields/lano/cfg3k.json")),
];

/// The names of [`CONFIGS`].
pub const NAMES: &[&str] = &{
    let mut names = [""; CONFIGS.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = CONFIGS[at].0;
        at += 1;
    }
    names
};

/// Maximum number of symbols in a rule.
pub const RULE_WIDTH: usize = 4;
/// Maximum sentence length of an accepted grammar: four times the longest of a published one.
pub const LONGEST: u64 = 8192;
const MOST_SYMBOLS: usize = 4096;
const MOST_RULES: usize = 65_536;
/// Bounds on parsing the longest sentence: the size of its chart, and the number of joins of two spans, if every
/// possible span were derived.
const MOST_CELLS: f64 = 5e7;
const MOST_JOINS: f64 = 2e10;

/// The form of a grammar file: what [`GrammarFile`] reads.
pub(super) const FILE: Form = Form::Object(
    "an object with depth, num_sym, sizes, idx and all",
    &[
        required("depth", Form::Int),
        required("num_sym", Form::Int),
        required("sizes", Form::List(&Form::Int)),
        required("idx", Form::List(&Form::List(&Form::Int))),
        required("all", Form::List(&Form::List(&SYMBOL))),
        optional("count", Form::Int),
        optional("eos_token", Form::Int),
    ],
);
const SYMBOL: Form = Form::Object(
    "an object with id",
    &[
        optional("depth", Form::Int),
        required("id", Form::Int),
        optional("children", Form::List(&Form::List(&Form::Int))),
    ],
);

const fn required(name: &'static str, form: Form) -> Key {
    Key { name, form, is_optional: false }
}

const fn optional(name: &'static str, form: Form) -> Key {
    Key { name, form, is_optional: true }
}

/// A parsed grammar file, unchecked. Keys that describe how it was made are skipped.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct GrammarFile {
    /// Number of levels below the root.
    pub depth: i64,
    /// Number of tokens, the symbols of the last level.
    pub num_sym: i64,
    /// Number of symbols on each level.
    pub sizes: Vec<i64>,
    /// Ids of the symbols on each level.
    pub idx: Vec<Vec<i64>>,
    /// Symbols of each level with their rules.
    pub all: Vec<Vec<SymbolFile>>,
    /// The id of the root.
    pub count: Option<i64>,
    /// Id of the token that ends a sentence.
    pub eos_token: Option<i64>,
}

/// A symbol of a [`GrammarFile`]. Its rules are lists of indices into the next level.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SymbolFile {
    /// Level of the symbol.
    pub depth: Option<i64>,
    /// Id of the symbol.
    pub id: i64,
    /// Its rules; None for tokens.
    pub children: Option<Vec<Vec<i64>>>,
}

/// A checked grammar. Symbols of all levels are numbered together; the root is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grammar {
    /// Index of each level's first symbol, then the total number of symbols.
    levels: Vec<u32>,
    symbols: Vec<Symbol>,
    rules: Vec<GrammarRule>,
    end: u32,
}

/// A symbol of a checked grammar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// The published id. A token's id is the token itself.
    pub id: u32,
    /// Index of its first rule. Tokens have no rules.
    pub(super) rules: u32,
    pub(super) rule_count: u32,
    /// Minimum and maximum number of tokens in a sentence below this symbol.
    pub least: u32,
    /// Maximum number of tokens in a sentence below this symbol.
    pub most: u32,
}

/// A right-hand side: symbols of the next level. Unused places are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrammarRule {
    pub(super) symbols: [u32; RULE_WIDTH],
    pub(super) len: u32,
}

impl GrammarRule {
    /// The symbols, left to right.
    pub fn symbols(&self) -> &[u32] {
        &self.symbols[..self.len as usize]
    }
}

impl Grammar {
    /// A published grammar.
    pub fn named(name: &str) -> Result<Grammar, TaskError> {
        match CONFIGS.iter().find(|(config, _)| *config == name) {
            Some((_, text)) => Grammar::from_json(text),
            None => Err(TaskError::new(
                format!("lano: `{name}` is not a published grammar"),
                format!(
                    "write one of: {}; or give your own as `grammar`",
                    CONFIGS.map(|(config, _)| config).join(", ")
                ),
            )),
        }
    }

    /// Reads and checks a grammar file in the published JSON form.
    pub fn from_json(text: &str) -> Result<Grammar, TaskError> {
        let file = serde_json::from_str(text).map_err(|error| {
            TaskError::new(
                format!("lano: this is not a grammar file: {error}"),
                "give a JSON object with depth, num_sym, sizes, idx and all, like the published cfg3*.json",
            )
        })?;
        Grammar::new(&file)
    }

    /// Checks a parsed grammar file. Fails with the first fact that does not hold.
    pub fn new(file: &GrammarFile) -> Result<Grammar, TaskError> {
        let GrammarFile { depth, num_sym, sizes, idx, all, count, eos_token } = file;
        let depth = match usize::try_from(*depth) {
            Ok(depth) if (1..=64).contains(&depth) => depth,
            _ => {
                return Err(wrong(format!(
                    "depth is {depth}, but the root has 1 to 64 levels below it"
                )));
            }
        };
        for (name, levels) in [("sizes", sizes.len()), ("idx", idx.len()), ("all", all.len())] {
            if levels != depth + 1 {
                return Err(wrong(format!(
                    "`{name}` has {levels} levels, but depth {depth} means {}",
                    depth + 1
                )));
            }
        }
        let (mut levels, symbols) = numbered_symbols(file, depth)?;
        let tokens = symbols.len() - levels[depth] as usize;
        levels.push(symbols.len() as u32);
        check_ids(&symbols, tokens, *num_sym, *count)?;
        let end = eos_token.unwrap_or(tokens as i64 + 1);
        let end = u32::try_from(end).ok().filter(|end| (tokens as u32 + 1..1 << 24).contains(end));
        let Some(end) = end else {
            return Err(wrong(format!(
                "eos_token is {}, but tokens 1 to {tokens} are the sentence's own",
                eos_token.unwrap_or(0)
            )));
        };
        let mut grammar = Grammar { levels, symbols, rules: Vec::new(), end };
        // From the last level up, because a rule's length depends on the symbols below it.
        for (level, nodes) in all.iter().enumerate().rev() {
            for (position, node) in nodes.iter().enumerate() {
                grammar.add_rules(level, position, node)?;
            }
        }
        grammar.check_cost()?;
        Ok(grammar)
    }

    /// Refuses a grammar that can be sampled but needs too much time or memory to parse. The longest sentences of the
    /// published grammars stay several times below the bounds.
    fn check_cost(&self) -> Result<(), TaskError> {
        let starts = f64::from(self.lengths().1);
        let range = |symbol: u32| {
            let Symbol { least, most, .. } = *self.symbol(symbol);
            f64::from(most - least + 1)
        };
        let (mut cells, mut joins) = (self.rules.len() as f64, 0.0);
        for (number, symbol) in self.symbols.iter().enumerate() {
            cells += range(number as u32);
            let starts = if number == 0 { 1.0 } else { starts };
            for rule in &self.rules[symbol.rules as usize..][..symbol.rule_count as usize] {
                let mut ends = 0.0;
                for &child in rule.symbols() {
                    joins += starts * ends * range(child);
                    ends += range(child);
                }
            }
        }
        if cells * starts > MOST_CELLS || joins > MOST_JOINS {
            return Err(wrong(format!(
                "to parse its longest sentence, of {starts} tokens, takes {:.1e} cells and {joins:.1e} joins; at most {MOST_CELLS:e} and {MOST_JOINS:e} are allowed",
                cells * starts
            )));
        }
        Ok(())
    }

    fn add_rules(
        &mut self,
        level: usize,
        position: usize,
        node: &SymbolFile,
    ) -> Result<(), TaskError> {
        let Grammar { levels, symbols, rules, end: _ } = self;
        let SymbolFile { depth: _, id, children } = node;
        let children = children.as_deref().unwrap_or(&[]);
        let is_token = level + 2 == levels.len();
        if is_token != children.is_empty() {
            let has = if is_token { "rules, but it is a token" } else { "no rules" };
            return Err(wrong(format!("symbol {id} on level {level} has {has}")));
        }
        if rules.len() + children.len() > MOST_RULES {
            return Err(wrong(format!("it has more than {MOST_RULES} rules")));
        }
        if is_token {
            return Ok(());
        }
        let first = rules.len() as u32;
        let (below, after) = (levels[level + 1], levels[level + 2]);
        let (mut least, mut most) = (u64::MAX, 0);
        for rule in children {
            if rule.is_empty() || rule.len() > RULE_WIDTH {
                return Err(wrong(format!(
                    "a rule of symbol {id} has {} symbols, but must have 1 to {RULE_WIDTH}",
                    rule.len()
                )));
            }
            let mut padded = [0; RULE_WIDTH];
            let (mut rule_least, mut rule_most) = (0, 0);
            for (to, &from) in padded.iter_mut().zip(rule) {
                let symbol = u32::try_from(from).ok().and_then(|from| below.checked_add(from));
                let Some(symbol) = symbol.filter(|&symbol| symbol < after) else {
                    return Err(wrong(format!(
                        "a rule of symbol {id} leads to place {from}, but level {} has places 0 to {}",
                        level + 1,
                        after - below - 1
                    )));
                };
                *to = symbol;
                rule_least += u64::from(symbols[symbol as usize].least);
                rule_most += u64::from(symbols[symbol as usize].most);
            }
            (least, most) = (least.min(rule_least), most.max(rule_most));
            rules.push(GrammarRule { symbols: padded, len: rule.len() as u32 });
        }
        if most > LONGEST {
            return Err(wrong(format!(
                "below symbol {id} on level {level} there can be {most} tokens; at most {LONGEST} are allowed"
            )));
        }
        let symbol = &mut symbols[levels[level] as usize + position];
        symbol.rules = first;
        symbol.rule_count = children.len() as u32;
        (symbol.least, symbol.most) = (least as u32, most as u32);
        Ok(())
    }

    /// Number of levels below the root.
    pub fn depth(&self) -> usize {
        self.levels.len() - 2
    }

    /// Number of tokens; they are numbered from 1.
    pub fn tokens(&self) -> u32 {
        self.levels[self.depth() + 1] - self.levels[self.depth()]
    }

    /// The file's end token. Between sentences it marks the beginning of the next one.
    pub fn end(&self) -> u32 {
        self.end
    }

    /// Minimum and maximum length of a sentence.
    pub fn lengths(&self) -> (u32, u32) {
        (self.symbols[0].least, self.symbols[0].most)
    }

    /// The numbers of a level's symbols.
    pub fn level(&self, level: usize) -> std::ops::Range<u32> {
        self.levels[level]..self.levels[level + 1]
    }

    /// Number of symbols on all levels.
    pub fn symbol_count(&self) -> usize {
        self.symbols.len()
    }

    /// The symbol with this number.
    pub fn symbol(&self, symbol: u32) -> &Symbol {
        &self.symbols[symbol as usize]
    }

    /// The rules of a symbol; empty for tokens.
    pub fn rules(&self, symbol: u32) -> &[GrammarRule] {
        let Symbol { rules, rule_count, .. } = self.symbols[symbol as usize];
        &self.rules[rules as usize..(rules + rule_count) as usize]
    }

    /// Number of rules of all symbols.
    pub fn rule_count(&self) -> usize {
        self.rules.len()
    }

    /// The indices of a symbol's rules among all rules.
    pub(super) fn rule_numbers(&self, symbol: u32) -> std::ops::Range<usize> {
        let Symbol { rules, rule_count, .. } = self.symbols[symbol as usize];
        rules as usize..(rules + rule_count) as usize
    }

    /// The symbol of a token, if the grammar has it.
    pub fn symbol_of(&self, token: u32) -> Option<u32> {
        (1..=self.tokens()).contains(&token).then(|| self.levels[self.depth()] + token - 1)
    }

    /// Everything that affects a sentence, one symbol per line.
    pub fn canonical(&self) -> String {
        let mut text = format!("end {}\n", self.end);
        for level in 0..=self.depth() {
            for symbol in self.level(level) {
                text += &format!("{level} {}", self.symbol(symbol).id);
                for (i, rule) in self.rules(symbol).iter().enumerate() {
                    text += if i == 0 { " ->" } else { " |" };
                    for &child in rule.symbols() {
                        text += &format!(" {}", self.symbol(child).id);
                    }
                }
                text.push('\n');
            }
        }
        text
    }
}

/// The index of each level's first symbol, and the symbols of all levels, without rules.
fn numbered_symbols(
    file: &GrammarFile,
    depth: usize,
) -> Result<(Vec<u32>, Vec<Symbol>), TaskError> {
    let GrammarFile { sizes, idx, all, .. } = file;
    let mut levels = Vec::with_capacity(depth + 2);
    let mut symbols = Vec::new();
    for (level, ((size, ids), nodes)) in sizes.iter().zip(idx).zip(all).enumerate() {
        levels.push(symbols.len() as u32);
        if usize::try_from(*size) != Ok(nodes.len()) || ids.len() != nodes.len() {
            return Err(wrong(format!(
                "level {level} has size {size}, {} ids and {} symbols",
                ids.len(),
                nodes.len()
            )));
        }
        if nodes.is_empty() || level == 0 && nodes.len() > 1 {
            return Err(wrong(format!("level {level} has {} symbols", nodes.len())));
        }
        if symbols.len() + nodes.len() > MOST_SYMBOLS {
            return Err(wrong(format!("it has more than {MOST_SYMBOLS} symbols")));
        }
        for (&listed, SymbolFile { depth, id, children: _ }) in ids.iter().zip(nodes) {
            if listed != *id || depth.is_some_and(|depth| depth != level as i64) {
                return Err(wrong(format!(
                    "`all` has symbol {id} of depth {} where `idx` has {listed} on level {level}",
                    depth.unwrap_or(level as i64)
                )));
            }
            let Some(id) = u32::try_from(*id).ok().filter(|id| (1..1 << 24).contains(id)) else {
                return Err(wrong(format!("a symbol on level {level} has id {id}")));
            };
            symbols.push(Symbol { id, rules: 0, rule_count: 0, least: 1, most: 1 });
        }
    }
    Ok((levels, symbols))
}

/// Checks that tokens are numbered from 1, that ids are unique, and that the file's other facts are correct.
fn check_ids(
    symbols: &[Symbol],
    tokens: usize,
    num_sym: i64,
    count: Option<i64>,
) -> Result<(), TaskError> {
    if num_sym != tokens as i64 {
        return Err(wrong(format!(
            "num_sym is {num_sym}, but the last level has {tokens} symbols"
        )));
    }
    let mut numbered = symbols.iter().skip(symbols.len() - tokens).zip(1..);
    if !numbered.all(|(symbol, id)| symbol.id == id) {
        return Err(wrong(format!("the last level's ids are not 1 to {tokens}, in order")));
    }
    let mut ids: Vec<u32> = symbols.iter().map(|symbol| symbol.id).collect();
    ids.sort_unstable();
    if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(wrong(format!("id {} names two symbols", twice[0])));
    }
    let root = symbols.first().map_or(0, |root| i64::from(root.id));
    match count {
        Some(count) if count != root => {
            Err(wrong(format!("count is {count}, but the root has id {root}")))
        }
        _ => Ok(()),
    }
}

fn wrong(message: String) -> TaskError {
    TaskError::new(
        format!("lano: the grammar cannot be used: {message}"),
        "correct the grammar file, or name a published grammar, as in config = \"cfg3f\"",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn small() -> Value {
        json!({"depth": 2, "num_sym": 2, "sizes": [1, 2, 2], "idx": [[8], [6, 7], [1, 2]], "count": 8,
            "eos_token": 3, "all": [
                [{"depth": 0, "id": 8, "children": [[0, 1], [1, 1, 0]]}],
                [{"depth": 1, "id": 6, "children": [[0, 1]]}, {"depth": 1, "id": 7, "children": [[1], [0, 0]]}],
                [{"depth": 2, "id": 1, "children": null}, {"depth": 2, "id": 2, "children": []}]]})
    }

    #[test]
    fn a_file_becomes_a_grammar() {
        let grammar = Grammar::from_json(&small().to_string()).unwrap();
        assert_eq!(
            grammar.canonical(),
            "end 3\n0 8 -> 6 7 | 7 7 6\n1 6 -> 1 2\n1 7 -> 2 | 1 1\n2 1\n2 2\n"
        );
        assert_eq!((grammar.lengths(), grammar.rule_count()), ((3, 6), 5));
        assert_eq!(
            (grammar.symbol_of(2), grammar.symbol_of(0), grammar.symbol_of(3)),
            (Some(4), None, None)
        );
    }

    #[test]
    fn hostile_files_get_an_answer() {
        let with = |pointer: &str, value: Value| {
            let mut file = small();
            *file.pointer_mut(pointer).unwrap() = value;
            file
        };
        let cases = [
            (json!({}), "missing field `depth`"),
            (json!([]), "not a grammar file"),
            (with("/depth", json!(0)), "depth is 0"),
            (with("/depth", json!(65)), "depth is 65"),
            (with("/depth", json!(i64::MIN)), "depth is -9223372036854775808"),
            (with("/depth", json!(3)), "`sizes` has 3 levels, but depth 3 means 4"),
            (with("/all", json!([])), "`all` has 0 levels"),
            (with("/idx", json!([[8], [6, 7]])), "`idx` has 2 levels"),
            (with("/sizes", json!([1, 3, 2])), "level 1 has size 3, 2 ids and 2 symbols"),
            (with("/sizes/1", json!(-2)), "level 1 has size -2"),
            (with("/num_sym", json!(3)), "num_sym is 3"),
            (with("/count", json!(7)), "count is 7, but the root has id 8"),
            (with("/eos_token", json!(2)), "eos_token is 2"),
            (with("/idx/1", json!([7, 6])), "symbol 6 of depth 1 where `idx` has 7"),
            (with("/all/1/0/depth", json!(0)), "symbol 6 of depth 0"),
            (with("/all/0/0/children", json!([])), "symbol 8 on level 0 has no rules"),
            (with("/all/0/0/children", json!(null)), "symbol 8 on level 0 has no rules"),
            (with("/all/0/0/children/0", json!([])), "a rule of symbol 8 has 0 symbols"),
            (with("/all/0/0/children/0", json!([0, 0, 0, 0, 0])), "has 5 symbols"),
            // A circular rule would have to point to a place that the level below does not have.
            (
                with("/all/1/0/children/0", json!([2])),
                "leads to place 2, but level 2 has places 0 to 1",
            ),
            (with("/all/1/0/children/0", json!([-1])), "leads to place -1"),
            (with("/all/1/0/children/0", json!([i64::MAX])), "leads to place 9223372036854775807"),
            (with("/all/2/0/children", json!([[0]])), "has rules, but it is a token"),
        ];
        for (file, want) in cases {
            let error = Grammar::from_json(&file.to_string()).unwrap_err();
            assert!(error.message.contains(want), "{error}");
            assert!(!error.help.is_empty());
        }
        let doubled = json!({"depth": 1, "num_sym": 1, "sizes": [1, 1], "idx": [[1], [1]],
            "all": [[{"id": 1, "children": [[0]]}], [{"id": 1}]]});
        let error = Grammar::from_json(&doubled.to_string()).unwrap_err();
        assert!(error.message.contains("id 1 names two symbols"), "{error}");
        for text in ["", "{", "null", &"[".repeat(100_000)] {
            assert!(Grammar::from_json(text).unwrap_err().message.contains("not a grammar file"));
        }
    }

    /// A chain of `levels` symbols. Each of a symbol's rules repeats the symbol below it as often as `rules` says.
    fn chain(levels: i64, rules: &[usize]) -> String {
        let level = |level: i64| {
            let rules: Vec<_> = rules.iter().map(|&times| vec![0; times]).collect();
            let id = if level == levels { 1 } else { 100 - level };
            json!([{"id": id, "children": (level < levels).then_some(rules)}])
        };
        let all: Vec<Value> = (0..=levels).map(level).collect();
        let idx: Vec<Value> = all.iter().map(|level| json!([level[0]["id"]])).collect();
        json!({"depth": levels, "num_sym": 1, "sizes": vec![1; all.len()], "idx": idx, "all": all})
            .to_string()
    }

    #[test]
    fn sentences_too_long_to_be_made_or_parsed_are_refused() {
        assert_eq!(Grammar::from_json(&chain(6, &[4])).unwrap().lengths(), (4096, 4096));
        assert_eq!(Grammar::from_json(&chain(64, &[1])).unwrap().lengths(), (1, 1));
        assert_eq!(Grammar::from_json(&chain(12, &[1, 2])).unwrap().lengths(), (1, 4096));
        for levels in [7, 33, 64] {
            let error = Grammar::from_json(&chain(levels, &[4])).unwrap_err();
            assert!(error.message.contains("there can be 16384 tokens"), "{error}");
        }
        let error = Grammar::from_json(&chain(12, &[1, 2, 2, 2, 2, 2])).unwrap_err();
        assert!(error.message.contains("cells and"), "{error}");
    }
}
