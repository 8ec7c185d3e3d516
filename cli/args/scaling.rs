//! Arguments of `canonc scaling`, which fits comparisons across sizes.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Fit the loss of both arms against size, and say how much compute the treatment saves
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc scaling lockfiles/width64.lock lockfiles/width128.lock lockfiles/width256.lock lockfiles/width512.lock
  canonc scaling lockfiles/depth*.lock --by parameters
  canonc scaling lockfiles/width*.lock --arm canon --json

Each LOCK is a comparison of the same treatment at another size, whose runs are finished: `canonc compare LOCK`
makes them. Both arms get the same curve, loss = b C^-c, or loss = a + b C^-c from five sizes over two decades
on. The answer is a compute ratio: how many times the compute of the treated arm the base needs for the same
loss, read at the middle of the sizes, with a 95% interval. Where the treated arm is larger or needs more FLOPs
than the base of its size, the ratio counts that against it. Sizes may have other numbers of seeds: each counts by
its own. A loss is called held-out by the rule of `canonc compare`.

There is no number, and the reason instead, below four sizes, below one decade between the smallest and the
largest, where a loss does not fall with size beyond chance, where no loss is reached by both arms within the
sizes, and where the interval is not finite. docs/statistics.md explains the method and its coverage.

Exit codes: 0 there is a fit, 1 the sizes or runs do not support one, 2 a lock cannot be used.
Schema of --json: {schema: \"canonc.scaling.v1\", by, metric, label (why the loss is
not held-out), base, treated, controlled, sizes: [{name, lock, at,
treated_over_base, base: [loss by seed], treated: the same}], fit: {model, base: {floor, factor, exponent,
exponent_error}, treated: the same, unit, sizes, runs, at_loss, df}, compute_ratio: {ratio, low, high, level,
reaches_beyond_sizes}, compute_saved: {share, low, high}, refused: the reason}; without a fit those three are
null, with one refused is.")]
pub struct ScalingArgs {
    /// Locks of kind comparison, one for each size
    #[arg(value_name = "LOCK", required = true)]
    pub locks: Vec<PathBuf>,
    /// What a size is
    #[arg(long, value_enum, default_value_t = By::Flops)]
    pub by: By,
    /// Which loss
    #[arg(long, value_enum, default_value_t = Which::Evaluation)]
    pub loss: Which,
    /// The treated arm, where comparisons have several
    #[arg(long, value_name = "NAME")]
    pub arm: Option<String>,
    /// Where runs are, each comparison in a folder of its name
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub dir: PathBuf,
    /// As JSON on standard output
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
    /// Of the last evaluation
    Evaluation,
    /// Of the last tenth of the training steps
    Training,
}
