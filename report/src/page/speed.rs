//! Speed and memory of every run. Model FLOPs are those of the lock, so recomputed ones do not count; utilisation is shown
//! only against a peak that is named; what was not measured, or not by one machine alone, is absent.

use std::collections::BTreeMap;

use compiler::plan::Precision;
use lab::experiment::Device;
use records::progress::bytes;

use super::final_values::prefixed;
use super::run::PageRun;
use crate::compare::TextTable;
use crate::statistics::median;

/// Peaks of GPUs in TFLOP/s, from NVIDIA's data sheets: bf16 products on tensor cores without sparsity, and f32 products
/// on CUDA cores, since canonc never uses TF32. The names are those of the driver; the first that a name contains counts.
const PEAKS: [(&str, f64, f64); 6] = [
    ("H200 NVL", 835.5, 60.0),
    ("H200", 989.5, 67.0),
    ("H100 NVL", 835.5, 60.0),
    ("H100 PCIe", 756.5, 51.0),
    ("H100 80GB HBM3", 989.5, 67.0),
    ("H100 SXM5", 989.5, 67.0),
];

/// The peak of the device of this name, in FLOP/s. A part of a GPU has none that is known.
fn peak(gpu: &str, precision: Precision) -> Option<f64> {
    let is_whole = !gpu.contains("MIG") && !gpu.contains("GH200");
    let (_, bf16, f32) = PEAKS.iter().find(|(name, ..)| is_whole && gpu.contains(name))?;
    Some(1e12 * if precision == Precision::Bf16 { *bf16 } else { *f32 })
}

/// The machine of a run, from its attestation.
struct Machine {
    name: String,
    /// The peak of all its devices.
    peak: Option<f64>,
}

fn machine(run: &PageRun) -> Option<Machine> {
    let facts: &BTreeMap<String, String> = &run.logged.machine;
    let ranks: u32 = facts.get("ranks").and_then(|ranks| ranks.parse().ok()).unwrap_or(1);
    let (name, peak, of_one) = match (run.experiment.platform.device, facts.get("gpu")) {
        // One rank has one GPU.
        (Device::Cuda, Some(gpu)) => (gpu, peak(gpu, run.experiment.precision), "GPU"),
        (Device::Cuda, None) => return None,
        (Device::Cpu, _) => (facts.get("cpu")?, None, "rank"),
    };
    let several = if ranks > 1 { format!(" ({ranks} {of_one}s)") } else { String::new() };
    let threads = facts.get("threads").filter(|_| run.experiment.platform.device == Device::Cpu);
    let threads = threads.map_or_else(String::new, |threads| {
        let s = if threads == "1" { "" } else { "s" };
        format!(" ({threads} thread{s}{})", if ranks > 1 { " each" } else { "" })
    });
    Some(Machine {
        name: format!("{name}{several}{threads}"),
        peak: peak.map(|peak| peak * f64::from(ranks)),
    })
}

const HEAD: [&str; 7] = [
    "run",
    "machine",
    "speed",
    "model FLOPs per token",
    "model FLOPs per second",
    "MFU",
    "peak memory",
];
const NOTHING: &str = "–";

/// The table, with the columns that some run has. Empty if no run was timed.
pub(super) fn table(runs: &[&PageRun], peak_flops: Option<f64>) -> TextTable {
    let rows: Vec<[String; 7]> = runs.iter().filter_map(|run| cells(run, peak_flops)).collect();
    let has: Vec<bool> = (0..HEAD.len())
        .map(|column| rows.iter().any(|row| row.get(column).is_some_and(|cell| cell != NOTHING)))
        .collect();
    let kept = |row: [String; 7]| -> Vec<String> {
        row.into_iter().zip(&has).filter_map(|(cell, has)| has.then_some(cell)).collect()
    };
    let head = if rows.is_empty() { Vec::new() } else { kept(HEAD.map(str::to_owned)) };
    TextTable::plain(head, rows.into_iter().map(kept).collect())
}

