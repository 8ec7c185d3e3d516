//! What a scan gives, whoever computes it.

use tch::Tensor;

/// The results of a scan.
#[derive(Debug)]
pub struct Scanned {
    /// [b, t, h, e]
    pub y: Tensor,
    /// [b, h, d, e]
    pub state: Tensor,
}
