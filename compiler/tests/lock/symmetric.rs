//! A verdict is the same in both orders, and the same as a slow oracle's. The oracle writes each arm's text with the
//! other arm's values at the treatment, compiles both texts, and compares identities: it knows nothing of field
//! trees, plain forms or erasure.

use std::collections::BTreeSet;

use compiler::compare::{Refusal, Subject, Verdict, text};
use compiler::lock::Lock;
use compiler::program::{Program, Std};
use proptest::prelude::*;

use super::support::{arch_text_lock, compiled_text, judge};

/// A mixer like std's attention, with more when `qk_norm` is on, when it is off, and another slot.
macro_rules! attention {
    ($on:expr, $off:expr, $slot:expr) => {
        concat!(
            "mixer attention(\n  x;\n  heads,\n  kv_heads = heads,\n  head_dim = dim / heads,\n  qk_norm = false,\n",
            "  rope = rotary,\n  window = none,\n) {\n  q = linear wq (x, heads * head_dim)\n",
            "  k = linear wk (x, kv_heads * head_dim)\n  v = linear wv (x, kv_heads * head_dim)\n",
            "  if qk_norm {\n    q = rms_norm q_norm (q)\n    k = rms_norm k_norm (k)\n    ", $on,
            "\n  } else {\n    ", $off, "\n  }\n  ", $slot,
            "\n  q, k = rope(heads(q, heads), heads(k, kv_heads), head_dim = head_dim)\n",
            "  linear wo (merge(attention(q, k, heads(v, kv_heads), window = window)), dim)\n}\n",
        )
    };
}

/// Definitions that an arm may use under a standard name. Each computes what std's does, or hides something.
const DEFINITIONS: [(&str, &str); 13] = [
    ("std", ""),
    (
        "attention, written otherwise",
        attention!("", "", "a, b, c = slot B(q, k, v)\n  q = a\n  k = b\n  v = c"),
    ),
    (
        "attention, v normalised with qk_norm",
        attention!("v = rms_norm v_norm (v)", "", "q, k, v = slot B(q, k, v)"),
    ),
    (
        "attention, v through silu with qk_norm",
        attention!("v = silu(v)", "", "q, k, v = slot B(q, k, v)"),
    ),
    (
        "attention, v through silu without qk_norm",
        attention!("", "v = silu(v)", "q, k, v = slot B(q, k, v)"),
    ),
    (
        "attention, v through silu with two heads",
        attention!("", "", "if heads == 2 { v = silu(v) }\n  q, k, v = slot B(q, k, v)"),
    ),
    ("attention, slot B on q and k", attention!("", "", "q, k = slot B(q, k)")),
    (
        "decoder, slot A on the residual stream",
        "block decoder(x; mixer, mlp) {\n  y = slot A(x)\n  h = y + mixer(rms_norm pre_mixer (y))\n  h + mlp(slot C(rms_norm pre_mlp (h)))\n}\n",
    ),
    (
        "decoder, slot C after the mlp",
        "block decoder(x; mixer, mlp) {\n  h = x + mixer(slot A(rms_norm pre_mixer (x)))\n  h + slot C(mlp(rms_norm pre_mlp (h)))\n}\n",
    ),
    (
        "decoder, slots exchanged",
        "block decoder(x; mixer, mlp) {\n  h = x + mixer(slot C(rms_norm pre_mixer (x)))\n  h + mlp(slot A(rms_norm pre_mlp (h)))\n}\n",
    ),
    (
        "swiglu, slot D on up",
        "mlp swiglu(x; multiplier = 1, multiple_of = 256, hidden = 64) {\n  gate = linear gate (x, hidden)\n  up = slot D(linear up (x, hidden))\n  linear down (silu(gate) * up, dim)\n}\n",
    ),
    (
        "swiglu, otherwise above 16",
        "mlp swiglu(x; multiplier = 1, multiple_of = 256, hidden = 64) {\n  gate = linear gate (x, hidden)\n  up = linear up (x, hidden)\n  gate, up = slot D(gate, up)\n  if hidden > 16 { up = silu(up) }\n  linear down (silu(gate) * up, dim)\n}\n",
    ),
    ("canon, a mixer", "mixer canon(x) {\n  x + linear inner (silu(x), dim)\n}\n"),
];

/// What can be chosen in an arm: the path a treatment names it by, and the texts of its values. The first value is
/// the default and writes nothing.
struct Knob {
    entry: &'static str,
    values: &'static [&'static str],
}

