//! Checkpoints of a few tensors, written by several processes.

use super::super::verify;
use super::*;
use compiler::digest::Digest;

fn lock() -> Digest {
    Digest::of("test", "lock")
}

fn slots() -> Vec<Slot> {
    vec![
        Slot { path: "embed".to_owned(), shape: vec![5, 3], moments: 2 },
        Slot { path: "layers.0.norm".to_owned(), shape: vec![2], moments: 2 },
        Slot { path: "layers.0.wq".to_owned(), shape: vec![3, 3], moments: 2 },
    ]
}

/// The elements of a tensor by process: the second one has no elements of the second tensor.
fn owners(index: usize) -> Vec<Range<u64>> {
    match index {
        0 => vec![0..4, 4..9, 9..15],
        1 => vec![0..1, 1..1, 1..2],
        _ => vec![0..0, 0..9, 9..9],
    }
}

fn bytes(part: Part, index: usize, range: Range<u64>) -> Vec<u8> {
    let first = 100.0 * part as u8 as f32 + 20.0 * index as f32;
    range.flat_map(|at| (first + at as f32).to_le_bytes()).collect()
}

fn store(folder: &std::path::Path) -> Store {
    Store::new(folder.to_owned(), lock(), slots())
}

/// Writes what a process owns.
fn write(store: &Store, process: usize, part: Part) -> Option<blake3::Hash> {
    let owned: Vec<Range<u64>> = (0..slots().len()).map(|at| owners(at)[process].clone()).collect();
    let ranges = owned.clone();
    let mut read = move |part, index: usize, out: &mut Vec<u8>| {
        out.extend(bytes(part, index, ranges[index].clone()));
        Ok(())
    };
    store.write_own(7, part, &owned, &mut read, &Faults::none()).unwrap()
}

fn all(store: &Store, part: Part) -> Vec<blake3::Hash> {
    // The last one first.
    let mut written: Vec<_> =
        (0..3).rev().map(|process| write(store, process, part).unwrap()).collect();
    written.reverse();
    written
}

#[test]
fn several_processes_write_the_bytes_of_one() {
    let chain = Digest::of("chain", "7");
    let alone = tempfile::tempdir().unwrap();
    let mut one = store(alone.path());
    let mut read = |part, index: usize, out: &mut Vec<u8>| {
        out.extend(bytes(part, index, 0..slots()[index].elements() as u64));
        Ok(())
    };
    let wanted = one.save(7, chain, &mut read, &Faults::none()).unwrap();

    let shared = tempfile::tempdir().unwrap();
    let mut leader = store(shared.path());
    leader.lay_out(7).unwrap();
    let contents = PARTS.map(|part| {
        let other = store(shared.path());
        let written = all(&other, part);
        other.read_back(7, part, &owners, &written).unwrap()
    });
    assert_eq!(leader.names().unwrap(), Vec::<String>::new(), "not committed");
    let committed = leader.commit(7, chain, contents, &Faults::none()).unwrap();
    assert_eq!(committed, wanted);
    let saved = shared.path().join("step-0000000007");
    assert_eq!(verify(&saved, &slots()).unwrap(), wanted);
    for part in PARTS {
        let read = |folder: &std::path::Path| {
            fs::read(folder.join("step-0000000007").join(part.file())).unwrap()
        };
        assert_eq!(read(shared.path()), read(alone.path()));
    }
}

#[test]
fn what_a_process_did_not_write_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    store.lay_out(7).unwrap();
    let part = Part::FirstMoment;
    let written = all(&store, part);
    // Another machine's file system shows what was there before.
    store.lay_out(7).unwrap();
    write(&store, 0, part);
    write(&store, 2, part);
    let error = store.read_back(7, part, &owners, &written).unwrap_err();
    assert!(error.message.contains("it does not hold what rank 1 wrote"), "{error:?}");
    // A shorter file, and one of another step.
    let path = store.temporary(7).join(part.file());
    let length = fs::metadata(&path).unwrap().len();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(length - 4).unwrap();
    let error = store.read_back(7, part, &owners, &written).unwrap_err();
    assert!(error.message.contains("it ends inside the tensor layers.0.wq"), "{error:?}");
    store.lay_out(8).unwrap();
    fs::copy(store.temporary(8).join(part.file()), &path).unwrap();
    let error = store.read_back(7, part, &owners, &written).unwrap_err();
    assert!(error.message.contains("its header is not"), "{error:?}");
}

#[test]
fn a_process_that_does_not_see_the_files_says_so_and_makes_none() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    assert_eq!(write(&store, 1, Part::Weights), None);
    store.lay_out(7).unwrap();
    store.abandon(7);
    assert_eq!(write(&store, 1, Part::Weights), None);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
