//! Evaluates expressions: exact numbers, words and definitions; tensors if the body computes. An inexact division may
//! be used by `floor`, `ceil_to`, a root or a tensor, never as a size or a field.

use std::cmp::Ordering;

use dsl::{BinaryOp, Expr, ExprKind, FileId, Name, Span, UnaryOp};

use super::frame::Frame;
use super::number::{as_root, exact, out_of_range};
use super::{Building, Elaborator, MAX_EVALUATIONS};
use crate::diag;
use crate::graph::Out;
use crate::number::{Ratio, Root};
use crate::op;
use crate::tree::Around;
use crate::tree::Value;

const ONE: Root = Root { radicand: Ratio { num: 1, den: 1 }, degree: 1 };
const MINUS_ONE: Root = Root { radicand: Ratio { num: -1, den: 1 }, degree: 1 };

impl Elaborator<'_> {
    /// A value written in an arch, or in a body that configures a definition.
    pub(super) fn eval_arch(
        &mut self,
        expr: &Expr,
        file: FileId,
        around: &Around,
    ) -> Option<Value> {
        let mut frame = self.arch_frame(file, around);
        self.eval(expr, &mut frame, &mut Building::default())
    }

    pub(super) fn eval(&mut self, expr: &Expr, f: &mut Frame, b: &mut Building) -> Option<Value> {
        self.step(expr.span)?;
        if self.evaluations >= MAX_EVALUATIONS {
            self.stopped = true;
            self.diagnostics.push(diag::expression_too_deep(expr.span, MAX_EVALUATIONS));
            return None;
        }
        self.evaluations += 1;
        let value = self.evaluate(expr, f, b);
        self.evaluations -= 1;
        if let Some(value) = &value {
            self.observe(expr.span, value, b);
        }
        value
    }

    fn evaluate(&mut self, expr: &Expr, f: &mut Frame, b: &mut Building) -> Option<Value> {
        match &expr.kind {
            ExprKind::Int(n) => Some(Value::Int(*n)),
            ExprKind::Decimal(d) => Some(d.to_int().map_or(Value::Decimal(*d), Value::Int)),
            ExprKind::Bool(v) => Some(Value::Bool(*v)),
            ExprKind::Name(name) => self.name(name, expr.span, f, b),
            ExprKind::Applied { .. } => Some(Value::Def(self.definition(expr, f)?, None)),
            ExprKind::Call { callee, instance, args } => {
                self.call(expr.span, callee, instance.as_ref(), args, f, b)
            }
            ExprKind::Slot { name, args } => self.slot(name, args, expr.span, f, b),
            ExprKind::Unary(op, inner) => {
                let value = self.eval(inner, f, b)?;
                self.unary(*op, value, expr.span, b)
            }
            ExprKind::Binary(..) => self.operators(expr, f, b),
        }
    }

    /// Operators, leftmost operand first: `a + b + c` nests no deeper than `a + b`.
    fn operators(&mut self, expr: &Expr, f: &mut Frame, b: &mut Building) -> Option<Value> {
        let mut spine = Vec::new();
        let mut leftmost = expr;
        while let ExprKind::Binary(op, left, right) = &leftmost.kind {
            spine.push((*op, left.span, right.as_ref(), leftmost.span));
            leftmost = left;
        }
        let mut value = self.eval(leftmost, f, b);
        for (op, left_span, right, span) in spine.into_iter().rev() {
            // Evaluate the right side anyway, so that its errors are reported.
            let right_value = self.eval(right, f, b);
            let (left_value, right_value) = (value?, right_value?);
            value = if matches!(op, BinaryOp::And | BinaryOp::Or) {
                let left = self.truth(left_value, left_span)?;
                let right = self.truth(right_value, right.span)?;
                let result = if op == BinaryOp::And { left && right } else { left || right };
                Some(Value::Bool(result))
            } else {
                self.binary(op, left_value, right_value, span, b)
            };
        }
        value
    }

    pub(super) fn boolean(&mut self, expr: &Expr, f: &mut Frame, b: &mut Building) -> Option<bool> {
        let value = self.eval(expr, f, b)?;
        self.truth(value, expr.span)
    }

    fn truth(&mut self, value: Value, span: Span) -> Option<bool> {
        match value {
            Value::Bool(v) => Some(v),
            other => {
                let got = other.describe();
                self.diagnostics.push(diag::wrong_kind(
                    span,
                    "this condition",
                    &got,
                    "true or false",
                ));
                None
            }
        }
    }

    /// Expects exactly one tensor.
    pub(super) fn tensor(&mut self, value: &Value, span: Span) -> Option<Out> {
        match value {
            Value::Tensors(outs) if outs.len() == 1 => outs.first().copied(),
            other => {
                let got = other.describe();
                self.diagnostics.push(diag::not_a_tensor(span, &got));
                None
            }
        }
    }

    fn unary(&mut self, op: UnaryOp, value: Value, span: Span, b: &mut Building) -> Option<Value> {
        match (op, &value) {
            (UnaryOp::Not, Value::Bool(v)) => Some(Value::Bool(!v)),
            (UnaryOp::Neg, Value::Tensors(_)) => self.scale(&value, MINUS_ONE, span, b),
            (UnaryOp::Neg, number) if number.as_ratio().is_some() => {
                number.as_ratio().map(|r| Value::of_ratio(r.neg(), span))
            }
            (UnaryOp::Neg, Value::Root(root)) => Some(Value::Root(root.neg())),
            (UnaryOp::Neg, number) if out_of_range(number) => self.too_wide(&number.text(), span),
            (UnaryOp::Not | UnaryOp::Neg, other) => {
                let (word, want) =
                    if op == UnaryOp::Not { ("not", "true or false") } else { ("-", "a number") };
                let got = other.describe();
                self.diagnostics.push(diag::wrong_kind(
                    span,
                    &format!("operand of `{word}`"),
                    &got,
                    want,
                ));
                None
            }
        }
    }

    /// Reports a number that exact arithmetic cannot represent.
    pub(super) fn too_wide(&mut self, what: &str, span: Span) -> Option<Value> {
        self.diagnostics.push(diag::out_of_range(span, what));
        None
    }

    fn scale(&mut self, tensor: &Value, by: Root, span: Span, b: &mut Building) -> Option<Value> {
        self.number_node("scale", tensor, by, span, b)
    }

    fn reciprocal(&mut self, tensor: &Value, span: Span, b: &mut Building) -> Option<Value> {
        let x = self.tensor(tensor, span)?;
        self.primitive_node("reciprocal", op::Attrs::new(), vec![x], span, b)
    }

    /// `scale` or `offset` by a number.
    fn number_node(
        &mut self,
        name: &str,
        tensor: &Value,
        by: Root,
        span: Span,
        b: &mut Building,
    ) -> Option<Value> {
        let x = self.tensor(tensor, span)?;
        let by = simplest(by, span);
        let Some(attr) = exact(&by) else { return self.too_wide(&by.text(), span) };
        let mut attrs = op::Attrs::new();
        attrs.insert("by", attr);
        self.primitive_node(name, attrs, vec![x], span, b)
    }

    fn binary(
        &mut self,
        op: BinaryOp,
        left: Value,
        right: Value,
        span: Span,
        b: &mut Building,
    ) -> Option<Value> {
        if let Some(number) = [&left, &right].into_iter().find(|value| out_of_range(value)) {
            return self.too_wide(&number.text(), span);
        }
        match (&left, &right) {
            (Value::Tensors(_), Value::Tensors(_)) => {
                return self.tensors_binary(op, &left, &right, span, b);
            }
            (Value::Tensors(_), number) => {
                return self.tensor_and_number(op, &left, number, span, b);
            }
            (number, Value::Tensors(_)) => {
                return self.number_and_tensor(op, number, &right, span, b);
            }
            _ => {}
        }
        if let Some(known) = comparison(op, &left, &right) {
            return Some(Value::Bool(known));
        }
        if left.as_ratio().is_some() && right.as_ratio().is_some() {
            return self.ratio_binary(op, &left, &right, span);
        }
        if let Some((x, y)) = as_root(&left).zip(as_root(&right))
            && matches!(op, BinaryOp::Mul | BinaryOp::Div)
        {
            if op == BinaryOp::Div && y.radicand.num == 0 {
                return self.division_by_zero(span);
            }
            let root = if op == BinaryOp::Mul { x.mul(y) } else { x.div(y) };
            return match root {
                Some(root) => Some(simplest(root, span)),
                None => self.too_wide(&shown(op, &left, &right), span),
            };
        }
        self.wrong_operands(op, &left, &right, span)
    }

    fn ratio_binary(
        &mut self,
        op: BinaryOp,
        left: &Value,
        right: &Value,
        span: Span,
    ) -> Option<Value> {
        let (x, y) = (left.as_ratio()?, right.as_ratio()?);
        let result = match op {
            BinaryOp::Add => x.add(y),
            BinaryOp::Sub => x.add(y.neg()),
            BinaryOp::Mul => x.mul(y),
            BinaryOp::Div if y.num == 0 => return self.division_by_zero(span),
            BinaryOp::Div => x.div(y),
            BinaryOp::Lt => return Some(Value::Bool(less(x, y))),
            BinaryOp::Gt => return Some(Value::Bool(less(y, x))),
            BinaryOp::Le => return Some(Value::Bool(!less(y, x))),
            BinaryOp::Ge => return Some(Value::Bool(!less(x, y))),
            BinaryOp::And | BinaryOp::Or | BinaryOp::Eq | BinaryOp::Ne => None,
        };
        match result {
            Some(r) if r.den != 1 || i64::try_from(r.num).is_ok() => Some(Value::of_ratio(r, span)),
            Some(_) => {
                self.diagnostics.push(diag::overflow(span, &shown(op, left, right)));
                None
            }
            None => self.too_wide(&shown(op, left, right), span),
        }
    }

    fn division_by_zero(&mut self, span: Span) -> Option<Value> {
        self.diagnostics.push(diag::division_by_zero(span));
        None
    }

    fn wrong_operands(
        &mut self,
        op: BinaryOp,
        left: &Value,
        right: &Value,
        span: Span,
    ) -> Option<Value> {
        let (left, right) = (left.describe(), right.describe());
        self.diagnostics.push(diag::operands(span, word(op), &left, &right));
        None
    }

    fn tensors_binary(
        &mut self,
        op: BinaryOp,
        left: &Value,
        right: &Value,
        span: Span,
        b: &mut Building,
    ) -> Option<Value> {
        let (name, right) = match op {
            BinaryOp::Add => ("add", right),
            BinaryOp::Mul => ("mul", right),
            BinaryOp::Sub => ("add", &self.scale(right, MINUS_ONE, span, b)?),
            BinaryOp::Div => ("mul", &self.reciprocal(right, span, b)?),
            _ => return self.wrong_operands(op, left, right, span),
        };
        let (x, y) = (self.tensor(left, span)?, self.tensor(right, span)?);
        self.primitive_node(name, op::Attrs::new(), vec![x, y], span, b)
    }

    fn tensor_and_number(
        &mut self,
        op: BinaryOp,
        tensor: &Value,
        number: &Value,
        span: Span,
        b: &mut Building,
    ) -> Option<Value> {
        match (op, as_root(number)) {
            (BinaryOp::Add, Some(by)) => self.number_node("offset", tensor, by, span, b),
            (BinaryOp::Sub, Some(by)) => self.number_node("offset", tensor, by.neg(), span, b),
            (BinaryOp::Mul, Some(by)) => self.scale(tensor, by, span, b),
            (BinaryOp::Div, Some(by)) if by.radicand.num == 0 => self.division_by_zero(span),
            (BinaryOp::Div, Some(by)) => match ONE.div(by) {
                Some(inverse) => self.scale(tensor, inverse, span, b),
                None => self.too_wide(&format!("1 / {}", number.text()), span),
            },
            _ => self.wrong_operands(op, tensor, number, span),
        }
    }

    fn number_and_tensor(
        &mut self,
        op: BinaryOp,
        number: &Value,
        tensor: &Value,
        span: Span,
        b: &mut Building,
    ) -> Option<Value> {
        match (op, as_root(number)) {
            (BinaryOp::Add, Some(by)) => self.number_node("offset", tensor, by, span, b),
            (BinaryOp::Sub, Some(by)) => {
                let minus = self.scale(tensor, MINUS_ONE, span, b)?;
                self.number_node("offset", &minus, by, span, b)
            }
            (BinaryOp::Mul, Some(by)) => self.scale(tensor, by, span, b),
            (BinaryOp::Div, Some(by)) => {
                let inverse = self.reciprocal(tensor, span, b)?;
                self.scale(&inverse, by, span, b)
            }
            _ => self.wrong_operands(op, number, tensor, span),
        }
    }

    /// `floor`, `ceil_to`, `sqrt`, `rsqrt`, `min`, `max`.
    pub(super) fn function(&mut self, callee: &Name, args: &[Value], span: Span) -> Option<Value> {
        if let Some(number) = args.iter().find(|value| out_of_range(value)) {
            return self.too_wide(&number.text(), span);
        }
        let ratios: Option<Vec<Ratio>> = args.iter().map(Value::as_ratio).collect();
        let result = match (callee.text.as_str(), args, ratios.as_deref()) {
            ("floor", _, Some([x])) => Ratio::new(x.floor(), 1).map(|r| Value::of_ratio(r, span)),
            ("ceil_to", _, Some([x, step])) if step.den == 1 && step.num > 0 => {
                let steps = x.div(*step).map(|q| -(q.neg().floor()));
                steps
                    .and_then(|n| n.checked_mul(step.num))
                    .and_then(|n| Ratio::new(n, 1))
                    .map(|r| Value::of_ratio(r, span))
            }
            ("min", _, Some([x, y])) => {
                Some(Value::of_ratio(if less(*y, *x) { *y } else { *x }, span))
            }
            ("max", _, Some([x, y])) => {
                Some(Value::of_ratio(if less(*x, *y) { *y } else { *x }, span))
            }
            ("sqrt", [x], _) => as_root(x).and_then(Root::sqrt).map(|r| simplest(r, span)),
            ("rsqrt", [x], _) => as_root(x)
                .filter(|r| r.radicand.num > 0)
                .and_then(Root::sqrt)
                .and_then(|r| ONE.div(r))
                .map(|r| simplest(r, span)),
            _ => None,
        };
        let fits = result.filter(|v| !matches!(v, Value::Ratio(r, _) if r.den == 1));
        if fits.is_none() {
            let got: Vec<String> = args.iter().map(Value::describe).collect();
            let want = match callee.text.as_str() {
                "floor" => "one number",
                "ceil_to" => "a number and a positive step",
                "sqrt" | "rsqrt" => "one number that has a root",
                _ => "two numbers",
            };
            let what = format!("argument of `{}`", callee.text);
            self.diagnostics.push(diag::wrong_kind(span, &what, &got.join(" and "), want));
        }
        fits
    }
}

