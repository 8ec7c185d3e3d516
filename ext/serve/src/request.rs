//! Requests, checked: plain values in their bounds. A field that would change an answer in a way that this server cannot
//! is refused by name, unless its value is the one that changes nothing. A field that the server does not know is left
//! out, and named in a header of the answer.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use serde_json::{Map, Value};

use crate::chat::Conversation;
use crate::error::ApiError;
use crate::model::{Penalties, Sampling};

/// Most memory of the values of one request.
const VALUES: usize = 64 << 20;

/// A request's body: its fields, and the same object with its keys in the order of the text.
#[derive(Debug)]
pub struct Read {
    /// Its fields.
    pub value: Value,
    /// The object in order.
    pub ordered: jinja::Value,
}

/// The JSON of a body, if its values take little enough memory.
pub fn values(bytes: &[u8]) -> Result<Value, ApiError> {
    let memory = memory_of_values(bytes);
    if memory > VALUES {
        let message = format!(
            "the request has so many values that they take about {} MiB of memory; the limit is {}",
            memory >> 20,
            VALUES >> 20
        );
        return Err(ApiError::with(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message));
    }
    serde_json::from_slice(bytes).map_err(|error| not_json(&error))
}

/// The same, with the order of its keys.
pub fn ordered_values(bytes: &[u8]) -> Result<Read, ApiError> {
    let value = values(bytes)?;
    let text = std::str::from_utf8(bytes).map_err(|error| not_json(&error))?;
    let ordered = jinja::Value::from_json(text).map_err(|error| not_json(&error))?;
    Ok(Read { value, ordered })
}

/// About the bytes that the values of a JSON text take in memory, besides those of their texts: up to a hundred times as many
/// as in the text.
fn memory_of_values(bytes: &[u8]) -> usize {
    let (mut memory, mut is_text, mut is_escaped) = (0, false, false);
    for byte in bytes {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            _ if is_text => {}
            // A node of a map, the smallest list and a value.
            b'{' => memory += 700,
            b'[' => memory += 160,
            b',' => memory += 64,
            _ => {}
        }
    }
    memory
}

fn not_json(error: &dyn std::fmt::Display) -> ApiError {
    ApiError::bad(format!("the body is not JSON: {error}"))
}

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
    /// What changes logits before.
    pub penalties: Penalties,
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
    /// Fields that this server does not know.
    pub ignored: Vec<String>,
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
#[derive(Clone, Debug)]
pub struct Chat {
    /// What every completion has.
    pub common: Common,
    /// The conversation.
    pub conversation: Conversation,
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

