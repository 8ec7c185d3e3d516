//! The analysis of a comparison, declared before its runs: the primary metric, the family it is tested in, margin, level and
//! stopping rule.
//!
//! A comparison that declares nothing has the neutral analysis, and a fact that equals its neutral value is not written, so
//! that locks older than `[analysis]` keep their text and id.

use dsl::Decimal;
use tasks::metric;
use toml::de::DeValue;

use super::{Grid, Selection};
use crate::error::FieldProblem;
use crate::field::{self, Bounds, FieldValue, Kind, one_of, renamed, shown};
use crate::section::Line;

/// How a comparison is analysed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Analysis {
    /// The metric of the conclusion, as named in `evaluation.metrics`.
    pub primary: String,
    /// Metrics that are tested together, with p values adjusted together; sorted, and including the primary one.
    pub family: Vec<String>,
    /// The smallest relevant difference, in the unit of the primary metric: nats for a loss, a share of 1 for
    /// answers. Without a margin, arms are never called equivalent.
    pub margin: Option<Decimal>,
    /// The significance level of the whole family.
    pub level: Decimal,
    /// When to stop adding seeds.
    pub stop: Stop,
    /// Largest ratio between the base's own step times. Beyond it, ratios of times get no interval.
    pub time_bound: Decimal,
}

/// The values in `[analysis]`. Missing ones are neutral.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredAnalysis {
    primary: Option<String>,
    family: Vec<String>,
    margin: Option<Decimal>,
    level: Option<Decimal>,
    sequential: bool,
    max_seeds: Option<usize>,
    time_bound: Option<Decimal>,
}

/// The stopping rule for seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// After all listed seeds.
    Fixed,
    /// As soon as the sequential rule decides, and at the latest after this many seeds.
    Sequential {
        /// Number of seeds at which it stops without a decision.
        max_seeds: usize,
    },
}

/// A sequential rule cannot decide before the third seed.
const FEWEST_SEEDS: usize = 3;

impl Analysis {
    /// The facts for the lock: those that are not neutral.
    pub(super) fn facts(&self, selection: &Selection) -> Vec<Line> {
        let Analysis { primary, family, margin, level, stop, time_bound } = self;
        let mut facts = Vec::new();
        let mut push = |key: &str, value: String| facts.push((format!("analysis.{key}"), value));
        if *primary != selection.metric {
            push("primary", field::quote(primary));
        }
        if *family != [primary.as_str()] {
            let family: Vec<String> = family.iter().map(|name| field::quote(name)).collect();
            push("family", format!("[{}]", family.join(", ")));
        }
        if let Some(margin) = margin {
            push("margin", margin.to_string());
        }
        if level.compare(usual_level()).is_ne() {
            push("level", level.to_string());
        }
        if let Stop::Sequential { max_seeds } = stop {
            push("stop", field::quote("sequential"));
            push("max_seeds", max_seeds.to_string());
        }
        if time_bound.compare(usual_time_bound()).is_ne() {
            push("time_bound", time_bound.to_string());
        }
        facts
    }
}

impl DeclaredAnalysis {
    /// The keys of a comparison file that it reads.
    pub const KEYS: [&'static str; 7] = [
        "analysis.family",
        "analysis.level",
        "analysis.margin",
        "analysis.max_seeds",
        "analysis.primary",
        "analysis.stop",
        "analysis.time_bound",
    ];

    /// Fills in neutral values; `seeds` is the number of seeds that the comparison lists.
    pub(super) fn resolve(&self, selection: &Selection, seeds: usize) -> Analysis {
        let primary = self.primary.clone().unwrap_or_else(|| selection.metric.clone());
        let family = match self.family.as_slice() {
            [] => vec![primary.clone()],
            family => family.to_vec(),
        };
        let stop = match self.sequential {
            true => Stop::Sequential { max_seeds: self.max_seeds.unwrap_or(seeds) },
            false => Stop::Fixed,
        };
        let level = self.level.unwrap_or(usual_level());
        let time_bound = self.time_bound.unwrap_or(usual_time_bound());
        Analysis { primary, family, margin: self.margin, level, stop, time_bound }
    }

    /// Reads one fact of `[analysis]`, from a comparison file or a lock.
    pub(crate) fn take(&mut self, key: &str, value: &DeValue<'_>) -> Result<(), String> {
        match key {
            "primary" => self.primary = Some(metric(value)?),
            "family" => self.take_family(value)?,
            "margin" => {
                self.margin = Some(real(value, "a number above 0, in the unit of the metric")?)
            }
            "level" => self.level = Some(level(value)?),
            "stop" => match field::string(value) {
                Some("fixed") => self.sequential = false,
                Some("sequential") => self.sequential = true,
                Some(_) | None => {
                    return Err(format!("{} is not \"fixed\" or \"sequential\"", shown(value)));
                }
            },
            "max_seeds" => match Kind::Int(FEWEST_SEEDS as i64, 10_000).read(value) {
                Ok(FieldValue::Int(n)) => self.max_seeds = usize::try_from(n).ok(),
                Ok(_) | Err(_) => {
                    return Err(format!(
                        "{} is not a number of seeds from {FEWEST_SEEDS} on",
                        shown(value)
                    ));
                }
            },
            "time_bound" => self.time_bound = Some(time_bound(value)?),
            _ => {
                return Err(format!(
                    "`[analysis]` has no such key; its keys are {}",
                    one_of(&WORDS)
                ));
            }
        }
        Ok(())
    }

