//! The exchanges of tensors in a step.
//!
//! A message is a copy, or a tensor that nobody changes until the exchange has ended: a gradient, or a weight between
//! two updates.

use compiler::graph::ParamId;
use compiler::plan::{DType, Input};
use dsl::Problem;
use tch::{Kind, Tensor};

use super::{Underway, tensor_of};
use crate::execute::{ExecuteError, out_of_memory};
use crate::state::broken;
use crate::weights::Weights;
use scale::schedule::{Transfer, Way};

impl Underway<'_> {
    /// Begins an exchange of tensors.
    pub(super) fn begin_transfer(
        &mut self,
        weights: &Weights,
        transfer: Transfer,
    ) -> Result<(), Problem> {
        let float = self.trainer.machine().kind;
        let begun = match transfer {
            Transfer::Gather { segment, dtype } => {
                let params = self.params_in(segment, dtype);
                let kind = self.trainer.machine().kind_of(dtype);
                // The update may have written the piece in bf16 already; else the message rounds it.
                let known = |param: &usize| match kind == Kind::BFloat16 {
                    true => weights.known_rounded(*param),
                    false => None,
                };
                let part = |param: &usize| match known(param) {
                    Some(piece) => Ok(piece),
                    None => Ok(tensor_of(&weights.tensors, *param)?.shallow_clone()),
                };
                let parts = params.iter().map(part).collect::<Result<Vec<_>, ExecuteError>>()?;
                self.division.team.begin_gather(&params, &parts, kind)?
            }
            Transfer::Scatter { round, unit, way: Way::Flat } => {
                let gradients = self.gradients_to_send(round, unit)?;
                self.division.team.begin_scatter(gradients, round, unit)?
            }
            Transfer::Scatter { round, unit, way: Way::Inside } => {
                let gradients = self.gradients_to_send(round, unit)?;
                self.division.team.begin_scatter_inside(gradients, round, unit)?
            }
            Transfer::Scatter { round, unit, way: Way::Across } => {
                let sums = std::mem::take(&mut self.inside);
                self.division.team.begin_scatter_across(&sums, round, unit)?
            }
            Transfer::Sums { unit } => {
                let parts = self.sum(unit)?;
                let team = &self.division.team;
                team.begin_gather(team.params_of(unit), &parts, float)?
            }
            Transfer::Weights { unit } => {
                let team = &self.division.team;
                let params = team.params_of(unit);
                let part = |param: &usize| team.part(*param, tensor_of(&weights.tensors, *param)?);
                let parts = params.iter().map(part).collect::<Result<Vec<_>, _>>()?;
                team.begin_gather(params, &parts, float)?
            }
        };
        match self.under_way.insert(transfer, begun) {
            None => Ok(()),
            Some(_) => Err(broken(&format!("{transfer:?} begins twice"))),
        }
    }

    /// Waits for an exchange of tensors, and uses its result.
    pub(super) fn end_transfer(
        &mut self,
        weights: &Weights,
        transfer: Transfer,
    ) -> Result<(), Problem> {
        let begun = self.under_way.remove(&transfer);
        let begun = begun.ok_or_else(|| broken(&format!("{transfer:?} has not begun")))?;
        let team = self.division.team.clone();
        let arrived = team.wait(begun)?;
        match transfer {
            Transfer::Gather { segment, dtype } => {
                self.begin(weights)?;
                let params = self.params_in(segment, dtype);
                Ok(self.give(&params, dtype, team.gathered(&params, &arrived)?)?)
            }
            Transfer::Scatter { round, unit, way: Way::Flat } => {
                self.add(unit, team.scattered(&arrived, round, unit)?)
            }
            Transfer::Scatter { round, unit: _, way: Way::Inside } => {
                self.inside = team.scattered_inside(&arrived, round)?;
                Ok(())
            }
            Transfer::Scatter { round, unit, way: Way::Across } => {
                self.add(unit, team.scattered_across(&arrived, round, unit)?)
            }
            Transfer::Sums { unit } => {
                if self.gradients.is_empty() {
                    self.gradients = weights.tensors.iter().map(|_| Tensor::new()).collect();
                }
                let params = team.params_of(unit);
                for (param, full) in params.iter().zip(team.gathered(params, &arrived)?) {
                    let full = full.f_reshape(team.shape(*param)).map_err(ExecuteError::from)?;
                    if let Some(gradient) = self.gradients.get_mut(*param) {
                        *gradient = full;
                    }
                }
                Ok(())
            }
            Transfer::Weights { unit } => {
                let params = team.params_of(unit);
                for (param, full) in params.iter().zip(team.gathered(params, &arrived)?) {
                    let copied = tensor_of(&weights.tensors, *param)?.f_view([-1]);
                    copied.and_then(|mut flat| flat.f_copy_(&full)).map_err(ExecuteError::from)?;
                }
                Ok(())
            }
        }
    }

    /// The error of an exchange, which is named if memory ran out in it.
    pub(super) fn in_transfer(
        &self,
        transfer: Transfer,
        weights: &Weights,
        error: Problem,
    ) -> Problem {
        let team = &self.division.team;
        let segments = &team.schedule.timeline.segments;
        let (what, unit) = match transfer {
            Transfer::Gather { segment, .. } => {
                ("parameters", segments.get(segment).map_or(0, |segment| segment.unit))
            }
            Transfer::Scatter { unit, .. } => ("gradients", unit),
            Transfer::Sums { unit } => ("sums of gradients", unit),
            Transfer::Weights { unit } => ("new weights", unit),
        };
        let paths = team.params_of(unit).iter().filter_map(|param| weights.paths.get(*param));
        let parameters = match paths.collect::<Vec<_>>().as_slice() {
            [] => String::new(),
            [one] => format!(" of {one}"),
            [first, .., last] => format!(" of {first} to {last}"),
        };
        match out_of_memory(&error.message) {
            None => error,
            Some(why) => {
                ExecuteError::new(format!("exchange of the {what}{parameters}: {why}")).into()
            }
        }
    }

    /// The parameters of a segment that are exchanged in this dtype.
    fn params_in(&self, segment: usize, dtype: DType) -> Vec<usize> {
        let segment = self.division.team.schedule.timeline.segments.get(segment);
        let params = segment.into_iter().flat_map(|segment| &segment.params);
        params.filter(|(_, known)| *known == dtype).map(|(param, _)| *param).collect()
    }

    /// Passes whole parameters to the micro-batch that is computed.
    fn give(
        &mut self,
        params: &[usize],
        dtype: DType,
        full: Vec<Tensor>,
    ) -> Result<(), ExecuteError> {
        let rounded = self.trainer.machine().kind_of(DType::Bf16);
        let Some(running) = &mut self.running else { return Ok(()) };
        for (param, full) in params.iter().zip(full) {
            let full = full.f_reshape(self.division.team.shape(*param))?;
            let id = ParamId(*param as u32);
            running.give(Input::Rounded(id), || Ok(full.f_to_kind(rounded)?))?;
            if dtype == DType::F32 {
                running.give(Input::Param(id), || Ok(full.shallow_clone()))?;
            }
        }
        Ok(())
    }
}
