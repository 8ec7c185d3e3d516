//! A comparison: arms, a declared treatment, seeds, a nuisance grid, and every run they make.
//!
//! In: one experiment per arm and what the comparison file declares. Out: the comparison with its
//! verdicts and its runs; or what is wrong, a confound above all. Must stay true (design, section 6): a
//! comparison that is not controlled for its treatment is never locked; every arm gets the same seeds
//! and the same grid; the A/A arm is the base with other seeds and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use toml::de::DeValue;

use super::covered::Line;
use super::parts::Seeds;
use super::{Experiment, LockError, Problem, error};
use crate::compare::{Refusal, Side, Verdict, controlled};
use crate::digest::Digest;
use crate::field::{self, FieldValue, Fields, Kind, shown};
use crate::recipe::{MAX_POINTS, Point};

const TAG: &str = "canonc.comparison.v1";

/// What is compared, resolved.
#[derive(Clone, Debug)]
pub struct Comparison {
    pub name: String,
    pub source: String,
    /// The arm that others are compared with.
    pub base: String,
    /// By name; each with the first seeds and the first point of the grid.
    pub arms: Vec<Arm>,
    /// For each arm but the base, the declared treatment.
    pub treatment: BTreeMap<String, Vec<String>>,
    pub seeds: Vec<Seeds>,
    /// Seeds of the A/A arm, paired with `seeds` from the first on.
    pub again: Vec<Seeds>,
    pub grid: Vec<Grid>,
    pub selection: Selection,
    /// For each arm but the base: controlled, or a bundle.
    pub verdicts: BTreeMap<String, Verdict>,
    runs: Vec<Run>,
}

#[derive(Clone, Debug)]
pub struct Arm {
    pub name: String,
    pub experiment: Experiment,
}

/// Fields that vary together in every arm alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    pub paths: Vec<String>,
    pub values: Vec<Vec<FieldValue>>,
}

/// Which point of the grid an arm is judged at: the best mean over seeds at the last evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    pub metric: String,
    pub choose: Choose,
    /// Each arm its own point; else the one that is best for the base.
    pub per_arm: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choose {
    Least,
    Most,
}

/// What a run is to its comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Base,
    Treatment,
    /// The base with other seeds: how far it lies from the base is noise.
    Again,
}

/// One run of a comparison.
#[derive(Clone, Debug)]
pub struct Run {
    pub arm: String,
    pub role: Role,
    /// Place in the list of seeds; runs of equal place are paired.
    pub seed: usize,
    /// Place in the grid.
    pub point: usize,
    pub experiment: Experiment,
}

/// Why there is no comparison.
#[derive(Debug)]
pub enum NoComparison {
    /// Something is wrong with an arm or a value, at a path of the comparison file.
    Problems(Vec<Problem>),
    /// The treatment of an arm does not say what it should.
    Treatment(String, Refusal),
    /// An arm differs from the base in more than its treatment.
    Confounded(String, Box<Verdict>),
}

/// What a comparison file declares beside its arms.
#[derive(Clone, Debug)]
pub struct Declared {
    pub base: String,
    pub treatment: BTreeMap<String, Vec<String>>,
    pub seeds: Vec<Seeds>,
    pub again: Vec<Seeds>,
    pub grid: Vec<Grid>,
    pub selection: Selection,
}

impl Comparison {
    pub fn new(
        name: String,
        source: String,
        arms: Vec<Arm>,
        declared: Declared,
    ) -> Result<Comparison, NoComparison> {
        let Declared { base, treatment, seeds, again, grid, selection } = declared;
        let mut unsound = equal_seeds(&seeds, &again);
        unsound.extend(unsound_grid(&grid, &selection));
        unsound.extend(arms.iter().filter_map(|arm| unmeasured(arm, &selection.metric, &grid)));
        if !unsound.is_empty() {
            return Err(NoComparison::Problems(unsound));
        }
        let points = points(&grid).map_err(|p| NoComparison::Problems(vec![p]))?;
        let first = seeds.first().copied().unwrap_or(Seeds { init: 0, data: 0, eval: 0 });
        let mut problems = Vec::new();
        let mut settled = Vec::new();
        for Arm { name: arm, experiment } in arms {
            let mut values = points.first().map_or_else(Fields::new, |point| point.fields.clone());
            values.extend(seed_fields(first));
            match with(&experiment, format!("{name}-{arm}"), &values) {
                Ok(experiment) => settled.push(Arm { name: arm, experiment }),
                Err(found) => problems.extend(at_arm(&arm, found)),
            }
        }
        settled.sort_by(|a, b| a.name.cmp(&b.name));
        if !problems.is_empty() {
            return Err(NoComparison::Problems(problems));
        }
        let mut comparison = Comparison {
            name,
            source,
            base,
            arms: settled,
            treatment,
            seeds,
            again,
            grid,
            selection,
            verdicts: BTreeMap::new(),
            runs: Vec::new(),
        };
        comparison.verdicts = comparison.judge()?;
        comparison.runs = comparison.make_runs(&points).map_err(NoComparison::Problems)?;
        Ok(comparison)
    }

