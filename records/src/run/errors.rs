//! Errors for files of a run that cannot be read or written.

use std::io;
use std::path::Path;

use compiler::digest::Digest;
use dsl::Problem;

/// The error when `path` could not be written (or made, synced, deleted).
pub fn cannot_write(path: &Path, error: &io::Error) -> Problem {
    if disk::is_wrong_path(error) {
        return wrong_path(path, error);
    }
    let path = path.display();
    let kind = error.kind();
    if matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        return Problem::machine(
            format!("the disk is full: {path} was not written"),
            "free some space and repeat the command; the run continues from its last checkpoint",
        );
    }
    if matches!(kind, io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) {
        return Problem::machine(
            format!("{path} cannot be written: {error}"),
            "make the folder writable, or name another one with --dir",
        );
    }
    Problem::machine(
        format!("{path} was not written: {error}"),
        "check that the folder can be created and the disk works, or name another folder with --dir",
    )
}

/// The error for a path of the wrong kind, which another machine would refuse too.
fn wrong_path(path: &Path, error: &io::Error) -> Problem {
    let text = error.to_string();
    let fault = if error.kind() == io::ErrorKind::NotADirectory {
        "a part of the path is not a folder"
    } else if error.kind() == io::ErrorKind::AlreadyExists {
        "a file is in the place of a folder"
    } else {
        text.split(" (os error").next().unwrap_or(&text)
    };
    Problem::input(format!("`{}` cannot be used: {fault}", path.display()), "name another path")
}

/// The error when `path` could not be read.
pub fn cannot_read(path: &Path, error: &io::Error) -> Problem {
    if disk::is_wrong_path(error) {
        return wrong_path(path, error);
    }
    if matches!(error.kind(), std::io::ErrorKind::FileTooLarge | std::io::ErrorKind::InvalidData) {
        return Problem::input(
            format!("{} cannot be used: {error}", path.display()),
            "restore it from a copy; `canonc verify` lists every fault of a run",
        );
    }
    Problem::machine(
        format!("{} cannot be read: {error}", path.display()),
        "check that it exists and is readable, and repeat the command",
    )
}

/// A BLAKE3 hash as a digest of a lock.
pub fn digest_of(hash: blake3::Hash) -> Digest {
    Digest::parse(&hash.to_hex()).expect("a hash is 64 lower-case hexadecimal digits")
}
