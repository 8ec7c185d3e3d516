//! `canonc-torch`: the program that links libtorch. `canonc` execs it for commands that compute tensors. It also
//! accepts every command when started directly.

use std::process::ExitCode;

use cli::command::Program;
use cli::commands::COMMANDS;
use tensors::TENSORS;

#[cfg(all(feature = "ext", not(feature = "models")))]
compile_error!(
    "extensions with libtorch are the feature `models`: `--features models`, or `--features torch` without them"
);

/// Serves libtorch's allocations as well as Rust's: this program exports `malloc` and `free`. It keeps freed pages, so
/// a training step after the first takes no page fault; the shim sets its options.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[cfg(feature = "models")]
const PROGRAM: Program = Program {
    commands: &[COMMANDS, commands::COMMANDS],
    extensions: commands::EXTENSIONS,
    tensors: &[TENSORS, models::TENSORS],
};
#[cfg(not(feature = "models"))]
const PROGRAM: Program = Program {
    commands: &[COMMANDS],
    extensions: cli::extensions::Extensions::NONE,
    tensors: &[TENSORS],
};

fn main() -> ExitCode {
    let code = cli::main(PROGRAM);
    // libtorch's destructors take half as long as loading it, and free what the system frees anyway. Nothing else runs
    // at exit: everything is written. With a GPU it all does, since profilers then collect what they saw.
    if !runtime::kernels::has_loaded_cuda() {
        signal_hook::low_level::exit(code.into());
    }
    code.into()
}
