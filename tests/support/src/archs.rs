//! Small archs that together use every primitive and every form of it: whole models, the primitives' own examples, and
//! the committed archs with small widths.

use compiler::op;
use compiler::program::{Compiled, Program, Std};

use crate::programs::{TEXT, compiled_in};

/// A name, and a text that contains the arch of that name.
pub const ARCHS: [(&str, &str); 21] = [
    ("plain", "arch plain { @ layers 2 of decoder { mixer attention { heads 2 } mlp swiglu { hidden 20 } } }"),
    (
        "grouped",
        "arch base { @ layers 2 of decoder {
           mixer attention { heads 4  kv_heads 2  head_dim 6  qk_norm true  rope { dims 4  layout half } }
           mlp swiglu { hidden 20 } } }
         arch grouped = base with { canon A, B, C, D }",
    ),
    (
        "filters",
        "arch base { @ layers 2 of decoder { mixer attention { heads 2 } mlp swiglu { hidden 20 } } }
         arch filters = base with {
           canon A { kernel 2  activation silu }  canon B { kernel 3  residual false }
           canon C { kernel 8 }                   canon D { kernel 1  residual false  activation silu } }",
    ),
    (
        "windowed",
        "arch windowed { @ layers 2 of decoder { mixer attention { heads 2  kv_heads 1  window 4 } mlp swiglu { hidden 20 } } }",
    ),
    (
        "two_windows",
        "block near = decoder { mixer attention { heads 2  window 3 } mlp swiglu { hidden 20 } }
         block far = decoder { mixer attention { heads 2  rope nope } mlp swiglu { hidden 20 } }
         arch two_windows { @ layers [near, far, near] }",
    ),
    (
        "tied",
        "arch tied_head { @ head tied  layers 1 of decoder { mixer attention { heads 2 } mlp swiglu { hidden 20 } } }",
    ),
    (
        "shared_layers",
        "arch shared_layers { @ layers 3 of share decoder { mixer attention { heads 2 } mlp swiglu { hidden 20 } } }",
    ),
    (
        "one_matrix",
        "mixer keys_are_queries(x; heads) {
           q = linear wq (x, dim)
           linear wo (merge(attention(heads(q, heads), heads(q, heads), heads(q, heads))), dim)
         }
         arch one_matrix { @ layers 1 of decoder { mixer keys_are_queries { heads 2 } mlp swiglu { hidden 20 } } }",
    ),
    (
        "wide_values",
        "mixer wide(x; heads) {
           q = linear wq (x, dim)   k = linear wk (x, dim)   v = linear wv (x, 2 * dim, bias = true)
           linear wo (merge(attention(heads(q, heads), heads(k, heads), heads(v, heads), window = 5)), dim)
         }
         arch wide_values { @ layers 1 of decoder { mixer wide { heads 2 } mlp swiglu { hidden 20 } } }",
    ),
    (
        "functions",
        "mixer gates(x; heads) {
           a = linear wa (x, dim)   b = linear wb (x, heads, bias = true)
           param bias [heads] init ones
           param spread [dim] init ones
           t = softplus(b + bias) * sigmoid(b) + logsigmoid(b) / 4
           u = repeat_heads(heads(l2_norm(exp(a / 8)), heads), 2)
           s, r = split(a * spread, dim / 2, dim / 2)
           y = concat(silu(s), r, merge(u)) * 0.5
           linear wo (concat(y, t), dim)
         }
         arch functions { @ layers 2 of decoder { mixer gates { heads 2 } mlp swiglu { hidden 20 } } }",
    ),
    (
        "filled",
        "block low_rank(x; width, rank) { linear up (silu(linear down (x, rank)), width) }
         arch base { @ layers 1 of decoder { mixer attention { heads 2 } mlp swiglu { hidden 20 } } }
         arch filled = base with { fill B with low_rank { width 36  rank 3 }  fill A with low_rank { width 12  rank 2 } }",
    ),
    (
        "gla_arch",
        "arch base { @ layers 2 of decoder { mixer gla { heads 2 } mlp swiglu { hidden 20 } } }
         arch gla_arch = base with { canon A, C, D }",
    ),
    (
        "gla_bare",
        "arch gla_bare { @ layers 1 of decoder { mixer gla { heads 3  short_conv false } mlp swiglu { hidden 20 } } }",
    ),
    (
        "delta_arch",
        "arch base { @ layers 2 of decoder { mixer gated_deltanet { heads 2 } mlp swiglu { hidden 20 } } }
         arch delta_arch = base with { canon A, B, C, D }",
    ),
    (
        "mamba_arch",
        "arch base { @ layers 2 of decoder { mixer mamba2 { heads 4  state 5  groups 2 } mlp swiglu { hidden 20 } } }
         arch mamba_arch = base with { canon A, B, C, D }",
    ),
    (
        "mamba_bare",
        "arch mamba_bare { @ layers 2 of mixer_only { mixer mamba2 { heads 3  state 5  short_conv false } } }",
    ),
    (
        "hybrid",
        "block recurrent = decoder { mixer gated_deltanet { heads 2 } mlp swiglu { hidden 20 } }
         block softmax = decoder { mixer attention { heads 2  window 6 } mlp swiglu { hidden 20 } }
         arch base { @ layers [recurrent, softmax] }
         arch hybrid = base with { canon A, C  canon layers[mixer is attention].B }",
    ),
    (
        "first_values",
        "arch first_values { @ layers [
           2 of decoder { mixer value_residual { heads 2 } mlp swiglu { hidden 20 } },
           decoder { mixer value_residual { heads 2  gated true } mlp swiglu { hidden 20 } } ] }",
    ),
    (
        "bounds",
        "arch bounds { @ layers 3 of decoder { mixer hgrn2 { heads 2  coupled true } mlp swiglu { hidden 20 } } }",
    ),
    (
        "pairs_of_tokens",
        "block late(x) { x + ngram again (tokens, order = 4, rows = 9) }
         arch pairs_of_tokens { @ layers [
           ngram_embedding { rows 17 }, decoder { mixer attention { heads 2 } mlp swiglu { hidden 20 } }, late ] }",
    ),
    (
        "shared_carried",
        "block step(x) { carry first = x else { x = x * 2 + first }  carry sum = silu(x)
           sum = sum + linear s (x, dim)  y = linear w (sum, dim)  y + x * 0.5 }
         head both(x) { carry sum = x  linear output (x + sum, vocab) }
         arch shared_carried { @ head both  layers 3 of share step }",
    ),
];

