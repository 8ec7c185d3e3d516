//! Errors inside a definition, shown at the setting that causes them: an error in a file that the reader did not write
//! shows the place in the reader's file first.

use std::collections::BTreeSet;

use dsl::{Arg, Def, Diagnostic, Expr, ExprKind, Label, Span, Statement};

use super::Elaborator;
use crate::names::mentions;
use crate::tree::{Applied, DefItem, Setting};

/// The most settings that one error points at.
const SHOWN: usize = 3;

impl Elaborator<'_> {
    /// Adds labels for the settings that the errors since `from` depend on.
    pub(super) fn point_at_settings(&mut self, from: usize, item: &DefItem, applied: &Applied) {
        if applied.config.is_empty() {
            return;
        }
        for d in self.diagnostics.iter_mut().skip(from).filter(|d| d.is_error()) {
            let Some(at) = d.labels.first().map(|label| label.span) else { continue };
            if at.file != item.file || !at.is_in(item.def.span) {
                continue;
            }
            let read = read_at(&item.def, at);
            let set = applied.config.iter().filter(|(name, _)| read.contains(name.as_str()));
            for (_, setting) in set.filter(|(_, setting)| setting.value_span() != at).take(SHOWN) {
                point(d, setting);
            }
        }
    }
}

fn point(d: &mut Diagnostic, setting: &Setting) {
    let what = if setting.value.written().is_ok() { "set here" } else { "given here" };
    let label = Label { span: setting.value_span(), text: what.to_owned(), around: false };
    match d.labels.first_mut() {
        Some(first) if first.span.file != label.span.file => {
            if first.text.is_empty() {
                "used here".clone_into(&mut first.text);
            }
            d.labels.insert(0, label);
        }
        Some(_) | None => d.labels.push(label),
    }
}

/// The names that the expression at a span reads. If none is configuration, adds the names that they are
/// computed from.
fn read_at(def: &Def, at: Span) -> BTreeSet<String> {
    let mut exprs: Vec<&Expr> = def.config.iter().filter_map(|c| c.default.as_ref()).collect();
    let mut lets = Vec::new();
    collect(&def.body.statements, &mut exprs, &mut lets);
    exprs.extend(&def.body.result);
    let Some(expr) = exprs.into_iter().find_map(|expr| innermost(expr, at)) else {
        return BTreeSet::new();
    };
    let is_config = |name: &String| def.config.iter().any(|c| c.name.text == *name);
    let mut read = mentions(expr);
    while !read.iter().any(is_config) {
        let before = read.len();
        for (names, value) in &lets {
            if names.iter().any(|name| read.contains(*name)) && value.span.start < at.start {
                read.extend(mentions(value));
            }
        }
        if read.len() == before {
            break;
        }
    }
    read
}

type Let<'a> = (Vec<&'a str>, &'a Expr);

fn collect<'a>(statements: &'a [Statement], exprs: &mut Vec<&'a Expr>, lets: &mut Vec<Let<'a>>) {
    for statement in statements {
        match statement {
            Statement::Let { names, value, span: _ } => {
                exprs.push(value);
                lets.push((names.iter().map(|name| name.text.as_str()).collect(), value));
            }
            Statement::Param { name: _, dims, init, span: _ } => {
                exprs.extend(dims.iter().chain(init));
            }
            Statement::Share { .. } => {}
            Statement::Carry { name, value, otherwise, span: _ } => {
                exprs.push(value);
                lets.push((vec![name.text.as_str()], value));
                collect(otherwise, exprs, lets);
            }
            Statement::If { condition, then, otherwise, span: _ } => {
                exprs.push(condition);
                collect(then, exprs, lets);
                collect(otherwise, exprs, lets);
            }
        }
    }
}

/// The smallest expression around a span.
fn innermost(expr: &Expr, at: Span) -> Option<&Expr> {
    if at.start < expr.span.start || expr.span.end < at.end {
        return None;
    }
    let inside = match &expr.kind {
        ExprKind::Call { args, .. } => {
            args.iter().find_map(|Arg { name: _, value }| innermost(value, at))
        }
        ExprKind::Slot { args, .. } => args.iter().find_map(|value| innermost(value, at)),
        ExprKind::Unary(_, inner) => innermost(inner, at),
        ExprKind::Binary(_, a, b) => innermost(a, at).or_else(|| innermost(b, at)),
        ExprKind::Int(_)
        | ExprKind::Decimal(_)
        | ExprKind::Bool(_)
        | ExprKind::Name(_)
        | ExprKind::Applied { .. } => None,
    };
    Some(inside.unwrap_or(expr))
}
