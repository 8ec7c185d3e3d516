//! Pairs experiments as twins.
//!
//! Names that differ only in arm words are matched first, then contents, so that neither a wrong name nor a wrong key hides
//! a pair. Extra differences never break a pair: a further confound is a further finding. Every experiment has at most one
//! partner for each treatment.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use lab::field::Topic;

use crate::experiment::Origin;
use crate::finding::{Findings, Occurrence, Scope};
use crate::keys::{BARE, BARE_GRAPH, CANON, of_treatment};
use crate::rules::Pairs;
use crate::subject::Subject;
use crate::value::KeyValue;

/// Twins, as indices in the set: without and with the treatment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pair {
    /// Index of the experiment without the treatment.
    pub without: usize,
    /// Index of the experiment with the treatment.
    pub with: usize,
}

/// How many candidates a message lists.
const LISTED: usize = 4;

/// The treatment's values as text.
pub(crate) fn treatment_of(subject: &Subject, treatment: &[String]) -> String {
    let values: Vec<String> = treatment.iter().map(|path| subject.shown(path)).collect();
    values.join(" ")
}

/// The result of pairing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Partners {
    /// In the order of the set.
    pub pairs: Vec<Pair>,
    /// Experiments without a partner, each with the nearest experiment that has one.
    pub lonely: Vec<(usize, Option<usize>)>,
    /// Pairs chosen by contents, with equally near alternatives: without, with the treatment.
    pub unclear: Vec<(Pair, Vec<usize>)>,
}

/// The keys that affect the result and vary over the set, without the treatment. Each experiment has a number per key;
/// equal numbers mean equal values.
struct Contents<'a> {
    keys: Vec<&'a str>,
    rows: Vec<Vec<u32>>,
}

impl<'a> Contents<'a> {
    fn new(subjects: &'a [Subject], declared: &Pairs) -> Contents<'a> {
        let compared = |subject: &Subject, path: &str| {
            subject.topic(path).decides()
                // Differences in parameters or slots also show in the graph: count one.
                && (path == BARE_GRAPH || !BARE.contains(&path))
                && !of_treatment(&declared.treatment, path)
                && !of_treatment(&declared.ignore, path)
        };
        let mut decides: BTreeMap<&str, bool> = BTreeMap::new();
        let mut columns: BTreeMap<&str, Vec<(usize, &KeyValue)>> = BTreeMap::new();
        for (at, subject) in subjects.iter().enumerate() {
            for path in subject.compared() {
                let decides = *decides.entry(path).or_insert_with(|| compared(subject, path));
                if let Some(value) = subject.value(path).filter(|_| decides) {
                    columns.entry(path).or_default().push((at, value));
                }
            }
        }
        let mut contents = Contents { keys: Vec::new(), rows: vec![Vec::new(); subjects.len()] };
        for (path, cells) in columns {
            // An absent value is 0.
            let mut numbers: BTreeMap<String, u32> = BTreeMap::new();
            let mut column = vec![0; subjects.len()];
            for (at, value) in cells {
                let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX - 1) + 1;
                let number = *numbers.entry(typed(value)).or_insert(next);
                if let Some(cell) = column.get_mut(at) {
                    *cell = number;
                }
            }
            if column.windows(2).any(|two| matches!(two, [a, b] if a != b)) {
                contents.keys.push(path);
                for (row, cell) in contents.rows.iter_mut().zip(column) {
                    row.push(cell);
                }
            }
        }
        contents
    }

    /// The number of keys in which two experiments differ.
    fn distance(&self, a: usize, b: usize) -> usize {
        let (Some(a), Some(b)) = (self.rows.get(a), self.rows.get(b)) else { return usize::MAX };
        a.iter().zip(b).filter(|(a, b)| a != b).count()
    }

    /// Keys in which two experiments differ.
    fn differing(&self, a: usize, b: usize) -> Vec<&'a str> {
        let (Some(a), Some(b)) = (self.rows.get(a), self.rows.get(b)) else {
            return Vec::new();
        };
        let cells = self.keys.iter().zip(a.iter().zip(b));
        cells.filter(|(_, (a, b))| a != b).map(|(key, _)| *key).collect()
    }
}

/// A value as text with its type: the text `1` differs from the number 1.
fn typed(value: &KeyValue) -> String {
    let kind = match value {
        KeyValue::Number(_) => 'n',
        KeyValue::Bool(_) => 'b',
        KeyValue::Text(_) => 't',
        KeyValue::List(_) => 'l',
    };
    format!("{kind}{value}")
}

