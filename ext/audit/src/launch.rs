//! Reads the number of devices from keys of a launch, such as `world_size`, `nodes` and `gpus_per_node`, and from comments.
//!
//! Every key is read or reported. A count for a part of the launch is never used as the total.

use compiler::number::Ratio;

use crate::devices::{MOST, ONE_MACHINE, Reading, devices};
use crate::experiment::Experiment;
use crate::keys::{COMMENT, COUNTS, DEVICES, NODE_DEVICES, NODE_TASKS, NODES, TASKS};
use crate::value::{KeyValue, shown};

const ONE: Ratio = Ratio { num: 1, den: 1 };

impl Experiment {
    /// Adds one key of a launch.
    pub(crate) fn launched(&mut self, path: &str, key: &str, value: KeyValue) {
        let most = i128::from(MOST);
        let counts = value.number().is_some_and(|n| n.den == 1 && (1..=most).contains(&n.num));
        let any = path == DEVICES && value == KeyValue::text("any");
        if !counts && !any {
            let reason = "it is not a number from 1 on".to_owned();
            self.devices.keys.push((format!("`{key}` is {value}"), reason));
        }
        if let Some(before) = self.values.get(path) {
            if *before != value {
                let before = self.as_written(path);
                self.devices.disagree.extend([before, format!("`{key}` is {value}")]);
            }
            return;
        }
        if key.ends_with(COMMENT) {
            self.comments.insert(path.to_owned());
        }
        if path != key {
            self.written_as.insert(path.to_owned(), key.to_owned());
        }
        self.values.insert(path.to_owned(), value);
    }

    /// A key of a launch and its value, as its author wrote them.
    fn as_written(&self, path: &str) -> String {
        let name = self.written_as.get(path).map_or(path, String::as_str);
        let value = self.values.get(path).map_or_else(String::new, KeyValue::to_string);
        format!("`{name}` is {value}")
    }

    /// Combines all keys of a launch into one number of devices.
    pub(crate) fn count_launch(&mut self) {
        let number = |path: &str| self.values.get(path).and_then(KeyValue::number);
        let [total, per_node, node_tasks, nodes, tasks] = COUNTS.map(number);
        // One launcher task may use all devices of its node, so the device count takes precedence.
        let each = if per_node.is_some() { NODE_DEVICES } else { NODE_TASKS };
        let of_nodes = |each: Option<Ratio>| nodes.zip(each).and_then(|(n, each)| n.mul(each));
        let product = of_nodes(per_node.or(node_tasks));
        let mut disagree = Vec::new();
        let mut unread = None;
        match (total, nodes, product) {
            (Some(total), _, Some(product)) if total != product => {
                disagree.extend([DEVICES, NODES, each].map(|path| self.as_written(path)));
            }
            // `gpus: 8` with 16 nodes: per node or in total?
            (Some(total), Some(nodes), None) if nodes.compare(ONE).is_gt() => {
                let machine = Ratio { num: i128::from(ONE_MACHINE), den: 1 };
                let divides = total.div(nodes).is_some_and(|each| each.den == 1);
                if !total.compare(machine).is_gt() || !divides {
                    unread = Some(total);
                }
            }
            (_, _, _) => {}
        }
        if let Some(tasks) = tasks {
            match total.or(product) {
                // One task may start the processes of its node.
                Some(devices) if [devices, ONE].contains(&tasks) || nodes == Some(tasks) => {}
                Some(_) => {
                    let compared = if total.is_some() { vec![DEVICES] } else { vec![NODES, each] };
                    disagree.extend(
                        [TASKS].into_iter().chain(compared).map(|path| self.as_written(path)),
                    );
                }
                None => {
                    let reason = "the number of devices per task is not given".to_owned();
                    self.devices.keys.push((self.as_written(TASKS), reason));
                }
            }
        }
        if let Some(total) = unread {
            let keys = format!("{}, {}", self.as_written(DEVICES), self.as_written(NODES));
            let reason = "it is unclear whether that is per node or in total".to_owned();
            self.devices.keys.push((keys, reason));
            // Store text instead of a number: no budget follows from it, but a difference still shows.
            let text = format!("{} per node or in total", shown(total));
            self.values.insert(DEVICES.to_owned(), KeyValue::text(text));
        }
        if let (None, Some(product)) = (total, product)
            && !self.values.contains_key(DEVICES)
        {
            self.values.insert(DEVICES.to_owned(), KeyValue::Number(product));
        }
        self.devices.disagree.append(&mut disagree);
    }

