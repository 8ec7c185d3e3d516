//! The `canonc` binary: argv in, one command run, an exit code out.
//!
//! Must stay true: commands live in the file of their name and take their arguments alone; every
//! error is shown by one renderer; the whole of it runs on a thread whose stack is large enough for
//! the deepest input that the compiler's bounds let through.

#[cfg(feature = "torch")]
mod answer;
mod args;
mod artifacts;
mod audit;
#[cfg(feature = "torch")]
mod bench;
mod bind;
mod build;
mod check;
#[cfg(feature = "torch")]
mod child;
#[cfg(feature = "torch")]
mod compare;
mod compared;
mod completions;
mod data;
#[cfg(feature = "torch")]
mod demo;
mod diff;
mod doctor;
mod explain;
mod export;
mod fail;
mod files;
mod fmt;
#[cfg(feature = "torch")]
mod forward;
mod found;
#[cfg(feature = "torch")]
mod generate;
mod graph;
mod help;
mod import;
mod load;
mod locks;
mod looks;
mod new;
mod out;
mod output;
mod plan;
#[cfg(feature = "torch")]
mod playground;
#[cfg(feature = "torch")]
mod prompts;
mod report;
#[cfg(feature = "torch")]
mod reproduce;
#[cfg(feature = "torch")]
mod run;
mod runs;
mod scaling;
mod show;
mod shown;
mod sign;
mod signals;
#[cfg(feature = "torch")]
mod step_times;
mod verify;
mod weights;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::FromArgMatches;
use clap::error::ErrorKind;

use args::{Cli, Command, NEEDS_TORCH, When};
use fail::{Exit, Failure, Outcome};

/// Reserved, not used: pages are taken when they are touched.
const STACK_BYTES: usize = 256 << 20;

fn main() -> ExitCode {
    let thread = std::thread::Builder::new().name("canonc".to_owned()).stack_size(STACK_BYTES);
    match thread.spawn(start) {
        // A panic has been shown by its hook; 101 is what Rust ends with.
        Ok(thread) => thread.join().unwrap_or(ExitCode::from(101)),
        Err(error) => finish(Err(Failure::machine(format!(
            "this machine does not let a thread start: {}",
            fail::reason(&error)
        )))),
    }
}

fn start() -> ExitCode {
    let argv: Vec<OsString> = std::env::args_os().collect();
    output::set_colour(colour(&argv));
    let mut command = help::command();
    let read = command.try_get_matches_from_mut(&argv).and_then(|found| {
        Cli::from_arg_matches(&found).map_err(|error| error.format(&mut command))
    });
    finish(match read {
        Ok(cli) => {
            output::set_loudness(cli.quiet, cli.verbose);
            dispatch(cli.command)
        }
        Err(error) => usage(&error, &argv),
    })
}

fn dispatch(command: Command) -> Outcome {
    match command {
        Command::New(args) => new::new(&args),
        Command::Check(args) => check::check(&args),
        Command::Fmt(args) => fmt::fmt(&args),
        Command::Show(args) => show::show(&args),
        Command::Graph(args) => graph::graph(&args),
        Command::Build(args) => build::build(&args),
        Command::Bind(args) => bind::bind(&args),
        Command::Diff(args) => diff::diff(&args),
        Command::Audit(args) => audit::audit(&args),
        #[cfg(feature = "torch")]
        Command::Run(args) => run::run(&args),
        Command::Verify(args) => verify::verify(&args),
        Command::Sign(args) => sign::sign(&args),
        #[cfg(feature = "torch")]
        Command::Reproduce(args) => reproduce::reproduce(&args),
        #[cfg(feature = "torch")]
        Command::Compare(args) => compare::compare(&args),
        #[cfg(feature = "torch")]
        Command::Demo(args) => demo::demo(&args),
        #[cfg(feature = "torch")]
        Command::Playground(args) => playground::playground(&args),
        #[cfg(feature = "torch")]
        Command::Bench(args) => bench::bench(&args),
        #[cfg(feature = "torch")]
        Command::Forward(args) => forward::forward(&args),
        #[cfg(feature = "torch")]
        Command::Generate(args) => generate::generate(&args),
        #[cfg(feature = "torch")]
        Command::Answer(args) => answer::answer(&args),
        Command::Export(args) => export::export(&args),
        Command::Import(args) => import::import(&args),
        Command::Plan(args) => plan::plan(&args),
        Command::Scaling(args) => scaling::scaling(&args),
        Command::Report(args) => report::report(&args),
        Command::Data(args) => data::data(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Completions(args) => completions::completions(&args),
        Command::Man(args) => help::man(&args),
        Command::Help(args) => help::help(&args),
        Command::Unknown(words) => Err(unknown(&words)),
    }
}

fn finish(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(exit) => exit.into(),
        Err(failure) => {
            output::failure(&failure);
            failure.exit.into()
        }
    }
}

