//! Other locks and finished runs of a comparison's arms, with other seeds: choosing seeds after seeing results can
//! reverse any difference.
//!
//! Arms are the same if their training texts agree except for seeds, whatever their names. A file of somebody else's or
//! of another kind is skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use compiler::digest::Digest;
use lab::comparison::{Role, Stop};
use lab::experiment::Seeds;

use disk::{SMALL, read_text};
use records::attest::Attested;
use records::run::{Paths, if_readable, json_lines, paths_in};

use dsl::{Problem, counted};

/// A lock that compares the same arms.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct OtherLock {
    /// The comparison's name.
    pub name: String,
    /// Path of its lock.
    pub path: PathBuf,
    /// The id of the comparison.
    pub id: String,
    /// (init, data), in order.
    pub seeds: Vec<(u64, u64)>,
}

/// A finished seed that is in no pair of this comparison.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LeftOut {
    /// Seed of the initial parameters.
    pub init: u64,
    /// Seed of the data.
    pub data: u64,
    /// Arms with a finished run of this seed, and the folders of their runs.
    pub arms: BTreeMap<String, Vec<PathBuf>>,
    /// Whether the base is among them, which makes a pair.
    pub paired: bool,
}

/// Other locks and runs of a comparison's arms.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct OtherRecords {
    /// Seeds of this lock that its rows are of: with a stopping rule, those up to the look that decided.
    pub used: usize,
    /// Other locks of the same arms.
    pub locks: Vec<OtherLock>,
    /// Finished runs of treated arms, by seed.
    pub left_out: Vec<LeftOut>,
    /// Looks taken in this comparison's folder under another lock: this analysis was declared after them.
    pub earlier_looks: Vec<EarlierLooks>,
    /// Results shown in this comparison's folder under another lock: seeds added since then were added with those results
    /// known.
    pub earlier_reports: Vec<EarlierReport>,
    /// Runs in the folders of other comparisons, where this lock has a stopping rule: they may have been seen before it
    /// was chosen.
    pub taken: Vec<PathBuf>,
}

/// Looks under another lock.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct EarlierLooks {
    /// The id of that lock.
    pub lock: String,
    /// Number of looks.
    pub looks: usize,
    /// The last decision: `continue`, `differs`, `equivalent` or `exhausted`.
    pub decision: String,
}

/// Results that were shown under another lock.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct EarlierReport {
    /// The id of that lock.
    pub lock: String,
    /// The number of this lock's seeds with a treated run among them.
    pub seeds: usize,
    /// This lock's other seeds: (init, data).
    pub added: Vec<(u64, u64)>,
}

/// The file of looks in a comparison's folder: one object per line, with the id of the lock.
pub const LOOKS: &str = "looks.jsonl";

/// The file of results that were shown: one line for each lock, with the ids of its runs.
pub const REPORTED: &str = "reported.jsonl";

impl OtherRecords {
    /// What a reader of the comparison must know about them, one sentence each.
    pub(super) fn warnings(&self) -> Vec<String> {
        let looks = self.earlier_looks.iter().map(|EarlierLooks { lock, looks, decision }| {
            format!(
                "Warning: {looks} looks were taken here under another lock ({}, last: {decision}) before this analysis \
                 was declared.",
                lock.get(..12).unwrap_or(lock)
            )
        });
        let reports = self.earlier_reports.iter().filter(|report| {
            let looked = self.earlier_looks.iter().any(|looks| looks.lock == report.lock);
            !(report.added.is_empty() && looked)
        });
        let taken = (!self.taken.is_empty()).then(|| {
            format!(
                "Warning: {} of the runs are in folders of other comparisons: the stopping rule and the order of seeds \
                 may have been chosen after their results were known.",
                self.taken.len()
            )
        });
        let seeds = self.seeds_left_out().into_iter();
        seeds.chain(looks).chain(reports.map(EarlierReport::warning)).chain(taken).collect()
    }

    fn seeds_left_out(&self) -> Option<String> {
        let (used, count) = (self.used, self.left_out.len());
        let paired = self.left_out.iter().filter(|seed| seed.paired).count();
        let seeds: Vec<String> = self
            .left_out
            .iter()
            .map(|seed| format!("init {} data {}", seed.init, seed.data))
            .collect();
        let pairs = match paired == count {
            true => String::new(),
            false => format!(", {paired} of them with the base"),
        };
        (count > 0).then(|| {
            format!(
                "Warning: this lock compares {used} of {} seeds of these arms that finished{pairs}; it leaves out {}.",
                used + count,
                seeds.join(", ")
            )
        })
    }

