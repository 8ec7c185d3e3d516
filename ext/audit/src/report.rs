//! The result of an audit, as text and as JSON.
//!
//! A pair is called clean only if no finding in it may affect the result.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Serialize;

use crate::experiment::Origin;
use crate::finding::{Finding, Findings, Scope};
use crate::logs::{JsonLog, LogSummary};
use crate::pairs::Pair;
use crate::rules::{RuleDetails, Rules, Severity, TABLE};
use crate::subject::Subject;
use crate::unknown;
use crate::vocabularies::{LINGUA, VOCABULARIES, Vocabulary};

/// Occurrences listed for one finding. Further ones are only counted.
const MAX_OCCURRENCES: usize = 8;

/// The result of an audit.
#[derive(Clone, Debug)]
pub struct AuditReport {
    /// Number of experiments that were read.
    pub experiments: usize,
    /// Without and with the treatment, by name.
    pub pairs: Vec<(String, String)>,
    /// Pairs without findings that may affect the result.
    pub clean: Vec<(String, String)>,
    /// The most severe first.
    pub findings: Vec<(RuleDetails, Finding)>,
    /// Rules that differ from the built-in ones.
    pub changes: Vec<String>,
    /// Treatments without pairs, and why.
    pub unpaired: Vec<String>,
    /// Limits: facts that the audited files do not contain.
    pub unseen: Vec<String>,
    /// Vocabularies of other trainers, with the number of experiments in each.
    pub vocabularies: Vec<String>,
    /// Logs of other programs.
    pub logs: Vec<LogSummary>,
    /// Keys that hold results.
    pub results: Vec<String>,
    /// Unknown keys in which no twins differ.
    pub unknown: Vec<String>,
}

/// Names of keys listed in one line. Further ones are only counted.
const MAX_LISTED: usize = 12;

/// Facts that a lock does not contain.
const LOCKS: &str = "locks contain no curves, no comments and no revision of foreign code: to check these, audit \
                     tables, and curves with --curves";

/// Facts that another trainer's configuration does not contain.
const CONFIGURATIONS: &str = "configurations contain no curves and no revision of the code that ran them: to check these, \
                              audit tables, and curves with --curves";

pub(crate) fn report(
    subjects: &[Subject],
    pairs: &[Pair],
    findings: Findings,
    unpaired: Vec<String>,
    rules: &Rules,
) -> AuditReport {
    let weighed = |finding: Finding| Some((rules.get(&finding.rule)?, finding));
    let mut findings: Vec<(RuleDetails, Finding)> =
        findings.into_list().into_iter().filter_map(weighed).collect();
    findings.sort_by_key(|(details, finding)| {
        let Finding { rule, scope: _, key, message, occurrences } = finding;
        let position = rules.position(rule);
        let most = usize::MAX - occurrences.len();
        (
            std::cmp::Reverse(details.severity),
            position,
            rule.clone(),
            most,
            key.clone(),
            message.clone(),
        )
    });
    let named = |pair: &Pair| {
        let name = |at: usize| subjects.get(at).map(|s| s.name.clone());
        Some((name(pair.without)?, name(pair.with)?))
    };
    let pairs: Vec<(String, String)> = pairs.iter().filter_map(named).collect();
    let clean = clean(&pairs, &findings);
    let listed: Vec<&Finding> = findings.iter().map(|(_, finding)| finding).collect();
    let unknown = unknown::unreported(subjects, &listed);
    let results: BTreeSet<String> = subjects.iter().flat_map(|s| s.results.clone()).collect();
    let has_origin = |origin: Origin| subjects.iter().any(|subject| subject.origin == origin);
    let unseen = [
        has_origin(Origin::Lock).then(|| LOCKS.to_owned()),
        has_origin(Origin::Configuration).then(|| CONFIGURATIONS.to_owned()),
    ];
    AuditReport {
        experiments: subjects.len(),
        clean,
        pairs,
        findings,
        changes: rules.changes(),
        unpaired,
        unseen: unseen.into_iter().flatten().collect(),
        vocabularies: vocabularies(subjects),
        logs: Vec::new(),
        results: results.into_iter().collect(),
        unknown,
    }
}

