//! Verdicts: the published pairs, and every way to hide a difference.

use std::collections::BTreeSet;

use lab::field::{FieldValue, Fields};
use lab::lock::Lock;
use lab::verdict::{Outcome, Verdict, json, text};
use proptest::prelude::*;

use support::locks::{
    DEPO, MANO, SMALL, TEXT, arch_lock, arch_text_lock, experiment_of, judge, small,
};

fn paths(verdict: &Verdict) -> Vec<String> {
    verdict.confounds.iter().map(|change| change.path.clone()).collect()
}

/// The verdict of two arch texts that both define `arch x`.
fn judge_archs(a: &str, b: &str, treatment: &[&str]) -> Verdict {
    judge(&arch_text_lock(a, "x"), &arch_text_lock(b, "x"), treatment).unwrap()
}

fn judge_recipes(a: &str, b: &str, treatment: &[&str]) -> Verdict {
    let arch = small();
    let lock = |text: &str| Lock::Experiment(experiment_of(text, &arch));
    judge(&lock(a), &lock(b), treatment).unwrap()
}

const X: &str = "
arch x {
  vocab 300  dim 16  norm_eps 1e-5
  init lingua
  layers 4 of decoder {
    mixer attention { heads 4 }
    mlp swiglu { hidden 32 }
  }
}";

fn x(with: &str) -> String {
    format!("{}\narch x = y with {{ {with} }}", X.replace("arch x {", "arch y {"))
}

#[test]
fn the_published_pairs() {
    let [llama, canon, release] = ["llama_1B", "llamacanon_1B", "llamacanon_1B_release"]
        .map(|name| arch_lock(&format!("arch/{name}.canon")));
    let verdict = judge(&llama, &canon, &["canon"]).unwrap();
    assert_eq!(verdict.outcome, Outcome::Controlled);
    insta::assert_snapshot!("llama_llamacanon", text(&verdict, true));
    insta::assert_snapshot!(
        "llama_llamacanon_json",
        serde_json::to_string_pretty(&json(&verdict, true)).unwrap()
    );
    let verdict = judge(&llama, &release, &["canon"]).unwrap();
    assert_eq!(verdict.outcome, Outcome::Confounded(1));
    assert_eq!(paths(&verdict), ["arch.layers.0..24.mixer.rope.dims"]);
    assert_eq!(verdict.declaration(), ["canon", "rope.dims"]);
    insta::assert_snapshot!("llama_release", text(&verdict, true));
    let verdict = judge(&llama, &release, &["canon", "rope.dims"]).unwrap();
    assert_eq!(verdict.outcome, Outcome::Bundle(2));
    insta::assert_snapshot!("llama_release_bundle", text(&verdict, true));
    let verdict = judge(&canon, &release, &["rope.dims"]).unwrap();
    assert_eq!(verdict.outcome, Outcome::Controlled);
}

#[test]
fn every_pair_of_the_repository_is_controlled_for_its_slots() {
    let mut pairs = 0;
    for family in ["llama", "gla5", "gdn2", "mamba2", "hybrid"] {
        for size in ["tiny", "1B", "3B", "8B"] {
            let path = |name: &str| format!("arch/{name}_{size}.canon");
            let twin = format!("{family}canon");
            let exists = |path: &str| {
                std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(path).exists()
            };
            if !exists(&path(&twin)) || !exists(&path(family)) {
                continue;
            }
            let (a, b) = (arch_lock(&path(family)), arch_lock(&path(&twin)));
            for (one, other) in [(&a, &b), (&b, &a)] {
                let verdict = judge(one, other, &["canon"]).unwrap();
                assert_eq!(verdict.outcome, Outcome::Controlled, "{family} {size}");
                let erased = verdict.proof.erased.unwrap();
                assert_eq!(erased.graph[0], erased.graph[1], "{family} {size}");
                assert_eq!(erased.manifest[0], erased.manifest[1], "{family} {size}");
            }
            pairs += 1;
        }
    }
    assert!(pairs >= 17, "{pairs}");
}

