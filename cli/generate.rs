//! `canonc generate`: text out of an arch and its weights.
//!
//! In: an arch, weights, a prompt. Out: tokens or their bytes on standard output, as they come. Must
//! stay true: the same request gives the same text on the same platform; text is only for archs of
//! the byte tokenizer.

use std::ops::ControlFlow;

use runtime::data::text::{BOS, EOS};
use runtime::generate::{Request, Sampling, generate as run};
use serde::Serialize;

use crate::args::GenerateArgs;
use crate::fail::{Exit, Failure, Outcome};
use crate::forward::{Ran, machine, one_arch, ran, weights};
use crate::load::Found;
use crate::output;
use crate::runs::{self, failure};

/// Bytes, and the marks of a document's ends.
const BYTE_VOCAB: i64 = 258;

pub(crate) fn generate(args: &GenerateArgs) -> Outcome {
    let Found { compiled, train: _ } = one_arch(&args.file, args.arch.as_deref())?;
    let machine = machine(&args.machine)?;
    let vocab = compiled.graph.vocab;
    let (prompt, as_text) = match (&args.prompt, &args.prompt_tokens) {
        (Some(text), _) => (bytes_of(text, vocab)?, true),
        (None, Some(tokens)) => (tokens.clone(), false),
        (None, None) => {
            return Err(Failure::bad_input("no prompt is given")
                .help("give `--prompt TEXT`, or `--prompt-tokens 1,2,3`"));
        }
    };
    let weights = weights(&compiled, &runs::weights(&args.file, args.weights.as_deref())?, machine)?;
    let request = Request {
        graph: &compiled.graph,
        weights: &weights,
        prompt: &prompt,
        max_tokens: args.max_tokens,
        sampling: Sampling { temperature: args.temperature, top_k: args.top_k, seed: args.seed },
        stop: as_text.then_some(i64::from(EOS)),
        machine,
    };
    let mut ended = Ok(());
    let mut pending = Vec::new();
    let mut first = true;
    let generated = run(&request, |token| {
        if args.json {
            return ControlFlow::Continue(());
        }
        let text = match as_text {
            true => {
                pending.extend(u8::try_from(token));
                whole_characters(&mut pending)
            }
            false => format!("{}{token}", if first { "" } else { " " }),
        };
        first = false;
        ended = output::exact(&text);
        if ended.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })
    .map_err(failure)?;
    ended?;
    if args.json {
        let bytes: Vec<u8> =
            generated.tokens.iter().filter_map(|token| u8::try_from(*token).ok()).collect();
        output::json(&Report {
            schema: "canonc.generate.v1",
            tokens: &generated.tokens,
            text: as_text.then(|| String::from_utf8_lossy(&bytes).into_owned()),
            state_bytes: generated.state_bytes,
            kernels: ran(&generated.paths),
        })?;
        return Ok(Exit::Fine);
    }
    output::exact(&(String::from_utf8_lossy(&pending).into_owned() + "\n"))?;
    Ok(Exit::Fine)
}

/// What `--json` says; the schema is in `canonc generate --help`.
#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    tokens: &'a [i64],
    text: Option<String>,
    state_bytes: usize,
    kernels: Vec<Ran<'a>>,
}

/// A document's beginning, as the byte tokenizer has it.
fn bytes_of(text: &str, vocab: i64) -> Result<Vec<i64>, Failure> {
    if vocab != BYTE_VOCAB {
        return Err(Failure::bad_input(format!(
            "a text prompt needs the byte tokenizer's vocabulary of {BYTE_VOCAB}, and this arch has {vocab}"
        ))
        .help("give `--prompt-tokens 1,2,3`"));
    }
    let bytes = text.bytes().map(i64::from);
    Ok([i64::from(BOS)].into_iter().chain(bytes).collect())
}

/// The characters that are whole so far, taken from the front; what can become none is shown as �.
fn whole_characters(pending: &mut Vec<u8>) -> String {
    match std::str::from_utf8(pending) {
        Ok(text) => {
            let text = text.to_owned();
            pending.clear();
            text
        }
        // More bytes may complete the last character.
        Err(error) if error.error_len().is_none() => {
            let rest = pending.split_off(error.valid_up_to());
            let text = String::from_utf8_lossy(pending).into_owned();
            *pending = rest;
            text
        }
        Err(_) => {
            let text = String::from_utf8_lossy(pending).into_owned();
            pending.clear();
            text
        }
    }
}
