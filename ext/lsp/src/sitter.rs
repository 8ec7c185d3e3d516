//! The grammar for tree-sitter, which Neovim, Helix, Emacs and Zed read, in its JSON form.
//!
//! It accepts more than the parser, which alone reports errors.

use dsl::{WordRole, keywords};
use serde_json::{Value, json};

fn seq(members: Vec<Value>) -> Value {
    json!({ "type": "SEQ", "members": members })
}

fn choice(members: Vec<Value>) -> Value {
    json!({ "type": "CHOICE", "members": members })
}

fn optional(content: Value) -> Value {
    choice(vec![content, json!({ "type": "BLANK" })])
}

fn repeat(content: Value) -> Value {
    json!({ "type": "REPEAT", "content": content })
}

fn rule(name: &str) -> Value {
    json!({ "type": "SYMBOL", "name": name })
}

fn word(text: &str) -> Value {
    json!({ "type": "STRING", "value": text })
}

fn pattern(text: &str) -> Value {
    json!({ "type": "PATTERN", "value": text })
}

fn field(name: &str, content: Value) -> Value {
    json!({ "type": "FIELD", "name": name, "content": content })
}

fn token(content: Value) -> Value {
    json!({ "type": "TOKEN", "content": content })
}

fn precedence(kind: &str, value: i32, content: Value) -> Value {
    json!({ "type": kind, "value": value, "content": content })
}

/// One or more, with commas between them and perhaps one after the last.
fn list(content: Value) -> Value {
    let more = repeat(seq(vec![word(","), content.clone()]));
    seq(vec![content, more, optional(word(","))])
}

/// The same without a comma after the last.
fn separated(content: Value) -> Value {
    seq(vec![content.clone(), repeat(seq(vec![word(","), content]))])
}

/// The name of a definition, a value, a field.
fn name() -> Value {
    rule("_name")
}

fn braces(content: Value) -> Value {
    seq(vec![word("{"), repeat(content), word("}")])
}

