//! Reads which rank this process is from the environment variables of `torchrun`, `srun` or `canonc run --ranks`.
//!
//! Missing or contradictory variables are refused by name, so that nobody trains on one process by mistake.

use std::net::{IpAddr, ToSocketAddrs as _, UdpSocket};
use std::path::PathBuf;

use dsl::Problem;

/// This process among those that a launcher started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    pub rank: u32,
    pub size: u32,
    /// Ranks on this machine.
    pub local: u32,
    /// Which of them this is.
    pub local_rank: u32,
    /// The names of the two variables that say rank and size.
    pub said_by: [&'static str; 2],
    pub host: String,
    pub port: u16,
    /// Network interfaces for exchanges on CPUs, with commas between them, if the user names some.
    pub interfaces: Option<String>,
    /// Whether rank 0 hosts the store; `torchrun` hosts it itself.
    pub serves: bool,
    /// Separates a restart from the processes before it.
    pub prefix: String,
    /// Where the launcher leaves a file for each rank that was killed, named by its number, if it does.
    pub killed: Option<PathBuf>,
}

/// The variable that names the folder of [`Launch::killed`].
pub const KILLED: &str = "CANONC_RANKS_KILLED";

const START: &str = "start the processes with `torchrun`, `srun` or `canonc run --ranks N`";

const TORCH: [&str; 2] = ["RANK", "WORLD_SIZE"];
const SLURM: [&str; 2] = ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS"];

impl Launch {
    /// Reads the environment; `None` if this is a process of its own.
    pub fn from_environment(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Launch>, Problem> {
        let environment = Environment { variable: &variable };
        // `srun` may start `torchrun`, so the ranks are those of `torchrun`.
        let said_by =
            if TORCH.iter().any(|name| environment.get(name).is_some()) { TORCH } else { SLURM };
        let [rank, size] = said_by;
        let (rank, size) = match (environment.number(rank, 0)?, environment.number(size, 1)?) {
            (Some(rank), Some(size)) if rank < size => (rank, size),
            (Some(rank), Some(size)) => {
                return Err(wrong(format!(
                    "{} is {rank} and {} is {size} in the environment, but ranks count from 0",
                    said_by[0], said_by[1]
                )));
            }
            (None, None | Some(1)) => return Ok(None),
            // A batch script has a rank but no size, since no `srun` started it.
            (Some(_), None) if said_by == SLURM => return Ok(None),
            (None, Some(size)) => return Err(without(said_by[1], size, said_by[0])),
            (Some(rank), None) => return Err(without(said_by[0], rank, said_by[1])),
        };
        if size == 1 {
            return Ok(None);
        }
        let (local, local_rank) = environment.on_this_machine(said_by, rank, size)?;
        if local > size || local_rank >= local {
            return Err(wrong(format!(
                "the environment says that this is rank {rank} of {size}, and number {local_rank} of {local} on its machine"
            )));
        }
        let missing = |name: &str| {
            Problem::input(
                format!(
                    "the environment says rank {rank} of {size}, but not {name}, where the ranks meet"
                ),
                format!("export {name}; `torchrun` and `canonc run --ranks N` do"),
            )
        };
        let host = environment.get("MASTER_ADDR").ok_or_else(|| missing("MASTER_ADDR"))?;
        let port = environment.get("MASTER_PORT").ok_or_else(|| missing("MASTER_PORT"))?;
        let port = number_within("MASTER_PORT", &port, 1, u16::MAX.into())?;
        let agent =
            environment.get("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|value| value == "True");
        let restart =
            environment.get("TORCHELASTIC_RESTART_COUNT").unwrap_or_else(|| "0".to_owned());
        Ok(Some(Launch {
            rank,
            size,
            local,
            local_rank,
            said_by,
            host,
            port: port as u16,
            interfaces: environment.get("GLOO_SOCKET_IFNAME"),
            serves: rank == 0 && !agent,
            prefix: format!("canonc/{restart}"),
            killed: environment.get(KILLED).map(PathBuf::from),
        }))
    }

    /// Whether the launcher saw that a rank was killed, so that nobody needs to wait for it.
    pub(super) fn was_killed(&self, rank: u32) -> bool {
        self.killed.as_ref().is_some_and(|folder| folder.join(rank.to_string()).exists())
    }

    /// The address by which the other ranks reach this machine; `None` lets libtorch resolve the host name.
    pub(super) fn address(&self) -> Option<String> {
        if self.local == self.size {
            // The host name may have no address.
            return Some("127.0.0.1".to_owned());
        }
        let address =
            (self.host.as_str(), self.port).to_socket_addrs().ok()?.find_map(|there| {
                // Nothing is sent: the system only says from which address it would be.
                let any: IpAddr = if there.is_ipv4() { [0u8; 4].into() } else { [0u16; 8].into() };
                let socket = UdpSocket::bind((any, 0)).ok()?;
                socket.connect(there).ok()?;
                Some(socket.local_addr().ok()?.ip())
            })?;
        // The own host name often has a local address, which other machines cannot reach.
        let local = self.host == "localhost" || self.host.parse::<IpAddr>().is_ok();
        (!address.is_loopback() || local).then(|| address.to_string())
    }
}

/// Environment variables; an empty one counts as absent.
struct Environment<'a> {
    variable: &'a dyn Fn(&str) -> Option<String>,
}

impl Environment<'_> {
    fn get(&self, name: &str) -> Option<String> {
        (self.variable)(name).filter(|text| !text.is_empty())
    }

