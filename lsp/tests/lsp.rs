//! Tests of the server through its protocol, in this process; `tests/cli/lsp.rs` has those of the program.
//!
//! In: a workspace in a folder of its own, and messages. Out: answers. Must stay true: every test fails if its answer
//! changes; none waits for a time.

mod lsp {
    mod canon;
    mod client;
    mod grammars;
    mod names;
    mod tables;
    mod typing;
}
