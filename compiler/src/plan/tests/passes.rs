//! Lowering, fusion, liveness, memory and text.

use std::collections::BTreeMap;

use super::{checked, graph, options};
use crate::kernel::CausalConv;
use crate::plan::{
    DType, Extent, Input, Kernel, Loss, Options, Output, Phase, Plan, Recompute, Sizes, Step,
    Stream,
};
use crate::plans::{evaluate, forward, train};

const LLAMA: &str = "arch tiny { vocab 5  dim 8  norm_eps 1e-5  init lingua  layers 3 of decoder {
  mixer attention { heads 2 }  mlp swiglu { hidden 4 } }  canon A, B, C, D }";

fn micro(text: &str, recompute: Recompute, fuse: bool) -> Plan {
    let plan = train(&graph(text), &options(fuse, recompute, Loss::CROSS_ENTROPY)).micro;
    checked(&plan);
    plan
}

fn count(plan: &Plan, name: &str) -> usize {
    plan.census().get(name).copied().unwrap_or(0)
}

#[test]
fn a_lone_canon_fill_needs_no_concatenation() {
    let plan = forward(&graph(LLAMA), Stream::default(), Options::default());
    checked(&plan);
    // Canon D is in the gated unit.
    assert_eq!((count(&plan, "causal_conv"), count(&plan, "conv_swiglu")), (9, 3));
    assert_eq!(count(&plan, "concat") + count(&plan, "split"), 0);
    let widest = plan.steps.iter().filter_map(|s| {
        let Kernel::CausalConv(CausalConv { parts, .. }) = s.kernel else { return None };
        Some(parts)
    });
    assert_eq!(widest.max(), Some(3));
    let other = LLAMA.replace("canon A, B, C, D", "fill B with rms_norm");
    let plan = forward(&graph(&other), Stream::default(), Options::default());
    assert_eq!((count(checked(&plan), "concat"), count(&plan, "split")), (3, 3));
}

#[test]
fn swiglu_is_fused_both_ways_and_only_where_nothing_else_reads_silu() {
    let text = &LLAMA.replace(", D", "");
    let plan = micro(text, Recompute::Nothing, true);
    assert_eq!((count(&plan, "swiglu"), count(&plan, "swiglu_grad")), (3, 3));
    assert_eq!(count(&plan, "pointwise") + count(&plan, "pointwise_grad"), 0);
    let unfused = micro(text, Recompute::Nothing, false);
    assert_eq!(count(&unfused, "swiglu"), 0);
    assert!(unfused.steps.len() >= plan.steps.len() + 3 * 3);
    let read_twice = "block probe(x) { s = silu(linear g (x, 4))  s * linear u (x, 4) + s }
      arch tiny { vocab 5  dim 4  norm_eps 1e-5  init lingua  layers 1 of probe }";
    assert_eq!(count(&micro(read_twice, Recompute::Nothing, true), "swiglu"), 0);
    let recomputed = micro(text, Recompute::Layers, true);
    assert_eq!((count(&recomputed, "swiglu"), count(&recomputed, "swiglu_grad")), (6, 3));
}

/// Canon D and the gated unit are one kernel both ways, if nothing else reads what is between them; the two values are
/// then not stored.
#[test]
fn canon_d_goes_into_the_gated_unit() {
    let sizes = Sizes { batch: 4, time: 64, past: 0 };
    let counts = |plan: &Plan| {
        let names = ["conv_swiglu", "conv_swiglu_grad", "swiglu", "swiglu_grad", "causal_conv"];
        names.map(|name| count(plan, name))
    };
    let plan = micro(LLAMA, Recompute::Nothing, true);
    assert_eq!(counts(&plan), [3, 3, 0, 0, 9]);
    let unfused = micro(LLAMA, Recompute::Nothing, false);
    assert_eq!(counts(&unfused), [0, 0, 0, 0, 12]);
    assert!(plan.memory(sizes).peak < unfused.memory(sizes).peak);
    assert_eq!(counts(&micro(LLAMA, Recompute::Layers, true)), [6, 3, 0, 0, 18]);
    let bare = LLAMA.replace("A, B, C, D", "D { residual false }");
    let text = micro(&bare, Recompute::Nothing, true).text();
    assert!(text.contains("conv_swiglu_grad {kernel 4, residual false, bias false}"), "{text}");
    // The gated unit of the other order, one that something else reads, an activation, one tensor only.
    for (body, units) in [
        ("g, u = slot D(linear g (x, 4), linear u (x, 4))  y = silu(g) * u", [1, 1, 0, 0, 0]),
        ("g, u = slot D(linear g (x, 4), linear u (x, 4))  y = silu(u) * g", [0, 0, 1, 1, 1]),
        ("g, u = slot D(linear g (x, 4), linear u (x, 4))  y = silu(g) * u + u", [0, 0, 1, 1, 1]),
        ("g = slot D(linear g (x, 4))  y = silu(g) * linear u (x, 4)", [0, 0, 1, 1, 1]),
    ] {
        let text = format!(
            "block probe(x) {{ {body}  linear down (y, 4) }}
             arch tiny {{ vocab 5  dim 4  norm_eps 1e-5  init lingua  layers 1 of probe  canon D }}"
        );
        assert_eq!(counts(&micro(&text, Recompute::Nothing, true)), units, "{body}");
    }
}

