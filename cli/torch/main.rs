//! `canonc-torch`: the program that links libtorch. `canonc` execs it for commands that compute tensors. It also
//! accepts every command when started directly.

mod answer;
mod bench;
mod doctor;
mod environment;
mod eval;
mod forward;
mod generate;
mod interactive;
mod open;
mod progress;
mod prompts;
mod ranks;
mod replay;
mod reproduce;
mod run;
mod selftest;
mod serve;
mod served;
mod step_times;

use std::process::ExitCode;

use canonc::command::{Program, Run, with};
use canonc::commands::verify::Replayer;
use canonc::commands::{self, COMMANDS};

/// Serves libtorch's allocations as well as Rust's: this program exports `malloc` and `free`. It keeps freed pages, so
/// a training step after the first takes no page fault; the shim sets its options.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// How `canonc verify --replay` trains steps again.
const REPLAYER: Replayer = Replayer { prepare: replay::prepare, replay: replay::replay };

/// The commands that compute with tensors.
const TENSORS: &[(&str, Run)] = &[
    ("run", |_, args| with(args, run::run)),
    ("reproduce", |_, args| with(args, reproduce::reproduce)),
    ("bench", |_, args| with(args, bench::bench)),
    ("selftest", |_, args| with(args, selftest::selftest)),
    ("forward", |_, args| with(args, forward::forward)),
    ("generate", |_, args| with(args, generate::generate)),
    ("serve", |_, args| with(args, serve::serve)),
    ("answer", |_, args| with(args, answer::answer)),
    ("eval", |_, args| with(args, |args| commands::eval::eval(args, eval::eval))),
    ("compare", |_, args| with(args, |args| commands::compare::compare(args, step_times::measure))),
    ("verify", |_, args| with(args, |args| commands::verify::verify(args, &REPLAYER))),
    ("doctor", |_, args| with(args, |args| commands::doctor::doctor(args, doctor::facts))),
];

fn main() -> ExitCode {
    let code = canonc::main(Program { commands: &[COMMANDS], tensors: TENSORS });
    // libtorch's destructors take half as long as loading it, and free what the system frees anyway. Nothing else runs
    // at exit: everything is written. With a GPU it all does, since profilers then collect what they saw.
    if !runtime::kernels::has_loaded_cuda() {
        signal_hook::low_level::exit(code.into());
    }
    code.into()
}
