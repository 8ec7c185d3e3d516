//! The words that the grammar wants at the cursor of a text that is being typed.
//!
//! Only the tokens before the cursor are read, never the tree, so an unfinished text is as good as a finished one.

use dsl::{TextToken, TokenClass, tokens};

use crate::index::Holder;

/// What the grammar wants at the cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A definition or an import.
    Definition,
    /// An arch, after `arch NAME =`.
    Base,
    /// A name to import, from this file if it is known.
    Import(Option<String>),
    /// The path of a file; what is written of it.
    Path(String),
    /// The name of a setting: of this holder, below this path; the names that are set already.
    Key(Holder, Vec<String>, Vec<String>),
    /// The value of a setting.
    Value(Holder, Vec<String>),
    /// A row of an init table.
    Role,
    /// A slot of an arch.
    Slot(Holder),
    /// A value in a body: an argument of this callee, if it is one.
    Expression(Option<String>),
    /// A statement in a body.
    Statement,
    /// A name that is not known yet, a comment, a number.
    Nothing,
}

/// The cursor in a text.
#[derive(Clone, Debug)]
pub(crate) struct Cursor {
    /// What the grammar wants.
    pub(crate) wanted: Wanted,
    /// The first byte of the word being typed.
    pub(crate) start: usize,
    /// The names bound in the body around it, before it.
    pub(crate) locals: Vec<String>,
}

/// Braces or parentheses around the cursor.
#[derive(Clone, Debug)]
enum Frame {
    /// The file itself.
    File,
    /// The signature of a definition; whether `;` has been read.
    Signature(bool),
    /// Statements.
    Body,
    /// Settings of a holder, below a path.
    Entries(Holder, Vec<String>, EntryState, Vec<String>),
    /// Rows of an init table.
    Roles(EntryState),
    /// Arguments of a callee.
    Call(Option<String>),
    /// A list of layers, or the selection of some.
    List(bool),
}

/// How far an entry has been read.
#[derive(Clone, Debug, PartialEq, Eq)]
enum EntryState {
    Key,
    /// A path; whether its last token is a dot.
    Path(Vec<String>, bool),
    /// A value is wanted for this path.
    Value(Vec<String>),
    /// A value has been read; the definition that it names.
    Done(Vec<String>, Option<String>),
    /// Slots; after `fill` or `empty`, or after `canon`.
    Slots(bool),
}

/// The cursor at a byte of a text.
pub(crate) fn cursor(text: &str, offset: usize) -> Cursor {
    let nowhere = |start| Cursor { wanted: Wanted::Nothing, start, locals: Vec::new() };
    let all = tokens(text);
    let inside = all.iter().find(|token| token.start < offset && offset <= token.end);
    let mut start = offset;
    match inside.map(|token| token.class) {
        Some(TokenClass::Comment | TokenClass::Doc) => return nowhere(offset),
        Some(TokenClass::Number | TokenClass::Bad) => return nowhere(offset),
        Some(TokenClass::Text) => {
            let quote = inside.map_or(offset, |token| token.start);
            let written = text.get(quote + 1..offset).unwrap_or("").to_owned();
            return Cursor { wanted: Wanted::Path(written), start: quote + 1, locals: Vec::new() };
        }
        Some(TokenClass::Reserved | TokenClass::Soft | TokenClass::Name) => {
            start = inside.map_or(offset, |token| token.start);
        }
        Some(TokenClass::Sign) | None => {}
    }
    let mut reader = CursorReader {
        text,
        frames: vec![Frame::File],
        before: Vec::new(),
        locals: Vec::new(),
        after: &all,
        offset,
    };
    let code = all.iter().filter(|t| !matches!(t.class, TokenClass::Comment | TokenClass::Doc));
    for token in code.take_while(|token| token.end <= start) {
        reader.read(*token);
    }
    let newline = text.get(..start).unwrap_or("").trim_end_matches([' ', '\t']).ends_with('\n');
    let wanted = reader.wanted(newline);
    Cursor { wanted, start, locals: reader.locals }
}

struct CursorReader<'t> {
    text: &'t str,
    frames: Vec<Frame>,
    /// The tokens of the definition so far.
    before: Vec<TextToken>,
    locals: Vec<String>,
    after: &'t [TextToken],
    offset: usize,
}

