//! The rules of the language, one by one, if a refusal alone does not show them. The meaning of these texts is part of
//! the promise of a `.canon` file.

use std::collections::BTreeMap;

use compiler::analyse::analyse;
use compiler::graph::{Body, NodeKind};
use compiler::op::{self, Time};
use compiler::program::{Compiled, Program, Std};

use support::programs::{TEXT, arch, codes, compiled, compiled_in, with_layers};

/// The manifest by path: shape, rule and key.
fn manifest(compiled: &Compiled) -> BTreeMap<String, String> {
    let lines = compiled.identity.manifest_text.lines();
    lines
        .map(|line| line.split_once(' ').unwrap())
        .map(|(p, r)| (p.to_owned(), r.to_owned()))
        .collect()
}

fn fields(compiled: &Compiled) -> BTreeMap<&str, (&str, bool)> {
    let mut all = BTreeMap::new();
    for field in &compiled.fields {
        let before = all.insert(field.path.as_str(), (field.value.as_str(), field.written));
        assert_eq!(before, None, "{} is listed twice", field.path);
    }
    all
}

fn value<'a>(compiled: &'a Compiled, path: &str) -> &'a str {
    fields(compiled).get(path).unwrap_or_else(|| panic!("no field {path}")).0
}

fn layers(definitions: &str, layers: &str) -> Compiled {
    compiled(&with_layers(definitions, layers))
}

/// Checks that two texts have one graph.
fn assert_same_graph(a: &Compiled, b: &Compiled) {
    assert_eq!(a.identity.graph_text, b.identity.graph_text);
}

#[test]
fn rule_2_bodies_are_dataflow_and_shadowing_is_renaming() {
    let shadowed =
        layers("block l(x) {\n  x = silu(x)\n  x = linear w (x, dim)\n  x + x\n}", "1 of l");
    let named =
        layers("block l(x) {\n  a = silu(x)\n  b = linear w (a, dim)\n  b + b\n}", "1 of l");
    assert_same_graph(&shadowed, &named);
    // A definition is a value.
    let passed = layers(
        "block l(x; f, g = f) {\n  f(x) + g(x)\n}\nblock h(x; n = 2) {\n  x * n\n}",
        "1 of l { f h { n 3 } }",
    );
    let plain = layers("block l(x) {\n  x * 3 + x * 3\n}", "1 of l");
    assert_same_graph(&passed, &plain);
}

#[test]
fn rule_3_a_name_is_looked_up_from_the_inside_out() {
    // Body, then configuration, then the arch's fields, then the file, then std.
    for (body, width) in [
        ("block l(x; dim = 24) {\n  dim = 40\n  linear back (linear w (x, dim), 16)\n}", 40),
        ("block l(x; dim = 24) {\n  linear back (linear w (x, dim), 16)\n}", 24),
        ("block l(x) {\n  linear back (linear w (x, dim), 16)\n}", 16),
        // A definition of the file does not hide a field of the arch.
        ("block dim(x) {\n  x\n}\nblock l(x) {\n  linear back (linear w (dim(x), dim), 16)\n}", 16),
        // Configuration in a body may use the body's names; a default may use the parameters before it.
        (
            "block l(x; n = 5) {\n  m = n + 1\n  share f = linear { out m * 2 }\n  linear back (f(x), 16)\n}",
            12,
        ),
        (
            "block l(x; n = 5, g = inner { width n * 3 }) {\n  linear back (g(x), 16)\n}\nblock inner(x; width) {\n  linear w (x, width)\n}",
            15,
        ),
    ] {
        let compiled = layers(body, "1 of l");
        let w = compiled.graph.params().iter().find(|p| p.path == "layers.0.back").unwrap();
        assert_eq!(w.shape, [16, width], "{body}");
    }
    // An imported definition sees its own file, not the one that imports it.
    let other = "block inner(x) {\n  x * 7\n}\nblock outer(x) {\n  inner(x)\n}".to_owned();
    let text = with_layers(
        "import outer from \"other.canon\"\nblock inner(x) {\n  x * 9\n}",
        "1 of outer",
    );
    let files = [("other.canon".to_owned(), other), (TEXT.to_owned(), text)];
    let compiled = compiled_in(&Program::new(files, Std::Embedded), TEXT, "a");
    assert!(compiled.identity.graph_text.contains("scale@1 {by 7}"));
    // Configuration hides a definition of the file, even with a value that cannot be called.
    assert_eq!(
        codes(&with_layers(
            "block inner(x) {\n  x\n}\nblock l(x; inner = 3) {\n  inner(x)\n}",
            "1 of l"
        )),
        ["not-callable"]
    );
    // An arch may have the name of its mixer.
    let text = with_layers("", "1 of decoder { mixer gla { heads 4 }  mlp swiglu }");
    let program = text.replace("arch a {", "arch gla {").replace("lingua", "flash_linear");
    assert_eq!(codes(&format!("{program}\narch swiglu = gla with {{ mlp.hidden 8 }}")), [""; 0]);
}

