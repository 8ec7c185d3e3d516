//! Training on several processes.
//!
//! Any number of ranks computes the bits of one. Rank 0 decides what happens next, logs and saves; the others follow
//! its commands in one order. A rank that fails, or does not respond, ends all of them and is named.
//!
//! [`Collectives`] is the interface to the network; tests implement it with threads.

mod command;
mod exchange;
mod gloo;
mod launch;
mod pending;
pub mod simulated;

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use tch::Tensor;

use crate::error::ExecuteError;
use crate::kernels::Work;
use lab::experiment::Shard;

pub(crate) use command::Command;
pub use command::Ending;
pub(crate) use exchange::{Announced, Computed, Lists, Team, checked_by};
pub use gloo::{Arrived, Gloo};
pub use launch::{KILLED, Launch};

/// How a process takes part in training with others.
#[derive(Clone, Debug)]
pub struct Member {
    pub ranks: Rc<dyn Collectives>,
    /// What each rank holds only a part of.
    pub shard: Shard,
    /// Ranks on each machine, if gradients are added on each machine before they leave it.
    pub node: Option<u64>,
    /// For tests: this rank computes a wrong gradient in this step.
    pub wrong_in: Option<u64>,
}

/// What ranks do together. Every rank begins the same exchanges in the same order. Tensors have one axis and are
/// contiguous; numbers are on the CPU, and what is computed with is on the device.
pub trait Collectives: fmt::Debug {
    fn rank(&self) -> u64;

    fn size(&self) -> u64;

    /// Begins to send `input_counts[r]` elements to rank r, in order, and to receive `output_counts[r]` from it.
    fn begin_all_to_all(
        &self,
        output: Tensor,
        input: Tensor,
        output_counts: &[i64],
        input_counts: &[i64],
    ) -> Result<UnderWay, ExecuteError>;

    /// Begins to exchange the inputs `[n]` of all ranks, which the output will have one after another.
    fn begin_all_gather(&self, output: Tensor, input: Tensor) -> Result<UnderWay, ExecuteError>;

    /// The output of an exchange. Tensors on a CPU have arrived; what a GPU computes from now on waits for those there.
    fn wait(&self, exchange: UnderWay) -> Result<Tensor, ExecuteError>;

    /// Waits until all outputs have arrived. Called before numbers are read from the device, which would wait forever
    /// for a rank that is gone.
    fn settle(&self) -> Result<(), ExecuteError>;

    /// Overwrites the tensor with that of rank 0.
    fn broadcast(&self, tensor: &mut Tensor) -> Result<(), ExecuteError>;

    /// Bytes of tensors that this rank has received from others so far, or receives.
    fn received(&self) -> u64;

    /// [`Collectives::begin_all_to_all`], and waits.
    fn all_to_all(
        &self,
        output: Tensor,
        input: Tensor,
        output_counts: &[i64],
        input_counts: &[i64],
    ) -> Result<Tensor, ExecuteError> {
        self.wait(self.begin_all_to_all(output, input, output_counts, input_counts)?)
    }

    /// [`Collectives::begin_all_gather`], and waits.
    fn all_gather(&self, output: Tensor, input: Tensor) -> Result<Tensor, ExecuteError> {
        self.wait(self.begin_all_gather(output, input)?)
    }
}

/// An exchange that has begun.
#[derive(Debug)]
#[must_use = "an exchange that nobody waits for keeps its buffers"]
pub struct UnderWay(Exchange);

/// The implementation that runs it.
#[derive(Debug)]
enum Exchange {
    /// c10d.
    Work(Work),
    /// Ranks that are threads.
    Simulated(simulated::Begun),
}

/// Bytes of tensors that a rank has received from others.
#[derive(Debug, Default)]
struct Received(Cell<u64>);

impl Received {
    /// Counts an exchange of elements from each rank. What a rank sends to itself is not counted.
    fn add(&self, tensor: &Tensor, counts: impl Iterator<Item = i64>, rank: u64) {
        let others = (0..).zip(counts).filter(|(from, _)| *from != rank);
        let elements: i64 = others.map(|(_, count)| count).sum();
        let bytes = elements.unsigned_abs() * tensor.kind().elt_size_in_bytes() as u64;
        self.0.set(self.0.get() + bytes);
    }
}
