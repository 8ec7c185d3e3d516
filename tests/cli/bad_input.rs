//! Files that are missing, not text, unreadable, or too large.

use std::fs;
use std::io::Write;

use crate::{GOOD, canonc, folder, has, root};

#[test]
fn a_file_that_is_not_there() {
    let similar = canonc(&root(), &["show", "arch/lama_1B.canon"]);
    insta::assert_snapshot!("near", similar.text(&root()));
    for command in ["show", "graph"].into_iter().filter(|command| has(command)) {
        let far = canonc(&root(), &[command, "nowhere/x.canon"]);
        insta::assert_snapshot!("far", far.text(&root()));
    }
}

#[test]
fn a_folder_instead_of_a_file() {
    let dir = folder(&[("a/x.canon", GOOD), ("b/readme", "")]);
    for (name, argument) in [("with_files", "./a"), ("without", "./b"), ("a_word", "a")] {
        insta::assert_snapshot!(name, canonc(dir.path(), &["show", argument]).text(dir.path()));
    }
}

#[test]
fn not_text() {
    let dir = folder(&[("user.canon", "import x from \"bytes.canon\"\n")]);
    fs::write(dir.path().join("bytes.canon"), b"// fine\narch a\xff {\n}\n").unwrap();
    for command in ["check", "show", "fmt"] {
        let ran = canonc(dir.path(), &[command, "bytes.canon"]);
        insta::assert_snapshot!(format!("bytes_{command}"), ran.text(dir.path()));
    }
    let imported = canonc(dir.path(), &["check", "user.canon"]);
    insta::assert_snapshot!("imported", imported.text(dir.path()));
}

#[test]
fn an_arch_that_is_missing() {
    let dir = folder(&[("empty.canon", "// nothing\n")]);
    insta::assert_snapshot!(canonc(dir.path(), &["show", "empty.canon"]).text(dir.path()));
}

#[test]
fn imports_that_cannot_be_had() {
    let text = "\
import good from \"god.canon\"
import good as a from \"sub\"
import good as b from \"other/good.canon\"
import good as c from \"/etc/passwd\"
";
    let dir = folder(&[("user.canon", text), ("good.canon", GOOD), ("sub/good.canon", GOOD)]);
    insta::assert_snapshot!(canonc(dir.path(), &["check", "user.canon"]).text(dir.path()));
}

