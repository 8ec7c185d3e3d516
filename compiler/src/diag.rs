//! Errors in an architecture, one constructor each: it describes the error in the user's terms with both values, and
//! its `help:` says what to type. Each has a case under `tests/cases`.

mod elaborate;

use dsl::{Diagnostic, Name, Span, advice_for, suggest};

pub(crate) use elaborate::*;

/// How a name is used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Before parentheses.
    Call,
    /// Before braces, after `with`, after `is`.
    Def,
    /// Anywhere else.
    Value,
}

pub(crate) fn unknown_import<'a>(
    span: Span,
    path: &str,
    files: impl Iterator<Item = &'a str>,
) -> Diagnostic {
    let files: Vec<&str> = files.collect();
    let d = Diagnostic::error("unknown-import", span, format!("cannot find the file `{path}`"))
        .here("paths are relative to this file");
    match suggest(path, files.iter().copied()) {
        Some(known) => d.mean(known).about([known]),
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
        Some(known) => d.mean(known).about([known]),
        None if defined.is_empty() => d.help("that file defines nothing"),
        None => d.help(format!("it defines {}", list(defined.iter().map(String::as_str)))),
    }
}

pub(crate) fn names_a_primitive(name: &Name) -> Diagnostic {
    Diagnostic::error(
        "names-a-primitive",
        name.span,
        format!("`{}` is a primitive, and calls of that name always mean the primitive", name.text),
    ).about([name.text.as_str()])
    .help("rename the block; only a mixer or mlp may have a primitive's name, since it is configured and not called")
}

pub(crate) fn import_cycle(span: Span, files: &[&str]) -> Diagnostic {
    let circle = circle(files.iter().copied());
    Diagnostic::error("import-cycle", span, format!("these files import each other: {circle}"))
        .help("move the shared definitions into a third file")
}

pub(crate) fn call_cycle(span: Span, names: &[&Name], archs: bool) -> Diagnostic {
    let what = if archs {
        "these archs are based on each other"
    } else {
        "definitions use each other in a circle"
    };
    let circle = circle(names.iter().map(|n| n.text.as_str()));
    let d = Diagnostic::error("call-cycle", span, format!("{what}: {circle}"));
    match names.first().filter(|_| archs) {
        Some(name) => {
            d.help(format!("write one of them out in full: `arch {} {{ … }}`", name.text))
        }
        None => d.help("the language has no recursion: repeat layers with `layers N of …`"),
    }
}

pub(crate) fn unknown_name(name: &Name, context: Use, visible: &[&str]) -> Diagnostic {
    let truth = match name.text.to_lowercase().as_str() {
        "yes" | "on" | "true" => Some("true"),
        "no" | "off" | "false" => Some("false"),
        _ => None,
    };
    let what = match context {
        Use::Value => "cannot find the name",
        Use::Def => "cannot find the definition",
        Use::Call => "cannot find the primitive or block",
    };
    let d = Diagnostic::error("unknown-name", name.span, format!("{what} `{}`", name.text))
        .about([name.text.as_str()]);
    if context == Use::Call {
        if let Some(advice) = advice_for(&name.text) {
            return d.help(advice);
        }
        // `norm` means one of the norms, although it is nearer to `normal`.
        match similar(&name.text, visible).as_slice() {
            [] => {}
            [one] => return d.mean(one).about([*one]),
            several => {
                let first = several.iter().take(SIMILAR).copied();
                let more = several.len().saturating_sub(SIMILAR);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                let names = list(first.clone());
                return d.help(format!("there is {names}{more}")).about(first);
            }
        }
    }
    let suggestion = suggest(&name.text, visible.iter().copied());
    match (truth.filter(|_| context == Use::Value).or(suggestion), context) {
        (Some(name), _) => d.mean(name).about([name]),
        (None, Use::Call) => d
            .help("`canonc show std` lists the primitives and the standard definitions")
            .help(format!("define any other operation: `block {}(x) {{ … }}`", name.text)),
        (None, Use::Def | Use::Value) => d.help(
            "names come from the body, its configuration, the arch's fields, imports and std",
        ),
    }
}

/// Most similar names that are listed.
const SIMILAR: usize = 4;

/// Names with this one among their words, such as `channel_softmax` for `softmax`.
fn similar<'a>(name: &str, visible: &[&'a str]) -> Vec<&'a str> {
    let words = name.to_lowercase();
    let has = |known: &&&str| words.len() > 2 && known.split('_').any(|word| word == words);
    visible.iter().filter(has).copied().collect()
}

