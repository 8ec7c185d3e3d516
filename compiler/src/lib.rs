//! Compiles `.canon` texts to graphs and plans.
//!
//! In: the texts of files. Out: graphs, their identities, and plans. Must stay
//! true: pure (no files, clock, environment, threads, randomness, torch); exact arithmetic decides
//! every field; data flows in the order of the modules below.
//!
//! From a text to two graphs and their digests:
//!
//! ```
//! use compiler::program::{Program, Std};
//!
//! let text = "
//!     arch small {
//!       vocab 256   dim 64   norm_eps 1e-5   init lingua
//!       layers 2 of decoder { mixer attention { heads 4 }   mlp swiglu { hidden 128 } }
//!     }
//!     arch with_canon = small with { canon A }";
//! let program = Program::new([("small.canon".to_owned(), text.to_owned())], Std::Embedded);
//! let compile = |name| {
//!     let (compiled, diagnostics) = program.compile("small.canon", name);
//!     compiled.ok_or_else(|| dsl::render(&program.sources, &diagnostics))
//! };
//! let (small, with_canon) = (compile("small")?, compile("with_canon")?);
//! println!("{} parameters, graph {}", small.graph.params().len(), small.identity.graph);
//! assert_eq!(small.graph.params()[0].shape, [256, 64]);
//! assert_ne!(small.identity.graph, with_canon.identity.graph);
//! # Ok::<(), String>(())
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod diag;
pub mod digest;
mod order;
pub mod artifacts;
pub mod number;
pub mod ir;
pub mod graph;
mod carry;
mod arrange;
pub mod erase;
pub mod lower;
pub mod op;
pub mod analyse;
pub mod canonical;
pub mod names;
pub mod plan;
pub mod precision;
mod differentiate;
mod fuse;
mod recompute;
mod specialise;
pub mod plans;
pub mod rename;
pub mod tree;
pub mod resolve;
pub mod arch;
pub mod elaborate;
pub mod draw;
mod inline;
mod recover;
mod undefined;
pub mod program;
pub mod load;
