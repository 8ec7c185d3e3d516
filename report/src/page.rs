//! Runs and comparisons as one self-contained HTML file.
//!
//! In: finished runs with their locks, the verdicts of comparisons, and the requested published curves.
//! Out: the page's text. Must stay true: the page works offline, and its content policy allows
//! no fetches and no script except ours, by hash; every word and number from a file is escaped
//! in its context; tables and still pictures give the same facts without scripts and on paper; the same runs give the
//! same bytes.

mod data;
mod own;
mod published;
mod run;
mod speed;
mod spikes;
mod still;
mod verdicts;

use std::collections::BTreeMap;

use lab::comparison::Role;
use minijinja::{AutoEscape, Environment, UndefinedBehavior};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::compare::{
    AaNoise, Comparison, Design, Summary, TRAINING_LOSS, Table, at, methods, paired, summary, title,
};
use crate::overview::{self, Entry};
use crate::samples::Sample;
use crate::scores::{self, Scores};
use crate::statistics::noise::OfMean;

pub use published::{NoSuchModel, Published};
pub use run::{Logged, MOST_POINTS, Run, is_text, read, read_so_far};
pub(crate) use run::{started, step_seconds};
pub use spikes::Spike;

/// The heading above a comparison's tables: its design, without any result.
#[derive(Clone, Debug, Serialize)]
pub struct Heading {
    /// The comparison's name.
    pub title: String,
    /// The verdicts of all arms in one line.
    pub verdict: String,
    /// The design of all judged pairs together.
    pub design: Design,
    /// The id of the comparison's lock.
    pub lock_id: String,
    /// One line each: consequences, and the differences between the arms' platforms.
    pub notes: Vec<String>,
}

/// One comparison with its runs.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its heading.
    pub heading: Heading,
    /// Its tables and sentences.
    pub summary: Summary,
    /// The runs of all arms.
    pub runs: Vec<Run>,
    /// A paragraph for a paper.
    methods: String,
    /// Kept for the joint table of all parts.
    comparison: Comparison,
    pairs: Vec<Paired>,
    /// For each arm except the base, the intended differences.
    treatment: BTreeMap<String, Vec<String>>,
}

/// Runs that are compared seed by seed, as indices into a list.
#[derive(Clone, Debug, PartialEq)]
struct Paired {
    title: String,
    /// Pairs of treated and base run.
    lines: Vec<(usize, usize)>,
    /// Pairs of replicate and base run; their differences are noise.
    replicate: Vec<(usize, usize)>,
    /// Differences of the final training loss (treated minus base), and the noise of their mean if known.
    finals: Vec<f64>,
    noise: Option<OfMean>,
    /// Its design and that in words; `None` for runs outside comparisons.
    design: Option<(Design, String)>,
}

impl Paired {
    /// The standard deviation of single differences between the base and its replicate.
    fn single(&self) -> Option<f64> {
        self.noise.map(|of| of.standard_error * libm::sqrt(of.n as f64))
    }
}

/// Everything that a page shows.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The comparisons, in order.
    pub parts: Vec<Part>,
    /// Runs outside any comparison.
    pub alone: Vec<Run>,
    /// Published curves to show with them.
    pub published: Published,
    /// Results of `canonc eval` to show with them.
    pub scores: Vec<Scores>,
    /// Texts that models wrote, to show with them.
    pub samples: Vec<Sample>,
    /// The peak of the machine that trained the runs, in FLOP/s, if the user knows it.
    pub peak_flops: Option<f64>,
    /// Omitted items, with reasons.
    pub left_out: Vec<String>,
}

const TEMPLATE: &str = include_str!("../page/page.html");
const STYLES: [&str; 2] =
    [include_str!("../page/vendor/uPlot.min.css"), include_str!("../page/style.css")];
/// License of the first script, which must accompany it.
const LICENSE: &str = include_str!("../page/vendor/LICENSE");
/// In execution order.
const SCRIPTS: [&str; 7] = [
    include_str!("../page/vendor/uPlot.iife.min.js"),
    include_str!("../page/data.js"),
    include_str!("../page/state.js"),
    include_str!("../page/charts.js"),
    include_str!("../page/panel.js"),
    include_str!("../page/export.js"),
    include_str!("../page/main.js"),
];

