//! A log: which series of a file are its losses, norms, learning rates and tokens.

use std::collections::BTreeMap;

use disk::content::{Content, START};
use dsl::Problem;

use crate::columns::{self, brief};
use crate::events;
use crate::json::{self, HISTORY};
use crate::program::{Format, Names, Program, Quantity, STEPS, UNKNOWN_LOSS};
use crate::series::{Points, Series, ascending, step_of};

/// Most bytes of a log.
pub const MOST_BYTES: u64 = 256 << 20;

/// A log of another program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// The program that writes such files, if it is known.
    pub program: Option<&'static str>,
    /// The series that were read, with their names in the file.
    pub names: BTreeMap<Quantity, String>,
    /// Training losses.
    pub loss: Points,
    /// What each loss is, such as a mean over 10 steps.
    pub loss_is: String,
    /// Norms of the gradients.
    pub grad_norm: Points,
    /// Learning rates.
    pub lr: Points,
    /// Tokens so far.
    pub tokens: Points,
    /// Sequences of a step.
    pub sequences: Points,
    /// The last step.
    pub reached: u64,
    /// The steps that the program was to train, if the file says so.
    pub planned: Option<u64>,
    /// Sequences that one device trains at a time, if the file says so.
    pub device_sequences: Option<u64>,
    /// What a reader has to know, in sentences.
    pub notes: Vec<String>,
}

/// A file as far as its form is known.
struct Contents {
    format: Format,
    series: Series,
    /// The other numbers of the file.
    numbers: BTreeMap<String, f64>,
    notes: Vec<String>,
    /// Runs that the columns of a table are of.
    runs: Vec<String>,
}

impl Contents {
    fn new(format: Format, series: Series) -> Contents {
        Contents { format, series, numbers: BTreeMap::new(), notes: Vec::new(), runs: Vec::new() }
    }
}

/// Reads a log from the bytes of a file; `file` is its name in errors.
pub fn parse(file: &str, bytes: &[u8], names: &Names) -> Result<Log, Problem> {
    let own_step: Vec<&str> = names.get(Quantity::Step).into_iter().collect();
    let steps = if own_step.is_empty() { &STEPS[..] } else { &own_step };
    let contents = contents(file, bytes, steps)?;
    if contents.series.names().next().is_none() {
        return Err(no_numbers(file, &contents, steps));
    }
    let program = Program::of(contents.format, |name| contents.series.get(name).is_some());
    let chosen = choose(file, &contents, program, names)?;
    let mut log = Log {
        program: program.map(|program| program.title),
        loss_is: program.map_or(UNKNOWN_LOSS, |program| program.loss).to_owned(),
        notes: contents.notes.clone(),
        ..Log::default()
    };
    for (quantity, name) in &chosen {
        let points = points(file, &contents, *quantity, name, &mut log.notes)?;
        let last = points.last().map_or(0, |(step, _)| *step);
        log.reached = log.reached.max(last);
        match quantity {
            Quantity::Step => {}
            Quantity::Loss => log.loss = points,
            Quantity::GradNorm => log.grad_norm = points,
            Quantity::Lr => log.lr = points,
            Quantity::Tokens => log.tokens = points,
            Quantity::Sequences => log.sequences = points,
        }
    }
    log.names = chosen;
    let whole = |name: &str| contents.numbers.get(name).copied().and_then(step_of);
    log.planned = whole("max_steps").filter(|steps| *steps > 0);
    log.device_sequences = whole("train_batch_size").filter(|sequences| *sequences > 0);
    log.reached = log.reached.max(whole("global_step").unwrap_or(0));
    log.describe_losses();
    Ok(log)
}

/// Reads a file in the format that its bytes show.
fn contents(file: &str, bytes: &[u8], steps: &[&str]) -> Result<Contents, Problem> {
    if events::is_events(bytes) {
        return event_file(file, bytes);
    }
    let text = text(file, bytes)?;
    let first = text.trim_start().lines().next().unwrap_or_default();
    // Of lines, the first one is whole.
    match first.starts_with('{') {
        true if first.contains(HISTORY) || !first.trim_end().ends_with('}') => {
            state(file, text, steps)
        }
        true => lines(file, text, steps),
        false if first.contains([',', ';', '\t']) => table(file, text, steps),
        false => Err(Problem::in_file(file, "this is no log that canonc reads", READABLE)),
    }
}

fn event_file(file: &str, bytes: &[u8]) -> Result<Contents, Problem> {
    let (series, torn) = events::read(bytes)
        .map_err(|message| Problem::in_file(file, message, "name another event file"))?;
    let mut contents = Contents::new(Format::Events, series);
    if torn > 0 {
        let lost = dsl::counted(torn, "byte");
        contents.notes.push(format!("its last {lost} are torn or damaged, and are not read"));
    }
    Ok(contents)
}

