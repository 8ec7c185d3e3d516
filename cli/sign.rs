//! `canonc sign`: signs the attestation of a finished run. A run that contradicts its own lock or log is not signed.

use sign::{Signed, sign_run};

use crate::args::SignArgs;
use crate::fail::{Exit, Outcome, shown};
use crate::runs::{self, failure};
use crate::{beside, named, output};

pub fn sign(args: &SignArgs) -> Outcome {
    let folder = named::run_or_path(&args.run)?;
    beside::refuse_others(&folder)?;
    // An unreadable lock is reported with the other faults.
    let documents = match runs::locked_in(&folder) {
        Some((experiment, _)) => runs::documents_if_there(&experiment, None)?,
        None => None,
    };
    let Signed { signer, comment } =
        sign_run(&folder, documents, &args.key, args.replace).map_err(failure)?;
    let comment = if comment.is_empty() { String::new() } else { format!(" ({comment})") };
    output::note(&format!(
        "signed {}/attestation.toml with {} key {}{comment}; `canonc verify {} --signers FILE` checks it",
        shown(&folder),
        signer.algorithm(),
        signer.fingerprint(),
        shown(&folder)
    ));
    Ok(Exit::Fine)
}
