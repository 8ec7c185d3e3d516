//! Published numbers on this machine, one golden at a time: imported checkpoints' logits, and scans.
//!
//! The numbers were made by other programs; the folders have their sources. Scans of `scans` are of shapes for which there
//! are CUDA kernels: on a GPU, one that would be composed of libtorch's operations is an error.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use compiler::kernel::{self, Kernel};
use compiler::op::ScanKind;
use compiler::plan::{DType, Extent, Loss, Options, Sizes, Value};
use compiler::program::Compiled;
use dsl::Problem;
use tch::{Device, Kind, Tensor};

use crate::execute::{Choice, ExecuteError, Machine, choose, compute};
use crate::forward::{Request, forward};
use crate::kernels::path::Path as KernelPath;
use crate::weights::{Weights, file};
use records::weights::WeightSource;

/// How far a golden's results are from the published ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Golden {
    pub name: String,
    /// The path of the part that decides it, if there is one.
    pub path: Option<String>,
    /// Whether operands and results are bf16.
    pub bf16: bool,
    pub largest: f64,
    pub allowed: f64,
}

impl Golden {
    pub fn holds(&self) -> bool {
        self.largest <= self.allowed
    }
}

/// Reads the arch and the weights in a folder of another program, or says what is wrong with it.
pub type ReadModel = fn(&Path) -> Result<(Compiled, Option<Box<dyn WeightSource>>), String>;

/// A golden before it is computed.
enum GoldenSource {
    /// The folder of an imported model; what its logits may differ by.
    Checkpoint(PathBuf, f64),
    /// A file that has a scan's operands.
    Mixer(ScanKind, PathBuf),
    /// A file that says by which formulas a scan's operands are made; whether they are bf16.
    Scan(ScanKind, PathBuf, bool),
    /// What cannot be listed. The others can.
    Unreadable(Problem),
}

/// The names of all goldens in a folder that has `checkpoints`, `mixers` and `scans`.
pub fn names(folder: &Path) -> Vec<String> {
    all(folder).into_iter().map(|(name, _)| name).collect()
}

/// The golden of this name.
pub fn one(
    folder: &Path,
    name: &str,
    machine: Machine,
    read_model: ReadModel,
) -> Result<Golden, Problem> {
    let mut all = all(folder);
    let Some(at) = all.iter().position(|(known, _)| known == name) else {
        let known: Vec<&str> = all.iter().map(|(known, _)| known.as_str()).collect();
        return Err(Problem::input(
            format!("{} has no golden `{name}`", folder.display()),
            format!("name one of {}", known.join(", ")),
        ));
    };
    match all.swap_remove(at).1 {
        GoldenSource::Unreadable(error) => Err(error),
        GoldenSource::Checkpoint(source, allowed) => {
            let largest = checkpoint(&source, machine, read_model)?;
            Ok(Golden { name: name.to_owned(), path: None, bf16: false, largest, allowed })
        }
        GoldenSource::Mixer(scan, path) => mixer(name, scan, &path, machine),
        GoldenSource::Scan(scan, path, bf16) => formula(name, scan, &path, bf16, machine),
    }
}

fn all(folder: &Path) -> Vec<(String, GoldenSource)> {
    type List = fn(&Path) -> Result<Vec<(String, GoldenSource)>, Problem>;
    let lists: [(&str, List); 3] =
        [("checkpoints", checkpoints), ("mixers", mixers), ("scans", scans)];
    let of_list = |(name, list): (&str, List)| {
        list(&folder.join(name))
            .unwrap_or_else(|error| vec![(name.to_owned(), GoldenSource::Unreadable(error))])
    };
    lists.into_iter().flat_map(of_list).collect()
}

fn broken(path: &Path, problem: impl std::fmt::Display) -> Problem {
    Problem::input(
        format!("{}: {problem}", path.display()),
        "name the folder of goldens with --goldens; the packed folder has one",
    )
}

/// Every checkpoint in `index.json`.
fn checkpoints(folder: &Path) -> Result<Vec<(String, GoldenSource)>, Problem> {
    let index = folder.join("index.json");
    let text = disk::read_text(&index, disk::SMALL).map_err(|error| broken(&index, error))?;
    let index: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| broken(&index, error))?;
    let cases = index["checkpoints"].as_array().map_or(&[][..], Vec::as_slice);
    let source = |case: &serde_json::Value| {
        let name = case["dir"].as_str().unwrap_or_default();
        let allowed = case["logits_atol"].as_f64().unwrap_or(0.0);
        (name.to_owned(), GoldenSource::Checkpoint(folder.join(name), allowed))
    };
    Ok(cases.iter().map(source).collect())
}

