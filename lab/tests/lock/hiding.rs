//! Differences hidden behind a treatment: in defaults, in fills, in the settings that come with a kind. Each of these
//! was once called controlled.

use lab::lock::Lock;
use lab::verdict::{Meaning, Outcome, Refusal, Verdict};

use support::locks::{DEPO, arch_text_lock, experiment_of, judge, small};

fn refused(a: &str, b: &str, treatment: &[&str]) -> Refusal {
    let [a, b] = [a, b].map(|text| arch_text_lock(text, "x"));
    judge(&a, &b, treatment).err().unwrap_or_else(|| panic!("{treatment:?} was accepted"))
}

fn judge_archs(a: &str, b: &str, treatment: &[&str]) -> Verdict {
    judge(&arch_text_lock(a, "x"), &arch_text_lock(b, "x"), treatment).unwrap()
}

fn judge_recipes(a: &str, b: &str, treatment: &[&str]) -> Verdict {
    let arch = small();
    let lock = |text: &str| Lock::Experiment(experiment_of(text, &arch));
    judge(&lock(a), &lock(b), treatment).unwrap()
}

fn paths(verdict: &Verdict) -> Vec<&str> {
    verdict.confounds.iter().map(|change| change.path.as_str()).collect()
}

fn arch(mixer: &str, rest: &str) -> String {
    format!(
        "arch x {{\n  vocab 300  dim 32  norm_eps 1e-5\n  init lingua\n  layers 2 of decoder {{\n    \
         mixer {mixer}\n    mlp swiglu {{ hidden 32 }}\n  }}\n  {rest}\n}}\n"
    )
}

/// A user mixer with a default window.
fn user_mixer(name: &str, q: &str, window: &str) -> String {
    format!(
        "mixer {name}(x; heads, window = {window}) {{\n  q = {q} (linear wq (x, dim))\n  k = linear wk (x, dim)\n  \
         v = linear wv (x, dim)\n  q, k, v = slot B(q, k, v)\n  linear wo (merge(attention(heads(q, heads), \
         heads(k, heads), heads(v, heads), window = window)), dim)\n}}\n"
    )
}

#[test]
fn a_default_of_the_new_definition_is_not_part_of_the_treatment() {
    let both = user_mixer("att_a", "silu", "none") + &user_mixer("att_b", "rms_norm q_norm", "64");
    let [a, b] =
        ["att_a", "att_b"].map(|m| both.clone() + &arch(&format!("{m} {{ heads 2 }}"), ""));
    let window = "arch.layers.0..2.mixer.window";
    assert_eq!(paths(&judge_archs(&a, &b, &["mixer"])), [window]);
    assert_eq!(paths(&judge_archs(&b, &a, &["mixer"])), [window]);
    // The verdict depends on ids: writing a default out does not change it.
    let written = both.clone() + &arch("att_a { heads 2  window none }", "");
    assert_eq!(judge_archs(&a, &written, &[]).outcome, Outcome::Identical);
    assert_eq!(paths(&judge_archs(&written, &b, &["mixer"])), [window]);
    assert_eq!(paths(&judge_archs(&b, &written, &["mixer"])), [window]);
    // Declared as well, it is a separate factor.
    assert_eq!(judge_archs(&a, &b, &["mixer", "mixer.window"]).outcome, Outcome::Bundle(2));
    // If only the window differs, the mixer is not a factor, and is refused as one.
    let twins = user_mixer("att_a", "silu", "none") + &user_mixer("att_b", "silu", "64");
    let [a2, b2] =
        ["att_a", "att_b"].map(|m| twins.clone() + &arch(&format!("{m} {{ heads 2 }}"), ""));
    assert_eq!(refused(&a2, &b2, &["mixer"]).code, "idle-treatment");
    assert_eq!(judge_archs(&a2, &b2, &["mixer.window"]).outcome, Outcome::Controlled);
    // Equal effective values are not a difference, whether written or by default.
    let same = both + &arch("att_b { heads 2  window none }", "");
    assert_eq!(judge_archs(&a, &same, &["mixer"]).outcome, Outcome::Controlled);
    assert_eq!(judge_archs(&same, &a, &["mixer"]).outcome, Outcome::Controlled);
}