    /// Every arm but the base is controlled, or there is no comparison.
    fn judge(&self) -> Result<BTreeMap<String, Verdict>, NoComparison> {
        let Some(base) = self.arm(&self.base) else {
            let message = format!("there is no arm `{}`", self.base);
            let problem = Problem::new("base", "no-such-arm", message, "name one of the arms");
            return Err(NoComparison::Problems(vec![problem]));
        };
        let mut verdicts = BTreeMap::new();
        for arm in self.arms.iter().filter(|arm| arm.name != self.base) {
            let empty = Vec::new();
            let treatment = self.treatment.get(&arm.name).unwrap_or(&empty);
            let sides =
                [Side::arm(&base.name, &base.experiment), Side::arm(&arm.name, &arm.experiment)];
            let verdict = controlled(&sides[0], &sides[1], treatment)
                .map_err(|refusal| NoComparison::Treatment(arm.name.clone(), refusal))?;
            if !verdict.is_controlled() {
                return Err(NoComparison::Confounded(arm.name.clone(), Box::new(verdict)));
            }
            verdicts.insert(arm.name.clone(), verdict);
        }
        Ok(verdicts)
    }

    fn arm(&self, name: &str) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.name == name)
    }

    /// The base first, then the other arms, then the base again; in each, point by point and seed by
    /// seed.
    fn make_runs(&self, points: &[Point]) -> Result<Vec<Run>, Vec<Problem>> {
        let base = |arm: &&Arm| arm.name == self.base;
        let ordered = self.arms.iter().filter(base).map(|arm| (arm, Role::Base, &self.seeds));
        let others = self.arms.iter().filter(|arm| !base(arm));
        let others = others.map(|arm| (arm, Role::Treatment, &self.seeds));
        let again = self.arms.iter().filter(base).map(|arm| (arm, Role::Again, &self.again));
        let (mut runs, mut problems) = (Vec::new(), Vec::new());
        let mut taken: BTreeSet<String> = BTreeSet::new();
        for (arm, role, seeds) in ordered.chain(others).chain(again) {
            for (point, place) in points.iter().zip(0..) {
                for (seed, number) in seeds.iter().zip(0..) {
                    let mut words = vec![self.name.clone(), arm.name.clone()];
                    words.extend((role == Role::Again).then(|| "again".to_owned()));
                    words.extend(point.words.iter().cloned());
                    words.push(format!("seed{}", number + 1));
                    let mut values = point.fields.clone();
                    values.extend(seed_fields(*seed));
                    // Long values are cut in names, and may then be one.
                    let name = words.join("-");
                    let mut unique = name.clone();
                    let mut again = 2;
                    while !taken.insert(unique.to_lowercase()) {
                        unique = format!("{name}-{again}");
                        again += 1;
                    }
                    match with(&arm.experiment, unique, &values) {
                        Ok(experiment) => runs.push(Run {
                            arm: arm.name.clone(),
                            role,
                            seed: number,
                            point: place,
                            experiment,
                        }),
                        Err(found) => problems.extend(at_arm(&arm.name, found)),
                    }
                }
            }
        }
        if problems.is_empty() { Ok(runs) } else { Err(problems) }
    }

    /// Every run, in order; the names of their experiments are those of their locks.
    pub fn runs(&self) -> Vec<&Run> {
        self.runs.iter().collect()
    }

    pub fn id(&self) -> Digest {
        let text: String = self.own_sections().iter().map(|section| section.lines()).collect();
        Digest::of(TAG, &text)
    }

    /// The same comparison of other forms of its arms.
    pub(super) fn with_arms(&self, arms: Vec<Arm>) -> Result<Comparison, LockError> {
        let declared = Declared {
            base: self.base.clone(),
            treatment: self.treatment.clone(),
            seeds: self.seeds.clone(),
            again: self.again.clone(),
            grid: self.grid.clone(),
            selection: self.selection.clone(),
        };
        Comparison::new(self.name.clone(), self.source.clone(), arms, declared).map_err(no_longer)
    }

    /// What was declared, as facts of the lock.
    pub(super) fn facts(&self) -> Vec<Line> {
        let mut facts: Vec<Line> = Vec::new();
        let list = |values: &mut dyn Iterator<Item = String>| {
            format!("[{}]", values.collect::<Vec<_>>().join(", "))
        };
        for (name, seeds) in [("seeds", &self.seeds), ("again", &self.again)] {
            for (which, of) in SEED_KINDS {
                let values = &mut seeds.iter().map(|s| seed_value(of(s)).to_string());
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
        let Selection { metric, choose, per_arm } = &self.selection;
        let choose = match choose {
            Choose::Least => "least",
            Choose::Most => "most",
        };
        facts.push(("selection.choose".to_owned(), field::quote(choose)));
        facts.push(("selection.metric".to_owned(), field::quote(metric)));
        facts.push(("selection.per_arm".to_owned(), per_arm.to_string()));
        for (arm, entries) in &self.treatment {
            let values = &mut entries.iter().map(|entry| field::quote(entry));
            facts.push((format!("treatment.{arm}"), list(values)));
        }
        facts
    }

    /// The comparison that a lock's facts declare.
    pub(super) fn from_facts<'v, 'i: 'v>(
        name: String,
        source: String,
        arms: Vec<Arm>,
        facts: impl Iterator<Item = (&'v str, &'v DeValue<'i>, usize)>,
    ) -> Result<Comparison, LockError> {
        let mut seeds: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        let mut declared = Declared {
            base: String::new(),
            treatment: BTreeMap::new(),
            seeds: Vec::new(),
            again: Vec::new(),
            grid: Vec::new(),
            selection: Selection { metric: String::new(), choose: Choose::Least, per_arm: true },
        };
        for (key, value, line) in facts {
            let wrong = |why: String| error::bad_fact(line, key, &why);
            match (key.split_once('.'), value) {
                (None, DeValue::String(text)) if key == "base" => declared.base = text.to_string(),
                (Some(("seeds" | "again", _)), value) => {
                    seeds.insert(key.to_owned(), seed_list(value).map_err(wrong)?);
                }
                (Some(("grid", paths)), value) => {
                    declared.grid.push(grid_row(paths, value).map_err(wrong)?);
                }
                (Some(("selection", "metric")), DeValue::String(text)) => {
                    declared.selection.metric = text.to_string();
                }
                (Some(("selection", "choose")), DeValue::String(text)) => {
                    let most = text == "most";
                    declared.selection.choose = if most { Choose::Most } else { Choose::Least };
                }
                (Some(("selection", "per_arm")), DeValue::Boolean(per_arm)) => {
                    declared.selection.per_arm = *per_arm;
                }
                (Some(("treatment", arm)), DeValue::Array(entries)) => {
                    let text = |entry: &toml::Spanned<DeValue<'_>>| {
                        let not = || wrong(format!("{} is not a string", shown(entry.get_ref())));
                        field::string(entry.get_ref()).map(str::to_owned).ok_or_else(not)
                    };
                    let entries = entries.iter().map(text).collect::<Result<Vec<_>, _>>()?;
                    declared.treatment.insert(arm.to_owned(), entries);
                }
                (_, value) => return Err(wrong(format!("{} has no meaning here", shown(value)))),
            }
        }
        declared.seeds =
            zip_seeds(&seeds, "seeds").map_err(|(path, why)| error::bad_fact(1, &path, &why))?;
        declared.again =
            zip_seeds(&seeds, "again").map_err(|(path, why)| error::bad_fact(1, &path, &why))?;
        Comparison::new(name, source, arms, declared).map_err(no_longer)
    }
}

