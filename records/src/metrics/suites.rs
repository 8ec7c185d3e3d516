//! The scores of evaluation suites, as a member of an evaluation's line.
//!
//! In: each task's metrics. Out: text for the log, and the reverse. Must stay true: a score has the digests of what was
//! asked; only the last evaluation has each question's part; a line of a run without suites has no such member.

use std::collections::BTreeMap;

use lab::field::SuiteTask;
use serde_json::Value;
use tasks::metric::OF_SUITES;

use super::record::{float, read_float};

/// The scores of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct SuiteScores {
    /// The task, and digests of what was asked.
    pub task: SuiteTask,
    /// The value of each of its metrics, by word.
    pub scores: BTreeMap<String, f64>,
    /// Each question's part of each metric; empty in all evaluations but the last.
    pub each: BTreeMap<String, Vec<f64>>,
}

/// The member of a line.
pub(super) fn text(all: &[SuiteScores]) -> String {
    let parts = |SuiteScores { task, scores, each }: &SuiteScores| {
        let scores: Vec<String> =
            scores.iter().map(|(word, value)| format!("\"{word}\":{}", float(*value))).collect();
        let each: Vec<String> = each
            .iter()
            .map(|(word, parts)| {
                let parts: Vec<String> = parts.iter().map(|part| float(*part)).collect();
                format!("\"{word}\":[{}]", parts.join(","))
            })
            .collect();
        let each = match each.is_empty() {
            true => String::new(),
            false => format!(",\"each\":{{{}}}", each.join(",")),
        };
        format!("{{\"task\":\"{task}\",\"scores\":{{{}}}{each}}}", scores.join(","))
    };
    format!("[{}]", all.iter().map(parts).collect::<Vec<_>>().join(","))
}

pub(super) fn read(value: &Value) -> Option<Vec<SuiteScores>> {
    let one = |value: &Value| {
        let scores = value.get("scores")?.as_object()?.iter();
        let each = match value.get("each") {
            None => BTreeMap::new(),
            Some(each) => each
                .as_object()?
                .iter()
                .map(|(word, parts)| {
                    let parts = parts.as_array()?.iter().map(read_float).collect::<Option<_>>()?;
                    Some((word.clone(), parts))
                })
                .collect::<Option<_>>()?,
        };
        Some(SuiteScores {
            task: SuiteTask::parse(value.get("task")?.as_str()?)?,
            scores: scores
                .map(|(word, value)| Some((word.clone(), read_float(value)?)))
                .collect::<Option<_>>()?,
            each,
        })
    };
    value.as_array()?.iter().map(one).collect()
}

impl SuiteScores {
    /// A message if these are not scores of the lock's task; `last` if the evaluation is the run's last one.
    pub fn mismatch(&self, locked: &SuiteTask, last: bool) -> Option<String> {
        let SuiteScores { task, scores, each } = self;
        let name = &locked.name;
        if task != locked {
            return Some(format!(
                "logged scores of the task `{task}`, but the lock has `{locked}`"
            ));
        }
        let mut words: Vec<&String> = locked.metrics.iter().collect();
        words.sort();
        if !scores.keys().eq(words.iter().copied()) {
            return Some(format!("logged other metrics of the task `{name}` than the lock has"));
        }
        if !last {
            let said = "which only the last evaluation does";
            return (!each.is_empty())
                .then(|| format!("logged each question of the task `{name}`, {said}"));
        }
        if !each.keys().eq(words.iter().copied()) {
            return Some(format!("lacks single questions of the task `{name}`"));
        }
        for (word, parts) in each {
            let count = parts.len() as u64;
            if count != locked.questions {
                return Some(format!(
                    "logged {count} questions of the task `{name}`, but the lock has {}",
                    locked.questions
                ));
            }
            let sum: f64 = parts.iter().sum();
            let mean = match word.as_str() {
                "perplexity" => libm::exp(-sum / count as f64),
                word if is_share(word) => {
                    if parts.iter().any(|part| ![0.0, 1.0].contains(part)) {
                        return Some(format!(
                            "logged a part of `{name}/{word}` that is not 0 or 1"
                        ));
                    }
                    sum / count as f64
                }
                // The log has no words or bytes to divide by.
                _ => continue,
            };
            let logged = scores.get(word).copied().unwrap_or(f64::NAN);
            if mean.to_bits() != logged.to_bits() && !(mean.is_nan() && logged.is_nan()) {
                return Some(format!(
                    "logged {logged:?} for `{name}/{word}`, but its questions give {mean:?}"
                ));
            }
        }
        None
    }
}

fn is_share(word: &str) -> bool {
    OF_SUITES.contains(&(word, true, false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::digest::Digest;

    fn scores() -> SuiteScores {
        let digest = |text: &str| Digest::of("test", text);
        SuiteScores {
            task: SuiteTask {
                name: "lambada".to_owned(),
                metrics: vec!["perplexity".to_owned(), "acc".to_owned()],
                questions: 2,
                settings: digest("s"),
                asked: digest("q"),
                examples: None,
            },
            scores: [("acc".to_owned(), 0.5), ("perplexity".to_owned(), libm::exp(2.0))].into(),
            each: [("acc".to_owned(), vec![1.0, 0.0]), ("perplexity".to_owned(), vec![-1.0, -3.0])]
                .into(),
        }
    }

    #[test]
    fn scores_are_read_back() {
        let ended = text(&[scores()]);
        assert!(ended.contains(r#""scores":{"acc":0.5,"perplexity":7.38"#), "{ended}");
        assert!(ended.contains(r#""each":{"acc":[1.0,0.0],"perplexity":[-1.0,-3.0]}"#), "{ended}");
        let read = |text: &str| read(&serde_json::from_str(text).unwrap());
        assert_eq!(read(&ended), Some(vec![scores()]));
        let earlier = SuiteScores { each: BTreeMap::new(), ..scores() };
        assert!(!text(std::slice::from_ref(&earlier)).contains("each"));
        assert_eq!(read(&text(std::slice::from_ref(&earlier))), Some(vec![earlier]));
        assert_eq!(read(&ended.replace("settings", "setting")), None);
    }

    #[test]
    fn what_does_not_follow_is_named() {
        let locked = scores().task;
        assert_eq!(scores().mismatch(&locked, true), None);
        let wrong = |edit: fn(&mut SuiteScores), last: bool, says: &str| {
            let mut scores = scores();
            edit(&mut scores);
            let why = scores.mismatch(&locked, last).unwrap();
            assert!(why.contains(says), "{why}");
        };
        wrong(|it| it.task.asked = Digest::of("test", "other"), true, "but the lock has");
        wrong(|it| _ = it.scores.remove("acc"), true, "other metrics");
        wrong(|_| (), false, "only the last evaluation");
        wrong(|it| it.each.clear(), true, "lacks single questions");
        wrong(|it| it.each.get_mut("acc").unwrap().push(1.0), true, "logged 3 questions");
        wrong(|it| it.each.get_mut("acc").unwrap()[0] = 0.5, true, "not 0 or 1");
        wrong(|it| it.each.get_mut("acc").unwrap()[0] = 0.0, true, "its questions give 0.0");
        wrong(|it| it.each.get_mut("perplexity").unwrap()[0] = 0.0, true, "its questions give");
    }
}
