//! A `.canon` document as the server sees it between two keystrokes: its program, its tree and its names.
//!
//! Any text has a model, and nothing here waits for an arch to be built.

use std::rc::Rc;
use std::sync::Arc;

use compiler::load::Loaded;
use compiler::op::{self, Config, Primitive};
use compiler::resolve::{Entity, import_target};
use dsl::{ArchBody, Ast, ConfigParam, Entry, Expr, ExprKind, FileId, Item, LayerList, LayerWhat};
use dsl::{Segment, Span};

use crate::analysis::{CanonFacts, loaded};
use crate::index::{Holder, Occurrence, Target, index};
use crate::store::{FileReader, Store};

/// Most steps from one definition to another while a path is followed.
const MAX_STEPS: usize = 48;

/// A document with its program.
pub(crate) struct Model {
    /// The text.
    pub(crate) text: Arc<str>,
    /// The program with its imports.
    pub(crate) loaded: Loaded,
    /// The document's number in it.
    pub(crate) file: FileId,
    /// Its tree.
    pub(crate) ast: Ast,
    /// Its names.
    pub(crate) index: Vec<Occurrence>,
    /// Whether the text parses.
    pub(crate) parses: bool,
}

/// Something that a name refers to.
#[derive(Clone)]
pub(crate) enum Thing {
    /// A definition, in the file where it is defined.
    Entity(Entity),
    /// A configuration name of a definition in the language.
    Param(Rc<compiler::tree::DefItem>, ConfigParam),
    /// A configuration name of a primitive.
    Config(&'static Primitive, &'static Config),
    /// A primitive.
    Primitive(&'static Primitive),
}

impl Model {
    /// Reads a document.
    pub(crate) fn new(name: &str, text: Arc<str>, store: &Store) -> Option<Model> {
        let loaded = loaded(name, &text, &mut FileReader::new(store));
        let file = loaded.program.sources.find(&loaded.name)?;
        let (ast, errors) = dsl::parse(file, &text);
        let index = index(&loaded.program.library, file, &ast);
        Some(Model { text, loaded, file, ast, index, parses: errors.is_empty() })
    }

    /// The name at a place, or directly before it.
    pub(crate) fn at(&self, offset: usize) -> Option<&Occurrence> {
        let covers = |o: &&Occurrence| o.start <= offset && offset <= o.end;
        let within = self.index.iter().filter(covers);
        // Of `a` and `b` in `a.b`, the one that begins here; of nested ones, the shortest.
        within.min_by_key(|o| (offset == o.end, o.end - o.start))
    }

    /// The name of a file of the program.
    pub(crate) fn name(&self, file: FileId) -> &str {
        self.loaded.program.sources.name(file)
    }

    /// The definition that a name of this file means.
    pub(crate) fn entity(&self, name: &str) -> Option<Entity> {
        let library = &self.loaded.program.library;
        // As the base of an arch, a name may mean an arch that std hides elsewhere.
        let arch = || library.arch(self.file, name).map(|(arch, home)| Entity::Arch(arch, home));
        library.lookup(self.file, name).or_else(arch)
    }

    /// The definition that a name of this file means; the primitive if it means none.
    fn definition(&self, file: FileId, name: &str) -> Option<Thing> {
        match self.loaded.program.library.lookup(file, name) {
            Some(entity) => Some(Thing::Entity(entity)),
            None => op::find(name).map(Thing::Primitive),
        }
    }

    /// What a name means, if that is outside the body that it is in.
    pub(crate) fn thing(&self, target: &Target, facts: Option<&CanonFacts>) -> Option<Thing> {
        match target {
            Target::Definition(name) => self.entity(name).map(Thing::Entity),
            Target::Primitive(primitive) => Some(Thing::Primitive(primitive)),
            Target::Imported(path, name) => {
                let target = import_target(&self.loaded.name, path)?;
                let file = self.loaded.program.sources.find(&target)?;
                let library = &self.loaded.program.library;
                let defined_there =
                    library.lookup(file, name).filter(|entity| home(entity) == file);
                let arch = || library.arch(file, name).map(|(arch, home)| Entity::Arch(arch, home));
                defined_there.or_else(arch).map(Thing::Entity)
            }
            Target::Setting(holder, path) => self.setting(holder, path, facts),
            Target::Slot(..)
            | Target::Local(_)
            | Target::BuiltIn(_)
            | Target::ArchField(_)
            | Target::Role(_)
            | Target::File(_) => None,
        }
    }

