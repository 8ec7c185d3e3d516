//! Results of the self-test: lines of JSON as they come, and the tables at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use cli::fail::{Failure, shown};
use cli::output;

pub(super) const SCHEMA: &str = "canonc.selftest.v2";

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "lowercase")]
pub(super) enum Line {
    Machine { schema: String, device: String, facts: BTreeMap<String, String> },
    Golden(Within),
    Kernel(Within),
    Run(Checked),
    Memory(Memory),
    Step(Timed),
    Peer(PeerTime),
    Process(Process),
    End { holds: bool },
}

/// A difference, and what is allowed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Within {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) model: Option<String>,
    pub(super) name: String,
    pub(super) path: String,
    pub(super) bf16: bool,
    pub(super) steps: usize,
    /// JSON has no NaN: it is null.
    #[serde(deserialize_with = "or_nan")]
    pub(super) largest: f64,
    pub(super) allowed: f64,
    pub(super) holds: bool,
}

fn or_nan<'de, D: serde::Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::NAN))
}

/// Something that must be so.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Checked {
    pub(super) name: String,
    pub(super) holds: bool,
    /// What was compared, or the difference.
    pub(super) what: String,
}

/// Bytes of a device or a process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Memory {
    pub(super) model: String,
    pub(super) predicted: u64,
    pub(super) measured: Option<u64>,
}

/// The step of a model.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Timed {
    pub(super) model: String,
    pub(super) bf16: bool,
    pub(super) batch: i64,
    pub(super) seq_len: i64,
    pub(super) ms: f64,
    pub(super) tokens_per_second: f64,
    pub(super) mfu: f64,
}

/// The step of the same model by another program.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PeerTime {
    pub(super) model: String,
    pub(super) program: String,
    pub(super) ms: Option<f64>,
    /// The package that it lacks.
    pub(super) missing: Option<String>,
}

/// A process that has ended.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Process {
    /// Its part, a slash, its name.
    pub(super) name: String,
    pub(super) seconds: f64,
    pub(super) limit: f64,
    /// Why it has fewer results than it should.
    pub(super) failure: Option<String>,
}

impl Line {
    /// Whether a check's process may print it.
    pub(super) fn is_result(&self) -> bool {
        match self {
            Line::Golden(_)
            | Line::Kernel(_)
            | Line::Run(_)
            | Line::Memory(_)
            | Line::Step(_)
            | Line::Peer(_) => true,
            Line::Machine { .. } | Line::Process(_) | Line::End { .. } => false,
        }
    }

    pub(super) fn text(&self) -> Result<String, Failure> {
        serde_json::to_string(self).map_err(|error| Failure::machine(error.to_string()))
    }
}

/// The file, and its lines so far.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: File,
    lines: Vec<Line>,
}

impl Log {
    pub(super) fn create(path: &Path) -> Result<Log, Failure> {
        let cannot = |error: std::io::Error| Failure::cannot_write(path, &error);
        let mut options = File::options();
        let file = options.create(true).append(true).open(path).map_err(cannot)?;
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            return Err(Failure::bad_input("another self-test writes to this file")
                .at(shown(path))
                .help("name another folder with --out, or wait for it"));
        }
        file.set_len(0).map_err(cannot)?;
        Ok(Log { path: path.to_owned(), file, lines: Vec::new() })
    }

    /// Adds a line. It is in the file when this returns, whatever happens to the program next.
    pub(super) fn add(&mut self, line: Line) -> Result<(), Failure> {
        let text = line.text()? + "\n";
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|error| Failure::cannot_write(&self.path, &error))?;
        self.lines.push(line);
        Ok(())
    }

    pub(super) fn lines(&self) -> &[Line] {
        &self.lines
    }
}

/// Whether everything holds. A process that failed counts, except another program's.
pub(super) fn hold(lines: &[Line]) -> bool {
    lines.iter().all(|line| match line {
        Line::Golden(within) | Line::Kernel(within) => within.holds,
        Line::Run(checked) => checked.holds,
        Line::Process(process) => process.failure.is_none() || process.name.starts_with("peers/"),
        Line::Machine { .. }
        | Line::Memory(_)
        | Line::Step(_)
        | Line::Peer(_)
        | Line::End { .. } => true,
    })
}

fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

fn verdict(holds: bool) -> String {
    if holds { "holds" } else { "FAILS" }.to_owned()
}

fn dtype(bf16: bool) -> String {
    if bf16 { "bf16" } else { "f32" }.to_owned()
}

