//! The initial values of parameters, by the rules of the released models.
//!
//! An element is a function of the rule, the seed, the parameter's path and its number alone, so shards, threads and two
//! arms that share a path get equal bits. Integer arithmetic, IEEE add, multiply, divide, square root and libm give every
//! platform equal bits, too.

mod digest;
pub mod normal;
pub mod philox;

use std::fmt;

use compiler::graph::Param;
use compiler::number::InitRule;

pub use digest::digest;
pub(crate) use digest::tensor_digest;
use normal::{distribution, quantile};
use philox::Philox;

/// A rule with numbers that do not define a distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct BadRule {
    rule: InitRule<f64>,
    reason: &'static str,
}

impl fmt::Display for BadRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, reason } = self;
        write!(
            f,
            "the init rule {rule} cannot be used: {reason}\nhelp: correct the rule in the arch"
        )
    }
}

impl std::error::Error for BadRule {}

/// Writes elements `first..first + out.len()` of a parameter to `out`, the initial values of every run with this seed.
pub fn draw(param: &Param, seed: u64, first: u64, out: &mut [f32]) -> Result<(), BadRule> {
    fill(&param.init.to_f64(), seed, param.init_key(), first, out)
}

/// Writes elements `first..first + out.len()` of a parameter to `out`: ln U for [`InitRule::LogUniform`], and for
/// [`InitRule::TimeStep`] dt + ln(1 - exp(-dt)) with dt = max(exp(U(ln lo, ln hi)), floor). `key` is its path.
pub fn fill(
    rule: &InitRule<f64>,
    seed: u64,
    key: &str,
    first: u64,
    out: &mut [f32],
) -> Result<(), BadRule> {
    check(rule)?;
    let philox = Philox::new(&generator(seed, key));
    match *rule {
        InitRule::Ones => out.fill(1.0),
        InitRule::Zeros => out.fill(0.0),
        InitRule::Constant(value) => out.fill(value as f32),
        InitRule::Normal { std } => each(&philox, first, out, |u| quantile(u) * std),
        InitRule::TruncNormal { std, bound } => {
            // The share of the normal below -bound; the rest of the mass is symmetric about a half.
            let below = distribution(-bound);
            let (within, limit) = (1.0 - 2.0 * below, bound * std);
            each(&philox, first, out, |u| {
                (quantile(below + u * within) * std).clamp(-limit, limit)
            });
        }
        InitRule::Uniform { limit } => {
            let (lo, hi) = (-limit, limit);
            each(&philox, first, out, |u| lo + (hi - lo) * u)
        }
        InitRule::LogUniform { lo, hi } => {
            each(&philox, first, out, |u| libm::log(lo + (hi - lo) * u))
        }
        InitRule::TimeStep { lo, hi, floor } => {
            let (lo, hi) = (libm::log(lo), libm::log(hi));
            each(&philox, first, out, |u| {
                let step = libm::exp(lo + (hi - lo) * u).max(floor);
                step + libm::log(-libm::expm1(-step))
            });
        }
    }
    Ok(())
}

/// Checks that the rule's numbers define a distribution.
pub fn check(rule: &InitRule<f64>) -> Result<(), BadRule> {
    let require = |holds: bool, reason| {
        if holds { Ok(()) } else { Err(BadRule { rule: *rule, reason }) }
    };
    let range = |lo: f64, hi: f64| {
        require(lo.is_finite() && hi.is_finite() && lo <= hi, "it needs lo <= hi")
    };
    let spread = |std: f64| require(std.is_finite() && std >= 0.0, "std must be 0 or more");
    match *rule {
        InitRule::Ones | InitRule::Zeros => Ok(()),
        InitRule::Constant(value) => require(value.is_finite(), "the value must be finite"),
        InitRule::Normal { std } => spread(std),
        InitRule::TruncNormal { std, bound } => {
            spread(std)?;
            require(bound.is_finite() && bound > 0.0, "the bound must be above 0")
        }
        InitRule::Uniform { limit } => {
            require(limit.is_finite() && limit >= 0.0, "limit must be 0 or more")
        }
        InitRule::LogUniform { lo, hi } => {
            range(lo, hi)?;
            require(lo >= 0.0 && hi > 0.0, "a logarithm needs lo >= 0 and hi > 0")
        }
        InitRule::TimeStep { lo, hi, floor } => {
            range(lo, hi)?;
            require(
                lo > 0.0 && floor.is_finite() && floor >= 0.0,
                "a time step needs lo > 0 and floor >= 0",
            )
        }
    }
}

