//! Out: run paths to libtorch, so that `canonc` starts without any environment variable: beside an installed
//! binary, then inside this clone, wherever that is moved, then where torch-sys found it. Without the `torch`
//! feature: nothing. DT_RUNPATH, so LD_LIBRARY_PATH still wins. With CANONC_RELOCATABLE set, only the first: a program
//! that other machines get names no folder of this one.

use std::env;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=DEP_TCH_LIBTORCH_LIB");
    println!("cargo:rerun-if-env-changed=CANONC_RELOCATABLE");
    let Some(lib) = env::var_os("DEP_TCH_LIBTORCH_LIB").map(PathBuf::from) else { return };
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
