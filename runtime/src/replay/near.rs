//! Whether two results of one step or one evaluation differ by no more than rounding.
//!
//! What rounding cannot affect must agree on any machine. Every member of an evaluation is compared, since one that is
//! not could be forged. Tolerances grow with each step after a state that both had.

use std::collections::BTreeMap;

use records::metrics::{Evaluation, Questions, Score, Step, SuiteScores};
use tasks::metric::{self, OfSuites};

/// Relative differences that rounding can make in the loss of one step from equal weights, and in the norm of its
/// gradient: f32 sums in another order, and matrix products in TF32, stay below these.
const LOSS_ROUNDING: f64 = 1e-3;
const NORM_ROUNDING: f64 = 1e-2;

/// How much more one question rounds than the mean over many, and a divergence than the losses it comes from.
const ALONE: f64 = 32.0;

/// The effect of rounding on the loss this many steps after equal weights: it doubles with each step, up to a quarter.
/// Later steps are not judged, since training may amplify rounding without bound.
fn loss_tolerance(steps: u64) -> f64 {
    match steps {
        0..=8 => LOSS_ROUNDING * (1u64 << steps.saturating_sub(1)) as f64,
        9..=16 => 0.25,
        _ => f64::INFINITY,
    }
}

/// Whether two steps, `after` steps from a state that both had, differ by no more than rounding.
pub(crate) fn is_near(one: &Step, other: &Step, after: u64) -> bool {
    let exact = (one.lr.to_bits(), one.batch, one.counted)
        == (other.lr.to_bits(), other.batch, other.counted);
    exact
        && close(one.loss, other.loss, loss_tolerance(after))
        && (after > 1 || close(Some(one.grad_norm), Some(other.grad_norm), NORM_ROUNDING))
}

/// Whether the scores of two evaluations, `after` steps from a state that both had, differ by no more than rounding.
pub(crate) fn scores_are_near(one: &Evaluation, other: &Evaluation, after: u64) -> bool {
    let may = Rounding::after(after);
    let Evaluation { step, nll, counted, tokens, answers, measures, questions, suites } = one;
    *step == other.step
        && *counted == other.counted
        && close(*nll, other.nll, may.losses)
        && may.count(tokens, &other.tokens)
        && both(answers, &other.answers, |one, other| may.count(one, other))
        && measures.keys().eq(other.measures.keys())
        && measures
            .iter()
            .zip(&other.measures)
            .all(|((name, one), (_, other))| may.measure(name, *one, *other))
        && match (questions, &other.questions) {
            (Some(one), Some(other)) => may.questions(one, other, tokens.of),
            // A line of an older canonc has none.
            (Some(_), None) | (None, _) => true,
        }
        && suites.len() == other.suites.len()
        && suites.iter().zip(&other.suites).all(|(one, other)| may.suite(one, other))
}

/// What rounding may change.
#[derive(Clone, Copy)]
struct Rounding {
    /// The share of answers. Rounding decides one only if two tokens are about equally likely.
    share: f64,
    /// Losses, relative to them.
    losses: f64,
}

impl Rounding {
    fn after(steps: u64) -> Rounding {
        let share = match steps {
            0..=6 => 0.01 * (1u64 << steps) as f64,
            _ => 1.0,
        };
        Rounding { share, losses: loss_tolerance(steps) }
    }

    /// Whether so many of so many answers are no more than may have changed.
    fn answers(self, changed: f64, of: u64) -> bool {
        changed <= (self.share * of as f64).max(1.0)
    }

    fn count(self, one: &Score, other: &Score) -> bool {
        one.of == other.of && self.answers(one.right.abs_diff(other.right) as f64, one.of)
    }

    /// Whether single answers, of `of`, changed no more than they may. As many may become right as wrong.
    fn singles(self, changed: f64, of: u64) -> bool {
        self.answers(changed / 2.0, of)
    }

    /// Whether two means of losses, in nats or bits, are near.
    fn losses(self, one: f64, other: f64, factor: f64) -> bool {
        let size = one.abs().max(other.abs()).max(1.0);
        within(one, other, factor * self.losses * size)
    }

    fn measure(self, name: &str, one: f64, other: f64) -> bool {
        match metric::is_share(name) {
            // A line does not have the number of samples: one in twenty may be a single one.
            true => within(one, other, self.share.max(0.05)),
            false => within(one, other, self.losses * (ALONE * one.abs().max(other.abs()) + 1.0)),
        }
    }

    fn questions(self, one: &Questions, other: &Questions, of_tokens: u64) -> bool {
        let Questions { asked, answers, tokens } = one;
        let changed: u64 =
            tokens.iter().zip(&other.tokens).map(|(one, other)| one.abs_diff(*other)).sum();
        *asked == other.asked
            && both(answers, &other.answers, |one, other| {
                let changed = one.iter().zip(other).filter(|(one, other)| one != other).count();
                one.len() == other.len() && self.singles(changed as f64, one.len() as u64)
            })
            && tokens.len() == other.tokens.len()
            && self.singles(changed as f64, of_tokens)
    }

