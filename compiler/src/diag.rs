//! Every way an architecture can be wrong, one constructor each.
//!
//! In: places and the two things that disagree. Out: diagnostics. Must stay true: each says what is
//! wrong in the user's words with both values, and a `help:` that says what to type; each has a
//! case under `tests/cases`.

use dsl::{Diagnostic, Name, Span, suggest};

pub(crate) fn unknown_import<'a>(
    span: Span,
    path: &str,
    files: impl Iterator<Item = &'a str>,
) -> Diagnostic {
    let files: Vec<&str> = files.collect();
    let d = Diagnostic::error("unknown-import", span, format!("there is no file `{path}`"))
        .here("looked for relative to this file");
    match suggest(path, files.iter().copied()) {
        Some(near) => d.help(format!("did you mean `{near}`?")),
        None => d.help(
            "write a relative path with `/`, such as `import llama_1B from \"llama_1B.canon\"`",
        ),
    }
}

pub(crate) fn unknown_imported_name(name: &Name, path: &str, defined: &[String]) -> Diagnostic {
    let d = Diagnostic::error(
        "unknown-imported-name",
        name.span,
        format!("`{path}` does not define `{}`", name.text),
    )
    .here("imported here");
    match suggest(&name.text, defined.iter().map(String::as_str)) {
        Some(near) => d.help(format!("did you mean `{near}`?")),
        None if defined.is_empty() => d.help("that file defines nothing"),
        None => d.help(format!("it defines {}", list(defined.iter().map(String::as_str)))),
    }
}

pub(crate) fn names_a_primitive(name: &Name) -> Diagnostic {
    Diagnostic::error(
        "names-a-primitive",
        name.span,
        format!("`{}` is a primitive, and calls of that name stay the primitive", name.text),
    )
    .help("give the block another name; only a mixer or mlp, which is configured, may share one")
}

pub(crate) fn import_cycle(span: Span, files: &[&str]) -> Diagnostic {
    let circle = circle(files.iter().copied());
    Diagnostic::error("import-cycle", span, format!("these files import each other: {circle}"))
        .help("move what both need into a third file")
}

pub(crate) fn call_cycle(span: Span, names: &[&Name]) -> Diagnostic {
    let circle = circle(names.iter().map(|n| n.text.as_str()));
    Diagnostic::error(
        "call-cycle",
        span,
        format!("definitions use each other in a circle: {circle}"),
    )
    .help("the language has no recursion: repeat layers with `layers N of …`")
}

pub(crate) fn unknown_name(name: &Name, value: bool, visible: &[&str]) -> Diagnostic {
    let what = if value { "nothing is called" } else { "there is no definition called" };
    let d = Diagnostic::error("unknown-name", name.span, format!("{what} `{}`", name.text));
    match suggest(&name.text, visible.iter().copied()) {
        Some(near) => d.help(format!("did you mean `{near}`?")),
        None => d.help(
            "names come from the body, its configuration, the arch's fields, imports and std",
        ),
    }
}

pub(crate) fn too_much_config(name: &Name, limit: usize) -> Diagnostic {
    Diagnostic::error(
        "too-much-config",
        name.span,
        format!("a definition has at most {limit} configuration values"),
    )
    .here("one too many")
    .help("split the definition, or pass definitions that carry their own configuration")
}

pub(crate) fn chain_too_long(span: Span, limit: usize) -> Diagnostic {
    Diagnostic::error("chain-too-long", span, format!("this nests deeper than {limit}"))
        .help("flatten the chain of `with`, aliases or definitions")
}

pub(crate) fn no_layers(name: &Name) -> Diagnostic {
    Diagnostic::error("no-layers", name.span, format!("arch `{}` has no layers", name.text))
        .help("add `layers 24 of decoder { mixer attention { heads 32 }  mlp swiglu }`")
}

pub(crate) fn zero_layers(span: Span) -> Diagnostic {
    Diagnostic::error("zero-layers", span, "this list of layers is empty")
        .help("an arch has at least one layer")
}

pub(crate) fn not_an_arch(name: &Name, defined: Option<Span>) -> Diagnostic {
    let d = Diagnostic::error("not-an-arch", name.span, format!("`{}` is not an arch", name.text))
        .here("used as the base of `with`")
        .help("`with` edits archs only; configure a definition with braces: `name { … }`");
    match defined {
        Some(span) => d.label(span, "defined here"),
        None => d,
    }
}

pub(crate) fn edited_twice(path: &str, span: Span, before: Span) -> Diagnostic {
    Diagnostic::error("edited-twice", span, format!("`{path}` is set twice in one place"))
        .here("again here")
        .label(before, "first here")
        .help("keep one of them, or chain a second `with`")
}

