//! Compares twins: everything except the treatment must agree.
//!
//! Effective values are compared, so writing out a default makes no difference.

use std::collections::{BTreeMap, BTreeSet};

use lab::field::{self, Class, Topic};

use crate::claims::CanonClaim;
use crate::experiment::Origin;
use crate::finding::{Findings, Occurrence, Scope};
use crate::keys::{
    self, BARE, BARE_GRAPH, BARE_MANIFEST, CANON, DEVICES, NODE_DEVICES, NODE_TASKS, NODES,
    ROPE_DIMS, ROPE_SHARE, SLOT_PLACES, TASKS, TOKENS_PER_STEP, of_treatment,
};
use crate::pairs::{Pair, treatment_of};
use crate::rules::Pairs;
use crate::subject::Subject;
use crate::value::KeyValue;
use crate::{repeated, unknown, words};

/// The rule and kind for differences in a topic.
fn rule_of(topic: Topic) -> Option<(&'static str, Scope)> {
    match topic {
        Topic::Training => Some(("twin-training", Scope::Pair)),
        Topic::Data => Some(("twin-data", Scope::Pair)),
        Topic::Budget => Some(("twin-budget", Scope::Pair)),
        Topic::Numerics => Some(("twin-numerics", Scope::Pair)),
        Topic::Kernel => Some(("twin-kernel", Scope::Pair)),
        Topic::Revision => Some(("twin-revision", Scope::Pair)),
        Topic::Evaluation => Some(("twin-evaluation", Scope::Set)),
        Topic::Cadence | Topic::Setup => Some(("twin-cosmetic", Scope::Set)),
        Topic::Reported => None,
    }
}

/// The topic of a key for two experiments. A key that neither of them uses has no effect.
fn topic_of(a: &Subject, b: &Subject, path: &str) -> Topic {
    // A vocabulary's topic is known where the key is written.
    let writes = if a.own.contains_key(path) { a } else { b };
    let topic = writes.topic(path);
    let only = keys::row(path).and_then(|row| row.only);
    let idle = only.is_some_and(|(on, words)| {
        // Another trainer's word may mean any of ours.
        let is_our_word = |word: &str| keys::row(on).is_some_and(|row| row.kind.has_word(word));
        [a, b].iter().all(|subject| {
            let word = subject.value(on).map(KeyValue::to_string);
            word.is_some_and(|word| is_our_word(&word) && !words.contains(&word.as_str()))
        })
    });
    let locked = [a, b].iter().all(|subject| subject.origin == Origin::Lock);
    let carried = keys::row(path).is_some_and(|row| row.class == Class::Carried);
    match path {
        // canonc's locks: ranks, sharding and recomputation change no bit.
        _ if locked && field::find(path).is_some_and(|def| def.exact) => Topic::Setup,
        // If the batch is a key, the number of devices only affects how the work is divided.
        DEVICES if a.counts_its_step() && b.counts_its_step() => Topic::Kernel,
        NODES | NODE_DEVICES | NODE_TASKS | TASKS if a.counts_its_step() && b.counts_its_step() => {
            Topic::Setup
        }
        // The product of these keys is compared.
        NODES | NODE_DEVICES | NODE_TASKS | TASKS
            if a.counts_its_launch() && b.counts_its_launch() =>
        {
            Topic::Setup
        }
        // Every run has a folder of its own: nothing of another run lies there.
        _ if is_run_folder(path) && [a, b].iter().all(|subject| has_own_folder(subject, path)) => {
            Topic::Setup
        }
        _ if idle => Topic::Setup,
        // Only another trainer reads it, and the comparison declares that canonc runs both.
        _ if a.canonc_runs.is_some() && a.canonc_runs == b.canonc_runs && carried => Topic::Setup,
        _ => topic,
    }
}

/// Whether a key gives the folder that a trainer writes to and resumes from.
fn is_run_folder(path: &str) -> bool {
    ["dump_dir", "checkpoint.path", "job.dump_folder"].contains(&path)
}

/// Whether a configuration's folder is named after the run.
fn has_own_folder(subject: &Subject, path: &str) -> bool {
    let words = |text: &str| -> BTreeSet<String> {
        let parts = text.split(|c: char| !c.is_ascii_alphanumeric());
        parts.filter(|part| !part.is_empty()).map(str::to_lowercase).collect()
    };
    let name = words(&subject.name);
    let folder = subject.value(path).map(KeyValue::to_string).unwrap_or_default();
    subject.origin == Origin::Configuration
        && folder.split('/').any(|part| !name.is_empty() && name.is_subset(&words(part)))
}

