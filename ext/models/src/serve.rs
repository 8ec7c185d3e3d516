//! `canonc serve`: a model over HTTP, with OpenAI's API.
//!
//! The token is never an argument, which other users of the machine could read.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serve::engine::Limits;
use serve::model::{Codec, Model as _};
use serve::server::{self, Setup};

use crate::open::{Asked, Described};
use crate::prompts::Ids;
use crate::served::{Decoder, chat_template};
use cli::fail::{Exit, Failure, Outcome, reason, shown};
use cli::{files, output, signals};
use commands::serve::ServeArgs;

/// The variable with the token.
const TOKEN: &str = "CANONC_SERVE_TOKEN";

/// Most tokens of a prompt with its answer, if nothing says how many the model takes.
const CONTEXT: usize = 4096;

pub(crate) fn serve(args: &ServeArgs) -> Outcome {
    let token = token(args.token_file.as_deref())?;
    // Before the model, which can take long to read.
    let address = SocketAddr::new(args.host, args.port);
    let listener = TcpListener::bind(address).map_err(|error| cannot_listen(address, &error))?;
    let end = signals::stop_on_signals()?;
    let asked = Asked {
        model: &args.model,
        arch: args.arch.as_deref(),
        weights: args.weights.as_deref(),
        prompts: &args.prompts,
        reads_text: true,
        instead: "give token ids",
    };
    let described = asked.describe()?;
    let decoder = Decoder::new(&described, &args.machine)?;
    let Described { name, text, template, marks, longest, .. } = described;
    let context = args.context.or(longest).unwrap_or(CONTEXT);
    if let Some(longest) = longest.filter(|longest| context > *longest) {
        let tokens = output::counted(longest, "token");
        output::note(&format!(
            "warning: --context {context} is more than the {tokens} that this model is made for"
        ));
    }
    let (found, template) = chat_template(args.chat_template.as_deref(), template, marks)?;
    let (codec, no_text): (Arc<dyn Codec>, Option<String>) = match text {
        Ok(prompts) => (Arc::new(prompts), None),
        Err(failure) => {
            let why = failure.message.unwrap_or_default();
            output::note(&format!("warning: requests need token ids, not text: {why}"));
            (Arc::new(Ids), Some(format!("{why}; give a list of token ids as `prompt`")))
        }
    };
    let name = args.name.clone().unwrap_or(name);
    let address = listener.local_addr().map_err(|error| cannot_listen(address, &error))?;
    if !address.ip().is_loopback() && token.is_none() {
        output::note(&format!(
            "anyone who reaches {address} can use this model; set {TOKEN} or --token-file to ask for a token"
        ));
    }
    output::data(&format!("serving `{name}` at http://{address}/v1\n"))?;
    output::detail(|| format!("vocabulary of {}, context of {context}", decoder.vocab()));
    output::detail(|| match (&found, &no_text) {
        (_, Some(why)) => format!("no text: {why}"),
        (Some(path), None) => format!("chat template of {}", shown(path)),
        (None, None) => "chat template: lines of `ROLE: TEXT`".to_owned(),
    });
    let setup = Setup {
        name,
        context,
        limits: Limits { rows: args.rows, queue: args.queue },
        body: args.max_body,
        connections: args.connections,
        timeout: Duration::from_secs(args.timeout),
        grace: Duration::from_secs(args.grace),
        token,
        origins: args.allow_origins.clone(),
        template,
        codec,
        no_text,
        memory: records::platform::resident_memory,
        seed: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64),
    };
    server::serve(listener, &decoder, setup, &end)
        .map_err(|error| Failure::machine(format!("the server cannot run: {}", reason(&error))))?;
    output::note("ended");
    Ok(Exit::Fine)
}

fn cannot_listen(address: SocketAddr, error: &std::io::Error) -> Failure {
    let port = address.port();
    let failure = |why: &str| Failure::machine(format!("cannot listen at {address}: {why}"));
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "`ErrorKind` is an open set; other errors describe themselves"
    )]
    match error.kind() {
        std::io::ErrorKind::AddrInUse => failure(&format!("port {port} is in use"))
            .help("take a free one with `--port 0`, or end the other program"),
        std::io::ErrorKind::AddrNotAvailable => {
            failure("this machine does not have that address").help("use `--host 127.0.0.1`")
        }
        std::io::ErrorKind::PermissionDenied => {
            failure("permission denied").help("use a port above 1023")
        }
        _ => failure(&reason(error)),
    }
}

/// The token that requests must have.
fn token(file: Option<&Path>) -> Result<Option<String>, Failure> {
    let (token, place) = match file {
        Some(path) => {
            let text = disk::read_text(path, disk::SMALL);
            (text.map_err(|error| files::missing(path, &error))?, shown(path))
        }
        None => match std::env::var(TOKEN) {
            Ok(text) => (text, TOKEN.to_owned()),
            Err(std::env::VarError::NotPresent) => return Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => {
                return Err(Failure::bad_input(format!("{TOKEN} is not text")));
            }
        },
    };
    let token = token.trim();
    let is_plain = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    match is_plain {
        true => Ok(Some(token.to_owned())),
        false => Err(Failure::bad_input(format!("the token in `{place}` is empty, or has blanks or other characters that a header cannot have"))
            .help("write one line, such as the output of `openssl rand -hex 32`")),
    }
}