pub(crate) fn edit_changes_nothing(path: &str, value: Option<&str>, span: Span) -> Diagnostic {
    let message = match value {
        Some(value) => format!("`{path}` is {value} already"),
        None => format!("`{path}` is so already"),
    };
    Diagnostic::warning("edit-changes-nothing", span, message).help("remove the edit")
}

pub(crate) fn too_many_edits(span: Span, limit: usize) -> Diagnostic {
    Diagnostic::error(
        "too-many-edits",
        span,
        format!("the edits of this arch reach more than {limit} places in its layers"),
    )
    .here("not applied from here on")
    .help("edit ranges of layers at once, or configure layers where they are listed")
}

pub(crate) fn layers_inside(span: Span) -> Diagnostic {
    Diagnostic::error(
        "layers-inside",
        span,
        "`layers` belongs to the arch, not inside a definition",
    )
    .help("write `layers …` or `layers[…].path value` directly in the arch")
}

pub(crate) fn not_a_role(span: Span) -> Diagnostic {
    Diagnostic::error("not-a-role", span, "an init table lists `role rule` pairs")
        .help("write, for example, `linear normal(0.02)`")
}

pub(crate) fn not_an_init_table(span: Span) -> Diagnostic {
    Diagnostic::error("not-an-init-table", span, "this is not an init table")
        .help("name one (`init lingua`), or write rows: `init { linear normal(0.02)  norm ones }`")
}

pub(crate) fn no_such_path(path: &str, span: Span, missing: &[(usize, String)]) -> Diagnostic {
    let layers: Vec<usize> = missing.iter().map(|(i, _)| *i).collect();
    let why = missing.iter().map(|(_, why)| why.as_str()).find(|why| !why.is_empty());
    let verb = if layers.len() == 1 { "has" } else { "have" };
    let d =
        Diagnostic::error("no-such-path", span, format!("{} {verb} no `{path}`", ranges(&layers)));
    d.help(why.unwrap_or("see `canonc show` for the paths of each layer"))
        .help("choose layers with `layers[mixer is attention].…` if only some have it")
}

pub(crate) fn no_such_arch_path(path: &str, span: Span, why: &str) -> Diagnostic {
    Diagnostic::error("no-such-field", span, format!("the arch has no `{path}`")).help(why)
}

pub(crate) fn no_such_config(path: &str, span: Span, why: &str) -> Diagnostic {
    Diagnostic::error("no-such-config", span, format!("there is no `{path}` to set here")).help(why)
}

pub(crate) fn layer_out_of_range(span: Span, index: u64, count: usize) -> Diagnostic {
    Diagnostic::error(
        "layer-out-of-range",
        span,
        format!("this range ends at layer {index}, but there are {count}"),
    )
    .help(format!("ranges exclude their end: `layers[0..{count}]` is all of them"))
}

pub(crate) fn selects_nothing(span: Span, count: usize) -> Diagnostic {
    Diagnostic::error("selects-nothing", span, format!("this selects none of the {count} layers"))
        .help("layers are numbered from 0")
}

pub(crate) fn layer_count_not_a_number(span: Span) -> Diagnostic {
    Diagnostic::error("layer-count", span, "the number of layers must be written as an integer")
        .help("write `layers 24 of …`")
}

pub(crate) fn too_many_layers(span: Span, limit: usize) -> Diagnostic {
    Diagnostic::error("too-many-layers", span, format!("an arch has at most {limit} layers"))
        .help(format!("write a count between 1 and {limit}"))
}

pub(crate) fn not_a_definition(span: Span) -> Diagnostic {
    Diagnostic::error("not-a-definition", span, "a definition is needed here")
        .help("name a block, mixer or mlp, with configuration in braces: `attention { heads 32 }`")
}

// Constructors of elaboration.

pub(crate) fn missing_arch_field(arch: Span, field: &str) -> Diagnostic {
    Diagnostic::error("missing-arch-field", arch, format!("the arch does not say its `{field}`"))
        .help(match field {
            "vocab" => "add `vocab 32000`",
            "dim" => "add `dim 2048`",
            _ => "add `norm_eps 1e-5`",
        })
}

pub(crate) fn bad_arch_field(span: Span, field: &str, got: &str, want: &str) -> Diagnostic {
    Diagnostic::error("bad-arch-field", span, format!("`{field}` is {got}, but must be {want}"))
        .help(format!("write `{field} {}`", if field == "norm_eps" { "1e-5" } else { "1024" }))
}

