//! The typed parts of an experiment, which the runtime reads. Reals stay exact, and `None` is used only where a missing
//! value has a meaning.

use dsl::Decimal;
use tasks::sample::Mode;
use tasks::task::Task;

use crate::field::SuiteTask;
use compiler::digest::Digest;
use compiler::plan::Recompute;

/// Digests of an experiment's fields, by class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digests {
    /// The id: everything that changes the computation in exact arithmetic.
    pub train: Digest,
    /// The training and its measurement.
    pub eval: Digest,
    /// The requirements on the machine.
    pub platform: Digest,
}

/// What the model is trained and evaluated on.
#[derive(Clone, Debug, PartialEq)]
pub struct Data {
    /// Input tokens of one window.
    pub seq_len: u64,
    /// Which tokens are targets.
    pub loss_on: LossOn,
    /// Where windows come from.
    pub source: DataSource,
}

/// Which tokens of a window are targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossOn {
    /// Answers only.
    Answer,
    /// Every token that follows another in a window.
    All,
}

/// Where windows come from.
#[derive(Clone, Debug, PartialEq)]
pub enum DataSource {
    /// A synthetic task.
    Task {
        /// The task with its parameters.
        task: Task,
        /// Order of the windows.
        order: Order,
        /// Token ids in windows.
        ids: Ids,
    },
    /// Prepared documents.
    Text {
        /// The name in messages.
        name: String,
        /// `None` while the lock is open.
        digest: Option<Digest>,
        /// How documents become tokens.
        tokenizer: Tokenizer,
        /// Whether a token comes before each document.
        add_bos: bool,
        /// Whether a token comes after each document.
        add_eos: bool,
        /// Held-out documents per million.
        held_out_per_million: u32,
        /// Seed of the choice of held-out documents.
        held_out_seed: u64,
        /// Share of each source among the documents that are read; empty reads every document once per pass.
        weights: Vec<u64>,
        /// Order of the windows.
        shuffle: Shuffle,
    },
}

/// The unit in which the stream of documents is shuffled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shuffle {
    /// This many consecutive windows at a time, of documents in file order.
    Buffer {
        /// Windows that are shuffled together.
        windows: u64,
    },
    /// Whole documents, so that consecutive windows come from one document.
    Documents,
    /// All windows of a pass.
    Windows,
}

/// The tokenization of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokenizer {
    /// 256 bytes and two special tokens.
    Bytes,
    /// A trained tokenizer.
    File {
        /// Format of its file.
        kind: TokenizerKind,
        /// `None` while the lock is open.
        digest: Option<Digest>,
        /// The vocabulary size, including special tokens.
        vocab: u64,
    },
}

/// Formats of tokenizer files.
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
    /// All formats.
    pub const ALL: [TokenizerKind; 3] =
        [TokenizerKind::HuggingFace, TokenizerKind::SentencePiece, TokenizerKind::Tiktoken];

    /// The format with this word in `data.tokenizer`.
    pub fn named(name: &str) -> Option<TokenizerKind> {
        TokenizerKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The word in `data.tokenizer`.
    pub fn name(self) -> &'static str {
        match self {
            TokenizerKind::HuggingFace => "huggingface",
            TokenizerKind::SentencePiece => "sentencepiece",
            TokenizerKind::Tiktoken => "tiktoken",
        }
    }
}

/// Order of a synthetic task's windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Numbered windows: window w depends on task, seed and w alone.
    Indexed,
    /// The published stream, in which each sample depends on all earlier draws.
    Published,
}

/// Token ids in a synthetic task's windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    /// Those of the published scripts.
    Published,
    /// Renumbered from 0, without unused ids.
    Dense,
}

/// Sequences and tokens of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Sequences in one micro-batch.
    pub sequences: u64,
    /// Micro-batches in one step.
    pub micro_batches: u64,
    /// Neighbouring micro-batches that are added in sequence, before the tree.
    pub in_sequence: u64,
    /// Input tokens of all sequences.
    pub tokens_per_step: u64,
}

