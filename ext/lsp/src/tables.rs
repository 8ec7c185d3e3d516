//! Recipes, comparisons and locks: hover, completion, and where a path or an id leads. Facts about a field come from the
//! table of fields.

use std::collections::BTreeMap;

use compiler::resolve::import_target;
use dsl::Span;
use lab::field::{self, Class, Default, FieldDef, Kind};
use lab::recipe::comparison::SECTIONS;
use lab::recipe::{self, FileKind, KeyPlace, keys};
use lsp_types::{CompletionItem, CompletionItemKind, CompletionTextEdit, Location, TextEdit};

use crate::analysis::ExperimentFacts;
use crate::store::{DocumentKind, Store};
use crate::text::Text;

/// Most locks that are searched for an id.
const MAX_LOCKS: usize = 500;
/// Most names in one list.
const SHOWN: usize = 4;

/// A TOML document, and what is known of it.
#[derive(Clone, Copy)]
pub(crate) struct Table<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Its kind.
    pub(crate) kind: DocumentKind,
    /// Its text.
    pub(crate) text: &'a Text,
    /// The experiments of a recipe.
    pub(crate) experiments: &'a [ExperimentFacts],
    /// All files.
    pub(crate) store: &'a Store,
}

impl Table<'_> {
    fn at(&self, offset: usize) -> Option<KeyPlace> {
        let covers = |at: &std::ops::Range<usize>| at.start <= offset && offset <= at.end;
        let all = keys(self.text.as_str());
        let mut covering =
            all.iter().filter(|key| covers(&key.key) || key.value.as_ref().is_some_and(covers));
        let on_key = all.iter().rfind(|key| covers(&key.key));
        // Of `a.b = 1`, the whole key wherever the cursor is in it.
        let dotted = on_key.filter(|key| key.value.is_none()).and_then(|table| {
            let rest = self.text.as_str().get(table.key.end..)?;
            let line = table.key.end + rest.find('\n').unwrap_or(rest.len());
            let inside = format!("{}.", table.path);
            all.iter().find(|key| {
                key.value.is_some()
                    && key.path.starts_with(&inside)
                    && (table.key.end..line).contains(&key.key.start)
            })
        });
        dotted.or(on_key).or_else(|| covering.next()).cloned()
    }

    /// The fields that a key means: one, or those of an axis of a sweep.
    fn fields(&self, path: &str) -> Vec<&'static FieldDef> {
        let path = path
            .strip_prefix("arm.")
            .and_then(|rest| rest.split_once('.'))
            .map_or(path, |(_, rest)| rest);
        if self.kind == DocumentKind::Lock {
            let sections = ["train.", "eval.", "platform.", "cosmetic.", "derived."];
            let field = sections.iter().find_map(|section| path.strip_prefix(section));
            return field.and_then(field::find).into_iter().collect();
        }
        let axis = path.strip_prefix("sweep.").or_else(|| path.strip_prefix("grid."));
        let paths = axis.unwrap_or(path).split(',').map(str::trim);
        paths.filter_map(field::find).collect()
    }

    /// What is known of the key or value at a place.
    pub(crate) fn hover(&self, offset: usize) -> Option<(String, usize, usize)> {
        let key = self.at(offset)?;
        let on_value = key.value.as_ref().filter(|at| at.start <= offset && offset <= at.end);
        let (start, end) = on_value.map_or((key.key.start, key.key.end), |at| (at.start, at.end));
        let written = self.text.as_str().get(start..end).unwrap_or("").trim_matches('"');
        let mut parts: Vec<String> = Vec::new();
        for def in self.fields(&key.path) {
            parts.push(self.describe_field(def));
        }
        if parts.is_empty()
            && let Some(about) = fact(&key.path)
        {
            parts.push(format!("`{}`: {about}", key.path));
        }
        if is_digest(written) {
            parts.extend(self.locks_with(written, &key.path));
        }
        if let Some((path, _)) = self.target(offset) {
            let exists = if self.store.has(&path) { "" } else { ", which does not exist" };
            parts.push(format!("`{path}`{exists}"));
        }
        (!parts.is_empty()).then(|| (parts.join("\n\n"), start, end))
    }

    fn describe_field(&self, def: &FieldDef) -> String {
        let FieldDef { path, class, default, only, unit, doc, .. } = def;
        let accepts = match def.is_writable() {
            true if unit.is_empty() => def.kind.describe(),
            true => format!("{}, in {unit}", def.kind.describe()),
            false if unit.is_empty() => "computed from other fields".to_owned(),
            false => format!("computed from other fields, in {unit}"),
        };
        let default = match default {
            _ if !def.is_writable() => String::new(),
            Default::Required => match def.instead {
                Some(source) => format!("; from `{source}`, or that from it"),
                None => "; required".to_owned(),
            },
            Default::Is(value) => format!("; default `{value}`"),
            Default::From(..) | Default::UpTo(_) | Default::SameAs(_) => {
                format!("; default: {}", default.rule().unwrap_or_default())
            }
        };
        let mut text =
            format!("`{path}`, {}\n\n{doc}\n\n{accepts}{default}", describe_class(*class));
        if let Some((on, words)) = only {
            let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
            text += &format!("; only if `{on}` is {}", words.join(" or "));
        }
        let mut values: Vec<(&str, Vec<&str>)> = Vec::new();
        for experiment in self.experiments {
            let Some(value) = experiment.values.get(path) else { continue };
            match values.iter_mut().find(|(known, _)| known == value) {
                Some((_, names)) => names.push(&experiment.name),
                None => values.push((value, vec![&experiment.name])),
            }
        }
        let several = values.len() > 1;
        let lines = values.iter().take(SHOWN).map(|(value, names)| match several {
            true => format!("= `{value}` in {}", listed(names)),
            false => format!("= `{value}`"),
        });
        let lines: Vec<String> = lines.collect();
        if !lines.is_empty() {
            text += &format!("\n\n{}", lines.join("  \n"));
        }
        text
    }

    /// The locks in which something has this id.
    fn locks_with(&self, id: &str, path: &str) -> Option<String> {
        let mut locks: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for lock in self.store.find(&["lock"]).into_iter().take(MAX_LOCKS) {
            let Some(text) = self.store.text(&lock).filter(|text| text.contains(id)) else {
                continue;
            };
            if lock == self.name || DocumentKind::find(&lock, &text) != Some(DocumentKind::Lock) {
                continue;
            }
            let places = keys(&text);
            let named = places.iter().filter(|key| {
                let value = key.value.clone().and_then(|at| text.get(at));
                value.is_some_and(|value| value.trim_matches('"') == id)
            });
            locks.insert(lock, named.map(|key| format!("`{}`", key.path)).collect());
        }
        let lines: Vec<String> = locks
            .iter()
            .take(SHOWN)
            .map(|(lock, paths)| {
                let paths: Vec<&String> = paths.iter().take(2).collect();
                let paths = paths.iter().map(|path| path.as_str()).collect::<Vec<_>>().join(", ");
                format!("also {paths} of {lock}")
            })
            .collect();
        let more = locks.len().saturating_sub(SHOWN);
        let more = if more > 0 { format!("  \nand of {more} more locks") } else { String::new() };
        let none = "no other lock of this workspace has it".to_owned();
        let is_id = path.ends_with("digests.train") || path.starts_with("runs.");
        match lines.is_empty() {
            true => is_id.then_some(none),
            false => Some(lines.join("  \n") + &more),
        }
    }

    /// The file that a quoted path around a place means, and the name after `#`.
    fn target(&self, offset: usize) -> Option<(String, Option<String>)> {
        let text = self.text.as_str();
        let line = text.get(..offset)?.rfind('\n').map_or(0, |at| at + 1);
        let end = text.get(offset..)?.find('\n').map_or(text.len(), |at| offset + at);
        let quotes: Vec<usize> =
            text.get(line..end)?.match_indices('"').map(|(at, _)| line + at).collect();
        let pair = quotes.chunks(2).find_map(|pair| match pair {
            [open, close] if *open < offset && offset <= *close => Some((*open, *close)),
            _ => None,
        })?;
        let written = text.get(pair.0 + 1..pair.1)?;
        let (path, name) = match written.split_once('#') {
            Some((path, name)) => (path, Some(name.to_owned())),
            None => (written, None),
        };
        if ![".canon", ".toml", ".lock"].iter().any(|ending| path.ends_with(ending)) {
            return None;
        }
        // A lock names its source from the root.
        match self.kind {
            DocumentKind::Lock => Some((self.store.path_in_folder(self.name, path), name)),
            DocumentKind::Recipe | DocumentKind::Canon => {
                Some((import_target(self.name, path)?, name))
            }
        }
    }

    /// Where the path or id at a place leads.
    pub(crate) fn definition(&self, offset: usize) -> Vec<Location> {
        if let Some((path, name)) = self.target(offset) {
            return self.file(&path, name.as_deref()).into_iter().collect();
        }
        let value = self.at(offset).and_then(|key| key.value);
        let written = value.and_then(|at| self.text.as_str().get(at)).unwrap_or("");
        let id = written.trim_matches('"');
        if !is_digest(id) {
            return Vec::new();
        }
        let wanted = format!("train = \"{id}\"");
        let locks = self.store.find(&["lock"]).into_iter().filter(|lock| lock != self.name);
        let places = locks.take(MAX_LOCKS).filter_map(|lock| {
            let text = self.store.text(&lock)?;
            let start = text.find(&format!("\n{wanted}"))? + 1;
            let range = Text::new(text.to_string(), self.text.encoding())
                .range(start, start + wanted.len());
            Some(Location { uri: self.store.url(&lock)?, range })
        });
        places.collect()
    }

    fn file(&self, path: &str, name: Option<&str>) -> Option<Location> {
        let text = self.store.text(path)?;
        let (ast, _) = dsl::parse(dsl::FileId(0), &text);
        let item = ast.items.iter().find(|item| Some(item.name().text.as_str()) == name);
        let span = item.map_or(Span::new(dsl::FileId(0), 0, 0), |item| item.name().span);
        let range = Text::new(text.to_string(), self.text.encoding())
            .range(span.start as usize, span.end as usize);
        Some(Location { uri: self.store.url(path)?, range })
    }

    /// The words that fit at a place of a recipe or comparison.
    pub(crate) fn complete(&self, offset: usize) -> Vec<CompletionItem> {
        if self.kind != DocumentKind::Recipe {
            return Vec::new();
        }
        let text = self.text.as_str();
        let start = text.get(..offset).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
        let line = text.get(start..offset).unwrap_or("");
        let is_comparison = recipe::file_kind(text) == FileKind::Comparison;
        let section = text.get(..start).unwrap_or("").lines().rev().find_map(|line| {
            Some(line.trim().strip_prefix('[')?.split(']').next()?.trim_matches('[').to_owned())
        });
        let section = section.unwrap_or_default();
        if let Some(written) = line.trim_start().strip_prefix('[') {
            let at = offset - written.len();
            return self.items(at, offset, sections(is_comparison));
        }
        match line.split_once('=') {
            None => {
                let at = offset - line.trim_start().len();
                let given: Vec<String> = keys(text).into_iter().map(|key| key.path).collect();
                self.items(at, offset, written_keys(is_comparison, &section, &given))
            }
            Some((key, value)) => {
                let key = key.trim().trim_matches('"');
                let path =
                    if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") };
                self.values(&path, value, offset)
            }
        }
    }

    fn values(&self, path: &str, written: &str, offset: usize) -> Vec<CompletionItem> {
        let quote = written.rfind('"').filter(|_| written.matches('"').count() % 2 == 1);
        let typed = quote.map_or("", |at| written.get(at + 1..).unwrap_or(""));
        let names_file = path == "arch"
            || path == "recipe"
            || path.starts_with("arms.")
            || path.starts_with("sweep.");
        if names_file && quote.is_some() {
            return self.files(typed, offset);
        }
        let mut words: Vec<(String, String)> = Vec::new();
        let axis = path.strip_prefix("sweep.").or_else(|| path.strip_prefix("grid."));
        if let Some(def) = field::find(axis.unwrap_or(path)) {
            let quoted = |word: &&str| match quote {
                Some(_) => (*word).to_owned(),
                None => format!("\"{word}\""),
            };
            let list: &[&str] = match def.kind {
                Kind::Bool if quote.is_none() => {
                    words.extend(["true", "false"].map(|word| (word.to_owned(), String::new())));
                    &[]
                }
                Kind::Word(list, _) | Kind::Words(list) => list,
                Kind::IntOr(_, _, ref word) | Kind::RealOr(_, ref word) => {
                    std::slice::from_ref(word)
                }
                _ => &[],
            };
            words.extend(list.iter().map(|word| (quoted(word), def.doc.to_owned())));
            if let (Default::Is(value), true, true) =
                (def.default, quote.is_none(), words.is_empty())
            {
                words.push((value.to_owned(), "the default".to_owned()));
            }
        }
        let at = match quote {
            Some(_) => offset - typed.len(),
            None => {
                let last = written.trim_start().rsplit(['[', ',', ' ']).next().unwrap_or("");
                offset - last.len()
            }
        };
        self.items(at, offset, words)
    }

    /// Files below the folder of this one, or the archs of a file after `#`.
    fn files(&self, typed: &str, offset: usize) -> Vec<CompletionItem> {
        if let Some((path, name)) = typed.split_once('#') {
            let text = import_target(self.name, path).and_then(|path| self.store.text(&path));
            let Some(text) = text else { return Vec::new() };
            let (ast, _) = dsl::parse(dsl::FileId(0), &text);
            let archs = ast.items.iter().filter(|item| matches!(item, dsl::Item::Arch(_)));
            let archs = archs.map(|item| (item.name().text.clone(), item.docs().join(" ")));
            return self.items(offset - name.len(), offset, archs.collect());
        }
        let folder =
            typed.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
        let entries = self.store.in_folder_of(self.name, typed).into_iter();
        let mut entries: Vec<(String, String)> = entries
            .filter(|(name, is_dir)| *is_dir || name.ends_with(".canon") || name.ends_with(".toml"))
            .map(|(name, is_dir)| {
                let end = if is_dir { "/" } else { "" };
                (format!("{folder}{name}{end}"), String::new())
            })
            .collect();
        if "../".starts_with(typed) || typed.ends_with("../") {
            entries.insert(0, (format!("{folder}../"), String::new()));
        }
        self.items(offset - typed.len(), offset, entries)
    }

    fn items(&self, start: usize, end: usize, words: Vec<(String, String)>) -> Vec<CompletionItem> {
        let range = self.text.range(start, end);
        let item = |(at, (label, detail)): (usize, (String, String))| CompletionItem {
            kind: Some(CompletionItemKind::PROPERTY),
            detail: (!detail.is_empty()).then_some(detail),
            sort_text: Some(format!("{at:04}")),
            text_edit: Some(CompletionTextEdit::Edit(TextEdit { range, new_text: label.clone() })),
            label,
            ..CompletionItem::default()
        };
        words.into_iter().enumerate().map(item).collect()
    }
}

