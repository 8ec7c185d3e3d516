//! Turns the events of a request's jobs into one answer, or into server-sent events. Both have the same text,
//! probabilities and counts.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::sse::Event as Message;
use futures_util::stream::{Stream, unfold};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::answer::{Head, Namer, Part, TextPosition, Usage};
use crate::engine::Event;
use crate::error::ApiError;
use crate::model::Codec;

/// A request in progress.
pub(crate) struct Answering {
    pub(crate) head: Head,
    pub(crate) codec: Arc<dyn Codec>,
    pub(crate) prompts: Vec<PromptTokens>,
    /// Answers to each prompt.
    pub(crate) choices: usize,
    pub(crate) echo: bool,
    pub(crate) timeout: Duration,
}

/// A prompt.
pub(crate) struct PromptTokens {
    pub(crate) ids: Vec<u32>,
    /// Its text, if it was sent as text and the answer repeats it.
    pub(crate) text: Option<String>,
    /// Maximum number of tokens to draw.
    pub(crate) most: usize,
}

type Events = UnboundedReceiver<(usize, Event)>;

impl Answering {
    fn count(&self) -> usize {
        self.prompts.len() * self.choices
    }

    fn prompt(&self, number: usize) -> Option<&PromptTokens> {
        self.prompts.get(number / self.choices.max(1))
    }

    /// The text that an answer begins with.
    fn echoed(&self, number: usize) -> String {
        match self.prompt(number).filter(|_| self.echo) {
            Some(PromptTokens { text: Some(text), .. }) => text.clone(),
            Some(PromptTokens { ids, text: None, .. }) => {
                let bytes = self.codec.decode(ids).unwrap_or_default();
                String::from_utf8_lossy(&bytes).into_owned()
            }
            None => String::new(),
        }
    }

    fn position(&self, number: usize) -> TextPosition {
        let last = self.prompt(number).and_then(|prompt| prompt.ids.last().copied());
        TextPosition::after(last.filter(|_| !self.echo))
    }

    fn choice(&self, number: usize, part: Part, position: &mut TextPosition, piece: bool) -> Value {
        let mut namer = Namer::new(self.codec.as_ref(), std::mem::take(position));
        let value = self.head.choice(number, part, &mut namer, piece);
        *position = namer.position();
        value
    }

    fn prompt_tokens(&self) -> usize {
        self.prompts.iter().map(|prompt| prompt.ids.len()).sum()
    }

    fn late(&self) -> ApiError {
        let message =
            format!("the answer took longer than this server's {} s", self.timeout.as_secs());
        ApiError::with(StatusCode::GATEWAY_TIMEOUT, "timeout", message)
    }
}

fn failed(message: String) -> ApiError {
    ApiError::with(StatusCode::INTERNAL_SERVER_ERROR, "model_failed", message)
}

fn gone() -> ApiError {
    ApiError::with(StatusCode::SERVICE_UNAVAILABLE, "ending", "this server is ending")
}

/// The JSON of the whole answer.
pub(crate) async fn collect(answering: Answering, mut events: Events) -> Result<String, ApiError> {
    let count = answering.count();
    let mut parts: Vec<Part> = (0..count)
        .map(|number| Part { text: answering.echoed(number), ..Part::default() })
        .collect();
    let mut usage = Usage { prompt: answering.prompt_tokens(), drawn: 0 };
    let mut left = count;
    while left > 0 {
        let Some((number, event)) = events.recv().await else { return Err(gone()) };
        let Some(part) = parts.get_mut(number) else { continue };
        match event {
            Event::Prompt(scored) => part.tokens.extend(scored),
            Event::Token { token, text } => {
                part.text += &text;
                part.tokens.push(token);
            }
            Event::Done { text, finish, drawn } => {
                part.text += &text;
                part.finish = Some(finish);
                usage.drawn += drawn;
                left -= 1;
            }
            Event::Late => return Err(answering.late()),
            Event::Failed(message) => return Err(failed(message)),
        }
    }
    // It may have many tokens, and others wait for this worker.
    let written = tokio::task::spawn_blocking(move || {
        let choices = parts.into_iter().enumerate().map(|(number, part)| {
            answering.choice(number, part, &mut answering.position(number), false)
        });
        answering.head.full_answer(choices.collect(), usage).to_string()
    });
    written.await.map_err(|_| failed("the answer cannot be written".to_owned()))
}

/// A stream in progress.
struct Streaming {
    answering: Answering,
    events: Events,
    positions: Vec<TextPosition>,
    ready: VecDeque<Message>,
    left: usize,
    drawn: usize,
    ended: bool,
}

/// The answer in pieces.
pub(crate) fn pieces(
    answering: Answering,
    events: Events,
) -> impl Stream<Item = Result<Message, Infallible>> {
    let count = answering.count();
    let mut ready = VecDeque::new();
    let mut positions: Vec<TextPosition> =
        (0..count).map(|number| answering.position(number)).collect();
    for (number, position) in positions.iter_mut().enumerate() {
        ready.extend(answering.head.first(number).map(|first| message(&first)));
        let text = answering.echoed(number);
        // With probabilities the text comes with them.
        if !text.is_empty() && !answering.head.logprobs {
            let choice = answering.choice(number, Part { text, ..Part::default() }, position, true);
            ready.push_back(message(&answering.head.piece(choice)));
        }
    }
    let streaming =
        Streaming { answering, events, positions, ready, left: count, drawn: 0, ended: false };
    unfold(streaming, |mut streaming| async move {
        let next = streaming.next().await?;
        Some((Ok(next), streaming))
    })
}

fn message(value: &Value) -> Message {
    Message::default().data(value.to_string())
}

impl Streaming {
    async fn next(&mut self) -> Option<Message> {
        loop {
            if let Some(next) = self.ready.pop_front() {
                return Some(next);
            }
            if self.ended {
                return None;
            }
            let event = self.events.recv().await;
            self.take(event);
        }
    }

    fn take(&mut self, event: Option<(usize, Event)>) {
        let Some((number, event)) = event else { return self.fail(&gone()) };
        let part = match event {
            Event::Prompt(tokens) => {
                Part { text: self.answering.echoed(number), tokens, finish: None }
            }
            Event::Token { text, .. } if text.is_empty() && !self.answering.head.logprobs => return,
            Event::Token { token, text } => Part { text, tokens: vec![token], finish: None },
            Event::Done { text, finish, drawn } => {
                self.drawn += drawn;
                self.left -= 1;
                Part { text, tokens: Vec::new(), finish: Some(finish) }
            }
            Event::Late => return self.fail(&self.answering.late()),
            Event::Failed(message) => return self.fail(&failed(message)),
        };
        let Some(position) = self.positions.get_mut(number) else { return };
        let choice = self.answering.choice(number, part, position, true);
        self.ready.push_back(message(&self.answering.head.piece(choice)));
        if self.left == 0 {
            if self.answering.head.counts {
                let usage = Usage { prompt: self.answering.prompt_tokens(), drawn: self.drawn };
                self.ready.push_back(message(&self.answering.head.usage(usage)));
            }
            self.end();
        }
    }

    fn fail(&mut self, error: &ApiError) {
        self.ready.push_back(message(&error.body()));
        self.end();
    }

    fn end(&mut self) {
        self.ready.push_back(Message::default().data("[DONE]"));
        self.ended = true;
    }
}