pub(crate) fn twins(
    subjects: &[Subject],
    pairs: &[Pair],
    declared: &Pairs,
    findings: &mut Findings,
) {
    for pair in pairs {
        let (Some(a), Some(b)) = (subjects.get(pair.without), subjects.get(pair.with)) else {
            continue;
        };
        let keys: BTreeSet<&str> = a.compared().chain(b.compared()).collect();
        let treatment = treated_alike(a, b, declared);
        let differs = |path: &&str| {
            (!of_treatment(&declared.treatment, path) || treatment.contains(path))
                && !of_treatment(&declared.ignore, path)
                && !a.agrees(b, path)
        };
        let keys: Vec<&str> = keys.into_iter().filter(differs).collect();
        let arch = keys.iter().any(|path| path.starts_with("arch.") && !BARE.contains(path));
        let digests = BARE.iter().copied().filter(|path| keys.contains(path));
        // Skip differences that a key or a narrower digest shows.
        let covered: Vec<&str> = digests.skip(usize::from(!arch)).collect();
        let computes = keys.iter().any(|path| BARE.contains(path));
        let listed = |path: &&str| !covered.contains(path) && !repeated::follows(path);
        let keys: Vec<&str> = keys.into_iter().filter(listed).collect();
        let one_change = one_change(a, b, &keys, declared);
        for path in keys {
            let unknown = [a, b].iter().any(|subject| subject.unknown.contains(path));
            if unknown && one_change != Some(path) {
                unknown::difference(a, b, path, findings);
                continue;
            }
            let topic = topic_of(a, b, path);
            report_difference(a, b, path, topic, one_change == Some(path), declared, findings);
        }
        compare_definitions(a, b, computes, declared, findings);
        compare_columns(a, b, declared, findings);
    }
}

/// The treatment's keys, where both arms are treated or neither is: how it differs is then a difference like any
/// other. Settings of a treatment that only one arm has come with it.
fn treated_alike<'s>(a: &'s Subject, b: &'s Subject, declared: &Pairs) -> BTreeSet<&'s str> {
    let treated = |subject: &Subject| subject.treated(&declared.treatment);
    if declared.locked.is_some() || treated(a) != treated(b) {
        return BTreeSet::new();
    }
    let same_slots = treatment_of(a, &declared.treatment) == treatment_of(b, &declared.treatment);
    let both_have = |path: &str| [a, b].iter().all(|subject| subject.value(path).is_some());
    let root = |path: &str| declared.treatment.iter().any(|entry| entry == path);
    let off = |path: &str| [a, b].iter().all(|s| s.value(path).is_none_or(KeyValue::is_off));
    let keys = a.compared().chain(b.compared());
    keys.filter(|path| of_treatment(&declared.treatment, path) && !off(path))
        .filter(|path| root(path) || same_slots || both_have(path))
        .collect()
}

/// The key of two experiments that differ in one thing, and not in the treatment. That key is the comparison,
/// not a confound.
fn one_change<'k>(a: &Subject, b: &Subject, keys: &[&'k str], declared: &Pairs) -> Option<&'k str> {
    // Names such as `A` and `ACanon` claim a treatment that the keys do not show.
    let claims = |subject: &Subject| -> Vec<bool> {
        declared.treatment.iter().map(|path| claims(subject, path)).collect()
    };
    let treated = |subject: &Subject| subject.treated(&declared.treatment);
    if declared.locked.is_some() || treated(a) != treated(b) || claims(a) != claims(b) {
        return None;
    }
    let decides = |path: &&&str| {
        let topic = rule_of(topic_of(a, b, path));
        topic.is_some_and(|(_, kind)| kind == Scope::Pair)
    };
    match keys.iter().filter(decides).collect::<Vec<_>>().as_slice() {
        [only] => Some(**only),
        [] | [_, _, ..] => None,
    }
}

