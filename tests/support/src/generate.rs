//! Random architectures: families, hybrids, sizes, shared layers, heads, slot sets, and user definitions with names
//! that collide with those of std, of primitives and of each other. Each program has an arch `base` and an arch
//! `filled`; every one is valid, so a refusal is a finding.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use compiler::program::{Compiled, Program, Std};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};

use crate::programs::{TEXT, compiled_in};

/// Names for user definitions: a layer, a mixer, an mlp, a fill, an alias.
const NAMES: [&str; 21] = [
    "softmax",
    "swiglu",
    "rotary",
    "nope",
    "decoder",
    "mixer_only",
    "untied",
    "lingua",
    "gla",
    "ones",
    "floor",
    "layer",
    "dim",
    "Decoder",
    "decoder_2",
    "swiglu_2",
    "swiglu_3",
    "mine",
    "base",
    "filled",
    "rope_2",
];

/// Names that only a mixer or an mlp may have.
const PRIMITIVES: [&str; 8] =
    ["linear", "canon", "attention", "heads", "short_conv", "rope", "embed", "rms_norm"];

/// A fill of one slot in some layers.
#[derive(Clone, Debug)]
pub struct Fill {
    pub slot: &'static str,
    pub layers: String,
    pub with: String,
}

#[derive(Clone, Debug)]
pub struct Random {
    pub mine: String,
    pub base: String,
    pub fills: Vec<Fill>,
}

impl Random {
    /// The program, with the fills of the slots for which `keep` is true.
    pub fn program(&self, keep: impl Fn(&str) -> bool) -> Program {
        let mut text = self.base.clone();
        text.push_str("\narch filled = base with {\n");
        for Fill { slot, layers, with } in self.fills.iter().filter(|fill| keep(fill.slot)) {
            let _ = writeln!(text, "  fill {layers}{slot} with {with}");
        }
        text.push_str("}\n");
        let files = [("mine.canon".to_owned(), self.mine.clone()), (TEXT.to_owned(), text)];
        Program::new(files, Std::Embedded)
    }

    pub fn base(&self) -> Compiled {
        compiled_in(&self.program(|_| true), TEXT, "base")
    }

    pub fn filled(&self, keep: impl Fn(&str) -> bool) -> Compiled {
        compiled_in(&self.program(keep), TEXT, "filled")
    }
}

/// A layer as text, and the slots it declares.
type Layer = (String, &'static [&'static str]);

fn attention() -> impl Strategy<Value = Layer> {
    let rope =
        select(vec!["", "rope nope", "rope { dims 2 }", "rope { layout half }", "rope.theta 500"]);
    let window = select(vec!["", "window 4", "window layer + 2", "window none"]);
    let kv = select(vec!["", "kv_heads 1", "kv_heads 2"]);
    let mlp = select(vec![
        "swiglu { hidden 40 }",
        "swiglu { multiple_of 8 }",
        "my_mlp",
        "my_mlp { width 24 }",
    ]);
    (rope, window, kv, any::<bool>(), mlp).prop_map(|(rope, window, kv, qk_norm, mlp)| {
        let mixer = format!("attention {{ heads 4, qk_norm {qk_norm}\n{kv}\n{rope}\n{window} }}");
        (format!("decoder {{ mixer {mixer}  mlp {mlp} }}"), ["A", "B", "C", "D"].as_slice())
    })
}

fn layer() -> impl Strategy<Value = Layer> {
    let fixed = |text: &str, slots: &'static [&'static str]| Just((text.to_owned(), slots)).boxed();
    let conv = any::<bool>();
    let gla = conv.prop_map(|conv| {
        let mixer = format!("gla {{ heads 4, short_conv {conv}, gate_rank 4 }}");
        (
            format!("decoder {{ mixer {mixer}  mlp swiglu {{ hidden 40 }} }}"),
            ["A", "C", "D"].as_slice(),
        )
    });
    let mamba = (conv, 1..=2i64).prop_map(|(conv, groups)| {
        let mixer = format!("mamba2 {{ heads 4, state 8, groups {groups}, short_conv {conv} }}");
        (
            format!("decoder {{ mixer {mixer}  mlp swiglu {{ hidden 40 }} }}"),
            ["A", "B", "C", "D"].as_slice(),
        )
    });
    prop_oneof![
        4 => attention(),
        1 => gla,
        1 => mamba,
        1 => fixed("decoder { mixer gated_deltanet { heads 2 }  mlp my_mlp }", &["A", "B", "C", "D"]),
        1 => fixed("mixer_only { mixer gated_deltanet { heads 4, conv_kernel 2 } }", &["A", "B"]),
        1 => fixed("decoder { mixer my_mixer  mlp swiglu { hidden 40 } }", &["A", "C", "D", "E"]),
        1 => fixed("my_layer", &["A", "E"]),
        1 => fixed("my_layer { width 8 }", &["A", "E"]),
        1 => fixed("my_alias", &["A", "E"]),
    ]
}

/// `2 of share X` and similar, some of them in a list that repeats.
#[derive(Clone, Debug)]
struct Group {
    layer: Layer,
    count: usize,
    share: bool,
    repeated: bool,
}

fn group() -> impl Strategy<Value = Group> {
    (layer(), 1..=3usize, prop::bool::weighted(0.3), prop::bool::weighted(0.3))
        .prop_map(|(layer, count, share, repeated)| Group { layer, count, share, repeated })
}

fn definitions(names: &[String]) -> (String, String) {
    let [layer, mixer, mlp, fill, alias] = names else { return Default::default() };
    let mine = format!(
        "block {layer}(x; width = 12, scale = min(3, 7 / 2)) {{
  share both = pair {{ n width }}
  x + linear back (slot E(both(slot A(x)) * scale), dim)
}}

