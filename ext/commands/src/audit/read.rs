//! Reads the inputs of an audit: locks, tables, configurations, folders, and the published set.
//!
//! File sizes are bounded, also after decompression. A folder is read in the order of its names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use audit::curves::Curves;
use audit::{Experiment, Names, Origin};
use flate2::read::MultiGzDecoder;
use lab::lock::Lock;

use super::{configuration, refused};
use cli::fail::{Failure, shown};
use cli::files;
use cli::workspace::{self, refuse};

const RECIPES: &str = include_str!("../../../../recipes/published/data/recipes.tsv");
const CURVES: &[u8] =
    include_bytes!("../../../../recipes/published/data/curves_trainloss_linear.csv.gz");

/// Size limit of a table, and of decompressed curves.
const MAX_BYTES: u64 = 256 << 20;
/// Most files of one folder.
const MAX_FILES: usize = 10_000;

/// The 64 experiments of the release.
pub(super) fn published() -> Result<Vec<Experiment>, Failure> {
    audit::table("published", RECIPES).map_err(|bad| refused("published", bad))
}

/// The loss curves of 48 of them.
pub(super) fn published_curves() -> Result<Curves, Failure> {
    parse(Path::new("published"), CURVES)
}

/// Extensions of tables, of configurations, and of records in JSON.
const TABLES: [&str; 2] = ["tsv", "csv"];
const MARKDOWN: [&str; 2] = ["md", "markdown"];
const YAML: [&str; 2] = ["yaml", "yml"];
const LINES: [&str; 2] = ["jsonl", "ndjson"];

/// Files that lie beside configurations and are none.
const BESIDE: [&str; 20] = [
    "Cargo.toml",
    "adapter_model.safetensors.index.json",
    "added_tokens.json",
    "chat_template.json",
    "generation_config.json",
    "looks.jsonl",
    "model.safetensors.index.json",
    "package-lock.json",
    "overlap.jsonl",
    "package.json",
    "preprocessor_config.json",
    "pyproject.toml",
    "pytorch_model.bin.index.json",
    "reported.jsonl",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "trainer_state.json",
    "vocab.json",
    "wandb-metadata.json",
];

/// The experiments at a path: those of a lock, a table's rows, a configuration, or those of a folder's files.
pub(super) fn experiments(path: &Path, names: &Names) -> Result<Vec<Experiment>, Failure> {
    let path = &workspace::lock_path(path)?;
    let foreign = [&TABLES[..], &MARKDOWN, &YAML, &LINES, &["json"]].concat();
    let metadata = fs::metadata(path).map_err(|error| match is(path, &foreign) {
        true => files::missing(path, &error),
        false => refuse::missing_lock(path, &error),
    })?;
    if metadata.is_dir() {
        return folder(path, names);
    }
    let source = shown(path);
    if is(path, &TABLES) {
        return audit::table_in(&source, &text(path)?, names).map_err(|bad| refused(&source, bad));
    }
    if is(path, &MARKDOWN) {
        return audit::markdown(&source, &text(path)?, names).map_err(|bad| refused(&source, bad));
    }
    if is(path, &YAML) {
        return Ok(vec![configuration::yaml(path, &text(path)?, names)?]);
    }
    if is(path, &["json"]) {
        return configuration::json(path, &text(path)?, names);
    }
    if is(path, &LINES) {
        return configuration::json_lines(path, &text(path)?, names);
    }
    if is(path, &["toml"])
        && let Some(experiment) = configuration::toml(path, &text(path)?, names)?
    {
        return Ok(vec![experiment]);
    }
    if workspace::is_lock(path) || is(path, &["canon", "toml"]) {
        return lock(path);
    }
    Err(Failure::bad_input(format!("`{source}` is neither a lock, a table nor a configuration")).help(
        "name locks (.lock), tables (.csv, .tsv, .md, .jsonl), configurations (.yaml, .toml, .json), or folders of them",
    ))
}

fn is(path: &Path, extensions: &[&str]) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| extensions.contains(&extension))
}

