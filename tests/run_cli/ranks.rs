//! Training on several processes. Any number of ranks has the bits of one; a rank that dies or hangs is named, and the
//! run continues from its last checkpoint. Only on Linux: the tests find a rank's process in /proc.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::fs;
use std::io::BufRead;
use std::process::Child;

use lab::experiment::Shard;

use super::super::{DEPO, Place, experiment, said, same, signal};

/// Five micro-batches a step, so that no number of ranks but one divides them.
fn place(steps: u64, more: &str) -> Place {
    let steps = format!("steps = {steps}");
    let platform = format!("{more}\n[platform]");
    let five = ("micro_batches = 2", "micro_batches = 5");
    let changes = [("steps = 6", steps.as_str()), five, ("[platform]", &platform)];
    Place::new(&experiment("wide", DEPO, &changes))
}

#[test]
fn two_three_and_four_processes_have_the_bits_of_one() {
    for policy in ["f32", "bf16"] {
        let place = place(6, &format!("[precision]\npolicy = \"{policy}\""));
        place.exits(0, "run --dir straight");
        let straight = place.bits("straight", 6);
        for ranks in 2..5 {
            let run = format!("on{ranks}");
            let said = place.exits(0, &format!("run --dir {run} --ranks {ranks}"));
            assert!(said.contains("step 6/6"), "{said}");
            same(&straight, &place.bits(&run, 6), &format!("{ranks} ranks, {policy}"));
            place.holds(&run);
            let machine = place.attestation(&run).machine;
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
    let place = Place::new(&experiment("wide", DEPO, &changes));
    place.exits(0, "run --dir straight");
    place.exits(0, "run --dir shared --ranks 2");
    same(&place.bits("straight", 3), &place.bits("shared", 3), "shared");
    place.holds("shared");
}

#[test]
fn a_run_goes_on_with_another_number_of_processes_each_time() {
    let place = place(8, "");
    place.exits(0, "run --dir straight");
    for (ranks, step) in [(3, 2), (1, 4), (4, 6)] {
        place.exits(75, &format!("run --dir moved --ranks {ranks} --stop-after-step {step}"));
    }
    place.exits(0, "run --dir moved --ranks 2");
    same(&place.bits("straight", 8), &place.bits("moved", 8), "moved");
    place.holds("moved");
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
    let status = std::process::Command::new("kill").args([name, &id.to_string()]).status().unwrap();
    assert!(status.success());
}

/// Starts a run, sends a signal to a rank after the first step, and returns the exit code and the output.
fn hurt(place: &Place, words: &str, rank: u32, name: &str) -> (Option<i32>, String) {
    let (mut child, mut lines) = place.start(words);
    let mut told = String::new();
    while !told.contains("step ") {
        assert!(lines.read_line(&mut told).unwrap() > 0, "{told}");
    }
    send(ranks_of(&child)[&rank], name);
    while lines.read_line(&mut told).unwrap() > 0 {}
    (child.wait().unwrap().code(), told)
}

#[test]
fn a_rank_that_is_killed_ends_all_and_is_named() {
    let place = place(40, "");
    place.exits(0, "run --dir straight");
    for rank in [1, 2] {
        let (code, told) = hurt(&place, "run --dir killed --ranks 3", rank, "-KILL");
        assert_eq!(code, Some(3), "{told}");
        assert!(told.contains(&format!("error: rank {rank} does not respond")), "{told}");
        assert!(told.contains("continues from its last checkpoint"), "{told}");
    }
    let (code, told) = hurt(&place, "run --dir killed --ranks 3", 0, "-KILL");
    assert_eq!(code, Some(3), "{told}");
    assert!(told.contains("rank 0 ended early"), "{told}");
    place.exits(0, "run --dir killed --ranks 2");
    same(&place.bits("straight", 40), &place.bits("killed", 40), "killed");
}

#[test]
fn a_rank_that_hangs_ends_all_and_is_named() {
    let place = place(300, "");
    let (code, told) = hurt(&place, "run --dir hangs --ranks 3 --rank-timeout 3", 1, "-STOP");
    assert_eq!(code, Some(3), "{told}");
    assert!(told.contains("rank 1 does not respond"), "{told}");
    assert!(told.contains("killed: 1"), "{told}");
    // Rank 0 also hosts the rendezvous of the ranks, which then does not answer.
    let (code, told) = hurt(&place, "run --dir leader --ranks 3 --rank-timeout 3", 0, "-STOP");
    assert_eq!(code, Some(3), "{told}");
    assert!(told.contains("rank 0 hangs, and the others gave up on it"), "{told}");
}

/// No other process would end them.
#[test]
fn ranks_stop_when_the_process_that_started_them_is_killed() {
    let place = place(300, "");
    let (mut child, mut lines) = place.start("run --dir orphans --ranks 2");
    let mut told = String::new();
    while !told.contains("step ") {
        assert!(lines.read_line(&mut told).unwrap() > 0, "{told}");
    }
    send(child.id(), "-KILL");
    // Ends when the last rank has closed it.
    while lines.read_line(&mut told).unwrap() > 0 {}
    child.wait().unwrap();
    assert!(told.contains("interrupted after step"), "{told}");
}

#[test]
fn any_rank_can_be_asked_to_stop() {
    let place = place(300, "");
    let (code, told) = hurt(&place, "run --dir stopped --ranks 3", 2, "-TERM");
    assert_eq!(code, Some(75), "{told}");
    assert!(told.contains("interrupted after step"), "{told}");
    let (mut child, mut lines) = place.start("run --dir stopped --ranks 2");
    let mut told = String::new();
    while !told.contains("step ") {
        assert!(lines.read_line(&mut told).unwrap() > 0, "{told}");
    }
    signal(&child, "-TERM");
    while lines.read_line(&mut told).unwrap() > 0 {}
    assert_eq!(child.wait().unwrap().code(), Some(75), "{told}");
}

#[test]
fn a_launcher_that_says_too_little_is_refused() {
    let place = place(6, "");
    for (variables, wanted) in [
        ([("RANK", "5"), ("WORLD_SIZE", "2")], "RANK is 5 and WORLD_SIZE is 2"),
        ([("RANK", "one"), ("WORLD_SIZE", "2")], "RANK is `one`"),
        ([("RANK", "0"), ("WORLD_SIZE", "2")], "MASTER_ADDR"),
    ] {
        let output = place.command("run").envs(variables).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(wanted), "{}", said(&output));
    }
    // One process under a launcher runs as one without a launcher.
    let output = place.command("run").envs([("RANK", "0"), ("WORLD_SIZE", "1")]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}

#[test]
fn a_lock_for_several_devices_says_how_to_start_them() {
    let recipe = DEPO.replace("[platform]", "[platform]\ndevices = 2\nshard = \"optimizer\"");
    let place = Place::new(&experiment("wide", &recipe, &[]));
    let said = place.exits(3, "run");
    assert!(said.contains("platform.devices = 2") && said.contains("--ranks 2"), "{said}");
    place.exits(0, "run --ranks 2");
    place.exits(0, "run --ranks 1 --dir alone");
    same(&place.bits("runs/small", 6), &place.bits("alone", 6), "devices");
}

#[test]
fn more_ranks_than_micro_batches_are_refused() {
    let place = place(6, "");
    let said = place.exits(2, "run --ranks 6");
    assert!(said.contains("6 ranks cannot share the 5 micro-batches"), "{said}");
    assert!(!place.path("runs").exists());
}

/// Kills ranks at random moments, again and again, until the run has survived so many; then lets it end.
fn survives(kills: u32, seed: u64) {
    let place = place(60, "");
    place.exits(0, "run --dir straight");
    let straight = place.bits("straight", 60);
    // Marsaglia's xorshift.
    let mut random = seed;
    let mut below = |limit: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % limit
    };
    let mut run = 0;
    let mut done = 0;
    while done < kills {
        let ranks = 2 + below(3);
        let folder = format!("killed{run}");
        let (mut child, mut lines) = place.start(&format!("run --dir {folder} --ranks {ranks}"));
        // Up to the start of a step, the rendezvous, or before it.
        let mut told = String::new();
        for _ in 0..below(24) {
            if lines.read_line(&mut told).unwrap() == 0 {
                break;
            }
        }
        for _ in 0..below(8_000_000) {
            std::hint::spin_loop();
        }
        let victim = below(ranks) as u32;
        let killed = match ranks_of(&child).get(&victim) {
            // It may not be there yet, or not any more.
            None => false,
            Some(id) => {
                let mut kill = std::process::Command::new("kill");
                kill.args(["-KILL", &id.to_string()]).stderr(std::process::Stdio::null());
                kill.status().unwrap().success()
            }
        };
        while lines.read_line(&mut told).unwrap() > 0 {}
        let code = child.wait().unwrap().code();
        assert!(
            [Some(0), Some(3)].contains(&code),
            "{code:?} after killing rank {victim} of {ranks}: {told}"
        );
        if killed && code == Some(3) {
            // On a busy machine another rank may be silent, too.
            let names = |line: &str| {
                let told =
                    ["respond", "ended early", "failed"].iter().any(|word| line.contains(word));
                let mut words = line.split(|c: char| !c.is_ascii_digit());
                told && words.any(|word| word == victim.to_string())
            };
            let met = !told.contains("did not come in time");
            assert!(!met || told.lines().any(names), "{victim}: {told}");
            done += 1;
        }
        if code == Some(0) {
            same(&straight, &place.bits(&folder, 60), &format!("{folder}: {told}"));
            run += 1;
        }
    }
    let folder = format!("killed{run}");
    place.exits(0, &format!("run --dir {folder}"));
    same(&straight, &place.bits(&folder, 60), &folder);
    place.holds(&folder);
}

/// Kills six times, or as often as `CANONC_KILLS`: fifty take minutes.
#[test]
fn a_rank_killed_at_random_moments_and_gone_on_with_is_the_straight_run() {
    let kills = std::env::var("CANONC_KILLS").map_or(6, |count| count.parse().unwrap());
    survives(kills, 0x9e37_79b9_7f4a_7c15);
}

#[test]
fn a_rank_that_differs_or_fails_before_the_meeting_is_named() {
    let place = place(6, "");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let start = |rank: u32, words: &str| {
        let mut command = place.command(&format!("run --rank-timeout 60 {words}"));
        command
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", "3")
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", port.to_string());
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
        command.spawn().unwrap()
    };
    let ended = |child: Child| {
        let output = child.wait_with_output().unwrap();
        (output.status.code(), said(&output))
    };
    let ranks = [start(0, ""), start(1, "--stop-after-step 3"), start(2, "")];
    let ends: Vec<_> = ranks.into_iter().map(ended).collect();
    for (code, told) in &ends {
        assert_eq!(*code, Some(3), "{told}");
    }
    // Each rank compares itself with the others, and gets another's refusal if that comes first.
    let named = |told: &str, ranks: [&str; 2], what: &str| {
        ranks.iter().any(|both| told.contains(&format!("ranks {both} differ: ")))
            && told.contains(what)
    };
    let stop = "rank 1 has --stop-after-step 3";
    assert!(named(&ends[0].1, ["1 and 0", "0 and 1"], stop), "{ends:?}");
    assert!(!place.path("runs").exists(), "nothing was begun");
    // A rank with another lock, which its folder does not have.
    let other = experiment(
        "wide",
        DEPO,
        &[("lr = 0.01", "lr = 0.02"), ("micro_batches = 2", "micro_batches = 5")],
    );
    place.lock("other", &lab::lock::Lock::Experiment(other));
    let lock = "--lock lockfiles/small.lock";
    let ranks = [start(0, lock), start(1, lock), start(2, "--lock lockfiles/other.lock")];
    let ends: Vec<_> = ranks.into_iter().map(ended).collect();
    assert!(named(&ends[0].1, ["2 and 0", "0 and 2"], "rank 2 has lock"), "{ends:?}");
}

/// Compares what `--dry-run` predicts for a rank with the memory of two processes and the bytes that rank 0 received.
#[test]
fn the_memory_of_a_rank_is_predicted_and_its_bytes_exactly() {
    for (shard, word) in
        [(Shard::None, "none"), (Shard::Optimizer, "optimizer"), (Shard::Full, "full")]
    {
        let platform = format!("[platform]\nshard = \"{word}\"");
        let more = ("sequences = 2", "sequences = 32");
        let changes = [more, ("steps = 6", "steps = 3"), ("[platform]", platform.as_str())];
        let experiment = experiment("large", DEPO, &changes);
        let place = Place::new(&experiment);
        let table = place.exits(0, "run --dry-run --ranks 2");
        let row = table.lines().find(|line| line.starts_with("memory")).unwrap();
        assert!(row.contains(" MiB for each of 2 ranks (weights"), "{row}");
        let predicted: f64 = row.split_whitespace().nth(1).unwrap().parse().unwrap();
        // The allocator gives back what is freed: otherwise the peak also has what it keeps for later.
        let mut run = place.command("run --ranks 2");
        let output = run.env("MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let timings = fs::read_to_string(place.path("runs/small/timings.jsonl")).unwrap();
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
    let place = place(4, "");
    place.exits(0, "run --ranks 3");
    let timings = fs::read_to_string(place.path("runs/small/timings.jsonl")).unwrap();
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
    let place = place(6, "");
    place.exits(0, "run --dir straight");
    let elsewhere = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let start = |rank: u32, dir: &str| {
        let mut command = place.command(&format!("run --rank-timeout 60 --dir {dir}"));
        command
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", "2")
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", port.to_string());
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
        command.spawn().unwrap()
    };
    let other = elsewhere.path().join("run");
    let ranks = [start(0, "here"), start(1, &other.to_string_lossy())];
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
    assert!(!other.exists());
    same(&place.bits("straight", 6), &place.bits("here", 6), "here");
    place.holds("here");
}
