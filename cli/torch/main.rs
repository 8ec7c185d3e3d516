//! `canonc-torch`: the program that links libtorch. `canonc` execs it for commands that compute tensors. It also
//! accepts every command when started directly.

mod answer;
mod bench;
mod eval;
mod forward;
mod generate;
mod interactive;
mod live;
mod open;
mod prompts;
mod ranks;
mod replay;
mod reproduce;
mod run;
mod seen;
mod selftest;
mod serve;
mod served;
mod step_times;

use std::process::ExitCode;

use canonc::doctor::Fact;
use canonc::fail::{Exit, Outcome};
use canonc::tensors::{Tensors, Work};

/// Serves libtorch's allocations as well as Rust's: this program exports `malloc` and `free`. It keeps freed pages, so
/// a training step after the first takes no page fault; the shim sets its options.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The libtorch of this process.
struct Here;

impl Tensors for Here {
    fn carry_out(&self, work: Work<'_>) -> Outcome {
        match work {
            Work::Run(args) => run::run(args),
            Work::Reproduce(args) => reproduce::reproduce(args),
            Work::Bench(args) => bench::bench(args),
            Work::Selftest(args) => selftest::selftest(args),
            Work::Forward(args) => forward::forward(args),
            Work::Generate(args) => generate::generate(args),
            Work::Serve(args) => serve::serve(args),
            Work::Answer(args) => answer::answer(args),
            Work::Eval(args) => eval::eval(args),
            Work::StepTimes(args, comparisons, rounds) => {
                step_times::measure(args, comparisons, rounds)
            }
            Work::PrepareReplay(folder) => replay::prepare(folder).map(|()| Exit::Fine),
            Work::Replay { folder, data, steps, report } => {
                replay::replay(folder, data, steps, report);
                Ok(Exit::Fine)
            }
        }
    }

    fn facts(&self) -> Vec<Fact> {
        seen::facts()
    }
}

fn main() -> ExitCode {
    let code = canonc::main(&Here);
    // libtorch's destructors take half as long as loading it, and free what the system frees anyway. Nothing else runs
    // at exit: everything is written. With a GPU it all does, since profilers then collect what they saw.
    if !runtime::kernels::has_loaded_cuda() {
        signal_hook::low_level::exit(code.into());
    }
    code.into()
}
