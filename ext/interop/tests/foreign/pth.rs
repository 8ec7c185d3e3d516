//! Tests the `.pth` reader: what torch.save writes, and the reference's files complete, mutated and forged.

use std::fs;
use std::path::{Path, PathBuf};

use interop::dtype::Dtype;
use interop::pth;
use interop::store::{Planned, Store};
use proptest::prelude::*;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden/checkpoints")
        .join(name)
        .join("default/consolidated.pth")
}

/// The reason why bytes are refused; `None` if they are read.
fn refused(bytes: &[u8]) -> Option<String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    match pth::read(file.path()) {
        Ok((store, _)) => {
            // Every accepted file can be read completely, or has values that weights cannot have.
            for (name, stored) in &store.tensors {
                let _ = store.values(name, 0, stored.count());
            }
            None
        }
        Err(error) => Some(error.message),
    }
}

/// One entry of a forged archive.
#[derive(Clone)]
struct ForgedEntry {
    name: String,
    data: Vec<u8>,
    method: u16,
    /// False values for the two headers.
    local_size: Option<u32>,
    central_size: Option<u32>,
    local_name: Option<String>,
    crc: Option<u32>,
}

fn entry(name: &str, data: &[u8]) -> ForgedEntry {
    let (name, data) = (format!("archive/{name}"), data.to_vec());
    ForgedEntry {
        name,
        data,
        method: 0,
        local_size: None,
        central_size: None,
        local_name: None,
        crc: None,
    }
}

/// A zip archive of these entries.
fn zip(entries: &[ForgedEntry]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for e in entries {
        let at = out.len() as u32;
        let crc = e.crc.unwrap_or(crc32fast::hash(&e.data));
        let size = e.data.len() as u32;
        let local_name = e.local_name.as_ref().unwrap_or(&e.name);
        let both = |out: &mut Vec<u8>, size: u32, name: &str, after: &[u8]| {
            for field in [0u16, e.method, 0, 0] {
                out.extend(field.to_le_bytes());
            }
            for field in [crc, size, size] {
                out.extend(field.to_le_bytes());
            }
            out.extend((name.len() as u16).to_le_bytes());
            out.extend(after);
            out.extend(name.as_bytes());
        };
        out.extend(b"PK\x03\x04\x14\0");
        both(&mut out, e.local_size.unwrap_or(size), local_name, &[0, 0]);
        out.extend(&e.data);
        directory.extend(b"PK\x01\x02\x14\0\x14\0");
        let mut after = vec![0; 12];
        after.extend(at.to_le_bytes());
        both(&mut directory, e.central_size.unwrap_or(size), &e.name, &after);
    }
    let at = out.len() as u32;
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend((entries.len() as u16).to_le_bytes());
    out.extend((entries.len() as u16).to_le_bytes());
    out.extend((directory.len() as u32).to_le_bytes());
    out.extend(at.to_le_bytes());
    out.extend([0, 0]);
    out
}

fn text(text: &str) -> Vec<u8> {
    let mut out = vec![b'X'];
    out.extend((text.len() as u32).to_le_bytes());
    out.extend(text.as_bytes());
    out
}

/// A pickle of `{"model": {"w": tensor}}`: storage `key` of `count` values, a view of it.
fn pickle(key: &str, count: u32, offset: u32, shape: &[u32], strides: &[u32]) -> Vec<u8> {
    let int = |n: u32| [vec![b'J'], n.to_le_bytes().to_vec()].concat();
    let tuple = |items: &[u32]| {
        let items: Vec<u8> = items.iter().flat_map(|n| int(*n)).collect();
        [vec![b'('], items, vec![b't']].concat()
    };
    [
        vec![0x80, 2, b'}'],
        text("model"),
        vec![b'}'],
        text("w"),
        b"ctorch._utils\n_rebuild_tensor_v2\n((".to_vec(),
        text("storage"),
        b"ctorch\nFloatStorage\n".to_vec(),
        text(key),
        text("cpu"),
        int(count),
        b"tQ".to_vec(),
        int(offset),
        tuple(shape),
        tuple(strides),
        b"\x89ccollections\nOrderedDict\n)RtRss.".to_vec(),
    ]
    .concat()
}

fn archive(pickle: &[u8], storage: &[u8]) -> Vec<u8> {
    zip(&[entry("data.pkl", pickle), entry("version", b"3\n"), entry("data/0", storage)])
}

/// An archive without a fault.
fn honest_archive() -> Vec<u8> {
    archive(&pickle("0", 6, 0, &[2, 3], &[3, 1]), &[0; 24])
}

