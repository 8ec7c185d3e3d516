//! A comparison: arms, a declared treatment, seeds, a nuisance grid, and every run they make.
//!
//! A comparison is locked only if it is controlled for its treatment at every point of its grid, and its arms are matched as
//! it declares. Every arm gets the same seeds and the same grid; the A/A arm is the base with other seeds and nothing else.

mod analysis;
mod facts;
mod matched;
mod order;
mod sound;

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{FieldProblem, LockError};
use crate::experiment::{Experiment, Seeds};
use crate::field::{FieldValue, Fields};
use crate::grid::{MAX_POINTS, Point, along};
use crate::verdict::{Outcome, Refusal, Side, Trainer, Verdict, controlled};
use compiler::digest::Digest;
use facts::no_longer;
use sound::{equal_seeds, unjudged, unmeasured, unsound_grid};

pub use analysis::{Analysis, DeclaredAnalysis, Stop};
pub(crate) use facts::{grid_row, seed_list, zip_seeds};
pub use matched::{Match, MatchScope, Matched, Quantity};
pub use sound::tunes;

const TAG: &str = "canonc.comparison.v1";

/// A resolved comparison.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Name of the lock.
    pub name: String,
    /// The comparison file it was made from; in no digest.
    pub source: String,
    /// The arm that the others are compared with.
    pub base: String,
    /// Arms by name, each with the first seeds and the first point of the grid.
    pub arms: Vec<Arm>,
    /// The declared treatment of each arm except the base.
    pub treatment: BTreeMap<String, Vec<String>>,
    /// Seeds of all arms, one entry for each repetition.
    pub seeds: Vec<Seeds>,
    /// Seeds of the A/A arm. Each is paired with one of `seeds`, starting from the first.
    pub replicate: Vec<Seeds>,
    /// Fields that vary in every arm; the points are the product of all entries.
    pub grid: Vec<Grid>,
    /// How the point at which arms are judged is chosen.
    pub selection: Selection,
    /// How the runs are analysed.
    pub analysis: Analysis,
    /// The quantity in which the arms must be matched, if any.
    pub matching: Option<Match>,
    /// Which arms are matched, and by what.
    pub scope: MatchScope,
    /// The declared trainer of the arms.
    pub trainer: Trainer,
    /// The verdict of each arm except the base: controlled, or a bundle.
    pub verdicts: BTreeMap<String, Verdict>,
    /// For each arm except the base, if matching is declared: the values of both at the first point of the grid.
    pub matched: BTreeMap<String, Matched>,
    declared_analysis: DeclaredAnalysis,
    runs: Vec<ComparisonRun>,
}

/// One arm of a comparison.
#[derive(Clone, Debug)]
pub struct Arm {
    /// Name in the comparison file.
    pub name: String,
    /// The experiment, with the first seeds and the first point of the grid.
    pub experiment: Experiment,
}

/// Fields that vary together, in the same way in every arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// The fields.
    pub paths: Vec<String>,
    /// Values of these fields, one list for each step of the grid.
    pub values: Vec<Vec<FieldValue>>,
}

/// Selects the grid point at which an arm is judged: the best mean over seeds at the last evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The metric that decides.
    pub metric: String,
    /// Whether small or large values are better.
    pub mode: SelectionMode,
    /// If true, each arm is judged at its own best point; else all at the base's best point.
    pub per_arm: bool,
}

/// Which value of a metric is best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectionMode {
    /// The smallest.
    Min,
    /// The largest.
    Max,
}

/// The role of a run in its comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The arm that others are compared with.
    Base,
    /// An arm that differs from the base in its treatment.
    Treatment,
    /// The base with other seeds: its distance from the base measures noise.
    Replicate,
}

/// One run of a comparison.
#[derive(Clone, Debug)]
pub struct ComparisonRun {
    /// Name of the arm.
    pub arm: String,
    /// Role of the arm.
    pub role: Role,
    /// Index in the list of seeds. Runs with the same index are paired.
    pub seed: usize,
    /// Index in the grid.
    pub point: usize,
    /// The experiment with this run's seeds and grid values.
    pub experiment: Experiment,
}