    /// Facts that weaken no number, one sentence each.
    pub(super) fn notes(&self) -> Vec<String> {
        let note = |OtherLock { path, seeds, .. }: &OtherLock| {
            let count = counted(seeds.len(), "seed");
            format!("Note: {} compares the same arms with {count}.", path.display())
        };
        self.locks.iter().map(note).collect()
    }
}

impl EarlierReport {
    fn warning(&self) -> String {
        let EarlierReport { lock, seeds, added } = self;
        let since = match added.is_empty() {
            true => "before this analysis was declared".to_owned(),
            false => {
                let each: Vec<String> =
                    added.iter().map(|(init, data)| format!("init {init} data {data}")).collect();
                format!("before this lock added {}", each.join(", "))
            }
        };
        format!(
            "Warning: the results of {} were shown here under another lock ({}) {since}.",
            counted(*seeds, "seed"),
            lock.get(..12).unwrap_or(lock)
        )
    }
}

/// Searches the folder of lock files and that of runs, which holds the folders of comparisons. `run_folders` are those of
/// the runs that are compared, and `used` the seeds that the rows are of, where a stopping rule decided.
pub fn other_records(
    comparison: &lab::comparison::Comparison,
    locks: &Path,
    runs: &Path,
    run_folders: &[PathBuf],
    used: Option<usize>,
) -> Result<OtherRecords, Problem> {
    let used = used.unwrap_or(usize::MAX).min(comparison.seeds.len());
    let folder = runs.join(&comparison.name);
    Ok(OtherRecords {
        used,
        locks: other_locks(comparison, locks)?,
        left_out: left_out(comparison, runs, used)?,
        earlier_looks: earlier_looks(comparison, &folder)?,
        earlier_reports: earlier_reports(comparison, &folder, used)?,
        taken: match comparison.analysis.stop {
            Stop::Fixed => Vec::new(),
            Stop::Sequential { .. } => outside(run_folders, &folder),
        },
    })
}

/// The folders of runs outside of the comparison's folder.
fn outside(run_folders: &[PathBuf], folder: &Path) -> Vec<PathBuf> {
    run_folders.iter().filter(|run| !run.starts_with(folder)).cloned().collect()
}

fn earlier_looks(
    comparison: &lab::comparison::Comparison,
    folder: &Path,
) -> Result<Vec<EarlierLooks>, Problem> {
    let this_lock = comparison.id().to_string();
    let mut earlier: Vec<EarlierLooks> = Vec::new();
    for line in json_lines(&folder.join(LOOKS))? {
        let word = |key: &str| line.get(key).and_then(serde_json::Value::as_str).map(str::to_owned);
        let (Some(lock), Some(decision)) = (word("lock"), word("decision")) else { continue };
        if lock == this_lock {
            continue;
        }
        match earlier.iter_mut().find(|known| known.lock == lock) {
            Some(known) => {
                known.looks += 1;
                known.decision = decision;
            }
            None => earlier.push(EarlierLooks { lock, looks: 1, decision }),
        }
    }
    Ok(earlier)
}

/// Results shown before this lock's own, of runs that it shares. The file is in the order of time.
fn earlier_reports(
    comparison: &lab::comparison::Comparison,
    folder: &Path,
    used: usize,
) -> Result<Vec<EarlierReport>, Problem> {
    let this_lock = comparison.id().to_string();
    let treated: Vec<(usize, String)> = comparison
        .runs()
        .into_iter()
        .filter(|run| run.role == Role::Treatment && run.seed < used)
        .map(|run| (run.seed, run.experiment.id().to_string()))
        .collect();
    let report = |line: serde_json::Value| {
        let lock = line.get("lock")?.as_str()?.to_owned();
        let runs = line.get("runs")?.as_array()?;
        let runs: BTreeSet<&str> = runs.iter().filter_map(serde_json::Value::as_str).collect();
        let known = treated.iter().filter(|(_, id)| runs.contains(id.as_str()));
        let known: BTreeSet<usize> = known.map(|(seed, _)| *seed).collect();
        let seeds = comparison.seeds.iter().take(used).enumerate();
        let added = seeds.filter(|(seed, _)| !known.contains(seed));
        Some(EarlierReport {
            lock,
            seeds: known.len(),
            added: added.map(|(_, seeds)| (seeds.init, seeds.data)).collect(),
        })
    };
    let lines = json_lines(&folder.join(REPORTED))?.into_iter().filter_map(report);
    let earlier = lines.take_while(|report| report.lock != this_lock);
    Ok(earlier.filter(|report| report.seeds > 0).collect())
}