#[test]
fn a_difference_beside_the_treatment_is_found_wherever_it_is() {
    for (edit, confound) in [
        ("mixer.rope.theta 10001", "arch.layers.0..4.mixer.rope.theta"),
        ("layers[2].mixer.rope.dims 2", "arch.layers.2.mixer.rope.dims"),
        ("layers[every 2 from 1].mixer.window 8", "arch.layers.3.mixer.window"),
        ("mixer.qk_norm true", "arch.layers.0..4.mixer.qk_norm"),
        ("mixer.kv_heads 2", "arch.layers.0..4.mixer.kv_heads"),
        ("mlp.hidden 33", "arch.layers.0..4.mlp.hidden"),
        ("norm_eps 1e-6", "arch.norm_eps"),
        ("vocab 301", "arch.vocab"),
        ("init.linear normal(0.02)", "arch.init.linear"),
        ("head tied", "arch.head"),
        ("mixer gla { heads 4 }", "arch.layers.0..4.mixer"),
        (
            "layers 4 of share decoder { mixer attention { heads 4 } mlp swiglu { hidden 32 } }",
            "arch.layers.1..4.share",
        ),
    ] {
        let Some(b) = compiles(&x(&format!("canon A, B, C, D  {edit}"))) else {
            // Not every edit fits every version of std; one that does not compile is skipped.
            panic!("{edit}");
        };
        let verdict = judge_archs(X, &b, &["canon"]);
        assert!(matches!(verdict.outcome, Outcome::Confounded(_)), "{edit}: {:?}", verdict.outcome);
        assert!(paths(&verdict).contains(&confound.to_owned()), "{edit}: {:?}", paths(&verdict));
        let back = judge(&arch_text_lock(&b, "x"), &arch_text_lock(X, "x"), &["canon"]).unwrap();
        assert!(!back.is_controlled(), "{edit}, the other way round");
    }
}

/// The text if `arch x` of it compiles; slots that a mixer lacks are left out.
fn compiles(text: &str) -> Option<String> {
    for slots in ["A, B, C, D", "A, C, D"] {
        let text = text.replace("canon A, B, C, D", &format!("canon {slots}"));
        let program = compiler::program::Program::new(
            [("test.canon".to_owned(), text.clone())],
            compiler::program::Std::Embedded,
        );
        if program.compile("test.canon", "x").0.is_some() {
            return Some(text);
        }
    }
    None
}

#[test]
fn a_confound_below_a_slot_is_not_part_of_the_slot() {
    // Both arms have Canon A; the different kernel is another factor.
    let a = x("canon A");
    let b = x("canon A { kernel 3 }  canon C");
    let verdict = judge_archs(&a, &b, &["canon"]);
    assert_eq!(paths(&verdict), ["arch.layers.0..4.slots.A.kernel"]);
    let verdict = judge_archs(&a, &b, &["canon", "slots.A.kernel"]);
    assert_eq!(verdict.outcome, Outcome::Bundle(2));
    // If one arm has no fill, the fill comes with its settings.
    let verdict = judge_archs(X, &b, &["canon"]);
    assert_eq!(verdict.outcome, Outcome::Controlled);
}

#[test]
fn replacing_a_definition_keeps_the_fields_that_both_have_below_it() {
    let a = X.to_owned();
    let b = X.replace("mixer attention { heads 4 }", "mixer gla { heads 2 }");
    let verdict = judge_archs(&a, &b, &["mixer"]);
    assert_eq!(paths(&verdict), ["arch.layers.0..4.mixer.heads"]);
    assert_eq!(judge_archs(&a, &b, &["mixer", "mixer.heads"]).outcome, Outcome::Bundle(2));
    let b = X.replace("mixer attention { heads 4 }", "mixer gla { heads 4 }");
    assert_eq!(judge_archs(&a, &b, &["mixer"]).outcome, Outcome::Controlled);
    assert_eq!(judge_archs(&b, &a, &["mixer"]).outcome, Outcome::Controlled);
}

