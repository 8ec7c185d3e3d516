//! Splits the variance of an evaluation by seeds and questions, since questions are a sample too.
//!
//! The interval holds for other seeds and other questions alike. Differences are paired by question; parts are never negative
//! and sum to the variance of the mean; a single seed gives no seed part.
//!
//! Sources: Miller 2024, "Adding error bars to evals", sections 3 to 5 (questions as a sample, paired differences);
//! two-way random effects with one observation a cell: Searle, Casella and McCulloch 1992, "Variance components",
//! chapter 4; degrees of freedom: Satterthwaite 1946.

use std::fmt;

use super::sample::{Sample, Undefined, no_spread};
use super::{Confidence, student};

/// Fewest seeds for a seed part.
pub const FEWEST_SEEDS: usize = 3;

/// Number of 95% intervals out of a hundred that hold the true mean, at least; measured for right and wrong answers to
/// 60 questions by 1, 3, 5 and 9 seeds, with and without a spread over seeds. A test repeats the measurement.
pub const COVERS: u32 = 93;

/// Which questions each seed was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// All seeds were asked the same questions, in the same order.
    Same,
    /// Each seed was asked its own questions.
    Fresh,
}

/// A mean difference with its variance split.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Split {
    /// Whether seeds share their questions.
    pub asked: Asked,
    /// Number of seeds.
    pub seeds: usize,
    /// Questions per seed; if the numbers differ, the smallest.
    pub questions: usize,
    /// Mean difference.
    pub mean: f64,
    /// Standard error of the mean, over seeds and questions; over questions alone without a seed part.
    pub standard_error: f64,
    /// Degrees of freedom of the standard error.
    pub df: f64,
    /// Lower end of the interval of the mean.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Two-sided p value for a mean difference of zero.
    pub p: f64,
    /// The part of the squared standard error that more seeds would lower; `None` for fewer than three seeds, and then
    /// the interval covers only these particular runs.
    pub seed_part: Option<f64>,
    /// The part that more questions would lower.
    pub question_part: f64,
    /// The part that either would lower: the effect of one question in one run.
    pub both_part: f64,
    /// The share of such intervals that should hold the truth.
    pub confidence: Confidence,
}

/// Why a split was refused.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case", tag = "refused")]
pub enum Refused {
    /// Too few questions or no variance.
    Undefined(Undefined),
    /// All seeds should have the same questions, but one has another number of them.
    OtherNumber {
        /// Index of the seed.
        seed: usize,
        /// Number of its questions.
        questions: usize,
        /// Number of the first seed's questions.
        of_first: usize,
    },
    /// Two seeds are too few to estimate a spread over seeds, and too many for the analysis of a single run.
    TooFewSeeds {
        /// Number of seeds given.
        have: usize,
        /// Fewest seeds.
        need: usize,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Undefined(undefined) => undefined.fmt(f),
            Refused::OtherNumber { seed, questions, of_first } => write!(
                f,
                "seed {seed} has {questions} questions and the first seed {of_first}, though all were asked the same"
            ),
            Refused::TooFewSeeds { have, need } => {
                write!(f, "{have} seeds; a spread over seeds needs at least {need}")
            }
        }
    }
}

impl From<Undefined> for Refused {
    fn from(undefined: Undefined) -> Refused {
        Refused::Undefined(undefined)
    }
}

/// Parts of the squared standard error of the mean.
struct Parts {
    mean: f64,
    seed: Option<f64>,
    question: f64,
    both: f64,
    df: f64,
}

