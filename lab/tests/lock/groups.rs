//! Groups of parameters: who is in one, what an id and a verdict say of it, and what is refused.

use compiler::plan::{ParamUpdate, UpdateRule};
use lab::experiment::Experiment;
use lab::lock::{Lock, read, write};
use lab::verdict::Outcome;

use super::recipe::recipe_error;
use support::locks::{DEPO, SMALL, compiled_text, experiment_of, judge, locked, small};

/// A recipe with more lines under `[optimizer]`.
fn with(lines: &str) -> String {
    DEPO.replace("lr = 0.003", &format!("{lines}, lr = 0.003"))
}

fn grouped(lines: &str, arch: &str) -> Experiment {
    experiment_of(&with(lines), &locked(&compiled_text(SMALL, arch)))
}

/// The update of the parameter with this path.
fn update(experiment: &Experiment, path: &str) -> ParamUpdate {
    let params = experiment.arch.compiled.graph.params();
    let index = params.iter().position(|param| param.path == path).unwrap();
    ParamUpdate::for_param(&experiment.updates, index)
}

#[test]
fn a_pattern_names_parameters_by_path_and_role() {
    let experiment = grouped(
        "frozen = [\"**.pre_mixer\"], lr_multipliers = [[\":embed\", 0.5], [\"layers.**:linear\", 0.25]], \
         weight_decay_multipliers = [[\"layers.**:linear\", 4], [\":norm\", 0]]",
        "small",
    );
    let rule_and_factors = |path: &str| {
        let ParamUpdate { rule, lr_factor, decay_factor } = update(&experiment, path);
        (rule, lr_factor.to_string(), decay_factor.to_string())
    };
    let adamw = |lr: &str, decay: &str| (UpdateRule::AdamW, lr.to_owned(), decay.to_owned());
    assert_eq!(rule_and_factors("embed"), adamw("0.5", "1"));
    assert_eq!(rule_and_factors("layers.1.mixer.wq"), adamw("0.25", "4"));
    assert_eq!(rule_and_factors("layers.0.pre_mlp"), adamw("1", "0"));
    assert_eq!(rule_and_factors("layers.0.pre_mixer").0, UpdateRule::Frozen);
    assert_eq!(rule_and_factors("head.output"), adamw("1", "1"));
    // A frozen parameter has no moments.
    let plain = experiment_of(DEPO, &small());
    let bytes = |experiment: &Experiment| {
        experiment.value("arch.optimizer_bytes").unwrap().plain().parse::<i64>().unwrap()
    };
    let params = experiment.arch.compiled.graph.params().iter();
    let frozen = params.filter(|param| param.path.ends_with("pre_mixer"));
    let elements: i64 = frozen.map(|param| param.shape.iter().product::<i64>()).sum();
    assert!(elements > 0);
    assert_eq!(bytes(&plain) - bytes(&experiment), 8 * elements);
}

/// What groups say is in the id, however it is written; without groups there is no line.
#[test]
fn groups_are_in_the_id() {
    let plain = experiment_of(DEPO, &small());
    assert!(!write(&Lock::Experiment(plain.clone())).contains("multipliers"));
    assert!(plain.value("optimizer.groups").is_none());
    let first = grouped("frozen = [\"head.output\", \":embed\"]", "small");
    let second = grouped("frozen = [\":embed\", \"head.output\"]", "small");
    assert_eq!(first.id(), second.id());
    assert_ne!(first.id(), plain.id());
    assert!(first.train_text().contains("optimizer.groups = \""));
    let text = write(&Lock::Experiment(first));
    assert_eq!(write(&read("one", &text).unwrap()), text);
}

