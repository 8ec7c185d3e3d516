//! The command line: reads argv, runs one command, and returns an exit code. Two binaries share it: `canonc`, which
//! links no libtorch and starts quickly, and `canonc-torch`, which `canonc` execs for commands that compute tensors.
//!
//! Must stay true: each command has a file of its own name and depends only on its arguments;
//! one renderer shows every error; everything runs on a thread with a stack large enough for
//! the deepest input that the compiler accepts.

pub mod archs;
pub mod args;
pub mod artifacts;
pub mod audit;
pub mod beside;
pub mod bind;
pub mod build;
pub mod check;
pub mod child;
pub mod claims;
pub mod compare;
pub mod compared;
pub mod completions;
pub mod data;
pub mod demo;
pub mod diff;
pub mod doctor;
pub mod eval;
pub mod explain;
pub mod export;
pub mod fail;
pub mod files;
pub mod fmt;
pub mod forecast;
pub mod foreign;
pub mod found;
pub mod graph;
pub mod help;
pub mod import;
pub mod live;
pub mod load;
pub mod locks;
pub mod looks;
pub mod lsp;
pub mod merge;
pub mod named;
pub mod new;
pub mod out;
pub mod output;
pub mod plan;
pub mod playground;
pub mod pytorch;
pub mod report;
pub mod runs;
pub mod scaling;
pub mod show;
pub mod shown;
pub mod sibling;
pub mod sign;
pub mod signals;
pub mod slurm;
pub mod tensors;
pub mod verify;
pub mod weights;
pub mod work;

use std::ffi::OsString;

use clap::FromArgMatches;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use args::{Cli, Command, When};
use fail::{Exit, Failure, Outcome};
use tensors::{Tensors, Work};

/// Stack size. It is reserved rather than used: pages are allocated when touched.
const STACK_BYTES: usize = 256 << 20;

/// Runs the command that this process was started with, and returns its exit code; everything is written by then.
/// `tensors` runs the parts that need libtorch.
pub fn main(tensors: &'static dyn Tensors) -> u8 {
    let thread = std::thread::Builder::new().name("canonc".to_owned()).stack_size(STACK_BYTES);
    match thread.spawn(|| start(tensors)) {
        // The panic hook has shown the panic; 101 is Rust's exit code for one.
        Ok(thread) => thread.join().unwrap_or_else(|_| {
            let _ = output::flush();
            101
        }),
        Err(error) => finish(Err(Failure::machine(format!(
            "a thread cannot be started: {}",
            fail::reason(&error)
        )))),
    }
}

fn start(tensors: &dyn Tensors) -> u8 {
    let argv: Vec<OsString> = std::env::args_os().collect();
    output::set_colour(colour(&argv));
    let mut command = help::command();
    let read = command.try_get_matches_from_mut(&argv).and_then(|found| {
        Cli::from_arg_matches(&found).map_err(|error| error.format(&mut command))
    });
    finish(match read {
        Ok(cli) => {
            output::set_loudness(cli.quiet, cli.verbose);
            dispatch(cli.command, tensors)
        }
        Err(error) => usage(&error, &argv),
    })
}

fn dispatch(command: Command, tensors: &dyn Tensors) -> Outcome {
    match command {
        Command::New(args) => new::new(&args),
        Command::Check(args) => check::check(&args),
        Command::Fmt(args) => fmt::fmt(&args),
        Command::Show(args) => show::show(&args),
        Command::Graph(args) => graph::graph(&args),
        Command::Build(args) => build::build(&args),
        Command::Bind(args) => bind::bind(&args),
        Command::Merge(args) => merge::merge(&args),
        Command::Diff(args) => diff::diff(&args),
        Command::Audit(args) => audit::audit(&args),
        Command::Run(args) => tensors.carry_out(Work::Run(&args)),
        Command::Verify(args) => verify::verify(&args, tensors),
        Command::Sign(args) => sign::sign(&args),
        Command::Reproduce(args) => tensors.carry_out(Work::Reproduce(&args)),
        Command::Compare(args) => compare::compare(&args, tensors),
        Command::Demo(args) => demo::demo(&args),
        Command::Playground(args) => playground::playground(&args),
        Command::Bench(args) => tensors.carry_out(Work::Bench(&args)),
        Command::Selftest(args) => tensors.carry_out(Work::Selftest(&args)),
        Command::Forward(args) => tensors.carry_out(Work::Forward(&args)),
        Command::Generate(args) => tensors.carry_out(Work::Generate(&args)),
        Command::Serve(args) => tensors.carry_out(Work::Serve(&args)),
        Command::Answer(args) => tensors.carry_out(Work::Answer(&args)),
        Command::Eval(args) => eval::eval(&args, tensors),
        Command::Export(args) => export::export(&args),
        Command::Import(args) => import::import(&args),
        Command::Plan(args) => plan::plan(&args),
        Command::Scaling(args) => scaling::scaling(&args),
        Command::Report(args) => report::report(&args),
        Command::Data(args) => data::data(&args),
        Command::Doctor(args) => doctor::doctor(&args, tensors),
        Command::Lsp(args) => lsp::lsp(&args),
        Command::Completions(args) => completions::completions(&args),
        Command::Man(args) => help::man(&args),
        Command::Help(args) => help::help(&args),
        Command::Unknown(words) => Err(unknown(&words)),
    }
}