/// Rules with their names. The first one is that of a whole file, so the order counts.
type Rules = Vec<(&'static str, Value)>;

/// The grammar.
pub(crate) fn grammar() -> String {
    let groups = [
        file_rules(),
        definition_rules(),
        body_rules(),
        statement_rules(),
        entry_rules(),
        path_rules(),
        expression_rules(),
        operator_rules(),
        token_rules(),
    ];
    let rules = groups.iter().flatten();
    let rules = rules.map(|(name, rule)| format!("    \"{name}\": {}", indented(rule, 4)));
    let rules: Vec<String> = rules.collect();
    let conflicts = indented(&json!(CONFLICTS), 2);
    let extras = indented(&json!([pattern("\\s"), rule("comment"), rule("doc")]), 2);
    format!(
        "{{\n  \"name\": \"canon\",\n  \"word\": \"name\",\n  \"rules\": {{\n{}\n  }},\n  \"extras\": {extras},\n  \
         \"conflicts\": {conflicts},\n  \"precedences\": [],\n  \"externals\": [],\n  \"inline\": [],\n  \
         \"supertypes\": []\n}}\n",
        rules.join(",\n")
    )
}

/// A file: imports, then definitions.
fn file_rules() -> Rules {
    vec![
        (
            "file",
            repeat(choice(vec![
                rule("import"),
                rule("definition"),
                rule("alias"),
                rule("init_table"),
                rule("arch"),
            ])),
        ),
        (
            "import",
            seq(vec![
                word("import"),
                separated(rule("imported")),
                word("from"),
                field("path", rule("string")),
            ]),
        ),
        (
            "imported",
            seq(vec![
                field("name", name()),
                optional(seq(vec![word("as"), field("alias", name())])),
            ]),
        ),
    ]
}

/// Definitions.
fn definition_rules() -> Rules {
    let kinds = ["block", "mixer", "mlp", "head"].map(word).to_vec();
    vec![
        (
            "definition",
            seq(vec![
                choice(kinds.clone()),
                field("name", name()),
                word("("),
                optional(list(name())),
                optional(seq(vec![word(";"), optional(list(rule("parameter")))])),
                word(")"),
                rule("body"),
            ]),
        ),
        (
            "parameter",
            seq(vec![
                field("name", name()),
                optional(seq(vec![word("="), field("default", rule("_expression"))])),
            ]),
        ),
        ("alias", seq(vec![choice(kinds), field("name", name()), word("="), rule("_expression")])),
        ("init_table", seq(vec![word("init"), field("name", name()), rule("roles")])),
        ("roles", braces(seq(vec![rule("setting"), optional(word(","))]))),
        (
            "arch",
            seq(vec![
                word("arch"),
                field("name", name()),
                choice(vec![
                    rule("entries"),
                    seq(vec![word("="), field("base", name()), word("with"), rule("entries")]),
                ]),
            ]),
        ),
    ]
}

/// Bodies.
fn body_rules() -> Rules {
    vec![
        (
            "body",
            seq(vec![
                word("{"),
                repeat(rule("_statement")),
                separated(rule("_expression")),
                word("}"),
            ]),
        ),
        ("branch", braces(rule("_statement"))),
        (
            "_statement",
            choice(vec![rule("binding"), rule("param"), rule("share"), rule("carry"), rule("if")]),
        ),
        ("binding", seq(vec![separated(name()), word("="), rule("_expression")])),
    ]
}

/// Statements that begin with a keyword.
fn statement_rules() -> Rules {
    vec![
        (
            "param",
            precedence(
                "PREC_RIGHT",
                0,
                seq(vec![
                    word("param"),
                    field("name", name()),
                    word("["),
                    optional(list(rule("_expression"))),
                    word("]"),
                    optional(seq(vec![word("init"), rule("_expression")])),
                ]),
            ),
        ),
        (
            "share",
            seq(vec![
                word("share"),
                field("name", name()),
                word("="),
                field("definition", name()),
                optional(rule("entries")),
            ]),
        ),
        (
            "carry",
            precedence(
                "PREC_RIGHT",
                0,
                seq(vec![
                    word("carry"),
                    field("name", name()),
                    word("="),
                    rule("_expression"),
                    optional(seq(vec![word("else"), rule("branch")])),
                ]),
            ),
        ),
        (
            "if",
            precedence(
                "PREC_RIGHT",
                0,
                seq(vec![
                    word("if"),
                    field("condition", rule("_expression")),
                    rule("branch"),
                    optional(seq(vec![word("else"), choice(vec![rule("branch"), rule("if")])])),
                ]),
            ),
        ),
    ]
}

/// The lines of an arch, a `with` or a configuration.
fn entry_rules() -> Rules {
    let layers = || choice(vec![rule("layer_list"), rule("layer")]);
    let entry = seq(vec![rule("_entry"), optional(word(","))]);
    vec![
        ("entries", braces(entry)),
        (
            "_entry",
            choice(vec![
                rule("setting"),
                rule("nested"),
                rule("layers"),
                rule("fill"),
                rule("canon"),
                rule("empty"),
            ]),
        ),
        (
            "setting",
            seq(vec![
                field("path", rule("path")),
                optional(word("=")),
                field("value", rule("_expression")),
            ]),
        ),
        ("nested", seq(vec![field("path", rule("path")), rule("entries")])),
        ("layers", seq(vec![word("layers"), layers()])),
        (
            "layer_list",
            seq(vec![
                optional(seq(vec![rule("_expression"), word("of")])),
                word("["),
                list(layers()),
                word("]"),
            ]),
        ),
        (
            "layer",
            seq(vec![
                optional(seq(vec![rule("_expression"), word("of")])),
                optional(word("share")),
                rule("_expression"),
            ]),
        ),
        (
            "fill",
            seq(vec![word("fill"), separated(rule("path")), word("with"), rule("_expression")]),
        ),
        ("canon", seq(vec![word("canon"), separated(rule("path")), optional(rule("entries"))])),
        ("empty", seq(vec![word("empty"), separated(rule("path"))])),
    ]
}

/// Paths to fields and slots.
fn path_rules() -> Rules {
    vec![
        (
            "path",
            seq(vec![
                choice(vec![name(), rule("selection")]),
                repeat(seq(vec![word("."), name()])),
            ]),
        ),
        ("selection", seq(vec![word("layers"), word("["), rule("_select"), word("]")])),
        (
            "_select",
            choice(vec![
                word("*"),
                rule("number"),
                seq(vec![rule("number"), word(".."), rule("number")]),
                seq(vec![
                    word("every"),
                    rule("number"),
                    optional(seq(vec![word("from"), rule("number")])),
                ]),
                seq(vec![name(), repeat(seq(vec![word("."), name()])), word("is"), name()]),
            ]),
        ),
    ]
}

/// Expressions.
fn expression_rules() -> Rules {
    let constants = keywords().filter(|(_, role, _)| *role == WordRole::Constant);
    let constants: Vec<Value> = constants.map(|(text, ..)| word(text)).collect();
    vec![
        (
            "_expression",
            choice(vec![
                rule("number"),
                rule("boolean"),
                name(),
                rule("configured"),
                rule("call"),
                rule("slot"),
                rule("parenthesized"),
                rule("unary"),
                rule("binary"),
            ]),
        ),
        ("boolean", choice(constants)),
        ("parenthesized", seq(vec![word("("), rule("_expression"), word(")")])),
        ("configured", seq(vec![field("definition", name()), rule("entries")])),
        (
            "call",
            seq(vec![
                field("function", name()),
                optional(field("instance", name())),
                word("("),
                optional(list(rule("_argument"))),
                word(")"),
            ]),
        ),
        (
            "slot",
            seq(vec![
                word("slot"),
                field("name", name()),
                word("("),
                optional(list(rule("_expression"))),
                word(")"),
            ]),
        ),
        ("_argument", choice(vec![rule("_expression"), rule("named_argument")])),
        (
            "named_argument",
            seq(vec![field("name", name()), word("="), field("value", rule("_expression"))]),
        ),
    ]
}

/// Operators, by how tightly they bind.
fn operator_rules() -> Rules {
    let binary = |level: i32, signs: &[&str]| {
        let sign = field("operator", choice(signs.iter().map(|sign| word(sign)).collect()));
        let content = seq(vec![rule("_expression"), sign, rule("_expression")]);
        precedence("PREC_LEFT", level, content)
    };
    vec![
        (
            "unary",
            choice(vec![
                precedence("PREC", 7, seq(vec![word("-"), rule("_expression")])),
                precedence("PREC", 3, seq(vec![word("not"), rule("_expression")])),
            ]),
        ),
        (
            "binary",
            choice(vec![
                binary(1, &["or"]),
                binary(2, &["and"]),
                binary(4, &["==", "!=", "<", "<=", ">", ">="]),
                binary(5, &["+", "-"]),
                binary(6, &["*", "/"]),
            ]),
        ),
    ]
}

/// Words, numbers, strings and comments.
fn token_rules() -> Rules {
    // A soft keyword is a name wherever the grammar has no use for the keyword.
    let soft = keywords().filter(|(_, _, is_name)| *is_name).map(|(text, ..)| word(text));
    let soft = json!({
        "type": "ALIAS", "named": true, "value": "name",
        "content": choice(soft.collect()),
    });
    vec![
        ("_name", choice(vec![rule("name"), soft])),
        ("name", pattern("[A-Za-z_][A-Za-z0-9_]*")),
        ("number", token(pattern("[0-9][0-9_]*(\\.[0-9][0-9_]*)?([eE][+-]?[0-9]+)?"))),
        ("string", token(pattern("\"[^\"\\n]*\""))),
        ("doc", token(precedence("PREC", 1, pattern("///([^/\\n][^\\n]*)?")))),
        ("comment", token(pattern("//[^\\n]*"))),
    ]
}

/// Rules that begin alike; the parser follows both until one fails.
const CONFLICTS: &[&[&str]] = &[
    &["_expression", "call"],
    &["_expression", "configured"],
    &["layers", "_name"],
    &["canon", "_name"],
    &["canon"],
    &["empty"],
    &["carry", "_name"],
    &["binding", "_expression"],
    &["_select", "_expression"],
];

/// A value as JSON, with this indentation.
fn indented(value: &Value, spaces: usize) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.replace('\n', &format!("\n{}", " ".repeat(spaces)))
}
