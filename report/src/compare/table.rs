//! Differences as text: cells and titles.
//!
//! In: a comparison. Out: one section for each treatment arm; with a grid, also the differences at every point, by
//! both rules, and the means; and a caption, for a terminal and a page alike. Must stay true: every
//! number has its unit; a mean over fewer runs than its arm has says so; a missing interval has a reason; only
//! rows of the declared family have an adjusted p value and a word; an arm that is not controlled is called so above
//! its numbers.

use super::analysis::Member;
use super::caption::caption;
use super::diverged::{of_none, of_runs};
use super::nuisance::{OF_BASE, PER_ARM};
use super::proved::NOT_CONTROLLED;
use super::{
    AaNoise, Comparison, Design, DivergedSeeds, Mean, MeasuredOn, NoInterval, NoNoise, Pair, Role,
    Row, Run, Unit, analysis_of, costs, label, mean, mean_of, parts, unit,
};
use crate::statistics::paired::{Coverage, Paired, covers};
use crate::statistics::{Confidence, Effect, Judged, sequential};

/// A table's cells.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Table {
    /// The heads of the columns.
    pub head: Vec<String>,
    /// The cells of each row, as many as there are columns.
    pub rows: Vec<Vec<String>>,
    /// For each row `better`, `worse`, `equivalent` or `undecided`; empty for a row that is not judged.
    pub effects: Vec<&'static str>,
}

/// A titled table; a comparison of two arms needs no title.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Section {
    /// The title; empty if none is needed.
    pub title: String,
    /// The cells.
    pub table: Table,
}

/// All tables and sentences of a comparison.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Summary {
    /// The tables, in order.
    pub sections: Vec<Section>,
    /// Single differences and bootstrap intervals, only for a page.
    pub secondary: Vec<Section>,
    /// What the tables show, and how it was computed.
    pub caption: String,
    /// Important warnings: divergences, chosen seeds, edges of the grid.
    pub warnings: Vec<String>,
    /// Other facts: locks of the same arms.
    pub notes: Vec<String>,
}

pub(super) const NOTHING: &str = "–";

/// All tables and sentences of a comparison.
pub fn summary(comparison: &Comparison) -> Summary {
    let pairs = comparison.pairs();
    let family = comparison.family();
    let mut sections: Vec<Section> =
        pairs.iter().map(|pair| section(comparison, pair, &family)).collect();
    if comparison.points.len() > 1 {
        sections.push(each_point(comparison));
        sections.extend(both_rules(comparison));
        sections.push(grid(comparison));
    }
    sections.extend(costs::section(comparison));
    let secondary = pairs.iter().map(|pair| secondary(comparison, pair)).collect();
    let caption = caption(comparison, &pairs, &family);
    let (warnings, notes) = (comparison.warnings(), comparison.notes());
    Summary { sections, secondary, caption, warnings, notes }
}

/// The arm, and its point if there are several.
pub(crate) fn at(comparison: &Comparison, name: &str, point: usize) -> String {
    match comparison.points.get(point) {
        Some(label) if !label.is_empty() => format!("{name} ({label})"),
        Some(_) | None => name.to_owned(),
    }
}

/// A pair's title; empty for the only pair.
pub(crate) fn title(comparison: &Comparison, pair: &Pair<'_>) -> String {
    let treated = comparison.arms.iter().filter(|arm| arm.role == Role::Treatment).count();
    let controlled = pair.design() != Design::NotControlled;
    if treated == 1 && comparison.points.len() == 1 && controlled {
        return String::new();
    }
    let named = format!(
        "{} against {}",
        at(comparison, &pair.arm.name, pair.arm_point),
        at(comparison, &pair.base.name, pair.base_point)
    );
    match pair.design() {
        Design::NotControlled => format!("{named}: {NOT_CONTROLLED}"),
        Design::Tuned => format!("{named}: tuned"),
        Design::Controlled | Design::Bundle | Design::Compensated => named,
    }
}

/// Of intervals at another level than 95%.
const NOT_MEASURED: &str = " (coverage not measured at this level)";

