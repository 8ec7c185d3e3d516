//! Adds run paths to libtorch, so that `canonc` starts without any environment variable. With the `torch` feature, the
//! paths are, in order: `../lib/canonc` from the binary, for an installed `canonc`; libtorch inside this clone,
//! relative to the binary, so that the clone can be moved; and the folder where torch-sys found libtorch.
//!
//! They are DT_RUNPATH entries, so LD_LIBRARY_PATH still wins. With CANONC_RELOCATABLE set, only the first path is
//! added: a program for other machines must not name a folder of this one.

use std::env;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=DEP_CANONC_RUNTIME_LIBTORCH");
    println!("cargo:rerun-if-env-changed=CANONC_RELOCATABLE");
    let Some(lib) = env::var_os("DEP_CANONC_RUNTIME_LIBTORCH").map(PathBuf::from) else { return };
    let lib = lib.canonicalize().unwrap_or(lib);
    let mut paths = vec!["$ORIGIN/../lib/canonc".to_owned()];
    if env::var_os("CANONC_RELOCATABLE").is_some() {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{}", paths[0]);
        return;
    }
    // Binaries are in target/PROFILE, tests in target/PROFILE/deps.
    let clone = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    if let Ok(inside) = lib.strip_prefix(&clone) {
        paths.extend(["../..", "../../.."].map(|up| relative(up, inside)));
    }
    paths.push(lib.display().to_string());
    for path in paths {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{path}");
    }
}

fn relative(up: &str, inside: &Path) -> String {
    format!("$ORIGIN/{up}/{}", inside.display())
}
