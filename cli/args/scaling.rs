//! Arguments of `canonc scaling`, which fits comparisons across sizes.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Fit the loss of both arms against size, and estimate how much compute the treatment saves
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc scaling lockfiles/width64.lock lockfiles/width128.lock lockfiles/width256.lock lockfiles/width512.lock
  canonc scaling lockfiles/depth*.lock --by parameters
  canonc scaling lockfiles/width*.lock --arm canon --json

Each LOCK is a comparison of the same treatment at another size, with finished runs: `canonc compare LOCK` makes
them. Both arms are fitted by the same curve, loss = b C^-c, or with five or more sizes over two decades
loss = a + b C^-c. The result is a compute ratio with a 95% interval: how many times the compute of the treated
arm the base needs for the same loss, at the middle of the sizes. If the treated arm is larger or needs more
FLOPs than the base of its size, the ratio counts that against it. Sizes can have different numbers of seeds. A
loss is marked as seen in training by the rule of `canonc compare`.

A reason replaces the ratio with fewer than four sizes, with less than one decade between the smallest and the
largest, if a loss does not fall with size beyond chance, if no loss is reached by both arms within the sizes, or
if the interval is not finite. docs/statistics.md explains the method and its coverage.

Exit codes: 0 a fit was made, 1 the sizes or runs do not support one, 2 a lock cannot be used.
Schema of --json: {schema: \"canonc.scaling.v1\", by, metric, label (with the reason if the
loss is not held-out), base, treated, controlled, sizes: [{name, lock, design (as
in canonc compare), at, treated_over_base, base: [loss by seed], treated: the same}], fit: {model, base: {floor, factor, exponent,
exponent_error}, treated: the same, unit, sizes, runs, at_loss, df}, compute_ratio: {ratio, low, high, level,
reaches_beyond_sizes}, compute_saved: {share, low, high}, refused: the reason}; without a fit the first three
are null, with a fit refused is.")]
pub struct ScalingArgs {
    /// Comparison locks, one for each size
    #[arg(value_name = "LOCK", required = true)]
    pub locks: Vec<PathBuf>,
    /// Measure of size
    #[arg(long, value_enum, default_value_t = By::Flops)]
    pub by: By,
    /// The loss to fit
    #[arg(long, value_enum, default_value_t = Which::Evaluation)]
    pub loss: Which,
    /// The treated arm, if comparisons have several
    #[arg(long, value_name = "NAME")]
    pub arm: Option<String>,
    /// Folder of runs, with a subfolder for each comparison
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// FLOPs of the whole training
    Flops,
    /// Parameters of the arch
    Parameters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Which {
    /// The loss of the last evaluation
    Evaluation,
    /// The mean training loss of the last tenth of the steps
    Training,
}
