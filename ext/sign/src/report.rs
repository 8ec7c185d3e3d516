//! What the signature of a run's attestation proves, in the report of `canonc verify`.
//!
//! A signature by any key that does not match the current file is a finding; without a list of signers a good signature
//! does not say who owns the key.

use std::io;
use std::path::Path;

use records::run::{Paths, Refusal};
use records::verify::{Subject, VerifyReport};

use crate::allowed::{AllowedSigners, Listed};
use crate::signature::{NAMESPACE, Refused, Signer, check};

/// The signers that the reader trusts.
#[derive(Clone, Copy, Debug)]
pub struct Trusted<'a> {
    /// The list of trusted signers.
    pub signers: &'a AllowedSigners,
    /// The list's name in messages.
    pub file: &'a str,
    /// The name that must have signed; `None` for any listed one.
    pub identity: Option<&'a str>,
    /// Seconds since 1970.
    pub now: i64,
}

/// Adds the result of checking the signature.
pub fn report(paths: &Paths, trusted: Option<Trusted<'_>>, report: &mut VerifyReport) {
    let path = paths.signature();
    let signature = match disk::read_text(&path, disk::SMALL) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            report_unsigned(trusted, report);
            return;
        }
        Err(error) => {
            unreadable(&path, &error, "attestation.toml.sig cannot be read", report);
            return;
        }
    };
    let message = match disk::read(&paths.attestation(), disk::SMALL) {
        Ok(message) => message,
        Err(error) => {
            let what = "attestation.toml.sig signs a file that cannot be read";
            unreadable(&paths.attestation(), &error, what, report);
            return;
        }
    };
    match check(&message, &signature) {
        Ok(signer) => report_signer(&signer, trusted, report),
        Err(Refused::Bad(reason)) => {
            report.broken_signature(format!("attestation.toml.sig: {reason}"));
        }
        // A key that is not listed needs no further check.
        Err(Refused::Unsupported { signer, reason }) => {
            if let Some(Trusted { signers, file, identity, now }) = trusted
                && let Listed::No(refusal) = signers.find(&signer, identity, now)
            {
                report.broken_signature(not_allowed(&signer, file, &refusal));
                return;
            }
            report.undecided(format!(
                "attestation.toml.sig: {reason}; `ssh-keygen -Y verify -n {NAMESPACE} -f SIGNERS -I NAME -s {} < {}` \
                 checks it",
                paths.signature().display(),
                paths.attestation().display()
            ));
        }
    }
}

fn unreadable(path: &Path, error: &io::Error, what: &str, report: &mut VerifyReport) {
    match Refusal::of_io(path, error) {
        Refusal::Wrong(why) => report.broken_signature(format!("{what}: {why}")),
        unread => report.faulty("", unread),
    }
}

fn report_unsigned(trusted: Option<Trusted<'_>>, report: &mut VerifyReport) {
    match trusted {
        Some(Trusted { file, .. }) => report.broken_signature(format!(
            "attestation.toml.sig is missing: the run is not signed, so nobody in {file} signed it"
        )),
        None => report
            .trusted(Subject::Signature, "the attestation is not signed: nobody vouches for it"),
    }
}

fn report_signer(signer: &Signer, trusted: Option<Trusted<'_>>, report: &mut VerifyReport) {
    let (algorithm, fingerprint) = (signer.algorithm(), signer.fingerprint());
    let Some(Trusted { signers, file, identity, now }) = trusted else {
        report.trusted(
            Subject::Signature,
            format!(
                "signed by {algorithm} key {fingerprint}; the owner of the key was not checked: name a list of \
                 signers with --signers FILE"
            ),
        );
        return;
    };
    match signers.find(signer, identity, now) {
        Listed::As(names) => report.checked(
            Subject::Signature,
            format!("signed by {names} ({algorithm} {fingerprint}), a signer that {file} lists"),
        ),
        Listed::No(refusal) => report.broken_signature(not_allowed(signer, file, &refusal)),
    }
}

fn not_allowed(signer: &Signer, file: &str, refusal: &str) -> String {
    format!(
        "attestation.toml.sig: signed by {} key {}, which {file} does not allow: {refusal}",
        signer.algorithm(),
        signer.fingerprint()
    )
}
