//! Names with more than one meaning.
//!
//! In: the definitions of both arms. Out: each name that means different things in the two arms, or something
//! other than in the standard library or the primitives. Must stay true: every output that prints such
//! a name identifies the definition.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use dsl::FileId;

use super::definitions::{Definition, Definitions};
use super::judge::{Place, Sources, arch_offset};
use crate::experiment::{LockedArch, line_of};
use compiler::digest::Digest;
use compiler::op;

/// The meaning of a name in one arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A primitive of this canonc.
    Primitive {
        /// Revision of its mathematics.
        revision: u32,
    },
    /// A definition in the arm's own text.
    Defined {
        /// `mixer`, `block`, …
        kind: &'static str,
        /// Digest of the definition without names.
        digest: Digest,
        /// How it relates to the own meaning of the name in canonc.
        origin: Origin,
        /// Line of the definition.
        place: Place,
    },
}

/// How a definition relates to canonc's own meaning of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Equal to the standard library's definition.
    Standard,
    /// The standard library defines this name differently.
    OtherThanStandard,
    /// A primitive has this name, and the standard library does not define it.
    OtherThanPrimitive,
    /// Nothing else has this name.
    Own,
}

impl Origin {
    fn find(name: &str, own: &Definition, standard: &Definitions) -> Origin {
        match standard.digest(name) {
            Some(digest) if digest == own.digest => Origin::Standard,
            Some(_) => Origin::OtherThanStandard,
            None if op::find(name).is_some() => Origin::OtherThanPrimitive,
            None => Origin::Own,
        }
    }

    fn redefines(self) -> bool {
        match self {
            Origin::OtherThanStandard | Origin::OtherThanPrimitive => true,
            Origin::Standard | Origin::Own => false,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Origin::Standard => ", the one in std",
            Origin::OtherThanStandard => ", not the one in std",
            Origin::OtherThanPrimitive => ", not the primitive",
            Origin::Own => "",
        })
    }
}

/// One name and its meaning in each arm; `None` if an arm does not use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namesake {
    /// The name.
    pub name: String,
    /// Its meaning in each arm.
    pub meanings: [Option<Meaning>; 2],
}

impl Namesake {
    /// The name and its meanings in one line; `arms` are the names of the arms.
    pub fn line(&self, arms: [&str; 2]) -> String {
        let Namesake { name, meanings: [a, b] } = self;
        let uses = |arm: &str, meaning: &Meaning| format!("{arm} uses {meaning}");
        match (a, b) {
            (Some(a), Some(b)) if a.same(b) => format!("`{name}`: both use {a}"),
            (a, b) => {
                let both = [a, b].into_iter().zip(arms);
                let each = both.filter_map(|(meaning, arm)| Some(uses(arm, meaning.as_ref()?)));
                format!("`{name}`: {}", each.collect::<Vec<_>>().join("; "))
            }
        }
    }
}

/// A definition in an arch's text under a name that means something else in canonc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redefined {
    /// The name.
    pub name: String,
    /// `mixer`, `block`, …
    pub kind: &'static str,
    /// Digest of the definition without names.
    pub digest: Digest,
    /// Its line in the lock.
    pub line: usize,
    /// What the name means in canonc: the standard library's definition or a primitive.
    pub origin: Origin,
}

impl fmt::Display for Redefined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Redefined { name, kind, digest, line, origin } = self;
        write!(f, "`{name}` is a {kind} of this arch, {}{origin}, on line {line}", digest.short())
    }
}

impl Meaning {
    /// Whether two meanings are equal, wherever they are defined.
    pub fn same(&self, other: &Meaning) -> bool {
        match (self, other) {
            (Meaning::Primitive { .. }, Meaning::Primitive { .. }) => true,
            (Meaning::Defined { digest: a, .. }, Meaning::Defined { digest: b, .. }) => a == b,
            (Meaning::Primitive { .. }, Meaning::Defined { .. })
            | (Meaning::Defined { .. }, Meaning::Primitive { .. }) => false,
        }
    }
}

impl fmt::Display for Meaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Meaning::Primitive { revision } => write!(f, "the primitive, revision {revision}"),
            Meaning::Defined { kind, digest, origin, place } => {
                write!(f, "{kind} {}{origin}, at {place}", digest.short())
            }
        }
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
        let own = [a, b]
            .into_iter()
            .flatten()
            .any(|own| Origin::find(name, own, self.standard).redefines());
        match (a, b) {
            (Some(a), Some(b)) => own || a.digest != b.digest,
            (Some(_), None) | (None, Some(_)) => own,
            (None, None) => false,
        }
    }

    /// A value as one arm writes it. A definition under an ambiguous name gets its kind and digest.
    pub(super) fn called(&self, arm: usize, value: &str) -> String {
        let own = self.arms.get(arm).and_then(|arm| arm.get(value));
        match own.filter(|_| self.ambiguous(value)) {
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
                Some(own) => Some(Meaning::Defined {
                    kind: own.kind,
                    digest: own.digest,
                    origin: Origin::find(name, own, self.standard),
                    place: sources.arch(own.span),
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
    let own = Definitions::new(FileId(0), &arch.text);
    let one = |name: &String| {
        let Definition { kind, digest, .. } = own.get(name)?;
        Some((name.clone(), (*kind, *digest)))
    };
    own.names().filter_map(one).collect()
}

/// The definitions of an arch under names that mean something else in canonc. `lock` is the text of its lock.
pub fn redefinitions(arch: &LockedArch, lock: &str) -> Vec<Redefined> {
    let own = Definitions::new(FileId(0), &arch.text);
    let standard = Definitions::standard();
    let all = own.names().filter_map(|name| {
        let definition = own.get(name)?;
        let origin = Origin::find(name, definition, standard);
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
