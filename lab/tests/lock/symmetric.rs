//! A verdict is the same in both orders, and agrees with a slow oracle. The oracle writes each arm's text with the
//! other arm's values at the treatment, compiles both texts, and compares identities: it uses no field trees, normal
//! forms or erasure.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use compiler::program::{Compiled, Program, Std};
use lab::experiment::Experiment;
use lab::lock::{ArchLock, Lock};
use lab::verdict::{Subject, Verdict, text};
use proptest::prelude::*;

use support::locks::{experiment_of, judge, small};

/// A mixer like std's attention, with code to insert if `qk_norm` is on or off, and another slot.
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

/// Definitions that an arm may use under a standard name. Each equals std's, or hides a difference.
const DEFINITIONS: [(&str, &str); 13] = [
    ("std", ""),
    (
        "attention, written differently",
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
        "swiglu, different above 16",
        "mlp swiglu(x; multiplier = 1, multiple_of = 256, hidden = 64) {\n  gate = linear gate (x, hidden)\n  up = linear up (x, hidden)\n  gate, up = slot D(gate, up)\n  if hidden > 16 { up = silu(up) }\n  linear down (silu(gate) * up, dim)\n}\n",
    ),
    ("canon, a mixer", "mixer canon(x) {\n  x + linear inner (silu(x), dim)\n}\n"),
];

/// A choice in an arm: its path in a treatment, and the texts of its values. The first value is the default and writes
/// nothing.
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

/// Knobs for the same field cannot both be used in one arm.
const EXCLUSIVE: [(usize, usize); 3] = [(3, 4), (5, 6), (7, 11)];

const OWN: &str =
    "block squash(x) {\n  silu(x)\n}\nblock wide(x) {\n  x + linear inner (silu(x), dim)\n}\n";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
        let arch = match edits.as_slice() {
            [] => base.replace("arch base", "arch x"),
            edits => format!("{base}arch x = base with {{\n  {}\n}}\n", edits.join("\n  ")),
        };
        format!("{OWN}{definition}{arch}")
    }
}

/// The arms of one case, each compiled once; `None` for one that does not compile.
#[derive(Default)]
struct CompiledArms(RefCell<BTreeMap<Arm, Option<Rc<Compiled>>>>);

impl CompiledArms {
    fn compiled(&self, arm: &Arm) -> Option<Rc<Compiled>> {
        if !arm.legal() {
            return None;
        }
        if let Some(known) = self.0.borrow().get(arm) {
            return known.clone();
        }
        let program = Program::new([("test.canon".to_owned(), arm.text())], Std::Embedded);
        let compiled = program.compile("test.canon", "x").0.map(Rc::new);
        self.0.borrow_mut().insert(arm.clone(), compiled.clone());
        compiled
    }

    /// Whether arm `a` with `b`'s values at the treatment is `b`, by graph and manifest.
    fn becomes(&self, a: &Arm, b: &Arm, treatment: &BTreeSet<usize>) -> Option<bool> {
        let mut moved = a.clone();
        for knob in treatment {
            moved.chosen[*knob] = b.chosen[*knob];
        }
        let [moved, b] = [self.compiled(&moved)?, self.compiled(b)?]
            .map(|arm| (arm.identity.graph_text.clone(), arm.identity.manifest_text.clone()));
        Some(moved == b)
    }
}

/// A knob's entry in a treatment: if both arms fill a slot with Canon layers, they differ in a setting of the fill.
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

/// An arm, and one that differs in few knobs and perhaps in its definitions.
fn pair() -> impl Strategy<Value = (Arm, Arm, Vec<bool>)> {
    let turned = prop::collection::vec(any::<(prop::sample::Index, prop::sample::Index)>(), 0..4);
    (
        arm(),
        0..DEFINITIONS.len(),
        any::<bool>(),
        turned,
        prop::collection::vec(prop::bool::weighted(0.8), KNOBS.len()),
    )
        .prop_map(|(a, definition, redefined, turned, declared)| {
            let mut b = a.clone();
            if redefined {
                b.definition = definition;
            }
            for (which, value) in turned {
                let which = which.index(KNOBS.len());
                b.chosen[which] = value.index(KNOBS[which].values.len());
            }
            (a, b, declared)
        })
}

/// Knobs with an entry that also covers another knob's field.
const BROADER: [(usize, usize); 3] = [(5, 6), (7, 11), (4, 3)];

fn cases() -> u32 {
    support::cases(300)
}

