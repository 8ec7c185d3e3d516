//! The caption of a table of differences.
//!
//! In: a comparison, the pairs that are shown, and the words of its family. Out: sentences on the means,
//! the locked rule, the intervals and their coverage, the family of tests, the A/A noise, the questions,
//! and warnings. Must stay true: every fact that weakens a number in the table is included; no sentence dismisses a
//! difference by the noise of single runs; the caption says if the rule could not choose a point, or if timings are
//! from several machines.

use std::collections::BTreeSet;

use super::analysis::Member;
use super::nuisance::{OF_BASE, PER_ARM};
use super::proved::NOT_CONTROLLED;
use super::table::percent;
use super::{
    Analysis, ChosenAmong, Comparison, Design, NoInterval, NoParts, Pair, Role, Row, Run, STEADY,
    Unit, Varied, analysis_of, paired,
};
use crate::statistics::paired::{Coverage, FEWEST, covers};
use crate::statistics::questions::{Asked, Split};
use crate::statistics::{Confidence, Effect, noise, sequential, sign_flip};
use tasks::metric::of_suite;

pub(super) fn caption(comparison: &Comparison, pairs: &[Pair<'_>], family: &[Member]) -> String {
    let rows: Vec<Row> = pairs.iter().flat_map(Pair::rows).collect();
    let analysis = analysis_of(comparison);
    let mut said = vec![seeds(comparison)];
    let open = comparison.not_controlled();
    if !open.is_empty() {
        let said_of = format!(
            "{NOT_CONTROLLED}: no difference of {} can be attributed to a treatment.",
            open.join(", ")
        );
        said.insert(0, said_of);
    }
    said.extend(bundles(comparison));
    if comparison.points.len() > 1 {
        said.push(rule(comparison));
    }
    said.push(intervals(&rows, analysis.confidence));
    said.push(tests(comparison, &analysis, family, &rows));
    said.push(itself(comparison, pairs));
    said.extend(questions(comparison, &rows));
    said.extend(comparison.overlap());
    said.extend(times(pairs, &rows));
    said.extend(comparison.decisions());
    said.join(" ")
}

/// A bundle can be controlled, but its difference is still not due to one factor.
fn bundles(comparison: &Comparison) -> Option<String> {
    let bundle = |arm: &&super::Arm| {
        arm.role == Role::Treatment && comparison.proved.design(&arm.name) == Design::Bundle
    };
    let names: Vec<&str> =
        comparison.arms.iter().filter(bundle).map(|arm| arm.name.as_str()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "Treatments of several factors: a difference of {} cannot be attributed to one of them. If one of the factors \
             only keeps a size equal, declare it as compensate under [match].",
            names.join(", ")
        )
    })
}

/// How the intervals were made, and their coverage.
pub(super) fn intervals(rows: &[Row], confidence: Confidence) -> String {
    let level = percent(confidence);
    let counts: BTreeSet<usize> =
        rows.iter().filter_map(|row| row.result.ok()).map(|found| found.n).collect();
    if counts.is_empty() {
        // A rule's first possible interval depends on its level.
        let fewest =
            if rows.iter().any(|row| row.anytime) { "more".to_owned() } else { FEWEST.to_string() };
        return format!(
            "No interval is shown: it needs {fewest} seeds and differences that are not all equal."
        );
    }
    if rows.iter().any(|row| row.anytime) {
        let Coverage { normal, skewed } = sequential::COVERS;
        return format!(
            "A stopping rule is declared, so the {level} interval and p are anytime-valid: they hold at all looks \
             together, and are wider than those of one look. In simulations with 30 looks, the share of sequences in which every 95% interval contains the true mean is {normal}% for normal differences and {skewed}% for differences as skewed as an exponential distribution."
        );
    }
    if let Some(among) = rows.iter().find_map(|row| row.chosen_among) {
        return allowing_for_choice(among, rows, &level);
    }
    let mut said = format!("The {level} interval is the paired t interval of the mean difference.");
    if confidence == Confidence::NINETY_FIVE {
        let covered = counts.iter().filter_map(|n| {
            let reached = covers(*n)?;
            Some(format!("at n = {n} {}% and {}%", reached.normal, reached.skewed))
        });
        let covered: Vec<String> = covered.collect();
        said.push_str(&format!(
            " In simulations, the share of such intervals that contain the true mean, for normal differences and for \
             differences as skewed as an exponential distribution, is {}.",
            covered.join("; ")
        ));
    } else {
        said.push_str(" Its coverage was not measured at this level.");
    }
    let flat = |row: &&Row| {
        use crate::statistics::Undefined::NoVariance;
        matches!(row.result, Err(NoInterval::Undefined(NoVariance { .. })))
    };
    let flat: BTreeSet<&str> = rows.iter().filter(flat).map(|row| row.metric.as_str()).collect();
    if !flat.is_empty() {
        said.push_str(&format!(
            " All differences of {} are equal, so their spread is unknown.",
            flat.into_iter().collect::<Vec<_>>().join(", ")
        ));
    }
    said
}

