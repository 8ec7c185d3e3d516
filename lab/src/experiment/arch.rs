//! The architecture in a lock: its canonical text, compiled without std. Everything that a lock contains about an arch
//! is derived from this text, so a lock keeps its meaning when std changes.

use std::collections::BTreeMap;
use std::rc::Rc;

use dsl::{FileId, Span};

use crate::error::{self, LockError};
use compiler::canonical::{Identity, OpenForm, open_form, unfilled_form};
use compiler::digest::Digest;
use compiler::graph::{Body, Graph, NodeKind};
use compiler::program::{Compiled, Program, Std};

/// The text's file name in a lock.
const FILE: &str = "arch";
const ID_TAG: &str = "canonc.arch.v1";

/// An arch and its text.
#[derive(Clone, Debug)]
pub struct LockedArch {
    /// Name of the arch.
    pub name: String,
    /// The canonical text: every definition it uses, then the arch.
    pub text: String,
    /// The arch compiled from `text`.
    pub compiled: Compiled,
}

impl LockedArch {
    /// Locks an arch compiled from a user's files.
    pub fn new(compiled: &Compiled) -> Result<LockedArch, LockError> {
        let locked = LockedArch::from_text(&compiled.name, &compiled.text)?;
        if locked.compiled.identity != compiled.identity {
            return Err(error::inconsistent(&format!(
                "the text of `{}` alone gives another graph than its sources",
                compiled.name
            )));
        }
        Ok(locked)
    }

    /// Compiles the text from a lock.
    pub fn from_text(name: &str, text: &str) -> Result<LockedArch, LockError> {
        let program = Program::new([(FILE.to_owned(), text.to_owned())], Std::None);
        let (compiled, diagnostics) = program.compile(FILE, name);
        let broken = program.diagnostics.iter().chain(&diagnostics).find(|d| d.is_error());
        let Some(compiled) = compiled.filter(|_| broken.is_none()) else {
            let reason = broken.map_or("it does not compile", |d| d.message.as_str());
            return Err(error::broken_arch(name, reason));
        };
        if compiled.text != text {
            return Err(error::not_canonical(name));
        }
        Ok(LockedArch { name: name.to_owned(), text: text.to_owned(), compiled })
    }

    /// The graph with every declared slot, from the text alone.
    pub fn open_form(&self) -> Option<OpenForm> {
        self.open().map(|graph| open_form(&graph))
    }

    /// The digest of the open form without the fills of slots.
    pub fn unfilled_form(&self) -> Option<Digest> {
        self.open().map(|graph| unfilled_form(&graph))
    }

    fn open(&self) -> Option<Graph> {
        let program = Program::new([(FILE.to_owned(), self.text.clone())], Std::None);
        program.open(FILE, &self.name)
    }

    /// Digests of graph and manifest, with the hashed texts.
    pub fn identity(&self) -> &Identity {
        &self.compiled.identity
    }

    /// What identifies the arch: its graph and its manifest.
    pub fn id(&self) -> Digest {
        let Identity { graph_text: _, graph, manifest_text: _, manifest } = self.identity();
        Digest::of(ID_TAG, &format!("graph = \"{graph}\"\nmanifest = \"{manifest}\"\n"))
    }

    /// The line of a span in the text, counted from 1.
    pub fn line(&self, span: Span) -> usize {
        line_of(&self.text, span.start as usize)
    }

    /// The primitives it uses, with the revision of each.
    pub fn revisions(&self) -> BTreeMap<&'static str, u32> {
        let mut revisions = BTreeMap::new();
        let mut seen = Vec::new();
        collect_revisions(&self.compiled.graph.top, &mut seen, &mut revisions);
        revisions
    }
}

fn collect_revisions(
    body: &Body,
    seen: &mut Vec<*const Body>,
    revisions: &mut BTreeMap<&'static str, u32>,
) {
    let mut last: Option<*const Body> = None;
    for node in &body.nodes {
        match &node.kind {
            NodeKind::Input(_) | NodeKind::Param(_) => {}
            NodeKind::Op { primitive, .. } => {
                revisions.insert(primitive.name, primitive.revision);
            }
            NodeKind::Slot { fill: inner, .. } | NodeKind::Layer { body: inner, .. } => {
                let address = Rc::as_ptr(inner);
                // Equal layers are usually neighbours, so the list is rarely searched.
                if last != Some(address) && !seen.contains(&address) {
                    seen.push(address);
                    collect_revisions(inner, seen, revisions);
                }
                last = Some(address);
            }
        }
    }
}

/// The line of a byte in a text, counted from 1.
pub(crate) fn line_of(text: &str, byte: usize) -> usize {
    1 + text.bytes().take(byte).filter(|b| *b == b'\n').count()
}

/// Two arch texts as one program, so that parts of one can be used in the other.
pub(crate) fn together(a: &LockedArch, b: &LockedArch) -> (Program, [FileId; 2]) {
    let files = [("a".to_owned(), a.text.clone()), ("b".to_owned(), b.text.clone())];
    let program = Program::new(files, Std::None);
    let ids = match program.files() {
        [a, b, ..] => [*a, *b],
        _ => [FileId(0), FileId(1)],
    };
    (program, ids)
}
