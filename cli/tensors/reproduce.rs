//! `canonc reproduce`: repeats a run, and finds the first thing in it that differs.
//!
//! The run's folder is only read. The exit code is 1 for a difference that only the run can explain, 3 for one that this
//! machine may explain.

use std::io::IsTerminal;
use std::path::Path;

use lab::experiment::Experiment;
use records::fault::Faults;
use records::job::Job;
use records::metrics::{Evaluation, Step};
use records::run::{Paths, experiment_from_text, trained_elsewhere};
use records::verify::{self, Inputs, Remake};
use runtime::replay::{Difference, Observer, Platform, RunPoint};
use runtime::reproduce::{First, Reproduction, Variant, against, reproduce as run_again};
use runtime::train::{Options, TrainOutcome, machine, train};
use serde_json::{Value, json};

use crate::environment::start_again;
use crate::progress::Screen;
use cli::commands::reproduce::ReproduceArgs;
use cli::extensions::suites;
use cli::fail::{Exit, Failure, Outcome, shown};
use cli::inputs::{self, GivenPaths};
use cli::signals::stop_on_signals;
use cli::workspace::refuse;
use cli::{comparison_folder, documents, initial_weights, out, output, workspace};

pub(crate) fn reproduce(args: &ReproduceArgs) -> Outcome {
    let folder = workspace::path(&args.run)?;
    comparison_folder::refuse_others(&folder)?;
    let (experiment, text) = locked(&folder)?;
    let paths = Paths::new(&folder);
    let given = GivenPaths { data: args.data.as_deref(), weights: args.weights.as_deref() };
    sound(&folder, inputs::read_if_present(&experiment, given)?)?;
    if let Some(other) = &args.against {
        let other = workspace::path(other)?;
        comparison_folder::refuse_others(&other)?;
        sound(&other, inputs::read_if_present(&experiment, given)?)?;
        return finish(args, &folder, &compared(&folder, &other, &experiment)?, false);
    }
    start_again(&experiment)?;
    let documents = documents::read(&experiment, given.data)?;
    let weights = initial_weights::read(&experiment, given.weights)?;
    let measure = suites().measure(&experiment, documents.as_deref())?;
    let job = Job::new(&experiment, &text, documents)?;
    let mut job = job.with_measure(measure).with_weights(weights);
    let machine = machine(&experiment.platform)?;
    let Some(out) = &args.out else {
        let mut progress = Lines::new(&experiment);
        let reproduction = run_again(&paths, job, machine, &mut progress)?;
        return finish(args, &folder, &reproduction, true);
    };
    out::folder(out)?;
    apart(&folder, out)?;
    let stop = stop_on_signals()?;
    let options = Options { stop: &stop, stop_after: None, faults: &Faults::none(), ranks: None };
    let mut screen = Screen::new(&experiment);
    let end = train(&mut job, out, machine, &options, &mut screen);
    screen.clear();
    let computed = match end? {
        TrainOutcome::Finished(_) | TrainOutcome::Diverged { .. } => true,
        TrainOutcome::Already(_) => false,
        TrainOutcome::Interrupted { step } => {
            output::note(&format!(
                "interrupted after step {step}, with a checkpoint; the same command continues from there"
            ));
            return Ok(Exit::Interrupted);
        }
    };
    finish(args, &folder, &compared(&folder, out, &experiment)?, computed)
}

/// The experiment of a run's folder, and its lock's text.
fn locked(folder: &Path) -> Result<(Experiment, String), Failure> {
    let paths = Paths::new(folder);
    let lock = paths.lock();
    if !lock.exists() {
        return Err(refuse::not_a_run(folder));
    }
    if trained_elsewhere(&paths)? {
        let folder = shown(folder);
        return Err(Failure::bad_input(format!(
            "the run in `{folder}` was trained by another engine, whose bits canonc's kernels do not give"
        ))
        .help(format!("`canonc verify --replay {folder}` holds some of its steps to bounds")));
    }
    let text = workspace::read_lock_text(&lock)?;
    let experiment = experiment_from_text(&shown(&lock), &text)?;
    Ok((experiment, text))
}

