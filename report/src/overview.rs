//! Several comparisons in one table and one picture: which treatment helps which base, on which task.
//!
//! All lines form one family, so that looking at more of them does not find more by chance. The picture is also readable
//! without colour.

use crate::compare::{
    Design, Facts, MetricFacts, NOT_CONTROLLED, PairFacts, TextTable, Unit, effect_cells,
    interval_head, judged_together, level, mean_cell, percent, strictest,
};
use crate::statistics::{Confidence, Judged};
use crate::svg::{Attributes, Svg, Tenths};

/// A comparison and its task.
#[derive(Clone, Copy, Debug)]
pub struct TaskComparison<'a> {
    /// The task's name.
    pub task: &'a str,
    /// What the comparison shows.
    pub facts: &'a Facts,
}

/// A treatment arm against its base, by the primary metric.
struct ArmLine<'a> {
    task: &'a str,
    metric: &'a str,
    confidence: Confidence,
    pair: &'a PairFacts,
    facts: Option<&'a MetricFacts>,
    /// The line's word, in the family of all lines.
    judged: Option<Judged>,
}

impl ArmLine<'_> {
    fn is_proved(&self) -> bool {
        self.pair.design != Design::NotControlled
    }

    /// The facts of the metric, if any run has it.
    fn measured(&self) -> Option<&MetricFacts> {
        self.facts.filter(|facts| facts.has_values())
    }

    fn label(&self) -> String {
        self.facts.map_or_else(|| self.metric.to_owned(), MetricFacts::label)
    }

    /// The values of the base's runs and of the treated arm's.
    fn values(&self) -> [&[f64]; 2] {
        let of_side = |side: usize| self.facts.and_then(|facts| facts.values.get(side));
        [0, 1].map(|side| of_side(side).map_or(&[][..], Vec::as_slice))
    }
}

fn lines<'a>(comparisons: &[TaskComparison<'a>]) -> Vec<ArmLine<'a>> {
    let facts: Vec<&Facts> = comparisons.iter().map(|comparison| comparison.facts).collect();
    let mut lines = Vec::new();
    for (TaskComparison { task, facts }, family) in comparisons.iter().zip(judged_together(&facts))
    {
        let metric = facts.analysis.primary.as_str();
        let confidence = facts.analysis.confidence;
        for pair in &facts.pairs {
            let (facts, judged) = (pair.metric(metric), pair.word_in(&family, metric));
            lines.push(ArmLine { task, metric, confidence, pair, facts, judged });
        }
    }
    lines.sort_by(|a, b| (a.task, a.metric).cmp(&(b.task, b.metric)));
    lines
}

const HEAD_BEFORE_INTERVAL: [&str; 7] = ["task", "metric", "base", "", "treated", "", "difference"];
const HEAD_AFTER_INTERVAL: [&str; 6] =
    ["p", "p, Holm", "effect", "A/A: SE of mean", "measured on", "design"];

/// One line for each treatment arm, grouped by task.
pub fn table(comparisons: &[TaskComparison<'_>]) -> TextTable {
    let lines = lines(comparisons);
    let common = common_confidence(comparisons);
    let interval = match common {
        Some(confidence) => interval_head(confidence, lines.iter().filter_map(ArmLine::measured)),
        None => "interval, at the level of its row".to_owned(),
    };
    let mut head = HEAD_BEFORE_INTERVAL.map(str::to_owned).to_vec();
    head.push(interval);
    head.extend(HEAD_AFTER_INTERVAL.map(str::to_owned));
    let effects = lines.iter().map(|line| line.judged.map_or("", |word| word.effect.word()));
    TextTable {
        rows: lines.iter().map(|line| line.cells(common)).collect(),
        effects: effects.collect(),
        head,
    }
}

impl ArmLine<'_> {
    /// The cells of the table; an interval names its level if the lines have several.
    fn cells(&self, common: Option<Confidence>) -> Vec<String> {
        let (pair, facts) = (self.pair, self.measured());
        let unit = facts.map_or(Unit::Unknown, |facts| facts.unit);
        let [base, treated] = self.values();
        let [base_runs, treated_runs, _] = pair.runs;
        let seeds = pair.diverged_seeds;
        let of_seeds = seeds.suffix(facts.map_or(0, |facts| facts.paired.len()));
        let cell = |cell: fn(&MetricFacts) -> String| facts.map_or_else(|| "–".to_owned(), cell);
        let [adjusted, effect] = effect_cells(self.judged, &of_seeds);
        let interval = cell(MetricFacts::interval_cell);
        vec![
            self.task.to_owned(),
            self.label(),
            pair.base_label.clone(),
            mean_cell(unit, base, base_runs),
            pair.arm_label.clone(),
            mean_cell(unit, treated, treated_runs),
            facts.map_or_else(|| "–".to_owned(), |facts| facts.difference_cell(seeds)),
            match facts {
                Some(facts) if common.is_none() && facts.interval.is_ok() => {
                    format!("{interval} ({})", percent(self.confidence))
                }
                Some(_) | None => interval,
            },
            cell(MetricFacts::p_cell),
            adjusted,
            effect,
            cell(MetricFacts::noise_cell),
            cell(MetricFacts::measured_on_cell),
            pair.standing.clone(),
        ]
    }
}

