//! `attestation.toml`: the facts and results of a finished run.
//!
//! Claims are above the seal; time and duration are below it, so two runs of one lock on one machine claim the same text.

use dsl::Problem;
use lab::field::quote;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::Path;

use compiler::digest::Digest;
use serde::Deserialize;

use crate::fault::{Faults, Point};
use crate::run::{
    Kernels, Paths, cannot_read, cannot_write, refuse_other_text, replace, seal, unseal,
};

mod external;

use lab::trainer::TrainerRecord;

pub use external::ExternalAttestation;

const TAG: &str = "canonc.attestation.v1";

/// Machine facts in every attestation, in addition to environment variables.
pub const MACHINE_FACTS: [&str; 10] = [
    "blas",
    "canonc",
    "cores",
    "cpu",
    "cpu_capability",
    "kernels",
    "libtorch",
    "memory_bytes",
    "system",
    "threads",
];

/// The machine fact of a run on several ranks: their number.
pub const RANKS_FACT: &str = "ranks";

/// The claims of a finished run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attestation {
    /// The lock's name.
    pub name: String,
    /// The lock's `train` digest, which is its id.
    pub lock: Digest,
    /// The lock's `eval` digest, which determines the evaluations.
    pub eval: Digest,
    /// The lock's `platform` digest, which determines the machine's settings.
    pub platform: Digest,
    /// Number of steps done.
    pub steps: u64,
    /// The step at which training diverged, which is the last one; `None` if the run reached the end of its lock.
    pub diverged: Option<u64>,
    /// Targets that counted, over all steps.
    pub counted: u64,
    /// The metrics log's last chain digest.
    pub metrics: Digest,
    /// Number of lines of the metrics log.
    pub lines: u64,
    /// Digest of the last state's parameters.
    pub weights: Digest,
    /// Digest of the first moments of the optimiser.
    pub first_moment: Digest,
    /// Digest of the second moments.
    pub second_moment: Digest,
    /// Digest of the plan's text.
    pub plan: Digest,
    /// The path each kernel took.
    pub kernels: Kernels,
    /// Facts about the machine, by name.
    pub machine: BTreeMap<String, String>,
    /// Machines that trained earlier parts of the run, if they differ.
    pub other_machines: Vec<String>,
}

/// What the attestation of any finished run says, whoever trained it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attested {
    /// The lock's `train` digest, which is its id.
    pub lock: Digest,
    /// The lock's `eval` digest.
    pub eval: Digest,
    /// The lock's `platform` digest.
    pub platform: Digest,
    /// Number of steps done.
    pub steps: u64,
    /// The step at which training diverged.
    pub diverged: Option<u64>,
    /// Digest of the last state's parameters.
    pub weights: Digest,
    /// Facts about the machine that trained, or that evaluated what another engine trained.
    pub machine: BTreeMap<String, String>,
    /// Machines that trained earlier parts of the run.
    pub other_machines: Vec<String>,
    /// The record of the engine that trained it; `None` for canonc.
    pub trainer: Option<TrainerRecord>,
}

impl Attested {
    /// Reads the text of an attestation, by canonc's own form or that of a run trained elsewhere.
    pub fn parse(text: &str) -> Result<Attested, String> {
        match text.lines().any(|line| line == "version = 2") {
            false => Attestation::parse(text).map(Attested::from),
            true => ExternalAttestation::parse(text).map(Attested::from),
        }
    }

    /// The attestation in a run's folder; `None` without one, and an error inside if it cannot be read as one.
    pub fn read(paths: &Paths) -> Result<Option<Result<Attested, String>>, Problem> {
        let path = paths.attestation();
        match disk::read_text(&path, disk::SMALL) {
            Ok(text) => Ok(Some(Attested::parse(&text))),
            // Also in the place of a folder that is a file.
            Err(error)
                if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) =>
            {
                Ok(None)
            }
            Err(error) => Err(cannot_read(&path, &error)),
        }
    }

    /// The digest of the trainer record, by which checkpoints are read.
    pub fn trainer_digest(&self) -> Option<Digest> {
        self.trainer.as_ref().map(TrainerRecord::digest)
    }
}

