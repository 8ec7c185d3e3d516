//! Tests of the server through its protocol, in this process; `tests/cli/lsp.rs` has those of the program.

mod lsp {
    mod abilities;
    mod canon;
    mod client;
    mod grammars;
    mod names;
    mod tables;
    mod typing;
}
