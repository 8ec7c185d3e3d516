//! Converts text to tokens and back, as in the run of a lock.
//!
//! A prompt has no token that training did not have there; a tokenizer other than the lock's is refused.

use std::sync::OnceLock;

use data::text::locked::{self, Around, around};
use data::text::tokenizer::{Info, Kind, MarkNames, SpecialTokens, Tokenizer, TokenizerKind};
use lab::experiment::DataSource;
use serve::model::{Codec, Special, Specials};

use cli::fail::{Failure, shown};
use cli::options::PromptArgs;
use cli::tokenizer;

/// Encodes prompts and decodes their continuations.
pub(crate) struct Prompts {
    tokenizer: Tokenizer,
    before: Option<u32>,
    after: Option<u32>,
    /// Before a text without context.
    first: Option<u32>,
    /// Tokens that end a text.
    ends: Vec<u32>,
    /// Special tokens that the tokenizer's file names.
    specials: Specials,
    /// The tokenizer for texts of a chat template; it is made when the first is encoded.
    with_special_tokens: OnceLock<Option<SpecialTokens>>,
}

/// Refuses another tokenizer than that of the lock's data, and data that is not text.
fn refuse_other_than_locked(
    data: Option<&DataSource>,
    tokenizer: &Tokenizer,
    instead: &str,
) -> Result<(), Failure> {
    match data {
        Some(DataSource::Text { tokenizer: locked, .. }) => {
            match locked::mismatch(locked, tokenizer.info()) {
                Some(differs) => Err(Failure::bad_input(differs)
                    .help("name the lock's tokenizer with --tokenizer-file, --bos and --eos as it was prepared")),
                None => Ok(()),
            }
        }
        Some(DataSource::Task { task, .. }) if !task.is_text() => {
            let name = task.name();
            Err(Failure::bad_input(format!(
                "the lock trains on {name}, which has tokens that are not text"
            ))
            .help(instead))
        }
        Some(DataSource::Task { .. }) | None => Ok(()),
    }
}

impl Prompts {
    /// For an arch with `vocab` tokens, trained on `data` if a lock says so.
    pub(crate) fn new(
        data: Option<&DataSource>,
        vocab: i64,
        args: &PromptArgs,
        // What else can be given where a text cannot be made tokens of.
        instead: &str,
    ) -> Result<Prompts, Failure> {
        let marks = MarkNames { bos: args.bos.clone(), eos: args.eos.clone() };
        let path = args.tokenizer_file.as_deref();
        let kind = match data {
            Some(DataSource::Text { tokenizer, .. }) => Kind::from(tokenizer),
            Some(DataSource::Task { .. }) => Kind::Bytes,
            // Without a lock, the file says what it is.
            None if path.is_some_and(|path| path.extension().is_some_and(|end| end == "json")) => {
                Kind::File(TokenizerKind::HuggingFace)
            }
            None => Kind::Bytes,
        };
        if let (Some(path), Kind::Bytes) = (path, kind) {
            return Err(Failure::bad_input(format!(
                "`{}` is given, but the tokens here are bytes",
                shown(path)
            ))
            .help("remove --tokenizer-file, or name the lock that the weights are of"));
        }
        if path.is_none() && kind != Kind::Bytes {
            return Err(Failure::bad_input("the lock's tokenizer needs a file, but none is given")
                .help(format!("name it with --tokenizer-file FILE, or {instead}")));
        }
        let tokenizer = tokenizer::read(kind, path, marks)?;
        let has = tokenizer.text_vocab();
        refuse_other_than_locked(data, &tokenizer, instead)?;
        // A lock says that its tokens are text, also where the arch has more of them; an arch alone does not.
        let is_known = data.is_some() || kind != Kind::Bytes;
        let enough = i64::from(has) == vocab || is_known && i64::from(has) < vocab;
        if !enough && data.is_none() && path.is_none() {
            return Err(Failure::bad_input(format!(
                "no tokenizer is named with --tokenizer-file, and this arch's {vocab} tokens are not the {has} of bytes"
            ))
            .help(format!(
                "name its tokenizer.json with --tokenizer-file, or the Hugging Face folder as the model, or {instead}"
            )));
        }
        if !enough {
            return Err(Failure::bad_input(format!(
                "a text prompt needs the {} tokenizer's vocabulary of {has}, but this arch has {vocab}",
                tokenizer.info().kind
            ))
            .help(instead));
        }
        let Around { before, after, first } = around(data, tokenizer.info());
        let ends = after.into_iter().collect();
        Ok(Prompts {
            tokenizer,
            before,
            after,
            first,
            ends,
            specials: Specials::default(),
            with_special_tokens: OnceLock::new(),
        })
    }

    /// The token before a text without context.
    pub(crate) fn first(&self) -> Option<i64> {
        self.first.map(i64::from)
    }

    /// The mark before each text, if training had one.
    pub(crate) fn before(&self) -> Option<i64> {
        self.before.map(i64::from)
    }

    /// The tokens of a text without marks.
    pub(crate) fn plain(&self, text: &str) -> Result<Vec<i64>, Failure> {
        let mut ids = Vec::new();
        self.encode(text, &mut ids)?;
        Ok(ids.into_iter().map(i64::from).collect())
    }

