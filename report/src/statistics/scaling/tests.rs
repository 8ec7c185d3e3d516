//! Fits of simulated runs with a known gain.

use super::super::draws::Draws;
use super::super::simulation::percent;
use super::*;

const AT: Confidence = Confidence::NINETY_FIVE;

/// Sizes over a range, with a treated arm that needs `gain` times less compute.
struct World {
    sizes: usize,
    range: f64,
    seeds: usize,
    floor: f64,
    gain: f64,
    noise: f64,
    /// Correlation of the noise between arms of one seed.
    shared: f64,
}

const WORLD: World =
    World { sizes: 4, range: 16.0, seeds: 3, floor: 0.0, gain: 1.5, noise: 0.01, shared: 0.5 };

impl World {
    fn sizes(&self, draws: &mut Draws) -> Vec<Size> {
        let step = libm::pow(self.range, 1.0 / (self.sizes - 1) as f64);
        (0..self.sizes)
            .map(|size| {
                let at = 1e6 * libm::pow(step, size as f64);
                let law = |at: f64| self.floor + 2.0 * libm::pow(at / 1e6, -0.2);
                let mut losses = Size { at, base: Vec::new(), treated: Vec::new() };
                for _ in 0..self.seeds {
                    let common = libm::sqrt(self.shared) * draws.normal();
                    let rest = libm::sqrt(1.0 - self.shared);
                    let (base, treated) = (law(at), law(at * self.gain));
                    losses.base.push(base + self.noise * (common + rest * draws.normal()));
                    losses.treated.push(treated + self.noise * (common + rest * draws.normal()));
                }
                losses
            })
            .collect()
    }
}

#[test]
fn a_known_gain_is_found() {
    for (gain, sizes, range, floor, model) in [
        (1.5, 4, 16.0, 0.0, Model::PowerLaw),
        (0.7, 4, 16.0, 0.0, Model::PowerLaw),
        (2.0, 4, 16.0, 0.0, Model::PowerLaw),
        (1.5, 7, 200.0, 1.5, Model::PowerLawWithFloor),
        (0.7, 7, 200.0, 1.5, Model::PowerLawWithFloor),
    ] {
        let world = World { gain, sizes, range, floor, noise: 1e-5, ..WORLD };
        let fitted = fit(&world.sizes(&mut Draws::new("test scaling")), AT).unwrap();
        assert_eq!(fitted.model, model);
        assert!((fitted.compute_ratio / gain - 1.0).abs() < 3e-3, "{gain}: {fitted:?}");
        assert!(fitted.low < fitted.compute_ratio && fitted.compute_ratio < fitted.high);
        assert!(
            (fitted.base.exponent - 0.2).abs() < 2e-3 && (fitted.base.floor - floor).abs() < 0.02
        );
        assert!((fitted.saved() - (1.0 - 1.0 / gain)).abs() < 5e-3);
        assert_eq!((fitted.sizes, fitted.runs), (sizes, 3 * sizes));
    }
}

#[test]
fn arms_turned_over_turn_the_ratio_over() {
    let sizes = WORLD.sizes(&mut Draws::new("test scaling turned"));
    let mut turned: Vec<Size> = sizes
        .iter()
        .map(|s| Size { at: s.at, base: s.treated.clone(), treated: s.base.clone() })
        .collect();
    turned.rotate_left(1);
    let (one, other) = (fit(&sizes, AT).unwrap(), fit(&turned, AT).unwrap());
    assert!((one.compute_ratio * other.compute_ratio - 1.0).abs() < 1e-9);
    assert!((one.low * other.high - 1.0).abs() < 1e-9 && (one.p - other.p).abs() < 1e-9);
    // The unit of size does not matter.
    let flops: Vec<Size> = sizes.iter().map(|s| Size { at: 6e12 * s.at, ..s.clone() }).collect();
    assert!((fit(&flops, AT).unwrap().low / one.low - 1.0).abs() < 1e-9);
}

#[test]
fn sizes_that_cannot_support_a_fit_are_refused() {
    let good = WORLD.sizes(&mut Draws::new("test scaling refused"));
    let refused = |sizes: &[Size]| fit(sizes, AT).unwrap_err();
    assert_eq!(refused(&good[..3]), Refused::TooFewSizes { have: 3, need: 4 });
    assert_eq!(refused(&[]), Refused::TooFewSizes { have: 0, need: 4 });
    let narrow = World { range: 8.0, ..WORLD }.sizes(&mut Draws::new("test"));
    assert!(matches!(refused(&narrow), Refused::NarrowRange { need: LEAST_RANGE, .. }));
    // A decade that rounding makes slightly smaller.
    assert!(fit(&World { range: 10.0, ..WORLD }.sizes(&mut Draws::new("test")), AT).is_ok());
    let change = |edit: fn(&mut Vec<Size>)| {
        let mut sizes = good.clone();
        edit(&mut sizes);
        refused(&sizes)
    };
    assert!(matches!(change(|s| s[1].at = s[0].at), Refused::SameSize { .. }));
    assert!(matches!(change(|s| s[1].base[0] = f64::NAN), Refused::NotPositive { .. }));
    assert!(matches!(change(|s| s[1].treated[0] = -1.0), Refused::NotPositive { .. }));
    assert!(matches!(change(|s| s[0].at = 0.0), Refused::NotPositive { .. }));
    assert!(matches!(change(|s| s[1].base.truncate(2)), Refused::Unpaired { base: 2, .. }));
    let emptied = change(|s| {
        s[1].base.clear();
        s[1].treated.clear();
    });
    assert!(matches!(emptied, Refused::Unpaired { base: 0, treated: 0, .. }));
    // A loss that does not fall, in one arm; a gain larger than the range of sizes; and curves without uncertainty.
    let flat = change(|s| s.iter_mut().for_each(|s| s.base = vec![2.0, 2.01, 1.99]));
    assert_eq!(flat, Refused::NoTrend { arm: Arm::Base });
    let rises = change(|s| s.reverse_treated());
    assert_eq!(rises, Refused::NoTrend { arm: Arm::Treated });
    let far = change(|s| s.iter_mut().for_each(|s| s.treated.iter_mut().for_each(|t| *t *= 0.4)));
    assert!(matches!(far, Refused::BeyondSizes { .. }));
    let exact = World { noise: 0.0, ..WORLD }.sizes(&mut Draws::new("test"));
    assert!(matches!(refused(&exact), Refused::Undefined(Undefined::NoVariance { .. })));
}