/// The level of all intervals; `None` where they have several.
fn common_confidence(comparisons: &[TaskComparison<'_>]) -> Option<Confidence> {
    let mut levels = comparisons.iter().map(|comparison| comparison.facts.analysis.confidence);
    let first = levels.next().unwrap_or(Confidence::NINETY_FIVE);
    levels.all(|level| level == first).then_some(first)
}

/// What has to be said with the table.
pub fn caption(comparisons: &[TaskComparison<'_>]) -> String {
    let lines = lines(comparisons);
    let facts: Vec<&Facts> = comparisons.iter().map(|comparison| comparison.facts).collect();
    let test = match lines.iter().filter_map(ArmLine::measured).any(|facts| facts.anytime) {
        false => "paired t test",
        true => "paired t test, or of the anytime-valid one where a stopping rule is declared,",
    };
    let tests: usize = judged_together(&facts).iter().map(Vec::len).sum();
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
        level(strictest(&facts))
    )
}

/// Least width of a panel.
const LEAST_WIDTH: f64 = 320.0;
/// Width that panels next to each other fill before the next row begins.
const ROW: f64 = 1000.0;
/// Room of a panel beside its bars.
const RIGHT: f64 = 36.0;
/// Width of a character at the size of the labels.
const CHARACTER: f64 = 6.4;
const HEIGHT: f64 = 190.0;
const LEFT: f64 = 52.0;
const TOP: f64 = 46.0;

const INK: &str = "#1b1f24";
const SOFT: &str = "#59636e";
const WARNING: &str = "#b35900";

/// The same as a picture: base and treated arm next to each other, a dot for each run.
pub fn picture(comparisons: &[TaskComparison<'_>]) -> String {
    let lines = lines(comparisons);
    let panels: Vec<&[ArmLine<'_>]> =
        lines.chunk_by(|a, b| (a.task, a.metric) == (b.task, b.metric)).collect();
    let panel_width = panels.iter().map(|lines| width(lines)).fold(LEAST_WIDTH, f64::max);
    let columns = ((ROW / panel_width) as usize).clamp(1, panels.len().max(1));
    let rows = panels.len().div_ceil(columns).max(1);
    let row_height = TOP + HEIGHT + 56.0;
    let (width, height) = (LEFT + panel_width * columns as f64, row_height * rows as f64 + 20.0);
    let mut svg =
        Svg::new(width, height, &[("font-family", &"system-ui, sans-serif"), ("font-size", &11)]);
    svg.line_break();
    svg.shape("rect", &[("width", &width), ("height", &height), ("fill", &"#ffffff")]);
    svg.line_break();
    for (at, lines) in panels.iter().enumerate() {
        let (row, column) = (at / columns, at % columns);
        let left = LEFT + panel_width * column as f64;
        if row > 0 {
            let below = format!("translate(0 {})", row_height * row as f64);
            svg.open("g", &[("transform", &below)]);
            svg.line_break();
        }
        Panel::new(left, left + panel_width - RIGHT, lines).draw(&mut svg);
        if row > 0 {
            svg.close("g");
            svg.line_break();
        }
    }
    let legend = match lines.iter().all(ArmLine::is_proved) {
        true => "open: base; filled: treated; bars are means, dots single seeds",
        false => {
            "open: base; filled: treated; bars are means, dots single seeds; dashed: not controlled, so more than the \
             treatment differs"
        }
    };
    svg.text(&[("x", &LEFT), ("y", &(height - 14.0)), ("fill", &SOFT)], legend);
    svg.line_break();
    svg.finish() + "\n"
}

/// The two labels below a pair of bars.
fn labels(line: &ArmLine<'_>) -> [String; 2] {
    let (base, arm) = (&line.pair.base, &line.pair.arm);
    [base.clone(), format!("+ {}", beyond(base, arm))]
}

/// The part of an arm's name beyond its base's: `canon` for `gla` and `gla_canon`.
fn beyond<'n>(base: &str, arm: &'n str) -> &'n str {
    let rest = arm.strip_prefix(base).map_or(arm, |rest| rest.trim_start_matches('_'));
    if rest.is_empty() { arm } else { rest }
}

/// The width in which no label of a panel touches its neighbour.
fn width(lines: &[ArmLine<'_>]) -> f64 {
    let longest = lines.iter().flat_map(labels).map(|label| label.chars().count()).max();
    RIGHT + lines.len() as f64 * (CHARACTER * longest.unwrap_or(0) as f64 + 10.0)
}

/// The bars of one task and metric.
struct Panel<'a> {
    left: f64,
    right: f64,
    lines: &'a [ArmLine<'a>],
    unit: Unit,
    /// The value at the top.
    highest: f64,
}

