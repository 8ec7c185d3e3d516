//! Reads the number of devices from comments.
//!
//! In: a file's comments, with their lines. Out: a [`Reading`], and findings. Must stay true: a count is
//! read only if every word of its comment is understood; a comment that mentions devices and is not
//! understood is reported with its line; if two counts disagree, neither is used.

use super::comment::{CommentCount, line};
use super::experiment::Experiment;
use super::facts::{DEVICES, NODE_DEVICES, NODE_TASKS, NODES, Subject};
use super::finding::{Findings, Occurrence, Scope};
use super::value::{Value, shown};
use compiler::number::Ratio;

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
pub(super) const ONE_MACHINE: u64 = 16;

/// Upper bound on a plausible number of devices.
pub(super) const MOST: u64 = 10_000_000;

/// A number and its line.
type Said = (u64, usize);

/// Reads a file's comments, without their `#`.
pub fn devices<'a>(comments: impl IntoIterator<Item = (usize, &'a str)>) -> Reading {
    let mut reading = Reading::default();
    let (mut totals, mut nodes, mut per_node) = (Vec::new(), Vec::new(), Vec::new());
    let mut texts: Vec<(usize, &str)> = Vec::new();
    for (at, text) in comments {
        match line(text) {
            CommentCount::Nothing => {}
            CommentCount::Unclear(why) => reading.unread.push((at, shortened(text), why)),
            CommentCount::Devices(said) => {
                texts.push((at, text));
                let take = |found: &[u64], all: &mut Vec<Said>| {
                    all.extend(found.iter().map(|n| (*n, at)));
                };
                take(&said.totals, &mut totals);
                take(&said.nodes, &mut nodes);
                take(&said.per_node, &mut per_node);
            }
        }
    }
    let mut unread = |at: usize, why: String| {
        let text = texts.iter().find(|(line, _)| *line == at).map_or("", |(_, text)| text);
        reading.unread.push((at, shortened(text), why));
    };
    let clash = |all: &[Said]| all.iter().any(|(n, _)| Some(n) != all.first().map(|(n, _)| n));
    let listed = |what: &str, all: &[Said]| {
        let text = |(n, at): &Said| format!("line {at}: {n} {what}");
        all.iter().map(text).collect::<Vec<_>>()
    };
    for (what, all) in [("devices", &totals), ("nodes", &nodes), ("devices per node", &per_node)] {
        if clash(all) {
            reading.disagree.extend(listed(what, all));
        }
    }
    if !reading.disagree.is_empty() {
        reading.unread.sort();
        return reading;
    }
    let (total, nodes, per_node) =
        (totals.first().copied(), nodes.first().copied(), per_node.first().copied());
    let product = nodes.zip(per_node).and_then(|(n, per)| n.0.checked_mul(per.0));
    let found = match (total, nodes, per_node, product) {
        (Some(total), Some(nodes), Some(per_node), Some(product)) if product != total.0 => {
            reading.disagree = listed("devices", &[total]);
            reading.disagree.extend(listed("nodes", &[nodes]));
            reading.disagree.extend(listed("devices per node", &[per_node]));
            None
        }
        // `4 nodes, 8 GPUs`: per node or in total?
        (Some(total), Some(nodes), None, _)
            if nodes.0 > 1 && (total.0 <= ONE_MACHINE || total.0 % nodes.0 != 0) =>
        {
            let why = format!(
                "{} and {}: it is unclear whether that is per node or in total",
                dsl::counted(nodes.0, "node"),
                dsl::counted(total.0, "device")
            );
            unread(total.1, why);
            None
        }
        (Some(total), ..) => Some(total),
        (None, Some(nodes), Some(_), product) => product.map(|product| (product, nodes.1)),
        (None, Some(nodes), None, _) => {
            unread(
                nodes.1,
                format!(
                    "{}: the number of devices per node is not given",
                    dsl::counted(nodes.0, "node")
                ),
            );
            None
        }
        (None, None, Some(per), _) => {
            unread(
                per.1,
                format!(
                    "{} per node: the number of nodes is not given",
                    dsl::counted(per.0, "device")
                ),
            );
            None
        }
        (None, None, None, _) => None,
    };
    if let Some((count, at)) = found {
        match (1..=MOST).contains(&count) {
            true => (reading.count, reading.line) = (Some(count), at),
            false => unread(at, format!("{count} is not a number of devices")),
        }
    }
    reading.unread.sort();
    reading.unread.dedup();
    reading
}