/// The reasons why a comparison cannot be made.
#[derive(Debug)]
pub enum NoComparison {
    /// An arm or a value is wrong; each problem gives its path in the comparison file.
    Problems(Vec<FieldProblem>),
    /// The treatment of an arm is invalid.
    Treatment(String, Refusal),
    /// An arm differs from the base in more than its treatment.
    Confounded(String, Box<Verdict>),
}

/// The declarations of a comparison file, without its arms.
#[derive(Clone, Debug)]
pub struct Declared {
    /// Name of the base arm.
    pub base: String,
    /// The declared treatment of each arm except the base.
    pub treatment: BTreeMap<String, Vec<String>>,
    /// Seeds of all arms, one entry for each repetition.
    pub seeds: Vec<Seeds>,
    /// Seeds of the A/A arm.
    pub replicate: Vec<Seeds>,
    /// Fields that vary in every arm.
    pub grid: Vec<Grid>,
    /// How the point at which arms are judged is chosen.
    pub selection: Selection,
    /// The values in `[analysis]`.
    pub analysis: DeclaredAnalysis,
    /// The quantity in which the arms must be matched, if any.
    pub matching: Option<Match>,
    /// Which arms are matched, and by what.
    pub scope: MatchScope,
    /// The declared trainer of the arms.
    pub trainer: Trainer,
}

impl Declared {
    /// The analysis with neutral values filled in, if these arms can be judged as declared.
    fn sound_analysis(&self, arms: &[Arm]) -> Result<Analysis, NoComparison> {
        let Declared { seeds, replicate, grid, selection, analysis, .. } = self;
        let drawn = arms.iter().all(|arm| arm.experiment.draws_weights());
        let mut unsound = equal_seeds(seeds, replicate, drawn);
        unsound.extend(unsound_grid(grid, selection));
        unsound.extend(arms.iter().filter_map(|arm| unmeasured(arm, &selection.metric, grid)));
        unsound.extend(analysis.unsound(selection, seeds.len(), grid));
        let analysis = analysis.resolve(selection, seeds.len());
        unsound.extend(arms.iter().flat_map(|arm| unjudged(arm, &analysis, selection)));
        if !unsound.is_empty() {
            return Err(NoComparison::Problems(unsound));
        }
        Ok(analysis)
    }
}

/// The arms of the comparison `name` with these values, sorted by name.
fn settle(arms: Vec<Arm>, name: &str, values: &Fields) -> Result<Vec<Arm>, NoComparison> {
    let mut problems = Vec::new();
    let mut settled = Vec::new();
    for Arm { name: arm, experiment } in arms {
        match with(&experiment, format!("{name}-{arm}"), values) {
            Ok(experiment) => settled.push(Arm { name: arm, experiment }),
            Err(refused) => problems.extend(at_arm(&arm, refused)),
        }
    }
    if !problems.is_empty() {
        return Err(NoComparison::Problems(problems));
    }
    settled.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(settled)
}

impl Comparison {
    /// Builds the arms' runs and proves that each arm differs from the base in its treatment only.
    pub fn new(
        name: String,
        source: String,
        arms: Vec<Arm>,
        declared: Declared,
    ) -> Result<Comparison, NoComparison> {
        let analysis = declared.sound_analysis(&arms)?;
        let Declared {
            base,
            treatment,
            seeds,
            replicate,
            grid,
            selection,
            analysis: declared_analysis,
            matching,
            scope,
            trainer,
        } = declared;
        let points = points(&grid).map_err(|p| NoComparison::Problems(vec![p]))?;
        let first = seeds.first().copied().unwrap_or(Seeds { init: 0, data: 0, eval: 0 });
        let mut values = points.first().map_or_else(Fields::new, |point| point.fields.clone());
        values.extend(seed_fields(first));
        let settled = settle(arms, &name, &values)?;
        let mut comparison = Comparison {
            name,
            source,
            base,
            arms: settled,
            treatment,
            seeds,
            replicate,
            grid,
            selection,
            analysis,
            declared_analysis,
            matching,
            scope,
            trainer,
            verdicts: BTreeMap::new(),
            matched: BTreeMap::new(),
            runs: Vec::new(),
        };
        comparison.verdicts = comparison.judge()?;
        let alike = sound::alike(&comparison.base, &comparison.arms);
        if !alike.is_empty() {
            return Err(NoComparison::Problems(alike));
        }
        comparison.runs = comparison.make_runs(&points).map_err(NoComparison::Problems)?;
        comparison.judge_elsewhere()?;
        comparison.matched = comparison.match_arms().map_err(NoComparison::Problems)?;
        comparison.check_compensation().map_err(NoComparison::Problems)?;
        Ok(comparison)
    }

