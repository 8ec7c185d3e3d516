//! What the runs of a comparison say together.
//!
//! In: the curves of every arm and seed, read from run folders. Out: one table: each arm's mean, the
//! paired difference seed by seed, and the noise band of the A/A arm. Must stay true: differences
//! are paired by seed and never pooled; with fewer than two seeds nothing is said about spread; the
//! band is what two runs of the same lock but for the seed differ by, so a difference inside it says
//! nothing.

use std::collections::BTreeMap;
use std::path::Path;

use crate::metrics::{self, Record};
use crate::run::RunError;

/// What one run logged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curves {
    /// (step, training loss).
    pub loss: Vec<(u64, f64)>,
    /// By metric, (step, value).
    pub metrics: BTreeMap<String, Vec<(u64, f64)>>,
    /// Median seconds of an optimiser step, if the run timed them.
    pub step_seconds: Option<f64>,
}

/// What an arm is to the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Base,
    Treatment,
    /// The base again with other seeds: its distance from the base is noise.
    Again,
}

/// One arm: a run for each seed, in the same order of seeds in every arm.
#[derive(Clone, Debug)]
pub struct Arm {
    pub name: String,
    pub role: Role,
    pub runs: Vec<Curves>,
}

/// A metric over all arms.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub metric: String,
    /// Mean over seeds, in order of arms.
    pub means: Vec<Option<f64>>,
    /// Treatment minus base, in order of seeds.
    pub paired: Vec<f64>,
    /// The largest distance between the base and its repetition, seed by seed.
    pub band: Option<f64>,
}

/// Cells, for a terminal and a page alike.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Table {
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
    pub caption: String,
}

/// The share of the last steps whose mean is a run's final training loss.
const TAIL: f64 = 0.1;

/// Reads a run folder's metrics and timings.
pub fn read(folder: &Path) -> Result<Curves, RunError> {
    let paths = crate::run::Paths::new(folder);
    let (records, _) = metrics::read(&paths.metrics())?;
    let mut curves = Curves::default();
    for record in records {
        match record {
            Record::Start(_) => {}
            Record::Step(step) => curves.loss.extend(step.loss.map(|loss| (step.step, loss))),
            Record::Evaluation(eval) => {
                let mut put = |name: String, value: Option<f64>| {
                    if let Some(value) = value {
                        curves.metrics.entry(name).or_default().push((eval.step, value));
                    }
                };
                put("held-out loss".to_owned(), eval.nll);
                put("answer tokens right".to_owned(), eval.tokens.ratio());
                put("whole answers right".to_owned(), eval.exact().ratio());
                for (level, score) in &eval.answers {
                    put(format!("whole answers right, level {level}"), score.ratio());
                }
            }
        }
    }
    curves.step_seconds = median_step_seconds(&paths.timings());
    Ok(curves)
}

/// Timings are of one machine's day and prove nothing; a run without them has none.
fn median_step_seconds(path: &Path) -> Option<f64> {
    let text = std::fs::read_to_string(path).ok()?;
    let mut seconds: Vec<f64> = text
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|value| value.get("seconds")?.as_f64())
        .collect();
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).copied()
}

