//! Training on several processes. Any number of ranks has the bits of one; a rank that dies or hangs is named, and the
//! run continues from its last checkpoint. Only on Linux: the tests find a rank's process in /proc.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, ChildStderr, Command, Stdio};

use lab::experiment::Shard;

use super::super::{DEPO, Place, experiment, said, same, signal};

/// Five micro-batches a step, so that no number of ranks but one divides them.
fn five_micro_batches(steps: u64, more: &str) -> Place {
    let steps = format!("steps = {steps}");
    let platform = format!("{more}\n[platform]");
    let five = ("micro_batches = 2", "micro_batches = 5");
    let changes = [("steps = 6", steps.as_str()), five, ("[platform]", &platform)];
    Place::new(&experiment("wide", DEPO, &changes))
}

#[test]
fn two_three_and_four_processes_have_the_bits_of_one() {
    // Micro-batches are divided before the policy counts: in bf16 one number of ranks shows that its bits are exchanged.
    for (policy, numbers) in [("f32", &[2, 3, 4][..]), ("bf16", &[3])] {
        let workspace = five_micro_batches(6, &format!("[precision]\npolicy = \"{policy}\""));
        workspace.exits(0, "run --dir straight");
        let straight = workspace.bits("straight", 6);
        for ranks in numbers {
            let run = format!("on{ranks}");
            let output = workspace.exits(0, &format!("run --dir {run} --ranks {ranks}"));
            assert!(output.contains("step 6/6"), "{output}");
            same(&straight, &workspace.bits(&run, 6), &format!("{ranks} ranks, {policy}"));
            workspace.holds(&run);
            let machine = workspace.attestation(&run).machine;
            assert_eq!(machine.get("ranks"), Some(&ranks.to_string()));
        }
    }
}

/// Without `platform.threads`, one process uses all cores and two share them.
#[test]
fn ranks_that_share_the_cores_have_the_bits_of_one() {
    let changes = [
        ("steps = 6", "steps = 3"),
        ("micro_batches = 2", "micro_batches = 4"),
        ("threads = 1", ""),
    ];
    let workspace = Place::new(&experiment("wide", DEPO, &changes));
    workspace.exits(0, "run --dir straight");
    workspace.exits(0, "run --dir shared --ranks 2");
    same(&workspace.bits("straight", 3), &workspace.bits("shared", 3), "shared");
    workspace.holds("shared");
}

#[test]
fn a_run_continues_with_any_number_of_processes() {
    let workspace = five_micro_batches(8, "");
    workspace.exits(0, "run --dir straight");
    for (ranks, step) in [(3, 2), (1, 4), (4, 6)] {
        workspace.exits(75, &format!("run --dir moved --ranks {ranks} --stop-after-step {step}"));
    }
    workspace.exits(0, "run --dir moved --ranks 2");
    same(&workspace.bits("straight", 8), &workspace.bits("moved", 8), "moved");
    workspace.holds("moved");
}

/// The processes of a run by rank.
fn ranks_of(parent: &Child) -> BTreeMap<u32, u32> {
    let mut ranks = BTreeMap::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(id) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        // The parent's id is the second number after the name, which ends with the last parenthesis.
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let after = stat.rsplit(')').next().unwrap_or_default();
        if after.split_whitespace().nth(1) != Some(parent.id().to_string().as_str()) {
            continue;
        }
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        let rank = environment
            .split(|byte| *byte == 0)
            .find_map(|line| std::str::from_utf8(line).ok()?.strip_prefix("RANK=")?.parse().ok());
        ranks.extend(rank.map(|rank: u32| (rank, id)));
    }
    ranks
}

fn send(id: u32, name: &str) {
    let status = Command::new("kill").args([name, &id.to_string()]).status().unwrap();
    assert!(status.success());
}

/// Reads the output up to the line of the first step.
fn until_first_step(lines: &mut dyn BufRead) -> String {
    let mut output = String::new();
    while !output.contains("step ") {
        assert!(lines.read_line(&mut output).unwrap() > 0, "{output}");
    }
    output
}

