//! The factor of the base learning rate at a step.
//!
//! libm only, so a lock's learning rates have the same bits everywhere. Step 0 of a warm-up is factor 0, as released. From
//! the last step on a cosine or linear factor is `lr_min_ratio` (the reference's cosine jumps back to 1 there, a step that
//! is never trained).

use std::fmt;

use lab::experiment::{Decay, Schedule};

/// A schedule that is not defined for a run of this length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSchedule {
    /// What is wrong, on one line.
    pub message: String,
    /// What to do about it.
    pub help: String,
}

impl fmt::Display for BadSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nhelp: {}", self.message, self.help)
    }
}

impl std::error::Error for BadSchedule {}

/// Whether `schedule` gives a finite factor at every step of a run of `total` steps.
pub fn check(schedule: &Schedule<f64>, total: u64) -> Result<(), BadSchedule> {
    let bad = |message: String, help: &str| Err(BadSchedule { message, help: help.to_owned() });
    let ratio = |value: f64, least_open: bool, name: &str| match value {
        value if value > 0.0 && value <= 1.0 => Ok(()),
        0.0 if !least_open => Ok(()),
        _ => bad(
            format!("schedule: {name} is {value}"),
            &format!("set {name} to a number from 0 to 1"),
        ),
    };
    let power = |value: f64, name: &str| {
        if value.is_finite() && value > 0.0 {
            return Ok(());
        }
        bad(format!("schedule: {name} is {value}"), &format!("set {name} above 0"))
    };
    let fits = |warmup: u64| {
        if warmup <= total {
            return Ok(());
        }
        bad(
            format!(
                "schedule: warmup takes {}, but the run has {total}",
                dsl::counted(warmup, "step")
            ),
            "lower warmup, or raise the number of steps",
        )
    };
    match *schedule {
        Schedule::Constant => Ok(()),
        Schedule::Linear { warmup, lr_min_ratio } => {
            ratio(lr_min_ratio, false, "lr_min_ratio")?;
            fits(warmup)
        }
        Schedule::Cosine { warmup, lr_min_ratio, cycle, theta } => {
            ratio(lr_min_ratio, false, "lr_min_ratio")?;
            ratio(cycle, true, "cycle")?;
            power(theta, "theta")?;
            fits(warmup)
        }
        Schedule::InvSqrt { warmup, lr_min_ratio, exp_factor } => {
            ratio(lr_min_ratio, false, "lr_min_ratio")?;
            power(exp_factor, "exp_factor")?;
            fits(warmup)
        }
        Schedule::Wsd { warmup, lr_min_ratio, cycle, decay_fraction, decay } => {
            ratio(lr_min_ratio, decay == Decay::Hyperbola, "lr_min_ratio")?;
            ratio(cycle, true, "cycle")?;
            ratio(decay_fraction, false, "decay_fraction")?;
            if part_of_steps(total, cycle) == 0 && total > 0 {
                return bad(
                    format!("schedule: a cycle of {cycle} of {total} steps is less than one step"),
                    "raise cycle, or the number of steps",
                );
            }
            fits(warmup)
        }
    }
}

/// The factor of the base learning rate at optimiser step `step`, from 0, in a run of `total` steps.
pub fn factor(schedule: &Schedule<f64>, step: u64, total: u64) -> f64 {
    match *schedule {
        Schedule::Constant => 1.0,
        Schedule::Linear { warmup, lr_min_ratio } => warming(step, warmup).unwrap_or_else(|| {
            if step >= total {
                return lr_min_ratio;
            }
            let progress = progress(step, warmup, total);
            progress * lr_min_ratio + (1.0 - progress)
        }),
        Schedule::Cosine { warmup, lr_min_ratio, cycle, theta } => warming(step, warmup)
            .unwrap_or_else(|| {
                if step >= total {
                    return lr_min_ratio;
                }
                let rising = libm::floor(step as f64 / (total as f64 * cycle)) % 2.0 == 1.0;
                let sign = if rising { -1.0 } else { 1.0 };
                let progress = libm::pow(progress(step, warmup, total), theta);
                let wave = libm::cos(std::f64::consts::PI * progress / cycle);
                lr_min_ratio + 0.5 * (1.0 - lr_min_ratio) * (sign * wave + 1.0)
            }),
        Schedule::InvSqrt { warmup, lr_min_ratio, exp_factor } => warming(step, warmup)
            .unwrap_or_else(|| {
                if step == 0 {
                    return 1.0;
                }
                (libm::pow(warmup as f64, exp_factor) / libm::pow(step as f64, exp_factor))
                    .max(lr_min_ratio)
            }),
        Schedule::Wsd { warmup, lr_min_ratio, cycle, decay_fraction, decay } => {
            warming(step, warmup).unwrap_or_else(|| match decay {
                Decay::Hyperbola => hyperbola(step, total, lr_min_ratio, cycle, decay_fraction),
                Decay::Cosine | Decay::Linear | Decay::Sqrt => {
                    let x = decaying(step, total, cycle, decay_fraction);
                    let rest = match decay {
                        Decay::Cosine => 0.5 * (1.0 + libm::cos(std::f64::consts::PI * x)),
                        Decay::Sqrt => 1.0 - libm::sqrt(x),
                        Decay::Linear | Decay::Hyperbola => 1.0 - x,
                    };
                    lr_min_ratio + (1.0 - lr_min_ratio) * rest
                }
            })
        }
    }
}

