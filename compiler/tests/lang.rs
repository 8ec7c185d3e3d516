//! The language and the graph, from text to identity: ids that must differ, ids that must agree,
//! texts that must be refused, and the cost of each.
//!
//! In: the committed archs, `tests/cases`, LANGUAGE.md, generated texts. Out: one test binary with
//! one module per concern. Must stay true: no libtorch; every diagnostic has a case; no input costs
//! more than a second and 256 MB.

#![expect(clippy::disallowed_methods, reason = "tests read the repository's own files")]


mod lang {
    mod bounds;
    mod carry;
    mod counts;
    mod documented;
    mod erasure;
    mod fuzz;
    mod hashes;
    mod one_id;
    mod refusals;
    mod reorder;
    mod rules;
    mod tidy;
}

/// Counts the allocations of a child process of `bounds`, and refuses those above its limit.
#[global_allocator]
static ALLOCATOR: cap::Cap<std::alloc::System> = cap::Cap::new(std::alloc::System, usize::MAX);
