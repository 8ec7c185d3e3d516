//! Combines the counts of devices in a file's comments into one number.
//!
//! A comment about devices that is not read is kept with its line. If two counts disagree, neither is used.

use crate::comment::{CommentCount, line};

/// The number of devices according to comments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The count; None if no comment gives one that is understood.
    pub count: Option<u64>,
    /// The line that gives the count.
    pub line: usize,
    /// Counts that disagree, each with its place.
    pub disagree: Vec<String>,
    /// Comments that were not understood: line, text, reason.
    pub unread: Vec<(usize, String, String)>,
    /// Launch keys that do not give a number of devices: key and value, and the reason.
    pub keys: Vec<(String, String)>,
}

/// How many characters of a comment are shown.
const SHOWN: usize = 100;

/// One machine has at most this many GPUs. A larger number counts all machines.
pub(crate) const ONE_MACHINE: u64 = 16;

/// Upper bound on a plausible number of devices.
pub(crate) const MOST: u64 = 10_000_000;

/// A number and its line.
type Count = (u64, usize);

/// Reads a file's comments, without their `#`.
pub fn devices<'a>(comments: impl IntoIterator<Item = (usize, &'a str)>) -> Reading {
    let mut reading = Reading::default();
    let (mut totals, mut nodes, mut per_node) = (Vec::new(), Vec::new(), Vec::new());
    let mut texts: Vec<Comment<'_>> = Vec::new();
    for (at, text) in comments {
        match line(text) {
            CommentCount::Nothing => {}
            CommentCount::Unclear(reason) => reading.skip((at, text), reason.to_owned()),
            CommentCount::Devices(counts) => {
                texts.push((at, text));
                totals.extend(counts.total.map(|n| (n, at)));
                nodes.extend(counts.nodes.map(|n| (n, at)));
                per_node.extend(counts.per_node.map(|n| (n, at)));
            }
        }
    }
    for (unit, counts) in [(TOTAL, &totals), (NODE, &nodes), (PER_NODE, &per_node)] {
        if counts.iter().any(|(n, _)| Some(n) != counts.first().map(|(n, _)| n)) {
            reading.disagree.extend(counts.iter().map(|count| described(unit, *count)));
        }
    }
    if reading.disagree.is_empty() {
        let first = [totals, nodes, per_node].map(|counts| counts.first().copied());
        match combined(first) {
            Combined::Nothing => {}
            Combined::Devices((count, at)) => (reading.count, reading.line) = (Some(count), at),
            Combined::Disagree(counts) => reading.disagree = counts,
            Combined::Unclear(at, reason) => {
                let comment = texts.into_iter().find(|(line, _)| *line == at);
                reading.skip(comment.unwrap_or((at, "")), reason);
            }
        }
    }
    reading.unread.sort();
    reading.unread.dedup();
    reading
}

/// A line and its text.
type Comment<'a> = (usize, &'a str);

impl Reading {
    fn skip(&mut self, (at, text): Comment<'_>, reason: String) {
        let text = text.trim();
        let shown = match text.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{}…", text.get(..end).unwrap_or(text)),
            None => text.to_owned(),
        };
        self.unread.push((at, shown, reason));
    }
}

const TOTAL: &str = "devices";
const NODE: &str = "nodes";
const PER_NODE: &str = "devices per node";

fn described(unit: &str, (n, at): Count) -> String {
    format!("line {at}: {n} {unit}")
}

/// What a total, a number of nodes and a number of devices per node say together.
enum Combined {
    Nothing,
    Devices(Count),
    Disagree(Vec<String>),
    /// The line, and the reason.
    Unclear(usize, String),
}

fn combined([total, nodes, per_node]: [Option<Count>; 3]) -> Combined {
    let (count, at) = match (total, nodes, per_node) {
        (Some(total), Some(nodes), Some(each)) if nodes.0.checked_mul(each.0) != Some(total.0) => {
            let counts = [(TOTAL, total), (NODE, nodes), (PER_NODE, each)];
            return Combined::Disagree(counts.map(|(unit, count)| described(unit, count)).to_vec());
        }
        // `4 nodes`, then `8 GPUs`: per node or in total?
        (Some((n, at)), Some((nodes, _)), None)
            if nodes > 1 && (n <= ONE_MACHINE || n % nodes != 0) =>
        {
            let reason = format!(
                "{} and {}: it is unclear whether that is per node or in total",
                dsl::counted(nodes, "node"),
                dsl::counted(n, "device")
            );
            return Combined::Unclear(at, reason);
        }
        (Some(total), ..) => total,
        (None, Some((nodes, at)), Some((each, _))) => (nodes.saturating_mul(each), at),
        (None, Some((nodes, at)), None) => {
            let nodes = dsl::counted(nodes, "node");
            let reason = format!("{nodes}: the number of devices per node is not given");
            return Combined::Unclear(at, reason);
        }
        (None, None, Some((each, at))) => {
            let each = dsl::counted(each, "device");
            return Combined::Unclear(
                at,
                format!("{each} per node: the number of nodes is not given"),
            );
        }
        (None, None, None) => return Combined::Nothing,
    };
    match (1..=MOST).contains(&count) {
        true => Combined::Devices((count, at)),
        false => Combined::Unclear(at, format!("{count} is not a number of devices")),
    }
}

#[cfg(test)]
mod tests;
