//! Hover: the meaning of a name, its value, and where the value comes from. Facts about the language come from the compiler
//! and `LANGUAGE.md`.

use std::collections::BTreeMap;

use compiler::elaborate::Field;
use compiler::graph::Param;
use compiler::op::{self, Config, Primitive};
use compiler::resolve::Entity;
use lab::experiment::layer_sets;

use crate::index::{Local, LocalKind, Target};
use crate::model::{self, Thing};
use crate::view::{Known, View};

/// Most lines of one list.
const MAX_LINES: usize = 8;

/// What is known of a place.
pub(crate) fn hover(view: &View<'_>, offset: usize) -> Option<(String, usize, usize)> {
    let Some(occurrence) = view.model.at(offset) else {
        let (start, end, known) = view.around(offset)?;
        let text = view.model.text.get(start..end)?;
        return Some((format!("{}\n\n{}", code(text), values(view, &known)), start, end));
    };
    let (start, end) = (occurrence.start, occurrence.end);
    let word = view.model.text.get(start..end).unwrap_or("");
    let mut parts: Vec<String> = Vec::new();
    match &occurrence.target {
        Target::Local(local) => parts.extend(describe_local(view, local, start, end)),
        Target::Definition(name) | Target::Imported(_, name) => {
            match view.model.thing(&occurrence.target, view.facts) {
                Some(Thing::Entity(entity)) => parts.extend(describe_entity(view, &entity)),
                Some(Thing::Primitive(primitive)) => parts.push(describe_primitive(primitive)),
                Some(Thing::Param(..) | Thing::Config(..)) | None => {
                    parts.push(format!("`{name}` is not defined"));
                }
            }
        }
        Target::Primitive(primitive) => {
            parts.push(describe_primitive(primitive));
            parts.extend(describe_call(view, start));
        }
        Target::BuiltIn(name) => parts.push(describe_built_in(name)),
        Target::ArchField(name) => {
            parts.push(format!("`{name}`, a field of the arch"));
            parts.push(values(view, &view.values(start, end)));
        }
        Target::Setting(_, path) => {
            parts.push(describe_setting(view, &occurrence.target, path, word));
            parts.extend(describe_fields(view, start, end, word));
        }
        Target::Slot(_, name) => {
            parts.push(format!("slot `{name}`"));
            parts.extend(describe_slot(view, name));
        }
        Target::Role(role) => {
            parts.push(format!("the initial distribution of parameters with the role `{role}`"));
            parts.extend(describe_fields(view, start, end, word));
        }
        Target::File(path) => {
            let name = compiler::resolve::import_target(view.name(), path)?;
            let names = defined(view, &name);
            parts.push(format!("`{name}`"));
            if !names.is_empty() {
                parts.push(format!("defines {}", names.join(", ")));
            }
        }
    }
    parts.retain(|part| !part.is_empty());
    (!parts.is_empty()).then(|| (parts.join("\n\n"), start, end))
}

fn describe_setting(view: &View<'_>, target: &Target, path: &[String], word: &str) -> String {
    match view.model.thing(target, view.facts) {
        Some(Thing::Param(item, param)) => {
            let default = param.default.as_ref().map_or_else(
                || "required".to_owned(),
                |default| format!("default `{}`", dsl::print_expr(default)),
            );
            let (kind, holder) = (item.def.kind.word(), &item.def.name.text);
            format!("`{word}` of {kind} `{holder}`, {default}")
        }
        Some(Thing::Config(primitive, config)) => {
            format!("`{word}` of `{}`: {}", primitive.name, describe_config(config))
        }
        Some(Thing::Entity(_) | Thing::Primitive(_)) | None => format!("`{}`", path.join(".")),
    }
}

/// The names that a file of the program defines.
fn defined(view: &View<'_>, name: &str) -> Vec<String> {
    let sources = &view.model.loaded.program.sources;
    let Some(file) = sources.find(name) else { return Vec::new() };
    let (ast, _) = dsl::parse(file, sources.text(file));
    ast.items.iter().map(|item| format!("`{}`", item.name().text)).collect()
}

pub(crate) fn code(text: &str) -> String {
    format!("```canon\n{text}\n```")
}

fn describe_local(view: &View<'_>, local: &Local, start: usize, end: usize) -> Vec<String> {
    let owner = view.model.ast.items.get(local.item).map_or("", |item| &item.name().text);
    let name = &local.name;
    let what = match local.kind {
        LocalKind::Tensor => format!("a tensor that `{owner}` takes"),
        LocalKind::Config => format!("configuration of `{owner}`"),
        LocalKind::Let => format!("bound in `{owner}`"),
        LocalKind::Param => format!("a parameter of `{owner}`"),
        LocalKind::Share => format!("an instance that `{owner}` shares"),
        LocalKind::Carry => "a tensor that passes from layer to layer".to_owned(),
        LocalKind::Instance => format!("an instance in `{owner}`"),
    };
    let mut parts = vec![format!("`{name}`, {what}")];
    let mut known = view.values(start, end);
    let bound = view.values(local.bound.0, local.bound.1);
    if known.is_empty() || (local.kind == LocalKind::Config && !bound.is_empty()) {
        known = bound;
    }
    parts.push(values(view, &known));
    if matches!(local.kind, LocalKind::Instance | LocalKind::Param | LocalKind::Share) {
        parts.extend(describe_params(&view.params(local.bound.0, local.bound.1, name)));
    }
    parts
}

