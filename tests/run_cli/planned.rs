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

/// The JSON that a command prints.
fn json(workspace: &Place, words: &str) -> Value {
    serde_json::from_slice(&workspace.type_in(words).stdout).unwrap()
}

/// Builds `NAME.toml`: the arms of `both.toml` with other seeds.
fn build_beside(workspace: &Place, name: &str, declared: &str) {
    let both = fs::read_to_string(workspace.path("both.toml")).unwrap();
    let arms = &both[both.find("[arms]").unwrap()..];
    fs::write(workspace.path(&format!("{name}.toml")), format!("{HEAD}{declared}{arms}")).unwrap();
    workspace.exits(0, &format!("build {name}.toml"));
}

#[test]
fn three_chosen_seeds_of_five_are_named() {
    let five = seeds(&[1, 2, 3, 4, 5]);
    let workspace = comparison(&ARMS, &format!("{HEAD}{five}"));
    workspace.exits(0, "build -q both.toml");
    let plan = "plan lockfiles/both.lock --effect 0.1";
    let output = workspace.exits(1, plan);
    assert!(
        output.contains("cannot be estimated from the runs of plain: 0 values, but at least 3"),
        "{output}"
    );
    let output = workspace.exits(0, "compare lockfiles/both.lock");
    assert!(
        !output.contains("leaves out") && !output.contains("compares the same arms"),
        "{output}"
    );

    assert_seeds_stay_together(&output);
    build_beside(&workspace, "three", &seeds(&[2, 3, 5]));
    let output = workspace.exits(0, "compare lockfiles/three.lock");
    let warning = "Warning: this lock compares 3 of 5 seeds of these arms that finished; it leaves out init 1 data 1, \
                init 4 data 4.";
    assert!(output.contains(warning), "{output}");
    let note = "Note: lockfiles/both.lock compares the same arms with 5 seeds.";
    assert!(output.contains(note), "{output}");
    assert_json_and_page_warn(&workspace, warning, note);
    let output = workspace.exits(0, "compare lockfiles/both.lock");
    assert!(
        output.contains("Note: lockfiles/three.lock compares the same arms with 3 seeds."),
        "{output}"
    );
    assert!(!output.contains("leaves out"), "{output}");
    // Locks of other arms are not siblings.
    let both = fs::read_to_string(workspace.path("both.toml")).unwrap();
    fs::write(
        workspace.path("other.toml"),
        both.replace("treated = \"treated.toml\"", "treated = \"a.toml\""),
    )
    .unwrap();
    let recipe = fs::read_to_string(workspace.path("treated.toml")).unwrap();
    fs::write(workspace.path("a.toml"), recipe.replace("#small_canon", "#small_a")).unwrap();
    workspace.exits(0, "build -q other.toml");
    let output = workspace.exits(0, "compare lockfiles/three.lock");
    assert!(output.contains(note) && !output.contains("lockfiles/other.lock"), "{output}");

    assert_planned_from_five_runs(&workspace, plan);
}

/// The order of the runs is shuffled, but those of a seed follow each other.
fn assert_seeds_stay_together(output: &str) {
    let order: Vec<&str> = output
        .lines()
        .filter_map(|line| line.strip_prefix("run ")?.split_once(": ").map(|(_, name)| name))
        .collect();
    let seed = |name: &str| name.rsplit_once("seed").map(|(_, seed)| seed.to_owned());
    assert_eq!(order.len(), 10, "{output}");
    assert!(order.chunks(2).all(|pair| seed(pair[0]) == seed(pair[1])), "{order:?}");
}

fn assert_json_and_page_warn(workspace: &Place, warning: &str, note: &str) {
    let value = json(workspace, "compare lockfiles/three.lock --json");
    let comparison = &value["comparisons"][0];
    assert_eq!(
        (&comparison["warnings"][0], &comparison["notes"][0]),
        (&warning.into(), &note.into())
    );
    assert_eq!(comparison["warnings"].as_array().unwrap().len(), 1, "a note is not a warning");
    let siblings = &comparison["siblings"];
    assert_eq!((&siblings["used"], &siblings["locks"][0]["name"]), (&3.into(), &"both".into()));
    assert_eq!(siblings["left_out"].as_array().unwrap().len(), 2, "{siblings}");
    workspace.exits(0, "report lockfiles/three.lock --out page.html");
    for page in ["runs/three/report.html", "page.html"] {
        let page = fs::read_to_string(workspace.path(page)).unwrap();
        assert!(page.contains(&format!("<li>{warning}</li>")), "{page}");
        assert!(page.contains("both.lock compares the same arms with 5 seeds."));
        assert!(page.contains("<ul class=\"notes soft\"><li>Note: "), "a note is not a warning");
    }
}