/// The head of a column of intervals: the level that was asked for and the coverage that was reached.
pub(crate) fn interval_head<'r>(
    confidence: Confidence,
    rows: impl Iterator<Item = &'r Row>,
) -> String {
    let level = percent(confidence);
    let rows: Vec<&Row> = rows.collect();
    if let Some(among) = rows.iter().find_map(|row| row.chosen_among) {
        return format!("{level} interval ({})", among.text());
    }
    if rows.iter().any(|row| row.anytime) {
        let Coverage { normal, skewed } = sequential::COVERS;
        let reached = match confidence == Confidence::NINETY_FIVE {
            true => format!(" (covers {normal}% at all looks together, {skewed}% if skewed)"),
            false => NOT_MEASURED.to_owned(),
        };
        // Tables of several comparisons may have both kinds.
        let kind =
            if rows.iter().all(|row| row.anytime) { "anytime-valid" } else { "t or anytime-valid" };
        return format!("{level} {kind} interval{reached}");
    }
    // Coverage is measured at 95%. If the numbers of seeds differ, state the lowest.
    let least = rows.iter().filter_map(|row| row.result.ok()).map(|found| found.n).min();
    match least.and_then(|n| Some((n, covers(n)?))) {
        Some((n, reached)) if confidence == Confidence::NINETY_FIVE => format!(
            "{level} t interval (covers {}% at n = {n}, {}% if skewed)",
            reached.normal, reached.skewed
        ),
        Some(_) => format!("{level} t interval{NOT_MEASURED}"),
        None => format!("{level} t interval"),
    }
}

pub(crate) fn percent(confidence: Confidence) -> String {
    let share = format!("{:.4}", 100.0 * confidence.share());
    format!("{}%", share.trim_end_matches('0').trim_end_matches('.'))
}

/// Heads of the columns that [`spread`] makes.
fn spread_head<'r>(pair: Option<&Pair<'_>>, rows: impl Iterator<Item = &'r Row>) -> Vec<String> {
    let confidence = pair.map_or(Confidence::NINETY_FIVE, |pair| analysis_of(pair.of).confidence);
    let mut head = vec!["paired difference".to_owned(), interval_head(confidence, rows)];
    head.extend(pair.and_then(|pair| pair.replicate).map(|_| "A/A: SE of mean".to_owned()));
    head
}

/// The mean difference, its interval, and the difference of the base from its replicate.
fn spread(pair: &Pair<'_>, row: Option<&Row>) -> Vec<String> {
    let Some(row) = row else {
        let columns = 2 + usize::from(pair.replicate.is_some());
        return vec![NOTHING.to_owned(); columns];
    };
    let mut line = vec![row.difference_cell(pair.lost()), row.interval_cell()];
    line.extend(pair.replicate.map(|_| row.itself_cell()));
    line
}

fn section(comparison: &Comparison, pair: &Pair<'_>, family: &[Member]) -> Section {
    let rows = pair.rows();
    let flips = rows.iter().any(|row| row.sign_flip.is_some());
    let over = rows.iter().any(|row| row.over.is_some());
    let split = rows.iter().any(|row| row.parts.is_some());
    let mut head = vec![String::new(), pair.base.name.clone(), pair.arm.name.clone()];
    head.extend(pair.replicate.map(|arm| arm.name.clone()));
    head.extend(spread_head(Some(pair), rows.iter()));
    head.push("p".to_owned());
    if flips {
        head.push("sign-flip p".to_owned());
    }
    head.extend(["p, Holm", "effect"].map(str::to_owned));
    if over {
        head.push("measured on".to_owned());
    }
    if split {
        head.push("SE: seeds and questions".to_owned());
    }
    let mut effects = Vec::new();
    let line = |row: &Row| {
        let word = judged(family, pair, &row.metric);
        let mut line = cells(pair, row);
        line.push(p_cell(row.result.ok().map(|found| found.p)));
        if flips {
            line.push(p_cell(row.sign_flip.map(|flip| flip.p)));
        }
        line.extend(effect_cells(word, pair.lost().suffix(row.paired.len())));
        if over {
            line.push(over_cell(row));
        }
        if split {
            line.push(parts::cell(row.unit, row.parts).unwrap_or_else(|| NOTHING.to_owned()));
        }
        effects.push(word.map_or("", |word| word.effect.word()));
        line
    };
    let rows = rows.iter().map(line).collect();
    Section { title: title(comparison, pair), table: Table { head, rows, effects } }
}

