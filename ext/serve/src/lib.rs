//! An OpenAI-compatible HTTP server over any model that continues tokens.
//!
//! In: a [`model::Model`], which computes logits, and a [`model::Codec`], which turns text into tokens. Out: the server
//! that `canonc serve` runs. Must stay true: no libtorch and no files; a text depends on its request alone, never on the
//! requests beside it; a request that cannot be answered as it was asked is refused with a reason.

#![forbid(unsafe_code)]

pub mod model;
pub mod text;
pub mod stats;
pub mod engine;
pub mod error;
pub mod chat;
pub mod request;
mod answer;
mod stream;
mod socket;
pub mod server;