/// step / warmup during the warm-up.
fn warming(step: u64, warmup: u64) -> Option<f64> {
    (step < warmup).then(|| step as f64 / warmup as f64)
}

/// From 0 at the end of the warm-up to 1 at the end of the run; `step` is in between.
fn progress(step: u64, warmup: u64, total: u64) -> f64 {
    (step - warmup) as f64 / (total - warmup) as f64
}

/// How far a step is in the decay of its cycle, from 0 to 1; 0 before it, and 1 after the run.
fn decaying(step: u64, total: u64, cycle: f64, fraction: f64) -> f64 {
    if step >= total {
        return 1.0;
    }
    let length = part_of_steps(total, cycle).max(1);
    let steps = part_of_steps(length, fraction);
    let done = (step % length).saturating_sub(length - steps);
    if done == 0 { 0.0 } else { done as f64 / steps as f64 }
}

/// The reference's decay, with its own way of counting: a decay's length is a share of all steps up to its end.
fn hyperbola(step: u64, total: u64, lr_min_ratio: f64, cycle: f64, decay: f64) -> f64 {
    let length = part_of_steps(total, cycle).max(1);
    let mut end = length * (step / length + 1);
    // At the very last step the end is the run's, but the decay's length is still the next cycle's.
    let decaying = part_of_steps(end, decay);
    if step == total {
        end = total;
    }
    let from = end.saturating_sub(decaying);
    if step <= from {
        return 1.0;
    }
    if step > end {
        return lr_min_ratio;
    }
    let progress = (step - from) as f64 / decaying as f64;
    1.0 / (progress * (1.0 / lr_min_ratio) + (1.0 - progress))
}