#[test]
fn a_definition_of_the_same_name_cannot_hide_a_difference() {
    let feed = |body: &str| {
        format!(
            "{}\nmlp feed(x; hidden) {{\n  g = linear gate (x, hidden)\n  u = linear up (x, hidden)\n  \
             g, u = slot D(g, u)\n  linear down ({body}, dim)\n}}",
            X.replace("swiglu", "feed")
        )
    };
    let (a, b) = (feed("silu(g) * u"), feed("u * silu(g)"));
    let verdict = judge_archs(&a, &b, &[]);
    assert_eq!(paths(&verdict), ["definition feed"]);
    let change = &verdict.confounds[0];
    assert_eq!(change.a.as_deref(), Some("linear down (silu(g) * u, dim)"));
    assert_eq!(change.b.as_deref(), Some("linear down (u * silu(g), dim)"));
    assert!(change.places.iter().all(|place| place.as_ref().is_some_and(|p| p.line > 10)));
    insta::assert_snapshot!("definition", text(&verdict, true));
    // A treated slot does not explain a difference in a definition.
    let filled = |text: &str| {
        format!("{}\narch x = y with {{ canon A }}", text.replace("arch x {", "arch y {"))
    };
    let verdict = judge_archs(&a, &filled(&b), &["canon"]);
    assert_eq!(paths(&verdict), ["definition feed"]);
    // The definition itself can be the treatment, through the field that names it.
    assert_eq!(judge_archs(&a, &b, &["mlp"]).outcome, Outcome::Controlled);
    // A renamed local name is not a difference.
    let renamed =
        a.replace("(g)", "(gg)").replace("g = linear", "gg = linear").replace("g, u", "gg, u");
    assert_eq!(judge_archs(&a, &renamed, &[]).outcome, Outcome::Identical);
}

#[test]
fn derived_differences_are_consequences_and_rewritings_are_cosmetic() {
    let verdict = judge_archs(X, &x("mixer.heads 2"), &["mixer.heads"]);
    assert_eq!(verdict.outcome, Outcome::Controlled);
    let listed: BTreeSet<&str> = verdict.consequences.iter().map(|c| c.path.as_str()).collect();
    for path in ["kv_heads", "head_dim", "rope.dims"] {
        assert!(
            listed.contains(format!("arch.layers.0..4.mixer.{path}").as_str()),
            "{path}: {listed:?}"
        );
    }
    let verdict = judge_archs(X, &x("mlp.multiple_of 64"), &[]);
    assert_eq!(verdict.outcome, Outcome::Identical);
    assert_eq!(verdict.cosmetic[0].path, "arch.layers.0..4.mlp.multiple_of");
}

#[test]
fn depth_is_a_field_like_any_other() {
    let deeper = X.replace("4 of", "6 of");
    let verdict = judge_archs(X, &deeper, &[]);
    assert_eq!(paths(&verdict), ["arch.layers"]);
    assert_eq!(judge_archs(X, &deeper, &["arch.layers"]).outcome, Outcome::Controlled);
    assert_eq!(judge_archs(&deeper, X, &["arch.layers"]).outcome, Outcome::Controlled);
    // The added layers are of another kind, so depth alone does not cover them.
    let mixed = format!(
        "{}\narch x = y with {{ layers[4..6].mixer.rope.theta 500 }}",
        deeper.replace("arch x {", "arch y {")
    );
    let verdict = judge_archs(X, &mixed, &["arch.layers"]);
    assert_eq!(paths(&verdict), ["arch.layers.4..6.mixer.rope.theta"]);
}

#[test]
fn another_name_of_a_parameter_is_another_initial_value() {
    let named = |norm: &str| {
        format!(
            "{}\nblock mine(x; mixer, mlp) {{\n  h = x + mixer(rms_norm {norm} (x))\n  h + mlp(rms_norm pre_mlp (h))\n}}",
            X.replace("decoder", "mine")
        )
    };
    let verdict = judge_archs(&named("pre_mixer"), &named("before"), &[]);
    assert_eq!(paths(&verdict), ["definition mine"]);
    assert_eq!(verdict.proof.replaced[0].graph[0], verdict.proof.replaced[0].graph[1]);
    assert_ne!(verdict.proof.replaced[0].manifest[0], verdict.proof.replaced[0].manifest[1]);
}

