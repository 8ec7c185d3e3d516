//! Audits of sets built in the tests: pairs, names, comments.

#![expect(clippy::disallowed_methods, reason = "tests read the repository's own files")]

extern crate canonc_lab as lab;

#[path = "audit/confounds.rs"]
mod confounds;
#[path = "audit/derived.rs"]
mod derived;
#[path = "audit/names.rs"]
mod names;
#[path = "audit/published.rs"]
mod published;
