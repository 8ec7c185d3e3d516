//! Values and differences as text, each with its unit: shares in percent, their differences in percentage points, times
//! as ratios.

/// The unit of a metric, which decides how two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Natural logarithms, compared by difference.
    Nats,
    /// A fraction of one, compared by difference.
    Share,
    /// Bits, compared by difference.
    Count,
    /// A measure that this version does not know, compared by difference.
    Unknown,
    /// Compared by ratio.
    Seconds,
}

/// Decimals of a count: bits per parameter are few, bits are many.
fn decimals(value: f64) -> usize {
    if value.abs() < 100.0 { 4 } else { 0 }
}

impl Unit {
    /// The unit's name in documents and pages.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Unit::Nats => "nats",
            Unit::Share => "share",
            Unit::Count => "count",
            Unit::Seconds => "seconds",
            Unit::Unknown => "unknown",
        }
    }

    /// The suffix of a value.
    fn suffix(self) -> &'static str {
        match self {
            Unit::Nats => " nats",
            Unit::Count => " bits",
            Unit::Share => "%",
            Unit::Seconds => " ms",
            Unit::Unknown => "",
        }
    }

    /// The suffix of a difference: shares differ by percentage points.
    fn suffix_of_difference(self) -> &'static str {
        match self {
            Unit::Share => " pp",
            Unit::Seconds => "",
            Unit::Nats | Unit::Count | Unit::Unknown => self.suffix(),
        }
    }

    pub(crate) fn value(self, value: f64) -> String {
        let number = match self {
            Unit::Nats | Unit::Unknown => format!("{value:.4}"),
            Unit::Count => format!("{value:.0$}", decimals(value)),
            Unit::Share => format!("{:.1}", 100.0 * value),
            Unit::Seconds => format!("{:.1}", 1000.0 * value),
        };
        number + self.suffix()
    }

    fn signed(self, value: f64) -> String {
        match self {
            Unit::Nats | Unit::Unknown => format!("{value:+.4}"),
            Unit::Count => format!("{value:+.0$}", decimals(value)),
            Unit::Share => format!("{:+.1}", 100.0 * value),
            Unit::Seconds => format!("×{value:.2}"),
        }
    }

    pub(crate) fn difference(self, value: f64) -> String {
        self.signed(value) + self.suffix_of_difference()
    }

    pub(crate) fn between(self, low: f64, high: f64) -> String {
        format!("{} … {}", self.signed(low), self.difference(high))
    }

    /// A standard error as text.
    pub(crate) fn width(self, value: f64) -> String {
        let number = match self {
            Unit::Nats | Unit::Unknown => format!("±{value:.4}"),
            Unit::Count => format!("±{value:.0$}", decimals(value)),
            Unit::Share => format!("±{:.1}", 100.0 * value),
            Unit::Seconds => format!("±{value:.2}"),
        };
        number + self.suffix_of_difference()
    }
}
