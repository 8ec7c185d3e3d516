//! Outputs replace only older ones of their kind.

use std::fs;
use std::path::Path;

use cli::fail::Exit;
use cli::out::{OutputKind, named, put};

const KINDS: [OutputKind; 11] = [
    OutputKind::Lock,
    OutputKind::Page,
    OutputKind::Picture,
    OutputKind::Lines(&["text", "answer"]),
    OutputKind::Samples,
    OutputKind::Tensors,
    OutputKind::Events,
    OutputKind::Windows,
    OutputKind::Manual,
    OutputKind::Selftest,
    OutputKind::Evaluation,
];

#[test]
fn files_of_others_are_left_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    for theirs in [
        "# thesis\n",
        "{\"kind\":\"step\",\"step\":1}\n",
        "<!doctype html><title>mine</title>",
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 9 9\"></svg>",
        "PAR1xxPAR1",
        "{\"text\":1",
        "{\"text\":\"a line of somebody's corpus\"}\n",
        "{\"targets\":[1],\"mine\":1}\n",
        "\u{8}\0\0\0\0\0\0\0{\"__metadata__\":{\"canonc\":\"lock 1 step 2\"}}",
    ] {
        fs::write(&path, theirs).unwrap();
        for kind in KINDS {
            let failure = put(&path, kind, "ours").unwrap_err();
            assert_eq!(failure.exit, Exit::BadInput);
            assert_eq!(fs::read_to_string(&path).unwrap(), theirs, "{kind:?}");
        }
    }
}

#[test]
fn an_older_one_of_its_kind_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep").join("file.canonc");
    let page = "<!doctype html>\n<title>a · canonc report</title>";
    let tensors = "\u{8}\0\0\0\0\0\0\0{\"__metadata__\":{\"canonc\":\"forward\"}}";
    for (kind, older) in [
        (OutputKind::Page, page),
        (OutputKind::Lines(&["text", "answer"]), "{\"text\":\"a\",\"answer\":\"b\"}\n"),
        (OutputKind::Tensors, tensors),
        (
            OutputKind::Selftest,
            "{\"part\":\"machine\",\"schema\":\"canonc.selftest.v2\",\"device\":\"cpu\"",
        ),
        (OutputKind::Evaluation, "{\n  \"schema\": \"canonc.eval.v1\",\n"),
        (OutputKind::Events, "\u{18}\0\0brain.Event:2"),
        (OutputKind::Page, ""),
    ] {
        put(&path, kind, older).unwrap();
        put(&path, kind, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new", "{kind:?}");
        fs::remove_file(&path).unwrap();
    }
}

#[cfg(unix)]
#[test]
fn a_link_is_not_followed_to_a_file() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let (link, file) = (folder.path().join("link"), folder.path().join("file"));
    symlink(&file, &link).unwrap();
    // A missing file, an empty one, and one of our own.
    for content in [None, Some(""), Some("{\"text\":\"a\"}\n")] {
        if let Some(content) = content {
            fs::write(&file, content).unwrap();
        }
        assert!(put(&link, OutputKind::Lines(&["text"]), "new").is_err());
        assert_eq!(fs::read_to_string(&file).ok().as_deref(), content);
    }
    let device = folder.path().join("device");
    symlink("/dev/null", &device).unwrap();
    put(&device, OutputKind::Page, "new").unwrap();
    assert!(fs::symlink_metadata(&device).unwrap().is_symlink());
}

#[test]
fn a_name_that_is_a_path_is_refused() {
    let folder = Path::new("runs");
    assert_eq!(named(folder, "a-b.c", ".lock").unwrap(), folder.join("a-b.c.lock"));
    for name in ["../x", "/etc/x", "a/b", "..", "", "x\n"] {
        assert!(named(folder, name, "").is_err(), "{name:?}");
    }
}
