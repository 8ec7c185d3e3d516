//! The difference between the best points of two arms, each chosen by the values that are compared.
//!
//! Let a_k and b_j be the true means of the treated arm at its K points and of the base at its J points. The question
//! is about best a minus best b. The base's best point is unknown, so that a one-sided test of a point k counts by its
//! largest p value against all j; and k is chosen, so that the smallest of these counts K times (Bonferroni). The
//! other direction is the same with the arms exchanged, and the two-sided p value is twice the smaller one. The interval
//! inverts these tests. Both keep their level whatever the dependence between points and however many are equally good.
//!
//! Sources: Berger 1982, "Multiparameter hypothesis testing and acceptance sampling" (the largest p value);
//! Bonferroni, as in Dunn 1961. A choice by someone else's values, such as the base's best point for both arms, needs
//! only [`among`].

use super::equivalence::{Better, Margin};
use super::sample::Undefined;
use super::{Confidence, Paired, student};

/// The values of an arm: for each point, one for each seed; `None` where a run has no value. A point that cannot be the
/// best, since more of its runs diverged, has no values at all and is `None`.
pub type Points = [Option<Vec<Option<f64>>>];

/// A result after a choice among points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chosen {
    /// Mean difference at the chosen points, with the interval and p value of the difference of the best.
    pub result: Paired,
    /// One-sided p value of a difference at or beyond the margin, the larger one of both sides.
    pub p_equivalence: Option<f64>,
}

/// The result of a pair that was chosen among `count`, by any rule: every pair is tested at a `count`-th of the level.
pub fn among(count: usize, pair: Paired) -> Paired {
    let (low, high) = pair.interval(pair.confidence.of_each(count));
    Paired { low, high, p: (count as f64 * pair.p).min(1.0), ..pair }
}

/// The best of the treated arm against the best of the base, where `pair` is the result at the points with the best means.
pub fn best_of_each(
    treated: &Points,
    base: &Points,
    pair: Paired,
    better: Better,
    margin: Option<Margin>,
) -> Result<Chosen, Undefined> {
    // From here on, lower is better.
    let (sign, table) = match better {
        Better::Less => (1.0, PointDifferences::new(treated, base, 1.0)),
        Better::More => (-1.0, PointDifferences::new(treated, base, -1.0)),
    };
    let alpha = pair.confidence.alpha();
    let below = |shift: f64| table.rows_below(shift);
    let above = |shift: f64| table.columns_above(shift);
    let p = (2.0 * f64::min(below(0.0), above(0.0))).min(1.0);
    let (high, low) = (table.highest(alpha), table.lowest(alpha));
    if !(low.is_finite() && high.is_finite()) {
        let too_few = Undefined::TooFew { have: table.fewest, need: super::paired::FEWEST };
        return Err(table.undefined.unwrap_or(too_few));
    }
    let (low, high) = if sign > 0.0 { (low, high) } else { (-high, -low) };
    let p_equivalence = margin.map(|margin| f64::max(below(margin.size()), above(-margin.size())));
    Ok(Chosen { result: Paired { low, high, p, ..pair }, p_equivalence })
}

/// The paired differences of all points of the treated arm (rows) and of the base (columns), lower being better.
struct PointDifferences {
    rows: Vec<Vec<Option<Paired>>>,
    /// Points that were tried, including those that cannot be the best: the choice was among them.
    tried: [usize; 2],
    /// Fewest seeds that two points have in common.
    fewest: usize,
    /// Why a pair has no result, if it has enough seeds: all its differences are equal.
    undefined: Option<Undefined>,
}