fn checkpoint(source: &Path, machine: Machine, read_model: ReadModel) -> Result<f64, Problem> {
    let (compiled, weights) = read_model(source).map_err(|error| broken(source, error))?;
    let weights = weights.ok_or_else(|| broken(source, "it has no weights"))?;
    let graph = &compiled.graph;
    let weights = Weights::read(graph, weights.as_ref(), machine.device, machine.kind)?;
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

/// Every scan that has a file under its name.
fn mixers(folder: &Path) -> Result<Vec<(String, GoldenSource)>, Problem> {
    let source = |scan: &ScanKind| {
        let name = scan.definition().name;
        let path = folder.join(format!("{name}.safetensors"));
        path.is_file().then(|| (name.to_owned(), GoldenSource::Mixer(*scan, path)))
    };
    let all: Vec<_> = ScanKind::ALL.iter().filter_map(source).collect();
    if all.is_empty() { Err(broken(folder, "it has no numbers of scans")) } else { Ok(all) }
}

/// Every file of a scan with one state, in f32 and in bf16.
fn scans(folder: &Path) -> Result<Vec<(String, GoldenSource)>, Problem> {
    let files = std::fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let mut files: Vec<PathBuf> = files
        .map_err(|error| broken(folder, error))?
        .into_iter()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "safetensors"))
        .collect();
    files.sort();
    let mut all = Vec::new();
    for path in files {
        // SCAN_STATE.safetensors
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let (name, state) = stem.rsplit_once('_').unwrap_or((&stem, ""));
        let Some(scan) = ScanKind::ALL.iter().copied().find(|scan| scan.definition().name == name)
        else {
            let error = broken(&path, format!("there is no scan `{name}`"));
            all.push((stem, GoldenSource::Unreadable(error)));
            continue;
        };
        for (dtype, bf16) in [("f32", false), ("bf16", true)] {
            all.push((
                format!("{name} {state} {dtype}"),
                GoldenSource::Scan(scan, path.clone(), bf16),
            ));
        }
    }
    if all.is_empty() { Err(broken(folder, "it has no numbers of scans")) } else { Ok(all) }
}

fn text<'a>(
    path: &Path,
    metadata: &'a BTreeMap<String, String>,
    key: &str,
) -> Result<&'a str, Problem> {
    let value = metadata.get(key).map(String::as_str);
    value.ok_or_else(|| broken(path, format!("its metadata have no `{key}`")))
}

fn number<T: std::str::FromStr>(
    path: &Path,
    metadata: &BTreeMap<String, String>,
    key: &str,
) -> Result<T, Problem> {
    let text = text(path, metadata, key)?;
    text.parse().map_err(|_| broken(path, format!("`{key}` of its metadata is `{text}`")))
}

/// A scan with operands from the file.
fn mixer(name: &str, scan: ScanKind, path: &Path, machine: Machine) -> Result<Golden, Problem> {
    let golden = file::read(path)?;
    let tensor = |name: String| -> Result<Tensor, Problem> {
        let x = golden.get(&name).ok_or_else(|| broken(path, format!("no {name}")))?;
        let x = x.f_to_kind(machine.kind).and_then(|x| x.f_to_device(machine.device));
        Ok(x.map_err(ExecuteError::from)?)
    };
    let names = scan.definition().operands.iter().map(|name| format!("in/{name}"));
    let operands = names.map(tensor).collect::<Result<Vec<_>, _>>()?;
    let dy = tensor("cot/y".to_owned())?;
    let calls = calls(scan, &operands, &dy);
    let [forward, _] = &calls;
    Ok(Golden {
        name: name.to_owned(),
        path: Some(forward.choice(machine).to_string()),
        bf16: false,
        largest: compared(scan, &calls, machine, path, |x| Ok(x.shallow_clone()))?,
        allowed: number(path, &file::metadata(path)?, "tolerance")?,
    })
}

