//! Damaged run folders: recoverable damage is reported, other damage is refused by name.

use std::fs;

use compiler::digest::Digest;
use dsl::ProblemKind;
use records::metrics::{Log, Record};
use records::run::Event;
use records::verify::{Inputs, Remake, verify};
use runtime::train::{TimingMethod, TrainOutcome, machine, time};

use super::support::*;

const LAST: u64 = 8;

fn overwrite(path: &std::path::Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut content = bytes(path);
    change(&mut content);
    fs::write(path, content).unwrap();
}

#[test]
fn a_damaged_checkpoint_is_reported_and_its_steps_are_trained_again() {
    let experiment = depo(&[]);
    let straight = Folder::finished(&experiment);
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage, &str); 4] = [
        ("weights.safetensors", |content| content.truncate(content.len() / 2), "bytes, but had"),
        ("second_moment.safetensors", |content| content[300] ^= 4, "has digest"),
        ("first_moment.safetensors", Vec::clear, "has 0 bytes"),
        ("checkpoint.toml", |content| content[90] ^= 1, "checkpoint.toml"),
    ];
    for (file, damage, words) in damages {
        let folder = Folder::new();
        folder.stop_at(&experiment, 7);
        overwrite(&folder.checkpoint(7).join(file), damage);
        let (end, observer) = folder.run(&experiment, None, None);
        assert!(matches!(end, Ok(TrainOutcome::Finished(_))), "{file}: {end:?}");
        let is_reported = observer.events.iter().any(|event| {
            matches!(event, Event::CheckpointRefused { name, why: reason }
                if name == "step-0000000007" && reason.contains(words))
        });
        assert!(is_reported, "{file}: {:?}", observer.events);
        assert!(
            observer.events.iter().any(|event| matches!(event, Event::Started { step: 6, .. }))
        );
        let recorded = fs::read_to_string(folder.paths().events()).unwrap();
        assert!(recorded.contains("checkpoint refused"), "{recorded}");
        assert_eq!(differing(&straight.bits(LAST), &folder.bits(LAST)), Vec::<String>::new());
        // A run that says it has finished must verify.
        assert!(!folder.checkpoint(7).exists());
        assert!(folder.checkpoint(7).with_file_name("refused-step-0000000007").is_dir());
        let report = records::verify::verify(
            &folder.paths().folder,
            records::verify::Inputs::default(),
            records::verify::Remake::Spread,
        );
        assert_eq!(report.unwrap().broken, Vec::<String>::new(), "{file}");
    }
}

#[test]
fn without_any_good_checkpoint_the_run_is_refused_and_nothing_is_lost() {
    let experiment = depo(&[]);
    let folder = Folder::new();
    folder.stop_at(&experiment, 7);
    for step in [3, 6, 7] {
        overwrite(&folder.checkpoint(step).join("weights.safetensors"), |content| {
            content[200] ^= 1
        });
    }
    let before = bytes(&folder.paths().metrics());
    let error = folder.fails(&experiment);
    assert_eq!(error.kind, ProblemKind::Finding);
    assert!(
        error.message.contains("step-0000000006") && error.message.contains("step-0000000007"),
        "{error}"
    );
    assert_eq!(bytes(&folder.paths().metrics()), before);
    // As the message says: without checkpoints, all logged steps must be reproduced.
    fs::remove_dir_all(folder.paths().checkpoints()).unwrap();
    let (end, observer) = folder.run(&experiment, None, None);
    assert!(matches!(end, Ok(TrainOutcome::Finished(_))), "{end:?}");
    assert!(
        observer.events.contains(&Event::Proved { step: 7, lines: 9 }),
        "{:?}",
        observer.events
    );
}

#[test]
fn a_checkpoint_of_another_arch_is_refused() {
    let (experiment, other) = (depo(&[]), experiment("small_canon", DEPO, &[]));
    let (folder, theirs) = (Folder::new(), Folder::new());
    folder.stop_at(&experiment, 7);
    theirs.stop_at(&other, 7);
    fs::remove_dir_all(folder.checkpoint(7)).unwrap();
    fs::rename(theirs.checkpoint(7), folder.checkpoint(7)).unwrap();
    let (end, observer) = folder.run(&experiment, None, None);
    assert!(matches!(end, Ok(TrainOutcome::Finished(_))), "{end:?}");
    let refused = format!("{:?}", observer.events);
    assert!(refused.contains(&format!("it belongs to lock {}", other.id().short())), "{refused}");
}