pub(crate) fn missing_config(call: Span, callee: &str, name: &str) -> Diagnostic {
    Diagnostic::error("missing-config", call, format!("`{callee}` needs `{name}`"))
        .help(format!("say it where `{callee}` is configured or called: `{name} …`"))
}

pub(crate) fn wrong_kind(span: Span, what: &str, got: &str, want: &str) -> Diagnostic {
    Diagnostic::error("wrong-kind", span, format!("`{what}` is {got}, but must be {want}"))
        .help(format!("give {want}"))
}

pub(crate) fn set_by_caller(span: Span, name: &str, callee: &str, call: Span) -> Diagnostic {
    Diagnostic::error(
        "set-by-caller",
        span,
        format!("`{name}` of `{callee}` is given by the definition that calls it"),
    )
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
    .help("only blocks, mixers, mlps and primitives are applied to tensors")
}

pub(crate) fn tensor_count(span: Span, callee: &str, got: usize, want: &str) -> Diagnostic {
    Diagnostic::error("tensor-count", span, format!("`{callee}` takes {want}, but gets {got}"))
        .help("tensors come first, then configuration")
}

pub(crate) fn too_many_arguments(span: Span, callee: &str, names: &[&str]) -> Diagnostic {
    let d =
        Diagnostic::error("too-many-arguments", span, format!("`{callee}` takes no such argument"));
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
    );
    match suggest(&name.text, names.iter().copied()) {
        Some(near) => d.help(format!("did you mean `{near}`?")),
        None if names.is_empty() => d.help("it takes its arguments by position"),
        None => d.help(format!("it has {}", list(names.iter().copied()))),
    }
}

pub(crate) fn argument_twice(name: &str, span: Span) -> Diagnostic {
    Diagnostic::error("argument-twice", span, format!("`{name}` is given twice"))
        .help("give it once, by position or by name")
}

pub(crate) fn not_a_tensor(span: Span, got: &str) -> Diagnostic {
    Diagnostic::error("not-a-tensor", span, format!("a tensor is needed here, but this is {got}"))
        .help("tensors come before configuration in a call")
}

pub(crate) fn tensor_as_config(span: Span, what: &str) -> Diagnostic {
    Diagnostic::error(
        "tensor-as-config",
        span,
        format!("`{what}` is configuration, which is known before any tensor is"),
    )
    .help("pass a number, a word or a definition")
}

pub(crate) fn mismatch(span: Span, message: String, help: String) -> Diagnostic {
    Diagnostic::error("shape-mismatch", span, message).help(help)
}

pub(crate) fn result_count(span: Span, callee: &str, got: usize, want: usize) -> Diagnostic {
    Diagnostic::error(
        "result-count",
        span,
        format!(
            "`{callee}` gives {got} {}, but {want} {} wanted",
            tensors(got),
            if want == 1 { "is" } else { "are" }
        ),
    )
    .help("name as many results as there are: `a, b = …`")
}

pub(crate) fn layer_result(span: Span, callee: &str, got: &str, want: &str) -> Diagnostic {
    Diagnostic::error("layer-result", span, format!("layer `{callee}` turns {want} into {got}"))
        .help("a layer returns one tensor of the shape it was given")
}

pub(crate) fn head_result(span: Span, callee: &str, got: &str, want: &str) -> Diagnostic {
    Diagnostic::error(
        "head-result",
        span,
        format!("head `{callee}` gives {got}, not logits {want}"),
    )
    .help("end the head with `linear output (…, vocab)`")
}

pub(crate) fn name_used_before(name: &str, span: Span) -> Diagnostic {
    Diagnostic::error("not-bound", span, format!("`{name}` has no value here"))
        .help("bind it first, in every branch that leads here")
}

pub(crate) fn instance_twice(name: &str, span: Span, before: Span) -> Diagnostic {
    Diagnostic::error(
        "instance-twice",
        span,
        format!("two calls that own parameters are both called `{name}`"),
    )
    .here("again here")
    .label(before, "first here")
    .help(format!("name them apart: `{name} first (…)`; to share parameters, `share w = {name}`"))
}

pub(crate) fn instance_case(name: &str, span: Span, other: &str, before: Span) -> Diagnostic {
    Diagnostic::error(
        "names-differ-in-case",
        span,
        format!("`{name}` and `{other}` differ only in case"),
    )
    .label(before, format!("`{other}` is here"))
    .help("give one of them another name")
}

pub(crate) fn shared_differs(path: &str, span: Span, got: &str, want: &str) -> Diagnostic {
    Diagnostic::error(
        "shared-differs",
        span,
        format!("the shared parameter `{path}` is {want}, but here {got} is needed"),
    )
    .help("sharing needs equal shapes")
}

