//! Requests, checked.
//!
//! In: JSON. Out: plain values in their bounds. Must stay true: a field that this server does not know, or cannot do, is
//! refused by name; nothing is ignored silently but `user`, which changes no answer.

use serde_json::{Map, Value};

use crate::chat::Message;
use crate::error::ApiError;
use crate::model::Sampling;

/// Most prompts of a request.
pub const MAX_PROMPTS: usize = 128;
/// Most answers to a prompt.
pub const MAX_CHOICES: u64 = 16;
/// Most stop strings, and characters in one.
pub const MAX_STOPS: usize = 16;
const MAX_STOP_CHARS: usize = 1000;
/// Most alternatives of a token.
pub const MAX_LOGPROBS: u64 = 20;

/// One prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// A text, tokenized as in training.
    Text(String),
    /// Tokens, used as they are.
    Tokens(Vec<u32>),
}

/// What both kinds of completion have.
#[derive(Clone, Debug, PartialEq)]
pub struct Common {
    /// The model's name, if given.
    pub model: Option<String>,
    /// Most tokens to draw, if given.
    pub max_tokens: Option<usize>,
    /// How to draw; `None` for a seed of the server's choice.
    pub sampling: Sampling,
    /// Whether the request has a seed.
    pub seeded: bool,
    /// Answers to each prompt.
    pub choices: usize,
    /// Texts that end an answer.
    pub stops: Vec<String>,
    /// Whether the answer comes in pieces.
    pub stream: bool,
    /// Whether the last piece counts tokens.
    pub stream_usage: bool,
    /// Number of alternatives, if probabilities are wanted.
    pub logprobs: Option<usize>,
}

/// A request to `/v1/completions`.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// What every completion has.
    pub common: Common,
    /// The prompts.
    pub prompts: Vec<Prompt>,
    /// Whether the prompt is repeated in the answer, with its probabilities.
    pub echo: bool,
    /// Whether the mark before a text is added to text prompts.
    pub marked: bool,
}

/// A request to `/v1/chat/completions`.
#[derive(Clone, Debug, PartialEq)]
pub struct Chat {
    /// What every completion has.
    pub common: Common,
    /// The conversation.
    pub messages: Vec<Message>,
}

/// The fields of a JSON object, each to be taken once.
struct Fields {
    map: Map<String, Value>,
}

impl Fields {
    fn new(value: Value) -> Result<Fields, ApiError> {
        if let Value::Object(map) = value {
            return Ok(Fields { map });
        }
        Err(ApiError::bad(format!("the body is {}, not an object", kind(&value))))
    }

