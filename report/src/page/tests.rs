//! Tests of the page on made-up comparisons and runs: its contents, its escaping, the resources it may load.

use std::collections::BTreeMap;
use std::rc::Rc;

use compiler::digest::Digest;
use compiler::program::{Program, Std};
use lab::comparison::SelectionMode;
use lab::experiment::{Experiment, LockedArch};
use lab::field::{FieldValue, Fields};

use super::*;
use crate::compare::made_up::{by, grid, run, show, two_seeds};
use crate::compare::{Comparison, Curves, Design, Facts, Role, TrainingOverlap};

const ARCHS: &str = "
arch small {
  vocab 16   dim 16   norm_eps 1e-5
  init lingua
  layers 1 of decoder { mixer gla { heads 2 } mlp swiglu { hidden 32 } }
}
arch small_canon = small with { canon A }
";

fn experiment(name: &str, arch: &str, seed: i64) -> Experiment {
    let program = Program::new([("a.canon".to_owned(), ARCHS.to_owned())], Std::Embedded);
    let compiled = program.compile("a.canon", arch).0.unwrap();
    let written: Fields = [
        ("data.task", FieldValue::text("depo")),
        ("data.depo.N", FieldValue::Int(4)),
        ("data.depo.K", FieldValue::Int(1)),
        ("data.depo.mini_vocab", FieldValue::Int(4)),
        ("data.depo.min_tlen", FieldValue::Int(1)),
        ("data.depo.max_tlen", FieldValue::Int(2)),
        ("data.ids", FieldValue::text("dense")),
        ("data.seq_len", FieldValue::Int(24)),
        ("batch.sequences", FieldValue::Int(2)),
        ("budget.steps", FieldValue::Int(20)),
        ("optimizer.lr", FieldValue::Int(1)),
        ("optimizer.weight_decay", FieldValue::Int(1)),
        ("schedule.kind", FieldValue::text("constant")),
        ("seeds.init", FieldValue::Int(seed)),
        ("seeds.data", FieldValue::Int(seed)),
    ]
    .into_iter()
    .map(|(path, value)| (path.to_owned(), value))
    .collect();
    let arch = Rc::new(LockedArch::new(&compiled).unwrap());
    Experiment::new(name.to_owned(), "r.toml".to_owned(), arch, written).unwrap()
}

fn logged(curves: &Curves, data: &str) -> Logged {
    Logged {
        curves: curves.clone(),
        batches: (1..=20).map(|step| Digest::of("test", &format!("{data} {step}"))).collect(),
        lr: (1..=20).map(|step| (step, 0.1)).collect(),
        ..Logged::default()
    }
}

/// Every run of a comparison; the treated arms have Canon layers.
fn runs(comparison: &Comparison) -> Vec<PageRun> {
    let mut runs = Vec::new();
    for arm in &comparison.arms {
        for (point, of_point) in arm.points.iter().enumerate() {
            for run in of_point {
                let name = format!("{}-{point}-seed{}", arm.name, run.seed + 1);
                let arch = if arm.role == Role::Treatment { "small_canon" } else { "small" };
                let seed = run.seed as i64 + if arm.role == Role::Replicate { 100 } else { 0 };
                runs.push(PageRun {
                    experiment: experiment(&name, arch, seed),
                    name,
                    arm: arm.name.clone(),
                    role: Some(arm.role),
                    seed: run.seed,
                    point,
                    at: comparison.points[point].clone(),
                    folder: std::path::PathBuf::new(),
                    logged: logged(&run.curves, &seed.to_string()),
                });
            }
        }
    }
    runs
}

fn contents(comparison: &Comparison) -> PageContents {
    let heading = Heading {
        title: "a </script><b> & c".to_owned(),
        verdict: "controlled".to_owned(),
        design: Design::Controlled,
        lock_id: "00".to_owned(),
        notes: vec!["treatment: <canon>".to_owned()],
    };
    let treated = comparison.arms.iter().filter(|arm| arm.role == Role::Treatment);
    let treatment: BTreeMap<_, _> =
        treated.map(|arm| (arm.name.clone(), vec!["canon".to_owned()])).collect();
    let part = Part::new(heading, Facts::new(comparison), treatment, runs(comparison));
    PageContents { parts: vec![part], ..PageContents::default() }
}

