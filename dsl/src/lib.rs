//! The `.canon` language: text in, syntax tree and diagnostics out.
//!
//! In: the text of one file. Out: an [`Ast`] with a span on every node, and all independent
//! [`Diagnostic`]s; in the other direction, the formatted text of a tree ([`print()`]). Must stay
//! true: pure (no files, clock, environment); knows syntax, not models; never panics, and takes
//! bounded time and memory on any input.

#![forbid(unsafe_code)]

mod ast;
mod diag;
mod lex;
pub mod limits;
mod number;
mod parse;
mod print;
mod size;
mod span;

pub use ast::*;
pub use diag::{Diagnostic, Diagnostics, Label, Severity, render, render_coloured, suggest};
pub use number::{Decimal, NumberError};
pub use parse::{parse, parse_bytes};
pub use print::{format_source, print, print_expr};
pub use size::{counted, grouped, over, size};
pub use span::{FileId, Sources, Span};
