//! The Slurm script of one run: names with a shell's characters stay words.
#![cfg(unix)]

use cli::launch::{NOTICE, render};
use commands::export::launch::RUN;
use minijinja::context;
use support::scripts::runs_nothing;

#[test]
fn hostile_names_are_words() {
    let folder = tempfile::tempdir().unwrap();
    for hostile in support::HOSTILE {
        let values = context! {
            name => hostile, id => "0", nodes => 1, per_node => 2, gpu => false, threads => 4, notice => NOTICE,
            file => "small.lock", dir => hostile, data => hostile, weights => hostile,
        };
        runs_nothing(&render(RUN, values).unwrap(), folder.path());
    }
}
