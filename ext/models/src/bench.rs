//! `canonc bench`: a training step by kernel, of several architectures side by side, and next to PyTorch's.

pub mod peers;
pub mod process;
pub mod python;
mod step;

use cli::fail::{Failure, Outcome};
use commands::bench::{BenchArgs, BenchWhat};

pub(crate) fn bench(args: &BenchArgs) -> Outcome {
    match args.what {
        BenchWhat::Step => {
            nothing_ignored(args)?;
            step::training_steps(args)
        }
        BenchWhat::Peers if args.serve => {
            Err(Failure::bad_input("only `bench step` can --serve").help("leave out --serve"))
        }
        BenchWhat::Peers => peers::peers(args),
    }
}

/// Refuses the options of `bench peers`, which `bench step` would ignore.
fn nothing_ignored(args: &BenchArgs) -> Result<(), Failure> {
    let option = match (&args.python, args.make_environment) {
        (Some(_), _) => "--python",
        (None, true) => "--make-environment",
        (None, false) => return Ok(()),
    };
    Err(Failure::bad_input(format!("`bench step` takes no {option}"))
        .help(format!("leave out {option}")))
}
