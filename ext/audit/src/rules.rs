//! The rules: a table of built-in ones, and those that a user adds.

use std::collections::{BTreeMap, BTreeSet};

use compiler::number::Ratio;
use lab::field::Topic;

use crate::keys::{CANON, measured_under, of_treatment};
use crate::quantity::Quantity;
use crate::subject::Subject;

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
    /// All severities, the worst first.
    pub const ALL: [Severity; 4] =
        [Severity::Error, Severity::Confound, Severity::Warning, Severity::Note];

    /// The word in reports and rules files.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Confound => "confound",
            Severity::Error => "error",
        }
    }

    /// The severity that this word means.
    pub fn parse(word: &str) -> Option<Severity> {
        Severity::ALL.into_iter().find(|severity| severity.word() == word)
    }

    /// Whether such a finding fails the audit.
    pub fn fails(self) -> bool {
        self >= Severity::Confound
    }
}

/// A built-in rule.
#[derive(Clone, Copy, Debug)]
pub struct BuiltInRule {
    /// A stable word, `kebab-case`.
    pub id: &'static str,
    /// Severity where the rules file does not change it.
    pub severity: Severity,
    /// What it checks, in one sentence.
    pub checks: &'static str,
    /// Why a finding matters.
    pub reason: &'static str,
    /// What to do about a finding.
    pub help: &'static str,
}

const fn rule(
    id: &'static str,
    severity: Severity,
    checks: &'static str,
    reason: &'static str,
    help: &'static str,
) -> BuiltInRule {
    BuiltInRule { id, severity, checks, reason, help }
}

