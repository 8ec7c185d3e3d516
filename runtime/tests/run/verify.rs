//! `verify` on whole runs, unfinished runs, and runs with one claim broken.

use std::fs;

use compiler::digest::Digest;
use records::attest::Attestation;
use records::checkpoint::Part;
use records::fault::Faults;
use records::job::PLAN_TAG;
use records::metrics::{Log, Record};
use records::verify::{Inputs, REMADE, Remake, Subject, VerifyReport, verify};

use super::forger::Forger;
use super::support::*;

fn report(folder: &Folder) -> VerifyReport {
    verify(&folder.path(), Inputs::default(), Remake::Spread).unwrap()
}

/// Every claim that was recomputed or checked.
fn texts(report: &VerifyReport) -> Vec<String> {
    let claims = report.recomputed.iter().chain(&report.checked);
    claims.map(|claim| claim.text.clone()).collect()
}

/// Every claim that was taken on trust.
fn trusted(report: &VerifyReport) -> Vec<String> {
    report.trusted.iter().map(|claim| claim.text.clone()).collect()
}

#[test]
fn everything_of_a_finished_run_holds() {
    let folder = Folder::finished(&depo(&[]));
    let report = report(&folder);
    assert_eq!(report.broken, Vec::<String>::new());
    let holds = texts(&report);
    for what in [
        "lock ",
        "metrics: 11 lines",
        "learning rates of all steps (8)",
        "data of 8 of 8 steps: the same",
        "held-out windows of 2 evaluations",
        "drawn again from the lock's seed",
        "21 tensors each, every digest from their bytes",
        "step-0000000008",
        "step-0000000006",
        "plan: compiled again",
        "attestation: seal, lock, plan, weights ",
        "both moments, log and kernels agree",
    ] {
        assert!(holds.iter().any(|line| line.contains(what)), "{what}: {holds:?}");
    }
}

#[test]
fn an_unfinished_run_holds_as_far_as_it_goes() {
    let experiment = depo(&[]);
    let folder = Folder::new();
    folder.stop_at(&experiment, 4);
    let report = report(&folder);
    assert_eq!(report.broken, Vec::<String>::new());
    assert!(trusted(&report).iter().any(|text| text.contains("not finished")), "{report:?}");
    assert!(verify(&folder.path().join("nowhere"), Inputs::default(), Remake::Spread).is_err());
}

/// Between its last checkpoint and its attestation, a run is not reported as having lost its attestation.
#[test]
fn a_run_that_a_process_works_on_is_unfinished() {
    let folder = Folder::finished(&depo(&[]));
    fs::remove_file(folder.paths().attestation()).unwrap();
    let gone = |report: &VerifyReport| report.broken.iter().any(|line| line.contains("is missing"));
    assert!(gone(&report(&folder)));
    let writer = fs::File::options().write(true).open(folder.paths().writer()).unwrap();
    writer.lock().unwrap();
    let report = report(&folder);
    assert!(!gone(&report), "{:?}", report.broken);
    assert!(trusted(&report).iter().any(|text| text.contains("not finished")), "{report:?}");
}

/// A process that ends while writing an event leaves half a line, and the next process continues below it.
#[test]
fn half_an_event_before_the_next_process_is_no_finding() {
    let folder = Folder::finished(&depo(&[]));
    let attestation = folder.paths().attestation();
    let attested = fs::read_to_string(&attestation).unwrap();
    fs::write(&attestation, attested.replacen("processes = 1", "processes = 2", 1)).unwrap();
    let events = fs::read_to_string(folder.paths().events()).unwrap();
    let start = events.lines().find(|line| line.contains("started")).unwrap();
    for torn in ["{", "{\"event\":\"proved\",\"li"] {
        fs::write(folder.paths().events(), format!("{start}\n{torn}\n{events}")).unwrap();
        assert_eq!(report(&folder).broken, Vec::<String>::new(), "{torn}");
    }
}

