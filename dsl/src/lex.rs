//! Text to tokens, in linear time; every text has tokens. The only file that knows nom.

#![expect(clippy::wildcard_enum_match_arm, reason = "a few of many tokens are brackets")]

use nom::branch::alt;
use nom::bytes::complete::{tag, take_till, take_until, take_while, take_while1};
use nom::character::complete::{anychar, char, one_of, satisfy};
use nom::combinator::{map, opt, recognize, rest, value, verify};
use nom::sequence::{pair, preceded, terminated};
use nom::{IResult, Parser};

use crate::diag::{Diagnostic, Diagnostics, syntax};
use crate::limits::{MAX_ERRORS, MAX_NAME_BYTES, MAX_NESTING, MAX_TOKENS};
use crate::{Comment, DefKind, FileId, Span};

/// The reserved words. [`Keyword::is_soft`] ones are ordinary names wherever the grammar does not
/// want a keyword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keyword {
    Import,
    From,
    As,
    Kind(DefKind),
    Init,
    Arch,
    With,
    Param,
    Share,
    Carry,
    If,
    Else,
    Slot,
    Layers,
    Of,
    Fill,
    Canon,
    Empty,
    True,
    False,
    And,
    Or,
    Not,
}

pub(crate) const KEYWORDS: [(&str, Keyword); 26] = [
    ("import", Keyword::Import),
    ("from", Keyword::From),
    ("as", Keyword::As),
    ("block", Keyword::Kind(DefKind::Block)),
    ("mixer", Keyword::Kind(DefKind::Mixer)),
    ("mlp", Keyword::Kind(DefKind::Mlp)),
    ("head", Keyword::Kind(DefKind::Head)),
    ("init", Keyword::Init),
    ("arch", Keyword::Arch),
    ("with", Keyword::With),
    ("param", Keyword::Param),
    ("share", Keyword::Share),
    ("carry", Keyword::Carry),
    ("if", Keyword::If),
    ("else", Keyword::Else),
    ("slot", Keyword::Slot),
    ("layers", Keyword::Layers),
    ("of", Keyword::Of),
    ("fill", Keyword::Fill),
    ("canon", Keyword::Canon),
    ("empty", Keyword::Empty),
    ("true", Keyword::True),
    ("false", Keyword::False),
    ("and", Keyword::And),
    ("or", Keyword::Or),
    ("not", Keyword::Not),
];

impl Keyword {
    pub(crate) fn parse(word: &str) -> Option<Keyword> {
        KEYWORDS.iter().find(|(w, _)| *w == word).map(|(_, keyword)| *keyword)
    }

