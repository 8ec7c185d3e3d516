//! One id, one result: two texts with the same id train to equal bits, and one can resume the other's run.

use lab::experiment::Experiment;
use records::run::Event;
use runtime::train::TrainOutcome;

use super::support::*;

const LAST: u64 = 8;

/// A mixer that declares its parts in the order of `lines`: a weight used twice, a raw parameter, a shared instance, a
/// slot, and a definition after those that use it.
fn text(lines: &[&str]) -> String {
    format!(
        "mixer gated(x; heads = 2) {{
  share twice = inner
  {}
  linear wo (merge(attention(heads(q, heads), heads(k, heads), heads(v, heads))) * silu(g) + h, dim)
}}
block inner(x) {{ short_conv conv (linear narrow (x, dim)) }}
arch own {{
  vocab 16   dim 16   norm_eps 1e-5
  init lingua
  layers [2 of share decoder {{ mixer gated  mlp swiglu {{ hidden 24 }} }}, decoder {{ mixer gated  mlp swiglu {{ hidden 24 }} }}]
  canon A, B, D
}}
",
        lines.join("\n  ")
    )
}

fn written(lines: &[&str]) -> Experiment {
    attempt_in(&text(lines), "own", DEPO).unwrap_or_else(|why| panic!("{why}"))
}

/// In the order of use, and in an order as different as the text allows.
fn both() -> [Experiment; 2] {
    let both = [
        written(&[
            "q = linear wq (x, dim)",
            "k = linear wk (x, dim)",
            "v = linear wv (x, dim)",
            "q, k, v = slot B(q, k, v)",
            "g = linear wg (x, dim)",
            "param bias [dim] init normal(0.5)",
            "first = twice(linear reused (g, dim, weight = wk) + bias)",
            "second = twice(v)",
            "h = first + second",
        ]),
        written(&[
            "g = linear wg (x, dim)",
            "param bias [dim] init normal(0.5)",
            "unused = exp(g)",
            "v = linear wv (x, dim)",
            "k = linear wk (x, dim)",
            "q = linear wq (x, dim)",
            "q, k, v = slot B(q, k, v)",
            "second = twice(v)",
            "again = linear reused (g, dim, weight = wk)",
            "first = twice(again + bias)",
            "h = first + second",
        ]),
    ];
    assert_eq!(both[0].id(), both[1].id());
    assert_ne!(both[0].arch.text, both[1].arch.text);
    both
}

#[test]
fn two_texts_of_one_id_train_to_equal_bits() {
    let [one, two] = both();
    let (straight, other) = (Folder::finished(&one), Folder::finished(&two));
    assert_eq!(differing(&straight.bits(LAST), &other.bits(LAST)), Vec::<String>::new());
    let attested = |folder: &Folder| {
        let text = String::from_utf8(bytes(&folder.paths().attestation())).unwrap();
        text.split("[unsealed]").next().unwrap().to_owned()
    };
    assert_eq!(attested(&straight), attested(&other), "the plan and what was computed");
}

#[test]
fn a_run_continues_under_another_text_of_its_lock() {
    let [one, two] = both();
    let straight = Folder::finished(&one);
    let cut = Folder::new();
    cut.stop_at(&one, 2);
    // Steps 4 to 6 are logged and not saved, so the other text must reproduce their lines.
    cut.run(&two, None, Some("checkpoint-full:4")).0.unwrap_err();
    let (end, observer) = cut.run(&one, None, None);
    assert!(matches!(end, Ok(TrainOutcome::Finished(_))), "{end:?}");
    let refused = |event: &Event| matches!(event, Event::CheckpointRefused { .. });
    assert!(!observer.events.iter().any(refused), "{:?}", observer.events);
    assert_eq!(differing(&straight.bits(LAST), &cut.bits(LAST)), Vec::<String>::new());
}