/// In report order.
#[rustfmt::skip]
pub const TABLE: &[BuiltInRule] = &[
    rule("name-twice", Severity::Error,
        "Two experiments have the same name.",
        "A statement about one would be attributed to the other.",
        "give each a unique name"),
    rule("name-value", Severity::Error,
        "A number in the name (lr0.002, wd0.1, steps600) differs from the key's.",
        "Tables and curves are labelled by name.",
        "correct the name or the key"),
    rule("name-tokens", Severity::Error,
        "The tokens in the name (1T, 100B) are more than 2% off steps x tokens per step.",
        "The budget is part of every comparison, and people read it from the name.",
        "correct the name, the steps or the batch"),
    rule("name-canon", Severity::Error,
        "The name says Canon, but no slot or other slots are filled; or it says no Canon, but slots are filled; or slots are filled, and only this name does not say so.",
        "People tell the arms of a comparison by their names.",
        "correct the name or the slots"),
    rule("unknown-key", Severity::Confound,
        "Twins differ in a key or column that canonc does not know.",
        "Nobody knows whether the difference affects the result, so the pair is not clean.",
        "correct its name, or say what it is in a rules file: `[keys]`, then `\"my.flag\" = \"training\"` or `\"train.lr\" = \"optimizer.lr\"`"),
    rule("budget-ambiguous", Severity::Error,
        "Experiments with equal keys, but different tokens.",
        "Whoever runs the file again gets one of the two budgets, without knowing which.",
        "write the difference as a key: batch.tokens_per_step"),
    rule("devices-disagree", Severity::Error,
        "One file gives different numbers of devices, in comments or keys.",
        "The budget depends on the number, and a reader takes the first one.",
        "correct the wrong one"),
    rule("reported", Severity::Error,
        "A number that the table gives as derived (tokens_total, lr_x_wd_x_steps …) does not follow from its keys.",
        "One of the two is wrong, and readers see the derived one.",
        "recompute it from the keys"),
    rule("twin-training", Severity::Confound,
        "In addition to the treatment, twins differ in a key of the function, the loss or the update.",
        "The difference between the twins measures both changes together.",
        "run a twin with only one of the two changes, or declare both as a bundle"),
    rule("twin-data", Severity::Confound,
        "Twins differ in the data that they read.",
        "Other tokens, or another order, change the loss without any treatment.",
        "train both on the same data with the same seed"),
    rule("twin-budget", Severity::Confound,
        "Twins differ in steps, batch or tokens.",
        "More or larger steps change the loss without any treatment.",
        "give both the same budget"),
    rule("twin-numerics", Severity::Confound,
        "Twins differ in precision.",
        "Rounding can move a loss by more than a small treatment does.",
        "train both in the same precision"),
    rule("twin-definition", Severity::Confound,
        "Twins use one name for two definitions, and their graphs differ.",
        "The arms compute different functions, but names in tables and figures do not show it.",
        "use one definition in both, or rename one of them; `canonc diff` shows the lines"),
    rule("twin-kernel", Severity::Confound,
        "Twins differ in the kernels that compute the same mathematics.",
        "Kernels round differently, and an error in one of them would look like the treatment. `canonc diff` lists it as platform.",
        "run both with the same kernels, or show on one of them that the kernels agree"),
    rule("twin-measured", Severity::Confound,
        "Twins differ in how their weights are measured.",
        "Two different measurements do not compare two arms. `canonc diff` calls this a confound, too.",
        "measure both in the same way"),
    rule("lr-wd-steps", Severity::Confound,
        "Learning rate x weight decay x steps differs among runs of one task.",
        "It is the number of times that weight decay renews the weights; a run that differs in it mixes two questions.",
        "set weight_decay so that the product equals the others'"),
    rule("warmup-share", Severity::Confound,
        "The share of warmup steps differs within a task, family, size and budget.",
        "The schedule should be the same at every learning rate.",
        "set warmup in proportion to the steps"),
    rule("tokens-per-step", Severity::Confound,
        "The tokens per step differ within a task, family, size and budget.",
        "Another batch size changes the optimisation, even if everything else is equal.",
        "give all of them the same tokens per step"),
    rule("data-order", Severity::Confound,
        "With curves: a run's loss differences jitter over 5 times as much as its siblings', in most of the run.",
        "Runs that read the same batches share their noise; this one does not, so it read other batches.",
        "look for another seed, device count or loader in its launch; be careful when pairing it"),
    rule("log-rate", Severity::Confound,
        "With a log: a learning rate is not the one that the lock's schedule has at this step.",
        "The run was trained by another schedule than its lock says.",
        "name the lock that the run is of, or correct the trainer's schedule and train again"),
    rule("log-batch", Severity::Confound,
        "With a log: the tokens so far, or the sequences of a step, are not the lock's.",
        "Larger or smaller steps change the optimisation, and the budget counts their tokens.",
        "name the lock that the run is of, or correct the trainer's batch and train again"),
    rule("log-steps", Severity::Confound,
        "With a log: it goes on after the lock's last step, or was planned for another number of steps.",
        "The budget and the schedule follow from the number of steps.",
        "name the lock that the run is of, or give the trainer the lock's budget and train again"),
    rule("log-shifted", Severity::Warning,
        "With a log: all learning rates are the lock's of the next step, or all tokens so far are those of another step.",
        "Some programs log the next step's learning rate (transformers before 5), or count steps from 0; but a trainer whose schedule is a step ahead logs the same.",
        "look at the learning rate of the trainer's first update: it has to be the lock's of step 1"),
    rule("siblings", Severity::Warning,
        "Within a task, family, size and budget, all but a few agree in a key.",
        "Readers of a sweep over one thing assume that everything else is equal.",
        "make them agree, or leave the others out of the sweep"),
    rule("treatment-uniform", Severity::Warning,
        "Within a family, treated experiments differ in the treatment itself, or in a setting of it such as a slot's kernel.",
        "A mean over pairs would mix two treatments.",
        "report them separately"),
    rule("twin-evaluation", Severity::Warning,
        "Twins differ in how another trainer evaluates them: tasks, examples in the prompt, number formats.",
        "Weights do not depend on it, but scores do: a difference between two scores may come from the evaluations.",
        "evaluate both in the same way, or compare only scores that both measured in the same way"),
    rule("unfinished", Severity::Confound,
        "A table says that a run crashed, failed, was killed or still runs.",
        "Its results are those of a shorter run.",
        "finish it, or leave the pair out"),
    rule("missing-twin", Severity::Warning,
        "An experiment has no partner, in a set that has pairs.",
        "Means over pairs leave it out; best-of tables do not.",
        "add the partner, or leave it out of both"),
    rule("twin-unclear", Severity::Warning,
        "Names do not show which experiment is the twin, and several are equally similar.",
        "The differences shown are those from one of them.",
        "give twins names that differ only in the word for the arm"),
    rule("budget-in-comment", Severity::Warning,
        "The number of tokens follows from the keys only together with a number in a comment.",
        "No program reads comments: the file alone does not determine the run.",
        "write batch.tokens_per_step as a key; the number of devices is then only a hint"),
    rule("devices-unread", Severity::Warning,
        "A comment mentions GPUs, devices or nodes, but their number is not understood; or keys give the number of nodes or the devices per node, but not both.",
        "The budget may depend on it, and a guess could be wrong.",
        "write the number plainly (`# GPUs: 128`), or write batch.tokens_per_step as a key"),
    rule("log-short", Severity::Note,
        "With a log: it ends before the lock's last step.",
        "Its last values are those of a shorter run.",
        "log the run to its end before its last values are used"),
    rule("loss-spike", Severity::Note,
        "With curves: the loss deviates from its siblings by more than 0.02 and comes back.",
        "A spike near the end, or without recovery, determines the final value.",
        "look at the curve before using the last value"),
    rule("twin-revision", Severity::Note,
        "Judging by the keys in their dumps, twins come from two revisions of the code.",
        "No effect is known, but it is the kind of difference that nobody looks for.",
        "run both from the same revision, and record it"),
    rule("across-families", Severity::Note,
        "A key differs between families at the same size.",
        "Families that a table compares also differ in this.",
        "mention it next to the table"),
    rule("across-sizes", Severity::Note,
        "A key differs between sizes of one family, in addition to the keys that define the size.",
        "A trend over sizes is also a trend over this key.",
        "mention it next to the table"),
    rule("one-change", Severity::Note,
        "Two experiments differ in one key, which is not the treatment.",
        "Their difference measures the effect of this key.",
        "name them after this key"),
    rule("definition", Severity::Note,
        "Experiments use one name for different definitions, or one redefines a name of canonc that others use.",
        "The computation follows from the definition, not from its name.",
        "give different definitions different names"),
    rule("twin-bundle", Severity::Note,
        "Locks declare a treatment of several factors, or one with a size that compensates for it.",
        "Nothing else differs, but the difference between the twins cannot be attributed to one of them.",
        "add arms with one factor each"),
    rule("twin-cosmetic", Severity::Note,
        "Twins differ in how often something is measured or written, in names, or in what is logged.",
        "No loss, weight or score depends on it.",
        "nothing"),
];

