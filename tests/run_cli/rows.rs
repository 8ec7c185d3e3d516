//! The commands that `canonc` leaves to `canonc-torch`, and the lists of what that runs.

use cli::command::{Row, Run};
use cli::commands::COMMANDS;
use cli::torch_program;

/// The rows of all commands, and the names of those that `canonc-torch` runs.
fn lists() -> (Vec<&'static Row>, Vec<&'static str>) {
    let rows: Vec<&Row> = COMMANDS.iter().collect();
    let runs: Vec<&str> = tensors::TENSORS.iter().map(|(name, _)| *name).collect();
    #[cfg(feature = "models")]
    return (
        rows.into_iter().chain(commands::COMMANDS).collect(),
        runs.into_iter().chain(models::TENSORS.iter().map(|(name, _)| *name)).collect(),
    );
    #[cfg(not(feature = "models"))]
    (rows, runs)
}

#[test]
fn canonc_torch_runs_what_canonc_leaves_to_it() {
    let (rows, runs) = lists();
    for row in &rows {
        let is_left = std::ptr::fn_addr_eq(row.run, torch_program::run as Run);
        assert!(!is_left || runs.contains(&row.name), "{} starts itself for ever", row.name);
    }
    for name in runs {
        assert!(rows.iter().any(|row| row.name == name), "{name} is not a command");
    }
}