fn simplest(root: Root, span: Span) -> Value {
    if root.degree == 1 { Value::of_ratio(root.radicand, span) } else { Value::Root(root) }
}

fn less(a: Ratio, b: Ratio) -> bool {
    a.compare(b) == Ordering::Less
}

fn comparison(op: BinaryOp, left: &Value, right: &Value) -> Option<bool> {
    let equal = match (left, right) {
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Word(a), Value::Word(b)) => a == b,
        (Value::Def(a, _), Value::Def(b, _)) => a.callee.same(&b.callee),
        // `window == none`: a number or a definition is not `none`.
        (Value::Word("none"), _) | (_, Value::Word("none")) => false,
        _ => left.as_ratio()? == right.as_ratio()?,
    };
    if op == BinaryOp::Eq { Some(equal) } else { (op == BinaryOp::Ne).then_some(!equal) }
}

fn shown(op: BinaryOp, left: &Value, right: &Value) -> String {
    format!("{} {} {}", left.text(), word(op), right.text())
}

fn word(op: BinaryOp) -> &'static str {
    match op {
        BinaryOp::Or => "or",
        BinaryOp::And => "and",
        BinaryOp::Eq => "==",
        BinaryOp::Ne => "!=",
        BinaryOp::Lt => "<",
        BinaryOp::Le => "<=",
        BinaryOp::Gt => ">",
        BinaryOp::Ge => ">=",
        BinaryOp::Add => "+",
        BinaryOp::Sub => "-",
        BinaryOp::Mul => "*",
        BinaryOp::Div => "/",
    }
}
