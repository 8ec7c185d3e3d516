//! An attacker with our source: edits one file of a finished run and recomputes every digest and seal above it.
//!
//! Seals and chains are computed here from the published formats, not by the code under test.

use std::fs;
use std::path::{Path, PathBuf};

use compiler::digest::Digest;
use lab::experiment::Experiment;
use records::attest::{Attestation, Circumstances};
use records::checkpoint::{self, Content, Manifest, PARTS, Part, Slot, TensorDigests};
use records::fault::Faults;
use records::job::{PLAN_TAG, plan_text};
use records::metrics::Record;
use records::run::{Paths, kernel_lines};
use records::verify::{Inputs, Remake, VerifyReport, verify};
use safetensors::SafeTensors;

use ::support::copy_folder;

use super::support::*;

/// A forged run.
pub(super) struct Forger {
    _root: Option<tempfile::TempDir>,
    pub(super) paths: Paths,
    pub(super) slots: Vec<Slot>,
}

impl Forger {
    /// Copies a run's folder.
    pub(super) fn copy(run: &Path, experiment: &Experiment) -> Forger {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("run");
        copy_folder(run, &folder);
        Forger { _root: Some(root), ..Forger::at(&folder, experiment) }
    }

    /// The run in that folder.
    pub(super) fn at(folder: &Path, experiment: &Experiment) -> Forger {
        Forger {
            _root: None,
            paths: Paths::new(folder),
            slots: checkpoint::slots(&experiment.arch.compiled.graph, &experiment.updates),
        }
    }

    pub(super) fn verify(&self) -> VerifyReport {
        verify(&self.paths.folder, Inputs::default(), Remake::Every).unwrap()
    }

    pub(super) fn checkpoint(&self, step: u64) -> PathBuf {
        self.paths.checkpoints().join(checkpoint::name_of(step))
    }

    pub(super) fn part(&self, step: u64, part: Part) -> PathBuf {
        self.checkpoint(step).join(part.file())
    }

    /// Changes only a file's bytes.
    pub(super) fn edit(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut content = bytes(path);
        change(&mut content);
        fs::write(path, content).unwrap();
    }

    /// Changes only a file's text.
    pub(super) fn retext(&self, path: &Path, change: impl FnOnce(String) -> String) {
        let before = fs::read_to_string(path).unwrap();
        let after = change(before.clone());
        assert_ne!(before, after, "the forgery changes nothing");
        fs::write(path, after).unwrap();
    }

