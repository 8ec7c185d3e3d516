//! Whole steps of several ranks on a driver that records: threads stand for the ranks, tensors of the CPU for those of
//! their GPUs. Nothing of ours is computed there, so only launches and exchanges are checked.

use std::rc::Rc;
use std::sync::atomic::AtomicBool;

use compiler::program::{Program, Std};
use gpu::{Launched, Value};
use lab::experiment::{Experiment, Shard};
use lab::lock::{self, Lock};
use records::job::Job;
use scale::shard::BLOCK;
use support::experiments::experiments;
use tch::{Device, Kind};

use super::{Ahead, Division, State, StepOutcome};
use crate::execute::{KernelRequest, Machine};
use crate::kernels::cuda::recorder::Recorder;
use crate::ranks::Member;
use crate::ranks::simulated::{Simulated, with_ranks};
use crate::selftest::models::{self, Family, Size};

const MACHINE: Machine =
    Machine { device: Device::Cpu, kind: Kind::Float, kernels: KernelRequest::FASTEST };

const RECIPE: &str = r#"arch = "model.canon#model"
[data]
task = "depo"
depo.N = 4
depo.K = 2
depo.mini_vocab = 4
depo.min_tlen = 1
depo.max_tlen = 2
ids = "dense"
seq_len = 64
[batch]
sequences = 1
micro_batches = 9
[budget]
steps = 2
[optimizer]
lr = 0.01
weight_decay = 0.1
clip = 1.0
[schedule]
kind = "cosine"
warmup = 1
[seeds]
init = 1
data = 2
[evaluation]
windows = 1
[precision]
policy = "bf16"
"#;

fn experiment() -> Experiment {
    let text = models::text(Family::LlamaCanon, Size::Small);
    let program = Program::new([("model.canon".to_owned(), text)], Std::Embedded);
    let experiments = experiments(&program, "run", "run.toml", RECIPE);
    experiments.unwrap_or_else(|findings| panic!("{findings}")).remove(0)
}

/// What a rank did in one step.
struct Stepped {
    launched: Vec<Launched>,
    /// How often it was about to read from the device.
    settled: u64,
    /// Blocks of the gradients that it owns.
    blocks: u64,
}

/// One step of these ranks. `Err` is why a rank did not end it.
fn step(ranks: u64, shard: Shard) -> Vec<Result<Stepped, String>> {
    with_ranks(ranks, |simulated| one(simulated, shard))
}

fn one(simulated: Simulated, shard: Shard) -> Result<Stepped, String> {
    let recorder = Recorder::new(9, 0);
    let experiment = experiment();
    let text = lock::write(&Lock::Experiment(experiment.clone()));
    let mut job = Job::new(&experiment, &text, None).unwrap();
    let simulated = Rc::new(simulated);
    let member = Member { ranks: simulated.clone(), shard, node: None, wrong_in: None };
    let division = Division::new(&job, &member, MACHINE.device);
    let trainer = division.trainer(&job, MACHINE).map_err(|error| error.to_string())?;
    let team = division.team.clone();
    let local = team.micro_batches(job.micro_batches).collect();
    let mut ahead = Ahead::new(&job, local, Some(team.checked()));
    let state = State::initial_part(&job, MACHINE, division);
    let mut state = state.map_err(|error| error.message)?;
    recorder.take();
    let stop = AtomicBool::new(false);
    let end = state.advance_together(&mut job, &trainer, &mut ahead, &stop);
    match end.map_err(|error| error.message)? {
        StepOutcome::Done { .. } => {}
        StepOutcome::NoData { why, .. } | StepOutcome::Differ { why } => return Err(why),
    }
    let blocks = team.schedule.blocks(team.ranks.rank());
    Ok(Stepped { launched: recorder.take(), settled: simulated.settled(), blocks })
}

/// Blocks whose squares these launches sum.
fn summed(launched: &[Launched]) -> u64 {
    let count = |one: &Launched| match one.values.as_slice() {
        [_, _, Value::I64(count), ..] => count.unsigned_abs().div_ceil(BLOCK),
        values => panic!("{values:?}"),
    };
    launched.iter().filter(|one| one.kernel == "square_sums").map(count).sum()
}

#[test]
fn norms_of_gradients_are_summed_on_the_device_of_each_rank() {
    for ranks in [2, 8] {
        for shard in [Shard::None, Shard::Optimizer, Shard::Full] {
            let steps: Vec<Stepped> = step(ranks, shard)
                .into_iter()
                .map(|step| step.unwrap_or_else(|why| panic!("{ranks} ranks, {shard:?}: {why}")))
                .collect();
            let all: u64 = steps.iter().map(|step| step.blocks).sum();
            for (rank, step) in steps.iter().enumerate() {
                let expected = match shard {
                    Shard::None => all,
                    Shard::Optimizer | Shard::Full => step.blocks,
                };
                let case = format!("rank {rank} of {ranks}, {shard:?}");
                assert_eq!(summed(&step.launched), expected, "{case}");
                // The norm is one number for all ranks, from all blocks.
                let norms = step.launched.iter().filter(|one| one.kernel == "clip_coefficient");
                let blocks: Vec<Value> =
                    norms.filter_map(|one| one.values.get(3).copied()).collect();
                assert_eq!(blocks, [Value::I32(all as i32)], "{case}");
                assert!(step.launched.iter().any(|one| one.kernel == "adamw"), "{case}");
            }
        }
    }
}

/// Every read of a step is behind a look at the exchanges, without which a rank that is gone would never be noticed.
#[test]
fn a_rank_settles_its_exchanges_before_it_reads() {
    for shard in [Shard::None, Shard::Optimizer, Shard::Full] {
        for (rank, step) in (0..).zip(step(2, shard)) {
            // The losses of its micro-batches, of nine, and the norm.
            assert_eq!(step.unwrap().settled, (9 + 1 - rank) / 2 + 1, "{shard:?}");
        }
    }
}
