//! Tests of the audit on the published set, unchanged and with changes.
//!
//! In: the 64 published experiments, their curves and results derived from them by hand. Must stay
//! true: the rules find everything found by hand; a confound put into a random pair is always
//! found and named; a field without influence on results never becomes a confound. Needs no libtorch.


mod audit {
    mod mutation;
    mod published;
    mod support;
}
