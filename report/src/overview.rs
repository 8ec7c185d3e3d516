//! Several comparisons in one table and one picture: which treatment helps which base, on which task.
//!
//! In: finished comparisons, each with its training task. Out: a line for each treatment arm, and an SVG
//! with a panel for each task. Must stay true: every number also appears in the comparison's own table, under its
//! primary metric; all lines form one family, so that looking at more of them does not find more by chance; a mean is
//! shown with each of its runs; an arm without a proof of control is marked so in the table and in the picture;
//! the picture is also readable without colour.

use std::fmt::Write as _;

use compiler::draw::escaped;

use crate::compare::{
    Comparison, Design, NOT_CONTROLLED, Pair, Row, Table, Unit, analysis_of, at, diverged,
    effect_cells, interval_head, judged, level, mean_cell, over_cell, p_cell, percent, strictest,
    together,
};
use crate::statistics::{Confidence, Judged};

/// A comparison and its task.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The task's name.
    pub task: &'a str,
    /// The comparison.
    pub comparison: &'a Comparison,
}

/// A treatment arm against its base, by the lock's metric.
struct Line<'a> {
    task: &'a str,
    metric: String,
    comparison: &'a Comparison,
    pair: Pair<'a>,
    /// `None` if no run has the metric.
    row: Option<Row>,
    /// The line's word, in the family of all lines.
    judged: Option<Judged>,
}

impl Line<'_> {
    fn is_proved(&self) -> bool {
        self.pair.design() != Design::NotControlled
    }
}

fn lines<'a>(entries: &[Entry<'a>]) -> Vec<Line<'a>> {
    let comparisons: Vec<&Comparison> = entries.iter().map(|entry| entry.comparison).collect();
    let mut lines = Vec::new();
    for (Entry { task, comparison }, family) in entries.iter().zip(together(&comparisons)) {
        let metric = analysis_of(comparison).primary;
        for pair in comparison.pairs() {
            let row = pair.row(&metric);
            let (metric, judged) = (metric.clone(), judged(&family, &pair, &metric));
            lines.push(Line { task, metric, comparison, pair, row, judged });
        }
    }
    lines.sort_by(|a, b| (a.task, &a.metric).cmp(&(b.task, &b.metric)));
    lines
}