#[test]
fn a_folder_of_another_lock_is_left_alone() {
    let folder = Folder::new();
    folder.stop_at(&depo(&[]), 4);
    let before = bytes(&folder.paths().metrics());
    let others = [
        (depo(&[("lr = 0.01", "lr = 0.02")]), "another lock"),
        (depo(&[("windows = 3", "windows = 4")]), "another evaluation section"),
        (depo(&[("threads = 1", "threads = 1\nfuse = false")]), "another platform section"),
        (
            depo(&[("[evaluation]\nevery = 4", "[evaluation]\nevery = 2")]),
            "evaluation.every = 4, but the lock now has 2",
        ),
    ];
    for (other, words) in others {
        let error = folder.fails(&other);
        assert_eq!(error.kind, ProblemKind::Input, "{error}");
        assert!(error.message.contains(words) && error.help.contains("--dir"), "{error}");
    }
    assert_eq!(bytes(&folder.paths().metrics()), before);
    // Settings that affect no logged line may differ.
    folder.finish(&depo(&[("every = 3", "every = 2")]));
}

#[test]
fn a_lock_edited_by_hand_is_refused_with_its_line() {
    let experiment = depo(&[]);
    let folder = Folder::new();
    folder.stop_at(&experiment, 4);
    let text = fs::read_to_string(folder.paths().lock()).unwrap();
    fs::write(folder.paths().lock(), text.replace("lr = 0.01", "lr = 0.02")).unwrap();
    let error = folder.fails(&experiment);
    assert_eq!(error.kind, ProblemKind::Input);
    assert!(error.message.contains("lock:"), "{error}");
    fs::write(folder.paths().lock(), &text[..text.len() / 2]).unwrap();
    assert_eq!(folder.fails(&experiment).kind, ProblemKind::Input);
    fs::write(folder.paths().lock(), text).unwrap();
    folder.finish(&experiment);
}

#[test]
fn a_line_altered_in_the_log_is_refused_by_its_number() {
    let experiment = depo(&[]);
    let folder = Folder::new();
    folder.stop_at(&experiment, 7);
    let text = fs::read_to_string(folder.paths().metrics()).unwrap();
    fs::write(folder.paths().metrics(), text.replacen("\"step\":2,", "\"step\":9,", 1)).unwrap();
    let error = folder.fails(&experiment);
    assert_eq!(error.kind, ProblemKind::Finding);
    assert!(error.message.contains("line 3 of") && error.message.contains("altered"), "{error}");
}

