//! SSH signatures of attestations.
//!
//! A signature covers every byte of `attestation.toml`, including those below its seal. It proves who vouches for the file,
//! never that the file is true.

#![warn(missing_docs)]

mod signature;
mod allowed;
mod report;
mod run;
#[cfg(test)]
mod tests;

pub use allowed::{AllowedSigners, Listed};
pub use report::{Trusted, report};
pub use run::{Signed, sign_run};
pub use signature::{NAMESPACE, Refused, Signer, check, sign};
