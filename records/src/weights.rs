//! What a run needs of a file of weights; whoever reads such files implements it.

use std::fmt::Debug;

use dsl::Problem;

/// The parameters of an arch in a file.
pub trait WeightSource: Debug {
    /// Passes the values of the parameter with this index to `put`, in order and in pieces.
    fn param(&self, index: usize, put: &mut dyn FnMut(&[f32])) -> Result<(), Problem>;

    /// Whether the file has the parameter with this index.
    fn has(&self, _index: usize) -> bool {
        true
    }
}
