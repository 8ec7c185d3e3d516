//! Training data as numbered windows of tokens: the synthetic tasks, and prepared text.
//!
//! A window depends only on (data identity, seed, window number), so resuming and sharding are arithmetic, and equal
//! data is always checked by digest. Windows need no tensors, clock or threads; only [`text::prepare`] has threads, and a
//! clock for documents that take too long.
//!
//! The crate `tasks` writes samples. [`window`] packs samples, [`text`] packs documents, and both fill a [`batch`];
//! [`babilong`] fills prompts. [`stream`] gives samples one by one, and [`mod@write`], [`inspect`] and [`stats`] show
//! them.
//!
//! ```
//! use data::batch::Batch;
//! use data::window::{Ids, LossOn, Options, Order, TaskWindows};
//! use data::{Split, settings};
//!
//! # fn main() -> Result<(), dsl::Problem> {
//! let depo = ["N=10", "K=4", "mini_vocab=50", "min_tlen=1", "max_tlen=2"];
//! let parameters = settings::parameters(&depo, |_| unreachable!("no value is a file"))?;
//! let (task, mode) = settings::task("depo", parameters, None)?;
//! let options = Options {
//!     seq_len: 256,
//!     seed: 1,
//!     split: Split::Train,
//!     mode,
//!     order: Order::Indexed,
//!     loss_on: LossOn::Answer,
//!     ids: Ids::Published,
//! };
//! let (mut one, mut other) = (Batch::default(), Batch::default());
//! TaskWindows::new(task.clone(), options)?.fill(40..44, &mut one)?;
//! assert_eq!((one.rows(), one.seq_len(), one.inputs().len()), (4, 256, 4 * 256));
//! // Window 43 is the same in any batch.
//! TaskWindows::new(task, options)?.fill(43..44, &mut other)?;
//! assert_eq!(one.window_digests()[3], other.window_digests()[0]);
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]

pub mod babilong;
pub mod batch;
pub mod settings;
pub mod stats;
pub mod text;
pub mod window;
pub mod stream;
pub mod write;
pub mod inspect;

use std::ops::Range;

use batch::Batch;
use dsl::Problem;
use text::TextWindows;
use window::TaskWindows;

/// A set of documents or windows: for training, or held out from training by key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Used for training.
    Train,
    /// Kept out of training, for evaluation.
    HeldOut,
}

impl Split {
    /// The word used in keys. It must never change, since it decides the data.
    fn key(self) -> &'static str {
        match self {
            Split::Train => "train",
            Split::HeldOut => "eval",
        }
    }
}

/// A numbered sequence of windows of any kind.
#[derive(Clone, Debug)]
pub enum Windows {
    /// Samples of a synthetic task.
    Task(TaskWindows),
    /// Prepared documents.
    Text(TextWindows),
}

impl Windows {
    /// Fills `batch` with the windows of these numbers, one per row. Its row count becomes the range's length.
    pub fn fill(&mut self, numbers: Range<u64>, batch: &mut Batch) -> Result<(), Problem> {
        match self {
            Windows::Task(windows) => windows.fill(numbers, batch),
            Windows::Text(windows) => windows.fill(numbers, batch),
        }
    }
}
