//! Contents of windows: whole samples in stream order, independent of batch and rank; targets where labels say; dense
//! numbers for published ones. A slow implementation of the packing must give the same windows.

use super::*;
use crate::batch::{IGNORED, digest_of_windows};
use proptest::prelude::*;
use serde_json::json;

fn depo() -> Task {
    let params = json!({"N": 12, "K": 2, "mini_vocab": 50, "min_tlen": 1, "max_tlen": 2});
    Task::parse("depo", params).unwrap()
}

fn brevo() -> Task {
    Task::parse("brevo", json!({"N": 12})).unwrap()
}

fn mano() -> Task {
    Task::parse("mano", json!({"L": 10})).unwrap()
}

fn options(order: Order) -> Options {
    Options {
        seq_len: 128,
        seed: 42,
        split: Split::Train,
        mode: Mode::Train,
        order,
        loss_on: LossOn::Answer,
        ids: Ids::Published,
    }
}

fn batch(windows: &mut TaskWindows, numbers: Range<u64>) -> Batch {
    let mut batch = Batch::default();
    windows.fill(numbers, &mut batch).unwrap();
    batch
}

/// The packing, implemented the slow way: samples one by one, cut at the window's end.
fn packed_slowly(
    task: &Task,
    mode: Mode,
    random: &mut Random,
    seq_len: usize,
) -> (Vec<u32>, Vec<u8>) {
    let (mut tokens, mut labels) = (Vec::new(), Vec::new());
    let (mut scratch, mut tape) = (Scratch::default(), Tape::default());
    while tokens.len() < seq_len + 1 {
        tape.clear();
        task.sample(random, mode, &mut scratch, &mut tape);
        for (i, &token) in tape.tokens.iter().enumerate() {
            if tokens.len() < seq_len + 1 {
                tokens.push(token);
                labels.push(tape.labels.get(i).copied().unwrap_or(0));
            }
        }
    }
    (tokens, labels)
}

#[test]
fn published_windows_are_whole_samples_in_stream_order() {
    for loss_on in [LossOn::Answer, LossOn::All] {
        let mut windows =
            TaskWindows::new(depo(), Options { loss_on, ..options(Order::Published) }).unwrap();
        let mut random = Random::new(42);
        let mut last = Batch::default();
        for number in 0..20 {
            let (tokens, labels) = packed_slowly(&depo(), Mode::Train, &mut random, 128);
            last = batch(&mut windows, number..number + 1);
            assert_eq!(last.inputs()[0], 9999, "a window begins with a sample");
            for i in 0..128 {
                assert_eq!(last.inputs()[i], i64::from(tokens[i]));
                let counts = labels[i + 1] == 1 || loss_on == LossOn::All;
                let want = if counts { i64::from(tokens[i + 1]) } else { IGNORED };
                assert_eq!(last.targets()[i], want);
            }
        }
        // Replaying forwards and backwards gives the same window.
        windows.replay_to(30);
        windows.replay_to(19);
        assert_eq!(batch(&mut windows, 19..20), last);
    }
}

#[test]
fn the_published_order_refuses_what_it_cannot_do() {
    let mut windows = TaskWindows::new(depo(), options(Order::Published)).unwrap();
    batch(&mut windows, 0..4);
    let error = windows.fill(7..8, &mut Batch::default()).unwrap_err();
    assert!(error.message.contains("its next window is 4, not 7"), "{error}");
    assert!(windows.check_ranks(1).is_ok());
    assert!(windows.check_ranks(2).unwrap_err().message.contains("2 ranks"));
    let held_out = Options { split: Split::HeldOut, ..options(Order::Published) };
    assert!(TaskWindows::new(depo(), held_out).unwrap_err().message.contains("held out"));
}

