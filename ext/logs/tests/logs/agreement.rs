//! How logs agree with a lock.

use logs::check;
use support::locks::{DEPO, experiment_of, small};

use super::samples::{
    TOKENS_PER_STEP, chart, checked, events, lingua, lingua_row, loss, rate, read, steps,
    trainer_state,
};

/// Rule, field and values of each difference.
fn differences(file: &[u8], names: &[&str]) -> Vec<(&'static str, &'static str, String)> {
    let check = checked(file, names);
    check.differences.into_iter().map(|one| (one.rule, one.key, one.says)).collect()
}

#[test]
fn an_honest_log_differs_in_nothing() {
    let tags: [(&str, &dyn Fn(u64) -> f64); 2] =
        [("loss_metrics/global_avg_loss", &loss), ("lr", &rate)];
    for file in [trainer_state(rate).into_bytes(), lingua().into_bytes(), events(&tags)] {
        let check = checked(&file, &[]);
        assert_eq!(check.differences, []);
        assert_eq!(check.lr.to_string(), "all 60 are the lock's");
    }
    assert_eq!(checked(lingua().as_bytes(), &[]).tokens.to_string(), "all 60 are the lock's");
    assert_eq!(checked(trainer_state(rate).as_bytes(), &[]).tokens.to_string(), "not in the log");
}

/// The file was written by transformers 5.24, which trained 60 steps of 4 windows of 64 tokens.
#[test]
fn a_real_log_of_transformers_is_of_its_lock() {
    let log = || read(include_bytes!("trainer_state.json"), &[]);
    let text = DEPO
        .replace("seq_len = 128", "seq_len = 64")
        .replace("depo.N = 12", "depo.N = 6")
        .replace("sequences = 32", "sequences = 4")
        .replace("warmup = 60", "warmup = 10, lr_min_ratio = 0.0")
        .replace("steps = 600", "steps = 60");
    let of = |text: &str| check(&log(), &experiment_of(text, &small())).unwrap();
    let check = of(&text);
    assert_eq!(check.differences, []);
    assert_eq!((check.lr.compared, check.tokens.compared, log().reached), (8, 9, 60));
    assert_eq!(log().loss_is, "mean over 7 steps");
    // The schedule of a lock ends at a tenth, unless it says otherwise.
    let usual = of(&text.replace(", lr_min_ratio = 0.0", ""));
    let says = "first at step 14: 0.002973430876093033, by the lock 0.00297608778848373; 7 of 8 values differ";
    assert_eq!(usual.differences[0].says, says);
}

#[test]
fn another_schedule_is_found_with_its_first_step() {
    // A warm-up of 61 steps in place of 60.
    let other = |step: u64| if step <= 60 { 0.003 * (step - 1) as f64 / 61.0 } else { rate(step) };
    let differing = differences(trainer_state(other).as_bytes(), &[]);
    let says =
        "first at step 10: 0.0004426229508196721, by the lock 0.00045; 6 of 60 values differ";
    assert_eq!(differing, [("log-rate", "optimizer.lr", says.to_owned())]);
    let twice = differences(trainer_state(|step| 2.0 * rate(step)).as_bytes(), &[]);
    assert!(
        twice[0].2.ends_with("60 of 60 values differ; all are 2 times the lock's"),
        "{twice:?}"
    );
}

#[test]
fn a_log_that_is_one_step_off_is_recognised() {
    // Older versions of transformers log the next step's rate; at the end there is none in the lock.
    let next = |step: u64| if step < 600 { rate(step + 1) } else { 0.0 };
    let check = checked(trainer_state(next).as_bytes(), &[]);
    assert_eq!(check.lr.to_string(), "all 59 are the lock's of the next step");
    assert_eq!(check.differences[0].rule, "log-shifted");
    let before = trainer_state(|step| rate(step - 1));
    let differing = differences(before.as_bytes(), &[]);
    let says = "all 60 values are those of the lock's step before; at step 10: 0.0004, by the lock 0.00045";
    assert_eq!(differing, [("log-rate", "optimizer.lr", says.to_owned())]);
}

#[test]
fn tokens_and_sequences_are_held_against_the_batch() {
    let rows = |tokens: &dyn Fn(u64) -> u64| -> String {
        steps().map(|step| lingua_row(step, 0, rate(step), tokens(step))).collect()
    };
    let half = differences(rows(&|step| step * TOKENS_PER_STEP / 2).as_bytes(), &[]);
    assert_eq!(
        half,
        [(
            "log-batch",
            "batch.tokens_per_step",
            "first at step 10: 20480, by the lock 40960; 60 of 60 values differ; all are 0.5 times the lock's; \
             the lock has 4096 a step"
                .to_owned()
        )]
    );
    let from_zero = rows(&|step| (step + 1) * TOKENS_PER_STEP);
    assert_eq!(differences(from_zero.as_bytes(), &[])[0].0, "log-shifted");
    let device = trainer_state(rate).replace("\"train_batch_size\": 8", "\"train_batch_size\": 12");
    assert_eq!(
        differences(device.as_bytes(), &[]),
        [(
            "log-batch",
            "batch.sequences",
            "12 on a device at a time; the lock has 32 a step".to_owned()
        )]
    );
    let sequences = chart(&[("a", "train/loss", &loss), ("a", "batch", &|_| 64.0)]);
    assert_eq!(differences(sequences.as_bytes(), &["sequences=batch"])[0].1, "batch.sequences");
}

#[test]
fn the_number_of_steps_is_held_against_the_budget() {
    let planned = trainer_state(rate).replace("\"max_steps\": 600", "\"max_steps\": 1200");
    let cut: String = steps()
        .take(30)
        .map(|step| lingua_row(step, 0, rate(step), step * TOKENS_PER_STEP))
        .collect();
    let beyond = lingua() + &lingua_row(610, 0, 0.0, 610 * TOKENS_PER_STEP);
    for (file, rule, says) in [
        (planned, "log-steps", "1200 in the log, 600 in the lock"),
        (cut, "log-short", "step 300 of 600"),
        (beyond, "log-steps", "step 610 in the log, 600 steps in the lock"),
    ] {
        assert_eq!(differences(file.as_bytes(), &[]), [(rule, "budget.steps", says.to_owned())]);
    }
}