#[test]
fn rule_4_a_path_is_instance_names_and_nothing_else() {
    let base = arch("hybrid_tiny");
    let canon = arch("hybridcanon_tiny");
    // Slots move and change nothing: each line of the base is a line of the other, including the key.
    let (small, large) = (manifest(&base), manifest(&canon));
    assert!(large.len() > small.len());
    for (path, line) in &small {
        assert_eq!(large.get(path), Some(line), "{path}");
    }
    // Other layers and the code around a call change nothing either.
    let mixer = "decoder { mixer attention { heads 4 }  mlp swiglu { hidden 8 } }";
    let one = layers(
        "",
        &format!("[nothing_else, {mixer}]")
            .replace("nothing_else, ", "mixer_only { mixer attention { heads 2 } }, "),
    );
    let two = layers(
        "block wrapped(x) {\n  y = silu(x)\n  x + linear own (y, dim)\n}",
        &format!("[wrapped, {mixer}, wrapped]"),
    );
    let at_one = |c: &Compiled| {
        let all = manifest(c);
        all.into_iter().filter(|(p, _)| p.starts_with("layers.1.")).collect::<Vec<_>>()
    };
    assert_eq!(at_one(&one), at_one(&two));
    // Without a name, the instance has the callee's name.
    let unnamed = layers(
        "block l(x) {\n  x + part(linear(x, dim))\n}\nblock part(x) {\n  rms_norm(x)\n}",
        "1 of l",
    );
    let paths: Vec<String> = manifest(&unnamed).into_keys().collect();
    assert_eq!(
        paths,
        ["embed", "head.norm", "head.output", "layers.0.linear", "layers.0.part.rms_norm"]
    );
}

#[test]
fn rule_5_init_comes_from_the_call_else_from_the_table_by_role() {
    let text = with_layers(
        "block l(x; rule = ones) {
  a = linear first (x, dim, init = normal(rsqrt(fan_in * 4)))
  b = linear second (a, dim, bias = true, init = rule)
  param gain [dim] init constant(2)
  param other [dim]
  rms_norm norm (b * gain * other, init = zeros)
}",
        "1 of l",
    );
    assert_eq!(codes(&text), ["no-init"]);
    let text = text.replace(
        "init lingua",
        "init { embed normal(1)  linear uniform(0.5)  norm ones  bias constant(-1)  other log_uniform(1, fan_in) }",
    );
    let all = manifest(&compiled(&text));
    let rule = |path: &str| {
        let words: Vec<&str> = all[path].split(' ').collect();
        words[1..].join(" ")
    };
    assert_eq!(rule("layers.0.first"), "normal(0.125)");
    assert_eq!(rule("layers.0.second"), "ones");
    assert_eq!(rule("layers.0.second.bias"), "constant(-1)");
    assert_eq!(rule("layers.0.gain"), "constant(2)");
    assert_eq!(rule("layers.0.other"), "log_uniform(1, 16)");
    assert_eq!(rule("layers.0.norm"), "zeros");
    assert_eq!(rule("head.output"), "uniform(0.5)");
}

