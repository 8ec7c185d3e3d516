//! Every use of a name, in all files of the workspace, and renaming.
//!
//! A renamed program has no error that it did not have, and no name in it means something else than before.

use std::collections::BTreeMap;
use std::sync::Arc;

use compiler::resolve::import_target;
use dsl::limits::MAX_NAME_BYTES;
use dsl::{TokenClass, keywords, tokens};

use crate::analysis::{Analyst, Job};
use crate::index::{Local, LocalKind, Occurrence, Target};
use crate::model::{Model, Thing, home};
use crate::standard;
use crate::store::{DocumentKind, Store};
use crate::view::View;

/// Something that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Symbol {
    /// A name of a body: the file, the definition, the name, and whether it is an instance.
    Local(String, usize, String, bool),
    /// A definition of a file.
    Definition(String, String),
    /// A configuration name of a definition of a file.
    Param(String, String, String),
}

/// A use of a name in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UseSite {
    /// The name of the file.
    pub(crate) file: String,
    /// The first byte.
    pub(crate) start: usize,
    /// The end.
    pub(crate) end: usize,
}

/// Texts to write, by file.
pub(crate) type Edits = BTreeMap<String, Vec<(usize, usize, String)>>;

fn is_instance(kind: LocalKind) -> bool {
    kind == LocalKind::Instance
}

/// The symbol of an occurrence.
fn symbol(model: &Model, occurrence: &Occurrence, view: &View<'_>) -> Option<Symbol> {
    let name = model.loaded.name.clone();
    match &occurrence.target {
        Target::Local(Local { item, name: local, kind: LocalKind::Config, .. }) => {
            let def = model.ast.items.get(*item)?.name().text.clone();
            Some(Symbol::Param(name, def, local.clone()))
        }
        Target::Local(local) => {
            Some(Symbol::Local(name, local.item, local.name.clone(), is_instance(local.kind)))
        }
        target => match model.thing(target, view.facts)? {
            Thing::Entity(entity) => {
                let file = model.name(home(&entity)).to_owned();
                Some(Symbol::Definition(file, entity.name().text.clone()))
            }
            Thing::Param(item, param) => {
                let file = model.name(item.file).to_owned();
                Some(Symbol::Param(file, item.def.name.text.clone(), param.name.text))
            }
            Thing::Primitive(_) | Thing::Config(..) => None,
        },
    }
}

/// The uses of the name at a place, in all files.
pub(crate) fn references(view: &View<'_>, offset: usize) -> Vec<UseSite> {
    let Some(occurrence) = view.model.at(offset) else { return Vec::new() };
    match symbol(view.model, occurrence, view) {
        Some(symbol) => uses(view, &symbol, written(view.model, occurrence)),
        // Of a primitive or a slot, those in this document.
        None => {
            let word = written(view.model, occurrence);
            let alike = |o: &&Occurrence| {
                std::mem::discriminant(&o.target) == std::mem::discriminant(&occurrence.target)
                    && written(view.model, o) == word
            };
            view.model.index.iter().filter(alike).map(|o| use_site(view.name(), o)).collect()
        }
    }
}

/// The uses of the name at a place in this document.
pub(crate) fn highlights(view: &View<'_>, offset: usize) -> Vec<(UseSite, bool)> {
    let Some(occurrence) = view.model.at(offset) else { return Vec::new() };
    let wanted = symbol(view.model, occurrence, view);
    let word = written(view.model, occurrence);
    let is_use = |o: &&Occurrence| {
        written(view.model, o) == word
            && match &wanted {
                Some(wanted) => symbol(view.model, o, view).as_ref() == Some(wanted),
                None => {
                    std::mem::discriminant(&o.target) == std::mem::discriminant(&occurrence.target)
                }
            }
    };
    view.model.index.iter().filter(is_use).map(|o| (use_site(view.name(), o), o.binds)).collect()
}

fn written<'m>(model: &'m Model, occurrence: &Occurrence) -> &'m str {
    model.text.get(occurrence.start..occurrence.end).unwrap_or("")
}

fn use_site(file: &str, occurrence: &Occurrence) -> UseSite {
    UseSite { file: file.to_owned(), start: occurrence.start, end: occurrence.end }
}