const fn knob(entry: &'static str, values: &'static [&'static str]) -> Knob {
    Knob { entry, values }
}

const KNOBS: [Knob; 15] = [
    knob("mixer.qk_norm", &["", "mixer.qk_norm true"]),
    knob("mixer.heads", &["", "mixer.heads 4"]),
    knob("mixer.window", &["", "mixer.window 4"]),
    knob("rope.theta", &["", "mixer.rope.theta 500"]),
    knob("rope", &["", "mixer.rope = nope"]),
    knob("mlp.hidden", &["", "mlp.hidden 48"]),
    knob("arch.layers.1.mlp.hidden", &["", "layers[1].mlp.hidden 80"]),
    knob(
        "slots.A",
        &["", "canon A", "canon A { kernel 3 }", "fill A with squash", "fill A with wide"],
    ),
    knob("slots.B", &["", "canon B", "canon B { residual false }"]),
    knob("slots.C", &["", "canon C { activation silu }", "fill C with squash"]),
    knob("slots.D", &["", "canon D"]),
    knob("arch.layers.0.slots.A", &["", "canon layers[0].A { kernel 2 }"]),
    knob("norm_eps", &["", "norm_eps 1e-4"]),
    knob("init.norm", &["", "init.norm constant(2)"]),
    knob("share", &["", "share"]),
];

/// Knobs that reach the same field may not both be turned in one arm.
const EXCLUSIVE: [(usize, usize); 3] = [(3, 4), (5, 6), (7, 11)];

const OWN: &str =
    "block squash(x) {\n  silu(x)\n}\nblock wide(x) {\n  x + linear inner (silu(x), dim)\n}\n";

#[derive(Clone, Debug, PartialEq, Eq)]
struct Arm {
    definition: usize,
    chosen: [usize; KNOBS.len()],
}

impl Arm {
    fn legal(&self) -> bool {
        let on = |i: usize| self.chosen[i] != 0;
        !EXCLUSIVE.iter().any(|(a, b)| on(*a) && on(*b)) && !(on(14) && (on(6) || on(11)))
    }

    fn text(&self) -> String {
        let (_, definition) = DEFINITIONS[self.definition];
        let edits: Vec<&str> = KNOBS
            .iter()
            .zip(self.chosen)
            .filter(|(k, _)| k.entry != "share")
            .map(|(knob, value)| knob.values[value])
            .filter(|edit| !edit.is_empty())
            .collect();
        let share = if self.chosen[14] == 1 { "share " } else { "" };
        let base = format!(
            "arch base {{\n  vocab 300  dim 32  norm_eps 1e-5\n  init lingua\n  layers 2 of {share}decoder {{\n    \
             mixer attention {{ heads 2 }}\n    mlp swiglu {{ hidden 64 }}\n  }}\n}}\n"
        );
        let made = match edits.as_slice() {
            [] => base.replace("arch base", "arch x"),
            edits => format!("{base}arch x = base with {{\n  {}\n}}\n", edits.join("\n  ")),
        };
        format!("{OWN}{definition}{made}")
    }
}

/// What the oracle makes of a text: its graph and manifest, or that it is no arch.
fn identity(arm: &Arm) -> Option<(String, String)> {
    if !arm.legal() {
        return None;
    }
    let text = arm.text();
    let program = Program::new([("test.canon".to_owned(), text)], Std::Embedded);
    let compiled = program.compile("test.canon", "x").0?;
    Some((compiled.identity.graph_text, compiled.identity.manifest_text))
}

/// Whether arm `a` with `b`'s values at the treatment is `b`.
fn becomes(a: &Arm, b: &Arm, treatment: &BTreeSet<usize>) -> Option<bool> {
    let mut made = a.clone();
    for knob in treatment {
        made.chosen[*knob] = b.chosen[*knob];
    }
    Some(identity(&made)? == identity(b)?)
}

fn lock(arm: &Arm) -> Lock {
    arch_text_lock(&arm.text(), "x")
}

/// How a treatment names a knob: where both arms fill a slot with Canon layers, what differs is a setting of them.
fn entry(knob: usize, a: &Arm, b: &Arm) -> &'static str {
    let canon = |arm: &Arm| KNOBS[knob].values[arm.chosen[knob]].starts_with("canon");
    match KNOBS[knob].entry {
        "slots.A" if canon(a) && canon(b) => "slots.A.kernel",
        "slots.B" if canon(a) && canon(b) => "slots.B.residual",
        entry => entry,
    }
}

