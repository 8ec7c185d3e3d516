//! One update by all ranks, following the schedule of a step.
//!
//! Every rank does the schedule's actions in order, also without a micro-batch. The bits are those of one process,
//! whatever is divided.

mod transfers;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use compiler::graph::ParamId;
use compiler::plan::{Input, Output, TERMS};
use dsl::Problem;
use tch::Tensor;

use super::agree::Check;
use super::ahead::{Ahead, Announcement};
use super::{Division, State, broken, draws, mean_loss, mean_term, tensors, unbalanced};
use crate::execute::{Draws, ExecuteError, Moments, Running, Trainer};
use crate::kernels::arrange::copy;
use crate::kernels::transfer::Readback;
use crate::kernels::update::{norm_by_block, sums_by_block};
use crate::ranks::{Announced, Computed, Team, UnderWay};
use crate::weights::Weights;
use data::batch::{Batch, digest_of_windows};
use lab::experiment::Shard;
use records::job::Job;
use records::metrics::Step;
use records::run::digest_of;
use scale::reduce::{Node, Tree};
use scale::schedule::{Action, Transfer};

/// A micro-batch's loss, counted targets and auxiliary losses.
type MicroLoss = (f64, i64, Vec<f64>);

/// The outcome of a step that all ranks tried.
#[derive(Debug)]
pub(crate) enum StepOutcome {
    /// It is done; `stop` if a rank was asked to stop.
    Done { step: Box<Step>, stop: bool, times: Times },
    /// A rank has no data for it, and nothing was changed.
    NoData { rank: u64, why: String },
    /// Two ranks do not compute the same, and nothing was changed.
    Differ { why: String },
}

/// What a rank owns of the gradients of a unit's parameters, in order.
type Pieces = Result<Vec<Tensor>, ExecuteError>;

/// A step that is under way.
struct Underway<'a> {
    trainer: &'a Trainer,
    division: Division,
    /// `None` until the announcements of all ranks have arrived.
    announced: Option<Announced>,
    batches: Vec<Batch>,
    /// How ranks check each other in this step.
    check: Option<Check>,
    round: u64,
    /// What dropout draws from in the step's first micro-batch.
    draws: Draws,
    running: Option<Running<'a>>,
    /// Exchanges that have begun.
    under_way: BTreeMap<Transfer, UnderWay>,
    /// Time that this rank has computed in this round.
    computing: Duration,
    /// By unit, the sums of gradients that this rank owns.
    sums: Vec<Option<Tree<Pieces>>>,
    losses: Tree<MicroLoss>,
    /// For tests: whether this rank computes a wrong gradient.
    wrong: bool,
    /// Sums over the micro-batches of this machine, for the owners with this local number, until they are sent.
    inside: Vec<(Node, Tensor)>,
    /// The gradients of a step, by parameter: whole, or what this rank owns.
    gradients: Vec<Tensor>,
    norm: Option<f64>,
    grad_norm: f64,
    /// Whether a rank was asked to stop.
    stop: bool,
    times: Times,
}

/// Seconds that ranks have computed in a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Times {
    /// By rank.
    pub(crate) seconds: Vec<f64>,
}

impl Times {
    /// Members of a line of timings: the bytes that rank 0 received, the median of the ranks, and the slowest one.
    pub(crate) fn json(&self, received: u64) -> String {
        let mut order: Vec<(f64, usize)> = (0..).zip(&self.seconds).map(|(n, s)| (*s, n)).collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        let median = order.get(order.len() / 2).map_or(0.0, |(seconds, _)| *seconds);
        let (most, slowest) = order.last().copied().unwrap_or_default();
        format!(
            ",\"received\":{received},\"computing\":{median:?},\"slowest\":{{\"rank\":{slowest},\"seconds\":{most:?}}}"
        )
    }
}

