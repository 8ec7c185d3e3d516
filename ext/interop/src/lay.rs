//! The mapping between a model's parameters and the tensors of another program's file, in both directions.
//!
//! Every parameter is in exactly one tensor that is written; every tensor of a file is used, proved to be a copy or
//! zero, or refused by name.

use std::collections::BTreeMap;

use compiler::graph::Param;
use dsl::Problem;

use super::LeftOut;
use super::class::layouts;
use super::model::{Attention, Mixer, Model, RopeLayout};
use super::names::{GatedNorm, LINGUA_PREFIX, Layout, When};
use super::store::{PIECE, Planned, Store, Stored};

/// The program that reads or writes the tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Hugging Face's `transformers`, and the release's classes for it.
    HuggingFace,
    /// Lingua.
    Lingua,
}

/// One foreign tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorEntry {
    /// Name of the tensor in the file.
    pub theirs: String,
    /// Its shape in the file.
    pub shape: Vec<i64>,
    /// Indices of the parameters stacked in it, from top to bottom.
    pub ours: Vec<usize>,
    /// Whether a file must have it.
    pub kind: EntryKind,
    /// The row reordering, if its rows are for the other RoPE layout.
    pub turned: Option<RopePermutation>,
    /// Whether our values are 1 + theirs, in f32.
    pub plus_one: bool,
}

/// How the rows of each head are reordered for the other RoPE layout: channels paired as neighbours here are paired as
/// halves there, or the other way round. Channels that RoPE does not rotate keep their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RopePermutation {
    head_dim: u64,
    rope_dims: u64,
    /// Rows of q and k. In a filter of q, k and v, the rows of v follow and keep their place.
    rows: u64,
    to_halves: bool,
}

/// Whether a file must have a tensor, and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A file without it is refused.
    Needed,
    /// A copy of the token table; may be absent and is not written.
    Repeated,
    /// All zeros; may be absent, but is written.
    Zeros,
}

/// The maximum number of faults reported for one checkpoint.
const MAX_FAULTS: usize = 24;

/// Endings of names of tensors with values that RoPE computes.
pub(super) const FREQUENCIES: [&str; 2] = ["rotary_emb.inv_freq", "rope.freqs"];

/// Every tensor of this model under these names, which Lingua gives a prefix in linear models.
pub(crate) fn entries(
    model: &Model,
    names: &Layout,
    norm: GatedNorm,
    prefixed: bool,
    params: &[Param],
) -> Vec<TensorEntry> {
    let index: BTreeMap<&str, usize> =
        params.iter().enumerate().map(|(n, p)| (p.path.as_str(), n)).collect();
    // The layer that scales token vectors comes first, and has no tensors.
    let first = i64::from(model.options.scaled_embedding);
    let prefix = if prefixed { LINGUA_PREFIX } else { "" };
    let mut entries = Vec::new();
    for row in names.rows.iter().filter(|row| row.when.holds(model, norm)) {
        let layers = if row.theirs.contains("{i}") { model.layers } else { 1 };
        for layer in 0..layers {
            let at = |text: &str, layer: i64| text.replace("{i}", &layer.to_string());
            let our = |path: &&str| index.get(at(path, layer + first).as_str()).copied();
            let ours: Option<Vec<usize>> = row.ours.iter().map(our).collect();
            let Some(ours) = ours else { continue };
            let (kind, shape) = match row.when {
                When::Zeros => (EntryKind::Zeros, zeros_shape(model)),
                When::Repeated => (EntryKind::Repeated, stacked(&ours, params)),
                When::Always | When::Gla5 | When::Gla5Norm(_) | When::Gdn2 | When::Gdn2With(_) => {
                    (EntryKind::Needed, stacked(&ours, params))
                }
            };
            let is_norm =
                ours.first().and_then(|n| params.get(*n)).is_some_and(|p| p.role == "norm");
            entries.push(TensorEntry {
                theirs: format!("{prefix}{}", at(row.theirs, layer)),
                shape,
                ours,
                kind,
                turned: None,
                plus_one: names.plus_one && is_norm,
            });
        }
    }
    entries
}

/// Reorders q and k for a program that uses the other RoPE layout.
pub(crate) fn turn(entries: &mut [TensorEntry], attention: &Attention, params: &[Param]) {
    let count = |n: i64| n.max(0) as u64;
    let (head_dim, rope_dims) = (count(attention.head_dim), count(attention.rope_dims));
    let to_halves = attention.layout == RopeLayout::Interleaved;
    for entry in entries {
        let path = entry.ours.first().and_then(|n| params.get(*n)).map_or("", |p| p.path.as_str());
        let path = path.strip_suffix(".bias").unwrap_or(path);
        let heads = match path.rsplit('.').next() {
            Some("wq" | "q_norm") => attention.heads,
            Some("wk" | "k_norm") => attention.kv_heads,
            Some("B") => attention.heads + attention.kv_heads,
            Some(_) | None => continue,
        };
        let rows = count(heads) * head_dim;
        entry.turned = Some(RopePermutation { head_dim, rope_dims, rows, to_halves });
    }
}