/// How intervals and p values allow for a choice of points by the runs that they report.
fn allowing_for_choice(among: ChosenAmong, rows: &[Row], level: &str) -> String {
    let points = among.base;
    let best = rows.iter().find(|row| row.chosen_among.is_some_and(|among| among.best_of_each));
    let mut said = match best {
        Some(row) => format!(
            "Each arm is judged at its own best of the same {points} points, by the runs that are reported: the {level} \
             interval and p of {} are those of the difference between the best of each arm, whichever points these are. A \
             treated point counts by its largest p against all points of the base, and the smallest of these {points} \
             times, so that more points do not make a difference easier to find. ",
            row.metric
        ),
        None => String::new(),
    };
    let pairs = among.treated * among.base;
    let others = rows.iter().any(|row| row.chosen_among.is_some_and(|among| !among.best_of_each));
    if others {
        let whose = if among.treated > 1 { "pairs of points" } else { "points of the base" };
        said.push_str(&format!(
            "{} the paired t interval at the chosen points, at the level divided by {pairs}, the number of {whose} that \
             could have been chosen. ",
            if best.is_some() { "Of other metrics they are those of" } else { "The interval and p are those of" },
        ));
    }
    said.push_str("Times are not adjusted: nothing is chosen by them.");
    said
}

/// The family, its adjustment, and the conditions for its words.
pub(super) fn tests(
    comparison: &Comparison,
    analysis: &Analysis,
    family: &[Member],
    rows: &[Row],
) -> String {
    let count = family.len();
    let test = match analysis.max_seeds {
        None => "t test",
        Some(_) => "sequential test (one over the greatest e value so far)",
    };
    let tests = if count == 1 { "one test".to_owned() } else { format!("{count} tests") };
    let source =
        if analysis.declared { "declared" } else { "by default the metric of the selection" };
    let names = analysis.family.join(", ");
    let family_is = format!("The family ({source}) is {tests}: {names} of each treated arm");
    let tested = family.iter().any(|member| member.judged.p_adjusted.is_some());
    let mut said = match rows.iter().any(|row| row.result.is_ok()) {
        true => format!("p is that of the {test}. {family_is}"),
        false => format!("No row has a p value. {family_is}"),
    };
    said.push_str(&match tested {
        true => format!(
            "; Holm's adjustment keeps its level at {}. Other rows are exploratory: their p is not adjusted and they \
             get no conclusion.",
            level(analysis.confidence)
        ),
        false => "; none has a p value, so none is decided. Other rows are exploratory and get no \
         conclusion.".to_owned(),
    });
    let unselected: BTreeSet<&str> =
        family.iter().filter(|m| m.points.is_none()).map(|m| m.arm.as_str()).collect();
    if !unselected.is_empty() {
        said.push_str(&format!(
            " For {} no point could be selected: the declared tests are counted as undecided, and rows at single \
             points are exploratory.",
            unselected.into_iter().collect::<Vec<_>>().join(", ")
        ));
    }
    if rows.iter().any(|row| row.sign_flip.is_some()) {
        said.push_str(&format!(
            " The sign-flip p (from {} seeds on) only assumes symmetric differences.",
            sign_flip::FEWEST
        ));
    }
    match analysis.margin {
        Some(margin) => said.push_str(&format!(
            " Equivalent means within the declared margin of {} in {}, by two one-sided tests{}.",
            margin.size(),
            &analysis.primary,
            if analysis.max_seeds.is_some() { " that are valid at every look" } else { "" }
        )),
        None => said.push_str(" No margin is declared, so no row can be called equivalent."),
    }
    said.push_str(&undecided(comparison, family));
    said
}

