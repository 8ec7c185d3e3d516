//! The one test binary of the crate. In: cases as files, generated trees and texts, hostile inputs,
//! the blocks of LANGUAGE.md. Must stay true: every error has a case, and printing, parsing and
//! formatting are inverse to one another.

#![expect(clippy::disallowed_methods, reason = "the test reads its cases; the crate does not")]


mod cases;
mod generate;
mod hostile;
mod language;
mod outline;
mod render;
mod roundtrip;
