//! Bodies: statements in order, raw parameters, shared instances, branches. A branch is chosen by configuration only,
//! and names from the other branch shadow definitions without having a value.

use std::rc::Rc;

use dsl::{Entry, Expr, ExprKind, Name, Span, Statement};

use super::frame::Frame;
use super::{Building, Elaborator, join};
use crate::diag;
use crate::graph::{Out, Param};
use crate::names::{TOKENS, bound_by, mentions};
use crate::tree::Value;

impl Elaborator<'_> {
    pub(super) fn statements(
        &mut self,
        list: &[Statement],
        f: &mut Frame,
        b: &mut Building,
    ) -> Option<()> {
        // A failed statement's names are marked as broken, so that later uses report nothing.
        let mut good = Some(());
        for statement in list {
            if self.statement(statement, f, b).is_none() {
                good = None;
                for name in bound_by(std::slice::from_ref(statement)) {
                    f.break_off(&name);
                }
            }
        }
        good
    }

    fn statement(&mut self, statement: &Statement, f: &mut Frame, b: &mut Building) -> Option<()> {
        match statement {
            Statement::Let { names, value, span } => self.bind(names, value, *span, f, b),
            Statement::Param { name, dims, init, span } => {
                let out = self.raw_param(name, dims, init.as_ref(), *span, f, b)?;
                self.observe(name.span, &Value::Tensors(vec![out]), b);
                f.bind(&name.text, Value::Tensors(vec![out]));
                Some(())
            }
            Statement::Share { name, callee, entries, span } => {
                self.share(name, callee, entries.as_deref().unwrap_or(&[]), *span, f)
            }
            Statement::Carry { name, value, otherwise, span } => {
                self.carry(name, value, otherwise, *span, f, b)
            }
            Statement::If { condition, then, otherwise, span: _ } => {
                if self.boolean(condition, f, b)? {
                    self.statements(then, f, b)?;
                    f.skip(otherwise);
                } else {
                    self.statements(otherwise, f, b)?;
                    f.skip(then);
                }
                Some(())
            }
        }
    }

    fn bind(
        &mut self,
        names: &[Name],
        value: &Expr,
        span: Span,
        f: &mut Frame,
        b: &mut Building,
    ) -> Option<()> {
        match (names, self.eval(value, f, b)?) {
            (names, Value::Tensors(outs)) => {
                if names.len() != outs.len() {
                    let (got, want) = (outs.len(), names.len());
                    self.diagnostics.push(diag::result_count(span, got, want));
                    return None;
                }
                for (name, out) in names.iter().zip(outs) {
                    self.observe(name.span, &Value::Tensors(vec![out]), b);
                    f.bind(&name.text, Value::Tensors(vec![out]));
                }
            }
            ([name], value) => {
                self.observe(name.span, &value, b);
                f.bind(&name.text, value);
            }
            (names, _) => {
                self.diagnostics.push(diag::result_count(span, 1, names.len()));
                return None;
            }
        }
        Some(())
    }

    /// A tensor that passes from layer to layer: what the layers before left, or else this value.
    fn carry(
        &mut self,
        name: &Name,
        value: &Expr,
        otherwise: &[Statement],
        span: Span,
        f: &mut Frame,
        b: &mut Building,
    ) -> Option<()> {
        if b.passing.is_none() || f.fill.is_some() {
            self.diagnostics.push(diag::carry_outside(span, &name.text));
            return None;
        }
        if name.text == TOKENS {
            self.diagnostics.push(diag::carry_reserved(span, &name.text));
            return None;
        }
        let before = b.passed(&name.text, span);
        let out = match before {
            Some(before) => before,
            None => match self.eval(value, f, b)? {
                Value::Tensors(outs) if outs.len() == 1 => outs[0],
                Value::Tensors(outs) => {
                    self.diagnostics.push(diag::result_count(span, outs.len(), 1));
                    return None;
                }
                other => {
                    let got = other.describe();
                    self.diagnostics.push(diag::not_a_tensor(value.span, &got));
                    return None;
                }
            },
        };
        b.pass(&name.text, out);
        self.observe(name.span, &Value::Tensors(vec![out]), b);
        f.bind(&name.text, Value::Tensors(vec![out]));
        f.carried.push((name.clone(), out));
        if before.is_some() {
            f.pass_over(value);
            self.statements(otherwise, f, b)
        } else {
            f.skip(otherwise);
            Some(())
        }
    }

    /// What a body bound again under the name of a carried tensor is passed on.
    pub(super) fn pass_on(&mut self, f: &Frame, b: &mut Building) -> Option<()> {
        let mut good = Some(());
        for (name, before) in &f.carried {
            match f.names.get(&name.text) {
                Some(Value::Tensors(outs)) => match outs.as_slice() {
                    [out] if out != before => b.pass(&name.text, *out),
                    _ => {}
                },
                Some(other) => {
                    let got = other.describe();
                    self.diagnostics.push(diag::not_a_tensor(name.span, &got));
                    good = None;
                }
                // It failed.
                None => {}
            }
        }
        good
    }

    fn share(
        &mut self,
        name: &Name,
        callee: &Name,
        entries: &[Entry],
        span: Span,
        f: &mut Frame,
    ) -> Option<()> {
        let before = f.instances.get(&name.text).map(|(span, _)| *span);
        if f.shared.contains_key(&name.text) || before.is_some() {
            let before = before.unwrap_or(name.span);
            self.diagnostics.push(diag::instance_twice(&name.text, name.span, before));
            return None;
        }
        let field = match f.names.get(&callee.text) {
            Some(Value::Def(_, field)) => field.clone(),
            _ => None,
        };
        let kind = ExprKind::Applied { def: callee.clone(), entries: entries.to_vec() };
        let expr = Expr { kind, span };
        let applied = self.definition(&expr, f)?;
        f.shared.insert(name.text.clone(), (applied, field));
        f.hide(&name.text);
        Some(())
    }

    /// A definition with configuration written in a body: it can use the body's bindings.
    pub(super) fn definition(
        &mut self,
        expr: &Expr,
        f: &Frame,
    ) -> Option<Rc<crate::tree::Applied>> {
        let around = f.around(mentions(expr));
        let (library, aliases) = (self.library, &mut self.aliases);
        let applied =
            crate::arch::definition_in(library, f.file, expr, around, aliases, self.diagnostics)?;
        // Its size is that of its parts.
        self.steps += applied.config.len() + applied.slots.len();
        Some(applied)
    }

    fn raw_param(
        &mut self,
        name: &Name,
        dims: &[Expr],
        init: Option<&Expr>,
        span: Span,
        f: &mut Frame,
        b: &mut Building,
    ) -> Option<Out> {
        let mut shape = Vec::new();
        for dim in dims {
            match self.eval(dim, f, b)? {
                Value::Int(n) if n > 0 => shape.push(n),
                other => {
                    let got = other.describe();
                    self.diagnostics.push(diag::wrong_kind(
                        dim.span,
                        "this size",
                        &got,
                        "a positive integer",
                    ));
                    return None;
                }
            }
        }
        let fan_in = shape.last().copied().unwrap_or(1);
        let given = init.map(|e| (e.clone(), f.around(mentions(e)), f.file));
        let path = join(&f.path, &name.text);
        let written: Vec<String> = dims.iter().map(dsl::print_expr).collect();
        let written = format!("[{}]", written.join(", "));
        self.check_size(&shape, &path, span)?;
        let rule = self.init_of(&name.text, &path, fan_in, given, span, Some(&written))?;
        let known = b.by_path.get(&path).copied();
        let id = match known {
            Some(id) if f.again && !f.instances.contains_key(&name.text) => {
                self.same_param(b, id, &shape, Some(&rule), span)?
            }
            Some(id) => {
                let before = b.param_spans.get(id.0 as usize).copied().unwrap_or(span);
                self.diagnostics.push(diag::instance_twice(&name.text, span, before));
                return None;
            }
            None => {
                let (role, slot) = (name.text.clone(), f.fill.clone());
                self.observe_param(span, &path);
                b.add_param(Param { path, shape, init: rule, role, slot }, span)
            }
        };
        self.remember_instance(name, false, f);
        Some(b.param_node(id, span))
    }
}
