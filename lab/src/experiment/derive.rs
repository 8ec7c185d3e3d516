//! Derived fields, each computed exactly and in one place. No binary floating point: a quotient without a finite
//! decimal is a fraction in lowest terms, and the bounds of the field table ensure that each product fits.

use std::collections::BTreeMap;

use dsl::{Decimal, FileId, Span};

use super::access::{int, real, text};
use super::parts::Budget;
use super::updates::matrices;
use super::{LockedArch, groups, task};
use crate::field::{FieldValue, Fields};
use compiler::analyse::Analysis;
use compiler::digest::Digest;
use compiler::number::Ratio;
use compiler::plan::ParamUpdate;

const DECAYED_TAG: &str = "canonc.decayed.v1";

pub(super) fn tokens_per_step(fields: &Fields) -> Option<u64> {
    let product = int(fields, "batch.sequences")
        .checked_mul(int(fields, "batch.micro_batches"))?
        .checked_mul(int(fields, "data.seq_len"))?;
    u64::try_from(product).ok().filter(|tokens| *tokens > 0)
}

/// The costs of an arch, by path.
pub(crate) fn costs(analysis: &Analysis) -> BTreeMap<&'static str, FieldValue> {
    let Analysis {
        parameters,
        active: _,
        non_embedding,
        canon,
        short_conv,
        seq_len,
        flops_per_token,
        dense_flops_per_token: _,
        train_flops_per_token,
        saved_per_token,
        state,
        state_per_token,
        optimizer_bytes,
    } = analysis;
    let small = |n: &i64| FieldValue::Int(*n);
    let large = |n: &i128| FieldValue::count(*n);
    BTreeMap::from([
        ("arch.canon_parameters", small(canon)),
        ("arch.flops_per_token", large(flops_per_token)),
        ("arch.non_embedding", small(non_embedding)),
        ("arch.optimizer_bytes", large(optimizer_bytes)),
        ("arch.parameters", small(parameters)),
        ("arch.saved_per_token", large(saved_per_token)),
        ("arch.seq_len", small(seq_len)),
        ("arch.short_conv", small(short_conv)),
        ("arch.state", large(state)),
        ("arch.state_per_token", large(state_per_token)),
        ("arch.train_flops_per_token", large(train_flops_per_token)),
    ])
}

/// The digests that identify an arch, by path.
pub(super) fn identity(arch: &LockedArch) -> BTreeMap<&'static str, FieldValue> {
    let identity = arch.identity();
    BTreeMap::from([
        ("arch.graph", FieldValue::text(identity.graph.to_string())),
        ("arch.manifest", FieldValue::text(identity.manifest.to_string())),
    ])
}

pub(super) fn derived(
    fields: &Fields,
    arch: &LockedArch,
    analysis: &Analysis,
    budget: Budget,
    updates: &[ParamUpdate],
) -> BTreeMap<&'static str, FieldValue> {
    let mut out = costs(analysis);
    out.extend(identity(arch));
    let Budget { steps, tokens } = budget;
    let count = |n: u64| FieldValue::count(i128::from(n));
    out.insert("batch.tokens_per_step", count(tokens_per_step(fields).unwrap_or(0)));
    out.insert("budget.steps", count(steps));
    out.insert("budget.tokens", count(tokens));
    let flops = analysis.train_flops_per_token.saturating_mul(i128::from(tokens));
    out.insert("budget.flops", FieldValue::count(flops));
    out.insert("data.vocab", FieldValue::Int(task::vocab(fields)));
    if text(fields, "data.task") == "text" {
        if let Some(FieldValue::Int(pass)) = fields.get("data.tokens") {
            out.insert("data.epochs", quotient(tokens, *pass));
        }
    } else if let Some(digest) = task::digest(fields) {
        out.insert("data.task_digest", FieldValue::text(digest.to_string()));
    }
    if fields.contains_key("schedule.warmup") {
        let steps = i64::try_from(steps).unwrap_or(i64::MAX);
        let warmup = u64::try_from(int(fields, "schedule.warmup")).unwrap_or(0);
        out.insert("schedule.warmup_share", quotient(warmup, steps));
    }
    if text(fields, "optimizer.decay") == "matrices" {
        let digest = Digest::of(DECAYED_TAG, &matrices(arch.compiled.graph.params()));
        out.insert("optimizer.decayed", FieldValue::text(digest.to_string()));
    }
    let params = arch.compiled.graph.params();
    if let Some(digest) = groups::digest(params, updates) {
        out.insert("optimizer.groups", FieldValue::text(digest.to_string()));
        let bytes = params.iter().enumerate().map(|(n, param)| {
            let elements: i128 = param.shape.iter().map(|dim| i128::from(*dim)).product();
            4 * elements * (2 + ParamUpdate::for_param(updates, n).moments() as i128)
        });
        out.insert("arch.optimizer_bytes", FieldValue::count(bytes.sum()));
    }
    // Nine, nine and twelve digits give at most thirty, which a decimal can hold.
    let product = real(fields, "optimizer.lr")
        .mul(real(fields, "optimizer.weight_decay"))
        .and_then(|x| x.mul(Decimal::from(i64::try_from(steps).unwrap_or(i64::MAX))));
    if let Ok(product) = product {
        out.insert("optimizer.lr_wd_steps", FieldValue::Real(product));
    }
    out
}

/// An exact quotient: an integer, a decimal, or a fraction as text.
fn quotient(over: u64, under: i64) -> FieldValue {
    let nowhere = Span::new(FileId(0), 0, 0);
    match Ratio::new(i128::from(over), i128::from(under)) {
        Some(ratio) => {
            match Decimal::parse(&compiler::tree::Value::of_ratio(ratio, nowhere).text()) {
                Ok(exact) => FieldValue::Real(exact),
                Err(_) => FieldValue::text(ratio.to_string()),
            }
        }
        None => FieldValue::text("unknown"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_exact() {
        assert_eq!(quotient(8000, 240_000).to_string(), "\"1/30\"");
        assert_eq!(quotient(12_000, 480_000).to_string(), "0.025");
        assert_eq!(quotient(6, 3).to_string(), "2");
    }
}