/// What an undecided row leaves open: its interval may hold zero, exclude it, or not be there.
fn undecided(comparison: &Comparison, family: &[Member]) -> String {
    let pairs = comparison.pairs();
    let ends = |member: &Member| {
        member.points?;
        let pair = pairs.iter().find(|pair| member.is_of(pair, &member.metric))?;
        pair.row(&member.metric)?.result.ok()
    };
    let open = family.iter().filter(|member| member.judged.effect == Effect::Undecided);
    let (mut holds, mut excludes, mut unknown) = (false, false, false);
    for member in open {
        match ends(member) {
            Some(found) if found.low <= 0.0 && 0.0 <= found.high => holds = true,
            Some(_) => excludes = true,
            None if member.points.is_none() => {}
            None => unknown = true,
        }
    }
    let mut said = String::new();
    if holds {
        said.push_str(" Undecided does not mean equal: the data fit both an effect and none.");
    }
    if excludes {
        said.push_str(
            " If a row is undecided although its interval excludes zero, the reason is the adjustment for the whole \
             family, or diverged runs.",
        );
    }
    if unknown && !holds {
        said.push_str(" A row without an interval is undecided.");
    }
    said
}

pub(crate) fn level(confidence: Confidence) -> String {
    let level = format!("{:.4}", confidence.alpha());
    level.trim_end_matches('0').to_owned()
}

