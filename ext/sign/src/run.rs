//! Signs the attestation of a finished run.

use std::path::Path;

use disk::replace;
use dsl::Problem;
use records::finished;
use records::run::{Paths, cannot_read, cannot_write, experiment_from_text};
use records::verify::{Inputs, Remake, verify};
use ssh_key::{PrivateKey, PublicKey};

use crate::signature::{NAMESPACE, Signer, shown, sign};

/// A run that was signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// The signer's key.
    pub signer: Signer,
    /// The key's comment, often its owner's name; may be empty.
    pub comment: String,
}

/// Signs the attestation of a finished run. The signer vouches for the whole folder, so everything that `canonc verify`
/// checks is checked first.
pub fn sign_run(folder: &Path, inputs: Inputs, key: &Path, again: bool) -> Result<Signed, Problem> {
    let paths = Paths::new(folder);
    let lock = paths.lock();
    let text = disk::read_text(&lock, disk::SMALL).map_err(|error| {
        disk::cannot_read(
            &error,
            format!("{} is not a run's folder: its lock cannot be read: {error}", folder.display()),
            "name a folder written by `canonc run`, such as runs/NAME",
        )
    })?;
    let experiment = experiment_from_text(&lock.display().to_string(), &text)?;
    finished::read(&paths, (&experiment).into())?;
    let broken = verify(folder, inputs, Remake::Spread)?.broken;
    if let Some(first) = broken.first() {
        let more = match broken.len() {
            1 => String::new(),
            count => format!(", and {} more", count - 1),
        };
        return Err(Problem::finding(
            format!("the run in {} is not signed: {first}{more}", folder.display()),
            format!("`canonc verify {}` lists every finding", folder.display()),
        ));
    }
    let target = paths.signature();
    if target.exists() && !again {
        return Err(Problem::input(
            format!("{} exists: the run is already signed", target.display()),
            format!("`canonc verify {}` checks it; --replace signs again", folder.display()),
        ));
    }
    let attestation = paths.attestation();
    let message =
        disk::read(&attestation, disk::SMALL).map_err(|error| cannot_read(&attestation, &error))?;
    let private = read_key(key, &attestation)?;
    let signature = sign(&message, &private).map_err(|error| {
        use_ssh_keygen(key, &attestation, &format!("cannot sign here: {error}"))
    })?;
    replace(&target, signature.as_bytes(), || Ok(()))
        .map_err(|error| cannot_write(&target, &error))?;
    Ok(Signed {
        signer: Signer { key: private.public_key().key_data().clone() },
        comment: shown(private.comment()),
    })
}

/// Reads a private key that can sign here.
pub(crate) fn read_key(path: &Path, attestation: &Path) -> Result<PrivateKey, Problem> {
    let bytes = disk::read(path, disk::SMALL).map_err(|error| {
        disk::cannot_read(
            &error,
            format!("the key {} cannot be read: {error}", path.display()),
            "name a private key with --key; `ssh-keygen -t ed25519 -f KEY` makes one",
        )
    })?;
    if std::str::from_utf8(&bytes).is_ok_and(|text| PublicKey::from_openssh(text).is_ok()) {
        let what = "is a public key, but a signature needs the private key";
        return Err(use_ssh_keygen(path, attestation, what));
    }
    let key = PrivateKey::from_openssh(&bytes).map_err(|error| {
        Problem::input(
            format!("{} is not a private key in OpenSSH's format: {error}", path.display()),
            "`ssh-keygen -p -f KEY` rewrites an older key in this format; `ssh-keygen -t ed25519 -f KEY` makes a new one",
        )
    })?;
    if key.is_encrypted() {
        return Err(use_ssh_keygen(
            path,
            attestation,
            "is protected by a passphrase, which canonc does not ask for",
        ));
    }
    Ok(key)
}

/// The error for a key that only `ssh-keygen` can use, with the right command.
fn use_ssh_keygen(key: &Path, attestation: &Path, fault: &str) -> Problem {
    Problem::input(
        format!("{} {fault}", key.display()),
        format!(
            "sign with ssh-keygen, which writes the same file: ssh-keygen -Y sign -n {NAMESPACE} -f {} {}",
            key.display(),
            attestation.display()
        ),
    )
}
