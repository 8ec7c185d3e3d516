//! The graph of artefacts: archs, recipes, comparisons, the locks they make, runs and reports. A cycle is reported, not
//! followed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::order::topological;

/// The kind of an artefact, ordered from text to result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ArtifactKind {
    /// An arch in a `.canon` file.
    Arch,
    /// A recipe of one or more experiments.
    Recipe,
    /// A comparison file.
    Comparison,
    /// A lock of an arch, an experiment or a comparison.
    Lock,
    /// The folder of one run.
    Run,
    /// A page or table made from runs.
    Report,
}

/// The state of an artefact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// A source, or equal to what its sources produce now.
    Current,
    /// Differs from what its sources produce now.
    Stale,
    /// Does not exist yet.
    Missing,
    /// Started and not finished.
    Unfinished,
    /// Cannot be read or compiled.
    Broken,
    /// Exists, but has no source any more.
    Orphan,
}

/// One artefact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// What it is.
    pub kind: ArtifactKind,
    /// Whether it is up to date.
    pub state: State,
    /// A note for the reader; may be empty.
    pub note: String,
}

/// Artefacts by path, with their sources.
#[derive(Clone, Debug, Default)]
pub struct Artifacts {
    all: BTreeMap<String, Artifact>,
    needs: BTreeMap<String, Vec<String>>,
}

impl ArtifactKind {
    /// The kind in messages.
    pub fn word(self) -> &'static str {
        match self {
            ArtifactKind::Arch => "arch",
            ArtifactKind::Recipe => "recipe",
            ArtifactKind::Comparison => "comparison",
            ArtifactKind::Lock => "lock",
            ArtifactKind::Run => "run",
            ArtifactKind::Report => "report",
        }
    }
}

impl State {
    /// The state in messages.
    pub fn word(self) -> &'static str {
        match self {
            State::Current => "current",
            State::Stale => "stale",
            State::Missing => "missing",
            State::Unfinished => "unfinished",
            State::Broken => "broken",
            State::Orphan => "orphan",
        }
    }

    fn colour(self) -> &'static str {
        match self {
            State::Current => "#dafbe1",
            State::Stale | State::Unfinished => "#fff8c5",
            State::Missing => "#ffffff",
            State::Broken | State::Orphan => "#ffebe9",
        }
    }
}

impl Artifacts {
    /// Adds an artefact. An entry already known for the path is kept.
    pub fn add(&mut self, path: impl Into<String>, artifact: Artifact) {
        self.all.entry(path.into()).or_insert(artifact);
    }

    /// Records that one artefact is made from another.
    pub fn need(&mut self, path: impl Into<String>, needed: impl Into<String>) {
        let needed = needed.into();
        let list = self.needs.entry(path.into()).or_default();
        if !list.contains(&needed) {
            list.push(needed);
        }
    }

    /// The artefact with this path.
    pub fn get(&self, path: &str) -> Option<&Artifact> {
        self.all.get(path)
    }

    /// Whether any artefact cannot be made from its sources.
    pub fn broken(&self) -> bool {
        self.all.values().any(|artifact| artifact.state == State::Broken)
    }

    /// Paths by kind, sources before dependents; `Err` holds the paths of one cycle.
    pub fn in_order(&self) -> Result<Vec<&str>, Vec<&str>> {
        // Ready paths come out highest number first, so the alphabet is numbered backwards.
        let paths: Vec<&str> = self.all.keys().rev().map(String::as_str).collect();
        let number = |path: &str| paths.binary_search_by(|known| path.cmp(known)).ok();
        let mut edges = Vec::new();
        for (path, needs) in &self.needs {
            let from = number(path);
            edges.extend(needs.iter().filter_map(|needed| Some((from?, number(needed)?))));
        }
        let named = |order: Vec<usize>| -> Vec<&str> {
            order.into_iter().filter_map(|n| paths.get(n).copied()).collect()
        };
        let mut order = named(topological(paths.len(), &edges).map_err(named)?);
        order.sort_by_key(|path| self.all.get(*path).map(|artifact| artifact.kind));
        Ok(order)
    }