/// The last value of every metric of a run; of the training loss, the mean of the last tenth.
fn last(curves: &Curves) -> BTreeMap<String, f64> {
    let mut values: BTreeMap<String, f64> = curves
        .metrics
        .iter()
        .filter_map(|(name, points)| Some((name.clone(), points.last()?.1)))
        .collect();
    let tail = ((curves.loss.len() as f64 * TAIL) as usize).max(1).min(curves.loss.len());
    let losses: Vec<f64> = curves.loss.iter().rev().take(tail).map(|(_, loss)| *loss).collect();
    if let Some(loss) = mean(&losses) {
        values.insert("training loss".to_owned(), loss);
    }
    values
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// One row a metric, in the order people read them.
pub fn rows(arms: &[Arm]) -> Vec<Row> {
    let finals: Vec<Vec<BTreeMap<String, f64>>> =
        arms.iter().map(|arm| arm.runs.iter().map(last).collect()).collect();
    let mut names: Vec<String> =
        finals.iter().flatten().flat_map(|run| run.keys().cloned()).collect();
    names.sort_by_key(|name| (rank(name), name.clone()));
    names.dedup();
    let at = |role: Role| arms.iter().position(|arm| arm.role == role);
    let pairs = |a: Option<usize>, b: Option<usize>, name: &str| -> Vec<f64> {
        let (Some(a), Some(b)) = (a.and_then(|i| finals.get(i)), b.and_then(|i| finals.get(i)))
        else {
            return Vec::new();
        };
        a.iter().zip(b).filter_map(|(a, b)| Some(b.get(name)? - a.get(name)?)).collect()
    };
    names
        .into_iter()
        .map(|metric| {
            let means = finals
                .iter()
                .map(|runs| {
                    mean(
                        &runs
                            .iter()
                            .filter_map(|run| run.get(&metric).copied())
                            .collect::<Vec<_>>(),
                    )
                })
                .collect();
            let paired = pairs(at(Role::Base), at(Role::Treatment), &metric);
            let again = pairs(at(Role::Base), at(Role::Again), &metric);
            let band = again.iter().map(|d| d.abs()).reduce(f64::max);
            Row { metric, means, paired, band }
        })
        .collect()
}

fn rank(metric: &str) -> u8 {
    match metric {
        "training loss" => 0,
        "held-out loss" => 1,
        "answer tokens right" => 2,
        "whole answers right" => 3,
        _ => 4,
    }
}

/// The rows as text: shares in percent, losses in nats.
pub fn table(arms: &[Arm]) -> Table {
    let mut head = vec![String::new()];
    head.extend(arms.iter().map(|arm| arm.name.clone()));
    head.extend([
        "paired difference".to_owned(),
        "lowest … highest".to_owned(),
        "A/A band".to_owned(),
    ]);
    let mut cells = Vec::new();
    for row in rows(arms) {
        let share = row.metric.contains("right");
        let show = |value: f64| {
            if share { format!("{:.1}%", 100.0 * value) } else { format!("{value:.4}") }
        };
        let signed = |value: f64| {
            if share { format!("{:+.1}", 100.0 * value) } else { format!("{value:+.4}") }
        };
        let mut line = vec![row.metric.clone()];
        line.extend(row.means.iter().map(|m| m.map_or("–".to_owned(), show)));
        line.push(mean(&row.paired).map_or("–".to_owned(), signed));
        let low = row.paired.iter().copied().reduce(f64::min);
        let high = row.paired.iter().copied().reduce(f64::max);
        line.push(match (low, high) {
            (Some(low), Some(high)) if row.paired.len() > 1 => {
                format!("{} … {}", signed(low), signed(high))
            }
            _ => "–".to_owned(),
        });
        let unsigned =
            |v: f64| if share { format!("±{:.1}", 100.0 * v) } else { format!("±{v:.4}") };
        line.push(row.band.map_or("–".to_owned(), unsigned));
        cells.push(line);
    }
    let times: Vec<Option<f64>> = arms
        .iter()
        .map(|arm| mean(&arm.runs.iter().filter_map(|run| run.step_seconds).collect::<Vec<_>>()))
        .collect();
    if times.iter().any(Option::is_some) {
        let mut line = vec!["step time".to_owned()];
        line.extend(
            times.iter().map(|t| t.map_or("–".to_owned(), |t| format!("{:.1} ms", 1000.0 * t))),
        );
        let base = arms
            .iter()
            .position(|a| a.role == Role::Base)
            .and_then(|i| times.get(i).copied().flatten());
        let treated = arms
            .iter()
            .position(|a| a.role == Role::Treatment)
            .and_then(|i| times.get(i).copied().flatten());
        line.push(match (base, treated) {
            (Some(base), Some(treated)) => format!("×{:.2}", treated / base),
            _ => "–".to_owned(),
        });
        line.extend(["–".to_owned(), "–".to_owned()]);
        cells.push(line);
    }
    let seeds = arms.iter().map(|arm| arm.runs.len()).min().unwrap_or(0);
    let caption = format!(
        "Means over {seeds} seeds; differences are treatment minus base, paired by seed. The A/A band is the \
         largest distance between the base and its repetition with other seeds: a difference inside it says nothing."
    );
    Table { head, rows: cells, caption }
}

impl Table {
    /// Columns aligned for a terminal.
    pub fn text(&self) -> String {
        let lines: Vec<&Vec<String>> = std::iter::once(&self.head).chain(&self.rows).collect();
        let columns = lines.iter().map(|line| line.len()).max().unwrap_or(0);
        let width = |column: usize| {
            lines
                .iter()
                .filter_map(|line| line.get(column))
                .map(|c| c.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for line in lines {
            let mut row = String::new();
            for (column, cell) in line.iter().enumerate() {
                let width = widths.get(column).copied().unwrap_or(0);
                let pad = " ".repeat(width - cell.chars().count());
                if column == 0 {
                    row.push_str(&format!("{cell}{pad}"));
                } else {
                    row.push_str(&format!("  {pad}{cell}"));
                }
            }
            text.push_str(row.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(loss: f64, right: f64) -> Curves {
        let metrics =
            BTreeMap::from([("answer tokens right".to_owned(), vec![(10, 0.0), (20, right)])]);
        Curves { loss: (1..=20).map(|s| (s, loss)).collect(), metrics, step_seconds: Some(0.01) }
    }

    #[test]
    fn differences_are_paired_by_seed() {
        let arm = |name: &str, role, runs: Vec<Curves>| Arm { name: name.to_owned(), role, runs };
        let arms = [
            arm("llama", Role::Base, vec![run(2.0, 0.5), run(3.0, 0.4)]),
            arm("llamacanon", Role::Treatment, vec![run(1.5, 0.75), run(2.75, 0.7)]),
            arm("llama again", Role::Again, vec![run(2.1, 0.5), run(2.8, 0.45)]),
        ];
        let rows = rows(&arms);
        assert_eq!(rows[0].metric, "training loss");
        assert_eq!(rows[0].paired, [-0.5, -0.25]);
        assert!((rows[0].band.unwrap() - 0.2).abs() < 1e-12);
        assert_eq!(rows[1].means[0], Some(0.45));
        let text = table(&arms).text();
        assert!(text.contains("-0.3750"), "{text}");
        assert!(text.contains("+25.0 … +30.0"), "{text}");
        assert!(text.contains("×1.00"), "{text}");
    }

    #[test]
    fn one_seed_says_nothing_of_spread() {
        let arms = [
            Arm { name: "a".into(), role: Role::Base, runs: vec![run(2.0, 0.5)] },
            Arm { name: "b".into(), role: Role::Treatment, runs: vec![run(1.0, 0.5)] },
        ];
        let table = table(&arms);
        assert_eq!(table.rows[0][4], "–");
        assert_eq!(table.rows[0][5], "–");
    }
}