/// The family's judgement of one row.
pub(crate) fn judged(family: &[Member], pair: &Pair<'_>, metric: &str) -> Option<Judged> {
    family.iter().find(|member| member.is_of(pair, metric)).map(|member| member.judged)
}

/// The adjusted p value, and the word, with its number of seeds if some diverged.
pub(crate) fn effect_cells(word: Option<Judged>, of_seeds: String) -> [String; 2] {
    let Some(Judged { effect, p_adjusted, within_margin, .. }) = word else {
        return [NOTHING.to_owned(), format!("exploratory{of_seeds}")];
    };
    let small = within_margin == Some(true) && matches!(effect, Effect::Better | Effect::Worse);
    let small = if small { ", within the margin" } else { "" };
    [p_cell(p_adjusted), format!("{}{small}{of_seeds}", effect.word())]
}

pub(crate) fn p_cell(p: Option<f64>) -> String {
    match p {
        None => NOTHING.to_owned(),
        Some(p) if p < 0.0001 => "<0.0001".to_owned(),
        Some(p) => format!("{p:.4}"),
    }
}

/// What each value was measured on.
pub(crate) fn over_cell(row: &Row) -> String {
    row.over.map_or_else(|| NOTHING.to_owned(), MeasuredOn::text)
}

fn cells(pair: &Pair<'_>, row: &Row) -> Vec<String> {
    let mut line = vec![label(&row.metric, row.seen)];
    let runs = [pair.base_runs(), pair.arm_runs(), pair.replicate_runs()];
    for (mean, runs) in row.means.iter().zip(runs) {
        line.push(mean_cell(row.unit, *mean, runs));
    }
    line.extend(spread(pair, Some(row)));
    line
}

/// Single differences and their bootstrap interval.
fn secondary(comparison: &Comparison, pair: &Pair<'_>) -> Section {
    let head = ["", "lowest … highest", "95% bootstrap interval", "covers"];
    let line = |row: Row| {
        let nothing = || NOTHING.to_owned();
        let covered = row.bootstrap.and_then(|found| super::interval::covers(found.n));
        vec![
            label(&row.metric, row.seen),
            row.unit.range(&row.paired).unwrap_or_else(nothing),
            row.unit.bootstrap(row.bootstrap),
            covered.map_or_else(nothing, |percent| format!("{percent}%")),
        ]
    };
    let rows = pair.rows().into_iter().map(line).collect();
    Section {
        title: title(comparison, pair),
        table: Table::plain(head.map(str::to_owned).to_vec(), rows),
    }
}

impl Row {
    /// The mean difference; for times, the geometric mean of ratios.
    pub(crate) fn mean_difference(&self) -> Option<f64> {
        match self.unit {
            Unit::Seconds => {
                let logs: Vec<f64> = self.paired.iter().map(|ratio| libm::log(*ratio)).collect();
                mean(&logs).map(|mean| libm::exp(mean.value))
            }
            Unit::Nats | Unit::Share | Unit::Count | Unit::Unknown => {
                mean(&self.paired).map(|mean| mean.value)
            }
        }
    }

    /// The mean difference, with the number of pairs it covers.
    pub(crate) fn difference_cell(&self, lost: DivergedSeeds) -> String {
        let found = self.mean_difference();
        found.map_or_else(
            || NOTHING.to_owned(),
            |mean| self.unit.difference(mean) + &lost.suffix(self.paired.len()),
        )
    }

