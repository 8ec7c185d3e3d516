//! Expressions as documents, with parentheses exactly where the tree needs them.
//!
//! A name and its bracket stay on one line; a line is broken after an operator, never before.

use super::Builder;
use super::doc::{
    Doc, Upto, brk, close, concat, group, group_if, if_broken, indent, soft, text, trail,
};
use crate::{Arg, BinaryOp, Decimal, Entry, Expr, ExprKind, Name, UnaryOp};

/// How tightly an expression binds, loosest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Or,
    And,
    Not,
    Compare,
    Sum,
    Product,
    Minus,
    Primary,
}

/// `Bare` braces would be misread: in the condition of an `if`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Applied {
    Bare,
    Parenthesised,
}

fn level(expr: &Expr) -> Level {
    match &expr.kind {
        ExprKind::Int(value) if *value < 0 => Level::Minus,
        ExprKind::Decimal(value) if value.is_negative() => Level::Minus,
        ExprKind::Int(_)
        | ExprKind::Decimal(_)
        | ExprKind::Bool(_)
        | ExprKind::Name(_)
        | ExprKind::Applied { .. }
        | ExprKind::Call { .. }
        | ExprKind::Slot { .. } => Level::Primary,
        ExprKind::Unary(UnaryOp::Neg, _) => Level::Minus,
        ExprKind::Unary(UnaryOp::Not, _) => Level::Not,
        ExprKind::Binary(op, ..) => operands(*op).0,
    }
}

/// The level of an operator, and of its left and right operands.
fn operands(op: BinaryOp) -> (Level, Level, Level) {
    match op {
        BinaryOp::Or => (Level::Or, Level::Or, Level::And),
        BinaryOp::And => (Level::And, Level::And, Level::Not),
        BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge => {
            (Level::Compare, Level::Sum, Level::Sum)
        }
        BinaryOp::Add | BinaryOp::Sub => (Level::Sum, Level::Sum, Level::Product),
        BinaryOp::Mul | BinaryOp::Div => (Level::Product, Level::Product, Level::Minus),
    }
}

