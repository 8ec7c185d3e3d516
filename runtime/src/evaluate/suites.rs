//! The scores of the lock's suites in an evaluation. Ranks share the questions.

use super::shared::{Ended, Sharing};
use crate::answer::Answerer;
use crate::state::State;
use dsl::Problem;
use records::job::Job;
use records::metrics::SuiteScores;

/// The scores of every task; each question's part only in the `last` evaluation.
pub(super) fn measure(
    answerer: &mut Answerer,
    job: &Job,
    (state, sharing): (&State, Sharing<'_>),
    last: bool,
) -> Result<Vec<SuiteScores>, Ended> {
    let Some(measure) = &job.measure else {
        let message = format!("the suites of `{}` were not read", job.name);
        return Err(Problem::machine(message, "this is a bug in canonc; please report it").into());
    };
    answerer.forget();
    let mut model = answerer.with(&state.weights);
    let longest = usize::try_from(job.seq_len).unwrap_or(usize::MAX);
    let mut all = Vec::new();
    for (number, task) in job.tasks.iter().enumerate() {
        let mut parts: Vec<Vec<f64>> = vec![Vec::new(); task.metrics.len()];
        let ask = |question: u64| {
            let question = usize::try_from(question).unwrap_or(usize::MAX);
            let parts = measure.ask(&mut model, number, question, longest)?;
            Ok(parts.into_iter().map(|part| part.to_bits() as i64).collect())
        };
        sharing.in_order(task.questions, ask, |_, numbers| {
            for (parts, bits) in parts.iter_mut().zip(numbers) {
                parts.push(f64::from_bits(*bits as u64));
            }
            (numbers.len() == task.metrics.len()).then_some(())
        })?;
        all.push(SuiteScores::new(task, parts, last));
    }
    Ok(all)
}
