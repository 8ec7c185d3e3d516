//! The rules: a table of built-in ones, and those that a user adds.
//!
//! In: nothing, or a checked rules file. Out: [`Rules`]. Must stay true: every finding belongs to a row
//! of this table or to a user's rule; no rule names an experiment; every report lists the rules that
//! are off or changed.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::Subject;
use super::quantity::Quantity;
use super::vocabulary::{CANON, Topic};
use crate::value::Ratio;

/// The severity of a finding. `Confound` and above fail the audit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Mention it next to a result.
    Note,
    /// Could mislead, without evidence that it does.
    Warning,
    /// May explain a result instead of the treatment.
    Confound,
    /// A claim is false.
    Error,
}

impl Severity {
    pub const ALL: [Severity; 4] =
        [Severity::Error, Severity::Confound, Severity::Warning, Severity::Note];

    pub fn word(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Confound => "confound",
            Severity::Error => "error",
        }
    }

    pub fn parse(word: &str) -> Option<Severity> {
        Severity::ALL.into_iter().find(|severity| severity.word() == word)
    }

    pub fn fails(self) -> bool {
        self >= Severity::Confound
    }
}

/// A built-in rule.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub id: &'static str,
    pub severity: Severity,
    pub checks: &'static str,
    pub why: &'static str,
    pub help: &'static str,
}

const fn rule(
    id: &'static str,
    severity: Severity,
    checks: &'static str,
    why: &'static str,
    help: &'static str,
) -> Rule {
    Rule { id, severity, checks, why, help }
}

