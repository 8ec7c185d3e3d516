//! `canonc compare` as a process: only complete runs of the right lock give numbers; messages name every arm, point and
//! platform. The comparisons are built from files, as a person builds them, and train in moments.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{ARCH, DEPO, Place};

/// An arm: its name, its arch, and replacements for lines of its recipe.
pub(crate) type Arm<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

/// Recipes `NAME.toml` on archs of one file, each with some lines changed, and a comparison of them.
pub(crate) fn comparison(arms: &[Arm<'_>], declared: &str) -> Place {
    let workspace = Place::empty();
    let archs = format!("{ARCH}arch small_a = small with {{ canon A }}\n");
    fs::write(workspace.path("archs.canon"), archs).unwrap();
    let mut text = declared.to_owned();
    text.push_str("[arms]\n");
    for (name, arch, changes) in arms {
        let mut recipe = format!("arch = \"archs.canon#{arch}\"\n{DEPO}");
        for (from, to) in *changes {
            assert!(recipe.contains(from), "{from}");
            recipe = recipe.replace(from, to);
        }
        fs::write(workspace.path(&format!("{name}.toml")), recipe).unwrap();
        text.push_str(&format!("{name} = \"{name}.toml\"\n"));
    }
    fs::write(workspace.path("both.toml"), text).unwrap();
    workspace
}

pub(crate) const SHORT: (&str, &str) = ("steps = 6", "steps = 3");
const COMPARE: &str = "compare lockfiles/both.lock";

/// Two seeds of a base and a treated arm, and one replicate of the base.
pub(crate) fn two_arms(changes: &[(&str, &str)]) -> Place {
    let declared = "base = \"plain\"\ntreatment = [\"canon\"]\n\
                    [seeds]\ninit = [1, 2]\ndata = [1, 2]\n[replicate]\ninit = [3]\ndata = [3]\n";
    comparison(&[("plain", "small", &[SHORT]), ("treated", "small_canon", changes)], declared)
}

/// The rows and words of standard output, without timings.
fn table(output: &str) -> Vec<String> {
    let kept = output.lines().filter(|line| !line.starts_with("step time"));
    let measured = |line: &str| {
        let mut words: Vec<&str> = Vec::new();
        for word in line.split_whitespace() {
            match word {
                "ms" | "MiB" => drop(words.pop()),
                _ => words.push(word),
            }
        }
        words.join(" ").replace("step time peak memory", "peak memory")
    };
    kept.map(measured).collect()
}

#[test]
fn a_log_that_is_cut_edited_or_of_another_run_gives_no_table() {
    let workspace = two_arms(&[SHORT]);
    workspace.exits(0, "build -q both.toml");
    let output = workspace.exits(2, "run --lock lockfiles/both.lock");
    assert!(
        output.contains("`canonc compare lockfiles/both.lock` trains all of its arms"),
        "{output}"
    );
    let read = |output: std::process::Output| String::from_utf8(output.stdout).unwrap();
    let first = workspace.type_in(COMPARE);
    assert_eq!(first.status.code(), Some(0), "{}", crate::said(&first));
    let before = table(&read(first));
    let header = "plain treated plain replicate paired difference 95% t interval A/A: SE of mean p p, Holm effect measured on \
                  SE: seeds and questions";
    assert!(before.iter().any(|line| line == header), "{before:?}");
    let seeds = "Means over seeds (plain 2, treated 2, plain replicate 1);";
    assert!(before.iter().any(|line| line.starts_with(seeds)), "{before:?}");

    let (treated, plain) = ("runs/both/both-treated-seed1", "runs/both/both-plain-seed1");
    let file = |run: &str, name: &str| workspace.path(&format!("{run}/{name}"));
    let log = fs::read_to_string(file(treated, "metrics.jsonl")).unwrap();
    let report = fs::read(workspace.path("runs/both/report.html")).unwrap();
    let lines: Vec<&str> = log.split_inclusive('\n').collect();
    let plain_log = fs::read_to_string(file(plain, "metrics.jsonl")).unwrap();
    let run = format!("run --lock runs/both/both-treated-seed1.lock --dir {treated}");
    for (changed, expected) in [
        (lines[..lines.len() - 1].concat(), "it attests 5 metrics lines"),
        (lines[..1].concat(), "it attests 5 metrics lines"),
        (plain_log, "it attests 5 metrics lines"),
        (log.replacen("\"loss\":", "\"loss\":1", 1), "line 2 of"),
    ] {
        fs::write(file(treated, "metrics.jsonl"), changed).unwrap();
        for command in [COMPARE, run.as_str()] {
            let output = workspace.type_in(command);
            let text = crate::said(&output);
            assert_eq!(output.status.code(), Some(1), "{command}: {text}");
            assert!(text.contains(expected) && text.contains(treated), "{expected}: {text}");
            assert!(text.contains("help: ") && text.contains("move"), "{text}");
            assert_eq!(read(output), "", "a table of a log that does not verify");
        }
    }
    // Another run's log and attestation are consistent with each other, but not of this lock.
    for name in ["metrics.jsonl", "attestation.toml"] {
        fs::copy(file(plain, name), file(treated, name)).unwrap();
    }
    let output = workspace.exits(1, COMPARE);
    assert!(output.contains(treated), "{output}");
    assert_eq!(fs::read(workspace.path("runs/both/report.html")).unwrap(), report);
    // Follow the message: after moving the folder away, the run is repeated.
    fs::rename(workspace.path(treated), workspace.path("away")).unwrap();
    let after = workspace.type_in(COMPARE);
    assert_eq!(after.status.code(), Some(0), "{}", crate::said(&after));
    assert_eq!(table(&read(after)), before);
}

#[test]
fn every_arm_is_compared_at_the_point_that_the_locked_rule_chooses() {
    let declared = "base = \"plain\"\ntreatment = [\"canon\"]\n\
                    [seeds]\ninit = [1]\ndata = [1]\n[replicate]\ninit = [2]\ndata = [2]\n\
                    [grid]\n\"optimizer.lr\" = [0.00001, 0.03]\n[selection]\nmetric = \"eval_loss\"\n";
    let arms: [Arm<'_>; 3] = [
        ("plain", "small", &[SHORT]),
        ("first", "small_a", &[SHORT]),
        ("full", "small_canon", &[SHORT]),
    ];
    let workspace = comparison(&arms, declared);
    workspace.exits(0, "build -q both.toml");
    let output = workspace.exits(0, COMPARE);
    // Three steps at a learning rate of a millionth learn nothing: the other point is best for all arms.
    for expected in [
        "first (optimizer.lr 0.03) against plain (optimizer.lr 0.03)\n",
        "full (optimizer.lr 0.03) against plain (optimizer.lr 0.03)\n",
        "eval_loss at every point of the grid\n",
        "each arm is judged at its own point of the grid with the lowest eval_loss",
        "eval_loss, paired at each point of the grid\n",
        "eval_loss, best per arm and best of the base for all\n",
        "first: best per arm (declared)",
        "full: best of the base for all  ",
        "n = 1: no interval",
        "The base was repeated once with other seeds; its A/A noise is unknown with fewer than 3 repetitions.",
        "\nWarning: the best point of first (optimizer.lr 0.03) has the highest optimizer.lr of the grid",
        "Means over 1 seed;",
    ] {
        assert!(output.contains(expected), "{expected}: {output}");
    }
    let rows: Vec<&str> = output.lines().filter(|line| line.starts_with("optimizer.lr")).collect();
    assert_eq!(rows.len(), 2, "{output}");
    let stars = rows.iter().map(|row| row.matches('*').count()).collect::<Vec<_>>();
    assert_eq!(stars, [0, 4], "{output}");
    let page = fs::read_to_string(workspace.path("runs/both/report.html")).unwrap();
    for expected in ["first (optimizer.lr 0.03) against", "full (optimizer.lr 0.03) against"] {
        assert!(page.contains(&format!("<h3>{expected}")), "{expected}");
    }
}

/// A norm with a large epsilon makes small outputs, so its arm learns most at the largest rate; the other arm does not.
#[test]
fn arms_at_their_own_points_are_tuned_and_not_controlled() {
    let declared = "base = \"plain\"\ntreatment = [\"norm_eps\"]\n\
                    [seeds]\ninit = [1, 2, 3]\ndata = [1, 2, 3]\n\
                    [grid]\n\"optimizer.lr\" = [0.01, 0.5]\n[selection]\nmetric = \"eval_loss\"\n";
    let workspace =
        comparison(&[("plain", "small", &[SHORT]), ("flat", "flat", &[SHORT])], declared);
    let archs = fs::read_to_string(workspace.path("archs.canon")).unwrap();
    let archs = format!("{archs}arch flat = small with {{ norm_eps 10000 }}\n");
    fs::write(workspace.path("archs.canon"), archs).unwrap();
    let output = workspace.exits(0, "build both.toml");
    assert!(output.contains("flat against plain: controlled for norm_eps"), "{output}");
    let output = workspace.exits(0, COMPARE);
    let title = "flat (optimizer.lr 0.5) against plain (optimizer.lr 0.01)";
    assert!(output.contains(&format!("{title}: tuned")), "{output}");
    let output = workspace.type_in(&format!("{COMPARE} --json"));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let pair = &value["comparisons"][0]["pairs"][0];
    assert_eq!(pair["title"], title);
    assert_eq!(pair["design"], "tuned");
    for word in ["controlled", "attributable"] {
        assert_eq!(pair[word], false, "{pair}");
    }
    // The verdict of their locks is the same.
    let at = |run: &str| format!("runs/both/both-{run}-seed1");
    let diff = format!("diff {} {} --treatment norm_eps", at("plain-lr0.01"), at("flat-lr0.5"));
    workspace.exits(1, &diff);
}

#[test]
fn arms_on_other_platforms_say_so_and_their_seconds_are_not_compared() {
    let workspace = two_arms(&[SHORT, ("threads = 1", "threads = 1\nfuse = false")]);
    let output = workspace.exits(0, "build both.toml");
    let differs = "platform: platform.fuse true → false";
    assert!(output.contains(differs), "{output}");
    let output = workspace.exits(0, COMPARE);
    assert!(output.contains(differs), "{output}");
    let row = output.lines().find(|line| line.starts_with("step time")).unwrap();
    let row: Vec<&str> = row.split_whitespace().collect();
    // Three means in milliseconds, no ratio, no interval; one replicate does not show how steady the machine is.
    assert_eq!(row[8..10], ["–", "–"], "{output}");
    assert_eq!(row[10..15].join(" "), "unknown: 1 of 3 repetitions", "{output}");
    assert!(
        output.contains("are compared only between runs on the same platform and machine"),
        "{output}"
    );
    let page = fs::read_to_string(workspace.path("runs/both/report.html")).unwrap();
    assert!(page.contains("platform.fuse true → false"));
}

/// Finished runs are checked by `canonc` alone, which says of a damaged one what `canonc run` says.
#[test]
fn finished_runs_are_checked_without_starting_the_program_that_trains() {
    let workspace = two_arms(&[SHORT]);
    workspace.exits(0, "build -q both.toml");
    workspace.exits(0, COMPARE);
    fs::create_dir(workspace.path("alone")).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_canonc"), workspace.path("alone/canonc")).unwrap();
    let mut alone = Command::new(workspace.path("alone/canonc"));
    alone.current_dir(workspace.root.path()).args(COMPARE.split(' '));
    let output = alone.output().unwrap();
    let text = crate::said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_eq!(text.matches("already finished: ").count(), 5, "{text}");
    let run = "runs/both/both-treated-seed1";
    let checkpoints = workspace.path(&format!("{run}/checkpoints"));
    let latest = fs::read_to_string(checkpoints.join("latest")).unwrap();
    let weights = checkpoints.join(latest.trim()).join("weights.safetensors");
    let mut content = fs::read(&weights).unwrap();
    *content.last_mut().unwrap() ^= 1;
    fs::write(&weights, content).unwrap();
    let damaged = workspace.exits(1, COMPARE);
    let expected = workspace.exits(1, &format!("run --lock {run}.lock --dir {run}"));
    let error = expected.lines().find(|line| line.starts_with("error: ")).unwrap();
    assert!(
        damaged.contains(error) && error.contains("weights.safetensors"),
        "{damaged}{expected}"
    );
}

#[test]
fn a_signal_reaches_the_run_under_way_and_counts_once() {
    let long = [("steps = 6", "steps = 3000")];
    let declared = "base = \"plain\"\ntreatment = [\"canon\"]\n[seeds]\ninit = [1]\ndata = [1]\n";
    let arms: [Arm<'_>; 2] = [("plain", "small", &long), ("treated", "small_canon", &long)];
    let workspace = comparison(&arms, declared);
    workspace.exits(0, "build -q both.toml");
    let both = ["runs/both/both-plain-seed1", "runs/both/both-treated-seed1"];
    let mut done = 0;
    // A signal to this process alone, as from `kill`; and to both, as from a terminal or a job scheduler.
    for to_both in [false, true] {
        let mut command = workspace.command(COMPARE);
        command.stderr(Stdio::piped()).stdout(Stdio::null()).process_group(0);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("/3000 (") {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0, "it ended");
        }
        let whom = format!("{}{}", if to_both { "-" } else { "" }, child.id());
        let sent = Command::new("kill").args(["-TERM", "--", &whom]).status().unwrap();
        assert!(sent.success());
        let rest: Vec<String> = lines.lines().map(Result::unwrap).collect();
        assert_eq!(child.wait().unwrap().code(), Some(75), "{whom}: {rest:?}");
        assert!(rest.iter().any(|line| line.contains("with a checkpoint")), "{rest:?}");
        // The lock's id determines which of them runs first; the other has not begun.
        let begun: Vec<&str> =
            both.into_iter().filter(|run| workspace.path(run).exists()).collect();
        let [run] = begun[..] else { panic!("{begun:?}") };
        let steps = workspace.steps(run).len() as u64;
        assert!(steps > done && steps < 3000, "{steps}");
        workspace.bits(run, steps);
        done = steps;
    }
}

#[test]
fn two_runs_at_a_time_give_the_same_table() {
    let workspace = two_arms(&[SHORT]);
    workspace.exits(0, "build -q both.toml");
    let read = |words: &str| {
        let output = workspace.type_in(words);
        assert_eq!(output.status.code(), Some(0), "{}", crate::said(&output));
        (table(&String::from_utf8_lossy(&output.stdout)), crate::said(&output))
    };
    let (sequential, _) = read(COMPARE);
    fs::rename(workspace.path("runs"), workspace.path("before")).unwrap();
    let (concurrent, output) = read(&format!("{COMPARE} --jobs 2"));
    // Equal except for timings, which concurrent runs do not have.
    let timed = [
        " (of step times the geometric mean of treatment over base)",
        " A ratio of times has an interval (on the log scale) only if the base against itself stays within ×1.05.",
    ];
    for sentence in timed {
        assert!(
            sequential.last().unwrap().contains(sentence) && !output.contains(sentence),
            "{output}"
        );
    }
    assert!(!output.contains("step time") && output.contains("peak memory"), "{output}");
    let without_times = |line: &String| {
        timed.iter().fold(line.clone(), |line, sentence| line.replace(sentence, ""))
    };
    let sequential: Vec<String> = sequential.iter().map(without_times).collect();
    assert_eq!(sequential, concurrent);
    // Each line names its run.
    for name in ["both-plain-seed1", "both-treated-seed2"] {
        assert!(output.contains(&format!("{name}: finished: ")), "{output}");
    }
    assert!(workspace.exits(2, &format!("{COMPARE} --jobs 0")).contains("from 1 to 256"));
}

/// A comparison that finds a run in use leaves the timings alone that the other process writes meanwhile.
#[test]
fn a_run_that_another_process_trains_gets_no_line_in_its_timings() {
    let workspace = two_arms(&[SHORT]);
    workspace.exits(0, "build -q both.toml");
    workspace.exits(0, COMPARE);
    let run = workspace.path("runs/both/both-plain-seed1");
    fs::remove_file(run.join("attestation.toml")).unwrap();
    let writer = fs::File::options().write(true).open(run.join("writer")).unwrap();
    writer.lock().unwrap();
    let mut timings = fs::File::options().append(true).open(run.join("timings.jsonl")).unwrap();
    let is_over = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                timings.write_all(b"{}\n").unwrap();
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        let output = workspace.type_in(&format!("{COMPARE} --jobs 2"));
        is_over.store(true, Ordering::Relaxed);
        output
    });
    let output = (output.status.code(), crate::said(&output));
    assert!(output.0 == Some(3) && output.1.contains("is in use by"), "{output:?}");
    let text = fs::read_to_string(run.join("timings.jsonl")).unwrap();
    assert!(text.contains("{}\n{}\n") && !text.contains("beside"), "{text}");
}

