//! Renames definitions in syntax trees, for texts that merge several files. Locals, configuration, field names, paths
//! and instance names do not change, not even an instance name that was implied by the callee's name.

use dsl::{
    Arg, Entry, Expr, ExprKind, Item, LayerList, LayerWhat, Name, Segment, Select, Statement,
};

use crate::diag::Use;
use crate::names::{Binds, Bound};

/// Gives free names of definitions other names. The function returns the new name, or None to keep the old one.
pub struct Rename<F: FnMut(&str) -> Option<String>> {
    to: F,
    bound: Bound,
}

impl<F: FnMut(&str) -> Option<String>> Rename<F> {
    /// A renaming by this function.
    pub fn new(to: F) -> Self {
        Rename { to, bound: Bound::default() }
    }

    fn name(&mut self, name: &mut String, context: Use) {
        if !self.bound.hides(name, context)
            && let Some(new) = (self.to)(name)
        {
            *name = new;
        }
    }

    fn bind(&mut self, name: &str) {
        self.bound.insert(Binds::Value, name);
    }

    /// Renames inside a definition, without its own name.
    pub fn item(&mut self, item: &mut Item) {
        match item {
            Item::Def(def) => {
                for param in &mut def.config {
                    if let Some(default) = &mut param.default {
                        self.expr(default);
                    }
                    self.bind(&param.name.text);
                }
                def.tensors.iter().for_each(|t| self.bind(&t.text));
                self.statements(&mut def.body.statements);
                def.body.result.iter_mut().for_each(|e| self.expr(e));
            }
            Item::Alias(alias) => self.expr(&mut alias.value),
            Item::Init(table) => self.entries(&mut table.entries),
            Item::Arch(_) => {}
        }
    }

    fn statements(&mut self, statements: &mut [Statement]) {
        for statement in statements {
            match statement {
                Statement::Let { names, value, span: _ } => {
                    self.expr(value);
                    names.iter().for_each(|n| self.bind(&n.text));
                }
                Statement::Param { name, dims, init, span: _ } => {
                    dims.iter_mut().chain(init.as_mut()).for_each(|e| self.expr(e));
                    self.bind(&name.text);
                }
                Statement::Share { name, callee, entries, span: _ } => {
                    self.name(&mut callee.text, Use::Def);
                    self.entries(entries.as_deref_mut().unwrap_or(&mut []));
                    self.bind(&name.text);
                }
                Statement::Carry { name, value, otherwise, span: _ } => {
                    let mark = self.bound.mark();
                    self.expr(value);
                    let hidden = self.bound.hide(mark);
                    self.bind(&name.text);
                    self.statements(otherwise);
                    self.bound.show(hidden);
                }
                Statement::If { condition, then, otherwise, span: _ } => {
                    self.expr(condition);
                    let mark = self.bound.mark();
                    self.statements(then);
                    let hidden = self.bound.hide(mark);
                    self.statements(otherwise);
                    self.bound.show(hidden);
                }
            }
        }
    }

    /// Renames inside an expression.
    pub fn expr(&mut self, expr: &mut Expr) {
        match &mut expr.kind {
            ExprKind::Int(_) | ExprKind::Decimal(_) | ExprKind::Bool(_) => {}
            ExprKind::Name(name) => self.name(name, Use::Value),
            ExprKind::Applied { def, entries } => {
                self.name(&mut def.text, Use::Def);
                self.entries(entries);
            }
            ExprKind::Call { callee, instance, args } => {
                let before = callee.text.clone();
                // A call of a primitive's name is the primitive.
                if crate::op::find(&callee.text).is_none() {
                    self.name(&mut callee.text, Use::Call);
                }
                for Arg { name: _, value } in args {
                    self.expr(value);
                }
                match instance {
                    Some(instance) => self.bound.insert(Binds::Instance, &instance.text),
                    // The parameter's path came from the callee's old name: keep it.
                    None if callee.text != before => {
                        *instance = Some(Name { text: before, span: callee.span });
                    }
                    None => {}
                }
            }
            ExprKind::Slot { name: _, args } => args.iter_mut().for_each(|a| self.expr(a)),
            ExprKind::Unary(_, inner) => self.expr(inner),
            ExprKind::Binary(_, a, b) => {
                self.expr(a);
                self.expr(b);
            }
        }
    }

    fn entries(&mut self, entries: &mut [Entry]) {
        for entry in entries {
            match entry {
                Entry::Set { path, value, .. } | Entry::Replace { path, value, .. } => {
                    self.path(path);
                    self.expr(value);
                }
                Entry::Nested { path, entries, .. } => {
                    self.path(path);
                    self.entries(entries);
                }
                Entry::Layers { value, .. } => self.layers(value),
                Entry::Fill { slots: _, with, .. } => self.expr(with),
                Entry::Canon { slots: _, entries, .. } => {
                    self.entries(entries.as_deref_mut().unwrap_or(&mut []));
                }
                Entry::Empty { .. } => {}
            }
        }
    }

    fn path(&mut self, path: &mut dsl::Path) {
        for segment in &mut path.segments {
            if let Segment::Layers { select: Select::Is { path: _, def }, .. } = segment {
                self.name(&mut def.text, Use::Def);
            }
        }
    }

    fn layers(&mut self, list: &mut LayerList) {
        if let Some(count) = &mut list.count {
            self.expr(count);
        }
        match &mut list.what {
            LayerWhat::One { layer, .. } => self.expr(layer),
            LayerWhat::List(items) => items.iter_mut().for_each(|l| self.layers(l)),
        }
    }
}