/// The five runs of the base give the noise estimate.
fn assert_planned_from_five_runs(workspace: &Place, plan: &str) {
    let output = workspace.exits(0, plan);
    assert!(
        output.contains("from 5 runs of the base") && output.contains("this lock  5 seeds"),
        "{output}"
    );
    let value = json(workspace, &format!("{plan} --power 0.9 --json"));
    assert_eq!((&value["schema"], &value["tests"]), (&"canonc.plan.v1".into(), &1.into()));
    let seeds_at_90 = value["plan"]["seeds"].as_u64().unwrap();
    let value = json(workspace, &format!("{plan} --json"));
    let seeds = value["plan"]["seeds"].as_u64().unwrap();
    assert!(seeds_at_90 >= seeds && seeds >= 3, "{value}");
    assert!(value["plan"]["cautious_seeds"].as_u64().unwrap() >= seeds, "{value}");
    assert!(value["noise"]["low"].as_f64() < value["noise"]["sd"].as_f64(), "{value}");
}

#[test]
fn a_plan_takes_its_noise_from_pairs_of_base_and_replicate() {
    let replicate =
        |numbers: &str| format!("[replicate]\ninit = [{numbers}]\ndata = [{numbers}]\n");
    let declared = format!("{HEAD}{}{}", seeds(&[1, 2, 3]), replicate("11, 12, 13"));
    let workspace = comparison(&ARMS, &declared);
    assert_forecast_until_runs_are_finished(&workspace);
    let plan = "plan lockfiles/both.lock --effect 0.1";
    let output = workspace.exits(0, plan);
    assert!(output.contains("from 3 A/A pairs of the base with other init and data"), "{output}");
    let value = json(&workspace, &format!("{plan} --json"));
    let from = &value["noise_from"];
    assert_eq!((&from["from"], &from["aa_pairs"]), (&"aa_pairs".into(), &3.into()), "{value}");
    assert_eq!(from["of"][0], "init 1 data 1 and init 11 data 11", "{value}");
    let value = json(&workspace, &format!("{plan} --noise 0.1 --json"));
    assert_eq!(value["noise_from"]["from"], "given");
    // One pair is too few, and the plan names what it used instead.
    build_beside(&workspace, "one", &format!("{}{}", seeds(&[1, 2, 3]), replicate("11")));
    workspace.exits(0, "compare lockfiles/one.lock");
    let output = workspace.exits(0, "plan lockfiles/one.lock --effect 0.1");
    let pooled = "from 4 runs of the base, pooled, since 1 of 3 A/A pairs are finished";
    assert!(output.contains(pooled), "{output}");
    let margin = "[analysis]\nmargin = 10\n";
    let four = format!("{margin}{}{}", seeds(&[1, 2, 3, 4]), replicate("11, 12, 13"));
    build_beside(&workspace, "more", &four);
    assert_forecast_uses_the_noise_of_pairs(&workspace);
}

/// Forecasts are printed when the lock is built and when its runs start, not once they are finished.
fn assert_forecast_until_runs_are_finished(workspace: &Place) {
    let forecast =
        ["questions  training will show ", "time       less than a minute for 9 runs here\n"];
    for (command, finished) in [
        ("build both.toml", false),
        ("compare lockfiles/both.lock", false),
        ("compare lockfiles/both.lock", true),
        ("build both.toml", true),
    ] {
        let output = workspace.exits(0, command);
        for what in forecast {
            assert_eq!(output.contains(what), !finished, "{command}: {what}\n{output}");
        }
        assert!(!output.contains("seeds      "), "nothing is known of the noise: {output}");
        if command.starts_with("compare") {
            for what in ["peak memory", "MiB", "SE: seeds and questions", "Training showed"] {
                assert!(output.contains(what), "{what}\n{output}");
            }
        }
    }
}

