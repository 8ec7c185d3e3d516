//! Options that several commands have, and parsers of their values.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};

/// The tokenizer of a lock or of an imported model.
#[derive(Args, Debug)]
pub struct PromptArgs {
    /// The file of the lock's tokenizer, unless it is bytes; the tokenizer.json of an imported model [default: the one in
    /// its folder or beside its weights]
    #[arg(long, value_name = "FILE")]
    pub tokenizer_file: Option<PathBuf>,
    /// The token before a text, such as `<s>`: for a lock if it was given to `canonc data prepare`, for an imported model
    /// if it should not be the one that its tokenizer.json adds
    #[arg(long, value_name = "TOKEN")]
    pub bos: Option<String>,
    /// The token that ends a text, such as `</s>`: for a lock if it was given to `canonc data prepare`, for an imported
    /// model if it should not be those of its generation_config.json, config.json and tokenizer_config.json
    #[arg(long, value_name = "TOKEN")]
    pub eos: Option<String>,
}

/// How to compute.
#[derive(Args, Clone, Copy, Debug)]
pub struct MachineArgs {
    /// Compute dtype: bf16 rounds activations and parameters, f64 is for checking results [default: f32; of `eval`, that
    /// of the lock if there is one]
    #[arg(long, value_enum, value_name = "TYPE")]
    pub dtype: Option<WithType>,
    /// The device
    #[arg(long, value_enum, value_name = "DEVICE", default_value_t)]
    pub device: OnDevice,
    /// The fastest kernels available, or only libtorch's plain operations
    #[arg(long, value_enum, value_name = "WHICH", default_value_t)]
    pub kernels: WithKernels,
}

impl MachineArgs {
    /// The dtype that is given, or the default.
    pub fn dtype(&self) -> WithType {
        self.dtype.unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum WithType {
    #[default]
    F32,
    F64,
    Bf16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OnDevice {
    #[default]
    Cpu,
    Cuda,
}

impl OnDevice {
    /// Its word in locks and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            OnDevice::Cpu => "cpu",
            OnDevice::Cuda => "cuda",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum WithKernels {
    #[default]
    Fastest,
    Reference,
}

/// A generous limit.
pub fn tokens(text: &str) -> Result<usize, String> {
    within(0, 10_000_000)(text)
}

/// A number of runs at a time.
pub fn jobs(text: &str) -> Result<usize, String> {
    within(1, 256)(text)
}

/// Reads a whole number of a range.
pub fn within<N>(
    least: N,
    most: N,
) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static
where
    N: FromStr + PartialOrd + fmt::Display + Copy + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| format!("give a whole number from {least} to {most}"))
    }
}