#[test]
fn of_a_longer_run_some_data_is_made_again_and_all_of_it_when_asked() {
    let folder =
        Folder::finished(&depo(&[("steps = 8", "steps = 70"), ("every = 4", "every = 35")]));
    let report = |which| verify(&folder.path(), Inputs::default(), which).unwrap();
    let says =
        |report: &VerifyReport, what: &str| texts(report).iter().any(|line| line.contains(what));
    // The last step is among them here; otherwise it is recomputed as well.
    let some = REMADE;
    assert!(says(
        &report(Remake::Spread),
        &format!("data of {some} of 70 steps: the same digests and counted targets")
    ));
    let closing = report(Remake::Spread).closing();
    assert!(closing.contains("batches (64 of 70 steps)"), "{closing}");
    assert!(closing.contains("taken on trust: batches (6 of 70 steps)"), "{closing}");
    assert!(says(&report(Remake::Every), "data of 70 of 70 steps: the same"));
    // Step 2 is not among those spread over 70.
    forge(&folder, |record| {
        if let Record::Step(step) = record
            && step.step == 2
        {
            step.counted += 1;
        }
    });
    let logged = |report: VerifyReport| {
        report.broken.iter().any(|line| line.contains("step 2 logged batch"))
    };
    assert!(!logged(report(Remake::Spread)));
    assert!(logged(report(Remake::Every)));
}

/// Rewrites the log with some records changed and a valid chain.
fn forge(folder: &Folder, change: impl Fn(&mut Record)) {
    let mut records = folder.records();
    records.iter_mut().for_each(change);
    fs::remove_file(folder.paths().metrics()).unwrap();
    let mut log = Log::open(&folder.paths().metrics()).unwrap();
    for record in &records {
        log.append(record, &Faults::none()).unwrap();
    }
}

/// Rewrites the attestation with a change and a valid seal.
fn attest(folder: &Folder, change: impl Fn(&mut Attestation)) {
    let path = folder.paths().attestation();
    let mut attestation = Attestation::parse(&fs::read_to_string(&path).unwrap()).unwrap();
    change(&mut attestation);
    attestation.write(&path, Default::default(), &Faults::none()).unwrap();
}

