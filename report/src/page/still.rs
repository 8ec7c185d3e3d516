//! Still pictures of curves, for paper and for pages without scripts: the training loss of every run, and for each pair
//! its differences with the scatter of single A/A differences, if known. Lines differ by dashes as well as by colour.

use std::collections::BTreeMap;

use serde::Serialize;

use super::run::PageRun;
use super::run_pairs::RunPairs;
use crate::svg::{Attributes, Svg, Tenths};

/// A picture and its caption.
#[derive(Debug, Serialize)]
pub(super) struct Figure {
    pub(super) title: String,
    pub(super) svg: minijinja::Value,
}

/// Most points of a line; paper shows no more.
const MOST_POINTS: usize = 150;
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = WIDTH - 8.0;
const TOP: f64 = 8.0;
const FOOT: f64 = HEIGHT - 34.0;
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#b8578f", "#009e73", "#9a6a00", "#3a3f45"];
const DASHES: [&str; 4] = ["", "6 3", "2 2", "8 2 2 2"];
/// Entries of the legend in a row, and their width.
const LEGEND_COLUMNS: usize = 4;
const LEGEND_WIDTH: f64 = 172.0;

/// One line, with its colour and dashes.
struct PlotLine {
    label: String,
    colour: usize,
    dash: usize,
    points: Vec<(f64, f64)>,
}

impl Figure {
    /// A picture of these lines, unless there are none; `band` is the half width of a grey band around zero.
    fn new(title: String, lines: &[PlotLine], band: Option<f64>) -> Option<Figure> {
        let svg = || minijinja::Value::from_safe_string(drawn(&title, lines, band));
        (!lines.is_empty()).then(svg).map(|svg| Figure { title, svg })
    }
}

pub(super) fn figures(
    runs: &[&PageRun],
    parts: &[Option<usize>],
    pairs: &[RunPairs],
) -> Vec<Figure> {
    let losses = "training loss by optimiser step, nats".to_owned();
    let means = "training loss, mean of each arm over its seeds, nats".to_owned();
    let of_runs = Figure::new(losses, &run_lines(runs), None);
    let of_arms = Figure::new(means, &arm_means(runs, parts), None);
    let of_pairs = pairs.iter().filter_map(|pair| {
        let noise = pair.single_noise();
        let grey = match noise {
            None => "A/A noise unknown",
            Some(_) => "grey: one standard deviation of a single A/A difference at the end",
        };
        let title = format!("training loss, {}: paired differences, nats ({grey})", pair.title);
        Figure::new(title, &pair_lines(runs, pair), noise)
    });
    of_runs.into_iter().chain(of_arms).chain(of_pairs).collect()
}

/// The loss of each run; runs of one arm have one colour.
fn run_lines(runs: &[&PageRun]) -> Vec<PlotLine> {
    let mut arms: Vec<String> = Vec::new();
    let line = |run: &&PageRun| {
        let arm = match run.at.is_empty() {
            true => run.arm.clone(),
            false => format!("{} ({})", run.arm, run.at),
        };
        let colour = arms.iter().position(|known| *known == arm).unwrap_or_else(|| {
            arms.push(arm.clone());
            arms.len() - 1
        });
        let points = means(&run.logged.curves.loss);
        PlotLine { label: format!("{arm} #{}", run.seed + 1), colour, dash: run.seed, points }
    };
    runs.iter().filter(|run| !run.logged.curves.loss.is_empty()).map(line).collect()
}

/// The difference of each pair of runs, at the steps that both have.
fn pair_lines(runs: &[&PageRun], pair: &RunPairs) -> Vec<PlotLine> {
    let loss = |at: usize| runs.get(at).map(|run| &run.logged.curves.loss);
    let line = |(number, (treated, base)): (usize, &(usize, usize))| {
        let (a, b) = (loss(*base)?, loss(*treated)?);
        let both = a.iter().zip(b).filter(|((s, _), (t, _))| s == t);
        let points: Vec<(u64, f64)> = both.map(|((s, a), (_, b))| (*s, b - a)).collect();
        let label = format!("pair {}", number + 1);
        Some(PlotLine { label, colour: number, dash: number, points: means(&points) })
    };
    let lines = pair.lines.iter().enumerate().filter_map(line);
    lines.filter(|line| !line.points.is_empty()).collect()
}

/// The runs of an arm at a point: the number of its comparison, its name, the point's name.
type ArmRuns<'a> = ((usize, &'a str, &'a str), Vec<&'a PageRun>);

