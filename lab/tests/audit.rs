//! Audits of sets built in the tests: pairs, names, comments, the words of other trainers.

#![expect(clippy::disallowed_methods, reason = "tests read the repository's own files")]


#[path = "audit/confounds.rs"]
mod confounds;
#[path = "audit/derived.rs"]
mod derived;
#[path = "audit/names.rs"]
mod names;
#[path = "audit/published.rs"]
mod published;
#[path = "audit/results.rs"]
mod results;
#[path = "audit/vocabularies.rs"]
mod vocabularies;