/// A group of Canon's weights belongs to Canon where both recipes say it: the arm without such weights trains as it
/// would without the group. Said in one recipe only, it is a confound, and so is any other difference of groups.
#[test]
fn a_verdict_sees_groups() {
    let canon = "lr_multipliers = [[\":canon?\", 0.5]]";
    let lock = |lines: &str, arch: &str| Lock::Experiment(grouped(lines, arch));
    let verdict = judge(&lock(canon, "small"), &lock(canon, "smallcanon"), &["canon"]).unwrap();
    assert_eq!(verdict.outcome, Outcome::Controlled);
    let plain = Lock::Experiment(experiment_of(DEPO, &small()));
    for lines in [canon, "lr_multipliers = [[\":canon\", 0.5]]", "frozen = [\":norm\"]"] {
        let changed = lock(lines, "smallcanon");
        for (a, b) in [(&plain, &changed), (&changed, &plain)] {
            let verdict = judge(a, b, &["canon"]).unwrap();
            assert!(matches!(verdict.outcome, Outcome::Confounded(_)), "{:?}", verdict.outcome);
            let paths: Vec<&str> = verdict.confounds.iter().map(|c| c.path.as_str()).collect();
            assert!(
                paths.contains(&"optimizer.lr_multipliers") || paths.contains(&"optimizer.frozen"),
                "{paths:?}"
            );
        }
    }
    // As a treatment, each field of groups is a factor.
    let frozen = lock("frozen = [\":norm\"]", "small");
    let verdict = judge(&plain, &frozen, &["optimizer.frozen"]).unwrap();
    assert_eq!(verdict.outcome, Outcome::Controlled);
    let two = lock("frozen = [\":norm\"], lr_multipliers = [[\"head.output\", 0.5]]", "small");
    let treatment = ["optimizer.frozen", "optimizer.lr_multipliers"];
    assert_eq!(judge(&plain, &two, &treatment).unwrap().outcome, Outcome::Bundle(2));
}

/// With `muon`, matrices of layers have one moment, and a verdict sees the rule of the update.
#[test]
fn muon_updates_what_the_recipe_names() {
    let experiment =
        grouped("kind = \"muon\", muon_scale = \"moonshot\", frozen = [\"**.wk\"]", "smallcanon");
    let moments = |path: &str| update(&experiment, path).moments();
    assert_eq!(moments("layers.0.mixer.wq"), 1);
    assert_eq!(moments("layers.0.mixer.wk"), 0);
    assert_eq!([moments("embed"), moments("head.output"), moments("layers.0.pre_mlp")], [2; 3]);
    let plain = Lock::Experiment(experiment_of(DEPO, &small()));
    let muon = Lock::Experiment(grouped("kind = \"muon\"", "small"));
    let verdict = judge(&plain, &muon, &["optimizer.kind"]).unwrap();
    assert_eq!(verdict.outcome, Outcome::Controlled);
    let canon = Lock::Experiment(grouped("kind = \"muon\"", "smallcanon"));
    assert_eq!(judge(&muon, &canon, &["canon"]).unwrap().outcome, Outcome::Controlled);
    assert!(matches!(judge(&plain, &canon, &["canon"]).unwrap().outcome, Outcome::Confounded(_)));
    let norms = recipe_error(&with("kind = \"muon\", muon = [\":norm\"]"), &small());
    assert!(norms.contains("Muon updates matrices"), "{norms}");
    let idle = recipe_error(&with("momentum = 0.9"), &small());
    assert!(idle.contains("has no effect when optimizer.kind = \"adamw\""), "{idle}");
    let shared = format!("{}platform = {{ shard = \"full\" }}\n", with("kind = \"muon\""));
    let divided = recipe_error(&shared, &small());
    for part in
        ["platform.shard is \"full\"", "optimizer.kind is \"muon\"", "write shard = \"none\""]
    {
        assert!(divided.contains(part), "{divided}");
    }
}

/// An arch at one width, with muP's initial values and head.
fn mup(dim: i64) -> String {
    format!(
        "arch x {{ vocab 1000  dim {dim}  norm_eps 1e-5  init mup  head scaled {{ base 64 }}
  layers 1 of decoder {{ mixer attention {{ heads {}  head_dim 16 }}  mlp swiglu {{ hidden {} }} }} }}",
        dim / 16,
        4 * dim
    )
}

