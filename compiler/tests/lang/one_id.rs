//! One id, one result: texts with equal ids give one graph, and so one plan with every line equal, so that sums,
//! hashes, files and updates have one order.

use std::rc::Rc;

use compiler::analyse::analyse;
use compiler::graph::{Body, Graph, NodeKind};
use compiler::plan::{Decays, Loss, Optimizer, Options, Recompute, Stream, TrainOptions};
use compiler::plans::{evaluate, forward, train};
use compiler::program::{Compiled, Program, Std};
use dsl::{Decimal, FileId, Span};
use proptest::prelude::*;

use super::reorder::reordered;
use support::generate::random;
use support::programs::{TEXT, arch, compiled_in, files, program, read, with_layers};

/// Checks that the archs of the two texts have one id and one result.
fn assert_one_result(a: &Compiled, b: &Compiled, name: &str) {
    assert_eq!(a.identity, b.identity, "{name}: another id");
    assert_eq!(bare(&a.graph), bare(&b.graph), "{name}: another graph");
    assert_eq!(plans(&a.graph), plans(&b.graph), "{name}: another plan");
    assert_eq!(analyse(&a.graph, 64), analyse(&b.graph, 64), "{name}: another cost");
}

/// The graph without its spans in the texts.
fn bare(graph: &Graph) -> String {
    format!("{:?}", Graph { top: without_spans(&graph.top), ..graph.clone() })
}

fn without_spans(body: &Body) -> Body {
    let mut body = body.clone();
    for node in &mut body.nodes {
        node.span = Span::new(FileId(0), 0, 0);
        match &mut node.kind {
            NodeKind::Slot { fill: inner, .. } | NodeKind::Layer { body: inner, .. } => {
                *inner = Rc::new(without_spans(inner));
            }
            NodeKind::Input(_) | NodeKind::Param(_) | NodeKind::Op { .. } => {}
        }
    }
    body
}

/// The plans as text: training each way, evaluation, generation.
fn plans(graph: &Graph) -> String {
    let mut text = String::new();
    for (fuse, recompute, decays) in [
        (true, Recompute::Nothing, Decays::All),
        (true, Recompute::Layers, Decays::All),
        (false, Recompute::Nothing, Decays::Matrices),
    ] {
        let common = Options { fuse, ..Options::default() };
        let options = TrainOptions {
            common,
            loss: Loss { nll_square: Decimal::ONE, z_loss: Decimal::ONE, ..Loss::CROSS_ENTROPY },
            optimizer: Optimizer {
                beta1: Decimal::ZERO,
                beta2: Decimal::ZERO,
                eps: Decimal::ONE,
                weight_decay: Decimal::ONE,
                decays,
                clip: Some(Decimal::ONE),
            },
            updates: Vec::new(),
            recompute,
            dropout: true,
        };
        text += &train(graph, &options).text();
        text += &evaluate(graph, Loss::CROSS_ENTROPY, common).text();
        text += &forward(graph, Stream { state_in: true, state_out: true }, common).text();
    }
    text
}

/// The manifest lists the parameters in the order in which they are used everywhere.
fn assert_manifest_order(compiled: &Compiled) {
    let manifest = compiled.identity.manifest_text.lines();
    let listed: Vec<&str> = manifest.map(|line| line.split(' ').next().unwrap()).collect();
    let held: Vec<&str> = compiled.graph.params().iter().map(|p| p.init_key()).collect();
    assert_eq!(listed, held, "{}", compiled.name);
}

/// The arch of a self-sufficient text.
fn alone(text: &str, name: &str) -> Compiled {
    compiled_in(&Program::new([(TEXT.to_owned(), text.to_owned())], Std::None), TEXT, name)
}

/// Returns how many of the reorderings changed the text.
fn assert_orders(compiled: &Compiled, seeds: impl Iterator<Item = u64>) -> usize {
    assert_manifest_order(compiled);
    let mut moved = 0;
    for seed in seeds {
        let text = reordered(&compiled.text, seed);
        let other = alone(&text, &compiled.name);
        assert_one_result(compiled, &other, &format!("{} by {seed}\n{text}", compiled.name));
        moved += usize::from(other.text != compiled.text);
    }
    moved
}

#[test]
fn reordered_committed_archs_have_one_result() {
    let names: Vec<String> = files("arch", ".canon")
        .iter()
        .map(|file| file.trim_start_matches("arch/").trim_end_matches(".canon").to_owned())
        .filter(|name| name.ends_with("_tiny"))
        .collect();
    assert!(names.len() >= 8, "{names:?}");
    for name in names {
        let moved = assert_orders(&arch(&name), 0..4);
        assert!(moved >= 3, "{name}: only {moved} of 4 texts differ");
    }
}

/// The hand-written pairs of the hash cases have one graph; if their paths are also equal, they
/// have one result.
#[test]
fn hand_written_pairs_have_one_result() {
    let mut pairs = 0;
    for file in files("tests/cases/hash", ".canon") {
        if !read(&file).starts_with("// agree: graph, manifest\n") {
            continue;
        }
        let program = program(&file);
        let archs: Vec<Compiled> =
            program.archs(&file).iter().map(|arch| compiled_in(&program, &file, arch)).collect();
        archs.iter().for_each(assert_manifest_order);
        for (at, a) in archs.iter().enumerate() {
            for b in archs.iter().skip(at + 1).filter(|b| a.identity == b.identity) {
                assert_one_result(a, b, &format!("{file}: {} and {}", a.name, b.name));
                pairs += 1;
            }
        }
    }
    assert!(pairs >= 12, "{pairs} pairs");
}

/// Layers of one share own the same parameters, in whatever order each declares them.
#[test]
fn a_shared_layer_may_declare_in_an_order_of_its_own() {
    let text = |first: &str| {
        with_layers(
            &format!(
                "block l(x) {{
  if {first} {{ a = linear u (x, dim)  b = linear v (x, dim) }}
  else {{ b = linear v (x, dim)  a = linear u (x, dim) }}
  x + silu(a) * b
}}"
            ),
            "[2 of share l]",
        )
    };
    let compiled = |first: &str| {
        let program = Program::new([(TEXT.to_owned(), text(first))], Std::Embedded);
        compiled_in(&program, TEXT, "a")
    };
    assert_one_result(&compiled("layer == 0"), &compiled("layer == 1"), "by layer");
    assert_one_result(&compiled("layer == 0"), &compiled("true"), "by layer or not");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: support::cases(96), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reordered_random_archs_have_one_result(random in random(), seed in any::<u64>()) {
        assert_orders(&random.filled(|_| true), [seed, seed ^ 0xffff].into_iter());
    }
}
