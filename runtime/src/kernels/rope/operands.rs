//! A rotation, whoever computes it.

use compiler::plan::{RopeLayout, RopeScaling};

/// A rotation, without its start position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rotation {
    pub theta: f64,
    pub dims: i64,
    pub layout: RopeLayout,
    pub inverse: bool,
    pub scaling: RopeScaling,
}
