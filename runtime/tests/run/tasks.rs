//! A lock's view of a task matches its generator: the tokens in use, and impossible settings.

use data::Windows;
use tasks::task::{Definition, Task, names};

use super::support::*;

/// A task's parameters as a recipe writes them: `depo.N = 12`.
fn with_tables(lines: &str) -> String {
    let task = lines.split('"').nth(1).unwrap();
    let parameters = Definition::find(task).unwrap().parameters;
    let is_own = |line: &str| {
        let name = line.split(" = ").next().unwrap_or_default();
        parameters.iter().any(|parameter| parameter.in_recipes && parameter.name() == name)
    };
    let line = |line: &str| match is_own(line) {
        true => format!("{task}.{line}\n"),
        false => format!("{line}\n"),
    };
    lines.lines().map(line).collect()
}

/// A task by its lines; `seq_len` is large enough.
fn locked(lines: &str, ids: &str) -> Result<lab::experiment::Experiment, String> {
    let text = recipe_of(&with_tables(lines)).replace("seq_len = 32", "seq_len = 4096");
    let text = text.replace("ids = \"dense\"", &format!("ids = \"{ids}\""));
    attempt("wide", &text)
}

#[test]
fn the_vocabulary_of_a_lock_is_the_generators() {
    let tasks = [
        "task = \"brevo\"\nN = 12",
        "task = \"brevo\"\nN = 12\nmulti = true\neos = 9999",
        "task = \"brevo\"\nN = 30\nans = 31\nquery = 40\nbos = 33\neos = 33",
        "task = \"capo\"\nN = 12",
        "task = \"depo\"\nN = 12\nK = 3\nmini_vocab = 5\nmin_tlen = 2\nmax_tlen = 3\nseparator = true",
        "task = \"mano\"\nL = 4\nttype = \"am\"",
        "task = \"mano\"\nL = 4\nttype = \"asmd\"",
        "task = \"mano\"\nL = 9\nknowledge_augment = false",
        "task = \"multihop\"\nN = 3\nhops = 1",
        "task = \"multihop\"\nN = 5\nhops = 3",
        "task = \"lano\"\nconfig = \"cfg3b\"",
        "task = \"lano\"\nconfig = \"cfg3e1\"",
        "task = \"lano\"\nconfig = \"cfg3e2\"",
        "task = \"lano\"\nconfig = \"cfg3f\"",
        "task = \"lano\"\nconfig = \"cfg3g\"",
        "task = \"lano\"\nconfig = \"cfg3h\"",
        "task = \"lano\"\nconfig = \"cfg3i\"",
        "task = \"lano\"\nconfig = \"cfg3j\"",
        "task = \"lano\"\nconfig = \"cfg3k\"",
    ];
    for name in names() {
        let first = format!("task = \"{name}\"\n");
        assert!(tasks.iter().any(|lines| lines.starts_with(&first)), "{name} is not tested");
    }
    for lines in tasks {
        for ids in ["dense", "published"] {
            let experiment = locked(lines, ids).unwrap_or_else(|why| panic!("{lines}\n{why}"));
            let job = job(&experiment, None).unwrap();
            let Windows::Task(windows) = &job.train else { panic!() };
            let locked = experiment.value("data.vocab").unwrap().to_string();
            assert_eq!(windows.vocab().to_string(), locked, "{lines}, {ids}");
        }
    }
}

#[test]
fn what_a_generator_refuses_is_refused_at_build() {
    for (lines, field, message) in [
        ("task = \"brevo\"\nN = 2", "N", "2 is not an integer from 3"),
        ("task = \"brevo\"\nN = 9001", "N", "9001 is not an integer"),
        ("task = \"brevo\"\nN = 337\nmulti = true", "N", "336 names of 2 to 4 tokens exist"),
        ("task = \"brevo\"\nN = 12\nbos = 12", "bos", "bos is 12, but tokens 1 to 12 are names"),
        ("task = \"brevo\"\nN = 12\neos = 9997", "eos", "must differ"),
        ("task = \"brevo\"\nN = 12\nans = 9999", "eos", "must differ"),
        (
            "task = \"mano\"\nL = 5\nlens = [7]",
            "lens",
            "lens has 7, but L, the maximum number of operations, is 5",
        ),
        (
            "task = \"mano\"\nL = 5\nttype = \"asmd\"\nvalue_mod = 25",
            "value_mod",
            "value_mod is 25, a multiple of 5",
        ),
        (
            "task = \"mano\"\nL = 9\nttype = \"d\"\nvalue_mod = 2",
            "L",
            "L is 9, but with division modulo 2",
        ),
        ("task = \"multihop\"\nN = 61\nhops = 1", "data.multihop.N", "61 is not an integer from"),
        ("task = \"multihop\"\nN = 60\nhops = 17", "multihop.hops", "hops is 17"),
        ("task = \"lano\"\nconfig = \"cfg3z\"", "config", "\"cfg3z\" is not one of"),
        ("task = \"capo\"\nN = 10000001", "N", "10000001"),
        ("task = \"capo\"\nN = 0", "N", "0 is not an integer"),
    ] {
        let error = locked(lines, "dense").unwrap_err();
        assert!(error.contains(field) && error.contains(message), "{lines}\n{error}");
        assert!(error.contains("help: "), "{error}");
        let mut params: toml::Table = toml::from_str(lines).unwrap();
        let Some(toml::Value::String(name)) = params.remove("task") else { panic!("{lines}") };
        assert!(Task::parse(&name, toml::Value::Table(params)).is_err(), "{lines}");
    }
}

#[test]
fn a_task_is_measured_by_what_it_can_be() {
    for (lines, metric) in [
        ("task = \"brevo\"\nN = 12", "kl"),
        ("task = \"lano\"\nconfig = \"cfg3f\"", "bits"),
        ("task = \"lano\"\nconfig = \"cfg3f\"", "exact_match"),
        ("task = \"mano\"\nL = 3", "validity"),
    ] {
        let text = recipe_of(&with_tables(lines)).replace("seq_len = 32", "seq_len = 4096");
        let text = text.replace(
            "windows = 3",
            &format!("windows = 3\nmetrics = [\"eval_loss\", \"{metric}\"]"),
        );
        let error = attempt("wide", &text).unwrap_err();
        let expected = format!("metrics lists \"{metric}\", but");
        assert!(error.contains(&expected) && error.contains("help: choose from"), "{error}");
    }
    let error = locked("task = \"capo\"\nN = 3\norder = \"published\"", "dense").unwrap_err();
    assert!(error.contains("not windows") && error.contains("order = \"indexed\""), "{error}");
    let text = recipe_of("task = \"capo\"\ncapo.N = 3").replace("seq_len = 32", "seq_len = 511");
    let error = attempt("wide", &text).unwrap_err();
    assert!(error.contains("set seq_len to 512") && error.contains("bits are counted"), "{error}");
}
