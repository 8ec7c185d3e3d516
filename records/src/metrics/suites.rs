//! The scores of evaluation suites, as a member of an evaluation's line.
//!
//! A score has the digests of what was asked. Only the last evaluation has each question's part, and those give its scores
//! to the bit. A line of a run without suites has no such member.

use std::collections::BTreeMap;

use lab::field::SuiteTask;
use serde_json::Value;
use tasks::metric::{MetricRule, of_word};

use super::number::{float, read_float};

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

impl SuiteScores {
    /// The scores of a task, from each question's part of each of its metrics, which only the `last` evaluation logs.
    pub fn new(task: &SuiteTask, parts: Vec<Vec<f64>>, last: bool) -> SuiteScores {
        let mut all =
            SuiteScores { task: task.clone(), scores: BTreeMap::new(), each: BTreeMap::new() };
        for (word, parts) in task.metrics.iter().zip(parts) {
            let counted = task.counted.unwrap_or_default();
            let value = of_word(word).map_or(f64::NAN, |metric| metric.rule.value(&parts, counted));
            all.scores.insert(word.clone(), value);
            if last {
                all.each.insert(word.clone(), parts);
            }
        }
        all
    }
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

/// A message if an evaluation does not have the scores of the lock's tasks, or if they do not follow from what was logged
/// with them; `last` if it is the evaluation after the run's last step.
pub fn mismatch(scores: &[SuiteScores], tasks: &[SuiteTask], last: bool) -> Option<String> {
    if scores.len() != tasks.len() {
        return Some(format!(
            "logged scores of {} of suites, but the lock has {}",
            dsl::counted(scores.len(), "task"),
            tasks.len()
        ));
    }
    scores.iter().zip(tasks).find_map(|(scores, locked)| scores.mismatch(locked, last))
}

impl SuiteScores {
    fn mismatch(&self, locked: &SuiteTask, last: bool) -> Option<String> {
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
        if let Some(reason) = impossible(scores, locked) {
            return Some(reason);
        }
        if !last {
            let rule = "which only the last evaluation does";
            return (!each.is_empty())
                .then(|| format!("logged each question of the task `{name}`, {rule}"));
        }
        if !each.keys().eq(words.iter().copied()) {
            return Some(format!("lacks single questions of the task `{name}`"));
        }
        let counted = locked.counted.unwrap_or_default();
        for (word, parts) in each {
            let rule = of_word(word)?.rule;
            if parts.len() as u64 != locked.questions {
                return Some(format!(
                    "logged {} questions of the task `{name}`, but the lock has {}",
                    parts.len(),
                    locked.questions
                ));
            }
            if rule == MetricRule::Share && parts.iter().any(|part| ![0.0, 1.0].contains(part)) {
                return Some(format!("logged a part of `{name}/{word}` that is not 0 or 1"));
            }
            let value = rule.value(parts, counted);
            let logged = scores.get(word).copied().unwrap_or(f64::NAN);
            if !same(value, logged) {
                return Some(format!(
                    "logged {logged:?} for `{name}/{word}`, but its questions give {value:?}"
                ));
            }
        }
        None
    }
}

/// The same bits; every NaN is the same.
fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

/// A message if no answers to the task's questions give these scores.
fn impossible(scores: &BTreeMap<String, f64>, locked: &SuiteTask) -> Option<String> {
    let SuiteTask { name, questions, .. } = locked;
    let counted = locked.counted.unwrap_or_default();
    let mut likely: Option<(&String, f64)> = None;
    for (word, value) in scores {
        let rule = of_word(word)?.rule;
        let sum = rule.sum(*value, *questions, counted);
        if rule == MetricRule::Share {
            let right = sum.round().clamp(0.0, *questions as f64);
            let is_one = match questions {
                0 => value.is_nan(),
                _ => *value == right / *questions as f64,
            };
            if !is_one {
                return Some(format!(
                    "logged {value:?} for `{name}/{word}`, which is not a share of {questions} questions"
                ));
            }
        }
        // Two metrics of the same documents.
        if !rule.counts() || !sum.is_finite() {
            continue;
        }
        match likely {
            None => likely = Some((word, sum)),
            Some((earlier, before)) => {
                // A logarithm near 0 has the rounding of a number near 1, as often as it is multiplied.
                let rounding = ROUNDING * (counted.words + counted.bytes) as f64;
                if (sum - before).abs() > rounding + ROUNDING * sum.abs() {
                    return Some(format!(
                        "logged {value:?} for `{name}/{word}`, which `{name}/{earlier}` contradicts"
                    ));
                }
            }
        }
    }
    None
}

/// Largest error, relative, of a sum that is computed from a perplexity.
const ROUNDING: f64 = 1e-12;

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::digest::Digest;
    use tasks::metric::Counted;

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
                counted: None,
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
    fn scores_that_contradict_the_lock_or_the_questions_are_named() {
        let locked = scores().task;
        let mismatch =
            |scores: SuiteScores, last| mismatch(&[scores], std::slice::from_ref(&locked), last);
        assert_eq!(mismatch(scores(), true), None);
        let wrong = |edit: fn(&mut SuiteScores), last: bool, says: &str| {
            let mut scores = scores();
            edit(&mut scores);
            let message = mismatch(scores, last).unwrap();
            assert!(message.contains(says), "{message}");
        };
        wrong(|it| it.task.asked = Digest::of("test", "other"), true, "but the lock has");
        wrong(|it| _ = it.scores.remove("acc"), true, "other metrics");
        wrong(|_| (), false, "only the last evaluation");
        wrong(
            |it| _ = it.scores.insert("acc".to_owned(), 0.3),
            false,
            "not a share of 2 questions",
        );
        wrong(
            |it| _ = it.scores.insert("acc".to_owned(), 1.5),
            false,
            "not a share of 2 questions",
        );
        wrong(|it| _ = it.scores.insert("acc".to_owned(), f64::NAN), false, "not a share of 2");
        wrong(|it| it.each.clear(), true, "lacks single questions");
        wrong(|it| it.each.get_mut("acc").unwrap().push(1.0), true, "logged 3 questions");
        wrong(|it| it.each.get_mut("acc").unwrap()[0] = 0.5, true, "not 0 or 1");
        wrong(|it| it.each.get_mut("acc").unwrap()[0] = 0.0, true, "its questions give 0.0");
        wrong(|it| it.each.get_mut("perplexity").unwrap()[0] = 0.0, true, "its questions give");
    }

