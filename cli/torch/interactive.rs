//! `canonc generate --interactive`: a prompt a line, answered as it is written.
//!
//! In: lines of standard input. Out: on standard output each line's continuation. Must stay true: a character is written
//! when it is complete and never taken back; the same line gives the same text as `--prompt`, and an empty line goes on
//! where the last text stopped.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use runtime::execute::Carried;
use serve::model::{Codec, Model as _, Sampling};
use serve::text::TextStream;

use crate::open::Asked;
use crate::prompts::Prompts;
use crate::served::Decoder;
use canonc::args::GenerateArgs;
use canonc::fail::{Exit, Failure, Outcome, reason};
use canonc::output;

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
    };
    let described = asked.describe()?;
    let decoder = Decoder::new(&described, &args.machine)?;
    let prompts = described.text.map_err(|why| {
        Failure::bad_input(why).help("use `--prompt-tokens 1,2,3` without --interactive")
    })?;
    let sampling = Sampling {
        temperature: args.temperature,
        top_k: args.top_k,
        top_p: args.top_p,
        seed: args.seed,
    };
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if is_terminal {
        output::note("write a prompt; an empty line continues the last text; Ctrl-D ends");
    }
    let mut text: Option<Text> = None;
    let mut line = String::new();
    let mut warned = false;
    loop {
        if is_terminal {
            output::exact("> ")?;
        }
        line.clear();
        let read = std::io::stdin().lock().read_line(&mut line);
        match read {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => {
                return Err(Failure::bad_input(format!(
                    "standard input cannot be read: {}",
                    reason(&error)
                )));
            }
        }
        let prompt = line.trim_end_matches(['\n', '\r']);
        if let Some(warning) = prompts.spelled(prompt).filter(|_| !warned) {
            output::note(&warning);
            warned = true;
        }
        if !prompt.is_empty() || text.is_none() {
            match begin(&decoder, &prompts, prompt) {
                Ok(begun) => text = Some(begun),
                // The next line may be better.
                Err(failure) if is_terminal => {
                    output::failure(&failure);
                    continue;
                }
                Err(failure) => return Err(failure),
            }
        }
        if let Some(text) = &mut text {
            go_on(&decoder, &prompts, text, &sampling, args.max_tokens)?;
        }
        output::exact("\n")?;
    }
    if is_terminal {
        output::exact("\n")?;
    }
    Ok(Exit::Fine)
}

fn begin(decoder: &Decoder, prompts: &Prompts, prompt: &str) -> Result<Text, Failure> {
    let ids: Vec<u32> =
        prompts.tokens(prompt)?.into_iter().filter_map(|id| u32::try_from(id).ok()).collect();
    let mut state = decoder.start().map_err(Failure::machine)?;
    let mut logits = Vec::new();
    for piece in ids.chunks(decoder.piece()) {
        let fed = decoder.feed(&mut state, piece).map_err(Failure::machine)?;
        logits = decoder.row(&fed, piece.len() - 1).map_err(Failure::machine)?;
    }
    Ok(Text { state, logits, stream: TextStream::after(&ids), drawn: 0 })
}

fn go_on(
    decoder: &Decoder,
    prompts: &Prompts,
    text: &mut Text,
    sampling: &Sampling,
    most: usize,
) -> Result<(), Failure> {
    let broken = |why: String| Failure { exit: Exit::Finding, ..Failure::bad_input(why) };
    for _ in 0..most {
        let token = decoder.choose(&text.logits, sampling, text.drawn).map_err(broken)?;
        text.drawn += 1;
        let ends = prompts.ends().contains(&token);
        if !ends {
            let piece = text.stream.push(prompts, token).map_err(broken)?;
            output::exact(&piece)?;
            std::io::stdout().flush().ok();
        }
        let fed = decoder.feed(&mut text.state, &[token]).map_err(Failure::machine)?;
        text.logits = decoder.row(&fed, 0).map_err(Failure::machine)?;
        if ends {
            break;
        }
    }
    Ok(())
}
