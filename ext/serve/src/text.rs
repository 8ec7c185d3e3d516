//! Text from tokens, as they are drawn, up to the first stop string.
//!
//! The pieces together are the text of all tokens, and no piece is ever taken back: a character appears when its last
//! byte does, bytes that can never become a character are shown as � once, and text at or after a stop string never
//! appears.

use crate::model::Codec;

/// Maximum number of � at the end of a text that later bytes can still change: a character has at most four bytes.
const OPEN: usize = 3;

/// Maximum number of tokens kept for the text of the next one, if the last ones have no text.
const KEPT: usize = 16;

/// The text of tokens so far.
#[derive(Clone, Debug, Default)]
pub struct TextStream {
    /// The last tokens: those that the next token's text may depend on.
    window: Vec<u32>,
    /// Tokens at the front of the window that have their whole text.
    finished: usize,
    /// Bytes of the window's text, after those of its finished tokens, that have been returned.
    sent: usize,
}

impl TextStream {
    /// The text that follows a prompt.
    pub fn after(prompt: &[u32]) -> TextStream {
        // A token's text can depend on the one before it, and a character on three.
        let window = prompt.get(prompt.len().saturating_sub(4)..).unwrap_or_default().to_vec();
        TextStream { finished: window.len(), window, sent: 0 }
    }

    /// Adds a token; returns the characters that are complete now.
    pub fn push(&mut self, codec: &dyn Codec, token: u32) -> Result<String, String> {
        self.window.push(token);
        let bytes = self.bytes(codec)?;
        if bytes.is_empty() {
            // A special token, or a blank that only the first token of a text loses: earlier tokens still matter.
            self.window.drain(..self.window.len().saturating_sub(KEPT));
            self.finished = self.window.len();
            return Ok(String::new());
        }
        let pending = bytes.get(self.sent..).unwrap_or_default();
        let end = complete(pending);
        let text = String::from_utf8_lossy(pending.get(..end).unwrap_or_default()).into_owned();
        if end == pending.len() {
            // Keep the last tokens: the next one's text may depend on them.
            self.window.drain(..self.finished);
            self.finished = self.window.len();
            self.sent = 0;
        } else {
            self.sent += end;
        }
        Ok(text)
    }

    /// The rest: an incomplete character at the end.
    pub fn finish(&mut self, codec: &dyn Codec) -> Result<String, String> {
        let bytes = self.bytes(codec)?;
        let rest = bytes.get(self.sent..).unwrap_or_default();
        let text = String::from_utf8_lossy(rest).into_owned();
        self.window.clear();
        self.finished = 0;
        self.sent = 0;
        Ok(text)
    }

    /// Bytes that the tokens after the finished ones add.
    fn bytes(&self, codec: &dyn Codec) -> Result<Vec<u8>, String> {
        let (finished, new) = self.window.split_at(self.finished.min(self.window.len()));
        let before = codec.decode(finished)?;
        let all = codec.decode(&self.window)?;
        match all.strip_prefix(before.as_slice()) {
            Some(rest) => Ok(rest.to_vec()),
            // The tokenizer writes the earlier ones differently now. They stay as they were.
            None => codec.decode(new),
        }
    }
}

/// How many of the bytes no later byte can change.
fn complete(bytes: &[u8]) -> usize {
    let mut end = bytes.len();
    // At most the last three bytes are an incomplete character.
    for first in (bytes.len().saturating_sub(3)..bytes.len()).rev() {
        let rest = bytes.get(first..).unwrap_or_default();
        if let Err(error) = std::str::from_utf8(rest)
            && error.valid_up_to() == 0
            && error.error_len().is_none()
        {
            end = first;
        }
    }
    // Some tokenizers write an incomplete character as one � for each byte.
    let mark = char::REPLACEMENT_CHARACTER.to_string();
    for _ in 0..OPEN {
        match bytes.get(..end).and_then(|bytes| bytes.strip_suffix(mark.as_bytes())) {
            Some(rest) => end = rest.len(),
            None => break,
        }
    }
    end
}

/// Text up to the first stop string.
#[derive(Clone, Debug, Default)]
pub struct StopStrings {
    stops: Vec<String>,
    /// Text that may be the beginning of a stop string.
    held: String,
    /// Whether a stop string was found.
    pub found: bool,
}

impl StopStrings {
    /// Stop strings; empty ones stop nothing.
    pub fn new(stops: Vec<String>) -> StopStrings {
        let stops = stops.into_iter().filter(|stop| !stop.is_empty()).collect();
        StopStrings { stops, ..StopStrings::default() }
    }

    /// Adds text; returns what is certainly before a stop string.
    pub fn push(&mut self, text: &str) -> String {
        if self.found {
            return String::new();
        }
        self.held.push_str(text);
        // The one that ends first, so that the cut does not depend on how the text arrives.
        let matches = self.stops.iter().filter_map(|stop| {
            let at = self.held.find(stop.as_str())?;
            Some((at + stop.len(), at))
        });
        if let Some((_, at)) = matches.min() {
            self.found = true;
            self.held.truncate(at);
            return std::mem::take(&mut self.held);
        }
        let held = self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - held);
        std::mem::replace(&mut self.held, rest)
    }

    /// The text that was held back, at the end of a text without a stop string.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Length of the longest end of `text` that is a beginning of `stop`.
fn overlap(text: &str, stop: &str) -> usize {
    let lengths = stop.char_indices().map(|(at, _)| at).rev();
    lengths.into_iter().find(|length| text.ends_with(&stop[..*length])).unwrap_or(0)
}
