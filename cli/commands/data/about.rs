//! `canonc data about`: the contents of a prepared file, and how often a run reads it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use data::Split;
use data::text::index::TextIndex;
use data::text::tokenizer::{Info, Kind};
use data::text::{Shuffle, SourceEpochs, file, locked};
use lab::experiment::{DataSource, Experiment};
use lab::field::FieldValue;
use lab::lock::Lock;
use records::job;
use serde::Serialize;

use crate::fail::{Exit, Failure, Outcome, shown};
use crate::{documents, files, output, workspace};

/// Show the contents of a prepared file, and how often a lock's run reads each source
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc data about data/mix.index
  canonc data about data/mix.index --lock lockfiles/mix.lock
  canonc data about --lock lockfiles/mix.lock
  canonc data about data/mix.index --check

Schema of --json, one object on standard output:
  schema      \"canonc.data.about.v1\"
  identity    the digest of tokens, documents and tokenizer, which locks bind
  documents   the digest of the documents alone
  tokenizer   {kind, digest, vocab, bos, eos}
  sources     each {name, documents, tokens}, tokens without bos and eos
  reads       with --lock, each {source, documents, tokens, share, token_share, epochs} of the training split,
              with shares of the documents and of the tokens that are read; else null
  run         with --lock, {shuffle, documents, tokens, windows, tokens_read, passes, held_out: {documents,
              tokens, windows}}, held_out null if nothing is evaluated; else null")]
