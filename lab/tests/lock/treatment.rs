//! Treatments that do not fit the two arms, each refused with a suggestion.

use lab::lock::Lock;
use lab::verdict::Refusal;

use super::files::demo;
use support::locks::{DEPO, TEXT, arch_lock, arch_text_lock, experiment_of, judge, small};

const X: &str = "arch x { vocab 300  dim 16  norm_eps 1e-5  init lingua
  layers 4 of decoder { mixer attention { heads 4 }  mlp swiglu { hidden 32 } } }";

/// A head with its own slot, in addition to those of the layers.
fn headed(fill: &str, edit: &str) -> Lock {
    let head = "head h(x) {\n  linear output (slot A(rms_norm norm (x)), vocab)\n}\n";
    let text = X.replace("arch x {", &format!("arch y {{ head h {{ {fill} }} "));
    arch_text_lock(&format!("{head}{text}\narch x = y with {{ {edit} }}\n"), "x")
}

/// A slot of the head has both proofs, like those of layers.
#[test]
fn slots_of_the_head_are_erased() {
    use lab::verdict::Outcome;
    let (bare, filled) = (headed("", "canon A"), headed("canon A", "canon A"));
    for (a, b) in [(&bare, &filled), (&filled, &bare)] {
        let verdict = judge(a, b, &["head.slots.A"]).unwrap();
        assert_eq!(verdict.outcome, Outcome::Controlled);
        let erased = verdict.proof.erased.unwrap();
        assert_eq!(erased.slots, ["head.slots.A"]);
        assert!(erased.equal());
    }
    let verdict =
        judge(&bare, &headed("canon A", "canon A  mixer.heads 2"), &["head.slots.A"]).unwrap();
    assert!(matches!(verdict.outcome, Outcome::Confounded(_)));
    assert!(!verdict.proof.erased.unwrap().equal());
    // Layers and head together are two factors.
    let verdict = judge(&headed("", "dim 16"), &filled, &["slots.A"]).unwrap();
    assert_eq!(verdict.outcome, Outcome::Bundle(2));
    assert_eq!(verdict.proof.erased.unwrap().slots, ["A", "head.slots.A"]);
}

/// A definition that is a default and is computed from its neighbours is replaced as a whole, in both orders.
#[test]
fn a_default_computed_from_its_neighbours_is_replaced_as_a_whole() {
    use lab::verdict::Outcome;
    const HALF: &str = "mixer half(x; frac = 2, rope = rotary { dims dim / (4 * frac) }) {
  q, k = rope(heads(linear wq (x, dim), 4), heads(linear wk (x, dim), 4), head_dim = dim / 4)
  linear wo (merge(attention(q, k, heads(linear wv (x, dim), 4))), dim)
}
block inter(q, k; head_dim, dims = 4) { rope(q, 700, interleaved, dims), rope(k, 700, interleaved, dims) }
block fixed(q, k; head_dim) { rope(q, 500, interleaved, 4), rope(k, 500, interleaved, 4) }
arch y { vocab 300  dim 32  norm_eps 1e-5  init lingua  layers 2 of decoder { mixer half  mlp swiglu { hidden 32 } } }
";
    let half_with =
        |edit: &str| arch_text_lock(&format!("{HALF}arch x = y with {{ {edit} }}\n"), "x");
    let base = arch_text_lock(&HALF.replace("arch y", "arch x"), "x");
    for edit in ["mixer.rope = nope", "mixer.rope = inter", "mixer.rope = fixed"] {
        let replaced = half_with(edit);
        for (a, b) in [(&base, &replaced), (&replaced, &base)] {
            let verdict = judge(a, b, &["mixer.rope"]).unwrap();
            assert_eq!(verdict.outcome, Outcome::Controlled, "{edit}: {:?}", verdict.confounds);
        }
    }
    // Any other difference stays a difference; a value that the default was computed from has no effect once the
    // default is replaced.
    for (edit, controlled) in [("norm_eps 1e-6", false), ("mixer.frac 1", true)] {
        let both = half_with(&format!("mixer.rope = inter  {edit}"));
        for (a, b) in [(&base, &both), (&both, &base)] {
            let outcome = judge(a, b, &["mixer.rope"]).unwrap().outcome;
            assert_eq!(outcome == Outcome::Controlled, controlled, "{edit}: {outcome:?}");
        }
    }
}

/// The small arch with an edit.
fn changed(edit: &str) -> Lock {
    let text = format!("{}\narch x = y with {{ {edit} }}", X.replace("arch x", "arch y"));
    arch_text_lock(&text, "x")
}

/// The refusal of each case, which is named by its arms and its treatment.
fn refused(cases: &[(&Lock, &Lock, &[&str])]) -> Vec<(String, Refusal)> {
    cases
        .iter()
        .map(|(a, b, treatment)| {
            let case = format!("{} {} {treatment:?}", a.name(), b.name());
            match judge(a, b, treatment) {
                Err(refusal) => (case, refusal),
                Ok(verdict) => panic!("{case}: {}", verdict.headline()),
            }
        })
        .collect()
}