#[test]
fn answers_point_at_targets_and_cut_ones_say_so() {
    let (mut complete, mut cut) = (0, 0);
    let depo_marker: fn(u32) -> bool = |token| token == 9500;
    let brevo_marker = |token| token == 9998;
    let mano_marker = |token| token % 10 / 4 == 1;
    for (task, loss_on, is_marker) in [
        (depo(), LossOn::Answer, depo_marker),
        (brevo(), LossOn::Answer, brevo_marker),
        (mano(), LossOn::All, mano_marker),
    ] {
        let mut windows =
            TaskWindows::new(task.clone(), Options { loss_on, ..options(Order::Indexed) }).unwrap();
        let batch = batch(&mut windows, 0..64);
        for row in 0..64 {
            let random_key = window_key(&task.digest(), Split::Train, Mode::Train, 42, row as u64);
            let mut random = Random::from_key(random_key.as_bytes());
            let (tokens, labels) = packed_slowly(&task, Mode::Train, &mut random, 128);
            let answers: Vec<&Answer> =
                batch.answers().iter().filter(|answer| answer.row == row).collect();
            let mut in_answers = 0;
            for answer in &answers {
                assert!(answer.len > 0 && answer.start + answer.len <= 128);
                assert!(answer.complete || answer.start + answer.len == 128);
                for target in answer.start..answer.start + answer.len {
                    let want = i64::from(tokens[target + 1]);
                    assert_eq!(batch.targets()[row * 128 + target], want);
                }
                assert!(is_marker(tokens[answer.start]));
                in_answers += answer.len;
                complete += usize::from(answer.complete);
                cut += usize::from(!answer.complete);
            }
            if loss_on == LossOn::Answer {
                // Brevo's end token equals its answer marker.
                let markers = (1..=128).filter(|&i| labels[i] == 1 && is_marker(tokens[i])).count();
                let labelled = (1..=128).filter(|&i| labels[i] == 1).count();
                assert_eq!(in_answers + markers, labelled);
            }
        }
    }
    assert!(complete > 500 && cut > 0, "{complete} complete, {cut} cut");
}

#[test]
fn mano_windows_score_every_value() {
    let test = Options {
        mode: Mode::Test,
        split: Split::HeldOut,
        loss_on: LossOn::All,
        ..options(Order::Indexed)
    };
    let mut windows = TaskWindows::new(mano(), test).unwrap();
    let batch = batch(&mut windows, 0..8);
    // 25 tokens per sample at L = 10: five complete ones in 129 tokens.
    assert_eq!(batch.answers().len(), 8 * 5);
    assert!(batch.answers().iter().all(|answer| answer.complete && answer.level == 10));
    assert_eq!(batch.counted_targets(), 8 * 128);
}

#[test]
fn everything_that_should_key_a_window_does() {
    let first = |options: Options| batch(&mut TaskWindows::new(depo(), options).unwrap(), 0..1);
    let base = options(Order::Indexed);
    let others = [
        Options { seed: 43, ..base },
        Options { split: Split::HeldOut, ..base },
        Options { mode: Mode::Test, ..base },
        Options { order: Order::Published, ..base },
    ];
    for other in others {
        assert_ne!(first(other).inputs(), first(base).inputs(), "{other:?}");
    }
    // The key does not depend on the loss, and a shorter window begins the longer one.
    assert_eq!(first(Options { loss_on: LossOn::All, ..base }).inputs(), first(base).inputs());
    assert_eq!(first(Options { seq_len: 64, ..base }).inputs(), &first(base).inputs()[..64]);
    // The keying must never change: it decides every indexed run's data.
    let digest = digest_of_windows(&first(base).window_digests());
    assert_eq!(
        digest.to_hex().as_str(),
        "3b1dd0f086f2ffecc38da8fd77a95d239059dc7bd2af8331d5feb7c38499b567"
    );
}

