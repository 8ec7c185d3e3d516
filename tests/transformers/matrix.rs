//! Every use of an exported folder in `transformers` 5 and 4, for each committed arch: the table of `docs/transformers.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use compiler::program::{Compiled, Program, Std};
use support::{archs, programs};

use super::folders::{drawn, lay_out};
use super::{older, python};

/// A scan, windows with sinks, several streams. CANONC_MATRIX names others, or `all`, which takes half an hour.
const IN_CI: [&str; 3] = ["gla_demo", "gptoss_demo", "hyper_demo"];
/// The row of a table that says what its columns are.
const HEAD: &str = "| arch | transformers | load | generate | padding | packed | save | trainer | lora | checkpointing | hidden | compile |";

#[derive(serde::Deserialize)]
struct UsesRow {
    name: String,
    cells: BTreeMap<String, String>,
    deprecated: Vec<String>,
}

/// Committed archs at small widths, one for each graph.
fn all() -> BTreeMap<String, Compiled> {
    let files = programs::files("arch", ".canon");
    let texts = files.iter().map(|file| (file.clone(), archs::small(&programs::read(file))));
    let program = Program::new(texts, Std::Embedded);
    let (mut cases, mut graphs) = (BTreeMap::new(), BTreeSet::new());
    let names =
        files.iter().flat_map(|file| program.archs(file).into_iter().map(move |name| (file, name)));
    for (file, name) in names.filter(|(_, name)| name.ends_with("_demo") || name.ends_with("_1B")) {
        let (compiled, diagnostics) = program.compile(file, &name);
        let compiled = compiled.unwrap_or_else(|| panic!("{}", program.render(&diagnostics)));
        if graphs.insert(compiled.identity.graph) {
            cases.insert(name, compiled);
        }
    }
    cases
}

/// A row for each folder, by the version of `transformers` on this path.
fn rows(folders: &[String], path: Option<&Path>) -> Vec<UsesRow> {
    let script = programs::root().join("tests/transformers_matrix.py");
    let mut command = Command::new(python());
    command.arg(script).args(folders).env("OMP_NUM_THREADS", "1");
    if let Some(path) = path {
        command.env("PYTHONPATH", path);
    }
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let lines = stdout.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_use_of_an_exported_folder_works_or_is_refused_as_documented() {
    let mut cases = all();
    assert!(cases.len() >= 45, "{}", cases.len());
    let asked = std::env::var("CANONC_MATRIX").unwrap_or_else(|_| IN_CI.join(","));
    if asked != "all" {
        let asked: BTreeSet<&str> = asked.split(',').collect();
        cases.retain(|name, _| asked.contains(name.as_str()));
        assert_eq!(cases.len(), asked.len(), "{asked:?}");
    }
    let dir = tempfile::tempdir().unwrap();
    let mut folders = Vec::new();
    for (name, compiled) in &cases {
        lay_out(dir.path(), name, compiled, drawn(compiled), None);
        folders.push(dir.path().join(name).to_string_lossy().into_owned());
    }
    let documented = programs::read("docs/transformers.md");
    let columns: Vec<&str> =
        HEAD.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect();
    let mut wrong = Vec::new();
    for (version, path) in [("5.24.0", None), ("4.57.6", Some(older()))] {
        let rows = rows(&folders, path);
        assert_eq!(rows.len(), cases.len(), "{version}");
        for row in rows {
            let cells = columns[2..].iter().map(|name| format!(" {} |", row.cells[*name]));
            let line = format!("| `{}` | {version} |{}", row.name, cells.collect::<String>());
            let right = row.cells.values().all(|cell| matches!(cell.as_str(), "yes" | "refused"));
            if !right || !documented.lines().any(|known| known == line) {
                wrong.push(line);
            }
            wrong.extend(row.deprecated);
        }
    }
    assert!(documented.contains(HEAD), "docs/transformers.md has no table with {HEAD}");
    assert!(wrong.is_empty(), "rows that docs/transformers.md lacks:\n{}", wrong.join("\n"));
}