/// The parameters of the call that begins at a place, if it names no instance.
fn describe_call(view: &View<'_>, start: usize) -> Vec<String> {
    let name = view.model.at(start).and_then(|occurrence| match &occurrence.target {
        Target::Primitive(primitive) => Some(primitive.name),
        _ => None,
    });
    let Some(name) = name else { return Vec::new() };
    describe_params(&view.params(start, start + name.len(), name))
}

/// Values, one a line, with the archs that have them if these differ.
fn values(view: &View<'_>, known: &[Known<'_>]) -> String {
    let all = view.facts.map_or(0, |facts| facts.archs.len());
    let line = |known: &Known<'_>| {
        let mut line = format!("= `{}`", known.seen.text);
        if let Some((written, origin)) = known.seen.origin
            && let Some(origin) = view.described(origin)
        {
            line += &match written {
                true => format!(", set at {origin}"),
                false => format!(", the default at {origin}"),
            };
        }
        if known.archs.len() < all {
            line += &format!(", in {}", listed(&known.archs));
        }
        line
    };
    let mut lines: Vec<String> = known.iter().take(MAX_LINES).map(line).collect();
    if known.len() > MAX_LINES {
        lines.push(format!("and {} more", known.len() - MAX_LINES));
    }
    lines.join("  \n")
}

fn listed(names: &[&str]) -> String {
    let shown: Vec<String> = names.iter().take(3).map(|name| format!("`{name}`")).collect();
    match names.len() {
        0..=3 => shown.join(", "),
        more => format!("{} and {} more", shown.join(", "), more - 3),
    }
}

fn describe_params(params: &[(&crate::analysis::ArchFacts, Vec<&Param>)]) -> Vec<String> {
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    for (arch, params) in params {
        let rows = params.iter().map(|param| {
            let shape: Vec<String> = param.shape.iter().map(i64::to_string).collect();
            (param.path.as_str(), format!("[{}], {}", shape.join(", "), param.init))
        });
        for (path, about) in grouped(rows) {
            let line = format!("`{path}` {about}");
            match lines.iter_mut().find(|(known, _)| *known == line) {
                Some((_, archs)) => archs.push(&arch.name),
                None => lines.push((line, vec![&arch.name])),
            }
        }
    }
    let several = params.len() > 1;
    let shown = lines.iter().take(MAX_LINES).map(|(line, archs)| match several {
        true => format!("parameter {line}, in {}", listed(archs)),
        false => format!("parameter {line}"),
    });
    let mut shown: Vec<String> = shown.collect();
    if lines.len() > MAX_LINES {
        shown.push(format!("and {} more", lines.len() - MAX_LINES));
    }
    vec![shown.join("  \n")]
}

/// Rows by path, with equal rows of several layers in one: `layers.0..4.mixer.wq`.
pub(crate) fn grouped<'a>(rows: impl Iterator<Item = (&'a str, String)>) -> Vec<(String, String)> {
    let mut order: Vec<(String, String)> = Vec::new();
    let mut layers: BTreeMap<(String, String), Vec<usize>> = BTreeMap::new();
    for (path, about) in rows {
        let numbered = path.strip_prefix("layers.").and_then(|rest| {
            let (number, below) = rest.split_once('.').unwrap_or((rest, ""));
            Some((number.parse::<usize>().ok()?, below.to_owned()))
        });
        let (number, key) = match numbered {
            Some((number, below)) => (Some(number), (format!("layers.\u{0}.{below}"), about)),
            None => (None, (path.to_owned(), about)),
        };
        if !order.contains(&key) {
            order.push(key.clone());
        }
        layers.entry(key).or_default().extend(number);
    }
    let mut out = Vec::new();
    for key in order {
        let numbers = layers.get(&key).cloned().unwrap_or_default();
        let (path, about) = key;
        match numbers.is_empty() {
            true => out.push((path, about)),
            false => {
                for range in layer_sets(&numbers) {
                    let path = path.replace('\u{0}', &range);
                    out.push((path.trim_end_matches('.').to_owned(), about.clone()));
                }
            }
        }
    }
    out
}

/// The fields that an entry sets.
fn describe_fields(view: &View<'_>, start: usize, end: usize, word: &str) -> Vec<String> {
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    for (arch, fields) in view.fields(start, end) {
        let named = |field: &&&Field| field.path.split('.').any(|part| part == word);
        let named = fields.iter().filter(named);
        let rows: Vec<(&str, String)> =
            named.map(|field| (field.path.as_str(), field.value.clone())).collect();
        for (path, value) in grouped(rows.into_iter()) {
            let line = format!("`{path}` = `{value}`");
            match lines.iter_mut().find(|(known, _)| *known == line) {
                Some((_, archs)) => archs.push(&arch.name),
                None => lines.push((line, vec![&arch.name])),
            }
        }
    }
    let all = view.facts.map_or(0, |facts| facts.archs.len());
    let shown = lines.iter().take(MAX_LINES).map(|(line, archs)| match archs.len() < all {
        true => format!("{line}, in {}", listed(archs)),
        false => line.clone(),
    });
    let mut shown: Vec<String> = shown.collect();
    if lines.len() > MAX_LINES {
        shown.push(format!("and {} more", lines.len() - MAX_LINES));
    }
    vec![shown.join("  \n")]
}