impl From<Attestation> for Attested {
    fn from(attestation: Attestation) -> Attested {
        let Attestation {
            lock,
            eval,
            platform,
            steps,
            diverged,
            weights,
            machine,
            other_machines,
            ..
        } = attestation;
        let trainer = None;
        Attested {
            lock,
            eval,
            platform,
            steps,
            diverged,
            weights,
            machine,
            other_machines,
            trainer,
        }
    }
}

/// Facts that hold for one execution only.
#[derive(Clone, Copy, Debug, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Circumstances {
    /// Seconds since 1970.
    pub finished: f64,
    /// Seconds spent on the steps and evaluations in the run.
    pub seconds: f64,
    /// Number of processes that worked on it.
    pub processes: u64,
    /// Metrics lines that were computed again with the same result.
    pub proved: u64,
}

impl Attestation {
    /// The text above the seal.
    pub fn text(&self) -> String {
        let Attestation {
            name,
            lock,
            eval,
            platform,
            steps,
            diverged,
            counted,
            metrics,
            lines,
            weights,
            first_moment,
            second_moment,
            plan,
            kernels,
            machine,
            other_machines,
        } = self;
        // Other runs omit the line, so older attestations keep their text.
        let diverged = diverged.map_or_else(String::new, |step| format!("diverged = {step}\n"));
        let mut text = format!(
            "# @generated by canonc: what a finished run says of itself. The seal is over the text above it.\n\
             version = 1\nname = {}\nlock = \"{lock}\"\neval = \"{eval}\"\nplatform = \"{platform}\"\n\
             steps = {steps}\n{diverged}counted = {counted}\nmetrics = \"{metrics}\"\nlines = {lines}\n\
             weights = \"{weights}\"\nfirst_moment = \"{first_moment}\"\nsecond_moment = \"{second_moment}\"\n\
             plan = \"{plan}\"\nother_machines = {}\n",
            quote(name),
            list(other_machines),
        );
        text.push_str("\n[kernels]\n");
        for (kernel, paths) in kernels {
            let _ = writeln!(text, "{} = {}", quote(kernel), list(paths));
        }
        text.push_str("\n[machine]\n");
        for (fact, value) in machine {
            let _ = writeln!(text, "{} = {}", quote(fact), quote(value));
        }
        text
    }

    /// The whole file: claims, seal, circumstances.
    fn file(&self, circumstances: &Circumstances) -> String {
        let Circumstances { finished, seconds, processes, proved } = circumstances;
        format!(
            "{}\n[unsealed]\nfinished = {finished:?}\nseconds = {seconds:?}\nprocesses = {processes}\nproved = {proved}\n",
            seal(TAG, &self.text())
        )
    }

    /// Writes the file, with the circumstances below the seal.
    pub fn write(
        &self,
        path: &Path,
        circumstances: Circumstances,
        faults: &Faults,
    ) -> Result<(), Problem> {
        let text = self.file(&circumstances);
        let written = (|| {
            faults.pass(Point::AttestBefore)?;
            replace(path, text.as_bytes(), || faults.pass(Point::AttestFull))?;
            faults.pass(Point::AttestAfter)
        })();
        written.map_err(|error| cannot_write(path, &error))
    }

    /// Reads a file's text, which must be exactly as canonc writes it; an error says how it differs.
    pub fn parse(text: &str) -> Result<Attestation, String> {
        Attestation::parse_with_circumstances(text).map(|(attestation, _)| attestation)
    }

    /// Like [`Attestation::parse`], with what is below the seal.
    pub fn parse_with_circumstances(text: &str) -> Result<(Attestation, Circumstances), String> {
        let sealed = unseal(TAG, text)?;
        let attestation = Attestation::parse_claims(sealed)?;
        // Anyone can write below the seal, so only the four circumstances are read from there.
        let toml = |error: toml::de::Error| error.message().to_owned();
        let Below { unsealed, _seal } =
            toml::from_str(text.get(sealed.len()..).unwrap_or_default()).map_err(toml)?;
        refuse_other_text(text, &attestation.file(&unsealed))?;
        Ok((attestation, unsealed))
    }

