//! `kernels.txt`: the paths that each kernel took.
//!
//! A line that no run of the lock can have written is refused, never merged into the lines that a later process writes or
//! attests.

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
    pub(crate) fn from_plans<'a>(
        training: &'a TrainPlan,
        others: impl Iterator<Item = &'a Plan>,
    ) -> KernelNames {
        let TrainPlan { micro, combine, update } = training;
        let names =
            |plan: &Plan| plan.steps.iter().map(|step| step.kernel.name()).collect::<Vec<_>>();
        let always: BTreeSet<&str> = [micro, update].into_iter().flat_map(names).collect();
        let sometimes = std::iter::once(combine).chain(others).flat_map(names);
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
    let fault = differs.map(|Difference { line, found, expected }| {
        format!("kernels.txt: line {line} is {found}, but canonc writes {expected}")
    });
    (kernels, fault)
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

/// Every implementation on any machine, with placeholders: `{isa}`, `{image}`, `{kind}` and numbers `{n}`.
const PATHS: [&str; 25] = [
    "view",
    "libtorch",
    "libtorch flash",
    // Of earlier builds, for keys of earlier calls.
    "libtorch flash, masked",
    "libtorch, fused/{isa} up to {n} rows",
    "fused/{isa}",
    "fused/{isa}, products libtorch",
    "fused/cuda/{image}",
    "fused/cuda/{image}, plain image",
    "by expert, products libtorch",
    "by expert, products libtorch, fused/{isa} up to {n} rows",
    "by expert, products fused/{isa}",
    "reference (asked for)",
    "reference (on {device})",
    "reference ({kind})",
    "reference (value width is not key width)",
    "reference (kernel {n} is outside 2..=8)",
    "reference (operands of several dtypes)",
    "reference (no CUDA kernel for a width of {n})",
    "reference (no CUDA kernel for {n} taps)",
    "reference (no CUDA kernel for this scan)",
    "reference (no CUDA kernel for a state of {n} × {n})",
    "reference (no flash attention for heads of {n})",
    "reference (libtorch's flash kernel has no {option})",
    "reference (the fused kernel has no slopes)",
];

/// What a placeholder stands for, but a number. Kinds and devices are named as tch names them.
fn words(placeholder: &str) -> &'static [&'static str] {
    match placeholder {
        "isa" => &["avx512", "avx2", "portable"],
        "image" => &["sm_80", "sm_90a", "sm_100a", "ptx_80"],
        "kind" => &["Float", "Double", "BFloat16", "Half"],
        "option" => &["softcap", "sink", "slopes"],
        "device" => &["Cuda({n})", "Mps", "Vulkan"],
        _ => &[],
    }
}

/// Whether this implementation exists on any machine; `runtime/src/execute/choose.rs` chooses for the
/// current one.
pub fn is_path(path: &str) -> bool {
    PATHS.iter().any(|form| fits(form, path))
}

/// Whether `text` has this form.
fn fits(form: &str, text: &str) -> bool {
    let Some((before, rest)) = form.split_once('{') else { return form == text };
    let (Some(text), Some((placeholder, after))) =
        (text.strip_prefix(before), rest.split_once('}'))
    else {
        return false;
    };
    if placeholder == "n" {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        return (1..=18).contains(&digits) && fits(after, &text[digits..]);
    }
    words(placeholder).iter().any(|word| fits(&format!("{word}{after}"), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kernel_paths_that_exist_are_accepted() {
        for path in [
            "view",
            "libtorch",
            "libtorch flash",
            "libtorch flash, masked",
            "fused/portable",
            "libtorch, fused/avx2 up to 4 rows",
            "reference (asked for)",
            "fused/avx512, products libtorch",
            "fused/cuda/sm_90a",
            "fused/cuda/sm_90a, plain image",
            "reference (on Cuda(0))",
            "reference (BFloat16)",
            "reference (kernel 9 is outside 2..=8)",
            "reference (no CUDA kernel for a state of 64 × 128)",
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
            "reference (on Cuda())",
            "reference (kernel 9 is outside 2..=8",
            "fused/avx512, products",
            "fused/cuda/sm_70",
            "fused/avx512, plain image",
            "libtorch, libtorch up to 4 rows",
        ] {
            assert!(!is_path(path), "{path}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let text = "add = libtorch\nrope = fused/avx2\nrope = fused/avx512\n";
        let (kernels, fault) = parse(text);
        assert_eq!((kernel_lines(&kernels).as_str(), fault), (text, None));
        for other in ["add = libtorch", "# more\n", "rope = b\nadd = a\n", "add = a\nadd = a\n"] {
            assert!(parse(other).1.is_some(), "{other}");
        }
    }
}