/// Refuses a run that fails `canonc verify`: its files contradict each other, so it cannot be reproduced.
fn sound(folder: &Path, inputs: Inputs) -> Result<(), Failure> {
    let report = verify::verify(folder, inputs, Remake::Spread)?;
    let Some(first) = report.broken.first() else { return Ok(()) };
    let more = match report.broken.len() {
        1 => String::new(),
        n => format!(", and {} more", n - 1),
    };
    let message = format!("`{}` has faults: {first}{more}", shown(folder));
    Err(Failure { exit: Exit::Finding, ..Failure::bad_input(message) }
        .help(format!("`canonc verify {}` lists every fault", shown(folder))))
}

/// Refuses to write into the folder of the run to reproduce.
fn apart(folder: &Path, out: &Path) -> Result<(), Failure> {
    // For a folder that does not exist yet, use its first existing parent.
    let absolute = std::path::absolute(out).ok();
    let existing =
        absolute.iter().flat_map(|out| out.ancestors()).find_map(|part| part.canonicalize().ok());
    let is_inside = match (folder.canonicalize(), existing) {
        (Ok(folder), Some(existing)) => existing.starts_with(&folder),
        (Ok(_) | Err(_), Some(_) | None) => false,
    };
    match is_inside {
        false => Ok(()),
        true => Err(Failure::bad_input(format!(
            "--out `{}` is the run itself, or inside it",
            shown(out)
        ))
        .help("name another folder: the run to reproduce must not change")),
    }
}

fn compared(folder: &Path, other: &Path, experiment: &Experiment) -> Result<Reproduction, Failure> {
    let (theirs, _) = locked(other)?;
    if theirs.id() != experiment.id() {
        return Err(Failure::bad_input(format!(
            "`{}` is a run of lock {}, but `{}` of {}: two different experiments",
            shown(folder),
            experiment.id().short(),
            shown(other),
            theirs.id().short()
        ))
        .help(format!(
            "`canonc diff {} {}` lists the differences",
            shown(&Paths::new(folder).lock()),
            shown(&Paths::new(other).lock())
        )));
    }
    let (mine, other_eval) = (experiment.digests.eval, theirs.digests.eval);
    if mine != other_eval {
        return Err(Failure::bad_input(format!(
            "`{}` and `{}` are evaluated differently: evaluation sections {} and {}",
            shown(folder),
            shown(other),
            mine.short(),
            other_eval.short()
        ))
        .help(format!(
            "`canonc diff {} {}` lists the fields; give both runs the same [evaluation] and seeds.eval",
            shown(&Paths::new(folder).lock()),
            shown(&Paths::new(other).lock())
        )));
    }
    against(folder, other, experiment).map_err(Failure::from)
}

/// Progress for a command that writes no files.
struct Lines {
    every: u64,
    last: u64,
    terminal: bool,
}

impl Lines {
    fn new(experiment: &Experiment) -> Lines {
        Lines {
            every: experiment.log_every.max(1),
            last: experiment.budget.steps,
            terminal: std::io::stderr().is_terminal(),
        }
    }

    fn line(&self, text: &str) {
        if self.terminal {
            output::draw("\r\x1b[2K");
        }
        output::note(text);
    }
}

impl Observer for Lines {
    fn step(&mut self, step: &Step) {
        let text = format!("step {} of {}", step.step, self.last);
        if self.terminal {
            output::draw(&format!("\r\x1b[2K{text}"));
        } else if step.step.is_multiple_of(self.every) || step.step == self.last {
            self.line(&text);
        }
    }

    fn evaluation(&mut self, evaluation: &Evaluation) {
        self.line(&format!("evaluation after step {}", evaluation.step));
    }

    fn differs(&mut self, point: RunPoint, text: &str) {
        self.line(&format!("{} differs: {text}", point.text()));
    }
}

/// `computed` is whether any step was trained by this command.
fn finish(
    args: &ReproduceArgs,
    folder: &Path,
    reproduction: &Reproduction,
    computed: bool,
) -> Outcome {
    if args.json {
        output::json(&as_json(reproduction, computed))?;
    } else {
        if std::io::stderr().is_terminal() && args.out.is_none() && args.against.is_none() {
            output::draw("\r\x1b[2K");
        }
        let already = match (&args.out, computed) {
            (Some(out), false) => format!(
                "`{}` is already finished; nothing was trained, the folders are only compared\n",
                shown(out)
            ),
            (Some(_), true) | (None, _) => String::new(),
        };
        output::data(&(already + &as_text(reproduction)))?;
    }
    match &reproduction.first {
        None => Ok(Exit::Fine),
        Some(First { point, difference: Difference { maybe_rounding: true, .. }, .. }) => {
            Err(Failure::machine(format!(
                "{} differed, which rounding on another machine may explain",
                point.text()
            ))
            .help(
                "train the run again on a machine like the attested one, described in attestation.toml",
            ))
        }
        Some(First { point, .. }) => {
            let failure = Failure::bad_input(format!(
                "`{}` was not reproduced: {} is the first difference",
                shown(folder),
                point.text()
            ));
            Err(Failure { exit: Exit::Finding, ..failure })
        }
    }
}

