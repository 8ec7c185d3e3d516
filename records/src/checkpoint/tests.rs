//! Checkpoints of two small tensors, damaged in every way that a disk or a person can damage them.

use std::fs;
use std::path::PathBuf;

use compiler::digest::Digest;
use dsl::Problem;
#[cfg(target_os = "linux")]
use dsl::ProblemKind;

use super::*;
use crate::fault::Faults;
#[cfg(target_os = "linux")]
use crate::run::Refusal;

fn lock() -> Digest {
    Digest::of("test", "lock")
}

fn chain(step: u64) -> Digest {
    Digest::of("chain", &step.to_string())
}

fn slots() -> Vec<Slot> {
    vec![
        Slot { path: "embed".to_owned(), shape: vec![3, 2], moments: 2 },
        Slot { path: "layers.0.norm".to_owned(), shape: vec![2], moments: 2 },
    ]
}

/// The tensor bytes of a part at step `step`.
fn bytes(step: u64, part: Part, index: usize) -> Vec<u8> {
    let count = slots()[index].elements();
    let first = 100.0 * step as f32 + 10.0 * part as u8 as f32;
    (0..count).flat_map(|at| (first + at as f32).to_le_bytes()).collect()
}

struct Folder {
    root: tempfile::TempDir,
    store: Store,
}

impl Folder {
    fn new() -> Folder {
        let root = tempfile::tempdir().unwrap();
        let store = Store::new(root.path().to_owned(), lock(), slots());
        Folder { root, store }
    }

    fn with(steps: &[u64]) -> Folder {
        let mut folder = Folder::new();
        for step in steps {
            folder.save(*step).unwrap();
        }
        folder
    }

    fn save(&mut self, step: u64) -> Result<Manifest, Problem> {
        save(&mut self.store, step, step, &Faults::none())
    }

    fn path(&self, step: u64, file: &str) -> PathBuf {
        self.root.path().join(name_of(step)).join(file)
    }

    /// From the next process's view: the step found, and why others were refused.
    fn find(&self) -> Result<(Option<u64>, Vec<String>), Problem> {
        let mut store = Store::new(self.root.path().to_owned(), lock(), slots());
        let (found, refused) = store.find(|_| true)?;
        if let Some(found) = &found {
            let step = found.manifest.step;
            let mut seen = Vec::new();
            store
                .load(found, &mut |part, index, loaded| {
                    assert_eq!(loaded, bytes(step, part, index));
                    seen.push((part, index));
                    Ok(())
                })
                .unwrap();
            assert_eq!(seen.len(), 6);
        }
        let refused = refused.into_iter().map(|Refused { name, why }| format!("{name}: {why}"));
        Ok((found.map(|found| found.manifest.step), refused.collect()))
    }
}

fn save(store: &mut Store, step: u64, content: u64, faults: &Faults) -> Result<Manifest, Problem> {
    let mut read = |part: Part, index: usize, out: &mut Vec<u8>| {
        out.extend(bytes(content, part, index));
        Ok(())
    };
    store.save(step, chain(step), &mut read, faults)
}

#[test]
fn what_is_saved_is_found_and_loaded() {
    let folder = Folder::with(&[5, 10]);
    assert_eq!(folder.find().unwrap(), (Some(10), vec![]));
    let manifest = verify(&folder.root.path().join(name_of(10)), &slots()).unwrap();
    assert_eq!((manifest.step, manifest.chain, manifest.lock), (10, chain(10), lock()));
    assert_eq!(latest(folder.root.path()).unwrap().unwrap(), "step-0000000010");
    assert_eq!(Folder::new().find().unwrap(), (None, vec![]));
}