trait Reverse {
    fn reverse_treated(&mut self);
}

impl Reverse for Vec<Size> {
    fn reverse_treated(&mut self) {
        let mut treated: Vec<Vec<f64>> = self.iter().map(|s| s.treated.clone()).collect();
        treated.reverse();
        for (size, treated) in self.iter_mut().zip(treated) {
            size.treated = treated;
        }
    }
}

/// Percentage of intervals that hold the gain, and of false positives without a gain.
#[test]
fn intervals_of_the_gain_cover() {
    let worlds = [
        ("four sizes, three seeds", WORLD),
        ("one seed", World { seeds: 1, sizes: 6, ..WORLD }),
        ("five seeds, five sizes", World { seeds: 5, sizes: 5, range: 30.0, ..WORLD }),
        ("nine seeds", World { seeds: 9, ..WORLD }),
        ("no gain", World { gain: 1.0, ..WORLD }),
        ("floor", World { sizes: 6, range: 200.0, floor: 0.5, seeds: 5, noise: 0.003, ..WORLD }),
        ("floor, fitted without", World { floor: 0.5, ..WORLD }),
    ];
    let mut measured = Vec::new();
    for (name, world) in worlds {
        let mut draws = Draws::new(&format!("test scaling {name}"));
        let mut refused = 0;
        let covered = percent(600, || covers(&world.sizes(&mut draws), world.gain, &mut refused));
        measured.push((name, covered, refused));
    }
    assert!(
        measured.iter().all(|(_, covered, refused)| *covered >= 94.5 && *refused == 0),
        "{measured:?}"
    );
}

/// Whether the interval holds the true gain; counts a fit that is refused.
fn covers(sizes: &[Size], gain: f64, refused: &mut usize) -> bool {
    match fit(sizes, AT) {
        Ok(fitted) => fitted.low <= gain && gain <= fitted.high,
        Err(_) => {
            *refused += 1;
            true
        }
    }
}

/// Seeds that diverged or are missing leave other numbers of seeds at each size. Runs weigh alike, so a size counts by
/// its seeds; where sizes are off the curve, so that seeds do not explain the scatter, the error is that of sizes.
#[test]
fn intervals_cover_with_other_numbers_of_seeds_at_each_size() {
    let worlds = [
        ("few at the ends", [1, 9, 9, 1], WORLD),
        ("many at the small end", [9, 5, 3, 1], WORLD),
        ("many at the large end", [1, 3, 5, 9], WORLD),
        ("one size has most", [1, 1, 1, 9], WORLD),
        ("no gain", [9, 1, 5, 2], World { gain: 1.0, ..WORLD }),
        ("floor, fitted without", [9, 5, 3, 1], World { floor: 0.5, ..WORLD }),
    ];
    let mut measured = Vec::new();
    for (name, seeds, world) in worlds {
        let mut draws = Draws::new(&format!("test scaling seeds {name}"));
        let mut refused = 0;
        let covered = percent(600, || {
            let mut sizes = World { seeds: 9, ..world }.sizes(&mut draws);
            for (size, seeds) in sizes.iter_mut().zip(seeds) {
                size.base.truncate(seeds);
                size.treated.truncate(seeds);
            }
            covers(&sizes, world.gain, &mut refused)
        });
        measured.push((name, covered, refused));
    }
    assert!(
        measured.iter().all(|(_, covered, refused)| *covered >= 94.5 && *refused == 0),
        "{measured:?}"
    );
}

#[test]
fn pairing_and_seeds_narrow_the_interval() {
    let width = |world: World| {
        let mut draws = Draws::new("test scaling width");
        let mut widths: Vec<f64> = (0..101)
            .map(|_| {
                let fitted = fit(&world.sizes(&mut draws), AT).unwrap();
                libm::log(fitted.high / fitted.low)
            })
            .collect();
        widths.sort_by(f64::total_cmp);
        widths[50]
    };
    let three = width(WORLD);
    assert!(width(World { shared: 0.95, ..WORLD }) < three);
    assert!(width(World { seeds: 9, ..WORLD }) < 0.75 * three);
}
