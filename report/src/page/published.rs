//! The release's published data, from `recipes/published/data`: the curves, spikes and twins of the models that a pattern
//! names, each axis once, and the known answers. Next to a user's runs it is always marked *published*.

use std::collections::BTreeMap;
use std::io::Read as _;

use published::{ANSWERS, BENCHMARKS, LOSS, ORDERS, RECIPES, SPIKES, TWIN_KEYS, TWINS};
use serde_json::{Value, json};

/// Statements of *no gain* or *not what it seems*. The page marks them, so that the others do not mislead.
const SOBER: [&str; 6] = [
    "mamba2_canon_avg13_gain",
    "loss_vs_mmlu_counterexample",
    "data_order_outlier",
    "wd_outlier",
    "rank_8B",
    "ctx_1hop",
];

/// A curve: its model, its quantity, its axis, and its values.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedCurve {
    /// Name of the published model.
    pub model: String,
    /// The quantity on the y axis.
    pub what: String,
    /// Index of its axis.
    pub axis: usize,
    /// A value at each point of the axis.
    pub values: Vec<f64>,
}

/// The requested part of the published data.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Published {
    /// Axes in billions of tokens, each shared by many curves.
    pub axes: Vec<Vec<f64>>,
    /// The chosen curves.
    pub curves: Vec<PublishedCurve>,
    /// Every model that a pattern names.
    pub models: Vec<String>,
}

/// Error for a pattern that names no model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSuchModel {
    /// The pattern.
    pub pattern: String,
    /// The known model with the most similar name, if one is similar.
    pub similar: Option<String>,
}

/// A published statement to compare a run with.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub(super) struct PublishedAnswer {
    pub id: &'static str,
    pub scope: &'static str,
    pub metric: &'static str,
    pub value: &'static str,
    pub unit: &'static str,
    pub file: &'static str,
    pub caveat: &'static str,
    /// Whether it states the absence of a gain, or a trap.
    pub sober: bool,
    /// The user's own comparable numbers.
    pub yours: Vec<String>,
}

type TableRow = BTreeMap<&'static str, &'static str>;

/// Rows of a table by column name; a missing cell is empty.
fn rows(text: &'static str) -> Vec<TableRow> {
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap_or("").split('\t').collect();
    lines
        .filter(|line| !line.is_empty())
        .map(|line| {
            let cells = line.split('\t').chain(std::iter::repeat(""));
            head.iter().copied().zip(cells).collect()
        })
        .collect()
}

fn cell(row: &TableRow, column: &str) -> &'static str {
    row.get(column).copied().unwrap_or("")
}

/// All published models, in the order of their table.
fn models() -> Vec<&'static str> {
    rows(RECIPES).iter().map(|row| cell(row, "model")).collect()
}

/// Whether a pattern matches a name; `*` matches anything, all other characters match themselves.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, after)) => name.strip_prefix(before).is_some_and(|rest| {
            let cuts = (0..=rest.len()).filter(|at| rest.is_char_boundary(*at));
            cuts.into_iter().any(|at| rest.get(at..).is_some_and(|rest| fits(after, rest)))
        }),
    }
}

/// Most stars in a pattern; more are slow and no clearer.
const MOST_STARS: usize = 4;

impl Published {
    /// The curves of every model that matches a pattern; `all` matches every model.
    pub fn named(patterns: &[String]) -> Result<Published, NoSuchModel> {
        let all = models();
        let mut wanted = Vec::new();
        for pattern in patterns {
            let stars = pattern.matches('*').count();
            let named = all
                .iter()
                .filter(|name| pattern == "all" || (stars <= MOST_STARS && fits(pattern, name)));
            let before = wanted.len();
            wanted.extend(named.copied());
            if wanted.len() == before {
                let similar = nearest(pattern, &all);
                return Err(NoSuchModel { pattern: pattern.clone(), similar });
            }
        }
        let models: Vec<String> = all
            .iter()
            .filter(|name| wanted.contains(name))
            .map(|name| (*name).to_owned())
            .collect();
        let mut published = Published { models, ..Published::default() };
        if !published.models.is_empty() {
            published.add(LOSS, false);
            published.add(BENCHMARKS, true);
        }
        Ok(published)
    }

