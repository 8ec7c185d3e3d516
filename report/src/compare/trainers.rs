//! Who trained the runs of a comparison: engines that differ are a confound, which no treatment clears.

use std::collections::BTreeSet;

use lab::trainer::{self, FieldClass, TrainerRecord};

use super::comparison::Comparison;
use super::runs::{Arm, ArmRun, Curves, Role, pairs_of_seeds};

impl Comparison {
    /// Judges the trainers of the arms: an arm that no seed compares with the base by one trainer is not controlled, and
    /// the verdict on one that another engine trained says so.
    pub fn judge_trainers(&mut self) {
        let is_paired =
            |arm: &Arm| self.base().is_some_and(|base| !seed_pairs(base, arm).is_empty());
        let noise = self.replicate().is_some_and(is_paired);
        let all = self.arms.iter_mut().flat_map(|arm| arm.points.iter_mut().flatten());
        all.for_each(|run| run.curves.setting.noise = noise);
        let Some(base) = self.base() else { return };
        let judged: Vec<(String, Judgement)> =
            self.treated().map(|arm| (arm.name.clone(), self.judgement(base, arm))).collect();
        for (name, Judgement { mixed, engine }) in judged {
            let Some(claim) = self.proof.claims.get_mut(&name) else { continue };
            if let Some(lines) = mixed {
                claim.controlled = false;
                claim.verdict = format!(
                    "{}, which no treatment clears; by the locks alone {}",
                    lines.join(", "),
                    claim.verdict
                );
                // Times of two engines are never compared.
                let of_arm = self.arms.iter_mut().filter(|arm| arm.name == name);
                let runs = of_arm.flat_map(|arm| arm.points.iter_mut().flatten());
                runs.for_each(|run| run.curves.timed_on = None);
            } else if let Some(engine) = engine {
                claim.verdict = format!("{}; both arms trained by {engine}", claim.verdict);
            }
        }
    }

    /// What an arm is judged by: its pairs with the base at equal points, and those that the locked rule chooses.
    fn judgement(&self, base: &Arm, arm: &Arm) -> Judgement {
        let chosen = self.pairs().into_iter().filter(|pair| pair.arm.name == arm.name);
        let chosen = chosen.map(|pair| pairs_of_seeds(pair.base_runs(), pair.arm_runs()));
        let groups: Vec<_> = std::iter::once(seed_pairs(base, arm)).chain(chosen).collect();
        let of_group = |pairs: &Vec<(&ArmRun, &ArmRun)>| {
            let all: Vec<Vec<String>> = pairs.iter().map(confounds).collect();
            (!all.is_empty() && all.iter().all(|lines| !lines.is_empty())).then(|| all.concat())
        };
        let mixed: BTreeSet<String> = groups.iter().filter_map(of_group).flatten().collect();
        let runs = base.runs().chain(arm.runs());
        let engines: BTreeSet<Option<String>> =
            runs.map(|run| Some(run.curves.trainer.as_ref()?.engine_words())).collect();
        let engine = match engines.iter().collect::<Vec<_>>().as_slice() {
            [Some(engine)] => Some(engine.clone()),
            _ => None,
        };
        let mixed: Vec<String> = mixed.into_iter().collect();
        Judgement { mixed: (!mixed.is_empty()).then_some(mixed), engine }
    }

    /// The base against itself, if one trainer trained both.
    pub(super) fn replicate(&self) -> Option<&Arm> {
        let base = self.base()?;
        let alike =
            |arm: &&Arm| seed_pairs(base, arm).iter().all(|pair| confounds(pair).is_empty());
        self.arms.iter().filter(|arm| arm.role == Role::Replicate).find(alike)
    }

    /// The trainers of an arm's runs, in words.
    pub(super) fn trainers(arm: &Arm) -> BTreeSet<String> {
        arm.runs().map(|run| run.curves.trained_by()).collect()
    }

