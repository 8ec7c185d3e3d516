//! The definitions of an arch's text, with a digest of what each computes.
//!
//! A digest depends on the content of a definition and of the definitions it uses, never on their names. Comments and layout
//! leave no trace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use dsl::{FileId, Item, Name, Span};

use super::model::{Change, SourceLine, Subject};
use super::normal::constant;
use super::sources::Sources;
use compiler::digest::Digest;
use compiler::program::STD;
use compiler::rename::Rename;
use compiler::{names, op};

const TAG: &str = "canonc.definition.v1";

/// The definitions of one text, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Definitions {
    all: BTreeMap<String, Definition>,
    /// The default of each configuration value with the names it refers to, by definition and name.
    rules: BTreeMap<String, BTreeMap<String, String>>,
}

/// One definition.
#[derive(Clone, Debug)]
pub(super) struct Definition {
    /// `block`, `mixer`, `mlp`, `head`, `init`, or `alias` for a name given to another definition.
    pub(super) kind: &'static str,
    /// Its own text.
    pub(super) text: String,
    pub(super) span: Span,
    /// Digest of its text and of the digests of the definitions it uses, without names.
    pub(super) digest: Digest,
}

/// An item that defines something, with its name.
fn named(item: &Item) -> Option<(&Name, &'static str)> {
    match item {
        Item::Def(def) => Some((&def.name, def.kind.word())),
        Item::Alias(alias) => Some((&alias.name, "alias")),
        Item::Init(table) => Some((&table.name, "init")),
        Item::Arch(_) => None,
    }
}

/// An item without its comments.
fn bare(item: &Item) -> Item {
    let mut item = item.clone();
    match &mut item {
        Item::Def(def) => def.docs.clear(),
        Item::Alias(alias) => alias.docs.clear(),
        Item::Init(table) => table.docs.clear(),
        Item::Arch(arch) => arch.docs.clear(),
    }
    item
}

fn printed(item: Item) -> String {
    dsl::print(&dsl::Ast { items: vec![item], ..dsl::Ast::default() })
}

/// Digests of items by name. Calls form a DAG, so each digest includes those of the items it uses.
fn digests(items: &BTreeMap<String, Item>) -> BTreeMap<String, Digest> {
    let mut done: BTreeMap<String, Digest> = BTreeMap::new();
    let mut open: Vec<(&String, bool)> = items.keys().map(|name| (name, false)).collect();
    let mut entered: BTreeSet<&String> = BTreeSet::new();
    while let Some((name, uses_done)) = open.pop() {
        let Some(item) = items.get(name).filter(|_| !done.contains_key(name)) else { continue };
        if uses_done {
            done.insert(name.clone(), digest(item, &done));
        } else if entered.insert(name) {
            open.push((name, true));
            let used = names::references(item);
            let known = used.iter().filter_map(|used| items.get_key_value(&used.text));
            open.extend(known.map(|(name, _)| (name, false)));
        }
    }
    done
}

fn digest(item: &Item, known: &BTreeMap<String, Digest>) -> Digest {
    let mut item = item.clone();
    Rename::new(|name: &str| known.get(name).map(|digest| format!("d{digest}"))).item(&mut item);
    let nameless = "it".to_owned();
    match &mut item {
        Item::Def(def) => def.name.text = nameless,
        Item::Alias(alias) => alias.name.text = nameless,
        Item::Init(table) => table.name.text = nameless,
        Item::Arch(arch) => arch.name.text = nameless,
    }
    Digest::of(TAG, &printed(item))
}

impl Definitions {
    pub(super) fn new(file: FileId, text: &str) -> Definitions {
        let (ast, _) = dsl::parse(file, text);
        Definitions::from_items(ast.items.iter().map(bare))
    }