    /// Adds the curves of a data file, which is sorted by model and benchmark.
    fn add(&mut self, packed: &[u8], benchmarks: bool) {
        let mut text = String::new();
        // The files are part of the binary, and a test reads them.
        let _ = flate2::read::GzDecoder::new(packed).read_to_string(&mut text);
        let mut curves: Vec<(String, String, Vec<f64>, Vec<f64>)> = Vec::new();
        for line in text.lines().skip(1) {
            let cells: Vec<&str> = line.split(',').collect();
            let (model, what, x, y) = match (benchmarks, cells.as_slice()) {
                (true, [model, what, x, y]) => (*model, *what, x, y),
                (false, [model, x, y]) => (*model, "training loss", x, y),
                _ => continue,
            };
            let (Ok(x), Ok(y)) = (x.parse(), y.parse()) else { continue };
            if !self.models.iter().any(|known| known == model) {
                continue;
            }
            match curves.last_mut() {
                Some((m, w, xs, ys)) if m == model && w == what => {
                    xs.push(x);
                    ys.push(y);
                }
                Some(_) | None => {
                    curves.push((model.to_owned(), what.to_owned(), vec![x], vec![y]));
                }
            }
        }
        for (model, what, xs, values) in curves {
            let known = self.axes.iter().position(|axis| *axis == xs);
            let axis = known.unwrap_or_else(|| {
                self.axes.push(xs);
                self.axes.len() - 1
            });
            self.curves.push(PublishedCurve { model, what, axis, values });
        }
    }

    /// The JSON for the page's script.
    pub(super) fn json(&self) -> Value {
        let has = |name: &str| self.models.iter().any(|model| model == name);
        let fields = |row: &TableRow| {
            json!({
                "name": cell(row, "model"),
                "family": cell(row, "family"),
                "size": cell(row, "size"),
                "canon": cell(row, "canon") == "1",
                "tokens": number(cell(row, "tokens_total")),
                "tokens_per_step": number(cell(row, "tokens_per_step")),
                "fields": {
                    "optimizer.lr": cell(row, "optim.lr"),
                    "optimizer.weight_decay": cell(row, "optim.weight_decay"),
                    "optimizer.lr_wd_steps": cell(row, "lr_x_wd_x_steps"),
                    "budget.steps": cell(row, "steps"),
                    "budget.tokens": cell(row, "tokens_total"),
                    "batch.tokens_per_step": cell(row, "tokens_per_step"),
                    "data.seq_len": cell(row, "data.seq_len"),
                    "schedule.warmup": cell(row, "optim.warmup"),
                    "arch.rope_share": cell(row, "rope_fraction"),
                },
            })
        };
        let recipes = rows(RECIPES);
        let models: Vec<Value> =
            recipes.iter().filter(|row| has(cell(row, "model"))).map(fields).collect();
        let curves: Vec<Value> = self
            .curves
            .iter()
            .map(|PublishedCurve { model, what, axis, values }| {
                json!({ "model": model, "what": what, "axis": axis, "values": values })
            })
            .collect();
        let spikes: Vec<Value> = rows(SPIKES)
            .iter()
            .filter(|row| has(cell(row, "model")))
            .map(|row| {
                json!({
                    "model": cell(row, "model"),
                    "from": number(cell(row, "start_tokens_B")),
                    "to": number(cell(row, "end_tokens_B")),
                    "excess": number(cell(row, "max_excess_loss(MA50)")),
                })
            })
            .collect();
        json!({
            "axes": self.axes,
            "models": models,
            "curves": curves,
            "spikes": spikes,
            "orders": self.orders(),
            "twins": self.twins(),
        })
    }

    /// Models with a paired jitter that indicates another data order than their siblings'.
    fn orders(&self) -> Vec<Value> {
        let asked = |row: &&TableRow| self.models.iter().any(|model| model == cell(row, "model"));
        rows(ORDERS)
            .iter()
            .filter(asked)
            .map(|row| {
                json!({
                    "model": cell(row, "model"),
                    "size": cell(row, "size"),
                    "jitter": number(cell(row, "group_median")),
                    "ratio": number(cell(row, "ratio")),
                    "other": cell(row, "verdict").starts_with("DIFFERENT"),
                })
            })
            .collect()
    }