/// `more.toml` has one more seed: `build` prints which difference its seeds find.
fn assert_forecast_uses_the_noise_of_pairs(workspace: &Place) {
    let output = workspace.exits(0, "build more.toml");
    let line = output.lines().find(|line| line.starts_with("  seeds      ")).unwrap_or(&output);
    assert!(line.contains("4 seeds find a difference of "), "{output}");
    assert!(
        line.contains(
            " in eval_loss in 80% of cases; one as large as the margin 10 needs 3 seeds; "
        )
    );
    assert!(line.ends_with(", from 3 A/A pairs"), "{output}");
    let value = json(workspace, "build more.toml --json");
    let forecast = &value["locks"][0]["forecast"];
    assert_eq!((&forecast["time"]["runs"], &forecast["seeds"]["listed"]), (&2.into(), &4.into()));
    let smallest = forecast["seeds"]["smallest"].as_f64().unwrap();
    let plan = format!("plan lockfiles/more.lock --effect {smallest} --json");
    let value = json(workspace, &plan);
    assert_eq!(value["plan"]["seeds"], 4, "{value}");
}

/// Only some steps of a long run are timed; for a lock that cannot run here the time is not known.
#[test]
fn build_forecasts_the_time_of_runs() {
    // Long questions: a search in as many tokens has fewer of them.
    let long = [
        ("steps = 6", "steps = 200000"),
        ("seq_len = 24", "seq_len = 192"),
        ("depo.N = 4", "depo.N = 20"),
        ("depo.min_tlen = 1", "depo.min_tlen = 2"),
        ("depo.max_tlen = 2", "depo.max_tlen = 4"),
    ];
    let arms = [("plain", "small", &long as &[_]), ("treated", "small_canon", &long)];
    let workspace = comparison(&arms, &format!("{HEAD}{}", seeds(&[1, 2])));
    let recipe = fs::read_to_string(workspace.path("plain.toml")).unwrap();
    let recipe = recipe.replace("steps = 200000", "steps = 2000");
    fs::write(workspace.path("alone.toml"), &recipe).unwrap();
    let output = workspace.exits(0, "build both.toml alone.toml");
    let time = |runs: &str| {
        let end = format!(" for {runs} here");
        output
            .lines()
            .filter(|line| line.starts_with("  time       about "))
            .any(|line| line.contains(&end))
    };
    assert!(time("4 runs") && time("1 run"), "{output}");
    assert!(
        output.contains(": 2 of plain at ") && output.contains(", 2 of treated at "),
        "{output}"
    );
    assert!(output.contains("% of its windows)"), "too long to search whole: {output}");
    assert_eq!(
        workspace.exits(0, "build both.toml plain.toml -q"),
        "",
        "nothing is timed for nobody"
    );

    let value = json(&workspace, "run --lock lockfiles/plain.lock --dry-run --json");
    assert_eq!(value["schema"], "canonc.run.estimate.v1");
    assert_eq!((&value["steps"], &value["timed"]), (&200_000.into(), &"micro_batches".into()));
    let seconds = |name: &str| value[name].as_f64().unwrap();
    assert!(
        seconds("step_seconds") > 0.0
            && seconds("training_seconds") > 600.0 * seconds("step_seconds")
    );
    let sum = seconds("training_seconds") + seconds("evaluation_seconds");
    assert!((seconds("seconds") - sum).abs() < 1e-6 * sum, "{value}");

    fs::write(workspace.path("far.toml"), recipe.replace("threads = 1", "device = \"cuda\""))
        .unwrap();
    if runtime::kernels::cuda_devices() == 0 {
        let output = workspace.exits(0, "build far.toml");
        assert!(output.contains("  time       not known for 1 run here: "), "{output}");
    }
}

#[test]
fn the_bound_of_step_times_comes_from_the_lock_and_a_flag_is_marked() {
    let declared = format!("{HEAD}[analysis]\ntime_bound = 1.000001\n{}", seeds(&[1, 2]));
    let workspace = comparison(&ARMS, &declared);
    workspace.exits(0, "build -q both.toml");
    let time = "compare lockfiles/both.lock --time 12";
    let output = workspace.exits(0, time);
    assert!(output.contains("at most ×1.000001 for an interval\n"), "{output}");
    assert!(output.contains("treated: no interval: the base differs from itself"), "{output}");
    let output = workspace.exits(0, &format!("{time} --bound 9"));
    assert!(
        output.contains("at most ×9 for an interval (by --bound, not by the lock)"),
        "{output}"
    );
    let value = json(&workspace, &format!("{time} --bound 9 --json"));
    let comparison = &value["comparisons"][0];
    assert_eq!(
        (&comparison["bound"], &comparison["bound_from"]),
        (&9.0.into(), &"flag".into()),
        "{value}"
    );
}

