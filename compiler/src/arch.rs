//! PASS Arch → ArchTree: fields, layer lists and `with` edits, applied in order.
//!
//! In: the library and an arch. Out: its tree of fields. Must stay true: only `with` edits archs;
//! a path that starts below a layer means every layer and must exist in each; two edits of one
//! field in one `with` are an error; nothing is evaluated here but layer counts, so that defaults
//! are recomputed after all edits.

use std::collections::BTreeMap;
use std::rc::Rc;

use dsl::{
    Arch, ArchBody, Diagnostics, Entry, Expr, ExprKind, FileId, LayerList, LayerWhat, Name, Path,
    Segment, Select, Span,
};

use crate::diag;
use crate::resolve::{Entity, Library};
use crate::tree::{
    ARCH_FIELDS, ARCH_LEVEL, Applied, ArchTree, Callable, Layer, MAX_LAYERS, Setting, SettingValue,
    SlotSetting,
};

/// How long a chain of `with` may be, and how deep definitions may be configured in one another.
const MAX_CHAIN: usize = 64;

/// One applied edit, for the check that it changed something.
#[derive(Clone, Debug)]
pub struct Edit {
    /// `None` for the arch itself, else the layers it reached.
    pub layers: Option<Vec<usize>>,
    /// The field below the arch or the layer: `mixer.rope.dims`, `slots.A`.
    pub path: String,
    pub span: Span,
}

/// The tree of `arch`, and what the last `with` edited, beside the tree it started from.
pub struct Built {
    pub tree: ArchTree,
    pub base: Option<ArchTree>,
    pub edits: Vec<Edit>,
}

pub fn build(
    library: &Library,
    file: FileId,
    arch: &Arch,
    diagnostics: &mut Diagnostics,
) -> Option<Built> {
    let mut builder = Builder { library, diagnostics, groups: 0 };
    builder.arch(file, arch, 0)
}

/// The definition an expression names, with its configuration.
pub fn definition(
    library: &Library,
    file: FileId,
    expr: &Expr,
    diagnostics: &mut Diagnostics,
) -> Option<Rc<Applied>> {
    Builder { library, diagnostics, groups: 0 }.definition(file, expr, 0)
}

struct Builder<'a> {
    library: &'a Library,
    diagnostics: &'a mut Diagnostics,
    groups: u32,
}

/// What an entry puts at its path.
enum Put {
    Setting(Setting),
    Slot(SlotSetting),
}

