//! The Lano task: sentences of a context-free grammar, token for token those of the published sampler, with or without
//! their trees: depth first, left to right, one draw at each symbol that has rules.
//!
//! The paper is "Physics of Language Models: Part 4.1", appendix A; the grammars are those of Part 1.

mod describe;

use super::TaskError;
use super::arguments::Arguments;
use super::cpython::Random;
use super::grammar::tree::Tree;
use super::grammar::{FILE, Grammar, GrammarFile, NAMES, RULE_WIDTH};
use super::metric::{EVAL_LOSS, KL, VALIDITY};
use super::parameter::Default::{Nothing, RequiredInRecipes};
use super::parameter::Values::{Int, Name, Object};
use super::parameter::{Parameter, parameter};
use super::sample::{Mode, Tape};
use super::task::{Definition, Generator, InTraining, Scoring, Scratch, definition};
use super::words::Writer;

/// Lano's row.
pub static DEFINITION: Definition = Definition {
    usage: "config or grammar=@FILE.json [root vocab depth]
            config=cfg3b|cfg3e1|cfg3e2|cfg3f|cfg3g|cfg3h|cfg3i|cfg3j|cfg3k",
    example: r#"{"config": "cfg3b"}"#,
    metrics: &[EVAL_LOSS, KL, VALIDITY],
    usual_metrics: &[EVAL_LOSS, KL, VALIDITY],
    written: &[KL, VALIDITY],
    in_training: InTraining::Never,
    ..definition::<Lano>("lano", 1, PARAMETERS)
};

/// Where a grammar is given, `root`, `vocab` and `depth` are checked against it.
#[rustfmt::skip]
const PARAMETERS: &[Parameter] = &[
    parameter("data.lano.config", Name(NAMES), RequiredInRecipes, "The published grammar."),
    parameter("data.lano.grammar", Object(&FILE), Nothing, "A grammar of the same form as the published files.").outside_recipes(),
    parameter("data.lano.root", Int(i64::MIN, i64::MAX), Nothing, "The root's id.").outside_recipes(),
    parameter("data.lano.vocab", Int(i64::MIN, i64::MAX), Nothing, "Number of tokens.").outside_recipes(),
    parameter("data.lano.depth", Int(i64::MIN, i64::MAX), Nothing, "Number of levels below the root.").outside_recipes(),
];

/// A checked Lano task.
#[derive(Clone, Debug)]
pub struct Lano {
    grammar: Grammar,
}

impl Generator for Lano {
    fn new(arguments: &Arguments) -> Result<Lano, TaskError> {
        let grammar = given_grammar(arguments)?;
        let facts = [
            ("root", i64::from(grammar.symbol(0).id)),
            ("vocab", i64::from(grammar.tokens())),
            ("depth", grammar.depth() as i64),
        ];
        for (name, fact) in facts {
            let written: Option<i64> = arguments.get(name)?;
            if let Some(other) = written.filter(|number| *number != fact) {
                return Err(TaskError::new(
                    format!("lano: {name} is {other}, but in the grammar it is {fact}"),
                    format!("leave {name} out: it follows from the grammar"),
                ));
            }
        }
        Ok(Lano { grammar })
    }

    fn vocab(&self) -> u32 {
        self.grammar.end() + 1
    }

    fn alphabet(&self) -> Vec<u32> {
        (1..=self.grammar.tokens()).chain([self.grammar.end()]).collect()
    }

    fn separator(&self) -> Option<u32> {
        Some(self.grammar.end())
    }

    fn identity(&self) -> Option<String> {
        let digest = blake3::Hasher::new_derive_key("canonc 1 data lano grammar")
            .update(self.grammar.canonical().as_bytes())
            .finalize();
        Some(format!("grammar {digest}\n"))
    }

    fn sample(&self, random: &mut Random, _mode: Mode, _scratch: &mut Scratch, tape: &mut Tape) {
        let most = self.grammar.lengths().1 as usize + RULE_WIDTH;
        let mut writer = Writer::new(&mut tape.tokens, most);
        match self.grammar.depth() {
            1 => self.write_tokens(random, 0, &mut writer),
            depth => self.expand(random, 0, depth - 2, &mut writer),
        }
        writer.finish();
    }

