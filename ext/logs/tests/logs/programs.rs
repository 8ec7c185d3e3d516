//! What is read of each program's files.

use logs::Log;

use super::samples::{
    chart, events, lingua, lingua_row, loss, rate, read, read_as, torchtitan, trainer_state,
};

/// Program, names, number of points, what losses are.
fn brief(log: &Log) -> (Option<&'static str>, String, usize, &str) {
    (log.program, read_as(log), log.loss.len(), &log.loss_is)
}

#[test]
fn each_program_is_recognised_by_its_names() {
    let hf: [(&str, &dyn Fn(u64) -> f64); 3] =
        [("train/loss", &loss), ("train/learning_rate", &rate), ("train/epoch", &|_| 0.5)];
    let own: [(&str, &dyn Fn(u64) -> f64); 2] =
        [("training/training_loss", &loss), ("training/learning_rate", &rate)];
    let titan: [(&str, &dyn Fn(u64) -> f64); 2] =
        [("loss_metrics/global_avg_loss", &loss), ("lr", &rate)];
    let wandb = chart(&[("a, run", "train/loss", &loss), ("a, run", "train/learning_rate", &rate)]);
    for (file, program, names, loss_is) in [
        (
            trainer_state(rate).into_bytes(),
            "transformers",
            "loss=loss grad_norm=grad_norm lr=learning_rate",
            "mean over 10 steps",
        ),
        (
            lingua().into_bytes(),
            "Lingua",
            "loss=loss/out grad_norm=optim/grad_norm lr=optim/lr tokens=optim/total_tokens",
            "of a step's last micro-batch",
        ),
        (
            torchtitan().into_bytes(),
            "torchtitan",
            "loss=loss_metrics/global_avg_loss grad_norm=grad_norm lr=lr tokens=n_tokens_seen",
            "of the step",
        ),
        (events(&titan), "torchtitan", "loss=loss_metrics/global_avg_loss lr=lr", "of the step"),
        (
            events(&hf),
            "transformers",
            "loss=train/loss lr=train/learning_rate",
            "mean over 10 steps",
        ),
        (
            events(&own),
            "canonc",
            "loss=training/training_loss lr=training/learning_rate",
            "of the step",
        ),
        (
            wandb.into_bytes(),
            "transformers",
            "loss=train/loss lr=train/learning_rate",
            "mean over 10 steps",
        ),
    ] {
        let log = read(&file, &[]);
        assert_eq!(brief(&log), (Some(program), names.to_owned(), 60, loss_is));
        assert_eq!((log.loss[0].0, log.reached), (10, 600));
        assert!((log.loss[0].1 - loss(10)).abs() < 1e-6 && (log.lr[59].1 - rate(600)).abs() < 1e-9);
    }
}

#[test]
fn a_trainer_state_says_what_was_planned() {
    let log = read(trainer_state(rate).as_bytes(), &[]);
    assert_eq!((log.planned, log.device_sequences, log.notes), (Some(600), Some(8), Vec::new()));
    // `logging_first_step` and the last step are out of the rhythm.
    let first = trainer_state(rate).replacen(
        "    {\n",
        "    {\n      \"loss\": 9.0,\n      \"step\": 1\n    },\n    {\n",
        1,
    );
    let log = read(first.as_bytes(), &[]);
    assert_eq!((log.loss.len(), log.loss_is.as_str()), (61, "mean over 10 steps"));
}

#[test]
fn names_of_the_user_go_before_known_ones() {
    let file = chart(&[("a", "ce", &loss), ("a", "rate", &rate), ("a", "other", &|_| 32.0)]);
    let names = ["loss=ce", "lr=a - rate", "sequences=other"];
    let log = read(file.as_bytes(), &names);
    assert_eq!(brief(&log), (None, "loss=ce lr=rate sequences=other".to_owned(), 60, "as logged"));
    let log = read(torchtitan().as_bytes(), &["loss=loss_metrics/global_max_loss"]);
    assert_eq!(log.loss[0], (10, 9.0));
    let two = chart(&[("a", "loss", &|_| 1.0), ("b", "loss", &|_| 2.0)]);
    assert_eq!(read(two.as_bytes(), &["loss=b - loss"]).loss[0], (10, 2.0));
    let file = "{\"batch\": 1, \"ce\": 3.5}\n{\"batch\": 2, \"ce\": 3.25}\n";
    let log = read(file.as_bytes(), &["step=batch", "loss=ce"]);
    assert_eq!(log.loss, [(1, 3.5), (2, 3.25)]);
}

#[test]
fn a_log_that_goes_on_after_a_restart_counts_each_step_once() {
    let row = |step, rate| lingua_row(step, 0, rate, 0);
    let file = [row(10, 1.0), row(20, 2.0), row(30, 3.0), row(20, 4.0), row(30, 5.0)].concat();
    let log = read(file.as_bytes(), &[]);
    assert_eq!(log.lr, [(10, 1.0), (20, 4.0), (30, 5.0)]);
    assert!(log.notes[0].contains("goes back from step 30 to 20"), "{:?}", log.notes);
}

#[test]
fn what_is_torn_or_averaged_is_said() {
    let whole = lingua();
    let torn = &whole[..whole.len() - 30];
    assert_eq!(read(torn.as_bytes(), &[]).notes, ["its last line is torn, and is not read"]);
    let mut file = events(&[("train/loss", &loss), ("train/learning_rate", &rate)]);
    file.truncate(file.len() - 5);
    let log = read(&file, &[]);
    assert_eq!((log.loss.len(), log.lr.len()), (60, 59));
    assert!(log.notes[0].contains("bytes are torn or damaged"), "{:?}", log.notes);
    let sampled = "Step,a - train/loss,a - train/loss__MIN,a - train/loss__MAX,a - lr,a - lr__MIN,a - lr__MAX\n\
                   10,2,1,3,0.5,0.4,0.6\n20,2,2,2,0.5,0.5,0.5\n";
    let log = read(sampled.as_bytes(), &["lr=lr"]);
    assert_eq!((log.loss.len(), log.lr), (2, vec![(20, 0.5)]));
    assert!(log.notes.iter().any(|note| note.contains("1 of 2 points of `lr` are means")));
    let lost = trainer_state(rate).replace(&format!("\"loss\": {}", loss(20)), "\"loss\": NaN");
    let log = read(lost.as_bytes(), &[]);
    assert!(log.loss[1].1.is_nan());
    assert_eq!(log.notes, ["the loss is NaN at step 20, and no number at 1 points"]);
}