#[test]
fn equal_tensors_give_equal_files_that_other_readers_read() {
    let (one, two) = (Folder::with(&[5]), Folder::with(&[5]));
    for file in ["weights.safetensors", "first_moment.safetensors", "checkpoint.toml"] {
        assert_eq!(fs::read(one.path(5, file)).unwrap(), fs::read(two.path(5, file)).unwrap());
    }
    let file = fs::read(one.path(5, "weights.safetensors")).unwrap();
    let read = safetensors::SafeTensors::deserialize(&file).unwrap();
    assert_eq!(read.tensor("embed").unwrap().shape(), [3, 2]);
    assert_eq!(read.tensor("embed").unwrap().data(), bytes(5, Part::Weights, 0));
    // A digest of tensors covers their paths, shapes and bytes, and not the file.
    let hash = |index| {
        let tagged = [&b"canonc.tensor.v1\n"[..], &bytes(5, Part::Weights, index)].concat();
        blake3::hash(&tagged)
    };
    let text = format!("embed f32 [3, 2] {}\nlayers.0.norm f32 [2] {}\n", hash(0), hash(1));
    let manifest = verify(&one.root.path().join(name_of(5)), &slots()).unwrap();
    assert_eq!(manifest.weights.tensors, Digest::of("canonc.tensors.v1", &text));
}

