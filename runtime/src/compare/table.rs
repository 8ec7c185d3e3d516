//! Differences as text: cells and titles.
//!
//! In: a comparison. Out: one section for each treatment arm; where there is a grid the differences at every point of
//! it, by both ways of judging, and the means; and a caption, for a terminal and a page alike. Must stay true: shares
//! in percent, losses in nats, seconds as ratios; a mean over fewer runs than its arm has says so; no interval below
//! three seeds; an arm that is not controlled is called so above its numbers.

use super::caption::caption;
use super::diverged::{of_none, of_runs};
use super::interval::FEWEST;
use super::nuisance::{OF_BASE, PER_ARM};
use super::proved::NOT_CONTROLLED;
use super::{
    Comparison, Interval, Mean, Pair, Role, Row, Run, Unit, extreme, mean, mean_of, paired, unit,
};

/// Cells.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Table {
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

/// A table under its name; a comparison of two arms needs none.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Section {
    pub title: String,
    pub table: Table,
}

/// All there is to say in words and numbers.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Summary {
    pub sections: Vec<Section>,
    pub caption: String,
}

const NOTHING: &str = "–";

pub fn summary(comparison: &Comparison) -> Summary {
    let pairs = comparison.pairs();
    let mut sections: Vec<Section> = pairs.iter().map(|pair| section(comparison, pair)).collect();
    if comparison.points.len() > 1 {
        sections.push(each_point(comparison));
        sections.extend(both_rules(comparison));
        sections.push(grid(comparison));
    }
    Summary { sections, caption: caption(comparison, &pairs) }
}

/// The arm, and its point where there are several.
pub(crate) fn at(comparison: &Comparison, name: &str, point: usize) -> String {
    match comparison.points.get(point) {
        Some(label) if !label.is_empty() => format!("{name} ({label})"),
        Some(_) | None => name.to_owned(),
    }
}

/// What a pair is called; nothing where it is the only one.
pub(crate) fn title(comparison: &Comparison, pair: &Pair<'_>) -> String {
    let treated = comparison.arms.iter().filter(|arm| arm.role == Role::Treatment).count();
    let controlled = comparison.is_controlled(&pair.arm.name);
    if treated == 1 && comparison.points.len() == 1 && controlled {
        return String::new();
    }
    let named = format!(
        "{} against {}",
        at(comparison, &pair.arm.name, pair.arm_point),
        at(comparison, &pair.base.name, pair.base_point)
    );
    if controlled { named } else { format!("{named}: {NOT_CONTROLLED}") }
}

/// Heads of what [`spread`] makes.
fn spread_head(pair: Option<&Pair<'_>>) -> Vec<String> {
    let mut head =
        ["paired difference", "lowest … highest", "95% interval"].map(str::to_owned).to_vec();
    head.extend(pair.and_then(|pair| pair.again).map(|_| "A/A band".to_owned()));
    head
}

/// The mean difference, how far single ones lie apart, the interval, and the band.
fn spread(pair: &Pair<'_>, row: Option<&Row>) -> Vec<String> {
    let nothing = || NOTHING.to_owned();
    let Some(Row { metric: _, unit, means: _, paired: differences, interval, band }) = row else {
        return spread_head(Some(pair)).iter().map(|_| nothing()).collect();
    };
    let pairs = paired(pair.base_runs(), pair.arm_runs()).len();
    let mut line = vec![
        mean(differences)
            .map_or_else(nothing, |m| unit.difference(m.value) + &of_fewer(m.runs, pairs)),
        unit.range(differences).unwrap_or_else(nothing),
        unit.interval(differences, *interval),
    ];
    line.extend(pair.again.map(|_| band.map_or_else(nothing, |band| unit.width(band))));
    line
}

