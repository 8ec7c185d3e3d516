//! The word for a difference: better, worse, equivalent or undecided.
//!
//! "Better" and "worse" need a Holm-adjusted p value at or below the level; "equivalent" needs a declared margin and two
//! one-sided tests at the same level, adjusted in the same way. A significant difference within the margin is still better
//! or worse, and is marked as small.
//!
//! Sources: Schuirmann 1987 and Lakens 2017, "Equivalence tests" (two one-sided tests); Holm 1979. Each kind of
//! statement keeps the level on its own: at most 5% of families call some true zero better or worse, and at most 5%
//! call some true difference beyond its margin equivalent.

use super::sample::Undefined;
use super::{Confidence, Paired, holm, student};

/// The direction in which a metric improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Lower is better: losses, times.
    Less,
    /// Higher is better: accuracies.
    More,
}

/// Smaller differences, in the metric's unit, are declared not to matter. Greater than zero.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, serde::Serialize)]
#[serde(transparent)]
pub struct Margin(f64);

impl Margin {
    /// Accepts a finite number above zero.
    pub fn new(size: f64) -> Option<Margin> {
        (size > 0.0 && size.is_finite()).then_some(Margin(size))
    }

    /// The margin in the metric's unit.
    pub fn size(self) -> f64 {
        self.0
    }
}

/// The word for a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The arms differ, and the treated one is better.
    Better,
    /// The arms differ, and the treated one is worse.
    Worse,
    /// The difference is within the margin.
    Equivalent,
    /// The data support none of the other words.
    Undecided,
}

impl Effect {
    /// The word as printed.
    pub fn word(self) -> &'static str {
        match self {
            Effect::Better => "better",
            Effect::Worse => "worse",
            Effect::Equivalent => "equivalent",
            Effect::Undecided => "undecided",
        }
    }
}

/// Why a row is undecided.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case", tag = "why")]
pub enum Open {
    /// The interval is undefined.
    Undefined(Undefined),
    /// The data are compatible with zero, and no margin was declared to judge equivalence by.
    NoMargin,
    /// The data are compatible with zero, and with a difference beyond the margin.
    TooUncertain,
    /// The other seeds suggest a word, but these seeds have no difference because only the base, or only the treated
    /// run, diverged: that word would leave out the worst results.
    Diverged {
        /// Seeds in which only the base diverged.
        base: usize,
        /// Seeds in which only the treated run diverged.
        treated: usize,
    },
}

/// What a test of a family found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evidence {
    /// The mean difference with its interval, or why there is none.
    pub result: Result<Paired, Undefined>,
    /// A p value that replaces that of the t interval, such as the sign-flip test's.
    pub p: Option<f64>,
    /// A p value that replaces that of the two one-sided tests.
    pub p_equivalence: Option<f64>,
    /// The direction in which the metric improves.
    pub better: Better,
    /// The largest difference that is declared not to matter.
    pub margin: Option<Margin>,
    /// Seeds in which only the base diverged, and those in which only the treated run did.
    pub diverged: [usize; 2],
}

/// A row with its word.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Judged {
    /// The word.
    pub effect: Effect,
    /// Holm-adjusted p value for no difference.
    pub p_adjusted: Option<f64>,
    /// Holm-adjusted p value for a difference at or beyond the margin.
    pub p_equivalence: Option<f64>,
    /// Whether two one-sided tests place the difference within the margin; `None` without a margin or an interval.
    pub within_margin: Option<bool>,
    /// Present for undecided rows.
    pub open: Option<Open>,
}

/// The p value of two one-sided tests of the hypothesis that the true difference is at or beyond the margin.
pub fn two_one_sided(result: &Paired, margin: Margin) -> f64 {
    let beyond = |distance: f64| student::above(distance / result.standard_error, result.df());
    f64::max(beyond(margin.0 - result.mean), beyond(margin.0 + result.mean))
}

/// A word for every row of a family. All declared rows must be given; rows without data are undefined.
pub fn judge(family: &[Evidence], confidence: Confidence) -> Vec<Judged> {
    let differs: Vec<Option<f64>> =
        family.iter().map(|row| row.result.ok().map(|result| row.p.unwrap_or(result.p))).collect();
    let equals: Vec<Option<f64>> = family
        .iter()
        .map(|row| {
            let of_interval = two_one_sided(row.result.as_ref().ok()?, row.margin?);
            Some(row.p_equivalence.unwrap_or(of_interval))
        })
        .collect();
    let adjusted = holm::adjusted(&differs).into_iter().zip(holm::adjusted(&equals));
    family
        .iter()
        .zip(adjusted)
        .map(|(row, (differs, equals))| word(row, differs, equals, confidence.alpha()))
        .collect()
}

