//! Reads the inputs of an audit: locks, tables, recipes of Lingua, folders, and the published set.
//!
//! In: paths. Out: experiments and curves. Must stay true: file sizes are bounded, also after
//! decompression; a folder is read in the order of its names; a file that cannot be used is an error
//! that names it and its line.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use interop::yaml;
use lab::audit::{BadInput, Experiment, Origin, table};
use lab::lock::Lock;
use report::curves::Curves;

use crate::fail::{Failure, shown};
use crate::{files, locks, named};

const RECIPES: &str = include_str!("../../recipes/published/data/recipes.tsv");
const CURVES: &[u8] = include_bytes!("../../recipes/published/data/curves_trainloss_linear.csv.gz");

/// Size limit of a table, and of decompressed curves.
const MAX_BYTES: u64 = 256 << 20;
/// Most files of one folder.
const MAX_FILES: usize = 10_000;

/// The 64 experiments of the release.
pub(super) fn published() -> Result<Vec<Experiment>, Failure> {
    rows("published", RECIPES)
}

/// The loss curves of 48 of them.
pub(super) fn published_curves() -> Result<Curves, Failure> {
    parse(Path::new("published"), CURVES)
}

/// The experiments at a path: those of a lock, a table's rows, or those of a folder's files.
pub(super) fn experiments(path: &Path) -> Result<Vec<Experiment>, Failure> {
    let path = &named::lock(path)?;
    let metadata = fs::metadata(path).map_err(|error| match is(path, &["tsv", "csv"]) {
        true => files::missing(path, &error),
        false => locks::missing(path, &error),
    })?;
    if metadata.is_dir() {
        return folder(path);
    }
    if is(path, &["tsv", "csv"]) {
        return rows(&shown(path), &text(path)?);
    }
    if is(path, &["yaml", "yml"]) {
        return Ok(vec![lingua(path)?]);
    }
    if locks::is_lock(path) || is(path, &["canon", "toml"]) {
        return lock(path);
    }
    Err(Failure::bad_input(format!("`{}` is neither a lock nor a table", shown(path))).help(
        "name locks (.lock), tables (.tsv, .csv), Lingua's recipes (.yaml), or folders of them",
    ))
}

fn is(path: &Path, extensions: &[&str]) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| extensions.contains(&extension))
}

fn folder(path: &Path) -> Result<Vec<Experiment>, Failure> {
    let entries = fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = entries.map_err(|error| Failure::cannot_read(path, &error))?;
    let mut found: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
    found.retain(|path| is(path, &["lock", "tsv", "csv", "yaml", "yml"]));
    found.sort();
    if found.is_empty() {
        return Err(Failure::bad_input(format!(
            "`{}` contains no lock, table or Lingua recipe",
            shown(path)
        ))
        .help("`canonc build recipes/*.toml` writes locks; subfolders are not searched"));
    }
    if found.len() > MAX_FILES {
        return Err(Failure::bad_input(format!(
            "`{1}` contains {0} locks and tables; at most {MAX_FILES} are read",
            found.len(),
            shown(path)
        ))
        .help("name a smaller folder"));
    }
    let mut experiments = Vec::new();
    for path in &found {
        experiments.extend(experiments_of(path)?);
    }
    if experiments.is_empty() {
        return Err(Failure::bad_input(format!("`{}` contains no experiment", shown(path)))
            .help("an architecture alone cannot be audited: build a recipe"));
    }
    Ok(experiments)
}

pub(super) fn experiments_of(path: &Path) -> Result<Vec<Experiment>, Failure> {
    if is(path, &["lock"]) { lock_or_arch(path) } else { experiments(path) }
}

/// A recipe of Lingua: named after its file, with its own keys. The number of devices is known only if a comment
/// gives it.
fn lingua(path: &Path) -> Result<Experiment, Failure> {
    let (source, text) = (shown(path), text(path)?);
    let keys = yaml::flat(&source, text.as_bytes())
        .map_err(|error| Failure::bad_input(error.message).at(error.place).help(error.help))?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let cells = keys.iter().map(|flat| (flat.line, flat.key.as_str(), cell(&flat.value)));
    let mut experiment =
        Experiment::of_keys(&name, &source, cells).map_err(|bad| refused(&source, bad))?;
    let comments = yaml::comments(&text);
    experiment.read_devices(comments.iter().map(|(line, text)| (*line, text.as_str())));
    Ok(experiment)
}

/// A cell of the table; Lingua writes an absent value as `null`.
fn cell(value: &str) -> &str {
    if value == "null" { "" } else { value }
}

fn lock(path: &Path) -> Result<Vec<Experiment>, Failure> {
    let found = lock_or_arch(path)?;
    if found.is_empty() {
        return Err(Failure::bad_input("this lock has an architecture but no experiment")
            .at(shown(path))
            .help("name locks that `canonc build` wrote for recipes or comparisons"));
    }
    Ok(found)
}

