//! A model that continues texts, for `canonc serve` and `canonc generate --interactive`.
//!
//! Several sequences at a time have the bits of each one alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use compiler::plan::Stream;
use compiler::plans;
use runtime::Tensor;
use runtime::execute::{self, Carried, ExecuteError, Streamer};
use runtime::generate::{self, PREFILL, draw};
use runtime::weights::Weights;
use serve::chat::Template;
use serve::model::{Model, Piece, Sampling};

use crate::forward::{machine, options, weights};
use crate::open::Described;
use cli::fail::{Failure, shown};
use cli::files;
use cli::options::MachineArgs;

/// The chat template to use, and where it was found: the given file, the model's own, or lines of `ROLE: TEXT`.
pub(crate) fn chat_template(
    given: Option<&Path>,
    own: Option<(PathBuf, String)>,
    marks: BTreeMap<String, String>,
) -> Result<(Option<PathBuf>, Template), Failure> {
    let (path, text) = match (given, own) {
        (Some(path), _) => {
            let text = disk::read_text(path, disk::TEXT);
            (path.to_owned(), text.map_err(|error| files::missing(path, &error))?)
        }
        (None, Some(own)) => own,
        (None, None) => return Ok((None, Template::plain())),
    };
    let template = Template::new(&text, marks).map_err(|why| {
        let help = "name another with --chat-template FILE";
        Failure::bad_input(why).help(help).at(shown(&path))
    })?;
    Ok((Some(path), template))
}

/// An arch with its weights, bound to a machine.
#[derive(Debug)]
pub(crate) struct Decoder {
    streamer: Streamer,
    weights: Weights,
    vocab: i64,
}

impl Decoder {
    /// Reads the weights.
    pub(crate) fn new(described: &Described, args: &MachineArgs) -> Result<Decoder, Failure> {
        let Described { compiled, weights: path, .. } = described;
        let machine = machine(args)?;
        let stream = Stream { state_in: true, state_out: true };
        let plan = plans::forward(&compiled.graph, stream, options(args));
        let weights = weights(compiled, path, machine)?;
        let broken = |error: ExecuteError| Failure::machine(error.to_string());
        let weights = weights.on(machine.device, machine.kind).map_err(broken)?;
        let streamer = Streamer::new(plan, machine).map_err(broken)?;
        Ok(Decoder { streamer, weights, vocab: compiled.graph.vocab })
    }
}

impl Model for Decoder {
    type State = Carried;
    /// [1, positions, vocab]
    type Logits = Tensor;

    fn vocab(&self) -> usize {
        usize::try_from(self.vocab).unwrap_or(0)
    }

    fn piece(&self) -> usize {
        PREFILL
    }

    fn start(&self) -> Result<Carried, String> {
        self.streamer.start(1).map_err(|error| error.to_string())
    }

    fn advance(&self, pieces: &mut [Piece<'_, Carried>]) -> Result<Vec<Option<Tensor>>, String> {
        let ids =
            |piece: &Piece<'_, Carried>| piece.tokens.iter().copied().map(i64::from).collect();
        let tokens: Vec<Vec<i64>> = pieces.iter().map(ids).collect();
        let next = |(piece, tokens)| {
            let Piece { state, tokens: _, logits }: &Piece<'_, Carried> = piece;
            execute::Piece { tokens, state, logits: *logits }
        };
        let next: Vec<execute::Piece<'_>> =
            pieces.iter().zip(tokens.iter().map(Vec::as_slice)).map(next).collect();
        let after = self.streamer.forward_each(&self.weights, &next);
        let after = after.map_err(|error| error.to_string())?;
        let replace = |(piece, (logits, state)): (&mut Piece<'_, Carried>, (Option<Tensor>, _))| {
            *piece.state = state;
            logits
        };
        Ok(pieces.iter_mut().zip(after).map(replace).collect())
    }

    fn row(&self, logits: &Tensor, at: usize) -> Result<Vec<f64>, String> {
        runtime::decode::numbers(logits, at).map_err(|error| error.to_string())
    }

    fn choose(&self, logits: &[f64], sampling: &Sampling, index: u64) -> Result<u32, String> {
        let Sampling { temperature, top_k, top_p, seed } = *sampling;
        let sampling = generate::Sampling { temperature, top_k, top_p, seed };
        let token = draw(logits, sampling, index).map_err(|error| error.message)?;
        u32::try_from(token).map_err(|_| format!("the token {token} is not one of the vocabulary"))
    }
}
