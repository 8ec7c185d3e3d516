//! Completion in `.canon` documents.
//!
//! Every word comes from the compiler's lists, from `std`, from the files of the program, or from the fields that the arch
//! was last seen to have.

use std::collections::BTreeSet;

use compiler::elaborate::Field;
use compiler::names::{ARCH_NAMES, FUNCTIONS};
use compiler::number::InitRule;
use compiler::op::{self, ConfigKind};
use compiler::resolve::{Entity, import_target};
use compiler::tree::{ARCH_LEVEL, ROLES};
use dsl::{WordRole, keywords};
use lsp_types::{
    CompletionItem, CompletionItemKind, CompletionTextEdit, Documentation, MarkupContent,
    MarkupKind, TextEdit,
};

use crate::cursor::{Cursor, Wanted, cursor};
use crate::hover::{describe_built_in, describe_primitive};
use crate::index::Holder;
use crate::model::{self, Thing};
use crate::text::Text;
use crate::view::View;

/// The words that fit at a place.
pub(crate) fn complete(view: &View<'_>, text: &Text, offset: usize) -> Vec<CompletionItem> {
    let cursor = cursor(text.as_str(), offset);
    let mut list = List { view, items: Vec::new(), seen: BTreeSet::new() };
    list.all(&cursor);
    let range = text.range(cursor.start, offset);
    let mut items = list.items;
    for item in &mut items {
        let new_text = item.insert_text.take().unwrap_or_else(|| item.label.clone());
        item.text_edit = Some(CompletionTextEdit::Edit(TextEdit { range, new_text }));
    }
    items
}

struct List<'a, 'v> {
    view: &'a View<'v>,
    items: Vec<CompletionItem>,
    seen: BTreeSet<String>,
}

impl List<'_, '_> {
    fn add(&mut self, label: &str, kind: CompletionItemKind, detail: &str) {
        self.documented(label, kind, detail, String::new());
    }

    fn documented(&mut self, label: &str, kind: CompletionItemKind, detail: &str, docs: String) {
        if !self.seen.insert(label.to_owned()) {
            return;
        }
        let value = MarkupContent { kind: MarkupKind::Markdown, value: docs };
        self.items.push(CompletionItem {
            label: label.to_owned(),
            kind: Some(kind),
            detail: (!detail.is_empty()).then(|| detail.to_owned()),
            documentation: (!value.value.is_empty()).then_some(Documentation::MarkupContent(value)),
            // In the order in which they were added.
            sort_text: Some(format!("{:04}", self.items.len())),
            ..CompletionItem::default()
        });
    }

    fn all(&mut self, cursor: &Cursor) {
        match &cursor.wanted {
            Wanted::Nothing => {}
            Wanted::Definition => {
                for word in ["import", "block", "mixer", "mlp", "head", "init", "arch"] {
                    self.add(word, CompletionItemKind::KEYWORD, "");
                }
            }
            Wanted::Base => self.entities(&["arch"]),
            Wanted::Import(path) => self.imported(path.as_deref()),
            Wanted::Path(written) => self.paths(written),
            Wanted::Role => {
                for role in ROLES {
                    self.add(role, CompletionItemKind::PROPERTY, "role");
                }
            }
            Wanted::Key(holder, path, set) => self.keys(holder, path, set),
            Wanted::Value(holder, path) => self.values(holder, path),
            Wanted::Slot(holder) => self.slots(holder),
            Wanted::Expression(callee) => {
                if let Some(callee) = callee {
                    self.arguments(callee);
                }
                self.expression(&cursor.locals);
            }
            Wanted::Statement => {
                self.expression(&cursor.locals);
                for word in ["param", "share", "carry", "if", "else", "slot"] {
                    self.add(word, CompletionItemKind::KEYWORD, "");
                }
            }
        }
    }

    /// The names of settings.
    fn keys(&mut self, holder: &Holder, path: &[String], set: &[String]) {
        let before = self.items.len();
        if let Some(thing) = self.view.model.holder(holder, path, self.view.facts)
            && !(matches!(holder, Holder::Arch(_)) && path.is_empty())
        {
            for (name, default, accepts) in self.view.model.config_names(&thing) {
                if set.contains(&name) {
                    continue;
                }
                let default = default.map_or("required".to_owned(), |text| format!("= {text}"));
                let detail = match accepts {
                    Some(accepts) => format!("{default}, {accepts}"),
                    None => default,
                };
                self.add(&name, CompletionItemKind::PROPERTY, &detail);
            }
        }
        if let Holder::Arch(arch) = holder {
            let fields = ARCH_LEVEL.iter().filter(|_| path.is_empty());
            for field in fields.filter(|field| !set.iter().any(|set| set == *field)) {
                self.add(field, CompletionItemKind::PROPERTY, "field of an arch");
            }
            self.seen_below(arch, path);
        }
        let takes_slots = path.is_empty() && !matches!(holder, Holder::Unknown);
        if takes_slots && (matches!(holder, Holder::Arch(_)) || self.items.len() > before) {
            for word in ["canon", "fill", "empty"] {
                self.add(word, CompletionItemKind::KEYWORD, "slots");
            }
        }
    }

