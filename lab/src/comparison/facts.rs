//! Converts a comparison's declarations to facts of a lock, and back.
//!
//! A fact that was added after the first locks is written only if it was declared, so that older locks keep their text and id.

use std::collections::BTreeMap;

use dsl::Decimal;
use toml::de::DeValue;

use super::{
    Arm, Comparison, Declared, DeclaredAnalysis, Grid, Match, MatchScope, NoComparison, Quantity,
    SEED_KINDS, Selection, SelectionMode, seed_value,
};
use crate::error::{self, LockError};
use crate::experiment::Seeds;
use crate::field::{self, FieldValue, Kind, quote, shown};
use crate::section::{Line, Section, fact, hex, key};
use crate::verdict::Trainer;

impl Comparison {
    /// The sections that the comparison's own id covers.
    pub(crate) fn own_sections(&self) -> Vec<Section> {
        let mut facts = self.facts();
        facts.sort();
        let verdicts = self.verdicts.keys();
        let verdicts = verdicts.map(|arm| fact(&key(arm), quote(&self.headline(arm)))).collect();
        let runs = self.runs().into_iter();
        let mut runs: Vec<Line> =
            runs.map(|run| fact(&key(&run.experiment.name), hex(run.experiment.id()))).collect();
        runs.sort();
        vec![
            Section::new("comparison", facts),
            Section::new("verdict", verdicts),
            Section::new("runs", runs),
        ]
    }

    /// The declarations as facts of the lock.
    pub(crate) fn facts(&self) -> Vec<Line> {
        let mut facts: Vec<Line> = Vec::new();
        let list = |values: &mut dyn Iterator<Item = String>| {
            format!("[{}]", values.collect::<Vec<_>>().join(", "))
        };
        for (name, seeds) in [("seeds", &self.seeds), ("replicate", &self.replicate)] {
            for (which, seed_of) in SEED_KINDS {
                let values = &mut seeds.iter().map(|s| seed_value(seed_of(s)).to_string());
                facts.push((format!("{name}.{which}"), list(values)));
            }
        }
        facts.push(("base".to_owned(), field::quote(&self.base)));
        for Grid { paths, values } in &self.grid {
            let key = match paths.as_slice() {
                [one] => format!("grid.{one}"),
                several => format!("grid.{}", field::quote(&several.join(", "))),
            };
            let row = |row: &Vec<FieldValue>| match row.as_slice() {
                [one] => one.to_string(),
                several => FieldValue::List(several.to_vec()).to_string(),
            };
            facts.push((key, list(&mut values.iter().map(row))));
        }
        let Selection { metric, mode, per_arm } = &self.selection;
        let mode = match mode {
            SelectionMode::Min => "min",
            SelectionMode::Max => "max",
        };
        facts.push(("selection.mode".to_owned(), field::quote(mode)));
        facts.push(("selection.metric".to_owned(), field::quote(metric)));
        facts.push(("selection.per_arm".to_owned(), per_arm.to_string()));
        facts.extend(self.analysis.facts(&self.selection));
        if let Some(Match { on, within }) = self.matching {
            facts.push(("match.on".to_owned(), field::quote(on.word())));
            facts.push(("match.within".to_owned(), within.to_string()));
            let MatchScope { arms, compensate } = &self.scope;
            for (key, names) in [("arms", arms), ("compensate", compensate)] {
                if !names.is_empty() {
                    let names = &mut names.iter().map(|name| field::quote(name));
                    facts.push((format!("match.{key}"), list(names)));
                }
            }
        }
        if let Some(trainer) = self.trainer.word() {
            facts.push(("trainer".to_owned(), field::quote(trainer)));
        }
        for (arm, entries) in &self.treatment {
            let values = &mut entries.iter().map(|entry| field::quote(entry));
            facts.push((format!("treatment.{arm}"), list(values)));
        }
        facts
    }

