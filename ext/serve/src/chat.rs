//! Conversations as prompts, by a chat template as `transformers` runs it. Only the template writes special tokens: a
//! message that spells one is refused, so nobody can end a turn from inside it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jinja::{Arguments, Environment, Undefined, Value};

use crate::error::ApiError;
use crate::model::{Codec, Special};

/// The template of models that have none: `ROLE: CONTENT` on lines of their own.
pub const PLAIN: &str = "\
{% for message in messages %}{{ message.role }}: {{ message.content | trim }}\n{% endfor %}\
{% if add_generation_prompt %}assistant:{% endif %}";

/// The text that ends an answer under [`PLAIN`].
pub const PLAIN_STOP: &str = "\nuser:";

/// A conversation and what else a template may read.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// Its messages: dictionaries with a `role`, and whatever the template knows.
    pub messages: Vec<Value>,
    /// Descriptions of tools, or `None`.
    pub tools: Value,
    /// Whether the prompt ends where the model's answer begins.
    pub add_generation_prompt: bool,
    /// Whether the prompt ends where the last message does, which the model continues.
    pub continue_final_message: bool,
    /// Other names, from `chat_template_kwargs`.
    pub options: Vec<(String, Value)>,
}

impl Conversation {
    /// Messages that the model answers.
    pub fn new(messages: Vec<Value>) -> Conversation {
        Conversation {
            messages,
            tools: Value::None,
            add_generation_prompt: true,
            continue_final_message: false,
            options: Vec::new(),
        }
    }
}

/// A message of text.
pub fn message(role: &str, content: &str) -> Value {
    [("role", role), ("content", content)]
        .into_iter()
        .map(|(key, text)| (key.to_owned(), Value::from(text)))
        .collect()
}

/// A chat template.
#[derive(Debug)]
pub struct Template {
    text: String,
    /// Texts of marks that a template may name: `bos_token`, `eos_token`.
    marks: BTreeMap<String, String>,
    /// Whether it goes through the parts of a message's content.
    reads_parts: bool,
    plain: bool,
}

const ENVIRONMENT: Environment = Environment {
    undefined: Undefined::Empty,
    trims_blocks: true,
    filters: &[],
    functions: &[("raise_exception", raise_exception), ("strftime_now", strftime_now)],
};

fn raise_exception(arguments: &Arguments) -> Result<Value, String> {
    let [message] = arguments.bind("raise_exception", ["message"])?;
    Err(message.unwrap_or(Value::None).text()?)
}

/// Directives of `strftime` that mean the same in Python.
const DIRECTIVES: &str = "aAbBcCdDeFgGhHIjklmMnpPrRStTuUVwWxXyY%";

/// The date and time of this machine, as Python's `datetime.now().strftime(format)`.
fn strftime_now(arguments: &Arguments) -> Result<Value, String> {
    let [format] = arguments.bind("strftime_now", ["format"])?;
    let Some(Value::Str(format)) = format else {
        return Err("strftime_now needs a str".to_owned());
    };
    let mut ours = String::new();
    let mut characters = format.chars();
    while let Some(c) = characters.next() {
        if c != '%' {
            ours.push(c);
            continue;
        }
        let mut directive = characters.next();
        let padding = directive.filter(|c| ['-', '_', '0'].contains(c));
        if padding.is_some() {
            directive = characters.next();
        }
        match directive {
            Some('f') if padding.is_none() => ours += "%6f",
            // A time without a zone has none.
            Some('z' | 'Z') if padding.is_none() => {}
            Some(known) if DIRECTIVES.contains(known) => {
                ours.push('%');
                ours.extend(padding);
                ours.push(known);
            }
            other => {
                let other: String = padding.into_iter().chain(other).collect();
                return Err(format!("strftime_now: `%{other}` is not supported by canonc"));
            }
        }
    }
    let mut text = String::new();
    write!(text, "{}", chrono::Local::now().naive_local().format(&ours))
        .map_err(|_| format!("strftime_now: `{format}` has an unknown directive"))?;
    Ok(Value::from(text))
}