/// A scan with operands by formula. Of each result, the file has a sample.
fn formula(
    name: &str,
    scan: ScanKind,
    path: &Path,
    bf16: bool,
    machine: Machine,
) -> Result<Golden, Problem> {
    let metadata = file::metadata(path)?;
    let (operands, dy) = inputs(scan, path, &metadata, bf16, machine)?;
    let [forward, backward] = calls(scan, &operands, &dy);
    let choice = forward.choice(machine);
    if let Device::Cuda(_) = machine.device {
        for call in [&forward, &backward] {
            compiled(name, call, machine)?;
        }
    }
    let on_device = |x: &Tensor| x.f_to_device(machine.device);
    let operands = operands.iter().map(on_device).collect::<Result<Vec<_>, _>>();
    let (operands, dy) =
        (operands.map_err(ExecuteError::from)?, on_device(&dy).map_err(ExecuteError::from)?);
    let (stride, whole) = (number(path, &metadata, "stride")?, number(path, &metadata, "whole")?);
    let sample = |x: &Tensor| sample(x, stride, whole);
    Ok(Golden {
        name: name.to_owned(),
        path: Some(choice.to_string()),
        bf16,
        largest: compared(scan, &calls(scan, &operands, &dy), machine, path, sample)?,
        allowed: number(path, &metadata, if bf16 { "tolerance_bf16" } else { "tolerance" })?,
    })
}

/// The operands that a file describes, and the gradient of y, on the CPU.
fn inputs(
    scan: ScanKind,
    path: &Path,
    metadata: &BTreeMap<String, String>,
    bf16: bool,
    machine: Machine,
) -> Result<(Vec<Tensor>, Tensor), Problem> {
    let case = format!("{} {}", text(path, metadata, "scan")?, text(path, metadata, "state")?);
    let make = |key: String| -> Result<Tensor, Problem> {
        let formula = text(path, metadata, &key)?;
        let wrong = || broken(path, format!("`{key}` of its metadata is `{formula}`"));
        let mut words = formula.split(' ');
        let (form, dtype) = (words.next().ok_or_else(wrong)?, words.next().ok_or_else(wrong)?);
        let size = words.map(str::parse).collect::<Result<Vec<i64>, _>>().map_err(|_| wrong())?;
        let dtype = if bf16 && dtype == "bf16" { DType::Bf16 } else { DType::F32 };
        let x = operand(&format!("{case}/{key}"), form, &size).map_err(ExecuteError::from)?;
        let x = x.ok_or_else(wrong)?.f_to_kind(machine.kind_of(dtype));
        Ok(x.map_err(ExecuteError::from)?)
    };
    let names = scan.definition().operands.iter().map(|name| format!("in/{name}"));
    Ok((names.map(make).collect::<Result<_, _>>()?, make("cot/y".to_owned())?))
}

/// An error if this is not a compiled kernel of ours.
fn compiled(name: &str, call: &Call<'_>, machine: Machine) -> Result<(), Problem> {
    let choice = call.choice(machine);
    if let Choice::Ours(KernelPath::Cuda(_)) = choice {
        return Ok(());
    }
    let kernel = call.kernel.name();
    Err(Problem::finding(
        format!("{name}: {kernel} by {choice}, expected a kernel of ours, fused/cuda/…"),
        "gpu/README.md has the shapes for which kernels were compiled",
    ))
}

/// Every `stride`th element of a tensor of more than `whole`, in one row.
fn sample(x: &Tensor, stride: i64, whole: usize) -> Result<Tensor, tch::TchError> {
    let stride = if x.numel() > whole { stride } else { 1 };
    x.f_contiguous()?.f_flatten(0, -1)?.f_slice(0, None, None, stride)
}

/// An operand in f64 from its formula, as `operand` in tests/golden/scans/make.py; none for an unknown form.
fn operand(seed: &str, form: &str, size: &[i64]) -> Result<Option<Tensor>, tch::TchError> {
    let count: i64 = size.iter().product();
    let x = Tensor::f_from_slice(&drawn(seed, count))?.f_reshape(size)?;
    let rounded =
        |x: Tensor| x.f_to_kind(Kind::Float)?.f_to_kind(Kind::BFloat16)?.f_to_kind(Kind::Double);
    // first 32^head, along the axis of the heads
    let by_head = |first: f64, heads: i64, after: usize| {
        let each = std::iter::successors(Some(first), |x| Some(x * 32.0));
        let each: Vec<f64> = (0..heads).zip(each).map(|(_, x)| x).collect();
        let axes: Vec<i64> = [heads].into_iter().chain(std::iter::repeat_n(1, after)).collect();
        Tensor::f_from_slice(&each)?.f_reshape(axes)
    };
    Ok(Some(match (form, size) {
        ("normal", _) => x,
        ("unit", _) => {
            let squares =
                x.f_square()?.f_sum_dim_intlist([-1i64].as_slice(), true, None::<Kind>)?;
            rounded(x.f_div(&squares.f_sqrt()?)?)?
        }
        ("share", _) => x.f_add_scalar(4.0)?.f_div_scalar(8.0)?,
        ("gate", [_, _, heads, after @ ..]) => {
            rounded(x.f_square()?.f_mul(&by_head(-1.0 / 64.0, *heads, after.len())?)?)?
        }
        ("rate", [heads]) => by_head(-1.0 / 32.0, *heads, 0)?,
        (_, _) => return Ok(None),
    }))
}