    fn take_family(&mut self, value: &DeValue<'_>) -> Result<(), String> {
        let DeValue::Array(items) = value else {
            return Err(format!("{} is not a list of metrics in quotes", shown(value)));
        };
        if items.is_empty() {
            return Err(
                "the list is empty; leave it out to test the primary metric alone".to_owned()
            );
        }
        for item in items {
            let name = metric(item.get_ref())?;
            if self.family.contains(&name) {
                return Err(format!("{name} is given twice"));
            }
            self.family.push(name);
        }
        self.family.sort();
        Ok(())
    }

    /// Reports declarations that cannot work with `seeds` seeds.
    pub(super) fn unsound(
        &self,
        selection: &Selection,
        seeds: usize,
        grid: &[Grid],
    ) -> Vec<FieldProblem> {
        let mut problems = Vec::new();
        if self.sequential && grid.iter().any(|row| row.values.len() > 1) {
            problems.push(FieldProblem::new(
                "analysis.stop",
                "sequential-grid",
                "a sequential rule needs a single point, and [grid] has several: the judged point could change from look \
                 to look"
                    .to_owned(),
                "tune in a separate comparison first, then write the chosen value into the recipes",
            ));
        }
        let Analysis { primary, family, .. } = self.resolve(selection, seeds);
        let primary = primary.as_str();
        if !family.iter().any(|name| name == primary) {
            problems.push(FieldProblem::new(
                "analysis.family",
                "primary-outside-family",
                format!(
                    "the family {} does not contain the primary metric {primary}",
                    family.join(", ")
                ),
                format!("add \"{primary}\" to family, or choose a metric of the family as primary"),
            ));
        }
        if let Some(margin) = self.margin.filter(|_| is_share(primary))
            && margin.compare(Decimal::from(1)).is_ge()
        {
            problems.push(FieldProblem::new(
                "analysis.margin",
                "margin-too-wide",
                format!("a margin of {margin} includes every difference of {primary}, which is a share from 0 to 1"),
                "write it as a share: 0.01 is one percentage point",
            ));
        }
        problems.extend(self.unsound_seeds(seeds));
        problems
    }

    /// The problem of a stopping rule with `seeds` seeds, if any.
    fn unsound_seeds(&self, seeds: usize) -> Option<FieldProblem> {
        let max = self.max_seeds.unwrap_or(seeds);
        let (path, code, message, help) = match (self.sequential, self.max_seeds) {
            (false, Some(max)) => (
                "analysis.max_seeds",
                "no-effect",
                format!("max_seeds = {max} has no effect, since all {seeds} seeds are run"),
                "add stop = \"sequential\", or leave max_seeds out",
            ),
            (true, _) if max > seeds => (
                "analysis.max_seeds",
                "too-few-seeds",
                format!("max_seeds is {max}, and [seeds] lists {seeds}"),
                "list as many seeds as may be run",
            ),
            (true, _) if max < FEWEST_SEEDS => (
                "analysis.stop",
                "too-few-seeds",
                format!(
                    "a sequential rule needs at least {FEWEST_SEEDS} seeds, and [seeds] lists {seeds}"
                ),
                "list as many seeds as may be run; `canonc plan` estimates how many",
            ),
            (true | false, _) => return None,
        };
        Some(FieldProblem::new(path, code, message, help))
    }
}

const WORDS: [&str; 7] =
    ["family", "level", "margin", "max_seeds", "primary", "stop", "time_bound"];

fn usual_level() -> Decimal {
    Decimal::new(5, -2).unwrap_or(Decimal::ZERO)
}

/// The value in the first locks, which do not write it.
fn usual_time_bound() -> Decimal {
    Decimal::new(105, -2).unwrap_or(Decimal::ZERO)
}

fn level(value: &DeValue<'_>) -> Result<Decimal, String> {
    let wanted = "a number above 0 and at most 0.5, such as 0.05";
    let level = real(value, wanted)?;
    let half = Decimal::new(5, -1).unwrap_or(Decimal::ZERO);
    if level.compare(half).is_gt() {
        return Err(format!("{} is not {wanted}", shown(value)));
    }
    Ok(level)
}

fn time_bound(value: &DeValue<'_>) -> Result<Decimal, String> {
    let wanted = "a ratio above 1 and below 10, such as 1.05";
    let bound = real(value, wanted)?;
    let is_ratio =
        bound.compare(Decimal::from(1)).is_gt() && bound.compare(Decimal::from(10)).is_lt();
    if !is_ratio {
        return Err(format!("{} is not {wanted}", shown(value)));
    }
    Ok(bound)
}

fn is_share(metric: &str) -> bool {
    metric::is_share(metric)
}

fn metric(value: &DeValue<'_>) -> Result<String, String> {
    let name = field::string(value).filter(|name| metric::is_known(name));
    name.map(str::to_owned).ok_or_else(|| match renamed(value) {
        Some(renamed) => renamed,
        None => format!("{} is not {}", shown(value), one_of(metric::NAMES)),
    })
}

fn real(value: &DeValue<'_>, wanted: &str) -> Result<Decimal, String> {
    match Kind::Real(Bounds::Positive).read(value) {
        Ok(FieldValue::Real(number)) => Ok(number),
        Ok(_) | Err(_) => Err(format!("{} is not {wanted}", shown(value))),
    }
}
