//! Tests of the audit on the 64 published experiments: the rules find everything that was found by hand; a confound put into
//! a random pair is found and named; a field without influence on results never becomes a confound.


mod audit {
    mod mutation;
    mod published;
    mod support;
}
