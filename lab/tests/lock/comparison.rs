//! Comparisons: their runs, their verdicts, and that a confounded comparison is never locked.

use std::collections::BTreeSet;

use dsl::Sources;
use lab::comparison::{Comparison, NoComparison, Role};
use lab::field::{FieldValue, Fields};
use lab::lock::{Lock, read, write};
use lab::recipe;

use super::files::demo;
use support::locks::{DEPO, MANO, SMALL, TEXT, compiled_text, experiment_of, locked};
use support::planted::PAIR;

/// A comparison of recipes of the small archs.
pub(super) fn compare(file: &str, arms: &[(&str, &str, &str)]) -> Result<Comparison, String> {
    compare_archs(SMALL, file, arms)
}

/// The same with the archs of another text.
fn compare_archs(
    archs: &str,
    file: &str,
    arms: &[(&str, &str, &str)],
) -> Result<Comparison, String> {
    let mut sources = Sources::new();
    let id = sources.add("recipes/c.toml", file);
    let (read, diagnostics) = recipe::comparison::read(&sources, id);
    let Some(read) = read else { return Err(dsl::render(&sources, &diagnostics)) };
    let experiments = arms
        .iter()
        .map(|(name, arch, recipe)| {
            let arch = locked(&compiled_text(archs, arch));
            ((*name).to_owned(), experiment_of(recipe, &arch))
        })
        .collect();
    read.comparison("c", "recipes/c.toml", experiments).map_err(|problem| {
        let report = match &problem {
            NoComparison::Confounded(_, verdict) => lab::verdict::text(verdict, false),
            NoComparison::Problems(_) | NoComparison::Treatment(..) => String::new(),
        };
        report + &dsl::render(&sources, &read.explain(&problem))
    })
}

#[test]
fn arms_times_seeds_times_grid() {
    let file = format!(
        "{PAIR}[replicate]\ninit = [11, 12]\ndata = [15, 16]\n\
         [grid]\n\"optimizer.lr, optimizer.weight_decay\" = [[0.001, 0.04], [0.002, 0.02]]\n\
         [selection]\nmetric = \"exact_match\"\n"
    );
    let comparison =
        compare(&file, &[("llama", "small", DEPO), ("canon", "smallcanon", DEPO)]).unwrap();
    let names: Vec<&str> =
        comparison.runs().iter().map(|run| run.experiment.name.as_str()).collect();
    assert_eq!(names.len(), 12);
    assert_eq!(names[0], "c-llama-lr0.001-weight_decay0.04-seed1");
    assert_eq!(names[11], "c-llama-replicate-lr0.002-weight_decay0.02-seed2");
    let ids: BTreeSet<_> = comparison.runs().iter().map(|run| run.experiment.id()).collect();
    assert_eq!(ids.len(), 12);
    for run in comparison.runs() {
        // Runs at the same place share seeds and point; the A/A arm equals the base except for its seeds.
        let twin = comparison.runs().into_iter().find(|other| {
            other.role == Role::Base && other.seed == run.seed && other.point == run.point
        });
        let (run, twin) = (&run.experiment, &twin.unwrap().experiment);
        assert_eq!(run.lr, twin.lr);
        assert_eq!(run.seeds.eval, twin.seeds.eval);
    }
    let again = comparison.runs().into_iter().filter(|run| run.role == Role::Replicate);
    assert!(again.into_iter().all(|run| run.experiment.seeds.init > 10 && run.arm == "llama"));
    let text = write(&Lock::Comparison(comparison));
    assert_eq!(write(&read("c", &text).unwrap()), text);
    assert!(text.contains(
        "grid.\"optimizer.lr, optimizer.weight_decay\" = [[0.001, 0.04], [0.002, 0.02]]\n"
    ));
    assert!(text.contains("selection.mode = \"max\"\n"));
}

#[test]
fn the_seeds_of_the_arms_are_those_of_the_comparison() {
    let reseeded = DEPO.replace("init = 1, data = 1", "init = 77, data = 78");
    let arms = |b: &'static str| [("llama", "small", DEPO), ("canon", "smallcanon", b)];
    let first = compare(PAIR, &arms(DEPO)).unwrap();
    let second = compare(PAIR, &arms(Box::leak(reseeded.into_boxed_str()))).unwrap();
    assert_eq!(first.id(), second.id());
}

