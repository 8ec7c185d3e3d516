//! A line of the metrics log as JSON, written and read.
//!
//! Members are in one fixed order. Floats are in the shortest form that reads back to the same bits, with `"NaN"`, `"inf"`
//! and `"-inf"` as strings since JSON lacks them; counts replace ratios wherever a ratio would be rounded.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use compiler::digest::Digest;
use compiler::plan::TERMS;
use serde_json::Value;
use tasks::metric::{EVAL_LOSS, EXACT_MATCH, TOKEN_ACCURACY};

use super::number::{float, read_float};
use super::questions::Questions;
use super::score::Score;
use super::suites::{self, SuiteScores};

/// One line of the log.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// The first line.
    Start(Start),
    /// One update.
    Step(Step),
    /// An evaluation after an update.
    Evaluation(Evaluation),
}

/// The run's lock, and its initial parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The lock's `train` digest, which is its id.
    pub lock: Digest,
    /// The lock's `eval` digest, which determines the evaluations.
    pub eval: Digest,
    /// Digest of every initial parameter.
    pub initial: Digest,
}

/// One update.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Step number, from 1.
    pub step: u64,
    /// Mean training loss over counted targets, before the update; `None` if none counted.
    pub loss: Option<f64>,
    /// Norm of the summed gradients, before clipping.
    pub grad_norm: f64,
    /// Learning rate of the update.
    pub lr: f64,
    /// Digest of the step's windows, in order; `None` if another engine trained and did not compute it.
    pub batch: Option<Digest>,
    /// Number of targets that counted.
    pub counted: u64,
    /// The auxiliary losses that the recipe weighs, in the order of [`TERMS`]: summed over layers, mean over
    /// micro-batches, without weight. The line has no members for others.
    pub terms: [Option<f64>; TERMS.len()],
}

/// Results of an evaluation after `step` updates.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// Number of updates before the evaluation.
    pub step: u64,
    /// Mean −ln p over counted targets, if it is reported and there are any.
    pub nll: Option<f64>,
    /// Number of targets that counted.
    pub counted: u64,
    /// Token accuracy over complete answers, each token predicted from the true ones before it; empty for text.
    pub tokens: Score,
    /// Exact match over complete answers, by level: Depo's hops, Mano's operations. For Brevo: any right order that the
    /// model writes, by the query's depth.
    pub answers: BTreeMap<u32, Score>,
    /// The task's other metrics, by name. If empty, the line has no such member.
    pub measures: BTreeMap<String, f64>,
    /// Each question's score in the evaluation after the last step; `None` if no answer is scored, and in older logs
    /// without these scores.
    pub questions: Option<Questions>,
    /// The scores of each task of the lock's suites. If empty, the line has no such member.
    pub suites: Vec<SuiteScores>,
}

impl Evaluation {
    /// The score over all levels.
    pub fn exact(&self) -> Score {
        self.answers.values().fold(Score::default(), |sum, score| Score {
            right: sum.right.saturating_add(score.right),
            of: sum.of.saturating_add(score.of),
        })
    }
}

