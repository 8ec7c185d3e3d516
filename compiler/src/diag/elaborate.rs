//! Errors in an architecture after its names are resolved: values, calls, sharing, init, slots, sizes.

use dsl::{Diagnostic, Name, Span, suggest};

use super::{chain, list};

pub(crate) fn missing_arch_field(arch: Span, field: &str) -> Diagnostic {
    Diagnostic::error("missing-arch-field", arch, format!("the arch does not set `{field}`"))
        .about([field])
        .help(match field {
            "vocab" => "add `vocab 32000`",
            "dim" => "add `dim 2048`",
            _ => "add `norm_eps 1e-5`",
        })
}

pub(crate) fn bad_arch_field(span: Span, field: &str, got: &str, want: &str) -> Diagnostic {
    Diagnostic::error("bad-arch-field", span, format!("`{field}` is {got}, but must be {want}"))
        .about([field])
        .help(format!("write `{field} {}`", if field == "norm_eps" { "1e-5" } else { "1024" }))
}

pub(crate) fn missing_config(call: Span, callee: &str, name: &str) -> Diagnostic {
    Diagnostic::error("missing-config", call, format!("`{callee}` needs `{name}`"))
        .about([callee, name])
        .help(format!("set it where `{callee}` is configured or called: `{name} …`"))
}

/// A call of a primitive without a value that it needs; `example` is a call with one.
pub(crate) fn missing_operand(
    call: Span,
    callee: &str,
    name: &str,
    example: Option<&str>,
) -> Diagnostic {
    let d = missing_config(call, callee, name);
    match example {
        Some(example) => d.help(format!("for example `{example}`")),
        None => d,
    }
}

pub(crate) fn wrong_kind(span: Span, what: &str, got: &str, want: &str) -> Diagnostic {
    // Quote a name, but not a description.
    let name = (!what.contains(' ')).then_some(what);
    let what = name.map_or(what.to_owned(), |name| format!("`{name}`"));
    Diagnostic::error("wrong-kind", span, format!("{what} is {got}, but must be {want}"))
        .about(name)
        .help(format!("write {want}"))
}

pub(crate) fn set_by_caller(span: Span, name: &str, callee: &str, call: Span) -> Diagnostic {
    Diagnostic::error(
        "set-by-caller",
        span,
        format!("`{name}` of `{callee}` is set by the definition that calls it"),
    )
    .about([name, callee])
    .here("set here")
    .label(call, "given here")
    .help("remove the setting, or change the call")
}

pub(crate) fn not_callable(name: &Name, got: &str) -> Diagnostic {
    Diagnostic::error(
        "not-callable",
        name.span,
        format!("`{}` is {got}, not a definition", name.text),
    )
    .about([name.text.as_str()])
    .help("only blocks, mixers, mlps and primitives can be applied to tensors")
}

pub(crate) fn tensor_count(span: Span, callee: &str, got: usize, want: &str) -> Diagnostic {
    Diagnostic::error("tensor-count", span, format!("`{callee}` takes {want}, but was given {got}"))
        .about([callee])
        .help("tensors come first, then configuration")
}

pub(crate) fn too_many_arguments(span: Span, callee: &str, names: &[&str]) -> Diagnostic {
    let d =
        Diagnostic::error("too-many-arguments", span, format!("`{callee}` takes no such argument"))
            .about([callee]);
    if names.is_empty() {
        d.help(format!("`{callee}` has no configuration"))
    } else {
        d.help(format!("its configuration is {}", list(names.iter().copied())))
    }
}

pub(crate) fn unknown_argument(name: &Name, callee: &str, names: &[&str]) -> Diagnostic {
    let d = Diagnostic::error(
        "unknown-argument",
        name.span,
        format!("`{callee}` has no configuration `{}`", name.text),
    )
    .about([callee, name.text.as_str()]);
    match suggest(&name.text, names.iter().copied()) {
        Some(known) => d.mean(known).about([known]),
        None if names.is_empty() => d.help("it takes its arguments by position"),
        None => d.help(format!("it has {}", list(names.iter().copied()))),
    }
}

pub(crate) fn argument_twice(name: &str, span: Span) -> Diagnostic {
    Diagnostic::error("argument-twice", span, format!("`{name}` is given twice"))
        .about([name])
        .help("give it once, by position or by name")
}

