//! The grammars under `tools/editors/`: they follow from the language, and colour every committed file as the lexer reads it.
//!
//! The TextMate rules are applied as an editor applies them: line by line, at each place the first rule that matches earliest.

use dsl::{TokenClass, tokens};
use fancy_regex::Regex;
use serde_json::Value;
use support::programs::{files, read};

#[test]
fn grammars_follow_from_the_language() {
    for (name, text) in lsp::grammar_files() {
        let committed = read(name);
        let same = match name.ends_with(".json") {
            true => {
                let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
                value(&committed) == value(&text)
            }
            false => committed == text,
        };
        assert!(same, "{name} is not up to date: make grammars");
    }
}

struct GrammarRule {
    pattern: Regex,
    name: String,
    captures: Vec<(usize, String)>,
}

fn rules() -> Vec<GrammarRule> {
    let grammar: Value =
        serde_json::from_str(&read("tools/editors/vscode/syntaxes/canon.tmLanguage.json")).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let rule = |rule: &Value| GrammarRule {
        pattern: Regex::new(rule["match"].as_str().unwrap()).unwrap(),
        name: text(&rule["name"]),
        captures: rule["captures"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(at, capture)| (at.parse().unwrap(), text(&capture["name"])))
            .collect(),
    };
    grammar["patterns"].as_array().unwrap().iter().map(rule).collect()
}

/// The scope of every byte of a line.
fn scopes(rules: &[GrammarRule], line: &str) -> Vec<String> {
    let mut scopes = vec![String::new(); line.len()];
    let mut at = 0;
    while at < line.len() {
        let captures = rules.iter().filter_map(|rule| {
            let captures = rule.pattern.captures_from_pos(line, at).unwrap()?;
            Some((captures.get(0).unwrap().start(), rule, captures))
        });
        // Of several rules that match at one place, the first.
        let Some((_, rule, captures)) = captures.min_by_key(|(start, ..)| *start) else { break };
        let matched = captures.get(0).unwrap();
        scopes[matched.range()].fill(rule.name.clone());
        for (group, name) in &rule.captures {
            if let Some(part) = captures.get(*group) {
                scopes[part.range()].fill(name.clone());
            }
        }
        at = matched.end().max(at + 1);
        while !line.is_char_boundary(at) {
            at += 1;
        }
    }
    scopes
}

#[test]
fn every_committed_file_is_coloured_as_it_is_read() {
    let rules = rules();
    let names: Vec<String> =
        ["std", "arch"].iter().flat_map(|folder| files(folder, "canon")).collect();
    assert!(names.len() > 80, "{}", names.len());
    for name in names {
        let text = read(&name);
        let lines: Vec<(usize, &str)> = text
            .split_inclusive('\n')
            .scan(0, |start, line| {
                *start += line.len();
                Some((*start - line.len(), line.trim_end_matches('\n')))
            })
            .collect();
        let coloured: Vec<Vec<String>> =
            lines.iter().map(|(_, line)| scopes(&rules, line)).collect();
        for token in tokens(&text) {
            let line = lines.partition_point(|(start, _)| *start <= token.start) - 1;
            let scope = &coloured[line][token.start - lines[line].0];
            let word = &text[token.start..token.end];
            let fits = match token.class {
                TokenClass::Comment => scope.starts_with("comment.line.double-slash"),
                TokenClass::Doc => scope.starts_with("comment.line.documentation"),
                TokenClass::Number => scope.starts_with("constant.numeric"),
                TokenClass::Text => scope.starts_with("string"),
                TokenClass::Reserved => {
                    scope.starts_with("keyword") || scope.starts_with("constant.language")
                }
                TokenClass::Name => !scope.starts_with("keyword") && !scope.starts_with("comment"),
                TokenClass::Soft => !scope.starts_with("comment"),
                TokenClass::Sign => scope.is_empty() || scope.starts_with("keyword.operator"),
                TokenClass::Bad => false,
            };
            assert!(fits, "{name}: `{word}` has the scope `{scope}`");
        }
    }
    let scope = |line: &str, word: &str| scopes(&rules, line)[line.find(word).unwrap()].clone();
    assert_eq!(scope("  q = linear wq (x, n)", "linear"), "support.function.canon");
    assert_eq!(scope("  h = silu(x)", "silu"), "support.function.canon");
    assert_eq!(scope("  init lingua", "lingua"), "");
    assert_eq!(scope("  mixer attention { heads 4 }", "attention"), "");
    assert_eq!(scope("mixer attention(x; heads) {", "attention"), "entity.name.function.canon");
    assert_eq!(scope("  canon A, B { kernel 4 }", "canon"), "keyword.control.canon");
    assert_eq!(scope("  canon      normal(0.02)", "canon"), "keyword.control.canon");
    assert_eq!(scope("  q = slot B(q)", "B"), "variable.other.enummember.canon");
}
