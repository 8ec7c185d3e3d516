//! Text to tokens: the only file that knows nom.
//!
//! In: one file's text. Out: tokens with places, comments and docs, bracket partners, and errors.
//! Must stay true: total (every text has tokens), linear time, and never holds more than
//! `MAX_TOKENS` tokens or brackets nested deeper than `MAX_NESTING`.

#![expect(clippy::wildcard_enum_match_arm, reason = "a few of many tokens are brackets")]

use nom::branch::alt;
use nom::bytes::complete::{tag, take_till, take_until, take_while, take_while1};
use nom::character::complete::{anychar, char, one_of, satisfy};
use nom::combinator::{map, opt, recognize, rest, value, verify};
use nom::sequence::{pair, preceded, terminated};
use nom::{IResult, Parser};

use crate::diag::{Diagnostics, syntax};
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
    let mut out = Lexed::default();
    let mut diagnostics = Diagnostics::new();
    let mut open: Vec<(TokenKind, usize)> = Vec::new();
    let mut newline = true;
    let mut unclosed_comments = 0;
    // A byte order mark does not belong to the text.
    let mut input = text.strip_prefix('\u{feff}').unwrap_or(text);
    while let Ok((after, lexeme)) = lexeme(input) {
        let start = text.len() - input.len();
        let end = text.len() - after.len();
        let span = Span::new(file, start, end);
        let written = &input[..end - start];
        input = after;
        if diagnostics.len() > MAX_ERRORS {
            break;
        }
        if let Some((at, found)) = line_break(written, after) {
            let span = Span::new(file, start + at, start + at + found.len_utf8());
            return (None, vec![syntax::line_break(span, found)]);
        }
        let kind = match lexeme {
            Lexeme::Space => {
                newline |= written.contains('\n');
                continue;
            }
            Lexeme::Comment(words) => {
                let text = words.trim_end().to_string();
                out.comments.push(Comment { text, span, trailing: !newline, before_close: false });
                continue;
            }
            Lexeme::Doc(words) => {
                let text = words.strip_prefix(' ').unwrap_or(words).trim_end().to_string();
                out.docs.push(DocLine { before: out.tokens.len(), text, span });
                continue;
            }
            Lexeme::BlockComment => {
                newline |= written.contains('\n');
                diagnostics.push(syntax::block_comment(Span::new(file, start, start + 2)));
                continue;
            }
            Lexeme::Word => match Keyword::parse(written) {
                Some(keyword) => TokenKind::Keyword(keyword),
                None if written.len() > MAX_NAME_BYTES && written.is_ascii() => {
                    diagnostics.push(syntax::name_too_long(span, written.len()));
                    TokenKind::Bad
                }
                None if written.is_ascii() => TokenKind::Name,
                None => {
                    diagnostics.push(syntax::bad_character(span, &clip(written), ""));
                    TokenKind::Bad
                }
            },
            Lexeme::Number(tail) => number(written, tail).unwrap_or_else(|| {
                diagnostics.push(syntax::bad_number(span, &clip(written)));
                TokenKind::Bad
            }),
            Lexeme::String(closed) => {
                if !closed {
                    let quote = Span::new(file, start, start + 1);
                    diagnostics.push(syntax::unterminated_string(quote));
                }
                TokenKind::String
            }
            Lexeme::Sign(kind) => kind,
            Lexeme::Bad => {
                let line = text.get(..start).unwrap_or("").rsplit('\n').next().unwrap_or("");
                let word = line.split_whitespace().next().unwrap_or("");
                diagnostics.push(syntax::bad_character(span, &clip(written), word));
                TokenKind::Bad
            }
        };
        if out.tokens.len() >= MAX_TOKENS {
            return (None, vec![syntax::too_many_tokens(span)]);
        }
        let index = out.tokens.len();
        out.partners.push(None);
        match kind {
            TokenKind::LParen | TokenKind::LBracket | TokenKind::LBrace => {
                if open.len() >= MAX_NESTING {
                    return (None, vec![syntax::nesting_too_deep(span)]);
                }
                open.push((kind, index));
            }
            TokenKind::RParen | TokenKind::RBracket | TokenKind::RBrace => {
                out.unbalanced |= close(&mut open, kind, index, &mut out.partners);
            }
            _ => {}
        }
        if kind == TokenKind::RBrace {
            for comment in out.comments.iter_mut().skip(unclosed_comments) {
                comment.before_close = true;
            }
        }
        unclosed_comments = out.comments.len();
        let (start, end) = (start as u32, end as u32);
        out.tokens.push(Token { kind, start, end, newline_before: newline });
        newline = false;
    }
    out.unbalanced |= open.iter().any(|(kind, _)| *kind == TokenKind::LBrace);
    let end = text.len() as u32;
    out.tokens.push(Token { kind: TokenKind::End, start: end, end, newline_before: true });
    out.partners.push(None);
    (Some(out), diagnostics)
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
    let found = open
        .iter()
        .rev()
        .take_while(|(k, _)| *k == wanted || *k != TokenKind::LBrace)
        .position(|(k, _)| *k == wanted);
    let Some(back) = found else {
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
    let lonely = written.starts_with('_') || written.ends_with('_') || written.contains("__");
    let beside_point = written.contains("_.") || written.contains("._");
    let beside_exponent = written.contains("_e") || written.contains("_E");
    if !tail.is_empty() || lonely || beside_point || beside_exponent {
        return None;
    }
    let whole = written.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    Some(if whole { TokenKind::Int } else { TokenKind::Decimal })
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
