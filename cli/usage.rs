//! Mistakes on the command line, in this program's words.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::command::Program;
use crate::fail::{Exit, Failure, Outcome};
use crate::{help, output};

/// Answers words that clap did not accept. Help and version are not errors.
pub(crate) fn answer(program: &Program, error: &clap::Error, argv: &[OsString]) -> Outcome {
    let kind = error.kind();
    if matches!(kind, ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let text = error.render();
        let text = if output::coloured_data() { text.ansi().to_string() } else { text.to_string() };
        output::styled(&text)?;
        return Ok(Exit::Fine);
    }
    if kind == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        output::notes(error.render().to_string().trim_end());
        return Err(Failure::shown(Exit::BadInput));
    }
    let command_line = help::command(program);
    let mut failure = Failure::bad_input(message(error));
    failure.help.extend(accepted(error));
    failure.help.extend(suggestions(error));
    if let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) {
        let usage = usage.to_string();
        let form = usage.strip_prefix("Usage: ").unwrap_or(&usage);
        failure.help.push(format!("the form is `{}`", form.trim_end()));
    }
    if let (ErrorKind::UnknownArgument, Some(option)) = (kind, text(error, ContextKind::InvalidArg))
    {
        failure.help.extend(commands_with(&command_line, option));
    }
    // For `canonc data generate`, keep both words.
    let (mut command, mut names) = (&command_line, Vec::new());
    for word in argv.iter().skip(1) {
        if let Some(inner) = command.find_subcommand(word) {
            command = inner;
            names.push(inner.get_name());
        }
    }
    Err(match names.is_empty() {
        false => failure.help(format!("`canonc {} --help` has examples", names.join(" "))),
        true => failure.help("`canonc --help` lists the commands"),
    })
}

fn text(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    let Some(ContextValue::String(text)) = error.get(kind) else { return None };
    Some(text)
}

fn texts(error: &clap::Error, kind: ContextKind) -> &[String] {
    match error.get(kind) {
        Some(ContextValue::Strings(texts)) => texts,
        Some(ContextValue::String(text)) => std::slice::from_ref(text),
        _ => &[],
    }
}

/// What is wrong, in one sentence.
#[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds name no value")]
fn message(error: &clap::Error) -> String {
    let argument = text(error, ContextKind::InvalidArg).unwrap_or_default();
    let value = text(error, ContextKind::InvalidValue).unwrap_or_default();
    let command = text(error, ContextKind::InvalidSubcommand).unwrap_or_default();
    match error.kind() {
        ErrorKind::InvalidValue if value.is_empty() => {
            format!("a value is required for `{argument}` but none was supplied")
        }
        ErrorKind::InvalidValue => format!("invalid value `{value}` for `{argument}`"),
        ErrorKind::ValueValidation => {
            let reason = std::error::Error::source(error).map(ToString::to_string);
            format!("invalid value `{value}` for `{argument}`: {}", reason.unwrap_or_default())
        }
        ErrorKind::InvalidSubcommand => format!("unrecognized subcommand `{command}`"),
        ErrorKind::MissingSubcommand => {
            format!("`{command}` requires a subcommand but one was not provided")
        }
        ErrorKind::UnknownArgument => format!("unexpected argument `{argument}` found"),
        ErrorKind::TooManyValues => {
            format!("unexpected value `{value}` for `{argument}` found; no more were expected")
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = texts(error, ContextKind::InvalidArg).join(" ");
            format!("the following required arguments were not provided: {missing}")
        }
        ErrorKind::ArgumentConflict => match texts(error, ContextKind::PriorArg) {
            [prior] if prior == argument => {
                format!("the argument `{argument}` cannot be used multiple times")
            }
            [prior]
                if matches!(error.get(ContextKind::PriorArg), Some(ContextValue::String(_))) =>
            {
                format!("the argument `{argument}` cannot be used with `{prior}`")
            }
            others => {
                format!("the argument `{argument}` cannot be used with: {}", others.join(" "))
            }
        },
        kind => kind.to_string(),
    }
}

/// The words that are accepted in place of the wrong one.
fn accepted(error: &clap::Error) -> Vec<String> {
    let kinds = [
        (ContextKind::ValidValue, "possible values"),
        (ContextKind::ValidSubcommand, "subcommands"),
    ];
    let lists = kinds.map(|(kind, what)| (what, texts(error, kind)));
    let lists = lists.into_iter().filter(|(_, words)| !words.is_empty());
    lists.map(|(what, words)| format!("{what}: {}", words.join(", "))).collect()
}

/// Similar words that exist.
fn suggestions(error: &clap::Error) -> Vec<String> {
    let kinds = [
        (ContextKind::SuggestedSubcommand, "subcommand"),
        (ContextKind::SuggestedArg, "argument"),
        (ContextKind::SuggestedValue, "value"),
    ];
    let mut all = Vec::new();
    for (kind, what) in kinds {
        let words: Vec<String> =
            texts(error, kind).iter().map(|word| format!("`{word}`")).collect();
        all.extend(match words.as_slice() {
            [] => None,
            [one] => Some(format!("a similar {what} exists: {one}")),
            several => Some(format!("some similar {what}s exist: {}", several.join(", "))),
        });
    }
    if let Some(ContextValue::StyledStrs(tips)) = error.get(ContextKind::Suggested) {
        let tips = tips.iter().map(|tip| tip.to_string().replace('\'', "`"));
        // How to pass the option's name as a value: nobody means that.
        all.extend(tips.filter(|tip| !tip.starts_with("to pass")));
    }
    all
}

/// Most commands that are named for an option; a long list of commands does not help.
const LISTED: usize = 8;

/// Commands that have an option, such as `--weights`.
fn commands_with(command_line: &clap::Command, option: &str) -> Option<String> {
    let name = option.strip_prefix("--")?;
    let has = |command: &&clap::Command| {
        command.get_arguments().any(|argument| argument.get_long() == Some(name))
    };
    let commands = command_line.get_subcommands().filter(|command| !command.is_hide_set());
    let names: Vec<String> =
        commands.filter(has).map(|command| format!("`canonc {}`", command.get_name())).collect();
    (1..=LISTED).contains(&names.len()).then(|| format!("`{option}` is for {}", names.join(", ")))
}

/// A word that is not a command.
pub(crate) fn unknown_command(program: &Program, word: &str) -> Failure {
    let failure = Failure::bad_input(format!("`{word}` is not a command"));
    match dsl::suggest(word, program.rows().map(|row| row.name)) {
        Some(near) => failure.help(format!("did you mean `canonc {near}`?")),
        None => failure.help("`canonc --help` lists the commands"),
    }
}

/// A word that is not a command of `command`, which `path` leads to.
pub(crate) fn unknown_inside(command: &clap::Command, path: &str, word: &str) -> Failure {
    let shown = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    let known: Vec<&str> = shown.map(clap::Command::get_name).collect();
    let failure = Failure::bad_input(format!("`{path}` has no command `{word}`"));
    match (dsl::suggest(word, known.iter().copied()), known.is_empty()) {
        (Some(near), _) => failure.help(format!("did you mean `{path} {near}`?")),
        (None, true) => {
            failure.help(format!("see `canonc help{}`", path.trim_start_matches("canonc")))
        }
        (None, false) => failure.help(format!("its commands are {}", known.join(", "))),
    }
}