#[test]
fn either_arm_may_be_the_base() {
    let moved = "block decoder(x; mixer, mlp) {\n  y = slot A(x)\n  h = y + mixer(rms_norm pre_mixer (y))\n  \
                 h + mlp(slot C(rms_norm pre_mlp (h)))\n}\n";
    let archs = format!(
        "{SMALL}block own = moved {{ mixer attention {{ heads 2 }}  mlp swiglu {{ hidden 16 }} }}\n{}\
         arch there = small with {{ layers 2 of own }}\narch treated = there with {{ canon A }}\n\
         arch here = small with {{ canon A }}\n",
        moved.replace("decoder", "moved")
    );
    let based = |base: &str| PAIR.replace("base = \"llama\"", &format!("base = \"{base}\""));
    for base in ["llama", "canon"] {
        let arms = [("llama", "small", DEPO), ("canon", "here", DEPO)];
        assert!(compare_archs(&archs, &based(base), &arms).is_ok(), "{base}");
        let arms = [("llama", "small", DEPO), ("canon", "treated", DEPO)];
        let report = compare_archs(&archs, &based(base), &arms).unwrap_err();
        assert!(report.starts_with("confounded: "), "{report}");
        assert!(report.contains("decoder"), "{report}");
    }
}

#[test]
fn a_confounded_comparison_is_reported_and_not_locked() {
    let changed = DEPO.replace("0.0133", "0.01").replace("warmup = 60", "warmup = 30");
    let shown = compare(PAIR, &[("llama", "small", DEPO), ("canon", "smallcanon", &changed)]);
    insta::assert_snapshot!("confounded", shown.unwrap_err());
    // Declared, it is a bundle and is labelled as one.
    let file =
        PAIR.replace("[\"canon\"]", "[\"canon\", \"optimizer.weight_decay\", \"schedule.warmup\"]");
    let bundle =
        compare(&file, &[("llama", "small", DEPO), ("canon", "smallcanon", &changed)]).unwrap();
    assert_eq!(
        bundle.verdicts["canon"].headline(),
        "bundle of 3 factors (canon, optimizer.weight_decay, schedule.warmup): controlled, but not attributable to one of them"
    );
}

#[test]
fn arms_that_cannot_be_compared() {
    let arms = [("llama", "small", DEPO), ("canon", "smallcanon", DEPO)];
    let mut snapshots: Vec<(String, String)> = Vec::new();
    let same = [("llama", "small", DEPO), ("canon", "small", DEPO)];
    snapshots.push(("arms that agree".to_owned(), compare(PAIR, &same).unwrap_err()));
    let typo = PAIR.replace("\"canon\"]", "\"canno\"]");
    snapshots.push(("unknown treatment".to_owned(), compare(&typo, &arms).unwrap_err()));
    let grid = format!("{PAIR}[grid]\n\"schedule.warmup\" = [10, 1000]\n");
    snapshots.push(("an impossible point".to_owned(), compare(&grid, &arms).unwrap_err()));
    let theta = format!("{PAIR}[grid]\n\"schedule.exp_factor\" = [1]\n");
    snapshots.push(("an unknown field".to_owned(), compare(&theta, &arms).unwrap_err()));
    let often = DEPO.to_owned() + "checkpoint = { every = 7 }\n";
    let cosmetic = PAIR.replace("\"canon\"]", "\"checkpoint.every\"]");
    let same = [("llama", "small", DEPO), ("canon", "small", often.as_str())];
    snapshots.push(("arms that train alike".to_owned(), compare(&cosmetic, &same).unwrap_err()));
    support::assert_cases!("tests/lock", "arms_that_cannot_be_compared", snapshots);
}

#[test]
fn each_arm_can_have_a_treatment_of_its_own() {
    let file = "base = \"a\"\ntreatment = { b = [\"canon\"], c = [\"optimizer.lr\"] }\n\
        [arms]\na = \"a.toml\"\nb = \"b.toml\"\nc = \"c.toml\"\n[seeds]\ninit = [1]\ndata = [1]\n";
    let faster = DEPO.replace("lr = 0.003", "lr = 0.006");
    let arms = [("a", "small", DEPO), ("b", "smallcanon", DEPO), ("c", "small", faster.as_str())];
    let comparison = compare(file, &arms).unwrap();
    assert_eq!(comparison.verdicts["b"].headline(), "controlled for canon");
    assert_eq!(comparison.verdicts["c"].headline(), "controlled for optimizer.lr");
    assert_eq!(comparison.runs().len(), 3);
}

