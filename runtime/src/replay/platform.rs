//! Whether bits computed on one machine must equal those of a run.
//!
//! If any fact that results may depend on differs or is unknown, they need not.

use std::collections::{BTreeMap, BTreeSet};

use crate::train::line;
use records::attest::Attestation;
use records::platform::{self, Effect};

/// Machine facts that rounding may depend on, in addition to environment variables with that effect. Others (memory,
/// unused cores) change no bit.
const DECIDING: [&str; 8] =
    ["blas", "canonc", "cpu", "cpu_capability", "kernels", "libtorch", "system", "threads"];

/// The fact that names the GPU of a run that used one; those about it begin with `gpu.`.
const GPU: &str = "gpu";

/// Whether rounding may depend on a fact.
fn decides(fact: &str) -> bool {
    match fact.strip_prefix("env.") {
        Some(variable) => platform::effect(variable) == Effect::Bits,
        None => DECIDING.contains(&fact) || fact == GPU || fact.starts_with("gpu."),
    }
}

/// Whether this machine can decide the right bits of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Platform {
    /// Equal to the attested machine in everything that bits may depend on.
    Same,
    /// Facts that differ or are unknown.
    Other(Vec<String>),
}

impl Platform {
    /// Compares a run's machines with this process's: its facts, and the same as one line of `events.jsonl`.
    pub(crate) fn compare(
        Machines { attestation, started }: &Machines,
        facts: &BTreeMap<String, String>,
        line: &str,
        cuda: bool,
    ) -> Platform {
        let mut differs = Vec::new();
        match attestation {
            Some(attestation) => {
                differs.extend(
                    deciding(&attestation.machine, facts)
                        .into_iter()
                        .map(|(name, run, this)| format!("{name}: {run} there, {this} here")),
                );
                if attestation.other_machines.iter().any(|other| other != line) {
                    differs.push("parts of the run were trained on other machines".to_owned());
                }
            }
            None if started.is_empty() => {
                differs.push("it is unknown on which machine the run was trained".to_owned());
            }
            None => {
                if started.iter().any(|other| other != line) {
                    differs.push("parts of the run were trained on other machines".to_owned());
                }
            }
        }
        let known =
            attestation.as_ref().is_some_and(|attestation| attestation.machine.contains_key(GPU));
        Platform::unless(differs, cuda && !known)
    }

    /// Compares the facts of a machine that evaluated with this process's.
    pub(crate) fn of_facts(
        there: &BTreeMap<String, String>,
        here: &BTreeMap<String, String>,
    ) -> Platform {
        let differs = deciding(there, here).into_iter();
        let differs = differs.map(|(name, run, this)| format!("{name}: {run} there, {this} here"));
        Platform::unless(differs.collect(), false)
    }

    /// Whether two runs must have equal bits, by the recorded facts about their machines.
    pub(crate) fn between(one: &Machines, other: &Machines, cuda: bool) -> Platform {
        let mut differs = Vec::new();
        if let (Some(one), Some(other)) = (&one.attestation, &other.attestation) {
            let facts = deciding(&one.machine, &other.machine).into_iter();
            differs.extend(facts.map(|(name, one, other)| {
                format!("{name}: {one} in one run, {other} in the other")
            }));
            if !one.other_machines.is_empty() || !other.other_machines.is_empty() {
                differs.push("parts of a run were trained on other machines".to_owned());
            }
        } else {
            let lines = [one.lines(), other.lines()];
            if lines.iter().any(Vec::is_empty) {
                differs.push("a run does not say on which machine it was trained".to_owned());
            }
            let mut lines = lines.iter().flatten();
            let first = lines.next();
            if lines.any(|line| Some(line) != first) {
                differs.push("the runs were not trained on one machine".to_owned());
            }
        }
        let known = |run: &Machines| {
            run.attestation.as_ref().is_some_and(|run| run.machine.contains_key(GPU))
        };
        Platform::unless(differs, cuda && !(known(one) && known(other)))
    }

    fn unless(mut differs: Vec<String>, unknown_gpu: bool) -> Platform {
        if unknown_gpu {
            differs.push("a run on a GPU does not record which".to_owned());
        }
        if differs.is_empty() { Platform::Same } else { Platform::Other(differs) }
    }
}

/// A run's recorded facts about its machines.
#[derive(Clone, Debug)]
pub(crate) struct Machines {
    pub(crate) attestation: Option<Attestation>,
    /// One line per process, from `events.jsonl`.
    pub(crate) started: Vec<String>,
}

impl Machines {
    fn lines(&self) -> Vec<String> {
        match &self.attestation {
            None => self.started.clone(),
            Some(Attestation { machine, other_machines, .. }) => {
                [line(machine)].into_iter().chain(other_machines.iter().cloned()).collect()
            }
        }
    }
}

/// Facts that bits may depend on and that differ, with both values.
fn deciding(
    one: &BTreeMap<String, String>,
    other: &BTreeMap<String, String>,
) -> Vec<(String, String, String)> {
    let fact = |facts: &BTreeMap<String, String>, name: &str| {
        facts.get(name).map_or_else(|| "not set".to_owned(), Clone::clone)
    };
    let names: BTreeSet<&String> =
        one.keys().chain(other.keys()).filter(|name| decides(name)).collect();
    names
        .into_iter()
        .map(|name| (name.clone(), fact(one, name), fact(other, name)))
        .filter(|(_, one, other)| one != other || one == platform::UNRECORDED)
        .collect()
}

