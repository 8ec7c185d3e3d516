//! For tests: a GPU that records. Tensors of the CPU stand for those of its memory.

use std::cell::{Cell, RefCell};

use gpu::{Fake, Launched, Launcher, Library};
use tch::Tensor;

use crate::kernels::ffi::shapes::{Performed, ShapesOnly};

thread_local! {
    static CURRENT: Cell<Option<&'static Launcher>> = const { Cell::new(None) };
    /// Operands in the order in which launches were given them.
    static OPERANDS: RefCell<Vec<Extent>> = const { RefCell::new(Vec::new()) };
}

/// The address of an operand, and the bytes from its first element to just past its last.
pub(crate) type Extent = (u64, u64);

/// Operations of libtorch on at least so many elements are not computed. The ids of a batch are fewer.
const LARGE: i64 = 1 << 18;

/// While it lives, our CUDA kernels of this thread are launched on a driver that records, and libtorch's operations on large
/// tensors, and those that it has only for GPUs, only allocate.
#[derive(Debug)]
pub(crate) struct Recorder {
    fake: Fake,
    shapes: ShapesOnly,
}

impl Recorder {
    /// A GPU of this compute capability.
    pub(crate) fn new(major: u32, minor: u32) -> Recorder {
        let library = Library::embedded().unwrap();
        let fake = Fake::new(library, major, minor);
        let launcher = Launcher::new(library, Box::new(fake.clone())).unwrap();
        CURRENT.set(Some(Box::leak(Box::new(launcher))));
        OPERANDS.take();
        Recorder { fake, shapes: ShapesOnly::begin(LARGE).unwrap() }
    }

    /// The launches so far, which are forgotten.
    pub(crate) fn take(&self) -> Vec<Launched> {
        self.fake.take()
    }

    /// The operations of libtorch so far, which are forgotten.
    pub(crate) fn performed(&self) -> Vec<Performed> {
        self.shapes.take()
    }

    /// The launches' operands, with those of launches of no programs, which the driver never sees.
    pub(crate) fn operands(&self) -> Vec<Extent> {
        OPERANDS.take()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

/// The launcher of this thread's recorder, if there is one.
pub(super) fn launcher() -> Option<&'static Launcher> {
    CURRENT.get()
}

/// Notes an operand of the next launch.
pub(super) fn note(tensor: &Tensor) {
    if CURRENT.get().is_none() {
        return;
    }
    let (size, strides) = (tensor.size(), tensor.stride());
    let last: i64 = size.iter().zip(&strides).map(|(count, stride)| (count - 1) * stride).sum();
    let elements = if size.contains(&0) { 0 } else { last + 1 };
    let bytes = elements as u64 * tensor.kind().elt_size_in_bytes() as u64;
    OPERANDS.with_borrow_mut(|operands| operands.push((tensor.data_ptr() as u64, bytes)));
}
