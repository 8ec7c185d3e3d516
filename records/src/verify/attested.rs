//! Checks the plan and the kernels of a run, and every claim of its attestation.
//!
//! A claim is compared with what it is about; if only another file of the run says the same, it is reported as trusted.

use std::path::Path;

use compiler::digest::Digest;
use lab::experiment::{Device, Experiment, KernelPath};

use super::log::Log;
use super::{Subject, VerifyReport, read};
use crate::attest::{Attestation, MACHINE_FACTS, RANKS_FACT};
use crate::checkpoint::{self, Manifest};
use crate::job::{PLAN_TAG, kernel_names, plan_text};
use crate::platform::{BlasMode, PlatformSpec, required_env};
use crate::run::{Difference, Kernels, Paths, first_difference, parse_kernels, wrong_kernels};

/// The subjects of the claims, as far as they exist.
pub(super) struct Evidence<'a> {
    pub(super) log: Option<&'a Log>,
    /// The last step's checkpoint, if it is valid.
    pub(super) saved: Option<Manifest>,
    pub(super) last_is_there: bool,
    pub(super) finished: bool,
}

/// Checks the plan and the kernels, even of an unfinished run, and then everything that the attestation claims.
pub(super) fn check(
    paths: &Paths,
    experiment: &Experiment,
    attestation: Option<Result<Attestation, String>>,
    evidence: Evidence<'_>,
    report: &mut VerifyReport,
) {
    let known = attestation.as_ref().and_then(|read| read.as_ref().ok());
    // A plan is written before the first line of the log.
    let started = evidence.finished || evidence.log.is_some_and(|log| !log.records.is_empty());
    let plan = check_plan(&paths.plan(), experiment, known, started, report);
    // Kernels are written before each checkpoint; before the first step none has run.
    let steps = checkpoint::names(&paths.checkpoints()).unwrap_or_else(|error| {
        report.faulty("", error);
        Vec::new()
    });
    let trained = steps.iter().any(|name| checkpoint::step_of(name) > Some(0));
    let kernels =
        check_kernels(&paths.kernels(), experiment, known, trained || evidence.finished, report);
    match attestation {
        None => {}
        Some(Err(fault)) => report.broken(format!("attestation.toml: {fault}")),
        Some(Ok(attestation)) => {
            check_claims(&attestation, experiment, &evidence, plan, kernels, report)
        }
    }
}

/// The other version of canonc that made the run, by the attestation, if any.
pub(super) fn other_canonc(attestation: Option<&Attestation>) -> Option<&String> {
    let by = attestation.and_then(|known| known.machine.get("canonc"));
    by.filter(|by| *by != env!("CARGO_PKG_VERSION"))
}

/// Compiles the plan again. Returns the digest of the stored plan.
fn check_plan(
    path: &Path,
    experiment: &Experiment,
    attestation: Option<&Attestation>,
    started: bool,
    report: &mut VerifyReport,
) -> Option<Digest> {
    let stored = match read(path) {
        Ok(Some(stored)) => stored,
        Ok(None) => {
            if started {
                report.broken("plan.txt is missing; every run that has started has one");
            }
            return None;
        }
        Err(error) => {
            report.unreadable(path, &error);
            return None;
        }
    };
    let compiled = match plan_text(experiment) {
        Ok(compiled) => compiled,
        Err(error) => {
            report.broken(format!("plan.txt: {}", error.message));
            return None;
        }
    };
    let this_canonc = env!("CARGO_PKG_VERSION");
    match (first_difference(&stored, &compiled), other_canonc(attestation)) {
        (None, _) => report
            .recomputed(Subject::Plan, "plan: compiled again from the lock, identical"),
        // Another canonc may plan the same computation with other steps.
        (Some(_), Some(by)) => report.trusted(
            Subject::Plan,
            format!("plan.txt: the attestation says that canonc {by} made it, but this canonc {this_canonc} makes another \
             plan"),
        ),
        (Some(Difference { line, found, expected }), None) => report.broken(format!(
            "plan.txt: line {line} is {found}, but the lock compiles to {expected}"
        )),
    }
    Some(Digest::of(PLAN_TAG, &stored))
}

/// Reads `kernels.txt` and checks it: its names must be those of the plan.
fn check_kernels(
    path: &Path,
    experiment: &Experiment,
    attestation: Option<&Attestation>,
    trained: bool,
    report: &mut VerifyReport,
) -> Option<Kernels> {
    let text = match read(path) {
        Ok(Some(text)) => text,
        Ok(None) => {
            if trained {
                report.broken("kernels.txt is missing; every run with a checkpoint has one");
            }
            return None;
        }
        Err(error) => {
            report.unreadable(path, &error);
            return None;
        }
    };
    let (kernels, faults) = parse_kernels(&text);
    report.broken.extend(faults);
    if other_canonc(attestation).is_none() {
        match kernel_names(experiment) {
            Ok(names) => report.broken.extend(wrong_kernels(&kernels, &names, trained)),
            Err(error) => report.broken(format!("kernels.txt: {}", error.message)),
        }
    }
    Some(kernels)
}

