//! The one test binary of the crate.

#![expect(clippy::disallowed_methods, reason = "the test reads its cases; the crate does not")]

mod cases;
mod generate;
mod hostile;
mod language;
mod outline;
mod render;
mod roundtrip;