/// Fuses a short convolution's silu and a gated norm in both orders, as the std mixers write them.
#[test]
fn silu_goes_into_the_convolution_and_the_gate_into_the_norm() {
    for (mixer, convs) in [
        ("gla { heads 2  gate_rank 3 }", 3),
        ("mamba2 { heads 2  state 4 }", 3),
        ("gated_deltanet { heads 2  output_gate_rank 3 }", 3),
    ] {
        let text = LLAMA.replace("attention { heads 2 }", mixer).replace("A, B, C", "A, C");
        let [plan, again, unfused] =
            [(Recompute::Nothing, true), (Recompute::Layers, true), (Recompute::Nothing, false)]
                .map(|(recompute, fuse)| micro(&text, recompute, fuse));
        let gated =
            |plan: &Plan| [count(plan, "gated_rms_norm"), count(plan, "gated_rms_norm_grad")];
        let silu = |plan: &Plan| {
            let is = |s: &&Step| s.kernel.attrs().iter().any(|attr| attr.ends_with("silu"));
            let kinds = plan.steps.iter().filter(is).map(|s| s.kernel.name());
            kinds.fold(BTreeMap::<_, usize>::new(), |mut counts, kind| {
                *counts.entry(kind).or_default() += 1;
                counts
            })
        };
        assert_eq!(gated(&plan), [3, 3], "{mixer}");
        assert_eq!(gated(&again), [6, 3], "{mixer}");
        assert_eq!(gated(&unfused), [0, 0], "{mixer}");
        let once = 3 * convs;
        let want = BTreeMap::from([("causal_conv", once), ("causal_conv_grad", once)]);
        assert_eq!(silu(&plan), want, "{mixer}");
        let twice = BTreeMap::from([("causal_conv", 2 * once), ("causal_conv_grad", once)]);
        assert_eq!(silu(&again), twice, "{mixer}");
        assert!(silu(&unfused).contains_key("pointwise"), "{mixer}");
    }
}

/// The head's logits exist only inside one kernel, with and without a bias, in training and evaluation; what else reads
/// them (softcapping, `logits` as an output) keeps them.
#[test]
fn head_and_loss_are_one_kernel_by_chunks_of_tokens() {
    let size = |plan: &Plan| plan.memory(Sizes { batch: 2, time: 5000, past: 0 }).peak;
    let arch = |head: &str| {
        format!(
            "block probe(x) {{ x * 2 }}  head probe_head(x) {{ {head} }}
             arch tiny {{ vocab 30000  dim 2  norm_eps 1e-5  init lingua  head probe_head  layers 1 of probe }}"
        )
    };
    for (head, gradients) in
        [("linear out (x, vocab)", 1), ("linear out (x, vocab, bias = true)", 2)]
    {
        let text = arch(head);
        let plan = micro(&text, Recompute::Nothing, true);
        assert_eq!((count(&plan, "head_loss_grad"), count(&plan, "linear")), (1, 0), "{head}");
        let left = count(&plan, "cross_entropy_grad") + count(&plan, "linear_grad_weight");
        assert_eq!((left, count(&plan, "sum_tokens")), (0, 0), "{head}");
        assert!(plan.text().contains("rows 139"), "{}", plan.text());
        let unfused = micro(&text, Recompute::Nothing, false);
        assert_eq!(count(&unfused, "cross_entropy_grad"), 1);
        assert_eq!(count(&unfused, "sum_tokens"), gradients - 1);
        assert!(size(&unfused) > 100 * size(&plan), "{} {}", size(&unfused), size(&plan));
        let scored = evaluate(&graph(&text), Loss::CROSS_ENTROPY, Options::default());
        let names = ["head_loss", "linear", "argmax"].map(|name| count(checked(&scored), name));
        assert_eq!(names, [1, 0, 0], "{head}");
    }
    let squashed =
        micro(&arch("y = linear out (x, vocab)  y * sigmoid(y)"), Recompute::Nothing, true);
    assert_eq!((count(&squashed, "head_loss_grad"), count(&squashed, "cross_entropy")), (0, 1));
}

