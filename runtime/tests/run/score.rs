//! Accuracies during training, compared with a slow count.

use std::collections::BTreeMap;

use data::batch::Batch;
use records::metrics::{Record, Score};
use runtime::evaluate::Measurer;
use runtime::execute::Evaluator;
use runtime::state::State;
use runtime::train::machine;

use super::data::SHORT;
use super::support::*;

#[test]
fn an_evaluation_is_what_counting_one_window_at_a_time_gives() {
    one_thread();
    let experiment = depo(&[("windows = 3", "windows = 7")]);
    let mut job = job(&experiment, None).unwrap();
    let machine = machine(&experiment.platform).unwrap();
    let evaluator = Evaluator::new(job.evaluation.clone(), machine).unwrap();
    let state = State::initial(&job, machine).unwrap();
    let evaluation = Measurer::new(&job, machine).unwrap().measure(&mut job, &state).unwrap();

    let (mut nll, mut counted) = (0.0, 0);
    let mut tokens = Score::default();
    let mut answers: BTreeMap<u32, Score> = BTreeMap::new();
    for window in 0..7 {
        let mut batch = Batch::default();
        job.held_out.fill(window..window + 1, &mut batch).unwrap();
        let tensor = |values: &[i64]| tch::Tensor::from_slice(values).reshape([1, -1]);
        let (inputs, targets) = (tensor(batch.inputs()), tensor(batch.targets()));
        let result = evaluator.evaluate(&state.weights, &inputs, &targets).unwrap();
        nll += result.loss_sum;
        counted += result.counted;
        let guesses = Vec::<i64>::try_from(result.argmax.reshape([-1])).unwrap();
        for answer in batch.answers().iter().filter(|answer| answer.complete) {
            let positions = answer.start..answer.start + answer.len;
            let mut is_right = true;
            for at in positions {
                let right = guesses[at] == batch.targets()[at];
                tokens.add(right);
                is_right &= right;
            }
            answers.entry(answer.level).or_default().add(is_right);
        }
    }
    assert_eq!((evaluation.tokens, &evaluation.answers), (tokens, &answers));
    // Single questions are scored at the end only.
    assert_eq!(evaluation.questions, None);
    let mut state = State::initial(&job, machine).unwrap();
    state.step = 8;
    let evaluation = Measurer::new(&job, machine).unwrap().measure(&mut job, &state).unwrap();
    assert_eq!((evaluation.tokens, &evaluation.answers), (tokens, &answers));
    let questions = evaluation.questions.clone().unwrap();
    assert_eq!(questions.tokens.iter().sum::<u64>(), tokens.right);
    for (level, right) in &questions.answers {
        let right_of = right.iter().filter(|right| **right).count() as u64;
        assert_eq!(answers[level], Score { right: right_of, of: right.len() as u64 });
    }
    assert_eq!(questions.answers.len(), answers.len());
    assert_eq!(evaluation.counted, counted as u64);
    assert!((evaluation.nll.unwrap() - nll / counted as f64).abs() < 1e-6);
    assert!(tokens.right > 0 && tokens.right < tokens.of, "{tokens:?}");
}

#[test]
fn an_evaluation_that_counts_nothing_reports_no_loss() {
    one_thread();
    let experiment = depo(&SHORT);
    let mut job = job(&experiment, None).unwrap();
    let machine = machine(&experiment.platform).unwrap();
    let state = State::initial(&job, machine).unwrap();
    let evaluation = Measurer::new(&job, machine).unwrap().measure(&mut job, &state).unwrap();
    assert_eq!((evaluation.counted, evaluation.nll), (0, None));
    assert!(Record::Evaluation(evaluation).text().contains("\"eval_loss\":null,\"counted\":0"));
}