fn uses(view: &View<'_>, wanted: &Symbol, word: &str) -> Vec<UseSite> {
    let mut sites = Vec::new();
    let mut collect = |model: &Model, view: &View<'_>| {
        for occurrence in &model.index {
            if written(model, occurrence) == word
                && symbol(model, occurrence, view).as_ref() == Some(wanted)
            {
                sites.push(use_site(&model.loaded.name, occurrence));
            }
        }
    };
    collect(view.model, view);
    if !matches!(wanted, Symbol::Local(..)) {
        for name in view.store.find(&["canon"]) {
            let text = view.store.text(&name).filter(|text| text.contains(word));
            let (Some(text), false) = (text, name == view.name()) else { continue };
            let Some(model) = Model::new(&name, text, view.store) else { continue };
            collect(&model, &View { model: &model, facts: None, ..*view });
        }
    }
    if let Symbol::Definition(file, name) = wanted {
        sites.extend(in_recipes(view.store, file, name));
    }
    sites.sort();
    sites.dedup();
    sites
}

/// The uses of an arch in recipes: the name in `"../arch/file.canon#name"`.
fn in_recipes(store: &Store, file: &str, arch: &str) -> Vec<UseSite> {
    const MARK: &str = ".canon#";
    let mut sites = Vec::new();
    for recipe in store.find(&["toml"]) {
        let Some(text) = store.text(&recipe) else { continue };
        for (at, _) in text.match_indices(MARK) {
            let start = at + MARK.len();
            let path = text.get(..start - 1).and_then(|before| before.rsplit(['"', '\'']).next());
            let name = text.get(start..).and_then(|after| after.split(['"', '\'']).next());
            let target = path.and_then(|path| import_target(&recipe, path));
            if name == Some(arch) && target.as_deref() == Some(file) {
                let (file, end) = (recipe.clone(), start + arch.len());
                sites.push(UseSite { file, start, end });
            }
        }
    }
    sites
}

/// The name at a place if it can be renamed, else the reason why it cannot.
pub(crate) fn prepare(view: &View<'_>, offset: usize) -> Result<(usize, usize), String> {
    let Some(occurrence) = view.model.at(offset) else {
        return Err("there is no name here".to_owned());
    };
    let word = written(view.model, occurrence);
    let refused = match &occurrence.target {
        Target::Primitive(_) => format!("`{word}` is a primitive"),
        Target::BuiltIn(_) => format!("`{word}` is a word of the language"),
        Target::ArchField(_) => format!("`{word}` is a field that every arch has"),
        Target::Slot(..) => {
            format!("the slot `{word}` may be filled by archs that are not in this workspace")
        }
        Target::Role(_) => format!("`{word}` is the role of parameters in other definitions"),
        Target::File(_) => "a file is renamed outside the editor's text".to_owned(),
        Target::Local(Local { kind: LocalKind::Carry, .. }) => {
            format!("`{word}` means the same tensor in other definitions")
        }
        Target::Local(_) | Target::Definition(_) | Target::Imported(..) | Target::Setting(..) => {
            match symbol(view.model, occurrence, view) {
                Some(Symbol::Definition(file, _) | Symbol::Param(file, ..))
                    if is_standard(view, &file) =>
                {
                    format!("`{word}` is defined in {file}, which is part of canonc")
                }
                Some(_) => return Ok((occurrence.start, occurrence.end)),
                None => format!("it is not known what `{word}` refers to"),
            }
        }
    };
    Err(refused)
}

/// Whether a file is part of canonc rather than of the workspace.
fn is_standard(view: &View<'_>, file: &str) -> bool {
    let sources = &view.model.loaded.program.sources;
    let is_of_workspace =
        sources.find(file).is_some_and(|id| view.model.loaded.program.files().contains(&id));
    !is_of_workspace || standard::is_written(view.store, &view.store.path(file))
}

/// The edits that give the name at a place another spelling.
pub(crate) fn rename(view: &View<'_>, offset: usize, new: &str) -> Result<Edits, String> {
    prepare(view, offset)?;
    check_word(new)?;
    let occurrence = view.model.at(offset).ok_or("there is no name here")?;
    let word = written(view.model, occurrence);
    let wanted = symbol(view.model, occurrence, view).ok_or("there is no name here")?;
    if word == new {
        return Ok(Edits::new());
    }
    // Under another name in this file, only that name changes.
    let alias = matches!(&occurrence.target, Target::Definition(_))
        .then(|| alias_of(view.model, word))
        .flatten();
    let sites = match alias {
        Some(()) => local_alias(view, word),
        None => uses(view, &wanted, word),
    };
    let mut edits = Edits::new();
    for UseSite { file, start, end } in sites {
        edits.entry(file).or_default().push((start, end, new.to_owned()));
    }
    taken(view, &wanted, new, &edits)?;
    still_valid(view, &edits)?;
    Ok(edits)
}

