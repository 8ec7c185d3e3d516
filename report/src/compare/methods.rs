//! A methods paragraph for a paper.
//!
//! In: a comparison, its name and the id of its lock. Out: one paragraph on the experiment and its analysis. Must
//! stay true: every clause follows from the lock or the runs; the paragraph names the lock, so that a reader can check
//! it, and states what was not measured or not declared.

use super::caption::level;
use super::nuisance::{OF_BASE, PER_ARM};
use super::table::percent;
use super::{Comparison, Pair, Role, Row, analysis_of, at};
use crate::statistics::paired::{Coverage, FEWEST, covers};
use crate::statistics::questions::Asked;
use crate::statistics::{Confidence, noise, sequential};
use dsl::counted;

/// The methods paragraph.
pub fn methods(name: &str, lock: &str, comparison: &Comparison) -> String {
    let analysis = analysis_of(comparison);
    let pairs = comparison.pairs();
    let rows: Vec<Row> = pairs.iter().filter_map(|pair| pair.row(&analysis.primary)).collect();
    let family: Vec<String> = analysis.family.clone();
    let base = comparison.base().map_or("", |arm| arm.name.as_str());
    let treated: Vec<&str> = comparison
        .arms
        .iter()
        .filter(|arm| arm.role == Role::Treatment)
        .map(|arm| arm.name.as_str())
        .collect();
    let mut said = vec![format!(
        "The comparison {name} (lock {lock}) compares {} with {base}; design: {}.",
        treated.join(", "),
        comparison.verdict()
    )];
    let counts = rows.iter().map(|row| row.paired.len());
    let (least, most) = (counts.clone().min().unwrap_or(0), counts.max().unwrap_or(0));
    let seeds = match least == most {
        true => counted(most, "pair"),
        false => format!("{least} to {most} pairs"),
    };
    said.push(format!("Runs were paired by seed ({seeds} a row)."));
    if comparison.points.len() > 1 {
        said.push(selection(comparison));
    }
    said.push(format!(
        "The primary metric is {}{}.",
        &analysis.primary,
        if analysis.declared { "" } else { " (that of the selection, which is the default)" }
    ));
    match analysis.max_seeds {
        None => said.push(interval(&rows, analysis.confidence)),
        Some(most) => {
            let Coverage { normal, skewed } = sequential::COVERS;
            said.push(format!(
                "Seeds were looked at one after another, in the order of the lock, under a sequential rule (at most \
                 {most} seeds)."
            ));
            let level = percent(analysis.confidence);
            said.push(match rows.iter().any(|row| row.result.is_ok()) {
                true => format!(
                    "Intervals are {level} anytime-valid intervals; at all looks together they cover {normal}% for normal \
                     and {skewed}% for exponentially skewed differences, by simulation at 95%."
                ),
                false => "After these seeds the rule gives no interval yet.".to_owned(),
            });
            said.extend(comparison.decisions());
            said.extend(order(comparison));
        }
    }
    let test = match analysis.max_seeds {
        Some(_) => "anytime-valid t tests",
        None if comparison.points.len() > 1 => "t tests that allow for the choice of points",
        None => "t tests",
    };
    let members = comparison.family();
    let tests =
        format!("{} ({} of each treated arm)", counted(members.len(), "test"), family.join(", "));
    said.push(match members.iter().any(|member| member.judged.p_adjusted.is_some()) {
        true => format!(
            "P values come from two-sided {test}, adjusted by Holm's method over {tests}, at level {}.",
            level(analysis.confidence)
        ),
        false => format!("The family is {tests}; no test has a p value, so nothing is decided."),
    });
    said.push(match analysis.margin {
        Some(margin) => format!(
            "Arms are called equivalent only if two one-sided tests place the difference within {} of zero.",
            margin.size()
        ),
        None => "No equivalence margin was declared.".to_owned(),
    });
    for pair in &pairs {
        let lost = pair.lost();
        if lost.base + lost.treated + lost.both > 0 {
            let kept = lost.pairs - lost.base - lost.treated - lost.both;
            said.push(format!(
                "Runs diverged: the differences of {} are those of{}, and no conclusion was given that a diverged \
                 run, ranked worst, could change.",
                at(comparison, &pair.arm.name, pair.arm_point),
                lost.suffix(kept).replace(['(', ')'], "")
            ));
        }
    }
    said.extend(reported_before(comparison));
    said.push(repeated(comparison, &pairs, &rows));
    let over = rows.iter().find_map(|row| Some((row, row.over?)));
    if let Some((row, over)) = over {
        let which = match comparison.proved.questions_of(&row.metric) {
            _ if most <= 1 => "of one seed",
            Some(Asked::Same) => "the same for all seeds",
            Some(Asked::Fresh) => "other ones for each seed",
            None => "not known to be the same for all seeds",
        };
        said.push(format!("Each value was measured on {}, {which}.", over.text()));
    }
    said.extend(comparison.overlap());
    said.join(" ")
}

