//! An arch as a tree of fields: layer lists and `with` edits, applied in order.
//!
//! Only layer counts are evaluated here, so that defaults are recomputed after all edits. Work and memory are bounded
//! by [`MAX_REACHED`].

#![expect(clippy::wildcard_enum_match_arm, reason = "any other value is named in an error")]

mod define;
mod edits;
mod layers;

use std::collections::BTreeMap;
use std::rc::Rc;

use dsl::limits::MAX_ERRORS;
use dsl::{
    Alias, Arch, ArchBody, Diagnostics, Entry, Expr, ExprKind, FileId, Name, Path, Segment, Span,
};

use crate::diag;
use crate::resolve::{Entity, Library};
use crate::tree::{
    ARCH_FIELDS, ARCH_LEVEL, Applied, ArchTree, Around, MAX_CHAIN, Setting, SettingValue,
    SlotSetting,
};

/// Bound on the layers that all edits of one arch reach together, plus the layer copies, each
/// counted with its configuration.
pub const MAX_REACHED: usize = 500_000;

/// One applied edit, for the check that it changed something.
#[derive(Clone, Debug)]
pub struct Edit {
    /// The layers it reached; `None` for the arch itself.
    pub layers: Option<Vec<usize>>,
    /// The field below the arch or the layer: `mixer.rope.dims`, `slots.A`.
    pub path: String,
    /// Place of the entry.
    pub span: Span,
}

/// The tree of `arch`, the edits of its last `with`, and the tree they started from.
pub struct Built {
    /// The arch with all edits.
    pub tree: ArchTree,
    /// The tree that its last `with` started from; None for an arch with fields.
    pub base: Option<ArchTree>,
    /// Edits of that `with`, in order.
    pub edits: Vec<Edit>,
    /// Some entry could not be applied: use the tree only to find more errors.
    pub broken: bool,
}

/// Resolved aliases, each resolved once.
pub type Aliases = BTreeMap<(FileId, String), Option<Rc<Applied>>>;

/// Builds the tree of an arch: entries and edits applied in order. None if there are errors.
pub fn build(
    library: &Library,
    file: FileId,
    arch: &Arch,
    diagnostics: &mut Diagnostics,
) -> Option<Built> {
    attempt(library, file, arch, diagnostics).filter(|built| !built.broken)
}

/// As [`build`], but also returns a partly built tree.
pub(crate) fn attempt(
    library: &Library,
    file: FileId,
    arch: &Arch,
    diagnostics: &mut Diagnostics,
) -> Option<Built> {
    let mut aliases = Aliases::new();
    Builder::new(library, &mut aliases, None, diagnostics).arch(file, arch, 0)
}

/// As `attempt`, but skips the entries that contain these spans.
pub(crate) fn without(
    library: &Library,
    file: FileId,
    arch: &Arch,
    places: &[Span],
    diagnostics: &mut Diagnostics,
) -> Option<Built> {
    let mut aliases = Aliases::new();
    let mut builder = Builder::new(library, &mut aliases, None, diagnostics);
    builder.unusable = places.to_vec();
    builder.arch(file, arch, 0)
}

/// The definition that an expression of an arch names, with its configuration.
pub fn definition(
    library: &Library,
    file: FileId,
    expr: &Expr,
    diagnostics: &mut Diagnostics,
) -> Option<Rc<Applied>> {
    let mut aliases = Aliases::new();
    let mut builder = Builder::new(library, &mut aliases, None, diagnostics);
    let before = builder.errors();
    let applied = builder.definition(file, expr, 0);
    applied.filter(|_| builder.errors() == before)
}

/// As `definition`, in a body with its own bindings.
pub(crate) fn definition_in(
    library: &Library,
    file: FileId,
    expr: &Expr,
    around: Around,
    aliases: &mut Aliases,
    diagnostics: &mut Diagnostics,
) -> Option<Rc<Applied>> {
    let mut builder = Builder::new(library, aliases, around, diagnostics);
    let before = builder.errors();
    let applied = builder.definition(file, expr, 0);
    applied.filter(|_| builder.errors() == before)
}