    pub(crate) fn word(self) -> &'static str {
        KEYWORDS.iter().find(|(_, k)| *k == self).map_or("", |(word, _)| word)
    }

    /// Whether the keyword can also name a field, a parameter or a callee.
    pub(crate) fn is_soft(self) -> bool {
        matches!(
            self,
            Keyword::Kind(_) | Keyword::Init | Keyword::Layers | Keyword::Canon | Keyword::Carry
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Name,
    Keyword(Keyword),
    Int,
    Decimal,
    String,
    LParen,
    RParen,
    LBracket,
    RBracket,
    LBrace,
    RBrace,
    Comma,
    Semicolon,
    Dot,
    DotDot,
    Assign,
    EqEq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Plus,
    Minus,
    Star,
    Slash,
    /// Already reported; the parser says nothing more about it.
    Bad,
    End,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// Whether a line ended after the previous token.
    pub(crate) newline_before: bool,
}

/// One `///` line and the token that follows it.
#[derive(Clone, Debug)]
pub(crate) struct DocLine {
    pub(crate) before: usize,
    pub(crate) text: String,
    pub(crate) span: Span,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Lexed {
    /// Ends with [`TokenKind::End`].
    pub(crate) tokens: Vec<Token>,
    pub(crate) docs: Vec<DocLine>,
    pub(crate) comments: Vec<Comment>,
    /// For each opening bracket, the index of its closing one.
    pub(crate) partners: Vec<Option<u32>>,
    /// Whether some `{` has no `}`.
    pub(crate) unbalanced: bool,
}

/// `None` if the text exceeds a bound; the only diagnostic then names the bound.
pub(crate) fn lex(file: FileId, text: &str) -> (Option<Lexed>, Diagnostics) {
    let mut lexer = Lexer {
        file,
        text,
        out: Lexed::default(),
        diagnostics: Diagnostics::new(),
        open: Vec::new(),
        newline: true,
        unclosed_comments: 0,
    };
    match lexer.read() {
        Ok(()) => (Some(lexer.out), lexer.diagnostics),
        Err(exceeded) => (None, vec![*exceeded]),
    }
}

struct Lexer<'a> {
    file: FileId,
    text: &'a str,
    out: Lexed,
    diagnostics: Diagnostics,
    /// Brackets that are open here, with the indices of their tokens.
    open: Vec<(TokenKind, usize)>,
    /// Whether a line ended since the last token.
    newline: bool,
    /// The number of comments before the last token.
    unclosed_comments: usize,
}

impl Lexer<'_> {
    fn read(&mut self) -> Result<(), Box<Diagnostic>> {
        // A byte order mark does not belong to the text.
        let mut input = self.text.strip_prefix('\u{feff}').unwrap_or(self.text);
        while let Ok((after, lexeme)) = lexeme(input) {
            let start = self.text.len() - input.len();
            let written = &input[..input.len() - after.len()];
            input = after;
            if self.diagnostics.len() > MAX_ERRORS {
                break;
            }
            if let Some((at, character)) = line_break(written, after) {
                let span = self.span(start + at, character.len_utf8());
                return Err(Box::new(syntax::line_break(span, character)));
            }
            let span = self.span(start, written.len());
            if !self.is_between_tokens(&lexeme, written, span) {
                let kind = self.kind(lexeme, written, span);
                self.push(kind, span)?;
            }
        }
        self.out.unbalanced |= self.open.iter().any(|(kind, _)| *kind == TokenKind::LBrace);
        let end = self.text.len() as u32;
        let last = Token { kind: TokenKind::End, start: end, end, newline_before: true };
        self.out.tokens.push(last);
        self.out.partners.push(None);
        Ok(())
    }

    fn span(&self, start: usize, length: usize) -> Span {
        Span::new(self.file, start, start + length)
    }

    /// Keeps a comment or a doc. Returns whether the lexeme is no token.
    fn is_between_tokens(&mut self, lexeme: &Lexeme<'_>, written: &str, span: Span) -> bool {
        match lexeme {
            Lexeme::Space => self.newline |= written.contains('\n'),
            Lexeme::Comment(words) => {
                let text = words.trim_end().to_string();
                let trailing = !self.newline;
                self.out.comments.push(Comment { text, span, trailing, before_close: false });
            }
            Lexeme::Doc(words) => {
                let text = words.strip_prefix(' ').unwrap_or(words).trim_end().to_string();
                self.out.docs.push(DocLine { before: self.out.tokens.len(), text, span });
            }
            Lexeme::BlockComment => {
                self.newline |= written.contains('\n');
                let opener = Span { end: span.start + 2, ..span };
                self.diagnostics.push(syntax::block_comment(opener));
            }
            Lexeme::Word
            | Lexeme::Number(_)
            | Lexeme::String(_)
            | Lexeme::Sign(_)
            | Lexeme::Bad => return false,
        }
        true
    }

    /// The kind of a token; one that is wrong is reported.
    fn kind(&mut self, lexeme: Lexeme<'_>, written: &str, span: Span) -> TokenKind {
        let error = match lexeme {
            Lexeme::Word => match Keyword::parse(written) {
                Some(keyword) => return TokenKind::Keyword(keyword),
                None if !written.is_ascii() => syntax::bad_character(span, &clip(written), ""),
                None if written.len() > MAX_NAME_BYTES => {
                    syntax::name_too_long(span, written.len())
                }
                None => return TokenKind::Name,
            },
            Lexeme::Number(tail) => match number(written, tail) {
                Some(kind) => return kind,
                None => syntax::bad_number(span, &clip(written)),
            },
            Lexeme::String(closed) => {
                if !closed {
                    let quote = Span { end: span.start + 1, ..span };
                    self.diagnostics.push(syntax::unterminated_string(quote));
                }
                return TokenKind::String;
            }
            Lexeme::Sign(kind) => return kind,
            Lexeme::Space
            | Lexeme::Comment(_)
            | Lexeme::Doc(_)
            | Lexeme::BlockComment
            | Lexeme::Bad => {
                let before = self.text.get(..span.start as usize).unwrap_or("");
                let line = before.rsplit('\n').next().unwrap_or("");
                let word = line.split_whitespace().next().unwrap_or("");
                syntax::bad_character(span, &clip(written), word)
            }
        };
        self.diagnostics.push(error);
        TokenKind::Bad
    }

    fn push(&mut self, kind: TokenKind, span: Span) -> Result<(), Box<Diagnostic>> {
        let index = self.out.tokens.len();
        if index >= MAX_TOKENS {
            return Err(Box::new(syntax::too_many_tokens(span)));
        }
        self.out.partners.push(None);
        match kind {
            TokenKind::LParen | TokenKind::LBracket | TokenKind::LBrace => {
                if self.open.len() >= MAX_NESTING {
                    return Err(Box::new(syntax::nesting_too_deep(span)));
                }
                self.open.push((kind, index));
            }
            TokenKind::RParen | TokenKind::RBracket | TokenKind::RBrace => {
                let unpaired = close(&mut self.open, kind, index, &mut self.out.partners);
                self.out.unbalanced |= unpaired;
            }
            _ => {}
        }
        if kind == TokenKind::RBrace {
            for comment in self.out.comments.iter_mut().skip(self.unclosed_comments) {
                comment.before_close = true;
            }
        }
        self.unclosed_comments = self.out.comments.len();
        let Span { start, end, .. } = span;
        self.out.tokens.push(Token { kind, start, end, newline_before: self.newline });
        self.newline = false;
        Ok(())
    }
}

