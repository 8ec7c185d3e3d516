//! The training loop of a rank other than 0, which does only what rank 0 commands.
//!
//! It creates no file, and writes only into those that rank 0 has created.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use dsl::Problem;

use crate::evaluate::Measurer;
use crate::execute::Machine;
use crate::ranks::{Command, Ending, Member};
use crate::state::{Ahead, Division, State, StepOutcome, Written};
use records::checkpoint::Store;
use records::fault::Faults;
use records::job::Job;
use records::run::Paths;

/// Follows rank 0 to the end of its training. `stop` asks all ranks to stop after the next step, or in an
/// evaluation.
pub fn follow(
    job: &mut Job,
    machine: Machine,
    member: &Member,
    stop: &AtomicBool,
    folder: &Path,
) -> Result<Ending, Problem> {
    let division = Division::new(job, member, machine.device);
    let team = &division.team;
    let trainer = division.trainer(job, machine)?;
    let measurer = Measurer::new(job, machine)?;
    let mut state = State::initial_part(job, machine, division.clone())?;
    let mut ahead =
        Ahead::new(job, team.micro_batches(job.micro_batches).collect(), Some(team.checked()));
    let store = Store::new(Paths::new(folder).checkpoints(), job.id(), job.slots());
    loop {
        match Command::next(&*team.ranks)? {
            Command::Take(part, index) => state.take(part, index)?,
            Command::Resume(step) => state.step = step,
            Command::Step(step) if step == state.step => {
                // Rank 0 reports a rank without data or with wrong gradients, and says what is next.
                match state.advance_together(job, &trainer, &mut ahead, stop)? {
                    StepOutcome::Done { .. }
                    | StepOutcome::NoData { .. }
                    | StepOutcome::Differ { .. } => {}
                }
            }
            Command::Save(step) if step == state.step => {
                // Rank 0 commits the checkpoint, or reports which rank failed, and says what is next.
                match state.write_together(&store, &Faults::none())? {
                    Written::Whole { .. } | Written::Unseen { .. } | Written::Failed { .. } => {}
                }
            }
            Command::Step(step) | Command::Save(step) => {
                return Err(Problem::machine(
                    format!(
                        "rank 0 is at step {step}, but rank {} at {}",
                        team.ranks.rank(),
                        state.step
                    ),
                    "this is a bug in canonc; please report it",
                ));
            }
            Command::Send(part, index) => state.send(part, index)?,
            // Rank 0 alone has the result, and logs it.
            Command::Evaluate => drop(measurer.share(job, &state, stop)?),
            Command::End(how) => return Ok(how),
        }
    }
}
