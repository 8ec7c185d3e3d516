//! Reads a run's curves from its folder.

use std::fmt::Write as _;
use std::path::Path;

use dsl::Problem;
use lab::experiment::Experiment;
use lab::trainer::Setting;
use records::attest::Attested;
use records::external::ExternalRun;
use records::finished;
use records::metrics::{Evaluation, Record, Score};
use records::run::{Paths, Refusal, if_there, json_lines};
use records::verify::{TimedRun, plausible, timed_seconds, times_elsewhere};
use serde_json::Value;

use super::metric::{EVAL_LOSS, EXACT_MATCH, TOKEN_ACCURACY, exact_match_of, measure_name};
use super::question_scores::{question_scores, suite_scores};
use super::runs::Curves;

/// Reads the log of a finished run of this lock; refuses any other folder.
pub fn read(folder: &Path, experiment: &Experiment) -> Result<Curves, Problem> {
    let paths = Paths::new(folder);
    let (attestation, records) = finished::read(&paths, experiment.into())?;
    plausible(&records, experiment).map_err(|what| finished::mismatch(&paths, &what))?;
    let mut curves = Curves::from_records(&records);
    (curves.windows, curves.samples) =
        (Some(experiment.evaluation.windows), Some(experiment.evaluation.samples));
    curves.setting = Setting::of(&[experiment], false);
    curves.diverged = attestation.diverged;
    if attestation.trainer.is_some() {
        let run = ExternalRun::read(&paths)?;
        curves.trainer = Some(run.trainer_throughout());
        curves.read_times_elsewhere(&paths, &run, experiment.budget.steps)?;
        return Ok(curves);
    }
    let run = TimedRun {
        records: &records,
        processes: started(&paths.events())?,
        steps: experiment.budget.steps,
        finished: true,
    };
    match timed_seconds(&paths, run) {
        Ok(_) => {
            let lines = json_lines(&paths.timings())?;
            let times = median_step_seconds(&lines);
            (curves.step_seconds, curves.timed_steps) =
                (times.map(|(median, _)| median), times.map(|(_, n)| n));
            curves.peak_bytes = peak_bytes(&lines);
        }
        Err(Refusal::Wrong(why)) => curves.untimed = Some(format!("{}: {why}", folder.display())),
        Err(Refusal::Unread(problem)) => return Err(problem),
    }
    curves.timed_on = timed_on(&attestation);
    // Older versions attested a run even if its last loss was NaN.
    let last = experiment.budget.steps;
    let divergence = records.last().and_then(|record| finished::divergence(record, last));
    curves.diverged = divergence.map(|(step, _)| step);
    Ok(curves)
}

impl Curves {
    /// Curves from records, without timings.
    pub(crate) fn from_records(records: &[Record]) -> Curves {
        let mut curves = Curves::default();
        for record in records {
            match record {
                Record::Start(_) => {}
                Record::Step(step) => {
                    curves.loss.extend(step.loss.map(|loss| (step.step, loss)));
                    // Of another engine's run, as far as it computed them.
                    let is_next = curves.batches.len() as u64 + 1 == step.step;
                    curves.batches.extend(step.batch.filter(|_| is_next));
                }
                Record::Evaluation(evaluation) => curves.add(evaluation),
            }
        }
        curves
    }

    /// The step times of another engine's run. They are compared only with times of an equal record.
    fn read_times_elsewhere(
        &mut self,
        paths: &Paths,
        run: &ExternalRun,
        last: u64,
    ) -> Result<(), Problem> {
        let path = paths.timings();
        let text = if_there(&path, disk::read_text(&path, disk::TEXT))?;
        let Some(text) = text else { return Ok(()) };
        if !run.log.resumed.is_empty() {
            let folder = paths.folder.display();
            self.untimed = Some(format!(
                "{folder}: it was continued on another machine or another number of ranks"
            ));
            return Ok(());
        }
        match times_elsewhere(&text, last) {
            Ok(mut seconds) => {
                seconds.sort_by(f64::total_cmp);
                self.step_seconds = seconds.get(seconds.len() / 2).copied();
                self.timed_steps = Some(seconds.len() as u64);
                self.timed_on = Some(run.trainer.timed_with());
            }
            Err(error) => {
                let folder = paths.folder.display();
                self.untimed = Some(format!("{folder}: timings.jsonl: {error}"));
            }
        }
        Ok(())
    }