/// Pairs a closing bracket with the nearest opening one of its kind inside the innermost braces,
/// and drops the unclosed brackets between them. Returns whether braces were left unpaired.
fn close(
    open: &mut Vec<(TokenKind, usize)>,
    kind: TokenKind,
    index: usize,
    partners: &mut [Option<u32>],
) -> bool {
    let wanted = match kind {
        TokenKind::RParen => TokenKind::LParen,
        TokenKind::RBracket => TokenKind::LBracket,
        _ => TokenKind::LBrace,
    };
    // A `)` never closes a `(` from before a `{`: a missing `}` is likelier than a missing `)`.
    let position = open
        .iter()
        .rev()
        .take_while(|(k, _)| *k == wanted || *k != TokenKind::LBrace)
        .position(|(k, _)| *k == wanted);
    let Some(back) = position else {
        return kind == TokenKind::RBrace;
    };
    let at = open.len() - 1 - back;
    if let Some((_, opener)) = open.get(at)
        && let Some(partner) = partners.get_mut(*opener)
    {
        *partner = Some(index as u32);
    }
    open.truncate(at);
    false
}

/// A word shortened for messages.
pub(crate) fn clip(word: &str) -> String {
    match word.char_indices().nth(40) {
        Some((at, _)) => format!("{}…", &word[..at]),
        None => word.to_string(),
    }
}

/// The number that the digits spell, if they do: `_` is allowed only between digits.
fn number(written: &str, tail: &str) -> Option<TokenKind> {
    let misplaced = written.starts_with('_') || written.ends_with('_') || written.contains("__");
    let beside_point = written.contains("_.") || written.contains("._");
    let beside_exponent = written.contains("_e") || written.contains("_E");
    if !tail.is_empty() || misplaced || beside_point || beside_exponent {
        return None;
    }
    let is_integer = written.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    Some(if is_integer { TokenKind::Int } else { TokenKind::Decimal })
}

