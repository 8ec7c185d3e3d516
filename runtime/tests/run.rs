//! Tests of whole runs, in one process: equal bits however a run is interrupted, and refusal of changed files.
//!
//! Each case trains for well under a second, on one thread. Cases that need a process to die are in the command line's
//! tests.

mod run {
    mod ahead;
    mod bits;
    mod damage;
    mod data;
    mod dropout;
    mod elsewhere;
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