fn word(row: &Evidence, differs: Option<f64>, equals: Option<f64>, alpha: f64) -> Judged {
    let within_margin = equals.map(|p| p <= alpha);
    let (effect, open) = match row.result {
        Err(undefined) => (Effect::Undecided, Some(Open::Undefined(undefined))),
        Ok(result) if differs.is_some_and(|p| p <= alpha) => {
            let better = match row.better {
                Better::Less => result.mean < 0.0,
                Better::More => result.mean > 0.0,
            };
            (if better { Effect::Better } else { Effect::Worse }, None)
        }
        Ok(_) => match within_margin {
            Some(true) => (Effect::Equivalent, None),
            Some(false) => (Effect::Undecided, Some(Open::TooUncertain)),
            None => (Effect::Undecided, Some(Open::NoMargin)),
        },
    };
    // A diverged run is worse than any other.
    let [base, treated] = row.diverged;
    let spared = match effect {
        Effect::Better => treated > 0,
        Effect::Worse => base > 0,
        Effect::Equivalent => base > 0 || treated > 0,
        Effect::Undecided => false,
    };
    let (effect, open) = match spared {
        true => (Effect::Undecided, Some(Open::Diverged { base, treated })),
        false => (effect, open),
    };
    Judged { effect, p_adjusted: differs, p_equivalence: equals, within_margin, open }
}

#[cfg(test)]
mod tests {
    use super::super::draws::Draws;
    use super::super::simulation::percent;
    use super::*;

    const AT: Confidence = Confidence::NINETY_FIVE;

    fn row(differences: &[f64], better: Better, margin: Option<f64>) -> Evidence {
        let margin = margin.map(|size| Margin::new(size).unwrap());
        Evidence {
            result: Paired::from_differences(differences, AT),
            p: None,
            p_equivalence: None,
            better,
            margin,
            diverged: [0, 0],
        }
    }

    fn one(differences: &[f64], better: Better, margin: Option<f64>) -> Judged {
        judge(&[row(differences, better, margin)], AT)[0]
    }

    #[test]
    fn each_effect_has_its_condition() {
        use Better::{Less, More};
        let down = [-1.0, -1.1, -0.9];
        let small = [-0.02, 0.01, 0.015, -0.01];
        let wide = [-2.0, 0.5, 3.0];
        let none = [0.0; 4];
        type Said = (Effect, Option<bool>, Option<Open>);
        let cases: [(&[f64], Better, Option<f64>, Said); 10] = [
            (&down, Less, None, (Effect::Better, None, None)),
            (&down, More, None, (Effect::Worse, None, None)),
            (&down, Less, Some(0.1), (Effect::Better, Some(false), None)),
            // Significant and smaller than the margin: it is both, and never "equivalent".
            (&down, Less, Some(5.0), (Effect::Better, Some(true), None)),
            (&small, Less, Some(0.1), (Effect::Equivalent, Some(true), None)),
            (&small, Less, None, (Effect::Undecided, None, Some(Open::NoMargin))),
            (&small, More, Some(0.01), (Effect::Undecided, Some(false), Some(Open::TooUncertain))),
            (&wide, More, Some(1.0), (Effect::Undecided, Some(false), Some(Open::TooUncertain))),
            (
                &none,
                More,
                Some(1.0),
                (
                    Effect::Undecided,
                    None,
                    Some(Open::Undefined(Undefined::NoVariance { value: 0.0 })),
                ),
            ),
            (
                &[1.0],
                Less,
                None,
                (
                    Effect::Undecided,
                    None,
                    Some(Open::Undefined(Undefined::TooFew { have: 1, need: 3 })),
                ),
            ),
        ];
        for (differences, better, margin, expected) in cases {
            let judged = one(differences, better, margin);
            assert_eq!(
                (judged.effect, judged.within_margin, judged.open),
                expected,
                "{differences:?} {better:?} {margin:?}"
            );
        }
    }