    /// For a tokenizer of Hugging Face: `named` is the mark that its folder names for the begin of a text, `ends` are
    /// the tokens that end one, `specials` those that its file names.
    pub(crate) fn of_folder(
        tokenizer: Tokenizer,
        named: Option<u32>,
        ends: Vec<u32>,
        specials: Specials,
    ) -> Prompts {
        let Info { bos: before, eos: after, .. } = *tokenizer.info();
        let first = before.or(named).or(after);
        let with_special_tokens = OnceLock::new();
        Prompts { tokenizer, before, after, first, ends, specials, with_special_tokens }
    }

    /// Whether the tokenizer is a `tokenizer.json`.
    pub(crate) fn is_hugging_face(&self) -> bool {
        self.tokenizer.info().kind == Kind::File(TokenizerKind::HuggingFace)
    }

    /// Adds what the tokenizer's file says about special tokens.
    pub(crate) fn with_specials(self, specials: Specials) -> Prompts {
        Prompts { specials, ..self }
    }

    /// A warning about a text that spells a special token, which it does not get.
    pub(crate) fn special_warning(&self, text: &str) -> Option<String> {
        let (_, special) = self.specials.in_text(text).next()?;
        Some(format!(
            "warning: `{}` in the prompt is plain text, not the special token {}; --prompt-tokens takes special tokens",
            special.text, special.id
        ))
    }

    /// The token that ends a text, the first one if there are several; `None` if training had none.
    pub(crate) fn stop(&self) -> Option<i64> {
        self.ends.first().copied().map(i64::from)
    }

    /// Whether a token is text, not a mark or another special token.
    fn is_text(&self, id: u32) -> bool {
        ![self.before, self.after].contains(&Some(id)) && self.specials.of_id(id).is_none()
    }

    /// The tokens of a text, as in training.
    pub(crate) fn tokens(&self, text: &str) -> Result<Vec<i64>, Failure> {
        let mut ids: Vec<u32> = self.before.into_iter().collect();
        self.encode(text, &mut ids)?;
        if ids.is_empty() {
            return Err(Failure::bad_input("the prompt is empty and has no bos")
                .help("give a text: the lock or the model's tokenizer puts no token before one"));
        }
        Ok(ids.into_iter().map(i64::from).collect())
    }

    /// Number of tokens of a text without marks.
    pub(crate) fn count(&self, text: &str) -> Result<usize, Failure> {
        Ok(self.plain(text)?.len())
    }

    fn with_special_tokens(&self) -> Option<&SpecialTokens> {
        let tokenizer = || self.tokenizer.with_special_tokens();
        self.with_special_tokens.get_or_init(tokenizer).as_ref()
    }

    fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), Failure> {
        self.tokenizer
            .encode(text, ids)
            .map_err(|why| Failure::bad_input(format!("the prompt cannot be tokenized: {why}")))
    }

    /// The bytes that `tokens` add to those of the prompt. A token's bytes may depend on earlier tokens.
    pub(crate) fn continuation(&self, prompt: &[i64], tokens: &[i64]) -> Result<Vec<u8>, Failure> {
        let ids = |tokens: &[i64]| -> Vec<u32> {
            let ids = tokens.iter().filter_map(|id| u32::try_from(*id).ok());
            ids.filter(|id| self.is_text(*id)).collect()
        };
        self.tokenizer
            .continuation(&ids(prompt), &ids(tokens))
            .map_err(|why| Failure::bad_input(format!("tokens cannot be decoded to text: {why}")))
    }
}

impl Codec for Prompts {
    fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        let mut ids = Vec::new();
        let why = |why| format!("the text cannot be tokenized: {why}");
        self.tokenizer.encode(text, &mut ids).map_err(why)?;
        Ok(ids)
    }

    fn encode_template(&self, text: &str) -> Option<Result<Vec<u32>, String>> {
        Some(self.with_special_tokens()?.encode(text))
    }

    fn decode(&self, ids: &[u32]) -> Result<Vec<u8>, String> {
        let ids: Vec<u32> = ids.iter().copied().filter(|id| self.is_text(*id)).collect();
        let why = |why| format!("the tokens cannot be decoded: {why}");
        self.tokenizer.decode(&ids).map_err(why)
    }

    fn before(&self) -> Option<u32> {
        self.before
    }

    fn ends(&self) -> &[u32] {
        &self.ends
    }

    fn specials(&self) -> &Specials {
        &self.specials
    }

    fn spelled(&self, text: &str) -> Option<&Special> {
        let spelled = self.specials.in_text(text).next().map(|(_, special)| special);
        let normalized = || self.with_special_tokens()?.normalized(text);
        spelled.or_else(|| self.specials.of_id(normalized()?))
    }
}

/// Tokens that are not text, shown as their ids.
#[derive(Debug)]
pub(crate) struct Ids;

impl Codec for Ids {
    fn encode(&self, _: &str) -> Result<Vec<u32>, String> {
        Err("the tokens of this model are not text".to_owned())
    }

    fn decode(&self, ids: &[u32]) -> Result<Vec<u8>, String> {
        let ids = ids.iter().map(|id| format!("{id} "));
        Ok(ids.collect::<String>().into_bytes())
    }

    fn before(&self) -> Option<u32> {
        None
    }

    fn ends(&self) -> &[u32] {
        &[]
    }

    fn specials(&self) -> &Specials {
        Specials::none()
    }
}