/// Splits the variance of `differences[seed][question]`.
pub fn split(
    differences: &[Vec<f64>],
    asked: Asked,
    confidence: Confidence,
) -> Result<Split, Refused> {
    let seeds = differences.len();
    if seeds == 0 || seeds == 2 {
        return Err(Refused::TooFewSeeds { have: seeds, need: FEWEST_SEEDS });
    }
    let questions = differences.iter().map(Vec::len).min().unwrap_or(0);
    if questions < 2 {
        return Err(Undefined::TooFew { have: questions, need: 2 }.into());
    }
    if !differences.iter().flatten().all(|d| d.is_finite()) {
        return Err(Undefined::NotFinite.into());
    }
    let parts = match (differences, asked) {
        ([only], Asked::Same | Asked::Fresh) => one(only)?,
        (_, Asked::Same) => same(differences, questions)?,
        (_, Asked::Fresh) => fresh(differences)?,
    };
    let Parts { mean, seed, question, both, df } = parts;
    let variance = seed.unwrap_or(0.0) + question + both;
    let standard_error = libm::sqrt(variance);
    let largest: Vec<f64> = differences.iter().flatten().copied().collect();
    if !(standard_error.is_finite() && df > 0.0) || no_spread(&largest, standard_error) {
        return Err(Undefined::NoVariance { value: mean }.into());
    }
    let half = student::critical(confidence.alpha(), df) * standard_error;
    Ok(Split {
        asked,
        seeds,
        questions,
        mean,
        standard_error,
        df,
        low: mean - half,
        high: mean + half,
        p: student::two_sided(mean / standard_error, df),
        seed_part: seed,
        question_part: question,
        both_part: both,
        confidence,
    })
}

/// One run of each arm: the questions are the sample.
fn one(differences: &[f64]) -> Result<Parts, Undefined> {
    let sample = Sample::from_values(differences, 2)?;
    let question = sample.variance / sample.n as f64;
    Ok(Parts { mean: sample.mean, seed: None, question, both: 0.0, df: (sample.n - 1) as f64 })
}

/// Each seed's mean is one number; the share due to its own questions is known from their spread.
fn fresh(differences: &[Vec<f64>]) -> Result<Parts, Undefined> {
    let seeds = differences.len() as f64;
    let mut means = Vec::with_capacity(differences.len());
    let mut within = 0.0;
    for questions in differences {
        let n = questions.len() as f64;
        let mean = questions.iter().sum::<f64>() / n;
        let squares: f64 = questions.iter().map(|d| (d - mean) * (d - mean)).sum();
        within += squares / ((n - 1.0) * n);
        means.push(mean);
    }
    let sample = Sample::from_values(&means, FEWEST_SEEDS)?;
    let total = sample.variance / seeds;
    let question = f64::min(total, within / (seeds * seeds));
    Ok(Parts {
        mean: sample.mean,
        seed: Some(total - question),
        question,
        both: 0.0,
        df: seeds - 1.0,
    })
}

/// The two-way table: mean squares of seeds, questions and residuals.
fn same(differences: &[Vec<f64>], questions: usize) -> Result<Parts, Refused> {
    let of_first = differences.first().map_or(0, Vec::len);
    for (seed, row) in differences.iter().enumerate() {
        if row.len() != of_first {
            return Err(Refused::OtherNumber { seed, questions: row.len(), of_first });
        }
    }
    let (s, q) = (differences.len() as f64, questions as f64);
    let by_seed: Vec<f64> = differences.iter().map(|row| row.iter().sum::<f64>() / q).collect();
    let mut by_question = vec![0.0; questions];
    for row in differences {
        for (sum, value) in by_question.iter_mut().zip(row) {
            *sum += value / s;
        }
    }
    let mean = by_seed.iter().sum::<f64>() / s;
    let squares = |means: &[f64]| means.iter().map(|m| (m - mean) * (m - mean)).sum::<f64>();
    let mut left = 0.0;
    for (row, of_seed) in differences.iter().zip(&by_seed) {
        for (value, of_question) in row.iter().zip(&by_question) {
            let rest = value - of_seed - of_question + mean;
            left += rest * rest;
        }
    }
    let left_df = (s - 1.0) * (q - 1.0);
    let left = left / left_df;
    let seed = q * squares(&by_seed) / (s - 1.0);
    let question = s * squares(&by_question) / (q - 1.0);
    // If an effect's mean square is below the residual's, its part is zero.
    let cells = s * q;
    let seed_part = f64::max(0.0, seed - left) / cells;
    let question_part = f64::max(0.0, question - left) / cells;
    let both_part = left / cells;
    // Satterthwaite's approximation, over the mean squares in the sum.
    let mut terms = Vec::new();
    let mut of_left = 1.0;
    for (square, df) in [(seed, s - 1.0), (question, q - 1.0)] {
        if square > left {
            terms.push((square, df));
            of_left -= 1.0;
        }
    }
    terms.push((of_left * left, left_df));
    let sum: f64 = terms.iter().map(|(square, _)| square).sum();
    let over: f64 = terms.iter().map(|(square, df)| square * square / df).sum();
    Ok(Parts {
        mean,
        seed: Some(seed_part),
        question: question_part,
        both: both_part,
        df: sum * sum / over,
    })
}