impl Record {
    /// The line without its chain.
    pub fn text(&self) -> String {
        match self {
            Record::Start(Start { lock, eval, initial }) => format!(
                "{{\"kind\":\"start\",\"version\":2,\"lock\":\"{lock}\",\"eval\":\"{eval}\",\"initial\":\"{initial}\"}}"
            ),
            Record::Step(Step { step, loss, grad_norm, lr, batch, counted, terms }) => {
                let batch =
                    batch.map_or_else(|| "null".to_owned(), |digest| format!("\"{digest}\""));
                let mut text = format!(
                    "{{\"kind\":\"step\",\"step\":{step},\"loss\":{},\"grad_norm\":{},\"lr\":{},\"batch\":{batch},\"counted\":{counted}",
                    optional(*loss),
                    float(*grad_norm),
                    float(*lr),
                );
                for (name, term) in TERMS.iter().zip(terms) {
                    if let Some(term) = term {
                        let _ = write!(text, ",\"{name}\":{}", float(*term));
                    }
                }
                text + "}"
            }
            Record::Evaluation(Evaluation {
                step,
                nll,
                counted,
                tokens,
                answers,
                measures,
                questions,
                suites: of_suites,
            }) => {
                let mut text = format!(
                    "{{\"kind\":\"eval\",\"step\":{step},\"{EVAL_LOSS}\":{},\"counted\":{counted},\"{TOKEN_ACCURACY}\":{},\"{EXACT_MATCH}\":{{",
                    optional(*nll),
                    tokens.text(),
                );
                for (at, (level, answers)) in answers.iter().enumerate() {
                    let comma = if at == 0 { "" } else { "," };
                    let _ = write!(text, "{comma}\"{level}\":{}", answers.text());
                }
                text.push('}');
                for (at, (name, value)) in measures.iter().enumerate() {
                    let before = if at == 0 { ",\"measures\":{" } else { "," };
                    let _ =
                        write!(text, "{before}{}:{}", Value::from(name.as_str()), float(*value));
                }
                if !measures.is_empty() {
                    text.push('}');
                }
                if let Some(questions) = questions {
                    let _ = write!(text, ",\"questions\":{}", questions.text());
                }
                if !of_suites.is_empty() {
                    let _ = write!(text, ",\"suites\":{}", suites::text(of_suites));
                }
                text.push('}');
                text
            }
        }
    }

    /// Whether this is the text that canonc writes for the record, now or when a mean over no values was still 0.
    pub(super) fn is_written(&self, text: &str) -> bool {
        let now = self.text();
        now == text || now.replacen(":null,", ":0.0,", 1) == text
    }

    /// Reads a line, with or without its chain.
    pub fn parse(line: &str) -> Option<Record> {
        let value: Value = serde_json::from_str(line).ok()?;
        let members = Members(&value);
        match value.get("kind")?.as_str()? {
            "start" => Some(Record::Start(Start {
                lock: members.digest("lock")?,
                eval: members.digest("eval")?,
                initial: members.digest("initial")?,
            })),
            "step" => members.step().filter(|step| step.batch.is_some()).map(Record::Step),
            "eval" => members.evaluation().map(Record::Evaluation),
            _ => None,
        }
    }

    /// The record's name for a person.
    pub fn title(&self) -> String {
        match self {
            Record::Start(_) => "the start".to_owned(),
            Record::Step(step) => format!("step {}", step.step),
            Record::Evaluation(evaluation) => {
                format!("the evaluation after step {}", evaluation.step)
            }
        }
    }

    /// This record, limited to the members in `logged`, a line of an older log.
    pub fn as_logged(&self, logged: &Record) -> Record {
        match (self, logged) {
            (
                Record::Evaluation(evaluation),
                Record::Evaluation(Evaluation { questions: None, .. }),
            ) => Record::Evaluation(Evaluation { questions: None, ..evaluation.clone() }),
            (record, _) => record.clone(),
        }
    }

    /// Whether this line lacks a member that the same line has `now`: the log is an older one.
    pub fn lacks(&self, now: &Record) -> bool {
        now.as_logged(self).text() != now.text()
    }

    /// Every member that differs in `now`, with both values.
    pub fn differences(&self, now: &Record) -> Vec<String> {
        let members = |record: &Record| -> Vec<(String, String)> {
            let value: Value = serde_json::from_str(&record.text()).unwrap_or_default();
            let members = value.as_object().cloned().unwrap_or_default().into_iter();
            members.map(|(name, value)| (name, value.to_string())).collect()
        };
        let now = &now.as_logged(self);
        let (before, after) = (members(self), members(now));
        if before.iter().map(|(name, _)| name).ne(after.iter().map(|(name, _)| name)) {
            return vec![format!("the log has {}, but now comes {}", self.title(), now.title())];
        }
        let pairs = before.iter().zip(&after).filter(|(before, after)| before != after);
        let text = |((name, before), (_, after)): (&(String, String), &(String, String))| {
            match name.as_str() {
                // Hundreds of digits; the counts already show the difference.
                "questions" => "the scores of single questions differ".to_owned(),
                "suites" => "the scores of suites differ".to_owned(),
                _ => format!("{name} was {before} and is {after}"),
            }
        };
        pairs.map(text).collect()
    }
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "null".to_owned(), float)
}

