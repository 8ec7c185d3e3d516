//! Differences as text: cells, titles and what has to be said beside them.
//!
//! In: a comparison. Out: one section for each treatment arm, one for the grid where there is one, and a caption, for
//! a terminal and a page alike. Must stay true: shares in percent, losses in nats, seconds as ratios; a mean over
//! fewer runs than its arm has says so; where the rule could not choose a point, or seconds are of several machines,
//! the caption says that.

use super::{Comparison, Mean, Pair, Role, Row, Run, Unit, mean, mean_of, paired, unit};

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
    if treated == 1 && comparison.points.len() == 1 {
        return String::new();
    }
    format!(
        "{} against {}",
        at(comparison, &pair.arm.name, pair.arm_point),
        at(comparison, &pair.base.name, pair.base_point)
    )
}

fn section(comparison: &Comparison, pair: &Pair<'_>) -> Section {
    let mut head = vec![String::new(), pair.base.name.clone(), pair.arm.name.clone()];
    head.extend(pair.again.map(|arm| arm.name.clone()));
    head.extend(["paired difference".to_owned(), "lowest … highest".to_owned()]);
    head.extend(pair.again.map(|_| "A/A band".to_owned()));
    let rows = pair.rows().into_iter().map(|row| cells(pair, row)).collect();
    Section { title: title(comparison, pair), table: Table { head, rows } }
}

fn cells(pair: &Pair<'_>, row: Row) -> Vec<String> {
    let Row { metric, unit, means, paired: differences, band } = row;
    let (base, arm, again) = (pair.base_runs(), pair.arm_runs(), pair.again_runs());
    let mut line = vec![metric];
    for (mean, runs) in means.iter().zip([base, arm, again]) {
        line.push(mean_cell(unit, *mean, runs.len()));
    }
    let difference = |value: f64| unit.difference(value);
    let pairs = paired(base, arm).len();
    line.push(
        mean(&differences).map_or(NOTHING.to_owned(), |mean| {
            difference(mean.value) + &of_fewer(mean.runs, pairs)
        }),
    );
    let low = differences.iter().copied().reduce(f64::min);
    let high = differences.iter().copied().reduce(f64::max);
    line.push(match (low, high) {
        (Some(low), Some(high)) if differences.len() > 1 => {
            format!("{} … {}", difference(low), difference(high))
        }
        _ => NOTHING.to_owned(),
    });
    let width = |value: f64| unit.width(value);
    line.extend(pair.again.map(|_| band.map_or(NOTHING.to_owned(), width)));
    line
}

/// Of something counted: bits a parameter are few, bits are many.
fn decimals(value: f64) -> usize {
    if value.abs() < 100.0 { 4 } else { 0 }
}