/// One arm's own `canon` and the other's primitive of that name are different, and both are reported.
#[test]
fn a_redefined_name_against_a_primitive() {
    let definition = "mlp canon(x; kernel = 4) {\n  linear up (silu(x), dim)\n}\n";
    let edit = |edits: &str| {
        format!("{}arch z = x with {{ {edits} }}\n", arch("attention { heads 2 }", ""))
    };
    let a = arch_text_lock(&edit("canon A"), "z");
    let b = arch_text_lock(&format!("{definition}{}", edit("fill A with canon")), "z");
    for (a, b) in [(&a, &b), (&b, &a)] {
        let verdict = judge(a, b, &[]).unwrap();
        assert!(!verdict.is_controlled());
        let canon = verdict.names.iter().find(|names| names.name == "canon").unwrap();
        let [Some(one), Some(two)] = &canon.meanings else { panic!("{canon:?}") };
        assert_ne!(one.to_string(), two.to_string());
        assert_eq!(judge(a, b, &["canon"]).unwrap_err().code, "not-canon");
    }
}

#[test]
fn a_rope_with_other_settings_is_not_only_another_rope() {
    let rope = "block other_rope(q, k; head_dim, theta = 500000, layout = half, dims = head_dim / 4) {\n  \
                rope(q, theta, layout, dims), rope(k, theta, layout, dims)\n}\n";
    let a = rope.to_owned() + &arch("attention { heads 2 }", "");
    let b = rope.to_owned() + &arch("attention { heads 2  rope other_rope }", "");
    assert_eq!(refused(&a, &b, &["rope"]).code, "idle-treatment");
    let all = ["rope.dims", "rope.layout", "rope.theta"];
    let verdict = judge_archs(&a, &b, &[]);
    for path in all {
        assert!(
            paths(&verdict).contains(&format!("arch.layers.0..2.mixer.{path}").as_str()),
            "{path}"
        );
    }
    assert_eq!(judge_archs(&a, &b, &all).outcome, Outcome::Bundle(3));
    let verdict = judge_archs(&a, &b, &all[..2]);
    assert!(
        !verdict.is_controlled() && paths(&verdict).contains(&"arch.layers.0..2.mixer.rope.theta")
    );
}

#[test]
fn settings_of_a_new_definition_are_listed_with_it() {
    let a = arch("attention { heads 4 }", "");
    let b = arch("gla { heads 4  key_dim 16  short_conv false }", "");
    for (one, other) in [(&a, &b), (&b, &a)] {
        let verdict = judge_archs(one, other, &["mixer"]);
        assert_eq!(verdict.outcome, Outcome::Controlled);
        let listed: Vec<&str> =
            verdict.treatment[0].changes.iter().map(|change| change.path.as_str()).collect();
        for name in ["mixer", "mixer.key_dim", "mixer.short_conv"] {
            assert!(listed.contains(&format!("arch.layers.0..2.{name}").as_str()), "{listed:?}");
        }
    }
}

#[test]
fn a_default_of_the_same_words_is_another_where_they_mean_something_else() {
    let definition = |name: &str, config: &str| {
        format!(
            "mixer {name}(x; {config}width = dim * 2) {{\n  linear down ({}(linear up (x, width)), 32)\n}}\n",
            if name == "wide_a" { "silu" } else { "rms_norm inner " }
        )
    };
    let both = definition("wide_a", "") + &definition("wide_b", "dim = 64, ");
    let [a, b] = ["wide_a", "wide_b"].map(|mixer| both.clone() + &arch(mixer, ""));
    if compiles(&a).is_none() {
        panic!("the mixers of this test have to compile");
    }
    let verdict = judge_archs(&a, &b, &["mixer"]);
    assert_eq!(paths(&verdict), ["arch.layers.0..2.mixer.width"], "{:?}", verdict.outcome);
}

/// A feed-forward block as a fill.
const WIDE: &str = "block wide(x; width) {\n  linear up (silu(linear down (x, width)), dim)\n}\n";

#[test]
fn canon_means_only_canon_layers() {
    let a = WIDE.to_owned() + &arch("attention { heads 2 }", "");
    let mixed =
        WIDE.to_owned() + &arch("attention { heads 2 }", "fill A with wide { width 64 }  canon C");
    let verdict = judge_archs(&a, &mixed, &["canon"]);
    assert_eq!(paths(&verdict), ["arch.layers.0..2.slots.A"]);
    assert_eq!(judge_archs(&a, &mixed, &["canon", "slots.A"]).outcome, Outcome::Bundle(2));
    // Only the block: the word is refused, and the help gives a word to type instead.
    let only = WIDE.to_owned() + &arch("attention { heads 2 }", "fill A with wide { width 64 }");
    let refusal = refused(&a, &only, &["canon"]);
    assert!(refusal.message.contains("wide") && refusal.help.contains("slots.A"), "{refusal:?}");
    let verdict = judge_archs(&a, &only, &["slots.A"]);
    assert_eq!(verdict.outcome, Outcome::Controlled);
    let listed: Vec<&str> = verdict.consequences.iter().map(|c| c.path.as_str()).collect();
    assert!(
        listed.contains(&"slot parameters") && !listed.contains(&"arch.canon_parameters"),
        "{listed:?}"
    );
    // A Canon layer with another name is still a Canon layer.
    let named = "block short(x) {\n  canon(x, kernel = 4)\n}\n";
    if let Some(text) =
        compiles(&(named.to_owned() + &arch("attention { heads 2 }", "fill A with short")))
    {
        let a = named.to_owned() + &arch("attention { heads 2 }", "");
        assert_eq!(judge_archs(&a, &text, &["canon"]).outcome, Outcome::Controlled);
    }
}

