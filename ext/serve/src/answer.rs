//! OpenAI's response objects: whole answers, and the chunks of a stream, which add up to the same answer.

use serde_json::{Map, Value, json};

use crate::engine::{Finish, Scored};
use crate::model::Codec;

/// The shape of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Completion,
    Chat,
}

/// The fields that every piece of an answer repeats.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) shape: Shape,
    pub(crate) id: String,
    pub(crate) created: u64,
    pub(crate) model: String,
    /// Whether the answer has probabilities.
    pub(crate) logprobs: bool,
    /// Whether a stream ends with token counts.
    pub(crate) counts: bool,
}

/// A part of one choice: all of it, or a piece.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    pub(crate) text: String,
    pub(crate) tokens: Vec<Scored>,
    pub(crate) finish: Option<Finish>,
}

/// Numbers of tokens.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) prompt: usize,
    pub(crate) drawn: usize,
}

/// Names tokens. A name can depend on the token before.
pub(crate) struct Namer<'a> {
    codec: &'a dyn Codec,
    position: TextPosition,
}

/// Where the next token of a text is.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextPosition {
    /// The token before it.
    before: Option<u32>,
    /// Characters before it.
    offset: usize,
    /// Bytes of a character that is not complete yet.
    open: Vec<u8>,
}

impl TextPosition {
    /// The beginning of a text that follows a token.
    pub(crate) fn after(before: Option<u32>) -> TextPosition {
        TextPosition { before, ..TextPosition::default() }
    }

    /// Moves past the bytes of a token.
    fn pass(&mut self, bytes: &[u8]) {
        self.open.extend(bytes);
        while let Some(chunk) = self.open.utf8_chunks().next() {
            let (valid, rest) = (chunk.valid(), chunk.invalid());
            let is_last = valid.len() + rest.len() == self.open.len();
            let is_open = is_last
                && std::str::from_utf8(rest).is_err_and(|error| error.error_len().is_none());
            self.offset += valid.chars().count();
            if is_open {
                self.open.drain(..valid.len());
                return;
            }
            // Bytes that are not a character are shown as one �.
            self.offset += usize::from(!rest.is_empty());
            self.open.drain(..valid.len() + rest.len());
        }
    }
}

impl<'a> Namer<'a> {
    pub(crate) fn new(codec: &'a dyn Codec, position: TextPosition) -> Namer<'a> {
        Namer { codec, position }
    }

    /// Where the next token is.
    pub(crate) fn position(self) -> TextPosition {
        self.position
    }

    /// The name of a token, which is its text, or its bytes if they are not text; and the bytes that it adds.
    fn name(&self, id: u32) -> (String, Vec<u8>) {
        let special = self.codec.specials().of_id(id);
        if let Some(special) = special {
            return (special.text.clone(), special.text.clone().into_bytes());
        }
        let before: Vec<u32> = self.position.before.into_iter().collect();
        let decode = |ids: &[u32]| self.codec.decode(ids).unwrap_or_default();
        let all = decode(&[before.as_slice(), &[id]].concat());
        let bytes = match all.strip_prefix(decode(&before).as_slice()) {
            Some(rest) => rest.to_vec(),
            None => decode(&[id]),
        };
        match std::str::from_utf8(&bytes) {
            Ok(text) => (text.to_owned(), bytes),
            Err(_) => {
                let hex: String = bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect();
                (format!("bytes:{hex}"), bytes)
            }
        }
    }

    fn next(&mut self, id: u32) {
        // The answer's text has no special tokens.
        if self.codec.specials().of_id(id).is_none() {
            let bytes = self.name(id).1;
            self.position.pass(&bytes);
        }
        self.position.before = Some(id);
    }
}

impl Head {
    fn object(&self, piece: bool) -> &'static str {
        match (self.shape, piece) {
            (Shape::Completion, _) => "text_completion",
            (Shape::Chat, false) => "chat.completion",
            (Shape::Chat, true) => "chat.completion.chunk",
        }
    }

    fn around(&self, choices: Vec<Value>, usage: Option<Usage>, piece: bool) -> Value {
        let Head { id, created, model, .. } = self;
        let mut answer = json!({
            "id": id, "object": self.object(piece), "created": created, "model": model,
            "choices": choices,
        });
        if let (Some(Usage { prompt, drawn }), Some(answer)) = (usage, answer.as_object_mut()) {
            let usage = json!({
                "prompt_tokens": prompt, "completion_tokens": drawn, "total_tokens": prompt + drawn,
            });
            answer.insert("usage".to_owned(), usage);
        }
        answer
    }

