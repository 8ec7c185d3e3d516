//! Runs with a head that predicts the token after the next.

use compiler::plan::{TERMS, ahead_term};

use super::support::*;

/// Twelve steps, so that there is something to learn.
const LONGER: [(&str, &str); 2] = [("steps = 8", "steps = 12"), ("every = 4", "every = 6")];
const LAST: u64 = 12;

fn second(step: &records::metrics::Step) -> Option<f64> {
    let at = TERMS.iter().position(|term| Some(*term) == ahead_term(2)).unwrap();
    step.terms[at]
}

#[test]
fn a_second_head_learns_and_resumes_with_its_loss_in_the_log() {
    for loss_on in ["all", "answer"] {
        let loss_on = format!("seq_len = 32\nloss_on = \"{loss_on}\"");
        let changes = [LONGER[0], LONGER[1], ("seq_len = 32", &loss_on)];
        let experiment = ahead("0.5", &changes);
        let straight = Folder::finished(&experiment);
        let losses: Vec<f64> =
            steps(&straight.records()).iter().map(|step| second(step).unwrap()).collect();
        let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
        // A uniform guess has ln 16 at each target.
        assert!((1.5..4.0).contains(&losses[0]), "{losses:?}");
        assert!(mean(&losses[9..]) < mean(&losses[..3]), "{losses:?}");
        let cut = Folder::new();
        for step in [2, 5, 10] {
            cut.stop_at(&experiment, step);
        }
        cut.finish(&experiment);
        assert_eq!(differing(&straight.bits(LAST), &cut.bits(LAST)), Vec::<String>::new());
        let log = String::from_utf8(bytes(&straight.paths().metrics())).unwrap();
        assert!(log.contains(",\"ahead_2\":"), "{log}");
    }
}

/// Without a weight it is the arch without the head: the same losses, norms and evaluations to the bit.
#[test]
fn a_head_without_weight_changes_no_loss() {
    let plain = Folder::finished(&depo(&[]));
    let with = Folder::finished(&ahead("0", &[]));
    for (one, two) in steps(&plain.records()).iter().zip(&steps(&with.records())) {
        assert_eq!(one, two);
    }
    let evaluations = |folder: &Folder| {
        let text = String::from_utf8(bytes(&folder.paths().metrics())).unwrap();
        let lines = text.lines().filter(|line| line.contains("\"kind\":\"eval\""));
        let measured = |line: &str| line.split("\"chain\"").next().unwrap().to_owned();
        lines.map(measured).collect::<Vec<_>>()
    };
    assert!(!evaluations(&plain).is_empty());
    assert_eq!(evaluations(&plain), evaluations(&with));
    // With a weight, the first loss is the same, and later ones are not.
    let weighed = steps(&Folder::finished(&ahead("0.5", &[])).records());
    let plain = steps(&plain.records());
    assert_eq!(weighed[0].loss, plain[0].loss);
    assert_ne!(weighed[2].loss, plain[2].loss);
    assert!(second(&plain[0]).is_none() && second(&weighed[0]).is_some());
}

/// The step's loss and gradients do not depend on its division into micro-batches.
#[test]
fn other_micro_batches_have_the_same_losses() {
    let run_with = |sequences: u32, micro_batches: u32| {
        let batch = format!("sequences = {sequences}\nmicro_batches = {micro_batches}");
        let changes = [("sequences = 2\nmicro_batches = 2", batch.as_str())];
        steps(&Folder::finished(&ahead("0.5", &changes)).records())
    };
    let two = run_with(2, 2);
    for other in [run_with(4, 1), run_with(1, 4)] {
        for (a, b) in two.iter().zip(&other).take(3) {
            let are_near = |a: f64, b: f64| (a - b).abs() < 1e-4;
            assert!(are_near(second(a).unwrap(), second(b).unwrap()), "{a:?} {b:?}");
            assert!(are_near(a.loss.unwrap(), b.loss.unwrap()), "{a:?} {b:?}");
            assert!(are_near(a.grad_norm, b.grad_norm), "{a:?} {b:?}");
        }
    }
}