fn section(comparison: &Comparison, pair: &Pair<'_>) -> Section {
    let mut head = vec![String::new(), pair.base.name.clone(), pair.arm.name.clone()];
    head.extend(pair.again.map(|arm| arm.name.clone()));
    head.extend(spread_head(Some(pair)));
    let rows = pair.rows().into_iter().map(|row| cells(pair, row)).collect();
    Section { title: title(comparison, pair), table: Table { head, rows } }
}

fn cells(pair: &Pair<'_>, row: Row) -> Vec<String> {
    let mut line = vec![row.metric.clone()];
    let runs = [pair.base_runs(), pair.arm_runs(), pair.again_runs()];
    for (mean, runs) in row.means.iter().zip(runs) {
        line.push(mean_cell(row.unit, *mean, runs));
    }
    line.extend(spread(pair, Some(&row)));
    line
}

/// Of something counted: bits a parameter are few, bits are many.
fn decimals(value: f64) -> usize {
    if value.abs() < 100.0 { 4 } else { 0 }
}

fn mean_cell(unit: Unit, mean: Option<Mean>, runs: &[Run]) -> String {
    let Some(Mean { value, runs: had }) = mean else { return of_none(runs, NOTHING) };
    unit.value(value) + &of_runs(had, runs)
}

impl Unit {
    pub(crate) fn value(self, value: f64) -> String {
        match self {
            Unit::Nats => format!("{value:.4}"),
            Unit::Count => format!("{value:.0$}", decimals(value)),
            Unit::Share => format!("{:.1}%", 100.0 * value),
            Unit::Seconds => format!("{:.1} ms", 1000.0 * value),
        }
    }

    pub(crate) fn difference(self, value: f64) -> String {
        match self {
            Unit::Nats => format!("{value:+.4}"),
            Unit::Count => format!("{value:+.0$}", decimals(value)),
            Unit::Share => format!("{:+.1}", 100.0 * value),
            Unit::Seconds => format!("×{value:.2}"),
        }
    }

    /// From the lowest to the highest of several differences; of one there is no range.
    pub(crate) fn range(self, differences: &[f64]) -> Option<String> {
        let [low, high] =
            [f64::min, f64::max].map(|pick| extreme(differences.iter().copied(), pick));
        let (low, high) = (low?, high?);
        (differences.len() > 1)
            .then(|| format!("{} … {}", self.difference(low), self.difference(high)))
    }

    /// The interval, or why there is none.
    pub(crate) fn interval(self, differences: &[f64], interval: Option<Interval>) -> String {
        match (interval, differences.len()) {
            (Some(Interval { low, high, .. }), _) => {
                format!("{} … {}", self.difference(low), self.difference(high))
            }
            (None, 0) => NOTHING.to_owned(),
            (None, n) if n < FEWEST => format!("n = {n}: no interval"),
            (None, _) => "not all numbers: no interval".to_owned(),
        }
    }

    /// Of a band around nothing.
    pub(crate) fn width(self, value: f64) -> String {
        match self {
            Unit::Nats => format!("±{value:.4}"),
            Unit::Count => format!("±{value:.0$}", decimals(value)),
            Unit::Share => format!("±{:.1}", 100.0 * value),
            Unit::Seconds => format!("±{value:.2}"),
        }
    }
}

fn of_fewer(had: usize, all: usize) -> String {
    if had == all { String::new() } else { format!(" ({had} of {all})") }
}

/// The paired difference of the judged metric at every point: what no choice of points has made better.
fn each_point(comparison: &Comparison) -> Section {
    let metric = comparison.judged_by();
    let pairs = comparison.at_each_point();
    let mut head = vec![String::new(), "base".to_owned(), "treated".to_owned()];
    head.extend(spread_head(pairs.first()));
    let line = |pair: &Pair<'_>| {
        let mut line = vec![at(comparison, &pair.arm.name, pair.arm_point)];
        line.extend(judged_cells(pair, metric));
        line
    };
    let rows = pairs.iter().map(line).collect();
    Section {
        title: format!("{metric}, paired at each point of the grid"),
        table: Table { head, rows },
    }
}

