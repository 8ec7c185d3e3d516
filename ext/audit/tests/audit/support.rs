//! The published set, its curves, and its audit.

use std::io::Read;
use std::path::PathBuf;

use audit::curves::{self, Curves};
use audit::{AuditReport, Experiment, Finding, Findings, Rules, audit, subjects, table};
use flate2::read::GzDecoder;

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../recipes/published/data").join(name)
}

pub(super) fn experiments() -> Vec<Experiment> {
    let text = std::fs::read_to_string(file("recipes.tsv")).unwrap();
    table("recipes.tsv", &text).unwrap()
}

pub(super) fn losses() -> Curves {
    let packed = std::fs::File::open(file("curves_trainloss_linear.csv.gz")).unwrap();
    let mut text = String::new();
    GzDecoder::new(packed).read_to_string(&mut text).unwrap();
    Curves::parse(&text).unwrap()
}

/// Rows of a published table: cells by column.
pub(super) fn rows(name: &str) -> Vec<std::collections::BTreeMap<String, String>> {
    let text = std::fs::read_to_string(file(name)).unwrap();
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().unwrap().split('\t').collect();
    let row = |line: &str| {
        let cells = line.split('\t').map(str::to_owned);
        columns.iter().map(|c| (*c).to_owned()).zip(cells).collect()
    };
    lines.map(row).collect()
}

pub(super) fn report(experiments: &[Experiment], losses: &Curves) -> AuditReport {
    let subjects = subjects(experiments);
    let mut findings = Findings::default();
    curves::findings(losses, &subjects, &mut findings);
    audit(&subjects, &Rules::default(), findings)
}

/// Findings of a rule, in the order of the report.
pub(super) fn of_rule<'a>(report: &'a AuditReport, rule: &str) -> Vec<&'a Finding> {
    report.findings.iter().map(|(_, f)| f).filter(|f| f.rule == rule).collect()
}

/// All findings of a report at or above some severity, one line each.
pub(super) fn lines(report: &AuditReport, notes: bool) -> std::collections::BTreeSet<String> {
    let weighed = report
        .findings
        .iter()
        .filter(|(details, _)| notes || details.severity > audit::Severity::Note);
    weighed
        .flat_map(|(_, f)| {
            f.occurrences.iter().map(move |occurrence| {
                let against = occurrence.against.as_deref().unwrap_or("");
                format!(
                    "{} {} {} {against}: {} {}",
                    f.rule, f.key, occurrence.experiment, f.message, occurrence.observation
                )
            })
        })
        .collect()
}
