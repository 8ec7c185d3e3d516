//! Tests of the server with a toy model, without libtorch: text from tokens, the engine, and every route over TCP. No
//! test depends on how long something takes.

#[path = "serve/engine.rs"]
mod engine;
#[path = "serve/hostile.rs"]
mod hostile;
#[path = "serve/http.rs"]
mod http;
#[path = "serve/refusals.rs"]
mod refusals;
#[path = "serve/text.rs"]
mod text;
#[path = "serve/toy.rs"]
mod toy;
