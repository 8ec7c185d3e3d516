//! Recipes, locks and comparisons, from text to verdict.
//!
//! In: the committed archs and recipes, and texts built in the tests. Out: snapshots of each module, and properties.
//! Must stay true: no libtorch; one module per concern; every refusal has a case.

#![expect(clippy::disallowed_methods, reason = "tests read the repository's own files")]


mod lock {
    mod analysis;
    mod bind;
    mod comparison;
    mod controlled;
    mod effects;
    mod experiments;
    mod fields;
    mod files;
    mod forms;
    mod groups;
    mod hand_edited;
    mod harmless;
    mod hiding;
    mod ids;
    mod matrix;
    mod pairs;
    mod published;
    mod recipe;
    mod roundtrip;
    mod support;
    mod symmetric;
    mod treatment;
    mod updates;
    mod verdicts;
}