    /// The configuration name at the end of a path.
    fn setting(
        &self,
        holder: &Holder,
        path: &[String],
        facts: Option<&CanonFacts>,
    ) -> Option<Thing> {
        match holder {
            Holder::Unknown => None,
            Holder::Definition(name) => {
                self.follow(self.definition(self.file, name)?, Vec::new(), path)
            }
            Holder::Given(item, name) => {
                let Item::Def(def) = self.ast.items.get(*item)? else { return None };
                let param = def.config.iter().find(|param| param.name.text == *name)?;
                let start = self.value_of(param.default.as_ref()?, self.file)?;
                self.follow(start, Vec::new(), path)
            }
            Holder::Arch(arch) => {
                let from_facts = facts.and_then(|facts| self.in_facts(arch, path, facts));
                from_facts.or_else(|| {
                    let (layer, given) = self.layer(arch)?;
                    self.follow(layer, given, path)
                })
            }
        }
    }

    /// The configuration name that the last evaluation of the arch, or of its base, found at a path.
    fn in_facts(&self, arch: &str, path: &[String], facts: &CanonFacts) -> Option<Thing> {
        let facts_of = |name: &str| facts.arch(name).map(|arch| &arch.observed);
        let observed = facts_of(arch).filter(|observed| !observed.names.is_empty());
        let observed = observed.or_else(|| facts_of(&self.base(arch)?))?;
        let span = observed.setting(&path.join("."))?;
        self.param_at(facts.name(span), span)
    }

    /// The configuration name that is declared at a place, if the text there is still the same.
    fn param_at(&self, file: &str, span: Span) -> Option<Thing> {
        let file = self.loaded.program.sources.find(file)?;
        let (ast, _) = dsl::parse(file, self.loaded.program.sources.text(file));
        ast.items.into_iter().find_map(|item| {
            let Item::Def(def) = item else { return None };
            let param = def.config.iter().find(|param| param.name.span.start == span.start)?;
            let param = param.clone();
            Some(Thing::Param(Rc::new(compiler::tree::DefItem { file, def }), param))
        })
    }

    /// The name of the arch that an arch is made from.
    pub(crate) fn base(&self, arch: &str) -> Option<String> {
        self.ast.items.iter().find_map(|item| match item {
            Item::Arch(definition) if definition.name.text == arch => match &definition.body {
                ArchBody::With { base, .. } => Some(base.text.clone()),
                ArchBody::Fields(_) => None,
            },
            Item::Arch(_) | Item::Def(_) | Item::Alias(_) | Item::Init(_) => None,
        })
    }

    /// The definition of an arch's first layer, by its text, and what is set there.
    fn layer(&self, arch: &str) -> Option<(Thing, Vec<Given>)> {
        let Entity::Arch(mut arch, mut home) = self.entity(arch)? else { return None };
        for _ in 0..MAX_STEPS {
            match &arch.body {
                ArchBody::Fields(entries) => {
                    let list = entries.iter().find_map(|entry| match entry {
                        Entry::Layers { value, .. } => Some(value),
                        _ => None,
                    })?;
                    let layer = first_layer(list)?;
                    return Some((self.value_of(layer, home)?, given(layer, home)));
                }
                ArchBody::With { base, .. } => {
                    (arch, home) = self.loaded.program.library.arch(home, &base.text)?;
                }
            }
        }
        None
    }

    /// The definition that an expression names.
    fn value_of(&self, expr: &Expr, file: FileId) -> Option<Thing> {
        match &expr.kind {
            ExprKind::Name(name) => self.definition(file, name),
            ExprKind::Applied { def, .. } => self.definition(file, &def.text),
            _ => None,
        }
    }

    /// Follows a path of configuration names from a definition.
    fn follow(&self, start: Thing, mut settings: Vec<Given>, path: &[String]) -> Option<Thing> {
        let mut at = start;
        for (step, name) in path.iter().enumerate() {
            for _ in 0..MAX_STEPS {
                let Thing::Entity(Entity::Alias(alias, home)) = &at else { break };
                // What an alias sets counts less than what is set around it.
                settings.extend(given(&alias.value, *home));
                at = self.value_of(&alias.value, *home)?;
            }
            let mut inside = Vec::new();
            let (setting, inner) = match &at {
                Thing::Primitive(primitive) => {
                    let config = primitive.config.iter().find(|config| config.name == name)?;
                    (Thing::Config(primitive, config), None)
                }
                Thing::Entity(Entity::Def(item)) => {
                    let param = item.def.config.iter().find(|param| param.name.text == *name)?;
                    let set = settings.iter().find_map(|(entries, home)| {
                        set_in(entries, name).map(|value| (value, *home))
                    });
                    let default = param.default.as_ref().map(|value| (value, item.file));
                    let value = set.or(default);
                    let inner = value.and_then(|(value, home)| {
                        inside = given(value, home);
                        self.value_of(value, home)
                    });
                    (Thing::Param(item.clone(), param.clone()), inner)
                }
                _ => return None,
            };
            if step + 1 == path.len() {
                return Some(setting);
            }
            settings = inside;
            at = inner?;
        }
        Some(at)
    }