    fn number(&self, name: &str, least: u32) -> Result<Option<u32>, Problem> {
        self.get(name).map(|text| number_within(name, &text, least, u32::MAX)).transpose()
    }

    /// How many of the ranks are on this machine, and which of them this is.
    fn on_this_machine(
        &self,
        said_by: [&str; 2],
        rank: u32,
        size: u32,
    ) -> Result<(u32, u32), Problem> {
        if said_by == TORCH {
            let local = self.number("LOCAL_WORLD_SIZE", 1)?.unwrap_or(size);
            return Ok((local, self.number("LOCAL_RANK", 0)?.unwrap_or(rank % local)));
        }
        let tasks = self.get("SLURM_STEP_TASKS_PER_NODE");
        let local = match (tasks, self.number("SLURM_NODEID", 0)?) {
            (Some(text), node) => tasks_of_node(&text, node.unwrap_or(0))?,
            (None, _) => self
                .number("SLURM_NTASKS_PER_NODE", 1)?
                .ok_or_else(|| without(said_by[1], size, "SLURM_STEP_TASKS_PER_NODE"))?,
        };
        Ok((local, self.number("SLURM_LOCALID", 0)?.unwrap_or(rank % local)))
    }
}

/// The number of a step's tasks on a node: `4(x2),3` is 4 on nodes 0 and 1, 3 on node 2.
fn tasks_of_node(text: &str, node: u32) -> Result<u32, Problem> {
    const NAME: &str = "SLURM_STEP_TASKS_PER_NODE";
    let not = || wrong(format!("{NAME} is `{text}` in the environment, not like `4(x2),3`"));
    let mut first = 0u64;
    for part in text.split(',') {
        let (tasks, nodes) = match part.strip_suffix(')').and_then(|part| part.split_once("(x")) {
            Some((tasks, nodes)) => (tasks, nodes.parse::<u32>().map_err(|_| not())?),
            None => (part, 1),
        };
        let tasks: u32 = tasks.parse().ok().filter(|tasks| *tasks > 0).ok_or_else(not)?;
        first += u64::from(nodes);
        if u64::from(node) < first {
            return Ok(tasks);
        }
    }
    Err(wrong(format!(
        "SLURM_NODEID is {node} in the environment, but {NAME} `{text}` has {first} nodes"
    )))
}

fn number_within(name: &str, text: &str, least: u32, most: u32) -> Result<u32, Problem> {
    text.parse().ok().filter(|n| (least..=most).contains(n)).ok_or_else(|| {
        wrong(format!("{name} is `{text}` in the environment, not a number from {least} to {most}"))
    })
}

fn without(name: &str, value: u32, missing: &str) -> Problem {
    wrong(format!("{name} is {value} in the environment, but {missing} is not there"))
}