/// A run of which a rank got a signal.
struct SignalledRun {
    child: Child,
    lines: BufReader<ChildStderr>,
    output: String,
}

impl SignalledRun {
    /// Starts a run, and sends a signal to a rank after the first step.
    fn start(workspace: &Place, words: &str, rank: u32, name: &str) -> SignalledRun {
        let (child, mut lines) = workspace.start(words);
        let output = until_first_step(&mut lines);
        send(ranks_of(&child)[&rank], name);
        SignalledRun { child, lines, output }
    }

    /// The exit code and the output.
    fn end(mut self) -> (Option<i32>, String) {
        while self.lines.read_line(&mut self.output).unwrap() > 0 {}
        (self.child.wait().unwrap().code(), self.output)
    }
}

fn run_and_signal_rank(
    workspace: &Place,
    words: &str,
    rank: u32,
    name: &str,
) -> (Option<i32>, String) {
    SignalledRun::start(workspace, words, rank, name).end()
}

#[test]
fn a_rank_that_is_killed_ends_all_and_is_named() {
    let workspace = five_micro_batches(40, "");
    workspace.exits(0, "run --dir straight");
    for rank in [1, 2] {
        let (code, output) =
            run_and_signal_rank(&workspace, "run --dir killed --ranks 3", rank, "-KILL");
        assert_eq!(code, Some(3), "{output}");
        assert!(output.contains(&format!("error: rank {rank} does not respond")), "{output}");
        assert!(output.contains("continues from its last checkpoint"), "{output}");
    }
    let (code, output) = run_and_signal_rank(&workspace, "run --dir killed --ranks 3", 0, "-KILL");
    assert_eq!(code, Some(3), "{output}");
    assert!(output.contains("rank 0 ended early"), "{output}");
    workspace.exits(0, "run --dir killed --ranks 2");
    same(&workspace.bits("straight", 40), &workspace.bits("killed", 40), "killed");
}

#[test]
fn a_rank_that_hangs_ends_all_and_is_named() {
    let workspace = five_micro_batches(300, "");
    // Both runs wait for their time-outs at the same time.
    let stop = |dir: &str, rank| {
        let words = format!("run --dir {dir} --ranks 3 --rank-timeout 3");
        SignalledRun::start(&workspace, &words, rank, "-STOP")
    };
    let [hangs, leader] = [("hangs", 1), ("leader", 0)].map(|(dir, rank)| stop(dir, rank));
    let (code, output) = hangs.end();
    assert_eq!(code, Some(3), "{output}");
    assert!(output.contains("rank 1 does not respond"), "{output}");
    assert!(output.contains("killed: 1"), "{output}");
    // Rank 0 also hosts the rendezvous of the ranks, which then does not answer.
    let (code, output) = leader.end();
    assert_eq!(code, Some(3), "{output}");
    assert!(output.contains("rank 0 hangs, and the others gave up on it"), "{output}");
}

#[test]
fn ranks_stop_when_the_process_that_started_them_is_killed() {
    let workspace = five_micro_batches(300, "");
    let (mut child, mut lines) = workspace.start("run --dir orphans --ranks 2");
    let mut output = until_first_step(&mut lines);
    send(child.id(), "-KILL");
    // Ends when the last rank has closed it.
    while lines.read_line(&mut output).unwrap() > 0 {}
    child.wait().unwrap();
    assert!(output.contains("interrupted after step"), "{output}");
}

#[test]
fn sigterm_to_any_rank_stops_the_run() {
    let workspace = five_micro_batches(300, "");
    let (code, output) = run_and_signal_rank(&workspace, "run --dir stopped --ranks 3", 2, "-TERM");
    assert_eq!(code, Some(75), "{output}");
    assert!(output.contains("interrupted after step"), "{output}");
    let (mut child, mut lines) = workspace.start("run --dir stopped --ranks 2");
    let mut output = until_first_step(&mut lines);
    signal(&child, "-TERM");
    while lines.read_line(&mut output).unwrap() > 0 {}
    assert_eq!(child.wait().unwrap().code(), Some(75), "{output}");
}