    /// Shows the tree of the draws, or else the first parse.
    fn describe(&self, tape: &Tape, random: Option<&Random>) -> String {
        let tree = random.map(|random| self.sample_tree(&mut random.clone()));
        describe::sentence(&self.grammar, &tape.tokens, tree.as_ref())
    }

    fn scoring(&self) -> Scoring<'_> {
        Scoring::Sentences(&self.grammar)
    }
}

/// The published grammar or the other one, whichever the parameters give.
fn given_grammar(arguments: &Arguments) -> Result<Grammar, TaskError> {
    let config: Option<String> = arguments.get("config")?;
    let file: Option<GrammarFile> = arguments.get("grammar")?;
    match (config, file) {
        (Some(config), None) => Grammar::named(&config),
        (None, Some(file)) => Grammar::new(&file),
        (config, _) => Err(TaskError::new(
            format!(
                "lano: {} grammar is given",
                if config.is_some() { "more than one" } else { "no" }
            ),
            "write either config = \"cfg3f\" (a published grammar), or grammar = the content of a grammar file",
        )),
    }
}

impl Lano {
    /// The checked grammar.
    pub fn grammar(&self) -> &Grammar {
        &self.grammar
    }

    /// Writes a random expansion of `symbol`, which has tokens `levels` + 2 levels below it. The last two levels avoid
    /// recursion, which removes most of its unpredictable branches.
    fn expand(&self, random: &mut Random, symbol: u32, levels: usize, writer: &mut Writer) {
        let rules = self.grammar.rules(symbol);
        let rule = &rules[random.index(rules.len())];
        for &child in rule.symbols() {
            if levels == 0 {
                self.write_tokens(random, child, writer);
            } else {
                self.expand(random, child, levels - 1, writer);
            }
        }
    }

    /// Writes the tokens of a drawn rule of `symbol`. Their number is unpredictable, so all positions are written and
    /// the length selects.
    #[inline]
    fn write_tokens(&self, random: &mut Random, symbol: u32, writer: &mut Writer) {
        let rules = self.grammar.rules(symbol);
        let rule = &rules[random.index(rules.len())];
        let base = self.grammar.level(self.grammar.depth()).start;
        writer.push_some(
            rule.symbols.map(|symbol| symbol.wrapping_sub(base).wrapping_add(1)),
            rule.len as usize,
        );
    }

