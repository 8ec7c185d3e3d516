//! In: what a run says of the machines it was trained on, and this machine. Out: whether bits computed here must be
//! the run's. Must stay true: where anything that results may depend on differs or is not known, the answer is no.

use std::collections::BTreeMap;

use crate::attest::Attestation;

/// Facts of a machine that rounding may depend on. Others (memory, cores that are not used) change no bit.
const DECIDING: [&str; 14] = [
    "blas",
    "canonc",
    "cpu",
    "cpu_capability",
    "env.CUBLAS_WORKSPACE_CONFIG",
    "env.MKL_CBWR",
    "env.MKL_DYNAMIC",
    "env.MKL_NUM_THREADS",
    "env.NVIDIA_TF32_OVERRIDE",
    "env.ONEDNN_MAX_CPU_ISA",
    "kernels",
    "libtorch",
    "system",
    "threads",
];

/// Whether this machine can decide what a run's bits should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Platform {
    /// As the attested one in everything that bits may depend on.
    Same,
    /// What differs, or is not known.
    Other(Vec<String>),
}

impl Platform {
    /// `here` are the facts of this process; `line` is the same as one line of `events.jsonl`.
    pub(crate) fn of(
        attestation: Option<&Attestation>,
        started: &[String],
        here: &BTreeMap<String, String>,
        line: &str,
        cuda: bool,
    ) -> Platform {
        let mut differs = Vec::new();
        match attestation {
            Some(attestation) => {
                let fact = |facts: &BTreeMap<String, String>, name: &str| {
                    facts.get(name).map_or_else(|| "not set".to_owned(), Clone::clone)
                };
                for name in DECIDING {
                    let (there, here) = (fact(&attestation.machine, name), fact(here, name));
                    if there != here {
                        differs.push(format!("{name}: {there} there, {here} here"));
                    }
                }
                if attestation.other_machines.iter().any(|other| other != line) {
                    differs.push("parts of the run were trained on other machines".to_owned());
                }
            }
            None if started.is_empty() => {
                differs.push("nothing says on which machine the run was trained".to_owned());
            }
            None => {
                if started.iter().any(|other| other != line) {
                    differs.push("parts of the run were trained on other machines".to_owned());
                }
            }
        }
        if cuda {
            differs.push("no run records its model of GPU".to_owned());
        }
        if differs.is_empty() { Platform::Same } else { Platform::Other(differs) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use compiler::digest::Digest;

    use super::*;

    #[test]
    fn bits_must_agree_only_where_everything_that_decides_does() {
        let digest = Digest::of("test", "");
        let facts = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let machine = facts(&[("cpu", "a"), ("threads", "2"), ("memory_bytes", "9")]);
        let mut attestation = Attestation {
            name: String::new(),
            lock: digest,
            eval: digest,
            platform: digest,
            steps: 1,
            counted: 1,
            metrics: digest,
            lines: 1,
            weights: digest,
            first_moment: digest,
            second_moment: digest,
            plan: digest,
            kernels: BTreeMap::<String, BTreeSet<String>>::new(),
            machine: machine.clone(),
            other_machines: vec![],
        };
        let of = |attestation: &Attestation, here: &BTreeMap<String, String>| {
            Platform::of(Some(attestation), &[], here, "here", false)
        };
        assert_eq!(of(&attestation, &machine), Platform::Same);
        let more_memory = facts(&[("cpu", "a"), ("threads", "2"), ("memory_bytes", "10")]);
        assert_eq!(of(&attestation, &more_memory), Platform::Same);
        let threads = facts(&[("cpu", "a"), ("threads", "1")]);
        assert_eq!(
            of(&attestation, &threads),
            Platform::Other(vec!["threads: 2 there, 1 here".to_owned()])
        );
        assert!(matches!(
            Platform::of(Some(&attestation), &[], &machine, "here", true),
            Platform::Other(_)
        ));
        attestation.other_machines = vec!["here".to_owned()];
        assert_eq!(of(&attestation, &machine), Platform::Same);
        attestation.other_machines.push("there".to_owned());
        assert!(matches!(of(&attestation, &machine), Platform::Other(_)));
        // A run that is not finished has only the lines of its processes.
        let unfinished = |started: &[&str]| {
            let started: Vec<String> = started.iter().map(|line| (*line).to_owned()).collect();
            Platform::of(None, &started, &machine, "here", false)
        };
        assert_eq!(unfinished(&["here", "here"]), Platform::Same);
        assert!(matches!(unfinished(&["here", "there"]), Platform::Other(_)));
        assert!(matches!(unfinished(&[]), Platform::Other(_)));
    }
}