/// The same where both ways of judging would have it, with which of them is locked.
fn both_rules(comparison: &Comparison) -> Option<Section> {
    let metric = comparison.judged_by();
    let every = comparison.at_each_point();
    let mut head: Vec<String> =
        ["", "base at", "treated at", "base", "treated"].map(str::to_owned).to_vec();
    head.extend(spread_head(every.first()));
    let mut rows = Vec::new();
    for (name, per_arm) in [(PER_ARM, true), (OF_BASE, false)] {
        let declared = if per_arm == comparison.selection.per_arm { " (declared)" } else { "" };
        for pair in comparison.judged(per_arm) {
            let place = |point: usize| comparison.points.get(point).cloned().unwrap_or_default();
            let mut line = vec![
                format!("{}: {name}{declared}", pair.arm.name),
                place(pair.base_point),
                place(pair.arm_point),
            ];
            line.extend(judged_cells(&pair, metric));
            rows.push(line);
        }
    }
    rows.sort_by_key(|row| {
        let name = row.first().and_then(|cell| cell.rsplit_once(": ")).map_or("", |(name, _)| name);
        comparison.arms.iter().position(|arm| arm.name == name)
    });
    let title = format!("{metric}, {PER_ARM} beside {OF_BASE}");
    (!rows.is_empty()).then_some(Section { title, table: Table { head, rows } })
}

/// Means of base and treated arm, and their difference.
fn judged_cells(pair: &Pair<'_>, metric: &str) -> Vec<String> {
    let row = pair.row(metric);
    let runs = [pair.base_runs(), pair.arm_runs()];
    let mean = |at: usize| row.as_ref().and_then(|row| row.means.get(at).copied().flatten());
    let means = runs.iter().enumerate();
    let mut line: Vec<String> =
        means.map(|(side, runs)| mean_cell(unit(metric), mean(side), runs)).collect();
    line.extend(spread(pair, row.as_ref()));
    line
}

/// Every arm at every point, by the metric that the rule goes by.
fn grid(comparison: &Comparison) -> Section {
    let metric = comparison.judged_by();
    let mut head = vec![String::new()];
    head.extend(comparison.arms.iter().map(|arm| arm.name.clone()));
    let rows = comparison.points.iter().enumerate().map(|(point, label)| {
        let mut row = vec![label.clone()];
        row.extend(comparison.arms.iter().map(|arm| {
            let runs: &[Run] = arm.points.get(point).map_or(&[], Vec::as_slice);
            let cell = mean_cell(unit(metric), mean_of(runs, metric), runs);
            let chosen = comparison.chosen(arm) == Some(point);
            if chosen { format!("{cell} *") } else { cell }
        }));
        row
    });
    let table = Table { rows: rows.collect(), head };
    Section { title: format!("{metric} at every point of the grid"), table }
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

impl Summary {
    /// Section after section, then the caption.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for Section { title, table } in &self.sections {
            if !title.is_empty() {
                text.push_str(&format!("{title}\n"));
            }
            text.push_str(&format!("{}\n", table.text()));
        }
        text.push_str(&format!("{}\n", self.caption));
        text
    }
}

#[cfg(test)]
mod tests {
    use compiler::lock::Choose;

    use super::super::tests::{arm, by, grid, proved, run, two_seeds};
    use super::*;

    #[test]
    fn two_arms_are_one_table() {
        let summary = summary(&two_seeds());
        let text = summary.text();
        assert_eq!(summary.sections.len(), 1);
        let head = &summary.sections[0].table.head;
        let wanted = [
            "",
            "llama",
            "canon",
            "llama again",
            "paired difference",
            "lowest … highest",
            "95% interval",
            "A/A band",
        ];
        assert_eq!(head[..], wanted);
        assert!(text.contains("n = 2: no interval") && !text.contains("percentile"), "{text}");
        for what in ["-0.3750", "+25.0 … +30.0", "×1.00 … ×1.00"] {
            assert!(text.contains(what), "{what}\n{text}");
        }
        assert!(text.contains("Means over seeds (llama 2, canon 2, llama again 1);"), "{text}");
    }