/// The shape of the filter that the release keeps if Mamba2 has no convolution: of x, B and C.
fn zeros_shape(model: &Model) -> Vec<i64> {
    let state = if let Mixer::Mamba2 { state, .. } = &model.mixer { *state } else { 0 };
    vec![2 * model.dim + 2 * state, 1, 4]
}

/// The shape of stacked parameters; foreign filters have an extra axis of size one.
fn stacked(ours: &[usize], params: &[Param]) -> Vec<i64> {
    let mut shape: Vec<i64> = Vec::new();
    for param in ours.iter().filter_map(|n| params.get(*n)) {
        match (shape.first_mut(), param.shape.first()) {
            (Some(rows), Some(more)) => *rows += more,
            (None, _) => {
                shape.clone_from(&param.shape);
                if matches!(param.role.as_str(), "canon" | "short_conv") && shape.len() == 2 {
                    shape.insert(1, 1);
                }
            }
            (Some(_), None) => {}
        }
    }
    shape
}

pub(super) fn width(param: &Param) -> u64 {
    param.shape.iter().skip(1).map(|n| (*n).max(0) as u64).product()
}

pub(super) fn rows(param: &Param) -> u64 {
    param.shape.first().map_or(1, |n| (*n).max(0) as u64)
}

/// The row in the half layout of a row in the interleaved layout.
fn halved(row: u64, turned: RopePermutation) -> u64 {
    let RopePermutation { head_dim, rope_dims, rows, to_halves: _ } = turned;
    let within = row % head_dim.max(1);
    if row >= rows || within >= rope_dims {
        return row;
    }
    row - within + within / 2 + (within % 2) * (rope_dims / 2)
}

/// The row in the interleaved layout of a row in the half layout.
fn interleaved(row: u64, turned: RopePermutation) -> u64 {
    let RopePermutation { head_dim, rope_dims, rows, to_halves: _ } = turned;
    let within = row % head_dim.max(1);
    if row >= rows || within >= rope_dims {
        return row;
    }
    let half = rope_dims / 2;
    row - within + if within < half { 2 * within } else { 2 * (within - half) + 1 }
}

/// The foreign row that holds our row `row`.
pub(super) fn their_row(row: u64, turned: RopePermutation) -> u64 {
    if turned.to_halves { halved(row, turned) } else { interleaved(row, turned) }
}

/// Our row that the foreign row `row` holds.
pub(super) fn our_row(row: u64, turned: RopePermutation) -> u64 {
    if turned.to_halves { interleaved(row, turned) } else { halved(row, turned) }
}

/// Compares a checkpoint with the tensors that the model should have. Reports missing, extra and misshapen tensors,
/// types that are not weights, copies that differ and zeros that are not zero. Returns what is left out. `rates` are
/// RoPE's frequencies, which a file may have; `wrong` begins the error message.
pub fn check(
    file: &str,
    store: &Store,
    entries: &[TensorEntry],
    rates: Option<&[f64]>,
    wrong: &str,
) -> Result<Vec<LeftOut>, Problem> {
    let mut faults = Vec::new();
    let mut left_out = Vec::new();
    let known: BTreeMap<&str, &TensorEntry> =
        entries.iter().map(|e| (e.theirs.as_str(), e)).collect();
    for entry in entries {
        let Some(stored) = store.tensors.get(&entry.theirs) else {
            if entry.kind == EntryKind::Needed {
                faults.push(format!("missing: {} {:?}", entry.theirs, entry.shape));
            }
            continue;
        };
        if squeezed(&stored.shape) != squeezed(&entry.shape) {
            let (theirs, has) = (&entry.theirs, &stored.shape);
            faults.push(format!(
                "shape: {theirs} is {has:?}, but the configuration needs {:?}",
                entry.shape
            ));
        }
        if let Err(dtype) = &stored.dtype {
            faults.push(format!(
                "dtype: {} is {dtype}, but weights must be F32, BF16 or F16",
                entry.theirs
            ));
        }
    }
    for (name, stored) in &store.tensors {
        if known.contains_key(name.as_str()) {
            continue;
        }
        if FREQUENCIES.iter().any(|end| name.ends_with(end)) {
            match frequencies(store, name, stored, rates)? {
                Ok(()) => {
                    let reason = "RoPE's frequencies, equal to those computed".to_owned();
                    left_out.push(LeftOut { name: name.clone(), reason });
                }
                Err(fault) => faults.push(fault),
            }
            continue;
        }
        faults.push(extra(name, stored));
    }
    if !faults.is_empty() {
        return Err(refused(file, wrong, faults));
    }
    for entry in entries.iter().filter(|e| e.kind != EntryKind::Needed) {
        if store.tensors.contains_key(&entry.theirs) {
            left_out.push(check_unused(file, store, entry, entries)?);
        }
    }
    left_out.sort();
    Ok(left_out)
}