const INIT: &str = "init spread {
        embed normal(1)
        linear normal(0.4)
        bias normal(0.5)
        norm uniform(1.5)
        canon uniform(0.7)
        short_conv uniform(0.7)
        short_conv_bias normal(0.5)
    }";

/// The compiled archs, with every parameter of order one. The released rules start some near zero, which hides errors.
pub fn models() -> impl Iterator<Item = (&'static str, Compiled)> {
    ARCHS.iter().map(|(name, text)| (*name, compiled(name, text)))
}

/// The models, and an arch for each example of each primitive.
pub fn all() -> Vec<(&'static str, Compiled)> {
    models().chain(op::ALL.iter().flat_map(|op| examples(op))).collect()
}

/// An arch of one layer for each example of a primitive.
fn examples(op: &'static op::Primitive) -> impl Iterator<Item = (&'static str, Compiled)> {
    op.examples.iter().map(|body| {
        let text = format!(
            "{INIT}
             block example(x) {{ {body} }}
             head out(x) {{ linear output (x, vocab) }}
             arch tiny {{ vocab 23  dim 6  norm_eps 1e-5  init spread  layers 1 of example  head out }}"
        );
        // Without std, where a mixer has the name of the primitive `attention`.
        (op.name, compiled_in(&program(text, Std::None), TEXT, "tiny"))
    })
}

pub fn named(name: &str) -> Compiled {
    let (name, text) = ARCHS.iter().find(|(known, _)| *known == name).unwrap();
    compiled(name, text)
}

fn program(text: String, std: Std) -> Program {
    Program::new([(TEXT.to_owned(), text)], std)
}

fn compiled(name: &str, text: &str) -> Compiled {
    let head = "vocab 23  dim 12  norm_eps 1e-5  init spread";
    let name = if name == "tied" { "tied_head" } else { name };
    let text = format!("{INIT}\n{}", text.replace('@', head));
    compiled_in(&program(text, Std::Embedded), TEXT, name)
}

/// The words of an arch whose number is replaced.
const SMALL: [(&str, &str); 6] = [
    ("vocab", "258"),
    ("dim", "64"),
    ("layers", "2"),
    ("heads", "2"),
    ("kv_heads", "1"),
    ("hidden", "96"),
];

/// The text of a committed arch with small widths and two layers.
pub fn small(text: &str) -> String {
    let mut before = "";
    let words = text.split_inclusive([' ', '\n', ',']).map(|word| {
        let bare = word.trim_end_matches([' ', '\n', ',']);
        let number = bare.parse::<u64>().is_ok();
        let small = SMALL.iter().find(|(name, _)| number && *name == before);
        if !bare.is_empty() {
            before = bare;
        }
        match small {
            Some((_, small)) => word.replace(bare, small),
            None => word.to_owned(),
        }
    });
    words.collect()
}
