//! The number of seeds that a comparison needs to find an effect: at the estimated spread of paired differences, and a
//! cautious number at a spread that the true one exceeds in one case of five.
//!
//! A family's row is planned at its share of the level. A power that [`MOST`] seeds cannot reach is refused, with the power
//! that they do reach.
//!
//! Sources: the noncentral t distribution (Colas, Sigaud and Oudeyer 2018, "How many random seeds?", section 4); the
//! upper limit of an estimated spread: Browne 1995, "On the use of a pilot sample for sample size determination";
//! equivalence: Phillips 1990, "Power of the two one-sided tests procedure". Stopping rules are simulated with keyed
//! draws.

use std::fmt;

use super::draws::Draws;
use super::sequential::{self, StoppingRule};
use super::{Confidence, Margin, Noise, Paired, chi_square, noncentral, student};

/// Most seeds of a plan.
pub const MOST: usize = 10_000;
/// Most seeds of a plan with a stopping rule.
pub const MOST_SEQUENTIAL: usize = 200;
/// Sequences drawn to plan a stopping rule.
pub const SEQUENCES: usize = 2000;
/// The chance that the true spread is at most that of the cautious plan.
const CAUTIOUS: f64 = 0.8;
const KEY: &str = "canonc.plan.v1";

/// An estimated spread of single paired differences.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Spread {
    /// Standard deviation of one difference, in the metric's unit.
    pub sd: f64,
    /// Degrees of freedom of the estimate.
    pub df: f64,
}

impl From<&Noise> for Spread {
    fn from(noise: &Noise) -> Spread {
        Spread { sd: noise.sd, df: noise.df }
    }
}

impl From<&Paired> for Spread {
    fn from(paired: &Paired) -> Spread {
        Spread { sd: paired.sd, df: paired.df() }
    }
}

impl Spread {
    /// A standard deviation that the true one exceeds in one case of five.
    pub fn cautious(&self) -> f64 {
        self.sd * libm::sqrt(self.df / chi_square::quantile(1.0 - CAUTIOUS, self.df))
    }
}

/// The requirements of a plan.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Wanted {
    /// The chance to find the effect, such as 0.8.
    pub power: f64,
    /// Confidence of the whole family.
    pub confidence: Confidence,
    /// Tests in the family; each row is planned at its share of the level, the strictest that Holm's rule uses.
    pub tests: usize,
}

/// A plan for a fixed number of seeds.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Plan {
    /// Number of seeds.
    pub seeds: usize,
    /// The power with this many seeds, at the estimated spread.
    pub power: f64,
    /// Seeds at the cautious spread; `None` if [`MOST`] are not enough.
    pub cautious_seeds: Option<usize>,
    /// The spread of differences that the plan assumes.
    pub spread: Spread,
    /// The cautious standard deviation.
    pub cautious_sd: f64,
}

/// A plan with a stopping rule.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct SequentialPlan {
    /// The maximum number of seeds.
    pub most: usize,
    /// Mean number of seeds at which the rule stops, if the effect is as large as planned.
    pub expected: f64,
    /// Share of the simulated sequences that plan the effect.
    pub power: f64,
    /// Number of simulated sequences.
    pub sequences: usize,
}

/// Why a plan was refused.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case", tag = "refused")]
pub enum Refused {
    /// The effect, the spread or the power is not a usable number.
    BadInput {
        /// The effect to find.
        effect: f64,
        /// Standard deviation of single differences.
        sd: f64,
        /// The wanted power.
        power: f64,
    },
    /// A true difference at or beyond the margin is not equivalent.
    BeyondMargin {
        /// The true difference that the plan assumes.
        difference: f64,
        /// The margin.
        margin: f64,
    },
    /// Even this many seeds are not enough.
    TooMany {
        /// The largest number of seeds that a plan may have.
        most: usize,
        /// The power with that number.
        power: f64,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::BadInput { effect, sd, power } => write!(
                f,
                "an effect of {effect} with standard deviation {sd} and power {power} cannot be planned: the first \
                 two must be above zero, and the power between the level and 1"
            ),
            Refused::BeyondMargin { difference, margin } => {
                write!(f, "a true difference of {difference} is not within the margin {margin}")
            }
            Refused::TooMany { most, power } => {
                write!(f, "{most} seeds reach a power of only {power:.2}")
            }
        }
    }
}

impl Wanted {
    fn alpha(&self) -> f64 {
        self.confidence.of_each(self.tests).alpha()
    }