    #[test]
    fn perplexities_of_documents_follow_from_words_and_bytes() {
        let counted = Counted { words: 7, bytes: 40 };
        let parts = vec![-30.5, -50.25];
        let words = ["bits_per_byte", "byte_perplexity", "word_perplexity"];
        let each = words.map(|word| (word.to_owned(), parts.clone()));
        let value = |word: &str| of_word(word).unwrap().rule.value(&parts, counted);
        let right = SuiteScores {
            task: SuiteTask {
                metrics: words.map(str::to_owned).into(),
                counted: Some(counted),
                ..scores().task
            },
            scores: words.map(|word| (word.to_owned(), value(word))).into(),
            each: each.into(),
        };
        let mismatch = |scores: &SuiteScores, last| {
            mismatch(std::slice::from_ref(scores), std::slice::from_ref(&right.task), last)
        };
        assert_eq!(
            read(&serde_json::from_str(&text(std::slice::from_ref(&right))).unwrap()),
            Some(vec![right.clone()])
        );
        assert_eq!(mismatch(&right, true), None);
        let earlier = SuiteScores { each: BTreeMap::new(), ..right.clone() };
        assert_eq!(mismatch(&earlier, false), None);
        for word in words {
            for by in [1.0 + 1e-9, 0.9] {
                let mut wrong = right.clone();
                wrong.scores.insert(word.to_owned(), value(word) * by);
                assert!(mismatch(&wrong, true).is_some(), "{word}");
                wrong.each.clear();
                assert!(mismatch(&wrong, false).unwrap().contains("contradicts"), "{word}");
            }
        }
        // A model that predicts nothing at all.
        let mut diverged = earlier.clone();
        diverged.scores.values_mut().for_each(|value| *value = f64::NAN);
        assert_eq!(mismatch(&diverged, false), None);
        assert!(
            super::mismatch(&[], std::slice::from_ref(&right.task), false)
                .unwrap()
                .contains("0 tasks")
        );
    }
}