/// Finds pairs and experiments without a partner. If the set has no pair, none is reported as lacking one.
/// Experiments that a lock pairs are left out.
pub(crate) fn partners(
    subjects: &[Subject],
    declared: &Pairs,
    locked: &BTreeSet<usize>,
    is_first: bool,
) -> Partners {
    let treated = |at: &usize| subjects.get(*at).is_some_and(|s| s.treated(&declared.treatment));
    let open = (0..subjects.len()).filter(|at| !locked.contains(at));
    let (with, without): (Vec<usize>, Vec<usize>) = open.partition(treated);
    let contents = Contents::new(subjects, declared);
    let mut partners = Partners::default();
    let mut open: BTreeSet<usize> = with.iter().copied().collect();
    let mut free: BTreeSet<usize> = without.iter().copied().collect();
    pair_by_name(subjects, declared, (&with, &without), &contents, &mut partners.pairs);
    for pair in &partners.pairs {
        open.remove(&pair.with);
        free.remove(&pair.without);
    }
    pair_equal(&contents, &mut open, &mut free, &mut partners.pairs);
    pair_nearest(subjects, &contents, &mut open, &mut free, &mut partners);
    if let ([_, _], [], true, true) =
        (subjects, partners.pairs.as_slice(), locked.is_empty(), is_first)
    {
        partners.pairs.extend(only_two(subjects, declared, &contents));
    }
    partners.pairs.sort_unstable();
    partners.lonely = lonely(subjects, &contents, (&with, &without), &partners.pairs);
    partners
}

/// A set of exactly two is compared even if neither or both are treated: whoever names two files asks how they differ,
/// even if only in the treatment itself. If they are equal, or differ only in seeds, they do not form a pair.
fn only_two(subjects: &[Subject], declared: &Pairs, contents: &Contents<'_>) -> Option<Pair> {
    let [a, b] = subjects else { return None };
    // Whoever names two locks of unrelated experiments does not ask how they differ.
    let locks = [a, b].iter().all(|subject| subject.origin == Origin::Lock);
    if locks
        && words(a).is_disjoint(&words(b))
        && !DataKeys::new(a).may_be_shared(&DataKeys::new(b))
    {
        return None;
    }
    let repeats = contents.differing(0, 1).iter().all(|path| path.starts_with("seeds."));
    let mut treatment =
        a.compared().chain(b.compared()).filter(|path| of_treatment(&declared.treatment, path));
    let off = |path: &str| [a, b].iter().all(|s| s.value(path).is_none_or(KeyValue::is_off));
    let differs = treatment.any(|path| a.value(path) != b.value(path) && !off(path));
    (!repeats || differs).then_some(Pair { without: 0, with: 1 })
}

/// Pairs by name. A base may be paired with arms of several treatments, but only by name.
fn pair_by_name(
    subjects: &[Subject],
    declared: &Pairs,
    (with, without): (&[usize], &[usize]),
    contents: &Contents<'_>,
    pairs: &mut Vec<Pair>,
) {
    let mut bases: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for at in without {
        if let Some(subject) = subjects.get(*at) {
            bases.entry(&subject.claims.stem).or_default().push(*at);
        }
    }
    let mut arms: BTreeMap<(String, &str), Vec<usize>> = BTreeMap::new();
    for at in with {
        if let Some(subject) = subjects.get(*at) {
            let value = treatment_of(subject, &declared.treatment);
            arms.entry((value, &subject.claims.stem)).or_default().push(*at);
        }
    }
    for ((_, stem), arms) in arms {
        let Some(bases) = bases.get(stem) else { continue };
        let mut candidates = Vec::new();
        for with in &arms {
            let apart = |without: &usize| (contents.distance(*without, *with), *without, *with);
            candidates.extend(bases.iter().map(apart));
        }
        candidates.sort_unstable();
        let (mut used, mut served) = (BTreeSet::new(), BTreeSet::new());
        for (_, without, with) in candidates {
            if !served.contains(&with) && !used.contains(&without) {
                served.insert(with);
                used.insert(without);
                pairs.push(Pair { without, with });
            }
        }
    }
}