    fn check(&self, effect: f64, sd: f64) -> Result<(), Refused> {
        let sizes = [effect, sd].iter().all(|size| *size > 0.0 && size.is_finite());
        let power = self.power > self.alpha() && self.power < 1.0;
        (sizes && power).then_some(()).ok_or(Refused::BadInput { effect, sd, power: self.power })
    }
}

/// The power of the paired t test to find a true difference with `n` seeds; 0 below three.
pub fn power(effect: f64, sd: f64, n: usize, wanted: &Wanted) -> f64 {
    if n < super::paired::FEWEST {
        return 0.0;
    }
    let df = (n - 1) as f64;
    let critical = student::critical(wanted.alpha(), df);
    noncentral::beyond(critical, df, effect.abs() / sd * libm::sqrt(n as f64))
}

/// The power to call arms with the given true difference equivalent, with `n` seeds; 0 below three.
pub fn power_of_equivalence(
    difference: f64,
    margin: Margin,
    sd: f64,
    n: usize,
    wanted: &Wanted,
) -> f64 {
    if n < super::paired::FEWEST {
        return 0.0;
    }
    let (df, root) = ((n - 1) as f64, libm::sqrt(n as f64));
    // Two one-sided tests at the level correspond to an interval of twice the level.
    let critical = student::critical(2.0 * wanted.alpha(), df);
    noncentral::within(critical, df, difference / sd * root, margin.size() / sd * root)
}

/// The seeds needed to find a true difference of `effect`.
pub fn difference(spread: Spread, effect: f64, wanted: &Wanted) -> Result<Plan, Refused> {
    let effect = effect.abs();
    wanted.check(effect, spread.sd)?;
    plan(spread, wanted, |sd, n| power(effect, sd, n, wanted))
}

/// The smallest true difference that this many seeds find with the power; `None` below three seeds.
pub fn smallest(spread: Spread, seeds: usize, wanted: &Wanted) -> Option<f64> {
    let Spread { sd, .. } = spread;
    let reaches = |effect: f64| power(effect, sd, seeds, wanted) >= wanted.power;
    let (mut low, mut high) = (0.0, sd);
    while !reaches(high) {
        let beyond = seeds < super::paired::FEWEST || wanted.check(high, sd).is_err();
        if beyond {
            return None;
        }
        (low, high) = (high, 2.0 * high);
    }
    for _ in 0..HALVINGS {
        let middle = 0.5 * (low + high);
        if reaches(middle) { high = middle } else { low = middle }
    }
    Some(high)
}

/// Halvings of an interval, after which its ends agree to nine digits.
const HALVINGS: u32 = 32;

/// The seeds needed to call arms equivalent if they truly differ by `difference`, which may be zero.
pub fn equivalence(
    spread: Spread,
    margin: Margin,
    difference: f64,
    wanted: &Wanted,
) -> Result<Plan, Refused> {
    wanted.check(margin.size(), spread.sd)?;
    let within = difference.abs() < margin.size();
    if !within {
        return Err(Refused::BeyondMargin { difference, margin: margin.size() });
    }
    plan(spread, wanted, |sd, n| power_of_equivalence(difference, margin, sd, n, wanted))
}

fn plan(
    spread: Spread,
    wanted: &Wanted,
    power: impl Fn(f64, usize) -> f64,
) -> Result<Plan, Refused> {
    let least = |sd: f64| least(wanted.power, |n| power(sd, n));
    let Some(seeds) = least(spread.sd) else {
        return Err(Refused::TooMany { most: MOST, power: power(spread.sd, MOST) });
    };
    let cautious_sd = spread.cautious();
    Ok(Plan {
        seeds,
        power: power(spread.sd, seeds),
        cautious_seeds: least(cautious_sd),
        spread,
        cautious_sd,
    })
}

/// The smallest n, starting at three, with the power.
fn least(wanted: f64, power: impl Fn(usize) -> f64) -> Option<usize> {
    let (mut low, mut high) = (super::paired::FEWEST - 1, super::paired::FEWEST);
    while power(high) < wanted {
        if high == MOST {
            return None;
        }
        (low, high) = (high, (2 * high).min(MOST));
    }
    while high - low > 1 {
        let middle = low.midpoint(high);
        if power(middle) < wanted { low = middle } else { high = middle }
    }
    Some(high)
}

