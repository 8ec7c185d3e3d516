//! `canonc count`.

use crate::{GOOD, canonc, folder, root};

#[test]
fn every_arch_of_a_file_is_counted() {
    let two = format!("{GOOD}\narch other = good with {{ canon A }}\n");
    let dir = folder(&[("two.canon", &two)]);
    let texts = [&[] as &[&str], &["--json"], &["--help"]].map(|options| {
        let ran = canonc(dir.path(), &[&["count", "two.canon"], options].concat());
        format!("canonc count two.canon {}\n{}", options.concat(), ran.text(dir.path()))
    });
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn the_count_is_that_of_show() {
    let file = "arch/hybridcanon_tiny.canon";
    let [counted, shown] = ["count", "show"].map(|command| {
        let ran = canonc(&root(), &[command, file, "--json"]);
        serde_json::from_str::<serde_json::Value>(&ran.stdout).unwrap()
    });
    assert_eq!(counted["archs"][0]["parameters"], shown["archs"][0]["parameters"]["total"]);
}