#[test]
fn rule_6_sharing_is_by_instance() {
    let count = |c: &Compiled| analyse(&c.graph, 16).parameters;
    let layer = "decoder { mixer attention { heads 4 }  mlp swiglu { hidden 8 } }";
    let one = count(&layers("", &format!("1 of {layer}")));
    let fixed = 2 * 64 * 16 + 16;
    // Equal text is not one instance; each `share` is.
    assert_eq!(count(&layers("", &format!("[{layer}, {layer}]"))), 2 * one - fixed);
    assert_eq!(count(&layers("", &format!("6 of share {layer}"))), one);
    assert_eq!(
        count(&layers("", &format!("[3 of share {layer}, 3 of share {layer}]"))),
        2 * one - fixed
    );
    let alternating = layers("", &format!("3 of [share {layer}, {layer}]"));
    assert_eq!(count(&alternating), one + 3 * (one - fixed));
    assert_eq!(value(&alternating, "layers.4.share"), "0");
    // Each position has its own state.
    assert_eq!(alternating.graph.top.states.len(), 6);
    // A shared layer may compute with its number, but its parameters may not depend on it.
    let windows = layers(
        "",
        "3 of share decoder { mixer attention { heads 4, window layer + 1 }  mlp swiglu { hidden 8 } }",
    );
    assert_eq!(count(&windows), one);
    assert_eq!(windows.identity.graph_text.matches("layer {body").count(), 3);
    // The head may use the token table.
    let tied = compiled(
        &with_layers("", &format!("1 of {layer}"))
            .replace("init lingua", "init lingua\n  head tied"),
    );
    assert_eq!(count(&tied), one - 64 * 16);
    assert_eq!(value(&tied, "head.table"), "embed");
}

#[test]
fn rule_6_a_shared_block_is_one_instance() {
    let text = "block pair(x; mixer) {\n  x + mixer(slot A(short_conv conv (x)))\n}
block l(x; mixer) {
  share twice = pair { mixer gate }
  share same = mixer
  y = twice(twice(x))
  y + same(same(y))
}
mlp gate(x) {\n  param w [dim] init ones\n  x * w + linear v (x, dim, bias = true, init = ones)\n}
";
    let compiled = layers(text, "2 of l { mixer swiglu { hidden 4 }  canon A, D }");
    let paths: Vec<String> =
        manifest(&compiled).into_keys().filter(|p| p.starts_with("layers.1.")).collect();
    assert_eq!(
        paths,
        [
            "layers.1.same.D",
            "layers.1.same.down",
            "layers.1.same.gate",
            "layers.1.same.up",
            "layers.1.twice.A",
            "layers.1.twice.conv",
            "layers.1.twice.mixer.v",
            "layers.1.twice.mixer.v.bias",
            "layers.1.twice.mixer.w",
        ]
    );
    // Two calls, two states, two names.
    let states: Vec<&str> = compiled.graph.top.states[..6].iter().map(|s| s.0.as_str()).collect();
    assert_eq!(
        states,
        [
            "layers.0.twice.conv",
            "layers.0.twice.A",
            "layers.0.twice.conv#2",
            "layers.0.twice.A#2",
            "layers.0.same.D",
            "layers.0.same.D#2",
        ]
    );
    // The arch sets the configuration of a shared definition.
    assert_eq!(value(&compiled, "layers.0.mixer.hidden"), "4");
}

#[test]
fn rule_7_arithmetic_is_exact() {
    for (expression, want) in [
        ("8 / 2", "4"),
        ("floor(7 / 2)", "3"),
        ("floor(-7 / 2) + 6", "2"),
        ("ceil_to(5.2, 4)", "8"),
        ("ceil_to(8 * 16 / 3, 16) / 8", "6"),
        ("(1 / 3) * 12", "4"),
        ("0.1 + 0.2 - 0.3 + 4", "4"),
        ("sqrt(16)", "4"),
        ("rsqrt(0.0625)", "4"),
        ("sqrt(2) * sqrt(8)", "4"),
        ("max(3, 4)", "4"),
        ("min(7 / 2, 4) * 2", "7"),
        ("9_223_372_036_854_775_807 - 9_223_372_036_854_775_799", "8"),
        ("dim / layers", "8"),
    ] {
        let compiled = layers(
            "block l(x; n) {\n  x + linear b (linear w (x, n), dim)\n}",
            &format!("2 of l {{ n {expression} }}"),
        );
        assert_eq!(value(&compiled, "layers.0.n"), want, "{expression}");
    }
    for condition in [
        "0.1 + 0.2 == 0.3",
        "1 / 3 < 0.333333333333333333333333333334",
        "not (1 / 3 <= 0.333333333333333333333333333333)",
        "none == none and none != 3",
        "swiglu != rotary",
        "dim >= 16 or false",
    ] {
        let compiled =
            layers(&format!("block l(x) {{\n  if {condition} {{ x = x * 3 }}\n  x\n}}"), "1 of l");
        assert!(compiled.identity.graph_text.contains("by 3"), "{condition}");
    }
}

