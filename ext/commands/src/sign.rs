//! `canonc sign`: signs a finished run's attestation with an SSH key.

use std::path::PathBuf;

use ::sign::{Signed, sign_run};
use clap::Args;

use cli::fail::{Exit, Outcome, shown};
use cli::inputs::{self, GivenPaths};
use cli::{comparison_folder, output, workspace};
use records::verify::Inputs;

/// Sign a finished run's attestation with an SSH key
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc sign runs/depo_llama --key ~/.ssh/id_ed25519
  canonc verify runs/depo_llama                       shows which key signed it
  canonc verify runs/depo_llama --signers allowed_signers --identity ada@lab.org

Writes attestation.toml.sig into the run's folder: an SSH signature over every byte of attestation.toml,
for the purpose `canonc-attestation`. It shows who vouches for the attestation, not that the attestation is
true: see `canonc verify --replay`. OpenSSH makes and checks the same file, also with keys that are protected
by a passphrase, in an agent or on hardware:

  ssh-keygen -Y sign -n canonc-attestation -f KEY runs/depo_llama/attestation.toml
  ssh-keygen -Y verify -n canonc-attestation -f allowed_signers -I ada@lab.org \\
      -s runs/depo_llama/attestation.toml.sig < runs/depo_llama/attestation.toml

canonc itself supports keys of type ed25519 and ecdsa without a passphrase. A line of allowed_signers is a name
and a public key: ada@lab.org ssh-ed25519 AAAA...")]
pub struct SignArgs {
    /// A finished run's folder, or its name under runs/
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// A private key in OpenSSH's format
    #[arg(long, value_name = "KEY")]
    pub key: PathBuf,
    /// Replace an existing signature
    #[arg(long)]
    pub replace: bool,
}

pub fn sign(args: &SignArgs) -> Outcome {
    let folder = workspace::path(&args.run)?;
    comparison_folder::refuse_others(&folder)?;
    // An unreadable lock is reported with the other faults.
    let inputs = match workspace::experiment_of_run(&folder)? {
        Some((experiment, _)) => inputs::read_if_present(&experiment, GivenPaths::default())?,
        None => Inputs::default(),
    };
    let Signed { signer, comment } = sign_run(&folder, inputs, &args.key, args.replace)?;
    let comment = if comment.is_empty() { String::new() } else { format!(" ({comment})") };
    output::note(&format!(
        "signed {}/attestation.toml with {} key {}{comment}; `canonc verify {} --signers FILE` checks it",
        shown(&folder),
        signer.algorithm(),
        signer.fingerprint(),
        shown(&folder)
    ));
    comparison_folder::warn_of_private(&folder)?;
    Ok(Exit::Fine)
}
