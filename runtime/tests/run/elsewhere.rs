//! Runs of another engine: canonc's own steps by its plain kernels, in a folder of that format, with and without faults.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use lab::experiment::Experiment;
use records::attest::Attestation;
use records::external::trainer_of;
use records::fault::Faults;
use records::metrics::Record;
use records::run::Paths;
use records::verify::{Inputs, Remake, Subject, VerifyReport, verify};
use records::{finished, metrics};
use runtime::elsewhere::{Watcher, record, spot_check};
use runtime::execute::{KernelRequest, Machine};
use runtime::train::{Options, TrainOutcome, machine, train};
use support::elsewhere::{put_state, trainer, write};

use super::support::*;

/// Every state is kept, so that every update can be checked.
const KEPT: [(&str, &str); 2] =
    [("steps = 8", "steps = 24"), ("every = 3\n", "every = 1\nkeep = 30\n")];

/// The steps of `trained`, by the plain kernels, as a run of `claimed`.
struct Elsewhere {
    root: tempfile::TempDir,
    claimed: Experiment,
}

impl Elsewhere {
    fn new(trained: &Experiment, claimed: &Experiment, trainer: &str) -> Elsewhere {
        one_thread();
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("own");
        let machine =
            Machine { kernels: KernelRequest::REFERENCE, ..machine(&trained.platform).unwrap() };
        let stop = AtomicBool::new(false);
        let faults = Faults::none();
        let options = Options { stop: &stop, stop_after: None, faults: &faults, ranks: None };
        let mut job = job(trained, None).unwrap();
        let end = train(&mut job, &own, machine, &options, &mut RecordingObserver::default());
        assert!(matches!(end, Ok(TrainOutcome::Finished(_))), "{end:?}");
        write(&own, &root.path().join("run"), &lock_text(claimed), trainer);
        Elsewhere { root, claimed: claimed.clone() }
    }

    /// The same with the trainer record of an honest run of `claimed`.
    fn of(trained: &Experiment, claimed: &Experiment) -> Elsewhere {
        Elsewhere::new(trained, claimed, &trainer(&lock_text(claimed)))
    }

    fn path(&self) -> PathBuf {
        self.root.path().join("run")
    }

    fn paths(&self) -> Paths {
        Paths::new(self.path())
    }

    fn verified(&self) -> VerifyReport {
        verify(&self.path(), Inputs::default(), Remake::Every).unwrap()
    }

    fn recorded(&self) -> VerifyReport {
        let machine = machine(&self.claimed.platform).unwrap();
        let mut job = job(&self.claimed, None).unwrap();
        record(&self.paths(), &mut job, machine, &mut |_| ()).unwrap();
        self.verified()
    }

    /// The report with the spot check of so many steps from each state.
    fn spot_checked(&self, steps: Option<u64>) -> VerifyReport {
        let mut report = self.verified();
        let machine = machine(&self.claimed.platform).unwrap();
        let mut job = job(&self.claimed, None).unwrap();
        let precision = self.claimed.precision;
        let check =
            spot_check(&self.paths(), &mut job, machine, precision, steps, &mut Silent).unwrap();
        check.tell(&trainer_of(&self.paths()).unwrap().unwrap(), &mut report);
        report
    }
}

struct Silent;

impl Watcher for Silent {
    fn step(&mut self, _: u64) {}
}

fn kept(changes: &[(&str, &str)]) -> Experiment {
    depo(&[&KEPT[..], changes].concat())
}

fn honest() -> Elsewhere {
    let experiment = kept(&[]);
    Elsewhere::of(&experiment, &experiment)
}

fn sorted(report: &VerifyReport, subject: Subject) -> [bool; 4] {
    let VerifyReport { recomputed, checked, spot_checked, trusted, .. } = report;
    [recomputed, checked, spot_checked, trusted]
        .map(|claims| claims.iter().any(|claim| claim.subject == subject))
}