pub(crate) fn shared_layers_differ(span: Span, first: usize, second: usize) -> Diagnostic {
    Diagnostic::error(
        "shared-layers-differ",
        span,
        format!("layers {first} and {second} are one shared instance, but own different parameters"),
    )
    .help("edit all layers of a `share` alike; `layer` may decide what they compute, not what they own")
}

pub(crate) fn shared_layers_apart(span: Span, first: usize, second: usize) -> Diagnostic {
    Diagnostic::error(
        "shared-layers-apart",
        span,
        format!("layers {first} and {second} are one shared instance, but no repeated list holds both"),
    )
    .help("write the shared layer in one list that repeats, such as `6 of [share a, b]`, and edit every repetition alike")
}

pub(crate) fn shared_start(path: &str, span: Span, got: &str, want: &str) -> Diagnostic {
    Diagnostic::error(
        "shared-start",
        span,
        format!("the shared parameter `{path}` starts as {want}, but here as {got}"),
    )
    .help("give the init rule once, where the parameter is first used")
}

pub(crate) fn shared_named(name: &Name, share: &str) -> Diagnostic {
    Diagnostic::error(
        "shared-named",
        name.span,
        format!("`{share}` is one shared instance, it cannot be called `{}` as well", name.text),
    )
    .help(format!("write `{share} (…)`"))
}

pub(crate) fn slot_below(span: Span, name: &str, holder: &str) -> Diagnostic {
    Diagnostic::error(
        "slot-below",
        span,
        format!("slot `{name}` is filled on `{holder}`, but slots belong to the layer"),
    )
    .help(format!("write `canon {name}` or `fill {name} with …` on the layer, beside its `mixer`"))
}

pub(crate) fn unused_init_row(span: Span, role: &str, roles: &[&str]) -> Diagnostic {
    let d =
        Diagnostic::warning("unused-init-row", span, format!("no parameter has the role `{role}`"));
    match suggest(role, roles.iter().copied()) {
        Some(near) => d.help(format!("did you mean `{near}`?")),
        None => d.help(format!("the roles here are {}", list(roles.iter().copied()))),
    }
}

pub(crate) fn no_init(role: &str, path: &str, span: Span) -> Diagnostic {
    Diagnostic::error(
        "no-init",
        span,
        format!("nothing says how `{path}` starts: the arch's init table has no `{role}`"),
    )
    .help(format!("add a row (`init.{role} normal(0.02)`), or `init = …` to this call"))
}

pub(crate) fn init_arguments(span: Span, name: &str, got: usize, want: usize) -> Diagnostic {
    Diagnostic::error(
        "init-arguments",
        span,
        format!("`{name}` takes {want} numbers, but gets {got}"),
    )
    .help("see LANGUAGE.md for the init rules")
}

pub(crate) fn bad_init(span: Span, rule: &str, why: &str) -> Diagnostic {
    Diagnostic::error("bad-init", span, format!("`{rule}` is not possible: {why}"))
        .help("see LANGUAGE.md for the init rules")
}

pub(crate) fn not_an_init(span: Span, got: &str) -> Diagnostic {
    Diagnostic::error(
        "not-an-init",
        span,
        format!("an init rule is needed here, but this is {got}"),
    )
    .help("write, for example, `normal(0.02)` or `ones`")
}

pub(crate) fn inexact_division(span: Span, a: &str, b: &str) -> Diagnostic {
    Diagnostic::error("inexact-division", span, format!("{a} divided by {b} is not exact"))
        .help("name the rounding: `floor(a / b)` or `ceil_to(a / b, 256)`")
}

pub(crate) fn division_by_zero(span: Span) -> Diagnostic {
    Diagnostic::error("division-by-zero", span, "this divides by zero")
        .help("check the fields it is computed from")
}

pub(crate) fn overflow(span: Span, what: &str) -> Diagnostic {
    Diagnostic::error("overflow", span, format!("{what} is too large for 64-bit arithmetic"))
        .help("use smaller sizes")
}

pub(crate) fn operands(span: Span, op: &str, a: &str, b: &str) -> Diagnostic {
    Diagnostic::error("operands", span, format!("`{op}` does not take {a} and {b}"))
        .help("tensors take `+`, `-`, `*` with tensors and `*`, `/` with numbers; numbers take all")
}

pub(crate) fn too_large(span: Span, what: &str, got: &str, limit: i64) -> Diagnostic {
    Diagnostic::error("too-large", span, format!("{what} is {got}, the limit is {limit}"))
        .help("use smaller sizes")
}

