//! Starts this process again in the environment that a lock requires: libtorch reads it before `main`.

use lab::experiment::Experiment;
use records::platform::needs_reexec;
use runtime::train::spec;

use cli::fail::Failure;

/// Replaces this process by one in the lock's required environment, unless it already has it.
pub(crate) fn start_again(experiment: &Experiment) -> Result<(), Failure> {
    let spec = spec(&experiment.platform)?;
    let Some(missing) = needs_reexec(&spec, |name| std::env::var(name).ok()) else {
        return Ok(());
    };
    let program = std::env::current_exe().map_err(|error| {
        Failure::machine(format!("canonc cannot find its own program: {error}"))
    })?;
    let mut command = std::process::Command::new(program);
    command.args(std::env::args_os().skip(1)).envs(missing);
    Err(exec_self(command))
}

#[cfg(unix)]
fn exec_self(mut command: std::process::Command) -> Failure {
    use std::os::unix::process::CommandExt;
    let error = command.exec();
    Failure::machine(format!("canonc cannot start itself again: {error}"))
}

/// On systems where a process cannot replace itself, waits for the new one and exits with its code.
#[cfg(not(unix))]
fn exec_self(mut command: std::process::Command) -> Failure {
    match command.status() {
        Ok(status) => Failure::shown(match status.code() {
            Some(0) => Exit::Fine,
            Some(1) => Exit::Finding,
            Some(2) => Exit::BadInput,
            Some(75) => Exit::Interrupted,
            Some(_) | None => Exit::Machine,
        }),
        Err(error) => Failure::machine(format!("canonc cannot start itself again: {error}")),
    }
}