impl Experiment {
    /// Takes the number of devices from a file's comments. A key that gives it takes precedence.
    pub fn read_devices<'a>(&mut self, comments: impl IntoIterator<Item = (usize, &'a str)>) {
        let mut reading = devices(comments);
        let launch = self.of_launch();
        let keyed = self.values.get(DEVICES).and_then(Value::number);
        match (keyed.or(launch), reading.count) {
            (Some(keyed), Some(count)) if keyed != whole(count) => {
                reading.disagree.push(format!(
                    "keys: {} {}",
                    shown(keyed),
                    if keyed == whole(1) { "device" } else { "devices" }
                ));
                reading.disagree.push(format!(
                    "line {}: {}",
                    reading.line,
                    dsl::counted(count, "device")
                ));
            }
            (_, _) => {}
        }
        // The trainer corrects `dp_replicate`, so use the product only if nothing else gives a number.
        if let Some(count) = reading.count.filter(|_| keyed.is_none()) {
            self.values.insert(DEVICES.to_owned(), Value::Number(whole(count)));
            self.written_as.insert(DEVICES.to_owned(), "gpus_from_comment".to_owned());
            self.comments.insert(DEVICES.to_owned());
        } else if let Some(devices) = keyed.or(launch) {
            self.values.insert(DEVICES.to_owned(), Value::Number(devices));
        }
        // Keys take precedence.
        let Reading { disagree, keys, .. } = std::mem::take(&mut self.devices);
        reading.disagree.splice(0..0, disagree);
        reading.keys = keys;
        self.devices = reading;
    }

    /// The product of Lingua's distribution keys. Its trainer changes `dp_replicate` when the product is not the
    /// number of processes, so neither the default of 1 nor the other keys alone give the number of devices.
    fn of_launch(&self) -> Option<Ratio> {
        let key = |name: &str| {
            let known = ["distributed", "lingua"].iter().find_map(|section| {
                self.values.get(&format!("{section}.{name}")).and_then(Value::number)
            });
            known.filter(|n| n.num > 0)
        };
        let replicas = key("dp_replicate").filter(|n| *n != whole(1))?;
        let shards = key("dp_shard").unwrap_or(whole(1));
        shards.mul(replicas)?.mul(key("tp_size").unwrap_or(whole(1)))
    }
}

fn whole(n: u64) -> Ratio {
    Ratio { num: i128::from(n), den: 1 }
}

fn shortened(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or(text)),
        None => text.to_owned(),
    }
}

pub(super) fn findings(subjects: &[Subject], found: &mut Findings) {
    for subject in subjects {
        let alone =
            |says: String| Occurrence { experiment: subject.name.clone(), against: None, says };
        if !subject.devices.disagree.is_empty() {
            let message = "the file gives different numbers of devices".to_owned();
            let says = subject.devices.disagree.join(", ");
            found.add("devices-disagree", Scope::Run, DEVICES, message, alone(says));
        }
        let has = |path: &str| subject.facts.contains_key(path);
        let given = [NODES, NODE_DEVICES, NODE_TASKS].into_iter().find(|path| has(path));
        if let Some(path) = given.filter(|_| !has(DEVICES) && !subject.counts_its_step()) {
            let missing = match path {
                NODES => "the number of devices per node is not given",
                _ => "the number of nodes is not given",
            };
            let name = subject.written_as.get(path).map_or(path, String::as_str);
            let says = format!("{name} = {} ({missing})", subject.shown(path));
            let message = "keys give only part of the launch, so the budget may be different";
            found.add("devices-unread", Scope::Run, DEVICES, message.to_owned(), alone(says));
        }
        for (said, why) in &subject.devices.keys {
            let (kind, message) = unread(subject);
            let says = format!("{said} ({why})");
            found.add("devices-unread", kind, DEVICES, message.to_owned(), alone(says));
        }
        for (line, text, why) in &subject.devices.unread {
            let (kind, message) = unread(subject);
            let says = format!("line {line}: `# {text}` ({why})");
            found.add("devices-unread", kind, DEVICES, message.to_owned(), alone(says));
        }
    }
}

/// If keys give the tokens per step, devices do not affect the budget.
fn unread(subject: &Subject) -> (Scope, &'static str) {
    match subject.counts_its_step() {
        true => (Scope::Set, "not understood; keys give the tokens per step"),
        false => (Scope::Run, "not understood, so the budget may be different"),
    }
}

#[cfg(test)]
mod tests;