/// The mean loss of each arm with several runs, over the steps that all of them have.
fn arm_means(runs: &[&PageRun], parts: &[Option<usize>]) -> Vec<PlotLine> {
    // Arms of several comparisons may have one name.
    let mut arms: Vec<ArmRuns<'_>> = Vec::new();
    for (run, part) in runs.iter().zip(parts) {
        let Some(part) = part else { continue };
        let arm = (*part, run.arm.as_str(), run.at.as_str());
        match arms.iter_mut().find(|(known, _)| *known == arm) {
            Some((_, runs)) => runs.push(run),
            None => arms.push((arm, vec![run])),
        }
    }
    let line = |(colour, ((_, arm, at), runs)): (usize, ArmRuns<'_>)| {
        let mut sums: BTreeMap<u64, (f64, usize)> = BTreeMap::new();
        for (step, loss) in runs.iter().flat_map(|run| &run.logged.curves.loss) {
            let (sum, count) = sums.entry(*step).or_default();
            (*sum, *count) = (*sum + loss, *count + 1);
        }
        let in_all = sums.into_iter().filter(|(_, (_, count))| *count == runs.len());
        let mean: Vec<(u64, f64)> =
            in_all.map(|(step, (sum, count))| (step, sum / count as f64)).collect();
        let at = if at.is_empty() { String::new() } else { format!(" ({at})") };
        let label = format!("{arm}{at}, mean of {}", runs.len());
        let several = runs.len() > 1 && !mean.is_empty();
        several.then(|| PlotLine { label, colour, dash: 0, points: means(&mean) })
    };
    arms.into_iter().enumerate().filter_map(line).collect()
}

/// Means over blocks of points.
fn means(points: &[(u64, f64)]) -> Vec<(f64, f64)> {
    let block = points.len().div_ceil(MOST_POINTS).max(1);
    let mean = |points: &[(u64, f64)]| {
        let count = points.len() as f64;
        let x = points.iter().map(|(step, _)| *step as f64).sum::<f64>() / count;
        (x, points.iter().map(|(_, value)| value).sum::<f64>() / count)
    };
    points.chunks(block).map(mean).filter(|(_, value)| value.is_finite()).collect()
}

fn drawn(title: &str, lines: &[PlotLine], band: Option<f64>) -> String {
    let band_ends: Vec<f64> = band.into_iter().flat_map(|band| [-band, band]).collect();
    let points = || lines.iter().flat_map(|line| &line.points);
    let frame = Frame {
        x: ends(points().map(|(x, _)| *x)),
        y: ends(points().map(|(_, y)| *y).chain(band_ends)),
    };
    let height = HEIGHT + 16.0 * lines.len().div_ceil(LEGEND_COLUMNS) as f64;
    let attributes: Attributes<'_> = &[
        ("role", &"img"),
        ("aria-label", &title),
        ("font-family", &"system-ui, sans-serif"),
        ("font-size", &11),
        ("fill", &"#3a3f45"),
    ];
    let mut svg = Svg::new(WIDTH, height, attributes);
    if let Some(band) = band {
        frame.draw_band(&mut svg, band);
    }
    frame.draw_axes(&mut svg);
    for (number, line) in lines.iter().enumerate() {
        frame.draw_line(&mut svg, number, line);
    }
    svg.finish()
}

/// The least and the greatest value, or a range around a single one.
fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (f64::min(low, value), f64::max(high, value))
    });
    let room = if high > low { 0.0 } else { 1.0 };
    (low - room, high + room)
}

/// The ranges of both axes.
struct Frame {
    x: (f64, f64),
    y: (f64, f64),
}

impl Frame {
    fn across(&self, value: f64) -> f64 {
        LEFT + (value - self.x.0) / (self.x.1 - self.x.0) * (RIGHT - LEFT)
    }

    fn up(&self, value: f64) -> f64 {
        FOOT - (value - self.y.0) / (self.y.1 - self.y.0) * (FOOT - TOP)
    }

    fn draw_band(&self, svg: &mut Svg, half: f64) {
        svg.shape(
            "rect",
            &[
                ("x", &LEFT),
                ("width", &(RIGHT - LEFT)),
                ("y", &Tenths(self.up(half))),
                ("height", &Tenths(self.up(-half) - self.up(half))),
                ("fill", &"#8c959f"),
                ("opacity", &"0.25"),
            ],
        );
    }