impl<'a> Panel<'a> {
    fn new(left: f64, right: f64, lines: &'a [ArmLine<'a>]) -> Panel<'a> {
        let unit = lines.iter().find_map(|line| Some(line.measured()?.unit)).unwrap_or(Unit::Nats);
        let values = lines.iter().flat_map(|line| line.values().concat());
        let highest = match unit {
            Unit::Share => 1.0,
            Unit::Nats | Unit::Count | Unit::Unknown | Unit::Seconds => {
                values.fold(0.0, f64::max).max(f64::MIN_POSITIVE) * 1.05
            }
        };
        Panel { left, right, lines, unit, highest }
    }

    fn y(&self, value: f64) -> f64 {
        TOP + HEIGHT * (1.0 - (value / self.highest).clamp(0.0, 1.0))
    }

    fn draw(&self, svg: &mut Svg) {
        self.draw_heading(svg);
        self.draw_axis(svg);
        let step = (self.right - self.left) / self.lines.len() as f64;
        for (at, line) in self.lines.iter().enumerate() {
            let middle = self.left + step * (at as f64 + 0.5);
            self.draw_bars(svg, line, middle, (step * 0.3).min(34.0));
            draw_labels(svg, line, middle);
        }
    }

    fn draw_heading(&self, svg: &mut Svg) {
        let Some(first) = self.lines.first() else { return };
        svg.text(
            &[
                ("x", &self.left),
                ("y", &20),
                ("font-size", &14),
                ("font-weight", &600),
                ("fill", &INK),
            ],
            first.task,
        );
        // If training contained the questions of any line, the panel says so.
        let held_out = self.lines.iter().all(|line| line.label() == line.metric);
        let metric = match held_out {
            true => first.metric.to_owned(),
            false => format!("{} (not held out)", first.metric),
        };
        svg.text(&[("x", &self.left), ("y", &36), ("fill", &SOFT)], &metric);
        svg.line_break();
    }

    fn draw_axis(&self, svg: &mut Svg) {
        for part in 0..=4 {
            let value = self.highest * f64::from(part) / 4.0;
            let y = self.y(value);
            svg.shape(
                "line",
                &[
                    ("x1", &self.left),
                    ("x2", &self.right),
                    ("y1", &Tenths(y)),
                    ("y2", &Tenths(y)),
                    ("stroke", &"#d1d9e0"),
                ],
            );
            svg.text(
                &[
                    ("x", &Tenths(self.left - 5.0)),
                    ("y", &Tenths(y + 4.0)),
                    ("text-anchor", &"end"),
                    ("fill", &SOFT),
                ],
                &self.unit.value(value),
            );
            svg.line_break();
        }
    }

    fn draw_bars(&self, svg: &mut Svg, line: &ArmLine<'_>, middle: f64, width: f64) {
        for (side, (values, fill)) in line.values().iter().zip(["#ffffff", "#0969da"]).enumerate() {
            if values.is_empty() {
                continue;
            }
            let x = middle + (side as f64 - 1.0) * (width + 3.0) + 1.5;
            let top = self.y(values.iter().sum::<f64>() / values.len() as f64);
            let bar: Attributes<'_> = &[
                ("x", &Tenths(x)),
                ("y", &Tenths(top)),
                ("width", &Tenths(width)),
                ("height", &Tenths(self.y(0.0) - top)),
                ("fill", &fill),
                ("fill-opacity", &"0.75"),
            ];
            let outline: Attributes<'_> = match line.is_proved() {
                true => &[("stroke", &"#0550ae")],
                false => &[("stroke", &WARNING), ("stroke-dasharray", &"4 3")],
            };
            svg.shape("rect", &[bar, outline].concat());
            svg.line_break();
            for (seed, value) in values.iter().enumerate() {
                let x = x + width * (seed as f64 + 1.0) / (values.len() as f64 + 1.0);
                let y = self.y(*value);
                svg.shape(
                    "circle",
                    &[("cx", &Tenths(x)), ("cy", &Tenths(y)), ("r", &"2.2"), ("fill", &INK)],
                );
                svg.line_break();
            }
        }
    }
}

