//! A comparison as one HTML file that needs nothing else.
//!
//! In: what was run, with its curves, and what the comparison proved. Out: the page's text. Must stay true:
//! self-contained and offline; every word and number that comes from a file is escaped; the chart
//! library is bundled with its licence beside it.

use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;
use serde_json::json;

use crate::compare::{
    Comparison, Curves, Pair, Run, Summary, TRAINING_LOSS, at, paired, summary, title,
};

/// What stands above the curves.
#[derive(Clone, Debug, Serialize)]
pub struct Heading {
    pub title: String,
    pub verdict: String,
    pub controlled: bool,
    pub lock_id: String,
    /// One line each: consequences, what the arms' platforms differ by.
    pub notes: Vec<String>,
}

#[derive(Serialize)]
struct Page<'a> {
    #[serde(flatten)]
    heading: &'a Heading,
    summary: Summary,
}

#[derive(Serialize)]
struct Line {
    label: String,
    /// Decides the colour: the arm, at each point of the grid another.
    arm: usize,
    /// Decides the dashes.
    run: usize,
    steps: Vec<u64>,
    values: Vec<f64>,
}

const TEMPLATE: &str = include_str!("../templates/report.html.j2");
const SCRIPT: &str = include_str!("../templates/vendor/uPlot.iife.min.js");
const STYLE: &str = include_str!("../templates/vendor/uPlot.min.css");

/// The page. Errors only if the template itself is wrong, which its test would show.
pub fn page(heading: &Heading, comparison: &Comparison) -> Result<String, String> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.add_template("report.html", TEMPLATE).map_err(|e| e.to_string())?;
    let template = environment.get_template("report.html").map_err(|e| e.to_string())?;
    let safe = minijinja::Value::from_safe_string;
    template
        .render(minijinja::context! {
            page => Page { heading, summary: summary(comparison) },
            data => safe(script_data(comparison)),
            vendor_js => safe(SCRIPT.to_owned()),
            vendor_css => safe(STYLE.to_owned()),
        })
        .map_err(|e| e.to_string())
}

/// JSON that cannot end the script it stands in.
fn script_data(comparison: &Comparison) -> String {
    let runs = comparison.arms.iter().flat_map(|arm| arm.points.iter().flatten());
    let mut metrics: Vec<String> =
        runs.flat_map(|run| run.curves.metrics.keys().cloned()).collect();
    metrics.sort();
    metrics.dedup();
    let metrics: Vec<_> = metrics
        .iter()
        .map(|name| {
            let lines = lines(comparison, |run| run.metrics.get(name).cloned().unwrap_or_default());
            json!({ "name": name, "lines": lines })
        })
        .collect();
    let value = json!({
        "loss": lines(comparison, |run| run.loss.clone()),
        "metrics": metrics,
        "differences": differences(comparison),
    });
    value.to_string().replace('<', "\\u003c")
}

fn lines(comparison: &Comparison, of: impl Fn(&Curves) -> Vec<(u64, f64)>) -> Vec<Line> {
    let count = comparison.points.len();
    let mut lines = Vec::new();
    for (arm, found) in comparison.arms.iter().enumerate() {
        for (point, runs) in found.points.iter().enumerate() {
            for run in runs {
                let (steps, values) = of(&run.curves).into_iter().unzip();
                let name = at(comparison, &found.name, point);
                lines.push(Line {
                    label: format!("{name} #{}", run.seed + 1),
                    arm: arm * count + point,
                    run: run.seed,
                    steps,
                    values,
                });
            }
        }
    }
    lines
}

/// For each treatment arm its training loss minus the base's, run by run, at the points that are compared.
fn differences(comparison: &Comparison) -> Vec<serde_json::Value> {
    let chart = |(at, pair): (usize, Pair<'_>)| {
        let named = match title(comparison, &pair) {
            title if title.is_empty() => format!("{} against {}", pair.arm.name, pair.base.name),
            title => title,
        };
        let line = |(base, run): (&Run, &Run)| {
            // Arms may have different numbers of steps; both begin with the first.
            let (steps, values) = base
                .curves
                .loss
                .iter()
                .zip(&run.curves.loss)
                .filter(|((a, _), (b, _))| a == b)
                .map(|((step, a), (_, b))| (*step, b - a))
                .unzip();
            let label = format!("seed #{}", run.seed + 1);
            Line { label, arm: at + 1, run: run.seed, steps, values }
        };
        let lines: Vec<Line> =
            paired(pair.base_runs(), pair.arm_runs()).into_iter().map(line).collect();
        let band = pair.rows().into_iter().find(|row| row.metric == TRAINING_LOSS);
        let band = band.and_then(|row| row.band);
        let shaded = if band.is_some() { " (shaded: the A/A band at the end)" } else { "" };
        json!({
            "title": format!("training loss, {named}: the difference, paired by seed{shaded}"),
            "lines": lines,
            "band": band,
        })
    };
    comparison.pairs().into_iter().enumerate().map(chart).collect()
}

#[cfg(test)]
mod tests {
    use compiler::lock::Choose;

    use super::*;
    use crate::compare::tests::{by, grid, two_seeds};

    fn heading() -> Heading {
        Heading {
            title: "a </script><b> & c".to_owned(),
            verdict: "controlled".to_owned(),
            controlled: true,
            lock_id: "00".to_owned(),
            notes: vec!["treatment: <canon>".to_owned()],
        }
    }

    #[test]
    fn the_page_holds_all_it_needs_and_escapes_what_it_shows() {
        let mut comparison = two_seeds();
        comparison.arms[0].name = "</script>".to_owned();
        let page = page(&heading(), &comparison).unwrap();
        assert!(page.contains("a &lt;&#x2f;script&gt;&lt;b&gt; &amp; c"), "{}", &page[..600]);
        assert!(page.contains("treatment: &lt;canon&gt;"));
        assert!(page.contains("\\u003c/script> #1"));
        assert!(!page.contains("http-equiv") && !page.contains("src=\"http"));
        assert_eq!(page.matches("</script>").count(), 2);
    }

    #[test]
    fn every_arm_has_its_table_and_its_curve_of_differences() {
        let page = page(&heading(), &grid(by("loss", Choose::Least, true))).unwrap();
        for what in [
            "<h3>left (optimizer.lr 0.02) against base (optimizer.lr 0.01)</h3>",
            "<h3>right (optimizer.lr 0.01) against base (optimizer.lr 0.01)</h3>",
            "<h3>held-out loss at every point of the grid</h3>",
            "training loss, left (optimizer.lr 0.02) against base (optimizer.lr 0.01): the difference",
            "base again (optimizer.lr 0.02) #1",
        ] {
            assert!(page.contains(what), "{what}");
        }
    }
}
