//! Fields about what an arch may lack: weights of losses that it does not have, and the seed of dropout.

use std::rc::Rc;

use lab::experiment::LockedArch;
use lab::lock::{Lock, read, write};
use lab::verdict::Outcome;

use super::recipe::recipe_error;
use support::locks::{
    DEPO, SMALL, compiled_text, experiment_of, experiments_of, judge, locked, small,
};

const SEEDED: &str = "data = 1, dropout = 5 }";

fn dropping(rate: &str, name: &str) -> Rc<LockedArch> {
    let layer = format!("of dropout_decoder {{ dropout {rate}");
    locked(&compiled_text(&SMALL.replace("of decoder {", &layer), name))
}

fn seeded() -> String {
    DEPO.replace("data = 1 }", SEEDED)
}

#[test]
fn dropout_needs_a_seed_and_a_seed_needs_dropout() {
    let refused = recipe_error(DEPO, &dropping("0.1", "small"));
    assert!(
        refused.contains("arch `small` has dropout, but seeds.dropout is not given"),
        "{refused}"
    );
    assert!(refused.contains("write `dropout = 1` under [seeds]"), "{refused}");
    let refused = recipe_error(&seeded(), &small());
    assert!(refused.contains("seeds.dropout is 5, but arch `small` has no dropout"), "{refused}");
    // A rate of 0 is dropout too, so that arms with and without it have the same recipe.
    assert!(experiments_of("recipes/a.toml", &seeded(), &dropping("0", "small")).is_ok());
}

/// A seed is in the id and the lock, and a lock without dropout says nothing of it.
#[test]
fn the_seed_is_in_the_id() {
    let plain = write(&Lock::Experiment(experiment_of(DEPO, &small())));
    assert!(!plain.contains("seeds.dropout"), "{plain}");
    let arch = dropping("0.1", "small");
    let first = experiment_of(&seeded(), &arch);
    let second = experiment_of(&seeded().replace("dropout = 5", "dropout = 6"), &arch);
    assert_ne!(first.id(), second.id());
    assert_eq!(first.digests.platform, second.digests.platform);
    assert!(first.train_text().contains("seeds.dropout = 5\n"), "{}", first.train_text());
    let text = write(&Lock::Experiment(first.clone()));
    assert_eq!(write(&read("one", &text).unwrap()), text);
    let verdict = judge(&Lock::Experiment(first), &Lock::Experiment(second), &[]).unwrap();
    let paths: Vec<&str> = verdict.confounds.iter().map(|c| c.path.as_str()).collect();
    assert_eq!(paths, ["seeds.dropout"]);
}

/// The rate is a field of the arch, which `diff` names; a Canon layer beside it is controlled.
#[test]
fn a_verdict_sees_the_rate() {
    let lock =
        |rate: &str, arch: &str| Lock::Experiment(experiment_of(&seeded(), &dropping(rate, arch)));
    let base = lock("0.1", "small");
    for rate in ["0.2", "0"] {
        let changed = lock(rate, "small");
        let verdict = judge(&base, &changed, &[]).unwrap();
        let paths: Vec<&str> = verdict.confounds.iter().map(|c| c.path.as_str()).collect();
        assert_eq!(paths, ["arch.layers.0..2.dropout"]);
        let verdict = judge(&base, &changed, &["arch.layers.*.dropout"]).unwrap();
        assert_eq!(verdict.outcome, Outcome::Controlled);
    }
    assert_eq!(
        judge(&base, &lock("0.1", "smallcanon"), &["canon"]).unwrap().outcome,
        Outcome::Controlled
    );
}

