//! What a run promises, in one process: equal bits however it is cut, refusals of whatever is not as it was.
//!
//! In: recipes and archs as text, in temporary folders. Must stay true: each case trains for well under a second, on
//! one thread, and can fail. What needs a process to die is in the command line's tests.

mod run {
    mod bits;
    mod damage;
    mod data;
    mod families;
    mod forger;
    mod forgeries;
    mod one_id;
    mod questions;
    mod readback;
    mod replay;
    mod score;
    mod support;
    mod tasks;
    mod verify;
    mod written;
}
