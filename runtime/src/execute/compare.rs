//! Compares every kernel of a plan with its plain implementation in f64 on the CPU.
//!
//! Both get the same operands, those of the plan's reference run, rounded to the plan's dtypes, so an error in one step
//! does not reach the next.

use std::cell::RefCell;
use std::collections::BTreeMap;

use compiler::plan::{DType, Input, Kernel, Plan, Sizes, Step, ValId, Value};
use tch::{Device, Kind, Tensor};

use super::dispatch::Context;
use super::{Choice, ExecuteError, KernelRequest, Machine, choose, dispatch, widen};
use crate::kernels::arrange::copy;
use crate::kernels::path::Path;

/// The kernels of a plan that ran by one path, in one dtype.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// Its name in plans.
    pub kernel: &'static str,
    /// How it was computed.
    pub path: String,
    /// Whether an operand or a result is bf16.
    pub bf16: bool,
    /// Number of steps.
    pub steps: usize,
    /// The largest difference of a result's element, relative to the largest element of the result.
    pub largest: f64,
}

impl Compared {
    /// The difference that is allowed: some hundred roundings.
    pub fn tolerance(&self) -> f64 {
        if self.bf16 { 3e-2 } else { 5e-4 }
    }

    /// Whether the difference is within the tolerance.
    pub fn holds(&self) -> bool {
        // Must be false for NaN.
        self.largest <= self.tolerance()
    }
}

const REFERENCE: Machine =
    Machine { device: Device::Cpu, kind: Kind::Double, kernels: KernelRequest::REFERENCE };

/// Runs a plan by its references, and each of its kernels also on `machine`. `give` supplies the inputs on the CPU.
pub fn compare(
    plan: &Plan,
    machine: Machine,
    sizes: Sizes,
    give: impl Fn(Input) -> Result<Tensor, ExecuteError>,
) -> Result<Vec<Compared>, ExecuteError> {
    let _guard = tch::no_grad_guard();
    let mut values: Vec<Option<Tensor>> = plan.values.iter().map(|_| None).collect();
    let mut given = Vec::new();
    for (input, id) in &plan.inputs {
        let tensor = exact(&give(*input)?, value(plan, *id)?)?;
        put(&mut values, *id, tensor);
        given.push(*id);
    }
    let (tables, reference_tables) = (RefCell::default(), RefCell::default());
    let mut compared: BTreeMap<(&'static str, String, bool), Compared> = BTreeMap::new();
    for step in &plan.steps {
        let types = step.inputs.iter().map(|id| value(plan, *id)).collect::<Result<Vec<_>, _>>()?;
        let operands: Option<Vec<&Tensor>> =
            step.inputs.iter().map(|id| values.get(id.0 as usize)?.as_ref()).collect();
        let operands =
            operands.ok_or_else(|| ExecuteError::new("an operand of a step is missing"))?;
        let results = by_reference(step, &types, &operands, sizes, &reference_tables)?;
        let choice = choose(&step.kernel, &types, machine, false);
        if choice != Choice::View {
            let outputs =
                step.outputs.iter().map(|id| value(plan, *id)).collect::<Result<Vec<_>, _>>()?;
            let on_machine = OnMachine { step, choice, given: &given, machine, sizes };
            let (computed, rounded) = on_machine.run([&types, &outputs], &operands, &tables)?;
            let bf16 = types.iter().chain(&outputs).any(|value| value.dtype == DType::Bf16);
            let key = (step.kernel.name(), choice.to_string(), bf16);
            let entry = compared.entry(key).or_insert_with(|| Compared {
                kernel: step.kernel.name(),
                path: choice.to_string(),
                bf16,
                steps: 0,
                largest: 0.0,
            });
            entry.steps += 1;
            for ((got, want), ty) in computed.iter().zip(&results).zip(&outputs) {
                let off = difference(got, want, ty)?;
                // Keeps NaN.
                entry.largest =
                    if off > entry.largest || off.is_nan() { off } else { entry.largest };
            }
            if let (Some(rounded), Some(p)) = (&rounded, computed.first())
                && !p.f_to_kind(Kind::BFloat16)?.f_equal(rounded)?
            {
                entry.largest = f64::INFINITY;
            }
        }
        for (id, result) in step.outputs.iter().zip(&results) {
            let rounded = exact(result, value(plan, *id)?)?;
            put(&mut values, *id, rounded);
        }
    }
    Ok(compared.into_values().collect())
}

/// A step to compute on the machine in question.
struct OnMachine<'a> {
    step: &'a Step,
    choice: Choice,
    /// The plan's inputs.
    given: &'a [ValId],
    machine: Machine,
    sizes: Sizes,
}

