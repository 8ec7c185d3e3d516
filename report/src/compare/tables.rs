//! The tables of a comparison: one for each treatment arm; with a grid, also the differences at every point, by both
//! rules, and the means; and the size, cost and tuning of each arm.

use super::bootstrap;
use super::cells::{NOTHING, effect_cells, interval_head, mean_cell, p_cell};
use super::costs::Measured;
use super::design::{Design, NOT_CONTROLLED, SelectionRule};
use super::facts::{ArmFacts, Facts, PairFacts};
use super::metric::unit;
use super::metric_facts::MetricFacts;
use super::text_table::{Section, TextTable};
use super::unit::Unit;

impl Facts {
    /// The tables, in order.
    pub(super) fn sections(&self) -> Vec<Section> {
        let mut sections: Vec<Section> =
            self.pairs.iter().map(|pair| self.pair_section(pair)).collect();
        if self.has_grid() {
            sections.push(self.points_section());
            sections.extend(self.rules_section());
            sections.push(self.grid_section());
        }
        sections.extend(self.costs_section());
        sections
    }

    /// A pair's title; empty for the only pair.
    pub(crate) fn pair_title(&self, pair: &PairFacts) -> String {
        let controlled = pair.design != Design::NotControlled;
        if self.treated().count() == 1 && self.points.len() == 1 && controlled {
            return String::new();
        }
        match pair.design {
            Design::NotControlled => format!("{}: {NOT_CONTROLLED}", pair.title()),
            Design::Tuned => format!("{}: tuned", pair.title()),
            Design::Controlled | Design::Bundle | Design::Compensated => pair.title(),
        }
    }

    /// Heads of the columns that [`PairFacts::difference_cells`] fills.
    fn difference_heads<'r>(
        &self,
        pair: Option<&PairFacts>,
        rows: impl Iterator<Item = &'r MetricFacts>,
    ) -> Vec<String> {
        let mut head =
            vec!["paired difference".to_owned(), interval_head(self.analysis.confidence, rows)];
        head.extend(pair.and_then(|pair| pair.replicate.as_ref()).map(|_| NOISE_HEAD.to_owned()));
        head
    }

    fn pair_section(&self, pair: &PairFacts) -> Section {
        let rows = &pair.metrics;
        let flips = rows.iter().any(|row| row.sign_flip.is_some());
        let measured = rows.iter().any(|row| row.measured_on.is_some());
        let split = rows.iter().any(|row| row.split.is_some());
        let mut head = vec![String::new(), pair.base.clone(), pair.arm.clone()];
        head.extend(pair.replicate.clone());
        head.extend(self.difference_heads(Some(pair), rows.iter()));
        head.push("p".to_owned());
        head.extend(flips.then(|| "sign-flip p".to_owned()));
        head.extend(["p, Holm", "effect"].map(str::to_owned));
        head.extend(measured.then(|| "measured on".to_owned()));
        head.extend(split.then(|| "SE: seeds and questions".to_owned()));
        let cells = |row: &MetricFacts| {
            let mut cells = vec![row.label()];
            cells.extend(
                row.values
                    .iter()
                    .zip(pair.runs)
                    .map(|(values, runs)| mean_cell(row.unit, values, runs)),
            );
            cells.extend(pair.difference_cells(Some(row)));
            cells.push(row.p_cell());
            cells.extend(flips.then(|| p_cell(row.sign_flip.map(|flip| flip.p))));
            let of_seeds = pair.diverged_seeds.suffix(row.paired.len());
            cells.extend(effect_cells(row.judged, &of_seeds));
            cells.extend(measured.then(|| row.measured_on_cell()));
            cells.extend(split.then(|| row.split_cell()));
            cells
        };
        let effect = |row: &MetricFacts| row.judged.map_or("", |word| word.effect.word());
        Section {
            title: self.pair_title(pair),
            table: TextTable {
                head,
                rows: rows.iter().map(cells).collect(),
                effects: rows.iter().map(effect).collect(),
            },
        }
    }

    /// Single differences and bootstrap intervals, only for a page.
    pub(super) fn secondary_sections(&self) -> Vec<Section> {
        let head = ["", "lowest … highest", "95% bootstrap interval", "covers"];
        let cells = |row: &MetricFacts| {
            let covers = row.bootstrap.and_then(|interval| bootstrap::covers(interval.n));
            vec![
                row.label(),
                row.range_cell(),
                row.bootstrap_cell(),
                covers.map_or_else(|| NOTHING.to_owned(), |percent| format!("{percent}%")),
            ]
        };
        let section = |pair: &PairFacts| Section {
            title: self.pair_title(pair),
            table: TextTable::plain(
                head.map(str::to_owned).to_vec(),
                pair.metrics.iter().map(cells).collect(),
            ),
        };
        self.pairs.iter().map(section).collect()
    }

    /// The paired difference of the judged metric at every point, which no choice of points can improve.
    fn points_section(&self) -> Section {
        let pairs = &self.at_each_point;
        let mut head = ["", "base", "treated"].map(str::to_owned).to_vec();
        head.extend(self.difference_heads(pairs.first(), judged_rows(pairs)));
        let cells = |pair: &PairFacts| {
            let mut cells = vec![pair.arm_label.clone()];
            cells.extend(pair.judged_cells(self.judged_by()));
            cells
        };
        Section {
            title: format!("{}, paired at each point of the grid", self.judged_label),
            table: TextTable::plain(head, pairs.iter().map(cells).collect()),
        }
    }

    /// The same at the points of both rules, with the locked one marked.
    fn rules_section(&self) -> Option<Section> {
        let every = &self.at_each_point;
        let mut head = ["", "base at", "treated at", "base", "treated"].map(str::to_owned).to_vec();
        head.extend(self.difference_heads(every.first(), judged_rows(every)));
        let by_rule = [
            (SelectionRule::PerArm, &self.best_per_arm),
            (SelectionRule::OfBase, &self.best_of_base),
        ];
        let mut rows: Vec<(&PairFacts, Vec<String>)> = Vec::new();
        for (rule, pairs) in by_rule {
            let declared = if rule == self.rule() { " (declared)" } else { "" };
            let point = |point: usize| self.points.get(point).cloned().unwrap_or_default();
            for pair in pairs {
                let mut cells = vec![
                    format!("{}: {}{declared}", pair.arm, rule.name()),
                    point(pair.base_point),
                    point(pair.arm_point),
                ];
                cells.extend(pair.judged_cells(self.judged_by()));
                rows.push((pair, cells));
            }
        }
        rows.sort_by_key(|(pair, _)| self.arms.iter().position(|arm| arm.name == pair.arm));
        let [per_arm, of_base] = by_rule.map(|(rule, _)| rule.name());
        let title = format!("{}, {per_arm} and {of_base}", self.judged_label);
        let rows: Vec<Vec<String>> = rows.into_iter().map(|(_, cells)| cells).collect();
        (!rows.is_empty()).then_some(Section { title, table: TextTable::plain(head, rows) })
    }

    /// The rule's metric for every arm at every point.
    fn grid_section(&self) -> Section {
        let mut head = vec![String::new()];
        head.extend(self.arms.iter().map(|arm| arm.name.clone()));
        let rows = self.points.iter().enumerate().map(|(point, label)| {
            let cell = |arm: &ArmFacts| {
                let (count, values) = arm.points.get(point).cloned().unwrap_or_default();
                let cell = mean_cell(unit(self.judged_by()), &values, count);
                if arm.chosen_point == Some(point) { format!("{cell} *") } else { cell }
            };
            std::iter::once(label.clone()).chain(self.arms.iter().map(cell)).collect()
        });
        Section {
            title: format!("{} at every point of the grid", self.judged_label),
            table: TextTable::plain(head, rows.collect()),
        }
    }

    /// The cost of all arms; `None` if no lock gives costs.
    fn costs_section(&self) -> Option<Section> {
        if self.proof.costs.is_empty() {
            return None;
        }
        // Leave out columns that no arm has measured.
        let timed = self.arms.iter().any(|arm| arm.measured.step_seconds.is_some());
        let weighed = self.arms.iter().any(|arm| arm.measured.peak_memory_bytes.is_some());
        let mut head = vec!["", "parameters", "training FLOPs per run", "activations per token"];
        head.extend(timed.then_some("step time"));
        head.extend(weighed.then_some("peak memory"));
        head.extend(["points tried", "runs", "tokens of all runs"]);
        let nothing = || NOTHING.to_owned();
        let number = |value: Option<f64>| value.map_or_else(nothing, large);
        let cells = |ArmFacts { name, costs, measured, tuning, .. }: &ArmFacts| {
            let costs = costs.unwrap_or_default();
            let Measured { step_seconds, peak_memory_bytes } = *measured;
            let seconds = step_seconds.map_or_else(nothing, |seconds| Unit::Seconds.value(seconds));
            let mut cells = vec![name.clone()];
            cells.extend([costs.parameters, costs.flops, costs.activations].map(number));
            cells.extend(timed.then_some(seconds));
            cells.extend(weighed.then(|| peak_memory_bytes.map_or_else(nothing, mebibytes)));
            cells.extend([tuning.points.to_string(), tuning.runs.to_string()]);
            cells.push(number(tuning.tokens));
            cells
        };
        Some(Section {
            title: "size, cost and tuning of each arm".to_owned(),
            table: TextTable::plain(
                head.into_iter().map(str::to_owned).collect(),
                self.arms.iter().map(cells).collect(),
            ),
        })
    }
}