impl PointDifferences {
    fn new(treated: &Points, base: &Points, sign: f64) -> PointDifferences {
        let (mut fewest, mut undefined) = (usize::MAX, None);
        let rows = treated.iter().flatten().map(|treated| {
            let row = base.iter().flatten().map(|base| {
                let both = treated.iter().zip(base);
                let difference =
                    |(a, b): (&Option<f64>, &Option<f64>)| Some(sign * ((*a)? - (*b)?));
                let differences: Vec<f64> = both.filter_map(difference).collect();
                fewest = fewest.min(differences.len());
                let result = Paired::from_differences(&differences, Confidence::NINETY_FIVE);
                let is_few = |reason: &Undefined| matches!(reason, Undefined::TooFew { .. });
                undefined = undefined.or(result.err().filter(|reason| !is_few(reason)));
                result.ok()
            });
            row.collect()
        });
        let rows = rows.collect();
        PointDifferences { rows, tried: [treated.len(), base.len()], fewest, undefined }
    }

    /// One-sided p value of the hypothesis that best minus best is at least `shift`.
    fn rows_below(&self, shift: f64) -> f64 {
        let p = |pair: &Option<Paired>| pair.map_or(1.0, |pair| p_above(shift - pair.mean, pair));
        let [count, _] = self.tried;
        let each = self.rows.iter().map(|row| row.iter().map(p).fold(0.0, f64::max));
        (count as f64 * each.fold(1.0, f64::min)).min(1.0)
    }

    /// One-sided p value of the hypothesis that best minus best is at most `shift`.
    fn columns_above(&self, shift: f64) -> f64 {
        let p = |pair: &Option<Paired>| pair.map_or(1.0, |pair| p_above(pair.mean - shift, pair));
        let [_, count] = self.tried;
        let each = self.columns().map(|column| column.map(p).fold(0.0, f64::max));
        (count as f64 * each.fold(1.0, f64::min)).min(1.0)
    }

    fn highest(&self, alpha: f64) -> f64 {
        let [count, _] = self.tried;
        let end = |pair: &Option<Paired>| {
            pair.map_or(f64::INFINITY, |pair| pair.mean + half(pair, alpha, count))
        };
        let each =
            self.rows.iter().map(|row| row.iter().map(end).fold(f64::NEG_INFINITY, f64::max));
        each.fold(f64::INFINITY, f64::min)
    }

    fn lowest(&self, alpha: f64) -> f64 {
        let [_, count] = self.tried;
        let end = |pair: &Option<Paired>| {
            pair.map_or(f64::NEG_INFINITY, |pair| pair.mean - half(pair, alpha, count))
        };
        let each = self.columns().map(|column| column.map(end).fold(f64::INFINITY, f64::min));
        each.fold(f64::NEG_INFINITY, f64::max)
    }

    fn columns(&self) -> impl Iterator<Item = impl Iterator<Item = &Option<Paired>>> {
        let count = self.rows.first().map_or(0, Vec::len);
        (0..count).map(|at| self.rows.iter().filter_map(move |row| row.get(at)))
    }
}

fn p_above(distance: f64, pair: Paired) -> f64 {
    student::above(distance / pair.standard_error, pair.df())
}

/// Half the width of an interval whose two ends are each wrong at most in alpha / (2 count) of cases.
fn half(pair: Paired, alpha: f64, count: usize) -> f64 {
    student::critical(alpha / count.max(1) as f64, pair.df()) * pair.standard_error
}

#[cfg(test)]
mod tests {
    use super::super::draws::Draws;
    use super::super::simulation::percent;
    use super::*;

    const AT: Confidence = Confidence::NINETY_FIVE;

    /// Values of points with these true means; seeds have a part in common.
    fn arm(draws: &mut Draws, means: &[f64], seeds: &[f64]) -> Vec<Option<Vec<Option<f64>>>> {
        let mut point = |mean: &f64| {
            Some(seeds.iter().map(|seed| Some(mean + seed + draws.normal())).collect())
        };
        means.iter().map(&mut point).collect()
    }

