//! Compiles `.canon` texts to graphs and plans.
//!
//! It is pure: no files, clock, environment, threads, randomness or torch. Exact arithmetic decides every field. The modules
//! are listed in the order in which data flows: first the types that stages hand to one another, then the stages, from a
//! text to a graph and from a graph to plans. Each uses only those above it.
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

// What the stages below hand to one another.
mod diag;
pub mod digest;
mod order;
pub mod number;
pub mod ir;
mod value;
pub mod kernel;
pub mod plan;
pub mod builder;
pub mod op;
pub mod graph;
pub mod tree;
pub mod names;

// From texts to graphs.
pub mod artifacts;
pub mod rename;
pub mod resolve;
pub mod arch;
mod carry;
mod arrange;
pub mod elaborate;
pub mod canonical;
pub mod kinds;
mod inline;
mod recover;
mod undefined;
pub mod program;
pub mod load;

// What is made of a graph.
pub mod erase;
pub mod analyse;

// From a graph to plans.
mod specialise;
mod lower;
mod differentiate;
mod fuse;
mod recompute;
pub mod plans;