    /// A field; `null` means that it is absent.
    fn take(&mut self, name: &str) -> Option<Value> {
        self.map.remove(name).filter(|value| !value.is_null())
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(name, "a text", &other)),
        }
    }

    fn flag(&mut self, name: &str, usual: bool) -> Result<bool, ApiError> {
        match self.take(name) {
            None => Ok(usual),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(other) => Err(wrong(name, "true or false", &other)),
        }
    }

    fn whole(&mut self, name: &str, least: u64, most: u64) -> Result<Option<u64>, ApiError> {
        let wanted = || match most {
            u64::MAX => format!("a whole number of at least {least}"),
            most => format!("a whole number from {least} to {most}"),
        };
        match self.take(name) {
            None => Ok(None),
            Some(value) => match value.as_u64().filter(|number| (least..=most).contains(number)) {
                Some(number) => Ok(Some(number)),
                None => Err(wrong(name, &wanted(), &value)),
            },
        }
    }

    fn number(&mut self, name: &str, least: f64, most: f64) -> Result<Option<f64>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => match value.as_f64().filter(|number| (least..=most).contains(number)) {
                Some(number) => Ok(Some(number)),
                None => Err(wrong(name, &format!("a number from {least} to {most}"), &value)),
            },
        }
    }

    /// Fields that change an answer in a way that this server cannot, unless they have their usual value.
    fn only(&mut self, name: &str, usual: &[Value]) -> Result<(), ApiError> {
        let same = |value: &Value| {
            let number = |value: &Value| value.as_f64();
            usual.iter().any(|usual| {
                usual == value || number(usual).is_some() && number(usual) == number(value)
            })
        };
        match self.take(name) {
            None => Ok(()),
            Some(value) if same(&value) => Ok(()),
            Some(_) => {
                Err(ApiError::field(name, format!("`{name}` is not supported here; leave it out")))
            }
        }
    }

    fn end(self) -> Result<(), ApiError> {
        match self.map.into_iter().find(|(_, value)| !value.is_null()) {
            None => Ok(()),
            Some((name, _)) => {
                Err(ApiError::field(&name, format!("`{name}` is not a field of this request")))
            }
        }
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn wrong(name: &str, wanted: &str, found: &Value) -> ApiError {
    let found = found.as_number().map_or_else(|| kind(found).to_owned(), ToString::to_string);
    ApiError::field(name, format!("`{name}` should be {wanted}, but is {found}"))
}

impl Common {
    fn read(fields: &mut Fields) -> Result<Common, ApiError> {
        let seed = match fields.take("seed") {
            None => None,
            Some(value) => {
                let number = value.as_u64().or_else(|| value.as_i64().map(i64::cast_unsigned));
                Some(number.ok_or_else(|| wrong("seed", "a whole number of 64 bits", &value))?)
            }
        };
        // Other programs write -1 for all.
        let top_k = match fields.take("top_k") {
            None => None,
            Some(value) if value.as_i64() == Some(-1) => None,
            Some(value) => Some(
                value
                    .as_u64()
                    .filter(|k| *k > 0)
                    .ok_or_else(|| wrong("top_k", "1 or more, or -1 for all tokens", &value))?,
            ),
        };
        let top_p = fields.number("top_p", 0.0, 1.0)?.filter(|top_p| *top_p < 1.0);
        if top_p == Some(0.0) {
            return Err(ApiError::field("top_p", "`top_p` of 0 leaves no token; give more than 0"));
        }
        let sampling = Sampling {
            temperature: fields.number("temperature", 0.0, 1e6)?.unwrap_or(1.0),
            top_k: top_k.and_then(|k| usize::try_from(k).ok()),
            top_p,
            seed: seed.unwrap_or(0),
        };
        let stream = fields.flag("stream", false)?;
        let stream_usage = match fields.take("stream_options") {
            None => false,
            Some(_) if !stream => {
                let why = "`stream_options` needs `stream`: true";
                return Err(ApiError::field("stream_options", why));
            }
            Some(value) => {
                let mut options = Fields::new(value).map_err(|_| {
                    ApiError::field("stream_options", "`stream_options` should be an object")
                })?;
                let usage = options.flag("include_usage", false)?;
                options.end()?;
                usage
            }
        };
        for (name, usual) in [
            ("presence_penalty", vec![Value::from(0)]),
            ("frequency_penalty", vec![Value::from(0)]),
            ("logit_bias", vec![Value::Object(Map::new())]),
        ] {
            fields.only(name, &usual)?;
        }
        // Names the person at the other end, for a service's own records.
        fields.text("user")?;
        let count = fields.whole("n", 1, MAX_CHOICES)?.unwrap_or(1);
        let max_tokens = fields.whole("max_tokens", 0, u64::MAX)?;
        Ok(Common {
            model: fields.text("model")?,
            max_tokens: max_tokens.map(|most| usize::try_from(most).unwrap_or(usize::MAX)),
            sampling,
            seeded: seed.is_some(),
            choices: count as usize,
            stops: stops(fields.take("stop"))?,
            stream,
            stream_usage,
            logprobs: None,
        })
    }
}

fn stops(value: Option<Value>) -> Result<Vec<String>, ApiError> {
    let wanted = format!("a text, or a list of at most {MAX_STOPS} texts");
    let list = match value {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) => vec![Value::String(text)],
        Some(Value::Array(list)) if list.len() <= MAX_STOPS => list,
        Some(other) => return Err(wrong("stop", &wanted, &other)),
    };
    let mut stops = Vec::new();
    for (at, value) in list.iter().enumerate() {
        let Some(text) = value.as_str() else {
            return Err(wrong(&format!("stop[{at}]"), "a text", value));
        };
        if text.chars().count() > MAX_STOP_CHARS {
            let why = format!("`stop[{at}]` has more than {MAX_STOP_CHARS} characters");
            return Err(ApiError::field("stop", why));
        }
        if text.is_empty() {
            return Err(ApiError::field("stop", format!("`stop[{at}]` is empty")));
        }
        stops.push(text.to_owned());
    }
    Ok(stops)
}