#[test]
fn rule_7_a_tensor_takes_any_exact_number() {
    let layer = |value: &str| layers(&format!("block l(x) {{\n  {value}\n}}"), "1 of l");
    assert_same_graph(&layer("x / 4"), &layer("x * 0.25"));
    assert_same_graph(&layer("x / 4"), &layer("x * rsqrt(dim)"));
    assert_same_graph(&layer("x / 3"), &layer("third = 1 / 3\n  x * third"));
    assert_same_graph(&layer("x / 3"), &layer("scale(x, 1 / 3)"));
    assert_same_graph(&layer("x / sqrt(48)"), &layer("x * rsqrt(48)"));
    let text = |value: &str| layer(value).identity.graph_text;
    assert!(text("x / 3").contains("by 1/3"), "{}", text("x / 3"));
    assert!(text("x * rsqrt(48)").contains("by sqrt(1/48)"), "{}", text("x * rsqrt(48)"));
    assert_eq!(codes(&with_layers("block l(x) {\n  x / 0\n}", "1 of l")), ["division-by-zero"]);
    assert_same_graph(&layer("x - 2"), &layer("offset(x, -2)"));
    assert_same_graph(&layer("1 / 2 - x"), &layer("offset(-x, 0.5)"));
    assert_same_graph(&layer("3 / x"), &layer("reciprocal(x) * 3"));
    assert_same_graph(&layer("x / silu(x)"), &layer("x * reciprocal(silu(x))"));
    assert_eq!(codes(&with_layers("block l(x) {\n  x + none\n}", "1 of l")), ["operands"]);
}

#[test]
fn rule_8_a_slot_is_the_identity_or_a_fill_over_its_channels() {
    let block = "block l(x) {\n  a = linear one (x, 24)\n  b = linear two (x, 8)\n  a, b = slot S(a, b)\n  x + linear out (concat(b, a), dim)\n}";
    let empty = layers(block, "1 of l");
    let plain = layers(&block.replace("  a, b = slot S(a, b)\n", ""), "1 of l");
    assert_same_graph(&empty, &plain);
    assert_eq!(empty.identity.manifest, plain.identity.manifest);
    let filled = layers(block, "1 of l { canon S { kernel 3 } }");
    assert!(manifest(&filled)["layers.0.S"].starts_with("[32,3] "));
    assert!(filled.identity.graph_text.contains("slot {S, fill "));
    assert_eq!(value(&filled, "layers.0.slots.S"), "canon");
    assert_eq!(value(&filled, "layers.0.slots.S.kernel"), "3");
    assert_eq!(fields(&filled)["layers.0.slots.S.residual"], ("true", false));
    assert_eq!(value(&empty, "layers.0.slots.S"), "empty");
    // One slot declared at two places is filled at both, each with its own parameters.
    let two = layers(
        "block l(x) {\n  p(x) + p2(x)\n}\nblock p(x) {\n  linear w (slot A(x), dim)\n}\nblock p2(x) {\n  linear w (slot A(x), dim)\n}",
        "1 of l { canon A }",
    );
    let paths: Vec<String> = manifest(&two).into_keys().filter(|p| p.contains("p")).collect();
    assert_eq!(
        paths,
        ["head.output", "layers.0.p.A", "layers.0.p.w", "layers.0.p2.A", "layers.0.p2.w"]
    );
    // The head has its own slots, which are its own fields.
    let text = with_layers(
        "head h(x) {\n  linear output (slot A(rms_norm norm (x)), vocab)\n}",
        "1 of decoder { mixer attention { heads 4 }  mlp swiglu }",
    );
    let text = text.replace("init lingua", "init lingua\n  head h { canon A }");
    let head = compiled(&format!("{text}\narch b = a with {{ head.slots.A.kernel 2  canon A }}"));
    assert_eq!(value(&head, "head.slots.A.kernel"), "2");
    assert_eq!(value(&head, "layers.0.slots.A.kernel"), "4");
    assert!(manifest(&head)["head.A"].starts_with("[16,2] "));
}

