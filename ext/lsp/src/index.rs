//! Every name in a file, with what it means: the scopes are those of the compiler (`compiler::names`, `elaborate`).

use std::collections::BTreeMap;

use compiler::names::{ARCH_NAMES, is_function, is_rule};
use compiler::op::{self, Primitive};
use compiler::resolve::Library;
use dsl::{
    ArchBody, Arg, Ast, Body, Entry, Expr, ExprKind, FileId, Item, LayerList, LayerWhat, Name,
    Path, Segment, Select, Span, Statement,
};

/// What a name means.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A name of a body.
    Local(Local),
    /// A definition, by the name that it has in this file.
    Definition(String),
    /// A primitive.
    Primitive(&'static Primitive),
    /// A function on numbers, an init rule, or a word that is a value.
    BuiltIn(String),
    /// A field of the arch that a body reads: `dim`.
    ArchField(String),
    /// A configuration name, where something sets it; the path goes from the holder to it.
    Setting(Holder, Vec<String>),
    /// A slot: where a body declares it, or where an arch fills it.
    Slot(Holder, String),
    /// A row of an init table, or the name of a raw parameter in one.
    Role(String),
    /// The name of a definition in the file that it is imported from.
    Imported(String, String),
    /// The path of an imported file.
    File(String),
}

/// A name of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Local {
    /// The definition with the body, by its place in the file.
    pub(crate) item: usize,
    /// The name.
    pub(crate) name: String,
    /// How it is bound first.
    pub(crate) kind: LocalKind,
    /// The place where it was last bound before here; the place itself where it is bound.
    pub(crate) bound: (usize, usize),
}

/// How a name of a body is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LocalKind {
    /// A tensor that the definition takes.
    Tensor,
    /// Configuration of the definition.
    Config,
    /// A statement.
    Let,
    /// `param`.
    Param,
    /// `share`.
    Share,
    /// `carry`.
    Carry,
    /// The instance of a call.
    Instance,
}

/// What the settings between braces belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// The arch with this name, its head, or all its layers.
    Arch(String),
    /// A definition or a primitive, by the name that it has in this file.
    Definition(String),
    /// Whatever definition a configuration name of a body holds: the definition with the body, and the name.
    Given(usize, String),
    /// Something else.
    Unknown,
}

/// A name in a text.
#[derive(Clone, Debug)]
pub(crate) struct Occurrence {
    /// Its first byte.
    pub(crate) start: usize,
    /// Its end.
    pub(crate) end: usize,
    /// What it means.
    pub(crate) target: Target,
    /// Whether the name is bound or defined here.
    pub(crate) binds: bool,
}

/// The occurrences of names in a file, in the order of the text.
pub(crate) fn index(library: &Library, file: FileId, ast: &Ast) -> Vec<Occurrence> {
    let mut walk = Walk {
        library,
        file,
        occurrences: Vec::new(),
        locals: BTreeMap::new(),
        instances: BTreeMap::new(),
        item: 0,
    };
    for import in &ast.imports {
        for name in &import.names {
            let target = Target::Imported(import.path.clone(), name.name.text.clone());
            walk.add(name.name.span, target, name.alias.is_none());
            if let Some(alias) = &name.alias {
                walk.add(alias.span, Target::Definition(alias.text.clone()), true);
            }
        }
        walk.add(import.path_span, Target::File(import.path.clone()), false);
    }
    for (at, item) in ast.items.iter().enumerate() {
        walk.item = at;
        walk.locals.clear();
        walk.instances.clear();
        walk.item(item);
    }
    walk.occurrences.sort_by_key(|occurrence| (occurrence.start, occurrence.end));
    walk.occurrences
}

struct Walk<'a> {
    library: &'a Library,
    file: FileId,
    occurrences: Vec<Occurrence>,
    /// The names bound so far in the definition.
    locals: BTreeMap<String, (LocalKind, Span)>,
    /// The instances named so far in it.
    instances: BTreeMap<String, (LocalKind, Span)>,
    item: usize,
}

/// How a name is used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Call,
    Def,
    Value,
}

