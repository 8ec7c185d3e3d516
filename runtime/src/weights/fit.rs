//! A file's tensors laid upon an arch's parameters.
//!
//! In: a graph's manifest and tensors by name, under our paths or in a layout of `foreign::names`. Out: the parameters in f32
//! and in order; or everything that does not fit, at once. Must stay true: every parameter comes from exactly one
//! place or from several that are equal; every tensor is used, or holds nothing learned; all values are finite.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::Path;

use compiler::graph::{Graph, Param};
use tch::{Kind, Tensor};

use super::Weights;
use crate::execute::ExecuteError;
use crate::foreign::names::{LAYOUTS, LINGUA_PREFIX, Layout, Row};
use crate::run::RunError;

/// One tensor of a file and the parameters that are its rows, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub theirs: String,
    /// Indices of parameters.
    pub ours: Vec<usize>,
}

/// All that is wrong with a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Misfit {
    /// What the file seems to be.
    layout: String,
    faults: Vec<String>,
}

/// Faults shown of each file.
const SHOWN: usize = 24;

impl Misfit {
    /// As an error about that file.
    pub fn of(self, path: &Path) -> RunError {
        RunError::input(
            format!("{} does not hold this arch's weights{self}", path.display()),
            "give weights of this very arch: `canonc show` lists its parameters and their shapes",
        )
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " (names of {})", self.layout)?;
        for fault in self.faults.iter().take(SHOWN) {
            write!(f, "\n  {fault}")?;
        }
        match self.faults.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n  … and {more} more"),
        }
    }
}

impl From<ExecuteError> for Misfit {
    fn from(error: ExecuteError) -> Self {
        Self { layout: "which libtorch could not use".to_owned(), faults: vec![error.to_string()] }
    }
}

/// The parameters of `graph` out of a file's tensors.
pub fn weights(graph: &Graph, tensors: &BTreeMap<String, Tensor>) -> Result<Weights, Misfit> {
    let tensors = renamed(tensors);
    let sizes: BTreeMap<&str, Vec<i64>> =
        tensors.iter().map(|(name, tensor)| (name.as_str(), tensor.size())).collect();
    let (layout, pieces, mut faults) = lay(graph, &sizes);
    let mut found: Vec<Option<Tensor>> = graph.params().iter().map(|_| None).collect();
    for Piece { theirs, ours } in &pieces {
        let Some(tensor) = tensors.get(theirs) else { continue };
        match taken(theirs, tensor, ours, graph.params()) {
            Ok(parts) => {
                for (index, part) in ours.iter().zip(parts) {
                    let Some(slot) = found.get_mut(*index) else { continue };
                    match slot {
                        Some(other) if *other != part => faults.push(format!(
                            "twice and unequal: {theirs} and another are {}",
                            path_of(graph, *index)
                        )),
                        Some(_) => {}
                        None => *slot = Some(part),
                    }
                }
            }
            Err(why) => faults.push(why),
        }
    }
    let complete: Option<Vec<Tensor>> = found.into_iter().collect();
    match complete {
        Some(tensors) if faults.is_empty() => {
            let paths = graph.params().iter().map(|param| param.path.clone()).collect();
            Ok(Weights { paths, tensors })
        }
        _ => Err(Misfit { layout, faults }),
    }
}

/// Which tensor holds which parameters.
pub fn pieces(graph: &Graph, sizes: &BTreeMap<&str, Vec<i64>>) -> Result<Vec<Piece>, Misfit> {
    match lay(graph, sizes) {
        (_, pieces, faults) if faults.is_empty() => Ok(pieces),
        (layout, _, faults) => Err(Misfit { layout, faults }),
    }
}

/// The layout's name, the pieces, and what is missing, extra or misshapen.
fn lay(graph: &Graph, sizes: &BTreeMap<&str, Vec<i64>>) -> (String, Vec<Piece>, Vec<String>) {
    let layout = LAYOUTS.iter().find(|layout| sizes.contains_key(layout.sign));
    let index: BTreeMap<&str, usize> =
        graph.params().iter().enumerate().map(|(n, p)| (p.path.as_str(), n)).collect();
    let rows = match layout {
        Some(layout) => expanded(layout, &index),
        None => index.iter().map(|(path, n)| ((*path).to_owned(), vec![vec![*n]])).collect(),
    };
    let (mut pieces, mut faults) = (Vec::new(), Vec::new());
    let mut covered = vec![false; index.len()];
    for (name, size) in sizes {
        let idle = layout.is_some_and(|l| l.idle.iter().any(|end| name.ends_with(end)));
        let Some(choices) = rows.get(*name) else {
            if !idle {
                faults.push(format!("extra: {name} {size:?}"));
            }
            continue;
        };
        let fits = |ours: &&Vec<usize>| squeezed(size) == stacked(ours, graph.params());
        // The first that has the right shape, else the first that names parameters at all.
        let Some(ours) = choices.iter().find(fits).or(choices.first()) else { continue };
        for n in ours {
            if let Some(covered) = covered.get_mut(*n) {
                *covered = true;
            }
        }
        if !ours.is_empty() && !fits(&ours) {
            let paths: Vec<&str> = ours.iter().map(|n| path_of(graph, *n)).collect();
            faults.push(format!(
                "shape: {name} is {size:?}, and {} {} {:?}",
                paths.join(" | "),
                if paths.len() == 1 { "is" } else { "are" },
                stacked(ours, graph.params()),
            ));
            continue;
        }
        pieces.push(Piece { theirs: (*name).to_owned(), ours: ours.clone() });
    }
    for (param, covered) in graph.params().iter().zip(covered) {
        if !covered {
            let n = index.get(param.path.as_str());
            let theirs: Vec<&str> = rows
                .iter()
                .filter(|(_, choices)| {
                    layout.is_some()
                        && choices.iter().any(|ours| n.is_some_and(|n| ours.contains(n)))
                })
                .map(|(name, _)| name.as_str())
                .collect();
            let mut fault = format!("missing: {} {:?}", param.path, param.shape);
            if !theirs.is_empty() {
                let _ = write!(fault, ", which is in {}", theirs.join(" or "));
            }
            faults.push(fault);
        }
    }
    let name = layout.map_or("canonc", |layout| layout.name).to_owned();
    (name, pieces, faults)
}

