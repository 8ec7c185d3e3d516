//! What a difference between two arms can be attributed to, and among what its points were chosen.

use lab::verdict::{Outcome, Verdict};
use serde::Serialize;

/// What a pair of points shows.
///
/// In the order of what is left open: of several pairs, the greatest design is that of all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Design {
    /// The arms differ in one declared factor.
    Controlled,
    /// The arms differ in one declared factor, and in a size that was adjusted to keep a quantity equal.
    Compensated,
    /// The arms differ in several declared factors.
    Bundle,
    /// Each arm is at its own best of the same points, so that they also differ in the fields of the grid.
    Tuned,
    /// No proof says in what the arms differ.
    NotControlled,
}

/// The prefix of every statement about an arm without a proof.
pub(crate) const NOT_CONTROLLED: &str = "NOT CONTROLLED";

impl Design {
    /// The design of two runs that no comparison holds, by the verdict on their locks.
    pub(crate) fn of_verdict(verdict: &Verdict) -> Design {
        match verdict.outcome {
            Outcome::Identical | Outcome::Controlled => Design::Controlled,
            Outcome::Bundle(_) => Design::Bundle,
            Outcome::Confounded(_) => Design::NotControlled,
        }
    }

    /// Whether the arms differ in nothing but what was declared.
    pub fn is_controlled(self) -> bool {
        match self {
            Design::Controlled | Design::Bundle | Design::Compensated => true,
            Design::Tuned | Design::NotControlled => false,
        }
    }

    /// Whether a difference is due to one declared factor.
    pub fn is_attributable(self) -> bool {
        self == Design::Controlled
    }
}

/// A rule that chooses points of a grid by the values of the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectionRule {
    /// Each arm at its own best point.
    PerArm,
    /// All arms at the base's best point.
    OfBase,
}

impl SelectionRule {
    /// By the flag in `[selection]`.
    pub(super) fn new(per_arm: bool) -> SelectionRule {
        if per_arm { SelectionRule::PerArm } else { SelectionRule::OfBase }
    }

    /// The rule's name in tables and documents.
    pub(super) fn name(self) -> &'static str {
        match self {
            SelectionRule::PerArm => "best per arm",
            SelectionRule::OfBase => "best of the base for all",
        }
    }
}

/// The number of points among which those of a row were chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ChosenAmong {
    /// Points of the treated arm; 1 if the base's point was taken.
    pub treated: usize,
    /// Points of the base.
    pub base: usize,
    /// Whether interval and p are those of the best of each arm; else they allow for every pair that could have been
    /// chosen.
    pub best_of_each: bool,
}

impl ChosenAmong {
    /// What interval and p allow for.
    pub(super) fn text(self) -> String {
        let ChosenAmong { treated, base, best_of_each } = self;
        match best_of_each || treated > 1 {
            true => format!("allows for each arm's choice among {base} points"),
            false => format!("allows for the base's choice among {base} points"),
        }
    }
}