#[test]
fn many_layers_are_compared_at_once() {
    let deep = X.replace("4 of", "1000 of");
    let canon =
        format!("{}\narch x = y with {{ canon A, B }}", deep.replace("arch x {", "arch y {"));
    assert_eq!(judge_archs(&deep, &canon, &["canon"]).outcome, Outcome::Controlled);
    let theta = format!(
        "{}\narch x = y with {{ canon A  layers[every 3 from 1].mixer.rope.theta 500 }}",
        deep.replace("arch x {", "arch y {")
    );
    let verdict = judge_archs(&deep, &theta, &["canon"]);
    assert_eq!(paths(&verdict), ["arch.layers.1..998/3.mixer.rope.theta"]);
}

#[test]
fn sharing_can_be_the_treatment() {
    let shared = X.replace("4 of decoder", "4 of share decoder");
    assert_eq!(judge_archs(X, &shared, &["share"]).outcome, Outcome::Controlled);
    assert_eq!(judge_archs(&shared, X, &["share"]).outcome, Outcome::Controlled);
}

#[test]
fn steps_and_tokens_are_confounds_where_they_follow() {
    // Half the batch at equal steps is half the tokens.
    let half = DEPO.replace("sequences = 32", "sequences = 16");
    let verdict = judge_recipes(DEPO, &half, &["batch.sequences"]);
    assert_eq!(paths(&verdict), ["budget.tokens"]);
    assert_eq!(verdict.confounds[0].note, "affects training");
    insta::assert_snapshot!("half_batch", text(&verdict, false));
    assert_eq!(
        judge_recipes(DEPO, &half, &["batch.sequences", "budget.tokens"]).outcome,
        Outcome::Bundle(2)
    );
    // At equal tokens it is twice the steps.
    let tokens = |text: &str| text.replace("steps = 600", "tokens = 2457600");
    let verdict = judge_recipes(&tokens(DEPO), &tokens(&half), &["batch.sequences"]);
    assert_eq!(paths(&verdict), ["budget.steps"]);
    assert_eq!(
        judge_recipes(&tokens(DEPO), &tokens(&half), &["batch.sequences", "budget.steps"]).outcome,
        Outcome::Bundle(2)
    );
    // A longer run is one factor, whether given as steps or as tokens.
    let longer = DEPO.replace("steps = 600", "steps = 900");
    for entry in ["budget.steps", "budget.tokens"] {
        assert_eq!(judge_recipes(DEPO, &longer, &[entry]).outcome, Outcome::Controlled, "{entry}");
    }
    let verdict = judge_recipes(DEPO, &longer, &[]);
    assert_eq!(paths(&verdict), ["budget.steps"]);
    let longer = tokens(DEPO).replace("2457600", "4915200");
    assert_eq!(paths(&judge_recipes(&tokens(DEPO), &longer, &[])), ["budget.tokens"]);
    // One run of the same length, written the other way.
    assert_eq!(judge_recipes(DEPO, &tokens(DEPO), &[]).outcome, Outcome::Identical);
}

#[test]
fn fields_of_recipes() {
    let decay = DEPO.replace("0.0133", "0.02");
    let verdict = judge_recipes(DEPO, &decay, &["optimizer.weight_decay"]);
    assert_eq!(verdict.outcome, Outcome::Controlled);
    let listed =
        |verdict: &Verdict, path: &str| verdict.consequences.iter().any(|c| c.path == path);
    assert!(listed(&verdict, "optimizer.lr_wd_steps"));
    // The published sweep: lr changes, weight decay changes with it, and the product is kept or not.
    let both = decay.replace("lr = 0.003", "lr = 0.002");
    assert_eq!(paths(&judge_recipes(DEPO, &both, &["optimizer.lr"])), ["optimizer.weight_decay"]);
    // A kind adds the fields that only it has.
    let linear = DEPO.replace("cosine", "linear");
    assert_eq!(judge_recipes(DEPO, &linear, &["schedule.kind"]).outcome, Outcome::Controlled);
    assert_eq!(judge_recipes(&linear, DEPO, &["schedule.kind"]).outcome, Outcome::Controlled);
    let sooner = linear.replace("warmup = 60", "warmup = 30");
    assert_eq!(paths(&judge_recipes(DEPO, &sooner, &["schedule.kind"])), ["schedule.warmup"]);
    // Another task differs in all its parameters; fields that both tasks have are still compared.
    let mano = MANO.replace("sequences = 8, micro_batches = 3", "sequences = 32");
    let verdict = judge_recipes(DEPO, &mano, &["data.task"]);
    let confounds = paths(&verdict);
    assert!(confounds.contains(&"optimizer.lr".to_owned()), "{confounds:?}");
    assert!(!confounds.iter().any(|path| path.starts_with("data.mano.")), "{confounds:?}");
}