impl<'t> CursorReader<'t> {
    fn written(&self, token: TextToken) -> &'t str {
        self.text.get(token.start..token.end).unwrap_or("")
    }

    /// The word `back` tokens ago; empty if it is no word.
    fn word(&self, back: usize) -> &'t str {
        let at = self.before.len().checked_sub(back);
        let token = at.and_then(|at| self.before.get(at)).copied();
        token.filter(|token| is_word(token.class)).map_or("", |token| self.written(token))
    }

    fn sign(&self, back: usize) -> &'t str {
        let at = self.before.len().checked_sub(back);
        at.and_then(|at| self.before.get(at)).map_or("", |token| self.written(*token))
    }

    fn read(&mut self, token: TextToken) {
        let written = self.written(token);
        // A definition at the beginning of a line: what is before it was not finished.
        let begins = token.newline_before
            && (token.start == 0 || self.text[..token.start].ends_with('\n'))
            && ["block", "mixer", "mlp", "head", "init", "arch", "import"].contains(&written);
        if begins {
            self.frames = vec![Frame::File];
            self.before.clear();
            self.locals.clear();
        }
        match written {
            "{" => self.open_brace(token),
            "(" => self.open_paren(),
            "[" => {
                let selects =
                    self.word(1) == "layers" && !matches!(self.frames.last(), Some(Frame::List(_)));
                self.frames.push(Frame::List(!selects));
            }
            "}" | ")" | "]" => self.close(written),
            _ => self.token(token, written),
        }
        self.before.push(token);
    }

    fn token(&mut self, token: TextToken, written: &str) {
        let word = is_word(token.class);
        match self.frames.last_mut() {
            Some(Frame::Signature(settings)) => {
                if written == ";" {
                    *settings = true;
                } else if word && matches!(self.sign(1), "(" | "," | ";") {
                    self.locals.push(written.to_owned());
                }
            }
            Some(Frame::Body) => {
                if written == "=" {
                    self.bind();
                } else if word && ["param", "share"].contains(&self.word(1)) {
                    self.locals.push(written.to_owned());
                }
            }
            Some(Frame::Entries(_, _, entry, set)) => {
                let next = step(entry.clone(), token, written, word);
                if let (EntryState::Path(path, _), EntryState::Value(_) | EntryState::Done(..)) =
                    (&*entry, &next)
                    && let [only] = path.as_slice()
                {
                    set.push(only.clone());
                }
                *entry = next;
            }
            Some(Frame::Roles(entry)) => *entry = step(entry.clone(), token, written, word),
            Some(Frame::File | Frame::Call(_) | Frame::List(_)) | None => {}
        }
    }

    /// The names before `=` in a body: `a, b =`.
    fn bind(&mut self) {
        let mut back = 1;
        while !self.word(back).is_empty() {
            self.locals.push(self.word(back).to_owned());
            if self.sign(back + 1) != "," {
                break;
            }
            back += 2;
        }
    }

    fn open_paren(&mut self) {
        let frame = match self.frames.last() {
            Some(Frame::File) => Frame::Signature(false),
            Some(_) | None => {
                // `callee (` or `callee instance (`.
                let (last, first) = (self.word(1), self.word(2));
                let joined = {
                    let at = self.before.len().checked_sub(1);
                    at.and_then(|at| self.before.get(at)).is_some_and(|t| !t.newline_before)
                };
                let keyword = |word: &str| {
                    dsl::keywords().any(|(known, _, is_name)| known == word && !is_name)
                };
                let callee = match (last, first) {
                    ("", _) => None,
                    (_, first) if !first.is_empty() && joined && !keyword(first) => Some(first),
                    (last, _) => Some(last),
                };
                Frame::Call(callee.filter(|word| !keyword(word)).map(str::to_owned))
            }
        };
        self.frames.push(frame);
    }

    fn open_brace(&mut self, token: TextToken) {
        let last = self.word(1).to_owned();
        let definition = || Holder::Definition(last.clone());
        let entries =
            |holder, path| Frame::Entries(holder, path, EntryState::Key, Vec::<String>::new());
        let frame = match self.frames.last() {
            Some(Frame::File) => {
                let first = self.before.first().map_or("", |token| self.written(*token));
                let name = self.before.get(1).map_or("", |token| self.written(*token));
                match (first, self.sign(1)) {
                    ("arch", _) => entries(Holder::Arch(name.to_owned()), Vec::new()),
                    ("init", _) if self.before.len() <= 2 => Frame::Roles(EntryState::Key),
                    (_, ")") => Frame::Body,
                    _ => entries(definition(), Vec::new()),
                }
            }
            Some(Frame::Body) => {
                // `share p = linear {`, against `if x {` and `else {`.
                let line = self.before.iter().rev().take_while(|t| !t.newline_before).count();
                let start = self.before.len().saturating_sub(line + 1);
                let begins = self.before.get(start).map_or("", |token| self.written(*token));
                let is_branch = self.word(1) == "else"
                    || ["if", "}"].contains(&begins)
                    || self.before.iter().rev().take(12).any(|t| self.written(*t) == "if")
                        && begins != "share";
                match is_branch || last.is_empty() {
                    true => Frame::Body,
                    false => entries(definition(), Vec::new()),
                }
            }
            Some(Frame::Entries(holder, above, entry, _)) => match entry {
                EntryState::Path(path, _) if !token.newline_before => {
                    let below: Vec<String> = above.iter().chain(path).cloned().collect();
                    match (holder, below.as_slice()) {
                        (Holder::Arch(_), [init]) if init == "init" => {
                            Frame::Roles(EntryState::Key)
                        }
                        _ => entries(holder.clone(), below),
                    }
                }
                EntryState::Slots(_) => entries(Holder::Definition("canon".to_owned()), Vec::new()),
                EntryState::Done(_, Some(name)) => {
                    entries(Holder::Definition(name.clone()), Vec::new())
                }
                EntryState::Key
                | EntryState::Path(..)
                | EntryState::Value(_)
                | EntryState::Done(_, None) => entries(definition(), Vec::new()),
            },
            Some(Frame::Signature(_) | Frame::Call(_) | Frame::List(_)) => {
                entries(definition(), Vec::new())
            }
            Some(Frame::Roles(_)) | None => Frame::Roles(EntryState::Key),
        };
        self.frames.push(frame);
    }

    fn close(&mut self, sign: &str) {
        let fits = |frame: &Frame| match frame {
            Frame::File => false,
            Frame::Signature(_) | Frame::Call(_) => sign == ")",
            Frame::Body | Frame::Entries(..) | Frame::Roles(_) => sign == "}",
            Frame::List(_) => sign == "]",
        };
        let Some(at) = self.frames.iter().rposition(fits) else { return };
        let closed = self.frames.get(at).cloned();
        self.frames.truncate(at);
        if let Some(Frame::Entries(_, _, entry, _) | Frame::Roles(entry)) = self.frames.last_mut() {
            *entry = match (closed, &*entry) {
                (Some(Frame::Call(_)), EntryState::Value(path) | EntryState::Done(path, _)) => {
                    EntryState::Done(path.clone(), None)
                }
                // `layers[3]` is part of a path.
                (Some(Frame::List(false)), _) => EntryState::Path(Vec::new(), false),
                _ => EntryState::Key,
            };
        }
    }

    fn wanted(&self, newline: bool) -> Wanted {
        let first = self.before.first().map_or("", |token| self.written(*token));
        match self.frames.last() {
            Some(Frame::File) | None => match (first, self.sign(1)) {
                ("", _) | (_, "}") => Wanted::Definition,
                ("import", "import" | ",") => Wanted::Import(self.imported()),
                ("import", sign) if sign.starts_with('"') => Wanted::Definition,
                ("import", _) => Wanted::Nothing,
                ("arch", "=") => Wanted::Base,
                (_, "=") => Wanted::Expression(None),
                _ if newline => Wanted::Definition,
                _ => Wanted::Nothing,
            },
            Some(Frame::Signature(settings)) => match (settings, self.sign(1)) {
                (true, "=") => Wanted::Expression(None),
                (true, sign) if ["+", "-", "*", "/"].contains(&sign) => Wanted::Expression(None),
                _ => Wanted::Nothing,
            },
            Some(Frame::Body) => match self.sign(1) {
                "param" | "share" | "carry" | "slot" => Wanted::Nothing,
                "=" | "+" | "-" | "*" | "/" | "if" | "and" | "or" | "not" | "<" | ">" | "<="
                | ">=" | "==" | "!=" => Wanted::Expression(None),
                _ => Wanted::Statement,
            },
            Some(Frame::Call(callee)) => Wanted::Expression(callee.clone()),
            Some(Frame::List(true)) => Wanted::Value(Holder::Unknown, vec!["layers".to_owned()]),
            Some(Frame::List(false)) => Wanted::Nothing,
            Some(Frame::Roles(entry)) => match entry {
                EntryState::Key | EntryState::Done(..) => Wanted::Role,
                EntryState::Path(..) | EntryState::Value(_) => Wanted::Expression(None),
                EntryState::Slots(_) => Wanted::Nothing,
            },
            Some(Frame::Entries(holder, above, entry, set)) => {
                let below = |path: &[String]| above.iter().chain(path).cloned().collect();
                match entry {
                    EntryState::Key | EntryState::Done(..) => {
                        Wanted::Key(holder.clone(), above.clone(), set.clone())
                    }
                    EntryState::Path(path, true) => {
                        Wanted::Key(holder.clone(), below(path), Vec::new())
                    }
                    // On a new line the value may have been left out.
                    EntryState::Path(path, false) | EntryState::Value(path) => {
                        Wanted::Value(holder.clone(), below(path))
                    }
                    EntryState::Slots(_) => match self.sign(1) {
                        "fill" | "canon" | "empty" | "," | "." => Wanted::Slot(holder.clone()),
                        _ => Wanted::Key(holder.clone(), above.clone(), set.clone()),
                    },
                }
            }
        }
    }

    /// The file that the import at the cursor names after it.
    fn imported(&self) -> Option<String> {
        let later = self.after.iter().skip_while(|token| token.start < self.offset);
        let text = later
            .take(40)
            .find(|token| token.class == TokenClass::Text || self.written(**token) == "import")?;
        let written = self.written(*text);
        written.strip_prefix('"').map(|path| path.trim_end_matches('"').to_owned())
    }
}

