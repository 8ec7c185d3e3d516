//! Random pairs of arms: one base, then other fills, moved slots, changed fields, and definitions that share a name and
//! differ.
//!
//! An edit that breaks the arch gives no pair, and enough pairs differ only in their fills to be controlled.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use compiler::program::{Compiled, Program, Std};
use proptest::prelude::*;

use support::generate::{Fill, Random, random};
use support::programs::TEXT;

/// Edits of user definitions: the text to replace, and its replacement.
const DEFINITIONS: [(&str, &str); 14] = [
    // Moved slots.
    ("slot E(both(slot A(x)) * scale), dim)", "both(slot E(slot A(x))) * scale, dim)"),
    ("(slot E(both(slot A(x)) * scale), dim)", "(slot A(slot E(both(x)) * scale), dim)"),
    ("  x + linear back", "  x = slot A(x)\n  x + linear back"),
    ("both(slot A(x))", "both(x)"),
    ("h = slot D(activation(g))", "h = activation(slot D(g))"),
    ("h = slot D(activation(g))", "h = activation(g)"),
    ("slot E(linear wo (merge(", "slot E((merge("),
    // Changed computation.
    ("residual = false) + exp(y)", "residual = true) + exp(y)"),
    ("x; kernel = 3", "x; kernel = 2"),
    ("rms_norm norm (x)", "rms_norm norm (silu(x))"),
    ("rms_norm norm (x)", "rms_norm other (x)"),
    // Changed names only.
    ("g = linear gate", "first = linear gate"),
    ("init = normal(rsqrt(fan_in * width))", "init = normal(rsqrt(width * fan_in))"),
    ("canon filter (y, residual = false)", "canon filter (y, residual = false, init = ones)"),
];

/// User layers and mixers with names of std.
const SHADOWS: [&str; 8] = [
    "block decoder(x; mixer, mlp) {
  x = slot A(x)
  h = x + mixer(rms_norm pre_mixer (x))
  h + mlp(slot C(rms_norm pre_mlp (h)))
}",
    "block decoder(x; mixer, mlp) {
  h = x + mixer(rms_norm pre_mixer (slot A(x)))
  h + mlp(slot C(rms_norm pre_mlp (h)))
}",
    "block decoder(x; mixer, mlp) {
  h = x + mixer(slot A(rms_norm pre_mixer (x)))
  h + slot C(mlp(rms_norm pre_mlp (h)))
}",
    // The same layer, written differently.
    "block decoder(x; mixer, mlp) {
  normed = slot A(rms_norm pre_mixer (x))
  mixed = mixer(normed)
  y = x + mixed
  y + mlp(slot C(rms_norm pre_mlp (y)))
}",
    "block decoder(x; mixer, mlp) {
  h = x + mixer(slot A(silu(rms_norm pre_mixer (x))))
  h + mlp(slot C(rms_norm pre_mlp (h)))
}",
    // A slot on a separate path, which vanishes if the slot is empty.
    "block decoder(x; mixer, mlp) {
  h = x + mixer(slot A(rms_norm pre_mixer (x)))
  h + mlp(slot C(rms_norm pre_mlp (h))) + (slot F(h) - h)
}",
    "mlp swiglu(x; multiplier = 1, multiple_of = 256, hidden = ceil_to(8 * dim / 4, multiple_of)) {
  gate = linear gate (x, hidden)
  up = linear up (x, hidden)
  linear down (slot D(silu(gate) * up), dim)
}",
    // Canon by name, but a different computation.
    "mlp canon(x; kernel = 4) {
  short_conv conv (silu(x), kernel)
}",
];

const EDITS: [&str; 9] = [
    "norm_eps 1e-4",
    "init.canon zeros",
    "init.canon ones",
    "init.short_conv normal(0.5)",
    "init.short_conv_bias ones",
    "init.norm constant(2)",
    "init.bias normal(0.1)",
    "vocab 65",
    "layers[0].mixer.heads 2",
];

const WITH: [&str; 8] = [
    "canon",
    "canon { kernel 3 }",
    "canon { kernel 2, activation silu }",
    "canon { residual false, init zeros }",
    "short_conv { bias true }",
    "my_fill",
    "my_fill { kernel 2 }",
    "rms_norm { eps 1e-3 }",
];

