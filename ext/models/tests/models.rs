//! Weights under the names of other programs, and the published models' own numbers.

mod models {
    mod golden;
    mod stock;
    #[path = "../../../../runtime/tests/runtime/support.rs"]
    mod support;
    mod weights;
}