fn refusals_of_archs() -> Vec<(String, Refusal)> {
    let [llama, canon, release] = ["llama_1B", "llamacanon_1B", "llamacanon_1B_release"]
        .map(|name| arch_lock(&format!("arch/{name}.canon")));
    let x = arch_text_lock(X, "x");
    let kernel = changed("canon A { kernel 3 }");
    let some = changed("canon layers[0..2].A");
    let norm = |edit: &str| {
        let definition = "mlp mine(x) {\n  rms_norm own (x)\n}\n";
        let text =
            format!("{definition}{}\narch x = y with {{ {edit} }}", X.replace("arch x", "arch y"));
        arch_text_lock(&text, "x")
    };
    let filled = [norm("canon A"), norm("fill A with mine")];
    let headed = [headed("", "canon A"), headed("canon A", "canon A")];
    let deeper = arch_text_lock(&X.replace("layers 4", "layers 6").replace("32", "48"), "x");
    let cases: [(&Lock, &Lock, &[&str]); 25] = [
        // Layers of one arm only.
        (&x, &deeper, &["mixer"]),
        // Layers that neither arm has; contents of the selected layers; a fill that is not a Canon layer.
        (&x, &some, &["arch.layers.9.slots.A"]),
        // Ranges that exist only in part.
        (&x, &some, &["arch.layers[0..99].slots.A"]),
        (&x, &some, &["arch.layers.1..5.slots.A"]),
        (&x, &some, &["arch.layers.0..24/4.slots.A"]),
        (&x, &some, &["arch.layers.2..2.slots.A"]),
        (&x, &some, &["arch.layers.7..9"]),
        (&some, &some, &["slots.A"]),
        (&some, &some, &["arch.layers.1.slots.A"]),
        (&filled[0], &filled[1], &["canon"]),
        (&headed[0], &headed[1], &["canon"]),
        (&llama, &canon, &["canno"]),
        (&llama, &release, &["rope.dim"]),
        (&llama, &canon, &["rope.dims"]),
        (&llama, &llama, &["canon"]),
        (&llama, &release, &["mixer"]),
        (&llama, &canon, &["arch.graph"]),
        (&llama, &canon, &["arch.parameters"]),
        (&llama, &canon, &["optimizer.lr"]),
        (&llama, &canon, &["canon", "slots.A"]),
        (&llama, &canon, &["canon", "canon"]),
        (&llama, &canon, &["slots.A.kernel"]),
        (&x, &kernel, &["slots.A.kernel"]),
        (&x, &kernel, &["slots.A", "slots.A.kernel"]),
        (&x, &changed("mixer.heads 2"), &["head_dim"]),
    ];
    refused(&cases)
}

fn refusals_of_recipes() -> Vec<(String, Refusal)> {
    let recipe = |text: &str| Lock::Experiment(experiment_of(text, &small()));
    let depo = recipe(DEPO);
    let faster = recipe(&DEPO.replace("lr = 0.003", "lr = 0.006"));
    let longer = recipe(&DEPO.replace("data = 1", "data = 2").replace("N = 12", "N = 11"));
    let llama = arch_lock("arch/llama_1B.canon");
    let mut refusals = refused(&[
        (&depo, &faster, &["learning_rate"]),
        // Sections; one is also the last word of a field.
        (&depo, &faster, &["data"]),
        (&depo, &longer, &["data"]),
        (&depo, &faster, &["optimizer"]),
        (&depo, &faster, &["optimizer.weight_decay"]),
        (&depo, &faster, &["optimizer.lr_wd_steps"]),
        (&depo, &llama, &[]),
    ]);
    refusals.push(("demo".to_owned(), judge(&demo(), &demo(), &[]).unwrap_err()));
    let text = recipe(TEXT);
    refusals.push(("text".to_owned(), judge(&text, &text, &["data.epochs"]).unwrap_err()));
    refusals
}

#[test]
fn each_is_refused_with_a_suggestion() {
    let mut shown = String::new();
    for (case, Refusal { code, message, help }) in
        refusals_of_archs().into_iter().chain(refusals_of_recipes())
    {
        assert!(!message.ends_with('.') && !help.ends_with('.'), "{message} {help}");
        shown += &format!("{case}\n  [{code}] {message}\n  help: {help}\n");
    }
    insta::assert_snapshot!(shown);
}

#[test]
fn an_entry_that_names_several_fields_is_several_factors() {
    use lab::verdict::Outcome;
    let edit = "canon A { kernel 3 }  canon C { kernel 3 }";
    let verdict = judge(&changed("canon A, C"), &changed(edit), &["kernel"]).unwrap();
    assert_eq!(verdict.outcome, Outcome::Bundle(2));
    // In some layers only, under one name.
    let some = changed("canon layers[0..2].A");
    for entry in ["arch.layers.0..2.slots.A", "arch.layers[0..2].slots.A", "slots.A", "canon"] {
        let verdict = judge(&arch_text_lock(X, "x"), &some, &[entry]).unwrap();
        assert_eq!(verdict.outcome, Outcome::Controlled, "{entry}");
    }
    let verdict = judge(&arch_text_lock(X, "x"), &some, &["arch.layers.0.slots.A"]).unwrap();
    assert_eq!(verdict.confounds[0].path, "arch.layers.1.slots.A");
    let each = ["arch.layers.0.slots.A", "arch.layers.1.slots.A"];
    assert_eq!(judge(&arch_text_lock(X, "x"), &some, &each).unwrap().outcome, Outcome::Bundle(2));
}
