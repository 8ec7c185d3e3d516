//! The build script of packages that link the runtime: adds a run path to its libtorch, so that their tests start.

use std::env;

#[expect(clippy::print_stdout, reason = "cargo reads what a build script prints")]
fn main() {
    println!("cargo:rerun-if-env-changed=DEP_CANONC_RUNTIME_LIBTORCH");
    let lib = env::var("DEP_CANONC_RUNTIME_LIBTORCH")
        .expect("canonc-runtime publishes its libtorch to those that link it");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{lib}");
}
