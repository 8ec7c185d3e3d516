//! Forgeries: for each file of a finished run, what an attacker can do to it without training again.
//!
//! `verify` detects each forgery, or reports its subject as taken on trust. A file of a run without a row in the table
//! fails the test.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use compiler::digest::Digest;
use lab::experiment::Experiment;
use records::checkpoint::{Part, name_of};
use records::init;
use records::metrics::{Evaluation, Record, Step};
use records::verify::Subject;

use super::forger::Forger;
use ::support::copy_folder;

use super::support::*;

/// The expected result of `verify` on a forgery.
enum Expect {
    /// A finding that contains these words.
    Found(&'static str),
    /// No finding, and this subject is among those taken on trust.
    Trusted(Subject),
}

use Expect::{Found, Trusted};

struct Forgery {
    /// The forged file; STEP is the name of a checkpoint.
    file: &'static str,
    what: &'static str,
    forge: fn(&Forger),
    expect: Expect,
}

const fn row(
    file: &'static str,
    what: &'static str,
    forge: fn(&Forger),
    expect: Expect,
) -> Forgery {
    Forgery { file, what, forge, expect }
}

const LOCK: &str = "lock";
const LOG: &str = "metrics.jsonl";
const PLAN: &str = "plan.txt";
const KERNELS: &str = "kernels.txt";
const ATTESTATION: &str = "attestation.toml";
const LATEST: &str = "checkpoints/latest";
const MANIFEST: &str = "checkpoints/STEP/checkpoint.toml";
const WEIGHTS: &str = "checkpoints/STEP/weights.safetensors";
const FIRST: &str = "checkpoints/STEP/first_moment.safetensors";
const SECOND: &str = "checkpoints/STEP/second_moment.safetensors";
const TIMINGS: &str = "timings.jsonl";
const EVENTS: &str = "events.jsonl";
const WRITER: &str = "writer";
/// A file that no run writes.
const STRANGE: &str = "a strange file";

fn step(number: u64, change: impl Fn(&mut Step)) -> impl FnMut(&mut Record) {
    move |record| {
        if let Record::Step(step) = record
            && step.step == number
        {
            change(step);
        }
    }
}

fn evaluation(number: u64, change: impl Fn(&mut Evaluation)) -> impl FnMut(&mut Record) {
    move |record| {
        if let Record::Evaluation(evaluation) = record
            && evaluation.step == number
        {
            change(evaluation);
        }
    }
}

/// The log without some lines, with everything above it updated.
fn without(run: &Forger, steps: u64, gone: impl Fn(&Record) -> bool) {
    let lines: Vec<String> =
        run.lines().into_iter().filter(|line| !gone(&Record::parse(line).unwrap())).collect();
    run.relog(&lines);
    run.reattest(|attestation| attestation.steps = steps);
}

/// A part replaced by some text, with every digest above it updated.
fn text_instead(run: &Forger, part: Part) {
    fs::write(run.part(8, part), "no tensors at all\n").unwrap();
    run.correct();
}

fn flipped(run: &Forger, part: Part) {
    run.flip(8, part);
    run.correct();
}

fn other_header(run: &Forger, change: fn(String) -> String) {
    run.header(8, Part::Weights, change);
    run.correct();
}

fn relock(run: &Forger, from: &str, to: &str) -> Experiment {
    let other = depo(&[(from, to)]);
    run.relock(&other);
    other
}

/// Another time of the first step.
fn timed(run: &Forger, seconds: &str) {
    run.retext(&run.paths.timings(), |text| {
        let (first, rest) = text.split_once('\n').unwrap();
        let before = first.split_once("\"seconds\":").unwrap().0;
        format!("{before}\"seconds\":{seconds}}}\n{rest}")
    });
}

fn append(path: &Path, text: &str) {
    let before = fs::read_to_string(path).unwrap();
    fs::write(path, before + text).unwrap();
}

fn table() -> Vec<Forgery> {
    let parts = [
        lock(),
        log_numbers(),
        log_lines(),
        plan_and_kernels(),
        attestation(),
        manifest(),
        tensors(),
        timings(),
        other_files(),
    ];
    parts.into_iter().flatten().collect()
}

/// The lock, with its id wherever an id is written.
#[rustfmt::skip]
fn lock() -> Vec<Forgery> {
    vec![
        row(LOCK, "deleted", |run| fs::remove_file(run.paths.lock()).unwrap(), Found("lock cannot be read")),
        row(LOCK, "a comment added", |run| append(&run.paths.lock(), "# more\n"), Found("lock:")),
        row(LOCK, "another learning rate", |run| { relock(run, "lr = 0.01", "lr = 0.02"); }, Found("logged lr")),
        row(LOCK, "another schedule", |run| { relock(run, "warmup = 2", "warmup = 3"); }, Found("logged lr")),
        row(LOCK, "another data seed", |run| { relock(run, "data = 2", "data = 3"); }, Found("step 1 logged batch")),
        row(LOCK, "another task", |run| { relock(run, "N = 4", "N = 3"); }, Found("step 1 logged batch")),
        row(LOCK, "another batch", |run| { relock(run, "sequences = 2", "sequences = 3"); }, Found("step 1 logged batch")),
        row(LOCK, "other held-out windows", |run| { relock(run, "windows = 3", "windows = 4"); }, Found("the evaluation after step 4 logged")),
        row(LOCK, "other evaluations", |run| { relock(run, "every = 4", "every = 2"); }, Found("which is out of order")),
        row(LOCK, "more steps", |run| { relock(run, "steps = 8", "steps = 9"); }, Found("ends with step 8 of 9")),
        row(LOCK, "another init seed", |run| { relock(run, "init = 1", "init = 3"); }, Found("the lock's seed gives")),
        row(LOCK, "another init seed, and the initial digest it gives", |run| {
            let other = relock(run, "init = 1", "init = 3");
            let drawn = init::digest(&other.arch.compiled.graph, 3).unwrap();
            run.records(|record| if let Record::Start(start) = record { start.initial = drawn });
        }, Trusted(Subject::Training)),
        row(LOCK, "another weight decay", |run| { relock(run, "weight_decay = 0.1", "weight_decay = 0.2"); }, Trusted(Subject::Training)),
        row(LOCK, "another arch", |run| run.relock(&experiment("small_canon", DEPO, &[])), Found("it has no tensor")),
        row(LOCK, "other threads", |run| { relock(run, "threads = 1", "threads = 2"); }, Found("the lock requires 2")),
        row(LOCK, "another checkpoint cadence", |run| { relock(run, "every = 3", "every = 5"); }, Trusted(Subject::Settings)),
        row(LOCK, "another name", |run| {
            let other = depo(&[]).with("other".to_owned(), &Default::default()).unwrap();
            run.relock(&other);
        }, Trusted(Subject::Settings)),
    ]
}

/// Numbers of the log.
#[rustfmt::skip]
fn log_numbers() -> Vec<Forgery> {
    vec![
        row(LOG, "deleted", |run| fs::remove_file(run.paths.metrics()).unwrap(), Found("empty or missing")),
        row(LOG, "a loss halved", |run| run.records(step(5, |step| step.loss = step.loss.map(|loss| loss / 2.0))), Trusted(Subject::Losses)),
        row(LOG, "another gradient norm", |run| run.records(step(5, |step| step.grad_norm *= 2.0)), Trusted(Subject::Losses)),
        row(LOG, "a loss that is not a number", |run| run.records(step(5, |step| step.loss = Some(f64::NAN))), Found("where every run stops")),
        row(LOG, "no loss", |run| run.records(step(5, |step| (step.loss, step.counted) = (None, 0))), Found("where every run stops")),
        row(LOG, "another learning rate", |run| run.records(step(5, |step| step.lr *= 2.0)), Found("step 5 logged lr")),
        row(LOG, "another batch", |run| run.records(step(5, |step| step.batch = Some(Digest::of("test", "other")))), Found("step 5 logged batch")),
        row(LOG, "other counted targets", |run| run.records(step(5, |step| step.counted += 1)), Found("step 5 logged batch")),
        row(LOG, "other initial weights", |run| run.records(|record| if let Record::Start(start) = record { start.initial = start.lock }), Found("the lock's seed gives")),
        row(LOG, "another lock", |run| run.records(|record| if let Record::Start(start) = record { start.lock = start.initial }), Found("metrics.jsonl belongs to lock")),
        row(LOG, "another evaluation section", |run| run.records(|record| if let Record::Start(start) = record { start.eval = start.initial }), Found("metrics.jsonl belongs to evaluation section")),
        row(LOG, "a better held-out loss", |run| run.records(evaluation(8, |eval| eval.nll = Some(0.5))), Trusted(Subject::Evaluations)),
        row(LOG, "more tokens right", |run| run.records(evaluation(8, |eval| eval.tokens.right = eval.tokens.of)), Found("right tokens answer by answer")),
        row(LOG, "more tokens right, question by question", |run| run.records(evaluation(8, |eval| {
            let questions = eval.questions.as_mut().unwrap();
            let right: u64 = questions.tokens.iter().sum();
            questions.tokens[0] += eval.tokens.of - right;
            eval.tokens.right = eval.tokens.of;
        })), Trusted(Subject::Evaluations)),
        row(LOG, "a question less", |run| run.records(evaluation(8, |eval| {
            eval.questions.as_mut().unwrap().answers.pop_last();
        })), Found("single answers that do not add up")),
        row(LOG, "other questions", |run| run.records(evaluation(8, |eval| {
            eval.questions.as_mut().unwrap().asked = Digest::of("test", "other");
        })), Found("single questions for other windows")),
        row(LOG, "single questions before the end", |run| {
            let mut last = None;
            run.records(evaluation(8, |_| ()));
            for line in run.lines() {
                if let Some(Record::Evaluation(eval)) = Record::parse(&line) {
                    last = eval.questions;
                }
            }
            run.records(evaluation(4, |eval| eval.questions = last.clone()));
        }, Found("which only the last evaluation does")),
        row(LOG, "more right than there are", |run| run.records(evaluation(8, |eval| eval.tokens.right = eval.tokens.of + 1)), Found("the evaluation after step 8 logged")),
        row(LOG, "fewer tokens to guess", |run| run.records(evaluation(8, |eval| { eval.tokens.of -= 1; eval.tokens.right = 0; })), Found("tokens of answers, but the lock gives")),
        row(LOG, "other held-out targets", |run| run.records(evaluation(4, |eval| eval.counted += 1)), Found("the evaluation after step 4 logged")),
        row(LOG, "no held-out loss", |run| run.records(evaluation(8, |eval| eval.nll = None)), Found("mean losses")),
        row(LOG, "no hard answers", |run| run.records(evaluation(8, |eval| { eval.answers.pop_last(); })), Found("answers of level")),
        row(LOG, "a level that the task lacks", |run| run.records(evaluation(8, |eval| { eval.answers.insert(99, Default::default()); })), Found("levels of answers")),
        row(LOG, "a measure of another task", |run| run.records(evaluation(8, |eval| { eval.measures.insert("validity".to_owned(), 1.0); })), Found("which the lock does not request")),
    ]
}

/// Lines of the log: missing, repeated or of another form.
#[rustfmt::skip]
fn log_lines() -> Vec<Forgery> {
    vec![
        row(LOG, "the last step gone", |run| without(run, 7, |record| matches!(record, Record::Step(Step { step: 8, .. }) | Record::Evaluation(Evaluation { step: 8, .. }))), Found("metrics.jsonl ends with step 7 of 8")),
        row(LOG, "the last evaluation gone", |run| without(run, 8, |record| matches!(record, Record::Evaluation(Evaluation { step: 8, .. }))), Found("no evaluation after step 8")),
        row(LOG, "an evaluation gone", |run| without(run, 8, |record| matches!(record, Record::Evaluation(Evaluation { step: 4, .. }))), Found("which is out of order")),
        row(LOG, "a step gone", |run| without(run, 7, |record| matches!(record, Record::Step(Step { step: 3, .. }))), Found("which is out of order")),
        row(LOG, "the start gone", |run| without(run, 8, |record| matches!(record, Record::Start(_))), Found("line 1 of metrics.jsonl is step 1")),
        row(LOG, "a step twice", |run| {
            let mut lines = run.lines();
            lines.insert(3, lines[3].clone());
            run.relog(&lines);
        }, Found("which is out of order")),
        row(LOG, "two steps swapped", |run| {
            let mut lines = run.lines();
            lines.swap(2, 3);
            run.relog(&lines);
        }, Found("which is out of order")),
        row(LOG, "a loss twice in its line", |run| {
            let mut lines = run.lines();
            lines[3] = lines[3].replacen("\"loss\":", "\"loss\":0.5,\"loss\":", 1);
            run.relog(&lines);
        }, Found("line 4 of")),
        row(LOG, "another member in a line", |run| {
            let mut lines = run.lines();
            lines[3] = lines[3].replacen("\"lr\":", "\"note\":1,\"lr\":", 1);
            run.relog(&lines);
        }, Found("is not as canonc writes it")),
        row(LOG, "spaces in a line", |run| {
            let mut lines = run.lines();
            lines[3] = lines[3].replacen("\"lr\":", "\"lr\": ", 1);
            run.relog(&lines);
        }, Found("is not as canonc writes it")),
        row(LOG, "a line of another kind", |run| {
            let mut lines = run.lines();
            lines.push("{\"kind\":\"note\"}".to_owned());
            run.relog(&lines);
        }, Found("is not a metrics line of this version of canonc")),
        row(LOG, "half a line more", |run| append(&run.paths.metrics(), "{\"kind\":"), Found("continues after its \
         last complete line")),
    ]
}

/// The plan; the kernels, in their file and in the attestation.
#[rustfmt::skip]
fn plan_and_kernels() -> Vec<Forgery> {
    vec![
        row(PLAN, "deleted", |run| fs::remove_file(run.paths.plan()).unwrap(), Found("plan.txt is missing")),
        row(PLAN, "a line more, attested", |run| { append(&run.paths.plan(), "more\n"); run.correct(); }, Found("but the lock compiles to nothing")),
        row(PLAN, "its last line end gone, attested", |run| {
            run.retext(&run.paths.plan(), |text| text.trim_end().to_owned());
            run.correct();
        }, Found("plan.txt: line")),
        row(PLAN, "another plan, said to be of another canonc", |run| {
            fs::write(run.paths.plan(), "anything\n").unwrap();
            run.correct();
            run.reattest(|attestation| drop(attestation.machine.insert("canonc".to_owned(), "99.0.0".to_owned())));
        }, Trusted(Subject::Plan)),
        row(KERNELS, "deleted", |run| fs::remove_file(run.paths.kernels()).unwrap(), Found("kernels.txt is missing")),
        row(KERNELS, "another path in the file alone", |run| run.retext(&run.paths.kernels(), |text| text.replacen(" = ", " = not ", 1)), Found("its kernels differ from kernels.txt")),
        row(KERNELS, "a comment", |run| append(&run.paths.kernels(), "# more\n"), Found("kernels.txt: line")),
        row(KERNELS, "a line twice", |run| run.retext(&run.paths.kernels(), |text| format!("{}\n{text}", text.lines().next().unwrap())), Found("kernels.txt: line")),
        row(KERNELS, "another path", |run| run.kernels(|kernels| drop(kernels.insert("linear".to_owned(), ["libtorch, fused/portable up to 4 rows".to_owned()].into()))), Found("but its machine has the kernels of")),
        row(KERNELS, "the plain path, which the lock does not ask for", |run| run.kernels(|kernels| drop(kernels.insert("linear".to_owned(), ["reference (asked for)".to_owned()].into()))), Found("platform section does not ask for that")),
        row(KERNELS, "a GPU's path", |run| run.kernels(|kernels| drop(kernels.insert("rope".to_owned(), ["fused/cuda/sm_90a".to_owned()].into()))), Found("the lock runs on the CPU")),
        row(KERNELS, "another path that the lock allows", |run| run.kernels(|kernels| drop(kernels.insert("rope".to_owned(), ["libtorch".to_owned()].into()))), Trusted(Subject::Kernels)),
        row(KERNELS, "a path that does not exist", |run| run.kernels(|kernels| drop(kernels.insert("linear".to_owned(), ["magic".to_owned()].into()))), Found("which canonc does not have")),
        row(KERNELS, "a kernel that the plan lacks", |run| run.kernels(|kernels| drop(kernels.insert("magic".to_owned(), ["fast".to_owned()].into()))), Found("which the lock's plan does not execute")),
        row(KERNELS, "a kernel gone", |run| run.kernels(|kernels| drop(kernels.remove("linear").unwrap())), Found("which every step of the lock's plan executes")),
    ]
}

/// The attestation.
#[rustfmt::skip]
fn attestation() -> Vec<Forgery> {
    vec![
        row(ATTESTATION, "deleted", |run| fs::remove_file(run.paths.attestation()).unwrap(), Found("attestation.toml is missing: its log and its checkpoint")),
        row(ATTESTATION, "deleted with what tells of the end", |run| {
            fs::remove_file(run.paths.attestation()).unwrap();
            run.retext(&run.paths.events(), |text| text.lines().filter(|line| !line.contains("finished")).map(|line| format!("{line}\n")).collect());
        }, Found("attestation.toml is missing: its log and its checkpoint")),
        row(ATTESTATION, "deleted with the last step's checkpoint", |run| {
            fs::remove_file(run.paths.attestation()).unwrap();
            fs::remove_dir_all(run.checkpoint(8)).unwrap();
            fs::write(run.paths.checkpoints().join("latest"), name_of(6) + "\n").unwrap();
        }, Found("attestation.toml is missing: events.jsonl says that it ended")),
        row(ATTESTATION, "empty", |run| fs::write(run.paths.attestation(), "").unwrap(), Found("attestation.toml: it has no seal")),
        row(ATTESTATION, "another CPU", |run| run.reattest(|a| drop(a.machine.insert("cpu".to_owned(), "faster".to_owned()))), Trusted(Subject::Machine)),
        row(ATTESTATION, "another machine before", |run| run.reattest(|a| a.other_machines.push("one more".to_owned())), Trusted(Subject::Machine)),
        row(ATTESTATION, "other threads than the lock's", |run| run.reattest(|a| drop(a.machine.insert("threads".to_owned(), "7".to_owned()))), Found("the lock requires 1")),
        row(ATTESTATION, "a fact of the machine gone", |run| run.reattest(|a| drop(a.machine.remove("libtorch"))), Found("it lacks the machine's libtorch")),
        row(ATTESTATION, "more ranks than micro-batches", |run| run.reattest(|a| drop(a.machine.insert("ranks".to_owned(), "64".to_owned()))), Found("it claims 64 ranks")),
        row(ATTESTATION, "one more fact", |run| run.reattest(|a| drop(a.machine.insert("mood".to_owned(), "good".to_owned()))), Found("which canonc does not record")),
        row(ATTESTATION, "another name", |run| run.reattest(|a| a.name = "other".to_owned()), Trusted(Subject::Settings)),
        row(ATTESTATION, "other steps", |run| run.reattest(|a| a.steps = 9), Found("it claims 9 steps")),
        row(ATTESTATION, "other counted targets", |run| run.reattest(|a| a.counted += 1), Found("counted targets, but there are")),
        row(ATTESTATION, "other lines", |run| run.reattest(|a| a.lines += 1), Found("lines, but there are 11")),
        row(ATTESTATION, "another lock", |run| run.reattest(|a| a.lock = a.eval), Found("it claims lock")),
        row(ATTESTATION, "another evaluation section", |run| run.reattest(|a| a.eval = a.lock), Found("it claims evaluation section")),
        row(ATTESTATION, "another platform section", |run| run.reattest(|a| a.platform = a.lock), Found("it claims platform section")),
        row(ATTESTATION, "another chain", |run| run.reattest(|a| a.metrics = a.lock), Found("it claims a metrics chain")),
        row(ATTESTATION, "other weights", |run| run.reattest(|a| a.weights = a.lock), Found("it claims weights")),
        row(ATTESTATION, "other first moments", |run| run.reattest(|a| a.first_moment = a.lock), Found("it claims first moments")),
        row(ATTESTATION, "other second moments", |run| run.reattest(|a| a.second_moment = a.lock), Found("it claims second moments")),
        row(ATTESTATION, "another plan", |run| run.reattest(|a| a.plan = a.lock), Found("it claims plan")),
        row(ATTESTATION, "other kernels", |run| run.reattest(|a| drop(a.kernels.pop_last())), Found("its kernels differ from kernels.txt")),
        row(ATTESTATION, "a comment above the seal", |run| run.reseal_attestation(|body| body + "# more\n"), Found("but canonc writes")),
        row(ATTESTATION, "a line above the seal", |run| run.reseal_attestation(|body| body.replacen("steps = ", "good = true\nsteps = ", 1)), Found("attestation.toml: ")),
        row(ATTESTATION, "a key twice", |run| run.reseal_attestation(|body| body.replacen("steps = ", "steps = 8\nsteps = ", 1)), Found("attestation.toml: ")),
        row(ATTESTATION, "a number in other digits", |run| run.reseal_attestation(|body| body.replacen("steps = 8", "steps = 0x8", 1)), Found("but canonc writes `steps = 8`")),
        row(ATTESTATION, "a line below the seal", |run| append(&run.paths.attestation(), "good = true\n"), Found("attestation.toml: ")),
        row(ATTESTATION, "a section below the seal", |run| append(&run.paths.attestation(), "\n[more]\nsteps = 9\n"), Found("attestation.toml: ")),
        row(ATTESTATION, "a comment below the seal", |run| append(&run.paths.attestation(), "# more\n"), Found("but canonc writes nothing")),
        row(ATTESTATION, "another time", |run| run.retext(&run.paths.attestation(), |text| {
            let (before, rest) = text.split_once("\nseconds = ").unwrap();
            format!("{before}\nseconds = 0.125\n{}", rest.split_once('\n').unwrap().1)
        }), Found("but attestation.toml has seconds = 0.125")),
        row(ATTESTATION, "another time of its end", |run| run.reattest(|_| ()), Trusted(Subject::Times)),
        row(ATTESTATION, "more processes", |run| run.retext(&run.paths.attestation(), |text| text.replacen("processes = 1", "processes = 2", 1)), Found("attestation.toml has processes = 2")),
    ]
}

/// The name of the newest checkpoint, and a checkpoint's own text, sealed again.
#[rustfmt::skip]
fn manifest() -> Vec<Forgery> {
    vec![
        row(LATEST, "deleted", |run| fs::remove_file(run.paths.checkpoints().join("latest")).unwrap(), Found("checkpoints/latest is missing")),
        row(LATEST, "empty", |run| fs::write(run.paths.checkpoints().join("latest"), "").unwrap(), Found("should name a checkpoint")),
        row(LATEST, "an older one", |run| fs::write(run.paths.checkpoints().join("latest"), name_of(6) + "\n").unwrap(), Found("the last step's is step-0000000008")),
        row(LATEST, "one that is not there", |run| fs::write(run.paths.checkpoints().join("latest"), name_of(9) + "\n").unwrap(), Found("checkpoints/latest names step-0000000009")),
        row(LATEST, "two lines", |run| append(&run.paths.checkpoints().join("latest"), "step-0000000006\n"), Found("should name a checkpoint")),
        row(MANIFEST, "deleted", |run| fs::remove_file(run.checkpoint(6).join("checkpoint.toml")).unwrap(), Found("step-0000000006: checkpoint.toml")),
        row(MANIFEST, "a comment above the seal", |run| run.reseal_manifest(6, |body| body + "# more\n"), Found("but canonc writes")),
        row(MANIFEST, "a line above the seal", |run| run.reseal_manifest(6, |body| body + "good = true\n"), Found("step-0000000006: checkpoint.toml: ")),
        row(MANIFEST, "a section below the seal", |run| append(&run.checkpoint(6).join("checkpoint.toml"), "\n[unsealed]\nx = 1\n"), Found("step-0000000006: checkpoint.toml: line")),
        row(MANIFEST, "another step", |run| run.reseal_manifest(6, |body| body.replacen("step = 6", "step = 7", 1)), Found("it is the state after step 7")),
        row(MANIFEST, "the chain of another step", |run| {
            let chain = records::checkpoint::manifest(&run.checkpoint(8)).unwrap().chain;
            run.remanifest(6, |manifest| manifest.chain = chain);
        }, Found("it was saved when the metrics log had chain")),
        row(MANIFEST, "another lock", |run| run.remanifest(6, |manifest| manifest.lock = manifest.chain), Found("it belongs to lock")),
        row(MANIFEST, "both checkpoints swapped", |run| {
            let away = run.paths.checkpoints().join("away");
            fs::rename(run.checkpoint(6), &away).unwrap();
            fs::rename(run.checkpoint(8), run.checkpoint(6)).unwrap();
            fs::rename(away, run.checkpoint(8)).unwrap();
        }, Found("step-0000000006: it is the state after step 8")),
        row(MANIFEST, "both checkpoints swapped, their texts and the attestation made right", |run| {
            for part in records::checkpoint::PARTS {
                let (six, eight) = (bytes(&run.part(6, part)), bytes(&run.part(8, part)));
                fs::write(run.part(6, part), eight).unwrap();
                fs::write(run.part(8, part), six).unwrap();
            }
            run.correct();
        }, Found("it claims to belong to lock")),
        row(MANIFEST, "both checkpoints swapped, and everything made right", |run| {
            for part in records::checkpoint::PARTS {
                let (six, eight) = (bytes(&run.part(6, part)), bytes(&run.part(8, part)));
                fs::write(run.part(6, part), eight).unwrap();
                fs::write(run.part(8, part), six).unwrap();
                run.header(6, part, |json| json.replace("step 8", "step 6"));
                run.header(8, part, |json| json.replace("step 6", "step 8"));
            }
            run.correct();
        }, Trusted(Subject::Training)),
        row(MANIFEST, "the older checkpoint deleted", |run| fs::remove_dir_all(run.checkpoint(6)).unwrap(), Trusted(Subject::Settings)),
        row(MANIFEST, "the last checkpoint deleted", |run| {
            fs::remove_dir_all(run.checkpoint(8)).unwrap();
            fs::write(run.paths.checkpoints().join("latest"), name_of(6) + "\n").unwrap();
        }, Found("the last step, 8, has no checkpoint")),
        row(MANIFEST, "the last checkpoint deleted, and the weights before it attested", |run| {
            fs::remove_dir_all(run.checkpoint(8)).unwrap();
            fs::write(run.paths.checkpoints().join("latest"), name_of(6) + "\n").unwrap();
            run.correct();
        }, Found("the last step, 8, has no checkpoint")),
        row(MANIFEST, "a copy under another step's name", |run| copy_folder(&run.checkpoint(8), &run.checkpoint(7)), Found("step-0000000007: it is the state after step 8")),
        row(MANIFEST, "a copy under a longer name", |run| copy_folder(&run.checkpoint(8), &run.paths.checkpoints().join("step-00000000008")), Found("is not a checkpoint")),
        row(MANIFEST, "a step after the last", |run| {
            copy_folder(&run.checkpoint(8), &run.checkpoint(9));
            run.remanifest(9, |manifest| manifest.step = 9);
        }, Found("step-0000000009: the run has 8 steps")),
    ]
}

/// A checkpoint's tensors, with every digest above them updated.
#[rustfmt::skip]
fn tensors() -> Vec<Forgery> {
    vec![
        row(WEIGHTS, "deleted", |run| fs::remove_file(run.part(6, Part::Weights)).unwrap(), Found("weights.safetensors is missing")),
        row(WEIGHTS, "a bit flipped, digests kept", |run| run.flip(6, Part::Weights), Found("weights.safetensors has digest")),
        row(WEIGHTS, "a bit flipped, the tensors' digest kept", |run| run.keep_tensors(8, Part::Weights), Found("its tensors have digest")),
        row(WEIGHTS, "a bit flipped", |run| flipped(run, Part::Weights), Trusted(Subject::Training)),
        row(WEIGHTS, "text instead", |run| text_instead(run, Part::Weights), Found("it is not a safetensors file")),
        row(WEIGHTS, "empty", |run| { fs::write(run.part(8, Part::Weights), "").unwrap(); run.correct(); }, Found("it is not a safetensors file")),
        row(WEIGHTS, "one name changed", |run| other_header(run, |json| json.replacen("\"embed", "\"ember", 1)), Found("it has no tensor")),
        row(WEIGHTS, "one shape changed", |run| other_header(run, |json| json.replacen("[16,16]", "[256]", 1)), Found("but the lock's arch has F32 [16, 16]")),
        row(WEIGHTS, "one dtype changed", |run| other_header(run, |json| json.replacen("\"F32\"", "\"I32\"", 1)), Found("but the lock's arch has F32")),
        row(WEIGHTS, "of another step", |run| other_header(run, |json| json.replacen("step 8", "step 9", 1)), Found("it claims to belong to lock")),
        row(WEIGHTS, "no word of its step", |run| other_header(run, |json| json.replacen("\"canonc\"", "\"nobody\"", 1)), Found("it does not name lock")),
        row(WEIGHTS, "one more word in its header", |run| other_header(run, |json| json.replacen("{\"canonc\":", "{\"more\":\"x\",\"canonc\":", 1)), Found("its header is not as canonc writes it")),
        row(WEIGHTS, "spaces in its header", |run| other_header(run, |json| json + "        "), Found("its header is not as canonc writes it")),
        row(WEIGHTS, "bytes after the last tensor", |run| { run.edit(&run.part(8, Part::Weights), |content| content.extend([0; 4])); run.correct(); }, Found("it has 4 more bytes after its last tensor")),
        row(WEIGHTS, "bytes lacking", |run| { run.edit(&run.part(8, Part::Weights), |content| content.truncate(content.len() - 4)); run.correct(); }, Found("it ends inside the tensor")),
        row(WEIGHTS, "a file more", |run| fs::write(run.checkpoint(6).join("more.safetensors"), "").unwrap(), Found("it contains `more.safetensors`")),
        row(FIRST, "a bit flipped, the tensors' digest kept", |run| run.keep_tensors(8, Part::FirstMoment), Found("first_moment.safetensors is not as it was saved")),
        row(FIRST, "a bit flipped", |run| flipped(run, Part::FirstMoment), Trusted(Subject::Training)),
        row(FIRST, "text instead", |run| text_instead(run, Part::FirstMoment), Found("first_moment.safetensors does not contain the tensors of a state")),
        row(FIRST, "the weights instead", |run| { fs::copy(run.part(8, Part::Weights), run.part(8, Part::FirstMoment)).unwrap(); run.correct(); }, Trusted(Subject::Training)),
        row(SECOND, "a bit flipped, the tensors' digest kept", |run| run.keep_tensors(8, Part::SecondMoment), Found("second_moment.safetensors is not as it was saved")),
        row(SECOND, "a bit flipped", |run| flipped(run, Part::SecondMoment), Trusted(Subject::Training)),
        row(SECOND, "text instead", |run| text_instead(run, Part::SecondMoment), Found("second_moment.safetensors does not contain the tensors of a state")),
        row(SECOND, "deleted", |run| fs::remove_file(run.part(8, Part::SecondMoment)).unwrap(), Found("second_moment.safetensors is missing")),
    ]
}

/// The times of steps, which no seal covers.
#[rustfmt::skip]
fn timings() -> Vec<Forgery> {
    vec![
        row(TIMINGS, "faster", |run| fs::write(run.paths.timings(), "{\"step\":1,\"seconds\":0.001}\n").unwrap(), Found("timings.jsonl: lines are missing")),
        row(TIMINGS, "deleted", |run| fs::remove_file(run.paths.timings()).unwrap(), Found("timings.jsonl is missing")),
        row(TIMINGS, "empty", |run| fs::write(run.paths.timings(), "").unwrap(), Found("it ends with nothing")),
        row(TIMINGS, "negative", |run| timed(run, "-5"), Found("line 1 has a time that no step takes")),
        row(TIMINGS, "zero", |run| timed(run, "0.0"), Found("line 1 has a time that no step takes")),
        row(TIMINGS, "too short for any step", |run| timed(run, "1e-300"), Found("line 1 has a time that no step takes")),
        row(TIMINGS, "years", |run| timed(run, "1e9"), Found("line 1 has a time that no step takes")),
        row(TIMINGS, "no number", |run| timed(run, "1e999"), Found("line 1 is not a line that canonc writes")),
        row(TIMINGS, "a word", |run| timed(run, "\"fast\""), Found("line 1 has a time that no step takes")),
        row(TIMINGS, "another plausible time", |run| timed(run, "0.125"), Found("its seconds add up to")),
        row(TIMINGS, "another plausible time, attested", |run| {
            timed(run, "0.125");
            let text = fs::read_to_string(run.paths.timings()).unwrap();
            let values: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let seconds = |value: &serde_json::Value| value.get("seconds").or(value.get("evaluation_seconds"))?.as_f64();
            let sum: f64 = values.iter().filter_map(seconds).sum();
            run.retext(&run.paths.attestation(), |text| {
                let (before, rest) = text.split_once("\nseconds = ").unwrap();
                format!("{before}\nseconds = {sum:?}\n{}", rest.split_once('\n').unwrap().1)
            });
        }, Trusted(Subject::Times)),
        row(TIMINGS, "a step after the last", |run| append(&run.paths.timings(), "{\"step\":99,\"seconds\":1.0}\n"), Found("is of step 99, which the log does not have")),
        row(TIMINGS, "a checkpoint after the last step", |run| append(&run.paths.timings(), "{\"checkpoint\":99,\"peak_memory_bytes\":300000000}\n"), Found("is of a step after the last, 8")),
        row(TIMINGS, "a peak of memory of one byte", |run| append(&run.paths.timings(), "{\"checkpoint\":8,\"peak_memory_bytes\":1}\n"), Found("has a memory that no process takes")),
        row(TIMINGS, "beside no other run", |run| append(&run.paths.timings(), "{\"beside\":0}\n"), Found("is not a line that canonc writes")),
        row(TIMINGS, "another member", |run| append(&run.paths.timings(), "{\"step\":8,\"seconds\":1.0,\"mood\":1}\n"), Found("is not a line that canonc writes")),
        row(TIMINGS, "a step twice", |run| run.retext(&run.paths.timings(), |text| format!("{}\n{text}", text.lines().next().unwrap())), Found("timings.jsonl: lines are missing")),
        row(TIMINGS, "a step less", |run| run.retext(&run.paths.timings(), |text| text.lines().filter(|line| !line.contains("\"step\":3,")).map(|line| format!("{line}\n")).collect()), Found("timings.jsonl: lines are missing")),
        row(TIMINGS, "out of order", |run| run.retext(&run.paths.timings(), |text| {
            let mut lines: Vec<&str> = text.lines().collect();
            lines.swap(0, 1);
            lines.join("\n") + "\n"
        }), Found("timings.jsonl: lines are missing")),
        row(TIMINGS, "torn", |run| run.edit(&run.paths.timings(), |bytes| bytes.truncate(bytes.len() - 9)), Found("its last line is torn")),
    ]
}

/// Other files that no seal covers.
#[rustfmt::skip]
fn other_files() -> Vec<Forgery> {
    vec![
        row(EVENTS, "another story", |run| fs::write(run.paths.events(), "{\"event\":\"finished\",\"step\":8}\n").unwrap(), Found("events.jsonl: line 1 is not an event")),
        row(EVENTS, "another machine", |run| run.retext(&run.paths.events(), |text| text.replacen("\"machine\":\"", "\"machine\":\"faster ", 1)), Trusted(Subject::Times)),
        row(EVENTS, "nonsense", |run| fs::write(run.paths.events(), "nothing happened\n").unwrap(), Found("events.jsonl: line 1 is not an event")),
        row(EVENTS, "nonsense among events", |run| run.retext(&run.paths.events(), |text| format!("{text}[]\n")), Found("is not an event that canonc writes: []")),
        row(EVENTS, "no start", |run| run.retext(&run.paths.events(), |text| text.lines().filter(|line| !line.contains("started")).map(|line| format!("{line}\n")).collect()), Found("events.jsonl has no started process")),
        row(EVENTS, "half a line, and no process after it", |run| run.retext(&run.paths.events(), |text| text.replacen("{\"event\":\"finished\"", "{\"event\":\"fin\n{\"event\":\"finished\"", 1)), Found("is not an event that canonc writes")),
        row(EVENTS, "half a last line", |run| run.edit(&run.paths.events(), |bytes| bytes.truncate(bytes.len() - 20)), Found("is not an event that canonc writes")),
        row(EVENTS, "no line end", |run| run.edit(&run.paths.events(), |bytes| bytes.truncate(bytes.len() - 1)), Found("events.jsonl: its last line is")),
        row(EVENTS, "no end", |run| run.retext(&run.paths.events(), |text| text.lines().filter(|line| !line.contains("finished")).map(|line| format!("{line}\n")).collect()), Found("events.jsonl: its last line is started")),
        row(EVENTS, "an end at another step", |run| run.retext(&run.paths.events(), |text| text.replacen("\"step\":8", "\"step\":7", 1)), Found("ended with finished at step 8")),
        row(EVENTS, "a step after the last", |run| run.retext(&run.paths.events(), |text| text.replacen("\"step\":0", "\"step\":99", 1)), Found("but the lock has 8")),
        row(EVENTS, "a process more", |run| run.retext(&run.paths.events(), |text| format!("{}\n{text}", text.lines().next().unwrap())), Found("attestation.toml has processes = 1")),
        row(EVENTS, "an end before the end", |run| run.retext(&run.paths.events(), |text| { let end = text.lines().last().unwrap(); format!("{text}{end}\n") }), Found("but the process before it ended with finished")),
        row(EVENTS, "a process without a number", |run| run.retext(&run.paths.events(), |text| text.replacen("\"process\":", "\"process\":-", 1)), Found("is not an event that canonc writes")),
        row(EVENTS, "empty", |run| fs::write(run.paths.events(), "").unwrap(), Found("events.jsonl is missing or empty")),
        row(EVENTS, "deleted", |run| fs::remove_file(run.paths.events()).unwrap(), Found("events.jsonl is missing or empty")),
        row(WRITER, "another process", |run| fs::write(run.paths.writer(), "process 1\n").unwrap(), Trusted(Subject::Times)),
        row(WRITER, "nonsense", |run| fs::write(run.paths.writer(), "x\n").unwrap(), Found("writer contains")),
        row(WRITER, "a line more", |run| append(&run.paths.writer(), "process 2\n"), Found("writer contains")),
        row(WRITER, "no process", |run| fs::write(run.paths.writer(), "process 0\n").unwrap(), Found("writer contains")),
        row(WRITER, "empty", |run| fs::write(run.paths.writer(), "").unwrap(), Found("writer contains")),
        row(WRITER, "deleted", |run| fs::remove_file(run.paths.writer()).unwrap(), Found("writer is missing")),
        row(STRANGE, "in the run's folder", |run| fs::write(run.paths.folder.join("results.txt"), "good\n").unwrap(), Found("results.txt is not part of a run")),
        row(STRANGE, "hidden in the run's folder", |run| fs::write(run.paths.folder.join(".results"), "good\n").unwrap(), Trusted(Subject::OtherFiles)),
        row(STRANGE, "among the checkpoints", |run| fs::write(run.paths.checkpoints().join("best"), name_of(8)).unwrap(), Found("checkpoints/best is not a checkpoint")),
    ]
}

/// One finished run that all rows copy.
fn finished() -> &'static Path {
    static RUN: OnceLock<tempfile::TempDir> = OnceLock::new();
    let root = RUN.get_or_init(|| {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::finished(&depo(&[]));
        copy_folder(&folder.path(), &root.path().join("run"));
        root
    });
    static PATH: OnceLock<std::path::PathBuf> = OnceLock::new();
    PATH.get_or_init(|| root.path().join("run"))
}

