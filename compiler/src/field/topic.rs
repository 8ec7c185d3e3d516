//! What a difference in a field is about, and what a foreign file means by leaving its key out.
//!
//! In: a path and a class. Out: the [`Topic`] that a row has unless it names another. Must stay true: a
//! topic decides a result exactly where the class of its row does; a test holds the two together.

use super::Class;

/// What a difference is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// The function, the loss, the update.
    Training,
    /// Which tokens are seen, in which order.
    Data,
    /// How many, in which portions.
    Budget,
    /// Number formats and rounding.
    Numerics,
    /// Which code computes what is the same mathematics.
    Kernel,
    /// Which revision of the code was run.
    Revision,
    /// What is measured.
    Evaluation,
    /// How often something is written or measured.
    Cadence,
    /// Folders, launch, logs, profiles.
    Setup,
    /// A number that follows from others, as the file's author gave it.
    Reported,
}

impl Topic {
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

    /// The topic of a field of this class, where its row names no other.
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

/// What it means in a foreign file or table that a key is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// Nothing is known.
    Unknown,
    /// This value, whoever leaves it out.
    Is(&'static str),
    /// The default that the other trainer documents: in a whole configuration, and in a table whose column
    /// is there but empty. A column that a table leaves out is not known.
    Default(&'static str),
    /// What another key says.
    As(&'static str),
}