pub(crate) fn not_a_tensor(span: Span, got: &str) -> Diagnostic {
    Diagnostic::error("not-a-tensor", span, format!("expected a tensor here, but this is {got}"))
        .help("tensors come before configuration in a call")
}

pub(crate) fn tensor_as_config(span: Span, what: &str) -> Diagnostic {
    Diagnostic::error(
        "tensor-as-config",
        span,
        format!("`{what}` is configuration, which cannot depend on tensors"),
    )
    .about([what])
    .help("pass a number, a word or a definition")
}

pub(crate) fn mismatch(span: Span, message: String, help: String, about: &[&str]) -> Diagnostic {
    Diagnostic::error("shape-mismatch", span, message).help(help).about(about.iter().copied())
}

pub(crate) fn result_count(span: Span, got: usize, want: usize) -> Diagnostic {
    Diagnostic::error(
        "result-count",
        span,
        format!(
            "this returns {got} {}, but {want} {} expected",
            tensors(got),
            if want == 1 { "is" } else { "are" }
        ),
    )
    .help("bind as many names as there are results: `a, b = …`")
}

pub(crate) fn layer_result(span: Span, callee: &str, got: &str, want: &str) -> Diagnostic {
    Diagnostic::error(
        "layer-result",
        span,
        format!("layer `{callee}` takes {want} but returns {got}"),
    )
    .about([callee])
    .help("a layer must return one tensor with the shape of its input")
}

pub(crate) fn head_result(span: Span, callee: &str, got: &str, want: &str) -> Diagnostic {
    Diagnostic::error(
        "head-result",
        span,
        format!("head `{callee}` returns {got}, not logits {want}"),
    )
    .about([callee])
    .help("end the head with `linear output (…, vocab)`")
}

pub(crate) fn name_used_before(name: &str, span: Span) -> Diagnostic {
    Diagnostic::error("not-bound", span, format!("`{name}` has no value here"))
        .about([name])
        .help("bind it before this line, in every branch")
}

pub(crate) fn instance_twice(name: &str, span: Span, before: Span) -> Diagnostic {
    Diagnostic::error(
        "instance-twice",
        span,
        format!("two calls that own parameters are both called `{name}`"),
    )
    .about([name])
    .here("again here")
    .label(before, "first here")
    .help("give the calls different names, or make one instance with `share` and call it twice")
}

pub(crate) fn instance_case(name: &str, span: Span, other: &str, before: Span) -> Diagnostic {
    Diagnostic::error(
        "names-differ-in-case",
        span,
        format!("`{name}` and `{other}` differ only in case"),
    )
    .about([name, other])
    .label(before, format!("`{other}` is here"))
    .help("rename one of them")
}

pub(crate) fn shared_differs(path: &str, span: Span, got: &str, want: &str) -> Diagnostic {
    Diagnostic::error(
        "shared-differs",
        span,
        format!("the shared parameter `{path}` is {want}, but this needs {got}"),
    )
    .about([path])
    .help("shared parameters must have equal shapes")
}

pub(crate) fn shared_layers_differ(span: Span, first: usize, second: usize) -> Diagnostic {
    Diagnostic::error(
        "shared-layers-differ",
        span,
        format!("layers {first} and {second} are one shared instance, but own different parameters"),
    )
    .help("edit all layers of a `share` in the same way; `layer` may change their computation, but not their parameters")
}

pub(crate) fn shared_layers_apart(span: Span, first: usize, second: usize) -> Diagnostic {
    Diagnostic::error(
        "shared-layers-apart",
        span,
        format!("layers {first} and {second} are one shared instance, but are not in one repeated list"),
    )
    .help("write the shared layer in one repeated list, such as `6 of [share a, b]`, and edit every repetition in the same way")
}

pub(crate) fn shared_start(path: &str, span: Span, got: &str, want: &str) -> Diagnostic {
    Diagnostic::error(
        "shared-start",
        span,
        format!("the shared parameter `{path}` is initialised with {want}, but here with {got}"),
    )
    .about([path])
    .help("give the init rule once, where the parameter is first used")
}

pub(crate) fn shared_named(name: &Name, share: &str) -> Diagnostic {
    Diagnostic::error(
        "shared-named",
        name.span,
        format!("`{share}` is one shared instance and cannot also be called `{}`", name.text),
    )
    .about([share, name.text.as_str()])
    .help(format!("write `{share} (…)`"))
}