    fn best(points: &Points, better: Better) -> &[Option<f64>] {
        let mean = |at: &&Option<Vec<Option<f64>>>| {
            let values = at.iter().flatten().flatten();
            values.sum::<f64>() * if better == Better::Less { 1.0 } else { -1.0 }
        };
        let best = points.iter().min_by(|a, b| mean(a).total_cmp(&mean(b)));
        best.and_then(Option::as_deref).unwrap()
    }

    fn chosen(treated: &Points, base: &Points, better: Better, margin: Option<Margin>) -> Chosen {
        let pairs = best(treated, better).iter().zip(best(base, better));
        let differences: Vec<f64> = pairs.map(|(a, b)| a.unwrap() - b.unwrap()).collect();
        let pair = Paired::from_differences(&differences, AT).unwrap();
        best_of_each(treated, base, pair, better, margin).unwrap()
    }

    fn values(points: &[&[f64]]) -> Vec<Option<Vec<Option<f64>>>> {
        points.iter().map(|seeds| Some(seeds.iter().copied().map(Some).collect())).collect()
    }

    #[test]
    fn a_single_point_of_each_is_the_paired_t_test() {
        let (treated, base) = (values(&[&[1.0, 1.5, 1.1]]), values(&[&[2.0, 2.1, 2.3]]));
        for better in [Better::Less, Better::More] {
            let outcome = chosen(&treated, &base, better, None).result;
            let plain = Paired::from_differences(&[-1.0, -0.6, -1.2], AT).unwrap();
            for (allowing, plain) in
                [(outcome.p, plain.p), (outcome.low, plain.low), (outcome.high, plain.high)]
            {
                assert!((allowing - plain).abs() < 1e-9, "{allowing} {plain}");
            }
        }
        let plain = Paired::from_differences(&[-1.0, -0.6, -1.2], AT).unwrap();
        assert_eq!(among(1, plain), plain);
    }

    /// Three seeds are enough; what is missing is a spread.
    #[test]
    fn a_point_that_differs_by_the_same_everywhere_is_the_reason() {
        let treated = values(&[&[1.0, 1.0, 1.0]]);
        let base = values(&[&[0.9, 0.95, 1.0], &[0.5, 0.5, 0.5]]);
        let pair = Paired::from_differences(&[0.1, 0.05, 0.0], AT).unwrap();
        let outcome = best_of_each(&treated, &base, pair, Better::More, None);
        assert!(matches!(outcome, Err(Undefined::NoVariance { .. })), "{outcome:?}");
    }

    #[test]
    fn p_and_interval_agree_and_the_estimate_is_inside() {
        let mut draws = Draws::new("test tuned agree");
        for round in 0..300 {
            let seeds: Vec<f64> = (0..5).map(|_| draws.normal()).collect();
            let treated = arm(&mut draws, &[-3.0, -2.5, -1.0], &seeds);
            let base = arm(&mut draws, &[0.0, -0.5], &seeds);
            let better = if round % 2 == 0 { Better::Less } else { Better::More };
            let Paired { low, high, p, mean, .. } = chosen(&treated, &base, better, None).result;
            assert_eq!(p < 0.05, low > 0.0 || high < 0.0, "{p} {low} {high}");
            assert!(low <= mean && mean <= high, "{low} {mean} {high}");
        }
    }

