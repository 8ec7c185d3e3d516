//! `canonc fmt`.

use std::fs;

use crate::{GOOD, canonc, canonc_reading, folder, root};

const UGLY: &str = "arch  good{ vocab 16   dim 8   norm_eps 1e-5\n init lingua\n layers 2 of decoder{mixer attention{heads 2}\n mlp swiglu{hidden 16}}}\n";

#[test]
fn in_place_and_only_once() {
    let dir = folder(&[("a.canon", UGLY), ("sub/b.canon", GOOD)]);
    let ran = canonc(dir.path(), &["fmt", "."]);
    insta::assert_snapshot!("formatted", ran.text(dir.path()));
    insta::assert_snapshot!("text", fs::read_to_string(dir.path().join("a.canon")).unwrap());
    let untouched = fs::metadata(dir.path().join("a.canon")).unwrap().modified().unwrap();
    insta::assert_snapshot!("again", canonc(dir.path(), &["fmt", "."]).text(dir.path()));
    let now = fs::metadata(dir.path().join("a.canon")).unwrap().modified().unwrap();
    assert_eq!(now, untouched, "a formatted file is left alone");
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "no temporary file is left: {names:?}");
}

#[test]
fn check_lists_and_writes_nothing() {
    let dir = folder(&[("a.canon", UGLY), ("b.canon", GOOD)]);
    let ran = canonc(dir.path(), &["fmt", "--check", "a.canon", "b.canon"]);
    insta::assert_snapshot!(ran.text(dir.path()));
    assert_eq!(fs::read_to_string(dir.path().join("a.canon")).unwrap(), UGLY);
}

/// Lines end as those of the file do.
#[test]
fn carriage_returns_are_kept() {
    let returns = GOOD.replace('\n', "\r\n");
    let dir = folder(&[("good.canon", &returns), ("ugly.canon", &UGLY.replace('\n', "\r\n"))]);
    let ran = canonc(dir.path(), &["fmt", "--check", "good.canon"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
    assert_eq!(canonc(dir.path(), &["fmt", "."]).code, 0);
    let text = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    assert_eq!(text("good.canon"), returns);
    let plain = canonc_reading(dir.path(), &["fmt", "-"], UGLY).stdout;
    assert_eq!(text("ugly.canon"), plain.replace('\n', "\r\n"));
}

#[test]
fn the_committed_sources_are_formatted() {
    let ran = canonc(&root(), &["fmt", "--check", "cli/commands/new", "arch", "std"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
}

#[test]
fn standard_input() {
    let dir = folder(&[]);
    let ran = canonc_reading(dir.path(), &["fmt", "-"], UGLY);
    let again = canonc_reading(dir.path(), &["fmt", "-"], &ran.stdout);
    assert_eq!((ran.code, &ran.stdout), (0, &again.stdout));
    let check = canonc_reading(dir.path(), &["fmt", "--check", "-"], UGLY);
    assert_eq!((check.code, check.stdout.as_str()), (1, "<stdin>\n"));
}

#[test]
fn a_broken_file_stays_and_the_others_are_done() {
    let broken = "arch {\n";
    let dir = folder(&[("a.canon", broken), ("b.canon", UGLY)]);
    let ran = canonc(dir.path(), &["fmt", "."]);
    insta::assert_snapshot!(ran.text(dir.path()));
    assert_eq!(fs::read_to_string(dir.path().join("a.canon")).unwrap(), broken);
    assert_ne!(fs::read_to_string(dir.path().join("b.canon")).unwrap(), UGLY);
}

#[cfg(unix)]
mod permissions {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(path: &std::path::Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn are_kept_and_links_stay_links() {
        let dir = folder(&[("real.canon", UGLY)]);
        let (real, link) = (dir.path().join("real.canon"), dir.path().join("link.canon"));
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        symlink("real.canon", &link).unwrap();
        assert_eq!(canonc(dir.path(), &["fmt", "link.canon"]).code, 0);
        assert_eq!(mode(&real), 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_ne!(fs::read_to_string(&real).unwrap(), UGLY);
    }

    #[test]
    fn a_read_only_folder_or_file_is_refused() {
        let dir = folder(&[("locked/a.canon", UGLY), ("b.canon", UGLY)]);
        let (locked, file) = (dir.path().join("locked"), dir.path().join("b.canon"));
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o555)).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
        let ran = canonc(dir.path(), &["fmt", "locked", "b.canon"]);
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o755)).unwrap();
        insta::assert_snapshot!(ran.text(dir.path()));
        assert_eq!(fs::read_to_string(locked.join("a.canon")).unwrap(), UGLY);
        assert_eq!(fs::read_to_string(file).unwrap(), UGLY);
    }
}