/// A finding, and the damage that causes it.
type Damage = (&'static str, fn(&Folder));

fn broken_logs() -> [Damage; 3] {
    [
        ("line 3 of", |folder| {
            let text = fs::read_to_string(folder.paths().metrics()).unwrap();
            fs::write(folder.paths().metrics(), text.replacen("\"step\":2,", "\"step\":3,", 1))
                .unwrap();
        }),
        ("step 3 logged lr", |folder| {
            forge(folder, |record| {
                if let Record::Step(step) = record
                    && step.step == 3
                {
                    step.lr *= 2.0;
                }
            });
        }),
        ("step 5 logged batch", |folder| {
            forge(folder, |record| {
                if let Record::Step(step) = record
                    && step.step == 5
                {
                    step.counted += 1;
                }
            });
        }),
    ]
}

fn broken_files() -> [Damage; 10] {
    [
        ("checkpoints/step-0000000006: weights.safetensors has digest", |folder| {
            let path = folder.checkpoint(6).join("weights.safetensors");
            let mut content = bytes(&path);
            content[250] ^= 2;
            fs::write(path, content).unwrap();
        }),
        ("checkpoints/latest names step-0000000099", |folder| {
            fs::write(folder.paths().checkpoints().join("latest"), "step-0000000099\n").unwrap();
        }),
        ("attestation.toml: its seal is", |folder| {
            let text = fs::read_to_string(folder.paths().attestation()).unwrap();
            fs::write(folder.paths().attestation(), text.replace("steps = 8", "steps = 9"))
                .unwrap();
        }),
        ("it claims weights", |folder| {
            attest(folder, |attestation| attestation.weights = attestation.lock);
        }),
        ("it claims plan", |folder| fs::write(folder.paths().plan(), "another plan").unwrap()),
        ("plan.txt is missing", |folder| fs::remove_file(folder.paths().plan()).unwrap()),
        ("plan.txt: line 1 is `another plan`, but the lock compiles to", |folder| {
            // The plan and its attested digest agree with each other, and not with the lock.
            fs::write(folder.paths().plan(), "another plan").unwrap();
            attest(folder, |attestation| {
                attestation.plan = Digest::of(PLAN_TAG, "another plan");
            });
        }),
        ("kernels.txt is missing", |folder| {
            fs::remove_file(folder.paths().kernels()).unwrap();
        }),
        ("its kernels differ from kernels.txt", |folder| {
            attest(folder, |attestation| {
                attestation.kernels.insert("magic".to_owned(), ["fast".to_owned()].into());
            });
        }),
        ("the metrics log of its chain is empty or missing", |folder| {
            fs::remove_file(folder.paths().metrics()).unwrap();
        }),
    ]
}

#[test]
fn each_broken_claim_is_named() {
    for (what, damage) in broken_logs().into_iter().chain(broken_files()) {
        let folder = Folder::finished(&depo(&[]));
        damage(&folder);
        let broken = report(&folder).broken;
        assert!(broken.iter().any(|line| line.contains(what)), "{what}: {broken:?}");
    }
    let folder = Folder::finished(&depo(&[]));
    let text = fs::read_to_string(folder.paths().lock()).unwrap();
    fs::write(folder.paths().lock(), text.replace("lr = 0.01", "lr = 0.02")).unwrap();
    assert_eq!(report(&folder).broken.len(), 1);
}

#[test]
fn another_name_of_the_lock_is_reported_once() {
    let experiment = depo(&[]);
    let folder = Folder::finished(&experiment);
    let rename = |attestation: &mut Attestation| attestation.name = "renamed".to_owned();
    Forger::at(&folder.path(), &experiment).reattest(rename);
    let report = report(&folder);
    assert_eq!(report.broken, Vec::<String>::new());
    let claims: Vec<_> =
        report.trusted.iter().filter(|claim| claim.text.contains("renamed")).collect();
    let [claim] = claims.as_slice() else { panic!("{claims:?}") };
    assert_eq!(claim.subject, Subject::Settings);
    assert!(!report.trusts(Subject::Attestation), "{report:?}");
}

#[test]
fn missing_weights_are_a_finding() {
    let folder = Folder::finished(&depo(&[]));
    for step in [6, 8] {
        fs::remove_dir_all(folder.checkpoint(step)).unwrap();
    }
    fs::remove_file(folder.paths().checkpoints().join("latest")).unwrap();
    let broken = report(&folder).broken;
    for what in ["the last step, 8, has no checkpoint", "checkpoints/latest is missing"] {
        assert!(broken.iter().any(|line| line.contains(what)), "{what}: {broken:?}");
    }
}

#[test]
fn the_closing_line_says_what_was_believed() {
    let closing = report(&Folder::finished(&depo(&[]))).closing();
    assert_eq!(
        closing,
        "recomputed: lock, learning rates, batches, held-out windows, initial weights, tensor digests, plan; \
         checked against digests: metrics log, checkpoints, attestation; \
         taken on trust: kernels, machine, losses and gradient norms, training from the first weights to the last, \
         evaluations, names and cadences, times; \
         nothing shown here says that canonc trained this run: `--replay` trains steps of it again"
    );
}

#[test]
fn the_plan_of_another_canonc_is_compared_with_its_digest_only() {
    let folder = Folder::finished(&depo(&[]));
    fs::write(folder.paths().plan(), "theirs").unwrap();
    attest(&folder, |attestation| {
        attestation.plan = Digest::of(PLAN_TAG, "theirs");
        attestation.machine.insert("canonc".to_owned(), "99.0.0".to_owned());
    });
    let verified = report(&folder);
    assert_eq!(verified.broken, Vec::<String>::new());
    let on_trust = trusted(&verified);
    assert!(
        on_trust.iter().any(|text| text.contains("says that canonc 99.0.0 made it")),
        "{on_trust:?}"
    );
    fs::write(folder.paths().plan(), "nobody's").unwrap();
    assert!(report(&folder).broken[0].contains("it claims plan"));
}

#[test]
fn the_plan_of_an_unfinished_run_is_checked() {
    let folder = Folder::new();
    folder.stop_at(&depo(&[]), 4);
    fs::remove_file(folder.paths().plan()).unwrap();
    assert!(report(&folder).broken[0].contains("plan.txt is missing"));
}

#[test]
fn of_an_unfinished_run_the_same_is_found() {
    let experiment = depo(&[]);
    let stopped = Folder::new();
    stopped.stop_at(&experiment, 7);
    type Forge = fn(&Forger);
    let forgeries: [(&str, Forge); 9] = [
        ("should name a checkpoint", |run| {
            fs::write(run.paths.checkpoints().join("latest"), "").unwrap();
        }),
        ("checkpoints/latest is missing", |run| {
            fs::remove_file(run.paths.checkpoints().join("latest")).unwrap();
        }),
        ("step-0000000006: it is the state after step 7", |run| {
            let away = run.paths.checkpoints().join("away");
            fs::rename(run.checkpoint(6), &away).unwrap();
            fs::rename(run.checkpoint(7), run.checkpoint(6)).unwrap();
            fs::rename(away, run.checkpoint(7)).unwrap();
        }),
        ("it is not a safetensors file", |run| {
            fs::write(run.part(7, Part::Weights), "no tensors\n").unwrap();
            run.correct();
        }),
        ("its tensors have digest", |run| run.keep_tensors(6, Part::FirstMoment)),
        ("the lock's seed gives", |run| {
            run.records(|record| {
                if let Record::Start(start) = record {
                    start.initial = start.lock;
                }
            });
        }),
        ("step 3 logged lr", |run| {
            run.records(|record| {
                if let Record::Step(step) = record
                    && step.step == 3
                {
                    step.lr *= 2.0;
                }
            });
        }),
        ("kernels.txt: line", |run| {
            let text = fs::read_to_string(run.paths.kernels()).unwrap();
            fs::write(run.paths.kernels(), text + "# more\n").unwrap();
        }),
        ("lock cannot be read", |run| fs::remove_file(run.paths.lock()).unwrap()),
    ];
    assert_eq!(Forger::copy(&stopped.path(), &experiment).verify().broken, Vec::<String>::new());
    for (finding, forge) in forgeries {
        let run = Forger::copy(&stopped.path(), &experiment);
        forge(&run);
        let broken = run.verify().broken;
        assert!(broken.iter().any(|line| line.contains(finding)), "{finding}: {broken:?}");
    }
}

#[test]
fn the_state_before_the_first_step_is_the_initial_one() {
    let experiment = depo(&[]);
    let folder = Folder::new();
    folder.stop_at(&experiment, 0);
    let untouched = report(&folder);
    assert_eq!(untouched.broken, Vec::<String>::new());
    for part in [Part::Weights, Part::FirstMoment, Part::SecondMoment] {
        let run = Forger::copy(&folder.path(), &experiment);
        run.flip(0, part);
        run.correct();
        let broken = run.verify().broken;
        assert!(
            broken.iter().any(|line| line.contains("but before the first step they are")),
            "{broken:?}"
        );
    }
}

#[test]
fn a_lock_that_asks_for_more_than_can_be_made_is_checked_in_bounded_time() {
    let huge = depo(&[("windows = 3", "windows = 4000000000")]);
    let folder = Folder::finished(&depo(&[]));
    let run = Forger::copy(&folder.path(), &depo(&[]));
    run.relock(&huge);
    let report = run.verify();
    assert_eq!(report.broken, Vec::<String>::new());
    assert!(report.trusts(Subject::HeldOut), "{}", report.closing());
    assert!(report.closing().contains("held-out windows (too many to recompute here)"));
}

#[test]
fn a_run_that_is_verified_while_it_trains_has_no_false_finding() {
    let experiment = depo(&[("steps = 8", "steps = 40"), ("every = 3", "every = 1")]);
    let folder = Folder::new();
    folder.stop_at(&experiment, 1);
    let path = folder.path();
    let (done, findings) =
        (std::sync::atomic::AtomicBool::new(false), std::sync::Mutex::new(vec![]));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let broken = verify(&path, Inputs::default(), Remake::Spread).unwrap().broken;
                findings.lock().unwrap().extend(broken);
            }
        });
        folder.finish(&experiment);
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(*findings.lock().unwrap(), Vec::<String>::new());
}

