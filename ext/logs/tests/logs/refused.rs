//! Files that are refused: each with a sentence, a place, and what to do next.

use logs::{Names, parse};
use proptest::prelude::*;

use super::samples::{chart, events, lingua, loss, rate, trainer_state};

/// Place, message and help of a refused file.
fn refused(file: &[u8], names: &[&str]) -> (String, String, String) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let read = Names::parse(&names).and_then(|names| parse("log", file, &names));
    let problem = read.expect_err("the file was read");
    assert!(!problem.help.is_empty(), "{problem}");
    (problem.place.unwrap_or_default(), problem.message, problem.help)
}

#[test]
fn a_file_that_is_no_log_is_refused() {
    let whole = trainer_state(rate);
    let cut = whole[..whole.len() / 2].to_owned();
    let twice = whole.replacen("\"step\": 20\n", "\"step\": 10\n", 1);
    let bad_line = lingua().replacen("\"acc_step\"", "acc_step", 1);
    let worded = whole.replacen(&loss(20).to_string(), "\"about 1\"", 1);
    let two = chart(&[("a", "loss", &|_| 1.0), ("b", "loss", &|_| 2.0)]);
    let no_scalars = events(&[]);
    for (file, place, message, help) in [
        ("", "log", "it is empty", "name a trainer_state.json"),
        ("words", "log", "this is no log that canonc reads", "name a trainer_state.json"),
        ("{\"a\": 1,\n\"b\": 2}", "log", "it has no `log_history`", "name a trainer_state.json"),
        (&cut, "log", "this is not whole JSON: EOF while parsing", "copy the file again"),
        ("{\"log_history\": {}}", "log", "expected a list of rows", "copy the file again"),
        (
            "{\"log_history\": []}",
            "log",
            "this log has no rows with numbers",
            "name a trainer_state",
        ),
        (&twice, "log", "`loss` goes from step 10 to step 10", "keep the rows of one run"),
        (&worded, "log:2", "`loss` is `about 1`, which is no number", "remove it, or name another"),
        (&bad_line, "log:1", "this is no JSON object: key must be a string", "remove this line"),
        (
            "{\"a\": 1}\n{\"a\": 2}\n",
            "log",
            "it has 2 rows, but no step under `global_step`",
            "`--metric step=NAME`",
        ),
        (
            "{\"step\": -1, \"a\": 2}\n",
            "log:1",
            "the step `step` is -1, which is no number of steps",
            "remove this line",
        ),
        (
            "{\"step\": 1, \"a\": 2, \"b\": 3}\n",
            "log",
            "no known program writes these names",
            "`--metric loss=NAME --metric lr=NAME`: `a`, `b`",
        ),
        (
            "{\"step\": 1, \"a\": 2}\n[1]\n",
            "log:2",
            "this is no JSON object: invalid type",
            "remove this line",
        ),
        (
            "time,loss\n1,2\n",
            "log:1",
            "no column gives the step; it begins with `time`, `loss`",
            "`--metric step=COLUMN`",
        ),
        ("Step,loss\n1,2\n2\n", "log:3", "2 columns, but 1 cell in this line", "names the columns"),
        (
            "Step,loss\nx,2\n",
            "log:2",
            "`Step` is `x`, which is no number of steps",
            "names the columns",
        ),
        (
            "Step,train/loss\n2,2\n1,2\n",
            "log",
            "`train/loss` goes from step 2 to step 1",
            "keep the rows of one run",
        ),
        (
            &two,
            "log",
            "this table is of 2 runs: `a`, `b`",
            "`--metric 'loss=RUN - METRIC'`: `a - loss`, `b - loss`",
        ),
    ] {
        let problem = refused(file.as_bytes(), &[]);
        assert_eq!(problem.0, place, "{problem:?}");
        assert!(problem.1.contains(message) && problem.2.contains(help), "{problem:?}");
    }
    for (file, message) in [
        (&[0x1f, 0x8b, 8, 0xff][..], "it is compressed by gzip, not a log"),
        (&[0xff, 0xfe, 0xff], "it is text in UTF-16, not a log"),
        (&[0x80, 0x81], "it is neither text in UTF-8 nor an event file"),
        (&no_scalars, "this event file has no scalars"),
    ] {
        assert_eq!(refused(file, &[]).1, message);
    }
}

#[test]
fn a_name_that_the_file_lacks_is_refused_with_those_that_it_has() {
    let file = chart(&[("a", "train/ce", &|_| 1.0), ("a", "train/rate", &|_| 2.0)]);
    let (_, message, help) = refused(file.as_bytes(), &["loss=train/cee"]);
    assert_eq!(message, "it has no `train/cee`, named as loss");
    assert_eq!(help, "did you mean `train/ce`? its names are `train/ce`, `train/rate`");
    for (names, message) in [
        (&["loss"][..], "`--metric loss` is not of the form QUANTITY=NAME"),
        (&["los=a"], "`los` in `--metric los=a` is no quantity"),
        (&["loss=a", "loss=b"], "`--metric` names `loss` twice: `a` and `b`"),
    ] {
        assert_eq!(refused(b"", names).1, message);
    }
}

/// The size of a file does not bound the memory of names.
#[test]
fn a_file_of_endless_names_is_refused() {
    let row = |step: u64| format!("{{\"step\": {step}, \"n{step}\": 1}}\n");
    let file: String = (0..10_002).map(row).collect();
    assert_eq!(refused(file.as_bytes(), &[]).1, "it has more than 10000 names");
    let deep = format!("{{\"step\": 1, \"a\": {}", "[".repeat(100_000));
    assert!(refused(deep.as_bytes(), &[]).1.contains("this is not whole JSON"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(support::cases(256)))]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300), kind in 0..4_usize, at in any::<prop::sample::Index>()) {
        let wholes = [trainer_state(rate).into_bytes(), lingua().into_bytes(), events(&[("lr", &rate)]), chart(&[("a", "lr", &rate)]).into_bytes()];
        let mut file = wholes[kind].clone();
        let at = at.index(file.len());
        file.splice(at..(at + bytes.len()).min(file.len()), bytes.iter().copied());
        drop(parse("log", &file, &Names::default()));
        drop(parse("log", &bytes, &Names::default()));
    }
}
