//! The typed parts of an experiment, which the runtime reads.
//!
//! In: nothing; `experiment` fills them from checked fields. Must stay true: closed sets are enums,
//! reals stay exact, and `None` is used only if a missing value has a meaning.

use dsl::Decimal;

use crate::digest::Digest;
use crate::plan::Recompute;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digests {
    /// The id: everything that changes the computation in exact arithmetic.
    pub train: Digest,
    /// The training and its measurement.
    pub eval: Digest,
    /// The requirements on the machine.
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
        /// Parameters under their published names, as the generator reads them.
        params: toml::Table,
        order: Order,
        ids: Ids,
    },
    Text {
        /// The name for people.
        name: String,
        /// `None` while the lock is open.
        digest: Option<Digest>,
        tokenizer: Tokenizer,
        add_bos: bool,
        add_eos: bool,
        /// Held-out documents per million.
        held_out_per_million: u32,
        held_out_seed: u64,
        weights: Vec<u64>,
        shuffle: Shuffle,
    },
}

/// The unit in which the stream of documents is shuffled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shuffle {
    /// This many consecutive windows at a time, of documents in file order.
    Buffer {
        windows: u64,
    },
    Documents,
    /// All windows of a pass.
    Windows,
}

/// The tokenization of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokenizer {
    /// 256 bytes and two special tokens.
    Bytes,
    File {
        kind: TokenizerKind,
        /// `None` while the lock is open.
        digest: Option<Digest>,
        /// The vocabulary size, including special tokens.
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

/// The compute dtype outside f32 islands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    F32,
    /// A bf16 copy of every parameter in forward and backward, f32 masters (spec section 9). Locks may
    /// declare it; plans for it do not exist yet.
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
    /// Sequences in one micro-batch.
    pub sequences: u64,
    /// Micro-batches in one step.
    pub micro_batches: u64,
    pub tokens_per_step: u64,
}

/// The learning rate schedule; reals are exact.
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
    /// Steps between evaluations; 0: only after the last step.
    pub every: u64,
    pub windows: u64,
    /// Samples to generate at each evaluation; 0 if the task does not score generated text.
    pub samples: u64,
    pub metrics: Vec<String>,
    /// Whether sample sizes are as in training or always the largest; `None` for text.
    pub mode: Option<EvaluationMode>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvaluationMode {
    Train,
    Test,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Steps between checkpoints; 0: only after the last step.
    pub every: u64,
    pub keep: u64,
}

/// Requirements on the machine; `None` accepts any.
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
    /// A hint: the number of devices to spread the micro-batches over.
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