    /// Both arms are equally good at their best; either has more points that are.
    #[test]
    fn the_level_holds_whichever_arm_has_more_good_points() {
        let mut wrong = Vec::new();
        for n in [3, 5, 9] {
            for (many, few) in [(1, 1), (3, 1), (10, 1), (3, 3), (10, 10), (10, 3)] {
                for flipped in [false, true] {
                    let mut draws = Draws::new(&format!("test tuned level {n} {many} {few}"));
                    let (mut better, mut worse, mut trials) = (0, 0, 0);
                    while trials < 1500 {
                        trials += 1;
                        let seeds: Vec<f64> = (0..n).map(|_| draws.normal()).collect();
                        let mut sides = [many, few].map(|k| arm(&mut draws, &vec![0.0; k], &seeds));
                        if flipped {
                            sides.reverse();
                        }
                        let outcome = chosen(&sides[0], &sides[1], Better::Less, None).result;
                        better += u32::from(outcome.high < 0.0);
                        worse += u32::from(outcome.low > 0.0);
                    }
                    // 2.5%, and three standard errors of 1,500 trials.
                    if better.max(worse) > 56 {
                        wrong.push((n, many, few, flipped, better, worse));
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    /// The base's best point, chosen by its values, judges both arms.
    #[test]
    fn the_level_holds_where_the_base_chooses_for_both() {
        for (n, points) in [(3, 3), (3, 10), (5, 5), (9, 10)] {
            let mut draws = Draws::new(&format!("test tuned base {n} {points}"));
            let called = percent(3000, || {
                let seeds: Vec<f64> = (0..n).map(|_| draws.normal()).collect();
                let base = arm(&mut draws, &vec![0.0; points], &seeds);
                let treated = arm(&mut draws, &[0.0], &seeds);
                let pairs = best(&treated, Better::Less).iter().zip(best(&base, Better::Less));
                let differences: Vec<f64> = pairs.map(|(a, b)| a.unwrap() - b.unwrap()).collect();
                let pair = Paired::from_differences(&differences, AT).unwrap();
                among(points, pair).low > 0.0
            });
            assert!(called < 3.4, "{n} {points}: {called}%");
        }
    }

    /// The interval holds the difference of the best means, which no arm's points make certain.
    #[test]
    fn the_interval_covers_the_difference_of_the_best() {
        for (treated, base) in
            [([0.0, 0.3, 2.0], [0.5, 0.5, 0.6]), ([1.0, 1.0, 1.0], [0.0, 0.2, 0.4])]
        {
            let mut draws = Draws::new("test tuned covers");
            let least = |means: [f64; 3]| means.into_iter().fold(f64::INFINITY, f64::min);
            let truth = least(treated) - least(base);
            let covered = percent(2000, || {
                let seeds: Vec<f64> = (0..5).map(|_| draws.normal()).collect();
                let sides = [treated, base].map(|means| arm(&mut draws, &means, &seeds));
                let outcome = chosen(&sides[0], &sides[1], Better::Less, None).result;
                outcome.low <= truth && truth <= outcome.high
            });
            assert!(covered > 94.0, "{covered}%");
        }
    }

    /// At the margin, arms are called equivalent in at most 5% of cases.
    #[test]
    fn equivalence_keeps_its_level_too() {
        let mut draws = Draws::new("test tuned margin");
        let margin = Margin::new(1.0);
        for shift in [1.0, -1.0] {
            let called = percent(1500, || {
                let seeds: Vec<f64> = (0..9).map(|_| draws.normal()).collect();
                let treated = arm(&mut draws, &[shift; 3], &seeds);
                let base = arm(&mut draws, &[0.0; 5], &seeds);
                let outcome = chosen(&treated, &base, Better::Less, margin);
                outcome.p_equivalence.unwrap() <= 0.05
            });
            assert!(called < 6.5, "{called}%");
        }
    }

    /// A point that was never run may be the best one; one with more diverged runs is not.
    #[test]
    fn a_missing_point_leaves_no_result_and_a_diverged_one_is_passed_over() {
        let treated = values(&[&[1.0, 1.5, 1.1]]);
        let mut base = values(&[&[2.0, 2.1, 2.3], &[2.5, 2.7, 2.6]]);
        let pair = Paired::from_differences(&[-1.0, -0.6, -1.2], AT).unwrap();
        let outcome = |base: &Points| best_of_each(&treated, base, pair, Better::Less, None);
        assert!(outcome(&base).is_ok());
        base[1] = Some(vec![None; 3]);
        assert_eq!(outcome(&base), Err(Undefined::TooFew { have: 0, need: 3 }));
        base[1] = None;
        assert!(outcome(&base).is_ok());
    }
}
