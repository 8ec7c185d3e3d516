//! Measures how many bits a model knows about the people of a biography task, from the losses of held-out windows.
//!
//! The formulas are those of `tasks::capo::bits`. Each token's loss is taken after the true tokens before it. Only
//! biographies entirely inside their window count, each with all of its values.
//!
//! So a biography longer than the window never counts, nor does one cut by the window's end, which happens to long ones
//! more often than to short ones: the means cover somewhat shorter biographies than average. Of 300,000 with permuted
//! sentences one had more than 512 bytes (mean 368, longest 515), and locks with bits refuse shorter windows. Held-out
//! windows have the people of the training windows, in newly drawn sentences.

use std::collections::BTreeMap;

use data::batch::{Answer, Batch};
use records::job::Job;
use tasks::capo::Attribute;
use tasks::capo::bits::{Capacity, Losses, capacity};
use tasks::metric;

/// Adds the whole biographies of a batch; target i has loss i.
pub(super) fn add(batch: &Batch, losses: &[f32], sums: &mut Losses) {
    let name = Attribute::Name.level();
    // A biography's values follow its name, up to the next name.
    for biography in
        batch.answers().chunk_by(|before, next| before.row == next.row && next.level != name)
    {
        let is_complete = biography.iter().all(|answer| answer.complete);
        let values: Vec<(Attribute, f64)> =
            biography.iter().filter_map(|answer| loss_of(batch, losses, answer)).collect();
        if is_complete && values.len() == Attribute::ALL.len() {
            sums.add(values);
        }
    }
}

/// A value, and the summed loss of its tokens.
fn loss_of(batch: &Batch, losses: &[f32], answer: &Answer) -> Option<(Attribute, f64)> {
    let Answer { row, start, len, level, complete: _ } = *answer;
    let value = Attribute::ALL.into_iter().find(|value| value.level() == level)?;
    let first = row * batch.seq_len() + start;
    let losses = losses.get(first..first + len)?;
    Some((value, losses.iter().map(|loss| f64::from(*loss)).sum()))
}

/// The bits, if any biography was whole.
pub(super) fn measure(
    people: u64,
    losses: Losses,
    job: &Job,
    measures: &mut BTreeMap<String, f64>,
) {
    let parameters: u64 = job.slots().iter().map(|slot| slot.elements() as u64).sum();
    if let Some((name, values)) = losses.means() {
        let Capacity { bits, per_parameter, most_per_parameter: _ } =
            capacity(people, parameters.max(1), name, values);
        measures.insert(metric::BITS.to_owned(), bits);
        measures.insert(metric::BITS_PER_PARAMETER.to_owned(), per_parameter);
    }
}
