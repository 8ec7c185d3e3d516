//! Of many workers, one trains each run.

use std::fs::{self, File};
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use cli::worker_claims::{Claim, ClaimOutcome, FOLDER, claim};

const LONG: Duration = Duration::from_secs(3600);

fn ask(folder: &Path, run: &str, lease: Duration) -> Option<Claim> {
    match claim(folder, run, lease, || {}).unwrap() {
        ClaimOutcome::Claimed(claim) => Some(claim),
        ClaimOutcome::Held(_) => None,
    }
}

/// The names of the files in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn of_many_workers_one_gets_each_run() {
    let folder = tempfile::tempdir().unwrap();
    for run in ["a", "a.1", "b"] {
        let got: Vec<Option<Claim>> = std::thread::scope(|scope| {
            let asking: Vec<_> =
                (0..16).map(|_| scope.spawn(|| ask(folder.path(), run, LONG))).collect();
            asking.into_iter().map(|asking| asking.join().unwrap()).collect()
        });
        assert_eq!(got.iter().flatten().count(), 1, "{run}");
        drop(got);
        assert!(ask(folder.path(), run, LONG).is_some(), "{run} was given back");
    }
}

#[test]
fn a_silent_claim_is_taken_over_by_one_and_its_holder_hears_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let claims = folder.path().join(FOLDER);
    fs::create_dir(&claims).unwrap();
    // Its worker died an hour and a second ago.
    let dead = File::create(claims.join("a.4")).unwrap();
    let before = std::time::SystemTime::now() - Duration::from_secs(3601);
    dead.set_modified(before).unwrap();
    let got: Vec<Option<Claim>> = std::thread::scope(|scope| {
        let asking: Vec<_> =
            (0..16).map(|_| scope.spawn(|| ask(folder.path(), "a", LONG))).collect();
        asking.into_iter().map(|asking| asking.join().unwrap()).collect()
    });
    let ours: Vec<Claim> = got.into_iter().flatten().collect();
    assert_eq!((ours.len(), names(&claims)), (1, vec!["a.4".to_owned(), "a.5".to_owned()]));
    drop(ours);
    assert_eq!(names(&claims), [] as [&str; 0]);

    // The claim of a worker that sleeps is taken over; it hears of that when it wakes.
    let (say, said) = channel();
    let lost = move || say.send(()).unwrap();
    let ClaimOutcome::Claimed(slow) =
        claim(folder.path(), "a", Duration::from_millis(40), lost).unwrap()
    else {
        panic!("nobody else asked");
    };
    assert_eq!(names(&claims), ["a.1"]);
    File::create(claims.join("a.2")).unwrap();
    said.recv().unwrap();
    drop(slow);
}
