//! Comparisons: their runs, their verdicts, and that a confounded one is never locked.

use std::collections::BTreeSet;

use compiler::field::{FieldValue, Fields};
use compiler::lock::{Comparison, Lock, NoComparison, Role, read, write};
use compiler::recipe;
use dsl::Sources;

use super::files::demo;
use super::support::{DEPO, MANO, SMALL, TEXT, compiled_text, experiment_of, locked};

/// A comparison of recipes of the small archs.
fn compare(file: &str, arms: &[(&str, &str, &str)]) -> Result<Comparison, String> {
    let mut sources = Sources::new();
    let id = sources.add("recipes/c.toml", file);
    let (read, found) = recipe::comparison::read(&sources, id);
    let Some(read) = read else { return Err(dsl::render(&sources, &found)) };
    let made = arms
        .iter()
        .map(|(name, arch, recipe)| {
            let arch = locked(&compiled_text(SMALL, arch));
            ((*name).to_owned(), experiment_of(recipe, &arch))
        })
        .collect();
    read.comparison("c", "recipes/c.toml", made).map_err(|why| {
        let report = match &why {
            NoComparison::Confounded(_, verdict) => compiler::compare::text(verdict, false),
            NoComparison::Problems(_) | NoComparison::Treatment(..) => String::new(),
        };
        report + &dsl::render(&sources, &read.explain(&why))
    })
}

const PAIR: &str = "base = \"llama\"\ntreatment = [\"canon\"]\n[arms]\nllama = \"a.toml\"\ncanon = \"b.toml\"\n\
    [seeds]\ninit = [1, 2]\ndata = [5, 6]\n";

#[test]
fn arms_times_seeds_times_grid() {
    let file = format!(
        "{PAIR}[again]\ninit = [11, 12]\ndata = [15, 16]\n\
         [grid]\n\"optimizer.lr, optimizer.weight_decay\" = [[0.001, 0.04], [0.002, 0.02]]\n\
         [selection]\nmetric = \"answer_accuracy\"\n"
    );
    let made = compare(&file, &[("llama", "small", DEPO), ("canon", "smallcanon", DEPO)]).unwrap();
    let names: Vec<&str> = made.runs().iter().map(|run| run.experiment.name.as_str()).collect();
    assert_eq!(names.len(), 12);
    assert_eq!(names[0], "c-llama-lr0.001-weight_decay0.04-seed1");
    assert_eq!(names[11], "c-llama-again-lr0.002-weight_decay0.02-seed2");
    let ids: BTreeSet<_> = made.runs().iter().map(|run| run.experiment.id()).collect();
    assert_eq!(ids.len(), 12);
    for run in made.runs() {
        // Runs of equal place share seeds and point; the A/A arm is the base but for its seeds.
        let twin = made.runs().into_iter().find(|other| {
            other.role == Role::Base && other.seed == run.seed && other.point == run.point
        });
        let (run, twin) = (&run.experiment, &twin.unwrap().experiment);
        assert_eq!(run.lr, twin.lr);
        assert_eq!(run.seeds.eval, twin.seeds.eval);
    }
    let again = made.runs().into_iter().filter(|run| run.role == Role::Again);
    assert!(again.into_iter().all(|run| run.experiment.seeds.init > 10 && run.arm == "llama"));
    let text = write(&Lock::Comparison(made));
    assert_eq!(write(&read("c", &text).unwrap()), text);
    assert!(text.contains(
        "grid.\"optimizer.lr, optimizer.weight_decay\" = [[0.001, 0.04], [0.002, 0.02]]\n"
    ));
    assert!(text.contains("selection.choose = \"most\"\n"));
}

#[test]
fn the_seeds_of_the_arms_are_those_of_the_comparison() {
    let other = DEPO.replace("init = 1, data = 1", "init = 77, data = 78");
    let arms = |b: &'static str| [("llama", "small", DEPO), ("canon", "smallcanon", b)];
    let one = compare(PAIR, &arms(DEPO)).unwrap();
    let two = compare(PAIR, &arms(Box::leak(other.into_boxed_str()))).unwrap();
    assert_eq!(one.id(), two.id());
}

#[test]
fn a_confounded_comparison_is_reported_and_not_locked() {
    let other = DEPO.replace("0.0133", "0.01").replace("warmup = 60", "warmup = 30");
    let shown = compare(PAIR, &[("llama", "small", DEPO), ("canon", "smallcanon", &other)]);
    insta::assert_snapshot!("confounded", shown.unwrap_err());
    // Declared, it is a bundle, and says so.
    let file =
        PAIR.replace("[\"canon\"]", "[\"canon\", \"optimizer.weight_decay\", \"schedule.warmup\"]");
    let made =
        compare(&file, &[("llama", "small", DEPO), ("canon", "smallcanon", &other)]).unwrap();
    assert_eq!(
        made.verdicts["canon"].headline(),
        "bundle of 3 factors (canon, optimizer.weight_decay, schedule.warmup): controlled, but not attributable to one of them"
    );
}