fn other_locks(
    comparison: &lab::comparison::Comparison,
    folder: &Path,
) -> Result<Vec<OtherLock>, Problem> {
    let this_lock = comparison.id().to_string();
    let grid: Vec<&str> =
        comparison.grid.iter().flat_map(|row| &row.paths).map(String::as_str).collect();
    let keys: BTreeMap<&str, Digest> = comparison
        .arms
        .iter()
        .map(|arm| (arm.name.as_str(), key(&arm.experiment.train_text(), &grid)))
        .collect();
    let Some(base) = keys.get(comparison.base.as_str()) else { return Ok(Vec::new()) };
    let treated: BTreeSet<Digest> =
        keys.iter().filter(|(name, _)| **name != comparison.base).map(|(_, key)| *key).collect();
    let mut others = Vec::new();
    for path in paths_in(folder)? {
        if path.extension().is_none_or(|end| end != "lock") {
            continue;
        }
        let Some(text) = if_readable(&path, read_text(&path, SMALL))? else { continue };
        let Some(LockHeader { name, id, base: their_base, seeds, grid: theirs }) =
            LockHeader::parse(&text)
        else {
            continue;
        };
        if id == this_lock {
            continue;
        }
        // A field that either lock varies is not part of the arm.
        let free: Vec<&str> = theirs.iter().map(String::as_str).chain(grid.clone()).collect();
        let key_of =
            |arm: &str| section(&text, &format!("arm.{arm}.train")).map(|lines| key(&lines, &free));
        let (base, treated) = match theirs.is_empty() {
            true => (*base, treated.clone()),
            false => {
                let key = |arm: &lab::comparison::Arm| key(&arm.experiment.train_text(), &free);
                let is_base = |arm: &&lab::comparison::Arm| arm.name == comparison.base;
                let base = comparison.arms.iter().find(is_base).map_or(*base, key);
                (base, comparison.arms.iter().filter(|arm| !is_base(arm)).map(key).collect())
            }
        };
        let their_treated = arms(&text).into_iter().filter(|arm| *arm != their_base);
        let shares = their_treated.filter_map(|arm| key_of(&arm)).any(|key| treated.contains(&key));
        if shares && key_of(&their_base) == Some(base) {
            others.push(OtherLock { name, path, id, seeds });
        }
    }
    Ok(others)
}

fn left_out(
    comparison: &lab::comparison::Comparison,
    folder: &Path,
    used: usize,
) -> Result<Vec<LeftOut>, Problem> {
    let mut of_key: BTreeMap<Digest, (&str, Role)> = BTreeMap::new();
    let mut compared: BTreeSet<(u64, u64)> = BTreeSet::new();
    for run in comparison.runs() {
        let role = if run.role == Role::Replicate { Role::Base } else { run.role };
        of_key.insert(key(&run.experiment.train_text(), &[]), (run.arm.as_str(), role));
    }
    for Seeds { init, data, eval: _ } in
        comparison.seeds.iter().take(used).chain(&comparison.replicate)
    {
        compared.insert((*init, *data));
    }
    let mut left_out: BTreeMap<(u64, u64), LeftOut> = BTreeMap::new();
    for path in paths_in(folder)? {
        for run in std::iter::once(path.clone()).chain(paths_in(&path)?) {
            let paths = Paths::new(&run);
            let Some((seeds, key)) = finished(&paths)? else { continue };
            let Some((arm, role)) = of_key.get(&key) else { continue };
            if compared.contains(&seeds) {
                continue;
            }
            let (init, data) = seeds;
            let seed = left_out.entry(seeds).or_insert_with(|| LeftOut {
                init,
                data,
                arms: BTreeMap::new(),
                paired: false,
            });
            seed.arms.entry((*arm).to_owned()).or_default().push(run);
            seed.paired |= *role == Role::Base;
        }
    }
    // The base alone is a replicate for the noise of another comparison.
    let treated = |seed: &LeftOut| seed.arms.keys().any(|arm| *arm != comparison.base);
    Ok(left_out.into_values().filter(treated).collect())
}

/// The seeds of a finished run, and the digest of its training text without them.
fn finished(paths: &Paths) -> Result<Option<SeedsAndKey>, Problem> {
    let read = |path: PathBuf| if_readable(&path, read_text(&path, SMALL));
    let Some(attestation) = read(paths.attestation())? else { return Ok(None) };
    Ok(read(paths.lock())?.and_then(|lock| seeds_and_key(&attestation, &lock)))
}

type SeedsAndKey = ((u64, u64), Digest);