#[test]
fn an_honest_run_is_recorded_and_each_claim_is_in_its_class() {
    let run = honest();
    let before = run.verified();
    assert_eq!(before.broken, Vec::<String>::new());
    assert!(before.trusts(Subject::Attestation));
    let report = run.recorded();
    assert_eq!(report.broken, Vec::<String>::new());
    let (yes, no) = (true, false);
    for (subject, classes) in [
        (Subject::Lock, [yes, no, no, no]),
        (Subject::InitialWeights, [yes, no, no, no]),
        (Subject::LearningRates, [yes, no, no, no]),
        (Subject::Batches, [yes, no, no, no]),
        (Subject::HeldOut, [yes, no, no, no]),
        (Subject::Tensors, [yes, no, no, no]),
        (Subject::Log, [no, yes, no, no]),
        (Subject::Attestation, [no, yes, no, no]),
        (Subject::Trainer, [no, yes, no, yes]),
        (Subject::Losses, [no, no, no, yes]),
        (Subject::Training, [no, no, no, yes]),
        (Subject::Kernels, [no, no, no, yes]),
        (Subject::Machine, [no, no, no, yes]),
    ] {
        assert_eq!(sorted(&report, subject), classes, "{subject:?}");
    }
    let closing = report.closing();
    assert!(
        closing.starts_with("trained elsewhere, by pytorch 2.11.0 fsdp2; recomputed: "),
        "{closing}"
    );
    let (attested, records) = finished::read(&run.paths(), (&run.claimed).into()).unwrap();
    assert_eq!(attested.trainer.unwrap().engine(), "pytorch");
    let evaluations = records.iter().filter(|record| matches!(record, Record::Evaluation(_)));
    assert_eq!(evaluations.count(), 6);
    // The twin that canonc trained evaluates its own weights.
    let own = metrics::read(&run.root.path().join("own/metrics.jsonl")).unwrap().0;
    let nll = |records: &[Record]| match records.last() {
        Some(Record::Evaluation(last)) => last.nll.unwrap(),
        other => panic!("{other:?}"),
    };
    assert!((nll(&own) - nll(&records)).abs() < 1e-6);
}

#[test]
fn canonc_never_continues_such_a_folder_nor_reads_it_as_its_own() {
    let run = honest();
    let why = train_in(&run.path(), &run.claimed);
    assert!(
        why.contains("was trained by another engine, and canonc does not continue it"),
        "{why}"
    );
    run.recorded();
    let why = train_in(&run.path(), &run.claimed);
    assert!(why.contains("was trained by another engine"), "{why}");
    let text = std::fs::read_to_string(run.paths().attestation()).unwrap();
    assert!(Attestation::parse(&text).is_err());
    assert!(metrics::read(&run.paths().metrics()).is_err());
}

fn train_in(folder: &Path, experiment: &Experiment) -> String {
    let stop = AtomicBool::new(false);
    let faults = Faults::none();
    let options = Options { stop: &stop, stop_after: None, faults: &faults, ranks: None };
    let mut job = job(experiment, None).unwrap();
    let machine = machine(&experiment.platform).unwrap();
    let end = train(&mut job, folder, machine, &options, &mut RecordingObserver::default());
    end.unwrap_err().message
}

#[test]
fn an_honest_run_stays_within_the_bounds() {
    for (name, experiment) in [
        ("depo", kept(&[])),
        ("canon", experiment("small_canon", &changed(DEPO), &[])),
        ("experts", experts(&KEPT)),
        ("dropout", dropping("dropping", &KEPT)),
        ("delta", experiment("small_delta", &changed(DEPO), &[])),
        ("mamba", experiment("small_mamba", &changed(DEPO), &[])),
        ("bf16", experiment("small", &in_bf16(), &[])),
    ] {
        let run = Elsewhere::of(&experiment, &experiment);
        run.recorded();
        let report = run.spot_checked(Some(8));
        assert_eq!((&report.broken, &report.undecided), (&vec![], &vec![]), "{name}");
        assert_eq!(sorted(&report, Subject::Losses), [false, false, true, true], "{name}");
        assert_eq!(sorted(&report, Subject::Updates), [false, false, true, false], "{name}");
        assert_eq!(sorted(&report, Subject::States), [false, false, true, false], "{name}");
    }
}

#[test]
fn last_weights_of_another_run_are_found_without_the_states_before_them() {
    let run = honest();
    let other = Elsewhere::of(&kept(&[("init = 1", "init = 3")]), &kept(&[]));
    for step in 1..24 {
        std::fs::remove_dir_all(run.path().join(format!("checkpoints/step-{step:010}"))).unwrap();
    }
    put_state(&other.root.path().join("own"), &run.path(), 24);
    let report = run.recorded();
    assert_eq!(report.broken, Vec::<String>::new(), "the files agree");
    let broken = run.spot_checked(Some(8)).broken;
    assert!(
        matches!(broken.as_slice(), [one] if one.starts_with("replay: checkpoints/step-0000000024 from the initial weights: ")),
        "{broken:?}"
    );
}

