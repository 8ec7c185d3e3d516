//! What a page shows: comparisons, runs outside of them, published curves, scores and samples.

use std::collections::BTreeMap;

use serde::Serialize;

use super::log::PageLog;
use super::published::Published;
use super::run::PageRun;
use super::run_pairs::RunPairs;
use crate::compare::{Design, Facts, TextTable};
use crate::overview::{self, TaskComparison};
use crate::samples::Sample;
use crate::scores::Scores;

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
    /// What its tables and sentences show.
    pub(super) facts: Facts,
    /// The runs of all arms.
    pub runs: Vec<PageRun>,
    pub(super) pairs: Vec<RunPairs>,
    /// For each arm except the base, the intended differences.
    pub(super) treatment: BTreeMap<String, Vec<String>>,
}

/// Everything that a page shows.
#[derive(Clone, Debug, Default)]
pub struct PageContents {
    /// The comparisons, in order.
    pub parts: Vec<Part>,
    /// Runs outside any comparison.
    pub alone: Vec<PageRun>,
    /// Logs of other programs, which are drawn and never compared.
    pub logs: Vec<PageLog>,
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

impl Part {
    /// The part of a finished comparison. The treatment is its lock's.
    pub fn new(
        heading: Heading,
        facts: Facts,
        treatment: BTreeMap<String, Vec<String>>,
        runs: Vec<PageRun>,
    ) -> Part {
        let pairs = facts.pairs.iter().map(|pair| RunPairs::new(&facts, pair, &runs)).collect();
        Part { heading, facts, runs, pairs, treatment }
    }
}

impl PageContents {
    /// All runs, in the page's numbering.
    pub(super) fn runs(&self) -> Vec<&PageRun> {
        self.parts.iter().flat_map(|part| &part.runs).chain(&self.alone).collect()
    }

    /// All that has curves: the runs, then the logs.
    pub(super) fn drawn(&self) -> Vec<&PageRun> {
        self.runs().into_iter().chain(self.logs.iter().map(|log| &log.run)).collect()
    }

    /// The primary rows of all comparisons as one family.
    pub(super) fn together(&self) -> TextTable {
        let comparisons: Vec<TaskComparison<'_>> = self
            .parts
            .iter()
            .map(|part| TaskComparison { task: &part.heading.title, facts: &part.facts })
            .collect();
        match comparisons.len() {
            0 | 1 => TextTable::plain(Vec::new(), Vec::new()),
            _ => {
                let mut table = overview::table(&comparisons);
                if let Some(first) = table.head.first_mut() {
                    *first = "comparison".to_owned();
                }
                table
            }
        }
    }

    /// The part number of each run and log.
    pub(super) fn part_numbers(&self) -> Vec<Option<usize>> {
        let of_parts = self.parts.iter().enumerate();
        let of_parts = of_parts.flat_map(|(p, part)| part.runs.iter().map(move |_| Some(p)));
        let others = self.alone.len() + self.logs.len();
        of_parts.chain(std::iter::repeat_n(None, others)).collect()
    }

    pub(super) fn title(&self) -> String {
        let titles: Vec<&str> = self.parts.iter().map(|part| part.heading.title.as_str()).collect();
        match (titles.as_slice(), self.alone.as_slice()) {
            ([], [run]) if self.logs.is_empty() => run.name.clone(),
            ([], []) if !self.logs.is_empty() => match self.logs.as_slice() {
                [log] => log.run.name.clone(),
                logs => format!("{} logs", logs.len()),
            },
            ([], []) if !self.scores.is_empty() => "Scores".to_owned(),
            ([], []) if !self.samples.is_empty() => "Samples".to_owned(),
            ([], []) => "Published curves".to_owned(),
            ([], runs) if self.logs.is_empty() => format!("{} runs", runs.len()),
            ([], runs) => format!(
                "{}, {}",
                dsl::counted(runs.len(), "run"),
                dsl::counted(self.logs.len(), "log")
            ),
            (titles, _) => titles.join(", "),
        }
    }
}