/// The maximum number of seeds with which a stopping rule finds a true difference of `effect` with the power. The
/// plan replaces the rule's own confidence, limit and margin.
pub fn with_stopping_rule(
    spread: Spread,
    effect: f64,
    rule: &StoppingRule,
    wanted: &Wanted,
) -> Result<SequentialPlan, Refused> {
    let effect = effect.abs();
    wanted.check(effect, spread.sd)?;
    let rule = StoppingRule {
        confidence: wanted.confidence.of_each(wanted.tests),
        most: MOST_SEQUENTIAL,
        margin: None,
        ..*rule
    };
    let mut draws = Draws::new(KEY);
    let mut stops: Vec<usize> = (0..SEQUENCES)
        .map(|_| stop(&rule, effect / spread.sd, &mut draws).unwrap_or(usize::MAX))
        .collect();
    stops.sort_unstable();
    let share = |most: usize| stops.partition_point(|n| *n <= most) as f64 / SEQUENCES as f64;
    let needed = (wanted.power * SEQUENCES as f64).ceil() as usize;
    let most = match stops.get(needed.saturating_sub(1)) {
        Some(most) if *most <= MOST_SEQUENTIAL => *most,
        Some(_) | None => {
            let power = share(MOST_SEQUENTIAL);
            return Err(Refused::TooMany { most: MOST_SEQUENTIAL, power });
        }
    };
    let used: usize = stops.iter().map(|n| (*n).min(most)).sum();
    Ok(SequentialPlan {
        most,
        expected: used as f64 / SEQUENCES as f64,
        power: share(most),
        sequences: SEQUENCES,
    })
}

/// The seed at which the rule stops with `differs`, in a sequence with this standardised effect.
fn stop(rule: &StoppingRule, effect: f64, draws: &mut Draws) -> Option<usize> {
    let (mut mean, mut squares) = (0.0, 0.0);
    (1..=rule.most).find(|&n| {
        let difference = effect + draws.normal() - mean;
        mean += difference / n as f64;
        squares += difference * difference * (n - 1) as f64 / n as f64;
        let standard_error = libm::sqrt(squares / (n * n.saturating_sub(1)) as f64);
        n >= sequential::FEWEST && rule.differs(n, mean / standard_error)
    })
}

#[cfg(test)]
mod tests {
    use super::super::sequential::Decision;
    use super::super::simulation::percent;
    use super::*;

    fn wanted(tests: usize) -> Wanted {
        Wanted { power: 0.8, confidence: Confidence::NINETY_FIVE, tests }
    }

    const ONE: Spread = Spread { sd: 1.0, df: 3.0 };

    #[test]
    fn seeds_equal_published_sample_sizes() {
        // G*Power 3.1 and Cohen 1988: the paired t test at 0.05, two-sided, power 0.8.
        for (effect, seeds) in [(0.2, 199), (0.5, 34), (0.8, 15), (1.0, 10), (2.0, 5)] {
            let plan = difference(ONE, effect, &wanted(1)).unwrap();
            assert_eq!(plan.seeds, seeds, "{effect}: {plan:?}");
            assert!(plan.power >= 0.8 && power(effect, 1.0, seeds - 1, &wanted(1)) < 0.8);
            assert!(plan.cautious_seeds.unwrap() > seeds);
            assert_eq!(difference(ONE, -effect, &wanted(1)), Ok(plan), "the sign is no matter");
        }
    }

    #[test]
    fn the_smallest_difference_needs_all_its_seeds() {
        for seeds in [3, 4, 9, 100] {
            let effect = smallest(ONE, seeds, &wanted(2)).unwrap();
            assert_eq!(difference(ONE, 1.0001 * effect, &wanted(2)).unwrap().seeds, seeds);
            assert!(difference(ONE, 0.999 * effect, &wanted(2)).unwrap().seeds > seeds);
        }
        for (spread, seeds) in [(ONE, 2), (ONE, 0), (Spread { sd: 0.0, df: 3.0 }, 3)] {
            assert_eq!(smallest(spread, seeds, &wanted(1)), None, "{spread:?} {seeds}");
        }
    }

    #[test]
    fn units_cancel_and_families_cost() {
        let milli = Spread { sd: 1e-3, df: 3.0 };
        let small = difference(milli, 1e-3, &wanted(1)).unwrap();
        assert_eq!(small.seeds, difference(ONE, 1.0, &wanted(1)).unwrap().seeds);
        let family = difference(milli, 1e-3, &wanted(12)).unwrap();
        assert!(family.seeds > small.seeds);
    }

