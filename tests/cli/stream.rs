//! `canonc data stream`: the parts of all ranks are the windows of `data export`, from any step, and refused divisions.

use std::io::Read;
use std::path::Path;

use crate::{command, folder, run_line};

/// Depo on a small arch: so many micro-batches of so many sequences, 3 steps.
fn lock(dir: &Path, micro_batches: u64, sequences: u64, more: &str) -> String {
    let recipe = format!(
        "arch = \"../arch/a.canon\"\n[data]\nseq_len = 32\n[data.depo]\nN = 4\nK = 1\nmini_vocab = 6\nmin_tlen = 1\n\
         max_tlen = 1\n[batch]\nsequences = {sequences}\nmicro_batches = {micro_batches}\n[optimizer]\nlr = 0.01\nweight_decay = 0\n\
         [schedule]\nkind = \"linear\"\nwarmup = 1\nlr_min_ratio = 0.1\n[budget]\nsteps = 3\n{more}\
         [evaluation]\nwindows = 2\n[seeds]\ninit = 1\ndata = 1\n"
    );
    std::fs::create_dir_all(dir.join("recipes")).unwrap();
    std::fs::write(dir.join("recipes/s.toml"), recipe).unwrap();
    let ran = run_line(dir, "build recipes/s.toml -q");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    "lockfiles/s.lock".to_owned()
}

const ARCH: &str = "arch a { vocab 10000  dim 8  norm_eps 1e-5  init lingua
  layers 1 of decoder { mixer attention { heads 2 } mlp swiglu { hidden 16 } } }";
const EXPERTS: &str = "arch a { vocab 10000  dim 8  norm_eps 1e-5  init lingua
  layers 1 of decoder { mixer attention { heads 2 } mlp moe { count 2, active 1, hidden 16 } } }";

/// The bytes that a rank gets.
fn bytes(dir: &Path, words: &str) -> Vec<u8> {
    let words: Vec<&str> = words.split(' ').collect();
    let output = command(dir, &[&["data", "stream"], words.as_slice()].concat()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// One rank's part of one step.
#[derive(Debug, PartialEq)]
struct Part {
    step: u64,
    counted: u64,
    rate: f64,
    digest: Vec<u8>,
    /// By window: its number, and its tokens and targets.
    windows: Vec<(u64, Vec<u8>)>,
}

/// Reads a stream as its help describes it.
fn parts(bytes: &[u8]) -> Vec<Part> {
    assert_eq!(&bytes[..12], b"canonc s\x01\0\0\0");
    let count = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let (seq_len, rows, micro) = (count(44), count(48), count(52));
    let row = 4 * seq_len;
    let size = 56 + micro * (8 + 2 * rows * row) + 4;
    let steps = bytes[64..].chunks(size).map(|frame| {
        let (body, check) = frame.split_at(size - 4);
        assert_eq!(check, crc32fast::hash(body).to_le_bytes());
        let micro_batches = body[56..].chunks(8 + 2 * rows * row).flat_map(|part| {
            let (tokens, targets) = part[8..].split_at(rows * row);
            (0..rows).map(move |at| {
                let of = |ids: &[u8]| ids[at * row..][..row].to_vec();
                (word(part, 0) + at as u64, [of(tokens), of(targets)].concat())
            })
        });
        Part {
            step: word(body, 0),
            counted: word(body, 8),
            rate: f64::from_bits(word(body, 16)),
            digest: body[24..56].to_vec(),
            windows: micro_batches.collect(),
        }
    });
    steps.collect()
}

/// The windows of `data export`, by number.
fn exported(dir: &Path, lock: &str) -> Vec<(u64, Vec<u8>)> {
    let ran = run_line(dir, &format!("data export {lock} --out w.bin"));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let bin = std::fs::read(dir.join("w.bin")).unwrap();
    bin.chunks(8 + 8 * 32).map(|record| (word(record, 0), record[8..].to_vec())).collect()
}

#[test]
fn the_parts_of_all_ranks_are_the_exported_windows() {
    let dir = folder(&[("arch/a.canon", ARCH)]);
    let dir = dir.path();
    let lock = lock(dir, 4, 6, "");
    let wanted = exported(dir, &lock);
    let alone = parts(&bytes(dir, &format!("{lock} --digest")));
    assert_eq!(alone.iter().map(|part| part.step).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(alone.iter().map(|part| part.rate).collect::<Vec<_>>()[..2], [0.0, 0.01]);
    assert!(alone.iter().all(|part| part.digest != [0; 32]));
    // 2 ranks have 2 micro-batches each, 3 have two rows of each.
    for ranks in [1, 2, 3, 4, 6] {
        let all: Vec<Vec<Part>> = (0..ranks)
            .map(|rank| parts(&bytes(dir, &format!("{lock} --rank {rank} --of {ranks}"))))
            .collect();
        let mut windows: Vec<_> =
            all.iter().flatten().flat_map(|part| part.windows.clone()).collect();
        windows.sort();
        assert_eq!(windows, wanted, "{ranks} ranks");
        for parts in &all {
            let counted =
                |parts: &[Part]| parts.iter().map(|part| part.counted).collect::<Vec<_>>();
            assert_eq!(counted(parts), counted(&alone));
        }
    }
    let later = parts(&bytes(dir, &format!("{lock} --from-step 3 --digest")));
    assert_eq!(later, alone[2..]);
}

#[test]
fn means_over_a_micro_batch_are_not_divided_among_ranks() {
    let dir = folder(&[("arch/a.canon", EXPERTS)]);
    let dir = dir.path();
    let lock = lock(dir, 2, 6, "[loss]\nbalance = 0.01\n");
    assert_eq!(parts(&bytes(dir, &format!("{lock} --rank 1 --of 2")))[0].windows.len(), 6);
    let ran = run_line(dir, &format!("data stream {lock} --of 3"));
    let said = "3 ranks cannot divide 2 micro-batches: `balance` is a mean over a micro-batch";
    assert!(ran.code == 2 && ran.stderr.contains(said), "{}", ran.stderr);
}

#[test]
fn a_step_or_rank_that_is_not_there_is_refused() {
    let dir = folder(&[("arch/a.canon", ARCH)]);
    let dir = dir.path();
    let lock = lock(dir, 4, 6, "");
    for (words, said) in [
        ("--from-step 4", "`s` has 3 steps, but --from-step is 4"),
        ("--rank 2 --of 2", "--rank 2 is not one of 2 ranks"),
        ("--of 5", "5 ranks cannot divide 4 micro-batches of 6 sequences equally"),
        ("--of 0", "--of"),
    ] {
        let ran = run_line(dir, &format!("data stream {lock} {words}"));
        assert!(ran.code == 2 && ran.stderr.contains(said), "{words}: {}", ran.stderr);
    }
}

#[test]
fn a_reader_that_has_enough_is_no_error() {
    let dir = folder(&[("arch/a.canon", ARCH)]);
    let dir = dir.path();
    // Far more than a pipe holds.
    let lock = lock(dir, 64, 64, "");
    let mut child = command(dir, &["data", "stream", &lock]).spawn().unwrap();
    let mut first = [0; 100];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
