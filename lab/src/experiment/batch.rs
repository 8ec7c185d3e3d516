//! Converts a batch size in tokens, `batch.tokens_per_step`, to `batch.micro_batches`. The conversion is exact, or the
//! error suggests valid values; only one of the two may be written.

use super::access::int;
use crate::error::FieldProblem;
use crate::field::{FieldValue, Fields};

/// The field that may be written.
pub(super) const WRITTEN: &str = "batch.tokens_per_step";
/// The field that follows from it.
pub(super) const FOLLOWS: &str = "batch.micro_batches";

pub(super) fn resolve(fields: &mut Fields, problems: &mut Vec<FieldProblem>) {
    let Some(FieldValue::Int(tokens)) = fields.remove(WRITTEN) else { return };
    let mut wrong = |message: String, help: String| {
        problems.push(FieldProblem::new(WRITTEN, "bad-batch", message, help));
    };
    if let Some(written) = fields.get(FOLLOWS) {
        wrong(
            format!("the step has both tokens_per_step = {tokens} and micro_batches = {written}"),
            "write one of the two: the other follows".to_owned(),
        );
        return;
    }
    let one = int(fields, "batch.sequences").checked_mul(int(fields, "data.seq_len"));
    // Missing or wrong fields are reported elsewhere.
    let Some(one) = one.filter(|one| *one > 0) else {
        fields.insert(FOLLOWS.to_owned(), FieldValue::Int(1));
        return;
    };
    let count = tokens / one;
    if tokens % one != 0 || count > 1 << 20 {
        let (down, up) = (count.max(1), count.saturating_add(1));
        let nearest = if count == 0 || down == up { vec![down] } else { vec![down, up] };
        let nearest: Vec<String> = nearest
            .into_iter()
            .filter(|n| *n <= 1 << 20)
            .map(|n| n.saturating_mul(one).to_string())
            .collect();
        let nearest = if nearest.is_empty() {
            one.saturating_mul(1 << 20).to_string()
        } else {
            nearest.join(" or ")
        };
        let problem =
            if tokens % one == 0 { "are more than 1048576" } else { "are not a multiple of" };
        wrong(
            format!(
                "{tokens} tokens {problem} micro-batches of sequences x seq_len = {one} tokens"
            ),
            format!("write tokens_per_step = {nearest}, or other sequences"),
        );
    }
    fields.insert(FOLLOWS.to_owned(), FieldValue::Int(count.clamp(1, 1 << 20)));
}