    /// Ends of the interval, in the unit of differences.
    pub(crate) fn ends(&self) -> Option<(f64, f64)> {
        let Paired { low, high, .. } = self.result.ok()?;
        Some(match self.unit {
            Unit::Seconds => (libm::exp(low), libm::exp(high)),
            Unit::Nats | Unit::Share | Unit::Count | Unit::Unknown => (low, high),
        })
    }

    /// The interval, or why there is none.
    pub(crate) fn interval_cell(&self) -> String {
        match (self.result, self.ends()) {
            (Ok(_), Some((low, high))) => self.unit.between(low, high),
            (Err(_), _) if self.paired.is_empty() => NOTHING.to_owned(),
            (Err(why), _) => NoInterval::brief(why),
            (Ok(_), None) => NOTHING.to_owned(),
        }
    }

    /// The difference of the base from its replicate, or why it is unknown.
    pub(crate) fn itself_cell(&self) -> String {
        match self.itself {
            None => NOTHING.to_owned(),
            Some(Ok(AaNoise::OfMean(of))) => self.unit.width(of.standard_error),
            Some(Ok(AaNoise::Ratio(ratio))) => format!("×{ratio:.2} (A/A)"),
            Some(Err(why)) => NoNoise::brief(why),
        }
    }
}

pub(crate) fn mean_cell(unit: Unit, mean: Option<Mean>, runs: &[Run]) -> String {
    let Some(Mean { value, runs: had }) = mean else { return of_none(runs, NOTHING) };
    unit.value(value) + &of_runs(had, runs)
}

/// The paired difference of the judged metric at every point, which no choice of points can improve.
fn each_point(comparison: &Comparison) -> Section {
    let metric = comparison.judged_by();
    let pairs = comparison.at_each_point();
    let mut head = vec![String::new(), "base".to_owned(), "treated".to_owned()];
    let judged_rows: Vec<Row> = pairs.iter().filter_map(|pair| pair.row(metric)).collect();
    head.extend(spread_head(pairs.first(), judged_rows.iter()));
    let line = |pair: &Pair<'_>| {
        let mut line = vec![at(comparison, &pair.arm.name, pair.arm_point)];
        line.extend(judged_cells(pair, metric));
        line
    };
    let rows = pairs.iter().map(line).collect();
    Section {
        title: format!("{}, paired at each point of the grid", comparison.label(metric)),
        table: Table::plain(head, rows),
    }
}

/// The same at the points of both rules, with the locked one marked.
fn both_rules(comparison: &Comparison) -> Option<Section> {
    let metric = comparison.judged_by();
    let every = comparison.at_each_point();
    let mut head: Vec<String> =
        ["", "base at", "treated at", "base", "treated"].map(str::to_owned).to_vec();
    let judged_rows: Vec<Row> = every.iter().filter_map(|pair| pair.row(metric)).collect();
    head.extend(spread_head(every.first(), judged_rows.iter()));
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
    let title = format!("{}, {PER_ARM} and {OF_BASE}", comparison.label(metric));
    (!rows.is_empty()).then_some(Section { title, table: Table::plain(head, rows) })
}

/// Means of the base and the treated arm, and their difference.
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

/// The rule's metric for every arm at every point.
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
    let table = Table::plain(head, rows.collect());
    Section { title: format!("{} at every point of the grid", comparison.label(metric)), table }
}

impl Table {
    /// A table without judged rows.
    pub(crate) fn plain(head: Vec<String>, rows: Vec<Vec<String>>) -> Table {
        let effects = vec![""; rows.len()];
        Table { head, rows, effects }
    }

