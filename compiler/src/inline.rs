//! The canonical text of an architecture, which locks store: every definition it uses, including std, and no `with`.
//!
//! The text depends on the tree only, not on how it was edited. Definitions that would collide in one file (two with
//! one name, or one that shadows a primitive another uses) get a number. The canonical text of this text is the text
//! itself.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dsl::{
    Arch, ArchBody, Ast, Diagnostics, Entry, Expr, ExprKind, FileId, Item, LayerList, LayerWhat,
    Name, Path, Segment, Span,
};

use crate::diag;
use crate::names;
use crate::rename::Rename;
use crate::resolve::{Entity, Library};
use crate::tree::{Applied, ArchTree, Callable, Layer, Setting};

/// The text of the arch and every definition it needs.
pub(crate) fn text(
    library: &Library,
    tree: &ArchTree,
    diagnostics: &mut Diagnostics,
) -> Option<String> {
    let mut mentions = Mentions::new(library);
    mentions.tree(tree);
    let called = mentions.names(&tree.name);
    let mut inliner = Inliner {
        library,
        called: &called,
        nowhere: Span::new(FileId(0), 0, 0),
        shared: BTreeMap::new(),
        apart: None,
        printed: 0,
    };
    let arch = inliner.arch(tree);
    if let Some((first, second)) = inliner.apart {
        let span = tree.layers.get(second).map_or(tree.span, |l| l.applied.span);
        diagnostics.push(diag::shared_layers_apart(span, first, second));
        return None;
    }
    if inliner.printed > MAX_PRINTED {
        diagnostics.push(diag::text_too_large(tree.span, "it has too many different layers"));
        return None;
    }
    let mut items: Vec<(u8, String, Item)> =
        mentions.order.iter().map(|(home, entity)| inliner.item(*home, entity)).collect();
    items.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    let mut ast =
        Ast { items: items.into_iter().map(|(_, _, item)| item).collect(), ..Ast::default() };
    ast.items.push(Item::Arch(arch));
    let text = dsl::print(&ast);
    // The bounds of the language apply to this text too: a text that cannot be read back is not locked.
    let (_, errors) = dsl::parse(FileId(0), &text);
    if let Some(error) = errors.first() {
        diagnostics.push(diag::text_too_large(tree.span, &error.message));
        return None;
    }
    Some(text)
}

/// Most words of the layers and fields of an arch. Larger archs are not printed.
const MAX_PRINTED: usize = dsl::limits::MAX_TOKENS;

type Key = (FileId, String);

fn home(entity: &Entity) -> FileId {
    match entity {
        Entity::Def(item) => item.file,
        Entity::Alias(_, home) | Entity::Init(_, home) | Entity::Arch(_, home) => *home,
    }
}

fn item(entity: &Entity) -> Item {
    match entity {
        Entity::Def(item) => Item::Def(item.def.clone()),
        Entity::Alias(alias, _) => Item::Alias(alias.as_ref().clone()),
        Entity::Init(table, _) => Item::Init(table.as_ref().clone()),
        Entity::Arch(arch, _) => Item::Arch(arch.as_ref().clone()),
    }
}

/// Every definition and every built-in word in the text, in order of mention.
struct Mentions<'a> {
    library: &'a Library,
    order: Vec<(FileId, Entity)>,
    seen: BTreeSet<Key>,
    walked: BTreeSet<*const Applied>,
    builtin: BTreeSet<String>,
}