#[test]
fn platform_and_cadence_are_listed_and_do_not_confound() {
    let changed = DEPO.to_owned()
        + "platform = { threads = 2, kernels = { canon = \"reference\" } }\nlog = { every = 1 }\n";
    let verdict = judge_recipes(DEPO, &changed, &[]);
    assert_eq!(verdict.outcome, Outcome::Identical);
    let listed = |list: &[lab::verdict::Change]| -> Vec<String> {
        list.iter().map(|change| change.path.clone()).collect()
    };
    assert_eq!(listed(&verdict.platform), ["platform.kernels.canon", "platform.threads"]);
    assert_eq!(listed(&verdict.cosmetic), ["log.every"]);
    insta::assert_snapshot!("platform", text(&verdict, true));
}

/// How many ranks train, and what they divide, changes no bit. How their sums are formed does.
#[test]
fn ranks_and_sharding_are_platform_only() {
    let changed = DEPO.to_owned()
        + "platform = { devices = 3, devices_per_node = 1, shard = \"full\", recompute = \"selective\" }\n\
           ranks = { check_every = 10 }\n";
    let verdict = judge_recipes(DEPO, &changed, &[]);
    assert_eq!(verdict.outcome, Outcome::Identical);
    let listed: Vec<&str> = verdict.platform.iter().map(|change| change.path.as_str()).collect();
    assert_eq!(
        listed,
        ["platform.devices", "platform.devices_per_node", "platform.recompute", "platform.shard"]
    );
    let several = DEPO.replace("sequences = 32", "sequences = 8, micro_batches = 4");
    let sums = several.replace("micro_batches = 4", "micro_batches = 4, in_sequence = 2");
    assert_eq!(paths(&judge_recipes(&several, &sums, &[])), ["batch.in_sequence"]);
}

#[test]
fn measurements_must_be_equal() {
    let changed = DEPO.to_owned() + "evaluation = { windows = 128 }\n";
    let verdict = judge_recipes(DEPO, &changed, &[]);
    assert_eq!(paths(&verdict), ["evaluation.windows"]);
    assert_eq!(verdict.confounds[0].note, "measured differently");
    // What is measured is no treatment, however it is named.
    let locks = [DEPO, &changed].map(|text| Lock::Experiment(experiment_of(text, &small())));
    for entry in ["evaluation.windows", "windows", "evaluation", "seeds.eval", "evaluation.every"] {
        let refused = judge(&locks[0], &locks[1], &[entry]).unwrap_err();
        assert_eq!(refused.code, "measured-treatment", "{entry}: {}", refused.message);
    }
}

#[test]
fn open_locks_are_assumed_to_read_the_same_data() {
    let slower = TEXT.replace("lr = 0.002", "lr = 0.001");
    let verdict = judge_recipes(TEXT, &slower, &["optimizer.lr"]);
    assert_eq!(verdict.outcome, Outcome::Controlled);
    assert_eq!(verdict.assumed, ["data.source = \"nemotron_cc\""]);
    assert_eq!(verdict.headline(), "controlled for optimizer.lr; data assumed equal by name");
    let other_source = slower.replace("nemotron_cc", "c4");
    assert_eq!(paths(&judge_recipes(TEXT, &other_source, &["optimizer.lr"])), ["data.source"]);
    // Bound data is compared by digest.
    let arch = small();
    let open = experiment_of(TEXT, &arch);
    let bound = |digest: &str, name: &str| {
        let values = Fields::from([
            ("data.digest".to_owned(), FieldValue::text(digest.repeat(32))),
            ("data.source".to_owned(), FieldValue::text(name)),
        ]);
        Lock::Experiment(open.with("bound".to_owned(), &values).unwrap())
    };
    let verdict = judge(&bound("ab", "a"), &bound("cd", "a"), &[]).unwrap();
    assert_eq!(paths(&verdict), ["data.digest"]);
    let verdict = judge(&bound("ab", "a"), &bound("ab", "b"), &[]).unwrap();
    assert_eq!(
        (verdict.outcome, verdict.cosmetic[0].path.as_str()),
        (Outcome::Identical, "data.source")
    );
    assert!(verdict.assumed.is_empty());
}

