//! Static pictures, for paper and for pages without scripts.
//!
//! In: runs and pairs. Out: SVG text: the training loss of every run, and for each pair its differences with the
//! scatter of single A/A differences, if known. Must stay true: every word is escaped; lines differ by dashes as well
//! as by colour; NaN is not drawn.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use compiler::draw::escaped;
use serde::Serialize;

use super::Paired;
use super::run::Run;

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
const BOTTOM: f64 = 34.0;
const TOP: f64 = 8.0;
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#b8578f", "#009e73", "#9a6a00", "#3a3f45"];
const DASHES: [&str; 4] = ["", "6 3", "2 2", "8 2 2 2"];

/// One line, with its colour and dashes.
struct Line {
    label: String,
    colour: usize,
    dash: usize,
    points: Vec<(f64, f64)>,
}

pub(super) fn figures(runs: &[&Run], parts: &[Option<usize>], pairs: &[Paired]) -> Vec<Figure> {
    let mut arms: Vec<String> = Vec::new();
    let lines: Vec<Line> = runs
        .iter()
        .filter(|run| !run.logged.curves.loss.is_empty())
        .map(|run| {
            let arm = if run.at.is_empty() {
                run.arm.clone()
            } else {
                format!("{} ({})", run.arm, run.at)
            };
            let colour = arms.iter().position(|known| *known == arm).unwrap_or_else(|| {
                arms.push(arm.clone());
                arms.len() - 1
            });
            let points = means(&run.logged.curves.loss);
            Line { label: format!("{arm} #{}", run.seed + 1), colour, dash: run.seed, points }
        })
        .collect();
    let mut figures = Vec::new();
    if !lines.is_empty() {
        let title = "training loss by optimiser step, nats".to_owned();
        figures.push(Figure { svg: drawn(&title, &lines, None), title });
    }
    let of_arms = arm_means(runs, parts);
    if !of_arms.is_empty() {
        let title = "training loss, mean of each arm over its seeds, nats".to_owned();
        figures.push(Figure { svg: drawn(&title, &of_arms, None), title });
    }
    for pair in pairs {
        let loss = |at: usize| runs.get(at).map(|run| &run.logged.curves.loss);
        let lines: Vec<Line> = pair
            .lines
            .iter()
            .enumerate()
            .filter_map(|(number, (treated, base))| {
                let (a, b) = (loss(*base)?, loss(*treated)?);
                let both = a.iter().zip(b).filter(|((s, _), (t, _))| s == t);
                let points: Vec<(u64, f64)> = both.map(|((s, a), (_, b))| (*s, b - a)).collect();
                let label = format!("pair {}", number + 1);
                Some(Line { label, colour: number, dash: number, points: means(&points) })
            })
            .filter(|line| !line.points.is_empty())
            .collect();
        if !lines.is_empty() {
            let noise = pair.single();
            let said = noise.map_or(
                "A/A noise unknown",
                |_| "grey: one standard deviation of a single A/A difference at the end",
            );
            let title = format!("training loss, {}: paired differences, nats ({said})", pair.title);
            figures.push(Figure { svg: drawn(&title, &lines, noise), title });
        }
    }
    figures
}

/// The runs of an arm at a point: the number of its comparison, its name, the point's name.
type OfArm<'a> = ((usize, &'a str, &'a str), Vec<&'a Run>);