/// The learning rate schedule. Reals are exact; [`Schedule::to_f64`] rounds them, to compute rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule<Number = Decimal> {
    /// The base rate at every step.
    Constant,
    /// Warm-up, then half a cosine wave in each cycle, every second one rising.
    Cosine {
        /// Steps from 0 to the base rate.
        warmup: u64,
        /// The last rate as a share of the base rate.
        lr_min_ratio: Number,
        /// Length of a cycle as a share of the run.
        cycle: Number,
        /// Exponent that bends the cosine's progress.
        theta: Number,
    },
    /// Warm-up, then a straight line down.
    Linear {
        /// Steps from 0 to the base rate.
        warmup: u64,
        /// The last rate as a share of the base rate.
        lr_min_ratio: Number,
    },
    /// Warm-up, then (warmup / step) ^ `exp_factor`, never below `lr_min_ratio`.
    InvSqrt {
        /// Steps from 0 to the base rate.
        warmup: u64,
        /// The lowest rate as a share of the base rate.
        lr_min_ratio: Number,
        /// Exponent of warmup / step.
        exp_factor: Number,
    },
    /// Warm-up, the base rate, then a decay at the end of each cycle.
    Wsd {
        /// Steps from 0 to the base rate.
        warmup: u64,
        /// The last rate as a share of the base rate.
        lr_min_ratio: Number,
        /// Length of a cycle as a share of the run.
        cycle: Number,
        /// Share of a cycle that decays.
        decay_fraction: Number,
        /// The curve of the decay.
        decay: Decay,
    },
}

/// How the learning rate of WSD falls from the base rate to its smallest, over x from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decay {
    /// Half a cosine wave.
    Cosine,
    /// Lingua's: a straight line of the inverse rate.
    Hyperbola,
    /// A straight line.
    Linear,
    /// 1 − sqrt(x): steep at first.
    Sqrt,
}

impl Decay {
    /// All of them, by name.
    pub const ALL: [Decay; 4] = [Decay::Cosine, Decay::Hyperbola, Decay::Linear, Decay::Sqrt];

    /// The one with this word in `schedule.decay`.
    pub fn named(word: &str) -> Option<Decay> {
        Decay::ALL.into_iter().find(|decay| decay.name() == word)
    }

    /// The word in `schedule.decay`.
    pub fn name(self) -> &'static str {
        match self {
            Decay::Cosine => "cosine",
            Decay::Hyperbola => "hyperbola",
            Decay::Linear => "linear",
            Decay::Sqrt => "sqrt",
        }
    }
}

impl Schedule {
    /// The schedule with every real rounded once, to the nearest f64.
    pub fn to_f64(&self) -> Schedule<f64> {
        match *self {
            Schedule::Constant => Schedule::Constant,
            Schedule::Cosine { warmup, lr_min_ratio, cycle, theta } => Schedule::Cosine {
                warmup,
                lr_min_ratio: lr_min_ratio.to_f64(),
                cycle: cycle.to_f64(),
                theta: theta.to_f64(),
            },
            Schedule::Linear { warmup, lr_min_ratio } => {
                Schedule::Linear { warmup, lr_min_ratio: lr_min_ratio.to_f64() }
            }
            Schedule::InvSqrt { warmup, lr_min_ratio, exp_factor } => Schedule::InvSqrt {
                warmup,
                lr_min_ratio: lr_min_ratio.to_f64(),
                exp_factor: exp_factor.to_f64(),
            },
            Schedule::Wsd { warmup, lr_min_ratio, cycle, decay_fraction, decay } => Schedule::Wsd {
                warmup,
                lr_min_ratio: lr_min_ratio.to_f64(),
                cycle: cycle.to_f64(),
                decay_fraction: decay_fraction.to_f64(),
                decay,
            },
        }
    }
}

/// Length of a training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Updates of the parameters.
    pub steps: u64,
    /// Input tokens of all steps.
    pub tokens: u64,
}