    #[test]
    fn what_there_is_none_of_is_not_spoken_of() {
        let mut comparison = two_seeds();
        comparison.arms.pop();
        for arm in &mut comparison.arms {
            arm.points[0].pop();
        }
        let summary = summary(&comparison);
        let Table { head, rows } = &summary.sections[0].table;
        assert_eq!(head.len(), 6);
        let first = ["training loss", "2.0000", "1.5000", "-0.5000", "–", "n = 1: no interval"];
        assert_eq!(rows[0], first);
        assert!(summary.caption.starts_with("Means over 1 seed;"), "{}", summary.caption);
        assert!(summary.caption.contains("There is no A/A arm"), "{}", summary.caption);
    }

    #[test]
    fn a_mean_over_fewer_runs_says_so() {
        let mut comparison = two_seeds();
        comparison.arms[1].points[0][0].curves.metrics.clear();
        let text = summary(&comparison).text();
        assert!(text.contains("2.7500 (1 of 2)") && text.contains("-0.2500 (1 of 2)"), "{text}");
    }

    #[test]
    fn every_arm_has_its_difference_at_its_named_point() {
        let summary = summary(&grid(by("loss", Choose::Least, true)));
        let titles: Vec<&str> = summary.sections.iter().map(|s| s.title.as_str()).collect();
        assert_eq!(
            titles,
            [
                "left (optimizer.lr 0.02) against base (optimizer.lr 0.01)",
                "right (optimizer.lr 0.01) against base (optimizer.lr 0.01)",
                "held-out loss, paired at each point of the grid",
                "held-out loss, best per arm beside best of the base for all",
                "held-out loss at every point of the grid",
            ]
        );
        let difference = |section: usize| summary.sections[section].table.rows[1][4].as_str();
        assert_eq!((difference(0), difference(1)), ("-0.5000", "-0.7500"));
        let Table { head, rows } = &summary.sections[4].table;
        assert_eq!(head[1..], ["base", "left", "right", "base again"]);
        assert_eq!(rows[0], ["optimizer.lr 0.01", "2.0000 *", "4.0000", "1.2500 *", "2.5000 *"]);
        assert_eq!(rows[1], ["optimizer.lr 0.02", "3.0000", "1.5000 *", "4.5000", "1.0000"]);
        assert!(summary.caption.contains("each arm is judged at its own point"));
    }

    #[test]
    fn a_rule_that_cannot_choose_says_so() {
        let summary = summary(&grid(by("answer_accuracy", Choose::Most, true)));
        assert_eq!(summary.sections.len(), 6);
        let said = "no point of base, left, right has that in every run";
        assert!(summary.caption.contains(said), "{}", summary.caption);
        assert!(!summary.text().contains('*'));
    }

    #[test]
    fn seconds_of_two_machines_are_not_compared() {
        let mut treated = run(0, 1.0, 0.5);
        treated.curves.timed_on = Some("there".to_owned());
        let comparison = Comparison {
            arms: vec![
                arm("a", Role::Base, vec![vec![run(0, 2.0, 0.5)]]),
                arm("b", Role::Treatment, vec![vec![treated]]),
            ],
            points: vec![String::new()],
            selection: by("loss", Choose::Least, true),
            proved: proved(&["b"], &[]),
        };
        let summary = summary(&comparison);
        let row = summary.sections[0].table.rows.last().unwrap();
        assert_eq!(row[..], ["step time", "10.0 ms", "10.0 ms", "–", "–", "–"]);
        assert!(summary.caption.contains("Step times of runs"), "{}", summary.caption);
    }
}