#[test]
fn what_makes_no_comparison() {
    let arms = [("llama", "small", DEPO), ("canon", "smallcanon", DEPO)];
    let mut shown = String::new();
    let same = [("llama", "small", DEPO), ("canon", "small", DEPO)];
    shown += &format!("# arms that agree\n{}\n", compare(PAIR, &same).unwrap_err());
    let typo = PAIR.replace("\"canon\"]", "\"canno\"]");
    shown += &format!("# unknown treatment\n{}\n", compare(&typo, &arms).unwrap_err());
    let grid = format!("{PAIR}[grid]\n\"schedule.warmup\" = [10, 1000]\n");
    shown += &format!("# a point that cannot be\n{}\n", compare(&grid, &arms).unwrap_err());
    let theta = format!("{PAIR}[grid]\n\"schedule.exp_factor\" = [1]\n");
    shown += &format!("# a field that is not there\n{}\n", compare(&theta, &arms).unwrap_err());
    insta::assert_snapshot!(shown);
}

#[test]
fn each_arm_can_have_a_treatment_of_its_own() {
    let file = "base = \"a\"\ntreatment = { b = [\"canon\"], c = [\"optimizer.lr\"] }\n\
        [arms]\na = \"a.toml\"\nb = \"b.toml\"\nc = \"c.toml\"\n[seeds]\ninit = [1]\ndata = [1]\n";
    let faster = DEPO.replace("lr = 0.003", "lr = 0.006");
    let arms = [("a", "small", DEPO), ("b", "smallcanon", DEPO), ("c", "small", faster.as_str())];
    let made = compare(file, &arms).unwrap();
    assert_eq!(made.verdicts["b"].headline(), "controlled for canon");
    assert_eq!(made.verdicts["c"].headline(), "controlled for optimizer.lr");
    assert_eq!(made.runs().len(), 3);
}

#[test]
fn open_arms_make_an_open_comparison_and_binding_closes_all_of_it() {
    use compiler::digest::Digest;
    use compiler::lock::{Bound, bind, comparable};
    let made = compare(PAIR, &[("llama", "small", TEXT), ("canon", "smallcanon", TEXT)]).unwrap();
    assert_eq!(
        made.verdicts["canon"].headline(),
        "controlled for canon; data assumed equal by name"
    );
    let open = Lock::Comparison(made);
    assert_eq!(comparable(open.clone()).unwrap_err().code, "lock-open");
    let bound = Bound { digest: Digest::of("test", "a"), tokens: None, tokenizer: None };
    let closed = bind(&open, bound).unwrap();
    let text = write(&closed);
    assert_eq!(write(&read("c", &text).unwrap()), text);
    let comparison = comparable(closed).unwrap();
    assert_eq!(comparison.verdicts["canon"].headline(), "controlled for canon");
}

/// At each point of a grid, what follows from the varied field follows from that point's value.
#[test]
fn a_grid_leaves_nothing_behind_that_follows_from_it() {
    let mano = MANO.replace(", lens = [1, 2], qids = [1, 2]", "");
    let file = format!("{PAIR}[grid]\n\"data.L\" = [4, 8]\n");
    let arms = [("llama", "small", &*mano), ("canon", "smallcanon", &*mano)];
    // What is learnt is not an arm's own to choose.
    let refused = compare(&file, &arms).unwrap_err();
    assert!(refused.contains("chosen-apart") && refused.contains("per_arm = false"), "{refused}");
    let made = compare(&format!("{file}[selection]\nper_arm = false\n"), &arms).unwrap();
    assert_eq!(made.runs().len(), 8);
    for run in made.runs() {
        let most = if run.point == 0 { 4 } else { 8 };
        let alone = mano.replace("L = 4", &format!("L = {most}"));
        let same = experiment_of(&alone, &run.experiment.arch);
        for path in ["data.L", "data.lens", "data.qids", "data.task_digest"] {
            assert_eq!(run.experiment.value(path), same.value(path), "{path} at L = {most}");
        }
    }
    let text = write(&Lock::Comparison(made));
    assert_eq!(write(&read("c", &text).unwrap()), text);
    // What was chosen stays chosen.
    let chosen = MANO.replace("L = 4", "L = 8");
    let twelve = Fields::from([("data.L".to_owned(), FieldValue::Int(12))]);
    let chosen = experiment_of(&chosen, &locked(&compiled_text(SMALL, "small")));
    let with = chosen.with("x".to_owned(), &twelve).unwrap();
    assert_eq!(with.value("data.lens"), chosen.value("data.lens"));
    assert_eq!(with.value("data.lens").unwrap().to_string(), "[1, 2]");
}