/// The first page of this process is never mapped, so its file gives EIO, as a failing disk does.
#[cfg(target_os = "linux")]
#[test]
fn what_the_disk_cannot_read_is_neither_refused_nor_replaced() {
    let left = |folder: &Folder| {
        let entries = fs::read_dir(folder.root.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    for file in [MANIFEST, "weights.safetensors", "second_moment.safetensors"] {
        let mut folder = Folder::with(&[5, 10]);
        let (path, whole) = (folder.path(10, file), folder.root.path().join("whole"));
        fs::rename(&path, &whole).unwrap();
        std::os::unix::fs::symlink("/proc/self/mem", &path).unwrap();
        let before = left(&folder);
        let checkpoint = folder.root.path().join(name_of(10));
        let Err(Refusal::Unread(_)) = verify(&checkpoint, &slots()) else { panic!("{file}") };
        for error in [folder.find().unwrap_err(), folder.save(10).unwrap_err()] {
            assert_eq!(error.kind, ProblemKind::Machine, "{error}");
            assert!(
                error.message.contains(file) && error.message.contains("os error 5"),
                "{error}"
            );
        }
        assert!(folder.store.kept(|_| true).is_err(), "{file}");
        assert_eq!(left(&folder), before, "{file}");
        // The same checkpoint, once the disk reads it again.
        fs::rename(&whole, &path).unwrap();
        assert_eq!(folder.find().unwrap(), (Some(10), vec![]));
    }
}

#[test]
fn a_state_that_was_evaluated_after_it_was_saved_gets_the_chain_after_that() {
    let mut folder = Folder::with(&[5, 10]);
    let checkpoint = folder.root.path().join(name_of(10));
    let saved = verify(&checkpoint, &slots()).unwrap();
    let now = folder.store.rechain(&saved, chain(11)).unwrap();
    assert_eq!(now, Manifest { chain: chain(11), ..saved.clone() });
    assert_eq!(verify(&checkpoint, &slots()).unwrap(), now);
    let left: Vec<_> = fs::read_dir(folder.root.path()).unwrap().map(Result::unwrap).collect();
    assert_eq!(left.len(), 3, "two checkpoints and the pointer: {left:?}");
    // Saved again, with the same tensors: the log of the process that saves is the one that counts.
    folder.save(10).unwrap();
    assert_eq!(verify(&checkpoint, &slots()).unwrap(), saved);
    assert_eq!(fs::read_dir(folder.root.path()).unwrap().count(), 3);
}

fn kept(count: usize) -> Kept {
    Kept { count, every: 5, last: 100 }
}

#[test]
fn those_of_stops_take_the_place_of_no_regular_one() {
    let mut folder = Folder::with(&[5, 10, 12, 13, 14]);
    folder.store.prune(kept(2), &Faults::none()).unwrap();
    assert_eq!(folder.store.names().unwrap(), [14, 13, 10, 5].map(name_of));
    folder.save(15).unwrap();
    folder.store.prune(kept(2), &Faults::none()).unwrap();
    assert_eq!(folder.store.names().unwrap(), [15, 14, 10].map(name_of));
    folder.save(20).unwrap();
    folder.store.prune(kept(2), &Faults::none()).unwrap();
    assert_eq!(folder.store.names().unwrap(), [20, 15].map(name_of));
}

#[test]
fn old_ones_go_and_two_that_verify_stay() {
    let mut folder = Folder::with(&[5, 10, 15, 20]);
    folder.store.prune(kept(0), &Faults::none()).unwrap();
    assert_eq!(folder.store.names().unwrap(), [name_of(20), name_of(15)]);
    folder.save(25).unwrap();
    // One of the two newest is broken before a new process prunes, so three stay.
    fs::write(folder.path(20, "weights.safetensors"), "").unwrap();
    let mut store = Store::new(folder.root.path().to_owned(), lock(), slots());
    store.prune(kept(2), &Faults::none()).unwrap();
    assert_eq!(store.names().unwrap(), [name_of(25), name_of(20), name_of(15)]);
    store.prune(kept(3), &Faults::none()).unwrap();
    assert_eq!(store.names().unwrap().len(), 3);
}

#[test]
fn what_a_process_left_before_it_pruned_goes_with_the_next_start() {
    let mut folder = Folder::with(&[5, 10, 15, 20]);
    // The run resumes from 15: 20 was refused or never announced.
    folder.store.prune_older(&name_of(15), kept(2), &Faults::none()).unwrap();
    assert_eq!(folder.store.names().unwrap(), [name_of(20), name_of(15), name_of(10)]);
}

#[test]
fn a_folder_that_cannot_be_synced_is_what_the_error_says() {
    let mut folder = Folder::with(&[5]);
    let faults = Faults::parse("checkpoint-sync-full").unwrap();
    let mut read = |part, index, out: &mut Vec<u8>| {
        out.extend(bytes(10, part, index));
        Ok(())
    };
    let error = folder.store.save(10, chain(10), &mut read, &faults).unwrap_err();
    assert!(error.message.contains("disk is full"), "{error}");
    // It has its name, and a later save finds it there.
    folder.save(10).unwrap();
    assert_eq!(folder.store.names().unwrap(), [name_of(10), name_of(5)]);
}

#[test]
fn a_newer_one_that_was_never_announced_is_passed_over_and_written_again() {
    let mut folder = Folder::with(&[5, 10]);
    fs::write(folder.root.path().join("latest"), "step-0000000005\n").unwrap();
    assert_eq!(folder.find().unwrap(), (Some(5), vec![]));
    let first = verify(&folder.root.path().join(name_of(10)), &slots()).unwrap();
    assert_eq!(folder.save(10).unwrap(), first);
    assert_eq!(folder.find().unwrap(), (Some(10), vec![]));
    // The same step with another result is a finding, and the old checkpoint stays.
    let error = save(&mut folder.store, 10, 11, &Faults::none()).unwrap_err();
    assert_eq!(error.kind, dsl::ProblemKind::Finding);
    assert!(error.message.contains("had another result before: its weights were"), "{error}");
    assert_eq!(folder.find().unwrap(), (Some(10), vec![]));
}

#[test]
fn pointers_that_point_nowhere_are_said_and_survived() {
    for (pointer, expected) in [
        ("", "latest: it does not name a checkpoint"),
        ("step-00000", "latest: it does not name a checkpoint"),
        ("../../etc\n", "latest: it does not name a checkpoint"),
        ("step-0000000099\n", "step-0000000099: `latest` names it, but it does not exist"),
    ] {
        let folder = Folder::with(&[5, 10]);
        fs::write(folder.root.path().join("latest"), pointer).unwrap();
        let (found, refused) = folder.find().unwrap();
        assert_eq!(found, Some(10));
        assert!(refused[0].starts_with(expected), "{refused:?}");
    }
    let folder = Folder::with(&[5]);
    fs::remove_file(folder.root.path().join("latest")).unwrap();
    assert_eq!(folder.find().unwrap(), (Some(5), vec![]));
}

#[test]
fn damage_falls_back_with_a_reason_and_is_repaired_by_the_next_save() {
    type Damage = fn(&Folder);
    let cases: [(&str, Damage); 7] = [
        ("weights.safetensors has 0 bytes", |folder| {
            fs::write(folder.path(10, "weights.safetensors"), "").unwrap();
        }),
        ("first_moment.safetensors is missing", |folder| {
            fs::remove_file(folder.path(10, "first_moment.safetensors")).unwrap();
        }),
        ("checkpoint.toml: ", |folder| {
            fs::remove_file(folder.path(10, "checkpoint.toml")).unwrap()
        }),
        ("it contains `extra`", |folder| fs::write(folder.path(10, "extra"), "").unwrap()),
        ("it belongs to step 5", |folder| {
            for file in ["weights.safetensors", "first_moment.safetensors"] {
                fs::copy(folder.path(5, file), folder.path(10, file)).unwrap();
            }
            for file in ["second_moment.safetensors", "checkpoint.toml"] {
                fs::copy(folder.path(5, file), folder.path(10, file)).unwrap();
            }
        }),
        ("it belongs to lock", |folder| {
            let other = Digest::of("test", "another lock");
            fs::remove_dir_all(folder.root.path().join(name_of(10))).unwrap();
            let mut store = Store::new(folder.root.path().to_owned(), other, slots());
            save(&mut store, 10, 10, &Faults::none()).unwrap();
        }),
        ("checkpoint.toml: its seal is", |folder| {
            let path = folder.path(10, "checkpoint.toml");
            let text = fs::read_to_string(&path).unwrap().replace("step = 10", "step = 11");
            fs::write(path, text).unwrap();
        }),
    ];
    for (expected, damage) in cases {
        let mut folder = Folder::with(&[5, 10]);
        damage(&folder);
        let (found, refused) = folder.find().unwrap();
        assert_eq!(found, Some(5), "{expected}");
        assert!(refused.len() == 1 && refused[0].contains(expected), "{refused:?} for {expected}");
        match folder.save(10) {
            Ok(_) => assert_eq!(folder.find().unwrap(), (Some(10), vec![]), "{expected}"),
            // Complete, but not a step of this run, so we must not delete it.
            Err(error) => assert!(
                expected.starts_with("it belongs to") && error.message.contains("instead"),
                "{expected}: {error}"
            ),
        }
    }
}

#[test]
fn a_chain_the_log_does_not_have_is_refused() {
    let folder = Folder::with(&[5, 10]);
    let mut store = Store::new(folder.root.path().to_owned(), lock(), slots());
    let (found, refused) = store.find(|head| head == chain(5)).unwrap();
    assert_eq!(found.unwrap().manifest.step, 5);
    assert!(refused[0].why.contains("does not reach step 10"), "{refused:?}");
    let error = store.find(|_| false).unwrap_err();
    assert!(
        error.message.contains("no checkpoint in") && error.help.contains("from step 0"),
        "{error}"
    );
}

#[test]
fn a_full_disk_leaves_what_was_there() {
    let mut folder = Folder::with(&[5]);
    let full = Faults::parse("checkpoint-full:2").unwrap();
    let error = save(&mut folder.store, 10, 10, &full).unwrap_err();
    assert!(error.message.contains("disk is full"), "{error}");
    assert_eq!(folder.find().unwrap(), (Some(5), vec![]));
    let names: Vec<_> =
        fs::read_dir(folder.root.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn a_bit_flipped_or_an_end_lost_anywhere_is_found() {
    let folder = Folder::with(&[5, 10]);
    for file in ["weights.safetensors", "second_moment.safetensors", "checkpoint.toml"] {
        let path = folder.path(10, file);
        let intact = fs::read(&path).unwrap();
        for at in 0..intact.len() {
            let mut flipped = intact.clone();
            flipped[at] ^= 1 << (at % 8);
            for content in [&flipped[..], &intact[..at]] {
                fs::write(&path, content).unwrap();
                let (found, refused) = folder.find().unwrap();
                assert_eq!((found, refused.len()), (Some(5), 1), "{file} at {at}");
            }
        }
        fs::write(&path, intact).unwrap();
    }
    assert_eq!(folder.find().unwrap(), (Some(10), vec![]));
}
