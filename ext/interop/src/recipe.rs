//! Writes a recipe in TOML, section by section, in the order of the field table.

use std::fmt::Write as _;

use super::training::Training;

/// The recipe of the arch at `arch`, a path relative to the recipe.
pub fn text(arch: &str, comments: &[String], training: &Training) -> String {
    let mut out = String::new();
    for comment in comments {
        let comment: String =
            comment.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let _ = writeln!(out, "# {comment}");
    }
    let _ = writeln!(out, "arch = {}", toml::Value::String(arch.to_owned()));
    let mut section = "";
    for (path, value) in training {
        let (table, name) = path.split_once('.').unwrap_or(("", path));
        if table != section {
            let _ = writeln!(out, "\n[{table}]");
            section = table;
        }
        let _ = writeln!(out, "{name} = {value}");
    }
    out
}
