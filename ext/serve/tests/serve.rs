//! The server with a model of a few lines: text from tokens, the engine, every route over TCP.
//!
//! In: requests made here. Out: pass or fail. Must stay true: no libtorch; no test depends on how long something takes.

#[path = "serve/engine.rs"]
mod engine;
#[path = "serve/http.rs"]
mod http;
#[path = "serve/refusals.rs"]
mod refusals;
#[path = "serve/text.rs"]
mod text;
#[path = "serve/toy.rs"]
mod toy;