/// Whether a name claims a treatment, as separate words: `canonical` and `NoCanon` do not claim Canon layers.
fn claims(subject: &Subject, path: &str) -> bool {
    if path == CANON {
        return subject.claims.canon == CanonClaim::Filled;
    }
    let lower = |name: &str| -> Vec<String> {
        words::segments(name).into_iter().flatten().map(|token| token.lower).collect()
    };
    let (name, word) = (lower(&subject.name), lower(path.rsplit('.').next().unwrap_or(path)));
    !word.is_empty() && name.windows(word.len()).any(|part| part == word)
}

/// Names of definitions that differ between the arms, or from canonc's.
/// If no digest differs, the definitions compute the same here.
fn compare_definitions(
    a: &Subject,
    b: &Subject,
    computes: bool,
    declared: &Pairs,
    findings: &mut Findings,
) {
    let treatment = declared.named();
    let names: BTreeSet<&String> = a.definitions.keys().chain(b.definitions.keys()).collect();
    for name in names {
        let redefined = a.redefined.contains(name) || b.redefined.contains(name);
        let none = "no own definition";
        let (confounds, message) = match (a.definitions.get(name), b.definitions.get(name)) {
            (Some(one), Some(other)) if one == other && !redefined => continue,
            (Some(one), Some(other)) if one == other => (false, format!("both use {one}")),
            (Some(one), Some(other)) => {
                (computes, format!("{one} without {treatment}, {other} with it"))
            }
            (Some(one), None) if redefined => {
                (computes, format!("{one} without {treatment}, {none} with it"))
            }
            (None, Some(other)) if redefined => {
                (computes, format!("{none} without {treatment}, {other} with it"))
            }
            (_, _) => continue,
        };
        let (rule, kind) =
            if confounds { ("twin-definition", Scope::Pair) } else { ("definition", Scope::Set) };
        let sources = format!("{} | {}", a.source, b.source);
        let pair = Occurrence::between(&a.name, &b.name, sources);
        findings.add(rule, kind, &format!("definition {name}"), message, pair);
    }
}

/// Names that mean different definitions in the set, where no pair shows it.
pub(crate) fn shared_names(subjects: &[Subject], pairs: &[Pair], findings: &mut Findings) {
    let locks: Vec<(usize, &Subject)> =
        subjects.iter().enumerate().filter(|(_, subject)| subject.origin == Origin::Lock).collect();
    let names: BTreeSet<&String> = locks.iter().flat_map(|(_, s)| s.definitions.keys()).collect();
    for name in names {
        let redefined = locks.iter().any(|(_, subject)| subject.redefined.contains(name));
        let meaning = |subject: &Subject| match subject.definitions.get(name) {
            Some(definition) => Some(definition.clone()),
            None => redefined.then(|| "no own definition".to_owned()),
        };
        let mut all: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, subject) in &locks {
            if let Some(meaning) = meaning(subject) {
                all.entry(meaning).or_default().push(*at);
            }
        }
        let paired = |one: usize, other: usize| {
            pairs.iter().any(|p| [(p.without, p.with), (p.with, p.without)].contains(&(one, other)))
        };
        let shown = all.values().all(|group| {
            let others = || all.values().filter(|other| *other != group).flatten();
            group.iter().all(|one| others().any(|other| paired(*one, *other)))
        });
        if all.len() < 2 || shown {
            continue;
        }
        for (meaning, at) in &all {
            for subject in at.iter().filter_map(|at| subjects.get(*at)) {
                let lock = Occurrence::in_experiment(&subject.name, meaning.as_str());
                let message = format!("{} definitions have this name", all.len());
                findings.add(
                    "definition",
                    Scope::Set,
                    &format!("definition {name}"),
                    message,
                    lock,
                );
            }
        }
    }
}

/// Columns that repeat a key, if the key itself is unknown.
fn compare_columns(a: &Subject, b: &Subject, declared: &Pairs, findings: &mut Findings) {
    let reported = |subject: &'_ Subject| -> BTreeSet<String> {
        let given = |path: &&String| path.starts_with("reported.") || repeated::follows(path);
        let written = subject.facts.iter().filter(|(_, fact)| fact.written);
        written.map(|(path, _)| path).filter(given).cloned().collect()
    };
    for path in reported(a).union(&reported(b)) {
        if a.value(path) == b.value(path) {
            continue;
        }
        let key = repeated::stands_for(path, a, b).filter(|key| {
            !of_treatment(&declared.treatment, key) && !of_treatment(&declared.ignore, key)
        });
        if let Some(key) = key {
            report_difference(a, b, path, keys::class(key), false, declared, findings);
        }
    }
}

