//! Dropout: the contract of its kernel, the gradients of a training loss with it against finite differences, and which
//! calls share draws.

use std::collections::{BTreeMap, BTreeSet};

use super::{checked, graph, options, parameters, run, tokens};
use crate::graph::{Graph, ParamId};
use crate::kernel::tensor::{Random, Tensor};
use crate::kernel::{self, Definition, Kernel};
use crate::plan::{Input, Loss, Options, Output, Plan, Recompute, Sizes, Stream, TrainOptions};
use crate::plans::{evaluate, forward, train};

const TEXT: &str = "
  block dropped(x) { dropout(x, 0.3) }
  block layer(x) {
    h = x + dropout(linear one (slot A(rms_norm n (x)), dim), 0.25)
    dropout(h + linear two (dropout(silu(h), 0.5), dim), 0.125) }
  head out(x) { linear output (dropout(x, 0.4), vocab) }
  arch tiny { vocab 5  dim 4  norm_eps 1e-5  init lingua  head out  layers 2 of layer";

fn arch(fill: &str) -> Graph {
    graph(&format!("{TEXT} {fill} }}"))
}

fn dropping(fuse: bool, recompute: Recompute) -> TrainOptions {
    TrainOptions { dropout: true, ..options(fuse, recompute, Loss::CROSS_ENTROPY) }
}

fn given(graph: &Graph, rows: usize) -> BTreeMap<Input, Tensor> {
    let mut random = Random(5);
    let mut inputs = parameters(graph, &mut random);
    inputs.insert(Input::Tokens, tokens(graph, rows, 5, &mut random));
    inputs.insert(Input::Targets, tokens(graph, rows, 5, &mut random));
    inputs.insert(Input::GradScale, Tensor::number(0.1));
    inputs.insert(Input::DropoutKey, Tensor::number(7.0));
    inputs.insert(Input::Window, Tensor::number(40.0));
    inputs
}

/// The calls that a plan's dropouts name, in order.
fn dropouts(plan: &Plan) -> Vec<String> {
    let call = |kernel: &Kernel| match kernel.name() {
        "dropout" => {
            kernel.attrs().last().and_then(|at| at.strip_prefix("place ")).map(str::to_owned)
        }
        _ => None,
    };
    plan.steps.iter().filter_map(|step| call(&step.kernel)).collect()
}

#[test]
fn the_loss_with_dropout_matches_finite_differences() {
    let graph = arch("fill A with dropped");
    let inputs = given(&graph, 2);
    let plan = train(&graph, &dropping(true, Recompute::Nothing)).micro;
    let outputs = run(checked(&plan), &inputs);
    for fuse in [false, true] {
        for recompute in [Recompute::Nothing, Recompute::Layers, Recompute::Selective] {
            let other = train(&graph, &dropping(fuse, recompute)).micro;
            let other = run(checked(&other), &inputs);
            let same =
                |(output, value): (&Output, &Tensor)| value.distance(&outputs[output]) < 1e-12;
            assert!(other.iter().all(same), "{recompute:?}");
        }
    }
    // Another key or window drops others.
    for input in [Input::DropoutKey, Input::Window] {
        let mut other = inputs.clone();
        other.insert(input, Tensor::number(8.0));
        assert_ne!(run(&plan, &other)[&Output::Loss], outputs[&Output::Loss], "{input}");
    }
    for (n, param) in graph.top.params.iter().enumerate() {
        let id = ParamId(n as u32);
        for (i, gradient) in outputs[&Output::Gradient(id)].data.iter().enumerate() {
            let at = |by: f64| {
                let mut moved = inputs.clone();
                moved.get_mut(&Input::Param(id)).unwrap().data[i] += by;
                0.1 * run(&plan, &moved)[&Output::Loss].data[0]
            };
            let h = 1e-4;
            let slope = (8.0 * (at(h) - at(-h)) - (at(2.0 * h) - at(-2.0 * h))) / (12.0 * h);
            assert!((slope - gradient).abs() < 1e-7, "{}[{i}]: {slope} {gradient}", param.path);
        }
    }
}

/// A row has the draws of its window, whatever rows are beside it.
#[test]
fn rows_do_not_see_their_micro_batch() {
    let graph = arch("");
    let plan = train(&graph, &dropping(true, Recompute::Nothing)).micro;
    let batch = given(&graph, 3);
    let sum: f64 = (0..3)
        .map(|row| {
            let mut part = batch.clone();
            for input in [Input::Tokens, Input::Targets] {
                let all = &batch[&input];
                let row = all.data[5 * row..][..5].to_vec();
                part.insert(input, Tensor { dims: vec![1, 5], data: row });
            }
            part.insert(Input::Window, Tensor::number(40.0 + row as f64));
            run(&plan, &part)[&Output::Loss].data[0]
        })
        .sum();
    assert!((sum - run(&plan, &batch)[&Output::Loss].data[0]).abs() < 1e-12);
}

#[test]
fn each_call_draws_for_itself_and_a_filled_slot_changes_no_other() {
    let with_fill =
        |fill: &str| dropouts(&train(&arch(fill), &dropping(false, Recompute::Nothing)).micro);
    let plain = with_fill("");
    let layer = ["dropout", "dropout#2", "dropout#3"];
    let wanted: BTreeSet<String> = ["layers.0", "layers.1"]
        .into_iter()
        .flat_map(|at| layer.map(|call| format!("{at}.{call}")))
        .chain(["head.dropout".to_owned()])
        .collect();
    assert_eq!(plain.iter().cloned().collect::<BTreeSet<_>>(), wanted);
    // Each is there twice: forward and in the gradient.
    assert_eq!(plain.len(), 14);
    assert_eq!(with_fill("canon A"), plain);
    let (fills, others): (Vec<String>, Vec<String>) =
        with_fill("fill A with dropped").into_iter().partition(|call| call.contains(".A."));
    let [a, b] = ["layers.0.A.dropout", "layers.1.A.dropout"];
    assert_eq!(fills, [a, b, b, a]);
    assert_eq!(others, plain);
}

/// The dropouts of a block with these statements, which may call `f`, each once.
fn drawn_by(body: &str) -> BTreeSet<String> {
    let graph = graph(&format!(
        "block f(x) {{ dropout(x, 0.3) + dropout(-x, 0.3) }}
         block g(x) {{ x }}
         block p(x) {{ linear w (dropout(x, 0.3), dim) }}
         block layer(x; n = g, on = true) {{
           {body}
         }}
         arch tiny {{ vocab 5  dim 4  norm_eps 1e-5  init lingua  layers [layer] }}"
    ));
    dropouts(&train(&graph, &dropping(false, Recompute::Nothing)).micro).into_iter().collect()
}

/// A call is numbered among the calls of its name in its own definition, by what reads what.
#[test]
fn calls_are_numbered_by_name_in_their_definition() {
    let at = |calls: &[&str]| calls.iter().map(|at| format!("layers.0.{at}")).collect();
    // What another definition calls counts there.
    assert_eq!(drawn_by("dropout(n(x), 0.1)"), at(&["dropout"]));
    assert_eq!(
        drawn_by("y = f(x)  dropout(f(x) + y, 0.1)"),
        at(&["dropout", "f.dropout", "f.dropout#2", "f#2.dropout", "f#2.dropout#2"])
    );
    assert_eq!(
        drawn_by("p one (p two (x)) + dropout(x, 0.5)"),
        at(&["dropout", "one.dropout", "two.dropout"])
    );
    // A shared instance draws at each of its calls; an instance may have a name of its own.
    assert_eq!(drawn_by("share q = p  q(q(x))"), at(&["q.dropout", "q#2.dropout"]));
    assert_eq!(
        drawn_by("dropout a (x, 0.5) + dropout(x, 0.5) + dropout a (x, 0.5)"),
        at(&["a", "a#2", "dropout"])
    );
    // The call counts that drops nothing, and so does a branch that is not taken.
    assert_eq!(drawn_by("dropout(dropout(x, 0), 0.5)"), at(&["dropout#2"]));
    for (on, calls) in [("on", ["dropout", "dropout#2"].as_slice()), ("not on", &["dropout#2"])] {
        let body = format!("if {on} {{ x = dropout(x, 0.1) }}  dropout(x, 0.2)");
        assert_eq!(drawn_by(&body), at(calls), "{on}");
    }
    assert_eq!(drawn_by("carry v = dropout(x, 0.2)  dropout(x, 0.1)"), at(&["dropout"]));
}

/// The order of independent statements, and statements that nothing reads, leave no trace in a graph's text.
#[test]
fn the_order_of_statements_changes_no_draw() {
    let text = |body: &str| {
        let graph = graph(&format!(
            "block layer(x) {{ {body} }}
             arch tiny {{ vocab 5  dim 4  norm_eps 1e-5  init lingua  layers [layer] }}"
        ));
        crate::canonical::identify(&graph).graph_text
    };
    let one = text("a = dropout(x, 0.1)  b = dropout(x, 0.2)  a * b");
    assert!(one.contains("dropout@2 {at dropout, rate 0.1}"), "{one}");
    assert_eq!(text("b = dropout(x, 0.2)  a = dropout(x, 0.1)  a * b"), one);
    assert_eq!(text("dropout(x, 0.1) * dropout(x, 0.2)"), one);
    assert_eq!(text("c = dropout(x, 0.5)  b = dropout(x, 0.2)  dropout(x, 0.1) * b"), one);
    assert_ne!(text("dropout a (x, 0.1) * dropout(x, 0.2)"), one);
    assert_ne!(text("a = dropout(x, 0.1)  b = dropout(x, 0.2)  b * a"), one);
}

#[test]
fn only_training_drops() {
    let graph = arch("fill A with dropped");
    let silent = train(&graph, &options(true, Recompute::Nothing, Loss::CROSS_ENTROPY)).micro;
    let scored = evaluate(&graph, Loss::CROSS_ENTROPY, Options::default());
    let stream = Stream { state_in: true, state_out: true };
    for plan in [silent, scored, forward(&graph, stream, Options::default())] {
        checked(&plan);
        assert_eq!(dropouts(&plan), [""; 0]);
        assert!(plan.input(Input::Window).is_none() && plan.input(Input::DropoutKey).is_none());
    }
    assert!(graph.has_dropout());
}

const SIZES: Sizes = Sizes { batch: 4, time: 50, past: 0 };

/// Kept numbers are scaled so that the mean stays, and a rate's share is dropped.
#[test]
fn the_share_of_zeros_is_the_rate() {
    let ones = Tensor::from_fn(vec![4, 50, 100], |_| 1.0);
    for rate in ["0.1", "0.5", "0.9"] {
        let [key, window] = [3.0, 9.0].map(Tensor::number);
        let kernel = kernel::Dropout { rate: super::decimal(rate), place: "dropout".into() };
        let [y] = kernel.value(&[&ones, &key, &window], SIZES).try_into().unwrap();
        let rate: f64 = rate.parse().unwrap();
        let share = y.data.iter().filter(|y| **y == 0.0).count() as f64 / 20_000.0;
        let noise = libm::sqrt(rate * (1.0 - rate) / 20_000.0);
        assert!((share - rate).abs() < 4.0 * noise, "{rate}: {share}");
    }
}
