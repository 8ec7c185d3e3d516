//! The canonical text of an architecture: everything it uses, std included, and no `with`.
//!
//! In: an arch's tree. Out: `.canon` text that compiles alone to the same graph and manifest. Must
//! stay true: depends on the tree only, not on how it was edited; two definitions of one name (a
//! person's and std's) are told apart by a number; what a lock keeps is this text.

use std::collections::BTreeMap;
use std::rc::Rc;

use dsl::{
    Arch, ArchBody, Ast, Entry, Expr, ExprKind, FileId, Item, LayerList, LayerWhat, Name, Path,
    Segment, Span,
};

use crate::names;
use crate::rename::Rename;
use crate::resolve::{Entity, Library};
use crate::tree::{Applied, ArchTree, Callable, Layer, Setting, SettingValue};
use crate::value::Value;

/// The text of the arch and all it needs.
pub fn text(library: &Library, tree: &ArchTree) -> String {
    let nowhere = Span::new(FileId(0), 0, 0);
    let mut inliner = Inliner { library, names: BTreeMap::new(), taken: BTreeMap::new(), items: Vec::new(), nowhere };
    let arch = inliner.arch(tree);
    let mut items = inliner.items;
    items.sort_by_key(|(rank, name, _)| (*rank, name.clone()));
    let mut ast = Ast { items: items.into_iter().map(|(_, _, item)| item).collect(), ..Ast::default() };
    ast.items.push(Item::Arch(arch));
    dsl::print(&ast)
}

struct Inliner<'a> {
    library: &'a Library,
    /// What each definition, by home and name, is called in the text.
    names: BTreeMap<(FileId, String), String>,
    taken: BTreeMap<String, usize>,
    items: Vec<(u8, String, Item)>,
    nowhere: Span,
}

