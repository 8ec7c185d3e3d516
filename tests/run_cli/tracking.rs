//! Runs that are watched while they train: event files for TensorBoard, and the script for Weights & Biases. At any
//! moment an event file has every step of the log once, in order, in whole records with their checksums. The run's
//! folder has the same bytes as without it, and only one process writes it.

use std::fs;
use std::io::BufRead;
use std::path::PathBuf;

use data::text::index::{OnBadLine, SourceFiles, TextIndex};
use lab::experiment::Experiment;
use lab::field::{FieldValue, Fields};
use lab::lock;
use records::fault::POINTS;
use report::tensorboard::{self, Records};

use super::super::{DEPO, Place, experiment, said, same, signal};
use super::compare::{SHORT, two_arms};

/// The only event file in a folder.
fn event_file(workspace: &Place, folder: &str) -> PathBuf {
    let files = cli::live::event_files(&workspace.path(folder)).unwrap();
    assert_eq!(files.len(), 1, "{files:?}");
    files.into_iter().next().unwrap()
}

/// Reads the event file, and checks that it is a prefix of what the run has logged.
fn read(workspace: &Place, folder: &str, run: &str, experiment: &Experiment) -> Records {
    // Read before the log, which a process may be writing.
    let bytes = fs::read(event_file(workspace, folder)).unwrap();
    let records = tensorboard::read(&bytes);
    assert_eq!(records.lock, Some(experiment.id().to_string()));
    let logged = tensorboard::logged(&workspace.path(run), experiment).unwrap();
    assert!(records.events.len() <= logged.len(), "{} {}", records.events.len(), logged.len());
    for (written, logged) in records.events.iter().zip(&logged) {
        assert!(tensorboard::agree(written, logged), "{written:?} {logged:?}");
    }
    let times: Vec<f64> = records.events.iter().map(|event| event.wall_time).collect();
    assert!(times.is_sorted() && times.iter().all(|time| *time > 1e9), "{times:?}");
    records
}

/// The same for a run that has ended: the file is complete.
fn assert_every_event(workspace: &Place, folder: &str, run: &str, experiment: &Experiment) {
    let records = read(workspace, folder, run, experiment);
    let logged = tensorboard::logged(&workspace.path(run), experiment).unwrap();
    assert_eq!(records.events.len(), logged.len());
    let length = fs::metadata(event_file(workspace, folder)).unwrap().len();
    assert_eq!(records.complete as u64, length);
}

#[test]
fn each_run_of_a_comparison_writes_its_own_event_file() {
    let workspace = two_arms(&[SHORT]);
    workspace.exits(0, "build -q both.toml");
    workspace.exits(2, "compare lockfiles/both.lock --tensorboard runs/both");
    workspace.exits(0, "compare lockfiles/both.lock --tensorboard tb");
    let files =
        fs::read_dir(workspace.path("runs/both")).unwrap().map(|entry| entry.unwrap().path());
    let locks: Vec<PathBuf> =
        files.filter(|path| path.extension() == Some("lock".as_ref())).collect();
    assert_eq!(locks.len(), 5, "{locks:?}");
    for path in locks {
        let run = path.file_stem().unwrap().to_str().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let lock::Lock::Experiment(experiment) = lock::read(run, &text).unwrap() else {
            panic!("{run}")
        };
        assert_every_event(
            &workspace,
            &format!("tb/{run}"),
            &format!("runs/both/{run}"),
            &experiment,
        );
    }
}