/// Whether a name of this file is given by `as` in an import.
fn alias_of(model: &Model, word: &str) -> Option<()> {
    let names = model.ast.imports.iter().flat_map(|import| &import.names);
    let mut aliases = names.filter_map(|name| name.alias.as_ref());
    aliases.any(|alias| alias.text == word).then_some(())
}

fn local_alias(view: &View<'_>, word: &str) -> Vec<UseSite> {
    let named = |o: &&Occurrence| {
        matches!(&o.target, Target::Definition(name) if name == word)
            && written(view.model, o) == word
    };
    view.model.index.iter().filter(named).map(|o| use_site(view.name(), o)).collect()
}

fn check_word(new: &str) -> Result<(), String> {
    let first = new.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    if !first || !new.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(format!("`{new}` is not a name: use letters, digits and `_`"));
    }
    if new.len() > MAX_NAME_BYTES {
        return Err(format!("a name has at most {MAX_NAME_BYTES} bytes"));
    }
    match keywords().any(|(word, _, is_name)| word == new && !is_name) {
        true => Err(format!("`{new}` is a keyword")),
        false => Ok(()),
    }
}

/// Refuses a name that some edited text already uses: the two could be confused.
fn taken(view: &View<'_>, wanted: &Symbol, new: &str, edits: &Edits) -> Result<(), String> {
    for file in edits.keys().filter(|file| file.ends_with(".canon")) {
        let Some(text) = view.store.text(file) else { continue };
        let within = match wanted {
            Symbol::Local(_, item, ..) => view.model.ast.items.get(*item).map(|item| item.span()),
            Symbol::Param(home, def, _) if home == file => {
                let (ast, _) = dsl::parse(dsl::FileId(0), &text);
                let item = ast.items.iter().find(|item| item.name().text == *def);
                item.map(|item| item.span())
            }
            // Elsewhere it is written only where settings of the definition are.
            Symbol::Param(..) => continue,
            Symbol::Definition(..) => None,
        };
        for token in tokens(&text) {
            let is_name = matches!(token.class, TokenClass::Name | TokenClass::Soft);
            let is_inside = within.is_none_or(|span| {
                span.start as usize <= token.start && token.end <= span.end as usize
            });
            if is_name && is_inside && text.get(token.start..token.end) == Some(new) {
                let line = 1 + text.get(..token.start).unwrap_or("").matches('\n').count();
                return Err(format!("`{new}` is already used at {file}:{line}"));
            }
        }
    }
    Ok(())
}

/// Refuses edits after which a file has an error that it did not have.
fn still_valid(view: &View<'_>, edits: &Edits) -> Result<(), String> {
    let mut after = view.store.clone();
    for (file, edits) in edits {
        let Some(text) = view.store.text(file) else { continue };
        let name = after.name(&after.path(file));
        after.open.insert(name, Arc::from(apply(&text, edits)));
    }
    let after = Arc::new(after);
    let before = Arc::new(view.store.clone());
    for file in edits.keys() {
        let errors = |store: &Arc<Store>| {
            let text = store.text(file)?;
            let kind = DocumentKind::find(file, &text)?;
            let (name, store) = (file.clone(), store.clone());
            let job = Job { number: 0, name, kind, text, is_edited: false, store };
            let (findings, _) = Analyst::default().findings(&job);
            Some(findings.shown.into_iter().filter(|finding| finding.is_error).collect::<Vec<_>>())
        };
        let (had, has) = (errors(&before).unwrap_or_default(), errors(&after).unwrap_or_default());
        if let Some(new) = has.iter().find(|new| !had.iter().any(|old| old.code == new.code)) {
            return Err(format!("{file} would have an error: {}", new.message));
        }
    }
    Ok(())
}

/// A text with edits, which do not overlap.
pub(crate) fn apply(text: &str, edits: &[(usize, usize, String)]) -> String {
    let mut sorted = edits.to_vec();
    sorted.sort();
    let mut out = String::new();
    let mut at = 0;
    for (start, end, new) in sorted {
        out += text.get(at..start).unwrap_or("");
        out += &new;
        at = end;
    }
    out + text.get(at..).unwrap_or("")
}
