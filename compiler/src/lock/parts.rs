//! The parts of an experiment, typed: what the runtime reads.
//!
//! In: nothing; `experiment` fills them from checked fields. Must stay true: closed sets are enums,
//! reals stay exact, and a value that is not set is `None` only where that means something.

use dsl::Decimal;

use crate::digest::Digest;
use crate::plan::Recompute;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digests {
    /// The id: everything that changes the computation in exact arithmetic.
    pub train: Digest,
    /// And what is measured of it.
    pub eval: Digest,
    /// What is required of the machine.
    pub platform: Digest,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Data {
    pub seq_len: u64,
    pub loss_on: LossOn,
    pub source: DataSource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossOn {
    Answer,
    All,
}

#[derive(Clone, Debug, PartialEq)]
pub enum DataSource {
    Task {
        name: String,
        /// Under their published names, as the generator reads them.
        params: toml::Table,
        order: Order,
        ids: Ids,
    },
    Text {
        /// What people call it.
        name: String,
        /// `None` while the lock is open.
        digest: Option<Digest>,
        tokenizer: Tokenizer,
        add_bos: bool,
        add_eos: bool,
        /// Of a million documents, how many are held out.
        held_out_per_million: u32,
        held_out_seed: u64,
        weights: Vec<u64>,
        shuffle: Shuffle,
    },
}

/// What of the stream of documents is shuffled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shuffle {
    /// So many consecutive windows at a time, of documents in the order of their files.
    Buffer {
        windows: u64,
    },
    Documents,
    /// All windows of a pass.
    Windows,
}

/// How text becomes tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokenizer {
    /// 256 bytes and two marks.
    Bytes,
    File {
        kind: TokenizerKind,
        /// `None` while the lock is open.
        digest: Option<Digest>,
        /// Special tokens included.
        vocab: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenizerKind {
    /// `tokenizer.json`
    HuggingFace,
    /// Llama 2's `tokenizer.model`
    SentencePiece,
    /// Llama 3's `tokenizer.model`
    Tiktoken,
}

impl TokenizerKind {
    /// The word in `data.tokenizer`.
    pub fn name(self) -> &'static str {
        match self {
            TokenizerKind::HuggingFace => "huggingface",
            TokenizerKind::SentencePiece => "sentencepiece",
            TokenizerKind::Tiktoken => "tiktoken",
        }
    }
}

/// How wide numbers are between islands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    F32,
    /// A bf16 copy of every parameter in forward and backward, f32 masters (spec section 9). Locks may say
    /// so; there is no plan of it yet.
    Bf16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Indexed,
    Published,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    Published,
    Dense,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Of one micro-batch.
    pub sequences: u64,
    /// Of one step.
    pub micro_batches: u64,
    pub tokens_per_step: u64,
}

/// How the learning rate goes; reals are exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    Constant,
    Cosine { warmup: u64, lr_min_ratio: Decimal, cycle: Decimal, theta: Decimal },
    Linear { warmup: u64, lr_min_ratio: Decimal },
    InvSqrt { warmup: u64, lr_min_ratio: Decimal, exp_factor: Decimal },
    Wsd { warmup: u64, lr_min_ratio: Decimal, cycle: Decimal, decay_fraction: Decimal },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    pub steps: u64,
    pub tokens: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seeds {
    pub init: u64,
    pub data: u64,
    pub eval: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// Steps between; 0: after the last step only.
    pub every: u64,
    pub windows: u64,
    /// What is generated at one evaluation; 0 where the task is not measured by it.
    pub samples: u64,
    pub metrics: Vec<String>,
    /// Sizes of samples as in training, rather than all at the largest; text has no sizes.
    pub mode: Option<EvaluationMode>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvaluationMode {
    Train,
    Test,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Steps between; 0: after the last step only.
    pub every: u64,
    pub keep: u64,
}

/// What is required of the machine; `None` takes what it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    pub threads: Option<u32>,
    /// `default`, `avx2` or `avx512`.
    pub cpu_capability: Option<String>,
    /// `auto`, `avx2-strict` or `compatible`.
    pub blas: Option<String>,
    pub device: Device,
    pub fuse: bool,
    pub recompute: Recompute,
    /// A hint: what the micro-batches are spread over.
    pub devices: Option<u32>,
    pub canon: KernelPath,
    pub gated_norm: KernelPath,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    Cpu,
    Cuda,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelPath {
    Fused,
    Reference,
}
