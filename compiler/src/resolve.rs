//! Resolves names in each file: a [`Library`] that finds definitions by (file, name), and every broken import,
//! undefined name and cycle.

use std::collections::BTreeMap;
use std::rc::Rc;

use dsl::limits::MAX_ERRORS;
use dsl::{
    Alias, Arch, ArchBody, Ast, DefKind, Diagnostics, FileId, InitTable, Item, Name, Sources, Span,
};

use crate::diag;
use crate::names;
use crate::op;
use crate::order::cycles;
use crate::tree::DefItem;

/// The definition of a name in a file's scope.
#[derive(Clone, Debug)]
pub enum Entity {
    /// A definition with a body.
    Def(Rc<DefItem>),
    /// A definition with configuration, and its file.
    Alias(Rc<Alias>, FileId),
    /// A table of initial values, and its file.
    Init(Rc<InitTable>, FileId),
    /// An arch, and its file.
    Arch(Rc<Arch>, FileId),
}

impl Entity {
    /// The name as its own file writes it.
    pub fn name(&self) -> &Name {
        match self {
            Entity::Def(item) => &item.def.name,
            Entity::Alias(alias, _) => &alias.name,
            Entity::Init(table, _) => &table.name,
            Entity::Arch(arch, _) => &arch.name,
        }
    }
}

impl Entity {
    /// Its syntax as parsed, and its file.
    fn item(&self) -> (Item, FileId) {
        match self {
            Entity::Def(item) => (Item::Def(item.def.clone()), item.file),
            Entity::Alias(alias, home) => (Item::Alias(alias.as_ref().clone()), *home),
            Entity::Init(table, home) => (Item::Init(table.as_ref().clone()), *home),
            Entity::Arch(arch, home) => (Item::Arch(arch.as_ref().clone()), *home),
        }
    }
}

/// Every definition of one compilation, by file and name.
#[derive(Clone, Debug, Default)]
pub struct Library {
    scopes: BTreeMap<FileId, BTreeMap<String, Entity>>,
    /// The names that each file defines, in the order written.
    defined: BTreeMap<FileId, Vec<String>>,
    std: BTreeMap<String, Entity>,
}

