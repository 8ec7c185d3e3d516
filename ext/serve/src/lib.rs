//! An OpenAI-compatible HTTP server for any model that continues tokens: the implementation of `canonc serve`.
//!
//! The caller provides a [`model::Model`], which computes logits, and a [`model::Codec`], which turns text into tokens;
//! the crate itself uses neither libtorch nor files. A text depends on its request alone, never on other requests in
//! the same batch. A request that cannot be served exactly as written is refused with a reason.

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
