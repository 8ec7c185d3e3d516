//! Finds further errors in an arch with errors: replaces each wrong value by a plausible one, and elaborates the arch
//! again. An error that may follow from an earlier one is not reported.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dsl::limits::MAX_ERRORS;
use dsl::{Decimal, Diagnostic, Diagnostics, Expr, ExprKind, Span};

use crate::elaborate::elaborate;
use crate::op;
use crate::resolve::Library;
use crate::tree::{Applied, ArchTree, Callable, Setting, SettingValue};

/// Most repeated elaborations of one arch.
const ROUNDS: usize = 6;
/// Most layers and settings in an arch that is elaborated again.
const MAX_SETTINGS: usize = 2_000;
/// Codes for missing values, which a failed entry may have been meant to set.
const LACKING: [&str; 3] = ["missing-arch-field", "missing-config", "no-init"];
/// Widths that most numbers of heads and groups divide.
const DIM: i64 = 322_560;
const VOCAB: i64 = 1024;

/// Appends the errors of `tree` that are independent of those in `diagnostics` from `from` on.
/// `built` means that the tree was already elaborated, so the errors are about its values.
pub(crate) fn further(
    library: &Library,
    mut tree: ArchTree,
    from: usize,
    built: bool,
    diagnostics: &mut Diagnostics,
) {
    if tree.layers.is_empty() || size(&tree) > MAX_SETTINGS {
        return;
    }
    let mut doubtful = BTreeSet::new();
    let mut new: Vec<Diagnostic> = diagnostics.iter().skip(from).cloned().collect();
    for d in new.iter().filter(|_| !built) {
        doubtful.extend(d.names.iter().cloned());
    }
    let mut repair = built;
    for _ in 0..ROUNDS {
        if repair && !Repair::new(&new, &mut doubtful).tree(&mut tree) {
            return;
        }
        repair = true;
        let mut errors = Diagnostics::new();
        elaborate(library, &tree, &mut errors);
        let known: BTreeSet<_> = diagnostics.iter().map(span).collect();
        let kept = |d: &Diagnostic| {
            d.is_error() && !known.contains(&span(d)) && independent(&tree, d, &doubtful)
        };
        let lacking =
            errors.iter().filter(|d| d.code == "missing-config").cloned().collect::<Vec<_>>();
        new = errors.into_iter().filter(kept).collect();
        diagnostics.extend(new.iter().cloned());
        new.extend(lacking);
        if new.is_empty() || diagnostics.len() > MAX_ERRORS {
            return;
        }
    }
}

/// A rough measure of the cost of elaborating a tree.
fn size(tree: &ArchTree) -> usize {
    let mut kinds: BTreeSet<*const Applied> = BTreeSet::new();
    let size = |applied: &Applied| applied.config.len() + applied.slots.len() + 1;
    let new = tree.layers.iter().filter(|layer| kinds.insert(Rc::as_ptr(&layer.applied)));
    tree.layers.len() + new.map(|layer| size(&layer.applied)).sum::<usize>()
}

/// Where an error is.
fn span(d: &Diagnostic) -> Option<Span> {
    d.labels.first().map(|label| label.span)
}

/// Whether an error is independent of earlier ones. A missing value, or an error about a doubtful one, may follow from
/// an earlier error.
fn independent(tree: &ArchTree, d: &Diagnostic, doubtful: &BTreeSet<String>) -> bool {
    let settings = names_at(tree, d);
    let is_about_doubtful =
        d.names.iter().any(|name| doubtful.contains(name) && !settings.contains(name));
    // Ignore the label of the layer: the error is not about it.
    let about = d.labels.iter().filter(|label| !label.around);
    let in_arch = about.into_iter().any(|label| label.span.file == tree.span.file);
    !LACKING.contains(&d.code) && !d.code.starts_with("too-") && in_arch && !is_about_doubtful
}

/// The names of the settings that an error points at first.
fn names_at(tree: &ArchTree, d: &Diagnostic) -> BTreeSet<String> {
    let Some(first) = d.labels.first().map(|label| label.span) else { return BTreeSet::new() };
    let mut names = BTreeSet::new();
    let mut see = |name: &str, setting: &Setting| {
        if first.is_in(setting.value_span()) {
            names.insert(name.to_owned());
        }
    };
    tree.fields.iter().for_each(|(name, setting)| see(name, setting));
    let mut seen = BTreeSet::new();
    for layer in &tree.layers {
        if seen.insert(Rc::as_ptr(&layer.applied)) {
            walk(&layer.applied, &mut see);
        }
    }
    tree.head.iter().for_each(|head| walk(head, &mut see));
    names
}

fn walk(applied: &Applied, see: &mut impl FnMut(&str, &Setting)) {
    for (name, setting) in &applied.config {
        see(name, setting);
        if let SettingValue::Def(child) = &setting.value {
            walk(child, see);
        }
    }
    for fill in applied.slots.values().filter_map(|slot| slot.fill.as_ref()) {
        walk(fill, see);
    }
}

/// Replaces the values that errors point at.
struct Repair<'a> {
    blamed: Vec<Span>,
    /// Missing values of definitions: the definition's name and the value's.
    lacking: Vec<(String, String)>,
    doubtful: &'a mut BTreeSet<String>,
    done: BTreeMap<*const Applied, Option<Rc<Applied>>>,
    any: bool,
}

