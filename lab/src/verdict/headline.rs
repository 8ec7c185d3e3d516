//! A verdict in one line, and the treatment that would cover everything that differs.

use super::model::{CANON, Change, Declared, Outcome, Subject, Verdict};
use crate::field::{self, FieldDef};

impl Verdict {
    /// Whether the arms are controlled, a bundle, or identical.
    pub fn is_controlled(&self) -> bool {
        match self.outcome {
            Outcome::Identical | Outcome::Controlled | Outcome::Bundle(_) => true,
            Outcome::Confounded(_) => false,
        }
    }

    /// The verdict in one line, for locks and reports.
    pub fn headline(&self) -> String {
        let entries: Vec<&str> = self.treatment.iter().map(|d| d.entry.as_str()).collect();
        let entries = entries.join(", ");
        let data = if self.assumed.is_empty() { "" } else { "; data assumed equal by name" };
        // If only one arm has a field, the field that brings it is mentioned instead.
        let both = |change: &Change| change.a.is_some() && change.b.is_some();
        let excused = self.cosmetic.iter().any(|change| change.is_carried() && both(change));
        let word = self.trainer.word().filter(|_| excused);
        let run = word.map_or_else(String::new, |word| format!("; {word} runs both arms"));
        let assumed = format!("{data}{run}");
        match self.outcome {
            Outcome::Identical => format!("identical{assumed}"),
            Outcome::Controlled => format!("controlled for {entries}{assumed}"),
            Outcome::Bundle(n) => format!(
                "bundle of {n} factors ({entries}): controlled, but not attributable to one of them{assumed}"
            ),
            Outcome::Confounded(n) => {
                let s = if n == 1 { "" } else { "s" };
                let context = if entries.is_empty() {
                    "no treatment is declared".to_owned()
                } else {
                    format!("in addition to {entries}")
                };
                format!("confounded: {n} difference{s}, {context}")
            }
        }
    }

    /// The headline of a bundle in which some entries compensate for the others, to keep a quantity equal.
    pub fn compensated(&self, compensate: &[String], quantity: &str) -> String {
        let compensates = |entry: &str| compensate.iter().any(|known| known == entry);
        let (sizes, treated): (Vec<&Declared>, Vec<&Declared>) =
            self.treatment.iter().partition(|declared| compensates(&declared.entry));
        let treated: Vec<&str> = treated.iter().map(|declared| declared.entry.as_str()).collect();
        let size = |declared: &&Declared| {
            let mut changes: Vec<String> = Vec::new();
            for change in &declared.changes {
                let (Some(a), Some(b)) = (&change.a, &change.b) else { continue };
                let change = format!("{a} to {b}");
                if !changes.contains(&change) {
                    changes.push(change);
                }
            }
            format!("{} {}", declared.entry, changes.join(", ")).trim_end().to_owned()
        };
        let sizes: Vec<String> = sizes.iter().map(size).collect();
        let data = if self.assumed.is_empty() { "" } else { "; data assumed equal by name" };
        format!(
            "compensated: {} at equal {quantity} ({}){data}",
            treated.join(", "),
            sizes.join(", ")
        )
    }

    /// The treatment that would make everything that differs a bundle, in the notation of recipes.
    pub fn declaration(&self) -> Vec<String> {
        let mut entries: Vec<String> = self.treatment.iter().map(|d| d.entry.clone()).collect();
        let canon_declared = entries.iter().any(|entry| entry == CANON);
        for change in &self.confounds {
            let entry = match &change.subject {
                Subject::Cell { canon: true, .. } if !canon_declared => Some(CANON.to_owned()),
                Subject::Cell { general, .. } => Some(short_entry(general)),
                Subject::Field => field::find(&change.path)
                    .filter(|def| !def.is_measurement() && !self.brings(def))
                    .map(|def| def.path.to_owned()),
                Subject::Definition | Subject::Whole => None,
            };
            if let Some(entry) = entry.filter(|entry| !entries.contains(entry)) {
                entries.push(entry);
            }
        }
        entries
    }
}

impl Verdict {
    /// Whether a field is there because another one, in which the arms differ, is given: that one declares both.
    fn brings(&self, def: &FieldDef) -> bool {
        def.only.is_some_and(|(on, words)| {
            words.is_empty() && self.confounds.iter().any(|change| change.path == on)
        })
    }
}

/// A field of the arch as people write it in a treatment: `rope.dims` for `arch.layers.*.mixer.rope.dims`.
fn short_entry(general: &str) -> String {
    let Some(rest) = general.strip_prefix("arch.layers.*") else { return general.to_owned() };
    let rest = rest.trim_start_matches('.');
    let parts: Vec<&str> = rest.split('.').collect();
    match parts.as_slice() {
        [""] => "arch.layers.*".to_owned(),
        [.., holder, name] => format!("{holder}.{name}"),
        [_] | [] => rest.to_owned(),
    }
}
