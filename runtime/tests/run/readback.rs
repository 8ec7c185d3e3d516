//! A run trusts the disk, not its own memory: the states it resumes from, and the data it attests, are read back and
//! computed again.

use std::fs;

use dsl::ProblemKind;
use records::checkpoint::Part;
use records::fault::Faults;
use records::metrics::{Evaluation, Record, Step};
use records::run::{Event, Paths};
use runtime::train::{Observer, Options, TrainOutcome, machine, train};

use super::forger::Forger;
use super::support::*;

/// Changes the folder after the last evaluation, like another program.
struct Meddler {
    paths: Paths,
    meddle: fn(&Paths),
}

impl Observer for Meddler {
    fn step(&mut self, _: &Step, _: f64) {}

    fn evaluation(&mut self, evaluation: &Evaluation, _: f64) {
        if evaluation.step == 8 {
            (self.meddle)(&self.paths);
        }
    }

    fn event(&mut self, _: &Event) {}
}

fn replaced(path: &std::path::Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{from}");
    fs::write(path, text.replacen(from, to, 1)).unwrap();
}

/// Puts a copy in the place of a file.
fn swapped(path: &std::path::Path) {
    let copy = path.with_extension("copy");
    fs::copy(path, &copy).unwrap();
    fs::rename(copy, path).unwrap();
}

