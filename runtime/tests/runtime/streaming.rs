//! The law of rule 13: `run(a ++ b, s) = run(a, s) ++ run(b, state after a)`, at random splits, for every arch; and the
//! same for an empty arm and its erased twin.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use runtime::execute::{Machine, Streamer};
use runtime::weights::Weights;
use tch::Tensor;

use super::support::{DOUBLE, FAST, PLAIN, furthest, quiet, streamer};
use ::support::archs::{all, named};

const TIME: usize = 14;

/// How to cut a sequence: lengths of at least one token that add up to [`TIME`].
fn cuts() -> impl Strategy<Value = Vec<i64>> {
    prop::collection::vec(any::<bool>(), TIME - 1).prop_map(|cut_after| {
        let mut pieces = vec![1];
        for cut in cut_after {
            match pieces.last_mut() {
                Some(last) if !cut => *last += 1,
                _ => pieces.push(1),
            }
        }
        pieces
    })
}

fn tokens(vocab: i64) -> Tensor {
    let ids: Vec<i64> = (0..2 * TIME as i64).map(|i| (i * i * 5 + i + 3) % vocab).collect();
    Tensor::from_slice(&ids).reshape([2, TIME as i64])
}

/// Logits of the whole sequence, read in those pieces.
fn in_pieces(streamer: &Streamer, weights: &Weights, tokens: &Tensor, pieces: &[i64]) -> Tensor {
    let (mut carried, mut first) = (streamer.start(2).unwrap(), 0);
    let mut all = Vec::new();
    for count in pieces {
        let piece = tokens.narrow(1, first, *count);
        let (logits, after) = streamer.forward(weights, &piece, &carried).unwrap();
        all.push(logits);
        (carried, first) = (after, first + count);
    }
    Tensor::cat(&all, 1)
}

fn law(machine: Machine, within: f64) {
    quiet();
    for (name, compiled) in all() {
        let streamer = streamer(&compiled.graph, machine);
        let weights = Weights::init(&compiled.graph, 5).unwrap();
        let weights = weights.to(machine.device, machine.kind).unwrap();
        let tokens = tokens(compiled.graph.vocab);
        let uncut = in_pieces(&streamer, &weights, &tokens, &[TIME as i64]);
        let size = uncut.abs().max().double_value(&[]);
        let check = |pieces: &[i64]| {
            let cut = in_pieces(&streamer, &weights, &tokens, pieces);
            let error = furthest(&cut, &uncut) / size;
            assert!(error < within, "{name} in {pieces:?} on {machine:?}: {error:e}");
        };
        check(&[1; TIME]);
        let config = Config { cases: 12, failure_persistence: None, ..Config::default() };
        TestRunner::new(config)
            .run(&cuts(), |pieces| {
                check(&pieces);
                Ok(())
            })
            .unwrap();
    }
}

#[test]
fn any_split_gives_the_same_logits_in_f64() {
    law(DOUBLE, 1e-13);
}

#[test]
fn any_split_gives_the_same_logits_in_f32() {
    law(FAST, 1e-4);
    law(PLAIN, 1e-4);
}

#[test]
fn a_kept_state_can_be_gone_back_to() {
    quiet();
    let compiled = named("hybrid");
    let streamer = streamer(&compiled.graph, FAST);
    let weights = Weights::init(&compiled.graph, 5).unwrap();
    let tokens = tokens(compiled.graph.vocab);
    let start = streamer.start(2).unwrap();
    let (_, kept) = streamer.forward(&weights, &tokens.narrow(1, 0, 5), &start).unwrap();
    let next = tokens.narrow(1, 5, 3);
    let (once, _) = streamer.forward(&weights, &next, &kept).unwrap();
    let (again, _) = streamer.forward(&weights, &next, &kept).unwrap();
    assert!(once == again);
    assert_eq!(kept.position, 5);
}