/// Every name of a layout for this arch, with the parameters it may hold: only choices the arch has all of.
fn expanded(layout: &Layout, index: &BTreeMap<&str, usize>) -> BTreeMap<String, Vec<Vec<usize>>> {
    let layers = index
        .keys()
        .filter_map(|path| path.strip_prefix("layers.")?.split('.').next()?.parse::<u32>().ok())
        .max()
        .map_or(0, |last| last + 1);
    let mut rows: BTreeMap<String, Vec<Vec<usize>>> = BTreeMap::new();
    for Row { theirs, ours, when: _ } in layout.rows {
        let count = if theirs.contains("{i}") { layers } else { 1 };
        for layer in 0..count {
            let at = |text: &str| text.replace("{i}", &layer.to_string());
            let ours: Option<Vec<usize>> =
                ours.iter().map(|path| index.get(at(path).as_str()).copied()).collect();
            if let Some(ours) = ours {
                rows.entry(at(theirs)).or_default().push(ours);
            }
        }
    }
    rows
}

/// Names without what Lingua puts in front, and with the one embedding's name that varies made one.
fn renamed(tensors: &BTreeMap<String, Tensor>) -> BTreeMap<String, Tensor> {
    let lingua = tensors.keys().any(|name| name.starts_with(LINGUA_PREFIX));
    tensors
        .iter()
        .map(|(name, tensor)| {
            let name = if lingua { name.replace(LINGUA_PREFIX, "") } else { name.clone() };
            let name = match name.strip_prefix("backbone.embedding.") {
                Some(rest) => format!("backbone.embeddings.{rest}"),
                None => name,
            };
            (name, tensor.shallow_clone())
        })
        .collect()
}

/// A filter [c, 1, k] is [c, k].
fn squeezed(size: &[i64]) -> Vec<i64> {
    match size {
        [channels, 1, taps] => vec![*channels, *taps],
        size => size.to_vec(),
    }
}

/// The shape of parameters one below the other; empty if they do not stack.
fn stacked(ours: &[usize], params: &[Param]) -> Vec<i64> {
    let mut shapes = ours.iter().filter_map(|n| params.get(*n)).map(|p| p.shape.as_slice());
    let Some(first) = shapes.next() else { return Vec::new() };
    let mut whole = first.to_vec();
    for shape in shapes {
        match (whole.first_mut(), shape.first()) {
            (Some(rows), Some(more)) => *rows += more,
            (None, _) | (_, None) => return Vec::new(),
        }
    }
    whole
}

/// The parameters in one tensor, in f32, or what is wrong with its values.
fn taken(
    name: &str,
    tensor: &Tensor,
    ours: &[usize],
    params: &[Param],
) -> Result<Vec<Tensor>, String> {
    let failed = |error: tch::TchError| format!("{name}: {error}");
    if !matches!(tensor.kind(), Kind::Float | Kind::BFloat16 | Kind::Half) {
        return Err(format!(
            "dtype: {name} is {:?}, and weights are f32, bf16 or f16",
            tensor.kind()
        ));
    }
    let tensor = tensor.f_to_kind(Kind::Float).map_err(failed)?;
    let finite = tensor.f_isfinite().and_then(|t| t.f_all()).and_then(|t| t.f_int64_value(&[]));
    if finite.map_err(failed)? == 0 {
        return Err(format!("not finite: {name} has NaN or infinity in it"));
    }
    if ours.is_empty() {
        // A tensor that stands for nothing is one of zeros.
        let zeros = tensor.f_count_nonzero(None).and_then(|t| t.f_int64_value(&[]));
        return match zeros.map_err(failed)? {
            0 => Ok(Vec::new()),
            n => Err(format!(
                "extra: {name} has {n} numbers that are not 0, and the arch has no place for it"
            )),
        };
    }
    let mut first = 0;
    let mut parts = Vec::with_capacity(ours.len());
    for param in ours.iter().filter_map(|n| params.get(*n)) {
        let rows = param.shape.first().copied().unwrap_or(1);
        let part = if ours.len() == 1 {
            Ok(tensor.shallow_clone())
        } else {
            tensor.f_narrow(0, first, rows)
        };
        let part = part.and_then(|t| t.f_reshape(&param.shape)).and_then(|t| t.f_contiguous());
        parts.push(part.map_err(failed)?);
        first += rows;
    }
    Ok(parts)
}

fn path_of(graph: &Graph, index: usize) -> &str {
    graph.params().get(index).map_or("", |param| param.path.as_str())
}