pub(super) struct AboutArgs {
    /// A file written by `canonc data prepare` [default: with --lock, data/NAME.index of its data.source]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// An experiment's lock, bound or not
    #[arg(long, value_name = "LOCK")]
    pub lock: Option<PathBuf>,
    /// Check every byte against its digest and every token against the vocabulary; with the tokenizer `bytes`, also
    /// every document
    #[arg(long)]
    pub check: bool,
    /// Print JSON (`--help` shows the schema)
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct About {
    schema: &'static str,
    identity: String,
    documents: String,
    tokenizer: Tokenizer,
    sources: Vec<Source>,
    reads: Option<Vec<Read>>,
    run: Option<Run>,
}

#[derive(Serialize)]
struct Tokenizer {
    kind: &'static str,
    digest: String,
    vocab: u32,
    bos: Option<u32>,
    eos: Option<u32>,
}

#[derive(Serialize)]
struct Source {
    name: String,
    documents: u64,
    tokens: u64,
}

#[derive(Serialize)]
struct Read {
    source: String,
    documents: u64,
    tokens: u64,
    share: f64,
    token_share: f64,
    epochs: f64,
}

/// Everything that a lock's run reads.
#[derive(Serialize)]
struct Run {
    shuffle: String,
    /// Documents of the training split.
    documents: u64,
    /// Tokens of one pass over them, including marks.
    tokens: u64,
    /// Windows that training reads.
    windows: u64,
    tokens_read: u64,
    passes: f64,
    held_out: Option<HeldOut>,
}

/// What evaluations read.
#[derive(Serialize)]
struct HeldOut {
    documents: u64,
    tokens: u64,
    windows: u64,
}

pub(super) fn about(args: &AboutArgs) -> Outcome {
    let experiment = args.lock.as_deref().map(experiment).transpose()?;
    let path = &prepared_file(args, experiment.as_ref())?;
    let index = file::load(path)?;
    if args.check {
        index.check()?;
    }
    let Info { kind, digest, vocab, bos, eos } = *index.tokenizer();
    let sources = index.sources().iter().map(|source| {
        Ok(Source {
            name: source.name.clone(),
            documents: u64::from(source.documents.end - source.documents.start),
            tokens: index.tokens_of(&source.documents)?,
        })
    });
    let mut about = About {
        schema: "canonc.data.about.v1",
        identity: index.identity().to_hex().to_string(),
        documents: index.documents_digest().to_hex().to_string(),
        tokenizer: Tokenizer {
            kind: kind.name(),
            digest: digest.to_hex().to_string(),
            vocab,
            bos,
            eos,
        },
        sources: sources.collect::<Result<_, Failure>>()?,
        reads: None,
        run: None,
    };
    let index = Arc::new(index);
    if let Some(experiment) = &experiment {
        if let DataSource::Text { tokenizer, .. } = &experiment.data.source
            && let Some(differs) = locked::mismatch(tokenizer, index.tokenizer())
        {
            return Err(Failure::bad_input(differs)
                .at(shown(path))
                .help("prepare them with the lock's tokenizer, or change the recipe"));
        }
        job::check_documents(experiment, &index)?;
        let (reads, run) = reads(experiment, &index)?;
        about.reads = Some(reads);
        about.run = Some(run);
    }
    if args.json {
        output::json(&about)?;
    } else {
        show(&about, args.check)?;
    }
    Ok(Exit::Fine)
}

/// The path of the prepared documents: that of the file, or that of the lock's data.
fn prepared_file(args: &AboutArgs, experiment: Option<&Experiment>) -> Result<PathBuf, Failure> {
    let path = match (&args.file, experiment) {
        (Some(path), _) => path.clone(),
        (None, Some(experiment)) => documents::usual_path(experiment)?,
        (None, None) => {
            return Err(Failure::bad_input("name a prepared file or a lock")
                .help("`canonc data about FILE`, or `canonc data about --lock LOCK`"));
        }
    };
    if !path.exists() {
        let error = std::io::Error::from(std::io::ErrorKind::NotFound);
        return Err(files::missing(&path, &error).help("make it with `canonc data prepare`"));
    }
    if workspace::is_lock(&path) {
        let name = shown(&path);
        return Err(Failure::bad_input(format!("`{name}` is a lock, not prepared documents"))
            .help(format!("`canonc data about --lock {name}` describes what it reads")));
    }
    Ok(path)
}

/// What a run reads, by source and in total.
fn reads(experiment: &Experiment, index: &Arc<TextIndex>) -> Result<(Vec<Read>, Run), Failure> {
    let windows = experiment
        .budget
        .steps
        .saturating_mul(experiment.batch.micro_batches)
        .saturating_mul(experiment.batch.sequences);
    let tokens_read = windows.saturating_mul(experiment.data.seq_len);
    let train = documents::windows(experiment, index.clone(), Split::Train)?;
    let read = |SourceEpochs { name, documents, tokens, share, token_share, epochs }| Read {
        source: name,
        documents,
        tokens,
        share,
        token_share,
        epochs,
    };
    let measured = !experiment.evaluation.metrics.is_empty();
    let held_out = match measured {
        false => None,
        true => Some(documents::windows(experiment, index.clone(), Split::HeldOut)?),
    };
    let shuffle = experiment.value("data.shuffle").map(FieldValue::plain).unwrap_or_default();
    let shuffle = match train.options().shuffle {
        Shuffle::Buffer { windows } => format!("{shuffle}, {windows} windows at a time"),
        Shuffle::Documents | Shuffle::Windows => shuffle,
    };
    let run = Run {
        shuffle,
        documents: train.documents(),
        tokens: train.tokens(),
        windows,
        tokens_read,
        passes: train.passes(tokens_read),
        held_out: held_out.map(|held_out| HeldOut {
            documents: held_out.documents(),
            tokens: held_out.tokens(),
            windows: experiment.evaluation.windows,
        }),
    };
    Ok((train.epochs(tokens_read).into_iter().map(read).collect(), run))
}

fn experiment(path: &Path) -> Result<Experiment, Failure> {
    let (lock, _) = workspace::read_lock(path)?;
    let experiment = match lock {
        Lock::Experiment(experiment) => Some(experiment),
        Lock::Comparison(comparison) => {
            comparison.arms.into_iter().next().map(|arm| arm.experiment)
        }
        Lock::Arch(_) => None,
    };
    experiment.ok_or_else(|| {
        Failure::bad_input(format!(
            "`{}` is the lock of an architecture, which reads no data",
            shown(path)
        ))
        .help("name the lock of an experiment: lockfiles/NAME.lock")
    })
}

fn show(about: &About, checked: bool) -> Result<(), Failure> {
    let About { schema: _, identity, documents, tokenizer, sources, reads, run } = about;
    let Tokenizer { kind, digest, vocab, bos, eos } = tokenizer;
    let id = |id: &Option<u32>| id.map_or("none".to_owned(), |id| id.to_string());
    let mut rows = vec![
        vec!["data".to_owned(), identity.clone()],
        vec!["documents".to_owned(), documents.clone()],
        vec!["tokenizer".to_owned(), format!("{kind} {digest}")],
        vec![
            "token ids".to_owned(),
            format!("{}, bos {}, eos {}", output::grouped(*vocab), id(bos), id(eos)),
        ],
    ];
    if checked {
        let bytes = kind == &Kind::Bytes.name();
        let result = match bytes {
            true => "every byte has its digest, and every document's tokens are its bytes",
            false => {
                "every byte has its digest, and every token id is in the vocabulary; only preparing the documents \
                 again shows whether the tokenizer made them"
            }
        };
        rows.push(vec!["checked".to_owned(), result.to_owned()]);
    }
    output::data(&output::table(&rows, &[], 0))?;
    let mut rows = vec![["source", "documents", "tokens"].map(str::to_owned).to_vec()];
    for Source { name, documents, tokens } in sources {
        rows.push(vec![name.clone(), output::grouped(*documents), output::grouped(*tokens)]);
    }
    output::data(&format!("\n{}", output::table(&rows, &[false, true, true], 0)))?;
    match (reads, run) {
        (Some(reads), Some(run)) => show_run(reads, run),
        (_, _) => Ok(()),
    }
}

/// Shows what a lock's run reads.
fn show_run(reads: &[Read], run: &Run) -> Result<(), Failure> {
    let head = [
        "a run reads",
        "documents",
        "tokens with bos and eos",
        "of documents",
        "of tokens",
        "epochs",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for Read { source, documents, tokens, share, token_share, epochs } in reads {
        rows.push(vec![
            source.clone(),
            output::grouped(*documents),
            output::grouped(*tokens),
            format!("{:.1}%", 100.0 * share),
            format!("{:.1}%", 100.0 * token_share),
            format!("{epochs:.3}"),
        ]);
    }
    let right = [false, true, true, true, true, true];
    output::data(&format!("\n{}", output::table(&rows, &right, 0)))?;
    let Run { shuffle, documents, tokens, windows, tokens_read, passes, held_out } = run;
    let counted = |count: u64, what: &str| output::counted(count, what);
    let mut rows = vec![
        vec![
            "training".to_owned(),
            format!(
                "{}, {} of a pass of {}: {passes:.3} passes",
                counted(*windows, "window"),
                counted(*tokens_read, "token"),
                counted(*tokens, "token")
            ),
        ],
        vec!["from".to_owned(), counted(*documents, "document")],
        vec!["shuffle".to_owned(), shuffle.clone()],
    ];
    if let Some(HeldOut { documents, tokens, windows }) = held_out {
        rows.push(vec![
            "held out".to_owned(),
            format!(
                "{}, {}; one evaluation reads {}",
                counted(*documents, "document"),
                counted(*tokens, "token"),
                counted(*windows, "window")
            ),
        ]);
    }
    output::data(&format!("\n{}", output::table(&rows, &[], 0)))
}
