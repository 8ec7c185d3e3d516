//! Runs that begin from weights: bound in any format, resumed, on several ranks, verified, replayed, and compared.

use std::fs;

use lab::field::FieldValue;
use lab::lock::{self, Lock};
use records::metrics::{self, Record};

use crate::{DEPO, Place, experiment, said, same};

/// Changes of a recipe that make it begin from weights.
fn from(init: &str) -> String {
    format!("[init]\n{init}\n[seeds]")
}

/// A workspace with a finished run, and an open lock that begins from its weights.
fn tuned(arch: &str, init: &str) -> Place {
    tuned_on(arch, init, "[platform]")
}

/// The same with another platform section.
fn tuned_on(arch: &str, init: &str, platform: &str) -> Place {
    let workspace = Place::new(&experiment("small", DEPO, &[]));
    workspace.exits(0, "run lockfiles/small.lock");
    let init = from(init);
    let changes =
        [("[seeds]", init.as_str()), ("lr = 0.01", "lr = 0.02"), ("[platform]", platform)];
    let experiment = experiment(arch, DEPO, &changes);
    let tuned = experiment.with("tuned".to_owned(), &Default::default()).unwrap();
    workspace.lock("tuned", &Lock::Experiment(tuned));
    workspace
}

fn bound_digest(workspace: &Place) -> String {
    let text = fs::read_to_string(workspace.path("lockfiles/tuned.lock")).unwrap();
    let Lock::Experiment(experiment) = lock::read("tuned", &text).unwrap() else { panic!() };
    experiment.value("init.digest").map(FieldValue::plain).unwrap()
}

fn initial(workspace: &Place, run: &str) -> String {
    let (records, _) = metrics::read(&workspace.path(&format!("{run}/metrics.jsonl"))).unwrap();
    let Some(Record::Start(start)) = records.first() else { panic!() };
    start.initial.to_string()
}

const SMALL: &str = "weights = \"runs/small\"";
const DRAWN: &str = "weights = \"runs/small\"\nmissing = \"drawn\"";

#[test]
fn a_run_begins_from_the_last_weights_of_another_and_proves_it() {
    let workspace = tuned("small", SMALL);
    let output = workspace.exits(2, "run lockfiles/tuned.lock");
    assert!(output.contains("canonc bind lockfiles/tuned.lock --weights PATH"), "{output}");
    let output = workspace.exits(0, "bind lockfiles/tuned.lock");
    let weights = workspace.attestation("runs/small").weights;
    assert!(output.contains(&format!("bound to weights {}", weights.short())), "{output}");
    assert_eq!(bound_digest(&workspace), weights.to_string());
    workspace.exits(0, "run lockfiles/tuned.lock");
    assert_eq!(initial(&workspace, "runs/tuned"), weights.to_string());
    // The moments begin at 0, and the schedule at its first step.
    assert_eq!(workspace.steps("runs/tuned")[0].lr, 2.0 * workspace.steps("runs/small")[0].lr);
    let output = workspace.exits(0, "verify runs/tuned --replay all");
    assert!(output.contains("those whose digest the lock has"), "{output}");
    assert!(workspace.exits(0, "reproduce runs/tuned").contains("same bits: 6 of 6 steps"));
}

#[test]
fn ranks_and_resumed_runs_have_the_bits_of_one_straight_run() {
    let workspace = tuned("small_canon", DRAWN);
    workspace.exits(0, "bind lockfiles/tuned.lock");
    workspace.exits(0, "run lockfiles/tuned.lock --dir straight");
    let straight = workspace.bits("straight", 6);
    workspace.exits(0, "run lockfiles/tuned.lock --dir ranks --ranks 2");
    same(&straight, &workspace.bits("ranks", 6), "2 ranks");
    for fault in ["metrics-after:1", "checkpoint-renamed:2"] {
        let run = format!("killed-{}", fault.replace(':', "-"));
        let killed =
            workspace.type_in(&format!("run lockfiles/tuned.lock --dir {run} --fault {fault}"));
        assert_eq!(killed.status.code(), None, "{fault}: {}", said(&killed));
        workspace.exits(0, &format!("run lockfiles/tuned.lock --dir {run}"));
        same(&straight, &workspace.bits(&run, 6), fault);
        workspace.holds(&run);
    }
}