#[test]
fn an_event_file_grows_with_the_log_and_leaves_the_run_as_it_is() {
    let small = experiment("small", DEPO, &[("steps = 6", "steps = 30000")]);
    let workspace = Place::new(&small);
    let (mut child, mut lines) = workspace.start("run --dir watched --tensorboard tb");
    let mut line = String::new();
    while !line.contains("step 8/30000") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "it ended");
    }
    // Two evaluations are among them.
    let events = read(&workspace, "tb/small", "watched", &small).events.len();
    assert!((9..1000).contains(&events), "{events}");
    let output = workspace.exits(3, "run --dir other --tensorboard tb");
    assert!(output.contains("is being written by another process"), "{output}");
    assert!(!workspace.path("other").exists(), "nothing is written before a refusal");
    child.kill().unwrap();
    child.wait().unwrap();
    let end = workspace.steps("watched").len() as u64 + 5;
    workspace.exits(75, &format!("run --dir watched --tensorboard tb --stop-after-step {end}"));
    assert_every_event(&workspace, "tb/small", "watched", &small);
    workspace.exits(75, &format!("run --dir straight --stop-after-step {end}"));
    same(&workspace.bits("straight", end), &workspace.bits("watched", end), "watched");
    let names = |run: &str| {
        let entries = fs::read_dir(workspace.path(run)).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names("straight"), names("watched"));
    // Some steps are trained again, and watched only the second time.
    let (mut child, mut lines) = workspace.start("run --dir watched");
    while !line.contains(&format!("step {}/30000", end + 7)) {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "it ended");
    }
    signal(&child, "-KILL");
    child.wait().unwrap();
    let end = workspace.steps("watched").len() + 5;
    workspace.exits(75, &format!("run --dir watched --tensorboard tb --stop-after-step {end}"));
    assert_every_event(&workspace, "tb/small", "watched", &small);
}

#[test]
fn an_event_file_has_each_step_once_wherever_its_run_was_killed() {
    let small = experiment("small", DEPO, &[]);
    let workspace = Place::new(&small);
    for (point, name) in POINTS {
        let (run, tb) = (format!("run-{name}"), format!("tb-{name}"));
        // The third line of the log is a step; other files are written once or more.
        let count = if name.starts_with("metrics") { 3 } else { 1 };
        let words = format!("run --dir {run} --tensorboard {tb} --fault {name}:{count}");
        let code = workspace.type_in(&words).status.code();
        assert_eq!(code, if point.fills_disk() { Some(3) } else { None }, "{name}");
        workspace.exits(0, &format!("run --dir {run} --tensorboard {tb}"));
        assert_every_event(&workspace, &format!("{tb}/small"), &run, &small);
        workspace.holds(&run);
    }
}

#[test]
fn a_torn_event_file_is_cut_and_one_that_disagrees_is_replaced() {
    let small = experiment("small", DEPO, &[]);
    let workspace = Place::new(&small);
    workspace.exits(75, "run --tensorboard tb --stop-after-step 4");
    let path = event_file(&workspace, "tb/small");
    let bytes = fs::read(&path).unwrap();
    let first = tensorboard::first(0.0, &small.id().to_string()).len();
    for end in (0..bytes.len()).step_by(173).chain([first, bytes.len() - 1]) {
        fs::write(&path, &bytes[..end]).unwrap();
        workspace.exits(75, "run --tensorboard tb --stop-after-step 4");
        assert_every_event(&workspace, "tb/small", "runs/small", &small);
        assert_eq!(
            event_file(&workspace, "tb/small"),
            path,
            "TensorBoard goes on in the same file"
        );
    }
    // Steps that the log does not have, as after a loss of power.
    workspace.exits(75, "run --dir ahead --tensorboard tb --stop-after-step 2");
    assert_every_event(&workspace, "tb/small", "ahead", &small);
    workspace.exits(0, "run --tensorboard tb");
    assert_every_event(&workspace, "tb/small", "runs/small", &small);
    // A finished run, and a file of `report`, which replaces the run's own.
    fs::remove_dir_all(workspace.path("tb")).unwrap();
    workspace.exits(0, "run --tensorboard tb");
    assert_every_event(&workspace, "tb/small", "runs/small", &small);
    workspace.exits(0, "report runs/small --out page.html --tensorboard tb");
    assert_every_event(&workspace, "tb/small", "runs/small", &small);
    workspace.exits(0, "run --tensorboard tb");
    assert_every_event(&workspace, "tb/small", "runs/small", &small);
    workspace.holds("runs/small");
}

