//! Warnings of text that is read too often: by training, or within one evaluation.

use data::Windows;

use super::{Estimate, Job};

/// Passes over a source from which on more of them teach little: Muennighoff et al. 2023, "Scaling Data-Constrained
/// Language Models", section 6.
const PASSES: f64 = 4.0;

/// What a run on documents should be warned of before it starts.
pub fn repeated(job: &Job, estimate: &Estimate) -> Vec<String> {
    let mut warnings = Vec::new();
    for source in estimate.epochs.iter().flatten().filter(|source| source.epochs > PASSES) {
        warnings.push(format!(
            "training reads {} {:.0} times; after about {PASSES} passes more of them help little, and eval_loss may \
             rise again; prepare more text or lower budget.steps",
            source.name, source.epochs
        ));
    }
    if let Windows::Text(held_out) = &job.held_out {
        let tokens = job.evaluation_windows.saturating_mul(job.seq_len);
        let passes = held_out.passes(tokens);
        if passes > 1.0 {
            warnings.push(format!(
                "one evaluation reads the held-out text {passes:.1} times, so its targets are not all different; set \
                 evaluation.windows to {:.0} or less, raise data.held_out, or prepare more text",
                (job.evaluation_windows as f64 / passes).floor().max(1.0)
            ));
        }
    }
    warnings
}