pub(crate) fn too_much_config(name: &Name, limit: usize) -> Diagnostic {
    Diagnostic::error(
        "too-much-config",
        name.span,
        format!("a definition has at most {limit} configuration values"),
    )
    .here("one too many")
    .help("split the definition, or pass definitions that have their own configuration")
}

pub(crate) fn chain_too_long(span: Span, limit: usize) -> Diagnostic {
    Diagnostic::error(
        "chain-too-long",
        span,
        format!("this is nested more than {limit} levels deep"),
    )
    .help("flatten the chain of `with`, aliases or definitions")
}

pub(crate) fn no_layers(name: &Name) -> Diagnostic {
    Diagnostic::error("no-layers", name.span, format!("arch `{}` has no layers", name.text))
        .about([name.text.as_str()])
        .help("add `layers 24 of decoder { mixer attention { heads 32 }  mlp swiglu }`")
}

pub(crate) fn zero_layers(span: Span) -> Diagnostic {
    Diagnostic::error("zero-layers", span, "this list of layers is empty")
        .help("an arch has at least one layer")
}

pub(crate) fn not_an_arch(name: &Name, defined: Option<Span>) -> Diagnostic {
    let d = Diagnostic::error("not-an-arch", name.span, format!("`{}` is not an arch", name.text))
        .about([name.text.as_str()])
        .here("used as the base of `with`")
        .help("`with` edits archs only; configure a definition with braces: `name { … }`");
    match defined {
        Some(span) => d.label(span, "defined here"),
        None => d,
    }
}

pub(crate) fn edited_twice(path: &str, span: Span, before: Span) -> Diagnostic {
    Diagnostic::error("edited-twice", span, format!("`{path}` is set twice in the same place"))
        .about([path])
        .here("again here")
        .label(before, "first here")
        .help("keep one of them, or add a second `with`")
}

pub(crate) fn edit_changes_nothing(path: &str, value: Option<&str>, span: Span) -> Diagnostic {
    let message = match value {
        Some(value) => format!("`{path}` is already {value}"),
        None => format!("`{path}` already has this value"),
    };
    Diagnostic::warning("edit-changes-nothing", span, message).help("remove the edit")
}

pub(crate) fn too_many_edits(span: Span, limit: usize) -> Diagnostic {
    Diagnostic::error(
        "too-many-edits",
        span,
        format!("the edits of this arch change more than {limit} places in its layers"),
    )
    .here("edits from here on are not applied")
    .help("edit ranges of layers at once, and write equal layers once, as `24 of …`")
}

pub(crate) fn layers_inside(span: Span) -> Diagnostic {
    Diagnostic::error(
        "layers-inside",
        span,
        "`layers` belongs to the arch, not inside a definition",
    )
    .about(["layers"])
    .help("write `layers …` or `layers[…].path value` directly in the arch")
}

pub(crate) fn not_a_role(span: Span) -> Diagnostic {
    Diagnostic::error("not-a-role", span, "an init table lists `role rule` pairs")
        .help("write, for example, `linear normal(0.02)`")
}

pub(crate) fn unknown_init_table(name: &Name, tables: &[&str]) -> Diagnostic {
    let message = format!("cannot find the init table `{}`", name.text);
    let d = Diagnostic::error("unknown-init-table", name.span, message).about([name.text.as_str()]);
    let rows = "or write rows: `init { linear normal(0.02)  norm ones }`";
    match suggest(&name.text, tables.iter().copied()) {
        Some(known) => d.mean(known).about([known]).help(rows),
        None => d.help(format!("the init tables are {}", list(tables.iter().copied()))).help(rows),
    }
}

pub(crate) fn not_an_init_table(span: Span) -> Diagnostic {
    Diagnostic::error("not-an-init-table", span, "this is not an init table")
        .help("name one (`init lingua`), or write rows: `init { linear normal(0.02)  norm ones }`")
}

/// Why a path leads nowhere.
#[derive(Clone, Debug)]
pub(crate) struct NoPath {
    pub(crate) reason: String,
    /// The names that the reason says to use instead.
    pub(crate) names: Vec<String>,
}

impl From<String> for NoPath {
    fn from(reason: String) -> NoPath {
        NoPath { reason, names: Vec::new() }
    }
}

impl NoPath {
    fn help(&self, d: Diagnostic) -> Diagnostic {
        d.help(self.reason.as_str()).about(self.names.iter().map(String::as_str))
    }
}