#[cfg(test)]
mod tests {
    use super::super::Paired;
    use super::super::draws::Draws;
    use super::super::simulation::percent;
    use super::*;

    const AT: Confidence = Confidence::NINETY_FIVE;

    #[test]
    fn the_split_of_a_table_by_hand_is_exact() {
        // Mean 4; seed means 2, 4, 6; question means 3, 5; residuals are zero.
        let table = [vec![1.0, 3.0], vec![3.0, 5.0], vec![5.0, 7.0]];
        let result = split(&table, Asked::Same, AT).unwrap();
        // Mean squares: seeds 2 * 8 / 2 = 8, questions 3 * 2 / 1 = 6, over 6 cells.
        assert!((result.mean - 4.0).abs() < 1e-12);
        assert!((result.seed_part.unwrap() - 8.0 / 6.0).abs() < 1e-12);
        assert!((result.question_part - 1.0).abs() < 1e-12);
        assert!(result.both_part.abs() < 1e-12);
        assert!((result.df - 14.0 * 14.0 / (64.0 / 2.0 + 36.0)).abs() < 1e-9, "{result:?}");
        assert_eq!((result.seeds, result.questions), (3, 2));
        let sum = result.seed_part.unwrap() + result.question_part + result.both_part;
        assert!((sum - result.standard_error * result.standard_error).abs() < 1e-12);
        // With fresh questions only the seeds' means matter: the paired t interval.
        let fresh = split(&table, Asked::Fresh, AT).unwrap();
        let paired = Paired::from_differences(&[2.0, 4.0, 6.0], AT).unwrap();
        assert!((fresh.standard_error - paired.standard_error).abs() < 1e-12);
        assert_eq!((fresh.low, fresh.high, fresh.df), (paired.low, paired.high, 2.0));
    }

    #[test]
    fn a_single_run_has_no_seed_part() {
        let right = [1.0, 0.0, 0.0, -1.0, 1.0, 1.0, 0.0, 1.0];
        let result = split(&[right.to_vec()], Asked::Same, AT).unwrap();
        assert_eq!((result.seeds, result.questions, result.seed_part), (1, 8, None));
        assert!((result.mean - 0.375).abs() < 1e-12 && result.df == 7.0);
    }

    #[test]
    fn tables_that_cannot_be_split_are_typed_errors() {
        let refused = |table: &[Vec<f64>], asked| split(table, asked, AT).unwrap_err();
        let two = vec![vec![0.0, 1.0]; 2];
        assert_eq!(refused(&[], Asked::Same), Refused::TooFewSeeds { have: 0, need: 3 });
        assert_eq!(refused(&two, Asked::Same), Refused::TooFewSeeds { have: 2, need: 3 });
        let ragged = [vec![0.0, 1.0], vec![0.0, 1.0, 1.0], vec![0.0, 1.0]];
        assert_eq!(
            refused(&ragged, Asked::Same),
            Refused::OtherNumber { seed: 1, questions: 3, of_first: 2 }
        );
        for asked in [Asked::Same, Asked::Fresh] {
            let none = Refused::Undefined(Undefined::NoVariance { value: 0.0 });
            assert_eq!(refused(&vec![vec![0.0; 10]; 3], asked), none);
            let few = Refused::Undefined(Undefined::TooFew { have: 1, need: 2 });
            assert_eq!(refused(&vec![vec![0.0]; 3], asked), few);
            let bad = Refused::Undefined(Undefined::NotFinite);
            assert_eq!(refused(&vec![vec![0.0, f64::NAN]; 3], asked), bad);
        }
        assert!(
            split(
                &ragged.map(|row| row.iter().map(|d| d + row.len() as f64).collect()),
                Asked::Fresh,
                AT
            )
            .is_ok()
        );
    }