/// Pairs of equal contents, in the order of the set.
fn pair_equal(
    contents: &Contents<'_>,
    open: &mut BTreeSet<usize>,
    free: &mut BTreeSet<usize>,
    pairs: &mut Vec<Pair>,
) {
    let mut bases: BTreeMap<&[u32], Vec<usize>> = BTreeMap::new();
    for at in free.iter().rev() {
        if let Some(row) = contents.rows.get(*at) {
            bases.entry(row).or_default().push(*at);
        }
    }
    for with in open.clone() {
        let Some(row) = contents.rows.get(with) else { continue };
        if let Some(without) = bases.get_mut(row.as_slice()).and_then(Vec::pop) {
            open.remove(&with);
            free.remove(&without);
            pairs.push(Pair { without, with });
        }
    }
}

/// Distance of two experiments: shared words of names, differing keys, distance in the set; then their
/// indices without and with the treatment.
type Candidate = ((Reverse<usize>, usize, usize), usize, usize);

/// The words of a name, without those for arms.
fn words(subject: &Subject) -> BTreeSet<&str> {
    subject.claims.stem.split('-').filter(|part| !part.is_empty()).collect()
}

/// The keys of an experiment that may say which data it read.
struct DataKeys<'a> {
    subject: &'a Subject,
    /// Next to another lock.
    of_locks: BTreeSet<&'a str>,
    /// Next to an experiment of any origin.
    of_all: BTreeSet<&'a str>,
}

