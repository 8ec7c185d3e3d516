//! A comparison as one HTML file that needs nothing else.
//!
//! In: arms with their curves, and what the comparison proved. Out: the page's text. Must stay true:
//! self-contained and offline; every word and number that comes from a file is escaped; the chart
//! library is bundled with its licence beside it.

use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;
use serde_json::json;

use crate::compare::{Arm, Role, Table, rows, table};

/// What stands above the curves.
#[derive(Clone, Debug, Serialize)]
pub struct Heading {
    pub title: String,
    pub verdict: String,
    pub controlled: bool,
    pub lock_id: String,
    /// One line each: treatment, consequences, what was assumed.
    pub notes: Vec<String>,
}

#[derive(Serialize)]
struct Page<'a> {
    #[serde(flatten)]
    heading: &'a Heading,
    table: Table,
}

#[derive(Serialize)]
struct Line {
    label: String,
    arm: usize,
    run: usize,
    steps: Vec<u64>,
    values: Vec<f64>,
}

const TEMPLATE: &str = include_str!("../templates/report.html.j2");
const SCRIPT: &str = include_str!("../templates/vendor/uPlot.iife.min.js");
const STYLE: &str = include_str!("../templates/vendor/uPlot.min.css");

/// The page. Errors only if the template itself is wrong, which its test would show.
pub fn page(heading: &Heading, arms: &[Arm]) -> Result<String, String> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.add_template("report.html", TEMPLATE).map_err(|e| e.to_string())?;
    let template = environment.get_template("report.html").map_err(|e| e.to_string())?;
    let safe = minijinja::Value::from_safe_string;
    template
        .render(minijinja::context! {
            page => Page { heading, table: table(arms) },
            data => safe(script_data(arms)),
            vendor_js => safe(SCRIPT.to_owned()),
            vendor_css => safe(STYLE.to_owned()),
        })
        .map_err(|e| e.to_string())
}

/// JSON that cannot end the script it stands in.
fn script_data(arms: &[Arm]) -> String {
    let mut metrics: Vec<String> =
        arms.iter().flat_map(|a| &a.runs).flat_map(|r| r.metrics.keys().cloned()).collect();
    metrics.sort();
    metrics.dedup();
    let metrics: Vec<_> = metrics
        .iter()
        .map(|name| {
            let lines = lines(arms, |run| run.metrics.get(name).cloned().unwrap_or_default());
            json!({ "name": name, "lines": lines })
        })
        .collect();
    let band = rows(arms).iter().find(|r| r.metric == "training loss").and_then(|r| r.band);
    let value = json!({
        "loss": lines(arms, |run| run.loss.clone()),
        "metrics": metrics,
        "difference": {
            "title": difference_title(arms),
            "lines": differences(arms),
            "band": band,
        },
    });
    value.to_string().replace('<', "\\u003c")
}

fn lines(arms: &[Arm], points: impl Fn(&crate::compare::Curves) -> Vec<(u64, f64)>) -> Vec<Line> {
    let mut lines = Vec::new();
    for (arm, found) in arms.iter().enumerate() {
        for (run, curves) in found.runs.iter().enumerate() {
            let (steps, values) = points(curves).into_iter().unzip();
            lines.push(Line {
                label: format!("{} #{}", found.name, run + 1),
                arm,
                run,
                steps,
                values,
            });
        }
    }
    lines
}

fn pair(arms: &[Arm]) -> Option<(&Arm, usize, &Arm)> {
    let base = arms.iter().find(|a| a.role == Role::Base)?;
    let at = arms.iter().position(|a| a.role == Role::Treatment)?;
    Some((base, at, arms.get(at)?))
}

fn difference_title(arms: &[Arm]) -> String {
    match pair(arms) {
        Some((base, _, treated)) => {
            format!(
                "training loss, {} minus {}, paired by seed (band: A/A)",
                treated.name, base.name
            )
        }
        None => String::new(),
    }
}

fn differences(arms: &[Arm]) -> Vec<Line> {
    let Some((base, arm, treated)) = pair(arms) else { return Vec::new() };
    let mut lines = Vec::new();
    for (run, (a, b)) in base.runs.iter().zip(&treated.runs).enumerate() {
        let (steps, values) = a
            .loss
            .iter()
            .zip(&b.loss)
            .filter(|((sa, _), (sb, _))| sa == sb)
            .map(|((step, a), (_, b))| (*step, b - a))
            .unzip();
        lines.push(Line { label: format!("seed #{}", run + 1), arm, run, steps, values });
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Curves;

    #[test]
    fn the_page_holds_all_it_needs_and_escapes_what_it_shows() {
        let heading = Heading {
            title: "a </script><b> & c".to_owned(),
            verdict: "controlled".to_owned(),
            controlled: true,
            lock_id: "00".to_owned(),
            notes: vec!["treatment: <canon>".to_owned()],
        };
        let run = Curves { loss: vec![(1, 2.0), (2, 1.0)], ..Curves::default() };
        let arm = |name: &str, role| Arm { name: name.to_owned(), role, runs: vec![run.clone()] };
        let arms = [arm("</script>", Role::Base), arm("treated", Role::Treatment)];
        let page = page(&heading, &arms).unwrap();
        assert!(page.contains("a &lt;&#x2f;script&gt;&lt;b&gt; &amp; c"), "{}", &page[..600]);
        assert!(page.contains("treatment: &lt;canon&gt;"));
        assert!(page.contains("\\u003c/script> #1"));
        assert!(!page.contains("http-equiv") && !page.contains("src=\"http"));
        assert_eq!(page.matches("</script>").count(), 2);
    }
}