impl Template {
    /// Reads a template. `marks`: the values of `bos_token`, `eos_token` and others.
    pub fn new(text: &str, marks: BTreeMap<String, String>) -> Result<Template, String> {
        ENVIRONMENT
            .check(text)
            .map_err(|error| format!("the chat template cannot be read: {error}"))?;
        // vLLM decides in the same way: a template that never names the text of a part takes one text.
        let reads_parts =
            [".text", "['text']", "[\"text\"]"].iter().any(|name| text.contains(name));
        Ok(Template { text: text.to_owned(), marks, reads_parts, plain: false })
    }

    /// The template of models that have none.
    pub fn plain() -> Template {
        Template { text: PLAIN.to_owned(), marks: BTreeMap::new(), reads_parts: false, plain: true }
    }

    /// Texts that end an answer.
    pub fn stops(&self) -> Vec<String> {
        if self.plain { vec![PLAIN_STOP.to_owned()] } else { Vec::new() }
    }

    /// The prompt of a conversation, in which no message spells a special token.
    pub fn render(
        &self,
        conversation: &Conversation,
        codec: &dyn Codec,
    ) -> Result<String, ApiError> {
        let Conversation {
            messages,
            tools,
            add_generation_prompt,
            continue_final_message,
            options,
        } = conversation;
        let mut messages: Vec<Value> =
            messages.iter().map(|message| prepared(message, self.reads_parts)).collect();
        refuse_specials(&messages, tools, options, codec)?;
        let continued = match messages.last_mut().filter(|_| *continue_final_message) {
            None => None,
            Some(last) => Some(tagged(last).ok_or_else(cannot_continue)?),
        };
        let marks =
            self.marks.iter().map(|(name, text)| (name.clone(), Value::from(text.as_str())));
        let mut names: BTreeMap<String, Value> = marks.collect();
        names.insert("documents".to_owned(), Value::None);
        names.extend(options.iter().cloned());
        names.insert("messages".to_owned(), Value::from(messages));
        names.insert("tools".to_owned(), tools.clone());
        names.insert("add_generation_prompt".to_owned(), Value::from(*add_generation_prompt));
        let text = ENVIRONMENT.render(&self.text, &names.into_iter().collect());
        let text = text.map_err(|error| {
            ApiError::field(
                "messages",
                format!("the chat template refuses these messages: {error}"),
            )
        })?;
        match continued {
            None => Ok(text),
            Some(message) => up_to_tag(&text, &message).ok_or_else(cannot_continue),
        }
    }

    /// The tokens of a rendered conversation.
    pub fn tokens(&self, text: &str, codec: &dyn Codec) -> Result<Vec<u32>, ApiError> {
        let refuse = |error: String| ApiError::field("messages", error);
        let mut ids = match codec.encode_template(text) {
            Some(ids) => ids.map_err(refuse)?,
            None => pieces(text, codec).map_err(refuse)?,
        };
        // A template decides alone whether a text begins with a mark, as in `apply_chat_template`. Ours, and one for a
        // tokenizer in which no text spells the mark, cannot write it.
        let before = codec.before().filter(|before| ids.first() != Some(before));
        let can_write = |mark: u32| !self.plain && codec.specials().of_id(mark).is_some();
        if let Some(before) = before.filter(|before| !can_write(*before)) {
            ids.insert(0, before);
        }
        Ok(ids)
    }
}

/// Follows the last message's text while it is rendered, to see where that text ends. The blank at its end shows whether the
/// template trims.
const TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// Puts the tag behind a message's text, or behind its last part of text; returns that text.
fn tagged(message: &mut Value) -> Option<String> {
    let content = message.get(&Value::from("content"))?;
    let (text, content) = if let Value::List(parts) = &content {
        let mut parts = parts.to_vec();
        let has_text = |part: &&mut Value| part.get(&Value::from("text")).is_some();
        let last = parts.iter_mut().rev().find(has_text)?;
        let text = last.get(&Value::from("text"))?.as_str()?.to_owned();
        *last = with_field(last, "text", format!("{text}{TAG}").into())?;
        (text, parts.into())
    } else {
        let text = content.as_str()?.to_owned();
        let tagged = Value::from(format!("{text}{TAG}"));
        (text, tagged)
    };
    *message = with_field(message, "content", content)?;
    Some(text)
}