/// The target of an import: its path, relative to the importing file, with `.` and `..` resolved as
/// far as possible; `None` if it is absolute.
pub fn import_target(importer: &str, path: &str) -> Option<String> {
    if path.starts_with('/') || path.contains('\\') || path.contains(':') {
        return None;
    }
    let mut parts: Vec<&str> = importer.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => match parts.last() {
                Some(&last) if last != ".." => {
                    parts.pop();
                }
                _ => parts.push(".."),
            },
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Gives every file its scope: its own definitions, its imports, then the standard ones. Reports cycles.
pub fn resolve(
    sources: &Sources,
    files: &[(FileId, Ast)],
    std: &[(FileId, Ast)],
) -> (Library, Diagnostics) {
    let mut library = Library::default();
    let mut diagnostics = Diagnostics::new();
    for (file, ast) in std {
        for entity in items(*file, ast) {
            library.std.insert(entity.name().text.clone(), entity);
        }
        library.scopes.insert(*file, BTreeMap::new());
    }
    for (file, ast) in files {
        let mut scope = BTreeMap::new();
        let mut defined = Vec::new();
        for entity in items(*file, ast) {
            let name = entity.name().clone();
            if diagnostics.len() <= MAX_ERRORS && hides_a_primitive(&entity, &name.text) {
                diagnostics.push(diag::names_a_primitive(&name));
            }
            defined.push(name.text.clone());
            // The parser has reported repeated definitions; keep the first.
            scope.entry(name.text).or_insert(entity);
        }
        library.defined.insert(*file, defined);
        library.scopes.insert(*file, scope);
    }
    import(sources, files, &mut library, &mut diagnostics);
    import_cycles(sources, files, &mut diagnostics);
    call_cycles(files, &library, &mut diagnostics);
    (library, diagnostics)
}

fn items(file: FileId, ast: &Ast) -> Vec<Entity> {
    ast.items
        .iter()
        .map(|item| match item {
            Item::Def(def) => Entity::Def(Rc::new(DefItem { file, def: def.clone() })),
            Item::Alias(alias) => Entity::Alias(Rc::new(alias.clone()), file),
            Item::Init(table) => Entity::Init(Rc::new(table.clone()), file),
            Item::Arch(arch) => Entity::Arch(Rc::new(arch.clone()), file),
        })
        .collect()
}

/// Mixers and mlps are configured rather than called, so they may share a primitive's name.
fn hides_a_primitive(entity: &Entity, name: &str) -> bool {
    let kind = match entity {
        Entity::Def(item) => Some(item.def.kind),
        Entity::Alias(alias, _) => Some(alias.kind),
        Entity::Init(..) | Entity::Arch(..) => None,
    };
    matches!(kind, Some(DefKind::Block | DefKind::Head)) && op::find(name).is_some()
}

fn import(
    sources: &Sources,
    files: &[(FileId, Ast)],
    library: &mut Library,
    diagnostics: &mut Diagnostics,
) {
    // Only a file's own definitions can be imported: imports are not re-exported.
    let exported: BTreeMap<FileId, BTreeMap<String, Entity>> = library.scopes.clone();
    let nothing = Vec::new();
    for (file, ast) in files {
        for import in &ast.imports {
            if diagnostics.len() > MAX_ERRORS {
                return;
            }
            let target = import_target(sources.name(*file), &import.path);
            let imported = target.as_deref().and_then(|t| sources.find(t));
            let Some((target_file, names)) = imported.and_then(|f| Some((f, exported.get(&f)?)))
            else {
                diagnostics.push(diag::unknown_import(
                    import.path_span,
                    &import.path,
                    files.iter().map(|(f, _)| sources.name(*f)),
                ));
                continue;
            };
            for wanted in &import.names {
                let Some(entity) = names.get(&wanted.name.text) else {
                    if diagnostics.len() <= MAX_ERRORS {
                        let defined = library.defined.get(&target_file).unwrap_or(&nothing);
                        let unknown =
                            diag::unknown_imported_name(&wanted.name, &import.path, defined);
                        diagnostics.push(unknown);
                    }
                    continue;
                };
                let alias = wanted.alias.as_ref().unwrap_or(&wanted.name);
                if wanted.alias.is_some() && hides_a_primitive(entity, &alias.text) {
                    diagnostics.push(diag::names_a_primitive(alias));
                    continue;
                }
                // The parser has reported names that are both imported and defined; keep the definition.
                let scope = library.scopes.entry(*file).or_default();
                scope.entry(alias.text.clone()).or_insert_with(|| entity.clone());
            }
        }
    }
}

fn import_cycles(sources: &Sources, files: &[(FileId, Ast)], diagnostics: &mut Diagnostics) {
    let mut edges = Vec::new();
    // The first import of one file by another.
    let mut spans: BTreeMap<(usize, usize), Span> = BTreeMap::new();
    for (i, (file, ast)) in files.iter().enumerate() {
        for import in &ast.imports {
            let target = import_target(sources.name(*file), &import.path)
                .and_then(|t| files.iter().position(|(f, _)| sources.name(*f) == t));
            if let Some(target) = target {
                edges.push((i, target));
                spans.entry((i, target)).or_insert(import.path_span);
            }
        }
    }
    for cycle in cycles(files.len(), &edges) {
        if diagnostics.len() > MAX_ERRORS {
            return;
        }
        let names: Vec<&str> =
            cycle.iter().filter_map(|i| files.get(*i)).map(|(f, _)| sources.name(*f)).collect();
        let next = cycle.get(1).or(cycle.first());
        let at = cycle.first().zip(next).and_then(|(from, to)| spans.get(&(*from, *to)));
        if let Some(span) = at {
            diagnostics.push(diag::import_cycle(*span, &names));
        }
    }
}

fn call_cycles(files: &[(FileId, Ast)], library: &Library, diagnostics: &mut Diagnostics) {
    let mut defs: Vec<(FileId, &Name)> = Vec::new();
    let mut called: Vec<Vec<(FileId, Name)>> = Vec::new();
    let mut arch: Vec<bool> = Vec::new();
    for (file, ast) in files {
        for item in &ast.items {
            let calls = names::references(item)
                .into_iter()
                .filter_map(|name| {
                    let base = base_of(item).filter(|base| base.text == name.text);
                    if let Some((arch, home)) = base.and_then(|b| library.arch(*file, &b.text)) {
                        return Some((home, arch.name.clone()));
                    }
                    let entity = library.lookup(*file, &name.text)?;
                    let home = match &entity {
                        Entity::Def(item) => item.file,
                        Entity::Alias(_, f) | Entity::Init(_, f) | Entity::Arch(_, f) => *f,
                    };
                    Some((home, entity.name().clone()))
                })
                .collect();
            defs.push((*file, item.name()));
            arch.push(matches!(item, Item::Arch(_)));
            called.push(calls);
        }
    }
    let mut numbers: BTreeMap<(FileId, &str), usize> = BTreeMap::new();
    for (i, (file, name)) in defs.iter().enumerate() {
        numbers.entry((*file, &name.text)).or_insert(i);
    }
    let mut edges = Vec::new();
    for (from, calls) in called.iter().enumerate() {
        for (file, name) in calls {
            let to = numbers.get(&(*file, name.text.as_str()));
            edges.extend(to.map(|to| (from, *to)));
        }
    }
    for cycle in cycles(defs.len(), &edges) {
        if diagnostics.len() > MAX_ERRORS {
            return;
        }
        let chain: Vec<&Name> = cycle.iter().filter_map(|i| defs.get(*i)).map(|d| d.1).collect();
        let archs = cycle.iter().all(|i| arch.get(*i) == Some(&true));
        if let Some(first) = chain.first() {
            diagnostics.push(diag::call_cycle(first.span, &chain, archs));
        }
    }
}

/// The base of an arch.
fn base_of(item: &Item) -> Option<&Name> {
    match item {
        Item::Arch(Arch { body: ArchBody::With { base, .. }, .. }) => Some(base),
        Item::Arch(_) | Item::Def(_) | Item::Alias(_) | Item::Init(_) => None,
    }
}

impl Library {
    /// Finds `name` in a file: its definitions and imports, then std. An arch shadows neither a definition of std nor a
    /// word of the language, which is `None`: a name in the place of a definition never means an arch.
    pub fn lookup(&self, file: FileId, name: &str) -> Option<Entity> {
        let in_file = self.scopes.get(&file).and_then(|s| s.get(name));
        match (in_file, self.std.get(name)) {
            (Some(Entity::Arch(..)) | None, Some(std)) => Some(std.clone()),
            (Some(Entity::Arch(..)), None) if names::is_built_in(name) => None,
            (in_file, _) => in_file.cloned(),
        }
    }

    /// The arch with that name, and its file.
    pub fn arch(&self, file: FileId, name: &str) -> Option<(Rc<Arch>, FileId)> {
        match self.scopes.get(&file).and_then(|s| s.get(name)) {
            Some(Entity::Arch(arch, home)) => Some((arch.clone(), *home)),
            _ => None,
        }
    }

    /// The spans of all items an arch uses, including its own; `None` if one is missing.
    pub(crate) fn used_by(&self, file: FileId, name: &str) -> Option<Vec<Span>> {
        self.used(file, name).filter(|(_, complete)| *complete).map(|(used, _)| used)
    }

    /// The same for the items that exist, and whether all do.
    pub(crate) fn used(&self, file: FileId, name: &str) -> Option<(Vec<Span>, bool)> {
        let (arch, home) = self.arch(file, name)?;
        let mut complete = true;
        let mut next = vec![Entity::Arch(arch, home)];
        let mut spans: BTreeMap<(FileId, u32), Span> = BTreeMap::new();
        while let Some(entity) = next.pop() {
            let (item, home) = entity.item();
            let span = item.span();
            if spans.insert((home, span.start), span).is_some() {
                continue;
            }
            for used in names::references(&item) {
                let base = base_of(&item).filter(|base| base.text == used.text);
                let arch = base.and_then(|base| self.arch(home, &base.text));
                let entity = arch.map(|(arch, home)| Entity::Arch(arch, home));
                match entity.or_else(|| self.lookup(home, &used.text)) {
                    Some(entity) => next.push(entity),
                    None if names::is_built_in(&used.text) => {}
                    None => complete = false,
                }
            }
        }
        Some((spans.into_values().collect(), complete))
    }

    /// Every name visible in a file, for suggestions.
    pub fn visible(&self, file: FileId) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .scopes
            .get(&file)
            .into_iter()
            .flat_map(|s| s.keys())
            .chain(self.std.keys())
            .map(String::as_str)
            .collect();
        names.extend(op::ALL.iter().map(|p| p.name));
        names
    }

    /// Archs defined in that file, in the order written.
    pub fn archs(&self, file: FileId) -> Vec<Rc<Arch>> {
        let scope = self.scopes.get(&file);
        self.defined
            .get(&file)
            .into_iter()
            .flatten()
            .filter_map(|name| match scope.and_then(|s| s.get(name)) {
                Some(Entity::Arch(arch, home)) if *home == file => Some(arch.clone()),
                _ => None,
            })
            .collect()
    }
}