    fn add(&mut self, evaluation: &Evaluation) {
        let mut put = |name: String, value: Option<f64>, asked: Option<u64>| {
            let Some(value) = value else { return };
            if let Some(asked) = asked {
                self.asked.insert(name.clone(), asked);
            }
            self.metrics.entry(name).or_default().push((evaluation.step, value));
        };
        let mut score = |name: String, score: &Score| put(name, score.ratio(), Some(score.of));
        score(TOKEN_ACCURACY.to_owned(), &evaluation.tokens);
        score(EXACT_MATCH.to_owned(), &evaluation.exact());
        for (level, of_level) in &evaluation.answers {
            score(exact_match_of(*level), of_level);
        }
        put(EVAL_LOSS.to_owned(), evaluation.nll, Some(evaluation.counted));
        for (name, value) in &evaluation.measures {
            put(measure_name(name).to_owned(), Some(*value), None);
        }
        for (name, value, asked) in suite_scores(evaluation) {
            put(name, Some(value), Some(asked));
        }
        self.questions = question_scores(evaluation);
    }
}

/// The metrics of an evaluation by their names in tables, with the scores of single questions if it has them.
pub fn scores_of(evaluation: &Evaluation) -> Vec<(String, f64, Vec<f64>)> {
    let Curves { metrics, mut questions, .. } =
        Curves::from_records(&[Record::Evaluation(evaluation.clone())]);
    let value = |(name, points): (String, Vec<(u64, f64)>)| {
        let each = questions.remove(&name).map_or_else(Vec::new, |scores| scores.scores);
        Some((name, points.last()?.1, each))
    };
    metrics.into_iter().filter_map(value).collect()
}

/// The number of processes that trained a run.
fn started(events: &Path) -> Result<usize, Problem> {
    let is_start = |event: &&Value| event.get("event").is_some_and(|event| event == "started");
    Ok(json_lines(events)?.iter().filter(is_start).count())
}

/// The timings of two runs are comparable if these texts are equal.
fn timed_on(attestation: &Attested) -> Option<String> {
    let mut text = attestation.platform.to_string();
    for (fact, value) in &attestation.machine {
        let _ = write!(text, "\n{fact} {value}");
    }
    attestation.other_machines.is_empty().then_some(text)
}

/// The median step time, and the number of timed steps. Timings depend on the machine and prove nothing. `None` for a
/// run without timings, or if its file of timings records that it shared the machine with others.
fn median_step_seconds(lines: &[Value]) -> Option<(f64, u64)> {
    if lines.iter().any(|line| line.get("beside").is_some()) {
        return None;
    }
    let mut seconds: Vec<f64> = lines
        .iter()
        .filter_map(|value| value.get("seconds")?.as_f64())
        .filter(|seconds| *seconds > 0.0 && *seconds <= MOST_SECONDS)
        .collect();
    seconds.sort_by(f64::total_cmp);
    Some((*seconds.get(seconds.len() / 2)?, seconds.len() as u64))
}

/// The peak memory over all processes that worked on the run, if recorded.
fn peak_bytes(lines: &[Value]) -> Option<u64> {
    lines.iter().filter_map(|line| line.get("peak_memory_bytes")?.as_u64()).max()
}

/// Longest accepted step time: about a month.
const MOST_SECONDS: f64 = 3e6;

/// The line added to the timings of a run that shared its machine with other runs of its comparison.
pub fn ran_beside(others: usize) -> String {
    format!("{{\"beside\":{others}}}")
}
