//! Training on many ranks, as data.
//!
//! What each rank owns, the exchanges of a training step in order, and the memory and time that a step takes. Pure: no
//! libtorch. The runtime does exactly what [`schedule::Schedule`] lists, so what is predicted is what is sent.
//!
//! Which rank owns what follows from the parameters' sizes alone:
//!
//! ```
//! use scale::shard::Shards;
//!
//! // Two layers of 100,000 elements each, on three ranks.
//! let shards = Shards::from_sizes(&[(Some(0), 100_000), (Some(1), 100_000)], 3);
//! assert_eq!(shards.part(0, 0), 0..32_768);
//! assert_eq!(shards.part(0, 2), 65_536..100_000);
//! ```

#![warn(missing_docs)]

pub mod reduce;
pub mod shard;
pub mod timeline;
pub mod schedule;
pub mod memory;
pub mod device;
pub mod predict;
