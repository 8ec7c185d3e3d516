//! A count out of a total, as in lines of the metrics log.

use serde_json::Value;

/// A count out of a total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Score {
    /// Number that are right.
    pub right: u64,
    /// Number of all.
    pub of: u64,
}

impl Score {
    /// Counts one more answer.
    pub fn add(&mut self, right: bool) {
        self.of += 1;
        self.right += u64::from(right);
    }

    /// As a fraction of 1; `None` if the total is 0.
    pub fn ratio(self) -> Option<f64> {
        (self.of > 0).then(|| self.right as f64 / self.of as f64)
    }

    /// The value of a line's member.
    pub(super) fn text(self) -> String {
        let Score { right, of } = self;
        format!("{{\"right\":{right},\"of\":{of}}}")
    }

    /// The score in a line's member; `None` if it is none.
    pub(super) fn read(value: &Value) -> Option<Score> {
        Some(Score { right: value.get("right")?.as_u64()?, of: value.get("of")?.as_u64()? })
    }
}