    /// The known sources of a path.
    fn needs(&self, path: &str) -> impl Iterator<Item = &str> {
        let listed = self.needs.get(path).into_iter().flatten();
        listed.filter(|needed| self.all.contains_key(*needed)).map(String::as_str)
    }

    /// One line per artefact: kind, state, path, sources.
    pub fn text(&self) -> Result<String, Vec<&str>> {
        let order = self.in_order()?;
        let width = order.iter().map(|path| path.chars().count()).max().unwrap_or(0);
        let mut text = String::new();
        for path in order {
            let Some(Artifact { kind, state, note }) = self.all.get(path) else { continue };
            let (kind, state) = (kind.word(), state.word());
            let pad = " ".repeat(width - path.chars().count().min(width));
            let mut line = format!("{kind:10}  {state:10}  {path}{pad}");
            let needs: Vec<&str> = self.needs(path).collect();
            match needs.as_slice() {
                [] => {}
                [one] => line += &format!("  from {one}"),
                // A report can have hundreds of runs as sources.
                [first, .., last] if needs.len() > 3 => {
                    line += &format!("  from {first} … {last} ({} in all)", needs.len());
                }
                several => line += &format!("  from {}", several.join(", ")),
            }
            if !note.is_empty() {
                line += &format!("  ({note})");
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
        Ok(text)
    }

    /// The graph in Graphviz' language.
    pub fn dot(&self) -> Result<String, Vec<&str>> {
        let order = self.in_order()?;
        let number: BTreeMap<&str, usize> = order.iter().copied().zip(0..).collect();
        let mut text = String::from(
            "digraph {\n  rankdir=LR\n  node [fontname=\"Helvetica\", fontsize=11, shape=box, style=\"rounded,filled\"]\n  edge [color=\"#57606a\", arrowsize=0.6]\n",
        );
        for (path, n) in &number {
            let Some(Artifact { kind, state, note }) = self.all.get(*path) else { continue };
            let note = if note.is_empty() { String::new() } else { format!("\\n{note}") };
            let label = format!("{path}\\n{}, {}{note}", kind.word(), state.word());
            let (label, colour) = (label.replace('"', "'"), state.colour());
            let _ = writeln!(text, "  n{n} [label=\"{label}\", fillcolor=\"{colour}\"]");
        }
        for (path, n) in &number {
            for needed in self.needs(path).filter_map(|needed| number.get(needed)) {
                let _ = writeln!(text, "  n{needed} -> n{n}");
            }
        }
        text.push_str("}\n");
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(kind: ArtifactKind) -> Artifact {
        Artifact { kind, state: State::Current, note: String::new() }
    }

    #[test]
    fn needed_artifacts_come_first() {
        let mut artifacts = Artifacts::default();
        artifacts.add("b.canon", artifact(ArtifactKind::Arch));
        artifacts.add("a.lock", artifact(ArtifactKind::Lock));
        artifacts.add("a.canon", artifact(ArtifactKind::Arch));
        artifacts.add("c.canon", artifact(ArtifactKind::Arch));
        artifacts.need("a.canon", "b.canon");
        artifacts.need("a.lock", "a.canon");
        artifacts.need("a.lock", "never.heard.of");
        assert_eq!(artifacts.in_order(), Ok(vec!["b.canon", "a.canon", "c.canon", "a.lock"]));
        assert_eq!(
            artifacts.text().unwrap().lines().last().unwrap(),
            "lock        current     a.lock   from a.canon"
        );
    }

    #[test]
    fn a_cycle_is_an_error() {
        let mut artifacts = Artifacts::default();
        artifacts.add("a", artifact(ArtifactKind::Arch));
        artifacts.add("b", artifact(ArtifactKind::Arch));
        artifacts.need("a", "b");
        artifacts.need("b", "a");
        assert_eq!(artifacts.in_order().map_err(|circle| circle.len()), Err(2));
    }
}