/// That part of `steps`, in whole steps.
fn part_of_steps(steps: u64, part: f64) -> u64 {
    (steps as f64 * part) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn read(args: &Value) -> Schedule<f64> {
        let number = |name: &str, default: f64| {
            args.get(name).map_or(default, |value| value.as_f64().unwrap())
        };
        let warmup = args["warmup"].as_u64().unwrap();
        let lr_min_ratio = number("lr_min_ratio", 0.1);
        let cycle = number("cycle_length", 1.0);
        match args["scheduler"].as_str().unwrap() {
            "cosine" => {
                Schedule::Cosine { warmup, lr_min_ratio, cycle, theta: number("cosine_theta", 1.0) }
            }
            "linear" => Schedule::Linear { warmup, lr_min_ratio },
            "inv_sqrt" => {
                Schedule::InvSqrt { warmup, lr_min_ratio, exp_factor: number("exp_factor", 0.5) }
            }
            "constant" => Schedule::Constant,
            "wsd" => Schedule::Wsd {
                warmup,
                lr_min_ratio,
                cycle,
                decay_fraction: number("decay_fraction", 0.1),
                decay: Decay::Hyperbola,
            },
            other => panic!("no schedule {other}"),
        }
    }

    #[test]
    fn factors_equal_the_reference() {
        let tables = crate::golden::read("lr_schedules");
        let tables = tables["schedules"].as_array().unwrap();
        assert_eq!(tables.len(), 7);
        for table in tables {
            let (schedule, total) = (read(&table["args"]), table["n_steps"].as_u64().unwrap());
            check(&schedule, total).unwrap();
            let factors = table["factor"].as_array().unwrap();
            assert_eq!(factors.len() as u64, total + 3);
            for (step, want) in factors.iter().enumerate() {
                let step = step as u64;
                let got = factor(&schedule, step, total);
                match schedule {
                    // The one deliberate difference: the reference jumps back to 1 after the last step.
                    Schedule::Cosine { lr_min_ratio, .. } if step == total => {
                        assert_eq!((want.as_f64(), got), (Some(1.0), lr_min_ratio));
                    }
                    Schedule::Cosine { .. }
                    | Schedule::Linear { .. }
                    | Schedule::InvSqrt { .. }
                    | Schedule::Constant
                    | Schedule::Wsd { .. } => {
                        let want = want.as_f64().unwrap();
                        assert!(
                            (got - want).abs() <= 4e-16,
                            "{schedule:?} step {step}: {got}, not {want}"
                        );
                    }
                }
            }
        }
    }

    /// Every curve of the decay, against numbers of the papers' formulas.
    #[test]
    fn decays_equal_the_formulas() {
        let tables = crate::golden::read("wsd");
        let tables = tables["wsd"].as_array().unwrap();
        let mut seen = Vec::new();
        for table in tables {
            let params = &table["params"];
            let number = |name: &str| params[name].as_f64().unwrap();
            let total = params["steps"].as_u64().unwrap();
            let decay = Decay::named(params["decay"].as_str().unwrap()).unwrap();
            let decay_fraction = match decay {
                Decay::Hyperbola => number("decay_fraction"),
                Decay::Cosine | Decay::Linear | Decay::Sqrt => {
                    number("decay_steps") / number("steps")
                }
            };
            let schedule = Schedule::Wsd {
                warmup: params["warmup"].as_u64().unwrap(),
                lr_min_ratio: number("min_ratio"),
                cycle: 1.0,
                decay_fraction,
                decay,
            };
            check(&schedule, total).unwrap();
            for (step, want) in table["factor"].as_array().unwrap().iter().enumerate() {
                let (step, want) = (step as u64, want.as_f64().unwrap());
                // Lingua's begins another cycle after the last step, which is never trained.
                if decay == Decay::Hyperbola && step > total {
                    continue;
                }
                let got = factor(&schedule, step, total);
                assert!((got - want).abs() <= 4e-16, "{schedule:?} {step}: {got}, not {want}");
            }
            seen.push(decay);
        }
        assert_eq!(seen.len(), Decay::ALL.len());
        assert!(Decay::ALL.iter().all(|decay| seen.contains(decay)));
    }

    /// Each cycle is flat, then falls; the next begins at the base rate.
    #[test]
    fn a_decay_ends_each_cycle() {
        let schedule = Schedule::Wsd {
            warmup: 0,
            lr_min_ratio: 0.0,
            cycle: 0.5,
            decay_fraction: 0.4,
            decay: Decay::Linear,
        };
        let got: Vec<f64> = (0..=20).map(|step| factor(&schedule, step, 20)).collect();
        let cycle = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25];
        assert_eq!(got, [&cycle[..], &cycle, &[0.0]].concat());
    }

    #[test]
    fn edges_are_finite() {
        let schedules = [
            Schedule::Cosine { warmup: 0, lr_min_ratio: 0.0, cycle: 1.0, theta: 1.0 },
            Schedule::Linear { warmup: 0, lr_min_ratio: 0.0 },
            Schedule::InvSqrt { warmup: 0, lr_min_ratio: 0.0, exp_factor: 0.5 },
            Schedule::Constant,
        ];
        let decays = Decay::ALL.into_iter().flat_map(|decay| {
            let wsd = |warmup, cycle, decay_fraction| Schedule::Wsd {
                warmup,
                lr_min_ratio: 0.1,
                cycle,
                decay_fraction,
                decay,
            };
            [wsd(0, 1.0, 0.0), wsd(1, 0.5, 1.0), wsd(0, 0.3, 0.4)]
        });
        let schedules = schedules.into_iter().chain(decays);
        for schedule in schedules {
            for total in [0, 1, 2, 7] {
                if check(&schedule, total).is_ok() {
                    for step in 0..total + 3 {
                        assert!(
                            (0.0..=1.0).contains(&factor(&schedule, step, total)),
                            "{schedule:?} {step}/{total}"
                        );
                    }
                }
            }
        }
        // A run that is all warm-up never leaves it.
        let schedule = Schedule::Cosine { warmup: 4, lr_min_ratio: 0.1, cycle: 1.0, theta: 1.0 };
        assert_eq!([3, 4, 5].map(|step| factor(&schedule, step, 4)), [0.75, 0.1, 0.1]);
    }

    #[test]
    fn schedules_that_cannot_be_are_refused() {
        let cosine = |warmup, lr_min_ratio, cycle, theta| Schedule::Cosine {
            warmup,
            lr_min_ratio,
            cycle,
            theta,
        };
        let wsd = |lr_min_ratio, cycle, decay_fraction, decay| Schedule::Wsd {
            warmup: 1,
            lr_min_ratio,
            cycle,
            decay_fraction,
            decay,
        };
        let cases = [
            (cosine(11, 0.1, 1.0, 1.0), "warmup takes 11 steps, but the run has 10"),
            (cosine(1, -0.1, 1.0, 1.0), "lr_min_ratio is -0.1"),
            (cosine(1, f64::NAN, 1.0, 1.0), "lr_min_ratio is NaN"),
            (cosine(1, 0.1, 0.0, 1.0), "cycle is 0"),
            (cosine(1, 0.1, 1.0, 0.0), "theta is 0"),
            (Schedule::Linear { warmup: 1, lr_min_ratio: 1.5 }, "lr_min_ratio is 1.5"),
            (
                Schedule::InvSqrt { warmup: 1, lr_min_ratio: 0.1, exp_factor: f64::INFINITY },
                "exp_factor is inf",
            ),
            (wsd(0.0, 1.0, 0.1, Decay::Hyperbola), "lr_min_ratio is 0"),
            (wsd(-0.1, 1.0, 0.1, Decay::Linear), "lr_min_ratio is -0.1"),
            (wsd(0.1, 0.01, 0.1, Decay::Hyperbola), "less than one step"),
            (wsd(0.1, 1.0, 2.0, Decay::Sqrt), "decay_fraction is 2"),
        ];
        for (schedule, want) in cases {
            let error = check(&schedule, 10).unwrap_err().to_string();
            assert!(error.contains(want) && error.contains("\nhelp: "), "{error}");
        }
    }
}