/// A finding, and how the folder comes to deserve it.
type Meddling = (&'static str, fn(&Paths));

/// Files with another content.
fn other_contents() -> [Meddling; 8] {
    [
        ("but the run wrote nothing", |paths| {
            replaced(&paths.kernels(), "swiglu_grad", "zebra = fast\nswiglu_grad");
            let text = fs::read_to_string(paths.kernels()).unwrap();
            let (zebra, rest): (Vec<&str>, Vec<&str>) =
                text.split_inclusive('\n').partition(|line| line.starts_with("zebra"));
            fs::write(paths.kernels(), rest.concat() + &zebra.concat()).unwrap();
        }),
        ("was changed by another program", |paths| {
            let text = fs::read_to_string(paths.kernels()).unwrap();
            let path = text.lines().find_map(|line| line.strip_prefix("linear = ")).unwrap();
            let (now, other) =
                (format!("linear = {path}\n"), format!("linear = {path}\nlinear = view\n"));
            fs::write(paths.kernels(), text.replace(&now, &other)).unwrap();
        }),
        ("was changed by another program", |paths| fs::remove_file(paths.kernels()).unwrap()),
        ("line 3 of", |paths| {
            replaced(&paths.metrics(), "\"step\":2,\"loss\":", "\"step\":2,\"loss\":1")
        }),
        ("metrics lines with a chain that ends in", |paths| {
            let text = fs::read_to_string(paths.metrics()).unwrap();
            let end = text.trim_end().rfind('\n').unwrap() + 1;
            fs::write(paths.metrics(), &text[..end]).unwrap();
        }),
        ("continues after its last complete line", |paths| {
            let text = fs::read_to_string(paths.metrics()).unwrap();
            fs::write(paths.metrics(), text + "{\"kind\":").unwrap();
        }),
        ("plan.txt: line 1 is", |paths| fs::write(paths.plan(), "another plan\n").unwrap()),
        ("lock: line", |paths| replaced(&paths.lock(), "lr = 0.01", "lr = 0.02")),
    ]
}

/// Files that the process has open, removed, replaced or overwritten.
fn while_written() -> [Meddling; 10] {
    [
        (
            "metrics.jsonl was changed by another program while this process wrote it: it is missing",
            |paths| fs::remove_file(paths.metrics()).unwrap(),
        ),
        (
            "metrics.jsonl was changed by another program while this process wrote it: another",
            |paths| swapped(&paths.metrics()),
        ),
        (
            "timings.jsonl was changed by another program while this process wrote it: it is missing",
            |paths| fs::remove_file(paths.timings()).unwrap(),
        ),
        (
            "timings.jsonl was changed by another program while this process wrote it: another",
            |paths| swapped(&paths.timings()),
        ),
        (
            "timings.jsonl was changed by another program while this process wrote it: it has",
            |paths| fs::write(paths.timings(), "").unwrap(),
        ),
        (
            "timings.jsonl was changed by another program while this process wrote it: its lines",
            |paths| replaced(&paths.timings(), "\"step\":3", "\"step\":4"),
        ),
        (
            "events.jsonl was changed by another program while this process wrote it: it is missing",
            |paths| fs::remove_file(paths.events()).unwrap(),
        ),
        (
            "events.jsonl was changed by another program while this process wrote it: another",
            |paths| swapped(&paths.events()),
        ),
        (
            "writer was changed by another program while this process wrote it: it is missing",
            |paths| fs::remove_file(paths.writer()).unwrap(),
        ),
        ("writer was changed by another program while this process wrote it: another", |paths| {
            swapped(&paths.writer())
        }),
    ]
}

#[test]
fn a_run_attests_only_what_it_reads_back() {
    let experiment = depo(&[]);
    for (finding, meddle) in other_contents().into_iter().chain(while_written()) {
        let folder = Folder::new();
        let mut watch = Meddler { paths: folder.paths(), meddle };
        let (stop, faults) = (std::sync::atomic::AtomicBool::new(false), Faults::none());
        let options = Options { stop: &stop, stop_after: None, faults: &faults, ranks: None };
        let mut job = job(&experiment, None).unwrap();
        let machine = machine(&experiment.platform).unwrap();
        let error = train(&mut job, &folder.path(), machine, &options, &mut watch).unwrap_err();
        assert_eq!(error.kind, ProblemKind::Finding, "{error}");
        assert!(error.message.contains(finding), "{finding}: {error}");
        assert!(!folder.paths().attestation().exists(), "{finding}");
    }
}

#[test]
fn a_run_continued_from_other_initial_weights_is_not_attested() {
    let experiment = depo(&[]);
    let folder = Folder::new();
    folder.stop_at(&experiment, 7);
    Forger::at(&folder.path(), &experiment).records(|record| {
        if let Record::Start(start) = record {
            start.initial = start.lock;
        }
    });
    let error = folder.fails(&experiment);
    assert_eq!(error.kind, ProblemKind::Finding);
    assert!(error.message.contains("but the lock's seed gives"), "{error}");
    assert!(!folder.paths().attestation().exists());
}

#[test]
fn tensors_that_are_not_those_saved_are_never_trained_on() {
    let experiment = depo(&[]);
    let straight = Folder::finished(&experiment);
    type Forge = fn(&Forger, u64);
    let forgeries: [(&str, Forge); 5] = [
        ("weights.safetensors is not as it was saved: its tensors have digest", |run, step| {
            run.keep_tensors(step, Part::Weights);
        }),
        ("second_moment.safetensors is not as it was saved", |run, step| {
            run.keep_tensors(step, Part::SecondMoment);
        }),
        ("it is not a safetensors file", |run, step| {
            fs::write(run.part(step, Part::Weights), "no tensors at all\n").unwrap();
            run.remanifest(step, |_| ());
        }),
        ("it has no tensor", |run, step| {
            run.header(step, Part::Weights, |json| json.replacen("\"embed", "\"ember", 1));
            run.remanifest(step, |_| ());
        }),
        ("but canonc writes", |run, step| {
            run.reseal_manifest(step, |body| body + "# more\n");
        }),
    ];
    for (finding, forge) in forgeries {
        let folder = Folder::new();
        folder.stop_at(&experiment, 7);
        let run = Forger::at(&folder.path(), &experiment);
        forge(&run, 7);
        let (end, observer) = folder.run(&experiment, None, None);
        assert!(matches!(end, Ok(TrainOutcome::Finished(_))), "{finding}: {end:?}");
        let refused = observer.events.iter().any(|event| {
            matches!(event, Event::CheckpointRefused { name, why: said }
                if name == "step-0000000007" && said.contains(finding))
        });
        assert!(refused, "{finding}: {:?}", observer.events);
        assert!(
            observer.events.iter().any(|event| matches!(event, Event::Started { step: 6, .. }))
        );
        assert_eq!(differing(&straight.bits(8), &folder.bits(8)), Vec::<String>::new());

        // Without an earlier checkpoint, the run stops.
        let folder = Folder::new();
        folder.stop_at(&experiment, 7);
        let run = Forger::at(&folder.path(), &experiment);
        for step in [3, 6, 7] {
            forge(&run, step);
        }
        let error = folder.fails(&experiment);
        assert_eq!(error.kind, ProblemKind::Finding);
        assert!(error.message.contains(finding), "{finding}: {error}");
    }
}

#[test]
fn a_finished_run_whose_last_state_is_another_is_not_called_finished() {
    let experiment = depo(&[]);
    type Forge = fn(&Forger);
    let forgeries: [(&str, Forge); 3] = [
        ("its tensors have digest", |run| run.keep_tensors(8, Part::Weights)),
        ("but the run computed", |run| {
            run.flip(8, Part::Weights);
            run.remanifest(8, |_| ());
        }),
        ("checkpoints/latest names step-0000000006", |run| {
            fs::write(run.paths.checkpoints().join("latest"), "step-0000000006\n").unwrap();
        }),
    ];
    for (finding, forge) in forgeries {
        let folder = Folder::finished(&experiment);
        forge(&Forger::at(&folder.path(), &experiment));
        let error = folder.fails(&experiment);
        assert_eq!(error.kind, ProblemKind::Finding);
        assert!(error.message.contains(finding), "{finding}: {error}");
    }
    // Nothing needs states that were deleted to save space.
    let folder = Folder::finished(&experiment);
    fs::remove_dir_all(folder.paths().checkpoints()).unwrap();
    let (end, _) = folder.run(&experiment, None, None);
    assert!(matches!(end, Ok(TrainOutcome::Already(_))), "{end:?}");
}

#[test]
fn a_line_added_to_the_kernels_before_a_run_resumes_is_refused() {
    let experiment = depo(&[]);
    for planted in ["zebra = fast\n", "zebra = libtorch\n", "# more\n"] {
        let folder = Folder::new();
        folder.stop_at(&experiment, 4);
        let text = fs::read_to_string(folder.paths().kernels()).unwrap();
        fs::write(folder.paths().kernels(), text + planted).unwrap();
        let error = folder.fails(&experiment);
        assert_eq!(error.kind, ProblemKind::Finding);
        assert!(error.message.contains("kernels.txt was changed by another program"), "{error}");
        assert!(!folder.paths().attestation().exists());
    }
}
