//! Declarations before a comparison's runs, and their limits: plans, stopping rules, chosen seeds.

use std::fs;

use serde_json::Value;

use super::compare::{Arm, SHORT, comparison};
use crate::Place;

const HEAD: &str = "base = \"plain\"\ntreatment = [\"canon\"]\n";
const ARMS: [Arm<'_>; 2] = [("plain", "small", &[SHORT]), ("treated", "small_canon", &[SHORT])];

fn seeds(numbers: &[u64]) -> String {
    let list: Vec<String> = numbers.iter().map(u64::to_string).collect();
    let list = list.join(", ");
    format!("[seeds]\ninit = [{list}]\ndata = [{list}]\n")
}

/// Builds `NAME.toml`: the arms of `both.toml` with other seeds.
fn beside(place: &Place, name: &str, declared: &str) {
    let both = fs::read_to_string(place.path("both.toml")).unwrap();
    let arms = &both[both.find("[arms]").unwrap()..];
    fs::write(place.path(&format!("{name}.toml")), format!("{HEAD}{declared}{arms}")).unwrap();
    place.exits(0, &format!("build {name}.toml"));
}

#[test]
fn three_chosen_seeds_of_nine_are_named() {
    let nine = seeds(&[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let place = comparison(&ARMS, &format!("{HEAD}{nine}"));
    place.exits(0, "build both.toml");
    let plan = "plan lockfiles/both.lock --effect 0.1";
    let said = place.exits(1, plan);
    assert!(
        said.contains("cannot be estimated from the runs of plain: 0 values, but at least 3"),
        "{said}"
    );
    let said = place.exits(0, "compare lockfiles/both.lock");
    assert!(!said.contains("leaves out") && !said.contains("compares the same arms"), "{said}");

    // Shuffled, but the runs of each seed stay together.
    let order: Vec<&str> = said
        .lines()
        .filter_map(|line| line.strip_prefix("run ")?.split_once(": ").map(|(_, name)| name))
        .collect();
    let seed = |name: &str| name.rsplit_once("seed").map(|(_, seed)| seed.to_owned());
    assert_eq!(order.len(), 18, "{said}");
    assert!(order.chunks(2).all(|pair| seed(pair[0]) == seed(pair[1])), "{order:?}");

    beside(&place, "three", &seeds(&[2, 5, 7]));
    let said = place.exits(0, "compare lockfiles/three.lock");
    let left = "Warning: this lock compares 3 of 9 seeds of these arms that finished; it leaves out init 1 data 1, \
                init 3 data 3, init 4 data 4, init 6 data 6, init 8 data 8, init 9 data 9.";
    assert!(said.contains(left), "{said}");
    let note = "Note: lockfiles/both.lock compares the same arms with 9 seeds.";
    assert!(said.contains(note), "{said}");
    // The document and the page show it as well.
    let output = place.type_in("compare lockfiles/three.lock --json");
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let one = &value["comparisons"][0];
    assert_eq!((&one["warnings"][0], &one["notes"][0]), (&left.into(), &note.into()));
    assert_eq!(one["warnings"].as_array().unwrap().len(), 1, "a note is not a warning");
    let siblings = &one["siblings"];
    assert_eq!((&siblings["used"], &siblings["locks"][0]["name"]), (&3.into(), &"both".into()));
    assert_eq!(siblings["left_out"].as_array().unwrap().len(), 6, "{siblings}");
    place.exits(0, "report lockfiles/three.lock --out page.html");
    for page in ["runs/three/report.html", "page.html"] {
        let page = fs::read_to_string(place.path(page)).unwrap();
        assert!(page.contains(&format!("<li>{left}</li>")), "{page}");
        assert!(page.contains("both.lock compares the same arms with 9 seeds."));
        assert!(page.contains("<ul class=\"notes soft\"><li>Note: "), "a note is not a warning");
    }
    let said = place.exits(0, "compare lockfiles/both.lock");
    assert!(
        said.contains("Note: lockfiles/three.lock compares the same arms with 3 seeds."),
        "{said}"
    );
    assert!(!said.contains("leaves out"), "{said}");
    // Locks of other arms are not siblings.
    let other = fs::read_to_string(place.path("both.toml")).unwrap();
    fs::write(
        place.path("other.toml"),
        other.replace("treated = \"treated.toml\"", "treated = \"a.toml\""),
    )
    .unwrap();
    let recipe = fs::read_to_string(place.path("treated.toml")).unwrap();
    fs::write(place.path("a.toml"), recipe.replace("#small_canon", "#small_a")).unwrap();
    place.exits(0, "build other.toml");
    let said = place.exits(0, "compare lockfiles/three.lock");
    assert!(said.contains(note) && !said.contains("lockfiles/other.lock"), "{said}");

    // The nine runs of the base give the noise estimate.
    let said = place.exits(0, plan);
    assert!(
        said.contains("from 9 runs of the base") && said.contains("this lock  9 seeds"),
        "{said}"
    );
    let output = place.type_in(&format!("{plan} --power 0.9 --json"));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&value["schema"], &value["tests"]), (&"canonc.plan.v1".into(), &1.into()));
    let more = value["plan"]["seeds"].as_u64().unwrap();
    let output = place.type_in(&format!("{plan} --json"));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let seeds = value["plan"]["seeds"].as_u64().unwrap();
    assert!(more >= seeds && seeds >= 3, "{value}");
    assert!(value["plan"]["cautious_seeds"].as_u64().unwrap() >= seeds, "{value}");
    assert!(value["noise"]["low"].as_f64() < value["noise"]["sd"].as_f64(), "{value}");
}

#[test]
fn a_plan_is_made_of_pairs_of_the_base_and_its_repetition() {
    let again = |numbers: &str| format!("[replicate]\ninit = [{numbers}]\ndata = [{numbers}]\n");
    let declared = format!("{HEAD}{}{}", seeds(&[1, 2, 3]), again("11, 12, 13"));
    let place = comparison(&ARMS, &declared);
    // What is to come is said when the lock is built and when its runs start, and no longer once they are there.
    let ahead =
        ["questions  training will show ", "time       less than a minute for 9 runs here\n"];
    for (command, finished) in [
        ("build both.toml", false),
        ("compare lockfiles/both.lock", false),
        ("compare lockfiles/both.lock", true),
        ("build both.toml", true),
    ] {
        let said = place.exits(0, command);
        for what in ahead {
            assert_eq!(said.contains(what), !finished, "{command}: {what}\n{said}");
        }
        assert!(!said.contains("seeds      "), "nothing is known of the noise: {said}");
        if command.starts_with("compare") {
            for what in ["peak memory", "MiB", "SE: seeds and questions", "Training showed"] {
                assert!(said.contains(what), "{what}\n{said}");
            }
        }
    }
    let plan = "plan lockfiles/both.lock --effect 0.1";
    let said = place.exits(0, plan);
    assert!(said.contains("from 3 A/A pairs of the base with other init and data"), "{said}");
    let output = place.type_in(&format!("{plan} --json"));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let from = &value["noise_from"];
    assert_eq!((&from["from"], &from["aa_pairs"]), (&"aa_pairs".into(), &3.into()), "{value}");
    assert_eq!(from["of"][0], "init 1 data 1 and init 11 data 11", "{value}");
    let output = place.type_in(&format!("{plan} --noise 0.1 --json"));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["noise_from"]["from"], "given");
    // One pair is too few, and the plan names what it used instead.
    beside(&place, "one", &format!("{}{}", seeds(&[1, 2, 3]), again("11")));
    place.exits(0, "compare lockfiles/one.lock");
    let said = place.exits(0, "plan lockfiles/one.lock --effect 0.1");
    let pooled = "from 4 runs of the base, pooled, since 1 of 3 A/A pairs are finished";
    assert!(said.contains(pooled), "{said}");
    // A lock with one more seed is told what its seeds find, by the noise of the pairs that are there.
    let margin = "[analysis]\nmargin = 10\n";
    let more = format!("{margin}{}{}", seeds(&[1, 2, 3, 4]), again("11, 12, 13"));
    beside(&place, "more", &more);
    let said = place.exits(0, "build more.toml");
    let line = said.lines().find(|line| line.starts_with("  seeds      ")).unwrap_or(&said);
    assert!(line.contains("4 seeds find a difference of "), "{said}");
    assert!(
        line.contains(
            " in eval_loss in 80% of cases; one as large as the margin 10 needs 3 seeds; "
        )
    );
    assert!(line.ends_with(", from 3 A/A pairs"), "{said}");
    let output = place.type_in("build more.toml --json");
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let ahead = &value["locks"][0]["forecast"];
    assert_eq!((&ahead["time"]["runs"], &ahead["seeds"]["listed"]), (&2.into(), &4.into()));
    let smallest = ahead["seeds"]["smallest"].as_f64().unwrap();
    let plan = format!("plan lockfiles/more.lock --effect {smallest} --json");
    let value: Value = serde_json::from_slice(&place.type_in(&plan).stdout).unwrap();
    assert_eq!(value["plan"]["seeds"], 4, "{value}");
}