fn finish(outcome: Outcome) -> u8 {
    let flushed = output::flush();
    let is_fine = outcome.as_ref().is_ok_and(|exit| *exit == Exit::Fine);
    match if is_fine { flushed.map(|()| Exit::Fine) } else { outcome } {
        Ok(exit) => exit.code(),
        Err(failure) => {
            output::failure(&failure);
            failure.exit.code()
        }
    }
}

/// The value of `--color`. It is needed before argv is parsed, since parsing can fail.
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

/// Shows clap's error in this program's words. Help and version are not errors.
fn usage(error: &clap::Error, argv: &[OsString]) -> Outcome {
    let text = error.render();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let text = if output::coloured_data() { text.ansi().to_string() } else { text.to_string() };
        output::styled(&text)?;
        return Ok(Exit::Fine);
    }
    let text = text.to_string();
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        output::notes(text.trim_end());
        return Err(Failure::shown(Exit::BadInput));
    }
    // clap's text has a paragraph with the error, then tips, then the usage line.
    let mut message = Vec::new();
    let mut help = Vec::new();
    for line in text.lines().map(str::trim).take_while(|line| !line.starts_with("For more")) {
        let listed = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Some(tip) = line.strip_prefix("tip: ").or(listed) {
            // How to pass the option's name as a value: nobody means that.
            if !tip.starts_with("to pass") {
                help.push(tip.to_owned());
            }
        } else if let Some(form) = line.strip_prefix("Usage: ") {
            help.push(format!("the form is `{form}`"));
        } else if !line.is_empty() {
            message.push(line.trim_start_matches("error: "));
        }
    }
    // clap quotes words with apostrophes; this program uses backticks.
    let mut failure = Failure::bad_input(message.join(" ").replace('\'', "`"));
    failure.help = help.into_iter().map(|line| line.replace('\'', "`")).collect();
    let cli = help::command();
    let option =
        error.get(ContextKind::InvalidArg).filter(|_| error.kind() == ErrorKind::UnknownArgument);
    if let Some(ContextValue::String(option)) = option {
        failure.help.extend(commands_with(&cli, option));
    }
    // For `canonc data generate`, keep both words.
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

/// Most commands that are named for an option; one of many commands says nothing.
const MOST: usize = 8;

/// Commands that have an option, such as `--weights`.
fn commands_with(cli: &clap::Command, option: &str) -> Option<String> {
    let name = option.strip_prefix("--")?;
    let has = |command: &&clap::Command| {
        command.get_arguments().any(|argument| argument.get_long() == Some(name))
    };
    let with = cli.get_subcommands().filter(|command| !command.is_hide_set()).filter(has);
    let with: Vec<String> =
        with.map(|command| format!("`canonc {}`", command.get_name())).collect();
    (1..=MOST).contains(&with.len()).then(|| format!("`{option}` is for {}", with.join(", ")))
}

/// Error for a word that is not a command of `inside`, or not a top-level command if `inside` is empty.
fn unknown_in(inside: &[OsString], word: &OsString) -> Failure {
    let mut command = help::command();
    let mut path = String::from("canonc");
    for step in inside {
        let step = step.to_string_lossy();
        let Some(found) = command.find_subcommand(&*step).cloned() else { break };
        command = found;
        path = format!("{path} {step}");
    }
    let word = word.to_string_lossy();
    let known: Vec<&str> = command
        .get_subcommands()
        .filter(|c| !c.is_hide_set())
        .map(clap::Command::get_name)
        .collect();
    let failure = Failure::bad_input(format!("`{path}` has no command `{word}`"));
    match (dsl::suggest(&word, known.iter().copied()), known.is_empty()) {
        (Some(near), _) => failure.help(format!("did you mean `{path} {near}`?")),
        (None, true) => {
            failure.help(format!("see `canonc help{}`", path.trim_start_matches("canonc")))
        }
        (None, false) => failure.help(format!("its commands are {}", known.join(", "))),
    }
}

/// Error for an unknown command.
fn unknown(words: &[OsString]) -> Failure {
    let word = words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
    let cli = help::command();
    let known = cli.get_subcommands().map(clap::Command::get_name);
    let failure = Failure::bad_input(format!("`{word}` is not a command"));
    match dsl::suggest(&word, known) {
        Some(near) => failure.help(format!("did you mean `canonc {near}`?")),
        None => failure.help("`canonc --help` lists the commands"),
    }
}