    /// The verdict of an arm other than the base, with the quantity that is matched.
    pub fn headline(&self, arm: &str) -> String {
        let verdict = match (self.matching, self.verdicts.get(arm)) {
            (_, None) => String::new(),
            (Some(matching), Some(verdict)) if self.is_compensated(arm) => {
                verdict.compensated(&self.scope.compensate, matching.on.called())
            }
            (Some(_) | None, Some(verdict)) => verdict.headline(),
        };
        match (self.matching, self.matched.get(arm)) {
            (Some(matching), Some(matched)) => format!("{verdict}; {}", matched.text(matching)),
            (Some(_) | None, Some(_) | None) => verdict,
        }
    }

    /// What an arm may differ in: its treatment, and what compensates for it.
    pub fn entries(&self, arm: &str) -> Vec<String> {
        let mut entries = self.treatment.get(arm).cloned().unwrap_or_default();
        if self.matching.is_some() && self.scope.covers(arm) {
            entries.extend(self.scope.compensate.iter().cloned());
        }
        entries
    }

    /// Whether an arm has one factor beside what compensates for it.
    pub fn is_compensated(&self, arm: &str) -> bool {
        let compensates = |entry: &str| self.scope.compensate.iter().any(|known| known == entry);
        let Some(verdict) = self.verdicts.get(arm).filter(|_| self.matching.is_some()) else {
            return false;
        };
        let (sizes, treated): (Vec<_>, Vec<_>) =
            verdict.treatment.iter().partition(|declared| compensates(&declared.entry));
        let factors = treated.iter().map(|declared| declared.factors).sum::<usize>();
        verdict.is_controlled() && !sizes.is_empty() && factors == 1
    }

    /// Checks that every arm except the base is controlled.
    fn judge(&self) -> Result<BTreeMap<String, Verdict>, NoComparison> {
        let Some(base) = self.arm(&self.base) else {
            let message = format!("`{}` is not an arm", self.base);
            let problem = FieldProblem::new("base", "no-such-arm", message, "name one of the arms");
            return Err(NoComparison::Problems(vec![problem]));
        };
        let mut verdicts = BTreeMap::new();
        for arm in self.arms.iter().filter(|arm| arm.name != self.base) {
            let treatment = self.entries(&arm.name);
            let sides =
                [Side::arm(&base.name, &base.experiment), Side::arm(&arm.name, &arm.experiment)]
                    .map(|side| side.run_by(self.trainer));
            let judged = controlled(&sides[0], &sides[1], &treatment);
            let declared = self.treatment.get(&arm.name).cloned().unwrap_or_default();
            if let (Err(refusal), true) = (&judged, treatment.len() > declared.len())
                && controlled(&sides[0], &sides[1], &declared).is_ok()
            {
                let message = format!("compensate in arm `{}`: {}", arm.name, refusal.message);
                let help = format!(
                    "{}; or name the arms that have it: arms = [\"…\"] under [match]",
                    refusal.help
                );
                let problem = FieldProblem::new("match", "no-compensation", message, help);
                return Err(NoComparison::Problems(vec![problem]));
            }
            let verdict =
                judged.map_err(|refusal| NoComparison::Treatment(arm.name.clone(), refusal))?;
            if !verdict.is_controlled() {
                return Err(NoComparison::Confounded(arm.name.clone(), Box::new(verdict)));
            }
            verdicts.insert(arm.name.clone(), verdict);
        }
        Ok(verdicts)
    }