    /// A sentence for each seed that is left out because its two arms had two trainers.
    pub(super) fn mixed_seeds(&self) -> Vec<String> {
        let Some(base) = self.base() else { return Vec::new() };
        let mut warnings = Vec::new();
        if let (Some(arm), None) =
            (self.arms.iter().find(|arm| arm.role == Role::Replicate), self.replicate())
        {
            let lines: BTreeSet<String> =
                seed_pairs(base, arm).iter().flat_map(confounds).collect();
            warnings.push(format!(
                "Warning: {} does not measure the noise of {}: it was trained differently ({}).",
                arm.name,
                base.name,
                lines.into_iter().collect::<Vec<_>>().join(", ")
            ));
        }
        for arm in self.treated() {
            let pairs = seed_pairs(base, arm);
            // Then none is left out, and the arm is not controlled.
            if pairs.iter().all(|pair| !confounds(pair).is_empty()) {
                continue;
            }
            for pair in &pairs {
                let lines = confounds(pair);
                if !lines.is_empty() {
                    warnings.push(format!(
                        "Warning: seed {} of {} is left out of the differences, though its runs are in the means: its two arms \
                         were trained differently ({}).",
                        pair.0.seed + 1,
                        arm.name,
                        lines.join(", ")
                    ));
                }
            }
        }
        warnings.dedup();
        warnings
    }

    /// How many runs another engine trained, and which; `None` if canonc trained all.
    pub(super) fn trained_elsewhere(&self) -> Option<String> {
        let all: Vec<&ArmRun> = self.runs().collect();
        let elsewhere: Vec<&TrainerRecord> =
            all.iter().filter_map(|run| run.curves.trainer.as_ref()).collect();
        let engines: BTreeSet<String> = elsewhere.iter().map(|record| record.described()).collect();
        let engines: Vec<String> = engines.into_iter().collect();
        (!elsewhere.is_empty()).then(|| {
            format!(
                "{} of {} were trained elsewhere ({}): canonc evaluated their weights; their losses and gradient norms are \
                 the engine's word.",
                elsewhere.len(),
                dsl::counted(all.len(), "run"),
                engines.join("; ")
            )
        })
    }

    /// Sentences about what the runs of other engines read, and how these engines differ.
    pub(super) fn trainer_notes(&self) -> Vec<String> {
        let elsewhere = self.runs().filter_map(|run| run.curves.trainer.as_ref());
        let elsewhere: Vec<&TrainerRecord> = elsewhere.collect();
        let mut notes = Vec::new();
        let own = elsewhere.iter().filter(|record| !record.reads_canonc_windows()).count();
        if own > 0 {
            notes.push(format!(
                "Note: {} read windows by a loader of their own: that these are the lock's is the engine's word.",
                dsl::counted(own, "run")
            ));
        }
        let undigested = self.runs().filter(|run| {
            let Curves { trainer, batches, loss, .. } = &run.curves;
            trainer.is_some() && batches.len() < loss.len()
        });
        let undigested = undigested.count();
        if undigested > 0 {
            notes.push(format!(
                "Note: {} logged no digests of the windows of some steps: that arms read equal ones there is not known.",
                dsl::counted(undigested, "run")
            ));
        }
        notes.extend(self.other_trainer_differences());
        notes
    }

    /// Differences between the trainers of two arms that are no confounds.
    fn other_trainer_differences(&self) -> BTreeSet<String> {
        let Some(base) = self.base() else { return BTreeSet::new() };
        let mut lines = BTreeSet::new();
        for arm in self.treated() {
            for (one, other) in seed_pairs(base, arm) {
                let (a, b) = (one.curves.trainer.as_ref(), other.curves.trainer.as_ref());
                for difference in trainer::differences(a, b, one.curves.setting) {
                    let class = match difference.class {
                        FieldClass::Confound | FieldClass::Cosmetic => continue,
                        FieldClass::Note => "only one arm has it",
                        FieldClass::Platform => "platform",
                    };
                    let (base, arm) = (&base.name, &arm.name);
                    let line = difference.line();
                    lines.insert(format!(
                        "Note: {base} and {arm} differ in {line} ({class}: {}).",
                        difference.why
                    ));
                }
            }
        }
        lines
    }
}

/// How the trainers of an arm and of the base are judged.
struct Judgement {
    /// The confounds, where every seed has one.
    mixed: Option<Vec<String>>,
    /// The engine that trained all runs, if one did.
    engine: Option<String>,
}

