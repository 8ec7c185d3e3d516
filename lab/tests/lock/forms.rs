//! One recipe in several forms: two ways to write a setting give one experiment, and one lock byte for byte, except for the
//! lines that record how it was written.

use std::rc::Rc;

use lab::experiment::{Experiment, LockedArch};
use lab::lock::{Lock, write};

use super::recipe::recipe_error;
use support::locks::{DEPO, TEXT, compiled_text, experiment_of, locked, small};

/// The lock without the lines that record how a recipe was written, and without their hashes.
fn meaning(experiment: &Experiment) -> String {
    let text = write(&Lock::Experiment(experiment.clone()));
    let written = |line: &str| line.starts_with("budget.given = ") || line.starts_with("text = \"");
    text.lines().filter(|line| !written(line)).map(|line| format!("{line}\n")).collect()
}

#[test]
fn forms_of_one_recipe_are_one_lock() {
    let plain = format!("{DEPO}evaluation = {{ metrics = [\"eval_loss\", \"exact_match\"] }}\n")
        .replace("weight_decay = 0.0133 }", "weight_decay = 0.0133, betas = [0.9, 0.95] }");
    let first = experiment_of(&plain, &small());
    let mut lines: Vec<&str> = plain.lines().collect();
    lines.reverse();
    let forms = [
        ("tables in another order", lines.join("\n")),
        (
            "metrics in another order, one twice",
            plain.replace(
                "[\"eval_loss\", \"exact_match\"]",
                "[\"exact_match\", \"eval_loss\", \"exact_match\"]",
            ),
        ),
        (
            "numbers in other digits",
            plain.replace("0.003", "3.0e-3").replace("[0.9, 0.95]", "[9e-1, 0.9500]"),
        ),
        ("defaults left out", plain.replace(", betas = [0.9, 0.95]", "")),
        (
            "defaults written",
            plain.replace(
                "batch = { sequences = 32 }",
                "batch = { sequences = 32, micro_batches = 1 }",
            ),
        ),
        ("a budget of tokens", plain.replace("{ steps = 600 }", "{ tokens = 2457600 }")),
        (
            "keys in another order",
            plain.replace(
                "{ lr = 0.003, weight_decay = 0.0133, betas = [0.9, 0.95] }",
                "{ betas = [0.9, 0.95], weight_decay = 0.0133, lr = 0.003 }",
            ),
        ),
        (
            "seeds in hexadecimal",
            plain.replace("{ init = 1, data = 1 }", "{ init = \"0x1\", data = 1 }"),
        ),
    ];
    for (form, text) in forms {
        assert_ne!(text, plain, "{form}");
        let variant = experiment_of(&text, &small());
        assert_eq!(meaning(&first), meaning(&variant), "{form}");
        assert_eq!(first.train_options(), variant.train_options(), "{form}");
        assert_eq!(first.digests, variant.digests, "{form}");
    }
}

/// The decayed parameters are hashed as a list, in the graph's order.
#[test]
fn an_arch_declared_in_another_order_is_the_same_experiment() {
    let arch = |first: &str, second: &str| -> Rc<LockedArch> {
        locked(&compiled_text(
            &format!(
                "block own(x) {{ {first}  {second}  x + silu(a) * b }}
arch small {{ vocab 10400  dim 8  norm_eps 1e-5  init lingua  layers 2 of own }}"
            ),
            "small",
        ))
    };
    let (a, b) = ("a = linear u (x, dim)", "b = linear v (x, dim)");
    let recipe = DEPO.replace("lr = 0.003,", "lr = 0.003, decay = \"matrices\",");
    let [first, second] = [arch(a, b), arch(b, a)].map(|arch| experiment_of(&recipe, &arch));
    assert_ne!(first.arch.text, second.arch.text);
    assert_eq!(first.arch.id(), second.arch.id());
    assert_eq!(first.value("optimizer.decayed"), second.value("optimizer.decayed"));
    assert_eq!(first.digests, second.digests);
}

/// Weights are shares of the sources: one source has all of it, whatever its weight; if every weight is zero, that is
/// an error.
#[test]
fn weights_of_one_source_are_no_weights_and_some_source_is_read() {
    let with = |weights: &str| {
        TEXT.replace("task = \"text\",", &format!("task = \"text\", weights = {weights},"))
    };
    let plain = experiment_of(TEXT, &small());
    for weights in ["[1]", "[7]", "[]"] {
        let text = with(weights);
        assert_ne!(text, TEXT);
        assert_eq!(experiment_of(&text, &small()).digests, plain.digests, "{weights}");
    }
    for weights in ["[0, 0, 0]", "[0]"] {
        let message = recipe_error(&with(weights), &small());
        assert!(message.contains("every weight is 0, so no source would be read"), "{message}");
    }
    assert_ne!(experiment_of(&with("[1, 0]"), &small()).digests, plain.digests);
}