    /// Checks the other grid points. The first point's verdict applies to each point where the arms differ in the
    /// same lines. Elsewhere a coincidental equality no longer holds, so the arms are judged again.
    fn judge_elsewhere(&mut self) -> Result<(), NoComparison> {
        let mut wider = Vec::new();
        for arm in self.verdicts.keys() {
            let mut known = None;
            for (base, run) in self.first_seeds(arm) {
                let differing = differing(&base.experiment, &run.experiment);
                if *known.get_or_insert_with(|| differing.clone()) == differing {
                    continue;
                }
                let [of_base, of_arm] = [base, run].map(|run| run.experiment.name.as_str());
                let sides =
                    [Side::arm(of_base, &base.experiment), Side::arm(of_arm, &run.experiment)]
                        .map(|side| side.run_by(self.trainer));
                let treatment = self.entries(arm);
                let verdict = controlled(&sides[0], &sides[1], &treatment).map_err(|refusal| {
                    let message = format!("in {of_arm}: {}", refusal.message);
                    NoComparison::Treatment(arm.clone(), Refusal { message, ..refusal })
                })?;
                if !verdict.is_controlled() {
                    return Err(NoComparison::Confounded(arm.clone(), Box::new(verdict)));
                }
                wider.push((arm.clone(), verdict));
            }
        }
        // Of several verdicts, keep the one with the most factors: it holds everywhere.
        for (arm, verdict) in wider {
            let known = self.verdicts.get(&arm).map_or(0, factors);
            if factors(&verdict) > known {
                self.verdicts.insert(arm, verdict);
            }
        }
        Ok(())
    }

    /// The runs of base and arm with the first seeds, at each point of the grid.
    fn first_seeds<'c>(
        &'c self,
        arm: &'c str,
    ) -> impl Iterator<Item = (&'c ComparisonRun, &'c ComparisonRun)> {
        let runs =
            move |role: Role| self.runs.iter().filter(move |r| r.role == role && r.seed == 0);
        // Both are in the order of the points.
        runs(Role::Base).zip(runs(Role::Treatment).filter(move |run| run.arm == arm))
    }

    /// Checks the matching of each arm at every point of the grid.
    fn match_arms(&self) -> Result<BTreeMap<String, Matched>, Vec<FieldProblem>> {
        let (mut matched, mut problems) = (BTreeMap::new(), Vec::new());
        let Some(matching) = self.matching else { return Ok(matched) };
        for arm in self.verdicts.keys().filter(|arm| self.scope.covers(arm)) {
            for (base, run) in self.first_seeds(arm) {
                let sides = [(base.arm.as_str(), &base.experiment), (arm, &run.experiment)];
                let point = Some(run.experiment.name.as_str()).filter(|_| !self.grid.is_empty());
                match matching.check(sides, point) {
                    Ok(values) => {
                        matched.entry(arm.clone()).or_insert(values);
                    }
                    Err(problem) => {
                        problems.push(problem);
                        break;
                    }
                }
            }
        }
        if problems.is_empty() { Ok(matched) } else { Err(problems) }
    }

    /// Checks that what is said to compensate does.
    fn check_compensation(&self) -> Result<(), Vec<FieldProblem>> {
        let (Some(matching), Some(base)) = (self.matching, self.arm(&self.base)) else {
            return Ok(());
        };
        let arms = self.verdicts.iter().filter(|(arm, _)| self.scope.covers(arm));
        let sizes = arms.flat_map(|(name, verdict)| {
            let entries = verdict.treatment.iter();
            let sizes = entries.filter(|entry| self.scope.compensate.contains(&entry.entry));
            sizes.filter_map(move |entry| Some((self.arm(name)?, entry)))
        });
        let problems: Vec<FieldProblem> = sizes
            .filter_map(|(arm, entry)| {
                let arm = (arm.name.as_str(), &arm.experiment);
                matching.check_compensates(&base.experiment, arm, entry).err()
            })
            .collect();
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    fn arm(&self, name: &str) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.name == name)
    }

    /// The base first, then the other arms, then the A/A arm; each by grid point, then by
    /// seed.
    fn make_runs(&self, points: &[Point]) -> Result<Vec<ComparisonRun>, Vec<FieldProblem>> {
        let base = |arm: &&Arm| arm.name == self.base;
        let ordered = self.arms.iter().filter(base).map(|arm| (arm, Role::Base, &self.seeds));
        let others = self.arms.iter().filter(|arm| !base(arm));
        let others = others.map(|arm| (arm, Role::Treatment, &self.seeds));
        let replicate =
            self.arms.iter().filter(base).map(|arm| (arm, Role::Replicate, &self.replicate));
        let (mut runs, mut problems) = (Vec::new(), Vec::new());
        let mut taken: BTreeSet<String> = BTreeSet::new();
        for (arm, role, seeds) in ordered.chain(others).chain(replicate) {
            for (point, index) in points.iter().zip(0..) {
                for (seed, number) in seeds.iter().zip(0..) {
                    let mut words = vec![self.name.clone(), arm.name.clone()];
                    words.extend((role == Role::Replicate).then(|| "replicate".to_owned()));
                    words.extend(point.words.iter().cloned());
                    words.push(format!("seed{}", number + 1));
                    let mut values = point.fields.clone();
                    values.extend(seed_fields(*seed));
                    // Long values are shortened in names, which can then collide.
                    let name = words.join("-");
                    let mut unique = name.clone();
                    let mut again = 2;
                    while !taken.insert(unique.to_lowercase()) {
                        unique = format!("{name}-{again}");
                        again += 1;
                    }
                    match with(&arm.experiment, unique, &values) {
                        Ok(experiment) => runs.push(ComparisonRun {
                            arm: arm.name.clone(),
                            role,
                            seed: number,
                            point: index,
                            experiment,
                        }),
                        Err(refused) => problems.extend(at_arm(&arm.name, refused)),
                    }
                }
            }
        }
        if problems.is_empty() { Ok(runs) } else { Err(problems) }
    }

    /// Every run, in order. Each run's lock is named like its experiment.
    pub fn runs(&self) -> Vec<&ComparisonRun> {
        self.runs.iter().collect()
    }

    /// The id: the digest of what is declared, the verdicts and the ids of all runs.
    pub fn id(&self) -> Digest {
        let text: String = self.own_sections().iter().map(|section| section.lines()).collect();
        Digest::of(TAG, &text)
    }

    /// The same comparison with other versions of its arms.
    pub(super) fn with_arms(&self, arms: Vec<Arm>) -> Result<Comparison, LockError> {
        let declared = Declared {
            base: self.base.clone(),
            treatment: self.treatment.clone(),
            seeds: self.seeds.clone(),
            replicate: self.replicate.clone(),
            grid: self.grid.clone(),
            selection: self.selection.clone(),
            analysis: self.declared_analysis.clone(),
            matching: self.matching,
            scope: self.scope.clone(),
            trainer: self.trainer,
        };
        Comparison::new(self.name.clone(), self.source.clone(), arms, declared).map_err(no_longer)
    }
}