#[test]
fn incomplete_variables_of_a_launcher_are_refused() {
    let workspace = five_micro_batches(6, "");
    for (variables, wanted) in [
        ([("RANK", "5"), ("WORLD_SIZE", "2")], "RANK is 5 and WORLD_SIZE is 2"),
        ([("RANK", "one"), ("WORLD_SIZE", "2")], "RANK is `one`"),
        ([("RANK", "0"), ("WORLD_SIZE", "2")], "MASTER_ADDR"),
    ] {
        let output = workspace.command("run").envs(variables).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(wanted), "{}", said(&output));
    }
    // One process under a launcher runs as one without a launcher.
    let output =
        workspace.command("run").envs([("RANK", "0"), ("WORLD_SIZE", "1")]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}

#[test]
fn a_lock_for_several_devices_says_how_to_start_them() {
    let recipe = DEPO.replace("[platform]", "[platform]\ndevices = 2\nshard = \"optimizer\"");
    let workspace = Place::new(&experiment("wide", &recipe, &[]));
    let output = workspace.exits(3, "run");
    assert!(output.contains("platform.devices = 2") && output.contains("--ranks 2"), "{output}");
    workspace.exits(0, "run --ranks 2");
    workspace.exits(0, "run --ranks 1 --dir alone");
    same(&workspace.bits("runs/small", 6), &workspace.bits("alone", 6), "devices");
}

#[test]
fn more_ranks_than_micro_batches_are_refused() {
    let workspace = five_micro_batches(6, "");
    let output = workspace.exits(2, "run --ranks 6");
    assert!(output.contains("6 ranks cannot share the 5 micro-batches"), "{output}");
    assert!(!workspace.path("runs").exists());
}

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// A run in which one rank was to be killed.
struct KilledRun {
    ranks: u64,
    victim: u32,
    /// The victim was there to be killed.
    killed: bool,
    code: Option<i32>,
    output: String,
}

/// Starts a run on several ranks, and kills one of them at a random moment.
fn run_and_kill_rank(workspace: &Place, folder: &str, random: &mut Random) -> KilledRun {
    let ranks = 2 + random.below(3);
    let (mut child, mut lines) = workspace.start(&format!("run --dir {folder} --ranks {ranks}"));
    // Up to the start of a step, the rendezvous, or before it.
    let mut output = String::new();
    for _ in 0..random.below(24) {
        if lines.read_line(&mut output).unwrap() == 0 {
            break;
        }
    }
    for _ in 0..random.below(8_000_000) {
        std::hint::spin_loop();
    }
    let victim = random.below(ranks) as u32;
    let killed = match ranks_of(&child).get(&victim) {
        // It has not started yet, or has ended.
        None => false,
        Some(id) => {
            let mut kill = Command::new("kill");
            kill.args(["-KILL", &id.to_string()]).stderr(Stdio::null());
            kill.status().unwrap().success()
        }
    };
    while lines.read_line(&mut output).unwrap() > 0 {}
    let code = child.wait().unwrap().code();
    KilledRun { ranks, victim, killed, code, output }
}

/// The output of a run that a killed rank ended names it, unless the ranks had not met yet.
fn assert_victim_is_named(run: &KilledRun) {
    let KilledRun { victim, output, .. } = run;
    // On a busy machine another rank may be silent, too.
    let names_victim = |line: &str| {
        let is_failure =
            ["respond", "ended early", "failed"].iter().any(|word| line.contains(word));
        let mut words = line.split(|c: char| !c.is_ascii_digit());
        is_failure && words.any(|word| word == victim.to_string())
    };
    let met = !output.contains("did not come in time");
    assert!(!met || output.lines().any(names_victim), "{victim}: {output}");
}