impl OnMachine<'_> {
    /// The results, and the parameter in bf16 where the update writes that, too. `types` are those of the operands and
    /// of the results.
    fn run(
        &self,
        [types, outputs]: [&[&Value]; 2],
        operands: &[&Tensor],
        tables: &RefCell<crate::kernels::rope::Tables>,
    ) -> Result<(Vec<Tensor>, Option<Tensor>), ExecuteError> {
        let Self { step, choice, given, machine, sizes } = *self;
        let moved = types.iter().zip(operands).zip(&step.inputs).map(|((ty, x), id)| {
            // Numbers from the caller stay on the CPU.
            let stays = ty.dims.is_empty() && given.contains(id);
            let device = if stays { Device::Cpu } else { machine.device };
            Ok(copy(&x.f_to_kind(machine.kind_of(ty.dtype))?.f_to_device(device)?)?)
        });
        let moved = moved.collect::<Result<Vec<_>, ExecuteError>>()?;
        let kinds: Vec<Kind> = outputs.iter().map(|value| machine.kind_of(value.dtype)).collect();
        // On a GPU the update also writes the parameter in bf16.
        let rounded = match (&step.kernel, choice, moved.first()) {
            (Kernel::AdamW(_), Choice::Ours(Path::Cuda(_)), Some(p)) => {
                Some(Tensor::f_empty(p.size(), (Kind::BFloat16, machine.device))?)
            }
            (_, _, _) => None,
        };
        let context = Context {
            machine,
            sizes,
            consumes_first: false,
            copy: rounded.as_ref(),
            tables,
            each: None,
        };
        let moved: Vec<&Tensor> = moved.iter().collect();
        let results = widen::run(&step.kernel, choice, &moved, &context, &kinds)?;
        Ok((results, rounded))
    }
}

/// A step's results in f64, on copies of its operands.
fn by_reference(
    step: &Step,
    types: &[&Value],
    operands: &[&Tensor],
    sizes: Sizes,
    tables: &RefCell<crate::kernels::rope::Tables>,
) -> Result<Vec<Tensor>, ExecuteError> {
    let copies = operands.iter().map(|x| Ok(copy(x)?)).collect::<Result<Vec<_>, ExecuteError>>()?;
    let context = Context {
        machine: REFERENCE,
        sizes,
        consumes_first: false,
        copy: None,
        tables,
        each: None,
    };
    let choice = choose(&step.kernel, types, REFERENCE, false);
    Ok(dispatch::run(&step.kernel, choice, &copies.iter().collect::<Vec<_>>(), &context)?)
}

/// A tensor rounded to a value's dtype, in f64 if it is of floats.
fn exact(tensor: &Tensor, value: &Value) -> Result<Tensor, ExecuteError> {
    Ok(match value.dtype {
        DType::I64 => tensor.shallow_clone(),
        DType::F64 => tensor.f_to_kind(Kind::Double)?,
        DType::F32 => tensor.f_to_kind(Kind::Float)?.f_to_kind(Kind::Double)?,
        DType::Bf16 => tensor.f_to_kind(Kind::BFloat16)?.f_to_kind(Kind::Double)?,
    })
}

fn difference(got: &Tensor, want: &Tensor, value: &Value) -> Result<f64, ExecuteError> {
    if value.dtype == DType::I64 && !value.dims.is_empty() {
        // The likeliest of nearly equal tokens may differ.
        return Ok(0.0);
    }
    if got.size() != want.size() {
        return Ok(f64::INFINITY);
    }
    if want.numel() == 0 {
        return Ok(0.0);
    }
    let wide = |x: &Tensor| x.f_to_device(Device::Cpu)?.f_to_kind(Kind::Double);
    let (got, want) = (wide(got)?, wide(want)?);
    let largest = want.f_abs()?.f_max()?.f_double_value(&[])?;
    let off = got.f_sub(&want)?.f_abs()?.f_max()?.f_double_value(&[])?;
    Ok(if off == 0.0 { 0.0 } else { off / largest.max(f64::MIN_POSITIVE) })
}

fn value(plan: &Plan, id: ValId) -> Result<&Value, ExecuteError> {
    plan.value(id).ok_or_else(|| ExecuteError::new(format!("the plan has no value {}", id.0)))
}

fn put(values: &mut [Option<Tensor>], id: ValId, tensor: Tensor) {
    if let Some(slot) = values.get_mut(id.0 as usize) {
        *slot = Some(tensor);
    }
}