    /// The next parts of the paths that an arch, or the one that it is made from, was last seen to have.
    fn seen_below(&mut self, arch: &str, path: &[String]) {
        let view = self.view;
        let Some(facts) = view.facts else { return };
        let base = view.model.base(arch);
        let observed = facts.arch(arch).filter(|arch| !arch.observed.fields.is_empty());
        let Some(arch) = observed.or_else(|| facts.arch(&base?)) else { return };
        let unnumbered = |field: &Field| -> Vec<String> {
            let parts = field.path.split('.').map(str::to_owned);
            parts.filter(|part| part != "layers" && part.parse::<usize>().is_err()).collect()
        };
        for field in &arch.observed.fields {
            let parts = unnumbered(field);
            let (Some(next), true) = (parts.get(path.len()), parts.starts_with(path)) else {
                continue;
            };
            if next == "slots" || parts.first().is_some_and(|first| first == "slots") {
                continue;
            }
            let value = if parts.len() == path.len() + 1 { field.value.as_str() } else { "" };
            let detail = if value.is_empty() { String::new() } else { format!("= {value}") };
            self.add(next, CompletionItemKind::PROPERTY, &detail);
        }
    }

    fn slots(&mut self, holder: &Holder) {
        let mut names: BTreeSet<String> = BTreeSet::new();
        let facts = self.view.facts.map_or(&[] as &[_], |facts| &facts.archs);
        for arch in facts {
            let counts = match holder {
                Holder::Arch(wanted) => {
                    let base = self.view.model.base(wanted);
                    arch.name == *wanted || base.is_some_and(|base| base == arch.name)
                }
                Holder::Definition(_) | Holder::Given(..) | Holder::Unknown => true,
            };
            let names_of_arch = arch.observed.names.keys().filter(|_| counts);
            names.extend(
                names_of_arch.filter_map(|path| path.strip_prefix("slots.")).map(str::to_owned),
            );
        }
        for name in names {
            self.add(&name, CompletionItemKind::ENUM_MEMBER, "slot");
        }
    }

    /// The values that fit a setting.
    fn values(&mut self, holder: &Holder, path: &[String]) {
        let last = path.last().map_or("", String::as_str);
        match last {
            "layers" => return self.entities(&["block"]),
            "init" if path.len() == 1 => return self.entities(&["init"]),
            "mixer" | "mlp" | "head" => self.entities(&[last]),
            "with" => {
                self.primitive("canon");
                return self.entities(&["block"]);
            }
            _ => {}
        }
        let target = crate::index::Target::Setting(holder.clone(), path.to_vec());
        match self.view.model.thing(&target, self.view.facts) {
            Some(Thing::Config(_, config)) => match config.kind {
                ConfigKind::Word(words) => {
                    for word in words {
                        self.word(word);
                    }
                }
                ConfigKind::Bool => self.booleans(),
                ConfigKind::Init => self.rules(),
                ConfigKind::OptionalInt
                | ConfigKind::OptionalDecimal
                | ConfigKind::OptionalNumber => self.word("none"),
                ConfigKind::Int
                | ConfigKind::Decimal
                | ConfigKind::Number
                | ConfigKind::Ints
                | ConfigKind::Tensor
                | ConfigKind::Weight => {}
            },
            Some(Thing::Param(_, param)) => {
                let default = param.default.as_ref().map(|default| &default.kind);
                match default {
                    Some(dsl::ExprKind::Bool(_)) => self.booleans(),
                    Some(dsl::ExprKind::Name(name)) if op::WORDS.contains(&name.as_str()) => {
                        for word in op::WORDS {
                            self.word(word);
                        }
                    }
                    _ => {}
                }
                if self.items.is_empty() {
                    self.entities(&["block", "mixer", "mlp"]);
                }
            }
            Some(Thing::Entity(_) | Thing::Primitive(_)) | None => {}
        }
        if matches!(holder, Holder::Arch(_)) && path.first().is_some_and(|first| first == "init") {
            self.rules();
        }
    }

