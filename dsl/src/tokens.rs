//! The tokens of a file, for editors: highlighting, completion, grammars.
//!
//! The classes are those of the lexer, so an editor never colours a word as a keyword that the parser does not treat as one.

use crate::FileId;
use crate::lex::{self, KEYWORDS, Keyword, TokenKind};
use crate::limits::MAX_SOURCE_BYTES;

/// The class of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TokenClass {
    /// A word that can only be a keyword.
    Reserved,
    /// A keyword where the grammar expects one, and elsewhere a name.
    Soft,
    /// A name.
    Name,
    /// An integer or a decimal.
    Number,
    /// The name of a file, with its quotes.
    Text,
    /// An operator, a bracket or another sign.
    Sign,
    /// A `//` comment.
    Comment,
    /// A `///` line.
    Doc,
    /// Something that the lexer refuses.
    Bad,
}

/// A token of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextToken {
    /// Its class.
    pub class: TokenClass,
    /// Offset of the first byte.
    pub start: usize,
    /// Offset after the last byte.
    pub end: usize,
    /// Whether a line ended after the token before it.
    pub newline_before: bool,
}

/// The tokens and comments of a text, in order; none of a text that exceeds a bound of the language.
pub fn tokens(text: &str) -> Vec<TextToken> {
    if text.len() > MAX_SOURCE_BYTES {
        return Vec::new();
    }
    let (Some(lexed), _) = lex::lex(FileId(0), text) else { return Vec::new() };
    let signs = lexed.tokens.iter().filter(|token| token.kind != TokenKind::End);
    let mut all: Vec<TextToken> = signs
        .map(|token| TextToken {
            class: class(token.kind),
            start: token.start as usize,
            end: token.end as usize,
            newline_before: token.newline_before,
        })
        .collect();
    let comments = lexed.comments.iter().map(|comment| (TokenClass::Comment, comment.span));
    let docs = lexed.docs.iter().map(|doc| (TokenClass::Doc, doc.span));
    all.extend(comments.chain(docs).map(|(class, span)| TextToken {
        class,
        start: span.start as usize,
        end: span.end as usize,
        newline_before: false,
    }));
    all.sort_by_key(|token| token.start);
    all
}

fn class(kind: TokenKind) -> TokenClass {
    match kind {
        TokenKind::Keyword(keyword) if keyword.is_soft() => TokenClass::Soft,
        TokenKind::Keyword(_) => TokenClass::Reserved,
        TokenKind::Name => TokenClass::Name,
        TokenKind::Int | TokenKind::Decimal => TokenClass::Number,
        TokenKind::String => TokenClass::Text,
        TokenKind::Bad => TokenClass::Bad,
        TokenKind::LParen
        | TokenKind::RParen
        | TokenKind::LBracket
        | TokenKind::RBracket
        | TokenKind::LBrace
        | TokenKind::RBrace
        | TokenKind::Comma
        | TokenKind::Semicolon
        | TokenKind::Dot
        | TokenKind::DotDot
        | TokenKind::Assign
        | TokenKind::EqEq
        | TokenKind::Ne
        | TokenKind::Lt
        | TokenKind::Le
        | TokenKind::Gt
        | TokenKind::Ge
        | TokenKind::Plus
        | TokenKind::Minus
        | TokenKind::Star
        | TokenKind::Slash
        | TokenKind::End => TokenClass::Sign,
    }
}

/// The role of a keyword, which grammars of editors colour alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WordRole {
    /// Begins a definition or an import, or belongs to one: `arch`, `from`.
    Definition,
    /// Begins a statement or an entry: `param`, `layers`, `if`.
    Statement,
    /// `and`, `or`, `not`.
    Operator,
    /// `true`, `false`.
    Constant,
}

/// The keywords of the language in the order of the lexer, each with its role and whether it is also a name.
pub fn keywords() -> impl Iterator<Item = (&'static str, WordRole, bool)> {
    KEYWORDS.iter().map(|(word, keyword)| (*word, role(*keyword), keyword.is_soft()))
}

fn role(keyword: Keyword) -> WordRole {
    match keyword {
        Keyword::Import
        | Keyword::From
        | Keyword::As
        | Keyword::Kind(_)
        | Keyword::Init
        | Keyword::Arch
        | Keyword::With => WordRole::Definition,
        Keyword::Param
        | Keyword::Share
        | Keyword::Carry
        | Keyword::If
        | Keyword::Else
        | Keyword::Slot
        | Keyword::Layers
        | Keyword::Of
        | Keyword::Fill
        | Keyword::Canon
        | Keyword::Empty => WordRole::Statement,
        Keyword::And | Keyword::Or | Keyword::Not => WordRole::Operator,
        Keyword::True | Keyword::False => WordRole::Constant,
    }
}