/// The pairs in which no finding may affect the result: of the pair itself, or of one of its runs.
fn clean(pairs: &[(String, String)], findings: &[(RuleDetails, Finding)]) -> Vec<(String, String)> {
    let mut spoilt: BTreeSet<(&str, Option<&str>)> = BTreeSet::new();
    for (_, finding) in findings.iter().filter(|(_, finding)| finding.scope != Scope::Set) {
        let occurrences = finding.occurrences.iter();
        spoilt.extend(occurrences.map(|p| (p.experiment.as_str(), p.against.as_deref())));
    }
    let is_clean = |(a, b): &&(String, String)| {
        let (a, b) = (a.as_str(), b.as_str());
        ![(a, Some(b)), (a, None), (b, None)].iter().any(|finding| spoilt.contains(finding))
    };
    pairs.iter().filter(is_clean).cloned().collect()
}

/// How keys of other trainers were read.
fn vocabularies(subjects: &[Subject]) -> Vec<String> {
    let described = |vocabulary: &&'static Vocabulary| {
        let read = subjects.iter().filter(|subject| subject.vocabulary == *vocabulary);
        let (title, count) = (vocabulary.title, read.count());
        (count > 0)
            .then(|| format!("{}: {title}; {}", vocabulary.name, dsl::counted(count, "experiment")))
    };
    let others = VOCABULARIES.iter().filter(|vocabulary| ***vocabulary != LINGUA);
    others.filter_map(described).collect()
}

/// Names in one line.
fn names(list: &[String]) -> String {
    let shown: Vec<String> = list.iter().take(MAX_LISTED).map(|name| line(name)).collect();
    let more = match list.len().checked_sub(MAX_LISTED).filter(|more| *more > 0) {
        Some(more) => format!(", and {more} more; --json lists all"),
        None => String::new(),
    };
    format!("{}{more}", shown.join(", "))
}

impl AuditReport {
    /// Whether any finding fails the audit.
    pub fn fails(&self) -> bool {
        self.findings.iter().any(|(details, _)| details.severity.fails())
    }

    fn headline(&self) -> String {
        let counts = Severity::ALL.iter().filter_map(|severity| {
            let n =
                self.findings.iter().filter(|(details, _)| details.severity == *severity).count();
            (n > 0).then(|| dsl::counted(n, severity.word()))
        });
        let counts: Vec<String> = counts.collect();
        match counts.is_empty() {
            true => "nothing found".to_owned(),
            false => counts.join(", "),
        }
    }
}

/// The report as text.
pub fn text(report: &AuditReport) -> String {
    let mut out = summary(report);
    let mut before = "";
    for (at, (details, finding)) in report.findings.iter().enumerate() {
        if finding.rule != before {
            let checks = TABLE.iter().find(|rule| rule.id == finding.rule);
            let _ = write!(out, "\n{}: {}\n", details.severity.word(), finding.rule);
            if let Some(rule) = checks {
                let _ = writeln!(out, "  {}", rule.checks);
            }
            before = &finding.rule;
        }
        write_finding(&mut out, finding);
        if report.findings.get(at + 1).is_none_or(|(_, next)| next.rule != finding.rule) {
            for (word, text) in [("why", &details.reason), ("help", &details.help)] {
                if !text.is_empty() {
                    let _ = writeln!(out, "  = {word}: {text}");
                }
            }
        }
    }
    out
}

/// The lines before the findings.
fn summary(report: &AuditReport) -> String {
    let AuditReport {
        experiments,
        pairs,
        clean,
        findings: _,
        changes,
        unpaired,
        unseen,
        vocabularies,
        logs,
        results,
        unknown,
    } = report;
    let mut out = format!("{}\n{}", report.headline(), dsl::counted(*experiments, "experiment"));
    if !pairs.is_empty() {
        let _ = write!(
            out,
            ", {}, {} of them clean (only the treatment differs in anything that may affect the result)",
            dsl::counted(pairs.len(), "pair"),
            clean.len()
        );
    }
    for reason in unpaired {
        let _ = write!(out, "; no pairs by {reason}");
    }
    out.push('\n');
    for vocabulary in vocabularies {
        let _ = writeln!(out, "keys read as {vocabulary}");
    }
    if !results.is_empty() {
        let _ = writeln!(out, "results, not compared: {}", names(results));
    }
    if !unknown.is_empty() {
        let where_equal = if pairs.is_empty() { "" } else { ", equal in every pair" };
        let _ = writeln!(out, "unknown keys{where_equal}: {}", names(unknown));
    }
    for text in logs.iter().flat_map(LogSummary::lines) {
        let _ = writeln!(out, "{}", line(&text));
    }
    for limit in unseen {
        let _ = writeln!(out, "not checked: {limit}");
    }
    for change in changes {
        let _ = writeln!(out, "rules: {change}");
    }
    out
}

