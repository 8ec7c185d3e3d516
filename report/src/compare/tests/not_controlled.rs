//! No output calls an arm controlled unless its lock proved it.

use std::collections::BTreeMap;

use lab::comparison::SelectionMode;

use super::{document_of, overview_of};
use crate::compare::made_up::{by, confounded, grid, two_seeds};
use crate::compare::{Comparison, Design, Facts, Proof};
use crate::page::{self, Heading};

const CONFOUNDED: &str = "NOT CONTROLLED: confounded: 2 differences, beside canon";

/// One arm, one of several arms, and an arm without any proof; with the arm's name and its verdict.
fn each() -> [(Comparison, &'static str, &'static str); 3] {
    let mut none = two_seeds();
    none.proof = Proof::default();
    let several = grid(by("eval_loss", SelectionMode::Min, true));
    [
        (confounded(two_seeds(), "canon"), "canon", CONFOUNDED),
        (confounded(several, "left"), "left", CONFOUNDED),
        (none, "canon", "NOT CONTROLLED: nothing proves how this arm differs"),
    ]
}

#[test]
fn the_verdict_says_so() {
    for (comparison, arm, verdict) in each() {
        let facts = Facts::new(&comparison);
        assert_eq!(facts.not_controlled(), [arm]);
        assert!(facts.verdict().contains(verdict), "{}", facts.verdict());
    }
    let controlled = Facts::new(&two_seeds());
    assert_eq!(controlled.verdict(), "canon against llama: controlled for canon");
    assert_eq!(controlled.design(), Design::Controlled);
    // The lock's own statement, before any run.
    let mut comparison = confounded(two_seeds(), "canon");
    comparison.arms.truncate(1);
    let facts = Facts::new(&comparison);
    assert_eq!(facts.verdict(), format!("canon against llama: {CONFOUNDED}"));
    assert_eq!(facts.design(), Design::NotControlled);
}

#[test]
fn the_tables_say_so() {
    for (comparison, arm, _) in each() {
        let summary = Facts::new(&comparison).summary();
        let first =
            format!("NOT CONTROLLED: no difference of {arm} can be attributed to a treatment.");
        assert!(summary.caption.starts_with(&first), "{}", summary.caption);
        let title = &summary.sections[0].title;
        assert!(title.starts_with(arm) && title.ends_with(": NOT CONTROLLED"), "{title}");
        if let [_, other, ..] = &summary.sections[..] {
            assert!(!other.title.contains("NOT CONTROLLED"), "{}", other.title);
        }
    }
    assert!(!Facts::new(&two_seeds()).summary().text().contains("NOT CONTROLLED"));
}

#[test]
fn the_page_says_so() {
    for (comparison, _, verdict) in each() {
        let facts = Facts::new(&comparison);
        let heading = Heading {
            title: "c".to_owned(),
            verdict: facts.verdict(),
            design: facts.design(),
            lock_id: "00".to_owned(),
            notes: Vec::new(),
        };
        let part = page::Part::new(heading, facts, BTreeMap::new(), Vec::new());
        let contents = page::PageContents { parts: vec![part], ..page::PageContents::default() };
        let page = page::page(&contents).unwrap();
        // In the heading, above the table, below it, and over the curve of differences.
        assert!(page.contains(verdict), "the heading");
        assert!(page.matches("NOT CONTROLLED").count() >= 4);
        assert!(page.contains("<p class=\"design bad\">design: "), "the design is marked");
    }
}

#[test]
fn the_document_says_so() {
    for (comparison, arm, verdict) in each() {
        let document = document_of(&comparison);
        assert_eq!(document["schema"], "canonc.compare.v2");
        assert_eq!(document["controlled"], false);
        let comparison = &document["comparisons"][0];
        assert_eq!(comparison["controlled"], false);
        for list in ["arms", "pairs", "paired_at_each_point", "best_per_arm"] {
            for entry in comparison[list].as_array().unwrap() {
                if entry.get("arm").or(entry.get("name")).unwrap() == arm {
                    assert_eq!(entry["controlled"], false, "{list}");
                    assert_eq!(entry["verdict"], verdict, "{list}");
                } else {
                    assert_ne!(entry["controlled"], false, "{list}");
                }
            }
        }
    }
}

#[test]
fn the_overview_and_its_picture_say_so() {
    let controlled = two_seeds();
    for (comparison, arm, verdict) in each() {
        let (table, _, picture) = overview_of(&[&comparison, &controlled]);
        let design = table.head.iter().position(|head| head == "design").unwrap();
        let open: Vec<&str> = table
            .rows
            .iter()
            .filter(|row| row[design] == verdict)
            .map(|row| row[4].split(' ').next().unwrap())
            .collect();
        assert_eq!(open, [arm]);
        assert_eq!(picture.matches(">NOT CONTROLLED<").count(), 1, "{picture}");
        assert_eq!(picture.matches("stroke-dasharray").count(), 2, "{picture}");
        assert!(picture.contains("dashed: not controlled"), "{picture}");
    }
    let (.., picture) = overview_of(&[&controlled]);
    assert!(!picture.to_lowercase().contains("not controlled"));
}