impl<'a> Mentions<'a> {
    fn new(library: &'a Library) -> Mentions<'a> {
        Mentions {
            library,
            order: Vec::new(),
            seen: BTreeSet::new(),
            walked: BTreeSet::new(),
            builtin: BTreeSet::new(),
        }
    }

    fn tree(&mut self, tree: &ArchTree) {
        tree.fields.values().chain(tree.init.values()).for_each(|s| self.setting(s));
        tree.head.iter().for_each(|head| self.applied(head));
        tree.layers.iter().for_each(|layer| self.applied(&layer.applied));
        // Follow the definitions' own mentions with a list, not recursion, since chains may be long.
        let mut next = 0;
        while let Some((file, entity)) = self.order.get(next).cloned() {
            for name in names::references(&item(&entity)) {
                self.name(file, &name.text);
            }
            next += 1;
        }
    }

    fn setting(&mut self, setting: &Setting) {
        match setting.value.written() {
            Err(applied) => self.applied(applied),
            Ok((expr, file, _)) => {
                for name in names::references_in(expr) {
                    self.name(file, &name.text);
                }
            }
        }
    }

    fn applied(&mut self, applied: &Rc<Applied>) {
        if !self.walked.insert(Rc::as_ptr(applied)) {
            return;
        }
        match &applied.callee {
            Callable::Primitive(p) => {
                self.builtin.insert(p.name.to_owned());
            }
            Callable::Def(item) => self.entity(Entity::Def(item.clone())),
        }
        applied.config.values().for_each(|s| self.setting(s));
        applied.slots.values().filter_map(|s| s.fill.as_ref()).for_each(|fill| self.applied(fill));
    }

    fn name(&mut self, file: FileId, name: &str) {
        match self.library.lookup(file, name) {
            Some(Entity::Arch(..)) => {}
            Some(entity) => self.entity(entity),
            None => {
                self.builtin.insert(name.to_owned());
            }
        }
    }

    fn entity(&mut self, entity: Entity) {
        let home = home(&entity);
        if self.seen.insert((home, entity.name().text.clone())) {
            self.order.push((home, entity));
        }
    }

    /// The name of each definition in the text: its own, unless that would refer to another definition
    /// there or differs from another name only in case.
    fn names(&self, arch: &str) -> BTreeMap<Key, String> {
        let mut taken = BTreeSet::from([arch.to_lowercase()]);
        let mut avoid: BTreeSet<String> = self.builtin.clone();
        for (_, entity) in &self.order {
            avoid.extend(names::binds(&item(entity)));
        }
        let mut called = BTreeMap::new();
        for (home, entity) in &self.order {
            let written = &entity.name().text;
            let hides = self.builtin.contains(written);
            let mut name = written.clone();
            let mut number = 1;
            while (number == 1 && hides)
                || (number > 1 && avoid.contains(&name))
                || taken.contains(&name.to_lowercase())
            {
                number += 1;
                name = format!("{written}_{number}");
            }
            taken.insert(name.to_lowercase());
            called.insert((*home, written.clone()), name);
        }
        called
    }
}

struct Inliner<'a> {
    library: &'a Library,
    called: &'a BTreeMap<Key, String>,
    nowhere: Span,
    /// The layer that each group of shared layers is written at.
    shared: BTreeMap<u32, usize>,
    /// Two layers of one group that would become separate in the text.
    apart: Option<(usize, usize)>,
    /// Settings and words of expressions printed so far.
    printed: usize,
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
        let what = LayerWhat::List(self.layers(&tree.layers, 0));
        entries.push(Entry::Layers { value: LayerList { count: None, what, span }, span });
        Arch {
            docs: Vec::new(),
            name: self.name(&tree.name),
            body: ArchBody::Fields(entries),
            span,
        }
    }

    fn entry(&mut self, name: &str, setting: &Setting) -> Entry {
        let value = match setting.value.written() {
            Err(applied) => self.applied(applied),
            Ok((expr, file, _)) => self.expr(expr, file),
        };
        Entry::Set { path: self.path(name), value, span: self.nowhere }
    }

    fn applied(&mut self, applied: &Rc<Applied>) -> Expr {
        let span = self.nowhere;
        self.printed += 1;
        if self.printed > MAX_PRINTED {
            return Expr { kind: ExprKind::Int(0), span };
        }
        let def = match &applied.callee {
            Callable::Primitive(p) => self.name(p.name),
            Callable::Def(item) => self.name(self.called_as(item.file, &item.def.name.text)),
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

    /// The expression with the names that definitions have in the text.
    fn expr(&mut self, expr: &Expr, file: FileId) -> Expr {
        self.printed += 1 + (expr.span.end.saturating_sub(expr.span.start) / 2) as usize;
        if self.printed > MAX_PRINTED {
            return Expr { kind: ExprKind::Int(0), span: self.nowhere };
        }
        let mut copy = expr.clone();
        let mut rename = Rename::new(|name: &str| self.reference(file, name));
        rename.expr(&mut copy);
        copy
    }

    fn reference(&self, file: FileId, name: &str) -> Option<String> {
        let entity = self.library.lookup(file, name)?;
        self.called.get(&(home(&entity), entity.name().text.clone())).cloned()
    }

    fn called_as(&self, home: FileId, name: &str) -> String {
        self.called.get(&(home, name.to_owned())).map_or_else(|| name.to_owned(), Clone::clone)
    }

    /// A definition as written in the text, with its sort key.
    fn item(&self, home: FileId, entity: &Entity) -> (u8, String, Item) {
        let name = self.called_as(home, &entity.name().text);
        let mut item = item(entity);
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
        (rank, name, item)
    }

    /// Layers as runs: at each place the longest repetition, shortest period first. `from` is
    /// the number of the first layer.
    fn layers(&mut self, layers: &[Layer], from: usize) -> Vec<LayerList> {
        let span = self.nowhere;
        let mut numbers = BTreeMap::new();
        let ids: Vec<usize> = layers
            .iter()
            .map(|l| {
                let next = numbers.len();
                *numbers.entry((Rc::as_ptr(&l.applied), l.share)).or_insert(next)
            })
            .collect();
        let mut out = Vec::new();
        let mut at = 0;
        while let (Some(layer), Some(rest)) = (layers.get(at), ids.get(at..)) {
            let mut best = (1usize, 1usize);
            for (period, common) in common_prefixes(rest).into_iter().enumerate().skip(1) {
                let repeats = 1 + common / period;
                if repeats > 1 && repeats * period > best.0 * best.1 {
                    best = (period, repeats);
                }
            }
            let (period, repeats) = best;
            let count = (repeats > 1).then_some(Expr { kind: ExprKind::Int(repeats as i64), span });
            let what = if period == 1 {
                if let Some(group) = layer.share {
                    let first = *self.shared.entry(group).or_insert(from + at);
                    if first != from + at && self.apart.is_none() {
                        self.apart = Some((first, from + at));
                    }
                }
                LayerWhat::One { share: layer.share.is_some(), layer: self.applied(&layer.applied) }
            } else {
                LayerWhat::List(self.layers(&layers[at..at + period], from + at))
            };
            out.push(LayerList { count, what, span });
            at += period * repeats;
        }
        out
    }
}

/// For each position, the length of the common prefix with the whole list (Gusfield's Z values).
fn common_prefixes(ids: &[usize]) -> Vec<usize> {
    let mut common = vec![0; ids.len()];
    let (mut start, mut end) = (0, 0);
    for i in 1..ids.len() {
        let known = if i < end { common[i - start].min(end - i) } else { 0 };
        let more = ids[i + known..].iter().zip(&ids[known..]).take_while(|(a, b)| a == b).count();
        common[i] = known + more;
        if i + common[i] > end {
            (start, end) = (i, i + common[i]);
        }
    }
    common
}
