//! The command line: reads argv, runs one command, and returns an exit code.
//!
//! Two binaries share it: `canonc`, which links no libtorch and starts quickly, and `canonc-torch`, which `canonc` execs
//! for commands that compute tensors. A call goes from a command to the workspace (what a word means), from there to
//! what runs, locks and models hold, and to the output.

// Each module uses only those above it.
pub mod printable;
pub mod fail;
pub mod files;
pub mod output;
pub mod out;

pub mod finished_runs;
pub mod extensions;
pub mod workspace;

pub mod load;
pub mod archs;
pub mod tokenizer;
pub mod documents;
pub mod initial_weights;
pub mod inputs;
pub mod worker_claims;
pub mod comparison_folder;

pub mod compared;
pub mod interim_looks;
pub mod build;
pub mod overlap_counts;
pub mod measured_noise;
pub mod forecast;
pub mod live;
pub mod ranks;
pub mod launch;

pub mod signals;
pub mod child;
pub mod training;

pub mod command;
pub mod facts;
pub mod pytorch;
pub mod torch_program;

pub mod options;
pub mod logs;
pub mod help;
pub mod usage;
pub mod commands;

use std::ffi::OsString;

use clap::FromArgMatches;

use command::{GlobalOptions, Program};
use fail::{Exit, Failure, Outcome};
use output::When;

/// Stack size, for the deepest input that the compiler accepts. It is reserved rather than used: pages are allocated when
/// touched.
const STACK_BYTES: usize = 256 << 20;

/// Runs the command that this process was started with, and returns its exit code; everything is written by then.
pub fn main(program: Program) -> u8 {
    signals::hold();
    let thread = std::thread::Builder::new().name("canonc".to_owned()).stack_size(STACK_BYTES);
    match thread.spawn(move || start(&program)) {
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

fn start(program: &Program) -> u8 {
    extensions::set(program.extensions);
    let argv: Vec<OsString> = std::env::args_os().collect();
    let mut command = help::command(program);
    let read = command.try_get_matches_from_mut(&argv).and_then(|matches| {
        let options = GlobalOptions::from_arg_matches(&matches);
        Ok((options.map_err(|error| error.format(&mut command))?, matches))
    });
    finish(match read {
        Ok((options, matches)) => {
            output::set_colour(options.color);
            output::set_loudness(options.quiet, options.verbose);
            if matches.subcommand_name() != Some(signals::HELD_BY) {
                signals::release();
            }
            match program.find(&matches) {
                Ok((run, arguments)) => run(program, arguments),
                Err(word) => Err(usage::unknown_command(program, word)),
            }
        }
        Err(error) => {
            output::set_colour(colour(&argv));
            usage::answer(program, &error, &argv)
        }
    })
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

/// The value of `--color` in words that clap did not accept.
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