/// A run twice is no second replicate.
#[test]
fn each_seed_is_another_run() {
    let arms = [("llama", "small", DEPO), ("canon", "smallcanon", DEPO)];
    let mut shown = String::new();
    for (name, from, to) in [
        (
            "all equal",
            "init = [1, 2]\ndata = [5, 6]",
            "init = [1, 1]\ndata = [1, 1]\neval = [0, 0]",
        ),
        (
            "apart in place only",
            "init = [1, 2]\ndata = [5, 6]",
            "init = [1, 2, 1]\ndata = [5, 6, 5]",
        ),
        (
            "apart in what is evaluated alone",
            "init = [1, 2]\ndata = [5, 6]",
            "init = [1, 1]\ndata = [5, 5]\neval = [7, 8]",
        ),
        (
            "in the A/A arm",
            "data = [5, 6]\n",
            "data = [5, 6]\n[again]\ninit = [11, 11]\ndata = [15, 15]\n",
        ),
    ] {
        assert!(PAIR.contains(from), "{name}");
        let refused = compare(&PAIR.replace(from, to), &arms);
        let refused = refused.err().unwrap_or_else(|| panic!("{name}: locked"));
        shown += &format!("# {name}\n{refused}\n");
    }
    insta::assert_snapshot!(shown);
    // Either of the two may stay as it is.
    let one = PAIR.replace("init = [1, 2]", "init = [1, 1]");
    assert_eq!(compare(&one, &arms).unwrap().runs().len(), 4);
    // A lock that was edited to say so is refused as well.
    let text = write(&Lock::Comparison(compare(PAIR, &arms).unwrap()));
    let edited = text.replace("seeds.data = [5, 6]", "seeds.data = [5, 5]");
    let edited = edited.replace("seeds.init = [1, 2]", "seeds.init = [1, 1]");
    assert_ne!(edited, text);
    let error = read("c", &edited).unwrap_err();
    assert!(error.to_string().contains("init 1, data 5"), "{error}");
}

#[test]
fn the_demo_is_a_comparison_of_nine_runs() {
    let Lock::Comparison(demo) = demo() else { panic!("no comparison") };
    assert_eq!(demo.runs().len(), 9);
    assert_eq!(demo.verdicts["llamacanon"].headline(), "controlled for canon");
    let least = demo.arms.iter().map(|arm| arm.experiment.arch.compiled.graph.vocab).min();
    assert_eq!(least, Some(104));
}

#[test]
fn a_grid_says_each_value_once_and_is_judged_by_what_is_measured() {
    let arms = [("llama", "small", MANO), ("canon", "smallcanon", MANO)];
    let made = |more: &str| compare(&format!("{PAIR}{more}"), &arms);
    let twice = "[grid]\n\"optimizer.lr\" = [0.1, 0.3]\n\"optimizer.lr, optimizer.weight_decay\" = [[0.2, 0.1]]\n";
    assert!(made(twice).unwrap_err().contains("varies `optimizer.lr` twice"));
    let refused = made("[selection]\nmetric = \"bits\"\n").unwrap_err();
    assert!(refused.contains("not-measured") && refused.contains("answer_accuracy"), "{refused}");
    for path in ["evaluation.windows", "budget.steps", "data.L"] {
        let refused = made(&format!("[grid]\n\"{path}\" = [2, 3]\n")).unwrap_err();
        assert!(refused.contains("chosen-apart") && refused.contains(path), "{refused}");
    }
    // Values too long for names make runs of different names all the same.
    let ones = vec!["1"; 40].join(", ");
    let long = format!(
        "[grid]\n\"data.lens, data.qids\" = [[[{ones}, 2], [{ones}, 2]], [[{ones}, 1], [{ones}, 1]]]\n[selection]\nper_arm = false\n"
    );
    let made = made(&long).unwrap();
    let names: std::collections::BTreeSet<String> =
        made.runs().iter().map(|run| run.experiment.name.to_lowercase()).collect();
    assert_eq!(names.len(), made.runs().len());
    let text = write(&Lock::Comparison(made));
    assert_eq!(write(&read("c", &text).unwrap()), text);
}