/// Multiples of 1/64 between −3 and 3.
fn drawn(seed: &str, count: i64) -> Vec<f64> {
    let mut state =
        seed.bytes().fold(17u64, |state, byte| state.wrapping_mul(131).wrapping_add(byte.into()));
    let mut draw = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) & 127) as f64 - 64.0
    };
    (0..count).map(|_| (draw() + draw() + draw()) / 64.0).collect()
}

/// A scan or its gradient, with its operands.
struct Call<'a> {
    kernel: Kernel,
    operands: Vec<&'a Tensor>,
    types: Vec<Value>,
}

impl<'a> Call<'a> {
    fn new(kernel: impl Into<Kernel>, operands: Vec<&'a Tensor>) -> Self {
        let value = |x: &&Tensor| Value {
            name: "x".into(),
            dims: x.size().into_iter().map(Extent::Fixed).collect(),
            dtype: if x.kind() == Kind::BFloat16 { DType::Bf16 } else { DType::F32 },
        };
        let types = operands.iter().map(value).collect();
        Self { kernel: kernel.into(), operands, types }
    }

    fn choice(&self, machine: Machine) -> Choice {
        choose(&self.kernel, &self.types.iter().collect::<Vec<_>>(), machine, false)
    }

    fn run(&self, machine: Machine) -> Result<Vec<Tensor>, ExecuteError> {
        let size = self.operands.first().map(|x| x.size()).unwrap_or_default();
        let at = |axis: usize| size.get(axis).copied().unwrap_or(0);
        let sizes = Sizes { batch: at(0), time: at(1), past: 0 };
        let types: Vec<&Value> = self.types.iter().collect();
        Ok(compute(&self.kernel, &types, &self.operands, machine, sizes)?)
    }
}

/// The scan, then its gradient.
fn calls<'a>(scan: ScanKind, operands: &'a [Tensor], dy: &'a Tensor) -> [Call<'a>; 2] {
    let (scan, steps) = (scan.definition(), 1);
    let forward = kernel::Scan { scan, state: false, scale: None, steps };
    let backward = [dy].into_iter().chain(operands).collect();
    [
        Call::new(forward, operands.iter().collect()),
        Call::new(kernel::ScanGrad { scan, scale: None, steps }, backward),
    ]
}