/// In report order.
#[rustfmt::skip]
pub const TABLE: &[Rule] = &[
    rule("name-twice", Severity::Error,
        "Two experiments have one name.",
        "What is said of one would be taken for the other.",
        "give each a name of its own"),
    rule("name-value", Severity::Error,
        "A number in the name (lr0.002, wd0.1, steps600) is another than the key's.",
        "Tables and curves go by names.",
        "correct the name, or the key"),
    rule("name-tokens", Severity::Error,
        "The tokens in the name (1T, 100B) are more than 2% off steps x tokens per step.",
        "The budget is part of every comparison, and its name is what people read.",
        "correct the name, the steps or the batch"),
    rule("name-canon", Severity::Error,
        "The name says Canon and no slot is filled, or other slots; or it says that there is none and slots are filled; or slots are filled and only this name does not say so.",
        "The arm of a comparison is read off its name.",
        "correct the name, or the slots"),
    rule("unknown-key", Severity::Confound,
        "A key or column that canonc does not know.",
        "Nobody can say whether a difference in it decides, so no pair that has it is clean.",
        "correct its name, or say in a rules file what it is about: `[keys]`, then `\"my.flag\" = \"training\"`"),
    rule("budget-ambiguous", Severity::Error,
        "Experiments whose keys are equal, but whose tokens are not.",
        "Whoever runs the file again gets one of the two budgets, and cannot know which.",
        "write what tells them apart as a key: batch.tokens_per_step"),
    rule("devices-disagree", Severity::Error,
        "One file gives different numbers of devices, in comments or keys.",
        "The budget follows from the number, and a reader takes whichever comes first.",
        "correct the one that is wrong"),
    rule("reported", Severity::Error,
        "A number that the table gives as derived (tokens_total, lr_x_wd_x_steps …) does not follow from its keys.",
        "One of the two is wrong, and readers see the derived one.",
        "compute it again from the keys"),
    rule("twin-training", Severity::Confound,
        "Twins differ in a key of the function, the loss or the update beside the treatment.",
        "The difference of the twins measures both changes together.",
        "run a twin with only one of the two changes, or declare both as a bundle"),
    rule("twin-data", Severity::Confound,
        "Twins differ in what they read.",
        "Other tokens, or another order, give another loss without any treatment.",
        "train both on the same data with the same seed"),
    rule("twin-budget", Severity::Confound,
        "Twins differ in steps, batch or tokens.",
        "More or larger steps give another loss without any treatment.",
        "give both the same budget"),
    rule("twin-numerics", Severity::Confound,
        "Twins differ in how wide numbers are.",
        "Rounding can move a loss by more than a small treatment does.",
        "train both in the same precision"),
    rule("twin-definition", Severity::Confound,
        "Twins give one name to two definitions, and their graphs differ.",
        "Names in tables and figures do not tell the arms apart; what they compute does.",
        "use one definition in both, or give the other a name of its own; `canonc diff` shows the lines"),
    rule("twin-kernel", Severity::Confound,
        "Twins differ in the code that computes what is the same mathematics.",
        "Kernels round differently, and an error in one of them would look like the treatment. `canonc diff` lists it as platform.",
        "run both with the same kernels, or show on one of them that they agree"),
    rule("twin-measured", Severity::Confound,
        "Twins differ in what is measured of their weights.",
        "Two measures are no difference of two arms. `canonc diff` calls it a confound as well.",
        "measure both in the same way"),
    rule("lr-wd-steps", Severity::Confound,
        "Learning rate x weight decay x steps, of all that learn one task.",
        "It says how often decay replaces a weight; runs off it answer two questions at once.",
        "set weight_decay so that the product is the others'"),
    rule("warmup-share", Severity::Confound,
        "The share of the steps that warm up, within a task, family, size and budget.",
        "The schedule is meant to be the same at every learning rate.",
        "set warmup in proportion to the steps"),
    rule("tokens-per-step", Severity::Confound,
        "Tokens of one step, within a task, family, size and budget.",
        "Another batch is another optimisation, whatever else is equal.",
        "give all of them the same tokens per step"),
    rule("data-order", Severity::Confound,
        "With curves: a run's loss differences jitter over 5 times as much as its siblings', in most of the run.",
        "Runs that read the same batches share their noise; this one does not, so it read others.",
        "look for another seed, device count or loader in its launch; pair it with care"),
    rule("siblings", Severity::Warning,
        "In a task, family, size and budget all but a few agree in a key.",
        "A sweep over one thing is read as if all else were equal.",
        "make them agree, or leave the odd ones out of the sweep"),
    rule("treatment-uniform", Severity::Warning,
        "In a family treated experiments differ in the treatment: what it is, or a setting of it such as a slot's kernel.",
        "A mean over pairs would mix two treatments.",
        "report them apart"),
    rule("twin-evaluation", Severity::Warning,
        "Twins differ in how another trainer evaluates them: tasks, examples in the prompt, number formats.",
        "No weight depends on it, but scores do: a difference of two scores may be one of the two evaluations.",
        "evaluate both in one way, or compare only what both have measured alike"),
    rule("missing-twin", Severity::Warning,
        "An experiment without a partner, in a set that has pairs.",
        "Means over pairs leave it out; best-of tables do not.",
        "add the partner, or leave it out of both"),
    rule("twin-unclear", Severity::Warning,
        "Names do not say who is the twin, and several experiments are as near as each other.",
        "The differences shown are those of one of them.",
        "give twins names that differ in the word of the arm alone"),
    rule("budget-in-comment", Severity::Warning,
        "Tokens follow from the keys only together with a number that stands in a comment.",
        "No program reads comments: the file alone does not determine the run.",
        "write batch.tokens_per_step as a key; devices are then a hint"),
    rule("devices-unread", Severity::Warning,
        "A comment speaks of GPUs, devices or nodes, and their number is not understood; or keys give the nodes, or the devices of a node, and not both.",
        "The budget may follow from it; a guess could make a false one.",
        "write it plainly (`# GPUs: 128`), or batch.tokens_per_step as a key"),
    rule("loss-spike", Severity::Note,
        "With curves: the loss leaves its siblings by more than 0.02 and comes back.",
        "A spike near the end, or one that is not recovered from, decides a final value.",
        "look at it in the curve before using the last value"),
    rule("twin-revision", Severity::Note,
        "Twins come from two revisions of the code, to judge by the keys in their dumps.",
        "No effect is known; it is the sort of difference nobody looks for.",
        "run both from one revision, and record it"),
    rule("across-families", Severity::Note,
        "A key that differs between families at the same size.",
        "Families side by side in a table differ in this, too.",
        "say it beside the table"),
    rule("across-sizes", Severity::Note,
        "A key that differs between sizes of one family, beside those that make the size.",
        "A trend over sizes is a trend over this, too.",
        "say it beside the table"),
    rule("one-change", Severity::Note,
        "Two experiments differ in one key and not in the treatment.",
        "Their difference measures this key.",
        "name them by it"),
    rule("definition", Severity::Note,
        "Experiments use one name for different definitions, or one has a definition of its own where others have canonc's.",
        "What is computed follows from the definition, not from its name.",
        "give different definitions different names"),
    rule("twin-cosmetic", Severity::Note,
        "Twins differ in how often something is measured or written, or where things lie.",
        "No loss, no weight and no score depends on it.",
        "nothing"),
];

/// Declares which experiments are twins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pairs {
    /// The intended difference: these keys and the keys below them.
    pub treatment: Vec<String>,
    /// Keys that may also differ.
    pub ignore: Vec<String>,
}

/// A quantity that should be constant over a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Invariant {
    pub id: String,
    pub of: Quantity,
    /// `task`, `family`, `size`, `tokens` or keys: experiments are compared if they agree in these.
    pub within: Vec<String>,
    /// Largest relative difference between values that count as equal.
    pub tolerance: Ratio,
}

