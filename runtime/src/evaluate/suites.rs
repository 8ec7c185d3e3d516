//! In: an answerer, the job's suites and a state. Out: the scores of each task. Must stay true: each request is computed
//! alone, in inputs of at most a training window, with the marks of training; ranks share the questions.

use suite::asked::Asked;
use suite::score::{Measured, Reply, part, total};

use super::shared::{Ended, Sharing};
use crate::answer::Answerer;
use crate::state::State;
use records::job::Job;
use records::metrics::SuiteScores;
use records::run::{RunError, RunErrorKind};
use records::suites::{Suites, length, of_question};

/// The scores of every task; each question's part only in the `last` evaluation.
pub(super) fn measure(
    answerer: &mut Answerer,
    job: &Job,
    (state, sharing): (&State, Sharing<'_>),
    last: bool,
) -> Result<Vec<SuiteScores>, Ended> {
    let Some(Suites { asked, tokens }) = &job.suites else {
        let why = format!("the suites of `{}` were not read", job.name);
        return Err(RunError::machine(why, "this is a bug in canonc; please report it").into());
    };
    answerer.forget();
    let longest = length(job.seq_len);
    let mut all = Vec::new();
    for (Asked { task, requests, places, .. }, locked) in asked.iter().zip(&job.tasks) {
        let mut each: Vec<Vec<f64>> = vec![Vec::new(); task.metrics.len()];
        let ask = |number: u64| {
            let at = usize::try_from(number).unwrap_or(usize::MAX);
            let (Some(request), Some(place)) = (requests.get(at), places.get(at)) else {
                return Ok(Vec::new());
            };
            let reply = match answerer.reply(&state.weights, tokens, longest, task, request) {
                // A model that has diverged is a result, which the loss at the end names.
                Err(error) if error.kind == RunErrorKind::Finding => Reply::Diverged,
                reply => reply.map_err(|error| of_question(error, place, &task.name))?,
            };
            let parts = task.metrics.iter().map(|metric| part(task, *metric, request, &reply));
            Ok(parts.map(|part| part.to_bits() as i64).collect())
        };
        sharing.in_order(requests.len() as u64, ask, |_, numbers| {
            for (parts, bits) in each.iter_mut().zip(numbers) {
                parts.push(f64::from_bits(*bits as u64));
            }
            (numbers.len() == task.metrics.len()).then_some(())
        })?;
        let mut scores = SuiteScores { task: locked.clone(), scores: [].into(), each: [].into() };
        for (metric, parts) in task.metrics.iter().zip(each) {
            let Measured { value, each, .. } = total(*metric, requests, parts);
            scores.scores.insert(metric.word().to_owned(), value);
            if last {
                scores.each.insert(metric.word().to_owned(), each);
            }
        }
        all.push(scores);
    }
    Ok(all)
}