/// The names of sections, each with what it is about.
fn sections(is_comparison: bool) -> Vec<(String, String)> {
    if is_comparison {
        return SECTIONS.iter().map(|name| ((*name).to_owned(), String::new())).collect();
    }
    let mut names: Vec<&str> = field::writable().map(|def| def.table_and_name().0).collect();
    names.push("sweep");
    names.sort_unstable();
    names.dedup();
    names
        .into_iter()
        .filter(|name| !name.is_empty())
        .map(|n| (n.to_owned(), String::new()))
        .collect()
}

/// The keys of a section that are not given yet, each with its meaning.
fn written_keys(is_comparison: bool, section: &str, given: &[String]) -> Vec<(String, String)> {
    let is_given = |path: &str| given.iter().any(|given| given == path);
    if is_comparison {
        let keys = recipe::comparison::keys_of(section);
        let path = |key: &str| match section {
            "" => key.to_owned(),
            section => format!("{section}.{key}"),
        };
        return keys
            .iter()
            .filter(|key| !is_given(&path(key)))
            .map(|key| ((*key).to_owned(), String::new()))
            .collect();
    }
    let mut keys: Vec<(String, String)> = Vec::new();
    if section.is_empty() && !is_given("arch") {
        keys.push(("arch".to_owned(), "the architecture: \"../arch/NAME.canon\"".to_owned()));
    }
    for def in field::writable() {
        let (table, name) = def.table_and_name();
        let key = match section {
            _ if is_given(def.path) => continue,
            "" => def.path.to_owned(),
            "sweep" => format!("\"{}\"", def.path),
            section if section == table => name.to_owned(),
            _ => continue,
        };
        keys.push((key, def.doc.to_owned()));
    }
    keys
}

