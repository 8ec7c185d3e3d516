//! Files: imports, then definitions. Every `///` line is either kept with a definition or reported.

use super::Parser;
use super::entry::Table;
use super::expr::Braces;
use crate::diag::{advice_for, suggest, syntax};
use crate::lex::{Keyword, TokenKind};
use crate::{
    Alias, Arch, ArchBody, Ast, ConfigParam, Def, DefKind, Import, ImportName, InitTable, Item,
    Name, Span,
};

const DEFINITION_WORDS: [&str; 7] = ["import", "block", "mixer", "mlp", "head", "init", "arch"];

impl Parser<'_> {
    pub(super) fn file(&mut self) -> Ast {
        let mut ast = Ast::default();
        let mut first: Option<Span> = None;
        while self.kind() != TokenKind::End {
            let (before, span) = (self.at, self.span());
            if self.is_keyword(Keyword::Import) {
                if let Some(first) = first {
                    self.report(syntax::late_import(span, first));
                }
                let import = self.import();
                self.after_item(before, import.is_some());
                ast.imports.extend(import);
                continue;
            }
            let item = self.item();
            if item.is_some() {
                first = first.or(Some(span));
            }
            self.after_item(before, item.is_some());
            ast.items.extend(item);
        }
        self.drop_docs();
        ast
    }

    /// Continues at the next definition if this one could not be read.
    fn after_item(&mut self, before: usize, complete: bool) {
        self.open.clear();
        if complete {
            return;
        }
        if self.at == before {
            self.skip();
        }
        while self.kind() != TokenKind::End {
            let at_start = if self.lexed.unbalanced {
                self.at_line_start()
            } else {
                self.token(0).newline_before
            };
            if at_start && self.at_definition() {
                return;
            }
            self.skip();
        }
    }

    /// Whether the tokens here can only be the beginning of a definition.
    pub(super) fn at_definition(&self) -> bool {
        let after = self.kind_at(2);
        match self.kind() {
            TokenKind::Keyword(Keyword::Import | Keyword::Arch) => self.is_name(1),
            TokenKind::Keyword(Keyword::Kind(_)) => {
                self.is_name(1) && matches!(after, TokenKind::LParen | TokenKind::Assign)
            }
            TokenKind::Keyword(Keyword::Init) => self.is_name(1) && after == TokenKind::LBrace,
            _ => false,
        }
    }

    /// The `///` lines directly before this token; earlier ones document nothing.
    fn docs(&mut self) -> Vec<String> {
        let mut docs = Vec::new();
        while let Some(line) = self.lexed.docs.get(self.doc).filter(|d| d.before <= self.at) {
            match line.before == self.at {
                true => docs.push(line.text.clone()),
                false => self.report(syntax::dangling_doc(line.span)),
            }
            self.doc += 1;
        }
        docs
    }

    fn drop_docs(&mut self) {
        while let Some(line) = self.lexed.docs.get(self.doc) {
            self.report(syntax::dangling_doc(line.span));
            self.doc += 1;
        }
    }

    /// `import a, b as c from "file.canon"`
    fn import(&mut self) -> Option<Import> {
        let start = self.span();
        self.bump();
        let mut names = Vec::new();
        loop {
            let name = self.name("a name to import")?;
            let alias = match self.eat(TokenKind::Keyword(Keyword::As)) {
                true => Some(self.name("another name")?),
                false => None,
            };
            names.push(ImportName { name, alias });
            if !self.eat(TokenKind::Comma) {
                break;
            }
        }
        self.expect_keyword(Keyword::From)?;
        let token = self.token(0);
        let path_span = self.span();
        if token.kind != TokenKind::String {
            return self.expected("the file", "write it in quotes: `from \"file.canon\"`");
        }
        self.bump();
        let path = self.text_of(token).trim_matches('"').to_string();
        if path.is_empty() || path.contains('\\') || path.chars().any(char::is_control) {
            self.report(syntax::bad_import_path(path_span));
        }
        Some(Import { names, path, path_span, span: self.since(start) })
    }

    fn item(&mut self) -> Option<Item> {
        let docs = self.docs();
        let start = self.span();
        match self.kind() {
            TokenKind::Keyword(Keyword::Kind(kind)) => self.def_or_alias(docs, start, kind),
            TokenKind::Keyword(Keyword::Init) => self.init_table(docs, start).map(Item::Init),
            TokenKind::Keyword(Keyword::Arch) => self.arch(docs, start).map(Item::Arch),
            TokenKind::RBrace | TokenKind::RParen | TokenKind::RBracket => {
                let sign = self.token_text().trim_matches('`').to_string();
                self.report(syntax::unmatched(start, &sign));
                None
            }
            TokenKind::Name | TokenKind::Keyword(_) => {
                let word = self.text_of(self.token(0));
                if let Some(advice) = advice_for(word) {
                    self.report(syntax::foreign_word(start, word, advice));
                    return None;
                }
                let suggestion = suggest(word, DEFINITION_WORDS);
                self.report(syntax::unknown_definition(start, &self.clipped(word), suggestion));
                // `blok decoder(x) { … }`: continue, to find more errors.
                match suggestion.and_then(Keyword::parse) {
                    Some(Keyword::Kind(kind)) if self.is_name(1) => {
                        self.def_or_alias(docs, start, kind)
                    }
                    Some(Keyword::Arch) if self.is_name(1) => {
                        self.arch(docs, start).map(Item::Arch)
                    }
                    _ => None,
                }
            }
            _ => self.expected(
                "a definition",
                "begin with `block`, `mixer`, `mlp`, `head`, `init` or `arch`",
            ),
        }
    }

    /// `mixer NAME(x; config) { body }` or `mixer NAME = other { entries }`
    fn def_or_alias(&mut self, docs: Vec<String>, start: Span, kind: DefKind) -> Option<Item> {
        self.bump();
        let name = self.name("the name of the definition")?;
        match self.kind() {
            TokenKind::Assign => {
                self.bump();
                let value = self.expr(Braces::Apply)?;
                Some(Item::Alias(Alias { docs, kind, name, value, span: self.since(start) }))
            }
            TokenKind::LBrace => {
                let error = syntax::missing_tensors(self.span(), kind.word(), &name.text);
                self.report(error);
                None
            }
            _ => {
                let (tensors, config) = self.signature()?;
                let body = self.body(&name)?;
                let span = self.since(start);
                Some(Item::Def(Def { docs, kind, name, tensors, config, body, span }))
            }
        }
    }

    /// `(x, y; a, b = default)`
    fn signature(&mut self) -> Option<(Vec<Name>, Vec<ConfigParam>)> {
        let (mut tensors, mut config) = (Vec::new(), Vec::new());
        let (opener, opener_span) = (self.at, self.span());
        self.expect(TokenKind::LParen, "`(`", "write the tensors it takes: `(x)`")?;
        self.open.push(opener);
        while self.is_name(0) {
            tensors.push(self.name("a tensor")?);
            if !self.eat(TokenKind::Comma) {
                break;
            }
        }
        if self.eat(TokenKind::Semicolon) {
            while self.kind() != TokenKind::RParen {
                let name = self.name("a configuration name")?;
                let default = match self.eat(TokenKind::Assign) {
                    true => Some(self.expr(Braces::Apply)?),
                    false => None,
                };
                config.push(ConfigParam { name, default });
                if !self.eat(TokenKind::Comma) {
                    break;
                }
            }
        }
        if self.kind() == TokenKind::RParen {
            self.bump();
            self.open.pop();
            return Some((tensors, config));
        }
        if self.partner(opener).is_none() {
            self.report(syntax::unclosed(opener_span, "(", ")", self.span()));
            return None;
        }
        if let TokenKind::Keyword(keyword) = self.kind() {
            self.report(syntax::reserved_word(self.span(), keyword.word()));
            return None;
        }
        self.expected("`,`, `;` or `)`", "write `(x, y; heads, dim = 8)`")
    }

    /// `init NAME { role rule }`
    fn init_table(&mut self, docs: Vec<String>, start: Span) -> Option<InitTable> {
        self.bump();
        let name = self.name("the name of the init table")?;
        let entries = self.entries_of(Table::Roles)?;
        Some(InitTable { docs, name, entries, span: self.since(start) })
    }

    /// `arch NAME { entries }` or `arch NAME = BASE with { edits }`
    fn arch(&mut self, docs: Vec<String>, start: Span) -> Option<Arch> {
        self.bump();
        let name = self.name("the name of the arch")?;
        let body = if self.eat(TokenKind::Assign) {
            let base = self.name("the arch it is made from")?;
            if self.kind() == TokenKind::LBrace {
                let error = syntax::missing_with(self.span(), &name.text, &base.text);
                self.report(error);
            } else {
                self.expect_keyword(Keyword::With)?;
            }
            ArchBody::With { base, edits: self.entries()? }
        } else {
            ArchBody::Fields(self.entries()?)
        };
        Some(Arch { docs, name, body, span: self.since(start) })
    }
}
