//! Slurm scripts of `canonc export --to slurm` and `canonc compare --to slurm`, run here by a fake `srun`. Runs have
//! the bits of runs without Slurm, and two workers never train the same run.
//!
//! The fake does what Slurm documents and no more: it reads `#SBATCH` lines, starts as many processes as they require
//! with the variables of a step, passes signals on to them, and ends with the highest exit code.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::BufRead as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::super::{DEPO, Place, experiment, said, signal};
use super::compare::comparison;

const SRUN: &str = r#"#!/bin/bash
while [[ "$1" == --* ]]; do shift; done
pids=()
trap 'kill -USR2 "${pids[@]}"' USR2
for ((rank = 0; rank < FAKE_TASKS; rank++)); do
  SLURM_PROCID=$rank SLURM_STEP_NUM_TASKS=$FAKE_TASKS SLURM_NTASKS_PER_NODE=$FAKE_TASKS "$@" &
  pids+=($!)
done
echo "${pids[@]}" > "$FAKE_HOME/pids"
code=0
for pid in "${pids[@]}"; do
  while true; do
    ended=0; wait "$pid" || ended=$?
    # A signal ends `wait`, too.
    kill -0 "$pid" 2> "$FAKE_HOME/ignored" || break
  done
  if ((ended > code)); then code=$ended; fi
done
exit "$code"
"#;

const SCONTROL: &str = r#"#!/bin/bash
case "$1 $2" in
  "show job") echo "   Command=$FAKE_SCRIPT" ;;
  "show hostnames") echo 127.0.0.1 ;;
  requeue*) echo "$2" >> "$FAKE_HOME/requeued" ;;
esac
"#;

/// A folder of a fake Slurm, first in PATH.
struct Slurm {
    home: tempfile::TempDir,
}

