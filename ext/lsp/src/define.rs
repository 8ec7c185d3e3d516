//! The places where a name is defined. A primitive, which has no text, leads to its row in `LANGUAGE.md`.

use compiler::op::Primitive;
use compiler::resolve::import_target;
use dsl::Span;
use lsp_types::Location;

use crate::index::{Holder, Target};
use crate::model::Thing;
use crate::standard;
use crate::text::Text;
use crate::view::View;

/// The places where the name at a place is defined.
pub(crate) fn definition(view: &View<'_>, offset: usize) -> Vec<Location> {
    let Some(occurrence) = view.model.at(offset) else { return Vec::new() };
    let span = |(start, end): (usize, usize)| Span::new(view.model.file, start, end);
    let span = match &occurrence.target {
        Target::Local(local) => Some(span(local.bound)),
        Target::Primitive(primitive) => return row(view, primitive).into_iter().collect(),
        Target::File(path) => {
            let name = import_target(view.name(), path);
            let file = name.and_then(|name| view.model.loaded.program.sources.find(&name));
            file.map(|file| Span::new(file, 0, 0))
        }
        Target::Definition(_) | Target::Imported(..) | Target::Setting(..) => {
            match view.model.thing(&occurrence.target, view.facts) {
                Some(Thing::Entity(entity)) => Some(entity.name().span),
                Some(Thing::Param(_, param)) => Some(param.name.span),
                Some(Thing::Config(primitive, _) | Thing::Primitive(primitive)) => {
                    return row(view, primitive).into_iter().collect();
                }
                // A field of the arch itself.
                None => match &occurrence.target {
                    Target::Setting(Holder::Arch(arch), path) => written(view, arch, path),
                    _ => None,
                },
            }
        }
        Target::Slot(Holder::Arch(arch), name) => {
            declared(view, arch, name).or_else(|| any_slot(view, name))
        }
        Target::Slot(_, name) => any_slot(view, name),
        Target::ArchField(name) => {
            let archs = view.facts.map_or(&[] as &[_], |facts| &facts.archs);
            let mut places: Vec<Span> = archs
                .iter()
                .filter_map(|arch| written(view, &arch.name, std::slice::from_ref(name)))
                .collect();
            places.sort();
            places.dedup();
            return places.into_iter().filter_map(|span| view.location(span)).collect();
        }
        Target::Role(_) | Target::BuiltIn(_) => None,
    };
    span.and_then(|span| view.location(span)).into_iter().collect()
}

/// The place where a field of an arch is written: in the arch itself, or in the one that it is made from.
fn written(view: &View<'_>, arch: &str, path: &[String]) -> Option<Span> {
    let facts = view.facts?;
    let path = path.join(".");
    let span_in = |name: &str| {
        let fields = &facts.arch(name)?.observed.fields;
        fields.iter().find(|field| field.path == path).map(|field| field.span)
    };
    let base = view.model.base(arch).and_then(|base| span_in(&base));
    view.today(base.or_else(|| span_in(arch))?)
}

/// The place where the layers of an arch declare a slot.
fn declared(view: &View<'_>, arch: &str, slot: &str) -> Option<Span> {
    let observed = &view.facts?.arch(arch)?.observed;
    let declaration = observed.names.get(&format!("slots.{slot}"))?;
    view.today(*declaration)
}

/// The place where any arch of the document declares a slot.
fn any_slot(view: &View<'_>, slot: &str) -> Option<Span> {
    view.facts?.archs.iter().find_map(|arch| declared(view, &arch.name, slot))
}

/// The row of a primitive in the description of the language.
fn row(view: &View<'_>, primitive: &Primitive) -> Option<Location> {
    let (uri, text) = standard::language(view.store)?;
    let start = text.find(&format!("\n| `{}` |", primitive.name))? + 1;
    let end = start + text.get(start..)?.find('\n')?;
    let range = Text::new(text.to_owned(), view.encoding).range(start, end);
    Some(Location { uri, range })
}