fn check_claims(
    attestation: &Attestation,
    experiment: &Experiment,
    evidence: &Evidence<'_>,
    plan: Option<Digest>,
    kernels: Option<Kernels>,
    report: &mut VerifyReport,
) {
    let mut claims =
        Claims { agree: vec!["seal".to_owned(), "lock".to_owned()], wrong: Vec::new() };
    let digests = experiment.digests;
    claims.digest("lock", attestation.lock, digests.train);
    claims.digest("evaluation section", attestation.eval, digests.eval);
    claims.digest("platform section", attestation.platform, digests.platform);
    if let Some(plan) = plan {
        claims.digest("plan", attestation.plan, plan);
        claims.agree.push("plan".to_owned());
    }
    claims.state(attestation, evidence);
    if let Some(log) = evidence.log {
        claims.log(attestation, log, experiment.budget.steps);
    }
    if let Some(kernels) = kernels {
        if kernels != attestation.kernels {
            claims.wrong.push("its kernels differ from kernels.txt".to_owned());
        }
        claims.agree.push("kernels".to_owned());
    }
    claims.wrong.extend(wrong_machine(attestation, experiment));
    if other_canonc(Some(attestation)).is_none() {
        claims.wrong.extend(wrong_paths(attestation, experiment));
    }
    report.trusted(
        Subject::Kernels,
        "the implementation of each kernel: the lock's device and settings allow it, but only a replay on such a \
         machine (--replay) shows that it was taken",
    );
    report.trusted(
        Subject::Machine,
        "the machine, its libraries and the version of canonc: only the attestation names them",
    );
    // A run may be continued under another name of its lock, since no id covers the name.
    if attestation.name != experiment.name {
        report.trusted(
            Subject::Settings,
            format!(
                "attested name \"{}\": the lock is called \"{}\", and no id covers a name",
                attestation.name, experiment.name
            ),
        );
    }
    claims.report(report);
}

/// The claims of an attestation, as far as they were compared.
struct Claims {
    /// What agrees, if nothing is wrong.
    agree: Vec<String>,
    wrong: Vec<String>,
}

impl Claims {
    fn digest(&mut self, what: &str, claimed: Digest, actual: Digest) {
        if claimed != actual {
            self.wrong.push(format!(
                "it claims {what} {}, but it is {}",
                claimed.short(),
                actual.short()
            ));
        }
    }

    /// Compares the attested state with the last checkpoint, and the chain that both are tied to.
    fn state(&mut self, attestation: &Attestation, evidence: &Evidence<'_>) {
        if let Some(saved) = &evidence.saved {
            self.digest("weights", attestation.weights, saved.weights.tensors);
            self.digest("first moments", attestation.first_moment, saved.first_moment.tensors);
            self.digest("second moments", attestation.second_moment, saved.second_moment.tensors);
            self.agree.push(format!("weights {} and both moments", attestation.weights.short()));
        }
        if let Some(head) = evidence.log.and_then(|log| log.heads.last()) {
            self.digest("a metrics chain of", attestation.metrics, *head);
        }
        // An existing but invalid one is a separate finding.
        if !evidence.last_is_there {
            self.wrong.push(format!(
                "it claims weights {}, but the last step, {}, has no checkpoint",
                attestation.weights.short(),
                attestation.steps
            ));
        }
    }

    /// Compares the attested totals with the log and the steps of the lock.
    fn log(&mut self, attestation: &Attestation, log: &Log, steps: u64) {
        if log.heads.is_empty() {
            self.wrong.push("the metrics log of its chain is empty or missing".to_owned());
        }
        let counted = log.steps().fold(0u64, |sum, step| sum.saturating_add(step.counted));
        for (what, claimed, actual) in [
            ("lines", attestation.lines, log.heads.len() as u64),
            ("counted targets", attestation.counted, counted),
            ("steps", attestation.steps, log.steps().count() as u64),
            ("steps", attestation.steps, attestation.diverged.unwrap_or(steps)),
        ] {
            if claimed != actual {
                self.wrong.push(format!("it claims {claimed} {what}, but there are {actual}"));
            }
        }
        self.agree.push("log".to_owned());
    }