fn report_difference(
    a: &Subject,
    b: &Subject,
    path: &str,
    topic: Topic,
    one_change: bool,
    declared: &Pairs,
    findings: &mut Findings,
) {
    let known = match keys::is_measured(path) {
        true => Some(("twin-measured", Scope::Pair)),
        false if one_change => Some(("one-change", Scope::Set)),
        false => rule_of(topic),
    };
    let Some((rule, kind)) = known else { return };
    let (key, values) = match path {
        ROPE_DIMS if a.facts.contains_key(ROPE_SHARE) && b.facts.contains_key(ROPE_SHARE) => {
            (ROPE_SHARE, Some(both_values(a, b, path)))
        }
        // Follows from another key, which determines the number of tokens.
        _ if topic == Topic::Budget && a.value(TOKENS_PER_STEP) != b.value(TOKENS_PER_STEP) => {
            let (one, two) = (a.shown(TOKENS_PER_STEP), b.shown(TOKENS_PER_STEP));
            (path, Some(format!("tokens per step {one} | {two}")))
        }
        _ => (path, None),
    };
    let treatment = declared.named();
    let message = match path {
        BARE_GRAPH => format!("the graphs differ although no key except {treatment} does"),
        BARE_MANIFEST => format!(
            "a parameter's path, shape or init rule differs although no key except {treatment} does"
        ),
        SLOT_PLACES => format!("the slots are in different places, even without {treatment}"),
        _ if list_difference(a, b, path).is_some() => {
            list_difference(a, b, path).unwrap_or_default()
        }
        _ if declared.locked.is_some() => {
            format!("{} without {treatment}, {} with it", a.shown(key), b.shown(key))
        }
        // Nothing says what is compared.
        _ if ![a, b].iter().any(|subject| writes_treatment(subject, &declared.treatment)) => {
            format!("{} | {}", a.shown(key), b.shown(key))
        }
        _ if treatment_of(a, &declared.treatment) == treatment_of(b, &declared.treatment) => {
            format!("{} | {}, although {treatment} is the same", a.shown(key), b.shown(key))
        }
        _ if a.treated(&declared.treatment) == b.treated(&declared.treatment) => {
            format!("{} | {}", a.shown(key), b.shown(key))
        }
        _ => format!("{} without {treatment}, {} with it", a.shown(key), b.shown(key)),
    };
    let observation = values.unwrap_or_else(|| match kind {
        Scope::Set if !one_change => String::new(),
        Scope::Set | Scope::Pair | Scope::Run => both_values(a, b, path),
    });
    findings.add(rule, kind, key, message, Occurrence::between(&a.name, &b.name, observation));
}

/// Whether a subject has a key of the treatment that its file holds.
fn writes_treatment(subject: &Subject, treatment: &[String]) -> bool {
    subject.facts.iter().any(|(path, fact)| fact.written && of_treatment(treatment, path))
}

/// For two lists, the words that only one of them has.
fn list_difference(a: &Subject, b: &Subject, path: &str) -> Option<String> {
    let (Some(KeyValue::List(one)), Some(KeyValue::List(two))) = (a.value(path), b.value(path))
    else {
        return None;
    };
    let only = |these: &[KeyValue], those: &[KeyValue], with: &str| {
        let words: Vec<String> =
            these.iter().filter(|w| !those.contains(w)).map(KeyValue::to_string).collect();
        (!words.is_empty()).then(|| format!("{} only {with}", words.join(", ")))
    };
    let parts = [only(one, two, "without the treatment"), only(two, one, "with it")];
    Some(parts.into_iter().flatten().collect::<Vec<_>>().join("; "))
}

/// The values of both at a key, and whether each was written.
fn both_values(a: &Subject, b: &Subject, path: &str) -> String {
    let shown = |subject: &Subject| {
        let value = subject.shown(path);
        match subject.facts.get(path) {
            Some(fact) if !fact.written => format!("absent, which means {value}"),
            Some(_) | None => value,
        }
    };
    let name = a.written_as.get(path).or_else(|| b.written_as.get(path));
    format!("{} {} | {}", name.map_or(path, String::as_str), shown(a), shown(b))
}