/// The mean of three differences, and half of its 95% t interval.
fn t_interval_of_three(differences: &[f64]) -> (f64, f64) {
    let mean = differences.iter().sum::<f64>() / 3.0;
    let squares: f64 = differences.iter().map(|d| (d - mean) * (d - mean)).sum();
    (mean, 4.302_652_73 * (squares / 2.0 / 3.0).sqrt())
}

/// Three seeds at two points, matched: the document has the tables' numbers, and standard output has nothing else.
#[test]
fn the_json_document_has_the_numbers_of_the_tables() {
    let declared = "base = \"plain\"\ntreatment = [\"canon\"]\n\
                    [seeds]\ninit = [1, 2, 3]\ndata = [1, 2, 3]\n[replicate]\ninit = [4]\ndata = [4]\n\
                    [grid]\n\"optimizer.lr\" = [0.00001, 0.03]\n[match]\non = \"parameters\"\nwithin = 0.5\n";
    let arms: [Arm<'_>; 2] = [("plain", "small", &[SHORT]), ("treated", "small_canon", &[SHORT])];
    let workspace = comparison(&arms, declared);
    let built = workspace.exits(0, "build both.toml");
    assert!(built.contains("matched on parameters within 0.5: "), "{built}");
    let text = workspace.exits(0, COMPARE);
    for expected in [
        "treated against plain: controlled for canon; matched on parameters within 0.5: ",
        "design: treated against plain: ",
        "95% t interval (covers 95% at n = 3, 88% if skewed)",
        "The base was repeated once with other seeds",
        "Each seed is evaluated on its own windows",
        "peak memory",
        "size, cost and tuning of each arm",
        "Warning: [match] allows treated 0.5 of the base's parameters",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let output = workspace.type_in(&format!("{COMPARE} --json"));
    assert_eq!(output.status.code(), Some(0), "{}", crate::said(&output));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&value["schema"], &value["controlled"]),
        (&"canonc.compare.v2".into(), &true.into())
    );
    let comparison = &value["comparisons"][0];
    assert_eq!(
        (&comparison["name"], &comparison["selection"]["points"]),
        (&"both".into(), &2.into())
    );
    let treated = &comparison["arms"][1];
    assert_eq!(
        (&treated["matched"]["on"], &treated["best_point"]),
        (&"parameters".into(), &1.into())
    );
    let each = comparison["paired_at_each_point"].as_array().unwrap();
    assert_eq!(each.len(), 2);
    for pair in each {
        let row = &pair["rows"][0];
        let paired: Vec<f64> =
            row["paired"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect();
        let [low, high] = [f64::min, f64::max].map(|pick| paired.iter().copied().reduce(pick));
        let end = |method: &str, name: &str| row[method][name].as_f64();
        let bootstrap = (end("bootstrap", "low"), end("bootstrap", "high"));
        assert_eq!(bootstrap, (low, high), "at three seeds its ends are the extremes");
        let (mean, half) = t_interval_of_three(&paired);
        let [low, high] = [mean - half, mean + half];
        for (name, expected) in [("low", low), ("high", high)] {
            let actual = end("interval", name).unwrap();
            assert!((actual - expected).abs() <= 1e-6 * half, "{actual}, not {expected}");
        }
        let shown = format!("{low:+.4} … {high:+.4} nats");
        assert!(text.contains(&shown), "{shown}: {text}");
    }
    assert_eq!(comparison["lock"].as_str().map(str::len), Some(64));
}

#[test]
fn a_comparison_over_the_runs_of_another_writes_nothing() {
    let workspace = two_arms(&[SHORT]);
    workspace.exits(0, "build -q both.toml");
    workspace.exits(0, COMPARE);
    let files = |root: &Path| {
        let mut contents = BTreeMap::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => drop(contents.insert(path.clone(), fs::read(path).unwrap())),
                }
            }
        }
        contents
    };
    // The same comparison with another training: runs of the first one occupy its folders.
    for name in ["plain.toml", "treated.toml"] {
        let text = fs::read_to_string(workspace.path(name)).unwrap();
        assert!(text.contains("steps = 3"));
        fs::write(workspace.path(name), text.replace("steps = 3", "steps = 4")).unwrap();
    }
    workspace.exits(0, "build -q both.toml");
    let before = files(&workspace.path("runs"));
    let output = workspace.exits(2, COMPARE);
    assert!(output.contains("contains a run of another lock"), "{output}");
    assert!(files(&workspace.path("runs")) == before, "something was written");
}