/// The paths of the confounds, to compare them independently of the arms' order.
fn confounds(verdict: &Verdict) -> BTreeSet<String> {
    verdict
        .confounds
        .iter()
        .filter(|c| c.subject != Subject::Whole)
        .map(|c| c.path.clone())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, max_global_rejects: cases().max(1024), ..ProptestConfig::default() })]

    #[test]
    fn both_orders_and_the_oracle_agree((a, b, declared) in pair()) {
        let arms = CompiledArms::default();
        let both = (arms.compiled(&a), arms.compiled(&b));
        prop_assume!(both.0.is_some() && both.1.is_some());
        // Both arms would fill slot A of the first layer, with different settings.
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
        let locks = [both.0, both.1]
            .map(|arm| Lock::Arch(ArchLock::new("x", "test.canon", &arm.unwrap()).unwrap()));
        let words: Vec<&str> = entries.iter().map(|knob| entry(*knob, &a, &b)).collect();
        let verdicts = [judge(&locks[0], &locks[1], &words), judge(&locks[1], &locks[0], &words)];
        let equal = |treatment: &BTreeSet<usize>| {
            Some(arms.becomes(&a, &b, treatment)? && arms.becomes(&b, &a, treatment)?)
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
                // A treatment that holds and needs all its parts is not refused.
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

/// Fields of a recipe and their values; the first is the value of both arms unless changed.
const FIELDS: [(&str, &[&str]); 12] = [
    ("optimizer.lr", &["0.003", "0.006"]),
    ("optimizer.weight_decay", &["0.0133", "0"]),
    ("optimizer.clip", &["1", "\"none\""]),
    ("optimizer.eps", &["1e-8", "1e-9"]),
    ("schedule.kind", &["\"cosine\"", "\"linear\"", "\"constant\""]),
    ("schedule.warmup", &["60", "30"]),
    ("seeds.init", &["1", "2"]),
    ("seeds.data", &["1", "2"]),
    ("seeds.eval", &["0", "5"]),
    ("data.depo.N", &["12", "10"]),
    ("loss.z_loss", &["0", "0.01"]),
    ("evaluation.windows", &["64", "32"]),
];
const MEASURED: [&str; 2] = ["seeds.eval", "evaluation.windows"];
const KIND: usize = 4;
const WARMUP: usize = 5;

type Values = [usize; FIELDS.len()];

fn is_constant(values: &Values) -> bool {
    values[KIND] == 2
}

fn recipe_of(values: &Values) -> String {
    let base = "arch = \"small.canon\"\nbatch = { sequences = 32 }\nbudget = { steps = 600 }\n\
                data = { task = \"depo\", seq_len = 128, depo.K = 2, depo.mini_vocab = 50, depo.min_tlen = 1, depo.max_tlen = 2 }\n";
    let mut sections = BTreeMap::<&str, Vec<String>>::new();
    for (i, (path, texts)) in FIELDS.iter().enumerate() {
        let (section, name) = path.split_once('.').unwrap();
        if !(i == WARMUP && is_constant(values)) {
            sections.entry(section).or_default().push(format!("{name} = {}", texts[values[i]]));
        }
    }
    let data = sections.remove("data").unwrap().join(", ");
    let mut text = base.replace("K = 2", &format!("K = 2, {data}"));
    for (section, fields) in sections {
        text += &format!("{section} = {{ {} }}\n", fields.join(", "));
    }
    text
}

fn experiment(values: &Values) -> Experiment {
    experiment_of(&recipe_of(values), &small())
}

/// The texts that identify an experiment: its training and its measurements.
fn texts(experiment: &Experiment) -> [String; 2] {
    let eval = experiment.eval_text();
    let measured =
        eval.lines().filter(|line| !line.starts_with("train = ")).collect::<Vec<_>>().join("\n");
    [experiment.train_text(), measured]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn recipes_are_judged_alike_in_both_orders(
        base in prop::collection::vec((0..8usize, 0..3usize), 0..3),
        turned in prop::collection::vec((0..FIELDS.len(), 0..3usize), 0..4),
        declared in prop::collection::vec(prop::bool::weighted(0.8), FIELDS.len()),
    ) {
        let turn = |values: &mut Values, (field, value): (usize, usize)| values[field] = value % FIELDS[field].1.len();
        let mut a = [0; FIELDS.len()];
        base.into_iter().for_each(|change| turn(&mut a, change));
        let mut b = a;
        turned.into_iter().for_each(|change| turn(&mut b, change));
        let one_sided = is_constant(&a) != is_constant(&b);
        let hidden = |field: usize| field == WARMUP && (is_constant(&a) || is_constant(&b));
        let entries: BTreeSet<usize> =
            (0..FIELDS.len()).filter(|field| a[*field] != b[*field] && declared[*field] && !hidden(*field)).collect();
        // What is measured is refused as a treatment (`measurements_must_be_equal`).
        let entries: BTreeSet<usize> =
            entries.into_iter().filter(|field| !MEASURED.contains(&FIELDS[*field].0)).collect();
        let mut treatment = entries.clone();
        // Fields of only one kind of schedule come with the kind.
        if one_sided && entries.contains(&KIND) {
            treatment.insert(WARMUP);
        }
        let given = |ours: &Values, theirs: &Values| {
            let mut moved = *ours;
            treatment.iter().for_each(|field| moved[*field] = theirs[*field]);
            texts(&experiment(&moved)) == texts(&experiment(theirs))
        };
        let words: Vec<&str> = entries.iter().map(|field| FIELDS[*field].0).collect();
        let locks = [&a, &b].map(|values| Lock::Experiment(experiment(values)));
        let [one, other] = [judge(&locks[0], &locks[1], &words), judge(&locks[1], &locks[0], &words)];
        match (one, other) {
            (Ok(one), Ok(other)) => {
                prop_assert_eq!(one.outcome, other.outcome);
                prop_assert_eq!(confounds(&one), confounds(&other));
                prop_assert_eq!(one.is_controlled(), given(&a, &b) && given(&b, &a), "{}", text(&one, true));
            }
            (one, other) => prop_assert!(false, "{one:?}\n{other:?}"),
        }
    }
}