impl Slurm {
    fn new() -> Slurm {
        let home = tempfile::tempdir().unwrap();
        for (name, text) in [("srun", SRUN), ("scontrol", SCONTROL)] {
            let path = home.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Slurm { home }
    }

    /// Starts a script as `sbatch` would, in a task of its array.
    fn submit(&self, workspace: &Place, script: &Path, job: u32, task: u32) -> Child {
        let text = fs::read_to_string(script).unwrap();
        let option = |name: &str| {
            let line =
                text.lines().find_map(|line| line.strip_prefix(&format!("#SBATCH --{name}=")));
            line.unwrap_or_else(|| panic!("no --{name}: {text}")).to_owned()
        };
        let number = |name: &str| option(name).parse::<u32>().unwrap();
        let tasks = number("nodes") * number("ntasks-per-node");
        let path = format!("{}:{}", self.home.path().display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("bash");
        command.arg(script).current_dir(workspace.root.path());
        command
            .env("PATH", path)
            .env("FAKE_TASKS", tasks.to_string())
            .env("FAKE_HOME", self.home.path())
            .env("FAKE_SCRIPT", script)
            .env("SLURM_JOB_ID", job.to_string())
            .env("SLURM_ARRAY_JOB_ID", job.to_string())
            .env("SLURM_ARRAY_TASK_ID", task.to_string())
            .env("SLURM_JOB_NODELIST", "here")
            .env("CANONC", env!("CARGO_BIN_EXE_canonc"));
        for name in ["OMP_NUM_THREADS", "MKL_NUM_THREADS"] {
            command.env(name, "1");
        }
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    }

    #[cfg(feature = "ext")]
    fn requeued(&self) -> String {
        fs::read_to_string(self.home.path().join("requeued")).unwrap_or_default()
    }
}

/// Waits for a script; returns its exit code and output.
fn ended(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().unwrap();
    (output.status.code(), said(&output))
}

/// A lock with five micro-batches.
fn five_micro_batches(steps: u64) -> Place {
    let steps = format!("steps = {steps}");
    let five = ("micro_batches = 2", "micro_batches = 5");
    Place::new(&experiment("wide", DEPO, &[("steps = 6", &steps), five]))
}

#[cfg(feature = "ext")]
#[test]
fn an_exported_script_trains_with_ranks_and_has_the_bits_of_one_process() {
    let workspace = five_micro_batches(6);
    workspace.exits(0, "run --dir straight");
    let output = workspace.exits(0, "export lockfiles/small.lock --to slurm --ranks 3 --out job");
    assert!(output.contains("job/launch.sh") && output.contains("job/small.lock"), "{output}");
    let slurm = Slurm::new();
    let script = workspace.path("job/launch.sh");
    let (code, output) = ended(slurm.submit(&workspace, &script, 7, 0));
    assert_eq!(code, Some(0), "{output}");
    crate::same(&workspace.bits("straight", 6), &workspace.bits("runs/small", 6), "Slurm");
    assert_eq!(workspace.attestation("runs/small").machine.get("ranks"), Some(&"3".to_owned()));
    workspace.holds("runs/small");
    assert_eq!(slurm.requeued(), "");
    let output = workspace.exits(2, "export lockfiles/small.lock --to slurm --ranks 6 --out other");
    assert!(output.contains("6 ranks cannot share the 5 micro-batches"), "{output}");
    let output = workspace
        .exits(2, "export lockfiles/small.lock --to slurm --ranks 3 --gpus-per-node 2 --out other");
    assert!(output.contains("3 ranks do not fill machines of 2"), "{output}");
    // A run's folder is continued where it is.
    workspace.exits(75, "run --dir elsewhere --stop-after-step 2");
    workspace.exits(0, "export elsewhere --to slurm --ranks 2 --out again");
    let (code, output) = ended(slurm.submit(&workspace, &workspace.path("again/launch.sh"), 8, 0));
    assert_eq!(code, Some(0), "{output}");
    crate::same(&workspace.bits("straight", 6), &workspace.bits("elsewhere", 6), "continued");
}

#[cfg(feature = "ext")]
#[test]
fn before_the_end_of_its_time_a_job_stops_with_a_checkpoint_and_is_queued_again() {
    let workspace = five_micro_batches(300);
    workspace.exits(0, "export lockfiles/small.lock --to slurm --ranks 3 --out job");
    let slurm = Slurm::new();
    let script = workspace.path("job/launch.sh");
    let mut child = slurm.submit(&workspace, &script, 9, 0);
    let mut lines = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut output = String::new();
    while !output.contains("step ") {
        assert!(lines.read_line(&mut output).unwrap() > 0, "{output}");
    }
    // Slurm signals the tasks of a step; here only one of them, which is enough.
    let pids = fs::read_to_string(slurm.home.path().join("pids")).unwrap();
    let last = pids.split_whitespace().last().unwrap();
    assert!(Command::new("kill").args(["-USR2", last]).status().unwrap().success());
    while lines.read_line(&mut output).unwrap() > 0 {}
    assert_eq!(child.wait().unwrap().code(), Some(75), "{output}");
    assert!(output.contains("interrupted after step"), "{output}");
    assert_eq!(slurm.requeued(), "9\n");
}

const COMPARED: &str =
    "base = \"plain\"\ntreatment = [\"canon\"]\n[seeds]\ninit = [1, 2]\ndata = [1, 2]\n";

#[test]
fn an_array_of_workers_trains_each_missing_run_once() {
    let short: &[(&str, &str)] = &[("steps = 6", "steps = 3")];
    let workspace =
        comparison(&[("plain", "small", short), ("treated", "small_canon", short)], COMPARED);
    workspace.exits(0, "build -q both.toml");
    let output = workspace.type_in("compare lockfiles/both.lock --to slurm");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let script = workspace.path("it's.sh");
    fs::write(&script, &output.stdout).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("--array=0-3\n") && text.contains("4 missing runs"), "{text}");
    // A worker on another machine died while it trained this run, a day ago.
    let claims = workspace.path("runs/both/claims");
    fs::create_dir_all(&claims).unwrap();
    let dead = fs::File::create(claims.join("both-plain-seed1.1")).unwrap();
    let day = std::time::Duration::from_secs(86_400);
    dead.set_modified(std::time::SystemTime::now() - day).unwrap();
    // Another worker trains this run now.
    fs::write(claims.join("both-treated-seed2.1"), "process 1 on node17").unwrap();
    let slurm = Slurm::new();
    let workers: Vec<Child> =
        (0..3).map(|task| slurm.submit(&workspace, &script, 5, task)).collect();
    let ends: Vec<_> = workers.into_iter().map(ended).collect();
    let output: String = ends.iter().map(|(_, output)| output.as_str()).collect();
    assert!(ends.iter().all(|(code, _)| *code == Some(0)), "{output}");
    assert!(
        output.contains("both-treated-seed2 is being trained by process 1 on node17"),
        "{output}"
    );
    for run in ["both-plain-seed1", "both-plain-seed2", "both-treated-seed1"] {
        workspace.holds(&format!("runs/both/{run}"));
        let events =
            fs::read_to_string(workspace.path(&format!("runs/both/{run}/events.jsonl"))).unwrap();
        assert_eq!(events.matches("\"started\"").count(), 1, "{run}: {events}");
        assert_eq!(output.matches(&format!("run {run}\n")).count(), 1, "{output}");
    }
    assert!(!workspace.path("runs/both/both-treated-seed2").exists());
    // That worker has ended: its run is the only missing one.
    fs::remove_file(claims.join("both-treated-seed2.1")).unwrap();
    workspace.exits(0, "compare lockfiles/both.lock --work");
    let output = workspace.exits(0, "compare lockfiles/both.lock");
    assert!(output.contains("Means over 2 seeds"), "{output}");
    assert_eq!(output.matches("already finished").count(), 4, "{output}");
    let output = workspace.exits(2, "compare lockfiles/both.lock --to slurm");
    assert!(output.contains("no run is missing"), "{output}");
}

#[test]
fn a_worker_that_is_stopped_gives_its_run_back() {
    let long: &[(&str, &str)] = &[("steps = 6", "steps = 400")];
    let workspace =
        comparison(&[("plain", "small", long), ("treated", "small_canon", long)], COMPARED);
    workspace.exits(0, "build -q both.toml");
    let (mut child, mut lines) = workspace.start("compare lockfiles/both.lock --work");
    let mut output = String::new();
    while !output.contains("step ") {
        assert!(lines.read_line(&mut output).unwrap() > 0, "{output}");
    }
    let claims = || fs::read_dir(workspace.path("runs/both/claims")).unwrap().count();
    assert_eq!(claims(), 1);
    signal(&child, "-USR2");
    while lines.read_line(&mut output).unwrap() > 0 {}
    assert_eq!(child.wait().unwrap().code(), Some(75), "{output}");
    assert_eq!(claims(), 0);
    assert!(output.contains("interrupted after step"), "{output}");
}

#[test]
fn a_run_stops_after_a_time_and_before_the_end_of_a_job() {
    let workspace = five_micro_batches(100_000);
    let output = workspace.exits(75, "run --stop-after 1s --dir timed");
    assert!(output.contains("interrupted"), "{output}");
    let output = workspace.exits(2, "run --stop-after 5x");
    assert!(output.contains("give 90s, 30m or 3h50m"), "{output}");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let end = (now.as_secs() + 3).to_string();
    let output =
        workspace.command("run --dir job").env("SLURM_JOB_END_TIME", end).output().unwrap();
    assert_eq!(output.status.code(), Some(75), "{}", said(&output));
}
