//! The uncertainty of any number that is read from two curves fitted to runs that are paired by seed.
//!
//! Residuals of the two arms at one seed are treated as dependent. If sizes are further off the curves than their seeds
//! explain, the error is that of sizes, not of runs.
//!
//! Method: a number read from least-squares curves is a weighted sum of the sizes' means, to first order; its variance
//! follows from the products of both arms' residuals.

use super::super::{Confidence, special, student};
use super::curve::mean_log;
use super::{Arm, Curve, Model, NO_VARIANCE, Point, Refused};

/// Below this p value of the F test, the error is estimated from sizes instead of runs.
const LACK_OF_FIT: f64 = 0.25;

/// Curves with the quantities that their uncertainty needs.
pub(super) struct Fitted<'p> {
    points: &'p [Point],
    model: Model,
    curves: [Curve; 2],
    /// For each arm the inverse of the normal matrix.
    inverse: [[[f64; 3]; 3]; 2],
    parameters: usize,
    /// Products of both arms' residuals: of the runs of each size about their mean, and of the sizes' means about the
    /// curves.
    within: Vec<[[f64; 2]; 2]>,
    between: [[f64; 2]; 2],
}

impl<'p> Fitted<'p> {
    /// `None` if the sizes do not determine the parameters.
    pub(super) fn new(points: &'p [Point], model: Model, curves: [Curve; 2]) -> Option<Fitted<'p>> {
        let parameters = match model {
            Model::PowerLaw => 2,
            Model::PowerLawWithFloor => 3,
        };
        let (mut within, mut between) = (Vec::new(), [[0.0; 2]; 2]);
        let mut normal = [[[0.0; 3]; 3]; 2];
        for point in points {
            let off = [0, 1]
                .map(|arm| value(model, point, arm) - predicted(model, &curves[arm], point.x));
            add(&mut between, off, point.runs);
            let mut of_size = [[0.0; 2]; 2];
            for run in &point.losses {
                let off = [0, 1].map(|arm| transform(model, run[arm]) - value(model, point, arm));
                add(&mut of_size, off, 1.0);
            }
            within.push(of_size);
            for (arm, normal) in normal.iter_mut().enumerate() {
                let gradient = gradient(model, &curves[arm], point.x);
                for (row, a) in normal.iter_mut().zip(gradient) {
                    for (cell, b) in row.iter_mut().zip(gradient) {
                        *cell += point.runs * a * b;
                    }
                }
            }
        }
        let [base, treated] = normal.map(|normal| invert(normal, parameters));
        let inverse = [base?, treated?];
        Some(Fitted { points, model, curves, inverse, parameters, within, between })
    }

    /// The derivative of the fitted loss at x by the mean of each size, in units of the loss.
    pub(super) fn leverage(&self, arm: usize, x: f64) -> Option<Vec<f64>> {
        let curve = self.curves.get(arm)?;
        let inverse = self.inverse.get(arm)?;
        let at_x = gradient(self.model, curve, x);
        // A straight line in logarithms predicts log loss.
        let scale = match self.model {
            Model::PowerLaw => curve.loss(x),
            Model::PowerLawWithFloor => 1.0,
        };
        Some(self.weights(curve, inverse, at_x, scale))
    }

    fn weights(
        &self,
        curve: &Curve,
        inverse: &[[f64; 3]; 3],
        gradient_at_x: [f64; 3],
        scale: f64,
    ) -> Vec<f64> {
        let along = inverse.map(|row| dot(row, gradient_at_x));
        let of_point = |p: &Point| scale * p.runs * dot(along, gradient(self.model, curve, p.x));
        self.points.iter().map(of_point).collect()
    }

    /// The standard error of the sum of size means with these weights (base and treated), and its degrees of
    /// freedom.
    pub(super) fn error(&self, weights: &[[f64; 2]]) -> Option<(f64, f64)> {
        let variance = |products: [[f64; 2]; 2], df: f64| {
            let of_size = |(w, p): (&[f64; 2], &Point)| along(products, *w) / (df * p.runs);
            weights.iter().zip(self.points).map(of_size).sum::<f64>()
        };
        let runs: usize = self.points.iter().map(|p| p.losses.len()).sum();
        let sizes = self.points.len();
        let of_sizes = (sizes - self.parameters) as f64;
        let of_seeds = (runs - sizes) as f64;
        let between = variance(self.between, of_sizes);
        let mut error = (between, of_sizes);
        if of_seeds > 0.0 {
            let mut pooled = [[0.0; 2]; 2];
            self.within.iter().for_each(|of_size| sum(&mut pooled, of_size));
            let same = self.points.windows(2).all(|two| two[0].losses.len() == two[1].losses.len());
            let (within, of_within) = match same {
                true => (variance(pooled, of_seeds), of_seeds),
                false => self.size_by_size(weights),
            };
            let f = between / within;
            // The mass of the F distribution above f.
            let (top, bottom) = (of_sizes * f, of_within);
            let p = special::beta(
                0.5 * of_within,
                0.5 * of_sizes,
                bottom / (bottom + top),
                top / (bottom + top),
            );
            if p >= LACK_OF_FIT && same {
                sum(&mut pooled, &self.between);
                let df = of_sizes + of_seeds;
                error = (variance(pooled, df), df);
            } else if p >= LACK_OF_FIT {
                error = (within, of_within);
            }
        }
        let (variance, df) = error;
        let error = libm::sqrt(variance);
        // Below this, in units of log compute, points are on the curve up to rounding.
        (error > 1e-10 && error.is_finite()).then_some((error, df))
    }

    /// The variance from the seeds of each size on its own, with Satterthwaite's degrees of freedom. Where sizes have
    /// other numbers of seeds, one variance for all would be that of the sizes with most of them, while the scatter of
    /// log losses often grows with size. A size with one seed takes the largest variance of the others.
    fn size_by_size(&self, weights: &[[f64; 2]]) -> (f64, f64) {
        let known = || self.within.iter().zip(self.points).filter(|(_, p)| p.losses.len() > 1);
        let (mut variance, mut squares) = (0.0, 0.0);
        for ((weight, point), of_size) in weights.iter().zip(self.points).zip(&self.within) {
            let one = |products: &[[f64; 2]; 2], p: &Point| {
                let df = p.runs - 1.0;
                (along(*products, *weight) / df, df)
            };
            let (of_run, df) = match point.losses.len() {
                1 => known()
                    .map(|(products, p)| one(products, p))
                    .fold((0.0, 1.0), |most, next| if next.0 > most.0 { next } else { most }),
                _ => one(of_size, point),
            };
            let of_mean = of_run / point.runs;
            variance += of_mean;
            squares += of_mean * of_mean / df;
        }
        (variance, variance * variance / squares)
    }

    /// The curves with standard errors of their exponents, which must differ significantly from zero.
    pub(super) fn exponents(&self, confidence: Confidence) -> Result<[Curve; 2], Refused> {
        let mut curves = self.curves;
        for (arm, curve) in curves.iter_mut().enumerate() {
            let name = if arm == 0 { Arm::Base } else { Arm::Treated };
            let falls = curve.exponent > 0.0;
            if !falls {
                return Err(Refused::NoTrend { arm: name });
            }
            let exponent = match self.model {
                Model::PowerLaw => [0.0, 1.0, 0.0],
                Model::PowerLawWithFloor => [0.0, 0.0, 1.0],
            };
            let inverse = self.inverse.get(arm).ok_or(NO_VARIANCE)?;
            let weights = self.weights(curve, inverse, exponent, 1.0);
            let mut of_arms = vec![[0.0; 2]; weights.len()];
            for (of, weight) in of_arms.iter_mut().zip(weights) {
                of[arm] = weight;
            }
            let (error, df) = self.error(&of_arms).ok_or(NO_VARIANCE)?;
            curve.exponent_error = error;
            if student::two_sided(curve.exponent / error, df) > confidence.alpha() {
                return Err(Refused::NoTrend { arm: name });
            }
        }
        Ok(curves)
    }
}

fn transform(model: Model, loss: f64) -> f64 {
    match model {
        Model::PowerLaw => libm::log(loss),
        Model::PowerLawWithFloor => loss,
    }
}

fn value(model: Model, point: &Point, arm: usize) -> f64 {
    match model {
        Model::PowerLaw => mean_log(point, arm),
        Model::PowerLawWithFloor => point.means[arm],
    }
}

fn predicted(model: Model, curve: &Curve, x: f64) -> f64 {
    transform(model, curve.loss(x))
}

/// Gradient of the predicted value by the parameters: log factor and exponent, or floor, factor and exponent.
fn gradient(model: Model, curve: &Curve, x: f64) -> [f64; 3] {
    match model {
        Model::PowerLaw => [1.0, -x, 0.0],
        Model::PowerLawWithFloor => {
            let power = libm::exp(-curve.exponent * x);
            [1.0, power, -x * curve.factor * power]
        }
    }
}

/// The square of a weighted sum of both arms' residuals.
fn along([[bb, bt], [_, tt]]: [[f64; 2]; 2], weight: [f64; 2]) -> f64 {
    let [base, treated] = weight;
    base * base * bb + 2.0 * base * treated * bt + treated * treated * tt
}

fn sum(products: &mut [[f64; 2]; 2], others: &[[f64; 2]; 2]) {
    for (row, other) in products.iter_mut().zip(others) {
        for (cell, other) in row.iter_mut().zip(other) {
            *cell += other;
        }
    }
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(products: &mut [[f64; 2]; 2], off: [f64; 2], weight: f64) {
    for (row, a) in products.iter_mut().zip(off) {
        for (cell, b) in row.iter_mut().zip(off) {
            *cell += weight * a * b;
        }
    }
}

/// The inverse of the upper left part of a symmetric matrix, by Gauss-Jordan elimination; zero outside it.
fn invert(matrix: [[f64; 3]; 3], size: usize) -> Option<[[f64; 3]; 3]> {
    let mut left = matrix;
    let mut right = [[0.0; 3]; 3];
    for (at, row) in right.iter_mut().enumerate() {
        row[at] = 1.0;
    }
    for at in 0..size {
        let pivot = (at..size).max_by(|a, b| left[*a][at].abs().total_cmp(&left[*b][at].abs()))?;
        left.swap(at, pivot);
        right.swap(at, pivot);
        let scale = left[at][at];
        if scale.abs() < 1e-300 {
            return None;
        }
        for column in 0..size {
            left[at][column] /= scale;
            right[at][column] /= scale;
        }
        for row in (0..size).filter(|row| *row != at) {
            let times = left[row][at];
            for column in 0..size {
                left[row][column] -= times * left[at][column];
                right[row][column] -= times * right[at][column];
            }
        }
    }
    right.iter().flatten().all(|cell| cell.is_finite()).then_some(right)
}
