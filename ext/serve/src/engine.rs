//! The inference engine: the thread that owns the model and batches all running jobs. Each step feeds the next token of
//! every sequence that is being decoded, together with pieces of waiting prompts.
//!
//! The tokens and logits of a job depend on that job alone: a prompt is cut at the same places whatever else runs, and
//! [`Model::advance`] keeps sequences apart. A job that nobody waits for, or that has timed out, is dropped at the next
//! step. A slow reader never blocks the engine.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;

use crate::model::{Codec, Model, Penalties, Piece, Sampling};
use crate::stats::Stats;
use crate::text::{StopStrings, TextStream};

/// A sequence to compute.
#[derive(Debug)]
pub struct Job {
    /// At least one token.
    pub prompt: Vec<u32>,
    /// Maximum number of tokens to draw.
    pub max_tokens: usize,
    /// How to draw.
    pub sampling: Sampling,
    /// Changes to the logits before a token is drawn.
    pub penalties: Arc<Penalties>,
    /// Texts that end it.
    pub stops: Vec<String>,
    /// Number of alternatives to report with each token; `None` reports no probabilities.
    pub logprobs: Option<usize>,
    /// Whether the prompt's own tokens are scored.
    pub score_prompt: bool,
    /// When it arrived.
    pub began: Instant,
    /// When it times out.
    pub deadline: Instant,
    /// Where its events go. One message for each token: at most `max_tokens` wait for a slow reader.
    pub events: UnboundedSender<(usize, Event)>,
    /// Its number among the jobs of its request.
    pub number: usize,
}

impl Job {
    /// Sends an event. The receiver may be gone already.
    fn tell(&self, event: Event) {
        let _ = self.events.send((self.number, event));
    }
}

/// A token with its probability.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// The token.
    pub id: u32,
    /// The natural logarithm of its probability; `None` for the first token of a prompt.
    pub logprob: Option<f64>,
    /// The likeliest tokens at its place, likeliest first.
    pub top: Vec<(u32, f64)>,
}

/// Why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model's end token, or a stop string.
    Stop,
    /// The maximum number of tokens.
    Length,
}

/// What happens to a job.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The scores of the prompt's tokens.
    Prompt(Vec<Scored>),
    /// A token was drawn. The text may be empty: it comes with a later token.
    Token {
        /// The token, with its probability if the job reports any.
        token: Scored,
        /// Text that is certain now.
        text: String,
    },
    /// It ended.
    Done {
        /// Text that was held back.
        text: String,
        /// Why it ended.
        finish: Finish,
        /// Tokens drawn, the end token included.
        drawn: usize,
    },
    /// It timed out.
    Late,
    /// The model failed.
    Failed(String),
}

/// The queue of an [`Engine`], as its clients see it.
#[derive(Clone, Debug)]
pub struct JobQueue {
    jobs: SyncSender<Vec<Job>>,
    stats: Arc<Stats>,
    most: u64,
}

/// Why jobs are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The queue is full.
    Full,
    /// The server is shutting down.
    Ending,
}

impl JobQueue {
    /// Queues all sequences of a request, or none.
    pub fn submit(&self, jobs: Vec<Job>) -> Result<(), Refusal> {
        let count = jobs.len() as u64;
        if self.stats.is_ending() {
            return Err(Refusal::Ending);
        }
        let before = self.stats.waiting.add(count);
        if before + count > self.most {
            self.stats.waiting.take(count);
            return Err(Refusal::Full);
        }
        self.jobs.try_send(jobs).map_err(|error| {
            self.stats.waiting.take(count);
            match error {
                TrySendError::Full(_) => Refusal::Full,
                TrySendError::Disconnected(_) => Refusal::Ending,
            }
        })
    }
}

/// Limits on the work in progress.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Sequences that are decoded together.
    pub rows: usize,
    /// Sequences that may wait.
    pub queue: usize,
}

/// Runs the jobs of a [`JobQueue`].
#[derive(Debug)]
pub struct Engine {
    jobs: Receiver<Vec<Job>>,
    stats: Arc<Stats>,
    rows: usize,
}

/// How long an idle engine sleeps before it checks whether the server is shutting down.
const IDLE: Duration = Duration::from_millis(20);

