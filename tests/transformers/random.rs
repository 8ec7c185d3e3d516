//! Random archs of the whole language, small enough to compare hundreds of them. Every text compiles. Widths, heads,
//! windows, kernels and ranks are independent of each other, so that no shape rule is met by chance.

use std::fmt::Write as _;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

const DEFINITIONS: &str = "init spread {
  embed normal(1)
  linear normal(0.4)
  bias normal(0.5)
  norm uniform(1.5)
  canon uniform(0.7)
  short_conv uniform(0.7)
  short_conv_bias normal(0.5)
}
/// RWKV-6's recurrence between two projections.
mixer late(x; heads, rows, columns) {
  param u [heads, rows] init normal(1)
  g = -exp(heads(linear wg (x, heads * rows), heads))
  r = heads(linear wr (x, heads * rows), heads)
  k = heads(linear wk (x, heads * rows), heads)
  v = heads(linear wv (x, heads * columns), heads)
  linear wo (merge(rwkv6_scan(r, k, v, g, f32(u))), dim)
}
/// A mixer between tensors that pass from layer to layer, and rows for the last tokens.
mixer passing(x; inner, order, rows) {
  carry first = silu(x) else { x = x + first }
  carry total = x
  total = total * 0.5 + ngram recent (tokens, order, rows)
  inner(x) + total
}
mlp rectified(x; hidden) {
  linear down (relu(slot D(linear up (x, hidden, bias = true))), dim)
}
block low_rank(x; width, rank) {
  linear up (silu(linear down (x, rank)), width)
}
block smooth(x; kernel) {
  y = short_conv conv (x, kernel, bias = true)
  canon filter (y, kernel = 2) + sigmoid(y)
}
";

/// A layer and its slots, of which only A and C have the model's width.
#[derive(Clone, Debug)]
struct Layer {
    text: String,
    slots: Vec<&'static str>,
}

/// A mixer's text, and the slots it has.
type Mixer = (String, &'static [&'static str]);

fn with_slot_b(text: String) -> Mixer {
    (text, ["B"].as_slice())
}

fn attention() -> impl Strategy<Value = Mixer> {
    let window = prop_oneof![
        2 => Just("none".to_owned()),
        3 => (1..9i64).prop_map(|window| window.to_string()),
    ];
    let rope = prop_oneof![
        Just("rope nope".to_owned()),
        (1..=2i64, select(vec!["half", "interleaved"]), select(vec!["10000", "500.5"])).prop_map(
            |(pairs, layout, theta)| {
                format!("rope {{ dims {}, layout {layout}, theta {theta} }}", 2 * pairs)
            }
        ),
    ];
    (1..=2i64, 1..=3i64, 4..=7i64, any::<bool>(), rope, window).prop_map(
        |(kv, groups, head_dim, norm, rope, window)| {
            let heads = kv * groups;
            let text = format!(
                "attention {{ heads {heads}, kv_heads {kv}, head_dim {head_dim}, qk_norm {norm}, {rope}, window {window} }}"
            );
            (text, ["B"].as_slice())
        },
    )
}

/// Heads, widths of keys and values per head, a rank or number of steps, a flag, and a kernel.
fn scan() -> impl Strategy<Value = (i64, i64, i64, i64, bool, i64)> {
    (1..=3i64, 1..=5i64, 1..=5i64, 1..=4i64, any::<bool>(), 1..=5i64)
}

/// Simple GLA, retention, HGRN2 and GSA, which all have a width of keys and one of values.
fn by_head() -> impl Strategy<Value = Mixer> {
    let by_head = scan().prop_map(move |(heads, k, v, slots, bounded, _)| {
        let widths = format!("heads {heads}, key_dim {}, value_dim {}", heads * k, heads * v);
        (widths, slots, bounded)
    });
    (by_head, 0..4usize).prop_map(|((widths, slots, bounded), which)| {
        with_slot_b(match which {
            0 => format!("simple_gla {{ {widths} }}"),
            1 => format!("retention {{ {widths}, rope nope }}"),
            2 => format!("hgrn2 {{ {widths}, bounded {bounded} }}"),
            _ => format!("gsa {{ {widths}, slots {slots} }}"),
        })
    })
}

/// RWKV-6 and RWKV-7 with one head, which is as wide as any model.
fn rwkv() -> impl Strategy<Value = Mixer> {
    (1..=4i64, 1..=4i64, any::<bool>()).prop_map(move |(rank, gate, seven)| {
        with_slot_b(match seven {
            true => format!(
                "rwkv7 {{ heads 1, decay_rank {rank}, rate_rank {rank}, gate_rank {gate} }}"
            ),
            false => format!("rwkv6 {{ heads 1, mix_rank {rank}, decay_rank {gate} }}"),
        })
    })
}