fn factors(verdict: &Verdict) -> usize {
    match verdict.outcome {
        Outcome::Identical => 0,
        Outcome::Controlled => 1,
        Outcome::Bundle(n) | Outcome::Confounded(n) => n,
    }
}

/// The identifying and measured lines that only one of the two has.
fn differing(a: &Experiment, b: &Experiment) -> (BTreeSet<String>, BTreeSet<String>) {
    let lines = |experiment: &Experiment| -> BTreeSet<String> {
        let text = experiment.train_text() + &experiment.eval_text();
        text.lines().filter(|line| !line.starts_with("train = ")).map(str::to_owned).collect()
    };
    let (a, b) = (lines(a), lines(b));
    (a.difference(&b).cloned().collect(), b.difference(&a).cloned().collect())
}

fn with(
    experiment: &Experiment,
    name: String,
    values: &Fields,
) -> Result<Experiment, Vec<FieldProblem>> {
    experiment.with(name, values)
}

fn at_arm(arm: &str, problems: Vec<FieldProblem>) -> Vec<FieldProblem> {
    let named = |p: FieldProblem| FieldProblem {
        path: format!("arms.{arm}"),
        message: format!("arm `{arm}`: {}", p.message),
        ..p
    };
    problems.into_iter().map(named).collect()
}

/// The points of the grid; a single one without a grid.
fn points(grid: &[Grid]) -> Result<Vec<Point>, FieldProblem> {
    let mut points = vec![Point { arch: 0, fields: Fields::new(), words: Vec::new() }];
    for Grid { paths, values } in grid {
        if points.len().saturating_mul(values.len()) > MAX_POINTS {
            let message = format!("the grid has more than {MAX_POINTS} points");
            return Err(FieldProblem::new("grid", "too-many-points", message, "make it smaller"));
        }
        points = along(&points, paths, values);
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
