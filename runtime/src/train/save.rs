//! Saves checkpoints of a run.
//!
//! The log is made durable before the state that it leads to. One process commits a checkpoint, after all that write to
//! it have synced.

use compiler::digest::Digest;
use dsl::Problem;
use records::checkpoint::Manifest;
use records::platform::peak_memory;
use records::run::Event;

use super::TrainingRun;
use crate::ranks::Command;
use crate::state::Written;

impl TrainingRun<'_> {
    /// Makes the log durable, then saves the state, then deletes old states.
    pub(super) fn checkpoint(&mut self) -> Result<(), Problem> {
        self.log.sync()?;
        self.folder.check(false)?;
        self.keep_kernels()?;
        let Some(chain) = self.log.head() else { return Ok(()) };
        if let Some(saved) = self.saved.as_ref().filter(|_| self.is_saved()) {
            // The log went on with the evaluation of the saved state.
            self.saved = Some(self.store.rechain(saved, chain)?);
            return Ok(());
        }
        let faults = self.options.faults;
        let (manifest, peaks) = match self.save_together(chain)? {
            Some((manifest, peaks)) => {
                (manifest, format!(",\"ranks_peak_memory_bytes\":{peaks:?}"))
            }
            None => {
                let state = &self.state;
                let mut read = |part, index, out: &mut Vec<u8>| state.read(part, index, out);
                (self.store.save(state.step, chain, &mut read, faults)?, String::new())
            }
        };
        self.store.prune(self.job.cadence.keep, faults)?;
        self.saved = Some(manifest);
        // A fact of this machine and time, like seconds. A killed process has reported it at its last checkpoint.
        match peak_memory() {
            None => Ok(()),
            Some(bytes) => self.time(&format!(
                "{{\"checkpoint\":{},\"peak_memory_bytes\":{bytes}{peaks}}}",
                self.state.step
            )),
        }
    }

    /// A checkpoint to which every rank writes what it owns, and the peak memory of each; `None` if there is one rank,
    /// or not all of them see the folder.
    fn save_together(&mut self, chain: Digest) -> Result<Option<(Manifest, Vec<u64>)>, Problem> {
        let Some(member) = self.options.ranks.filter(|_| !self.saves_alone) else {
            return Ok(None);
        };
        let (step, faults) = (self.state.step, self.options.faults);
        self.store.lay_out(step)?;
        Command::Save(step).give(&*member.ranks)?;
        match self.state.write_together(&self.store, faults) {
            Ok(Written::Whole { contents, peaks }) => {
                let manifest = self.store.commit(step, chain, *contents, faults)?;
                Ok(Some((manifest, peaks)))
            }
            Ok(Written::Unseen { rank }) => {
                self.store.abandon(step);
                self.saves_alone = true;
                self.tell(Event::SavesAlone { rank })?;
                Ok(None)
            }
            Ok(Written::Failed { rank, why }) => {
                self.store.abandon(step);
                Err(Problem::machine(
                    format!("rank {rank} could not save step {step}: {why}"),
                    "correct that; the same command continues from the last checkpoint",
                ))
            }
            Err(error) => {
                self.store.abandon(step);
                Err(error)
            }
        }
    }
}
