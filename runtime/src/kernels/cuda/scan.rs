//! The chunked scans (gpu/kernels/scan_*.py), as in `kernels::scan`: a table for each, and the code that runs a table.
//!
//! Gates, states and sums are f32; results have an operand's dtype. Every sum over chunks, batch items or heads has a
//! fixed order.

mod tables;

use compiler::op::ScanKind;
use gpu::{Constant, Launcher, Library};
use tch::{Kind, Tensor};

use super::named::{Named, agreeing};
use super::{dtype, sums};
use crate::kernels::KernelError;
use crate::kernels::linear::at_multiple;
use crate::kernels::path::Reason;
use crate::kernels::scan::gla::{channel_gates, like_gates};
use crate::kernels::scan::results::Scanned;

type Result<T> = std::result::Result<T, KernelError>;

/// One scan: its tensors, by the names that all of its kernels use, and its launches.
struct Table {
    /// The operands in the order of the scan's definition. The gradient of `q` is written to `dq`.
    operands: &'static [ScanTensor],
    /// Arguments of its kernels that only other scans have: null pointers.
    absent: &'static [&'static str],
    /// The axes of a state, rows and columns, and whether the scale of the queries is rows^(−1/2), not 1.
    state: [&'static str; 2],
    scaled: bool,
    /// Constants that only this scan's variants of a kernel have.
    constants: &'static [(&'static str, i64)],
    /// Written by `first`, the launches that both passes start with; `last` is the state after the sequence.
    work: &'static [ScanTensor],
    first: &'static [Launch],
    /// The last launch of the forward pass.
    output: Launch,
    /// Written only in the backward pass, in addition to gradients.
    backward_work: &'static [ScanTensor],
    backward: &'static [Launch],
    /// An operand's gradient that is the sum of a tensor of `backward_work` over all of its rows, in order.
    summed: &'static [(&'static str, &'static str)],
}

/// A tensor: its name, its dtype, its axes. `C` is the number of tokens in a chunk, `NT` of chunks in a sequence.
struct ScanTensor(&'static str, Type, &'static str);

#[derive(Clone, Copy)]
enum Type {
    /// The dtype of the scan's variant.
    Shared,
    F32,
}

/// A kernel, and those of its arguments whose names differ from the names of our tensors and sizes.
struct Launch(&'static str, &'static [(&'static str, &'static str)]);

/// Whether a scan's kernels were compiled for a state of rows × columns.
pub(crate) fn check(
    library: &Library,
    scan: ScanKind,
    kind: Kind,
    rows: i64,
    columns: i64,
) -> std::result::Result<(), Reason> {
    let table = tables::for_scan(scan).ok_or(Reason::Scan)?;
    let compiled = || {
        let constants = table.constants(kind, [rows, columns]).ok()?;
        let of_state = || table.state.iter().zip([rows, columns]);
        table
            .launches()
            .all(|Launch(name, _)| {
                agreeing(library, name, &constants).any(|kernel| {
                    of_state().all(|(axis, size)| {
                        match kernel.constants.get(&format!("BLOCK_{axis}")) {
                            Some(Constant::Int(block)) => *block > 0 && size % block == 0,
                            Some(Constant::Text(_)) => false,
                            None => true, // it does not go over this axis
                        }
                    })
                })
            })
            .then_some(())
    };
    compiled().ok_or(Reason::State(rows, columns))
}

/// The dtype of the variant for operands of these dtypes: bf16 if all that share it are, else f32.
pub(crate) fn kind(scan: ScanKind, operands: &[Kind]) -> Kind {
    let rows = tables::for_scan(scan).map_or(&[][..], |table| table.operands).iter().zip(operands);
    let mut shared = rows.filter_map(|(ScanTensor(_, ty, _), kind)| match ty {
        Type::Shared => Some(kind),
        Type::F32 => None,
    });
    let narrow = shared.all(|kind| *kind == Kind::BFloat16);
    if narrow { Kind::BFloat16 } else { Kind::Float }
}

impl Table {
    fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.first.iter().chain([&self.output]).chain(self.backward)
    }

    fn constants(&self, kind: Kind, state: [i64; 2]) -> Result<Vec<(&'static str, Constant)>> {
        let sizes = self.constants.iter().copied().chain(self.state.into_iter().zip(state));
        let sizes = sizes.map(|(name, value)| (name, Constant::Int(value)));
        Ok([("dtype", dtype(kind)?)].into_iter().chain(sizes).collect())
    }
}

/// A scan of these operands.
struct Running<'a> {
    table: &'static Table,
    named: Named<'a>,
    kind: Kind,
    like: Tensor,
}