    /// The comparison that a lock's facts declare.
    pub(crate) fn from_facts<'v, 'i: 'v>(
        name: String,
        source: String,
        arms: Vec<Arm>,
        facts: impl Iterator<Item = (&'v str, &'v DeValue<'i>, usize)>,
    ) -> Result<Comparison, LockError> {
        let mut reader = DeclaredFacts::new();
        for (key, value, line) in facts {
            reader.take(key, value).map_err(|reason| error::bad_fact(line, key, &reason))?;
        }
        Comparison::new(name, source, arms, reader.finish()?).map_err(no_longer)
    }
}

/// The declarations in the facts of a lock, as far as they have been read.
struct DeclaredFacts {
    declared: Declared,
    /// Lists of seeds, by `seeds.init` and so on.
    seeds: BTreeMap<String, Vec<u64>>,
    on: Option<Quantity>,
    within: Option<Decimal>,
}

impl DeclaredFacts {
    fn new() -> DeclaredFacts {
        let declared = Declared {
            base: String::new(),
            treatment: BTreeMap::new(),
            seeds: Vec::new(),
            replicate: Vec::new(),
            grid: Vec::new(),
            selection: Selection { metric: String::new(), mode: SelectionMode::Min, per_arm: true },
            analysis: DeclaredAnalysis::default(),
            matching: None,
            scope: MatchScope::default(),
            trainer: Trainer::Any,
        };
        DeclaredFacts { declared, seeds: BTreeMap::new(), on: None, within: None }
    }

    fn take(&mut self, key: &str, value: &DeValue<'_>) -> Result<(), String> {
        let declared = &mut self.declared;
        match (key.split_once('.'), value) {
            (None, DeValue::String(text)) if key == "base" => declared.base = text.to_string(),
            (None, value) if key == "trainer" => declared.trainer = Trainer::read(value)?,
            (Some(("seeds" | "replicate", _)), value) => {
                self.seeds.insert(key.to_owned(), seed_list(value)?);
            }
            (Some(("grid", paths)), value) => declared.grid.push(grid_row(paths, value)?),
            (Some(("selection", "metric")), DeValue::String(text)) => {
                declared.selection.metric = text.to_string();
            }
            (Some(("selection", "mode")), DeValue::String(text)) => {
                let max = text == "max";
                declared.selection.mode = if max { SelectionMode::Max } else { SelectionMode::Min };
            }
            (Some(("selection", "per_arm")), DeValue::Boolean(per_arm)) => {
                declared.selection.per_arm = *per_arm;
            }
            (Some(("analysis", key)), value) => declared.analysis.take(key, value)?,
            (Some(("match", "on")), value) => self.on = Some(Quantity::read(value)?),
            (Some(("match", "within")), value) => self.within = Some(Match::share(value)?),
            (Some(("match", "arms")), value) => declared.scope.arms = strings(value)?,
            (Some(("match", "compensate")), value) => declared.scope.compensate = strings(value)?,
            (Some(("treatment", arm)), value) => {
                declared.treatment.insert(arm.to_owned(), strings(value)?);
            }
            (_, value) => return Err(format!("{} cannot be used here", shown(value))),
        }
        Ok(())
    }

    fn finish(self) -> Result<Declared, LockError> {
        let DeclaredFacts { mut declared, seeds, on, within } = self;
        declared.matching = match (on, within) {
            (Some(on), Some(within)) => Some(Match { on, within }),
            (None, None) => None,
            (Some(_), None) => return Err(error::missing_fact("comparison.match.within")),
            (None, Some(_)) => return Err(error::missing_fact("comparison.match.on")),
        };
        let zipped = |prefix: &str| {
            zip_seeds(&seeds, prefix).map_err(|(path, reason)| error::bad_fact(1, &path, &reason))
        };
        declared.seeds = zipped("seeds")?;
        declared.replicate = zipped("replicate")?;
        Ok(declared)
    }
}

/// A list of strings.
fn strings(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let DeValue::Array(items) = value else {
        return Err(format!("{} is not a list", shown(value)));
    };
    let text = |item: &toml::Spanned<DeValue<'_>>| {
        let not = || format!("{} is not a string", shown(item.get_ref()));
        field::string(item.get_ref()).map(str::to_owned).ok_or_else(not)
    };
    items.iter().map(text).collect()
}