/// A first guess at a piece of text, before a closer look.
#[derive(Clone, Copy)]
enum Lexeme<'a> {
    Space,
    Comment(&'a str),
    Doc(&'a str),
    BlockComment,
    Word,
    /// Digits, with any letters that follow them directly.
    Number(&'a str),
    /// Whether the closing quote was found.
    String(bool),
    Sign(TokenKind),
    Bad,
}

type Piece<'a, T> = IResult<&'a str, T, ()>;

fn lexeme(input: &str) -> Piece<'_, Lexeme<'_>> {
    alt((
        value(Lexeme::Space, take_while1(|c: char| c.is_ascii_whitespace())),
        map(preceded(tag("//"), take_till(|c| c == '\n')), comment),
        value(
            Lexeme::BlockComment,
            pair(tag("/*"), alt((terminated(take_until("*/"), tag("*/")), rest))),
        ),
        value(Lexeme::Word, pair(satisfy(|c| c.is_alphabetic() || c == '_'), word_tail)),
        map(preceded(digits, pair(decimal_tail, word_tail)), |(_, tail)| Lexeme::Number(tail)),
        map(
            preceded(char('"'), pair(take_till(|c| c == '"' || c == '\n'), opt(char('"')))),
            |(_, quote)| Lexeme::String(quote.is_some()),
        ),
        map(alt((long_sign, short_sign)), Lexeme::Sign),
        value(Lexeme::Bad, bad),
    ))
    .parse(input)
}

/// The first character that ends a line in some editors but not in this language. What such an editor shows as the next
/// line would still be part of the comment.
fn line_break(written: &str, after: &str) -> Option<(usize, char)> {
    let breaks = |(at, c): &(usize, char)| match c {
        '\r' => {
            let rest = written.get(at + 1..).unwrap_or_default();
            !(if rest.is_empty() { after } else { rest }).starts_with('\n')
        }
        '\u{b}' | '\u{85}' | '\u{2028}' | '\u{2029}' => true,
        _ => false,
    };
    written.char_indices().find(breaks)
}

/// `///` is documentation; `//` and `////…` are comments.
fn comment(words: &str) -> Lexeme<'_> {
    match words.strip_prefix('/') {
        Some(rest) if !rest.starts_with('/') => Lexeme::Doc(rest),
        _ => Lexeme::Comment(words),
    }
}

fn word_tail(input: &str) -> Piece<'_, &str> {
    take_while(|c: char| c.is_alphanumeric() || c == '_').parse(input)
}

fn digits(input: &str) -> Piece<'_, &str> {
    recognize(pair(
        satisfy(|c| c.is_ascii_digit()),
        take_while(|c: char| c.is_ascii_digit() || c == '_'),
    ))
    .parse(input)
}

/// `.5`, `e-3`, `.5e3` or nothing; `..` belongs to a range.
fn decimal_tail(input: &str) -> Piece<'_, &str> {
    let exponent = |input| {
        recognize((one_of("eE"), opt(one_of("+-")), take_while1(|c: char| c.is_ascii_digit())))
            .parse(input)
    };
    recognize(pair(opt(preceded(char('.'), digits)), opt(exponent))).parse(input)
}

fn long_sign(input: &str) -> Piece<'_, TokenKind> {
    alt((
        value(TokenKind::EqEq, tag("==")),
        value(TokenKind::Ne, tag("!=")),
        value(TokenKind::Le, tag("<=")),
        value(TokenKind::Ge, tag(">=")),
        value(TokenKind::DotDot, tag("..")),
    ))
    .parse(input)
}

fn short_sign(input: &str) -> Piece<'_, TokenKind> {
    let (after, sign) = anychar(input)?;
    let kind = match sign {
        '(' => TokenKind::LParen,
        ')' => TokenKind::RParen,
        '[' => TokenKind::LBracket,
        ']' => TokenKind::RBracket,
        '{' => TokenKind::LBrace,
        '}' => TokenKind::RBrace,
        ',' => TokenKind::Comma,
        ';' => TokenKind::Semicolon,
        '.' => TokenKind::Dot,
        '=' => TokenKind::Assign,
        '<' => TokenKind::Lt,
        '>' => TokenKind::Gt,
        '+' => TokenKind::Plus,
        '-' => TokenKind::Minus,
        '*' => TokenKind::Star,
        '/' => TokenKind::Slash,
        _ => return Err(nom::Err::Error(())),
    };
    Ok((after, kind))
}

/// A run of one unknown sign (`&&`), or of foreign characters: one report for all of them.
fn bad(input: &str) -> Piece<'_, &str> {
    let foreign = |c: char| !c.is_ascii() && !c.is_alphanumeric();
    let (_, first) = anychar(input)?;
    verify(take_while1(move |c: char| c == first || (foreign(first) && foreign(c))), |s: &str| {
        !s.is_empty()
    })
    .parse(input)
}