impl State {
    /// This rank's part of the next update. Every rank calls it, and returns the same.
    pub(crate) fn advance_together(
        &mut self,
        job: &mut Job,
        trainer: &Trainer,
        ahead: &mut Ahead,
        stop: &AtomicBool,
    ) -> Result<StepOutcome, Problem> {
        let mut step = Underway::new(trainer, self.division()?.clone(), draws(job, self.step, 0));
        let schedule = step.division.team.schedule.clone();
        step.wrong = step.division.wrong_in == Some(self.step + 1);
        let actions = match job.cadence.checks_in(self.step + 1) {
            true => schedule.checked_step(),
            false => schedule.step(),
        };
        for action in actions {
            match action {
                // Rank 0 has sent it, and the others are here because of it.
                Action::Command => {}
                Action::Announce => {
                    if let Some((rank, why)) = step.announce(job, ahead, self.step)? {
                        return Ok(StepOutcome::NoData { rank, why });
                    }
                }
                Action::Begin(transfer) => step
                    .begin_transfer(&self.weights, transfer)
                    .map_err(|error| step.in_transfer(transfer, &self.weights, error))?,
                Action::Wait(transfer) => step
                    .end_transfer(&self.weights, transfer)
                    .map_err(|error| step.in_transfer(transfer, &self.weights, error))?,
                Action::Release { segment } => step.release(segment),
                Action::Compute { round: _, from: _, to } => step.compute(&self.weights, to)?,
                Action::Losses { round } => {
                    step.tell_losses(round, stop.load(Ordering::Relaxed))?;
                }
                Action::Tell => step.tell(job, ahead, self.step + 1)?,
                Action::Repeat => step.repeat()?,
                Action::Digest { unit } => step.digest(unit)?,
                Action::Agree => {
                    let paths =
                        |param: usize| self.weights.paths.get(param).cloned().unwrap_or_default();
                    if let Some(why) = step.agree(self.step + 1, &paths)? {
                        return Ok(StepOutcome::Differ { why });
                    }
                }
                Action::Norm => step.global_norm()?,
                Action::Update => self.update(&mut step, job.rate(self.step))?,
            }
        }
        let lr = job.rate(self.step);
        self.step += 1;
        step.done(job, self.step, lr)
    }

    /// Updates everything, or what this rank owns.
    fn update(&mut self, step: &mut Underway<'_>, lr: f64) -> Result<(), Problem> {
        let Division { team, shard, .. } = &step.division;
        let number = i64::try_from(self.step + 1).map_err(|_| broken("too many steps"))?;
        let gradients = std::mem::take(&mut step.gradients);
        let State { weights, moments, .. } = self;
        step.grad_norm = match shard {
            Shard::None => {
                // The update reads the norm.
                team.settle()?;
                step.trainer.update(weights, moments, &gradients, lr, number)?
            }
            // The weights are the pieces.
            Shard::Full => {
                step.trainer.update_normed(weights, moments, &gradients, step.norm, lr, number)?
            }
            Shard::Optimizer => {
                let parameters = weights.tensors.iter().enumerate();
                let pieces: Vec<Tensor> =
                    parameters.map(|(n, weight)| team.part(n, weight)).collect::<Result<_, _>>()?;
                weights.changed();
                step.trainer.update_parts(&pieces, moments, &gradients, step.norm, lr, number)?
            }
        };
        Ok(())
    }

    /// The state with all weights whole, if each rank has only a part of them. Every rank calls it.
    pub(crate) fn gathered(&self) -> Result<Option<State>, Problem> {
        let Some(division) = &self.division else { return Ok(None) };
        let team = &division.team;
        match division.shard {
            Shard::None | Shard::Optimizer => {
                // Whoever calls this reads what is computed with them.
                team.settle()?;
                return Ok(None);
            }
            Shard::Full => {}
        }
        let mut tensors: Vec<Option<Tensor>> = self.weights.tensors.iter().map(|_| None).collect();
        for unit in 0..team.schedule.shards.units().len() {
            let params = team.params_of(unit);
            let parts = params
                .iter()
                .map(|param| Ok(tensor_of(&self.weights.tensors, *param)?.shallow_clone()))
                .collect::<Result<Vec<_>, ExecuteError>>()?;
            for (param, full) in params.iter().zip(team.gather(params, &parts)?) {
                let full = full.f_reshape(team.shape(*param)).map_err(ExecuteError::from)?;
                if let Some(tensor) = tensors.get_mut(*param) {
                    *tensor = Some(full);
                }
            }
        }
        let tensors: Option<Vec<Tensor>> = tensors.into_iter().collect();
        let tensors = tensors.ok_or_else(|| broken("a parameter belongs to no unit"))?;
        team.settle()?;
        Ok(Some(State {
            step: self.step,
            weights: Weights::new(self.weights.paths.clone(), tensors),
            moments: Moments { first: Vec::new(), second: Vec::new() },
            division: Some(division.clone()),
        }))
    }
}