#[test]
fn open_arms_make_an_open_comparison_and_binding_closes_all_of_it() {
    use compiler::digest::Digest;
    use lab::lock::{Bound, bind, comparable};
    let comparison =
        compare(PAIR, &[("llama", "small", TEXT), ("canon", "smallcanon", TEXT)]).unwrap();
    assert_eq!(
        comparison.verdicts["canon"].headline(),
        "controlled for canon; data assumed equal by name"
    );
    let open = Lock::Comparison(comparison);
    assert_eq!(comparable(open.clone()).unwrap_err().code, "lock-open");
    let bound =
        Bound { digest: Digest::of("test", "a"), documents: None, tokens: None, tokenizer: None };
    let closed = bind(&open, bound).unwrap();
    let text = write(&closed);
    assert_eq!(write(&read("c", &text).unwrap()), text);
    let comparison = comparable(closed).unwrap();
    assert_eq!(comparison.verdicts["canon"].headline(), "controlled for canon");
    // The matched quantity stays declared, and is checked again.
    let matched = format!("match = {{ on = \"flops\", within = 1 }}\n{PAIR}");
    let result = compare(&matched, &[("llama", "small", TEXT), ("canon", "smallcanon", TEXT)]);
    let closed = comparable(bind(&Lock::Comparison(result.unwrap()), bound).unwrap()).unwrap();
    let headline = closed.headline("canon");
    assert!(
        headline.starts_with("controlled for canon; matched on flops within 1: "),
        "{headline}"
    );
}

/// Fields that follow from the varied field are recomputed at each point of a grid.
#[test]
fn a_grid_recomputes_everything_that_follows_from_it() {
    let mano = MANO.replace(", mano.lens = [1, 2], mano.qids = [1, 2]", "");
    let file = format!("{PAIR}[grid]\n\"data.mano.L\" = [4, 8]\n");
    let arms = [("llama", "small", &*mano), ("canon", "smallcanon", &*mano)];
    // An arm must not choose what it learns.
    let refused = compare(&file, &arms).unwrap_err();
    assert!(refused.contains("chosen-apart") && refused.contains("per_arm = false"), "{refused}");
    let comparison = compare(&format!("{file}[selection]\nper_arm = false\n"), &arms).unwrap();
    assert_eq!(comparison.runs().len(), 8);
    for run in comparison.runs() {
        let most = if run.point == 0 { 4 } else { 8 };
        let alone = mano.replace("L = 4", &format!("L = {most}"));
        let same = experiment_of(&alone, &run.experiment.arch);
        for path in ["data.mano.L", "data.mano.lens", "data.mano.qids", "data.task_digest"] {
            assert_eq!(run.experiment.value(path), same.value(path), "{path} at L = {most}");
        }
    }
    let text = write(&Lock::Comparison(comparison));
    assert_eq!(write(&read("c", &text).unwrap()), text);
    // Fields that the recipe sets do not change.
    let chosen = MANO.replace("L = 4", "L = 8");
    let twelve = Fields::from([("data.mano.L".to_owned(), FieldValue::Int(12))]);
    let chosen = experiment_of(&chosen, &locked(&compiled_text(SMALL, "small")));
    let with = chosen.with("x".to_owned(), &twelve).unwrap();
    assert_eq!(with.value("data.mano.lens"), chosen.value("data.mano.lens"));
    assert_eq!(with.value("data.mano.lens").unwrap().to_string(), "[1, 2]");
}