const TREATMENTS: [&[&str]; 10] = [
    &[],
    &["slots.A"],
    &["slots.B"],
    &["slots.C"],
    &["slots.D"],
    &["slots.E"],
    &["canon", "slots.A"],
    &["arch.layers.0..1.slots.A"],
    &["arch.layers[0..2].slots.*"],
    &["arch.layers.*.slots.*"],
];

/// The edits of one arm.
#[derive(Clone, Debug)]
struct Arm {
    definition: Option<usize>,
    shadow: Option<usize>,
    edit: Option<usize>,
    /// For each fill: whether it is present, and its replacement, if any.
    fills: Vec<(bool, Option<usize>)>,
}

fn arm() -> impl Strategy<Value = Arm> {
    let choice = |n: usize, often: f64| prop::option::weighted(often, 0..n);
    let fill = (prop::bool::weighted(0.6), prop::option::weighted(0.15, 0..WITH.len()));
    (
        choice(DEFINITIONS.len(), 0.2),
        choice(SHADOWS.len(), 0.2),
        choice(EDITS.len(), 0.15),
        prop::collection::vec(fill, 7),
    )
        .prop_map(|(definition, shadow, edit, fills)| Arm { definition, shadow, edit, fills })
}

/// Two arms and a treatment.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    base: Random,
    arms: [Arm; 2],
    treatment: usize,
}

pub(crate) fn pair() -> impl Strategy<Value = Pair> {
    (random(), arm(), arm(), any::<[bool; 3]>(), any::<u8>(), 0..40usize).prop_map(
        |(base, a, mut b, same, also, treatment)| {
            // Most pairs share most of their edits.
            let alike = |flag: bool, bit: u8| flag || also & bit != 0;
            if alike(same[0], 1) {
                b.definition = a.definition;
            }
            if alike(same[1], 2) {
                b.shadow = a.shadow;
            }
            if alike(same[2], 4) {
                b.edit = a.edit;
            }
            Pair { base, arms: [a, b], treatment }
        },
    )
}

impl Pair {
    pub(crate) fn compiled(&self) -> Option<[Compiled; 2]> {
        let [a, b] = [0, 1].map(|i| self.arm(&self.arms[i]));
        Some([a?, b?])
    }

    fn arm(&self, arm: &Arm) -> Option<Compiled> {
        let mut mine = self.base.mine.clone();
        if let Some((before, after)) = arm.definition.map(|i| DEFINITIONS[i]) {
            mine = mine.replacen(before, after, 1);
            if after.starts_with("first = ") {
                mine = mine.replace("activation(g)", "activation(first)");
            }
        }
        let mut text = self.base.base.clone();
        if let Some(shadow) = arm.shadow {
            let _ = writeln!(text, "\n{}", SHADOWS[shadow]);
        }
        text.push_str("\narch filled = base with {\n");
        if let Some(edit) = arm.edit {
            let _ = writeln!(text, "  {}", EDITS[edit]);
        }
        for (Fill { slot, layers, with }, (present, replacement)) in
            self.base.fills.iter().zip(&arm.fills)
        {
            if *present {
                let with = replacement.map_or(with.as_str(), |i| WITH[i]);
                let _ = writeln!(text, "  fill {layers}{slot} with {with}");
            }
        }
        text.push_str("}\n");
        let files = [("mine.canon".to_owned(), mine), (TEXT.to_owned(), text)];
        let program = Program::new(files, Std::Embedded);
        program.compile(TEXT, "filled").0
    }

    /// The treatment: often the slots in which the arms differ, or all of them except one.
    pub(crate) fn treatment(&self, arms: &[Compiled; 2]) -> Vec<String> {
        let slots = |arm: &Compiled| -> BTreeSet<(String, String)> {
            let slots = arm.fields.iter().filter(|field| field.path.contains("slots."));
            slots.map(|field| (field.path.clone(), field.value.clone())).collect()
        };
        let [a, b] = [slots(&arms[0]), slots(&arms[1])];
        let differing = a.symmetric_difference(&b).filter_map(|(path, value)| {
            let (_, slot) = path.split_once("slots.")?;
            (!slot.contains('.') && value != "empty").then(|| format!("slots.{slot}"))
        });
        let mut differing: Vec<String> =
            differing.collect::<BTreeSet<String>>().into_iter().collect();
        match self.treatment {
            0..12 => vec!["canon".to_owned()],
            12..25 => differing,
            25..30 => {
                differing.pop();
                differing
            }
            n => TREATMENTS[n - 30].iter().map(|entry| (*entry).to_owned()).collect(),
        }
    }
}
