//! Mutations of random pairs: with confounds, and with fields that do not influence results.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use audit::curves::Curves;
use audit::keys::{self, CANON};
use audit::{AuditReport, Experiment, KeyValue};
use lab::field::{Absent, Class, FieldDef, Origin, Topic};
use proptest::prelude::*;
use proptest::sample::Index;

use super::support::{experiments, lines, losses, report};

struct Base {
    experiments: Vec<Experiment>,
    losses: Curves,
    clean: Vec<(String, String)>,
    /// How many pairs are clean in the audit without curves.
    clean_by_keys: usize,
    /// Findings of the audit without curves.
    lines: BTreeSet<String>,
}

static BASE: LazyLock<Base> = LazyLock::new(|| {
    let (experiments, losses) = (experiments(), losses());
    let clean = report(&experiments, &losses).clean;
    let by_keys = report(&experiments, &Curves::default());
    let (clean_by_keys, lines) = (by_keys.clean.len(), lines(&by_keys, true));
    Base { experiments, losses, clean, clean_by_keys, lines }
});

fn index_of(set: &mut [Experiment], name: &str) -> usize {
    set.iter().position(|e| e.name == name).unwrap()
}

/// Another value of the same kind.
fn changed_value(value: Option<&KeyValue>) -> KeyValue {
    match value {
        Some(KeyValue::Number(n)) if n.num > 0 => KeyValue::Number(n.mul(three_halves()).unwrap()),
        Some(KeyValue::Number(_)) => KeyValue::int(7),
        Some(KeyValue::Bool(b)) => KeyValue::Bool(!b),
        Some(KeyValue::Text(text)) => KeyValue::text(format!("{text}-other")),
        Some(KeyValue::List(_)) | None => KeyValue::text("other"),
    }
}

fn three_halves() -> compiler::number::Ratio {
    compiler::number::Ratio { num: 3, den: 2 }
}

/// Whether a rule has a new finding that names one of these.
fn names(report: &AuditReport, rule: &str, wanted: &[&str]) -> bool {
    let base = &BASE.lines;
    let new = lines(report, true);
    new.difference(base).any(|line| {
        line.starts_with(&format!("{rule} "))
            && wanted.iter().all(|name| line.split([' ', ':']).any(|word| word == *name))
    })
}

fn twin_rule(key: &FieldDef) -> &'static str {
    if key.class == Class::Measured {
        return "twin-measured";
    }
    match key.topic {
        Topic::Training => "twin-training",
        Topic::Data => "twin-data",
        Topic::Budget => "twin-budget",
        Topic::Numerics => "twin-numerics",
        Topic::Kernel => "twin-kernel",
        Topic::Revision => "twin-revision",
        Topic::Evaluation | Topic::Cadence | Topic::Setup | Topic::Reported => "twin-cosmetic",
    }
}

/// A key of the row: its path, or one below the section it covers.
fn key_of(row: &FieldDef) -> String {
    let named = row.foreign.iter().find_map(|name| name.strip_suffix('*'));
    match (row.path.strip_suffix('*'), named) {
        (None, _) => row.path.to_owned(),
        (Some(_), Some(section)) => format!("{section}any"),
        // Sections of other trainers' keys that are known one by one.
        (Some(own), None) if own.starts_with("lingua.") => {
            // A launcher's section has the others.
            row.foreign.first().unwrap_or(&"slurm.container_mounts").to_string()
        }
        (Some(own), None) => format!("{own}any"),
    }
}

/// Whether the published set, which uses cosine schedules, can test the row as a key of its own.
fn is_asked(row: &&FieldDef) -> bool {
    let idle =
        row.only.is_some_and(|(on, words)| on == "schedule.kind" && !words.contains(&"cosine"));
    let derived = row.origin == Origin::Derived && row.instead.is_none();
    !idle && !derived && !row.path.starts_with(CANON)
}

fn rows(which: impl Fn(&FieldDef) -> bool) -> Vec<&'static FieldDef> {
    keys::rows().filter(is_asked).filter(|row| which(row)).collect()
}

fn decides(row: &FieldDef) -> bool {
    row.reaches_result() || row.class == Class::Measured
}

fn audit(set: &[Experiment]) -> AuditReport {
    report(set, &Curves::default())
}