/// Declares which experiments are twins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pairs {
    /// The intended difference: these keys and the keys below them.
    pub treatment: Vec<String>,
    /// Keys that may also differ.
    pub ignore: Vec<String>,
    /// The declaration of a lock, whose verdict proves that its arms differ in nothing else that changes a result.
    pub locked: Option<Vec<String>>,
}

impl Pairs {
    /// The treatment as its author declared it.
    pub(crate) fn named(&self) -> String {
        self.locked.as_ref().unwrap_or(&self.treatment).join(" and ")
    }
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

/// What a rule, built in or of a user, says about its findings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleDetails {
    /// Severity of its findings.
    pub severity: Severity,
    /// Why a finding matters.
    pub reason: String,
    /// What to do about a finding.
    pub help: String,
}

/// All rules of an audit.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// Ids of rules that are off.
    pub off: BTreeSet<String>,
    /// Severities that differ from the built-in ones, by id.
    pub severity: BTreeMap<String, Severity>,
    /// Which experiments make a pair.
    pub pairs: Vec<Pairs>,
    /// Quantities that have to be equal.
    pub invariants: Vec<Invariant>,
    /// Quantities with bounds.
    pub ranges: Vec<Range>,
    /// The user's own rules by id.
    pub own: BTreeMap<String, RuleDetails>,
    /// Topics of user-defined keys.
    pub keys: BTreeMap<String, Topic>,
    /// Our names for user-defined keys: `train.lr` is `optimizer.lr`.
    pub is: BTreeMap<String, String>,
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
            pairs: vec![Pairs {
                treatment: vec![CANON.to_owned()],
                ignore: Vec::new(),
                locked: None,
            }],
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
            is: BTreeMap::new(),
        }
    }
}

impl Rules {
    /// A rule's description and severity; `None` if it is off or unknown.
    pub fn get(&self, id: &str) -> Option<RuleDetails> {
        if self.off.contains(id) {
            return None;
        }
        let described = self.own.get(id).cloned().or_else(|| {
            let rule = TABLE.iter().find(|rule| rule.id == id)?;
            let BuiltInRule { id: _, severity, checks: _, reason, help } = *rule;
            Some(RuleDetails { severity, reason: reason.to_owned(), help: help.to_owned() })
        })?;
        let severity = self.severity.get(id).copied().unwrap_or(described.severity);
        Some(RuleDetails { severity, ..described })
    }