/// The confounds between the trainers of a pair.
fn confounds((one, other): &(&ArmRun, &ArmRun)) -> Vec<String> {
    one.curves.confounds(&other.curves)
}

/// The pairs of equal seeds of two arms at equal points.
fn seed_pairs<'a>(base: &'a Arm, arm: &'a Arm) -> Vec<(&'a ArmRun, &'a ArmRun)> {
    let points = base.points.iter().zip(&arm.points);
    points.flat_map(|(base, arm)| pairs_of_seeds(base, arm)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::made_up::two_seeds;
    use super::super::{Design, Facts};
    use super::*;

    fn record(world: u32, version: &str) -> TrainerRecord {
        let text = format!(
            "version = 1\ndata.windows = \"canonc\"\nengine = \"pytorch\"\nengine_version = \"{version}\"\n\
             loss.terms = \"canonc\"\nmachine.gpu = \"H100\"\nmachine.gpus = 64\nprecision.compute = \"f32\"\n\
             precision.loss = \"f32\"\nprecision.master = \"f32\"\nworld = {world}\n"
        );
        TrainerRecord::parse(&text).unwrap()
    }

    /// Two seeds of two arms, with these trainers: of the base's seeds, then of the treated arm's.
    fn judged(trainers: [Option<TrainerRecord>; 4]) -> Comparison {
        let mut comparison = two_seeds();
        comparison.arms.truncate(2);
        let runs = comparison.arms.iter_mut().flat_map(|arm| arm.points.iter_mut().flatten());
        for (run, trainer) in runs.zip(trainers) {
            run.curves.trainer = trainer;
        }
        comparison.judge_trainers();
        comparison
    }

    #[test]
    fn arms_of_one_engine_are_controlled_and_the_verdict_names_it() {
        let one = || Some(record(2, "2.11.0"));
        let comparison = judged([one(), one(), one(), one()]);
        let facts = Facts::new(&comparison);
        assert_eq!(facts.design(), Design::Controlled);
        let verdict = facts.verdict();
        assert!(
            verdict.ends_with("controlled for canon; both arms trained by pytorch 2.11"),
            "{verdict}"
        );
        let wanted = "4 of 4 runs were trained elsewhere (pytorch 2.11, 64 × H100)";
        assert!(facts.caption().contains(wanted), "{}", facts.caption());
    }

    #[test]
    fn arms_of_two_engines_are_not_controlled() {
        let one = || Some(record(2, "2.11.0"));
        let comparison = judged([None, None, one(), one()]);
        let facts = Facts::new(&comparison);
        assert_eq!(facts.design(), Design::NotControlled);
        let verdict = facts.verdict();
        assert!(
            verdict.contains(
                "NOT CONTROLLED: trainer: canonc / pytorch 2.11, which no treatment clears"
            ),
            "{verdict}"
        );
        assert!(comparison.mixed_seeds().is_empty());
    }

    #[test]
    fn a_seed_of_two_trainers_is_left_out_and_named() {
        let one = |version| Some(record(2, version));
        let comparison = judged([None, one("2.11.0"), None, one("2.12.0")]);
        let facts = Facts::new(&comparison);
        assert_eq!(facts.design(), Design::Controlled);
        assert_eq!(facts.pairs[0].paired_seeds, [0]);
        let warnings = comparison.mixed_seeds();
        assert_eq!(warnings.len(), 1);
        let wanted = "Warning: seed 2 of canon is left out of the differences";
        assert!(warnings[0].starts_with(wanted), "{warnings:?}");
        assert!(warnings[0].contains("(trainer.engine_version: 2.11.0 / 2.12.0)"), "{warnings:?}");
    }

    #[test]
    fn a_difference_that_only_rounds_is_a_note() {
        let one = |world| Some(record(world, "2.11.0"));
        let comparison = judged([one(2), one(2), one(4), one(4)]);
        assert_eq!(Facts::new(&comparison).design(), Design::Controlled);
        let notes = comparison.trainer_notes();
        let wanted = "Note: llama and canon differ in trainer.world: 2 / 4 (platform";
        assert!(notes.iter().any(|note| note.starts_with(wanted)), "{notes:?}");
    }
}
