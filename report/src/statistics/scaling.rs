//! A treatment's gain across sizes: the ratio of the base's compute to the treated arm's for equal loss, from a curve of loss
//! against parameters or FLOPs for each arm.
//!
//! Both arms get the same model. The gain is read, without extrapolation, at the loss that both reach in the middle of the
//! sizes, where a wrong model matters least. If sizes are further off the curve than their seeds explain, the interval
//! counts sizes, not runs.
//!
//! Models: loss = b C^-c, a straight line in logarithms; and loss = a + b C^-c from five sizes over two decades on
//! (Kaplan et al. 2020, section 3; Hoffmann et al. 2022, section 3.3). Variance: the delta method on the least-squares
//! fit (Seber and Wild 1989, "Nonlinear regression", section 5.1), with t quantiles; lack of fit is judged by the F
//! test against the spread of seeds (Draper and Smith 1998, section 2.1) at 0.25, the usual level of such a pretest.

mod curve;
mod fitted;

use std::fmt;

use super::sample::Undefined;
use super::{Confidence, student};
use curve::{power_law, with_a_floor};
use fitted::Fitted;

/// Fewest sizes for a fit.
pub const FEWEST_SIZES: usize = 4;
/// Smallest ratio of the largest to the smallest size for a fit.
pub const LEAST_RANGE: f64 = 10.0;
/// The same two limits for the model with a floor.
const FLOOR_SIZES: usize = 5;
const FLOOR_RANGE: f64 = 100.0;

/// The runs of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct Size {
    /// Parameters or FLOPs, the same unit for all sizes.
    pub at: f64,
    /// Final loss of the base, one for each seed.
    pub base: Vec<f64>,
    /// Final losses of the treated arm, in the same order of seeds.
    pub treated: Vec<f64>,
}

/// The fitted model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Model {
    /// loss = b C^-c.
    PowerLaw,
    /// loss = a + b C^-c.
    PowerLawWithFloor,
}

/// loss = floor + factor * (C / unit)^-exponent.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Curve {
    /// The loss at unlimited compute; 0 without a floor.
    pub floor: f64,
    /// Loss above the floor at the reference size.
    pub factor: f64,
    /// Exponent of the decay with compute.
    pub exponent: f64,
    /// Standard error of the exponent.
    pub exponent_error: f64,
}

impl Curve {
    /// The loss at log(C / unit).
    fn loss(&self, x: f64) -> f64 {
        self.floor + self.factor * libm::exp(-self.exponent * x)
    }
}

/// Both curves and the gain.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Fit {
    /// The form of both curves.
    pub model: Model,
    /// The base's curve.
    pub base: Curve,
    /// The treated arm's curve.
    pub treated: Curve,
    /// The reference size of the factors: the geometric mean of the smallest and the largest size.
    pub unit: f64,
    /// Number of sizes.
    pub sizes: usize,
    /// Runs of each arm.
    pub runs: usize,
    /// Compute of the base over compute of the treated arm for equal loss: 2 means that the base needs twice as much.
    pub compute_ratio: f64,
    /// Lower end of the interval of the ratio.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Two-sided p value for a ratio of 1.
    pub p: f64,
    /// The loss at which the ratio is read.
    pub at_loss: f64,
    /// Degrees of freedom of the fit.
    pub df: f64,
    /// Whether an end of the interval is outside the range of sizes.
    pub reaches_beyond_sizes: bool,
    /// The share of such intervals that should hold the truth.
    pub confidence: Confidence,
}

impl Fit {
    /// The share of the base's compute that the treatment saves; negative if it costs compute.
    pub fn saved(&self) -> f64 {
        1.0 - 1.0 / self.compute_ratio
    }
}