    /// The position of a rule in a report.
    pub(crate) fn position(&self, id: &str) -> usize {
        TABLE.iter().position(|rule| rule.id == id).unwrap_or(TABLE.len())
    }

    /// Puts our names for treatments that a rules file names as their author wrote them.
    pub fn resolve(&mut self, subjects: &[Subject]) {
        let ours = |key: &str| {
            let ours_in = |subject: &Subject| {
                let mut written = subject.written_as.iter();
                written.find(|(_, name)| *name == key).map(|(path, _)| path.clone())
            };
            subjects.iter().find_map(ours_in)
        };
        let known = |key: &str| subjects.iter().any(|subject| subject.facts.contains_key(key));
        for pairs in &mut self.pairs {
            for key in pairs.treatment.iter_mut().chain(&mut pairs.ignore) {
                if let Some(path) = ours(key).filter(|_| !known(key)) {
                    *key = path;
                }
            }
        }
    }

    /// Keys in a user's rules that no experiment has, each with the key probably meant.
    pub fn unknown(&self, subjects: &[Subject]) -> Vec<(String, Option<String>)> {
        let known: BTreeSet<&str> =
            subjects.iter().flat_map(|s| s.facts.keys().map(String::as_str)).collect();
        let added = |id: &str| self.own.contains_key(id);
        let labels = |label: &&str| !["task", "family", "size", "tokens"].contains(label);
        let mut named: BTreeSet<&str> = BTreeSet::new();
        for rule in self.invariants.iter().filter(|rule| added(&rule.id)) {
            named.extend(rule.of.keys());
            named.extend(rule.within.iter().map(String::as_str).filter(labels));
        }
        named.extend(self.ranges.iter().flat_map(|rule| rule.of.keys()));
        let foreign = subjects.iter().flat_map(|subject| subject.written_as.values());
        let results = subjects.iter().flat_map(|subject| &subject.results);
        let known: BTreeSet<&str> =
            known.into_iter().chain(foreign.chain(results).map(String::as_str)).collect();
        named.extend(self.keys.keys().chain(self.is.keys()).map(String::as_str));
        let built_in = |path: &&str| *path != CANON;
        let pairs = self.pairs.iter().flat_map(|pairs| pairs.treatment.iter().chain(&pairs.ignore));
        named.extend(pairs.map(String::as_str).filter(built_in));
        let below = |path: &str| {
            known.iter().any(|key| key.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')))
        };
        let missing = named.into_iter().filter(|path| !known.contains(path) && !below(path));
        let meant = |path: &str| dsl::suggest(path, known.iter().copied()).map(str::to_owned);
        missing.map(|path| (path.to_owned(), meant(path))).collect()
    }

    /// A treatment of a user's rules that covers something measured, and what it covers.
    pub fn measured(&self, subjects: &[Subject]) -> Option<(String, String)> {
        let keys = |subject: &'_ Subject| -> Vec<String> {
            let keys = subject.facts.keys();
            keys.filter(|key| subject.topic(key) == Topic::Evaluation).cloned().collect()
        };
        let evaluations: BTreeSet<String> = subjects.iter().flat_map(keys).collect();
        let entries = self.pairs.iter().flat_map(|pairs| &pairs.treatment);
        let covers = |entry: &String| {
            let one = std::slice::from_ref(entry);
            let of_set = || evaluations.iter().find(|path| of_treatment(one, path)).cloned();
            let path = measured_under(entry).map(str::to_owned).or_else(of_set)?;
            Some((entry.clone(), path))
        };
        entries.filter_map(covers).next()
    }

    /// Differences from the built-in rules, one line each.
    pub fn changes(&self) -> Vec<String> {
        let off = self.off.iter().map(|id| format!("{id} is off"));
        let changed = self.severity.iter().filter_map(|(id, severity)| {
            let before = TABLE.iter().find(|rule| rule.id == id)?.severity;
            (before != *severity)
                .then(|| format!("{id} has severity {}, not {}", severity.word(), before.word()))
        });
        let added = self.own.keys().map(|id| format!("{id} was added"));
        let keys =
            self.keys.iter().map(|(key, topic)| format!("`{key}` is about {}", topic.word()));
        let is = self.is.iter().map(|(key, path)| format!("`{key}` is {path}"));
        off.chain(changed).chain(added).chain(keys).chain(is).collect()
    }
}
