//! `canonc generate`: generates text with an arch and its weights.
//!
//! In: an arch, weights, a prompt. Out: tokens or their bytes on standard output, as they are generated. Must
//! stay true: the same request gives the same text on the same platform; text is tokenized as in
//! the lock's data.

use std::ops::ControlFlow;

use runtime::generate::{Request, Sampling, generate as run};
use serde::Serialize;

use crate::forward::{Ran, machine, one_arch, options, ran, weights};
use crate::prompts::Prompts;
use canonc::args::GenerateArgs;
use canonc::fail::{Exit, Failure, Outcome};
use canonc::load::Found;
use canonc::output;
use canonc::runs::{self, failure};

pub(crate) fn generate(args: &GenerateArgs) -> Outcome {
    let Found { compiled, data, .. } = one_arch(&args.file, args.arch.as_deref())?;
    let machine = machine(&args.machine)?;
    let vocab = compiled.graph.vocab;
    let (prompt, prompts) = match (&args.prompt, &args.prompt_tokens) {
        (Some(text), _) => {
            let prompts =
                Prompts::new(data.as_ref(), vocab, &args.prompts, "give `--prompt-tokens 1,2,3`")?;
            (prompts.tokens(text)?, Some(prompts))
        }
        (None, Some(tokens)) => (tokens.clone(), None),
        (None, None) => {
            return Err(Failure::bad_input("no prompt is given")
                .help("give `--prompt TEXT`, or `--prompt-tokens 1,2,3`"));
        }
    };
    let weights =
        weights(&compiled, &runs::weights(&args.file, args.weights.as_deref())?, machine)?;
    let request = Request {
        graph: &compiled.graph,
        weights: &weights,
        prompt: &prompt,
        max_tokens: args.max_tokens,
        sampling: Sampling { temperature: args.temperature, top_k: args.top_k, seed: args.seed },
        stop: prompts.as_ref().and_then(Prompts::stop),
        options: options(&args.machine),
        machine,
    };
    let mut ended = Ok(());
    let (mut tokens, mut written) = (Vec::new(), 0);
    let generated = run(&request, |token| {
        tokens.push(token);
        if args.json {
            return ControlFlow::Continue(());
        }
        let text = match &prompts {
            Some(prompts) => prompts.continuation(&prompt, &tokens).map(|bytes| {
                // Printed text is never retracted, and the next token may change the end of the text.
                let mut pending = bytes.get(written..).unwrap_or_default().to_vec();
                // An incomplete character, as some tokenizers write it.
                while pending.ends_with("\u{fffd}".as_bytes()) {
                    pending.truncate(pending.len() - '\u{fffd}'.len_utf8());
                }
                let before = pending.len();
                let text = whole_characters(&mut pending);
                written += before - pending.len();
                text
            }),
            None => Ok(format!("{}{token}", if tokens.len() == 1 { "" } else { " " })),
        };
        ended = text.and_then(|text| output::exact(&text));
        if ended.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })
    .map_err(failure)?;
    ended?;
    let bytes = match &prompts {
        Some(prompts) => Some(prompts.continuation(&prompt, &generated.tokens)?),
        None => None,
    };
    if args.json {
        output::json(&Report {
            schema: "canonc.generate.v1",
            tokens: &generated.tokens,
            text: bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            state_bytes: generated.state_bytes,
            kernels: ran(&generated.paths),
        })?;
        return Ok(Exit::Fine);
    }
    let rest = bytes.as_deref().and_then(|bytes| bytes.get(written..)).unwrap_or_default();
    output::exact(&(String::from_utf8_lossy(rest).into_owned() + "\n"))?;
    Ok(Exit::Fine)
}

/// The `--json` document; the schema is in `canonc generate --help`.
#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    tokens: &'a [i64],
    text: Option<String>,
    state_bytes: usize,
    kernels: Vec<Ran<'a>>,
}

/// Takes the complete characters from the front of `pending`; bytes that cannot become one are shown as �.
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
