//! Tokens to the syntax tree, by hand-written recursive descent with recovery.
//!
//! After an error, parsing continues at the next entry, statement or definition, so that every independent error is reported.
//! It is linear apart from bounded lookahead, and recurses no deeper than `MAX_NESTING`.

#![expect(clippy::wildcard_enum_match_arm, reason = "a parser asks for few of many tokens")]

mod body;
mod entry;
mod expr;
mod item;
mod layers;
mod names;

use crate::diag::{Diagnostic, Diagnostics, syntax};
use crate::lex::{self, Keyword, Lexed, Token, TokenKind};
use crate::limits::{MAX_ERRORS, MAX_NESTING, MAX_SOURCE_BYTES};
use crate::{Ast, FileId, Name, Span};

/// Parses one file.
pub fn parse(file: FileId, text: &str) -> (Ast, Diagnostics) {
    if text.len() > MAX_SOURCE_BYTES {
        return (Ast::default(), vec![syntax::source_too_large(file, text.len())]);
    }
    let (lexed, diagnostics) = lex::lex(file, text);
    let Some(mut lexed) = lexed else {
        return (Ast::default(), diagnostics);
    };
    let comments = std::mem::take(&mut lexed.comments);
    let mut parser = Parser::new(file, text, &lexed, diagnostics);
    let mut ast = parser.file();
    ast.comments = comments;
    names::check(&ast, &mut parser.diagnostics);
    (ast, finish(parser.diagnostics))
}

/// Parses one file's bytes, which may not be UTF-8.
pub fn parse_bytes(file: FileId, bytes: &[u8]) -> (Ast, Diagnostics) {
    if bytes.len() > MAX_SOURCE_BYTES {
        return (Ast::default(), vec![syntax::source_too_large(file, bytes.len())]);
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => parse(file, text),
        Err(error) => {
            let (good, bad) = bytes.split_at(error.valid_up_to().min(bytes.len()));
            let line = 1 + good.iter().filter(|b| **b == b'\n').count();
            let byte = bad.first().copied().unwrap_or_default();
            (Ast::default(), vec![syntax::invalid_utf8(file, good.len(), line, byte)])
        }
    }
}

/// Sorts the errors by place and keeps as many as a person reads.
fn finish(mut diagnostics: Diagnostics) -> Diagnostics {
    diagnostics.sort_by_key(|d| d.labels.first().map(|label| label.span));
    // In a text of another language, the characters are not what is wrong.
    if diagnostics.iter().any(|d| d.code == "foreign-word") {
        diagnostics.retain(|d| d.message != "`:` is not used");
    }
    if diagnostics.len() > MAX_ERRORS {
        let next = diagnostics.get(MAX_ERRORS).and_then(|d| d.labels.first()).map(|l| l.span);
        diagnostics.truncate(MAX_ERRORS);
        diagnostics.extend(next.map(syntax::too_many_errors));
    }
    diagnostics
}

/// Each parsing function returns `None` after it reported an error; its caller decides where to continue.
struct Parser<'a> {
    file: FileId,
    text: &'a str,
    lexed: &'a Lexed,
    at: usize,
    /// Index of the first of `lexed.docs` that no definition has taken.
    doc: usize,
    /// The `(` and `[` open here, since the innermost `{`; inside them newlines do not matter.
    open: Vec<usize>,
    depth: usize,
    /// Height of the expression tree read last, or of the tallest one in the entries read last.
    height: usize,
    diagnostics: Diagnostics,
    /// Whether parsing stopped early, so that nothing can be reported as missing.
    stopped: bool,
}

