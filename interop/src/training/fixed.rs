//! Fields without a key in Lingua's trainer.
//!
//! In: an experiment. Out: an error if Lingua could not train it. Must stay true: a value that its configuration cannot
//! express is refused by name, never left out.

use lab::experiment::Experiment;

use super::cannot;
use crate::ForeignError;

/// Fields without a key in Lingua's trainer, each with the only value it trains with.
const FIXED: [(&str, &str, &str); 7] = [
    ("data.task", "\"text\"", "Lingua trains on text"),
    ("data.shuffle", "\"buffer\"", "Lingua shuffles a buffer of windows"),
    ("data.held_out", "0", "Lingua trains on every document: hold none out, and evaluate nothing"),
    ("loss.z_loss", "0", "Lingua has no such term; its z_loss is loss.nll_square"),
    ("optimizer.decay", "\"all\"", "Lingua decays every parameter"),
    ("optimizer.kind", "\"adamw\"", "Lingua trains with AdamW"),
    ("loss.kind", "\"cross_entropy\"", "Lingua minimises cross entropy"),
];

/// Refuses an experiment that Lingua would train differently.
pub(super) fn check(experiment: &Experiment) -> Result<(), ForeignError> {
    for (path, wanted, why) in FIXED {
        if experiment.value(path).is_none_or(|value| value.to_string() != wanted) {
            return Err(cannot(experiment, path, why));
        }
    }
    let held = |path: &str| experiment.value(path).and_then(|n| n.to_string().parse::<u64>().ok());
    if held("data.shuffle_buffer")
        != held("lingua.prefetch_size").map(|n| n * experiment.batch.sequences)
    {
        let why = "its buffer has lingua.prefetch_size times batch.sequences windows";
        return Err(cannot(experiment, "data.shuffle_buffer", why));
    }
    Ok(())
}
