//! The language and the graph, from text to identity: ids that must differ, ids that must agree, texts that must be
//! refused, and the cost of each. Nothing here needs libtorch.

#![expect(clippy::disallowed_methods, reason = "tests read the repository's own files")]

mod lang {
    mod bounds;
    mod carry;
    mod counts;
    mod documented;
    mod documents;
    mod erasure;
    mod fuzz;
    mod hashes;
    mod mentions;
    mod one_id;
    mod refusals;
    mod reorder;
    mod rings;
    mod rules;
    mod tidy;
}

/// Counts the allocations of a child process of `bounds`, and refuses those above its limit.
#[global_allocator]
static ALLOCATOR: cap::Cap<std::alloc::System> = cap::Cap::new(std::alloc::System, usize::MAX);
