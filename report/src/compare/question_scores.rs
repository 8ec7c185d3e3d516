//! The scores of single questions that an evaluation logged, by metric.

use std::collections::BTreeMap;

use compiler::digest::Digest;
use records::metrics::{Evaluation, Questions, SuiteScores};

use super::metric::{EXACT_MATCH, TOKEN_ACCURACY, exact_match_of};

/// The scores of one metric in one run.
#[derive(Clone, Debug, PartialEq)]
pub struct QuestionScores {
    /// Digest of the questions: equal for the same questions.
    pub asked: Digest,
    /// One score per question; their mean is the metric.
    pub scores: Vec<f64>,
}

/// The scores of suites, with their names in tables and the number of questions.
pub(super) fn suite_scores(evaluation: &Evaluation) -> impl Iterator<Item = (String, f64, u64)> {
    evaluation.suites.iter().flat_map(|SuiteScores { task, scores, .. }| {
        scores.iter().map(|(word, value)| (format!("{}/{word}", task.name), *value, task.questions))
    })
}

/// The scores of single questions, by metric. A run that logged only counts has none.
pub(super) fn question_scores(evaluation: &Evaluation) -> BTreeMap<String, QuestionScores> {
    let mut by_metric = BTreeMap::new();
    for SuiteScores { task, scores: _, each } in &evaluation.suites {
        let asked = Digest::of("canonc.suite-task.v1", &task.to_string());
        for (word, scores) in each {
            let scores = QuestionScores { asked, scores: scores.clone() };
            by_metric.insert(format!("{}/{word}", task.name), scores);
        }
    }
    let Some(Questions { asked, answers, tokens }) = &evaluation.questions else {
        return by_metric;
    };
    let mut put = |name: String, scores: Vec<f64>| {
        if !scores.is_empty() {
            by_metric.insert(name, QuestionScores { asked: *asked, scores });
        }
    };
    let share = |right: &bool| f64::from(u8::from(*right));
    put(EXACT_MATCH.to_owned(), answers.values().flatten().map(share).collect());
    for (level, right) in answers {
        put(exact_match_of(*level), right.iter().map(share).collect());
    }
    // Weight an answer by its length, so that the mean over answers is the share of all tokens.
    let scale = tokens.len() as f64 / evaluation.tokens.of as f64;
    put(TOKEN_ACCURACY.to_owned(), tokens.iter().map(|right| *right as f64 * scale).collect());
    by_metric
}

#[cfg(test)]
mod tests {
    use super::*;
    use records::metrics::Score;

    #[test]
    fn the_mean_over_answers_is_the_metric() {
        let questions = Questions {
            asked: Digest::of("test", "asked"),
            answers: BTreeMap::from([(1, vec![true, false]), (2, vec![true])]),
            tokens: vec![3, 0, 5],
        };
        let score = |right, of| Score { right, of };
        let evaluation = Evaluation {
            step: 1,
            nll: None,
            counted: 0,
            tokens: score(8, 12),
            answers: BTreeMap::from([(1, score(1, 2)), (2, score(1, 1))]),
            measures: BTreeMap::new(),
            questions: Some(questions),
            suites: Vec::new(),
        };
        let by_metric = question_scores(&evaluation);
        let mean = |metric: &str| {
            let scores = &by_metric[metric].scores;
            scores.iter().sum::<f64>() / scores.len() as f64
        };
        assert!((mean(TOKEN_ACCURACY) - 8.0 / 12.0).abs() < 1e-12);
        assert!((mean(EXACT_MATCH) - 2.0 / 3.0).abs() < 1e-12);
        assert!((mean(&exact_match_of(1)) - 0.5).abs() < 1e-12);
    }
}
