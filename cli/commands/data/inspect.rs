//! `canonc data inspect`: shows samples of a task, or the windows of a lock.

use std::path::{Path, PathBuf};

use clap::Args;
use data::batch::Batch;
use data::inspect::inspect as inspect_sample;
use data::text::tokenizer::{Info, Kind, MarkNames, Tokenizer};
use data::text::{BOS, EOS};
use dsl::quote::turns;
use lab::experiment::{DataSource, Experiment, Tokenizer as Locked};
use tasks::task::{self, Definition};

use super::windows::{LockedWindows, WindowArgs};
use super::{SampleOptions, at_least_one, stream_of};
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::workspace::{self, Target};
use crate::{output, tokenizer};

/// Show samples with their structure (cycle, graph, expression, parse tree), or a lock's windows
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc data inspect mano --set L=4
  canonc data inspect brevo --set N=12 --seed 7 --count 3
  canonc data inspect lano --set config=cfg3b --order indexed --from 1000000
  canonc data inspect lockfiles/c4_llama.lock --from 640 --count 3
  canonc data inspect lockfiles/c4_llama.lock --held-out

For a task, answers are computed again from the sample itself: `right` means that both agree. For a lock, windows are
shown as training reads them: as text if tokens are bytes or --tokenizer-file is given, else as numbers.")]
pub(super) struct InspectArgs {
    /// A task, or the lock of an experiment
    #[arg(value_name = "TASK|LOCK", value_parser = task_or_lock)]
    pub of: String,
    #[command(flatten)]
    pub options: SampleOptions,
    #[command(flatten)]
    pub windows: WindowArgs,
    /// The file of the lock's tokenizer, to show text
    #[arg(long, value_name = "FILE")]
    pub tokenizer_file: Option<PathBuf>,
    /// Number of samples or windows
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = at_least_one)]
    pub count: u64,
}

fn task_or_lock(text: &str) -> Result<String, String> {
    match Definition::find(text).is_some()
        || !matches!(workspace::resolve(Path::new(text)), Ok(Target::Missing(_)))
    {
        true => Ok(text.to_owned()),
        false => {
            Err(format!("it is neither a task ({}) nor a lock nor a run", task::names().join(", ")))
        }
    }
}

pub(super) fn inspect(args: &InspectArgs) -> Outcome {
    match Definition::find(&args.of).is_some() {
        true => inspect_samples(args),
        false => inspect_windows(args),
    }
}

fn inspect_samples(args: &InspectArgs) -> Outcome {
    let WindowArgs { data, held_out } = &args.windows;
    if data.is_some() || *held_out || args.tokenizer_file.is_some() {
        return Err(Failure::bad_input(format!(
            "--data, --held-out and --tokenizer-file need a lock, but `{}` is a task",
            args.of
        ))
        .help("name the lock of an experiment: lockfiles/NAME.lock"));
    }
    let mut stream = stream_of(&args.of, &args.options, args.count)?;
    for number in 0..args.count {
        let gap = if number > 0 { "\n" } else { "" };
        output::data(&format!("{gap}{}", inspect_sample(&mut stream)))?;
    }
    Ok(Exit::Fine)
}

fn inspect_windows(args: &InspectArgs) -> Outcome {
    let options = &args.options;
    if !options.set.is_empty() || options.mode.is_some() {
        return Err(Failure::bad_input("--set and --mode are for tasks; a lock fixes both")
            .help("remove them, or name a task"));
    }
    let lock = PathBuf::from(&args.of);
    let mut locked = LockedWindows::read(&lock, &args.windows)?;
    let from = options.from;
    locked.go_to(from, args.count)?;
    let LockedWindows { experiment, mut windows, info, .. } = locked;
    let decoder = Decoder::new(&experiment, info, args.tokenizer_file.as_deref())?;
    let mut batch = Batch::default();
    for number in from..from + args.count {
        windows.fill(number..number + 1, &mut batch)?;
        let tokens = batch.inputs();
        let counted = batch.counted_targets();
        let text = decoder.text(tokens)?;
        let gap = if number > from { "\n" } else { "" };
        output::data(&format!(
            "{gap}window {number}: {}, {} counted\n{text}\n",
            output::counted(tokens.len() as u64, "token"),
            output::counted(counted, "target")
        ))?;
    }
    Ok(Exit::Fine)
}