/// Kills ranks at random moments until runs have been ended by it so many times; then lets the last run finish.
fn survives(kills: u64, seed: u64) {
    let workspace = five_micro_batches(60, "");
    workspace.exits(0, "run --dir straight");
    let straight = workspace.bits("straight", 60);
    let mut random = Random(seed);
    let mut finished_runs = 0;
    let mut successful_kills = 0;
    while successful_kills < kills {
        let folder = format!("killed{finished_runs}");
        let run = run_and_kill_rank(&workspace, &folder, &mut random);
        let KilledRun { ranks, victim, killed, code, ref output } = run;
        assert!(
            [Some(0), Some(3)].contains(&code),
            "{code:?} after killing rank {victim} of {ranks}: {output}"
        );
        if killed && code == Some(3) {
            assert_victim_is_named(&run);
            successful_kills += 1;
        }
        if code == Some(0) {
            same(&straight, &workspace.bits(&folder, 60), &format!("{folder}: {output}"));
            finished_runs += 1;
        }
    }
    let folder = format!("killed{finished_runs}");
    workspace.exits(0, &format!("run --dir {folder}"));
    same(&straight, &workspace.bits(&folder, 60), &folder);
    workspace.holds(&folder);
}

#[test]
fn a_run_whose_ranks_are_killed_at_random_has_the_bits_of_the_straight_run() {
    survives(u64::from(support::cases(8)), 0x9e37_79b9_7f4a_7c15);
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts one rank, as a launcher would.
fn start_rank(workspace: &Place, rank: u32, world_size: u32, port: u16, words: &str) -> Child {
    let mut command = workspace.command(&format!("run --rank-timeout 60 {words}"));
    command
        .env("RANK", rank.to_string())
        .env("WORLD_SIZE", world_size.to_string())
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", port.to_string());
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_rank_with_other_options_or_another_lock_is_named() {
    let workspace = five_micro_batches(6, "");
    let port = free_port();
    let start = |rank, words: &str| start_rank(&workspace, rank, 3, port, words);
    let exit_code_and_output = |child: Child| {
        let output = child.wait_with_output().unwrap();
        (output.status.code(), said(&output))
    };
    let ranks = [start(0, ""), start(1, "--stop-after-step 3"), start(2, "")];
    let ends: Vec<_> = ranks.into_iter().map(exit_code_and_output).collect();
    for (code, output) in &ends {
        assert_eq!(*code, Some(3), "{output}");
    }
    // Each rank compares itself with the others, and gets another's refusal if that comes first.
    let names_difference = |output: &str, pairs: [&str; 2], what: &str| {
        pairs.iter().any(|pair| output.contains(&format!("ranks {pair} differ: ")))
            && output.contains(what)
    };
    let stop = "rank 1 has --stop-after-step 3";
    assert!(names_difference(&ends[0].1, ["1 and 0", "0 and 1"], stop), "{ends:?}");
    assert!(!workspace.path("runs").exists(), "nothing was begun");
    // A rank with another lock, which its folder does not have.
    let faster = experiment(
        "wide",
        DEPO,
        &[("lr = 0.01", "lr = 0.02"), ("micro_batches = 2", "micro_batches = 5")],
    );
    workspace.lock("other", &lab::lock::Lock::Experiment(faster));
    let lock = "--lock lockfiles/small.lock";
    let ranks = [start(0, lock), start(1, lock), start(2, "--lock lockfiles/other.lock")];
    let ends: Vec<_> = ranks.into_iter().map(exit_code_and_output).collect();
    assert!(names_difference(&ends[0].1, ["2 and 0", "0 and 2"], "rank 2 has lock"), "{ends:?}");
}

/// Compares what `--dry-run` predicts for a rank with the memory of two processes and the bytes that rank 0 received.
#[test]
fn the_memory_of_a_rank_is_predicted_and_its_bytes_exactly() {
    // What a kind of sharding keeps is enough to measure at few sequences; that of all weights is small without many.
    for (shard, word, sequences) in [
        (Shard::None, "none", "sequences = 8"),
        (Shard::Optimizer, "optimizer", "sequences = 16"),
        (Shard::Full, "full", "sequences = 32"),
    ] {
        let platform = format!("[platform]\nshard = \"{word}\"");
        let changes = [
            ("sequences = 2", sequences),
            ("steps = 6", "steps = 3"),
            ("[platform]", platform.as_str()),
        ];
        let experiment = experiment("large", DEPO, &changes);
        let workspace = Place::new(&experiment);
        let table = workspace.exits(0, "run --dry-run --ranks 2");
        let row = table.lines().find(|line| line.starts_with("memory")).unwrap();
        assert!(row.contains(" MiB for each of 2 ranks (weights"), "{row}");
        let predicted: f64 = row.split_whitespace().nth(1).unwrap().parse().unwrap();
        // The allocator gives back what is freed: otherwise the peak also has what it keeps for later.
        let mut run = workspace.command("run --ranks 2");
        let output = run.env("MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let timings = fs::read_to_string(workspace.path("runs/small/timings.jsonl")).unwrap();
        let timings: Vec<serde_json::Value> =
            timings.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let peaks =
            timings.iter().filter_map(|line| line.get("ranks_peak_memory_bytes")?.as_array());
        let peaks: Vec<f64> =
            peaks.flatten().map(|bytes| bytes.as_f64().unwrap() / 1_048_576.0).collect();
        assert_eq!(peaks.len(), 4, "two ranks, two checkpoints");
        let measured = peaks.iter().copied().fold(0.0, f64::max);
        assert!(
            (predicted / measured - 1.0).abs() < 0.05,
            "shard {word}: {predicted} MiB predicted, {measured} measured"
        );

        let plans =
            compiler::plans::train(&experiment.arch.compiled.graph, &experiment.train_options());
        let device = scale::device::Device::named("h100").unwrap();
        let question =
            scale::predict::Question { ranks: 2, shard, local: 2, by_node: false, device };
        let schedule = scale::predict::schedule(&experiment, &plans, &question);
        let bytes =
            schedule.step().into_iter().map(|action| schedule.received(action, 0, 2).total());
        let wanted: u64 = bytes.sum();
        let received: Vec<u64> =
            timings.iter().filter_map(|line| line.get("received")?.as_u64()).collect();
        // A step's counts and digests arrive in the step before: the first has those of two steps, the last none.
        let [first, middle, last] = received[..] else { panic!("shard {word}: {received:?}") };
        assert_eq!([middle, (first + last) / 2], [wanted; 2], "shard {word}: {received:?}");
        assert!(first > middle && last < middle, "shard {word}: {received:?}");
    }
}

/// The slowest rank of a step and its seconds, and the median of all, are in the timings.
#[test]
fn timings_name_the_slowest_rank_of_each_step() {
    let workspace = five_micro_batches(4, "");
    workspace.exits(0, "run --ranks 3");
    let timings = fs::read_to_string(workspace.path("runs/small/timings.jsonl")).unwrap();
    let steps: Vec<serde_json::Value> = timings
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &serde_json::Value| line.get("step").is_some())
        .collect();
    assert_eq!(steps.len(), 4);
    for step in steps {
        let slowest = &step["slowest"];
        assert!(slowest["rank"].as_u64().unwrap() < 3, "{step}");
        let (most, median) =
            (slowest["seconds"].as_f64().unwrap(), step["computing"].as_f64().unwrap());
        assert!(
            median > 0.0 && most >= median && most <= step["seconds"].as_f64().unwrap(),
            "{step}"
        );
    }
}

/// Each rank needs to see the run's folder to write its part of a checkpoint; else rank 0 writes all and reports that.
#[test]
fn a_rank_that_does_not_see_the_folder_leaves_checkpoints_to_rank_0() {
    let workspace = five_micro_batches(6, "");
    workspace.exits(0, "run --dir straight");
    let elsewhere = tempfile::tempdir().unwrap();
    let port = free_port();
    let start = |rank, dir: &str| start_rank(&workspace, rank, 2, port, &format!("--dir {dir}"));
    let unseen = elsewhere.path().join("run");
    let ranks = [start(0, "here"), start(1, &unseen.to_string_lossy())];
    let ends: Vec<_> = ranks
        .into_iter()
        .map(|child| {
            let output = child.wait_with_output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{}", said(&output));
            said(&output)
        })
        .collect();
    let warning = "warning: rank 1 does not see the run's folder";
    assert_eq!(ends[0].matches(warning).count(), 1, "{ends:?}");
    assert!(!unseen.exists());
    same(&workspace.bits("straight", 6), &workspace.bits("here", 6), "here");
    workspace.holds("here");
}
