//! What the server needs from a model and its tokenizer: the traits [`Model`] and [`Codec`]. The result for a sequence
//! must depend on that sequence alone, whatever else is in its batch.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, MatchKind};

/// How to choose the next token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// 0 takes the likeliest token.
    pub temperature: f64,
    /// Sample only among this many of the likeliest tokens.
    pub top_k: Option<usize>,
    /// Sample only among the likeliest tokens that have this probability together.
    pub top_p: Option<f64>,
    /// Seed of the random draws.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling { temperature: 1.0, top_k: None, top_p: None, seed: 0 }
    }
}

/// Changes to the logits of a text before a token is drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Penalties {
    /// Added to a token's logit, by id.
    pub bias: Vec<(u32, f64)>,
    /// Subtracted from the logit of each token that was drawn before.
    pub presence: f64,
    /// Subtracted once for each time that the token was drawn.
    pub frequency: f64,
    /// Divides a positive logit and multiplies a negative one, of tokens in the prompt or drawn; 1 changes nothing.
    pub repetition: f64,
}

impl Default for Penalties {
    fn default() -> Penalties {
        Penalties { bias: Vec::new(), presence: 0.0, frequency: 0.0, repetition: 1.0 }
    }
}

/// The next tokens of a sequence.
#[derive(Debug)]
pub struct Piece<'a, S> {
    /// The state after the tokens so far, which is replaced.
    pub state: &'a mut S,
    /// At least one, at most [`Model::piece`].
    pub tokens: &'a [u32],
    /// How many of the last tokens need logits.
    pub logits: usize,
}

/// A model, used from one thread. Errors are sentences for the user.
pub trait Model {
    /// A sequence's state.
    type State;
    /// Logits of one or more positions.
    type Logits;

    /// Number of token ids.
    fn vocab(&self) -> usize;

    /// Maximum number of tokens in a piece.
    fn piece(&self) -> usize;

    /// The state before the first token.
    fn start(&self) -> Result<Self::State, String>;

    /// Advances several sequences; on failure, no state changes. Returns the logits of each piece that needs any. They
    /// have the same bits whatever the other pieces are.
    fn advance(
        &self,
        pieces: &mut [Piece<'_, Self::State>],
    ) -> Result<Vec<Option<Self::Logits>>, String>;

    /// The `vocab` logits of one of the positions in `logits`.
    fn row(&self, logits: &Self::Logits, at: usize) -> Result<Vec<f64>, String>;

    /// Chooses the next token. `index` is the number of earlier draws of this sequence.
    fn choose(&self, logits: &[f64], sampling: &Sampling, index: u64) -> Result<u32, String>;
}

/// A special token, as chat templates write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Special {
    /// Its text.
    pub text: String,
    /// Its id.
    pub id: u32,
}

/// The special tokens of a tokenizer. Looking for them takes a time linear in the text, however many there are.
#[derive(Debug, Default)]
pub struct Specials {
    all: Vec<Special>,
    /// Their places in `all`, by id.
    by_id: BTreeMap<u32, usize>,
    /// `None` if there are none.
    texts: Option<AhoCorasick>,
}

impl Specials {
    /// These special tokens; those without a text are never found in one.
    pub fn new(all: Vec<Special>) -> Result<Specials, String> {
        // At one place the longest.
        let texts = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(all.iter().map(|special| &special.text))
            .map_err(|error| format!("the special tokens cannot be looked for: {error}"))?;
        let by_id = all.iter().enumerate().rev().map(|(at, special)| (special.id, at)).collect();
        Ok(Specials { all, by_id, texts: Some(texts) })
    }

    /// No special tokens.
    pub fn none() -> &'static Specials {
        static NONE: LazyLock<Specials> = LazyLock::new(Specials::default);
        &NONE
    }

    /// All of them, in their file's order.
    pub fn iter(&self) -> impl Iterator<Item = &Special> {
        self.all.iter()
    }

    /// The one with an id.
    pub fn of_id(&self, id: u32) -> Option<&Special> {
        self.all.get(*self.by_id.get(&id)?)
    }

    /// Those in a text, from its start to its end, without overlaps.
    pub fn in_text(&self, text: &str) -> impl Iterator<Item = (Range<usize>, &Special)> {
        let found = self.texts.iter().flat_map(move |texts| texts.find_iter(text));
        found
            .filter(|found| !found.is_empty())
            .filter_map(|found| Some((found.range(), self.all.get(found.pattern().as_usize())?)))
    }
}

/// A tokenizer.
pub trait Codec: Send + Sync {
    /// The tokens of a text. The spelling of a special token is plain text here.
    fn encode(&self, text: &str) -> Result<Vec<u32>, String>;

    /// The tokens of a text in which a chat template spelled special tokens, encoded as a whole by the tokenizer's
    /// library; `None` if its library does not look for them.
    fn encode_template(&self, text: &str) -> Option<Result<Vec<u32>, String>> {
        let _ = text;
        None
    }

    /// The bytes of tokens. Special tokens have none.
    fn decode(&self, ids: &[u32]) -> Result<Vec<u8>, String>;

    /// The token before each text, if training had one.
    fn before(&self) -> Option<u32>;

    /// The tokens that end a text.
    fn ends(&self) -> &[u32];

    /// Special tokens, which only a chat template may write.
    fn specials(&self) -> &Specials;

    /// A special token that the tokenizer's library would find in a text.
    fn spelled(&self, text: &str) -> Option<&Special> {
        self.specials().in_text(text).next().map(|(_, special)| special)
    }
}
