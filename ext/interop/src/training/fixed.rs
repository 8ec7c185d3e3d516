//! Fields without a key in Lingua's trainer. A value that its configuration cannot express is refused by name, never left
//! out.

use dsl::Problem;
use lab::experiment::Experiment;

use super::inexpressible;
use crate::config::Keys;
use crate::messages::lingua as messages;

/// Fields without a key in Lingua's trainer, each with the only value it trains with.
const FIXED: [(&str, &str, &str); 16] = [
    ("batch.in_sequence", "1", "Lingua's sums have an order of their own"),
    ("data.task", "\"text\"", "Lingua trains on text"),
    ("data.shuffle", "\"buffer\"", "Lingua shuffles a buffer of windows"),
    ("data.held_out", "0", "Lingua trains on every document: hold none out, and evaluate nothing"),
    (
        "init.weights",
        "\"none\"",
        "a configuration of Lingua names its own checkpoint by path, and no weights by digest",
    ),
    ("loss.ahead", "0", "Lingua's models predict the next token alone"),
    ("loss.balance", "0", "Lingua's models have no auxiliary losses"),
    ("loss.router_z", "0", "Lingua's models have no auxiliary losses"),
    ("seeds.dropout", "\"none\"", "Lingua's models have no dropout"),
    ("loss.z_loss", "0", "Lingua has no such term; its z_loss is loss.nll_square"),
    ("optimizer.decay", "\"all\"", "Lingua decays every parameter"),
    ("optimizer.frozen", "[]", "Lingua trains every parameter"),
    ("optimizer.lr_multipliers", "[]", "Lingua has one learning rate"),
    ("optimizer.weight_decay_multipliers", "[]", "Lingua has one weight decay"),
    ("optimizer.kind", "\"adamw\"", "Lingua trains with AdamW"),
    ("loss.kind", "\"cross_entropy\"", "Lingua minimises cross entropy"),
];

/// Refuses an experiment that Lingua would train differently.
pub(super) fn check(experiment: &Experiment) -> Result<(), Problem> {
    for (path, wanted, reason) in FIXED {
        if experiment.value(path).is_none_or(|value| value.to_string() != wanted) {
            return Err(inexpressible(experiment, path, reason));
        }
    }
    // Only wsd has a curve of its decay.
    if experiment.value("schedule.decay").is_some_and(|decay| decay.plain() != "hyperbola") {
        return Err(inexpressible(
            experiment,
            "schedule.decay",
            "Lingua's wsd decays by a hyperbola",
        ));
    }
    let held = |path: &str| experiment.value(path).and_then(|n| n.to_string().parse::<u64>().ok());
    if held("data.shuffle_buffer")
        != held("lingua.prefetch_size").map(|n| n * experiment.batch.sequences)
    {
        let reason = "its buffer has lingua.prefetch_size times batch.sequences windows";
        return Err(inexpressible(experiment, "data.shuffle_buffer", reason));
    }
    Ok(())
}

/// The trainer shuffles a buffer of windows: its batches on one rank.
pub(super) fn shuffle(
    keys: &Keys<'_>,
    set: &mut impl FnMut(&str, String) -> Option<String>,
) -> Result<(), Problem> {
    let key = "data.prefetch_size";
    let (batches, sequences) = (keys.int_or(key, 64)?, keys.int_or("data.batch_size", 2)?);
    let windows = batches.checked_mul(sequences).filter(|windows| *windows > 0);
    let Some(windows) = windows else {
        return Err(messages::size_of_buffer(keys));
    };
    set("data.shuffle", "\"buffer\"".to_owned());
    set("data.shuffle_buffer", windows.to_string());
    Ok(())
}