/// The fills of a slot in the archs of the document.
fn describe_slot(view: &View<'_>, name: &str) -> Vec<String> {
    let Some(facts) = view.facts else { return Vec::new() };
    let mut lines = Vec::new();
    for arch in &facts.archs {
        let fields = arch.observed.fields.iter();
        let rows = fields.filter(|field| {
            let mut parts = field.path.rsplit('.');
            parts.next() == Some(name) && parts.next() == Some("slots")
        });
        let rows: Vec<(&str, String)> =
            rows.map(|field| (field.path.as_str(), field.value.clone())).collect();
        for (path, value) in grouped(rows.into_iter()) {
            lines.push(format!("`{path}` = `{value}`, in `{}`", arch.name));
        }
    }
    let more = lines.len().saturating_sub(MAX_LINES);
    lines.truncate(MAX_LINES);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    vec![lines.join("  \n")]
}

pub(crate) fn describe_entity(view: &View<'_>, entity: &Entity) -> Vec<String> {
    let file = model::home(entity);
    let text = view.model.loaded.program.sources.text(file);
    let mut parts = vec![code(&signature(text, entity))];
    let docs = model::docs(entity).join("\n");
    parts.push(docs);
    if let Entity::Arch(arch, _) = entity
        && let Some(facts) = view.facts.and_then(|facts| facts.arch(&arch.name.text))
        && !facts.observed.fields.is_empty()
    {
        let elements = facts.observed.params.iter();
        let total: i64 = elements.map(|param| param.shape.iter().product::<i64>()).sum();
        let numbers = facts.observed.fields.iter().filter_map(|field| {
            field.path.strip_prefix("layers.")?.split('.').next()?.parse::<usize>().ok()
        });
        let layers = numbers.max().map_or(0, |last| last + 1);
        parts.push(format!(
            "{} parameters, {}",
            dsl::grouped(total.unsigned_abs()),
            dsl::counted(layers, "layer")
        ));
    }
    if file != view.model.file {
        parts.push(format!("from {}", view.model.name(file)));
    }
    parts
}

/// The head of a definition as written: up to its body.
pub(crate) fn signature(text: &str, entity: &Entity) -> String {
    let slice = |start: u32, end: u32| {
        text.get(start as usize..end as usize).unwrap_or("").trim_end().to_owned()
    };
    match entity {
        Entity::Def(item) => slice(item.def.span.start, item.def.body.span.start),
        Entity::Alias(alias, _) => slice(alias.span.start, alias.span.end),
        Entity::Init(table, _) => slice(table.span.start, table.span.end),
        Entity::Arch(arch, _) => match &arch.body {
            dsl::ArchBody::With { base, .. } => {
                format!("arch {} = {} with", arch.name.text, base.text)
            }
            dsl::ArchBody::Fields(_) => format!("arch {}", arch.name.text),
        },
    }
}

/// A primitive as the table of `LANGUAGE.md` describes it.
pub(crate) fn describe_primitive(primitive: &Primitive) -> String {
    let Primitive { name, doc, config, .. } = primitive;
    let mut text = format!(
        "`{name}`, a primitive: {doc}\n\ntakes {}; {}",
        primitive.takes(),
        primitive.sees()
    );
    if !config.is_empty() {
        text += "\n";
    }
    for config in *config {
        text += &format!("\n- `{}`: {}", config.name, describe_config(config));
    }
    text
}

fn describe_config(config: &Config) -> String {
    format!("{}, {}", config.accepts(), config.default_words())
}

/// The row about a function, a rule or a word in the tables of `LANGUAGE.md`.
pub(crate) fn describe_built_in(name: &str) -> String {
    let rows = dsl::LANGUAGE.lines().filter_map(|line| {
        let (first, rest) = line.strip_prefix("| ")?.split_once(" |")?;
        let names = first.split("`, `").map(|cell| cell.trim_matches('`'));
        let mut names = names.map(|cell| cell.split('(').next().unwrap_or(cell));
        names.any(|cell| cell == name).then(|| (first, rest.trim_matches(['|', ' '])))
    });
    if let Some((first, about)) = rows.into_iter().next() {
        return format!("{first}: {about}");
    }
    let users = op::ALL.iter().filter(|p| {
        p.config.iter().any(|config| match config.kind {
            op::ConfigKind::Word(words) => words.contains(&name),
            _ => false,
        })
    });
    let users: Vec<String> = users.map(|p| format!("`{}`", p.name)).collect();
    match users.is_empty() {
        true => format!("`{name}` is built into the language"),
        false => format!("`{name}`, a word of {}", users.join(", ")),
    }
}