pub(crate) fn too_deep(span: Span, limit: usize, chain_of: &[String]) -> Diagnostic {
    let shown = chain(chain_of.iter().map(String::as_str));
    Diagnostic::error("too-deep", span, format!("calls nest deeper than {limit}: {shown}"))
        .help("flatten the definitions")
}

pub(crate) fn expression_too_deep(span: Span, limit: usize) -> Diagnostic {
    Diagnostic::error(
        "expression-too-deep",
        span,
        format!("expressions and the calls in them nest deeper than {limit}"),
    )
    .help("compute a part first: `name = …`")
}

pub(crate) fn too_many_steps(span: Span, limit: usize) -> Diagnostic {
    Diagnostic::error(
        "too-many-steps",
        span,
        format!("working this out takes more than {limit} steps"),
    )
    .help("repeat equal layers with `layers N of …`, or call fewer definitions from one another")
}

pub(crate) fn too_many_elements(span: Span, limit: i64) -> Diagnostic {
    Diagnostic::error(
        "too-many-elements",
        span,
        format!("all parameters together have more than {limit} elements"),
    )
    .help("use smaller sizes")
}

pub(crate) fn text_too_large(span: Span, why: &str) -> Diagnostic {
    Diagnostic::error(
        "text-too-large",
        span,
        format!("the text of this arch with all it uses could not be read back: {why}"),
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
        .help("a fill declares no slots of its own")
}

pub(crate) fn slot_shape(span: Span, name: &str, got: &str) -> Diagnostic {
    Diagnostic::error(
        "slot-shape",
        span,
        format!("slot `{name}` takes [batch, time, channels], but gets {got}"),
    )
    .help("put the slot before `heads`, or `merge` first")
}

pub(crate) fn fill_result(span: Span, slot: &str, got: &str, want: &str) -> Diagnostic {
    Diagnostic::error(
        "fill-result",
        span,
        format!("the fill of slot `{slot}` turns {want} into {got}"),
    )
    .help("a slot is filled by a block that returns the shape it was given")
}

pub(crate) fn unknown_slot(span: Span, slot: &str, layer: &str, declared: &[&str]) -> Diagnostic {
    let d = Diagnostic::error("unknown-slot", span, format!("{layer} declares no slot `{slot}`"));
    if declared.is_empty() {
        d.help("it declares no slots")
    } else {
        d.help(format!("it declares {}", list(declared.iter().copied())))
    }
}

pub(crate) fn unused_result(name: &str, span: Span) -> Diagnostic {
    Diagnostic::error(
        "unused-parameters",
        span,
        format!("`{name}` owns parameters that no output uses"),
    )
    .help("use its result, or remove the call")
}

pub(crate) fn no_such_arch(span: Span, wanted: &str, found: &[String]) -> Diagnostic {
    let d =
        Diagnostic::error("no-such-arch", span, format!("this file defines no arch `{wanted}`"));
    if found.is_empty() {
        d.help(format!("define one: `arch {wanted} {{ … }}`"))
    } else {
        d.help(format!("it defines {}", list(found.iter().map(String::as_str))))
    }
}

fn tensors(n: usize) -> &'static str {
    if n == 1 { "tensor" } else { "tensors" }
}

/// How many names a message lists before it only counts.
const SHOWN: usize = 12;

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut shown: Vec<String> = names.map(|n| format!("`{n}`")).collect();
    let more = shown.len().saturating_sub(SHOWN);
    shown.truncate(SHOWN);
    let text = shown.join(", ");
    if more > 0 { format!("{text} and {more} more") } else { text }
}

/// `a → b → … → z`, the middle left out if it is long.
fn chain<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.collect();
    if names.len() > SHOWN {
        names.splice(SHOWN / 2..names.len() - SHOWN / 2 + 1, ["…"]);
    }
    names.join(" → ")
}

fn circle<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.collect();
    names.extend(names.first().copied());
    chain(names.into_iter())
}

/// `layers 0..3, 5` for sorted or unsorted layer numbers.
pub(crate) fn ranges(indices: &[usize]) -> String {
    let mut sorted = indices.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut parts: Vec<String> = Vec::new();
    let mut i = 0;
    while let Some(&start) = sorted.get(i) {
        let mut end = start;
        while sorted.get(i + 1) == Some(&(end + 1)) {
            i += 1;
            end += 1;
        }
        parts.push(if start == end { start.to_string() } else { format!("{start}..{}", end + 1) });
        i += 1;
    }
    let more = parts.len().saturating_sub(SHOWN);
    if more > 0 {
        parts.truncate(SHOWN);
        parts.push(format!("and {more} more places"));
    }
    let word = if sorted.len() == 1 { "layer" } else { "layers" };
    format!("{word} {}", parts.join(", "))
}