/// Bounds of a quantity.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    pub id: String,
    pub of: Quantity,
    pub least: Option<Ratio>,
    pub most: Option<Ratio>,
}

/// The common fields of a user's rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    pub severity: Severity,
    pub why: String,
    pub help: String,
}

/// All rules of an audit.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    pub off: BTreeSet<String>,
    pub severity: BTreeMap<String, Severity>,
    pub pairs: Vec<Pairs>,
    pub invariants: Vec<Invariant>,
    pub ranges: Vec<Range>,
    pub own: BTreeMap<String, Own>,
    /// Topics of user-defined keys.
    pub keys: BTreeMap<String, Topic>,
}

impl Default for Rules {
    fn default() -> Rules {
        let invariant = |id: &str, of: Quantity, within: &[&str]| Invariant {
            id: id.to_owned(),
            of,
            within: within.iter().map(|label| (*label).to_owned()).collect(),
            tolerance: Ratio { num: 1, den: 100 },
        };
        let alike = ["task", "family", "size", "tokens"];
        let lr_wd_steps = ["optimizer.lr", "optimizer.weight_decay", "budget.steps"];
        Rules {
            off: BTreeSet::new(),
            severity: BTreeMap::new(),
            pairs: vec![Pairs { treatment: vec![CANON.to_owned()], ignore: Vec::new() }],
            invariants: vec![
                invariant("lr-wd-steps", Quantity::product(&lr_wd_steps, &[]), &["task"]),
                invariant(
                    "warmup-share",
                    Quantity::product(&["schedule.warmup"], &["budget.steps"]),
                    &alike,
                ),
                invariant(
                    "tokens-per-step",
                    Quantity::product(&["batch.tokens_per_step"], &[]),
                    &alike,
                ),
            ],
            ranges: Vec::new(),
            own: BTreeMap::new(),
            keys: BTreeMap::new(),
        }
    }
}

impl Rules {
    /// A rule's description and severity; `None` if it is off or unknown.
    pub fn of(&self, id: &str) -> Option<Own> {
        if self.off.contains(id) {
            return None;
        }
        let own = self.own.get(id).cloned().or_else(|| {
            let rule = TABLE.iter().find(|rule| rule.id == id)?;
            let Rule { id: _, severity, checks: _, why, help } = *rule;
            Some(Own { severity, why: why.to_owned(), help: help.to_owned() })
        })?;
        let severity = self.severity.get(id).copied().unwrap_or(own.severity);
        Some(Own { severity, ..own })
    }

    /// The position of a rule in a report.
    pub(super) fn place(&self, id: &str) -> usize {
        TABLE.iter().position(|rule| rule.id == id).unwrap_or(TABLE.len())
    }

    /// Keys in a user's rules that no experiment has, each with the key probably meant.
    pub fn unknown(&self, subjects: &[Subject]) -> Vec<(String, Option<String>)> {
        let known: BTreeSet<&str> =
            subjects.iter().flat_map(|s| s.facts.keys().map(String::as_str)).collect();
        let own = |id: &str| self.own.contains_key(id);
        let labels = |label: &&str| !["task", "family", "size", "tokens"].contains(label);
        let mut spoken: BTreeSet<&str> = BTreeSet::new();
        for rule in self.invariants.iter().filter(|rule| own(&rule.id)) {
            spoken.extend(rule.of.keys());
            spoken.extend(rule.within.iter().map(String::as_str).filter(labels));
        }
        spoken.extend(self.ranges.iter().flat_map(|rule| rule.of.keys()));
        let built_in = |path: &&str| *path != CANON;
        let pairs = self.pairs.iter().flat_map(|pairs| pairs.treatment.iter().chain(&pairs.ignore));
        spoken.extend(pairs.map(String::as_str).filter(built_in));
        let below = |path: &str| {
            known.iter().any(|key| key.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')))
        };
        let missing = spoken.into_iter().filter(|path| !known.contains(path) && !below(path));
        let near = |path: &str| dsl::suggest(path, known.iter().copied()).map(str::to_owned);
        missing.map(|path| (path.to_owned(), near(path))).collect()
    }

    /// Differences from the built-in rules, one line each.
    pub fn changes(&self) -> Vec<String> {
        let off = self.off.iter().map(|id| format!("{id} is off"));
        let changed = self.severity.iter().filter_map(|(id, severity)| {
            let before = TABLE.iter().find(|rule| rule.id == id)?.severity;
            (before != *severity)
                .then(|| format!("{id} weighs as {}, not {}", severity.word(), before.word()))
        });
        let added = self.own.keys().map(|id| format!("{id} was added"));
        let keys =
            self.keys.iter().map(|(key, topic)| format!("`{key}` is about {}", topic.word()));
        off.chain(changed).chain(added).chain(keys).collect()
    }
}