/// One line for each treatment arm, grouped by task.
pub fn table(entries: &[Entry<'_>]) -> Table {
    let lines = lines(entries);
    let common = common(entries);
    let interval = match common {
        Some(confidence) => {
            interval_head(confidence, lines.iter().filter_map(|line| line.row.as_ref()))
        }
        None => "interval, at the level of its row".to_owned(),
    };
    let head = [
        "task",
        "metric",
        "base",
        "",
        "treated",
        "",
        "difference",
        interval.as_str(),
        "p",
        "p, Holm",
        "effect",
        "A/A: SE of mean",
        "measured on",
        "design",
    ];
    let rows = lines.iter().map(|Line { task, metric, comparison, pair, row, judged }| {
        let nothing = || "–".to_owned();
        let [base, arm] = [0, 1].map(|at| {
            let mean = row.as_ref().and_then(|row| row.means.get(at).copied().flatten());
            let runs = if at == 0 { pair.base_runs() } else { pair.arm_runs() };
            mean_cell(row.as_ref().map_or(Unit::Unknown, |row| row.unit), mean, runs)
        });
        let lost = pair.lost();
        let of_seeds = lost.suffix(row.as_ref().map_or(0, |row| row.paired.len()));
        let of_row = |cell: fn(&Row) -> String| row.as_ref().map_or_else(nothing, cell);
        let [adjusted, effect] = effect_cells(*judged, of_seeds);
        vec![
            (*task).to_owned(),
            pair.label(metric),
            at(comparison, &pair.base.name, pair.base_point),
            base,
            at(comparison, &pair.arm.name, pair.arm_point),
            arm,
            row.as_ref().map_or_else(nothing, |row| row.difference_cell(lost)),
            match (common, row) {
                (None, Some(row)) if row.result.is_ok() => {
                    format!(
                        "{} ({})",
                        row.interval_cell(),
                        percent(analysis_of(comparison).confidence)
                    )
                }
                _ => of_row(Row::interval_cell),
            },
            p_cell(row.as_ref().and_then(|row| Some(row.result.ok()?.p))),
            adjusted,
            effect,
            of_row(Row::itself_cell),
            of_row(over_cell),
            pair.standing(),
        ]
    });
    let effects = lines.iter().map(|line| line.judged.map_or("", |word| word.effect.word()));
    Table {
        rows: rows.collect(),
        effects: effects.collect(),
        head: head.map(str::to_owned).to_vec(),
    }
}

/// The level of all intervals; `None` where they have several.
fn common(entries: &[Entry<'_>]) -> Option<Confidence> {
    let mut levels = entries.iter().map(|entry| analysis_of(entry.comparison).confidence);
    let first = levels.next().unwrap_or(Confidence::NINETY_FIVE);
    levels.all(|level| level == first).then_some(first)
}

/// What has to be said with the table.
pub fn caption(entries: &[Entry<'_>]) -> String {
    let lines = lines(entries);
    let comparisons: Vec<&Comparison> = entries.iter().map(|entry| entry.comparison).collect();
    let anytime = lines.iter().any(|line| line.row.as_ref().is_some_and(|row| row.anytime));
    let test = match anytime {
        false => "paired t test",
        true => "paired t test, or of the anytime-valid one where a stopping rule is declared,",
    };
    let tests: usize = together(&comparisons).iter().map(Vec::len).sum();
    let family = match tests {
        1 => "One test".to_owned(),
        _ => format!("One family of {tests} tests"),
    };
    let family = match lines.len() > tests {
        true => format!(
            "{family} (an arm without a selected point has a line for each point, and counts once)"
        ),
        false => family,
    };
    if lines.iter().all(|line| line.judged.is_none_or(|word| word.p_adjusted.is_none())) {
        return format!(
            "{family}, none with a p value, so nothing is decided. The design says what the arms differ in by their \
             locks, not how large the effect is."
        );
    }
    format!(
        "{family}: p is that of the {test} of each line, and Holm's adjustment counts all lines \
         at level {}. The design shows how the arms differ by their locks, not how large the effect is.",
        level(strictest(&comparisons))
    )
}

/// Least width of a panel.
const PANEL: f64 = 320.0;
/// Width that panels next to each other fill before the next row begins.
const ROW: f64 = 1000.0;
/// Room of a panel beside its bars.
const RIGHT: f64 = 36.0;
/// Width of a character at the size of the labels.
const CHARACTER: f64 = 6.4;
const HEIGHT: f64 = 190.0;
const LEFT: f64 = 52.0;
const TOP: f64 = 46.0;

/// The same as a picture: base and treated arm next to each other, a dot for each run.
pub fn picture(entries: &[Entry<'_>]) -> String {
    let lines = lines(entries);
    let mut panels: Vec<(&str, &str)> =
        lines.iter().map(|line| (line.task, line.metric.as_str())).collect();
    panels.dedup();
    let of_panel = |of: &(&str, &str)| -> Vec<&Line<'_>> {
        lines.iter().filter(|line| (line.task, line.metric.as_str()) == *of).collect()
    };
    let wide = panels.iter().map(|of| room(&of_panel(of))).fold(PANEL, f64::max);
    let columns = ((ROW / wide) as usize).clamp(1, panels.len().max(1));
    let rows = panels.len().div_ceil(columns).max(1);
    let down = TOP + HEIGHT + 56.0;
    let (width, height) = (LEFT + wide * columns as f64, down * rows as f64 + 20.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"system-ui, sans-serif\" \
         font-size=\"11\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for (at, of) in panels.iter().enumerate() {
        let (row, column) = (at / columns, at % columns);
        let left = LEFT + wide * column as f64;
        if row > 0 {
            let _ = writeln!(svg, "<g transform=\"translate(0 {})\">", down * row as f64);
        }
        panel(&mut svg, (left, left + wide - RIGHT), of.0, &of_panel(of));
        if row > 0 {
            svg.push_str("</g>\n");
        }
    }
    let y = height - 14.0;
    let open = lines.iter().any(|line| !line.is_proved());
    let open =
        if open { "; dashed: not controlled, so more than the treatment differs" } else { "" };
    let _ = write!(
        svg,
        "<text x=\"{LEFT}\" y=\"{y}\" fill=\"#59636e\">open: base; filled: treated; bars are means, dots single \
         seeds{open}</text>\n</svg>\n"
    );
    svg
}

/// The two labels below a pair of bars.
fn labels(line: &Line<'_>) -> [String; 2] {
    let (base, arm) = (&line.pair.base.name, &line.pair.arm.name);
    [base.clone(), format!("+ {}", beyond(base, arm))]
}

/// The width in which no label of a panel touches its neighbour.
fn room(lines: &[&Line<'_>]) -> f64 {
    let longest =
        lines.iter().flat_map(|line| labels(line)).map(|label| label.chars().count()).max();
    RIGHT + lines.len() as f64 * (CHARACTER * longest.unwrap_or(0) as f64 + 10.0)
}

fn panel(svg: &mut String, (left, right): (f64, f64), task: &str, lines: &[&Line<'_>]) {
    let Some(first) = lines.first() else { return };
    // If training contained the questions of any line, the panel says so.
    let open = lines.iter().any(|line| line.pair.label(&line.metric) != line.metric);
    let named =
        if open { format!("{} (not held out)", first.metric) } else { first.metric.clone() };
    let unit = lines.iter().find_map(|line| Some(line.row.as_ref()?.unit)).unwrap_or(Unit::Nats);
    let values = |line: &Line<'_>| {
        [line.pair.base_runs(), line.pair.arm_runs()].map(|runs| {
            let last = |run: &crate::compare::Run| run.curves.last(&line.metric);
            runs.iter().filter_map(last).collect::<Vec<f64>>()
        })
    };
    let most = lines.iter().flat_map(|line| values(line).concat()).fold(0.0, f64::max);
    let top = match unit {
        Unit::Share => 1.0,
        Unit::Nats | Unit::Count | Unit::Unknown | Unit::Seconds => {
            most.max(f64::MIN_POSITIVE) * 1.05
        }
    };
    let y = |value: f64| TOP + HEIGHT * (1.0 - (value / top).clamp(0.0, 1.0));
    let _ = writeln!(
        svg,
        "<text x=\"{left}\" y=\"20\" font-size=\"14\" font-weight=\"600\" fill=\"#1b1f24\">{}</text><text x=\"{left}\" \
         y=\"36\" fill=\"#59636e\">{}</text>",
        escaped(task),
        escaped(&named)
    );
    for part in 0..=4 {
        let value = top * f64::from(part) / 4.0;
        let at = y(value);
        let _ = writeln!(
            svg,
            "<line x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#d1d9e0\"/><text x=\"{:.1}\" \
             y=\"{:.1}\" text-anchor=\"end\" fill=\"#59636e\">{}</text>",
            left - 5.0,
            at + 4.0,
            unit.value(value)
        );
    }
    let step = (right - left) / lines.len() as f64;
    let bar = (step * 0.3).min(34.0);
    for (at, line) in lines.iter().enumerate() {
        let middle = left + step * (at as f64 + 0.5);
        for (side, (runs, fill)) in values(line).iter().zip(["#ffffff", "#0969da"]).enumerate() {
            if runs.is_empty() {
                continue;
            }
            let x = middle + (side as f64 - 1.0) * (bar + 3.0) + 1.5;
            let height = y(runs.iter().sum::<f64>() / runs.len() as f64);
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{height:.1}\" width=\"{bar:.1}\" height=\"{:.1}\" fill=\"{fill}\" fill-opacity=\"0.75\" \
                 stroke=\"{}\"/>",
                y(0.0) - height,
                if line.is_proved() { "#0550ae" } else { "#b35900\" stroke-dasharray=\"4 3" }
            );
            for (seed, value) in runs.iter().enumerate() {
                let x = x + bar * (seed as f64 + 1.0) / (runs.len() as f64 + 1.0);
                let _ = writeln!(
                    svg,
                    "<circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"2.2\" fill=\"#1b1f24\"/>",
                    y(*value)
                );
            }
        }
        let [base, treated] = labels(line);
        let _ = writeln!(
            svg,
            "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#1b1f24\">{}</text><text x=\"{middle:.1}\" \
             y=\"{:.1}\" text-anchor=\"middle\" fill=\"#59636e\">{}</text>",
            TOP + HEIGHT + 16.0,
            escaped(&base),
            TOP + HEIGHT + 30.0,
            escaped(&treated)
        );
        let counts = [line.pair.base_runs(), line.pair.arm_runs()]
            .map(|runs| (diverged(runs), runs.len()))
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, of)| format!("{count} of {of} diverged"));
        let counts: Vec<String> = counts.collect();
        if !counts.is_empty() {
            let _ = writeln!(
                svg,
                "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#b3261e\">{}</text>",
                TOP - 4.0,
                counts.join(", ")
            );
        }
        let design = match line.pair.design() {
            Design::NotControlled => Some(NOT_CONTROLLED),
            Design::Tuned => Some("tuned"),
            Design::Controlled | Design::Compensated | Design::Bundle => None,
        };
        if let Some(design) = design {
            let _ = writeln!(
                svg,
                "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#b35900\">{design}</text>",
                TOP + HEIGHT + 44.0
            );
        }
    }
}

/// The part of an arm's name beyond its base's: `canon` for `gla` and `gla_canon`.
fn beyond<'n>(base: &str, arm: &'n str) -> &'n str {
    let rest = arm.strip_prefix(base).map_or(arm, |rest| rest.trim_start_matches('_'));
    if rest.is_empty() { arm } else { rest }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::two_seeds;

    #[test]
    fn a_line_and_bars_for_each_treatment_arm() {
        let comparison = two_seeds();
        let entry = |task| Entry { task, comparison: &comparison };
        let entries = [entry("mano"), entry("depo <K=2>")];
        let Table { head, rows, .. } = table(&entries);
        assert_eq!(head.len(), rows[0].len());
        let line = [
            "eval_loss",
            "llama",
            "2.5000 nats",
            "canon",
            "2.1250 nats",
            "-0.3750 nats",
            "n = 2: no interval",
            "–",
            "–",
            "undecided",
            "unknown: 1 of 3 repetitions",
            "900 targets",
            "controlled for canon",
        ];
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0][0].as_str(), rows[1][0].as_str()), ("depo <K=2>", "mano"));
        assert_eq!(rows[0][1..], line);
        let svg = picture(&entries);
        assert_eq!(
            svg.matches("<circle").count(),
            8,
            "a dot for each run except those of the replicate"
        );
        assert_eq!(svg.matches("stroke=\"#0550ae\"").count(), 4);
        assert!(svg.contains("depo &lt;K=2&gt;") && svg.ends_with("</svg>\n"), "{svg}");
        assert!(!svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn labels_do_not_touch() {
        let mut comparison = two_seeds();
        for arm in &mut comparison.arms {
            arm.name = format!("a_long_name_{}", arm.name);
        }
        let entry = Entry { task: "depo", comparison: &comparison };
        let other = Entry { task: "mano", comparison: &comparison };
        let svg = picture(&[[entry; 8], [other; 8]].concat());
        let shown = lines(&[entry]);
        let shown = shown.iter().flat_map(labels);
        let longest = shown.map(|label| label.chars().count()).max().unwrap();
        assert!(longest > 12);
        for row in svg.split("<g transform") {
            let labels =
                row.lines().filter(|line| line.contains("text-anchor=\"middle\" fill=\"#1b1f24\""));
            let middle = |line: &str| -> f64 { line.split('"').nth(1).unwrap().parse().unwrap() };
            let places: Vec<f64> = labels.map(middle).collect();
            assert_eq!(places.len(), 8);
            let apart = places.windows(2).map(|two| two[1] - two[0]).fold(f64::MAX, f64::min);
            assert!(apart > CHARACTER * longest as f64, "{apart}");
        }
    }

    #[test]
    fn an_arm_is_told_by_what_it_adds() {
        for (base, arm, told) in [
            ("gla", "glacanon", "canon"),
            ("gla", "gla_canon", "canon"),
            ("a", "b", "b"),
            ("a", "a_", "a_"),
        ] {
            assert_eq!(beyond(base, arm), told);
        }
    }

    #[test]
    fn nothing_that_was_run_is_no_picture_of_numbers() {
        let mut comparison = two_seeds();
        for arm in &mut comparison.arms {
            arm.points[0].clear();
        }
        let entries = [Entry { task: "depo", comparison: &comparison }];
        assert_eq!(
            table(&entries).rows[0][3..],
            ["–", "canon", "–", "–", "–", "–", "–", "undecided", "–", "–", "controlled for canon"]
        );
        assert!(!picture(&entries).contains("NaN"));
    }
}