/// The results for people.
pub(super) fn tables(lines: &[Line]) -> String {
    let mut goldens = vec![row(&["golden", "dtype", "path", "largest", "allowed", ""])];
    // One row for each kernel, path and dtype: the worst of all models.
    let mut worst: BTreeMap<(&str, &str, bool), (usize, &Within)> = BTreeMap::new();
    let mut runs = vec![row(&["run", "", ""])];
    let mut memory = vec![row(&["memory", "predicted", "measured", "measured / predicted"])];
    let mut failures = vec![row(&["failed", "seconds", ""])];
    for line in lines {
        match line {
            Line::Golden(within) => goldens.push(vec![
                within.name.clone(),
                dtype(within.bf16),
                within.path.clone(),
                format!("{:.0e}", within.largest),
                format!("{:.0e}", within.allowed),
                verdict(within.holds),
            ]),
            Line::Kernel(within) => {
                let key = (within.name.as_str(), within.path.as_str(), within.bf16);
                let entry = worst.entry(key).or_insert((0, within));
                entry.0 += within.steps;
                if within.largest.is_nan() || within.largest > entry.1.largest {
                    entry.1 = within;
                }
            }
            Line::Run(run) => {
                runs.push(vec![run.name.clone(), verdict(run.holds), run.what.clone()]);
            }
            Line::Memory(Memory { model, predicted, measured }) => {
                let mib = |bytes: u64| format!("{:.0} MiB", bytes as f64 / 1048576.0);
                let ratio =
                    |bytes: u64| format!("{:.2}", bytes as f64 / (*predicted).max(1) as f64);
                memory.push(vec![
                    model.clone(),
                    mib(*predicted),
                    measured.map_or("–".to_owned(), mib),
                    measured.map_or("–".to_owned(), ratio),
                ]);
            }
            Line::Process(Process { name, seconds, limit: _, failure: Some(failure) }) => {
                failures.push(vec![name.clone(), format!("{seconds:.0}"), failure.clone()]);
            }
            Line::Machine { .. }
            | Line::Step(_)
            | Line::Peer(_)
            | Line::Process(_)
            | Line::End { .. } => {}
        }
    }
    let mut kernels = vec![row(&["kernel", "dtype", "path", "steps", "largest", "allowed", ""])];
    for ((name, path, bf16), (steps, within)) in worst {
        kernels.push(vec![
            name.to_owned(),
            dtype(bf16),
            path.to_owned(),
            steps.to_string(),
            format!("{:.0e}", within.largest),
            format!("{:.0e}", within.allowed),
            verdict(within.holds),
        ]);
    }
    let all: [(Vec<Vec<String>>, &[bool]); 6] = [
        (goldens, &[false, false, false, true, true, false]),
        (kernels, &[false, false, false, true, true, true, false]),
        (runs, &[false, false, false]),
        (memory, &[false, true, true, true]),
        (steps(lines), &[false, true, true, true, true, true, true, true, true, true]),
        (failures, &[false, true, false]),
    ];
    // A table without rows was not asked for.
    let mut text: Vec<String> = all
        .iter()
        .filter(|(rows, _)| rows.len() > 1)
        .map(|(rows, right)| output::table(rows, right, 0))
        .collect();
    let absent: BTreeSet<String> = lines.iter().filter_map(absent).collect();
    text.extend((!absent.is_empty()).then(|| absent.into_iter().collect()));
    let holds = if hold(lines) { "everything holds" } else { "not everything holds" };
    text.push(format!("{holds}\n"));
    text.join("\n")
}

/// A peer that is not here.
fn absent(line: &Line) -> Option<String> {
    let Line::Peer(PeerTime { program, missing: Some(package), .. }) = line else { return None };
    Some(format!("{program}: {package} is not installed\n"))
}

/// Steps beside those of other programs.
fn steps(lines: &[Line]) -> Vec<Vec<String>> {
    let head = [
        "step",
        "batch",
        "tokens",
        "ms",
        "tokens/s",
        "MFU",
        "PyTorch ms",
        "ratio",
        "fla ms",
        "ratio",
    ];
    let mut rows = vec![row(&head)];
    let peer = |model: &str, program: &str| {
        lines.iter().find_map(|line| {
            let Line::Peer(peer) = line else { return None };
            (peer.model == model && peer.program == program).then_some(peer.ms?)
        })
    };
    let or_dash = |number: Option<String>| number.unwrap_or_else(|| "–".to_owned());
    for line in lines {
        let Line::Step(step) = line else { continue };
        let mut cells = vec![
            format!("{}, {}", step.model, dtype(step.bf16)),
            step.batch.to_string(),
            step.seq_len.to_string(),
            format!("{:.1}", step.ms),
            format!("{:.0}", step.tokens_per_second),
            format!("{:.1}%", 100.0 * step.mfu),
        ];
        for program in ["PyTorch", "fla"] {
            let ms = peer(&step.model, program);
            cells.push(or_dash(ms.map(|ms| format!("{ms:.1}"))));
            cells.push(or_dash(ms.map(|ms| format!("{:.2}×", ms / step.ms))));
        }
        rows.push(cells);
    }
    rows
}
