//! Checks that arms, seeds and a grid can form a comparison.
//!
//! An arm never chooses its own data, budget or measurement, and running the same thing twice does not make a replicate.

use tasks::metric::of_suite;

use super::{Analysis, Arm, Grid, Selection};
use crate::error::FieldProblem;
use crate::experiment::Seeds;

/// Reports fields that a grid varies twice, and fields that arms may not each choose for themselves.
pub(super) fn unsound_grid(grid: &[Grid], selection: &Selection) -> Vec<FieldProblem> {
    let paths: Vec<&String> = grid.iter().flat_map(|row| &row.paths).collect();
    let mut problems = Vec::new();
    for (at, path) in paths.iter().enumerate() {
        if paths.iter().take(at).any(|before| before == path) {
            let message =
                format!("[grid] varies `{path}` twice, but a point has only one value for it");
            problems.push(FieldProblem::new(
                "grid",
                "varied-twice",
                message,
                "list it in one row only",
            ));
        }
    }
    if let Some(path) = paths.iter().find(|path| selection.per_arm && !tunes(path)) {
        problems.push(FieldProblem::new(
            "selection.per_arm",
            "chosen-apart",
            format!(
                "each arm would be judged at its own best value of `{path}`, and the arms would differ in it"
            ),
            "under [selection] write per_arm = false, which judges every arm where the base is best; only \
             optimizer and schedule fields can be each arm's own",
        ));
    }
    problems
}

/// Whether a field of a grid tunes an arm, which may then be judged at its own best value: not its data, its budget or its
/// measurement.
pub fn tunes(path: &str) -> bool {
    path.starts_with("optimizer.") || path.starts_with("schedule.")
}

/// Whether an arm reports a metric. An editor knows the suites of a recipe, but does not read their tasks.
fn has(arm: &Arm, metric: &str) -> bool {
    let evaluation = &arm.experiment.evaluation;
    let unread = evaluation.tasks.is_empty() && !evaluation.suites.is_empty();
    evaluation.metric_names().iter().any(|known| known == metric)
        || unread && of_suite(metric).is_some()
}

/// Reports an arm without the metric of the selection rule.
pub(super) fn unmeasured(arm: &Arm, metric: &str, grid: &[Grid]) -> Option<FieldProblem> {
    let metrics = arm.experiment.evaluation.metric_names();
    // Without a grid nothing is selected, so an arm without metrics is valid.
    if has(arm, metric) || (metrics.is_empty() && grid.is_empty()) {
        return None;
    }
    let by = if metrics.is_empty() { "nothing".to_owned() } else { metrics.join(", ") };
    let message = format!("arm `{}` does not have the metric {metric}; it has {by}", arm.name);
    let help = "choose one of these, or add it to metrics under [evaluation] if the task has it";
    Some(FieldProblem::new("selection.metric", "not-measured", message, help))
}

/// Reports declared metrics that an arm lacks. [`unmeasured`] checks the selection's own metric.
pub(super) fn unjudged(arm: &Arm, analysis: &Analysis, selection: &Selection) -> Vec<FieldProblem> {
    let metrics = arm.experiment.evaluation.metric_names();
    let Analysis { primary, family, .. } = analysis;
    let declared = family.iter().chain([primary]);
    let missing = declared.filter(|name| **name != selection.metric);
    let missing = missing.filter(|name| !has(arm, name));
    let mut problems: Vec<FieldProblem> = Vec::new();
    for name in missing {
        let path = if name == primary { "analysis.primary" } else { "analysis.family" };
        let by = if metrics.is_empty() { "nothing".to_owned() } else { metrics.join(", ") };
        let message = format!("arm `{}` does not have the metric {name}; it has {by}", arm.name);
        let help =
            "choose one of these, or add it to metrics under [evaluation] if the task has it";
        if !problems.iter().any(|known| known.message == message) {
            problems.push(FieldProblem::new(path, "not-measured", message, help));
        }
    }
    problems
}

/// Reports arms that can differ only in what their runs report, or how often.
pub(super) fn alike(base: &str, arms: &[Arm]) -> Vec<FieldProblem> {
    let Some(base) = arms.iter().find(|arm| arm.name == base) else { return Vec::new() };
    let ids = |arm: &Arm| (arm.experiment.digests.train, arm.experiment.digests.platform);
    let others = arms.iter().filter(|arm| arm.name != base.name && ids(arm) == ids(base));
    let problem = |arm: &Arm| {
        let message = format!(
            "arm `{}` trains exactly like the base `{}`, bit for bit: the differences affect no weight",
            arm.name, base.name
        );
        let help = "compare arms that differ in something that affects training";
        FieldProblem::new("treatment", "trains-alike", message, help)
    };
    others.map(problem).collect()
}

/// Reports runs that would train identically, and so add no information. Evaluation has its own seed, but
/// another sample of windows does not make another training, nor another seed of weights of which an arm draws none.
pub(super) fn equal_seeds(seeds: &[Seeds], replicate: &[Seeds], drawn: bool) -> Vec<FieldProblem> {
    let same = |a: &Seeds, b: &Seeds| a.data == b.data && (a.init == b.init || !drawn);
    let of = |seeds: &Seeds| match drawn {
        true => format!("init {}, data {}", seeds.init, seeds.data),
        false => format!("data {}, and an arm draws no weights from init", seeds.data),
    };
    let (other, others) = match drawn {
        true => ("give each entry another init or data seed", "give the A/A arm other seeds"),
        false => ("give each entry another data seed", "give the A/A arm other data seeds"),
    };
    let mut problems = Vec::new();
    for (section, list) in [("seeds", seeds), ("replicate", replicate)] {
        let pairs = list.iter().enumerate().filter_map(|(at, seeds)| {
            Some((list.iter().take(at).position(|earlier| same(earlier, seeds))?, at, seeds))
        });
        problems.extend(pairs.map(|(first, second, seeds)| {
            let message = format!(
                "entries {} and {} of [{section}] both have {}: that is one run twice, not two runs",
                first + 1,
                second + 1,
                of(seeds)
            );
            FieldProblem::new(section, "equal-seeds", message, other)
        }));
    }
    for repeated in replicate.iter().filter(|a| seeds.iter().any(|s| same(s, a))) {
        let message = format!("[replicate] has {}, which [seeds] has too", of(repeated));
        problems.push(FieldProblem::new("replicate", "equal-seeds", message, others));
    }
    problems
}
