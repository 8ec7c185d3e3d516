//! Times the steps of several jobs in turn, in one process.
//!
//! Each round reverses the order of the jobs, so neither a machine that gets slower nor the position in a round favours
//! a job. A step is a whole training step except logging; nothing is written.

use std::time::Instant;

use dsl::Problem;

use crate::execute::{ExecuteError, Machine, Trainer};
use crate::kernels::transfer::wait_for;
use crate::state::State;
use records::job::{Job, estimate, fits};
use records::platform::memory_limit;

/// Rounds to discard, since they touch memory for the first time.
const WARM_UP: usize = 3;

/// Seconds by round and job.
pub fn alternate(
    jobs: &mut [Job],
    machine: Machine,
    rounds: usize,
) -> Result<Vec<Vec<f64>>, Problem> {
    let mut ready = Vec::new();
    for job in jobs {
        fits(&estimate(job), memory_limit().as_ref())?;
        let trainer = Trainer::new(job.plans.clone(), machine)?;
        let state = State::drawn(job, machine)?;
        ready.push((job, trainer, state));
    }
    let mut times = Vec::new();
    for round in 0..WARM_UP + rounds {
        let mut seconds = vec![0.0; ready.len()];
        let mut turn: Vec<_> = ready.iter_mut().zip(&mut seconds).collect();
        if round % 2 == 1 {
            turn.reverse();
        }
        for ((job, trainer, state), seconds) in turn {
            let start = Instant::now();
            // After a run's last step, start again; the first step takes as long.
            if state.step >= job.steps {
                state.step = 0;
            }
            state.advance(job, trainer)?;
            // What a run logs is known before a GPU has updated everything.
            wait_for(machine.device).map_err(ExecuteError::from)?;
            *seconds = start.elapsed().as_secs_f64();
        }
        if round >= WARM_UP {
            times.push(seconds);
        }
    }
    Ok(times)
}