fn describe_class(class: Class) -> String {
    let means = match class {
        Class::Semantic => "part of the id",
        Class::Measured => "changes measurements, not weights",
        Class::Platform => "changes rounding only",
        Class::Carried => "read by another trainer only",
        Class::Cosmetic => "changes no bit of a result",
    };
    format!("{}: {means}", class.word())
}

fn listed(names: &[&str]) -> String {
    let shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    match names.len() {
        n if n <= SHOWN => shown.join(", "),
        n => format!("{} and {} more", shown.join(", "), n - SHOWN),
    }
}

fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// What a fact of a lock or a key of a comparison is that is not a field.
fn fact(path: &str) -> Option<&'static str> {
    let in_arm = path.strip_prefix("arm.").and_then(|rest| rest.split_once('.'));
    let path = in_arm.map_or(path, |(_, rest)| rest);
    const FACTS: [(&str, &str); 24] = [
        (
            "digests.train",
            "the id of the experiment, a digest of `[train]`: everything that changes a weight in exact arithmetic",
        ),
        ("digests.eval", "a digest of `[eval]`: what is measured, and the id of what is trained"),
        ("digests.platform", "a digest of `[platform]`: everything that changes only rounding"),
        ("digests.comparison", "the id of the comparison: its declarations, verdicts and runs"),
        ("digests.arch", "the id of the arch: its graph and its manifest"),
        ("digests.graph", "a digest of the compute graph, which has no names"),
        ("digests.manifest", "a digest of the parameters: paths, shapes and initial distributions"),
        ("digests.text", "a digest of this file without this line"),
        ("train.arch.graph", "a digest of the compute graph, which has no names"),
        (
            "train.arch.manifest",
            "a digest of the parameters: paths, shapes and initial distributions",
        ),
        ("eval.train", "the id of the experiment that is measured"),
        ("cosmetic.budget.given", "whether the recipe wrote `budget.steps` or `budget.tokens`"),
        (
            "runs.",
            "the id of one run of the comparison: its arm with the seeds and the point of the grid",
        ),
        ("verdict.", "the verdict on this arm against the base"),
        ("revisions.", "the revision of a primitive or task: raised when what it computes changes"),
        ("comparison.", "a declaration of the comparison file"),
        ("arch.free.", "a field of the arch that someone wrote"),
        ("arch.derived.", "a field of the arch that has its default"),
        (
            "treatment",
            "the differences that the comparison is about; every other one is a confound",
        ),
        ("arms", "recipes or archs by the name of their arm"),
        ("base", "the arm that the others are compared with"),
        ("replicate", "seeds of the A/A arm: the base again, to measure noise"),
        ("grid", "values of fields that vary in every arm"),
        ("sweep", "values of fields, each of which makes a lock"),
    ];
    let fact = FACTS.iter().find(|(known, _)| match known.strip_suffix('.') {
        Some(_) => path.starts_with(known),
        None => path == *known || path.starts_with(&format!("{known}.")),
    });
    fact.map(|(_, about)| *about)
}