impl Builder<'_> {
    pub(super) fn expr(&mut self, expr: &Expr) -> Doc {
        self.expr_in(expr, Level::Or, Applied::Bare)
    }

    /// An expression in a place that binds at least as tightly as `wanted`.
    pub(super) fn expr_in(&mut self, expr: &Expr, wanted: Level, applied: Applied) -> Doc {
        let braces = matches!(expr.kind, ExprKind::Applied { .. });
        if level(expr) < wanted || (braces && applied == Applied::Parenthesised) {
            let inner = self.expr(expr);
            return concat(vec![text("("), inner, text(")")]);
        }
        match &expr.kind {
            ExprKind::Int(value) => {
                let same = |written: &str| written.replace('_', "").parse() == Ok(*value);
                self.number(expr, same, || value.to_string())
            }
            ExprKind::Decimal(value) => {
                let same = |written: &str| Decimal::parse(written) == Ok(*value);
                self.number(expr, same, || decimal(*value))
            }
            ExprKind::Bool(value) => text(if *value { "true" } else { "false" }),
            ExprKind::Name(name) => text(name.clone()),
            ExprKind::Applied { def, entries } => {
                let end = expr.span.end;
                concat(vec![text(def.text.clone()), text(" "), self.applied(expr, entries, end)])
            }
            ExprKind::Call { callee, instance, args } => {
                let head = match instance {
                    Some(instance) => format!("{} {} ", callee.text, instance.text),
                    None => callee.text.clone(),
                };
                let starts = args.iter().map(arg_start);
                let range = (expr.span.start, expr.span.end);
                let starts = starts.collect::<Vec<_>>();
                let list = self.list(("(", ")"), range, args, &starts, Builder::arg);
                concat(vec![text(head), list])
            }
            ExprKind::Slot { name, args } => {
                let range = (expr.span.start, expr.span.end);
                let starts = args.iter().map(|arg| arg.span.start).collect::<Vec<_>>();
                let list = self.list(("(", ")"), range, args, &starts, Builder::expr);
                concat(vec![text(format!("slot {}", name.text)), list])
            }
            ExprKind::Unary(UnaryOp::Neg, operand) => {
                let operand = self.expr_in(operand, Level::Minus, applied);
                concat(vec![text("-"), operand])
            }
            ExprKind::Unary(UnaryOp::Not, operand) => {
                let operand = self.expr_in(operand, Level::Not, applied);
                concat(vec![text("not "), operand])
            }
            ExprKind::Binary(op, left, right) => {
                let (_, l, r) = operands(*op);
                let left = self.expr_in(left, l, applied);
                // Two steps, to set a broken condition apart from the body.
                self.level += 2;
                let right = self.expr_in(right, r, applied);
                self.level -= 2;
                let right = group(vec![indent(vec![indent(vec![soft(" "), right])])]);
                concat(vec![left, text(" "), text(op.sign()), right])
            }
        }
    }

    /// As the author wrote it, if the source is given: `1_000` and `1e6` are worth keeping.
    fn number(
        &self,
        expr: &Expr,
        same: impl Fn(&str) -> bool,
        shortest: impl Fn() -> String,
    ) -> Doc {
        let range = expr.span.start as usize..expr.span.end as usize;
        let written = self.source.and_then(|source| source.get(range)).unwrap_or("");
        let written = written.trim_matches(|c: char| "()".contains(c) || c.is_ascii_whitespace());
        let kept = written.starts_with(|c: char| c.is_ascii_digit()) && same(written);
        text(if kept { written.to_string() } else { shortest() })
    }

    fn arg(&mut self, arg: &Arg) -> Doc {
        let value = self.expr(&arg.value);
        match &arg.name {
            Some(name) => concat(vec![text(format!("{} = ", name.text)), value]),
            None => value,
        }
    }

    fn applied(&mut self, expr: &Expr, entries: &[Entry], end: u32) -> Doc {
        self.inline_entries(entries, (expr.span.start, end))
    }

    /// `(a, b)`, or one item per line with a comma after each. Comments in `range` belong to it;
    /// `starts` is where its items begin.
    pub(super) fn list<T>(
        &mut self,
        brackets: (&'static str, &'static str),
        range: (u32, u32),
        items: &[T],
        starts: &[u32],
        mut item: impl FnMut(&mut Self, &T) -> Doc,
    ) -> Doc {
        let end = range.1;
        let broken = self.has_comment(range) || self.on_new_line(starts.first().copied());
        let first = starts.first().copied().unwrap_or(end);
        self.level += 1;
        let mut inner = Vec::new();
        for (i, value) in items.iter().enumerate() {
            let last = i + 1 == items.len();
            let start = starts.get(i).copied().unwrap_or(end);
            inner.push(brk(if i == 0 { "" } else { " " }, start, i == 0));
            inner.push(item(self, value));
            inner.push(if last { if_broken(",") } else { text(",") });
            inner.push(trail(Upto::all(starts.get(i + 1).copied().unwrap_or(end))));
        }
        self.level -= 1;
        if items.is_empty() && !broken {
            return text(format!("{}{}", brackets.0, brackets.1));
        }
        let open = concat(vec![text(brackets.0), trail(Upto::all(first))]);
        let shut = close("", Upto::all(end));
        group_if(broken, vec![open, indent(inner), shut, text(brackets.1)])
    }
}

pub(super) fn arg_start(arg: &Arg) -> u32 {
    arg.name.as_ref().map_or(arg.value.span.start, |name| name.span.start)
}

/// The shortest text that still reads as a decimal.
fn decimal(value: Decimal) -> String {
    let text = value.to_string();
    if text.contains(['.', 'e']) { text } else { format!("{text}.0") }
}

/// `a, b`
pub(super) fn names(names: &[Name]) -> String {
    names.iter().map(|name| name.text.as_str()).collect::<Vec<_>>().join(", ")
}