/// The cells of a run; `None` for one that was not timed.
fn cells(run: &PageRun, peak_flops: Option<f64>) -> Option<[String; 7]> {
    let nothing = || NOTHING.to_owned();
    let seconds = seconds_per_step(run)?;
    let machine = machine(run);
    let tokens = run.experiment.batch.tokens_per_step as f64 / seconds;
    let per_token = run.experiment.analysis.train_flops_per_token as f64;
    let achieved = tokens * per_token;
    let data_sheet = machine.as_ref().and_then(|machine| machine.peak);
    let peak = match (peak_flops, data_sheet) {
        (Some(flops), _) => Some((flops, "given")),
        (None, Some(flops)) => Some((flops, "data sheet")),
        (None, None) => None,
    };
    Some([
        run.name.clone(),
        machine.map_or_else(nothing, |machine| machine.name),
        format!("{} tokens/s", prefixed(tokens)),
        format!("{}FLOP", prefixed_before_unit(per_token)),
        format!("{}FLOP/s", prefixed_before_unit(achieved)),
        peak.map_or_else(nothing, |(flops, source)| {
            let percent = 100.0 * achieved / flops;
            format!("{percent:.1}% (of {}FLOP/s, {source})", prefixed_before_unit(flops))
        }),
        run.logged.curves.peak_bytes.map_or_else(nothing, bytes),
    ])
}

/// The median seconds of a step; none for a run that shared its machine with others or was not timed.
fn seconds_per_step(run: &PageRun) -> Option<f64> {
    if run.logged.beside {
        return None;
    }
    let seconds: Vec<f64> = differences(run.logged.seconds.as_ref()?).map(|(_, s)| s).collect();
    let usual = if seconds.is_empty() { return None } else { median(&seconds) };
    (usual > 0.0).then_some(usual)
}

/// Tokens per second of each step; empty for a run that was not timed.
pub(super) fn series(run: &PageRun) -> Vec<(u64, f64)> {
    let tokens = run.experiment.batch.tokens_per_step as f64;
    let ends = run.logged.seconds.as_deref().unwrap_or_default();
    let timed = differences(ends).filter(|(_, seconds)| *seconds > 0.0);
    timed.map(|(step, seconds)| (step, tokens / seconds)).collect()
}

/// The seconds of each step, from the ends of steps.
fn differences(ends: &[(u64, f64)]) -> impl Iterator<Item = (u64, f64)> {
    let before = std::iter::once(0.0).chain(ends.iter().map(|(_, end)| *end));
    ends.iter().zip(before).map(|((step, end), before)| (*step, end - before))
}

/// `1.23 M`, `850 `: a unit can follow.
fn prefixed_before_unit(value: f64) -> String {
    let text = prefixed(value);
    if text.contains(' ') { text } else { text + " " }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_are_of_whole_gpus_by_name_and_precision() {
        let known = [
            ("NVIDIA H100 80GB HBM3", 989.5e12, 67e12),
            ("NVIDIA H100 PCIe", 756.5e12, 51e12),
            ("NVIDIA H100 NVL", 835.5e12, 60e12),
            ("NVIDIA H200", 989.5e12, 67e12),
            ("NVIDIA H200 NVL", 835.5e12, 60e12),
        ];
        for (name, bf16, f32) in known {
            assert_eq!(peak(name, Precision::Bf16), Some(bf16), "{name}");
            assert_eq!(peak(name, Precision::F32), Some(f32), "{name}");
        }
        for name in
            ["NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA GH200 480GB", "NVIDIA RTX 4090", ""]
        {
            assert_eq!(peak(name, Precision::Bf16), None, "{name}");
        }
    }

    #[test]
    fn seconds_are_differences_of_ends() {
        let seconds: Vec<(u64, f64)> = differences(&[(1, 0.5), (2, 0.75), (3, 1.75)]).collect();
        assert_eq!(seconds, [(1, 0.5), (2, 0.25), (3, 1.0)]);
        assert_eq!(prefixed_before_unit(1.25e9), "1.25 G");
        assert_eq!(prefixed_before_unit(12.0), "12 ");
    }
}