/// The factors of muP are a group of the projections in layers: the published ones, parameter by parameter.
#[test]
fn a_recipe_can_say_mup() {
    let golden: serde_json::Value =
        serde_json::from_str(&support::programs::read("tests/golden/optimizers/values.json"))
            .unwrap();
    let factors = "lr_multipliers = [[\"layers.**:linear\", 0.25]], \
                   weight_decay_multipliers = [[\"layers.**:linear\", 4]]";
    let recipe = with(factors).replacen("seq_len", "ids = \"dense\", seq_len", 1);
    let at_width = |dim: i64| experiment_of(&recipe, &locked(&compiled_text(&mup(dim), "x")));
    let (base, target) = (at_width(64), at_width(256));
    let mut rows = 0;
    for row in golden["mup"].as_array().unwrap() {
        let path = match row["name"].as_str().unwrap() {
            "embed" => "embed",
            "mixer.wq" => "layers.0.mixer.wq",
            "mlp.up" => "layers.0.mlp.up",
            "mlp.down" => "layers.0.mlp.down",
            "norm" => "layers.0.pre_mlp",
            "head" => "head.output",
            // No arch here has one.
            "bias" => continue,
            other => panic!("{other}"),
        };
        rows += 1;
        for (experiment, width) in [(&base, "base"), (&target, "target")] {
            let params = experiment.arch.compiled.graph.params();
            let param = params.iter().find(|param| param.path == path).unwrap();
            let shape: Vec<i64> = serde_json::from_value(row[width].clone()).unwrap();
            assert_eq!(param.shape, shape, "{path} {width}");
        }
        let ParamUpdate { rule: _, lr_factor, decay_factor } = update(&target, path);
        assert_eq!(lr_factor.to_f64(), row["adam"]["lr_multiplier"].as_f64().unwrap(), "{path}");
        assert_eq!(decay_factor.to_f64(), row["adam"]["wd_multiplier"].as_f64().unwrap(), "{path}");
    }
    assert_eq!(rows, 6);
    // The initial values of the table and the head do not depend on the width; those of a matrix follow its fan-in.
    let init = |experiment: &Experiment, path: &str| {
        let manifest = experiment.arch.identity().manifest_text.clone();
        let line = manifest.lines().find(|line| line.starts_with(&format!("{path} "))).unwrap();
        line.splitn(3, ' ').nth(2).unwrap().to_owned()
    };
    for (path, narrow, wide) in [
        ("embed", "normal(0.02)", "normal(0.02)"),
        ("head.output", "trunc_normal(0.125, 3)", "trunc_normal(0.125, 3)"),
        ("layers.0.mixer.wq", "trunc_normal(0.125, 3)", "trunc_normal(0.0625, 3)"),
        ("layers.0.mlp.down", "trunc_normal(0.0625, 3)", "trunc_normal(0.03125, 3)"),
    ] {
        assert_eq!([init(&base, path), init(&target, path)], [narrow, wide], "{path}");
    }
}

#[test]
fn groups_that_say_nothing_or_too_much_are_refused() {
    let refused = |lines: &str| recipe_error(&with(lines), &small());
    for (lines, wanted) in [
        (
            "frozen = [\"layers.*.mixer.wqq\"]",
            &[
                "`layers.*.mixer.wqq` of optimizer.frozen matches no parameter of arch `small`",
                "did you mean `layers.*.mixer.wq`?",
                "write \"layers.*.mixer.wqq?\"",
            ][..],
        ),
        ("frozen = [\":lineal\"]", &["did you mean the role `linear`?"][..]),
        ("lr_multipliers = [[\":canon\", 0.5]]", &["matches no parameter", "its roles are"][..]),
        (
            "lr_multipliers = [[\"**.wq\", 0.5], [\":linear\", 2]]",
            &["`**.wq` and `:linear` of optimizer.lr_multipliers both match `layers.0.mixer.wq`"][..],
        ),
        ("frozen = [\"**\"]", &["every parameter of `small` is frozen"][..]),
        ("frozen = [\"a b\"]", &["is not a pattern of parameters: write a path such as"][..]),
        ("frozen = \"embed\"", &["is not a list of patterns"][..]),
        ("lr_multipliers = [[\"head.output\", -1]]", &["-1 is not a number of 0 or more"][..]),
    ] {
        let message = refused(lines);
        for part in wanted {
            assert!(message.contains(part), "{lines}:\n{message}");
        }
    }
}