impl Part {
    /// The part of a finished comparison. The treatment is its lock's.
    pub fn new(
        heading: Heading,
        comparison: &Comparison,
        treatment: BTreeMap<String, Vec<String>>,
        runs: Vec<Run>,
    ) -> Part {
        let place = |arm: &str, role: Role, point: usize, seed: usize| {
            runs.iter().position(|run| {
                run.arm == arm && run.role == Some(role) && run.point == point && run.seed == seed
            })
        };
        let pairs = comparison.pairs().into_iter().map(|pair| {
            let base = |seed| place(&pair.base.name, Role::Base, pair.base_point, seed);
            let lines =
                paired(pair.base_runs(), pair.arm_runs()).into_iter().filter_map(|(_, run)| {
                    let treated = place(&pair.arm.name, Role::Treatment, pair.arm_point, run.seed)?;
                    Some((treated, base(run.seed)?))
                });
            let replicate = paired(pair.base_runs(), pair.replicate_runs());
            let replicate = replicate.into_iter().filter_map(|(_, run)| {
                let arm = pair.replicate?;
                Some((
                    place(&arm.name, Role::Replicate, pair.base_point, run.seed)?,
                    base(run.seed)?,
                ))
            });
            let named = title(comparison, &pair);
            let row = pair.rows().into_iter().find(|row| row.metric == TRAINING_LOSS);
            Paired {
                title: match named.is_empty() {
                    true => format!(
                        "{} against {}",
                        at(comparison, &pair.arm.name, pair.arm_point),
                        at(comparison, &pair.base.name, pair.base_point)
                    ),
                    false => named,
                },
                lines: lines.collect(),
                replicate: replicate.collect(),
                noise: row.as_ref().and_then(|row| match row.itself {
                    Some(Ok(AaNoise::OfMean(of))) => Some(of),
                    Some(Ok(AaNoise::Ratio(_)) | Err(_)) | None => None,
                }),
                finals: row.map(|row| row.paired).unwrap_or_default(),
                design: Some((pair.design(), pair.standing())),
            }
        });
        let pairs = pairs.collect();
        let methods = methods(&heading.title, &heading.lock_id, comparison);
        let comparison = comparison.clone();
        Part { summary: summary(&comparison), heading, runs, methods, comparison, pairs, treatment }
    }
}

impl Report {
    /// All runs, in the page's numbering.
    fn runs(&self) -> Vec<&Run> {
        self.parts.iter().flat_map(|part| &part.runs).chain(&self.alone).collect()
    }

    /// All pairs, as run numbers; runs outside comparisons are paired only if proven twins.
    fn pairs(&self, judged: &verdicts::Judged) -> Vec<Paired> {
        let mut pairs = Vec::new();
        let mut first = 0;
        for part in &self.parts {
            let moved = |places: &[(usize, usize)]| -> Vec<(usize, usize)> {
                places.iter().map(|(a, b)| (a + first, b + first)).collect()
            };
            // Comparisons may use the same arm names.
            let name = match self.parts.len() {
                0 | 1 => String::new(),
                _ => format!("{}: ", part.heading.title),
            };
            pairs.extend(part.pairs.iter().map(|pair| Paired {
                title: format!("{name}{}", pair.title),
                lines: moved(&pair.lines),
                replicate: moved(&pair.replicate),
                ..pair.clone()
            }));
            first += part.runs.len();
        }
        pairs.extend(judged.twins(&self.alone, first));
        pairs
    }

    /// The primary rows of all comparisons as one family.
    fn together(&self) -> Table {
        let entries: Vec<Entry<'_>> = self
            .parts
            .iter()
            .map(|part| Entry { task: &part.heading.title, comparison: &part.comparison })
            .collect();
        match entries.len() {
            0 | 1 => Table::plain(Vec::new(), Vec::new()),
            _ => {
                let mut table = overview::table(&entries);
                if let Some(first) = table.head.first_mut() {
                    *first = "comparison".to_owned();
                }
                table
            }
        }
    }