/// Where the initial weights come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Init {
    /// Each is drawn by its rule.
    Drawn,
    /// From a file.
    Weights {
        /// The name in messages, and the usual path.
        name: String,
        /// Digest of the file's tensors; `None` while the lock is open.
        digest: Option<Digest>,
        /// What to do about parameters that the file lacks.
        missing: Missing,
    },
}

/// What to do about parameters that a file of initial weights lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// They are drawn, like those of a run without such a file.
    Drawn,
    /// The file is refused.
    Refused,
}

/// Seeds of one repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seeds {
    /// Seed of initial values.
    pub init: u64,
    /// Seed of the order and content of training windows.
    pub data: u64,
    /// Seed of evaluation windows.
    pub eval: u64,
}

/// What is measured, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// Steps between evaluations; 0: only after the last step.
    pub every: u64,
    /// Windows per evaluation.
    pub windows: u64,
    /// Samples to generate at each evaluation; 0 if the task does not score generated text.
    pub samples: u64,
    /// Names of the metrics to report.
    pub metrics: Vec<String>,
    /// Whether sample sizes are as in training or always the largest; `None` for text.
    pub mode: Option<Mode>,
    /// Suites of tasks: files, or `release`.
    pub suites: Vec<String>,
    /// The folder of the suites' questions; `None` for each suite's own.
    pub suite_data: Option<String>,
    /// The tokenizer's file, which suites need.
    pub tokenizer_file: Option<String>,
    /// The tasks of the suites.
    pub tasks: Vec<SuiteTask>,
}

impl Evaluation {
    /// The names of all reported metrics, those of suites last.
    pub fn metric_names(&self) -> Vec<String> {
        let of_suites = self.tasks.iter().flat_map(SuiteTask::metric_names);
        self.metrics.iter().cloned().chain(of_suites).collect()
    }
}

/// When the state of a run is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Steps between checkpoints; 0: only after the last step.
    pub every: u64,
    /// Number of verified checkpoints that are kept.
    pub keep: u64,
}

/// Requirements on the machine; `None` accepts any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// CPU threads.
    pub threads: Option<u32>,
    /// `default`, `avx2` or `avx512`.
    pub cpu_capability: Option<String>,
    /// `auto`, `avx2-strict` or `compatible`.
    pub blas: Option<String>,
    /// The device to run on.
    pub device: Device,
    /// Whether fused kernels are used.
    pub fuse: bool,
    /// Activations that the backward pass recomputes instead of keeping.
    pub recompute: Recompute,
    /// The number of devices, with a rank for each.
    pub devices: Option<u32>,
    /// Devices of each machine.
    pub devices_per_node: Option<u32>,
    /// What ranks divide among themselves.
    pub shard: Shard,
    /// The kernel of Canon layers.
    pub canon: KernelPath,
    /// The kernel of gated norms.
    pub gated_norm: KernelPath,
}

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The processor.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
}

/// What ranks divide among themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shard {
    /// Every rank holds all weights and moments.
    None,
    /// Each rank holds, and updates with, a part of the moments.
    Optimizer,
    /// Each rank holds a part of the weights and moments; a layer is whole only while it is computed.
    Full,
}

impl Shard {
    /// All of them, from no sharding to full.
    pub const ALL: [Shard; 3] = [Shard::None, Shard::Optimizer, Shard::Full];

    /// The one with this word in `platform.shard`.
    pub fn named(word: &str) -> Option<Shard> {
        Shard::ALL.into_iter().find(|shard| shard.name() == word)
    }

    /// The word in `platform.shard`.
    pub fn name(self) -> &'static str {
        match self {
            Shard::None => "none",
            Shard::Optimizer => "optimizer",
            Shard::Full => "full",
        }
    }
}

/// Which of two kernels computes an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelPath {
    /// One kernel for the whole operation.
    Fused,
    /// The plain composition of smaller kernels.
    Reference,
}
