//! Signatures of attestations, for `canonc verify`.

use std::time::{SystemTime, UNIX_EPOCH};

use cli::extensions::{Signatures, TrustedFile};
use cli::fail::{Failure, shown};
use records::run::Paths;
use records::verify::VerifyReport;
use sign::{AllowedSigners, Trusted};

/// Signatures with SSH keys.
pub(crate) struct Ssh;

impl Signatures for Ssh {
    fn report(
        &self,
        run: &Paths,
        trusted: Option<TrustedFile<'_>>,
        report: &mut VerifyReport,
    ) -> Result<(), Failure> {
        let Some(TrustedFile { signers: file, identity }) = trusted else {
            sign::report(run, None, report);
            return Ok(());
        };
        let text = disk::read_text(file, disk::SMALL)
            .map_err(|error| Failure::cannot_read(file, &error))?;
        let signers = AllowedSigners::parse(&text).map_err(|(line, fault)| {
            Failure::bad_input(fault)
                .at(format!("{}:{line}", shown(file)))
                .help("a line is a name and a public key: ada@lab.org ssh-ed25519 AAAA...")
        })?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let trusted = Trusted {
            signers: &signers,
            file: &shown(file),
            identity,
            now: i64::try_from(now).unwrap_or(i64::MAX),
        };
        sign::report(run, Some(trusted), report);
        Ok(())
    }
}
