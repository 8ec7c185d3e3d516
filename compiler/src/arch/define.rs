//! Definitions with configuration: resolves expressions, aliases and paths to them. The depth and size of a tree are
//! bounded while it is built.

use std::collections::BTreeMap;
use std::rc::Rc;

use dsl::limits::MAX_ERRORS;
use dsl::{Alias, Entry, Expr, ExprKind, FileId, Name, Path, Segment, Span};

use super::{Builder, Put, shown};
use crate::diag::{self, NoPath};
use crate::names;
use crate::op;
use crate::resolve::Entity;
use crate::tree::Value;
use crate::tree::{
    Applied, Around, Callable, MAX_CHAIN, MAX_CONFIG, Setting, SettingValue, SlotSetting,
};

impl Builder<'_> {
    /// A value written in an arch or a body: an expression to evaluate later, or a definition.
    pub(super) fn setting(
        &mut self,
        file: FileId,
        value: &Expr,
        span: Span,
        depth: usize,
    ) -> Option<Setting> {
        let later = |around: Around| SettingValue::expression(Rc::new(value.clone()), file, around);
        let value = match &value.kind {
            ExprKind::Name(name) => match self.held(name) {
                Some(Some(Value::Def(applied, _))) => SettingValue::Def(applied.clone()),
                Some(_) => later(self.mentioned(value)),
                None => match self.named(file, name, value.span, depth) {
                    Some(applied) => SettingValue::Def(applied),
                    None => later(None),
                },
            },
            ExprKind::Applied { .. } => SettingValue::Def(self.definition(file, value, depth)?),
            _ => later(self.mentioned(value)),
        };
        Some(Setting { value, span })
    }

    /// The value that the enclosing body binds to the name, if any.
    fn held(&self, name: &str) -> Option<&Option<Value>> {
        self.around.as_ref().and_then(|around| around.get(name))
    }

    /// The part of the surroundings that an expression mentions.
    fn mentioned(&self, expr: &Expr) -> Around {
        let around = self.around.as_ref()?;
        let names: BTreeMap<String, Option<Value>> = names::mentions(expr)
            .into_iter()
            .filter_map(|name| around.get(&name).map(|value| (name, value.clone())))
            .collect();
        (!names.is_empty()).then(|| Rc::new(names))
    }

    /// Resolves a bare name where a definition is allowed. A reserved word is not resolved.
    pub(super) fn named(
        &mut self,
        file: FileId,
        name: &str,
        span: Span,
        depth: usize,
    ) -> Option<Rc<Applied>> {
        match self.library.lookup(file, name) {
            Some(Entity::Def(item)) => Some(Rc::new(Applied::bare(Callable::Def(item), span))),
            Some(Entity::Alias(alias, home)) => self.alias(home, &alias, depth + 1),
            Some(Entity::Init(..) | Entity::Arch(..)) => None,
            None if op::WORDS.contains(&name) => None,
            None => crate::tree::primitive(name).map(|p| Rc::new(Applied::bare(p, span))),
        }
    }

    pub(super) fn alias(
        &mut self,
        home: FileId,
        alias: &Alias,
        depth: usize,
    ) -> Option<Rc<Applied>> {
        let key = (home, alias.name.text.clone());
        if let Some(known) = self.aliases.get(&key) {
            return known.clone();
        }
        // An alias refers to names in its own file, not in the body that uses it.
        let around = self.around.take();
        let applied = self.definition(home, &alias.value, depth);
        self.around = around;
        self.aliases.insert(key, applied.clone());
        applied
    }

    pub(super) fn definition(
        &mut self,
        file: FileId,
        expr: &Expr,
        depth: usize,
    ) -> Option<Rc<Applied>> {
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
        let base = match self.held(&name.text).cloned() {
            Some(Some(Value::Def(applied, _))) => Some(self.copy(&applied, expr.span)?),
            Some(_) => None,
            None => match self.library.lookup(file, &name.text) {
                Some(Entity::Alias(alias, home)) => {
                    let applied = self.alias(home, &alias, depth + 1)?;
                    Some(self.copy(&applied, expr.span)?)
                }
                Some(Entity::Def(item)) => Some(Applied::bare(Callable::Def(item), expr.span)),
                Some(Entity::Init(..) | Entity::Arch(..)) => None,
                None => crate::tree::primitive(&name.text).map(|p| Applied::bare(p, expr.span)),
            },
        };
        let Some(base) = base else {
            if !self.unusable.contains(&name.span) {
                self.diagnostics.push(diag::not_a_definition(name.span));
            }
            return None;
        };
        self.configured(file, Applied { span: expr.span, ..base }, entries, depth)
    }

    /// Copies a definition with its configuration and counts the size of the copy.
    fn copy(&mut self, applied: &Applied, span: Span) -> Option<Applied> {
        self.reach(applied.config.len() + applied.slots.len(), span)?;
        Some(applied.clone())
    }

    /// The fill that `canon A, B { … }` abbreviates.
    pub(super) fn canon(
        &mut self,
        file: FileId,
        entries: &[Entry],
        span: Span,
    ) -> Option<Rc<Applied>> {
        let callee = crate::tree::primitive("canon")?;
        self.configured(file, Applied::bare(callee, span), entries, 0)
    }

    fn configured(
        &mut self,
        file: FileId,
        mut applied: Applied,
        entries: &[Entry],
        depth: usize,
    ) -> Option<Rc<Applied>> {
        let mut seen = BTreeMap::new();
        for entry in entries {
            if self.diagnostics.len() > MAX_ERRORS {
                break;
            }
            self.configure(file, &mut applied, &[], entry, depth, &mut seen);
        }
        // Keep the entries that succeeded: they let later checks report more errors.
        Some(Rc::new(applied))
    }

    fn configure(
        &mut self,
        file: FileId,
        applied: &mut Applied,
        prefix: &[Name],
        entry: &Entry,
        depth: usize,
        seen: &mut BTreeMap<String, Span>,
    ) {
        if self.passes_over(entry) {
            return;
        }
        if let Entry::Nested { path, entries, span: _ } = entry {
            match full_path(prefix, path).filter(|names| names.len() <= MAX_CHAIN) {
                Some(deeper) => {
                    for inner in entries {
                        if self.diagnostics.len() > MAX_ERRORS {
                            return;
                        }
                        self.configure(file, applied, &deeper, inner, depth + 1, seen);
                    }
                }
                None => self.diagnostics.push(diag::layers_inside(path.span)),
            }
            return;
        }
        for (names, span, put) in self.puts(file, prefix, entry, depth).unwrap_or_default() {
            if self.diagnostics.len() > MAX_ERRORS {
                return;
            }
            if names.len() > MAX_CHAIN {
                self.diagnostics.push(diag::chain_too_long(span, MAX_CHAIN));
                return;
            }
            let path = shown(&names, &put);
            if let Some(before) = seen.insert(path.clone(), span) {
                self.diagnostics.push(diag::edited_twice(&path, span, before));
            }
            if let Err(reason) = self.put_applied(applied, &names, &put) {
                self.diagnostics.push(diag::no_such_config(&path, span, &reason));
            }
        }
    }

    /// What an entry puts, with the full path and the span of each. `None` after an error.
    fn puts(
        &mut self,
        file: FileId,
        prefix: &[Name],
        entry: &Entry,
        depth: usize,
    ) -> Option<Vec<(Vec<Name>, Span, Put)>> {
        let (paths, put): (&[Path], Option<Put>) = match entry {
            Entry::Set { path, value, span } | Entry::Replace { path, value, span } => {
                let setting = self.setting(file, value, *span, depth + 1)?;
                (std::slice::from_ref(path), Some(Put::Setting(setting)))
            }
            Entry::Fill { slots, with, span } => {
                let fill = Some(self.definition(file, with, depth + 1)?);
                (slots, Some(Put::Slot(SlotSetting { fill, span: *span })))
            }
            Entry::Canon { slots, entries, span } => {
                let fill = Some(self.canon(file, entries.as_deref().unwrap_or(&[]), *span)?);
                (slots, Some(Put::Slot(SlotSetting { fill, span: *span })))
            }
            Entry::Empty { slots, span } => {
                (slots, Some(Put::Slot(SlotSetting { fill: None, span: *span })))
            }
            Entry::Nested { .. } | Entry::Layers { .. } => (&[], None),
        };
        let puts = put.and_then(|put| {
            let with_path = |path: &Path| Some((full_path(prefix, path)?, path.span, put.clone()));
            paths.iter().map(with_path).collect()
        });
        if puts.is_none() {
            self.diagnostics.push(diag::layers_inside(entry.span()));
        }
        puts
    }

    /// A copy with the value at `path`. `Err` describes what was found there instead.
    pub(super) fn put_layer(
        &mut self,
        applied: &Applied,
        path: &[Name],
        put: &Put,
    ) -> Result<Rc<Applied>, NoPath> {
        if let ([], Put::Setting(Setting { value: SettingValue::Def(new), .. })) = (path, put) {
            return Ok(new.clone());
        }
        let mut edited = applied.clone();
        self.put_applied(&mut edited, path, put)?;
        Ok(Rc::new(edited))
    }

    fn put_applied(
        &mut self,
        applied: &mut Applied,
        path: &[Name],
        put: &Put,
    ) -> Result<(), NoPath> {
        match (path, put) {
            ([], _) => {
                return Err("a layer can only be replaced by a definition".to_owned().into());
            }
            ([slot], Put::Slot(setting)) => {
                applied.raise(setting.fill.as_deref())?;
                applied.slots.insert(slot.text.clone(), setting.clone());
                if applied.slots.len() > MAX_CONFIG {
                    return Err(
                        format!("at most {MAX_CONFIG} slots can be filled in one place").into()
                    );
                }
            }
            // Fills are stored on the layer, so that each slot has one name.
            ([first, rest @ ..], Put::Slot(_)) => {
                let slot = rest.last().unwrap_or(first);
                return Err(format!(
                    "slots belong to the layer, even if a part of it declares them: write `{}`",
                    slot.text
                )
                .into());
            }
            ([slots, slot, rest @ ..], Put::Setting(_))
                if slots.text == "slots" && !rest.is_empty() =>
            {
                self.put_in_fill(applied, slot, rest, put)?;
            }
            ([last], Put::Setting(setting)) => {
                if !applied.callee.config_names().contains(&last.text.as_str()) {
                    return Err(has_instead(applied, &last.text));
                }
                if let SettingValue::Def(child) = &setting.value {
                    applied.raise(Some(child))?;
                }
                applied.config.insert(last.text.clone(), setting.clone());
            }
            ([first, rest @ ..], Put::Setting(_)) => {
                self.put_in_child(applied, first, rest, put)?;
            }
        }
        Ok(())
    }

    fn put_in_fill(
        &mut self,
        applied: &mut Applied,
        slot: &Name,
        path: &[Name],
        put: &Put,
    ) -> Result<(), NoPath> {
        let fill = applied.slots.get_mut(&slot.text).and_then(|s| s.fill.as_mut());
        let Some(fill) = fill else {
            return Err(format!("slot {} is empty", slot.text).into());
        };
        let fill = Rc::make_mut(fill);
        self.put_applied(fill, path, put)?;
        let height = fill.height;
        applied.height = applied.height.max(height + 1);
        Ok(())
    }

    fn put_in_child(
        &mut self,
        applied: &mut Applied,
        name: &Name,
        path: &[Name],
        put: &Put,
    ) -> Result<(), NoPath> {
        let mut child = self.child(applied, &name.text)?;
        let span = applied.config.get(&name.text).map_or(name.span, |s| s.span);
        // Drop the parent's reference, so that `make_mut` copies only if the parent is shared.
        applied.config.remove(&name.text);
        self.put_applied(Rc::make_mut(&mut child), path, put)?;
        applied.raise(Some(&child))?;
        let value = SettingValue::Def(child);
        applied.config.insert(name.text.clone(), Setting { value, span });
        Ok(())
    }

    /// The definition configured at `name`, as written or by default.
    pub(super) fn child(&mut self, applied: &Applied, name: &str) -> Result<Rc<Applied>, NoPath> {
        let no_definition =
            || NoPath::from(format!("`{name}` of `{}` is not a definition", applied.name()));
        match applied.config.get(name) {
            Some(Setting { value: SettingValue::Def(child), .. }) => return Ok(child.clone()),
            Some(_) => return Err(no_definition()),
            None => {}
        }
        let (Some(param), Callable::Def(item)) = (applied.callee.param(name), &applied.callee)
        else {
            return Err(has_instead(applied, name));
        };
        let Some(default) = &param.default else { return Err(no_definition()) };
        let mentioned = names::mentions(default);
        if let Some(other) = item.def.config.iter().find(|c| mentioned.contains(&c.name.text)) {
            let other = other.name.text.clone();
            let reason = format!(
                "`{name}` of `{}` is computed from `{other}`: set it as a whole",
                applied.name()
            );
            return Err(NoPath { reason, names: vec![other] });
        }
        let around = self.around.take();
        let child = match &default.kind {
            ExprKind::Name(name) => self.named(item.file, name, default.span, 0),
            ExprKind::Applied { .. } => self.definition(item.file, default, 0),
            _ => None,
        };
        self.around = around;
        child.ok_or_else(no_definition)
    }
}

/// The names from the outermost definition down; `None` if the path selects layers.
fn full_path(prefix: &[Name], path: &Path) -> Option<Vec<Name>> {
    let below = path.segments.iter().map(|segment| match segment {
        Segment::Name(name) => Some(name.clone()),
        Segment::Layers { .. } => None,
    });
    prefix.iter().cloned().map(Some).chain(below).collect()
}

fn has_instead(applied: &Applied, wanted: &str) -> NoPath {
    let names = applied.callee.config_names();
    let suggestion = dsl::suggest(wanted, names.iter().copied());
    let reason = match suggestion {
        Some(known) => format!("`{}` has `{known}`", applied.name()),
        None if names.is_empty() => format!("`{}` has no configuration", applied.name()),
        None => format!("`{}` has {}", applied.name(), names.join(", ")),
    };
    let names = suggestion.into_iter().chain([applied.name()]).map(str::to_owned).collect();
    NoPath { reason, names }
}