/// An object with another value of a field.
fn with_field(object: &Value, name: &str, value: Value) -> Option<Value> {
    let field = |(key, old): &(Value, Value)| {
        let key = key.as_str()?;
        Some((key.to_owned(), if key == name { value.clone() } else { old.clone() }))
    };
    object.entries()?.iter().map(field).collect()
}

/// A rendered text up to the tag, if the message before it is there.
fn up_to_tag(text: &str, message: &str) -> Option<String> {
    let end = text.rfind(TAG.trim_end()).filter(|_| text.contains(message.trim()))?;
    let (before, rest) = text.split_at(end);
    // A template that trims has trimmed the message, too.
    let before = if rest.starts_with(TAG) { before } else { before.trim_end() };
    Some(before.to_owned())
}

fn cannot_continue() -> ApiError {
    let message =
        "`continue_final_message` needs a last message with a text that the chat template writes";
    ApiError::field("continue_final_message", message)
}

/// The tokens of a text between special tokens, for tokenizers whose library does not look for them.
fn pieces(text: &str, codec: &dyn Codec) -> Result<Vec<u32>, String> {
    let (mut ids, mut end) = (Vec::new(), 0);
    let plain = |text: Option<&str>, ids: &mut Vec<u32>| {
        let text = text.filter(|text| !text.is_empty());
        text.map_or(Ok(()), |text| codec.encode(text).map(|more| ids.extend(more)))
    };
    for (place, special) in codec.specials().in_text(text) {
        plain(text.get(end..place.start), &mut ids)?;
        ids.push(special.id);
        end = place.end;
    }
    plain(text.get(end..), &mut ids)?;
    Ok(ids)
}

/// Refuses messages, tools and options that spell a special token, alone or together.
fn refuse_specials(
    messages: &[Value],
    tools: &Value,
    options: &[(String, Value)],
    codec: &dyn Codec,
) -> Result<(), ApiError> {
    let named =
        messages.iter().enumerate().map(|(at, message)| (format!("messages[{at}]"), message));
    let options_of = options.iter().map(|(name, value)| (name.clone(), value));
    for (name, value) in named.chain([("tools".to_owned(), tools)]).chain(options_of) {
        if let Some(special) = spelled(value, codec) {
            return Err(refusal(&name, "contains", special));
        }
    }
    let contents = messages.iter().filter_map(|message| message.get(&Value::from("content")));
    let together: Vec<String> = contents.flat_map(|content| texts(&content)).collect();
    // A template may trim what it writes.
    let trimmed: String = together.iter().map(|text| text.trim()).collect();
    for text in [together.concat(), trimmed] {
        if let Some(special) = codec.spelled(&text) {
            return Err(refusal("messages", "contains", special));
        }
    }
    let roles = messages.iter().enumerate().rev().filter_map(|(at, message)| {
        Some((message.get(&Value::from("role"))?.as_str()?.to_owned(), at))
    });
    // Each once: the first message that has it.
    let roles: BTreeMap<String, usize> = roles.collect();
    for (role, at) in roles.iter().filter(|(role, _)| !ROLES.contains(&role.as_str())) {
        // A template may write `<|ROLE|>`.
        let mut specials = codec.specials().iter();
        let is_part = |special: &&Special| !role.is_empty() && special.text.contains(role);
        if let Some(special) = specials.find(is_part) {
            return Err(refusal(&format!("messages[{at}].role"), "is a part of", special));
        }
    }
    Ok(())
}

fn refusal(name: &str, verb: &str, special: &Special) -> ApiError {
    let message = format!(
        "`{name}` {verb} `{}`, a special token that only the chat template may write",
        special.text
    );
    ApiError::field(name, message)
}