/// Shows tokens as text.
struct Decoder {
    /// `None` if they are shown as numbers.
    tokenizer: Option<Tokenizer>,
    marks: [Option<u32>; 2],
}

impl Decoder {
    fn new(
        experiment: &Experiment,
        info: Option<Info>,
        path: Option<&Path>,
    ) -> Result<Decoder, Failure> {
        let numbers = Decoder { tokenizer: None, marks: [None, None] };
        let bytes =
            || Decoder { tokenizer: Some(Tokenizer::bytes()), marks: [Some(BOS), Some(EOS)] };
        let needless = || {
            Failure::bad_input(
                "--tokenizer-file is given, but these tokens were made without a tokenizer file",
            )
            .help("remove it")
        };
        match (&experiment.data.source, path) {
            (DataSource::Text { tokenizer: Locked::File { kind, .. }, .. }, Some(path)) => {
                let tokenizer =
                    tokenizer::read(Kind::File(*kind), Some(path), MarkNames::default())?;
                let marks = info.map_or([None, None], |info| [info.bos, info.eos]);
                // The marks around documents do not affect how the other tokens are shown.
                let Info { vocab, .. } = *tokenizer.info();
                match info.filter(|info| info.vocab != vocab || info.kind != tokenizer.info().kind) {
                    None => Ok(Decoder { tokenizer: Some(tokenizer), marks }),
                    Some(info) => Err(Failure::bad_input(format!(
                        "the documents were prepared with a tokenizer of {} ids, but `{}` has {vocab}",
                        info.vocab,
                        shown(path)
                    ))
                    .help("name the tokenizer file that they were prepared with")),
                }
            }
            (DataSource::Text { tokenizer: Locked::File { .. }, .. }, None) => Ok(numbers),
            (DataSource::Text { .. } | DataSource::Task { .. }, Some(_)) => Err(needless()),
            (DataSource::Text { tokenizer: Locked::Bytes, .. }, None) => Ok(bytes()),
            (DataSource::Task { task, ids, .. }, None) => {
                let published = *ids == lab::experiment::Ids::Published;
                Ok(if task.is_text() && published { bytes() } else { numbers })
            }
        }
    }

    fn text(&self, tokens: &[i64]) -> Result<String, Failure> {
        let Some(tokenizer) = &self.tokenizer else {
            let ids: Vec<String> = tokens.iter().map(i64::to_string).collect();
            return Ok(ids.join(" "));
        };
        let ids: Vec<u32> = tokens.iter().filter_map(|id| u32::try_from(*id).ok()).collect();
        let mut text = String::new();
        // A mark is shown by name, between the texts around it.
        let is_mark = |id: &u32| self.marks.contains(&Some(*id));
        for piece in ids.chunk_by(|one, two| !is_mark(one) && !is_mark(two)) {
            match piece {
                [id] if self.marks.first() == Some(&Some(*id)) => text.push_str("<bos>"),
                [id] if is_mark(id) => text.push_str("<eos>"),
                piece => {
                    let bytes = tokenizer.decode(piece).map_err(|why| {
                        Failure::bad_input(format!("these tokens are not text: {why}"))
                    })?;
                    text.extend(String::from_utf8_lossy(&bytes).chars().map(visible));
                }
            }
        }
        Ok(text)
    }
}

/// Replaces a control character by its picture: text must not control a terminal.
fn visible(c: char) -> char {
    match c {
        '\n' | '\t' => c,
        '\u{7f}' => '\u{2421}',
        '\0'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}'),
        c if c.is_control() || turns(c) => '\u{fffd}',
        c => c,
    }
}
