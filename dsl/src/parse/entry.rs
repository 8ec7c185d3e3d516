//! Entries: the lines of an arch, a `with`, a definition's configuration or an init table.

use super::Parser;
use super::expr::Braces;
use crate::diag::{suggest, syntax};
use crate::lex::{Keyword, TokenKind};
use crate::{Entry, ExprKind, Path, Span};

/// Where the entries are. In an init table every line is `ROLE RULE`: `canon` and `layers` are ordinary roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Fields,
    Roles,
}

impl Parser<'_> {
    /// `{ entries }`; the height is that of the tallest.
    pub(super) fn entries(&mut self) -> Option<Vec<Entry>> {
        self.entries_of(Table::Fields)
    }

    pub(super) fn entries_of(&mut self, table: Table) -> Option<Vec<Entry>> {
        self.braces(|p| {
            let (mut entries, mut tallest) = (Vec::new(), 0);
            while !p.at_close() {
                let before = p.at;
                p.height = 0;
                match p.entry(table, entries.last()) {
                    Some(entry) => {
                        entries.push(entry);
                        p.eat(TokenKind::Comma);
                    }
                    None => p.recover_from(before),
                }
                tallest = tallest.max(p.height);
            }
            p.height = tallest;
            entries
        })
    }

    fn entry(&mut self, table: Table, last: Option<&Entry>) -> Option<Entry> {
        let start = self.span();
        if table == Table::Fields {
            match self.kind() {
                TokenKind::Keyword(Keyword::Fill) => return self.fill(start),
                TokenKind::Keyword(Keyword::Empty) => return self.empty(start),
                TokenKind::Keyword(Keyword::Canon) if self.is_name(1) => return self.canon(start),
                TokenKind::Keyword(Keyword::Layers) => {
                    let field = matches!(
                        self.kind_at(1),
                        TokenKind::Dot | TokenKind::Assign | TokenKind::LBrace
                    );
                    if !field && !self.at_selection() {
                        self.bump();
                        let value = self.layer_list()?;
                        if self.kind() == TokenKind::Dot {
                            let list = format!("`{}`", self.written(value.span));
                            self.report(syntax::bad_selection(value.span, &list));
                            return None;
                        }
                        return Some(Entry::Layers { value, span: self.since(start) });
                    }
                }
                _ => {}
            }
        }
        if !self.is_name(0) {
            return self.not_an_entry(last);
        }
        let path = self.path()?;
        match self.kind() {
            TokenKind::Assign => {
                self.bump();
                let value = self.expr(Braces::Apply)?;
                Some(Entry::Replace { path, value, span: self.since(start) })
            }
            TokenKind::LBrace if self.joined(0) => {
                let entries = self.entries()?;
                Some(Entry::Nested { path, entries, span: self.since(start) })
            }
            TokenKind::LBrace => self.not_an_entry(None),
            TokenKind::RBrace | TokenKind::Comma | TokenKind::End => {
                let written = self.written(path.span);
                self.report(syntax::missing_value(path.span, &written));
                None
            }
            _ => {
                let value = self.expr(Braces::Apply)?;
                Some(Entry::Set { path, value, span: self.since(start) })
            }
        }
    }

    /// `fill A, layers[0].B with canon { kernel 4 }`
    fn fill(&mut self, start: Span) -> Option<Entry> {
        self.bump();
        let slots = self.slots()?;
        self.expect_keyword(Keyword::With)?;
        let with = self.expr(Braces::Apply)?;
        Some(Entry::Fill { slots, with, span: self.since(start) })
    }

    /// `canon A, B { kernel 4 }`
    fn canon(&mut self, start: Span) -> Option<Entry> {
        self.bump();
        let slots = self.slots()?;
        let entries = if self.kind() == TokenKind::LBrace && self.joined(0) {
            Some(self.entries()?)
        } else {
            None
        };
        Some(Entry::Canon { slots, entries, span: self.since(start) })
    }

    /// `empty A, B`
    fn empty(&mut self, start: Span) -> Option<Entry> {
        self.bump();
        let slots = self.slots()?;
        Some(Entry::Empty { slots, span: self.since(start) })
    }

    /// Slot paths between commas; a comma at the end of a line separates entries instead.
    fn slots(&mut self) -> Option<Vec<Path>> {
        let mut slots = vec![self.path()?];
        while self.kind() == TokenKind::Comma
            && (self.is_name(1) || matches!(self.kind_at(1), TokenKind::Keyword(_)))
            && !self.token(1).newline_before
        {
            self.bump();
            slots.push(self.path()?);
        }
        Some(slots)
    }

    /// Reports why no entry begins here, from the entry before it.
    fn not_an_entry<T>(&mut self, last: Option<&Entry>) -> Option<T> {
        let span = self.span();
        let token = self.token_text();
        let first_of_line = self.token(0).newline_before;
        let sign = token.trim_matches('`').to_string();
        match self.kind() {
            TokenKind::LBrace | TokenKind::LParen | TokenKind::LBracket if first_of_line => {
                self.report(syntax::bracket_on_new_line(span, &sign));
                return None;
            }
            _ if first_of_line && self.at_operator() => {
                self.report(syntax::operator_on_new_line(span, &sign));
                return None;
            }
            TokenKind::RParen | TokenKind::RBracket => {
                self.report(syntax::unmatched(span, &sign));
                return None;
            }
            TokenKind::Bad | TokenKind::String | TokenKind::Semicolon => {}
            _ => match last {
                Some(Entry::Set { path, value, .. })
                    if matches!(value.kind, ExprKind::Name(_))
                        && self.lines_apart(path.span, value.span) =>
                {
                    let path = self.written(path.span);
                    self.report(syntax::value_on_new_line(span, &token, &path, value.span));
                    return None;
                }
                Some(
                    Entry::Fill { slots, .. }
                    | Entry::Canon { slots, .. }
                    | Entry::Empty { slots, .. },
                ) if !first_of_line && slots.len() > 1 => {
                    if let Some(slot) = slots.last() {
                        let name = self.written(slot.span);
                        self.report(syntax::entry_in_slot_list(span, &token, &name));
                    }
                    return None;
                }
                _ => {}
            },
        }
        if let TokenKind::Keyword(reserved) = self.kind() {
            // `fil A with …`, `layer 4 of …`: the misspelt keyword comes first.
            let wanted = match reserved {
                Keyword::With => "fill",
                Keyword::Of => "layers",
                _ => "",
            };
            if let Some(Entry::Set { path, .. }) = last
                && let word = self.written(path.span)
                && let Some(keyword) = suggest(&word, [wanted])
            {
                self.report(syntax::unknown_statement(path.span, &word, keyword));
                return None;
            }
            self.report(syntax::reserved_word(span, reserved.word()));
            return None;
        }
        self.expected("an entry", "an entry is a name and its value: `heads 8`, `rope { … }`")
    }

    /// Whether the next token is a binary operator.
    pub(super) fn at_operator(&self) -> bool {
        matches!(
            self.kind(),
            TokenKind::Plus
                | TokenKind::Minus
                | TokenKind::Star
                | TokenKind::Slash
                | TokenKind::EqEq
                | TokenKind::Ne
                | TokenKind::Lt
                | TokenKind::Le
                | TokenKind::Gt
                | TokenKind::Ge
                | TokenKind::Keyword(Keyword::And | Keyword::Or)
        )
    }

    fn lines_apart(&self, a: Span, b: Span) -> bool {
        self.text.get(a.end as usize..b.start as usize).is_some_and(|gap| gap.contains('\n'))
    }

    /// The text of a span, for messages.
    pub(super) fn written(&self, span: Span) -> String {
        let text = self.text.get(span.start as usize..span.end as usize).unwrap_or("");
        self.clipped(text.lines().next().unwrap_or(""))
    }
}