/// The error for a locked comparison that cannot be rebuilt from its own text.
pub(super) fn no_longer(reason: NoComparison) -> LockError {
    match reason {
        NoComparison::Problems(problems) => error::first(problems),
        NoComparison::Treatment(arm, refusal) => {
            error::problem(&format!("treatment.{arm}"), &refusal.message, &refusal.help)
        }
        NoComparison::Confounded(arm, verdict) => {
            let help = "make the arms agree, or declare what differs";
            error::problem(&format!("arm.{arm}"), &verdict.headline(), help)
        }
    }
}

/// A list of seeds, as a comparison file or its lock writes it.
pub(crate) fn seed_list(value: &DeValue<'_>) -> Result<Vec<u64>, String> {
    let DeValue::Array(items) = value else {
        return Err(format!("{} is not a list of seeds", shown(value)));
    };
    let one = |item: &toml::Spanned<DeValue<'_>>| match Kind::Seed.read(item.get_ref())? {
        FieldValue::Big(n) => Ok(n as u64),
        FieldValue::Int(n) => Ok(n as u64),
        FieldValue::Real(_) | FieldValue::Bool(_) | FieldValue::Text(_) | FieldValue::List(_) => {
            Err(format!("{} is not a seed", shown(item.get_ref())))
        }
    };
    items.iter().map(one).collect()
}

/// Combines `seeds.init`, `seeds.data` and `seeds.eval`; a list of one is repeated.
pub(crate) fn zip_seeds(
    lists: &BTreeMap<String, Vec<u64>>,
    prefix: &str,
) -> Result<Vec<Seeds>, (String, String)> {
    let list = |name: &str| lists.get(&format!("{prefix}.{name}")).map_or(&[][..], Vec::as_slice);
    let count = SEED_KINDS.iter().map(|(name, _)| list(name).len()).max().unwrap_or(0);
    for (name, _) in SEED_KINDS {
        let seeds = list(name).len();
        if seeds > 1 && seeds != count {
            let message = format!("it has {seeds} seeds, but another list has {count}");
            return Err((format!("{prefix}.{name}"), message));
        }
    }
    let at = |name: &str, i: usize| {
        let list = list(name);
        list.get(i).or(list.first()).copied().unwrap_or(0)
    };
    Ok((0..count)
        .map(|i| Seeds { init: at("init", i), data: at("data", i), eval: at("eval", i) })
        .collect())
}

/// One line of the grid: `optimizer.lr = [0.001, 0.002]`.
pub(crate) fn grid_row(paths: &str, value: &DeValue<'_>) -> Result<Grid, String> {
    let paths: Vec<String> = paths.split(',').map(|path| path.trim().to_owned()).collect();
    let mut defs = Vec::new();
    for path in &paths {
        match field::find(path).filter(|def| def.is_writable()) {
            Some(def) if path.starts_with("seeds.") => {
                return Err(format!("`{}` is varied by [seeds]", def.path));
            }
            Some(def) => defs.push(def),
            None => {
                let hint = field::suggest(path)
                    .map_or(String::new(), |n| format!("; did you mean `{n}`?"));
                return Err(format!("`{path}` is not a field{hint}"));
            }
        }
    }
    let DeValue::Array(items) = value else {
        return Err(format!("{} is not a list of values", shown(value)));
    };
    let mut values = Vec::new();
    for item in items {
        let not = || format!("{} is not a list of {}", shown(item.get_ref()), defs.len());
        let row = field::row(item.get_ref(), defs.len()).ok_or_else(not)?;
        let read = defs.iter().zip(row).map(|(def, value)| def.kind.read(value));
        let read = read.collect::<Result<Vec<_>, _>>()?;
        if values.contains(&read) {
            return Err(format!("{} is given twice", shown(item.get_ref())));
        }
        values.push(read);
    }
    if values.is_empty() {
        return Err("the list has no values".to_owned());
    }
    Ok(Grid { paths, values })
}
