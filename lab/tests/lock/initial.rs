//! Experiments that begin from weights: their lock, its id, and verdicts on arms that do.

use std::collections::BTreeMap;

use compiler::digest::Digest;
use lab::comparison::NoComparison;
use lab::experiment::Experiment;
use lab::field::{FieldValue, Fields};
use lab::lock::{Lock, bind_weights, keep_binding, read, runnable, write};

use support::locks::{DEPO, SMALL, compiled_text, experiment_of, judge, locked, small};
use support::planted::{PAIR, built};

fn from_weights(arch: &str, init: &str) -> Experiment {
    let text = format!("{DEPO}init = {{ {init} }}\n");
    experiment_of(&text, &locked(&compiled_text(SMALL, arch)))
}

fn digests(names: &[&str]) -> BTreeMap<String, Digest> {
    names.iter().map(|name| ((*name).to_owned(), Digest::of("test", name))).collect()
}

fn bound(experiment: Experiment, name: &str) -> Lock {
    bind_weights(&Lock::Experiment(experiment), &digests(&[name])).unwrap()
}

fn train_text(lock: &Lock) -> String {
    lock.experiments()[0].train_text()
}

#[test]
fn a_lock_is_open_until_its_weights_have_a_digest() {
    let open = Lock::Experiment(from_weights("small", "weights = \"runs/first\""));
    assert_eq!(open.open_inputs(), ["init.weights = \"runs/first\""]);
    let error = runnable(open.clone()).unwrap_err();
    assert!(error.help.contains("canonc bind lockfiles/") && error.help.contains("--weights PATH"));
    let closed = bind_weights(&open, &digests(&["runs/first"])).unwrap();
    assert!(closed.open_inputs().is_empty());
    assert_ne!(closed.id(), open.id());
    let text = write(&closed);
    assert_eq!(write(&read("x", &text).unwrap()), text);
    // An unknown name stays open; other weights under a known one are drift.
    assert_eq!(bind_weights(&open, &digests(&["other"])).unwrap().id(), open.id());
    let other = BTreeMap::from([("runs/first".to_owned(), Digest::of("test", "other"))]);
    assert_eq!(bind_weights(&closed, &other).unwrap_err().code, "weights-drift");
    assert_eq!(write(&keep_binding(&open, &closed).unwrap().unwrap()), text);
    let renamed = Lock::Experiment(from_weights("small", "weights = \"runs/second\""));
    assert!(keep_binding(&renamed, &closed).unwrap().is_none());
    let drawn = Lock::Experiment(experiment_of(DEPO, &small()));
    assert_eq!(bind_weights(&drawn, &other).unwrap_err().code, "nothing-to-bind");
}

#[test]
fn the_id_covers_the_digest_of_the_weights_and_neither_their_name_nor_an_idle_seed() {
    let digest = Digest::of("test", "weights");
    let of = |name: &str, missing: &str, seed: i64| {
        let init = format!("weights = \"{name}\", digest = \"{digest}\", missing = \"{missing}\"");
        let seed = Fields::from([("seeds.init".to_owned(), FieldValue::Int(seed))]);
        from_weights("small", &init).with("run".to_owned(), &seed).unwrap()
    };
    let first = of("runs/first", "refused", 1);
    assert_eq!(first.id(), of("exports/first", "refused", 2).id());
    assert!(!first.draws_weights() && !first.train_text().contains("seeds.init"));
    assert!(write(&Lock::Experiment(first.clone())).contains("\ninit.weights = \"runs/first\"\n"));
    // Where some are drawn, the seed counts.
    assert_ne!(of("runs/first", "drawn", 1).id(), first.id());
    assert_ne!(of("runs/first", "drawn", 1).id(), of("runs/first", "drawn", 2).id());
    // Locks without weights have none of these lines.
    assert!(!write(&Lock::Experiment(experiment_of(DEPO, &small()))).contains("init.weights"));
}

#[test]
fn fields_about_weights_need_weights() {
    for init in ["missing = \"drawn\"".to_owned(), format!("digest = \"{}\"", Digest::of("a", "b"))]
    {
        let base = experiment_of(DEPO, &small());
        let (path, value) = init.split_once(" = ").unwrap();
        let values =
            Fields::from([(format!("init.{path}"), FieldValue::text(value.trim_matches('"')))]);
        let problems = base.with("run".to_owned(), &values).unwrap_err();
        assert_eq!(problems[0].code, "idle-field", "{problems:?}");
        assert!(problems[0].message.ends_with("has no effect without init.weights"));
    }
}

#[test]
fn arms_from_the_same_weights_differ_in_their_treatment_alone() {
    let init = "weights = \"runs/first\", missing = \"drawn\"";
    let arms = ["small", "smallcanon"].map(|arch| from_weights(arch, init));
    let open = arms.clone().map(Lock::Experiment);
    let verdict = judge(&open[0], &open[1], &["canon"]).unwrap();
    assert_eq!(verdict.assumed, ["init.weights = \"runs/first\""]);
    let [base, arm] = arms.map(|arm| bound(arm, "runs/first"));
    let verdict = judge(&base, &arm, &["canon"]).unwrap();
    assert!(verdict.is_controlled() && verdict.assumed.is_empty(), "{}", verdict.headline());
    // From other weights, whatever they are called, they are not controlled.
    let other = bound(from_weights("smallcanon", &init.replace("first", "second")), "runs/second");
    assert!(!judge(&base, &other, &["canon"]).unwrap().is_controlled());
}

#[test]
fn other_weights_are_a_treatment_whether_bound_or_not() {
    let of = |name: &str| from_weights("small", &format!("weights = \"{name}\""));
    let treatment = ["init.weights"];
    let drawn = Lock::Experiment(experiment_of(DEPO, &small()));
    let (first, second) = (bound(of("first"), "first"), bound(of("second"), "second"));
    for [a, b] in [
        [&Lock::Experiment(of("first")), &Lock::Experiment(of("second"))],
        [&first, &second],
        [&drawn, &first],
        [&first, &drawn],
    ] {
        let verdict = judge(a, b, &treatment).unwrap();
        assert_eq!(verdict.headline(), "controlled for init.weights", "{}", train_text(b));
    }
    assert!(!judge(&first, &second, &["optimizer.lr"]).is_ok_and(|v| v.is_controlled()));
}

#[test]
fn seeds_that_draw_nothing_make_no_repetitions() {
    let init = "weights = \"runs/first\"";
    let arms = |init: &str| {
        let base = from_weights("small", init);
        let lr = FieldValue::Real(dsl::Decimal::parse("0.001").unwrap());
        let values = Fields::from([("optimizer.lr".to_owned(), lr)]);
        [base.clone(), base.with("run".to_owned(), &values).unwrap()]
    };
    let file = PAIR.replace("\"canon\"]", "\"optimizer.lr\"]");
    let [base, arm] = arms(init);
    assert_eq!(built(&file, [&base, &arm]).unwrap().runs().len(), 4);
    let once = file.replace("data = [5, 6]", "data = [5, 5]");
    let Err(NoComparison::Problems(problems)) = built(&once, [&base, &arm]) else { panic!() };
    assert!(problems[0].message.contains("both have data 5"), "{problems:?}");
    let [base, arm] = arms(&format!("{init}, missing = \"drawn\""));
    assert!(built(&once, [&base, &arm]).is_ok());
}