pub(crate) fn slot_below(span: Span, name: &str, holder: &str) -> Diagnostic {
    Diagnostic::error(
        "slot-below",
        span,
        format!("slot `{name}` is filled on `{holder}`, but slots belong to the layer"),
    )
    .about([name, holder])
    .help(format!("write `canon {name}` or `fill {name} with …` on the layer, next to its `mixer`"))
}

pub(crate) fn unused_init_row(span: Span, role: &str, roles: &[&str]) -> Diagnostic {
    let d =
        Diagnostic::warning("unused-init-row", span, format!("no parameter has the role `{role}`"));
    match suggest(role, roles.iter().copied()) {
        Some(known) => d.mean(known),
        None => d.help(format!("the roles here are {}", list(roles.iter().copied()))),
    }
}

/// `shape` is that of a `param` statement; without it, the parameter belongs to a call.
pub(crate) fn no_init(role: &str, path: &str, span: Span, shape: Option<&str>) -> Diagnostic {
    let help = match shape {
        Some(shape) => {
            format!(
                "write `param {role} {shape} init normal(0.02)`, or add a row (`init.{role} normal(0.02)`)"
            )
        }
        None => format!("add a row (`init.{role} normal(0.02)`), or `init = …` to this call"),
    };
    Diagnostic::error(
        "no-init",
        span,
        format!("`{path}` has no init rule: the arch's init table has no `{role}`"),
    )
    .about([path, role])
    .help(help)
}

pub(crate) fn init_arguments(span: Span, name: &str, got: usize, want: usize) -> Diagnostic {
    Diagnostic::error(
        "init-arguments",
        span,
        format!(
            "`{name}` takes {want} {}, but was given {got}",
            if want == 1 { "number" } else { "numbers" }
        ),
    )
    .about([name])
    .help("see LANGUAGE.md for the init rules")
}

pub(crate) fn bad_init(span: Span, rule: &str, problem: &str) -> Diagnostic {
    Diagnostic::error("bad-init", span, format!("`{rule}` is not valid: {problem}"))
        .help("see LANGUAGE.md for the init rules")
}

pub(crate) fn not_an_init(span: Span, got: &str) -> Diagnostic {
    Diagnostic::error("not-an-init", span, format!("expected an init rule here, but this is {got}"))
        .help("write, for example, `normal(0.02)` or `ones`")
}

pub(crate) fn inexact_division(span: Span, a: &str, b: &str) -> Diagnostic {
    Diagnostic::error("inexact-division", span, format!("{a} divided by {b} is not exact"))
        .help("round explicitly: `floor(a / b)` or `ceil_to(a / b, 256)`")
}

/// `set` is the place of the setting that makes the default of `rule` inexact.
pub(crate) fn inexact_default(
    (set, rule_at): (Span, Span),
    name: &str,
    rule: &str,
    (a, b): (i64, i64),
    help: &str,
) -> Diagnostic {
    let message =
        format!("the default of `{name}` is `{rule}`, but {a} divided by {b} is not exact");
    Diagnostic::error("inexact-default", set, message)
        .here("set here")
        .label(rule_at, "default defined here")
        .help(help)
}

pub(crate) fn division_by_zero(span: Span) -> Diagnostic {
    Diagnostic::error("division-by-zero", span, "this divides by zero")
        .help("check the fields it is computed from")
}

pub(crate) fn overflow(span: Span, what: &str) -> Diagnostic {
    Diagnostic::error("overflow", span, format!("{what} is too large for 64-bit arithmetic"))
        .help("use smaller sizes")
}

pub(crate) fn out_of_range(span: Span, what: &str) -> Diagnostic {
    Diagnostic::error(
        "out-of-range",
        span,
        format!(
            "{what} is out of range: numbers in calculations are fractions of integers up to 1.7e38"
        ),
    )
    .help("use a number from 1e-38 to 1e38, with fewer digits")
}

pub(crate) fn operands(span: Span, op: &str, a: &str, b: &str) -> Diagnostic {
    Diagnostic::error("operands", span, format!("`{op}` does not take {a} and {b}"))
        .help("tensors support `+`, `-`, `*`, `/` with tensors and numbers; numbers support all operators; roots support `*` and `/` with numbers and roots")
}

pub(crate) fn too_large(span: Span, what: &str, got: &str, limit: i64) -> Diagnostic {
    Diagnostic::error("too-large", span, format!("{what} is {got}: more than {limit} elements"))
        .help("use smaller sizes")
}

