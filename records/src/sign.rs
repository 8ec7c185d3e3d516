//! In: the bytes of a run's attestation and an OpenSSH key. Out: an SSH signature of them, and the check of one. Must
//! stay true: the signature covers every byte of the file, including those below its seal; `ssh-keygen -Y verify`
//! accepts our signatures, and we accept those of `ssh-keygen -Y sign`; a signature proves who vouches for the file,
//! never that the file is true.

mod allowed;
mod report;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use data::text::index::TextIndex;

use crate::finished;
use crate::run::{Paths, RunError, cannot_read, cannot_write, read_experiment, replace};
use crate::verify::{self, Remake};
use ssh_key::public::KeyData;
use ssh_key::{Algorithm, HashAlg, LineEnding, PrivateKey, PublicKey, SshSig};

pub use allowed::{AllowedSigners, Listed};
pub use report::{Trusted, report};

/// The purpose of the signature. Signatures made for another purpose are not accepted.
pub const NAMESPACE: &str = "canonc-attestation";

/// The signer of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signer {
    key: KeyData,
}

impl Signer {
    /// `SHA256:...`, as printed by `ssh-keygen -l`.
    pub fn fingerprint(&self) -> String {
        self.key.fingerprint(HashAlg::Sha256).to_string()
    }

    /// For example `ssh-ed25519`.
    pub fn algorithm(&self) -> String {
        self.key.algorithm().to_string()
    }
}

/// Why a signature is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is not a signature of this file.
    Bad(String),
    /// It may be valid, but its kind of key is not built in.
    Unsupported {
        /// The key that the signature names.
        signer: Box<Signer>,
        /// What is not supported, in words.
        why: String,
    },
}

/// The signature of `message`, as text.
pub fn sign(message: &[u8], key: &PrivateKey) -> Result<String, ssh_key::Error> {
    key.sign(NAMESPACE, HashAlg::Sha512, message)?.to_pem(LineEnding::LF)
}

/// The signer of `message`.
pub fn check(message: &[u8], signature: &str) -> Result<Signer, Refused> {
    // Like ssh-keygen: white space after the last line is ignored, other line ends are refused.
    let signature = format!("{}\n", signature.trim_end());
    let read = SshSig::from_pem(&signature)
        .map_err(|error| Refused::Bad(format!("it is not an SSH signature: {error}")))?;
    // The signature does not cover the version, and the crate accepts versions that never existed.
    if read.version() != SshSig::VERSION {
        return Err(Refused::Bad(format!(
            "it is an SSH signature of version {}, but only version {} exists",
            read.version(),
            SshSig::VERSION
        )));
    }
    // Nor does it cover inner lengths, so accept only the one text that OpenSSH writes.
    let written = read.to_pem(LineEnding::LF).unwrap_or_default();
    if written != signature {
        return Err(Refused::Bad("it is not as OpenSSH writes a signature".to_owned()));
    }
    if read.namespace() != NAMESPACE {
        return Err(Refused::Bad(format!(
            "it was made for `{}`, not for `{NAMESPACE}`",
            shown(read.namespace())
        )));
    }
    let signer = Signer { key: read.public_key().clone() };
    // The kind of key decides whether we can check it, since a signature's bytes can name any algorithm.
    if is_elsewhere(&read.public_key().algorithm()) {
        let why = format!("keys of type {} are not built into canonc", signer.algorithm());
        return Err(Refused::Unsupported { signer: Box::new(signer), why });
    }
    match PublicKey::from(read.public_key().clone()).verify(NAMESPACE, message, &read) {
        Ok(()) => Ok(signer),
        Err(_) => Err(Refused::Bad(format!(
            "it is not a signature of the current file by key {}",
            signer.fingerprint()
        ))),
    }
}

/// Kinds of keys that OpenSSH supports and that are not built in.
fn is_elsewhere(algorithm: &Algorithm) -> bool {
    matches!(
        algorithm,
        Algorithm::Rsa { .. }
            | Algorithm::Dsa
            | Algorithm::SkEcdsaSha2NistP256
            | Algorithm::SkEd25519
    )
}

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
pub fn sign_run(
    folder: &Path,
    documents: Option<Arc<TextIndex>>,
    key: &Path,
    again: bool,
) -> Result<Signed, RunError> {
    let paths = Paths::new(folder);
    let lock = paths.lock();
    let text = disk::read_text(&lock, disk::SMALL).map_err(|error| {
        RunError::input(
            format!("{} is not a run's folder: its lock cannot be read: {error}", folder.display()),
            "name a folder written by `canonc run`, such as runs/NAME",
        )
    })?;
    let experiment = read_experiment(&lock.display().to_string(), &text)?;
    finished::read(&paths, (&experiment).into())?;
    let found = verify::verify(folder, documents, Remake::Spread)?.broken;
    if let Some(first) = found.first() {
        let more = match found.len() {
            1 => String::new(),
            count => format!(", and {} more", count - 1),
        };
        return Err(RunError::finding(
            format!("the run in {} is not signed: {first}{more}", folder.display()),
            format!("`canonc verify {}` lists every finding", folder.display()),
        ));
    }
    let target = paths.signature();
    if target.exists() && !again {
        return Err(RunError::input(
            format!("{} exists: the run is already signed", target.display()),
            format!("`canonc verify {}` checks it; --replace signs again", folder.display()),
        ));
    }
    let attestation = paths.attestation();
    let message =
        disk::read(&attestation, disk::SMALL).map_err(|error| cannot_read(&attestation, &error))?;
    let private = read_key(key, &attestation)?;
    let signature = sign(&message, &private)
        .map_err(|error| elsewhere(key, &attestation, &format!("cannot sign here: {error}")))?;
    replace(&target, signature.as_bytes(), || Ok(()))
        .map_err(|error| cannot_write(&target, &error))?;
    Ok(Signed {
        signer: Signer { key: private.public_key().key_data().clone() },
        comment: shown(private.comment()),
    })
}

/// Reads a private key that can sign here.
fn read_key(path: &Path, attestation: &Path) -> Result<PrivateKey, RunError> {
    let bytes = disk::read(path, disk::SMALL).map_err(|error| {
        RunError::input(
            format!("the key {} cannot be read: {error}", path.display()),
            "name a private key with --key; `ssh-keygen -t ed25519 -f KEY` makes one",
        )
    })?;
    if std::str::from_utf8(&bytes).is_ok_and(|text| PublicKey::from_openssh(text).is_ok()) {
        let what = "is a public key, but a signature needs the private key";
        return Err(elsewhere(path, attestation, what));
    }
    let key = PrivateKey::from_openssh(&bytes).map_err(|error| {
        RunError::input(
            format!("{} is not a private key in OpenSSH's format: {error}", path.display()),
            "`ssh-keygen -p -f KEY` rewrites an older key in this format; `ssh-keygen -t ed25519 -f KEY` makes a new one",
        )
    })?;
    if key.is_encrypted() {
        return Err(elsewhere(
            path,
            attestation,
            "is protected by a passphrase, which canonc does not ask for",
        ));
    }
    Ok(key)
}

/// The error for a key that only `ssh-keygen` can use, with the right command.
fn elsewhere(key: &Path, attestation: &Path, what: &str) -> RunError {
    RunError::input(
        format!("{} {what}", key.display()),
        format!(
            "sign with ssh-keygen, which writes the same file: ssh-keygen -Y sign -n {NAMESPACE} -f {} {}",
            key.display(),
            attestation.display()
        ),
    )
}

/// The text without characters that could disturb a terminal.
fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
