//! Launches whose arguments are looked up by the names that the kernels give them.
//!
//! The manifest alone says which arguments a kernel takes, in which order. A missing argument is an error, never a null
//! pointer.

use std::collections::BTreeMap;

use gpu::{Constant, Kernel, Launcher, Library, ParamType, Pointer};
use tch::{Kind, Tensor};

use super::{Items, empty, pointer};
use crate::kernels::KernelError;

type Result<T> = std::result::Result<T, KernelError>;

/// The arguments that several launches share. A kernel takes those that it declares, and ignores the rest.
pub(super) struct Named<'a> {
    launcher: &'a Launcher,
    constants: Vec<(&'static str, Constant)>,
    /// `None`: an operand that is absent, a null pointer.
    tensors: BTreeMap<String, Option<Tensor>>,
    integers: BTreeMap<String, i64>,
    floats: BTreeMap<&'static str, f64>,
}

/// The kernels of this name that were compiled for these constants. A constant that a kernel does not have may have any
/// value.
pub(super) fn agreeing<'a>(
    library: &'a Library,
    name: &str,
    constants: &[(&str, Constant)],
) -> impl Iterator<Item = &'a Kernel> {
    let kernels = library.compiled(name, &[]).map(|(_, kernel)| kernel);
    kernels.filter(move |kernel| {
        let agrees = |(name, value): &(&str, Constant)| {
            kernel.constants.get(*name).is_none_or(|known| known == value)
        };
        constants.iter().all(agrees)
    })
}

impl<'a> Named<'a> {
    pub(super) fn new(launcher: &'a Launcher, constants: Vec<(&'static str, Constant)>) -> Self {
        Self {
            launcher,
            constants,
            tensors: BTreeMap::new(),
            integers: BTreeMap::new(),
            floats: BTreeMap::new(),
        }
    }

    pub(super) fn set_constants(&mut self, constants: Vec<(&'static str, Constant)>) {
        self.constants = constants;
    }

    /// A constant of a kernel. All of its variants for our constants have the same value.
    pub(super) fn constant(&self, kernel: &str, name: &str) -> Result<i64> {
        let mut agreeing = agreeing(self.launcher.library(), kernel, &self.constants);
        match agreeing.next().and_then(|kernel| kernel.constants.get(name)) {
            Some(Constant::Int(value)) => Ok(*value),
            Some(Constant::Text(_)) | None => Err(self.uncompiled(kernel)),
        }
    }

    fn uncompiled(&self, kernel: &str) -> KernelError {
        let constants = self.constants.iter().map(|(name, value)| format!("{name} {value}"));
        let constants = constants.collect::<Vec<String>>().join(", ");
        KernelError::new(format!("no CUDA kernel {kernel} was compiled for {constants}"))
    }

    /// An integer argument that was set.
    pub(super) fn size(&self, name: &str) -> Option<i64> {
        self.integers.get(name).copied()
    }

    pub(super) fn int(&mut self, name: &str, value: i64) {
        self.integers.insert(name.to_owned(), value);
    }

    pub(super) fn float(&mut self, name: &'static str, value: f64) {
        self.floats.insert(name, value);
    }

    /// Sets an operand, without a copy.
    pub(super) fn tensor(&mut self, name: &str, tensor: Option<Tensor>) {
        self.tensors.insert(name.to_owned(), tensor);
    }

    /// Sets an operand [b, t, c], and the strides of its items and tokens, `NAME_batch` and `NAME_row`.
    pub(super) fn items(&mut self, name: &str, x: &Tensor) -> Result<()> {
        let Items { x, batch, row } = Items::from_tensor(x)?;
        self.int(&format!("{name}_batch"), batch);
        self.int(&format!("{name}_row"), row);
        self.tensor(name, Some(x));
        Ok(())
    }

    /// Allocates a result, or a tensor that one launch writes and another reads.
    pub(super) fn room(
        &mut self,
        name: &str,
        size: &[i64],
        kind: Kind,
        like: &Tensor,
    ) -> Result<()> {
        self.tensor(name, Some(empty(size, kind, like)?));
        Ok(())
    }

    /// Removes and returns a tensor that was written.
    pub(super) fn take(&mut self, name: &str) -> Result<Tensor> {
        let tensor = self.tensors.remove(name).flatten();
        tensor.ok_or_else(|| KernelError::new(format!("no launch has written {name}")))
    }

    /// Launches a kernel.
    pub(super) fn run(&self, kernel: &str) -> Result<()> {
        self.run_as(kernel, &[])
    }

    /// Launches a kernel with other names for some arguments: (the kernel's, ours).
    pub(super) fn run_as(&self, name: &str, renamed: &[(&str, &str)]) -> Result<()> {
        let library = self.launcher.library();
        let kernel = agreeing(library, name, &self.constants).next();
        let kernel = kernel.ok_or_else(|| self.uncompiled(name))?;
        let has = |name: &str| kernel.constants.contains_key(name);
        let constants: Vec<_> =
            self.constants.iter().filter(|(name, _)| has(name)).cloned().collect();
        let mut call = self.launcher.call(name, &constants);
        for param in &kernel.params {
            let ours = renamed.iter().find(|(theirs, _)| *theirs == param.name);
            let ours = ours.map_or(param.name.as_str(), |(_, ours)| *ours);
            let missing =
                || KernelError::new(format!("kernel {name} takes {ours}, which is not given"));
            call = match param.ty {
                ParamType::Pointer(element) => {
                    let tensor = self.tensors.get(ours).ok_or_else(missing)?;
                    let absent = Pointer { address: 0, element };
                    call.pointer(&param.name, tensor.as_ref().map_or(Ok(absent), pointer)?)
                }
                ParamType::I32 | ParamType::I64 => {
                    call.int(&param.name, *self.integers.get(ours).ok_or_else(missing)?)
                }
                ParamType::F32 | ParamType::F64 => {
                    call.float(&param.name, *self.floats.get(ours).ok_or_else(missing)?)
                }
                ParamType::Scratch => call,
            };
        }
        Ok(call.run()?)
    }
}
