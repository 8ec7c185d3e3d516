//! A verdict as text and as JSON.
//!
//! The answer comes first, then one group after the other. A treatment that no comparison file declares is called exploratory.

use std::fmt::Write as _;

use serde::Serialize;

use super::model::{
    Change, Meaning, Namesake, NodeChange, Origin, Outcome, Replaced, SourceLine, Verdict, What,
};
use crate::field;
use compiler::digest::Digest;

/// Nodes listed. Further ones are only counted.
const MAX_NODES: usize = 40;

/// The report as text. `exploratory` means that the treatment was typed rather than declared.
pub fn text(verdict: &Verdict, exploratory: bool) -> String {
    let [a, b] = &verdict.labels;
    let mut out = format!("{}\n  a  {a}\n  b  {b}\n", verdict.headline());
    for input in &verdict.assumed {
        let _ = writeln!(
            out,
            "  both read {input}, which has no digest yet: assumed equal because the names are equal"
        );
    }
    if let Some(trainer) = verdict.trainer.word() {
        let _ = writeln!(out, "  {trainer} runs both arms, as declared");
    }
    match &verdict.trainers {
        Some([a, b]) if a == b => {
            let _ = writeln!(out, "  both were trained by {a}");
        }
        Some([a, b]) => {
            let _ = writeln!(out, "  a was trained by {a}, b by {b}");
        }
        None => {}
    }
    let exact = |change: &Change| field::find(&change.path).is_some_and(|def| def.exact);
    if verdict.platform.iter().any(|change| !exact(change)) {
        out += "  the platforms differ: results may differ by rounding, which an audit of the pair counts as a confound\n";
    } else if !verdict.platform.is_empty() {
        out += "  the platforms differ, in nothing that changes a bit of what canonc computes\n";
    }
    if exploratory && !verdict.treatment.is_empty() {
        out += "  exploratory: this treatment was given on the command line; declare it in a comparison file\n";
    }
    if !verdict.treatment.is_empty() {
        out += "\ntreatment\n";
        for declared in &verdict.treatment {
            let factors = match declared.factors {
                1 => String::new(),
                n => format!("  ({n} factors)"),
            };
            let _ = writeln!(out, "  {}{factors}", declared.entry);
            changes(&mut out, &declared.changes, "    ");
        }
    }
    group(&mut out, "confounds", &verdict.confounds);
    group(&mut out, "consequences", &verdict.consequences);
    group(&mut out, "platform", &verdict.platform);
    group(&mut out, "cosmetic", &verdict.cosmetic);
    if !verdict.nodes.is_empty() {
        out += "\ngraph\n";
        for node in verdict.nodes.iter().take(MAX_NODES) {
            node_lines(&mut out, node);
        }
        if let Some(more) = verdict.nodes.len().checked_sub(MAX_NODES).filter(|more| *more > 0) {
            let _ = writeln!(out, "  … and {more} more");
        }
    }
    name_lines(&mut out, &verdict.names);
    proof(&mut out, verdict);
    advice(&mut out, verdict, exploratory);
    out
}

/// Warnings, and what to do about confounds and bundles.
fn advice(out: &mut String, verdict: &Verdict, exploratory: bool) {
    if verdict.cosmetic.iter().any(Change::reaches_scores) {
        *out += "\nwarning: scores of another trainer's evaluations are not comparable: the arms differ in how it evaluates\n";
    }
    if verdict.confounds.iter().any(Change::is_carried) {
        let how = match exploratory {
            true => "`--trainer canonc`",
            false => "`trainer = \"canonc\"` in the comparison file",
        };
        let _ = writeln!(out, "\nhelp: if canonc runs both arms, declare it: {how}");
    }
    if let Outcome::Bundle(_) = verdict.outcome {
        *out += "\nhelp: for each factor's own effect, compare arms that differ in one of them; if one only keeps a size equal, declare \
                it as `compensate` under `[match]` of the comparison file (`canonc new --matched` writes both)\n";
    }
    if exploratory && !verdict.is_controlled() {
        let declaration = verdict.declaration();
        if declaration.len() == verdict.treatment.len() {
            *out += "\nhelp: make the arms agree: no treatment can cover these confounds\n";
        } else {
            let entries: Vec<String> =
                declaration.iter().map(|e| format!("--treatment {e}")).collect();
            let _ = writeln!(
                out,
                "\nhelp: make the arms agree, or declare all of it: {}",
                entries.join(" ")
            );
        }
    }
}

