//! In: the text of a run's `kernels.txt`, or the paths that kernels took. Out: the same, read and written in one form.
//! Must stay true: a line that no run of the lock can have written is refused, never merged into the lines that a later
//! process writes or attests.

use std::collections::{BTreeMap, BTreeSet};

use compiler::plan::{Plan, TrainPlan};

use super::{Difference, first_difference};

/// The kernels of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelNames {
    /// Kernels that every step executes.
    pub always: BTreeSet<&'static str>,
    /// Kernels in any plan.
    pub known: BTreeSet<&'static str>,
}

impl KernelNames {
    pub(crate) fn from_plans(
        training: &TrainPlan,
        evaluation: &Plan,
        writing: Option<&Plan>,
    ) -> KernelNames {
        let TrainPlan { micro, combine, update } = training;
        let names =
            |plan: &Plan| plan.steps.iter().map(|step| step.kernel.name()).collect::<Vec<_>>();
        let always: BTreeSet<&str> = [micro, update].into_iter().flat_map(names).collect();
        let sometimes = [combine, evaluation].into_iter().chain(writing).flat_map(names);
        KernelNames { known: always.iter().copied().chain(sometimes).collect(), always }
    }
}

/// The paths that each kernel took, in every process so far.
pub type Kernels = BTreeMap<String, BTreeSet<String>>;

/// One line for each path that a kernel took, as in `kernels.txt`.
pub fn kernel_lines(kernels: &Kernels) -> String {
    let lines = kernels
        .iter()
        .flat_map(|(kernel, paths)| paths.iter().map(move |path| format!("{kernel} = {path}\n")));
    lines.collect()
}

/// Reads `kernels.txt`, and returns the first line that canonc would write differently.
pub fn parse(text: &str) -> (Kernels, Option<String>) {
    let mut kernels = Kernels::new();
    for (kernel, path) in text.lines().filter_map(|line| line.split_once(" = ")) {
        kernels.entry(kernel.to_owned()).or_default().insert(path.to_owned());
    }
    let differs = first_difference(text, &kernel_lines(&kernels));
    let why = differs.map(|Difference { line, found, expected }| {
        format!("kernels.txt: line {line} is {found}, but canonc writes {expected}")
    });
    (kernels, why)
}

/// Entries that no run of the plan can have: kernels that the plan does not execute, implementations that do not exist
/// and, for a run that has `trained`, missing kernels.
pub fn wrong(kernels: &Kernels, names: &KernelNames, trained: bool) -> Vec<String> {
    let KernelNames { always, known } = names;
    let mut wrong = Vec::new();
    for (kernel, paths) in kernels {
        if !known.contains(kernel.as_str()) {
            wrong.push(format!(
                "kernels.txt: it has {kernel}, which the lock's plan does not execute"
            ));
        }
        for path in paths.iter().filter(|path| !is_path(path)) {
            wrong.push(format!(
                "kernels.txt: it has {kernel} computed by `{path}`, which canonc does not have"
            ));
        }
    }
    let missing = always.iter().filter(|name| trained && !kernels.contains_key(**name));
    wrong.extend(missing.map(|name| {
        format!("kernels.txt: {name} is missing, which every step of the lock's plan executes")
    }));
    wrong
}

/// Whether this implementation exists on any machine; `execute/choose.rs` chooses for the current one.
fn is_path(path: &str) -> bool {
    let reason = |rest: &str| {
        let known = ["asked for", "value width is not key width"];
        let kernel_size = |text: &str| {
            let size = text.strip_prefix("kernel ")?.strip_suffix(" is outside 2..=8")?;
            size.parse::<u64>().ok()
        };
        // A device or a type, as tch names them: `on Cuda(0)`, `BFloat16`.
        let word = rest.strip_prefix("on ").unwrap_or(rest);
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '(' | ')');
        known.contains(&rest)
            || kernel_size(rest).is_some()
            || !word.is_empty() && word.chars().all(is_name)
    };
    let reference = path.strip_prefix("reference (").and_then(|rest| rest.strip_suffix(')'));
    // A product of few rows has a kernel of its own.
    let few = path.strip_prefix("libtorch, ").and_then(|rest| {
        let (path, rows) = rest.strip_suffix(" rows")?.split_once(" up to ")?;
        rows.parse::<u64>().is_ok().then_some(path).filter(|path| path.starts_with("fused/"))
    });
    match (few.unwrap_or(path).strip_prefix("fused/"), reference) {
        (Some(isa), _) => ["avx512", "avx2", "portable"].contains(&isa),
        (None, Some(why)) => reason(why),
        (None, None) => {
            ["view", "libtorch", "libtorch flash", "libtorch flash, masked"].contains(&path)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ways_that_exist_are_taken() {
        for path in [
            "view",
            "libtorch",
            "libtorch flash, masked",
            "fused/portable",
            "libtorch, fused/avx2 up to 4 rows",
            "reference (asked for)",
            "reference (on Cuda(0))",
            "reference (BFloat16)",
            "reference (kernel 9 is outside 2..=8)",
        ] {
            assert!(is_path(path), "{path}");
        }
        for path in [
            "",
            "fast",
            "fused/",
            "fused/avx1024",
            "reference ()",
            "libtorch ",
            "reference (a b)",
            "libtorch, libtorch up to 4 rows",
        ] {
            assert!(!is_path(path), "{path}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let text = "add = libtorch\nrope = fused/avx2\nrope = fused/avx512\n";
        let (kernels, why) = parse(text);
        assert_eq!((kernel_lines(&kernels).as_str(), why), (text, None));
        for other in ["add = libtorch", "# more\n", "rope = b\nadd = a\n", "add = a\nadd = a\n"] {
            assert!(parse(other).1.is_some(), "{other}");
        }
    }
}