/// Running a run again does not give a second replicate.
#[test]
fn each_seed_is_another_run() {
    let arms = [("llama", "small", DEPO), ("canon", "smallcanon", DEPO)];
    let mut snapshots: Vec<(String, String)> = Vec::new();
    for (name, from, to) in [
        (
            "all equal",
            "init = [1, 2]\ndata = [5, 6]",
            "init = [1, 1]\ndata = [1, 1]\neval = [0, 0]",
        ),
        (
            "different only in position",
            "init = [1, 2]\ndata = [5, 6]",
            "init = [1, 2, 1]\ndata = [5, 6, 5]",
        ),
        (
            "different only in evaluation",
            "init = [1, 2]\ndata = [5, 6]",
            "init = [1, 1]\ndata = [5, 5]\neval = [7, 8]",
        ),
        (
            "in the A/A arm",
            "data = [5, 6]\n",
            "data = [5, 6]\n[replicate]\ninit = [11, 11]\ndata = [15, 15]\n",
        ),
    ] {
        assert!(PAIR.contains(from), "{name}");
        let refused = compare(&PAIR.replace(from, to), &arms);
        let refused = refused.err().unwrap_or_else(|| panic!("{name}: locked"));
        snapshots.push((name.to_string(), refused.to_string()));
    }
    support::assert_cases!("tests/lock", "each_seed_is_another_run", snapshots);
    // Only one of the two has to change.
    let same_init = PAIR.replace("init = [1, 2]", "init = [1, 1]");
    assert_eq!(compare(&same_init, &arms).unwrap().runs().len(), 4);
    // A lock edited in this way is refused as well.
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
fn a_grid_lists_each_value_once_and_is_judged_by_a_metric() {
    let arms = [("llama", "small", MANO), ("canon", "smallcanon", MANO)];
    let with_lines = |more: &str| compare(&format!("{PAIR}{more}"), &arms);
    let twice = "[grid]\n\"optimizer.lr\" = [0.1, 0.3]\n\"optimizer.lr, optimizer.weight_decay\" = [[0.2, 0.1]]\n";
    assert!(with_lines(twice).unwrap_err().contains("varies `optimizer.lr` twice"));
    let refused = with_lines("[selection]\nmetric = \"bits\"\n").unwrap_err();
    assert!(refused.contains("not-measured") && refused.contains("exact_match"), "{refused}");
    for path in ["evaluation.windows", "budget.steps", "data.mano.L"] {
        let refused = with_lines(&format!("[grid]\n\"{path}\" = [2, 3]\n")).unwrap_err();
        assert!(refused.contains("chosen-apart") && refused.contains(path), "{refused}");
    }
    // If values are too long for names, the runs still get different names.
    let many = (1..=40).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let long = format!(
        "{PAIR}[grid]\n\"data.mano.lens, data.mano.qids\" = [[[{many}, 41], [{many}, 41]], [[{many}, 42], [{many}, 42]]]\n[selection]\nper_arm = false\n"
    );
    let mano = MANO.replace("mano.L = 4", "mano.L = 42");
    let comparison =
        compare(&long, &[("llama", "small", &mano), ("canon", "smallcanon", &mano)]).unwrap();
    let names: std::collections::BTreeSet<String> =
        comparison.runs().iter().map(|run| run.experiment.name.to_lowercase()).collect();
    assert_eq!(names.len(), comparison.runs().len());
    let text = write(&Lock::Comparison(comparison));
    assert_eq!(write(&read("c", &text).unwrap()), text);
}

/// A comparison's treatment may not name what is measured, whatever else it names.
#[test]
fn what_is_measured_is_no_treatment_of_a_comparison() {
    let wider = format!("{DEPO}evaluation = {{ windows = 128 }}\n");
    let arms = [("llama", "small", DEPO), ("canon", "smallcanon", wider.as_str())];
    let file = PAIR.replace("[\"canon\"]", "[\"canon\", \"evaluation.windows\"]");
    assert_ne!(file, PAIR);
    let refused = compare(&file, &arms).unwrap_err();
    assert!(refused.contains("what is measured is no treatment"), "{refused}");
    // Nor is it proposed.
    let refused = compare(PAIR, &arms).unwrap_err();
    assert!(!refused.contains("treatment = [\"canon\", "), "{refused}");
}

/// The budgets are equal at the first point of the grid and differ at the second, and no treatment declares it.
#[test]
fn a_confound_at_any_point_of_the_grid_is_one() {
    let tokens = DEPO.replace("steps = 600", "tokens = 2457600");
    let arms = [("llama", "small", DEPO), ("canon", "smallcanon", &*tokens)];
    let grid = "[grid]\n\"batch.sequences\" = [32, 16]\n[selection]\nper_arm = false\n";
    assert!(compare(PAIR, &arms).is_ok());
    let refused = compare(&format!("{PAIR}{grid}"), &arms).unwrap_err();
    assert!(refused.contains("affects training") && refused.contains("1200"), "{refused}");
    assert!(refused.contains("sequences16"), "{refused}");
    // If declared, it is a factor at the second point but not at the first.
    let declared = PAIR.replace("[\"canon\"]", "[\"canon\", \"budget.steps\"]");
    let refused = compare(&format!("{declared}{grid}"), &arms).unwrap_err();
    assert!(refused.contains("the arms do not differ in it"), "{refused}");
    let elsewhere = grid.replace("[32, 16]", "[16, 64]");
    let comparison = compare(&format!("{declared}{elsewhere}"), &arms).unwrap();
    assert_eq!(comparison.runs().len(), 8);
    // A grid of tuned fields has the same verdict everywhere.
    let tuned = format!("{PAIR}[grid]\n\"optimizer.lr\" = [0.1, 0.2, 0.3]\n");
    assert_eq!(
        compare(&tuned, &arms).unwrap().verdicts["canon"].headline(),
        "controlled for canon"
    );
}

/// Reading a lock judges it again, whatever its text claims.
#[test]
fn a_lock_that_calls_confounded_arms_controlled_is_refused() {
    let arms = [("llama", "small", DEPO), ("canon", "smallcanon", DEPO)];
    let mut comparison = compare(PAIR, &arms).unwrap();
    let changed = DEPO.replace("0.0133", "0.01");
    let arch = comparison.arms[0].experiment.arch.clone();
    assert_eq!(comparison.arms[0].name, "canon");
    comparison.arms[0].experiment = experiment_of(&changed, &arch);
    // Every digest in it is correct, and the verdict line is unchanged.
    let text = write(&Lock::Comparison(comparison));
    assert!(text.contains("canon = \"controlled for canon\""), "{text}");
    let error = read("c", &text).unwrap_err();
    assert!(
        error.to_string().contains("confounded: 1 difference, in addition to canon"),
        "{error}"
    );
}

/// Two families, with or without equal sizes: a mixer with more parameters, and an MLP that compensates.
const FAMILIES: &str = "
arch llama {
  vocab 10400  dim 32  norm_eps 1e-5
  init lingua
  layers 2 of decoder {
    mixer attention { heads 4 }
    mlp swiglu { hidden 96 }
  }
}
arch gla = llama with { mixer = gla { heads 4 } }
arch narrow = gla with { mlp.hidden 64 }
";

/// A comparison of archs of those families, with the recipe DEPO changed for each.
fn families(more: &str, treatment: &str, arm: (&str, &str)) -> Result<Comparison, String> {
    let mut sources = Sources::new();
    let file = format!(
        "base = \"llama\"\ntreatment = {treatment}\n{more}[arms]\nllama = \"a.toml\"\ngla = \"b.toml\"\n\
         [seeds]\ninit = [1, 2]\ndata = [5, 6]\n"
    );
    let id = sources.add("recipes/c.toml", &*file);
    let (read, diagnostics) = recipe::comparison::read(&sources, id);
    let Some(read) = read else { return Err(dsl::render(&sources, &diagnostics)) };
    let experiment =
        |name: &str, recipe: &str| experiment_of(recipe, &locked(&compiled_text(FAMILIES, name)));
    let (name, recipe) = arm;
    let arms = vec![
        ("llama".to_owned(), experiment("llama", DEPO)),
        ("gla".to_owned(), experiment(name, recipe)),
    ];
    read.comparison("c", "recipes/c.toml", arms)
        .map_err(|problem| dsl::render(&sources, &read.explain(&problem)))
}

/// The text after a word of a message.
fn after<'t>(text: &'t str, word: &str) -> &'t str {
    let rest = text.split_once(word).unwrap_or_else(|| panic!("{word}: {text}")).1;
    rest.split([' ', ';', '\n']).next().unwrap_or(rest)
}

