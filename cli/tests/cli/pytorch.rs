//! Versions of PyTorch, and the one that `canonc-torch` is compiled for.

use cli::pytorch::{RELEASE, minor, version};

#[test]
fn a_version_is_read_as_torch_writes_it() {
    let text = "from typing import Optional\n\n__version__ = '2.11.0+cu130'\ndebug = False\n";
    assert_eq!(version(text), Some("2.11.0+cu130"));
    assert_eq!(version("version = 2\n"), None);
    assert_eq!(["2.11.0+cpu", "2.11.1", "2.1.1", "2"].map(minor), ["2.11", "2.11", "2.1", "2"]);
}

/// The release is that of the libtorch that `make libtorch` fetches.
#[test]
fn the_release_is_the_one_that_is_linked() {
    let wheels = include_str!("../../../runtime/libtorch.txt");
    let line = wheels.lines().find_map(|line| line.strip_prefix("torch==")).unwrap();
    assert_eq!(minor(line.split(' ').next().unwrap()), RELEASE);
}