/// A weight of a loss that the arch lacks is an error, not a setting without effect.
#[test]
fn a_loss_that_the_arch_lacks_has_no_weight() {
    let experts = SMALL.replace("swiglu { hidden 16 }", "moe { count 4, hidden 16 }");
    let head = "init lingua  head two_tokens { extra mixer_only { mixer retention { heads 2 } } }";
    let ahead = SMALL.replace("init lingua", head);
    for (field, text, lacks, with) in [
        ("balance", &experts, "no auxiliary loss `balance`", "as `mlp moe` has"),
        ("router_z", &experts, "no auxiliary loss `router_z`", "`aux_loss(y, a, router_z)`"),
        ("ahead", &ahead, "no head that predicts later tokens", "`head two_tokens`"),
    ] {
        let weighed = format!("{DEPO}loss = {{ {field} = 0.25 }}\n");
        let refused = recipe_error(&weighed, &small());
        let message = format!("loss.{field} is 0.25, but arch `small` has {lacks}");
        assert!(refused.contains(&message) && refused.contains("remove it, or use"), "{refused}");
        assert!(refused.contains(with), "{refused}");
        let experiment = experiment_of(&weighed, &locked(&compiled_text(text, "small")));
        assert!(experiment.train_text().contains(&format!("loss.{field} = 0.25\n")));
        // 0 says nothing.
        let plain = experiment_of(DEPO, &small());
        assert_eq!(experiment_of(&weighed.replace("0.25", "0"), &small()).id(), plain.id());
    }
}

/// A loss that only a head of later tokens has needs that head's own weight.
#[test]
fn a_loss_inside_a_head_that_does_not_count_has_no_weight() {
    let head = "init lingua  head two_tokens { extra layers_of_experts }";
    let head = head.replace(
        "layers_of_experts",
        "decoder { mixer attention { heads 2 }  mlp moe { count 4, hidden 16 } }",
    );
    let arch = SMALL.replace("init lingua", &head);
    let weighed = format!("{DEPO}loss = {{ balance = 0.25 }}\n");
    let arch = locked(&compiled_text(&arch, "small"));
    let refused = recipe_error(&weighed, &arch);
    assert!(refused.contains("in a head of later tokens, and loss.ahead is 0"), "{refused}");
    experiment_of(&weighed.replace("balance", "ahead = 0.5, balance"), &arch);
}

/// Heads of later tokens share their loss's weight, so one inside a layer or a fill would change the weight of others.
#[test]
fn a_head_of_later_tokens_belongs_to_the_head() {
    let dense = DEPO.replace("seq_len", "ids = \"dense\", seq_len");
    let weighed = format!("{dense}loss = {{ ahead = 0.25 }}\n");
    let text = |edits: &str| {
        format!(
            "block guess(x) {{ ahead_loss(x, linear w (x, vocab), 2) }}
             arch base {{ vocab 104  dim 104  norm_eps 1e-5  init lingua
               head two_tokens {{ extra decoder {{ mixer attention {{ heads 2 }}  mlp swiglu {{ hidden 16 }} }} }}
               layers 2 of decoder {{ mixer attention {{ heads 2 }}  mlp swiglu {{ hidden 16 }} }} }}
             arch small = base with {{ dim 104  {edits} }}"
        )
    };
    let arch = |edits: &str| locked(&compiled_text(&text(edits), "small"));
    experiment_of(&weighed, &arch("canon A"));
    for edits in ["fill A with guess", "fill layers[0].C with guess"] {
        let refused = recipe_error(&weighed, &arch(edits));
        assert!(refused.contains("`ahead_loss` inside a layer or the fill of a slot"), "{refused}");
        experiment_of(&dense, &arch(edits));
    }
}

/// A weight is exact or refused, never dropped.
#[test]
fn a_weight_with_too_many_digits_is_refused() {
    let experts = SMALL.replace("swiglu { hidden 16 }", "moe { count 4, hidden 16 }");
    let arch = locked(&compiled_text(&experts, "small"));
    for weight in ["1e-39", "1e-30", "123456789e-34"] {
        let refused = recipe_error(&format!("{DEPO}loss = {{ balance = {weight} }}\n"), &arch);
        assert!(refused.contains("loss.balance is") && refused.contains("24 digits"), "{refused}");
    }
    experiment_of(&format!("{DEPO}loss = {{ balance = 1e-24 }}\n"), &arch);
}
