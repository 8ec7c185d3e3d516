//! Recipes, locks and comparisons, from text to verdict.

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
    mod hiding;
    mod ids;
    mod initial;
    mod matrix;
    mod pairs;
    mod published;
    mod recipe;
    mod roundtrip;
    mod symmetric;
    mod treatment;
    mod updates;
    mod verdicts;
}
