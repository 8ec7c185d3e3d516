//! In: a point's name from a hidden flag. Out: where a preparation aborts. Must stay true: every durable step has its
//! point, and the kill tests go through all of them; without the flag nothing here does anything.

/// Where a preparation can be broken on purpose; the process aborts there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// So many pieces are written since the start.
    Piece(u64),
    /// So many times: tokens are on the disk, the state that says so is not.
    StateBefore(u64),
    /// So many times: the state's new text is written beside it.
    StateWritten(u64),
    /// Half of what follows the tokens is written.
    FinishHalf,
    /// The file is whole and does not have its name.
    RenameBefore,
    /// It has its name, and the folder is still there.
    RemoveBefore,
}

impl Fault {
    /// `piece:3`, `rename-before`; a count of one may be left out.
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
