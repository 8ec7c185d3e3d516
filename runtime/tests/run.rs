//! Tests of a run's promises, in one process: equal bits however it is interrupted, and refusal of changed files.
//!
//! In: recipes and archs as text, in temporary folders. Must stay true: each case trains for well under a second, on
//! one thread, and can fail. Cases that need a process to die are in the command line's tests.

mod run {
    mod ahead;
    mod bits;
    mod damage;
    mod data;
    mod dropout;
    mod families;
    mod forger;
    mod forgeries;
    mod groups;
    mod one_id;
    mod published;
    mod questions;
    mod ranks;
    mod readback;
    mod replay;
    mod score;
    mod support;
    mod tasks;
    mod verify;
    mod written;
}
