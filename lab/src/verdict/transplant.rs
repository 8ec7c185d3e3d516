//! Replaces values in one arch by another's: the substitution in the definition of `controlled`.
//!
//! Only the field itself is replaced, not the fields below it: a replaced definition keeps the values that both have, written
//! or default, unless nothing is below it yet (an empty slot). Layers that share a definition keep sharing it. The inserted
//! value is the other arm's effective one, whether written or default.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dsl::{Diagnostics, Expr, ExprKind, FileId, Span};

use super::definitions::Definitions;
use super::index::{FieldAt, Index, Layer};
use super::normal::{constant, literal};
use compiler::arch;
use compiler::resolve::{Entity, Library};
use compiler::tree::{
    ARCH_FIELDS, Applied, ArchTree, Callable, Setting, SettingValue, SlotSetting,
};

/// The inputs of a replacement.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) library: &'a Library,
    /// The name of the arm that receives values.
    pub(super) arm: &'static str,
    /// Fields of both arms before the replacement.
    pub(super) fields: [&'a Index; 2],
    pub(super) definitions: [(FileId, &'a Definitions); 2],
}

/// `a` with `b`'s values at `cells`; `Err` gives the reason if that is not an arch.
pub(super) fn transplant(
    known: Known<'_>,
    a: &ArchTree,
    b: &ArchTree,
    cells: &BTreeSet<FieldAt>,
) -> Result<ArchTree, String> {
    let Known { library, arm, fields, definitions } = known;
    let mut tree = a.clone();
    let mut cells: Vec<&FieldAt> = cells.iter().collect();
    // The number of layers first, then fields higher in the tree.
    cells.sort_by_key(|(path, layer)| {
        (path != "arch.layers", path.matches('.').count(), path.clone(), *layer)
    });
    let mut edits = Edits::default();
    // Group numbers are only names. Shift b's so that they do not collide with a's.
    let groups = a.layers.iter().filter_map(|l| l.share).max().unwrap_or(0) + 1;
    for (path, layer) in cells {
        let value = fields[1].get(path, *layer).map(|cell| cell.value.clone());
        // Layers that arm a lacks are copied from its own layers.
        let ours = layer.map(|number| number % a.layers.len().max(1));
        let layers = [ours, *layer];
        let swap = Swap { library, arm, fields, definitions, layers, value: value.clone() };
        let rest = path.strip_prefix("arch.").unwrap_or(path);
        let Some(number) = layer else {
            replace_top(&mut tree, b, rest, &swap)?;
            continue;
        };
        let rest = rest.strip_prefix("layers.*").unwrap_or(rest).trim_start_matches('.');
        let Some(theirs) = b.layers.get(*number) else { continue };
        if rest == "share" {
            let owner = value.as_deref().and_then(|owner| owner.parse::<usize>().ok());
            share(&mut tree, *number, owner, theirs.share.map(|group| group + groups));
            continue;
        }
        let Some(ours) = tree.layers.get_mut(*number) else { continue };
        ours.applied = edits.put(&swap, &ours.applied, &theirs.applied, rest)?;
    }
    unite(&mut tree, library);
    Ok(tree)
}

/// The edits of layers so far, so that layers with one definition keep sharing it.
#[derive(Default)]
struct Edits {
    /// By the definitions of both arms, the field below them and its value.
    done: BTreeMap<(*const Applied, *const Applied, String, String), Rc<Applied>>,
    /// Keeps every `Applied` alive while its address is a key.
    alive: Vec<Rc<Applied>>,
}

impl Edits {
    /// The definition of a layer with the other's value at a path below it.
    fn put(
        &mut self,
        swap: &Swap<'_>,
        ours: &Rc<Applied>,
        theirs: &Rc<Applied>,
        path: &str,
    ) -> Result<Rc<Applied>, String> {
        let value = swap.value.clone().unwrap_or_default();
        let key = (Rc::as_ptr(ours), Rc::as_ptr(theirs), path.to_owned(), value);
        if let Some(edited) = self.done.get(&key) {
            return Ok(edited.clone());
        }
        let segments: Vec<&str> = path.split('.').filter(|s| !s.is_empty()).collect();
        let edited = Rc::new(swap.put(ours, theirs, &segments, "arch.layers.*")?);
        self.alive.push(ours.clone());
        self.done.insert(key, edited.clone());
        Ok(edited)
    }
}

/// Puts a layer into the group of the layer that owns its weights, which has no `share` field; `group` is the group if the
/// owner has none. Others that share with it are unchanged.
fn share(tree: &mut ArchTree, number: usize, owner: Option<usize>, group: Option<u32>) {
    let group = owner.and_then(|owner| tree.layers.get(owner)?.share).or(group);
    for member in owner.into_iter().chain([number]) {
        if let Some(layer) = tree.layers.get_mut(member) {
            layer.share = group;
        }
    }
}

/// Layers of one instance must share one definition. Merges copies that edits made equal.
fn unite(tree: &mut ArchTree, library: &Library) {
    let mut owners: BTreeMap<u32, Rc<Applied>> = BTreeMap::new();
    for layer in &mut tree.layers {
        let Some(group) = layer.share else { continue };
        let owner = owners.entry(group).or_insert_with(|| layer.applied.clone());
        if alike(owner, &layer.applied, library) {
            layer.applied = owner.clone();
        }
    }
}

/// Whether an expression has the same value in every file.
fn constant_in(expr: &Expr, file: FileId, library: &Library) -> bool {
    match &expr.kind {
        ExprKind::Int(_) | ExprKind::Decimal(_) | ExprKind::Bool(_) => true,
        ExprKind::Name(word) => library.lookup(file, word).is_none(),
        ExprKind::Unary(_, inner) => constant_in(inner, file, library),
        ExprKind::Binary(_, a, b) => constant_in(a, file, library) && constant_in(b, file, library),
        ExprKind::Applied { .. } | ExprKind::Call { .. } | ExprKind::Slot { .. } => false,
    }
}

/// Whether an expression uses one of these names.
fn mentions(expr: &Expr, names: &[&str]) -> bool {
    match &expr.kind {
        ExprKind::Name(word) => names.contains(&word.as_str()),
        ExprKind::Int(_) | ExprKind::Decimal(_) | ExprKind::Bool(_) => false,
        ExprKind::Unary(_, inner) => mentions(inner, names),
        ExprKind::Binary(_, a, b) => mentions(a, names) || mentions(b, names),
        // Functions such as `floor(x / 2)`, and definitions with settings of their own.
        ExprKind::Applied { .. } | ExprKind::Call { .. } | ExprKind::Slot { .. } => true,
    }
}

/// Whether two definitions have the same callee, settings and fills.
fn alike(a: &Rc<Applied>, b: &Rc<Applied>, library: &Library) -> bool {
    let setting = |a: &Setting, b: &Setting| match (&a.value, &b.value) {
        (SettingValue::Def(a), SettingValue::Def(b)) => alike(a, b, library),
        (SettingValue::Expr(a, from), SettingValue::Expr(b, to)) => {
            (from == to || constant_in(a, *from, library) && constant_in(b, *to, library))
                && dsl::print_expr(a) == dsl::print_expr(b)
        }
        // A setting from a body is identified by its place in one definition.
        (SettingValue::Inside(a, ..), SettingValue::Inside(b, ..)) => Rc::ptr_eq(a, b),
        (SettingValue::Def(_) | SettingValue::Expr(..) | SettingValue::Inside(..), _) => false,
    };
    let fill = |a: &SlotSetting, b: &SlotSetting| match (&a.fill, &b.fill) {
        (Some(a), Some(b)) => alike(a, b, library),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    Rc::ptr_eq(a, b)
        || a.callee.same(&b.callee)
            && a.config.keys().eq(b.config.keys())
            && a.config.values().zip(b.config.values()).all(|(a, b)| setting(a, b))
            && a.slots.keys().eq(b.slots.keys())
            && a.slots.values().zip(b.slots.values()).all(|(a, b)| fill(a, b))
}

fn replace_top(
    tree: &mut ArchTree,
    b: &ArchTree,
    path: &str,
    swap: &Swap<'_>,
) -> Result<(), String> {
    let segments: Vec<&str> = path.split('.').collect();
    match segments.as_slice() {
        ["layers"] => {
            // Take the other's number of layers, and a's kinds: kinds are separate fields.
            let ours = tree.layers.clone();
            tree.layers = (0..b.layers.len())
                .filter_map(|i| ours.get(i % ours.len().max(1)))
                .cloned()
                .collect();
        }
        ["init", role] => match b.init.get(*role) {
            Some(setting) => {
                tree.init.insert((*role).to_owned(), setting.clone());
            }
            None => {
                tree.init.remove(*role);
            }
        },
        [field] if ARCH_FIELDS.contains(field) => match b.fields.get(*field) {
            Some(setting) => {
                let value = swap.literal(setting.span).unwrap_or_else(|| setting.value.clone());
                tree.fields.insert((*field).to_owned(), Setting { value, span: setting.span });
            }
            None => {
                tree.fields.remove(*field);
            }
        },
        rest => {
            // The head's slots are stored at the top, not under `head` like its other fields.
            let rest = rest.strip_prefix(&["head"]).unwrap_or(rest);
            let (Some(ours), Some(theirs)) = (&tree.head, &b.head) else {
                return Err(format!("only one arm has `{path}`"));
            };
            tree.head = Some(Rc::new(swap.put(ours, theirs, rest, "arch.head")?));
        }
    }
    Ok(())
}

/// Inputs of one replacement.
struct Swap<'a> {
    library: &'a Library,
    arm: &'static str,
    fields: [&'a Index; 2],
    definitions: [(FileId, &'a Definitions); 2],
    /// The layer in each arm.
    layers: [Layer; 2],
    /// The other arm's effective value, as its field shows it.
    value: Option<String>,
}

impl Swap<'_> {
    /// `a` with `b`'s value at the path below it; both are at `at`.
    fn put(
        &self,
        a: &Rc<Applied>,
        b: &Rc<Applied>,
        path: &[&str],
        at: &str,
    ) -> Result<Applied, String> {
        let mut edited = (**a).clone();
        match path {
            [] => return self.switched(a, b, at),
            ["slots", slot] => {
                let fill = self.fill(a, b, slot, at)?;
                let span = b.slots.get(*slot).map_or(b.span, |s| s.span);
                // A slot without a fill is empty, even if nothing declares it.
                match fill {
                    None => edited.slots.remove(*slot),
                    fill => edited.slots.insert((*slot).to_owned(), SlotSetting { fill, span }),
                };
            }
            ["slots", slot, rest @ ..] => {
                let fill =
                    |applied: &Applied| applied.slots.get(*slot).and_then(|s| s.fill.clone());
                let (Some(ours), Some(theirs)) = (fill(a), fill(b)) else {
                    return Err(format!("only one arm fills slot {slot}"));
                };
                let at = format!("{at}.slots.{slot}");
                let fill = Some(Rc::new(self.put(&ours, &theirs, rest, &at)?));
                edited.slots.insert((*slot).to_owned(), SlotSetting { fill, span: b.span });
            }
            [name] => match self.setting(a, b, name, at)? {
                Some(setting) => drop(edited.config.insert((*name).to_owned(), setting)),
                None => drop(edited.config.remove(*name)),
            },
            [name, rest @ ..] => {
                let below = format!("{at}.{name}");
                let both = (self.definition(0, a, &below), self.definition(1, b, &below));
                let (Some(ours), Some(theirs)) = both else {
                    return Err(format!("`{name}` is a definition in only one arm"));
                };
                let span = b.config.get(*name).map_or(b.span, |s| s.span);
                let put = self.put(&ours, &theirs, rest, &below)?;
                let value = SettingValue::Def(Rc::new(put));
                edited.config.insert((*name).to_owned(), Setting { value, span });
            }
        }
        Ok(edited)
    }

    /// `b`'s fill of a slot, with `a`'s settings where both fill it.
    fn fill(
        &self,
        a: &Applied,
        b: &Applied,
        slot: &str,
        at: &str,
    ) -> Result<Option<Rc<Applied>>, String> {
        let fill = |applied: &Applied| applied.slots.get(slot).and_then(|s| s.fill.clone());
        Ok(match (fill(a), fill(b)) {
            (Some(ours), Some(theirs)) => {
                Some(Rc::new(self.switched(&ours, &theirs, &format!("{at}.slots.{slot}"))?))
            }
            (_, theirs) => theirs,
        })
    }

    /// `b`'s value of a name of `a`; `None` if nothing is to be written.
    fn setting(
        &self,
        a: &Applied,
        b: &Applied,
        name: &str,
        at: &str,
    ) -> Result<Option<Setting>, String> {
        if !a.callee.config_names().contains(&name) {
            return Err(format!("`{}` has no `{name}`", a.name()));
        }
        if self.value.is_none() && !b.config.contains_key(name) {
            return Ok(None);
        }
        let below = format!("{at}.{name}");
        let theirs = self.definition(1, b, &below);
        let span = b.config.get(name).map_or(b.span, |s| s.span);
        let value = match (self.definition(0, a, &below), theirs) {
            (Some(ours), Some(theirs)) => {
                SettingValue::Def(Rc::new(self.switched(&ours, &theirs, &below)?))
            }
            (None, Some(theirs)) => SettingValue::Def(theirs),
            (_, None) => match (self.literal(span), b.config.get(name)) {
                (Some(value), _) => value,
                (None, Some(setting)) => setting.value.clone(),
                (None, None) => return Err(format!("`{name}` has no value to copy")),
            },
        };
        Ok(Some(Setting { value, span }))
    }

    /// The definition configured at the last name of a path, as written or by default. A default may be computed from
    /// its neighbours (`rope = rotary { dims head_dim / frac }`), and their names mean nothing elsewhere; there it gets
    /// the arm's effective values.
    fn definition(&self, arm: usize, applied: &Applied, at: &str) -> Option<Rc<Applied>> {
        let name = at.rsplit('.').next().unwrap_or(at);
        let definition = self.configured(applied, name)?;
        if applied.config.contains_key(name) {
            return Some(definition);
        }
        Some(self.settled(arm, &definition, &applied.callee.config_names(), at))
    }

    /// A definition with effective values where its settings use one of these names.
    fn settled(&self, arm: usize, applied: &Rc<Applied>, names: &[&str], at: &str) -> Rc<Applied> {
        let mut settled = (**applied).clone();
        for (name, setting) in &mut settled.config {
            let path = format!("{at}.{name}");
            match &setting.value {
                SettingValue::Def(child) => {
                    setting.value = SettingValue::Def(self.settled(arm, child, names, &path));
                }
                SettingValue::Expr(expr, _) if mentions(expr, names) => {
                    let cell = self.fields[arm].get(&path, self.layers[arm]);
                    let value = cell.and_then(|cell| literal(&cell.value, setting.span));
                    setting.value = value.unwrap_or_else(|| setting.value.clone());
                }
                SettingValue::Expr(..) | SettingValue::Inside(..) => {}
            }
        }
        Rc::new(settled)
    }

    fn configured(&self, applied: &Applied, name: &str) -> Option<Rc<Applied>> {
        let named = |file: FileId, expr: &Expr| match &expr.kind {
            ExprKind::Name(word) => match self.library.lookup(file, word) {
                Some(Entity::Def(_) | Entity::Alias(..)) => {
                    arch::definition(self.library, file, expr, &mut Diagnostics::new())
                }
                Some(Entity::Init(..) | Entity::Arch(..)) | None => None,
            },
            ExprKind::Applied { .. } => {
                arch::definition(self.library, file, expr, &mut Diagnostics::new())
            }
            ExprKind::Int(_)
            | ExprKind::Decimal(_)
            | ExprKind::Bool(_)
            | ExprKind::Call { .. }
            | ExprKind::Slot { .. }
            | ExprKind::Unary(..)
            | ExprKind::Binary(..) => None,
        };
        match (applied.config.get(name), &applied.callee) {
            (Some(Setting { value: SettingValue::Def(child), .. }), _) => Some(child.clone()),
            (Some(Setting { value: SettingValue::Expr(expr, file), .. }), _) => named(*file, expr),
            (Some(Setting { value: SettingValue::Inside(..), .. }), _) => None,
            (None, Callable::Def(item)) => {
                let default = applied.callee.param(name)?.default.as_ref()?;
                named(item.file, default)
            }
            (None, Callable::Primitive(_)) => None,
        }
    }

    /// The other arm's value as a setting, if it can be written.
    fn literal(&self, span: Span) -> Option<SettingValue> {
        literal(self.value.as_deref()?, span)
    }

    /// `b`'s definition with `a`'s values for names that both have: values written in `a`, and values that
    /// follow in `a` by a different rule. If the rules agree, the value follows in the result too.
    fn switched(&self, a: &Rc<Applied>, b: &Rc<Applied>, at: &str) -> Result<Applied, String> {
        let (ours, theirs) = (a.callee.config_names(), b.callee.config_names());
        let mut config: BTreeMap<String, Setting> = BTreeMap::new();
        for (name, setting) in &b.config {
            if !ours.contains(&name.as_str()) {
                config.insert(name.clone(), setting.clone());
            }
        }
        for name in theirs.into_iter().filter(|name| ours.contains(name)) {
            if let Some(setting) = a.config.get(name) {
                config.insert(name.to_owned(), setting.clone());
                continue;
            }
            let path = format!("{at}.{name}");
            let cells = [0, 1].map(|i| self.fields[i].get(&path, self.layers[i]));
            // A value that a definition passes on is not a field and cannot be set.
            let [Some(cell), Some(_)] = cells else { continue };
            if self.rule(a, name) == self.rule(b, name) {
                continue;
            }
            let value = match self.definition(0, a, &path) {
                Some(definition) => SettingValue::Def(definition),
                None => literal(&cell.value, b.span).ok_or_else(|| {
                    let arm = self.arm;
                    format!(
                        "`{path}` is {} in arm {arm}, which cannot be moved to the other arm",
                        cell.value
                    )
                })?,
            };
            config.insert(name.to_owned(), Setting { value, span: b.span });
        }
        // Slots belong to the layer, whatever its definition.
        Ok(Applied {
            callee: b.callee.clone(),
            config,
            slots: a.slots.clone(),
            height: a.height.max(b.height),
            span: b.span,
        })
    }

    /// The rule for a definition's value that nobody writes.
    fn rule(&self, applied: &Applied, name: &str) -> Option<String> {
        match &applied.callee {
            Callable::Primitive(primitive) => constant(primitive, name),
            Callable::Def(item) => {
                let [(ours, a), (_, b)] = self.definitions;
                let definitions = if item.file == ours { a } else { b };
                definitions.rule(&item.def.name.text, name)
            }
        }
    }
}