/// A mean over `counted` values; `None` if the count is 0, even if an older canonc wrote a number there.
/// The members of a line.
pub(super) struct Members<'a>(pub(super) &'a Value);

impl Members<'_> {
    pub(super) fn digest(&self, name: &str) -> Option<Digest> {
        Digest::parse(self.0.get(name)?.as_str()?)
    }

    pub(super) fn count(&self, name: &str) -> Option<u64> {
        self.0.get(name)?.as_u64()
    }

    fn float(&self, name: &str) -> Option<f64> {
        read_float(self.0.get(name)?)
    }

    fn mean(&self, name: &str) -> Option<Option<f64>> {
        read_mean(self.0.get(name)?, self.count("counted")?)
    }

    pub(super) fn step(&self) -> Option<Step> {
        let mut terms = [None; TERMS.len()];
        for (term, name) in terms.iter_mut().zip(TERMS) {
            if let Some(value) = self.0.get(name) {
                *term = Some(read_float(value)?);
            }
        }
        Some(Step {
            step: self.count("step")?,
            loss: match (self.mean("loss")?, self.count("counted")?) {
                (None, 1..) => return None,
                (loss, _) => loss,
            },
            grad_norm: self.float("grad_norm")?,
            lr: self.float("lr")?,
            batch: match self.0.get("batch")?.is_null() {
                true => None,
                false => Some(self.digest("batch")?),
            },
            counted: self.count("counted")?,
            terms,
        })
    }

    pub(super) fn evaluation(&self) -> Option<Evaluation> {
        let answers = self.0.get(EXACT_MATCH)?.as_object()?.iter();
        let measures = match self.0.get("measures") {
            None => BTreeMap::new(),
            Some(measures) => measures
                .as_object()?
                .iter()
                .map(|(name, value)| Some((name.clone(), read_float(value)?)))
                .collect::<Option<_>>()?,
        };
        Some(Evaluation {
            step: self.count("step")?,
            nll: self.mean(EVAL_LOSS)?,
            counted: self.count("counted")?,
            tokens: Score::read(self.0.get(TOKEN_ACCURACY)?)?,
            answers: answers
                .map(|(level, score)| Some((level.parse().ok()?, Score::read(score)?)))
                .collect::<Option<_>>()?,
            measures,
            questions: match self.0.get("questions") {
                None => None,
                Some(questions) => Some(Questions::read(questions)?),
            },
            suites: match self.0.get("suites") {
                None => Vec::new(),
                Some(scores) => suites::read(scores)?,
            },
        })
    }
}