fn as_text(reproduction: &Reproduction) -> String {
    let Reproduction {
        steps, of_steps, evaluations, without_questions, checkpoints, first, ..
    } = reproduction;
    let kept: Vec<String> = checkpoints.iter().map(u64::to_string).collect();
    let tensors = match kept.as_slice() {
        [] => "no checkpoint".to_owned(),
        kept => format!(
            "every tensor of {} (after step {})",
            output::counted(kept.len(), "checkpoint"),
            kept.join(", ")
        ),
    };
    let mut text = format!(
        "same bits: {steps} of {}, {}, {tensors}\n",
        output::counted(*of_steps, "step"),
        output::counted(*evaluations, "evaluation")
    );
    if *without_questions > 0 {
        text.push_str(&format!(
            "not compared: the scores of single questions of {}, which an older log does not have\n",
            output::counted(*without_questions, "evaluation")
        ));
    }
    if let Some(first) = first {
        text.push_str(&lines(first));
    }
    for fact in other_facts(reproduction) {
        text.push_str(&format!("other machine: {fact}\n"));
    }
    text
}

/// The facts that differ between the machines.
fn other_facts(reproduction: &Reproduction) -> &[String] {
    match &reproduction.platform {
        Platform::Same => &[],
        Platform::Other(facts) => facts,
    }
}

fn lines(first: &First) -> String {
    let First { point, difference, tensor, reasons, variants } = first;
    let mut lines = format!("first difference: {}: {}\n", point.text(), difference.text);
    match tensor {
        Some((step, Some(difference))) if *point != RunPoint::Checkpoint(*step) => {
            lines.push_str(&format!(
                "first tensor: at the checkpoint of step {step}, {}\n",
                difference.text()
            ));
        }
        Some((step, None)) => {
            lines.push_str(&format!(
                "first tensor: none; all agree at the checkpoint of step {step}\n"
            ));
        }
        Some((_, Some(_))) => {}
        None => lines.push_str("first tensor: unknown; there is no later checkpoint to compare\n"),
    }
    for reason in reasons {
        lines.push_str(&format!("where: {reason}\n"));
    }
    for Variant { name, gives_the_log, first } in variants {
        let log = if *gives_the_log {
            "gives the logged numbers"
        } else {
            "does not give the logged numbers either"
        };
        let operation = match first {
            None => "no operation changes".to_owned(),
            Some((step, operation)) => {
                format!("the first operation that changes is in step {step}, {operation}")
            }
        };
        lines.push_str(&format!("with {name}: {log}; {operation}\n"));
    }
    lines
}

fn as_json(reproduction: &Reproduction, computed: bool) -> Value {
    json!({
        "schema": "canonc.reproduce.v1",
        "computed": computed,
        "same": reproduction.first.is_none(),
        "steps": reproduction.steps,
        "of_steps": reproduction.of_steps,
        "evaluations": reproduction.evaluations,
        "evaluations_without_questions": reproduction.without_questions,
        "checkpoints": reproduction.checkpoints,
        "first": reproduction.first.as_ref().map(first_as_json),
        "platform": other_facts(reproduction),
    })
}

fn first_as_json(first: &First) -> Value {
    let First { point, difference, tensor, reasons, variants } = first;
    json!({
        "place": point.text(),
        "text": difference.text,
        "tensor": tensor.as_ref().map(|(step, difference)| json!({
            "checkpoint": step,
            "same": difference.is_none(),
            "text": difference.as_ref().map(records::checkpoint::StateDifference::text),
        })),
        "reasons": reasons,
        "variants": variants.iter().map(|Variant { name, gives_the_log, first }| json!({
            "name": name,
            "gives_the_log": gives_the_log,
            "step": first.as_ref().map(|(step, _)| step),
            "operation": first.as_ref().map(|(_, operation)| operation),
        })).collect::<Vec<_>>(),
        "maybe_rounding": difference.maybe_rounding,
    })
}
