//! Messages as one text, by a chat template.
//!
//! In: a template in Jinja, as in `tokenizer_config.json`, and messages. Out: tokens. Must stay true: only the template
//! writes special tokens: a message that spells one is refused, so nobody can end a turn from inside it.

use std::collections::BTreeMap;

use minijinja::{Environment, Error, ErrorKind, context};
use serde::Serialize;

use crate::error::ApiError;
use crate::model::Codec;

/// The template of models that have none: `ROLE: CONTENT` on lines of their own.
pub const PLAIN: &str = "\
{% for message in messages %}{{ message.role }}: {{ message.content | trim }}\n{% endfor %}\
{% if add_generation_prompt %}assistant:{% endif %}";

/// The text that ends an answer under [`PLAIN`].
pub const PLAIN_STOP: &str = "\nuser:";

/// A message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// `system`, `user`, `assistant`, or another that the template knows.
    pub role: String,
    /// Its text.
    pub content: String,
}

/// A chat template.
#[derive(Debug)]
pub struct Template {
    environment: Environment<'static>,
    /// Texts of marks that a template may name: `bos_token`, `eos_token`.
    marks: BTreeMap<String, String>,
    plain: bool,
}

const NAME: &str = "chat_template";

impl Template {
    /// Reads a template. `marks`: the values of `bos_token`, `eos_token` and others.
    pub fn new(text: &str, marks: BTreeMap<String, String>) -> Result<Template, String> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |why: String| -> Result<(), Error> {
            Err(Error::new(ErrorKind::InvalidOperation, why))
        });
        // A template's loop is over the messages and their text, which the body's limit bounds.
        environment.set_recursion_limit(64);
        environment
            .add_template_owned(NAME, text.to_owned())
            .map_err(|error| format!("the chat template cannot be read: {error}"))?;
        Ok(Template { environment, marks, plain: false })
    }

    /// The template of models that have none.
    pub fn plain() -> Template {
        let environment = Template::new(PLAIN, BTreeMap::new()).map(|read| read.environment);
        Template {
            environment: environment.unwrap_or_default(),
            marks: BTreeMap::new(),
            plain: true,
        }
    }

    /// Texts that end an answer.
    pub fn stops(&self) -> Vec<String> {
        if self.plain { vec![PLAIN_STOP.to_owned()] } else { Vec::new() }
    }

    /// The prompt of a conversation.
    pub fn render(&self, messages: &[Message]) -> Result<String, ApiError> {
        let template = self.environment.get_template(NAME).map_err(|error| self.refusal(&error))?;
        let context = context! {
            messages => messages,
            add_generation_prompt => true,
            tools => None::<()>,
            documents => None::<()>,
            ..minijinja::Value::from_serialize(&self.marks)
        };
        template.render(context).map_err(|error| self.refusal(&error))
    }

    fn refusal(&self, error: &Error) -> ApiError {
        let why = error.detail().map_or_else(|| error.to_string(), str::to_owned);
        ApiError::field("messages", format!("the chat template refuses these messages: {why}"))
    }

    /// The tokens of a conversation.
    pub fn tokens(&self, messages: &[Message], codec: &dyn Codec) -> Result<Vec<u32>, ApiError> {
        let specials = codec.specials();
        for (at, message) in messages.iter().enumerate() {
            let spelled = specials.iter().find(|special| {
                [&message.content, &message.role].iter().any(|text| text.contains(&special.text))
            });
            if let Some(special) = spelled {
                let name = format!("messages[{at}].content");
                let why = format!(
                    "`{name}` contains `{}`, a special token that only the chat template may write",
                    special.text
                );
                return Err(ApiError::field(&name, why));
            }
        }
        let text = self.render(messages)?;
        let mut ids = Vec::new();
        let mut rest = text.as_str();
        let refuse = |why: String| ApiError::field("messages", why);
        while !rest.is_empty() {
            // The first special token; of several there, the longest.
            let found = specials.iter().filter(|special| !special.text.is_empty());
            let found = found.filter_map(|special| Some((rest.find(&special.text)?, special)));
            let next = found.min_by_key(|(at, special)| (*at, usize::MAX - special.text.len()));
            let (end, special) = next.map_or((rest.len(), None), |(at, one)| (at, Some(one)));
            let (plain, after) = rest.split_at(end);
            if !plain.is_empty() {
                ids.extend(codec.encode(plain).map_err(refuse)?);
            }
            ids.extend(special.map(|special| special.id));
            rest = special.map_or("", |special| after.get(special.text.len()..).unwrap_or(""));
        }
        // A template decides alone whether a text begins with a mark, as in `apply_chat_template`. Ours, and one for a
        // tokenizer in which no text spells the mark, cannot write it.
        let before = codec.before().filter(|before| ids.first() != Some(before));
        let can_write = |mark: u32| !self.plain && specials.iter().any(|one| one.id == mark);
        if let Some(before) = before.filter(|before| !can_write(*before)) {
            ids.insert(0, before);
        }
        Ok(ids)
    }
}