    /// The derivation of the sentence that these draws write.
    pub fn sample_tree(&self, random: &mut Random) -> Tree {
        let mut symbols = Vec::new();
        let mut open = vec![0];
        while let Some(symbol) = open.pop() {
            symbols.push(symbol);
            let rules = self.grammar.rules(symbol);
            if !rules.is_empty() {
                open.extend(rules[random.index(rules.len())].symbols().iter().rev());
            }
        }
        Tree::new(symbols)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::CONFIGS;
    use crate::task::Task;
    use serde_json::{Value, json};
    use support::golden::{self, StreamDigest};

    #[test]
    fn sentences_and_trees_equal_the_published_ones() {
        let cases = golden::cases("lano");
        assert_eq!(cases.len(), 27);
        for case in &cases {
            let task = Task::parse("lano", case["params"].clone()).unwrap();
            let arguments = DEFINITION.arguments(case["params"].clone()).unwrap();
            let lano = Lano::new(&arguments).unwrap();
            let grammar = lano.grammar();
            let seed = case["seed"].as_u64().unwrap();
            let (mut random, mut trees) = (Random::new(seed), Random::new(seed));
            let (mut scratch, mut tape) = (Scratch::default(), Tape::default());
            let (mut tokens_digest, mut tree_digest) =
                (StreamDigest::default(), StreamDigest::default());
            let script = case["mode"] == "script";
            let mut lengths = Vec::new();
            for number in 0..if script { 1 } else { 200 } {
                tape.clear();
                task.sample(&mut random, Mode::Train, &mut scratch, &mut tape);
                let tree = lano.sample_tree(&mut trees);
                assert_eq!(tree.tokens(grammar), tape.tokens);
                let rows: Vec<u32> = tree.rows(grammar).iter().map(|&entry| entry as u32).collect();
                if let Some(want) = case["samples"].get(number) {
                    assert_eq!(tape.tokens, golden::tokens(&want["tokens"]));
                    if let Some(want) = want["tree_first16"].as_array() {
                        let want: Vec<u32> = want.iter().flat_map(row).collect();
                        assert_eq!(rows[..want.len()], want);
                    }
                }
                if let Some(want) = case["lens_first20"].get(number) {
                    assert_eq!(tape.tokens.len(), want.as_u64().unwrap() as usize);
                }
                lengths.push(tape.tokens.len());
                tokens_digest.add(tape.tokens.iter().copied());
                tree_digest.add(rows.into_iter());
            }
            assert_eq!(random.next_u32(), case["next_u32_after"], "{}", case["id"]);
            if !script {
                tokens_digest.check(&case["digest_tokens"]);
                tree_digest.check(&case["digest_tree"]);
                let mean = lengths.iter().sum::<usize>() as f64 / lengths.len() as f64;
                let (least, most) = (lengths.iter().min().unwrap(), lengths.iter().max().unwrap());
                assert_eq!(json!([least, mean, most]), case["len_min_mean_max_200"]);
            }
        }
    }

    fn row(row: &Value) -> Vec<u32> {
        row.as_array().unwrap().iter().map(|entry| entry.as_i64().unwrap() as u32).collect()
    }

    #[test]
    fn the_published_grammars_match_the_paper() {
        // Name, levels below the root, tokens, rules, and lengths of sentences.
        let table = [
            ("cfg3b", 6, 3, 32, (138, 432)),
            ("cfg3e1", 6, 9, 444, (66, 557)),
            ("cfg3e2", 6, 4, 228, (82, 645)),
            ("cfg3f", 6, 3, 54, (64, 729)),
            ("cfg3g", 6, 3, 48, (80, 729)),
            ("cfg3h", 6, 3, 39, (97, 459)),
            ("cfg3i", 6, 3, 32, (114, 564)),
            ("cfg3j", 7, 3, 57, (128, 2052)),
            ("cfg3k", 7, 3, 68, (132, 1458)),
        ];
        let mut canonical = std::collections::BTreeSet::new();
        for (name, depth, tokens, rules, lengths) in table {
            let grammar = Grammar::named(name).unwrap();
            assert_eq!((grammar.depth(), grammar.tokens()), (depth, tokens), "{name}");
            assert_eq!((grammar.rule_count(), grammar.lengths()), (rules, lengths), "{name}");
            assert_eq!(grammar.end(), tokens + 1);
            canonical.insert(grammar.canonical());
        }
        assert_eq!(canonical.len(), CONFIGS.len());
    }

    #[test]
    fn errors_name_the_bad_parameter() {
        let file = json!({"depth": 1, "num_sym": 2, "sizes": [1, 2], "idx": [[6], [1, 2]],
            "all": [[{"id": 6, "children": [[0, 1]]}], [{"id": 1}, {"id": 2}]]});
        assert!(Task::parse("lano", json!({"grammar": file})).is_ok());
        let cases = [
            (json!({}), "no grammar is given"),
            (json!({"config": "cfg3f", "grammar": file}), "more than one grammar"),
            (json!({"config": "cfg3z"}), "`cfg3z` is not a published grammar"),
            (json!({"config": "cfg3f", "root": 21}), "root is 21, but in the grammar it is 22"),
            (json!({"config": "cfg3f", "vocab": 4}), "vocab is 4, but in the grammar it is 3"),
            (json!({"config": "cfg3f", "depth": 7}), "depth is 7, but in the grammar it is 6"),
            (json!({"config": "cfg3f", "N": 7}), "has no parameter `N`"),
        ];
        for (params, want) in cases {
            let error = Task::parse("lano", params).unwrap_err();
            assert!(error.message.contains(want), "{error}");
            assert!(!error.help.is_empty());
        }
    }
}