fn read_mean(value: &Value, counted: u64) -> Option<Option<f64>> {
    if value.is_null() {
        return Some(None);
    }
    let mean = read_float(value)?;
    Some((counted > 0).then_some(mean))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_evaluation_is_written_and_read_back() {
        let mut answers = BTreeMap::new();
        answers.insert(10, Score { right: 0, of: 3 });
        answers.insert(2, Score { right: 4, of: 5 });
        let tokens = Score { right: 9, of: 12 };
        let evaluation = Evaluation {
            step: 100,
            nll: Some(1.25),
            counted: 44,
            tokens,
            answers,
            measures: BTreeMap::new(),
            questions: None,
            suites: Vec::new(),
        };
        assert_eq!(evaluation.exact(), Score { right: 4, of: 8 });
        assert_eq!(evaluation.exact().ratio(), Some(0.5));
        let record = Record::Evaluation(evaluation);
        assert_eq!(
            record.text(),
            r#"{"kind":"eval","step":100,"eval_loss":1.25,"counted":44,"token_accuracy":{"right":9,"of":12},"exact_match":{"2":{"right":4,"of":5},"10":{"right":0,"of":3}}}"#
        );
        assert_eq!(Record::parse(&record.text()), Some(record.clone()));
        let Record::Evaluation(evaluation) = record else { panic!("{record:?}") };
        let measures = [("kl".to_owned(), 0.5), ("bits".to_owned(), f64::NAN)].into();
        let record = Record::Evaluation(Evaluation { measures, ..evaluation });
        let text = record.text();
        assert!(text.ends_with(r#"}},"measures":{"bits":"NaN","kl":0.5}}"#), "{text}");
        assert_eq!(Record::parse(&text).map(|record| record.text()), Some(text));
    }

    #[test]
    fn questions_are_a_member_that_older_lines_lack() {
        let asked = Digest::of("test", "asked");
        let answers = BTreeMap::from([(1, vec![true, false])]);
        let questions = Some(Questions { asked, answers, tokens: vec![2, 1] });
        let evaluation = Evaluation {
            step: 4,
            nll: None,
            counted: 0,
            tokens: Score { right: 3, of: 4 },
            answers: BTreeMap::from([(1, Score { right: 1, of: 2 })]),
            measures: [("kl".to_owned(), 0.5)].into(),
            questions,
            suites: Vec::new(),
        };
        let now = Record::Evaluation(evaluation.clone());
        assert!(now.text().ends_with(r#""1":"10"},"tokens":[2,1]}}"#), "{}", now.text());
        assert_eq!(Record::parse(&now.text()), Some(now.clone()));
        let older = Record::Evaluation(Evaluation { questions: None, ..evaluation.clone() });
        assert_eq!(Record::parse(&older.text()), Some(older.clone()));
        assert_eq!(now.as_logged(&older), older);
        assert_eq!(now.as_logged(&now), now);
        assert_eq!(older.differences(&now), Vec::<String>::new());
        let mut other = evaluation;
        if let Some(questions) = &mut other.questions {
            questions.tokens = vec![1, 2];
        }
        let differences = now.differences(&Record::Evaluation(other));
        assert_eq!(differences, ["the scores of single questions differ"]);
    }

    #[test]
    fn records_of_different_kinds_are_named_in_the_difference() {
        let digest = Digest::of("test", "");
        let start = Record::Start(Start { lock: digest, eval: digest, initial: digest });
        let tokens = Score::default();
        let evaluation = Record::Evaluation(Evaluation {
            step: 3,
            nll: None,
            counted: 0,
            tokens,
            answers: BTreeMap::new(),
            measures: BTreeMap::new(),
            questions: None,
            suites: Vec::new(),
        });
        assert_eq!(
            start.differences(&evaluation),
            ["the log has the start, but now comes the evaluation after step 3"]
        );
        assert_eq!(Score::default().ratio(), None);
    }

    #[test]
    fn a_mean_over_nothing_is_null_and_older_logs_zero_is_read_as_that() {
        let digest = Digest::of("test", "");
        let (step, terms) = (2, [None; TERMS.len()]);
        let step = Step {
            step,
            loss: None,
            grad_norm: 0.0,
            lr: 0.5,
            batch: Some(digest),
            counted: 0,
            terms,
        };
        let mut some = terms;
        some[0] = Some(2.5);
        let weighed = Record::Step(Step { terms: some, ..step.clone() });
        assert!(weighed.text().ends_with(r#""counted":0,"balance":2.5}"#), "{}", weighed.text());
        assert_eq!(Record::parse(&weighed.text()), Some(weighed));
        let text = Record::Step(step.clone()).text();
        assert!(text.contains(r#""loss":null,"#), "{text}");
        assert_eq!(Record::parse(&text), Some(Record::Step(step.clone())));
        let older = text.replace("null", "0.0");
        assert_eq!(Record::parse(&older), Some(Record::Step(step)));
        // With a nonzero count there must be a mean.
        assert_eq!(Record::parse(&text.replace("\"counted\":0", "\"counted\":1")), None);
        let older = r#"{"kind":"eval","step":4,"eval_loss":0.0,"counted":0,"token_accuracy":{"right":0,"of":0},"exact_match":{}}"#;
        let Some(Record::Evaluation(read)) = Record::parse(older) else { panic!("{older}") };
        assert_eq!(read.nll, None);
    }

    #[test]
    fn lines_of_other_kinds_are_not_guessed_at() {
        for line in ["", "{}", "[]", r#"{"kind":"step"}"#, r#"{"kind":"stop","step":1}"#] {
            assert_eq!(Record::parse(line), None, "{line}");
        }
    }
}