#[cfg(test)]
mod tests {
    use compiler::digest::Digest;

    use super::*;

    fn facts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn attested(machine: &[(&str, &str)]) -> Attestation {
        let digest = Digest::of("test", "");
        Attestation {
            name: String::new(),
            lock: digest,
            eval: digest,
            platform: digest,
            steps: 1,
            diverged: None,
            counted: 1,
            metrics: digest,
            lines: 1,
            weights: digest,
            first_moment: digest,
            second_moment: digest,
            plan: digest,
            kernels: BTreeMap::<String, BTreeSet<String>>::new(),
            machine: facts(machine),
            other_machines: vec![],
        }
    }

    #[test]
    fn bits_must_agree_only_where_everything_that_decides_does() {
        let machine = [("cpu", "a"), ("threads", "2"), ("memory_bytes", "9")];
        let (mut attestation, machine) = (attested(&machine), facts(&machine));
        let machines = |attestation: &Attestation| Machines {
            attestation: Some(attestation.clone()),
            started: vec![],
        };
        let compared = |attestation: &Attestation, facts: &BTreeMap<String, String>| {
            Platform::compare(&machines(attestation), facts, "here", false)
        };
        assert_eq!(compared(&attestation, &machine), Platform::Same);
        let more_memory = facts(&[("cpu", "a"), ("threads", "2"), ("memory_bytes", "10")]);
        assert_eq!(compared(&attestation, &more_memory), Platform::Same);
        let threads = facts(&[("cpu", "a"), ("threads", "1")]);
        assert_eq!(
            compared(&attestation, &threads),
            Platform::Other(vec!["threads: 2 there, 1 here".to_owned()])
        );
        assert!(matches!(
            Platform::compare(&machines(&attestation), &machine, "here", true),
            Platform::Other(_)
        ));
        let on_gpu = facts(&[("cpu", "a"), ("threads", "2"), ("gpu", "b"), ("gpu.driver", "1")]);
        let other = facts(&[("cpu", "a"), ("threads", "2"), ("gpu", "b"), ("gpu.driver", "2")]);
        let mut attested_gpu = attested(&[]);
        attested_gpu.machine = on_gpu.clone();
        let of_gpu = |facts| Platform::compare(&machines(&attested_gpu), facts, "here", true);
        assert_eq!(of_gpu(&on_gpu), Platform::Same);
        let differs = vec!["gpu.driver: 1 there, 2 here".to_owned()];
        assert_eq!(of_gpu(&other), Platform::Other(differs));
        attestation.other_machines = vec!["here".to_owned()];
        assert_eq!(compared(&attestation, &machine), Platform::Same);
        attestation.other_machines.push("there".to_owned());
        assert!(matches!(compared(&attestation, &machine), Platform::Other(_)));
        // An unfinished run has only the lines of its processes.
        let unfinished = |started: &[&str]| {
            let started = started.iter().map(|line| (*line).to_owned()).collect();
            Platform::compare(&Machines { attestation: None, started }, &machine, "here", false)
        };
        assert_eq!(unfinished(&["here", "here"]), Platform::Same);
        assert!(matches!(unfinished(&["here", "there"]), Platform::Other(_)));
        assert!(matches!(unfinished(&[]), Platform::Other(_)));
    }

    #[test]
    fn bits_of_two_runs_must_agree_only_where_both_machines_do() {
        let machines = |threads: Option<&str>, others: &[&str], started: &[&str]| Machines {
            attestation: threads.map(|threads| Attestation {
                other_machines: others.iter().map(|line| (*line).to_owned()).collect(),
                ..attested(&[("cpu", "a"), ("memory_bytes", "9"), ("threads", threads)])
            }),
            started: started.iter().map(|line| (*line).to_owned()).collect(),
        };
        let same = |one: &Machines, other: &Machines| {
            let (there, back) =
                (Platform::between(one, other, false), Platform::between(other, one, false));
            assert_eq!(there == Platform::Same, back == Platform::Same);
            there == Platform::Same
        };
        let two = machines(Some("2"), &[], &[]);
        assert!(same(&two, &two) && Platform::between(&two, &two, true) != Platform::Same);
        let one = machines(Some("1"), &[], &[]);
        let differs = vec!["threads: 2 in one run, 1 in the other".to_owned()];
        assert_eq!(Platform::between(&two, &one, false), Platform::Other(differs));
        assert!(!same(&two, &machines(Some("2"), &["elsewhere"], &[])));
        // An unfinished run has only the lines of its processes.
        let line = "cpu a; memory_bytes 9; threads 2";
        assert!(same(&two, &machines(None, &[], &[line, line])));
        assert!(same(&machines(None, &[], &[line]), &machines(None, &[], &[line])));
        assert!(!same(&one, &machines(None, &[], &[line])));
        assert!(!same(&two, &machines(None, &[], &[line, "elsewhere"])));
        assert!(!same(&two, &machines(None, &[], &[])));
    }
}