/// Edits of an arch that are independent of each other.
const EDITS: [(&str, &str); 8] = [
    ("canon A", "slots.A"),
    ("canon C", "slots.C"),
    ("canon D { residual false }", "slots.D"),
    ("mixer.rope.theta 500", "rope.theta"),
    ("mixer.qk_norm true", "qk_norm"),
    ("mlp.hidden 48", "mlp.hidden"),
    ("norm_eps 1e-4", "norm_eps"),
    ("init.norm constant(2)", "init.norm"),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(support::cases(120)))]

    #[test]
    fn controlled_for_exactly_what_was_edited(
        ours in prop::collection::btree_set(0..EDITS.len(), 0..4),
        theirs in prop::collection::btree_set(0..EDITS.len(), 0..4),
        left_out in any::<prop::sample::Index>(),
    ) {
        let edited = |which: &BTreeSet<usize>| {
            let edits: Vec<&str> = which.iter().map(|i| EDITS[*i].0).collect();
            if edits.is_empty() { X.to_owned() } else { x(&edits.join("  ")) }
        };
        let (a, b) = (edited(&ours), edited(&theirs));
        let differing: Vec<&str> =
            ours.symmetric_difference(&theirs).map(|i| EDITS[*i].1).collect();
        let verdict = judge_archs(&a, &b, &differing);
        let want = match differing.len() {
            0 => Outcome::Identical,
            1 => Outcome::Controlled,
            n => Outcome::Bundle(n),
        };
        prop_assert_eq!(verdict.outcome, want);
        // Leave one out of the treatment, and the verdict finds it.
        if !differing.is_empty() {
            let missing = differing[left_out.index(differing.len())];
            let rest: Vec<&str> = differing.iter().copied().filter(|d| *d != missing).collect();
            let verdict = judge_archs(&a, &b, &rest);
            prop_assert_eq!(verdict.outcome, Outcome::Confounded(1));
            prop_assert!(paths(&verdict)[0].ends_with(missing), "{:?} for {}", paths(&verdict), missing);
        }
    }
}

/// Every pair of edits, with either of them as the treatment.
#[test]
fn no_treatment_hides_another_field() {
    let a = arch_text_lock(X, "x");
    for (n, (one, one_field)) in EDITS.iter().enumerate() {
        for (other, other_field) in &EDITS[n + 1..] {
            let b = arch_text_lock(&x(&format!("{one}  {other}")), "x");
            for treated in [one_field, other_field] {
                let verdict = judge(&a, &b, &[treated]).unwrap();
                assert_eq!(verdict.outcome, Outcome::Confounded(1), "{treated}: {one}  {other}");
            }
        }
    }
}

#[test]
fn a_confounded_pair_of_experiments_as_text() {
    let arch = support::locks::locked(&support::locks::compiled_text(SMALL, "smallcanon"));
    let a = Lock::Experiment(experiment_of(DEPO, &small()));
    let reseeded = DEPO.replace("seeds = { init = 1, data = 1 }", "seeds = { init = 2, data = 1 }");
    let b = Lock::Experiment(experiment_of(&reseeded, &arch));
    let verdict = judge(&a, &b, &["canon"]).unwrap();
    assert_eq!(paths(&verdict), ["seeds.init"]);
    insta::assert_snapshot!("experiments", text(&verdict, false));
}