fn group(out: &mut String, title: &str, list: &[Change]) {
    if !list.is_empty() {
        let _ = writeln!(out, "\n{title}");
        changes(out, list, "  ");
    }
}

fn changes(out: &mut String, list: &[Change], indent: &str) {
    let width = list.iter().map(|change| change.path.chars().count()).max().unwrap_or(0).min(44);
    for change in list {
        let Change { path, subject: _, a, b, defaults, places, note } = change;
        let pad = " ".repeat(width.saturating_sub(path.chars().count()));
        let mut line = format!("{indent}{path}");
        if a.is_some() || b.is_some() {
            let value = |value: &Option<String>, default: bool| match value {
                Some(value) if default => format!("{value} (default)"),
                Some(value) => value.clone(),
                None => "absent".to_owned(),
            };
            let _ = write!(line, "{pad}  {} -> {}", value(a, defaults[0]), value(b, defaults[1]));
        }
        if !note.is_empty() {
            let _ = write!(line, "  {note}");
        }
        let _ = writeln!(out, "{}", line.trim_end());
        let shown: Vec<String> = places.iter().flatten().map(SourceLine::to_string).collect();
        if !shown.is_empty() {
            let _ = writeln!(out, "{indent}  at {}", shown.join(" and "));
        }
    }
}

fn node_lines(out: &mut String, node: &NodeChange) {
    let NodeChange { what, layers, node: name, times, a, b, places } = node;
    let line = |i: usize| places[i].as_ref().map_or(String::new(), |p| format!("  at {p}"));
    let layers = if layers.is_empty() { String::new() } else { format!("{layers}  ") };
    let times = if *times > 1 { format!("{times} × ") } else { String::new() };
    let layers = layers + &times;
    let _ = match what {
        What::Added => writeln!(out, "  + {layers}{}{}", b.as_deref().unwrap_or(name), line(1)),
        What::Removed => writeln!(out, "  - {layers}{}{}", a.as_deref().unwrap_or(name), line(0)),
        What::Changed => writeln!(
            out,
            "  ~ {layers}{}{}\n    {}{}{}",
            a.as_deref().unwrap_or(name),
            line(0),
            " ".repeat(layers.chars().count()),
            b.as_deref().unwrap_or(name),
            line(1)
        ),
    };
}

/// Names with more than one meaning, and the meaning in each arm.
fn name_lines(out: &mut String, names: &[Namesake]) {
    if names.is_empty() {
        return;
    }
    out.push_str("\nnames with more than one meaning\n");
    for Namesake { name, meanings: [a, b] } in names {
        let _ = writeln!(out, "  {name}");
        match (a, b) {
            (Some(a), Some(b)) if a.same(b) => {
                let _ = writeln!(out, "    a, b  {a}");
            }
            (a, b) => {
                for (arm, meaning) in [("a", a), ("b", b)] {
                    if let Some(meaning) = meaning {
                        let _ = writeln!(out, "    {arm}     {meaning}");
                    }
                }
            }
        }
    }
}

fn proof(out: &mut String, verdict: &Verdict) {
    let digest = |digest: &Option<Digest>| digest.map_or("none".to_owned(), |d| d.short());
    let sign = |equal: bool| if equal { "=" } else { "!=" };
    let line = |out: &mut String, what: &str, [a, b]: [String; 2]| {
        let _ = writeln!(out, "  {what:<33} {a} {} {b}", sign(a == b));
    };
    out.push_str("\nproof\n");
    let [forward, backward] = &verdict.proof.replaced;
    if verdict.treatment.is_empty() {
        line(out, "graph", forward.graph.each_ref().map(digest));
        line(out, "manifest", forward.manifest.each_ref().map(digest));
    } else {
        for (replaced, what) in
            [(forward, "a given b's treatment"), (backward, "b given a's treatment")]
        {
            line(out, &format!("graph, {what}"), replaced.graph.each_ref().map(digest));
            line(out, &format!("manifest, {what}"), replaced.manifest.each_ref().map(digest));
        }
    }
    if let Some(erased) = &verdict.proof.erased {
        let slots = erased.slots.join(", ");
        line(out, &format!("graph, {slots} erased"), erased.graph.map(|d| d.short()));
        line(out, &format!("manifest, {slots} erased"), erased.manifest.map(|d| d.short()));
    }
}