/// The difference between the base and its replicates, and their number.
fn itself(comparison: &Comparison, pairs: &[Pair<'_>]) -> String {
    if !comparison.arms.iter().any(|arm| arm.role == Role::Replicate) {
        return "The comparison has no A/A arm, so the noise of the base is not measured."
            .to_owned();
    }
    let have = pairs.iter().map(Pair::repetitions).min().unwrap_or(0);
    let repeated = if have == 1 { "once".to_owned() } else { format!("{have} times") };
    if have < noise::FEWEST {
        return format!(
            "The base was repeated {repeated} with other seeds; its A/A noise is unknown with fewer than {} \
             repetitions.",
            noise::FEWEST
        );
    }
    let Varied { init, data } = comparison.proved.varied;
    if !(init && data) {
        let same = match (init, data) {
            (true, _) => "data seeds",
            (false, true) => "init seeds",
            (false, false) => "init and data seeds",
        };
        return format!(
            "The replicates share {same} with the base or with each other: A/A noise needs other init and other data \
             seeds, all distinct."
        );
    }
    let mut said = format!(
        "A/A: the base was repeated {repeated} with other init and data seeds; the number is the standard error that \
         seeds alone cause in a mean of as many differences as the row has. It needs a variance, and most values \
         away from the metric's floor and ceiling."
    );
    if pairs.iter().any(|pair| pair.arm_point != pair.base_point) {
        said.push_str(" It is measured at the base's point, not at an arm's own point.");
    }
    said
}

/// The population that the intervals cover besides other seeds: a sentence for rows of windows and one for rows of suites.
pub(super) fn questions(comparison: &Comparison, rows: &[Row]) -> Option<String> {
    let (suites, windows): (Vec<&Row>, Vec<&Row>) = rows
        .iter()
        .filter(|row| row.asked.is_some())
        .partition(|row| of_suite(&row.metric).is_some());
    if suites.is_empty() && windows.is_empty() {
        return None;
    }
    if rows.iter().all(|row| row.paired.len() <= 1) {
        let one = "There is one pair of runs: differences are those of these runs on these questions, and nothing here \
                   shows how they would vary with other seeds";
        return Some(format!("{one}. {}", parts(rows)));
    }
    let has_intervals = |rows: &[&Row]| rows.iter().any(|row| row.result.is_ok());
    let of_windows = match comparison.proved.questions {
        Some(Asked::Same) if !has_intervals(&windows) => {
            "All seeds are evaluated on the same windows, so the spread over seeds does not include the variance of \
             the questions"
        }
        Some(Asked::Same) => {
            "All seeds are evaluated on the same windows, so intervals hold for other seeds and these questions, not \
             for other questions"
        }
        Some(Asked::Fresh) => {
            "Each seed is evaluated on its own windows, so the spread over seeds includes the variance of the questions"
        }
        None => {
            "It is unknown whether all seeds are evaluated on the same windows, so the variance of the questions is \
             unknown too"
        }
    };
    let of_suites = match has_intervals(&suites) {
        false => {
            "Suites ask all seeds the same questions, so the spread over seeds of their scores does not include the \
             variance of the questions"
        }
        true => {
            "Suites ask all seeds the same questions, so intervals of their scores hold for other seeds and these \
             questions, not for other questions"
        }
    };
    let said = [(windows.is_empty(), of_windows), (suites.is_empty(), of_suites)];
    let said = said.into_iter().filter_map(|(none, said)| (!none).then_some(said));
    Some(format!("{}. {}", said.collect::<Vec<_>>().join(". "), parts(rows)))
}

/// How the questions' part was computed, or why it is absent.
fn parts(rows: &[Row]) -> String {
    let of: Vec<_> = rows.iter().filter_map(|row| row.parts).collect();
    let alone = |parts: &Split| parts.seeds < 2;
    if of.iter().flatten().any(alone) {
        return "SE is over the questions of these runs only.".to_owned();
    }
    if of.iter().any(Result::is_ok) {
        return "SE splits the standard error of the mean difference, paired by question: more seeds reduce the part \
         of the seeds, more questions that of the questions, and either reduces their interaction (both)."
            .to_owned();
    }
    match of.iter().any(|parts| matches!(parts, Err(NoParts::NotRecorded))) {
        true => "Question part not recorded: these runs logged answers as counts, not one by one."
            .to_owned(),
        false => "A run logs these measures as one mean over all its windows, so their standard error is not split by \
                  seed and question."
            .to_owned(),
    }
}

/// The caption of step times.
fn times(pairs: &[Pair<'_>], rows: &[Row]) -> Option<String> {
    let timed = |runs: &[Run]| runs.iter().any(|run| run.curves.step_seconds.is_some());
    let apart = |pair: &Pair<'_>| {
        let (base, arm) = (pair.base_runs(), pair.arm_runs());
        let alike = |(a, b): (&Run, &Run)| {
            a.curves.timed_on.is_some() && a.curves.timed_on == b.curves.timed_on
        };
        timed(base) && timed(arm) && !paired(base, arm).into_iter().all(alike)
    };
    let mut said = Vec::new();
    if pairs.iter().any(apart) {
        said.push(
            "Step times are compared only between runs on the same platform and machine, in the folder of one \
             comparison."
                .to_owned(),
        );
    }
    if rows.iter().any(|row| row.unit == Unit::Seconds && !row.paired.is_empty()) {
        said.push(format!(
            "A ratio of times has an interval (on the log scale) only if the base against itself stays within ×{}.",
            pairs.first().map_or(STEADY, |pair| pair.of.proved.steady())
        ));
    }
    (!said.is_empty()).then(|| said.join(" "))
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
    let ratio =
        if times { " (of step times the geometric mean of treatment over base)" } else { "" };
    format!("Means over {over}; differences are treatment minus base{ratio}, paired by seed.")
}

/// The selection rule, and its result.
fn rule(comparison: &Comparison) -> String {
    let metric = comparison.judged_by();
    let which = match comparison.selection.mode {
        lab::comparison::SelectionMode::Min => "lowest",
        lab::comparison::SelectionMode::Max => "highest",
    };
    let rule = if comparison.selection.per_arm {
        format!("each arm is judged at its own point of the grid with the {which} {metric}")
    } else {
        format!("every arm is judged at the base's point of the grid with the {which} {metric}")
    };
    // The arms that the rule considers.
    let looked_at = |role| match role {
        Role::Base => true,
        Role::Treatment => comparison.selection.per_arm,
        Role::Replicate => false,
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
            "By the locked rule {rule} (*), on the evaluation windows that are reported here: the declared rule is \
             \"{name}\", and the other rule is shown only for comparison. A best point is selected from {} on the \
             reported windows themselves, so its mean is biased towards a good value; intervals and p values allow for the \
             choice, and the differences paired at each point need no allowance. The replicate is judged at the base's \
             point.",
            comparison.points.len()
        );
    }
    format!(
        "By the locked rule {rule}, but no point of {} has it in every run: arms that the rule cannot judge are \
         shown at every point, and none of these is selected.",
        lacking.join(", ")
    )
}
