//! The error of running a plan.

use std::fmt;

use records::run::RunError;

use crate::kernels::KernelError;

/// Why a plan could not be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecuteError {
    message: String,
}

impl ExecuteError {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

impl fmt::Display for ExecuteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ExecuteError {}

impl From<ExecuteError> for RunError {
    /// Inputs are checked earlier, so an error here is the machine's, usually a lack of memory.
    fn from(error: ExecuteError) -> Self {
        RunError::machine(
            error.message,
            "check that the machine has the memory that `--dry-run` estimates",
        )
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
