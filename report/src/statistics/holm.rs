//! Holm's adjustment of the p values of a family of tests: the chance of one or more false positives is at most the level,
//! whatever the dependence between tests. A test without a p value still counts as a member.
//!
//! Source: Holm 1979, "A simple sequentially rejective multiple test procedure". Simultaneous intervals: Bonferroni,
//! [`Confidence::of_each`](super::Confidence::of_each); they are a little wider than Holm's rule, so a row may be
//! significant by Holm while its simultaneous interval just reaches zero.

/// Adjusted p values, in the order given.
pub fn adjusted(family: &[Option<f64>]) -> Vec<Option<f64>> {
    let mut known: Vec<(usize, f64)> = family
        .iter()
        .enumerate()
        .filter_map(|(at, p)| p.filter(|p| !p.is_nan()).map(|p| (at, p.clamp(0.0, 1.0))))
        .collect();
    known.sort_by(|(_, a), (_, b)| a.total_cmp(b));
    let mut adjusted = vec![None; family.len()];
    let mut so_far = 0.0;
    for (rank, (at, p)) in known.into_iter().enumerate() {
        so_far = f64::min(1.0, f64::max(so_far, (family.len() - rank) as f64 * p));
        if let Some(p) = adjusted.get_mut(at) {
            *p = Some(so_far);
        }
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::super::draws::Draws;
    use super::super::simulation::percent;
    use super::super::{Confidence, Paired};
    use super::*;

    fn all_adjusted(family: &[f64]) -> Vec<f64> {
        let family: Vec<_> = family.iter().copied().map(Some).collect();
        adjusted(&family).into_iter().map(Option::unwrap).collect()
    }

    #[test]
    fn a_published_example_is_reproduced() {
        // R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")
        let adjusted_p = all_adjusted(&[0.01, 0.04, 0.03, 0.005]);
        for (p, want) in adjusted_p.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((p - want).abs() < 1e-15);
        }
        assert_eq!(all_adjusted(&[]), Vec::<f64>::new());
        assert_eq!(all_adjusted(&[0.2]), [0.2]);
    }

    #[test]
    fn ties_are_stable_and_order_is_kept() {
        assert_eq!(all_adjusted(&[0.01, 0.01, 0.01]), [0.03; 3]);
        assert_eq!(all_adjusted(&[0.9, 0.8, 0.7]), [1.0; 3]);
        let mut draws = Draws::new("test holm order");
        for _ in 0..200 {
            let mut family: Vec<f64> = (0..12).map(|_| draws.uniform() * 0.1).collect();
            family[3] = family[7];
            let adjusted_p = all_adjusted(&family);
            assert_eq!(adjusted_p[3], adjusted_p[7]);
            for a in 0..12 {
                assert!(adjusted_p[a] >= family[a] && adjusted_p[a] <= 1.0);
                assert!((0..12).all(|b| family[a] > family[b] || adjusted_p[a] <= adjusted_p[b]));
            }
        }
    }

    #[test]
    fn a_test_without_a_p_value_is_a_member() {
        assert_eq!(adjusted(&[Some(0.01), None, Some(f64::NAN)]), [Some(0.03), None, None]);
    }

    /// Twelve rows without any effect; their differences share the seeds and so depend on each other.
    #[test]
    fn a_family_has_false_positives_at_most_at_its_level() {
        for n in [3, 5, 9] {
            let mut draws = Draws::new(&format!("test holm level {n}"));
            let mut some = |adjust: bool| {
                percent(3000, || {
                    let shared: Vec<f64> = (0..n).map(|_| draws.normal()).collect();
                    let family: Vec<Option<f64>> = (0..12)
                        .map(|_| {
                            let row: Vec<f64> =
                                shared.iter().map(|s| 0.6 * s + 0.8 * draws.normal()).collect();
                            Some(Paired::from_differences(&row, Confidence::NINETY_FIVE).unwrap().p)
                        })
                        .collect();
                    let family = if adjust { adjusted(&family) } else { family };
                    family.iter().any(|p| p.unwrap() <= 0.05)
                })
            };
            let (with, without) = (some(true), some(false));
            assert!(with <= 5.0 + 0.8 && without > 20.0, "{n}: {with}, without {without}");
        }
    }
}
