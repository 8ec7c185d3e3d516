//! The final values of every run, and the user's numbers next to published statements of the same quantity and family.

use std::collections::BTreeSet;

use lab::experiment::field_lines;
use lab::field::FieldValue;

use super::published::{self, PublishedAnswer};
use super::run::PageRun;
use super::run_pairs::RunPairs;
use crate::compare::{TRAINING_LOSS, TextTable, unit};

/// The final values of every run.
pub(super) fn table(runs: &[&PageRun]) -> TextTable {
    let metrics: BTreeSet<&String> =
        runs.iter().flat_map(|run| run.logged.curves.metrics.keys()).collect();
    let mut head: Vec<String> = ["run", "lock", "parameters", "tokens", "spikes", TRAINING_LOSS]
        .map(str::to_owned)
        .to_vec();
    head.extend(metrics.iter().map(|name| (*name).to_owned()));
    let elsewhere = runs.iter().any(|run| run.logged.curves.trainer.is_some());
    if elsewhere {
        head.push("trained by".to_owned());
    }
    let row = |run: &&PageRun| {
        let value = |path| run.experiment.value(path).map_or_else(String::new, short);
        let last = |metric: &str| {
            run.logged
                .curves
                .last(metric)
                .map_or_else(|| "–".to_owned(), |value| unit(metric).value(value))
        };
        let mut row = vec![
            run.name.clone(),
            run.experiment.id().short(),
            value("arch.parameters"),
            value("budget.tokens"),
            run.logged.spikes.len().to_string(),
            // A diverged run has no final value; the divergence is its result.
            match run.logged.curves.diverged {
                Some(step) => format!("diverged at step {step}"),
                None => last(TRAINING_LOSS),
            },
        ];
        row.extend(metrics.iter().map(|name| last(name)));
        row.extend(elsewhere.then(|| run.logged.curves.trained_by()));
        row
    };
    TextTable::plain(head, runs.iter().map(row).collect())
}

/// `120 k`, `2.46 M`.
fn short(value: &FieldValue) -> String {
    value.plain().parse().map_or_else(|_| value.plain(), prefixed)
}

/// A number with three figures and a prefix.
pub(super) fn prefixed(number: f64) -> String {
    let (mut number, mut prefix) = (number, "");
    for next in ["k", "M", "G", "T", "P"] {
        if number.abs() < 999.5 {
            break;
        }
        (number, prefix) = (number / 1000.0, next);
    }
    match prefix {
        "" if number.fract() == 0.0 || number < 0.01 => format!("{number}"),
        "" if number < 9.995 => format!("{number:.2}"),
        "" if number < 99.95 => format!("{number:.1}"),
        "" => format!("{number:.0}"),
        _ if number < 9.995 => format!("{number:.2} {prefix}"),
        _ if number < 99.95 => format!("{number:.1} {prefix}"),
        _ => format!("{number:.0} {prefix}"),
    }
}

/// The release's family of an arch: the one mixer of all its layers.
fn family(run: &PageRun) -> Option<&'static str> {
    let lines = field_lines(&run.experiment.arch.compiled.fields);
    let mixers: BTreeSet<&str> = lines
        .iter()
        .filter(|line| line.path.starts_with("layers.") && line.path.ends_with(".mixer"))
        .map(|line| line.value.as_str())
        .collect();
    match mixers.into_iter().collect::<Vec<_>>().as_slice() {
        ["attention"] => Some("Llama"),
        ["gla"] => Some("GLA5"),
        ["gated_deltanet"] => Some("GDN2"),
        ["mamba2"] => Some("Mamba2"),
        _ => None,
    }
}

/// The published statements, with the user's comparable numbers.
pub(super) fn answers(runs: &[&PageRun], pairs: &[RunPairs]) -> Vec<PublishedAnswer> {
    let mut answers = published::answers();
    for pair in pairs {
        let first = pair.lines.first().and_then(|(t, b)| Some((runs.get(*t)?, runs.get(*b)?)));
        let Some((treated, base)) = first else { continue };
        let (Some(of_base), Some(of_treated)) = (family(base), family(treated)) else { continue };
        // Canon layers in one arm only.
        let canon = [base, treated].map(|run| number(run, "arch.canon_parameters"));
        let [Some(0.0), Some(added)] = canon else { continue };
        if of_base != of_treated || added == 0.0 {
            continue;
        }
        let value = |path| base.experiment.value(path).map_or_else(String::new, short);
        let size =
            format!("{} parameters, {} tokens", value("arch.parameters"), value("budget.tokens"));
        let gap = mean(&pair.finals).map(|gap| {
            let noise = pair.noise.map_or_else(String::new, |noise| {
                format!(", A/A standard error of the mean ±{:.4}", noise.standard_error)
            });
            let seeds = pair.finals.len();
            let s = if seeds == 1 { "" } else { "s" };
            format!("{gap:+.4} nats/token over {seeds} seed{s}{noise} ({size}; {})", pair.title)
        });
        for answer in &mut answers {
            let yours = match (answer.id, of_base) {
                ("gla5_loss_gap", "GLA5")
                | ("gdn2_loss_gap", "GDN2")
                | ("mamba2_loss_gap", "Mamba2") => gap.clone(),
                ("canon_param_overhead", "Llama") => number(base, "arch.parameters").map(|all| {
                    format!("{added} ({:.2}%) of {all} ({})", 100.0 * added / all, pair.title)
                }),
                _ => None,
            };
            answer.yours.extend(yours);
        }
    }
    let products: BTreeSet<String> = runs
        .iter()
        .filter_map(|run| Some(run.experiment.value("optimizer.lr_wd_steps")?.plain()))
        .collect();
    for answer in answers.iter_mut().filter(|answer| answer.id == "wd_outlier") {
        answer.yours.extend(products.iter().map(|product| format!("lr × wd × steps = {product}")));
    }
    answers
}

fn number(run: &PageRun, path: &str) -> Option<f64> {
    run.experiment.value(path)?.plain().parse().ok()
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
