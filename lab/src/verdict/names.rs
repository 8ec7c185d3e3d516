//! Names with more than one meaning: in the two arms, or in an arm and in the standard library or the primitives.

use std::collections::{BTreeMap, BTreeSet};

use dsl::FileId;

use super::definitions::{Definition, Definitions};
use super::model::{Meaning, Namesake, Origin, Redefined};
use super::sources::{Sources, arch_offset};
use crate::experiment::{LockedArch, line_of};
use compiler::digest::Digest;
use compiler::op;

/// How a definition relates to canonc's own meaning of its name.
fn origin(name: &str, definition: &Definition, standard: &Definitions) -> Origin {
    match standard.digest(name) {
        Some(digest) if digest == definition.digest => Origin::Standard,
        Some(_) => Origin::OtherThanStandard,
        None if op::find(name).is_some() => Origin::OtherThanPrimitive,
        None => Origin::Own,
    }
}

/// The definitions of both arms, and the standard library's.
pub(super) struct Names<'a> {
    arms: [&'a Definitions; 2],
    standard: &'static Definitions,
}

impl<'a> Names<'a> {
    pub(super) fn new(arms: [&'a Definitions; 2]) -> Names<'a> {
        Names { arms, standard: Definitions::standard() }
    }

    pub(super) fn reversed(&self) -> Names<'a> {
        let [a, b] = self.arms;
        Names { arms: [b, a], standard: self.standard }
    }

    /// Whether a name must be printed with its digest.
    fn ambiguous(&self, name: &str) -> bool {
        let [a, b] = self.arms.map(|arm| arm.get(name));
        let redefined = [a, b]
            .into_iter()
            .flatten()
            .any(|definition| origin(name, definition, self.standard).redefines());
        match (a, b) {
            (Some(a), Some(b)) => redefined || a.digest != b.digest,
            (Some(_), None) | (None, Some(_)) => redefined,
            (None, None) => false,
        }
    }

    /// A value as one arm writes it. A definition under an ambiguous name gets its kind and digest.
    pub(super) fn called(&self, arm: usize, value: &str) -> String {
        let definition = self.arms.get(arm).and_then(|arm| arm.get(value));
        match definition.filter(|_| self.ambiguous(value)) {
            Some(Definition { kind, digest, .. }) => format!("{value} [{kind} {}]", digest.short()),
            None => value.to_owned(),
        }
    }

    /// Every ambiguous name. `used` are the names in each arm's fields, including primitives.
    pub(super) fn all(&self, used: [&BTreeSet<&str>; 2], sources: &Sources<'_>) -> Vec<Namesake> {
        let [a, b] = self.arms;
        let names: BTreeSet<&String> = a.names().chain(b.names()).collect();
        let ambiguous = names.into_iter().filter(|name| self.ambiguous(name));
        let namesake = |name: &String| {
            let meanings = [0, 1].map(|i| match self.arms[i].get(name) {
                Some(definition) => Some(Meaning::Defined {
                    kind: definition.kind,
                    digest: definition.digest,
                    origin: origin(name, definition, self.standard),
                    place: sources.arch(definition.span),
                }),
                None if used[i].contains(name.as_str()) => {
                    let primitive = op::find(name)?;
                    Some(Meaning::Primitive { revision: primitive.revision })
                }
                None => None,
            });
            Namesake { name: name.clone(), meanings }
        };
        ambiguous.map(namesake).collect()
    }
}

/// The definitions of an arch by name: kind and digest.
pub fn definitions(arch: &LockedArch) -> BTreeMap<String, (&'static str, Digest)> {
    let definitions = Definitions::new(FileId(0), &arch.text);
    let one = |name: &String| {
        let Definition { kind, digest, .. } = definitions.get(name)?;
        Some((name.clone(), (*kind, *digest)))
    };
    definitions.names().filter_map(one).collect()
}

/// The definitions of an arch under names that mean something else in canonc. `lock` is the text of its lock.
pub fn redefinitions(arch: &LockedArch, lock: &str) -> Vec<Redefined> {
    let definitions = Definitions::new(FileId(0), &arch.text);
    let standard = Definitions::standard();
    let all = definitions.names().filter_map(|name| {
        let definition = definitions.get(name)?;
        let origin = origin(name, definition, standard);
        let Definition { kind, digest, span, text: _ } = definition;
        origin.redefines().then(|| Redefined {
            name: name.clone(),
            kind,
            digest: *digest,
            line: arch_offset(lock) + line_of(&arch.text, span.start as usize),
            origin,
        })
    });
    all.collect()
}