#[cfg(test)]
mod tests {
    use lab::field::TABLE;

    use super::*;
    use crate::text::Encoding;

    fn table<'a>(text: &'a Text, store: &'a Store, kind: DocumentKind) -> Table<'a> {
        Table { name: "recipes/x.toml", kind, text, experiments: &[], store }
    }

    #[test]
    fn every_field_has_a_hover() {
        let store = Store::default();
        for def in TABLE.iter() {
            let (section, name) = def.table_and_name();
            let text = format!("[{section}]\n{name} = 1\n");
            let at = text.find(&format!("{name} =")).unwrap();
            let text = Text::new(text, Encoding::Utf16);
            let table = table(&text, &store, DocumentKind::Recipe);
            let (shown, start, _) = table.hover(at).unwrap();
            assert!(shown.contains(def.doc) && start >= at, "{}: {shown}", def.path);
        }
    }

    #[test]
    fn keys_and_values_are_completed() {
        let store = Store::default();
        let labels = |text: &str| -> Vec<String> {
            let offset = text.find('|').unwrap();
            let text = Text::new(text.replacen('|', "", 1), Encoding::Utf16);
            let items = table(&text, &store, DocumentKind::Recipe).complete(offset);
            items.into_iter().map(|item| item.label).collect()
        };
        let keys = labels("arch = \"a.canon\"\n[optimizer]\nlr = 0.1\nw|");
        assert!(keys.contains(&"weight_decay".to_owned()), "{keys:?}");
        assert!(!keys.contains(&"lr".to_owned()) && !keys.contains(&"kind =".to_owned()));
        assert_eq!(labels("[precision]\npolicy = |"), ["\"bf16\"", "\"f32\""]);
        assert_eq!(labels("[precision]\npolicy = \"b|"), ["bf16", "f32"]);
        assert_eq!(labels("[platform]\nfuse = |"), ["true", "false"]);
        assert!(labels("[|").contains(&"schedule".to_owned()));
        assert!(
            labels("base = \"a\"\n[arms]\na = \"a.toml\"\n[|").contains(&"replicate".to_owned())
        );
        assert!(labels("[data.depo]\n|").contains(&"mini_vocab".to_owned()));
        // A value that is being typed, in a file that is no TOML yet.
        assert!(
            labels("[schedule]\nkind = \"cos|\n[budget]\nsteps = ").contains(&"cosine".to_owned())
        );
    }
}
