//! Tests of the command line's own functions: help, outputs, scripts, claims of workers. The commands are tested in the
//! repository's `tests/`.

mod cli {
    mod explain;
    mod help;
    #[cfg(unix)]
    mod launch;
    mod out;
    mod output;
    mod printable;
    mod pytorch;
    mod screen;
    mod worker_claims;
}