/// A second reader of the convolution's or norm's result prevents fusion.
#[test]
fn values_with_other_readers_are_not_fused_away() {
    for body in [
        "c = short_conv s (x, 4)  silu(c) + c",
        "n = rms_norm w (x)  n * silu(linear g (x, 4)) + n",
        "u = x * silu(linear g (x, 4))  rms_norm w (u) + u",
    ] {
        let text = format!(
            "block probe(x) {{ {body} }}
             arch tiny {{ vocab 5  dim 4  norm_eps 1e-5  init lingua  layers 1 of probe }}"
        );
        let plan = micro(&text, Recompute::Nothing, true);
        assert_eq!(count(&plan, "gated_rms_norm"), 0, "{body}");
        assert!(!plan.text().contains("activation silu"), "{body}");
    }
}

#[test]
fn recomputing_trades_steps_for_memory() {
    let (kept, again) =
        (micro(LLAMA, Recompute::Nothing, true), micro(LLAMA, Recompute::Layers, true));
    let sizes = Sizes { batch: 4, time: 64, past: 0 };
    assert!(again.steps.len() > kept.steps.len());
    assert!(again.memory(sizes).peak < kept.memory(sizes).peak);
    // A layer's last projection need not be recomputed to differentiate it.
    assert!(count(&again, "linear") < 2 * count(&kept, "linear"));
}

/// Nothing expensive is done twice, and what is done twice frees memory.
#[test]
fn selective_recomputation_repeats_cheap_steps_only() {
    for mixer in
        ["attention { heads 2 }", "gla { heads 2  gate_rank 3 }", "mamba2 { heads 2  state 4 }"]
    {
        let slots = if mixer.starts_with("attention") { "A, B, C" } else { "A, C" };
        let text = LLAMA.replace("attention { heads 2 }", mixer).replace("A, B, C", slots);
        let [kept, again] =
            [Recompute::Nothing, Recompute::Selective].map(|which| micro(&text, which, true));
        let repeated: Vec<&Step> =
            again.steps.iter().filter(|step| step.phase == Phase::Recompute).collect();
        assert!(repeated.len() >= 9, "{mixer}: {}", again.text());
        for name in ["embed", "linear", "attention", "scan", "head_loss", "head_loss_grad"] {
            assert_eq!(count(&kept, name), count(&again, name), "{mixer}: {name}");
        }
        assert_eq!(kept.steps.len() + repeated.len(), again.steps.len(), "{mixer}");
        let size = |plan: &Plan| plan.memory(Sizes { batch: 4, time: 64, past: 0 }).peak;
        assert!(size(&again) < size(&kept), "{mixer}: {} {}", size(&again), size(&kept));
    }
}

#[test]
fn memory_is_that_of_the_values_alive() {
    // embed [b,t,2] → scale [b,t,2] → head: norm [b,t,2] + rstd, linear [b,t,3].
    let text = "block probe(x) { x * 2 }
      arch tiny { vocab 3  dim 2  norm_eps 1e-5  init lingua  layers 1 of probe }";
    let plan = forward(&graph(text), Stream::default(), Options::default());
    let memory = checked(&plan).memory(Sizes { batch: 1, time: 10, past: 0 });
    // tokens 10 × i64; embed, norm, output.
    assert_eq!(memory.inputs, 80 + 4 * (6 + 2 + 6));
    // rms_norm: x and y and rstd; linear: y and logits.
    assert_eq!(memory.peak, 4 * 10 * (2 + 2 + 1));
    assert_eq!(memory.outputs, 4 * 10 * 3);
}