#[test]
fn a_sharded_run_reads_only_its_parts_of_the_same_weights() {
    let workspace = tuned_on("small_canon", DRAWN, "[platform]\nshard = \"full\"");
    workspace.exits(0, "bind lockfiles/tuned.lock");
    workspace.exits(0, "run lockfiles/tuned.lock --dir straight");
    workspace.exits(0, "run lockfiles/tuned.lock --dir ranks --ranks 2");
    same(&workspace.bits("straight", 6), &workspace.bits("ranks", 6), "2 ranks");
}

#[test]
fn every_format_of_the_same_weights_has_one_digest() {
    let workspace = tuned("small", SMALL);
    workspace.exits(0, "bind lockfiles/tuned.lock");
    for (format, out) in
        [("hf", "hf"), ("torch", "module"), ("release", "release"), ("lingua", "l")]
    {
        workspace.exits(0, &format!("export runs/small --to {format} --out {out}"));
        let output = workspace.exits(0, &format!("bind lockfiles/tuned.lock --weights {out}"));
        assert!(output.contains("already bound to these weights"), "{format}: {output}");
    }
    workspace.exits(0, "import hf --out back");
    let output = workspace.exits(0, "bind lockfiles/tuned.lock --weights back");
    assert!(output.contains("already bound to these weights"), "{output}");
    workspace.exits(0, "run lockfiles/tuned.lock --weights hf");
    workspace.exits(0, "verify runs/tuned");
}

#[test]
fn an_arm_with_more_parameters_draws_them_only_if_the_recipe_says_so() {
    let workspace = tuned("small_canon", SMALL);
    let output = workspace.exits(2, "bind lockfiles/tuned.lock");
    assert!(
        output.contains("missing: layers.0.") && output.contains("missing = \"drawn\""),
        "{output}"
    );
    for weights in ["runs/small", "hf"] {
        let workspace = tuned("small_canon", DRAWN);
        workspace.exits(0, "export runs/small --to hf --out hf");
        workspace.exits(0, &format!("bind lockfiles/tuned.lock --weights {weights}"));
        // The digest is that of the file, whatever the arch has besides.
        let digest = workspace.attestation("runs/small").weights.to_string();
        assert_eq!(bound_digest(&workspace), digest);
        workspace.exits(0, &format!("run lockfiles/tuned.lock --weights {weights}"));
        assert_ne!(initial(&workspace, "runs/tuned"), digest);
        let output = workspace.exits(0, "verify runs/tuned --replay all");
        assert!(output.contains("read from the weights that the lock names"), "{output}");
        fs::rename(workspace.path("runs/small"), workspace.path("elsewhere")).unwrap();
        let output = workspace.exits(0, "verify runs/tuned");
        assert!(output.contains("initial weights (not recomputed: the weights"), "{output}");
        let output = workspace.exits(0, "verify runs/tuned --weights elsewhere");
        assert!(output.contains("read from the weights that the lock names"), "{output}");
    }
}

#[test]
fn other_weights_are_refused_with_both_digests() {
    let workspace = tuned("small", SMALL);
    workspace.exits(0, "bind lockfiles/tuned.lock");
    let earlier = "runs/small/checkpoints/step-0000000004";
    let output =
        workspace.exits(1, &format!("run lockfiles/tuned.lock --dir other --weights {earlier}"));
    let locked = workspace.attestation("runs/small").weights.short();
    assert!(output.contains(&format!("the lock has {locked}")), "{output}");
    assert!(output.contains("--weights PATH") && !workspace.path("other").exists(), "{output}");
    let output = workspace.exits(1, &format!("bind lockfiles/tuned.lock --weights {earlier}"));
    assert!(output.contains(&format!("is bound to weights {locked}")), "{output}");
    workspace.exits(0, "run lockfiles/tuned.lock");
    workspace.exits(1, &format!("verify runs/tuned --weights {earlier}"));
    // Moments and other archs are no weights; an experiment that draws its own takes none.
    let moments = format!("{earlier}/first_moment.safetensors");
    workspace.exits(2, &format!("bind lockfiles/tuned.lock --weights {moments}"));
    let output = workspace.exits(2, "run lockfiles/small.lock --weights runs/small");
    assert!(output.contains("remove --weights"), "{output}");
    fs::rename(workspace.path("runs/small"), workspace.path("elsewhere")).unwrap();
    let output = workspace.exits(2, "run lockfiles/tuned.lock --dir other");
    assert!(output.contains("are not at `runs/small`"), "{output}");
    workspace.exits(0, "run lockfiles/tuned.lock --dir other --dry-run");
}
