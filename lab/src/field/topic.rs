//! The topic of a difference in a field, and the meaning of a missing key in a foreign file. A topic decides a result exactly
//! if the class of its row does.

use super::Class;

/// What a difference affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// The function, the loss, the update.
    Training,
    /// The tokens and their order.
    Data,
    /// The number of tokens, and how they are batched.
    Budget,
    /// Number formats and rounding.
    Numerics,
    /// Different code for the same mathematics.
    Kernel,
    /// The revision of the code that ran.
    Revision,
    /// The measurement.
    Evaluation,
    /// How often something is written or measured.
    Cadence,
    /// Folders, launch, logs, profiles.
    Setup,
    /// A number that follows from others, as the file's author reported it.
    Reported,
}

impl Topic {
    /// All topics, in the order of reports.
    pub const ALL: [Topic; 10] = [
        Topic::Training,
        Topic::Data,
        Topic::Budget,
        Topic::Numerics,
        Topic::Kernel,
        Topic::Revision,
        Topic::Evaluation,
        Topic::Cadence,
        Topic::Setup,
        Topic::Reported,
    ];

    /// The word in rules files and reports.
    pub fn word(self) -> &'static str {
        match self {
            Topic::Training => "training",
            Topic::Data => "data",
            Topic::Budget => "budget",
            Topic::Numerics => "numerics",
            Topic::Kernel => "kernel",
            Topic::Revision => "revision",
            Topic::Evaluation => "evaluation",
            Topic::Cadence => "cadence",
            Topic::Setup => "setup",
            Topic::Reported => "reported",
        }
    }

    /// Whether a difference can reach a loss or a weight.
    pub fn decides(self) -> bool {
        match self {
            Topic::Training | Topic::Data | Topic::Budget | Topic::Numerics | Topic::Kernel => true,
            Topic::Revision
            | Topic::Evaluation
            | Topic::Cadence
            | Topic::Setup
            | Topic::Reported => false,
        }
    }

    /// The topic of a field of this class, unless its row names another.
    pub(super) const fn usual(path: &str, class: Class) -> Topic {
        match class {
            Class::Platform => Topic::Kernel,
            Class::Measured => Topic::Evaluation,
            Class::Cosmetic => Topic::Setup,
            Class::Carried => Topic::Training,
            Class::Semantic => {
                if begins(path, "data.") || begins(path, "seeds.data") {
                    Topic::Data
                } else if begins(path, "batch.") || begins(path, "budget.") {
                    Topic::Budget
                } else {
                    Topic::Training
                }
            }
        }
    }
}

const fn begins(text: &str, start: &str) -> bool {
    let (text, start) = (text.as_bytes(), start.as_bytes());
    if text.len() < start.len() {
        return false;
    }
    let mut at = 0;
    while at < start.len() {
        if text[at] != start[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// The meaning of a key that a foreign file or table does not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// Unknown.
    Unknown,
    /// This value, for every trainer.
    Is(&'static str),
    /// The other trainer's documented default, in a whole configuration or for an empty cell of a table.
    /// For a column that a table leaves out, the value is unknown.
    Default(&'static str),
    /// The value of another key.
    As(&'static str),
}