impl<'a> Parser<'a> {
    fn new(file: FileId, text: &'a str, lexed: &'a Lexed, diagnostics: Diagnostics) -> Parser<'a> {
        Parser {
            file,
            text,
            lexed,
            at: 0,
            doc: 0,
            open: Vec::new(),
            depth: 0,
            height: 0,
            diagnostics,
            stopped: false,
        }
    }

    // --- lookahead ---

    fn token(&self, ahead: usize) -> Token {
        let tokens = &self.lexed.tokens;
        let last = Token { kind: TokenKind::End, start: 0, end: 0, newline_before: true };
        tokens.get(self.at + ahead).or(tokens.last()).copied().unwrap_or(last)
    }

    fn kind(&self) -> TokenKind {
        self.token(0).kind
    }

    fn kind_at(&self, ahead: usize) -> TokenKind {
        self.token(ahead).kind
    }

    fn is_keyword(&self, keyword: Keyword) -> bool {
        self.kind() == TokenKind::Keyword(keyword)
    }

    fn span_of(&self, token: Token) -> Span {
        Span { file: self.file, start: token.start, end: token.end }
    }

    fn span(&self) -> Span {
        self.span_of(self.token(0))
    }

    /// From `start` to the end of the last token read.
    fn since(&self, start: Span) -> Span {
        let before = self.at.checked_sub(1).and_then(|at| self.lexed.tokens.get(at));
        before.map_or(start, |token| start.to(self.span_of(*token)))
    }

    fn text_of(&self, token: Token) -> &'a str {
        self.text.get(token.start as usize..token.end as usize).unwrap_or("")
    }

    /// A token that can be a name: not a hard keyword.
    fn is_name(&self, ahead: usize) -> bool {
        match self.kind_at(ahead) {
            TokenKind::Name => true,
            TokenKind::Keyword(keyword) => keyword.is_soft(),
            _ => false,
        }
    }

    /// Whether the token continues the text before it: on the same line, or inside parentheses.
    fn joined(&self, ahead: usize) -> bool {
        !self.open.is_empty() || !self.token(ahead).newline_before
    }

    fn partner(&self, index: usize) -> Option<usize> {
        self.lexed.partners.get(index).copied().flatten().map(|at| at as usize)
    }

    /// The token's name in messages.
    fn token_text(&self) -> String {
        let token = self.token(0);
        match token.kind {
            TokenKind::End => "the end of the file".into(),
            TokenKind::Int | TokenKind::Decimal => {
                format!("the number `{}`", lex::clip(self.text_of(token)))
            }
            _ => format!("`{}`", lex::clip(self.text_of(token))),
        }
    }

    // --- moving ---

    fn bump(&mut self) {
        if self.at + 1 < self.lexed.tokens.len() {
            self.at += 1;
        }
    }

    fn eat(&mut self, kind: TokenKind) -> bool {
        let is_next = self.kind() == kind;
        if is_next {
            self.bump();
        }
        is_next
    }

    fn report(&mut self, diagnostic: Diagnostic) {
        if self.diagnostics.len() > MAX_ERRORS {
            return self.stop();
        }
        let start = |d: &Diagnostic| d.labels.first().map(|l| l.span.start);
        // A second error at the same place follows from the first.
        if self.diagnostics.last().is_none_or(|last| start(last) != start(&diagnostic)) {
            self.diagnostics.push(diagnostic);
        }
        if self.diagnostics.len() > MAX_ERRORS {
            self.stop();
        }
    }

    /// Stops parsing.
    fn stop(&mut self) {
        self.at = self.lexed.tokens.len().saturating_sub(1);
        self.stopped = true;
    }

    /// Reports that `what` was expected here.
    fn expected<T>(&mut self, what: &str, help: &str) -> Option<T> {
        let span = self.span();
        match self.kind() {
            // The lexer has reported it.
            TokenKind::Bad => {}
            TokenKind::String => self.report(syntax::string_outside_import(span)),
            TokenKind::Semicolon => self.report(syntax::stray_semicolon(span)),
            _ => {
                let token = self.token_text();
                self.report(syntax::expected(span, what, &token, help));
            }
        }
        None
    }

    fn expect(&mut self, kind: TokenKind, what: &str, help: &str) -> Option<()> {
        if self.eat(kind) { Some(()) } else { self.expected(what, help) }
    }

    fn expect_keyword(&mut self, keyword: Keyword) -> Option<()> {
        if self.eat(TokenKind::Keyword(keyword)) {
            return Some(());
        }
        if self.kind() != TokenKind::Bad {
            let token = self.token_text();
            self.report(syntax::expected_keyword(self.span(), keyword.word(), &token));
        }
        None
    }

    /// A name; messages call it `what`.
    fn name(&mut self, what: &str) -> Option<Name> {
        let token = self.token(0);
        if self.is_name(0) {
            self.bump();
            return Some(Name { text: self.text_of(token).to_string(), span: self.span_of(token) });
        }
        if let TokenKind::Keyword(keyword) = token.kind {
            self.report(syntax::reserved_word(self.span(), keyword.word()));
            return None;
        }
        self.expected(what, "names are made of A-Z a-z 0-9 and `_`, and do not begin with a digit")
    }

    // --- brackets ---

    /// Runs `inside` one level deeper.
    fn deeper<T>(&mut self, inside: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.depth >= MAX_NESTING {
            self.report(syntax::nesting_too_deep(self.span()));
            // No second error at this depth would help.
            self.stop();
            return None;
        }
        self.depth += 1;
        let result = inside(self);
        self.depth -= 1;
        result
    }

    /// `{ … }`: newlines count again inside. `inside` reads until [`Parser::at_close`] and always
    /// gets there.
    fn braces<T>(&mut self, inside: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let opener = self.span();
        self.expect(TokenKind::LBrace, "`{`", "write `{ … }`")?;
        let outer = std::mem::take(&mut self.open);
        let result = self.deeper(|p| Some(inside(p)));
        self.open = outer;
        if !self.eat(TokenKind::RBrace) && !self.stopped && result.is_some() {
            self.report(syntax::unclosed(opener, "{", "}", self.span()));
        }
        result
    }

    /// Whether the innermost `{ … }` ends here, or should have: if some `{` of the file has no
    /// partner, a definition at the very start of a line counts as the end.
    fn at_close(&self) -> bool {
        match self.kind() {
            TokenKind::RBrace | TokenKind::End => true,
            _ => self.lexed.unbalanced && self.at_line_start() && self.at_definition(),
        }
    }

    fn at_line_start(&self) -> bool {
        let start = self.token(0).start as usize;
        start == 0 || self.text.as_bytes().get(start - 1) == Some(&b'\n')
    }

    /// `( a, b, )` or `[ a, b, ]`, from its opening bracket. The height is that of the tallest item.
    fn list<T>(
        &mut self,
        (what, help): (&str, &str),
        mut item: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let opener = self.at;
        let (close, open_sign, close_sign) = match self.kind() {
            TokenKind::LParen => (TokenKind::RParen, "(", ")"),
            TokenKind::LBracket => (TokenKind::RBracket, "[", "]"),
            _ => return self.expected(what, help),
        };
        let opener_span = self.span();
        self.bump();
        self.open.push(opener);
        let (mut items, mut tallest) = (Vec::new(), 0);
        while self.kind() != close {
            let next = self.deeper(&mut item)?;
            items.push(next);
            tallest = tallest.max(self.height);
            if self.kind() == close || self.eat(TokenKind::Comma) {
                continue;
            }
            if self.partner(opener).is_none() {
                self.report(syntax::unclosed(opener_span, open_sign, close_sign, self.span()));
                return None;
            }
            let help = format!("write `,` between them, and `{close_sign}` after the last");
            return self.expected(&format!("`,` or `{close_sign}`"), &help);
        }
        self.bump();
        self.open.pop();
        self.height = tallest;
        Some(items)
    }

    // --- going on after an error ---

    /// Skips to where the next entry or statement of these braces can begin.
    fn recover(&mut self) {
        if let Some(close) = self.open.first().and_then(|open| self.partner(*open)) {
            self.at = self.at.max(close + 1);
        }
        self.open.clear();
        loop {
            match self.kind() {
                TokenKind::RBrace | TokenKind::End => return,
                TokenKind::Comma => return self.bump(),
                _ if self.at_close() => return,
                _ if self.token(0).newline_before => return,
                _ => self.skip(),
            }
        }
    }

    /// Skips this token and, if it opens a bracket, everything up to the closing one.
    fn skip(&mut self) {
        self.at = self.partner(self.at).unwrap_or(self.at);
        self.bump();
    }

    /// Ensures that a loop makes progress after its step failed at `before`.
    fn recover_from(&mut self, before: usize) {
        if self.at == before && !self.at_close() {
            self.skip();
        }
        self.recover();
    }
}