#[test]
fn arms_that_are_not_matched_are_refused_with_a_match() {
    let mut snapshots: Vec<(String, String)> = Vec::new();
    for on in ["parameters", "non_embedding", "flops"] {
        let declared = format!("match = {{ on = \"{on}\", within = 0.01 }}\n");
        let refused = families(&declared, "[\"mixer\"]", ("gla", DEPO)).unwrap_err();
        snapshots.push((on.to_string(), refused.to_string()));
        // The suggested value matches; verdict and lock say so.
        let hidden = after(&refused, "mlp.hidden ");
        let fitting = FAMILIES.replace("hidden 64", &format!("hidden {hidden}"));
        let arch = locked(&compiled_text(&fitting, "narrow"));
        let mut sources = Sources::new();
        let file = format!(
            "base = \"llama\"\ntreatment = [\"mixer\", \"mlp.hidden\"]\n{declared}[arms]\nllama = \"a.toml\"\n\
             gla = \"b.toml\"\n[seeds]\ninit = [1]\ndata = [5]\n"
        );
        let id = sources.add("recipes/c.toml", &*file);
        let read_file = recipe::comparison::read(&sources, id).0.unwrap();
        let base = locked(&compiled_text(FAMILIES, "llama"));
        let arms = vec![
            ("llama".to_owned(), experiment_of(DEPO, &base)),
            ("gla".to_owned(), experiment_of(DEPO, &arch)),
        ];
        let comparison = read_file.comparison("c", "recipes/c.toml", arms).unwrap();
        let headline = comparison.headline("gla");
        assert!(headline.starts_with("bundle of 2 factors (mixer, mlp.hidden)"), "{headline}");
        assert!(headline.contains(&format!("; matched on {on} within 0.01: ")), "{headline}");
        let text = write(&Lock::Comparison(comparison));
        let facts = format!("match.on = \"{on}\"\nmatch.within = 0.01\n");
        assert!(
            text.contains(&facts) && text.contains(&format!("gla = \"{headline}\"\n")),
            "{text}"
        );
        assert_eq!(write(&read("c", &text).unwrap()), text);
        // A lock edited to another tolerance no longer satisfies it.
        let tighter = text.replace("match.within = 0.01", "match.within = 0");
        let code = if headline.ends_with("(equal)") { "lock-edited" } else { "lock-bad-value" };
        assert_eq!(read("c", &tighter).unwrap_err().code, code);
        let looser = text.replace("match.within = 0.01", "match.within = 0.02");
        assert_eq!(read("c", &looser).unwrap_err().code, "lock-edited");
        let half = text.replace("match.within = 0.01\n", "");
        assert_eq!(read("c", &half).unwrap_err().code, "lock-missing-field");
    }
    support::assert_cases!(
        "tests/lock",
        "arms_that_are_not_matched_are_refused_with_a_match",
        snapshots
    );
}

