//! The audit of sets that are made here: pairs, names, comments.

#[path = "audit/confounds.rs"]
mod confounds;
#[path = "audit/names.rs"]
mod names;
#[path = "audit/published.rs"]
mod published;