/// The generator's key. It depends only on the run's seed and the parameter's path.
fn generator(seed: u64, key: &str) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_derive_key("canonc 1 init");
    hasher.update(&seed.to_le_bytes()).update(key.as_bytes());
    hasher.finalize()
}

/// `out[i] = value(u)` with `u` the uniform draw of element `first + i`.
fn each(philox: &Philox, first: u64, out: &mut [f32], value: impl Fn(f64) -> f64) {
    const CHUNK: usize = 512;
    let mut uniforms = [0.0; CHUNK];
    let mut at = first;
    for chunk in out.chunks_mut(CHUNK) {
        let Some(uniforms) = uniforms.get_mut(..chunk.len()) else { return };
        philox.uniforms(at, uniforms);
        for (out, &u) in chunk.iter_mut().zip(&*uniforms) {
            *out = value(u) as f32;
        }
        at = at.wrapping_add(chunk.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filled(rule: InitRule<f64>, seed: u64, path: &str, first: u64, count: usize) -> Vec<f32> {
        let mut out = vec![0.0; count];
        fill(&rule, seed, path, first, &mut out).unwrap();
        out
    }

    const RULES: [InitRule<f64>; 8] = [
        InitRule::Ones,
        InitRule::Zeros,
        InitRule::Constant(0.1),
        InitRule::Normal { std: 0.02 },
        InitRule::TruncNormal { std: 0.0625, bound: 3.0 },
        InitRule::Uniform { limit: 0.5 },
        InitRule::LogUniform { lo: 0.0, hi: 16.0 },
        InitRule::TimeStep { lo: 0.001, hi: 0.1, floor: 1e-4 },
    ];

    proptest! {
        #[test]
        fn any_cut_into_ranges_gives_equal_bits(
            rule in prop::sample::select(RULES.to_vec()),
            seed: u64,
            first in 0u64..1 << 40,
            cuts in prop::collection::vec(0usize..2000, 0..4),
        ) {
            let full = filled(rule, seed, "layers.0.mixer.wq", first, 2000);
            let mut cuts = cuts;
            cuts.extend([0, 2000]);
            cuts.sort_unstable();
            for pair in cuts.windows(2) {
                let part = filled(rule, seed, "layers.0.mixer.wq", first + pair[0] as u64, pair[1] - pair[0]);
                let same = part.iter().zip(&full[pair[0]..]).all(|(one, two)| one.to_bits() == two.to_bits());
                prop_assert!(same);
            }
        }
    }

    #[test]
    fn the_bits_never_change() {
        // Every run starts from these values, so a change here changes all results.
        let mut hasher = blake3::Hasher::new();
        for rule in RULES {
            for value in filled(rule, 42, "layers.3.mixer.wq", 5, 4001) {
                assert!(value.is_finite());
                hasher.update(&value.to_bits().to_le_bytes());
            }
        }
        assert_eq!(
            hasher.finalize().to_hex().as_str(),
            "75285284c319d27315612bde51d66dca6f69f220b052ffc8bd6b400a4ffc4579"
        );
    }

    #[test]
    fn seed_and_path_both_key_the_draws() {
        let draws = |seed, path| filled(InitRule::Normal { std: 1.0 }, seed, path, 0, 64);
        assert_ne!(draws(1, "embed"), draws(2, "embed"));
        assert_ne!(draws(1, "embed"), draws(1, "head"));
    }

    #[test]
    fn rules_that_are_no_distribution_are_refused() {
        let bad = [
            InitRule::Constant(f64::NAN),
            InitRule::Normal { std: -1.0 },
            InitRule::Normal { std: f64::INFINITY },
            InitRule::TruncNormal { std: 1.0, bound: 0.0 },
            InitRule::TruncNormal { std: 1.0, bound: f64::NAN },
            InitRule::Uniform { limit: -1.0 },
            InitRule::LogUniform { lo: -1.0, hi: 1.0 },
            InitRule::LogUniform { lo: 0.0, hi: 0.0 },
            InitRule::TimeStep { lo: 0.0, hi: 0.1, floor: 0.0 },
            InitRule::TimeStep { lo: 0.001, hi: 0.1, floor: -1.0 },
        ];
        for rule in bad {
            let error = fill(&rule, 0, "p", 0, &mut [0.0]).unwrap_err();
            assert!(error.to_string().contains("help: "), "{error}");
        }
    }

    /// The rule of a released parameter, and its mean, standard deviation and bound.
    struct Expected {
        rule: InitRule<f64>,
        mean: f64,
        std: f64,
        bound: f64,
    }

    fn constant(value: f64) -> Expected {
        let rule = if value == 1.0 { InitRule::Ones } else { InitRule::Zeros };
        Expected { rule, mean: value, std: 0.0, bound: value }
    }

    fn uniform(bound: f64) -> Expected {
        Expected {
            rule: InitRule::Uniform { limit: bound },
            mean: 0.0,
            std: bound / 3f64.sqrt(),
            bound,
        }
    }

    fn normal(std: f64) -> Expected {
        Expected { rule: InitRule::Normal { std }, mean: 0.0, std, bound: f64::INFINITY }
    }

    /// `bound` absolute, as the released code gives it.
    fn truncated(std: f64, bound: f64) -> Expected {
        let c = bound / std;
        let density = (-c * c / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
        let variance = 1.0 - 2.0 * c * density / (1.0 - 2.0 * distribution(-c));
        Expected {
            rule: InitRule::TruncNormal { std, bound: c },
            mean: 0.0,
            std: std * variance.sqrt(),
            bound,
        }
    }

    /// ln U(lo, hi): mean and variance by integrating over (lo, hi).
    fn log_uniform(lo: f64, hi: f64) -> Expected {
        let part = |x: f64, power: i32| match (x > 0.0, power) {
            (false, _) => 0.0,
            (true, 1) => x * x.ln() - x,
            (true, _) => x * x.ln().powi(2) - 2.0 * (x * x.ln() - x),
        };
        let mean = (part(hi, 1) - part(lo, 1)) / (hi - lo);
        let square = (part(hi, 2) - part(lo, 2)) / (hi - lo);
        let std = (square - mean * mean).sqrt();
        Expected { rule: InitRule::LogUniform { lo, hi }, mean, std, bound: f64::INFINITY }
    }

    fn time_step() -> Expected {
        let (lo, hi, floor) = (0.001, 0.1, 1e-4);
        let value = |i: u32| {
            let u = (f64::from(i) + 0.5) / 100_000.0;
            let step = (f64::ln(lo) + (f64::ln(hi) - f64::ln(lo)) * u).exp().max(floor);
            step + (1.0 - (-step).exp()).ln()
        };
        let mean = (0..100_000).map(value).sum::<f64>() / 1e5;
        let square = (0..100_000).map(|i| value(i).powi(2)).sum::<f64>() / 1e5;
        // Its smallest value, at dt = 0.001.
        let bound = -(0.001 + (1.0 - f64::exp(-0.001)).ln());
        Expected {
            rule: InitRule::TimeStep { lo, hi, floor },
            mean,
            std: (square - mean * mean).sqrt(),
            bound,
        }
    }

    fn expected(model: &str, path: &str, shape: &[f64]) -> Expected {
        let ends = |name: &str| path.ends_with(name);
        let has = |name: &str| path.contains(name);
        let fan_in = shape.last().copied().unwrap();
        if has("norm") || ends(".D") {
            return constant(1.0);
        }
        if has("canon") || (model == "mamba2" && has("conv1d")) {
            return uniform(0.5);
        }
        match model {
            "gla5" | "gdn2" if ends("bias") && !ends("dt_bias") => constant(0.0),
            "gla5" | "gdn2" if has("g_proj.") || has("gk_proj.") => {
                normal(0.02f64.sqrt() / 16f64.powf(0.25))
            }
            "gdn2" if ends("A_log") => log_uniform(0.0, 16.0),
            "mamba2" if ends("A_log") => log_uniform(1.0, 16.0),
            "gdn2" | "mamba2" if ends("dt_bias") => time_step(),
            "gla5" | "gdn2" | "llamacanon_hf" => normal(0.02),
            "mamba2" if ends("embeddings.weight") => normal(0.1),
            "mamba2" => uniform(1.0 / fan_in.sqrt()),
            _ => {
                let depth = path
                    .split('.')
                    .nth(1)
                    .and_then(|depth| depth.parse::<f64>().ok())
                    .unwrap_or(0.0);
                let factor = match model.rsplit('=').next().unwrap() {
                    "disabled" => 1.0,
                    "global_depth" => (2.0 * (3.0 + 1.0f64)).sqrt(),
                    "current_depth" => (2.0 * (depth + 1.0)).sqrt(),
                    "dim_ratio" => 256.0 / 4096.0,
                    factor => panic!("no factor {factor}"),
                };
                let std = 1.0 / fan_in.sqrt();
                match () {
                    () if ends("wo.weight") => truncated(std / factor, 3.0 * std),
                    () if ends("w2.weight") => truncated(std / factor, 3.0 * std / factor),
                    () => truncated(std, 3.0 * std),
                }
            }
        }
    }

    /// Both our draws and the released ones are samples of the expected law: mean and standard deviation agree within
    /// six standard errors (over a thousand comparisons), and no value is past the bound.
    #[test]
    fn statistics_are_those_of_the_released_models() {
        let golden = crate::golden::read("init_stats");
        let mut checked = 0;
        for (model, parameters) in golden.as_object().unwrap() {
            for (path, stats) in parameters.as_object().unwrap() {
                let shape: Vec<f64> = stats["shape"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|size| size.as_f64().unwrap())
                    .collect();
                let count = shape.iter().product::<f64>();
                let Expected { rule, mean, std, bound } = expected(model, path, &shape);
                let values: Vec<f64> = filled(rule, 7, path, 0, count as usize)
                    .iter()
                    .map(|&value| f64::from(value))
                    .collect();
                let sample_mean = values.iter().sum::<f64>() / count;
                let variance =
                    values.iter().map(|value| (value - sample_mean).powi(2)).sum::<f64>()
                        / (count - 1.0);
                let sampled = [
                    sample_mean,
                    variance.sqrt(),
                    values.iter().fold(0.0, |most, value| value.abs().max(most)),
                ];
                let released = ["mean", "std", "absmax"].map(|name| stats[name].as_f64().unwrap());
                for [sample_mean, sample_std, most] in [sampled, released] {
                    // 5e-6: the released numbers are rounded to five decimals.
                    let error = std / count.sqrt();
                    let context =
                        format!("{model} {path} {rule:?}: {sample_mean} {sample_std} {most}");
                    assert!(
                        (sample_mean - mean).abs() <= 6.0 * error + 6e-6,
                        "mean {mean}, {context}"
                    );
                    // Kurtosis is at most 9 for these laws (ln U), so this covers the standard deviation's error.
                    assert!(
                        (sample_std - std).abs() <= 6.0 * error * 1.5 + 6e-6,
                        "std {std}, {context}"
                    );
                    assert!(most <= bound + 6e-6, "bound {bound}, {context}");
                    if bound.is_finite()
                        && std > 0.0
                        && count > 1e4
                        && !matches!(rule, InitRule::TruncNormal { .. })
                    {
                        assert!(most > 0.99 * bound, "bound {bound}, {context}");
                    }
                }
                checked += 1;
            }
        }
        assert_eq!(checked, 346);
    }
}