#[test]
fn equal_training_flops_are_declared_as_steps_of_the_treatment() {
    let declared = "match = \"train_flops\"\n";
    let refused = families(declared, "[\"mixer\"]", ("gla", DEPO)).unwrap_err();
    assert!(refused.contains("FLOPs of the whole training"), "{refused}");
    let steps = after(&refused, "steps = ");
    assert!(refused.contains("compensate = \"budget.steps\" under [match]"), "{refused}");
    let recipe = DEPO.replace("steps = 600", &format!("steps = {steps}"));
    // A different number of steps is a confound until it is declared, even if other quantities are equal.
    let refused = families(declared, "[\"mixer\"]", ("gla", &recipe)).unwrap_err();
    assert!(refused.contains("confounded"), "{refused}");
    let comparison = families(declared, "[\"mixer\", \"budget.steps\"]", ("gla", &recipe)).unwrap();
    let headline = comparison.headline("gla");
    assert!(
        headline.starts_with(
            "bundle of 2 factors (mixer, budget.steps): controlled, but not attributable"
        ) && headline.contains("; matched on train_flops within 0.01: "),
        "{headline}"
    );
    // The message also says when no width comes nearer.
    let narrow = "match = { on = \"non_embedding\", within = 0.0001 }\n";
    let refused = families(narrow, "[\"mixer\"]", ("gla", DEPO)).unwrap_err();
    assert!(
        refused.contains("mlp.hidden") && refused.contains("the nearest possible value"),
        "{refused}"
    );
    // With too few steps to match, the message gives the nearest.
    let exact = "[match]\non = \"train_flops\"\nwithin = 0\n";
    let refused = families(exact, "[\"mixer\", \"budget.steps\"]", ("gla", &recipe)).unwrap_err();
    assert!(refused.contains("the nearest possible value"), "{refused}");
}