impl<'a> Underway<'a> {
    fn new(trainer: &'a Trainer, division: Division, draws: Draws) -> Underway<'a> {
        let order = division.team.schedule.order();
        let units = division.team.schedule.shards.units().iter();
        Underway {
            trainer,
            sums: units.map(|_| Some(Tree::new(order))).collect(),
            division,
            announced: None,
            batches: Vec::new(),
            check: None,
            wrong: false,
            round: 0,
            draws,
            running: None,
            under_way: BTreeMap::new(),
            computing: Duration::ZERO,
            losses: Tree::new(order),
            inside: Vec::new(),
            gradients: Vec::new(),
            norm: None,
            grad_norm: f64::NAN,
            stop: false,
            times: Times::default(),
        }
    }

    /// The step's record, as step `number`.
    fn done(self, job: &Job, number: u64, lr: f64) -> Result<StepOutcome, Problem> {
        let Some(Announced { counted, windows, failed: _ }) = self.announced else {
            return Err(broken("a step without windows"));
        };
        let Some((loss, _, summed)) = self.losses.finish().map_err(unbalanced)? else {
            return Err(broken("a step without micro-batches"));
        };
        let mut terms = [None; TERMS.len()];
        for (term, sum) in self.trainer.terms().zip(summed) {
            terms[term as usize] = Some(mean_term(term, sum, job, counted));
        }
        let record = Step {
            step: number,
            loss: mean_loss(loss, counted),
            grad_norm: self.grad_norm,
            lr,
            batch: Some(digest_of(digest_of_windows(&windows))),
            counted,
            terms,
        };
        Ok(StepOutcome::Done { step: Box::new(record), stop: self.stop, times: self.times })
    }

    /// Takes the windows of this rank and the announcements of all ranks, which were made a step ahead, except in the
    /// first step. Returns the first rank without its data, and why.
    fn announce(
        &mut self,
        job: &Job,
        ahead: &mut Ahead,
        step: u64,
    ) -> Result<Option<(u64, String)>, Problem> {
        let (count, rows) = (job.micro_batches, job.rows);
        let team = &self.division.team;
        let announcement = match ahead.kept(step) {
            Some(announcement) => announcement,
            None => begin_announcing(team, job, ahead, step)?,
        };
        let Announcement { step: _, batches, exchange } = announcement;
        let announced = team.end_announcing(exchange, batches.as_ref().err(), count, rows)?;
        let failed = announced.failed.clone();
        if failed.is_none() {
            ahead.begin(step + 1);
            self.batches = batches?;
            // The last one is the next rank's.
            let checks = job.cadence.checks_in(step + 1);
            if let Some(batch) = checks.then(|| self.batches.pop()).flatten() {
                let device = self.trainer.machine().device;
                self.check = Some(Check::new(team, job, step, batch, &announced, device)?);
            }
        }
        self.announced = Some(announced);
        Ok(failed)
    }

    /// Begins to announce this rank's windows of the next step, if there is one. Nobody waits for that in this step.
    fn tell(&mut self, job: &Job, ahead: &mut Ahead, next: u64) -> Result<(), Problem> {
        if ahead.has(next) {
            let announcement = begin_announcing(&self.division.team, job, ahead, next)?;
            ahead.keep(announcement);
        }
        Ok(())
    }

    /// Begins this rank's micro-batch of the round, if it has one and has not begun.
    fn begin(&mut self, weights: &Weights) -> Result<(), ExecuteError> {
        let team = &self.division.team;
        let (batch, index) = match &self.check {
            Some(check) if check.repeats => (Some(&check.batch), team.checked()),
            Some(_) | None => {
                let batch = usize::try_from(self.round).ok().and_then(|at| self.batches.get(at));
                (batch, self.round * team.ranks.size() + team.ranks.rank())
            }
        };
        let (None, Some(batch)) = (&self.running, batch) else { return Ok(()) };
        let window = self.draws.window + index * batch.rows() as u64;
        let draws = Draws { window, ..self.draws };
        let counted = self.announced.as_ref().map_or(0, |announced| announced.counted);
        let scale = if counted == 0 { 0.0 } else { 1.0 / counted as f64 };
        let (tokens, targets) = tensors(batch, self.trainer.machine().device)?;
        let later = match self.division.shard {
            Shard::None | Shard::Optimizer => false,
            Shard::Full => true,
        };
        self.running = Some(self.trainer.begin(weights, &tokens, &targets, scale, draws, later)?);
        Ok(())
    }

    fn compute(&mut self, weights: &Weights, to: usize) -> Result<(), ExecuteError> {
        self.begin(weights)?;
        let began = Instant::now();
        if let Some(running) = &mut self.running {
            running.advance(to, None)?;
            self.computing += began.elapsed();
        }
        Ok(())
    }

    fn release(&mut self, segment: usize) {
        let timeline = &self.division.team.schedule.timeline;
        let (Some(segment), Some(running)) = (timeline.segments.get(segment), &mut self.running)
        else {
            return;
        };
        for (param, _) in &segment.params {
            running.give_up(Input::Param(ParamId(*param as u32)));
            running.give_up(Input::Rounded(ParamId(*param as u32)));
        }
    }

    /// This rank's gradients of a unit, if it has a micro-batch in this round.
    fn gradients_to_send(
        &mut self,
        round: u64,
        unit: usize,
    ) -> Result<Option<Vec<Tensor>>, ExecuteError> {
        let gradients = self.take(unit)?;
        if let (0, Some(check), Some(gradients)) = (round, &mut self.check, &gradients) {
            check.note(self.division.team.params_of(unit), gradients)?;
        }
        Ok(gradients)
    }

    /// Adds what this rank owns of a unit.
    fn add(&mut self, unit: usize, arrived: Vec<(Node, Vec<Tensor>)>) -> Result<(), Problem> {
        let Underway { trainer, sums, .. } = self;
        let Some(Some(tree)) = sums.get_mut(unit) else {
            return Err(broken(&format!("unit {unit} has no sum")));
        };
        let mut add = |left: Pieces, right: Pieces| trainer.add(unit, left?, right?);
        let several = arrived.len() > 1;
        for (node, pieces) in arrived {
            tree.push_node(node, Ok(pieces), &mut add).map_err(unbalanced)?;
        }
        if several {
            // What still waits is a view into the buffer of all that arrived.
            tree.replace(|pieces| Ok(pieces?.iter().map(copy).collect::<Result<_, _>>()?));
        }
        Ok(())
    }

    /// The gradients of a unit of the running micro-batch, if there is one.
    fn take(&mut self, unit: usize) -> Result<Option<Vec<Tensor>>, ExecuteError> {
        let Some(running) = &mut self.running else { return Ok(None) };
        let output = |param: &usize| Output::Gradient(ParamId(*param as u32));
        let params = self.division.team.params_of(unit).iter();
        let gradients = params.map(|param| running.take(output(param)));
        let gradients = gradients.collect::<Result<Vec<_>, _>>()?;
        if let (true, Some(first)) = (std::mem::take(&mut self.wrong), gradients.first()) {
            let _ = first.f_view([-1])?.f_narrow(0, 0, 1)?.f_add_scalar_(1.0)?;
        }
        Ok(Some(gradients))
    }

    /// Begins the first micro-batch of the next rank.
    fn repeat(&mut self) -> Result<(), Problem> {
        match &mut self.check {
            None => Err(broken("a check that was not announced")),
            Some(check) => {
                check.repeats = true;
                Ok(())
            }
        }
    }

    /// Notes the digests of a unit's gradients of that micro-batch.
    fn digest(&mut self, unit: usize) -> Result<(), Problem> {
        let gradients = self.take(unit)?.unwrap_or_default();
        let params = self.division.team.params_of(unit);
        Ok(self.check.as_mut().map_or(Ok(()), |check| check.note(params, &gradients))?)
    }

    /// Compares all ranks' digests. Returns what differs.
    fn agree(
        &mut self,
        step: u64,
        path: &dyn Fn(usize) -> String,
    ) -> Result<Option<String>, Problem> {
        if let Some(running) = self.running.take() {
            running.end();
        }
        self.computing = Duration::ZERO;
        match self.check.take() {
            None => Err(broken("a check that was not announced")),
            Some(check) => Ok(check.agree(&self.division.team, step, path)?),
        }
    }

    /// The losses of a round's micro-batches, how long ranks computed, and whether one was asked to stop.
    fn tell_losses(&mut self, round: u64, stop: bool) -> Result<(), Problem> {
        let team = &self.division.team;
        let (mut loss, mut counted) = (0.0, 0);
        let mut terms = vec![0.0; self.trainer.terms().count()];
        if let Some(mut running) = self.running.take() {
            let outputs = self.trainer.terms().map(Output::Term);
            let outputs = [Output::Loss, Output::Counted].into_iter().chain(outputs);
            let numbers =
                outputs.map(|output| running.take(output)).collect::<Result<Vec<_>, _>>()?;
            running.end();
            team.settle()?;
            let numbers = Readback::begin(&numbers.iter().collect::<Vec<_>>())
                .and_then(Readback::wait_for_all)
                .map_err(ExecuteError::from)?;
            let [loss_sum, targets, sums @ ..] = numbers.as_slice() else {
                return Err(broken("a micro-batch without a loss"));
            };
            // A count is exact in f64.
            (loss, counted) = (*loss_sum, *targets as i64);
            terms = sums.to_vec();
        }
        let computed = team.losses(Computed { loss, counted, took: self.computing, stop })?;
        let terms_of_ranks = match terms.is_empty() {
            true => vec![Vec::new(); computed.len()],
            false => team.terms(&terms)?,
        };
        self.computing = Duration::ZERO;
        self.times.seconds.resize(computed.len(), 0.0);
        let first = round * team.ranks.size();
        let each = computed.iter().zip(terms_of_ranks).zip(&mut self.times.seconds);
        for (rank, ((computed, terms), seconds)) in each.enumerate() {
            let Computed { loss, counted, took, stop } = *computed;
            *seconds += took.as_secs_f64();
            self.stop |= stop;
            if (rank as u64) < team.schedule.active(round) {
                let add = |left: MicroLoss, right: MicroLoss| {
                    let terms = left.2.iter().zip(&right.2).map(|(a, b)| a + b).collect();
                    (left.0 + right.0, left.1 + right.1, terms)
                };
                let index = first + rank as u64;
                self.losses.push(index, (loss, counted, terms), add).map_err(unbalanced)?;
            }
        }
        self.round += 1;
        Ok(())
    }

    /// What this rank owns of a unit's sums.
    fn sum(&mut self, unit: usize) -> Result<Vec<Tensor>, Problem> {
        let tree = self.sums.get_mut(unit).and_then(Option::take);
        match tree.map(Tree::finish).transpose().map_err(unbalanced)? {
            Some(Some(pieces)) => Ok(pieces?),
            Some(None) | None => Err(broken("a step without micro-batches")),
        }
    }

    /// The norm of all gradients. Each rank contributes the blocks that it owns.
    fn global_norm(&mut self) -> Result<(), Problem> {
        let schedule = self.division.team.schedule.clone();
        let mut gradients: Vec<Option<Tensor>> = Vec::new();
        gradients.resize_with(schedule.shards.params(), || None);
        for (at, unit) in schedule.shards.units().iter().enumerate() {
            for (param, piece) in unit.params.iter().zip(self.sum(at)?) {
                if let Some(gradient) = gradients.get_mut(*param) {
                    *gradient = Some(piece);
                }
            }
        }
        let gradients: Option<Vec<Tensor>> = gradients.into_iter().collect();
        self.gradients = gradients.ok_or_else(|| broken("a parameter belongs to no unit"))?;
        self.division.team.settle()?;
        let local = sums_by_block(&self.gradients).map_err(ExecuteError::from)?;
        let all = self.division.team.gather_blocks(&local)?;
        let norm = norm_by_block(&all, self.trainer.machine().device);
        self.norm = Some(norm.map_err(ExecuteError::from)?);
        Ok(())
    }
}

/// Reads this rank's windows of a step, and begins to announce them.
fn begin_announcing(
    team: &Team,
    job: &Job,
    ahead: &mut Ahead,
    step: u64,
) -> Result<Announcement, Problem> {
    let batches = ahead.take(step);
    // The last one of a step with a check is the next rank's.
    let count = team.micro_batches(job.micro_batches).count();
    let mine = batches.as_deref().map(|batches| batches.get(..count).unwrap_or(batches));
    let exchange = team.begin_announcing(mine, job.rows)?;
    Ok(Announcement { step, batches, exchange })
}

fn tensor_of(tensors: &[Tensor], param: usize) -> Result<&Tensor, ExecuteError> {
    tensors.get(param).ok_or_else(|| ExecuteError::new(format!("there is no parameter {param}")))
}

#[cfg(test)]
mod tests {
    use super::Times;

    #[test]
    fn a_straggler_is_named_beside_the_median() {
        let times = Times { seconds: vec![1.5, 1.25, 7.0, 1.0] };
        assert_eq!(
            times.json(96),
            ",\"received\":96,\"computing\":1.5,\"slowest\":{\"rank\":2,\"seconds\":7.0}"
        );
    }
}