impl Engine {
    /// An engine, and the queue that it empties.
    pub fn new(limits: Limits, stats: Arc<Stats>) -> (Engine, JobQueue) {
        let most = limits.queue.max(1);
        let (send, receive) = sync_channel(most);
        let queue = JobQueue { jobs: send, stats: stats.clone(), most: most as u64 };
        (Engine { jobs: receive, stats, rows: limits.rows.max(1) }, queue)
    }

    /// Runs until every [`JobQueue`] is dropped, or until the server is shutting down and no job is left.
    pub fn run<M: Model>(self, model: &M, codec: &dyn Codec) {
        let Engine { jobs, stats, rows } = self;
        let mut waiting: VecDeque<Job> = VecDeque::new();
        let mut running: Vec<Sequence<M>> = Vec::new();
        // When a job is dropped, its channel closes, and the client gets the error that the server is ending.
        while !stats.cut.load(Ordering::Relaxed) {
            if running.is_empty() && waiting.is_empty() {
                match jobs.recv_timeout(IDLE) {
                    Ok(more) => waiting.extend(more),
                    Err(RecvTimeoutError::Timeout) if stats.is_ending() => return,
                    Err(RecvTimeoutError::Timeout) => continue,
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
            while let Ok(more) = jobs.try_recv() {
                waiting.extend(more);
            }
            let now = Instant::now();
            let before = waiting.len();
            waiting.retain(|job| leaves(job, now, &stats).is_none());
            stats.waiting.take((before - waiting.len()) as u64);
            running.retain(|sequence| leaves(&sequence.job, now, &stats).is_none());
            while running.len() < rows
                && let Some(job) = waiting.pop_front()
            {
                stats.waiting.take(1);
                match model.start() {
                    Ok(state) => running.push(Sequence::new(job, state)),
                    Err(message) => fail(&job, message, &stats),
                }
            }
            stats.running.set(running.len() as u64);
            advance(model, &mut running, &stats);
            draw_all(model, codec, &mut running, &stats);
            stats.running.set(running.len() as u64);
        }
    }
}

/// `Some` if a job is dropped before its end.
fn leaves(job: &Job, now: Instant, stats: &Stats) -> Option<()> {
    if job.events.is_closed() {
        stats.cancelled.add(1);
        return Some(());
    }
    if now >= job.deadline {
        stats.timed_out.add(1);
        job.tell(Event::Late);
        return Some(());
    }
    None
}

fn fail(job: &Job, message: String, stats: &Stats) {
    stats.failed.add(1);
    job.tell(Event::Failed(message));
}

/// A job in progress.
struct Sequence<M: Model> {
    job: Job,
    state: M::State,
    /// Prompt tokens that have been fed.
    fed: usize,
    /// Scores of the prompt's tokens so far.
    scored: Vec<Scored>,
    /// Logits after the last token, once the whole prompt has been fed.
    last: Option<Vec<f64>>,
    /// A drawn token that has to be fed.
    next: Option<u32>,
    drawn: usize,
    /// How often each token was drawn.
    counts: BTreeMap<u32, u32>,
    text: TextStream,
    stops: StopStrings,
    done: bool,
}

impl<M: Model> Sequence<M> {
    fn new(job: Job, state: M::State) -> Self {
        let text = TextStream::after(&job.prompt);
        let stops = StopStrings::new(job.stops.clone());
        let (scored, fed, drawn) = (Vec::new(), 0, 0);
        Sequence {
            job,
            state,
            fed,
            scored,
            last: None,
            next: None,
            drawn,
            counts: BTreeMap::new(),
            text,
            stops,
            done: false,
        }
    }

    /// Number of tokens to feed next: the one that was drawn, or a piece of the prompt of at most `most`.
    fn ahead(&self, most: usize) -> usize {
        match self.next {
            Some(_) => 1,
            None => self.job.prompt.len().saturating_sub(self.fed).min(most),
        }
    }

    /// How many tokens at the end of a piece need logits.
    fn wants(&self, count: usize) -> usize {
        let is_last = self.fed + count >= self.job.prompt.len();
        match self.next.is_none() && self.job.score_prompt {
            true => count,
            false => usize::from(self.next.is_some() || is_last),
        }
    }

    /// Takes the logits of the piece that has been fed.
    fn take(
        &mut self,
        model: &M,
        count: usize,
        logits: Option<&M::Logits>,
        stats: &Stats,
    ) -> Result<(), String> {
        let last = self.wants(count).saturating_sub(1);
        let row = |at: usize| match logits {
            Some(logits) => model.row(logits, at),
            None => Err("the model gave no logits".to_owned()),
        };
        if self.next.take().is_some() {
            self.last = Some(row(0)?);
            return Ok(());
        }
        stats.prompt_tokens.add(count as u64);
        if self.job.score_prompt {
            let most = self.job.logprobs.unwrap_or(0);
            if self.fed == 0 {
                let first = self.job.prompt.first().copied().unwrap_or(0);
                self.scored.push(Scored { id: first, logprob: None, top: Vec::new() });
            }
            // Each position scores the token after it.
            let after = self.job.prompt.iter().skip(self.fed + 1);
            for (at, id) in after.take(count).enumerate() {
                self.scored.push(score(&row(at)?, *id, most));
            }
        }
        self.fed += count;
        if self.fed == self.job.prompt.len() {
            self.last = Some(row(last)?);
            if self.job.score_prompt {
                self.job.tell(Event::Prompt(std::mem::take(&mut self.scored)));
            }
        }
        Ok(())
    }

    /// Draws the next token, if its logits have been computed.
    fn draw(&mut self, model: &M, codec: &dyn Codec, stats: &Stats) -> Result<(), String> {
        let Some(logits) = self.last.take() else { return Ok(()) };
        if self.job.max_tokens == 0 {
            return self.end(String::new(), Finish::Length, codec);
        }
        let mut changed = Cow::Borrowed(&logits);
        if *self.job.penalties != Penalties::default() {
            penalize(changed.to_mut(), &self.job, &self.counts);
        }
        let id = model.choose(&changed, &self.job.sampling, self.drawn as u64)?;
        self.drawn += 1;
        *self.counts.entry(id).or_default() += 1;
        stats.drawn_tokens.add(1);
        if self.drawn == 1 {
            stats.first_token_times.add(self.job.began.elapsed());
        }
        if codec.ends().contains(&id) {
            return self.end(String::new(), Finish::Stop, codec);
        }
        let token = match self.job.logprobs {
            Some(count) => score(&logits, id, count),
            None => Scored { id, logprob: None, top: Vec::new() },
        };
        let text = self.text.push(codec, id)?;
        let text = self.stops.push(&text);
        self.job.tell(Event::Token { token, text });
        if self.stops.found {
            return self.end(String::new(), Finish::Stop, codec);
        }
        if self.drawn == self.job.max_tokens {
            return self.end(String::new(), Finish::Length, codec);
        }
        self.next = Some(id);
        Ok(())
    }

    fn end(
        &mut self,
        mut text: String,
        mut finish: Finish,
        codec: &dyn Codec,
    ) -> Result<(), String> {
        if !self.stops.found {
            text += &self.stops.push(&self.text.finish(codec)?);
            if self.stops.found {
                finish = Finish::Stop;
            } else {
                text += &self.stops.finish();
            }
        }
        self.job.tell(Event::Done { text, finish, drawn: self.drawn });
        self.done = true;
        Ok(())
    }
}

/// Changes logits as a request asks: its bias first, then its penalties.
fn penalize(logits: &mut [f64], job: &Job, counts: &BTreeMap<u32, u32>) {
    let Penalties { bias, presence, frequency, repetition } = &*job.penalties;
    for (id, number) in bias {
        if let Some(logit) = logits.get_mut(*id as usize) {
            *logit += number;
        }
    }
    if *repetition != 1.0 {
        let repeated: BTreeSet<u32> = job.prompt.iter().chain(counts.keys()).copied().collect();
        for id in repeated {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit = if *logit > 0.0 { *logit / repetition } else { *logit * repetition };
            }
        }
    }
    for (id, count) in counts {
        if let Some(logit) = logits.get_mut(*id as usize) {
            *logit -= presence + frequency * f64::from(*count);
        }
    }
}

/// Draws a token of each sequence that has logits.
fn draw_all<M: Model>(model: &M, codec: &dyn Codec, running: &mut Vec<Sequence<M>>, stats: &Stats) {
    running.retain_mut(|sequence| match sequence.draw(model, codec, stats) {
        Ok(()) => !sequence.done,
        Err(message) => {
            fail(&sequence.job, message, stats);
            false
        }
    });
}

/// Feeds the drawn token of each sequence, and pieces of the prompts that have waited longest, together at most as many
/// tokens of prompts as one piece may have.
fn advance<M: Model>(model: &M, running: &mut Vec<Sequence<M>>, stats: &Stats) {
    let most = model.piece().max(1);
    let mut room = most;
    // How many tokens each sequence feeds now.
    let mut counts: Vec<usize> = Vec::new();
    for sequence in running.iter() {
        let count = sequence.ahead(most);
        counts.push(match sequence.next.is_some() {
            true => count,
            false if count <= room => {
                room -= count;
                count
            }
            false => {
                // Later ones have waited less.
                room = 0;
                0
            }
        });
    }
    stats.steps.add(u64::from(running.iter().any(|sequence| sequence.next.is_some())));
    let results = match together(model, running, &counts) {
        Ok(results) => results.into_iter().map(Ok).collect(),
        // One sequence may have caused it: run each alone, so that only this one fails, with its own error.
        Err(_) => {
            stats.repeated.add(1);
            let alone = |(sequence, count): (&mut Sequence<M>, &usize)| {
                let mut results = together(model, std::slice::from_mut(sequence), &[*count])?;
                Ok(results.pop().flatten())
            };
            running.iter_mut().zip(&counts).map(alone).collect::<Vec<_>>()
        }
    };
    let mut fed = Vec::new();
    let mut kept = Vec::new();
    for ((mut sequence, count), result) in running.drain(..).zip(counts).zip(results) {
        let was_prompt = sequence.next.is_none() && count > 0;
        let taken = result.and_then(|logits: Option<M::Logits>| match count {
            0 => Ok(()),
            _ => sequence.take(model, count, logits.as_ref(), stats),
        });
        match taken {
            // To the end of the line, so that each prompt gets its turn.
            Ok(()) if was_prompt => fed.push(sequence),
            Ok(()) => kept.push(sequence),
            Err(message) => fail(&sequence.job, message, stats),
        }
    }
    running.extend(kept.into_iter().chain(fed));
}

/// Feeds the sequences in one batch. Returns the logits of each one that needs any.
fn together<M: Model>(
    model: &M,
    running: &mut [Sequence<M>],
    counts: &[usize],
) -> Result<Vec<Option<M::Logits>>, String> {
    let mut pieces = Vec::new();
    let mut places = Vec::new();
    let mut results: Vec<Option<M::Logits>> = running.iter().map(|_| None).collect();
    for (place, (sequence, count)) in running.iter_mut().zip(counts).enumerate() {
        if *count > 0 {
            let logits = sequence.wants(*count);
            let Sequence { job, state, fed, next, .. } = sequence;
            let tokens = match next {
                Some(token) => std::slice::from_ref(token),
                None => job.prompt.get(*fed..*fed + count).unwrap_or_default(),
            };
            pieces.push(Piece { state, tokens, logits });
            places.push(place);
        }
    }
    if pieces.is_empty() {
        return Ok(results);
    }
    for (place, logits) in places.into_iter().zip(model.advance(&mut pieces)?) {
        if let Some(slot) = results.get_mut(place) {
            *slot = logits;
        }
    }
    Ok(results)
}

/// A token's probability, and the likeliest alternatives: by logit, then by id.
fn score(logits: &[f64], id: u32, count: usize) -> Scored {
    let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|logit| libm::exp(logit - most)).sum();
    let total = most + libm::log(sum);
    let mut top: Vec<(u32, f64)> = Vec::new();
    for (other, logit) in logits.iter().enumerate() {
        let is_in = top.len() < count || top.last().is_some_and(|(_, least)| logit > least);
        if count > 0 && is_in {
            let at = top.partition_point(|(_, known)| known >= logit);
            top.insert(at, (other as u32, *logit));
            top.truncate(count);
        }
    }
    for (_, logit) in &mut top {
        *logit -= total;
    }
    let logprob = logits.get(id as usize).map(|logit| logit - total);
    Scored { id, logprob, top }
}
