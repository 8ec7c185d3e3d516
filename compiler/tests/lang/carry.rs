//! Tensors that pass between layers: identity, equal layers, refusals.

use std::rc::Rc;

use compiler::canonical::identify;
use compiler::erase::erase_all;
use compiler::graph::{Graph, NodeKind};
use compiler::program::{Program, Std};

use support::programs::{TEXT, arch, compiled};

/// An arch with these layers and definitions.
fn with(definitions: &str, layers: &str) -> String {
    format!(
        "{definitions}\narch a {{ vocab 8  dim 4  norm_eps 1e-5  init lingua  layers {layers} }}"
    )
}

/// Operands and results of each layer.
fn wires(graph: &Graph) -> Vec<(usize, usize)> {
    let layers = graph.top.nodes.iter().filter(|node| matches!(node.kind, NodeKind::Layer { .. }));
    layers.map(|node| (node.inputs.len(), node.types.len())).collect()
}

fn refused(text: &str) -> Vec<&'static str> {
    let program = Program::new([(TEXT.to_owned(), text.to_owned())], Std::Embedded);
    let (compiled, errors) = program.compile(TEXT, "a");
    assert!(compiled.is_none(), "{text}");
    program.diagnostics.iter().chain(&errors).map(|error| error.code).collect()
}

#[test]
fn layers_pass_on_what_others_read_and_equal_ones_are_one_body() {
    let layers = |layers: &str| compiled(&with("", layers)).graph;
    let residual =
        layers("4 of decoder { mixer value_residual { heads 2 }  mlp swiglu { hidden 4 } }");
    // The first layer makes the values, the others read them.
    assert_eq!(wires(&residual), [(1, 2), (2, 1), (2, 1), (2, 1)]);
    let bodies: Vec<_> = residual.layers().map(|(_, body, ..)| body.clone()).collect();
    assert!(Rc::ptr_eq(&bodies[1], &bodies[2]) && Rc::ptr_eq(&bodies[2], &bodies[3]));
    // The streams pass instead of the stream, until the head reads their sum.
    let hyper = "4 of hyper { mixer attention { heads 2 }  mlp swiglu { hidden 4 } }";
    assert_eq!(wires(&layers(hyper)), [(1, 1); 4]);
    // A layer between does not see what passes it.
    let text = with(
        "block p(x) { carry v = linear w (x, 4) else { x = x + v }  x * 2 }
         block between(x) { linear w (x, 4) }",
        "[p, 2 of between, p]",
    );
    assert_eq!(wires(&compiled(&text).graph), [(1, 2), (1, 1), (1, 1), (2, 1)]);
}

#[test]
fn neither_names_nor_their_order_are_in_the_identity() {
    let id = |a: &str, b: &str, swapped: bool| {
        let mut carried =
            [format!("carry {a} = linear k (x, 4)"), format!("carry {b} = linear v (x, 4)")];
        if swapped {
            carried.reverse();
        }
        let block = format!(
            "block p(x) {{ {}  {}  {a} = {a} + silu(x)  {b} = {b} * 2  linear w ({b}, 4) * {a} + x }}",
            carried[0], carried[1]
        );
        compiled(&with(&block, "3 of p")).identity.graph_text
    };
    let first = id("a", "b", false);
    for (a, b) in [("a", "b"), ("b", "a"), ("z", "values")] {
        assert_eq!(first, id(a, b, false));
        assert_eq!(first, id(a, b, true));
    }
}

#[test]
fn emptied_slots_leave_the_same_wires() {
    for name in ["value_residualcanon_demo", "hypercanon_demo"] {
        let twin = name.replace("canon_", "_");
        let (erased, twin) = (erase_all(&arch(name).graph), arch(&twin).graph);
        assert_eq!(identify(&erased), identify(&twin), "{name}");
    }
    // A slot over several carried tensors, which later parts use in another order.
    let body = "block p(x) {
        carry a = x * 2  carry b = silu(x)
        c, d = slot E(b, a)
        a = a + d  b = b * c
        linear w (d + x, 4) + c
    }";
    let plain = with(body, "3 of p");
    let filled = format!("{plain}\narch full = a with {{ canon E }}");
    let program = Program::new([(TEXT.to_owned(), filled)], Std::Embedded);
    let full = program.compile(TEXT, "full").0.unwrap();
    assert_eq!(identify(&erase_all(&full.graph)), compiled(&plain).identity);
}

#[test]
fn what_nothing_reads_is_refused() {
    let unread = with("block p(x) { carry v = linear w (x, 4)  x * 2 }", "2 of p");
    assert!(refused(&unread).contains(&"unused-parameters"));
    let over = with("block p(x) { carry v = x  v }  block q(x) { linear w (x, 4) }", "[p, q, p]");
    assert!(refused(&over).contains(&"layer-passed-over"));
    let fill = with(
        "block f(x) { x + ngram g (tokens, 2, 5) }",
        "2 of mixer_only { mixer attention { heads 2 } }  fill A with f",
    );
    assert!(refused(&fill).contains(&"carry-outside"));
    let taken = with("block p(x) { carry tokens = x  x }", "1 of p");
    assert_eq!(refused(&taken), ["carry-reserved"]);
    let number = with("block p(x) { carry v = 3  x }", "1 of p");
    assert_eq!(refused(&number), ["not-a-tensor"]);
}

#[test]
fn a_shared_layer_needs_the_same_parameters_everywhere() {
    let same =
        with("block p(x) { carry v = x else { x = x + v }  linear w (x, 4) }", "3 of share p");
    assert_eq!(compiled(&same).graph.params().len(), 4);
    let other =
        with("block p(x) { carry v = linear u (x, 4) else { x = x + v }  x * 2 }", "3 of share p");
    assert!(refused(&other).contains(&"shared-layers-differ"));
}

#[test]
fn the_head_reads_carried_tensors() {
    let text = with(
        "block p(x) { carry first = linear u (x, 4)  linear w (x, 4) }
         head both(x) { carry first = x  linear output (x + first, vocab) }",
        "2 of p  head both",
    );
    assert_eq!(wires(&compiled(&text).graph), [(1, 2), (1, 1)]);
}