/// The data for the page's script.
fn data_of(page: &str) -> serde_json::Value {
    let (_, rest) = page.split_once("id=\"data\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn the_page_holds_all_it_needs_and_escapes_what_it_shows() {
    let mut comparison = two_seeds();
    comparison.arms[0].name = "</script><img src=x onerror=alert(1)>\u{2028}".to_owned();
    let page = page(&contents(&comparison)).unwrap();
    assert!(page.contains("a &lt;&#x2f;script&gt;&lt;b&gt; &amp; c"), "{}", &page[..900]);
    assert!(page.contains("treatment: &lt;canon&gt;"));
    assert!(!page.contains("<img") && !page.contains('\u{2028}') || page.contains("&lt;img"));
    assert!(!page.contains("<img") && page.contains("\\u003cimg src=x"));
    assert_eq!(page.matches("</script>").count(), 2);
    assert_eq!(data_of(&page)["runs"][0]["arm"], comparison.arms[0].name);
    for scheme in ["src=\"http", "href=\"http", "url(http", "@import"] {
        assert!(!page.contains(scheme), "{scheme}");
    }
}

#[test]
fn only_our_script_may_run_and_nothing_be_fetched() {
    let page = page(&contents(&two_seeds())).unwrap();
    assert!(page.contains("content=\"default-src 'none'; "));
    assert_eq!(page.matches("script-src").count(), 1);
    let (_, rest) = page.split_once("script-src 'sha256-").unwrap();
    let hash = rest.split_once('\'').unwrap().0;
    let (_, script) = page.rsplit_once("<script>").unwrap();
    let script = script.split_once("</script>").unwrap().0;
    assert_eq!(base64(&Sha256::digest(script.as_bytes())), hash);
    // Test vectors of RFC 4648.
    for (plain, coded) in
        [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE=")]
    {
        assert_eq!(base64(plain.as_bytes()), coded);
    }
}

#[test]
fn bundled_files_are_those_of_their_readme() {
    let readme = include_str!("../../page/vendor/README.md");
    let files = [
        ("uPlot.iife.min.js", include_str!("../../page/vendor/uPlot.iife.min.js")),
        ("uPlot.min.css", include_str!("../../page/vendor/uPlot.min.css")),
        ("LICENSE", include_str!("../../page/vendor/LICENSE")),
    ];
    for (name, text) in files {
        let digest: String =
            Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(readme.contains(&format!("| `{name}` | `{digest}` |")), "{name} is {digest}");
    }
}

#[test]
fn every_arm_has_its_table_its_pairs_and_its_noise() {
    let page = page(&contents(&grid(by("eval_loss", SelectionMode::Min, true)))).unwrap();
    for what in [
        "<h3>left (optimizer.lr 0.02) against base (optimizer.lr 0.01): tuned</h3>",
        "<h3>right (optimizer.lr 0.01) against base (optimizer.lr 0.01)</h3>",
        "<h3>eval_loss at every point of the grid</h3>",
        "left (optimizer.lr 0.02) against base (optimizer.lr 0.01): tuned: paired differences",
    ] {
        assert!(page.contains(what), "{what}");
    }
    let data = data_of(&page);
    // Runs: base 0 and 1, left 2 and 3, right 4 and 5, replicate 6 and 7.
    assert_eq!(data["pairs"][0]["lines"], serde_json::json!([[3, 0]]));
    assert_eq!(data["pairs"][1]["lines"], serde_json::json!([[4, 0]]));
    assert_eq!(data["pairs"][1]["replicate"], serde_json::json!([[6, 0]]));
    assert_eq!(data["pairs"][0]["noise"], false, "one repetition is not enough");
    // What the panel says of two runs is the design of their points.
    let all = data["judged"].as_array().unwrap();
    let pair =
        |a: usize, b: usize| all.iter().find(|pair| pair["a"] == a && pair["b"] == b).unwrap();
    assert_eq!([&pair(0, 3)["design"], &pair(0, 2)["design"]], ["tuned", "controlled"]);
    assert!(pair(0, 3)["headline"].as_str().unwrap().starts_with("tuned: "));
}

#[test]
fn two_runs_have_the_verdict_that_diff_gives() {
    let data = data_of(&page(&contents(&two_seeds())).unwrap());
    let judged = |a: usize, b: usize| {
        let all = data["judged"].as_array().unwrap();
        all.iter().find(|pair| pair["a"] == a && pair["b"] == b).unwrap().clone()
    };
    // Runs: base 0 and 1, treated 2 and 3, replicate 4.
    let twins = judged(0, 2);
    assert_eq!(
        (&twins["design"], &twins["other_batch"]),
        (&"controlled".into(), &serde_json::Value::Null)
    );
    assert_eq!(twins["headline"], "controlled for canon");
    assert_eq!(twins["differs"][0][0], "treatment");
    let crossed = judged(0, 3);
    assert_eq!(
        (&crossed["design"], &crossed["other_batch"]),
        (&"not_controlled".into(), &1.into())
    );
    let confounds =
        crossed["differs"].as_array().unwrap().iter().filter(|row| row[0] == "confound");
    assert_eq!(
        confounds.map(|row| row[1].clone()).collect::<Vec<_>>(),
        ["seeds.data", "seeds.init"]
    );
    assert_eq!(data["runs"][2]["data"], 0);
    assert_eq!(data["runs"][4]["data"], 4);
}

#[test]
fn runs_outside_comparisons_are_paired_if_only_canon_differs() {
    let comparison = two_seeds();
    let mut alone = runs(&comparison);
    for run in &mut alone {
        run.role = None;
    }
    let page = page(&PageContents { alone, ..PageContents::default() }).unwrap();
    let data = data_of(&page);
    assert_eq!(data["pairs"].as_array().unwrap().len(), 1);
    assert_eq!(data["pairs"][0]["lines"], serde_json::json!([[2, 0], [3, 1]]));
    assert!(page.contains("<title>5 runs"));
    assert!(page.contains("-0.3750 nats&#x2f;token over 2 seeds"), "no own number beside GLA's");
}

#[test]
fn the_page_has_the_published_curves_that_are_asked_for() {
    let published = Published::named(&["Mamba2*-3B-*lr0.002".to_owned()]).unwrap();
    let page = page(&PageContents { published, ..contents(&two_seeds()) }).unwrap();
    let data = data_of(&page);
    assert_eq!(data["published"]["models"].as_array().unwrap().len(), 2);
    assert_eq!(data["published"]["twins"].as_array().unwrap().len(), 1);
    assert!(page.contains("curves of 2 published models"));
    assert_eq!(page.matches("class=\"sober\"").count(), 6);
    let all = Published::named(&["all".to_owned()]).unwrap();
    let page = super::page(&PageContents { published: all, ..PageContents::default() }).unwrap();
    assert!(page.len() < 1_500_000, "{}", page.len());
}

/// Twelve comparisons of seven runs: too many to judge every pair.
#[test]
fn declared_pairs_are_judged_at_any_number_of_runs() {
    let seeds = |lower: f64| (0..3).map(|seed| run(seed, 2.0 - lower, 0.5)).collect::<Vec<_>>();
    let mut comparison = two_seeds();
    comparison.arms[0].points[0] = seeds(0.0);
    comparison.arms[1].points[0] = seeds(0.5);
    let parts: Vec<Part> = (0..12).flat_map(|_| contents(&comparison).parts).collect();
    let page = page(&PageContents { parts, ..PageContents::default() }).unwrap();
    let data = data_of(&page);
    assert_eq!(data["runs"].as_array().unwrap().len(), 84);
    let judged = data["judged"].as_array().unwrap();
    // In each comparison, three treated runs and one replicate, against the base run of their seed.
    assert_eq!(judged.len(), 12 * 4);
    for pair in judged {
        assert_eq!(pair["declared"], true, "{pair}");
        assert!(pair["headline"].is_string(), "{pair}");
    }
    let treated = judged.iter().filter(|pair| pair["headline"] == "controlled for canon");
    assert_eq!(treated.count(), 36);
    assert_eq!(data["runs"][83]["part"], 11);
    assert!(page.contains("the 12 primary rows of this page together"));
    // With few runs every pair is judged, and one that no comparison declares is marked.
    let data = data_of(&super::page(&contents(&two_seeds())).unwrap());
    let declared = |a: usize, b: usize| {
        let all = data["judged"].as_array().unwrap();
        let pair = all.iter().find(|pair| pair["a"] == a && pair["b"] == b).unwrap();
        pair["declared"].as_bool().unwrap()
    };
    assert!(declared(0, 2) && declared(1, 3) && declared(0, 4));
    assert!(!declared(0, 3) && !declared(0, 1));
}

#[test]
fn a_design_is_never_shown_as_success() {
    for (design, class) in [
        (Design::Controlled, ""),
        (Design::Compensated, ""),
        (Design::Bundle, " amber"),
        (Design::Tuned, " amber"),
        (Design::NotControlled, " bad"),
    ] {
        let mut contents = contents(&two_seeds());
        contents.parts[0].heading.design = design;
        let page = page(&contents).unwrap();
        assert!(page.contains(&format!("<p class=\"design{class}\">design: controlled</p>")));
    }
    let style = include_str!("../../page/style.css");
    assert!(!style.contains(".design.good") && !style.contains(".verdict"));
}

#[test]
fn the_page_has_units_words_and_a_methods_paragraph() {
    let mut comparison = two_seeds();
    let losses = [(2.0, 1.5), (2.1, 1.65), (2.2, 1.68)];
    for (arm, pick) in [(0, 0), (1, 1)] {
        let side = |(seed, both): (usize, &(f64, f64))| {
            run(seed, if pick == 0 { both.0 } else { both.1 }, 0.5)
        };
        comparison.arms[arm].points[0] = losses.iter().enumerate().map(side).collect();
    }
    let page = page(&contents(&comparison)).unwrap();
    assert!(page.contains("<tr class=\"better\"><th scope=\"row\">eval_loss</th>"));
    assert!(page.contains("95% t interval (covers 95% at n = 3, 88% if skewed)"));
    assert!(page.contains("(lock 00) compares canon with llama; design: "));
    assert!(page.contains("95% bootstrap interval"), "the secondary view");
    // Every number of the tables has its unit; counts of seeds, runs and tokens are integers.
    let (_, tables) = page.split_once("<h2 id=\"end\">").unwrap();
    let (tables, _) = tables.split_once("</section>").unwrap();
    for cell in tables.split("<td>").skip(1).filter_map(|rest| rest.split_once("</td>")) {
        let text = cell.0;
        let bare = text.parse::<f64>().is_ok_and(|_| text.contains('.'));
        let p = text.starts_with("0.") && text.len() == 6;
        assert!(!bare || p, "a number without a unit: {text}");
    }
    let data = data_of(&page);
    assert_eq!(data["units"]["eval_loss"], "nats");
    assert_eq!(data["units"]["token_accuracy"], "share");
}

#[test]
fn a_page_calls_nothing_held_out_that_training_showed() {
    let mut comparison = two_seeds();
    assert!(!page(&contents(&comparison)).unwrap().contains("eval_loss, seen in training"));
    let seen = TrainingOverlap::Questions { questions: 50, shown: 19, windows: 4, of_windows: 4 };
    show(&mut comparison, Some(seen));
    let page = page(&contents(&comparison)).unwrap();
    assert!(page.contains("eval_loss, seen in training (38% of questions)"));
    assert!(!page.contains("<th scope=\"row\">eval_loss</th>"));
}

/// Even a log of a lock whose twin is on the page: nobody knows that the log is of it.
#[test]
fn a_log_is_drawn_and_in_no_pair_and_no_table_of_results() {
    let run = |name: &str, arch: &str| {
        let curves = Curves { loss: vec![(1, 2.0), (2, 1.0)], ..Curves::default() };
        PageRun {
            experiment: experiment(name, arch, 1),
            name: name.to_owned(),
            arm: arch.to_owned(),
            role: None,
            seed: 0,
            point: 0,
            at: String::new(),
            folder: std::path::PathBuf::new(),
            logged: logged(&curves, "1"),
        }
    };
    let log = ForeignLog {
        program: "transformers".to_owned(),
        loss: vec![(10, 3.0), (20, f64::NAN)],
        loss_is: "mean over 10 steps".to_owned(),
        lr: vec![(10, 1.0)],
        reached: 20,
        rates: "all 2 are the lock's".to_owned(),
        tokens: "not in the log".to_owned(),
        notes: vec!["a note </td>".to_owned()],
        ..ForeignLog::default()
    };
    let log = PageLog::new("state.json", experiment("twin", "small_canon", 1), log);
    let mut contents = PageContents { logs: vec![log], ..PageContents::default() };
    let alone = page(&contents).unwrap();
    assert!(alone.contains("<h1>twin (state.json, on trust)</h1>"), "{}", &alone[..900]);
    assert!(alone.contains("(mean over 10 steps)") && alone.contains("a note &lt;&#x2f;td&gt;"));
    assert!(!alone.contains("id=\"finals\"") && alone.contains("id=\"curves\">"));
    contents.alone = vec![run("base", "small")];
    let data = data_of(&page(&contents).unwrap());
    assert_eq!((&data["pairs"], &data["judged"]), (&serde_json::json!([]), &serde_json::json!([])));
    let [own, log] = [&data["runs"][0], &data["runs"][1]];
    assert_eq!((&own["log"], &log["log"]), (&serde_json::Value::Null, &"transformers".into()));
    assert_eq!((&own["data"], &log["data"]), (&0.into(), &serde_json::Value::Null));
    assert_eq!(log["series"]["training loss"]["values"], serde_json::json!([3.0, null]));
    assert_eq!(data["fields"][0]["of"].as_array().unwrap().len(), 2);
    // The same twin as a run of canonc is paired.
    contents.alone.push(run("twin", "small_canon"));
    assert_eq!(data_of(&page(&contents).unwrap())["pairs"].as_array().unwrap().len(), 1);
}