/// A verdict as JSON; the schema is `canonc.diff.v1`.
#[derive(Clone, Debug, Serialize)]
pub struct DiffReport {
    /// Name and version of the format: `canonc.diff.v1`.
    pub schema: &'static str,
    /// Name of the first arm.
    pub a: String,
    /// Name of the second arm.
    pub b: String,
    /// `identical`, `controlled`, `bundle` or `confounded`.
    pub verdict: &'static str,
    /// Whether nothing but the treatment differs.
    pub controlled: bool,
    /// Number of independent factors in the treatment.
    pub factors: usize,
    /// The verdict in one line.
    pub headline: String,
    /// Whether the treatment was given on the command line rather than in a comparison file.
    pub exploratory: bool,
    /// Inputs without a digest, assumed equal by name.
    pub assumed: Vec<String>,
    /// The declared trainer of both arms; null if none was declared.
    pub trainer: Option<&'static str>,
    /// Who trained the two runs; null if no run was trained elsewhere.
    pub trainers: Option<[String; 2]>,
    /// The treatment's entries, each with its changes.
    pub treatment: Vec<ReportEntry>,
    /// Differences outside the treatment that could change a result.
    pub confounds: Vec<ReportChange>,
    /// Differences that follow from the treatment.
    pub consequences: Vec<ReportChange>,
    /// Differences that change rounding only.
    pub platform: Vec<ReportChange>,
    /// Differences that change no result.
    pub cosmetic: Vec<ReportChange>,
    /// Differences between the graphs.
    pub graph: Vec<ReportNode>,
    /// Names that mean different things in the two arms, or something other than in canonc.
    pub names: Vec<ReportName>,
    /// Digests that show that nothing but the treatment differs.
    pub proof: ReportProof,
}

#[derive(Clone, Debug, Serialize)]
pub struct ReportEntry {
    pub entry: String,
    pub factors: usize,
    pub changes: Vec<ReportChange>,
}