/// A special token that a text of this value spells.
fn spelled<'a>(value: &Value, codec: &'a dyn Codec) -> Option<&'a Special> {
    if let Some(text) = value.as_str() {
        return codec.spelled(text);
    }
    let mut items = value.as_list().unwrap_or_default().iter();
    items.find_map(|item| spelled(item, codec)).or_else(|| {
        let mut entries = value.entries().unwrap_or_default().iter();
        entries.find_map(|(key, value)| spelled(key, codec).or_else(|| spelled(value, codec)))
    })
}

/// Roles of whose names templates make special tokens.
const ROLES: [&str; 8] =
    ["system", "developer", "user", "assistant", "tool", "function", "ipython", "model"];

/// All texts of a content, in their order: a template may write parts and messages without anything between.
fn texts(content: &Value) -> Vec<String> {
    match content.as_list() {
        Some(parts) => parts.iter().filter_map(text_of).collect(),
        None => text_of(content).into_iter().collect(),
    }
}

/// A message as `apply_chat_template` hands it to a template: without absent values, reasoning under all its names;
/// arguments of tool calls as objects; parts of text as one text, for a template that reads no parts.
fn prepared(message: &Value, reads_parts: bool) -> Value {
    let Some(entries) = message.entries() else { return message.clone() };
    let mut fields: Vec<(String, Value)> = Vec::new();
    let get = |name: &str| message.get(&Value::from(name)).filter(|value| !value.is_none());
    let reasoning = ["reasoning_content", "thinking", "reasoning"].into_iter().find_map(get);
    if let Some(reasoning) = reasoning.clone().filter(|_| get("thinking").is_none()) {
        fields.push(("thinking".to_owned(), reasoning));
    }
    for (key, value) in entries.iter() {
        let (Some(key), false) = (key.as_str(), value.is_none()) else { continue };
        let value = match key {
            "content" => {
                let changed = if reads_parts { typed(value) } else { joined(value) };
                changed.unwrap_or_else(|| value.clone())
            }
            "tool_calls" => calls_with_objects(value),
            _ => value.clone(),
        };
        fields.push((key.to_owned(), value));
    }
    if let Some(reasoning) = reasoning {
        match fields.iter_mut().find(|(key, _)| key == "reasoning_content") {
            Some((_, value)) => *value = reasoning,
            None => fields.push(("reasoning_content".to_owned(), reasoning)),
        }
    }
    fields.into_iter().collect()
}

/// The text of a part, which may be a text itself.
fn text_of(part: &Value) -> Option<String> {
    let text = part.get(&Value::from("text"));
    part.as_str().or_else(|| text.as_ref()?.as_str()).map(str::to_owned)
}

/// Parts of text as one text, with a line for each, as vLLM joins them.
fn joined(content: &Value) -> Option<Value> {
    let Value::List(parts) = content else { return None };
    Some(Value::from(parts.iter().map(text_of).collect::<Option<Vec<_>>>()?.join("\n")))
}

/// Parts of text with their type.
fn typed(content: &Value) -> Option<Value> {
    let Value::List(parts) = content else { return None };
    let part = |part: &Value| match part.as_str() {
        Some(text) => [("type", "text"), ("text", text)]
            .into_iter()
            .map(|(key, text)| (key.to_owned(), Value::from(text)))
            .collect(),
        None => part.clone(),
    };
    Some(parts.iter().map(part).collect::<Vec<_>>().into())
}

/// Tool calls whose arguments are objects: requests have them as JSON in a text, which templates would print quoted.
fn calls_with_objects(calls: &Value) -> Value {
    let Some(calls) = calls.as_list() else { return calls.clone() };
    calls.iter().map(|call| with_object(call, true)).collect::<Vec<_>>().into()
}

fn with_object(call: &Value, has_function: bool) -> Value {
    let Some(entries) = call.entries() else { return call.clone() };
    let changed = |(key, value): &(Value, Value)| {
        let name = key.as_str()?;
        let value = match name {
            "function" if has_function => with_object(value, false),
            "arguments" => {
                let object = value.as_str().and_then(|text| Value::from_json(text).ok());
                object.filter(|object| object.entries().is_some()).unwrap_or_else(|| value.clone())
            }
            _ => value.clone(),
        };
        Some((name.to_owned(), value))
    };
    entries.iter().filter_map(changed).collect()
}
