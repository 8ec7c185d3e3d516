//! What has to be said beside a table of differences.
//!
//! In: a comparison, and the pairs that are shown. Out: sentences: what means are over, the locked rule, how intervals
//! were made and what they cover, the noise band, warnings. Must stay true: nothing that weakens a number in the table
//! is left out; where the rule could not choose a point, or seconds are of several machines, that is said.

use std::collections::BTreeSet;

use super::interval::{DRAWN, FEWEST, covers};
use super::nuisance::{OF_BASE, PER_ARM};
use super::proved::NOT_CONTROLLED;
use super::{Comparison, Pair, Role, Run, paired};

pub(super) fn caption(comparison: &Comparison, pairs: &[Pair<'_>]) -> String {
    let mut said = vec![seeds(comparison)];
    let open = comparison.not_controlled();
    if !open.is_empty() {
        let said_of = format!(
            "{NOT_CONTROLLED}: no difference of {} can be laid to a treatment.",
            open.join(", ")
        );
        said.insert(0, said_of);
    }
    if comparison.points.len() > 1 {
        said.push(rule(comparison));
    }
    said.extend(intervals(pairs));
    said.push(band(comparison, pairs));
    let timed = |runs: &[Run]| runs.iter().any(|run| run.curves.step_seconds.is_some());
    let apart = |pair: &Pair<'_>| {
        let (base, arm) = (pair.base_runs(), pair.arm_runs());
        let alike = |(a, b): (&Run, &Run)| {
            a.curves.timed_on.is_some() && a.curves.timed_on == b.curves.timed_on
        };
        timed(base) && timed(arm) && !paired(base, arm).into_iter().all(alike)
    };
    if pairs.iter().any(apart) {
        said.push(
            "Step times of runs that had not the same platform and machine are not compared."
                .to_owned(),
        );
    }
    let mut text = said.join(" ");
    for warning in comparison.warnings() {
        text.push_str(&format!("\n{warning}"));
    }
    text
}

/// How the intervals were made, and what such ones cover.
fn intervals(pairs: &[Pair<'_>]) -> Option<String> {
    let rows = pairs.iter().flat_map(|pair| pair.rows());
    let made: BTreeSet<(usize, bool)> =
        rows.filter_map(|row| row.interval).map(|found| (found.n, found.exact)).collect();
    if made.is_empty() {
        return None;
    }
    let over = |(n, exact): &(usize, bool)| match exact {
        true => {
            let all = (*n as u64).pow(*n as u32);
            format!("all {all} ways to draw {n} seeds with replacement")
        }
        false => format!("{DRAWN} draws of {n} seeds with replacement, by a keyed generator"),
    };
    let over: Vec<String> = made.iter().map(over).collect();
    let covered = |(n, _): &(usize, bool)| match covers(*n) {
        Some(percent) => format!("about {percent}% of comparisons at n = {n}"),
        None => format!("less than 95% of comparisons at n = {n}"),
    };
    let covered: Vec<String> = made.iter().map(covered).collect();
    let three = if made.contains(&(FEWEST, true)) {
        " At n = 3 it is the lowest and the highest difference."
    } else {
        ""
    };
    Some(format!(
        "The 95% interval is the percentile bootstrap of the mean paired difference over {}; at least 2.5% of the means lie \
         at or beyond each end.{three} Where differences are normally distributed it holds the true mean in {}, \
         not in 95%.",
        over.join(", "),
        covered.join(", ")
    ))
}

/// What the band is the largest of.
fn band(comparison: &Comparison, pairs: &[Pair<'_>]) -> String {
    if !comparison.arms.iter().any(|arm| arm.role == Role::Again) {
        return "There is no A/A arm, so nothing here says how large a difference has to be to mean anything."
            .to_owned();
    }
    let counts: BTreeSet<usize> = pairs.iter().map(Pair::band_pairs).collect();
    let mut said = match counts.iter().copied().collect::<Vec<_>>()[..] {
        [1] => "The A/A band is one distance between a run of the base and its repetition with other seeds: one alone \
                says little of how large noise can be, but a difference inside it says nothing."
            .to_owned(),
        [n] => format!(
            "The A/A band is the largest of {n} distances between the base and its repetition with other seeds: a \
             difference inside it says nothing."
        ),
        _ => "The A/A band is the largest distance between the base and its repetition with other seeds: a difference \
              inside it says nothing."
            .to_owned(),
    };
    if pairs.iter().any(|pair| pair.arm_point != pair.base_point) {
        said.push_str(
            " It is of the base's point; how far seeds lie apart at an arm's own point it does not say.",
        );
    }
    said
}

fn seeds(comparison: &Comparison) -> String {
    let counts: Vec<(&str, usize)> = comparison
        .arms
        .iter()
        .map(|arm| (arm.name.as_str(), arm.points.iter().map(Vec::len).min().unwrap_or(0)))
        .collect();
    let first = counts.first().map_or(0, |(_, count)| *count);
    let over = if counts.iter().all(|(_, count)| *count == first) {
        format!("{first} seed{}", if first == 1 { "" } else { "s" })
    } else {
        let each: Vec<String> =
            counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
        format!("seeds ({})", each.join(", "))
    };
    let times = comparison
        .arms
        .iter()
        .flat_map(|arm| arm.points.iter().flatten())
        .any(|run| run.curves.step_seconds.is_some());
    let ratio = if times { " (of step times treatment over base)" } else { "" };
    format!("Means over {over}; differences are treatment minus base{ratio}, paired by seed.")
}

/// The selection rule, and what it came to.
fn rule(comparison: &Comparison) -> String {
    let metric = comparison.judged_by();
    let which = match comparison.selection.choose {
        compiler::lock::Choose::Least => "least",
        compiler::lock::Choose::Most => "most",
    };
    let rule = if comparison.selection.per_arm {
        format!("each arm is judged at its own point of the grid with the {which} {metric}")
    } else {
        format!("every arm is judged at the base's point of the grid with the {which} {metric}")
    };
    // The arms that the rule looks at.
    let looked_at = |role| match role {
        Role::Base => true,
        Role::Treatment => comparison.selection.per_arm,
        Role::Again => false,
    };
    let lacking: Vec<&str> = comparison
        .arms
        .iter()
        .filter(|arm| looked_at(arm.role) && comparison.best(arm).is_none())
        .map(|arm| arm.name.as_str())
        .collect();
    let name = if comparison.selection.per_arm { PER_ARM } else { OF_BASE };
    if lacking.is_empty() {
        return format!(
            "By the locked rule {rule} (*), on the held-out windows that are reported here: declared is \"{name}\", and \
             the other way of judging decides nothing. A best point is the best of {} on the very windows that are \
             reported, so its value is too good by the choice; the differences paired at each point are not. The base \
             again is judged where the base is.",
            comparison.points.len()
        );
    }
    format!(
        "By the locked rule {rule}, but no point of {} has that in every run: what the rule cannot judge is shown \
         at every point, and none of these is chosen.",
        lacking.join(", ")
    )
}
