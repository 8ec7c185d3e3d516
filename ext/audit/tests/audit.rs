//! Audits of the published set, unchanged and with changes, and of sets built in the tests.

#![expect(clippy::disallowed_methods, reason = "tests read the repository's own files")]

mod audit {
    mod configurations;
    mod confounds;
    mod derived;
    mod harmless;
    mod locks;
    mod mutation;
    mod names;
    mod published;
    mod results;
    mod support;
    mod vocabularies;
}