    /// The standard library of this canonc. Parsed once, because a reader of many locks needs it for each.
    pub(super) fn standard() -> &'static Definitions {
        static STANDARD: LazyLock<Definitions> = LazyLock::new(|| {
            let mut sources = dsl::Sources::new();
            let items = STD.iter().flat_map(|(name, text)| {
                let file = sources.add(*name, *text);
                dsl::parse(file, text).0.items
            });
            Definitions::from_items(items.map(|item| bare(&item)))
        });
        &STANDARD
    }

    fn from_items(items: impl Iterator<Item = Item>) -> Definitions {
        let items = items.filter_map(|item| Some((named(&item)?.0.text.clone(), item)));
        let items: BTreeMap<String, Item> = items.collect();
        let digests = digests(&items);
        let mut all = BTreeMap::new();
        for (name, item) in &items {
            let (Some((at, kind)), Some(digest)) = (named(item), digests.get(name)) else {
                continue;
            };
            let (span, digest) = (at.span, *digest);
            let text = printed(item.clone());
            all.insert(name.clone(), Definition { kind, text, span, digest });
        }
        let rules = rules(&items, &digests);
        Definitions { all, rules }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Definition> {
        self.all.get(name)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.all.contains_key(name)
    }

    pub(super) fn digest(&self, name: &str) -> Option<Digest> {
        Some(self.all.get(name)?.digest)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.all.keys()
    }

    /// The rule for a definition's configuration value that nobody writes.
    pub(super) fn rule(&self, definition: &str, name: &str) -> Option<String> {
        match self.has(definition) {
            true => self.rules.get(definition)?.get(name).cloned(),
            false => constant(op::find(definition)?, name),
        }
    }
}

/// The default of each configuration value, with the defaults and definitions that it refers to.
fn rules(
    items: &BTreeMap<String, Item>,
    digests: &BTreeMap<String, Digest>,
) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut rules: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for (name, item) in items {
        let Item::Def(def) = item else { continue };
        let known = rules.entry(name.clone()).or_default();
        let configured: BTreeSet<&str> = def.config.iter().map(|c| c.name.text.as_str()).collect();
        for param in &def.config {
            let Some(default) = &param.default else { continue };
            let mut rule = dsl::print_expr(default);
            for used in names::mentions(default) {
                // A configuration value of the definition shadows the arch's field with that name.
                rule += &match known.get(&used) {
                    Some(before) => format!("\n{used} = {before}"),
                    None if configured.contains(used.as_str()) => format!("\n{used} is given"),
                    None => digests.get(&used).map(Digest::to_string).unwrap_or_default(),
                };
            }
            known.insert(param.name.text.clone(), rule);
        }
    }
    rules
}

/// Definitions with one name and different texts, for a confound that no field explains.
pub(super) fn differing_definitions(
    definitions: [&Definitions; 2],
    sources: &Sources<'_>,
) -> Vec<Change> {
    let [a, b] = definitions;
    let names: BTreeSet<&String> = a.names().chain(b.names()).collect();
    let mut changes = Vec::new();
    for name in names {
        let (ours, theirs) = (a.get(name), b.get(name));
        if ours.map(|d| &d.text) == theirs.map(|d| &d.text) {
            continue;
        }
        let (below, [a, b]) = match (ours, theirs) {
            (Some(a), Some(b)) => {
                let (line, differ) = first_difference(&a.text, &b.text);
                (line, differ.map(Some))
            }
            (Some(_), None) => (0, [Some("defined".to_owned()), None]),
            (None, Some(_)) => (0, [None, Some("defined".to_owned())]),
            (None, None) => continue,
        };
        let places = [ours, theirs].map(|definition| {
            let start = sources.arch(definition?.span);
            Some(SourceLine { line: start.line + below, ..start })
        });
        changes.push(Change {
            path: format!("definition {name}"),
            subject: Subject::Definition,
            a,
            b,
            defaults: [false, false],
            places,
            note: String::new(),
        });
    }
    changes
}

/// The first line where two texts differ: its number from 0, and both lines.
pub(super) fn first_difference(a: &str, b: &str) -> (usize, [String; 2]) {
    let (mut a, mut b) = (a.lines(), b.lines());
    let mut line = 0;
    loop {
        let (x, y) = (a.next(), b.next());
        if x != y || x.is_none() {
            let shown = |line: Option<&str>| line.unwrap_or("(nothing more)").trim().to_owned();
            return (line, [x, y].map(shown));
        }
        line += 1;
    }
}
