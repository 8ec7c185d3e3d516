//! Computes the same steps with other settings of this machine (unchanged, other numbers of threads, the plain kernels),
//! and names the first operation of the plan with a result that depends on the setting.
//!
//! An operation is named only for two computations that were both made here from the same bits.

use crate::execute::{KernelRequest, Machine, StepTrace, Trainer};
use crate::replay::RunPoint;
use crate::state::State;
use dsl::Problem;
use records::metrics::{Record, Step};

use super::Search;

/// Number of steps from a known state to compute again with every setting.
const STEPS: u64 = 16;

/// Another way to compute the same steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// `1 thread`, `plain kernels`, `the same again`.
    pub name: String,
    /// Whether it gives every logged number up to the differing step.
    pub gives_the_log: bool,
    /// The first step and operation with a result that differs from the current run's.
    pub first: Option<(u64, String)>,
}

#[derive(Clone, Copy, Default)]
struct Setting {
    threads: Option<i32>,
    plain: bool,
}

impl Search {
    /// Computes the steps up to `to` in every way, from the latest state that both runs had.
    pub(super) fn variants(&mut self, to: u64) -> Result<Vec<Variant>, Problem> {
        let from = self.origin.step();
        if to.saturating_sub(from) > STEPS {
            return Ok(Vec::new());
        }
        let (base, _) = self.traced(Setting::default(), to)?;
        let mut variants = Vec::new();
        for (name, setting) in self.settings() {
            let (traces, steps) = self.traced(setting, to)?;
            let first =
                base.iter().zip(&traces).zip(from + 1..).find_map(|((one, other), step)| {
                    Some((step, self.replayer.trainer.first_difference(one, other)?))
                });
            let gives_the_log = steps.into_iter().all(|step| {
                let record = Record::Step(step);
                let logged = self.replayer.run.record(RunPoint::from_record(&record));
                logged.is_some_and(|logged| logged.text() == record.text())
            });
            variants.push(Variant { name, gives_the_log, first });
        }
        Ok(variants)
    }

    fn settings(&self) -> Vec<(String, Setting)> {
        let mut settings = vec![("the same settings".to_owned(), Setting::default())];
        if self.replayer.machine.device.is_cuda() {
            return settings;
        }
        let now = tch::get_num_threads();
        let attested = self
            .replayer
            .run
            .machines
            .attestation
            .as_ref()
            .and_then(|attestation| attestation.machine.get("threads")?.parse::<i32>().ok());
        let mut counts: Vec<i32> = attested.into_iter().chain([1, 2]).collect();
        counts.retain(|count| *count != now && (1..=1024).contains(count));
        counts.sort_unstable();
        counts.dedup();
        for count in counts {
            let name = if count == 1 { "1 thread".to_owned() } else { format!("{count} threads") };
            settings.push((name, Setting { threads: Some(count), plain: false }));
        }
        settings.push(("plain kernels".to_owned(), Setting { threads: None, plain: true }));
        settings
    }

    /// Digests of every operation of every step, and the steps' numbers.
    fn traced(
        &mut self,
        setting: Setting,
        to: u64,
    ) -> Result<(Vec<StepTrace>, Vec<Step>), Problem> {
        let before = tch::get_num_threads();
        if let Some(threads) = setting.threads {
            tch::set_num_threads(threads);
        }
        let result = self.steps(setting, to);
        tch::set_num_threads(before);
        result
    }

    fn steps(&mut self, setting: Setting, to: u64) -> Result<(Vec<StepTrace>, Vec<Step>), Problem> {
        let machine = self.replayer.machine;
        let plain = match setting.plain {
            false => None,
            true => {
                let machine = Machine { kernels: KernelRequest::REFERENCE, ..machine };
                Some(Trainer::new(self.replayer.job.plans.clone(), machine)?)
            }
        };
        let mut state: State = self.replayer.state(&self.origin)?;
        let (mut traces, mut steps) = (Vec::new(), Vec::new());
        while state.step < to {
            let trainer = plain.as_ref().unwrap_or(&self.replayer.trainer);
            trainer.begin_trace();
            let step = state.advance(&mut self.replayer.job, trainer);
            traces.push(trainer.end_trace());
            steps.push(step?);
        }
        Ok((traces, steps))
    }
}