/// The state of an entry after one more token.
fn step(entry: EntryState, token: TextToken, written: &str, word: bool) -> EntryState {
    match (entry, written) {
        (EntryState::Key, "fill" | "empty") => EntryState::Slots(false),
        (EntryState::Key, "canon") => EntryState::Slots(true),
        (EntryState::Key, ",") => EntryState::Key,
        (EntryState::Key, "layers") => EntryState::Value(vec!["layers".to_owned()]),
        (EntryState::Key, _) if word => EntryState::Path(vec![written.to_owned()], false),
        (EntryState::Key, _) => EntryState::Key,
        (EntryState::Path(path, _), ".") => EntryState::Path(path, true),
        (EntryState::Path(mut path, true), _) if word => {
            path.push(written.to_owned());
            EntryState::Path(path, false)
        }
        (EntryState::Path(path, _), "=") => EntryState::Value(path),
        (EntryState::Path(path, _) | EntryState::Value(path), "-" | "not" | "of" | "share") => {
            EntryState::Value(path)
        }
        (EntryState::Path(path, _) | EntryState::Value(path), _) => {
            EntryState::Done(path, word.then(|| written.to_owned()))
        }
        (EntryState::Done(path, _), "of" | "share") => EntryState::Value(path),
        (EntryState::Done(path, _), "+" | "-" | "*" | "/" | "and" | "or") => {
            EntryState::Value(path)
        }
        (EntryState::Done(..), ",") => EntryState::Key,
        (EntryState::Done(..), "fill" | "empty") => EntryState::Slots(false),
        (EntryState::Done(..), "canon") => EntryState::Slots(true),
        (EntryState::Done(..), "layers") => EntryState::Value(vec!["layers".to_owned()]),
        (EntryState::Done(..), _) if word => EntryState::Path(vec![written.to_owned()], false),
        (EntryState::Done(path, name), _) => EntryState::Done(path, name),
        (EntryState::Slots(_), "with") => EntryState::Value(vec!["with".to_owned()]),
        (EntryState::Slots(_), _) if word && token.newline_before => {
            EntryState::Path(vec![written.to_owned()], false)
        }
        (EntryState::Slots(canon), _) => EntryState::Slots(canon),
    }
}