#[test]
fn plan_refuses_without_an_estimate_of_noise_and_with_bad_options() {
    let declared =
        format!("{HEAD}[analysis]\nprimary = \"exact_match\"\nmargin = 0.1\n{}", seeds(&[1, 2, 3]));
    // After one step at a tiny rate, no complete answer is right.
    let idle: [(&str, &str); 3] =
        [("steps = 6", "steps = 1"), ("warmup = 2", "warmup = 0"), ("lr = 0.01", "lr = 0.0000001")];
    let workspace =
        comparison(&[("plain", "small", &idle), ("treated", "small_canon", &idle)], &declared);
    workspace.exits(0, "build -q both.toml");
    let plan = "plan lockfiles/both.lock --effect 0.1";
    let output = workspace.exits(0, &format!("{plan} --noise 0.1"));
    assert!(output.contains("as given") && output.contains("to call arms equivalent"), "{output}");
    workspace.exits(0, "compare lockfiles/both.lock");
    let output = workspace.exits(1, plan);
    assert!(
        output.contains("are at the bound 0") || output.contains("all values equal"),
        "{output}"
    );
    assert!(output.contains("--noise 0.01"), "{output}");
    for (words, what) in [
        ("--effect 0", "above 0"),
        ("--effect=-1", "above 0"),
        ("--effect nan", "above 0"),
        ("--effect 1 --power 1", "between 0.5 and 1"),
        ("--effect 1 --noise inf", "above 0"),
    ] {
        let output = workspace.exits(2, &format!("plan lockfiles/both.lock {words}"));
        assert!(output.contains(what), "{words}: {output}");
    }
    let output = workspace.exits(1, "plan lockfiles/both.lock --effect 0.000001 --noise 1");
    assert!(output.contains("10000 seeds reach a power of"), "{output}");
}

/// Finished seeds that the rule does not use are named, and nothing says that the rule was there first.
#[test]
fn a_stopping_rule_that_is_chosen_after_the_results_is_warned_of() {
    let head = "base = \"plain\"\ntreatment = [\"optimizer.lr\"]\n";
    let (fast, slow) = (("lr = 0.01", "lr = 0.03"), ("lr = 0.01", "lr = 0.0000001"));
    let workspace = comparison(
        &[("plain", "small", &[SHORT, fast]), ("treated", "small", &[SHORT, slow])],
        &format!("{head}{}", seeds(&[1, 2, 3, 4, 5, 6, 7, 8, 9])),
    );
    workspace.exits(0, "build -q both.toml");
    workspace.exits(0, "compare lockfiles/both.lock");
    let both = fs::read_to_string(workspace.path("both.toml")).unwrap();
    let arms = &both[both.find("[arms]").unwrap()..];
    let rule = "[analysis]\nstop = \"sequential\"\n";
    let chosen = format!("{head}{rule}{}{arms}", seeds(&[1, 2, 3, 4, 5, 6, 7, 8, 9]));
    fs::write(workspace.path("chosen.toml"), chosen).unwrap();
    workspace.exits(0, "build -q chosen.toml");
    let value = json(&workspace, "compare lockfiles/chosen.lock --json");
    let comparison = &value["comparisons"][0];
    let used = comparison["looks"][0]["n"].as_u64().unwrap() as usize;
    let siblings = &comparison["siblings"];
    assert!((4..9).contains(&used), "{value}");
    assert_eq!(siblings["used"], used);
    assert_eq!(siblings["left_out"].as_array().unwrap().len(), 9 - used, "{siblings}");
    assert_eq!(siblings["taken"].as_array().unwrap().len(), 2 * used, "{siblings}");
    let output = workspace.exits(0, "compare lockfiles/chosen.lock");
    for what in [&format!("compares {used} of 9 seeds"), "may have been chosen after their results"]
    {
        assert!(output.contains(what), "{what}: {output}");
    }
    // Three seeds are too few for the rule at this level.
    let three = format!("{head}{rule}max_seeds = 3\n{}{arms}", seeds(&[9, 8, 7, 6]));
    fs::write(workspace.path("three.toml"), three).unwrap();
    let output = workspace.exits(2, "build three.toml");
    assert!(
        output.contains("after 3 seeds") && output.contains("cannot decide before 4"),
        "{output}"
    );
    assert!(!workspace.path("lockfiles/three.lock").exists());
    let output = workspace.exits(0, "plan lockfiles/chosen.lock --effect 0.1 --noise 0.1");
    assert!(output.contains("at most 9 seeds under its stopping rule, which needs 4"), "{output}");
}

