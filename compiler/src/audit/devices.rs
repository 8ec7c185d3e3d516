//! Reads the number of devices from comments.
//!
//! In: a file's comments, with their lines. Out: a [`Reading`], and findings. Must stay true: a count is
//! read only if every word of its comment is understood; a comment that mentions devices and is not
//! understood is reported with its line; if two counts disagree, neither is used.

use super::comment::{Says, line};
use super::experiment::Experiment;
use super::facts::{DEVICES, NODE_DEVICES, NODE_TASKS, NODES, Subject};
use super::finding::{Findings, Kind, Place};
use super::value::{Value, shown};
use crate::value::Ratio;

/// The number of devices according to comments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
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
            Says::Nothing => {}
            Says::Unclear(why) => reading.unread.push((at, shortened(text), why)),
            Says::Devices(said) => {
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
                "{} and {}: whether on each or in all is not said",
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
                format!("{}: how many devices each has is not said", dsl::counted(nodes.0, "node")),
            );
            None
        }
        (None, None, Some(per), _) => {
            unread(
                per.1,
                format!(
                    "{} per node: the number of nodes is not said",
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
    /// number of processes, so the default of 1 says nothing, and neither do the other keys alone.
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
        let alone = |says: String| Place { experiment: subject.name.clone(), against: None, says };
        if !subject.devices.disagree.is_empty() {
            let message = "the file gives different numbers of devices".to_owned();
            let says = subject.devices.disagree.join(", ");
            found.add("devices-disagree", Kind::Run, DEVICES, message, alone(says));
        }
        let has = |path: &str| subject.facts.contains_key(path);
        let given = [NODES, NODE_DEVICES, NODE_TASKS].into_iter().find(|path| has(path));
        if let Some(path) = given.filter(|_| !has(DEVICES) && !subject.counts_its_step()) {
            let missing = match path {
                NODES => "how many devices each node has is not said",
                _ => "the number of nodes is not said",
            };
            let name = subject.written_as.get(path).map_or(path, String::as_str);
            let says = format!("{name} = {} ({missing})", subject.shown(path));
            let message = "keys give a part of the launch, so that the budget may be another";
            found.add("devices-unread", Kind::Run, DEVICES, message.to_owned(), alone(says));
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
fn unread(subject: &Subject) -> (Kind, &'static str) {
    match subject.counts_its_step() {
        true => (Kind::Set, "not understood; keys give the tokens of a step"),
        false => (Kind::Run, "not understood, so that the budget may be another"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Reading {
        devices(text.lines().zip(1..).map(|(text, at)| (at, text)))
    }

    #[test]
    fn plain_counts_are_read() {
        for (text, count) in [
            ("128 GPUs", 128),
            ("128 chips", 128),
            ("128 TPUv5", 128),
            ("16 boxes of 8", 128),
            ("GPUs: 128", 128),
            ("gpus=128", 128),
            ("n_gpus = 128", 128),
            ("num_gpus: 128", 128),
            ("num-gpus 128", 128),
            ("number of GPUs: 128", 128),
            ("GPU count: 128", 128),
            ("total GPUs: 128", 128),
            ("total number of GPUs = 128", 128),
            ("ngpus 128", 128),
            ("GPU: 128", 128),
            ("128xH100", 128),
            ("128x H100", 128),
            ("128 x H100", 128),
            ("128 × H100", 128),
            ("128*H100", 128),
            ("H100 x 128", 128),
            ("H100x128", 128),
            ("128 H100", 128),
            ("128 H100s", 128),
            ("128 A100-80GB", 128),
            ("64x A100 80GB", 64),
            ("64 80GB A100s", 64),
            ("64xA100-SXM4-80GB", 64),
            ("launched on 128 H200 GPUs", 128),
            ("Launched on 128 NVIDIA H200 GPUs.", 128),
            ("Zeyuan note: run with 512 GPUs to replicate our result", 512),
            ("trained on Perlmutter with 64 GPUs", 64),
            ("1,024 GPUs", 1024),
            ("1_024 GPUs", 1024),
            ("GPUs: 1,024", 1024),
            ("12,288 GPUs", 12_288),
            ("world size 64", 64),
            ("world_size: 64", 64),
            ("WORLD_SIZE=64", 64),
            ("world-size = 64", 64),
            ("16 nodes x 8 GPUs", 128),
            ("16 nodes x 8 GPUs = 128", 128),
            ("16 nodes x 8 GPUs = 128 GPUs", 128),
            ("128 GPUs = 16 nodes x 8 GPUs", 128),
            ("128 GPUs (16 x 8)", 128),
            ("128 GPUs (16 nodes x 8)", 128),
            ("8 GPUs x 16 nodes", 128),
            ("16x8 H100", 128),
            ("16 x 8 GPUs", 128),
            ("16*8 GPUs", 128),
            ("16 x 8 x H100", 128),
            ("16x 8xH100", 128),
            ("16 nodes of 8 GPUs", 128),
            ("16 nodes of 8xH100", 128),
            ("8 GPUs per node, 16 nodes", 128),
            ("16 nodes, 8 GPUs per node", 128),
            ("16 nodes, 8 GPUs each", 128),
            ("16 nodes, each with 8 GPUs", 128),
            ("16 nodes with 8 H100s each", 128),
            ("16 nodes (8 GPUs/node)", 128),
            ("nodes: 16, gpus_per_node: 8", 128),
            ("gpus per node = 8; nodes = 16", 128),
            ("16 nodes, 128 GPUs", 128),
            ("single node, 8 GPUs", 8),
            ("1 node with 8 GPUs", 8),
            ("--nodes 16 --ntasks-per-node 8", 128),
            ("sbatch --nodes=16 --gres=gpu:8 launch.sh", 128),
            ("#SBATCH --nodes=16 --gres=gpu:h100:8 --mem 80G", 128),
            ("torchrun --nnodes 16 --nproc_per_node 8 -m apps.main.train", 128),
            ("srun -N 16 --gpus-per-node=8 python x.py", 128),
            ("--gpus 128", 128),
            ("needs 128 GPUs in total", 128),
            ("128 GPUs, 4M tokens per step", 128),
            ("128 GPUs, 8 sequences per GPU", 128),
            ("128 GPUs, 240k steps", 128),
            ("all 128 GPUs", 128),
            ("128-GPU run", 128),
            ("128 accelerators", 128),
            ("devices: 128", 128),
            ("one GPU", 1),
            ("eight H100s", 8),
            ("16 nodes\n8 GPUs per node", 128),
            ("128 GPUs\n16 nodes x 8 GPUs", 128),
            ("128 GPUs\nworld size 128", 128),
            ("128 GPUs\nGPU memory is 80GB", 128),
            ("64 H100 for 500 hours", 64),
            ("64 GPUs, 24h", 64),
            ("64 GPUs for 3 days", 64),
            ("3 days on 64 GPUs", 64),
            ("64 GPUs, 30 min", 64),
            ("64 GPUs used 500 hours", 64),
            ("64 GPUs, GPU hours: 500", 64),
            ("500 H100 hours on 64 GPUs", 64),
            ("500 GPU-hours on 64 H100", 64),
            ("500 hours of 64 H100", 64),
            ("500 node hours on 16 nodes x 8 GPUs", 128),
            ("8 GPUs batch 4", 8),
            ("8 H100 batch size 4", 8),
            ("8x H100 80 GB", 8),
            ("H100 80GB x 8", 8),
            ("2 x 64 H100 = 128", 128),
            ("this runs on 64 GPUs", 64),
            ("results with 64 GPUs", 64),
            ("128 GPUs: a step is 128 x 1 x 1 x 16384 = 2097152 tokens", 128),
            (
                "128 GPUs: a step is 128 x 1 x 1 x 16384 = 2097152 tokens, 1006632960000 in all.",
                128,
            ),
            ("1 GPU: a step is 1 x 2 x 8 = 16 tokens", 1),
            ("128 GPUs were used", 128),
            ("8xRTX4090", 8),
            ("16 nodes x 8 GPUs each", 128),
            ("GPUs: 8 per node, 16 nodes", 128),
            ("GPUs: 8 per node\nnodes: 16", 128),
            ("GPUs: 8 each, nodes: 16", 128),
            ("8 GPUs a node, 16 nodes", 128),
            ("GPUs: 8 (per node)\n16 nodes", 128),
            ("H100: 8 per node, 16 nodes", 128),
            ("8 GPUs on each of 16 nodes", 128),
        ] {
            let reading = read(text);
            assert_eq!(reading.count, Some(count), "{text}: {reading:?}");
            assert_eq!(reading.unread, [], "{text}");
        }
    }

    #[test]
    fn what_is_not_plain_is_not_understood() {
        let mut wrong = Vec::new();
        for text in [
            "2 GPUs were broken, so 126",
            "GPU 3",
            "8xH100x4",
            "4 DGX",
            "dp=128",
            "tp=8, dp=16",
            "16 p5.48xlarge",
            "GPUs: see launch script",
            "gpus = TBD",
            "126 of 128 GPUs",
            "64 to 128 GPUs",
            "64-128 GPUs",
            "about 128 GPUs",
            "~128 GPUs",
            "at least 64 GPUs",
            "up to 128 GPUs",
            "64 or 128 GPUs",
            "not 128 GPUs",
            "does not fit on 8 GPUs",
            "previously 256 GPUs",
            "256 GPUs, now 128 GPUs",
            "64 A100 and 64 H100",
            "64 + 64 GPUs",
            "64+64 GPUs",
            "evaluation: 8 GPUs",
            "eval uses 8 GPUs",
            "async_eval_gpus: 8",
            "128 GPUs minus 2",
            "128 GPUs, two of them spare",
            "GPUs 0,1,2,3",
            "GPU: 3",
            "device 0",
            "cuda device 3 is slow",
            "16 nodes",
            "4 nodes, 8 GPUs",
            "8 GPUs per node",
            "--nproc_per_node 8",
            "--nodes=2-4 --gpus-per-node 8",
            "1k GPUs",
            "1.5k GPUs",
            "0 GPUs",
            "GPUs: 0",
            "batch 8 x 4096 x 128 GPUs",
            "8 sequences x 128 GPUs",
            "128 GPUs?",
            "<128 GPUs",
            "128.5 GPUs",
            "1,02 GPUs",
            "99999999999999999999999 GPUs",
            "10 GPUs short of 128",
            "GPUs: 16 x 8 = 120",
            "DGX H100 x 16 nodes of something",
            "half of 128 GPUs",
            "128 GPUs or so",
            "128 GPU-hours on GPUs 3",
            "500 H100 (hours)",
            "500 A100.hours",
            "500 H100 training hours",
            "64 GPUs for days",
            "64 GPUs all day",
            "64 GPUs x 500 hours",
            "3 days x 64 GPUs",
            "64 H100 x 24h = 1536 GPU hours",
            "64 GPUs per day",
            "500 GPU min",
            "64 GPUs min",
            "8 GPU nodes",
            "12 H100 nodes",
            "128 GPU runs",
            "128 H100 jobs",
            "2 runs x 64 GPUs",
            "4 model x 8 GPUs",
            "8 GPUs x 4 runs",
            "80 GPU memory",
            "32 GPU layers",
            "64 H100s (not 128)",
            "128 or 256 GPUs",
            "128+ GPUs",
            "never 128 GPUs",
            "without 128 GPUs",
            "2024 H100",
            "GPUs: 8 per node",
            "gpus: 8 / node",
            "gpus=8/node",
            "GPUs: 8 each",
            "8 GPUs each",
            "8 GPUs, each",
            "8 GPUs apiece",
            "8 GPUs a node",
            "8 GPUs on a node",
            "8 GPUs on every node",
            "8 GPUs on the node",
            "8 GPUs by node",
            "GPUs: 8 (per node)",
            "8 GPUs (per node)",
            "8 H100 (per node)",
            "GPUs: 8, per node",
            "gpus = 8 per machine",
            "GPUs: 8 per rank",
            "GPUs: 8 per task",
            "H100: 8 per node",
            "H100 x 8 per node",
            "8x H100 per host",
            "world size 8 per node",
            "64 and 64 GPUs",
            "64, 64 GPUs",
            "64 GPUs, 64",
            "128 GPUs (128)",
            "was 8 GPUs",
            "were 8 GPUs",
            "this was with 8 GPUs",
            "had 8 GPUs",
            "paper: 128 GPUs",
            "paper 128 GPUs",
            "originally 128 GPUs",
            "ablation: 8 GPUs",
            "old: 8 GPUs",
            "cluster: 1024 GPUs",
            "was --gpus 8",
            "paper: --nodes 16 --gpus-per-node 8",
            "--gpus 8 per node",
            "8x4090",
            "8 x 4090",
            "4090 x 8",
            "8 4090s",
            "8x3090ti",
            "8 RTX 4090",
            "8 rtx-4090",
            "RTX 4090 x 8",
            "8 GeForce 3090",
            "128 Gaudi2",
            "128 Gaudi 2",
            "256 TPUv5e",
            "128 v5p",
            "x8 GPUs",
            "×8 GPUs",
            "16 Trainium",
            "GPUs128",
            "gpu128",
            "ngpus128",
            "a hundred GPUs",
            "one hundred GPUs",
            "twenty GPUs",
            "twenty-eight GPUs",
            "one hundred twenty-eight GPUs",
            "dozens of GPUs",
            "a couple of GPUs",
            "dp_shard 128",
            "dp_shard: 128",
            "dp 128",
            "dp128",
            "fsdp = 64",
            "128-way dp",
            "data parallel dp degree 64",
            "128 GPUs: a step is 128 x 1 x 1 x 16384 = 2097153 tokens",
            "64 GPUs: a step is 128 x 1 x 1 x 16384 = 2097152 tokens",
        ] {
            let reading = read(text);
            if reading.count.is_some() || reading.unread.len() != 1 {
                wrong.push((text, reading));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn what_says_no_number_says_nothing() {
        for text in [
            "",
            "H100",
            "A100-80G",
            "80GB",
            "H100 80GB",
            "an H100 has 80GB",
            "fused kernels on GPU",
            "8 sequences per GPU",
            "batch size per GPU",
            "4096 tokens",
            "seed 777",
            "lr 0.002",
            "device placement",
            "GPU memory is 80GB",
            "nodes of the tree",
            "240000 steps",
            "see https://github.com/a/b/128",
            "500 H100 hours",
            "500 H100-hours",
            "500 H100h",
            "500 H100hrs",
            "500 H100 h",
            "1000 GPU hours",
            "1000 GPUs hours",
            "32 GPU-hours",
            "8 H100 days",
            "128 H100 years",
            "128 GPU weeks",
            "128 GPU minutes",
            "500 H100 GPU hours",
            "500 GPU hrs",
            "500 GPU hours per run",
            "64 H100 seconds",
            "500 H100 node hours",
            "500 node-hours",
            "one GPU day",
            "GPU hours: 500",
            "H100 hours = 500",
            "total GPU hours: 1000",
            "gpu_hours: 500",
            "n_gpu_hours = 500",
            "H100: 500 hours",
            "gpus: 64 hours",
            "rank: 64",
            "no GPUs",
            "GPUs of several kinds",
            "twenty layers",
            "4090 steps",
            "a node of the graph",
            "DDP with gradient accumulation",
        ] {
            assert_eq!(read(text), Reading::default(), "{text}");
        }
    }

    #[test]
    fn comments_may_disagree() {
        for text in [
            "128 GPUs\n256 GPUs",
            "16 nodes x 8 GPUs\nworld size 64",
            "128 GPUs\n16 nodes\n4 GPUs per node",
            "16 nodes\n8 nodes\n8 GPUs per node",
        ] {
            let reading = read(text);
            assert_eq!(reading.count, None, "{text}: {reading:?}");
            assert!(reading.disagree.len() > 1, "{text}: {reading:?}");
        }
    }
}