/// A locked comparison that its own text no longer makes.
fn no_longer(why: NoComparison) -> LockError {
    match why {
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

fn with(
    experiment: &Experiment,
    name: String,
    values: &Fields,
) -> Result<Experiment, Vec<Problem>> {
    experiment.with(name, values)
}

fn at_arm(arm: &str, problems: Vec<Problem>) -> Vec<Problem> {
    let named = |p: Problem| Problem {
        path: format!("arms.{arm}"),
        message: format!("arm `{arm}`: {}", p.message),
        ..p
    };
    problems.into_iter().map(named).collect()
}

/// A grid whose points are not the arms' to choose from, or not the points that it says.
fn unsound_grid(grid: &[Grid], selection: &Selection) -> Vec<Problem> {
    let paths: Vec<&String> = grid.iter().flat_map(|row| &row.paths).collect();
    let mut problems = Vec::new();
    for (at, path) in paths.iter().enumerate() {
        if paths.iter().take(at).any(|before| before == path) {
            let message = format!("[grid] varies `{path}` twice, and a point has one value of it");
            problems.push(Problem::new("grid", "varied-twice", message, "name it in one row only"));
        }
    }
    // How an arm is tuned may be its own matter; what it learns, how long, and how that is measured may not.
    let tunes = |path: &str| path.starts_with("optimizer.") || path.starts_with("schedule.");
    if let Some(path) = paths.iter().find(|path| selection.per_arm && !tunes(path)) {
        problems.push(Problem::new(
            "selection.per_arm",
            "chosen-apart",
            format!(
                "each arm would be judged at its own best value of `{path}`, and the arms would differ in it"
            ),
            "under [selection] write per_arm = false, which judges every arm where the base is best; only \
             optimizer and schedule fields can be each arm's own",
        ));
    }
    problems
}

/// An arm that does not report what the rule goes by.
fn unmeasured(arm: &Arm, metric: &str, grid: &[Grid]) -> Option<Problem> {
    let metrics = arm.experiment.value("evaluation.metrics");
    let Some(FieldValue::List(metrics)) = metrics else { return None };
    let metrics: Vec<String> = metrics.iter().map(FieldValue::plain).collect();
    // Where nothing is measured, nothing can be selected: of a grid, that is, which has points to select.
    if metrics.iter().any(|known| known == metric) || (metrics.is_empty() && grid.is_empty()) {
        return None;
    }
    let by = if metrics.is_empty() { "nothing".to_owned() } else { metrics.join(", ") };
    let message = format!("arm `{}` is not measured by {metric}, but by {by}", arm.name);
    let help = "choose one of these, or name it under [evaluation] metrics where the task has it";
    Some(Problem::new("selection.metric", "not-measured", message, help))
}

/// Runs that would train alike: none of them says more than the first. What is evaluated has its own
/// seed, but another sample of windows is no other training.
fn equal_seeds(seeds: &[Seeds], again: &[Seeds]) -> Vec<Problem> {
    let same = |a: &Seeds, b: &Seeds| (a.init, a.data) == (b.init, b.data);
    let mut problems = Vec::new();
    for (section, list) in [("seeds", seeds), ("again", again)] {
        let pairs = list.iter().enumerate().filter_map(|(at, seeds)| {
            Some((list.iter().take(at).position(|earlier| same(earlier, seeds))?, at, seeds))
        });
        problems.extend(pairs.map(|(first, second, Seeds { init, data, eval: _ })| {
            let message = format!(
                "places {} and {} of [{section}] both have init {init}, data {data}: one run twice, not two runs",
                first + 1,
                second + 1
            );
            Problem::new(section, "equal-seeds", message, "give each place another init or data seed")
        }));
    }
    for Seeds { init, data, eval: _ } in again.iter().filter(|a| seeds.iter().any(|s| same(s, a))) {
        let message = format!("[again] has init {init}, data {data}, which [seeds] has too");
        problems.push(Problem::new(
            "again",
            "equal-seeds",
            message,
            "give the A/A arm seeds of its own",
        ));
    }
    problems
}

/// The points of the grid; one without.
fn points(grid: &[Grid]) -> Result<Vec<Point>, Problem> {
    let mut points = vec![Point { arch: 0, fields: Fields::new(), words: Vec::new() }];
    for Grid { paths, values } in grid {
        if points.len().saturating_mul(values.len()) > MAX_POINTS {
            let message = format!("the grid has more than {MAX_POINTS} points");
            return Err(Problem::new("grid", "too-many-points", message, "make it smaller"));
        }
        points = crate::recipe::along(&points, paths, values);
    }
    Ok(points)
}

type SeedKind = (&'static str, fn(&Seeds) -> u64);

/// The three seeds by name.
const SEED_KINDS: [SeedKind; 3] =
    [("data", |s| s.data), ("eval", |s| s.eval), ("init", |s| s.init)];

fn seed_value(seed: u64) -> FieldValue {
    FieldValue::count(i128::from(seed))
}

fn seed_fields(seeds: Seeds) -> Fields {
    SEED_KINDS.iter().map(|(name, of)| (format!("seeds.{name}"), seed_value(of(&seeds)))).collect()
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

/// `seeds.init`, `seeds.data` and `seeds.eval` taken together; a list of one goes with all.
pub(crate) fn zip_seeds(
    lists: &BTreeMap<String, Vec<u64>>,
    prefix: &str,
) -> Result<Vec<Seeds>, (String, String)> {
    let list = |name: &str| lists.get(&format!("{prefix}.{name}")).map_or(&[][..], Vec::as_slice);
    let count = SEED_KINDS.iter().map(|(name, _)| list(name).len()).max().unwrap_or(0);
    for (name, _) in SEED_KINDS {
        let own = list(name).len();
        if own > 1 && own != count {
            let why = format!("it has {own} seeds, another list {count}");
            return Err((format!("{prefix}.{name}"), why));
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
                let near = field::suggest(path)
                    .map_or(String::new(), |n| format!("; did you mean `{n}`?"));
                return Err(format!("there is no field `{path}`{near}"));
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
            return Err(format!("{} stands twice", shown(item.get_ref())));
        }
        values.push(read);
    }
    if values.is_empty() {
        return Err("the list has no values".to_owned());
    }
    Ok(Grid { paths, values })
}