fn mean_cell(unit: Unit, mean: Option<Mean>, runs: usize) -> String {
    let Some(Mean { value, runs: had }) = mean else { return NOTHING.to_owned() };
    let shown = unit.value(value);
    shown + &of_fewer(had, runs)
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

/// Every arm at every point, by the metric that the rule goes by.
fn grid(comparison: &Comparison) -> Section {
    let metric = comparison.judged_by();
    let mut head = vec![String::new()];
    head.extend(comparison.arms.iter().map(|arm| arm.name.clone()));
    let rows = comparison.points.iter().enumerate().map(|(point, label)| {
        let mut row = vec![label.clone()];
        row.extend(comparison.arms.iter().map(|arm| {
            let runs: &[Run] = arm.points.get(point).map_or(&[], Vec::as_slice);
            let cell = mean_cell(unit(metric), mean_of(runs, metric), runs.len());
            let chosen = comparison.chosen(arm) == Some(point);
            if chosen { format!("{cell} *") } else { cell }
        }));
        row
    });
    let table = Table { rows: rows.collect(), head };
    Section { title: format!("{metric} at every point of the grid"), table }
}

fn caption(comparison: &Comparison, pairs: &[Pair<'_>]) -> String {
    let mut said = vec![seeds(comparison)];
    if comparison.points.len() > 1 {
        said.push(rule(comparison));
    }
    if comparison.arms.iter().any(|arm| arm.role == Role::Again) {
        said.push(
            "The A/A band is the largest distance between the base and its repetition with other seeds: a \
             difference inside it says nothing."
                .to_owned(),
        );
    } else {
        said.push(
            "There is no A/A arm, so nothing here says how large a difference has to be to mean anything."
                .to_owned(),
        );
    }
    let timed = |runs: &[Run]| runs.iter().any(|run| run.curves.step_seconds.is_some());
    let apart = |pair: &Pair<'_>| {
        let (base, arm) = (pair.base_runs(), pair.arm_runs());
        let alike = |(a, b): (&Run, &Run)| {
            a.curves.timed_on.is_some() && a.curves.timed_on == b.curves.timed_on
        };
        timed(base) && timed(arm) && !paired(base, arm).into_iter().all(alike)
    };
    if pairs.iter().any(apart) {
        said.push(
            "Step times of runs that had not the same platform and machine are not compared."
                .to_owned(),
        );
    }
    said.join(" ")
}

fn seeds(comparison: &Comparison) -> String {
    let counts: Vec<(&str, usize)> = comparison
        .arms
        .iter()
        .map(|arm| (arm.name.as_str(), arm.points.iter().map(Vec::len).min().unwrap_or(0)))
        .collect();
    let first = counts.first().map_or(0, |(_, count)| *count);
    let over = if counts.iter().all(|(_, count)| *count == first) {
        format!("{first} seed{}", if first == 1 { "" } else { "s" })
    } else {
        let each: Vec<String> =
            counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
        format!("seeds ({})", each.join(", "))
    };
    let times = comparison
        .arms
        .iter()
        .flat_map(|arm| arm.points.iter().flatten())
        .any(|run| run.curves.step_seconds.is_some());
    let ratio = if times { " (of step times treatment over base)" } else { "" };
    format!("Means over {over}; differences are treatment minus base{ratio}, paired by seed.")
}

/// The selection rule, and what it came to.
fn rule(comparison: &Comparison) -> String {
    let metric = comparison.judged_by();
    let which = match comparison.selection.choose {
        compiler::lock::Choose::Least => "least",
        compiler::lock::Choose::Most => "most",
    };
    let rule = if comparison.selection.per_arm {
        format!("each arm is judged at its own point of the grid with the {which} {metric}")
    } else {
        format!("every arm is judged at the base's point of the grid with the {which} {metric}")
    };
    // The arms that the rule looks at.
    let looked_at = |role| match role {
        Role::Base => true,
        Role::Treatment => comparison.selection.per_arm,
        Role::Again => false,
    };
    let lacking: Vec<&str> = comparison
        .arms
        .iter()
        .filter(|arm| looked_at(arm.role) && comparison.best(arm).is_none())
        .map(|arm| arm.name.as_str())
        .collect();
    if lacking.is_empty() {
        return format!(
            "By the locked rule {rule} (*), on the held-out windows that are reported here; the base again is \
             judged where the base is."
        );
    }
    format!(
        "By the locked rule {rule}, but no point of {} has that in every run: what the rule cannot judge is shown \
         at every point, and none of these is chosen.",
        lacking.join(", ")
    )
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

    use super::super::tests::{arm, by, grid, run, two_seeds};
    use super::*;

    #[test]
    fn two_arms_are_one_table() {
        let summary = summary(&two_seeds());
        let text = summary.text();
        assert_eq!(summary.sections.len(), 1);
        let head = &summary.sections[0].table.head;
        let wanted = ["", "llama", "canon", "llama again", "paired difference", "lowest … highest"];
        assert_eq!(head[..6], wanted);
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
        assert_eq!(head.len(), 5);
        assert_eq!(rows[0], ["training loss", "2.0000", "1.5000", "-0.5000", "–"]);
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
                "held-out loss at every point of the grid",
            ]
        );
        let difference = |section: usize| summary.sections[section].table.rows[1][4].as_str();
        assert_eq!((difference(0), difference(1)), ("-0.5000", "-0.7500"));
        let Table { head, rows } = &summary.sections[2].table;
        assert_eq!(head[1..], ["base", "left", "right", "base again"]);
        assert_eq!(rows[0], ["optimizer.lr 0.01", "2.0000 *", "4.0000", "1.2500 *", "2.5000 *"]);
        assert_eq!(rows[1], ["optimizer.lr 0.02", "3.0000", "1.5000 *", "4.5000", "1.0000"]);
        assert!(summary.caption.contains("each arm is judged at its own point"));
    }

    #[test]
    fn a_rule_that_cannot_choose_says_so() {
        let summary = summary(&grid(by("answer_accuracy", Choose::Most, true)));
        assert_eq!(summary.sections.len(), 5);
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
        };
        let summary = summary(&comparison);
        let row = summary.sections[0].table.rows.last().unwrap();
        assert_eq!(row[..], ["step time", "10.0 ms", "10.0 ms", "–", "–"]);
        assert!(summary.caption.contains("Step times of runs"), "{}", summary.caption);
    }
}