    #[test]
    fn what_cannot_be_planned_is_refused() {
        let bad = |effect: f64, sd: f64, power: f64| {
            let wanted = Wanted { power, ..wanted(1) };
            matches!(
                difference(Spread { sd, df: 3.0 }, effect, &wanted),
                Err(Refused::BadInput { .. })
            )
        };
        assert!(bad(0.0, 1.0, 0.8) && bad(1.0, 0.0, 0.8) && bad(f64::NAN, 1.0, 0.8));
        assert!(bad(1.0, 1.0, 1.0) && bad(1.0, 1.0, 0.01) && bad(1.0, f64::INFINITY, 0.8));
        assert!(bad(1.0, 1.0, f64::NAN));
        assert!(matches!(
            difference(ONE, 1e-3, &wanted(1)),
            Err(Refused::TooMany { most: MOST, .. })
        ));
        let margin = Margin::new(1.0).unwrap();
        for beyond in [1.0, -2.0, f64::NAN] {
            assert!(matches!(
                equivalence(ONE, margin, beyond, &wanted(1)),
                Err(Refused::BeyondMargin { .. })
            ));
        }
        assert!(matches!(
            with_stopping_rule(
                ONE,
                0.01,
                &StoppingRule::new(Confidence::NINETY_FIVE, 30),
                &wanted(1)
            ),
            Err(Refused::TooMany { most: MOST_SEQUENTIAL, .. })
        ));
    }

    #[test]
    fn power_rises_with_seeds() {
        let margin = Margin::new(1.0).unwrap();
        let mut last = (0.0, 0.0);
        for n in 3..40 {
            let powers = (
                power(0.7, 1.0, n, &wanted(1)),
                power_of_equivalence(0.1, margin, 1.0, n, &wanted(1)),
            );
            assert!(powers.0 > last.0 && powers.1 > last.1, "{n}: {powers:?} after {last:?}");
            last = powers;
        }
    }

    /// Planned seeds reach the promised power in simulation.
    #[test]
    fn planned_seeds_reach_the_power() {
        let margin = Margin::new(1.0).unwrap();
        let plan = difference(ONE, 1.0, &wanted(1)).unwrap();
        let equal = equivalence(ONE, margin, 0.2, &wanted(1)).unwrap();
        let mut draws = Draws::new("test plan power");
        let mut sample = |n: usize, mean: f64| {
            let values: Vec<f64> = (0..n).map(|_| mean + draws.normal()).collect();
            Paired::from_differences(&values, Confidence::NINETY_FIVE).unwrap()
        };
        let reached = percent(5000, || sample(plan.seeds, 1.0).p < 0.05);
        assert!((reached - 100.0 * plan.power).abs() < 2.0, "{reached}, {plan:?}");
        let reached = percent(5000, || {
            super::super::equivalence::two_one_sided(&sample(equal.seeds, 0.2), margin) < 0.05
        });
        assert!((reached - 100.0 * equal.power).abs() < 2.0, "{reached}, {equal:?}");
    }

    /// Of plans based on three replicates, four of five cautious ones have the power; of plain ones far fewer.
    #[test]
    fn a_cautious_plan_is_cautious() {
        let mut draws = Draws::new("test plan cautious");
        let (mut plain, mut cautious) = (0, 0);
        let enough = difference(ONE, 1.0, &wanted(1)).unwrap().seeds;
        for _ in 0..300 {
            let pairs: Vec<(f64, f64)> = (0..3).map(|_| (0.0, draws.normal())).collect();
            let noise = Noise::of_pairs(&pairs, None, Confidence::NINETY_FIVE).unwrap();
            let plan = difference(Spread::from(&noise), 1.0, &wanted(1)).unwrap();
            plain += u32::from(plan.seeds >= enough);
            cautious += u32::from(plan.cautious_seeds.unwrap() >= enough);
        }
        assert!(plain < 180 && cautious > 225, "{plain} {cautious}");
    }

    #[test]
    fn a_stopping_rule_is_planned_by_simulation() {
        let rule = StoppingRule::new(Confidence::NINETY_FIVE, 30);
        let plan = with_stopping_rule(ONE, 1.0, &rule, &wanted(1)).unwrap();
        assert_eq!(with_stopping_rule(ONE, 1.0, &rule, &wanted(1)), Ok(plan));
        let fixed = difference(ONE, 1.0, &wanted(1)).unwrap();
        assert!(plan.most > fixed.seeds && plan.most < 2 * fixed.seeds, "{plan:?}");
        assert!(plan.expected < plan.most as f64 && plan.power >= 0.8);
        let rule = StoppingRule { most: plan.most, ..rule };
        let mut draws = Draws::new("test plan sequential");
        let power = percent(1500, || {
            let values: Vec<f64> = (0..plan.most).map(|_| 1.0 + draws.normal()).collect();
            rule.last(&values).unwrap().decision == Decision::Differs
        });
        assert!((power - 100.0 * plan.power).abs() < 3.5, "{power}, {plan:?}");
    }
}