fn centred(svg: &mut Svg, (x, y): (f64, f64), fill: &str, words: &str) {
    svg.text(
        &[("x", &Tenths(x)), ("y", &Tenths(y)), ("text-anchor", &"middle"), ("fill", &fill)],
        words,
    );
}

/// The words below and above a pair of bars.
fn draw_labels(svg: &mut Svg, line: &ArmLine<'_>, middle: f64) {
    let [base, treated] = labels(line);
    let foot = TOP + HEIGHT;
    centred(svg, (middle, foot + 16.0), INK, &base);
    centred(svg, (middle, foot + 30.0), SOFT, &treated);
    svg.line_break();
    let [base, treated, _] = line.pair.runs;
    let counts: Vec<String> = [base, treated]
        .iter()
        .filter(|count| count.diverged > 0)
        .map(|count| format!("{} of {} diverged", count.diverged, count.runs))
        .collect();
    if !counts.is_empty() {
        centred(svg, (middle, TOP - 4.0), "#b3261e", &counts.join(", "));
        svg.line_break();
    }
    let design = match line.pair.design {
        Design::NotControlled => Some(NOT_CONTROLLED),
        Design::Tuned => Some("tuned"),
        Design::Controlled | Design::Compensated | Design::Bundle => None,
    };
    if let Some(design) = design {
        centred(svg, (middle, foot + 44.0), WARNING, design);
        svg.line_break();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::made_up::two_seeds;

    #[test]
    fn a_line_and_bars_for_each_treatment_arm() {
        let facts = Facts::new(&two_seeds());
        let on = |task| TaskComparison { task, facts: &facts };
        let comparisons = [on("mano"), on("depo <K=2>")];
        let TextTable { head, rows, .. } = table(&comparisons);
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
        let svg = picture(&comparisons);
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
        let facts = Facts::new(&comparison);
        let on = |task| TaskComparison { task, facts: &facts };
        let svg = picture(&[[on("depo"); 8], [on("mano"); 8]].concat());
        let lines = lines(&[on("depo")]);
        let words = lines.iter().flat_map(labels);
        let longest = words.map(|label| label.chars().count()).max().unwrap();
        assert!(longest > 12);
        for row in svg.split("<g transform") {
            let labels =
                row.lines().filter(|line| line.contains("text-anchor=\"middle\" fill=\"#1b1f24\""));
            let middle = |line: &str| -> f64 { line.split('"').nth(1).unwrap().parse().unwrap() };
            let middles: Vec<f64> = labels.map(middle).collect();
            assert_eq!(middles.len(), 8);
            let apart = middles.windows(2).map(|two| two[1] - two[0]).fold(f64::MAX, f64::min);
            assert!(apart > CHARACTER * longest as f64, "{apart}");
        }
    }

    #[test]
    fn an_arm_is_labelled_by_what_it_adds() {
        for (base, arm, label) in [
            ("gla", "glacanon", "canon"),
            ("gla", "gla_canon", "canon"),
            ("a", "b", "b"),
            ("a", "a_", "a_"),
        ] {
            assert_eq!(beyond(base, arm), label);
        }
    }

    #[test]
    fn arms_without_runs_have_a_line_and_no_bars() {
        let mut comparison = two_seeds();
        for arm in &mut comparison.arms {
            arm.points[0].clear();
        }
        let facts = Facts::new(&comparison);
        let comparisons = [TaskComparison { task: "depo", facts: &facts }];
        assert_eq!(
            table(&comparisons).rows[0][3..],
            ["–", "canon", "–", "–", "–", "–", "–", "undecided", "–", "–", "controlled for canon"]
        );
        assert!(!picture(&comparisons).contains("NaN"));
    }
}