/// A long run is timed here, in moments; a lock that cannot run here says so.
#[test]
fn hours_are_told_before_they_are_spent() {
    let long: [(&str, &str); 1] = [("steps = 6", "steps = 600000")];
    let arms = [("plain", "small", &long as &[_]), ("treated", "small_canon", &long)];
    let place = comparison(&arms, &format!("{HEAD}{}", seeds(&[1, 2])));
    let said = place.exits(0, "build both.toml plain.toml");
    let time = |runs: &str| {
        let end = format!(" for {runs} here");
        said.lines()
            .filter(|line| line.starts_with("  time       about "))
            .any(|line| line.contains(&end))
    };
    assert!(time("4 runs") && time("1 run"), "{said}");
    assert!(said.contains(": 2 of plain at ") && said.contains(", 2 of treated at "), "{said}");
    assert!(said.contains("% of its windows)"), "too long to search whole: {said}");
    assert_eq!(place.exits(0, "build both.toml -q"), "", "nothing is timed for nobody");

    let output = place.type_in("run --lock lockfiles/plain.lock --dry-run --json");
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["schema"], "canonc.run.estimate.v1");
    assert_eq!((&value["steps"], &value["timed"]), (&600_000.into(), &"micro_batches".into()));
    let seconds = |name: &str| value[name].as_f64().unwrap();
    assert!(
        seconds("step_seconds") > 0.0
            && seconds("training_seconds") > 600.0 * seconds("step_seconds")
    );
    let sum = seconds("training_seconds") + seconds("evaluation_seconds");
    assert!((seconds("seconds") - sum).abs() < 1e-6 * sum, "{value}");
    place.exits(2, "run --lock lockfiles/plain.lock --json");

    let recipe = fs::read_to_string(place.path("plain.toml")).unwrap();
    fs::write(place.path("far.toml"), recipe.replace("threads = 1", "device = \"cuda\"")).unwrap();
    if runtime::kernels::cuda_devices() == 0 {
        let said = place.exits(0, "build far.toml");
        assert!(said.contains("  time       not known for 1 run here: "), "{said}");
    }
}