    fn draw_axes(&self, svg: &mut Svg) {
        for tick in ticks(self.y) {
            let y = self.up(tick);
            let path = format!("M{LEFT} {y:.1}H{RIGHT}");
            svg.shape("path", &[("d", &path), ("stroke", &"#d1d9e0")]);
            let at: Attributes<'_> =
                &[("x", &(LEFT - 6.0)), ("y", &Tenths(y + 4.0)), ("text-anchor", &"end")];
            svg.text(at, &plain(tick));
        }
        for tick in ticks(self.x) {
            let x = Tenths(self.across(tick));
            svg.text(&[("x", &x), ("y", &(FOOT + 16.0)), ("text-anchor", &"middle")], &plain(tick));
        }
    }

    /// A line and its entry in the legend.
    fn draw_line(&self, svg: &mut Svg, number: usize, line: &PlotLine) {
        let points: Vec<String> = line
            .points
            .iter()
            .map(|(x, y)| format!("{:.1},{:.1}", self.across(*x), self.up(*y)))
            .collect();
        let points = points.join(" ");
        let colour = COLOURS.get(line.colour % COLOURS.len()).copied().unwrap_or("#000000");
        let dash = DASHES.get(line.dash % DASHES.len()).copied().unwrap_or("");
        let stroke: Attributes<'_> =
            &[("fill", &"none"), ("stroke", &colour), ("stroke-dasharray", &dash)];
        let curve: Attributes<'_> = &[("points", &points)];
        let thin: Attributes<'_> = &[("stroke-width", &"1.2")];
        svg.shape("polyline", &[curve, stroke, thin].concat());
        let (column, row) = ((number % LEGEND_COLUMNS) as f64, (number / LEGEND_COLUMNS) as f64);
        let (left, y) = (LEFT + column * LEGEND_WIDTH, HEIGHT + 8.0 + 16.0 * row);
        let sample = format!("M{left} {y}h22");
        let sample: Attributes<'_> = &[("d", &sample)];
        let thick: Attributes<'_> = &[("stroke-width", &2)];
        svg.shape("path", &[sample, stroke, thick].concat());
        svg.text(&[("x", &(left + 27.0)), ("y", &(y + 4.0))], &shortened(&line.label));
    }
}

/// Three to seven round numbers in a range.
fn ticks((low, high): (f64, f64)) -> Vec<f64> {
    // Parse decimal steps, so that a tick is exactly the number it shows.
    let steps = (-12..=15).flat_map(|power| [1, 2, 5].map(|first| format!("{first}e{power}")));
    let mut steps = steps.filter_map(|step| step.parse::<f64>().ok());
    let Some(step) = steps.find(|step| (high - low) / step <= 6.0) else { return Vec::new() };
    let first = (low / step).ceil();
    (0..8).map(|n| (first + f64::from(n)) * step).take_while(|tick| *tick <= high).collect()
}

fn plain(value: f64) -> String {
    let text = format!("{value:.5}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

const LONGEST: usize = 26;

fn shortened(label: &str) -> String {
    if label.chars().count() <= LONGEST {
        return label.to_owned();
    }
    // Keep the end of a label, which has the seed.
    let from = label.chars().count() - LONGEST + 1;
    "…".chars().chain(label.chars().skip(from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_few_and_round() {
        assert_eq!(ticks((0.0, 600.0)), [0.0, 100.0, 200.0, 300.0, 400.0, 500.0, 600.0]);
        let labels: Vec<String> = ticks((-0.071, 0.013)).into_iter().map(plain).collect();
        assert_eq!(labels, ["-0.06", "-0.04", "-0.02", "0"]);
    }

    #[test]
    fn words_are_escaped_and_nan_is_not_drawn() {
        let line = |label: &str, values: &[f64]| PlotLine {
            label: label.to_owned(),
            colour: 0,
            dash: 0,
            points: means(&(1..).zip(values.iter().copied()).collect::<Vec<_>>()),
        };
        let lines = [line("a</svg><b>", &[1.0, f64::NAN, 3.0]), line("b", &[2.0, 2.0, 2.0])];
        let svg = drawn("\"quoted\" & <cut>", &lines, Some(0.5));
        assert!(svg.contains("aria-label=\"&quot;quoted&quot; &amp; &lt;cut&gt;\""));
        assert!(svg.contains("a&lt;/svg&gt;&lt;b&gt;") && !svg.contains("NaN"));
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("</svg>").count(), 1);
    }
}