    /// Pairs of models that were both requested, with every key that differs.
    fn twins(&self) -> Vec<Value> {
        let has = |name: &str| self.models.iter().any(|model| model == name);
        let keys = rows(TWIN_KEYS);
        rows(TWINS)
            .iter()
            .filter(|row| has(cell(row, "base")) && has(cell(row, "canon")))
            .map(|row| {
                let (base, canon) = (cell(row, "base"), cell(row, "canon"));
                let differs: Vec<Value> = keys
                    .iter()
                    .filter(|row| cell(row, "base") == base && cell(row, "canon") == canon)
                    .map(|row| {
                        let [category, key, a, b] =
                            ["category", "key", "base_value", "canon_value"].map(|c| cell(row, c));
                        json!([category, key, a, b, ""])
                    })
                    .collect();
                json!({ "base": base, "treated": canon, "differs": differs })
            })
            .collect()
    }
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok()
}

/// The model name most similar to a pattern.
fn nearest(pattern: &str, names: &[&'static str]) -> Option<String> {
    let beginning = pattern.split('*').next().unwrap_or("").to_lowercase();
    let alike = |name: &&&str| {
        let name = name.to_lowercase();
        beginning.chars().zip(name.chars()).take_while(|(a, b)| a == b).count()
    };
    names
        .iter()
        .max_by_key(|name| (alike(name), std::cmp::Reverse(name.len())))
        .map(|n| (*n).to_owned())
}

/// All published statements, in the order of their table.
pub(super) fn answers() -> Vec<PublishedAnswer> {
    let mut before = "";
    rows(ANSWERS)
        .iter()
        .map(|row| {
            let [id, scope, metric, value, unit, file, caveat] =
                ["id", "scope", "metric", "published_value", "unit", "data_file", "caveat"]
                    .map(|column| cell(row, column));
            let sober = SOBER.contains(&id);
            // `same` means the metric of the row before.
            let metric = if metric == "same" { before } else { metric };
            before = metric;
            PublishedAnswer {
                id,
                scope,
                metric,
                value,
                unit,
                file,
                caveat,
                sober,
                yours: Vec::new(),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(patterns: &[&str]) -> Result<Published, NoSuchModel> {
        Published::named(&patterns.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn only_what_is_asked_for_is_there_and_each_axis_once() {
        let one = named(&["GLA5*-1B-*lr0.003"]).unwrap();
        assert_eq!(one.models, ["GLA5conv-1B-Nemo-1T-lr0.003", "GLA5Canon-1B-Nemo-1T-lr0.003"]);
        let losses: Vec<&PublishedCurve> =
            one.curves.iter().filter(|curve| curve.what == "training loss").collect();
        assert_eq!(losses.len(), 2);
        assert!(losses.iter().all(|curve| curve.axis == 0 && curve.values.len() == 400));
        // One axis for the loss, and one for every benchmark at the same checkpoints.
        assert_eq!(one.axes.len(), 2);
        assert_eq!(one.curves.len(), 2 * 15);
        assert_eq!(named(&[]).unwrap(), Published::default());
    }

    #[test]
    fn all_is_every_curve_and_small_enough_for_a_page() {
        let all = named(&["all"]).unwrap();
        assert_eq!(all.models.len(), 64);
        assert_eq!(all.curves.len(), 48 + 64 * 14);
        let json = all.json();
        assert_eq!(json["twins"].as_array().unwrap().len(), 32);
        assert_eq!(json["spikes"].as_array().unwrap().len(), 17);
        let other: Vec<&Value> =
            json["orders"].as_array().unwrap().iter().filter(|o| o["other"] == true).collect();
        assert_eq!(other.len(), 1);
        assert_eq!(other[0]["model"], "GDN2Canon-1B-Nemo-1T-lr0.005");
        let bytes = json.to_string().len();
        assert!(bytes < 1_000_000, "{bytes}");
    }

    #[test]
    fn a_pattern_that_fits_nothing_is_named() {
        let error = named(&["all", "gla5conv"]).unwrap_err();
        assert_eq!(error.pattern, "gla5conv");
        assert!(error.similar.unwrap().starts_with("GLA5"));
        assert!(fits("a*b*c", "a--b-c") && !fits("a*b", "a--bc") && fits("*", ""));
    }

    #[test]
    fn every_known_answer_is_there_with_those_that_sober() {
        let answers = answers();
        assert_eq!(answers.len(), 19);
        assert_eq!(answers.iter().filter(|answer| answer.sober).count(), SOBER.len());
        assert!(answers.iter().all(|a| !a.value.is_empty() && !a.scope.is_empty()));
    }
}