#[test]
fn the_bound_of_times_is_declared_and_a_flag_is_marked() {
    let declared = format!("{HEAD}[analysis]\ntime_bound = 1.000001\n{}", seeds(&[1, 2]));
    let place = comparison(&ARMS, &declared);
    place.exits(0, "build both.toml");
    let time = "compare lockfiles/both.lock --time 12";
    let said = place.exits(0, time);
    assert!(said.contains("at most ×1.000001 for an interval\n"), "{said}");
    assert!(said.contains("treated: no interval: the base differs from itself"), "{said}");
    let said = place.exits(0, &format!("{time} --bound 9"));
    assert!(said.contains("at most ×9 for an interval (by --bound, not by the lock)"), "{said}");
    let output = place.type_in(&format!("{time} --bound 9 --json"));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let one = &value["comparisons"][0];
    assert_eq!((&one["bound"], &one["bound_from"]), (&9.0.into(), &"flag".into()), "{value}");
}

#[test]
fn a_plan_says_why_there_is_none() {
    let declared =
        format!("{HEAD}[analysis]\nprimary = \"exact_match\"\nmargin = 0.1\n{}", seeds(&[1, 2, 3]));
    // After one step at a tiny rate, no complete answer is right.
    let idle: [(&str, &str); 3] =
        [("steps = 6", "steps = 1"), ("warmup = 2", "warmup = 0"), ("lr = 0.01", "lr = 0.0000001")];
    let place =
        comparison(&[("plain", "small", &idle), ("treated", "small_canon", &idle)], &declared);
    place.exits(0, "build both.toml");
    let plan = "plan lockfiles/both.lock --effect 0.1";
    let said = place.exits(0, &format!("{plan} --noise 0.1"));
    assert!(said.contains("as given") && said.contains("to call arms equivalent"), "{said}");
    place.exits(0, "compare lockfiles/both.lock");
    let said = place.exits(1, plan);
    assert!(said.contains("are at the bound 0") || said.contains("all values equal"), "{said}");
    assert!(said.contains("--noise 0.01"), "{said}");
    for (words, what) in [
        ("--effect 0", "above 0"),
        ("--effect=-1", "above 0"),
        ("--effect nan", "above 0"),
        ("--effect 1 --power 1", "between 0.5 and 1"),
        ("--effect 1 --noise inf", "above 0"),
    ] {
        let said = place.exits(2, &format!("plan lockfiles/both.lock {words}"));
        assert!(said.contains(what), "{words}: {said}");
    }
    let said = place.exits(1, "plan lockfiles/both.lock --effect 0.000001 --noise 1");
    assert!(said.contains("10000 seeds reach a power of"), "{said}");
}