fn folder(path: &Path, names: &Names) -> Result<Vec<Experiment>, Failure> {
    let entries = fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = entries.map_err(|error| Failure::cannot_read(path, &error))?;
    let mut files: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
    let read = [&TABLES[..], &MARKDOWN, &YAML, &LINES, &["lock", "json", "toml"]].concat();
    let beside =
        |path: &Path| path.file_name().is_some_and(|name| BESIDE.iter().any(|b| name == *b));
    files.retain(|path| is(path, &read) && !beside(path));
    files.sort();
    if files.len() > MAX_FILES {
        return Err(Failure::bad_input(format!(
            "`{1}` contains {0} locks, tables and configurations; at most {MAX_FILES} are read",
            files.len(),
            shown(path)
        ))
        .help("name a smaller folder"));
    }
    let mut experiments = Vec::new();
    let mut used = false;
    for path in &files {
        // Notes without a table, and canonc's own recipes, lie beside locks.
        if is(path, &MARKDOWN)
            && audit::markdown("", &text(path)?, names).is_err_and(|bad| bad.line == 0)
            || is(path, &["toml"]) && configuration::is_recipe(&text(path)?)
        {
            continue;
        }
        used = true;
        experiments.extend(experiments_of(path, names)?);
    }
    if !used {
        return Err(Failure::bad_input(format!(
            "`{}` contains no lock, table or configuration",
            shown(path)
        ))
        .help("`canonc build recipes/*.toml` writes locks; subfolders are not searched"));
    }
    if experiments.is_empty() {
        return Err(Failure::bad_input(format!("`{}` contains no experiment", shown(path)))
            .help("an architecture alone cannot be audited: build a recipe"));
    }
    Ok(experiments)
}

pub(super) fn experiments_of(path: &Path, names: &Names) -> Result<Vec<Experiment>, Failure> {
    if is(path, &["lock"]) { lock_or_arch(path) } else { experiments(path, names) }
}

fn lock(path: &Path) -> Result<Vec<Experiment>, Failure> {
    let experiments = lock_or_arch(path)?;
    if experiments.is_empty() {
        return Err(Failure::bad_input("this lock has an architecture but no experiment")
            .at(shown(path))
            .help("name locks that `canonc build` wrote for recipes or comparisons"));
    }
    Ok(experiments)
}

/// The experiments of a lock: one, those of every arm, or none for an architecture.
fn lock_or_arch(path: &Path) -> Result<Vec<Experiment>, Failure> {
    let source = shown(path);
    let (lock, _) = workspace::read_lock(path)?;
    Ok(match lock {
        Lock::Arch(_) => Vec::new(),
        Lock::Experiment(lock) => vec![Experiment::of_lock(&lock.name, &source, &lock)],
        Lock::Comparison(lock) => Experiment::of_comparison(&source, &lock),
    })
}

/// Drops the arms of comparisons that also have their own lock, so that each experiment counts once. What a comparison
/// declares about them stays.
pub(super) fn once(experiments: Vec<Experiment>) -> Vec<Experiment> {
    let (arms, mut rest): (Vec<_>, Vec<_>) =
        experiments.into_iter().partition(|experiment| experiment.name.contains('/'));
    let others = rest.len();
    let mut kept: BTreeMap<String, String> = BTreeMap::new();
    for arm in arms {
        let same = rest.iter_mut().take(others).find(|experiment| experiment.values == arm.values);
        match same {
            Some(same) => {
                kept.insert(arm.name, same.name.clone());
                same.declared.extend(arm.declared);
            }
            None => rest.push(arm),
        }
    }
    for declared in rest.iter_mut().flat_map(|experiment| &mut experiment.declared) {
        if let Some(name) = kept.get(&declared.base) {
            declared.base.clone_from(name);
        }
    }
    rest
}

/// Names configurations that have one file name (`a/recipe.yaml`, `b/recipe.yaml`) by their key `name`, or if that does
/// not tell them apart, by their folders.
pub(super) fn tell_apart(experiments: &mut [Experiment]) {
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