    /// The log's lines without their chains.
    pub(super) fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(self.paths.metrics()).unwrap();
        let body = |line: &str| format!("{}}}", line.split_once(",\"chain\":").unwrap().0);
        text.lines().map(body).collect()
    }

    /// Writes the log with a valid chain, and updates checkpoints and attestation to match.
    pub(super) fn relog(&self, lines: &[String]) {
        let mut text = String::new();
        let mut before = String::new();
        for line in lines {
            before = Digest::of("canonc.metrics.v1", &format!("{before}\n{line}")).to_string();
            text += &format!("{},\"chain\":\"{before}\"}}\n", line.strip_suffix('}').unwrap());
        }
        fs::write(self.paths.metrics(), text).unwrap();
        self.correct();
    }

    /// Changes some records of the log, and updates everything above them.
    pub(super) fn records(&self, change: impl FnMut(&mut Record)) {
        let mut records: Vec<Record> =
            self.lines().iter().map(|line| Record::parse(line).unwrap()).collect();
        records.iter_mut().for_each(change);
        self.relog(&records.iter().map(Record::text).collect::<Vec<_>>());
    }

    /// The chain after each line, with the line's step; the start has step 0.
    fn heads(&self) -> Vec<(u64, Digest)> {
        let text = fs::read_to_string(self.paths.metrics()).unwrap_or_default();
        let head = |line: &str| {
            let chain = line.split_once(",\"chain\":\"").unwrap().1;
            let step = match Record::parse(line)? {
                Record::Start(_) => 0,
                Record::Step(step) => step.step,
                Record::Evaluation(evaluation) => evaluation.step,
            };
            Some((step, Digest::parse(chain.strip_suffix("\"}")?)?))
        };
        text.lines().filter_map(head).collect()
    }

    /// Makes a checkpoint's manifest agree with its files and with the log, and seals it.
    pub(super) fn remanifest(&self, step: u64, change: impl FnOnce(&mut Manifest)) {
        let folder = self.checkpoint(step);
        let Ok(mut manifest) = checkpoint::manifest(&folder) else { return };
        for part in PARTS {
            let Some(content) = self.content(&folder.join(part.file())) else { continue };
            match part {
                Part::Weights => manifest.weights = content,
                Part::FirstMoment => manifest.first_moment = content,
                Part::SecondMoment => manifest.second_moment = content,
            }
        }
        let heads = self.heads();
        if let Some((_, head)) = heads.iter().rfind(|(of, _)| *of == manifest.step) {
            manifest.chain = *head;
        }
        change(&mut manifest);
        let path = folder.join("checkpoint.toml");
        fs::write(path, sealed("canonc.checkpoint.v1", &manifest_body(&manifest))).unwrap();
    }

    /// Digests of a file, without any missing tensors.
    fn content(&self, path: &Path) -> Option<Content> {
        let bytes = fs::read(path).ok()?;
        let mut tensors = TensorDigests::default();
        if let Ok(file) = SafeTensors::deserialize(&bytes) {
            for slot in &self.slots {
                if let Ok(tensor) = file.tensor(&slot.path) {
                    tensors.add(slot, tensor.data());
                }
            }
        }
        let file = Digest::parse(&blake3::hash(&bytes).to_hex()).unwrap();
        Some(Content { bytes: bytes.len() as u64, file, tensors: tensors.finish() })
    }

    /// Rewrites an existing attestation with a change and a valid seal.
    pub(super) fn reattest(&self, change: impl FnOnce(&mut Attestation)) {
        let path = self.paths.attestation();
        let Ok(text) = fs::read_to_string(&path) else { return };
        let (mut attestation, circumstances) =
            Attestation::parse_with_circumstances(&text).unwrap();
        change(&mut attestation);
        let circumstances = Circumstances { finished: 1e9, ..circumstances };
        attestation.write(&path, circumstances, &Faults::none()).unwrap();
    }

    /// Replaces the text above the attestation's seal, and the seal.
    pub(super) fn reseal_attestation(&self, change: impl FnOnce(String) -> String) {
        self.retext(&self.paths.attestation(), |text| {
            let (body, rest) = text.split_once("\n[seal]\n").unwrap();
            let below = rest.split_once("\n[unsealed]\n").unwrap().1;
            format!(
                "{}\n[unsealed]\n{below}",
                sealed("canonc.attestation.v1", &change(body.to_owned()))
            )
        });
    }

    /// Replaces the text above a manifest's seal, and the seal.
    pub(super) fn reseal_manifest(&self, step: u64, change: impl FnOnce(String) -> String) {
        self.retext(&self.checkpoint(step).join("checkpoint.toml"), |text| {
            let body = text.split_once("\n[seal]\n").unwrap().0;
            sealed("canonc.checkpoint.v1", &change(body.to_owned()))
        });
    }

    /// Makes manifests and attestation agree with the log, the checkpoints, the plan and the kernels.
    pub(super) fn correct(&self) {
        for name in checkpoint::names(&self.paths.checkpoints()).unwrap() {
            self.remanifest(checkpoint::step_of(&name).unwrap(), |_| ());
        }
        let heads = self.heads();
        let counted = self.lines().into_iter().filter_map(|line| match Record::parse(&line)? {
            Record::Step(step) => Some(step.counted),
            Record::Start(_) | Record::Evaluation(_) => None,
        });
        let counted: u64 = counted.sum();
        let newest = checkpoint::names(&self.paths.checkpoints()).unwrap().into_iter().next();
        let last =
            newest.and_then(|name| checkpoint::manifest(&self.paths.checkpoints().join(name)).ok());
        let plan = fs::read_to_string(self.paths.plan()).unwrap_or_default();
        self.reattest(|attestation| {
            attestation.lines = heads.len() as u64;
            attestation.counted = counted;
            attestation.plan = Digest::of(PLAN_TAG, &plan);
            if let Some((_, head)) = heads.last() {
                attestation.metrics = *head;
            }
            if let Some(last) = last {
                attestation.weights = last.weights.tensors;
                attestation.first_moment = last.first_moment.tensors;
                attestation.second_moment = last.second_moment.tensors;
            }
        });
    }

    /// Changes the kernels both in the attestation and in `kernels.txt`.
    pub(super) fn kernels(
        &self,
        change: impl Fn(&mut std::collections::BTreeMap<String, std::collections::BTreeSet<String>>),
    ) {
        self.reattest(|attestation| {
            change(&mut attestation.kernels);
            fs::write(self.paths.kernels(), kernel_lines(&attestation.kernels)).unwrap();
        });
    }

    /// Replaces the run's lock, and its id everywhere.
    pub(super) fn relock(&self, other: &Experiment) {
        let before = checkpoint::manifest(&self.checkpoint(8)).unwrap().lock;
        fs::write(self.paths.lock(), lock_text(other)).unwrap();
        fs::write(self.paths.plan(), plan_text(other).unwrap()).unwrap();
        // A change that the training id does not cover leaves the checkpoints unchanged.
        if before != other.id() {
            for step in [6, 8] {
                for part in PARTS {
                    self.header(step, part, |json| {
                        json.replace(&before.to_string(), &other.id().to_string())
                    });
                }
                self.remanifest(step, |manifest| manifest.lock = other.id());
            }
        }
        self.reattest(|attestation| {
            attestation.lock = other.digests.train;
            attestation.eval = other.digests.eval;
            attestation.platform = other.digests.platform;
        });
        self.records(|record| {
            if let Record::Start(start) = record {
                start.lock = other.digests.train;
                start.eval = other.digests.eval;
            }
        });
    }

    /// Changes the header of a part's file and updates its length.
    pub(super) fn header(&self, step: u64, part: Part, change: impl FnOnce(String) -> String) {
        self.edit(&self.part(step, part), |content| {
            let length = u64::from_le_bytes(content[..8].try_into().unwrap()) as usize;
            let json = String::from_utf8(content[8..8 + length].to_vec()).unwrap();
            let mut changed = change(json.clone());
            assert_ne!(json, changed, "the forgery changes nothing");
            while !changed.len().is_multiple_of(8) {
                changed.push(' ');
            }
            let mut forged = (changed.len() as u64).to_le_bytes().to_vec();
            forged.extend(changed.into_bytes());
            forged.extend(&content[8 + length..]);
            *content = forged;
        });
    }

    /// Changes a tensor and updates every digest except those of tensors.
    pub(super) fn keep_tensors(&self, step: u64, part: Part) {
        let kept = checkpoint::manifest(&self.checkpoint(step)).unwrap();
        self.flip(step, part);
        self.remanifest(step, |manifest| {
            manifest.weights.tensors = kept.weights.tensors;
            manifest.first_moment.tensors = kept.first_moment.tensors;
            manifest.second_moment.tensors = kept.second_moment.tensors;
        });
    }

    /// Changes one number of a part's last tensor.
    pub(super) fn flip(&self, step: u64, part: Part) {
        self.edit(&self.part(step, part), |content| {
            let last = content.len() - 2;
            content[last] ^= 0x10;
        });
    }
}

fn sealed(tag: &str, body: &str) -> String {
    format!("{body}\n[seal]\ndigest = \"{}\"\n", Digest::of(tag, body))
}

fn manifest_body(manifest: &Manifest) -> String {
    let Manifest { lock, step, chain, .. } = manifest;
    let mut body = format!(
        "# @generated by canonc: a state of a run. The seal is over the text above it.\n\
         version = 1\nlock = \"{lock}\"\nstep = {step}\nchain = \"{chain}\"\n"
    );
    for part in PARTS {
        let Content { bytes, file, tensors } = manifest.content(part);
        let name = part.name();
        body +=
            &format!("\n[{name}]\nbytes = {bytes}\nfile = \"{file}\"\ntensors = \"{tensors}\"\n");
    }
    body
}
