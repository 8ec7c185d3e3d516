//! Out: a run path to the libtorch that torch-sys found, so that `canonc` starts without any environment
//! variable. Without the `torch` feature: nothing. DT_RUNPATH, so LD_LIBRARY_PATH still wins.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=DEP_TCH_LIBTORCH_LIB");
    if let Some(lib) = std::env::var_os("DEP_TCH_LIBTORCH_LIB") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{}", lib.display());
    }
}
