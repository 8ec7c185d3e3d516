//! `canonc generate --interactive`: a prompt or a message a line, answered as it is written.
//!
//! A character is written when it is complete and never taken back. The same line gives the same text as `--prompt`,
//! and the same messages give the same answer as `canonc serve` with the same seed.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use runtime::execute::Carried;
use serve::chat::{Conversation, Template, message};
use serve::model::{Codec, Model as _, Piece, Sampling};
use serve::text::{StopStrings, TextStream};

use crate::open::{Asked, Described};
use crate::prompts::Prompts;
use crate::served::{Decoder, chat_template};
use cli::fail::{Exit, Failure, Outcome, reason};
use cli::output;
use commands::generate::GenerateArgs;

/// A text in progress.
struct Text {
    state: Carried,
    logits: Vec<f64>,
    stream: TextStream,
    drawn: u64,
}

pub(crate) fn interactive(args: &GenerateArgs) -> Outcome {
    let asked = Asked {
        model: &args.file,
        arch: args.arch.as_deref(),
        weights: args.weights.as_deref(),
        prompts: &args.prompts,
        reads_text: true,
        instead: "use `--prompt-tokens 1,2,3` without --interactive",
    };
    let described = asked.describe()?;
    let decoder = Decoder::new(&described, &args.machine)?;
    let Described { text, template, marks, .. } = described;
    let prompts = text?;
    let sampling = Sampling {
        temperature: args.temperature,
        top_k: args.top_k,
        top_p: args.top_p,
        seed: args.seed,
    };
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let with = With { decoder, prompts, sampling, most: args.max_tokens, is_terminal };
    match args.chat {
        true => {
            let given = args.chat_template.as_deref();
            with.conversations(&chat_template(given, template, marks)?.1)?;
        }
        false => with.texts()?,
    }
    if is_terminal {
        output::exact("\n")?;
    }
    Ok(Exit::Fine)
}

/// The logits after the last of these tokens.
fn feed(decoder: &Decoder, state: &mut Carried, tokens: &[u32]) -> Result<Vec<f64>, Failure> {
    let fed =
        decoder.advance(&mut [Piece { state, tokens, logits: 1 }]).map_err(Failure::machine)?;
    match fed.into_iter().next().flatten() {
        Some(logits) => decoder.row(&logits, 0).map_err(Failure::machine),
        None => Err(Failure::machine("the model gave no logits")),
    }
}

/// A model, and how it continues texts.
struct With {
    decoder: Decoder,
    prompts: Prompts,
    sampling: Sampling,
    most: usize,
    is_terminal: bool,
}

impl With {
    /// Each line is a prompt.
    fn texts(&self) -> Result<(), Failure> {
        self.note("write a prompt; an empty line continues the last text; Ctrl-D ends");
        let mut text: Option<Text> = None;
        let mut warned = false;
        while let Some(line) = self.line()? {
            if let Some(warning) = self.prompts.special_warning(&line).filter(|_| !warned) {
                output::note(&warning);
                warned = true;
            }
            if !line.is_empty() || text.is_none() {
                let tokens = self.prompts.tokens(&line);
                let ids = tokens.map(|ids| ids.into_iter().filter_map(|id| u32::try_from(id).ok()));
                match ids.and_then(|ids| self.begin(&ids.collect::<Vec<_>>())) {
                    Ok(begun) => text = Some(begun),
                    Err(failure) => {
                        self.refuse(failure)?;
                        continue;
                    }
                }
            }
            if let Some(text) = &mut text {
                self.go_on(text, &mut StopStrings::default())?;
            }
            output::exact("\n")?;
        }
        Ok(())
    }

    /// Each line is a message, which the model answers.
    fn conversations(&self, template: &Template) -> Result<(), Failure> {
        self.note("write a message; an empty line begins a new conversation; Ctrl-D ends");
        let mut messages = Vec::new();
        while let Some(line) = self.line()? {
            if line.is_empty() {
                messages.clear();
                continue;
            }
            messages.push(message("user", &line));
            let text = template.render(&Conversation::new(messages.clone()), &self.prompts);
            let ids = text.and_then(|text| template.tokens(&text, &self.prompts));
            let begun = ids.map_err(|error| Failure::bad_input(error.message));
            let mut text = match begun.and_then(|ids| self.begin(&ids)) {
                Ok(begun) => begun,
                Err(failure) => {
                    self.refuse(failure)?;
                    messages.pop();
                    continue;
                }
            };
            let mut stops = StopStrings::new(template.stops());
            let mut content = self.go_on(&mut text, &mut stops)?;
            if !stops.found {
                let rest = text.stream.finish(&self.prompts).map_err(broken)?;
                let rest = stops.push(&rest) + &stops.finish();
                output::exact(&rest)?;
                content += &rest;
            }
            messages.push(message("assistant", &content));
            output::exact("\n")?;
        }
        Ok(())
    }

    fn note(&self, text: &str) {
        if self.is_terminal {
            output::note(text);
        }
    }

    /// The next line that is typed in; `None` at the end.
    fn line(&self) -> Result<Option<String>, Failure> {
        if self.is_terminal {
            output::exact("> ")?;
        }
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line).map_err(|error| {
            Failure::bad_input(format!("standard input cannot be read: {}", reason(&error)))
        })?;
        Ok((read > 0).then(|| line.trim_end_matches(['\n', '\r']).to_owned()))
    }

    /// A line that cannot be continued: in a terminal, the next one may be better.
    fn refuse(&self, failure: Failure) -> Result<(), Failure> {
        if !self.is_terminal {
            return Err(failure);
        }
        output::failure(&failure);
        Ok(())
    }

    fn begin(&self, ids: &[u32]) -> Result<Text, Failure> {
        let decoder = &self.decoder;
        let mut state = decoder.start().map_err(Failure::machine)?;
        let mut logits = Vec::new();
        for piece in ids.chunks(decoder.piece()) {
            logits = feed(decoder, &mut state, piece)?;
        }
        Ok(Text { state, logits, stream: TextStream::after(ids), drawn: 0 })
    }

    /// Continues a text up to its end, a stop string or the maximum; returns what was written.
    fn go_on(&self, text: &mut Text, stops: &mut StopStrings) -> Result<String, Failure> {
        let With { decoder, prompts, .. } = self;
        let mut written = String::new();
        for _ in 0..self.most {
            let token = decoder.choose(&text.logits, &self.sampling, text.drawn).map_err(broken)?;
            text.drawn += 1;
            let ends = prompts.ends().contains(&token);
            if !ends {
                let piece = text.stream.push(prompts, token).map_err(broken)?;
                let piece = stops.push(&piece);
                output::exact(&piece)?;
                std::io::stdout().flush().ok();
                written += &piece;
            }
            if stops.found {
                break;
            }
            text.logits = feed(decoder, &mut text.state, &[token])?;
            if ends {
                break;
            }
        }
        Ok(written)
    }
}

fn broken(why: String) -> Failure {
    Failure::finding(why)
}
