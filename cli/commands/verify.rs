//! `canonc verify`: checks every digest of a run or a lock again, offline. Only --replay needs libtorch.
//!
//! The exit code is 1 if and only if a check fails, and 3 if a check cannot be decided here. Nothing is written.

use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args};
use lab::experiment::Experiment;
use lab::lock::{self, Lock};
use lab::trainer::CANONC;
use records::run::{Paths, if_there, lock_from_text};
use records::verify::{Claim, Inputs, Remake, Subject, TrainedBy, VerifyReport, verify as check};
use records::weights::WeightSource;
use serde_json::json;

use crate::command::{Program, with};
use crate::comparison_folder::{self, Folders};
use crate::extensions::{TrustedFile, signatures};
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::inputs::GivenPaths;
use crate::printable::inline;
use crate::workspace::{self, Target, refuse};
use crate::{documents, initial_weights, output, torch_program};

/// Recompute the claims of a run or a lock, offline, and list those taken on trust
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc verify runs/depo_llama            lock, log, initial weights, checkpoints, attestation
  canonc verify depo_llama                 the same: a name under runs/
  canonc verify runs/depo                  every run of a comparison
  canonc verify text/text-first-seed1      a run of a comparison, wherever it was trained
  canonc verify 3fdec0937b53               the run of the lock with this id
  canonc verify runs/* lockfiles/*.lock    several; all are checked, whatever is found
  canonc verify --all runs/depo_llama      also the data of every step
  canonc verify --replay runs/depo_llama   also train 32 steps again, bit for bit
  canonc verify --replay 8 runs/depo_llama     8 steps, or as many as lead to the last weights
  canonc verify --replay all runs/depo_llama   every step and every evaluation
  canonc verify runs/depo_llama --signers allowed_signers --identity ada@lab.org
  canonc verify lockfiles/depo_llama.lock  derives every line of the lock; reports open inputs

Recomputed from the lock: every line of it, the plan, the initial weights, all learning rates, the targets and
answers of evaluations, and the batches of the last step and of 64 steps spread evenly over the run (of all
steps if there are at most 64, or with --all). Recomputed from the bytes on disk: the digest of every tensor of
every checkpoint. A missing or extra file, line or tensor is a finding, also in timings.jsonl (each logged step and
evaluation has one plausible time; each process that continued the run explains one gap), events.jsonl and writer. Not
found are what a kill explains, such as an event of an interruption that is not there, and other plausible times, dates,
machines and peaks of memory: nothing leads to them again.

Of a comparison's folder, each run is checked, and also that NAME/lock, NAME.lock and the folder NAME are the same run,
that no run is a copy of another, and that none is missing that has a lock there or whose results were shown. A single
run in such a folder is compared with its name and its lock, too; export, generate, eval, forward, serve, report,
sign and reproduce refuse a run in another's place.

Several runs and locks end with a line that counts those without a fault and names the others. Of each, the line before
the last lists claims that were recomputed, claims that were only checked against digests, and claims taken
on trust because no file of a run can prove them. Only training again finds a loss that was edited together with
every digest above it. --replay trains all steps between the last two kept checkpoints, since only they lead to the
last weights, and two from the initial weights, even if that is more than N; the rest of N in turn from the initial
weights and each kept checkpoint. It compares losses, gradient norms, evaluations, the tensors of the next checkpoint
and the recorded path of each kernel, bit for bit. On a machine
other than the attested one (CPU, threads, libtorch) bits can differ: a difference that rounding may explain is
undecided there.

A run that another engine trained (`canonc record`) is held to bounds instead: --replay continues its initial weights, the
checkpoint before the last one and two that its log's last chain chooses, by 8 steps or N with canonc's kernels, and
compares losses, norms and the updates to a next checkpoint. What lies within the bounds is listed as spot-check;
docs/threat-model.md says what bf16 hides.

No file says who computed. Without --replay, or where it did not run on the attested machine, the last line says
that nothing shows that canonc trained the run.

--signers reads the file that `ssh-keygen -Y verify -f` reads; `canonc sign --help` says how to sign.

Exit codes: 0 no faults, 1 faults found, 3 something cannot be decided on this machine.
Schema of --json: {schema: \"canonc.verify.v2\", trainer: \"canonc\", an engine or null, recomputed: [claim],
checked: [claim], spot_checked: [claim], trusted: [claim], broken: [text], undecided: [text], closing: text}, where claim = {subject, part: text or null, text}; for
several, {schema: \"canonc.verify_all.v1\", reports: [the same, each with `what`, its name as given]}.")]
pub struct VerifyArgs {
    /// Folders of runs, their names under runs/, or locks
    #[arg(value_name = "RUN|LOCK", required_unless_present = "replay")]
    pub what: Vec<PathBuf>,
    /// Recompute the data of every step, instead of the last one and 64 spread over the run
    #[arg(long)]
    pub all: bool,
    /// Train N steps again [default: 32] or those to the last weights, if they are more, or all; compare their bits
    #[arg(long, value_name = "N|all", num_args = 0..=1)]
    pub replay: Option<Option<String>>,
    /// Prepared documents, if the run trains on text [default: data/SOURCE.index]
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// The weights that the run began from, if its lock names some [default: as named]
    #[arg(long, value_name = "PATH")]
    pub weights: Option<PathBuf>,
    /// An allowed_signers file of ssh-keygen: the keys whose signatures are accepted
    #[arg(long, value_name = "FILE")]
    pub signers: Option<PathBuf>,
    /// The name in FILE of the required signer [default: anyone in FILE]
    #[arg(long, value_name = "NAME", requires = "signers")]
    pub identity: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// How `--replay` trains steps again: in `canonc-torch`.
#[derive(Debug)]
pub struct Replayer {
    /// Sets the environment that the run's lock requires, before anything is read.
    pub prepare: fn(&Path) -> Result<(), Failure>,
    /// Trains this many steps of a run's folder, or all, and adds the result to the report.
    pub replay: fn(&Path, GivenPaths<'_>, ReplayAmount, &mut VerifyReport),
}

/// In `canonc`, `--replay` continues in `canonc-torch`.
pub(crate) fn run(_: &Program, matches: &ArgMatches) -> Outcome {
    let replayer =
        Replayer { prepare: |_| Err(torch_program::replace_process(&[])), replay: |_, _, _, _| {} };
    with(matches, |args| verify(args, &replayer))
}

pub fn verify(args: &VerifyArgs, replayer: &Replayer) -> Outcome {
    let (mut whats, replay) = requested(args)?;
    if replay.is_none() {
        let runs = whats.into_iter().map(with_runs).collect::<Result<Vec<_>, _>>()?;
        whats = runs.concat();
    }
    if let [what] = whats.as_slice() {
        let (report, help) = one(what, replay, args, replayer, &mut Folders::default())?;
        print_report(args, None, &report)?;
        return end(what, &report, help);
    }
    if replay.is_some() {
        return Err(Failure::bad_input(
            "--replay trains steps of one run again, but several are named",
        )
        .help("name one: each starts in the environment that its lock requires"));
    }
    let mut all = Vec::new();
    let mut worst = Exit::Fine;
    let mut faulty = Vec::new();
    let mut folders = Folders::default();
    for what in &whats {
        let ended = one(what, replay, args, replayer, &mut folders).and_then(|(report, help)| {
            if args.json {
                all.push(json_of(Some(what), &report));
            } else {
                print_report(args, Some(what), &report)?;
            }
            end(what, &report, help)
        });
        if let Err(failure) = ended {
            // A finding outweighs an unreadable file, which outweighs an undecided check.
            let weight = |exit: Exit| {
                [Exit::Finding, Exit::BadInput, Exit::Machine].iter().position(|e| *e == exit)
            };
            worst = match (weight(worst), weight(failure.exit)) {
                (Some(known), Some(new)) if known <= new => worst,
                (_, Some(_)) => failure.exit,
                // The reader closed the pipe.
                (_, None) => worst,
            };
            output::failure(&failure);
            faulty.push((what.as_path(), failure.exit));
        }
    }
    let written = match args.json {
        true => output::json(&json!({ "schema": "canonc.verify_all.v1", "reports": all })),
        false => output::data(&summary(whats.len(), &faulty)),
    };
    if worst == Exit::Fine { written.map(|()| worst) } else { Err(Failure::shown(worst)) }
}

/// The last line about several: how many have no fault, and which have.
fn summary(all: usize, faulty: &[(&Path, Exit)]) -> String {
    let mut text = format!("{} of {all} without a fault", all - faulty.len());
    for (what, exit) in faulty {
        let word = match exit {
            Exit::Finding => "BROKEN",
            Exit::Machine => "undecided",
            Exit::BadInput | Exit::Fine | Exit::Interrupted | Exit::Stopped => "not checked",
        };
        text.push_str(&format!("; {word}: {}", shown(what)));
    }
    text + "\n"
}

/// A folder of a comparison and the runs in it, or what is named itself.
fn with_runs(what: PathBuf) -> Result<Vec<PathBuf>, Failure> {
    let folder = workspace::path(&what).unwrap_or_else(|_| what.clone());
    Ok(match comparison_folder::runs_of(&folder)?.filter(|_| folder.is_dir()) {
        Some(runs) => std::iter::once(folder).chain(runs).collect(),
        None => workspace::runs_in(&what)?.unwrap_or(vec![what]),
    })
}

/// Verifies one run or lock; for an unreadable lock, also returns what to do about it.
fn one(
    word: &Path,
    replay: Option<ReplayAmount>,
    args: &VerifyArgs,
    replayer: &Replayer,
    folders: &mut Folders,
) -> Result<(VerifyReport, Option<String>), Failure> {
    match workspace::resolve(word)? {
        Target::Run(folder) | Target::Model(folder) | Target::Folder(folder) => {
            Ok((folder_report(&folder, replay, args, replayer, folders)?, None))
        }
        Target::Lock(path) | Target::File(path)
            if replay.is_some() || args.signers.is_some() =>
        {
            Err(Failure::bad_input(format!(
                "`{}` is not a run's folder: a lock has no steps to replay and no attestation to sign",
                shown(&path)
            ))
            .help("name a folder written by `canonc run`, such as runs/NAME"))
        }
        Target::Lock(path) | Target::File(path)
            if path.is_file() && path.extension().is_none_or(|end| end != "lock") =>
        {
            Err(Failure::bad_input(format!("`{}` is not a run or a lock", shown(&path)))
                .help("name folders of runs, folders of comparisons, or files whose names end in .lock"))
        }
        Target::Lock(path) | Target::File(path) | Target::Missing(path) => {
            let text = workspace::read_lock_text(&path)?;
            refuse_other_version(&path, &text)?;
            Ok(match lock_from_text(&shown(&path), &text) {
                Ok(lock) => (lock_report(&path, &lock), None),
                Err(error) => {
                    let report = VerifyReport { broken: vec![error.message], ..VerifyReport::default() };
                    (report, Some(error.help))
                }
            })
        }
    }
}

/// Verifies the folder of a run or of a comparison.
fn folder_report(
    folder: &Path,
    replay: Option<ReplayAmount>,
    args: &VerifyArgs,
    replayer: &Replayer,
    folders: &mut Folders,
) -> Result<VerifyReport, Failure> {
    if replay.is_none()
        && let Some(report) = comparison_folder::report(folder)?
    {
        return Ok(report);
    }
    if workspace::runs_in(folder)?.is_some() {
        return Err(refuse::not_a_run(folder));
    }
    let lock = Paths::new(folder).lock();
    // The lock beside the folder says whose it is.
    if !lock.exists() && lock_beside(folder).is_file() {
        let broken =
            vec![format!("the run has no lock, but {}.lock is beside its folder", shown(folder))];
        return Ok(VerifyReport { broken, ..VerifyReport::default() });
    }
    if let Some(text) = if_there(&lock, disk::read_text(&lock, disk::SMALL))? {
        refuse_other_version(&lock, &text)?;
    }
    let which = if args.all { Remake::Every } else { Remake::Spread };
    if replay.is_some() {
        (replayer.prepare)(folder)?;
    }
    let given = GivenPaths { data: args.data.as_deref(), weights: args.weights.as_deref() };
    let mut report = run_report(folder, given, which)?;
    signature(folder, args, &mut report)?;
    if let Some(unread) = report.unread.take() {
        return Err(unread.into());
    }
    report.broken.extend(folders.faults(folder)?);
    if let Some(steps) = replay {
        // Steps are trained again from the run's own files, so those must be intact.
        if report.broken.is_empty() {
            (replayer.replay)(folder, given, steps, &mut report);
        } else {
            report.undecided("replay: not started because of the findings above");
        }
    }
    Ok(report)
}

/// `NAME.lock` beside the folder `NAME`.
fn lock_beside(folder: &Path) -> PathBuf {
    let mut name = folder.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

/// How many steps to train again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayAmount {
    /// As many as are usual for the run.
    Usual,
    /// So many.
    Steps(u64),
    /// All of them.
    All,
}

/// The runs and locks to check, and how many steps to train again. The word after `--replay` is a run if it is
/// not a number and no other run is given.
fn requested(args: &VerifyArgs) -> Result<(Vec<PathBuf>, Option<ReplayAmount>), Failure> {
    let named = || match args.what.is_empty() {
        false => Ok(args.what.clone()),
        true => Err(Failure::bad_input("no run is named")
            .help("the form is `canonc verify --replay [N|all] RUN`")),
    };
    let Some(replay) = &args.replay else { return Ok((named()?, None)) };
    let Some(word) = replay else { return Ok((named()?, Some(ReplayAmount::Usual))) };
    let amount = match word.as_str() {
        "all" => Some(ReplayAmount::All),
        number => number.parse().ok().filter(|number| *number > 0).map(ReplayAmount::Steps),
    };
    match (amount, args.what.is_empty()) {
        (Some(amount), _) => Ok((named()?, Some(amount))),
        (None, true) => Ok((vec![PathBuf::from(word)], Some(ReplayAmount::Usual))),
        (None, false) => Err(Failure::bad_input(format!(
            "--replay takes a number of steps from 1, or all, and not `{word}`"
        ))
        .help("the form is `canonc verify --replay [N|all] RUN`")),
    }
}

/// Checks the signature of the attestation.
fn signature(folder: &Path, args: &VerifyArgs, report: &mut VerifyReport) -> Result<(), Failure> {
    let paths = Paths::new(folder);
    let trusted = args
        .signers
        .as_deref()
        .map(|signers| TrustedFile { signers, identity: args.identity.as_deref() });
    if trusted.is_some() || paths.is_attested()? || paths.signature().exists() {
        signatures().report(&paths, trusted, report)?;
    }
    Ok(())
}

/// Refuses a lock of another version: this canonc cannot read it, but that does not make it wrong.
fn refuse_other_version(path: &Path, text: &str) -> Result<(), Failure> {
    match lock::is_of_another_version(text).then(|| lock::read(&shown(path), text)) {
        Some(Err(error)) => Err(refuse::bad_lock(path, error)),
        Some(Ok(_)) | None => Ok(()),
    }
}

/// Checks a lock's text, and lists the data that the lock still needs.
fn lock_report(path: &Path, lock: &Lock) -> VerifyReport {
    let mut report = VerifyReport::default();
    let id = lock.id().short();
    report.recomputed(
        Subject::Lock,
        format!("{} lock {id}: every line follows from its text", lock.kind()),
    );
    for input in lock.open_inputs() {
        let what = format!(
            "open: {input} has no digest, so it cannot run yet; close it with `canonc bind {}{}`",
            shown(path),
            lock::bind_options(std::slice::from_ref(&input))
        );
        let is_data = input.starts_with("data.");
        report.trusted(if is_data { Subject::Batches } else { Subject::InitialWeights }, what);
    }
    report
}

fn run_report(
    folder: &Path,
    GivenPaths { data, weights: given_weights }: GivenPaths<'_>,
    which: Remake,
) -> Result<VerifyReport, Failure> {
    // Look for documents only if the lock names them; an unreadable lock is already in the report.
    let experiment = workspace::experiment_of_run(folder)?.map(|(experiment, _)| experiment);
    let (mut documents, mut unread) = (None, None);
    if let Some(experiment) = &experiment {
        match documents::read_if_present(experiment, data) {
            Ok(found) => documents = found,
            // A file that was named must be there.
            Err(failure) if data.is_some() => return Err(failure),
            Err(failure) if failure.exit == Exit::Machine => return Err(failure),
            // The other checks need no documents, and a damaged file must not hide what they find.
            Err(failure) => unread = failure.message,
        }
    }
    // Other documents than the lock's, given by name, are a finding.
    if let (Some(experiment), Some(index), Some(_)) = (&experiment, &documents, data)
        && let Err(error) = records::job::check_documents(experiment, index)
    {
        unread = Some(error.message);
        documents = None;
    }
    let (weights, other_weights) = match &experiment {
        Some(experiment) => weights(experiment, given_weights)?,
        None => (None, None),
    };
    let mut report = check(folder, Inputs { documents, weights }, which)?;
    if let Some(why) = unread {
        report.broken(format!("the documents: {why}"));
    }
    if let Some(why) = other_weights {
        report.broken(why);
    }
    Ok(report)
}

/// The weights that a run began from, if they are there, or why those that are given are others.
#[expect(clippy::type_complexity, reason = "it is used once")]
fn weights(
    experiment: &Experiment,
    given: Option<&Path>,
) -> Result<(Option<Box<dyn WeightSource>>, Option<String>), Failure> {
    match initial_weights::read_if_present(experiment, given) {
        Ok(weights) => Ok((weights, None)),
        Err(failure) if given.is_some() && failure.exit == Exit::Finding => {
            Ok((None, failure.message))
        }
        // A file that was named must be there and be one of weights.
        Err(failure) if given.is_some() => Err(failure),
        // What is at the usual path by now may be anything.
        Err(_) => Ok((None, None)),
    }
}

/// What to do about a failed check.
fn what_to_do(what: &Path, report: &VerifyReport) -> Vec<String> {
    let VerifyReport { broken, about_signature, about_strays, .. } = report;
    let mut help = Vec::new();
    if matches!(comparison_folder::runs_of(what), Ok(Some(_))) {
        return vec![
            "restore the folder from a copy; `canonc compare` on its lock trains what is missing"
                .to_owned(),
        ];
    }
    if broken.len() > about_signature + about_strays {
        help.push(
            "restore it from a copy, or run the lock again in a new folder (--dir)".to_owned(),
        );
    }
    if *about_strays > 0 {
        help.push("move files that do not belong to the run elsewhere".to_owned());
    }
    let is_signed =
        workspace::path(what).is_ok_and(|folder| Paths::new(folder).signature().exists());
    if *about_signature > 0 && !is_signed {
        help.push(format!(
            "sign the run with `canonc sign {} --key KEY`, or verify it without --signers",
            shown(what)
        ));
    } else if *about_signature > 0 {
        help.push(format!(
            "check that --signers names the right list; `canonc sign {} --key KEY --replace` signs the run again",
            shown(what)
        ));
    }
    help
}

fn json_of(what: Option<&Path>, report: &VerifyReport) -> serde_json::Value {
    let VerifyReport { recomputed, checked, spot_checked, trusted, broken, undecided, .. } = report;
    let trainer = match &report.trained_by {
        TrainedBy::None => None,
        TrainedBy::Canonc { .. } => Some(CANONC),
        TrainedBy::Elsewhere(words) => Some(words.as_str()),
    };
    let mut value = json!({
        "schema": "canonc.verify.v2",
        "trainer": trainer,
        "recomputed": recomputed,
        "checked": checked,
        "spot_checked": spot_checked,
        "trusted": trusted,
        "broken": broken,
        "undecided": undecided,
        "closing": report.closing(),
    });
    if let (Some(what), Some(members)) = (what, value.as_object_mut()) {
        members.insert("what".to_owned(), shown(what).into());
    }
    value
}

/// Prints the result of a check; with several, each under its name.
fn print_report(
    args: &VerifyArgs,
    what: Option<&Path>,
    report: &VerifyReport,
) -> Result<(), Failure> {
    if args.json {
        return output::json(&json_of(what, report));
    }
    let VerifyReport { recomputed, checked, spot_checked, trusted, broken, undecided, .. } = report;
    let line = |word: &str, what: &str| format!("{word:<10} {}\n", inline(what));
    let mut text = what.map_or_else(String::new, |what| format!("{}\n", shown(what)));
    let classes = [
        ("recomputed", recomputed),
        ("checked", checked),
        ("spot-check", spot_checked),
        ("trusted", trusted),
    ];
    for (word, claims) in classes {
        text.extend(claims.iter().map(|Claim { subject: _, part: _, text }| line(word, text)));
    }
    text.extend(undecided.iter().map(|what| line("undecided", what)));
    text.extend(broken.iter().map(|what| line("BROKEN", what)));
    text.push_str(&format!("{}\n", report.closing()));
    if broken.is_empty() && undecided.is_empty() {
        text.push_str("no fault found\n");
    }
    if what.is_some() {
        text.push('\n');
    }
    output::data(&text)
}

/// The exit code of a report.
fn end(what: &Path, report: &VerifyReport, help: Option<String>) -> Outcome {
    let VerifyReport { broken, undecided, .. } = report;
    if broken.is_empty() && undecided.is_empty() {
        return Ok(Exit::Fine);
    }
    if broken.is_empty() {
        return Err(Failure::machine(format!(
            "this machine cannot decide {} about `{}`",
            output::counted(undecided.len(), "claim"),
            shown(what)
        ))
        .help("the `undecided` lines give the reasons and name what is missing, or say that a machine like the one \
         in attestation.toml is needed"));
    }
    let failure = Failure::finding(format!(
        "`{}` is not what it claims to be: {}",
        shown(what),
        output::counted(broken.len(), "finding")
    ));
    Err(match help {
        Some(help) => failure.help(help),
        None => what_to_do(what, report).into_iter().fold(failure, Failure::help),
    })
}