impl Inliner<'_> {
    fn name(&self, text: impl Into<String>) -> Name {
        Name { text: text.into(), span: self.nowhere }
    }

    fn path(&self, text: &str) -> Path {
        Path { segments: vec![Segment::Name(self.name(text))], span: self.nowhere }
    }

    fn arch(&mut self, tree: &ArchTree) -> Arch {
        let span = self.nowhere;
        let mut entries = Vec::new();
        for field in crate::tree::ARCH_FIELDS {
            if let Some(setting) = tree.fields.get(field) {
                entries.push(self.entry(field, setting));
            }
        }
        if let Some(head) = &tree.head {
            let value = self.applied(head);
            entries.push(Entry::Set { path: self.path("head"), value, span });
        }
        let rows: Vec<Entry> = tree.init.iter().map(|(role, s)| self.entry(role, s)).collect();
        if !rows.is_empty() {
            entries.push(Entry::Nested { path: self.path("init"), entries: rows, span });
        }
        let what = LayerWhat::List(self.layers(&tree.layers));
        entries.push(Entry::Layers { value: LayerList { count: None, what, span }, span });
        Arch {
            docs: Vec::new(),
            name: self.name(&tree.name),
            body: ArchBody::Fields(entries),
            span,
        }
    }

    fn entry(&mut self, name: &str, setting: &Setting) -> Entry {
        let value = match &setting.value {
            SettingValue::Def(applied) => self.applied(applied),
            SettingValue::Expr(expr, file) => self.expr(expr, *file),
            SettingValue::Known(value) => self.literal(value),
        };
        Entry::Set { path: self.path(name), value, span: self.nowhere }
    }

    fn literal(&self, value: &Value) -> Expr {
        let kind = match value {
            Value::Int(n) => ExprKind::Int(*n),
            Value::Decimal(d) => ExprKind::Decimal(*d),
            Value::Bool(v) => ExprKind::Bool(*v),
            Value::Word(_)
            | Value::Ratio(..)
            | Value::Root(_)
            | Value::Def(..)
            | Value::Instance(_)
            | Value::Init(_)
            | Value::Tensors(_) => ExprKind::Name(value.text()),
        };
        Expr { kind, span: self.nowhere }
    }

    fn applied(&mut self, applied: &Rc<Applied>) -> Expr {
        let span = self.nowhere;
        let def = match &applied.callee {
            Callable::Primitive(p) => self.name(p.name),
            Callable::Def(item) => {
                let name = self.entity(item.file, &Entity::Def(item.clone()));
                self.name(name)
            }
        };
        let mut entries: Vec<Entry> =
            applied.config.iter().map(|(name, setting)| self.entry(name, setting)).collect();
        for (slot, setting) in &applied.slots {
            let slots = vec![self.path(slot)];
            if let Some(fill) = &setting.fill {
                let with = self.applied(fill);
                entries.push(Entry::Fill { slots, with, span });
            }
        }
        let kind = if entries.is_empty() {
            ExprKind::Name(def.text)
        } else {
            ExprKind::Applied { def, entries }
        };
        Expr { kind, span }
    }

    /// The expression with definitions called what they are called in the text.
    fn expr(&mut self, expr: &Expr, file: FileId) -> Expr {
        let mut copy = expr.clone();
        let mut rename = Rename::new(|name: &str| self.reference(file, name));
        rename.expr(&mut copy);
        copy
    }

    fn reference(&mut self, file: FileId, name: &str) -> Option<String> {
        let entity = self.library.lookup(file, name)?;
        if matches!(entity, Entity::Arch(..)) {
            return None;
        }
        let home = match &entity {
            Entity::Def(item) => item.file,
            Entity::Alias(_, home) | Entity::Init(_, home) | Entity::Arch(_, home) => *home,
        };
        Some(self.entity(home, &entity))
    }

    /// Adds a definition, and what it uses, once; returns what it is called.
    fn entity(&mut self, home: FileId, entity: &Entity) -> String {
        let original = entity.name().text.clone();
        let key = (home, original.clone());
        if let Some(name) = self.names.get(&key) {
            return name.clone();
        }
        let count = self.taken.entry(original.clone()).or_insert(0);
        *count += 1;
        let name = if *count == 1 { original } else { format!("{original}_{count}") };
        self.names.insert(key, name.clone());
        let mut item = match entity {
            Entity::Def(item) => Item::Def(item.def.clone()),
            Entity::Alias(alias, _) => Item::Alias(alias.as_ref().clone()),
            Entity::Init(table, _) => Item::Init(table.as_ref().clone()),
            Entity::Arch(arch, _) => Item::Arch(arch.as_ref().clone()),
        };
        // What it uses first, in order of mention, so that numbering is stable.
        for used in names::references(&item) {
            self.reference(home, &used.text);
        }
        let mut rename = Rename::new(|name: &str| self.reference(home, name));
        rename.item(&mut item);
        let rank = match &mut item {
            Item::Def(def) => {
                def.docs.clear();
                def.name.text.clone_from(&name);
                1
            }
            Item::Alias(alias) => {
                alias.docs.clear();
                alias.name.text.clone_from(&name);
                2
            }
            Item::Init(table) => {
                table.docs.clear();
                table.name.text.clone_from(&name);
                0
            }
            Item::Arch(_) => 3,
        };
        self.items.push((rank, name.clone(), item));
        name
    }

    /// Layers as runs: the longest repetition from each place, shortest period first.
    fn layers(&mut self, layers: &[Layer]) -> Vec<LayerList> {
        let span = self.nowhere;
        let same = |a: &Layer, b: &Layer| Rc::ptr_eq(&a.applied, &b.applied) && a.share == b.share;
        let mut out = Vec::new();
        let mut at = 0;
        while let Some(layer) = layers.get(at) {
            let rest = &layers[at..];
            let mut best = (1usize, 1usize);
            for period in 1..=rest.len().min(32) {
                let repeats = rest
                    .chunks_exact(period)
                    .take_while(|c| c.iter().zip(rest).all(|(a, b)| same(a, b)))
                    .count();
                if repeats > 1 && repeats * period > best.0 * best.1 {
                    best = (period, repeats);
                }
            }
            let (period, repeats) = best;
            let count = (repeats > 1)
                .then(|| Expr { kind: ExprKind::Int(repeats as i64), span });
            let what = if period == 1 {
                LayerWhat::One { share: layer.share.is_some(), layer: self.applied(&layer.applied) }
            } else {
                LayerWhat::List(self.layers(&rest[..period]))
            };
            out.push(LayerList { count, what, span });
            at += period * repeats;
        }
        out
    }
}