#[test]
fn windows_that_could_hold_no_answer_are_refused() {
    let error =
        TaskWindows::new(depo(), Options { seq_len: 9, ..options(Order::Indexed) }).unwrap_err();
    assert!(
        error.message.contains("takes 11 tokens") && error.help.contains("10 or more"),
        "{error}"
    );
    assert!(TaskWindows::new(depo(), Options { seq_len: 10, ..options(Order::Indexed) }).is_ok());
    assert!(TaskWindows::new(depo(), Options { seq_len: 0, ..options(Order::Indexed) }).is_err());
    assert!(
        TaskWindows::new(depo(), Options { seq_len: usize::MAX, ..options(Order::Indexed) })
            .is_err()
    );
    let error = TaskWindows::new(mano(), options(Order::Indexed)).unwrap_err();
    assert!(error.message.contains("do not label"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(support::cases(64)))]

    #[test]
    fn any_walk_over_indexed_windows_gives_the_same_windows(
        seed: u64,
        starts in prop::collection::vec(0u64..1 << 40, 1..5),
        rows in 1u64..4,
    ) {
        let options = Options { seed, ..options(Order::Indexed) };
        let mut walked = TaskWindows::new(depo(), options).unwrap();
        for start in starts {
            let together = batch(&mut walked, start..start + rows);
            for row in 0..rows {
                let alone = batch(
                    &mut TaskWindows::new(depo(), options).unwrap(),
                    start + row..start + row + 1,
                );
                let at = row as usize;
                prop_assert_eq!(alone.inputs(), &together.inputs()[at * 128..(at + 1) * 128]);
                prop_assert_eq!(&alone.window_digests()[0], &together.window_digests()[at]);
            }
        }
    }
}

#[test]
fn what_separates_samples_comes_before_each() {
    let lano = Task::parse("lano", json!({"config": "cfg3f"})).unwrap();
    let options = Options { seq_len: 512, loss_on: LossOn::All, ..options(Order::Published) };
    let mut windows = TaskWindows::new(lano.clone(), options).unwrap();
    let batch = batch(&mut windows, 0..1);
    let (mut random, mut tape, mut want) = (Random::new(42), Tape::default(), Vec::new());
    while want.len() < 512 {
        tape.clear();
        lano.sample(&mut random, Mode::Train, &mut Scratch::default(), &mut tape);
        want.push(4);
        want.extend(tape.tokens.iter().map(|&token| i64::from(token)));
    }
    assert_eq!(batch.inputs(), &want[..512]);
    assert_eq!(batch.counted_targets(), 512);
    assert_eq!((windows.vocab(), windows.task().alphabet()), (5, vec![1, 2, 3, 4]));
}

#[test]
fn dense_tokens_are_places_in_the_alphabet() {
    let mano = Task::parse("mano", json!({"L": 4})).unwrap();
    for (task, loss_on) in [(depo(), LossOn::Answer), (mano, LossOn::All)] {
        let alphabet: Vec<i64> = task.alphabet().into_iter().map(i64::from).collect();
        assert!(alphabet.is_sorted_by(|a, b| a < b));
        let options = Options { loss_on, ids: Ids::Published, ..options(Order::Indexed) };
        let mut published = TaskWindows::new(task.clone(), options).unwrap();
        let mut dense = TaskWindows::new(task, Options { ids: Ids::Dense, ..options }).unwrap();
        let (mut a, mut b) = (Batch::default(), Batch::default());
        published.fill(0..50, &mut a).unwrap();
        dense.fill(0..50, &mut b).unwrap();
        let back: Vec<i64> = b.inputs().iter().map(|&i| alphabet[i as usize]).collect();
        assert_eq!(back, a.inputs());
        let most = b.inputs().iter().chain(b.targets()).max().unwrap();
        assert!(*most < i64::from(dense.vocab()));
        // Samples use every token of the alphabet.
        let used: std::collections::BTreeSet<i64> = back.into_iter().collect();
        assert!(used.len() * 10 >= alphabet.len() * 9, "{} of {}", used.len(), alphabet.len());
    }
}
