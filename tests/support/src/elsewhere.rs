//! Folders of the format `canonc.external.v1`, written by docs/files.md alone from the steps of runs that canonc trained:
//! another engine's run, for tests.

use std::fs;
use std::path::Path;

use compiler::digest::Digest;
use compiler::plan::{ParamUpdate, Precision, UpdateRule};
use lab::lock::{self, Lock};
use lab::trainer::kernel_keys;

/// A trainer record of PyTorch for a lock, given as text.
pub fn trainer(lock: &str) -> String {
    let Ok(Lock::Experiment(experiment)) = lock::read("lock", lock) else {
        panic!("not the lock of an experiment: {lock}");
    };
    let graph = &experiment.arch.compiled.graph;
    let precision = if experiment.precision == Precision::Bf16 { "bf16" } else { "f32" };
    let kernel = |key| match key {
        "kernels.attention" => "kernels.attention = \"sdpa\"\n".to_owned(),
        key => format!("{key} = \"generated\"\n"),
    };
    let mut lines: Vec<String> = kernel_keys(graph).into_iter().map(kernel).collect();
    lines.extend(experiment.dropout.map(|_| "loss.dropout = \"canonc\"\n".to_owned()));
    let muon = |update: &ParamUpdate| matches!(update.rule, UpdateRule::Muon(_));
    let muon = experiment.updates.iter().any(muon);
    lines.extend(muon.then(|| "optimizer.muon = \"canonc.torch.Muon\"\n".to_owned()));
    format!(
        r#"version = 1
compile = "none"
data.windows = "canonc"
deterministic = false
division = "micro_batches"
engine = "pytorch"
engine_version = "2.11.0"
{}loss.terms = "canonc"
machine.gpu = "NVIDIA H100 80GB HBM3"
machine.gpus = 2
mesh = "shard 2"
optimizer.adamw = "torch.optim.AdamW"
optimizer.fused = false
parallel = "fsdp2"
precision.autocast = "none"
precision.compute = "{precision}"
precision.f32_only = "f32"
precision.loss = "f32"
precision.master = "f32"
precision.reduce = "f32"
precision.tf32 = false
versions.python = "3.12.3"
world = 2
"#,
        lines.concat()
    )
}

/// Writes the folder `to` of a run of `lock` with this trainer record, from the steps and checkpoints of the run in `from`,
/// which may be of another lock.
pub fn write(from: &Path, to: &Path, lock: &str, trainer: &str) {
    fs::create_dir_all(to.join("checkpoints")).unwrap();
    fs::write(to.join("lock"), lock).unwrap();
    fs::write(to.join("trainer.toml"), trainer).unwrap();
    let record = digest("canonc.trainer.v1", trainer);
    let log = fs::read_to_string(from.join("metrics.jsonl")).unwrap();
    let heads = write_log(&log, &to.join("metrics.jsonl"), lock, &record);
    let timings = fs::read_to_string(from.join("timings.jsonl")).unwrap();
    let steps = timings.lines().filter(|line| line.starts_with("{\"step\""));
    let steps: String = steps.map(|line| format!("{line}\n")).collect();
    fs::write(to.join("timings.jsonl"), steps).unwrap();
    for entry in fs::read_dir(from.join("checkpoints")).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let place = to.join("checkpoints").join(&name);
        match name.strip_prefix("step-") {
            None => drop(fs::copy(entry.path(), place).unwrap()),
            Some(step) => {
                let step: usize = step.parse().unwrap();
                fs::create_dir_all(&place).unwrap();
                write_checkpoint(
                    &entry.path(),
                    &place,
                    &locked(lock, "train"),
                    &record,
                    step,
                    &heads[step],
                );
            }
        }
    }
}

/// Puts the state after `step` of the run in `from`, which canonc trained, into the folder `to` as its own.
pub fn put_state(from: &Path, to: &Path, step: usize) {
    let lock = fs::read_to_string(to.join("lock")).unwrap();
    let trainer = fs::read_to_string(to.join("trainer.toml")).unwrap();
    let record = digest("canonc.trainer.v1", &trainer);
    let log = fs::read_to_string(to.join("metrics.jsonl")).unwrap();
    let line = log.lines().nth(step).unwrap();
    let chain = line.split_once(",\"chain\":\"").unwrap().1.trim_end_matches("\"}");
    let name = format!("checkpoints/step-{step:010}");
    write_checkpoint(
        &from.join(&name),
        &to.join(&name),
        &locked(&lock, "train"),
        &record,
        step,
        chain,
    );
}

