//! Bodies: statements, then the result. Only the last expression of a definition is its result; an `if` has none.

use super::Parser;
use super::expr::Braces;
use crate::diag::{advice_for, suggest, syntax};
use crate::lex::{Keyword, TokenKind};
use crate::{Body, Expr, ExprKind, Name, Statement};

impl Parser<'_> {
    /// `{ statements result }` of the definition `name`
    pub(super) fn body(&mut self, name: &Name) -> Option<Body> {
        let start = self.span();
        let errors = self.diagnostics.len();
        let (statements, result) = self.braces(|p| {
            let mut statements = Vec::new();
            while !p.at_close() {
                let before = p.at;
                if !p.at_value() {
                    match p.statement() {
                        Some(statement) => statements.push(statement),
                        None => p.recover_from(before),
                    }
                    continue;
                }
                let Some(values) = p.values() else {
                    p.recover_from(before);
                    continue;
                };
                if p.at_close() {
                    return (statements, values);
                }
                p.misplaced_value(&values, false);
            }
            (statements, Vec::new())
        })?;
        if result.is_empty() && self.diagnostics.len() == errors {
            self.report(syntax::missing_result(name.span, &name.text));
        }
        Some(Body { statements, result, span: self.since(start) })
    }

    /// The statements of an `if`.
    fn branch(&mut self) -> Option<Vec<Statement>> {
        self.braces(|p| {
            let mut statements = Vec::new();
            while !p.at_close() {
                let before = p.at;
                if !p.at_value() {
                    match p.statement() {
                        Some(statement) => statements.push(statement),
                        None => p.recover_from(before),
                    }
                    continue;
                }
                match p.values() {
                    Some(values) => p.misplaced_value(&values, true),
                    None => p.recover_from(before),
                }
            }
            statements
        })
    }

    /// Reports an expression that is neither bound to a name nor the result.
    fn misplaced_value(&mut self, values: &[Expr], in_if: bool) {
        let (Some(first), Some(last)) = (values.first(), values.last()) else { return };
        let span = first.span.to(last.span);
        if self.at_operator() && self.kind() != TokenKind::Minus {
            // The next line was meant to continue this one, and its report will say so.
            return;
        }
        if self.kind() == TokenKind::Semicolon {
            self.report(syntax::stray_semicolon(self.span()));
            return self.recover();
        }
        if let ExprKind::Applied { def, .. } = &first.kind
            && let Some(keyword) = suggest(&def.text, ["else"])
        {
            let error = syntax::unknown_statement(def.span, &def.text, keyword);
            self.report(error);
            return self.recover();
        }
        let before = self.text.get(..span.start as usize).unwrap_or("").trim_end_matches(' ');
        let sign = self.text.get(span.start as usize..span.start as usize + 1);
        let sign = sign.filter(|sign| matches!(*sign, "-" | "(") && before.ends_with('\n'));
        self.report(match in_if {
            true => syntax::value_in_if(span),
            false => syntax::unused_value(span, sign),
        });
        self.recover();
    }

    /// Whether an expression begins here, rather than a statement.
    fn at_value(&self) -> bool {
        if self.foreign().is_some() {
            return false;
        }
        match self.kind() {
            TokenKind::Keyword(Keyword::Slot | Keyword::Not | Keyword::True | Keyword::False)
            | TokenKind::Int
            | TokenKind::Decimal => true,
            TokenKind::LParen | TokenKind::Minus => true,
            _ => {
                self.is_name(0)
                    && !self.at_let()
                    && !self.at_carry()
                    && self.misspelt_statement().is_none()
            }
        }
    }

    /// `NAME =` or `NAME, NAME =`
    fn at_let(&self) -> bool {
        let mut ahead = 0;
        while self.is_name(ahead) {
            match self.kind_at(ahead + 1) {
                TokenKind::Assign => return true,
                TokenKind::Comma => ahead += 2,
                _ => return false,
            }
        }
        false
    }

    /// `carry NAME =`; elsewhere `carry` is a name like any other.
    fn at_carry(&self) -> bool {
        self.is_keyword(Keyword::Carry)
            && self.is_name(1)
            && self.joined(1)
            && self.kind_at(2) == TokenKind::Assign
    }

    /// `parm A [heads]`, `shared p = linear`, `iff a {`: two names where only a statement has two.
    fn misspelt_statement(&self) -> Option<&'static str> {
        if !self.is_name(1) || !self.joined(1) || self.at_carry() {
            return None;
        }
        let wanted = match self.kind_at(2) {
            TokenKind::LBracket => "param",
            TokenKind::Assign => "share",
            TokenKind::LBrace => "if",
            _ => return None,
        };
        suggest(self.text_of(self.token(0)), [wanted])
    }

    /// What to write instead of a word of another language that begins a statement: `return x`, `for i in …`. As a name,
    /// such a word is followed by other things.
    fn foreign(&self) -> Option<&'static str> {
        let advice = advice_for(self.text_of(self.token(0))).filter(|_| self.is_name(0))?;
        let is_value = matches!(
            self.kind_at(1),
            TokenKind::Int
                | TokenKind::Decimal
                | TokenKind::Keyword(Keyword::True | Keyword::False | Keyword::Not)
        );
        let begins = (self.is_name(1) || is_value) && self.joined(1);
        // `let y = x`, but not `norm a (x)` with a block of such a name.
        let binds = matches!(self.text_of(self.token(0)), "let" | "var" | "const");
        (begins && (!binds || self.kind_at(2) == TokenKind::Assign)).then_some(advice)
    }

    fn values(&mut self) -> Option<Vec<Expr>> {
        let mut values = vec![self.expr(Braces::Apply)?];
        while self.eat(TokenKind::Comma) {
            values.push(self.expr(Braces::Apply)?);
        }
        Some(values)
    }

    fn statement(&mut self) -> Option<Statement> {
        let span = self.span();
        let assigned = self.kind_at(1) == TokenKind::Assign;
        match self.kind() {
            TokenKind::Keyword(keyword) if assigned && !keyword.is_soft() => {
                self.report(syntax::reserved_word(span, keyword.word()));
                None
            }
            TokenKind::Keyword(Keyword::Param) => self.param(),
            TokenKind::Keyword(Keyword::Share) => self.share(),
            TokenKind::Keyword(Keyword::If) => self.if_statement(),
            _ if self.at_carry() => self.carry(),
            TokenKind::Keyword(Keyword::Else) => {
                self.report(syntax::else_without_if(span));
                None
            }
            _ if self.at_let() => self.let_statement(),
            _ => self.not_a_statement(),
        }
    }

    fn not_a_statement<T>(&mut self) -> Option<T> {
        let span = self.span();
        let token = self.token_text();
        let sign = token.trim_matches('`').to_string();
        if let Some(advice) = self.foreign() {
            self.report(syntax::foreign_word(span, &sign, advice));
            return None;
        }
        if let Some(keyword) = self.misspelt_statement() {
            self.report(syntax::unknown_statement(span, &sign, keyword));
            return None;
        }
        match self.kind() {
            _ if self.token(0).newline_before && self.at_operator() => {
                self.report(syntax::operator_on_new_line(span, &sign));
                None
            }
            TokenKind::LBrace | TokenKind::LBracket if self.token(0).newline_before => {
                self.report(syntax::bracket_on_new_line(span, &sign));
                None
            }
            TokenKind::RParen | TokenKind::RBracket => {
                self.report(syntax::unmatched(span, &sign));
                None
            }
            _ => self.expected(
                "a statement or the result",
                "a statement is `name = value`, `param …`, `share …`, `carry …` or `if …`",
            ),
        }
    }

    /// `a, b = expr`
    fn let_statement(&mut self) -> Option<Statement> {
        let start = self.span();
        let mut names = vec![self.name("a name")?];
        while self.eat(TokenKind::Comma) {
            names.push(self.name("a name")?);
        }
        self.expect(TokenKind::Assign, "`=`", "write `name = value`")?;
        if let Some(advice) = self.foreign() {
            let word = self.text_of(self.token(0)).to_owned();
            self.report(syntax::foreign_word(self.span(), &word, advice));
            return None;
        }
        let value = self.expr(Braces::Apply)?;
        Some(Statement::Let { names, value, span: self.since(start) })
    }

    /// `param A_log [heads] init log_uniform(1, 16)`
    fn param(&mut self) -> Option<Statement> {
        let start = self.span();
        self.bump();
        let name = self.name("the name of a parameter")?;
        if self.kind() != TokenKind::LBracket {
            return self.expected("its shape", "write `param NAME [heads, 4]`");
        }
        let dims = self.list(("`[`", "write `[heads, 4]`"), |p| p.expr(Braces::Apply))?;
        // On the next line, `init` may also be a name that begins a statement or the result.
        let assigned = self.kind_at(1) == TokenKind::Assign;
        let ruled = self.is_keyword(Keyword::Init) && !assigned;
        let init = if ruled && (self.joined(0) || self.is_name(1)) {
            self.bump();
            Some(self.expr(Braces::Apply)?)
        } else {
            None
        };
        Some(Statement::Param { name, dims, init, span: self.since(start) })
    }

    /// `share proj = linear { bias true }`
    fn share(&mut self) -> Option<Statement> {
        let start = self.span();
        self.bump();
        let name = self.name("the name of the shared instance")?;
        self.expect(TokenKind::Assign, "`=`", "write `share name = linear { … }`")?;
        let callee = self.name("the definition to share")?;
        let entries = if self.kind() == TokenKind::LBrace && self.joined(0) {
            Some(self.entries()?)
        } else {
            None
        };
        Some(Statement::Share { name, callee, entries, span: self.since(start) })
    }

    /// `carry v0 = v else { … }`
    fn carry(&mut self) -> Option<Statement> {
        let start = self.span();
        self.bump();
        let name = self.name("the name of the carried tensor")?;
        self.expect(TokenKind::Assign, "`=`", "write `carry name = value`")?;
        let value = self.expr(Braces::Apply)?;
        let otherwise = match self.eat(TokenKind::Keyword(Keyword::Else)) {
            true => self.branch()?,
            false => Vec::new(),
        };
        Some(Statement::Carry { name, value, otherwise, span: self.since(start) })
    }

    /// `if c { … } else if d { … } else { … }`
    fn if_statement(&mut self) -> Option<Statement> {
        let start = self.span();
        self.bump();
        let condition = self.expr(Braces::End)?;
        if self.kind() == TokenKind::Assign {
            self.report(syntax::assignment_in_condition(self.span()));
            return None;
        }
        if self.is_keyword(Keyword::Else) {
            // Python's `a if c else b`.
            self.report(syntax::value_in_if(self.since(start)));
            return None;
        }
        let then = self.branch()?;
        let mut otherwise = Vec::new();
        if self.eat(TokenKind::Keyword(Keyword::Else)) {
            otherwise = match self.is_keyword(Keyword::If) {
                true => vec![self.deeper(|p| p.if_statement())?],
                false => self.branch()?,
            };
        }
        Some(Statement::If { condition, then, otherwise, span: self.since(start) })
    }
}