fn arm() -> impl Strategy<Value = Arm> {
    let values: Vec<_> =
        KNOBS.iter().map(|knob| prop_oneof![3 => Just(0), 1 => 0..knob.values.len()]).collect();
    (prop_oneof![2 => Just(0usize), 3 => 0..DEFINITIONS.len()], values).prop_map(
        |(definition, chosen)| Arm {
            definition,
            chosen: chosen.try_into().unwrap_or_else(|_| panic!("one value for each knob")),
        },
    )
}

/// An arm, and one that differs in few knobs and perhaps its definitions.
fn pair() -> impl Strategy<Value = (Arm, Arm, Vec<bool>)> {
    let turned = prop::collection::vec(any::<(prop::sample::Index, prop::sample::Index)>(), 0..4);
    (
        arm(),
        0..DEFINITIONS.len(),
        any::<bool>(),
        turned,
        prop::collection::vec(prop::bool::weighted(0.8), KNOBS.len()),
    )
        .prop_map(|(a, definition, other, turned, declared)| {
            let mut b = a.clone();
            if other {
                b.definition = definition;
            }
            for (which, value) in turned {
                let which = which.index(KNOBS.len());
                b.chosen[which] = value.index(KNOBS[which].values.len());
            }
            (a, b, declared)
        })
}

/// Knobs whose entry reaches another knob's field, too.
const BROADER: [(usize, usize); 3] = [(5, 6), (7, 11), (4, 3)];

/// Hundreds in every test run; `PROPTEST_CASES=10000` for more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(300)
}

/// Paths of what was found, for a comparison that ignores the order of the arms.
fn confounds(verdict: &Verdict) -> BTreeSet<String> {
    verdict
        .confounds
        .iter()
        .filter(|c| c.subject != Subject::Whole)
        .map(|c| c.path.clone())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_orders_and_the_oracle_agree((a, b, declared) in pair()) {
        prop_assume!(identity(&a).is_some() && identity(&b).is_some());
        // Of slot A, both arms would fill the first layer, with other settings.
        prop_assume!([(&a, &b), (&b, &a)].iter().all(|(a, b)| a.chosen[7] == 0 || b.chosen[11] == 0));
        let differing = (0..KNOBS.len()).filter(|knob| a.chosen[*knob] != b.chosen[*knob]);
        let mut entries: BTreeSet<usize> = differing.clone().filter(|knob| declared[*knob]).collect();
        let mut treatment = entries.clone();
        for (broad, narrow) in BROADER {
            if entries.contains(&broad) || entries.contains(&narrow) && a.chosen[broad] != b.chosen[broad] {
                entries.insert(broad);
                entries.remove(&narrow);
                treatment.extend([broad, narrow].into_iter().filter(|knob| a.chosen[*knob] != b.chosen[*knob]));
            }
        }
        let locks = [lock(&a), lock(&b)];
        let words: Vec<&str> = entries.iter().map(|knob| entry(*knob, &a, &b)).collect();
        let verdicts = [judge(&locks[0], &locks[1], &words), judge(&locks[1], &locks[0], &words)];
        let equal = |treatment: &BTreeSet<usize>| {
            Some(becomes(&a, &b, treatment)? && becomes(&b, &a, treatment)?)
        };
        match verdicts {
            [Ok(one), Ok(other)] => {
                prop_assert_eq!(one.outcome, other.outcome, "{}\n{}", text(&one, true), text(&other, true));
                prop_assert_eq!(confounds(&one), confounds(&other));
                if let Some(equal) = equal(&treatment) {
                    prop_assert_eq!(one.is_controlled(), equal, "{}", text(&one, true));
                }
            }
            [Err(one), Err(other)] => {
                prop_assert_eq!(one.code, other.code);
                // A treatment that holds, and of which no part can go, is not refused.
                let needed = entries.iter().all(|entry| {
                    let mut rest = treatment.clone();
                    rest.remove(entry);
                    for (broad, narrow) in BROADER {
                        if broad == *entry {
                            rest.remove(&narrow);
                        }
                    }
                    equal(&rest) != Some(true)
                });
                prop_assert!(equal(&treatment) != Some(true) || !needed, "{one:?} {words:?}");
            }
            [one, other] => prop_assert!(false, "{one:?}\n{other:?}"),
        }
    }
}
