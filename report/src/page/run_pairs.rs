//! Runs of a page that are compared seed by seed.

use lab::comparison::Role;

use super::run::PageRun;
use crate::compare::{AaNoise, Design, Facts, PairFacts, TRAINING_LOSS};
use crate::statistics::noise::OfMean;

/// Runs that are compared seed by seed, as indices into a list.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RunPairs {
    pub(super) title: String,
    /// Pairs of treated and base run.
    pub(super) lines: Vec<(usize, usize)>,
    /// Pairs of replicate and base run; their differences are noise.
    pub(super) replicate: Vec<(usize, usize)>,
    /// Differences of the final training loss (treated minus base), and the noise of their mean if known.
    pub(super) finals: Vec<f64>,
    pub(super) noise: Option<OfMean>,
    /// Its design and that in words; `None` for runs outside comparisons.
    pub(super) design: Option<(Design, String)>,
}

impl RunPairs {
    /// The standard deviation of single differences between the base and its replicate.
    pub(super) fn single_noise(&self) -> Option<f64> {
        self.noise.map(|noise| noise.standard_error * libm::sqrt(noise.n as f64))
    }
}

impl RunPairs {
    /// The runs behind a pair of arms.
    pub(super) fn new(facts: &Facts, pair: &PairFacts, runs: &[PageRun]) -> RunPairs {
        let index = |arm: &str, role: Role, point: usize, seed: usize| {
            runs.iter().position(|run| {
                run.arm == arm && run.role == Some(role) && run.point == point && run.seed == seed
            })
        };
        let base = |seed| index(&pair.base, Role::Base, pair.base_point, seed);
        let lines = pair.paired_seeds.iter().filter_map(|seed| {
            let treated = index(&pair.arm, Role::Treatment, pair.arm_point, *seed)?;
            Some((treated, base(*seed)?))
        });
        let replicate = pair.repeated_seeds.iter().filter_map(|seed| {
            let name = pair.replicate.as_ref()?;
            Some((index(name, Role::Replicate, pair.base_point, *seed)?, base(*seed)?))
        });
        let title = facts.pair_title(pair);
        let loss = pair.metric(TRAINING_LOSS);
        RunPairs {
            title: if title.is_empty() { pair.title() } else { title },
            lines: lines.collect(),
            replicate: replicate.collect(),
            noise: match loss.and_then(|loss| loss.noise) {
                Some(Ok(AaNoise::OfMean(noise))) => Some(noise),
                Some(Ok(AaNoise::Ratio(_)) | Err(_)) | None => None,
            },
            finals: loss.map_or_else(Vec::new, |loss| loss.paired.clone()),
            design: Some((pair.design, pair.standing.clone())),
        }
    }
}