#[test]
fn every_deciding_key_is_found_in_a_clean_pair() {
    // All keys, each in its own pair, cycling through the pairs.
    let more = [("mine.unheard_of", "twin-training"), ("revision.dump_keys", "twin-revision")];
    let keys: Vec<(String, &str)> = rows(decides)
        .into_iter()
        .map(|row| (key_of(row), twin_rule(row)))
        .chain(more.map(|(key, rule)| (key.to_owned(), rule)))
        .collect();
    assert!(keys.len() > 100, "{}", keys.len());
    for (round, (path, rule)) in keys.iter().enumerate() {
        for side in [0, 1] {
            let (a, b) = &BASE.clean[(2 * round + side) % BASE.clean.len()];
            let mut set = BASE.experiments.clone();
            let index = index_of(&mut set, if side == 0 { a } else { b });
            let value = changed_value(set[index].values.get(path));
            set[index].values.insert(path.clone(), value);
            let report = audit(&set);
            assert!(names(&report, rule, &[a, b]), "{path} in {a} | {b}, side {side}");
            assert!(!report.clean.contains(&(a.clone(), b.clone())), "{path} in {a}");
            assert_eq!(report.clean.len() + 1, BASE.clean_by_keys, "{path}");
        }
    }
}

/// The fill of a slot belongs to the treatment, which is the same for all pairs of a family.
#[test]
fn every_fill_setting_of_every_slot_is_found() {
    let usual = |setting: &str| match setting {
        "kernel" => KeyValue::int(4),
        "residual" => KeyValue::Bool(true),
        _ => KeyValue::text("none"),
    };
    let settings = ["kernel", "residual", "activation"];
    let slots = ["A", "B", "C", "D"];
    let keys =
        || settings.iter().flat_map(|s| slots.map(|slot| (*s, format!("{CANON}.{s}.{slot}"))));
    let mut filled = BASE.experiments.clone();
    for experiment in &mut filled {
        let slots = experiment.values.get(CANON).map_or_else(String::new, KeyValue::to_string);
        for (setting, key) in keys().filter(|(_, key)| slots.contains(&key[key.len() - 1..])) {
            experiment.values.insert(key, usual(setting));
        }
    }
    // A value that all of them share is not a finding.
    assert_eq!(lines(&audit(&filled), true), BASE.lines);
    let mut tried = 0;
    for (a, b) in &BASE.clean {
        for (setting, key) in keys() {
            let mut set = filled.clone();
            let index = index_of(&mut set, b);
            let Some(value) = set[index].values.get(&key).cloned() else { continue };
            for changed in [Some(changed_value(Some(&value))), None] {
                let mutant = changed.as_ref().map_or("absent".to_owned(), KeyValue::to_string);
                match changed {
                    Some(changed) => set[index].values.insert(key.clone(), changed),
                    None => set[index].values.remove(&key),
                };
                let new = lines(&audit(&set), true);
                let new: Vec<_> = new.difference(&BASE.lines).collect();
                let start = format!("treatment-uniform {key} {b} : {mutant}, but ");
                let [line] = new[..] else { panic!("{a} {b} {setting}: {new:?}") };
                assert!(line.starts_with(&start), "{line}");
                assert!(line.trim_end().ends_with(&format!(" have {value}")), "{line}");
                tried += 1;
            }
        }
    }
    assert!(tried > 300, "{tried}");
}