/// `missing` are the layers without the path, with the reason where it is not that of the layer before.
pub(crate) fn no_such_path(
    path: &str,
    span: Span,
    missing: &[(usize, Option<NoPath>)],
    selected: usize,
) -> Diagnostic {
    let layers: Vec<usize> = missing.iter().map(|(i, _)| *i).collect();
    let reason = missing.iter().find_map(|(_, reason)| reason.as_ref());
    let verb = if layers.len() == 1 { "has" } else { "have" };
    let d =
        Diagnostic::error("no-such-path", span, format!("{} {verb} no `{path}`", ranges(&layers)))
            .about([path]);
    let d = match reason {
        Some(reason) => reason.help(d),
        None => d.help("see `canonc show` for the paths of each layer"),
    };
    if layers.len() == selected {
        return d;
    }
    d.help("choose layers with `layers[mixer is attention].…` if only some have it")
}

pub(crate) fn no_such_arch_path(path: &str, span: Span, reason: &NoPath) -> Diagnostic {
    reason.help(
        Diagnostic::error("no-such-field", span, format!("the arch has no `{path}`")).about([path]),
    )
}

pub(crate) fn no_such_config(path: &str, span: Span, reason: &NoPath) -> Diagnostic {
    reason.help(
        Diagnostic::error("no-such-config", span, format!("`{path}` does not exist here"))
            .about([path]),
    )
}

pub(crate) fn layer_out_of_range(span: Span, index: u64, count: usize) -> Diagnostic {
    Diagnostic::error(
        "layer-out-of-range",
        span,
        format!("this range ends at layer {index}, but there are {count}"),
    )
    .help(format!("ranges exclude their end: `layers[0..{count}]` selects all of them"))
}

pub(crate) fn selects_nothing(span: Span, count: usize) -> Diagnostic {
    let last = count.saturating_sub(1);
    Diagnostic::error("selects-nothing", span, format!("this selects none of the {count} layers"))
        .help(format!("layers are numbered from 0 to {last}"))
}

pub(crate) fn layer_count_not_a_number(span: Span) -> Diagnostic {
    Diagnostic::error("layer-count", span, "the number of layers must be written as an integer")
        .help("write `layers 24 of …`")
}

pub(crate) fn layers_of_what(span: Span, count: i64) -> Diagnostic {
    let message = format!("`layers {count}` does not define the layers");
    Diagnostic::error("layers-of-what", span, message)
        .help(format!(
            "write `layers {count} of decoder {{ mixer attention {{ heads 32 }}  mlp swiglu }}`"
        ))
        .help("to edit existing layers, write a path: `layers[0..4].mixer.heads 8`")
}

pub(crate) fn too_many_layers(span: Span, limit: usize) -> Diagnostic {
    Diagnostic::error("too-many-layers", span, format!("an arch has at most {limit} layers"))
        .help(format!("write a count between 1 and {limit}"))
}

pub(crate) fn not_a_definition(span: Span) -> Diagnostic {
    Diagnostic::error("not-a-definition", span, "expected a definition here")
        .help("write a block, mixer or mlp, with configuration in braces: `attention { heads 32 }`")
}

pub(crate) fn no_such_arch(span: Span, wanted: &str, defined: &[String]) -> Diagnostic {
    let d = Diagnostic::error(
        "no-such-arch",
        span,
        format!("this file does not define an arch `{wanted}`"),
    );
    if defined.is_empty() {
        d.help(format!("define one: `arch {wanted} {{ … }}`"))
    } else {
        d.help(format!("it defines {}", list(defined.iter().map(String::as_str))))
    }
}

/// How many names a message lists before it only counts the rest.
const SHOWN: usize = 12;

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut shown: Vec<String> = names.map(|n| format!("`{n}`")).collect();
    let more = shown.len().saturating_sub(SHOWN);
    shown.truncate(SHOWN);
    let text = shown.join(", ");
    if more > 0 { format!("{text} and {more} more") } else { text }
}

/// `a → b → … → z`. The middle of a long chain is left out.
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
    let mut parts = dsl::ranges(sorted.iter().map(|index| *index as u32));
    let more = parts.len().saturating_sub(SHOWN);
    if more > 0 {
        parts.truncate(SHOWN);
        parts.push(format!("and {more} more places"));
    }
    let word = if sorted.len() == 1 { "layer" } else { "layers" };
    format!("{word} {}", parts.join(", "))
}