impl<'a> Repair<'a> {
    fn new(errors: &[Diagnostic], doubtful: &'a mut BTreeSet<String>) -> Repair<'a> {
        let labels = errors.iter().flat_map(|d| &d.labels);
        // The last label of an error in a definition covers the whole layer.
        let blamed = labels.filter(|label| !label.around).map(|label| label.span);
        let lacking = errors.iter().filter(|d| d.code == "missing-config").filter_map(|d| {
            let [holder, name] = d.names.as_slice() else { return None };
            Some((holder.clone(), name.clone()))
        });
        let lacking = lacking.collect();
        Repair { blamed: blamed.collect(), lacking, doubtful, done: BTreeMap::new(), any: false }
    }

    fn blames(&self, setting: &Setting) -> bool {
        let value = setting.value_span();
        self.blamed.iter().any(|span| span.is_in(value))
    }

    fn tree(mut self, tree: &mut ArchTree) -> bool {
        for (name, setting) in &mut tree.fields {
            if self.blames(setting) {
                self.doubtful.insert(name.clone());
                let kind = match name.as_str() {
                    "dim" => ExprKind::Int(DIM),
                    "vocab" => ExprKind::Int(VOCAB),
                    _ => ExprKind::Decimal(Decimal::new(1, -5).unwrap_or(Decimal::ONE)),
                };
                self.replace(setting, kind);
            }
        }
        for (role, setting) in &mut tree.init {
            if self.blames(setting) {
                self.doubtful.insert(role.clone());
                self.replace(setting, ExprKind::Name("ones".to_owned()));
            }
        }
        for layer in &mut tree.layers {
            if let Some(repaired) = self.applied(&layer.applied) {
                layer.applied = repaired;
            }
        }
        if let Some(head) = &mut tree.head
            && let Some(repaired) = self.applied(head)
        {
            *head = repaired;
        }
        self.any
    }

    fn replace(&mut self, setting: &mut Setting, kind: ExprKind) {
        let span = setting.value_span();
        let value = Rc::new(Expr { kind, span });
        setting.value = SettingValue::Expr(value, span.file);
        self.any = true;
    }

    /// A copy without the blamed settings, if it has any.
    fn applied(&mut self, applied: &Rc<Applied>) -> Option<Rc<Applied>> {
        let key = Rc::as_ptr(applied);
        if let Some(known) = self.done.get(&key) {
            return known.clone();
        }
        let mut copy = applied.as_ref().clone();
        let mut changed = self.config(applied, &mut copy);
        changed |= self.missing(applied, &mut copy);
        changed |= self.slots(applied, &mut copy);
        let repaired = changed.then(|| Rc::new(copy));
        self.done.insert(key, repaired.clone());
        repaired
    }

    /// Repairs the settings that are there. True if any changed.
    fn config(&mut self, applied: &Applied, copy: &mut Applied) -> bool {
        let mut changed = false;
        for (name, setting) in &applied.config {
            if let SettingValue::Def(child) = &setting.value {
                let inner = self.applied(child);
                if let Some(inner) = inner {
                    let value = SettingValue::Def(inner);
                    copy.config.insert(name.clone(), Setting { value, span: setting.span });
                    changed = true;
                    continue;
                }
                // A span inside it that is not one of its settings cannot be repaired here.
                if !self.blamed.contains(&setting.value_span()) {
                    continue;
                }
            }
            if !self.blames(setting) {
                continue;
            }
            self.doubtful.insert(name.clone());
            if has_default(&applied.callee, name) {
                copy.config.remove(name);
                self.any = true;
            } else if let Some(setting) = copy.config.get_mut(name) {
                self.replace(setting, ExprKind::Int(1));
            }
            changed = true;
        }
        changed
    }

    /// Adds the values that are missing.
    fn missing(&mut self, applied: &Applied, copy: &mut Applied) -> bool {
        let mut changed = false;
        for (holder, name) in &self.lacking {
            // Nothing can substitute for a definition.
            let is_value = !["mixer", "mlp"].contains(&name.as_str());
            if is_value && applied.name() == holder && !applied.config.contains_key(name) {
                let value = Rc::new(Expr { kind: ExprKind::Int(1), span: applied.span });
                let value = SettingValue::Expr(value, applied.span.file);
                copy.config.insert(name.clone(), Setting { value, span: applied.span });
                self.doubtful.insert(name.clone());
                (self.any, changed) = (true, true);
            }
        }
        changed
    }

    fn slots(&mut self, applied: &Applied, copy: &mut Applied) -> bool {
        let mut changed = false;
        for (name, slot) in &applied.slots {
            if let Some(fill) = &slot.fill
                && let Some(inner) = self.applied(fill)
                && let Some(slot) = copy.slots.get_mut(name)
            {
                slot.fill = Some(inner);
                changed = true;
            } else if self.blamed.contains(&slot.span) {
                self.doubtful.insert(name.clone());
                copy.slots.remove(name);
                self.any = true;
                changed = true;
            }
        }
        changed
    }
}

fn has_default(callee: &Callable, name: &str) -> bool {
    match callee {
        Callable::Primitive(primitive) => {
            let config = primitive.config.iter().find(|config| config.name == name);
            config.is_some_and(|config| !matches!(config.default, op::Default::Required))
        }
        Callable::Def(_) => callee.param(name).is_some_and(|param| param.default.is_some()),
    }
}
