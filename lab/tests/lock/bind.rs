//! Closing locks: the data is identified, and building again does not open them.

use compiler::digest::Digest;
use lab::lock::{Bound, Lock, bind, keep_binding, read, write};

use support::locks::{DEPO, TEXT, arch_lock, experiment_of, small};

fn data(text: &str) -> Bound {
    Bound {
        digest: Digest::of("test", text),
        documents: None,
        tokens: Some(51_200),
        tokenizer: None,
    }
}

#[test]
fn a_bound_lock_is_closed_under_a_new_id() {
    let open = Lock::Experiment(experiment_of(TEXT, &small()));
    assert_eq!(open.open_inputs(), ["data.source = \"nemotron_cc\""]);
    let closed = bind(&open, data("a")).unwrap();
    assert!(closed.open_inputs().is_empty());
    assert_ne!(closed.id(), open.id());
    let text = write(&closed);
    assert_eq!(write(&read("x", &text).unwrap()), text);
    // 100 steps of 4 windows of 64 tokens are half a pass.
    assert!(
        text.contains("data.epochs = 0.5\n") && text.contains("data.source = \"nemotron_cc\"\n")
    );
    // Binding again changes nothing; other data is drift.
    assert_eq!(write(&bind(&closed, data("a")).unwrap()), text);
    assert_eq!(bind(&closed, data("b")).unwrap_err().code, "data-drift");
}

#[test]
fn tokens_are_those_of_the_tokenizer_that_the_lock_names() {
    let trained = |vocab: u32| {
        let tokenizer = format!("tokenizer = \"tiktoken\", tokenizer_vocab = {vocab}, seq_len");
        Lock::Experiment(experiment_of(&TEXT.replace("seq_len", &tokenizer), &small()))
    };
    let tokenized = |name: &str| Bound { tokenizer: Some(Digest::of("test", name)), ..data("a") };
    let open = trained(300);
    assert_eq!(
        open.open_inputs(),
        ["data.source = \"nemotron_cc\"", "data.tokenizer = \"tiktoken\""]
    );
    let closed = bind(&open, tokenized("one")).unwrap();
    assert!(closed.open_inputs().is_empty());
    assert_eq!(write(&keep_binding(&open, &closed).unwrap().unwrap()), write(&closed));
    assert!(keep_binding(&trained(299), &closed).unwrap().is_none());
    assert_eq!(bind(&closed, tokenized("two")).unwrap_err().code, "tokenizer-drift");
    assert_eq!(bind(&open, data("a")).unwrap_err().code, "tokenizer-drift");
    let bytes = Lock::Experiment(experiment_of(TEXT, &small()));
    assert_eq!(bind(&bytes, tokenized("one")).unwrap_err().code, "tokenizer-drift");
}

#[test]
fn locks_without_text_data_cannot_be_bound() {
    let depo = Lock::Experiment(experiment_of(DEPO, &small()));
    for lock in [depo, arch_lock("arch/llama_tiny.canon")] {
        assert_eq!(bind(&lock, data("a")).unwrap_err().code, "nothing-to-bind");
    }
}

#[test]
fn building_again_keeps_the_binding() {
    let arch = small();
    let open = Lock::Experiment(experiment_of(TEXT, &arch));
    let closed = bind(&open, data("a")).unwrap();
    let faster = Lock::Experiment(experiment_of(&TEXT.replace("0.002", "0.004"), &arch));
    let kept = keep_binding(&faster, &closed).unwrap().unwrap();
    assert!(kept.open_inputs().is_empty());
    assert_eq!(write(&keep_binding(&open, &closed).unwrap().unwrap()), write(&closed));
    // Data with another name does not match.
    let other_data = Lock::Experiment(experiment_of(&TEXT.replace("nemotron_cc", "c4"), &arch));
    assert!(keep_binding(&other_data, &closed).unwrap().is_none());
    assert!(keep_binding(&open, &open).unwrap().is_none());
}