/// A small arch, with Canon layers, with a narrower MLP, and with both, of as many parameters as the first.
const SIZES: &str = "arch plain {\n  vocab 10000   dim 64   norm_eps 1e-5\n  init lingua\n  layers 2 of decoder {\n    \
    mixer attention { heads 4 }\n    mlp swiglu { hidden 192 }\n  }\n}\n\
    arch added = plain with { canon A, B, C, D }\narch narrow = plain with { mlp.hidden 178 }\n\
    arch matched = added with { mlp.hidden 178 }\narch turned = added with { mixer.rope.dims 8 }\n\
    arch uneven = added with { layers[0].mlp.hidden 176   layers[1].mlp.hidden 180 }\n\
    arch wider = added with { mlp.hidden 196 }\narch other = added with { mlp = geglu { hidden 178 } }\n\
    arch moved = added with { layers[0].mlp.hidden 20   layers[1].mlp.hidden 336 }\n\
    arch fewer = added with { mixer.heads 2 }\n";

fn sizes(treatment: &str, matching: &str, arms: &[&str]) -> Result<Comparison, String> {
    let listed: String = arms.iter().map(|arm| format!("{arm} = \"a.toml\"\n")).collect();
    let file = format!(
        "base = \"plain\"\n[arms]\n{listed}[treatment]\n{treatment}\n[match]\n{matching}\n\
         [seeds]\ninit = [1]\ndata = [5]\n"
    );
    let arms: Vec<(&str, &str, &str)> = arms.iter().map(|arm| (*arm, *arm, DEPO)).collect();
    compare_archs(SIZES, &file, &arms)
}

#[test]
fn a_size_that_compensates_for_a_treatment_is_a_design_of_its_own() {
    let equal = "on = \"parameters\"\ncompensate = \"mlp.hidden\"";
    let comparison = sizes("matched = [\"canon\"]", equal, &["plain", "matched"]).unwrap();
    let headline = comparison.headline("matched");
    let message = "compensated: canon at equal parameters (mlp.hidden 192 to 178); matched on parameters within 0.01: ";
    assert!(headline.starts_with(message), "{headline}");
    assert!(comparison.is_compensated("matched") && comparison.verdicts["matched"].is_controlled());
    let text = write(&Lock::Comparison(comparison));
    assert!(text.contains("match.compensate = [\"mlp.hidden\"]\nmatch.on = "), "{text}");
    assert_eq!(write(&read("c", &text).unwrap()), text);
    // The four arms that separate the effects.
    let treatments = "added = [\"canon\"]\nnarrow = [\"mlp.hidden\"]\nmatched = [\"canon\"]";
    let some = format!("{equal}\narms = [\"matched\"]");
    let comparison = sizes(treatments, &some, &["plain", "added", "narrow", "matched"]).unwrap();
    assert_eq!(comparison.headline("added"), "controlled for canon");
    assert_eq!(comparison.headline("narrow"), "controlled for mlp.hidden");
    assert!(comparison.headline("matched").starts_with("compensated: canon at equal parameters"));
    assert!(!comparison.is_compensated("added") && !comparison.is_compensated("narrow"));
    let text = write(&Lock::Comparison(comparison));
    assert_eq!(write(&read("c", &text).unwrap()), text);
    // Widths that differ by layer are all told.
    let comparison = sizes("uneven = [\"canon\"]", equal, &["plain", "uneven"]).unwrap();
    assert!(comparison.headline("uneven").starts_with(
        "compensated: canon at equal parameters (mlp.hidden 192 to 176, 192 to 180); "
    ));
}

