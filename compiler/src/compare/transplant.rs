//! An arch with another's values at some paths: the substitution that `controlled` speaks of.
//!
//! In: two trees of one program and the cells that are to change. Out: the first tree with the second's
//! values there and nowhere else. Must stay true (design, section 6): a field is replaced, not what lies
//! below it — a definition that is replaced keeps the settings both have — except where there is
//! nothing below it yet (an empty slot); layers that share a definition keep sharing it; a value is the
//! other arm's effective one, however it came about.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dsl::{BinaryOp, Decimal, Diagnostics, Expr, ExprKind, FileId, Span, UnaryOp};

use super::index::{Index, Layer};
use crate::arch;
use crate::resolve::{Entity, Library};
use crate::tree::{ARCH_FIELDS, Applied, ArchTree, Callable, Setting, SettingValue, SlotSetting};

/// One cell to change: its general path and its layer.
pub(super) type Place = (String, Layer);

/// `a` with `b`'s values at `places`; `Err` says why that is no arch.
pub(super) fn transplant(
    library: &Library,
    a: &ArchTree,
    b: &ArchTree,
    b_fields: &Index,
    places: &BTreeSet<Place>,
) -> Result<ArchTree, String> {
    let mut tree = a.clone();
    let mut places: Vec<&Place> = places.iter().collect();
    // The number of layers first, then what stands higher in the tree.
    places.sort_by_key(|(path, layer)| {
        (path != "arch.layers", path.matches('.').count(), path.clone(), *layer)
    });
    let mut done: BTreeMap<(*const Applied, *const Applied, String, String), Rc<Applied>> =
        BTreeMap::new();
    // The trees above hold every Applied that a key points to.
    let mut alive: Vec<Rc<Applied>> = Vec::new();
    // Numbers of groups are names only; theirs must not meet ours.
    let groups = a.layers.iter().filter_map(|l| l.share).max().unwrap_or(0) + 1;
    for (path, layer) in places {
        let value = b_fields.get(path, *layer).map(|cell| cell.value.clone());
        let swap = Swap { library, value: value.clone() };
        let rest = path.strip_prefix("arch.").unwrap_or(path);
        let Some(number) = layer else {
            replace_top(&mut tree, b, rest, &swap)?;
            continue;
        };
        let rest = rest.strip_prefix("layers.*").unwrap_or(rest).trim_start_matches('.');
        let Some(theirs) = b.layers.get(*number) else { continue };
        if rest == "share" {
            // The layer that owns the weights has no such field of its own.
            let owner = value.as_deref().and_then(|owner| owner.parse().ok());
            let group = theirs.share.map(|group| group + groups);
            for member in owner.into_iter().chain([*number]) {
                if let Some(ours) = tree.layers.get_mut(member) {
                    ours.share = group;
                }
            }
            continue;
        }
        let Some(ours) = tree.layers.get_mut(*number) else { continue };
        let key = (
            Rc::as_ptr(&ours.applied),
            Rc::as_ptr(&theirs.applied),
            rest.to_owned(),
            value.unwrap_or_default(),
        );
        let edited = match done.get(&key) {
            Some(edited) => edited.clone(),
            None => {
                let segments: Vec<&str> = rest.split('.').filter(|s| !s.is_empty()).collect();
                let edited = Rc::new(swap.put(&ours.applied, &theirs.applied, &segments)?);
                alive.push(ours.applied.clone());
                done.insert(key, edited.clone());
                edited
            }
        };
        ours.applied = edited;
    }
    Ok(tree)
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
            // As many layers as the other has, of our own kinds: their kinds are fields of their own.
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
            // The head's slots stand at the top, beside its other fields under `head`.
            let rest = rest.strip_prefix(&["head"]).unwrap_or(rest);
            let (Some(ours), Some(theirs)) = (&tree.head, &b.head) else {
                return Err(format!("`{path}` is in one arm only"));
            };
            tree.head = Some(Rc::new(swap.put(ours, theirs, rest)?));
        }
    }
    Ok(())
}

/// What one replacement needs.
struct Swap<'a> {
    library: &'a Library,
    /// The other arm's effective value, as its field says it.
    value: Option<String>,
}

