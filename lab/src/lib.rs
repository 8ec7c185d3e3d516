//! Experiments as values: the table of fields, recipes, locks, comparisons and their verdicts.
//!
//! Pure: no files, clock, environment, threads, randomness or torch. Exact arithmetic decides every field.
//!
//! The modules are in the order in which values are made of each other, and each uses only earlier ones: fields make an
//! experiment, two experiments have a verdict, several make a comparison. Last are the texts: a recipe, from which
//! experiments and comparisons are made, and a lock, which holds one.
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
//! let (recipe, diagnostics) = recipe::read(&sources, file);
//! let recipe = recipe.ok_or_else(|| dsl::render(&sources, &diagnostics))?;
//! let experiment = |name: &str| {
//!     let (compiled, diagnostics) = program.compile("small.canon", name);
//!     let compiled = compiled.ok_or_else(|| program.render(&diagnostics))?;
//!     let arch = std::rc::Rc::new(LockedArch::new(&compiled).map_err(|error| error.message)?);
//!     let (mut experiments, diagnostics) =
//!         recipe.experiments(name, "small.toml", &|_| Some(arch.clone()));
//!     experiments.pop().ok_or_else(|| dsl::render(&sources, &diagnostics))
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

pub mod facts;
pub mod field;
pub mod error;
mod grid;
mod section;
pub mod experiment;
pub mod verdict;
pub mod trainer;
pub mod comparison;
pub mod recipe;
pub mod lock;
