//! The `.canon` language for model architectures: its syntax tree, parser, formatter and diagnostics.
//!
//! [`parse`] gives an [`Ast`] with a span on every node and all independent [`Diagnostic`]s; [`print()`] gives the formatted
//! text of a tree. The crate knows syntax, not models. It never panics, and takes bounded time and memory on any input.
//!
//! The language is described in `LANGUAGE.md`. To format a file, or to show its errors:
//!
//! ```
//! let mut sources = dsl::Sources::new();
//! let file = sources.add("small.canon", "arch small { dim 64   layers 2 of decoder { mixer gla } }");
//! let (ast, errors) = dsl::parse(file, sources.text(file));
//! assert!(errors.is_empty());
//! assert_eq!(ast.items[0].name().text, "small");
//! let formatted = "arch small {\n  dim 64\n  layers 2 of decoder { mixer gla }\n}\n";
//! assert_eq!(dsl::print(&ast), formatted);
//!
//! let file = sources.add("wrong.canon", "arch wrong { dim 64 +\n}\n");
//! let (_, errors) = dsl::parse(file, sources.text(file));
//! let shown = dsl::render(&sources, &errors);
//! assert!(shown.starts_with("error") && shown.contains("wrong.canon:"), "{shown}");
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod limits;
pub mod quote;
mod size;
mod number;
mod span;
mod ast;
mod diag;
mod lex;
mod parse;
mod print;
mod tokens;
mod xml;

/// The description of the language, `LANGUAGE.md`.
pub const LANGUAGE: &str = include_str!("../LANGUAGE.md");

pub use ast::{
    Alias, Arch, ArchBody, Arg, Ast, BinaryOp, Body, Comment, ConfigParam, Def, DefKind, Entry,
    Expr, ExprKind, Import, ImportName, InitTable, Item, LayerList, LayerWhat, Name, Path, Segment,
    Select, Statement, UnaryOp,
};
pub use diag::{
    Diagnostic, Diagnostics, Label, Problem, ProblemKind, Severity, advice_for, render,
    render_coloured, suggest,
};
pub use number::{Decimal, NumberError};
pub use parse::{parse, parse_bytes};
pub use print::{format_source, print, print_expr};
pub use size::{counted, grouped, over, ranges, size};
pub use span::{FileId, Sources, Span};
pub use tokens::{TextToken, TokenClass, WordRole, keywords, tokens};
pub use xml::escaped;
