//! What the values of a row were measured on: questions, tokens, targets, sentences, windows or steps.

use serde::Serialize;
use tasks::metric::of_suite;

use super::metric::{EVAL_LOSS, EXACT_MATCH, STEP_TIME, TOKEN_ACCURACY, TRAINING_LOSS};
use super::runs::{ArmRun, Curves};

/// The items that each value of a row was measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MeasuredOn {
    /// The smallest number of items of any run.
    pub fewest: u64,
    /// The largest number of items of any run.
    pub most: u64,
    /// Plural: `questions`.
    pub unit: &'static str,
    /// The number of evaluation windows that hold the items; `None` if they have none, or if runs differ.
    pub windows: Option<u64>,
}

/// Of one value: the number of items, their name, and the windows that hold them.
type Items = (u64, &'static str, Option<u64>);

impl Curves {
    fn items(&self, metric: &str) -> Option<Items> {
        let windows = self.windows;
        // Where the model writes its answers, each question is asked alone.
        let asked_in = windows.filter(|_| self.samples.is_none_or(|samples| samples == 0));
        let logged = |unit, windows| Some((*self.asked.get(metric)?, unit, windows));
        match metric {
            TRAINING_LOSS => Some((self.tail() as u64, "steps at the end", None)),
            STEP_TIME => Some((self.timed_steps?, "timed steps", None)),
            EVAL_LOSS => logged("targets", windows),
            TOKEN_ACCURACY => logged("tokens", windows),
            _ if of_suite(metric).is_some() => logged("questions", None),
            _ if metric.starts_with(EXACT_MATCH) => logged("questions", asked_in),
            "valid sentences" => Some((self.samples?, "written sentences", None)),
            "KL from the true distribution" => Some((self.samples?, "sentences", None)),
            // Of biographies, the log has only their mean.
            _ => Some((windows?, "windows", None)),
        }
    }
}

/// What the values of these runs were measured on; `None` if a log does not say it.
pub(super) fn measured_on(base: &[ArmRun], arm: &[ArmRun], metric: &str) -> Option<MeasuredOn> {
    let ended = base.iter().chain(arm).filter(|run| run.curves.last(metric).is_some());
    let all: Vec<Items> = ended.filter_map(|run| run.curves.items(metric)).collect();
    let (_, unit, windows) = *all.first()?;
    let counts = || all.iter().map(|(count, ..)| *count);
    let same = all.iter().all(|(_, _, other)| *other == windows);
    Some(MeasuredOn {
        fewest: counts().min()?,
        most: counts().max()?,
        unit,
        windows: windows.filter(|_| same),
    })
}

impl MeasuredOn {
    /// `900 targets in 4 windows`
    pub fn text(self) -> String {
        let MeasuredOn { fewest, most, unit, windows } = self;
        let count = match fewest == most {
            true => format!("{most}"),
            false => format!("{fewest} … {most}"),
        };
        let unit = match most {
            1 => unit.replacen("steps", "step", 1),
            _ => unit.to_owned(),
        };
        let unit = if most == 1 { unit.strip_suffix('s').unwrap_or(&unit) } else { &unit };
        match windows {
            None => format!("{count} {unit}"),
            Some(1) => format!("{count} {unit} in 1 window"),
            Some(windows) => format!("{count} {unit} in {windows} windows"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::made_up::run;
    use super::super::metric::MEASURES;
    use super::*;

    fn edited(edit: impl Fn(&mut Curves)) -> ArmRun {
        let mut run = run(0, 1.0, 0.5);
        edit(&mut run.curves);
        run
    }

    #[test]
    fn every_metric_of_every_task_has_a_number_and_its_unit() {
        let lano = |metric: &str| {
            let run = edited(|curves| {
                (curves.windows, curves.samples) = (Some(4), Some(64));
                curves.metrics.insert(metric.to_owned(), vec![(20, 0.5)]);
                curves.asked.insert(format!("{EXACT_MATCH}, level 2"), 60);
            });
            measured_on(&[run], &[], metric).map(MeasuredOn::text)
        };
        for (metric, text) in [
            (TRAINING_LOSS, "2 steps at the end"),
            (EVAL_LOSS, "900 targets in 4 windows"),
            (TOKEN_ACCURACY, "200 tokens in 4 windows"),
            ("valid sentences", "64 written sentences"),
            ("KL from the true distribution", "64 sentences"),
            ("bits learned", "4 windows"),
            ("bits learned per parameter", "4 windows"),
            // With written answers, each question is asked alone.
            ("exact_match, level 2", "60 questions"),
        ] {
            assert_eq!(lano(metric).as_deref(), Some(text), "{metric}");
        }
        for (_, metric, _) in MEASURES {
            assert!(lano(metric).is_some(), "{metric}");
        }
    }

    #[test]
    fn numbers_that_differ_between_runs_are_both_given() {
        let run = |count: u64, windows: u64| {
            edited(|curves| {
                curves.asked.insert(EVAL_LOSS.to_owned(), count);
                curves.windows = Some(windows);
            })
        };
        let text = |a: ArmRun, b: ArmRun| measured_on(&[a], &[b], EVAL_LOSS).unwrap().text();
        assert_eq!(text(run(58, 4), run(60, 4)), "58 … 60 targets in 4 windows");
        assert_eq!(text(run(60, 4), run(60, 8)), "60 targets");
        assert_eq!(text(run(1, 1), run(1, 1)), "1 target in 1 window");
    }
}