#[test]
fn rule_9_layers_are_numbered_as_they_flatten() {
    let by_number = "block l(x; n = layer) {\n  x * (n + 10)\n}";
    let compiled = layers(by_number, "[l, 2 of [l, l { n 7 }], 1 of [[l]]]");
    let got: Vec<&str> = (0..6).map(|i| value(&compiled, &format!("layers.{i}.n"))).collect();
    assert_eq!(got, ["0", "1", "7", "3", "7", "5"]);
    assert_eq!(value(&compiled, "layers"), "6");
}

#[test]
fn rule_10_edits_select_and_replace_and_defaults_follow() {
    let base =
        with_layers("", "8 of decoder {\n    mixer attention { heads 4 }\n    mlp swiglu\n  }");
    let edited = |edits: &str| compiled(&format!("{base}\narch b = a with {{ {edits} }}"));
    let windows = |c: &Compiled| -> Vec<usize> {
        (0..8).filter(|i| value(c, &format!("layers.{i}.mixer.window")) != "none").collect()
    };
    for (select, want) in [
        ("layers[3]", vec![3]),
        ("layers[2..5]", vec![2, 3, 4]),
        ("layers[every 4 from 3]", vec![3, 7]),
        ("layers[every 3]", vec![0, 3, 6]),
        ("layers[*]", (0..8).collect()),
        ("layers[mixer is attention]", (0..8).collect()),
        ("layers[mixer.rope is rotary]", (0..8).collect()),
    ] {
        assert_eq!(windows(&edited(&format!("{select}.mixer.window 9"))), want, "{select}");
    }
    // Defaults follow every edit, whatever the order of edits.
    for edits in ["dim 32  mixer.head_dim 4", "mixer.head_dim 4  dim 32"] {
        let c = edited(edits);
        assert_eq!(value(&c, "layers.0.mixer.rope.dims"), "4");
        assert_eq!(value(&c, "layers.0.mlp.hidden"), "256");
    }
    assert_eq!(value(&edited("mixer.heads 2"), "layers.5.mixer.head_dim"), "8");
    assert_eq!(value(&edited("mixer.heads 2"), "layers.5.mixer.kv_heads"), "2");
    // A subtree is replaced as a whole; fields below a path stay.
    let c = edited("mixer = attention { heads 2 }");
    assert_eq!(value(&c, "layers.0.mixer.heads"), "2");
    let c = edited("mixer.rope { theta 7  layout half }  layers[1].mlp = swiglu { hidden 3 }");
    assert_eq!(value(&c, "layers.0.mixer.rope.theta"), "7");
    assert_eq!((value(&c, "layers.0.mlp.hidden"), value(&c, "layers.1.mlp.hidden")), ("256", "3"));
    // A path reaches into a default that is a definition, and into an arch's field.
    assert_eq!(value(&edited("mixer.rope.dims 2"), "layers.7.mixer.rope.dims"), "2");
    assert_eq!(value(&edited("init.linear normal(0.5)"), "init.linear"), "normal(0.5)");
    // An edit without effect is reported, and edits can be chained.
    let twice = compiled(&format!(
        "{base}\narch b = a with {{ canon A, B }}\narch c = b with {{ empty A  canon C }}"
    ));
    let slots = |s: &str| value(&twice, &format!("layers.6.slots.{s}"));
    assert_eq!(
        [slots("A"), slots("B"), slots("C"), slots("D")],
        ["empty", "canon", "canon", "empty"]
    );
}

