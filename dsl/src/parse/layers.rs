//! Layer lists and paths: both may begin with `layers`.
//!
//! The contents of the brackets, never the spaces, decide whether `layers [` opens a list or a selection.

use super::Parser;
use super::expr::Braces;
use crate::diag::syntax;
use crate::lex::{Keyword, TokenKind};
use crate::{LayerList, LayerWhat, Path, Segment, Select};

impl Parser<'_> {
    /// `24 of decoder {…}`, `[a, 2 of b, share c]`, `6 of [..]`, `share a` or `a`
    pub(super) fn layer_list(&mut self) -> Option<LayerList> {
        let start = self.span();
        if let Some(what) = self.layer_group()? {
            return Some(LayerList { count: None, what, span: self.since(start) });
        }
        let layer = self.expr(Braces::Apply)?;
        if !self.eat(TokenKind::Keyword(Keyword::Of)) {
            let what = LayerWhat::One { share: false, layer };
            return Some(LayerList { count: None, what, span: self.since(start) });
        }
        let tallest = self.height;
        let what = match self.layer_group()? {
            Some(what) => what,
            None => LayerWhat::One { share: false, layer: self.expr(Braces::Apply)? },
        };
        self.height = self.height.max(tallest);
        Some(LayerList { count: Some(layer), what, span: self.since(start) })
    }

    /// `[…]` or `share a`, if one of them begins here.
    #[expect(clippy::option_option, reason = "outer: reported; inner: there is neither here")]
    fn layer_group(&mut self) -> Option<Option<LayerWhat>> {
        if self.kind() == TokenKind::LBracket {
            let list = self.list(("`[`", "write `[a, b]`"), |p| p.layer_list())?;
            return Some(Some(LayerWhat::List(list)));
        }
        if self.eat(TokenKind::Keyword(Keyword::Share)) {
            let layer = self.expr(Braces::Apply)?;
            return Some(Some(LayerWhat::One { share: true, layer }));
        }
        Some(None)
    }

    /// Whether this `layers` begins a path: its brackets hold a selection.
    pub(super) fn at_selection(&self) -> bool {
        if !self.is_keyword(Keyword::Layers) || self.kind_at(1) != TokenKind::LBracket {
            return false;
        }
        let next = self.kind_at(3);
        match self.kind_at(2) {
            TokenKind::Star | TokenKind::Minus | TokenKind::RBracket => true,
            TokenKind::Int => matches!(next, TokenKind::RBracket | TokenKind::DotDot),
            TokenKind::Name if self.text_of(self.token(2)) == "every" => next == TokenKind::Int,
            _ if self.is_name(2) => {
                let mut ahead = 2;
                while self.kind_at(ahead + 1) == TokenKind::Dot && self.is_name(ahead + 2) {
                    ahead += 2;
                }
                self.text_of(self.token(ahead + 1)) == "is"
            }
            _ => false,
        }
    }

    /// `mixer.rope.dims`, `layers[every 4 from 3].mixer`
    pub(super) fn path(&mut self) -> Option<Path> {
        let start = self.span();
        let mut segments = Vec::new();
        if self.at_selection() {
            self.bump();
            let select = self.select()?;
            segments.push(Segment::Layers { select, span: self.since(start) });
        } else {
            segments.push(Segment::Name(self.name("a path")?));
        }
        while self.kind() == TokenKind::Dot {
            self.bump();
            // `layers.3`, or `layers.3.5`, where `3.5` reads as a decimal.
            if matches!(self.kind(), TokenKind::Int | TokenKind::Decimal) {
                let text = self.text_of(self.token(0));
                let index = text.split('.').next().unwrap_or(text).to_string();
                self.report(syntax::layers_by_dot(self.span(), &self.clipped(&index)));
                return None;
            }
            if self.is_keyword(Keyword::Layers) && self.kind_at(1) == TokenKind::LBracket {
                self.report(syntax::misplaced_layers(self.span()));
                return None;
            }
            segments.push(Segment::Name(self.name("a name after `.`")?));
        }
        Some(Path { segments, span: self.since(start) })
    }

    /// `[3]`, `[0..6]`, `[every 4 from 3]`, `[mixer is attention]` or `[*]`
    fn select(&mut self) -> Option<Select> {
        let opener = self.at;
        self.open.push(opener);
        self.bump();
        let start = self.span();
        let select = match self.kind() {
            TokenKind::Star => {
                self.bump();
                Select::All
            }
            TokenKind::Int => self.index_or_range()?,
            TokenKind::Name if self.kind_at(1) == TokenKind::Int => self.every()?,
            _ if self.is_name(0) => {
                let mut path = vec![self.name("a field")?];
                while self.eat(TokenKind::Dot) {
                    path.push(self.name("a name after `.`")?);
                }
                self.bump(); // `is`, which `at_selection` has checked
                Select::Is { path, def: self.name("the name of a definition")? }
            }
            _ => {
                let token = self.token_text();
                self.report(syntax::bad_selection(start, &token));
                return None;
            }
        };
        if self.kind() != TokenKind::RBracket {
            let token = self.token_text();
            self.report(syntax::bad_selection(self.span(), &token));
            return None;
        }
        self.bump();
        self.open.pop();
        Some(select)
    }

    fn index_or_range(&mut self) -> Option<Select> {
        let start = self.span();
        let first = self.integer("an index")?;
        if !self.eat(TokenKind::DotDot) {
            return Some(Select::Index(first));
        }
        if self.kind() != TokenKind::Int {
            let token = self.token_text();
            self.report(syntax::bad_selection(self.span(), &token));
            return None;
        }
        let end = self.integer("the end of the range")?;
        if first >= end {
            let reason = format!("{first}..{end} is empty");
            self.report(syntax::empty_selection(self.since(start), &reason));
        }
        Some(Select::Range(first, end))
    }

    fn every(&mut self) -> Option<Select> {
        let start = self.span();
        self.bump();
        let step = self.integer("a step")?;
        let from = match self.eat(TokenKind::Keyword(Keyword::From)) {
            true => self.integer("the number of the first layer")?,
            false => 0,
        };
        if step == 0 {
            self.report(syntax::empty_selection(self.since(start), "the step is 0"));
        }
        Some(Select::Every { step, from })
    }
}