impl<'a> DataKeys<'a> {
    fn new(subject: &'a Subject) -> DataKeys<'a> {
        let in_locks = |path: &&str| ["data.task", "data.source", "data.digest"].contains(path);
        let in_all =
            |path: &&str| *path == "data.task" || subject.own.get(*path) == Some(&Topic::Data);
        let written = |path: &&str| subject.facts.get(*path).is_some_and(|fact| fact.written);
        let keys: Vec<&str> = subject.compared().filter(written).collect();
        DataKeys {
            subject,
            of_locks: keys.iter().copied().filter(in_locks).collect(),
            of_all: keys.iter().copied().filter(in_all).collect(),
        }
    }

    /// Whether two experiments may have read the same data: a key that says which data agrees, or none says it.
    fn may_be_shared(&self, other: &DataKeys<'_>) -> bool {
        let (a, b) = (self.subject, other.subject);
        let locks = [a, b].iter().all(|subject| subject.origin == Origin::Lock);
        if locks && a.value("data.task") != b.value("data.task") {
            return false;
        }
        let (keys_of_a, keys_of_b) = match locks {
            true => (&self.of_locks, &other.of_locks),
            false => (&self.of_all, &other.of_all),
        };
        let text = |subject: &Subject| {
            subject.value("data.task").is_some_and(|task| task.to_string() == "text")
        };
        let only_text = |path: &str| locks && path == "data.task" && text(a) && text(b);
        let shared = keys_of_a.intersection(keys_of_b);
        let mut shared = shared.filter(|path| !only_text(path)).peekable();
        shared.peek().is_none() || shared.any(|path| a.value(path) == b.value(path))
    }
}

/// The words of names, by experiment.
type Words<'a> = BTreeMap<usize, BTreeSet<&'a str>>;

/// How many words the names of two experiments share.
fn shared_words(names: &Words<'_>, a: &usize, b: &usize) -> usize {
    match (names.get(a), names.get(b)) {
        (Some(a), Some(b)) => a.intersection(b).count(),
        (None, _) | (_, None) => 0,
    }
}

/// Every possible pair of experiments that are related, the nearest first.
fn candidates(
    subjects: &[Subject],
    contents: &Contents<'_>,
    names: &Words<'_>,
    open: &BTreeSet<usize>,
    free: &BTreeSet<usize>,
) -> Vec<Candidate> {
    let data: Vec<DataKeys<'_>> = subjects.iter().map(DataKeys::new).collect();
    let mut candidates: Vec<Candidate> = Vec::with_capacity(open.len().saturating_mul(free.len()));
    for (rank, with) in open.iter().enumerate() {
        for (other_rank, without) in free.iter().enumerate() {
            let both = data.get(*with).zip(data.get(*without));
            let related = both.is_some_and(|(with, without)| with.may_be_shared(without));
            let shared = shared_words(names, without, with);
            if shared == 0 && !related {
                continue;
            }
            let apart = contents.distance(*without, *with);
            candidates.push(((Reverse(shared), apart, rank.abs_diff(other_rank)), *without, *with));
        }
    }
    candidates.sort_unstable();
    candidates
}

/// Pairs the remaining experiments: most shared words in the name first, then nearest contents. Names do
/// not change with contents, so a further confound does not move an arm to another base.
fn pair_nearest(
    subjects: &[Subject],
    contents: &Contents<'_>,
    open: &mut BTreeSet<usize>,
    free: &mut BTreeSet<usize>,
    partners: &mut Partners,
) {
    let words_of = |at: &usize| (*at, subjects.get(*at).map(words).unwrap_or_default());
    let names: Words<'_> = open.iter().chain(free.iter()).map(words_of).collect();
    let candidates = candidates(subjects, contents, &names, open, free);
    let mut counts = vec![0usize; subjects.len()];
    let distance = |(order, ..): &Candidate| (order.0, order.1);
    for block in candidates.chunk_by(|a, b| distance(a) == distance(b)) {
        // Among equally near candidates, the one with the fewest choices goes first.
        let of_both = |open: &BTreeSet<usize>, free: &BTreeSet<usize>, c: &Candidate| {
            open.contains(&c.2) && free.contains(&c.1)
        };
        let block: Vec<&Candidate> = block.iter().filter(|c| of_both(open, free, c)).collect();
        for at in block.iter().flat_map(|c| [c.1, c.2]) {
            counts.get_mut(at).into_iter().for_each(|n| *n += 1);
        }
        let count = |at: usize| counts.get(at).copied().unwrap_or(0);
        let choice = |c: &&Candidate| (count(c.1) + count(c.2), c.0.2, c.1, c.2);
        let mut ordered = block.clone();
        ordered.sort_by_key(choice);
        for ((Reverse(alike), apart, _), without, with) in ordered {
            if !open.contains(with) || !free.contains(without) {
                continue;
            }
            // Others at the same distance, where the name prefers none.
            let rival = |base: &&usize| {
                *base != without
                    && contents.distance(**base, *with) == *apart
                    && shared_words(&names, base, with) == *alike
            };
            let rivals: Vec<usize> = free.iter().filter(rival).copied().collect();
            let pair = Pair { without: *without, with: *with };
            if !rivals.is_empty() {
                partners.unclear.push((pair, rivals));
            }
            open.remove(with);
            free.remove(without);
            partners.pairs.push(pair);
        }
        for at in block.iter().flat_map(|c| [c.1, c.2]) {
            counts.get_mut(at).into_iter().for_each(|n| *n = 0);
        }
    }
}

/// Experiments without a partner, each with the nearest on the other side.
fn lonely(
    subjects: &[Subject],
    contents: &Contents<'_>,
    (with, without): (&[usize], &[usize]),
    pairs: &[Pair],
) -> Vec<(usize, Option<usize>)> {
    if pairs.is_empty() {
        return Vec::new();
    }
    let paired: BTreeSet<usize> = pairs.iter().flat_map(|p| [p.without, p.with]).collect();
    let is_paired = |at: usize| paired.contains(&at);
    // The same experiment under another name is already paired there.
    let text = |at: usize| {
        let facts = subjects.get(at).map(|subject| &subject.facts)?;
        let lines = facts
            .iter()
            .map(|(path, fact)| format!("{path} {} {}\n", fact.written, typed(&fact.value)));
        Some(lines.collect::<String>())
    };
    let mut alone: Vec<usize> = with.iter().chain(without).copied().collect();
    alone.retain(|at| !is_paired(*at));
    alone.sort_unstable();
    if alone.is_empty() {
        return Vec::new();
    }
    let same: BTreeSet<Option<String>> = paired.iter().map(|at| text(*at)).collect();
    let alone = alone.into_iter().filter(|at| !same.contains(&text(*at)));
    alone
        .map(|at| {
            let others = if with.contains(&at) { without } else { with };
            let nearest =
                others.iter().min_by_key(|other| (contents.distance(at, **other), **other));
            (at, nearest.copied())
        })
        .collect()
}

/// Reports the pairs whose declared treatment has several factors, or a size that compensates for it.
pub(crate) fn bundles(subjects: &[Subject], findings: &mut Findings) {
    for subject in subjects {
        for declared in &subject.declared {
            let Some(bundle) = &declared.bundle else { continue };
            let pair = Occurrence::between(&declared.base, &subject.name, "");
            findings.add("twin-bundle", Scope::Set, "", bundle.as_str(), pair);
        }
    }
}

/// The pairs that locks declare, each with its declaration.
pub(crate) fn locked(subjects: &[Subject]) -> Vec<(Pair, Pairs)> {
    let mut pairs_of_locks = Vec::new();
    for (with, subject) in subjects.iter().enumerate() {
        for declared in &subject.declared {
            let base = subjects.iter().position(|other| other.name == declared.base);
            let Some(without) = base.filter(|base| *base != with) else { continue };
            let mut treatment = declared.fields.clone();
            treatment.extend(declared.arch.then(|| "arch".to_owned()));
            let locked = Some(declared.treatment.clone());
            let pairs = Pairs { treatment, ignore: Vec::new(), locked };
            pairs_of_locks.push((Pair { without, with }, pairs));
        }
    }
    pairs_of_locks
}

/// Reports pairs with an equally good alternative.
pub(crate) fn unclear(
    subjects: &[Subject],
    partners: &Partners,
    declared: &Pairs,
    findings: &mut Findings,
) {
    if partners.unclear.is_empty() {
        return;
    }
    let contents = Contents::new(subjects, declared);
    let name = |at: usize| subjects.get(at).map_or("", |subject| subject.name.as_str());
    for (pair, rivals) in &partners.unclear {
        let each = |rival: &usize| {
            format!("{} ({})", name(*rival), contents.differing(*rival, pair.with).join(", "))
        };
        let more = match rivals.len().checked_sub(LISTED).filter(|more| *more > 0) {
            Some(more) => format!(", and {more} more"),
            None => String::new(),
        };
        let listed: Vec<String> = rivals.iter().take(LISTED).map(each).collect();
        let observation = format!("equally similar: {}{more}", listed.join(", "));
        let occurrence = Occurrence::between(name(pair.without), name(pair.with), observation);
        let message = "another experiment is equally similar, and no name tells which is the twin";
        findings.add("twin-unclear", Scope::Pair, "", message, occurrence);
    }
}

/// Reports experiments without a partner, with the keys in which each differs from the nearest.
pub(crate) fn missing(
    subjects: &[Subject],
    partners: &Partners,
    declared: &Pairs,
    findings: &mut Findings,
) {
    if partners.lonely.is_empty() {
        return;
    }
    let contents = Contents::new(subjects, declared);
    for (at, nearest) in &partners.lonely {
        let Some(subject) = subjects.get(*at) else { continue };
        let nearest = nearest.and_then(|nearest| Some((nearest, &subjects.get(nearest)?.name)));
        let observation =
            nearest.map(|(nearest, name)| match contents.differing(*at, nearest).as_slice() {
                [] => format!("{name} is equal, but has another twin"),
                keys => format!("most similar: {name}, which differs in {}", keys.join(", ")),
            });
        let lonely = Occurrence::in_experiment(&subject.name, observation.unwrap_or_default());
        findings.add("missing-twin", Scope::Set, "", "no twin, although others have one", lonely);
    }
}

/// Explains why no pair was found, if several experiments could have formed one.
pub(crate) fn unpaired(
    subjects: &[Subject],
    pairs: &[Pair],
    locked: &BTreeSet<usize>,
    declared: &Pairs,
) -> Option<String> {
    let treated = |at: usize| subjects.get(at).is_some_and(|s| s.treated(&declared.treatment));
    if subjects.len() < locked.len() + 2
        || pairs.iter().any(|pair| treated(pair.without) != treated(pair.with))
    {
        return None;
    }
    let treatment = declared.treatment.join(" and ");
    let writes_treatment = |subject: &Subject| {
        let mut facts = subject.facts.iter();
        facts.any(|(path, fact)| fact.written && of_treatment(&declared.treatment, path))
    };
    let treated = subjects.iter().any(|s| s.treated(&declared.treatment));
    let reason = if !subjects.iter().any(writes_treatment) {
        let other_name = match declared.treatment.iter().any(|path| path == CANON) {
            true => " (nor `model.canon_set`)",
            false => "",
        };
        format!(
            "no column or key `{treatment}`{other_name} shows which experiments are treated; for another treatment, a rules \
             file has `[[pairs]]`, then `treatment = [\"KEY\"]`"
        )
    } else if !treated {
        "no experiment is treated".to_owned()
    } else if subjects.iter().all(|s| s.treated(&declared.treatment)) {
        "every experiment is treated".to_owned()
    } else {
        "no two of them share data or a word of their names".to_owned()
    };
    Some(format!("{treatment}: {reason}"))
}