/// Token ids of a list.
pub fn tokens(name: &str, list: &[Value]) -> Result<Vec<u32>, ApiError> {
    let id = |(at, value): (usize, &Value)| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| wrong(&format!("{name}[{at}]"), "a token id", value))
    };
    list.iter().enumerate().map(id).collect()
}

fn prompts(value: Option<Value>) -> Result<Vec<Prompt>, ApiError> {
    let wanted = "a text, a list of texts, a list of token ids, or a list of such lists";
    let list = match value {
        None => {
            return Err(ApiError::field("prompt", format!("`prompt` is missing; give {wanted}")));
        }
        Some(Value::String(text)) => return Ok(vec![Prompt::Text(text)]),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(wrong("prompt", wanted, &other)),
    };
    if list.is_empty() {
        return Err(ApiError::field("prompt", format!("`prompt` is an empty list; give {wanted}")));
    }
    if list.first().is_some_and(Value::is_number) {
        return Ok(vec![Prompt::Tokens(tokens("prompt", &list)?)]);
    }
    if list.len() > MAX_PROMPTS {
        let why = format!(
            "`prompt` has {} prompts, and at most {MAX_PROMPTS} are answered at once",
            list.len()
        );
        return Err(ApiError::field("prompt", why));
    }
    let one = |(at, value): (usize, &Value)| {
        let name = format!("prompt[{at}]");
        match (value.as_str(), value.as_array()) {
            (Some(text), _) => Ok(Prompt::Text(text.to_owned())),
            (None, Some(ids)) => Ok(Prompt::Tokens(tokens(&name, ids)?)),
            (None, None) => Err(wrong(&name, "a text or a list of token ids", value)),
        }
    };
    list.iter().enumerate().map(one).collect()
}

impl Completion {
    /// Reads a request.
    pub fn read(value: Value) -> Result<Completion, ApiError> {
        let mut fields = Fields::new(value)?;
        let prompts = prompts(fields.take("prompt"))?;
        let mut common = Common::read(&mut fields)?;
        let logprobs = fields.whole("logprobs", 0, MAX_LOGPROBS)?;
        common.logprobs = logprobs.map(|count| count as usize);
        // Of `best_of` answers OpenAI returns the `n` likeliest.
        if let Some(best) = fields.whole("best_of", 1, MAX_CHOICES)?
            && best != common.choices as u64
        {
            let why = format!("`best_of` should be `n`, here {}, or be left out", common.choices);
            return Err(ApiError::field("best_of", why));
        }
        fields.only("suffix", &[Value::from("")])?;
        let echo = fields.flag("echo", false)?;
        let marked = fields.flag("add_special_tokens", true)?;
        fields.end()?;
        Ok(Completion { common, prompts, echo, marked })
    }
}

impl Chat {
    /// Reads a request.
    pub fn read(value: Value) -> Result<Chat, ApiError> {
        let mut fields = Fields::new(value)?;
        let messages = messages(fields.take("messages"))?;
        let newer = fields.whole("max_completion_tokens", 1, u64::MAX)?;
        let mut common = Common::read(&mut fields)?;
        if let Some(most) = newer {
            if common.max_tokens.is_some() {
                let why = "give `max_completion_tokens` or `max_tokens`, not both";
                return Err(ApiError::field("max_tokens", why));
            }
            common.max_tokens = Some(usize::try_from(most).unwrap_or(usize::MAX));
        }
        let wanted = fields.flag("logprobs", false)?;
        let top = fields.whole("top_logprobs", 0, MAX_LOGPROBS)?;
        if top.is_some() && !wanted {
            return Err(ApiError::field("top_logprobs", "`top_logprobs` needs `logprobs`: true"));
        }
        common.logprobs = wanted.then_some(top.unwrap_or(0) as usize);
        let text = Value::Object(Map::from_iter([("type".to_owned(), Value::from("text"))]));
        fields.only("response_format", &[text])?;
        for name in ["tools", "functions"] {
            fields.only(name, &[Value::Array(Vec::new())])?;
        }
        fields.only("tool_choice", &[Value::from("none"), Value::from("auto")])?;
        fields.end()?;
        Ok(Chat { common, messages })
    }
}

