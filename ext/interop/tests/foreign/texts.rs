//! JSON and YAML as other programs write them, good and bad.

use interop::{json, yaml};

#[test]
fn json_is_strict_but_for_what_python_writes() {
    let read = |text: &str| json::read("c.json", text.as_bytes());
    let limit =
        read("{\"time_step_limit\": [0.0, Infinity], \"a\": -Infinity, \"b\": NaN}").unwrap();
    assert_eq!(limit.get("time_step_limit").unwrap().value.plain(), "0.0,Infinity");
    for text in [
        "",
        "{",
        "{\"a\" 1}",
        "{\"a\": 1,}",
        "[1, ]",
        "{a: 1}",
        "{'a': 1}",
        "{\"a\": 01}",
        "{\"a\": 1} x",
        "{\"a\": +1}",
        "{\"a\": .5}",
        "{\"a\": 1.}",
        "\"\\x\"",
        "\"\\ud800\"",
        "\"a\nb\"",
        "{\"a\": 1, \"a\": 2}",
        "nul",
        "{\"a\": infinity}",
        "[[[[",
        "\u{1}",
    ] {
        assert!(read(text).is_err(), "{text:?}");
    }
    let deep = "[".repeat(100_000);
    assert!(read(&deep).unwrap_err().message.contains("is nested more than"));
    let twice = read("{\n\"a\": 1,\n\"b\": 2,\n\"a\": 3}").unwrap_err();
    assert_eq!(twice.place.as_deref(), Some("c.json:4"));
    assert!(twice.message.contains("line 2 and again on line 4"), "{}", twice.message);
    let text = "{\"k\": [1, 2.50, -1e-05, \"\\u00e9\\n\\ud83d\\ude00\", null, true, {}, []]}";
    let tree = read(text).unwrap();
    assert_eq!(read(&json::write(&tree.value)).unwrap().value.shown(), tree.value.shown());
}

#[test]
fn yaml_is_plain_keys_and_values() {
    let read = |text: &str| yaml::read("r.yaml", text.as_bytes());
    let flat = yaml::flat(
        "r.yaml",
        b"# 128 GPUs\nmodel:\n  dim: 64\n  canon_set: ABCD\nsteps: 10\nname: \"x: y\"\n",
    )
    .unwrap();
    let flat: Vec<_> = flat.iter().map(|f| (f.key.as_str(), f.value.as_str(), f.line)).collect();
    assert_eq!(
        flat,
        [
            ("model.dim", "64", 3),
            ("model.canon_set", "ABCD", 4),
            ("steps", "10", 5),
            ("name", "x: y", 6)
        ]
    );
    for (text, line, part) in [
        ("a: 1\nb: &x 2\n", 2, "an anchor"),
        ("a: 1\nb: *x\n", 2, ""),
        ("a: &x {k: 1}\nb: *x\n", 1, "an anchor"),
        ("a: 1\nb: 2\na: 3\n", 3, "`a` is on line 1 and again on line 3"),
        ("a: !!python/object/apply:os.system [ls]\n", 1, "a tag"),
        ("a: !x 1\n", 1, "a tag"),
        ("b: 1\n<<: {a: 1}\n", 2, "a merge key"),
        ("a: yes\n", 1, "a boolean in YAML 1.1"),
        ("a: 010\n", 1, "a number in one version of YAML"),
        ("a: 1_000\n", 1, "a number in one version of YAML"),
        ("a: 0x10\n", 1, "a number in one version of YAML"),
        ("a: 1:30\n", 1, "a number in one version of YAML"),
        ("a: ${b}\n", 1, "OmegaConf would replace"),
        ("a: 1\n---\nb: 2\n", 2, "a second document"),
        ("a: [1\n", 2, ""),
        ("? [1]\n: 2\n", 1, "a key that is not a plain string"),
        ("a.b: 1\n", 1, "as a key"),
        ("", 1, "it is empty"),
    ] {
        let error = read(text).expect_err(text);
        assert!(error.message.contains(part), "{text:?}: {}", error.message);
        if !part.is_empty() && part != "it is empty" {
            assert_eq!(error.place, Some(format!("r.yaml:{line}")), "{text:?}: {}", error.message);
        }
    }
    assert!(read(&"[".repeat(100_000)).is_err());
    assert!(read(&"a:\n  ".repeat(1000)).is_err());
}