    fn parse_claims(sealed: &str) -> Result<Attestation, String> {
        let wire: Wire = toml::from_str(sealed).map_err(|error| error.message().to_owned())?;
        let Wire {
            version,
            name,
            lock,
            eval,
            platform,
            steps,
            diverged,
            counted,
            metrics,
            lines,
            weights,
            first_moment,
            second_moment,
            plan,
            kernels,
            machine,
            other_machines,
        } = wire;
        if version != 1 {
            return Err(format!("it has version {version}, but this canonc reads version 1"));
        }
        let digest =
            |text: &str| Digest::parse(text).ok_or_else(|| format!("`{text}` is not a digest"));
        Ok(Attestation {
            name,
            lock: digest(&lock)?,
            eval: digest(&eval)?,
            platform: digest(&platform)?,
            steps,
            diverged,
            counted,
            metrics: digest(&metrics)?,
            lines,
            weights: digest(&weights)?,
            first_moment: digest(&first_moment)?,
            second_moment: digest(&second_moment)?,
            plan: digest(&plan)?,
            kernels,
            machine,
            other_machines,
        })
    }
}

/// The seal and the text below it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Below {
    unsealed: Circumstances,
    /// Checked by [`unseal`].
    #[serde(rename = "seal")]
    _seal: serde::de::IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    version: u64,
    name: String,
    lock: String,
    eval: String,
    platform: String,
    steps: u64,
    diverged: Option<u64>,
    counted: u64,
    metrics: String,
    lines: u64,
    weights: String,
    first_moment: String,
    second_moment: String,
    plan: String,
    kernels: Kernels,
    machine: BTreeMap<String, String>,
    other_machines: Vec<String>,
}

fn list<'a>(items: impl IntoIterator<Item = &'a String>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| quote(item)).collect();
    format!("[{}]", items.join(", "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use dsl::ProblemKind;

    use super::*;

    fn attestation() -> Attestation {
        let digest = |what: &str| Digest::of("test", what);
        let paths = BTreeSet::from(["avx2".to_owned(), "reference (asked)".to_owned()]);
        Attestation {
            name: "llama \"tiny\"\n".to_owned(),
            lock: digest("lock"),
            eval: digest("eval"),
            platform: digest("platform"),
            steps: 600,
            diverged: None,
            counted: 12345,
            metrics: digest("metrics"),
            lines: 607,
            weights: digest("weights"),
            first_moment: digest("first"),
            second_moment: digest("second"),
            plan: digest("plan"),
            kernels: BTreeMap::from([("causal_conv".to_owned(), paths)]),
            machine: BTreeMap::from([("cpu".to_owned(), "a\\b".to_owned())]),
            other_machines: vec!["an older one".to_owned()],
        }
    }

    #[test]
    fn what_is_written_is_read_and_time_is_outside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("attestation.toml");
        let write = |finished: f64| {
            let circumstances = Circumstances { finished, seconds: 1.5, processes: 2, proved: 0 };
            attestation().write(&path, circumstances, &Faults::none()).unwrap();
            std::fs::read_to_string(&path).unwrap()
        };
        let (one, two) = (write(1e9), write(2e9));
        assert_ne!(one, two);
        for text in [one, two] {
            assert_eq!(Attestation::parse(&text), Ok(attestation()));
            // The whole file is TOML, too.
            assert!(toml::from_str::<toml::Table>(&text).unwrap().contains_key("unsealed"));
            let changed = text.replace("steps = 600", "steps = 601");
            assert!(Attestation::parse(&changed).unwrap_err().contains("its seal is"));
            // Nothing can be added below the seal, nor above it with a recomputed seal.
            for more in ["x = 1\n", "# a comment\n", "\n", "[more]\nsteps = 9\n", "proved = 1\n"] {
                assert!(Attestation::parse(&format!("{text}{more}")).is_err(), "{more}");
                let above = seal(TAG, &format!("{}{more}", attestation().text()));
                let below = text.split_once("[unsealed]").unwrap().1;
                let resealed = format!("{above}\n[unsealed]{below}");
                assert!(Attestation::parse(&resealed).is_err(), "{more}");
            }
            let without = text.split_once("\n[unsealed]").unwrap().0;
            assert!(Attestation::parse(without).unwrap_err().contains("unsealed"));
        }
        let full = Faults::parse("attest-full").unwrap();
        let before = std::fs::read(&path).unwrap();
        let error = attestation().write(&path, Circumstances::default(), &full).unwrap_err();
        assert_eq!(error.kind, ProblemKind::Machine);
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}
