//! What the server needs of a model and of its tokenizer.
//!
//! In: tokens. Out: logits, draws, text. Must stay true: the result for a sequence depends on that sequence alone.

/// How to choose the next token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// 0 takes the likeliest token.
    pub temperature: f64,
    /// Sample only among this many of the likeliest tokens.
    pub top_k: Option<usize>,
    /// Sample only among the likeliest tokens that have this probability together.
    pub top_p: Option<f64>,
    /// Key of the draws.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling { temperature: 1.0, top_k: None, top_p: None, seed: 0 }
    }
}

/// What may change the logits of a text before a token is drawn.
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
    /// Number of the last of them whose logits are wanted.
    pub logits: usize,
}

/// A model that is read on one thread. Errors are sentences for the person who asked.
pub trait Model {
    /// A sequence's state.
    type State;
    /// Logits of one or more positions.
    type Logits;

    /// Number of token ids.
    fn vocab(&self) -> usize;

    /// The most tokens of a piece.
    fn piece(&self) -> usize;

    /// The state before the first token.
    fn start(&self) -> Result<Self::State, String>;

    /// Advances several sequences; all states stay as they are if it fails. Returns the logits that each piece wants, if it
    /// wants any. They have the same bits whatever the other pieces are.
    fn advance(
        &self,
        pieces: &mut [Piece<'_, Self::State>],
    ) -> Result<Vec<Option<Self::Logits>>, String>;

    /// The logits of one of the positions whose logits were wanted, `vocab` of them.
    fn row(&self, logits: &Self::Logits, at: usize) -> Result<Vec<f64>, String>;

    /// The next token. `index`: the number of earlier draws of this sequence.
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

/// A tokenizer.
pub trait Codec: Send + Sync {
    /// The tokens of a text. A text that spells a special token is text.
    fn encode(&self, text: &str) -> Result<Vec<u32>, String>;

    /// The tokens of a text in which a chat template spelled special tokens, encoded as a whole by the tokenizer's
    /// library; `None` if its library does not look for them.
    fn encode_template(&self, text: &str) -> Option<Result<Vec<u32>, String>> {
        let _ = text;
        None
    }

    /// The bytes of tokens. Marks have none.
    fn decode(&self, ids: &[u32]) -> Result<Vec<u8>, String>;

    /// The token before each text, if training had one.
    fn before(&self) -> Option<u32>;

    /// The tokens that end a text.
    fn ends(&self) -> &[u32];

    /// Special tokens, which only a chat template may write.
    fn specials(&self) -> &[Special];

    /// A special token that a text spells as its library would find it.
    fn spelled(&self, text: &str) -> Option<&Special> {
        self.specials().iter().find(|special| text.contains(&special.text))
    }
}