    #[test]
    fn margins_are_sizes() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Margin::new(bad), None);
        }
    }

    #[test]
    fn two_one_sided_tests_are_an_interval_of_twice_the_level() {
        let mut draws = Draws::new("test tost");
        let ninety = Confidence::new(0.9).unwrap();
        for _ in 0..500 {
            let values: Vec<f64> = (0..6).map(|_| 0.3 + draws.normal()).collect();
            let result = Paired::from_differences(&values, AT).unwrap();
            let (low, high) = result.interval(ninety);
            let p = two_one_sided(&result, Margin::new(1.0).unwrap());
            assert_eq!(p < 0.05, -1.0 < low && high < 1.0, "{p} {low} {high}");
        }
    }

    #[test]
    fn a_family_counts_all_its_rows() {
        let nine = [0.9, 1.1, 1.0, 0.2, 1.9, 1.4, 0.6, 0.1, 1.2];
        let alone = one(&nine, Better::More, None);
        let family: Vec<Evidence> = std::iter::once(row(&nine, Better::More, None))
            .chain((0..11).map(|_| row(&[0.0; 3], Better::More, None)))
            .collect();
        let among = judge(&family, AT)[0];
        assert!((among.p_adjusted.unwrap() / alone.p_adjusted.unwrap() - 12.0).abs() < 1e-9);
        assert_eq!(judge(&family, AT)[1].p_adjusted, None);
    }

    #[test]
    fn a_given_p_value_replaces_the_t_tests() {
        let mut row = row(&[1.0, 1.1, 0.9], Better::More, None);
        row.p = Some(0.2);
        assert_eq!(judge(&[row], AT)[0].effect, Effect::Undecided);
    }

    /// A diverged seed can only make an arm worse than the other seeds show.
    #[test]
    fn diverged_seeds_only_weaken_a_conclusion() {
        let down = [-1.0, -1.1, -0.9];
        let small = [-0.02, 0.01, 0.015, -0.01];
        for (differences, better, [base, treated], effect) in [
            (&down[..], Better::Less, [0, 1], Effect::Undecided),
            (&down[..], Better::Less, [1, 0], Effect::Better),
            (&down[..], Better::More, [0, 1], Effect::Worse),
            (&down[..], Better::More, [1, 0], Effect::Undecided),
            (&small[..], Better::Less, [1, 0], Effect::Undecided),
            (&small[..], Better::Less, [0, 1], Effect::Undecided),
            (&small[..], Better::Less, [0, 0], Effect::Equivalent),
        ] {
            let mut row = row(differences, better, Some(0.1));
            row.diverged = [base, treated];
            let judged = judge(&[row], AT)[0];
            assert_eq!(judged.effect, effect, "{differences:?} {better:?} {base} {treated}");
            let open = (effect == Effect::Undecided).then_some(Open::Diverged { base, treated });
            assert_eq!(judged.open, open);
        }
    }

    #[test]
    fn json_has_the_words() {
        let json = |judged: Judged| serde_json::to_value(judged).unwrap();
        let none = json(one(&[0.0; 4], Better::Less, None));
        assert_eq!(none["effect"], "undecided");
        assert_eq!(none["open"]["why"], "undefined");
        assert_eq!(none["open"]["reason"], "no_variance");
        let judged = json(one(&[-1.0, -1.1, -0.9], Better::Less, Some(5.0)));
        assert_eq!(
            (&judged["effect"], &judged["open"]),
            (&"better".into(), &serde_json::Value::Null)
        );
        assert_eq!(judged["within_margin"], true);
    }

    /// A true difference exactly at the margin is called equivalent at most at the level; with more seeds a true zero
    /// is called equivalent more often.
    #[test]
    fn equivalence_keeps_its_level_and_has_power() {
        let mut last = 0.0;
        for n in [3, 5, 9, 15] {
            let mut draws = Draws::new(&format!("test equivalence {n}"));
            let mut called = |mean: f64| {
                percent(3000, || {
                    let values: Vec<f64> = (0..n).map(|_| mean + draws.normal()).collect();
                    one(&values, Better::Less, Some(1.0)).effect == Effect::Equivalent
                })
            };
            let (at_margin, at_zero) = (called(1.0), called(0.0));
            assert!(at_margin < 5.8, "{n}: {at_margin}");
            assert!(at_zero > last, "{n}: {at_zero}, before {last}");
            last = at_zero;
        }
        assert!(last > 90.0, "{last}");
    }
}