    /// The configuration names of a definition, with their defaults as written.
    pub(crate) fn config_names(
        &self,
        thing: &Thing,
    ) -> Vec<(String, Option<String>, Option<String>)> {
        let mut at = thing.clone();
        for _ in 0..MAX_STEPS {
            let Thing::Entity(Entity::Alias(alias, home)) = &at else { break };
            match self.value_of(&alias.value, *home) {
                Some(next) => at = next,
                None => return Vec::new(),
            }
        }
        match &at {
            Thing::Primitive(primitive) => primitive
                .config
                .iter()
                .map(|config| {
                    let accepts = config.accepts();
                    (config.name.to_owned(), config.default_text(), Some(accepts))
                })
                .collect(),
            Thing::Entity(Entity::Def(item)) => item
                .def
                .config
                .iter()
                .map(|param| {
                    (param.name.text.clone(), param.default.as_ref().map(dsl::print_expr), None)
                })
                .collect(),
            Thing::Entity(_) | Thing::Param(..) | Thing::Config(..) => Vec::new(),
        }
    }

    /// The definition that a path leads to from what the settings belong to; with an empty path, that itself.
    pub(crate) fn holder(
        &self,
        holder: &Holder,
        path: &[String],
        facts: Option<&CanonFacts>,
    ) -> Option<Thing> {
        if path.is_empty() {
            return match holder {
                Holder::Definition(name) => self.definition(self.file, name),
                Holder::Arch(arch) => self.layer(arch).map(|(layer, _)| layer),
                Holder::Given(..) | Holder::Unknown => None,
            };
        }
        match self.setting(holder, path, facts)? {
            Thing::Param(item, param) => self.value_of(param.default.as_ref()?, item.file),
            Thing::Entity(_) | Thing::Config(..) | Thing::Primitive(_) => None,
        }
    }
}

/// Settings that are written with a definition, and the file that they are in.
type Given = (Vec<Entry>, FileId);

fn given(expr: &Expr, file: FileId) -> Vec<Given> {
    match &expr.kind {
        ExprKind::Applied { entries, .. } => vec![(entries.clone(), file)],
        _ => Vec::new(),
    }
}

/// The file in which a definition is written.
pub(crate) fn home(entity: &Entity) -> FileId {
    match entity {
        Entity::Def(item) => item.file,
        Entity::Alias(_, home) | Entity::Init(_, home) | Entity::Arch(_, home) => *home,
    }
}

/// The kind of a definition, as its keyword.
pub(crate) fn word(entity: &Entity) -> &'static str {
    match entity {
        Entity::Def(item) => item.def.kind.word(),
        Entity::Alias(alias, _) => alias.kind.word(),
        Entity::Init(..) => "init",
        Entity::Arch(..) => "arch",
    }
}

/// The `///` lines of a definition.
pub(crate) fn docs(entity: &Entity) -> &[String] {
    match entity {
        Entity::Def(item) => &item.def.docs,
        Entity::Alias(alias, _) => &alias.docs,
        Entity::Init(table, _) => &table.docs,
        Entity::Arch(arch, _) => &arch.docs,
    }
}

fn first_layer(list: &LayerList) -> Option<&Expr> {
    match &list.what {
        LayerWhat::One { layer, .. } => Some(layer),
        LayerWhat::List(items) => items.iter().find_map(first_layer),
    }
}

/// The value that entries give to a name.
fn set_in<'e>(entries: &'e [Entry], name: &str) -> Option<&'e Expr> {
    entries.iter().find_map(|entry| {
        let (Entry::Set { path, value, .. } | Entry::Replace { path, value, .. }) = entry else {
            return None;
        };
        match path.segments.as_slice() {
            [Segment::Name(set)] if set.text == name => Some(value),
            _ => None,
        }
    })
}
