//! `verify` on whole runs, unfinished runs, and runs with one claim broken.

use std::fs;

use runtime::attest::Attestation;
use runtime::fault::Faults;
use runtime::metrics::{Log, Record};
use runtime::verify::{Report, verify};

use super::support::*;

fn report(folder: &Folder) -> Report {
    verify(&folder.path(), None).unwrap()
}

#[test]
fn everything_of_a_finished_run_holds() {
    let folder = Folder::finished(&depo(&[]));
    let Report { holds, broken, skipped } = report(&folder);
    assert_eq!((broken, skipped), (vec![], vec![]));
    for what in [
        "lock ",
        "metrics: 11 lines",
        "data of 8",
        "step-0000000008",
        "step-0000000006",
        "attestation",
    ] {
        assert!(holds.iter().any(|line| line.contains(what)), "{what}: {holds:?}");
    }
}

#[test]
fn an_unfinished_run_holds_as_far_as_it_goes() {
    let experiment = depo(&[]);
    let folder = Folder::new();
    folder.stop_at(&experiment, 4);
    let found = report(&folder);
    assert_eq!(found.broken, Vec::<String>::new());
    assert!(found.skipped[0].contains("not finished"), "{found:?}");
    assert!(verify(&folder.path().join("nowhere"), None).is_err());
}

/// Writes the log anew with some records changed and the chain made right.
fn forge(folder: &Folder, change: impl Fn(&mut Record)) {
    let mut records = folder.records();
    records.iter_mut().for_each(change);
    fs::remove_file(folder.paths().metrics()).unwrap();
    let mut log = Log::open(&folder.paths().metrics()).unwrap();
    for record in &records {
        log.append(record, &Faults::none()).unwrap();
    }
}

#[test]
fn each_broken_claim_is_named() {
    type Break = fn(&Folder);
    let cases: [(&str, Break); 8] = [
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
            let text = fs::read_to_string(folder.paths().attestation()).unwrap();
            let attestation = Attestation::parse(&text).unwrap();
            let other = Attestation { weights: attestation.lock, ..attestation };
            other
                .write(&folder.paths().attestation(), Default::default(), &Faults::none())
                .unwrap();
        }),
        ("it claims plan", |folder| fs::write(folder.paths().plan(), "another plan").unwrap()),
    ];
    for (what, damage) in cases {
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