/// The definition that an alias refers to.
pub(crate) fn alias(
    library: &Library,
    home: FileId,
    alias: &Alias,
    aliases: &mut Aliases,
    diagnostics: &mut Diagnostics,
) -> Option<Rc<Applied>> {
    let mut builder = Builder::new(library, aliases, None, diagnostics);
    let before = builder.errors();
    let applied = builder.alias(home, alias, 0);
    applied.filter(|_| builder.errors() == before)
}

struct Builder<'a> {
    library: &'a Library,
    aliases: &'a mut Aliases,
    around: Around,
    diagnostics: &'a mut Diagnostics,
    groups: u32,
    reached: usize,
    /// Spans of undefined names. Entries that contain one are skipped.
    unusable: Vec<Span>,
}

/// What an entry puts at its path.
#[derive(Clone)]
enum Put {
    Setting(Setting),
    Slot(SlotSetting),
}

impl<'a> Builder<'a> {
    fn new(
        library: &'a Library,
        aliases: &'a mut Aliases,
        around: Around,
        diagnostics: &'a mut Diagnostics,
    ) -> Builder<'a> {
        Builder {
            library,
            aliases,
            around,
            diagnostics,
            groups: 0,
            reached: 0,
            unusable: Vec::new(),
        }
    }

    fn arch(&mut self, file: FileId, arch: &Arch, depth: usize) -> Option<Built> {
        let before = self.errors();
        if depth > MAX_CHAIN {
            self.diagnostics.push(diag::chain_too_long(arch.name.span, MAX_CHAIN));
            return None;
        }
        let mut edits = Vec::new();
        let (mut tree, base) = match &arch.body {
            ArchBody::Fields(entries) => {
                let tree = ArchTree {
                    name: String::new(),
                    docs: Vec::new(),
                    fields: BTreeMap::new(),
                    head: self.named(file, "untied", arch.name.span, 0),
                    init_name: String::new(),
                    init: BTreeMap::new(),
                    layers: Vec::new(),
                    span: arch.span,
                };
                let tree = self.entries(tree, file, entries, &mut edits);
                if self.unusable.is_empty()
                    && !entries.iter().any(|e| matches!(e, Entry::Layers { .. }))
                {
                    self.diagnostics.push(diag::no_layers(&arch.name));
                }
                (tree, None)
            }
            ArchBody::With { base, edits: entries } => {
                let Some((base_arch, home)) = self.library.arch(file, &base.text) else {
                    if self.unusable.contains(&base.span) {
                        return None;
                    }
                    // The static check also accepts primitives, which have no span.
                    let entity = self.library.lookup(file, &base.text);
                    let defined = entity.map(|entity| entity.name().span);
                    self.diagnostics.push(diag::not_an_arch(base, defined));
                    return None;
                };
                // Errors of the base are reported where it is defined; errors in edits of it may follow from them.
                let base = self.arch(home, &base_arch, depth + 1)?;
                if base.broken {
                    return None;
                }
                let base_tree = base.tree;
                let tree = self.entries(base_tree.clone(), file, entries, &mut edits);
                (tree, Some(base_tree))
            }
        };
        tree.name.clone_from(&arch.name.text);
        tree.docs.clone_from(&arch.docs);
        tree.span = arch.span;
        edits::repeated(&edits, self.diagnostics);
        let broken = self.errors() != before;
        Some(Built { tree, base, edits, broken })
    }

    /// Whether an undefined name is in this entry and not in an entry nested in it.
    fn passes_over(&self, entry: &Entry) -> bool {
        if self.unusable.is_empty() {
            return false;
        }
        let has = |span: Span| self.unusable.iter().any(|unusable| unusable.is_in(span));
        let value = |value: &Expr| match &value.kind {
            ExprKind::Applied { def, .. } => has(def.span),
            _ => has(value.span),
        };
        match entry {
            Entry::Set { path, value: set, .. } | Entry::Replace { path, value: set, .. } => {
                has(path.span) || value(set)
            }
            Entry::Fill { slots, with, .. } => slots.iter().any(|s| has(s.span)) || value(with),
            Entry::Canon { slots, .. } | Entry::Empty { slots, .. } => {
                slots.iter().any(|slot| has(slot.span))
            }
            Entry::Nested { path, .. } => has(path.span),
            // The definition of a layer cannot be left out.
            Entry::Layers { .. } => false,
        }
    }

    fn errors(&self) -> usize {
        self.diagnostics.iter().filter(|d| d.is_error()).count()
    }

    fn entries(
        &mut self,
        mut tree: ArchTree,
        file: FileId,
        entries: &[Entry],
        edits: &mut Vec<Edit>,
    ) -> ArchTree {
        // Layers first: any other entry may refer to them, wherever it is written.
        for entry in entries {
            if let Entry::Layers { value, span } = entry {
                let mut layers = Vec::new();
                if self.layer_list(file, value, &mut layers).is_some() {
                    if layers.is_empty() {
                        self.diagnostics.push(diag::zero_layers(*span));
                    }
                    tree.layers = layers;
                }
                edits.push(Edit { layers: None, path: "layers".to_owned(), span: *span });
            }
        }
        for entry in entries {
            if self.reached > MAX_REACHED || self.diagnostics.len() > MAX_ERRORS {
                break;
            }
            self.entry(&mut tree, file, &[], entry, edits);
        }
        tree
    }

    fn entry(
        &mut self,
        tree: &mut ArchTree,
        file: FileId,
        prefix: &[Segment],
        entry: &Entry,
        edits: &mut Vec<Edit>,
    ) {
        if self.passes_over(entry) {
            return;
        }
        let below = |path: &Path| -> Vec<Segment> {
            prefix.iter().chain(&path.segments).cloned().collect()
        };
        let (slots, fill, span): (&[Path], Option<Rc<Applied>>, Span) = match entry {
            Entry::Set { path, value, span } | Entry::Replace { path, value, span } => {
                if let Some(setting) = self.setting(file, value, *span, 0) {
                    self.put(tree, file, &below(path), path.span, Put::Setting(setting), edits);
                }
                return;
            }
            Entry::Nested { path, entries, span: _ } => {
                self.nested(tree, file, &below(path), entries, edits);
                return;
            }
            Entry::Layers { span, .. } => {
                if !prefix.is_empty() {
                    self.diagnostics.push(diag::layers_inside(*span));
                }
                return;
            }
            Entry::Fill { slots, with, span } => match self.definition(file, with, 0) {
                Some(fill) => (slots, Some(fill), *span),
                None => return,
            },
            Entry::Canon { slots, entries, span } => {
                match self.canon(file, entries.as_deref().unwrap_or(&[]), *span) {
                    Some(fill) => (slots, Some(fill), *span),
                    None => return,
                }
            }
            Entry::Empty { slots, span } => (slots, None, *span),
        };
        for slot in slots {
            if self.diagnostics.len() > MAX_ERRORS {
                break;
            }
            let setting = SlotSetting { fill: fill.clone(), span };
            self.put(tree, file, &below(slot), slot.span, Put::Slot(setting), edits);
        }
    }

    fn nested(
        &mut self,
        tree: &mut ArchTree,
        file: FileId,
        prefix: &[Segment],
        entries: &[Entry],
        edits: &mut Vec<Edit>,
    ) {
        let is_init = matches!(prefix, [Segment::Name(n)] if n.text == "init");
        for entry in entries {
            if self.diagnostics.len() > MAX_ERRORS {
                break;
            }
            if is_init && let Entry::Set { path, value, span } = entry {
                self.init_row(tree, file, path, value, *span, edits);
            } else {
                self.entry(tree, file, prefix, entry, edits);
            }
        }
    }

    fn init_row(
        &mut self,
        tree: &mut ArchTree,
        file: FileId,
        path: &Path,
        value: &Expr,
        span: Span,
        edits: &mut Vec<Edit>,
    ) {
        match path.segments.as_slice() {
            [Segment::Name(role)] => {
                let value = SettingValue::Expr(Rc::new(value.clone()), file);
                tree.init.insert(role.text.clone(), Setting { value, span });
                edits.push(Edit { layers: None, path: format!("init.{}", role.text), span });
            }
            _ => self.diagnostics.push(diag::not_a_role(path.span)),
        }
    }

    /// Sets the value at a path of the arch, of its head, or of every layer the path selects.
    fn put(
        &mut self,
        tree: &mut ArchTree,
        file: FileId,
        path: &[Segment],
        span: Span,
        put: Put,
        edits: &mut Vec<Edit>,
    ) {
        if path.len() > MAX_CHAIN {
            self.diagnostics.push(diag::chain_too_long(span, MAX_CHAIN));
            return;
        }
        let names = |segments: &[Segment]| -> Option<Vec<Name>> {
            segments
                .iter()
                .map(|s| match s {
                    Segment::Name(name) => Some(name.clone()),
                    Segment::Layers { .. } => None,
                })
                .collect()
        };
        let (selected, rest) = match path {
            [Segment::Layers { select, span }, rest @ ..] => {
                let Some(selected) = self.select(tree, file, select, *span) else { return };
                (selected, names(rest))
            }
            [Segment::Name(first), ..] if ARCH_LEVEL.contains(&first.text.as_str()) => {
                match names(path) {
                    Some(names) => self.put_arch(tree, file, &names, span, put, edits),
                    None => self.diagnostics.push(diag::layers_inside(span)),
                }
                return;
            }
            _ => ((0..tree.layers.len()).collect(), names(path)),
        };
        let Some(rest) = rest else {
            self.diagnostics.push(diag::layers_inside(span));
            return;
        };
        if rest.is_empty()
            && !matches!(put, Put::Setting(Setting { value: SettingValue::Def(_), .. }))
        {
            self.diagnostics.push(diag::not_a_definition(span));
            return;
        }
        self.put_layers(tree, &selected, &rest, span, &put, edits);
    }

    fn put_layers(
        &mut self,
        tree: &mut ArchTree,
        selected: &[usize],
        path: &[Name],
        span: Span,
        put: &Put,
        edits: &mut Vec<Edit>,
    ) {
        if self.reach(selected.len(), span).is_none() {
            return;
        }
        // Layers that share an Rc keep sharing one: edit each distinct tree once.
        let mut done: BTreeMap<*const Applied, Option<Rc<Applied>>> = BTreeMap::new();
        let mut missing: Vec<(usize, Option<diag::NoPath>)> = Vec::new();
        for &index in selected {
            let Some(layer) = tree.layers.get_mut(index) else { continue };
            let key = Rc::as_ptr(&layer.applied);
            let edited = match done.get(&key) {
                Some(edited) => edited.clone(),
                None => {
                    let size = layer.applied.config.len() + layer.applied.slots.len();
                    if self.reach(size, span).is_none() {
                        return;
                    }
                    let edited = match self.put_layer(&layer.applied, path, put) {
                        Ok(edited) => Some(edited),
                        Err(reason) => {
                            missing.push((index, Some(reason)));
                            None
                        }
                    };
                    done.insert(key, edited.clone());
                    edited
                }
            };
            match edited {
                Some(edited) => layer.applied = edited,
                None => {
                    if missing.last().is_none_or(|(i, _)| *i != index) {
                        missing.push((index, None));
                    }
                }
            }
        }
        let shown = shown(path, put);
        if missing.is_empty() {
            edits.push(Edit { layers: Some(selected.to_vec()), path: shown, span });
        } else {
            self.diagnostics.push(diag::no_such_path(&shown, span, &missing, selected.len()));
        }
    }

    /// Adds to the count of layers times edits, and reports when it exceeds the bound.
    fn reach(&mut self, more: usize, span: Span) -> Option<()> {
        let before = self.reached;
        self.reached = before.saturating_add(more);
        if self.reached <= MAX_REACHED {
            return Some(());
        }
        if before <= MAX_REACHED {
            self.diagnostics.push(diag::too_many_edits(span, MAX_REACHED));
        }
        None
    }

    fn put_arch(
        &mut self,
        tree: &mut ArchTree,
        file: FileId,
        path: &[Name],
        span: Span,
        put: Put,
        edits: &mut Vec<Edit>,
    ) {
        let [first, rest @ ..] = path else { return };
        let shown = match rest {
            [] => first.text.clone(),
            rest => format!("{}.{}", first.text, shown(rest, &put)),
        };
        match (first.text.as_str(), rest, put) {
            ("head", [], Put::Setting(Setting { value: SettingValue::Def(head), .. })) => {
                tree.head = Some(head);
            }
            ("head", [], Put::Setting(setting)) => {
                self.diagnostics.push(diag::not_a_definition(setting.span));
                return;
            }
            ("head", [_, ..], put) => {
                let edited = match &tree.head {
                    Some(head) => self.put_layer(&head.clone(), rest, &put),
                    None => Err("choose the head first: `head untied`".to_owned().into()),
                };
                match edited {
                    Ok(head) => tree.head = Some(head),
                    Err(reason) => {
                        self.diagnostics.push(diag::no_such_arch_path(&shown, span, &reason));
                        return;
                    }
                }
            }
            ("init", [], Put::Setting(setting)) => {
                if self.init_table(tree, file, &setting).is_none() {
                    self.diagnostics.push(diag::not_an_init_table(setting.span));
                    return;
                }
            }
            ("init", [role], Put::Setting(setting)) => {
                tree.init.insert(role.text.clone(), setting);
            }
            (field, [], Put::Setting(setting)) if ARCH_FIELDS.contains(&field) => {
                tree.fields.insert(field.to_owned(), setting);
            }
            _ => {
                let reason = format!("an arch has {}", ARCH_LEVEL.join(", ")).into();
                self.diagnostics.push(diag::no_such_arch_path(&shown, span, &reason));
                return;
            }
        }
        edits.push(Edit { layers: None, path: shown, span });
    }

    /// Copies the rows of the table that a setting names; `None` if it names none.
    fn init_table(&mut self, tree: &mut ArchTree, file: FileId, setting: &Setting) -> Option<()> {
        let (expr, ..) = setting.value.written().ok()?;
        let ExprKind::Name(name) = &expr.kind else { return None };
        let Some(Entity::Init(table, home)) = self.library.lookup(file, name) else { return None };
        tree.init_name.clone_from(name);
        tree.init.clear();
        let mut rows = Vec::new();
        for entry in &table.entries {
            if let Entry::Set { path, value, span } = entry {
                self.init_row(tree, home, path, value, *span, &mut rows);
            } else {
                self.diagnostics.push(diag::not_a_role(entry.span()));
            }
        }
        edits::repeated(&rows, self.diagnostics);
        Some(())
    }
}

/// The field a path leads to, below the arch or a layer: `mixer.rope.dims`, `slots.A`.
fn shown(path: &[Name], put: &Put) -> String {
    let mut names: Vec<&str> = path.iter().map(|n| n.text.as_str()).collect();
    if matches!(put, Put::Slot(_)) {
        names.insert(names.len().saturating_sub(1), "slots");
    }
    names.join(".")
}
