//! Published numbers on this machine: imported checkpoints' logits, and scans.
//! In: the folder of the repository's goldens, a machine. Out: the difference of each case and what is allowed. Must stay
//! true: the numbers were made by other programs (tests/golden has their sources); only f32 is compared, in which their
//! tolerances are.

use std::path::Path;

use compiler::plan::{DType, Extent, Kernel, Loss, Options, Scan, Sizes, Value};
use interop::import::{self, Request as Import};
use tch::{Device, Kind, Tensor};

use crate::execute::{ExecuteError, Machine, choose, compute};
use crate::forward::{Request, forward};
use crate::weights::{Weights, file};
use records::run::RunError;

/// A case, and how far its results are from the published ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Golden {
    pub name: String,
    /// The path of the part that decides it, if there is one.
    pub path: Option<String>,
    pub largest: f64,
    pub allowed: f64,
}

impl Golden {
    pub fn holds(&self) -> bool {
        self.largest <= self.allowed
    }
}

/// All cases in a folder that has `checkpoints` and `mixers`.
pub fn all(folder: &Path, machine: Machine) -> Result<Vec<Golden>, RunError> {
    let mut found = checkpoints(&folder.join("checkpoints"), machine)?;
    found.extend(scans(&folder.join("mixers"), machine)?);
    Ok(found)
}

fn broken(path: &Path, why: impl std::fmt::Display) -> RunError {
    RunError::input(
        format!("{}: {why}", path.display()),
        "name the folder of goldens with --goldens; the packed folder has one",
    )
}

/// The logits of every checkpoint in `index.json`.
fn checkpoints(folder: &Path, machine: Machine) -> Result<Vec<Golden>, RunError> {
    let index = folder.join("index.json");
    let text = disk::read_text(&index, disk::SMALL).map_err(|why| broken(&index, why))?;
    let index: serde_json::Value =
        serde_json::from_str(&text).map_err(|why| broken(&index, why))?;
    let cases = index["checkpoints"].as_array().map_or(&[][..], Vec::as_slice);
    cases
        .iter()
        .map(|case| {
            let name = case["dir"].as_str().unwrap_or_default();
            let allowed = case["logits_atol"].as_f64().unwrap_or(0.0);
            let source = folder.join(name);
            let largest = checkpoint(&source, machine)?;
            Ok(Golden { name: name.to_owned(), path: None, largest, allowed })
        })
        .collect()
}

fn checkpoint(source: &Path, machine: Machine) -> Result<f64, RunError> {
    let request = Import { source, name: Some("model"), devices: None, weights: true };
    let imported = import::read(&request).map_err(|why| broken(source, why))?;
    let weights = imported.weights.as_ref().ok_or_else(|| broken(source, "it has no weights"))?;
    let graph = &imported.compiled.graph;
    let weights = Weights::read(graph, weights, machine.device, machine.kind)?;
    let golden = file::read(&source.join("golden.safetensors"))?;
    let get = |name: &str| golden.get(name).ok_or_else(|| broken(source, format!("no {name}")));
    let answer = forward(&Request {
        graph,
        weights: &weights,
        tokens: get("in/tokens")?,
        targets: None,
        gradients: false,
        loss: Loss::CROSS_ENTROPY,
        options: Options::default(),
        machine,
    })?;
    Ok(furthest(&answer.logits, get("out/logits")?)?)
}

/// Every scan that has a file: its result, last state and gradients, relative to the largest element of each.
fn scans(folder: &Path, machine: Machine) -> Result<Vec<Golden>, RunError> {
    let mut found = Vec::new();
    for scan in Scan::ALL {
        let path = folder.join(format!("{}.safetensors", scan.definition().name));
        if path.is_file() {
            found.push(one_scan(*scan, &path, machine)?);
        }
    }
    if found.is_empty() {
        return Err(broken(folder, "it has no numbers of scans"));
    }
    Ok(found)
}

fn one_scan(scan: Scan, path: &Path, machine: Machine) -> Result<Golden, RunError> {
    let golden = file::read(path)?;
    let get = |name: &str| golden.get(name).ok_or_else(|| broken(path, format!("no {name}")));
    let definition = scan.definition();
    let names = definition.operands.iter().map(|name| format!("in/{name}"));
    let operands = names.map(|name| get(&name)).collect::<Result<Vec<_>, _>>()?;
    let here = |x: &&Tensor| Ok(x.f_to_kind(machine.kind)?.f_to_device(machine.device)?);
    let here = operands.iter().map(here).collect::<Result<Vec<_>, ExecuteError>>()?;
    let dy = get("cot/y")?;
    let dy = dy.f_to_device(machine.device).map_err(ExecuteError::from)?;
    let typed = |x: &Tensor| Value {
        name: "x".into(),
        dims: x.size().into_iter().map(Extent::Fixed).collect(),
        dtype: DType::F32,
    };
    let types: Vec<Value> = here.iter().map(typed).collect();
    let types: Vec<&Value> = types.iter().collect();
    let x: Vec<&Tensor> = here.iter().collect();
    let size = here.first().map(|x| x.size()).unwrap_or_default();
    let at = |axis: usize| size.get(axis).copied().unwrap_or(0);
    let sizes = Sizes { batch: at(0), time: at(1), past: 0 };
    let kernel = Kernel::Scan { scan, state: false, scale: None, steps: 1 };
    let made = compute(&kernel, &types, &x, machine, sizes).map_err(ExecuteError::from)?;
    let gradient_types: Vec<&Value> =
        types.get(definition.result).into_iter().chain(&types).copied().collect();
    let operands: Vec<&Tensor> = [&dy].into_iter().chain(x.iter().copied()).collect();
    let gradient = Kernel::ScanGrad { scan, scale: None, steps: 1 };
    let grads = compute(&gradient, &gradient_types, &operands, machine, sizes)
        .map_err(ExecuteError::from)?;
    let wanted = ["out/y".to_owned(), "state/S".to_owned()].into_iter();
    let wanted = wanted.chain(definition.operands.iter().map(|name| format!("grad/{name}")));
    let mut largest = 0.0f64;
    for (got, name) in made.iter().chain(&grads).zip(wanted) {
        let want = get(&name)?;
        let scale = want.f_abs().and_then(|x| x.f_max()).map_err(ExecuteError::from)?;
        let scale = scale.f_double_value(&[]).map_err(ExecuteError::from)?;
        let off = furthest(got, want)? / scale.max(f64::MIN_POSITIVE);
        largest = if off > largest || off.is_nan() { off } else { largest };
    }
    let tolerance = file::metadata(path)?.get("tolerance").and_then(|text| text.parse().ok());
    let allowed = tolerance.ok_or_else(|| broken(path, "its metadata have no tolerance"))?;
    let path = choose(&kernel, &types, machine, false).to_string();
    Ok(Golden { name: definition.name.to_owned(), path: Some(path), largest, allowed })
}

fn furthest(a: &Tensor, b: &Tensor) -> Result<f64, ExecuteError> {
    if a.size() != b.size() {
        return Ok(f64::INFINITY);
    }
    let wide = |x: &Tensor| x.f_to_device(Device::Cpu)?.f_to_kind(Kind::Double);
    Ok(wide(a)?.f_sub(&wide(b)?)?.f_abs()?.f_max()?.f_double_value(&[])?)
}