impl<'a> Running<'a> {
    fn new(
        launcher: &'a Launcher,
        scan: ScanKind,
        x: &[&Tensor],
        scale: Option<f64>,
    ) -> Result<Self> {
        let missing = || KernelError::new(format!("no CUDA kernel was compiled for {scan:?}"));
        let table = tables::for_scan(scan).ok_or_else(missing)?;
        let (Some(like), true) = (x.first(), x.len() == table.operands.len()) else {
            return Err(KernelError::new(format!(
                "{scan:?} takes {} operands, and these are {}",
                table.operands.len(),
                x.len()
            )));
        };
        let kinds: Vec<Kind> = x.iter().map(|x| x.kind()).collect();
        for kind in &kinds {
            dtype(*kind)?;
        }
        let kind = kind(scan, &kinds);
        let mut named = Named::new(launcher, Vec::new());
        for (name, value) in [("2", 2), ("yes", 1), ("no", 0)] {
            named.int(name, value);
        }
        for name in table.absent {
            named.tensor(name, None);
        }
        for (ScanTensor(name, ty, axes), x) in table.operands.iter().zip(x) {
            let size = x.size();
            let wrong = || {
                KernelError::new(format!("a scan's {name} of shape {size:?}, expected [{axes}]"))
            };
            let mut sizes = size.iter();
            for axis in axes.split(' ') {
                let size = *sizes.next().ok_or_else(wrong)?;
                if *named.size(axis).get_or_insert(size) != size {
                    return Err(wrong());
                }
                named.int(axis, size);
            }
            if sizes.next().is_some() {
                return Err(wrong());
            }
            named.tensor(name, Some(dense(x, ty.kind(kind))?));
        }
        let size = |axis| named.size(axis).unwrap_or(0);
        let (state, time) = (table.state.map(size), size("T"));
        named.set_constants(table.constants(kind, state)?);
        let Launch(first, _) = table.first.first().unwrap_or(&table.output);
        let chunk = named.constant(first, "CHUNK")?;
        named.int("C", chunk);
        named.int("NT", (time + chunk - 1) / chunk);
        let [rows, _] = state;
        let usual = if table.scaled { 1.0 / (rows as f64).sqrt() } else { 1.0 };
        named.float("scale", scale.unwrap_or(usual));
        Ok(Self { table, named, kind, like: like.shallow_clone() })
    }

    fn start(&mut self, state: Option<&Tensor>) -> Result<()> {
        self.named.int("has_start", state.is_some().into());
        let state = state.map(|state| dense(state, Kind::Float)).transpose()?;
        self.named.tensor("start", state);
        Ok(())
    }

    fn room(&mut self, name: &str, ty: Type, axes: &str) -> Result<()> {
        let of_axis = |axis| {
            let size = self.named.size(axis);
            size.ok_or_else(|| KernelError::new(format!("a scan's {name} has an axis {axis}")))
        };
        let size = axes.split(' ').map(of_axis).collect::<Result<Vec<i64>>>()?;
        self.named.room(name, &size, ty.kind(self.kind), &self.like)
    }

    fn rooms(&mut self, rows: &[ScanTensor]) -> Result<()> {
        rows.iter().try_for_each(|ScanTensor(name, ty, axes)| self.room(name, *ty, axes))
    }

    fn run(&self, launches: &[Launch]) -> Result<()> {
        launches.iter().try_for_each(|Launch(kernel, renamed)| self.named.run_as(kernel, renamed))
    }
}

impl Type {
    fn kind(self, shared: Kind) -> Kind {
        match self {
            Type::Shared => shared,
            Type::F32 => Kind::Float,
        }
    }
}

/// y and the state after.
pub(crate) fn forward(
    launcher: &Launcher,
    scan: ScanKind,
    x: &[&Tensor],
    state: Option<&Tensor>,
    scale: Option<f64>,
) -> Result<Scanned> {
    let x = by_channel(scan, x)?;
    let mut running = Running::new(launcher, scan, &x.iter().collect::<Vec<_>>(), scale)?;
    let table = running.table;
    running.start(state)?;
    running.rooms(table.work)?;
    if let Some(ScanTensor(_, ty, axes)) = table.operands.get(scan.definition().result) {
        running.room("y", *ty, axes)?;
    }
    running.run(table.first)?;
    running.run(std::slice::from_ref(&table.output))?;
    Ok(Scanned { y: running.named.take("y")?, state: running.named.take("last")? })
}

/// From zero state: the gradient of each operand.
pub(crate) fn backward(
    launcher: &Launcher,
    scan: ScanKind,
    dy: &Tensor,
    x: &[&Tensor],
    scale: Option<f64>,
) -> Result<Vec<Tensor>> {
    let given = x;
    let x = by_channel(scan, x)?;
    let mut running = Running::new(launcher, scan, &x.iter().collect::<Vec<_>>(), scale)?;
    let table = running.table;
    running.start(None)?;
    running.named.tensor("dy", Some(dense(dy, running.kind)?));
    running.rooms(table.work)?;
    running.rooms(table.backward_work)?;
    let partial = |name: &str| {
        table.summed.iter().find(|(operand, _)| *operand == name).map(|(_, partial)| *partial)
    };
    for ScanTensor(name, ty, axes) in table.operands {
        if partial(name).is_none() {
            running.room(&format!("d{name}"), *ty, axes)?;
        }
    }
    running.run(table.first)?;
    running.run(table.backward)?;
    let mut gradients = Vec::with_capacity(x.len());
    for (ScanTensor(name, ..), x) in table.operands.iter().zip(&x) {
        gradients.push(match partial(name) {
            None => running.named.take(&format!("d{name}"))?,
            Some(partial) => {
                let width: i64 = x.size().iter().product();
                let rows = running.named.take(partial)?.f_reshape([-1, width.max(1)])?;
                sums::rows(launcher, &rows)?.f_reshape(x.size())?
            }
        });
    }
    if let (ScanKind::Gla, Some(dg), Some(g)) = (scan, gradients.last_mut(), given.last()) {
        *dg = like_gates(dg, g)?;
    }
    Ok(gradients)
}

/// The operands, with a head's gate copied to each of its channels.
fn by_channel(scan: ScanKind, x: &[&Tensor]) -> Result<Vec<Tensor>> {
    match (scan, x) {
        (ScanKind::Gla, [q, k, v, g]) => {
            let [q, k, v, g] = [q, k, v, &&channel_gates(q, g)?].map(|x| x.shallow_clone());
            Ok(vec![q, k, v, g])
        }
        _ => Ok(x.iter().map(|x| x.shallow_clone()).collect()),
    }
}

/// A dense copy in this dtype that begins at a multiple of 16 bytes, which scans were compiled for; or the tensor
/// itself.
fn dense(x: &Tensor, kind: Kind) -> Result<Tensor> {
    at_multiple(&x.f_to_kind(kind)?.f_contiguous()?, 16)
}
