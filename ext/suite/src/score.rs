//! Scores a model's replies: each metric with its standard error, and the value of every question. Ties go to the first
//! choice, as with numpy's `argmax`; aggregates are those of `lm_eval/api/metrics.py`.

use serde::Serialize;
use tasks::metric::{self, Counted};

use crate::generated::{contains, equals, filtered};
use crate::request::Request;
use crate::suite::{Metric, Task};

/// A model's reply to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// For each continuation: its log-likelihood in nats, and whether greedy decoding writes it.
    Likelihoods(Vec<(f64, bool)>),
    /// The log-likelihood of a document.
    Likelihood(f64),
    /// A generated text.
    Text(String),
    /// No answer, since the model's numbers are not finite; counts as wrong.
    Diverged,
}

/// A metric of a task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// The metric.
    pub metric: Metric,
    /// A share from 0 to 1, a perplexity, or bits.
    pub value: f64,
    /// Standard error of a share over questions.
    pub stderr: Option<f64>,
    /// The value of each question: 0 or 1 for a share; a log-likelihood in nats for a perplexity.
    pub each: Vec<f64>,
}

/// The metrics of a task. Replies are in the order of requests.
pub fn score(task: &Task, requests: &[Request], replies: &[Reply]) -> Vec<Measured> {
    let metrics = task.metrics.iter();
    metrics.map(|metric| measure(task, *metric, requests, replies)).collect()
}

fn measure(task: &Task, metric: Metric, requests: &[Request], replies: &[Reply]) -> Measured {
    let parts = requests.iter().zip(replies);
    let each = parts.map(|(request, reply)| part(task, metric, request, reply)).collect();
    total(metric, requests, each)
}

/// A metric from its values for the questions.
pub fn total(metric: Metric, requests: &[Request], each: Vec<f64>) -> Measured {
    let value = metric.rule().map_or(f64::NAN, |rule| rule.value(&each, counted(requests)));
    let stderr = if metric.is_share() { metric::stderr(value, &each) } else { None };
    Measured { metric, value, stderr, each }
}

/// The words and bytes of all documents.
pub fn counted(requests: &[Request]) -> Counted {
    requests.iter().fold(Counted::default(), |sum, request| match request {
        Request::Document { words, bytes, .. } => {
            Counted { words: sum.words + *words as u64, bytes: sum.bytes + *bytes as u64 }
        }
        Request::Choose { .. } | Request::Continue { .. } | Request::Generate { .. } => sum,
    })
}

/// The value of a question for a metric. A reply that does not belong to its request counts as wrong.
pub fn part(task: &Task, metric: Metric, request: &Request, reply: &Reply) -> f64 {
    match (request, reply) {
        (Request::Choose { right, lengths, .. }, Reply::Likelihoods(likelihoods)) => {
            let scores = likelihoods.iter().zip(lengths).map(|((sum, _), length)| {
                if metric == Metric::AccNorm { sum / *length as f64 } else { *sum }
            });
            // No choice of a model that diverged is the likeliest.
            let is_number = likelihoods.iter().all(|(sum, _)| !sum.is_nan());
            let likeliest = first_largest(scores).filter(|_| is_number);
            f64::from(u8::from(likeliest.is_some_and(|choice| right.contains(&choice))))
        }
        (Request::Continue { .. }, Reply::Likelihoods(likelihoods)) => {
            match (metric, likelihoods.first()) {
                (Metric::Perplexity, Some((sum, _))) => *sum,
                (_, Some((sum, greedy))) => f64::from(u8::from(*greedy && !sum.is_nan())),
                (_, None) => 0.0,
            }
        }
        (Request::Document { .. }, Reply::Likelihood(sum)) => *sum,
        (Request::Generate { expected, .. }, Reply::Text(text)) => {
            let text = filtered(task, text);
            let right = if metric == Metric::Contains {
                contains(&text, expected)
            } else {
                equals(task, &text, expected)
            };
            f64::from(u8::from(right))
        }
        (
            Request::Choose { .. }
            | Request::Continue { .. }
            | Request::Document { .. }
            | Request::Generate { .. },
            Reply::Likelihoods(_) | Reply::Likelihood(_) | Reply::Text(_) | Reply::Diverged,
        ) => 0.0,
    }
}

/// The index of the first of the largest numbers.
fn first_largest(numbers: impl Iterator<Item = f64>) -> Option<usize> {
    let mut best: Option<(usize, f64)> = None;
    for (index, number) in numbers.enumerate() {
        if best.is_none_or(|(_, most)| number > most) {
            best = Some((index, number));
        }
    }
    best.map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::Suite;

    fn task(kind: &str, more: &str) -> Task {
        let text = format!("[[task]]\nname = \"t\"\nfile = \"q\"\nkind = \"{kind}\"\n{more}");
        Suite::read("s.toml", &text).unwrap().tasks.remove(0)
    }

    #[test]
    fn ties_go_to_the_first_choice() {
        let task = task("choice", "prompt = \"p\"\nchoices = \"c\"\nanswer = \"a\"\n");
        let request = |right: usize| Request::Choose {
            pairs: Vec::new(),
            right: vec![right],
            lengths: vec![1, 4, 2],
        };
        let reply = Reply::Likelihoods(vec![(-2.0, false), (-2.0, false), (-4.0, false)]);
        let requests = [request(0), request(1), request(1), request(2)];
        let scores = score(&task, &requests, &vec![reply; 4]);
        assert_eq!(scores[0].each, [1.0, 0.0, 0.0, 0.0]);
        // Normalised: -2, -0.5, -2.
        assert_eq!(scores[1].each, [0.0, 1.0, 1.0, 0.0]);
        assert_eq!(scores[1].value, 0.5);
        // The harness: sample standard deviation over √n.
        assert!((scores[1].stderr.unwrap() - libm::sqrt(1.0 / 3.0) / 2.0).abs() < 1e-15);
    }

    #[test]
    fn perplexities_are_exponentials_of_means() {
        let task = task("continuation", "prompt = \"p\"\nanswer = \"a\"\n");
        let request = Request::Continue { context: "c".into(), continuation: "d".into() };
        let replies =
            [(-1.0, true), (-3.0, false)].map(|likelihood| Reply::Likelihoods(vec![likelihood]));
        let scores = score(&task, &[request.clone(), request], &replies);
        assert_eq!((scores[0].value, scores[1].value), (0.5, libm::exp(2.0)));
        assert_eq!(scores[1].stderr, None);
        let task = self::task("document", "text = \"t\"\n");
        let request = |words, bytes| Request::Document { text: "x".into(), words, bytes };
        let scores = score(
            &task,
            &[request(2, 8), request(4, 16)],
            &[Reply::Likelihood(-3.0), Reply::Likelihood(-9.0)],
        );
        assert_eq!(scores[0].value, libm::exp(2.0));
        assert_eq!(scores[1].value, libm::exp(0.5));
        assert_eq!(scores[2].value, 0.5 / std::f64::consts::LN_2);
    }
}
