//! `canonc data about`: what a prepared file holds, and how often a run reads it.
//!
//! In: a prepared file, perhaps a lock. Out: sources, documents, tokens, tokenizer, on standard output; with a lock,
//! epochs of each source. Must stay true: what is read is what training would read, by the same windows.

use std::sync::Arc;

use compiler::lock::{DataSource, Experiment, Lock};
use runtime::data::text::tokenizer::Info;
use runtime::data::text::{SourceEpochs, file, locked};
use serde::Serialize;

use super::failure;
use crate::args::AboutArgs;
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::{bind, files, locks, output};

#[derive(Serialize)]
struct About {
    schema: &'static str,
    identity: String,
    tokenizer: Tokenizer,
    sources: Vec<Source>,
    reads: Option<Vec<Read>>,
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
    epochs: f64,
}

pub(super) fn about(args: &AboutArgs) -> Outcome {
    let AboutArgs { file: path, lock, check, json } = args;
    if !path.exists() {
        let error = std::io::Error::from(std::io::ErrorKind::NotFound);
        return Err(files::missing(path, &error).help("`canonc data prepare` makes such a file"));
    }
    let index = file::load(path).map_err(failure)?;
    if *check {
        index.check().map_err(failure)?;
    }
    let Info { kind, digest, vocab, bos, eos } = *index.tokenizer();
    let sources = index.sources().iter().map(|source| Source {
        name: source.name.clone(),
        documents: u64::from(source.documents.end - source.documents.start),
        tokens: index.tokens_of(&source.documents),
    });
    let mut about = About {
        schema: "canonc.data.about.v1",
        identity: index.identity().to_hex().to_string(),
        tokenizer: Tokenizer {
            kind: kind.name(),
            digest: digest.to_hex().to_string(),
            vocab,
            bos,
            eos,
        },
        sources: sources.collect(),
        reads: None,
    };
    let index = Arc::new(index);
    if let Some(lock) = lock {
        let experiment = experiment(lock)?;
        if let DataSource::Text { tokenizer, .. } = &experiment.data.source
            && let Some(differs) = locked::mismatch(tokenizer, index.tokenizer())
        {
            return Err(Failure::bad_input(differs)
                .at(shown(path))
                .help("prepare them with the lock's tokenizer, or change the recipe"));
        }
        let tokens = experiment.budget.steps.saturating_mul(experiment.batch.tokens_per_step);
        let epochs = bind::windows(&experiment, index)?.epochs(tokens);
        let read = |SourceEpochs { name, documents, tokens, share, epochs }| Read {
            source: name,
            documents,
            tokens,
            share,
            epochs,
        };
        about.reads = Some(epochs.into_iter().map(read).collect());
    }
    if *json {
        output::json(&about)?;
    } else {
        show(&about, *check)?;
    }
    Ok(Exit::Fine)
}

fn experiment(path: &std::path::Path) -> Result<Experiment, Failure> {
    let (lock, _) = locks::read(path)?;
    let found = match lock {
        Lock::Experiment(experiment) => Some(experiment),
        Lock::Comparison(comparison) => {
            comparison.arms.into_iter().next().map(|arm| arm.experiment)
        }
        Lock::Arch(_) => None,
    };
    found.ok_or_else(|| {
        Failure::bad_input(format!("`{}` is of an architecture, which reads no data", shown(path)))
            .help("name the lock of an experiment: lockfiles/NAME.lock")
    })
}

fn show(about: &About, checked: bool) -> Result<(), Failure> {
    let About { schema: _, identity, tokenizer, sources, reads } = about;
    let Tokenizer { kind, digest, vocab, bos, eos } = tokenizer;
    let id = |id: &Option<u32>| id.map_or("none".to_owned(), |id| id.to_string());
    let mut rows = vec![
        vec!["documents".to_owned(), identity.clone()],
        vec!["tokenizer".to_owned(), format!("{kind} {digest}")],
        vec![
            "token ids".to_owned(),
            format!("{}, bos {}, eos {}", output::grouped(*vocab), id(bos), id(eos)),
        ],
    ];
    if checked {
        rows.push(vec!["checked".to_owned(), "every byte is what was written".to_owned()]);
    }
    output::data(&output::table(&rows, &[], 0))?;
    let mut rows = vec![["source", "documents", "tokens"].map(str::to_owned).to_vec()];
    for Source { name, documents, tokens } in sources {
        rows.push(vec![name.clone(), output::grouped(*documents), output::grouped(*tokens)]);
    }
    output::data(&format!("\n{}", output::table(&rows, &[false, true, true], 0)))?;
    let Some(reads) = reads else { return Ok(()) };
    let head = ["a run reads", "documents", "tokens with marks", "share", "epochs"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for Read { source, documents, tokens, share, epochs } in reads {
        rows.push(vec![
            source.clone(),
            output::grouped(*documents),
            output::grouped(*tokens),
            format!("{:.1}%", 100.0 * share),
            format!("{epochs:.3}"),
        ]);
    }
    output::data(&format!("\n{}", output::table(&rows, &[false, true, true, true, true], 0)))
}