/// On text in bytes the page also has the loss in bits, which is no metric of the log.
#[test]
fn report_writes_the_events_that_the_run_wrote() {
    let task = DEPO.find("task").unwrap()..DEPO.find("seq_len").unwrap();
    let mut recipe = DEPO.to_owned();
    recipe.replace_range(task, "task = \"text\"\nsource = \"small\"\nheld_out = 0.25\n");
    let open = experiment("small_text", &recipe, &[]);
    let lines = (0..40).map(|i| format!("{{\"text\": \"document {i}\"}}\n"));
    let lines = std::io::Cursor::new(lines.collect::<String>());
    let files = SourceFiles { name: "small".to_owned(), files: vec![("memory".to_owned(), lines)] };
    let (documents, _) = TextIndex::build(vec![files], OnBadLine::Refuse).unwrap();
    let digest = FieldValue::text(documents.identity().to_hex().to_string());
    let bound = Fields::from([("data.digest".to_owned(), digest)]);
    let bound = open.with("small".to_owned(), &bound).unwrap();
    let workspace = Place::new(&bound);
    fs::create_dir(workspace.path("data")).unwrap();
    data::text::file::save(&documents, &workspace.path("data/small.index")).unwrap();
    workspace.exits(0, "run --tensorboard live");
    workspace.exits(0, "report runs/small --out page.html --tensorboard after");
    assert!(fs::read_to_string(workspace.path("page.html")).unwrap().contains("bits per token"));
    assert_every_event(&workspace, "live/small", "runs/small", &bound);
    assert_every_event(&workspace, "after/small", "runs/small", &bound);
    let values = |folder: &str| -> Vec<_> {
        let events = read(&workspace, folder, "runs/small", &bound).events;
        events.into_iter().map(|event| (event.step, event.values)).collect()
    };
    let written = values("after/small");
    assert_eq!(written, values("live/small"));
    let tags = written.iter().flat_map(|(_, values)| values).map(|(tag, _)| tag.as_str());
    let evaluation_tags: Vec<&str> = tags.filter(|tag| tag.starts_with("evaluation/")).collect();
    assert_eq!(evaluation_tags, ["evaluation/eval_loss"; 2]);
}

#[test]
fn files_and_folders_of_others_are_refused_by_name() {
    let workspace = Place::new(&experiment("small", DEPO, &[]));
    workspace.exits(75, "run --tensorboard tb --stop-after-step 1");
    let reseeded = experiment("small", DEPO, &[("init = 1", "init = 7")]);
    workspace.lock("small", &lock::Lock::Experiment(reseeded));
    let output = workspace.exits(2, "run --dir other --tensorboard tb");
    assert!(
        output.contains("has the events of a run of lock") && output.contains("--tensorboard"),
        "{output}"
    );
    for (words, message) in [
        ("run --dir new/small --tensorboard new", "would write into the run's folder"),
        ("run --dir new --tensorboard runs/small", "inside the run in"),
        ("run --dir new --tensorboard lockfiles/small.lock", "but a folder is needed"),
    ] {
        let output = workspace.exits(2, words);
        assert!(output.contains(message), "{words}: {output}");
        assert!(!workspace.path("new").exists(), "{words}: nothing is written before a refusal");
    }
    let path = event_file(&workspace, "tb/small");
    fs::write(&path, "x".repeat(500)).unwrap();
    let output = workspace.exits(2, "run --dir other --tensorboard tb");
    assert!(output.contains("does not look like"), "{output}");
    fs::copy(&path, path.with_file_name("events.out.tfevents.2.canonc")).unwrap();
    let output = workspace.exits(2, "run --dir other --tensorboard tb");
    assert!(output.contains("a run has one event file, but there are 2"), "{output}");
}