#[test]
fn imports_in_a_circle() {
    let dir = folder(&[
        ("a.canon", "import b from \"b.canon\"\nblock a(x) {\n  b(x)\n}\n"),
        ("b.canon", "import a from \"a.canon\"\nblock b(x) {\n  a(x)\n}\n"),
    ]);
    let ran = canonc(dir.path(), &["check", "a.canon"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("import-cycle"), "{}", ran.stderr);
}

#[test]
fn more_imports_than_anyone_writes() {
    let dir = folder(&[]);
    for i in 0..300 {
        let next = i + 1;
        let text =
            format!("import x{next} from \"{next}.canon\"\nblock x{i}(x) {{\n  x{next}(x)\n}}\n");
        fs::write(dir.path().join(format!("{i}.canon")), text).unwrap();
    }
    let ran = canonc(dir.path(), &["check", "0.canon"]);
    let first: String = ran.stderr.split_inclusive("\n\n").take(1).collect();
    insta::assert_snapshot!(first);
    assert_eq!(ran.code, 2);
}

#[cfg(target_os = "linux")]
#[test]
fn unreadable() {
    // A file that opens but cannot be read; permissions would not stop the superuser.
    let dir = folder(&[("user.canon", "import x from \"memory.canon\"\n")]);
    std::os::unix::fs::symlink("/proc/self/mem", dir.path().join("memory.canon")).unwrap();
    let direct = canonc(dir.path(), &["show", "memory.canon"]);
    insta::assert_snapshot!("direct", direct.text(dir.path()));
    let imported = canonc(dir.path(), &["check", "user.canon"]);
    insta::assert_snapshot!("imported_unreadable", imported.text(dir.path()));
    let endless = canonc(dir.path(), &["check", "/dev/zero"]);
    insta::assert_snapshot!("endless", endless.text(dir.path()));
}

#[test]
fn a_hundred_megabytes_of_brackets() {
    let dir = folder(&[]);
    let path = dir.path().join("brackets.canon");
    let mut file = fs::File::create(&path).unwrap();
    for _ in 0..100 {
        file.write_all(&[b'['; 1_000_000]).unwrap();
    }
    drop(file);
    let commands = ["check", "fmt", "show", "build", "graph"];
    for command in commands.into_iter().filter(|command| has(command)) {
        let ran = canonc(dir.path(), &[command, "brackets.canon"]);
        assert_eq!(ran.code, 2, "{command}");
        assert!(
            ran.stderr.contains("has 95.3 MiB; at most 1 MiB are read"),
            "{command}: {}",
            ran.stderr
        );
    }
    // The largest file that is read at all.
    fs::write(&path, vec![b'['; 1 << 20]).unwrap();
    let ran = canonc(dir.path(), &["check", "brackets.canon"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("nesting-too-deep"), "{}", ran.stderr);
}

#[test]
fn as_deep_as_the_bounds_allow() {
    // Terms of a sum nest to the left: the deepest tree that an expression may have.
    let sum = vec!["x"; 200].join(" + ");
    let tall = format!("block tall(x; mixer) {{\n  {sum}\n}}\n");
    let arch = GOOD.replace("decoder", "tall").replace("mlp   swiglu { hidden 16 }", "");
    let dir = folder(&[("tall.canon", &(tall + &arch))]);
    for command in ["show", "graph"].into_iter().filter(|command| has(command)) {
        let ran = canonc(dir.path(), &[command, "tall.canon"]);
        assert_eq!(ran.code, 0, "{command}: {}", ran.stderr);
    }
}

#[cfg(feature = "ext")]
#[test]
fn suggestions_name_what_was_probably_meant() {
    let dir = folder(&[
        ("arch/good_1B.canon", GOOD),
        ("model/config.json", "{\"model_type\": \"llama\"}"),
        ("weights/model.safetensors", ""),
        ("some/text.txt", ""),
        ("documents.index", ""),
        ("some.lock", ""),
    ]);
    for (words, parts) in [
        ("show good_1B", &["did you mean `canonc show arch/good_1B.canon`?"][..]),
        (
            "show arch/good_1B.canon --suite w",
            &["unexpected argument `--suite`", "`--suite` is for", "`canonc eval`"],
        ),
        (
            "show weights/model.safetensors",
            &["is a file of weights", "`canonc forward` and others"],
        ),
        ("show model/config.json", &["is JSON, not a .canon file", "the folder of a model"]),
        (
            "graph ./weights",
            &["no config.json, params.json, arch.canon or import.toml", "`--weights ./weights`"],
        ),
        ("diff model model", &["is a folder, not a lock", "it contains a model, but no training"]),
        ("diff some some", &["it contains no lock", "into lockfiles/"]),
        ("diff . .", &["name a lock in it, such as `./some.lock`"]),
        ("eval --suite releas --list", &["there is no such suite", "did you mean `release`?"]),
        (
            "data about some.lock",
            &["is a lock, not prepared documents", "canonc data about --lock some.lock"],
        ),
        (
            "data inspect documents.index",
            &["is prepared documents", "canonc data about documents.index"],
        ),
    ] {
        let ran = canonc(dir.path(), &words.split(' ').collect::<Vec<_>>());
        assert_eq!(ran.code, 2, "{words}: {}", ran.stderr);
        for part in parts {
            assert!(ran.stderr.contains(part), "{words}: {part}: {}", ran.stderr);
        }
        assert!(!ran.stderr.contains("to pass"), "{words}: {}", ran.stderr);
    }
}
