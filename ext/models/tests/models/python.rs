//! Versions of PyTorch that `canonc bench peers` takes.

use models::bench::python::{is_version, minor, release};

#[test]
fn versions_match_up_to_the_patch() {
    assert_eq!([minor("2.11.0+cpu"), minor("2.11.1"), minor("2.11")], ["2.11"; 3]);
    assert_eq!(minor("3"), "3");
    assert_eq!(release("2.11.0+cu130"), "2.11.0");
    assert!(["2.11.0+cu130", "2.13.0a0+git1f", "3"].iter().all(|text| is_version(text)));
    let garbage = ["", "two", "2.11\u{1b}[31m", "2.11 or so", &"2".repeat(65)];
    assert!(!garbage.iter().any(|text| is_version(text)));
}