/// What `--color` says, needed before argv is read, since reading it can fail.
fn colour(argv: &[OsString]) -> When {
    let words: Vec<&str> = argv.iter().map(|word| word.to_str().unwrap_or("")).collect();
    let mut when = When::Auto;
    for (word, next) in words.iter().zip(words.iter().skip(1).chain(&[""])) {
        let value = if *word == "--color" { Some(*next) } else { word.strip_prefix("--color=") };
        match value {
            Some("always") => when = When::Always,
            Some("never") => when = When::Never,
            Some(_) | None => {}
        }
    }
    when
}

/// What clap found wrong, in this program's words; help and version are no errors.
fn usage(error: &clap::Error, argv: &[OsString]) -> Outcome {
    let text = error.render();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let text = if output::coloured_data() { text.ansi().to_string() } else { text.to_string() };
        output::styled(&text)?;
        return Ok(Exit::Fine);
    }
    let text = text.to_string();
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        output::note(text.trim_end());
        return Err(Failure::shown(Exit::BadInput));
    }
    // A paragraph that says what is wrong, then tips, then the form.
    let mut message = Vec::new();
    let mut help = Vec::new();
    for line in text.lines().map(str::trim).take_while(|line| !line.starts_with("For more")) {
        let listed = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Some(tip) = line.strip_prefix("tip: ").or(listed) {
            help.push(tip.to_owned());
        } else if let Some(form) = line.strip_prefix("Usage: ") {
            help.push(format!("the form is `{form}`"));
        } else if !line.is_empty() {
            message.push(line.trim_start_matches("error: "));
        }
    }
    // clap quotes words with apostrophes, the rest of this program as code.
    let mut failure = Failure::bad_input(message.join(" ").replace('\'', "`"));
    failure.help = help.into_iter().map(|line| line.replace('\'', "`")).collect();
    let cli = help::command();
    // Of `canonc data generate` both words.
    let (mut command, mut names) = (&cli, Vec::new());
    for word in argv.iter().skip(1) {
        if let Some(found) = command.find_subcommand(word) {
            command = found;
            names.push(found.get_name());
        }
    }
    Err(match names.is_empty() {
        false => failure.help(format!("`canonc {} --help` has examples", names.join(" "))),
        true => failure.help("`canonc --help` lists the commands"),
    })
}

/// A word in the place of a command.
fn unknown(words: &[OsString]) -> Failure {
    let word = words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
    if cfg!(not(feature = "torch")) && NEEDS_TORCH.contains(&word.as_ref()) {
        return Failure::without_torch(&word);
    }
    let cli = help::command();
    let known = cli.get_subcommands().map(clap::Command::get_name).chain(NEEDS_TORCH);
    let failure = Failure::bad_input(format!("there is no command `{word}`"));
    match dsl::suggest(&word, known) {
        Some(near) => failure.help(format!("did you mean `canonc {near}`?")),
        None => failure.help("`canonc --help` lists the commands"),
    }
}