/// Compares a checkpoint that uses our paths with an arch's parameters.
pub fn check_ours(file: &str, store: &Store, params: &[Param], wrong: &str) -> Result<(), Problem> {
    let mut faults = Vec::new();
    let mut known = BTreeMap::new();
    for param in params {
        known.insert(param.path.as_str(), param);
        if !store.tensors.contains_key(&param.path) {
            faults.push(format!("missing: {} {:?}", param.path, param.shape));
        }
    }
    for (name, stored) in &store.tensors {
        let Some(param) = known.get(name.as_str()) else {
            faults.push(extra(name, stored));
            continue;
        };
        if stored.shape != param.shape {
            faults.push(format!(
                "shape: {name} is {:?}, but the arch needs {:?}",
                stored.shape, param.shape
            ));
        }
        if let Err(dtype) = &stored.dtype {
            faults.push(format!("dtype: {name} is {dtype}, but weights must be F32, BF16 or F16"));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(refused(file, wrong, faults)) }
}

pub(super) fn refused(file: &str, wrong: &str, mut faults: Vec<String>) -> Problem {
    let more = match faults.len().saturating_sub(MAX_FAULTS) {
        0 => String::new(),
        more => format!("\n  … and {more} more"),
    };
    faults.truncate(MAX_FAULTS);
    let message = format!("{wrong}\n  {}{more}", faults.join("\n  "));
    Problem::in_file(file, message, "use weights of this model")
}

fn extra(name: &str, stored: &Stored) -> String {
    let row = of_any_layer(name);
    let owner = layouts().into_iter().find(|names| names.has(&row));
    let owner = owner.map_or(String::new(), |names| format!(", a name of {}", names.name));
    format!("extra: {name} {:?}{owner}", stored.shape)
}

/// The shape [c, k] of a filter [c, 1, k].
fn squeezed(shape: &[i64]) -> Vec<i64> {
    match shape {
        [channels, 1, taps] => vec![*channels, *taps],
        shape => shape.to_vec(),
    }
}

/// The name as written in the table: without Lingua's prefix, and with `{i}` for the layer.
pub(super) fn of_any_layer(name: &str) -> String {
    let name = name.replace(LINGUA_PREFIX, "");
    let mut has_layer = false;
    let parts = name.split('.').map(|part| {
        let is_layer = !has_layer && part.parse::<u32>().is_ok();
        has_layer |= is_layer;
        if is_layer { "{i}" } else { part }
    });
    parts.collect::<Vec<_>>().join(".")
}

/// Checks a tensor that is not used: a copy of another one, or zeros.
fn check_unused(
    file: &str,
    store: &Store,
    entry: &TensorEntry,
    entries: &[TensorEntry],
) -> Result<LeftOut, Problem> {
    let name = entry.theirs.clone();
    let table = entries.iter().find(|e| e.kind == EntryKind::Needed && e.ours == entry.ours);
    let total: u64 = entry.shape.iter().map(|n| (*n).max(0) as u64).product();
    let mut at = 0;
    while at < total {
        let count = PIECE.min(total - at);
        let values = store.values(&name, at, count)?;
        let (equal, reason) = match (entry.kind, table) {
            (EntryKind::Repeated, Some(table)) => {
                let table_values = store.values(&table.theirs, at, count)?;
                let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                (
                    bits(&table_values) == bits(&values),
                    format!("it is tied to {} but differs from it", table.theirs),
                )
            }
            _ => (
                values.iter().all(|v| *v == 0.0),
                "without its convolution the model has zeros there, but the file does not"
                    .to_owned(),
            ),
        };
        if !equal {
            let help = "use the checkpoint that belongs to the configuration";
            return Err(Problem::in_file(file, format!("`{name}`: {reason}"), help));
        }
        at += count;
    }
    let reason = match (entry.kind, table) {
        (EntryKind::Repeated, Some(table)) => format!("tied, and equal to {}", table.theirs),
        _ => "zeros of a convolution that the model does not have".to_owned(),
    };
    Ok(LeftOut { name, reason })
}

/// Whether stored frequencies equal those that RoPE computes.
fn frequencies(
    store: &Store,
    name: &str,
    stored: &Stored,
    rates: Option<&[f64]>,
) -> Result<Result<(), String>, Problem> {
    let Some(rates) = rates else {
        return Ok(Err(format!("extra: {name}, but this family has no RoPE")));
    };
    let want = rates.len();
    if stored.shape != [want as i64] {
        return Ok(Err(format!("shape: {name} is {:?}, but RoPE has {want}", stored.shape)));
    }
    let values = store.values(name, 0, want as u64)?;
    // Within one percent: they may be stored in bf16.
    for (i, (has, computed)) in values.iter().zip(rates).enumerate() {
        if (f64::from(*has) - computed).abs() > 1e-2 * computed {
            return Ok(Err(format!("{name} has {has} at {i}, but rope_theta gives {computed}")));
        }
    }
    Ok(Ok(()))
}

/// The tensors to write; copies of the token table only if `repeats`.
pub fn planned(entries: &[TensorEntry], repeats: bool) -> Vec<(Planned, &TensorEntry)> {
    let written = entries.iter().filter(|e| repeats || e.kind != EntryKind::Repeated);
    written.map(|e| (Planned { name: e.theirs.clone(), shape: e.shape.clone() }, e)).collect()
}