#[test]
fn a_forged_archive_is_read_when_it_is_honest() {
    assert_eq!(refused(&honest_archive()), None);
    // Transposed, sliced, spread and empty views of a storage.
    for (offset, shape, strides) in
        [(0, [3, 2], [1, 3]), (1, [2, 2], [3, 1]), (5, [1, 1], [6, 1]), (0, [0, 3], [3, 1])]
    {
        assert_eq!(refused(&archive(&pickle("0", 6, offset, &shape, &strides), &[0; 24])), None);
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let values: Vec<u8> = (0..6).flat_map(|n| (n as f32).to_le_bytes()).collect();
    fs::write(file.path(), archive(&pickle("0", 6, 0, &[3, 2], &[1, 3]), &values)).unwrap();
    let (store, _) = pth::read(file.path()).unwrap();
    assert_eq!(store.values("w", 0, 6).unwrap(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
}

/// A tensor of two values, as `torch.save` writes it.
fn tensor() -> Vec<u8> {
    let pickled = pickle("0", 2, 0, &[2], &[1]);
    let from = pickled.windows(7).position(|w| w == b"ctorch.").unwrap();
    pickled[from..pickled.len() - 3].to_vec()
}

/// The tensor as a parameter.
fn parameter() -> Vec<u8> {
    let rebuild = b"ctorch._utils\n_rebuild_parameter\n(".to_vec();
    [rebuild, tensor(), b"\x88ccollections\nOrderedDict\n)RtR".to_vec()].concat()
}

/// A map with these entries.
fn map(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let entries = entries.iter().flat_map(|(key, value)| [text(key), value.clone(), vec![b's']]);
    [vec![b'}'], entries.flatten().collect()].concat()
}

/// A state_dict: an OrderedDict whose attribute is the versions of its modules.
fn state_dict(entries: &[(&str, Vec<u8>)], attribute: &[u8]) -> Vec<u8> {
    let entries = map(entries);
    let attributes = map(&[("_metadata", attribute.to_vec())]);
    [b"ccollections\nOrderedDict\n)R", &entries[1..], &attributes, b"b"].concat()
}

/// The versions of modules.
fn metadata() -> Vec<u8> {
    map(&[("", map(&[("version", b"K\x01".to_vec())]))])
}

/// The names of the tensors in a file with this value, and of what was left out; or why it is refused.
fn tensors(value: &[u8]) -> Result<(Vec<String>, Vec<String>), String> {
    let pickle = [b"\x80\x02", value, b"."].concat();
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), archive(&pickle, &[0; 8])).unwrap();
    let (store, left_out) = Store::open(file.path()).map_err(|error| error.to_string())?;
    let left_out = left_out.into_iter().map(|left| left.name).collect();
    Ok((store.tensors.into_keys().collect(), left_out))
}

#[test]
fn a_state_dict_is_read_as_training_scripts_save_it() {
    let one = |name: &str| state_dict(&[(name, tensor())], &metadata());
    let number = b"K\x07".to_vec();
    let cases: [(Vec<u8>, &str, &[&str]); 9] = [
        (one("a.w"), "a.w", &[]),
        (state_dict(&[("a.w", parameter())], &metadata()), "a.w", &[]),
        (map(&[("model", one("a.w"))]), "a.w", &[]),
        (map(&[("epoch", number.clone()), ("state_dict", one("a.w"))]), "a.w", &["epoch"]),
        (map(&[("module", one("a.w"))]), "a.w", &[]),
        (
            map(&[("model_state_dict", one("a.w")), ("optimizer", map(&[("w", tensor())]))]),
            "a.w",
            &["optimizer"],
        ),
        (one("module.a.w"), "a.w", &["module."]),
        (map(&[("model", one("_orig_mod.module.a.w"))]), "a.w", &["_orig_mod.", "module."]),
        // Only some names have the prefix, so it is a part of them.
        (state_dict(&[("module.a", tensor()), ("b", tensor())], &metadata()), "b module.a", &[]),
    ];
    for (value, names, left_out) in cases {
        let (tensors_in_file, left) = tensors(&value).unwrap();
        assert_eq!(tensors_in_file.join(" "), names);
        assert_eq!(left, left_out, "{names}");
    }
    for (value, wanted) in [
        (map(&[("model", one("a")), ("state_dict", one("a"))]), "both `model` and `state_dict`"),
        (map(&[("weights", one("a"))]), "no tensors and no map called `model`"),
        (map(&[]), "it has nothing"),
        (map(&[("a", tensor()), ("step", number)]), "`step` is an integer instead of a tensor"),
        ([&tensor()[..], &map(&[]), b"b"].concat(), "sets attributes of a value that is not a map"),
        (state_dict(&[("a", tensor())], &tensor()), "not made of plain values"),
        (state_dict(&[("a", tensor())], b"]"), "not made of plain values"),
    ] {
        let error = tensors(&value).unwrap_err();
        assert!(error.contains(wanted) && error.contains("help: "), "{wanted}: {error}");
    }
}

#[test]
fn a_file_that_is_no_weights_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let stock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/stock/llama31");
    let complete = fs::read(stock.join("model.safetensors")).unwrap();
    let cases: [(&[u8], &str); 8] = [
        (b"", "it is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n", "git lfs pull"),
        (b"<!DOCTYPE html><html>Access denied</html>", "a page of HTML"),
        (b"\x80\x02}q\0.", "before PyTorch 1.6"),
        (b"GGUF\x03\0\0\0", "a GGUF file of llama.cpp"),
        (b"\x1f\x8b\x08\0", "gzip -dk"),
        (&complete[..complete.len() - 5], "it is cut off"),
        (&complete[..9], "not a usable safetensors file"),
    ];
    for (bytes, wanted) in cases {
        let path = dir.path().join("model.safetensors");
        fs::write(&path, bytes).unwrap();
        let error = Store::open(&path).unwrap_err().to_string();
        assert!(error.contains(wanted) && error.contains("help: "), "{wanted}: {error}");
        // The same in the place of a shard.
        let index = dir.path().join("model.safetensors.index.json");
        fs::write(&index, r#"{"weight_map": {"a": "model.safetensors"}}"#).unwrap();
        assert_eq!(Store::open(&index).unwrap_err().to_string(), error);
    }
}

#[test]
fn whatever_could_run_is_refused_by_name() {
    let good = pickle("0", 6, 0, &[2, 3], &[3, 1]);
    let replaced = |from: &[u8], to: &[u8]| {
        let at = good.windows(from.len()).position(|w| w == from).unwrap();
        let bytes = [&good[..at], to, &good[at + from.len()..]].concat();
        refused(&archive(&bytes, &[0; 24])).unwrap()
    };
    for (name, shown) in [
        ("cos\nsystem\n", "os.system"),
        ("cbuiltins\neval\n", "builtins.eval"),
        ("cbuiltins\ngetattr\n", "builtins.getattr"),
        ("c__builtin__\nexec\n", "__builtin__.exec"),
        ("ctorch._utils\n_rebuild_tensor\n", "torch._utils._rebuild_tensor"),
        ("ctorch.storage\n_load_from_bytes\n", "torch.storage._load_from_bytes"),
        ("csubprocess\nPopen\n", "subprocess.Popen"),
    ] {
        let reason = replaced(b"ctorch._utils\n_rebuild_tensor_v2\n", name.as_bytes());
        assert!(reason.contains(shown) && reason.contains("could run code"), "{reason}");
    }
    // By STACK_GLOBAL as well.
    let named = [text("os"), text("system"), vec![0x93]].concat();
    assert!(replaced(b"ctorch._utils\n_rebuild_tensor_v2\n", &named).contains("os.system"));
    // Every opcode of pickle that is not needed, at the beginning of a pickle and in its middle.
    let known = b".}])(NKMJGXqrhjtaesucQRb\x88\x89\x8a\x8c\x94\x95\x85\x86\x87\x93";
    for opcode in (0..=255u8).filter(|opcode| !known.contains(opcode)) {
        let wanted = format!("opcode 0x{opcode:02x}");
        for pickle in [vec![0x80, 2, opcode], [&good[..good.len() - 1], &[opcode, b'.']].concat()] {
            let reason = refused(&archive(&pickle, &[0; 24])).unwrap();
            assert!(reason.contains(&wanted), "{reason}");
        }
    }
    // Known names, called with the wrong arguments.
    for pickle in [
        b"\x80\x02ccollections\nOrderedDict\n(K\x01tR.".to_vec(),
        b"\x80\x02ctorch\nFloatStorage\n(K\x01tR.".to_vec(),
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R.".to_vec(),
        b"\x80\x02)Q.".to_vec(),
        b"\x80\x02K\x01)R.".to_vec(),
    ] {
        assert!(refused(&archive(&pickle, &[0; 24])).is_some());
    }
}

#[test]
fn an_archive_that_lies_is_refused() {
    let good = pickle("0", 6, 0, &[2, 3], &[3, 1]);
    let with = |change: &dyn Fn(&mut Vec<ForgedEntry>)| {
        let mut entries = vec![entry("data.pkl", &good), entry("data/0", &[0; 24])];
        change(&mut entries);
        refused(&zip(&entries)).unwrap_or_else(|| "it was read".to_owned())
    };
    type Change<'a> = &'a dyn Fn(&mut Vec<ForgedEntry>);
    let cases: [(Change<'_>, &str); 15] = [
        (&|e| e[1].method = 8, "is compressed (method 8)"),
        (&|e| e[1].local_size = Some(4), "differ in size"),
        (&|e| e[1].central_size = Some(8), "differ in size"),
        (&|e| e[1].central_size = Some(1 << 30), "differ in size"),
        (&|e| e[1].local_name = Some("archive/data/1".to_owned()), "differ in the name"),
        (&|e| e[1].crc = Some(7), "does not match its checksum"),
        (&|e| e[0].crc = Some(7), "does not match its checksum"),
        (&|e| e[1].name = "archive/../../etc/passwd".to_owned(), "not a name that torch.save uses"),
        (&|e| e[1].name = "/data/0".to_owned(), "not a name that torch.save uses"),
        (&|e| e[1].name = "archive\\data\\0".to_owned(), "not a name that torch.save uses"),
        (&|e| e[1].name = "other/data/0".to_owned(), "is outside of"),
        (&|e| e.push(e[1].clone()), "occurs twice"),
        (&|e| e.push(entry("code/model.py", b"import os")), "is not used by any tensor"),
        (&|e| e.push(entry("data/1", &[0; 4])), "is not used by any tensor"),
        (&|e| drop(e.remove(1)), "it has no data/0"),
    ];
    for (i, (change, wanted)) in cases.into_iter().enumerate() {
        let reason = with(change);
        assert!(reason.contains(wanted), "case {i}, {wanted}: {reason}");
    }
    // Bytes that belong to no entry, an entry inside another, a directory with a wrong offset.
    let honest = honest_archive();
    assert!(refused(&[b"MZ".as_slice(), &honest].concat()).is_some());
    assert!(refused(&[&honest, b"x".as_slice()].concat()).is_some());
    let end = honest.len() - 22;
    for (at, value) in [(16, 0u32), (16, u32::MAX - 1), (12, 0), (12, u32::MAX - 1)] {
        let mut bytes = honest.clone();
        bytes[end + at..end + at + 4].copy_from_slice(&value.to_le_bytes());
        assert!(refused(&bytes).is_some(), "{at} {value}");
    }
    let directory = u32::from_le_bytes(honest[end + 16..end + 20].try_into().unwrap()) as usize;
    let mut overlapping = honest.clone();
    // The last entry's header gets the offset of the first one's.
    let last = overlapping[..end].windows(4).rposition(|w| w == b"PK\x01\x02").unwrap();
    assert!(last > directory);
    overlapping[last + 42..last + 46].copy_from_slice(&0u32.to_le_bytes());
    assert!(refused(&overlapping).is_some());
    let mut many = honest.clone();
    for at in [8, 10] {
        many[end + at..end + at + 2].copy_from_slice(&60_000u16.to_le_bytes());
    }
    assert!(refused(&many).is_some());
}

#[test]
fn views_stay_inside_their_storage() {
    for (count, offset, shape, strides) in [
        (7, 0, vec![2, 3], vec![3, 1]),
        (u32::MAX >> 1, 0, vec![2, 3], vec![3, 1]),
        (6, 1, vec![2, 3], vec![3, 1]),
        (6, 0, vec![2, 3], vec![4, 1]),
        (6, 0, vec![3, 3], vec![1, 1]),
        (6, 0, vec![i32::MAX as u32, i32::MAX as u32, i32::MAX as u32], vec![1, 1, 1]),
        (6, 0, vec![2, 3], vec![3]),
        (6, 0, vec![2], vec![i32::MAX as u32]),
        (6, 0, vec![1; 9], vec![1; 9]),
        (6, 7, vec![0], vec![1]),
        // Stride zero: one value many times.
        (6, 0, vec![1000], vec![0]),
    ] {
        let reason = refused(&archive(&pickle("0", count, offset, &shape, &strides), &[0; 24]));
        assert!(reason.is_some(), "{count} {offset} {shape:?} {strides:?}");
    }
    for key in ["../0", "", "00000000000000000000000", "a"] {
        assert!(refused(&archive(&pickle(key, 6, 0, &[2, 3], &[3, 1]), &[0; 24])).is_some());
    }
}

#[test]
fn a_pickle_that_grows_is_refused() {
    // A list that contains itself twice, thirty times over: 2^30 items when unfolded.
    let mut doubling = vec![0x80, 2, b']', b'q', 0];
    for level in 1..=30u8 {
        doubling.extend([b']', b'q', level, b'(', b'h', level - 1, b'h', level - 1, b'e']);
    }
    // Leave one object: the stack holds all lists, so only the last one is named.
    let reason = refused(&archive(&[&doubling[..], b"."].concat(), &[0; 24]));
    assert!(reason.is_some());
    let wrapped =
        [vec![0x80, 2, b'}', b'q', 200], text("model"), b"}".to_vec(), text("x"), b"h".to_vec()]
            .concat();
    let mut inner = Vec::new();
    inner.extend(&wrapped[..wrapped.len() - 1]);
    inner.extend([b']', b'q', 0]);
    for level in 1..=25u8 {
        // Replaces the previous list by [previous, previous], through the memo.
        inner.extend([b'0']);
        inner.extend([b']', b'q', level]);
    }
    assert!(refused(&archive(&inner, &[0; 24])).is_some());
    // Nested tuples, and a list that contains itself.
    let deep = [vec![0x80, 2, b')'], vec![0x85; 100_000], vec![b'.']].concat();
    assert!(refused(&archive(&deep, &[0; 24])).unwrap().contains("is nested more than"));
    let cyclic = b"\x80\x02]q\x00h\x00a.".to_vec();
    assert!(refused(&archive(&cyclic, &[0; 24])).is_some());
    let cyclic = [vec![0x80, 2, b'}', b'q', 0], text("model"), b"h\x00s.".to_vec()].concat();
    assert!(refused(&archive(&cyclic, &[0; 24])).is_some());
}

#[test]
fn what_is_written_is_read() {
    let file = tempfile::tempdir().unwrap();
    for (dtype, name) in [(Dtype::F32, "a.pth"), (Dtype::Bf16, "b.pth"), (Dtype::F16, "c.pth")] {
        let path = file.path().join(name);
        let tensors: Vec<Planned> = (0..70)
            .map(|n| Planned { name: format!("layers.{n}.w"), shape: vec![n + 1, 3] })
            .collect();
        pth::write(&path, &tensors, dtype, |index, put| {
            let count = (index + 1) * 3;
            put(&vec![index as f32; count])
        })
        .unwrap();
        let (store, left_out): (Store, _) = pth::read(&path).unwrap();
        assert!(left_out.is_empty());
        assert_eq!(store.tensors.len(), 70);
        for (name, stored) in &store.tensors {
            assert_eq!(stored.at % 64, 0, "{name}");
            let n: f32 = name.split('.').nth(1).unwrap().parse().unwrap();
            assert!(store.values(name, 0, stored.count()).unwrap().iter().all(|v| *v == n));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Bytes changed, removed, repeated or inserted, near the pickle, the directory, or anywhere.
    #[test]
    fn no_mutation_of_a_checkpoint_panics(
        which in 0..3usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..6u8), 1..8),
    ) {
        let mut bytes = match which {
            0 => fs::read(golden("lingua_mamba2_noconv")).unwrap(),
            1 => fs::read(golden("lingua_gdn2")).unwrap(),
            _ => honest_archive(),
        };
        for (index, value, kind) in changes {
            let half = bytes.len().min(4096);
            let at = match kind {
                0 => index.index(half),
                1 => bytes.len() - 1 - index.index(half),
                _ => index.index(bytes.len()),
            };
            match kind {
                0..=3 => bytes[at] = value,
                4 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, value),
            }
        }
        let _ = refused(&bytes);
    }

    /// A pickle of known opcodes in any order.
    #[test]
    fn no_pickle_panics(codes in prop::collection::vec((0..31usize, any::<u8>()), 0..200)) {
        let known = b".}])(NKMJGXqrhjtaesucQRb\x88\x89\x8a\x8c\x94\x95\x85\x86\x87\x93";
        let mut pickle = vec![0x80, 2];
        for (code, argument) in codes {
            pickle.push(known[code % known.len()]);
            pickle.extend(vec![argument % 8; usize::from(argument % 3)]);
        }
        let _ = refused(&archive(&pickle, &[0; 24]));
    }
}