#[test]
fn a_dry_run_writes_no_events_and_several_locks_have_one_file_each() {
    let small = experiment("small", DEPO, &[]);
    let workspace = Place::new(&small);
    workspace.exits(0, "run --tensorboard tb --dry-run");
    assert!(!workspace.path("tb").exists());
    let mut renamed = small.clone();
    renamed.name = "other".to_owned();
    workspace.lock("other", &lock::Lock::Experiment(renamed));
    let reseeded = experiment("small", DEPO, &[("init = 1", "init = 7")]);
    workspace.lock("small", &lock::Lock::Experiment(reseeded.clone()));
    workspace.exits(0, "run --tensorboard tb lockfiles/small.lock lockfiles/other.lock");
    assert_every_event(&workspace, "tb/small", "runs/small", &reseeded);
    assert_every_event(&workspace, "tb/other", "runs/other", &small);
}

#[cfg(target_os = "linux")]
#[test]
fn one_of_several_ranks_writes_the_events() {
    let small = experiment("small", DEPO, &[]);
    let workspace = Place::new(&small);
    workspace.exits(0, "run --ranks 2 --tensorboard tb");
    assert_every_event(&workspace, "tb/small", "runs/small", &small);
}

/// A fake `wandb` package that records its calls.
const WANDB: &str = r#"
import json, os
class Settings:
    def __init__(self, **of): pass
class Run:
    def __init__(self, of): self.of, self.logged, self.summary = of, [], {}; self.settings = self; self.sync_dir = "there"
    def log(self, values, step): self.logged.append([step, values])
    def finish(self):
        with open(os.path.join(self.of["dir"], "told.jsonl"), "a") as file:
            file.write(json.dumps({"id": self.of["id"], "mode": self.of["mode"], "config": self.of["config"], "logged": self.logged, "summary": self.summary}) + "\n")
def init(**of): return Run(of)
"#;

/// The script in `docs/` logs each line of a run once, under its step, whatever was logged before.
#[test]
fn the_script_for_weights_and_biases_logs_each_line_once() {
    let small = experiment("small", DEPO, &[]);
    let workspace = Place::new(&small);
    fs::create_dir(workspace.path("fake")).unwrap();
    fs::write(workspace.path("fake/wandb.py"), WANDB).unwrap();
    let script = workspace.type_in("report --wandb-script").stdout;
    assert_eq!(script, include_bytes!("../../docs/log_to_wandb.py"));
    fs::write(workspace.path("log.py"), script).unwrap();
    let log = |run: &str| {
        let mut command = std::process::Command::new("python3");
        command.current_dir(workspace.root.path()).env("PYTHONPATH", "fake");
        command.args(["log.py", run, "--out", "out"]).output().unwrap()
    };
    assert_eq!(log("runs/small").status.code(), Some(2));
    workspace.exits(75, "run --stop-after-step 4");
    for _ in 0..2 {
        let output = log("runs/small");
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        workspace.exits(0, "run");
    }
    let output = log("runs/small");
    assert!(said(&output).contains("nothing new: 8 logged lines"), "{}", said(&output));
    let text = fs::read_to_string(workspace.path("out/told.jsonl")).unwrap();
    let uploads: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let id = small.id().to_string();
    for upload in &uploads {
        assert_eq!((&upload["mode"], &upload["id"]), (&"offline".into(), &id[..16].into()));
        assert_eq!(upload["config"]["lock"], id.as_str());
        assert_eq!(upload["config"]["optimizer.lr"], 0.01);
    }
    assert_eq!(uploads[0]["summary"]["attested"], false);
    assert_eq!(uploads[1]["summary"]["attested"], true);
    // The values are those of the event file.
    let logged = tensorboard::logged(&workspace.path("runs/small"), &small).unwrap();
    let all: Vec<&serde_json::Value> =
        uploads.iter().flat_map(|upload| upload["logged"].as_array().unwrap()).collect();
    assert_eq!(all.len(), logged.len());
    for (line, event) in all.iter().zip(&logged) {
        assert_eq!(line[0], event.step);
        let values = line[1].as_object().unwrap();
        assert_eq!(values.len(), event.values.len(), "{values:?} {event:?}");
        for (tag, value) in &event.values {
            assert_eq!(values[tag].as_f64().unwrap() as f32, *value, "{tag}");
        }
    }
}