/// The messages of a conversation.
pub fn messages(value: Option<Value>) -> Result<Vec<Message>, ApiError> {
    let list = match value {
        Some(Value::Array(list)) if !list.is_empty() => list,
        None => {
            return Err(ApiError::field("messages", "`messages` is missing; give at least one"));
        }
        Some(Value::Array(_)) => {
            return Err(ApiError::field("messages", "`messages` is empty; give at least one"));
        }
        Some(other) => return Err(wrong("messages", "a list of messages", &other)),
    };
    let mut messages = Vec::new();
    for (at, value) in list.into_iter().enumerate() {
        let place = format!("messages[{at}]");
        let mut fields = Fields::new(value)
            .map_err(|_| ApiError::field(&place, format!("`{place}` should be an object")))?;
        let role = fields.text("role")?;
        let role =
            role.ok_or_else(|| ApiError::field(&place, format!("`{place}` has no `role`")))?;
        let content = content(&place, fields.take("content"))?;
        fields.text("name")?;
        fields.end().map_err(|error| ApiError {
            message: format!("{place}: {}", error.message),
            ..error
        })?;
        messages.push(Message { role, content });
    }
    Ok(messages)
}

/// The text of a message: a text, or parts of which all are text.
fn content(place: &str, value: Option<Value>) -> Result<String, ApiError> {
    let name = format!("{place}.content");
    match value {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text),
        Some(Value::Array(parts)) => {
            let part = |part: &Value| match (part.get("type"), part.get("text")) {
                (Some(Value::String(kind)), Some(Value::String(text))) if kind == "text" => {
                    Ok(text.clone())
                }
                (_, _) => {
                    Err(ApiError::field(&name, format!("`{name}` has a part that is not text")))
                }
            };
            parts.iter().map(part).collect()
        }
        Some(other) => Err(wrong(&name, "a text", &other)),
    }
}

/// What is tokenized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tokenized {
    /// A text.
    Text(String),
    /// A conversation, by the chat template.
    Messages(Vec<Message>),
}

/// A request to `/tokenize`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokenize {
    /// The model's name, if given.
    pub model: Option<String>,
    /// What to tokenize.
    pub what: Tokenized,
    /// Whether the mark before a text is added.
    pub marked: bool,
}

impl Tokenize {
    /// Reads a request.
    pub fn read(value: Value) -> Result<Tokenize, ApiError> {
        let mut fields = Fields::new(value)?;
        let (text, list) = (fields.text("prompt")?, fields.take("messages"));
        let what = match (text, list) {
            (Some(text), None) => Tokenized::Text(text),
            (None, Some(list)) => Tokenized::Messages(messages(Some(list))?),
            (_, _) => {
                return Err(ApiError::field("prompt", "give `prompt` or `messages`, one of them"));
            }
        };
        let model = fields.text("model")?;
        let marked = fields.flag("add_special_tokens", true)?;
        fields.end()?;
        Ok(Tokenize { model, what, marked })
    }
}

/// A request to `/detokenize`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detokenize {
    /// The model's name, if given.
    pub model: Option<String>,
    /// The tokens.
    pub tokens: Vec<u32>,
}

impl Detokenize {
    /// Reads a request.
    pub fn read(value: Value) -> Result<Detokenize, ApiError> {
        let mut fields = Fields::new(value)?;
        let tokens = match fields.take("tokens") {
            Some(Value::Array(list)) => tokens("tokens", &list)?,
            None => {
                return Err(ApiError::field("tokens", "`tokens` is missing; give a list of ids"));
            }
            Some(other) => return Err(wrong("tokens", "a list of token ids", &other)),
        };
        let model = fields.text("model")?;
        fields.end()?;
        Ok(Detokenize { model, tokens })
    }
}