/// The mean loss of each arm with several runs, over the steps that all of them have.
fn arm_means(runs: &[&Run], parts: &[Option<usize>]) -> Vec<Line> {
    // Arms of several comparisons may have one name.
    let mut arms: Vec<OfArm<'_>> = Vec::new();
    for (run, part) in runs.iter().zip(parts) {
        let Some(part) = part else { continue };
        let arm = (*part, run.arm.as_str(), run.at.as_str());
        match arms.iter_mut().find(|(known, _)| *known == arm) {
            Some((_, runs)) => runs.push(run),
            None => arms.push((arm, vec![run])),
        }
    }
    let line = |(colour, ((_, arm, at), runs)): (usize, OfArm<'_>)| {
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
        several.then(|| Line { label, colour, dash: 0, points: means(&mean) })
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

fn drawn(title: &str, lines: &[Line], band: Option<f64>) -> minijinja::Value {
    let all = || lines.iter().flat_map(|line| &line.points);
    let ends = |of: fn(&(f64, f64)) -> f64, more: &[f64]| {
        let values = || all().map(of).chain(more.iter().copied());
        let (low, high) =
            (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
        let room = if high > low { 0.0 } else { 1.0 };
        (low - room, high + room)
    };
    let more: Vec<f64> = band.into_iter().flat_map(|band| [-band, band]).collect();
    let (x, y) = (ends(|p| p.0, &[]), ends(|p| p.1, &more));
    let rows = lines.len().div_ceil(4);
    let height = HEIGHT + 16.0 * rows as f64;
    let (right, foot) = (WIDTH - 8.0, HEIGHT - BOTTOM);
    let across = |value: f64| LEFT + (value - x.0) / (x.1 - x.0) * (right - LEFT);
    let up = |value: f64| foot - (value - y.0) / (y.1 - y.0) * (foot - TOP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"11\" fill=\"#3a3f45\">",
        escaped(title)
    );
    if let Some(band) = band {
        let _ = write!(
            svg,
            "<rect x=\"{LEFT}\" width=\"{}\" y=\"{:.1}\" height=\"{:.1}\" fill=\"#8c959f\" opacity=\"0.25\"/>",
            right - LEFT,
            up(band),
            up(-band) - up(band)
        );
    }
    for tick in ticks(y) {
        let at = up(tick);
        let _ = write!(
            svg,
            "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#d1d9e0\"/><text x=\"{}\" y=\"{:.1}\" \
             text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            plain(tick)
        );
    }
    for tick in ticks(x) {
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            across(tick),
            foot + 16.0,
            plain(tick)
        );
    }
    for (number, Line { label, colour, dash, points }) in lines.iter().enumerate() {
        let places: Vec<String> =
            points.iter().map(|(x, y)| format!("{:.1},{:.1}", across(*x), up(*y))).collect();
        let colour = COLOURS.get(colour % COLOURS.len()).copied().unwrap_or("#000000");
        let dash = DASHES.get(dash % DASHES.len()).copied().unwrap_or("");
        let stroke = format!("fill=\"none\" stroke=\"{colour}\" stroke-dasharray=\"{dash}\"");
        let _ = write!(
            svg,
            "<polyline points=\"{}\" {stroke} stroke-width=\"1.2\"/>",
            places.join(" ")
        );
        let (column, row) = ((number % 4) as f64, (number / 4) as f64);
        let (left, at) = (LEFT + column * 172.0, HEIGHT + 8.0 + 16.0 * row);
        let _ = write!(
            svg,
            "<path d=\"M{left} {at}h22\" {stroke} stroke-width=\"2\"/><text x=\"{}\" y=\"{}\">{}</text>",
            left + 27.0,
            at + 4.0,
            escaped(&shortened(label))
        );
    }
    svg.push_str("</svg>");
    minijinja::Value::from_safe_string(svg)
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
        let found: Vec<String> = ticks((-0.071, 0.013)).into_iter().map(plain).collect();
        assert_eq!(found, ["-0.06", "-0.04", "-0.02", "0"]);
    }

    #[test]
    fn words_are_escaped_and_lines_that_are_no_numbers_not_drawn() {
        let line = |label: &str, values: &[f64]| Line {
            label: label.to_owned(),
            colour: 0,
            dash: 0,
            points: means(&(1..).zip(values.iter().copied()).collect::<Vec<_>>()),
        };
        let lines = [line("a</svg><b>", &[1.0, f64::NAN, 3.0]), line("b", &[2.0, 2.0, 2.0])];
        let svg = drawn("\"quoted\" & <cut>", &lines, Some(0.5)).to_string();
        assert!(svg.contains("aria-label=\"&quot;quoted&quot; &amp; &lt;cut&gt;\""));
        assert!(svg.contains("a&lt;/svg&gt;&lt;b&gt;") && !svg.contains("NaN"));
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("</svg>").count(), 1);
    }
}
