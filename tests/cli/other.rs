//! `canonc new`, `doctor`, `completions`, and tests that belong to no single command.

use std::path::Path;

use crate::{Ran, canonc, command, folder, has, root};

#[test]
fn help_of_every_command_has_examples() {
    let top = canonc(&root(), &["--help"]);
    assert_eq!((top.code, top.stderr.as_str()), (0, ""));
    let verbs = ["new", "check", "fmt", "show", "build", "graph", "data", "doctor", "completions"];
    for verb in verbs.into_iter().filter(|verb| has(verb)) {
        assert!(top.stdout.contains(&format!("\n  {verb} ")), "{verb} in {}", top.stdout);
        let long = canonc(&root(), &[verb, "--help"]);
        assert_eq!((long.code, long.stderr.as_str()), (0, ""));
        for part in ["Usage: canonc", "Examples:\n  canonc "] {
            assert!(long.stdout.contains(part), "{verb}: {}", long.stdout);
        }
    }
    assert!(canonc(&root(), &["--version"]).stdout.starts_with("canonc 0."));
}

#[test]
fn usage_errors() {
    for (name, arguments) in [
        ("unknown_command", &["chekc"] as &[&str]),
        ("far_from_any", &["xyzzy", "--help"]),
        ("unknown_option", &["check", "--jason"]),
        ("missing_file", &["diff"]),
        ("bad_number", &["show", "x.canon", "--seq-len", "0"]),
    ] {
        insta::assert_snapshot!(name, canonc(&root(), arguments).text(&root()));
    }
    let bare = canonc(&root(), &[]);
    assert_eq!((bare.code, bare.stdout.as_str()), (2, ""));
    assert!(bare.stderr.contains("Usage: canonc"), "{}", bare.stderr);
}

/// Runs the next commands that `canonc new` suggested, as far as this binary can.
fn check_suggested_commands(dir: &Path, new: &Ran) {
    let next = new.stderr.lines().filter_map(|line| line.strip_prefix("  canonc "));
    for line in next.filter(|line| !line.starts_with("compare")) {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        // Training takes minutes. The dry run times a step, so the build need not.
        match words.first() {
            Some(&"run") => words.push("--dry-run"),
            Some(&"build") => words.push("--quiet"),
            Some(_) | None => {}
        }
        if cfg!(not(feature = "torch")) && words.contains(&"--dry-run") {
            continue;
        }
        let ran = canonc(dir, &words);
        assert_eq!(ran.code, 0, "{line}: {}{}", ran.stdout, ran.stderr);
    }
}

#[test]
fn new_writes_what_passes() {
    let dir = folder(&[]);
    let ran = canonc(dir.path(), &["new", "first"]);
    insta::assert_snapshot!("new", ran.text(dir.path()));
    let first = dir.path().join("first");
    let check = canonc(&first, &["check"]);
    assert_eq!(check.code, 0, "{}", check.stderr);
    assert!(check.stderr.contains("no errors"), "{}", check.stderr);
    check_suggested_commands(&first, &ran);
    assert!(first.join("lockfiles/depo.lock").is_file());
    insta::assert_snapshot!("again", canonc(dir.path(), &["new", "first"]).text(dir.path()));
    insta::assert_snapshot!("occupied", canonc(&first, &["new"]).text(dir.path()));
}

