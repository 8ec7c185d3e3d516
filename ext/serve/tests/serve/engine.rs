//! The engine: a job's events depend on that job alone.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::toy::{Bytes, Toy};
use serve::engine::{Engine, Event, Finish, Job, Limits, Refusal};
use serve::model::{Model, Piece, Sampling};
use serve::stats::Stats;

type Events = UnboundedReceiver<(usize, Event)>;

fn job(prompt: &[u32], most: usize, seed: u64, number: usize) -> (Job, Events) {
    let (events, received) = unbounded_channel();
    let began = Instant::now();
    let job = Job {
        prompt: prompt.to_vec(),
        max_tokens: most,
        penalties: std::sync::Arc::default(),
        sampling: Sampling { seed, ..Sampling::default() },
        stops: vec!["ab".to_owned()],
        logprobs: (!seed.is_multiple_of(3)).then_some((seed % 3) as usize),
        score_prompt: seed % 3 == 2,
        began,
        deadline: began + Duration::from_secs(3600),
        events,
        number,
    };
    (job, received)
}

fn all(mut events: Events) -> Vec<Event> {
    std::iter::from_fn(|| events.blocking_recv()).map(|(_, event)| event).collect()
}

/// Each job's events, with jobs submitted together, and some whose reader has left among them.
fn run(jobs: Vec<(Job, Events)>, rows: usize, leavers: &[usize]) -> Vec<Vec<Event>> {
    let stats = Arc::new(Stats::default());
    let (engine, queue) = Engine::new(Limits { rows, queue: 1000 }, stats.clone());
    let (mut submitted, mut received) = (Vec::new(), Vec::new());
    for (number, (one, events)) in jobs.into_iter().enumerate() {
        if leavers.contains(&number) {
            let (leaver, left) = job(&[1, 2, 3, 4, 5, 6, 7], 50, number as u64, 0);
            drop(left);
            submitted.push(leaver);
        }
        submitted.push(one);
        received.push(events);
    }
    queue.submit(submitted).unwrap();
    drop(queue);
    engine.run(&Toy::default(), &Bytes::new());
    assert_eq!(stats.cancelled.get() as usize, leavers.len());
    assert_eq!((stats.running.get(), stats.waiting.get()), (0, 0));
    received.into_iter().map(all).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_job_has_the_same_events_whatever_runs_beside_it(
        asked in proptest::collection::vec((proptest::collection::vec(0u32..256, 1..20), 0usize..12, 0u64..9), 1..14),
        rows in 1usize..9,
        leavers in proptest::sample::subsequence((0..14usize).collect::<Vec<_>>(), 0..5),
    ) {
        let make = |(number, (prompt, most, seed)): (usize, &(Vec<u32>, usize, u64))| job(prompt, *most, *seed, number);
        let leavers: Vec<usize> = leavers.into_iter().filter(|n| *n < asked.len()).collect();
        let together = run(asked.iter().enumerate().map(make).collect(), rows, &leavers);
        for (number, batched) in together.iter().enumerate() {
            let alone = run(vec![make((number, &asked[number]))], 1, &[]);
            prop_assert_eq!(&alone[0], batched);
            let is_last = matches!(batched.last(), Some(Event::Done { .. }));
            prop_assert!(is_last, "{:?}", batched);
        }
    }
}

#[test]
fn probabilities_are_those_of_the_softmax() {
    let (mut one, events) = job(&[104, 105], 2, 2, 0);
    one.sampling.temperature = 0.0;
    one.stops.clear();
    let events = run(vec![(one, events)], 1, &[]).remove(0);
    let [
        Event::Prompt(prompt),
        Event::Token { token, .. },
        Event::Token { .. },
        Event::Done { finish, drawn, .. },
    ] = events.as_slice()
    else {
        panic!("{events:?}");
    };
    assert_eq!((*finish, *drawn), (Finish::Length, 2));
    assert_eq!((prompt[0].id, prompt[0].logprob, prompt[1].id), (104, None, 105));
    // Greedy: the token is the likeliest one.
    assert_eq!(Some(token.top[0]), token.logprob.map(|logprob| (token.id, logprob)));
    assert!(token.top[0].1 >= token.top[1].1 && token.top.len() == 2);
    let toy = Toy::default();
    let mut state = toy.start().unwrap();
    let piece = Piece { state: &mut state, tokens: &[104], logits: 1 };
    let logits = toy.advance(&mut [piece]).unwrap().remove(0).unwrap();
    let logits = toy.row(&logits, 0).unwrap();
    let sum: f64 = logits.iter().map(|logit| logit.exp()).sum();
    assert!((prompt[1].logprob.unwrap() - (logits[105] - sum.ln())).abs() < 1e-12);
}

#[test]
fn all_jobs_of_a_request_are_queued_or_none() {
    let stats = Arc::new(Stats::default());
    let (engine, queue) = Engine::new(Limits { rows: 1, queue: 3 }, stats.clone());
    let some = |count: usize| (0..count).map(|n| job(&[1], 1, 0, n).0).collect::<Vec<_>>();
    assert_eq!(queue.submit(some(4)), Err(Refusal::Full));
    assert_eq!(queue.submit(some(2)), Ok(()));
    assert_eq!(queue.submit(some(2)), Err(Refusal::Full));
    assert_eq!(stats.waiting.get(), 2);
    stats.ending.store(true, Ordering::Relaxed);
    assert_eq!(queue.submit(some(1)), Err(Refusal::Ending));
    // Nobody waits for these jobs; the engine ends although the queue is still open.
    engine.run(&Toy::default(), &Bytes::new());
    assert_eq!(stats.cancelled.get(), 2);
}

#[test]
fn a_late_job_and_a_broken_one_say_so_and_others_go_on() {
    let stats = Arc::new(Stats::default());
    let (engine, queue) = Engine::new(Limits { rows: 4, queue: 9 }, stats.clone());
    let (mut late, late_events) = job(&[1], 9, 0, 0);
    late.deadline = late.began;
    let (broken, broken_events) = job(&[1, 99], 9, 0, 1);
    let (good, good_events) = job(&[1, 2], 3, 0, 2);
    queue.submit(vec![late, broken, good]).unwrap();
    drop(queue);
    engine.run(&Toy { broken: Some(99), ..Toy::default() }, &Bytes::new());
    assert_eq!(all(late_events), [Event::Late]);
    assert_eq!(all(broken_events), [Event::Failed("the toy breaks at 99".to_owned())]);
    assert!(matches!(all(good_events).last(), Some(Event::Done { .. })));
    assert_eq!((stats.timed_out.get(), stats.failed.get()), (1, 1));
}
