//! The language server of canonc, for `.canon` files, recipes and locks in any editor.
//!
//! Messages, helps and facts about the language are those of the compiler and the lab. A text that is being typed never
//! stops the server.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a question is about few of many kinds of syntax"
)]

mod text;
mod store;
mod standard;
mod finding;
mod analysis;
mod worker;
mod index;
mod model;
mod view;
mod hover;
mod define;
mod rename;
mod colour;
mod cursor;
mod complete;
mod tables;
mod outline;
mod document;
mod client;
mod answer;
pub mod transport;
mod server;
mod sitter;
mod grammar;

pub use grammar::files as grammar_files;
pub use server::{Ended, serve, stdio};