    /// A whole answer.
    pub(crate) fn full_answer(&self, choices: Vec<Value>, usage: Usage) -> Value {
        self.around(choices, Some(usage), false)
    }

    /// A piece of an answer.
    pub(crate) fn piece(&self, choice: Value) -> Value {
        let mut piece = self.around(vec![choice], None, true);
        if let (true, Some(piece)) = (self.counts, piece.as_object_mut()) {
            piece.insert("usage".to_owned(), Value::Null);
        }
        piece
    }

    /// The last piece of a stream, with the token counts.
    pub(crate) fn usage(&self, usage: Usage) -> Value {
        self.around(Vec::new(), Some(usage), true)
    }

    /// The beginning of a streamed message.
    pub(crate) fn first(&self, index: usize) -> Option<Value> {
        let delta = json!({ "role": "assistant", "content": "" });
        (self.shape == Shape::Chat).then(|| {
            self.piece(json!({
                "index": index, "delta": delta, "logprobs": null, "finish_reason": null,
            }))
        })
    }

    /// A choice, or a piece of one.
    pub(crate) fn choice(
        &self,
        index: usize,
        part: Part,
        namer: &mut Namer<'_>,
        piece: bool,
    ) -> Value {
        let Part { text, tokens, finish } = part;
        let finish = finish.map(|finish| match finish {
            Finish::Stop => "stop",
            Finish::Length => "length",
        });
        let logprobs = match (self.logprobs, self.shape) {
            (false, _) => Value::Null,
            (true, _) if piece && tokens.is_empty() => Value::Null,
            (true, Shape::Completion) => lists(&tokens, namer),
            (true, Shape::Chat) => content(&tokens, namer),
        };
        match (self.shape, piece) {
            (Shape::Completion, _) => {
                json!({ "index": index, "text": text, "logprobs": logprobs, "finish_reason": finish })
            }
            (Shape::Chat, false) => {
                let message = json!({ "role": "assistant", "content": text, "refusal": null });
                json!({
                    "index": index, "message": message, "logprobs": logprobs, "finish_reason": finish,
                })
            }
            (Shape::Chat, true) => {
                let delta = if text.is_empty() { json!({}) } else { json!({ "content": text }) };
                json!({ "index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish })
            }
        }
    }
}

/// Probabilities as `/v1/completions` gives them.
fn lists(tokens: &[Scored], namer: &mut Namer<'_>) -> Value {
    let (mut names, mut logprobs, mut top, mut offsets) = (vec![], vec![], vec![], vec![]);
    for token in tokens {
        let Scored { id, logprob, top: others } = token;
        let name = namer.name(*id).0;
        logprobs.push(json!(logprob));
        top.push(match logprob {
            None => Value::Null,
            Some(logprob) => {
                let mut map = Map::new();
                // As OpenAI does, the token itself is among them.
                let is_other = |(other, _): &&(u32, f64)| other != id;
                map.insert(name.clone(), json!(logprob));
                for (other, logprob) in others.iter().filter(is_other) {
                    let name = namer.name(*other).0;
                    // Two tokens can have the same text.
                    let key =
                        if map.contains_key(&name) { format!("token_id:{other}") } else { name };
                    map.insert(key, json!(logprob));
                }
                Value::Object(map)
            }
        });
        offsets.push(json!(namer.position.offset));
        names.push(Value::from(name));
        namer.next(*id);
    }
    json!({ "tokens": names, "token_logprobs": logprobs, "top_logprobs": top, "text_offset": offsets })
}

/// Probabilities as `/v1/chat/completions` gives them.
fn content(tokens: &[Scored], namer: &mut Namer<'_>) -> Value {
    let mut list = Vec::new();
    for token in tokens {
        let entry = |id: u32, logprob: f64| {
            let (name, bytes) = namer.name(id);
            json!({ "token": name, "logprob": logprob, "bytes": bytes })
        };
        let mut item = entry(token.id, token.logprob.unwrap_or(0.0));
        let top: Vec<Value> = token.top.iter().map(|(id, logprob)| entry(*id, *logprob)).collect();
        if let Some(item) = item.as_object_mut() {
            item.insert("top_logprobs".to_owned(), Value::Array(top));
        }
        list.push(item);
        namer.next(token.id);
    }
    json!({ "content": list, "refusal": null })
}