fn compiles(text: &str) -> Option<String> {
    let files = [("test.canon".to_owned(), text.to_owned())];
    let program = compiler::program::Program::new(files, compiler::program::Std::Embedded);
    program.compile("test.canon", "x").0.map(|_| text.to_owned())
}

#[test]
fn a_proof_that_cannot_be_made_does_not_count() {
    // The fill fits only one width of heads, so arm a cannot have it before its heads change.
    let fixed = "block fixed(x) {\n  linear up (x, 192)\n}\n";
    let a = fixed.to_owned() + &arch("attention { heads 2  head_dim 16 }", "");
    let b = fixed.to_owned() + &arch("attention { heads 2  head_dim 32 }", "fill B with fixed");
    let verdict = judge_archs(&a, &b, &["mixer.head_dim", "slots.B"]);
    assert_eq!(verdict.outcome, Outcome::Bundle(2));
    let erased =
        verdict.proof.erased.expect("the slots are erased first, so that the proof can be made");
    assert_eq!(erased.graph[0], erased.graph[1]);
    assert_eq!(erased.manifest[0], erased.manifest[1]);
}

#[test]
fn a_slot_that_one_mixer_has_can_be_declared_beside_the_mixer() {
    let a = arch("attention { heads 4 }", "canon A, B, C, D");
    let b = arch("gla { heads 4 }", "canon A, C, D");
    for (one, other) in [(&a, &b), (&b, &a)] {
        let verdict = judge_archs(one, other, &["mixer", "slots.B"]);
        assert_eq!(verdict.outcome, Outcome::Bundle(2), "{:?}", verdict.confounds);
        assert!(!judge_archs(one, other, &["mixer"]).is_controlled());
    }
    let refusal = refused(&a, &b, &["slots.B"]);
    assert!(refusal.help.contains("mixer"), "{refusal:?}");
}

#[test]
fn fields_of_a_kind_are_listed_under_it_and_count_if_chosen() {
    let constant = DEPO.replace(
        "schedule = { kind = \"cosine\", warmup = 60 }",
        "schedule = { kind = \"constant\" }",
    );
    let chosen =
        DEPO.replace("warmup = 60", "warmup = 10, theta = 2, cycle = 0.5, lr_min_ratio = 0");
    for (a, b) in [(&constant, &chosen), (&chosen, &constant)] {
        let verdict = judge_recipes(a, b, &["schedule.kind"]);
        assert_eq!(verdict.outcome, Outcome::Bundle(5), "{:?}", verdict.treatment);
        let listed: Vec<&str> =
            verdict.treatment[0].changes.iter().map(|c| c.path.as_str()).collect();
        for path in ["schedule.kind", "schedule.warmup", "schedule.theta", "schedule.cycle"] {
            assert!(listed.contains(&path), "{listed:?}");
        }
        let follows: Vec<&str> = verdict.consequences.iter().map(|c| c.path.as_str()).collect();
        let of_schedule: Vec<&&str> =
            follows.iter().filter(|path| path.starts_with("schedule.")).collect();
        assert_eq!(of_schedule, [&"schedule.warmup_share"]);
    }
    // At its default values a kind is one factor.
    let plain = DEPO.replace(", warmup = 60", ", warmup = 0");
    assert_eq!(judge_recipes(&constant, &plain, &["schedule.kind"]).outcome, Outcome::Controlled);
}

#[test]
fn equal_values_are_not_a_confound() {
    // Twice the batch at half the steps: the tokens are equal, but the difference in steps is reported.
    let short = DEPO.replace("steps = 600", "steps = 120");
    let half =
        short.replace("sequences = 32", "sequences = 64").replace("steps = 120", "steps = 60");
    let verdict = judge_recipes(&short, &half, &["batch.sequences"]);
    assert_eq!(paths(&verdict), ["budget.steps"]);
}

/// Both orders of two archs: one verdict, with the same confounds.
fn both_orders(a: &str, b: &str, treatment: &[&str]) -> Verdict {
    let [forward, backward] = [judge_archs(a, b, treatment), judge_archs(b, a, treatment)];
    assert_eq!(forward.outcome, backward.outcome, "{treatment:?}");
    assert_eq!(paths(&forward), paths(&backward), "{treatment:?}");
    forward
}

