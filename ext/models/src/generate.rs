//! `canonc generate`: generates text with an arch and its weights.

use std::ops::ControlFlow;

use runtime::generate::{Request, Sampling, generate as run};
use serde::Serialize;
use serve::model::Codec;
use serve::text::TextStream;

use crate::forward::{Ran, machine, options, ran, weights};
use crate::interactive;
use crate::open::{Asked, Described};
use crate::prompts::Prompts;
use cli::fail::{Exit, Failure, Outcome, shown};
use cli::output;
use commands::generate::GenerateArgs;

pub(crate) fn generate(args: &GenerateArgs) -> Outcome {
    if args.interactive {
        return interactive::interactive(args);
    }
    let machine = machine(&args.machine)?;
    let asked = Asked {
        model: &args.file,
        arch: args.arch.as_deref(),
        weights: args.weights.as_deref(),
        prompts: &args.prompts,
        reads_text: args.prompt.is_some(),
        instead: "give `--prompt-tokens 1,2,3`",
    };
    let Described { compiled, weights: path, text, longest, .. } = asked.describe()?;
    let prompts = args.prompt.as_ref().map(|_| text).transpose()?;
    let prompt = prompt_tokens(args, prompts.as_ref())?;
    let weights = weights(&compiled, &path, machine)?;
    let request = Request {
        graph: &compiled.graph,
        weights: &weights,
        prompt: &prompt,
        max_tokens: args.max_tokens,
        sampling: Sampling {
            temperature: args.temperature,
            top_k: args.top_k,
            top_p: args.top_p,
            seed: args.seed,
        },
        stop: prompts.as_ref().and_then(Prompts::stop),
        options: options(&args.machine),
        machine,
    };
    let mut ended = Ok(());
    let ids = |tokens: &[i64]| -> Vec<u32> {
        tokens.iter().filter_map(|id| u32::try_from(*id).ok()).collect()
    };
    let mut text = TextStream::after(&ids(&prompt));
    let undecoded = |why: String| Failure::bad_input(why);
    let mut count = 0;
    let ends = prompts.as_ref().map(Codec::ends).unwrap_or_default();
    let is_end = |token: i64| ends.iter().any(|end| i64::from(*end) == token);
    let mut generated = run(&request, |token| {
        // One of several end tokens; the first one is the request's.
        if is_end(token) {
            return ControlFlow::Break(());
        }
        count += 1;
        if args.json {
            return ControlFlow::Continue(());
        }
        let piece = match (&prompts, u32::try_from(token)) {
            (Some(prompts), Ok(id)) => text.push(prompts, id).map_err(undecoded),
            (_, _) => Ok(format!("{}{token}", if count == 1 { "" } else { " " })),
        };
        ended = piece.and_then(|piece| output::exact(&piece));
        if ended.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    ended?;
    if generated.tokens.last().is_some_and(|token| is_end(*token)) {
        generated.tokens.pop();
    }
    let beyond = too_long(prompt.len() + generated.tokens.len(), longest);
    if args.json {
        let bytes = match &prompts {
            Some(prompts) => Some(prompts.continuation(&prompt, &generated.tokens)?),
            None => None,
        };
        output::json(&Report {
            schema: "canonc.generate.v1",
            model: shown(&args.file),
            prompt: args.prompt.as_deref(),
            temperature: args.temperature,
            seed: args.seed,
            tokens: &generated.tokens,
            text: bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            state_bytes: generated.state_bytes,
            kernels: ran(&generated.paths),
        })?;
        beyond.iter().for_each(|warning| output::note(warning));
        return Ok(Exit::Fine);
    }
    let rest = match &prompts {
        Some(prompts) => text.finish(prompts).map_err(undecoded)?,
        None => String::new(),
    };
    output::exact(&(rest + "\n"))?;
    beyond.iter().for_each(|warning| output::note(warning));
    Ok(Exit::Fine)
}

fn prompt_tokens(args: &GenerateArgs, prompts: Option<&Prompts>) -> Result<Vec<i64>, Failure> {
    match (&args.prompt, prompts, &args.prompt_tokens) {
        (Some(text), Some(prompts), _) => {
            prompts.special_warning(text).iter().for_each(|warning| output::note(warning));
            prompts.tokens(text)
        }
        (_, _, Some(tokens)) => Ok(tokens.clone()),
        (_, _, None) => Err(Failure::bad_input("no prompt is given")
            .help("give `--prompt TEXT`, or `--prompt-tokens 1,2,3`")),
    }
}

/// A warning for a text that is longer than the model is made for.
fn too_long(length: usize, longest: Option<usize>) -> Option<String> {
    let longest = longest.filter(|longest| length > *longest)?;
    let tokens = output::counted(longest, "token");
    Some(format!(
        "warning: the text has {length} tokens, more than the {tokens} that this model is made for"
    ))
}

/// The `--json` document; the schema is in `canonc generate --help`.
#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    model: String,
    prompt: Option<&'a str>,
    temperature: f64,
    seed: u64,
    tokens: &'a [i64],
    text: Option<String>,
    state_bytes: usize,
    kernels: Vec<Ran<'a>>,
}