/// Seeds added to a lock when its results are known, in the same folder: with more seeds, and with a rule.
#[test]
fn seeds_that_are_added_after_a_report_are_marked() {
    let two = seeds(&[1, 2]);
    let workspace = comparison(&ARMS, &format!("{HEAD}{two}"));
    workspace.exits(0, "build -q both.toml");
    let output = workspace.exits(0, "compare lockfiles/both.lock");
    assert!(!output.contains("Warning"), "{output}");
    let output = workspace.exits(0, "compare lockfiles/both.lock");
    assert!(!output.contains("Warning"), "the same lock again: {output}");
    let text = fs::read_to_string(workspace.path("both.toml")).unwrap();
    fs::write(workspace.path("both.toml"), text.replace(&two, &seeds(&[1, 2, 3, 4]))).unwrap();
    workspace.exits(0, "build -q both.toml");
    let value = json(&workspace, "compare lockfiles/both.lock --json");
    let comparison = &value["comparisons"][0];
    let earlier = &comparison["siblings"]["earlier_reports"][0];
    assert_eq!(earlier["seeds"], 2, "{comparison}");
    assert_eq!(earlier["added"], serde_json::json!([[3, 3], [4, 4]]), "{comparison}");
    let warning = comparison["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with("Warning: the results of 2 seeds were shown here"), "{warning}");
    assert!(warning.ends_with("before this lock added init 3 data 3, init 4 data 4."), "{warning}");
    let known = "Results of 2 seeds were known before 2 other seeds were added.";
    assert!(comparison["methods"].as_str().unwrap().contains(known), "{comparison}");
    // The page warns as well, and so does a later look at the same lock.
    workspace.exits(0, "report lockfiles/both.lock --out page.html");
    assert!(fs::read_to_string(workspace.path("page.html")).unwrap().contains(warning));
    assert!(workspace.exits(0, "compare lockfiles/both.lock").contains(warning));
    // A rule that is declared when fixed results are known.
    let text = fs::read_to_string(workspace.path("both.toml")).unwrap();
    let rule = text.replace("[seeds]", "[analysis]\nstop = \"sequential\"\n[seeds]");
    fs::write(workspace.path("both.toml"), rule).unwrap();
    workspace.exits(0, "build -q both.toml");
    let output = workspace.exits(0, "compare lockfiles/both.lock");
    assert!(
        output.contains("the results of 4 seeds were shown here under another lock"),
        "{output}"
    );
    assert!(output.contains("before this analysis was declared"), "{output}");
}

#[test]
fn a_stopping_rule_looks_after_every_seed_and_stops() {
    let declared = format!(
        "base = \"plain\"\ntreatment = [\"optimizer.lr\"]\n[analysis]\nstop = \"sequential\"\n{}",
        seeds(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    );
    let (fast, slow) = (("lr = 0.01", "lr = 0.03"), ("lr = 0.01", "lr = 0.0000001"));
    let workspace = comparison(
        &[("plain", "small", &[SHORT, fast]), ("treated", "small", &[SHORT, slow])],
        &declared,
    );
    workspace.exits(0, "build -q both.toml");
    let output = workspace.exits(0, "compare lockfiles/both.lock");
    assert!(output.contains("seeds the arms differ: eval_loss"), "{output}");
    assert!(output.contains("valid at every look"), "{output}");
    assert!(
        output.contains("95% anytime-valid interval") && !output.contains("t interval"),
        "{output}"
    );
    let looks = fs::read_to_string(workspace.path("runs/both/looks.jsonl")).unwrap();
    let parsed: Vec<Value> =
        looks.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let used = parsed.len();
    assert!((4..10).contains(&used), "{looks}");
    for (index, look) in parsed.iter().enumerate() {
        let decision = if index + 1 == used { "differs" } else { "continue" };
        assert_eq!(
            (&look["n"], &look["decision"]),
            (&(index + 1).into(), &decision.into()),
            "{looks}"
        );
    }
    assert!(workspace.path(&format!("runs/both/both-plain-seed{used}")).exists());
    assert!(!workspace.path(&format!("runs/both/both-plain-seed{}", used + 1)).exists());
    assert_nothing_runs_again(&workspace, used, &looks);
    assert_changed_looks_are_shown(&workspace, used, &looks);
}

/// Repeated: no further run, and the page needs only the rule's runs.
fn assert_nothing_runs_again(workspace: &Place, used: usize, looks: &str) {
    workspace.exits(0, "compare lockfiles/both.lock");
    assert_eq!(fs::read_to_string(workspace.path("runs/both/looks.jsonl")).unwrap(), looks);
    assert!(!workspace.path(&format!("runs/both/both-plain-seed{}", used + 1)).exists());
    let output = workspace.exits(0, "report lockfiles/both.lock --out page.html");
    assert!(!output.contains("left out"), "{output}");
    let page = fs::read_to_string(workspace.path("page.html")).unwrap();
    assert!(page.contains("95% anytime-valid interval") && !page.contains("t interval"), "{page}");
}

/// A recorded look is not repeated, and a look under an earlier analysis is not hidden.
fn assert_changed_looks_are_shown(workspace: &Place, used: usize, looks: &str) {
    let path = workspace.path("runs/both/looks.jsonl");
    fs::write(&path, looks.replacen("\"n\":2", "\"n\":9", 1)).unwrap();
    let output = workspace.exits(1, "compare lockfiles/both.lock");
    assert!(output.contains("a recorded look does not match the runs"), "{output}");
    assert!(
        workspace
            .exits(0, "report lockfiles/both.lock --out page.html")
            .contains("a recorded look")
    );
    fs::write(&path, looks).unwrap();
    let both = fs::read_to_string(workspace.path("both.toml")).unwrap();
    fs::write(
        workspace.path("both.toml"),
        both.replace("stop = \"sequential\"", "stop = \"sequential\"\nlevel = 0.2"),
    )
    .unwrap();
    workspace.exits(0, "build -q both.toml");
    let output = workspace.exits(0, "compare lockfiles/both.lock");
    assert!(
        output.contains(&format!("Warning: {used} looks were taken here under another lock (")),
        "{output}"
    );
    assert!(output.contains("last: differs) before this analysis was declared"), "{output}");
    let kept = fs::read_to_string(&path).unwrap();
    assert!(kept.starts_with(looks) && kept.len() > looks.len(), "{kept}");
}

/// Only checks that times are measured, and that a bound that no machine meets leaves no interval.
#[test]
fn step_times_are_measured_in_turn_and_write_nothing() {
    let workspace = comparison(&ARMS, &format!("{HEAD}{}", seeds(&[1, 2])));
    workspace.exits(0, "build -q both.toml");
    let time = "compare lockfiles/both.lock --time 12";
    let output = workspace.exits(0, &format!("{time} --bound 1.0000000001"));
    assert!(output.contains("12 steps of each arm in turn"), "{output}");
    assert!(output.contains("treated: no interval: the base differs from itself"), "{output}");
    let value = json(&workspace, &format!("{time} --bound 9 --json"));
    assert_eq!(value["schema"], "canonc.step_times.v1");
    let arm = &value["comparisons"][0]["arms"][0];
    assert_eq!((&arm["name"], &arm["ratio"]["n"]), (&"treated".into(), &3.into()), "{value}");
    assert!(arm["ratio"]["low"].as_f64() < arm["ratio"]["high"].as_f64(), "{value}");
    assert!(!workspace.path("runs").exists());
    for (words, what) in
        [("--time 3", "12"), ("--time 40 --bound 1", "above 1"), ("--bound 2", "--time")]
    {
        let output = workspace.exits(2, &format!("compare lockfiles/both.lock {words}"));
        assert!(output.contains(what), "{words}: {output}");
    }
}
