//! Weights under the names of other programs, the published models' own numbers, and parts of `bench`, `eval` and
//! `selftest`.

mod models {
    mod eval;
    mod golden;
    mod process;
    mod python;
    mod selftest;
    mod stock;
    #[path = "../../../../runtime/tests/runtime/support.rs"]
    mod support;
    mod table;
    mod weights;
}