fn is_word(class: TokenClass) -> bool {
    matches!(class, TokenClass::Name | TokenClass::Soft | TokenClass::Reserved)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cursor at `|`.
    fn at(text: &str) -> Cursor {
        let offset = text.find('|').unwrap();
        cursor(&text.replacen('|', "", 1), offset)
    }

    fn key(holder: Holder, path: &[&str]) -> (Holder, Vec<String>) {
        (holder, path.iter().map(|name| (*name).to_owned()).collect())
    }

    fn keys(text: &str) -> (Holder, Vec<String>) {
        match at(text).wanted {
            Wanted::Key(holder, path, _) => (holder, path),
            other => panic!("{text}: {other:?}"),
        }
    }

    fn values(text: &str) -> (Holder, Vec<String>) {
        match at(text).wanted {
            Wanted::Value(holder, path) => (holder, path),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn the_holder_of_a_setting_is_known() {
        let arch = || Holder::Arch("a".to_owned());
        let definition = |name: &str| Holder::Definition(name.to_owned());
        assert_eq!(keys("arch a { vocab 3 |"), key(arch(), &[]));
        assert_eq!(keys("arch a { vocab 3\n  di| }"), key(arch(), &[]));
        assert_eq!(keys("arch a { layers 2 of decoder { | } }"), key(definition("decoder"), &[]));
        let inner = "arch a { layers 2 of decoder { mixer attention { heads 4, |";
        assert_eq!(keys(inner), key(definition("attention"), &[]));
        let nested = "arch a { layers 2 of decoder { mixer attention { rope { |";
        assert_eq!(keys(nested), key(definition("attention"), &["rope"]));
        assert_eq!(
            keys("arch b = a with { mixer.rope.|"),
            key(Holder::Arch("b".into()), &["mixer", "rope"])
        );
        assert_eq!(keys("arch a = c with { layers[3].mixer.h|"), key(arch(), &["mixer"]));
        assert_eq!(keys("arch a = c with { canon A, B { k|"), key(definition("canon"), &[]));
        assert_eq!(keys("block w = decoder { |"), key(definition("decoder"), &[]));
        assert_eq!(keys("block w(x) {\n  share p = linear { |"), key(definition("linear"), &[]));
        assert_eq!(values("arch a { mixer |"), key(arch(), &["mixer"]));
        assert_eq!(values("arch a { layers 2 of |"), key(arch(), &["layers"]));
        assert_eq!(
            values("arch a { mixer attention { rope n|"),
            key(definition("attention"), &["rope"])
        );
        assert_eq!(values("arch a = b with { fill A with |"), key(arch(), &["with"]));
        assert_eq!(at("arch a = b with { fill A, |").wanted, Wanted::Slot(arch()));
        let Wanted::Key(_, _, set) = at("arch a { vocab 3 dim 4 |").wanted else { panic!() };
        assert_eq!(set, ["vocab", "dim"]);
    }

    #[test]
    fn the_names_of_a_body_are_known() {
        let text = "block f(x, y; n = 2) {\n  a, b = split(x, 1, 1)\n  param w [n]\n  c = |";
        let cursor = at(text);
        assert_eq!(cursor.wanted, Wanted::Expression(None));
        for name in ["x", "y", "n", "a", "b", "w", "c"] {
            assert!(cursor.locals.iter().any(|local| local == name), "{name}: {:?}", cursor.locals);
        }
        assert_eq!(at("block f(x) {\n  |").wanted, Wanted::Statement);
        assert_eq!(at("block f(x) {\n  if n { |").wanted, Wanted::Statement);
        let call = |name: &str| Wanted::Expression(Some(name.to_owned()));
        assert_eq!(at("block f(x) {\n  linear up (x, |").wanted, call("linear"));
        assert_eq!(at("block f(x) {\n  a = rope(q, |").wanted, call("rope"));
        assert_eq!(at("block f(x) {\n  a = x\n  sigmoid(linear gate (|").wanted, call("linear"));
    }

    #[test]
    fn a_definition_fits_at_the_start_of_a_file() {
        assert_eq!(at("|").wanted, Wanted::Definition);
        assert_eq!(at("arch a { vocab 3 }\n\n|").wanted, Wanted::Definition);
        assert_eq!(at("arch b = |").wanted, Wanted::Base);
        assert_eq!(at("import a from \"../ar|").wanted, Wanted::Path("../ar".to_owned()));
        assert_eq!(
            at("import | from \"a.canon\"").wanted,
            Wanted::Import(Some("a.canon".to_owned()))
        );
        assert_eq!(at("arch a { // wo|").wanted, Wanted::Nothing);
        // What is before a definition need not be finished.
        assert_eq!(keys("block f(x) { a = \narch a { |"), key(Holder::Arch("a".into()), &[]));
    }
}
