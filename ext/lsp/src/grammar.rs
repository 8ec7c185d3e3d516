//! Grammars of the language for editors that colour by patterns: TextMate's, and queries for tree-sitter.
//!
//! `make grammars` writes exactly these texts under `tools/editors/`. A callee is recognised by its place, so that a new primitive
//! changes none of them; which one it is, the language server knows.

use compiler::number::InitRule;
use compiler::op;
use dsl::{WordRole, keywords};
use serde_json::{Value, json};

use crate::sitter;

/// A name of the language.
const NAME: &str = "[A-Za-z_][A-Za-z0-9_]*";

/// The files that follow from the language, by their paths in the repository.
pub fn files() -> Vec<(&'static str, String)> {
    vec![
        ("tools/editors/vscode/syntaxes/canon.tmLanguage.json", textmate()),
        ("tools/editors/tree-sitter-canon/src/grammar.json", sitter::grammar()),
        ("tools/editors/tree-sitter-canon/queries/highlights.scm", highlights()),
    ]
}

/// The reserved words with one of these roles.
fn reserved(roles: &[WordRole]) -> Vec<&'static str> {
    let all = keywords().filter(|(_, role, is_name)| roles.contains(role) && !is_name);
    all.map(|(word, ..)| word).collect()
}

/// The words that begin a definition, reserved or not.
fn definitions() -> Vec<&'static str> {
    let role = |word: &str, role| {
        role == WordRole::Definition && !["import", "from", "as", "with"].contains(&word)
    };
    keywords().filter(|(word, of, _)| role(word, *of)).map(|(word, ..)| word).collect()
}

fn any(words: &[&str]) -> String {
    format!("\\b({})\\b", words.join("|"))
}

/// A grammar for VS Code, Sublime Text, GitHub and all that read TextMate's format.
fn textmate() -> String {
    let rule =
        |name: &str, pattern: String| json!({ "name": format!("{name}.canon"), "match": pattern });
    let captured = |pattern: String, names: &[&str]| -> Value {
        let captures: serde_json::Map<String, Value> = names
            .iter()
            .enumerate()
            .filter(|(_, name)| !name.is_empty())
            .map(|(at, name)| ((at + 1).to_string(), json!({ "name": format!("{name}.canon") })))
            .collect();
        json!({ "match": pattern, "captures": captures })
    };
    // A call: the callee, then perhaps the name of an instance, then `(`.
    let call = format!("(?=\\s*(?:{NAME}\\s*)?\\()");
    let patterns = vec![
        rule("comment.line.documentation", "///(?!/).*$".to_owned()),
        rule("comment.line.double-slash", "//.*$".to_owned()),
        rule("string.quoted.double", "\"[^\"\\n]*\"".to_owned()),
        rule(
            "constant.numeric",
            "\\b[0-9][0-9_]*(?:\\.[0-9][0-9_]*)?(?:[eE][+-]?[0-9]+)?\\b".to_owned(),
        ),
        captured(
            format!("^({})\\s+({NAME})", definitions().join("|")),
            &["keyword.other", "entity.name.function"],
        ),
        captured(
            format!("\\b(slot)\\s+({NAME})"),
            &["keyword.control", "variable.other.enummember"],
        ),
        captured(format!("\\b(canon|fill|empty)(?=\\s+{NAME})"), &["keyword.control"]),
        captured("\\b(layers)(?=\\s*[\\[0-9])".to_owned(), &["keyword.control"]),
        captured(format!("\\b(carry)(?=\\s+{NAME}\\s*=)"), &["keyword.control"]),
        rule("keyword.other", any(&reserved(&[WordRole::Definition]))),
        rule("keyword.control", any(&reserved(&[WordRole::Statement]))),
        rule("keyword.operator.word", any(&reserved(&[WordRole::Operator]))),
        rule("constant.language", any(&reserved(&[WordRole::Constant]))),
        captured(format!("\\b({NAME}){call}"), &["support.function"]),
        rule("support.function", any(&InitRule::NAMES)),
        rule("support.constant", any(&op::WORDS)),
        rule("keyword.operator", "==|!=|<=|>=|[=<>+\\-*/]".to_owned()),
    ];
    let grammar = json!({
        "information_for_contributors": [
            "Written by `make grammars` from the words of the language."
        ],
        "name": "canon",
        "scopeName": "source.canon",
        "fileTypes": ["canon"],
        "patterns": patterns,
    });
    written(&grammar)
}

fn written(value: &Value) -> String {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}

/// Queries that colour a tree of tree-sitter.
fn highlights() -> String {
    let list = |words: &[&str]| -> String {
        let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
        format!("[{}]", words.join(" "))
    };
    let words: Vec<&str> = keywords()
        .filter(|(_, role, _)| matches!(role, WordRole::Definition | WordRole::Statement))
        .map(|(word, ..)| word)
        .collect();
    let signs = ["=", "==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/"];
    let lines = [
        "; Written by `make grammars` from the words of the language.".to_owned(),
        "(comment) @comment".to_owned(),
        "(doc) @comment.documentation".to_owned(),
        "(string) @string".to_owned(),
        "(number) @number".to_owned(),
        "(boolean) @boolean".to_owned(),
        format!("{} @keyword", list(&words)),
        format!("{} @keyword.operator", list(&reserved(&[WordRole::Operator]))),
        format!("{} @operator", list(&signs)),
        "(definition name: (name) @function)".to_owned(),
        "(alias name: (name) @function)".to_owned(),
        "(init_table name: (name) @type)".to_owned(),
        "(arch name: (name) @type)".to_owned(),
        "(call function: (name) @function.call)".to_owned(),
        "(call instance: (name) @property)".to_owned(),
        "(slot name: (name) @constant)".to_owned(),
        "(path (name) @property)".to_owned(),
    ];
    lines.join("\n") + "\n"
}