const NOISE_HEAD: &str = "A/A: SE of mean";

/// The facts of the judged metric, where runs have it.
fn judged_rows(pairs: &[PairFacts]) -> impl Iterator<Item = &MetricFacts> {
    pairs.iter().flat_map(|pair| &pair.metrics)
}

impl PairFacts {
    /// The mean difference, its interval, and the difference of the base from its replicate.
    fn difference_cells(&self, row: Option<&MetricFacts>) -> Vec<String> {
        let cell = |cell: fn(&MetricFacts) -> String| row.map_or_else(|| NOTHING.to_owned(), cell);
        let difference = row.map(|row| row.difference_cell(self.diverged_seeds));
        let mut cells = vec![difference.unwrap_or_else(|| NOTHING.to_owned())];
        cells.push(cell(MetricFacts::interval_cell));
        cells.extend(self.replicate.as_ref().map(|_| cell(MetricFacts::noise_cell)));
        cells
    }

    /// Means of the base and the treated arm, and their difference.
    fn judged_cells(&self, metric: &str) -> Vec<String> {
        let row = self.metric(metric);
        let [base, treated, _] = self.runs;
        let sides = [base, treated].into_iter().enumerate();
        let mut cells: Vec<String> = sides
            .map(|(side, runs)| {
                let values = row.and_then(|row| row.values.get(side));
                mean_cell(unit(metric), values.map_or(&[], Vec::as_slice), runs)
            })
            .collect();
        cells.extend(self.difference_cells(row));
        cells
    }
}

/// `412 MiB`.
fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

/// `120 128`: whole up to a million, then three figures.
fn large(value: f64) -> String {
    if value.abs() < 1e6 { format!("{value}") } else { format!("{value:.2e}") }
}
