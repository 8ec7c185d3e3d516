//! The audit, held to what is known of the published set, and to what is done to it.
//!
//! In: the 64 published experiments, their curves and what was derived from them by hand. Must stay
//! true: what was found by hand is found by rule; a confound put into a random pair is found every
//! time and named; what decides nothing never becomes a confound. Needs no libtorch.

mod audit {
    mod mutation;
    mod published;
    mod support;
}