fn interval(rows: &[Row], confidence: Confidence) -> String {
    let level = percent(confidence);
    if let Some(among) = rows.iter().find_map(|row| row.chosen_among) {
        return format!(
            "{level} intervals and p values hold for the chosen points ({}).",
            among.text()
        );
    }
    let least = rows.iter().filter_map(|row| row.result.ok()).map(|found| found.n).min();
    let Some(n) = least else {
        return format!(
            "No intervals are shown: they need {FEWEST} seeds with differences that are not all equal."
        );
    };
    match covers(n) {
        Some(reached) if confidence == Confidence::NINETY_FIVE => format!(
            "Intervals are {level} paired t intervals; at n = {n} they cover {}% for normal and {}% for exponentially \
             skewed differences, by simulation.",
            reached.normal, reached.skewed
        ),
        Some(_) => {
            format!(
                "Intervals are {level} paired t intervals; their coverage was not measured at this level."
            )
        }
        None => format!("Intervals are not given below {FEWEST} seeds."),
    }
}

/// How a point of the grid was selected, or that none was.
fn selection(comparison: &Comparison) -> String {
    let points = comparison.points.len();
    let metric = comparison.judged_by();
    let none: Vec<&str> = comparison
        .arms
        .iter()
        .filter(|arm| arm.role != Role::Replicate && comparison.chosen(arm).is_none())
        .map(|arm| arm.name.as_str())
        .collect();
    if !none.is_empty() {
        return format!(
            "{points} grid points were tried for each arm; none was selected for {}, because no point of the arm \
             that the rule uses has {metric} in every run that did not diverge.",
            none.join(", ")
        );
    }
    let rule = if comparison.selection.per_arm { PER_ARM } else { OF_BASE };
    format!(
        "{points} grid points were tried for each arm and one was selected ({rule}, by {metric}) on the evaluation \
         windows that are reported."
    )
}

/// What the records leave open of the order in which the rule and the runs were made.
fn order(comparison: &Comparison) -> [String; 1] {
    let taken = comparison.proved.siblings.taken.len();
    [match taken {
        0 => "The lock declares the rule; it does not prove that it did so before the runs."
            .to_owned(),
        _ => format!(
            "{taken} of the runs were taken from other comparisons, so the rule and the order of seeds may have been \
             chosen after their results."
        ),
    }]
}

/// Results that were known before the lock was written.
fn reported_before(comparison: &Comparison) -> Option<String> {
    let earlier = comparison.proved.siblings.earlier_reports.last()?;
    let seeds = counted(earlier.seeds, "seed");
    Some(match earlier.added.len() {
        0 => format!("Results of {seeds} were known before this analysis was declared."),
        added => format!(
            "Results of {seeds} were known before {} were added.",
            counted(added, "other seed")
        ),
    })
}

/// Of the primary metric: noise may be refused however often the base was repeated.
fn repeated(comparison: &Comparison, pairs: &[Pair<'_>], rows: &[Row]) -> String {
    let have = pairs.iter().map(Pair::repetitions).min().unwrap_or(0);
    let refused = rows.iter().find_map(|row| row.itself?.err());
    let known = !rows.is_empty() && rows.iter().all(|row| matches!(row.itself, Some(Ok(_))));
    let varied = comparison.proved.varied;
    match refused {
        None if known && have >= noise::FEWEST && varied.init && varied.data => format!(
            "Noise was estimated from {have} repetitions of the base with other init and data seeds."
        ),
        Some(why) => format!("The noise of the base was not estimated ({}).", why.reason()),
        None => "The noise of the base was not estimated.".to_owned(),
    }
}