pub(crate) fn too_deep(span: Span, limit: usize, chain_of: &[String]) -> Diagnostic {
    let shown = chain(chain_of.iter().map(String::as_str));
    Diagnostic::error(
        "too-deep",
        span,
        format!("calls are nested more than {limit} levels deep: {shown}"),
    )
    .help("flatten the definitions")
}

pub(crate) fn expression_too_deep(span: Span, limit: usize) -> Diagnostic {
    Diagnostic::error(
        "expression-too-deep",
        span,
        format!("expressions and the calls in them are nested more than {limit} levels deep"),
    )
    .help("compute part of it first: `name = …`")
}

pub(crate) fn too_many_steps(span: Span, limit: usize) -> Diagnostic {
    Diagnostic::error(
        "too-many-steps",
        span,
        format!("evaluating this takes more than {limit} steps"),
    )
    .help("repeat equal layers with `layers N of …`, or nest fewer calls")
}

pub(crate) fn too_many_elements(span: Span, limit: i64) -> Diagnostic {
    Diagnostic::error(
        "too-many-elements",
        span,
        format!("all parameters together have more than {limit} elements"),
    )
    .help("use smaller sizes")
}

pub(crate) fn text_too_large(span: Span, problem: &str) -> Diagnostic {
    Diagnostic::error(
        "text-too-large",
        span,
        format!(
            "the text of this arch, with every definition it uses, cannot be read back: {problem}"
        ),
    )
    .help("write equal layers once, as `24 of …`")
}

pub(crate) fn too_many(span: Span, what: &str, limit: usize) -> Diagnostic {
    Diagnostic::error(
        "too-many",
        span,
        format!("the layers up to here have more than {limit} {what}"),
    )
    .help("use fewer layers or smaller definitions")
}

pub(crate) fn slot_outside(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("slot-outside", span, format!("slot `{name}` is inside another slot's fill"))
        .about([name])
        .help("a fill cannot declare slots")
}

pub(crate) fn slot_shape(span: Span, name: &str, got: &str) -> Diagnostic {
    Diagnostic::error(
        "slot-shape",
        span,
        format!("slot `{name}` takes [batch, time, channels], but gets {got}"),
    )
    .about([name])
    .help("put the slot before `heads`, or `merge` first")
}

pub(crate) fn fill_result(span: Span, slot: &str, got: &str, want: &str) -> Diagnostic {
    Diagnostic::error(
        "fill-result",
        span,
        format!("the fill of slot `{slot}` takes {want} but returns {got}"),
    )
    .about([slot])
    .help("fill a slot with a block that returns the shape of its input")
}

pub(crate) fn unknown_slot(span: Span, slot: &str, layer: &str, declared: &[&str]) -> Diagnostic {
    let d = Diagnostic::error(
        "unknown-slot",
        span,
        format!("{layer} does not declare a slot `{slot}`"),
    )
    .about([slot]);
    let d = if declared.is_empty() {
        d.help("it declares no slots")
    } else {
        d.help(format!("it declares {}", list(declared.iter().copied())))
    };
    d.help(format!(
        "declare the slot where it is used: `slot {slot}(…)` in the layer, its mixer or its mlp"
    ))
}

pub(crate) fn carry_outside(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error(
        "carry-outside",
        span,
        format!("`{name}` passes between layers, but this is the fill of a slot"),
    )
    .about([name])
    .help("a fill only sees the tensors of its slot")
}

pub(crate) fn carry_reserved(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("carry-reserved", span, format!("`{name}` cannot be carried"))
        .about([name])
        .help("`tokens` are the token ids in every layer; choose another name")
}

pub(crate) fn layer_passed_over(span: Span, callee: &str, index: u32) -> Diagnostic {
    Diagnostic::error(
        "layer-passed-over",
        span,
        format!("no layer after layer {index}, `{callee}`, uses what it computes"),
    )
    .about([callee])
    .help("a layer must read its input, or a tensor that the layer before carries")
}

pub(crate) fn unused_result(name: &str, span: Span) -> Diagnostic {
    Diagnostic::error(
        "unused-parameters",
        span,
        format!("`{name}` has parameters that no output uses"),
    )
    .about([name])
    .help("use its result, or remove the call")
}

fn tensors(n: usize) -> &'static str {
    if n == 1 { "tensor" } else { "tensors" }
}
