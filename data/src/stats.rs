//! Statistics over samples: their number and lengths, answers per level, and token counts.
//!
//! Memory does not grow with the number of samples.

use std::collections::BTreeMap;

use tasks::sample::Tape;
use tasks::task::Task;

/// Statistics over samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of samples.
    pub samples: u64,
    /// Number of tokens in all samples.
    pub tokens: u64,
    /// Length of the shortest sample; the longest follows.
    pub least: u64,
    /// Length of the longest sample, in tokens.
    pub most: u64,
    /// Number of target tokens when only answers are targets.
    pub labelled: u64,
    /// For each level, the number of answers and the number of tokens in them.
    pub answers: BTreeMap<u32, (u64, u64)>,
    /// Number of occurrences of each token.
    pub uses: Vec<u64>,
}

impl Stats {
    /// Counts one more sample.
    pub fn add(&mut self, tape: &Tape) {
        let Stats { samples, tokens, least, most, labelled, answers, uses } = self;
        let len = tape.tokens.len() as u64;
        *least = if *samples == 0 { len } else { len.min(*least) };
        *most = len.max(*most);
        *samples += 1;
        *tokens += len;
        *labelled += tape.labels.iter().filter(|&&label| label == 1).count() as u64;
        for answer in &tape.answers {
            let (count, length) = answers.entry(answer.level).or_default();
            *count += 1;
            *length += answer.len as u64;
        }
        let highest = tape.tokens.iter().max().map_or(0, |&token| token as usize + 1);
        uses.resize(uses.len().max(highest), 0);
        for &token in &tape.tokens {
            uses[token as usize] += 1;
        }
    }

    /// Tokens per sample; 0 without samples.
    pub fn mean_tokens(&self) -> f64 {
        if self.samples == 0 { 0.0 } else { self.tokens as f64 / self.samples as f64 }
    }

    /// Entropy of single tokens in bits: the loss of the best model that knows only token frequencies.
    pub fn token_entropy(&self) -> f64 {
        let all = self.tokens as f64;
        let contribution = |&uses: &u64| {
            let p = uses as f64 / all;
            -p * libm::log2(p)
        };
        self.uses.iter().filter(|&&uses| uses > 0).map(contribution).sum()
    }

    /// A summary for a person, one fact per line.
    pub fn describe(&self, task: &Task) -> String {
        let Stats { samples, tokens, least, most, labelled, answers, uses } = self;
        let mut text = format!(
            "task       {}\nsamples    {samples}\ntokens     {tokens}\nlength     {least} to {most}, mean {:.1}\n\
             vocabulary {} of {} tokens used, {:.2} bits per token\n",
            task.name(),
            self.mean_tokens(),
            uses.iter().filter(|&&uses| uses > 0).count(),
            task.alphabet().len(),
            self.token_entropy(),
        );
        if task.has_labels() {
            let share = 100.0 * *labelled as f64 / (*tokens).max(1) as f64;
            text += &format!("targets    {labelled} ({share:.1}%) if only answers count\n");
        }
        for (level, (count, length)) in answers {
            let mean = *length as f64 / *count as f64;
            text += &format!("answers    {count} of level {level}, mean length {mean:.1}\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tasks::sample::Span;

    #[test]
    fn facts_are_counted() {
        let mut stats = Stats::default();
        assert_eq!((stats.mean_tokens(), stats.token_entropy()), (0.0, 0.0));
        let answers = vec![Span { start: 1, len: 2, level: 3 }];
        stats.add(&Tape {
            tokens: vec![1, 2, 1, 2],
            labels: vec![0, 1, 1, 0],
            answers: answers.clone(),
        });
        stats.add(&Tape { tokens: vec![1, 2], labels: vec![0, 0], answers });
        assert_eq!(
            (stats.samples, stats.tokens, stats.least, stats.most, stats.labelled),
            (2, 6, 2, 4, 2)
        );
        assert_eq!(stats.answers, BTreeMap::from([(3, (2, 4))]));
        assert_eq!((stats.mean_tokens(), stats.token_entropy()), (3.0, 1.0));
        let depo = Task::parse(
            "depo",
            json!({"N": 3, "K": 1, "mini_vocab": 3, "min_tlen": 1, "max_tlen": 1}),
        );
        let text = stats.describe(&depo.unwrap());
        for want in [
            "length     2 to 4, mean 3.0",
            "2 of 9 tokens used",
            "2 (33.3%)",
            "2 of level 3, mean length 2.0",
        ] {
            assert!(text.contains(want), "{text}");
        }
    }
}