#[test]
fn every_forgery_is_found_or_is_of_what_verify_says_it_trusts() {
    let experiment = depo(&[]);
    let untouched = Forger::copy(finished(), &experiment);
    assert_eq!(untouched.verify().broken, Vec::<String>::new());
    // The forger's own arithmetic must be right: an unchanged run with everything recomputed is valid.
    untouched.correct();
    assert_eq!(untouched.verify().broken, Vec::<String>::new());
    let mut wrong = Vec::new();
    for Forgery { file, what, forge, expect } in table() {
        let run = Forger::copy(finished(), &experiment);
        let forged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| forge(&run)));
        if forged.is_err() {
            wrong.push(format!("{file}, {what}: it cannot be forged so"));
            continue;
        }
        let report = run.verify();
        let as_expected = match expect {
            Found(words) => report.broken.iter().any(|line| line.contains(words)),
            Trusted(subject) => report.broken.is_empty() && report.trusts(subject),
        };
        if !as_expected {
            wrong.push(format!("{file}, {what}: {:#?}\n{}", report.broken, report.closing()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn every_file_of_a_run_is_in_the_table() {
    let mut files = Vec::new();
    list(finished(), "", &mut files);
    let rows: Vec<&str> = table().iter().map(|row| row.file).collect();
    for file in &files {
        assert!(rows.contains(&file.as_str()), "no forgery of {file} is tried");
    }
    for row in rows {
        assert!(row == STRANGE || files.iter().any(|file| file == row), "no run has {row}");
    }
}

/// Anything that replaces a file is detected, and the finding names it.
#[cfg(target_os = "linux")]
#[test]
fn what_takes_the_place_of_a_file_is_found_and_named() {
    use std::os::unix::fs::symlink;
    type Replace = fn(&Path, &Path);
    let kinds: [(&str, Replace); 6] = [
        ("a link to the same bytes", |file, away| symlink(away, file).unwrap()),
        ("a link to nothing", |file, _| symlink("nowhere", file).unwrap()),
        ("a folder", |file, _| fs::create_dir(file).unwrap()),
        ("a pipe", |file, _| {
            assert!(std::process::Command::new("mkfifo").arg(file).status().unwrap().success());
        }),
        ("an empty file", |file, _| fs::write(file, "").unwrap()),
        ("nothing", |_, _| {}),
    ];
    let experiment = depo(&[]);
    let mut files = Vec::new();
    list(finished(), "", &mut files);
    files.sort_unstable();
    files.dedup();
    let mut wrong = Vec::new();
    for file in &files {
        for (kind, replace) in kinds {
            let run = Forger::copy(finished(), &experiment);
            let path = run.paths.folder.join(file.replace("STEP", &name_of(8)));
            let away = run.paths.folder.parent().unwrap().join("away");
            fs::rename(&path, &away).unwrap();
            replace(&path, &away);
            let broken = run.verify().broken;
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if !broken.iter().any(|line| line.contains(&name)) {
                wrong.push(format!("{file}, {kind}: {broken:#?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    // Folders as well.
    for folder in ["checkpoints".to_owned(), format!("checkpoints/{}", name_of(6))] {
        let run = Forger::copy(finished(), &experiment);
        let path = run.paths.folder.join(&folder);
        let away = run.paths.folder.parent().unwrap().join("away");
        fs::rename(&path, &away).unwrap();
        symlink(&away, &path).unwrap();
        let broken = run.verify().broken;
        let is_named = broken.iter().any(|line| line.starts_with(&format!("{folder} is a link")));
        assert!(is_named, "{folder}: {broken:#?}");
    }
}

fn list(folder: &Path, prefix: &str, files: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().unwrap().is_dir() {
            let name = if name.starts_with("step-") { "STEP".to_owned() } else { name };
            list(&entry.path(), &format!("{prefix}{name}/"), files);
        } else {
            files.push(format!("{prefix}{name}"));
        }
    }
}