/// Checks that treated experiments of a family have one treatment: its value, and every setting below it.
pub(crate) fn uniform(
    subjects: &[Subject],
    pairs: &[Pair],
    lonely: &[usize],
    declared: &Pairs,
    findings: &mut Findings,
) {
    let treated = pairs.iter().map(|pair| pair.with).chain(lonely.iter().copied());
    let treated: BTreeSet<usize> = treated.collect();
    let mut families: BTreeMap<&str, Vec<&Subject>> = BTreeMap::new();
    for subject in treated.into_iter().filter_map(|at| subjects.get(at)) {
        if subject.treated(&declared.treatment) {
            families.entry(&subject.family).or_default().push(subject);
        }
    }
    for (family, members) in families {
        let mut by_value: BTreeMap<String, Vec<&Subject>> = BTreeMap::new();
        for subject in &members {
            let value = treatment_of(subject, &declared.treatment);
            by_value.entry(value).or_default().push(subject);
        }
        report_outliers(&declared.treatment.join(", "), family, &by_value, findings);
        let settings: BTreeSet<&str> = members.iter().flat_map(|s| settings(s, declared)).collect();
        for path in settings {
            for (group, members) in comparable_groups(path, family, &members, &by_value) {
                let mut values: BTreeMap<String, Vec<&Subject>> = BTreeMap::new();
                for subject in members {
                    values.entry(subject.shown(path)).or_default().push(subject);
                }
                report_outliers(path, &group, &values, findings);
            }
        }
    }
}

/// Keys below a treatment: the fill of a slot, a field of a mixer.
fn settings<'a>(subject: &'a Subject, declared: &Pairs) -> impl Iterator<Item = &'a str> {
    let treatment = &declared.treatment;
    let below = |path: &&str| of_treatment(treatment, path) && !treatment.iter().any(|t| t == path);
    let open = |path: &&str| !of_treatment(&declared.ignore, path);
    subject.compared().filter(below).filter(open).collect::<Vec<_>>().into_iter()
}

/// Groups treated experiments that must agree in a setting: those that have it, and those with the same
/// treatment value as one that has it. Fills of slots must agree at every size; other treatments (a
/// mixer's heads) only within a size.
fn comparable_groups<'a>(
    path: &str,
    family: &str,
    members: &[&'a Subject],
    by_value: &BTreeMap<String, Vec<&'a Subject>>,
) -> BTreeMap<String, Vec<&'a Subject>> {
    let has = |subject: &&Subject| subject.value(path).is_some();
    let alike = |subject: &Subject| {
        let same = |group: &&Vec<&Subject>| group.iter().any(|s| s.name == subject.name);
        by_value.values().filter(same).flatten().any(has)
    };
    let mut groups: BTreeMap<String, Vec<&Subject>> = BTreeMap::new();
    for subject in members.iter().copied().filter(|s| alike(s)) {
        let group = match path.starts_with(CANON) {
            true => family.to_owned(),
            false => format!("{family} {}", subject.size),
        };
        groups.entry(group).or_default().push(subject);
    }
    groups
}

/// Reports those that differ from the majority. Without a majority, reports all, each with the others.
fn report_outliers(
    key: &str,
    group: &str,
    values: &BTreeMap<String, Vec<&Subject>>,
    findings: &mut Findings,
) {
    if values.len() < 2 {
        return;
    }
    let all: usize = values.values().map(Vec::len).sum();
    let usual = values.iter().find(|(_, members)| members.len() * 2 > all);
    for (value, members) in
        values.iter().filter(|(value, _)| usual.is_none_or(|(u, _)| u != *value))
    {
        let others = match usual {
            Some((usual, most)) => format!("{} of {all} of {group} have {usual}", most.len()),
            None => {
                let others = values.iter().filter(|(other, _)| *other != value);
                let shown = |(other, members): (&String, &Vec<&Subject>)| {
                    format!("{} of {all} of {group} have {other}", members.len())
                };
                others.map(shown).collect::<Vec<_>>().join(", ")
            }
        };
        for subject in members {
            let message = format!("{value}, but {others}");
            let arm = Occurrence::in_experiment(&subject.name, "");
            findings.add("treatment-uniform", Scope::Set, key, message, arm);
        }
    }
}
