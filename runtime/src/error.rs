//! The error of running a plan.

use std::fmt;

use dsl::Problem;

use crate::kernels::KernelError;

/// Why a plan could not be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecuteError {
    message: String,
    help: Option<String>,
}

impl ExecuteError {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), help: None }
    }

    /// The error of another rank, or of the connection to it.
    pub(crate) fn of_rank(message: impl Into<String>) -> Self {
        let help = "the run continues from its last checkpoint when all ranks are started again";
        Self { message: message.into(), help: Some(help.to_owned()) }
    }
}

impl fmt::Display for ExecuteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ExecuteError {}

impl From<ExecuteError> for Problem {
    /// Inputs are checked earlier, so an error here is the machine's, usually a lack of memory.
    fn from(error: ExecuteError) -> Self {
        let ExecuteError { message, help } = error;
        let help = help.unwrap_or_else(|| {
            "check that the machine has the memory that `--dry-run` estimates".to_owned()
        });
        Problem::machine(message, help)
    }
}

impl From<KernelError> for ExecuteError {
    fn from(error: KernelError) -> Self {
        Self::new(error.to_string())
    }
}

impl From<tch::TchError> for ExecuteError {
    fn from(error: tch::TchError) -> Self {
        KernelError::from(error).into()
    }
}