fn renamed(set: &mut [Experiment], from: &str, to: &str) {
    let index = index_of(set, from);
    set[index].name = to.to_owned();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: support::cases(48), ..ProptestConfig::default() })]

    #[test]
    fn false_names_are_found(pick: Index, treated: bool, kind in 0..4usize) {
        let (a, b) = pick.get(&BASE.clean);
        let name = if treated { b } else { a };
        let mut set = BASE.experiments.clone();
        let (rule, to) = match kind {
            0 => ("name-value", name.replace("lr0.00", "lr0.04")),
            1 => ("name-tokens", name.replace("-1T-", "-3T-")),
            2 if treated => ("name-canon", name.replace("Canon", "")),
            2 => ("name-canon", name.replace("conv", "Canon")),
            _ => ("name-twice", if treated { a.clone() } else { b.clone() }),
        };
        renamed(&mut set, name, &to);
        let report = audit(&set);
        prop_assert!(names(&report, rule, &[&to]), "{rule}: {name} as {to}");
        // The twins are still recognised.
        prop_assert_eq!(report.pairs.len(), 32);
    }

    #[test]
    fn false_numbers_and_budgets_are_found(pick: Index, treated: bool, kind in 0..4usize) {
        let (a, b) = pick.get(&BASE.clean);
        let name = if treated { b } else { a };
        let mut set = BASE.experiments.clone();
        let index = index_of(&mut set, name);
        let wanted = match kind {
            0 => {
                let path = "reported.tokens".to_owned();
                let value = changed_value(set[index].values.get(&path));
                set[index].values.insert(path, value);
                vec![("reported", name.clone())]
            }
            1 => {
                // The same file, launched on other devices under another name.
                let mut copy = set[index].clone();
                copy.name = name.replace("-1T-", "-1.5T-");
                let devices = changed_value(copy.values.get("platform.devices"));
                copy.values.insert("platform.devices".to_owned(), devices);
                let copied = copy.name.clone();
                set.push(copy);
                vec![("budget-ambiguous", name.clone()), ("budget-ambiguous", copied)]
            }
            2 => {
                // Both twins change alike, so no pairwise difference shows it.
                for name in [a, b] {
                    let index = index_of(&mut set, name);
                    let steps = changed_value(set[index].values.get("budget.steps"));
                    set[index].values.insert("budget.steps".to_owned(), steps);
                }
                vec![("name-tokens", a.clone()), ("name-tokens", b.clone())]
            }
            _ => {
                for name in [a, b] {
                    let index = index_of(&mut set, name);
                    let path = "optimizer.weight_decay".to_owned();
                    let value = changed_value(set[index].values.get(&path));
                    set[index].values.insert(path, value);
                }
                vec![("lr-wd-steps", a.clone()), ("lr-wd-steps", b.clone())]
            }
        };
        let report = audit(&set);
        for (rule, name) in wanted {
            prop_assert!(names(&report, rule, &[&name]), "{rule}: {name}");
        }
    }

    #[test]
    fn twins_that_change_alike_are_found_beside_their_siblings(pick: Index, warmup: bool) {
        // A family at 8B has four runs: two are half of them, not a majority.
        let large: Vec<_> = BASE.clean.iter().filter(|(a, _)| !a.contains("-8B-")).collect();
        let (a, b) = pick.get(&large);
        let mut set = BASE.experiments.clone();
        let path = if warmup { "schedule.warmup" } else { "optimizer.clip" };
        for name in [a, b] {
            let index = index_of(&mut set, name);
            let value = changed_value(set[index].values.get(path));
            set[index].values.insert(path.to_owned(), value);
        }
        let report = audit(&set);
        let rule = if warmup { "warmup-share" } else { "siblings" };
        for name in [a, b] {
            prop_assert!(names(&report, rule, &[name]), "{rule}: {name}");
        }
    }

    #[test]
    fn missing_twins_and_odd_treatments_are_found(pick: Index, treated: bool, gone: bool) {
        let (a, b) = pick.get(&BASE.clean);
        let mut set = BASE.experiments.clone();
        if gone {
            let (left, without) = if treated { (a, b) } else { (b, a) };
            set.retain(|e| e.name != *without);
            let report = audit(&set);
            prop_assert!(names(&report, "missing-twin", &[left]), "{left}");
            prop_assert_eq!(report.pairs.len(), 31);
        } else {
            let index = index_of(&mut set, b);
            set[index].values.insert(CANON.to_owned(), KeyValue::text("AC"));
            prop_assert!(names(&audit(&set), "treatment-uniform", &[b]), "{b}");
        }
    }

    #[test]
    fn any_key_in_any_pair_is_found(pick: Index, treated: bool, which: Index) {
        let (a, b) = pick.get(&BASE.clean);
        let keys = rows(decides);
        let row = which.get::<&FieldDef>(&keys[..]);
        let key = key_of(row);
        let mut set = BASE.experiments.clone();
        let index = index_of(&mut set, if treated { b } else { a });
        let value = changed_value(set[index].values.get(&key));
        set[index].values.insert(key.clone(), value);
        prop_assert!(names(&audit(&set), twin_rule(row), &[a, b]), "{key} {a}");
    }

}

/// Spikes of the published curves themselves.
static SPIKES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let report = report(&BASE.experiments, &BASE.losses);
    lines(&report, true).into_iter().filter(|line| line.starts_with("loss-spike ")).collect()
});