impl Swap<'_> {
    /// `a` with `b`'s value at the path below it.
    fn put(&self, a: &Rc<Applied>, b: &Rc<Applied>, path: &[&str]) -> Result<Applied, String> {
        let mut edited = (**a).clone();
        match path {
            [] => return Ok(switched(a, b)),
            ["slots", slot] => {
                let fill =
                    |applied: &Applied| applied.slots.get(*slot).and_then(|s| s.fill.clone());
                let span = b.slots.get(*slot).map_or(b.span, |s| s.span);
                let fill = match (fill(a), fill(b)) {
                    (Some(ours), Some(theirs)) => Some(Rc::new(switched(&ours, &theirs))),
                    (_, theirs) => theirs,
                };
                edited.slots.insert((*slot).to_owned(), SlotSetting { fill, span });
            }
            ["slots", slot, rest @ ..] => {
                let fill =
                    |applied: &Applied| applied.slots.get(*slot).and_then(|s| s.fill.clone());
                let (Some(ours), Some(theirs)) = (fill(a), fill(b)) else {
                    return Err(format!("slot {slot} is filled in one arm only"));
                };
                let fill = Some(Rc::new(self.put(&ours, &theirs, rest)?));
                edited.slots.insert((*slot).to_owned(), SlotSetting { fill, span: b.span });
            }
            [name] => {
                if !a.callee.config_names().contains(name) {
                    return Err(format!("`{}` has no `{name}`", a.name()));
                }
                let theirs = self.definition(b, name);
                let span = b.config.get(*name).map_or(b.span, |s| s.span);
                let value = match (self.definition(a, name), theirs) {
                    (Some(ours), Some(theirs)) => {
                        SettingValue::Def(Rc::new(switched(&ours, &theirs)))
                    }
                    (None, Some(theirs)) => SettingValue::Def(theirs),
                    (_, None) => match (self.literal(span), b.config.get(*name)) {
                        (Some(value), _) => value,
                        (None, Some(setting)) => setting.value.clone(),
                        (None, None) => return Err(format!("`{name}` has no value to take over")),
                    },
                };
                edited.config.insert((*name).to_owned(), Setting { value, span });
            }
            [name, rest @ ..] => {
                let (Some(ours), Some(theirs)) =
                    (self.definition(a, name), self.definition(b, name))
                else {
                    return Err(format!("`{name}` is a definition in one arm only"));
                };
                let span = b.config.get(*name).map_or(b.span, |s| s.span);
                let value = SettingValue::Def(Rc::new(self.put(&ours, &theirs, rest)?));
                edited.config.insert((*name).to_owned(), Setting { value, span });
            }
        }
        Ok(edited)
    }

    /// The definition configured at a name, written or by default.
    fn definition(&self, applied: &Applied, name: &str) -> Option<Rc<Applied>> {
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

    /// The other arm's value as something to write; `None` if it cannot be written as a number, a truth
    /// or a word.
    fn literal(&self, span: Span) -> Option<SettingValue> {
        let text = self.value.as_deref()?;
        let expr = |kind| Expr { kind, span };
        let number = |text: &str| -> Option<Expr> {
            let (negative, digits) = match text.strip_prefix('-') {
                Some(digits) => (true, digits),
                None => (false, text),
            };
            let plain = match digits.parse::<i64>() {
                Ok(n) => expr(ExprKind::Int(n)),
                Err(_) => expr(ExprKind::Decimal(Decimal::parse(digits).ok()?)),
            };
            Some(if negative {
                expr(ExprKind::Unary(UnaryOp::Neg, Box::new(plain)))
            } else {
                plain
            })
        };
        let word = |text: &str| {
            !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let made = match text {
            "true" | "false" => expr(ExprKind::Bool(text == "true")),
            text => match (number(text), text.split_once('/')) {
                (Some(number), _) => number,
                (None, Some((over, under))) => {
                    let (over, under) = (Box::new(number(over)?), Box::new(number(under)?));
                    expr(ExprKind::Binary(BinaryOp::Div, over, under))
                }
                (None, None) if word(text) => expr(ExprKind::Name(text.to_owned())),
                (None, None) => return None,
            },
        };
        Some(SettingValue::Expr(Rc::new(made), span.file))
    }
}

/// `b`'s definition with `a`'s settings where both have such a setting, and `b`'s elsewhere.
fn switched(a: &Applied, b: &Applied) -> Applied {
    let (ours, theirs) = (a.callee.config_names(), b.callee.config_names());
    let mut config: BTreeMap<String, Setting> = BTreeMap::new();
    for (name, setting) in &b.config {
        if !ours.contains(&name.as_str()) {
            config.insert(name.clone(), setting.clone());
        }
    }
    for (name, setting) in &a.config {
        if theirs.contains(&name.as_str()) {
            config.insert(name.clone(), setting.clone());
        }
    }
    // Slots belong to the layer, whatever it is.
    Applied {
        callee: b.callee.clone(),
        config,
        slots: a.slots.clone(),
        height: a.height.max(b.height),
        span: b.span,
    }
}