fn in_bf16() -> String {
    format!("{}[precision]\npolicy = \"bf16\"\n", changed(DEPO))
}

fn changed(recipe: &str) -> String {
    KEPT.iter().fold(recipe.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// A text of the recipe, and what was trained in its place.
type Fault = (&'static str, &'static str);

#[test]
fn a_planted_fault_is_found_in_f32() {
    let faults: [(&str, &[Fault]); 8] = [
        ("weight decay left out", &[("weight_decay = 0.1", "weight_decay = 0.0")]),
        ("more weight decay", &[("weight_decay = 0.1", "weight_decay = 0.3")]),
        ("another epsilon", &[("lr = 0.01\n", "lr = 0.01\neps = 1e-6\n")]),
        ("other betas", &[("lr = 0.01\n", "lr = 0.01\nbetas = [0.9, 0.999]\n")]),
        ("another clip", &[("lr = 0.01\n", "lr = 0.01\nclip = 0.1\n")]),
        ("a z-loss", &[("[seeds]", "[loss]\nz_loss = 1e-4\n[seeds]")]),
        ("bf16", &[("[seeds]", "[precision]\npolicy = \"bf16\"\n[seeds]")]),
        ("another seed", &[("init = 1", "init = 7")]),
    ];
    for (name, changes) in faults {
        let run = Elsewhere::of(&kept(changes), &kept(&[]));
        let report = run.spot_checked(Some(8));
        let found = |text: &String| {
            let begins = ["replay: step ", "replay: checkpoints/step-"];
            begins.iter().any(|begin| text.starts_with(begin)) && text.contains(", more than ")
        };
        assert!(report.broken.iter().any(found), "{name}: {report:?}");
    }
}

#[test]
fn a_learning_rate_and_a_batch_of_another_lock_are_found_without_a_replay() {
    for (change, finding) in [
        (("lr = 0.01\n", "lr = 0.0101\n"), "logged lr"),
        (("warmup = 2", "warmup = 3"), "logged lr"),
        (("data = 2", "data = 3"), "logged batch"),
        (("init = 1", "init = 3"), "it says that the run began with weights"),
    ] {
        let run = Elsewhere::of(&kept(&[change]), &kept(&[]));
        let report = run.verified();
        assert!(report.broken.iter().any(|text| text.contains(finding)), "{change:?}: {report:?}");
    }
}

#[test]
fn bf16_hides_a_missing_weight_decay_and_the_report_says_so() {
    let claimed =
        experiment("small", &in_bf16(), &[("weight_decay = 0.1", "weight_decay = 0.001")]);
    let trained = experiment("small", &in_bf16(), &[("weight_decay = 0.1", "weight_decay = 0.0")]);
    let run = Elsewhere::of(&trained, &claimed);
    let report = run.spot_checked(Some(8));
    assert_eq!(report.broken, Vec::<String>::new());
    let hides = "such as a small weight decay that was left out";
    assert!(report.spot_checked.iter().all(|claim| claim.text.contains(hides)), "{report:?}");
}

#[test]
fn a_run_that_is_not_of_its_lock_is_refused() {
    let plain = kept(&[]);
    let drops = dropping("dropping", &KEPT);
    for (experiment, from, to) in [
        (&plain, "loss.terms = \"canonc\"", "loss.terms = \"cross-entropy\""),
        (&plain, "precision.compute = \"f32\"", "precision.compute = \"bf16\""),
        (&plain, "precision.master = \"f32\"", "precision.master = \"bf16\""),
        (&plain, "precision.loss = \"f32\"", "precision.loss = \"bf16\""),
        (&drops, "loss.dropout = \"canonc\"", "loss.dropout = \"torch\""),
        (&drops, "loss.dropout = \"canonc\"\n", ""),
        (&plain, "loss.terms", "loss.dropout = \"canonc\"\nloss.terms"),
        (&plain, "precision.tf32 = false", "precision.tf32 = true"),
        (&plain, "autocast = \"none\"", "autocast = \"bf16\""),
        (&plain, "reduce = \"f32\"", "reduce = \"bf16\""),
        (&plain, "optimizer.adamw = \"torch.optim.AdamW\"", "optimizer.adamw = \"apex.FusedLAMB\""),
        (&plain, "optimizer.adamw = \"torch.optim.AdamW\"\n", ""),
        (&plain, "optimizer.fused", "optimizer.muon = \"mine\"\noptimizer.fused"),
        (&plain, "kernels.attention = \"sdpa\"\n", ""),
        (&plain, "kernels.attention", "kernels.gla_scan = \"fla 0.6.0\"\nkernels.attention"),
    ] {
        let honest = trainer(&lock_text(experiment));
        let text = honest.replace(from, to);
        assert_ne!(text, honest);
        let run = Elsewhere::new(experiment, experiment, &text);
        let broken = run.verified().broken;
        assert!(
            matches!(broken.as_slice(), [one] if one.starts_with("not of this lock: trainer.toml ")),
            "{from}: {broken:?}"
        );
    }
}

#[test]
fn a_changed_folder_is_found() {
    let run = honest();
    run.recorded();
    let edit = |file: &str, from: &str, to: &str| {
        let path = run.path().join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file}: {from}");
        let original = text.clone();
        std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let broken = run.verified().broken;
        std::fs::write(&path, original).unwrap();
        broken
    };
    let last = "checkpoints/step-0000000024/checkpoint.toml";
    for (file, from, to, finding) in [
        ("metrics.jsonl", "\"loss\":", "\"loss\":1", "was altered after it was written"),
        ("trainer.toml", "world = 2", "world = 4", "trainer.toml has digest"),
        ("trainer.toml", "engine = \"pytorch\"", "engine = 3.5", "`engine` is 3.5"),
        (
            "evaluations.jsonl",
            "\"eval_loss\":",
            "\"eval_loss\":1",
            "was altered after it was written",
        ),
        ("attestation.toml", "steps = 24", "steps = 23", "its seal is"),
        (last, "step = 24", "step = 23", "its seal is"),
        ("checkpoints/latest", "24", "23", "names step-0000000023"),
        ("timings.jsonl", "{\"step\":1,", "{\"step\":90,", "is not the time of a step"),
        ("lock", "steps = 24", "steps = 25", ""),
    ] {
        let broken = edit(file, from, to);
        assert!(broken.iter().any(|text| text.contains(finding)), "{file}: {broken:?}");
    }
    let weights = run.path().join("checkpoints/step-0000000024/weights.safetensors");
    let original = std::fs::read(&weights).unwrap();
    let mut changed = original.clone();
    *changed.last_mut().unwrap() ^= 1;
    std::fs::write(&weights, changed).unwrap();
    assert!(!run.verified().broken.is_empty());
    std::fs::write(&weights, original).unwrap();
    std::fs::write(run.path().join("kernels.txt"), "").unwrap();
    let broken = run.verified().broken;
    assert_eq!(broken, ["kernels.txt is not part of a run: move it elsewhere"]);
}

#[test]
fn a_converted_folder_is_not_continued() {
    let experiment = kept(&[]);
    // Trained by other kernels, as another engine would, and stopped in the middle.
    let folder = Folder::new();
    let machine =
        Machine { kernels: KernelRequest::REFERENCE, ..machine(&experiment.platform).unwrap() };
    let stop = AtomicBool::new(false);
    let faults = Faults::none();
    let options = Options { stop: &stop, stop_after: Some(12), faults: &faults, ranks: None };
    let mut job = job(&experiment, None).unwrap();
    train(&mut job, &folder.path(), machine, &options, &mut RecordingObserver::default()).unwrap();
    let why = folder.fails(&experiment).message;
    assert!(why.contains("computed again on this machine, step 1 is another: "), "{why}");
    // A converter writes no events, or its own first process at the step of its checkpoint.
    let events = folder.paths().events();
    let text = std::fs::read_to_string(&events).unwrap();
    std::fs::write(&events, text.replace("\"step\":0", "\"step\":12")).unwrap();
    let why = folder.fails(&experiment).message;
    assert!(why.contains("events.jsonl has no process before step 12"), "{why}");
    std::fs::remove_file(&events).unwrap();
    let why = folder.fails(&experiment).message;
    assert!(why.contains("events.jsonl has no started process"), "{why}");
}