/// The experiments of a lock: one, those of every arm, or none for an architecture.
fn lock_or_arch(path: &Path) -> Result<Vec<Experiment>, Failure> {
    let source = shown(path);
    let (lock, _) = locks::read(path)?;
    Ok(match lock {
        Lock::Arch(_) => Vec::new(),
        Lock::Experiment(lock) => vec![Experiment::of_lock(&lock.name, &source, &lock)],
        Lock::Comparison(lock) => Experiment::of_comparison(&source, &lock),
    })
}

/// Drops the arms of comparisons that also have their own lock, so that each experiment counts once.
pub(super) fn once(experiments: Vec<Experiment>) -> Vec<Experiment> {
    let (arms, mut rest): (Vec<_>, Vec<_>) =
        experiments.into_iter().partition(|experiment| experiment.name.contains('/'));
    let own = rest.len();
    for arm in arms {
        if !rest.iter().take(own).any(|experiment| experiment.values == arm.values) {
            rest.push(arm);
        }
    }
    rest
}

/// Names recipes of Lingua that have one file name (`a/recipe.yaml`, `b/recipe.yaml`) by their key `name`, or if that does
/// not tell them apart, by their folders.
pub(super) fn told_apart(experiments: &mut [Experiment]) {
    let mut shared: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, experiment) in experiments.iter().enumerate() {
        shared.entry(experiment.name.clone()).or_default().push(at);
    }
    for group in shared.into_values().filter(|group| group.len() > 1) {
        let of = |name: fn(&Experiment) -> Option<String>| -> Option<Vec<String>> {
            let names: Option<Vec<String>> =
                group.iter().map(|at| experiments.get(*at).and_then(name)).collect();
            let distinct =
                |names: &Vec<String>| names.iter().collect::<BTreeSet<_>>().len() == names.len();
            names.filter(distinct)
        };
        if let Some(names) = of(own_name).or_else(|| of(folder_name)) {
            for (at, name) in group.iter().zip(names) {
                if let Some(experiment) = experiments.get_mut(*at) {
                    experiment.name = name;
                }
            }
        }
    }
}

fn own_name(experiment: &Experiment) -> Option<String> {
    let name =
        experiment.values.get("name").filter(|_| experiment.origin == Origin::Configuration)?;
    Some(name.to_string()).filter(|name| !name.is_empty())
}

fn folder_name(experiment: &Experiment) -> Option<String> {
    let path = Path::new(&experiment.source);
    let folder =
        path.parent()?.file_name().filter(|_| experiment.origin == Origin::Configuration)?;
    Some(folder.to_string_lossy().into_owned())
}

fn rows(source: &str, text: &str) -> Result<Vec<Experiment>, Failure> {
    table(source, text).map_err(|bad| refused(source, bad))
}

fn refused(source: &str, bad: BadInput) -> Failure {
    let place = if bad.line == 0 { source.to_owned() } else { format!("{source}:{}", bad.line) };
    Failure::bad_input(bad.message).at(place).help(bad.help)
}

/// The text of a file.
pub(super) fn text(path: &Path) -> Result<String, Failure> {
    utf8(path, bounded(path, open(path)?)?)
}

pub(super) fn curves(path: &Path) -> Result<Curves, Failure> {
    parse(path, &bounded(path, open(path)?)?)
}

/// Parses curves, decompressed if needed.
fn parse(path: &Path, bytes: &[u8]) -> Result<Curves, Failure> {
    let bytes = match bytes.starts_with(&[0x1f, 0x8b]) {
        true => bounded(path, MultiGzDecoder::new(bytes))?,
        false => bytes.to_vec(),
    };
    Curves::parse(&utf8(path, bytes)?).map_err(|bad| {
        Failure::bad_input(bad.message).at(format!("{}:{}", shown(path), bad.line)).help(bad.help)
    })
}

fn bounded(path: &Path, from: impl Read) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    from.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::cannot_read(path, &error))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(too_large(path, format!("more than {}", dsl::size(MAX_BYTES))));
    }
    Ok(bytes)
}

/// Opens a file that will be read whole, and refuses one that is too large.
fn open(path: &Path) -> Result<fs::File, Failure> {
    let file = disk::open(path).map_err(|error| files::missing(path, &error))?;
    let length = file.metadata().map_err(|error| Failure::cannot_read(path, &error))?.len();
    if length > MAX_BYTES {
        return Err(too_large(path, dsl::size(length)));
    }
    Ok(file)
}

fn too_large(path: &Path, length: String) -> Failure {
    let most = dsl::size(MAX_BYTES);
    Failure::bad_input(format!("`{}` has {length}; at most {most} are read", shown(path)))
        .help("split it, or remove points")
}

fn utf8(path: &Path, bytes: Vec<u8>) -> Result<String, Failure> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::bad_input(format!("`{}` is not text: byte {at} is not valid UTF-8", shown(path)))
            .help("tables, curves and rules must be UTF-8 text")
    })
}
