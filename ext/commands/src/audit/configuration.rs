//! Configurations of trainers as experiments: YAML, TOML and JSON, each with its keys flat.

use std::collections::BTreeMap;
use std::path::Path;

use audit::vocabularies::{LINGUA, Vocabulary};
use audit::{Experiment, Names};
use interop::node::{Node, NodeValue as Value};
use interop::{json, yaml};

use super::refused;
use cli::fail::{Failure, shown};

/// Keys with their cells and lines.
type Keys = Vec<(usize, String, String)>;

/// A YAML file, named after its path. The number of devices may be in a comment.
pub(super) fn yaml(path: &Path, text: &str, names: &Names) -> Result<Experiment, Failure> {
    let source = shown(path);
    let node = yaml::read_as_written(&source, text.as_bytes()).map_err(Failure::from)?;
    let mut keys = flat(&node);
    let lingua = {
        let all: Vec<&str> = keys.iter().map(|(_, key, _)| key.as_str()).collect();
        *names.vocabulary.unwrap_or_else(|| Vocabulary::recognise(&all, false)) == LINGUA
    };
    if lingua {
        // Lingua replaces interpolation: such a file is no recipe yet.
        keys = flat(&yaml::read(&source, text.as_bytes()).map_err(Failure::from)?);
        keys.iter_mut().filter(|(_, _, cell)| cell == "null").for_each(|(_, _, cell)| cell.clear());
    }
    let mut experiment = experiment(path, &keys, names)?;
    let comments = yaml::comments(text);
    experiment.read_devices(comments.iter().map(|(line, text)| (*line, text.as_str())));
    Ok(experiment)
}

/// A TOML file; None for a recipe of canonc, which has to be built first.
pub(super) fn toml(path: &Path, text: &str, names: &Names) -> Result<Option<Experiment>, Failure> {
    if is_recipe(text) {
        return Ok(None);
    }
    let keys = audit::toml_keys(text).map_err(|bad| refused(&shown(path), bad))?;
    let of_rules = ["invariant.0.of", "pairs.0.treatment", "range.0.of"];
    if keys.iter().any(|(_, key, _)| of_rules.contains(&key.as_str())) {
        return Err(Failure::bad_input("these are rules, not a configuration")
            .at(shown(path))
            .help("name a file of rules after --rules"));
    }
    experiment(path, &keys, names).map(Some)
}

/// Whether a text is a recipe or a comparison of canonc.
pub(super) fn is_recipe(text: &str) -> bool {
    let Ok(keys) = audit::toml_keys(text) else { return false };
    let has = |name: &str| keys.iter().any(|(_, key, _)| key == name);
    let arch = keys.iter().any(|(_, key, cell)| key == "arch" && cell.contains(".canon"));
    let arms = keys.iter().any(|(_, key, _)| key.starts_with("arms."));
    arch || (has("base") && arms)
}

/// A JSON file: one configuration, or a list of records.
pub(super) fn json(path: &Path, text: &str, names: &Names) -> Result<Vec<Experiment>, Failure> {
    let source = shown(path);
    let node = json::read(&source, text.as_bytes()).map_err(Failure::from)?;
    match &node.value {
        Value::Map(_) => Ok(vec![experiment(path, &flat(&node), names)?]),
        Value::List(items) => records(&source, items.iter(), names),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => {
            Err(Failure::bad_input("it is neither an object nor a list of objects")
                .at(source)
                .help("name a configuration, or a list with an object for each experiment"))
        }
    }
}

/// One JSON object a line.
pub(super) fn json_lines(
    path: &Path,
    text: &str,
    names: &Names,
) -> Result<Vec<Experiment>, Failure> {
    let source = shown(path);
    let mut nodes = Vec::new();
    for (line, at) in text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty()) {
        let node = json::read(&source, line.as_bytes()).map_err(|error| {
            Failure::bad_input(error.message)
                .at(format!("{source}:{at}"))
                .help("write one JSON object a line")
        })?;
        nodes.push(Node { line: at, ..node });
    }
    records(&source, nodes.iter(), names)
}

fn records<'a>(
    source: &str,
    nodes: impl Iterator<Item = &'a Node>,
    names: &Names,
) -> Result<Vec<Experiment>, Failure> {
    let mut rows = Vec::new();
    for node in nodes {
        let Value::Map(_) = &node.value else {
            return Err(Failure::bad_input(format!("{} is not an object", node.value.shown()))
                .at(format!("{source}:{}", node.line))
                .help("write one object for each experiment"));
        };
        let cell = |(_, key, cell): (usize, String, String)| match cell == "null" {
            true => (key, String::new()),
            false => (key, cell),
        };
        let keys = flat(node);
        once(source, &keys)?;
        rows.push((node.line, keys.into_iter().map(cell).collect()));
    }
    if rows.is_empty() {
        return Err(Failure::bad_input("it contains no object")
            .at(source.to_owned())
            .help("write one object for each experiment"));
    }
    audit::records(source, &rows, names).map_err(|bad| refused(source, bad))
}

/// An experiment with the keys of a file, named after it.
fn experiment(path: &Path, keys: &Keys, names: &Names) -> Result<Experiment, Failure> {
    let source = shown(path);
    if keys.iter().all(|(_, key, _)| key.is_empty()) {
        return Err(Failure::bad_input("it has no keys")
            .at(source)
            .help("name the configuration of a run"));
    }
    once(&source, keys)?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let cells = keys.iter().map(|(line, key, cell)| (*line, key.as_str(), cell.as_str()));
    Experiment::of_keys(&name, &source, names, cells).map_err(|bad| refused(&source, bad))
}

/// Refuses two values of one key: `a.b: 1` beside `b: 2` in a section `a`.
fn once(source: &str, keys: &Keys) -> Result<(), Failure> {
    let mut lines = BTreeMap::new();
    for (line, key, _) in keys {
        if let Some(before) = lines.insert(key.as_str(), line) {
            let message = format!("`{key}` is written in lines {before} and {line}");
            return Err(Failure::bad_input(message)
                .at(source.to_owned())
                .help("keep one of the two"));
        }
    }
    Ok(())
}

/// Every leaf with its dotted key. A list of plain values is one cell; in a list of others, each has a key.
fn flat(node: &Node) -> Keys {
    fn walk(prefix: &str, node: &Node, keys: &mut Keys) {
        let below = |key: &str| match prefix.is_empty() {
            true => key.to_owned(),
            false => format!("{prefix}.{key}"),
        };
        let nested = |node: &Node| matches!(node.value, Value::Map(_) | Value::List(_));
        match &node.value {
            Value::Map(entries) if !entries.is_empty() => {
                entries.iter().for_each(|(key, node)| walk(&below(key), node, keys));
            }
            Value::List(items) if items.iter().any(nested) => {
                let numbered = items.iter().enumerate();
                numbered.for_each(|(at, node)| walk(&below(&at.to_string()), node, keys));
            }
            Value::Map(_)
            | Value::List(_)
            | Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Text(_) => {
                // Two files, one with an empty section, have the same keys.
                if !matches!(&node.value, Value::Map(entries) if entries.is_empty()) {
                    keys.push((node.line, prefix.to_owned(), node.value.plain()));
                }
            }
        }
    }
    let mut keys = Vec::new();
    walk("", node, &mut keys);
    keys
}