/// A rule that is chosen when the results are known: finished seeds that it does not use are
/// named, and nothing says that the rule was there first.
#[test]
fn a_stopping_rule_that_is_chosen_after_the_results_is_warned_of() {
    let head = "base = \"plain\"\ntreatment = [\"optimizer.lr\"]\n";
    let (fast, slow) = (("lr = 0.01", "lr = 0.03"), ("lr = 0.01", "lr = 0.0000001"));
    let place = comparison(
        &[("plain", "small", &[SHORT, fast]), ("treated", "small", &[SHORT, slow])],
        &format!("{head}{}", seeds(&[1, 2, 3, 4, 5, 6, 7, 8, 9])),
    );
    place.exits(0, "build both.toml");
    place.exits(0, "compare lockfiles/both.lock");
    let both = fs::read_to_string(place.path("both.toml")).unwrap();
    let arms = &both[both.find("[arms]").unwrap()..];
    let rule = "[analysis]\nstop = \"sequential\"\n";
    let chosen = format!("{head}{rule}{}{arms}", seeds(&[1, 2, 3, 4, 5, 6, 7, 8, 9]));
    fs::write(place.path("chosen.toml"), chosen).unwrap();
    place.exits(0, "build chosen.toml");
    let output = place.type_in("compare lockfiles/chosen.lock --json");
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let one = &value["comparisons"][0];
    let used = one["looks"][0]["n"].as_u64().unwrap() as usize;
    let siblings = &one["siblings"];
    assert!((4..9).contains(&used), "{value}");
    assert_eq!(siblings["used"], used);
    assert_eq!(siblings["left_out"].as_array().unwrap().len(), 9 - used, "{siblings}");
    assert_eq!(siblings["taken"].as_array().unwrap().len(), 2 * used, "{siblings}");
    let said = place.exits(0, "compare lockfiles/chosen.lock");
    for what in [&format!("compares {used} of 9 seeds"), "may have been chosen after their results"]
    {
        assert!(said.contains(what), "{what}: {said}");
    }
    // Three seeds are too few for the rule at this level.
    let three = format!("{head}{rule}max_seeds = 3\n{}{arms}", seeds(&[9, 8, 7, 6]));
    fs::write(place.path("three.toml"), three).unwrap();
    let said = place.exits(2, "build three.toml");
    assert!(said.contains("after 3 seeds") && said.contains("cannot decide before 4"), "{said}");
    assert!(!place.path("lockfiles/three.lock").exists());
    let said = place.exits(0, "plan lockfiles/chosen.lock --effect 0.1 --noise 0.1");
    assert!(said.contains("at most 9 seeds under its stopping rule, which needs 4"), "{said}");
}

