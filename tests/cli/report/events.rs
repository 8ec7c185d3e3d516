//! Event files of `canonc report --tensorboard`: every scalar is at its step and time, and equal runs give equal bytes.

use std::fs;

use lab::comparison::Role;
use report::tensorboard;

use super::super::super::canonc;
use super::{SECONDS, STEPS, TOKENS_PER_STEP, compared, exits, loss};

#[test]
fn event_files_hold_every_scalar_at_its_step_and_time() {
    let dir = compared();
    let words = ["report", "runs/pair/pair-treated-seed1", "--tensorboard", "tb"];
    let ran = canonc(dir.path(), &words);
    exits(0, &ran);
    assert!(ran.stderr.contains("event files: tb"), "{}", ran.stderr);
    let path = dir.path().join("tb/pair-treated-seed1/events.out.tfevents.0000001000.canonc");
    let file = fs::read(&path).unwrap();
    let records = tensorboard::read(&file);
    assert_eq!(records.complete, file.len());
    let lock = fs::read_to_string(dir.path().join("runs/pair/pair-treated-seed1/lock")).unwrap();
    assert!(lock.contains(&records.lock.unwrap()));
    // Each step, and an evaluation after every twentieth.
    let mut events = records.events.iter();
    for step in 1..=STEPS {
        let event = events.next().unwrap();
        assert_eq!(event.wall_time, 1000.5 + SECONDS * step as f64);
        let wanted = [
            ("training/training_loss", loss(Role::Treatment, 0, step)),
            ("training/gradient_norm", 1.0 / step as f64),
            ("speed/tokens_per_second", TOKENS_PER_STEP / SECONDS),
        ];
        assert!(
            event.has(step, &wanted.map(|(tag, value)| (tag.to_owned(), value as f32))),
            "{event:?}"
        );
        if step % 20 == 0 {
            let event = events.next().unwrap();
            let right = ("evaluation/token_accuracy".to_owned(), step as f32 / 100.0);
            assert!(event.has(step, &[right]), "{event:?}");
        }
    }
    assert_eq!(events.next(), None);
    // Equal runs give equal bytes.
    exits(0, &canonc(dir.path(), &words));
    assert_eq!(fs::read(&path).unwrap(), file);
}
