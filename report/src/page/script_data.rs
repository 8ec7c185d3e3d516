//! The numbers that a page's script draws, as one JSON value: each series once, thinned by means if long, with seven
//! figures; NaN is null. Fields form one table of distinct values, so that fifty equal locks cost as much as one.

use std::collections::{BTreeMap, BTreeSet};

use lab::comparison::Role;
use lab::experiment::field_lines;
use lab::field::{Class, Origin, TABLE};
use lab::trainer::TrainerRecord;
use serde_json::{Value, json};

use super::contents::PageContents;
use super::run::{MOST_POINTS, PageRun, thinned};
use super::run_pairs::RunPairs;
use super::speed;
use super::verdicts::RunVerdicts;
use crate::compare::{TRAINING_LOSS, unit};

pub(super) fn json(contents: &PageContents, pairs: &[RunPairs], verdicts: &RunVerdicts) -> Value {
    let runs = contents.drawn();
    let parts = contents.part_numbers();
    let programs = contents.runs().into_iter().map(|_| None);
    let programs = programs.chain(contents.logs.iter().map(|log| Some(log.program())));
    let positions = runs.iter().zip(parts).zip(programs);
    json!({
        "title": contents.title(),
        "runs": positions.map(|((run, part), program)| of_run(run, part, program, &runs)).collect::<Vec<_>>(),
        "units": units(&runs),
        "fields": fields(&runs),
        "pairs": pairs.iter().map(of_pair).collect::<Vec<_>>(),
        "judged": verdicts.json(),
        "published": contents.published.json(),
    })
}

fn of_pair(pair: &RunPairs) -> Value {
    let RunPairs { title, lines, replicate, finals: _, noise, design: _ } = pair;
    json!({ "title": title, "lines": lines, "replicate": replicate, "noise": noise.is_some() })
}

/// The series of speeds.
const SPEED: &str = "tokens per second";

/// The unit of each series.
fn units(runs: &[&PageRun]) -> Value {
    let named = |run: &&PageRun| run.logged.curves.metrics.keys().cloned().collect::<Vec<_>>();
    let names: BTreeSet<String> =
        runs.iter().flat_map(named).chain([TRAINING_LOSS.to_owned()]).collect();
    let units: BTreeMap<String, &str> = names
        .into_iter()
        .map(|name| {
            let word = unit(&name).word();
            (name, word)
        })
        .chain([(SPEED.to_owned(), "speed")])
        .collect();
    json!(units)
}

/// A run, or what another program logged of one.
fn of_run(run: &PageRun, part: Option<usize>, program: Option<&str>, all: &[&PageRun]) -> Value {
    let PageRun { name, arm, role, seed, point: _, at, experiment, folder: _, logged } = run;
    let value = |path| experiment.value(path).and_then(|value| value.plain().parse::<f64>().ok());
    let mut series = BTreeMap::new();
    let mut put = |name: &str, points: &[(u64, f64)]| {
        if !points.is_empty() {
            series.insert(name.to_owned(), of_series(points));
        }
    };
    put(TRAINING_LOSS, &logged.curves.loss);
    put("gradient norm", &logged.grad_norm);
    put("learning rate", &logged.lr);
    put(SPEED, &speed::series(run));
    for (name, points) in &logged.curves.metrics {
        put(name, points);
    }
    // Runs with the same batches share the number of the first such run.
    let data = all.iter().position(|other| other.logged.batches == logged.batches);
    let data = data.filter(|_| !logged.batches.is_empty() && logged.has_all_batches());
    json!({
        "name": name,
        "arm": arm,
        "role": match role {
            Some(Role::Base) => "base",
            Some(Role::Treatment) => "treatment",
            Some(Role::Replicate) => "replicate",
            None => "alone",
        },
        "log": program,
        "part": part,
        "seed": role.map(|_| seed + 1),
        "at": at,
        "lock": experiment.id().to_string(),
        "steps": experiment.budget.steps,
        "tokens": value("budget.tokens"),
        "tokens_per_step": value("batch.tokens_per_step"),
        "seconds": logged.seconds.as_ref().map(|seconds| of_ends(seconds)),
        "beside": logged.beside,
        "trainer": logged.curves.trainer.as_ref().map(TrainerRecord::described),
        "data": data,
        "diverged": logged.curves.diverged,
        "spikes": logged.spikes,
        "series": series,
    })
}

/// A series: its steps as start and distance if evenly spaced, and its values.
fn of_series(points: &[(u64, f64)]) -> Value {
    let (points, block) = thinned(points);
    let steps: Vec<u64> = points.iter().map(|(step, _)| *step).collect();
    let values: Vec<Value> = points.iter().map(|(_, value)| brief(*value)).collect();
    let gap = match steps.as_slice() {
        [a, b, ..] => b - a,
        _ => 1,
    };
    let even = steps.windows(2).all(|two| matches!(two, [a, b] if b - a == gap));
    match even {
        true => json!({ "first": steps.first(), "every": gap, "values": values, "mean_of": block }),
        false => json!({ "steps": steps, "values": values, "mean_of": block }),
    }
}

/// A series of sums, which are not averaged: the end of each block.
fn of_ends(points: &[(u64, f64)]) -> Value {
    let block = points.len().div_ceil(MOST_POINTS).max(1);
    let ends: Vec<&(u64, f64)> = points.chunks(block).filter_map(<[_]>::last).collect();
    json!({
        "steps": ends.iter().map(|(step, _)| *step).collect::<Vec<_>>(),
        "values": ends.iter().map(|(_, value)| brief(*value)).collect::<Vec<_>>(),
    })
}

/// A number with seven figures.
fn brief(value: f64) -> Value {
    format!("{value:.6e}")
        .parse::<f64>()
        .ok()
        .filter(|v| v.is_finite())
        .map_or(Value::Null, |v| json!(v))
}

/// All fields of all locks: class, distinct values, and each run's value.
fn fields(runs: &[&PageRun]) -> Value {
    let of_runs: Vec<BTreeMap<String, String>> = runs.iter().map(|run| values(run)).collect();
    let paths: BTreeSet<&String> = of_runs.iter().flat_map(BTreeMap::keys).collect();
    let class = |path: &str| {
        let known = TABLE.iter().find(|field| field.path == path);
        match known.map(|field| (field.origin, field.class)) {
            Some((Origin::Derived, _)) => "derived",
            Some((_, class)) => class.word(),
            None => Class::Semantic.word(),
        }
    };
    let table = paths.into_iter().map(|path| {
        let values: Vec<&str> =
            of_runs.iter().map(|run| run.get(path).map_or("", String::as_str)).collect();
        let distinct: BTreeSet<&str> = values.iter().copied().collect();
        let distinct: Vec<&str> = distinct.into_iter().collect();
        let index = |value: &&str| distinct.iter().position(|known| known == value);
        let of_runs: Vec<Option<usize>> = values.iter().map(index).collect();
        json!({ "path": path, "class": class(path), "values": distinct, "of": of_runs })
    });
    Value::Array(table.collect())
}

fn values(run: &PageRun) -> BTreeMap<String, String> {
    let experiment = &run.experiment;
    let of_table = TABLE
        .iter()
        .filter_map(|field| Some((field.path.to_owned(), experiment.value(field.path)?.plain())));
    let of_arch = field_lines(&experiment.arch.compiled.fields);
    let of_arch = of_arch.into_iter().map(|line| (format!("arch.{}", line.path), line.value));
    let name = [("arch".to_owned(), experiment.arch.name.clone())];
    of_table.chain(of_arch).chain(name).collect()
}