    /// Paired differences of right and wrong answers with a true mean of zero.
    fn answers(
        draws: &mut Draws,
        seeds: usize,
        questions: usize,
        asked: Asked,
        by_seed: f64,
    ) -> Vec<Vec<f64>> {
        let easy = |draws: &mut Draws| (0.5 + 0.15 * draws.normal(), 0.15 * draws.normal());
        let shared: Vec<(f64, f64)> = (0..questions).map(|_| easy(draws)).collect();
        (0..seeds)
            .map(|_| {
                let of_seed = by_seed * draws.normal();
                (0..questions)
                    .map(|at| {
                        let (base, gain) = match asked {
                            Asked::Same => shared[at],
                            Asked::Fresh => easy(draws),
                        };
                        let half = 0.5 * (gain + of_seed);
                        let mut right = |chance: f64| f64::from(u8::from(draws.uniform() < chance));
                        right(base + half) - right(base - half)
                    })
                    .collect()
            })
            .collect()
    }

    /// The paired t interval over seeds covers the mean of these questions, but not that of all questions.
    #[test]
    fn intervals_cover_for_other_seeds_and_other_questions() {
        for (seeds, asked, by_seed) in [
            (3, Asked::Same, 0.1),
            (5, Asked::Same, 0.1),
            (9, Asked::Same, 0.1),
            (9, Asked::Same, 0.0),
            (3, Asked::Fresh, 0.1),
            (9, Asked::Fresh, 0.1),
            (1, Asked::Same, 0.0),
        ] {
            let mut draws = Draws::new(&format!("test questions {seeds} {asked:?} {by_seed}"));
            let covered = percent(1200, || {
                let table = answers(&mut draws, seeds, 60, asked, by_seed);
                // Three means of few answers may be equal: then the undefined interval does not count as wrong.
                split(&table, asked, AT).map_or(true, |f| f.low <= 0.0 && 0.0 <= f.high)
            });
            assert!(
                (f64::from(COVERS)..99.0).contains(&covered),
                "{seeds} {asked:?} {by_seed}: {covered}"
            );
        }
        let mut draws = Draws::new("test questions naive");
        let covered = percent(1200, || {
            let table = answers(&mut draws, 9, 60, Asked::Same, 0.0);
            let means: Vec<f64> = table.iter().map(|row| row.iter().sum::<f64>() / 60.0).collect();
            Paired::from_differences(&means, AT).map_or(true, |f| f.low <= 0.0 && 0.0 <= f.high)
        });
        assert!(covered < 91.0, "over seeds alone: {covered}");
    }

    #[test]
    fn the_split_recovers_each_part_of_the_variance() {
        let mut draws = Draws::new("test questions parts");
        let mut parts = |by_seed: f64, by_question: f64, by_both: f64| {
            let of_questions: Vec<f64> = (0..200).map(|_| by_question * draws.normal()).collect();
            let table: Vec<Vec<f64>> = (0..50)
                .map(|_| {
                    let seed = by_seed * draws.normal();
                    of_questions
                        .iter()
                        .map(|effect| seed + effect + by_both * draws.normal())
                        .collect()
                })
                .collect();
            let result = split(&table, Asked::Same, AT).unwrap();
            [result.seed_part.unwrap() * 50.0, result.question_part * 200.0, result.both_part * 1e4]
        };
        for (part, want) in parts(1.0, 2.0, 3.0).iter().zip([1.0, 4.0, 9.0]) {
            assert!((part / want - 1.0).abs() < 0.5, "{part}, not {want}");
        }
        let [seed, question, _] = parts(0.0, 0.0, 1.0);
        assert!(seed < 0.02 && question < 0.02, "{seed} {question}");
    }
}
