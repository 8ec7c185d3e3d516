//! Experiments as values: the table of fields, recipes, locks, comparisons and their verdicts, audits.
//!
//! In: compiled archs, and the texts of recipes and locks. Out: experiments, comparisons, the text of locks, verdicts and
//! findings. Must stay true: pure (no files, clock, environment, threads, randomness, torch); exact arithmetic decides
//! every field; data flows in the order of the modules below, and each module uses only earlier ones.
//!
//! A recipe with two archs, the lock of one experiment, and the verdict on both:
//!
//! ```
//! use compiler::program::{Program, Std};
//! use lab::{experiment::LockedArch, lock::Lock, recipe, verdict};
//!
//! let archs = "
//!     arch small {
//!       vocab 258   dim 64   norm_eps 1e-5   init lingua
//!       layers 2 of decoder { mixer attention { heads 4 }   mlp swiglu { hidden 128 } }
//!     }
//!     arch with_canon = small with { canon A }";
//! let text = r#"
//!     arch = "small.canon"
//!     data.seq_len = 128
//!     data.ids = "dense"
//!     data.depo = { N = 5, K = 2, mini_vocab = 50, min_tlen = 1, max_tlen = 2 }
//!     batch.sequences = 32
//!     optimizer = { lr = 0.003, weight_decay = 0.03 }
//!     schedule = { kind = "linear", warmup = 10, lr_min_ratio = 0.1 }
//!     budget.steps = 100
//!     seeds = { init = 1, data = 1 }"#;
//! let program = Program::new([("small.canon".to_owned(), archs.to_owned())], Std::Embedded);
//! let mut sources = dsl::Sources::new();
//! let file = sources.add("small.toml", text);
//! let (read, found) = recipe::read(&sources, file);
//! let read = read.ok_or_else(|| dsl::render(&sources, &found))?;
//! let experiment = |name: &str| {
//!     let (compiled, found) = program.compile("small.canon", name);
//!     let compiled = compiled.ok_or_else(|| program.render(&found))?;
//!     let arch = std::rc::Rc::new(LockedArch::new(&compiled).map_err(|error| error.message)?);
//!     let (mut made, found) = read.experiments(name, "small.toml", &|_| Some(arch.clone()));
//!     made.pop().ok_or_else(|| dsl::render(&sources, &found))
//! };
//! let (base, canon) = (experiment("small")?, experiment("with_canon")?);
//! let sides = [&base, &canon].map(|experiment| verdict::Side::arm(&experiment.name, experiment));
//! let treatment = ["canon".to_owned()];
//! assert!(verdict::controlled(&sides[0], &sides[1], &treatment).unwrap().is_controlled());
//! assert!(!verdict::controlled(&sides[0], &sides[1], &[]).unwrap().is_controlled());
//!
//! let lock = Lock::Experiment(base).text();
//! assert_eq!(lab::lock::read("small.lock", &lock).unwrap().text(), lock);
//! # Ok::<(), String>(())
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod facts;
pub mod field;
pub mod error;
mod grid;
mod section;
pub mod experiment;
pub mod verdict;
pub mod comparison;
pub mod audit;
pub mod lock;
pub mod recipe;