#[test]
fn the_state_of_a_window_is_bounded_and_of_none_grows() {
    let full =
        forward(&graph(LLAMA), Stream { state_in: true, state_out: true }, Options::default());
    let text = LLAMA.replace("heads 2", "heads 2  window 3");
    let ring =
        forward(&graph(&text), Stream { state_in: true, state_out: true }, Options::default());
    let at =
        |plan: &Plan, past: i64| checked(plan).memory(Sizes { batch: 1, time: 1, past }).outputs;
    assert!(at(&full, 100) > at(&full, 10));
    assert_eq!(at(&ring, 100), at(&ring, 10));
}

#[test]
fn inputs_and_outputs_are_in_the_documented_order() {
    let plan = micro(LLAMA, Recompute::Nothing, true);
    let inputs: Vec<Input> = plan.inputs.iter().map(|(i, _)| *i).collect();
    assert!(inputs.is_sorted());
    assert_eq!(inputs[..4], [Input::Tokens, Input::Targets, Input::Position, Input::GradScale]);
    assert_eq!(plan.outputs[0].0, Output::Loss);
    assert_eq!(plan.outputs[1].0, Output::Counted);
    let gradients: Vec<Output> = plan.outputs[2..].iter().map(|(o, _)| *o).collect();
    assert_eq!(gradients.len(), graph(LLAMA).top.params.len());
    assert!(gradients.is_sorted());
}

#[test]
fn check_notices_broken_plans() {
    type Break = fn(&mut Plan);
    let good = micro(LLAMA, Recompute::Nothing, true);
    let broken: [(&str, Break); 6] = [
        ("order", |p| p.steps.swap(0, 4)),
        ("drop too early", |p| {
            let id = p.steps[0].outputs[0];
            p.steps[0].drop_after.push(id);
        }),
        ("never dropped", |p| {
            for step in &mut p.steps {
                step.drop_after.clear();
            }
        }),
        ("dtype", |p| p.values.iter_mut().for_each(|v| v.dtype = DType::F64)),
        ("shape", |p| {
            let id = p.steps[2].outputs[0];
            p.values[id.0 as usize].dims = vec![Extent::Fixed(1)];
        }),
        ("missing output", |p| {
            p.steps.pop();
        }),
    ];
    for (what, break_it) in broken {
        let mut plan = good.clone();
        break_it(&mut plan);
        assert!(plan.check().is_err(), "{what}");
    }
}

#[test]
fn different_plans_have_different_texts() {
    let a = micro(LLAMA, Recompute::Nothing, true);
    assert_eq!(a.digest(), micro(LLAMA, Recompute::Nothing, true).digest());
    // Comments and names of blocks do not affect execution.
    let commented = LLAMA.replace("arch tiny", "/// Words.\narch tiny");
    assert_eq!(a.digest(), micro(&commented, Recompute::Nothing, true).digest());
    let others = [
        micro(LLAMA, Recompute::Nothing, false),
        micro(LLAMA, Recompute::Layers, true),
        micro(&LLAMA.replace("heads 2", "heads 2  window 9"), Recompute::Nothing, true),
        micro(&LLAMA.replace("1e-5", "1e-6"), Recompute::Nothing, true),
    ];
    for other in others {
        assert_ne!(a.digest(), other.digest());
    }
}

#[test]
fn text_of_a_small_plan() {
    let text = "arch tiny { vocab 5  dim 4  norm_eps 1e-5  init lingua  layers 1 of mixer_only {
      mixer attention { heads 2  rope nope } }  canon A }";
    let graph = graph(text);
    let plan = forward(&graph, Stream { state_in: true, state_out: true }, Options::default());
    insta::assert_snapshot!("forward", plan.text());
    insta::assert_snapshot!(
        "evaluate",
        evaluate(&graph, Loss::CROSS_ENTROPY, Options::default()).text()
    );
    let plans = train(&graph, &options(true, Recompute::Nothing, Loss::CROSS_ENTROPY));
    insta::assert_snapshot!("train", plans.text());
}