/// Writes the log, without evaluations, and returns the chain after each line.
fn write_log(log: &str, to: &Path, lock: &str, trainer: &str) -> Vec<String> {
    let mut bodies = Vec::new();
    for line in log.lines() {
        let body = line.split_once(",\"chain\":").unwrap().0;
        if body.starts_with("{\"kind\":\"start\"") {
            let initial = body.split_once("\"initial\":\"").unwrap().1.trim_end_matches('"');
            bodies.push(format!(
                "{{\"kind\":\"external\",\"version\":1,\"lock\":\"{}\",\"eval\":\"{}\",\"initial\":\"{initial}\",\"trainer\":\"{trainer}\"",
                locked(lock, "train"),
                locked(lock, "eval"),
            ));
        } else if body.starts_with("{\"kind\":\"step\"") {
            // As Python writes exponents.
            bodies.push(body.replace("e-5,", "e-05,").replace("e-6,", "e-06,"));
        }
    }
    let (mut text, mut heads) = (String::new(), Vec::<String>::new());
    for body in bodies {
        let before = heads.last().cloned().unwrap_or_default();
        let chain = digest("canonc.external.v1", &format!("{before}\n{body}}}"));
        text.push_str(&format!("{body},\"chain\":\"{chain}\"}}\n"));
        heads.push(chain);
    }
    fs::write(to, text).unwrap();
    heads
}

fn write_checkpoint(from: &Path, to: &Path, lock: &str, trainer: &str, step: usize, chain: &str) {
    let manifest = fs::read_to_string(from.join("checkpoint.toml")).unwrap();
    let mut body = format!(
        "# @generated by canonc: a state of a run. The seal is over the text above it.\n\
         version = 2\nlock = \"{lock}\"\ntrainer = \"{trainer}\"\nstep = {step}\nchain = \"{chain}\"\n"
    );
    for part in ["weights", "first_moment", "second_moment"] {
        let file = format!("{part}.safetensors");
        let bytes =
            other_header(&fs::read(from.join(&file)).unwrap(), &format!("lock {lock} step {step}"));
        fs::write(to.join(&file), &bytes).unwrap();
        // It does not depend on the file.
        let tensors = manifest.split_once(&format!("[{part}]")).unwrap().1;
        let tensors = tensors.split_once("tensors = \"").unwrap().1.split_once('"').unwrap().0;
        body.push_str(&format!(
            "\n[{part}]\nbytes = {}\nfile = \"{}\"\ntensors = \"{tensors}\"\n",
            bytes.len(),
            blake3::hash(&bytes).to_hex()
        ));
    }
    let seal = digest("canonc.external-checkpoint.v1", &body);
    fs::write(to.join("checkpoint.toml"), format!("{body}\n[seal]\ndigest = \"{seal}\"\n"))
        .unwrap();
}

/// A safetensors file with the header of another writer: other spaces, one more metadata entry, members in another order.
fn other_header(bytes: &[u8], named: &str) -> Vec<u8> {
    let length = usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
    let mut header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    header["__metadata__"] = serde_json::json!({"canonc": named, "format": "pt"});
    let header = serde_json::to_string_pretty(&header).unwrap();
    let mut written = (header.len() as u64).to_le_bytes().to_vec();
    written.extend_from_slice(header.as_bytes());
    written.extend_from_slice(&bytes[8 + length..]);
    written
}

/// A digest in a lock.
fn locked(lock: &str, name: &str) -> String {
    let digests = lock.split_once("[digests]").unwrap().1;
    let line = digests.lines().find_map(|line| line.strip_prefix(&format!("{name} = \"")));
    line.unwrap().trim_end_matches('"').to_owned()
}

fn digest(tag: &str, text: &str) -> String {
    Digest::of(tag, text).to_string()
}
