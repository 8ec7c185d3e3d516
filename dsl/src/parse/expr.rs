//! Expressions, by the precedence table of `LANGUAGE.md`.
//!
//! A callee, its instance and its bracket are on one line; a binary operator is on the line where its left operand ends.

use super::Parser;
use crate::diag::syntax;
use crate::lex::{self, Keyword, TokenKind};
use crate::limits::MAX_EXPRESSION_HEIGHT;
use crate::{Arg, BinaryOp, Decimal, Expr, ExprKind, Span, UnaryOp};

/// Whether a `{` after a name belongs to that name; it does not in `if NAME {`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Braces {
    Apply,
    End,
}

/// Loosest first; `not` binds tighter than `and` and looser than the comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Or,
    And,
    Compare,
    Sum,
    Product,
}

impl Parser<'_> {
    pub(super) fn expr(&mut self, braces: Braces) -> Option<Expr> {
        self.binary(Level::Or, braces)
    }

    fn operator(&self, level: Level) -> Option<BinaryOp> {
        let op = match (level, self.kind()) {
            (Level::Or, TokenKind::Keyword(Keyword::Or)) => BinaryOp::Or,
            (Level::And, TokenKind::Keyword(Keyword::And)) => BinaryOp::And,
            (Level::Compare, TokenKind::EqEq) => BinaryOp::Eq,
            (Level::Compare, TokenKind::Ne) => BinaryOp::Ne,
            (Level::Compare, TokenKind::Lt) => BinaryOp::Lt,
            (Level::Compare, TokenKind::Le) => BinaryOp::Le,
            (Level::Compare, TokenKind::Gt) => BinaryOp::Gt,
            (Level::Compare, TokenKind::Ge) => BinaryOp::Ge,
            (Level::Sum, TokenKind::Plus) => BinaryOp::Add,
            (Level::Sum, TokenKind::Minus) => BinaryOp::Sub,
            (Level::Product, TokenKind::Star) => BinaryOp::Mul,
            (Level::Product, TokenKind::Slash) => BinaryOp::Div,
            _ => return None,
        };
        self.joined(0).then_some(op)
    }

    fn operand(&mut self, level: Level, braces: Braces) -> Option<Expr> {
        match level {
            Level::Or => self.binary(Level::And, braces),
            Level::And => self.negation(braces),
            Level::Compare => self.binary(Level::Sum, braces),
            Level::Sum => self.binary(Level::Product, braces),
            Level::Product => self.minus(braces),
        }
    }

    /// Chains are left-associative; comparisons do not chain.
    fn binary(&mut self, level: Level, braces: Braces) -> Option<Expr> {
        let start = self.span();
        let mut left = self.operand(level, braces)?;
        let mut height = self.height;
        let mut compared: Option<Span> = None;
        while let Some(op) = self.operator(level) {
            let sign = self.span();
            match compared {
                Some(first) => self.report(syntax::chained_comparison(sign, first)),
                None if level == Level::Compare => compared = Some(sign),
                None => {}
            }
            self.bump();
            let right = self.operand(level, braces)?;
            height = self.taller(height.max(self.height), sign)?;
            let kind = ExprKind::Binary(op, Box::new(left), Box::new(right));
            left = Expr { kind, span: self.since(start) };
        }
        self.height = height;
        Some(left)
    }

    /// `height` plus one, unless that exceeds the bound.
    fn taller(&mut self, height: usize, sign: Span) -> Option<usize> {
        if height >= MAX_EXPRESSION_HEIGHT {
            self.report(syntax::expression_too_tall(sign));
            return None;
        }
        Some(height + 1)
    }

    fn negation(&mut self, braces: Braces) -> Option<Expr> {
        if !self.is_keyword(Keyword::Not) {
            return self.binary(Level::Compare, braces);
        }
        self.unary(UnaryOp::Not, |p| p.negation(braces))
    }

    fn minus(&mut self, braces: Braces) -> Option<Expr> {
        if self.kind() != TokenKind::Minus {
            return self.primary(braces);
        }
        self.unary(UnaryOp::Neg, |p| p.minus(braces))
    }

    fn unary(
        &mut self,
        op: UnaryOp,
        operand: impl FnOnce(&mut Self) -> Option<Expr>,
    ) -> Option<Expr> {
        let start = self.span();
        self.bump();
        let operand = self.deeper(operand)?;
        self.height = self.taller(self.height, start)?;
        Some(Expr { kind: ExprKind::Unary(op, Box::new(operand)), span: self.since(start) })
    }

    fn primary(&mut self, braces: Braces) -> Option<Expr> {
        let start = self.span();
        let token = self.token(0);
        self.height = 1;
        let kind = match token.kind {
            TokenKind::Int => {
                self.bump();
                let digits = self.text_of(token).replace('_', "");
                ExprKind::Int(digits.parse().unwrap_or_else(|_| {
                    self.report(syntax::integer_too_large(start));
                    0
                }))
            }
            TokenKind::Decimal => {
                self.bump();
                ExprKind::Decimal(Decimal::parse(self.text_of(token)).unwrap_or_else(|_| {
                    self.report(syntax::decimal_too_large(start));
                    Decimal::ZERO
                }))
            }
            TokenKind::Keyword(Keyword::True) => {
                self.bump();
                ExprKind::Bool(true)
            }
            TokenKind::Keyword(Keyword::False) => {
                self.bump();
                ExprKind::Bool(false)
            }
            TokenKind::Keyword(Keyword::Slot) => self.slot()?,
            TokenKind::LParen => return self.parenthesised(),
            _ if self.is_name(0) => self.name_or_call(braces)?,
            TokenKind::Keyword(keyword) => {
                let word = keyword.word();
                if keyword == Keyword::Not {
                    return self.expected("a value", "put `not …` into parentheses");
                }
                self.report(syntax::reserved_word(start, word));
                return None;
            }
            _ => {
                return self.expected(
                    "a value",
                    "a value is a number, a name, a call `f(x)` or a definition `f { heads 8 }`",
                );
            }
        };
        Some(Expr { kind, span: self.since(start) })
    }

    /// The span includes the parentheses; the tree has no node for them.
    fn parenthesised(&mut self) -> Option<Expr> {
        let start = self.span();
        let opener = self.at;
        self.bump();
        self.open.push(opener);
        let mut inner = self.deeper(|p| p.expr(Braces::Apply))?;
        if self.kind() != TokenKind::RParen && self.partner(opener).is_none() {
            self.report(syntax::unclosed(start, "(", ")", self.span()));
            return None;
        }
        self.expect(TokenKind::RParen, "`)`", "write `)` after the value")?;
        self.open.pop();
        inner.span = self.since(start);
        Some(inner)
    }

    /// `slot B(q, k, v)`
    fn slot(&mut self) -> Option<ExprKind> {
        self.bump();
        let name = self.name("the name of a slot")?;
        let args = self.list(("`(`", "write `slot A(x)`"), |p| p.expr(Braces::Apply))?;
        self.height += 1;
        Some(ExprKind::Slot { name, args })
    }

    /// `NAME`, `NAME { … }`, `NAME (…)` or `NAME INSTANCE (…)`
    fn name_or_call(&mut self, braces: Braces) -> Option<ExprKind> {
        let name = self.name("a name")?;
        if self.kind() == TokenKind::LBrace && self.joined(0) && braces == Braces::Apply {
            let entries = self.entries()?;
            self.height += 1;
            return Some(ExprKind::Applied { def: name, entries });
        }
        let called = |p: &Self, ahead| p.kind_at(ahead) == TokenKind::LParen && p.joined(ahead);
        let instance = if self.is_name(0) && self.joined(0) && called(self, 1) {
            Some(self.name("the name of an instance")?)
        } else {
            None
        };
        if instance.is_none() && !called(self, 0) {
            return Some(ExprKind::Name(name.text));
        }
        let mut named: Option<Span> = None;
        let args = self.list(("`(`", "write `f(x)`"), |p| p.argument(&mut named))?;
        self.height += 1;
        Some(ExprKind::Call { callee: name, instance, args })
    }

    /// `value` or `name = value`
    fn argument(&mut self, named: &mut Option<Span>) -> Option<Arg> {
        let start = self.span();
        let name = if self.is_name(0) && self.kind_at(1) == TokenKind::Assign {
            let name = self.name("the name of an argument")?;
            self.bump();
            *named = Some(name.span);
            Some(name)
        } else {
            None
        };
        if let (None, Some(named)) = (&name, *named) {
            self.report(syntax::positional_after_named(start, named));
        }
        let value = self.expr(Braces::Apply)?;
        Some(Arg { name, value })
    }

    /// A token as a count or an index; an error if it does not fit.
    pub(super) fn integer(&mut self, what: &str) -> Option<u64> {
        let token = self.token(0);
        self.expect(TokenKind::Int, what, "write a number such as 3")?;
        match self.text_of(token).replace('_', "").parse::<i64>() {
            Ok(value) => Some(value.unsigned_abs()),
            Err(_) => {
                self.report(syntax::integer_too_large(self.span_of(token)));
                None
            }
        }
    }

    /// A name from the source, shortened for messages.
    pub(super) fn clipped(&self, text: &str) -> String {
        lex::clip(text)
    }
}