fn state(file: &str, text: &str, steps: &[&str]) -> Result<Contents, Problem> {
    let state = json::state(text, steps).map_err(|message| {
        Problem::in_file(file, message, "copy the file again, once its program has written it")
    })?;
    if !state.has_history {
        let message = format!("it has no `{HISTORY}`, so it is no trainer_state.json");
        return Err(Problem::in_file(file, message, READABLE));
    }
    let contents = Contents::new(Format::State, state.series);
    Ok(Contents { numbers: state.numbers, ..contents })
}

fn lines(file: &str, text: &str, steps: &[&str]) -> Result<Contents, Problem> {
    let (series, torn) = json::lines(text, steps).map_err(|(line, message)| {
        let help = "remove this line, or name another file";
        Problem::in_file(format!("{file}:{line}"), message, help)
    })?;
    let mut contents = Contents::new(Format::Lines, series);
    if torn {
        contents.notes.push("its last line is torn, and is not read".to_owned());
    }
    Ok(contents)
}

fn table(file: &str, text: &str, steps: &[&str]) -> Result<Contents, Problem> {
    let table = columns::read(text, steps).map_err(|(line, message)| {
        let help =
            "the first line names the columns; `--metric step=COLUMN` names that of the step";
        Problem::in_file(format!("{file}:{line}"), message, help)
    })?;
    let mut contents = Contents::new(Format::Table, table.series);
    if OWN_STEPS.contains(&table.step.as_str()) {
        contents.notes.push(format!(
            "steps are those of the column `{}`: W&B counts calls of its logger, which need not be optimiser steps",
            table.step
        ));
    }
    Ok(Contents { runs: table.runs.into_iter().collect(), ..contents })
}

/// Columns in which W&B counts for itself.
const OWN_STEPS: [&str; 2] = ["Step", "_step"];

const READABLE: &str = "name a trainer_state.json of transformers, JSON lines such as Lingua's metrics.jsonl, \
                        a CSV export of Weights & Biases, or an event file of TensorBoard";

/// The text of a file.
fn text<'a>(file: &str, bytes: &'a [u8]) -> Result<&'a str, Problem> {
    if bytes.trim_ascii().is_empty() {
        return Err(Problem::in_file(file, "it is empty", READABLE));
    }
    let text = str::from_utf8(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes));
    text.map_err(|_| {
        let content = Content::of_start(bytes.get(..START).unwrap_or(bytes));
        let message = match content == Content::Other {
            true => "it is neither text in UTF-8 nor an event file".to_owned(),
            false => format!("it is {}, not a log", content.name()),
        };
        Problem::in_file(file, message, content.help().unwrap_or(READABLE))
    })
}

fn no_numbers(file: &str, contents: &Contents, steps: &[&str]) -> Problem {
    let left_out = contents.series.left_out;
    if contents.format == Format::Events {
        let help =
            "name the file of the run's scalars; values that are stored as tensors are not read";
        return Problem::in_file(file, "this event file has no scalars", help);
    }
    if left_out == 0 {
        return Problem::in_file(file, "this log has no rows with numbers", READABLE);
    }
    let steps: Vec<String> = steps.iter().map(|step| format!("`{}`", brief(step))).collect();
    let rows = dsl::counted(left_out, "row");
    let message = format!("it has {rows}, but no step under {}", steps.join(" or "));
    Problem::in_file(file, message, "`--metric step=NAME` names the step")
}

/// The name of each quantity in this file.
fn choose(
    file: &str,
    contents: &Contents,
    program: Option<&Program>,
    names: &Names,
) -> Result<BTreeMap<Quantity, String>, Problem> {
    let series = &contents.series;
    let mut chosen = BTreeMap::new();
    for (quantity, name) in names.iter().filter(|(quantity, _)| *quantity != Quantity::Step) {
        // With one run in a table, its name may be left out.
        let known = [name, columns::metric(name)].into_iter().find(|n| series.get(n).is_some());
        let known = known.ok_or_else(|| {
            let similar = dsl::suggest(name, series.names().map(|(name, _)| name));
            let similar = similar.map_or(String::new(), |name| format!("did you mean `{name}`? "));
            let message = format!("it has no `{}`, named as {}", brief(name), quantity.word());
            Problem::in_file(file, message, format!("{similar}its names are {}", listed(series)))
        })?;
        chosen.insert(quantity, known.to_owned());
    }
    let of_program = |quantity: Quantity| program.and_then(|program| program.name(quantity));
    for quantity in Quantity::ALL {
        if let Some(name) = of_program(quantity).filter(|name| series.get(name).is_some()) {
            chosen.entry(quantity).or_insert_with(|| name.to_owned());
        }
    }
    match (chosen.is_empty(), contents.runs.as_slice()) {
        (false, _) => Ok(chosen),
        (true, [_, _, ..]) => {
            let runs: Vec<String> =
                contents.runs.iter().take(8).map(|run| format!("`{}`", brief(run))).collect();
            let message = format!(
                "this table is of {} runs: {}{}",
                contents.runs.len(),
                runs.join(", "),
                if contents.runs.len() > runs.len() { ", …" } else { "" }
            );
            let help = format!(
                "name the columns of one, as in `--metric 'loss=RUN - METRIC'`: {}",
                listed(series)
            );
            Err(Problem::in_file(file, message, help))
        }
        (true, _) => {
            let help = format!(
                "say what its names are, as in `--metric loss=NAME --metric lr=NAME`: {}",
                listed(series)
            );
            Err(Problem::in_file(file, "no known program writes these names", help))
        }
    }
}

