//! An SSH signature of a file's bytes, made and checked.
//!
//! `ssh-keygen -Y verify` accepts our signatures, and we accept those of `ssh-keygen -Y sign`.

use ssh_key::public::KeyData;
use ssh_key::{Algorithm, HashAlg, LineEnding, PrivateKey, PublicKey, SshSig};

/// The purpose of the signature. Signatures made for another purpose are not accepted.
pub const NAMESPACE: &str = "canonc-attestation";

/// The signer of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signer {
    pub(crate) key: KeyData,
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
        reason: String,
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
    if needs_ssh_keygen(&read.public_key().algorithm()) {
        let reason = format!("keys of type {} are not built into canonc", signer.algorithm());
        return Err(Refused::Unsupported { signer: Box::new(signer), reason });
    }
    match PublicKey::from(read.public_key().clone()).verify(NAMESPACE, message, &read) {
        Ok(()) => Ok(signer),
        Err(_) => Err(Refused::Bad(format!(
            "it is not a signature of the current file by key {}",
            signer.fingerprint()
        ))),
    }
}

/// Whether OpenSSH supports keys of this kind, which are not built in here.
fn needs_ssh_keygen(algorithm: &Algorithm) -> bool {
    matches!(
        algorithm,
        Algorithm::Rsa { .. }
            | Algorithm::Dsa
            | Algorithm::SkEcdsaSha2NistP256
            | Algorithm::SkEd25519
    )
}

/// The text without characters that could disturb a terminal.
pub(crate) fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