    fn report(self, report: &mut VerifyReport) {
        let Claims { agree, wrong } = self;
        if wrong.is_empty()
            && let [rest @ .., last] = agree.as_slice()
        {
            report.checked(
                Subject::Attestation,
                format!("attestation: {} and {last} agree", rest.join(", ")),
            );
        }
        report.broken.extend(wrong.into_iter().map(|claim| format!("attestation.toml: {claim}")));
    }
}

/// Instructions that fused kernels of the CPU are compiled for.
const INSTRUCTIONS: [&str; 3] = ["avx512", "avx2", "portable"];
/// The path of a kernel that the platform section turns off.
const ASKED: &str = "reference (asked for)";

/// Paths of kernels that the lock's platform section or the attested instructions exclude. A run that was continued on
/// another machine has the paths of both.
fn wrong_paths(attestation: &Attestation, experiment: &Experiment) -> Vec<String> {
    let Attestation { kernels, machine, other_machines, .. } = attestation;
    let platform = &experiment.platform;
    let of_machine = machine.get("kernels").filter(|_| other_machines.is_empty());
    let plain = |kernel: &str| match kernel {
        name if name.starts_with("causal_conv") || name.starts_with("conv_swiglu") => {
            platform.canon == KernelPath::Reference
        }
        name if name.starts_with("gated_rms_norm") => platform.gated_norm == KernelPath::Reference,
        _ => false,
    };
    let excluded = |kernel: &str, path: &str| {
        let on_gpu =
            ["fused/cuda/", "libtorch flash", "(on Cuda"].iter().any(|of| path.contains(of))
                && path != "libtorch flash, masked";
        let isa = INSTRUCTIONS.iter().find(|isa| path.contains(&format!("fused/{isa}")));
        match (platform.device, isa, of_machine) {
            _ if path == ASKED && !plain(kernel) => {
                Some("the lock's platform section does not ask for that".to_owned())
            }
            _ if path.starts_with("fused/") && plain(kernel) => {
                Some("the lock's platform section asks for the plain one".to_owned())
            }
            (Device::Cpu, _, _) if on_gpu => Some("the lock runs on the CPU".to_owned()),
            (Device::Cuda, Some(_), _) => Some("the lock runs on a GPU".to_owned()),
            (Device::Cpu, Some(isa), Some(known)) if isa != known => {
                Some(format!("its machine has the kernels of {known}"))
            }
            (Device::Cpu | Device::Cuda, _, _) => None,
        }
    };
    let paths =
        kernels.iter().flat_map(|(kernel, paths)| paths.iter().map(move |path| (kernel, path)));
    let wrong = paths.filter_map(|(kernel, path)| {
        let reason = excluded(kernel, path)?;
        Some(format!("it claims {kernel} computed by `{path}`, but {reason}"))
    });
    wrong.collect()
}

/// Contradictions in the attested machine: a missing fact that every run records, or one that the lock forbids.
fn wrong_machine(attestation: &Attestation, experiment: &Experiment) -> Vec<String> {
    let Attestation { machine, .. } = attestation;
    let mut wrong = Vec::new();
    if other_canonc(Some(attestation)).is_none() {
        let missing = MACHINE_FACTS.iter().filter(|fact| !machine.contains_key(**fact));
        wrong.extend(missing.map(|fact| format!("it lacks the machine's {fact}")));
        let known = |fact: &str| {
            MACHINE_FACTS.contains(&fact) || fact == RANKS_FACT || fact.starts_with("env.")
        };
        let unknown = machine.keys().filter(|fact| !known(fact));
        wrong.extend(
            unknown.map(|fact| format!("its [machine] has {fact}, which canonc does not record")),
        );
    }
    let most = experiment.batch.micro_batches;
    if let Some(ranks) = machine.get(RANKS_FACT)
        && !ranks.parse().is_ok_and(|ranks: u64| (2..=most).contains(&ranks))
    {
        wrong.push(format!("it claims {ranks} ranks, but {most} micro-batches allow 2 to {most}"));
    }
    let platform = &experiment.platform;
    for (fact, required) in [
        ("threads", platform.threads.map(|threads| threads.to_string())),
        ("cpu_capability", platform.cpu_capability.clone()),
    ] {
        if let (Some(required), Some(claimed)) = (required, machine.get(fact))
            && !claimed.eq_ignore_ascii_case(&required)
        {
            wrong.push(format!("it claims {fact} {claimed}, but the lock requires {required}"));
        }
    }
    let blas = platform.blas.as_deref().and_then(BlasMode::named);
    for (variable, required) in required_env(&PlatformSpec { blas, ..PlatformSpec::default() }) {
        let claimed = machine.get(&format!("env.{variable}"));
        if claimed != Some(&required) {
            let claimed = claimed.map_or("nothing", String::as_str);
            wrong.push(format!("it claims {variable} {claimed}, but the lock requires {required}"));
        }
    }
    wrong
}
