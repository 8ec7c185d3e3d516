//! The tables of the scans, as gpu/kernels/README-scans.md describes them.

use compiler::op::ScanKind;

use super::Type::{F32, Shared};
use super::{Launch, ScanTensor, Table};

/// None for a scan without kernels.
pub(super) fn for_scan(scan: ScanKind) -> Option<&'static Table> {
    match scan {
        ScanKind::Delta => Some(&DELTA),
        ScanKind::Dplr => None,
        ScanKind::Gla => Some(&GLA),
        ScanKind::Rwkv6 => Some(&RWKV6),
        ScanKind::Ssd => Some(&SSD),
    }
}

/// A kernel whose arguments have the names of the table.
const fn plain(kernel: &'static str) -> Launch {
    Launch(kernel, &[])
}

/// The gated delta rule (gpu/kernels/scan_delta.py).
static DELTA: Table = Table {
    operands: &[
        ScanTensor("q", Shared, "B T H K"),
        ScanTensor("k", Shared, "B T H K"),
        ScanTensor("v", Shared, "B T H V"),
        ScanTensor("beta", F32, "B T H"),
        ScanTensor("g", F32, "B T H"),
    ],
    absent: &[],
    state: ["K", "V"],
    scaled: true,
    constants: &[],
    work: &[
        ScanTensor("scores", Shared, "B H NT C C"),
        ScanTensor("inverse", Shared, "B H NT C C"),
        ScanTensor("faded", Shared, "B T H K"),
        ScanTensor("fresh", Shared, "B T H V"),
        ScanTensor("written", Shared, "B T H V"),
        ScanTensor("states", Shared, "B H NT K V"),
        ScanTensor("last", F32, "B H K V"),
    ],
    first: &[
        plain("delta_inverse"),
        Launch("delta_rows", &[("x", "k"), ("out", "faded"), ("W", "K"), ("fades", "yes")]),
        Launch("delta_rows", &[("x", "v"), ("out", "fresh"), ("W", "V"), ("fades", "no")]),
        plain("delta_states"),
    ],
    output: plain("delta_output"),
    backward_work: &[
        ScanTensor("gradients", Shared, "B H NT K V"),
        ScanTensor("dwritten", Shared, "B T H V"),
        ScanTensor("dsolved", Shared, "B T H V"),
        ScanTensor("pull", Shared, "B H NT C C"),
        ScanTensor("push", Shared, "B H NT C C"),
        ScanTensor("rows", F32, "2 B H NT C"),
    ],
    backward: &[
        plain("delta_state_gradients"),
        plain("delta_rows_back"),
        plain("delta_pair_gradients"),
        plain("delta_gate_gradients"),
        plain("delta_key_gradients"),
    ],
    summed: &[],
};

/// Gated linear attention (gpu/kernels/scan_gla.py).
static GLA: Table = Table {
    operands: &[
        ScanTensor("q", Shared, "B T H K"),
        ScanTensor("k", Shared, "B T H K"),
        ScanTensor("v", Shared, "B T H V"),
        ScanTensor("g", Shared, "B T H K"),
    ],
    absent: &["u", "bonus"],
    scaled: true,
    constants: &[("READ_FIRST", 0)],
    summed: &[],
    ..CHANNELS
};

/// RWKV-6's recurrence: the kernels of gated linear attention, with r as queries.
static RWKV6: Table = Table {
    operands: &[
        ScanTensor("q", Shared, "B T H K"),
        ScanTensor("k", Shared, "B T H K"),
        ScanTensor("v", Shared, "B T H V"),
        ScanTensor("g", Shared, "B T H K"),
        ScanTensor("u", F32, "H K"),
    ],
    absent: &[],
    scaled: false,
    constants: &[("READ_FIRST", 1)],
    backward_work: &[
        ScanTensor("gradients", Shared, "B H NT K V"),
        ScanTensor("dscores", Shared, "B H NT C C"),
        ScanTensor("near_q", F32, "B T H K"),
        ScanTensor("near_k", F32, "B T H K"),
        ScanTensor("bonus", F32, "B NT H K"),
    ],
    summed: &[("u", "bonus")],
    ..CHANNELS
};

/// A decay for each channel of the keys: what the two scans above share.
const CHANNELS: Table = Table {
    operands: &[],
    absent: &[],
    state: ["K", "V"],
    scaled: false,
    constants: &[],
    work: &[
        ScanTensor("scores", Shared, "B H NT C C"),
        ScanTensor("states", Shared, "B H NT K V"),
        ScanTensor("last", F32, "B H K V"),
    ],
    first: &[plain("gla_scores"), plain("gla_states")],
    output: plain("gla_output"),
    backward_work: &[
        ScanTensor("gradients", Shared, "B H NT K V"),
        ScanTensor("dscores", Shared, "B H NT C C"),
        ScanTensor("near_q", F32, "B T H K"),
        ScanTensor("near_k", F32, "B T H K"),
    ],
    backward: &[
        plain("gla_state_gradients"),
        plain("gla_score_gradients"),
        plain("gla_value_gradients"),
        plain("gla_near_gradients"),
        plain("gla_key_gradients"),
    ],
    summed: &[],
};

/// Mamba2's recurrence (gpu/kernels/scan_ssd.py).
static SSD: Table = Table {
    operands: &[
        ScanTensor("x", Shared, "B T H P"),
        ScanTensor("dt", F32, "B T H"),
        ScanTensor("a", F32, "H"),
        ScanTensor("b", Shared, "B T G N"),
        ScanTensor("c", Shared, "B T G N"),
        ScanTensor("d", F32, "H"),
    ],
    absent: &[],
    state: ["P", "N"],
    scaled: false,
    constants: &[],
    work: &[
        ScanTensor("scores", F32, "B G NT C C"),
        ScanTensor("states", Shared, "B H NT P N"),
        ScanTensor("last", F32, "B H P N"),
    ],
    first: &[plain("ssd_scores"), plain("ssd_states")],
    output: plain("ssd_output"),
    backward_work: &[
        ScanTensor("gradients", Shared, "B H NT P N"),
        ScanTensor("rows", F32, "2 B H NT C"),
        ScanTensor("weights", F32, "B H NT C C"),
        ScanTensor("parts", F32, "2 B H NT"),
    ],
    backward: &[
        plain("ssd_state_gradients"),
        plain("ssd_value_gradients"),
        plain("ssd_gate_gradients"),
        plain("ssd_group_gradients"),
        plain("ssd_parameters"),
    ],
    summed: &[],
};