fn linear() -> impl Strategy<Value = Mixer> {
    let gla = scan().prop_map(|(heads, k, v, rank, conv, kernel)| {
        let (keys, values) = (heads * k, heads * v);
        let text = format!(
            "gla {{ heads {heads}, key_dim {keys}, value_dim {values}, gate_rank {rank}, short_conv {conv}, conv_kernel {kernel} }}"
        );
        (text, [].as_slice())
    });
    let delta = scan().prop_map(|(heads, k, v, rank, conv, kernel)| {
        let (keys, values) = (heads * k, heads * v);
        let text = format!(
            "gated_deltanet {{ heads {heads}, key_dim {keys}, value_dim {values}, output_gate_rank {rank}, short_conv {conv}, conv_kernel {kernel} }}"
        );
        (text, ["B"].as_slice())
    });
    let mamba = scan().prop_map(|(groups, p, state, times, conv, kernel)| {
        let heads = groups * times;
        let text = format!(
            "mamba2 {{ heads {heads}, inner {}, state {state}, groups {groups}, short_conv {conv}, conv_kernel {kernel} }}",
            heads * p
        );
        (text, ["B"].as_slice())
    });
    let kda = scan().prop_map(move |(heads, k, v, rank, conv, kernel)| {
        let (keys, values) = (heads * k, heads * v);
        with_slot_b(format!(
            "kda {{ heads {heads}, key_dim {keys}, value_dim {values}, gate_rank {rank}, short_conv {conv}, conv_kernel {kernel} }}"
        ))
    });
    let product = scan().prop_map(move |(heads, k, v, steps, flag, kernel)| {
        let (keys, values) = (heads * k, heads * v);
        with_slot_b(format!(
            "delta_product {{ heads {heads}, steps {steps}, key_dim {keys}, value_dim {values}, gated {flag}, conv_kernel {kernel} }}"
        ))
    });
    let late = scan().prop_map(|(heads, rows, columns, ..)| {
        let text = format!("late {{ heads {heads}, rows {rows}, columns {columns} }}");
        (text, [].as_slice())
    });
    prop_oneof![gla, delta, mamba, late, kda, product, by_head(), rwkv()]
}

fn mixer() -> impl Strategy<Value = Mixer> {
    prop_oneof![1 => attention(), 2 => linear()]
}

fn layer() -> impl Strategy<Value = Layer> {
    let mlp = prop_oneof![
        2 => (1..=11i64).prop_map(|hidden| Some(format!("swiglu {{ hidden {hidden} }}"))),
        1 => (1..=11i64).prop_map(|hidden| Some(format!("rectified {{ hidden {hidden} }}"))),
        1 => Just(None),
    ];
    let passing = prop::option::weighted(0.3, (2..=5i64, 1..=9i64));
    (mixer(), mlp, passing).prop_map(|((mixer, inner), mlp, passing)| {
        let mixer = match passing {
            Some((order, rows)) => {
                format!("passing {{ inner {mixer}, order {order}, rows {rows} }}")
            }
            None => mixer,
        };
        let mut slots = vec!["A"];
        slots.extend(inner);
        match mlp {
            Some(mlp) => {
                slots.extend(["C", "D"]);
                Layer { text: format!("decoder {{ mixer {mixer}  mlp {mlp} }}"), slots }
            }
            None => Layer { text: format!("mixer_only {{ mixer {mixer} }}"), slots },
        }
    })
}

/// A fill of any width; those with a width of their own fit A and C only.
fn fill(dim: i64) -> impl Strategy<Value = (String, bool)> {
    let canon = (1..=6i64, any::<bool>(), any::<bool>()).prop_map(|(kernel, residual, silu)| {
        let activation = if silu { "silu" } else { "none" };
        let text =
            format!("canon {{ kernel {kernel}, residual {residual}, activation {activation} }}");
        (text, true)
    });
    prop_oneof![
        3 => canon,
        1 => (1..=4i64).prop_map(|kernel| (format!("smooth {{ kernel {kernel} }}"), true)),
        1 => Just(("rms_norm { eps 1e-3 }".to_owned(), true)),
        1 => (1..=3i64).prop_map(move |rank| (format!("low_rank {{ width {dim}, rank {rank} }}"), false)),
    ]
}

/// The text of an arch `random`.
pub(super) fn text() -> impl Strategy<Value = String> {
    let dim = select(vec![1i64, 2, 5, 8, 12]);
    dim.prop_flat_map(|dim| {
        let group = (layer(), 1..=3usize, prop::bool::weighted(0.3));
        let fills = vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), fill(dim)), 0..6);
        (
            Just(dim),
            select(vec![1i64, 2, 23]),
            vec(group, 1..4),
            fills,
            select(vec!["tied", "untied"]),
            select(vec!["spread", "spread", "lingua"]),
            prop::option::weighted(0.5, 1..=3i64),
        )
    })
    .prop_map(|(dim, vocab, mut groups, fills, head, init, streams)| {
        // Hyper-connections are for all layers or none.
        let all = groups.iter().all(|(layer, ..)| layer.text.starts_with("decoder {"));
        if let Some(streams) = streams.filter(|_| all) {
            for (layer, ..) in &mut groups {
                layer.text = layer.text.replacen("decoder {", &format!("hyper {{ streams {streams} "), 1);
            }
        }
        let mut list = Vec::new();
        let mut ranges = Vec::new();
        let mut at = 0;
        for (layer, count, share) in &groups {
            let share = if *share { "share " } else { "" };
            list.push(format!("{count} of {share}{}", layer.text));
            ranges.push((at..at + count, layer.slots.clone()));
            at += count;
        }
        let mut text = format!(
            "{DEFINITIONS}arch base {{\n  vocab {vocab}\n  dim {dim}\n  norm_eps 1e-5\n  init {init}\n  head {head}\n  layers [\n    {}\n  ]\n}}\narch random = base with {{\n",
            list.join(",\n    ")
        );
        let mut taken = Vec::new();
        for (group, slot, (with, any_width)) in fills {
            let (range, slots) = &ranges[group.index(ranges.len())];
            let slot = slots[slot.index(slots.len())];
            let fits = any_width || slot == "A" || slot == "C";
            if !fits || taken.contains(&(range.start, slot)) {
                continue;
            }
            taken.push((range.start, slot));
            let _ = writeln!(text, "  fill layers[{}..{}].{slot} with {with}", range.start, range.end);
        }
        text.push_str("}\n");
        text
    })
}