impl Walk<'_> {
    fn add(&mut self, span: Span, target: Target, binds: bool) {
        let (start, end) = (span.start as usize, span.end as usize);
        self.occurrences.push(Occurrence { start, end, target, binds });
    }

    fn bind(&mut self, name: &Name, kind: LocalKind) {
        // Instances are names of their own: a value with the same name is another thing.
        let scope = match kind {
            LocalKind::Instance => &mut self.instances,
            _ => &mut self.locals,
        };
        let kind = scope.get(&name.text).map_or(kind, |(first, _)| *first);
        scope.insert(name.text.clone(), (kind, name.span));
        let bound = (name.span.start as usize, name.span.end as usize);
        let local = Local { item: self.item, name: name.text.clone(), kind, bound };
        self.add(name.span, Target::Local(local), true);
    }

    fn local(&self, text: &str) -> Option<Target> {
        let (kind, span) = self.locals.get(text).or_else(|| self.instances.get(text))?;
        let bound = (span.start as usize, span.end as usize);
        Some(Target::Local(Local { item: self.item, name: text.to_owned(), kind: *kind, bound }))
    }

    /// The meaning of a name that is used.
    fn meaning(&self, text: &str, how: Use) -> Target {
        let local = self.local(text);
        let callable =
            |kind: LocalKind| matches!(kind, LocalKind::Config | LocalKind::Share | LocalKind::Let);
        let kind = match &local {
            Some(Target::Local(local)) => Some(local.kind),
            Some(_) | None => None,
        };
        match (how, kind, local) {
            (Use::Call | Use::Def, Some(kind), Some(local))
                if callable(kind) && !(how == Use::Call && kind == LocalKind::Let) =>
            {
                return local;
            }
            (Use::Value, _, Some(local)) => return local,
            _ => {}
        }
        if how == Use::Call
            && let Some(primitive) = op::find(text)
        {
            return Target::Primitive(primitive);
        }
        if how == Use::Value && (text == "fan_in" || ARCH_NAMES.contains(&text)) {
            return Target::ArchField(text.to_owned());
        }
        if self.library.lookup(self.file, text).is_some() {
            return Target::Definition(text.to_owned());
        }
        if op::WORDS.contains(&text) || is_rule(text) || (how == Use::Call && is_function(text)) {
            return Target::BuiltIn(text.to_owned());
        }
        match op::find(text) {
            Some(primitive) => Target::Primitive(primitive),
            None => Target::Definition(text.to_owned()),
        }
    }

    fn name(&mut self, name: &Name, how: Use) -> Target {
        let target = self.meaning(&name.text, how);
        self.add(name.span, target.clone(), false);
        target
    }

    fn item(&mut self, item: &Item) {
        let name = item.name();
        self.add(name.span, Target::Definition(name.text.clone()), true);
        match item {
            Item::Def(def) => {
                for param in &def.config {
                    if let Some(default) = &param.default {
                        self.expr(default);
                    }
                    self.bind(&param.name, LocalKind::Config);
                }
                for tensor in &def.tensors {
                    self.bind(tensor, LocalKind::Tensor);
                }
                self.body(&def.body);
            }
            Item::Alias(alias) => self.expr(&alias.value),
            Item::Init(table) => self.rows(&table.entries),
            Item::Arch(arch) => {
                let holder = Holder::Arch(name.text.clone());
                match &arch.body {
                    ArchBody::Fields(entries) => self.entries(entries, &holder, &[]),
                    ArchBody::With { base, edits } => {
                        self.name(base, Use::Def);
                        self.entries(edits, &holder, &[]);
                    }
                }
            }
        }
    }

    fn body(&mut self, body: &Body) {
        self.statements(&body.statements);
        for expr in &body.result {
            self.expr(expr);
        }
    }

    fn statements(&mut self, statements: &[Statement]) {
        for statement in statements {
            match statement {
                Statement::Let { names, value, .. } => {
                    self.expr(value);
                    names.iter().for_each(|name| self.bind(name, LocalKind::Let));
                }
                Statement::Param { name, dims, init, .. } => {
                    dims.iter().chain(init).for_each(|e| self.expr(e));
                    self.bind(name, LocalKind::Param);
                }
                Statement::Share { name, callee, entries, .. } => {
                    let target = self.name(callee, Use::Def);
                    self.entries(entries.as_deref().unwrap_or(&[]), &holder(&target), &[]);
                    self.bind(name, LocalKind::Share);
                }
                Statement::Carry { name, value, otherwise, .. } => {
                    self.expr(value);
                    self.bind(name, LocalKind::Carry);
                    self.statements(otherwise);
                }
                Statement::If { condition, then, otherwise, .. } => {
                    self.expr(condition);
                    self.statements(then);
                    self.statements(otherwise);
                }
            }
        }
    }

    fn expr(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Int(_) | ExprKind::Decimal(_) | ExprKind::Bool(_) => {}
            ExprKind::Name(text) => {
                self.name(&Name { text: text.clone(), span: expr.span }, Use::Value);
            }
            ExprKind::Applied { def, entries } => {
                let target = self.name(def, Use::Def);
                self.entries(entries, &holder(&target), &[]);
            }
            ExprKind::Call { callee, instance, args } => {
                let target = self.name(callee, Use::Call);
                for Arg { name, value } in args {
                    if let Some(name) = name {
                        let setting = Target::Setting(holder(&target), vec![name.text.clone()]);
                        self.add(name.span, setting, false);
                    }
                    self.expr(value);
                }
                if let Some(name) = instance {
                    self.bind(name, LocalKind::Instance);
                }
            }
            ExprKind::Slot { name, args } => {
                self.add(name.span, Target::Slot(Holder::Unknown, name.text.clone()), true);
                args.iter().for_each(|arg| self.expr(arg));
            }
            ExprKind::Unary(_, inner) => self.expr(inner),
            ExprKind::Binary(_, a, b) => {
                self.expr(a);
                self.expr(b);
            }
        }
    }

    fn entries(&mut self, entries: &[Entry], holder: &Holder, above: &[String]) {
        for entry in entries {
            match entry {
                Entry::Set { path, value, .. } | Entry::Replace { path, value, .. } => {
                    self.path(path, holder, above);
                    self.expr(value);
                }
                Entry::Nested { path, entries, .. } => {
                    let below = self.path(path, holder, above);
                    match (holder, below.as_slice()) {
                        (Holder::Arch(_), [init]) if init == "init" => self.rows(entries),
                        _ => self.entries(entries, holder, &below),
                    }
                }
                Entry::Layers { value, .. } => self.layers(value),
                Entry::Fill { slots, with, .. } => {
                    self.slots(slots, holder, above);
                    self.expr(with);
                }
                Entry::Canon { slots, entries, .. } => {
                    self.slots(slots, holder, above);
                    let canon = Holder::Definition("canon".to_owned());
                    self.entries(entries.as_deref().unwrap_or(&[]), &canon, &[]);
                }
                Entry::Empty { slots, .. } => self.slots(slots, holder, above),
            }
        }
    }

    /// Rows of an init table.
    fn rows(&mut self, entries: &[Entry]) {
        for entry in entries {
            let (Entry::Set { path, value, .. } | Entry::Replace { path, value, .. }) = entry
            else {
                continue;
            };
            if let [Segment::Name(role)] = path.segments.as_slice() {
                self.add(role.span, Target::Role(role.text.clone()), false);
            }
            self.expr(value);
        }
    }

    /// The names of a path, and the path from the holder to its end.
    fn path(&mut self, path: &Path, holder: &Holder, above: &[String]) -> Vec<String> {
        let mut full = above.to_vec();
        for segment in &path.segments {
            match segment {
                Segment::Name(name) => {
                    full.push(name.text.clone());
                    let target = match (holder, full.as_slice()) {
                        (Holder::Arch(_), [init, role]) if init == "init" => {
                            Target::Role(role.clone())
                        }
                        (_, [.., slots, slot]) if slots == "slots" => {
                            Target::Slot(holder.clone(), slot.clone())
                        }
                        _ => Target::Setting(holder.clone(), full.clone()),
                    };
                    self.add(name.span, target, false);
                }
                Segment::Layers { select, .. } => {
                    if let Select::Is { path, def } = select {
                        let mut field = Vec::new();
                        for name in path {
                            field.push(name.text.clone());
                            let target = Target::Setting(holder.clone(), field.clone());
                            self.add(name.span, target, false);
                        }
                        self.name(def, Use::Def);
                    }
                }
            }
        }
        full
    }

    fn slots(&mut self, slots: &[Path], holder: &Holder, above: &[String]) {
        for path in slots {
            let Some((last, before)) = path.segments.split_last() else { continue };
            let below = Path { segments: before.to_vec(), span: path.span };
            self.path(&below, holder, above);
            if let Segment::Name(slot) = last {
                self.add(slot.span, Target::Slot(holder.clone(), slot.text.clone()), false);
            }
        }
    }

    fn layers(&mut self, list: &LayerList) {
        if let Some(count) = &list.count {
            self.expr(count);
        }
        match &list.what {
            LayerWhat::One { layer, .. } => self.expr(layer),
            LayerWhat::List(items) => items.iter().for_each(|list| self.layers(list)),
        }
    }
}

/// What settings of a name belong to.
fn holder(target: &Target) -> Holder {
    match target {
        Target::Definition(name) => Holder::Definition(name.clone()),
        Target::Primitive(primitive) => Holder::Definition(primitive.name.to_owned()),
        Target::Local(local) if local.kind == LocalKind::Config => {
            Holder::Given(local.item, local.name.clone())
        }
        Target::Local(_)
        | Target::BuiltIn(_)
        | Target::ArchField(_)
        | Target::Setting(..)
        | Target::Slot(..)
        | Target::Role(_)
        | Target::Imported(..)
        | Target::File(_) => Holder::Unknown,
    }
}
