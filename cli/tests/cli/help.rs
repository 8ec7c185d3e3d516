//! Help at any width, and the definitions of the commands.

use clap::Command;
use cli::command::{Program, Row};
use cli::extensions::Extensions;
use cli::help::{reflow, visible};

const PROGRAM: Program =
    Program { commands: &[cli::commands::COMMANDS], extensions: Extensions::NONE, tensors: &[] };

#[test]
fn commands_differ_in_name_and_place() {
    let mut rows: Vec<&Row> = PROGRAM.rows().collect();
    rows.sort_by_key(|row| row.listed);
    assert!(rows.is_sorted_by(|one, other| one.listed < other.listed), "{rows:?}");
    rows.sort_by_key(|row| row.name);
    assert!(rows.is_sorted_by(|one, other| one.name < other.name), "{rows:?}");
}

#[test]
fn clap_accepts_the_definitions() {
    PROGRAM.command_line().debug_assert();
    visible(&PROGRAM.command_line()).debug_assert();
}

/// Every line of every help fits the width, and no text is lost.
#[test]
fn help_is_wrapped_once_at_any_width() {
    fn words(text: &str) -> String {
        let words = text.split_whitespace().filter(|word| *word != "\\");
        words.collect::<Vec<_>>().join(" ")
    }
    fn visit(command: &Command, seen: &mut usize) {
        for text in [command.get_after_help(), command.get_after_long_help()].into_iter().flatten()
        {
            let text = text.to_string();
            for width in [60, 80, 100] {
                let made = reflow(&text, width);
                assert_eq!(words(&made), words(&text));
                for line in made.lines() {
                    let one_word = line.trim_start().split(' ').count() == 1;
                    assert!(line.chars().count() <= width || one_word, "{line}");
                }
                *seen += 1;
            }
        }
        command.get_subcommands().for_each(|inner| visit(inner, seen));
    }
    let mut seen = 0;
    visit(&PROGRAM.command_line(), &mut seen);
    assert!(seen > 60);
}

/// Lists stay lists, and a command that continues on the next line ends with a backslash.
#[test]
fn lists_and_commands() {
    let text = "hf      config.json and what goes with it, on a line that is long,\n        \
                and more of it\ncard    README.md\n\n  lists, each\n    path, a    the field\n    \
                at_a       its line\nA line of prose that is long enough to go on in the one below,\n\
                Schema of --json: {a}.\n  canonc forward NAME.canon --weights w.safetensors --tokens t";
    assert_eq!(
        reflow(text, 48),
        "hf      config.json and what goes with it, on a\n        line that is long, and more of it\n\
         card    README.md\n\n  lists, each\n    path, a    the field\n    at_a       its line\n\
         A line of prose that is long enough to go on in\nthe one below,\nSchema of --json: {a}.\n  \
         canonc forward NAME.canon --weights \\\n    w.safetensors --tokens t"
    );
}

#[test]
fn joins_and_wraps() {
    let text = "Examples:\n  canonc a          short\n  name, lock   of the lock: its name\n               and its id\n\n\
                A line of prose that is long enough to go on in the line below it,\nwhich ends here.";
    assert_eq!(
        reflow(text, 44),
        "Examples:\n  canonc a          short\n  name, lock   of the lock: its name and its\n               id\n\n\
         A line of prose that is long enough to go on\nin the line below it, which ends here."
    );
}