#[test]
fn what_a_process_left_unfinished_is_listed() {
    let folder = Folder::new();
    folder.stop_at(&depo(&[]), 4);
    fs::create_dir(folder.paths().checkpoints().join(".unfinished-step-0000000005")).unwrap();
    let report = report(&folder);
    assert_eq!(report.broken, Vec::<String>::new());
    let on_trust = trusted(&report);
    assert!(
        on_trust.iter().any(|text| text.contains("checkpoints/.unfinished-step-0000000005")),
        "{on_trust:?}"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn files_without_an_end_are_found_and_not_read() {
    let folder = Folder::finished(&depo(&[]));
    type Forge = fn(&Forger);
    let forgeries: [(&str, Forge); 4] = [
        ("neither a file nor a folder", |run| {
            fs::remove_file(run.paths.events()).unwrap();
            std::os::unix::fs::symlink("/dev/zero", run.paths.events()).unwrap();
        }),
        ("neither a file nor a folder", |run| {
            fs::remove_file(run.paths.lock()).unwrap();
            let status = std::process::Command::new("mkfifo").arg(run.paths.lock()).status();
            assert!(status.unwrap().success());
        }),
        ("a line of more than", |run| {
            fs::File::create(run.paths.metrics()).unwrap().set_len(3 << 30).unwrap();
        }),
        ("need less than", |run| {
            let file = fs::File::options().write(true).open(run.part(8, Part::Weights)).unwrap();
            file.set_len(900 << 20).unwrap();
        }),
    ];
    for (finding, forge) in forgeries {
        let run = Forger::copy(&folder.path(), &depo(&[]));
        forge(&run);
        let broken = run.verify().broken;
        assert!(broken.iter().any(|line| line.contains(finding)), "{finding}: {broken:?}");
    }
}