#[test]
fn a_step_that_comes_out_otherwise_stops_the_run_with_both_values() {
    let experiment = depo(&[]);
    let folder = Folder::new();
    folder.stop_at(&experiment, 5);
    // A carefully forged log: step 5 has another loss, and the chain is right.
    let mut records = folder.records();
    let claimed = match records.last_mut() {
        Some(Record::Step(step)) => {
            step.loss = Some(0.125);
            step.step
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(claimed, 5);
    fs::remove_file(folder.paths().metrics()).unwrap();
    let mut log = Log::open(&folder.paths().metrics()).unwrap();
    for record in &records {
        log.append(record, &records::fault::Faults::none()).unwrap();
    }
    drop(log);
    let before = bytes(&folder.paths().metrics());
    let (end, observer) = folder.run(&experiment, None, None);
    let error = end.unwrap_err();
    assert_eq!(error.kind, ProblemKind::Finding);
    assert!(error.message.starts_with("step 5 differs from"), "{error}");
    assert!(error.message.contains("loss was 0.125 and is "), "{error}");
    // The checkpoint of step 5 belongs to another log, so the run resumed from step 3.
    assert!(observer.events.iter().any(|event| matches!(event, Event::Started { step: 3, .. })));
    assert_eq!(bytes(&folder.paths().metrics()), before);
}

#[test]
fn a_torn_end_of_the_log_is_cut_and_reported() {
    let experiment = depo(&[]);
    let straight = Folder::finished(&experiment);
    let folder = Folder::new();
    let (end, _) = folder.run(&experiment, None, Some("metrics-full:6"));
    assert!(end.unwrap_err().message.contains("disk is full"));
    let (end, observer) = folder.run(&experiment, None, None);
    assert!(matches!(end, Ok(TrainOutcome::Finished(_))), "{end:?}");
    assert!(observer.events.iter().any(|event| matches!(event, Event::MetricsCut { .. })));
    assert_eq!(differing(&straight.bits(LAST), &folder.bits(LAST)), Vec::<String>::new());
}

#[test]
fn a_full_disk_at_any_durable_step_loses_nothing() {
    let experiment = depo(&[]);
    let straight = Folder::finished(&experiment);
    for fault in [
        "metrics-full:1",
        "metrics-full:9",
        "checkpoint-full:1",
        "checkpoint-full:8",
        "attest-full",
    ] {
        let folder = Folder::new();
        let error = folder.run(&experiment, None, Some(fault)).0.unwrap_err();
        assert_eq!(error.kind, ProblemKind::Machine, "{fault}");
        assert!(error.message.contains("disk is full"), "{fault}: {error}");
        folder.finish(&experiment);
        assert_eq!(
            differing(&straight.bits(LAST), &folder.bits(LAST)),
            Vec::<String>::new(),
            "{fault}"
        );
    }
}

#[test]
fn an_attestation_that_is_no_longer_whole_is_written_again() {
    let experiment = depo(&[]);
    let folder = Folder::finished(&experiment);
    overwrite(&folder.paths().attestation(), |content| content.truncate(100));
    let (end, observer) = folder.run(&experiment, None, None);
    assert!(matches!(end, Ok(TrainOutcome::Finished(_))), "{end:?}");
    assert!(observer.steps.is_empty(), "the last checkpoint is all that is needed");
    assert!(format!("{:?}", observer.events).contains("attestation.toml"));
}

#[test]
fn divergence_is_a_result_that_stays_one() {
    let experiment = depo(&[("lr = 0.01", "lr = 1e9"), ("warmup = 2", "warmup = 0")]);
    let folder = Folder::new();
    let mut attested = Vec::new();
    for _ in 0..2 {
        let (end, _) = folder.run(&experiment, None, None);
        let Ok(TrainOutcome::Diverged { attestation, why }) = end else { panic!("{end:?}") };
        assert!(why.starts_with(&format!("step {} has loss ", attestation.steps)), "{why}");
        assert_eq!(attestation.diverged, Some(attestation.steps));
        attested.push(attestation);
    }
    assert_eq!(attested[0], attested[1]);
    let report = verify(&folder.path(), Inputs::default(), Remake::Every).unwrap();
    assert_eq!(report.broken, Vec::<String>::new());
    let last = folder.records().pop().unwrap();
    assert!(last.text().contains("\"NaN\"") || last.text().contains("\"inf\""), "{}", last.text());
    assert_ne!(experiment.id(), Digest::of("", ""));
}

/// However a process ends, a diverged run gives the same attestation.
#[test]
fn a_diverging_run_resumes_from_wherever_it_was_interrupted() {
    let experiment = depo(&[("lr = 0.01", "lr = 1e9"), ("warmup = 2", "warmup = 0")]);
    let straight = Folder::new();
    let (end, _) = straight.run(&experiment, None, None);
    let Ok(TrainOutcome::Diverged { attestation: wanted, .. }) = end else { panic!("{end:?}") };
    let last = wanted.steps;
    for (stop, fault) in [
        (Some(1), None),
        (None, Some("attest-full")),
        (None, Some("checkpoint-full")),
        (None, Some("metrics-full:2")),
    ] {
        let folder = Folder::new();
        let (end, _) = folder.run(&experiment, stop, fault);
        assert!(!matches!(end, Ok(TrainOutcome::Diverged { .. })), "{stop:?} {fault:?}: {end:?}");
        let (end, _) = folder.run(&experiment, None, None);
        let Ok(TrainOutcome::Diverged { attestation, .. }) = end else {
            panic!("{fault:?}: {end:?}")
        };
        assert_eq!(attestation, wanted, "{stop:?} {fault:?}");
        let differing = differing(&straight.bits(last), &folder.bits(last));
        assert!(differing.is_empty(), "{stop:?} {fault:?}: {differing:?}");
    }
}

/// More tokens in a micro-batch than fit in any machine's memory.
const HUGE: [(&str, &str); 2] =
    [("sequences = 2", "sequences = 1048576"), ("seq_len = 32", "seq_len = 4096")];

#[test]
fn a_run_that_no_memory_holds_is_refused_before_anything_is_made() {
    let experiment = depo(&HUGE);
    let folder = Folder::new();
    let error = folder.fails(&experiment);
    assert_eq!(error.kind, ProblemKind::Machine, "{error}");
    assert!(error.message.contains("TiB of memory"), "{error}");
    assert!(error.help.contains("batch.sequences"), "{error}");
    assert!(!folder.path().exists());
    // It is not timed by running a part of it, either.
    let mut job = job(&experiment, None).unwrap();
    let machine = machine(&experiment.platform).unwrap();
    assert_eq!(time(&mut job, machine, 1.0).unwrap().how, TimingMethod::Flops);
}

#[test]
fn an_attestation_that_cannot_be_believed_makes_no_room() {
    let experiment = depo(&HUGE);
    let folder = Folder::new();
    fs::create_dir(folder.path()).unwrap();
    fs::write(folder.paths().lock(), lock_text(&experiment)).unwrap();
    fs::write(folder.paths().attestation(), "no attestation").unwrap();
    assert_eq!(folder.fails(&experiment).kind, ProblemKind::Machine);
}