/// Primitives of every kind in one body.
const EVERYTHING: &str = "block l(x) {
  q = heads(linear wq (x, dim, bias = true), 4)
  k = heads(linear wk (x, dim / 2), 2)
  v = heads(linear wv (x, dim / 2), 2)
  o = merge(attention(rope(q), rope(k), v, 8))
  k2 = repeat_heads(k, 2)
  v2 = repeat_heads(v, 2)
  g = logsigmoid(q) / 16
  o = o + merge(gla_scan(l2_norm(q), k2, v2, g))
  beta = sigmoid(linear wb (x, 4))
  param A_log [4] init log_uniform(1, 16)
  d = -exp(f32(A_log)) * softplus(linear wa (x, 4))
  o = o + merge(delta_scan(q, k2, v2, beta, d))
  o = o + merge(ssd_scan(q, softplus(linear wd (x, 4)), -exp(A_log), k2, v2, A_log))
  a, b = split(rms_norm norm (o), 4, dim - 4)
  canon filter (concat(short_conv conv (a, bias = true), silu(b)))
}";

fn ops(body: &Body, visit: &mut dyn FnMut(&'static op::Primitive, bool)) {
    for node in &body.nodes {
        match &node.kind {
            NodeKind::Op { primitive, state, .. } => visit(primitive, state.is_some()),
            NodeKind::Slot { fill: inner, .. } | NodeKind::Layer { body: inner, .. } => {
                ops(inner, visit)
            }
            NodeKind::Input(_) | NodeKind::Param(_) => {}
        }
    }
}

#[test]
fn rules_12_and_13_every_primitive_states_what_it_carries() {
    let compiled = layers(EVERYTHING, "2 of l");
    for primitive in op::ALL {
        assert!(primitive.revision >= 1 && !primitive.doc.is_empty(), "{}", primitive.name);
    }
    assert!(op::ALL.is_sorted_by_key(|primitive| primitive.name));
    let mut seen = BTreeMap::new();
    ops(&compiled.graph.top, &mut |primitive, state| {
        assert_eq!(primitive.time == Time::Stateful, state, "{}", primitive.name);
        seen.insert(primitive.name, primitive);
    });
    assert!(seen.len() >= 25, "{:?}", seen.keys());
    let with_time = |time: Time| seen.values().filter(move |p| p.time == time).map(|p| p.name);
    assert_eq!(with_time(Time::Positional).collect::<Vec<_>>(), ["rope"]);
    assert_eq!(
        with_time(Time::Stateful).collect::<Vec<_>>(),
        ["attention", "canon", "delta_scan", "gla_scan", "short_conv", "ssd_scan"]
    );
    for primitive in op::ALL {
        for body in primitive.examples {
            let text = with_layers(&format!("block l(x) {{ {body} }}"), "2 of l");
            let compiled = support::programs::compiled(&text.replace("dim 16", "dim 6"));
            // The revision is part of the identity.
            let node = format!("{}@{} {{", primitive.name, primitive.revision);
            assert!(compiled.identity.graph_text.contains(&node), "{node}");
        }
    }
    // A value that nothing uses adds nothing.
    let idle = layers(
        &EVERYTHING.replace("  a, b = split", "  unused = attention(q, q, q)\n  a, b = split"),
        "2 of l",
    );
    assert_eq!(idle.identity, compiled.identity);
    assert_eq!(idle.graph.top.states, compiled.graph.top.states);
    assert_eq!(analyse(&idle.graph, 64), analyse(&compiled.graph, 64));
}

#[test]
fn rule_15_docs_are_kept_and_every_mistake_is_reported_once() {
    let text = with_layers("", "1 of nope").replace("arch a", "/// One.\n///  Two.\narch a");
    let program = support::programs::program_of(&text);
    assert_eq!(program.library.archs(program.files()[0])[0].docs, ["One.", " Two."]);
    // The same error in many layers is one report, however many definitions share it.
    let many = with_layers(
        "block l(x) {\n  x + linear w (x, 8 + layer)\n}",
        "[40 of l, 2 of decoder { mixer l  mlp l }]",
    );
    assert!(codes(&many).len() <= 2, "{:?}", codes(&many));
}