fn seeds_and_key(attestation: &str, text: &str) -> Option<SeedsAndKey> {
    let attested = Attested::parse(attestation).ok()?;
    let train = section(text, "train")?;
    // A lock of another run does not belong to this one.
    let id = section(text, "digests")?;
    id.lines().find(|line| *line == format!("train = \"{}\"", attested.lock))?;
    // Without an effect, it is among the cosmetic fields.
    let cosmetic = section(text, "cosmetic").unwrap_or_default();
    let seed = |name: &str| {
        let mut lines = train.lines().chain(cosmetic.lines());
        let line = lines.find_map(|line| line.strip_prefix(name))?;
        written_seed(line.trim_matches('"'))
    };
    Some(((seed("seeds.init = ")?, seed("seeds.data = ")?), key(&train, &[])))
}

/// Digest of a training text without its seeds and without the fields that a grid varies.
fn key(train: &str, free: &[&str]) -> Digest {
    let is_free = |line: &str| {
        let name = line.split(" = ").next().unwrap_or(line);
        name.starts_with("seeds.") || free.contains(&name)
    };
    let kept: Vec<&str> = train.lines().filter(|line| !line.is_empty() && !is_free(line)).collect();
    Digest::of("canonc.siblings", &kept.join("\n"))
}

/// The lines of a section, without its name.
fn section(text: &str, name: &str) -> Option<String> {
    let head = format!("[{name}]");
    let lines = text.lines().skip_while(|line| *line != head).skip(1);
    let lines: Vec<&str> = lines.take_while(|line| !line.starts_with('[')).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Names of the arms in a comparison's lock.
fn arms(text: &str) -> Vec<String> {
    let named = |line: &str| Some(line.strip_prefix("[arm.")?.strip_suffix(".train]")?.to_owned());
    text.lines().filter_map(named).collect()
}

/// Facts from the first sections of a comparison's lock.
struct LockHeader {
    name: String,
    id: String,
    base: String,
    seeds: Vec<(u64, u64)>,
    grid: Vec<String>,
}

impl LockHeader {
    fn parse(text: &str) -> Option<LockHeader> {
        if !text.lines().take(8).any(|line| line == "kind = \"comparison\"") {
            return None;
        }
        let table = |name: &str| section(text, name)?.parse::<toml::Table>().ok();
        let name = text.lines().take(8).find_map(|line| line.strip_prefix("name = "))?;
        let id = table("digests")?.get("comparison")?.as_str()?.to_owned();
        let declared = table("comparison")?;
        let list = |which: &str| -> Option<Vec<u64>> {
            let list = declared.get("seeds")?.get(which)?.as_array()?;
            list.iter().map(seed).collect()
        };
        let (init, data) = (list("init")?, list("data")?);
        let grid = section(text, "comparison")?;
        let grid = grid.lines().filter_map(|line| line.strip_prefix("grid."));
        let grid = grid.filter_map(|line| line.split(" = ").next());
        let grid = grid.flat_map(|key| key.trim_matches('"').split(", ").map(str::to_owned));
        Some(LockHeader {
            name: name.trim_matches('"').to_owned(),
            id,
            base: declared.get("base")?.as_str()?.to_owned(),
            seeds: init.into_iter().zip(data).collect(),
            grid: grid.collect(),
        })
    }
}

/// A seed. Seeds too large for TOML's integers are strings.
fn seed(value: &toml::Value) -> Option<u64> {
    let number = value.as_integer().and_then(|number| u64::try_from(number).ok());
    number.or_else(|| written_seed(value.as_str()?))
}

fn written_seed(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        None => text.parse().ok(),
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_other_folders_are_warned_of_under_a_stopping_rule() {
        let folders = ["runs/own/a", "runs/fixed/b", "runs/own2/c"].map(PathBuf::from);
        let outside = outside(&folders, Path::new("runs/own"));
        assert_eq!(outside, folders[1..]);
        let warnings = OtherRecords { taken: outside, ..OtherRecords::default() }.warnings();
        assert!(warnings.len() == 1 && warnings[0].starts_with("Warning: 2 of the runs"));
    }

    #[test]
    fn one_seed_is_not_called_seeds() {
        let lock = |seeds: &[(u64, u64)]| OtherLock {
            name: "one".to_owned(),
            path: PathBuf::from("one.lock"),
            id: String::new(),
            seeds: seeds.to_vec(),
        };
        let note = |seeds: &[(u64, u64)]| {
            let records = OtherRecords { locks: vec![lock(seeds)], ..OtherRecords::default() };
            assert!(records.warnings().is_empty(), "a note is not a warning");
            records.notes().remove(0)
        };
        assert_eq!(note(&[(1, 1)]), "Note: one.lock compares the same arms with 1 seed.");
        assert!(note(&[(1, 1), (2, 2)]).ends_with("with 2 seeds."));
    }
}