    fn booleans(&mut self) {
        for word in ["true", "false"] {
            self.add(word, CompletionItemKind::CONSTANT, "");
        }
    }

    fn word(&mut self, word: &str) {
        self.documented(word, CompletionItemKind::ENUM_MEMBER, "", describe_built_in(word));
    }

    fn rules(&mut self) {
        for rule in InitRule::NAMES {
            self.documented(
                rule,
                CompletionItemKind::FUNCTION,
                "init rule",
                describe_built_in(rule),
            );
        }
    }

    fn primitive(&mut self, name: &str) {
        if let Some(primitive) = op::find(name) {
            let docs = describe_primitive(primitive);
            self.documented(name, CompletionItemKind::FUNCTION, "primitive", docs);
        }
    }

    /// Definitions of these kinds: of this file and its imports, then of std.
    fn entities(&mut self, kinds: &[&str]) {
        let view = self.view;
        let visible = view.model.loaded.program.library.visible(view.model.file);
        for name in visible {
            let Some(entity) = view.model.entity(name) else { continue };
            let word = model::word(&entity);
            if kinds.contains(&word) {
                self.entity(name, &entity);
            }
        }
    }

    fn entity(&mut self, name: &str, entity: &Entity) {
        let kind = match entity {
            Entity::Arch(..) => CompletionItemKind::CLASS,
            Entity::Init(..) => CompletionItemKind::STRUCT,
            Entity::Def(_) | Entity::Alias(..) => CompletionItemKind::FUNCTION,
        };
        let file = self.view.model.name(model::home(entity)).to_owned();
        let detail = format!("{} from {file}", model::word(entity));
        self.documented(name, kind, &detail, model::docs(entity).join("\n"));
    }

    fn imported(&mut self, path: Option<&str>) {
        let view = self.view;
        let target = path.and_then(|path| import_target(view.name(), path));
        let sources = &view.model.loaded.program.sources;
        let Some(text) = target.as_deref().and_then(|name| {
            let known = sources.find(name).map(|file| sources.text(file).to_owned());
            known.or_else(|| view.store.text(name).map(|text| text.to_string()))
        }) else {
            return;
        };
        let (ast, _) = dsl::parse(dsl::FileId(0), &text);
        for item in &ast.items {
            let docs = item.docs().join("\n");
            self.documented(&item.name().text, CompletionItemKind::CLASS, "", docs);
        }
    }

    fn paths(&mut self, written: &str) {
        let folder =
            written.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
        for (name, is_dir) in self.view.store.in_folder_of(self.view.name(), written) {
            match is_dir {
                true => {
                    let label = format!("{folder}{name}/");
                    self.add(&label, CompletionItemKind::FOLDER, "");
                }
                false if name.ends_with(".canon") => {
                    self.add(&format!("{folder}{name}"), CompletionItemKind::FILE, "");
                }
                false => {}
            }
        }
    }

    /// The configuration of a callee, to be given by name.
    fn arguments(&mut self, callee: &str) {
        let view = self.view;
        let primitive = op::find(callee).map(Thing::Primitive);
        let thing = primitive.or_else(|| view.model.entity(callee).map(Thing::Entity));
        let Some(thing) = thing else { return };
        for (name, default, accepts) in view.model.config_names(&thing) {
            let default = default.map_or("required".to_owned(), |text| format!("= {text}"));
            let detail = accepts.map_or(default.clone(), |accepts| format!("{default}, {accepts}"));
            if self.seen.contains(&name) {
                continue;
            }
            self.add(&name, CompletionItemKind::PROPERTY, &detail);
            if let Some(item) = self.items.last_mut() {
                item.insert_text = Some(format!("{name} = "));
            }
        }
        // A name of the body may be the same word: both are offered.
        self.seen.clear();
    }

    fn expression(&mut self, locals: &[String]) {
        for name in locals.iter().rev() {
            self.add(name, CompletionItemKind::VARIABLE, "");
        }
        for primitive in op::ALL {
            self.primitive(primitive.name);
        }
        self.entities(&["block", "mixer", "mlp", "head"]);
        for name in ARCH_NAMES {
            self.add(name, CompletionItemKind::CONSTANT, "field of the arch");
        }
        for name in FUNCTIONS {
            self.add(name, CompletionItemKind::FUNCTION, "function on numbers");
        }
        self.rules();
        for word in op::WORDS {
            self.word(word);
        }
        for (word, role, _) in keywords() {
            if matches!(role, WordRole::Operator | WordRole::Constant) {
                self.add(word, CompletionItemKind::KEYWORD, "");
            }
        }
    }
}