block pair(x; n) {{
  linear w (silu(norm_of(x)), n)
}}

block norm_of(x) {{
  rms_norm norm (x)
}}

block turned(q, k; head_dim) {{
  rope(q, dims = head_dim), k
}}

mixer {mixer}(x; heads = 4, rope = turned) {{
  y = pair(x, dim)
  q, k = rope(heads(y, heads), heads(linear other (x, dim), heads), head_dim = dim / heads)
  if heads > 2 {{ unused = 3 }} else {{ q = q + k }}
  slot E(linear wo (merge(attention(q, k, heads(y, heads))), dim))
}}

mlp {mlp}(x; width = 16, activation = norm_of) {{
  g = linear gate (x, width, init = normal(rsqrt(fan_in * width)))
  h = slot D(activation(g))
  linear down (h, dim)
}}

mlp {fill}(x; kernel = 3) {{
  y = short_conv conv (x, kernel)
  canon filter (y, residual = false) + exp(y)
}}

block {alias} = {layer} {{ width 20 }}
"
    );
    let import = format!(
        "import {layer} as my_layer, {mixer} as my_mixer, {mlp} as my_mlp, {fill} as my_fill, {alias} as my_alias from \"mine.canon\"\n"
    );
    (mine, import)
}

fn names() -> impl Strategy<Value = Vec<String>> {
    let plain = subsequence(NAMES.to_vec(), 5).prop_shuffle();
    let kernels = subsequence(PRIMITIVES.to_vec(), 3).prop_shuffle();
    (plain, kernels, any::<[bool; 3]>()).prop_map(|(plain, kernels, take)| {
        let mut names: Vec<String> = plain.into_iter().map(str::to_owned).collect();
        // The mixer, the mlp and the fill may have a primitive's name.
        for (i, kernel) in kernels.into_iter().enumerate() {
            if take[i] {
                names[i + 1] = kernel.to_owned();
            }
        }
        // No two names may differ in case only; a file does not allow that.
        let mut seen = BTreeSet::from(["pair", "norm_of", "turned"].map(str::to_owned));
        for (i, name) in names.iter_mut().enumerate() {
            if !seen.insert(name.to_lowercase()) {
                *name = format!("own{i}");
            }
        }
        names
    })
}

pub fn random() -> impl Strategy<Value = Random> {
    let init = select(vec!["lingua", "huggingface", "flash_linear", "mamba"]);
    let head = select(vec!["untied", "tied"]);
    let fill = (
        select(vec!["A", "B", "C", "D", "E"]),
        any::<Index>(),
        select(vec![
            "canon",
            "canon { kernel 2, activation silu }",
            "canon { residual false, init zeros }",
            "short_conv { bias true }",
            "my_fill",
            "my_fill { kernel 2 }",
            "rms_norm { eps 1e-3 }",
        ]),
        prop::bool::weighted(0.2),
    );
    (names(), init, head, vec(group(), 1..5), 1..=3usize, vec(fill, 0..7)).prop_map(
        |(names, init, head, groups, times, wanted)| {
            let (mine, import) = definitions(&names);
            let layers_text = |g: &Group| {
                let share = if g.share { "share " } else { "" };
                format!("{} of {share}{}", g.count, g.layer.0)
            };
            let (repeated, plain): (Vec<&Group>, Vec<&Group>) =
                groups.iter().partition(|g| g.repeated);
            let mut list: Vec<String> = plain.iter().map(|g| layers_text(g)).collect();
            if !repeated.is_empty() {
                let inner: Vec<String> = repeated.iter().map(|g| layers_text(g)).collect();
                list.push(format!("{times} of [{}]", inner.join(", ")));
            }
            let base = format!(
                "{import}
arch base {{
  vocab 64
  dim 32
  norm_eps 1e-5
  init {init}
  head {head}
  layers [{}]
}}
",
                list.join(",\n    ")
            );
            let fills = fills(&plain, &repeated, times, wanted);
            Random { mine, base, fills }
        },
    )
}

/// Possible fills: existing slots, each filled once, and equally in shared layers.
fn fills(
    plain: &[&Group],
    repeated: &[&Group],
    times: usize,
    wanted: Vec<(&'static str, Index, &'static str, bool)>,
) -> Vec<Fill> {
    // For each layer: its slots, and the layers that must be edited with it.
    let mut layers: Vec<(&[&str], std::ops::Range<usize>)> = Vec::new();
    for g in plain {
        let start = layers.len();
        for i in 0..g.count {
            let alike = if g.share { start..start + g.count } else { start + i..start + i + 1 };
            layers.push((g.layer.1, alike));
        }
    }
    let tied = repeated.iter().any(|g| g.share);
    for g in (0..times).flat_map(|_| repeated) {
        for _ in 0..g.count {
            // If a repeated list contains a shared layer, only an edit of all layers keeps it shared.
            let index = layers.len();
            layers.push((g.layer.1, if tied { 0..0 } else { index..index + 1 }));
        }
    }
    let mut taken: BTreeSet<(&str, usize)> = BTreeSet::new();
    let mut fills = Vec::new();
    for (slot, position, with, all) in wanted {
        let range =
            if all { 0..layers.len() } else { layers[position.index(layers.len())].1.clone() };
        let free =
            range.clone().all(|i| layers[i].0.contains(&slot) && !taken.contains(&(slot, i)));
        if range.is_empty() || !free {
            continue;
        }
        taken.extend(range.clone().map(|i| (slot, i)));
        let selected =
            if all { String::new() } else { format!("layers[{}..{}].", range.start, range.end) };
        fills.push(Fill { slot, layers: selected, with: with.to_owned() });
    }
    fills
}