    /// The table as text, with columns aligned for a terminal.
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
    /// All sections, then the caption, the warnings and the notes.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for Section { title, table } in &self.sections {
            if !title.is_empty() {
                text.push_str(&format!("{title}\n"));
            }
            text.push_str(&format!("{}\n", table.text()));
        }
        for line in std::iter::once(&self.caption).chain(&self.warnings).chain(&self.notes) {
            text.push_str(&format!("{line}\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use lab::comparison::SelectionMode;

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
            "llama replicate",
            "paired difference",
            "95% t interval",
            "A/A: SE of mean",
            "p",
            "p, Holm",
            "effect",
            "measured on",
            "SE: seeds and questions",
        ];
        assert_eq!(head[..], wanted);
        assert!(text.contains("n = 2: no interval") && !text.contains("bootstrap"), "{text}");
        assert_eq!(summary.secondary[0].table.rows[2][1], "+25.0 … +30.0 pp");
        for what in ["-0.3750 nats", "+27.5 pp", "×1.00", "200 tokens", "900 targets"] {
            assert!(text.contains(what), "{what}\n{text}");
        }
        assert!(text.contains("Means over seeds (llama 2, canon 2, llama replicate 1);"), "{text}");
    }

    #[test]
    fn what_there_is_none_of_is_not_spoken_of() {
        let mut comparison = two_seeds();
        comparison.arms.pop();
        for arm in &mut comparison.arms {
            arm.points[0].pop();
        }
        let summary = summary(&comparison);
        let Table { head, rows, .. } = &summary.sections[0].table;
        assert_eq!(head.len(), 10);
        let first = ["2.0000 nats", "1.5000 nats", "-0.5000 nats", "n = 1: no interval", "–", "–"];
        assert_eq!(rows[0][1..7], first);
        assert_eq!((rows[0][7].as_str(), rows[1][7].as_str()), ("exploratory", "undecided"));
        assert!(summary.caption.starts_with("Means over 1 seed;"), "{}", summary.caption);
        assert!(summary.caption.contains("The comparison has no A/A arm"), "{}", summary.caption);
    }

    #[test]
    fn a_mean_over_fewer_runs_says_so() {
        let mut comparison = two_seeds();
        comparison.arms[1].points[0][0].curves.metrics.clear();
        let text = summary(&comparison).text();
        assert!(
            text.contains("2.7500 nats (1 of 2)") && text.contains("-0.2500 nats (1 of 2)"),
            "{text}"
        );
    }

    #[test]
    fn every_arm_has_its_difference_at_its_named_point() {
        let summary = summary(&grid(by("eval_loss", SelectionMode::Min, true)));
        let titles: Vec<&str> = summary.sections.iter().map(|s| s.title.as_str()).collect();
        assert_eq!(
            titles,
            [
                "left (optimizer.lr 0.02) against base (optimizer.lr 0.01): tuned",
                "right (optimizer.lr 0.01) against base (optimizer.lr 0.01)",
                "eval_loss, paired at each point of the grid",
                "eval_loss, best per arm and best of the base for all",
                "eval_loss at every point of the grid",
            ]
        );
        let difference = |section: usize| summary.sections[section].table.rows[1][4].as_str();
        assert_eq!((difference(0), difference(1)), ("-0.5000 nats", "-0.7500 nats"));
        let Table { head, rows, .. } = &summary.sections[4].table;
        assert_eq!(head[1..], ["base", "left", "right", "base replicate"]);
        let cells = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
        let first = ["2.0000 nats *", "4.0000 nats", "1.2500 nats *", "2.5000 nats *"];
        assert_eq!(rows[0][1..], cells(first));
        let second = ["3.0000 nats", "1.5000 nats *", "4.5000 nats", "1.0000 nats"];
        assert_eq!(rows[1][1..], cells(second));
        assert!(summary.caption.contains("each arm is judged at its own point"));
    }

    #[test]
    fn a_rule_that_cannot_choose_says_so() {
        let summary = summary(&grid(by("exact_match", SelectionMode::Max, true)));
        assert_eq!(summary.sections.len(), 6);
        let said = "no point of base, left, right has it in every run";
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
            selection: by("eval_loss", SelectionMode::Min, true),
            proved: proved(&["b"], &[]),
        };
        let summary = summary(&comparison);
        let row = summary.sections[0].table.rows.last().unwrap();
        assert_eq!(row[..5], ["step time", "10.0 ms", "10.0 ms", "–", "–"]);
        assert!(summary.caption.contains("Step times are compared only"), "{}", summary.caption);
    }
}
