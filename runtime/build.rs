//! Compiles the C++ shim (`native/`) and links it against the libtorch that torch-sys found.
//!
//! torch-sys publishes its lib folder, so both use one libtorch, the one that tch was built against. This package's
//! test binaries get a run path to that folder, as DT_RUNPATH, so LD_LIBRARY_PATH still takes precedence.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for name in [
        "native/shim.cpp",
        "native/shim.h",
        "native/group.cpp",
        "native/group.h",
        "native/cuda.cpp",
        "native/cuda.h",
        "native/guard.h",
        "native/shapes.cpp",
        "native/shapes.h",
        "native/nccl.cpp",
        "native/nccl.sh",
        "native/cuda",
        "native/gloo",
    ] {
        println!("cargo:rerun-if-changed={name}");
    }
    for name in ["LIBTORCH_INCLUDE", "LIBTORCH_CXX11_ABI", "DEP_TCH_LIBTORCH_LIB"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    let lib = env::var_os("DEP_TCH_LIBTORCH_LIB")
        .map(PathBuf::from)
        .expect("torch-sys publishes libtorch_lib to those that depend on it directly");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", lib.display());
    println!("cargo:libtorch={}", lib.display());

    let root = env::var_os("LIBTORCH_INCLUDE")
        .map(PathBuf::from)
        .or_else(|| lib.parent().map(PathBuf::from))
        .expect("a lib folder has a parent");
    let include = root.join("include");
    // libtorch uses the C++11 ABI since 2.6; torch-sys reads the same variable.
    let abi = env::var("LIBTORCH_CXX11_ABI").unwrap_or_else(|_| "1".to_owned());
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .warnings(false)
        .flag("-fopenmp") // at::parallel_for is a template: without this flag it silently runs serially
        .flag("-isystem")
        .flag(include.display().to_string())
        .flag("-isystem")
        .flag(include.join("torch/csrc/api/include").display().to_string())
        .define("_GLIBCXX_USE_CXX11_ABI", abi.as_str())
        .include("native")
        .file("native/shim.cpp")
        .file("native/group.cpp")
        .file("native/cuda.cpp")
        .file("native/shapes.cpp")
        .compile("canonc_shim");
    nccl(&root);
    for library in ["torch_cpu", "c10", "gomp", "dl"] {
        println!("cargo:rustc-link-lib={library}");
    }
}

/// Compiles the library for exchanges between GPUs, which needs neither a GPU nor a CUDA build of libtorch, and copies it
/// next to the binaries.
fn nccl(torch: &Path) {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let built = Command::new("sh").arg("native/nccl.sh").arg(torch).arg(&out).status();
    // OUT_DIR is target/PROFILE/build/PACKAGE/out.
    let programs = out.ancestors().nth(3).map(|folder| folder.join("libcanonc_nccl.so"));
    let copied = built.is_ok_and(|status| status.success())
        && programs.is_some_and(|to| std::fs::copy(out.join("libcanonc_nccl.so"), to).is_ok());
    if !copied {
        println!(
            "cargo:warning=libcanonc_nccl.so was not built, so several ranks on GPUs cannot be used; \
             run runtime/native/nccl.sh to see why"
        );
    }
}