/// Names with numbers, without the ranges of W&B.
fn listed(series: &Series) -> String {
    const MOST: usize = 24;
    let names = || series.names().filter(|(name, _)| !is_range(name));
    let shown: Vec<String> =
        names().take(MOST).map(|(name, _)| format!("`{}`", brief(name))).collect();
    match names().count().checked_sub(MOST).filter(|more| *more > 0) {
        Some(more) => format!("{} and {more} more", shown.join(", ")),
        None => shown.join(", "),
    }
}

const RANGE: [&str; 2] = ["__MIN", "__MAX"];

fn is_range(name: &str) -> bool {
    RANGE.iter().any(|end| name.ends_with(end))
}

/// The points of a quantity, in order; what has to be said of them is added to the notes.
fn points(
    file: &str,
    contents: &Contents,
    quantity: Quantity,
    name: &str,
    notes: &mut Vec<String>,
) -> Result<Points, Problem> {
    let series = &contents.series;
    if let Some((row, text)) = series.text(name) {
        let message = format!("`{name}` is `{}`, which is no number", brief(text));
        let help = format!("remove it, or name another series as {}", quantity.word());
        return Err(Problem::in_file(format!("{file}:{row}"), message, help));
    }
    let points = series.get(name).map_or(&[][..], Vec::as_slice);
    let ordered = ascending(points, contents.format.is_appended()).map_err(|(before, step)| {
        let message = format!("`{name}` goes from step {before} to step {step}");
        let help = "keep the rows of one run, in the order of steps";
        Problem::in_file(file, message, help)
    })?;
    if let Some((before, step)) = ordered.again {
        notes.push(format!(
            "`{name}` goes back from step {before} to {step}: of steps that are logged twice, the last counts"
        ));
    }
    let mut points = ordered.points;
    let bits = |end: &str| -> BTreeMap<u64, u64> {
        let points = series.get(&format!("{name}{end}")).into_iter().flatten();
        points.map(|(step, value)| (*step, value.to_bits())).collect()
    };
    let [least, most] = RANGE.map(bits);
    let is_exported = !least.is_empty() && !most.is_empty();
    let of_several = |step: &u64| is_exported && least.get(step) != most.get(step);
    let means = points.iter().filter(|(step, _)| of_several(step)).count();
    if means > 0 {
        let kept = matches!(quantity, Quantity::Loss | Quantity::GradNorm);
        let ending = if kept { "" } else { ", and are not read" };
        notes.push(format!(
            "{means} of {} points of `{name}` are means over several steps{ending}",
            points.len()
        ));
        points.retain(|(step, _)| kept || !of_several(step));
    }
    Ok(points)
}

impl Log {
    /// The steps between the last two points, 1 if there are not two: a log that ends so much before a run may be whole.
    pub(crate) fn gap(&self) -> u64 {
        let series = [&self.loss, &self.lr, &self.tokens, &self.grad_norm, &self.sequences];
        let gap = |points: &&Points| match points.as_slice() {
            [.., (a, _), (b, _)] => Some(b - a),
            _ => None,
        };
        series.iter().filter_map(gap).max().unwrap_or(1)
    }

    /// Says how many steps a mean is over, and where losses are no numbers.
    fn describe_losses(&mut self) {
        if self.loss_is.starts_with("mean") {
            match even_gap(&self.loss) {
                Some(1) => self.loss_is = "of the step".to_owned(),
                Some(gap) => self.loss_is = format!("mean over {gap} steps"),
                None => {}
            }
        }
        let lost = self.loss.iter().filter(|(_, loss)| !loss.is_finite());
        if let Some((step, loss)) = lost.clone().next() {
            let count = lost.count();
            self.notes.push(format!(
                "the loss is {loss} at step {step}, and no number at {count} points"
            ));
        }
    }
}

/// The distance between points, if all have the same.
fn even_gap(points: &[(u64, f64)]) -> Option<u64> {
    // The first and the last point may be out of step: `logging_first_step`, the end of training.
    let inner = points.get(1..points.len().saturating_sub(1)).unwrap_or_default();
    let mut gaps = inner.windows(2).filter_map(|two| match two {
        [(a, _), (b, _)] => Some(b - a),
        _ => None,
    });
    let gap = gaps.next()?;
    gaps.all(|other| other == gap).then_some(gap)
}