    /// Takes the number of devices from a file's comments. A key that gives it takes precedence.
    pub fn read_devices<'a>(&mut self, comments: impl IntoIterator<Item = (usize, &'a str)>) {
        let mut reading = devices(comments);
        let launch = self.of_launch();
        let keyed = self.values.get(DEVICES).and_then(KeyValue::number);
        match (keyed.or(launch), reading.count) {
            (Some(keyed), Some(count)) if keyed != integer(count) => {
                reading.disagree.push(format!(
                    "keys: {} {}",
                    shown(keyed),
                    if keyed == ONE { "device" } else { "devices" }
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
            self.values.insert(DEVICES.to_owned(), KeyValue::Number(integer(count)));
            self.written_as.insert(DEVICES.to_owned(), "gpus_from_comment".to_owned());
            self.comments.insert(DEVICES.to_owned());
        } else if let Some(devices) = keyed.or(launch) {
            self.values.insert(DEVICES.to_owned(), KeyValue::Number(devices));
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
                self.values.get(&format!("{section}.{name}")).and_then(KeyValue::number)
            });
            known.filter(|n| n.num > 0)
        };
        let replicas = key("dp_replicate").filter(|n| *n != ONE)?;
        let shards = key("dp_shard").unwrap_or(ONE);
        shards.mul(replicas)?.mul(key("tp_size").unwrap_or(ONE))
    }
}

fn integer(n: u64) -> Ratio {
    Ratio { num: i128::from(n), den: 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Names;
    use crate::vocabularies::LINGUA;

    fn read(keys: &[(&str, &str)]) -> Experiment {
        let keys = keys.iter().zip(1..).map(|((key, cell), line)| (line, *key, *cell));
        let mut experiment =
            Experiment::of_keys("a", "a.yaml", &Names::of_vocabulary(&LINGUA), keys).unwrap();
        experiment.read_devices([]);
        experiment
    }

    fn count(experiment: &Experiment) -> Option<Ratio> {
        experiment.values.get(DEVICES).and_then(KeyValue::number)
    }

    #[test]
    fn plain_keys_are_read() {
        for (keys, devices) in [
            (&[("gpus", "128")] as &[(&str, &str)], 128),
            (&[("launcher.gpus", "128")], 128),
            (&[("launch.world_size", "128")], 128),
            (&[("world_size", "128")], 128),
            (&[("n_gpus", "128")], 128),
            (&[("num_gpus", "8")], 8),
            (&[("devices", "8")], 8),
            (&[("num_processes", "8")], 8),
            (&[("launch.nnodes", "16"), ("launch.nproc_per_node", "8")], 128),
            (&[("nodes", "16"), ("gpus_per_node", "8")], 128),
            (&[("slurm.nodes", "16"), ("slurm.gpus_per_node", "8"), ("slurm.ntasks", "16")], 128),
            (&[("slurm.ntasks", "128"), ("world_size", "128")], 128),
            (&[("slurm.ntasks", "1"), ("world_size", "8")], 8),
            (&[("trainer.devices", "8"), ("trainer.num_nodes", "16")], 128),
            (&[("nodes", "16"), ("gpus_per_node", "8"), ("world_size", "128")], 128),
            (&[("nodes", "16"), ("gpus", "128")], 128),
            (&[("nodes", "1"), ("gpus", "8")], 8),
            (&[("world_size", "128"), ("gpus", "128")], 128),
        ] {
            let read = read(keys);
            assert_eq!(count(&read).map(shown), Some(devices.to_string()), "{keys:?}");
            assert_eq!(
                (&read.devices.disagree, &read.devices.keys),
                (&vec![], &vec![]),
                "{keys:?}"
            );
            assert!(read.unknown.is_empty(), "{keys:?}");
        }
    }

    #[test]
    fn a_count_of_a_part_is_never_the_total() {
        for keys in [
            &[("nodes", "16")] as &[(&str, &str)],
            &[("gpus_per_node", "8")],
            &[("nproc_per_node", "8")],
            &[("trainer.devices", "8")],
            &[("trainer.num_nodes", "16")],
            &[("slurm.ntasks", "16")],
            &[("nodes", "16"), ("gpus", "8")],
            &[("nodes", "16"), ("devices", "8")],
            &[("nodes", "16"), ("gpus", "100")],
            &[("devices", "auto")],
            &[("devices", "-1")],
            &[("world_size", "${N}")],
            &[("gpus", "8.5")],
        ] {
            let read = read(keys);
            let total = count(&read).filter(|n| n.den == 1 && n.num > 0);
            assert_eq!(total, None, "{keys:?}");
        }
    }

    #[test]
    fn keys_that_disagree_are_listed_with_their_values() {
        for (keys, says) in [
            (
                &[("world_size", "64"), ("gpus", "128")] as &[(&str, &str)],
                "`world_size` is 64, `gpus` is 128",
            ),
            (
                &[("world_size", "64"), ("nodes", "16"), ("gpus_per_node", "8")],
                "`world_size` is 64, `nodes` is 16, `gpus_per_node` is 8",
            ),
            (&[("slurm.ntasks", "12"), ("gpus", "64")], "`slurm.ntasks` is 12, `gpus` is 64"),
            (
                &[("trainer.devices", "8"), ("gpus_per_node", "4")],
                "`trainer.devices` is 8, `gpus_per_node` is 4",
            ),
        ] {
            assert_eq!(read(keys).devices.disagree.join(", "), says);
        }
    }
}