/// A text of a file in one line: a name with a line feed must not look like a line of the report.
fn line(text: &str) -> String {
    text.replace(['\n', '\r'], "\u{fffd}")
}

fn write_finding(out: &mut String, finding: &Finding) {
    let Finding { rule, scope: _, key, message, occurrences } = finding;
    let of_groups = rule.starts_with("across-");
    let paired = occurrences.iter().all(|occurrence| occurrence.against.is_some());
    let unit = if paired { "pair" } else { "experiment" };
    let key = if key.is_empty() { String::new() } else { format!("{}: ", line(key)) };
    let message = line(message);
    let counted = match of_groups {
        true => String::new(),
        false => format!("; {}", dsl::counted(occurrences.len(), unit)),
    };
    let _ = writeln!(out, "  {key}{message}{counted}");
    for occurrence in occurrences.iter().take(MAX_OCCURRENCES) {
        let experiments = match &occurrence.against {
            Some(other) => format!("{} | {other}", occurrence.experiment),
            None => occurrence.experiment.clone(),
        };
        let gap = if occurrence.observation.is_empty() { "" } else { "  " };
        let _ = writeln!(out, "    {}{gap}{}", line(&experiments), line(&occurrence.observation));
    }
    if let Some(more) = occurrences.len().checked_sub(MAX_OCCURRENCES).filter(|more| *more > 0) {
        let _ = writeln!(out, "    … and {more} more; --json lists all");
    }
}

/// The schema of `--json`.
#[derive(Debug, Serialize)]
pub struct Json<'a> {
    schema: &'static str,
    experiments: usize,
    fails: bool,
    pairs: Vec<JsonPair<'a>>,
    /// Each line: a treatment, a colon, and why it has no pair.
    unpaired: &'a [String],
    unseen: &'a [String],
    vocabularies: &'a [String],
    results: &'a [String],
    unknown: &'a [String],
    rules: &'a [String],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    logs: Vec<JsonLog<'a>>,
    findings: Vec<JsonFinding<'a>>,
}

#[derive(Debug, Serialize)]
struct JsonPair<'a> {
    without: &'a str,
    with: &'a str,
    clean: bool,
}

#[derive(Debug, Serialize)]
struct JsonFinding<'a> {
    rule: &'a str,
    severity: &'static str,
    key: Option<&'a str>,
    message: &'a str,
    why: &'a str,
    help: &'a str,
    places: Vec<JsonPlace<'a>>,
}

#[derive(Debug, Serialize)]
struct JsonPlace<'a> {
    experiment: &'a str,
    against: Option<&'a str>,
    says: &'a str,
}

/// The report as JSON.
pub fn json(report: &AuditReport) -> Json<'_> {
    let pair = |pair: &'_ (String, String)| report.clean.contains(pair);
    let pairs = report.pairs.iter().map(|both| JsonPair {
        without: &both.0,
        with: &both.1,
        clean: pair(both),
    });
    let findings = report.findings.iter().map(|(details, finding)| JsonFinding {
        rule: &finding.rule,
        severity: details.severity.word(),
        key: Some(finding.key.as_str()).filter(|key| !key.is_empty()),
        message: &finding.message,
        why: &details.reason,
        help: &details.help,
        places: finding
            .occurrences
            .iter()
            .map(|occurrence| JsonPlace {
                experiment: &occurrence.experiment,
                against: occurrence.against.as_deref(),
                says: &occurrence.observation,
            })
            .collect(),
    });
    Json {
        schema: "canonc.audit.v1",
        experiments: report.experiments,
        fails: report.fails(),
        pairs: pairs.collect(),
        unpaired: &report.unpaired,
        unseen: &report.unseen,
        vocabularies: &report.vocabularies,
        results: &report.results,
        unknown: &report.unknown,
        rules: &report.changes,
        logs: report.logs.iter().map(JsonLog::new).collect(),
        findings: findings.collect(),
    }
}