/// Why sizes support no fit.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case", tag = "refused")]
pub enum Refused {
    /// A fit needs more sizes.
    TooFewSizes {
        /// Number of sizes given.
        have: usize,
        /// Fewest sizes of a fit.
        need: usize,
    },
    /// The sizes are too close to one another.
    NarrowRange {
        /// Largest size over smallest size.
        ratio: f64,
        /// Smallest such ratio of a fit.
        need: f64,
    },
    /// Two entries have the same size.
    SameSize {
        /// The size.
        at: f64,
    },
    /// A size or a loss is not a number above zero.
    NotPositive {
        /// The size.
        at: f64,
    },
    /// At some size the arms have different numbers of runs, or none.
    Unpaired {
        /// The size.
        at: f64,
        /// Runs of the base.
        base: usize,
        /// Runs of the treated arm.
        treated: usize,
    },
    /// The loss does not fall with size beyond what chance explains.
    NoTrend {
        /// The curve that has no trend.
        arm: Arm,
    },
    /// Within the sizes, the curves reach no common loss: the gain is about as large as the range of sizes.
    BeyondSizes {
        /// Largest size over smallest size.
        range: f64,
    },
    /// The curves pass exactly through every point, so their uncertainty cannot be estimated.
    Undefined(Undefined),
}

/// Which curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arm {
    /// The base.
    Base,
    /// The treated arm.
    Treated,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::TooFewSizes { have, need } => {
                write!(f, "{have} sizes; a fit needs at least {need}")
            }
            Refused::NarrowRange { ratio, need } => write!(
                f,
                "the largest size is {ratio:.1} times the smallest; a fit needs at least {need} times"
            ),
            Refused::SameSize { at } => write!(f, "the size {at} is given twice"),
            Refused::NotPositive { at } => {
                write!(f, "at size {at} a size or a loss is not a number above zero")
            }
            Refused::Unpaired { at, base, treated } => write!(
                f,
                "at size {at} the base has {base} runs and the treated arm {treated}; runs must be paired by seed"
            ),
            Refused::NoTrend { arm: Arm::Base } => {
                write!(f, "the loss of the base does not fall with size beyond chance")
            }
            Refused::NoTrend { arm: Arm::Treated } => {
                write!(f, "the loss of the treated arm does not fall with size beyond chance")
            }
            Refused::BeyondSizes { range } => {
                write!(
                    f,
                    "no loss is reached by both arms within the sizes, which span a factor of {range:.1}"
                )
            }
            Refused::Undefined(undefined) => undefined.fmt(f),
        }
    }
}

/// One size, prepared for the fit.
struct Point {
    /// log(C / unit).
    x: f64,
    runs: f64,
    /// Losses by seed, base and treated.
    losses: Vec<[f64; 2]>,
    means: [f64; 2],
}

/// Fits both arms and reads the gain.
pub fn fit(sizes: &[Size], confidence: Confidence) -> Result<Fit, Refused> {
    let (unit, range) = check(sizes)?;
    let points: Vec<Point> = points(sizes, unit);
    let with_floor = sizes.len() >= FLOOR_SIZES && range >= FLOOR_RANGE * (1.0 - 1e-9);
    let curves = with_floor.then(|| both(&points, with_a_floor)).flatten();
    let model = if curves.is_some() { Model::PowerLawWithFloor } else { Model::PowerLaw };
    let Some(curves) = curves.or_else(|| both(&points, power_law)) else {
        return Err(Refused::NoTrend { arm: Arm::Base });
    };
    let fitted = Fitted::new(&points, model, curves).ok_or(NO_VARIANCE)?;
    let curves = fitted.exponents(confidence)?;
    // Read both curves at the loss halfway between them in the middle of the sizes.
    let at_loss = 0.5 * (curves[0].loss(0.0) + curves[1].loss(0.0));
    let read = curves.map(|curve| Reading::at_loss(&curve, at_loss));
    let reach = 0.5 * libm::log(range);
    // NaN means that a curve's floor is above that loss.
    if !read.iter().all(|reading| reading.x.abs() <= reach) {
        return Err(Refused::BeyondSizes { range });
    }
    let log_ratio = read[0].x - read[1].x;
    // The gain's sensitivity to the losses of both arms at each size: through that loss, and through each curve there.
    let by_loss = 0.5 * (1.0 / read[0].slope - 1.0 / read[1].slope);
    let moves = |arm: usize, sign: f64| {
        let (middle, at_loss) = (fitted.leverage(arm, 0.0)?, fitted.leverage(arm, read[arm].x)?);
        let of_size = |(m, h): (&f64, &f64)| by_loss * m + sign * h / read[arm].slope;
        Some(middle.iter().zip(&at_loss).map(of_size).collect::<Vec<f64>>())
    };
    let base = moves(0, -1.0).ok_or(NO_VARIANCE)?;
    let treated = moves(1, 1.0).ok_or(NO_VARIANCE)?;
    let weights: Vec<[f64; 2]> =
        base.into_iter().zip(treated).map(|(base, treated)| [base, treated]).collect();
    let (error, df) = fitted.error(&weights).ok_or(NO_VARIANCE)?;
    let half = student::critical(confidence.alpha(), df) * error;
    let [compute_ratio, low, high] = [log_ratio, log_ratio - half, log_ratio + half].map(libm::exp);
    if !high.is_finite() {
        return Err(Refused::Undefined(Undefined::NotFinite));
    }
    Ok(Fit {
        model,
        base: curves[0],
        treated: curves[1],
        unit,
        sizes: points.len(),
        runs: points.iter().map(|point| point.losses.len()).sum(),
        compute_ratio,
        low,
        high,
        p: student::two_sided(log_ratio / error, df),
        at_loss,
        df,
        reaches_beyond_sizes: log_ratio.abs() + half > libm::log(range),
        confidence,
    })
}