#[test]
fn differences_behind_the_treatment_are_found_in_both_orders() {
    let attention = include_str!("../../../std/attention.canon");
    let from = attention.find("mixer attention").unwrap();
    let end = attention[from..].find("\n}\n").unwrap() + from + 3;
    let normalised = attention[from..end].replace(
        "    k = rms_norm k_norm (k)",
        "    k = rms_norm k_norm (k)\n    v = rms_norm v_norm (v)",
    );
    let base = arch("attention { heads 2 }", "");
    let changed = normalised + &arch("attention { heads 2  qk_norm true }", "");
    let verdict = both_orders(&base, &changed, &["mixer.qk_norm"]);
    assert_eq!(paths(&verdict), ["definition attention"]);
    assert_eq!(verdict.names.len(), 1);
}

#[test]
fn a_slot_that_is_somewhere_else_is_a_confound_in_either_order() {
    let moved = "block decoder(x; mixer, mlp) {\n  y = slot A(x)\n  h = y + mixer(rms_norm pre_mixer (y))\n  \
                 h + mlp(slot C(rms_norm pre_mlp (h)))\n}\n";
    let base = arch("attention { heads 2 }", "");
    let filled = |text: &str| text.replace("arch x", "arch y") + "arch x = y with { canon A }\n";
    let moved = moved.to_owned() + &filled(&base);
    for treatment in ["canon", "slots.A"] {
        let verdict = both_orders(&base, &moved, &[treatment]);
        assert_eq!(paths(&verdict), ["definition decoder"]);
        let erased = verdict.proof.erased.unwrap();
        assert_eq!(erased.graph[0], erased.graph[1]);
        assert_eq!(both_orders(&filled(&base), &moved, &[]).confounds.len(), 1);
    }
}

#[test]
fn a_canon_layer_is_identified_by_its_computation() {
    let base = arch("attention { heads 2 }", "");
    let user_canon = "mixer canon(x) {\n  x + linear inner (silu(x), dim)\n}\n".to_owned()
        + &base.replace("arch x", "arch y")
        + "arch x = y with { fill A with canon }\n";
    let refusal = refused(&base, &user_canon, &["canon"]);
    assert_eq!(refusal.code, "not-canon");
    assert!(refusal.message.contains("canon [mixer "), "{}", refusal.message);
    let verdict = both_orders(&base, &user_canon, &["slots.A"]);
    assert_eq!(verdict.outcome, Outcome::Controlled);
    let change = &verdict.treatment[0].changes[0];
    let digest = match &verdict.names[0].meanings[1] {
        Some(Meaning::Defined { digest, .. }) => digest.short(),
        other => panic!("{other:?}"),
    };
    assert_eq!(change.b, Some(format!("canon [mixer {digest}]")));
}

#[test]
fn the_width_of_a_shared_layer_is_a_treatment_in_either_order() {
    let share = |hidden: u32| {
        arch("attention { heads 2 }", "")
            .replace("2 of decoder", "2 of share decoder")
            .replace("hidden 32", &format!("hidden {hidden}"))
    };
    assert_eq!(both_orders(&share(32), &share(48), &["mlp.hidden"]).outcome, Outcome::Controlled);
    let apart = share(48).replace("share ", "");
    assert_eq!(
        both_orders(&share(32), &apart, &["mlp.hidden", "share"]).outcome,
        Outcome::Bundle(2)
    );
    let verdict = both_orders(&share(32), &apart, &["mlp.hidden"]);
    assert_eq!(paths(&verdict), ["arch.layers.1.share"]);
}

#[test]
fn other_groups_of_shared_layers_are_a_treatment() {
    let layers = |list: &str| arch("attention { heads 2 }", "").replace("2 of decoder", list);
    let apart = layers("4 of decoder");
    let shared = layers("4 of share decoder");
    let pairs = apart.replace("layers 4 of decoder {", "layers 2 of [share decoder {").replace(
        "  }\n  \n}",
        "  }, share decoder {\n    mixer attention { heads 2 }\n    mlp swiglu { hidden 32 }\n  }]\n}",
    );
    for (a, b) in [(&apart, &shared), (&apart, &pairs), (&shared, &pairs)] {
        if compiles(a).is_some() && compiles(b).is_some() {
            assert_eq!(both_orders(a, b, &["share"]).outcome, Outcome::Controlled);
        }
    }
    assert!(compiles(&shared).is_some() && compiles(&pairs).is_some(), "{pairs}");
}