#[test]
fn new_text_is_prepared_bound_and_ready_to_run() {
    let dir = folder(&[]);
    let ran = canonc(dir.path(), &["new", "mine", "--task", "text"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let mine = dir.path().join("mine");
    check_suggested_commands(&mine, &ran);
    let verify = canonc(&mine, &["verify", "lockfiles/text.lock"]);
    assert_eq!(verify.code, 0, "{}", verify.stderr);
    assert!(!verify.stdout.contains("open:"), "{}", verify.stdout);
}

#[test]
fn new_matched_separates_what_is_added_from_what_is_narrowed() {
    for task in ["depo", "text"] {
        let dir = folder(&[]);
        let ran = canonc(dir.path(), &["new", ".", "--task", task, "--matched"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(ran.stderr.contains(&format!("canonc compare lockfiles/{task}_matched.lock")));
        let file = format!("recipes/{task}_matched.toml");
        let built = canonc(dir.path(), &["build", "-q", &file]);
        assert_eq!(built.code, 0, "{}", built.stderr);
        let lock = dir.path().join(format!("lockfiles/{task}_matched.lock"));
        let lock = std::fs::read_to_string(lock).unwrap();
        for verdict in [
            "added = \"controlled for canon",
            "narrow = \"controlled for mlp.hidden",
            "matched = \"compensated: canon at equal parameters (mlp.hidden 192 to 178)",
        ] {
            assert!(lock.contains(verdict), "{verdict}");
        }
    }
}

#[test]
fn completions_of_every_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ran = canonc(&root(), &["completions", shell]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{shell}");
        assert!(ran.stdout.contains("canonc") && ran.stdout.contains("seq-len"), "{shell}");
    }
}

#[test]
fn doctor_lists_what_a_build_needs() {
    // In a folder that looks like a clone, it lists what a build needs.
    let dir = folder(&[("runtime/fetch-libtorch.py", "")]);
    let text = canonc(dir.path(), &["doctor"]);
    assert_eq!((text.code, text.stderr.as_str()), (0, ""));
    let json = canonc(dir.path(), &["doctor", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(value["schema"], "canonc.doctor.v1");
    let facts = value["facts"].as_array().unwrap();
    for name in ["canonc", "system", "cores", "disk here", "libtorch", "cargo", "python3", "pip"] {
        let fact = facts.iter().find(|fact| fact["name"] == name);
        let fact = fact.unwrap_or_else(|| panic!("no {name} in {}", json.stdout));
        assert_eq!(fact["state"] == "lacks", fact["help"].is_string(), "{fact}");
        assert!(text.stdout.contains(name), "{name}");
    }
    // With an empty PATH nothing is found, but nothing fails.
    let mut poor = command(dir.path(), &["doctor", "--json"]);
    let poor = poor.env("PATH", "").env("LIBTORCH", "/nowhere").output().unwrap();
    let value: serde_json::Value = serde_json::from_slice(&poor.stdout).unwrap();
    for fact in value["facts"].as_array().unwrap() {
        if ["cargo", "python3", "pip", "make", "libtorch"].contains(&fact["name"].as_str().unwrap())
        {
            assert_eq!(fact["state"], "lacks", "{fact}");
        }
    }
    assert!(poor.status.success());
    // Elsewhere canonc cannot be built, so build tools are not reported missing.
    let elsewhere = folder(&[]);
    let text = canonc(elsewhere.path(), &["doctor"]).stdout;
    for name in ["cargo", "C++ compiler", "pip", "make", "libtorch  "] {
        assert!(!text.contains(name), "{name} in {text}");
    }
}

#[test]
fn help_is_a_command_too() {
    let dir = folder(&[]);
    let help = canonc(dir.path(), &["help", "data", "prepare"]);
    assert_eq!((help.code, help.stderr.as_str()), (0, ""));
    assert_eq!(help.stdout, canonc(dir.path(), &["data", "prepare", "--help"]).stdout);
    assert_eq!(canonc(dir.path(), &["help"]).stdout, canonc(dir.path(), &["--help"]).stdout);
    let wrong = canonc(dir.path(), &["help", "buld"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.stderr.contains("did you mean `canonc build`?"), "{}", wrong.stderr);
}

#[test]
fn pages_and_completions_show_what_help_shows() {
    let dir = folder(&[]);
    let ran = canonc(dir.path(), &["man", "pages"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let pages = dir.path().join("pages");
    for page in ["canonc.1", "canonc-build.1", "canonc-data-prepare.1"] {
        let text = std::fs::read_to_string(pages.join(page)).unwrap();
        assert!(text.contains(".TH"), "{page}: {text}");
    }
    let mut hidden = 0;
    for shell in ["bash", "zsh", "fish"] {
        let script = canonc(dir.path(), &["completions", shell]).stdout;
        assert!(script.contains("prepare"), "{script}");
        hidden += script.matches("--fault").count();
    }
    assert_eq!(hidden, 0, "flags that only tests use");
}

#[test]
fn quiet_says_errors_and_results_only() {
    let dir = folder(&[]);
    let usual = canonc(dir.path(), &["new", "first"]);
    assert!(usual.stderr.contains("wrote "), "{}", usual.stderr);
    let quiet = canonc(dir.path(), &["new", "second", "-q"]);
    assert_eq!((quiet.code, quiet.stdout.as_str(), quiet.stderr.as_str()), (0, "", ""));
    let wrong = canonc(dir.path(), &["--quiet", "new", "second"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.stderr.contains("is not empty"), "{}", wrong.stderr);
}