    fn title(&self) -> String {
        let titles: Vec<&str> = self.parts.iter().map(|part| part.heading.title.as_str()).collect();
        match (titles.as_slice(), self.alone.as_slice()) {
            ([], [run]) => run.name.clone(),
            ([], []) if !self.scores.is_empty() => "Scores".to_owned(),
            ([], []) if !self.samples.is_empty() => "Samples".to_owned(),
            ([], []) => "Published curves".to_owned(),
            ([], runs) => format!("{} runs", runs.len()),
            (titles, _) => titles.join(", "),
        }
    }
}

/// The parts that the template shows without scripts.
#[derive(Serialize)]
struct Shown<'a> {
    title: String,
    parts: Vec<PartShown<'a>>,
    /// The primary rows of all comparisons; empty for fewer than two.
    together: Table,
    finals: own::Finals,
    speed: own::Finals,
    samples: &'a [Sample],
    /// Every score of `canonc eval`, and those beside published ones.
    scores: [Table; 2],
    scores_caption: &'static str,
    figures: Vec<still::Figure>,
    answers: Vec<published::Answer>,
    has_own: bool,
    published: usize,
    left_out: &'a [String],
    version: &'static str,
}

#[derive(Serialize)]
struct PartShown<'a> {
    heading: &'a Heading,
    summary: &'a Summary,
    methods: &'a str,
}

/// Renders the page. Errors only if the template itself is wrong, which its test would show.
pub fn page(report: &Report) -> Result<String, String> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.add_template("page.html", TEMPLATE).map_err(|e| e.to_string())?;
    let template = environment.get_template("page.html").map_err(|e| e.to_string())?;
    let judged = verdicts::judge(report);
    let pairs = report.pairs(&judged);
    let parts = report.parts.iter();
    let answers = own::answers(report, &pairs);
    let shown = Shown {
        title: report.title(),
        parts: parts
            .map(|part| PartShown {
                heading: &part.heading,
                summary: &part.summary,
                methods: &part.methods,
            })
            .collect(),
        together: report.together(),
        finals: own::finals(report),
        speed: speed::table(&report.runs(), report.peak_flops),
        samples: &report.samples,
        scores: [scores::all(&report.scores), scores::beside_published(&report.scores)],
        scores_caption: scores::CAPTION,
        figures: still::figures(&report.runs(), &report.part_numbers(), &pairs),
        has_own: answers.iter().any(|answer| !answer.yours.is_empty()),
        answers,
        published: report.published.models.len(),
        left_out: &report.left_out,
        version: env!("CARGO_PKG_VERSION"),
    };
    let safe = minijinja::Value::from_safe_string;
    // The hash covers the script element's exact content, which starts right after its tag.
    let script = format!("\n/* uPlot\n{LICENSE}*/\n{}", SCRIPTS.join("\n"));
    template
        .render(minijinja::context! {
            page => shown,
            data => safe(in_script(&data::json(report, &pairs, &judged))),
            script_hash => safe(base64(&Sha256::digest(script.as_bytes()))),
            script => safe(script),
            style => safe(STYLES.join("\n")),
        })
        .map_err(|e| e.to_string())
}

/// JSON that can neither end its script element, nor begin a comment, nor break a line of a script.
fn in_script(value: &serde_json::Value) -> String {
    let mut text = String::new();
    for c in value.to_string().chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                text.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => text.push(c),
        }
    }
    text
}

/// Base64, as used for hashes in a content policy.
fn base64(bytes: &[u8]) -> String {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let word = three.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte));
        let word = word << (8 * (3 - three.len()));
        for place in 0..4 {
            let sign = SIGNS.get((word >> (18 - 6 * place) & 63) as usize).copied();
            text.push(if place <= three.len() { char::from(sign.unwrap_or(b'=')) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests;