/// `a` and `b` are null if an arm has no such field; `at_a` and `at_b` are `file:line` or null.
#[derive(Clone, Debug, Serialize)]
pub struct ReportChange {
    pub path: String,
    pub a: Option<String>,
    pub b: Option<String>,
    pub at_a: Option<String>,
    pub at_b: Option<String>,
    pub note: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct ReportNode {
    /// `added`, `removed` or `changed`.
    pub change: &'static str,
    pub layers: String,
    pub node: String,
    /// The number of such nodes in each of the layers.
    pub times: usize,
    pub a: Option<String>,
    pub b: Option<String>,
    pub at_a: Option<String>,
    pub at_b: Option<String>,
}

/// A name and its meaning in each arm; null if an arm does not use it.
#[derive(Clone, Debug, Serialize)]
pub struct ReportName {
    pub name: String,
    pub a: Option<ReportMeaning>,
    pub b: Option<ReportMeaning>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ReportMeaning {
    /// `primitive`, or the kind of a definition: `block`, `mixer`, `mlp`, `head`, `init`, `alias`.
    pub kind: &'static str,
    /// The digest of a definition without names.
    pub digest: Option<String>,
    /// Whether it is a primitive or in the standard library.
    pub standard: bool,
    /// `file:line` of a definition.
    pub at: Option<String>,
}

/// Digests of each arm with the other's values at the treatment, and of the other arm; null if an arm
/// cannot be built.
#[derive(Clone, Debug, Serialize)]
pub struct ReportProof {
    /// Arm a with b's values, and b.
    pub graph: [Option<String>; 2],
    pub manifest: [Option<String>; 2],
    /// Arm b with a's values, and a.
    pub reverse_graph: [Option<String>; 2],
    pub reverse_manifest: [Option<String>; 2],
    pub erased_slots: Vec<String>,
    pub erased_graph: Option<[String; 2]>,
    pub erased_manifest: Option<[String; 2]>,
}

/// The verdict as JSON.
pub fn json(verdict: &Verdict, exploratory: bool) -> DiffReport {
    let Verdict {
        labels: [a, b],
        outcome,
        assumed,
        trainer,
        trainers,
        treatment,
        confounds,
        consequences,
        platform,
        cosmetic,
        nodes,
        names,
        proof,
    } = verdict;
    let [Replaced { graph, manifest }, backward] = &proof.replaced;
    let word = match outcome {
        Outcome::Identical => "identical",
        Outcome::Controlled => "controlled",
        Outcome::Bundle(_) => "bundle",
        Outcome::Confounded(_) => "confounded",
    };
    let hex = |pair: &[Option<Digest>; 2]| pair.map(|digest| digest.map(|d| d.to_string()));
    let both = |pair: &[Digest; 2]| pair.map(|digest| digest.to_string());
    DiffReport {
        schema: "canonc.diff.v1",
        a: a.clone(),
        b: b.clone(),
        verdict: word,
        controlled: verdict.is_controlled(),
        factors: treatment.iter().map(|declared| declared.factors).sum(),
        headline: verdict.headline(),
        exploratory: exploratory && !treatment.is_empty(),
        assumed: assumed.clone(),
        trainer: trainer.word(),
        trainers: trainers.clone(),
        treatment: treatment
            .iter()
            .map(|declared| ReportEntry {
                entry: declared.entry.clone(),
                factors: declared.factors,
                changes: report(&declared.changes),
            })
            .collect(),
        confounds: report(confounds),
        consequences: report(consequences),
        platform: report(platform),
        cosmetic: report(cosmetic),
        graph: nodes.iter().map(report_node).collect(),
        names: names.iter().map(report_name).collect(),
        proof: ReportProof {
            graph: hex(graph),
            manifest: hex(manifest),
            reverse_graph: hex(&backward.graph),
            reverse_manifest: hex(&backward.manifest),
            erased_slots: proof.erased.as_ref().map_or(Vec::new(), |e| e.slots.clone()),
            erased_graph: proof.erased.as_ref().map(|e| both(&e.graph)),
            erased_manifest: proof.erased.as_ref().map(|e| both(&e.manifest)),
        },
    }
}

fn report(changes: &[Change]) -> Vec<ReportChange> {
    let one = |change: &Change| {
        let Change { path, subject: _, a, b, defaults: _, places, note } = change;
        let [at_a, at_b] = [0, 1].map(|i| places[i].as_ref().map(SourceLine::to_string));
        let (a, b, note) = (a.clone(), b.clone(), note.clone());
        ReportChange { path: path.clone(), a, b, at_a, at_b, note }
    };
    changes.iter().map(one).collect()
}

fn report_name(namesake: &Namesake) -> ReportName {
    let Namesake { name, meanings } = namesake;
    let [a, b] = meanings.each_ref().map(|meaning| meaning.as_ref().map(report_meaning));
    ReportName { name: name.clone(), a, b }
}

fn report_meaning(meaning: &Meaning) -> ReportMeaning {
    match meaning {
        Meaning::Primitive { revision: _ } => {
            ReportMeaning { kind: "primitive", digest: None, standard: true, at: None }
        }
        Meaning::Defined { kind, digest, origin, place } => ReportMeaning {
            kind,
            digest: Some(digest.to_string()),
            standard: *origin == Origin::Standard,
            at: Some(place.to_string()),
        },
    }
}

fn report_node(node: &NodeChange) -> ReportNode {
    let NodeChange { what, layers, node, times, a, b, places } = node;
    let [at_a, at_b] = [0, 1].map(|i| places[i].as_ref().map(SourceLine::to_string));
    ReportNode {
        change: match what {
            What::Added => "added",
            What::Removed => "removed",
            What::Changed => "changed",
        },
        layers: layers.clone(),
        node: node.clone(),
        times: *times,
        a: a.clone(),
        b: b.clone(),
        at_a,
        at_b,
    }
}