/// Seeds added to a lock when its results are known, in the same folder: with more seeds, and with a rule.
#[test]
fn seeds_that_are_added_after_a_report_are_marked() {
    let three = seeds(&[1, 2, 3]);
    let place = comparison(&ARMS, &format!("{HEAD}{three}"));
    place.exits(0, "build both.toml");
    let said = place.exits(0, "compare lockfiles/both.lock");
    assert!(!said.contains("Warning"), "{said}");
    let said = place.exits(0, "compare lockfiles/both.lock");
    assert!(!said.contains("Warning"), "the same lock again: {said}");
    let text = fs::read_to_string(place.path("both.toml")).unwrap();
    fs::write(place.path("both.toml"), text.replace(&three, &seeds(&[1, 2, 3, 4, 5]))).unwrap();
    place.exits(0, "build both.toml");
    let output = place.type_in("compare lockfiles/both.lock --json");
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let one = &value["comparisons"][0];
    let earlier = &one["siblings"]["earlier_reports"][0];
    assert_eq!(earlier["seeds"], 3, "{one}");
    assert_eq!(earlier["added"], serde_json::json!([[4, 4], [5, 5]]), "{one}");
    let warning = one["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with("Warning: the results of 3 seeds were shown here"), "{warning}");
    assert!(warning.ends_with("before this lock added init 4 data 4, init 5 data 5."), "{warning}");
    let known = "Results of 3 seeds were known before 2 other seeds were added.";
    assert!(one["methods"].as_str().unwrap().contains(known), "{one}");
    // The page warns as well, and so does a later look at the same lock.
    place.exits(0, "report lockfiles/both.lock --out page.html");
    assert!(fs::read_to_string(place.path("page.html")).unwrap().contains(warning));
    assert!(place.exits(0, "compare lockfiles/both.lock").contains(warning));
    // A rule that is declared when fixed results are known.
    let text = fs::read_to_string(place.path("both.toml")).unwrap();
    let rule = text.replace("[seeds]", "[analysis]\nstop = \"sequential\"\n[seeds]");
    fs::write(place.path("both.toml"), rule).unwrap();
    place.exits(0, "build both.toml");
    let said = place.exits(0, "compare lockfiles/both.lock");
    assert!(said.contains("the results of 5 seeds were shown here under another lock"), "{said}");
    assert!(said.contains("before this analysis was declared"), "{said}");
}

#[test]
fn a_stopping_rule_looks_after_every_seed_and_stops() {
    let declared = format!(
        "base = \"plain\"\ntreatment = [\"optimizer.lr\"]\n[analysis]\nstop = \"sequential\"\n{}",
        seeds(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    );
    let (fast, slow) = (("lr = 0.01", "lr = 0.03"), ("lr = 0.01", "lr = 0.0000001"));
    let place = comparison(
        &[("plain", "small", &[SHORT, fast]), ("treated", "small", &[SHORT, slow])],
        &declared,
    );
    place.exits(0, "build both.toml");
    let said = place.exits(0, "compare lockfiles/both.lock");
    assert!(said.contains("seeds the arms differ: eval_loss"), "{said}");
    assert!(said.contains("valid at every look"), "{said}");
    assert!(said.contains("95% anytime-valid interval") && !said.contains("t interval"), "{said}");
    let looks = fs::read_to_string(place.path("runs/both/looks.jsonl")).unwrap();
    let parsed: Vec<Value> =
        looks.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let used = parsed.len();
    assert!((4..10).contains(&used), "{looks}");
    for (at, look) in parsed.iter().enumerate() {
        let decision = if at + 1 == used { "differs" } else { "continue" };
        assert_eq!(
            (&look["n"], &look["decision"]),
            (&(at + 1).into(), &decision.into()),
            "{looks}"
        );
    }
    assert!(place.path(&format!("runs/both/both-plain-seed{used}")).exists());
    assert!(!place.path(&format!("runs/both/both-plain-seed{}", used + 1)).exists());
    // Repeated: no further run, and the page needs only the rule's runs.
    place.exits(0, "compare lockfiles/both.lock");
    assert_eq!(fs::read_to_string(place.path("runs/both/looks.jsonl")).unwrap(), looks);
    assert!(!place.path(&format!("runs/both/both-plain-seed{}", used + 1)).exists());
    let said = place.exits(0, "report lockfiles/both.lock --out page.html");
    assert!(!said.contains("left out"), "{said}");
    let page = fs::read_to_string(place.path("page.html")).unwrap();
    assert!(page.contains("95% anytime-valid interval") && !page.contains("t interval"), "{page}");
    // A recorded look is not repeated, and a look under an earlier analysis is not hidden.
    let path = place.path("runs/both/looks.jsonl");
    fs::write(&path, looks.replacen("\"n\":2", "\"n\":9", 1)).unwrap();
    let said = place.exits(1, "compare lockfiles/both.lock");
    assert!(said.contains("a recorded look does not match the runs"), "{said}");
    assert!(
        place.exits(0, "report lockfiles/both.lock --out page.html").contains("a recorded look")
    );
    fs::write(&path, &looks).unwrap();
    let lock = fs::read_to_string(place.path("both.toml")).unwrap();
    fs::write(
        place.path("both.toml"),
        lock.replace("stop = \"sequential\"", "stop = \"sequential\"\nlevel = 0.2"),
    )
    .unwrap();
    place.exits(0, "build both.toml");
    let said = place.exits(0, "compare lockfiles/both.lock");
    assert!(
        said.contains(&format!("Warning: {used} looks were taken here under another lock (")),
        "{said}"
    );
    assert!(said.contains("last: differs) before this analysis was declared"), "{said}");
    let kept = fs::read_to_string(&path).unwrap();
    assert!(kept.starts_with(&looks) && kept.len() > looks.len(), "{kept}");
}

/// Only checks that times are measured, and that a bound that no machine meets leaves no interval.
#[test]
fn step_times_are_measured_in_turn_and_write_nothing() {
    let place = comparison(&ARMS, &format!("{HEAD}{}", seeds(&[1, 2])));
    place.exits(0, "build both.toml");
    let time = "compare lockfiles/both.lock --time 12";
    let said = place.exits(0, &format!("{time} --bound 1.0000000001"));
    assert!(said.contains("12 steps of each arm in turn"), "{said}");
    assert!(said.contains("treated: no interval: the base differs from itself"), "{said}");
    let output = place.type_in(&format!("{time} --bound 9 --json"));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["schema"], "canonc.step_times.v1");
    let arm = &value["comparisons"][0]["arms"][0];
    assert_eq!((&arm["name"], &arm["ratio"]["n"]), (&"treated".into(), &3.into()), "{value}");
    assert!(arm["ratio"]["low"].as_f64() < arm["ratio"]["high"].as_f64(), "{value}");
    assert!(!place.path("runs").exists());
    for (words, what) in
        [("--time 3", "12"), ("--time 40 --bound 1", "above 1"), ("--bound 2", "--time")]
    {
        let said = place.exits(2, &format!("compare lockfiles/both.lock {words}"));
        assert!(said.contains(what), "{words}: {said}");
    }
}