fn wrong(message: String) -> Problem {
    Problem::input(message, START)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The variables of `text`, as NAME=VALUE.
    fn read(text: &str) -> Result<Option<Launch>, Problem> {
        let variable = |name: &str| {
            let mut words = text.split_whitespace().filter_map(|word| word.split_once('='));
            words.find_map(|(key, value)| (key == name).then(|| value.to_owned()))
        };
        Launch::from_environment(variable)
    }

    const MEET: &str = "MASTER_ADDR=10.0.0.1 MASTER_PORT=2000";

    #[test]
    fn places_among_the_ranks() {
        let rows = [
            ("RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4", Some([5, 8, 1, 4])),
            ("RANK=5 WORLD_SIZE=8", Some([5, 8, 5, 8])),
            ("RANK=0 WORLD_SIZE=1", None),
            ("WORLD_SIZE=1", None),
            ("", None),
            // torchrun, started by srun.
            ("RANK=1 WORLD_SIZE=2 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1", Some([1, 2, 1, 2])),
            // `srun --ntasks 8` on two nodes sets no SLURM_NTASKS_PER_NODE.
            (
                "SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8 SLURM_STEP_TASKS_PER_NODE=4(x2) SLURM_NODEID=1 SLURM_LOCALID=1",
                Some([5, 8, 1, 4]),
            ),
            (
                "SLURM_PROCID=9 SLURM_STEP_NUM_TASKS=11 SLURM_STEP_TASKS_PER_NODE=4(x2),3 SLURM_NODEID=2 SLURM_LOCALID=1",
                Some([9, 11, 1, 3]),
            ),
            ("SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8 SLURM_NTASKS_PER_NODE=4", Some([5, 8, 1, 4])),
            // A job's script, and one task of its own.
            ("SLURM_PROCID=0 SLURM_NTASKS=8", None),
            ("SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1", None),
        ];
        for (text, expected) in rows {
            let launch = read(&format!("{text} {MEET}")).unwrap();
            let numbers =
                launch.map(|launch| [launch.rank, launch.size, launch.local_rank, launch.local]);
            assert_eq!(numbers, expected, "{text}");
        }
    }

    #[test]
    fn half_of_an_environment_is_refused_by_name() {
        let rows = [
            ("WORLD_SIZE=2", "RANK is not there"),
            ("RANK=0", "WORLD_SIZE is not there"),
            ("RANK=0 WORLD_SIZE=0", "WORLD_SIZE is `0`"),
            ("RANK=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2", "WORLD_SIZE is not there"),
            ("SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID is not there"),
            ("SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_TASKS_PER_NODE is not there"),
            (
                "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=1(y2)",
                "not like `4(x2),3`",
            ),
            (
                "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=2 SLURM_NODEID=1",
                "has 1 nodes",
            ),
            ("RANK=2 WORLD_SIZE=2", "ranks count from 0"),
            ("RANK=-1 WORLD_SIZE=2", "from 0 to"),
            ("RANK=0 WORLD_SIZE=99999999999", "from 1 to 4294967295"),
            ("RANK=0 WORLD_SIZE=2 LOCAL_RANK=5 LOCAL_WORLD_SIZE=1", "number 5 of 1"),
            ("RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=4", "number 0 of 4"),
        ];
        for (text, expected) in rows {
            let error = read(&format!("{text} {MEET}")).unwrap_err();
            assert!(error.message.contains(expected), "{text}: {}", error.message);
        }
        for (meet, expected) in [
            ("MASTER_PORT=2000", "not MASTER_ADDR"),
            ("MASTER_ADDR= MASTER_PORT=2000", "not MASTER_ADDR"),
            ("MASTER_ADDR=here", "not MASTER_PORT"),
            ("MASTER_ADDR=here MASTER_PORT=0", "from 1 to 65535"),
            ("MASTER_ADDR=here MASTER_PORT=http", "from 1 to 65535"),
        ] {
            let error = read(&format!("RANK=0 WORLD_SIZE=2 {meet}")).unwrap_err();
            assert!(error.message.contains(expected), "{meet}: {}", error.message);
        }
    }

    #[test]
    fn ranks_of_several_machines_do_not_bind_to_the_local_address() {
        let launch = |text: &str| read(&format!("RANK=0 WORLD_SIZE=2 {text}")).unwrap().unwrap();
        let alone = launch("LOCAL_WORLD_SIZE=2 MASTER_ADDR=10.0.0.1 MASTER_PORT=2000");
        assert_eq!(alone.address().as_deref(), Some("127.0.0.1"));
        // Processes that only play machines.
        let play = launch("LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=2000");
        assert_eq!(play.address().as_deref(), Some("127.0.0.1"));
        let named = launch("LOCAL_WORLD_SIZE=1 MASTER_ADDR=no.such.invalid MASTER_PORT=2000");
        assert_eq!(named.address(), None);
        let chosen = launch("GLOO_SOCKET_IFNAME=ib0,ib1 MASTER_ADDR=10.0.0.1 MASTER_PORT=2000");
        assert_eq!(chosen.interfaces.as_deref(), Some("ib0,ib1"));
    }
}