    fn suite(self, one: &SuiteScores, other: &SuiteScores) -> bool {
        let SuiteScores { task, scores, each } = one;
        let questions = task.questions;
        let is_share = |word: &str| metric::of_word(word).is_some_and(OfSuites::is_share);
        let score = |word: &str, one: f64, other: f64| match (is_share(word), word) {
            // A share is a number of questions, but for the rounding of the division.
            (true, _) => self.answers((one - other).abs() * questions as f64 - 1e-6, questions),
            (false, "bits_per_byte") => self.losses(one, other, 1.0),
            (false, _) => self.losses(libm::log(one), libm::log(other), 1.0),
        };
        let parts = |word: &str, one: &[f64], other: &[f64]| {
            let mut pairs = one.iter().zip(other).map(|(one, other)| (*one, *other));
            one.len() == other.len()
                && match is_share(word) {
                    true => {
                        self.singles(pairs.map(|(one, other)| (one - other).abs()).sum(), questions)
                    }
                    false => pairs.all(|(one, other)| self.losses(one, other, ALONE)),
                }
        };
        *task == other.task
            && scores.keys().eq(other.scores.keys())
            && scores
                .iter()
                .zip(other.scores.values())
                .all(|((word, one), other)| score(word, *one, *other))
            && each.keys().eq(other.each.keys())
            && each
                .iter()
                .zip(other.each.values())
                .all(|((word, one), other)| parts(word, one, other))
    }
}

/// Whether both have the same keys, with values that `near` accepts.
fn both<V>(
    one: &BTreeMap<u32, V>,
    other: &BTreeMap<u32, V>,
    near: impl Fn(&V, &V) -> bool,
) -> bool {
    one.keys().eq(other.keys()) && one.values().zip(other.values()).all(|(one, two)| near(one, two))
}

/// Whether two numbers are the same, neither is a number, or both are finite and differ by at most this.
fn within(one: f64, other: f64, by: f64) -> bool {
    let same = one == other || (one.is_nan() && other.is_nan());
    same || (one.is_finite() && other.is_finite() && (one - other).abs() <= by)
}

fn close(one: Option<f64>, other: Option<f64>, tolerance: f64) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => {
            one.to_bits() == other.to_bits()
                || (one - other).abs() <= tolerance * one.abs().max(other.abs())
        }
        (one, other) => one.is_none() && other.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use compiler::digest::Digest;
    use lab::field::SuiteTask;

    use super::*;

    fn evaluation() -> Evaluation {
        let digest = Digest::of("test", "one");
        let task = SuiteTask {
            name: "next".to_owned(),
            metrics: vec!["acc".to_owned(), "perplexity".to_owned()],
            questions: 100,
            settings: digest,
            asked: digest,
            examples: None,
            counted: None,
        };
        let right = |count: usize| (0..100).map(|at| f64::from(u8::from(at < count))).collect();
        Evaluation {
            step: 8,
            nll: Some(2.0),
            counted: 100,
            tokens: Score { right: 50, of: 100 },
            answers: [(1, Score { right: 50, of: 100 })].into(),
            measures: [(metric::KL.to_owned(), 0.5), (metric::VALIDITY.to_owned(), 0.5)].into(),
            questions: Some(Questions {
                asked: digest,
                answers: [(1, (0..100).map(|at| at < 50).collect())].into(),
                tokens: vec![1; 50],
            }),
            suites: vec![SuiteScores {
                task,
                scores: [("acc".to_owned(), 0.5), ("perplexity".to_owned(), libm::exp(2.0))].into(),
                each: [("acc".to_owned(), right(50)), ("perplexity".to_owned(), vec![-2.0; 100])]
                    .into(),
            }],
        }
    }

    #[test]
    fn what_rounding_changes_is_near() {
        let check_near = |change: fn(&mut Evaluation)| {
            let mut other = evaluation();
            change(&mut other);
            assert!(scores_are_near(&evaluation(), &other, 0), "{other:?}");
            assert!(scores_are_near(&other, &evaluation(), 0), "{other:?}");
        };
        check_near(|_| ());
        check_near(|it| it.suites[0].scores.insert("acc".to_owned(), 0.51).map_or((), drop));
        check_near(|it| *it.suites[0].scores.get_mut("perplexity").unwrap() *= 1.001);
        check_near(|it| it.suites[0].each.get_mut("acc").unwrap()[49] = 0.0);
        check_near(|it| it.suites[0].each.get_mut("perplexity").unwrap()[7] = -2.01);
        check_near(|it| *it.measures.get_mut(metric::KL).unwrap() = 0.501);
        check_near(|it| it.questions.as_mut().unwrap().answers.get_mut(&1).unwrap()[3] = false);
        // A line of an older canonc.
        check_near(|it| it.questions = None);
    }

    #[test]
    fn what_rounding_cannot_change_is_not_near() {
        let far = |change: fn(&mut Evaluation)| {
            let mut other = evaluation();
            change(&mut other);
            assert!(!scores_are_near(&evaluation(), &other, 0), "{other:?}");
            assert!(!scores_are_near(&other, &evaluation(), 0), "{other:?}");
        };
        far(|it| *it.suites[0].scores.get_mut("acc").unwrap() = 0.6);
        far(|it| *it.suites[0].scores.get_mut("perplexity").unwrap() /= 2.0);
        far(|it| *it.suites[0].scores.get_mut("perplexity").unwrap() = f64::INFINITY);
        far(|it| *it.measures.get_mut(metric::KL).unwrap() = f64::NAN);
        far(|it| it.suites[0].scores.remove("acc").map_or((), drop));
        far(|it| it.suites[0].each.get_mut("acc").unwrap().reverse());
        far(|it| it.suites[0].each.get_mut("perplexity").unwrap()[7] = -1.0);
        far(|it| it.suites[0].each.clear());
        far(|it| it.suites[0].task.asked = Digest::of("test", "other"));
        far(|it| it.suites[0].task.metrics.reverse());
        far(|it| it.suites.clear());
        far(|it| *it.measures.get_mut(metric::KL).unwrap() = 0.1);
        far(|it| *it.measures.get_mut(metric::VALIDITY).unwrap() = 0.9);
        far(|it| it.measures.clear());
        far(|it| it.questions.as_mut().unwrap().tokens[0] = 90);
        far(|it| it.questions.as_mut().unwrap().asked = Digest::of("test", "other"));
        far(|it| it.answers.get_mut(&1).unwrap().right = 60);
    }
}
