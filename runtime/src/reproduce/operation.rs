//! In: a state that two runs both had, and a later step with different numbers. Out: the steps in between, computed
//! again with other settings of this machine (unchanged, other numbers of threads, the plain kernels), and the first
//! operation of the plan with a result that depends on the setting. Must stay true: each way starts from the same bits;
//! an operation is named only for two computations that were both made here; settings are restored.

use crate::execute::{KernelRequest, Machine, StepTrace, Trainer};
use crate::state::State;
use records::metrics::{Record, Step};
use records::run::RunError;

use super::Again;

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

#[derive(Clone, Copy)]
struct Setting {
    threads: Option<i32>,
    plain: bool,
}

impl Again {
    /// Computes the steps up to `to` in every way, from the latest state that both runs had.
    pub(super) fn variants(&mut self, to: u64) -> Result<Vec<Variant>, RunError> {
        let from = self.agreed.step();
        if to.saturating_sub(from) > STEPS {
            return Ok(Vec::new());
        }
        let usual = Setting { threads: None, plain: false };
        let (base, _) = self.traced(usual, to)?;
        let mut variants = Vec::new();
        for (name, setting) in self.settings() {
            let (traces, steps) = self.traced(setting, to)?;
            let first =
                base.iter().zip(&traces).zip(from + 1..).find_map(|((one, other), step)| {
                    let place = self.replayer.trainer.first_difference(one, other)?;
                    Some((step, place))
                });
            let gives_the_log = steps.iter().all(|step| {
                let logged = self.replayer.log.steps.get(&step.step);
                logged.is_some_and(|logged| text(logged) == text(step))
            });
            variants.push(Variant { name, gives_the_log, first });
        }
        Ok(variants)
    }

    fn settings(&self) -> Vec<(String, Setting)> {
        let mut settings =
            vec![("the same settings".to_owned(), Setting { threads: None, plain: false })];
        if self.replayer.machine.device.is_cuda() {
            return settings;
        }
        let now = tch::get_num_threads();
        let attested = self
            .replayer
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
    ) -> Result<(Vec<StepTrace>, Vec<Step>), RunError> {
        let before = tch::get_num_threads();
        if let Some(threads) = setting.threads {
            tch::set_num_threads(threads);
        }
        let result = self.steps(setting, to);
        tch::set_num_threads(before);
        result
    }

    fn steps(
        &mut self,
        setting: Setting,
        to: u64,
    ) -> Result<(Vec<StepTrace>, Vec<Step>), RunError> {
        let machine = self.replayer.machine;
        let plain = match setting.plain {
            false => None,
            true => {
                let machine = Machine { kernels: KernelRequest::REFERENCE, ..machine };
                Some(Trainer::new(self.replayer.job.plans.clone(), machine)?)
            }
        };
        let mut state: State = self.replayer.state(&self.agreed)?;
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

fn text(step: &Step) -> String {
    Record::Step(step.clone()).text()
}