    fn unsigned(&mut self, name: &str, least: u64, most: u64) -> Result<Option<u64>, ApiError> {
        let wanted = || match most {
            u64::MAX => format!("a whole number of at least {least}"),
            most => format!("a whole number from {least} to {most}"),
        };
        match self.take(name) {
            None => Ok(None),
            Some(value) => {
                match unsigned(&value).filter(|number| (least..=most).contains(number)) {
                    Some(number) => Ok(Some(number)),
                    None => Err(wrong(name, &wanted(), &value)),
                }
            }
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

    /// Refuses these fields of [`neutral`], unless their value changes nothing.
    fn neutral(&mut self, names: &[&str]) -> Result<(), ApiError> {
        for (name, usual) in neutral().iter().filter(|(name, _)| names.contains(name)) {
            self.only(name, usual)?;
        }
        Ok(())
    }

    /// The names of fields that nobody took.
    fn ignored(self) -> Vec<String> {
        self.map.into_iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| name).collect()
    }
}

/// Fields of other servers and of newer clients that would change an answer, with the values that do not.
fn neutral() -> Vec<(&'static str, Vec<Value>)> {
    let empty = || Value::Array(Vec::new());
    let text = Value::Object(Map::from_iter([("type".to_owned(), Value::from("text"))]));
    let mut rows = vec![
        ("min_p", vec![0.into()]),
        ("typical_p", vec![1.into()]),
        ("typ_p", vec![1.into()]),
        ("tfs_z", vec![1.into()]),
        ("top_a", vec![0.into()]),
        ("top_n_sigma", vec![0.into(), (-1).into()]),
        ("xtc_probability", vec![0.into()]),
        ("dry_multiplier", vec![0.into()]),
        ("mirostat", vec![0.into()]),
        ("repeat_penalty", vec![1.into()]),
        ("no_repeat_ngram_size", vec![0.into()]),
        ("do_sample", vec![true.into()]),
        ("num_beams", vec![1.into()]),
        ("use_beam_search", vec![false.into()]),
        ("length_penalty", vec![1.into()]),
        ("early_stopping", vec![false.into()]),
        ("stop_token_ids", vec![empty()]),
        ("stop_sequences", vec![empty()]),
        ("ignore_eos", vec![false.into()]),
        ("min_tokens", vec![0.into()]),
        ("min_new_tokens", vec![0.into()]),
        ("include_stop_str_in_output", vec![false.into()]),
        ("skip_special_tokens", vec![true.into()]),
        ("spaces_between_special_tokens", vec![true.into()]),
        ("bad_words", vec![empty()]),
        ("return_token_ids", vec![false.into()]),
        ("return_tokens_as_token_ids", vec![false.into()]),
        ("watermark", vec![false.into()]),
        ("response_format", vec![text]),
        ("modalities", vec![Value::from(vec!["text"])]),
        ("functions", vec![empty()]),
        ("function_call", vec!["none".into(), "auto".into()]),
        ("tool_choice", vec!["none".into(), "auto".into()]),
        ("grammar", vec!["".into()]),
    ];
    rows.extend(ALWAYS.iter().map(|name| (*name, Vec::new())));
    rows
}

/// Such fields without a value that changes nothing.
const ALWAYS: &[&str] = &[
    "n_predict",
    "max_new_tokens",
    "allowed_token_ids",
    "truncate_prompt_tokens",
    "prompt_logprobs",
    "json_schema",
    "regex",
    "ebnf",
    "stop_regex",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structured_outputs",
    "logits_processors",
    "custom_logit_processor",
    "thinking_token_budget",
    "chat_template",
    "response_prefix",
    "prompt_embeds",
    "prediction",
    "audio",
    "web_search_options",
    "lora",
    "lora_path",
    "adapter_id",
];

/// Those of them that decide the tokens of a prompt.
const OF_PROMPTS: &[&str] =
    &["chat_template", "functions", "prompt_embeds", "response_prefix", "truncate_prompt_tokens"];

/// Those of them that decide the text of tokens.
const OF_TEXTS: &[&str] = &["skip_special_tokens", "spaces_between_special_tokens"];

/// Fields that change no answer: records of a service, hints about speed.
const RECORDS: &[&str] = &[
    "user",
    "store",
    "metadata",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "parallel_tool_calls",
    "request_id",
    "priority",
];

/// A whole number, which some clients write as `5.0`.
fn integer(value: &Value) -> Option<i128> {
    let pointed = |number: f64| {
        let is_whole = number.fract() == 0.0 && number.abs() < 9e15;
        is_whole.then_some(number as i128)
    };
    let unsigned = value.as_u64().map(i128::from);
    unsigned.or(value.as_i64().map(i128::from)).or_else(|| pointed(value.as_f64()?))
}

fn unsigned(value: &Value) -> Option<u64> {
    integer(value).and_then(|number| u64::try_from(number).ok())
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

fn wrong(name: &str, wanted: &str, actual: &Value) -> ApiError {
    let actual = actual.as_number().map_or_else(|| kind(actual).to_owned(), ToString::to_string);
    ApiError::field(name, format!("`{name}` should be {wanted}, but is {actual}"))
}

impl Common {
    fn read(fields: &mut Fields) -> Result<Common, ApiError> {
        let seed = seed(fields)?;
        let top_k = top_k(fields)?;
        let top_p = fields.number("top_p", 0.0, 1.0)?.filter(|top_p| *top_p < 1.0);
        if top_p == Some(0.0) {
            return Err(ApiError::field("top_p", "`top_p` of 0 leaves no token; give more than 0"));
        }
        let sampling = Sampling {
            temperature: fields.number("temperature", 0.0, 2.0)?.unwrap_or(1.0),
            top_k: top_k.and_then(|k| usize::try_from(k).ok()),
            top_p,
            seed: seed.unwrap_or(0),
        };
        let stream = fields.flag("stream", false)?;
        let mut ignored = Vec::new();
        let stream_usage = stream_usage(fields, stream, &mut ignored)?;
        let penalties = Penalties {
            bias: bias(fields.take("logit_bias"))?,
            presence: fields.number("presence_penalty", -2.0, 2.0)?.unwrap_or(0.0),
            frequency: fields.number("frequency_penalty", -2.0, 2.0)?.unwrap_or(0.0),
            repetition: fields.number("repetition_penalty", 0.01, 100.0)?.unwrap_or(1.0),
        };
        for (name, usual) in neutral() {
            fields.only(name, &usual)?;
        }
        for name in RECORDS {
            fields.take(name);
        }
        let count = fields.unsigned("n", 1, MAX_CHOICES)?.unwrap_or(1);
        // OpenAI's newer name wins.
        let older = fields.unsigned("max_tokens", 0, u64::MAX)?;
        let max_tokens = fields.unsigned("max_completion_tokens", 1, u64::MAX)?.or(older);
        Ok(Common {
            model: fields.text("model")?,
            max_tokens: max_tokens.map(|most| usize::try_from(most).unwrap_or(usize::MAX)),
            sampling,
            penalties,
            seeded: seed.is_some(),
            choices: count as usize,
            stops: stops(fields.take("stop"))?,
            stream,
            stream_usage,
            logprobs: None,
            ignored,
        })
    }
}

fn seed(fields: &mut Fields) -> Result<Option<u64>, ApiError> {
    let Some(value) = fields.take("seed") else { return Ok(None) };
    let signed = || i64::try_from(integer(&value)?).ok().map(i64::cast_unsigned);
    let number = unsigned(&value).or_else(signed);
    number.map(Some).ok_or_else(|| wrong("seed", "a whole number of 64 bits", &value))
}

/// `None` for all tokens, which other programs write as -1 or 0.
fn top_k(fields: &mut Fields) -> Result<Option<u64>, ApiError> {
    match fields.take("top_k") {
        None => Ok(None),
        Some(value) if [Some(-1), Some(0)].contains(&integer(&value)) => Ok(None),
        Some(value) => unsigned(&value)
            .map(Some)
            .ok_or_else(|| wrong("top_k", "1 or more, or -1 for all tokens", &value)),
    }
}

/// Whether a stream ends with token counts.
fn stream_usage(
    fields: &mut Fields,
    stream: bool,
    ignored: &mut Vec<String>,
) -> Result<bool, ApiError> {
    match fields.take("stream_options") {
        None => Ok(false),
        Some(_) if !stream => {
            let message = "`stream_options` needs `stream`: true";
            Err(ApiError::field("stream_options", message))
        }
        Some(value) => {
            let mut options = Fields::new(value).map_err(|_| {
                ApiError::field("stream_options", "`stream_options` should be an object")
            })?;
            let usage = options.flag("include_usage", false)?;
            let others = options.ignored().into_iter();
            ignored.extend(others.map(|name| format!("stream_options.{name}")));
            Ok(usage)
        }
    }
}

/// The numbers to add to logits, by token id.
fn bias(value: Option<Value>) -> Result<Vec<(u32, f64)>, ApiError> {
    let wanted = "an object of token ids and numbers from -100 to 100";
    let map = match value {
        None => return Ok(Vec::new()),
        Some(Value::Object(map)) => map,
        Some(other) => return Err(wrong("logit_bias", wanted, &other)),
    };
    let entry = |(id, value): (String, Value)| {
        let id = id.parse().map_err(|_| {
            ApiError::field(
                "logit_bias",
                format!("`logit_bias` has the key `{id}`, which is no token id"),
            )
        })?;
        let number = value.as_f64().filter(|number| (-100.0..=100.0).contains(number));
        match number {
            Some(number) => Ok((id, number)),
            None => Err(wrong(&format!("logit_bias.{id}"), "a number from -100 to 100", &value)),
        }
    };
    // `7` and `07` are one token.
    let by_id: BTreeMap<u32, f64> = map.into_iter().map(entry).collect::<Result<_, _>>()?;
    Ok(by_id.into_iter().collect())
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
            let message = format!("`stop[{at}]` has more than {MAX_STOP_CHARS} characters");
            return Err(ApiError::field("stop", message));
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
        let id = unsigned(value).and_then(|id| u32::try_from(id).ok());
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
        let message = format!(
            "`prompt` has {} prompts, and at most {MAX_PROMPTS} are answered at once",
            list.len()
        );
        return Err(ApiError::field("prompt", message));
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
        let logprobs = fields.unsigned("logprobs", 0, MAX_LOGPROBS)?;
        common.logprobs = logprobs.map(|count| count as usize);
        // Of `best_of` answers OpenAI returns the `n` likeliest.
        if let Some(best) = fields.unsigned("best_of", 1, MAX_CHOICES)?
            && best != common.choices as u64
        {
            let message =
                format!("`best_of` should be `n`, here {}, or be left out", common.choices);
            return Err(ApiError::field("best_of", message));
        }
        fields.only("suffix", &[Value::from("")])?;
        let echo = fields.flag("echo", false)?;
        let marked = fields.flag("add_special_tokens", true)?;
        for name in ["messages", "chat_template_kwargs"] {
            fields.only(name, &[])?;
        }
        fields.only("tools", &[Value::Array(Vec::new())])?;
        common.ignored.extend(fields.ignored());
        Ok(Completion { common, prompts, echo, marked })
    }
}

impl Chat {
    /// Reads a request. `ordered`: the same object, with its keys in the order of the text.
    pub fn read(value: Value, ordered: &jinja::Value) -> Result<Chat, ApiError> {
        let mut fields = Fields::new(value)?;
        let conversation = conversation(&mut fields, ordered)?;
        let is_text = fields.map.get("tool_choice") == Some(&Value::from("none"));
        let mut common = Common::read(&mut fields)?;
        let wanted = fields.flag("logprobs", false)?;
        let top = fields.unsigned("top_logprobs", 0, MAX_LOGPROBS)?;
        if top.is_some_and(|top| top > 0) && !wanted {
            return Err(ApiError::field("top_logprobs", "`top_logprobs` needs `logprobs`: true"));
        }
        common.logprobs = wanted.then_some(top.unwrap_or(0) as usize);
        if !conversation.tools.is_none() && !is_text {
            let message = "`tools` needs `tool_choice`: \"none\" here: answers are text, and nothing reads calls from it";
            return Err(ApiError::field("tools", message));
        }
        fields.only("prompt", &[])?;
        fields.only("suffix", &[Value::from("")])?;
        fields.only("best_of", &[Value::from(common.choices)])?;
        fields.only("echo", &[Value::from(false)])?;
        fields.only("add_special_tokens", &[Value::from(false)])?;
        common.ignored.extend(fields.ignored());
        Ok(Chat { common, conversation })
    }
}

/// The messages of a request, and what else its template reads.
fn conversation(fields: &mut Fields, ordered: &jinja::Value) -> Result<Conversation, ApiError> {
    check_messages(fields.take("messages"))?;
    for (name, wanted, is_right) in [
        (
            "tools",
            "a list",
            fields.map.get("tools").is_none_or(|tools| tools.is_array() || tools.is_null()),
        ),
        (
            "chat_template_kwargs",
            "an object",
            fields
                .map
                .get("chat_template_kwargs")
                .is_none_or(|kwargs| kwargs.is_object() || kwargs.is_null()),
        ),
    ] {
        if let Some(value) = fields.take(name).filter(|_| !is_right) {
            return Err(wrong(name, wanted, &value));
        }
    }
    let named = |name: &str| ordered.get(&jinja::Value::from(name)).unwrap_or(jinja::Value::None);
    let tools = named("tools");
    let has_tools = tools.as_list().is_some_and(|tools| !tools.is_empty());
    let options = named("chat_template_kwargs");
    let option = |(name, value): &(jinja::Value, jinja::Value)| {
        Some((name.as_str()?.to_owned(), value.clone()))
    };
    for name in ["messages", "tools", "add_generation_prompt", "continue_final_message"] {
        if options.get(&jinja::Value::from(name)).is_some() {
            let path = format!("chat_template_kwargs.{name}");
            let message = format!("`{path}` is a field of the request: give `{name}` outside");
            return Err(ApiError::field(&path, message));
        }
    }
    let mut options: Vec<_> =
        options.entries().unwrap_or_default().iter().filter_map(option).collect();
    for name in ["documents", "reasoning_effort"] {
        if fields.take(name).is_some() {
            options.push((name.to_owned(), named(name)));
        }
    }
    let continue_final_message = fields.flag("continue_final_message", false)?;
    let add_generation_prompt = fields.flag("add_generation_prompt", !continue_final_message)?;
    if continue_final_message && add_generation_prompt {
        let message = "`continue_final_message` needs `add_generation_prompt`: false; leave it out";
        return Err(ApiError::field("continue_final_message", message));
    }
    Ok(Conversation {
        messages: named("messages").as_list().unwrap_or_default().to_vec(),
        tools: if has_tools { tools } else { jinja::Value::None },
        add_generation_prompt,
        continue_final_message,
        options,
    })
}

/// Messages have a role, and a content of text or of parts that are all text. Other fields are for the template.
fn check_messages(value: Option<Value>) -> Result<(), ApiError> {
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
    for (at, message) in list.into_iter().enumerate() {
        let path = format!("messages[{at}]");
        let mut fields = Fields::new(message)
            .map_err(|_| ApiError::field(&path, format!("`{path}` should be an object")))?;
        match fields.take("role") {
            Some(Value::String(_)) => {}
            None => return Err(ApiError::field(&path, format!("`{path}` has no `role`"))),
            Some(other) => return Err(wrong(&format!("{path}.role"), "a text", &other)),
        }
        let name = format!("{path}.content");
        let is_text = |part: &Value| {
            part.is_string()
                || part.get("type").and_then(Value::as_str) == Some("text")
                    && part.get("text").is_some_and(Value::is_string)
        };
        match fields.take("content") {
            None | Some(Value::String(_)) => {}
            Some(Value::Array(parts)) if parts.iter().all(is_text) => {}
            Some(Value::Array(_)) => {
                let message = format!("`{name}` has a part that is not text");
                return Err(ApiError::field(&name, message));
            }
            Some(other) => return Err(wrong(&name, "a text", &other)),
        }
    }
    Ok(())
}

/// What is tokenized.
#[derive(Clone, Debug)]
pub enum Tokenized {
    /// A text.
    Text(String),
    /// A conversation, by the chat template.
    Messages(Conversation),
}

/// A request to `/tokenize`.
#[derive(Clone, Debug)]
pub struct Tokenize {
    /// The model's name, if given.
    pub model: Option<String>,
    /// What to tokenize.
    pub what: Tokenized,
    /// Whether the mark before a text is added.
    pub marked: bool,
    /// Fields that have no effect.
    pub ignored: Vec<String>,
}

impl Tokenize {
    /// Reads a request. `ordered`: the same object, with its keys in the order of the text.
    pub fn read(value: Value, ordered: &jinja::Value) -> Result<Tokenize, ApiError> {
        let mut fields = Fields::new(value)?;
        let has_messages = fields.map.get("messages").is_some_and(|value| !value.is_null());
        let what = match (fields.text("prompt")?, has_messages) {
            (Some(text), false) => Tokenized::Text(text),
            (None, true) => {
                // The template alone decides.
                fields.only("add_special_tokens", &[Value::from(false)])?;
                Tokenized::Messages(conversation(&mut fields, ordered)?)
            }
            (_, _) => {
                return Err(ApiError::field("prompt", "give `prompt` or `messages`, one of them"));
            }
        };
        let model = fields.text("model")?;
        let marked = fields.flag("add_special_tokens", true)?;
        fields.neutral(OF_PROMPTS)?;
        Ok(Tokenize { model, what, marked, ignored: fields.ignored() })
    }
}

/// A request to `/detokenize`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detokenize {
    /// The model's name, if given.
    pub model: Option<String>,
    /// The tokens.
    pub tokens: Vec<u32>,
    /// Fields that have no effect.
    pub ignored: Vec<String>,
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
        fields.neutral(OF_TEXTS)?;
        Ok(Detokenize { model, tokens, ignored: fields.ignored() })
    }
}