proptest! {
    // Each case compares 48 curves twice.
    #![proptest_config(ProptestConfig { cases: support::cases(16), ..ProptestConfig::default() })]

    #[test]
    fn other_batches_and_spikes_are_found(pick: Index, treated: bool, seed: u64, at in 0.1..0.9f64) {
        let (a, b) = pick.get(&BASE.clean);
        let name = if treated { b } else { a };
        let points = BASE.losses.get(name).unwrap().clone();
        // Shuffle a curve's noise along it, as if the run had read other batches.
        let mut state = seed | 1;
        let mut next = move |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let smooth = |i: usize| {
            let (from, to) = (i.saturating_sub(5), (i + 6).min(points.len()));
            points[from..to].iter().map(|(_, loss)| loss).sum::<f64>() / (to - from) as f64
        };
        let noise: Vec<f64> = (0..points.len()).map(|i| points[i].1 - smooth(i)).collect();
        let shuffled = (0..points.len()).map(|i| {
            let from = 30 + next(noise.len() - 30);
            (points[i].0, smooth(i) + noise[from])
        });
        let mut losses = BASE.losses.clone();
        losses.set(name, shuffled.collect());
        let audited = report(&BASE.experiments, &losses);
        prop_assert!(names(&audited, "data-order", &[name]), "{name}");
        prop_assert!(!audited.clean.contains(&(a.clone(), b.clone())));
        // Two events of one curve that touch would merge, so skip curves with spikes of their own.
        prop_assume!(!SPIKES.iter().any(|line| line.contains(name.as_str())));
        let mut spiked = points.clone();
        let point = (at * points.len() as f64) as usize;
        spiked[point].1 += 0.06;
        let mut losses = BASE.losses.clone();
        losses.set(name, spiked);
        let audited = report(&BASE.experiments, &losses);
        let event = format!("{:.1} +0.0", points[point].0);
        let spikes = lines(&audited, true).into_iter().filter(|l| l.starts_with("loss-spike "));
        let reported = spikes.into_iter().any(|l| l.contains(name.as_str()) && l.contains(&event));
        prop_assert!(reported, "{name} at {event}");
        prop_assert!(audited.clean.contains(&(a.clone(), b.clone())));
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: support::cases(48), ..ProptestConfig::default() })]

    #[test]
    fn what_decides_nothing_is_no_confound(pick: Index, treated: bool, which: Index, order: u64) {
        let (a, b) = pick.get(&BASE.clean);
        let name = if treated { b } else { a };
        let mut base = BASE.experiments.clone();
        // The table's cadences would no longer follow from its keys, and columns that only one twin
        // has would be another difference.
        for twin in [a, b] {
            let twin = index_of(&mut base, twin);
            base[twin].values.retain(|path, _| !path.starts_with("reported."));
        }
        let mut set = base.clone();
        let index = index_of(&mut set, name);
        let idle = rows(|row| {
            // Derived columns repeat keys: another number in one is a difference of those.
            let repeats = row.origin == Origin::Derived || row.path == "data.tokens";
            matches!(row.topic, Topic::Cadence | Topic::Evaluation | Topic::Setup)
                && !decides(row)
                && !repeats
        });
        let key = key_of(which.get::<&FieldDef>(&idle[..]));
        let value = changed_value(set[index].values.get(&key));
        set[index].values.insert(key.clone(), value);
        // Write a default out, and reorder the rows.
        for key in keys::rows() {
            let absent = match key.absent {
                Absent::Is(text) => KeyValue::parse(text),
                Absent::As(_) | Absent::Default(_) | Absent::Unknown => None,
            };
            if let Some(value) = absent.filter(|_| !key.path.starts_with("arch.mixer.rope")) {
                set[index].values.entry(key.path.to_owned()).or_insert(value);
            }
        }
        let turn = order as usize % set.len();
        set.rotate_left(turn);
        let (before, after) = (audit(&base), audit(&set));
        // Another trainer's scores give a warning, not a confound.
        let confounds = |report: &AuditReport| -> BTreeSet<String> {
            let all = lines(report, false).into_iter();
            all.filter(|line| !line.starts_with("twin-evaluation ")).collect()
        };
        prop_assert_eq!(confounds(&before), confounds(&after));
        prop_assert_eq!(&before.clean, &after.clean);
        let scores = idle.iter().any(|row| key_of(row) == key && row.reaches_scores());
        let rule = if scores { "twin-evaluation" } else { "twin-cosmetic" };
        prop_assert!(names(&after, rule, &[a, b]), "{key}");
    }
}