/// Declarations that are refused: the treatment, the match, the arms, and a part of the message.
const NO_COMPENSATION: &[(&str, &str, [&str; 2], &str)] = &[
    // RoPE has no parameters: cutting it is the confound of the published twins.
    (
        "turned = [\"canon\"]",
        "on = \"parameters\"\nwithin = 0.05\ncompensate = \"mixer.rope.dims\"",
        ["plain", "turned"],
        "`mixer.rope.dims` alone does not change the parameters of the base",
    ),
    // Nor is it a size where its FLOPs are matched.
    (
        "turned = [\"canon\"]",
        "on = \"flops\"\nwithin = 0.05\ncompensate = \"mixer.rope.dims\"",
        ["plain", "turned"],
        "`mixer.rope.dims` alone does not change the parameters of the base",
    ),
    (
        "fewer = [\"canon\"]",
        "on = \"flops\"\nwithin = 0.05\ncompensate = \"mixer.heads\"",
        ["plain", "fewer"],
        "`mixer.heads` alone does not change the parameters of the base",
    ),
    // A larger MLP beside Canon layers moves the arms apart.
    (
        "wider = [\"canon\"]",
        "on = \"parameters\"\nwithin = 0.05\ncompensate = \"mlp.hidden\"",
        ["plain", "wider"],
        "`mlp.hidden` does not compensate in `wider`: with it the arm has ",
    ),
    // Layers that lose what others gain.
    (
        "moved = [\"canon\"]",
        "on = \"parameters\"\nwithin = 0.05\ncompensate = \"mlp.hidden\"",
        ["plain", "moved"],
        "or grows in some layers and shrinks in others",
    ),
    (
        "other = [\"canon\"]",
        "on = \"parameters\"\nwithin = 0.05\ncompensate = [\"mlp\", \"mlp.hidden\"]",
        ["plain", "other"],
        "is not a whole number",
    ),
    (
        "matched = [\"mlp.hidden\"]",
        "on = \"parameters\"\nwithin = 0.05\ncompensate = \"optimizer.lr\"",
        ["plain", "matched"],
        "optimizer.lr",
    ),
    (
        "matched = [\"canon\"]",
        "on = \"parameters\"\nwithin = 0.2\ncompensate = \"mlp.hidden\"",
        ["plain", "matched"],
        "not equal enough to say that `mlp.hidden` compensates",
    ),
    (
        "matched = [\"canon\", \"mlp.hidden\"]",
        "on = \"parameters\"\ncompensate = \"mlp.hidden\"",
        ["plain", "matched"],
        "`mlp.hidden` is in the treatment of `matched` and compensates for it",
    ),
    (
        "matched = [\"canon\"]",
        "compensate = \"mlp.hidden\"",
        ["plain", "matched"],
        "the comparison has no `match.on`",
    ),
    (
        "matched = [\"canon\"]",
        "on = \"parameters\"\narms = [\"other\"]\ncompensate = \"mlp.hidden\"",
        ["plain", "matched"],
        "other",
    ),
];

#[test]
fn what_does_not_change_the_quantity_cannot_compensate() {
    for (treatment, matching, arms, what) in NO_COMPENSATION {
        let refused = sizes(treatment, matching, arms).unwrap_err();
        assert!(refused.contains(what), "{what}: {refused}");
    }
}

/// Matched at every point of a grid: arms that match at one sequence length need not match at another.
#[test]
fn arms_are_matched_at_every_point_of_the_grid() {
    let loose = "match = { on = \"flops\", within = 0.2 }\n";
    assert!(families(loose, "[\"mixer\"]", ("gla", DEPO)).is_ok());
    let grid = "[grid]\n\"data.seq_len\" = [128, 8192]\n[selection]\nper_arm = false\n";
    let refused = families(&format!("{loose}{grid}"), "[\"mixer\"]", ("gla", DEPO)).unwrap_err();
    assert!(refused.contains("in c-gla-seq_len8192-seed1"), "{refused}");
}

#[test]
fn wrong_declarations_of_a_match_are_refused() {
    for (more, what) in [
        ("match = \"params\"\n", "is not one of"),
        ("match = 3\n", "does not name a quantity to match"),
        ("[match]\nwithin = 0.01\n", "the comparison has no `match.on`"),
        ("[match]\non = \"flops\"\nwithin = -1\n", "is not a number from 0 to 1"),
        ("[match]\non = \"flops\"\nwithin = 0.0000001\n", "at most six decimals"),
        ("[match]\non = \"flops\"\nwithn = 1\n", "did you mean `match.within`?"),
        ("[matched]\non = \"flops\"\n", "unknown-key"),
    ] {
        let refused = families(more, "[\"mixer\"]", ("gla", DEPO)).unwrap_err();
        assert!(refused.contains(what), "{more}: {refused}");
    }
}