/// The largest difference of a result from the file's, after `part` of each; relative to its largest element.
fn compared(
    scan: ScanKind,
    calls: &[Call<'_>; 2],
    machine: Machine,
    path: &Path,
    part: impl Fn(&Tensor) -> Result<Tensor, tch::TchError>,
) -> Result<f64, Problem> {
    let golden = file::read(path)?;
    let gradients = scan.definition().operands.iter().map(|name| format!("grad/{name}"));
    let names = ["out/y".to_owned(), "state/S".to_owned()].into_iter().chain(gradients);
    let [forward, backward] = calls;
    let mut results = forward.run(machine)?.into_iter().chain(backward.run(machine)?);
    let mut largest = 0.0f64;
    for name in names {
        let got = results.next().ok_or_else(|| ExecuteError::new(format!("no result {name}")))?;
        let want = golden.get(&name).ok_or_else(|| broken(path, format!("no {name}")))?;
        let got = part(&got).map_err(ExecuteError::from)?;
        let scale = want.f_abs().and_then(|x| x.f_max()?.f_double_value(&[]));
        let scale = scale.map_err(ExecuteError::from)?;
        let off = furthest(&got, want)? / scale.max(f64::MIN_POSITIVE);
        largest = if off > largest || off.is_nan() { off } else { largest };
    }
    Ok(largest)
}

fn furthest(a: &Tensor, b: &Tensor) -> Result<f64, ExecuteError> {
    if a.size() != b.size() {
        return Ok(f64::INFINITY);
    }
    let wide = |x: &Tensor| x.f_to_device(Device::Cpu)?.f_to_kind(Kind::Double);
    Ok(wide(a)?.f_sub(&wide(b)?)?.f_abs()?.f_max()?.f_double_value(&[])?)
}

#[cfg(test)]
mod tests {
    use gpu::Constant;

    use super::*;
    use crate::execute::KernelRequest;
    use crate::kernels::cuda::recorder::Recorder;

    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden");
    /// Models are read by an extension.
    fn read_model(folder: &Path) -> Result<(Compiled, Option<Box<dyn WeightSource>>), String> {
        Err(format!("{} is not read here", folder.display()))
    }

    const CPU: Machine =
        Machine { device: Device::Cpu, kind: Kind::Float, kernels: KernelRequest::FASTEST };
    const CUDA: Machine = Machine { device: Device::Cuda(0), ..CPU };

    /// Name, scan, file and whether it is in bf16 of those with operands by formula.
    fn by_formula() -> Vec<(String, ScanKind, PathBuf, bool)> {
        let goldens = all(Path::new(FOLDER)).into_iter().filter_map(|(name, source)| {
            if let GoldenSource::Scan(scan, path, bf16) = source {
                Some((name, scan, path, bf16))
            } else {
                None
            }
        });
        goldens.collect()
    }

    #[test]
    fn one_wrong_number_in_any_result_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let wrong = folder.path().join("wrong.safetensors");
        for (name, scan, path, bf16) in by_formula().into_iter().filter(|x| x.0.contains("64x64")) {
            let bytes = std::fs::read(&path).unwrap();
            let (header, about) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
            let golden = file::read(&path).unwrap();
            let tensors: BTreeMap<_, _> = about.tensors().into_iter().collect();
            for (key, info) in tensors {
                let largest = golden[&key].abs().max().double_value(&[]);
                let first = 8 + header + info.data_offsets.0;
                let mut bytes = bytes.clone();
                let number: &mut [u8; 4] = (&mut bytes[first..first + 4]).try_into().unwrap();
                let off = if bf16 { 5e-2 } else { 5e-5 };
                *number = (f32::from_le_bytes(*number) + (off * largest) as f32).to_le_bytes();
                std::fs::write(&wrong, bytes).unwrap();
                let golden = formula(&name, scan, &wrong, bf16, CPU).unwrap();
                assert!(!golden.holds(), "{key}: {golden:?}");
            }
        }
    }

    #[test]
    fn our_images_serve_every_scan_by_formula() {
        for (name, scan, path, bf16) in by_formula() {
            let metadata = file::metadata(&path).unwrap();
            let (operands, dy) = inputs(scan, &path, &metadata, bf16, CPU).unwrap();
            let recorder = Recorder::new(9, 0);
            for call in &calls(scan, &operands, &dy) {
                compiled(&name, call, CUDA).unwrap();
                call.run(CPU).unwrap();
            }
            let dtype = Constant::Text(if bf16 { "bf16" } else { "f32" }.to_owned());
            let launched = recorder.take();
            // Sums of f32 are of f32 alone.
            let scans = launched.iter().filter(|one| one.kernel != "sum_rows");
            let dtypes: Vec<_> =
                scans.filter_map(|one| one.compiled.constants.get("dtype")).collect();
            assert!(dtypes.len() >= 6, "{name}: {launched:?}");
            assert!(dtypes.iter().all(|known| **known == dtype), "{name}: {launched:?}");
        }
    }

    #[test]
    fn a_scan_that_a_gpu_would_compose_is_an_error() {
        for (name, ..) in by_formula() {
            let error = one(Path::new(FOLDER), &name, CUDA, read_model).unwrap_err().to_string();
            let scan = name.split(' ').next().unwrap();
            let wanted = format!(
                "{name}: {scan} by reference (on Cuda(0)), expected a kernel of ours, fused/cuda/…"
            );
            assert!(error.starts_with(&wanted), "{error}");
        }
    }

    #[test]
    fn an_unknown_golden_is_refused_with_the_known_ones() {
        let error =
            one(Path::new(FOLDER), "gla_scan 64x64", CPU, read_model).unwrap_err().to_string();
        assert!(error.contains("has no golden `gla_scan 64x64`"), "{error}");
        assert!(
            error.contains("name one of hf_llama, ") && error.contains(", gla_scan 64x64 f32"),
            "{error}"
        );
    }
}
