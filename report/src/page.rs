//! Runs and comparisons as one self-contained HTML file.
//!
//! The page works offline: its content policy allows no fetches and no script except ours, by hash. Tables and still
//! pictures give the same facts without scripts and on paper. The same runs give the same bytes.

mod spikes;
mod run;
mod log;
mod published;
mod run_pairs;
mod contents;
mod verdicts;
mod final_values;
mod speed;
mod script_data;
mod still;
#[cfg(test)]
mod tests;

use minijinja::{AutoEscape, Environment, UndefinedBehavior};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::compare::{Summary, TextTable};
use crate::samples::Sample;
use crate::scores;

pub use contents::{Heading, PageContents, Part};
pub use log::{ForeignLog, ON_TRUST, PageLog};
pub use published::{NoSuchModel, Published};
pub use run::{Logged, MOST_POINTS, PageRun, is_text, read, read_so_far};
pub(crate) use run::{started, step_seconds};
pub use spikes::Spike;

use run_pairs::RunPairs;

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

/// What the template shows without scripts.
#[derive(Serialize)]
struct Shown<'a> {
    title: String,
    parts: Vec<PartShown<'a>>,
    /// The primary rows of all comparisons; empty for fewer than two.
    together: TextTable,
    finals: TextTable,
    /// Logs of other programs; they are in no other table.
    logs: TextTable,
    /// Whether there is anything to draw.
    has_curves: bool,
    speed: TextTable,
    samples: &'a [Sample],
    /// Every score of `canonc eval`, and those beside published ones.
    scores: [TextTable; 2],
    scores_caption: &'static str,
    figures: Vec<still::Figure>,
    answers: Vec<published::PublishedAnswer>,
    has_own: bool,
    published: usize,
    left_out: &'a [String],
    version: &'static str,
}

#[derive(Serialize)]
struct PartShown<'a> {
    heading: &'a Heading,
    summary: Summary,
    methods: String,
}

impl<'a> Shown<'a> {
    fn new(contents: &'a PageContents, pairs: &[RunPairs]) -> Shown<'a> {
        let runs = contents.runs();
        let answers = final_values::answers(&runs, pairs);
        let published = contents.published.models.len();
        let part = |part: &'a Part| PartShown {
            heading: &part.heading,
            summary: part.facts.summary(),
            methods: part.facts.methods(&part.heading.title, &part.heading.lock_id),
        };
        Shown {
            title: contents.title(),
            parts: contents.parts.iter().map(part).collect(),
            together: contents.together(),
            finals: final_values::table(&runs),
            logs: log::table(&contents.logs),
            has_curves: !runs.is_empty() || !contents.logs.is_empty() || published > 0,
            speed: speed::table(&runs, contents.peak_flops),
            samples: &contents.samples,
            scores: [scores::all(&contents.scores), scores::beside_published(&contents.scores)],
            scores_caption: scores::CAPTION,
            figures: still::figures(&contents.drawn(), &contents.part_numbers(), pairs),
            has_own: answers.iter().any(|answer| !answer.yours.is_empty()),
            answers,
            published,
            left_out: &contents.left_out,
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

/// Renders the page. Errors only if the template itself is wrong, which its test would show.
pub fn page(contents: &PageContents) -> Result<String, String> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.add_template("page.html", TEMPLATE).map_err(|e| e.to_string())?;
    let template = environment.get_template("page.html").map_err(|e| e.to_string())?;
    let verdicts = verdicts::judge(contents);
    let pairs = verdicts.pairs(contents);
    let safe = minijinja::Value::from_safe_string;
    // The hash covers the script element's exact content, which starts right after its tag.
    let script = format!("\n/* uPlot\n{LICENSE}*/\n{}", SCRIPTS.join("\n"));
    template
        .render(minijinja::context! {
            page => Shown::new(contents, &pairs),
            data => safe(in_script(&script_data::json(contents, &pairs, &verdicts))),
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
        for digit in 0..4 {
            let sign = SIGNS.get((word >> (18 - 6 * digit) & 63) as usize).copied();
            text.push(if digit <= three.len() { char::from(sign.unwrap_or(b'=')) } else { '=' });
        }
    }
    text
}
