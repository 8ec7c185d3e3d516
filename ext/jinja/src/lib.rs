//! Jinja templates as Python's Jinja2 renders them, in the two settings that decide prompts: chat templates in
//! `transformers` (`utils/chat_template_utils.py`) and prompts of lm-evaluation-harness (`lm_eval/utils.py`).
//!
//! minijinja parses. Its values print, compare and round as Rust's, and a template can take any amount of memory; so
//! evaluation is here, with Python's values. What is not as in Python is refused by name, never rendered differently.

#![warn(missing_docs)]
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "an operator or filter is for some of Python's types, and an error for all others"
)]

mod text;
mod value;
mod arguments;
mod entries;
mod method_names;
mod lookup;
mod format;
mod json;
mod operators;
mod methods;
mod tests;
mod filters;
mod evaluate;

use std::sync::LazyLock;

use minijinja::machinery::{WhitespaceConfig, ast, parse, parse_expr};
use minijinja::syntax::SyntaxConfig;
use regex::Regex;

pub use arguments::Arguments;
pub use text::is_space;
pub use value::Value;

/// A function or filter of the program: its arguments, for a filter the value first.
pub type Function = fn(&Arguments) -> Result<Value, String>;

/// What an undefined variable is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undefined {
    /// An empty text, as in `transformers`.
    Empty,
    /// An error, as in lm-evaluation-harness.
    Error,
}

/// How templates are read and what they may use.
#[derive(Clone, Debug)]
pub struct Environment {
    /// What an undefined variable is.
    pub undefined: Undefined,
    /// Whether a block's line leaves no white space: `trim_blocks`, `lstrip_blocks` and no last line feed.
    pub trims_blocks: bool,
    /// Filters besides Jinja2's.
    pub filters: &'static [(&'static str, Function)],
    /// Functions besides Jinja2's.
    pub functions: &'static [(&'static str, Function)],
}

impl Environment {
    /// The text of a template.
    pub fn render(&self, template: &str, context: &Value) -> Result<String, String> {
        let source = self.prepared(template);
        on_large_stack(|| {
            let stmt = self.parse(&source)?;
            let ast::Stmt::Template(template) = &stmt else { return Ok(String::new()) };
            evaluate::Rendering::new(self, &source, context)?.template(template)
        })
    }

    /// The value of an expression.
    pub fn evaluate(&self, expression: &str, context: &Value) -> Result<Value, String> {
        on_large_stack(|| {
            let parsed = parse_expr(expression).map_err(|error| syntax(&error))?;
            evaluate::Rendering::new(self, expression, context)?.expression(&parsed)
        })
    }

    /// Whether a template can be read. Filters and tests are looked up where they are used.
    pub fn check(&self, template: &str) -> Result<(), String> {
        let source = self.prepared(template);
        on_large_stack(|| self.parse(&source).map(drop))
    }

    /// The template as the parser takes it: line ends as Jinja2 reads them; without the marks that `transformers` adds for
    /// training, whose part is a scope; with the line end after `raw`, which Jinja2 keeps.
    fn prepared(&self, template: &str) -> String {
        static MARKS: LazyLock<Option<Regex>> =
            LazyLock::new(|| Regex::new(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}").ok());
        static RAW: LazyLock<Option<Regex>> =
            LazyLock::new(|| Regex::new(r"(\{%[-+]?\s*raw\s*%\})\n").ok());
        let mut text = template.replace("\r\n", "\n").replace('\r', "\n");
        if let Some(marks) = MARKS.as_ref().filter(|_| self.trims_blocks) {
            text = marks.replace_all(&text, "{%$1 ${2}with $3%}").into_owned();
        }
        if let Some(raw) = RAW.as_ref().filter(|_| self.trims_blocks) {
            text = raw.replace_all(&text, "$1\n\n").into_owned();
        }
        text
    }

    fn parse<'a>(&self, source: &'a str) -> Result<ast::Stmt<'a>, String> {
        if source.len() > LONGEST {
            return Err(format!("the template has {} bytes; the limit is {LONGEST}", source.len()));
        }
        let whitespace = WhitespaceConfig {
            keep_trailing_newline: !self.trims_blocks,
            lstrip_blocks: self.trims_blocks,
            trim_blocks: self.trims_blocks,
        };
        parse(source, "template", SyntaxConfig, whitespace).map_err(|error| syntax(&error))
    }
}

/// Longest template. A chain of operators or branches is as deep as it is long.
const LONGEST: usize = 256 << 10;

/// Calls on a thread whose stack is enough for the longest chain.
fn on_large_stack<T: Send>(call: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(512 << 20).spawn_scoped(scope, call);
        let thread = thread.map_err(|error| format!("no thread for a template: {error}"))?;
        thread.join().unwrap_or_else(|_| Err("the template cannot be rendered".to_owned()))
    })
}

fn syntax(error: &minijinja::Error) -> String {
    let text = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    match error.line() {
        Some(line) => format!("line {line}: {text}"),
        None => text,
    }
}