const NO_VARIANCE: Refused = Refused::Undefined(Undefined::NoVariance { value: 0.0 });

/// The unit and the range of the sizes, if they support a fit.
fn check(sizes: &[Size]) -> Result<(f64, f64), Refused> {
    for size in sizes {
        let (base, treated) = (size.base.len(), size.treated.len());
        if base != treated || base == 0 {
            return Err(Refused::Unpaired { at: size.at, base, treated });
        }
        let mut all = std::iter::once(&size.at).chain(&size.base).chain(&size.treated);
        if !all.all(|value| *value > 0.0 && value.is_finite()) {
            return Err(Refused::NotPositive { at: size.at });
        }
    }
    let mut at: Vec<f64> = sizes.iter().map(|size| size.at).collect();
    at.sort_by(f64::total_cmp);
    if let Some(pair) = at.windows(2).find(|pair| pair.first() == pair.last()) {
        return Err(Refused::SameSize { at: pair.first().copied().unwrap_or_default() });
    }
    if at.len() < FEWEST_SIZES {
        return Err(Refused::TooFewSizes { have: at.len(), need: FEWEST_SIZES });
    }
    let (smallest, largest) =
        (at.first().copied().unwrap_or(1.0), at.last().copied().unwrap_or(1.0));
    let ratio = largest / smallest;
    // Accept a decade that rounding made slightly smaller.
    if ratio < LEAST_RANGE * (1.0 - 1e-9) {
        return Err(Refused::NarrowRange { ratio, need: LEAST_RANGE });
    }
    Ok((libm::sqrt(smallest) * libm::sqrt(largest), ratio))
}

fn points(sizes: &[Size], unit: f64) -> Vec<Point> {
    let mut sorted: Vec<&Size> = sizes.iter().collect();
    sorted.sort_by(|a, b| a.at.total_cmp(&b.at));
    let point = |size: &Size| {
        let losses: Vec<[f64; 2]> =
            size.base.iter().zip(&size.treated).map(|(base, treated)| [*base, *treated]).collect();
        let runs = losses.len() as f64;
        let mean = |arm: usize| losses.iter().map(|run| run[arm]).sum::<f64>() / runs;
        Point { x: libm::log(size.at / unit), runs, means: [mean(0), mean(1)], losses }
    };
    sorted.into_iter().map(point).collect()
}

/// Fits both arms by one method, or neither.
fn both(points: &[Point], one: impl Fn(&[Point], usize) -> Option<Curve>) -> Option<[Curve; 2]> {
    Some([one(points, 0)?, one(points, 1)?])
}

/// The position at which a curve has a given loss, and its slope there.
struct Reading {
    /// log(C / unit); NaN if the curve never reaches the loss.
    x: f64,
    slope: f64,
}

impl Reading {
    fn at_loss(curve: &Curve, loss: f64) -> Reading {
        let above = loss - curve.floor;
        let x = -libm::log(above / curve.factor) / curve.exponent;
        Reading { x, slope: -curve.exponent * above }
    }
}

#[cfg(test)]
mod tests;