impl Builder<'_> {
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
                    head: self.library.callable(file, "untied").map(|callee| {
                        Rc::new(Applied::bare(callee, arch.name.span))
                    }),
                    init_name: String::new(),
                    init: BTreeMap::new(),
                    layers: Vec::new(),
                    span: arch.span,
                };
                let tree = self.entries(tree, file, entries, &mut edits);
                if !entries.iter().any(|e| matches!(e, Entry::Layers { .. })) {
                    self.diagnostics.push(diag::no_layers(&arch.name));
                }
                (tree, None)
            }
            ArchBody::With { base, edits: entries } => {
                let (base_arch, home) = match self.library.lookup(file, &base.text) {
                    Some(Entity::Arch(base_arch, home)) => (base_arch, home),
                    // Unknown names are reported by the static check.
                    None => return None,
                    Some(other) => {
                        self.diagnostics.push(diag::not_an_arch(base, other.name().span));
                        return None;
                    }
                };
                let base_tree = self.arch(home, &base_arch, depth + 1)?.tree;
                let tree = self.entries(base_tree.clone(), file, entries, &mut edits);
                (tree, Some(base_tree))
            }
        };
        tree.name.clone_from(&arch.name.text);
        tree.docs.clone_from(&arch.docs);
        tree.span = arch.span;
        self.repeated(&edits);
        (self.errors() == before).then_some(Built { tree, base, edits })
    }

    fn errors(&self) -> usize {
        self.diagnostics.iter().filter(|d| d.is_error()).count()
    }

    /// Two edits of one field, or of a field and something above it.
    fn repeated(&mut self, edits: &[Edit]) {
        for (i, later) in edits.iter().enumerate() {
            let clash = edits[..i].iter().find(|earlier| {
                let overlap = || match (&earlier.layers, &later.layers) {
                    (None, None) => true,
                    (Some(a), Some(b)) => {
                        let (few, many) = if a.len() < b.len() { (a, b) } else { (b, a) };
                        few.iter().any(|n| many.binary_search(n).is_ok())
                    }
                    (None, Some(_)) | (Some(_), None) => false,
                };
                let below = |a: &str, b: &str| {
                    a == b || b.strip_prefix(a).is_some_and(|rest| rest.starts_with('.'))
                };
                (below(&earlier.path, &later.path) || below(&later.path, &earlier.path)) && overlap()
            });
            if let Some(earlier) = clash {
                self.diagnostics.push(diag::edited_twice(&later.path, later.span, earlier.span));
                return;
            }
        }
    }

    fn entries(
        &mut self,
        mut tree: ArchTree,
        file: FileId,
        entries: &[Entry],
        edits: &mut Vec<Edit>,
    ) -> ArchTree {
        // Layers first: every other entry may speak of them, wherever it is written.
        for entry in entries {
            if let Entry::Layers { value, span } = entry {
                let mut layers = Vec::new();
                if self.layer_list(&tree, file, value, None, &mut layers).is_some() {
                    if layers.is_empty() {
                        self.diagnostics.push(diag::zero_layers(*span));
                    }
                    tree.layers = layers;
                }
                edits.push(Edit { layers: None, path: "layers".to_owned(), span: *span });
            }
        }
        for entry in entries {
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
        let below = |path: &Path| -> Vec<Segment> {
            prefix.iter().chain(&path.segments).cloned().collect()
        };
        match entry {
            Entry::Set { path, value, span } | Entry::Replace { path, value, span } => {
                let setting = self.setting(file, value, *span, 0);
                if let Some(setting) = setting {
                    self.put(tree, file, &below(path), path.span, Put::Setting(setting), edits);
                }
            }
            Entry::Nested { path, entries, span: _ } => {
                let deeper = below(path);
                let is_init = matches!(deeper.as_slice(), [Segment::Name(n)] if n.text == "init");
                for inner in entries {
                    if is_init && let Entry::Set { path, value, span } = inner {
                        self.init_row(tree, file, path, value, *span, edits);
                    } else {
                        self.entry(tree, file, &deeper, inner, edits);
                    }
                }
            }
            Entry::Layers { span, .. } => {
                if !prefix.is_empty() {
                    self.diagnostics.push(diag::layers_inside(*span));
                }
            }
            Entry::Fill { slots, with, span } => {
                let Some(fill) = self.definition(file, with, 0) else { return };
                for slot in slots {
                    let setting = SlotSetting { fill: Some(fill.clone()), span: *span };
                    self.put(tree, file, &below(slot), slot.span, Put::Slot(setting), edits);
                }
            }
            Entry::Canon { slots, entries, span } => {
                let Some(fill) = self.canon(file, entries.as_deref().unwrap_or(&[]), *span) else {
                    return;
                };
                for slot in slots {
                    let setting = SlotSetting { fill: Some(fill.clone()), span: *span };
                    self.put(tree, file, &below(slot), slot.span, Put::Slot(setting), edits);
                }
            }
            Entry::Empty { slots, span } => {
                for slot in slots {
                    let setting = SlotSetting { fill: None, span: *span };
                    self.put(tree, file, &below(slot), slot.span, Put::Slot(setting), edits);
                }
            }
        }
    }

    fn canon(&mut self, file: FileId, entries: &[Entry], span: Span) -> Option<Rc<Applied>> {
        let callee = crate::tree::primitive("canon")?;
        self.configured(file, Applied::bare(callee, span), entries, 0)
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

    /// Puts a value at a path of the arch, of its head, or of every layer the path selects.
    fn put(
        &mut self,
        tree: &mut ArchTree,
        file: FileId,
        path: &[Segment],
        span: Span,
        put: Put,
        edits: &mut Vec<Edit>,
    ) {
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
        // Layers that share an Rc keep sharing one: edit each distinct tree once.
        let mut done: BTreeMap<*const Applied, Option<Rc<Applied>>> = BTreeMap::new();
        let mut missing: Vec<(usize, String)> = Vec::new();
        for &index in selected {
            let Some(layer) = tree.layers.get_mut(index) else { continue };
            let key = Rc::as_ptr(&layer.applied);
            let edited = match done.get(&key) {
                Some(edited) => edited.clone(),
                None => {
                    let result = self.put_applied(&layer.applied, path, put);
                    let edited = match result {
                        Ok(edited) => Some(edited),
                        Err(why) => {
                            missing.push((index, why));
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
                        missing.push((index, String::new()));
                    }
                }
            }
        }
        let mut shown: Vec<String> = path.iter().map(|n| n.text.clone()).collect();
        if matches!(put, Put::Slot(_)) {
            shown.insert(shown.len().saturating_sub(1), "slots".to_owned());
        }
        let shown = shown.join(".");
        if missing.is_empty() {
            edits.push(Edit { layers: Some(selected.to_vec()), path: shown, span });
        } else {
            self.diagnostics.push(diag::no_such_path(&shown, span, &missing));
        }
    }

    /// A copy of `applied` with the value at `path`; `Err` says what there is instead.
    fn put_applied(
        &mut self,
        applied: &Rc<Applied>,
        path: &[Name],
        put: &Put,
    ) -> Result<Rc<Applied>, String> {
        let mut edited = (**applied).clone();
        match (path, put) {
            ([], Put::Setting(Setting { value: SettingValue::Def(whole), .. })) => {
                return Ok(whole.clone());
            }
            ([], _) => return Err("a layer is replaced by a definition only".to_owned()),
            ([slot], Put::Slot(setting)) => {
                edited.slots.insert(slot.text.clone(), setting.clone());
            }
            ([slots, slot, rest @ ..], Put::Setting(_)) if slots.text == "slots" && !rest.is_empty() => {
                let old = edited.slots.get(&slot.text).and_then(|s| s.fill.clone());
                let Some(old) = old else {
                    return Err(format!("slot {} is empty", slot.text));
                };
                let fill = self.put_applied(&old, rest, put)?;
                edited
                    .slots
                    .insert(slot.text.clone(), SlotSetting { fill: Some(fill), span: slot.span });
            }
            ([last], Put::Setting(setting)) => {
                if !applied.callee.config_names().contains(&last.text.as_str()) {
                    return Err(self.has_instead(applied, &last.text));
                }
                edited.config.insert(last.text.clone(), setting.clone());
            }
            ([first, rest @ ..], _) => {
                // `mixer.B` with a slot: slots belong to the layer, whatever declares them.
                let child = self.child(applied, &first.text)?;
                let child = self.put_applied(&child, rest, put)?;
                let value = SettingValue::Def(child);
                edited.config.insert(first.text.clone(), Setting { value, span: first.span });
            }
        }
        Ok(Rc::new(edited))
    }

    fn has_instead(&self, applied: &Applied, wanted: &str) -> String {
        let names = applied.callee.config_names();
        match dsl::suggest(wanted, names.iter().copied()) {
            Some(near) => format!("`{}` has `{near}`", applied.name()),
            None if names.is_empty() => format!("`{}` has no configuration", applied.name()),
            None => format!("`{}` has {}", applied.name(), names.join(", ")),
        }
    }

    /// The definition configured at `name`, written or by default.
    fn child(&mut self, applied: &Applied, name: &str) -> Result<Rc<Applied>, String> {
        match applied.config.get(name) {
            Some(Setting { value: SettingValue::Def(child), .. }) => return Ok(child.clone()),
            Some(_) => return Err(format!("`{name}` of `{}` is no definition", applied.name())),
            None => {}
        }
        let Some(param) = applied.callee.param(name) else {
            return Err(self.has_instead(applied, name));
        };
        let file = match &applied.callee {
            Callable::Def(item) => item.file,
            Callable::Primitive(_) => param.name.span.file,
        };
        param
            .default
            .as_ref()
            .and_then(|default| self.quiet_definition(file, default))
            .ok_or_else(|| format!("`{name}` of `{}` is no definition", applied.name()))
    }

    fn quiet_definition(&mut self, file: FileId, expr: &Expr) -> Option<Rc<Applied>> {
        match &expr.kind {
            ExprKind::Name(name) => self.named(file, name, expr.span),
            ExprKind::Applied { .. } => self.definition(file, expr, 0),
            _ => None,
        }
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
        let shown = path.iter().map(|n| n.text.as_str()).collect::<Vec<_>>().join(".");
        let [first, rest @ ..] = path else { return };
        match (first.text.as_str(), rest, put) {
            ("head", [], Put::Setting(Setting { value: SettingValue::Def(head), .. })) => {
                tree.head = Some(head);
            }
            ("head", [_, ..], put) => {
                let edited = match &tree.head {
                    Some(head) => self.put_applied(head, rest, &put),
                    None => Err("say which head first: `head untied`".to_owned()),
                };
                match edited {
                    Ok(head) => tree.head = Some(head),
                    Err(why) => {
                        self.diagnostics.push(diag::no_such_arch_path(&shown, span, &why));
                        return;
                    }
                }
            }
            ("init", [], Put::Setting(Setting { value: SettingValue::Expr(expr, _), .. })) => {
                let ExprKind::Name(name) = &expr.kind else {
                    self.diagnostics.push(diag::not_an_init_table(expr.span));
                    return;
                };
                match self.library.lookup(file, name) {
                    Some(Entity::Init(table, home)) => {
                        tree.init_name.clone_from(name);
                        tree.init.clear();
                        let mut ignored = Vec::new();
                        for entry in &table.entries {
                            if let Entry::Set { path, value, span } = entry {
                                self.init_row(tree, home, path, value, *span, &mut ignored);
                            } else {
                                self.diagnostics.push(diag::not_a_role(table.span));
                            }
                        }
                    }
                    _ => {
                        self.diagnostics.push(diag::not_an_init_table(expr.span));
                        return;
                    }
                }
            }
            ("init", [role], Put::Setting(setting)) => {
                tree.init.insert(role.text.clone(), setting);
            }
            (field, [], Put::Setting(setting)) if ARCH_FIELDS.contains(&field) => {
                tree.fields.insert(field.to_owned(), setting);
            }
            _ => {
                let why = format!("an arch has {}", ARCH_LEVEL.join(", "));
                self.diagnostics.push(diag::no_such_arch_path(&shown, span, &why));
                return;
            }
        }
        edits.push(Edit { layers: None, path: shown, span });
    }

    fn select(
        &mut self,
        tree: &ArchTree,
        file: FileId,
        select: &Select,
        span: Span,
    ) -> Option<Vec<usize>> {
        let count = tree.layers.len();
        let selected: Vec<usize> = match select {
            Select::All => (0..count).collect(),
            Select::Index(i) => (0..count).filter(|n| *n as u64 == *i).collect(),
            Select::Range(from, to) => {
                if *to > count as u64 {
                    self.diagnostics.push(diag::layer_out_of_range(span, *to, count));
                    return None;
                }
                (0..count).filter(|n| (*from..*to).contains(&(*n as u64))).collect()
            }
            Select::Every { step, from } => {
                if *step == 0 {
                    self.diagnostics.push(diag::every_zero(span));
                    return None;
                }
                let matches =
                    |n: &usize| (*n as u64) >= *from && (*n as u64 - *from).is_multiple_of(*step);
                (0..count).filter(matches).collect()
            }
            Select::Is { path, def } => {
                let wanted = self.named(file, &def.text, def.span)?;
                let mut selected = Vec::new();
                for (n, layer) in tree.layers.iter().enumerate() {
                    let mut here = layer.applied.clone();
                    let found = path.iter().all(|name| match self.child(&here, &name.text) {
                        Ok(child) => {
                            here = child;
                            true
                        }
                        Err(_) => false,
                    });
                    if found && here.callee.same(&wanted.callee) {
                        selected.push(n);
                    }
                }
                selected
            }
        };
        if selected.is_empty() {
            self.diagnostics.push(diag::selects_nothing(span, count));
            return None;
        }
        Some(selected)
    }

    fn layer_list(
        &mut self,
        tree: &ArchTree,
        file: FileId,
        list: &LayerList,
        share: Option<u32>,
        out: &mut Vec<Layer>,
    ) -> Option<()> {
        let count = match &list.count {
            None => 1,
            Some(expr) => match expr.kind {
                ExprKind::Int(n) => n,
                _ => {
                    self.diagnostics.push(diag::layer_count_not_a_number(expr.span));
                    return None;
                }
            },
        };
        let count = usize::try_from(count).ok().filter(|n| *n <= MAX_LAYERS);
        let Some(count) = count else {
            self.diagnostics.push(diag::too_many_layers(list.span, MAX_LAYERS));
            return None;
        };
        let mut once = Vec::new();
        match &list.what {
            LayerWhat::One { share: shared, layer } => {
                let applied = self.definition(file, layer, 0)?;
                let share = if *shared {
                    self.groups += 1;
                    Some(self.groups)
                } else {
                    share
                };
                once.push(Layer { applied, share });
            }
            LayerWhat::List(items) => {
                for item in items {
                    self.layer_list(tree, file, item, share, &mut once)?;
                }
            }
        }
        if out.len() + once.len().saturating_mul(count) > MAX_LAYERS {
            self.diagnostics.push(diag::too_many_layers(list.span, MAX_LAYERS));
            return None;
        }
        for _ in 0..count {
            out.extend(once.iter().cloned());
        }
        Some(())
    }

    /// A value written in an arch: an expression to evaluate later, or a definition.
    fn setting(&mut self, file: FileId, value: &Expr, span: Span, depth: usize) -> Option<Setting> {
        let value = match &value.kind {
            ExprKind::Name(name) => match self.named(file, name, value.span) {
                Some(applied) => SettingValue::Def(applied),
                None => SettingValue::Expr(Rc::new(value.clone()), file),
            },
            ExprKind::Applied { .. } => SettingValue::Def(self.definition(file, value, depth)?),
            _ => SettingValue::Expr(Rc::new(value.clone()), file),
        };
        Some(Setting { value, span })
    }

    /// What a bare name stands for, where a definition can stand.
    fn named(&mut self, file: FileId, name: &str, span: Span) -> Option<Rc<Applied>> {
        match self.library.lookup(file, name) {
            Some(Entity::Def(item)) => Some(Rc::new(Applied::bare(Callable::Def(item), span))),
            Some(Entity::Alias(alias, home)) => self.definition(home, &alias.value, 1),
            Some(Entity::Init(..) | Entity::Arch(..)) => None,
            // Of the primitives only an activation can be configured by name; it is a word.
            None => None,
        }
    }

    fn definition(&mut self, file: FileId, expr: &Expr, depth: usize) -> Option<Rc<Applied>> {
        if depth > MAX_CHAIN {
            self.diagnostics.push(diag::chain_too_long(expr.span, MAX_CHAIN));
            return None;
        }
        let (name, entries): (Name, &[Entry]) = match &expr.kind {
            ExprKind::Name(text) => (Name { text: text.clone(), span: expr.span }, &[]),
            ExprKind::Applied { def, entries } => (def.clone(), entries),
            _ => {
                self.diagnostics.push(diag::not_a_definition(expr.span));
                return None;
            }
        };
        let base = match self.library.lookup(file, &name.text) {
            Some(Entity::Alias(alias, home)) => {
                let inner = self.definition(home, &alias.value, depth + 1)?;
                Applied { span: expr.span, ..(*inner).clone() }
            }
            Some(Entity::Def(item)) => Applied::bare(Callable::Def(item), expr.span),
            Some(Entity::Init(..) | Entity::Arch(..)) => {
                self.diagnostics.push(diag::not_a_definition(name.span));
                return None;
            }
            // Unknown names are reported by the static check.
            None => Applied::bare(crate::tree::primitive(&name.text)?, expr.span),
        };
        self.configured(file, base, entries, depth)
    }

    fn configured(
        &mut self,
        file: FileId,
        base: Applied,
        entries: &[Entry],
        depth: usize,
    ) -> Option<Rc<Applied>> {
        let mut applied = Rc::new(base);
        let mut seen: Vec<(String, Span)> = Vec::new();
        let before = self.errors();
        for entry in entries {
            self.configure(file, &mut applied, &[], entry, depth, &mut seen);
        }
        (self.errors() == before).then_some(applied)
    }

    fn configure(
        &mut self,
        file: FileId,
        applied: &mut Rc<Applied>,
        prefix: &[Name],
        entry: &Entry,
        depth: usize,
        seen: &mut Vec<(String, Span)>,
    ) {
        let mut places: Vec<(Vec<Name>, Span, Put)> = Vec::new();
        let full = |path: &Path| -> Option<Vec<Name>> {
            let mut names = prefix.to_vec();
            for segment in &path.segments {
                match segment {
                    Segment::Name(name) => names.push(name.clone()),
                    Segment::Layers { .. } => return None,
                }
            }
            Some(names)
        };
        let mut slots = |paths: &[Path], fill: Option<Rc<Applied>>, span: Span| -> bool {
            for path in paths {
                let Some(names) = full(path) else { return false };
                places.push((names, path.span, Put::Slot(SlotSetting { fill: fill.clone(), span })));
            }
            true
        };
        let fits = match entry {
            Entry::Set { path, value, span } | Entry::Replace { path, value, span } => {
                let Some(setting) = self.setting(file, value, *span, depth + 1) else { return };
                full(path).map(|p| places.push((p, path.span, Put::Setting(setting)))).is_some()
            }
            Entry::Nested { path, entries, span: _ } => {
                let Some(deeper) = full(path) else {
                    self.diagnostics.push(diag::layers_inside(path.span));
                    return;
                };
                for inner in entries {
                    self.configure(file, applied, &deeper, inner, depth + 1, seen);
                }
                return;
            }
            Entry::Layers { .. } => false,
            Entry::Fill { slots: paths, with, span } => {
                let Some(fill) = self.definition(file, with, depth + 1) else { return };
                slots(paths, Some(fill), *span)
            }
            Entry::Canon { slots: paths, entries, span } => {
                let Some(fill) = self.canon(file, entries.as_deref().unwrap_or(&[]), *span) else {
                    return;
                };
                slots(paths, Some(fill), *span)
            }
            Entry::Empty { slots: paths, span } => slots(paths, None, *span),
        };
        if !fits {
            self.diagnostics.push(diag::layers_inside(applied.span));
        }
        for (names, span, put) in places {
            let shown = names.iter().map(|n| n.text.as_str()).collect::<Vec<_>>().join(".");
            if let Some((_, before)) = seen.iter().find(|(path, _)| *path == shown) {
                self.diagnostics.push(diag::edited_twice(&shown, span, *before));
            }
            seen.push((shown.clone(), span));
            match self.put_applied(applied, &names, &put) {
                Ok(edited) => *applied = edited,
                Err(why) => self.diagnostics.push(diag::no_such_config(&shown, span, &why)),
            }
        }
    }
}
