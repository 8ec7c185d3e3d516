//! Points where a preparation aborts on purpose, for the tests that kill it. Only a hidden flag turns them on.
//!
//! Every durable step has its point, and the tests use all of them.

/// A point where the process aborts on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// After this many pieces are written.
    Piece(u64),
    /// At the n-th time that tokens are on disk and the state is not.
    StateBefore(u64),
    /// At the n-th time that the state's new text is written to its temporary file.
    StateWritten(u64),
    /// Half of the data after the tokens is written.
    FinishHalf,
    /// The file is complete but does not have its name yet.
    RenameBefore,
    /// The file has its name, and the folder still exists.
    RemoveBefore,
}

impl Fault {
    /// Parses `piece:3` or `rename-before`. The count defaults to one.
    pub fn parse(text: &str) -> Option<Fault> {
        let (name, count) = match text.split_once(':') {
            None => (text, 1),
            Some((name, count)) => (name, count.parse().ok()?),
        };
        match name {
            "piece" => Some(Fault::Piece(count)),
            "state-before" => Some(Fault::StateBefore(count)),
            "state-written" => Some(Fault::StateWritten(count)),
            "finish-half" => Some(Fault::FinishHalf),
            "rename-before" => Some(Fault::RenameBefore),
            "remove-before" => Some(Fault::RemoveBefore),
            _ => None,
        }
    }
}
